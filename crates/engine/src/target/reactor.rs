//! The target's reactor: one thread, one ring, one buffer pool, its lanes.

mod accept;
#[cfg_attr(not(feature = "ether"), path = "reactor/no_frames.rs")]
mod frames;
mod report;
mod timers;

use super::control::Control;
use super::ether::EtherParts;
use super::lane::{Lane, LaneError, Shared};
use super::order::Order;
use super::tasks::{Outcome, Owner, Tasks};
use super::tickets::Tickets;
use crate::buffer::Pool;
use crate::clock;
use crate::connection::{Heard, RxBuffer};
use crate::mailbox::{Inbox, Outbox};
use crate::reactor::event;
use crate::reactor::{self, Core, List, Pollable, RxBuffers, Table};
use crate::ring::{Ring, RingCqe, UserData};
use crate::spin::Waiting;
use crate::stats::LaneStats;
use accept::Listeners;
use frames::Frames;
use roadtrain_proto::policy::ReactorLoad;
use roadtrain_proto::target::presence::Presence;
use roadtrain_proto::target::qpair::Config as QpairConfig;
use roadtrain_proto::target::{CloseReason, TargetEvent};
use roadtrain_proto::time::Instant;
use roadtrain_store::Completions;
use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;
use tracing::{debug, info, warn};

const RING_ENTRIES: u32 = 1024;
/// Longest wait for the backend when a reactor ends.
const STOP_WAIT: Duration = Duration::from_secs(10);

/// Octets in buffers that a lane whose socket is full may have unsent, and still be received from; or that share of
/// all buffers, if it is less.
const UNSENT_MAX: usize = 4 << 20;
const UNSENT_SHARE: usize = 4;

pub(super) struct Reactor {
    /// Its place among `peers`.
    number: usize,
    core: Core<Order>,
    lanes: Table<Lane>,
    /// Lanes that waited for buffers gave some back when they had sent, which others may wait for.
    has_fed: bool,
    tickets: Arc<Tickets>,
    shared: Shared,
    listeners: Listeners,
    frames: Frames,
    peers: Vec<Outbox<Order>>,
    next_peer: usize,
    qpair: QpairConfig,
    past: LaneStats,
    stopping: bool,
    keep_alive_at: Instant,
    connect_timeout: Duration,
    transfer_timeout: Duration,
    /// When buffers held too long are looked for at the earliest.
    transfers_at: Instant,
    buffer_idle: Duration,
    /// When the pool's memory goes back unless the pool is used before.
    trim_at: Option<Instant>,
    /// Connections by age, and until when they have to be some controller's: deadline, seat and its use.
    newcomers: VecDeque<(Instant, u32, u32)>,
}

/// What a reactor is made from; built on the thread that runs it.
pub(super) struct Parts {
    pub(super) number: usize,
    pub(super) ether: EtherParts,
    pub(super) inbox: Inbox<Order>,
    /// Every reactor, this one too: connections are dealt out in turn.
    pub(super) peers: Vec<Outbox<Order>>,
    pub(super) control: Arc<Control>,
    /// Of connections over TCP.
    pub(super) tickets: Arc<Tickets>,
    pub(super) qpair: QpairConfig,
    pub(super) pool_bytes: usize,
    pub(super) connect_timeout: Duration,
    pub(super) transfer_timeout: Duration,
    pub(super) buffer_idle: Duration,
    pub(super) waiting: Waiting,
}

impl Reactor {
    pub(super) fn new(parts: Parts) -> io::Result<Self> {
        let (ports, frames) = Frames::new(parts.ether, parts.pool_bytes);
        Ok(Reactor {
            number: parts.number,
            core: Core::new(parts.inbox, parts.waiting)?,
            lanes: Table::default(),
            has_fed: false,
            tickets: parts.tickets,
            shared: Shared {
                gather: Box::default(),
                pool: Pool::new(parts.pool_bytes),
                unsent_max: UNSENT_MAX.min(parts.pool_bytes / UNSENT_SHARE),
                page: Vec::new(),
                ring: Ring::new(RING_ENTRIES)?,
                tasks: tasks_of(&parts.peers[parts.number]),
                now: clock::now(),
                load: ReactorLoad::default(),
                control: parts.control,
                ports,
            },
            listeners: Listeners::default(),
            frames,
            peers: parts.peers,
            next_peer: 0,
            qpair: parts.qpair,
            past: LaneStats::default(),
            stopping: false,
            keep_alive_at: Instant::default(),
            connect_timeout: parts.connect_timeout,
            transfer_timeout: parts.transfer_timeout,
            transfers_at: Instant::default(),
            buffer_idle: parts.buffer_idle,
            trim_at: None,
            newcomers: VecDeque::new(),
        })
    }

