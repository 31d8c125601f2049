//! A lane at the target: one connection, its queue pair, and the commands it executes.

mod admin;
mod io;

use super::control::Control;
use super::namespace::NamespaceTable;
use super::presence::Pass;
use super::slot::{Data, Slot, Work};
use super::tasks::Tasks;
use crate::buffer::{Buffer, Pool};
use crate::connection::{Connection, Heard, Place, Received, RxBuffer};
use crate::digest;
use crate::gather::{Gather, Sent};
use crate::ring::Ring;
use crate::stats::LaneStats;
use crate::tuning::RX_BUFFER_BYTES;
use roadtrain_proto::caravan::Caravan;
use roadtrain_proto::error::QpairError;
use roadtrain_proto::target::io::IoCommand;
use roadtrain_proto::target::qpair::{Config, Qpair, RxEvent};
use roadtrain_proto::target::{Connected, Usage};
use roadtrain_proto::time::Instant;
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::status::Status;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

/// Octets received at once while the buffer pool is exhausted: what a stalled lane may have to keep.
const STALLED_RX_BYTES: usize = 64 << 10;

/// Commands handled, and octets received at once, before a latency-critical lane of this reactor gets its turn:
/// each takes about the time of a wake-up.
const YIELDING_COMMANDS: u32 = 32;
const YIELDING_RX_BYTES: usize = 192 << 10;

/// Why a lane ends.
#[derive(Debug, Error)]
pub(super) enum LaneError {
    #[error("connection lost: {0}")]
    Io(#[from] std::io::Error),
    #[error("closed by the host")]
    Closed,
    #[error(transparent)]
    Qpair(#[from] QpairError),
    #[error("{0}")]
    Ended(&'static str),
    #[error("{0} for {1:?}, while other connections wait for the buffer")]
    Overdue(&'static str, Duration),
}

/// What the lanes of a reactor share.
pub(super) struct Shared {
    pub(super) rx: RxBuffer,
    pub(super) gather: Box<Gather>,
    pub(super) pool: Pool,
    pub(super) ring: Ring,
    pub(super) tasks: Tasks,
    pub(super) now: Instant,
    pub(super) control: Arc<Control>,
}

/// One connection at the target.
pub(super) struct Lane {
    /// Index in the reactor, and which use of it: marks the lane's backend tasks.
    pub(super) id: (u32, u32),
    pub(super) peer: String,
    connection: Connection,
    qpair: Qpair,
    local: SocketAddr,
    pub(super) association: Option<Connected>,
    /// Of the host, known even when the controller is gone.
    pub(super) pass: Option<Pass>,
    /// Connect commands that wait for lanes which the host has lost.
    postponed: Vec<u16>,
    pub(super) namespaces: NamespaceTable,
    slots: Vec<Slot>,
    /// Commands that wait for a buffer, first come first served.
    starved: VecDeque<u16>,
    /// In-capsule data has arrived for a command that waits for a buffer, since when: nothing is parsed meanwhile.
    stalled: Option<Instant>,
    /// How long it was so before.
    stalled_ns: u64,
    /// Beside a latency-critical lane it receives and sends little at once, and pauses between commands.
    yielding: bool,
    /// Where it has paused in the receive buffer: from, to.
    paused: Option<(usize, usize)>,
    /// Commands in the backend.
    pub(super) tasks: u32,
    /// What the SMART log has not been told yet.
    usage: Usage,
}

/// Addresses of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    pub(super) peer: SocketAddr,
    pub(super) local: SocketAddr,
}

struct Filler<'a> {
    gather: &'a mut Gather,
    slots: &'a mut [Slot],
    responses: u64,
}

impl Caravan for Filler<'_> {
    fn has_room(&self) -> bool {
        self.gather.has_room()
    }

    fn header(&mut self, length: usize) -> &mut [u8] {
        self.responses += 1;
        self.gather.header(length)
    }

    fn payload(&mut self, slot: u16, offset: u32, length: u32, digest: bool) {
        let start = self.slots[usize::from(slot)].data.range(offset, length);
        let Some(start) = start else {
            debug_assert!(false, "a response without its data");
            return;
        };
        // SAFETY: the slot keeps its data until `Qpair::sent`; `range` checked the bounds.
        unsafe { self.gather.payload(start, length as usize) };
        if digest {
            // SAFETY: as above. Staged data: in-place data is never sent with a digest.
            let data = unsafe { std::slice::from_raw_parts(start, length as usize) };
            self.gather.header(4).copy_from_slice(&digest::crc32c(data).to_le_bytes());
        }
    }
}

impl Lane {
    pub(super) fn new(id: (u32, u32), ends: Ends, socket: OwnedFd, config: Config) -> Self {
        Lane {
            id,
            peer: ends.peer.to_string(),
            local: ends.local,
            connection: Connection::new(socket),
            qpair: Qpair::new(config),
            association: None,
            pass: None,
            postponed: Vec::new(),
            namespaces: NamespaceTable::default(),
            slots: Vec::new(),
            starved: VecDeque::new(),
            stalled: None,
            stalled_ns: 0,
            yielding: false,
            paused: None,
            tasks: 0,
            usage: Usage::default(),
        }
    }

