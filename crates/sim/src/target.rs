//! The simulated target: the real control plane and queue pairs, on a simulated network and disk.

use crate::disk::{Disk, Done, Work};
use crate::lane::{Command, Lane};
use crate::load::STORES;
use crate::network::{ConnId, End, Lost, Network};
use crate::plan::{NQN, Plan, Sabotage};
use crate::rng::Rng;
use core::time::Duration;
use roadtrain_proto::target::io::IoCommand;
use roadtrain_proto::target::presence::{Presences, Verdict};
use roadtrain_proto::target::session::Session;
use roadtrain_proto::target::stability::{Epoch, Flushed, Stability, Ticket, User, Wake};
use roadtrain_proto::target::{
    CloseReason, Connected, NamespaceConfig, NamespaceId, Operation, Outcome, SubsystemConfig,
    Target as Control, TargetConfig, TargetEvent,
};
use roadtrain_proto::time::Instant;
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::status::Status;
use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};

const LOCAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 4420);

/// A connection ends that has connected no queue for so long.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Entries of the admin queue.
const ADMIN_ENTRIES: u32 = 32;

/// Whose command a task of the disk is.
struct Owner {
    conn: ConnId,
    slot: u16,
    /// It writes what only a flush makes stable, since that epoch.
    began: Option<Epoch>,
}

/// A flush that was asked for, until it is answered.
struct Asked {
    conn: ConnId,
    slot: u16,
    ticket: Ticket,
}

/// What was met before Connects were answered.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fence {
    /// Lanes that had not noticed that their hosts had lost them.
    pub swept: u64,
    /// Connects refused as commands of lost connections were on the disk.
    pub busy: u64,
}

impl core::ops::AddAssign for Fence {
    fn add_assign(&mut self, other: Fence) {
        self.swept += other.swept;
        self.busy += other.busy;
    }
}

/// A target.
pub struct Target {
    plan: Plan,
    control: Control,
    lanes: BTreeMap<ConnId, Lane>,
    /// Connections that are over, while commands of them are on the disk.
    ended: BTreeMap<ConnId, Session>,
    presences: Presences<ConnId>,
    /// Hosts whose lost lanes are to be ended.
    sweeps: Vec<String>,
    /// Connections by age, and until when they have to be some controller's.
    newcomers: VecDeque<(Instant, ConnId)>,
    /// The disk outlives the target's process.
    pub disk: Disk,
    owners: BTreeMap<u64, Owner>,
    /// Who is to be told of flushes that fail; the waiters are numbers of `asked`.
    stability: Stability<u64>,
    asked: BTreeMap<u64, Asked>,
    asked_last: u64,
    /// The disk's flush, and for which of `asked` it is.
    flushing: Option<(u64, u64)>,
    rng: Rng,
    /// Down until then.
    down_until: Option<Instant>,
    /// Sizes of the namespace that changes: 0 when it is not there.
    extra_blocks: u64,
    /// Which store that namespace has: another one each time the process dies.
    extra_store: u8,
    /// Blocks that the namespace in use has beyond those that are used.
    more_blocks: u64,
    /// What was met before Connects were answered.
    pub fence: Fence,
    /// Queues closed because the keep alive timer ran out.
    pub expired: u64,
}

/// The namespace that changes.
fn extra(blocks: u64, store: u8) -> NamespaceConfig {
    let id = Some(NamespaceId::of_store(store.into()));
    NamespaceConfig { id, ..NamespaceConfig::new(2, blocks, 9) }
}

fn control(
    now: Instant,
    plan: &Plan,
    more_blocks: u64,
    (extra_blocks, extra_store): (u64, u8),
) -> Control {
    let mut subsystem = SubsystemConfig::new(NQN);
    subsystem.namespaces.push(NamespaceConfig::new(1, plan.blocks + more_blocks, 9));
    if extra_blocks > 0 {
        subsystem.namespaces.push(extra(extra_blocks, extra_store));
    }
    let config = TargetConfig { subsystems: vec![subsystem], ..TargetConfig::default() };
    Control::new(now, &config).expect("the configuration is valid")
}

