//! Operation of a store as requests of NBD: one request at a time, until all of its range is done.

use crate::{NbdClientRequest, NbdTerms};
use roadtrain_store::{ByteRange, StoreOperation};
use roadtrain_system::buffer::Buffer;
use roadtrain_wire::lba_status::{LbaStatusList, condition};
use roadtrain_wire::nbd::{Command, Errno, allocation_state, command_flag, transmission_flag};
use roadtrain_wire::status::Status;
use std::ops::Range;

/// Maximum block status requests of a query; the blocks behind them count as allocated.
const QUERIES_MAX: u32 = 256;
/// Maximum separate allocated ranges of a query; the blocks behind them are left to another query.
const RANGES_MAX: usize = 4096;

/// Result of an operation's step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OperationStep {
    /// A request to send.
    Request(NbdClientRequest),
    /// Nothing is left to do.
    Done,
}

/// Operation with its progress.
#[derive(Debug)]
pub(crate) struct NbdOperation {
    pub(crate) op: StoreOperation,
    pub(crate) buffer: Option<Buffer>,
    range: ByteRange,
    /// Bytes that are done.
    done: u64,
    /// Bytes of the request in flight.
    piece: u32,
    has_flushed: bool,
    /// True if zeroes are written as data, because the server refuses to make them.
    writes_zeroes: bool,
    /// True if a Compare has found a difference.
    differs: bool,
    /// True if a part of a forced write was not forced.
    pub(crate) is_unforced: bool,
    queries: u32,
    /// Bytes of the current block status request that are known.
    stated: u64,
    /// Allocated ranges in bytes, in order, not adjacent.
    allocated: Vec<Range<u64>>,
    /// End of the range whose allocation is known.
    known_to: u64,
}

impl NbdOperation {
    /// Makes an operation that [`StoreGeometry::check`](roadtrain_store::StoreGeometry::check) allows.
    pub(crate) fn new(op: StoreOperation, buffer: Option<Buffer>) -> NbdOperation {
        let bytes = buffer.as_ref().map_or(0, Buffer::len) as u64;
        let range = match op {
            StoreOperation::Read { offset }
            | StoreOperation::Write { offset, .. }
            | StoreOperation::Compare { offset } => ByteRange { offset, len: bytes },
            StoreOperation::ReadInPlace { range }
            | StoreOperation::QueryAllocation { range }
            | StoreOperation::Discard { range }
            | StoreOperation::WriteZeroes { range, .. }
            | StoreOperation::WriteUncorrectable { range } => range,
            StoreOperation::Flush | StoreOperation::CompareAndWrite { .. } => {
                ByteRange { offset: 0, len: 0 }
            }
        };
        NbdOperation {
            op,
            buffer,
            range,
            done: 0,
            piece: 0,
            has_flushed: false,
            writes_zeroes: false,
            differs: false,
            is_unforced: false,
            queries: 0,
            stated: 0,
            allocated: Vec::new(),
            known_to: range.offset,
        }
    }

    /// True if nothing is left to do.
    pub(crate) fn is_done(&self, terms: &NbdTerms) -> bool {
        let is_complete = self.done == self.range.len;
        match self.op {
            StoreOperation::Flush => self.has_flushed || !terms.has(transmission_flag::SEND_FLUSH),
            StoreOperation::Discard { .. } => {
                is_complete || !terms.has(transmission_flag::SEND_TRIM)
            }
            StoreOperation::QueryAllocation { .. } => is_complete || !self.may_query(terms),
            op if is_others(op) => true,
            _ => is_complete || self.differs,
        }
    }

    /// Returns the next request; also after a request that was lost.
    pub(crate) fn step(&mut self, terms: &NbdTerms, lba_bytes: u32) -> OperationStep {
        if self.is_done(terms) {
            return OperationStep::Done;
        }
        let left = self.range.len - self.done;
        let (data_max, range_max) = (terms.data_bytes_max(lba_bytes), terms.range_bytes_max());
        let (command, flags, max) = match self.op {
            StoreOperation::Flush => (Command::FLUSH, 0, 0),
            StoreOperation::Discard { .. } => (Command::TRIM, 0, range_max),
            StoreOperation::QueryAllocation { .. } => (Command::BLOCK_STATUS, 0, range_max),
            StoreOperation::WriteZeroes { deallocate, .. } if self.makes_zeroes(terms) => {
                let flags = if deallocate { 0 } else { command_flag::NO_HOLE };
                (Command::WRITE_ZEROES, flags, range_max)
            }
            StoreOperation::WriteZeroes { .. } => (Command::WRITE, 0, data_max),
            StoreOperation::Write { fua, .. } => {
                let forces = fua && terms.has(transmission_flag::SEND_FUA);
                self.is_unforced |= fua && !forces;
                (Command::WRITE, if forces { command_flag::FUA } else { 0 }, data_max)
            }
            _ => (Command::READ, 0, data_max),
        };
        (self.piece, self.stated) = (left.min(max.into()) as u32, 0);
        let offset = if max == 0 { 0 } else { self.range.offset + self.done };
        OperationStep::Request(NbdClientRequest { command, flags, offset, length: self.piece })
    }

    fn makes_zeroes(&self, terms: &NbdTerms) -> bool {
        terms.has(transmission_flag::SEND_WRITE_ZEROES) && !self.writes_zeroes
    }

    fn may_query(&self, terms: &NbdTerms) -> bool {
        terms.allocation.is_some()
            && self.queries < QUERIES_MAX
            && self.allocated.len() < RANGES_MAX
    }

