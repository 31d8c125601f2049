//! Lanes of a reactor, and the state that they share.

use super::hosts::EtherHosts;
use crate::exclusion::RangeExclusionNotice;
use crate::lane::{LaneError, LaneInTransit, LaneResources, TargetLane};
use crate::order::{NewConnection, TargetUsage};
use crate::range_locks::Grant;
use crate::tasks::{CompletedTask, TaskOutcome, TaskOwner};
use roadtrain_reactor::connection::{ReceivedData, RxBuffer};
use roadtrain_reactor::{LaneList, LaneTable, Pollable, RxBuffers};
use roadtrain_store::StoreCompletion;
use roadtrain_system::clock;

use roadtrain_proto::error::{QpairError, TermReqError};
use roadtrain_proto::time::Instant;
use roadtrain_target_proto::TargetEvent;
use roadtrain_target_proto::qpair::TargetQpairConfig as QpairConfig;
use roadtrain_target_proto::service::{self, ReactorRules};
use roadtrain_wire::status::Status;
use std::any::Any;
use std::os::fd::RawFd;
use tracing::{debug, info, warn};

pub(super) struct TargetLanes {
    pub(super) table: LaneTable<TargetLane>,
    pub(super) shared: LaneResources,
    pub(super) hosts: EtherHosts,
    pub(super) qpair: QpairConfig,
    /// True if lanes that waited for buffers returned some after sending. Others may wait for these.
    pub(super) has_fed: bool,
    /// State of the rules for all lanes. A lane's ID is its index and its generation.
    pub(super) rules: ReactorRules<(u32, u32)>,
    /// True if the reactor is stopping and accepts no more lanes.
    pub(super) stopping: bool,
    /// True if the target ends soon, so that emulated SSDs complete immediately.
    pub(super) departing: bool,
    /// Number of lanes that came from other reactors.
    pub(super) arrived: u64,
}

impl TargetLanes {
    pub(super) fn new(
        shared: LaneResources,
        hosts: EtherHosts,
        qpair: QpairConfig,
        rules: ReactorRules<(u32, u32)>,
    ) -> Self {
        TargetLanes {
            table: LaneTable::default(),
            shared,
            hosts,
            qpair,
            has_fed: false,
            rules,
            stopping: false,
            departing: false,
            arrived: 0,
        }
    }

    /// Returns the lane if its connection has not ended.
    fn live(&mut self, index: u32) -> Option<&mut TargetLane> {
        self.table.get_mut(index).filter(|lane| !lane.session.is_ended())
    }

    pub(super) fn finish_task(&mut self, index: u32, result: i32) {
        let ended = self.shared.tasks.resume(&mut self.shared.ring, index, result);
        if let Some((owner, outcome)) = ended
            && self.answer(owner, outcome)
        {
            self.set_ready(owner.0.0);
        }
    }

    /// Completes the commands in emulated SSDs that are due by `now`.
    pub(super) fn finish_due(&mut self, now: Instant) {
        let expire = |shared: &mut LaneResources| shared.tasks.expire(&mut shared.ring, now);
        while let Some((owner, outcome)) = expire(&mut self.shared) {
            self.answer_soon(owner, outcome);
        }
    }

    /// Passes the outcome of a command to its lane, which sends the completion with the others of this turn.
    pub(super) fn answer_soon(&mut self, owner: TaskOwner, outcome: TaskOutcome) {
        let index = owner.0.0;
        if self.answer(owner, outcome) {
            self.table.add(LaneList::Answered, index);
        }
    }

    /// Passes the outcome of a command to its lane. Returns false if its connection has ended.
    fn answer(&mut self, ((index, generation), slot): TaskOwner, outcome: TaskOutcome) -> bool {
        debug_assert_eq!(self.table.generation(index), generation, "a lane outlives its tasks");
        let is_live = service::finish(self, ((index, generation), slot), outcome);
        // A full caravan leaves now, so that the host can continue while the rest is completed.
        is_live && self.use_lane(index, TargetLane::flush).is_some()
    }

    /// Puts a new lane into the slot `index`.
    pub(super) fn add_lane(&mut self, index: u32, lane: TargetLane) {
        debug!(peer = %lane.peer, "connected");
        self.rules.unauthenticated.enter(clock::now(), (index, self.table.generation(index)));
        self.table.put(index, lane);
    }