    /// Runs until told to stop.
    pub(super) fn run(&mut self) -> io::Result<()> {
        reactor::run(self)?;
        self.drain()
    }

    /// The first reactor, which listens, also looks after keep-alive timers.
    fn listens(&self) -> bool {
        self.number == 0
    }

    /// A lane whose connection is not over.
    fn live(&mut self, index: u32) -> Option<&mut Lane> {
        self.lanes.get_mut(index).filter(|lane| !lane.session.is_ended())
    }

    fn finish_task(&mut self, index: u32, result: i32) {
        let ended = self.shared.tasks.resume(&mut self.shared.ring, index, result);
        if let Some((owner, outcome)) = ended
            && self.answer(owner, outcome)
        {
            self.set_ready(owner.0.0);
        }
    }

    /// Ends what is due by `now` in emulated SSDs.
    fn finish_due(&mut self, now: Instant) {
        let expire = |shared: &mut Shared| shared.tasks.expire(&mut shared.ring, now);
        while let Some((owner, outcome)) = expire(&mut self.shared) {
            self.answer_soon(owner, outcome);
        }
    }

    /// Tells a lane that a command of it has ended; it sends with the others of this turn.
    fn answer_soon(&mut self, owner: Owner, outcome: Outcome) {
        let index = owner.0.0;
        if self.answer(owner, outcome) {
            self.lanes.note(List::Answered, index);
        }
    }

    /// Tells a lane that a command of it has ended; `false` when its connection is over.
    fn answer(&mut self, ((index, generation), slot): Owner, outcome: Outcome) -> bool {
        debug_assert_eq!(self.lanes.generation(index), generation, "a lane outlives its tasks");
        let Some(lane) = self.lanes.get_mut(index) else { return false };
        lane.finish(&mut self.shared, slot, outcome);
        if lane.session.is_ended() {
            self.vacate(index);
            return false;
        }
        // A full caravan leaves now: the host goes on while the rest is answered.
        self.use_lane(index, Lane::flush).is_some()
    }

    /// A new lane takes its place.
    fn occupy(&mut self, index: u32, lane: Lane) {
        debug!(peer = %lane.peer, "connected");
        let deadline = clock::now() + self.connect_timeout;
        self.newcomers.push_back((deadline, index, self.lanes.generation(index)));
        self.lanes.put(index, lane);
    }

    /// Marks a lane worth a turn.
    fn set_ready(&mut self, index: u32) {
        if self.live(index).is_some() {
            self.lanes.note(List::Ready, index);
        }
    }

    /// Lanes for which something has come receive it.
    fn receive_ready(&mut self, rx: &mut RxBuffers) {
        for _ in 0..self.lanes.count(List::Ready) {
            let Some(index) = self.lanes.next(List::Ready) else { break };
            let Some(lane) = self.lanes.get_mut(index) else { continue };
            lane.hear_load(&mut self.shared);
            let heard = self.receive(index, rx);
            self.end_turn(index);
            if heard.something {
                self.core.spinner.worked();
            }
            if heard.more {
                self.set_ready(index);
            } else {
                self.lanes.note(List::Idle, index);
            }
        }
    }

    /// A lane receives. Beside latency-critical ones it pauses for their turns in between: they have a receive
    /// buffer to themselves, as its octets stay where they are.
    fn receive(&mut self, index: u32, rx: &mut RxBuffers) -> Heard {
        if !self.is_beside_express(index) {
            return self.use_lane(index, |l, s| l.receive(s, &mut rx.own)).unwrap_or_default();
        }
        let received = self.use_lane(index, |l, s| l.receive_yielding(s, &mut rx.own));
        let (heard, mut rest) = received.unwrap_or_default();
        while let Some(octets) = rest {
            self.serve_express(&mut rx.express); // which this lane is none of
            rest = self.use_lane(index, |l, s| l.go_on(s, octets)).flatten();
        }
        heard
    }

