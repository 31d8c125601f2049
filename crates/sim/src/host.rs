//! The simulated host: an association and its lanes over the simulated network. `roadtrain_host_proto` decides all
//! actions and their times; this module carries them out.

mod express;
mod lane;
mod moves;

use crate::diffie_hellman;
use crate::ends::ConnectionLost;
use crate::load::SimLoad;
use crate::plan::{NQN, Sabotage, SimPlan, host_nqn};
use crate::rng::SimRng;
use crate::summary::HostCounts;
use crate::transport::{QueueOpening, SimHostEnd, SimTransport};
use core::time::Duration;
use express::ExpressLane;
use lane::SimHostLane;
use moves::News;
use roadtrain_host_proto::association::{
    self, AssociationAction, HostAssociation, SiblingConstraints,
};
use roadtrain_host_proto::bringup::{Fencing, Wants};
use roadtrain_host_proto::namespace_identity::{BarredNsids, ExpectedNamespaces};
use roadtrain_host_proto::old_commands::{ControllerSerial, LaneGuard, OldCommands};
use roadtrain_host_proto::procedure::{ControllerCommand, DriverReply, DriverRequest};
use roadtrain_host_proto::qpair::CommandTransfer;
use roadtrain_host_proto::requests::{EndedRequest, RequestQueue};
use roadtrain_host_proto::retry::RetryRules;
use roadtrain_host_proto::write_verifier::{PathWrites, WriteVerifiers};
use roadtrain_proto::policy::Class;
use roadtrain_proto::security::{SealUse, Secret};
use roadtrain_proto::time::Instant;
use roadtrain_wire::sqe::Sqe;
use std::collections::BTreeMap;

const RECONNECT_DELAY_MAX: Duration = Duration::from_millis(100);

pub(crate) use moves::exchange;

/// Progress of a host that detaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum DetachState {
    #[default]
    No,
    /// It accepts no further requests.
    Finishing,
    /// No request is left.
    Finished,
    /// Its connections are closed.
    Over,
}

/// A path of a host: a whole host, if it has one path.
pub struct SimHost<T: SimTransport> {
    /// Host identifier.
    hostid: [u8; 16],
    /// Number of its path, over all hosts, and the target of that path.
    number: u8,
    target: u8,
    plan: SimPlan,
    rng: SimRng,
    association: HostAssociation<ConnectionLost>,
    /// True while it waits for the host's first path to connect: that path determines the namespaces of the others.
    waits_for_first: bool,
    /// Expected namespace identity of each NSID, for all paths.
    pinned: ExpectedNamespaces,
    /// Writes that may still be executed, over all paths.
    old: OldCommands,
    /// Times at which lost controllers would have ended without claims of targets.
    quiet_until: BTreeMap<ControllerSerial, Instant>,
    /// Acknowledged writes over all paths.
    writes: WriteVerifiers,
    /// Connections outside of lanes: the admin queue, and those being connected for lanes.
    queues: BTreeMap<u16, T::Host>,
    /// Queue and slot of the command that the association waits for; without a slot, a pending connect.
    running: Option<(u16, Option<u16>)>,
    /// Slot of the Asynchronous Event Request.
    listening: Option<u16>,
    /// Slot of an Abort.
    aborting: Option<u16>,
    /// Queues whose connections were lost before their lanes got them.
    lost: Vec<u16>,
    lanes: Vec<SimHostLane<T::Host>>,
    /// Express connections of the lanes.
    expresses: Vec<ExpressLane<T::Host>>,
    /// Stale NSIDs, which requests must not use.
    pub(crate) barred: BarredNsids,
    /// Progress of its detaching.
    ending: DetachState,
    /// True while its requests fail.
    pub(crate) is_lost: bool,
    /// True while another path of the host works.
    pub(crate) has_help: bool,
    /// Time before which it can make no connections.
    isolated_until: Instant,
    /// Begin of the present hold of requests of lost connections.
    held_since: Option<Instant>,
    /// Events that its other paths have not received yet.
    news: News,
    /// NSIDs that the host knows.
    pub namespaces: Vec<u32>,
    /// Counters.
    pub past: HostCounts,
}

impl<T: SimTransport> SimHost<T> {
    /// Makes a host that is about to connect.
    #[must_use]
    pub fn new(now: Instant, plan: &SimPlan, number: u8, rng: SimRng) -> Self {
        SimHost::after(now, plan, number, rng, OldCommands::default())
    }

