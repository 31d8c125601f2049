//! Whether spinning pays at all: found out by doing now the one, now the other, and counting the CPU time of each.
//!
//! What a spin saves cannot be read off the spin. A sleep that is avoided may have gathered several requests for one
//! send, and who answers sooner makes the other end wait less. So the reactor counts its CPU time for a piece of work
//! in windows of waits, and does now and then a few of them the other way.

use super::budget::Budget;
use super::contention::Contention;
use super::reading::Reading;

/// Waits of a trial, and of a window while it spins.
const WINDOW: u32 = 256;
/// Least sleeps before a trial: what they cost is what it has to undercut.
const ASLEEP_MIN: u32 = 128;
/// While it spins, every so many windows (and at first more often) so many waits are slept through: few enough that
/// the other end, which waits longer for them, does not give up its own spinning.
const WINDOWS_PER_PROBE: u32 = 8;
const PROBE: u32 = 8;
/// So many probes are compared as one: a single one says little.
const PROBES: u32 = 8;
/// Spinning begins when it costs less than this part of sleeping, and ends when it costs as much.
const PAYS: f64 = 0.97;
/// One window's weight, and how far it can be from what was known.
const WEIGHT: f64 = 0.5;
const OUTLIER: f64 = 4.0;
/// Windows of spinning after which earlier failures count half.
const FORGIVING: u32 = 16;

/// What is done in the present window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Window {
    /// Sleeping, until the budget allows a trial.
    #[default]
    Asleep,
    /// Spinning, to see what it costs. Sleeping cost so much before it.
    Trial { asleep: f64 },
    /// Spinning, because it pays.
    Spinning,
    /// A few sleeps, to see what they cost now.
    Probe,
}

/// Decides between spinning and sleeping.
#[derive(Debug, Default)]
pub(super) struct Trials {
    window: Window,
    waits: u32,
    /// Windows of spinning since it began.
    windows: u32,
    begin: Option<Reading>,
    /// CPU time for a piece of work, either way.
    asleep: Option<f64>,
    spinning: Option<f64>,
    /// What so many probes have used.
    probed: Reading,
    probes: u32,
    contention: Contention,
}

impl Trials {
    /// Whether to spin in this window.
    pub(super) fn spins(&self) -> bool {
        matches!(self.window, Window::Trial { .. } | Window::Spinning)
    }

    /// A wait begins: whether its window is over, so that counters have to be read. `is_hinted`: waits have become
    /// short.
    pub(super) fn waits(&mut self, budget: &Budget, is_hinted: bool) -> bool {
        self.waits += 1;
        self.begin.is_none()
            || match self.window {
                Window::Asleep => self.waits > ASLEEP_MIN && budget.can_try(is_hinted),
                Window::Trial { .. } | Window::Spinning => self.waits > WINDOW || budget.is_spent(),
                Window::Probe => self.waits > PROBE,
            }
    }

    /// What it does now says nothing of either. Later on it does what has paid before.
    pub(super) fn pause(&mut self) {
        if self.begin.take().is_some() {
            let pays = matches!(self.window, Window::Spinning | Window::Probe);
            self.window = if pays { Window::Spinning } else { Window::Asleep };
            self.waits = 0;
        }
    }

    /// A window is over: these are the counters.
    pub(super) fn review(&mut self, reading: Reading, budget: &mut Budget) {
        self.waits = 0;
        let Some(begin) = self.begin.replace(reading) else { return };
        let used = reading.since(&begin);
        if self.window != Window::Probe && self.contention.is_there(&used) {
            return self.yield_core(budget);
        }
        let Some(cost) = used.cost() else { return self.sleep(budget) };
        match self.window {
            Window::Asleep => {
                let mean = mix(&mut self.asleep, cost);
                self.window = Window::Trial { asleep: cost.min(mean) };
            }
            Window::Probe => self.probed(&used),
            Window::Trial { asleep } => self.judge(cost, asleep, budget),
            Window::Spinning => self.go_on(cost, budget),
        }
    }

    /// A trial is over.
    fn judge(&mut self, cost: f64, asleep: f64, budget: &mut Budget) {
        if budget.is_spent() {
            self.spinning = None; // it has caught too little to be compared
            self.sleep(budget);
        } else if mix(&mut self.spinning, cost).max(cost) < asleep * PAYS {
            (self.windows, self.probes, self.probed) = (0, 0, Reading::default());
            self.window = Window::Spinning;
        } else {
            budget.fail();
            self.sleep(budget);
        }
    }

    /// A few sleeps have used so much.
    fn probed(&mut self, used: &Reading) {
        self.probed.add(used);
        self.probes += 1;
        if self.probes == PROBES {
            let probed = core::mem::take(&mut self.probed);
            self.probes = 0;
            probed.cost().map(|cost| mix(&mut self.asleep, cost));
        }
        self.window = Window::Spinning;
    }

