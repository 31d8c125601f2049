//! Reactor of the host: one thread, one ring, its lanes and the front that uses them.

mod allocation_results;
#[cfg(feature = "testing")]
mod by_hand;
mod express;
mod frames;
mod guest;
mod paths;
mod turn;

use super::api::{Allocation, AllocationQuery, Class, Front};
use super::counters::{LaneCounters, ReactorCounters};
use super::ether::{FoundPath, Ports};
use super::lane::HostLane;
use super::link::{LaneShared, LinkError, QpairLink};
use allocation_results::AllocationResults;
use frames::HostPorts;
use paths::{NewLane, ReactorPaths};
use roadtrain_host_proto::association::QueryOrigin;
use roadtrain_host_proto::namespace_identity::BarredNsids;
use roadtrain_host_proto::old_commands::LaneGuard;
use roadtrain_host_proto::paths::{AnaTable, PathLinkState, PathPolicy};
use roadtrain_host_proto::retry::RetryRules;
use roadtrain_host_proto::write_verifier::PathWrites;
use roadtrain_proto::recorder::SlowOver;
use roadtrain_proto::time::Instant;
use roadtrain_reactor::connection::RxBuffer;
use roadtrain_reactor::event;
use roadtrain_reactor::recorded::{ConnectionInfo, ReactorRecords};
use roadtrain_reactor::tuning::RX_BUFFER_BYTES;
use roadtrain_reactor::waits::{WaitMeter, WaitPolicy};
use roadtrain_reactor::{LaneList, LaneTable, Pollable, ReactorCore, RxBuffers};
use roadtrain_system::clock;
use roadtrain_system::mailbox::{MailboxReceiver, MailboxSender};
use roadtrain_system::ring::{ReactorRing, RingCqe, UserData};
use roadtrain_wire::cross_reset::ControllerInstance;
use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;
use turn::TurnView;

pub(crate) use express::ExpressLink;
pub(crate) use guest::HostGuest;

#[cfg(feature = "testing")]
pub use by_hand::{ConnectedLanes, HandHost};

pub(crate) const RING_ENTRIES: u32 = 256;
/// Completions parsed before the front refills and full caravans leave.
const PARSE_BATCH: usize = 32;
/// Maximum bytes received at once while another lane is latency-critical: processing them takes about as long as a
/// wake-up.
const YIELDING_RX_BYTES: usize = 192 << 10;
/// Key in a command's user data.
const KEY_MASK: u64 = (1 << 56) - 1;
/// Longest wait at the end for commands to complete.
const COMMANDS_TIMEOUT: Duration = Duration::from_secs(5);

/// Order of a control thread to a reactor.
///
/// Lanes are numbered over all reactors, then over those of the next paths.
pub(crate) enum HostReactorOrder {
    /// Use this connection for the lane, but not for requests to barred NSIDs.
    Attach {
        lane: usize,
        link: Box<QpairLink>,
        rules: RetryRules,
        barred: BarredNsids,
        writes: PathWrites,
        guard: LaneGuard,
    },
    /// Use this express connection, which the lane has requested; `None`: it is refused.
    Express { lane: usize, express: Option<ExpressLink> },
    /// Release requests that waited for a lost controller, which executes nothing any more.
    Release { lane: usize },
    /// Set the ANA states of the lane's path.
    SetAna { lane: usize, ana: AnaTable },
    /// Set NSIDs that stand for other namespaces than requests mean.
    SetBarred { lane: usize, barred: BarredNsids },
    /// Result of the front's query of block allocation.
    AllocationFound { key: u64, found: Option<Allocation> },
    /// Add a path to this target to the lane.
    Offer { lane: usize, found: FoundPath },
    /// Prepare the path of this number, which may be new.
    Open { path: usize },
    /// Take no more requests on the lane's path; [`HostReactorReport::Left`] when it has none left.
    Leave { lane: usize },
    /// Close the lane's connection: its controller is lost.
    Detach { lane: usize, done: SyncSender<()> },
    /// Fail the lane's requests, after the controller-loss timeout.
    Fail { lane: usize },
    /// Reply with the recorded requests.
    Recorded(SyncSender<ReactorRecords<ConnectionInfo>>),
    /// Reply, as a heartbeat.
    Beat(SyncSender<()>),
    /// Run a closure of a test on the reactor.
    #[cfg(feature = "testing")]
    Call(Box<dyn FnOnce() + Send>),
    /// Finish and end.
    Stop,
}

