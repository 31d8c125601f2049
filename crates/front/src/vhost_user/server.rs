//! The virtqueues of one reactor: a front that takes requests from the guest's memory and puts results there.
//!
//! Each turn it takes the lane's completions and gives their chains back. It takes new chains while the lane and the
//! buffers have room, and signals the guest once for each queue.

use super::chain::{Chain, SegmentCursor};
use super::config_space::name;
use super::orders::{OrderKind, QueueOrder};
use super::request::{VhostCommand, VhostRequest, status_of, writable_bytes};
use super::ring::{BadRing, RingSetup, Virtqueue};
use super::slot::{PendingKey, QueueSlot};
use crate::disk::{
    DiskFault, DiskJobs, DiskOp, DiskRequest, JobKey, LiveDisk, PartKey, Started, tag_of,
};
use roadtrain_host_engine::{Front, FrontTurn, Interest, IoCompletion, LaneId};
use roadtrain_proto::time::Instant;
use roadtrain_system::mailbox::MailboxReceiver;
use roadtrain_wire::virtio_blk::{ID_BYTES, RequestStatus};
use slab::Slab;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tracing::warn;

/// Bytes of buffers that one server may have in use for a disk.
const BUFFER_BYTES_MAX: usize = 128 << 20;
/// Chains that a queue may take in one turn.
const TAKE_MAX: u32 = 64;
/// Delay until a queue is retried that waits for requests of its predecessors.
const ORPHAN_RETRY: Duration = Duration::from_millis(1);
/// Longest wait of a stopping queue for its requests: the frontend blocks meanwhile.
const STOP_WAIT: Duration = Duration::from_secs(10);
/// Longest wait of a stopping server for its requests.
const END_WAIT: Duration = Duration::from_secs(5);

/// Key of the watch of the mailbox; the keys of queues are their serial numbers.
const INBOX_KEY: u64 = u64::MAX;

/// Number of a disk's requests in the lanes whose queue was abandoned, over all reactors. A write among them may reach
/// the disk late, so no new request starts before they have ended.
pub(crate) type OrphanCount = Arc<AtomicUsize>;

/// A request in progress.
struct PendingVhostRequest {
    /// Index and serial number of its queue: a late completion must not reach a successor.
    at: usize,
    serial: u64,
    head: u16,
    chain: Chain,
    request: VhostRequest,
}

/// A disk that is served.
#[derive(Clone)]
pub(crate) struct VhostDisk {
    pub(crate) disk: Arc<LiveDisk>,
    pub(crate) orphans: OrphanCount,
}

/// A disk, and its requests on this reactor.
struct DiskUnit {
    served: VhostDisk,
    jobs: DiskJobs<PendingKey>,
}

/// Serves the queues that the control threads pass to it, over one reactor's lanes.
pub(crate) struct VhostServer {
    units: Vec<DiskUnit>,
    inbox: MailboxReceiver<QueueOrder>,
    /// Queues; `None` for a free entry.
    slots: Vec<Option<QueueSlot>>,
    /// Number of turns: each begins with another queue and another disk.
    turns: usize,
    serial: u64,
    pending: Slab<PendingVhostRequest>,
    /// Chains to be used again.
    chains: Vec<Chain>,
    watches_inbox: bool,
    retry_at: Option<Instant>,
    end_by: Option<Instant>,
}

impl VhostServer {
    /// Makes a server of `disks` over `lanes` lanes.
    pub(crate) fn new(
        disks: impl Iterator<Item = VhostDisk>,
        lanes: usize,
        inbox: MailboxReceiver<QueueOrder>,
    ) -> Self {
        let unit = |(place, served): (usize, VhostDisk)| {
            let mut jobs = DiskJobs::new(served.disk.clone(), LaneId(0), BUFFER_BYTES_MAX);
            jobs.set_lanes(lanes);
            jobs.set_tag(place as u16);
            DiskUnit { served, jobs }
        };
        VhostServer {
            units: disks.enumerate().map(unit).collect(),
            inbox,
            slots: Vec::new(),
            turns: 0,
            serial: 0,
            pending: Slab::new(),
            chains: Vec::new(),
            watches_inbox: false,
            retry_at: None,
            end_by: None,
        }
    }

