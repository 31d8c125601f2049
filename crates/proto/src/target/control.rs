//! The control plane as a whole: subsystems and controllers, and how they come, change and go.

use super::config::{
    ConfigError, Limits, Listener, NamespaceConfig, SubsystemConfig, TargetConfig,
};
use super::controller::{Controller, ControllerKind, NOT_ABORTED};
use super::events::Notice;
use super::namespace::{Namespace, NamespaceTable};
use super::subsystem::Subsystem;
use crate::time::Instant;
use roadtrain_wire::status::Status;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Everything a target exports, and everybody who uses it.
#[derive(Debug)]
pub struct Target {
    pub(super) limits: Limits,
    pub(super) origin: u128,
    pub(super) listeners: Vec<Listener>,
    pub(super) subsystems: BTreeMap<Arc<str>, Subsystem>,
    pub(super) controllers: BTreeMap<u16, Controller>,
    /// Generation of the discovery log.
    pub(super) genctr: u64,
    pub(super) cntlid_last: u16,
    pub(super) started: Instant,
    /// No keep alive timer runs out earlier; reactors ask for it before they sleep, so it is kept.
    timer: Option<Instant>,
    pub(super) outbox: VecDeque<TargetEvent>,
}

/// Work for whoever owns the connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetEvent {
    /// Answer an Asynchronous Event Request or an Abort on the controller's admin queue.
    Completion {
        /// The controller.
        cntlid: u16,
        /// The request.
        cid: u16,
        /// Status.
        status: Status,
        /// DW0 and DW1.
        result: u64,
    },
    /// Close a queue's connection; the controller knows it no more.
    Close {
        /// The controller.
        cntlid: u16,
        /// The queue.
        qid: u16,
        /// Why.
        reason: CloseReason,
    },
    /// Abort an I/O command if it can be, then tell [`Target::aborted`]; the command ends before that is told.
    Abort {
        /// The controller.
        cntlid: u16,
        /// The command's queue.
        qid: u16,
        /// The command.
        cid: u16,
        /// Names the Abort.
        id: u32,
    },
    /// Execute nothing more, and tell [`Target::quiesced`] when no command is in a store any more.
    Quiesce {
        /// The controller.
        cntlid: u16,
        /// The queue.
        qid: u16,
    },
    /// Fetch the subsystem's [`NamespaceTable`] again.
    NamespacesChanged {
        /// The subsystem.
        nqn: Arc<str>,
    },
}

/// Why a queue is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// Nothing was heard from the host for its keep alive timeout.
    KeepAliveExpired,
    /// The host has reset the controller, which ends its I/O queues.
    ControllerReset,
    /// The connection of the admin queue was lost.
    AdminQueueLost,
    /// The subsystem is no longer exported.
    SubsystemRemoved,
    /// The host may no longer use the subsystem.
    HostNotAllowed,
}

/// A difference that [`Target::apply`] has made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A subsystem was added, with its namespaces.
    SubsystemAdded(String),
    /// A subsystem was removed, with its namespaces.
    SubsystemRemoved(String),
    /// A namespace was added.
    NamespaceAdded(String, u32),
    /// A namespace was removed.
    NamespaceRemoved(String, u32),
    /// A namespace was changed: its size, block size, protection or anything else.
    NamespaceChanged(String, u32),
    /// A namespace has gone, and another has come under its NSID.
    NamespaceReplaced(String, u32),
}

