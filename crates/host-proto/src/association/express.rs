//! Express connections of lanes, beside what else becomes of their path.

use super::{Action, Association, Done, Path, State};
use crate::bringup;
use crate::old_commands::LaneGuard;
use crate::procedure::{Failure, Procedure};
use roadtrain_wire::identify::ofcs;

impl<E: Send + 'static> Association<E> {
    /// A lane that has a connection wants an express connection, too: it is told of [`Action::AttachExpress`] or
    /// [`Action::RefuseExpress`], unless the path is lost before, or all comes to an end.
    pub fn want_express(&mut self, lane: usize) {
        let path = &mut self.path;
        if path.state == State::Live {
            path.wanting.push_back(lane);
        }
    }

    /// An express connection of a lane was closed, with nothing under way: by its number.
    pub fn express_closed(&mut self, lane: usize, number: usize) {
        let lanes = self.config.lanes as usize;
        let expresses = &mut self.path.expresses;
        let place = number.checked_sub(lanes).and_then(|at| expresses.get_mut(at));
        // Another lane may have the number by now.
        if let Some(place) = place.filter(|place| **place == Some(lane)) {
            *place = None;
        }
    }

    pub(super) fn connect_express(&mut self, lane: usize) {
        let (wants, lanes) = (self.config.wants.clone(), self.config.lanes);
        let Some(info) = self.info.clone() else { return };
        let path = &mut self.path;
        path.expresses.resize(info.express_queues as usize, None);
        let place = path.expresses.iter().position(Option::is_none);
        let Some(place) = place.filter(|_| !path.expresses.contains(&Some(lane))) else {
            return self.refuse_express(lane, None);
        };
        path.expresses[place] = Some(lane);
        path.connecting = Some(place);
        let express = lanes as usize + place;
        path.task = Some(Procedure::new(|driver| async move {
            let qid = express as u16 + 1;
            let done = bringup::connect_express(&driver, &wants, &info, qid, lane).await;
            Ok(Done::Express(lane, express, done))
        }));
    }

    pub(super) fn attach_express(&mut self, lane: usize, number: usize) {
        let Some(info) = self.info.clone() else { return };
        self.path.connecting = None;
        let rules = self.rules(&info);
        let may_close = info.identify.ofcs.get() & ofcs::DISCONNECT != 0;
        let (barred, writes) = (self.pins.barred(), self.writes.clone());
        let Some((serial, _)) = self.path.controller else { return };
        let guard = LaneGuard::new(self.config.old_commands.clone(), serial);
        self.actions.push_back(Action::AttachExpress {
            lane,
            number,
            rules,
            barred,
            writes,
            may_close,
            guard,
        });
    }

    /// Everything else goes on.
    pub(super) fn refuse_express(&mut self, lane: usize, why: Option<Failure<E>>) {
        let path = &mut self.path;
        if let Some(place) = path.connecting.take() {
            path.expresses[place] = None;
        }
        self.actions.push_back(Action::RefuseExpress { lane, why });
    }
}

impl<E> Path<E> {
    /// The lane that is getting an express connection.
    pub(super) fn express_on_its_way(&self) -> Option<usize> {
        self.expresses.get(self.connecting?).copied().flatten()
    }
}
