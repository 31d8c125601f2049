//! The control plane: life cycle of subsystems and controllers.

use super::claims::{Claims, HostIds};
use super::cntlids::Cntlids;
use super::config::{TargetConfig, TargetLimits};
use super::config_error::ConfigError;
use super::controller::{ControllerSummary, NOT_ABORTED, TargetController};
use super::events::EventNotice;
use super::kind::ControllerKind;
use super::listen::FrameListener;
use super::namespace::SubsystemNamespaces;
use super::namespace_operations::changed_namespaces;
use super::operations::ConfigOperation;
use super::outcome::AdminOutcome;
use super::property::Issuer;
use super::reservations::NamespaceReservations;
use super::subsystem::TargetSubsystem;
use super::target_event::{CloseReason, TargetEvent};
use core::time::Duration;
use roadtrain_proto::security::TlsHosts;
use roadtrain_proto::time::Instant;
use roadtrain_wire::cross_reset::{ControllerInstance, IMMEDIATE};
use roadtrain_wire::status::Status;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Status for commands that wait for the reservations of a namespace that is gone.
const GONE: Status = Status::INVALID_NAMESPACE.dnr();

/// All exported objects, and the controllers that use them.
#[derive(Debug)]
pub struct TargetControl {
    /// Current configuration.
    pub(super) config: Arc<TargetConfig>,
    pub(super) subsystems: BTreeMap<Arc<str>, TargetSubsystem>,
    pub(super) controllers: BTreeMap<u16, TargetController>,
    /// Ports on Ethernet; they appear and vanish with their interfaces.
    pub(super) frame_listeners: Vec<FrameListener>,
    /// Generation of the discovery log.
    pub(super) genctr: u64,
    /// Identifiers for controllers of subsystems without a range of their own.
    pub(super) cntlids: Cntlids,
    pub(super) claims: Claims,
    pub(super) host_ids: HostIds,
    /// Issuer of instance numbers; `None` until the first controller.
    pub(super) issuer: Option<Issuer>,
    /// Hosts with a key for TLS.
    pub(super) tls_hosts: TlsHosts,
    pub(super) started: Instant,
    /// Earliest deadline of any timer, cached because reactors read it before they block.
    timer: Option<Instant>,
    /// The target is about to shut down: see [`TargetControl::depart`].
    pub(super) departing: bool,
    /// [`TargetControl::hand_over`] was called.
    pub(super) handing_over: bool,
    /// Number of requests of hosts for changes of namespaces.
    pub(super) namespace_requests: u64,
    pub(super) outbox: VecDeque<TargetEvent>,
}