    /// Marks a lane as ready for a turn.
    pub(super) fn set_ready(&mut self, index: u32) {
        if self.live(index).is_some() {
            self.table.add(LaneList::Ready, index);
        }
    }

    /// Receives on all ready lanes. Returns true if data arrived.
    pub(super) fn receive_ready(&mut self, rx: &mut RxBuffers) -> bool {
        let mut has_received = false;
        for _ in 0..self.table.count(LaneList::Ready) {
            let Some(index) = self.table.next(LaneList::Ready) else { break };
            let Some(lane) = self.table.get_mut(index) else { continue };
            if lane.flow.placement.is_leaving {
                continue; // it receives on another reactor, or is made ready when it stays
            }
            lane.update_load(&mut self.shared);
            let activity = self.receive(index, rx);
            self.end_turn(index);
            has_received |= activity.any;
            if activity.more {
                self.set_ready(index);
            } else {
                self.table.add(LaneList::Idle, index);
            }
        }
        has_received
    }

    /// Receives on a lane. While latency-critical lanes are active, it pauses for their turns in between. These use a
    /// separate receive buffer, as the data of this lane stays in its buffer.
    fn receive(&mut self, index: u32, rx: &mut RxBuffers) -> ReceivedData {
        if !self.yields_to_express(index) {
            return self.use_lane(index, |l, s| l.receive(s, &mut rx.own)).unwrap_or_default();
        }
        let received = self.use_lane(index, |l, s| l.receive_yielding(s, &mut rx.own));
        let (activity, mut rest) = received.unwrap_or_default();
        while let Some(bytes) = rest {
            self.serve_express(&mut rx.express); // this lane is not among them
            rest = self.use_lane(index, |l, s| l.resume_parsing(s, bytes)).flatten();
        }
        activity
    }

    fn yields_to_express(&self, index: u32) -> bool {
        self.table.count(LaneList::Express) > 0 && !self.table.is_listed(LaneList::Express, index)
    }

    /// Removes lanes from the express list that are no longer latency-critical.
    pub(super) fn review_express(&mut self) {
        let now = self.shared.now;
        for _ in 0..self.table.count(LaneList::Express) {
            let Some(index) = self.table.next(LaneList::Express) else { break };
            if self.live(index).is_some_and(|lane| lane.is_express(now)) {
                self.table.add(LaneList::Express, index);
            }
        }
    }

    /// Gives latency-critical lanes a turn in the middle of another one's. Lanes that remain latency-critical are
    /// listed again.
    fn serve_express(&mut self, rx: &mut RxBuffer) {
        for _ in 0..self.table.count(LaneList::Express) {
            let Some(index) = self.table.next(LaneList::Express) else { break };
            self.use_lane(index, |lane, shared| lane.receive(shared, rx));
            self.end_turn(index);
        }
    }

    /// Sends the completions of lanes. Lanes that receive in this turn send afterwards.
    pub(super) fn send_answers(&mut self) {
        while let Some(index) = self.table.next(LaneList::Answered) {
            if !self.table.is_listed(LaneList::Ready, index) {
                self.end_turn(index);
                self.table.add(LaneList::Idle, index);
            }
        }
    }

    /// Checks all lanes with a deadline.
    pub(super) fn expire_timed(&mut self) {
        for _ in 0..self.table.count(LaneList::Timed) {
            let Some(index) = self.table.next(LaneList::Timed) else { break };
            self.expire(index);
        }
    }

    /// Ends the turn of a lane with a deadline; without its own connection, only once the deadline has passed.
    fn expire(&mut self, index: u32) {
        let now = self.shared.now;
        let waits = |lane: &mut TargetLane| {
            lane.fd().is_none() && lane.deadline().is_some_and(|deadline| deadline > now)
        };
        if self.table.get_mut(index).is_some_and(waits) {
            self.table.add(LaneList::Timed, index);
        } else {
            self.end_turn(index);
        }
    }