    fn is_beside_express(&self, index: u32) -> bool {
        self.lanes.count(List::Express) > 0 && !self.lanes.is_noted(List::Express, index)
    }

    /// Forgets express lanes that carry nothing latency-critical any more.
    fn review_express(&mut self) {
        let now = self.shared.now;
        for _ in 0..self.lanes.count(List::Express) {
            let Some(index) = self.lanes.next(List::Express) else { break };
            if self.live(index).is_some_and(|lane| lane.is_express(now)) {
                self.lanes.note(List::Express, index);
            }
        }
    }

    /// Latency-critical lanes have a turn in the middle of another's, after which those that are still are listed
    /// again.
    fn serve_express(&mut self, rx: &mut RxBuffer) {
        for _ in 0..self.lanes.count(List::Express) {
            let Some(index) = self.lanes.next(List::Express) else { break };
            self.use_lane(index, |lane, shared| lane.receive(shared, rx));
            self.end_turn(index);
        }
    }

    /// Lanes with answers that became due send them; those that receive this turn do so after that.
    fn send_answers(&mut self) {
        while let Some(index) = self.lanes.next(List::Answered) {
            if !self.lanes.is_noted(List::Ready, index) {
                self.end_turn(index);
                self.lanes.note(List::Idle, index);
            }
        }
    }

    /// Ends the turn of a lane that waits for a time; without a connection of its own, only when that has come.
    fn expire(&mut self, index: u32) {
        let now = self.shared.now;
        let waits = |lane: &mut Lane| {
            lane.fd().is_none() && lane.deadline().is_some_and(|deadline| deadline > now)
        };
        if self.lanes.get_mut(index).is_some_and(waits) {
            self.lanes.note(List::Timed, index);
        } else {
            self.end_turn(index);
        }
    }

    /// Lets a lane send, and notes what it waits for.
    fn end_turn(&mut self, index: u32) {
        if self.use_lane(index, Lane::end_turn).is_none() {
            return;
        }
        let now = self.shared.now;
        let Some(lane) = self.lanes.get_mut(index) else { return };
        let waits = [
            (List::Express, lane.is_express(now)),
            (List::Timed, lane.deadline().is_some()),
            (List::Starved, lane.is_starved()),
        ];
        for (list, _) in waits.into_iter().filter(|&(_, is_so)| is_so) {
            self.lanes.note(list, index);
        }
    }

    /// Buffers may have come back: lanes that wait for one go on, in turn.
    fn feed_starved(&mut self, rx: &mut RxBuffer) {
        let given = self.shared.pool.given();
        for _ in 0..self.lanes.count(List::Starved) {
            let Some(index) = self.lanes.next(List::Starved) else { break };
            if self.use_lane(index, |lane, shared| lane.feed(shared, rx)) == Some(true) {
                self.set_ready(index);
            }
            self.end_turn(index);
            self.lanes.note(List::Idle, index);
        }
        self.has_fed = self.shared.pool.given() != given;
    }

    /// Calls into a lane; an error ends it.
    fn use_lane<T>(
        &mut self,
        index: u32,
        call: impl FnOnce(&mut Lane, &mut Shared) -> Result<T, LaneError>,
    ) -> Option<T> {
        let lane = self.lanes.get_mut(index).filter(|lane| !lane.session.is_ended())?;
        match call(lane, &mut self.shared) {
            Ok(value) => Some(value),
            Err(error) => {
                log_end(lane, &error);
                // A TermReq that blames the host leaves before the connection does.
                let _ = lane.end_turn(&mut self.shared);
                self.close(index);
                None
            }
        }
    }

    /// Ends a lane: its connection now, the lane when the backend is done with its commands.
    fn close(&mut self, index: u32) {
        let Some(lane) = self.lanes.get_mut(index).filter(|lane| !lane.session.is_ended()) else {
            return;
        };
        if let Some(presence) = lane.session.end() {
            self.shared.control.drains(presence);
        }
        self.past = self.past + lane.stats();
        self.frames.forget(lane);
        self.lanes.forget_polls(&mut self.shared.ring, index);
        if let Some(lane) = self.lanes.get_mut(index) {
            lane.close(&mut self.shared);
        }
        self.vacate(index);
    }

