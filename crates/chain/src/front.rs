//! Front of a lane: takes operations from a queue, submits requests for them, and completes them.

use crate::allocation::AllocationRun;
use crate::queue::{self, OperationReply, OwnQueue, SubmittedOperation};
use roadtrain_host_engine::block_operation::{
    BackendOp, BackendRequest, BlockOperation, BlockResult,
};
use roadtrain_host_engine::{
    Allocation, Class, Front, FrontTurn, Interest, IoCompletion, IoOp, IoRequest, LaneId,
};
use roadtrain_store::{StoreCompletion, StoreOperation, StoreToken};
use roadtrain_system::buffer::Buffer;
use roadtrain_system::slab::Slab;
use roadtrain_wire::status::Status;
use std::collections::VecDeque;
use std::sync::Arc;

/// The only lane of a reactor.
const LANE: LaneId = LaneId(0);
/// Key of the queue, the only watched descriptor.
const QUEUE: u64 = 0;
/// Status of operations that were not executed because the controller has ended.
const ENDED: Status = Status::ANA_INACCESSIBLE;

/// Queue of a front.
pub(crate) enum FrontQueue {
    /// From any thread.
    Own { queue: Arc<OwnQueue>, is_watched: bool },
    /// On the thread of the reactor whose guest this is, by the number of the controller. It is open from the first turn
    /// until the controller ends.
    Guest { number: u64, is_open: bool },
}

/// Operation in execution.
struct RunningOperation {
    operation: BlockOperation,
    nsid: u32,
    token: StoreToken,
    reply: OperationReply,
    /// Buffer of the operation, unless its only request has it.
    buffer: Option<Buffer>,
}

/// Front of a lane.
pub(crate) struct ChainFront {
    queue: FrontQueue,
    /// Operations that have been taken from the queue and wait for room.
    waiting: VecDeque<SubmittedOperation>,
    running: Slab<RunningOperation>,
    /// Running operations whose next request waits for room.
    continuing: VecDeque<u32>,
    allocations: Slab<(AllocationRun, OperationReply)>,
    /// True once the controller ends, and its queue is closed.
    is_closed: bool,
}

impl ChainFront {
    pub(crate) fn new(queue: FrontQueue) -> ChainFront {
        ChainFront {
            queue,
            waiting: VecDeque::new(),
            running: Slab::default(),
            continuing: VecDeque::new(),
            allocations: Slab::default(),
            is_closed: false,
        }
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running.count() == 0 && self.allocations.count() == 0
    }

    /// Takes the operations of the queue.
    fn take_operations(&mut self, turn: &mut dyn FrontTurn) {
        match &mut self.queue {
            FrontQueue::Own { queue, is_watched } => {
                if !*is_watched {
                    turn.watch(queue.event().fd(), Interest::Readable, QUEUE);
                    *is_watched = true;
                }
                while turn.next_ready().is_some() {
                    queue.event().acknowledge();
                    turn.watch(queue.event().fd(), Interest::Readable, QUEUE);
                    queue.take(&mut self.waiting);
                }
            }
            FrontQueue::Guest { is_open: true, number } => {
                queue::take_local(*number, &mut self.waiting);
            }
            FrontQueue::Guest { number, is_open } if !self.is_closed => {
                queue::open_local(*number);
                *is_open = true;
            }
            FrontQueue::Guest { .. } => {}
        }
    }

    /// Takes no more operations. Returns true if none is left in the queue.
    fn close(&mut self) -> bool {
        match &mut self.queue {
            FrontQueue::Own { queue, .. } => {
                queue.take(&mut self.waiting);
                self.is_closed = self.waiting.is_empty() && queue.close_if_empty();
            }
            FrontQueue::Guest { number, is_open } => {
                if std::mem::take(is_open) {
                    self.waiting.append(&mut queue::close_local(*number));
                }
                self.is_closed = true;
            }
        }
        self.is_closed
    }

