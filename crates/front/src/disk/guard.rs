//! Keeps read-modify-write apart from other writes to the same blocks.
//!
//! A write of less than a block reads the block, changes it and writes it back. A write to its other bytes that
//! completes in between would be lost, also if it came over another connection or lane. So the namespace is divided
//! into stripes, each with a count: plain writes share a stripe, a read-modify-write has it alone. No request waits
//! while it holds a stripe, so there is no deadlock; a refused request tries again.

use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes of consecutive blocks that share a guard.
const STRIPE_BYTES: u64 = 1 << 20;
const STRIPES: u64 = 64;

/// Bit: held by a read-modify-write.
const EXCLUSIVE: u32 = 1 << 31;
/// Bit: a read-modify-write waits. It keeps new plain writes out, which would starve it.
const WANTED: u32 = 1 << 30;

/// Bit set of the stripes that a range touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stripes(u64);

/// Mode in which a range is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StripeHold {
    /// Shared with other plain writes.
    Shared,
    /// Exclusive.
    Exclusive,
}

/// A count on a cache line of its own.
#[repr(align(64))]
#[derive(Debug, Default)]
struct StripeCount(AtomicU32);

/// The guards of one disk, shared by its lanes.
#[derive(Debug)]
pub(crate) struct Guards {
    counts: [StripeCount; STRIPES as usize],
    blocks_per_stripe_shift: u32,
}

impl Guards {
    /// Makes guards for blocks of `lba_bytes`, a power of two.
    pub(crate) fn new(lba_bytes: u32) -> Self {
        let shift = STRIPE_BYTES.trailing_zeros().saturating_sub(lba_bytes.trailing_zeros());
        Guards {
            counts: std::array::from_fn(|_| StripeCount::default()),
            blocks_per_stripe_shift: shift,
        }
    }

    /// Returns the stripes of `blocks` (at least one) blocks from `slba`.
    pub(crate) fn stripes(&self, slba: u64, blocks: u32) -> Stripes {
        let first = slba >> self.blocks_per_stripe_shift;
        let last = (slba + u64::from(blocks.max(1)) - 1) >> self.blocks_per_stripe_shift;
        let count = last - first + 1;
        if count >= STRIPES {
            return Stripes(u64::MAX);
        }
        let low = (1u64 << count) - 1;
        Stripes(low.rotate_left((first % STRIPES) as u32))
    }

    /// Takes all `stripes` or none. True if it took them.
    pub(crate) fn try_hold(&self, stripes: Stripes, hold: StripeHold) -> bool {
        let mut rest = stripes.0;
        while rest != 0 {
            let index = rest.trailing_zeros();
            if !self.counts[index as usize].try_hold(hold) {
                let taken = stripes.0 & ((1u64 << index) - 1);
                self.release(Stripes(taken), hold);
                return false;
            }
            rest &= rest - 1;
        }
        true
    }

    /// Gives `stripes` back.
    pub(crate) fn release(&self, stripes: Stripes, hold: StripeHold) {
        let mut rest = stripes.0;
        while rest != 0 {
            self.counts[rest.trailing_zeros() as usize].release(hold);
            rest &= rest - 1;
        }
    }

    /// Withdraws the claim that a refused [`StripeHold::Exclusive`] left behind. Another request that still waits
    /// claims again at its next attempt.
    pub(crate) fn withdraw(&self, stripes: Stripes) {
        let mut rest = stripes.0;
        while rest != 0 {
            self.counts[rest.trailing_zeros() as usize].0.fetch_and(!WANTED, Ordering::Relaxed);
            rest &= rest - 1;
        }
    }
}

