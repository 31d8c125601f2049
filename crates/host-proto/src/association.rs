//! An association with a controller: keeps the connections of a host's lanes up, and abandons requests when they stay
//! down.
//!
//! An association has one path: an admin queue and a connection for each lane. A host with several paths has an
//! association for each. Requests are not part of it: they outlive connections ([`super::requests`]).
//! [`AssociationAction::Attach`], [`AssociationAction::Reset`], [`AssociationAction::Fail`] and [`AssociationAction::SetBarred`] report changes to them.
//!
//! The driver takes [`HostAssociation::poll`]'s actions until there are none and carries each out. It replies to those that
//! have a reply, at any later time. It reports events by the other calls, and calls again at [`HostAssociation::deadline`]
//! at the latest.
//!
//! - All connections of the path are made together and lost together. Before new ones are made the old ones are closed,
//!   so that no old command overtakes its retry.
//! - A lane may get one more connection later, an express connection ([`super::express`]). A failed attempt leaves the
//!   other connections alone; an established one is lost together with them.
//! - Lanes get their connections when all of them are established. Before that, the target ends the controllers that
//!   they had (Cross-Controller Reset), because it may not have noticed the loss. If the target does not offer this,
//!   writes wait for commands that may still be executed ([`super::old_commands`]).
//! - A lost path reconnects at once, then with pauses that double. Two attempts start at least the first pause apart.
//! - When the path has been down for the controller-loss timeout, requests fail until it works again.
//! - A Keep Alive is sent in time, between two other commands.

mod action;
mod allocation_queries;
mod ending;
mod express;
mod fencing;
mod live;
mod loss;
mod sibling_resets;
mod siblings;
mod transitions;

pub use action::{AssociationAction, AssociationConfig, ResetReason};
pub use allocation_queries::QueryOrigin;
pub use siblings::SiblingConstraints;

use allocation_queries::AllocationQueries;
use ending::AssociationEnd;
use express::Expresses;
use fencing::{LostControllers, end_lost, identity, is_claim};
use loss::Loss;
use sibling_resets::{SiblingResetAttempt, SiblingResets};
use transitions::Transitions;

use super::allocation::Allocation;
use super::bringup::{self, ControllerInfo, Fencing, NamespaceInfo};
use super::namespace_identity::NamespaceIdentityCheck;
use super::old_commands::{ControllerSerial, LaneGuard};
use super::paths::AnaTable;
use super::procedure::{
    ControllerCommand, DriverReply, DriverRequest, Procedure, ProcedureFailure, ProcedureStep,
};
use super::retry::RetryRules;
use super::write_verifier::PathWrites;
use core::time::Duration;
use roadtrain_proto::security::TlsPsk;
use roadtrain_proto::time::Instant;
use roadtrain_wire::cqe::Cqe;
use roadtrain_wire::cross_reset::ControllerInstance;
use roadtrain_wire::fabrics::fctype;
use roadtrain_wire::feature::AsyncEvent;
use roadtrain_wire::sqe::{Sqe, opcode};
use std::collections::VecDeque;
use std::sync::Arc;

/// Minimum timeout of a reply.
const ANSWER_MIN: Duration = Duration::from_millis(500);

/// State of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PathPhase {
    /// No connection until the time of the next attempt.
    Down { until: Instant },
    /// Connections are being established.
    Connecting,
    /// Lanes have connections.
    Live,
    /// Old connections are being closed; time of the next attempt.
    Resetting { until: Instant },
}

/// Result of a procedure of a path.
enum PathTaskOutput<E> {
    Information(Box<ControllerInfo>, Option<TlsPsk>, Vec<(ControllerSerial, u16, Fencing)>),
    Lanes,
    /// Result for a lane, with the number of its express connection.
    Express(usize, usize, Result<(), ProcedureFailure<E>>),
    /// Namespaces after an event; the next event may be requested.
    Namespaces(Vec<NamespaceInfo>, AnaTable),
    /// ANA log that was read without an event.
    Ana(AnaTable),
    /// Outcome of a reset that another association requested.
    SiblingReset(SiblingResetAttempt),
    AllocationFound(Option<Allocation>),
    Nothing,
    ShutDown,
}

