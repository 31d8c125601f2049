//! Decides, each time an end of a lane has nothing to do, whether to poll again or to block.
//!
//! This is the ski rental problem: an end that polls for as long as a sleep costs, and then sleeps, pays at worst
//! twice. A [`WaitDecider`] polls for that long while the savings exceed the losses. Its account is in time: a wait that ends
//! while polling saves the rest of a sleep's cost, any other wait loses all of it. With an empty account it sleeps at
//! once. Each sleep that polling would have avoided pays a small part in.
//!
//! No clock and no thread: the caller passes the time and the kernel's counters.

use crate::time::Instant;
use core::time::Duration;

mod sleep_cost;

use sleep_cost::SleepCost;

/// Ends that pay for a sleep: the one that sleeps, and the one that has to wake it up.
const ENDS: u32 = 2;
/// Maximum polling time, whatever sleeps cost.
const LIMIT_MAX: Duration = Duration::from_micros(100);
/// Capacity of the account, in multiples of the limit. It is full at first.
const ACCOUNT_MAX: i64 = 8;
/// Divisor of the limit: the credit for a sleep that polling at both ends would have avoided.
const HINT: i64 = 16;
/// Pause between two polls, in multiples of the limit, from which on the thread is known to have lost its core.
const LOST_CORE: u32 = 8;
/// Waits between two readings of the kernel's counters.
const WAITS_PER_READING: u32 = 128;
/// The core is contended when this thread waits for it for more than this fraction (1/4) of its own CPU time.
const CONTENDED: u64 = 4;
/// Fraction (1/4) of the earlier count that each reading takes away: an interruption is long compared with a short
/// reading.
const FADING: u64 = 4;
/// Weight of one poll in the hit rate.
const WEIGHT: f64 = 1.0 / 64.0;

/// Waiting policy of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum WaitPolicy {
    /// Polls for as long as a sleep costs, while that pays.
    #[default]
    Adaptive,
    /// Blocks whenever there is nothing to do.
    Sleep,
    /// Polls for that long before it blocks, while that pays.
    Spin(Duration),
    /// Never blocks: uses all of its core.
    BusyPoll,
}

/// Waits of one thread.
#[derive(Clone, Debug)]
pub struct WaitDecider {
    waiting: WaitPolicy,
    cost: SleepCost,
    /// Nanoseconds that polling has saved, less those that it has lost.
    account_ns: i64,
    poll: Option<PollingWait>,
    /// Start of a wait that ends in a sleep.
    since: Option<Instant>,
    /// Waits since the last reading.
    waits: u32,
    is_reading_due: bool,
    /// The kernel's counters at the last reading.
    counted: ThreadTimes,
    /// Growth of the counters; that of earlier readings fades.
    recent: ThreadTimes,
    is_contended: bool,
    polled: Duration,
    caught: f64,
}

/// A wait that is polling.
#[derive(Clone, Copy, Debug)]
struct PollingWait {
    since: Instant,
    last: Instant,
    /// Time at which there is work in any case.
    due: Option<Instant>,
}

/// The kernel's time counters of a thread, in nanoseconds. They only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadTimes {
    /// CPU time of the thread.
    pub cpu_ns: u64,
    /// Time for which the thread was runnable and another one had the core.
    pub queued_ns: u64,
}

/// State of a thread's waits, for display.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WaitState {
    /// CPU time of a sleep and its wake-up, on this thread alone; zero: not measured yet.
    pub sleep_cost: Duration,
    /// Maximum polling time; zero: it blocks at once.
    pub spin_bound: Duration,
    /// Hit rate of recent polls.
    pub caught: f64,
}

impl WaitDecider {
    /// Waits without any measurement. Polling for no time is blocking.
    #[must_use]
    pub fn new(waiting: WaitPolicy) -> Self {
        let waiting = match waiting {
            WaitPolicy::Spin(Duration::ZERO) => WaitPolicy::Sleep,
            waiting => waiting,
        };
        WaitDecider {
            waiting,
            cost: SleepCost::default(),
            account_ns: i64::MAX,
            poll: None,
            since: None,
            waits: 0,
            is_reading_due: false,
            counted: ThreadTimes::default(),
            recent: ThreadTimes::default(),
            is_contended: false,
            polled: Duration::ZERO,
            caught: 0.0,
        }
    }

    /// Maximum polling time.
    #[inline]
    fn limit(&self) -> Duration {
        match self.waiting {
            WaitPolicy::Spin(limit) => limit,
            WaitPolicy::Adaptive => (self.cost.mean() * ENDS).min(LIMIT_MAX),
            WaitPolicy::Sleep | WaitPolicy::BusyPoll => Duration::ZERO,
        }
    }

    /// True while new waits poll.
    #[must_use]
    #[inline]
    pub fn polls(&self) -> bool {
        match self.waiting {
            WaitPolicy::Sleep => false,
            WaitPolicy::BusyPoll => true,
            WaitPolicy::Spin(_) | WaitPolicy::Adaptive => self.account_ns > 0 && !self.is_contended,
        }
    }

