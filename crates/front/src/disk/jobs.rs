//! A front's requests in flight on its lanes.
//!
//! A request is a *job*; it is carried out by one *part* for each piece of its range (see [`BlockPlan`]). A part owns
//! the buffer that travels to the lane and back, and its slab key is the lane's token. A part that changes less than a
//! block is read, patched and written, alone on its stripe (see [`Guards`](super::guard::Guards)). Its buffer holds two
//! blocks: the second one keeps the front's bytes while the old block is read into the first.

use super::guard::{StripeHold, Stripes};
use super::plan::{BlockPiece, BlockPlan, Edges};
use super::{DiskOp, DiskRequest, LiveDisk};
use crate::bitmaps::TrackedWrite;
use roadtrain_host_engine::{Class, FrontTurn, IoCompletion, IoOp, IoRequest, LaneId};
use roadtrain_proto::time::Instant;
use roadtrain_system::buffer::{Buffer, BufferPool};
use roadtrain_wire::status::Status;
use slab::Slab;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Most blocks of one Write Zeroes: the NLB field has 16 bits, zero-based.
const ZEROES_BLOCKS_MAX: u32 = 1 << 16;
/// Requests in flight up to which the last one of a turn is urgent: such a caller is synchronous and sends no more
/// until it is answered.
const URGENT_DEPTH_MAX: u32 = 4;

/// Delay until a part is retried whose guard another lane holds.
const GUARD_RETRY: Duration = Duration::from_micros(50);
/// Most parts that wait for the lane.
const BACKLOG_MAX: usize = 1024;

/// Bits of a lane's token that are the part's key; the others are the tag of the disk.
const KEY_BITS: u32 = 48;

/// Key of a part; the lane's token.
pub(crate) type PartKey = usize;
/// Key of a job.
pub(crate) type JobKey = usize;

/// A request in progress.
#[derive(Debug)]
pub(crate) struct DiskJob<M> {
    /// Identification of the request, in the front's own terms.
    pub(crate) mark: M,
    pub(crate) request: DiskRequest,
    /// Preferred lane, so that requests which arrive together share a caravan.
    lane: usize,
    /// Bytes of buffers that were taken for it.
    pub(crate) held_bytes: usize,
    /// Status of the first failure.
    pub(crate) status: Status,
    first: Option<PartKey>,
    last: Option<PartKey>,
    parts_left: u32,
    /// Its place in the disk's dirty bitmaps, if it changes the disk.
    tracked: Option<TrackedWrite>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PartStep {
    /// Moves the piece as it is.
    Whole,
    /// Reads the block that is to be patched.
    PatchRead,
    /// Writes the patched block.
    PatchWrite,
}

#[derive(Debug)]
struct JobPart {
    job: JobKey,
    next: Option<PartKey>,
    piece: BlockPiece,
    step: PartStep,
    buffer: Option<Buffer>,
    /// Guards that the part holds.
    held: Option<(Stripes, StripeHold)>,
    in_flight: bool,
}

/// Outcome of the start of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Started {
    /// Nothing to do: the front answers at once.
    Done,
    /// In flight; [`DiskJobs::complete`] returns it when it ends.
    Running(JobKey),
    /// A Write whose payload the front puts into its parts' windows, in order: at once with [`DiskJobs::fill`], or
    /// piece by piece with [`DiskJobs::payload`].
    Payload(JobKey, PartKey),
    /// No memory: the front tries again when buffers are back.
    NoBuffers,
}

/// Returns the tag of the jobs to which `completion` belongs.
pub(crate) fn tag_of(completion: &IoCompletion) -> u16 {
    (completion.token >> KEY_BITS) as u16
}

