//! The loop of a reactor: turns, checks of its ring, spinning, sleeping.

use super::event::{self, mark};
use super::guests::Guests;
use super::waits::ReactorWaits;
use crate::connection::RxBuffer;
use crate::metrics::ReactorCells;
use crate::waits::{WaitMeter, WaitPolicy};
use roadtrain_system::clock;
use roadtrain_system::mailbox::MailboxReceiver;
use roadtrain_system::ring::{ReactorRing, RingCqe, UserData};

use roadtrain_proto::time::Instant;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Busy turns between two checks of the ring.
pub(crate) const TURNS_PER_CHECK: u32 = 16;

/// Maximum lanes that are checked directly without a setting to spin: each takes a system call.
const LANES_MAX: usize = 16;

/// Receive buffers of a reactor, shared by its lanes, so that an idle connection holds no memory.
pub struct RxBuffers {
    /// Buffer of all other lanes.
    pub own: RxBuffer,
    /// Buffer of latency-critical lanes while another lane is in its turn.
    pub express: RxBuffer,
}

/// Parts that every reactor has.
pub struct ReactorCore<M> {
    /// Decisions to spin or to sleep.
    pub waits: ReactorWaits,
    inbox: MailboxReceiver<M>,
    /// Receive buffers; `None` while the reactor runs.
    rx: Option<RxBuffers>,
}

impl<M> ReactorCore<M> {
    /// The parts of a reactor, made on the thread that will run it.
    #[inline]
    pub fn new(
        inbox: MailboxReceiver<M>,
        waiting: WaitPolicy,
        meters: (Arc<WaitMeter>, Arc<ReactorCells>),
    ) -> io::Result<Self> {
        let rx = RxBuffers { own: RxBuffer::new()?, express: RxBuffer::new()? };
        Ok(ReactorCore { waits: ReactorWaits::new(waiting, meters), inbox, rx: Some(rx) })
    }
}

/// A reactor: the callbacks of the loop. All of them are known at compile time.
pub trait ReactorCallbacks {
    /// Message from other threads.
    type Message;

    /// Returns the common parts and the ring.
    fn core(&mut self) -> (&mut ReactorCore<Self::Message>, &mut ReactorRing);

    /// True if the reactor is done.
    fn is_over(&self) -> bool;

    /// True if everything that the ring could report has pending work anyway.
    fn is_all_busy(&self) -> bool;

    /// True if there is work now.
    fn has_work(&self) -> bool;

    /// True if a response is pending, so that spinning may catch it.
    fn expects(&self) -> bool;

    /// Returns the time of the next work in any case.
    fn deadline(&mut self) -> Option<Instant>;

    /// Polls idle lanes; `has_work`: other lanes have work.
    fn poll_lanes(&mut self, has_work: bool);

    /// Polls the other descriptors that may wake the reactor.
    fn poll_ports(&mut self);

    /// Checks lanes directly, not through the ring, while the reactor spins.
    fn check_lanes(&mut self);

    /// Returns the number of lanes that [`check_lanes`](Self::check_lanes) checks.
    fn lanes(&self) -> usize;

    /// Sets the time of the turn.
    fn set_now(&mut self, now: Instant);

    /// Handles a completion.
    fn completed(&mut self, data: &UserData, cqe: RingCqe);

    /// Handles a message from another thread.
    fn handle_message(&mut self, message: Self::Message);

    /// Gives a turn to all lanes with pending work.
    fn turn(&mut self, rx: &mut RxBuffers);

    /// Returns its guests, if it may have some.
    fn guests(&mut self) -> Option<&mut Guests> {
        None
    }

    /// Takes what guests have completed in their turns.
    fn guests_turned(&mut self) {}
}

/// Prepares the first turn; returns the receive buffers. `None`: the reactor runs already.
#[inline]
pub fn begin<R: ReactorCallbacks>(reactor: &mut R) -> Option<RxBuffers> {
    let rx = reactor.core().0.rx.take()?;
    poll_inbox(reactor);
    Some(rx)
}

/// Checks the ring if it is due, then makes the turn of that number, without guests.
pub(crate) fn step_alone<R: ReactorCallbacks>(
    reactor: &mut R,
    turns: u32,
    rx: &mut RxBuffers,
) -> io::Result<()> {
    if turns.is_multiple_of(TURNS_PER_CHECK) || !reactor.is_all_busy() {
        check_ring(reactor)?;
    }
    reactor.set_now(clock::now());
    reactor.turn(rx);
    Ok(())
}

/// Submits to the ring, sleeps if there is nothing to do, and handles completions.
fn check_ring<R: ReactorCallbacks>(reactor: &mut R) -> io::Result<()> {
    if reactor.has_work() {
        reactor.poll_lanes(true);
        return submit(reactor);
    }
    let (spins, due) = spins(reactor);
    if spins {
        submit(reactor)?;
        reactor.check_lanes();
        return Ok(());
    }
    reactor.poll_lanes(false);
    let timeout = due.map(|due| due.since(clock::now()));
    if timeout == Some(Duration::ZERO) {
        return submit(reactor);
    }
    reactor.poll_ports();
    let (core, ring) = reactor.core();
    core.waits.sleep(|| ring.submit_and_sleep(timeout))?;
    let now = clock::now();
    core.waits.woke(now);
    reactor.set_now(now); // for the completions
    handle_completions(reactor);
    Ok(())
}

