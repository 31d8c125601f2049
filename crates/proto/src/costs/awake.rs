//! How few requests go round best: in parts, together, or with ends that stay awake.
//!
//! A few requests that go round in four parts keep both ends busy all the time, so nobody sleeps: but each part costs
//! a send and a receive. In two parts or one they cost less, and each end waits for the other for a moment. That pays
//! where both ends look again for so long instead of sleeping, and costs a wake-up a part where one of them sleeps.
//! With a slow store both ends sleep in any case: then parts only wake them more often. Which of all this it is shows
//! only when both ends do the same at the same time. So a host tries it now and then, says so in its command
//! identifiers, and its target goes along.

use crate::time::Instant;

/// Turns before a trial, to see what a request costs without it; turns of the trial in which its target joins, and
/// those that count; turns of a window later on.
const WINDOW: u32 = 256;
const JOINING: u32 = 512;
/// An end that sleeps in more than one of so many turns is not awake.
const RARE: u32 = 2;
/// Awake, a request has to take less than this part of the time that it takes otherwise, and no more CPU time.
const PAYS: f64 = 0.95;
/// Together, it has to take less than this part of the CPU time, and hardly more time.
const SAVES: f64 = 0.9;
const AS_FAST: f64 = 1.02;
/// Other threads want the core of an end that waits for it for more than this part of the time for which it has it.
/// They must not get less of it for that; what a window says of it scatters.
const CONTENDED: f64 = 0.5;
const FAIR: f64 = 1.2;
/// So many windows in a row in which it does not pay are no chance.
const FAILURES: u32 = 2;
/// Windows after which it is compared anew: together, twice as many each time that it pays again.
const WINDOWS_MIN: u32 = 8;
const WINDOWS_MAX: u32 = 128;
/// Turns after a trial that has failed: twice as many each time.
const PAUSE_MIN: u32 = 16 * WINDOW;
const PAUSE_MAX: u32 = 512 * WINDOW;

/// How both ends of a lane go about the few requests in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    /// In four parts, so that one end need not wait for the other.
    #[default]
    Parts,
    /// What is ready leaves together: neither end is busy.
    Together,
    /// In fewer parts, and each end looks again where it has nothing to do.
    Awake,
}

impl Pace {
    /// A target's, whose host has this pace: it goes along, unless it sleeps though its host stays awake.
    #[must_use]
    #[inline]
    pub fn followed(self, own: Pace) -> Pace {
        if self == Pace::Together { self } else { own }
    }
}

/// What an end has used by then. It only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    pub at: Instant,
    /// CPU time in nanoseconds.
    pub cpu_ns: u64,
    /// Nanoseconds for which it could have run, and another thread had the core.
    pub queued_ns: u64,
    pub requests: u64,
}

/// Nanoseconds for a request.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Cost {
    time: f64,
    cpu: f64,
    queued: f64,
}

impl Cost {
    /// What both can be at least: one of them may have met something else.
    #[inline]
    fn least(self, other: Cost) -> Cost {
        let (time, cpu) = (self.time.min(other.time), self.cpu.min(other.cpu));
        Cost { time, cpu, queued: self.queued.min(other.queued) }
    }

    #[inline]
    fn is_contended(self) -> bool {
        self.queued > self.cpu * CONTENDED
    }

    /// The part of the core that it uses; not a number where nothing is known.
    #[inline]
    fn share(self) -> f64 {
        self.cpu / self.time
    }
}

impl Used {
    fn since(&self, begin: &Used) -> Cost {
        let requests = self.requests.saturating_sub(begin.requests).max(1) as f64;
        let each = |since: u64, begun: u64| since.saturating_sub(begun) as f64 / requests;
        Cost {
            time: each(self.at.0, begin.at.0),
            cpu: each(self.cpu_ns, begin.cpu_ns),
            queued: each(self.queued_ns, begin.queued_ns),
        }
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
    /// What paid last, and for how many windows it stays so.
    last: Pace,
    stay: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It was tried, or there is nothing to try.
    Rests,
    /// It will be tried: what a request costs before. At a target: its host has not begun.
    Before(Pace),
    /// It is tried; the target hears of it.
    Joining(Pace),
    /// It is tried, and counted.
    Trial(Pace),
    /// It pays.
    Stays(Pace),
}

impl Awake {
    /// `leads`: whether this end decides, as a host.
    #[must_use]
    pub fn new(leads: bool) -> Self {
        Awake {
            leads,
            state: if leads { State::Rests } else { State::Before(Pace::Awake) },
            left: WINDOW,
            sleeps: 0,
            pause: PAUSE_MIN,
            begin: Used::default(),
            before: Cost::default(),
            windows: 0,
            failures: 0,
            last: Pace::Parts,
            stay: WINDOWS_MIN,
        }
    }

