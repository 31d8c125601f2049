//! Tells when an interface goes up or down, or its cable is pulled or plugged in.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

/// Messages dropped in one go.
const MESSAGES_MAX: u32 = 1024;

/// Hears of changes of all interfaces of the network namespace.
pub struct CarrierWatch {
    socket: OwnedFd,
}

impl CarrierWatch {
    /// From now on.
    ///
    /// # Errors
    /// The system's.
    pub fn open() -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: plain system call; the result is checked.
        let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` is new and ours.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: an all-zero address is valid.
        let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
        address.nl_family = libc::AF_NETLINK as u16;
        address.nl_groups = libc::RTMGRP_LINK as u32;
        let length = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
        // SAFETY: `address` is a netlink address of that length.
        let bound = unsafe { libc::bind(fd, (&raw const address).cast(), length) };
        if bound < 0 { Err(io::Error::last_os_error()) } else { Ok(CarrierWatch { socket }) }
    }

    /// Readable when something may have changed since it was last [cleared](Self::clear).
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Makes it unreadable: look at the interfaces after that.
    pub fn clear(&self) {
        for _ in 0..MESSAGES_MAX {
            // SAFETY: with a length of zero nothing is written; a message that is cut off is gone.
            let got =
                unsafe { libc::recv(self.socket.as_raw_fd(), ptr::null_mut(), 0, libc::MSG_TRUNC) };
            // Messages that were too many (ENOBUFS) are a change as well.
            let is_overrun =
                got < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ENOBUFS);
            if got <= 0 && !is_overrun {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn ip(words: &str) -> bool {
        let status = Command::new("ip").args(words.split_whitespace()).status();
        status.is_ok_and(|status| status.success())
    }

    fn is_ready(watch: &CarrierWatch) -> bool {
        let fd = watch.fd().as_raw_fd();
        let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid entry.
        unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
    }

    #[test]
    fn changes_are_told_once() {
        let name = crate::skipped::this_test();
        let in_namespace = move || {
            // SAFETY: takes a number; moves this thread alone.
            if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0
                || !ip("link add one type veth peer name two")
            {
                return crate::skipped::skipped_test(&name, "no interfaces of our own");
            }
            let watch = CarrierWatch::open().unwrap();
            assert!(!is_ready(&watch), "nothing has happened since");
            assert!(ip("link set one up"));
            assert!(is_ready(&watch));
            watch.clear();
            assert!(!is_ready(&watch));
        };
        std::thread::spawn(in_namespace).join().unwrap();
    }
}
