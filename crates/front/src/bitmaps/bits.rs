//! A set of bits that grows, for all threads, without a lock.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most words: 256 MiB of memory.
pub(super) const WORDS_MAX: usize = 32 << 20;
/// Chunks: the first one, and one for each doubling of it.
const CHUNKS: usize = 27;

/// Returns the number of words for a disk of `bytes`.
pub(super) fn words(bytes: u64, granularity_shift: u32) -> usize {
    (bytes.div_ceil(1 << granularity_shift).div_ceil(64) as usize).min(WORDS_MAX)
}

/// Bits in chunks; each further chunk is as large as all before it, and is made when it is used first.
pub(super) struct GrowingBits {
    /// Words of the first chunk, a power of two.
    first: usize,
    chunks: [OnceLock<Box<[AtomicU64]>>; CHUNKS],
}

impl fmt::Debug for GrowingBits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrowingBits").field("first", &self.first).finish_non_exhaustive()
    }
}

impl GrowingBits {
    /// Makes an empty set, whose first chunk has `words`.
    pub(super) fn new(words: usize) -> GrowingBits {
        let first = words.clamp(1, WORDS_MAX).next_power_of_two();
        GrowingBits { first, chunks: [const { OnceLock::new() }; CHUNKS] }
    }

    /// Returns the chunk of a word, the chunk's size in words, and the word's place in it.
    fn place(&self, word: usize) -> (usize, usize, usize) {
        if word < self.first {
            return (0, self.first, word);
        }
        let doubling = (word / self.first).ilog2() as usize;
        let size = self.first << doubling;
        (doubling + 1, size, word - size)
    }

    /// Returns a word; 0 if it was never used.
    pub(super) fn word(&self, word: usize) -> u64 {
        let (chunk, _, at) = self.place(word);
        let chunk = self.chunks.get(chunk).and_then(OnceLock::get);
        chunk.map_or(0, |words| words[at].load(Ordering::Acquire))
    }

    /// Adds the bits of `mask` to a word. Words from [`WORDS_MAX`] on are left out.
    pub(super) fn add(&self, word: usize, mask: u64) {
        if mask == 0 || word >= WORDS_MAX {
            return;
        }
        let (chunk, size, at) = self.place(word);
        let Some(chunk) = self.chunks.get(chunk) else { return };
        let words = chunk.get_or_init(|| (0..size).map(|_| AtomicU64::new(0)).collect());
        if words[at].load(Ordering::Acquire) & mask != mask {
            words[at].fetch_or(mask, Ordering::AcqRel);
        }
    }

    /// Removes the bits of `mask` from a word.
    pub(super) fn remove(&self, word: usize, mask: u64) {
        let (chunk, _, at) = self.place(word);
        if let Some(words) = self.chunks.get(chunk).and_then(OnceLock::get) {
            words[at].fetch_and(!mask, Ordering::AcqRel);
        }
    }

    /// Adds the bits from `first` to `last`.
    pub(super) fn add_range(&self, first: u64, last: u64) {
        for word in first / 64..=last / 64 {
            let from = first.max(word * 64) % 64;
            let to = last.min(word * 64 + 63) % 64;
            self.add(word as usize, u64::MAX << from & u64::MAX >> (63 - to));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn ranges_are_in_the_set_whatever_its_first_size_is(
            words in 0usize..5, ranges in prop::collection::vec((0u64..3000, 0u64..300), 0..10),
        ) {
            let (bits, mut model) = (GrowingBits::new(words), BTreeSet::new());
            for (first, more) in ranges {
                bits.add_range(first, first + more);
                model.extend(first..=first + more);
            }
            for bit in 0..4000 {
                let is_set = bits.word((bit / 64) as usize) >> (bit % 64) & 1 == 1;
                prop_assert_eq!(is_set, model.contains(&bit), "bit {}", bit);
            }
        }
    }

    #[test]
    fn the_last_word_has_a_place_and_further_ones_are_left_out() {
        for first in [1, 64, WORDS_MAX] {
            let (chunk, size, at) = GrowingBits::new(first).place(WORDS_MAX - 1);
            assert!(chunk < CHUNKS && at < size, "{first}: {chunk} {size} {at}");
        }
        let bits = GrowingBits::new(1);
        bits.add(WORDS_MAX, 1);
        assert_eq!(bits.word(WORDS_MAX), 0);
    }
}
