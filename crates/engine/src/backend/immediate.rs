//! Operations on memory and null backends, which need no ring.

use std::ptr;

use roadtrain_wire::status::Status;

use super::op::{ByteRange, IoOp};
use super::{Backend, Store, ZEROES};
use crate::buffer::Buffer;
use crate::memory::HugeMemory;

/// From this length on, giving pages back is cheaper than filling them, even if it splits huge
/// pages.
const ZERO_BY_DISCARD_BYTES: u64 = 256 << 10;

impl Backend {
    /// Does all of `op`, whose ranges lie inside the capacity and which is allowed.
    pub(super) fn run_now(&self, op: &mut IoOp) -> Result<(), Status> {
        match (&self.store, op) {
            (Store::Memory(memory), op) => run_on_memory(memory, op),
            (Store::Null, IoOp::Read { buffer, .. }) => {
                buffer.fill(0);
                Ok(())
            }
            (Store::Null, IoOp::Compare { expected, .. }) => compare(expected, |at, len| {
                debug_assert!(at + len <= expected.len());
                ZEROES.0.as_ptr()
            }),
            (Store::Null, _) => Ok(()),
            (Store::Disk(_), _) => Err(Status::INTERNAL_ERROR),
        }
    }
}

fn run_on_memory(memory: &HugeMemory, op: &mut IoOp) -> Result<(), Status> {
    // Only reachable if the memory shrank below a checked range, which it never does.
    let out_of_range = || Status::LBA_OUT_OF_RANGE.dnr();
    match op {
        IoOp::Read { offset, buffer } => {
            let from = memory.range(*offset, buffer.len()).ok_or_else(out_of_range)?;
            // SAFETY: `range` checked the source; the buffer is its own memory.
            unsafe { ptr::copy_nonoverlapping(from, buffer.as_mut_ptr(), buffer.len()) };
            Ok(())
        }
        IoOp::Write { offset, buffer, .. } => {
            let to = memory.range(*offset, buffer.len()).ok_or_else(out_of_range)?;
            // SAFETY: as above, the other way round.
            unsafe { ptr::copy_nonoverlapping(buffer.as_ptr(), to, buffer.len()) };
            Ok(())
        }
        IoOp::Flush => Ok(()),
        IoOp::Discard { ranges } => {
            let all = ranges.iter().all(|r| memory.discard(r.offset, r.len as usize));
            all.then_some(()).ok_or_else(out_of_range)
        }
        IoOp::WriteZeroes { range: ByteRange { offset, len }, deallocate, .. } => {
            let done = if *deallocate || *len >= ZERO_BY_DISCARD_BYTES {
                memory.discard(*offset, *len as usize)
            } else {
                memory.zero(*offset, *len as usize)
            };
            done.then_some(()).ok_or_else(out_of_range)
        }
        IoOp::Compare { offset, expected, .. } => {
            let stored = memory.range(*offset, expected.len()).ok_or_else(out_of_range)?;
            compare(expected, |at, _| stored.wrapping_add(at))
        }
    }
}

/// Compares piecewise with the bytes that `stored(at, len)` points to.
fn compare(expected: &Buffer, stored: impl Fn(usize, usize) -> *const u8) -> Result<(), Status> {
    for (index, piece) in expected.chunks(ZEROES.0.len()).enumerate() {
        let at = stored(index * ZEROES.0.len(), piece.len());
        // SAFETY: both sides are `piece.len()` readable bytes; no reference to shared memory is
        // made.
        let differs = unsafe { libc::memcmp(piece.as_ptr().cast(), at.cast(), piece.len()) } != 0;
        if differs {
            return Err(Status::COMPARE_FAILURE.dnr());
        }
    }
    Ok(())
}
