//! NVM subsystems.

use super::ana::{AnaState, AnaStates};
use super::cntlids::Cntlids;
use super::config::{NamespaceConfig, NamespaceDescription, SubsystemConfig, TargetLimits};
use super::controller::{CommandUsage, ControllerShared, TargetController};
use super::identity;
use super::namespace::{ExportedNamespace, SubsystemNamespaces};
use super::namespace_request::NamespaceManagement;
use super::reservations::{NamespaceReservations, ReservationOrigin};
use super::view::NamespaceView;
use core::net::SocketAddr;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// An NVM subsystem: its namespaces, and the hosts that may use them.
#[derive(Debug)]
pub(super) struct TargetSubsystem {
    pub(super) nqn: Arc<str>,
    pub(super) serial: String,
    pub(super) model: String,
    pub(super) allowed_hosts: Option<BTreeSet<String>>,
    /// Listeners at which it is reachable; `None`: all that are not reserved.
    pub(super) listeners: Option<BTreeMap<SocketAddr, AnaState>>,
    /// ANA states of groups at listeners.
    pub(super) ana_groups: BTreeMap<u32, AnaStates>,
    /// Allocator of its controllers' identifiers; `None`: the target's.
    pub(super) cntlids: Option<Cntlids>,
    /// Limits of Dataset Management and Write Zeroes, as in Identify.
    pub(super) dmrsl: u32,
    pub(super) wzsl: u8,
    pub(super) namespaces: BTreeMap<u32, ExportedNamespace>,
    /// Reservations of each namespace.
    pub(super) reservations: BTreeMap<u32, NamespaceReservations>,
    /// Last turn number of reservations whose namespace is gone.
    turn_last: u64,
    /// Number of changes to the namespaces.
    generation: u64,
    /// Namespaces as a host sees them that sees all, over an optimized path.
    pub(super) table: Arc<SubsystemNamespaces>,
    /// True if some namespaces are not seen by all hosts.
    has_hidden: bool,
    /// True until [`TargetSubsystem::rebuild_table`] has followed the last change.
    is_table_stale: bool,
    /// Management of its namespaces by hosts.
    pub(super) management: Option<NamespaceManagement>,
    /// Its controllers.
    pub(super) attached: BTreeMap<u16, AttachedController>,
    /// Usage of controllers that are gone.
    pub(super) retired: CommandUsage,
    transfer_bytes_max: u32,
}

/// A controller of a subsystem.
#[derive(Debug)]
pub(super) struct AttachedController {
    pub(super) shared: Arc<ControllerShared>,
    pub(super) hostnqn: Arc<str>,
}

impl TargetSubsystem {
    pub(super) fn new(config: &SubsystemConfig, limits: &TargetLimits, origin: u128) -> Self {
        let make = |namespace: &NamespaceConfig| {
            (namespace.nsid, ExportedNamespace::new(&config.nqn, namespace.clone()))
        };
        let cntlids = config.cntlid_range(limits);
        let mut subsystem = TargetSubsystem {
            nqn: config.nqn.as_str().into(),
            serial: serial(config, origin),
            model: config.model.clone(),
            allowed_hosts: config.allowed_hosts.clone(),
            listeners: config.listeners.clone(),
            ana_groups: config.ana_groups.clone(),
            cntlids: (cntlids != limits.cntlid_range()).then(|| Cntlids::new(cntlids)),
            dmrsl: config.dmrsl,
            wzsl: config.wzsl,
            namespaces: config.namespaces.iter().map(make).collect(),
            reservations: BTreeMap::new(),
            turn_last: 0,
            generation: 0,
            table: Arc::default(),
            has_hidden: false,
            is_table_stale: true,
            management: config.management.clone(),
            attached: BTreeMap::new(),
            retired: CommandUsage::default(),
            transfer_bytes_max: limits.transfer_bytes_max(),
        };
        subsystem.changed();
        subsystem.rebuild_table();
        let nsids: Vec<u32> = subsystem.namespaces.keys().copied().collect();
        for nsid in nsids {
            subsystem.refresh_reservations(nsid);
        }
        subsystem
    }

    /// Updates reservations after a change of a namespace: they belong to its blocks, and end with them or when another
    /// target has owned these. Returns the origins of commands that have ended with them; `None`: nothing has ended.
    pub(super) fn refresh_reservations(&mut self, nsid: u32) -> Option<Vec<ReservationOrigin>> {
        let namespace = self.namespaces.get(&nsid);
        let is_same = |old: &NamespaceReservations, new: &ExportedNamespace| {
            old.is_of(&new.id.nguid) && old.tenure() == new.config.ownership_term
        };
        let is_of = |old: &NamespaceReservations| namespace.is_some_and(|new| is_same(old, new));
        let ended = match self.reservations.get(&nsid) {
            Some(old) if is_of(old) => None,
            Some(_) => self.reservations.remove(&nsid).map(NamespaceReservations::end),
            None => None,
        };
        let ended = ended.map(|(origins, last)| {
            self.turn_last = self.turn_last.max(last);
            origins
        });
        if let Some(ExportedNamespace { config, id }) = namespace {
            let (keeps, first) = (config.keeps_reservations, self.turn_last);
            let new =
                || NamespaceReservations::new((id.nguid, config.ownership_term), keeps, first);
            self.reservations.entry(nsid).or_insert_with(new).set_can_persist(keeps);
        }
        ended
    }

