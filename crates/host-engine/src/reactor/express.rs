//! Express connections of a reactor's lanes: each is a lane of its own in the table, which the front does not see.
//! `host_proto::express` decides when there is one, and which requests take it.

use super::{HostReactor, HostReactorReport};
use crate::counters::ExpressReading;
use crate::lane::HostLane;
use crate::link::QpairLink;
use roadtrain_host_proto::express::ExpressAction;
use roadtrain_host_proto::namespace_identity::BarredNsids;
use roadtrain_host_proto::old_commands::LaneGuard;
use roadtrain_host_proto::retry::RetryRules;
use roadtrain_host_proto::write_verifier::PathWrites;
use roadtrain_reactor::LaneList;
use roadtrain_reactor::recorded::ConnectionInfo;
use roadtrain_wire::fabrics;
use tracing::debug;

/// Express connection that was opened for a lane.
pub(crate) struct ExpressLink {
    pub(crate) link: Box<QpairLink>,
    /// Number of the connection: its queue identifier minus one.
    pub(crate) number: usize,
    pub(crate) rules: RetryRules,
    pub(crate) barred: BarredNsids,
    pub(crate) writes: PathWrites,
    /// True if the controller supports Disconnect.
    pub(crate) may_close: bool,
    /// Old commands that writes wait for.
    pub(crate) guard: LaneGuard,
}

/// Number of an index without a lane.
const NO_LANE: usize = usize::MAX;

impl HostReactor {
    /// Handles the reply to a lane's request; `None`: refused.
    pub(super) fn express_replied(&mut self, lane: usize, express: Option<ExpressLink>) {
        let now = self.shared.now;
        let Some(home) = self.index_of(lane) else { return };
        let (path, _) = self.layout().split(lane);
        let Some(of) = self.lanes.get_mut(home) else { return };
        if !of.express.is_requested() {
            if let Some(ExpressLink { number, .. }) = express {
                self.report(lane, |lane| HostReactorReport::ExpressClosed { lane, number });
            }
            return;
        }
        let Some(ExpressLink { mut link, number, rules, barred, writes, may_close, guard }) =
            express
        else {
            return of.express.refused(now);
        };
        let (home_number, mut lane) = (lane, of.new_express_lane());
        of.express.opened(now, may_close);
        of.expresses_opened += 1;
        link.set_line(ConnectionInfo {
            qid: u16::try_from(number + 1).unwrap_or(u16::MAX),
            ..ConnectionInfo::default()
        });
        self.list_socket(home_number, &mut link);
        link.move_to(now, &self.shared.ports, self.lanes_of_path());
        lane.set_barred(barred);
        lane.requests.core.set_writes(writes);
        lane.attach(*link, (rules, guard), now);
        let (index, _) = self.lanes.reserve();
        self.lanes.put(index, lane);
        self.set_number(index, self.layout().of(path, number));
        if let Some(of) = self.lanes.get_mut(home) {
            of.express_at = Some(index);
        }
        self.lanes.add(LaneList::Ready, index);
        self.expresses += 1;
        self.write_express(home);
    }

    /// Returns the lane for a latency-critical request: the express connection, if it takes the request and has room.
    #[cold]
    pub(super) fn critical_lane(&mut self, home: u32) -> u32 {
        let now = self.shared.now;
        let critical = self.lanes.get_mut(home).and_then(|lane| lane.critical_lane(now));
        let has_room = |at: &u32| self.lanes.get(*at).is_some_and(|express| express.room() > 0);
        critical.filter(has_room).unwrap_or(home)
    }

    /// Carries out the next action of a lane's express policy.
    pub(super) fn review_express(&mut self, home: u32) {
        let now = self.shared.now;
        let carried = self.express_of(home).map_or(0, HostLane::outstanding);
        let Some(lane) = self.lanes.get_mut(home) else { return };
        if !lane.is_connected() {
            return; // its express connection is lost as well
        }
        match lane.express.poll(now, carried) {
            Some(ExpressAction::Open) => {
                self.report(self.numbers[home as usize], |lane| HostReactorReport::WantsExpress {
                    lane,
                });
            }
            Some(ExpressAction::Close) => self.begin_to_close(home),
            None if lane.express.is_closing() && self.has_closed(home) => self.express_closed(home),
            None => {}
        }
    }