    /// Returns the index of a disk's queue.
    fn find(&self, disk: usize, queue: u16) -> Option<usize> {
        let is_it = |slot: &QueueSlot| slot.disk == disk && slot.queue == queue;
        self.slots.iter().position(|slot| slot.as_ref().is_some_and(is_it))
    }

    fn slot(&mut self, disk: usize, queue: u16) -> Option<&mut QueueSlot> {
        let at = self.find(disk, queue)?;
        self.slots[at].as_mut()
    }

    /// Returns the indices of a disk's queues.
    fn queue_indices(&self, disk: usize) -> Vec<usize> {
        let is_its = |at: &usize| self.slots[*at].as_ref().is_some_and(|slot| slot.disk == disk);
        (0..self.slots.len()).filter(is_its).collect()
    }

    fn ring(&mut self, at: usize) -> Option<&mut Virtqueue> {
        self.slots[at].as_mut()?.ring()
    }

    fn take_ready(&mut self, turn: &mut dyn FrontTurn) {
        while let Some(key) = turn.next_ready() {
            if key == INBOX_KEY {
                self.watches_inbox = false;
                self.inbox.acknowledge();
                while let Some(order) = self.inbox.take() {
                    self.apply(order, turn);
                }
                continue;
            }
            let slot = self.slots.iter_mut().flatten().find(|slot| slot.serial == key);
            if let Some(slot) = slot {
                (slot.watched, slot.kicked) = (false, true);
                slot.ring().into_iter().for_each(Virtqueue::acknowledge);
            }
        }
    }

    fn apply(&mut self, QueueOrder { disk, kind }: QueueOrder, turn: &mut dyn FrontTurn) {
        match kind {
            OrderKind::Start(setup) => self.start(disk, setup, turn),
            OrderKind::Stop { queue, reply } => {
                if let Some(slot) = self.slot(disk, queue) {
                    slot.stopping = Some((reply, turn.now() + STOP_WAIT));
                }
            }
            OrderKind::Call { queue, bell } => {
                if let Some(ring) = self.slot(disk, queue).and_then(QueueSlot::ring) {
                    ring.signals.call = bell;
                    ring.signal_always();
                }
            }
            OrderKind::Error { queue, event } => {
                if let Some(ring) = self.slot(disk, queue).and_then(QueueSlot::ring) {
                    ring.signals.error = event;
                }
            }
            OrderKind::Remap { memory, done } => {
                for at in self.queue_indices(disk) {
                    let slot = self.slots[at].as_mut();
                    let remapped = slot.map_or(Ok(()), |slot| slot.remap(memory.clone()));
                    self.stop_if_invalid(at, remapped);
                }
                let _ = done.try_send(());
            }
            OrderKind::Abandon { done } => {
                self.queue_indices(disk).into_iter().for_each(|at| self.abandon(at, turn));
                let _ = done.try_send(());
            }
        }
    }

    fn start(&mut self, disk: usize, setup: Box<RingSetup>, turn: &mut dyn FrontTurn) {
        if let Some(at) = self.find(disk, setup.index) {
            self.abandon(at, turn);
        }
        let at = self.slots.iter().position(Option::is_none).unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.serial += 1;
        self.slots[at] = Some(QueueSlot::new(disk, self.serial, setup));
    }

    /// Drops a queue; its requests in the lane become orphans.
    fn abandon(&mut self, at: usize, turn: &mut dyn FrontTurn) {
        let Some(slot) = self.slots[at].take() else { return };
        if slot.watched {
            turn.unwatch(slot.serial);
        }
        slot.waiting_for_buffers.into_iter().for_each(|key| self.forget(key));
        self.units[slot.disk].served.orphans.fetch_add(slot.in_flight, Ordering::AcqRel);
    }

    /// Ends the use of an invalid queue.
    fn stop_if_invalid(&mut self, at: usize, result: Result<(), BadRing>) {
        let Err(error) = result else { return };
        let Some(slot) = &mut self.slots[at] else { return };
        slot.fail(&error);
        let waiting_for_buffers = slot.waiting_for_buffers.take();
        waiting_for_buffers.into_iter().for_each(|key| self.forget(key));
    }

