//! One way of an impaired link: decides what becomes of a frame, and keeps it until it is due.

use super::Impairment;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

/// Most frames in flight: frames that arrive beyond that are lost.
const FRAMES_MAX: usize = 1 << 14;

/// Treated frames, by treatment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) passed: u64,
    pub(super) lost: u64,
    pub(super) duplicated: u64,
    pub(super) corrupted: u64,
    pub(super) truncated: u64,
    pub(super) reordered: u64,
}

/// Frames in flight.
#[derive(Debug)]
pub(super) struct ImpairedLine {
    impairment: Impairment,
    random: u64,
    /// When due, in which order it came, and what.
    frames: BinaryHeap<Reverse<(Instant, u64, Vec<u8>)>>,
    arrivals: u64,
    pub(super) counts: Counts,
}

impl ImpairedLine {
    pub(super) fn new(impairment: Impairment, seed: u64) -> Self {
        Self {
            impairment,
            random: seed | 1,
            frames: BinaryHeap::new(),
            arrivals: 0,
            counts: Counts::default(),
        }
    }

    /// Takes a frame, of which the first `kept` bytes are never damaged.
    pub(super) fn put(&mut self, now: Instant, frame: &[u8], kept: usize) {
        if self.chance(self.impairment.loss) || self.frames.len() >= FRAMES_MAX {
            self.counts.lost += 1;
            return;
        }
        let mut frame = frame.to_vec();
        if self.chance(self.impairment.corrupt) && frame.len() > kept {
            let bit = self.next() as usize % ((frame.len() - kept) * 8);
            frame[kept + bit / 8] ^= 1 << (bit % 8);
            self.counts.corrupted += 1;
        }
        if self.chance(self.impairment.truncate) && frame.len() > kept {
            frame.truncate(kept + self.next() as usize % (frame.len() - kept));
            self.counts.truncated += 1;
        }
        let mut due = now + Duration::from_micros(self.impairment.delay_us);
        if self.chance(self.impairment.reorder) {
            due += Duration::from_micros(self.impairment.held_us);
            self.counts.reordered += 1;
        }
        if self.chance(self.impairment.duplicate) {
            self.counts.duplicated += 1;
            self.push(due, frame.clone());
        }
        self.push(due, frame);
    }

    /// The next frame that is due.
    pub(super) fn take(&mut self, now: Instant) -> Option<Vec<u8>> {
        if self.due()? > now {
            return None;
        }
        self.counts.passed += 1;
        self.frames.pop().map(|Reverse((_, _, frame))| frame)
    }

    /// When there is one.
    pub(super) fn due(&self) -> Option<Instant> {
        self.frames.peek().map(|Reverse((due, ..))| *due)
    }

    fn push(&mut self, due: Instant, frame: Vec<u8>) {
        self.arrivals += 1;
        self.frames.push(Reverse((due, self.arrivals, frame)));
    }

    fn chance(&mut self, percent: f64) -> bool {
        percent > 0.0 && f64::from(self.next()) < percent / 100.0 * 2f64.powi(32)
    }

    /// xorshift64*: 32 bits.
    fn next(&mut self) -> u32 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(impairment: Impairment) -> (Vec<Vec<u8>>, Counts) {
        let now = Instant::now();
        let mut line = ImpairedLine::new(impairment, 7);
        for n in 0..1000u32 {
            let frame: Vec<u8> = n.to_le_bytes().repeat(10);
            line.put(now + Duration::from_micros(u64::from(n)), &frame, 12);
        }
        let end = now + Duration::from_secs(1);
        let frames = std::iter::from_fn(|| line.take(end)).collect();
        (frames, line.counts)
    }

    #[test]
    fn a_good_line_changes_nothing() {
        let (frames, counts) = passed(Impairment::NONE);
        assert_eq!(counts, Counts { passed: 1000, ..Counts::default() });
        let in_order = frames.iter().zip(0u32..).all(|(f, n)| *f == n.to_le_bytes().repeat(10));
        assert!(in_order);
    }

    #[test]
    fn losses_and_doubles_are_as_many_as_configured() {
        let (frames, counts) =
            passed(Impairment { loss: 20.0, duplicate: 10.0, ..Impairment::NONE });
        assert!((150..250).contains(&counts.lost), "{counts:?}");
        assert!((50..110).contains(&counts.duplicated), "{counts:?}");
        assert_eq!(frames.len() as u64, 1000 - counts.lost + counts.duplicated);
    }

    #[test]
    fn damage_spares_the_ethernet_header() {
        let (frames, counts) =
            passed(Impairment { corrupt: 50.0, truncate: 10.0, ..Impairment::NONE });
        let whole = |n: u32| n.to_le_bytes().repeat(10);
        let damaged = frames.iter().zip(0..).filter(|(f, n)| **f != whole(*n)).count() as u64;
        assert!(frames.iter().zip(0..).all(|(f, n)| f.len() >= 12 && f[..12] == whole(n)[..12]));
        assert!(damaged >= counts.corrupted.max(counts.truncated), "{damaged} {counts:?}");
        assert!(counts.corrupted > 400 && counts.truncated > 50, "{counts:?}");
    }

    #[test]
    fn held_frames_are_overtaken_and_late_ones_wait() {
        let impairment = Impairment { reorder: 5.0, held_us: 50, delay_us: 10, ..Impairment::NONE };
        let (frames, counts) = passed(impairment);
        let numbers: Vec<u32> = frames
            .iter()
            .map(|f| u32::from_le_bytes(f[..4].try_into().expect("four bytes")))
            .collect();
        assert!(!numbers.is_sorted() && numbers.len() == 1000);
        assert!((20..90).contains(&counts.reordered), "{counts:?}");
        let now = Instant::now();
        let mut line = ImpairedLine::new(impairment, 1);
        line.put(now, &[0; 20], 12);
        assert_eq!(line.take(now), None);
        assert!(line.due().expect("one is under way") >= now + Duration::from_micros(10));
    }
}
