//! A queue in its reactor's server.

use super::memory::MappedMemory;
use super::ring::{BadRing, RingSetup, Virtqueue};
use roadtrain_proto::time::Instant;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use tracing::{debug, warn};

/// Key of a request in progress.
pub(crate) type PendingKey = usize;

/// State of a queue.
enum QueueState {
    /// Waits for orphans to end.
    Waiting(Box<RingSetup>),
    Serving(Box<Virtqueue>),
    /// Invalid and stopped; a successor would begin at this index.
    Broken(u16),
}

/// A queue, from its start to its stop.
pub(crate) struct QueueSlot {
    /// Index of the disk, and number of the queue.
    pub(crate) disk: usize,
    pub(crate) queue: u16,
    /// Serial number that differs from those of predecessors and successors.
    pub(crate) serial: u64,
    state: QueueState,
    /// Request that was taken, but got no buffer.
    pub(crate) waiting_for_buffers: Option<PendingKey>,
    pub(crate) in_flight: usize,
    /// True if chains may be available.
    pub(crate) kicked: bool,
    pub(crate) watched: bool,
    /// Reply channel of a pending stop, and its deadline.
    pub(crate) stopping: Option<(SyncSender<u16>, Instant)>,
}

impl QueueSlot {
    pub(crate) fn new(disk: usize, serial: u64, setup: Box<RingSetup>) -> Self {
        QueueSlot {
            disk,
            queue: setup.index,
            serial,
            state: QueueState::Waiting(setup),
            waiting_for_buffers: None,
            in_flight: 0,
            kicked: false,
            watched: false,
            stopping: None,
        }
    }

    /// Returns the queue's ring, while it is served.
    pub(crate) fn ring(&mut self) -> Option<&mut Virtqueue> {
        match &mut self.state {
            QueueState::Serving(ring) => Some(ring),
            _ => None,
        }
    }

    /// Switches to other memory.
    ///
    /// # Errors
    /// Fails if the queue is outside of it.
    pub(crate) fn remap(&mut self, memory: Arc<MappedMemory>) -> Result<(), BadRing> {
        match &mut self.state {
            QueueState::Waiting(setup) => setup.memory = memory,
            QueueState::Serving(ring) => return ring.remap(memory),
            QueueState::Broken(_) => {}
        }
        Ok(())
    }

    /// True if it waits for orphans.
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.state, QueueState::Waiting(_))
    }

    /// Starts, if it waits.
    pub(crate) fn begin(&mut self) {
        let QueueState::Waiting(setup) = &mut self.state else { return };
        let base = setup.base;
        let QueueState::Waiting(setup) =
            std::mem::replace(&mut self.state, QueueState::Broken(base))
        else {
            return;
        };
        match Virtqueue::start(*setup) {
            Ok(mut ring) => {
                debug!(
                    disk = self.disk,
                    queue = self.queue,
                    old = ring.has_old(),
                    "vhost-user: queue begins"
                );
                // Replaces signals that were lost while no server had the queue.
                ring.signal_always();
                self.state = QueueState::Serving(Box::new(ring));
                self.kicked = true;
            }
            Err(error) => self.fail(&error),
        }
    }

    /// Ends the use of an invalid queue.
    pub(crate) fn fail(&mut self, error: &BadRing) {
        let QueueSlot { disk, queue, .. } = *self;
        warn!(disk, queue, "vhost-user: the guest's queue makes no sense and is stopped: {error}");
        let next = self.next_available();
        if let Some(ring) = self.ring() {
            ring.signal_error();
        }
        self.state = QueueState::Broken(next);
    }

    fn has_old(&self) -> bool {
        matches!(&self.state, QueueState::Serving(ring) if ring.has_old())
    }

    /// True if no taken request is left.
    pub(crate) fn is_done(&self) -> bool {
        self.in_flight == 0 && self.waiting_for_buffers.is_none() && !self.has_old()
    }

    /// True if it continues without an event: chains may be available, and no request waits for a buffer.
    pub(crate) fn can_continue(&self) -> bool {
        self.kicked
            && matches!(self.state, QueueState::Serving(_))
            && self.waiting_for_buffers.is_none()
    }

    /// Returns the index at which a successor begins.
    pub(crate) fn next_available(&self) -> u16 {
        match &self.state {
            QueueState::Waiting(setup) => setup.base,
            QueueState::Serving(ring) => ring.next_available(),
            QueueState::Broken(next) => *next,
        }
    }
}
