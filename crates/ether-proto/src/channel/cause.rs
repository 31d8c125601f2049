//! The cause of frame loss: a full queue on the path, or chance.
//!
//! A queue overflows when it is longest, so the frames that it drops have longer round trips than most. A bad cable
//! or interface loses frames at long and at short round trips alike. This needs no knowledge of the path's length or
//! of other traffic, and holds for queues that other senders fill.
//!
//! A queue of a few frames is nearly full all the time, so its round trips carry no information. But small cuts of
//! the window grow back soon and lose again, about one frame in ten, while chance is independent of the amount sent.
//! Losses as frequent as that therefore count as congestion, whatever the round trips are.

use core::mem;
use core::time::Duration;

/// Share of the window that remains after a loss by congestion.
pub(super) const BETA: f64 = 0.7;
/// Share of the window that remains after a loss by chance: a small cut, but still a cut.
pub(super) const BETA_CHANCE: f64 = 0.98;
/// Number of round trips that the mean covers.
const SAMPLES: u32 = 64;
/// Number of losses that the share of losses at long round trips covers, and the number assumed at first.
const LOSSES: f64 = 32.0;
const LOSSES_ASSUMED: f64 = 4.0;
/// Shares of losses at long round trips: up to the first, chance is certain; from the second on, it is excluded.
const CHANCE_MAX: [f64; 2] = [0.65, 0.85];
/// Lowest share that chance explains. A lower one has a cause, too: bursts of frames measure the queue when it is
/// short again.
const CHANCE_MIN: f64 = 0.04;
/// Frames for each lost one: at the first number chance is excluded, from the second on it is possible.
const FRAMES_A_LOSS: [f64; 2] = [30.0, 50.0];
/// Limits of the frames without a loss and of the losses in a window, so that no single cut dominates the means.
const FRAMES_MAX: u32 = 200;
const LOST_MAX: u32 = 4;
/// Resolution of DELAY.
const RESOLUTION: Duration = Duration::from_micros(1);
/// Queueing delay above which the window shrinks, whatever sender fills the queue.
const QUEUE_MAX: Duration = Duration::from_millis(1);
/// Longest path over Ethernet. A longer minimum contains a queue that was there all the time.
const FLOOR_MAX: Duration = Duration::from_millis(1);

pub(super) struct LossCause {
    last: Duration,
    /// Mean of the longer one of each two consecutive round trips; a loss is compared with it.
    mean: Duration,
    /// Shortest round trip so far.
    floor: Duration,
    /// Share of losses at long round trips, and the number of losses that it covers.
    long: f64,
    losses: f64,
    /// Mean number of frames between two cuts, and of lost frames among them.
    frames: f64,
    lost: f64,
}

impl LossCause {
    /// Until more is known, congestion is the assumed cause.
    pub(super) fn new() -> Self {
        LossCause {
            last: Duration::ZERO,
            mean: Duration::ZERO,
            floor: FLOOR_MAX,
            long: 1.0,
            losses: LOSSES_ASSUMED,
            frames: FRAMES_A_LOSS[1],
            lost: 1.0,
        }
    }

    /// Records a measured round trip.
    pub(super) fn record_rtt(&mut self, rtt: Duration) {
        self.floor = self.floor.min(rtt);
        let longer = rtt.max(mem::replace(&mut self.last, rtt));
        self.mean = match self.mean {
            Duration::ZERO => longer,
            mean => (mean * (SAMPLES - 1) + longer) / SAMPLES,
        };
    }

    /// Records the loss of a window's first frame. `neighbour_rtt` is the longer one of its neighbours' round trips.
    pub(super) fn record_loss(&mut self, neighbour_rtt: Duration) {
        let long = match neighbour_rtt.abs_diff(self.mean) <= RESOLUTION {
            true => 0.5,
            false => f64::from(u8::from(neighbour_rtt > self.mean)),
        };
        self.losses = (self.losses + 1.0).min(LOSSES);
        self.long += (long - self.long) / self.losses;
    }

    /// Records a cut of the window: the frames sent since the last cut, and the lost ones among them.
    pub(super) fn record_cut(&mut self, frames: u32, lost: u32) {
        let lost = lost.clamp(1, LOST_MAX);
        self.frames += (f64::from(frames.min(lost * FRAMES_MAX)) - self.frames) / LOSSES;
        self.lost += (f64::from(lost) - self.lost) / LOSSES;
    }

    /// Returns the share of the window that remains after a loss. `shortest` is its shortest round trip.
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

    /// Returns a cause after repeated growth of a queue, each time with one lost frame: the last one, or any.
    fn after(is_chance: bool, losses: u64) -> LossCause {
        let mut cause = LossCause::new();
        for round in 0..losses {
            let lost = if is_chance { round * 7 % 20 } else { 19 };
            for step in 0..20 {
                cause.record_rtt(us(100 + 2 * step));
                if step == lost {
                    cause.record_loss(us(100 + 2 * step));
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
        let mut cause = LossCause::new();
        for _ in 0..60 {
            cause.record_rtt(us(100));
            cause.record_loss(us(100));
        }
        assert_eq!(cause.share(us(100)), BETA_CHANCE);
    }

    #[test]
    fn losses_of_many_frames_are_no_chance_whatever_the_round_trips() {
        let mut cause = after(true, 60);
        (0..200).for_each(|_| cause.record_cut(25, 1));
        assert_eq!(cause.share(us(100)), BETA);
        (0..100).for_each(|_| cause.record_cut(150, 4));
        assert!((BETA + 0.05..BETA_CHANCE - 0.05).contains(&cause.share(us(100))));
        (0..100).for_each(|i| cause.record_cut(if i % 2 == 0 { 40 } else { 120 }, 1));
        assert_eq!(cause.share(us(100)), BETA_CHANCE);
        // A queue that overflowed once, by hundreds of frames.
        cause.record_cut(1000, 300);
        assert_eq!(cause.share(us(100)), BETA_CHANCE);
    }

    #[test]
    fn losses_never_at_long_round_trips_are_none_either() {
        let mut cause = after(true, 100);
        (0..200).for_each(|_| cause.record_loss(us(50)));
        assert!(cause.share(us(100)) < BETA + 0.02);
    }

    #[test]
    fn a_long_queue_is_shortened_whatever_the_cause() {
        let cause = after(true, 100);
        let shares = [1000, 1250, 1500, 3000].map(|shortest| cause.share(us(shortest)));
        assert_eq!((shares[0], shares[3]), (BETA_CHANCE, BETA));
        assert!(shares.is_sorted_by(|a, b| a >= b) && shares[2] < 0.75, "{shares:?}");
        // A path that had a queue from the start.
        let mut late = LossCause::new();
        late.record_rtt(us(2900));
        (0..100).for_each(|i| late.record_loss(us(2000 + i % 2 * 2000)));
        assert_eq!(late.share(us(2900)), BETA);
    }
}
