//! Whether an end does better awake, with few requests in flight.
//!
//! A few requests that go round in four parts keep both ends busy all the time, so nobody sleeps: but each part costs
//! a send and a receive. In two parts or one they cost less, and each end waits for the other for a moment. That pays
//! where both ends look again for so long instead of sleeping, and costs a wake-up a part where one of them sleeps.
//! Which of both it is shows only when both ends do it at the same time. So a host tries it now and then, says so in
//! its command identifiers, and its target goes along.

use crate::time::Instant;

/// Turns before a trial, to see what a request costs without it; turns of the trial in which its target joins, and
/// those that count; turns of a window later on.
const WINDOW: u32 = 256;
const JOINING: u32 = 512;
/// An end that sleeps in more than one of so many turns is not awake.
const RARE: u32 = 2;
/// A request has to take less than this part of the time that it takes otherwise, and no more CPU time.
const PAYS: f64 = 0.95;
/// So many windows in a row in which it does not pay are no chance.
const FAILURES: u32 = 2;
/// Windows after which it is compared anew.
const WINDOWS: u32 = 128;
/// Turns after a trial that has failed: twice as many each time.
const PAUSE_MIN: u32 = 16 * WINDOW;
const PAUSE_MAX: u32 = 512 * WINDOW;

/// What an end has used by then. It only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    pub at: Instant,
    /// CPU time in nanoseconds.
    pub cpu_ns: u64,
    pub requests: u64,
}

/// Nanoseconds for a request.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Cost {
    time: f64,
    cpu: f64,
}

impl Used {
    fn since(&self, begin: &Used) -> Cost {
        let requests = self.requests.saturating_sub(begin.requests).max(1) as f64;
        let time = self.at.since(begin.at).as_nanos() as f64 / requests;
        Cost { time, cpu: self.cpu_ns.saturating_sub(begin.cpu_ns) as f64 / requests }
    }
}

/// Counts turns and sleeps. No clock: a turn is a receive that brought something.
#[derive(Clone, Copy, Debug)]
pub struct Awake {
    /// A host: it decides. A target goes along with its host, unless it sleeps nevertheless.
    leads: bool,
    state: State,
    /// Turns of the state that are left, and sleeps in them.
    left: u32,
    sleeps: u32,
    pause: u32,
    begin: Used,
    /// What a request costs without it.
    before: Cost,
    windows: u32,
    failures: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It was tried, or there is nothing to try.
    Rests,
    /// It will be tried: what a request costs before.
    Before,
    /// It is tried; the target hears of it.
    Joining,
    /// It is tried, and counted.
    Trial,
    /// It pays.
    Stays,
}

impl Awake {
    /// `leads`: whether this end decides, as a host.
    #[must_use]
    pub fn new(leads: bool) -> Self {
        Awake {
            leads,
            state: State::Rests,
            left: if leads { WINDOW } else { 1 },
            sleeps: 0,
            pause: PAUSE_MIN,
            begin: Used::default(),
            before: Cost::default(),
            windows: 0,
            failures: 0,
        }
    }

    /// Whether it is awake now: it looks again where it has nothing to do, and sends in fewer parts.
    #[must_use]
    pub fn is_there(&self) -> bool {
        matches!(self.state, State::Joining | State::Trial | State::Stays)
    }

    /// A turn had something to do; `few`: requests in flight are so few that it matters. Whether [`Self::review`] is
    /// due.
    #[inline]
    pub fn works(&mut self, few: bool) -> bool {
        if !few {
            self.rest();
            return false;
        }
        self.left -= 1;
        self.left == 0
    }

    /// There is nothing to be tried now.
    fn rest(&mut self) {
        if !self.leads {
            (self.state, self.left, self.sleeps) = (State::Rests, 1, 0);
        } else if self.state != State::Rests {
            (self.state, self.left, self.sleeps) = (State::Rests, WINDOW, 0);
        }
    }

    /// It has slept.
    pub fn slept(&mut self) {
        self.sleeps = self.sleeps.saturating_add(1);
    }

    /// A window is over. `used`: so far, by this end.
    pub fn review(&mut self, used: Used) {
        let sleeps = core::mem::take(&mut self.sleeps);
        let cost = used.since(&self.begin);
        self.begin = used;
        let is_asleep = sleeps > WINDOW / RARE;
        let pays = cost.time < self.before.time * PAYS && cost.cpu < self.before.cpu;
        let good = !is_asleep && (pays || !self.leads);
        (self.state, self.left) = match self.state {
            State::Rests if !self.leads => (State::Trial, WINDOW),
            State::Rests => (State::Before, WINDOW),
            State::Before => {
                self.before = cost;
                (State::Joining, JOINING)
            }
            State::Joining => (State::Trial, WINDOW),
            State::Trial if good => {
                (self.pause, self.windows, self.failures) = (PAUSE_MIN, 0, 0);
                (State::Stays, WINDOW)
            }
            State::Trial => {
                let pause = self.pause;
                self.pause = (pause * 2).min(PAUSE_MAX);
                (State::Rests, pause)
            }
            State::Stays => self.go_on(good),
        };
    }