    fn forget(&mut self, key: PendingKey) {
        let pending = self.pending.remove(key);
        self.chains.push(pending.chain);
    }

    fn take_completions(&mut self, turn: &mut dyn FrontTurn) {
        while let Some(completion) = turn.next_completion() {
            self.take_completion(completion);
        }
    }

    fn take_completion(&mut self, completion: IoCompletion) {
        let unit = &mut self.units[usize::from(tag_of(&completion))];
        let Some(job) = unit.jobs.complete(completion) else { return };
        let key = unit.jobs.job(job).mark;
        let PendingVhostRequest { at, serial, .. } = self.pending[key];
        match self.slots[at].as_mut().filter(|slot| slot.serial == serial) {
            Some(slot) => {
                slot.in_flight -= 1;
                let ended = self.end_job(at, job, key);
                self.stop_if_invalid(at, ended);
            }
            None => {
                unit.served.orphans.fetch_sub(1, Ordering::AcqRel);
                unit.jobs.remove(job, |buffer, _| Some(buffer));
            }
        }
        self.forget(key);
    }

    /// Gives the chain of a finished job back.
    fn end_job(&mut self, at: usize, job: JobKey, key: PendingKey) -> Result<(), BadRing> {
        let PendingVhostRequest { head, ref chain, ref request, .. } = self.pending[key];
        let Some(slot) = &mut self.slots[at] else { return Ok(()) };
        let jobs = &mut self.units[slot.disk].jobs;
        let (status, op) = (jobs.job(job).status, jobs.job(job).request.op);
        let Some(ring) = slot.ring() else {
            jobs.remove(job, |buffer, _| Some(buffer));
            return Ok(()); // the queue was invalid and is stopped
        };
        let (mut cursor, mut copied, mut written) = (request.data, Ok(()), 0);
        jobs.remove(job, |buffer, range| {
            if status.is_success() && op == DiskOp::Read && copied.is_ok() {
                written += range.len() as u32;
                copied = chain.writable.write(&mut cursor, ring.memory(), &buffer[range]);
            }
            Some(buffer)
        });
        copied?;
        let answer = match status.is_success() {
            true => RequestStatus::Ok,
            false => status_of(DiskFault::of(status, op)),
        };
        ring.give(head, answer, request.status_at, written)
    }

    /// Starts the queues that waited for orphans, if none are left.
    fn start_waiting(&mut self) {
        for slot in self.slots.iter_mut().flatten().filter(|slot| slot.is_waiting()) {
            if self.units[slot.disk].served.orphans.load(Ordering::Acquire) == 0 {
                slot.begin();
            }
        }
    }

    /// Takes requests from a queue, as far as there is room.
    fn take_from(&mut self, at: usize, stopping: bool) -> Result<(), BadRing> {
        for _ in 0..TAKE_MAX {
            let Some(slot) = self.slots[at].as_mut().filter(|slot| slot.kicked) else { break };
            if self.units[slot.disk].jobs.is_congested() {
                break;
            }
            let key = match slot.waiting_for_buffers.take() {
                Some(key) => key,
                None => match self.take_one(at, stopping)? {
                    Some(key) => key,
                    None => break,
                },
            };
            if !self.begin(at, key)? {
                break;
            }
        }
        Ok(())
    }

    /// Takes one chain; enables kicks if there is none.
    fn take_one(&mut self, at: usize, stopping: bool) -> Result<Option<PendingKey>, BadRing> {
        let Some(slot) = &mut self.slots[at] else { return Ok(None) };
        let disk = self.units[slot.disk].jobs.disk();
        let (serial, old_only) = (slot.serial, stopping || slot.stopping.is_some());
        let Some(ring) = slot.ring() else { return Ok(None) };
        let mut chain = self.chains.pop().unwrap_or_default();
        let Some(head) = ring.take(&mut chain, old_only)? else {
            self.chains.push(chain);
            slot.kicked = !old_only && ring.enable_kicks()?;
            return Ok(None);
        };
        let mut request = VhostRequest::of(&chain, ring.memory(), disk)?;
        if ring.is_write_through() {
            request.write_through();
        }
        Ok(Some(self.pending.insert(PendingVhostRequest { at, serial, head, chain, request })))
    }