    /// Starts operations while the lane has room.
    fn start_operations(&mut self, turn: &mut dyn FrontTurn) {
        while let Some(&index) = self.continuing.front() {
            if turn.room(LANE) == 0 {
                return;
            }
            self.continuing.pop_front();
            self.continue_operation(turn, index);
        }
        while !self.waiting.is_empty() && turn.room(LANE) > 0 {
            let Some(operation) = self.waiting.pop_front() else { return };
            self.start(turn, operation);
        }
    }

    fn start(&mut self, turn: &mut dyn FrontTurn, submitted: SubmittedOperation) {
        if let StoreOperation::QueryAllocation { range } = submitted.op {
            let SubmittedOperation { nsid, rules, token, reply, buffer, .. } = submitted;
            let Some(buffer) = buffer else { return };
            let run = AllocationRun::new(token, buffer, (nsid, range, rules.lba_shift));
            let index = self.allocations.insert((run, reply));
            return self.query_allocation(turn, index);
        }
        let bytes = submitted.buffer.as_ref().map_or(0, |buffer| buffer.len() as u64);
        let operation = match BlockOperation::new(submitted.op, bytes, &submitted.rules) {
            Ok(operation) => operation,
            Err(result) => return submitted.complete(result),
        };
        let SubmittedOperation { nsid, token, reply, mut buffer, .. } = submitted;
        let is_whole = operation.is_whole();
        let whole = if is_whole { buffer.take() } else { None };
        let running = RunningOperation { operation, nsid, token, reply, buffer };
        let index = self.running.insert(running);
        match is_whole {
            true => self.submit(turn, index, whole),
            false => self.continue_operation(turn, index),
        }
    }

    /// Submits the next request of an operation whose buffer stays here.
    fn continue_operation(&mut self, turn: &mut dyn FrontTurn, index: u32) {
        let Some(running) = self.running.get_mut(index) else { return };
        let BackendRequest { op, data, blocks, .. } = running.operation.request();
        let piece = match op {
            BackendOp::Write { .. } | BackendOp::Compare => {
                running.buffer.as_deref().map(|source| {
                    let mut piece = Buffer::alloc(data.len());
                    piece.copy_from_slice(&source[data]);
                    piece
                })
            }
            BackendOp::Read | BackendOp::ReadToCompare => Some(Buffer::alloc(data.len())),
            BackendOp::WriteZeroData => {
                let mut zeroes = Buffer::alloc((blocks as usize) << running.operation.lba_shift());
                zeroes.fill(0);
                Some(zeroes)
            }
            BackendOp::CompareAndWrite { .. } => running.buffer.take(),
            BackendOp::WriteZeroes { .. }
            | BackendOp::Discard
            | BackendOp::Flush
            | BackendOp::WriteUncorrectable => None,
        };
        self.submit(turn, index, piece);
    }

    /// Submits a request with this buffer.
    fn submit(&mut self, turn: &mut dyn FrontTurn, index: u32, buffer: Option<Buffer>) {
        let Some(running) = self.running.get_mut(index) else { return };
        let BackendRequest { op, slba, blocks, .. } = running.operation.request();
        let (op, fua) = match op {
            BackendOp::Read | BackendOp::ReadToCompare => (IoOp::Read, false),
            BackendOp::Write { fua } => (IoOp::Write, fua),
            BackendOp::WriteZeroData => (IoOp::Write, false),
            BackendOp::WriteZeroes { deallocate } => (IoOp::WriteZeroes { deallocate }, false),
            BackendOp::Discard => (IoOp::Discard, false),
            BackendOp::Compare => (IoOp::Compare, false),
            BackendOp::Flush => (IoOp::Flush, false),
            BackendOp::CompareAndWrite { fua } => (IoOp::CompareAndWrite, fua),
            BackendOp::WriteUncorrectable => (IoOp::WriteUncorrectable, false),
        };
        let (nsid, token) = (running.nsid, u64::from(index));
        let (urgent, class) = (false, Class::Normal);
        let request = IoRequest { op, nsid, slba, blocks, fua, urgent, class, buffer, token };
        // The caller has checked for room. Without it, the request is made again when there is some.
        if let Err(request) = turn.submit(LANE, request) {
            running.buffer = running.buffer.take().or(request.buffer);
            self.continuing.push_back(index);
        }
    }

