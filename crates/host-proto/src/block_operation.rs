//! Operations on blocks as requests to a controller, for a store whose blocks are a namespace of it.
//!
//! | operation | requests |
//! |---|---|
//! | Read, Write, Compare | one for each [`BackendRules::transfer_bytes_max`], one after the other |
//! | Write with Force Unit Access, if the controller has a volatile cache | the same, not forced: the caller flushes |
//! | Compare, without the command | reads, whose data the caller compares |
//! | Write Zeroes | one for each 65,536 blocks; without the command: writes of zeroes |
//! | Discard | one; without the command: none |
//! | Compare and Write | one; without the command it is refused, as it would not be atomic for other users of the blocks |
//! | Write Uncorrectable | one for each 65,536 blocks; without the command it is refused |
//!
//! A forced write could receive the report of lost writes of other users of this store, and only its own user would
//! know. So it is not forced, and the flush of the caller, which covers all users, gets the report.
//!
//! A request without a path ends in one of two ways. If the controller has refused it, or if it changes nothing, its
//! status is Asymmetric Access Inaccessible: a host may repeat it on another path. If it may have changed blocks, or may
//! still do so, its status is Internal Error with Do Not Retry: a repetition on another path could be overtaken.

use crate::bringup::{ControllerInfo, NamespaceInfo};
use core::ops::Range;
use roadtrain_proto::op::{ByteRange, StoreOperation};
use roadtrain_wire::identify::{fuses, oncs, vwc};
use roadtrain_wire::status::Status;

/// Maximum blocks of a Write Zeroes or Write Uncorrectable.
const BLOCKS_MAX: u64 = 1 << 16;
/// Maximum blocks of a deallocation.
const DISCARD_BLOCKS_MAX: u64 = u32::MAX as u64;
/// Status of a change with an unknown outcome.
const UNKNOWN: Status = Status::INTERNAL_ERROR.dnr();
/// Status of a request that another path may carry.
const NO_PATH: Status = Status::ANA_INACCESSIBLE;

/// Properties of the controller and the namespace that the requests depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackendRules {
    /// Block size as a power of two.
    pub lba_shift: u8,
    /// Maximum bytes of a transfer.
    pub transfer_bytes_max: u32,
    /// True if unflushed writes may be lost.
    pub is_volatile: bool,
    /// Optional NVM commands, as in Identify Controller.
    pub oncs: u16,
    /// Maximum blocks of a Compare and Write; 0: not supported.
    pub fused_blocks_max: u32,
}

impl BackendRules {
    /// Returns the rules of a namespace; `None` for a block size that is not a power of two.
    #[must_use]
    pub fn of(info: &ControllerInfo, namespace: &NamespaceInfo) -> Option<BackendRules> {
        let bytes = namespace.block_bytes;
        let fuses = info.identify.fuses.get() & fuses::COMPARE_AND_WRITE != 0;
        bytes.is_power_of_two().then(|| BackendRules {
            lba_shift: bytes.trailing_zeros() as u8,
            transfer_bytes_max: (info.transfer_bytes_max / bytes * bytes).max(bytes),
            is_volatile: info.identify.vwc & vwc::PRESENT != 0,
            oncs: info.identify.oncs.get(),
            fused_blocks_max: if fuses { u32::from(info.identify.acwu.get()) + 1 } else { 0 },
        })
    }

    fn has(&self, command: u16) -> bool {
        self.oncs & command != 0
    }
}

/// Kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendOp {
    /// Read into the operation's buffer.
    Read,
    /// Write from the operation's buffer.
    Write {
        /// True to force unit access.
        fua: bool,
    },
    /// Write zeroes from a buffer of the caller.
    WriteZeroData,
    /// Write Zeroes.
    WriteZeroes {
        /// True to deallocate the blocks.
        deallocate: bool,
    },
    /// Deallocate.
    Discard,
    /// Compare with the operation's buffer.
    Compare,
    /// Read into a buffer of the caller, who compares it with the operation's.
    ReadToCompare,
    /// Flush.
    Flush,
    /// Compare with the first half of the operation's buffer, then write the second half.
    CompareAndWrite {
        /// True to force unit access.
        fua: bool,
    },
    /// Write Uncorrectable.
    WriteUncorrectable,
}