/// Parts of a reactor.
pub(crate) struct HostReactorParts {
    /// Numbers of its lanes over all reactors.
    pub(crate) lanes: Vec<usize>,
    pub(crate) queue_entries: u16,
    /// Entries of its ring; a guest's is not used.
    pub(crate) ring_entries: u32,
    pub(crate) class: Class,
    pub(crate) io_timeout: Option<Duration>,
    /// True if lanes may have express connections.
    pub(crate) express: bool,
    pub(crate) waiting: WaitPolicy,
    pub(crate) slow_over: SlowOver,
    /// Meter of its waits.
    pub(crate) meter: Arc<WaitMeter>,
    /// Counters of the reactor.
    pub(crate) own: Arc<ReactorCounters>,
    /// Ports that its lanes share.
    pub(crate) ports: Ports,
    pub(crate) inbox: MailboxReceiver<HostReactorOrder>,
    /// Mailboxes of the control threads, one per possible path.
    pub(crate) reports: Vec<MailboxSender<HostReactorReport>>,
    /// Number of paths at the start.
    pub(crate) paths: usize,
    pub(crate) path_policy: PathPolicy,
    /// Counters by lane, over all reactors, and by path.
    pub(crate) counters: Arc<[LaneCounters]>,
}

impl HostReactorParts {
    /// Returns the numbers of its lanes on all paths at the start.
    pub(crate) fn numbers(&self) -> Vec<usize> {
        let lanes = self.counters.len() / self.reports.len();
        let of_path = |path| self.lanes.iter().map(move |lane| path * lanes + lane);
        (0..self.paths).flat_map(of_path).collect()
    }
}

/// Report to a control thread from reactors and from other control threads.
pub(crate) enum HostReactorReport {
    /// The lane (numbered over all reactors) lost its connection.
    Lost { lane: usize, error: LinkError },
    /// Commands of the lane (numbered over all reactors) have timed out: their identifiers.
    Overdue { lane: usize, cids: Vec<u16> },
    /// A front queries the allocation of blocks.
    QueryAllocation { by: QueryOrigin, query: AllocationQuery },
    /// The lane requests an express connection.
    WantsExpress { lane: usize },
    /// An express connection of the lane was closed, by its number.
    ExpressClosed { lane: usize, number: usize },
    /// A new path to this target was found.
    Found(FoundPath),
    /// A lane that is leaving has no request left.
    Left,
    /// Requests take other paths from now on; this path ends when it has none left.
    Leave,
    /// Another path has lost this controller: end it over your path.
    EndFor { path: usize, lost: ControllerInstance },
    /// Another path is connected again: it needs no help any more, and can help.
    IsBack { path: usize },
    /// The controller that your path has lost has ended.
    HasEnded { lost: ControllerInstance },
    /// The reactor's thread ends; the reason, if it is a failure.
    Ended(Option<String>),
    /// End the controller.
    Stop,
    /// Run a closure of a test on the thread.
    #[cfg(feature = "testing")]
    Call(Box<dyn FnOnce() + Send>),
}

struct FdWatch {
    key: u64,
    user_data: u64,
}

pub(crate) struct HostReactor {
    core: ReactorCore<HostReactorOrder>,
    ring: ReactorRing,
    lanes: LaneTable<HostLane>,
    /// Numbers of the lanes over all reactors, then those of express connections.
    numbers: Vec<usize>,
    /// Number of express connections.
    expresses: usize,
    shared: LaneShared,
    frames: HostPorts,
    watches: Vec<FdWatch>,
    watch_serial: u32,
    ready: VecDeque<u64>,
    /// Number of commands at their drivers.
    commands: usize,
    answers: VecDeque<(u64, i32)>,
    allocation_results: AllocationResults,
    /// Mailboxes of the control threads, by path.
    reports: Vec<MailboxSender<HostReactorReport>>,
    paths: ReactorPaths,
    /// Number of failed completions.
    errors: u64,
    /// Counters by lane, over all reactors, and by path.
    counters: Arc<[LaneCounters]>,
    own: Arc<ReactorCounters>,
    stopping: bool,
    stop: bool,
}

