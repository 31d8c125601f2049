//! Records: the contents of a Cargo frame.

use crate::cqe::Cqe;
use crate::sqe::Sqe;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a command record.
pub const COMMAND_RECORD_BYTES: usize = 80;
/// Bytes of a data record without its data.
pub const DATA_RECORD_BYTES: usize = 24;
/// Bytes of a completion record.
pub const COMPLETION_RECORD_BYTES: usize = 32;
/// Bit of [`CommandRecord::bytes`]: the data goes to the host.
pub const DATA_IN: u32 = 1 << 31;
/// Mask of generations, which have 24 bits.
pub const GENERATION_MASK: u32 = 0xff_ffff;

/// Kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names are those of docs/reference/ethernet.md")]
pub enum RecordKind {
    Command = 1,
    Data = 2,
    Completion = 3,
}

/// Head of every record.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RecordHead {
    pub kind: u8,
    /// GENERATION of the slot, bits 23:16.
    pub generation_high: u8,
    /// LENGTH: bytes of the record with this head, without padding.
    pub length: U16,
    pub slot: U16,
    /// GENERATION of the slot, bits 15:0.
    pub generation_low: U16,
}

impl RecordHead {
    /// A head of a record of `length` bytes (with this head); only 24 bits of `generation` count.
    #[must_use]
    pub fn new(kind: RecordKind, length: usize, slot: u16, generation: u32) -> Self {
        debug_assert!(length <= usize::from(u16::MAX));
        RecordHead {
            kind: kind as u8,
            generation_high: (generation >> 16) as u8,
            length: U16::new(length as u16),
            slot: U16::new(slot),
            generation_low: U16::new(generation as u16),
        }
    }

    /// Returns GENERATION of the slot.
    #[must_use]
    pub fn generation(&self) -> u32 {
        u32::from(self.generation_high) << 16 | u32::from(self.generation_low.get())
    }
}

/// A command.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct CommandRecord {
    pub head: RecordHead,
    pub sqe: Sqe,
    /// POSITION: first page in the target's damq.
    pub position: U32,
    /// BYTES of data; [`DATA_IN`].
    pub bytes: U32,
}

/// A piece of data; the data follows.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct DataRecord {
    pub head: RecordHead,
    /// OFFSET in the request's data.
    pub offset: U32,
    /// POSITION of the request in the target's damq.
    pub position: U32,
    /// INDEX of the piece.
    pub index: U16,
    /// PIECES of the request.
    pub pieces: U16,
    /// BYTES of the request's data.
    pub bytes: U32,
}

/// A completion.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct CompletionRecord {
    pub head: RecordHead,
    pub cqe: Cqe,
    /// PIECES of the request's data.
    pub pieces: U16,
    pub reserved: [u8; 6],
}

/// A record, viewed in the body.
#[derive(Clone, Copy, Debug)]
pub enum CargoRecord<'a> {
    Command(&'a CommandRecord),
    /// A piece of data, and its position in the body.
    Data {
        data: &'a DataRecord,
        /// Offset of its bytes in the body.
        start: usize,
        bytes: &'a [u8],
    },
    Completion(&'a CompletionRecord),
}

/// Reason why the rest of a body is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordError {
    /// Field with the wrong value: KIND or LENGTH.
    pub field: &'static str,
    /// Value of the field.
    pub value: u64,
}

/// Records of a Cargo body, up to the first invalid one.
#[derive(Clone, Debug)]
pub struct CargoRecords<'a> {
    body: &'a [u8],
    at: usize,
}

/// Returns the bytes of a record of `length` with its padding.
#[must_use]
pub const fn padded(length: usize) -> usize {
    (length + 7) & !7
}

impl<'a> CargoRecords<'a> {
    /// The records of `body`.
    #[must_use]
    pub fn new(body: &'a [u8]) -> Self {
        CargoRecords { body, at: 0 }
    }

    /// Returns the error in the next record.
    fn error(&self) -> RecordError {
        let rest = &self.body[self.at..];
        match RecordHead::ref_from_prefix(rest) {
            Ok((head, _)) if !(1..=3).contains(&head.kind) => {
                RecordError { field: "KIND", value: head.kind.into() }
            }
            Ok((head, _)) => RecordError { field: "LENGTH", value: head.length.get().into() },
            Err(_) => RecordError { field: "LENGTH", value: rest.len() as u64 },
        }
    }

    fn read(&self) -> Option<(CargoRecord<'a>, usize)> {
        let rest = &self.body[self.at..];
        let (head, _) = RecordHead::ref_from_prefix(rest).ok()?;
        let length = usize::from(head.length.get());
        let bytes = rest.get(..length)?;
        let record = match head.kind {
            k if k == RecordKind::Command as u8 => {
                CargoRecord::Command(CommandRecord::ref_from_bytes(bytes).ok()?)
            }
            k if k == RecordKind::Data as u8 => {
                let (data, bytes) = DataRecord::ref_from_prefix(bytes).ok()?;
                CargoRecord::Data { data, start: self.at + DATA_RECORD_BYTES, bytes }
            }
            k if k == RecordKind::Completion as u8 => {
                CargoRecord::Completion(CompletionRecord::ref_from_bytes(bytes).ok()?)
            }
            _ => return None,
        };
        Some((record, length))
    }
}

impl<'a> Iterator for CargoRecords<'a> {
    type Item = Result<CargoRecord<'a>, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.body.len() || self.body[self.at] == 0 {
            return None;
        }
        let Some((record, length)) = self.read() else {
            let error = self.error();
            self.at = self.body.len();
            return Some(Err(error));
        };
        self.at = (self.at + padded(length)).min(self.body.len());
        Some(Ok(record))
    }
}

const _: () = {
    assert!(size_of::<RecordHead>() == 8);
    assert!(size_of::<CommandRecord>() == COMMAND_RECORD_BYTES);
    assert!(size_of::<DataRecord>() == DATA_RECORD_BYTES);
    assert!(size_of::<CompletionRecord>() == COMPLETION_RECORD_BYTES);
};
