//! Logical blocks that are smaller than the blocks of a store (512-byte emulation, "512e").
//!
//! The store writes a physical block as a whole or not at all. A change of a part of one reads the physical block, puts
//! the new logical blocks into it, and writes it back. Nothing else may change the physical block between the read and
//! the write, or its change would be lost: [`RmwAdmission`] sees to that. An [`RmwTask`] decides which physical blocks are
//! read and written, and moves the bytes.
//!
//! ```text
//!   operation --> plan --+--> whole physical blocks: as it is             read, compare, flush
//!                        +--> whole physical blocks, claimed shared       write, zeroes, discard
//!                        +--> RmwTask, without a claim                    read, compare
//!                        +--> RmwTask, claimed exclusively                write, zeroes
//! ```
//!
//! # Why no acknowledged change is lost
//! Each change claims its physical blocks before its first step, and releases them after its last one. A claim of a
//! read-modify-write is exclusive. So between its read and its write no other change of these blocks is in flight.
//!
//! # Why a crash tears nothing
//! Each write to the store is of whole physical blocks, in which the neighbours have the content that was just read.
//! Their content is what was acknowledged last, since nothing else could change it.

mod admission;
mod task;

pub use admission::{RmwAdmission, RmwClaim};
pub use task::{BOUNCE_BYTES_MAX, RmwPlan, RmwStep, RmwTask};

use crate::op::ByteRange;

/// Returns the smallest range of whole physical blocks that holds `range`.
#[must_use]
pub fn enclosing(range: ByteRange, physical_bytes: u64) -> ByteRange {
    let offset = range.offset / physical_bytes * physical_bytes;
    let end = range.offset.saturating_add(range.len).next_multiple_of(physical_bytes);
    ByteRange { offset, len: end - offset }
}

/// Returns the whole physical blocks inside `range`; a length of 0: there are none.
#[must_use]
pub fn enclosed(range: ByteRange, physical_bytes: u64) -> ByteRange {
    let offset = range.offset.next_multiple_of(physical_bytes);
    let end = range.offset.saturating_add(range.len) / physical_bytes * physical_bytes;
    ByteRange { offset, len: end.saturating_sub(offset) }
}
