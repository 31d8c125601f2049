//! Copy (NVM Command Set 1.1, section 3.3.2): each source range is read into the command's buffer and written from
//! there, piece by piece.

use crate::io::{BlockGeometry, COPY_BYTES_MAX, COPY_RANGE_BYTES_MAX};
use roadtrain_proto::op::{ByteRange, StoreOperation};
use roadtrain_wire::sqe::COPY_RANGE_BYTES;
use roadtrain_wire::status::Status;

/// A Copy in progress.
#[derive(Debug)]
pub(super) struct Copying {
    /// Source ranges.
    sources: Vec<ByteRange>,
    at: usize,
    done: u64,
    /// Destination offset of the next piece.
    to: u64,
    fua: bool,
    /// Size of the buffer, in bytes.
    buffer_bytes: usize,
    piece_max: u64,
    /// True if the piece is in the buffer.
    is_read: bool,
}

impl Copying {
    /// Checks the first `count` entries of a list against the limits and the capacity, and returns the Copy.
    pub(super) fn new(
        list: &[u8],
        (to, count, fua): (u64, u32, bool),
        geometry: &BlockGeometry,
    ) -> Result<Copying, Status> {
        let (entries, _) = list.as_chunks::<{ COPY_RANGE_BYTES as usize }>();
        let entries = entries.get(..count as usize).ok_or(Status::INTERNAL_ERROR)?;
        let mut sources = Vec::with_capacity(entries.len());
        let (mut bytes, capacity) = (0, geometry.blocks << geometry.lba_shift);
        for entry in entries {
            let source = source(entry, geometry)?;
            if source.len > COPY_RANGE_BYTES_MAX {
                return Err(Status::COMMAND_SIZE_LIMIT_EXCEEDED.dnr());
            }
            bytes += source.len;
            sources.push(source);
        }
        if bytes > COPY_BYTES_MAX {
            return Err(Status::COMMAND_SIZE_LIMIT_EXCEEDED.dnr());
        }
        if to.checked_add(bytes).is_none_or(|end| end > capacity) {
            return Err(Status::LBA_OUT_OF_RANGE.dnr());
        }
        let destination = ByteRange { offset: to, len: bytes };
        if sources.iter().any(|source| source.overlaps(&destination)) {
            return Err(Status::OVERLAPPING_IO_RANGE.dnr());
        }
        let piece_max = list.len() as u64 >> geometry.lba_shift << geometry.lba_shift;
        if piece_max == 0 {
            return Err(Status::INTERNAL_ERROR);
        }
        let (at, done, is_read, buffer_bytes) = (0, 0, false, list.len());
        Ok(Copying { sources, at, done, to, fua, buffer_bytes, piece_max, is_read })
    }

    /// Returns the current source range.
    fn source(&self) -> Option<&ByteRange> {
        self.sources.get(self.at)
    }

    fn piece_bytes(&self) -> u64 {
        self.source().map_or(0, |source| self.piece_max.min(source.len - self.done))
    }

    /// Returns the next operation, with its bytes of the buffer; `None`: all is copied.
    pub(super) fn op(&self) -> Option<(StoreOperation, usize)> {
        let source = self.source()?;
        let op = match self.is_read {
            false => StoreOperation::Read { offset: source.offset + self.done },
            true => StoreOperation::Write { offset: self.to, fua: self.fua },
        };
        Some((op, self.piece_bytes() as usize))
    }

    /// Records the success of the operation.
    pub(super) fn advance(&mut self) {
        let bytes = self.piece_bytes();
        self.is_read = !self.is_read;
        if self.is_read {
            return;
        }
        (self.done, self.to) = (self.done + bytes, self.to + bytes);
        if self.source().is_some_and(|source| self.done == source.len) {
            (self.at, self.done) = (self.at + 1, 0);
        }
    }

    /// Returns the destination range, before anything is written.
    pub(super) fn destination(&self) -> ByteRange {
        let len = self.sources.iter().map(|source| source.len).sum();
        ByteRange { offset: self.to, len }
    }

    /// Makes all writes forced to stable storage.
    pub(super) fn force_unit_access(&mut self) {
        self.fua = true;
    }

    /// Returns the number of completely copied source ranges.
    pub(super) fn copied(&self) -> u16 {
        self.at as u16
    }

    /// Returns the size of the buffer in bytes.
    pub(super) fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }
}

