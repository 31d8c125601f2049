//! Queue mode: requests from any thread, passed to the lanes' reactors.
//!
//! A [`HostClient`] costs a hand-over to another thread and back for every request. A program that needs the last
//! microsecond runs on the lane's own reactor instead: see [`Front`](super::Front).

mod front;
mod submission_queue;

use super::api::{Class, IoCompletion, IoOp, IoRequest};
use super::config::HostConfig;
use super::controller::HostController;
use super::error::HostControlError;
use super::view::HostControllerView;
use front::QueueFront;
use roadtrain_reactor::recorded::RecordedRequests;
use roadtrain_system::buffer::Buffer;
use roadtrain_system::platform::{Affinity, numa};
use roadtrain_wire::identify::{fuses, oncs};
use roadtrain_wire::sqe::COPY_RANGE_BYTES;
use roadtrain_wire::status::Status;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
pub use submission_queue::Completer;
use submission_queue::{
    CompletionReply, QueuedRequest, SubmissionQueue, SubmissionRefused, own_queue,
};
use thiserror::Error;

/// Maximum blocks of a Write Zeroes command.
const BLOCKS_MAX: u64 = 1 << 16;
/// Maximum blocks of a Dataset Management range.
const DISCARD_BLOCKS_MAX: u64 = u32::MAX as u64;

/// Connected controller for any number of threads; clones share it.
///
/// Every request that was taken completes exactly once. When the connection is lost it waits for the next one, and
/// fails with [`Status::HOST_PATH_ERROR`] after [`HostConfig::controller_loss_timeout`]. When the last clone is
/// dropped, requests in flight are finished, the controller is shut down, and its threads end.
#[derive(Clone)]
pub struct HostClient {
    inner: Arc<ClientInner>,
}

struct ClientInner {
    view: HostControllerView,
    /// Submission queues, one per reactor.
    queues: Vec<Arc<SubmissionQueue>>,
    /// Queue of the only reactor that is pinned to each core.
    by_core: Vec<Option<usize>>,
    /// True if each queue has room for two commands at once.
    has_room_for_two: bool,
    /// Controller; `None` only while dropping.
    controller: Option<HostController>,
}

/// Failed request, with its buffer.
#[derive(Debug, Error)]
#[error("{op:?} of namespace {nsid}, block {slba}: {status}")]
pub struct RequestError {
    /// Operation.
    pub op: IoOp,
    /// Namespace.
    pub nsid: u32,
    /// First block.
    pub slba: u64,
    /// Final status.
    pub status: Status,
    /// Buffer of the caller.
    pub buffer: Option<Buffer>,
}

impl HostClient {
    /// Connects the admin queue and every lane.
    ///
    /// # Errors
    /// Any failure of the first connection; later losses are repaired.
    pub fn connect(config: HostConfig) -> Result<Self, HostControlError> {
        let system = |source| HostControlError::System { what: "eventfd", source };
        let capacity = usize::from(config.queue_entries);
        let count = config.reactor_count(config.lanes as usize);
        let queues = (0..count).map(|_| SubmissionQueue::new(capacity).map(Arc::new));
        let mut queues = queues.collect::<Result<Vec<_>, _>>().map_err(system)?;
        let mut used = 0;
        let controller = HostController::connect(config, |reactor, _| {
            used = used.max(reactor.index + 1);
            Box::new(QueueFront::new(reactor.index, queues[reactor.index].clone(), reactor.lanes))
        })?;
        queues.truncate(used);
        let view = controller.view().clone();
        let has_room_for_two = capacity.min(view.info().queue_entries_max.into()) > 2;
        let by_core = by_core(view.affinities());
        let controller = Some(controller);
        Ok(HostClient {
            inner: Arc::new(ClientInner { view, queues, by_core, has_room_for_two, controller }),
        })
    }

    /// Runs a closure on the control thread.
    #[cfg(feature = "testing")]
    pub fn call_control(&self, call: impl FnOnce() + Send + 'static) {
        if let Some(controller) = &self.inner.controller {
            controller.call_control(0, call);
        }
    }

