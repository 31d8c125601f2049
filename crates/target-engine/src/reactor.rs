//! Reactor of the target: one thread with a ring, a buffer pool and lanes.
//!
//! Order of a turn: due commands in a store; keep-alive timers; frames of ports; lanes with an expired deadline; lanes
//! with completions; lanes that are ready to receive; connections without a queue; overdue buffers; lanes that wait for
//! a buffer; idle memory of the pool; moves of lanes; outgoing frames.

mod accept;
#[cfg(test)]
mod by_hand;
mod frames;
mod hosts;
mod lanes;
mod moves;
mod rules;
mod timers;

use super::control::TargetControlPlane;
use super::ether::EtherParts;
use super::exclusion::{ExclusionChannels, RangeExclusionNotice};
use super::handshakes::Secure;
use super::lane::{LaneResources, TargetLane};
use super::order::TargetReactorMessage;
use super::tasks::Tasks;
use super::tickets::Tickets;
use accept::Listeners;
use frames::PortFrames;
use hosts::EtherHosts;
use lanes::TargetLanes;
pub(super) use moves::Balance;
use moves::Moves;
use roadtrain_proto::policy::ReactorLoad;
use roadtrain_proto::recorder::{FlightRecorder, SlowOver};
use roadtrain_proto::time::Instant;
use roadtrain_reactor::event;
use roadtrain_reactor::recorded::ReactorRecords;
use roadtrain_reactor::waits::{WaitMeter, WaitPolicy};
use roadtrain_reactor::{Guests, LaneList, ReactorCore, RxBuffers};
use roadtrain_store::{StoreCompletions, guest_completions};
use roadtrain_system::buffer::BufferPool;
use roadtrain_system::clock;
use roadtrain_system::mailbox::{MailboxReceiver, MailboxSender};
use roadtrain_system::ring::{ReactorRing, RingCqe, UserData};
use roadtrain_target_proto::buffer_shares::BufferShares;
use roadtrain_target_proto::pauses::PauseDetector;
use roadtrain_target_proto::qpair::TargetQpairConfig as QpairConfig;
use roadtrain_target_proto::service::{self, ReactorRules};
use std::io;
use std::mem;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use timers::Timers;
use tracing::warn;

#[cfg(test)]
pub(crate) use by_hand::HandTarget;

const RING_ENTRIES: u32 = 1024;
/// Interval between two updates of the buffer usage gauge.
const BUFFERS_EVERY: Duration = Duration::from_millis(10);
/// Longest wait for the stores when a reactor ends.
const STOP_WAIT: Duration = Duration::from_secs(10);

/// Most unsent bytes in buffers of a lane that still receives while its socket is full; or the fraction of all buffers,
/// if that is less.
const UNSENT_MAX: usize = 4 << 20;
const UNSENT_SHARE: usize = 4;

pub(super) struct TargetReactor {
    core: ReactorCore<TargetReactorMessage>,
    lanes: TargetLanes,
    frames: PortFrames,
    listeners: Listeners,
    timers: Timers,
    moves: Moves,
    /// Reactors on this thread, for stores over the network.
    guests: Guests,
    peers: Peers,
    pauses: PauseDetector,
    /// Time of the next update of the buffer usage gauge.
    buffers_at: Instant,
}

/// All reactors of the target.
struct Peers {
    /// Index of this reactor.
    number: usize,
    all: Vec<MailboxSender<TargetReactorMessage>>,
    /// Placement of connections on reactors.
    balance: Arc<Mutex<Balance>>,
}

/// Parameters of a reactor, which is built on its own thread.
pub(super) struct TargetReactorParts {
    pub(super) number: usize,
    pub(super) ether: EtherParts,
    pub(super) inbox: MailboxReceiver<TargetReactorMessage>,
    /// Mailboxes of all reactors, including this one.
    pub(super) peers: Vec<MailboxSender<TargetReactorMessage>>,
    pub(super) balance: Arc<Mutex<Balance>>,
    pub(super) control: Arc<TargetControlPlane>,
    /// Tickets of TCP connections.
    pub(super) tickets: Arc<Tickets>,
    /// Handle to the TLS handshake thread, if the target has TLS.
    pub(super) handshakes: Option<Secure>,
    pub(super) qpair: QpairConfig,
    pub(super) pool_bytes: usize,
    pub(super) connect_timeout: Duration,
    pub(super) transfer_timeout: Duration,
    pub(super) buffer_idle: Duration,
    pub(super) waiting: WaitPolicy,
    /// Threshold of slow commands to record.
    pub(super) slow_over: SlowOver,
    /// Meter for the state of the waits.
    pub(super) meter: Arc<WaitMeter>,
}

