//! State of a reactor's ports: their polls and their interfaces.

use crate::ether::ports::PortState;
use crate::lane::TargetLane;
use crate::reactor::frames::PortFrames;
use crate::reactor::lanes::TargetLanes;
use roadtrain_ether_port::carrier::CarrierWatch;
use roadtrain_ether_port::port::Port;
use roadtrain_proto::time::Instant;
use roadtrain_reactor::event::{self, mark};
use roadtrain_system::ring::UserData;
use std::mem;
use std::time::Duration;

/// Interval between two checks of what changes without a frame: carriers, silence, idle memory.
const POLL: Duration = Duration::from_millis(200);

/// Poll of a port's descriptor.
#[derive(Clone, Copy, Default)]
struct PortPoll {
    is_pending: bool,
    /// Generation of the descriptor: the port may have another one since.
    generation: u32,
}

/// State of the ports.
pub(super) struct PortWatch {
    /// Polls by port, ports of lanes first.
    polls: Vec<PortPoll>,
    /// State of each lane port at the last check.
    pub(super) states: Vec<PortState>,
    /// Reports changes of interfaces. Without it, the ports are checked at intervals.
    watch: Option<CarrierWatch>,
    watch_poll: bool,
    /// True if an interface is missing.
    has_absent: bool,
    check_at: Instant,
}

impl PortWatch {
    pub(super) fn new(lane_ports: &[Port], listening: usize) -> Self {
        let has_ports = !lane_ports.is_empty();
        PortWatch {
            polls: vec![PortPoll::default(); lane_ports.len() + listening],
            states: lane_ports.iter().map(PortState::from_port).collect(),
            watch: has_ports.then(CarrierWatch::open).and_then(Result::ok),
            watch_poll: false,
            has_absent: lane_ports.iter().any(Port::is_absent),
            check_at: Instant::default(),
        }
    }

    /// Returns the time of the next check of ports and lanes, if any is needed.
    pub(super) fn check_at(&self, is_idle: bool) -> Option<Instant> {
        let is_quiet = is_idle && !self.has_absent && self.watch.is_some();
        (!self.states.is_empty() && !is_quiet).then_some(self.check_at)
    }
}

impl PortFrames {
    /// Polls the ports, before the reactor sleeps.
    pub(in crate::reactor) fn poll_ports(&mut self, lanes: &mut TargetLanes) {
        let (watched, ring) = (&mut self.watched, &mut lanes.shared.ring);
        let ports = lanes.shared.ports.iter().chain(&self.listening);
        for ((index, port), poll) in (0..).zip(ports).zip(&mut watched.polls) {
            if !mem::replace(&mut poll.is_pending, true) {
                let user_data = mark(event::PORT, index, poll.generation);
                ring.poll_add(port.fd(), libc::POLLIN, user_data);
            }
        }
        if let Some(watch) = &watched.watch
            && !mem::replace(&mut watched.watch_poll, true)
        {
            ring.poll_add(watch.fd(), libc::POLLIN, mark(event::INTERFACES, 0, 0));
        }
    }

    /// Handles a port that is readable or whose interface has gone down.
    pub(in crate::reactor) fn port_polled(
        &mut self,
        lanes: &mut TargetLanes,
        data: &UserData,
        result: i32,
    ) {
        let index = data.index as usize;
        let polls = self.watched.polls.get_mut(index);
        let Some(poll) = polls.filter(|poll| poll.generation == data.generation) else { return };
        poll.is_pending = false;
        self.has_more = true;
        let lane_ports = lanes.shared.ports.len();
        let port = match index.checked_sub(lane_ports) {
            Some(index) => self.listening.get_mut(index),
            None => lanes.shared.ports.get_mut(index),
        };
        let failed = result < 0 || result & i32::from(libc::POLLERR) != 0;
        if let Some(error) = port.filter(|_| failed).and_then(Port::take_error) {
            tracing::debug!("port: {error}");
        }
    }

    /// Handles a change of interfaces, perhaps of others.
    pub(in crate::reactor) fn interfaces_changed(&mut self, lanes: &mut TargetLanes) {
        let watched = &mut self.watched;
        watched.watch_poll = false;
        watched.watch.iter().for_each(CarrierWatch::clear);
        if self.check_ports(lanes) {
            self.notify_lanes(lanes);
        }
    }

    /// Checks the state of the interfaces. Returns true if it has changed.
    pub(super) fn check_ports(&mut self, lanes: &mut TargetLanes) -> bool {
        let watched = &mut self.watched;
        watched.check_at = lanes.shared.now + POLL;
        let ports = lanes.shared.ports.iter_mut().chain(&mut self.listening);
        for ((index, port), poll) in (0..).zip(ports).zip(&mut watched.polls) {
            if port.follow() {
                if port.socket_number() == 0 {
                    port.report(); // once, not once for each reactor
                }
                let old = mark(event::PORT, index, poll.generation);
                if mem::take(&mut poll.is_pending) {
                    event::forget(&mut lanes.shared.ring, old);
                }
                poll.generation = (poll.generation + 1) & UserData::GENERATION_MASK;
            }
        }
        let mut ports = lanes.shared.ports.iter().chain(&self.listening);
        watched.has_absent = ports.any(Port::is_absent);
        if !self.listening.is_empty() {
            lanes.shared.control.update_frame_listeners(&self.listening);
        }
        let states: Vec<PortState> = lanes.shared.ports.iter().map(PortState::from_port).collect();
        mem::replace(&mut watched.states, states) != watched.states
    }

    /// Passes the states of the ports to the links of lanes.
    pub(super) fn notify_lanes(&self, lanes: &mut TargetLanes) {
        let now = lanes.shared.now;
        for index in lanes.table.indices() {
            if let Some(ether) = lanes.table.get_mut(index).and_then(TargetLane::ether_mut) {
                ether.set_states(now, &self.watched.states);
                lanes.end_turn(index);
            }
        }
    }

    /// Drops the listening ports.
    pub(in crate::reactor) fn forget_ports(&mut self) {
        self.listening.clear();
        self.listener = None;
    }
}
