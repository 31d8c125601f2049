//! Ceph configuration files named by an RPC: their author may not be allowed to control this process.
//!
//! librados acts on such a file as soon as it reads it: it opens a log, listens at a socket, loads code. So the file is
//! read once and checked, and librados gets the checked copy.

use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// Suffixes of options that write files, make sockets or load code. (A keyring is only read.)
const FORBIDDEN_ENDS: [&str; 6] = ["_file", "_dir", "_path", "_socket", "_plugins", "chdir"];
/// Such options with other names.
const FORBIDDEN: [&str; 4] = ["setuser", "setgroup", "setuser_match_path", "admin_socket_mode"];
/// Longest file, in bytes.
const BYTES_MAX: u64 = 1 << 20;

/// A checked copy, as a file of this process. It exists as long as this.
pub(super) struct CheckedConf(File);

impl CheckedConf {
    /// Reads and checks the file at `path`.
    ///
    /// # Errors
    /// Returns the problem as text.
    pub(super) fn read(path: &Path) -> Result<CheckedConf, String> {
        let failed = |error: io::Error| {
            format!("cannot read its configuration from {}: {error}", path.display())
        };
        let file = File::open(path).map_err(failed)?;
        let text = io::read_to_string(io::Read::take(file, BYTES_MAX)).map_err(failed)?;
        if let Some(option) = forbidden(&text) {
            let path = path.display();
            return Err(format!(
                "its configuration {path} has the option {option}: a file that RPC has named may not have files \
                 written, sockets made or code loaded: leave it out, or name the file in the configuration of this program"
            ));
        }
        let copy = memfd_create("ceph.conf", MemfdFlags::CLOEXEC).map_err(|e| failed(e.into()))?;
        let mut copy = File::from(copy);
        copy.write_all(text.as_bytes()).map_err(failed)?;
        Ok(CheckedConf(copy))
    }

    /// Returns the copy's path for librados.
    pub(super) fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.0.as_raw_fd()).into()
    }
}

/// Returns the first forbidden option, by Ceph's name.
fn forbidden(text: &str) -> Option<String> {
    // A line continues behind a backslash at its end.
    let text = text.replace("\\\r\n", "").replace("\\\n", "");
    let options = text.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name);
    let names = options.map(|name| {
        // Ceph treats spaces, dashes and underscores as the same.
        let words = name.split(|c: char| c.is_whitespace() || c == '-' || c == '_');
        words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join("_").to_lowercase()
    });
    let is_forbidden = |name: &String| {
        FORBIDDEN.contains(&name.as_str()) || FORBIDDEN_ENDS.iter().any(|end| name.ends_with(end))
    };
    names.into_iter().find(is_forbidden)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_write_listen_or_load_are_found() {
        for (text, option) in [
            ("[global]\nmon_host = 192.0.2.1\nkeyring = /etc/ceph/k\nfsid = x\n", None),
            ("[client]\nrbd_default_features = 61\nauth_client_required=cephx\n", None),
            ("log_file=/etc/x", Some("log_file")),
            ("[client]\n  log file = /etc/x\n", Some("log_file")),
            ("Log-File = /etc/x", Some("log_file")),
            ("log _ file = /etc/x", Some("log_file")),
            ("log_\\\nfile = /etc/x", Some("log_file")),
            ("admin_socket = /run/x.sock", Some("admin_socket")),
            ("plugin_dir = /srv", Some("plugin_dir")),
            ("erasure code dir = /srv", Some("erasure_code_dir")),
            ("rbd_plugins = x", Some("rbd_plugins")),
            ("rbd_persistent_cache_path = /srv", Some("rbd_persistent_cache_path")),
            ("pid_file=/run/x", Some("pid_file")),
            ("setuser = root", Some("setuser")),
        ] {
            assert_eq!(forbidden(text).as_deref(), option, "{text}");
        }
    }

    #[test]
    fn librados_gets_what_was_checked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ceph.conf");
        std::fs::write(&path, "mon_host = 192.0.2.1\n").unwrap();
        let checked = CheckedConf::read(&path).unwrap();
        std::fs::write(&path, "log_file = /etc/x\n").unwrap();
        assert_eq!(std::fs::read_to_string(checked.path()).unwrap(), "mon_host = 192.0.2.1\n");
        let problem = CheckedConf::read(&path).map(drop).unwrap_err();
        assert!(problem.contains("option log_file"), "{problem}");
        assert!(CheckedConf::read(&folder.path().join("none")).is_err());
    }
}
