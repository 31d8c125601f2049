//! Sets of SEQ numbers.

/// Most numbers in flight at once.
pub const WINDOW: u32 = 1024;

const WORDS: usize = (WINDOW / 64) as usize;

/// True if number `a` comes before `b`, modulo 2^32.
#[must_use]
pub fn is_before(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() < 0
}

/// A set of numbers that span less than [`WINDOW`]: one bit each, in a ring.
#[derive(Clone, Debug, Default)]
pub(super) struct SeqSet {
    words: [u64; WORDS],
    length: u32,
}

impl SeqSet {
    fn place(seq: u32) -> (usize, u64) {
        let at = seq % WINDOW;
        (at as usize / 64, 1 << (at % 64))
    }

    pub(super) fn len(&self) -> u32 {
        self.length
    }

    pub(super) fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub(super) fn contains(&self, seq: u32) -> bool {
        let (word, bit) = Self::place(seq);
        self.words[word] & bit != 0
    }

    /// Inserts `seq`. Returns true if it was not in the set.
    pub(super) fn insert(&mut self, seq: u32) -> bool {
        let (word, bit) = Self::place(seq);
        let is_new = self.words[word] & bit == 0;
        self.words[word] |= bit;
        if is_new {
            self.length += 1; // branched: see `remove`
        }
        is_new
    }

    /// Removes `seq`. Returns true if it was in the set.
    pub(super) fn remove(&mut self, seq: u32) -> bool {
        let (word, bit) = Self::place(seq);
        let was_in = self.words[word] & bit != 0;
        self.words[word] &= !bit;
        // Not `-= u32::from(was_in)`: with optimization, rustc 1.95 (LLVM 22) loses that in a loop over numbers.
        if was_in {
            self.length -= 1;
        }
        was_in
    }

    pub(super) fn clear(&mut self) {
        *self = SeqSet::default();
    }

    /// Returns the members among the 64 numbers from `seq` on, as bits. All 64 must be within the ring's present
    /// turn.
    pub(super) fn word(&self, seq: u32) -> u64 {
        let at = seq % WINDOW;
        let (word, shift) = (at as usize / 64, at % 64);
        let low = self.words[word] >> shift;
        if shift == 0 { low } else { low | self.words[(word + 1) % WORDS] << (64 - shift) }
    }

    /// Returns the first member from `from` on and before `end`, which is at most one [`WINDOW`] later.
    pub(super) fn first(&self, from: u32, end: u32) -> Option<u32> {
        let mut at = from;
        while !self.is_empty() && is_before(at, end) {
            let word = self.word(at);
            if word != 0 {
                let found = at.wrapping_add(word.trailing_zeros());
                return is_before(found, end).then_some(found);
            }
            at = at.wrapping_add(64);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_modulo_two_to_the_32() {
        assert!(is_before(u32::MAX, 0));
        assert!(!is_before(0, u32::MAX));
        assert!(!is_before(7, 7));
    }

    #[test]
    fn a_word_reaches_over_the_end_of_the_ring() {
        let mut numbers = SeqSet::default();
        let first = 0u32.wrapping_sub(3);
        for seq in [first, 2, 60] {
            assert!(numbers.insert(seq));
        }
        assert!(!numbers.insert(2));
        assert_eq!(numbers.word(first), 1 | 1 << 5 | 1 << 63);
        assert_eq!(numbers.first(first.wrapping_add(1), 100), Some(2));
        assert_eq!(numbers.first(3, 60), None);
        assert!(numbers.remove(60) && !numbers.remove(60));
        assert_eq!(numbers.len(), 2);
    }
}