    /// What both ends are to do now.
    #[must_use]
    #[inline]
    pub fn pace(&self) -> Pace {
        match self.state {
            State::Rests | State::Before(_) => Pace::Parts,
            State::Joining(pace) | State::Trial(pace) | State::Stays(pace) => pace,
        }
    }

    /// A turn had something to do; `few`: requests in flight are so few that it matters, at a target: its host stays
    /// awake. Whether [`Self::review`] is due: once a window, however often `few` changes.
    #[inline]
    pub fn works(&mut self, few: bool) -> bool {
        if self.leads && !few {
            self.rest();
            return false;
        }
        if !self.leads {
            self.follow(few);
        }
        self.left -= 1;
        self.left == 0
    }

    /// There is nothing to be tried now.
    #[inline]
    fn rest(&mut self) {
        if self.state != State::Rests {
            (self.state, self.left, self.sleeps) = (State::Rests, WINDOW, 0);
        }
    }

    /// What a target's host does. The present window then holds both, and says nothing.
    #[inline]
    fn follow(&mut self, is_host_awake: bool) {
        match self.state {
            State::Before(pace) if is_host_awake => self.state = State::Joining(pace),
            State::Before(_) => {}
            _ if is_host_awake => {}
            _ => (self.state, self.left) = (State::Rests, self.left.min(WINDOW)),
        }
    }

    /// It has slept.
    #[inline]
    pub fn slept(&mut self) {
        self.sleeps = self.sleeps.saturating_add(1);
    }

    /// A window is over. `used`: so far, by this end.
    pub fn review(&mut self, used: Used) {
        let sleeps = core::mem::take(&mut self.sleeps);
        let cost = used.since(&self.begin);
        self.begin = used;
        let good = |pace| self.is_good(pace, sleeps, cost);
        (self.state, self.left) = match self.state {
            State::Rests => (State::Before(Pace::Awake), WINDOW),
            State::Before(pace) if !self.leads => {
                self.before = cost;
                (State::Before(pace), WINDOW)
            }
            State::Before(pace) => {
                let again = pace == Pace::Together;
                self.before = if again { self.before.least(cost) } else { cost };
                (State::Joining(pace), JOINING)
            }
            State::Joining(pace) => (State::Trial(pace), WINDOW),
            State::Trial(pace) if good(pace) => {
                self.stay = self.stays_for(pace);
                self.last = pace;
                (self.pause, self.windows, self.failures) = (PAUSE_MIN, 0, 0);
                (State::Stays(pace), WINDOW)
            }
            State::Trial(Pace::Awake) if self.leads => (State::Before(Pace::Together), WINDOW),
            State::Trial(_) => {
                let pause = self.pause;
                self.last = Pace::Parts;
                self.pause = (pause * 2).min(PAUSE_MAX);
                (State::Rests, pause)
            }
            State::Stays(pace) => self.go_on(pace, good(pace)),
        };
    }

    /// For how many windows, if it pays now. That few save CPU time together may have been chance.
    #[inline]
    fn stays_for(&self, pace: Pace) -> u32 {
        match pace {
            Pace::Together if self.last == pace => (self.stay * 2).min(WINDOWS_MAX),
            Pace::Together => WINDOWS_MIN,
            Pace::Awake | Pace::Parts => WINDOWS_MAX,
        }
    }

    /// Whether a window in which it slept so often, and a request took so much, is a reason to stay so.
    fn is_good(&self, pace: Pace, sleeps: u32, cost: Cost) -> bool {
        let before = self.before;
        match pace {
            Pace::Awake if sleeps > WINDOW / RARE => false,
            Pace::Awake if cost.is_contended() && cost.share() > before.share() * FAIR => false,
            Pace::Awake => !self.leads || (cost.time < before.time * PAYS && cost.cpu < before.cpu),
            Pace::Parts | Pace::Together => {
                cost.time < before.time * AS_FAST && cost.cpu < before.cpu * SAVES
            }
        }
    }