    /// Lets a lane send, and lists it by what it waits for.
    pub(super) fn end_turn(&mut self, index: u32) {
        if self.use_lane(index, TargetLane::end_turn).is_none() {
            return;
        }
        let now = self.shared.now;
        let Some(lane) = self.table.get_mut(index) else { return };
        let waits = [
            (LaneList::Express, lane.is_express(now)),
            (LaneList::Timed, lane.deadline().is_some()),
            (LaneList::WaitingForBuffers, lane.is_starved()),
        ];
        for (list, _) in waits.into_iter().filter(|&(_, is_so)| is_so) {
            self.table.add(list, index);
        }
    }

    /// Continues lanes that wait for a buffer, in turn: buffers may have been returned.
    pub(super) fn feed_starved(&mut self, rx: &mut RxBuffer) {
        let given = self.shared.pool.given();
        for _ in 0..self.table.count(LaneList::WaitingForBuffers) {
            let Some(index) = self.table.next(LaneList::WaitingForBuffers) else { break };
            if self.use_lane(index, |lane, shared| lane.feed(shared, rx)) == Some(true) {
                self.set_ready(index);
            }
            self.end_turn(index);
            self.table.add(LaneList::Idle, index);
        }
        self.has_fed = self.shared.pool.given() != given;
    }

    /// Calls a function with a lane. An error ends the lane.
    #[inline]
    pub(super) fn use_lane<T>(
        &mut self,
        index: u32,
        call: impl FnOnce(&mut TargetLane, &mut LaneResources) -> Result<T, LaneError>,
    ) -> Option<T> {
        let lane = self.table.get_mut(index).filter(|lane| !lane.session.is_ended())?;
        match call(lane, &mut self.shared) {
            Ok(value) => Some(value),
            Err(error) => {
                log_end(lane, &error);
                if let LaneError::Qpair(QpairError::Peer(TermReqError { fes, .. })) = error {
                    self.shared.meters.protocol_error(format!("{fes:?}"));
                }
                // A TermReq that blames the host leaves before the connection closes.
                let _ = lane.end_turn(&mut self.shared);
                self.end(index, error.reason());
                None
            }
        }
    }

    /// Ends a lane: its connection now, the lane once its commands have left the stores.
    pub(super) fn end(&mut self, index: u32, why: &'static str) {
        let Some(lane) = self.table.get_mut(index).filter(|lane| !lane.session.is_ended()) else {
            return;
        };
        self.hosts.forget(lane);
        self.table.forget_polls(&mut self.shared.ring, index);
        if let Some(lane) = self.table.get_mut(index) {
            service::close(&mut lane.lend(&mut self.shared));
            lane.end_account(&self.shared, why);
        }
        self.vacate(index);
    }

    /// Frees the slot of a closed lane that has no more tasks. Only then is its queue gone for the controller, so that
    /// a host that reconnects never overtakes its own old commands.
    pub(super) fn vacate(&mut self, index: u32) {
        if let Some(lane) = self.table.take_if(index, |lane| lane.session.is_gone()) {
            lane.report_end(&self.shared.control);
        }
    }

    /// Handles an event from before the lane with that ticket arrived here.
    pub(super) fn passed(&mut self, ticket: u64, event: &TargetEvent) {
        if let Some(index) = self.index_of(ticket) {
            service::handle_event_of(self, (index, self.table.generation(index)), event);
        }
    }

    /// Notes that no more such events come for the lane with that ticket.
    pub(super) fn settle(&mut self, ticket: u64) {
        let index = self.index_of(ticket);
        if let Some(lane) = index.and_then(|index| self.table.get_mut(index)) {
            lane.flow.placement.is_arriving = false;
        }
    }

    /// Returns the index of the lane with that ticket, if it is on this reactor.
    pub(super) fn index_of(&self, ticket: u64) -> Option<u32> {
        let has_it = |lane: &TargetLane| lane.ticket.as_ref().is_some_and(|t| t.number == ticket);
        self.table.indices().find(|&index| self.table.get(index).is_some_and(has_it))
    }

    /// Adopts a lane of another reactor.
    pub(super) fn arrive(&mut self, lane: Box<dyn Any + Send>) {
        let Ok(lane_in_transit) = lane.downcast::<LaneInTransit>() else {
            return debug_assert!(false, "another thing than a lane");
        };
        let id = self.table.reserve();
        self.arrived += 1;
        let lane = lane_in_transit.unpack(id, &mut self.shared);
        self.table.put(id.0, lane);
        if self.stopping {
            return self.end(id.0, "stopped");
        }
        service::arrived(self, id);
        self.set_ready(id.0);
    }