impl TargetReactor {
    pub(super) fn new(parts: TargetReactorParts) -> io::Result<Self> {
        let meters = parts.control.meters.clone();
        let cells = meters.reactor(parts.number).clone();
        cells.buffer_limit_bytes.set(parts.pool_bytes as u64);
        let (ports, frames) = PortFrames::new(parts.ether);
        let pool = BufferPool::new(parts.pool_bytes);
        let shared = LaneResources {
            number: parts.number,
            gather: Box::default(),
            shares: BufferShares::new(pool.usage().budget_bytes),
            pool,
            unsent_max: UNSENT_MAX.min(parts.pool_bytes / UNSENT_SHARE),
            page: Vec::new(),
            ring: ReactorRing::new(RING_ENTRIES)?,
            tasks: tasks_of(parts.number, &parts.peers),
            now: clock::now(),
            load: ReactorLoad::default(),
            polls: false,
            control: parts.control,
            meters: meters.clone(),
            recorder: FlightRecorder::new(parts.slow_over),
            ports,
        };
        let hosts = EtherHosts::new(parts.pool_bytes);
        let pauses = PauseDetector::new(shared.now);
        Ok(TargetReactor {
            core: ReactorCore::new(parts.inbox, parts.waiting, (parts.meter, cells))?,
            lanes: TargetLanes::new(
                shared,
                hosts,
                parts.qpair,
                ReactorRules::new(parts.connect_timeout, parts.transfer_timeout),
            ),
            frames,
            listeners: Listeners::new(parts.tickets, parts.handshakes, meters),
            timers: Timers::new(parts.buffer_idle),
            moves: Moves::default(),
            guests: Guests::default(),
            peers: Peers { number: parts.number, all: parts.peers, balance: parts.balance },
            pauses,
            buffers_at: Instant::default(),
        })
    }

    /// Runs until the order to stop. Then ends every lane and waits until no command is in a store.
    pub(super) fn run(&mut self) -> io::Result<()> {
        roadtrain_reactor::run(self)?;
        self.listeners.close();
        self.frames.forget_ports();
        self.lanes.close_all();
        roadtrain_reactor::finish(self, STOP_WAIT, |reactor| {
            reactor.lanes.finish_due(Instant(u64::MAX)); // emulated SSDs complete immediately
            reactor.lanes.shared.tasks.count() == 0
        })
    }

    fn accept(&mut self, listener: u32) {
        self.listeners.accept(&mut self.lanes.shared.ring, &self.peers, listener);
    }
}

impl roadtrain_reactor::ReactorCallbacks for TargetReactor {
    type Message = TargetReactorMessage;

    fn core(&mut self) -> (&mut ReactorCore<TargetReactorMessage>, &mut ReactorRing) {
        (&mut self.core, &mut self.lanes.shared.ring)
    }

    fn is_over(&self) -> bool {
        self.lanes.stopping
    }

    fn is_all_busy(&self) -> bool {
        let TargetLanes { table, shared, .. } = &self.lanes;
        let ready = table.count(LaneList::Ready);
        ready > 0 && ready == table.len() && shared.tasks.in_ring() == 0
    }

    fn has_work(&self) -> bool {
        self.lanes.table.count(LaneList::Ready) > 0
            || self.frames.has_more
            || self.lanes.has_fed
            || !self.guests.is_empty() && guest_completions::are_pending()
    }

    fn expects(&self) -> bool {
        !self.lanes.table.is_empty()
    }

    fn deadline(&mut self) -> Option<Instant> {
        let TargetReactor { lanes, timers, frames, listeners, moves, .. } = self;
        let pauses = !listeners.paused.is_empty();
        let is_first = self.peers.number == 0;
        let keep_alive = is_first.then(|| timers.keep_alive_at(lanes, pauses)).flatten();
        let others = [keep_alive, timers.deadline(lanes), frames.check_at(lanes), moves.deadline()];
        let doorbells = lanes.table.earliest(LaneList::Timed, TargetLane::deadline);
        others.into_iter().flatten().chain(doorbells).min()
    }

