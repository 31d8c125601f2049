//! Counters of a lane's I/O commands, from arrival to departure of the completion.

use super::LaneResources;
use crate::meters::{LaneCells, Meters};
use crate::namespace::{ByNsid, LaneNamespaces, LocalNamespace};
use roadtrain_proto::policy::Class;
use roadtrain_proto::recorder::{RecordReason, RecordedParams, RequestRecord, Timeline};
use roadtrain_proto::time::Instant;
use roadtrain_reactor::metrics::{Batching, CommandKind, CommandOutcome};
use roadtrain_reactor::recorded::first_block;
use roadtrain_target_proto::ConnectedQueue;
use roadtrain_wire::sqe::{Sqe, cdw12, opcode};
use roadtrain_wire::status::Status;
use std::mem;
use std::sync::Arc;

/// Counting state of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum CountingState {
    /// No command, or its completion has left.
    #[default]
    Over,
    InFlight,
    /// Not counted in flight: its namespace was not accessible.
    Inaccessible,
}

/// Command that has arrived. `nsid` is 0 if it is not counted.
#[derive(Clone, Copy, Debug, Default)]
struct CountedCommand {
    since: Instant,
    slba: u64,
    nsid: u32,
    blocks: u16,
    opcode: u8,
    class: Class,
    status: Status,
    deallocates: bool,
    state: CountingState,
}

impl CountedCommand {
    /// Counts the command when its completion has left.
    #[inline]
    fn end(
        &self,
        namespace: &LocalNamespace,
        (account, reactor): (&QueueAccount, usize),
        now: Instant,
    ) {
        let (cells, lane) = (&namespace.cells[reactor], &account.cells.io);
        cells.io().add_in_flight(-1);
        if !self.status.is_success() {
            cells.io().failed();
            cells.statuses.count(self.status);
            return lane.failed();
        }
        let (done, ns) = (CommandKind::of(self.opcode), now.0.saturating_sub(self.since.0));
        let bytes = (u64::from(self.blocks) + 1) << namespace.geometry.lba_shift;
        let ended = CommandOutcome::new(done, bytes, ns);
        cells.class(self.class).ended(ended);
        lane.ended(ended);
        if self.opcode == opcode::WRITE_ZEROES && self.deallocates {
            cells.io().discarded(bytes);
        }
    }

    /// Counts a command whose namespace is not accessible any more, or never was.
    #[cold]
    fn end_inaccessible(
        &self,
        (meters, reactor): (&Meters, usize),
        account: &QueueAccount,
        state: CountingState,
    ) {
        if state == CountingState::InFlight
            && let Some(cells) = meters.known(&account.nqn, self.nsid)
        {
            cells[reactor].io().add_in_flight(-1);
        }
        match self.status.is_success() {
            true => account.cells.io.ended(CommandOutcome::new(CommandKind::Other, 0, 0)),
            false => account.cells.io.failed(),
        }
    }
}

/// Counters and identity of a queue.
struct QueueAccount {
    number: u64,
    nqn: Arc<str>,
    is_io: bool,
    class: Class,
    cells: Arc<LaneCells>,
}

/// Counters of a lane's commands.
#[derive(Default)]
pub(crate) struct LaneMeter {
    account: Option<QueueAccount>,
    namespaces: ByNsid,
    /// Commands by slot.
    begun: Vec<CountedCommand>,
}