impl HostReactor {
    /// Creates the reactor on the thread that will run it.
    pub(crate) fn new(parts: HostReactorParts) -> io::Result<Self> {
        let numbers = parts.numbers();
        let (meters, ring_entries) =
            ((parts.meter.clone(), parts.own.cells.clone()), parts.ring_entries);
        let lanes = numbers.iter().map(|_| NewLane::of(&parts).make()).collect();
        let paths = ReactorPaths::new(&parts);
        let frames = HostPorts::new(&parts.ports);
        let shared = LaneShared::new(parts.ports, parts.own.cells.clone(), parts.slow_over);
        Ok(HostReactor {
            core: ReactorCore::new(parts.inbox, parts.waiting, meters)?,
            ring: ReactorRing::wide(ring_entries)?,
            lanes,
            numbers,
            expresses: 0,
            shared,
            frames,
            watches: Vec::new(),
            watch_serial: 0,
            ready: VecDeque::new(),
            commands: 0,
            answers: VecDeque::new(),
            allocation_results: AllocationResults::default(),
            reports: parts.reports,
            paths,
            errors: 0,
            counters: parts.counters,
            own: parts.own,
            stopping: false,
            stop: false,
        })
    }

    /// Runs until the front stops it.
    pub(crate) fn run(&mut self, front: &mut dyn Front) -> io::Result<()> {
        self.poll_carrier();
        let mut running = FrontedReactor { reactor: self, front };
        roadtrain_reactor::run(&mut running)?;
        let reactor = &mut running.reactor;
        reactor.lanes.iter_mut().for_each(|lane| lane.shut_down(&mut reactor.shared));
        // The front has made the drivers end its commands.
        roadtrain_reactor::finish(&mut running, COMMANDS_TIMEOUT, |running| {
            !running.reactor.has_commands()
        })
    }

    /// True if drivers may still use the front's memory.
    pub(crate) fn has_commands(&self) -> bool {
        self.commands > 0
    }

    fn completed(&mut self, data: &UserData, cqe: RingCqe) {
        match data.kind {
            event::WATCH => {
                let found = self.watches.iter().position(|w| w.user_data == cqe.user_data);
                if let Some(position) = found {
                    self.ready.push_back(self.watches.swap_remove(position).key);
                }
            }
            event::PORT => self.port_polled(data, cqe.result),
            event::INTERFACES => {
                self.check_carriers();
                self.poll_carrier();
            }
            event::COMMAND => {
                self.commands -= 1;
                self.answers.push_back((cqe.user_data & KEY_MASK, cqe.result));
                self.core.waits.worked();
            }
            event::LANE_IN if self.lanes.polled(data) => {
                self.lanes.add(LaneList::Ready, data.index);
            }
            event::LANE_OUT if self.lanes.polled(data) => {
                self.use_lane(data.index, HostLane::writable);
                if self.is_leaving() {
                    self.move_waiting(data.index); // requests that could not move while it was blocked
                }
            }
            _ => {}
        }
    }
    fn apply(&mut self, order: HostReactorOrder) {
        self.shared.now = clock::now();
        match order {
            HostReactorOrder::Stop => self.stopping = true,
            HostReactorOrder::Recorded(reply) => {
                _ = reply.try_send(ReactorRecords::of(&self.shared.recorder))
            }
            HostReactorOrder::Beat(reply) => _ = reply.try_send(()),
            #[cfg(feature = "testing")]
            HostReactorOrder::Call(call) => call(),
            HostReactorOrder::SetBarred { lane, barred } => self.set_barred(lane, barred),
            HostReactorOrder::Express { lane, express } => self.express_replied(lane, express),
            HostReactorOrder::Attach { lane, mut link, rules, barred, writes, guard } => {
                let Some(index) = self.index_of(lane) else { return };
                let (now, line) = (self.shared.now, self.line_of(lane));
                link.set_line(line);
                self.list_socket(lane, &mut link);
                link.move_to(now, &self.shared.ports, self.lanes_of_path());
                self.lanes.add(LaneList::Ready, index);
                let Some(lane) = self.lanes.get_mut(index) else { return };
                lane.set_barred(barred.clone());
                lane.requests.core.set_writes(writes);
                lane.attach(*link, (rules, guard), now);
                self.paths.set_barred(index, &barred);
                self.path_changed(index, PathLinkState::Live);
            }
            HostReactorOrder::Release { lane } => {
                let Some(index) = self.index_of(lane) else { return };
                self.release(index);
            }
            HostReactorOrder::SetAna { lane, ana } => {
                let Some(index) = self.index_of(lane) else { return };
                self.paths.set_ana(index, ana);
            }
            HostReactorOrder::AllocationFound { key, found } => {
                self.allocation_results.answered(key, found)
            }
            HostReactorOrder::Offer { lane, found } => {
                let Some(index) = self.index_of(lane) else { return };
                self.offer(index, &found);
            }
            HostReactorOrder::Open { path } => self.open_path(path),
            HostReactorOrder::Leave { lane } => {
                let Some(index) = self.index_of(lane) else { return };
                self.leave(index);
            }
            HostReactorOrder::Detach { lane, done } => {
                if let Some(index) = self.index_of(lane) {
                    self.detach_all(index);
                }
                let _ = done.try_send(());
            }
            HostReactorOrder::Fail { lane } => {
                let Some(index) = self.index_of(lane) else { return };
                if self.paths.are_several() {
                    self.detach(index);
                    self.path_changed(index, PathLinkState::Lost);
                }
                if self.stopping {
                    self.abandon(index);
                }
                self.detach_all(index);
                let Some(lane) = self.lanes.get_mut(index) else { return };
                lane.fail(&mut self.shared);
            }
        }
    }

