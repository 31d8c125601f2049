//! Reservations at a reactor: commands that have ended, and access that was taken away.

use super::lanes::Lanes;
use crate::tasks::Owner;
use roadtrain_reactor::List;
use roadtrain_target_proto::TurnOf;
use roadtrain_wire::status::Status;

impl Lanes {
    /// The control plane has ended a command about reservations.
    pub(super) fn reserved(&mut self, owner: Owner, status: Status, report: &[u8]) {
        let ((index, generation), slot) = owner;
        debug_assert_eq!(self.table.generation(index), generation, "a lane outlives its commands");
        let Some(lane) = self.table.get_mut(index) else { return };
        lane.reserved(&mut self.shared, slot, (status, report));
        if lane.session.is_ended() {
            return self.vacate(index);
        }
        self.end_turn(index);
        self.table.note(List::Idle, index);
    }

    /// Access to a namespace was taken away from some hosts. The control plane hears when nothing of that is executed any
    /// more.
    pub(super) fn fence(&mut self, turn: TurnOf, aborts: bool) {
        let mut left = Vec::new();
        for index in self.table.indices() {
            let id = (index, self.table.generation(index));
            let Some(lane) = self.table.get_mut(index) else { continue };
            let slots = lane.fence(&mut self.shared, aborts);
            left.extend(slots.into_iter().map(|slot| (id, slot)));
            self.end_turn(index);
            self.table.note(List::Idle, index);
        }
        match left.is_empty() {
            true => self.shared.control.fenced(&turn),
            false => self.fences.push((turn, left)),
        }
    }

    /// A store has ended a command: fences do not wait for it any more.
    pub(super) fn leave_fences(&mut self, owner: Owner) {
        for (_, left) in &mut self.fences {
            left.retain(|other| *other != owner);
        }
        for (turn, _) in self.fences.extract_if(.., |(_, left)| left.is_empty()) {
            self.shared.control.fenced(&turn);
        }
    }
}
