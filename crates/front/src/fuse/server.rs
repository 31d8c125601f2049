//! FUSE server: a front of the reactor that its lanes run on.
//!
//! Requests come over io_uring, into memory that goes on to the lane as it is (`ring`), or are read from the device
//! (`device`); from there on both are slots. Requests without I/O are answered at once (`tree`). The others become
//! [`DiskJobs`] of their disk, and are answered when these end.

use super::device::FuseDevice;
use super::mount_state::MountState;
use super::queues;
use super::ring;
use super::slots::{FuseSlots, SlotOrigin};
use super::tree::{FuseOutcome, FuseWork};
use crate::disk::{DiskFault, DiskJobs, DiskOp, NamespaceWatch, Started, tag_of};
use roadtrain_host_engine::{Front, FrontTurn, Interest, LaneId, ReactorInfo};
use roadtrain_proto::time::Instant;
use roadtrain_wire::fuse::{Opcode, WriteOut};
use roadtrain_wire::status::Status;
use roadtrain_wire::zerocopy::IntoBytes;
use std::collections::VecDeque;
use std::io::{self, PipeReader};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;
use tracing::{debug, warn};

/// Requests that a reactor reads from the device at a time.
const DEVICE_DEPTH: usize = 128;
/// Requests read from the device while io_uring is in use: only those that the kernel does not send over it.
const DEVICE_DEPTH_WITH_RING: usize = 4;
/// Bytes of each disk's buffers for requests that the lane cannot do in a slot's memory.
const BUFFER_BYTES_MAX: usize = 64 << 20;
/// Longest wait at the end for the kernel to give the slots back.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

const BEGIN_KEY: u64 = 0;
const DEVICE_KEY: u64 = 1;

/// Serves a mount over one reactor's lanes.
pub struct FuseServer {
    session: Arc<MountState>,
    reactor: ReactorInfo,
    /// Cores of all reactors.
    cores: Vec<usize>,
    /// Pipe that becomes readable once the mount exists, or never will.
    begin: PipeReader,
    phase: FuseServerPhase,
    /// Device to read from; `None` if another reactor reads.
    device: Option<FuseDevice>,
    /// True if a request may be pending at the device.
    readable: bool,
    disks: Vec<FuseDisk>,
    slots: FuseSlots,
    /// Slots that are with the kernel.
    commands: usize,
    /// Slots waiting for buffers, longest first.
    waiting_for_buffers: VecDeque<usize>,
    retry_at: Option<Instant>,
    /// Deadline of the wait for the kernel at the end.
    stop_at: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FuseServerPhase {
    /// Before the first turn.
    New,
    /// The mount does not exist yet.
    Waiting,
    Running,
}

struct FuseDisk {
    jobs: DiskJobs<usize>,
    watch: NamespaceWatch,
}

impl FuseServer {
    /// Makes the server of `reactor`, one of those pinned to `cores`. It starts when `begin` is readable.
    pub(super) fn new(
        session: Arc<MountState>,
        reactor: ReactorInfo,
        cores: Vec<usize>,
        begin: PipeReader,
        watch: impl Fn() -> NamespaceWatch,
    ) -> Self {
        let serve = |(tag, disk): (usize, &Arc<_>)| {
            let mut jobs = DiskJobs::new(Arc::clone(disk), LaneId(0), BUFFER_BYTES_MAX);
            jobs.set_lanes(reactor.lanes);
            jobs.set_tag(tag as u16);
            FuseDisk { jobs, watch: watch() }
        };
        FuseServer {
            disks: session.tree.disks().iter().enumerate().map(serve).collect(),
            session,
            reactor,
            cores,
            begin,
            phase: FuseServerPhase::New,
            device: None,
            readable: false,
            slots: FuseSlots::none(),
            commands: 0,
            waiting_for_buffers: VecDeque::new(),
            retry_at: None,
            stop_at: None,
        }
    }

    /// Starts to serve the mount: gives the slots to the kernel, or begins to read the device.
    fn start(&mut self, turn: &mut dyn FrontTurn) -> io::Result<()> {
        let session = Arc::clone(&self.session);
        let Some(mounted) = session.mounted() else { return Ok(()) };
        let is_first = self.reactor.index == 0;
        if mounted.uring {
            let count = queues::count()?;
            let queues = queues::of(self.reactor, &self.cores, count);
            let device_slots = if is_first { DEVICE_DEPTH_WITH_RING } else { 0 };
            self.slots = FuseSlots::new(device_slots, &queues, queues::depth(count))?;
            for slot in device_slots..self.slots.len() {
                if let Some(command) = self.slots.registration(slot, mounted.device.fd()) {
                    self.commands += 1;
                    ring::send(turn, &command, slot);
                }
            }
        } else {
            self.slots = FuseSlots::new(DEVICE_DEPTH, &[], 0)?;
        }
        if is_first {
            self.device = Some(mounted.device.try_share()?);
        } else if !mounted.uring {
            self.device = Some(mounted.device.try_clone()?);
        }
        self.watch_device(turn);
        Ok(())
    }