/// All jobs of a front on one reactor. `M` is the front's mark of a request.
#[derive(Debug)]
pub(crate) struct DiskJobs<M> {
    disk: Arc<LiveDisk>,
    /// Tag in the tokens; see [`DiskJobs::set_tag`].
    tag: u16,
    /// First of the lanes.
    lane: LaneId,
    lanes: usize,
    pool: BufferPool,
    blocks_max: u32,
    jobs: Slab<DiskJob<M>>,
    parts: Slab<JobPart>,
    /// Parts waiting for room on the lane.
    backlog: VecDeque<PartKey>,
    /// Parts waiting for a guard.
    parked: VecDeque<PartKey>,
    /// True if the lane did not take all of the backlog.
    congested: bool,
    in_flight: u32,
    /// Buffers given back because a request did not get all of its own.
    returned: u64,
}

impl<M> DiskJobs<M> {
    /// Makes jobs over `lane`, with at most `buffer_bytes_max` bytes of buffers at a time.
    pub(crate) fn new(disk: Arc<LiveDisk>, lane: LaneId, buffer_bytes_max: usize) -> Self {
        let info = disk.info();
        let blocks_max = (info.max_transfer_bytes).min(BufferPool::LEN_MAX as u32) / info.lba_bytes;
        DiskJobs {
            tag: 0,
            lane,
            lanes: 1,
            pool: BufferPool::new(buffer_bytes_max),
            blocks_max: blocks_max.clamp(1, 1 << 16),
            jobs: Slab::new(),
            parts: Slab::new(),
            backlog: VecDeque::new(),
            parked: VecDeque::new(),
            congested: false,
            in_flight: 0,
            returned: 0,
            disk,
        }
    }

    /// The disk.
    pub(crate) fn disk(&self) -> &LiveDisk {
        &self.disk
    }

