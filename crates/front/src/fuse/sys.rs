//! System calls that the standard library lacks.
#![allow(unsafe_code, reason = "system calls")]

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::process::{getegid, geteuid};
use std::ffi::CString;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;

/// `FUSE_DEV_IOC_CLONE`: `_IOR(229, 0, uint32_t)`.
const FUSE_DEV_IOC_CLONE: libc::c_ulong = 0x8004_e500;

/// Makes `device`, freshly opened, serve the same mount as `original`.
pub(super) fn clone_device(device: &File, original: &File) -> io::Result<()> {
    let number = original.as_raw_fd();
    ioctl(device, FUSE_DEV_IOC_CLONE, (&raw const number).expose_provenance()).map(drop)
}

/// Mounts a FUSE file system at `path`.
pub(super) fn mount(kind: &str, source: &str, path: &Path, options: &str) -> io::Result<()> {
    let options = CString::new(options)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    Ok(rustix::mount::mount(source, path, kind, flags, Some(options.as_c_str()))?)
}

/// Way in which a mount is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnmountMode {
    /// Only if nothing uses it.
    Unused,
    /// The same, but its requests fail in any case.
    FailRequests,
    /// At once, also if it is in use.
    Detach,
}

/// Unmounts `path`.
pub(super) fn unmount(path: &Path, mode: UnmountMode) -> io::Result<()> {
    let forced = match mode {
        UnmountMode::Unused => UnmountFlags::empty(),
        UnmountMode::FailRequests => UnmountFlags::FORCE,
        UnmountMode::Detach => UnmountFlags::FORCE | UnmountFlags::DETACH,
    };
    Ok(rustix::mount::unmount(path, UnmountFlags::NOFOLLOW | forced)?)
}

/// Returns the effective user and group of this process.
pub(super) fn user_and_group() -> (u32, u32) {
    (geteuid().as_raw(), getegid().as_raw())
}

/// Explains why a driver's file cannot be opened, and what to do if it does not exist.
pub(super) fn driver_is_missing(path: &str, driver: &str, error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::NotFound => {
            let todo = format!("run `modprobe {driver}` as root, in a container pass it {path}");
            io::Error::new(ErrorKind::Unsupported, format!("{path} does not exist: {todo}"))
        }
        kind => io::Error::new(kind, format!("{path}: {error}")),
    }
}

/// Bytes of the kernel's `struct loop_config`.
pub(super) const LOOP_CONFIG_BYTES: usize = 304;

const LOOP_CLR_FD: libc::c_ulong = 0x4c01;
const LOOP_SET_CAPACITY: libc::c_ulong = 0x4c07;
const LOOP_CONFIGURE: libc::c_ulong = 0x4c0a;
const LOOP_CTL_GET_FREE: libc::c_ulong = 0x4c82;

/// Returns the number of a loop device that is free at the moment.
pub(super) fn loop_get_free(control: &File) -> io::Result<i32> {
    ioctl(control, LOOP_CTL_GET_FREE, 0)
}

/// Configures a loop device.
pub(super) fn loop_configure(device: &File, config: &[u8; LOOP_CONFIG_BYTES]) -> io::Result<()> {
    ioctl(device, LOOP_CONFIGURE, config.as_ptr().expose_provenance()).map(drop)
}

/// Makes a loop device take over the size of its file.
pub(super) fn loop_set_capacity(device: &File) -> io::Result<()> {
    ioctl(device, LOOP_SET_CAPACITY, 0).map(drop)
}

/// Detaches a loop device, at once or when it is closed.
pub(super) fn loop_clear(device: &File) -> io::Result<()> {
    ioctl(device, LOOP_CLR_FD, 0).map(drop)
}

/// Calls `ioctl`; the argument is a number, or the address of the request's data.
fn ioctl(file: &File, request: libc::c_ulong, argument: usize) -> io::Result<i32> {
    // SAFETY: the functions above pass the requests that take a pointer an address of as much memory as they read.
    let value = unsafe { libc::ioctl(file.as_raw_fd(), request, argument) };
    if value < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

/// Waits until `file` is readable, at most `wait`. True if it is.
pub(super) fn wait_readable(file: &File, wait: Duration) -> io::Result<bool> {
    let wait = Timespec::try_from(wait).map_err(io::Error::other)?;
    Ok(poll(&mut [PollFd::new(file, PollFlags::IN)], Some(&wait))? > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_driver_is_not_a_missing_folder() {
        let error = driver_is_missing("/dev/fuse", "fuse", ErrorKind::NotFound.into());
        assert_ne!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains("modprobe fuse"), "{error}");
        let error = driver_is_missing("/dev/fuse", "fuse", ErrorKind::PermissionDenied.into());
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    }
}
