//! Orders of the control thread to a reactor's server.

use super::memory::MappedMemory;
use super::ring::RingSetup;
use roadtrain_system::ring::EventfdSignaller;
use std::fs::File;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

/// An order about one disk's queues.
pub(crate) struct QueueOrder {
    /// Index of the disk among the served ones.
    pub(crate) disk: usize,
    pub(crate) kind: OrderKind,
}

/// Content of an order. A sender that waits for a reply gets it, or the channel closes because the reactor has ended.
pub(crate) enum OrderKind {
    /// Serve this queue.
    Start(Box<RingSetup>),
    /// Take no new chains from a queue, finish those that are taken, and drop it; reply with the index at which a
    /// successor begins.
    Stop { queue: u16, reply: SyncSender<u16> },
    /// Signal used chains to the guest on this event.
    Call { queue: u16, bell: Option<EventfdSignaller> },
    /// Signal the end of a queue's service to the frontend on this event.
    Error { queue: u16, event: Option<File> },
    /// The guest's memory has changed.
    Remap { memory: Arc<MappedMemory>, done: SyncSender<()> },
    /// The frontend is gone: stop accessing its guest's memory.
    Abandon { done: SyncSender<()> },
}
