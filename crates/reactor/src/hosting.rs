//! The loop of a reactor with guests: other reactors on its thread, for example those of a host whose namespaces a target
//! serves. One loop turns all of them, and they share one ring.
//!
//! ```text
//!         +-> check the ring: each completion goes to the reactor whose role its entry had
//!         |        v
//!         |   turn the guests; turn the reactor; the guests send what it has submitted to them
//!         |        v
//!         +-- anything left to do for any?  no: spin, or io_uring_enter: sleeps until news or the next deadline
//! ```
//!
//! A reactor without guests has one comparison for all this in a turn. Nothing crosses between threads.

use crate::guests::RoleGuest;
use crate::turns::{
    ReactorCallbacks, RxBuffers, TURNS_PER_CHECK, begin, handle_completion, handle_completions,
    spins_beside, step_alone,
};
use roadtrain_proto::time::Instant;
use roadtrain_system::clock;
use roadtrain_system::guest::GuestReactor;
use roadtrain_system::ring::{ReactorRing, RingCqe, RingRole, UserData};
use std::io;
use std::time::Duration;

/// Longest wait between two turns of guests of a reactor that ends.
const GUESTS_PAUSE: Duration = Duration::from_millis(10);

/// User data of cancellations, whose completions mean nothing.
const CANCELLED: u64 = UserData { kind: crate::event::CANCELLED, index: 0, generation: 0 }.pack();

/// Runs a reactor until it is over.
pub fn run<R: ReactorCallbacks>(reactor: &mut R) -> io::Result<()> {
    let Some(mut rx) = begin(reactor) else { return Ok(()) };
    let mut turns = 0u32;
    while !reactor.is_over() {
        turns = turns.wrapping_add(1);
        step(reactor, turns, &mut rx)?;
    }
    Ok(())
}

/// Checks the ring if it is due, then makes the turn of that number, with all guests.
#[inline]
pub fn step<R: ReactorCallbacks>(
    reactor: &mut R,
    turns: u32,
    rx: &mut RxBuffers,
) -> io::Result<()> {
    match has_guests(reactor) {
        true => step_with_guests(reactor, turns, rx),
        false => step_alone(reactor, turns, rx),
    }
}

#[inline]
fn has_guests<R: ReactorCallbacks>(reactor: &mut R) -> bool {
    reactor.guests().is_some_and(|guests| !guests.is_empty())
}

/// Handles completions until `is_done`, but not for longer than `limit`.
pub fn finish<R: ReactorCallbacks>(
    reactor: &mut R,
    limit: Duration,
    is_done: impl Fn(&mut R) -> bool,
) -> io::Result<()> {
    let until = clock::now() + limit;
    while !is_done(reactor) && clock::now() < until {
        let left = until.since(clock::now());
        if has_guests(reactor) {
            finish_guests(reactor, left.min(GUESTS_PAUSE))?;
            continue;
        }
        reactor.core().1.submit_and_wait(1, Some(left))?;
        handle_completions(reactor);
    }
    Ok(())
}

/// Reactor with guests, for one turn.
struct Hosting<'a, R> {
    reactor: &'a mut R,
    guests: Vec<RoleGuest>,
}

/// As [`step`], for a reactor with guests.
fn step_with_guests<R: ReactorCallbacks>(
    reactor: &mut R,
    turns: u32,
    rx: &mut RxBuffers,
) -> io::Result<()> {
    with_guests(reactor, |hosting| {
        if turns.is_multiple_of(TURNS_PER_CHECK) || !hosting.is_all_busy() {
            hosting.check_ring()?;
        }
        hosting.turn_guests(clock::now());
        hosting.reactor.turn(rx);
        hosting.each(|guest, ring| guest.send(ring));
        Ok(())
    })
}

/// Waits for completions, at most until `timeout`, and turns the guests: for a reactor that makes no turns any more.
fn finish_guests<R: ReactorCallbacks>(reactor: &mut R, timeout: Duration) -> io::Result<()> {
    with_guests(reactor, |hosting| {
        hosting.poll_lanes();
        let due = hosting.guests.iter_mut().filter_map(|one| one.guest.deadline()).min();
        let due = due.map_or(timeout, |due| due.since(clock::now()).min(timeout));
        let has_work = hosting.guests.iter().any(|one| one.guest.has_work());
        let wait = if has_work { Duration::ZERO } else { due };
        hosting.reactor.core().1.submit_and_wait(usize::from(!has_work), Some(wait))?;
        hosting.handle_completions(clock::now());
        hosting.turn_guests(clock::now());
        hosting.each(|guest, ring| guest.send(ring));
        hosting.reactor.guests_turned();
        Ok(())
    })
}

