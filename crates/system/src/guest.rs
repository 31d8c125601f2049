//! Guests of a reactor: reactors that run on its thread and in its ring.

use crate::ring::{ReactorRing, RingCqe};
use roadtrain_proto::time::Instant;
use std::io;

/// Reactor on another reactor's thread. That one calls it with the shared ring, whose new entries carry the guest's role
/// meanwhile.
pub trait GuestReactor {
    /// Prepares the first turn.
    fn begin(&mut self, ring: &mut ReactorRing);

    /// True once it is done: it is dropped then.
    fn is_over(&self) -> bool;

    /// True if everything that the ring could report has pending work anyway.
    fn is_all_busy(&self) -> bool;

    /// True if there is work now.
    fn has_work(&self) -> bool;

    /// True if a response is pending, so that spinning may catch it.
    fn expects(&self) -> bool;

    /// Returns the number of sockets that [`check_lanes`](GuestReactor::check_lanes) checks.
    fn lanes(&self) -> usize;

    /// Returns the time of the next work in any case.
    fn deadline(&mut self) -> Option<Instant>;

    /// Polls idle sockets through the ring.
    fn poll_lanes(&mut self, ring: &mut ReactorRing);

    /// Checks sockets directly, not through the ring.
    fn check_lanes(&mut self);

    /// Handles a completion of the ring.
    fn completed(&mut self, ring: &mut ReactorRing, now: Instant, cqe: RingCqe);

    /// Makes a turn.
    fn turn(&mut self, ring: &mut ReactorRing, now: Instant);

    /// Sends what has been submitted since its turn.
    fn send(&mut self, ring: &mut ReactorRing);
}

/// Constructor of a guest, called on the thread that will run it.
pub type GuestConstructor = Box<dyn FnOnce() -> io::Result<Box<dyn GuestReactor>> + Send>;

/// Threads of reactors that take guests.
pub trait GuestSpawner: Send + Sync {
    /// Returns the number of threads.
    fn count(&self) -> usize;

    /// Gives a guest to a thread, which may begin it later. Drops it if the thread has ended.
    fn give(&self, thread: usize, guest: GuestConstructor);
}
