//! Two reactors on one thread, for example a target's and a host's: one loop turns both, and they share one ring.
//!
//! ```text
//!         +-> check the ring: each completion goes to the reactor whose role its entry had
//!         |        v
//!         |   turn the first, turn the second
//!         |        v
//!         +-- anything left to do for either?  no: spin, or io_uring_enter: sleeps until news or the next deadline
//! ```
//!
//! A reactor finds its ring where it keeps it, so the ring is with the reactor that acts. The other one keeps a ring
//! meanwhile that is not used. Nothing crosses between threads, and nothing is called virtually.

use crate::turns::{
    ReactorCallbacks, RxBuffers, TURNS_PER_CHECK, handle_completion, poll_inbox, spins,
};
use roadtrain_proto::time::Instant;
use roadtrain_system::clock;
use roadtrain_system::ring::{RingCqe, RingRole};
use std::io;
use std::mem;
use std::time::Duration;

/// Runs two reactors in the ring of the first one until either is over. Both have [begun](crate::begin), on this
/// thread. The second one has only the poll of its inbox in its own ring. It cannot run alone afterwards, as its polls
/// stay in the shared ring.
///
/// The ring fails.
pub fn run_two<A: ReactorCallbacks, B: ReactorCallbacks>(
    (first, first_rx): (&mut A, &mut RxBuffers),
    (second, second_rx): (&mut B, &mut RxBuffers),
) -> io::Result<()> {
    let mut both = ReactorPair { first, second };
    both.with_second(poll_inbox);
    let mut turns = 0u32;
    while !both.first.is_over() && !both.second.is_over() {
        turns = turns.wrapping_add(1);
        if turns.is_multiple_of(TURNS_PER_CHECK) || !both.are_all_busy() {
            both.check_ring()?;
        }
        both.set_now(clock::now());
        both.first.turn(first_rx);
        both.with_second(|second| second.turn(second_rx));
    }
    Ok(())
}

/// Two reactors; the ring in use is with the first one between two calls.
struct ReactorPair<'a, A, B> {
    first: &'a mut A,
    second: &'a mut B,
}

impl<A: ReactorCallbacks, B: ReactorCallbacks> ReactorPair<'_, A, B> {
    /// Calls the second reactor while it has the ring.
    fn with_second<T>(&mut self, call: impl FnOnce(&mut B) -> T) -> T {
        self.swap_rings();
        self.second.core().1.set_role(RingRole::Second);
        let result = call(self.second);
        self.second.core().1.set_role(RingRole::First);
        self.swap_rings();
        result
    }

    fn swap_rings(&mut self) {
        mem::swap(self.first.core().1, self.second.core().1);
    }

    fn are_all_busy(&self) -> bool {
        self.first.is_all_busy() && self.second.is_all_busy()
    }

    fn set_now(&mut self, now: Instant) {
        self.first.set_now(now);
        self.with_second(|second| second.set_now(now));
    }

    /// Submits to the ring, sleeps if there is nothing to do, and handles completions.
    fn check_ring(&mut self) -> io::Result<()> {
        let (work, work_too) = (self.first.has_work(), self.second.has_work());
        if work || work_too {
            self.poll_lanes(work, work_too);
            return self.submit();
        }
        let (is_spinning, due) = spins(self.first);
        let (is_spinning_too, due_too) = self.with_second(spins);
        if is_spinning || is_spinning_too {
            self.submit()?;
            self.first.check_lanes();
            self.with_second(B::check_lanes);
            return Ok(());
        }
        self.poll_lanes(false, false);
        self.sleep(due.into_iter().chain(due_too).min())
    }

    fn poll_lanes(&mut self, work: bool, work_too: bool) {
        self.first.poll_lanes(work);
        self.with_second(|second| second.poll_lanes(work_too));
    }

    /// Submits without waiting, updates the time, and handles completions.
    fn submit(&mut self) -> io::Result<()> {
        self.first.core().1.submit_and_wait(0, None)?;
        if let Some(first) = self.first.core().1.next_completion() {
            self.set_now(clock::now());
            self.handle_completion(first);
            self.handle_completions();
        }
        Ok(())
    }

    /// Sleeps until something completes, or until `due`.
    fn sleep(&mut self, due: Option<Instant>) -> io::Result<()> {
        let timeout = due.map(|due| due.since(clock::now()));
        if timeout == Some(Duration::ZERO) {
            return self.submit();
        }
        self.first.poll_ports();
        self.with_second(B::poll_ports);
        let (core, ring) = self.first.core();
        let waits_too = &mut self.second.core().0.waits;
        waits_too.sleep(|| core.waits.sleep(|| ring.submit_and_sleep(timeout)))?;
        let now = clock::now();
        self.first.core().0.waits.woke(now);
        self.second.core().0.waits.woke(now);
        self.set_now(now); // for the completions
        self.handle_completions();
        Ok(())
    }

    fn handle_completions(&mut self) {
        while let Some(cqe) = self.first.core().1.next_completion() {
            self.handle_completion(cqe);
        }
    }

    fn handle_completion(&mut self, cqe: RingCqe) {
        match cqe.role {
            RingRole::First => handle_completion(self.first, cqe),
            RingRole::Second => self.with_second(|second| handle_completion(second, cqe)),
        }
    }
}
