use super::*;

/// CPU time of a sleep and its wake-up, of a request's work, and of one poll.
const SLEEP: Duration = us(12);
const WORK: Duration = us(4);
const POLL: Duration = Duration::from_nanos(400);

const fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

/// One end in virtual time.
struct WaitingEnd {
    wait: WaitDecider,
    now: Instant,
    counted: ThreadTimes,
    requests: u32,
    sleeps: u32,
}

impl WaitingEnd {
    fn new(waiting: WaitPolicy) -> Self {
        let (now, counted) = (Instant::default(), ThreadTimes::default());
        WaitingEnd { wait: WaitDecider::new(waiting), now, counted, requests: 0, sleeps: 0 }
    }

    /// Waits for work at `at`, and does it. After a sleep it starts `wake_up` later.
    fn wait_until(&mut self, at: Instant, wake_up: Duration) {
        let since = self.now;
        let mut polls = self.now < at && self.poll();
        while polls && self.now < at {
            self.now += POLL;
            polls = self.now >= at || self.poll();
        }
        self.counted.cpu_ns += self.now.since(since).as_nanos() as u64;
        if !polls && self.now < at {
            let is_sampled = self.wait.samples_next();
            self.now = at + wake_up;
            self.counted.cpu_ns += SLEEP.as_nanos() as u64;
            self.sleeps += 1;
            if is_sampled {
                self.wait.slept(SLEEP);
            }
            self.wait.woke(self.now);
        }
        self.now = self.now.max(at);
        self.wait.worked();
        self.now += WORK;
        self.counted.cpu_ns += WORK.as_nanos() as u64;
        self.requests += 1;
    }

    fn poll(&mut self) -> bool {
        if self.wait.is_reading_due() {
            self.wait.review(self.counted);
        }
        self.wait.poll_again(self.now, true, None)
    }

    /// Requests that arrive `after` the end of the one before; returns the CPU time of one.
    fn requests(&mut self, count: u32, after: impl Fn(u32) -> Duration) -> Duration {
        let before = self.counted.cpu_ns;
        for number in 0..count {
            self.wait_until(self.now + after(number), SLEEP);
        }
        Duration::from_nanos((self.counted.cpu_ns - before) / u64::from(count))
    }
}

/// CPU time of a request for an end that always sleeps.
const ASLEEP: Duration = us(16);

#[test]
fn early_work_is_caught() {
    let mut end = WaitingEnd::new(WaitPolicy::Adaptive);
    let cost = end.requests(10_000, |_| us(6));
    assert_eq!(end.sleeps, 0);
    assert!(cost < us(11), "{cost:?}");
    let WaitState { spin_bound, caught, .. } = end.wait.state();
    assert!(spin_bound >= us(20) && caught > 0.95, "{spin_bound:?}, {caught}");
}

#[test]
fn late_work_is_slept_for() {
    for after in [us(30), us(50), us(100), us(1000)] {
        let mut end = WaitingEnd::new(WaitPolicy::Adaptive);
        end.requests(100, |_| after);
        let cost = end.requests(10_000, |_| after);
        assert!(cost < ASLEEP.mul_f64(1.1), "{after:?}: {cost:?}");
    }
}

#[test]
fn work_that_polls_rarely_catch_costs_little_more_than_sleep() {
    let mut end = WaitingEnd::new(WaitPolicy::Adaptive);
    end.requests(100, |_| us(60));
    let cost = end.requests(10_000, |number| [us(6), us(60), us(60), us(60)][number as usize % 4]);
    assert!(cost < ASLEEP.mul_f64(1.2), "{cost:?}");
}

