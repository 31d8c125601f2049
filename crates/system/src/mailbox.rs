//! The only crossing between threads: a queue and an eventfd that wakes the reactor's ring.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Wakes a reactor's ring from other threads.
pub struct Event(OwnedFd);

impl Event {
    /// Nothing signalled yet.
    ///
    /// # Errors
    /// When the system has no descriptor left.
    pub fn new() -> io::Result<Self> {
        // SAFETY: plain system call; the result is checked.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` is new and ours.
        Ok(Event(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// To be watched for reading.
    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Makes it readable.
    pub fn wake(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: 8 readable octets. A full counter (EAGAIN) wakes just as well.
        unsafe { libc::write(self.fd(), one.as_ptr().cast(), 8) };
    }

    /// Resets it: call before looking for what it announced, so that nothing is overlooked.
    pub fn acknowledge(&self) {
        let mut count = [0u8; 8];
        // SAFETY: 8 writable octets; non-blocking.
        unsafe { libc::read(self.fd(), count.as_mut_ptr().cast(), 8) };
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The reactor's end.
pub struct Inbox<T> {
    receiver: Receiver<T>,
    event: Arc<Event>,
}

/// The other threads' end; clones share it.
pub struct Outbox<T> {
    sender: Sender<T>,
    event: Arc<Event>,
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
pub fn mailbox<T>() -> io::Result<(Outbox<T>, Inbox<T>)> {
    let event = Arc::new(Event::new()?);
    let (sender, receiver) = channel();
    Ok((Outbox { sender, event: event.clone() }, Inbox { receiver, event }))
}

impl<T> Outbox<T> {
    /// Sends and wakes the reactor; `false` when it has ended.
    pub fn send(&self, message: T) -> bool {
        let sent = self.sender.send(message).is_ok();
        self.wake();
        sent
    }

    /// Wakes the reactor without a message.
    pub fn wake(&self) {
        self.event.wake();
    }
}

impl<T> Inbox<T> {
    /// To be watched for reading.
    #[must_use]
    pub fn fd(&self) -> RawFd {
        self.event.fd()
    }

    /// Resets the wake-up: call before taking messages, so that none is overlooked.
    pub fn acknowledge(&self) {
        self.event.acknowledge();
    }

    /// The next message.
    pub fn take(&self) -> Option<T> {
        self.receiver.try_recv().ok()
    }
}
