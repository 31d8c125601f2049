//! The target's reactor: one thread, one ring, one buffer pool, its lanes.

mod accept;
#[cfg_attr(not(feature = "ether"), path = "reactor/no_frames.rs")]
mod frames;
mod report;
mod timers;

use super::control::Control;
use super::dispatch::{Dispatch, Dispatcher};
use super::ether::{Drops, EtherParts, Request};
pub(super) use accept::ListenSocket;

use super::lane::{Lane, LaneError, Shared};
use super::server::Usage;
use super::tasks::{self, Outcome, Owner};
use super::tickets::{Ticket, Tickets};
use crate::buffer::Pool;
use crate::clock;
use crate::connection::{Heard, RxBuffer};
use crate::mailbox::{Inbox, Outbox};
use crate::ring::{Ring, RingCqe, UserData};
use crate::spin::{Spinner, Waiting};
use crate::stats::LaneStats;
use frames::Frames;
use roadtrain_proto::policy::ReactorLoad;
use roadtrain_proto::target::presence::Presence;
use roadtrain_proto::target::qpair::Config as QpairConfig;
use roadtrain_proto::target::session::Settings;
use roadtrain_proto::target::stability::Wake;
use roadtrain_proto::target::{CloseReason, TargetEvent};
use roadtrain_proto::time::Instant;
use roadtrain_store::Completion;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;
use tracing::{debug, info, warn};

pub(super) const RING_ENTRIES: u32 = 1024;
/// Busy turns between two looks at the ring.
const TURNS_PER_LOOK: u32 = 16;
/// Longest wait for the backend when a reactor ends.
pub(super) const STOP_WAIT: Duration = Duration::from_secs(10);

/// Octets in buffers that a lane whose socket is full may have unsent, and still be received from; or that share of
/// all buffers, if it is less.
const UNSENT_MAX: usize = 4 << 20;
const UNSENT_SHARE: usize = 4;

/// What other threads tell a reactor.
pub(super) enum Order {
    /// Serve this connection.
    Adopt { socket: OwnedFd, peer: SocketAddr, ticket: Ticket, settings: Settings },
    /// End the connection that has this ticket: others need its room.
    Evict(u64),
    /// Somebody wants, asks for, or ends a lane over Ethernet that is, or is to be, this reactor's.
    Request(Request),
    /// Something happened in the control plane; concerns the reactor that has the connection.
    Event(TargetEvent),
    /// The host is back: end its lanes whose connections it has ended, whatever it had sent over them.
    Sweep(Arc<str>),
    /// The host connects: does it still have its lanes over Ethernet?
    Ask(Arc<str>),
    /// Something of a host's lost connections is gone: Connects that waited for it may go on.
    Settled,
    /// A command is back from other threads.
    Ended(Owner, Outcome),
    /// A store has answered from another thread.
    Completed(Completion),
    /// A flush for which a command of this reactor waits.
    Flush(u32, Wake),
    /// Answer with the sum of the lanes' counters.
    Stats(SyncSender<LaneStats>),
    /// Answer with the frames that were dropped.
    Drops(SyncSender<Drops>),
    /// Answer with what is held.
    Usage(SyncSender<Usage>),
    /// Answer, as a sign of life.
    Beat(SyncSender<()>),
    /// What a test does to the reactor.
    #[cfg(test)]
    Call(Box<dyn FnOnce() + Send>),
    /// End every lane, then the reactor.
    Stop,
}

#[derive(Clone, Copy)]
#[repr(u8)]
enum Kind {
    LaneIn = 1,
    LaneOut,
    Listener,
    Inbox,
    Forget,
    Port,
    Interfaces,
}

struct Seat {
    lane: Lane,
    hot: bool,
    /// Has answers of this turn.
    answered: bool,
    /// Has got frames in this turn.
    touched: bool,
    polling_in: bool,
    polling_out: bool,
}

/// Where its lanes receive.
struct RxBuffers {
    own: RxBuffer,
    /// Of latency-critical lanes while another lane is in its turn.
    express: RxBuffer,
}

