//! Identity of a block device.
//!
//! A worldwide unique identifier is the device's on any machine: a disk that moves to another machine keeps it. An
//! identifier that is unique only on its machine (a serial number that a user has chosen, an address on a bus) is
//! combined with the machine's. A device without any, like a memory disk, has another identity after each boot: its
//! blocks may be others.

use super::of_backing_file;
use roadtrain_proto::digest::digest;
use roadtrain_system::machine::machine;
use std::fs;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tracing::warn;

/// Identifier of a device, by its scope.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Identifier {
    /// Unique worldwide.
    World(String),
    /// Unique on this machine.
    Machine(String),
    /// Valid until the machine is rebooted.
    Boot(String),
}

/// Returns the identity of the block device that is open as `file`.
pub(in super::super) fn of_block(path: &Path, file: &File) -> io::Result<u128> {
    let rdev = file.metadata()?.rdev();
    let number = format!("{}:{}", libc::major(rdev), libc::minor(rdev));
    let found = fs::canonicalize(Path::new("/sys/dev/block").join(&number));
    let identifier = match found {
        Ok(directory) => identify(&directory),
        Err(_) => Identifier::Boot(format!("number {number}")), // no /sys
    };
    if let Identifier::Boot(_) = identifier {
        warn!(
            path = %path.display(),
            "nothing identifies this device: hosts see another disk when the machine has started again; give it \
             a uuid if its blocks last longer"
        );
    }
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    Ok(number_of(&identifier, machine(), boot.trim()))
}

fn number_of(identifier: &Identifier, machine: u128, boot: &str) -> u128 {
    let machine = machine.to_be_bytes();
    match identifier {
        Identifier::World(text) => digest(&[b"device\0", text.as_bytes()]),
        Identifier::Machine(text) => digest(&[b"device of\0", &machine, text.as_bytes()]),
        Identifier::Boot(text) => {
            digest(&[b"device at\0", &machine, boot.as_bytes(), b"\0", text.as_bytes()])
        }
    }
}

/// Reads the identifier from the device's `directory` in /sys.
fn identify(directory: &Path) -> Identifier {
    let read = |name: &str| {
        let text = fs::read_to_string(directory.join(name)).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    };
    if let (Some(_), Some(parent)) = (read("partition"), directory.parent()) {
        let start = read("start").unwrap_or_default();
        return identify(parent).with(&format!(" from {start}"));
    }
    if let Some(backing) = read("loop/backing_file") {
        let offset = read("loop/offset").unwrap_or_default();
        let store = of_backing_file(&PathBuf::from(&backing));
        let file = store.map_or(Identifier::Boot(backing), |store| {
            Identifier::World(format!("file {store:032x}"))
        });
        return file.with(&format!(" loop from {offset}"));
    }
    let uuids = ["dm/uuid", "md/uuid"].iter().find_map(|name| read(name));
    if let Some(uuid) = uuids {
        return Identifier::World(format!("uuid {uuid}"));
    }
    if let Some(wwid) = read("wwid").or_else(|| read("device/wwid")) {
        let text = format!("wwid {wwid}");
        let world = is_unique(&wwid);
        return if world { Identifier::World(text) } else { Identifier::Machine(text) };
    }
    if let Some(serial) = read("serial").or_else(|| read("device/serial")) {
        return Identifier::Machine(format!("serial {serial}"));
    }
    if let Some(name) = read("dm/name") {
        return Identifier::Boot(format!("mapped {name}")); // made by hand
    }
    let place = directory.display().to_string();
    if directory.join("device").exists() {
        return Identifier::Machine(format!("place {place}"));
    }
    let sequence = read("diskseq").unwrap_or_default();
    Identifier::Boot(format!("place {place} {sequence}"))
}

impl Identifier {
    fn with(self, part: &str) -> Identifier {
        match self {
            Identifier::World(text) => Identifier::World(text + part),
            Identifier::Machine(text) => Identifier::Machine(text + part),
            Identifier::Boot(text) => Identifier::Boot(text + part),
        }
    }
}

