//! Contents of a frame: commands and data. Data is placed unless its command follows directly.

use crate::ether::damq::LaneDamq;
use roadtrain_proto::time::Instant;
use roadtrain_wire::sqe::Sqe;

/// Command that has arrived with all its data.
pub(super) struct ArrivedCommand {
    pub(super) slot: u16,
    pub(super) sqe: Sqe,
    pub(super) place: u64,
    pub(super) data_bytes: u32,
    /// Offset of its data in the frame, if the frame has all of it.
    pub(super) start: Option<usize>,
}

/// Piece of data in a frame, and its offset in the host's pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DataPiece {
    pub(super) slot: u16,
    pub(super) place: u64,
    pub(super) start: usize,
    pub(super) length: u32,
}

impl DataPiece {
    /// Copies the piece to its offset.
    pub(super) fn put(&self, now: Instant, damq: &mut LaneDamq, body: &[u8]) {
        let placed = damq.put(now, self.place, bytes(body, self.start, self.length));
        debug_assert!(placed, "the queue pair checks places");
    }
}

/// Returns bytes of a frame's body.
pub(super) fn bytes(body: &[u8], start: usize, length: u32) -> &[u8] {
    body.get(start..start + length as usize).unwrap_or_default()
}

/// Last piece of a frame so far. It is not placed immediately: the command of a small write follows directly and takes
/// the piece from the frame.
#[derive(Default)]
pub(super) struct LastPiece(Option<DataPiece>);

impl LastPiece {
    /// Sets the last piece. Returns the previous one, which the caller places.
    pub(super) fn replace(&mut self, piece: DataPiece) -> Option<DataPiece> {
        self.0.replace(piece)
    }

    /// Takes the piece if it is all the data of the command. Returns its offset in the frame.
    pub(super) fn take_whole(&mut self, slot: u16, data_bytes: u32) -> Option<usize> {
        let is_whole = |piece: &mut DataPiece| (piece.slot, piece.length) == (slot, data_bytes);
        self.0.take_if(is_whole).map(|piece| piece.start)
    }

    /// Takes the last piece at the end of the frame. The caller places it.
    pub(super) fn take(&mut self) -> Option<DataPiece> {
        self.0.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(slot: u16, start: usize) -> DataPiece {
        DataPiece { slot, place: 8192, start, length: 4096 }
    }

    #[test]
    fn a_piece_with_its_command_is_not_placed() {
        let mut last = LastPiece::default();
        assert_eq!(last.replace(piece(1, 24)), None);
        assert_eq!(last.take_whole(1, 4096), Some(24));
        assert_eq!(last.take(), None);
    }

    #[test]
    fn other_pieces_are() {
        let mut last = LastPiece::default();
        assert_eq!(last.replace(piece(1, 24)), None);
        assert_eq!(last.take_whole(2, 4096), None, "of another command");
        assert_eq!(last.take_whole(1, 8192), None, "its first piece came before");
        assert_eq!(last.replace(piece(1, 4144)), Some(piece(1, 24)));
        assert_eq!(last.take_whole(3, 0), None, "a command without data");
        assert_eq!(last.take(), Some(piece(1, 4144)));
    }
}