impl BackendOp {
    fn changes(self) -> bool {
        use BackendOp as Op;
        match self {
            Op::Write { .. } | Op::WriteZeroData | Op::WriteZeroes { .. } | Op::Discard => true,
            Op::CompareAndWrite { .. } | Op::WriteUncorrectable => true,
            Op::Read | Op::Compare | Op::ReadToCompare | Op::Flush => false,
        }
    }
}

/// Request for a part of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendRequest {
    /// Kind.
    pub op: BackendOp,
    /// First block.
    pub slba: u64,
    /// Number of blocks; 0 for Flush.
    pub blocks: u32,
    /// Bytes of the operation's buffer that it moves or compares; empty if none.
    pub data: Range<usize>,
}

/// Result of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockResult {
    /// Success, or the status for the host.
    pub result: Result<(), Status>,
    /// True after a write that was to be forced and was not: the caller flushes.
    pub is_unforced: bool,
}

/// Operation on blocks.
#[derive(Clone, Copy, Debug)]
pub struct BlockOperation {
    op: BackendOp,
    /// First byte.
    offset: u64,
    /// Length in bytes.
    len: u64,
    /// Bytes that are done.
    done: u64,
    /// Maximum bytes of a request.
    step: u64,
    lba_shift: u8,
    /// True if the write was to be forced and is not.
    is_unforced: bool,
}

impl BlockOperation {
    /// Creates an operation, with a buffer of `buffer_bytes`. The caller has checked its range.
    ///
    /// # Errors
    /// The result of an operation without requests.
    pub fn new(
        op: StoreOperation,
        buffer_bytes: u64,
        rules: &BackendRules,
    ) -> Result<BlockOperation, Result<(), Status>> {
        let transfer = u64::from(rules.transfer_bytes_max);
        let blocks_max = BLOCKS_MAX << rules.lba_shift;
        let mut is_unforced = false;
        let (op, range, step) = match op {
            StoreOperation::Flush if !rules.is_volatile => return Err(Ok(())),
            StoreOperation::Flush => (BackendOp::Flush, ByteRange { offset: 0, len: 0 }, 1),
            StoreOperation::Discard { .. } if !rules.has(oncs::DATASET_MANAGEMENT) => {
                return Err(Ok(()));
            }
            StoreOperation::Discard { range } => {
                (BackendOp::Discard, range, DISCARD_BLOCKS_MAX << rules.lba_shift)
            }
            StoreOperation::WriteZeroes { range, .. } if !rules.has(oncs::WRITE_ZEROES) => {
                (BackendOp::WriteZeroData, range, transfer)
            }
            StoreOperation::WriteZeroes { range, deallocate } => {
                (BackendOp::WriteZeroes { deallocate }, range, blocks_max)
            }
            StoreOperation::Read { offset } => {
                (BackendOp::Read, ByteRange { offset, len: buffer_bytes }, transfer)
            }
            StoreOperation::Write { offset, fua } => {
                is_unforced = fua && rules.is_volatile;
                let op = BackendOp::Write { fua: fua && !is_unforced };
                (op, ByteRange { offset, len: buffer_bytes }, transfer)
            }
            StoreOperation::Compare { offset } => {
                let has_command = rules.has(oncs::COMPARE);
                let op = if has_command { BackendOp::Compare } else { BackendOp::ReadToCompare };
                (op, ByteRange { offset, len: buffer_bytes }, transfer)
            }
            StoreOperation::CompareAndWrite { offset, fua } => {
                let len = buffer_bytes / 2;
                if len > u64::from(rules.fused_blocks_max) << rules.lba_shift {
                    return Err(Err(match rules.fused_blocks_max {
                        0 => Status::INVALID_OPCODE.dnr(),
                        _ => Status::ATOMIC_WRITE_UNIT_EXCEEDED.dnr(),
                    }));
                }
                is_unforced = fua && rules.is_volatile;
                let op = BackendOp::CompareAndWrite { fua: fua && !is_unforced };
                (op, ByteRange { offset, len }, len.max(1))
            }
            StoreOperation::WriteUncorrectable { .. } if !rules.has(oncs::WRITE_UNCORRECTABLE) => {
                return Err(Err(Status::INVALID_OPCODE.dnr()));
            }
            StoreOperation::WriteUncorrectable { range } => {
                (BackendOp::WriteUncorrectable, range, blocks_max)
            }
            StoreOperation::ReadInPlace { .. } | StoreOperation::QueryAllocation { .. } => {
                return Err(Err(Status::INTERNAL_ERROR.dnr()));
            }
        };
        if range.len == 0 && op != BackendOp::Flush {
            return Err(Ok(()));
        }
        let (ByteRange { offset, len }, lba_shift) = (range, rules.lba_shift);
        Ok(BlockOperation { op, offset, len, done: 0, step, lba_shift, is_unforced })
    }

