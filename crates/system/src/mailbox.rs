//! Mailbox, the only crossing between threads: a queue and an eventfd that wakes the reactor's ring.

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{read, write};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Eventfd that wakes a reactor's ring from other threads.
pub struct WakeEvent(OwnedFd);

impl WakeEvent {
    /// An event that is not signalled.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn new() -> io::Result<Self> {
        Ok(WakeEvent(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Returns the descriptor, which is readable after a wake-up.
    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Signals the event.
    pub fn wake(&self) {
        let _ = write(&self.0, &1u64.to_ne_bytes()); // a full counter (EAGAIN) wakes just as well
    }

    /// Resets the event. Call it before taking messages, so that none is missed.
    pub fn acknowledge(&self) {
        let _ = read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for WakeEvent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Receiving end, owned by the reactor.
pub struct MailboxReceiver<T> {
    receiver: Receiver<T>,
    event: Arc<WakeEvent>,
}

/// Sending end for other threads; clones share it.
pub struct MailboxSender<T> {
    sender: Sender<T>,
    event: Arc<WakeEvent>,
}

impl<T> Clone for MailboxSender<T> {
    fn clone(&self) -> Self {
        MailboxSender { sender: self.sender.clone(), event: self.event.clone() }
    }
}

/// Makes both ends of a mailbox.
///
/// # Errors
/// The system has no descriptor left.
pub fn mailbox<T>() -> io::Result<(MailboxSender<T>, MailboxReceiver<T>)> {
    let event = Arc::new(WakeEvent::new()?);
    let (sender, receiver) = channel();
    Ok((MailboxSender { sender, event: event.clone() }, MailboxReceiver { receiver, event }))
}

impl<T> MailboxSender<T> {
    /// Sends a message and wakes the reactor. False when the reactor has ended.
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

impl<T> MailboxReceiver<T> {
    /// Returns the descriptor, which is readable after a wake-up.
    #[must_use]
    pub fn fd(&self) -> RawFd {
        self.event.fd()
    }

    /// Resets the wake-up. Call it before taking messages, so that none is missed.
    pub fn acknowledge(&self) {
        self.event.acknowledge();
    }

    /// Takes the next message.
    pub fn take(&self) -> Option<T> {
        self.receiver.try_recv().ok()
    }
}
