//! Data that identifies its block: every block carries its number, the generation and the seed, from which the rest of
//! it is derived.

use super::rng::mix;
use std::fmt;

/// First word of a block that this program has written.
const MAGIC: u64 = u64::from_le_bytes(*b"roadtrn1");
/// Words of the header: magic, seed, block number, run, generation.
const HEADER_WORDS: usize = 5;
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Author of data: the seed, and a number that no other run has, so that data of an earlier run is not mistaken for
/// this one's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Author {
    /// Seed of `--seed`.
    pub seed: u64,
    /// Number of this run.
    pub run: u64,
}

/// Data that a block must carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExpectedBlock {
    /// Data of this run with that generation.
    Generation(u32),
    /// Data of any run with the same seed; blank blocks were never written.
    Earlier,
    /// Any data; with this program's pattern it must be intact.
    Whatever,
}

/// Result of a check without error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockCheck {
    /// The block was checked.
    Checked,
    /// The block had no pattern to check.
    Unwritten,
}

/// Error of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockError {
    /// The block does not begin with this program's magic.
    Foreign,
    /// The block is all zeroes.
    Blank,
    /// The block was written with another seed.
    Seed(u64),
    /// The block carries the data of another block.
    Misplaced(u64),
    /// The block carries an older write (or another run's).
    Stale {
        /// Generation in the block.
        found: u64,
        /// Generation that was written last.
        expected: u32,
    },
    /// One byte of the block is wrong.
    Corrupt {
        /// Offset of the byte in the block.
        byte: usize,
        /// Right value.
        expected: u8,
        /// Value in the block.
        found: u8,
    },
}

impl fmt::Display for BlockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            BlockError::Foreign => f.write_str(
                "does not carry this program's pattern (write the region with --rw write --verify)",
            ),
            BlockError::Blank => f.write_str("is blank, but was written"),
            BlockError::Seed(seed) => write!(f, "was written with --seed {seed}"),
            BlockError::Misplaced(lba) => write!(f, "carries the data of block {lba}"),
            BlockError::Stale { found, expected } => {
                write!(f, "is stale: carries generation {found} instead of {expected}")
            }
            BlockError::Corrupt { byte, expected, found } => {
                write!(f, "is corrupt: byte {byte} is {found:#04x} instead of {expected:#04x}")
            }
        }
    }
}

/// Writes the data of block `lba` in generation `generation`.
pub(super) fn fill(block: &mut [u8], author: Author, lba: u64, generation: u32) {
    let header = [MAGIC, author.seed, lba, author.run, generation.into()];
    let (words, _) = block.as_chunks_mut::<8>();
    for (word, value) in words.iter_mut().zip(pattern(header)) {
        *word = value.to_le_bytes();
    }
}

/// Checks the data of block `lba`.
///
/// # Errors
/// The error of the block.
pub(super) fn check(
    block: &[u8],
    author: Author,
    lba: u64,
    expected: ExpectedBlock,
) -> Result<BlockCheck, BlockError> {
    let (words, _) = block.as_chunks::<8>();
    let Some(header) = words.first_chunk::<HEADER_WORDS>() else { return Err(BlockError::Foreign) };
    let header = header.map(u64::from_le_bytes);
    let [magic, seed, number, run, generation] = header;
    let is_blank = || block.iter().all(|byte| *byte == 0);
    match expected {
        ExpectedBlock::Generation(expected) => {
            let wanted = [MAGIC, author.seed, lba, author.run, expected.into()];
            match magic {
                _ if header == wanted => compare(words, wanted),
                MAGIC if number != lba => Err(BlockError::Misplaced(number)),
                MAGIC if seed != author.seed => Err(BlockError::Seed(seed)),
                MAGIC if run != author.run || generation < expected.into() => {
                    Err(BlockError::Stale { found: generation, expected })
                }
                0 if is_blank() => Err(BlockError::Blank),
                _ => compare(words, wanted),
            }
        }
        ExpectedBlock::Earlier if magic != MAGIC => {
            if is_blank() {
                Ok(BlockCheck::Unwritten)
            } else {
                Err(BlockError::Foreign)
            }
        }
        ExpectedBlock::Earlier if seed != author.seed => Err(BlockError::Seed(seed)),
        ExpectedBlock::Whatever if magic != MAGIC => Ok(BlockCheck::Unwritten),
        _ if number != lba => Err(BlockError::Misplaced(number)),
        _ => compare(words, header),
    }
}

fn compare(words: &[[u8; 8]], header: [u64; HEADER_WORDS]) -> Result<BlockCheck, BlockError> {
    for (index, (word, value)) in words.iter().zip(pattern(header)).enumerate() {
        let value = value.to_le_bytes();
        if *word != value {
            let at = (0..8).find(|&i| word[i] != value[i]).unwrap_or(0);
            let byte = index * 8 + at;
            return Err(BlockError::Corrupt { byte, expected: value[at], found: word[at] });
        }
    }
    Ok(BlockCheck::Checked)
}

