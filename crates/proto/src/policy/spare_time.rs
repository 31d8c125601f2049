//! Whether an end that sends all it has could as well send more often: it waits for most of its time.

use crate::time::Instant;
use core::time::Duration;

/// Who waits for so many thousandths of its time, or more, has time to spare. With memory a host that sends all it has
/// waits for less, since what is in flight is at one of the two ends. With a store it waits for more.
const ENOUGH: u32 = 500;
/// So many readings in a row are no chance.
const READINGS: u32 = 2;
/// How long that is believed, at first and when it has been found again and again. Then it has to show anew: readings
/// of an end that sends more often say nothing of it.
const BELIEVED_MIN: Duration = Duration::from_millis(32);
const BELIEVED_MAX: Duration = Duration::from_millis(512);

/// What was found.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SpareTime {
    /// Believed until then.
    until: Option<Instant>,
    /// Readings in a row that say so.
    found: u32,
    /// How long it was believed last.
    believed: Duration,
}

impl SpareTime {
    /// Whether it is believed now.
    #[inline]
    pub(super) fn is_there(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// A reading: whether it is believed from now on.
    pub(super) fn heard(&mut self, now: Instant, permille: u32) -> bool {
        match self.until {
            Some(until) if now < until => return false,
            Some(_) => {
                // This reading may be of the time before.
                (self.until, self.found) = (None, 0);
                return false;
            }
            None if permille < ENOUGH => {
                *self = SpareTime::default();
                return false;
            }
            None => self.found += 1,
        }
        if self.found < READINGS {
            return false;
        }
        self.believed = (self.believed * 2).clamp(BELIEVED_MIN, BELIEVED_MAX);
        self.until = Some(now + self.believed);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    #[test]
    fn one_reading_is_not_believed() {
        let mut spare = SpareTime::default();
        for ms in [2, 6, 10] {
            assert!(!spare.heard(at(ms), 900));
            assert!(!spare.heard(at(ms + 2), ENOUGH - 1));
        }
        assert!(!spare.heard(at(14), ENOUGH) && spare.heard(at(16), ENOUGH));
        assert!(spare.is_there(at(16)) && spare.is_there(at(47)) && !spare.is_there(at(48)));
    }

    #[test]
    fn what_is_found_again_is_believed_for_longer() {
        let mut spare = SpareTime::default();
        let mut times = Vec::new();
        for ms in (0..4000).step_by(2) {
            if spare.heard(at(ms), ENOUGH) {
                times.push(spare.believed.as_millis());
            }
        }
        assert_eq!(times[..6], [32, 64, 128, 256, 512, 512]);
    }

    #[test]
    fn what_is_over_shows_within_three_readings() {
        let mut spare = SpareTime::default();
        spare.heard(at(0), 600);
        assert!(spare.heard(at(2), 600));
        assert!(!spare.heard(at(20), 0), "readings of an end that sends often do not count");
        assert!(spare.is_there(at(20)));
        assert!(!spare.heard(at(34), 600), "it may be of the time before");
        assert!(!spare.heard(at(36), 600));
        assert!(!spare.heard(at(38), 100) && !spare.is_there(at(38)));
        assert!(!spare.heard(at(40), 600) && spare.heard(at(42), 600));
        assert_eq!(spare.believed, BELIEVED_MIN, "as if it was never found before");
    }
}
