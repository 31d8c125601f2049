//! One operation of one host on the ring, until it has succeeded or failed.
//!
//! # Ownership
//! While the kernel uses a task's buffer, the task owns it. Keep the task (in a slab, say) until [`DiskTask::resume`]
//! returned `Done`, even if its submitter is gone. A task that is dropped too early leaks its buffers, which the kernel
//! may still access.
//!
//! # Force Unit Access
//! The system reports a failed write-back once to each descriptor, whichever process has written. A forced write gets
//! the report of its own descriptor. On the descriptor of the flushes it would consume the report of a concurrent
//! flush, which would succeed. So writes to that descriptor are not forced, and the submitter flushes then.
//!
//! # Liveness
//! `Pending` means that exactly one entry with the task's user data is in the ring, whose completion must be passed to
//! `resume`. Each step makes progress, falls back to a simpler method, or ends the task.

use std::io;
use std::mem;
use std::sync::Arc;

use io_uring::{opcode, squeue, types};
use roadtrain_wire::status::Status;

use super::file::{Allocate, BlockFile};
use super::status::{TransferDirection, from_errno};
use crate::zeroes::{ZEROES_BYTES, zeroes};
use crate::{ByteRange, StoreCompletion, StoreOperation, StoreToken};
use roadtrain_system::buffer::Buffer;
use roadtrain_system::ring::{ReactorRing, RingSqe};

/// Bytes that a Compare reads at once.
const COMPARE_BYTES: usize = 64 << 10;

/// State of a task after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum TaskProgress {
    /// Waits for the completion with the task's user data.
    Pending,
    /// Finished, with or without success.
    Done(Result<(), Status>),
}

/// An operation in flight.
#[derive(Debug)]
pub(crate) struct DiskTask {
    work: DiskTaskWork,
    disk: Arc<BlockFile>,
    user_data: u64,
    /// Step in the ring, if any.
    step: Option<DiskStep>,
}

/// The operation with its progress.
#[derive(Debug)]
struct DiskTaskWork {
    op: StoreOperation,
    /// Data to read, write or compare; other operations leave it alone.
    buffer: Option<Buffer>,
    /// Buffer of a Compare for the stored data.
    scratch: Option<Buffer>,
    /// Bytes that have been read, written, compared or zeroed.
    done: u64,
    is_synced: bool,
    /// True if direct I/O does not fit the remaining range.
    cached: bool,
    /// True once no further step may start.
    is_cancelled: bool,
    /// True if the kernel lacked resources: later steps wait in a kernel worker instead of failing with EAGAIN.
    patient: bool,
    /// True if a part was written without being forced, though it was to be.
    is_unforced: bool,
}

/// One entry in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DiskStep {
    Read,
    Write,
    Sync,
    Allocate(Allocate),
    WriteZeroes,
    ReadToCompare,
}

impl DiskTask {
    /// Makes a task for a checked operation, without starting it.
    pub(crate) fn new(
        disk: Arc<BlockFile>,
        op: StoreOperation,
        buffer: Option<Buffer>,
    ) -> DiskTask {
        let work = DiskTaskWork {
            op,
            buffer,
            scratch: None,
            done: 0,
            is_synced: false,
            cached: false,
            is_cancelled: false,
            patient: false,
            is_unforced: false,
        };
        DiskTask { work, disk, user_data: 0, step: None }
    }

    /// Starts the task. If the result is `Pending`, completions with `user_data` go to [`resume`](Self::resume).
    pub(crate) fn start(&mut self, ring: &mut ReactorRing, user_data: u64) -> TaskProgress {
        debug_assert!(self.step.is_none() && self.work.done == 0, "a task starts once");
        self.user_data = user_data;
        self.proceed(ring)
    }

    /// Cancels the task: no further step starts, and the kernel is requested to abort the current one, unless others
    /// depend on it (a flush). The task still ends through [`resume`](Self::resume), with Command Abort Requested or as
    /// if it had not been cancelled. The kernel's reply to the request has `user_data`.
    pub(crate) fn cancel(&mut self, ring: &mut ReactorRing, user_data: u64) {
        self.work.is_cancelled = true;
        if let Some(
            DiskStep::Read | DiskStep::Write | DiskStep::WriteZeroes | DiskStep::ReadToCompare,
        ) = self.step
        {
            ring.cancel(self.user_data, user_data);
        }
    }

    /// Takes the result of the completion for which it was waiting.
    pub(crate) fn resume(&mut self, result: i32, ring: &mut ReactorRing) -> TaskProgress {
        let Some(step) = self.step.take() else {
            debug_assert!(false, "a task that was not pending was resumed");
            return TaskProgress::Done(Err(Status::INTERNAL_ERROR));
        };
        let outcome = match u32::try_from(result) {
            Ok(count) => self.work.advance(step, u64::from(count)),
            // An interrupted flush may have consumed a report of errors.
            Err(_) if self.work.is_cancelled && step != DiskStep::Sync && was_given_up(-result) => {
                Err(Status::ABORT_REQUESTED)
            }
            Err(_) => self.work.recover(step, -result, &self.disk),
        };
        match outcome {
            Ok(()) => self.proceed(ring),
            Err(status) => TaskProgress::Done(Err(status)),
        }
    }