/// Returns the header's words, then an endless sequence derived from them.
fn pattern(header: [u64; HEADER_WORDS]) -> impl Iterator<Item = u64> {
    let mut state = header.iter().fold(0, |key, word| mix(key ^ word).wrapping_add(STEP));
    let rest = std::iter::repeat_with(move || {
        state = state.wrapping_add(STEP);
        (state ^ state >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
    });
    header.into_iter().chain(rest)
}

const BUSY: u32 = 1 << 31;

/// Generation of each slot of a lane, and a mark while a request is in flight there.
#[derive(Debug)]
pub(super) struct Ledger {
    slots: Vec<u32>,
    busy: u64,
}

impl Ledger {
    /// Creates a ledger of slots that are not written.
    #[must_use]
    pub(super) fn new(slots: u64) -> Ledger {
        Ledger { slots: vec![0; slots as usize], busy: 0 }
    }

    /// Takes `slot`, or the next one without a request in flight; `None` if all have one.
    pub(super) fn take(&mut self, slot: u64) -> Option<u64> {
        let count = self.slots.len() as u64;
        if self.busy == count {
            return None;
        }
        let mut slot = slot;
        while self.slots[slot as usize] & BUSY != 0 {
            slot = if slot + 1 == count { 0 } else { slot + 1 };
        }
        self.slots[slot as usize] |= BUSY;
        self.busy += 1;
        Some(slot)
    }

    /// Releases `slot` with the generation that it carries now (0: unknown).
    pub(super) fn release(&mut self, slot: u64, generation: u32) {
        debug_assert!(self.slots[slot as usize] & BUSY != 0, "slot {slot} was not taken");
        self.slots[slot as usize] = generation & !BUSY;
        self.busy -= 1;
    }

    /// Returns the generation of `slot`, 0 if it was not written.
    #[must_use]
    pub(super) fn generation(&self, slot: u64) -> u32 {
        self.slots[slot as usize] & !BUSY
    }

    /// Returns the generation to write next.
    #[must_use]
    pub(super) fn next_generation(&self, slot: u64) -> u32 {
        // Wraps to 1, as 0 means not written.
        ((self.generation(slot) + 1) & !BUSY).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AUTHOR: Author = Author { seed: 7, run: 99 };

    fn block(lba: u64, generation: u32) -> Vec<u8> {
        let mut block = vec![0; 512];
        fill(&mut block, AUTHOR, lba, generation);
        block
    }

    #[test]
    fn good_blocks_pass() {
        for bytes in [512, 4096] {
            let mut block = vec![0; bytes];
            fill(&mut block, AUTHOR, 5, 3);
            for expected in
                [ExpectedBlock::Generation(3), ExpectedBlock::Earlier, ExpectedBlock::Whatever]
            {
                assert_eq!(check(&block, AUTHOR, 5, expected), Ok(BlockCheck::Checked));
            }
        }
    }

    #[test]
    fn every_flipped_bit_is_seen() {
        let good = block(5, 3);
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            check(&bad, AUTHOR, 5, ExpectedBlock::Generation(3)).expect_err(&format!("bit {bit}"));
            check(&bad, AUTHOR, 5, ExpectedBlock::Earlier)
                .expect_err(&format!("bit {bit} of earlier data"));
        }
        let mut bad = good.clone();
        bad[300] ^= 0x40;
        let found = bad[300];
        let wrong = BlockError::Corrupt { byte: 300, expected: good[300], found };
        assert_eq!(check(&bad, AUTHOR, 5, ExpectedBlock::Generation(3)), Err(wrong));
    }

    #[test]
    fn misdirected_stale_and_lost_writes_are_named() {
        let expect = |block: &[u8], expected| check(block, AUTHOR, 5, expected);
        assert_eq!(
            expect(&block(6, 3), ExpectedBlock::Generation(3)),
            Err(BlockError::Misplaced(6))
        );
        let stale = BlockError::Stale { found: 2, expected: 3 };
        assert_eq!(expect(&block(5, 2), ExpectedBlock::Generation(3)), Err(stale));
        assert_eq!(expect(&[0; 512], ExpectedBlock::Generation(3)), Err(BlockError::Blank));
        let mut other_run = vec![0; 512];
        fill(&mut other_run, Author { run: 98, ..AUTHOR }, 5, 3);
        assert!(matches!(
            expect(&other_run, ExpectedBlock::Generation(3)),
            Err(BlockError::Stale { .. })
        ));
        assert_eq!(expect(&other_run, ExpectedBlock::Earlier), Ok(BlockCheck::Checked));
    }

    #[test]
    fn blocks_of_others() {
        let expect = |block: &[u8], expected| check(block, AUTHOR, 5, expected);
        assert_eq!(expect(&[0; 512], ExpectedBlock::Earlier), Ok(BlockCheck::Unwritten));
        assert_eq!(expect(&[1; 512], ExpectedBlock::Earlier), Err(BlockError::Foreign));
        assert_eq!(expect(&[1; 512], ExpectedBlock::Whatever), Ok(BlockCheck::Unwritten));
        assert_eq!(expect(&block(6, 1), ExpectedBlock::Whatever), Err(BlockError::Misplaced(6)));
        let mut other_seed = vec![0; 512];
        fill(&mut other_seed, Author { seed: 8, ..AUTHOR }, 5, 1);
        assert_eq!(expect(&other_seed, ExpectedBlock::Earlier), Err(BlockError::Seed(8)));
    }

    #[test]
    fn a_newer_generation_than_written_is_wrong() {
        check(&block(5, 4), AUTHOR, 5, ExpectedBlock::Generation(3)).expect_err("never written");
    }

    #[test]
    fn ledger_gives_each_slot_once() {
        let mut ledger = Ledger::new(3);
        assert_eq!(ledger.take(2), Some(2));
        assert_eq!(ledger.take(2), Some(0), "wraps past the busy one");
        assert_eq!(ledger.take(2), Some(1));
        assert_eq!(ledger.take(0), None);
        assert_eq!(ledger.next_generation(1), 1);
        ledger.release(1, 1);
        assert_eq!(ledger.take(0), Some(1));
        assert_eq!((ledger.generation(1), ledger.next_generation(1)), (1, 2));
    }
}