    fn watch_device(&mut self, turn: &mut dyn FrontTurn) {
        self.readable = false;
        if let Some(device) = &self.device {
            turn.watch(device.fd(), Interest::Readable, DEVICE_KEY);
        }
    }

    fn take_ready(&mut self, turn: &mut dyn FrontTurn) {
        if self.phase == FuseServerPhase::New {
            self.phase = FuseServerPhase::Waiting;
            turn.watch(self.begin.as_raw_fd(), Interest::Readable, BEGIN_KEY);
        }
        while let Some(key) = turn.next_ready() {
            if key == DEVICE_KEY {
                self.readable = true;
            } else if self.phase == FuseServerPhase::Waiting {
                self.phase = FuseServerPhase::Running;
                if let Err(error) = self.start(turn) {
                    warn!("a reactor cannot serve FUSE requests: {error}");
                }
            }
        }
    }

    /// Handles the lane's completions.
    fn take_completions(&mut self, turn: &mut dyn FrontTurn) {
        while let Some(completion) = turn.next_completion() {
            let Some(served) = self.disks.get_mut(usize::from(tag_of(&completion))) else {
                continue;
            };
            let Some(key) = served.jobs.complete(completion) else { continue };
            let (slot, status) = (served.jobs.job(key).mark, served.jobs.job(key).status);
            let (slots, mut at) = (&mut self.slots, 0);
            served.jobs.remove(key, |buffer, range| {
                if !slots.has_payload(slot) {
                    slots.put_payload(slot, buffer);
                    return None;
                }
                let bytes = range.len();
                if let Some(room) = slots.payload(slot).get_mut(at..at + bytes) {
                    room.copy_from_slice(&buffer[range]);
                }
                at += bytes;
                Some(buffer)
            });
            self.step_ended(turn, slot, status);
        }
    }

    /// Handles requests that the kernel has put into slots.
    fn take_requests(&mut self, turn: &mut dyn FrontTurn) {
        while let Some((slot, result)) = turn.next_command() {
            self.commands -= 1;
            let slot = slot as usize;
            if result >= 0 {
                self.slots.arrive(slot);
                self.handle(turn, slot);
            } else if matches!(-result, libc::EOPNOTSUPP | libc::EINVAL | libc::ENOMEM)
                && self.session.refuse()
            {
                let error = io::Error::from_raw_os_error(-result);
                warn!("FUSE over io_uring is refused, the device is read instead: {error}");
            } else {
                debug!(slot, result, "a FUSE slot has ended");
            }
        }
    }

    /// Reads pending requests from the device.
    fn read_device(&mut self, turn: &mut dyn FrontTurn) {
        while self.readable && self.slots.has_free() {
            let Some(device) = &self.device else { return };
            match self.slots.receive(device) {
                Ok(Some(slot)) => self.handle(turn, slot),
                Ok(None) => self.watch_device(turn),
                Err(error) => {
                    debug!("no more FUSE requests: {error}");
                    (self.device, self.readable) = (None, false);
                }
            }
        }
    }

    /// Answers a slot's request, or starts its I/O.
    fn handle(&mut self, turn: &mut dyn FrontTurn, slot: usize) {
        let header = self.slots.header(slot);
        let opcode = header.opcode();
        if opcode.has_no_answer() && self.slots.origin(slot) == SlotOrigin::Device {
            return self.slots.release(slot);
        }
        if reply_has_size(opcode) {
            for served in &mut self.disks {
                served.watch.check(turn.now(), served.jobs.disk());
            }
        }
        let (args, room) = self.slots.args_and_room(slot);
        match self.session.tree.answer(&header, args, room) {
            FuseOutcome::Data(bytes) => self.answer(turn, slot, Ok(bytes)),
            FuseOutcome::Error(errno) => self.answer(turn, slot, Err(errno)),
            FuseOutcome::Work(work) => {
                *self.slots.work(slot) = Some(work);
                self.begin_step(turn, slot, work);
            }
        }
    }

