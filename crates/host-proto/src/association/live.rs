//! A live path: what is done there one after the other, and calls of its users.

use super::look_ups::AskedBy;
use super::{Action, Association, Attempt, Done, State, beside};
use crate::allocation::{self, Allocation, AllocationQuery};
use crate::bringup::{self, ControllerInfo, NamespaceInfo};
use crate::old_commands::LaneGuard;
use crate::paths::AnaTable;
use crate::procedure::{Failure, Procedure};
use roadtrain_proto::time::Instant;
use roadtrain_wire::cross_reset::ControllerInstance;
use roadtrain_wire::identify::ofcs;
use std::sync::Arc;

impl<E: Send + 'static> Association<E> {
    /// The next thing to do on a live path.
    pub(super) fn next_task(&mut self, now: Instant) -> bool {
        if self.path.state != State::Live {
            return false;
        }
        if let Some(info) = &self.info
            && let Some(task) = self.errands.begin(now, info, &self.config.old_commands)
        {
            self.path.task = Some(task);
            return true;
        }
        let path = &mut self.path;
        if !path.is_aborting
            && let Some((lane, cid)) = path.overdue.pop_front()
        {
            path.is_aborting = true;
            let sqe = bringup::abort(lane as u16 + 1, cid);
            self.actions.push_back(Action::Abort { sqe });
            return true;
        }
        if let Some(event) = path.event.take() {
            let others = self.info.clone().filter(|_| self.config.beside.is_some());
            path.task = Some(Procedure::new(|driver| async move {
                bringup::acknowledge(&driver, &event).await?;
                let identify = others.as_ref().map(|info| &*info.identify);
                beside::look(&driver, identify).await
            }));
        } else if let Some(info) = self.info.clone()
            && path.transitions.due().is_some_and(|at| at <= now)
        {
            path.task = Some(Procedure::new(|driver| async move {
                bringup::ana(&driver, &info.identify).await.map(Done::Ana)
            }));
        } else if let Some(lane) = path.expresses.next_wanted().filter(|_| self.ending.is_none()) {
            self.connect_express(lane);
            return true;
        } else {
            return self.begin_look_up();
        }
        path.task.is_some()
    }

    // ---- Namespaces ----

    pub(super) fn check_namespaces(&mut self, namespaces: Vec<NamespaceInfo>) {
        // Before anybody uses them.
        if self.pins.check(&namespaces) {
            self.actions.push_back(Action::SetBarred(self.pins.barred()));
        }
        self.check_writes(&namespaces);
        if let Some(info) = &self.info
            && info.namespaces != namespaces
        {
            self.info =
                Some(Arc::new(ControllerInfo { namespaces, ..ControllerInfo::clone(info) }));
            self.actions.push_back(Action::Changed);
        }
    }

    /// Compares the verifiers of a path's controller with those of before. Another namespace under the NSID says nothing of
    /// that.
    pub(super) fn check_writes(&mut self, namespaces: &[NamespaceInfo]) {
        let barred = self.pins.barred();
        let same = namespaces.iter().filter(|now| !barred.stale().contains(&now.nsid));
        let nsids = self.writes.observe(same);
        self.lose_writes(nsids);
    }

    /// The path is live.
    pub(super) fn begin_writes(&mut self) {
        let nsids = self.writes.connected();
        self.lose_writes(nsids);
    }

    fn lose_writes(&mut self, nsids: Vec<u32>) {
        if !nsids.is_empty() {
            self.actions.push_back(Action::WritesLost { nsids });
        }
    }

    /// The path's ANA log has said so.
    pub(super) fn set_ana(&mut self, now: Instant, ana: AnaTable) {
        let (ana, late) = self.path.transitions.read(now, ana);
        self.actions.push_back(Action::SetAna { ana });
        if !late.is_empty() {
            self.actions.push_back(Action::LateTransition { nsids: late });
        }
    }

    // ---- Express connections ----

    /// A lane that has a connection wants an express connection, too: [`Action::AttachExpress`] or
    /// [`Action::RefuseExpress`] follows, unless the path is lost before, or all comes to an end.
    pub fn want_express(&mut self, lane: usize) {
        let path = &mut self.path;
        if path.state == State::Live {
            path.expresses.want(lane);
        }
    }

    /// An express connection of a lane was closed, with nothing under way: by its number.
    pub fn express_closed(&mut self, lane: usize, number: usize) {
        if let Some(place) = number.checked_sub(self.config.lanes as usize) {
            self.path.expresses.closed(lane, place);
        }
    }

    fn connect_express(&mut self, lane: usize) {
        let (wants, lanes) = (self.config.wants.clone(), self.config.lanes);
        let Some(info) = self.info.clone() else { return };
        let path = &mut self.path;
        let Some(place) = path.expresses.begin(lane, info.express_queues as usize) else {
            return self.refuse_express(lane, None);
        };
        let express = lanes as usize + place;
        path.task = Some(Procedure::new(|driver| async move {
            let qid = express as u16 + 1;
            let done = bringup::connect_express(&driver, &wants, &info, qid, lane).await;
            Ok(Done::Express(lane, express, done))
        }));
    }

    pub(super) fn attach_express(&mut self, lane: usize, number: usize) {
        let Some(info) = self.info.clone() else { return };
        self.path.expresses.arrived();
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
        self.path.expresses.failed();
        self.actions.push_back(Action::RefuseExpress { lane, why });
    }

    // ---- Which blocks are allocated ----

    /// Looks up which blocks are allocated: [`Action::LookedUp`] has the result, at once where it is not offered.
    pub fn look_up(&mut self, by: AskedBy, query: AllocationQuery) {
        self.look_ups.push(by, query);
        let is_offered = self.info.as_deref().is_some_and(allocation::is_offered);
        if !is_offered || !self.is_live() || self.ending.is_some() {
            self.refuse_look_ups();
        }
    }

    /// Begins the next one.
    fn begin_look_up(&mut self) -> bool {
        let Some((by, query)) = self.look_ups.next() else { return false };
        if !self.is_same_namespace(query.nsid) {
            self.actions.push_back(Action::LookedUp { by, found: None });
            return true;
        }
        self.look_ups.begin(by, query.nsid);
        self.path.task = Some(Procedure::new(move |driver| async move {
            Ok(Done::LookedUp(allocation::ask(&driver, query).await?))
        }));
        true
    }

    /// The target has answered. What is said of another namespace that has come meanwhile does not count.
    pub(super) fn looked_up(&mut self, found: Option<Allocation>) {
        let Some((by, nsid)) = self.look_ups.end() else { return };
        let found = found.filter(|_| self.is_same_namespace(nsid));
        self.actions.push_back(Action::LookedUp { by, found });
    }

    /// Ends those that wait.
    pub(super) fn refuse_look_ups(&mut self) {
        let waiting = self.look_ups.take_waiting();
        self.actions.extend(waiting.map(|by| Action::LookedUp { by, found: None }));
    }

    /// Ends all.
    pub(super) fn abandon_look_ups(&mut self) {
        self.looked_up(None);
        self.refuse_look_ups();
    }

    fn is_same_namespace(&self, nsid: u32) -> bool {
        !self.pins.barred().has(nsid)
    }

    // ---- Controllers that were lost ----

    /// Association `owner` has lost that controller: it is to be ended over this one's path, as soon as that lives.
    pub fn end_for(&mut self, now: Instant, owner: usize, lost: ControllerInstance) {
        self.errands.add(now, owner, lost);
    }

    /// Association `owner` has a connection again: it needs no help with controllers that have ended.
    pub fn withdraw(&mut self, owner: usize) {
        self.errands.withdraw(owner, &self.config.old_commands);
    }

    /// The controller that the path has lost was ended, as another association has found ([`Action::EndedFor`]):
    /// nothing that was sent to it is executed any more.
    pub fn fenced(&mut self, ended: ControllerInstance) {
        if let Some(serial) = self.path.lost.take(ended) {
            self.config.old_commands.end(serial);
            self.check_release();
        }
    }

    /// The connections of a path are gone: others may have the controller ended that it has lost.
    pub(super) fn ask_others(&mut self) {
        if self.config.beside.is_some() {
            let untold = self.path.lost.take_untold().into_iter();
            self.actions.extend(untold.map(|lost| Action::EndElsewhere { lost }));
        }
    }

    /// Another path has come: it may have the controller ended that this one has lost.
    pub fn remind(&mut self) {
        let of = &mut self.path;
        if !matches!(of.state, State::Resetting { .. }) {
            of.lost.renew();
            self.ask_others();
        }
    }

    /// An errand was tried.
    pub(super) fn errand_done(&mut self, now: Instant, attempt: Attempt) {
        let (owner, lost, _) = attempt;
        if let Some(fencing) = self.errands.tried(now, attempt) {
            self.actions.push_back(Action::EndedFor { owner, lost, fencing });
        }
    }
}
