//! The congestion window, in frames: slow start, then CUBIC (RFC 9438).

use super::cause::{BETA, LossCause};
use super::numbers::{WINDOW, is_before};
use core::mem;
use core::time::Duration;
use roadtrain_proto::time::Instant;

const INITIAL: f64 = 16.0;
/// Least window after a loss, with and without a queue. Without a queue, congestion is less likely the cause.
const MINIMUM: f64 = 2.0;
const MINIMUM_UNQUEUED: f64 = 8.0;
const MAXIMUM: f64 = WINDOW as f64;
/// Growth, frames per second cubed.
const C: f64 = 0.4;
/// Growth of Reno with the same decrease.
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// Queueing delay that ends slow start, beyond a quarter of the minimum round trip.
const DELAY_MAX: Duration = Duration::from_micros(200);
/// Remaining share below which a cut causes pacing. Losses by chance do not mean that a queue is full.
const PACED_MAX: f64 = 0.85;
/// Losses in one window that exclude chance, if they are more than an eighth of it.
const BUNCH_MIN: u32 = 4;

/// The state that a cut changes.
#[derive(Clone, Copy, Debug)]
struct CubicWindow {
    frames: f64,
    /// End of slow start, in frames.
    threshold: f64,
    /// The window at the last loss.
    plateau: f64,
    /// Window that Reno would have.
    reno: f64,
    /// The window before the last cut.
    before: f64,
    /// Seconds of growth since the last cut, and until the plateau.
    elapsed_s: f64,
    plateau_s: f64,
}

pub(super) struct Cubic {
    window: CubicWindow,
    /// Window before the last cut; it is restored when nothing was lost.
    saved: Option<CubicWindow>,
    /// Losses of numbers before `cut_end` belong to the last cut; `cut_losses` counts them.
    cut_end: u32,
    cut_losses: u32,
    /// Number whose acknowledgement ends the present round trip, its peak of frames in flight, and its shortest time.
    round_end: u32,
    most_in_flight: u32,
    round_rtt: Duration,
    /// Shortest time of the last round trip.
    shortest: Duration,
    cause: LossCause,
    /// True if frames queued in the last round trip.
    is_queue: bool,
    grown_at: Instant,
    cut_at: Option<Instant>,
}

impl Cubic {
    pub(super) fn new(now: Instant, first: u32) -> Self {
        let window = CubicWindow {
            frames: INITIAL,
            threshold: MAXIMUM,
            plateau: INITIAL,
            reno: INITIAL,
            before: INITIAL,
            elapsed_s: 0.0,
            plateau_s: 0.0,
        };
        Cubic {
            window,
            saved: None,
            cut_end: first,
            cut_losses: 0,
            round_end: first,
            most_in_flight: 0,
            round_rtt: Duration::MAX,
            shortest: Duration::ZERO,
            cause: LossCause::new(),
            is_queue: false,
            grown_at: now,
            cut_at: None,
        }
    }

    /// Returns the number of frames that may be in flight.
    pub(super) fn frames(&self) -> u32 {
        self.window.frames as u32
    }

    /// Time of the last cut.
    pub(super) fn cut_at(&self) -> Option<Instant> {
        self.cut_at
    }

    /// Records a sent frame and the number of frames in flight.
    pub(super) fn record_sent(&mut self, in_flight: u32) {
        self.most_in_flight = self.most_in_flight.max(in_flight);
    }

    /// Records a measured round trip.
    pub(super) fn record_rtt(&mut self, rtt: Duration) {
        self.round_rtt = self.round_rtt.min(rtt);
        self.cause.record_rtt(rtt);
    }