    pub(super) fn fd(&self) -> i32 {
        self.connection.fd()
    }

    /// The host has ended the connection, though what it sent before may not have been received.
    pub(super) fn is_hung_up(&self) -> bool {
        self.connection.is_hung_up()
    }

    /// Whether it has carried something latency-critical of late.
    pub(super) fn is_express(&mut self, now: Instant) -> bool {
        self.qpair.batcher().is_express(now)
    }

    /// Whether a latency-critical lane has its turns in between.
    pub(super) fn set_yielding(&mut self, yielding: bool) {
        self.yielding = yielding;
        self.qpair.batcher().set_yielding(yielding);
    }

    pub(super) fn is_blocked(&self) -> bool {
        self.connection.is_blocked()
    }

    pub(super) fn deadline(&mut self) -> Option<Instant> {
        self.qpair.batcher().deadline()
    }

    pub(super) fn stats(&self) -> LaneStats {
        self.connection.stats.with_doorbells(self.qpair.doorbells())
    }

    /// Receives once and handles what came.
    pub(super) fn receive(&mut self, shared: &mut Shared) -> Result<Heard, LaneError> {
        if self.is_stalled() {
            return Ok(Heard::default());
        }
        let place = self.qpair.wanted().and_then(|(slot, offset, length)| {
            let data = self.slots[usize::from(slot)].data.range(offset, length)?;
            Some(Place { data, length: length as usize })
        });
        let limit = match (self.starved.is_empty(), self.yielding) {
            (false, _) => STALLED_RX_BYTES,
            (true, true) => YIELDING_RX_BYTES,
            (true, false) => RX_BUFFER_BYTES,
        };
        // SAFETY: `place` is the command's own data, or in a namespace whose blocks nobody is promised
        // while a write to them is under way.
        let received = unsafe { self.connection.receive(&mut shared.rx, place, limit) }?;
        match received {
            Received::Nothing => Ok(Heard::default()),
            Received::Closed => Err(LaneError::Closed),
            Received::Octets { direct, buffered, more } => {
                if let Some(place) = place {
                    // SAFETY: just received there.
                    let data = unsafe { std::slice::from_raw_parts(place.data, direct) };
                    self.qpair.placed(data);
                }
                self.parse(shared, 0, buffered, self.commands_max())?;
                Ok(Heard { something: true, more })
            }
        }
    }

    /// Goes on after a latency-critical lane has had its turn; `false` when there was nothing left.
    pub(super) fn go_on(&mut self, shared: &mut Shared) -> Result<bool, LaneError> {
        let Some((at, end)) = self.paused.take() else { return Ok(false) };
        self.parse(shared, at, end, self.commands_max())?;
        Ok(self.paused.is_some())
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused.is_some()
    }

    fn commands_max(&self) -> u32 {
        if self.yielding { YIELDING_COMMANDS } else { u32::MAX }
    }