impl Target {
    /// A target that listens.
    #[must_use]
    pub fn new(plan: &Plan, disk: Disk, rng: Rng) -> Self {
        Target {
            control: control(Instant(0), plan, 0, (0, 1)),
            plan: plan.clone(),
            lanes: BTreeMap::new(),
            ended: BTreeMap::new(),
            presences: Presences::default(),
            sweeps: Vec::new(),
            newcomers: VecDeque::new(),
            disk,
            owners: BTreeMap::new(),
            stability: Stability::default(),
            asked: BTreeMap::new(),
            asked_last: 0,
            flushing: None,
            rng,
            down_until: None,
            extra_blocks: 0,
            extra_store: 1,
            more_blocks: 0,
            fence: Fence::default(),
            expired: 0,
        }
    }

    /// One turn: everything that has arrived or ended by now.
    pub fn turn(&mut self, now: Instant, network: &mut Network) {
        self.accept(now, network);
        if self.down_until.is_some() {
            return;
        }
        let conns: Vec<ConnId> = self.lanes.keys().copied().collect();
        for conn in conns {
            self.receive(now, network, conn);
        }
        for done in self.disk.advance(now) {
            if let Some((_, number)) = self.flushing.take_if(|(task, _)| *task == done.task) {
                self.flushed(now, number, &done);
                continue;
            }
            let Some(Owner { conn, slot, began }) = self.owners.remove(&done.task) else {
                continue;
            };
            if let Some(lane) = self.back(conn) {
                if let (Some(began), Some(mark), true) = (began, &lane.mark, done.result.is_ok()) {
                    mark.wrote(began);
                }
                lane.finish(now, slot, done.result.map_err(|()| Status::INTERNAL_ERROR));
            }
        }
        self.end_newcomers(now, network);
        self.connect_again(now, network);
        self.control.handle_timeout(now);
        self.follow_events(now, network);
        for (&conn, lane) in &mut self.lanes {
            lane.end_turn(now, conn, network);
        }
    }

    fn accept(&mut self, now: Instant, network: &mut Network) {
        if self.down_until.is_some_and(|until| until <= now) {
            self.down_until = None;
            let extra = (self.extra_blocks, self.extra_store);
            self.control = control(now, &self.plan, self.more_blocks, extra);
        }
        while let Some(conn) = network.accept(now) {
            if self.down_until.is_some() {
                network.close(now, conn, End::Target, false);
                continue;
            }
            let placed = self.rng.chance(self.plan.placed_percent);
            self.lanes.insert(conn, Lane::new(&self.plan, placed));
            self.newcomers.push_back((now + CONNECT_TIMEOUT, conn));
        }
    }

    fn receive(&mut self, now: Instant, network: &mut Network, conn: ConnId) {
        while let Some(lane) = self.lanes.get_mut(&conn) {
            let Some(arrival) = network.receive(now, conn, End::Target) else { return };
            match lane.receive(now, arrival) {
                Ok(commands) => {
                    commands.into_iter().for_each(|c| self.execute(now, network, conn, c));
                }
                Err(Lost) => return self.close(now, network, conn, true),
            }
        }
    }

    /// The connection is over; with `orderly` a TermReq may still be on its way.
    fn close(&mut self, now: Instant, network: &mut Network, conn: ConnId, orderly: bool) {
        let Some(mut lane) = self.lanes.remove(&conn) else { return };
        if orderly {
            lane.end_turn(now, conn, network);
        }
        network.close(now, conn, End::Target, orderly);
        let Lane { mut session, mark, .. } = lane;
        if let (Some(user), Some(mark)) = (session.user(), mark) {
            self.stability.leave(now, user, &mark);
        }
        match (session.end(), self.plan.sabotage) {
            (Some(presence), Some(Sabotage::NoDrain)) => self.presences.leave(presence),
            (Some(presence), _) => self.presences.drain(presence),
            (None, _) => {}
        }
        self.ended.insert(conn, session);
        self.vacate(conn);
    }

    /// Forgets a connection of which nothing is left.
    fn vacate(&mut self, conn: ConnId) {
        if self.ended.get(&conn).is_some_and(Session::is_gone)
            && let Some(leaving) = self.ended.remove(&conn).and_then(Session::leave)
        {
            leaving.tell(&mut self.control, &mut self.presences);
        }
    }