    /// Returns the data of the write in flight; `None`: zeroes.
    pub(crate) fn payload(&self) -> Option<&[u8]> {
        let from = self.done as usize;
        match self.op {
            StoreOperation::Write { .. } => {
                self.buffer.as_ref()?.get(from..from + self.piece as usize)
            }
            _ => None,
        }
    }

    /// Takes data of the read in flight, from `at` on in its range.
    pub(crate) fn receive_data(&mut self, at: usize, bytes: &[u8]) {
        let from = self.done as usize + at;
        let Some(buffer) = &mut self.buffer else { return };
        let Some(place) = buffer.get_mut(from..from + bytes.len()) else { return };
        match self.op {
            StoreOperation::Compare { .. } => self.differs |= *place != *bytes,
            _ => place.copy_from_slice(bytes),
        }
    }

    /// Takes zeroes of the read in flight.
    pub(crate) fn receive_zeroes(&mut self, range: Range<usize>) {
        let from = self.done as usize;
        let Some(buffer) = &mut self.buffer else { return };
        let Some(place) = buffer.get_mut(from + range.start..from + range.end) else { return };
        match self.op {
            StoreOperation::Compare { .. } => self.differs |= place.iter().any(|&byte| byte != 0),
            _ => place.fill(0),
        }
    }

    /// Takes the state of the next bytes. Only what is a hole and reads as zeroes is not allocated.
    pub(crate) fn receive_extent(&mut self, length: u32, state: u32) {
        const HOLE: u32 = allocation_state::HOLE | allocation_state::ZERO;
        let start = self.range.offset + self.done + self.stated;
        let end = start + u64::from(length);
        self.stated += u64::from(length);
        if state & HOLE != HOLE {
            self.add_allocated(start..end);
        }
    }

    fn add_allocated(&mut self, range: Range<u64>) {
        match self.allocated.last_mut() {
            Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
            _ => self.allocated.push(range),
        }
    }

    /// Takes the result of the request in flight.
    ///
    /// # Errors
    /// The operation fails with this status.
    pub(crate) fn replied(&mut self, result: Result<(), Errno>) -> Result<(), Status> {
        match (self.op, result) {
            (StoreOperation::Flush, Ok(())) => self.has_flushed = true,
            (StoreOperation::QueryAllocation { .. }, result) => {
                self.queries += 1;
                let from = self.range.offset + self.done;
                if result.is_err() {
                    self.stated = self.piece.into();
                    self.add_allocated(from..from + u64::from(self.piece));
                }
                self.done += self.stated;
                self.known_to = self.range.offset + self.done;
            }
            (StoreOperation::WriteZeroes { .. }, Err(Errno::ENOTSUP)) if !self.writes_zeroes => {
                self.writes_zeroes = true;
            }
            // Advice that the server cannot follow.
            (StoreOperation::Discard { .. }, Err(Errno::ENOTSUP | Errno::EINVAL)) => {
                self.done = self.range.len;
            }
            (_, Ok(())) => self.done += u64::from(self.piece),
            (op, Err(errno)) => return Err(status(errno, op.changes())),
        }
        Ok(())
    }

    /// Ends an operation of which nothing is left to do.
    pub(crate) fn finish(&mut self, lba_shift: u8) -> Result<(), Status> {
        match self.op {
            _ if self.differs => Err(Status::COMPARE_FAILURE.dnr()),
            op if is_others(op) => Err(Status::INTERNAL_ERROR),
            StoreOperation::QueryAllocation { .. } => self.write_list(lba_shift),
            _ => Ok(()),
        }
    }

    fn write_list(&mut self, lba_shift: u8) -> Result<(), Status> {
        let end = self.range.offset + self.range.len;
        let is_cut = self.allocated.len() >= RANGES_MAX;
        if !is_cut && self.known_to < end {
            self.add_allocated(self.known_to..end);
        }
        let Some(buffer) = &mut self.buffer else { return Err(Status::INTERNAL_ERROR) };
        let mut list = LbaStatusList::new(buffer);
        let block = (1u64 << lba_shift) - 1;
        let mut written = 0;
        let has_all = self.allocated.iter().all(|range| {
            // Whole blocks: a part makes its block allocated, which two ranges may share.
            let first = (range.start >> lba_shift).max(written);
            written = (range.end + block) >> lba_shift;
            first >= written || list.add(first, written - first)
        });
        list.end(match (has_all, is_cut) {
            (false, _) => condition::NO_ROOM,
            (true, true) => condition::UNSPECIFIED,
            (true, false) => condition::COMPLETE,
        });
        Ok(())
    }
}

/// True for operations that only other stores get.
fn is_others(op: StoreOperation) -> bool {
    matches!(
        op,
        StoreOperation::ReadInPlace { .. }
            | StoreOperation::CompareAndWrite { .. }
            | StoreOperation::WriteUncorrectable { .. }
    )
}

/// Returns the status of a failed request.
fn status(errno: Errno, changes: bool) -> Status {
    match errno {
        Errno::EPERM if changes => Status::NAMESPACE_WRITE_PROTECTED.dnr(),
        Errno::EPERM => Status::ACCESS_DENIED.dnr(),
        Errno::ENOSPC => Status::CAPACITY_EXCEEDED.dnr(),
        Errno::ENOMEM | Errno::ESHUTDOWN => Status::COMMAND_INTERRUPTED,
        Errno::EINVAL | Errno::EOVERFLOW | Errno::ENOTSUP => Status::INTERNAL_ERROR,
        _ if changes => Status::WRITE_FAULT,
        _ => Status::UNRECOVERED_READ_ERROR,
    }
}

#[cfg(test)]
mod tests;
