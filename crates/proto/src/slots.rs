//! Free slots of a queue pair: the lowest is taken first.
//!
//! So the slots in use stay few, and warm in the cache. The highest command identifier shows the target how many
//! commands this host has in flight, which its policy uses.

/// Maximum slots of a queue pair: the slot number is the low bits of the command identifier.
pub const SLOTS_MAX: u16 = 1 << SLOT_BITS;
pub const SLOT_BITS: u32 = 10;
/// Modulus of the count of a slot's uses, in the bits above.
pub const GENERATIONS: u8 = 1 << (16 - SLOT_BITS);

const WORDS: usize = SLOTS_MAX as usize / 64;

/// Free slots among those that were ever used.
#[derive(Clone, Copy, Debug, Default)]
pub struct FreeSlots {
    words: [u64; WORDS],
    count: usize,
}

impl FreeSlots {
    /// Takes the lowest free slot.
    #[inline]
    pub fn take(&mut self) -> Option<u16> {
        if self.count == 0 {
            return None;
        }
        let index = self.words.iter().position(|&word| word != 0)?;
        let bit = self.words[index].trailing_zeros();
        self.words[index] &= self.words[index] - 1;
        self.count -= 1;
        Some((index * 64) as u16 + bit as u16)
    }

    /// Returns a slot to the free ones.
    #[inline]
    pub fn give(&mut self, slot: u16) {
        let (word, bit) = (&mut self.words[usize::from(slot / 64)], 1 << (slot % 64));
        debug_assert!(*word & bit == 0, "a slot is freed once");
        *word |= bit;
        self.count += 1;
    }

    /// Number of free slots.
    #[inline]
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_goes_first() {
        let mut free = FreeSlots::default();
        assert_eq!(free.take(), None);
        for slot in [700, 3, SLOTS_MAX - 1, 64, 63] {
            free.give(slot);
        }
        let taken: Vec<u16> = std::iter::from_fn(|| free.take()).collect();
        assert_eq!(taken, [3, 63, 64, 700, SLOTS_MAX - 1]);
        assert_eq!(free.count(), 0);
    }
}