    /// A command has come back from the disk: its lane, if that is still there.
    fn back(&mut self, conn: ConnId) -> Option<&mut Lane> {
        if let Some(session) = self.ended.get_mut(&conn) {
            session.left_store();
            self.vacate(conn);
            return None;
        }
        let lane = self.lanes.get_mut(&conn)?;
        lane.session.left_store();
        if let Some(connected) = lane.session.quiet() {
            self.control.quiesced(connected.cntlid, connected.qid);
        }
        Some(lane)
    }

    fn execute(&mut self, now: Instant, network: &mut Network, conn: ConnId, command: Command) {
        let Some(lane) = self.lanes.get_mut(&conn) else { return };
        let Command { slot, io } = command;
        let sqe = lane.sqe(slot);
        let request = lane.session.request(&sqe);
        if let Err(status) = lane.session.admits(request) {
            return lane.respond(now, slot, status, 0);
        }
        match (io, lane.session.queue()) {
            (Some(Err(status)), _) => lane.respond(now, slot, status, 0),
            (Some(Ok(io)), _) => self.execute_io(now, conn, slot, &io),
            (None, Some(connected)) => {
                let ids = (connected.cntlid, connected.qid);
                self.admin(now, network, conn, slot, ids, &sqe);
            }
            (None, None) => self.connect(now, network, conn, slot),
        }
    }

    fn execute_io(&mut self, now: Instant, conn: ConnId, slot: u16, io: &IoCommand) {
        let forgets = self.forgets();
        let Some(lane) = self.lanes.get_mut(&conn) else { return };
        let mut refusals = self.plan.refusals.iter();
        if let Some((_, status)) = refusals.find(|(times, _)| times.contains(&now)) {
            return lane.respond(now, slot, *status, 0);
        }
        let work = work(io, lane.sqe(slot).nsid.get(), lane.data(slot));
        match sabotaged(work, self.plan.sabotage) {
            _ if forgets => {}
            Some(Work::Flush) => {
                lane.session.entered_store();
                let user = lane.session.user().cloned();
                user.iter().for_each(|user| self.flush(now, conn, slot, user));
            }
            Some(work) => {
                lane.session.entered_store();
                let is_volatile = matches!(work, Work::Write { fua: false, .. });
                let began = is_volatile.then(|| self.stability.epoch());
                let task = self.disk.start(now, work);
                self.owners.insert(task, Owner { conn, slot, began });
            }
            // Each of its octets says which store it is.
            None => lane.finish(now, slot, Ok(vec![self.extra_store; read_bytes(io)])),
        }
    }

    /// A flush was asked for: begins it, or lets it wait for the one under way.
    fn flush(&mut self, now: Instant, conn: ConnId, slot: u16, user: &User) {
        let ticket = self.stability.begin(now, user);
        self.asked_last += 1;
        self.asked.insert(self.asked_last, Asked { conn, slot, ticket });
        if self.stability.join(self.asked_last) {
            self.flushing = Some((self.disk.start(now, Work::Flush), self.asked_last));
        }
    }

    /// The disk's flush has ended, which was for `number` and whoever waited.
    fn flushed(&mut self, now: Instant, number: u64, done: &Done) {
        let flushed = match (&done.result, done.lost) {
            (Ok(_), _) => Flushed::Done,
            (Err(()), true) => Flushed::Failed,
            (Err(()), false) => Flushed::NotRun,
        };
        let wakes = self.stability.ended(flushed);
        self.answer_flush(now, number, flushed);
        for (number, wake) in wakes {
            match wake {
                Wake::Lead => self.flushing = Some((self.disk.start(now, Work::Flush), number)),
                Wake::Ended(flushed) => self.answer_flush(now, number, flushed),
            }
        }
    }

    fn answer_flush(&mut self, now: Instant, number: u64, flushed: Flushed) {
        let Some(Asked { conn, slot, ticket }) = self.asked.remove(&number) else { return };
        let is_good = self.stability.settle(now, ticket, flushed);
        let forgets = self.plan.sabotage == Some(Sabotage::UntoldFailure);
        let status = match flushed {
            Flushed::Done if is_good || forgets => Status::SUCCESS,
            Flushed::NotRun => Status::INTERNAL_ERROR,
            _ => Status::WRITE_FAULT.dnr(),
        };
        if let Some(lane) = self.back(conn) {
            lane.respond(now, slot, status, 0);
        }
    }