/// True for worldwide unique identifiers: UUIDs, and those that begin with a maker's number. Locally administered ones,
/// and those made of a vendor's text and a serial number, are not unique: virtual machines repeat them.
fn is_unique(wwid: &str) -> bool {
    let digits = |text: &str| text.len() >= 16 && text.bytes().all(|c| c.is_ascii_hexdigit());
    let nibble = |text: &str, at: usize| text.get(at..=at).map(|n| u8::from_str_radix(n, 16));
    match wwid.split_once('.') {
        Some(("uuid", _)) => true,
        // Bit 1 of an EUI-64's first byte: locally administered.
        Some(("eui", text)) if digits(text) && text.len() == 16 => {
            nibble(text, 1).is_some_and(|n| n.is_ok_and(|n| n & 2 == 0))
        }
        Some(("eui", text)) => digits(text) && text.bytes().any(|c| c != b'0'),
        // 2: by an IEEE number and the vendor, 5 and 6: IEEE registered; 3: locally assigned.
        Some(("naa", text)) if digits(text) => {
            nibble(text, 0).is_some_and(|n| n.is_ok_and(|n| matches!(n, 2 | 5 | 6)))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a directory of /sys with these files.
    fn sys(files: &[(&str, &str)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        }
        directory
    }

    fn identified(files: &[(&str, &str)]) -> Identifier {
        identify(sys(files).path())
    }

    #[test]
    fn devices_are_known_by_the_best_that_they_have() {
        use Identifier::{Machine, World};
        for (files, expected) in [
            (
                vec![("wwid", "eui.0025388b710c1234"), ("serial", "S1")],
                World("wwid eui.0025388b710c1234".into()),
            ),
            (
                vec![("device/wwid", "naa.600140512345678912345678912345ab")],
                World("wwid naa.600140512345678912345678912345ab".into()),
            ),
            (
                vec![("device/wwid", "t10.ATA     QEMU HARDDISK   QM00001")],
                Machine("wwid t10.ATA     QEMU HARDDISK   QM00001".into()),
            ),
            (vec![("wwid", "eui.5254000000000001")], Machine("wwid eui.5254000000000001".into())),
            (vec![("dm/uuid", "LVM-abc"), ("dm/name", "vg-lv")], World("uuid LVM-abc".into())),
            (
                vec![("serial", "disk1"), ("device/vendor", "0x1af4")],
                Machine("serial disk1".into()),
            ),
        ] {
            assert_eq!(identified(&files), expected);
        }
        let placed = identified(&[("device/vendor", "0x1af4")]);
        assert!(matches!(&placed, Machine(text) if text.starts_with("place /")), "{placed:?}");
        let memory = identified(&[("size", "8"), ("diskseq", "12"), ("dm/uuid", "")]);
        assert!(matches!(&memory, Identifier::Boot(text) if text.ends_with(" 12")), "{memory:?}");
    }

    #[test]
    fn a_partition_is_its_disk_from_a_block_on() {
        let files = [("wwid", "uuid.1"), ("p1/partition", "1"), ("p1/start", "2048")];
        let disk = sys(&files);
        let expected = Identifier::World("wwid uuid.1 from 2048".into());
        assert_eq!(identify(&disk.path().join("p1")), expected);
    }

    #[test]
    fn a_loop_device_is_its_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk");
        fs::write(&path, [0; 512]).unwrap();
        let of = |offset| {
            let backing = path.display().to_string();
            identified(&[("loop/backing_file", &backing), ("loop/offset", offset)])
        };
        assert_eq!(of("0"), of("0"));
        assert_ne!(of("0"), of("512"));
        let deleted = identified(&[("loop/backing_file", "/disk (deleted)")]);
        assert!(matches!(deleted, Identifier::Boot(_)));
    }

    #[test]
    fn identifiers_that_are_not_worldwide_are_combined_with_the_machines() {
        let text = || "x".to_owned();
        let world = Identifier::World(text());
        assert_eq!(number_of(&world, 1, "a"), number_of(&world, 2, "b"));
        let machine = Identifier::Machine(text());
        assert_eq!(number_of(&machine, 1, "a"), number_of(&machine, 1, "b"));
        assert_ne!(number_of(&machine, 1, "a"), number_of(&machine, 2, "a"));
        let boot = Identifier::Boot(text());
        assert_ne!(number_of(&boot, 1, "a"), number_of(&boot, 1, "b"));
        assert_eq!(number_of(&boot, 1, "a"), number_of(&boot, 1, "a"));
    }
}
