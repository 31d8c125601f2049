//! Readiness of connections: one descriptor for all of them.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

pub(crate) struct Epoll(OwnedFd);

/// Room for so many ready connections.
pub(crate) struct Readiness<const EVENTS: usize>([libc::epoll_event; EVENTS]);

impl<const EVENTS: usize> Default for Readiness<EVENTS> {
    fn default() -> Self {
        Readiness([libc::epoll_event { events: 0, u64: 0 }; EVENTS])
    }
}

impl Epoll {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: takes numbers only.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the descriptor is new and has no other owner.
        Ok(Epoll(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Readable while something is ready.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Watches a socket until it is closed; `writing`: also for room to send.
    pub(crate) fn watch(&self, socket: &impl AsFd, index: usize, writing: bool) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, socket, index, writing)
    }

    /// Watches it for room to send from now on, or no longer.
    pub(crate) fn change(&self, socket: &impl AsFd, index: usize, writing: bool) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, socket, index, writing)
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

    /// Connections that are ready within a time: numbers, and whether there is room to send.
    pub(crate) fn ready<'a, const EVENTS: usize>(
        &self,
        ready: &'a mut Readiness<EVENTS>,
        wait_ms: c_int,
    ) -> impl Iterator<Item = (usize, bool)> + use<'a, EVENTS> {
        let events = ready.0.as_mut_ptr();
        let (epoll, most) = (self.0.as_raw_fd(), EVENTS as c_int);
        // SAFETY: `events` has room for so many.
        let count = unsafe { libc::epoll_wait(epoll, events, most, wait_ms) };
        let count = usize::try_from(count).unwrap_or(0);
        let out = libc::EPOLLOUT.cast_unsigned();
        ready.0[..count].iter().map(move |event| (event.u64 as usize, event.events & out != 0))
    }
}

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