/// Requests that arrive at random, at so many microseconds on average.
#[test]
fn open_loops_cost_little_more_than_sleep() {
    for mean in [10.0, 20.0, 30.0, 50.0, 100.0, 300.0] {
        let after = |number: u32| {
            let bits = (u64::from(number) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11;
            let uniform = (bits as f64 + 1.0) / (1u64 << 53) as f64;
            us(1).mul_f64(-uniform.ln() * mean)
        };
        let mut end = WaitingEnd::new(WaitPolicy::Adaptive);
        end.requests(1000, after);
        let cost = end.requests(50_000, after);
        assert!(cost < ASLEEP.mul_f64(1.4), "each {mean} us: {cost:?}");
    }
}

#[test]
fn an_idle_end_sleeps() {
    let mut end = WaitingEnd::new(WaitPolicy::Adaptive);
    end.requests(1000, |_| us(6));
    assert!(!end.wait.poll_again(end.now, false, None), "nothing is expected");
    end.wait.worked();
    let before = end.wait.polled();
    end.requests(1000, |_| Duration::from_secs(1));
    assert!(end.wait.polled() - before < Duration::from_millis(1));
}

#[test]
fn due_work_is_waited_for() {
    let mut end = WaitingEnd::new(WaitPolicy::Adaptive);
    end.requests(1000, |_| us(6));
    let due = end.now + us(5);
    assert!(end.wait.poll_again(end.now, false, Some(due)));
    assert!(!end.wait.poll_again(due, false, None), "it is the next wait");
    let late = end.now + Duration::from_millis(1);
    assert!(!end.wait.poll_again(end.now, false, Some(late)));
}

/// Other threads want the core: the end sleeps, and polls again when they have gone.
#[test]
fn an_end_that_waits_for_its_core_sleeps() {
    let mut end = WaitingEnd::new(WaitPolicy::Adaptive);
    end.requests(1000, |_| us(6));
    for _ in 0..1000 {
        end.counted.queued_ns += 10_000;
        end.requests(1, |_| us(6));
    }
    assert!(!end.wait.polls());
    end.requests(4000, |_| us(6));
    assert!(end.wait.polls());
}

#[test]
fn an_end_that_lost_its_core_while_it_polled_reads_the_counters() {
    let mut end = WaitingEnd::new(WaitPolicy::Adaptive);
    end.requests(1000, |_| us(6));
    end.wait.review(end.counted);
    assert!(end.wait.poll_again(end.now, true, None));
    assert!(!end.wait.poll_again(end.now + Duration::from_millis(3), true, None));
    assert!(end.wait.is_reading_due());
}

#[test]
fn configured_waits_are_as_configured() {
    let mut end = WaitingEnd::new(WaitPolicy::Sleep);
    end.requests(100, |_| us(1));
    assert_eq!((end.sleeps, end.wait.polls()), (100, false));
    assert_eq!(end.wait.state(), WaitState::default(), "nothing is measured, no counters are read");
    assert!(!end.wait.is_reading_due());
    let mut end = WaitingEnd::new(WaitPolicy::Spin(us(0)));
    end.requests(100, |_| us(1));
    assert_eq!((end.sleeps, end.wait.polls(), end.wait.is_reading_due()), (100, false, false));
    let mut end = WaitingEnd::new(WaitPolicy::BusyPoll);
    end.requests(100, |_| Duration::from_millis(1));
    assert_eq!((end.sleeps, end.wait.polls()), (0, true));
    let mut end = WaitingEnd::new(WaitPolicy::Spin(us(50)));
    end.requests(100, |_| us(40));
    assert_eq!(end.sleeps, 0);
    end.requests(100, |_| us(60));
    assert!(end.sleeps > 80, "{}", end.sleeps);
}

/// Both ends of a connection with one request in flight: each works on what the other one has sent.
struct WaitingPair([WaitingEnd; 2]);

impl WaitingPair {
    fn run(&mut self, requests: u32, wake_up: Duration) {
        for number in 0..requests * 2 {
            let own = number as usize % 2;
            let sent_at = self.0[1 - own].now;
            self.0[own].wait_until(sent_at, wake_up);
        }
    }

    fn sleeps(&mut self) -> u32 {
        self.0.iter_mut().map(|end| std::mem::take(&mut end.sleeps)).sum()
    }
}

#[test]
fn both_ends_poll_from_the_start_and_after_a_pause() {
    for wake_up in [us(8), us(12), us(16)] {
        let mut pair = WaitingPair([0, 1].map(|_| WaitingEnd::new(WaitPolicy::Adaptive)));
        pair.run(10_000, wake_up);
        assert!(pair.sleeps() < 10, "from the start");
        // Both ends have little to do for a while: their polls miss.
        for end in &mut pair.0 {
            end.requests(100, |_| Duration::from_millis(1));
        }
        let now = pair.0[0].now.max(pair.0[1].now);
        pair.0.iter_mut().for_each(|end| end.now = now);
        pair.sleeps();
        pair.run(10_000, wake_up);
        let sleeps = pair.sleeps();
        assert!(sleeps < 500, "wake-ups of {wake_up:?}: {sleeps} sleeps");
    }
}
