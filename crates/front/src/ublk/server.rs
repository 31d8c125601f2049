//! A device's queues on one reactor: the driver's requests arrive over the reactor's ring and leave by its lanes.
//!
//! Each tag has a buffer whose address the driver knows. A request for whole blocks sends that very buffer through the
//! lane and is answered when it comes back; [`DiskJobs`] cuts and patches the others.

use super::abi::IoDescriptor;
use super::request::request;
use super::shared::UblkShared;
use super::tags::{TagOutcome, Tags};
use crate::disk::{DiskFault, DiskJobs, DiskRequest, JobKey, LiveDisk, Started};
use roadtrain_host_engine::{Front, FrontTurn, LaneId};
use roadtrain_proto::time::Instant;
use roadtrain_system::buffer::{Buffer, BufferPool};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tracing::warn;

/// Bytes of buffers for requests that are cut or patched.
const PATCH_BYTES_MAX: usize = 16 << 20;
/// Interval at which a stopping server checks its deadline.
const END_CHECK: Duration = Duration::from_millis(50);

/// One tag of one of the server's queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TagMark {
    /// Index into the server's queues.
    queue: u16,
    tag: u16,
}

impl TagMark {
    fn key(self) -> u64 {
        u64::from(self.queue) << 16 | u64::from(self.tag)
    }

    fn of(key: u64) -> Self {
        TagMark { queue: (key >> 16) as u16, tag: key as u16 }
    }
}

/// The queues of a device that one reactor serves.
pub(crate) struct UblkServer {
    disk: Arc<LiveDisk>,
    shared: Arc<UblkShared>,
    jobs: DiskJobs<TagMark>,
    queues: Vec<Tags>,
    io_bytes: u32,
    /// Pool of the tags' buffers.
    pool: BufferPool,
    /// Requests waiting for memory, longest first.
    waiting_for_buffers: VecDeque<(TagMark, DiskRequest)>,
    begun: bool,
    stopping: bool,
    retry_at: Option<Instant>,
    now: Instant,
}

impl UblkServer {
    /// Makes a server of `queues`, whose requests move up to `io_bytes`, over `lanes` lanes of the reactor.
    pub(crate) fn new(
        disk: Arc<LiveDisk>,
        shared: Arc<UblkShared>,
        queues: Vec<Tags>,
        io_bytes: u32,
        lanes: usize,
    ) -> Self {
        let mut jobs = DiskJobs::new(Arc::clone(&disk), LaneId(0), PATCH_BYTES_MAX);
        jobs.set_lanes(lanes);
        let tags: usize = queues.iter().map(|queue| usize::from(queue.depth())).sum();
        let class_bytes = (io_bytes as usize).next_power_of_two();
        UblkServer {
            disk,
            shared,
            jobs,
            queues,
            io_bytes,
            pool: BufferPool::new(tags * class_bytes + (2 << 20)),
            waiting_for_buffers: VecDeque::new(),
            begun: false,
            stopping: false,
            retry_at: None,
            now: Instant(0),
        }
    }

    fn begin_all(&mut self, turn: &mut dyn FrontTurn) {
        let (pool, bytes) = (&mut self.pool, self.io_bytes as usize);
        for (index, queue) in self.queues.iter_mut().enumerate() {
            let take = || pool.take(bytes).unwrap_or_else(|| Buffer::alloc(bytes));
            queue.fetch_all(turn, take, |tag| TagMark { queue: index as u16, tag }.key());
        }
    }

    fn returned(&mut self, turn: &mut dyn FrontTurn, key: u64, result: i32) {
        let mark = TagMark::of(key);
        let Some(queue) = self.queues.get_mut(usize::from(mark.queue)) else { return };
        match queue.returned(mark.tag, result) {
            TagOutcome::Request(descriptor) => self.begin(turn, mark, &descriptor),
            TagOutcome::Gone => {}
            TagOutcome::Refused(errno) => {
                warn!(tag = mark.tag, "the ublk driver refuses a command: errno {}", errno.abs());
                self.shared.refuse(errno);
            }
        }
    }