    /// Returns the view of the controller and its namespaces; it follows their changes.
    #[must_use]
    pub fn view(&self) -> &HostControllerView {
        &self.inner.view
    }

    /// Queries the reactors for requests that they have recorded recently. Not for a reactor's own thread (a callback).
    #[must_use]
    pub fn recorded(&self) -> RecordedRequests {
        self.inner
            .controller
            .as_ref()
            .map_or_else(RecordedRequests::default, HostController::recorded)
    }

    /// Submits a request; `done` is called once, on the reactor's thread: it must not block there. Waits while
    /// [`HostConfig::queue_entries`] requests wait for each reactor; never waits within `done`.
    pub fn submit(&self, request: IoRequest, done: impl FnOnce(IoCompletion) + Send + 'static) {
        self.put(QueuedRequest { request, reply: CompletionReply::Call(Box::new(done)) });
    }

    /// Submits a request as [`HostClient::submit`] does; its completion goes to `done`.
    pub fn submit_to(&self, request: IoRequest, done: &Sender<IoCompletion>) {
        self.put(QueuedRequest { request, reply: CompletionReply::Send(done.clone()) });
    }

    /// Submits a request without waiting; its completion goes to `done`.
    ///
    /// # Errors
    /// Returns the request if the queues are full.
    pub fn try_submit_to(
        &self,
        request: IoRequest,
        done: &Sender<IoCompletion>,
    ) -> Result<(), IoRequest> {
        self.try_put(QueuedRequest { request, reply: CompletionReply::Send(done.clone()) })
            .map_err(|e| e.request)
    }

    /// Submits a request without waiting and without allocating; its completion goes to `completer`.
    ///
    /// # Errors
    /// Returns the request if the queues are full.
    pub fn try_submit(
        &self,
        request: IoRequest,
        completer: &Arc<dyn Completer>,
    ) -> Result<(), IoRequest> {
        self.try_put(QueuedRequest {
            request,
            reply: CompletionReply::Completer(completer.clone()),
        })
        .map_err(|entry| entry.request)
    }

    fn put(&self, entry: QueuedRequest) {
        let Err(entry) = self.try_put(entry) else { return };
        if let Err(SubmissionRefused::Closed(entry) | SubmissionRefused::Full(entry)) =
            self.preferred_queue().put(entry)
        {
            entry.reply.fail(entry.request, Status::HOST_PATH_ERROR);
        }
    }

    /// Tries every queue, the thread's own first; `Err`: all are full.
    fn try_put(&self, mut entry: QueuedRequest) -> Result<(), QueuedRequest> {
        if !is_sound(&entry.request) {
            entry.reply.fail(entry.request, Status::INVALID_FIELD.dnr());
            return Ok(());
        }
        let queues = &self.inner.queues;
        let preferred_queue = self.preferred_number();
        let mut full = false;
        for step in 0..queues.len() {
            match queues[(preferred_queue + step) % queues.len()].try_put(entry) {
                Ok(()) => return Ok(()),
                Err(SubmissionRefused::Full(again)) => (full, entry) = (true, again),
                Err(SubmissionRefused::Closed(again)) => entry = again,
            }
        }
        if full {
            return Err(entry);
        }
        entry.reply.fail(entry.request, Status::HOST_PATH_ERROR);
        Ok(())
    }

    fn preferred_queue(&self) -> &SubmissionQueue {
        &self.inner.queues[self.preferred_number() % self.inner.queues.len()]
    }

    /// Returns the number of the preferred queue. Requests go to the reactor of the caller's core; without one, threads
    /// are assigned to queues in turn. A reactor's callbacks stay with it.
    fn preferred_number(&self) -> usize {
        let here = || {
            let core = numa::current_core().filter(|_| self.inner.queues.len() > 1)?;
            *self.inner.by_core.get(core)?
        };
        own_queue().or_else(here).unwrap_or_else(thread_number)
    }