    /// True if nothing is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.jobs.is_empty()
    }

    /// True if nothing is left of any job.
    #[cfg(test)]
    pub(crate) fn is_clean(&self) -> bool {
        let waiting = self.backlog.len() + self.parked.len();
        let left = self.jobs.len() + self.parts.len() + waiting + self.in_flight as usize;
        left == 0 && self.pool.usage().taken_bytes == 0
    }

    /// True if the lane did not take all waiting parts: further ones would only wait longer.
    pub(crate) fn is_congested(&self) -> bool {
        self.congested || self.backlog.len() >= BACKLOG_MAX
    }

    /// Returns the time of the next submit, if parts wait for a guard, which another lane's reactor may hold.
    pub(crate) fn retry_at(&self, now: Instant) -> Option<Instant> {
        (!self.parked.is_empty()).then(|| now + GUARD_RETRY)
    }

    /// Replaces the pool of a front that has not begun.
    pub(crate) fn set_buffer_bytes_max(&mut self, bytes: usize) {
        debug_assert!(self.is_idle());
        self.pool = BufferPool::new(bytes);
    }

    /// Sets the number of lanes, from the first one on.
    pub(crate) fn set_lanes(&mut self, lanes: usize) {
        self.lanes = lanes.max(1);
    }

    /// Marks the lane's requests with `tag`, for a front that has several disks on one reactor.
    pub(crate) fn set_tag(&mut self, tag: u16) {
        debug_assert!(self.is_idle());
        self.tag = tag;
    }

    /// Puts a buffer back into the pool.
    pub(crate) fn give(&mut self, buffer: Buffer) {
        self.pool.give(buffer);
    }

    /// Returns the number of buffers given back so far. An increase means that a request with [`Started::NoBuffers`]
    /// may start now.
    pub(crate) fn given(&self) -> u64 {
        self.pool.given() - self.returned
    }

    /// Returns the most bytes of a whole request; see [`DiskJobs::is_whole`].
    pub(crate) fn whole_bytes_max(&self) -> u32 {
        self.blocks_max * self.disk.info().lba_bytes
    }

    /// True if the lane can carry out `request`, a Read or Write, as it is: whole blocks, not too many.
    pub(crate) fn is_whole(&self, request: &DiskRequest) -> bool {
        let mask = self.disk.info().lba_bytes - 1;
        let aligned = (request.offset as u32 | request.length) & mask == 0;
        let fits = (1..=self.whole_bytes_max()).contains(&request.length);
        request.op.has_data() && aligned && fits
    }

    /// Starts a request that [`LiveDisk::check`] allows. `lane` is its preferred lane, any number. Takes all its
    /// buffers or none.
    pub(crate) fn start(&mut self, mark: M, lane: usize, request: DiskRequest) -> Started {
        let plan = match request.op {
            DiskOp::Read => self.plan(&request, self.blocks_max, Edges::Widen),
            DiskOp::Write => self.plan(&request, self.blocks_max, Edges::Patch),
            DiskOp::WriteZeroes { .. } => self.plan(&request, ZEROES_BLOCKS_MAX, Edges::Patch),
            DiskOp::Discard => self.plan(&request, u32::MAX, Edges::Shrink),
            DiskOp::Flush => return self.start_flush(mark, lane, request),
        };
        let key = self.add_job(mark, lane, request);
        for piece in plan {
            let buffer = match self.buffer_bytes(&request, &piece) {
                0 => None,
                bytes => match self.pool.take(bytes) {
                    None => {
                        let given = self.pool.given();
                        self.remove(key, |buffer, _| Some(buffer));
                        self.returned += self.pool.given() - given;
                        return Started::NoBuffers;
                    }
                    buffer => buffer,
                },
            };
            self.add_part(key, piece, buffer);
        }
        let Some(first) = self.jobs[key].first else {
            self.jobs.remove(key);
            return Started::Done;
        };
        if request.op == DiskOp::Write {
            return Started::Payload(key, first);
        }
        self.enqueue_all(key, first);
        Started::Running(key)
    }

    /// Starts a request that [`LiveDisk::check`] allows and for which [`DiskJobs::is_whole`] holds, with the front's
    /// own buffer. The buffer has room for the request, and holds the bytes of a Write. [`DiskJobs::remove`] passes it
    /// back.
    pub(crate) fn start_with(
        &mut self,
        mark: M,
        lane: usize,
        request: DiskRequest,
        buffer: Buffer,
    ) -> JobKey {
        debug_assert!(self.is_whole(&request));
        let lba_bytes = self.disk.info().lba_bytes;
        let (slba, blocks) = (request.offset / u64::from(lba_bytes), request.length / lba_bytes);
        let piece = BlockPiece { slba, blocks, start: 0, len: request.length, patch: false };
        let key = self.add_job(mark, lane, request);
        let part = self.add_part(key, piece, Some(buffer));
        self.backlog.push_back(part);
        key
    }

    fn plan(&self, request: &DiskRequest, blocks_max: u32, edges: Edges) -> BlockPlan {
        let lba_bytes = self.disk.info().lba_bytes;
        BlockPlan::new(request.offset, request.length, lba_bytes, blocks_max, edges)
    }

    fn buffer_bytes(&self, request: &DiskRequest, piece: &BlockPiece) -> usize {
        let lba_bytes = self.disk.info().lba_bytes as usize;
        match request.op {
            _ if piece.patch => 2 * lba_bytes,
            op if op.has_data() => piece.blocks as usize * lba_bytes,
            _ => 0,
        }
    }

    fn start_flush(&mut self, mark: M, lane: usize, request: DiskRequest) -> Started {
        let key = self.add_job(mark, lane, request);
        let piece = BlockPiece { slba: 0, blocks: 0, start: 0, len: 0, patch: false };
        let part = self.add_part(key, piece, None);
        self.backlog.push_back(part);
        Started::Running(key)
    }

    fn add_job(&mut self, mark: M, lane: usize, request: DiskRequest) -> JobKey {
        let (status, held_bytes, parts_left) = (Status::SUCCESS, 0, 0);
        let (first, last) = (None, None);
        let tracked = self.disk.track(&request);
        self.jobs.insert(DiskJob {
            mark,
            request,
            lane,
            held_bytes,
            status,
            first,
            last,
            parts_left,
            tracked,
        })
    }

    fn add_part(&mut self, job: JobKey, piece: BlockPiece, mut buffer: Option<Buffer>) -> PartKey {
        let step = if piece.patch { PartStep::PatchRead } else { PartStep::Whole };
        let held_bytes = buffer.as_ref().map_or(0, Buffer::capacity);
        if piece.patch && self.jobs[job].request.op != DiskOp::Write {
            let window = self.window(&piece);
            buffer.as_mut().into_iter().for_each(|buffer| buffer[window.clone()].fill(0));
        }
        let (next, held, in_flight) = (None, None, false);
        let key = self.parts.insert(JobPart { job, next, piece, step, buffer, held, in_flight });
        let job = &mut self.jobs[job];
        job.held_bytes += held_bytes;
        job.parts_left += 1;
        match job.last.replace(key) {
            Some(last) => self.parts[last].next = Some(key),
            None => job.first = Some(key),
        }
        key
    }

    fn enqueue_all(&mut self, job: JobKey, first: PartKey) {
        debug_assert_eq!(self.jobs[job].first, Some(first));
        let mut at = Some(first);
        while let Some(part) = at {
            self.backlog.push_back(part);
            at = self.parts[part].next;
        }
    }

    /// Returns the range of a piece's bytes in its buffer: for a patch, in the second block.
    fn window(&self, piece: &BlockPiece) -> Range<usize> {
        let base = if piece.patch { self.disk.info().lba_bytes } else { 0 };
        let start = (base + piece.start) as usize;
        start..start + piece.len as usize
    }

    /// Fills in the whole payload of a Write, window by window, and submits it; `part` is the first part.
    pub(crate) fn fill(&mut self, part: PartKey, mut put: impl FnMut(&mut [u8])) {
        let mut at = Some(part);
        while let Some(part) = at {
            put(self.payload(part));
            at = self.payload_filled(part);
        }
    }

    /// Returns the window for the payload of a Write's part.
    pub(crate) fn payload(&mut self, part: PartKey) -> &mut [u8] {
        let window = self.window(&self.parts[part].piece);
        match &mut self.parts[part].buffer {
            Some(buffer) => &mut buffer[window],
            None => &mut [],
        }
    }

    /// Submits a part whose payload is complete; returns the part that gets the next bytes.
    pub(crate) fn payload_filled(&mut self, part: PartKey) -> Option<PartKey> {
        self.backlog.push_back(part);
        self.parts[part].next
    }

    /// Drops the payload from `part` on, which will never arrive; returns the job if this ended it.
    pub(crate) fn payload_lost(&mut self, job: JobKey, part: PartKey) -> Option<JobKey> {
        let mut at = Some(part);
        while let Some(part) = at {
            at = self.parts[part].next;
            self.jobs[job].parts_left -= 1;
        }
        self.jobs[job].status = Status::ABORT_REQUESTED;
        (self.jobs[job].parts_left == 0).then_some(job)
    }

    /// Hands waiting parts to the lane while it has room.
    pub(crate) fn submit(&mut self, turn: &mut dyn FrontTurn) {
        while let Some(part) = self.parked.pop_back() {
            self.backlog.push_front(part);
        }
        self.submit_backlog(turn);
        self.congested = !self.backlog.is_empty();
    }

    fn submit_backlog(&mut self, turn: &mut dyn FrontTurn) {
        while let Some(&key) = self.backlog.front()
            && let Some(lane) = self.lane_for(key, turn)
        {
            if !self.hold(key) {
                self.backlog.pop_front();
                self.parked.push_back(key);
                continue;
            }
            let last = self.backlog.len() == 1 && self.in_flight < URGENT_DEPTH_MAX;
            let request = self.request(key, last);
            if let Err(refused) = turn.submit(lane, request) {
                self.parts[key].buffer = refused.buffer;
                return;
            }
            self.backlog.pop_front();
            self.parts[key].in_flight = true;
            self.in_flight += 1;
        }
    }

    /// Returns the lane that the part's job prefers, another one if that is full, or `None` if all are.
    fn lane_for(&self, key: PartKey, turn: &dyn FrontTurn) -> Option<LaneId> {
        let preferred = self.jobs[self.parts[key].job].lane % self.lanes;
        let lane = |at| LaneId(self.lane.0 + (preferred + at) % self.lanes);
        (0..self.lanes).map(lane).find(|&lane| turn.room(lane) > 0)
    }

    /// Takes the guards that a part needs, unless it has them. True if it has them now.
    fn hold(&mut self, key: PartKey) -> bool {
        let part = &mut self.parts[key];
        let hold = match (self.jobs[part.job].request.op, part.step) {
            (DiskOp::Read | DiskOp::Flush, _) => return true,
            (_, PartStep::Whole) => StripeHold::Shared,
            (_, PartStep::PatchRead | PartStep::PatchWrite) => StripeHold::Exclusive,
        };
        if part.held.is_none() {
            let guards = self.disk.guards();
            let stripes = guards.stripes(part.piece.slba, part.piece.blocks);
            part.held = guards.try_hold(stripes, hold).then_some((stripes, hold));
        }
        part.held.is_some()
    }

    fn request(&mut self, key: PartKey, last: bool) -> IoRequest {
        let lba_bytes = self.disk.info().lba_bytes as usize;
        let part = &mut self.parts[key];
        let wanted = &self.jobs[part.job].request;
        let op = match (part.step, wanted.op) {
            (PartStep::PatchRead, _) | (_, DiskOp::Read) => IoOp::Read,
            (PartStep::PatchWrite, _) | (_, DiskOp::Write) => IoOp::Write,
            (_, DiskOp::WriteZeroes { deallocate }) => IoOp::WriteZeroes { deallocate },
            (_, DiskOp::Discard) => IoOp::Discard,
            (_, DiskOp::Flush) => IoOp::Flush,
        };
        let fua = wanted.fua && matches!(op, IoOp::Write | IoOp::WriteZeroes { .. });
        let mut buffer = part.buffer.take();
        if let Some(buffer) = &mut buffer {
            buffer.set_len(part.piece.blocks as usize * lba_bytes);
        }
        IoRequest {
            op,
            nsid: self.disk.info().nsid,
            slba: part.piece.slba,
            blocks: part.piece.blocks,
            fua,
            urgent: fua || last || op == IoOp::Flush,
            class: Class::Normal,
            buffer,
            token: u64::from(self.tag) << KEY_BITS | key as u64,
        }
    }

    /// Takes a completion; returns the job if this was its last part.
    pub(crate) fn complete(&mut self, completion: IoCompletion) -> Option<JobKey> {
        let key = (completion.token & ((1 << KEY_BITS) - 1)) as PartKey;
        let Some(part) = self.parts.get_mut(key).filter(|part| part.in_flight) else {
            debug_assert!(false, "completion of an unknown request");
            return None;
        };
        part.in_flight = false;
        part.buffer = completion.buffer;
        self.in_flight -= 1;
        if completion.status.is_success() && part.step == PartStep::PatchRead {
            self.patch(key);
            return None;
        }
        let part = &mut self.parts[key];
        if let Some((stripes, hold)) = part.held.take() {
            self.disk.guards().release(stripes, hold);
        }
        let is_write = part.step != PartStep::PatchRead;
        let job = &mut self.jobs[part.job];
        if !completion.status.is_success() {
            if is_write && completion.status.is_path_related() {
                job.tracked.iter().for_each(TrackedWrite::may_come_late);
            }
            if job.status.is_success() {
                job.status = completion.status;
            }
        }
        job.parts_left -= 1;
        (job.parts_left == 0).then_some(part.job)
    }

    /// Patches the old block, which has been read, with the front's bytes and sends it back.
    fn patch(&mut self, key: PartKey) {
        let window = self.window(&self.parts[key].piece);
        let lba_bytes = self.disk.info().lba_bytes as usize;
        let part = &mut self.parts[key];
        if let Some(buffer) = &mut part.buffer {
            buffer.set_len(2 * lba_bytes);
            let at = window.start - lba_bytes;
            buffer.copy_within(window, at);
        }
        part.step = PartStep::PatchWrite;
        self.backlog.push_front(key);
    }

    /// Drops the parts that no lane has of the jobs whose marks are `theirs`; they need no answer. Returns the number
    /// of jobs that this ended and that would have changed the disk.
    pub(crate) fn drop_waiting(&mut self, theirs: impl Fn(&M) -> bool) -> u32 {
        let DiskJobs { jobs, parts, backlog, parked, .. } = self;
        let mut dropped = Vec::new();
        let mut stays = |key: &PartKey| {
            let is_theirs = theirs(&jobs[parts[*key].job].mark);
            dropped.extend(is_theirs.then_some(*key));
            !is_theirs
        };
        backlog.retain(&mut stays);
        parked.retain(&mut stays);
        dropped.into_iter().map(|key| u32::from(self.drop_part(key))).sum()
    }

    /// Drops a waiting part. True if this ended a job that would have changed the disk.
    fn drop_part(&mut self, key: PartKey) -> bool {
        let part = &mut self.parts[key];
        let (key, guards) = (part.job, self.disk.guards());
        match part.held.take() {
            Some((stripes, hold)) => guards.release(stripes, hold),
            // It may have been refused, and left a claim.
            None => guards.withdraw(guards.stripes(part.piece.slba, part.piece.blocks)),
        }
        let job = &mut self.jobs[key];
        job.parts_left -= 1;
        if job.parts_left > 0 {
            return false;
        }
        let writes = job.request.op.writes();
        self.remove(key, |buffer, _| Some(buffer));
        writes
    }

    /// Returns the job, until it is removed.
    pub(crate) fn job(&self, key: JobKey) -> &DiskJob<M> {
        &self.jobs[key]
    }

    /// Removes a job that has no part in the lane. Passes its buffers to `take`, in order, with the range of a Read's
    /// bytes in them. These are its data if it succeeded; for other requests the range is empty. Buffers that `take`
    /// returns go to the pool; a front keeps its own buffer.
    pub(crate) fn remove(
        &mut self,
        key: JobKey,
        mut take: impl FnMut(Buffer, Range<usize>) -> Option<Buffer>,
    ) {
        let DiskJob { first: mut at, request, .. } = self.jobs.remove(key);
        while let Some(part) = at {
            let part = self.parts.remove(part);
            debug_assert!(!part.in_flight && part.held.is_none());
            at = part.next;
            let window = match request.op {
                DiskOp::Read => self.window(&part.piece),
                _ => 0..0,
            };
            let buffer = part.buffer.and_then(|buffer| take(buffer, window));
            buffer.into_iter().for_each(|buffer| self.pool.give(buffer));
        }
    }
}

impl<M> Drop for DiskJobs<M> {
    /// Releases all guards if the reactor ends with requests in flight: other lanes must not wait for them.
    fn drop(&mut self) {
        for &key in &self.parked {
            let piece = self.parts[key].piece;
            let guards = self.disk.guards();
            guards.withdraw(guards.stripes(piece.slba, piece.blocks));
        }
        let in_flight = self.parts.iter().filter(|(_, part)| part.in_flight);
        for (_, part) in in_flight {
            self.jobs[part.job].tracked.iter().for_each(TrackedWrite::may_come_late);
        }
        for (_, part) in &mut self.parts {
            if let Some((stripes, hold)) = part.held.take() {
                self.disk.guards().release(stripes, hold);
            }
        }
    }
}

#[cfg(test)]
mod tests;