    /// Sets the barred NSIDs of a lane and of its express connection.
    fn set_barred(&mut self, lane: usize, barred: BarredNsids) {
        let at = self.index_of(lane);
        let Some(lane) = at.and_then(|index| self.lanes.get_mut(index)) else { return };
        lane.set_barred(barred.clone());
        if let Some(index) = at {
            self.paths.set_barred(index, &barred);
        }
        let express = lane.express_at;
        let Some(express) = express.and_then(|at| self.lanes.get_mut(at)) else { return };
        express.set_barred(barred);
    }

    /// Returns the connection info of the lane of this number over all paths.
    fn line_of(&self, number: usize) -> ConnectionInfo {
        let lanes = (self.counters.len() / self.reports.len()).max(1);
        let qid = u16::try_from(number % lanes + 1).unwrap_or(u16::MAX);
        ConnectionInfo { qid, path: number / lanes, ..ConnectionInfo::default() }
    }

    /// Lists the socket of a connection of the lane of this number, for other threads.
    fn list_socket(&self, number: usize, link: &mut QpairLink) {
        if let Some(counters) = self.counters.get(number) {
            link.list_socket(counters.sockets());
        }
    }

    /// Returns the index of the lane of this number, if it belongs to this reactor.
    fn index_of(&self, number: usize) -> Option<u32> {
        self.numbers.iter().position(|&own| own == number).map(|index| index as u32)
    }

    /// Counts a lane's requests as abandoned.
    fn abandon(&self, index: u32) {
        let Some(lane) = self.lanes.get(index) else { return };
        let express = self.express_of(index).map_or(0, HostLane::outstanding);
        if let Some(counters) = self.counters.get(self.numbers[self.home_of(index) as usize]) {
            counters.abandon(lane.outstanding() + express);
        }
    }

    /// Closes the lane's connections.
    fn detach_all(&mut self, index: u32) {
        self.detach(index);
        self.lose_express(index);
        self.move_waiting(index); // requests of the express connection
    }

    /// Closes the lane's connection: its polls are cancelled before the descriptor is closed.
    fn detach(&mut self, index: u32) {
        self.lanes.forget_polls(&mut self.ring, index);
        self.lanes.renew(index);
        if let Some(lane) = self.lanes.get_mut(index) {
            lane.detach(&mut self.shared);
        }
        self.path_lost(index);
    }

    /// Calls into a lane; an error ends its connection and is reported.
    #[inline]
    fn use_lane<T>(
        &mut self,
        index: u32,
        call: impl FnOnce(&mut HostLane, &mut LaneShared) -> Result<T, LinkError>,
    ) -> Option<T> {
        let lane = self.lanes.get_mut(index)?;
        match call(lane, &mut self.shared) {
            Ok(value) => Some(value),
            Err(error) => {
                if let Some(home) = self.closes_express(index) {
                    self.express_closed(home);
                    return None;
                }
                // A TermReq is sent before the connection is closed.
                if let Some(lane) = self.lanes.get_mut(index) {
                    let _ = lane.end_turn(&mut self.shared);
                }
                self.detach(index);
                self.report(self.numbers[index as usize], |lane| HostReactorReport::Lost {
                    lane,
                    error,
                });
                None
            }
        }
    }