    /// Starts or answers a request. Returns `false` if there is no buffer for it.
    fn begin(&mut self, at: usize, key: PendingKey) -> Result<bool, BadRing> {
        let PendingVhostRequest { head, request, .. } = self.pending[key];
        let (status, status_at) = match request.command {
            Ok(VhostCommand::Disk(disk_request)) => match self.begin_disk(at, key, disk_request)? {
                DiskRequestStart::Done => (RequestStatus::Ok, request.status_at),
                DiskRequestStart::Running => return Ok(true),
                DiskRequestStart::NoBuffers => return Ok(false),
            },
            Ok(VhostCommand::Identify) => {
                let identified = self.identify(at, key);
                self.forget(key);
                return identified.map(|()| true);
            }
            Err(status) => (status, request.status_at),
        };
        self.forget(key);
        match self.ring(at) {
            Some(ring) => ring.give(head, status, status_at, 0).map(|()| true),
            None => Ok(true),
        }
    }

    fn begin_disk(
        &mut self,
        at: usize,
        key: PendingKey,
        disk_request: DiskRequest,
    ) -> Result<DiskRequestStart, BadRing> {
        let Some(slot) = &mut self.slots[at] else { return Ok(DiskRequestStart::Running) };
        match self.units[slot.disk].jobs.start(key, at, disk_request) {
            Started::Done => return Ok(DiskRequestStart::Done),
            Started::Running(_) => slot.in_flight += 1,
            Started::Payload(job, part) => {
                slot.in_flight += 1;
                self.fill(at, key, job, part)?;
            }
            Started::NoBuffers => {
                slot.waiting_for_buffers = Some(key);
                return Ok(DiskRequestStart::NoBuffers);
            }
        }
        Ok(DiskRequestStart::Running)
    }

    /// Copies the data of a Write from the guest's memory.
    fn fill(
        &mut self,
        at: usize,
        key: PendingKey,
        job: JobKey,
        first: PartKey,
    ) -> Result<(), BadRing> {
        let PendingVhostRequest { ref chain, ref request, .. } = self.pending[key];
        let Some(slot) = &mut self.slots[at] else { return Ok(()) };
        let jobs = &mut self.units[slot.disk].jobs;
        let (mut cursor, mut next) = (request.data, Some(first));
        while let Some(part) = next {
            let Some(ring) = slot.ring() else { return Ok(()) };
            let bytes = jobs.payload(part);
            if let Err(error) = chain.readable.read(&mut cursor, ring.memory(), bytes) {
                if let Some(job) = jobs.payload_lost(job, part) {
                    jobs.remove(job, |buffer, _| Some(buffer));
                    slot.in_flight -= 1;
                    self.forget(key);
                }
                return Err(error.into());
            }
            next = jobs.payload_filled(part);
        }
        Ok(())
    }

    fn identify(&mut self, at: usize, key: PendingKey) -> Result<(), BadRing> {
        let PendingVhostRequest { head, ref chain, ref request, .. } = self.pending[key];
        let Some(slot) = &mut self.slots[at] else { return Ok(()) };
        let name = name(self.units[slot.disk].jobs.disk());
        let Some(ring) = slot.ring() else { return Ok(()) };
        let written = writable_bytes(chain).min(ID_BYTES as u32);
        let bytes = &name[..written as usize];
        chain.writable.write(&mut SegmentCursor::default(), ring.memory(), bytes)?;
        ring.give(head, RequestStatus::Ok, request.status_at, written)
    }

    fn take_from_all(&mut self, stopping: bool) {
        for at in rotated(self.slots.len(), self.turns) {
            let taken = self.take_from(at, stopping);
            self.stop_if_invalid(at, taken);
        }
    }