    /// Handles the end of a request.
    fn ended(&mut self, turn: &mut dyn FrontTurn, completion: IoCompletion) {
        let IoCompletion { token, status, buffer, .. } = completion;
        let index = token as u32;
        let Some(running) = self.running.get_mut(index) else {
            return tracing::error!(token, "a request has ended twice");
        };
        let request = running.operation.request();
        let mut matches = true;
        let whole = match (&mut running.buffer, buffer) {
            (Some(own), Some(piece)) => {
                match request.op {
                    BackendOp::Read if status.is_success() => {
                        own[request.data].copy_from_slice(&piece);
                    }
                    BackendOp::ReadToCompare => matches = own[request.data] == piece[..],
                    _ => {}
                }
                None
            }
            (_, buffer) => buffer.filter(|_| request.op != BackendOp::WriteZeroData),
        };
        let Some(BlockResult { result, is_unforced }) = running.operation.ended(status, matches)
        else {
            return match turn.room(LANE) {
                0 => self.continuing.push_back(index),
                _ => self.continue_operation(turn, index),
            };
        };
        let Some(running) = self.running.take(index) else { return };
        let RunningOperation { token, reply, buffer, .. } = running;
        let buffer = buffer.or(whole);
        reply.send(StoreCompletion { token, result, buffer, is_unforced });
    }

    fn query_allocation(&mut self, turn: &mut dyn FrontTurn, index: u32) {
        while let Some((run, _)) = self.allocations.get_mut(index) {
            let Some(query) = run.query() else { break };
            if turn.query_allocation(query, index.into()) {
                return;
            }
            run.add(None); // no path can be queried now
        }
        let Some((run, reply)) = self.allocations.take(index) else { return };
        let (token, buffer) = run.finish();
        reply.send(StoreCompletion::new(token, Ok(()), Some(buffer)));
    }

    fn allocation_found(&mut self, turn: &mut dyn FrontTurn, key: u64, found: Option<Allocation>) {
        let index = key as u32;
        if let Some((run, _)) = self.allocations.get_mut(index) {
            run.add(found);
            self.query_allocation(turn, index);
        }
    }
}

impl Front for ChainFront {
    fn turn(&mut self, turn: &mut dyn FrontTurn) {
        while let Some(completion) = turn.next_completion() {
            self.ended(turn, completion);
        }
        while let Some((key, found)) = turn.next_allocation() {
            self.allocation_found(turn, key, found);
        }
        self.take_operations(turn);
        self.start_operations(turn);
        if turn.stopping() && self.close() && self.is_idle() {
            turn.stop();
        }
    }

    fn has_requests(&self) -> bool {
        match &self.queue {
            FrontQueue::Guest { number, is_open } => *is_open && queue::has_local(*number),
            FrontQueue::Own { .. } => false,
        }
    }
}

/// Completes all operations that are left, after a failure or the end of the thread. The buffers of requests are with
/// the lane, which frees them.
impl Drop for ChainFront {
    fn drop(&mut self) {
        let left = match &mut self.queue {
            FrontQueue::Own { queue, .. } => queue.close(),
            FrontQueue::Guest { number, is_open: true } => queue::close_local(*number),
            FrontQueue::Guest { .. } => VecDeque::new(),
        };
        for operation in self.waiting.drain(..).chain(left) {
            operation.complete(Err(ENDED));
        }
        let running: Vec<u32> = self.running.iter().map(|(index, _)| index).collect();
        for index in running {
            let Some(RunningOperation { token, reply, buffer, .. }) = self.running.take(index)
            else {
                continue;
            };
            let result = Err(Status::INTERNAL_ERROR.dnr());
            reply.send(StoreCompletion { token, result, buffer, is_unforced: false });
        }
    }
}
