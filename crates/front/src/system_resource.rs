//! Resources that an attachment makes on the machine. A process that is killed leaves them; this removes them.

use crate::fuse;
use std::fmt;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant};

/// A resource that outlives the process that made it. Written as `socket:/PATH` and so on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SystemResource {
    /// File of a Unix socket.
    Socket(PathBuf),
    /// A mounted file system.
    Mount(PathBuf),
    /// A folder that was made as a mount point; stays while it is not empty.
    Folder(PathBuf),
    /// A loop device, `/dev/loopN`.
    Loop(PathBuf),
    /// A ublk device's number.
    Ublk(u32),
}

impl SystemResource {
    /// Removes the resource of a process that is gone. Returns `false` if it does not exist.
    ///
    /// # Errors
    /// Returns the error that prevents the removal.
    pub fn remove(&self) -> io::Result<bool> {
        match self {
            SystemResource::Socket(path) => remove_socket(path, SOCKET_PATIENCE),
            SystemResource::Mount(path) => fuse::remove_mount(path),
            SystemResource::Folder(path) => Ok(std::fs::remove_dir(path).is_ok()),
            SystemResource::Loop(path) => fuse::remove_loop_device(path),
            SystemResource::Ublk(id) => crate::ublk::remove(*id),
        }
    }

    /// True if it is removed, but stays until its other users release it.
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        matches!(self, SystemResource::Loop(path) if fuse::is_loop_device_in_use(path))
    }

    /// Returns its users as text for people, if the system lists them.
    #[must_use]
    pub fn users(&self) -> Vec<String> {
        match self {
            SystemResource::Loop(path) => fuse::users_of_loop_device(path),
            _ => Vec::new(),
        }
    }

    /// True if the next process with the same front-end takes it over as it is.
    #[must_use]
    pub fn is_recovered(&self) -> bool {
        matches!(self, SystemResource::Ublk(_))
    }
}

/// Longest time for which a socket may still accept after its process is gone. The kernel takes io_uring's rings, and
/// the files that they refer to, apart in the background.
const SOCKET_PATIENCE: Duration = Duration::from_secs(2);
const SOCKET_PAUSE: Duration = Duration::from_millis(20);

/// Removes a socket's file without a listener, or whose listener ends soon.
fn remove_socket(path: &Path, patience: Duration) -> io::Result<bool> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
        Ok(found) if !found.file_type().is_socket() => return Ok(false),
        Ok(_) => {}
    }
    let end = Instant::now() + patience;
    while Instant::now() < end {
        match UnixStream::connect(path) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                return std::fs::remove_file(path).map(|()| true);
            }
            _ => std::thread::sleep(SOCKET_PAUSE),
        }
    }
    Ok(false) // another process uses it by now
}

impl fmt::Display for SystemResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SystemResource::Socket(path) => write!(f, "socket:{}", path.display()),
            SystemResource::Mount(path) => write!(f, "mount:{}", path.display()),
            SystemResource::Folder(path) => write!(f, "folder:{}", path.display()),
            SystemResource::Loop(path) => write!(f, "loop:{}", path.display()),
            SystemResource::Ublk(id) => write!(f, "ublk:{id}"),
        }
    }
}

impl FromStr for SystemResource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no mount, loop or ublk device, folder or socket");
        let (kind, name) = text.split_once(':').ok_or_else(wrong)?;
        match kind {
            "socket" => Ok(SystemResource::Socket(name.into())),
            "mount" => Ok(SystemResource::Mount(name.into())),
            "folder" => Ok(SystemResource::Folder(name.into())),
            "loop" => Ok(SystemResource::Loop(name.into())),
            "ublk" => name.parse().map(SystemResource::Ublk).map_err(|_| wrong()),
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn they_parse_as_they_print() {
        for text in ["socket:/a:b", "mount:/mnt/x", "folder:/mnt/x", "loop:/dev/loop3", "ublk:7"] {
            assert_eq!(text.parse::<SystemResource>().unwrap().to_string(), text);
        }
        for text in ["", "ublk:", "ublk:x", "disk:/a"] {
            assert!(text.parse::<SystemResource>().is_err(), "{text}");
        }
    }

    #[test]
    fn only_dead_sockets_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let socket = SystemResource::Socket(path.clone());
        assert!(!socket.remove().unwrap(), "not there");
        // On a machine that stalls the listener may exist for too long, but not each time.
        let mut removed = (0..3).map(|_| {
            let _ = std::fs::remove_file(&path);
            let listener = UnixListener::bind(&path).unwrap();
            assert!(!remove_socket(&path, SOCKET_PAUSE).unwrap(), "a process listens");
            let ends = std::thread::spawn(move || {
                std::thread::sleep(3 * SOCKET_PAUSE);
                drop(listener);
            });
            let is_removed = socket.remove().unwrap();
            ends.join().unwrap();
            is_removed
        });
        assert!(removed.any(|is_removed| is_removed), "no process listens for long");
        assert!(!path.exists());
        std::fs::write(&path, "a file").unwrap();
        assert!(!socket.remove().unwrap());
        assert!(path.exists(), "not a socket");
    }
}
