//! Sequence of blocks to read and write.

use super::rng::{SplitMix, scale};
use crate::args::ReadWrite;

/// One request, in slots: pieces of the region as long as a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PickedRequest {
    /// True to read, false to write.
    pub is_read: bool,
    /// Slot, counted from the lane's first.
    pub slot: u64,
}

/// An endless sequence of requests over `slots` slots.
#[derive(Clone, Debug)]
pub(super) struct RequestSequence {
    rng: SplitMix,
    slots: u64,
    /// Reads in 2^32 requests.
    read_share: u64,
    sequential: bool,
    cursor: u64,
}

impl ReadWrite {
    /// Returns the reads in 100 requests; `mix` for mixed loads.
    #[must_use]
    pub fn read_percent(self, mix: u8) -> u8 {
        match self {
            ReadWrite::Read | ReadWrite::Randread => 100,
            ReadWrite::Write | ReadWrite::Randwrite => 0,
            ReadWrite::Rw | ReadWrite::Randrw => mix,
        }
    }

    /// True for requests in order, not at random.
    #[must_use]
    pub fn is_sequential(self) -> bool {
        matches!(self, ReadWrite::Read | ReadWrite::Write | ReadWrite::Rw)
    }
}

impl RequestSequence {
    /// Creates the sequence of a lane; `slots` is not 0.
    #[must_use]
    pub(super) fn new(rw: ReadWrite, mix: u8, slots: u64, seed: u64, lane: u64) -> RequestSequence {
        assert!(slots > 0, "a workload needs a slot");
        RequestSequence {
            rng: SplitMix::new(seed, lane),
            slots,
            read_share: (u64::from(rw.read_percent(mix)) << 32) / 100,
            sequential: rw.is_sequential(),
            cursor: 0,
        }
    }

    /// Returns the next request.
    #[inline]
    pub(super) fn next(&mut self) -> PickedRequest {
        let bits = self.rng.next();
        // The slot comes from the high bits, the direction from the low ones.
        let is_read = (bits & 0xffff_ffff) < self.read_share;
        let slot = if self.sequential { self.step() } else { scale(bits, self.slots) };
        PickedRequest { is_read, slot }
    }

    fn step(&mut self) -> u64 {
        let slot = self.cursor;
        self.cursor = if slot + 1 == self.slots { 0 } else { slot + 1 };
        slot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(rw: ReadWrite, mix: u8, slots: u64, n: usize) -> Vec<PickedRequest> {
        let mut workload = RequestSequence::new(rw, mix, slots, 1, 0);
        (0..n).map(|_| workload.next()).collect()
    }

    #[test]
    fn sequential_goes_round() {
        let slots: Vec<u64> = draw(ReadWrite::Write, 0, 3, 7).iter().map(|p| p.slot).collect();
        assert_eq!(slots, [0, 1, 2, 0, 1, 2, 0]);
    }

    #[test]
    fn random_is_in_bounds_and_even() {
        let picks = draw(ReadWrite::Randread, 0, 64, 64_000);
        let mut counts = [0u32; 64];
        picks.iter().for_each(|p| counts[p.slot as usize] += 1);
        assert!(counts.iter().all(|c| (800..1200).contains(c)), "{counts:?}");
    }

    #[test]
    fn directions_follow_the_mix() {
        let reads = |rw, mix| draw(rw, mix, 10, 10_000).iter().filter(|p| p.is_read).count();
        assert_eq!(reads(ReadWrite::Randread, 50), 10_000);
        assert_eq!(reads(ReadWrite::Randwrite, 50), 0);
        assert_eq!(reads(ReadWrite::Randrw, 0), 0);
        assert_eq!(reads(ReadWrite::Randrw, 100), 10_000);
        assert!((6_800..7_200).contains(&reads(ReadWrite::Rw, 70)));
    }

    #[test]
    fn direction_does_not_depend_on_the_place() {
        let picks = draw(ReadWrite::Randrw, 50, 2, 20_000);
        let low = picks.iter().filter(|p| p.slot == 0);
        let reads = low.clone().filter(|p| p.is_read).count() as f64 / low.count() as f64;
        assert!((0.47..0.53).contains(&reads), "{reads}");
    }

    #[test]
    fn lanes_differ() {
        let mut a = RequestSequence::new(ReadWrite::Randread, 0, 1 << 40, 1, 0);
        let mut b = RequestSequence::new(ReadWrite::Randread, 0, 1 << 40, 1, 1);
        assert!((0..10).any(|_| a.next() != b.next()));
    }
}