impl TargetControl {
    /// # Errors
    /// The first invalid value in `config`.
    pub fn new(now: Instant, config: &TargetConfig) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(TargetControl {
            config: Arc::new(config.clone()),
            subsystems: config
                .subsystems
                .iter()
                .map(|subsystem| TargetSubsystem::new(subsystem, &config.limits, config.origin))
                .map(|subsystem| (subsystem.nqn.clone(), subsystem))
                .collect(),
            controllers: BTreeMap::new(),
            frame_listeners: Vec::new(),
            genctr: 1,
            cntlids: Cntlids::new(config.limits.cntlid_range()),
            claims: Claims::default(),
            host_ids: HostIds::default(),
            issuer: None,
            tls_hosts: TlsHosts::default(),
            started: now,
            timer: None,
            departing: false,
            handing_over: false,
            namespace_requests: 0,
            outbox: VecDeque::new(),
        })
    }

    /// Returns the limits that the target was started with.
    #[must_use]
    pub fn limits(&self) -> &TargetLimits {
        &self.config.limits
    }

    /// Returns the current configuration.
    #[must_use]
    pub fn config(&self) -> &Arc<TargetConfig> {
        &self.config
    }

    /// Returns the next event for the owner of the connections. Call it until `None` after any other call.
    pub fn poll_event(&mut self) -> Option<TargetEvent> {
        self.outbox.pop_front()
    }

    /// Returns the subsystems' NQNs and serial numbers.
    pub fn serials(&self) -> impl Iterator<Item = (&str, &str)> {
        self.subsystems.iter().map(|(nqn, subsystem)| (&**nqn, subsystem.serial.as_str()))
    }

    /// Returns the existing controllers.
    pub fn controllers(&self) -> impl Iterator<Item = ControllerSummary> {
        self.controllers.values().map(|controller| ControllerSummary {
            cntlid: controller.cntlid,
            kind: controller.kind,
            subnqn: controller.subnqn.clone(),
            hostnqn: controller.hostnqn.clone(),
            hostid: controller.hostid,
            io_queues: controller.queues.len(),
            local: controller.local,
            ana: controller.ana.state(),
        })
    }

    /// Returns the active namespaces of a subsystem.
    #[must_use]
    pub fn namespaces(&self, nqn: &str) -> Option<Arc<SubsystemNamespaces>> {
        Some(self.subsystems.get(nqn)?.table.clone())
    }

    /// Sets the current ports on Ethernet. Hosts that read the discovery log over Ethernet find them in it.
    pub fn set_frame_listeners(&mut self, listeners: Vec<FrameListener>) {
        if self.frame_listeners != listeners {
            self.frame_listeners = listeners;
            self.discovery_changed();
        }
    }

    /// Counts a change of the discovery log and notifies the discovery controllers.
    pub(super) fn discovery_changed(&mut self) {
        self.genctr += 1;
        let discovery = |c: &&mut TargetController| c.kind == ControllerKind::Discovery;
        for controller in self.controllers.values_mut().filter(discovery) {
            controller.events.raise(EventNotice::DiscoveryLog);
            controller.complete_event_requests(&mut self.outbox);
        }
    }

    /// Removes a queue whose connection is gone. Losing the admin queue ends the controller: the events that follow
    /// close its I/O queues.
    pub fn disconnect(&mut self, cntlid: u16, qid: u16) {
        if qid == 0 {
            self.drop_controller(cntlid, CloseReason::AdminQueueLost);
        } else if let Some(controller) = self.controllers.get_mut(&cntlid) {
            if !controller.queues.remove(&qid) {
                // The queue was lost before it learned that the controller had closed it.
                controller.draining = controller.draining.saturating_sub(1);
                controller.update_status();
            }
            controller.forget(qid, &mut self.outbox);
        }
    }

    /// Closes all I/O queues of a controller after its host has closed one connection: the host closes all, though the
    /// target may not have noticed yet. The admin queue may still shut the controller down.
    pub fn end_queues(&mut self, cntlid: u16) {
        let Some(controller) = self.controllers.get_mut(&cntlid) else { return };
        for qid in core::mem::take(&mut controller.queues) {
            controller.draining += 1;
            controller.forget(qid, &mut self.outbox);
            let reason = CloseReason::ConnectionLost;
            self.outbox.push_back(TargetEvent::Close { cntlid, qid, reason });
        }
    }

    /// Records that a lane closed by a reset or by Disconnect has no command in a store any more.
    pub fn drained(&mut self, cntlid: u16) {
        if let Some(controller) = self.controllers.get_mut(&cntlid) {
            controller.draining = controller.draining.saturating_sub(1);
            controller.update_status();
        }
    }

    /// Begins a controller shutdown: its lanes execute nothing more. Returns true once none of its commands is in a
    /// store, so that flushes can complete the shutdown. Call it again when a lane has ended or after
    /// [`TargetControl::quiesced`].
    pub fn quiesce(&mut self, cntlid: u16) -> bool {
        let Some(controller) = self.controllers.get_mut(&cntlid) else { return true };
        if controller.quiescing.is_none() {
            controller.properties.begin_shutdown();
            controller.quiescing = Some(controller.queues.clone());
            let quiesce = |&qid: &u16| TargetEvent::Quiesce { cntlid, qid };
            self.outbox.extend(controller.queues.iter().map(quiesce));
        }
        controller.is_quiet()
    }

    /// Records that a queue has no command in a store, after [`TargetEvent::Quiesce`].
    pub fn quiesced(&mut self, cntlid: u16, qid: u16) {
        let quiescing = self.controllers.get_mut(&cntlid).and_then(|c| c.quiescing.as_mut());
        quiescing.map(|quiescing| quiescing.remove(&qid));
    }

    /// Executes a Cross-Controller Reset: command `cid` of a controller drops `named`, a controller of the same host,
    /// by numbers that only the host knows. A controller of this target that is gone has ended. An unknown instance may
    /// belong to an earlier process: nothing of it is left here, but its end was not observed, and the log says no
    /// more.
    pub(super) fn reset_named_controller(
        &mut self,
        now: Instant,
        cntlid: u16,
        cid: u16,
        named: ControllerInstance,
    ) -> AdminOutcome {
        let done = AdminOutcome::Complete { status: Status::SUCCESS, result: IMMEDIATE.into() };
        let is_known = self.issuer.is_some_and(|issuer| issuer.has_issued(&named));
        let Some(controller) = self.controllers.get_mut(&cntlid) else { return done };
        if !is_known {
            controller.resets.note_unknown(now, named);
            controller.events.raise(EventNotice::CrossControllerReset);
            controller.complete_event_requests(&mut self.outbox);
            return AdminOutcome::Complete { status: Status::SUCCESS, result: 0 };
        }
        let Some(controller) = self.controllers.get(&cntlid) else { return done };
        if let Some(other) = self.controllers.get(&named.cntlid) {
            if other.properties.instance() != named {
                return done; // that instance has ended
            }
            if !other.is_of_host(controller) {
                // The named controller is alive, and belongs to another host.
                let status = Status::INVALID_FIELD.dnr();
                return AdminOutcome::Complete { status, result: 0 };
            }
            self.drop_controller(named.cntlid, CloseReason::CrossControllerReset);
        }
        let Some(controller) = self.controllers.get_mut(&cntlid) else { return done };
        let kato = Duration::from_millis(controller.keep_alive.kato_ms().into());
        controller.resets.begin(now, cid, named, kato);
        let deadline = controller.resets.deadline();
        self.set_timer(deadline);
        AdminOutcome::Pending
    }

    /// Completes resets of controllers without leftovers; `has_leftovers` is true for a host's controller with a
    /// connection that may still execute commands.
    pub fn settle_resets(&mut self, has_leftovers: impl Fn(&Arc<str>, u16) -> bool) {
        for controller in self.controllers.values_mut() {
            let over = controller.resets.in_progress();
            let over: Vec<u16> =
                over.filter(|&other| !has_leftovers(&controller.hostnqn, other)).collect();
            for other in over {
                match controller.resets.complete(other) {
                    Some((cid, result)) => {
                        let (cntlid, status) = (controller.cntlid, Status::SUCCESS);
                        let answer = TargetEvent::Completion { cntlid, cid, status, result };
                        self.outbox.push_back(answer);
                    }
                    None => {
                        controller.events.raise(EventNotice::CrossControllerReset);
                        controller.complete_event_requests(&mut self.outbox);
                    }
                }
            }
        }
    }

    /// True if the controller has reset another one that its host had lost, and nothing of that is left.
    #[must_use]
    pub fn has_ended_lost(&self, cntlid: u16) -> bool {
        self.controllers.get(&cntlid).is_some_and(|controller| controller.resets.has_ended())
    }

    /// Completes Cross-Controller Resets whose time is up.
    fn answer_resets(&mut self, now: Instant) {
        for controller in self.controllers.values_mut() {
            while let Some(cid) = controller.resets.expire(now) {
                let (cntlid, status) = (controller.cntlid, Status::SUCCESS);
                self.outbox.push_back(TargetEvent::Completion { cntlid, cid, status, result: 0 });
            }
        }
    }

    /// Completes an Abort after [`TargetEvent::Abort`].
    pub fn aborted(&mut self, cntlid: u16, id: u32, aborted: bool) {
        let cid = self.controllers.get_mut(&cntlid).and_then(|c| c.aborts.finish(id));
        let Some(cid) = cid else { return };
        let (status, result) = (Status::SUCCESS, if aborted { 0 } else { NOT_ABORTED });
        self.outbox.push_back(TargetEvent::Completion { cntlid, cid, status, result });
    }

    pub(super) fn drop_controller(&mut self, cntlid: u16, reason: CloseReason) {
        let Some(controller) = self.controllers.remove(&cntlid) else { return };
        if reason == CloseReason::KeepAliveExpired {
            controller.shared.expire();
        }
        if let Some(subsystem) = self.subsystems.get_mut(&controller.subnqn) {
            subsystem.detach(cntlid);
        }
        let admin = (reason != CloseReason::AdminQueueLost).then_some(0);
        let queues = controller.queues.into_iter().chain(admin);
        // Namespaces may have waited for this controller before they appear for others of its host.
        self.set_timer(self.next_appearance(None));
        self.outbox.extend(queues.map(|qid| TargetEvent::Close { cntlid, qid, reason }));
    }

    /// Returns the time by which [`TargetControl::handle_timeout`] has to be called; it may find nothing to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timer
    }

    /// Notes that a timer was set to `deadline`.
    pub(super) fn set_timer(&mut self, deadline: Option<Instant>) {
        self.timer = self.timer.into_iter().chain(deadline).min();
    }

    /// Drops the controller if its keep-alive timer was not checked for two periods. Returns true if it was dropped.
    pub(super) fn drop_missed(&mut self, now: Instant, cntlid: u16) -> bool {
        let controller = self.controllers.get(&cntlid);
        let is_missed = controller.is_some_and(|c| c.keep_alive.was_missed(now));
        if is_missed {
            self.drop_controller(cntlid, CloseReason::KeepAliveExpired);
        }
        is_missed
    }

    /// Ends the controllers without traffic for their keep-alive timeout, and those whose timers were not checked for
    /// two. Makes namespaces appear that are due, and completes resets of other controllers that take long.
    pub fn handle_timeout(&mut self, now: Instant) {
        let mut expired = Vec::new();
        for controller in self.controllers.values_mut().filter(|c| c.keep_alive.is_due(now)) {
            let was_missed = controller.keep_alive.was_missed(now);
            if controller.shared.take_traffic() && !was_missed {
                controller.keep_alive.restart(now);
            } else {
                expired.push(controller.cntlid);
            }
        }
        for cntlid in expired {
            self.drop_controller(cntlid, CloseReason::KeepAliveExpired);
        }
        self.reveal_due_namespaces(now);
        self.answer_resets(now);
        let timers = |c: &TargetController| [c.keep_alive.deadline(), c.resets.deadline()];
        let timers = self.controllers.values().flat_map(timers).flatten();
        self.timer = timers.chain(self.next_appearance(Some(now))).min();
    }
}