impl LaneMeter {
    /// Starts counting when the queue is connected.
    pub(super) fn connected(
        &mut self,
        (meters, reactor): (&Meters, usize),
        connected: &ConnectedQueue,
        (peer, transport): (&str, &'static str),
    ) {
        let (number, cells) = meters.enter(connected, (peer, transport), reactor);
        let ConnectedQueue { subnqn: nqn, qid, class, .. } = connected;
        let (nqn, is_io, class) = (nqn.clone(), *qid > 0, *class);
        self.account = Some(QueueAccount { number, nqn, is_io, class, cells });
    }

    /// Sets the accessible namespaces.
    pub(super) fn set_namespaces(&mut self, namespaces: &LaneNamespaces) {
        self.namespaces = namespaces.by_nsid();
    }

    /// Reports the move to another reactor.
    pub(super) fn moved(&self, meters: &Meters, reactor: usize) {
        if let Some(account) = &self.account {
            meters.moved(&account.cells, reactor);
        }
    }

    /// Counts a command that has arrived.
    #[inline]
    pub(super) fn begin(&mut self, shared: &LaneResources, slot: u16, sqe: &Sqe) {
        let (nsid, code) = (sqe.nsid.get(), sqe.opcode);
        let Some(account) = self.account.as_ref().filter(|account| account.is_io) else { return };
        if code == opcode::FABRICS || nsid == 0 {
            return self.forget(slot);
        }
        let namespace = self.namespaces.get(nsid);
        let own = namespace.and_then(|namespace| namespace.class).unwrap_or(account.class);
        let requested_class = match code {
            opcode::READ | opcode::WRITE => Class::from_dsm(sqe.cdw13.get()),
            _ => None,
        };
        let cdw12 = sqe.cdw12.get();
        let begun = CountedCommand {
            since: shared.now,
            slba: sqe.slba(),
            nsid,
            blocks: cdw12 as u16,
            opcode: code,
            class: requested_class.unwrap_or(own),
            status: Status::SUCCESS,
            deallocates: cdw12 & cdw12::DEAC != 0,
            state: if namespace.is_some() {
                CountingState::InFlight
            } else {
                CountingState::Inaccessible
            },
        };
        if let Some(namespace) = namespace {
            namespace.cells[shared.number].io().add_in_flight(1);
        }
        let slot = usize::from(slot);
        if slot >= self.begun.len() {
            self.begun.resize(slot + 1, CountedCommand::default());
        }
        self.begun[slot] = begun;
    }

    /// Clears the slot of a command that is not counted.
    #[cold]
    fn forget(&mut self, slot: u16) {
        if let Some(begun) = self.begun.get_mut(usize::from(slot)) {
            *begun = CountedCommand::default();
        }
    }

    /// Notes the status of a command.
    #[inline]
    pub(super) fn answered(&mut self, slot: u16, status: Status) {
        if !status.is_success()
            && let Some(begun) = self.begun.get_mut(usize::from(slot))
        {
            begun.status = status;
        }
    }

    /// Returns the record of a counted command whose completion has left, with the timestamps of its stages.
    #[cold]
    pub(super) fn record(
        &self,
        slot: u16,
        cid: u16,
        [buffered, started, answered, caravan, sent]: [Instant; 5],
    ) -> Option<RequestRecord<Arc<LaneCells>>> {
        let begun = self.begun.get(usize::from(slot)).filter(|begun| begun.nsid > 0)?;
        let account = self.account.as_ref()?;
        let shift = self.namespaces.known(begun.nsid).map_or(0, |known| known.geometry.lba_shift);
        let moves = [opcode::READ, opcode::WRITE, opcode::COMPARE].contains(&begun.opcode);
        let bytes = if moves { (u32::from(begun.blocks) + 1) << shift } else { 0 };
        let slba = first_block(begun.opcode, begun.slba);
        Some(RequestRecord {
            connection: account.cells.clone(),
            command: RecordedParams { opcode: begun.opcode, nsid: begun.nsid, slba, bytes },
            cid,
            status: begun.status,
            reason: RecordReason::Sampled,
            timeline: Timeline::at_target([
                begun.since,
                buffered,
                started,
                answered,
                caravan,
                sent,
            ]),
        })
    }

    /// Counts a command whose completion has left. True if it is counted and arrived by `slow_before`:
    /// [`LaneMeter::record`] can then return its record until the slot is reused.
    #[inline]
    pub(super) fn end(
        &mut self,
        (meters, reactor): (&Meters, usize),
        (now, slow_before): (Instant, Instant),
        slot: u16,
    ) -> bool {
        let LaneMeter { account: Some(account), namespaces, begun } = self else { return false };
        let Some(begun) = begun.get_mut(usize::from(slot)) else { return false };
        let state = mem::take(&mut begun.state);
        if state == CountingState::Over {
            return false;
        }
        match namespaces.get(begun.nsid).filter(|_| state == CountingState::InFlight) {
            Some(namespace) => begun.end(namespace, (account, reactor), now),
            None => begun.end_inaccessible((meters, reactor), account, state),
        }
        begun.since <= slow_before
    }

    /// Updates the gauges at the end of a turn.
    #[inline]
    pub(super) fn end_turn(&self, in_flight: u32, batching: impl FnOnce() -> Batching) {
        if let Some(QueueAccount { cells, .. }) = &self.account {
            cells.io.set_in_flight(in_flight);
            cells.batching.write(batching().to_array());
        }
    }

    /// Ends counting with the lane. Its commands in flight get no completion.
    pub(super) fn leave(&mut self, (meters, reactor): (&Meters, usize), why: &'static str) {
        let Some(account) = self.account.take() else { return };
        for begun in mem::take(&mut self.begun)
            .into_iter()
            .filter(|begun| begun.state == CountingState::InFlight)
        {
            if let Some(cells) = meters.known(&account.nqn, begun.nsid) {
                cells[reactor].io().add_in_flight(-1);
            }
        }
        meters.leave(account.number, why);
    }
}
