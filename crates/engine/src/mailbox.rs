//! The only crossing between threads: a queue and an eventfd that wakes the reactor's ring.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// The reactor's end.
pub(crate) struct Inbox<T> {
    receiver: Receiver<T>,
    event: Arc<OwnedFd>,
}

/// The other threads' end; clones share it.
pub(crate) struct Outbox<T> {
    sender: Sender<T>,
    event: Arc<OwnedFd>,
}

impl<T> Clone for Outbox<T> {
    fn clone(&self) -> Self {
        Outbox { sender: self.sender.clone(), event: self.event.clone() }
    }
}

/// A mailbox.
///
/// # Errors
/// When the system has no descriptor left.
pub(crate) fn mailbox<T>() -> io::Result<(Outbox<T>, Inbox<T>)> {
    // SAFETY: plain system call; the result is checked.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `fd` is new and ours.
    let event = Arc::new(unsafe { OwnedFd::from_raw_fd(fd) });
    let (sender, receiver) = channel();
    Ok((Outbox { sender, event: event.clone() }, Inbox { receiver, event }))
}

impl<T> Outbox<T> {
    /// Sends and wakes the reactor; `false` when it has ended.
    pub(crate) fn send(&self, message: T) -> bool {
        let sent = self.sender.send(message).is_ok();
        self.wake();
        sent
    }

    /// Wakes the reactor without a message.
    pub(crate) fn wake(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: 8 readable octets. A full counter (EAGAIN) wakes just as well.
        unsafe { libc::write(self.event.as_raw_fd(), one.as_ptr().cast(), 8) };
    }
}

impl<T> Inbox<T> {
    /// To be watched for reading.
    #[must_use]
    pub(crate) fn fd(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    /// Resets the wake-up: call before taking messages, so that none is overlooked.
    pub(crate) fn acknowledge(&self) {
        let mut count = [0u8; 8];
        // SAFETY: 8 writable octets; non-blocking.
        unsafe { libc::read(self.event.as_raw_fd(), count.as_mut_ptr().cast(), 8) };
    }

    /// The next message.
    pub(crate) fn take(&self) -> Option<T> {
        self.receiver.try_recv().ok()
    }
}
