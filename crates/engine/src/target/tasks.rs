//! Commands in the backends. A task stays here until the kernel is done with its buffer, whatever
//! becomes of the lane that started it.

use crate::backend::{Backend, ByteRange, IoOp, IoTask, Progress};
use crate::buffer::{Buffer, Pool};
use crate::ring::{Ring, UserData};
use roadtrain_proto::target::io::{DSM_RANGE_BYTES, IoCommand};
use roadtrain_wire::status::Status;
use std::sync::Arc;

/// Marks a task's completions in the ring.
pub(super) const KIND: u8 = 16;
/// Octets that a Compare reads at once.
const COMPARE_BYTES: usize = 64 << 10;

/// Whose command it is: lane index and use, slot.
pub(super) type Owner = ((u32, u32), u16);

/// A finished command.
pub(super) struct Outcome {
    pub(super) result: Result<(), Status>,
    pub(super) buffer: Option<Buffer>,
}

struct Entry {
    task: IoTask,
    owner: Owner,
    /// Keeps the backend open.
    backend: Arc<Backend>,
    /// A flush of every namespace: those still to come.
    rest: Vec<Arc<Backend>>,
}

#[derive(Default)]
pub(super) struct Tasks {
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
}

impl Tasks {
    /// Starts a command; `None`: it ends later.
    pub(super) fn start(
        &mut self,
        ring: &mut Ring,
        pool: &mut Pool,
        owner: Owner,
        command: &IoCommand,
        backend: Arc<Backend>,
        buffer: Option<Buffer>,
    ) -> Option<Outcome> {
        let op = match operation(command, &backend, buffer) {
            Ok(op) => op,
            Err((status, buffer)) => return Some(Outcome { result: Err(status), buffer }),
        };
        let (op, used) = op;
        if let Some(used) = used {
            pool.give(used);
        }
        self.begin(ring, Entry { task: IoTask::new(op), owner, backend, rest: Vec::new() })
    }

    /// Flushes several backends, one after the other.
    pub(super) fn flush_all(
        &mut self,
        ring: &mut Ring,
        owner: Owner,
        mut backends: Vec<Arc<Backend>>,
    ) -> Option<Outcome> {
        let Some(backend) = backends.pop() else {
            return Some(Outcome { result: Ok(()), buffer: None });
        };
        let task = IoTask::new(IoOp::Flush);
        self.begin(ring, Entry { task, owner, backend, rest: backends })
    }

    fn begin(&mut self, ring: &mut Ring, entry: Entry) -> Option<Outcome> {
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            (self.entries.len() - 1) as u32
        });
        let entry = self.entries[index as usize].insert(entry);
        let user_data = UserData { kind: KIND, index, generation: 0 }.pack();
        let progress = entry.task.start(&entry.backend, ring, user_data);
        self.advance(ring, index, progress)
    }

    /// A completion of the ring; the command's owner and outcome when it has ended.
    pub(super) fn resume(
        &mut self,
        ring: &mut Ring,
        index: u32,
        result: i32,
    ) -> Option<(Owner, Outcome)> {
        let entry = self.entries.get_mut(index as usize)?.as_mut()?;
        let owner = entry.owner;
        let progress = entry.task.resume(result, ring);
        self.advance(ring, index, progress).map(|outcome| (owner, outcome))
    }

    fn advance(&mut self, ring: &mut Ring, index: u32, mut progress: Progress) -> Option<Outcome> {
        let entry = self.entries[index as usize].as_mut()?;
        loop {
            let result = match progress {
                Progress::Pending => return None,
                Progress::Done(result) => result,
            };
            let Some(next) = entry.rest.pop().filter(|_| result.is_ok()) else {
                let buffer = match entry.task.take_op() {
                    Some(IoOp::Read { buffer, .. } | IoOp::Write { buffer, .. }) => Some(buffer),
                    Some(IoOp::Compare { expected, .. }) => Some(expected),
                    _ => None,
                };
                self.entries[index as usize] = None;
                self.free.push(index);
                return Some(Outcome { result, buffer });
            };
            entry.backend = next;
            entry.task = IoTask::new(IoOp::Flush);
            let user_data = UserData { kind: KIND, index, generation: 0 }.pack();
            progress = entry.task.start(&entry.backend, ring, user_data);
        }
    }

    /// Tasks under way.
    pub(super) fn count(&self) -> usize {
        self.entries.len() - self.free.len()
    }
}

impl Drop for Tasks {
    /// The kernel may still use the buffers of tasks that did not end: they are lost rather than reused.
    fn drop(&mut self) {
        if self.count() > 0 {
            tracing::warn!(count = self.count(), "the backend does not answer");
            std::mem::forget(std::mem::take(&mut self.entries));
        }
    }
}

type Failed = (Status, Option<Buffer>);

/// The backend's operation for a command, and the buffer that it does not need any more.
fn operation(
    command: &IoCommand,
    backend: &Backend,
    buffer: Option<Buffer>,
) -> Result<(IoOp, Option<Buffer>), Failed> {
    let missing = (Status::INTERNAL_ERROR, None);
    Ok(match *command {
        IoCommand::Read { offset, .. } => {
            (IoOp::Read { offset, buffer: buffer.ok_or(missing)? }, None)
        }
        IoCommand::Write { offset, fua, .. } => {
            (IoOp::Write { offset, buffer: buffer.ok_or(missing)?, fua }, None)
        }
        IoCommand::Compare { offset, length } => {
            let scratch = (!backend.is_immediate())
                .then(|| Buffer::alloc((length as usize).min(COMPARE_BYTES)));
            (IoOp::Compare { offset, expected: buffer.ok_or(missing)?, scratch }, None)
        }
        IoCommand::WriteZeroes { offset, length, deallocate, fua } => {
            let range = ByteRange { offset, len: length };
            (IoOp::WriteZeroes { range, fua, deallocate }, buffer)
        }
        IoCommand::DatasetManagement { ranges: count, deallocate, .. } => {
            let list = buffer.ok_or(missing)?;
            match ranges(&list, count, backend) {
                Ok(ranges) if deallocate => (IoOp::Discard { ranges }, Some(list)),
                Ok(_) => (IoOp::Discard { ranges: Box::default() }, Some(list)),
                Err(status) => return Err((status, Some(list))),
            }
        }
        IoCommand::Flush => (IoOp::Flush, buffer),
    })
}

/// The first `count` ranges of a Dataset Management command, checked against the capacity.
fn ranges(list: &[u8], count: u32, backend: &Backend) -> Result<Box<[ByteRange]>, Status> {
    let geometry = backend.geometry();
    let (entries, _) = list.as_chunks::<{ DSM_RANGE_BYTES as usize }>();
    let parse = |entry: &[u8; 16]| {
        let word = |at: usize| {
            u32::from_le_bytes([entry[at], entry[at + 1], entry[at + 2], entry[at + 3]])
        };
        let (blocks, slba) = (u64::from(word(4)), u64::from(word(8)) | u64::from(word(12)) << 32);
        match slba.checked_add(blocks) {
            Some(end) if end <= geometry.blocks => Ok(ByteRange {
                offset: slba << geometry.lba_shift,
                len: blocks << geometry.lba_shift,
            }),
            _ => Err(Status::LBA_OUT_OF_RANGE.dnr()),
        }
    };
    let named = entries.iter().take(count as usize).map(parse);
    named.filter(|range| !matches!(range, Ok(r) if r.len == 0)).collect()
}