    fn poll_lanes(&mut self, _has_work: bool) {
        let TargetLanes { table, shared, .. } = &mut self.lanes;
        while let Some(index) = table.next(LaneList::Idle) {
            table.poll(&mut shared.ring, index);
        }
    }

    fn poll_ports(&mut self) {
        self.frames.poll_ports(&mut self.lanes);
    }

    fn check_lanes(&mut self) {
        self.lanes.table.indices().for_each(|index| self.lanes.set_ready(index));
    }

    fn lanes(&self) -> usize {
        self.lanes.table.len()
    }

    fn set_now(&mut self, now: Instant) {
        self.lanes.shared.now = now;
        if let Some(pause) = self.pauses.begin_turn(now) {
            self.lanes.shared.control.expire_due(now);
            service::check_after_pause(&mut self.lanes, pause);
        }
    }

    fn completed(&mut self, data: &UserData, cqe: RingCqe) {
        let TargetReactor { lanes, frames, .. } = self;
        match data.kind {
            roadtrain_store::RING_KIND => lanes.finish_task(data.index, cqe.result),
            event::LISTENER => self.accept(data.index),
            event::PORT if !lanes.stopping => frames.port_polled(lanes, data, cqe.result),
            event::INTERFACES if !lanes.stopping => frames.interfaces_changed(lanes),
            event::LANE_IN if lanes.table.polled(data) => lanes.set_ready(data.index),
            event::LANE_OUT if lanes.table.polled(data) => {
                lanes.use_lane(data.index, TargetLane::writable);
                lanes.table.add(LaneList::Idle, data.index);
            }
            _ => {}
        }
    }

    fn handle_message(&mut self, order: TargetReactorMessage) {
        let TargetReactor { lanes, frames, listeners, moves, peers, .. } = self;
        let LaneResources { tasks, ring, .. } = &mut lanes.shared;
        match order {
            // Dropping the socket closes it.
            TargetReactorMessage::Listen(_) | TargetReactorMessage::Adopt(_) if lanes.stopping => {}
            TargetReactorMessage::Listen(socket) => listeners.listen(ring, peers, socket),
            TargetReactorMessage::Unlisten(address) => listeners.unlisten(ring, address),
            TargetReactorMessage::Sockets(reply) => _ = reply.try_send(listeners.share()),
            TargetReactorMessage::StopListening => listeners.stop(ring),
            TargetReactorMessage::SetTls(address, tls) => listeners.set_tls(address, tls),
            TargetReactorMessage::Adopt(connection) => lanes.adopt(*connection),
            TargetReactorMessage::Evict(ticket) => lanes.evict(ticket),
            TargetReactorMessage::Request(request) => frames.take_request(lanes, &request),
            TargetReactorMessage::Event(event) => {
                moves.pass_on(peers, &event);
                service::handle_event(lanes, &event);
            }
            TargetReactorMessage::Fence(turn, aborts) => service::fence(lanes, turn, aborts),
            TargetReactorMessage::Reserved(owner, status, report) => {
                service::reserved(lanes, owner, status, &report);
            }
            TargetReactorMessage::CloseStale(hostnqn) => _ = service::close_stale(lanes, &hostnqn),
            TargetReactorMessage::Arrive(lane) => lanes.arrive(lane),
            TargetReactorMessage::Departed(ticket) => moves.departed(peers, ticket),
            TargetReactorMessage::Passed(ticket, event) => lanes.passed(ticket, &event),
            TargetReactorMessage::Settle(ticket) => lanes.settle(ticket),
            TargetReactorMessage::Probe(hostnqn) => frames::probe_hosts(lanes, &hostnqn),
            TargetReactorMessage::Settled => service::try_again(lanes),
            TargetReactorMessage::Completed(completion) => lanes.completed(completion),
            TargetReactorMessage::Guest(guest) => match guest() {
                Ok(guest) => self.guests.add(ring, guest),
                Err(error) => warn!("a store over the network stays on its own thread: {error}"),
            },
            TargetReactorMessage::Flush(index, wake) => {
                let ended = tasks.woken(ring, index, wake);
                lanes.ended(ended);
            }
            TargetReactorMessage::Granted(index, grant) => lanes.granted(index, grant),
            TargetReactorMessage::Exclusion(notice) => lanes.handle_exclusion(notice),
            TargetReactorMessage::Frames(reply) => {
                let _ =
                    reply.try_send((frames::dropped(frames, lanes), frames::counts(frames, lanes)));
            }
            TargetReactorMessage::Lanes(reply) => {
                let core = peers.balance().core(peers.number);
                let _ =
                    reply.try_send(lanes.table.iter_mut().filter_map(|l| l.place(core)).collect());
            }
            TargetReactorMessage::Recorded(reply) => {
                _ = reply.try_send(ReactorRecords::of(&lanes.shared.recorder))
            }
            TargetReactorMessage::Moves(reply) => _ = reply.try_send(lanes.arrived),
            TargetReactorMessage::Usage(reply) => _ = reply.try_send(lanes.usage()),
            TargetReactorMessage::Heartbeat(reply) => {
                let _ = reply.try_send(());
            }
            #[cfg(test)]
            TargetReactorMessage::Move(to) => moves.move_all(lanes, peers, to),
            #[cfg(test)]
            TargetReactorMessage::Call(call) => call(),
            TargetReactorMessage::Depart => lanes.departing = true,
            TargetReactorMessage::Stop => lanes.stopping = true,
        }
    }