    pub(super) fn adopt(&mut self, connection: NewConnection) {
        let (index, generation) = self.table.reserve();
        let lane = TargetLane::over_tcp((index, generation), connection, self.qpair);
        self.add_lane(index, lane);
        self.set_ready(index);
    }

    /// Closes the connection with this ticket, if it is on this reactor.
    pub(super) fn evict(&mut self, ticket: u64) {
        let has_it =
            |lane: &TargetLane| lane.ticket.as_ref().is_some_and(|own| own.number == ticket);
        for index in self.table.indices() {
            self.use_lane(index, |lane, _| match has_it(lane) {
                true => Err(LaneError::Ended(
                    "no queue connected, and another connection needs the slot",
                )),
                false => Ok(()),
            });
        }
    }

    /// Handles a completion of a store from another thread, or from a guest.
    pub(super) fn completed(&mut self, completion: StoreCompletion) {
        let LaneResources { tasks, ring, pool, .. } = &mut self.shared;
        match completion.into_late() {
            Ok(buffer) => buffer.into_iter().for_each(|buffer| pool.give(buffer)),
            Err(completion) => {
                let ended = tasks.completed(ring, completion);
                self.ended(ended);
            }
        }
    }

    /// Passes the outcome of an ended command to its lane.
    pub(super) fn ended(&mut self, ended: Option<CompletedTask>) {
        if let Some((owner, outcome)) = ended {
            self.answer_soon(owner, outcome);
        }
    }

    /// Continues an operation that waits for an exclusive range, unless it has been forbidden meanwhile.
    pub(super) fn granted(&mut self, index: u32, grant: Grant) {
        let admitted = match self.shared.tasks.owner(index) {
            Some((lane, slot)) => service::admits(self, lane, slot),
            None => Err(Status::ABORTED_SQ_DELETION),
        };
        let LaneResources { tasks, ring, .. } = &mut self.shared;
        let ended = tasks.granted(ring, (index, grant), admitted);
        self.ended(ended);
    }

    /// Closes or opens a range for an exclusive operation.
    pub(super) fn handle_exclusion(&mut self, notice: RangeExclusionNotice) {
        let LaneResources { tasks, ring, .. } = &mut self.shared;
        let (closed, acknowledgement) = match notice {
            RangeExclusionNotice::Close(closed, closing) => {
                let acknowledgement = tasks.close(&closed, closing);
                (closed, acknowledgement)
            }
            RangeExclusionNotice::Open(closed) => {
                tasks.open(ring, &closed);
                (closed, None)
            }
        };
        if closed.is_in_place() {
            service::hold_places(self);
        }
        drop(acknowledgement); // no command here changes the range in place any more
    }

    pub(super) fn close_all(&mut self) {
        self.table.indices().for_each(|index| self.end(index, "stopped"));
    }

    /// Returns the resources that the lanes use.
    pub(super) fn usage(&self) -> TargetUsage {
        let pool = self.shared.pool.usage();
        let has_io = |lane: &&TargetLane| {
            lane.session.queue().is_some_and(|c| c.qid > 0) && !lane.session.is_ended()
        };
        let commands = self.table.iter().filter(has_io).map(TargetLane::in_flight).sum();
        TargetUsage {
            connections: self.table.len(),
            store_commands: self.shared.tasks.count(),
            io_commands: commands,
            buffer_bytes: pool.taken_bytes,
            kept_bytes: pool.kept_bytes,
            reserved_buffers: pool.reserved as usize,
        }
    }
}

impl Pollable for TargetLane {
    fn fd(&self) -> Option<RawFd> {
        TargetLane::fd(self).filter(|_| !self.session.is_ended())
    }

    fn listens(&self) -> bool {
        !self.is_stalled() && !self.is_receive_paused() && !self.flow.placement.is_leaving
    }

    fn is_blocked(&self) -> bool {
        TargetLane::is_blocked(self)
    }
}

fn log_end(lane: &TargetLane, error: &LaneError) {
    match error {
        LaneError::Closed | LaneError::Ended(_) => info!(peer = %lane.peer, "{error}"),
        _ => warn!(peer = %lane.peer, "{error}"),
    }
}
