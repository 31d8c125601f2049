//! Ports that the lanes of a reactor share: receiving, polling, links.

mod gathering;

use super::HostReactor;
use crate::api::Front;
use crate::ether::{FoundPath, Ports};
use crate::lane::HostLane;
use crate::link::LaneShared;
use gathering::Gathering;
use roadtrain_proto::time::Instant;
use roadtrain_reactor::event::{self, mark};
use roadtrain_system::clock;
use roadtrain_system::ring::UserData;
use std::time::Duration;

/// Frames handled before the front submits more and frames are sent.
const FRAMES_PER_ROUND: usize = 64;
/// Number of distinct serial numbers of a port's descriptors.
const GENERATIONS: u32 = UserData::GENERATION_MASK;
/// Rounds for one port before other ports have their turn.
const FRAME_ROUNDS: usize = 4;
/// Interval of publishing the state of links.
const PATHS_EVERY: Duration = Duration::from_millis(50);

/// State of the ports that a reactor's lanes share.
pub(super) struct HostPorts {
    /// Descriptor that the ring polls, by port.
    polling: Vec<Option<u32>>,
    /// True if frames came in the last turn: there may be more.
    pub(super) came: bool,
    gathering: Gathering,
    /// Time at which the state of links was last published.
    paths_at: Instant,
}

impl HostPorts {
    pub(super) fn new(ports: &Ports) -> Self {
        HostPorts {
            polling: vec![None; ports.len()],
            came: false,
            gathering: Gathering::default(),
            paths_at: Instant::default(),
        }
    }
}

impl HostReactor {
    /// Polls every port before the reactor blocks.
    pub(super) fn poll_ports(&mut self) {
        for port in 0..self.frames.polling.len() {
            let (index, generation) = (port as u32, self.shared.ports.serial(port) & GENERATIONS);
            let before = self.frames.polling[port].replace(generation);
            if let Some(old) = before.filter(|old| *old != generation) {
                event::forget(&mut self.ring, mark(event::PORT, index, old));
            }
            if before != Some(generation) {
                let mark = mark(event::PORT, index, generation);
                self.ring.poll_add(self.shared.ports.fd(port), libc::POLLIN, mark);
            }
        }
    }

    pub(super) fn port_polled(&mut self, data: &UserData, result: i32) {
        let Some(polling) = self.frames.polling.get_mut(data.index as usize) else { return };
        if *polling != Some(data.generation) {
            return; // the poll belongs to an earlier descriptor of the port
        }
        *polling = None;
        if result & i32::from(libc::POLLERR) != 0 {
            self.shared.ports.port(data.index as usize).take_error();
        }
    }

    /// Polls for changes of the interfaces, if there are ports.
    pub(super) fn poll_carrier(&mut self) {
        if let Some(fd) = self.shared.ports.watch_fd() {
            self.ring.poll_add(fd, libc::POLLIN, mark(event::INTERFACES, 0, 0));
        }
    }

    pub(super) fn check_carriers(&mut self) {
        self.shared.now = clock::now();
        if self.shared.ports.check_carriers() {
            self.lanes.iter_mut().for_each(|lane| lane.check_carriers(&self.shared));
        }
    }

    /// Handles received frames, and lets the front act in between.
    pub(super) fn receive_frames(&mut self, front: &mut dyn Front) {
        self.frames.came = false;
        for port in 0..self.shared.ports.len() {
            for _ in 0..FRAME_ROUNDS {
                let got = self.receive_from(port);
                if got == 0 {
                    break;
                }
                self.frames.came = true;
                self.core.waits.worked();
                self.frames.gathering.frames_received();
                self.run_front(front);
                self.shared.ports.flush();
                if got < FRAMES_PER_ROUND {
                    break;
                }
                self.shared.now = clock::now();
            }
        }
    }

    /// True if lanes delay their frames for one more turn, which then follows at once.
    pub(super) fn holds_back(&mut self) -> bool {
        let holds = self.lanes.iter_mut().any(HostLane::gathers)
            && self.frames.gathering.goes_on(self.shared.now);
        if holds {
            self.frames.came = true;
        } else {
            self.frames.gathering.ends();
        }
        holds
    }

    /// Receives from a port. Built frames are flushed before, so none refers to buffers that are returned now.
    fn receive_from(&mut self, port: usize) -> usize {
        let LaneShared { ports, completions, now, in_flight, recorder, .. } = &mut self.shared;
        let (lanes, paths, now) = (&mut self.lanes, &self.paths, *now);
        // Lanes are assigned to reactors in turn.
        let first = self.numbers.first().copied().unwrap_or_default();
        let second = self.numbers.get(1).filter(|_| paths.lanes() > 1);
        let stride = second.map_or(1, |second| second - first);
        ports.receive(port, FRAMES_PER_ROUND, |received| {
            let number = usize::from(received.header.token.get() as u16);
            let home = number.wrapping_sub(first) / stride;
            // The whole token selects the path.
            for index in paths.places(home) {
                if let Some(lane) = lanes.get_mut(index) {
                    lane.deliver(now, received, (completions, in_flight), recorder);
                }
            }
        })
    }

    /// Adds a path to this target as a link of the lane, if it needs one.
    pub(super) fn offer(&mut self, index: u32, found: &FoundPath) {
        if let Some(lane) = self.lanes.get_mut(index) {
            lane.offer(self.shared.now, found);
        }
    }

    /// Publishes the state of links, if it is time.
    pub(super) fn write_paths(&mut self) {
        let now = self.shared.now;
        if self.shared.ports.len() == 0 || now.since(self.frames.paths_at) < PATHS_EVERY {
            return;
        }
        self.frames.paths_at = now;
        if self.shared.ports.has_absent() {
            self.check_carriers(); // the kernel may still have been removing one
        }
        for (index, &number) in self.lanes.indices().zip(&self.numbers) {
            let Some(lane) = self.lanes.get(index) else { continue };
            if let Some(counters) = self.counters.get(number) {
                lane.write_paths(&self.shared.ports, counters);
            }
        }
    }
}