    /// Handles what was received, from `at` on, until the end or after `commands_max`.
    fn parse(
        &mut self,
        shared: &mut Shared,
        mut at: usize,
        end: usize,
        commands_max: u32,
    ) -> Result<(), LaneError> {
        let mut commands = 0;
        while !self.is_stalled() {
            if commands == commands_max {
                self.paused = Some((at, end));
                return Ok(());
            }
            let input = shared.rx.filled(end);
            let Some(event) = self.qpair.poll_rx(shared.now, input, &mut at)? else { break };
            match event {
                RxEvent::Command { slot, sqe, in_capsule_bytes } => {
                    commands += 1;
                    self.handle_command(shared, slot, &sqe, in_capsule_bytes)?;
                }
                RxEvent::Data { slot, offset, start, length } => {
                    let source = input[start..start + length as usize].as_ptr();
                    if let Some(place) = self.slots[usize::from(slot)].data.range(offset, length) {
                        // SAFETY: both ranges were checked; the receive buffer is not part of any data.
                        unsafe { std::ptr::copy_nonoverlapping(source, place, length as usize) };
                    }
                }
                RxEvent::DataDone { slot, intact } => self.handle_data(shared, slot, intact)?,
            }
            if self.qpair.has_tx() {
                self.flush(shared)?;
            }
        }
        self.connection.keep(&shared.rx.filled(end)[at..]);
        Ok(())
    }

    fn slot(&mut self, number: u16) -> &mut Slot {
        let number = usize::from(number);
        if number >= self.slots.len() {
            self.slots.resize_with(number + 1, Slot::default);
        }
        &mut self.slots[number]
    }

    fn handle_command(
        &mut self,
        shared: &mut Shared,
        slot: u16,
        sqe: &Sqe,
        in_capsule_bytes: u32,
    ) -> Result<(), LaneError> {
        self.slot(slot);
        let is_fabrics = sqe.opcode == roadtrain_wire::sqe::opcode::FABRICS;
        if self.association.as_ref().is_some_and(|c| c.qid > 0) && !is_fabrics {
            self.handle_io(shared, slot, sqe, in_capsule_bytes);
            return Ok(());
        }
        self.handle_admin(shared, slot, sqe, in_capsule_bytes)
    }

    /// Buffers came back: goes on with what waits for them. `true` when the lane may receive again.
    pub(super) fn feed(&mut self, shared: &mut Shared) -> Result<bool, LaneError> {
        loop {
            self.resume(shared)?;
            let Some(&slot) = self.starved.front() else { return Ok(true) };
            let Work::Io { command, .. } = &self.slots[usize::from(slot)].work else {
                return Ok(true);
            };
            if self.is_stalled() && self.starved.len() == 1 {
                return Ok(false); // no buffer to resume with
            }
            let (length, out) = (io::staged_bytes(command), command.data_out_bytes());
            let Some(buffer) = shared.pool.take(length as usize) else {
                return Ok(!self.is_stalled());
            };
            self.starved.pop_front();
            self.hold(shared.now, slot, buffer);
            if out > 0 {
                self.qpair.request_data(shared.now, slot, out);
            } else {
                self.execute(shared, slot);
            }
        }
    }

    /// Ends a stall. The last one to starve is the one whose in-capsule data is here already.
    fn resume(&mut self, shared: &mut Shared) -> Result<(), LaneError> {
        while let Some(since) = self.stalled
            && let Some(&slot) = self.starved.back()
        {
            let Work::Io { command, .. } = &self.slots[usize::from(slot)].work else { break };
            let length = io::staged_bytes(command) as usize;
            let pool = &mut shared.pool;
            let buffer = if self.starved.len() == 1 { pool.take(length) } else { None };
            let Some(buffer) = buffer.or_else(|| pool.take_reserved(length)) else { break };
            self.starved.pop_back();
            self.stalled = None;
            self.stalled_ns += shared.now.0.saturating_sub(since.0);
            self.hold(shared.now, slot, buffer);
            let kept = self.connection.take_kept();
            let end = shared.rx.fill(&kept);
            self.parse(shared, 0, end, u32::MAX)?;
        }
        Ok(())
    }

    /// Nothing is received until a buffer is there.
    pub(super) fn is_stalled(&self) -> bool {
        self.stalled.is_some()
    }

    pub(super) fn is_starved(&self) -> bool {
        !self.starved.is_empty()
    }

    /// Gives a command its buffer.
    fn hold(&mut self, now: Instant, slot: u16, buffer: Buffer) {
        let since = self.patience(now);
        let slot = &mut self.slots[usize::from(slot)];
        (slot.data, slot.held_since) = (Data::Pooled(buffer), since);
    }

