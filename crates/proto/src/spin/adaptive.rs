//! Spinning that has to earn its CPU time. No clock, no thread: it is told the time and what was counted.

use super::budget::Budget;
use super::reading::Reading;
use super::trials::Trials;
use crate::costs::SleepCost;
use crate::time::Instant;
use core::time::Duration;

/// Who has looked at nothing for so many times its bound while it spins has lost its core.
const LOST_CORE: u32 = 8;
/// Where the wait before was not for an end that is awake, a spin may last for so many bounds: it has to wake up first.
const PATIENT: u32 = 4;
/// A sleep that lasts for so many bounds at most, with its wake-up, was perhaps unnecessary. So many of them in a row
/// are no chance: the other end answers faster than it did, because it has begun to spin.
const SHORT: u32 = 4;
const HINT: u32 = 2;
/// One spin's weight in the share that is caught.
const WEIGHT: f64 = 1.0 / 64.0;

/// Decides, each time there is nothing to do, whether to look again or to sleep. It spins in a wait at most for as
/// long as a sleep would cost (`PATIENT` times that while the other end may have to wake up), only while its `Budget`
/// allows it, and only where `Trials` say that it saves CPU time.
#[derive(Debug)]
pub struct Adaptive {
    budget: Budget,
    trials: Trials,
    spin: Option<Spin>,
    /// A wait that has ended in a sleep began then.
    sleeps_since: Option<Instant>,
    /// Sleeps in a row instead of which a spin may have caught something.
    short: u32,
    /// The last wait ended within the bound of a spin.
    is_prompt: bool,
    /// Time spent spinning since it began.
    spun: Duration,
    caught: f64,
    is_window_over: bool,
}

/// A spin that goes on.
#[derive(Debug)]
struct Spin {
    since: Instant,
    last: Instant,
    /// Something is to be done then, whatever comes.
    due: Option<Instant>,
    /// Somebody else decides whether it pays.
    is_free: bool,
}

impl Default for Adaptive {
    fn default() -> Self {
        Adaptive {
            budget: Budget::new(),
            trials: Trials::default(),
            spin: None,
            sleeps_since: None,
            short: 0,
            is_prompt: false,
            spun: Duration::ZERO,
            caught: 0.0,
            is_window_over: false,
        }
    }
}

impl Adaptive {
    /// Something was there to do. `cost`: what a sleep costs.
    pub fn worked(&mut self, cost: &SleepCost) {
        if let Some(Spin { since, last, is_free, .. }) = self.spin.take() {
            let (spun, bound) = (last.since(since), cost.bound());
            self.is_prompt = spun < bound;
            self.spun += spun;
            if !is_free {
                self.budget.caught(spun, bound);
            }
            self.note(1.0);
        }
    }

    /// Until when it goes on spinning if nothing comes; `cost`: what a sleep costs. Nothing while it does not spin.
    #[must_use]
    pub fn spins_until(&self, cost: &SleepCost) -> Option<Instant> {
        let spin = self.spin.as_ref()?;
        let end = spin.since + cost.bound() * self.bounds();
        Some(spin.due.map_or(end, |due| due.min(end)))
    }

    /// For how many times its bound it may spin.
    fn bounds(&self) -> u32 {
        if self.is_prompt { 1 } else { PATIENT }
    }

    /// Whether a spin goes on, so that nothing but the time has to be told.
    #[must_use]
    pub fn is_spinning(&self) -> bool {
        self.spin.is_some()
    }

    /// Nothing is there to do: whether to look again at once instead of sleeping. `expecting` says that an answer
    /// is under way; at `due` there is something to do in any case; `cost`: what a sleep costs; `is_awake`: spins in any
    /// case, for somebody else decides whether that pays.
    pub fn spin_again(
        &mut self,
        now: Instant,
        expecting: bool,
        due: Option<Instant>,
        cost: &SleepCost,
        is_awake: bool,
    ) -> bool {
        let bound = cost.bound();
        let bounds = self.bounds();
        if let Some(spin) = &mut self.spin {
            if now.since(spin.last) > bound * LOST_CORE {
                self.spin = None;
                self.is_window_over = true; // the counters say who has it
                return false;
            }
            let is_due = spin.due.is_some_and(|due| due <= now);
            if !is_due && now.since(spin.since) < bound * bounds {
                spin.last = now;
                return true;
            }
            if !is_due {
                self.sleeps_since = Some(spin.since);
                self.spun += bound * bounds;
                if !spin.is_free {
                    self.budget.missed(bounds);
                }
                (self.spin, self.is_prompt) = (None, false);
                self.note(0.0);
                return false;
            }
            self.worked(cost); // and here is the next wait
        }
        let due = due.filter(|due| due.since(now) < bound);
        if !expecting && due.is_none() {
            return false;
        }
        if is_awake && !bound.is_zero() {
            self.trials.pause();
            self.spin = Some(Spin { since: now, last: now, due, is_free: true });
            return true;
        }
        self.is_window_over |= self.trials.waits(&self.budget, self.short >= HINT);
        if !self.trials.spins() || self.budget.is_spent() || bound.is_zero() {
            self.budget.slept();
            (self.sleeps_since, self.is_prompt) = (Some(now), false);
            return false;
        }
        self.spin = Some(Spin { since: now, last: now, due, is_free: false });
        true
    }