impl Target {
    /// # Errors
    /// What is wrong with `config`.
    pub fn new(now: Instant, config: &TargetConfig) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Target {
            limits: config.limits,
            origin: config.origin,
            listeners: config.listeners.clone(),
            subsystems: config
                .subsystems
                .iter()
                .map(|subsystem| Subsystem::new(subsystem, &config.limits, config.origin))
                .map(|subsystem| (subsystem.nqn.clone(), subsystem))
                .collect(),
            controllers: BTreeMap::new(),
            genctr: 1,
            cntlid_last: 0,
            started: now,
            timer: None,
            outbox: VecDeque::new(),
        })
    }

    /// The limits the target was started with.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The next thing to do; call until `None` after any other call.
    pub fn poll_event(&mut self) -> Option<TargetEvent> {
        self.outbox.pop_front()
    }

    /// The active namespaces of a subsystem.
    #[must_use]
    pub fn namespaces(&self, nqn: &str) -> Option<Arc<NamespaceTable>> {
        Some(self.subsystems.get(nqn)?.table.clone())
    }

    /// Adds a subsystem.
    ///
    /// # Errors
    /// It is there already, or cannot be.
    pub fn add_subsystem(&mut self, config: &SubsystemConfig) -> Result<(), ConfigError> {
        config.check()?;
        if self.subsystems.contains_key(config.nqn.as_str()) {
            return Err(ConfigError::DuplicateSubsystem(config.nqn.clone()));
        }
        let subsystem = Subsystem::new(config, &self.limits, self.origin);
        self.subsystems.insert(subsystem.nqn.clone(), subsystem);
        self.discovery_changed();
        Ok(())
    }

    /// Removes a subsystem and closes its controllers.
    ///
    /// # Errors
    /// There is none.
    pub fn remove_subsystem(&mut self, nqn: &str) -> Result<(), ConfigError> {
        let unknown = || ConfigError::UnknownSubsystem(nqn.to_owned());
        let subsystem = self.subsystems.remove(nqn).ok_or_else(unknown)?;
        for cntlid in subsystem.attached.into_keys() {
            self.drop_controller(cntlid, CloseReason::SubsystemRemoved);
        }
        self.discovery_changed();
        Ok(())
    }

    /// Adds a namespace; hosts that are connected are told.
    ///
    /// # Errors
    /// The subsystem is not there, the namespace is, or it cannot be.
    pub fn add_namespace(&mut self, nqn: &str, config: NamespaceConfig) -> Result<(), ConfigError> {
        let nsid = config.nsid;
        self.change_namespace(nqn, nsid, |subsystem| subsystem.add(config))
    }

    /// Removes a namespace; hosts that are connected are told.
    ///
    /// # Errors
    /// The subsystem or the namespace is not there.
    pub fn remove_namespace(&mut self, nqn: &str, nsid: u32) -> Result<(), ConfigError> {
        self.subsystem_mut(nqn)?.remove(nsid)?;
        self.depart(nqn, nsid);
        self.change_namespace(nqn, nsid, |_| Ok(()))
    }

    /// Gives a namespace another size; hosts that are connected are told.
    ///
    /// # Errors
    /// The subsystem or the namespace is not there, or the size cannot be.
    pub fn resize_namespace(
        &mut self,
        nqn: &str,
        nsid: u32,
        blocks: u64,
    ) -> Result<(), ConfigError> {
        self.change_namespace(nqn, nsid, |subsystem| subsystem.resize(nsid, blocks))
    }

    /// Sets which hosts may use a subsystem (`None`: all) and closes the controllers of the others.
    ///
    /// # Errors
    /// The subsystem is not there.
    pub fn set_allowed_hosts(
        &mut self,
        nqn: &str,
        allowed: Option<BTreeSet<String>>,
    ) -> Result<(), ConfigError> {
        let subsystem = self.subsystem_mut(nqn)?;
        if subsystem.allowed_hosts == allowed {
            return Ok(());
        }
        subsystem.allowed_hosts = allowed;
        let subsystem = &self.subsystems[nqn];
        let refused = |c: &&Controller| *c.subnqn == *nqn && !subsystem.allows(&c.hostnqn);
        let refused: Vec<u16> =
            self.controllers.values().filter(refused).map(|c| c.cntlid).collect();
        for cntlid in refused {
            self.drop_controller(cntlid, CloseReason::HostNotAllowed);
        }
        self.discovery_changed();
        Ok(())
    }

    fn subsystem_mut(&mut self, nqn: &str) -> Result<&mut Subsystem, ConfigError> {
        let unknown = || ConfigError::UnknownSubsystem(nqn.to_owned());
        self.subsystems.get_mut(nqn).ok_or_else(unknown)
    }

    fn change_namespace(
        &mut self,
        nqn: &str,
        nsid: u32,
        change: impl FnOnce(&mut Subsystem) -> Result<(), ConfigError>,
    ) -> Result<(), ConfigError> {
        let subsystem = self.subsystem_mut(nqn)?;
        change(subsystem)?;
        let nqn = subsystem.nqn.clone();
        for controller in self.controllers.values_mut().filter(|c| c.subnqn == nqn) {
            controller.changed.insert(nsid);
            controller.events.raise(Notice::NamespaceAttribute);
            pump(controller, &mut self.outbox);
        }
        self.outbox.push_back(TargetEvent::NamespacesChanged { nqn });
        Ok(())
    }

    /// The discovery log has other content: tells the discovery controllers.
    pub(super) fn discovery_changed(&mut self) {
        self.genctr += 1;
        let discovery = |c: &&mut Controller| c.kind == ControllerKind::Discovery;
        for controller in self.controllers.values_mut().filter(discovery) {
            controller.events.raise(Notice::DiscoveryLog);
            pump(controller, &mut self.outbox);
        }
    }

    /// The connection of a queue is gone. Losing the admin queue ends the controller: its I/O queues
    /// are to be closed by the events that follow.
    pub fn disconnect(&mut self, cntlid: u16, qid: u16) {
        if qid == 0 {
            self.drop_controller(cntlid, CloseReason::AdminQueueLost);
        } else if let Some(controller) = self.controllers.get_mut(&cntlid) {
            if !controller.queues.remove(&qid) {
                // It was lost before it heard that the controller has given it up.
                controller.draining = controller.draining.saturating_sub(1);
                controller.settle();
            }
            controller.forget(qid, &mut self.outbox);
        }
    }

    /// A lane that the controller had given up, by a reset or by Disconnect, has no command in a store any more.
    pub fn drained(&mut self, cntlid: u16) {
        if let Some(controller) = self.controllers.get_mut(&cntlid) {
            controller.draining = controller.draining.saturating_sub(1);
            controller.settle();
        }
    }

    /// The host shuts the controller down: its lanes execute nothing more. `true` when no command of it is in a
    /// store any more, so that everything can be flushed and the shutdown be complete; ask again when a lane has
    /// ended or [`Target::quiesced`] was told.
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

    /// A queue has no command in a store any more, after [`TargetEvent::Quiesce`].
    pub fn quiesced(&mut self, cntlid: u16, qid: u16) {
        let quiescing = self.controllers.get_mut(&cntlid).and_then(|c| c.quiescing.as_mut());
        quiescing.map(|quiescing| quiescing.remove(&qid));
    }

    /// What has become of a command after [`TargetEvent::Abort`].
    pub fn aborted(&mut self, cntlid: u16, id: u32, aborted: bool) {
        let cid = self.controllers.get_mut(&cntlid).and_then(|c| c.aborts.finish(id));
        let Some(cid) = cid else { return };
        let (status, result) = (Status::SUCCESS, if aborted { 0 } else { NOT_ABORTED });
        self.outbox.push_back(TargetEvent::Completion { cntlid, cid, status, result });
    }

    fn drop_controller(&mut self, cntlid: u16, reason: CloseReason) {
        let Some(controller) = self.controllers.remove(&cntlid) else { return };
        if let Some(subsystem) = self.subsystems.get_mut(&controller.subnqn) {
            subsystem.detach(cntlid);
        }
        let admin = (reason != CloseReason::AdminQueueLost).then_some(0);
        let queues = controller.queues.into_iter().chain(admin);
        // Perhaps what others of its host wait for has waited for it.
        self.set_timer(self.appearance(None));
        self.outbox.extend(queues.map(|qid| TargetEvent::Close { cntlid, qid, reason }));
    }

    /// When [`Target::handle_timeout`] is to be called at the latest; it may find nothing to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timer
    }

    /// A keep alive timer was set to `deadline`.
    pub(super) fn set_timer(&mut self, deadline: Option<Instant>) {
        self.timer = self.timer.into_iter().chain(deadline).min();
    }

    /// Ends the controllers whose hosts were not heard of for their keep alive timeout, and lets namespaces
    /// appear that hosts have had time for.
    pub fn handle_timeout(&mut self, now: Instant) {
        let mut expired = Vec::new();
        for controller in self.controllers.values_mut().filter(|c| c.keep_alive.is_due(now)) {
            if controller.shared.take_traffic() {
                controller.keep_alive.restart(now);
            } else {
                expired.push(controller.cntlid);
            }
        }
        for cntlid in expired {
            self.drop_controller(cntlid, CloseReason::KeepAliveExpired);
        }
        self.let_appear(now);
        let keep_alives = self.controllers.values().filter_map(|c| c.keep_alive.deadline());
        self.timer = keep_alives.chain(self.appearance(Some(now))).min();
    }
}