    /// Receives, parses, lets the front act, sends.
    fn turn(&mut self, front: &mut dyn Front, rx: &mut RxBuffers) {
        self.paths.has_moved = false;
        self.shared.polls = self.core.waits.polls();
        self.receive_frames(front);
        let has_express = self.has_express();
        for _ in 0..self.lanes.count(LaneList::Ready) {
            let Some(index) = self.lanes.next(LaneList::Ready) else { break };
            let Some(lane) = self.lanes.get_mut(index) else { continue };
            let yields = has_express && !lane.is_express(self.shared.now);
            let limit = if yields { YIELDING_RX_BYTES } else { RX_BUFFER_BYTES };
            lane.set_yielding(yields);
            let received = self.use_lane(index, |l, _| l.receive(&mut rx.own, limit));
            let (progress, mut rest) = received.unwrap_or_default();
            let next = if progress.more { LaneList::Ready } else { LaneList::Idle };
            self.lanes.add(next, index);
            if progress.any {
                self.core.waits.worked();
            }
            while let Some(bytes) = rest {
                rest = self.use_lane(index, |l, s| l.parse(s, bytes, PARSE_BATCH)).flatten();
                if rest.is_some() {
                    self.run_front(front);
                }
                if yields {
                    self.serve_express(index, front, &mut rx.express);
                }
            }
        }
        self.run_front(front);
        self.end_turns(has_express);
        self.write_meters();
    }

    /// Lets the front submit requests, and sends them.
    fn send_requests(&mut self, front: &mut dyn Front) {
        self.run_front(front);
        let has_express = self.has_express();
        self.end_turns(has_express);
    }

    /// Ends the turns of all lanes: they send.
    fn end_turns(&mut self, has_express: bool) {
        let holds = !has_express && self.holds_back();
        self.shared.in_flight = self.lanes.iter().map(HostLane::in_flight).sum();
        for index in self.lanes.indices() {
            self.end_turn(index, holds);
        }
        self.shared.ports.flush();
    }

    /// True if every lane has work, and nothing else can be reported.
    fn is_all_busy(&self) -> bool {
        let HostReactor { frames, lanes, watches, commands, .. } = self;
        let is_busy = frames.came || lanes.count(LaneList::Ready) > 0;
        is_busy && lanes.len() == 1 && watches.is_empty() && *commands == 0
    }

    /// True if there is work now.
    fn has_work(&self) -> bool {
        let HostReactor {
            frames, lanes, shared, ready, answers, allocation_results, paths, ..
        } = self;
        frames.came
            || paths.has_moved
            || lanes.count(LaneList::Ready) > 0
            || !(shared.completions.is_empty() && ready.is_empty() && answers.is_empty())
            || !allocation_results.is_empty()
    }

    /// True if a lane waits for a completion.
    fn expects(&self) -> bool {
        self.lanes.iter().any(|lane| lane.outstanding() > 0)
    }

    #[inline]
    fn end_turn(&mut self, index: u32, holds: bool) {
        if !(holds && self.lanes.get_mut(index).is_some_and(HostLane::gathers)) {
            self.use_lane(index, HostLane::end_turn);
        }
        if let Some(lane) = self.lanes.get_mut(index)
            && !lane.is_plain()
        {
            self.end_special_turn(index);
        }
        if self.is_leaving() {
            self.check_leaving(index);
        }
    }

    /// Handles the rare work of a lane at the end of its turn.
    #[cold]
    fn end_special_turn(&mut self, index: u32) {
        if self.lanes.get(index).is_some_and(HostLane::is_blocked) {
            self.lanes.add(LaneList::Idle, index);
        }
        if let Some(cids) = self.lanes.get_mut(index).and_then(HostLane::take_overdue) {
            self.report(self.numbers[index as usize], |lane| HostReactorReport::Overdue {
                lane,
                cids,
            });
        }
        if self.lanes.get(index).is_some_and(|lane| lane.express.is_busy()) {
            self.review_express(index);
        }
        if self.lanes.get(index).is_some_and(HostLane::diverts) {
            self.divert(index);
        }
    }

