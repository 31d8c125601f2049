//! The receiving side: the numbers that have arrived, and the acknowledgements that are due.

use super::numbers::{SeqSet, WINDOW, is_before};
use core::time::Duration;
use roadtrain_proto::time::Instant;

/// Frames after which an acknowledgement is due at once.
const FRAMES_MAX: u32 = 16;
/// Longest time that an acknowledgement waits for a frame to travel with.
const WAIT_MAX: Duration = Duration::from_micros(100);
/// Largest advance of BASE that a peer can make. While other links keep its lane alive, the peer probes a failed link
/// ten times a second. Each probe takes a number, so this is three years of probes.
const SKIP_MAX: u32 = 1 << 30;

/// Classification of a received frame's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameArrival {
    /// The frame has no number; its acknowledgement has been processed.
    Unnumbered,
    /// The number is new: the body is to be processed.
    New,
    /// The number has arrived before, or is no longer expected: the body is to be dropped.
    Duplicate,
    /// The number is beyond the window: the body is to be dropped.
    Beyond,
    /// The BASE is impossible: the frame is to be dropped.
    Absurd,
    /// The frame belongs to another lane: it is to be dropped.
    Foreign,
}

pub(super) struct Receiver {
    /// First number that is still expected: all before have arrived or are abandoned.
    ack: u32,
    /// Numbers after `ack` that have arrived.
    arrived: SeqSet,
    /// Number after the highest that has arrived.
    end: u32,
    /// Arrival time of the highest number.
    end_at: Instant,
    /// Numbers from `ack` on that there is room for.
    credits: u16,
    /// Frames that have arrived since the last acknowledgement.
    unacked: u32,
    /// Latest time of the next acknowledgement.
    due_at: Option<Instant>,
}

impl Receiver {
    pub(super) fn new(now: Instant, first: u32) -> Self {
        Receiver {
            ack: first,
            arrived: SeqSet::default(),
            end: first,
            end_at: now,
            credits: WINDOW as u16,
            unacked: 0,
            due_at: None,
        }
    }

    /// Forgets all arrivals; `base` is the peer's BASE, the first number that it still waits for.
    pub(super) fn restart(&mut self, now: Instant, base: u32) {
        *self = Receiver { credits: self.credits, ..Receiver::new(now, base) };
    }

    pub(super) fn set_credits(&mut self, now: Instant, credits: u16) {
        if self.credits == 0 && credits > 0 {
            self.due_at = Some(now);
        }
        self.credits = credits.min(WINDOW as u16);
    }

    /// Applies the peer's BASE. Returns false if it is impossible.
    pub(super) fn settle(&mut self, base: u32) -> bool {
        let ahead = base.wrapping_sub(self.ack);
        if !is_before(self.ack, base) {
            return true;
        }
        if ahead >= SKIP_MAX {
            return false;
        }
        if ahead >= WINDOW {
            self.arrived.clear();
            self.ack = base;
        } else {
            while self.ack != base {
                self.arrived.remove(self.ack);
                self.ack = self.ack.wrapping_add(1);
            }
        }
        self.advance();
        true
    }

    /// True if `seq` has arrived, or is no longer expected.
    pub(super) fn has_arrived(&self, seq: u32) -> bool {
        let ahead = seq.wrapping_sub(self.ack);
        is_before(seq, self.ack) || (ahead < WINDOW && self.arrived.contains(seq))
    }

    /// Records the arrival of number `seq`.
    pub(super) fn arrive(&mut self, now: Instant, seq: u32) -> FrameArrival {
        if self.has_arrived(seq) {
            // The peer may have missed the acknowledgement.
            self.due_at = Some(now);
            return FrameArrival::Duplicate;
        }
        if seq.wrapping_sub(self.ack) >= WINDOW {
            return FrameArrival::Beyond;
        }
        self.arrived.insert(seq);
        if !is_before(seq, self.end) {
            self.end = seq.wrapping_add(1);
            self.end_at = now;
        }
        self.advance();
        self.unacked += 1;
        let is_urgent = self.unacked >= FRAMES_MAX || !self.arrived.is_empty();
        let due_at = if is_urgent { now } else { now + WAIT_MAX };
        self.due_at = Some(self.due_at.map_or(due_at, |at| at.min(due_at)));
        FrameArrival::New
    }

