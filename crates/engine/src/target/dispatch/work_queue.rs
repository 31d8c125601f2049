//! The thread that completions pass through on their way to being sent.

use crate::mailbox::Outbox;
use crate::target::reactor::Order;
use crate::target::tasks::Ended;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use tracing::warn;

/// A work queue with its thread. Dropping it ends the thread, after what was sent before.
pub(super) struct WorkQueue {
    /// `None` when it ends.
    sender: Option<Sender<Ended>>,
    thread: Option<JoinHandle<()>>,
}

impl WorkQueue {
    /// Completions go back to `reactor`, which sends them.
    pub(super) fn start(reactor: Outbox<Order>) -> io::Result<Self> {
        let (sender, receiver) = channel();
        let body = move || run(&receiver, &reactor);
        let thread = thread::Builder::new().name("roadtrain-wq".into()).spawn(body)?;
        Ok(WorkQueue { sender: Some(sender), thread: Some(thread) })
    }

    /// Hands a completion over; an error, with the completion, when the thread is gone.
    pub(super) fn send(&self, ended: Ended) -> Result<(), Ended> {
        match &self.sender {
            Some(sender) => sender.send(ended).map_err(|refused| refused.0),
            None => Err(ended),
        }
    }
}

impl Drop for WorkQueue {
    fn drop(&mut self) {
        self.sender = None;
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            warn!("a work queue panicked");
        }
    }
}

fn run(completions: &Receiver<Ended>, reactor: &Outbox<Order>) {
    while let Ok((owner, outcome)) = completions.recv() {
        // When the reactor has ended nobody waits for it; its buffer is freed.
        reactor.send(Order::Ended(owner, outcome));
    }
}
