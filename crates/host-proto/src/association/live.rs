//! Work on a live path, one task at a time, and the calls of its users.

use super::allocation_queries::QueryOrigin;
use super::{
    AssociationAction, HostAssociation, PathPhase, PathTaskOutput, SiblingResetAttempt, siblings,
};
use crate::allocation::{self, Allocation, AllocationQuery};
use crate::bringup::{self, ControllerInfo, NamespaceInfo};
use crate::namespace_scan;
use crate::old_commands::LaneGuard;
use crate::paths::AnaTable;
use crate::procedure::{Procedure, ProcedureFailure};
use roadtrain_proto::time::Instant;
use roadtrain_wire::cross_reset::ControllerInstance;
use roadtrain_wire::identify::ofcs;
use std::sync::Arc;

impl<E: Send + 'static> HostAssociation<E> {
    /// Starts the next task of a live path. True if there was one.
    pub(super) fn next_task(&mut self, now: Instant) -> bool {
        if self.path.state != PathPhase::Live {
            return false;
        }
        if let Some(info) = &self.info
            && let Some(task) = self.sibling_resets.begin(now, info, &self.config.old_commands)
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
            self.actions.push_back(AssociationAction::Abort { sqe });
            return true;
        }
        if let Some(info) = self.info.clone()
            && let Some(event) = path.event.take()
        {
            let has_others = self.config.siblings.is_some();
            path.task = Some(Procedure::new(move |driver| async move {
                siblings::read_changes(&driver, &info, &event, has_others).await
            }));
        } else if let Some(info) = self.info.clone()
            && path.transitions.due().is_some_and(|at| at <= now)
        {
            path.task = Some(Procedure::new(|driver| async move {
                let ana =
                    namespace_scan::ana_of_groups(&driver, &info.identify, &info.namespaces).await;
                ana.map(PathTaskOutput::Ana)
            }));
        } else if let Some(lane) = path.expresses.next_wanted().filter(|_| self.ending.is_none()) {
            self.connect_express(lane);
            return true;
        } else {
            return self.begin_allocation_query();
        }
        path.task.is_some()
    }

    // ---- Namespaces ----

    pub(super) fn check_namespaces(&mut self, namespaces: Vec<NamespaceInfo>) {
        // Bar stale NSIDs before any lane uses the namespaces.
        if self.identity_check.check(&namespaces) {
            self.actions.push_back(AssociationAction::SetBarred(self.identity_check.barred()));
        }
        self.check_writes(&namespaces);
        if let Some(info) = &self.info
            && info.namespaces != namespaces
        {
            self.info =
                Some(Arc::new(ControllerInfo { namespaces, ..ControllerInfo::clone(info) }));
            self.actions.push_back(AssociationAction::Changed);
        }
    }

    /// Compares write verifiers with the earlier ones, except for NSIDs that now stand for another namespace.
    pub(super) fn check_writes(&mut self, namespaces: &[NamespaceInfo]) {
        let barred = self.identity_check.barred();
        let is_stale = |nsid| barred.stale().binary_search(&nsid).is_ok();
        let same = namespaces.iter().filter(|now| !is_stale(now.nsid));
        let nsids = self.writes.observe(same);
        self.lose_writes(nsids);
    }

    /// Starts to record acknowledged writes of a live path.
    pub(super) fn begin_writes(&mut self) {
        let nsids = self.writes.connected();
        self.lose_writes(nsids);
    }

    fn lose_writes(&mut self, nsids: Vec<u32>) {
        if !nsids.is_empty() {
            self.actions.push_back(AssociationAction::WritesLost { nsids });
        }
    }

    /// Applies ANA states that were read from the path's log.
    pub(super) fn set_ana(&mut self, now: Instant, ana: AnaTable) {
        let (ana, late) = self.path.transitions.read(now, ana);
        self.actions.push_back(AssociationAction::SetAna { ana });
        if !late.is_empty() {
            self.actions.push_back(AssociationAction::LateTransition { nsids: late });
        }
    }

    // ---- Express connections ----

    /// Requests an express connection for a connected lane. [`AssociationAction::AttachExpress`] or [`AssociationAction::RefuseExpress`]
    /// follows, unless the path is lost or the association ends first.
    pub fn want_express(&mut self, lane: usize) {
        let path = &mut self.path;
        if path.state == PathPhase::Live {
            path.expresses.want(lane);
        }
    }

    /// Frees the number of a lane's express connection that was closed with no command in flight.
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
            Ok(PathTaskOutput::Express(lane, express, done))
        }));
    }

    pub(super) fn attach_express(&mut self, lane: usize, number: usize) {
        let Some(info) = self.info.clone() else { return };
        self.path.expresses.arrived();
        let rules = self.rules(&info);
        let may_close = info.identify.ofcs.get() & ofcs::DISCONNECT != 0;
        let (barred, writes) = (self.identity_check.barred(), self.writes.clone());
        let Some((serial, _)) = self.path.controller else { return };
        let guard = LaneGuard::new(self.config.old_commands.clone(), serial);
        self.actions.push_back(AssociationAction::AttachExpress {
            lane,
            number,
            rules,
            barred,
            writes,
            may_close,
            guard,
        });
    }

    /// Refuses an express connection; all other connections remain.
    pub(super) fn refuse_express(&mut self, lane: usize, why: Option<ProcedureFailure<E>>) {
        self.path.expresses.failed();
        self.actions.push_back(AssociationAction::RefuseExpress { lane, why });
    }

    // ---- Block allocation ----

    /// Queries the allocation of blocks. [`AssociationAction::AllocationFound`] has the result, at once if the controller does not
    /// support it.
    pub fn query_allocation(&mut self, by: QueryOrigin, query: AllocationQuery) {
        self.allocation_queries.push(by, query);
        let is_offered = self.info.as_deref().is_some_and(allocation::is_offered);
        if !is_offered || !self.is_live() || self.ending.is_some() {
            self.refuse_allocation_queries();
        }
    }

    /// Starts the next query. True if there was one.
    fn begin_allocation_query(&mut self) -> bool {
        let Some((by, query)) = self.allocation_queries.next() else { return false };
        if !self.is_same_namespace(query.nsid) {
            self.actions.push_back(AssociationAction::AllocationFound { by, found: None });
            return true;
        }
        self.allocation_queries.begin(by, query.nsid);
        self.path.task = Some(Procedure::new(move |driver| async move {
            Ok(PathTaskOutput::AllocationFound(allocation::query_ranges(&driver, query).await?))
        }));
        true
    }

    /// Reports the target's result, unless another namespace has replaced the queried one.
    pub(super) fn allocation_query_done(&mut self, found: Option<Allocation>) {
        let Some((by, nsid)) = self.allocation_queries.end() else { return };
        let found = found.filter(|_| self.is_same_namespace(nsid));
        self.actions.push_back(AssociationAction::AllocationFound { by, found });
    }

    /// Ends waiting queries without a result.
    pub(super) fn refuse_allocation_queries(&mut self) {
        let waiting = self.allocation_queries.take_waiting();
        self.actions
            .extend(waiting.map(|by| AssociationAction::AllocationFound { by, found: None }));
    }

    /// Ends all queries without a result.
    pub(super) fn abandon_allocation_queries(&mut self) {
        self.allocation_query_done(None);
        self.refuse_allocation_queries();
    }

    fn is_same_namespace(&self, nsid: u32) -> bool {
        !self.identity_check.barred().has(nsid)
    }

    // ---- Controllers that were lost ----

    /// Queues a controller that association `owner` has lost, to be ended over this path once it is live.
    pub fn end_for(&mut self, now: Instant, owner: usize, lost: ControllerInstance) {
        self.sibling_resets.add(now, owner, lost);
    }

    /// Withdraws controllers of association `owner` that have ended: it is connected again.
    pub fn withdraw(&mut self, owner: usize) {
        self.sibling_resets.withdraw(owner, &self.config.old_commands);
    }

    /// Handles the end of a controller that this path has lost, as another association reported it
    /// ([`AssociationAction::EndedFor`]). None of its commands is executed any more.
    pub fn fenced(&mut self, ended: ControllerInstance) {
        if let Some(serial) = self.path.lost.take(ended) {
            self.config.old_commands.end(serial);
            self.check_release();
        }
    }

    /// Requests other associations to end the lost controller: the path's connections are closed.
    pub(super) fn request_sibling_resets(&mut self) {
        if self.config.siblings.is_some() {
            let unreported = self.path.lost.take_unreported().into_iter();
            self.actions.extend(unreported.map(|lost| AssociationAction::EndBySiblings { lost }));
        }
    }

    /// Repeats the request to end lost controllers: a new path may be able to end them.
    pub fn repeat_sibling_resets(&mut self) {
        let of = &mut self.path;
        if !matches!(of.state, PathPhase::Resetting { .. }) {
            of.lost.renew();
            self.request_sibling_resets();
        }
    }

    /// Handles the outcome of a reset for another association.
    pub(super) fn sibling_reset_done(&mut self, now: Instant, attempt: SiblingResetAttempt) {
        let (owner, lost, _) = attempt;
        if let Some(fencing) = self.sibling_resets.tried(now, attempt) {
            self.actions.push_back(AssociationAction::EndedFor { owner, lost, fencing });
        }
    }
}