pub(super) struct Reactor {
    /// Its place among `peers`.
    number: usize,
    seats: Vec<Option<Seat>>,
    generations: Vec<u32>,
    free: Vec<u32>,
    /// Lanes that may have something to do, each once.
    hot: Vec<u32>,
    /// Lanes with answers that became due, each once.
    answered: Vec<u32>,
    /// Lanes that had nothing more to do, to be watched before the reactor waits.
    cooled: Vec<u32>,
    /// Lanes with an armed doorbell.
    timed: Vec<u32>,
    /// Lanes that wait for buffers.
    starved: Vec<u32>,
    /// Some of them gave buffers back when they had sent, which others may wait for.
    has_fed: bool,
    /// Lanes that carry latency-critical requests.
    express: Vec<u32>,
    /// Away during a turn.
    rx: Option<RxBuffers>,
    /// A listener that failed pauses until the next look at keep-alive timers.
    paused: Vec<usize>,
    tickets: Arc<Tickets>,
    shared: Shared,
    listeners: Vec<ListenSocket>,
    frames: Frames,
    inbox: Inbox<Order>,
    peers: Vec<Outbox<Order>>,
    next_peer: usize,
    qpair: QpairConfig,
    spinner: Spinner,
    past: LaneStats,
    waits: u64,
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
    pub(super) listeners: Vec<ListenSocket>,
    pub(super) ether: EtherParts,
    pub(super) inbox: Inbox<Order>,
    /// Every reactor, this one too: connections are dealt out in turn.
    pub(super) peers: Vec<Outbox<Order>>,
    pub(super) control: Arc<Control>,
    /// Of connections over TCP.
    pub(super) tickets: Arc<Tickets>,
    pub(super) dispatch: Dispatch,
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
            seats: Vec::new(),
            generations: Vec::new(),
            free: Vec::new(),
            hot: Vec::new(),
            answered: Vec::new(),
            cooled: Vec::new(),
            timed: Vec::new(),
            starved: Vec::new(),
            has_fed: false,
            express: Vec::new(),
            rx: Some(RxBuffers { own: RxBuffer::new()?, express: RxBuffer::new()? }),
            paused: Vec::new(),
            tickets: parts.tickets,
            shared: Shared {
                gather: Box::default(),
                pool: Pool::new(parts.pool_bytes),
                unsent_max: UNSENT_MAX.min(parts.pool_bytes / UNSENT_SHARE),
                page: Vec::new(),
                ring: Ring::new(RING_ENTRIES)?,
                dispatcher: Dispatcher::new(parts.dispatch, parts.peers[parts.number].clone())?,
                now: clock::now(),
                load: ReactorLoad::default(),
                control: parts.control,
                ports,
            },
            listeners: parts.listeners,
            frames,
            inbox: parts.inbox,
            peers: parts.peers,
            next_peer: 0,
            qpair: parts.qpair,
            spinner: Spinner::new(parts.waiting),
            past: LaneStats::default(),
            waits: 0,
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
        self.poll(self.inbox.fd(), libc::POLLIN, mark(Kind::Inbox, 0, 0));
        for index in 0..self.listeners.len() {
            self.arm_listener(index);
        }
        let mut turns = 0u32;
        while !self.stopping {
            turns = turns.wrapping_add(1);
            let all_hot =
                !self.hot.is_empty() && self.hot.len() + self.free.len() == self.seats.len();
            if !all_hot
                || self.shared.dispatcher.in_ring() > 0
                || turns.is_multiple_of(TURNS_PER_LOOK)
            {
                self.wait()?;
            }
            self.shared.now = clock::now();
            self.finish_due(self.shared.now);
            self.turn();
        }
        self.drain()
    }

    fn wait(&mut self) -> io::Result<()> {
        let has_work = !self.hot.is_empty() || self.frames.has_more || self.has_fed;
        let spinning = !has_work && self.keeps_spinning();
        if !spinning {
            for index in std::mem::take(&mut self.cooled) {
                self.arm(index);
            }
        }
        let timeout = if has_work || spinning { None } else { self.timeout() };
        let sleeping = !has_work && !spinning && timeout != Some(Duration::ZERO);
        self.waits += u64::from(sleeping);
        if sleeping {
            self.arm_ports();
            self.shared.ring.submit_and_sleep(timeout)?;
            self.shared.now = clock::now(); // for completions of the backend
        } else {
            self.shared.ring.submit_and_wait(0, None)?;
        }
        while let Some(cqe) = self.shared.ring.next_completion() {
            self.dispatch(cqe);
        }
        if spinning {
            // While spinning lanes are looked at directly instead of through the ring.
            for index in 0..self.seats.len() as u32 {
                self.heat(index);
            }
        }
        Ok(())
    }

    fn keeps_spinning(&mut self) -> bool {
        self.spinner.look_again(clock::now(), self.free.len() < self.seats.len())
    }

    /// The first reactor, which listens, also looks after keep-alive timers.
    fn listens(&self) -> bool {
        self.number == 0
    }

    fn poll(&mut self, fd: RawFd, events: i16, user_data: u64) {
        // SAFETY: the descriptor is open: lanes, listeners and the inbox own theirs.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        self.shared.ring.poll_add(fd, events, user_data);
    }

    fn arm_listener(&mut self, index: usize) {
        let fd = self.listeners[index].socket.as_raw_fd();
        self.poll(fd, libc::POLLIN, mark(Kind::Listener, index as u32, 0));
    }

    fn dispatch(&mut self, cqe: RingCqe) {
        let data = UserData::unpack(cqe.user_data);
        if data.kind == tasks::KIND {
            return self.finish_task(data.index, cqe.result);
        }
        match data.kind {
            k if k == Kind::Inbox as u8 => self.read_inbox(),
            // Once stopping there are no listeners any more, only the ends of their polls.
            k if k == Kind::Listener as u8 && !self.stopping => {
                self.accept(data.index as usize);
            }
            k if k == Kind::Port as u8 && !self.stopping => {
                self.port_polled(&data, cqe.result);
            }
            k if k == Kind::Interfaces as u8 && !self.stopping => self.interfaces_changed(),
            k if k == Kind::LaneIn as u8 && self.is_current(&data) => {
                if let Some(seat) = self.seats[data.index as usize].as_mut() {
                    seat.polling_in = false;
                }
                self.heat(data.index);
            }
            k if k == Kind::LaneOut as u8 && self.is_current(&data) => {
                if let Some(seat) = self.seats[data.index as usize].as_mut() {
                    seat.polling_out = false;
                }
                self.use_lane(data.index, Lane::writable);
                self.cooled.push(data.index);
            }
            _ => {}
        }
    }

    fn is_current(&self, data: &UserData) -> bool {
        let index = data.index as usize;
        self.generations.get(index) == Some(&data.generation) && self.seats[index].is_some()
    }

    fn finish_task(&mut self, index: u32, result: i32) {
        let ended = self.shared.dispatcher.resume(&mut self.shared.ring, index, result);
        if let Some((owner, outcome)) = ended
            && self.answer(owner, outcome)
        {
            self.heat(owner.0.0);
        }
    }

    /// Ends what is due by `now` in emulated SSDs.
    fn finish_due(&mut self, now: Instant) {
        let expire = |shared: &mut Shared| shared.dispatcher.expire(&mut shared.ring, now);
        while let Some((owner, outcome)) = expire(&mut self.shared) {
            self.answer_soon(owner, outcome);
        }
    }

    /// Tells a lane that a command of it has ended; it sends with the others of this turn.
    fn answer_soon(&mut self, owner: Owner, outcome: Outcome) {
        let index = owner.0.0;
        if self.answer(owner, outcome)
            && let Some(seat) = self.seats[index as usize].as_mut()
            && !std::mem::replace(&mut seat.answered, true)
        {
            self.answered.push(index);
        }
    }

    /// Tells a lane that a command of it has ended; `false` when its connection is over.
    fn answer(&mut self, ((index, generation), slot): Owner, outcome: Outcome) -> bool {
        debug_assert_eq!(self.generations[index as usize], generation, "a seat outlives its tasks");
        let Some(seat) = self.seats[index as usize].as_mut() else { return false };
        seat.lane.session.left_store();
        if seat.lane.session.is_ended() {
            outcome.buffer.into_iter().for_each(|buffer| self.shared.pool.give(buffer));
            self.vacate(index);
            return false;
        }
        seat.lane.finish(&mut self.shared, slot, outcome);
        // A full caravan leaves now: the host goes on while the rest is answered.
        self.use_lane(index, Lane::flush).is_some()
    }

    fn read_inbox(&mut self) {
        self.inbox.acknowledge();
        while let Some(order) = self.inbox.take() {
            match order {
                Order::Adopt { .. } if self.stopping => {} // dropped, which closes it
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
                    let Shared { dispatcher, ring, .. } = &mut self.shared;
                    if let Some((owner, outcome)) = dispatcher.completed(ring, completion) {
                        self.answer_soon(owner, outcome);
                    }
                }
                Order::Ended(owner, outcome) => {
                    self.shared.dispatcher.returned();
                    self.answer_soon(owner, outcome);
                }
                Order::Flush(index, wake) => {
                    let Shared { dispatcher, ring, .. } = &mut self.shared;
                    if let Some((owner, outcome)) = dispatcher.woken(ring, index, wake) {
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
        self.poll(self.inbox.fd(), libc::POLLIN, mark(Kind::Inbox, 0, 0));
    }

    /// A free seat, and which use of it this is.
    fn take_seat(&mut self) -> (u32, u32) {
        let index = self.free.pop().unwrap_or_else(|| {
            self.seats.push(None);
            self.generations.push(0);
            (self.seats.len() - 1) as u32
        });
        let generation = &mut self.generations[index as usize];
        *generation = (*generation + 1) & UserData::GENERATION_MASK;
        (index, *generation)
    }

    /// A new lane takes its seat.
    fn occupy(&mut self, index: u32, lane: Lane) {
        debug!(peer = %lane.peer, "connected");
        let deadline = clock::now() + self.connect_timeout;
        self.newcomers.push_back((deadline, index, self.generations[index as usize]));
        self.seats[index as usize] = Some(Seat {
            lane,
            hot: false,
            answered: false,
            touched: false,
            polling_in: false,
            polling_out: false,
        });
    }

    /// Marks a lane worth a turn.
    fn heat(&mut self, index: u32) {
        if let Some(seat) =
            self.seats[index as usize].as_mut().filter(|seat| !seat.lane.session.is_ended())
            && !std::mem::replace(&mut seat.hot, true)
        {
            self.hot.push(index);
        }
    }

    /// Watches a lane's connection while it has no turn.
    fn arm(&mut self, index: u32) {
        let generation = self.generations[index as usize];
        let Some(seat) =
            self.seats[index as usize].as_mut().filter(|seat| !seat.lane.session.is_ended())
        else {
            return;
        };
        let Some(fd) = seat.lane.fd() else { return };
        let listens = !seat.hot && !seat.lane.is_stalled() && !seat.lane.is_deaf();
        let read = listens && !std::mem::replace(&mut seat.polling_in, true);
        let blocked = seat.lane.is_blocked();
        let write = blocked && !std::mem::replace(&mut seat.polling_out, true);
        if read {
            self.poll(fd, libc::POLLIN, mark(Kind::LaneIn, index, generation));
        }
        if write {
            self.poll(fd, libc::POLLOUT, mark(Kind::LaneOut, index, generation));
        }
    }

    /// Every lane that has something to do does it once.
    fn turn(&mut self) {
        let Some(mut rx) = self.rx.take() else { return };
        if self.listens() {
            self.check_keep_alive();
        }
        self.review_express();
        self.take_frames();
        self.look_after_frames();
        for index in std::mem::take(&mut self.timed) {
            self.expire(index);
        }
        self.send_answers();
        for index in std::mem::take(&mut self.hot) {
            let Some(seat) = self.seats[index as usize].as_mut() else { continue };
            seat.hot = false;
            seat.lane.hear_load(&mut self.shared);
            let heard = self.receive(index, &mut rx);
            self.end_turn(index);
            if heard.something {
                self.spinner.worked();
            }
            if heard.more {
                self.heat(index);
            } else {
                self.cooled.push(index);
            }
        }
        // After all that has come is heard: nobody is ended whose Connect is here.
        self.check_newcomers();
        self.check_transfers();
        self.feed_starved(&mut rx.own);
        self.check_pool();
        self.flush_ports();
        self.rx = Some(rx);
    }

    /// A lane receives. Beside latency-critical ones it pauses for their turns in between: they have a receive
    /// buffer to themselves, as its octets stay where they are.
    fn receive(&mut self, index: u32, rx: &mut RxBuffers) -> Heard {
        if !is_beside_express(&self.express, index) {
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

    /// Forgets express lanes that carry nothing latency-critical any more.
    fn review_express(&mut self) {
        let (seats, now) = (&mut self.seats, self.shared.now);
        self.express.retain(|&index| {
            seats[index as usize]
                .as_mut()
                .is_some_and(|s| !s.lane.session.is_ended() && s.lane.is_express(now))
        });
    }

    /// Latency-critical lanes have a turn in the middle of another's.
    fn serve_express(&mut self, rx: &mut RxBuffer) {
        for n in 0..self.express.len() {
            let index = self.express[n];
            self.use_lane(index, |lane, shared| lane.receive(shared, rx));
            self.end_turn(index);
        }
    }

    /// Lanes with answers that became due send them; those that receive this turn do so after that.
    fn send_answers(&mut self) {
        while let Some(index) = self.answered.pop() {
            let Some(seat) = self.seats[index as usize].as_mut() else { continue };
            seat.answered = false;
            if !seat.hot {
                self.end_turn(index);
                self.cooled.push(index);
            }
        }
    }

    /// Ends the turn of a lane that waits for a time; without a connection of its own, only when that has come.
    fn expire(&mut self, index: u32) {
        let now = self.shared.now;
        let waits = |seat: &mut Seat| {
            seat.lane.fd().is_none() && seat.lane.deadline().is_some_and(|deadline| deadline > now)
        };
        match self.seats[index as usize].as_mut().is_some_and(waits) {
            true => self.timed.push(index),
            false => self.end_turn(index),
        }
    }

    /// Lets a lane send, and notes what it waits for.
    fn end_turn(&mut self, index: u32) {
        if self.use_lane(index, Lane::end_turn).is_none() {
            return;
        }
        let Some(seat) = self.seats[index as usize].as_mut() else { return };
        seat.touched = false;
        if seat.lane.is_express(self.shared.now) && !self.express.contains(&index) {
            self.express.push(index);
        }
        if seat.lane.deadline().is_some() && !self.timed.contains(&index) {
            self.timed.push(index);
        }
        if seat.lane.is_starved() && !self.starved.contains(&index) {
            self.starved.push(index);
        }
    }

    /// Buffers may have come back: lanes that wait for one go on, in turn.
    fn feed_starved(&mut self, rx: &mut RxBuffer) {
        let given = self.shared.pool.given();
        for index in std::mem::take(&mut self.starved) {
            if self.use_lane(index, |lane, shared| lane.feed(shared, rx)) == Some(true) {
                self.heat(index);
            }
            self.end_turn(index);
            self.cooled.push(index);
        }
        self.has_fed = self.shared.pool.given() != given;
    }

    /// Calls into a lane; an error ends it.
    fn use_lane<T>(
        &mut self,
        index: u32,
        call: impl FnOnce(&mut Lane, &mut Shared) -> Result<T, LaneError>,
    ) -> Option<T> {
        let seat =
            self.seats[index as usize].as_mut().filter(|seat| !seat.lane.session.is_ended())?;
        match call(&mut seat.lane, &mut self.shared) {
            Ok(value) => Some(value),
            Err(error) => {
                log_end(&seat.lane, &error);
                // A TermReq that blames the host leaves before the connection does.
                let _ = seat.lane.end_turn(&mut self.shared);
                self.close(index);
                None
            }
        }
    }

    /// Ends a lane: its connection now, its seat when the backend is done with its commands.
    fn close(&mut self, index: u32) {
        let generation = self.generations[index as usize];
        let Some(seat) =
            self.seats[index as usize].as_mut().filter(|seat| !seat.lane.session.is_ended())
        else {
            return;
        };
        if let Some(presence) = seat.lane.session.end() {
            self.shared.control.drains(presence);
        }
        seat.hot = false;
        self.hot.retain(|&hot| hot != index);
        for (kind, armed) in [(Kind::LaneIn, seat.polling_in), (Kind::LaneOut, seat.polling_out)] {
            if armed {
                let target = mark(kind, index, generation);
                self.shared.ring.poll_remove(target, mark(Kind::Forget, 0, 0));
            }
        }
        self.past = self.past + seat.lane.stats();
        self.frames.forget(&seat.lane);
        seat.lane.close(&mut self.shared);
        self.vacate(index);
    }

    /// Frees a closed seat once no task of it is left; only then is its queue gone for the controller, so that
    /// a host which connects again never overtakes its own old commands.
    fn vacate(&mut self, index: u32) {
        let Some(seat) = self.seats[index as usize].take_if(|s| s.lane.session.is_gone()) else {
            return;
        };
        self.free.push(index);
        seat.lane.leave(&self.shared.control);
    }

    /// Ends lanes that their host has lost, before they execute more of what it sent over them.
    fn sweep(&mut self, hostnqn: &str) {
        for index in 0..self.seats.len() as u32 {
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
        for index in 0..self.seats.len() as u32 {
            if self.use_lane(index, Lane::connect_again) == Some(true) {
                self.end_turn(index);
                self.cooled.push(index);
            }
        }
    }

    fn handle_event(&mut self, event: &TargetEvent) {
        for index in 0..self.seats.len() as u32 {
            let Some(seat) =
                self.seats[index as usize].as_mut().filter(|seat| !seat.lane.session.is_ended())
            else {
                continue;
            };
            let Some(connected) = seat.lane.session.queue() else { continue };
            let queue = (connected.cntlid, connected.qid);
            match event {
                TargetEvent::Completion { cntlid, cid, status, result }
                    if queue == (*cntlid, 0) =>
                {
                    seat.lane.complete_event(self.shared.now, *cid, *status, *result);
                    self.end_turn(index);
                    self.cooled.push(index);
                }
                TargetEvent::Close { cntlid, qid, reason } if queue == (*cntlid, *qid) => {
                    info!(peer = %seat.lane.peer, ?reason, "queue closed");
                    seat.lane.session.forgotten(*reason == CloseReason::ControllerReset);
                    self.close(index);
                }
                TargetEvent::Abort { cntlid, qid, cid, id } if queue == (*cntlid, *qid) => {
                    seat.lane.abort(&mut self.shared, *cid, *id);
                    self.end_turn(index);
                    self.cooled.push(index);
                }
                TargetEvent::Quiesce { cntlid, qid } if queue == (*cntlid, *qid) => {
                    seat.lane.quiesce(&self.shared);
                }
                TargetEvent::NamespacesChanged { nqn } if connected.subnqn == *nqn => {
                    seat.lane.refresh(&self.shared.control);
                }
                _ => {}
            }
        }
    }

    /// Ends every lane and waits until no command is in a backend.
    fn drain(&mut self) -> io::Result<()> {
        self.listeners.clear();
        self.forget_ports();
        for index in 0..self.seats.len() as u32 {
            self.close(index);
        }
        self.finish_due(Instant(u64::MAX)); // nobody waits for an emulated SSD any more
        self.shared.dispatcher.hurry();
        let deadline = clock::now() + STOP_WAIT;
        while self.shared.dispatcher.count() > 0 && clock::now() < deadline {
            self.shared.ring.submit_and_wait(1, Some(STOP_WAIT))?;
            while let Some(cqe) = self.shared.ring.next_completion() {
                self.dispatch(cqe);
            }
            self.finish_due(Instant(u64::MAX));
        }
        Ok(())
    }
}

fn is_beside_express(express: &[u32], index: u32) -> bool {
    !express.is_empty() && !express.contains(&index)
}

fn mark(kind: Kind, index: u32, generation: u32) -> u64 {
    UserData { kind: kind as u8, index, generation }.pack()
}

fn log_end(lane: &Lane, error: &LaneError) {
    match error {
        LaneError::Closed | LaneError::Ended(_) => info!(peer = %lane.peer, "{error}"),
        _ => warn!(peer = %lane.peer, "{error}"),
    }
}