/// Completes Asynchronous Event Requests while there are both requests and events.
pub(super) fn pump(controller: &mut Controller, outbox: &mut VecDeque<TargetEvent>) {
    while let Some((cid, event)) = controller.events.poll() {
        outbox.push_back(TargetEvent::Completion {
            cntlid: controller.cntlid,
            cid,
            status: Status::SUCCESS,
            result: event.emit().into(),
        });
    }
}

/// Changes to a running target that follow its configuration.
impl Target {
    /// Makes subsystems, namespaces, allow-lists and listeners those of `config` (the limits stay) and
    /// tells the hosts concerned. Returns what changed; nothing has when it fails.
    ///
    /// # Errors
    /// What is wrong with `config`.
    pub fn apply(&mut self, config: &TargetConfig) -> Result<Vec<Change>, ConfigError> {
        config.check()?;
        let mut changes = Vec::new();
        let wanted: BTreeSet<&str> = config.subsystems.iter().map(|s| s.nqn.as_str()).collect();
        let gone = self.subsystems.keys().filter(|nqn| !wanted.contains(&***nqn));
        for nqn in gone.cloned().collect::<Vec<_>>() {
            self.remove_subsystem(&nqn)?;
            changes.push(Change::SubsystemRemoved(nqn.to_string()));
        }
        for subsystem in &config.subsystems {
            if self.subsystems.contains_key(subsystem.nqn.as_str()) {
                self.apply_subsystem(subsystem, &mut changes)?;
            } else {
                self.add_subsystem(subsystem)?;
                changes.push(Change::SubsystemAdded(subsystem.nqn.clone()));
            }
        }
        if self.listeners != config.listeners {
            self.listeners.clone_from(&config.listeners);
            self.discovery_changed();
        }
        Ok(changes)
    }

