//! What tells which connections are ready: one descriptor for all of them.

use super::pipe::Pipe;
use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Connections looked at in one call.
const EVENTS: usize = 64;

pub(super) struct Epoll(OwnedFd);

/// Room for what is ready.
pub(super) struct Readiness([libc::epoll_event; EVENTS]);

impl Default for Readiness {
    fn default() -> Self {
        Readiness([libc::epoll_event { events: 0, u64: 0 }; EVENTS])
    }
}

impl Epoll {
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: takes numbers only.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: just made, and nobody else's.
        Ok(Epoll(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Readable while something is ready.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Watches a socket until it is closed; `writing`: also for room to send.
    pub(super) fn watch(&self, socket: &impl AsFd, index: usize, writing: bool) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, socket, index, writing)
    }

    /// Watches a connection for room to send if something waits for that, and only then.
    pub(super) fn follow(&self, pipe: &mut Pipe, index: usize) -> io::Result<()> {
        let Some(writing) = pipe.change_of_watch() else { return Ok(()) };
        self.control(libc::EPOLL_CTL_MOD, pipe.socket(), index, writing)
    }

    fn control(
        &self,
        what: c_int,
        socket: &impl AsFd,
        index: usize,
        writing: bool,
    ) -> io::Result<()> {
        let events = libc::EPOLLIN | if writing { libc::EPOLLOUT } else { 0 };
        let mut event = libc::epoll_event { events: events.cast_unsigned(), u64: index as u64 };
        let fd = socket.as_fd().as_raw_fd();
        // SAFETY: the event is readable; both descriptors are open.
        check(unsafe { libc::epoll_ctl(self.0.as_raw_fd(), what, fd, &raw mut event) }).map(drop)
    }

    /// What is ready now, without waiting: numbers, and whether there is room to send.
    pub(super) fn ready<'a>(
        &self,
        ready: &'a mut Readiness,
    ) -> impl Iterator<Item = (usize, bool)> + use<'a> {
        let events = ready.0.as_mut_ptr();
        // SAFETY: `events` has room for so many.
        let count = unsafe { libc::epoll_wait(self.0.as_raw_fd(), events, EVENTS as c_int, 0) };
        let count = usize::try_from(count).unwrap_or(0);
        let out = libc::EPOLLOUT.cast_unsigned();
        ready.0[..count].iter().map(move |event| (event.u64 as usize, event.events & out != 0))
    }
}

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
