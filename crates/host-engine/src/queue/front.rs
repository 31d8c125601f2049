//! Front that passes requests from a queue to the reactor's lanes, and completions back.

use super::super::api::{Front, FrontTurn, Interest, IoCompletion, IoOp, LaneId};
use super::submission_queue::{CompletionReply, QueuedRequest, SubmissionQueue, set_own_queue};
use roadtrain_wire::status::Status;
use std::collections::VecDeque;
use std::sync::Arc;

/// Key of the queue, the only watched descriptor.
const QUEUE: u64 = 0;

/// Request on a lane: the caller's token, and the receiver of its completion.
struct FrontRequest {
    token: u64,
    op: IoOp,
    reply: CompletionReply,
}

pub(super) struct QueueFront {
    index: usize,
    queue: Arc<SubmissionQueue>,
    lanes: usize,
    next_lane: usize,
    watching: bool,
    batch: VecDeque<QueuedRequest>,
    /// Requests by the token that the lane uses.
    pending: Vec<Option<FrontRequest>>,
    free: Vec<u32>,
}

impl QueueFront {
    pub(super) fn new(index: usize, queue: Arc<SubmissionQueue>, lanes: usize) -> Self {
        QueueFront {
            index,
            queue,
            lanes,
            next_lane: 0,
            watching: false,
            batch: VecDeque::new(),
            pending: Vec::new(),
            free: Vec::new(),
        }
    }

    fn is_idle(&self) -> bool {
        self.free.len() == self.pending.len() && self.batch.is_empty()
    }

    fn complete(&mut self, completion: IoCompletion) {
        let index = completion.token as usize;
        let Some(pending) = self.pending.get_mut(index).and_then(Option::take) else {
            debug_assert!(false, "a completion without its request");
            return;
        };
        self.free.push(index as u32);
        pending.reply.complete(IoCompletion { token: pending.token, ..completion });
    }

    fn watch(&mut self, turn: &mut dyn FrontTurn) {
        if !self.watching {
            set_own_queue(self.index);
            turn.watch(self.queue.event().fd(), Interest::Readable, QUEUE);
            self.watching = true;
        }
        while turn.next_ready().is_some() {
            self.queue.event().acknowledge();
            turn.watch(self.queue.event().fd(), Interest::Readable, QUEUE);
        }
    }

    fn submit_batch(&mut self, turn: &mut dyn FrontTurn) {
        let room: u32 = (0..self.lanes).map(|lane| turn.room(LaneId(lane))).sum();
        let room = (room as usize).saturating_sub(self.batch.len());
        if room > 0 {
            self.queue.take(room, &mut self.batch);
        }
        while let Some(entry) = self.batch.pop_front() {
            if let Err(entry) = self.submit(turn, entry) {
                return self.batch.push_front(entry);
            }
        }
    }

    /// Submits a request to the next lane that has room.
    fn submit(
        &mut self,
        turn: &mut dyn FrontTurn,
        entry: QueuedRequest,
    ) -> Result<(), QueuedRequest> {
        let lanes = (0..self.lanes).map(|step| (self.next_lane + step) % self.lanes);
        let Some(lane) = lanes.into_iter().find(|&lane| turn.room(LaneId(lane)) > 0) else {
            return Err(entry);
        };
        self.next_lane = (lane + 1) % self.lanes;
        let QueuedRequest { mut request, reply } = entry;
        let pending = FrontRequest { token: request.token, op: request.op, reply };
        let index = self.free.pop().unwrap_or_else(|| {
            self.pending.push(None);
            (self.pending.len() - 1) as u32
        });
        request.token = index.into();
        match turn.submit(LaneId(lane), request) {
            Ok(()) => {
                self.pending[index as usize] = Some(pending);
                Ok(())
            }
            Err(mut request) => {
                self.free.push(index);
                request.token = pending.token;
                Err(QueuedRequest { request, reply: pending.reply })
            }
        }
    }
}

impl Front for QueueFront {
    fn turn(&mut self, turn: &mut dyn FrontTurn) {
        self.watch(turn);
        while let Some(completion) = turn.next_completion() {
            self.complete(completion);
        }
        self.submit_batch(turn);
        if turn.stopping() && self.is_idle() && self.queue.close_if_empty() {
            turn.stop();
        }
    }
}

impl Drop for QueueFront {
    /// Fails all requests that are left, after a failure of the reactor.
    fn drop(&mut self) {
        for entry in self.batch.drain(..).chain(self.queue.close()) {
            entry.reply.fail(entry.request, Status::HOST_PATH_ERROR);
        }
        for FrontRequest { token, op, reply } in self.pending.drain(..).flatten() {
            let status = Status::HOST_ABORTED;
            reply.complete(IoCompletion { token, op, status, buffer: None, latency_ns: 0 });
        }
    }
}