type PathTask<E> = Procedure<E, Result<PathTaskOutput<E>, ProcedureFailure<E>>>;

/// The action that the driver carries out.
struct PendingDriverRequest {
    what: &'static str,
    /// True for a Keep Alive, which is sent between the commands of a procedure.
    is_keep_alive: bool,
    /// True for the admin queue's Connect and for its authentication. The controller accepts and expects Keep Alives
    /// once this ends.
    opens_admin_queue: bool,
    /// Deadline of the reply; `None` for work of this host, which has no limit.
    until: Option<Instant>,
}

struct AssociationPath<E> {
    state: PathPhase,
    task: Option<PathTask<E>>,
    pending: Option<PendingDriverRequest>,
    /// Time at which the task resumes.
    pause_until: Option<Instant>,
    /// Time of the next Keep Alive.
    keep_alive_at: Option<Instant>,
    /// Value of [`PendingDriverRequest::opens_admin_queue`] of the last command.
    opens_admin_queue: bool,
    /// Event that is not handled yet.
    event: Option<AsyncEvent>,
    /// Commands to be aborted: lane and command identifier.
    overdue: VecDeque<(usize, u16)>,
    /// True while an Abort is in flight.
    is_aborting: bool,
    /// Express connections, numbered after those of lanes.
    expresses: Expresses,
    /// Start time of the last attempt.
    began_at: Instant,
    /// Pause after the next failed attempt.
    delay: Duration,
    /// Current controller of the path.
    controller: Option<(ControllerSerial, Option<ControllerInstance>)>,
    /// Lost controllers of the path; they may still execute commands of its lanes.
    lost: LostControllers,
    /// Namespaces in the ANA Change state.
    transitions: Transitions,
    /// Negotiated PSK, kept while attempts to connect with it succeed.
    psk: Option<TlsPsk>,
}

/// An association.
pub struct HostAssociation<E> {
    config: AssociationConfig,
    path: AssociationPath<E>,
    identity_check: NamespaceIdentityCheck,
    writes: PathWrites,
    info: Option<Arc<ControllerInfo>>,
    loss: Loss,
    ending: Option<AssociationEnd>,
    /// Lost controllers of other associations.
    sibling_resets: SiblingResets,
    allocation_queries: AllocationQueries,
    /// [`ended_so_far`](super::old_commands::OldCommands::ended_so_far) at the last [`AssociationAction::Release`].
    ended_so_far: u64,
    /// True once all submitters of requests have ended.
    has_ended: bool,
    /// True if another association of the host is live while this one ends.
    has_live_sibling: bool,
    actions: VecDeque<AssociationAction<E>>,
}