    /// Runs a request and waits for its end.
    ///
    /// # Errors
    /// The status is not success. On a reactor's own thread (within a callback) waiting would never end:
    /// [`Status::COMMAND_SEQUENCE_ERROR`].
    pub fn run(&self, request: IoRequest) -> Result<Option<Buffer>, RequestError> {
        let IoRequest { op, nsid, slba, .. } = request;
        let failed = |status, buffer| RequestError { op, nsid, slba, status, buffer };
        if own_queue().is_some() {
            return Err(failed(Status::COMMAND_SEQUENCE_ERROR, request.buffer));
        }
        let completion = REPLIES.with(|(sender, receiver)| {
            self.submit_to(request, sender);
            receiver.recv()
        });
        match completion {
            Ok(IoCompletion { status, buffer, .. }) if status.is_success() => Ok(buffer),
            Ok(IoCompletion { status, buffer, .. }) => Err(failed(status, buffer)),
            Err(_) => Err(failed(Status::HOST_ABORTED, None)), // never: this thread keeps the sender
        }
    }

    /// Fills `buffer` from block `slba` on; its length is a whole number of blocks, and at most
    /// [`ControllerInfo::transfer_bytes_max`](super::ControllerInfo::transfer_bytes_max).
    ///
    /// # Errors
    /// The request's status and the buffer.
    pub fn read(&self, nsid: u32, slba: u64, buffer: Buffer) -> Result<Buffer, RequestError> {
        self.transfer(IoOp::Read, nsid, slba, buffer, false)
    }

    /// Writes `buffer`, of a length as for [`HostClient::read`], from block `slba` on; with `fua` it is on stable
    /// storage when this returns.
    ///
    /// # Errors
    /// The request's status and the buffer.
    pub fn write(
        &self,
        nsid: u32,
        slba: u64,
        buffer: Buffer,
        fua: bool,
    ) -> Result<Buffer, RequestError> {
        self.transfer(IoOp::Write, nsid, slba, buffer, fua)
    }

    /// Compares the blocks from `slba` on with `buffer`.
    ///
    /// # Errors
    /// [`Status::COMPARE_FAILURE`] if they differ; else the request's status and the buffer.
    pub fn compare(&self, nsid: u32, slba: u64, buffer: Buffer) -> Result<Buffer, RequestError> {
        self.transfer(IoOp::Compare, nsid, slba, buffer, false)
    }

    /// Compares the blocks from `slba` on with `expected`, and if they match writes `data` (of the same length) to
    /// them, atomically (a fused Compare and Write). The controller limits the number of blocks (ACWU, NACWU): one, for
    /// Roadtrain's own target.
    ///
    /// # Errors
    /// [`Status::COMPARE_FAILURE`] if they differ: nothing was written. [`Status::HOST_ABORTED`] if a connection was
    /// lost before the completion: the outcome is unknown. It is not retried, and cannot be executed any more (unless
    /// the controller-loss timeout has passed): reading the blocks shows their state. [`Status::INVALID_OPCODE`] if the
    /// controller does not support it; none does over Ethernet. The buffer is `expected` followed by `data`.
    pub fn compare_and_write(
        &self,
        nsid: u32,
        slba: u64,
        expected: &[u8],
        data: &[u8],
    ) -> Result<(), RequestError> {
        let op = IoOp::CompareAndWrite;
        let failed = |status| RequestError { op, nsid, slba, status, buffer: None };
        let fuses = self.view().info().identify.fuses.get();
        if fuses & fuses::COMPARE_AND_WRITE == 0 || !self.inner.has_room_for_two {
            return Err(failed(Status::INVALID_OPCODE.dnr()));
        }
        if expected.len() != data.len() {
            return Err(failed(Status::DATA_SGL_LENGTH_INVALID));
        }
        let mut buffer = Buffer::alloc(expected.len() * 2);
        buffer[..expected.len()].copy_from_slice(expected);
        buffer[expected.len()..].copy_from_slice(data);
        self.transfer(op, nsid, slba, buffer, false).map(drop)
    }

    /// Makes every write acknowledged so far stable; NSID FFFFFFFFh is all namespaces.
    ///
    /// # Errors
    /// The request's status.
    pub fn flush(&self, nsid: u32) -> Result<(), RequestError> {
        self.run(request(IoOp::Flush, nsid, 0, 0)).map(drop)
    }

