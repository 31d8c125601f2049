//! A lane's place: which core processes its packets, and how it goes to another reactor.

use super::{Shared, TargetLane};
use crate::order::LanePlace;
use roadtrain_system::buffer::Buffer;
use roadtrain_system::platform::{packets_core, packets_napi_id};
use roadtrain_target_proto::flows::{self, Flow};
use roadtrain_target_proto::moves::Placement;

/// Looks that are kept between two reports.
const SEEN_MAX: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct LaneFlow {
    /// The cores that were seen since the last report.
    seen: Vec<usize>,
    /// The core that processes its packets, as far as is known.
    pub(crate) packets: Option<usize>,
    /// Receives when it was looked at last, and work when it was reported last.
    receives: u64,
    work: u64,
    /// How often it has moved.
    pub(crate) moves: u32,
    /// Relation to its reactor.
    pub(crate) placement: Placement,
}

impl TargetLane {
    /// Looks which core has processed its last packet, if some have come since the last look.
    pub(crate) fn look(&mut self) {
        let receives = self.transport.batching().receives;
        if receives == self.flow.receives || self.flow.seen.len() >= SEEN_MAX {
            return;
        }
        self.flow.receives = receives;
        let core = self.transport.tcp().and_then(|tcp| packets_core(tcp.stream()));
        self.flow.seen.extend(core);
    }

    /// What is to be told of it; `own` is the core of its reactor.
    pub(crate) fn report(&mut self, own: Option<usize>) -> Option<Flow> {
        let id = self.ticket.as_ref().filter(|_| !self.session.is_ended())?.number;
        let done = self.batching();
        let work = done.requests + done.data_bytes / 8192 + done.sends + done.receives;
        let is_movable = self.flow.placement.is_movable(&self.session);
        let flow = &mut self.flow;
        flow.packets = flows::packets_core(own, &flow.seen).or(flow.packets);
        flow.seen.clear();
        let done = work.wrapping_sub(std::mem::replace(&mut flow.work, work));
        Some(Flow { id, work: done, packets: flow.packets, is_movable })
    }

    /// Where it is, once it has a queue; `own` is the core of its reactor.
    pub(crate) fn place(&mut self, own: Option<usize>) -> Option<LanePlace> {
        let requests = self.batching().requests;
        let stream = self.transport.tcp().map(|tcp| tcp.stream());
        let last = stream.and_then(packets_core);
        let napi_id = stream.and_then(packets_napi_id);
        let (packets_core, moves) = (self.flow.packets.or(last), self.flow.moves);
        let connected = self.session.queue()?;
        let (cntlid, qid) = (connected.cntlid, connected.qid);
        Some(LanePlace { cntlid, qid, core: own, packets_core, napi_id, moves, requests })
    }

    /// Whether nothing of it is with this reactor's store or in its socket's way.
    pub(crate) fn can_leave(&self) -> bool {
        self.flow.placement.may_move_now(&self.session) && !self.is_blocked()
    }
}

/// A lane on its way from one reactor to another.
pub(crate) struct Parcel(TargetLane);

// SAFETY: what must not be used by two threads are the counts of its namespaces' references. All of these are in the
// lane itself, in its table and in its commands: no command of it is in a store, and nobody else keeps one. Places in a
// namespace's memory are valid as long as those references.
unsafe impl Send for Parcel {}

impl Parcel {
    /// Takes a lane that can leave. The buffers of its commands go back to the pool, their octets come along.
    pub(crate) fn pack(mut lane: TargetLane, shared: &mut Shared) -> Self {
        debug_assert!(lane.can_leave());
        lane.execution.replace_buffers(|buffer| {
            let mut own = Buffer::alloc(buffer.len());
            own.copy_from_slice(&buffer);
            shared.pool.give(buffer);
            own
        });
        lane.execution.leave_share();
        Parcel(lane)
    }

    /// Its lane, at the place `id` of another reactor. Buffers are of that one's pool, if there are some.
    pub(crate) fn unpack(self, id: (u32, u32), shared: &mut Shared) -> TargetLane {
        let Parcel(mut lane) = self;
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