    /// Starts the next step of a slot's work.
    fn begin_step(&mut self, turn: &mut dyn FrontTurn, slot: usize, work: FuseWork) {
        let request = work.request();
        let jobs = &mut self.disks[work.disk].jobs;
        if let Err(fault) = jobs.disk().check(&request) {
            return self.answer(turn, slot, Err(fault.errno()));
        }
        // Requests of one queue share caravans.
        let lane = match self.slots.origin(slot) {
            SlotOrigin::Device => slot,
            SlotOrigin::Ring(queue) => usize::from(queue),
        };
        if jobs.is_whole(&request) {
            if let Some(payload) = self.slots.take_payload(slot) {
                jobs.start_with(slot, lane, request, payload);
            }
            return;
        }
        match jobs.start(slot, lane, request) {
            Started::Done => self.step_ended(turn, slot, Status::SUCCESS),
            Started::Running(_) => {}
            Started::Payload(_, part) => {
                let mut payload: &[u8] = self.slots.payload(slot);
                jobs.fill(part, |window| {
                    let (bytes, rest) = payload.split_at(window.len().min(payload.len()));
                    window[..bytes.len()].copy_from_slice(bytes);
                    payload = rest;
                });
            }
            Started::NoBuffers => self.waiting_for_buffers.push_back(slot),
        }
    }

    /// Handles the end of a step of a slot's work.
    fn step_ended(&mut self, turn: &mut dyn FrontTurn, slot: usize, status: Status) {
        let Some(mut work) = self.slots.work(slot).take() else { return };
        if !status.is_success() {
            let errno = DiskFault::of(status, work.op).errno();
            return self.answer(turn, slot, Err(errno));
        }
        let request = work.request();
        work.at += u64::from(request.length);
        if work.at < work.end {
            *self.slots.work(slot) = Some(work);
            return self.begin_step(turn, slot, work);
        }
        let bytes = match work.op {
            DiskOp::Read => request.length as usize,
            DiskOp::Write => {
                let written = WriteOut { size: request.length, padding: 0 };
                let put = written.write_to_prefix(self.slots.payload(slot));
                put.map_or(0, |()| size_of::<WriteOut>())
            }
            _ => 0,
        };
        self.answer(turn, slot, Ok(bytes));
    }

    fn answer(&mut self, turn: &mut dyn FrontTurn, slot: usize, result: Result<usize, i32>) {
        *self.slots.work(slot) = None;
        match (self.slots.origin(slot), &self.device, self.session.mounted()) {
            (SlotOrigin::Ring(_), _, Some(mounted)) => {
                if let Some(command) = self.slots.commit(slot, mounted.device.fd(), result) {
                    self.commands += 1;
                    ring::send(turn, &command, slot);
                }
            }
            (SlotOrigin::Device, Some(device), _) => {
                // ENOENT: the request was withdrawn. Other errors: the mount has ended, which the next read reports.
                if let Err(error) = self.slots.send(slot, device, result) {
                    debug!("a FUSE request's answer is not taken: {error}");
                }
            }
            (SlotOrigin::Device, None, _) => self.slots.release(slot),
            (SlotOrigin::Ring(_), _, None) => {}
        }
    }

    /// Retries slots that wait for buffers.
    fn retry_waiting(&mut self, turn: &mut dyn FrontTurn) {
        for _ in 0..self.waiting_for_buffers.len() {
            let Some(slot) = self.waiting_for_buffers.pop_front() else { return };
            if let Some(work) = *self.slots.work(slot) {
                self.begin_step(turn, slot, work);
            }
        }
    }

    fn submit(&mut self, turn: &mut dyn FrontTurn) {
        for served in &mut self.disks {
            served.watch.check_if_due(turn.now(), served.jobs.disk());
            served.jobs.submit(turn);
        }
        let retries = self.disks.iter().filter_map(|served| served.jobs.retry_at(turn.now()));
        self.retry_at = retries.min();
    }

    /// Ends the reactor when nothing is in flight. The mount has ended before, so the kernel gives all slots back.
    fn stop(&mut self, turn: &mut dyn FrontTurn) {
        let stop_at = *self.stop_at.get_or_insert(turn.now() + STOP_TIMEOUT);
        let is_idle = self.disks.iter().all(|served| served.jobs.is_idle());
        let is_over = turn.now() >= stop_at;
        if is_idle && (self.commands == 0 || is_over) {
            if let Some(device) = self.device.take() {
                turn.unwatch(DEVICE_KEY);
                drop(device);
            }
            turn.unwatch(BEGIN_KEY);
            turn.stop();
        }
    }
}

/// True if the reply contains a size, which must be the current one.
fn reply_has_size(opcode: Opcode) -> bool {
    [Opcode::LOOKUP, Opcode::GETATTR, Opcode::SETATTR, Opcode::LSEEK].contains(&opcode)
}

impl Front for FuseServer {
    fn turn(&mut self, turn: &mut dyn FrontTurn) {
        self.take_ready(turn);
        self.take_completions(turn);
        self.take_requests(turn);
        self.read_device(turn);
        self.retry_waiting(turn);
        self.submit(turn);
        if turn.stopping() {
            self.stop(turn);
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let stop_at = self.stop_at.filter(|_| self.commands > 0);
        self.retry_at.into_iter().chain(stop_at).min()
    }
}

#[cfg(test)]
mod tests;