    /// Deallocates `blocks` blocks from `slba` on.
    ///
    /// # Errors
    /// The request's status.
    pub fn discard(&self, nsid: u32, slba: u64, blocks: u64) -> Result<(), RequestError> {
        self.in_pieces(IoOp::Discard, nsid, slba, blocks, DISCARD_BLOCKS_MAX)
    }

    /// Sets `blocks` blocks from `slba` on to zero; the target keeps them allocated unless `deallocate`.
    ///
    /// # Errors
    /// The status of the first command that failed; those before it have been carried out.
    pub fn write_zeroes(
        &self,
        nsid: u32,
        slba: u64,
        blocks: u64,
        deallocate: bool,
    ) -> Result<(), RequestError> {
        self.in_pieces(IoOp::WriteZeroes { deallocate }, nsid, slba, blocks, BLOCKS_MAX)
    }

    /// Marks `blocks` blocks from `slba` on as uncorrectable: they fail to be read until they are written. The mark is on
    /// stable storage then, if the blocks are.
    ///
    /// # Errors
    /// [`Status::INVALID_OPCODE`] when the controller or the namespace has no marks, [`Status::CAPACITY_EXCEEDED`] when
    /// there are too many; else the status of the first command that failed. Those before it have been carried out.
    pub fn write_uncorrectable(
        &self,
        nsid: u32,
        slba: u64,
        blocks: u64,
    ) -> Result<(), RequestError> {
        self.in_pieces(IoOp::WriteUncorrectable, nsid, slba, blocks, BLOCKS_MAX)
    }

    /// Has the controller read `blocks` blocks from `slba` on, without transferring them; succeeds if they are
    /// readable.
    ///
    /// # Errors
    /// The status of the first command that failed.
    pub fn verify(&self, nsid: u32, slba: u64, blocks: u64) -> Result<(), RequestError> {
        let block_bytes = self.view().namespace(nsid).map_or(512, |n| u64::from(n.block_bytes));
        let piece_max = u64::from(self.view().info().transfer_bytes_max) / block_bytes;
        self.in_pieces(IoOp::Verify, nsid, slba, blocks, piece_max.clamp(1, BLOCKS_MAX))
    }

    /// Copies blocks of the namespace to `slba` on, within the controller. `sources` are ranges of blocks, each with
    /// its length; the copies are contiguous. It is one command: MSRC, MSSRL and MCL of the namespace limit it.
    ///
    /// # Errors
    /// [`Status::COMMAND_SIZE_LIMIT_EXCEEDED`] if this is more than the controller copies at once;
    /// [`Status::OVERLAPPING_IO_RANGE`] if a source overlaps the destination; [`Status::INVALID_OPCODE`] if the
    /// controller does not support Copy; else the request's status. A failed copy may be done in part.
    pub fn copy(
        &self,
        nsid: u32,
        sources: &[(u64, u32)],
        slba: u64,
        fua: bool,
    ) -> Result<(), RequestError> {
        let failed = |status| RequestError { op: IoOp::Copy, nsid, slba, status, buffer: None };
        if self.view().info().identify.oncs.get() & oncs::COPY == 0 {
            return Err(failed(Status::INVALID_OPCODE.dnr()));
        }
        let mut list = Buffer::alloc(sources.len() * COPY_RANGE_BYTES as usize);
        let entries = list.chunks_exact_mut(COPY_RANGE_BYTES as usize);
        for (entry, &(source, blocks)) in entries.zip(sources) {
            let length = u16::try_from(blocks.wrapping_sub(1))
                .map_err(|_| failed(Status::COMMAND_SIZE_LIMIT_EXCEEDED.dnr()))?;
            entry.fill(0);
            entry[8..16].copy_from_slice(&source.to_le_bytes());
            entry[16..18].copy_from_slice(&length.to_le_bytes());
        }
        let buffer = Some(list);
        let copy = request(IoOp::Copy, nsid, slba, sources.len() as u32);
        self.run(IoRequest { fua, buffer, ..copy }).map(drop)
    }

