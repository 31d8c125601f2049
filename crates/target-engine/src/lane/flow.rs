//! Placement of a lane: the core that processes its packets, and moves to other reactors.

use super::{LaneResources, TargetLane};
use crate::order::LanePlace;
use roadtrain_system::buffer::Buffer;
use roadtrain_system::platform::{mptcp, packets_core, packets_napi_id};
use roadtrain_target_proto::flows::{self, ConnectionFlow};
use roadtrain_target_proto::moves::LanePlacement;

/// Most samples kept between two reports.
const SEEN_MAX: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct LaneFlow {
    /// Cores sampled since the last report.
    seen: Vec<usize>,
    /// Core that processes the lane's packets, as far as known.
    pub(crate) packets: Option<usize>,
    /// Number of receives at the last sample, and work at the last report.
    receives: u64,
    work: u64,
    /// Number of moves to another reactor.
    pub(crate) moves: u32,
    /// Placement state of the lane.
    pub(crate) placement: LanePlacement,
}

impl TargetLane {
    /// Samples the core of the last packet, if the lane has received since the last sample.
    pub(crate) fn sample_core(&mut self) {
        let receives = self.transport.batching().receives;
        if receives == self.flow.receives || self.flow.seen.len() >= SEEN_MAX {
            return;
        }
        self.flow.receives = receives;
        let core = self.transport.tcp().and_then(|tcp| packets_core(tcp.stream()));
        self.flow.seen.extend(core);
    }

    /// Returns the report for the placement; `own` is the core of the reactor.
    pub(crate) fn report(&mut self, own: Option<usize>) -> Option<ConnectionFlow> {
        let id = self.ticket.as_ref().filter(|_| !self.session.is_ended())?.number;
        let done = self.batching();
        let work = done.requests + done.data_bytes / 8192 + done.sends + done.receives;
        let is_movable = self.flow.placement.is_movable(&self.session);
        let flow = &mut self.flow;
        flow.packets = flows::packets_core(own, &flow.seen).or(flow.packets);
        flow.seen.clear();
        let done = work.wrapping_sub(std::mem::replace(&mut flow.work, work));
        Some(ConnectionFlow { id, work: done, packets: flow.packets, is_movable })
    }

    /// Returns the lane's place once it has a queue; `own` is the core of the reactor.
    pub(crate) fn place(&mut self, own: Option<usize>) -> Option<LanePlace> {
        let requests = self.batching().requests;
        let stream = self.transport.tcp().map(|tcp| tcp.stream());
        let last = stream.and_then(packets_core);
        let napi_id = stream.and_then(packets_napi_id);
        let subflows = stream.map(mptcp::subflows).unwrap_or_default();
        let (packets_core, moves) = (self.flow.packets.or(last), self.flow.moves);
        let connected = self.session.queue()?;
        let (cntlid, qid) = (connected.cntlid, connected.qid);
        let core = own;
        Some(LanePlace { cntlid, qid, core, packets_core, napi_id, moves, requests, subflows })
    }

    /// True if no command is in this reactor's store and the socket is not blocked.
    pub(crate) fn can_leave(&self) -> bool {
        self.flow.placement.may_move_now(&self.session) && !self.is_blocked()
    }
}

/// A lane in transit from one reactor to another.
pub(crate) struct LaneInTransit(TargetLane);

// SAFETY: the reference counts of its namespaces are the only part that two threads must not share. All references are
// in the lane itself, in its table and in its commands: no command is in a store, and no other code keeps one. Places
// in the memory of a namespace are valid as long as these references.
unsafe impl Send for LaneInTransit {}

impl LaneInTransit {
    /// Packs a lane that can leave. Copies the data of its commands, and returns their buffers to the pool.
    pub(crate) fn pack(mut lane: TargetLane, shared: &mut LaneResources) -> Self {
        debug_assert!(lane.can_leave());
        lane.execution.replace_buffers(|buffer| {
            let mut own = Buffer::alloc(buffer.len());
            own.copy_from_slice(&buffer);
            shared.pool.give(buffer);
            own
        });
        lane.execution.leave_share();
        LaneInTransit(lane)
    }

    /// Unpacks the lane at index `id` of another reactor. Uses buffers from that reactor's pool if available.
    pub(crate) fn unpack(self, id: (u32, u32), shared: &mut LaneResources) -> TargetLane {
        let LaneInTransit(mut lane) = self;
        lane.id = id;
        lane.execution.replace_buffers(|buffer| match shared.pool.take(buffer.len()) {
            None => buffer,
            Some(mut own) => {
                own.copy_from_slice(&buffer);
                own
            }
        });
        lane.join_share(shared);
        lane.flow.placement.arrive();
        lane.flow.moves += 1;
        lane.refresh(&shared.control);
        lane.meter.moved(&shared.meters, shared.number);
        lane
    }
}