/// Returns the range in an entry of format 0.
fn source(
    entry: &[u8; COPY_RANGE_BYTES as usize],
    geometry: &BlockGeometry,
) -> Result<ByteRange, Status> {
    let (words, _) = entry.as_chunks::<8>();
    let slba = u64::from_le_bytes(words[1]);
    let blocks = u64::from(u16::from_le_bytes([entry[16], entry[17]])) + 1;
    match slba.checked_add(blocks) {
        Some(end) if end <= geometry.blocks => {
            Ok(ByteRange { offset: slba << geometry.lba_shift, len: blocks << geometry.lba_shift })
        }
        _ => Err(Status::LBA_OUT_OF_RANGE.dnr()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GEOMETRY: BlockGeometry = BlockGeometry {
        lba_shift: 9,
        blocks: 1 << 20,
        read_only: false,
        transfer_bytes_max: 1 << 20,
    };

    /// Returns a list in a buffer of at least 2,048 bytes.
    fn list(sources: &[(u64, u16)]) -> Vec<u8> {
        let mut list = vec![0; 2048.max(sources.len() * 32)];
        for (entry, (slba, blocks)) in list.as_chunks_mut::<32>().0.iter_mut().zip(sources) {
            entry[8..16].copy_from_slice(&slba.to_le_bytes());
            entry[16..18].copy_from_slice(&(blocks - 1).to_le_bytes());
        }
        list
    }

    fn copying(sources: &[(u64, u16)], to: u64) -> Result<Copying, Status> {
        let to = (to << 9, sources.len() as u32, false);
        Copying::new(&list(sources), to, &GEOMETRY)
    }

    #[test]
    fn ranges_are_copied_piece_by_piece() {
        let mut copying = copying(&[(10, 5), (100, 1)], 50).unwrap();
        let mut seen = Vec::new();
        while let Some((op, bytes)) = copying.op() {
            seen.push((op, bytes >> 9, copying.copied()));
            copying.advance();
        }
        let read = |lba: u64| StoreOperation::Read { offset: lba << 9 };
        let write = |lba: u64| StoreOperation::Write { offset: lba << 9, fua: false };
        let expected = [
            (read(10), 4, 0),
            (write(50), 4, 0),
            (read(14), 1, 0),
            (write(54), 1, 0),
            (read(100), 1, 1),
            (write(55), 1, 1),
        ];
        assert_eq!(seen, expected);
        assert_eq!(copying.copied(), 2);
    }

    #[test]
    fn what_cannot_be_copied_is_refused() {
        let most = (COPY_RANGE_BYTES_MAX >> 9) as u16;
        let all = (COPY_BYTES_MAX >> 9) / u64::from(most);
        let far: Vec<(u64, u16)> = (0..=all).map(|n| (n * u64::from(most), most)).collect();
        let blocks = GEOMETRY.blocks;
        let (limit, range) = (Status::COMMAND_SIZE_LIMIT_EXCEEDED, Status::LBA_OUT_OF_RANGE);
        let overlapping = Status::OVERLAPPING_IO_RANGE;
        for (sources, to, expected) in [
            (vec![(0, most)], blocks / 2, None),
            (vec![(0, most + 1)], blocks / 2, Some(limit)),
            (far[1..].to_vec(), blocks / 2, None),
            (far.clone(), blocks / 2, Some(limit)),
            (vec![(blocks - 1, 1)], 0, None),
            (vec![(blocks - 1, 2)], 0, Some(range)),
            (vec![(u64::MAX, 2)], 0, Some(range)),
            (vec![(u64::MAX >> 9, 2)], 0, Some(range)),
            (vec![(0, 2)], blocks - 2, None),
            (vec![(0, 2)], blocks - 1, Some(range)),
            (vec![(0, 8)], 8, None),
            (vec![(0, 8)], 7, Some(overlapping)),
            (vec![(20, 8)], 27, Some(overlapping)),
            // The second source range overlaps the destination of the first one.
            (vec![(0, 8), (104, 1)], 100, Some(overlapping)),
            (vec![(0, 8), (108, 1)], 100, Some(overlapping)),
            (vec![(0, 8), (109, 1)], 100, None),
        ] {
            let result = copying(&sources, to).err();
            assert_eq!(result, expected.map(Status::dnr), "{sources:?} to {to}");
        }
    }
}
