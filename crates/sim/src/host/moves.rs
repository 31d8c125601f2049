//! Exchange of requests and events between paths of the simulated host.

use super::lane::SimHostLane;
use super::{SimHost, rules};
use crate::load::SimLoad;
use crate::request::LoadRequest;
use crate::transport::{SimHostEnd, SimTransport};
use roadtrain_host_proto::association::{AssociationConfig, HostAssociation, SiblingConstraints};
use roadtrain_host_proto::express::RequestTraffic;
use roadtrain_host_proto::old_commands::OldCommands;
use roadtrain_host_proto::paths::{PathLinkState, PathOffer};
use roadtrain_host_proto::requests::{MovedRequest, RequestQueue};
use roadtrain_proto::time::Instant;
use roadtrain_wire::cross_reset::ControllerInstance;

/// Events of a path for the host's other paths.
#[derive(Debug, Default)]
pub(super) struct News {
    /// Controllers that this path has lost.
    pub(super) lost: Vec<ControllerInstance>,
    /// Controllers of other paths that have ended, as the target reports.
    pub(super) ended: Vec<(usize, ControllerInstance)>,
    /// True if this path is connected again.
    pub(super) is_back: bool,
}

/// Passes the events of each path to the other paths of a host.
pub(crate) fn exchange<T: SimTransport>(
    now: Instant,
    paths: &mut [SimHost<T>],
    network: &mut T,
    load: &mut SimLoad,
) {
    let mut has_news = false;
    for from in 0..paths.len() {
        let News { lost, ended, is_back } = std::mem::take(&mut paths[from].news);
        has_news |= !lost.is_empty() || !ended.is_empty();
        for (path, other) in paths.iter_mut().enumerate().filter(|(path, _)| *path != from) {
            if is_back {
                other.association.withdraw(from);
            }
            lost.iter().for_each(|lost| other.association.end_for(now, from, *lost));
            let own = ended.iter().filter(|(owner, _)| *owner == path);
            own.for_each(|(_, lost)| other.association.fenced(*lost));
        }
    }
    if has_news {
        for path in paths.iter_mut().filter(|path| !path.waits_for_first) {
            path.act(now, network, load);
            path.links().for_each(|link| link.end_turn(now, network));
        }
    }
}

/// Returns the offer of one connection of a lane.
fn offer_of<L: SimHostEnd>(
    now: Instant,
    lane: &SimHostLane<L>,
    request: &LoadRequest,
) -> PathOffer {
    let meter = lane.requests.meter().expect("there are other paths");
    PathOffer {
        room: 1,
        in_flight: lane.link.as_ref().map_or(0, RequestQueue::in_flight),
        expected: meter.expected(now, request.traffic()),
        wants_probe: meter.wants_probe(now, request.traffic()),
        is_last: false,
    }
}

impl<T: SimTransport> SimHost<T> {
    /// Ends the hold: requests of lost connections may be tried again.
    pub(super) fn end_hold(&mut self, now: Instant) {
        if let Some(since) = self.held_since.take() {
            self.past.longest_hold = self.past.longest_hold.max(now.since(since));
        }
    }

    /// Returns the namespaces and writes for further paths of the host, once this one has been connected.
    pub(crate) fn of_first(&self) -> Option<(SiblingConstraints, OldCommands)> {
        let info = self.association.info()?;
        let transfer_bytes = info.transfer_bytes_max;
        let (pinned, writes) = (self.pinned.clone(), self.writes.clone());
        let beside = SiblingConstraints {
            namespaces: info.namespaces.clone(),
            pinned,
            writes,
            transfer_bytes,
        };
        Some((beside, self.old.clone()))
    }

    /// Lets a further path begin to connect, with the first path's state, if it has not begun yet.
    pub(crate) fn begin(&mut self, now: Instant, (first, old): (SiblingConstraints, OldCommands)) {
        if std::mem::take(&mut self.waits_for_first) {
            (self.pinned, self.writes) = (first.pinned.clone(), first.writes.clone());
            self.old = old;
            let rules = rules(&self.plan, self.hostid, &self.pinned, (&self.old, &self.writes));
            self.association =
                HostAssociation::new(now, AssociationConfig { siblings: Some(first), ..rules });
            self.lanes.iter_mut().for_each(|lane| lane.next_at = now);
        }
    }

    /// Repeats requests to other paths that have begun to connect by now: to end controllers that this one has lost, or
    /// inherited.
    pub(crate) fn remind(&mut self, now: Instant, network: &mut T, load: &mut SimLoad) {
        self.association.repeat_sibling_resets();
        self.act(now, network, load);
    }

    /// True if it has not begun to connect.
    pub(crate) fn waits_for_first(&self) -> bool {
        self.waits_for_first
    }

    /// Returns the state of a lane's path.
    pub(crate) fn path_state(&self, lane: usize) -> PathLinkState {
        match &self.lanes[lane].link {
            Some(_) => PathLinkState::Live,
            None if self.is_lost => PathLinkState::Lost,
            None => PathLinkState::Connecting,
        }
    }

    /// Returns the offer of a lane for one more request.
    pub(crate) fn offer(&self, now: Instant, lane: usize, request: &LoadRequest) -> PathOffer {
        let own = offer_of(now, &self.lanes[lane], request);
        let express =
            self.express_of(lane).filter(|_| request.traffic() == RequestTraffic::Critical);
        let Some(express) = express.map(|express| offer_of(now, express, request)) else {
            return own;
        };
        // As in the engine, latency-critical requests use the express connection.
        PathOffer {
            in_flight: own.in_flight + express.in_flight,
            expected: own.expected.min(express.expected),
            wants_probe: own.wants_probe && express.wants_probe,
            ..own
        }
    }

    /// Takes requests of an unconnected lane that may move to another path; with `early` also those that may not.
    pub(crate) fn take_free(&mut self, lane: usize, early: bool) -> Vec<MovedRequest<LoadRequest>> {
        let lane = &mut self.lanes[lane];
        if lane.link.is_some() {
            return Vec::new();
        }
        if early {
            lane.requests.release();
        }
        lane.requests.take_free()
    }

    /// Takes requests of a lane, and of its express connection, that its path has refused.
    pub(crate) fn take_diverted(&mut self, lane: usize) -> Vec<MovedRequest<LoadRequest>> {
        let mut diverted = self.lanes[lane].requests.take_diverted();
        if let Some(express) = self.express_of_mut(lane) {
            diverted.append(&mut express.requests.take_diverted());
        }
        diverted
    }

    /// Puts a request back.
    pub(crate) fn keep(&mut self, lane: usize, moved: MovedRequest<LoadRequest>) {
        self.lanes[lane].requests.keep(moved);
    }

    /// Takes a request from another path.
    pub(crate) fn adopt(&mut self, lane: usize, moved: MovedRequest<LoadRequest>) {
        self.past.moved += 1;
        self.lanes[lane].requests.adopt(moved);
    }

    /// Submits requests that have moved here.
    ///
    /// # Errors
    /// A violation of the checked rules.
    pub(crate) fn resume_requests(
        &mut self,
        now: Instant,
        network: &mut T,
        load: &mut SimLoad,
    ) -> Result<(), String> {
        self.lanes.iter_mut().for_each(|lane| lane.resume(now, network));
        self.complete_failed(load)
    }
}
