//! What a lane counts of its I/O commands: from when one has come to when its answer has left.

use super::Shared;
use crate::metrics::{Done, Ended};
use crate::recorded::first_block;
use crate::stats::LaneStats;
use crate::target::meters::{LaneCells, Meters};
use crate::target::namespace::{ByNsid, NamespaceTable};
use roadtrain_proto::policy::Class;
use roadtrain_proto::recorder::{Asked, Record, Timeline, Why};
use roadtrain_proto::target::Connected;
use roadtrain_proto::time::Instant;
use roadtrain_wire::sqe::{Sqe, cdw12, opcode};
use roadtrain_wire::status::Status;
use std::mem;
use std::sync::Arc;

/// A command that has come. `nsid` is 0 when there is none.
#[derive(Clone, Copy, Debug, Default)]
struct Begun {
    since: Instant,
    slba: u64,
    nsid: u32,
    blocks: u16,
    opcode: u8,
    class: Class,
    status: Status,
    deallocates: bool,
    /// It is among those that its namespace has in flight.
    is_counted: bool,
}

/// A queue's account.
struct Account {
    number: u64,
    nqn: Arc<str>,
    is_io: bool,
    class: Class,
    cells: Arc<LaneCells>,
}

/// Counts a lane's commands.
#[derive(Default)]
pub(in crate::target) struct Meter {
    account: Option<Account>,
    namespaces: ByNsid,
    /// By slot.
    begun: Vec<Begun>,
}