    /// Time spent spinning since it began.
    #[must_use]
    pub fn spun(&self) -> Duration {
        self.spun
    }

    fn note(&mut self, caught: f64) {
        self.caught += (caught - self.caught) * WEIGHT;
    }

    /// A sleep is over. `cost`: what one costs.
    pub fn woke(&mut self, now: Instant, cost: &SleepCost) {
        if let Some(since) = self.sleeps_since.take() {
            let is_short = now.since(since) <= cost.bound() * SHORT;
            self.short = if is_short { self.short.saturating_add(1) } else { 0 };
        }
    }

    /// Whether it is time to read the counters for [`review`](Self::review).
    #[must_use]
    pub fn wants_reading(&self) -> bool {
        self.is_window_over
    }

    /// These are the counters now.
    pub fn review(&mut self, reading: Reading) {
        self.is_window_over = false;
        self.trials.review(reading, &mut self.budget);
    }

    /// What it has learnt, with what a sleep costs.
    #[must_use]
    pub fn learnt(&self, cost: &SleepCost) -> Learnt {
        let spins = self.trials.spins();
        Learnt {
            sleep_cost: cost.mean(),
            spin_bound: if spins { cost.bound() } else { Duration::ZERO },
            caught: if spins { self.caught } else { 0.0 },
        }
    }
}

