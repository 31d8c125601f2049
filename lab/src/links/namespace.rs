//! A network namespace without a name: it is there as long as a process is in it or holds it, so nothing
//! is left over, however this process ends.

use anyhow::{Context, anyhow};
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;
use std::thread;

const OWN: &str = "/proc/thread-self/ns/net";
const ROOT: &CStr = c"/";
const SYS: &CStr = c"/sys";
const SYSFS: &CStr = c"sysfs";

/// A network namespace.
#[derive(Debug)]
pub(crate) struct NetworkNamespace(OwnedFd);

impl NetworkNamespace {
    /// Makes one, with nothing in it but a loopback that is down.
    pub(crate) fn new() -> anyhow::Result<Self> {
        // By a thread that ends: it is in the namespace from then on.
        let made = thread::spawn(|| {
            // SAFETY: no pointers are involved.
            check(unsafe { libc::unshare(libc::CLONE_NEWNET) })?;
            File::open(OWN)
        });
        let file = made.join().map_err(|_| anyhow!("no thread"))?;
        Ok(Self(file.context("make a network namespace (as root)")?.into()))
    }

    /// As a path that `ip link set netns` takes.
    pub(super) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    /// The command will run in it, with a /sys of its own that shows its interfaces.
    pub(crate) fn enter<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let fd = self.0.as_raw_fd();
        // SAFETY: between fork and exec it makes system calls only. The descriptor is open then: what
        // forks does so while the command is run, and the command does not outlive its links.
        unsafe { command.pre_exec(move || enter(fd)) }
    }

    /// Runs `f` in it, by a thread of its own.
    pub(crate) fn run<T: Send>(
        &self,
        f: impl FnOnce() -> anyhow::Result<T> + Send,
    ) -> anyhow::Result<T> {
        let inside = || {
            // SAFETY: no pointers are involved; the descriptor is ours.
            check(unsafe { libc::setns(self.0.as_raw_fd(), libc::CLONE_NEWNET) })
                .context("enter a network namespace")?;
            f()
        };
        thread::scope(|scope| scope.spawn(inside).join().map_err(|_| anyhow!("it panicked"))?)
    }
}

/// Enters the network namespace, with a private mount of /sys, as `ip netns exec` does.
fn enter(fd: RawFd) -> io::Result<()> {
    // SAFETY: the strings are constants that end with a zero; the other pointers may be null.
    unsafe {
        check(libc::setns(fd, libc::CLONE_NEWNET))?;
        check(libc::unshare(libc::CLONE_NEWNS))?;
        let private = libc::MS_PRIVATE | libc::MS_REC;
        check(libc::mount(ptr::null(), ROOT.as_ptr(), ptr::null(), private, ptr::null()))?;
        check(libc::mount(SYSFS.as_ptr(), SYS.as_ptr(), SYSFS.as_ptr(), 0, ptr::null()))
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
