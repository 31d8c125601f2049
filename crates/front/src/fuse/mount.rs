//! Mounts the file system, and agrees with the kernel on its features.

use super::device::FuseDevice;
use super::handshake;
use super::loop_device;
use super::mount_state::MountedDevice;
use super::sys::{self, UnmountMode};
use super::uring::{FuseUring, UringSwitch};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tracing::{debug, warn};

/// File system type.
const KIND: &str = "fuse.roadtrain";
const SOURCE: &str = "roadtrain";
/// Longest wait for the kernel's first request.
const INIT_TIMEOUT: Duration = Duration::from_secs(10);
/// Attempts of an unmount that finds the directory busy.
const BUSY_RETRIES: u32 = 5;
const BUSY_PAUSE: Duration = Duration::from_millis(20);
/// Longest wait for the end of a killed process and of other users of its mount.
const LEFTOVER_PATIENCE: Duration = Duration::from_secs(1);

/// A mount of this process. Dropping it unmounts it.
#[derive(Debug)]
pub(super) struct KernelMount {
    path: PathBuf,
    // Dropped after the mount has ended.
    made: MadeFolders,
}

/// Folders that were made for a mount point: itself and its parents that did not exist, innermost first. Dropping it
/// removes those that are empty.
#[derive(Debug, Default)]
struct MadeFolders(Vec<PathBuf>);

impl MadeFolders {
    /// Makes the missing folders of `path`.
    fn new(path: &Path) -> io::Result<Self> {
        let path = std::path::absolute(path)?;
        let missing = path.ancestors().take_while(|folder| !folder.exists());
        let made = MadeFolders(missing.map(Path::to_owned).collect());
        std::fs::create_dir_all(&path)?;
        Ok(made)
    }
}

impl Drop for MadeFolders {
    fn drop(&mut self) {
        for folder in &self.0 {
            if let Err(error) = std::fs::remove_dir(folder) {
                debug!("{} stays: {error}", folder.display());
            }
        }
    }
}

impl KernelMount {
    /// Mounts at `path`, which is made if it does not exist.
    pub(super) fn new(path: &Path, uring: FuseUring) -> io::Result<(Self, MountedDevice)> {
        if is_dead(path) {
            remove_leftover(path, || loop_device::remove_all_over(path))?;
        }
        let made = MadeFolders::new(path)?;
        let path = path.canonicalize()?;
        check_is_empty(&path)?;
        let switch = UringSwitch::set(uring)?;
        let device = FuseDevice::open()?;
        let (uid, gid) = sys::user_and_group();
        let fd = device.fd();
        let options = format!(
            "fd={fd},rootmode=40000,user_id={uid},group_id={gid},default_permissions,max_read={}",
            handshake::TRANSFER_BYTES_MAX
        );
        sys::mount(KIND, SOURCE, &path, &options).map_err(explain)?;
        let mount = KernelMount { path, made };
        let agreed = answer_init(&device, uring != FuseUring::Off)?;
        drop(switch);
        if uring == FuseUring::On && !agreed {
            return Err(io::Error::new(ErrorKind::Unsupported, "no FUSE over io_uring"));
        }
        Ok((mount, MountedDevice { device, uring: agreed }))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the folders that were made for the mount, innermost first.
    pub(super) fn made_folders(&self) -> &[PathBuf] {
        &self.made.0
    }
}

impl Drop for KernelMount {
    fn drop(&mut self) {
        for _ in 0..BUSY_RETRIES {
            match sys::unmount(&self.path, UnmountMode::Unused) {
                Err(error) if error.kind() == ErrorKind::ResourceBusy => {}
                Err(error) => return debug!("{} is no mount: {error}", self.path.display()),
                Ok(()) => return,
            }
            std::thread::sleep(BUSY_PAUSE);
        }
        warn!("{} is in use: its requests fail from now on", self.path.display());
        if let Err(error) = sys::unmount(&self.path, UnmountMode::Detach) {
            warn!("cannot unmount {}: {error}", self.path.display());
        }
    }
}

/// Fails if the folder is not empty: the mount would hide its content.
fn check_is_empty(path: &Path) -> io::Result<()> {
    match std::fs::read_dir(path)?.next() {
        None => Ok(()),
        Some(_) => {
            let text =
                "the folder is not empty, and what is in it would be hidden: choose another one";
            Err(io::Error::new(ErrorKind::DirectoryNotEmpty, text))
        }
    }
}

/// Removes the mount that a killed process has left at `path`. The process may still wait in the kernel for a request to
/// its own mount, and makes a loop device once that fails: `remove_devices` runs as long as something uses the mount.
/// Returns `false` if there is no mount.
pub(super) fn remove_leftover(path: &Path, remove_devices: impl Fn()) -> io::Result<bool> {
    remove_devices();
    if !is_mounted(path) {
        return Ok(false);
    }
    let last = Instant::now() + LEFTOVER_PATIENCE;
    while let Err(error) = sys::unmount(path, UnmountMode::FailRequests) {
        if error.kind() != ErrorKind::ResourceBusy || Instant::now() >= last {
            return sys::unmount(path, UnmountMode::Detach).map(|()| true);
        }
        remove_devices();
        std::thread::sleep(BUSY_PAUSE);
    }
    Ok(true)
}

/// True if the process that served the mount at `path` is gone.
fn is_dead(path: &Path) -> bool {
    std::fs::metadata(path).is_err_and(|error| is_error_of_dead_mount(&error))
}

/// True if `error` comes from a mount whose process is gone, or from a request that was in flight when it went. The
/// kernel takes the process's rings apart in the background, so its mount may stay for a moment.
fn is_error_of_dead_mount(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOTCONN | libc::ECONNABORTED))
}