    fn forgets(&mut self) -> bool {
        self.plan.sabotage == Some(Sabotage::ForgottenCommand) && self.rng.chance(1)
    }

    /// Ends connections that have not connected a queue in time: nobody else would ever end them.
    fn end_newcomers(&mut self, now: Instant, network: &mut Network) {
        while let Some((_, conn)) = self.newcomers.pop_front_if(|(until, _)| *until <= now) {
            if self.lanes.get(&conn).is_some_and(|lane| lane.session.is_newcomer()) {
                self.close(now, network, conn, false);
            }
        }
    }

    /// Ends lanes that their hosts have lost, then tries Connects again that waited for it.
    fn connect_again(&mut self, now: Instant, network: &mut Network) {
        loop {
            for host in std::mem::take(&mut self.sweeps) {
                let is_lost = |&(&conn, lane): &(&ConnId, &Lane)| {
                    lane.session.presence().is_some_and(|presence| *presence.hostnqn == *host)
                        && network.is_closed(now, conn, End::Target)
                };
                let lost: Vec<_> = self.lanes.iter().filter(is_lost).map(|(&c, _)| c).collect();
                self.fence.swept += lost.len() as u64;
                lost.into_iter().for_each(|conn| self.close(now, network, conn, false));
            }
            if !self.presences.settled() {
                return;
            }
            let conns: Vec<ConnId> = self.lanes.keys().copied().collect();
            for conn in conns {
                let lane = self.lanes.get_mut(&conn);
                let slots = lane.map(|lane| lane.session.take_postponed()).unwrap_or_default();
                slots.into_iter().for_each(|slot| self.connect(now, network, conn, slot));
            }
        }
    }

    fn connect(&mut self, now: Instant, network: &Network, conn: ConnId, slot: u16) {
        let Some(lane) = self.lanes.get_mut(&conn) else { return };
        let (sqe, data) = (lane.sqe(slot), lane.data(slot).to_vec());
        let since = lane.session.connecting(now);
        let is_lost = |conn: &ConnId| network.is_closed(now, *conn, End::Target);
        let any_lost = |conns: &[ConnId]| conns.iter().any(is_lost);
        let verdict = match self.plan.sabotage {
            Some(Sabotage::NoFence) => Verdict::Go,
            _ => self.presences.admit(now, &sqe, &data, since, any_lost),
        };
        match verdict {
            Verdict::Go => {}
            Verdict::Busy(_) => {
                self.fence.busy += 1;
                lane.session.answered();
                return lane.respond(now, slot, Status::CONNECT_CONTROLLER_BUSY, 0);
            }
            Verdict::Sweep(host) => {
                self.sweeps.push(host.to_owned());
                return lane.session.postpone(slot);
            }
            Verdict::Ask(_) | Verdict::Wait => return lane.session.postpone(slot),
        }
        match self.control.connect(now, &sqe, &data, LOCAL) {
            Ok(connected) => {
                let Connected { cntlid, qid, .. } = connected;
                let presence = self.presences.enter(now, &connected.hostnqn, qid, Some(conn));
                lane.table =
                    self.control.namespaces_for(&connected.subnqn, cntlid).unwrap_or_default();
                let user = connected.user();
                lane.mark = (qid > 0).then(|| self.stability.enter(now, &user));
                lane.connected(connected, presence);
                lane.respond(now, slot, Status::SUCCESS, cntlid.into());
            }
            Err(error) => {
                lane.session.answered();
                lane.respond(now, slot, error.status, error.result.into());
            }
        }
    }

    fn admin(
        &mut self,
        now: Instant,
        network: &mut Network,
        conn: ConnId,
        slot: u16,
        ids: (u16, u16),
        sqe: &Sqe,
    ) {
        let (cntlid, qid) = ids;
        let mut page = Vec::new();
        let outcome = match qid {
            0 => self.control.admin_command(now, cntlid, sqe, &[], &mut page),
            _ => self.control.fabrics_command(now, cntlid, qid, sqe),
        };
        let Some(lane) = self.lanes.get_mut(&conn) else { return };
        match outcome {
            Outcome::Complete { status, .. } if status.is_success() && !page.is_empty() => {
                lane.finish(now, slot, Ok(page));
            }
            Outcome::Complete { status, result } => lane.respond(now, slot, status, result),
            Outcome::Pending => {}
            Outcome::Disconnected => {
                lane.session.disconnected();
                lane.respond(now, slot, Status::SUCCESS, 0);
                self.close(now, network, conn, true);
            }
        }
    }