    /// True if the kernel has an entry of this task, so that it must be kept.
    pub(crate) fn is_pending(&self) -> bool {
        self.step.is_some()
    }

    /// Returns the completion of a finished task.
    pub(crate) fn completion(
        &mut self,
        token: StoreToken,
        result: Result<(), Status>,
    ) -> StoreCompletion {
        debug_assert!(!self.is_pending());
        let (buffer, is_unforced) = (self.work.buffer.take(), self.work.is_unforced);
        StoreCompletion { token, result, buffer, is_unforced: is_unforced && result.is_ok() }
    }

    /// Pushes the next step, if there is one.
    fn proceed(&mut self, ring: &mut ReactorRing) -> TaskProgress {
        let disk = &*self.disk;
        let Some(step) = self.work.next_step(disk) else { return TaskProgress::Done(Ok(())) };
        if self.work.is_cancelled {
            return TaskProgress::Done(Err(Status::ABORT_REQUESTED));
        }
        let sqe = self.work.entry(step, disk).user_data(self.user_data);
        self.step = Some(step);
        // SAFETY: the entry points into buffers that this task owns until the completion was taken,
        // and leaks if it is dropped before; or into a static.
        unsafe { ring.push(&sqe) };
        TaskProgress::Pending
    }
}

impl DiskTaskWork {
    /// Returns the next step, given the progress and the features that the disk lacks.
    fn next_step(&mut self, disk: &BlockFile) -> Option<DiskStep> {
        let moves_more = self.buffer.as_ref().is_some_and(|b| self.done < b.len() as u64);
        match &self.op {
            StoreOperation::Read { .. } => moves_more.then_some(DiskStep::Read),
            StoreOperation::Write { .. } => moves_more.then_some(DiskStep::Write),
            StoreOperation::Compare { .. } => moves_more.then_some(DiskStep::ReadToCompare),
            // Only for other stores; allocation queries do not use the ring.
            StoreOperation::ReadInPlace { .. }
            | StoreOperation::QueryAllocation { .. }
            | StoreOperation::CompareAndWrite { .. }
            | StoreOperation::WriteUncorrectable { .. } => None,
            StoreOperation::Flush => (!self.is_synced).then_some(DiskStep::Sync),
            StoreOperation::Discard { range } => {
                let more = self.done < range.len && disk.can(Allocate::Punch);
                more.then_some(DiskStep::Allocate(Allocate::Punch))
            }
            StoreOperation::WriteZeroes { range, deallocate } => {
                if self.done == range.len {
                    return None;
                }
                if *deallocate && disk.can(Allocate::Punch) {
                    return Some(DiskStep::Allocate(Allocate::Punch));
                }
                let zero = disk.can(Allocate::Zero);
                Some(if zero { DiskStep::Allocate(Allocate::Zero) } else { DiskStep::WriteZeroes })
            }
        }
    }

    fn entry(&mut self, step: DiskStep, disk: &BlockFile) -> RingSqe {
        let sqe = self.bare_entry(step, disk);
        let in_worker = self.patient || disk.may_hold_submission();
        if in_worker { sqe.flags(squeue::Flags::ASYNC) } else { sqe }
    }

    fn bare_entry(&mut self, step: DiskStep, disk: &BlockFile) -> RingSqe {
        let data = types::Fd(disk.data_fd(self.cached));
        let control = types::Fd(disk.control_fd());
        let done = self.done;
        match (step, &self.op, &mut self.buffer) {
            (DiskStep::Read, StoreOperation::Read { offset }, Some(buffer)) => {
                let rest = &mut buffer[done as usize..];
                opcode::Read::new(data, rest.as_mut_ptr(), rest.len() as u32)
                    .offset(*offset + done)
                    .build()
            }
            (DiskStep::Write, StoreOperation::Write { offset, fua }, Some(buffer)) => {
                let rest = &buffer[done as usize..];
                let shares_reports = data.0 == control.0;
                self.is_unforced |= *fua && shares_reports;
                let forces = *fua && !shares_reports;
                opcode::Write::new(data, rest.as_ptr(), rest.len() as u32)
                    .offset(*offset + done)
                    .rw_flags(if forces { libc::RWF_DSYNC } else { 0 })
                    .build()
            }
            (DiskStep::ReadToCompare, StoreOperation::Compare { offset }, Some(expected)) => {
                let scratch = self
                    .scratch
                    .get_or_insert_with(|| Buffer::alloc(expected.len().min(COMPARE_BYTES)));
                let len = scratch.len().min(expected.len() - done as usize);
                opcode::Read::new(data, scratch.as_mut_ptr(), len as u32)
                    .offset(*offset + done)
                    .build()
            }
            (
                DiskStep::Allocate(how),
                StoreOperation::Discard { range } | StoreOperation::WriteZeroes { range, .. },
                _,
            ) => {
                let rest = ByteRange { offset: range.offset + done, len: range.len - done };
                allocate(control, how, rest)
            }
            (DiskStep::WriteZeroes, StoreOperation::WriteZeroes { range, .. }, _) => {
                let len = (range.len - done).min(ZEROES_BYTES as u64);
                let from = zeroes(len as usize).expect("that many are at hand");
                opcode::Write::new(data, from, len as u32).offset(range.offset + done).build()
            }
            (DiskStep::Sync, ..) => opcode::Fsync::new(types::Fd(disk.control_fd()))
                .flags(types::FsyncFlags::DATASYNC)
                .build(),
            // `next_step` pairs steps with operations as above.
            (step, op, _) => unreachable!("{step:?} for {op:?}"),
        }
    }

