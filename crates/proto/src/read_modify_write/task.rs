//! Execution of one operation by operations on whole physical blocks.

use super::{RmwClaim, enclosed, enclosing};
use crate::op::{ByteRange, StoreOperation};
use roadtrain_wire::status::Status;

/// Largest buffer of a task in bytes. Longer ranges are read or written piece by piece.
pub const BOUNCE_BYTES_MAX: u32 = 128 << 10;

/// How an operation on logical blocks is executed.
#[derive(Debug)]
pub enum RmwPlan {
    /// There is nothing to do.
    Nothing,
    /// The store below executes this operation; no claim is needed.
    Pass(StoreOperation),
    /// The store below executes this operation, once the claim is admitted.
    Claimed(StoreOperation, RmwClaim),
    /// The task executes it, once the claim is admitted.
    Task(RmwTask, RmwClaim),
}

impl RmwPlan {
    /// Plans an operation, checked against the capacity, with a buffer of `buffer_bytes`.
    #[must_use]
    pub fn of(op: &StoreOperation, buffer_bytes: u64, physical_bytes: u64) -> RmwPlan {
        let range = match *op {
            StoreOperation::Read { offset }
            | StoreOperation::Write { offset, .. }
            | StoreOperation::Compare { offset } => ByteRange { offset, len: buffer_bytes },
            StoreOperation::ReadInPlace { range }
            | StoreOperation::WriteZeroes { range, .. }
            | StoreOperation::QueryAllocation { range } => range,
            // Advice, which is followed for whole physical blocks.
            StoreOperation::Discard { range } => enclosed(range, physical_bytes),
            // The latter two are for stores that execute them themselves.
            StoreOperation::Flush
            | StoreOperation::CompareAndWrite { .. }
            | StoreOperation::WriteUncorrectable { .. } => return RmwPlan::Pass(*op),
        };
        if range.len == 0 {
            return RmwPlan::Nothing;
        }
        let op = match *op {
            StoreOperation::Discard { .. } => StoreOperation::Discard { range },
            op => op,
        };
        let blocks = enclosing(range, physical_bytes);
        match (blocks == range, op.changes()) {
            (true, false) => RmwPlan::Pass(op),
            (true, true) => {
                let claim = RmwClaim { range, is_exclusive: false, bytes: 0 };
                RmwPlan::Claimed(op, claim)
            }
            (false, changes) => {
                let task = RmwTask::new(op, range, physical_bytes);
                let claimed = if changes { blocks } else { ByteRange { len: 0, ..blocks } };
                let (is_exclusive, bytes) = (changes, task.bounce_bytes());
                RmwPlan::Task(task, RmwClaim { range: claimed, is_exclusive, bytes })
            }
        }
    }
}

/// Next step of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RmwStep {
    /// The store fills the first `len` bytes of the bounce buffer from the range.
    Read(ByteRange),
    /// The store writes the first `len` bytes of the bounce buffer to the range.
    Write(ByteRange, bool),
    /// The store writes zeroes to the range, and gives the space back if the flag is set.
    WriteZeroes(ByteRange, bool),
    /// The operation has ended.
    Done(Result<(), Status>),
}

/// An operation on a range that is not whole physical blocks. It goes through the range from its start to its end, piece
/// by piece; each piece is read, or written, or read and then written.
#[derive(Clone, Debug)]
pub struct RmwTask {
    op: StoreOperation,
    /// Range of the operation in bytes.
    range: ByteRange,
    physical_bytes: u64,
    /// First byte that is not done.
    at: u64,
    step: RmwStep,
}

impl RmwTask {
    fn new(op: StoreOperation, range: ByteRange, physical_bytes: u64) -> RmwTask {
        let at = range.offset;
        RmwTask { op, range, physical_bytes, at, step: RmwStep::Done(Ok(())) }
    }

    /// Returns the size of the bounce buffer in bytes.
    #[must_use]
    pub fn bounce_bytes(&self) -> u32 {
        let bytes = match self.op {
            StoreOperation::WriteZeroes { .. } => self.physical_bytes,
            _ => enclosing(self.range, self.physical_bytes).len.min(BOUNCE_BYTES_MAX.into()),
        };
        bytes as u32
    }