    /// Makes a host that is the successor of one with lost controllers.
    fn after(now: Instant, plan: &SimPlan, number: u8, rng: SimRng, old: OldCommands) -> Self {
        let hostid = [number / plan.paths + 1; 16];
        let (pinned, writes) = Default::default();
        let rules = rules(plan, hostid, &pinned, (&old, &writes));
        SimHost {
            hostid,
            number,
            target: 0,
            association: HostAssociation::new(now, rules),
            pinned,
            old,
            writes,
            waits_for_first: !number.is_multiple_of(plan.paths),
            quiet_until: BTreeMap::new(),
            queues: BTreeMap::new(),
            running: None,
            listening: None,
            aborting: None,
            lost: Vec::new(),
            lanes: (0..plan.lanes).map(|_| SimHostLane::new(plan)).collect(),
            expresses: Vec::new(),
            plan: plan.clone(),
            rng,
            barred: BarredNsids::default(),
            ending: DetachState::default(),
            is_lost: false,
            has_help: false,
            isolated_until: Instant(0),
            held_since: None,
            news: News::default(),
            namespaces: Vec::new(),
            past: HostCounts::default(),
        }
    }

    /// Kills its process: the kernel resets its connections, and its requests get no responses. Another process starts
    /// at `until`.
    pub fn kill(&mut self, now: Instant, network: &mut T, load: &mut SimLoad, until: Instant) {
        let expresses = self.expresses.iter_mut().map(|express| &mut express.lane);
        let lanes = self.lanes.iter_mut().chain(expresses);
        lanes.filter_map(|l| l.link.take()).for_each(|mut l| l.kill(now, network));
        let queues = std::mem::take(&mut self.queues);
        queues.into_values().for_each(|mut link| link.kill(now, network));
        network.forget(self.hostid);
        load.kill(self.hostid[0]);
        let (number, rng, past) = (self.number, self.rng.fork(), self.past);
        *self = SimHost { past, ..SimHost::new(until, &self.plan.clone(), number, rng) };
        self.lanes.iter_mut().for_each(|lane| lane.next_at = until);
        self.past.kills += 1;
    }

    /// Runs one turn: handles everything that has arrived or is due by now.
    ///
    /// # Errors
    /// A violation of the checked rules.
    pub fn turn(
        &mut self,
        now: Instant,
        network: &mut T,
        load: &mut SimLoad,
    ) -> Result<(), String> {
        if self.waits_for_first {
            return Ok(());
        }
        if self.plan.sabotage == Some(Sabotage::IgnoredClaim) {
            self.ignore_claims(now);
        }
        self.receive_answers(now, network);
        self.receive(now, network, load)?;
        self.act(now, network, load);
        for number in 0..self.lanes.len() {
            self.submit(now, number, load);
        }
        self.complete_failed(load)?;
        self.review_expresses(now, network);
        self.links().for_each(|link| link.end_turn(now, network));
        Ok(())
    }

    /// Ends each lost controller after its quiet time. A deliberate fault: a target may report that it still has the
    /// controller.
    fn ignore_claims(&mut self, now: Instant) {
        for (serial, quiet) in self.old.lost_controllers() {
            let Some(quiet) = quiet else { continue };
            let until = *self.quiet_until.entry(serial).or_insert(now + quiet);
            if until <= now {
                self.old.end(serial);
            }
        }
    }

    /// Begins to detach.
    pub fn detach(&mut self, now: Instant) {
        if self.waits_for_first {
            self.ending = DetachState::Over;
        } else {
            self.association.stop(now, self.has_help);
        }
    }