    fn advance(&mut self) {
        while self.arrived.remove(self.ack) {
            self.ack = self.ack.wrapping_add(1);
        }
        if is_before(self.end, self.ack) {
            self.end = self.ack;
        }
    }

    /// Makes an acknowledgement due at once: the peer requested one.
    pub(super) fn make_due(&mut self, now: Instant) {
        self.due_at = Some(now);
    }

    pub(super) fn due_at(&self) -> Option<Instant> {
        self.due_at
    }

    /// Marks the acknowledgement as sent. It stays due if it needs further SACK words and does not carry them.
    pub(super) fn mark_sent(&mut self, has_words: bool) {
        if has_words || self.further_words() == 0 {
            self.unacked = 0;
            self.due_at = None;
        }
    }

    pub(super) fn ack(&self) -> u32 {
        self.ack
    }

    pub(super) fn credits(&self) -> u16 {
        self.credits
    }

    /// Returns the time since the highest number arrived; the maximum if a header without further words does not
    /// cover it.
    pub(super) fn delay_us(&self, now: Instant, has_words: bool) -> u16 {
        if !has_words && self.further_words() > 0 {
            return u16::MAX;
        }
        now.since(self.end_at).as_micros().min(u128::from(u16::MAX)) as u16
    }

    /// Returns SACK word `index`; the header's is 0.
    pub(super) fn sack(&self, index: u32) -> u64 {
        // The last number of the last word is a whole window after ACK. It shares ACK's bit, which is never set.
        self.arrived.word(self.ack.wrapping_add(1 + 64 * index))
    }

    /// Number of SACK words after the header's that are not empty.
    pub(super) fn further_words(&self) -> u32 {
        self.end.wrapping_sub(self.ack).saturating_sub(65).div_ceil(64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Instant {
        Instant(us * 1000)
    }

    #[test]
    fn delay_counts_from_the_highest_arrival_if_the_header_reaches_it() {
        let mut receiver = Receiver::new(at(0), 5);
        for (us, seq) in [(10, 5), (20, 7), (30, 6)] {
            assert_eq!(receiver.arrive(at(us), seq), FrameArrival::New);
        }
        assert_eq!((receiver.ack(), receiver.delay_us(at(50), false)), (8, 30));
        receiver.arrive(at(60), 8 + 64);
        assert_eq!(receiver.delay_us(at(61), false), 1);
        receiver.arrive(at(70), 8 + 65);
        assert_eq!(receiver.delay_us(at(71), false), u16::MAX);
        assert_eq!((receiver.delay_us(at(71), true), receiver.further_words()), (1, 1));
    }

    #[test]
    fn acknowledgements_wait_only_while_nothing_is_missing() {
        let mut receiver = Receiver::new(at(0), 0);
        receiver.arrive(at(0), 0);
        assert_eq!(receiver.due_at(), Some(at(100)));
        receiver.arrive(at(5), 2);
        assert_eq!(receiver.due_at(), Some(at(5)));
        receiver.mark_sent(false);
        assert_eq!(receiver.due_at(), None);
        receiver.arrive(at(7), 1);
        assert_eq!(receiver.due_at(), Some(at(107)));
        (3..18).for_each(|seq| _ = receiver.arrive(at(8), seq));
        assert_eq!(receiver.due_at(), Some(at(8)));
    }

    #[test]
    fn base_passes_what_is_missing_and_what_has_arrived_behind_it() {
        let mut receiver = Receiver::new(at(0), 0);
        (3..6).for_each(|seq| _ = receiver.arrive(at(0), seq));
        assert!(receiver.settle(3) && receiver.ack() == 6);
        assert!(receiver.settle(2) && receiver.ack() == 6);
        assert_eq!(receiver.arrive(at(0), 1), FrameArrival::Duplicate);
        assert!(receiver.settle(5000) && receiver.ack() == 5000);
        assert!(!receiver.settle(5000 + SKIP_MAX) && receiver.ack() == 5000);
        assert_eq!(receiver.arrive(at(0), 5000 + WINDOW), FrameArrival::Beyond);
    }

    /// The peer has probed ten times a second whether the link works again, and no probe has arrived.
    #[test]
    fn a_link_comes_back_that_was_cut_for_a_week() {
        let mut receiver = Receiver::new(at(0), u32::MAX - 3);
        let base = 7 * 24 * 3600 * 10;
        assert!(receiver.settle(base));
        assert_eq!(receiver.arrive(at(0), base), FrameArrival::New);
    }
}