    /// True if the operation changes contents.
    #[must_use]
    pub fn changes(&self) -> bool {
        self.op.changes()
    }

    /// Begins the task. `bounce` has [`bounce_bytes`](Self::bounce_bytes); `data` is the operation's buffer.
    pub fn begin(&mut self, bounce: &mut [u8], data: &[u8]) -> RmwStep {
        self.step = self.next_piece(bounce, data);
        self.step
    }

    /// Takes the result of a step, and returns the next one.
    pub fn advance(
        &mut self,
        result: Result<(), Status>,
        bounce: &mut [u8],
        data: &mut [u8],
    ) -> RmwStep {
        self.step = match (result, self.step) {
            (Err(status), step) => RmwStep::Done(Err(self.failure(status, step))),
            (Ok(()), RmwStep::Read(piece)) => self.take_read(piece, bounce, data),
            (Ok(()), RmwStep::Write(piece, _) | RmwStep::WriteZeroes(piece, _)) => {
                self.at = self.end_of(piece);
                self.next_piece(bounce, data)
            }
            (Ok(()), step @ RmwStep::Done(_)) => step,
        };
        self.step
    }

    /// Returns the status of a failed step. A write whose neighbours cannot be read is not written.
    fn failure(&self, status: Status, step: RmwStep) -> Status {
        let is_read = matches!(step, RmwStep::Read(_));
        match is_read && self.op.changes() && status.is(Status::UNRECOVERED_READ_ERROR) {
            true => Status::WRITE_FAULT,
            false => status,
        }
    }

    /// Returns the end of the operation's part of a piece.
    fn end_of(&self, piece: ByteRange) -> u64 {
        (piece.offset + piece.len).min(self.range.offset + self.range.len)
    }

    /// Returns the places of the next part in the bounce buffer, from the start of `piece`, and in the data.
    fn places(&self, piece: ByteRange) -> (core::ops::Range<usize>, core::ops::Range<usize>) {
        let end = self.end_of(piece);
        let from = |start: u64| (self.at - start) as usize..(end - start) as usize;
        (from(piece.offset), from(self.range.offset))
    }

    /// Returns the first step of the piece at `self.at`.
    fn next_piece(&mut self, bounce: &mut [u8], data: &[u8]) -> RmwStep {
        let end = self.range.offset + self.range.len;
        let left = ByteRange { offset: self.at, len: end - self.at };
        if left.len == 0 {
            return RmwStep::Done(Ok(()));
        }
        let blocks = enclosing(left, self.physical_bytes);
        if let StoreOperation::WriteZeroes { deallocate, .. } = self.op {
            let whole = enclosed(left, self.physical_bytes);
            return match whole.len > 0 && whole.offset == self.at {
                true => RmwStep::WriteZeroes(whole, deallocate),
                false => RmwStep::Read(ByteRange { len: self.physical_bytes, ..blocks }),
            };
        }
        let piece = ByteRange { len: blocks.len.min(BOUNCE_BYTES_MAX.into()), ..blocks };
        let is_whole = piece.offset == self.at && piece.offset + piece.len <= end;
        match self.op {
            StoreOperation::Write { fua, .. } if is_whole => {
                let (to, from) = self.places(piece);
                bounce[to].copy_from_slice(&data[from]);
                RmwStep::Write(piece, fua)
            }
            _ => RmwStep::Read(piece),
        }
    }

    /// Uses a piece that was read.
    fn take_read(&mut self, piece: ByteRange, bounce: &mut [u8], data: &mut [u8]) -> RmwStep {
        let (here, there) = self.places(piece);
        match self.op {
            StoreOperation::Write { fua, .. } => {
                bounce[here].copy_from_slice(&data[there]);
                return RmwStep::Write(piece, fua);
            }
            StoreOperation::WriteZeroes { .. } => {
                bounce[here].fill(0);
                return RmwStep::Write(piece, false);
            }
            StoreOperation::Compare { .. } if bounce[here.clone()] != data[there.clone()] => {
                return RmwStep::Done(Err(Status::COMPARE_FAILURE.dnr()));
            }
            StoreOperation::Compare { .. } => {}
            _ => data[there].copy_from_slice(&bounce[here]),
        }
        self.at = self.end_of(piece);
        self.next_piece(bounce, data)
    }
}

#[cfg(test)]
mod tests;