    /// Records the progress of a step.
    fn advance(&mut self, step: DiskStep, count: u64) -> Result<(), Status> {
        match step {
            // The file ends before its capacity: another process has cut it.
            DiskStep::Read | DiskStep::ReadToCompare if count == 0 => {
                Err(Status::UNRECOVERED_READ_ERROR)
            }
            DiskStep::Write | DiskStep::WriteZeroes if count == 0 => Err(Status::WRITE_FAULT),
            DiskStep::ReadToCompare => self.compare(count),
            DiskStep::Read | DiskStep::Write | DiskStep::WriteZeroes => {
                self.done += count;
                Ok(())
            }
            DiskStep::Sync => {
                self.is_synced = true;
                Ok(())
            }
            DiskStep::Allocate(_) => {
                if let StoreOperation::Discard { range }
                | StoreOperation::WriteZeroes { range, .. } = self.op
                {
                    self.done = range.len;
                }
                Ok(())
            }
        }
    }

    fn compare(&mut self, count: u64) -> Result<(), Status> {
        let (Some(expected), Some(scratch)) = (&self.buffer, &self.scratch) else {
            return Err(Status::INTERNAL_ERROR);
        };
        let (at, count) = (self.done as usize, count as usize);
        if scratch.get(..count) != expected.get(at..at + count) {
            return Err(Status::COMPARE_FAILURE.dnr());
        }
        self.done += count as u64;
        Ok(())
    }

    /// Retries, or falls back to another method, if there is one.
    fn recover(&mut self, step: DiskStep, errno: i32, disk: &BlockFile) -> Result<(), Status> {
        match (step, errno) {
            // A retry would succeed, whatever was lost.
            (DiskStep::Sync, _) => {}
            (_, libc::EINTR) => return Ok(()),
            (_, libc::EAGAIN) => {
                self.patient = true;
                return Ok(());
            }
            (DiskStep::Allocate(how), libc::EOPNOTSUPP | libc::ENOSYS | libc::ENOTTY) => {
                disk.refuse(how);
                return Ok(());
            }
            (DiskStep::Allocate(_), _) => {}
            (_, libc::EINVAL) if disk.has_direct() && !self.cached => {
                if self.done == 0 {
                    disk.refuse_direct();
                }
                self.cached = true;
                return Ok(());
            }
            _ => {}
        }
        let access = match step {
            DiskStep::Read | DiskStep::ReadToCompare => TransferDirection::Read,
            _ => TransferDirection::Write,
        };
        let (offset, name) = describe(&self.op);
        disk.report(name, offset + self.done, &io::Error::from_raw_os_error(errno));
        let status = from_errno(errno, access);
        match step {
            DiskStep::Sync if errno != libc::ECANCELED => Err(status.dnr()),
            _ => Err(status),
        }
    }
}

impl Drop for DiskTask {
    fn drop(&mut self) {
        if self.is_pending() {
            #[expect(clippy::mem_forget, reason = "the kernel still has the memory")]
            mem::forget((self.work.buffer.take(), self.work.scratch.take()));
        }
    }
}

/// Returns the operation's offset, and its name for people.
fn describe(op: &StoreOperation) -> (u64, &'static str) {
    match op {
        StoreOperation::Read { offset } => (*offset, "read"),
        StoreOperation::ReadInPlace { range } => (range.offset, "read"),
        StoreOperation::QueryAllocation { range } => (range.offset, "look up"),
        StoreOperation::Write { offset, .. } => (*offset, "write"),
        StoreOperation::Flush => (0, "flush"),
        StoreOperation::Discard { range } => (range.offset, "discard"),
        StoreOperation::WriteZeroes { range, .. } => (range.offset, "write zeroes"),
        StoreOperation::Compare { offset } => (*offset, "compare"),
        StoreOperation::CompareAndWrite { offset, .. } => (*offset, "compare and write"),
        StoreOperation::WriteUncorrectable { range } => (range.offset, "mark"),
    }
}

/// True for an errno of an operation that the kernel has aborted.
fn was_given_up(errno: i32) -> bool {
    matches!(errno, libc::ECANCELED | libc::EINTR | libc::EAGAIN)
}

fn allocate(fd: types::Fd, how: Allocate, range: ByteRange) -> RingSqe {
    opcode::Fallocate::new(fd, range.len).offset(range.offset).mode(how.mode()).build()
}