    /// True if one request moves all of the buffer: the request may have it.
    #[inline]
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.len <= self.step
            && !matches!(self.op, BackendOp::WriteZeroData | BackendOp::ReadToCompare)
    }

    /// Block size as a power of two.
    #[must_use]
    pub fn lba_shift(&self) -> u8 {
        self.lba_shift
    }

    /// Returns the next request.
    #[inline]
    #[must_use]
    pub fn request(&self) -> BackendRequest {
        let len = self.step.min(self.len - self.done);
        let data = match self.op {
            BackendOp::Read
            | BackendOp::Write { .. }
            | BackendOp::Compare
            | BackendOp::ReadToCompare => self.done as usize..(self.done + len) as usize,
            _ => 0..0,
        };
        BackendRequest {
            op: self.op,
            slba: (self.offset + self.done) >> self.lba_shift,
            blocks: (len >> self.lba_shift) as u32,
            data,
        }
    }

    /// Handles the end of the request: its status, and whether compared data matched. Returns the result of the operation
    /// if that was its last request.
    #[inline]
    pub fn ended(&mut self, status: Status, matches: bool) -> Option<BlockResult> {
        let failed = |result| Some(BlockResult { result: Err(result), is_unforced: false });
        if !status.is_success() {
            return failed(host_status(self.op.changes(), status));
        }
        if !matches {
            return failed(Status::COMPARE_FAILURE.dnr());
        }
        self.done += self.step.min(self.len - self.done);
        (self.done == self.len)
            .then_some(BlockResult { result: Ok(()), is_unforced: self.is_unforced })
    }
}