    /// Frees a closed lane's place once no task of it is left; only then is its queue gone for the controller, so
    /// that a host which connects again never overtakes its own old commands.
    fn vacate(&mut self, index: u32) {
        if let Some(lane) = self.lanes.take_if(index, |lane| lane.session.is_gone()) {
            lane.leave(&self.shared.control);
        }
    }

    /// Ends lanes that their host has lost, before they execute more of what it sent over them.
    fn sweep(&mut self, hostnqn: &str) {
        for index in self.lanes.indices() {
            self.use_lane(index, |lane, _| {
                let is_lost =
                    |presence: &Presence| *presence.hostnqn == *hostnqn && lane.is_hung_up();
                match lane.session.presence().is_some_and(is_lost) {
                    true => Err(LaneError::Ended("ended by the host, which connects again")),
                    false => Ok(()),
                }
            });
        }
    }

    fn connect_again(&mut self) {
        for index in self.lanes.indices() {
            if self.use_lane(index, Lane::connect_again) == Some(true) {
                self.end_turn(index);
                self.lanes.note(List::Idle, index);
            }
        }
    }

    fn handle_event(&mut self, event: &TargetEvent) {
        for index in self.lanes.indices() {
            let Some(lane) = self.lanes.get_mut(index).filter(|l| !l.session.is_ended()) else {
                continue;
            };
            let Some(connected) = lane.session.queue() else { continue };
            let queue = (connected.cntlid, connected.qid);
            match event {
                TargetEvent::Completion { cntlid, cid, status, result }
                    if queue == (*cntlid, 0) =>
                {
                    lane.complete_event(self.shared.now, *cid, *status, *result);
                    self.end_turn(index);
                    self.lanes.note(List::Idle, index);
                }
                TargetEvent::Close { cntlid, qid, reason } if queue == (*cntlid, *qid) => {
                    info!(peer = %lane.peer, ?reason, "queue closed");
                    lane.session.forgotten(*reason == CloseReason::ControllerReset);
                    self.close(index);
                }
                TargetEvent::Abort { cntlid, qid, cid, id } if queue == (*cntlid, *qid) => {
                    lane.abort(&mut self.shared, *cid, *id);
                    self.end_turn(index);
                    self.lanes.note(List::Idle, index);
                }
                TargetEvent::Quiesce { cntlid, qid } if queue == (*cntlid, *qid) => {
                    lane.quiesce(&mut self.shared);
                }
                TargetEvent::NamespacesChanged { nqn } if connected.subnqn == *nqn => {
                    lane.refresh(&self.shared.control);
                }
                _ => {}
            }
        }
    }

    /// Ends every lane and waits until no command is in a backend.
    fn drain(&mut self) -> io::Result<()> {
        self.listeners = Listeners::default();
        self.forget_ports();
        for index in self.lanes.indices() {
            self.close(index);
        }
        reactor::finish(self, STOP_WAIT, |reactor| {
            reactor.finish_due(Instant(u64::MAX)); // nobody waits for an emulated SSD any more
            reactor.shared.tasks.count() == 0
        })
    }
}

impl reactor::Reactor for Reactor {
    type Message = Order;

    fn core(&mut self) -> (&mut Core<Order>, &mut Ring) {
        (&mut self.core, &mut self.shared.ring)
    }

    fn is_over(&self) -> bool {
        self.stopping
    }

    fn is_all_busy(&self) -> bool {
        let ready = self.lanes.count(List::Ready);
        ready > 0 && ready == self.lanes.len() && self.shared.tasks.in_ring() == 0
    }

    fn has_work(&self) -> bool {
        self.lanes.count(List::Ready) > 0 || self.frames.has_more || self.has_fed
    }

    fn expects(&self) -> bool {
        self.lanes.len() > 0
    }

    fn deadline(&mut self) -> Option<Instant> {
        self.next_deadline()
    }

    fn poll_lanes(&mut self, _has_work: bool) {
        while let Some(index) = self.lanes.next(List::Idle) {
            self.lanes.poll(&mut self.shared.ring, index);
        }
    }

    fn poll_ports(&mut self) {
        self.arm_ports();
    }