    fn follow_events(&mut self, now: Instant, network: &mut Network) {
        while let Some(event) = self.control.poll_event() {
            let find = |lanes: &BTreeMap<ConnId, Lane>, ids| {
                lanes.iter().find(|(_, lane)| lane.ids() == Some(ids)).map(|(&conn, _)| conn)
            };
            match event {
                TargetEvent::Completion { cntlid, cid, status, result } => {
                    let Some(conn) = find(&self.lanes, (cntlid, 0)) else { continue };
                    let lane = self.lanes.get_mut(&conn).expect("just found");
                    if let Some(slot) = lane.qpair.slot_of(cid) {
                        lane.respond(now, slot, status, result);
                    }
                }
                TargetEvent::Close { cntlid, qid, reason } => {
                    self.expired += u64::from(reason == CloseReason::KeepAliveExpired);
                    let Some(conn) = find(&self.lanes, (cntlid, qid)) else { continue };
                    let lane = self.lanes.get_mut(&conn).expect("just found");
                    lane.session.forgotten(reason == CloseReason::ControllerReset);
                    self.close(now, network, conn, false);
                }
                TargetEvent::Abort { cntlid, id, .. } => self.control.aborted(cntlid, id, false),
                TargetEvent::Quiesce { cntlid, qid } => {
                    let Some(conn) = find(&self.lanes, (cntlid, qid)) else { continue };
                    let lane = self.lanes.get_mut(&conn).expect("just found");
                    lane.session.quiesce();
                    if lane.session.quiet().is_some() {
                        self.control.quiesced(cntlid, qid);
                    }
                }
                TargetEvent::NamespacesChanged { nqn } => {
                    for lane in self.lanes.values_mut() {
                        let Some((cntlid, _)) = lane.ids() else { continue };
                        lane.table = self.control.namespaces_for(&nqn, cntlid).unwrap_or_default();
                    }
                }
            }
        }
    }

    /// The process ends, with `power_loss` the machine: every connection is gone, nothing is remembered
    /// but the disk.
    pub fn crash(&mut self, now: Instant, network: &mut Network, power_loss: bool, until: Instant) {
        for conn in std::mem::take(&mut self.lanes).into_keys() {
            network.close(now, conn, End::Target, false);
        }
        // What has not ended by now ends with the process.
        self.disk.advance(now);
        self.disk.abandon();
        if power_loss {
            self.disk.lose_power();
        }
        self.owners.clear();
        self.stability = Stability::default();
        self.asked.clear();
        self.flushing = None;
        self.ended.clear();
        self.presences = Presences::default();
        self.sweeps.clear();
        self.newcomers.clear();
        self.down_until = Some(until);
        self.extra_store = self.rng.between(1, STORES.into()) as u8;
    }

    /// Adds, removes or resizes the namespace that no data is kept in.
    pub fn change_namespace(&mut self) {
        let blocks = self.rng.pick(&[0, 8, 64, 128]);
        let nqn = NQN.to_owned();
        let operation = match (self.extra_blocks, blocks) {
            (0, 0) => None,
            (0, _) => {
                let namespace = extra(blocks, self.extra_store);
                Some(Operation::AddNamespace { nqn, namespace })
            }
            (_, 0) => Some(Operation::RemoveNamespace { nqn, nsid: 2 }),
            _ => Some(Operation::ResizeNamespace { nqn, nsid: 2, bytes: blocks * 512 }),
        };
        self.control.apply(operation.as_slice()).expect("the namespace is as remembered");
        self.extra_blocks = blocks;
    }

    /// The namespace in use grows, or is what it was.
    pub fn resize(&mut self) {
        self.more_blocks = self.rng.pick(&[0, 8, 64]);
        let bytes = (self.plan.blocks + self.more_blocks) * 512;
        let resize = Operation::ResizeNamespace { nqn: NQN.to_owned(), nsid: 1, bytes };
        self.control.apply(&[resize]).expect("the namespace is there");
    }

