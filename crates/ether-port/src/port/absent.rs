//! Interfaces that are not there.

use super::frame::Sent;
use super::packet::outgoing::Outgoing;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// What a port is made of while its interface is not there: it hears nothing, and sends into the void.
pub(super) struct AbsentPort {
    pub(super) outgoing: Outgoing,
    /// Bound to nothing.
    pub(super) socket: OwnedFd,
}

impl AbsentPort {
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(super) fn ring_frames(&self) -> usize {
        usize::MAX // others know better
    }

    pub(super) fn dropped(&self) -> u64 {
        0
    }

    pub(super) fn take_error(&self) -> Option<io::Error> {
        None
    }

    /// Every frame is larger than the interface takes.
    pub(super) fn flush(&mut self) -> io::Result<Sent> {
        let refused = self.outgoing.take(|_, _| ());
        Ok(Sent { refused, ..Sent::default() })
    }

    pub(super) fn receive(&self, _: usize, _: &mut impl FnMut(&[u8])) -> usize {
        0
    }
}

/// Whether that says that there is no such interface.
#[must_use]
#[inline]
pub fn is_missing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENXIO))
}

/// That there is no such interface.
#[must_use]
#[inline]
pub fn missing() -> io::Error {
    io::Error::from_raw_os_error(libc::ENODEV)
}