    fn transfer(
        &self,
        op: IoOp,
        nsid: u32,
        slba: u64,
        buffer: Buffer,
        fua: bool,
    ) -> Result<Buffer, RequestError> {
        // A Compare and Write has two blocks of data for each of its blocks.
        let times = if op == IoOp::CompareAndWrite { 2 } else { 1 };
        let block_bytes =
            self.view().namespace(nsid).map(|namespace| namespace.block_bytes as usize * times);
        let whole = |bytes: &usize| buffer.len().is_multiple_of(*bytes) && !buffer.is_empty();
        let status = match block_bytes {
            None => Status::INVALID_NAMESPACE,
            Some(bytes) if !whole(&bytes) => Status::DATA_SGL_LENGTH_INVALID,
            Some(bytes) => {
                let blocks = (buffer.len() / bytes) as u32;
                let buffer = Some(buffer);
                let whole =
                    self.run(IoRequest { fua, buffer, ..request(op, nsid, slba, blocks) })?;
                return Ok(whole.unwrap_or_else(|| Buffer::alloc(0)));
            }
        };
        Err(RequestError { op, nsid, slba, status, buffer: Some(buffer) })
    }

    fn in_pieces(
        &self,
        op: IoOp,
        nsid: u32,
        mut slba: u64,
        mut blocks: u64,
        piece_max: u64,
    ) -> Result<(), RequestError> {
        while blocks > 0 {
            let piece = blocks.min(piece_max);
            self.run(request(op, nsid, slba, piece as u32))?;
            (slba, blocks) = (slba.saturating_add(piece), blocks - piece);
        }
        Ok(())
    }
}

impl Drop for ClientInner {
    fn drop(&mut self) {
        let controller = self.controller.take();
        if own_queue().is_some() {
            // A callback held the last clone: its reactor cannot wait for itself.
            thread::spawn(move || drop(controller));
        }
    }
}

thread_local! {
    /// Channel for the completion that this thread waits for: one request at a time.
    static REPLIES: (Sender<IoCompletion>, Receiver<IoCompletion>) = channel();
    static THREAD_NUMBER: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Returns the number of this thread; threads are numbered at their first call.
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = THREAD_NUMBER.get().unwrap_or_else(|| NEXT.fetch_add(1, Relaxed));
    THREAD_NUMBER.set(Some(number));
    number
}

fn by_core(affinities: &[Affinity]) -> Vec<Option<usize>> {
    let pinned = |core| {
        let mut there =
            (0..affinities.len()).filter(|&queue| affinities[queue].cpus.single() == Some(core));
        there.next().filter(|_| there.next().is_none())
    };
    let last = affinities.iter().filter_map(|affinity| affinity.cpus.single()).max();
    last.map_or_else(Vec::new, |last| (0..=last).map(pinned).collect())
}

fn request(op: IoOp, nsid: u32, slba: u64, blocks: u32) -> IoRequest {
    IoRequest {
        op,
        nsid,
        slba,
        blocks,
        fua: false,
        urgent: false,
        class: Class::Normal,
        buffer: None,
        token: 0,
    }
}

/// True if the request's fields are consistent.
fn is_sound(request: &IoRequest) -> bool {
    let blocks = u64::from(request.blocks);
    let data = request.buffer.as_ref().is_some_and(|buffer| !buffer.is_empty());
    match request.op {
        IoOp::Read | IoOp::Write | IoOp::Compare | IoOp::CompareAndWrite => {
            data && (1..=BLOCKS_MAX).contains(&blocks)
        }
        IoOp::Copy => data && (1..=256).contains(&blocks),
        IoOp::Flush => request.buffer.is_none() && blocks == 0,
        IoOp::WriteZeroes { .. } | IoOp::WriteUncorrectable | IoOp::Verify => {
            request.buffer.is_none() && (1..=BLOCKS_MAX).contains(&blocks)
        }
        IoOp::Discard => request.buffer.is_none() && blocks > 0,
    }
}
