//! The kernel's host: nvme-tcp, by `/dev/nvme-fabrics` and sysfs.

use super::attach::Publication;
use crate::settings::split_address;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Kernel interface, or a folder with the same files.
#[derive(Clone, Debug)]
pub(crate) struct KernelHost {
    fabrics: PathBuf,
    sysfs: PathBuf,
}

impl Default for KernelHost {
    fn default() -> KernelHost {
        KernelHost { fabrics: "/dev/nvme-fabrics".into(), sysfs: "/sys".into() }
    }
}

fn read(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

impl KernelHost {
    /// Returns the controllers of a subsystem: a path each.
    fn controllers(&self, nqn: &str) -> Vec<PathBuf> {
        let folder = self.sysfs.join("class/nvme");
        let all = names(&folder).into_iter().map(|name| folder.join(name));
        all.filter(|path| read(&path.join("subsysnqn")).as_deref() == Some(nqn)).collect()
    }

    /// True if the kernel has a controller of the subsystem.
    pub(crate) fn is_connected(&self, nqn: &str) -> bool {
        !self.controllers(nqn).is_empty()
    }

    /// Returns the path of the block device of namespace 1 of a subsystem, once it is there.
    pub(crate) fn device(&self, nqn: &str) -> Option<String> {
        let folder = self.sysfs.join("class/nvme-subsystem");
        let mut subsystems = names(&folder).into_iter().map(|name| folder.join(name));
        let subsystem =
            subsystems.find(|path| read(&path.join("subsysnqn")).as_deref() == Some(nqn))?;
        // With multipath the disk is the subsystem's, without it the controller's.
        let own = std::iter::once(subsystem).chain(self.controllers(nqn));
        let is_disk = |name: &String| {
            let number = name.strip_prefix("nvme").and_then(|rest| rest.split_once('n'));
            number.is_some_and(|(subsystem, nsid)| {
                subsystem.parse::<u32>().is_ok() && nsid.parse::<u32>().is_ok()
            })
        };
        let disk = own.flat_map(|path| names(&path)).find(is_disk)?;
        Some(format!("/dev/{disk}"))
    }

    /// Returns the states of the controllers, such as `live`.
    pub(crate) fn states(&self, nqn: &str) -> Vec<String> {
        let states = self.controllers(nqn).into_iter().map(|path| read(&path.join("state")));
        states.map(Option::unwrap_or_default).collect()
    }

    /// Connects by all addresses that are not connected yet.
    ///
    /// # Errors
    /// No address can be connected.
    pub(crate) fn connect(
        &self,
        publication: &Publication,
        node: &str,
        host_id: &str,
        secrets: &[(&str, String)],
    ) -> Result<(), String> {
        let mut last = None;
        for address in &publication.addresses {
            let options = options(publication, address, node, host_id, secrets);
            let write = || {
                fs::OpenOptions::new()
                    .write(true)
                    .open(&self.fabrics)?
                    .write_all(options.as_bytes())
            };
            match write() {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error)
                    if error.raw_os_error() == Some(rustix::io::Errno::ALREADY.raw_os_error()) => {}
                Err(error) => {
                    last = Some(format!(
                        "nvme-tcp: {address}: {error}; the kernel's log has the reason"
                    ))
                }
            }
        }
        match last {
            Some(failure) if !self.is_connected(&publication.nqn) => Err(failure),
            Some(failure) => {
                tracing::warn!("{failure}; other paths are connected");
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Disconnects a subsystem.
    ///
    /// # Errors
    /// A controller cannot be deleted.
    pub(crate) fn disconnect(&self, nqn: &str) -> Result<(), String> {
        for controller in self.controllers(nqn) {
            let path = controller.join("delete_controller");
            match fs::write(&path, "1") {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(format!("{}: {error}", path.display()));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Options of one connection, as `/dev/nvme-fabrics` takes them.
fn options(
    publication: &Publication,
    address: &str,
    node: &str,
    host_id: &str,
    secrets: &[(&str, String)],
) -> String {
    let (traddr, trsvcid) = split_address(address);
    let mut options = format!(
        "nqn={},transport=tcp,traddr={traddr},trsvcid={trsvcid},hostnqn={node},hostid={host_id},\
         ctrl_loss_tmo=600,reconnect_delay=2,keep_alive_tmo=5",
        publication.nqn
    );
    if publication.tls {
        options += ",tls";
    }
    for (name, value) in secrets {
        options += &format!(",{name}={value}");
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    fn publication() -> Publication {
        let addresses = vec!["192.0.2.7:4420".into(), "[2001:db8::7]:4421".into()];
        Publication { nqn: "nqn.a:1".into(), addresses, tls: true }
    }

    /// A folder as the kernel shows two subsystems, the second without multipath.
    fn host() -> (tempfile::TempDir, KernelHost) {
        let folder = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        for (number, nqn) in [(0, "nqn.a:1"), (1, "nqn.a:2")] {
            put(
                &format!("sys/class/nvme-subsystem/nvme-subsys{number}/subsysnqn"),
                &format!("{nqn}\n"),
            );
            put(&format!("sys/class/nvme/nvme{number}/subsysnqn"), &format!("{nqn}\n"));
            put(&format!("sys/class/nvme/nvme{number}/state"), "live\n");
            put(&format!("sys/class/nvme/nvme{number}/delete_controller"), "");
        }
        put("sys/class/nvme-subsystem/nvme-subsys0/nvme0c0n1/x", "");
        put("sys/class/nvme-subsystem/nvme-subsys0/nvme0n1/x", "");
        put("sys/class/nvme/nvme1/nvme1n1/x", "");
        put("fabrics", "");
        let host =
            KernelHost { fabrics: folder.path().join("fabrics"), sysfs: folder.path().join("sys") };
        (folder, host)
    }

    #[test]
    fn devices_are_found() {
        let (_folder, host) = host();
        assert_eq!(host.device("nqn.a:1").as_deref(), Some("/dev/nvme0n1"));
        assert_eq!(host.device("nqn.a:2").as_deref(), Some("/dev/nvme1n1"));
        assert_eq!(host.device("nqn.a:3"), None);
        assert!(host.is_connected("nqn.a:2") && !host.is_connected("nqn.a:3"));
        assert_eq!(host.states("nqn.a:1"), ["live"]);
    }

    #[test]
    fn connects_and_disconnects() {
        let (folder, host) = host();
        host.connect(&publication(), "nqn.h", "id", &[("dhchap_secret", "k".into())]).unwrap();
        let written = fs::read_to_string(folder.path().join("fabrics")).unwrap();
        let expected = "nqn=nqn.a:1,transport=tcp,traddr=2001:db8::7,trsvcid=4421,hostnqn=nqn.h,hostid=id,\
            ctrl_loss_tmo=600,reconnect_delay=2,keep_alive_tmo=5,tls,dhchap_secret=k";
        assert!(written.starts_with("nqn=") && written.contains(expected), "{written}");
        host.disconnect("nqn.a:1").unwrap();
        let path = folder.path().join("sys/class/nvme/nvme0/delete_controller");
        assert_eq!(fs::read_to_string(path).unwrap(), "1");
        let gone = KernelHost { fabrics: "/nonexistent".into(), ..host };
        assert!(
            gone.connect(&Publication { nqn: "n".into(), ..publication() }, "h", "i", &[]).is_err()
        );
    }
}
