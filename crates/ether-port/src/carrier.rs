//! Notifications of interfaces that go up or down, or whose cable is pulled or plugged in.

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Most messages dropped in one call.
const MESSAGES_MAX: u32 = 1024;

/// Receives changes of all interfaces of the network namespace.
pub struct CarrierWatch {
    socket: OwnedFd,
}

impl CarrierWatch {
    /// Starts to receive changes.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn open() -> io::Result<Self> {
        // Without a protocol it is NETLINK_ROUTE, whose number is zero.
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        bind(&socket, &SocketAddrNetlink::new(0, libc::RTMGRP_LINK as u32))?;
        Ok(CarrierWatch { socket })
    }

    /// Returns a descriptor that is readable if something may have changed since it was last [cleared](Self::clear).
    #[must_use]
    #[inline]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Makes it unreadable. The caller checks the interfaces after that.
    pub fn clear(&self) {
        for _ in 0..MESSAGES_MAX {
            // An empty buffer gets no data; the truncated message is dropped. An overflow (NOBUFS) counts as a change
            // as well.
            let is_more = match recv(&self.socket, &mut [0; 0], RecvFlags::TRUNC) {
                Ok((_, bytes)) => bytes > 0,
                Err(error) => error == Errno::NOBUFS,
            };
            if !is_more {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
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
    fn changes_are_reported_once() {
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