    /// True once it has detached.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.ending == DetachState::Over
    }

    /// Attaches another process in its place at `until`.
    pub fn attach_again(&mut self, now: Instant, until: Instant, load: &mut SimLoad) {
        let (number, rng, past) = (self.number, self.rng.fork(), self.past);
        let old = OldCommands::default();
        load.end_process(self.hostid[0]);
        if number.is_multiple_of(self.plan.paths) {
            // Entry that the first process has left.
            self.old.open(now).into_iter().for_each(|open| _ = old.inherit(until, open));
        }
        *self = SimHost { past, ..SimHost::after(until, &self.plan.clone(), number, rng, old) };
        self.lanes.iter_mut().for_each(|lane| lane.next_at = until);
        self.past.detached += 1;
    }

    /// True if it has no request.
    #[must_use]
    pub fn has_ended_all(&self) -> bool {
        (0..self.lanes.len()).all(|lane| self.outstanding(lane) == 0)
    }

    /// Notes that the requests of all paths have ended, as detaching needs.
    pub fn finish(&mut self, now: Instant, network: &mut T, load: &mut SimLoad) {
        if self.ending == DetachState::Finishing {
            self.ending = DetachState::Finished;
            self.association.ended(now);
            self.act(now, network, load);
        }
    }

    /// Carries out the actions of its association.
    fn act(&mut self, now: Instant, network: &mut T, load: &mut SimLoad) {
        while let Some(action) = self.association.poll(now) {
            let (host, path) = (self.hostid[0], self.number);
            match action {
                AssociationAction::Attach { .. } => {
                    load.history.succeed(host);
                    load.history.path_connected(host, path);
                }
                AssociationAction::Reset { .. } => load.history.path_lost(host, path),
                _ => {}
            }
            if let (AssociationAction::Changed, Some(info)) = (&action, self.association.info()) {
                load.sees(self.hostid[0], &info.namespaces);
            }
            self.carry_out(now, network, action);
        }
    }

    /// True if its path works.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.association.is_live()
    }

    /// Prevents new connections before `until`.
    pub fn isolate(&mut self, until: Instant) {
        self.isolated_until = until;
    }

    /// Receives on the admin queue, and on queues that lanes do not have yet.
    fn receive_answers(&mut self, now: Instant, network: &mut T) {
        for (&qid, link) in &mut self.queues {
            let mut completed = Vec::new();
            let received = link.receive(now, network, &mut completed);
            if let Some(data_bytes_max) = link.opened()
                && self.running.take_if(|running| *running == (qid, None)).is_some()
            {
                self.association.answer(now, Ok(DriverReply::Opened { data_bytes_max }));
            }
            for command in completed {
                if self.running.take_if(|running| *running == (qid, Some(command.slot))).is_some() {
                    let answer = DriverReply::Completed { cqe: command.cqe, data: command.data };
                    self.association.answer(now, Ok(answer));
                } else if qid == 0 && self.listening.take_if(|s| *s == command.slot).is_some() {
                    self.past.events += 1;
                    self.association.event(&command.cqe);
                } else if qid == 0 && self.aborting.take_if(|s| *s == command.slot).is_some() {
                    self.association.aborted();
                }
            }
            if received.is_err() {
                match self.running.take_if(|running| running.0 == qid) {
                    Some(_) => self.association.answer(now, Err(ConnectionLost)),
                    None if qid == 0 => self.association.admin_lost(now, ConnectionLost),
                    None => self.lost.push(qid), // its lane will detect the loss
                }
            }
        }
    }

    /// Receives on the lanes, and checks their timeouts.
    fn receive(&mut self, now: Instant, network: &mut T, load: &mut SimLoad) -> Result<(), String> {
        for (number, lane) in self.lanes.iter_mut().enumerate() {
            let mut is_lost = lane.receive(now, network, load)?.is_err();
            let mut overdue = Vec::new();
            is_lost |= lane.check_overdue(now, |cid| overdue.push(cid));
            self.past.aborts += overdue.len() as u64;
            self.association.overdue(number, overdue);
            if is_lost {
                lane.detach(now, network);
                self.association.lane_lost(now, number, ConnectionLost);
            }
        }
        for at in (0..self.expresses.len()).rev() {
            let ExpressLane { number, lane_number, lane } = &mut self.expresses[at];
            let (number, lane_number) = (*number, *lane_number);
            let mut is_lost = lane.receive(now, network, load)?.is_err();
            let mut overdue = Vec::new();
            is_lost |= lane.check_overdue(now, |cid| overdue.push(cid));
            self.past.aborts += overdue.len() as u64;
            self.association.overdue(number, overdue);
            if is_lost && self.lanes[lane_number].express.is_closing() {
                self.express_closed(now, network, at);
            } else if is_lost {
                lane.detach(now, network);
                self.association.lane_lost(now, number, ConnectionLost);
            }
        }
        Ok(())
    }

    fn carry_out(
        &mut self,
        now: Instant,
        network: &mut T,
        action: AssociationAction<ConnectionLost>,
    ) {
        use AssociationAction as Action;
        match action {
            Action::Request { ask, .. } => self.run_step(now, network, ask),
            Action::Listen { sqe, .. } => self.listening = self.post(now, &sqe),
            Action::Abort { sqe, .. } => self.aborting = self.post(now, &sqe),
            Action::Attach { rules, barred, writes, guard, .. } => {
                self.attach(now, network, (rules, guard), (&barred, &writes));
            }
            Action::WritesLost { .. } => self.past.writes_lost += 1,
            Action::AttachExpress {
                lane, number, rules, barred, writes, may_close, guard, ..
            } => {
                let what = (rules, (barred, writes), may_close, guard);
                self.attach_express(now, network, (lane, number), what);
            }
            Action::RefuseExpress { lane, .. } => self.refuse_express(now, network, lane),
            Action::SetBarred(barred) => {
                let expresses = self.expresses.iter_mut().map(|express| &mut express.lane);
                let lanes = self.lanes.iter_mut().chain(expresses);
                lanes.for_each(|lane| lane.requests.set_barred(barred.clone()));
                self.barred = barred;
            }
            Action::Changed => {
                let namespaces = self.association.info().map_or(&[][..], |info| &info.namespaces);
                self.namespaces = namespaces.iter().map(|namespace| namespace.nsid).collect();
            }
            Action::Reset { was_live, .. } => {
                let admin = self.queues.get(&0).filter(|_| was_live);
                admin.into_iter().for_each(|admin| network.keep(self.hostid, admin));
                self.end_connections(now, network, false);
                self.association.reset(now);
                self.held_since = if was_live { Some(now) } else { self.held_since };
            }
            Action::EndBySiblings { lost, .. } => self.news.lost.push(lost),
            Action::EndedFor { owner, lost, fencing } if fencing.has_ended() => {
                self.past.helped += 1;
                self.news.ended.push((owner, lost));
            }
            Action::Fenced { fencing, .. } => {
                self.past.fenced += u64::from(fencing == Fencing::Ended);
            }
            Action::Fail { lane } => self.fail(now, network, lane),
            Action::FailFast if self.has_help => self.association.fail_later(now),
            Action::FailFast => self.fail(now, network, None),
            Action::Release => {
                self.past.released += 1;
                self.end_hold(now);
                for lane in &mut self.lanes {
                    lane.requests.release();
                    lane.resume(now, network);
                }
            }
            Action::EndedFor { .. } | Action::AllocationFound { .. } => {}
            Action::SetAna { .. } | Action::LateTransition { .. } => {}
            Action::Finish => self.ending = DetachState::Finishing,
            Action::End { shut_down } => {
                self.ending = DetachState::Over;
                self.end_connections(now, network, matches!(shut_down, Some(Ok(()))));
            }
        }
    }

    /// Runs a step of a procedure; the association receives its result, maybe later.
    fn run_step(&mut self, now: Instant, network: &mut T, step: DriverRequest) {
        match step {
            DriverRequest::Open { qid, entries, .. } => self.open(now, network, qid, entries),
            DriverRequest::Run { qid, command } => self.run(now, qid, command),
            DriverRequest::Random { bytes } => {
                let bytes: Vec<u8> = (0..bytes).map(|_| self.rng.bits() as u8).collect();
                self.association.answer(now, Ok(DriverReply::Random(Secret::new(&bytes))));
            }
            DriverRequest::Seal { qid, secret } => {
                let link = self.queues.get_mut(&qid);
                let sealed = link.map(|link| link.seal(&secret)).ok_or(ConnectionLost);
                self.association.answer(now, sealed.map(|()| DriverReply::Sealed));
            }
            DriverRequest::Compute(work) => {
                diffie_hellman::supply(&work);
                self.association.answer(now, Ok(DriverReply::Computed));
            }
        }
    }

    /// Returns the writes that a lane has to wait for; none where requests move early, as a deliberate fault.
    pub(super) fn guard(&self, guard: LaneGuard, is_express: bool) -> LaneGuard {
        let is_early = match self.plan.sabotage {
            Some(Sabotage::EarlyMove) => true,
            Some(Sabotage::EarlyExpress) => is_express,
            _ => false,
        };
        if is_early { LaneGuard::default() } else { guard }
    }

    /// Gives the lanes the connections that were made for them.
    fn attach(
        &mut self,
        now: Instant,
        network: &mut T,
        (rules, guard): (RetryRules, LaneGuard),
        (barred, writes): (&BarredNsids, &PathWrites),
    ) {
        let guard = self.guard(guard, false);
        (self.barred, self.is_lost) = (barred.clone(), false);
        self.news.is_back = true;
        self.end_hold(now);
        for (number, lane) in self.lanes.iter_mut().enumerate() {
            let link = self.queues.remove(&(number as u16 + 1));
            let mut link = link.expect("every lane has a connection");
            network.keep(self.hostid, &link);
            link.set_policy(self.plan.host.policy);
            lane.requests.set_barred(barred.clone());
            lane.requests.set_writes(writes.clone());
            self.past.retries += lane.attach(now, link, (rules, guard.clone()));
        }
        self.past.associations += 1;
        for qid in std::mem::take(&mut self.lost) {
            let lane = usize::from(qid) - 1;
            self.lanes[lane].detach(now, network);
            self.association.lane_lost(now, lane, ConnectionLost);
        }
    }

    /// Fails the requests of a lane or of all, with those of express connections.
    fn fail(&mut self, now: Instant, network: &mut T, lane: Option<usize>) {
        self.past.surrenders += u64::from(lane.is_none());
        self.is_lost |= lane.is_none();
        let lanes = self.lanes.iter_mut().enumerate();
        let expresses =
            self.expresses.iter_mut().map(|express| (express.number, &mut express.lane));
        for (number, of) in lanes.chain(expresses) {
            if lane.is_none_or(|lane| lane == number) {
                of.detach(now, network);
                of.requests.fail();
            }
        }
    }

    fn open(&mut self, now: Instant, network: &mut T, qid: u16, entries: u16) {
        if now < self.isolated_until {
            return self.association.answer(now, Err(ConnectionLost));
        }
        if qid == 0 {
            self.target = network.route(self.number);
        }
        let opening = QueueOpening { hostid: self.hostid, qid, entries, target: self.target };
        let link = network.open(now, &self.plan, opening, &mut self.rng);
        match link.opened() {
            Some(data_bytes_max) => {
                self.association.answer(now, Ok(DriverReply::Opened { data_bytes_max }));
            }
            None => self.running = Some((qid, None)),
        }
        if let Some(mut old) = self.queues.insert(qid, link) {
            old.close(now, network, false);
        }
    }

    fn run(&mut self, now: Instant, qid: u16, command: ControllerCommand) {
        let Some(link) = self.queues.get_mut(&qid) else {
            return self.association.answer(now, Err(ConnectionLost));
        };
        let (data, buffer) = match (command.out.len() as u32, command.bytes_in) {
            (0, 0) => (CommandTransfer::None, Vec::new()),
            (0, bytes) => (CommandTransfer::In(bytes), vec![0; bytes as usize]),
            (bytes, _) => (CommandTransfer::Out(bytes), command.out),
        };
        match link.run(now, &command.sqe, data, buffer) {
            Some(slot) => self.running = Some((qid, Some(slot))),
            None => self.association.answer(now, Err(ConnectionLost)),
        }
    }

    /// Sends a command on the admin queue without waiting for its response. Returns its slot.
    fn post(&mut self, now: Instant, sqe: &Sqe) -> Option<u16> {
        let slot = self.queues.get_mut(&0)?.run(now, sqe, CommandTransfer::None, Vec::new());
        if slot.is_none() {
            self.association.admin_lost(now, ConnectionLost);
        }
        slot
    }

    fn end_connections(&mut self, now: Instant, network: &mut T, orderly: bool) {
        self.lanes.iter_mut().for_each(|lane| lane.detach(now, network));
        self.lose_expresses(now, network);
        for mut link in std::mem::take(&mut self.queues).into_values() {
            link.close(now, network, orderly);
        }
        (self.running, self.listening, self.aborting) = (None, None, None);
        self.lost.clear();
    }

    /// Completes requests that have failed without a response.
    fn complete_failed(&mut self, load: &mut SimLoad) -> Result<(), String> {
        let expresses = self.expresses.iter_mut().map(|express| &mut express.lane);
        let lanes = self.lanes.iter_mut().chain(expresses);
        for EndedRequest { request, status, .. } in lanes.flat_map(SimHostLane::failed) {
            load.complete(request.token, status, &request.buffer)?;
        }
        Ok(())
    }

    /// Submits new requests of a lane: one, or a burst, then a pause that makes up for it.
    fn submit(&mut self, now: Instant, number: usize, load: &mut SimLoad) {
        let is_ending = self.ending != DetachState::No;
        if now >= Instant(0) + self.plan.chaos || now < self.lanes[number].next_at || is_ending {
            return;
        }
        let most = if self.rng.chance(70) { 1 } else { self.plan.depth as u64 };
        for _ in 0..self.rng.between(1, most) {
            self.lanes[number].next_at +=
                self.rng.micros(0, 2 * self.plan.pause.as_micros() as u64);
            let is_there = self.plan.paths == 1 || self.lanes[number].link.is_some();
            if is_there
                && self.lanes[number].has_room()
                && self.outstanding(number) < self.plan.depth
                && load.open_of(self.hostid[0]) < self.plan.requests_max()
            {
                self.take(now, number, load);
            }
        }
        let lane = &mut self.lanes[number];
        lane.next_at = lane.next_at.max(now + Duration::from_nanos(1));
    }

    /// Returns the time of its next event.
    pub fn next_at(&mut self, now: Instant) -> Option<Instant> {
        if self.waits_for_first || self.is_over() {
            return None;
        }
        let end = Instant(0) + self.plan.chaos;
        let (association, takes) = (self.association.deadline(), self.ending == DetachState::No);
        let lanes = self.lanes.iter_mut().flat_map(|lane| {
            let next = (now < end && takes).then_some(lane.next_at);
            next.into_iter().chain(lane.deadline())
        });
        let queues = self.queues.values_mut().filter_map(SimHostEnd::deadline);
        let expresses = self.expresses.iter_mut().filter_map(|express| express.lane.deadline());
        lanes.chain(expresses).chain(queues).chain(association).min()
    }

    /// Returns its ends of connections.
    pub fn links(&mut self) -> impl Iterator<Item = &mut T::Host> {
        let expresses = self.expresses.iter_mut().map(|express| &mut express.lane);
        let lanes = self.lanes.iter_mut().chain(expresses).filter_map(|lane| lane.link.as_mut());
        lanes.chain(self.queues.values_mut())
    }

    /// True if the association is complete, the admin queue is idle, and the host knows the namespaces.
    #[must_use]
    pub fn is_settled(&self, namespaces: &[u32]) -> bool {
        self.lanes.iter().all(|lane| lane.link.is_some())
            && self.expresses.is_empty() // which close when they are idle
            && self.association.is_idle()
            && self.listening.is_some()
            && self.namespaces == namespaces
    }

    /// Describes the state for the report of a failure.
    #[must_use]
    pub fn state(&self) -> String {
        let (slots, pending) = self.held();
        let attached = self.lanes.iter().filter(|lane| lane.link.is_some()).count();
        let (idle, running) = (self.association.is_idle(), self.running);
        format!(
            "host {}: {slots} slots, {pending} pending, {attached} lanes attached, admin idle {idle}, runs \
             {running:?}, namespaces {:?}",
            self.hostid[0], self.namespaces
        )
    }

    /// Returns the number of commands in slots, and of requests that wait.
    #[must_use]
    pub fn held(&self) -> (u32, usize) {
        let lanes = || self.lanes.iter().chain(self.expresses.iter().map(|express| &express.lane));
        let slots = lanes().filter_map(|l| l.link.as_ref()).map(RequestQueue::in_flight).sum();
        (slots, lanes().map(SimHostLane::waiting).sum())
    }
}

