//! The reactor as the rules for all its lanes see it.

use super::lanes::TargetLanes;
use crate::lane::{BorrowedLane, LaneError};
use roadtrain_proto::time::Instant;
use roadtrain_reactor::LaneList;
use roadtrain_system::buffer::Buffer;
use roadtrain_target_proto::TurnOf;
use roadtrain_target_proto::service::{LaneClosing, ReactorRules, ServicedReactor};
use tracing::info;

impl ServicedReactor for TargetLanes {
    type Id = (u32, u32);
    type Buffer = Buffer;
    type Lane<'a> = BorrowedLane<'a>;

    fn now(&self) -> Instant {
        self.shared.now
    }

    fn rules(&mut self) -> &mut ReactorRules<(u32, u32)> {
        &mut self.rules
    }

    fn for_each(&mut self, mut call: impl FnMut(&mut Self, (u32, u32))) {
        for index in self.table.indices() {
            if self.table.get(index).is_some() {
                call(self, (index, self.table.generation(index)));
            }
        }
    }

    fn lend(&mut self, (index, generation): (u32, u32)) -> Option<BorrowedLane<'_>> {
        let is_current = self.table.generation(index) == generation;
        let lane = self.table.get_mut(index).filter(|_| is_current)?;
        Some(lane.lend(&mut self.shared))
    }

    fn run_admin(&mut self, (index, _): (u32, u32), slot: u16) {
        self.use_lane(index, |lane, shared| lane.run_admin(shared, Some(slot)));
    }

    fn end_turn(&mut self, (index, _): (u32, u32)) {
        TargetLanes::end_turn(self, index);
        self.table.add(LaneList::Idle, index);
    }

    fn feed(&mut self, (index, _): (u32, u32)) {
        self.table.add(LaneList::WaitingForBuffers, index);
    }

    fn close(&mut self, (index, _): (u32, u32), closing: LaneClosing) {
        let error = match closing {
            LaneClosing::ByControl(reason) => {
                if let Some(lane) = self.table.get(index) {
                    info!(peer = %lane.peer, ?reason, "queue closed");
                }
                return self.end(index, reason.name());
            }
            LaneClosing::Stale => LaneError::Ended("closed by the host, which has reconnected"),
            LaneClosing::Unconnected => LaneError::Ended("no queue connected in time"),
            LaneClosing::Overdue(what, limit) => {
                let lane = self.table.get(index);
                // Data that the host does not take would otherwise stay in the kernel.
                lane.into_iter().for_each(|lane| lane.reset_on_close());
                LaneError::Overdue(what, limit)
            }
        };
        self.use_lane(index, |_, _| Err::<(), _>(error));
    }

    fn vacate(&mut self, (index, _): (u32, u32)) {
        TargetLanes::vacate(self, index);
    }

    fn cancel_all(&mut self, id: (u32, u32)) {
        self.shared.tasks.cancel_all(&mut self.shared.ring, id);
    }

    fn is_hung_up(&mut self, (index, _): (u32, u32)) -> bool {
        self.table.get(index).is_some_and(|lane| lane.is_hung_up())
    }

    fn do_others_wait_for_buffers(&mut self, (index, _): (u32, u32)) -> bool {
        self.table.listed(LaneList::WaitingForBuffers).any(|starved| starved != index)
    }

    fn fenced(&mut self, turn: &TurnOf) {
        self.shared.control.fenced(turn);
    }
}
