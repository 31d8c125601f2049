//! The division of a request's data into pieces, and the pieces that have arrived.

use roadtrain_wire::ether::{DataRecord, PIECES_MAX};

/// The piece size of a lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct PieceCut {
    piece_bytes: u32,
}

impl PieceCut {
    pub(super) fn new(piece_bytes: u16) -> Self {
        assert!(piece_bytes >= 8 && piece_bytes.is_multiple_of(8), "bytes of a piece");
        PieceCut { piece_bytes: u32::from(piece_bytes) }
    }

    /// Most bytes of a request's data.
    pub(super) fn bytes_max(self) -> u32 {
        self.piece_bytes * PIECES_MAX as u32
    }

    /// Number of pieces of a request with `bytes` bytes, at most [`PieceCut::bytes_max`].
    pub(super) fn pieces(self, bytes: u32) -> u16 {
        bytes.div_ceil(self.piece_bytes) as u16
    }

    /// Offset of a piece in its request's data.
    pub(super) fn offset(self, index: u16) -> u32 {
        u32::from(index) * self.piece_bytes
    }

    /// Bytes of a piece.
    pub(super) fn length(self, bytes: u32, index: u16) -> u32 {
        self.piece_bytes.min(bytes.saturating_sub(self.offset(index)))
    }

    /// True if a data record of `length` bytes is a correct piece of its request's data.
    pub(super) fn is_piece(self, data: &DataRecord, length: usize) -> bool {
        let (bytes, index) = (data.bytes.get(), data.index.get());
        bytes > 0
            && bytes <= self.bytes_max()
            && data.pieces.get() == self.pieces(bytes)
            && index < data.pieces.get()
            && data.offset.get() == self.offset(index)
            && length == self.length(bytes, index) as usize
    }
}

/// The pieces of each slot's request that have arrived.
#[derive(Clone, Debug)]
pub(super) struct Arrived {
    words: Vec<u64>,
    words_per_slot: usize,
}

impl Arrived {
    /// Creates an empty set with room for `pieces` in each of `slots`.
    pub(super) fn new(slots: u16, pieces: u16) -> Self {
        let words_per_slot = usize::from(pieces).div_ceil(64).max(1);
        Arrived { words: vec![0; usize::from(slots) * words_per_slot], words_per_slot }
    }

    /// Clears the set of a slot whose request has `pieces` pieces.
    pub(super) fn clear(&mut self, slot: u16, pieces: u16) {
        let start = usize::from(slot) * self.words_per_slot;
        self.words[start..start + usize::from(pieces).div_ceil(64)].fill(0);
    }

    /// Records the arrival of a piece. Returns false if it had arrived before.
    pub(super) fn insert(&mut self, slot: u16, index: u16) -> bool {
        let at = usize::from(slot) * self.words_per_slot + usize::from(index / 64);
        let (word, bit) = (&mut self.words[at], 1 << (index % 64));
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_piece_is_shorter() {
        let cut = PieceCut::new(1408);
        assert_eq!(cut.pieces(4096), 3);
        assert_eq!([0, 1, 2, 3].map(|index| cut.length(4096, index)), [1408, 1408, 1280, 0]);
        assert_eq!((cut.pieces(0), cut.pieces(1), cut.pieces(1408)), (0, 1, 1));
        assert_eq!(usize::from(cut.pieces(cut.bytes_max())), PIECES_MAX);
    }

    #[test]
    fn a_piece_arrives_once() {
        let mut arrived = Arrived::new(4, 130);
        assert!(arrived.insert(2, 129) && !arrived.insert(2, 129) && arrived.insert(2, 65));
        assert!(arrived.insert(1, 129) && arrived.insert(3, 0));
        arrived.clear(2, 130);
        assert!(arrived.insert(2, 129) && !arrived.insert(1, 129) && !arrived.insert(3, 0));
    }
}