    fn apply_subsystem(
        &mut self,
        config: &SubsystemConfig,
        changes: &mut Vec<Change>,
    ) -> Result<(), ConfigError> {
        let nqn = &config.nqn;
        self.set_allowed_hosts(nqn, config.allowed_hosts.clone())?;
        let subsystem = self.subsystem_mut(nqn)?;
        subsystem.model.clone_from(&config.model);
        if let Some(serial) = &config.serial {
            subsystem.serial.clone_from(serial);
        }
        let wanted: BTreeSet<u32> = config.namespaces.iter().map(|ns| ns.nsid).collect();
        let gone = subsystem.namespaces.keys().filter(|nsid| !wanted.contains(nsid));
        for nsid in gone.copied().collect::<Vec<_>>() {
            self.remove_namespace(nqn, nsid)?;
            changes.push(Change::NamespaceRemoved(nqn.clone(), nsid));
        }
        for namespace in &config.namespaces {
            let nsid = namespace.nsid;
            let new_id = Namespace::new(nqn, namespace.clone()).id;
            match self.subsystems[nqn.as_str()].namespaces.get(&nsid) {
                Some(old) if old.config == *namespace => continue,
                Some(old) if old.id != new_id => {
                    self.depart(nqn, nsid);
                    changes.push(Change::NamespaceReplaced(nqn.clone(), nsid));
                }
                Some(_) => changes.push(Change::NamespaceChanged(nqn.clone(), nsid)),
                None => changes.push(Change::NamespaceAdded(nqn.clone(), nsid)),
            }
            let namespace = namespace.clone();
            self.change_namespace(nqn, nsid, |subsystem| {
                subsystem.replace(namespace);
                Ok(())
            })?;
        }
        Ok(())
    }
}