    /// Publishes counters for other threads.
    fn write_meters(&mut self) {
        self.core.waits.show().lanes.set(self.lanes.len() as u64);
        self.own.cells.port_sends.set(self.shared.ports.calls());
        let mut errors = self.errors;
        for (index, &number) in self.lanes.indices().zip(&self.numbers) {
            let Some(lane) = self.lanes.get(index) else { continue };
            if let Some(counters) = self.counters.get(number) {
                let express = lane.express_at.and_then(|at| self.lanes.get(at));
                lane.publish(counters, errors, express);
            }
            errors = 0; // counted once
        }
        self.write_expresses();
        self.write_paths();
    }

    /// True if a lane carries latency-critical requests, and there are others.
    fn has_express(&mut self) -> bool {
        let now = self.shared.now;
        self.lanes.len() > 1 && self.lanes.iter_mut().any(|lane| lane.is_express(now))
    }

    /// Runs latency-critical lanes in the middle of the turn of lane `other`, whose received bytes stay where they are.
    fn serve_express(&mut self, other: u32, front: &mut dyn Front, rx: &mut RxBuffer) {
        let now = self.shared.now;
        for index in self.lanes.indices() {
            let is_express = |lane: &mut HostLane| lane.is_express(now);
            if index == other || !self.lanes.get_mut(index).is_some_and(is_express) {
                continue;
            }
            let received = self.use_lane(index, |l, _| l.receive(rx, RX_BUFFER_BYTES));
            let (_, mut rest) = received.unwrap_or_default();
            if rest.is_some() {
                self.shared.now = clock::now(); // the turn has lasted a while
            }
            while let Some(bytes) = rest {
                rest = self.use_lane(index, |l, s| l.parse(s, bytes, PARSE_BATCH)).flatten();
                self.run_front(front);
            }
        }
    }

    fn run_front(&mut self, front: &mut dyn Front) {
        front.turn(&mut TurnView { reactor: self });
        for index in self.lanes.indices() {
            if self.lanes.get(index).is_some_and(|lane| lane.is_due(self.shared.now)) {
                self.use_lane(index, HostLane::flush);
            }
        }
    }
}

/// Reactor with the front that uses its lanes.
struct FrontedReactor<'a> {
    reactor: &'a mut HostReactor,
    front: &'a mut dyn Front,
}

impl roadtrain_reactor::ReactorCallbacks for FrontedReactor<'_> {
    type Message = HostReactorOrder;

    fn core(&mut self) -> (&mut ReactorCore<HostReactorOrder>, &mut ReactorRing) {
        (&mut self.reactor.core, &mut self.reactor.ring)
    }

    fn is_over(&self) -> bool {
        self.reactor.stop
    }

    fn is_all_busy(&self) -> bool {
        self.reactor.is_all_busy()
    }

    fn has_work(&self) -> bool {
        self.reactor.has_work()
    }

    fn expects(&self) -> bool {
        self.reactor.expects()
    }

    fn deadline(&mut self) -> Option<Instant> {
        let lanes = self.reactor.lanes.iter_mut().filter_map(HostLane::deadline);
        lanes.chain(self.front.deadline()).min()
    }

    /// While one lane has work without a poll, the others need theirs.
    fn poll_lanes(&mut self, has_work: bool) {
        let HostReactor { lanes, ring, .. } = &mut *self.reactor;
        while let Some(index) = lanes.next(LaneList::Idle) {
            if has_work && lanes.len() > 1 {
                lanes.poll(ring, index);
            }
        }
        if !has_work {
            lanes.indices().for_each(|index| lanes.poll(ring, index));
        }
    }

    fn poll_ports(&mut self) {
        self.reactor.poll_ports();
    }

    fn check_lanes(&mut self) {
        let lanes = &mut self.reactor.lanes;
        lanes.indices().for_each(|index| _ = lanes.add(LaneList::Ready, index));
    }

    fn lanes(&self) -> usize {
        self.reactor.lanes.len()
    }

    fn set_now(&mut self, now: Instant) {
        self.reactor.shared.now = now;
    }

    fn completed(&mut self, data: &UserData, cqe: RingCqe) {
        self.reactor.completed(data, cqe);
    }

    fn handle_message(&mut self, order: HostReactorOrder) {
        self.reactor.apply(order);
    }

    fn turn(&mut self, rx: &mut RxBuffers) {
        self.reactor.turn(self.front, rx);
    }
}

impl Pollable for HostLane {
    fn fd(&self) -> Option<RawFd> {
        HostLane::fd(self)
    }

    fn listens(&self) -> bool {
        true
    }

    fn is_blocked(&self) -> bool {
        HostLane::is_blocked(self)
    }
}