    /// Records `frames` acknowledged frames; `highest - 1` is the highest number acknowledged, and `next` is sent
    /// next. Returns the shortest time of the round trip, if this ends one.
    pub(super) fn acknowledged(
        &mut self,
        now: Instant,
        frames: u32,
        (highest, next, in_flight): (u32, u32, u32),
        (smoothed, minimum): (Duration, Duration),
    ) -> Option<Duration> {
        let idle = now.since(self.grown_at);
        self.grown_at = now;
        let is_slow_start = self.window.frames < self.window.threshold;
        let most = f64::from(self.most_in_flight);
        if is_slow_start {
            if most * 2.0 > self.window.frames {
                let grown = self.window.frames + f64::from(frames);
                self.window.frames = grown.min(self.window.threshold).min(MAXIMUM);
            }
        } else if most + 1.0 > self.window.frames.floor() {
            // Time in which the window was no limit does not count.
            let seconds = idle.min(smoothed).as_secs_f64();
            self.window.grow(f64::from(frames), seconds, smoothed.as_secs_f64());
        }
        if !is_before(self.round_end, highest) {
            return None;
        }
        self.round_end = next;
        self.most_in_flight = in_flight;
        let shortest = mem::replace(&mut self.round_rtt, Duration::MAX);
        if shortest == Duration::MAX {
            return None;
        }
        self.shortest = shortest;
        self.is_queue = shortest > minimum + minimum / 4 + DELAY_MAX;
        if is_slow_start && self.is_queue {
            self.window.end_slow_start();
        }
        Some(shortest)
    }

    /// Records the loss of `seq`. `neighbour_rtt` is the longer one of its neighbours' round trips; `next` is sent
    /// next.
    pub(super) fn record_loss(
        &mut self,
        now: Instant,
        (seq, next): (u32, u32),
        neighbour_rtt: Option<Duration>,
    ) {
        if !is_before(seq, self.cut_end) {
            self.begin_cut(now, next, neighbour_rtt);
        }
        self.cut_losses += 1;
        if self.is_bunch() {
            self.window.cut_further(self.least());
            self.cut_at = Some(now);
        }
    }

    fn begin_cut(&mut self, now: Instant, next: u32, neighbour_rtt: Option<Duration>) {
        if let Some(neighbour_rtt) = neighbour_rtt {
            self.cause.record_loss(neighbour_rtt);
        }
        self.cause.record_cut(next.wrapping_sub(self.cut_end), self.cut_losses);
        let share = self.cause.share(self.shortest);
        self.saved = Some(self.window);
        self.window.cut(share, self.least());
        (self.cut_end, self.cut_losses) = (next, 0);
        if share < PACED_MAX {
            self.cut_at = Some(now);
        }
    }

    fn least(&self) -> f64 {
        if self.is_queue { MINIMUM } else { MINIMUM_UNQUEUED }
    }

    /// True if the window of the last cut lost so many frames that a queue must have overflowed.
    fn is_bunch(&self) -> bool {
        self.cut_losses >= BUNCH_MIN && f64::from(self.cut_losses) * 8.0 > self.window.before
    }

    /// Resets the window after repeated timeouts.
    pub(super) fn collapse(&mut self, now: Instant, next: u32) {
        self.saved.get_or_insert(self.window);
        self.window.cut(BETA, MINIMUM);
        self.window.frames = MINIMUM;
        self.cut_end = next;
        self.cut_at = Some(now);
    }

    /// Records that the loss of `seq` is confirmed.
    pub(super) fn confirm_loss(&mut self, seq: u32) {
        if is_before(seq, self.cut_end) {
            self.saved = None;
        }
    }

    /// Restores the window: `seq` was not lost, so the cut had no cause.
    pub(super) fn undo_cut(&mut self, seq: u32) {
        if is_before(seq, self.cut_end)
            && let Some(saved) = self.saved.take()
            && saved.frames > self.window.frames
        {
            self.window = saved;
            self.cut_at = None;
        }
    }
}

impl CubicWindow {
    fn cut(&mut self, share: f64, least: f64) {
        let frames = self.frames;
        // Fast convergence: a sender that is cut below its last plateau leaves bandwidth to others.
        self.plateau = if frames < self.plateau { frames * (1.0 + share) / 2.0 } else { frames };
        self.before = frames;
        self.frames = (frames * share).max(least);
        self.threshold = self.frames;
        self.begin();
    }

    /// Cuts deeper: the last cut was not enough.
    fn cut_further(&mut self, least: f64) {
        let frames = (self.before * BETA).max(least);
        if frames < self.frames {
            (self.frames, self.threshold) = (frames, frames);
            self.begin();
        }
    }

    fn end_slow_start(&mut self) {
        self.threshold = self.frames;
        self.plateau = self.frames;
        self.before = self.frames;
        self.begin();
    }