/// Calls with the guests taken out of the reactor; ended ones are dropped then.
fn with_guests<R: ReactorCallbacks>(
    reactor: &mut R,
    call: impl FnOnce(&mut Hosting<'_, R>) -> io::Result<()>,
) -> io::Result<()> {
    let Some(guests) = reactor.guests() else { return Ok(()) };
    let guests = std::mem::take(&mut guests.all);
    let mut hosting = Hosting { reactor, guests };
    let result = call(&mut hosting);
    hosting.put_back();
    result
}

impl<R: ReactorCallbacks> Hosting<'_, R> {
    /// Calls each guest while entries carry its role.
    fn each(&mut self, mut call: impl FnMut(&mut dyn GuestReactor, &mut ReactorRing)) {
        let ring = self.reactor.core().1;
        self.guests.iter_mut().for_each(|guest| guest.call(ring, &mut call));
    }

    fn turn_guests(&mut self, now: Instant) {
        self.reactor.set_now(now);
        self.each(|guest, ring| guest.turn(ring, now));
        self.reactor.guests_turned();
    }

    fn is_all_busy(&self) -> bool {
        self.reactor.is_all_busy() && self.guests.iter().all(|one| one.guest.is_all_busy())
    }

    /// Submits to the ring, sleeps if there is nothing to do, and handles completions.
    fn check_ring(&mut self) -> io::Result<()> {
        let has_work = self.reactor.has_work();
        if has_work || self.guests.iter().any(|one| one.guest.has_work()) {
            self.reactor.poll_lanes(has_work);
            self.poll_lanes();
            return self.submit();
        }
        let mut due = None;
        let mut lanes = 0;
        let mut expects = false;
        for RoleGuest { guest, .. } in &mut self.guests {
            due = due.into_iter().chain(guest.deadline()).min();
            lanes += guest.lanes();
            expects |= guest.expects();
        }
        let (is_spinning, due) = spins_beside(self.reactor, (lanes, expects, due));
        if is_spinning {
            self.submit()?;
            self.reactor.check_lanes();
            self.guests.iter_mut().for_each(|one| one.guest.check_lanes());
            return Ok(());
        }
        self.reactor.poll_lanes(false);
        self.poll_lanes();
        self.sleep(due)
    }

    fn poll_lanes(&mut self) {
        self.each(|guest, ring| guest.poll_lanes(ring));
    }

    /// Submits without waiting, updates the time, and handles completions.
    fn submit(&mut self) -> io::Result<()> {
        self.reactor.core().1.submit_and_wait(0, None)?;
        if let Some(first) = self.reactor.core().1.next_completion() {
            let now = clock::now();
            self.reactor.set_now(now);
            self.handle_completion(now, first);
            self.handle_completions(now);
        }
        Ok(())
    }

    /// Sleeps until something completes, or until `due`.
    fn sleep(&mut self, due: Option<Instant>) -> io::Result<()> {
        let timeout = due.map(|due| due.since(clock::now()));
        if timeout == Some(Duration::ZERO) {
            return self.submit();
        }
        self.reactor.poll_ports();
        let (core, ring) = self.reactor.core();
        core.waits.sleep(|| ring.submit_and_sleep(timeout))?;
        let now = clock::now();
        self.reactor.core().0.waits.woke(now);
        self.reactor.set_now(now); // for the completions
        self.handle_completions(now);
        Ok(())
    }

    fn handle_completions(&mut self, now: Instant) {
        while let Some(cqe) = self.reactor.core().1.next_completion() {
            self.handle_completion(now, cqe);
        }
    }

    /// Passes a completion on. Those of guests that have ended are dropped.
    fn handle_completion(&mut self, now: Instant, cqe: RingCqe) {
        if cqe.role == RingRole::OWNER {
            return handle_completion(self.reactor, cqe);
        }
        let ring = self.reactor.core().1;
        if let Some(guest) = self.guests.iter_mut().find(|one| one.role == cqe.role) {
            guest.call(ring, |guest, ring| guest.completed(ring, now, cqe));
        }
        self.reactor.core().0.waits.worked();
    }

    /// Puts the guests back, before those that were added meanwhile, and drops those that are over.
    fn put_back(self) {
        let Hosting { reactor, mut guests } = self;
        let ring = reactor.core().1;
        let before = guests.len();
        guests.retain_mut(|one| {
            let is_over = one.guest.is_over();
            if is_over {
                one.call(ring, |_, ring| ring.cancel_polls(CANCELLED));
            }
            !is_over
        });
        let ended = before - guests.len();
        let Some(all) = reactor.guests() else { return };
        all.count -= ended;
        guests.append(&mut all.all);
        all.all = guests;
    }
}
