//! What the control thread tells a reactor's server.

use super::memory::Memory;
use super::ring::RingSetup;
use roadtrain_system::ring::Bell;
use std::fs::File;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

/// An order about one disk's queues.
pub(crate) struct Order {
    /// The disk's place among those that are served.
    pub(crate) disk: usize,
    pub(crate) what: What,
}

/// What is ordered. Who waits for an answer gets it, or sees the channel close because the reactor has ended.
pub(crate) enum What {
    /// Serve this queue.
    Start(Box<RingSetup>),
    /// Take nothing new from a queue, finish what is taken, forget it; answer with where a successor begins.
    Stop { queue: u16, reply: SyncSender<u16> },
    /// Tell the guest so that chains were used.
    Call { queue: u16, bell: Option<Bell> },
    /// Tell the frontend so that a queue is not served any more.
    Error { queue: u16, event: Option<File> },
    /// The guest's memory is another.
    Remap { memory: Arc<Memory>, done: SyncSender<()> },
    /// The frontend is gone: touch its guest's memory no more.
    Abandon { done: SyncSender<()> },
}