    /// Restarts growth at the present window.
    fn begin(&mut self) {
        self.reno = self.frames;
        self.elapsed_s = 0.0;
        self.plateau_s = ((self.plateau - self.frames).max(0.0) / C).cbrt();
    }

    fn cubic(&self, seconds: f64) -> f64 {
        C * (seconds - self.plateau_s).powi(3) + self.plateau
    }

    fn grow(&mut self, acknowledged: f64, seconds: f64, rtt_s: f64) {
        self.elapsed_s += seconds;
        let alpha = if self.reno < self.before { ALPHA } else { 1.0 };
        self.reno += alpha * acknowledged / self.frames;
        let target = self.cubic(self.elapsed_s + rtt_s).clamp(self.frames, self.frames * 1.5);
        let grown = if self.cubic(self.elapsed_s) < self.reno {
            self.frames.max(self.reno)
        } else {
            self.frames + (target - self.frames) / self.frames * acknowledged
        };
        self.frames = grown.min(MAXIMUM);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_micros(100);

    /// Runs round trips with a full window each; returns the number that is sent next.
    fn run(cubic: &mut Cubic, from: u32, rounds: u64, rtt: Duration) -> u32 {
        let mut next = from;
        for _ in 0..rounds {
            let frames = cubic.frames();
            cubic.record_sent(frames);
            cubic.record_rtt(rtt);
            let highest = next.wrapping_add(frames);
            let now = Instant(u64::from(highest) * 1000);
            cubic.acknowledged(now, frames, (highest, highest, 0), (rtt, RTT));
            next = highest;
        }
        next
    }

    #[test]
    fn slow_start_doubles_until_frames_queue() {
        let mut cubic = Cubic::new(Instant(0), 0);
        let next = run(&mut cubic, 0, 3, RTT);
        assert_eq!(cubic.frames(), 128);
        let next = run(&mut cubic, next, 2, RTT * 4);
        let frames = cubic.frames();
        run(&mut cubic, next, 4, RTT * 4);
        assert!((frames..frames + 6).contains(&cubic.frames()), "{frames} {}", cubic.frames());
    }

    #[test]
    fn a_loss_cuts_once_in_a_round_trip_and_is_undone_if_it_was_none() {
        let mut cubic = Cubic::new(Instant(0), 0);
        let next = run(&mut cubic, 0, 3, RTT);
        cubic.record_loss(Instant(0), (next - 5, next), None);
        cubic.record_loss(Instant(0), (next - 1, next), None);
        assert_eq!(cubic.frames(), 89);
        cubic.undo_cut(next - 5);
        assert_eq!(cubic.frames(), 128);
        cubic.record_loss(Instant(0), (next, next + 9), None);
        cubic.confirm_loss(next);
        cubic.undo_cut(next + 1);
        assert_eq!(cubic.frames(), 89);
        cubic.collapse(Instant(0), next + 20);
        assert_eq!(cubic.frames(), 2);
    }

    #[test]
    fn what_is_lost_by_chance_costs_little_unless_it_is_much() {
        let mut cubic = Cubic::new(Instant(0), 0);
        let mut next = run(&mut cubic, 0, 3, RTT);
        for _ in 0..100 {
            cubic.record_loss(Instant(0), (next, next + 1), Some(RTT));
            next = run(&mut cubic, next + 1, 8, RTT);
        }
        next = run(&mut cubic, next, 100, RTT);
        let before = cubic.frames();
        let end = next + before;
        (next..next + 3).for_each(|seq| cubic.record_loss(Instant(0), (seq, end), Some(RTT)));
        assert!(cubic.frames() * 100 >= before * 97, "{} of {before}", cubic.frames());
        (next + 3..end).for_each(|seq| cubic.record_loss(Instant(0), (seq, end), Some(RTT)));
        assert_eq!(cubic.frames(), before * 7 / 10);
    }

    #[test]
    fn a_window_that_is_not_used_does_not_grow() {
        let mut cubic = Cubic::new(Instant(0), 0);
        for round in 1..100 {
            cubic.record_sent(4);
            let now = Instant(u64::from(round) * 100_000);
            cubic.acknowledged(now, 4, (round * 4, round * 4, 0), (RTT, RTT));
        }
        assert_eq!(cubic.frames(), 16);
    }
}