    /// A clock that stands still while the lane is stalled: what the peer sends is not received then, so it is not
    /// to blame.
    fn patience(&self, now: Instant) -> Instant {
        Instant(self.stalled.unwrap_or(now).0.saturating_sub(self.stalled_ns))
    }

    /// An error when a command has had a buffer for `limit` because of the peer. While it is in the backend its
    /// buffer is there, too.
    pub(super) fn check_transfers(&self, now: Instant, limit: Duration) -> Result<(), LaneError> {
        let now = self.patience(now);
        let is_overdue = |slot: &&Slot| {
            matches!(slot.data, Data::Pooled(_)) && now.since(slot.held_since) >= limit
        };
        let Some(slot) = self.slots.iter().find(is_overdue) else { return Ok(()) };
        let is_read = matches!(slot.work, Work::Io { command: IoCommand::Read { .. }, .. });
        let what = if is_read { "the answer was not taken" } else { "the data did not come" };
        // What it does not take would otherwise stay with the kernel.
        self.connection.reset_on_close();
        Err(LaneError::Overdue(what, limit))
    }

    fn handle_data(
        &mut self,
        shared: &mut Shared,
        slot: u16,
        intact: bool,
    ) -> Result<(), LaneError> {
        let s = &mut self.slots[usize::from(slot)];
        if let Work::Failed(status) = s.work {
            self.qpair.respond(shared.now, slot, status, 0);
            return Ok(());
        }
        if !intact {
            self.qpair.respond(shared.now, slot, Status::TRANSIENT_TRANSPORT_ERROR, 0);
            return Ok(());
        }
        match &s.work {
            Work::Admin(_) => self.run_admin(shared, slot),
            Work::InPlace(_) => {
                // It is in memory already.
                self.qpair.respond(shared.now, slot, Status::SUCCESS, 0);
                Ok(())
            }
            _ => {
                self.execute(shared, slot);
                Ok(())
            }
        }
    }

    /// The namespaces have changed.
    pub(super) fn refresh(&mut self, control: &Control) {
        self.namespaces = control.table(self.association.as_ref());
    }

    /// The turn is over: rings what the policy lets go, and sends it.
    pub(super) fn end_turn(&mut self, shared: &mut Shared) -> Result<(), LaneError> {
        if self.usage != Usage::default()
            && let Some(connected) = &self.association
        {
            connected.shared.mark_traffic();
            connected.shared.add_usage(&std::mem::take(&mut self.usage));
        }
        self.qpair.batcher().expire(shared.now);
        self.qpair.batcher().drained(shared.now);
        self.flush(shared)
    }

    /// Sends what doorbells have released.
    pub(super) fn flush(&mut self, shared: &mut Shared) -> Result<(), LaneError> {
        while !self.connection.is_blocked() && self.qpair.has_tx() {
            let gather = &mut *shared.gather;
            let mut filler = Filler { gather, slots: &mut self.slots, responses: 0 };
            self.qpair.poll_tx(&mut filler);
            self.connection.stats.caravan_requests += filler.responses;
            if shared.gather.is_empty() {
                break;
            }
            if self.connection.send(&mut shared.gather)? == Sent::All {
                self.sent(&mut shared.pool);
            }
        }
        Ok(())
    }

    fn sent(&mut self, pool: &mut Pool) {
        let (slots, stats) = (&mut self.slots, &mut self.connection.stats);
        self.qpair.sent(|number| {
            stats.requests += 1;
            let slot = &mut slots[usize::from(number)];
            slot.work = Work::None;
            if let Data::Pooled(buffer) = std::mem::take(&mut slot.data) {
                pool.give(buffer);
            }
        });
    }

    /// The socket is writable again.
    pub(super) fn writable(&mut self, shared: &mut Shared) -> Result<(), LaneError> {
        if self.connection.resume()? == Sent::All {
            self.sent(&mut shared.pool);
        }
        self.flush(shared)
    }

    /// The connection is over: every buffer that the kernel does not use goes back to the pool.
    pub(super) fn close(&mut self, shared: &mut Shared) {
        self.connection.hang_up();
        for slot in &mut self.slots {
            slot.work = Work::None;
            if let Data::Pooled(buffer) = std::mem::take(&mut slot.data) {
                shared.pool.give(buffer);
            }
        }
        self.namespaces = NamespaceTable::default();
        self.starved.clear();
    }
}