/// True if a mount of this program is at `path`.
pub(super) fn is_mounted(path: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    mounts.lines().any(|line| is_ours(line, path))
}

/// True if `line` of `mountinfo` is a mount of this program at `path`.
fn is_ours(line: &str, path: &Path) -> bool {
    let Some((place, kind)) = line.split_once(" - ") else { return false };
    let point = place.split(' ').nth(4).map(unescape);
    point.is_some_and(|point| Path::new(&point) == path) && kind.split(' ').next() == Some(KIND)
}

/// Decodes blanks and the like, which `mountinfo` writes as octal numbers.
fn unescape(text: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(text.to_owned(), |text, (code, byte)| text.replace(code, byte))
}

/// Answers the kernel's INIT request. True if requests come over io_uring.
fn answer_init(device: &FuseDevice, uring: bool) -> io::Result<bool> {
    if !device.wait(INIT_TIMEOUT)? {
        return Err(io::Error::new(ErrorKind::TimedOut, "the kernel does not speak"));
    }
    let (mut request, mut rest) = ([0; 256], vec![0; handshake::READ_BYTES]);
    let bytes = device.receive([
        IoSliceMut::new(&mut request),
        IoSliceMut::new(&mut rest),
        IoSliceMut::new(&mut []),
    ])?;
    let request = request.get(..bytes).ok_or(ErrorKind::InvalidData)?;
    let answer = handshake::answer(request, uring)?;
    device.send([IoSlice::new(&answer.bytes), IoSlice::new(&[])])?;
    Ok(answer.uring)
}

fn explain(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::PermissionDenied => {
            io::Error::new(error.kind(), format!("{error} (mounting needs root)"))
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_that_is_dying_is_dead() {
        let is_dead = |number| is_error_of_dead_mount(&io::Error::from_raw_os_error(number));
        assert!(is_dead(libc::ENOTCONN) && is_dead(libc::ECONNABORTED));
        assert!(!is_dead(libc::ENOENT) && !is_dead(libc::EACCES));
    }

    #[test]
    fn a_folder_with_content_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        check_is_empty(folder.path()).unwrap();
        std::fs::write(folder.path().join("file"), "content").unwrap();
        let error = check_is_empty(folder.path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DirectoryNotEmpty);
        let error = KernelMount::new(folder.path(), FuseUring::Off).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DirectoryNotEmpty, "before anything is mounted");
    }

    #[test]
    fn made_folders_go_again_and_others_stay() {
        let folder = tempfile::tempdir().unwrap();
        let (above, path) = (folder.path().join("a"), folder.path().join("a/b"));
        let made = MadeFolders::new(&path).unwrap();
        assert_eq!(made.0, [path.clone(), above.clone()]);
        assert!(MadeFolders::new(&path).unwrap().0.is_empty(), "they are there");
        assert!(path.is_dir());
        drop(made);
        assert!(!above.exists());
        assert!(folder.path().exists());
        let made = MadeFolders::new(&path).unwrap();
        std::fs::write(above.join("file"), "another file").unwrap();
        drop(made);
        assert!(!path.exists() && above.exists(), "only what is empty goes");
    }

    #[test]
    fn only_our_own_mounts_are_ours() {
        let line = |kind: &str, path: &str| {
            format!("36 35 0:41 / {path} rw,nosuid - {kind} roadtrain rw,user_id=0")
        };
        let at = Path::new("/mnt/a b");
        assert!(is_ours(&line(KIND, "/mnt/a\\040b"), at));
        assert!(!is_ours(&line("fuse.other", "/mnt/a\\040b"), at));
        assert!(!is_ours(&line(KIND, "/mnt/a"), at));
        assert!(!is_ours("", at));
    }
}