    fn check_lanes(&mut self) {
        self.lanes.indices().for_each(|index| self.set_ready(index));
    }

    fn set_now(&mut self, now: Instant) {
        self.shared.now = now;
    }

    fn completed(&mut self, data: &UserData, cqe: RingCqe) {
        match data.kind {
            event::STORE => self.finish_task(data.index, cqe.result),
            event::LISTENER => self.accept(data.index),
            event::PORT if !self.stopping => self.port_polled(data, cqe.result),
            event::INTERFACES if !self.stopping => self.interfaces_changed(),
            event::LANE_IN if self.lanes.polled(data) => self.set_ready(data.index),
            event::LANE_OUT if self.lanes.polled(data) => {
                self.use_lane(data.index, Lane::writable);
                self.lanes.note(List::Idle, data.index);
            }
            _ => {}
        }
    }

    fn obey(&mut self, order: Order) {
        match order {
            // Dropped, which closes it.
            Order::Listen(_) | Order::Adopt { .. } if self.stopping => {}
            Order::Listen(socket) => self.listen(socket),
            Order::Unlisten(address) => self.unlisten(address),
            Order::Adopt { socket, peer, ticket, settings } => {
                self.adopt(socket, peer, ticket, settings);
            }
            Order::Evict(ticket) => self.evict(ticket),
            Order::Request(request) => self.take_request(&request),
            Order::Event(event) => self.handle_event(&event),
            Order::Sweep(hostnqn) => self.sweep(&hostnqn),
            Order::Ask(hostnqn) => self.ask(&hostnqn),
            Order::Settled => self.connect_again(),
            Order::Completed(completion) => {
                let Shared { tasks, ring, .. } = &mut self.shared;
                if let Some((owner, outcome)) = tasks.completed(ring, completion) {
                    self.answer_soon(owner, outcome);
                }
            }
            Order::Flush(index, wake) => {
                let Shared { tasks, ring, .. } = &mut self.shared;
                if let Some((owner, outcome)) = tasks.woken(ring, index, wake) {
                    self.answer_soon(owner, outcome);
                }
            }
            Order::Stats(reply) => {
                let _ = reply.try_send(self.stats());
            }
            Order::Drops(reply) => {
                let _ = reply.try_send(self.frames.drops);
            }
            Order::Usage(reply) => {
                let _ = reply.try_send(self.usage());
            }
            Order::Beat(reply) => {
                let _ = reply.try_send(());
            }
            #[cfg(test)]
            Order::Call(call) => call(),
            Order::Stop => self.stopping = true,
        }
    }

    /// Every lane that has something to do does it once.
    fn turn(&mut self, rx: &mut RxBuffers) {
        self.finish_due(self.shared.now);
        if self.listens() {
            self.check_keep_alive();
        }
        self.review_express();
        self.take_frames();
        self.check_frames();
        for _ in 0..self.lanes.count(List::Timed) {
            let Some(index) = self.lanes.next(List::Timed) else { break };
            self.expire(index);
        }
        self.send_answers();
        self.receive_ready(rx);
        // After all that has come is heard: nobody is ended whose Connect is here.
        self.check_newcomers();
        self.check_transfers();
        self.feed_starved(&mut rx.own);
        self.check_pool();
        self.flush_ports();
    }
}

/// What stores do for the reactor that reads these orders.
fn tasks_of(reactor: &Outbox<Order>) -> Tasks {
    let (flushed, answered) = (reactor.clone(), reactor.clone());
    let waker = Arc::new(move |index, wake| flushed.send(Order::Flush(index, wake)));
    let send = move |completion| answered.send(Order::Completed(completion));
    Tasks::new(waker, Completions::new(send))
}

impl Pollable for Lane {
    fn fd(&self) -> Option<RawFd> {
        Lane::fd(self).filter(|_| !self.session.is_ended())
    }

    fn listens(&self) -> bool {
        !self.is_stalled() && !self.is_deaf()
    }

    fn is_blocked(&self) -> bool {
        Lane::is_blocked(self)
    }
}

fn log_end(lane: &Lane, error: &LaneError) {
    match error {
        LaneError::Closed | LaneError::Ended(_) => info!(peer = %lane.peer, "{error}"),
        _ => warn!(peer = %lane.peer, "{error}"),
    }
}