    pub(super) fn allows(&self, hostnqn: &str) -> bool {
        self.allowed_hosts.as_ref().is_none_or(|hosts| hosts.contains(hostnqn))
    }

    /// Applies the serial and model numbers of `config`.
    pub(super) fn rename(&mut self, config: &SubsystemConfig, origin: u128) {
        self.serial = serial(config, origin);
        self.model.clone_from(&config.model);
    }

    /// Adds or replaces a namespace. Returns true if one with other blocks is gone.
    pub(super) fn replace(&mut self, config: NamespaceConfig) -> bool {
        let new = ExportedNamespace::new(&self.nqn, config);
        let id = new.id;
        let old = self.namespaces.insert(new.config.nsid, new);
        self.changed();
        old.is_some_and(|old| old.id != id)
    }

    /// Removes a namespace. Returns true if it existed.
    pub(super) fn remove(&mut self, nsid: u32) -> bool {
        let gone = self.namespaces.remove(&nsid);
        self.changed();
        gone.is_some()
    }

    /// Sets the checked size of a namespace. Returns true if one with other blocks is gone, which is never the case.
    pub(super) fn resize(&mut self, nsid: u32, bytes: u64) -> bool {
        match self.namespaces.get(&nsid).map(|namespace| namespace.config.resized(bytes)) {
            Some(Ok(config)) => self.replace(config),
            _ => false,
        }
    }

    /// Sets the view of a namespace. Returns true if one with other blocks is gone, which is never the case.
    pub(super) fn set_view(&mut self, nsid: u32, view: &NamespaceView) -> bool {
        let viewed = self.config(nsid).map(|config| config.viewed(view.clone()));
        viewed.is_some_and(|config| self.replace(config))
    }

    pub(super) fn config(&self, nsid: u32) -> Option<&NamespaceConfig> {
        self.namespaces.get(&nsid).map(|namespace| &namespace.config)
    }

    fn changed(&mut self) {
        self.generation += 1;
        self.is_table_stale = true;
    }

    /// Makes the table of the present namespaces, if they have changed. For use after the last of several changes.
    pub(super) fn rebuild_table(&mut self) {
        if !std::mem::take(&mut self.is_table_stale) {
            return;
        }
        self.has_hidden = self.namespaces.values().any(|one| one.config.view.hosts.is_some());
        let all = self.namespaces.values().map(|namespace| (namespace, namespace.config.ana));
        let (ana, transfer_max) = (AnaState::Optimized, self.transfer_bytes_max);
        self.table = Arc::new(SubsystemNamespaces::new(self.generation, all, ana, transfer_max));
    }

    /// Returns the namespaces that are active for a controller.
    pub(super) fn table_of(&self, controller: &TargetController) -> Arc<SubsystemNamespaces> {
        let ana = &controller.ana;
        if !self.has_hidden && controller.removed.is_empty() && ana.is_optimized() {
            return self.table.clone();
        }
        let seen = self.seen_by(controller);
        let seen = seen.map(|namespace| (namespace, ana.of(&namespace.config)));
        let transfer_max = self.transfer_bytes_max;
        Arc::new(SubsystemNamespaces::new(self.generation, seen, ana.state(), transfer_max))
    }

    /// Returns the namespaces that a host sees, over an optimized path.
    pub(super) fn table_of_host(&self, hostnqn: &str) -> Arc<SubsystemNamespaces> {
        if !self.has_hidden {
            return self.table.clone();
        }
        let all = self.namespaces.values();
        let seen = all.filter(|namespace| namespace.config.view.shows_to(hostnqn));
        let seen = seen.map(|namespace| (namespace, namespace.config.ana));
        let (ana, transfer_max) = (AnaState::Optimized, self.transfer_bytes_max);
        Arc::new(SubsystemNamespaces::new(self.generation, seen, ana, transfer_max))
    }

    /// Returns the namespaces that are active for a controller, in increasing order of NSID.
    pub(super) fn seen_by<'a>(
        &'a self,
        controller: &'a TargetController,
    ) -> impl Iterator<Item = &'a ExportedNamespace> {
        self.namespaces.values().filter(|namespace| controller.sees(&namespace.config))
    }

    /// Returns the namespace `nsid` if it is active for a controller.
    pub(super) fn seen(
        &self,
        controller: &TargetController,
        nsid: u32,
    ) -> Option<&ExportedNamespace> {
        self.namespaces.get(&nsid).filter(|namespace| controller.sees(&namespace.config))
    }

    /// Returns the usage of all hosts since the target's start.
    pub(super) fn usage(&self) -> CommandUsage {
        self.attached.values().fold(self.retired, |sum, one| sum.plus(&one.shared.usage()))
    }

    pub(super) fn attach(&mut self, cntlid: u16, controller: AttachedController) {
        self.attached.insert(cntlid, controller);
    }

    pub(super) fn detach(&mut self, cntlid: u16) {
        if let Some(gone) = self.attached.remove(&cntlid) {
            self.retired = self.retired.plus(&gone.shared.usage());
        }
    }
}

fn serial(config: &SubsystemConfig, origin: u128) -> String {
    config.serial.clone().unwrap_or_else(|| identity::serial(origin, &config.nqn))
}