    /// What holds after every step: nothing is held for nobody, and nobody holds more than it may.
    ///
    /// # Errors
    /// What does not hold.
    pub fn check(&self) -> Result<(), String> {
        let sessions = || self.lanes.values().map(|lane| &lane.session).chain(self.ended.values());
        let in_store: usize = sessions().map(|session| session.in_store() as usize).sum();
        let tasks = self.owners.len() + self.asked.len();
        if in_store != tasks {
            return Err(format!("{in_store} commands in the store, but {tasks} tasks"));
        }
        let present = sessions().filter(|session| session.presence().is_some()).count();
        let leaves_early = self.plan.sabotage == Some(Sabotage::NoDrain);
        if present != self.presences.count() && !leaves_early {
            let count = self.presences.count();
            return Err(format!("{present} connections with a queue, but {count} presences"));
        }
        if self.ended.values().any(Session::is_gone) {
            return Err("a connection of which nothing is left was not forgotten".into());
        }
        for lane in self.lanes.values() {
            let (held, entries) = (lane.qpair.in_flight(), u32::from(self.plan.queue_entries));
            // The commands of a caravan that is being sent may be followed by as many.
            let most = 2 * entries.max(ADMIN_ENTRIES);
            if held > most {
                return Err(format!("{held} commands of a connection, {most} are the most"));
            }
        }
        Ok(())
    }

    /// Active namespaces.
    #[must_use]
    pub fn namespaces(&self) -> Vec<u32> {
        self.control
            .namespaces(NQN)
            .map_or(Vec::new(), |table| table.iter().map(|(n, _)| n).collect())
    }

    /// When something is due.
    pub fn next_at(&mut self) -> Option<Instant> {
        if self.down_until.is_some() {
            return self.down_until;
        }
        let timers = self.lanes.values_mut().filter_map(|l| l.qpair.batcher().deadline());
        let newcomers = self.newcomers.front().map(|(until, _)| *until);
        timers.chain(newcomers).chain(self.disk.next_at()).chain(self.control.poll_timeout()).min()
    }

    /// Commands of I/O queues that have not been answered, connections, and tasks.
    #[must_use]
    pub fn leftovers(&self) -> (u32, usize, usize) {
        let io = self.lanes.values().filter(|lane| lane.ids().is_none_or(|ids| ids.1 > 0));
        (
            io.map(|lane| lane.qpair.in_flight()).sum(),
            self.lanes.len() + self.ended.len(),
            self.owners.len() + self.asked.len(),
        )
    }
}

pub(crate) fn read_bytes(io: &IoCommand) -> usize {
    match *io {
        IoCommand::Read { length, .. } => length as usize,
        _ => 0,
    }
}

fn sabotaged(work: Option<Work>, sabotage: Option<Sabotage>) -> Option<Work> {
    match (work, sabotage) {
        (Some(Work::Flush), Some(Sabotage::IdleFlush)) => None,
        (Some(Work::Write { slba, data, .. }), Some(Sabotage::IgnoredFua)) => {
            Some(Work::Write { slba, data, fua: false })
        }
        (work, _) => work,
    }
}

/// What the disk does for a command; `None`: nothing, for it is not on the disk.
pub(crate) fn work(io: &IoCommand, nsid: u32, data: &[u8]) -> Option<Work> {
    let lba = |offset: u64| offset / crate::disk::BLOCK_BYTES as u64;
    if nsid != 1 {
        return None;
    }
    match *io {
        IoCommand::Read { offset, length, .. } => {
            Some(Work::Read { slba: lba(offset), blocks: lba(length.into()) })
        }
        IoCommand::Write { offset, fua, .. } => {
            Some(Work::Write { slba: lba(offset), data: data.to_vec(), fua })
        }
        IoCommand::WriteZeroes { offset, length, fua, .. } => {
            Some(Work::Write { slba: lba(offset), data: vec![0; length as usize], fua })
        }
        IoCommand::DatasetManagement { .. } => {
            let (blocks, slba) = (&data[4..8], &data[8..16]);
            let blocks = u32::from_le_bytes(*blocks.first_chunk()?);
            let data = vec![0; blocks as usize * crate::disk::BLOCK_BYTES];
            Some(Work::Write { slba: u64::from_le_bytes(*slba.first_chunk()?), data, fua: false })
        }
        IoCommand::Flush => Some(Work::Flush),
        IoCommand::Compare { .. } => None,
    }
}
