//! IDs of this machine and its network namespace.

use roadtrain_proto::digest::digest;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Returns an ID of this machine's installation, which does not reveal its machine ID, a confidential value
/// (machine-id(5)). Without a machine ID it is derived from the host name.
pub fn machine() -> u128 {
    machine_below(Path::new("/"))
}

/// Returns the ID from the files below `root`.
fn machine_below(root: &Path) -> u128 {
    let places = ["etc/machine-id", "var/lib/dbus/machine-id", "proc/sys/kernel/hostname"];
    let texts = places.iter().filter_map(|place| fs::read_to_string(root.join(place)).ok());
    let known = texts.map(|text| text.trim().to_owned()).find(|text| !text.is_empty());
    digest(&[b"machine\0", known.unwrap_or_default().as_bytes()])
}

/// Returns an ID of this process's network namespace since the machine was booted: no other one at the same time has
/// it. 0: not known.
pub fn network() -> u128 {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = fs::read_link("/proc/self/ns/net").unwrap_or_default();
    if boot.trim().is_empty() || namespace.as_os_str().is_empty() {
        return 0;
    }
    digest(&[b"network\0", boot.as_bytes(), namespace.as_os_str().as_bytes()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_differ_and_stay_the_same() {
        let [one, other] = ["one\n", "other\n"].map(|id| {
            let root = tempfile::tempdir().unwrap();
            fs::create_dir_all(root.path().join("etc")).unwrap();
            fs::write(root.path().join("etc/machine-id"), id).unwrap();
            fs::create_dir_all(root.path().join("proc/sys/kernel")).unwrap();
            fs::write(root.path().join("proc/sys/kernel/hostname"), "the same\n").unwrap();
            assert_eq!(machine_below(root.path()), machine_below(root.path()));
            machine_below(root.path())
        });
        assert_ne!(one, other);
        assert_eq!(machine(), machine());
        assert_eq!(network(), network());
        assert_ne!(network(), 0);
    }
}