impl StripeCount {
    fn try_hold(&self, hold: StripeHold) -> bool {
        let count = &self.0;
        match hold {
            StripeHold::Shared => {
                // Acquire: the writes of the previous holder happened before our own write.
                if count.fetch_add(1, Ordering::Acquire) & (EXCLUSIVE | WANTED) == 0 {
                    return true;
                }
                count.fetch_sub(1, Ordering::Relaxed);
                false
            }
            StripeHold::Exclusive => {
                let free = |now: u32| (now & !WANTED == 0).then_some(EXCLUSIVE);
                if count.fetch_update(Ordering::Acquire, Ordering::Relaxed, free).is_ok() {
                    return true;
                }
                count.fetch_or(WANTED, Ordering::Relaxed);
                false
            }
        }
    }

    fn release(&self, hold: StripeHold) {
        match hold {
            StripeHold::Shared => self.0.fetch_sub(1, Ordering::Release),
            StripeHold::Exclusive => self.0.fetch_and(!EXCLUSIVE, Ordering::Release),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stripes_follow_the_blocks() {
        let guards = Guards::new(512);
        assert_eq!(guards.stripes(0, 1), Stripes(1));
        assert_eq!(guards.stripes(2047, 1), Stripes(1));
        assert_eq!(guards.stripes(2047, 2), Stripes(3));
        assert_eq!(guards.stripes(63 * 2048, 4096), Stripes(1 << 63 | 1));
        assert_eq!(guards.stripes(0, 64 * 2048), Stripes(u64::MAX));
        assert_eq!(guards.stripes(5, u32::MAX), Stripes(u64::MAX));
        assert_eq!(Guards::new(4096).stripes(256, 1), Stripes(2));
        assert_eq!(Guards::new(4 << 20).stripes(1, 1), Stripes(2));
    }

    #[test]
    fn plain_writes_share_and_changes_are_alone() {
        let guards = Guards::new(512);
        let both = guards.stripes(2047, 2);
        let first = guards.stripes(0, 1);
        assert!(guards.try_hold(both, StripeHold::Shared));
        assert!(guards.try_hold(first, StripeHold::Shared));
        assert!(!guards.try_hold(first, StripeHold::Exclusive));
        // The claim keeps new sharers out until it is served.
        assert!(!guards.try_hold(first, StripeHold::Shared));
        guards.release(first, StripeHold::Shared);
        guards.release(both, StripeHold::Shared);
        assert!(guards.try_hold(first, StripeHold::Exclusive));
        assert!(!guards.try_hold(both, StripeHold::Shared));
        guards.release(first, StripeHold::Exclusive);
        assert!(guards.try_hold(both, StripeHold::Shared), "the refused hold left nothing behind");
    }

    #[test]
    fn a_withdrawn_claim_blocks_no_request() {
        let guards = Guards::new(512);
        let first = guards.stripes(0, 1);
        assert!(guards.try_hold(first, StripeHold::Shared));
        assert!(!guards.try_hold(first, StripeHold::Exclusive));
        guards.withdraw(first);
        assert!(guards.try_hold(first, StripeHold::Shared));
    }

    #[test]
    fn threads_never_overlap_while_one_is_alone() {
        use std::sync::atomic::AtomicBool;
        let guards = Guards::new(512);
        let (alone, sharers) = (AtomicBool::new(false), AtomicU32::new(0));
        let stripes = guards.stripes(0, 1);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        while !guards.try_hold(stripes, StripeHold::Exclusive) {
                            std::thread::yield_now();
                        }
                        assert!(!alone.swap(true, Ordering::SeqCst));
                        assert_eq!(sharers.load(Ordering::SeqCst), 0);
                        alone.store(false, Ordering::SeqCst);
                        guards.release(stripes, StripeHold::Exclusive);
                    }
                });
                scope.spawn(|| {
                    for _ in 0..200 {
                        while !guards.try_hold(stripes, StripeHold::Shared) {
                            std::thread::yield_now();
                        }
                        sharers.fetch_add(1, Ordering::SeqCst);
                        assert!(!alone.load(Ordering::SeqCst));
                        sharers.fetch_sub(1, Ordering::SeqCst);
                        guards.release(stripes, StripeHold::Shared);
                    }
                });
            }
        });
    }
}