impl<E: Send + 'static> HostAssociation<E> {
    /// Creates an association that connects its path.
    #[must_use]
    pub fn new(now: Instant, config: AssociationConfig) -> Self {
        let path = AssociationPath {
            state: PathPhase::Down { until: now },
            task: None,
            pending: None,
            pause_until: None,
            keep_alive_at: None,
            opens_admin_queue: false,
            event: None,
            overdue: VecDeque::new(),
            is_aborting: false,
            expresses: Expresses::default(),
            began_at: now,
            delay: config.reconnect_delay,
            controller: None,
            lost: LostControllers::inherited(&config.old_commands),
            transitions: Transitions::default(),
            psk: None,
        };
        let beside = config.siblings.as_ref();
        let mut identity_check = beside
            .map_or_else(NamespaceIdentityCheck::single_path, |beside| {
                NamespaceIdentityCheck::shared(beside.pinned.clone())
            });
        identity_check.check(beside.map_or(&[], |beside| &beside.namespaces[..]));
        let ended_so_far = config.old_commands.ended_so_far();
        let writes = beside.map(|beside| beside.writes.clone()).unwrap_or_default();
        let mut loss = Loss::default();
        loss.begin(now);
        HostAssociation {
            config,
            path,
            identity_check,
            writes: PathWrites::new(writes),
            info: None,
            loss,
            ending: None,
            sibling_resets: SiblingResets::default(),
            allocation_queries: AllocationQueries::default(),
            ended_so_far,
            has_ended: false,
            has_live_sibling: false,
            actions: VecDeque::new(),
        }
    }

    /// Creates an association whose admin queue has already brought the controller up, with the PSK that was
    /// negotiated. Its lanes connect next.
    #[must_use]
    pub fn brought_up(
        now: Instant,
        config: AssociationConfig,
        info: ControllerInfo,
        psk: Option<TlsPsk>,
    ) -> Self {
        let mut association = HostAssociation::new(now, config);
        association.path.psk = psk;
        association.path.state = PathPhase::Connecting;
        association.path.keep_alive_at = association.keep_alive_after(now);
        match association.path.lost.to_end() {
            lost if lost.is_empty() => {
                association.fenced_by_path(now, Vec::new());
                association.connect_lanes(info);
            }
            lost => association.end_lost_first(info, lost),
        }
        association
    }

    // ---- State ----

    /// Returns the properties of the controller.
    #[must_use]
    pub fn info(&self) -> Option<&Arc<ControllerInfo>> {
        self.info.as_ref()
    }

    /// True if lanes have connections.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.path.state == PathPhase::Live
    }

    /// True if the path is live and no control-plane work is pending.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let path = &self.path;
        path.state == PathPhase::Live
            && path.task.is_none()
            && path.pending.is_none()
            && path.event.is_none()
            && path.overdue.is_empty()
            && !path.is_aborting
            && !path.expresses.is_wanted()
            && !self.allocation_queries.is_waiting()
            && self.sibling_resets.due().is_none()
    }

    /// True if the association is ending.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.ending.is_some()
    }

    /// True if the association is ending and the target replies, so that commands still reach it.
    #[must_use]
    pub fn ends_in_order(&self) -> bool {
        matches!(
            self.ending,
            Some(AssociationEnd::Waiting { is_there: true, .. } | AssociationEnd::ShuttingDown)
        )
    }

    /// Returns the time of the next attempt to connect.
    #[must_use]
    pub fn retries_at(&self) -> Option<Instant> {
        match self.path.state {
            PathPhase::Down { until } => Some(until),
            _ => None,
        }
    }

    /// Returns the time at which to call [`HostAssociation::poll`] at the latest.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let ending = match self.ending {
            Some(AssociationEnd::Waiting { until, .. }) => Some(until),
            _ => None,
        };
        let path = &self.path;
        let retry = match path.state {
            PathPhase::Down { until } if self.ending.is_none() => Some(until),
            _ => None,
        };
        let own = match &path.pending {
            Some(pending) => [pending.until, None],
            None => [path.pause_until, path.keep_alive_at],
        };
        let is_free =
            path.state == PathPhase::Live && path.task.is_none() && path.pending.is_none();
        let sibling_reset = if is_free { self.sibling_resets.due() } else { None };
        let late = path.transitions.due().filter(|_| is_free);
        let old = self.config.old_commands.due();
        let others = [retry, sibling_reset, late, ending, old, self.fast_failing_at()];
        own.into_iter().chain(others).flatten().min()
    }

    // ---- Events ----

    /// Receives the driver's reply to the path's last [`AssociationAction::Request`].
    pub fn answer(&mut self, now: Instant, answer: Result<DriverReply, E>) {
        let Some(pending) = self.path.pending.take() else { return };
        let has_failed = match &answer {
            Ok(DriverReply::Completed { cqe, .. }) => !cqe.status().is_success(),
            Ok(_) => false,
            Err(_) => true,
        };
        if pending.opens_admin_queue && !has_failed {
            self.path.keep_alive_at = self.keep_alive_after(now);
        }
        if self.ending == Some(AssociationEnd::CheckingTarget) && answer.is_ok() {
            let until = now + self.patience_at_end();
            self.ending = Some(AssociationEnd::Waiting { until, is_there: true });
        }
        if !pending.is_keep_alive {
            if let Some(task) = &mut self.path.task {
                task.answer(answer);
            }
            return;
        }
        let what = pending.what;
        match answer {
            Err(source) => {
                self.lose(now, ResetReason::Path(ProcedureFailure::Lost { what, source }))
            }
            Ok(DriverReply::Completed { cqe, .. }) if !cqe.status().is_success() => {
                let status = cqe.status();
                self.lose(now, ResetReason::Path(ProcedureFailure::Command { what, status }));
            }
            Ok(_) => {}
        }
    }

    /// Handles the completion of the Asynchronous Event Request.
    pub fn event(&mut self, cqe: &Cqe) {
        if cqe.status().is_success() {
            self.path.event = Some(AsyncEvent::parse(cqe.dw0.get()));
        } // else the controller returns the request: no more events
    }

    /// Handles the completion of the path's last [`AssociationAction::Abort`], with any status: only the aborted command's own
    /// completion counts.
    pub fn aborted(&mut self) {
        self.path.is_aborting = false;
    }

    /// Handles the loss of the admin queue's connection while no reply is pending.
    pub fn admin_lost(&mut self, now: Instant, source: E) {
        let what = "admin queue";
        self.lose(now, ResetReason::Path(ProcedureFailure::Lost { what, source }));
    }

    /// Handles the loss of a lane's connection.
    pub fn lane_lost(&mut self, now: Instant, lane: usize, error: E) {
        if self.path.state != PathPhase::Live {
            return; // the connection belonged to an earlier attempt
        }
        match self.ending {
            // No further attempt to connect follows.
            Some(_) if !self.has_live_sibling || self.has_ended => {
                self.actions.push_back(AssociationAction::Fail { lane: Some(lane) })
            }
            _ => self.lose(now, ResetReason::Lane { lane, error }),
        }
    }

    /// Queues Aborts for overdue commands of a lane, by their command identifiers.
    pub fn overdue(&mut self, lane: usize, cids: impl IntoIterator<Item = u16>) {
        let path = &mut self.path;
        if path.state == PathPhase::Live {
            path.overdue.extend(cids.into_iter().map(|cid| (lane, cid)));
        }
    }

    /// Handles the end of the path's connections, after [`AssociationAction::Reset`].
    pub fn reset(&mut self, now: Instant) {
        // Not before the controller-loss timeout: the last attempt is made at that time.
        let limit = self
            .loss
            .failing_at(self.config.controller_loss_timeout)
            .filter(|&at| at > now)
            .unwrap_or(Instant(u64::MAX));
        let path = &mut self.path;
        if let PathPhase::Resetting { until } = path.state {
            path.state = PathPhase::Down { until: until.min(limit) };
        }
        path.lost.connections_gone(now, &self.config.old_commands);
        self.request_sibling_resets();
    }

    fn lose(&mut self, now: Instant, why: ResetReason<E>) {
        let (first, longest) = (self.config.reconnect_delay, self.config.reconnect_delay_max);
        let path = &mut self.path;
        let was_live = path.state == PathPhase::Live;
        if !was_live && path.state != PathPhase::Connecting {
            return;
        }
        let why = match (self.ending, why) {
            // The controller has not confirmed that all written data is stable.
            (Some(AssociationEnd::ShuttingDown), ResetReason::Path(failure)) => {
                return self.end(now, Some(Err(failure)));
            }
            (_, why) => why,
        };
        let until = if was_live {
            path.delay = first;
            if let Some((serial, instance)) = path.controller.take() {
                path.lost.push(now, &self.config.old_commands, serial, instance);
            }
            (path.began_at + first).max(now)
        } else {
            let delay = path.delay;
            path.delay = (delay * 2).min(longest);
            // The target may have forgotten the PSK: the next attempt negotiates another one.
            path.psk = None;
            path.lost.missed(now, &self.config.old_commands, self.config.siblings.is_some());
            now + self
                .config
                .old_commands
                .probe_interval_max()
                .map_or(delay, |most| delay.min(most))
        };
        if is_claim(&why) {
            self.config.old_commands.claim_all(now);
        }
        path.abandon();
        path.state = PathPhase::Resetting { until };
        self.writes.disconnected();
        self.abandon_allocation_queries();
        self.actions.push_back(AssociationAction::Reset { why, was_live });
        if self.ending.is_some() {
            self.end_without_target(now);
        } else if !self.is_live() {
            self.loss.begin(now);
        }
    }

    // ---- Actions ----

    /// Returns the next action; `None`: nothing to do until the next event or [`HostAssociation::deadline`].
    pub fn poll(&mut self, now: Instant) -> Option<AssociationAction<E>> {
        loop {
            if let Some(action) = self.actions.pop_front() {
                return Some(action);
            }
            self.check_old_commands(now);
            let has_changed = self.advance(now);
            let has_come = !self.actions.is_empty();
            if !has_come && !has_changed && !self.fail_if_lost(now) && !self.advance_ending(now) {
                return None;
            }
        }
    }

    /// Returns the next action that is already queued, without advancing as [`HostAssociation::poll`] does.
    pub fn next_action(&mut self) -> Option<AssociationAction<E>> {
        self.actions.pop_front()
    }

    /// Advances the path. True if its state has changed.
    fn advance(&mut self, now: Instant) -> bool {
        let ending = self.ending;
        let path = &mut self.path;
        match path.state {
            PathPhase::Down { until } if until <= now && ending.is_none() => {
                self.connect(now);
                return true;
            }
            PathPhase::Down { .. } | PathPhase::Resetting { .. } => return false,
            PathPhase::Connecting | PathPhase::Live => {}
        }
        if let Some(pending) = &path.pending {
            let is_over = pending.until.is_some_and(|until| until <= now);
            let what = pending.what;
            if is_over
                && !pending.is_keep_alive
                && let Some(lane) = path.expresses.on_its_way()
            {
                (path.task, path.pending) = (None, None);
                self.refuse_express(lane, Some(ProcedureFailure::Silent { what }));
            } else if is_over {
                self.lose(now, ResetReason::Path(ProcedureFailure::Silent { what }));
            }
            return is_over;
        }
        if ending == Some(AssociationEnd::CheckingTarget)
            || path.keep_alive_at.is_some_and(|at| at <= now)
        {
            self.keep_alive(now);
            return true;
        }
        if path.pause_until.is_some_and(|until| until > now) {
            return false;
        }
        path.pause_until = None;
        let Some(task) = &mut path.task else { return self.next_task(now) };
        match task.poll(now) {
            ProcedureStep::Request(request) => self.request(now, request, false),
            ProcedureStep::PauseUntil(until) => {
                path.pause_until = Some(until);
                return false;
            }
            ProcedureStep::AwaitReply => return false,
            ProcedureStep::Ended(done) => {
                path.task = None;
                self.finished(now, done);
            }
        }
        true
    }

    fn connect(&mut self, now: Instant) {
        let (wants, lanes) = (self.config.wants.clone(), self.config.lanes);
        let expresses = self.config.expresses;
        let transfer_bytes =
            self.config.siblings.as_ref().map_or(0, |beside| beside.transfer_bytes);
        let path = &mut self.path;
        (path.state, path.began_at) = (PathPhase::Connecting, now);
        let (lost, before) = (path.lost.to_end(), path.psk.clone());
        let old = self.config.old_commands.clone();
        path.task = Some(Procedure::new(|driver| async move {
            let enabled = bringup::connect(&driver, &wants, before).await?;
            let info = bringup::information(&driver, &enabled, lanes, expresses).await?;
            let psk = enabled.psk;
            if info.io_queues < lanes {
                let text = format!("the target grants only {} I/O queues now", info.io_queues);
                return Err(ProcedureFailure::Controller(text));
            }
            if info.transfer_bytes_max < transfer_bytes {
                let least = info.transfer_bytes_max;
                let text = format!("takes {least} bytes at once, and other paths {transfer_bytes}");
                return Err(ProcedureFailure::Controller(text));
            }
            let fenced = end_lost(&driver, &wants, &info, lost, &old).await?;
            Ok(PathTaskOutput::Information(Box::new(info), psk, fenced))
        }));
    }

    fn connect_lanes(&mut self, info: ControllerInfo) {
        self.identity_check.check(&info.namespaces); // lanes receive the change when they are attached
        self.check_writes(&info.namespaces);
        let info = Arc::new(info);
        self.info = Some(info.clone());
        self.actions.push_back(AssociationAction::Changed);
        let (wants, lanes) = (self.config.wants.clone(), self.config.lanes);
        self.path.task = Some(Procedure::new(|driver| async move {
            for lane in 0..lanes {
                bringup::connect_lane(&driver, &wants, &info, lane as u16 + 1).await?;
            }
            Ok(PathTaskOutput::Lanes)
        }));
    }

    fn finished(&mut self, now: Instant, done: Result<PathTaskOutput<E>, ProcedureFailure<E>>) {
        match done {
            Err(failure) if self.ending == Some(AssociationEnd::ShuttingDown) => {
                self.end(now, Some(Err(failure)))
            }
            Err(failure) => self.lose(now, ResetReason::Path(failure)),
            Ok(PathTaskOutput::Information(info, psk, fenced)) => {
                self.path.psk = psk;
                self.fenced_by_path(now, fenced);
                self.connect_lanes(*info);
            }
            Ok(PathTaskOutput::Lanes) => self.attach(now),
            Ok(PathTaskOutput::Express(lane, express, Ok(()))) => {
                self.attach_express(lane, express)
            }
            Ok(PathTaskOutput::Express(lane, _, Err(failure))) => {
                self.refuse_express(lane, Some(failure))
            }
            Ok(PathTaskOutput::Namespaces(namespaces, ana)) => {
                self.check_namespaces(namespaces);
                if self.config.siblings.is_some() {
                    self.set_ana(now, ana);
                }
                let sqe = Sqe::new(opcode::ASYNC_EVENT_REQUEST, 0);
                self.actions.push_back(AssociationAction::Listen { sqe });
            }
            Ok(PathTaskOutput::Ana(ana)) => self.set_ana(now, ana),
            Ok(PathTaskOutput::SiblingReset(attempt)) => self.sibling_reset_done(now, attempt),
            Ok(PathTaskOutput::AllocationFound(found)) => self.allocation_query_done(found),
            Ok(PathTaskOutput::Nothing) => {}
            Ok(PathTaskOutput::ShutDown) => self.end(now, Some(Ok(()))),
        }
    }

    /// Attaches the lanes: all connections of the path are established.
    fn attach(&mut self, now: Instant) {
        let Some(info) = self.info.clone() else { return };
        let rules = self.rules(&info);
        let barred = self.identity_check.barred();
        let instance = bringup::instance(&info);
        let serial = self.config.old_commands.begin(identity(self.config.wants.keep_alive, &info));
        self.path.controller = Some((serial, instance));
        let guard = LaneGuard::new(self.config.old_commands.clone(), serial);
        let writes = self.writes.clone();
        self.begin_writes();
        self.actions.push_back(AssociationAction::Attach { rules, barred, writes, guard });
        self.loss = Loss::default();
        self.sibling_resets.renew(now);
        let path = &mut self.path;
        path.state = PathPhase::Live;
        path.transitions = Transitions::new(info.identify.anatt);
        let has_others = self.config.siblings.is_some();
        path.task = Some(Procedure::new(move |driver| async move {
            if !bringup::switch_events_on(&driver, &info.identify, has_others).await? {
                return Ok(PathTaskOutput::Nothing);
            }
            // Namespaces that changed before events were switched on cause no event.
            siblings::read_namespaces(&driver, has_others.then_some(&*info.identify)).await
        }));
    }

    /// Ends the controllers that an earlier process has lost, before lanes connect.
    fn end_lost_first(
        &mut self,
        info: ControllerInfo,
        lost: Vec<(ControllerSerial, ControllerInstance)>,
    ) {
        let (wants, old) = (self.config.wants.clone(), self.config.old_commands.clone());
        let psk = self.path.psk.clone();
        self.path.task = Some(Procedure::new(|driver| async move {
            let fenced = end_lost(&driver, &wants, &info, lost, &old).await?;
            Ok(PathTaskOutput::Information(Box::new(info), psk, fenced))
        }));
    }

    /// Records the new controller's replies about lost controllers.
    fn fenced_by_path(&mut self, now: Instant, fenced: Vec<(ControllerSerial, u16, Fencing)>) {
        self.path.lost.fenced(now, &self.config.old_commands, &fenced);
        let fenced = fenced.into_iter();
        self.actions.extend(
            fenced.map(|(_, cntlid, fencing)| AssociationAction::Fenced { cntlid, fencing }),
        );
        self.check_release();
    }

    /// Expires old commands whose controllers have ended by now.
    fn check_old_commands(&mut self, now: Instant) {
        self.config.old_commands.expire(now);
        self.check_release();
    }

    /// Emits [`AssociationAction::Release`] if controllers have ended, for any reason.
    pub(super) fn check_release(&mut self) {
        let ended_so_far = self.config.old_commands.ended_so_far();
        if std::mem::replace(&mut self.ended_so_far, ended_so_far) != ended_so_far {
            self.actions.push_back(AssociationAction::Release);
        }
    }

    fn rules(&self, info: &ControllerInfo) -> RetryRules {
        let crdt = info.identify.crdt.map(|units| units.get());
        RetryRules::new(crdt, self.config.controller_loss_timeout)
    }

    // ---- Replies ----

    fn keep_alive_after(&self, now: Instant) -> Option<Instant> {
        let timeout = self.config.wants.keep_alive;
        (!timeout.is_zero()).then(|| now + timeout / 2)
    }

    /// Returns the deadline of the reply to the path's last [`AssociationAction::Request`]; `None`: no limit.
    #[must_use]
    pub fn answer_by(&self) -> Option<Instant> {
        self.path.pending.as_ref()?.until
    }

    /// Returns the reply timeout. A Keep Alive leaves half a keep-alive timeout after the last traffic, so half is left
    /// for its reply. Other commands delay the next Keep Alive. An attempt to connect ends when requests fail anyway.
    fn patience(&self, now: Instant, is_keep_alive: bool) -> Duration {
        let longest = self.config.wants.timeout;
        let keep_alive = self.config.wants.keep_alive;
        let is_live = self.path.state == PathPhase::Live;
        let limit = match (is_live, is_keep_alive) {
            _ if self.ending.is_some() => None,
            (true, _) if keep_alive.is_zero() => None,
            (true, true) => Some(keep_alive / 2),
            (true, false) => Some(keep_alive),
            (false, _) => self.fast_failing_at().map(|at| at.since(now)),
        };
        limit.map_or(longest, |limit| longest.min(limit.max(ANSWER_MIN)))
    }

    fn request(&mut self, now: Instant, request: DriverRequest, is_keep_alive: bool) {
        let before = self.path.opens_admin_queue;
        let (what, opens_admin_queue) = match &request {
            DriverRequest::Open { .. } => ("connection", false),
            DriverRequest::Run { qid, command } => {
                let opens = *qid == 0 && opens_queue(&command.sqe);
                (command.what, opens)
            }
            DriverRequest::Random { .. }
            | DriverRequest::Compute(_)
            | DriverRequest::Seal { .. } => ("authentication", before),
        };
        let is_ours = matches!(
            &request,
            DriverRequest::Random { .. } | DriverRequest::Compute(_) | DriverRequest::Seal { .. }
        );
        let until = (!is_ours).then(|| now + self.patience(now, is_keep_alive));
        let path = &mut self.path;
        path.opens_admin_queue = opens_admin_queue;
        path.pending = Some(PendingDriverRequest { what, is_keep_alive, opens_admin_queue, until });
        self.actions.push_back(AssociationAction::Request { ask: request });
    }

    fn keep_alive(&mut self, now: Instant) {
        self.path.keep_alive_at = self.keep_alive_after(now);
        let command = ControllerCommand::new("Keep Alive", Sqe::new(opcode::KEEP_ALIVE, 0));
        self.request(now, DriverRequest::Run { qid: 0, command }, true);
    }
}

/// True for Connect and for commands of an authentication.
fn opens_queue(sqe: &Sqe) -> bool {
    let kinds = [fctype::CONNECT, fctype::AUTHENTICATION_SEND, fctype::AUTHENTICATION_RECEIVE];
    sqe.opcode == opcode::FABRICS && kinds.contains(&sqe.fctype())
}

impl<E> AssociationPath<E> {
    /// Abandons all pending work.
    fn abandon(&mut self) {
        (self.task, self.pending, self.event) = (None, None, None);
        (self.pause_until, self.keep_alive_at) = (None, None);
        self.overdue.clear();
        self.is_aborting = false;
        self.expresses = Expresses::default();
        self.transitions.clear();
    }
}