/// Changes to a running target.
impl TargetControl {
    /// Applies all `operations`, or none, and notifies the hosts concerned.
    ///
    /// # Errors
    /// The first error.
    pub fn apply(&mut self, operations: &[ConfigOperation]) -> Result<(), ConfigError> {
        if changed_namespaces(operations).is_some() {
            Arc::make_mut(&mut self.config).change(operations)?;
            operations.iter().for_each(|operation| self.execute(operation));
            self.rebuild_tables();
            return Ok(());
        }
        let next = self.config.with(operations)?;
        // The final state decides which hosts may stay, so that a host that is named again keeps its connections.
        self.admit(&next);
        self.end_keyless(&next.authentication);
        self.end_unadmitted(&next.authentication, &next.listeners);
        operations.iter().for_each(|operation| self.execute(operation));
        let log = |config: &TargetConfig| (config.listeners.clone(), config.referrals.clone());
        let is_another_log = log(&self.config) != log(&next);
        self.config = Arc::new(next);
        if is_another_log {
            self.discovery_changed();
        }
        self.rebuild_tables();
        self.update_ana();
        Ok(())
    }

    /// Rebuilds the tables of changed namespaces, once after all operations.
    fn rebuild_tables(&mut self) {
        self.subsystems.values_mut().for_each(TargetSubsystem::rebuild_table);
    }