    fn guests(&mut self) -> Option<&mut Guests> {
        Some(&mut self.guests)
    }

    fn guests_turned(&mut self) {
        while let Some(completion) = guest_completions::next() {
            self.lanes.completed(completion);
        }
    }

    /// Gives every lane with work one turn.
    fn turn(&mut self, rx: &mut RxBuffers) {
        let TargetReactor { core, lanes, frames, timers, moves, peers, .. } = self;
        lanes.shared.polls = core.waits.polls();
        lanes.finish_due(if lanes.departing { Instant(u64::MAX) } else { lanes.shared.now });
        if peers.number == 0 && timers.check_keep_alive(lanes) {
            for listener in mem::take(&mut self.listeners.paused) {
                self.listeners.accept(&mut lanes.shared.ring, peers, listener);
            }
        }
        lanes.review_express();
        frames.take_frames(lanes, peers);
        frames.check_frames(lanes, timers.buffer_idle);
        lanes.expire_timed();
        lanes.send_answers();
        let has_received = lanes.receive_ready(rx);
        if has_received || frames.has_more {
            core.waits.worked();
        }
        // After all receives, so that no connection is closed whose Connect has arrived.
        service::close_unauthenticated(lanes);
        if lanes.table.count(LaneList::WaitingForBuffers) > 0 {
            service::close_overdue(lanes);
        }
        lanes.feed_starved(&mut rx.own);
        timers.check_pool(lanes);
        moves.check(lanes, peers, core.waits.polled());
        frames::flush_ports(lanes);
        let cells = core.waits.show();
        cells.lanes.set(lanes.table.len() as u64);
        let now = lanes.shared.now;
        // Adding up the usage takes a while: only at intervals, and until it is zero.
        let is_over = cells.buffer_bytes.get() > 0 && lanes.shared.tasks.count() == 0;
        if is_over || now >= self.buffers_at {
            self.buffers_at = now + BUFFERS_EVERY;
            cells.buffer_bytes.set(lanes.shared.pool.usage().taken_bytes as u64);
        }
    }
}

/// Creates the tasks of the reactor with that index.
fn tasks_of(number: usize, all: &[MailboxSender<TargetReactorMessage>]) -> Tasks {
    let (flushed, answered, granted) =
        (all[number].clone(), all[number].clone(), all[number].clone());
    let waker = Arc::new(move |index, wake| flushed.send(TargetReactorMessage::Flush(index, wake)));
    let send = move |completion| answered.send(TargetReactorMessage::Completed(completion));
    let notify_grant =
        Arc::new(move |index, grant| granted.send(TargetReactorMessage::Granted(index, grant)));
    let all = all.to_vec();
    let notify = Arc::new(move |notice: &RangeExclusionNotice| {
        for reactor in &all {
            reactor.send(TargetReactorMessage::Exclusion(notice.clone()));
        }
    });
    Tasks::new(
        waker,
        StoreCompletions::new(send),
        ExclusionChannels { number, notify, notify_grant },
    )
}
