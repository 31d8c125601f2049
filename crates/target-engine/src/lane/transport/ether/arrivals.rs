//! What a frame brings: commands, and data that is placed, unless its command is right behind it.

use crate::ether::damq::Damq;
use roadtrain_proto::time::Instant;
use roadtrain_wire::sqe::Sqe;

/// A command that has come with all its data.
pub(super) struct Command {
    pub(super) slot: u16,
    pub(super) sqe: Sqe,
    pub(super) place: u64,
    pub(super) data_bytes: u32,
    /// Where in the frame its data is, if all of it came with it.
    pub(super) start: Option<usize>,
}

/// A piece of data in a frame, and where in the host's pages it belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) slot: u16,
    pub(super) place: u64,
    pub(super) start: usize,
    pub(super) length: u32,
}

impl Piece {
    /// Copies it to its place.
    pub(super) fn put(&self, now: Instant, damq: &mut Damq, body: &[u8]) {
        let placed = damq.put(now, self.place, octets(body, self.start, self.length));
        debug_assert!(placed, "the queue pair checks places");
    }
}

/// Octets of a frame's body.
pub(super) fn octets(body: &[u8], start: usize, length: u32) -> &[u8] {
    body.get(start..start + length as usize).unwrap_or_default()
}

/// The last piece of a frame so far. It is not placed at once: a small write's command comes right behind it, and
/// takes it from the frame.
#[derive(Default)]
pub(super) struct LastPiece(Option<Piece>);

impl LastPiece {
    /// One more piece; the one before, which is to be placed.
    pub(super) fn replace(&mut self, piece: Piece) -> Option<Piece> {
        self.0.replace(piece)
    }

    /// A command is complete, with so many octets of data: where they start, if they are that piece.
    pub(super) fn take_whole(&mut self, slot: u16, data_bytes: u32) -> Option<usize> {
        let is_whole = |piece: &mut Piece| (piece.slot, piece.length) == (slot, data_bytes);
        self.0.take_if(is_whole).map(|piece| piece.start)
    }

    /// The frame is at its end: what is to be placed.
    pub(super) fn take(&mut self) -> Option<Piece> {
        self.0.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(slot: u16, start: usize) -> Piece {
        Piece { slot, place: 8192, start, length: 4096 }
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