    /// Updates the subsystems' hosts and numbers, and closes the controllers of hosts that lost their access.
    fn admit(&mut self, next: &TargetConfig) {
        for config in &next.subsystems {
            let Some(subsystem) = self.subsystems.get_mut(config.nqn.as_str()) else { continue };
            subsystem.rename(config, self.config.origin);
            let is_elsewhere = subsystem.listeners != config.listeners;
            subsystem.management.clone_from(&config.management);
            subsystem.listeners.clone_from(&config.listeners);
            subsystem.ana_groups.clone_from(&config.ana_groups);
            if is_elsewhere {
                self.discovery_changed();
            }
            let Some(subsystem) = self.subsystems.get_mut(config.nqn.as_str()) else { continue };
            if subsystem.allowed_hosts == config.allowed_hosts {
                continue;
            }
            subsystem.allowed_hosts.clone_from(&config.allowed_hosts);
            let nqn = subsystem.nqn.clone();
            let refused = |c: &&TargetController| c.subnqn == nqn && !subsystem.allows(&c.hostnqn);
            let refused: Vec<u16> =
                self.controllers.values().filter(refused).map(|c| c.cntlid).collect();
            for cntlid in refused {
                self.drop_controller(cntlid, CloseReason::HostNotAllowed);
            }
            self.discovery_changed();
        }
    }

