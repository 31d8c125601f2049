//! Completions in a reactor's ring: the kinds of user data. `roadtrain_store` defines that of a store's operations.

use roadtrain_system::ring::{ReactorRing, UserData};
use std::os::fd::{BorrowedFd, RawFd};

/// A lane's socket is readable, ...
pub const LANE_IN: u8 = 1;
/// ... or writable.
pub const LANE_OUT: u8 = 2;
/// A message from another thread.
pub const INBOX: u8 = 3;
/// A new connection at a listener.
pub const LISTENER: u8 = 4;
/// Received frames, or a port's interface that went down.
pub const PORT: u8 = 5;
/// Changes of network interfaces.
pub const INTERFACES: u8 = 6;
/// A descriptor that a front watches.
pub const WATCH: u8 = 7;
/// A front's command to a driver.
pub const COMMAND: u8 = 8;
/// The completion of a poll that was cancelled.
const FORGOTTEN: u8 = 9;
/// The cancellation of a guest's polls.
pub(crate) const CANCELLED: u8 = 10;

/// Returns the user data of a completion for the lane, listener or port of that index.
#[inline]
pub const fn mark(kind: u8, index: u32, generation: u32) -> u64 {
    UserData { kind, index, generation }.pack()
}

/// Polls for one completion when `fd` is ready. The caller keeps `fd` open until then, or cancels the poll.
#[inline]
pub fn poll(ring: &mut ReactorRing, fd: RawFd, events: i16, mark: u64) {
    // SAFETY: the descriptor is open: lanes, listeners, ports and the inbox own theirs, fronts promise it.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    ring.poll_add(fd, events, mark);
}

/// Cancels the poll with that mark, whose completion is ignored.
#[inline]
pub fn forget(ring: &mut ReactorRing, poll: u64) {
    ring.poll_remove(poll, mark(FORGOTTEN, 0, 0));
}
