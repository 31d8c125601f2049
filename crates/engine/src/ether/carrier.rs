//! Tells when an interface goes up or down, or its cable is pulled or plugged in.

use socket2::{Domain, Protocol, SockAddr, SockAddrStorage, Socket, Type};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// Messages dropped in one go.
const MESSAGES_MAX: u32 = 1024;

/// Hears of changes of all interfaces of the network namespace.
pub struct CarrierWatch {
    socket: Socket,
}

impl CarrierWatch {
    /// From now on.
    ///
    /// # Errors
    /// The system's.
    pub fn open() -> io::Result<Self> {
        let kind = Type::RAW.nonblocking().cloexec();
        let protocol = Protocol::from(libc::NETLINK_ROUTE);
        let socket = Socket::new(Domain::from(libc::AF_NETLINK), kind, Some(protocol))?;
        let mut storage = SockAddrStorage::zeroed();
        // SAFETY: the storage is large enough for any address, and this one may have any content.
        let address = unsafe { storage.view_as::<libc::sockaddr_nl>() };
        address.nl_family = libc::AF_NETLINK as u16;
        address.nl_groups = libc::RTMGRP_LINK as u32;
        let length = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
        // SAFETY: a netlink address of that length.
        socket.bind(&unsafe { SockAddr::new(storage, length) })?;
        Ok(CarrierWatch { socket })
    }

    /// Readable when something may have changed since it was last [cleared](Self::clear).
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Makes it unreadable: look at the interfaces after that.
    pub fn clear(&self) {
        for _ in 0..MESSAGES_MAX {
            // With no room nothing is written; a message that is cut off is gone.
            let got = self.socket.recv_with_flags(&mut [], libc::MSG_TRUNC);
            // Messages that were too many (ENOBUFS) are a change as well.
            let is_more = match got {
                Ok(octets) => octets > 0,
                Err(error) => error.raw_os_error() == Some(libc::ENOBUFS),
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