    /// Executes one checked operation.
    fn execute(&mut self, operation: &ConfigOperation) {
        match operation {
            ConfigOperation::AddSubsystem(config) => {
                let TargetConfig { limits, origin, .. } = &*self.config;
                let subsystem = TargetSubsystem::new(config, limits, *origin);
                self.subsystems.insert(subsystem.nqn.clone(), subsystem);
                self.discovery_changed();
            }
            ConfigOperation::RemoveSubsystem { nqn } => {
                let Some(gone) = self.subsystems.remove(nqn.as_str()) else { return };
                for reservations in gone.reservations.into_values() {
                    self.end_reservations(reservations.end().0, GONE);
                }
                for cntlid in gone.attached.into_keys() {
                    self.drop_controller(cntlid, CloseReason::SubsystemRemoved);
                }
                self.host_ids.forget(nqn);
                self.discovery_changed();
            }
            ConfigOperation::AddNamespace { nqn, namespace }
            | ConfigOperation::ReplaceNamespace { nqn, namespace } => {
                let replace =
                    |subsystem: &mut TargetSubsystem| subsystem.replace(namespace.clone());
                self.change_namespace(nqn, namespace.nsid, replace);
            }
            ConfigOperation::RemoveNamespace { nqn, nsid } => {
                self.change_namespace(nqn, *nsid, |subsystem| subsystem.remove(*nsid));
            }
            ConfigOperation::ResizeNamespace { nqn, nsid, bytes } => {
                self.change_namespace(nqn, *nsid, |subsystem| subsystem.resize(*nsid, *bytes));
            }
            ConfigOperation::ViewNamespace { nqn, nsid, view } => {
                self.change_namespace(nqn, *nsid, |subsystem| subsystem.set_view(*nsid, view));
            }
            // See `admit` and `apply`.
            ConfigOperation::SetSubsystem { .. }
            | ConfigOperation::SetNamespaceManagement { .. }
            | ConfigOperation::SetListeners { .. }
            | ConfigOperation::SetGroupAna { .. }
            | ConfigOperation::AllowAnyHost { .. }
            | ConfigOperation::AllowHost { .. }
            | ConfigOperation::DisallowHost { .. }
            | ConfigOperation::LimitNamespace { .. }
            | ConfigOperation::LimitHost { .. }
            | ConfigOperation::Listen(_)
            | ConfigOperation::Unlisten(_)
            | ConfigOperation::SetTls(_)
            | ConfigOperation::SetAna { .. }
            | ConfigOperation::SetKeys { .. }
            | ConfigOperation::AddReferral(_)
            | ConfigOperation::RemoveReferral(_)
            | ConfigOperation::SetAuthentication(_) => {}
        }
    }

    /// Changes a namespace by `change`, which returns true if the namespace is gone.
    fn change_namespace(
        &mut self,
        nqn: &str,
        nsid: u32,
        change: impl FnOnce(&mut TargetSubsystem) -> bool,
    ) {
        let config = |target: &Self| target.subsystems.get(nqn)?.config(nsid).cloned();
        let before = config(self);
        let is_gone = self.subsystems.get_mut(nqn).is_some_and(change);
        let after = config(self);
        self.note_change(nqn, nsid, (before.as_ref(), after.as_ref()), is_gone);
        let out_of_reach = after.and_then(|config| config.ana.refusal());
        let subsystem = self.subsystems.get_mut(nqn);
        if let Some(origins) = subsystem.and_then(|one| one.refresh_reservations(nsid)) {
            self.end_reservations(origins, out_of_reach.unwrap_or(GONE));
            // The host's notification masks of a namespace live as long as the namespace, whichever target owns its
            // blocks.
            let concerned = self.controllers.values_mut();
            let concerned = concerned.filter(|c| is_gone && *c.subnqn == *nqn);
            concerned.for_each(|controller| controller.notices.forget(nsid));
        }
        if let Some(status) = out_of_reach {
            let subsystem = self.subsystems.get_mut(nqn);
            let reservations = subsystem.and_then(|one| one.reservations.get_mut(&nsid));
            let origins = reservations.map(NamespaceReservations::suspend).unwrap_or_default();
            self.end_reservations(origins, status);
        }
        // Lanes update their tables once for several operations.
        let is_announced = matches!(self.outbox.back(),
            Some(TargetEvent::NamespacesChanged { nqn: last }) if **last == *nqn);
        if !is_announced {
            self.outbox.push_back(TargetEvent::NamespacesChanged { nqn: nqn.into() });
        }
    }
}
