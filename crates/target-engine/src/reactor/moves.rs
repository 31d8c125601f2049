//! Moves of lanes to other reactors: reports to [`Flows`], which decides, and the steps of a move
//! ([`roadtrain_target_proto::moves`]).

use super::Peers;
use super::lanes::TargetLanes;
use crate::lane::{LaneInTransit, TargetLane};
use crate::order::TargetReactorMessage;
use roadtrain_proto::time::Instant;
use roadtrain_reactor::tuning;
use roadtrain_system::platform::CoreLoads;
use roadtrain_target_proto::TargetEvent;
use roadtrain_target_proto::flows::{Flows, Move, REPORT_EVERY, WHOLE};
use roadtrain_target_proto::moves::Departures;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tracing::debug;

/// Interval of samples of the cores that process the lanes' packets.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(20);
/// Most lanes sampled at once.
const SAMPLES_MAX: usize = 64;
/// Longest time for which a lane receives nothing because it shall move.
const LEAVE_WAIT: Duration = Duration::from_millis(100);

/// Shared state of all reactors for placement. The lock is taken for new connections, and a few times a second by busy
/// reactors.
pub(crate) struct Balance {
    flows: Flows,
    cores: Vec<Option<usize>>,
    loads: CoreLoads,
    /// Load of the cores, by reactor.
    busy: Vec<u32>,
    /// Part of that load that is only polling.
    spun: Vec<u32>,
    read_at: Instant,
    /// True if reactors never sleep, so that the load of a core has no meaning.
    is_polled: bool,
}

impl Balance {
    pub(crate) fn new(cores: Vec<Option<usize>>, is_polled: bool) -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Balance {
            flows: Flows::new(cores.clone()),
            loads: CoreLoads::default(),
            busy: vec![0; cores.len()],
            spun: vec![0; cores.len()],
            read_at: Instant::default(),
            cores,
            is_polled,
        }))
    }

    /// Returns the reactor for a new connection.
    pub(super) fn choose(&mut self, packets: Option<usize>) -> usize {
        self.flows.choose(packets)
    }

    /// Returns the core that a reactor is pinned to.
    pub(super) fn core(&self, reactor: usize) -> Option<usize> {
        self.cores[reactor]
    }

    fn read_loads(&mut self, now: Instant) {
        if now >= self.read_at && !self.is_polled {
            self.read_at = now + REPORT_EVERY;
            self.loads.read();
            for ((busy, core), spun) in self.busy.iter_mut().zip(&self.cores).zip(&self.spun) {
                *busy = core.map_or(0, |core| self.loads.busy(core).saturating_sub(*spun));
            }
        }
    }
}

/// Lane that shall leave.
struct LeavingLane {
    place: (u32, u32),
    to: usize,
    until: Instant,
}

/// Pending moves of a reactor.
#[derive(Default)]
pub(super) struct Moves {
    sample_at: Instant,
    report_at: Instant,
    reported: Instant,
    cpu_ns: u64,
    spun: Duration,
    /// Index of the last sampled lane.
    next: u32,
    leaving: Vec<LeavingLane>,
    departures: Departures,
}

impl Peers {
    pub(super) fn balance(&self) -> MutexGuard<'_, Balance> {
        self.balance.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Moves {
    /// Returns the time at which the first lane that could not leave stays.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.leaving.iter().map(|leaving| leaving.until).min()
    }

    /// Samples, reports and moves lanes. Called once a turn; `spun` is the total time that the reactor has spent
    /// polling.
    pub(super) fn check(&mut self, lanes: &mut TargetLanes, peers: &Peers, spun: Duration) {
        if peers.all.len() < 2 {
            return;
        }
        if !self.leaving.is_empty() {
            self.continue_moves(lanes, peers);
        }
        let now = lanes.shared.now;
        if now >= self.sample_at {
            self.sample_at = now + SAMPLE_INTERVAL;
            self.sample_cores(lanes);
        }
        if now >= self.report_at {
            self.report_at = now + REPORT_EVERY;
            self.report(lanes, peers, spun);
        }
    }

    fn sample_cores(&mut self, lanes: &mut TargetLanes) {
        let places = lanes.table.indices().end;
        for _ in 0..SAMPLES_MAX.min(places as usize) {
            self.next = (self.next + 1) % places;
            lanes.table.get_mut(self.next).into_iter().for_each(TargetLane::sample_core);
        }
    }

