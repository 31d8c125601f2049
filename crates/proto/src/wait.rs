//! Decides, each time an end of a lane has nothing to do, whether to poll again or to sleep.
//!
//! This is the ski rental problem: who polls again for as long as a sleep costs, and sleeps then, has at worst paid
//! twice. A [`Wait`] polls again for that long while what it saves pays for what it loses. Its account is in time: a
//! wait that ends while it polls saves what is left of a sleep's cost, one that does not loses all of it. With the
//! account used up it sleeps at once. Each sleep that a poll would have caught pays a small part in.
//!
//! No clock and no thread: the caller passes the time, and what the kernel counts.

use crate::time::Instant;
use core::time::Duration;

mod sleep_cost;

use sleep_cost::SleepCost;

/// A sleep costs both ends: the one that sleeps, and the one that has to wake it up.
const ENDS: u32 = 2;
/// Longest time of polling, whatever sleeps cost.
const LIMIT_MAX: Duration = Duration::from_micros(100);
/// The account holds at most so many times the limit. It is full at first.
const ACCOUNT_MAX: i64 = 8;
/// A sleep that polls of both ends would have made unnecessary pays in a part of the limit.
const HINT: i64 = 16;
/// A thread that polls nothing for so many times the limit has lost its core meanwhile.
const LOST_CORE: u32 = 8;
/// Waits between two readings of what the kernel counts.
const WAITS_PER_READING: u32 = 128;
/// Other threads want the core when this one waits for it for more than this part of the time for which it has it.
const CONTENDED: u64 = 4;
/// Each reading takes away such a part of what was counted before it: an interruption is long beside a short reading.
const FADING: u64 = 4;
/// Weight of one poll in the share that catches something.
const WEIGHT: f64 = 1.0 / 64.0;

/// How an end waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Waiting {
    /// Polls again for as long as a sleep costs, while that pays.
    #[default]
    Adaptive,
    /// Asleep whenever there is nothing to do.
    Sleep,
    /// Polls again for that long before it sleeps, while that pays.
    Spin(Duration),
    /// Never sleeps: uses all of its core.
    BusyPoll,
}

/// The waits of one thread.
#[derive(Clone, Debug)]
pub struct Wait {
    waiting: Waiting,
    cost: SleepCost,
    /// Nanoseconds that polling has saved, less what it has lost.
    account_ns: i64,
    poll: Option<Poll>,
    /// A wait that ends in a sleep began then.
    since: Option<Instant>,
    /// Waits since the last reading.
    waits: u32,
    is_reading_due: bool,
    /// Counters of the kernel at the last reading.
    counted: ThreadTimes,
    /// Growth of the counters; that of earlier readings fades.
    recent: ThreadTimes,
    is_contended: bool,
    polled: Duration,
    caught: f64,
}

/// A wait in which it polls again.
#[derive(Clone, Copy, Debug)]
struct Poll {
    since: Instant,
    last: Instant,
    /// Something is to be done then, whatever comes.
    due: Option<Instant>,
}

/// Times of a thread in nanoseconds, as the kernel counts them. They only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadTimes {
    /// The thread had its core.
    pub cpu_ns: u64,
    /// The thread could have run, and another one had the core.
    pub queued_ns: u64,
}

/// State of a thread's waits, to be shown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WaitState {
    /// CPU time of a sleep and its wake-up, on this thread alone; zero: not measured yet.
    pub sleep_cost: Duration,
    /// Longest time of polling; zero: it sleeps at once.
    pub spin_bound: Duration,
    /// Share of late of polls that catch something.
    pub caught: f64,
}

impl Wait {
    /// Nothing is known of the machine yet. Polling for no time is sleeping.
    #[must_use]
    pub fn new(waiting: Waiting) -> Self {
        let waiting = match waiting {
            Waiting::Spin(Duration::ZERO) => Waiting::Sleep,
            waiting => waiting,
        };
        Wait {
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

    /// Longest time of polling.
    #[inline]
    fn limit(&self) -> Duration {
        match self.waiting {
            Waiting::Spin(limit) => limit,
            Waiting::Adaptive => (self.cost.mean() * ENDS).min(LIMIT_MAX),
            Waiting::Sleep | Waiting::BusyPoll => Duration::ZERO,
        }
    }

    /// True while it polls again in waits that begin.
    #[must_use]
    #[inline]
    pub fn polls(&self) -> bool {
        match self.waiting {
            Waiting::Sleep => false,
            Waiting::BusyPoll => true,
            Waiting::Spin(_) | Waiting::Adaptive => self.account_ns > 0 && !self.is_contended,
        }
    }

    /// True while a wait goes on in which it polls again: only the time matters then.
    #[must_use]
    #[inline]
    pub fn is_polling(&self) -> bool {
        self.poll.is_some()
    }

    /// End of that wait if nothing comes.
    #[must_use]
    pub fn polls_until(&self) -> Option<Instant> {
        let poll = self.poll?;
        let end = poll.since + self.limit();
        Some(poll.due.map_or(end, |due| due.min(end)))
    }

    /// Nothing is there to do: `true` to poll again at once, `false` to sleep. `expects`: something may come soon; at
    /// `due` there is something to do in any case.
    pub fn poll_again(&mut self, now: Instant, expects: bool, due: Option<Instant>) -> bool {
        match self.waiting {
            Waiting::BusyPoll => return true,
            Waiting::Sleep => return false,
            Waiting::Spin(_) | Waiting::Adaptive => {}
        }
        let limit = self.limit();
        if let Some(poll) = &mut self.poll {
            let (lasts, pause) = (now.since(poll.since), now.since(poll.last));
            if poll.due.is_some_and(|due| due <= now) {
                self.worked(); // and the next wait begins
            } else if pause > limit * LOST_CORE {
                self.poll = None;
                self.is_reading_due = true; // it shows who has the core
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
        self.poll = Some(Poll { since: now, last: now, due });
        true
    }

    /// Adds to the account, and takes from it.
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

    /// Something is there to do.
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

    /// A sleep is over.
    pub fn woke(&mut self, now: Instant) {
        let Some(since) = self.since.take() else { return };
        let limit = self.limit();
        if now.since(since) < limit * ENDS {
            self.count(nanos(limit) / HINT);
        }
    }

    /// True if the CPU time of the sleep that begins is to be measured, for [`slept`](Self::slept).
    #[inline]
    pub fn samples_next(&mut self) -> bool {
        matches!(self.waiting, Waiting::Adaptive | Waiting::Spin(_)) && self.cost.samples_next()
    }

    /// Takes the CPU time of a sleep and its wake-up.
    pub fn slept(&mut self, cpu: Duration) {
        self.cost.sampled(cpu);
    }

    /// True if it is time for [`review`](Self::review).
    #[must_use]
    #[inline]
    pub fn is_reading_due(&self) -> bool {
        self.is_reading_due
    }

    /// Takes what the kernel has counted.
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

    /// Time spent polling since it began.
    #[must_use]
    pub fn polled(&self) -> Duration {
        self.polled
    }

    /// Its state, to be shown.
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