    pub(super) fn express_of(&self, home: u32) -> Option<&HostLane> {
        self.lanes.get(self.lanes.get(home)?.express_at?)
    }

    fn begin_to_close(&mut self, home: u32) {
        let Some(index) = self.lanes.get(home).and_then(|lane| lane.express_at) else { return };
        let now = self.shared.now;
        let is_sent = self
            .lanes
            .get_mut(index)
            .is_some_and(|lane| lane.submit_bare(now, &fabrics::disconnect()));
        if !is_sent {
            self.express_closed(home);
        }
    }

    /// True if Disconnect has completed or timed out.
    fn has_closed(&self, home: u32) -> bool {
        self.express_of(home).is_none_or(|express| express.in_flight() == 0)
            || self.lanes.get(home).is_some_and(|lane| lane.express.has_timed_out(self.shared.now))
    }

    /// Handles the end of the idle express connection: Disconnect has completed, or the target has closed it.
    pub(super) fn express_closed(&mut self, home: u32) {
        let now = self.shared.now;
        let Some(index) = self.lanes.get_mut(home).and_then(|lane| lane.express_at) else { return };
        let (_, number) = self.layout().split(self.numbers[index as usize]);
        self.lanes.forget_polls(&mut self.ring, index);
        if let Some(lane) = self.lanes.get_mut(index) {
            lane.shut_down(&mut self.shared);
        }
        self.take_back(home);
        if let Some(lane) = self.lanes.get_mut(home) {
            lane.express.closed(now);
        }
        let lane = self.numbers[home as usize];
        debug!(lane, "express connection closed");
        self.report(lane, |lane| HostReactorReport::ExpressClosed { lane, number });
    }

    /// Sets the number over all paths of the lane at `index`.
    pub(super) fn set_number(&mut self, index: u32, number: usize) {
        self.numbers.resize(self.numbers.len().max(index as usize + 1), NO_LANE);
        self.numbers[index as usize] = number;
    }

    /// Returns the lane of this express connection, if it is one and is closing.
    pub(super) fn closes_express(&self, index: u32) -> Option<u32> {
        let home = self.home_of(index);
        let is_closing = self.lanes.get(home).is_some_and(|lane| lane.express.is_closing());
        (home != index && is_closing).then_some(home)
    }

    /// Returns the lane whose express connection has this index; else the index itself.
    pub(super) fn home_of(&self, index: u32) -> u32 {
        let is_home =
            |home: &u32| self.lanes.get(*home).is_some_and(|l| l.express_at == Some(index));
        self.lanes.indices().find(is_home).unwrap_or(index)
    }

    /// Returns the requests of the lost express connection to its lane.
    pub(super) fn lose_express(&mut self, home: u32) {
        self.take_back(home);
        let now = self.shared.now;
        if let Some(lane) = self.lanes.get_mut(home) {
            lane.express.lost(now);
        }
    }

    fn take_back(&mut self, home: u32) {
        let Some(index) = self.lanes.get_mut(home).and_then(|lane| lane.express_at.take()) else {
            return;
        };
        self.detach(index);
        let express = self.lanes.take_if(index, |_| true);
        self.numbers[index as usize] = NO_LANE;
        self.expresses -= 1;
        if let (Some(express), Some(lane)) = (express, self.lanes.get_mut(home)) {
            lane.absorb(express, &mut self.shared);
        }
        self.write_express(home);
    }

    /// Publishes the state of express connections.
    pub(super) fn write_expresses(&self) {
        if self.expresses > 0 {
            self.lanes.indices().for_each(|home| self.write_express(home));
        }
    }

    fn write_express(&self, home: u32) {
        let Some(counters) = self.counters.get(self.numbers[home as usize]) else { return };
        let Some(lane) = self.lanes.get(home) else { return };
        let express = self.express_of(home);
        let done = express.map(HostLane::batching).unwrap_or_default();
        counters.write_express(&ExpressReading {
            is_open: express.is_some(),
            opened: lane.expresses_opened,
            requests: done.requests,
            data_bytes: done.data_bytes,
            in_flight: express.map_or(0, HostLane::outstanding),
        });
    }
}
