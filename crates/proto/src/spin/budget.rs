//! What spinning may still cost: sleeps pay in a little, spins that catch earn, spins that catch nothing spend.
//!
//! Its unit is the bound of a spin, which is what a sleep costs. So whatever comes, spinning costs no more CPU time
//! than sleeping would, but for [`SHARE`] of it and what is there at the beginning.

use core::time::Duration;

/// What a sleep pays in: this share of all sleeping's cost is spent on looking whether spinning pays.
const SHARE: f64 = 1.0 / 64.0;
/// With that, spinning is tried.
const TRIAL: f64 = 8.0;
/// With that, too, where waits have become so short that a spin would catch something.
const HINTED_TRIAL: f64 = 2.0;
/// More is not kept: as many spins in vain end spinning. It is there at the beginning, when both ends try at once.
const MOST: f64 = 32.0;
/// The debt of one who has failed, and of one who has failed again and again.
const DEBT_MIN: f64 = 4.0;
const DEBT_MAX: f64 = 256.0;

/// A balance, and the debt after the next failure.
#[derive(Debug)]
pub(super) struct Budget {
    balance: f64,
    debt: f64,
}

impl Budget {
    pub(super) fn new() -> Self {
        Budget { balance: MOST, debt: DEBT_MIN }
    }

    /// Whether spinning can be tried. `is_hinted`: waits have become short.
    pub(super) fn can_try(&self, is_hinted: bool) -> bool {
        self.balance >= if is_hinted { HINTED_TRIAL } else { TRIAL }
    }

    pub(super) fn is_spent(&self) -> bool {
        self.balance <= 0.0
    }

    pub(super) fn slept(&mut self) {
        self.earn(SHARE);
    }

    /// A spin ended after `spun` because something came.
    pub(super) fn caught(&mut self, spun: Duration, bound: Duration) {
        self.earn(1.0 - spun.as_secs_f64() / bound.as_secs_f64().max(1e-9));
    }

    /// A spin ended after so many bounds, and nothing came.
    pub(super) fn missed(&mut self, bounds: u32) {
        self.balance -= f64::from(bounds);
    }

    fn earn(&mut self, part: f64) {
        self.balance = (self.balance + part).min(MOST);
    }

    /// Spinning is over: nothing of what was earned is kept.
    pub(super) fn end(&mut self) {
        self.balance = self.balance.min(0.0);
    }

    /// Spinning is over, for it costs more than sleeping, or others want the core: the next trial is the farther
    /// away the more often that happens.
    pub(super) fn fail(&mut self) {
        self.balance = -self.debt;
        self.debt = (self.debt * 2.0).min(DEBT_MAX);
    }

    /// Spinning has paid for long.
    pub(super) fn forgive(&mut self) {
        self.debt = (self.debt / 2.0).max(DEBT_MIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Duration = Duration::from_micros(24);

    #[test]
    fn what_catches_nothing_is_tried_for_a_share_of_what_sleeping_costs() {
        let mut budget = Budget::new();
        let mut spins = 0;
        for _ in 0..100_000 {
            if budget.can_try(false) {
                while !budget.is_spent() {
                    budget.missed(1);
                    spins += 1;
                }
            }
            budget.slept();
        }
        assert!(spins <= 100_000 / 64 + 32, "{spins}");
        assert!(spins > 100_000 / 66, "{spins}");
    }

    #[test]
    fn what_was_earned_is_not_kept_for_ever() {
        let mut budget = Budget::new();
        (0..1000).for_each(|_| budget.caught(BOUND / 4, BOUND));
        let misses = (0..).take_while(|_| {
            budget.missed(1);
            !budget.is_spent()
        });
        assert_eq!(misses.count(), 31);
    }

    #[test]
    fn who_fails_tries_ever_more_seldom() {
        let mut budget = Budget::new();
        let mut pauses = Vec::new();
        for _ in 0..20 {
            budget.fail();
            let mut sleeps = 0;
            while !budget.can_try(false) {
                budget.slept();
                sleeps += 1;
            }
            pauses.push(sleeps);
        }
        assert!(pauses.is_sorted(), "{pauses:?}");
        assert_eq!((pauses[0], pauses[19]), ((4 + 8) * 64, (256 + 8) * 64));
        (0..20).for_each(|_| budget.forgive());
        budget.fail();
        assert_eq!(budget.balance, -DEBT_MIN);
    }
}
