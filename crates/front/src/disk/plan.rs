//! Cuts a range of bytes into requests of whole blocks.

/// Treatment of a range that does not begin or end at a block's border.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edges {
    /// Take the whole blocks and use a part of them (Read).
    Widen,
    /// Change a part of a block by read-modify-write, one block at a time (Write, Write Zeroes).
    Patch,
    /// Leave blocks alone that are not wholly covered (Trim, a hint).
    Shrink,
}

/// One request's share of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockPiece {
    /// First block.
    pub(crate) slba: u64,
    /// Number of blocks, at least one.
    pub(crate) blocks: u32,
    /// Start of the share, in bytes from the first block's start.
    pub(crate) start: u32,
    /// Bytes of the share.
    pub(crate) len: u32,
    /// True if the share is less than the blocks, which must be read first.
    pub(crate) patch: bool,
}

/// The pieces of a range, in order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockPlan {
    at: u64,
    end: u64,
    lba_bytes: u64,
    blocks_max: u32,
    edges: Edges,
}

impl BlockPlan {
    /// Cuts the range of `length` bytes from `offset`, which ends within 64 bits. Blocks have `lba_bytes` (a power of
    /// two); a piece has at most `blocks_max` of them (at least one).
    pub(crate) fn new(
        offset: u64,
        length: u32,
        lba_bytes: u32,
        blocks_max: u32,
        edges: Edges,
    ) -> Self {
        debug_assert!(lba_bytes.is_power_of_two() && blocks_max > 0);
        let lba_bytes = u64::from(lba_bytes);
        let (mut at, mut end) = (offset, offset + u64::from(length));
        if edges == Edges::Shrink {
            at = at.checked_next_multiple_of(lba_bytes).unwrap_or(end);
            end -= end % lba_bytes;
        }
        BlockPlan { at, end, lba_bytes, blocks_max, edges }
    }

    fn whole(&self, slba: u64, blocks: u64) -> BlockPiece {
        let blocks = blocks.min(u64::from(self.blocks_max)) as u32;
        let start = self.at - slba * self.lba_bytes;
        let bytes = u64::from(blocks) * self.lba_bytes;
        let len = (self.end - self.at).min(bytes - start);
        BlockPiece { slba, blocks, start: start as u32, len: len as u32, patch: false }
    }
}

impl Iterator for BlockPlan {
    type Item = BlockPiece;

    fn next(&mut self) -> Option<BlockPiece> {
        if self.at >= self.end {
            return None;
        }
        let slba = self.at / self.lba_bytes;
        let start = self.at % self.lba_bytes;
        let left = self.end - self.at;
        let piece = if self.edges == Edges::Widen {
            self.whole(slba, (start + left).div_ceil(self.lba_bytes))
        } else if start == 0 && left >= self.lba_bytes {
            self.whole(slba, left / self.lba_bytes)
        } else {
            let len = left.min(self.lba_bytes - start);
            BlockPiece { slba, blocks: 1, start: start as u32, len: len as u32, patch: true }
        };
        let bytes = u64::from(piece.blocks) * self.lba_bytes;
        self.at = (slba * self.lba_bytes).saturating_add(bytes).min(self.end);
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pieces(offset: u64, length: u32, edges: Edges) -> Vec<(u64, u32, u32, u32, bool)> {
        BlockPlan::new(offset, length, 512, 4, edges)
            .map(|p| (p.slba, p.blocks, p.start, p.len, p.patch))
            .collect()
    }

    #[test]
    fn aligned_ranges_split_at_the_most_blocks() {
        for edges in [Edges::Widen, Edges::Patch, Edges::Shrink] {
            assert_eq!(
                pieces(1024, 3072, edges),
                [(2, 4, 0, 2048, false), (6, 2, 0, 1024, false)],
                "{edges:?}"
            );
        }
    }

    #[test]
    fn a_read_takes_whole_blocks() {
        assert_eq!(pieces(700, 2, Edges::Widen), [(1, 1, 188, 2, false)]);
        assert_eq!(
            pieces(700, 2000, Edges::Widen),
            [(1, 4, 188, 1860, false), (5, 1, 0, 140, false)]
        );
    }

    #[test]
    fn a_write_patches_its_ends() {
        assert_eq!(pieces(700, 2, Edges::Patch), [(1, 1, 188, 2, true)]);
        assert_eq!(
            pieces(700, 2000, Edges::Patch),
            [(1, 1, 188, 324, true), (2, 3, 0, 1536, false), (5, 1, 0, 140, true)]
        );
    }

    #[test]
    fn a_trim_leaves_its_ends_alone() {
        assert_eq!(pieces(700, 2, Edges::Shrink), []);
        assert_eq!(pieces(700, 2000, Edges::Shrink), [(2, 3, 0, 1536, false)]);
        assert_eq!(pieces(u64::MAX - 600, 600, Edges::Shrink), []);
    }

    proptest! {
        #[test]
        fn pieces_cover_the_range_once(
            offset in 0u64..1 << 40, length in 1u32..1 << 20, shift in 9u32..13, blocks_max in 1u32..64,
            patch: bool,
        ) {
            let edges = if patch { Edges::Patch } else { Edges::Widen };
            let lba = 1u32 << shift;
            let mut at = offset;
            for piece in BlockPlan::new(offset, length, lba, blocks_max, edges) {
                prop_assert_eq!(piece.slba * u64::from(lba) + u64::from(piece.start), at);
                prop_assert!(piece.blocks >= 1 && piece.blocks <= blocks_max);
                let bytes = piece.blocks * lba;
                prop_assert!(piece.len >= 1 && piece.start + piece.len <= bytes);
                let partial = piece.len != bytes;
                prop_assert_eq!(piece.patch, patch && partial);
                prop_assert!(!piece.patch || piece.blocks == 1);
                at += u64::from(piece.len);
            }
            prop_assert_eq!(at, offset + u64::from(length));
        }
    }
}
