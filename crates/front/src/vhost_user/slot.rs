//! A queue's place in its reactor's server.

use super::memory::Memory;
use super::ring::{BadRing, Ring, RingSetup};
use roadtrain_proto::time::Instant;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use tracing::{debug, warn};

/// Key of a request that is carried out.
pub(crate) type PendingKey = usize;

/// How far the queue is.
enum State {
    /// Strays have to end first.
    Waiting(Box<RingSetup>),
    Serving(Box<Ring>),
    /// It made no sense; a successor would begin there.
    Broken(u16),
}

/// A queue, from its start to its stop.
pub(crate) struct Slot {
    /// The disk's place, and the queue's number.
    pub(crate) disk: usize,
    pub(crate) queue: u16,
    /// Tells it from its predecessors and successors.
    pub(crate) serial: u64,
    state: State,
    /// Taken, but there was no buffer for it.
    pub(crate) starved: Option<PendingKey>,
    pub(crate) in_flight: usize,
    /// There may be something to take.
    pub(crate) kicked: bool,
    pub(crate) watched: bool,
    /// Who waits for its end, and until when.
    pub(crate) stopping: Option<(SyncSender<u16>, Instant)>,
}

impl Slot {
    pub(crate) fn new(disk: usize, serial: u64, setup: Box<RingSetup>) -> Self {
        Slot {
            disk,
            queue: setup.index,
            serial,
            state: State::Waiting(setup),
            starved: None,
            in_flight: 0,
            kicked: false,
            watched: false,
            stopping: None,
        }
    }

    /// The queue's ring, while it is served.
    pub(crate) fn ring(&mut self) -> Option<&mut Ring> {
        match &mut self.state {
            State::Serving(ring) => Some(ring),
            _ => None,
        }
    }

    /// Uses other memory from now on.
    ///
    /// # Errors
    /// When the queue is not in it.
    pub(crate) fn remap(&mut self, memory: Arc<Memory>) -> Result<(), BadRing> {
        match &mut self.state {
            State::Waiting(setup) => setup.memory = memory,
            State::Serving(ring) => return ring.remap(memory),
            State::Broken(_) => {}
        }
        Ok(())
    }

    /// Whether it waits for strays.
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.state, State::Waiting(_))
    }

    /// Begins, if it waits.
    pub(crate) fn begin(&mut self) {
        let State::Waiting(setup) = &mut self.state else { return };
        let base = setup.base;
        let State::Waiting(setup) = std::mem::replace(&mut self.state, State::Broken(base)) else {
            return;
        };
        match Ring::start(*setup) {
            Ok(mut ring) => {
                debug!(
                    disk = self.disk,
                    queue = self.queue,
                    old = ring.has_old(),
                    "vhost-user: queue begins"
                );
                // Whatever was told while nobody was there.
                ring.signal_anyway();
                self.state = State::Serving(Box::new(ring));
                self.kicked = true;
            }
            Err(error) => self.fail(&error),
        }
    }

    /// It makes no sense: ends its use. Returns what was taken but not begun.
    pub(crate) fn fail(&mut self, error: &BadRing) {
        let Slot { disk, queue, .. } = *self;
        warn!(disk, queue, "vhost-user: the guest's queue makes no sense and is stopped: {error}");
        let next = self.next_available();
        if let Some(ring) = self.ring() {
            ring.signal_error();
        }
        self.state = State::Broken(next);
    }

    fn has_old(&self) -> bool {
        matches!(&self.state, State::Serving(ring) if ring.has_old())
    }

    /// Whether nothing is left of what was taken.
    pub(crate) fn is_done(&self) -> bool {
        self.in_flight == 0 && self.starved.is_none() && !self.has_old()
    }

    /// Whether it goes on by itself: there is more to take, and no buffer is waited for.
    pub(crate) fn goes_on(&self) -> bool {
        self.kicked && matches!(self.state, State::Serving(_)) && self.starved.is_none()
    }

    /// Where a successor begins.
    pub(crate) fn next_available(&self) -> u16 {
        match &self.state {
            State::Waiting(setup) => setup.base,
            State::Serving(ring) => ring.next_available(),
            State::Broken(next) => *next,
        }
    }
}