impl Meter {
    /// The lane's queue was connected.
    pub(super) fn connected(
        &mut self,
        (meters, reactor): (&Meters, usize),
        connected: &Connected,
        (peer, transport): (&str, &'static str),
    ) {
        let (number, cells) = meters.enter(connected, (peer, transport), reactor);
        let Connected { subnqn: nqn, qid, class, .. } = connected;
        let (nqn, is_io, class) = (nqn.clone(), *qid > 0, *class);
        self.account = Some(Account { number, nqn, is_io, class, cells });
    }

    /// Other namespaces are in reach.
    pub(super) fn set_namespaces(&mut self, namespaces: &NamespaceTable) {
        self.namespaces = namespaces.by_nsid();
    }

    /// It is on another reactor.
    pub(super) fn moved(&self, meters: &Meters, reactor: usize) {
        if let Some(account) = &self.account {
            meters.moved(&account.cells, reactor);
        }
    }

    /// A command has come.
    #[inline]
    pub(super) fn begin(&mut self, shared: &Shared, slot: u16, sqe: &Sqe) {
        let (nsid, code) = (sqe.nsid.get(), sqe.opcode);
        let Some(account) = self.account.as_ref().filter(|account| account.is_io) else { return };
        if code == opcode::FABRICS || nsid == 0 {
            return;
        }
        let namespace = self.namespaces.get(nsid);
        let own = namespace.and_then(|namespace| namespace.class).unwrap_or(account.class);
        let said = match code {
            opcode::READ | opcode::WRITE => Class::from_dsm(sqe.cdw13.get()),
            _ => None,
        };
        let cdw12 = sqe.cdw12.get();
        let begun = Begun {
            since: shared.now,
            slba: sqe.slba(),
            nsid,
            blocks: cdw12 as u16,
            opcode: code,
            class: said.unwrap_or(own),
            status: Status::SUCCESS,
            deallocates: cdw12 & cdw12::DEAC != 0,
            is_counted: namespace.is_some(),
        };
        if let Some(namespace) = namespace {
            namespace.cells[shared.number].io().add_in_flight(1);
        }
        let slot = usize::from(slot);
        if slot >= self.begun.len() {
            self.begun.resize(slot + 1, Begun::default());
        }
        self.begun[slot] = begun;
    }

    /// A command is answered with that.
    #[inline]
    pub(super) fn answered(&mut self, slot: u16, status: Status) {
        if !status.is_success()
            && let Some(begun) = self.begun.get_mut(usize::from(slot))
        {
            begun.status = status;
        }
    }

    /// Whether a command, one that is counted, had come by then.
    #[inline]
    pub(super) fn is_slow(&self, slot: u16, slow_before: Instant) -> bool {
        let begun = self.begun.get(usize::from(slot));
        begun.is_some_and(|begun| begun.since <= slow_before && begun.nsid > 0)
    }

    /// What there is to record of a command whose answer has left, if it is one that is counted: when it was where, after
    /// it had come.
    #[cold]
    pub(super) fn record(
        &self,
        slot: u16,
        cid: u16,
        [buffered, started, answered, caravan, sent]: [Instant; 5],
    ) -> Option<Record<Arc<LaneCells>>> {
        let begun = self.begun.get(usize::from(slot)).filter(|begun| begun.nsid > 0)?;
        let account = self.account.as_ref()?;
        let shift = self.namespaces.known(begun.nsid).map_or(0, |known| known.geometry.lba_shift);
        let moves = [opcode::READ, opcode::WRITE, opcode::COMPARE].contains(&begun.opcode);
        let bytes = if moves { (u32::from(begun.blocks) + 1) << shift } else { 0 };
        let slba = first_block(begun.opcode, begun.slba);
        Some(Record {
            who: account.cells.clone(),
            asked: Asked { opcode: begun.opcode, nsid: begun.nsid, slba, bytes },
            cid,
            status: begun.status,
            why: Why::Sampled,
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

    /// The answer to a command has left.
    #[inline]
    pub(super) fn end(&mut self, (meters, reactor): (&Meters, usize), now: Instant, slot: u16) {
        let Meter { account: Some(account), namespaces, begun } = self else { return };
        let Some(begun) = begun.get_mut(usize::from(slot)).filter(|begun| begun.nsid > 0) else {
            return;
        };
        let nsid = mem::take(&mut begun.nsid);
        let Some(namespace) = namespaces.get(nsid).filter(|_| begun.is_counted) else {
            return ended_elsewhere((meters, reactor), account, nsid, begun);
        };
        begun.is_counted = false;
        let (cells, lane) = (&namespace.cells[reactor], &account.cells.io);
        cells.io().add_in_flight(-1);
        if !begun.status.is_success() {
            cells.io().failed();
            cells.statuses.count(begun.status);
            return lane.failed();
        }
        let (done, ns) = (Done::of(begun.opcode), now.0.saturating_sub(begun.since.0));
        let bytes = (u64::from(begun.blocks) + 1) << namespace.geometry.lba_shift;
        let ended = Ended::new(done, bytes, ns);
        cells.of(begun.class).ended(ended);
        lane.ended(ended);
        if begun.opcode == opcode::WRITE_ZEROES && begun.deallocates {
            cells.io().discarded(bytes);
        }
    }

    /// A turn is over.
    #[inline]
    pub(super) fn end_turn(&self, in_flight: u32, stats: impl FnOnce() -> LaneStats) {
        if let Some(Account { cells, .. }) = &self.account {
            cells.io.set_in_flight(in_flight);
            cells.batching.write(&stats());
        }
    }

    /// The lane ends, and nobody hears of its commands any more.
    pub(super) fn leave(&mut self, (meters, reactor): (&Meters, usize), why: &'static str) {
        let Some(account) = self.account.take() else { return };
        for begun in mem::take(&mut self.begun).into_iter().filter(|begun| begun.is_counted) {
            if let Some(cells) = meters.known(&account.nqn, begun.nsid) {
                cells[reactor].io().add_in_flight(-1);
            }
        }
        meters.leave(account.number, why);
    }
}

/// A command whose namespace is not in reach any more, or never was.
#[cold]
fn ended_elsewhere(
    (meters, reactor): (&Meters, usize),
    account: &Account,
    nsid: u32,
    begun: &mut Begun,
) {
    if mem::take(&mut begun.is_counted)
        && let Some(cells) = meters.known(&account.nqn, nsid)
    {
        cells[reactor].io().add_in_flight(-1);
    }
    match begun.status.is_success() {
        true => account.cells.io.ended(Ended::new(Done::Other, 0, 0)),
        false => account.cells.io.failed(),
    }
}