/// What a reactor has learnt of waiting.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Learnt {
    /// CPU time of a sleep and its wake-up, on this thread alone.
    pub sleep_cost: Duration,
    /// How long it spins at most; zero: it sleeps at once.
    pub spin_bound: Duration,
    /// The share of spins that catch something, of late.
    pub caught: f64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SLEEP: Duration = Duration::from_micros(12);

    /// A reactor in virtual time: each request is answered `after` it was sent, and costs `work`.
    struct Loop {
        adaptive: Adaptive,
        cost: SleepCost,
        now: Instant,
        reading: Reading,
        spun: Duration,
        sleeps: u32,
    }

    impl Loop {
        fn new() -> Self {
            Loop {
                adaptive: Adaptive::default(),
                cost: SleepCost::default(),
                now: Instant(0),
                reading: Reading::default(),
                spun: Duration::ZERO,
                sleeps: 0,
            }
        }

        fn request(&mut self, after: Duration) {
            let (sent, answer) = (self.now, self.now + after);
            let work = Duration::from_micros(4);
            while self.now < answer
                && self.adaptive.spin_again(self.now, true, None, &self.cost, false)
            {
                self.now += Duration::from_nanos(400);
            }
            let spun = self.now.since(sent);
            let bound = self.cost.bound() * PATIENT;
            assert!(spun <= bound + Duration::from_nanos(400), "{spun:?}");
            self.spun += spun;
            if self.now < answer {
                self.sleeps += 1;
                self.reading.cpu_ns += SLEEP.as_nanos() as u64;
                if self.cost.samples_next() {
                    self.cost.sampled(SLEEP);
                }
                self.now = answer + SLEEP;
                self.adaptive.woke(self.now, &self.cost);
            }
            self.adaptive.worked(&self.cost);
            self.now += work;
            self.reading.cpu_ns += (spun + work).as_nanos() as u64;
            self.reading.requests += 1;
            if self.adaptive.wants_reading() {
                self.adaptive.review(self.reading);
            }
        }

        fn cost(&mut self, requests: u32, after: impl Fn(u32) -> Duration) -> Duration {
            let before = self.reading.cpu_ns;
            (0..requests).for_each(|request| self.request(after(request)));
            Duration::from_nanos((self.reading.cpu_ns - before) / u64::from(requests))
        }
    }

    #[test]
    fn answers_that_come_soon_are_caught() {
        let mut wait = Loop::new();
        wait.cost(1000, |_| Duration::from_micros(6));
        wait.sleeps = 0;
        let cost = wait.cost(100_000, |_| Duration::from_micros(6));
        assert!(wait.sleeps < 1500, "{} sleeps", wait.sleeps);
        assert!(cost < Duration::from_micros(11), "{cost:?}");
        assert!(
            wait.adaptive.learnt(&wait.cost).caught > 0.9,
            "{:?}",
            wait.adaptive.learnt(&wait.cost)
        );
        assert_eq!(wait.adaptive.learnt(&wait.cost).sleep_cost, SLEEP);
    }

    #[test]
    fn answers_that_take_long_are_slept_for() {
        let mut wait = Loop::new();
        let asleep = SLEEP + Duration::from_micros(4);
        let cost = wait.cost(100_000, |_| Duration::from_micros(100));
        assert!(cost < asleep.mul_f64(1.03), "{cost:?} beside {asleep:?}");
        assert_eq!(wait.adaptive.learnt(&wait.cost).spin_bound, Duration::ZERO);
    }

    #[test]
    fn what_is_rarely_caught_is_not_tried_for_long() {
        let mut wait = Loop::new();
        let asleep = SLEEP + Duration::from_micros(4);
        let cost = wait.cost(100_000, |n| Duration::from_micros([6, 60, 60, 60][n as usize % 4]));
        assert!(cost < asleep.mul_f64(1.03), "{cost:?} beside {asleep:?}");
    }

    #[test]
    fn an_idle_end_does_not_spin() {
        let mut wait = Loop::new();
        wait.cost(1000, |_| Duration::from_micros(6));
        for _ in 0..1000 {
            assert!(
                !wait.adaptive.spin_again(wait.now, false, None, &wait.cost, false),
                "nothing is expected"
            );
            wait.now += Duration::from_secs(1);
        }
        wait.spun = Duration::ZERO;
        (0..10_000).for_each(|_| wait.request(Duration::from_secs(1)));
        assert!(wait.spun < Duration::from_millis(10), "{:?} in 10,000 s", wait.spun);
    }

    #[test]
    fn what_is_due_soon_is_awaited() {
        let mut wait = Loop::new();
        wait.cost(1000, |_| Duration::from_micros(6));
        let due = wait.now + Duration::from_micros(5);
        assert!(wait.adaptive.spin_again(wait.now, false, Some(due), &wait.cost, false));
        assert!(
            !wait.adaptive.spin_again(due, false, None, &wait.cost, false),
            "it is the next wait"
        );
        let late = wait.now + Duration::from_millis(1);
        assert!(!wait.adaptive.spin_again(wait.now, false, Some(late), &wait.cost, false));
    }

    #[test]
    fn who_loses_its_core_in_a_spin_sleeps() {
        let mut wait = Loop::new();
        wait.cost(1000, |_| Duration::from_micros(6));
        assert!(wait.adaptive.spin_again(wait.now, true, None, &wait.cost, false));
        wait.now += Duration::from_millis(3);
        assert!(!wait.adaptive.spin_again(wait.now, true, None, &wait.cost, false));
        assert!(wait.adaptive.wants_reading());
        wait.reading.queued_ns += 3_000_000;
        wait.reading.requests += 1;
        wait.adaptive.review(wait.reading);
        assert_eq!(wait.adaptive.learnt(&wait.cost).spin_bound, Duration::ZERO);
        wait.spun = Duration::ZERO;
        wait.cost(256, |_| Duration::from_micros(6));
        assert_eq!(wait.spun, Duration::ZERO);
        wait.cost(1280, |_| Duration::from_micros(6));
        assert!(wait.spun > Duration::ZERO, "the core is free again");
    }

    /// One end of a pair in virtual time, at depth 1: each answers what the other sends.
    #[derive(Default)]
    struct End {
        adaptive: Adaptive,
        cost: SleepCost,
        reading: Reading,
        sleeps: u64,
    }

    const WORK: Duration = Duration::from_micros(4);
    const LOOK: Duration = Duration::from_nanos(400);

    impl End {
        /// It has nothing to do from `since` on, until something comes at `at`; it wakes up `wake` later if it sleeps
        /// by then. When it has answered, and whether it had to be woken up.
        fn answer(&mut self, since: Instant, at: Instant, wake: Duration) -> (Instant, bool) {
            if self.adaptive.wants_reading() {
                self.adaptive.review(self.reading);
            }
            let mut now = since;
            let mut spins = self.adaptive.spin_again(now, true, None, &self.cost, false);
            while spins && now < at {
                now += LOOK;
                spins = now >= at || self.adaptive.spin_again(now, true, None, &self.cost, false);
            }
            self.reading.cpu_ns += now.since(since).as_nanos() as u64;
            if !spins {
                now = at.max(now) + wake;
                self.adaptive.woke(now, &self.cost);
                self.sleeps += 1;
                self.reading.cpu_ns += SLEEP.as_nanos() as u64;
                if self.cost.samples_next() {
                    self.cost.sampled(SLEEP);
                }
            }
            self.adaptive.worked(&self.cost);
            self.reading.cpu_ns += WORK.as_nanos() as u64;
            self.reading.requests += 1;
            (now + WORK, !spins)
        }
    }

    /// Both ends of a connection at depth 1. Who wakes the other one up pays for that, too.
    #[derive(Default)]
    struct Pair {
        ends: [End; 2],
        free: [Instant; 2],
    }

    impl Pair {
        fn run(&mut self, requests: u32, wake: Duration) {
            for number in 0..requests * 2 {
                let (own, other) = (number as usize % 2, (number as usize + 1) % 2);
                let sent = self.free[other];
                let (done, slept) = self.ends[own].answer(self.free[own], sent, wake);
                self.free[own] = done;
                if slept {
                    self.ends[other].reading.cpu_ns += SLEEP.as_nanos() as u64;
                    self.free[other] += SLEEP / 2;
                }
            }
        }

        /// Requests between which an end slept, over those of `requests`.
        fn asleep(&mut self, requests: u32, wake: Duration) -> f64 {
            let before: u64 = self.ends.iter().map(|end| end.sleeps).sum();
            self.run(requests, wake);
            let sleeps: u64 = self.ends.iter().map(|end| end.sleeps).sum();
            (sleeps - before) as f64 / f64::from(requests * 2)
        }
    }

    #[test]
    fn two_ends_find_to_each_other() {
        for wake in [8, 18, 30, 40] {
            let wake = Duration::from_micros(wake);
            let mut pair = Pair::default();
            pair.run(1000, wake);
            assert!(pair.asleep(50_000, wake) < 0.02, "{wake:?}: a new connection");
            // One of them has learnt to sleep, for the other was slow for long.
            let mut pair = Pair::default();
            for end in &mut pair.ends {
                let mut now = Instant(0);
                for _ in 0..5000 {
                    now = end.answer(now, now + wake * 10, wake).0;
                }
            }
            pair.run(30_000, wake);
            assert!(pair.asleep(50_000, wake) < 0.02, "{wake:?}: both have learnt to sleep");
        }
    }

    proptest! {
        /// The bound holds in each wait (`request` checks it). All spins together cost little more than the sleeps
        /// would have, and where spinning is better little more than spinning, but for what is spent on learning.
        #[test]
        fn it_costs_little_more_than_what_is_better_in_hindsight(
            phases in prop::collection::vec((1..300u64, 1..300u64, 64..20_000u32), 1..8),
        ) {
            let mut wait = Loop::new();
            let work = Duration::from_micros(4);
            let (mut best, mut asleep) = (Duration::ZERO, Duration::ZERO);
            for &(one, other, requests) in &phases {
                let after = |n: u32| Duration::from_micros(if n.is_multiple_of(3) { one } else { other });
                wait.cost(requests, after);
                let spun = |n: u32| match after(n) {
                    after if after < SLEEP => after,
                    _ => SLEEP * 2,
                };
                let spinning: Duration = (0..requests).map(spun).sum();
                best += spinning.min(SLEEP * requests) + work * requests;
                asleep += (SLEEP + work) * requests;
            }
            let cost = Duration::from_nanos(wait.reading.cpu_ns);
            prop_assert!(cost < asleep.mul_f64(1.03) + SLEEP * 100 * phases.len() as u32, "{cost:?} beside {asleep:?}");
            let learning = SLEEP * 500 * phases.len() as u32;
            prop_assert!(cost < best.mul_f64(1.1) + learning, "{cost:?} beside {best:?}");
        }
    }
}