    /// True while a wait is polling: then only the time matters.
    #[must_use]
    #[inline]
    pub fn is_polling(&self) -> bool {
        self.poll.is_some()
    }

    /// Returns the end of that wait if nothing arrives.
    #[must_use]
    pub fn polls_until(&self) -> Option<Instant> {
        let poll = self.poll?;
        let end = poll.since + self.limit();
        Some(poll.due.map_or(end, |due| due.min(end)))
    }

    /// Decides a wait: `true` to poll at once, `false` to sleep. `expects`: something may arrive soon; at `due` there
    /// is work in any case.
    pub fn poll_again(&mut self, now: Instant, expects: bool, due: Option<Instant>) -> bool {
        match self.waiting {
            WaitPolicy::BusyPoll => return true,
            WaitPolicy::Sleep => return false,
            WaitPolicy::Spin(_) | WaitPolicy::Adaptive => {}
        }
        let limit = self.limit();
        if let Some(poll) = &mut self.poll {
            let (lasts, pause) = (now.since(poll.since), now.since(poll.last));
            if poll.due.is_some_and(|due| due <= now) {
                self.worked(); // and the next wait begins
            } else if pause > limit * LOST_CORE {
                self.poll = None;
                self.is_reading_due = true; // shows whether another thread has the core
                return false;
            } else if lasts < limit {
                poll.last = now;
                return true;
            } else {
                self.missed(limit);
                return false;
            }
        }
        // A timer wakes no other end: a sleep until then costs only this one.
        self.begin(now, expects, due.filter(|due| due.since(now) < limit / ENDS))
    }

    fn begin(&mut self, now: Instant, expects: bool, due: Option<Instant>) -> bool {
        self.since = expects.then_some(now);
        self.waits += 1;
        if self.waits >= WAITS_PER_READING {
            self.is_reading_due = true;
        }
        if (!expects && due.is_none()) || !self.polls() {
            return false;
        }
        self.poll = Some(PollingWait { since: now, last: now, due });
        true
    }

    /// Adds savings to the account, or takes losses from it.
    #[inline]
    fn count(&mut self, saved_ns: i64) {
        let most = ACCOUNT_MAX * nanos(self.limit());
        self.account_ns = self.account_ns.min(most) + saved_ns;
    }

    fn missed(&mut self, limit: Duration) {
        self.poll = None;
        self.polled += limit;
        self.caught -= self.caught * WEIGHT;
        self.count(-nanos(limit));
    }

    /// Ends a wait: there is work.
    #[inline]
    pub fn worked(&mut self) {
        self.since = None;
        if let Some(poll) = self.poll.take() {
            let polled = poll.last.since(poll.since);
            self.polled += polled;
            self.caught += (1.0 - self.caught) * WEIGHT;
            self.count(nanos(self.limit()) - nanos(polled));
        }
    }

    /// Ends a sleep.
    pub fn woke(&mut self, now: Instant) {
        let Some(since) = self.since.take() else { return };
        let limit = self.limit();
        if now.since(since) < limit * ENDS {
            self.count(nanos(limit) / HINT);
        }
    }

    /// True if the CPU time of the sleep that begins has to be measured, for [`slept`](Self::slept).
    #[inline]
    pub fn samples_next(&mut self) -> bool {
        matches!(self.waiting, WaitPolicy::Adaptive | WaitPolicy::Spin(_))
            && self.cost.samples_next()
    }

    /// Records the CPU time of a sleep and its wake-up.
    pub fn slept(&mut self, cpu: Duration) {
        self.cost.sampled(cpu);
    }

    /// True if [`review`](Self::review) is due.
    #[must_use]
    #[inline]
    pub fn is_reading_due(&self) -> bool {
        self.is_reading_due
    }

    /// Takes a reading of the kernel's counters.
    pub fn review(&mut self, counted: ThreadTimes) {
        let fade = |sum: &mut u64, before: u64, now: u64| {
            *sum = (*sum - *sum / FADING).saturating_add(now.saturating_sub(before));
        };
        fade(&mut self.recent.cpu_ns, self.counted.cpu_ns, counted.cpu_ns);
        fade(&mut self.recent.queued_ns, self.counted.queued_ns, counted.queued_ns);
        self.counted = counted;
        self.is_contended = self.recent.queued_ns.saturating_mul(CONTENDED) > self.recent.cpu_ns;
        (self.waits, self.is_reading_due) = (0, false);
    }

    /// Returns the total polling time.
    #[must_use]
    pub fn polled(&self) -> Duration {
        self.polled
    }

    /// Returns the state, for display.
    #[must_use]
    pub fn state(&self) -> WaitState {
        let polls = self.polls();
        WaitState {
            sleep_cost: self.cost.measured().unwrap_or_default(),
            spin_bound: if polls { self.limit() } else { Duration::ZERO },
            caught: if polls { self.caught } else { 0.0 },
        }
    }
}

fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX / ACCOUNT_MAX)
}

#[cfg(test)]
mod tests;