/// Returns the status for a host of the store when a request has failed; `changes`: it may have changed blocks.
#[must_use]
pub fn host_status(changes: bool, status: Status) -> Status {
    // The host has given up; a lost controller may have executed the request, or may still do so.
    if status.is(Status::HOST_ABORTED) || status.is(Status::HOST_PATH_ERROR) {
        return if changes { UNKNOWN } else { NO_PATH };
    }
    // The controller has refused it, or the namespace is gone, or another one has its NSID: it was not executed.
    if status.is_path_related() || status.is(Status::INVALID_NAMESPACE) {
        return NO_PATH;
    }
    if status.is(Status::COMPARE_FAILURE) {
        return Status::COMPARE_FAILURE.dnr();
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: BackendRules = BackendRules {
        lba_shift: 9,
        transfer_bytes_max: 8192,
        is_volatile: true,
        oncs: u16::MAX,
        fused_blocks_max: 1,
    };

    /// Another target's hosts may use the same blocks, so nothing but the controller makes a comparison and a write one.
    #[test]
    fn a_compare_and_write_is_the_controllers_or_refused() {
        let op = StoreOperation::CompareAndWrite { offset: 512, fua: true };
        let (requests, result) = run(op, 1024, &RULES);
        let first = &requests[0];
        assert_eq!((requests.len(), first.slba, first.blocks), (1, 1, 1));
        assert_eq!(first.op, BackendOp::CompareAndWrite { fua: false });
        assert_eq!(result, BlockResult { result: Ok(()), is_unforced: true });
        let refused = |bytes, blocks| {
            let rules = BackendRules { fused_blocks_max: blocks, ..RULES };
            BlockOperation::new(op, bytes, &rules).unwrap_err().unwrap_err()
        };
        assert_eq!(refused(1024, 0), Status::INVALID_OPCODE.dnr());
        assert_eq!(refused(2048, 1), Status::ATOMIC_WRITE_UNIT_EXCEEDED.dnr());
        let lost = BlockOperation::new(op, 1024, &RULES).unwrap().ended(Status::HOST_ABORTED, true);
        assert_eq!(lost.unwrap().result, Err(UNKNOWN), "it may have been executed");
    }

    /// Runs an operation whose requests succeed; returns them and the result.
    fn run(
        op: StoreOperation,
        bytes: u64,
        rules: &BackendRules,
    ) -> (Vec<BackendRequest>, BlockResult) {
        let mut operation = BlockOperation::new(op, bytes, rules).unwrap();
        let mut requests = Vec::new();
        loop {
            requests.push(operation.request());
            if let Some(result) = operation.ended(Status::SUCCESS, true) {
                return (requests, result);
            }
        }
    }

    #[test]
    fn a_transfer_is_split_at_the_limit_of_the_controller() {
        let (requests, result) = run(StoreOperation::Read { offset: 512 }, 20_480, &RULES);
        let parts: Vec<_> =
            requests.iter().map(|part| (part.slba, part.blocks, part.data.clone())).collect();
        assert_eq!(parts, [(1, 16, 0..8192), (17, 16, 8192..16384), (33, 8, 16384..20480)]);
        assert_eq!(result, BlockResult { result: Ok(()), is_unforced: false });
        let whole =
            |bytes| BlockOperation::new(StoreOperation::Read { offset: 0 }, bytes, &RULES).unwrap();
        assert!(whole(8192).is_whole() && !whole(8704).is_whole());
    }

    #[test]
    fn zeroes_and_deallocations_have_limits_of_their_own() {
        let range = ByteRange { offset: 0, len: (BLOCKS_MAX + 1) << 9 };
        let zeroes = StoreOperation::WriteZeroes { range, deallocate: true };
        let (requests, _) = run(zeroes, 0, &RULES);
        let parts: Vec<_> = requests.iter().map(|part| (part.slba, part.blocks)).collect();
        assert_eq!(parts, [(0, 1 << 16), (1 << 16, 1)]);
        let (requests, _) = run(StoreOperation::Discard { range }, 0, &RULES);
        assert_eq!(requests.len(), 1);
        let without = BackendRules { oncs: 0, ..RULES };
        let range = ByteRange { offset: 0, len: 16384 };
        let (requests, _) =
            run(StoreOperation::WriteZeroes { range, deallocate: false }, 0, &without);
        assert_eq!(
            requests.iter().map(|part| part.op).collect::<Vec<_>>(),
            [BackendOp::WriteZeroData, BackendOp::WriteZeroData]
        );
        let discard = BlockOperation::new(StoreOperation::Discard { range }, 0, &without);
        assert_eq!(discard.err(), Some(Ok(())), "advice");
    }

    #[test]
    fn a_write_is_forced_only_where_it_takes_no_report_from_others() {
        let write = StoreOperation::Write { offset: 0, fua: true };
        let (requests, result) = run(write, 512, &RULES);
        assert_eq!((requests[0].op, result.is_unforced), (BackendOp::Write { fua: false }, true));
        let stable = BackendRules { is_volatile: false, ..RULES };
        let (requests, result) = run(write, 512, &stable);
        assert_eq!((requests[0].op, result.is_unforced), (BackendOp::Write { fua: true }, false));
        let flush = BlockOperation::new(StoreOperation::Flush, 0, &stable);
        assert_eq!(flush.err(), Some(Ok(())));
    }

    #[test]
    fn data_is_compared_with_or_without_the_command() {
        let compare = StoreOperation::Compare { offset: 0 };
        for (oncs, op) in [(u16::MAX, BackendOp::Compare), (0, BackendOp::ReadToCompare)] {
            let rules = BackendRules { oncs, ..RULES };
            let mut operation = BlockOperation::new(compare, 512, &rules).unwrap();
            assert_eq!(operation.request().op, op);
            let result = operation.ended(Status::SUCCESS, false).unwrap().result;
            assert_eq!(result, Err(Status::COMPARE_FAILURE.dnr()));
        }
    }

    /// A host repeats a request on another path after a status of the path. A write that may still be executed must not
    /// be repeated there.
    #[test]
    fn only_a_request_without_effect_is_for_another_path() {
        for (changes, status, seen) in [
            (false, Status::HOST_ABORTED, NO_PATH),
            (true, Status::HOST_ABORTED, UNKNOWN),
            (true, Status::HOST_PATH_ERROR, UNKNOWN),
            (false, Status::HOST_PATH_ERROR, NO_PATH),
            (true, Status::ANA_TRANSITION, NO_PATH),
            (true, Status::INVALID_NAMESPACE.dnr(), NO_PATH),
            (true, Status::WRITE_FAULT.dnr(), Status::WRITE_FAULT.dnr()),
            (false, Status::RESERVATION_CONFLICT.dnr(), Status::RESERVATION_CONFLICT.dnr()),
        ] {
            assert_eq!(host_status(changes, status), seen, "{status}, changes: {changes}");
        }
    }
}
