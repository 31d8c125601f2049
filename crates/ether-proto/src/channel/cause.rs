//! Why frames are lost: because a queue on their way is full, or by chance.
//!
//! A queue that runs over does so when it is longest, so what it loses is lost at round trips longer than most. What
//! a bad cable or interface loses is lost at long ones and at short ones, as they come. This needs no knowledge of how
//! long the way is, nor of what else is on it, and holds for queues that others fill.
//!
//! A queue of a few frames is nearly full all the time: there round trips tell nothing. But there small cuts are
//! soon grown again and lose again, one of some ten frames, while chance does not care how much is sent. So losses
//! as frequent as that are no chance whatever the round trips are.

use core::mem;
use core::time::Duration;

/// What a loss leaves of a window whose frames were too many, ...
pub(super) const BETA: f64 = 0.7;
/// ... and of one whose frames are lost by chance. What gives way so little still gives way.
pub(super) const BETA_CHANCE: f64 = 0.98;
/// The mean is of so many round trips, ...
const SAMPLES: u32 = 64;
/// ... and the share of losses at long ones of so many losses, some of which are assumed at first.
const LOSSES: f64 = 32.0;
const LOSSES_ASSUMED: f64 = 4.0;
/// Shares that chance may have: up to the first all is clear, from the second on it is not chance.
const CHANCE_MAX: [f64; 2] = [0.65, 0.85];
/// As little as this has its reason, too: frames that leave in bursts measure the queue when it is short again.
const CHANCE_MIN: f64 = 0.04;
/// Frames of which one is lost: so few are not by chance, so many may be.
const FRAMES_A_LOSS: [f64; 2] = [30.0, 50.0];
/// More frames without a loss, or more losses in a window, count as so many: one cut says only so much.
const FRAMES_MAX: u32 = 200;
const LOST_MAX: u32 = 4;
/// What DELAY can tell.
const RESOLUTION: Duration = Duration::from_micros(1);
/// A queue as long as this is to be shorter, whoever has filled it.
const QUEUE_MAX: Duration = Duration::from_millis(1);
/// A way over Ethernet is not longer than this: what takes more had a queue before it all the time.
const FLOOR_MAX: Duration = Duration::from_millis(1);

pub(super) struct Cause {
    last: Duration,
    /// Of the longer ones of two round trips in a row: that is what a loss is compared by.
    mean: Duration,
    /// The shortest of all.
    floor: Duration,
    /// Share of losses at long round trips, of so many losses.
    long: f64,
    losses: f64,
    /// Mean of the frames from a cut to the next, and of those that were lost.
    frames: f64,
    lost: f64,
}

impl Cause {
    /// Until more is known, frames are lost because they are too many.
    pub(super) fn new() -> Self {
        Cause {
            last: Duration::ZERO,
            mean: Duration::ZERO,
            floor: FLOOR_MAX,
            long: 1.0,
            losses: LOSSES_ASSUMED,
            frames: FRAMES_A_LOSS[1],
            lost: 1.0,
        }
    }

    /// A round trip was measured.
    pub(super) fn sampled(&mut self, rtt: Duration) {
        self.floor = self.floor.min(rtt);
        let longer = rtt.max(mem::replace(&mut self.last, rtt));
        self.mean = match self.mean {
            Duration::ZERO => longer,
            mean => (mean * (SAMPLES - 1) + longer) / SAMPLES,
        };
    }

    /// The first frame of a window is lost. `beside` is the longer one of the round trips of its neighbours.
    pub(super) fn lost(&mut self, beside: Duration) {
        let long = match beside.abs_diff(self.mean) <= RESOLUTION {
            true => 0.5,
            false => f64::from(u8::from(beside > self.mean)),
        };
        self.losses = (self.losses + 1.0).min(LOSSES);
        self.long += (long - self.long) / self.losses;
    }