    fn go_on(&mut self, pace: Pace, good: bool) -> (State, u32) {
        self.windows += 1;
        self.failures = if good { 0 } else { self.failures + 1 };
        if self.failures == FAILURES || (self.leads && self.windows == self.stay) {
            // The load is another one, or it is time to see what it costs otherwise.
            return (State::Rests, WINDOW);
        }
        (State::Stays(pace), WINDOW)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An end with eight requests a turn.
    struct End {
        awake: Awake,
        used: Used,
        together: Turn,
    }

    /// What a turn is like: nanoseconds of it, and of those CPU time; it sleeps in one of so many.
    #[derive(Clone, Copy)]
    struct Turn {
        time: u64,
        cpu: u64,
        queued: u64,
        sleeps: u32,
    }

    const ASLEEP: Turn = Turn { time: 20_000, cpu: 16_000, queued: 0, sleeps: 8 };
    const FASTER: Turn = Turn { time: 12_000, cpu: 12_000, queued: 0, sleeps: 16 };
    const LATER: Turn = Turn { time: 30_000, cpu: 14_000, queued: 0, sleeps: 1 };
    const CHEAPER: Turn = Turn { time: 20_200, cpu: 14_000, queued: 0, sleeps: 1 };
    const SLOWER: Turn = Turn { time: 40_000, cpu: 9_000, queued: 0, sleeps: 1 };

    impl End {
        fn new(leads: bool) -> Self {
            End { awake: Awake::new(leads), used: Used::default(), together: LATER }
        }

        /// Turns of `all` in which it is awake, and then like that.
        fn run(&mut self, all: u32, few: bool, then: Turn) -> u32 {
            let mut awake = 0;
            for number in 0..all {
                let pace = self.awake.pace();
                let turn = match pace {
                    Pace::Parts => ASLEEP,
                    Pace::Together => self.together,
                    Pace::Awake => then,
                };
                awake += u32::from(pace == Pace::Awake);
                if number.is_multiple_of(turn.sleeps) {
                    self.awake.slept();
                }
                self.used.at.0 += turn.time;
                self.used.cpu_ns += turn.cpu;
                self.used.queued_ns += turn.queued;
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
    fn others_on_its_core_do_not_get_less_of_it() {
        for leads in [true, false] {
            let mut end = End::new(leads);
            end.run(2 * WINDOW, leads, FASTER);
            let awake = end.run(400_000, true, Turn { cpu: 10_000, queued: 11_000, ..FASTER });
            assert!(awake > 380_000, "they get as much as while it sleeps: {awake}");
            let awake = end.run(PAUSE_MIN, true, Turn { queued: 11_000, ..FASTER });
            assert!(awake <= (FAILURES + 2) * WINDOW + JOINING, "{awake}");
        }
    }

    #[test]
    fn what_is_slower_is_rarely_tried() {
        let contended = Turn { queued: 11_000, ..FASTER };
        for then in
            [SLOWER, Turn { sleeps: 16, ..SLOWER }, Turn { cpu: 30_000, ..FASTER }, contended]
        {
            let mut end = End::new(true);
            end.run(400_000, true, then);
            let awake = f64::from(end.run(1_000_000, true, then)) / 1e6;
            assert!(awake > 0.004 && awake < 0.01, "{awake}");
        }
    }

    #[test]
    fn what_takes_as_long_for_less_cpu_time_leaves_together() {
        let mut end = End::new(true);
        end.together = CHEAPER;
        let awake = f64::from(end.run(400_000, true, SLOWER)) / 4e5;
        assert!(awake < 0.03, "{awake}");
        assert_eq!(end.awake.pace(), Pace::Together);
        end.together = LATER;
        end.run(2 * WINDOW, true, SLOWER);
        assert_eq!(end.awake.pace(), Pace::Parts);
        end.together = Turn { cpu: 15_900, ..CHEAPER };
        end.run(400_000, true, SLOWER);
        assert_eq!(end.awake.pace(), Pace::Parts, "it saves too little");
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
        assert_eq!(end.awake.pace(), Pace::Awake);
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
        assert!(awake <= 2 * WINDOW, "{awake}");
        end.run(1, false, SLOWER);
        let awake = end.run(1000, true, FASTER);
        assert!(awake >= 1000 - WINDOW - 1, "a new trial of its host's is a new one: {awake}");
    }

    #[test]
    fn a_target_of_two_hosts_reads_its_counters_once_a_window() {
        let mut awake = Awake::new(false);
        let mut reviews = 0;
        for turn in 0..100 * WINDOW {
            if awake.works(turn.is_multiple_of(2)) {
                awake.review(Used { at: Instant(u64::from(turn) * 20_000), ..Used::default() });
                reviews += 1;
            }
        }
        assert!(reviews <= 100, "{reviews}");
    }
}