    fn report(&mut self, lanes: &mut TargetLanes, peers: &Peers, spun: Duration) {
        let now = lanes.shared.now;
        let cpu_ns = tuning::thread_cpu_ns();
        let time = now.since(self.reported).as_nanos().max(1) as u64;
        let part = |ns: u64| (ns.saturating_mul(WHOLE.into()) / time).min(WHOLE.into()) as u32;
        let spun_ns = spun.saturating_sub(self.spun).as_nanos() as u64;
        let own = part((cpu_ns - self.cpu_ns).saturating_sub(spun_ns));
        (self.reported, self.cpu_ns, self.spun) = (now, cpu_ns, spun);
        let mut balance = peers.balance();
        balance.spun[peers.number] = part(spun_ns);
        balance.read_loads(now);
        let core = balance.core(peers.number);
        let own = if balance.is_polled { 0 } else { own };
        let flows: Vec<_> = lanes.table.iter_mut().filter_map(|lane| lane.report(core)).collect();
        let Balance { flows: decides, busy, .. } = &mut *balance;
        let moves = decides.report(now, peers.number, (own, busy), &flows);
        drop(balance);
        for Move { id, to } in moves {
            self.begin(lanes, id, to);
        }
    }

    /// Moves all lanes, for a test.
    #[cfg(test)]
    pub(super) fn move_all(&mut self, lanes: &mut TargetLanes, peers: &Peers, to: usize) {
        let core = peers.balance().core(peers.number);
        let flows: Vec<_> = lanes.table.iter_mut().filter_map(|lane| lane.report(core)).collect();
        for flow in flows.iter().filter(|flow| flow.is_movable && to != peers.number) {
            self.begin(lanes, flow.id, to);
        }
        self.continue_moves(lanes, peers);
    }

    /// Begins a move: the lane receives nothing more.
    fn begin(&mut self, lanes: &mut TargetLanes, ticket: u64, to: usize) {
        let Some(index) = lanes.index_of(ticket) else { return };
        if let Some(lane) =
            lanes.table.get_mut(index).filter(|lane| !lane.flow.placement.is_leaving)
        {
            lane.flow.placement.is_leaving = true;
            let place = (index, lanes.table.generation(index));
            let until = lanes.shared.now + LEAVE_WAIT;
            self.leaving.push(LeavingLane { place, to, until });
        }
    }

    /// Moves the lanes that can leave. Keeps those whose time is over.
    fn continue_moves(&mut self, lanes: &mut TargetLanes, peers: &Peers) {
        let now = lanes.shared.now;
        for leaving in std::mem::take(&mut self.leaving) {
            let (index, generation) = leaving.place;
            let is_here = lanes.table.generation(index) == generation;
            let Some(lane) = lanes.table.get_mut(index).filter(|_| is_here) else { continue };
            if lane.session.is_ended() {
                continue;
            }
            if lane.can_leave() {
                hand_over(lanes, peers, index, (leaving.to, &mut self.departures));
            } else if now < leaving.until {
                self.leaving.push(leaving);
            } else {
                lane.flow.placement.is_leaving = false;
                let ticket = lane.ticket.as_ref().map(|ticket| ticket.number);
                ticket.into_iter().for_each(|ticket| peers.balance().flows.stayed(ticket));
                lanes.set_ready(index);
            }
        }
    }

    /// Forwards an event to lanes that have left before it arrived.
    pub(super) fn pass_on(&self, peers: &Peers, event: &TargetEvent) {
        for (to, ticket) in self.departures.followed_by(event) {
            peers.all[to].send(TargetReactorMessage::Passed(ticket, event.clone()));
        }
    }

    /// Settles a departed lane: all earlier events have been taken from the inbox.
    pub(super) fn departed(&mut self, peers: &Peers, ticket: u64) {
        if let Some(to) = self.departures.settle(ticket) {
            peers.all[to].send(TargetReactorMessage::Settle(ticket));
        }
    }
}

/// Sends a lane to another reactor.
fn hand_over(
    lanes: &mut TargetLanes,
    peers: &Peers,
    index: u32,
    (to, departures): (usize, &mut Departures),
) -> Option<()> {
    let lane = lanes.table.get_mut(index)?;
    let ticket = lane.ticket.as_ref()?.number;
    if !departures.leave(ticket, &lane.session, to) {
        return None;
    }
    lanes.table.forget_polls(&mut lanes.shared.ring, index);
    let lane = lanes.table.take_if(index, |_| true)?;
    debug!(peer = %lane.peer, from = peers.number, to, "moves to another reactor");
    let lane_in_transit = LaneInTransit::pack(lane, &mut lanes.shared);
    let control = lanes.shared.control.clone();
    control.send_in_order(|| {
        peers.all[to].send(TargetReactorMessage::Arrive(Box::new(lane_in_transit)));
        peers.all[peers.number].send(TargetReactorMessage::Departed(ticket));
    });
    Some(())
}