    /// Hands waiting requests to the lanes, in another order of disks each turn.
    fn submit(&mut self, turn: &mut dyn FrontTurn) {
        for place in rotated(self.units.len(), self.turns) {
            self.units[place].jobs.submit(turn);
        }
    }

    /// Signals the guest, and ends stopping queues that have nothing left.
    fn settle_all(&mut self, turn: &mut dyn FrontTurn) {
        for at in 0..self.slots.len() {
            let signalled = self.ring(at).map_or(Ok(()), Virtqueue::signal);
            self.stop_if_invalid(at, signalled);
            self.settle(at, turn);
        }
    }

    fn settle(&mut self, at: usize, turn: &mut dyn FrontTurn) {
        let Some(slot) = &mut self.slots[at] else { return };
        if let Some((reply, by)) = &slot.stopping
            && (slot.is_done() || *by <= turn.now())
        {
            if !slot.is_done() {
                warn!(queue = slot.queue, "vhost-user: stopped with requests in flight");
            }
            let _ = reply.try_send(slot.next_available());
            return self.abandon(at, turn);
        }
        let watches = slot.kicked || slot.watched;
        if let Some(ring) = slot.ring().filter(|_| !watches) {
            let fd = ring.kick_fd();
            slot.watched = true;
            turn.watch(fd, Interest::Readable, slot.serial);
        }
    }

    /// Arms the mailbox watch and the timers.
    fn await_more(&mut self, turn: &mut dyn FrontTurn) {
        let slots = || self.slots.iter().flatten();
        let congested = |slot: &QueueSlot| self.units[slot.disk].jobs.is_congested();
        let can_continue = slots().any(|slot| slot.can_continue() && !congested(slot));
        let orphans = slots().any(QueueSlot::is_waiting).then_some(ORPHAN_RETRY);
        let delays = [can_continue.then_some(Duration::ZERO), orphans];
        let soon = delays.into_iter().flatten().map(|delay| turn.now() + delay);
        let guards = self.units.iter().filter_map(|unit| unit.jobs.retry_at(turn.now()));
        let stops = slots().filter_map(|slot| Some(slot.stopping.as_ref()?.1));
        self.retry_at = soon.chain(guards).chain(stops).chain(self.end_by).min();
        if turn.stopping() {
            return self.end(turn);
        }
        if !std::mem::replace(&mut self.watches_inbox, true) {
            turn.watch(self.inbox.fd(), Interest::Readable, INBOX_KEY);
        }
    }

    /// Finishes the taken requests and ends the reactor; requests that take too long are left to a successor.
    fn end(&mut self, turn: &mut dyn FrontTurn) {
        let by = *self.end_by.get_or_insert(turn.now() + END_WAIT);
        self.retry_at = Some(self.retry_at.map_or(by, |at| at.min(by)));
        let is_idle = self.units.iter().all(|unit| unit.jobs.is_idle());
        let is_done = is_idle && self.slots.iter().flatten().all(QueueSlot::is_done);
        if !is_done && turn.now() < by {
            return;
        }
        (0..self.slots.len()).for_each(|at| self.abandon(at, turn));
        if std::mem::take(&mut self.watches_inbox) {
            turn.unwatch(INBOX_KEY);
        }
        turn.stop();
    }
}

/// Returns the numbers below `count`, starting at another one each turn.
fn rotated(count: usize, turns: usize) -> impl Iterator<Item = usize> {
    let first = turns % count.max(1);
    (first..count).chain(0..first)
}

/// Outcome of the start of a disk request.
enum DiskRequestStart {
    /// There is nothing to do.
    Done,
    Running,
    /// No buffer: retried later.
    NoBuffers,
}

impl Front for VhostServer {
    fn turn(&mut self, turn: &mut dyn FrontTurn) {
        self.turns = self.turns.wrapping_add(1);
        self.take_ready(turn);
        self.take_completions(turn);
        self.start_waiting();
        self.submit(turn);
        self.take_from_all(turn.stopping());
        self.submit(turn);
        self.settle_all(turn);
        self.await_more(turn);
    }

    fn deadline(&self) -> Option<Instant> {
        self.retry_at
    }
}

#[cfg(test)]
mod harness;
#[cfg(test)]
mod tests;