/// Returns the configuration of a host's path, with the expected namespace identities in `pinned`.
fn rules(
    plan: &SimPlan,
    host_id: [u8; 16],
    pinned: &ExpectedNamespaces,
    (old, writes): (&OldCommands, &WriteVerifiers),
) -> association::AssociationConfig {
    let beside = || SiblingConstraints {
        pinned: pinned.clone(),
        writes: writes.clone(),
        ..SiblingConstraints::default()
    };
    association::AssociationConfig {
        wants: Wants {
            concatenates: false,
            subsystem_nqn: NQN.into(),
            host_nqn: host_nqn(host_id),
            host_id: if plan.sabotage == Some(Sabotage::NoHostId) { [0; 16] } else { host_id },
            keep_alive: plan.keep_alive,
            timeout: plan.timeout,
            queue_entries: plan.queue_entries,
            class: Class::Normal,
            sq_flow_control: plan.sq_flow_control,
            keys: plan.keys(),
            seals: if plan.ether.seals { SealUse::Required } else { SealUse::Off },
        },
        lanes: plan.lanes as u32,
        expresses: plan.express_rules().map_or(0, |_| plan.lanes as u32),
        reconnect_delay: plan.reconnect_delay,
        reconnect_delay_max: RECONNECT_DELAY_MAX,
        controller_loss_timeout: plan.controller_loss_timeout,
        fast_io_fail_timeout: plan.fast_io_fail_timeout,
        siblings: (plan.paths > 1).then(beside),
        old_commands: old.clone(),
    }
}