    fn begin(&mut self, turn: &mut dyn FrontTurn, mark: TagMark, descriptor: &IoDescriptor) {
        let request = request(descriptor, self.io_bytes);
        let checked = request.and_then(|request| self.disk.check(&request).map(|()| request));
        match checked {
            Ok(request) => self.start(turn, mark, request),
            Err(fault) => self.answer(turn, mark, Err(fault)),
        }
    }

    fn start(&mut self, turn: &mut dyn FrontTurn, mark: TagMark, request: DiskRequest) {
        let queue = &mut self.queues[usize::from(mark.queue)];
        let lane = usize::from(mark.queue);
        if self.jobs.is_whole(&request)
            && let Some(buffer) = queue.take(mark.tag)
        {
            self.jobs.start_with(mark, lane, request, buffer);
            return;
        }
        match self.jobs.start(mark, lane, request) {
            Started::Done => self.answer(turn, mark, Ok(request)),
            Started::Running(_) => {}
            Started::Payload(_, part) => {
                let mut bytes = &*queue.bytes(mark.tag, request.length);
                self.jobs.fill(part, |window| {
                    let (head, rest) = bytes.split_at(window.len());
                    window.copy_from_slice(head);
                    bytes = rest;
                });
            }
            Started::NoBuffers => self.waiting_for_buffers.push_back((mark, request)),
        }
    }

    /// Handles the end of a job: copies its data to the tag's buffer, unless that buffer was used.
    fn finish(&mut self, turn: &mut dyn FrontTurn, key: JobKey) {
        let job = self.jobs.job(key);
        let (mark, request, status) = (job.mark, job.request, job.status);
        let queue = &mut self.queues[usize::from(mark.queue)];
        if queue.is_out(mark.tag) {
            self.jobs.remove(key, |buffer, _| {
                queue.put(mark.tag, buffer);
                None
            });
        } else {
            let length = if request.op.has_data() { request.length } else { 0 };
            let mut bytes = queue.bytes(mark.tag, length);
            let reads = status.is_success() && !request.op.writes();
            self.jobs.remove(key, |buffer, window| {
                if reads && window.len() <= bytes.len() {
                    let (head, rest) = std::mem::take(&mut bytes).split_at_mut(window.len());
                    head.copy_from_slice(&buffer[window]);
                    bytes = rest;
                }
                Some(buffer)
            });
        }
        let ended =
            if status.is_success() { Ok(request) } else { Err(DiskFault::of(status, request.op)) };
        self.answer(turn, mark, ended);
    }

    fn answer(
        &mut self,
        turn: &mut dyn FrontTurn,
        mark: TagMark,
        ended: Result<DiskRequest, DiskFault>,
    ) {
        let result = match ended {
            Ok(request) if request.op.has_data() => request.length.cast_signed(),
            Ok(_) => 0,
            Err(fault) => -fault.errno(),
        };
        self.queues[usize::from(mark.queue)].commit(turn, mark.tag, result, mark.key());
    }

    fn start_waiting(&mut self, turn: &mut dyn FrontTurn) {
        for _ in 0..self.waiting_for_buffers.len() {
            let Some((mark, request)) = self.waiting_for_buffers.pop_front() else { return };
            self.start(turn, mark, request);
        }
    }

    /// True if the driver gives no more requests and all are answered.
    fn is_over(&self) -> bool {
        self.begun && self.queues.iter().all(Tags::are_gone)
    }
}

impl Front for UblkServer {
    fn turn(&mut self, turn: &mut dyn FrontTurn) {
        self.now = turn.now();
        if !std::mem::replace(&mut self.begun, true) {
            self.begin_all(turn);
        }
        while let Some(completion) = turn.next_completion() {
            if let Some(job) = self.jobs.complete(completion) {
                self.finish(turn, job);
            }
        }
        self.start_waiting(turn);
        while let Some((key, result)) = turn.next_command() {
            self.returned(turn, key, result);
        }
        self.jobs.submit(turn);
        self.retry_at = self.jobs.retry_at(self.now);
        self.stopping = turn.stopping();
        if self.is_over() || self.stopping && self.shared.is_overdue(self.now) {
            turn.stop();
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let check_at = self.stopping.then(|| self.now + END_CHECK);
        self.retry_at.into_iter().chain(check_at).min()
    }
}

#[cfg(test)]
mod tests;