    fn go_on(&mut self, good: bool) -> (State, u32) {
        self.windows += 1;
        self.failures = if good { 0 } else { self.failures + 1 };
        if self.failures == FAILURES || (self.leads && self.windows == WINDOWS) {
            // The load is another one, or it is time to see what it costs otherwise.
            return (State::Rests, WINDOW);
        }
        (State::Stays, WINDOW)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An end with eight requests a turn.
    struct End {
        awake: Awake,
        used: Used,
    }

    /// What a turn is like: nanoseconds of it, and of those CPU time; it sleeps in one of so many.
    #[derive(Clone, Copy)]
    struct Turn {
        time: u64,
        cpu: u64,
        sleeps: u32,
    }

    const ASLEEP: Turn = Turn { time: 20_000, cpu: 18_000, sleeps: 8 };
    const FASTER: Turn = Turn { time: 12_000, cpu: 12_000, sleeps: 16 };
    const SLOWER: Turn = Turn { time: 40_000, cpu: 9_000, sleeps: 1 };

    impl End {
        fn new(leads: bool) -> Self {
            End { awake: Awake::new(leads), used: Used::default() }
        }

        /// Turns of `all` in which it is awake, and then like that.
        fn run(&mut self, all: u32, few: bool, then: Turn) -> u32 {
            let mut awake = 0;
            for number in 0..all {
                let is_awake = self.awake.is_there();
                let turn = if is_awake { then } else { ASLEEP };
                awake += u32::from(is_awake);
                if number.is_multiple_of(turn.sleeps) {
                    self.awake.slept();
                }
                self.used.at.0 += turn.time;
                self.used.cpu_ns += turn.cpu;
                self.used.requests += 8;
                if self.awake.works(few) {
                    self.awake.review(self.used);
                }
            }
            awake
        }
    }

    #[test]
    fn what_is_faster_is_kept_and_compared_now_and_then() {
        let mut end = End::new(true);
        let first = end.run(2 * WINDOW, true, FASTER);
        assert_eq!(first, 0, "what it costs otherwise has to be known");
        let awake = f64::from(end.run(400_000, true, FASTER)) / 4e5;
        assert!(awake > 0.97 && awake < 0.995, "{awake}");
    }

    #[test]
    fn what_is_slower_is_rarely_tried() {
        for then in [SLOWER, Turn { sleeps: 16, ..SLOWER }, Turn { cpu: 30_000, ..FASTER }] {
            let mut end = End::new(true);
            end.run(400_000, true, then);
            let awake = f64::from(end.run(1_000_000, true, then)) / 1e6;
            assert!(awake > 0.004 && awake < 0.01, "{awake}");
        }
    }

    #[test]
    fn a_change_is_noticed_both_ways() {
        let mut end = End::new(true);
        end.run(50_000, true, FASTER);
        let awake = end.run(PAUSE_MIN, true, SLOWER);
        assert!(awake <= (FAILURES + 1) * WINDOW + JOINING + WINDOW, "{awake}");
        end.run(1_000_000, true, SLOWER);
        end.run(PAUSE_MAX, true, FASTER);
        assert!(end.run(10_000, true, FASTER) > 9000);
    }

    #[test]
    fn it_is_for_few_requests_only() {
        let mut end = End::new(true);
        end.run(50_000, true, FASTER);
        assert!(end.awake.is_there());
        assert!(end.run(10_000, false, FASTER) <= 1);
        assert!(end.run(10_000, true, FASTER) > 9000, "it is tried again at once");
    }

    #[test]
    fn a_target_goes_along_unless_it_sleeps() {
        let mut end = End::new(false);
        assert_eq!(end.run(10_000, false, FASTER), 0, "its host does not");
        assert!(end.run(10_000, true, FASTER) >= 9_999);
        assert!(end.run(10, false, FASTER) <= 1, "its host has ended it");
        let awake = end.run(PAUSE_MIN, true, SLOWER);
        assert!(awake <= WINDOW + 1, "{awake}");
        end.run(1, false, SLOWER);
        assert!(end.run(1000, true, FASTER) >= 999, "a new trial of its host's is a new one");
    }
}