/// Submits without waiting, and handles completions. The time is updated first, so that a thread that was suspended
/// notices before it continues.
fn submit<R: ReactorCallbacks>(reactor: &mut R) -> io::Result<()> {
    reactor.core().1.submit_and_wait(0, None)?;
    if let Some(first) = reactor.core().1.next_completion() {
        reactor.set_now(clock::now());
        handle_completion(reactor, first);
        handle_completions(reactor);
    }
    Ok(())
}

/// Decides a wait without work: `true` to poll at once, else the time of the next wake-up.
fn spins<R: ReactorCallbacks>(reactor: &mut R) -> (bool, Option<Instant>) {
    spins_beside(reactor, (0, false, None))
}

/// As [`spins`], for a reactor whose guests have so many lanes, expect something, and have work at that time.
#[inline]
pub(crate) fn spins_beside<R: ReactorCallbacks>(
    reactor: &mut R,
    (lanes, guests_expect, guests_due): (usize, bool, Option<Instant>),
) -> (bool, Option<Instant>) {
    // Each poll is a receive for every lane.
    let expects = reactor.lanes() + lanes <= LANES_MAX && (reactor.expects() || guests_expect);
    let first = |due: Option<Instant>| due.into_iter().chain(guests_due).min();
    let due = reactor.core().0.waits.needs_due().then(|| first(reactor.deadline()));
    if reactor.core().0.waits.poll_again(clock::now(), expects, due.flatten()) {
        return (true, None);
    }
    (false, due.unwrap_or_else(|| first(reactor.deadline())))
}

pub(crate) fn handle_completions<R: ReactorCallbacks>(reactor: &mut R) {
    while let Some(cqe) = reactor.core().1.next_completion() {
        handle_completion(reactor, cqe);
    }
}

/// Handles one completion.
#[inline]
pub fn handle_completion<R: ReactorCallbacks>(reactor: &mut R, cqe: RingCqe) {
    reactor.core().0.waits.worked();
    let data = UserData::unpack(cqe.user_data);
    if data.kind != event::INBOX {
        return reactor.completed(&data, cqe);
    }
    reactor.core().0.inbox.acknowledge();
    while let Some(message) = reactor.core().0.inbox.take() {
        reactor.handle_message(message);
    }
    poll_inbox(reactor);
}

/// Polls the inbox in the reactor's ring: for a reactor that has begun in another one.
pub fn poll_inbox<R: ReactorCallbacks>(reactor: &mut R) {
    let (core, ring) = reactor.core();
    event::poll(ring, core.inbox.fd(), libc::POLLIN, mark(event::INBOX, 0, 0));
}

#[cfg(test)]
mod tests {
    use super::*;
    use roadtrain_system::mailbox::mailbox;
    use std::thread;

    /// A reactor that always has work, and records the time at which it takes messages.
    struct Busy {
        core: ReactorCore<()>,
        ring: ReactorRing,
        now: Instant,
        taken_at: Option<Instant>,
    }

    impl ReactorCallbacks for Busy {
        type Message = ();

        fn core(&mut self) -> (&mut ReactorCore<()>, &mut ReactorRing) {
            (&mut self.core, &mut self.ring)
        }

        fn is_over(&self) -> bool {
            false
        }

        fn is_all_busy(&self) -> bool {
            false
        }

        fn has_work(&self) -> bool {
            true
        }

        fn expects(&self) -> bool {
            false
        }

        fn deadline(&mut self) -> Option<Instant> {
            None
        }

        fn poll_lanes(&mut self, _: bool) {}

        fn poll_ports(&mut self) {}

        fn check_lanes(&mut self) {}

        fn lanes(&self) -> usize {
            0
        }

        fn set_now(&mut self, now: Instant) {
            self.now = now;
        }

        fn completed(&mut self, _: &UserData, _: RingCqe) {}

        fn handle_message(&mut self, (): ()) {
            self.taken_at.get_or_insert(self.now);
        }

        fn turn(&mut self, _: &mut RxBuffers) {}
    }

    /// Completions and messages lead to commands: a thread that was suspended has to notice before.
    #[test]
    fn a_busy_reactor_knows_the_time_before_it_goes_on_with_anything() {
        let (outbox, inbox) = mailbox().unwrap();
        let core = ReactorCore::new(inbox, WaitPolicy::default(), Default::default()).unwrap();
        let ring = ReactorRing::wide(8).unwrap();
        let mut busy = Busy { core, ring, now: Instant::default(), taken_at: None };
        let mut rx = begin(&mut busy).unwrap();
        step_alone(&mut busy, 1, &mut rx).unwrap();
        thread::sleep(Duration::from_millis(1));
        let sent_at = clock::now();
        outbox.send(());
        let taken_at = (0..1_000_000).find_map(|_| {
            step_alone(&mut busy, 2, &mut rx).unwrap();
            busy.taken_at
        });
        assert!(taken_at.expect("it comes") >= sent_at, "taken at the time of the turn before");
    }
}