    /// A window is cut; so many frames have left since the last time, of which so many were lost.
    pub(super) fn cut(&mut self, frames: u32, lost: u32) {
        let lost = lost.clamp(1, LOST_MAX);
        self.frames += (f64::from(frames.min(lost * FRAMES_MAX)) - self.frames) / LOSSES;
        self.lost += (f64::from(lost) - self.lost) / LOSSES;
    }

    /// What is left of that window, in which no round trip was shorter than `shortest`.
    pub(super) fn share(&self, shortest: Duration) -> f64 {
        let ([clear, over], [few, many]) = (CHANCE_MAX, FRAMES_A_LOSS);
        let chance = ((over - self.long) / (over - clear))
            .min(self.long / CHANCE_MIN)
            .min((self.frames / self.lost - few) / (many - few));
        let share = BETA + (BETA_CHANCE - BETA) * chance.clamp(0.0, 1.0);
        let room = (self.floor + QUEUE_MAX).as_secs_f64() / shortest.as_secs_f64();
        share.min(room).max(BETA)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    /// A queue becomes longer again and again, and each time a frame is lost: in the end, or at any time.
    fn after(is_chance: bool, losses: u64) -> Cause {
        let mut cause = Cause::new();
        for round in 0..losses {
            let lost = if is_chance { round * 7 % 20 } else { 19 };
            for step in 0..20 {
                cause.sampled(us(100 + 2 * step));
                if step == lost {
                    cause.lost(us(100 + 2 * step));
                }
            }
        }
        cause
    }

    #[test]
    fn losses_at_long_round_trips_are_no_chance() {
        for losses in [0, 1, 20, 1000] {
            assert_eq!(after(false, losses).share(us(100)), BETA, "{losses} losses");
        }
        assert!(after(true, 1).share(us(100)) < 0.8);
        assert_eq!(after(true, 60).share(us(100)), BETA_CHANCE);
    }

    #[test]
    fn losses_where_no_queue_is_are_chance() {
        let mut cause = Cause::new();
        for _ in 0..60 {
            cause.sampled(us(100));
            cause.lost(us(100));
        }
        assert_eq!(cause.share(us(100)), BETA_CHANCE);
    }

    #[test]
    fn losses_of_many_frames_are_no_chance_whatever_the_round_trips() {
        let mut cause = after(true, 60);
        (0..200).for_each(|_| cause.cut(25, 1));
        assert_eq!(cause.share(us(100)), BETA);
        (0..100).for_each(|_| cause.cut(150, 4));
        assert!((BETA + 0.05..BETA_CHANCE - 0.05).contains(&cause.share(us(100))));
        (0..100).for_each(|i| cause.cut(if i % 2 == 0 { 40 } else { 120 }, 1));
        assert_eq!(cause.share(us(100)), BETA_CHANCE);
        // A queue that has run over once, by hundreds of frames.
        cause.cut(1000, 300);
        assert_eq!(cause.share(us(100)), BETA_CHANCE);
    }

    #[test]
    fn losses_never_at_long_round_trips_are_none_either() {
        let mut cause = after(true, 100);
        (0..200).for_each(|_| cause.lost(us(50)));
        assert!(cause.share(us(100)) < BETA + 0.02);
    }

    #[test]
    fn a_long_queue_is_shortened_whatever_the_cause() {
        let cause = after(true, 100);
        let shares = [1000, 1250, 1500, 3000].map(|shortest| cause.share(us(shortest)));
        assert_eq!((shares[0], shares[3]), (BETA_CHANCE, BETA));
        assert!(shares.is_sorted_by(|a, b| a >= b) && shares[2] < 0.75, "{shares:?}");
        // Of a way that had a queue from the start.
        let mut late = Cause::new();
        late.sampled(us(2900));
        (0..100).for_each(|i| late.lost(us(2000 + i % 2 * 2000)));
        assert_eq!(late.share(us(2900)), BETA);
    }
}
