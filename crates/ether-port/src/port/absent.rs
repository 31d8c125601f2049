//! Ports of missing interfaces.

use super::frame::FlushResult;
use super::packet::outgoing::OutgoingFrames;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Implementation of a port while its interface is missing: it receives no frame, and drops all frames to send.
pub(super) struct AbsentPort {
    pub(super) outgoing: OutgoingFrames,
    /// Not bound.
    pub(super) socket: OwnedFd,
}

impl AbsentPort {
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(super) fn ring_frames(&self) -> usize {
        usize::MAX // callers have other limits
    }

    pub(super) fn dropped(&self) -> u64 {
        0
    }

    pub(super) fn take_error(&self) -> Option<io::Error> {
        None
    }

    /// Drops every frame as larger than the interface takes.
    pub(super) fn flush(&mut self) -> io::Result<FlushResult> {
        let refused = self.outgoing.take(|_, _| ());
        Ok(FlushResult { refused, ..FlushResult::default() })
    }

    pub(super) fn receive(&self, _: usize, _: &mut impl FnMut(&[u8])) -> usize {
        0
    }
}

/// True if `error` reports a missing interface.
#[must_use]
#[inline]
pub fn is_missing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENXIO))
}

/// Returns the error for a missing interface.
#[must_use]
#[inline]
pub fn missing() -> io::Error {
    io::Error::from_raw_os_error(libc::ENODEV)
}