    fn go_on(&mut self, cost: f64, budget: &mut Budget) {
        let spinning = mix(&mut self.spinning, cost);
        self.windows = self.windows.wrapping_add(1);
        if self.windows.is_multiple_of(FORGIVING) {
            budget.forgive();
        }
        let probes =
            self.windows.is_multiple_of(WINDOWS_PER_PROBE) || self.windows.is_power_of_two();
        if budget.is_spent() || self.asleep.is_none_or(|asleep| spinning >= asleep) {
            self.sleep(budget);
        } else if probes {
            self.window = Window::Probe;
        }
    }

    fn sleep(&mut self, budget: &mut Budget) {
        budget.end();
        self.window = Window::Asleep;
    }

    /// Others want the core.
    fn yield_core(&mut self, budget: &mut Budget) {
        if self.spins() {
            budget.fail();
        }
        self.sleep(budget);
    }
}

fn mix(mean: &mut Option<f64>, sample: f64) -> f64 {
    let known = mean.unwrap_or(sample);
    let sample = sample.clamp(known / OUTLIER, known * OUTLIER);
    *mean.insert(known + (sample - known) * WEIGHT)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: core::time::Duration = core::time::Duration::from_micros(24);

    /// A machine on which a piece of work costs this much, by whether the thread spins. Every spin catches.
    struct Machine {
        trials: Trials,
        budget: Budget,
        reading: Reading,
        waits: [u32; 2],
    }

    impl Machine {
        fn new() -> Self {
            let (trials, budget) = (Trials::default(), Budget::new());
            Machine { trials, budget, reading: Reading::default(), waits: [0; 2] }
        }

        fn run(&mut self, waits: u32, asleep: u64, spinning: u64, queued: impl Fn(bool) -> u64) {
            for _ in 0..waits {
                if self.trials.waits(&self.budget, false) {
                    self.trials.review(self.reading, &mut self.budget);
                }
                let spins = self.trials.spins();
                self.waits[usize::from(spins)] += 1;
                match spins {
                    true => self.budget.caught(BOUND / 4, BOUND),
                    false => self.budget.slept(),
                }
                self.reading.requests += 1;
                self.reading.cpu_ns += if spins { spinning } else { asleep };
                self.reading.queued_ns += queued(spins);
            }
            self.trials.waits = 0;
        }

        fn share(&mut self) -> f64 {
            let [asleep, spinning] = core::mem::take(&mut self.waits).map(f64::from);
            spinning / (asleep + spinning)
        }
    }

    #[test]
    fn what_costs_less_is_done() {
        let mut machine = Machine::new();
        machine.run(1000, 25_000, 9_000, |_| 0);
        assert!(machine.trials.spins());
        machine.share();
        machine.run(100_000, 25_000, 9_000, |_| 0);
        let share = machine.share();
        assert!(share > 0.99, "{share}");
    }

    #[test]
    fn what_costs_more_is_tried_seldom_although_it_catches() {
        let mut machine = Machine::new();
        machine.run(100_000, 25_000, 30_000, |_| 0);
        let share = machine.share();
        assert!(share > 0.02 && share < 0.15, "{share}");
        machine.run(100_000, 4_000, 40_000, |_| 0);
        let share = machine.share();
        assert!(share < 0.03, "{share}");
    }

    #[test]
    fn a_change_is_noticed() {
        let mut machine = Machine::new();
        machine.run(1000, 25_000, 9_000, |_| 0);
        assert!(machine.trials.spins());
        machine.run(70_000, 10_000, 12_000, |_| 0);
        machine.share();
        machine.run(10_000, 10_000, 12_000, |_| 0);
        assert!(machine.share() < 0.25, "what costs more is given up");
        machine.run(20_000, 25_000, 9_000, |_| 0);
        assert!(machine.trials.spins(), "the longest pause is over, and spinning pays again");
    }

    #[test]
    fn what_has_paid_goes_on_after_a_pause() {
        let mut machine = Machine::new();
        machine.run(1000, 25_000, 9_000, |_| 0);
        machine.trials.pause();
        machine.share();
        machine.run(100, 25_000, 9_000, |_| 0);
        assert!(machine.share() > 0.9, "it need not be found out again");
        let mut machine = Machine::new();
        machine.run(1000, 9_000, 25_000, |_| 0);
        machine.trials.pause();
        assert!(!machine.trials.spins());
    }

    #[test]
    fn it_yields_to_others_on_its_core() {
        let mut machine = Machine::new();
        machine.run(1000, 25_000, 9_000, |_| 0);
        machine.share();
        machine.run(64_000, 25_000, 9_000, |_| 10_000_000);
        assert!(machine.waits[1] <= WINDOW, "{:?}", machine.waits);
        machine.share();
        // Those who are noticed only while it spins cost it few windows.
        machine.run(640_000, 25_000, 9_000, |spins| if spins { 10_000_000 } else { 0 });
        assert!(machine.share() < 0.03);
        machine.run(100_000, 25_000, 9_000, |_| 0);
        assert!(machine.trials.spins(), "they have gone");
    }

    #[test]
    fn without_work_nothing_is_learnt() {
        let mut machine = Machine::new();
        for _ in 0..10_000 {
            if machine.trials.waits(&machine.budget, false) {
                machine.trials.review(Reading::default(), &mut machine.budget);
            }
            machine.budget.slept();
            assert!(!machine.trials.spins());
        }
    }
}
