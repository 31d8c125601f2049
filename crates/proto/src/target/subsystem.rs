//! NVM subsystems.

use super::config::{ConfigError, Limits, NamespaceConfig, SubsystemConfig};
use super::controller::{ControllerShared, Usage};
use super::identity;
use super::namespace::{Namespace, NamespaceTable};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// An NVM subsystem: its namespaces and who may use them.
#[derive(Debug)]
pub(super) struct Subsystem {
    pub(super) nqn: Arc<str>,
    pub(super) serial: String,
    pub(super) model: String,
    pub(super) allowed_hosts: Option<BTreeSet<String>>,
    pub(super) namespaces: BTreeMap<u32, Namespace>,
    /// Changes to the namespaces, also the change count of the ANA group.
    pub(super) generation: u64,
    pub(super) table: Arc<NamespaceTable>,
    /// Controllers, for the sums in the SMART log.
    pub(super) attached: BTreeMap<u16, Arc<ControllerShared>>,
    /// What controllers that are gone had done.
    pub(super) retired: Usage,
    transfer_bytes_max: u32,
}

impl Subsystem {
    pub(super) fn new(config: &SubsystemConfig, limits: &Limits, origin: u128) -> Self {
        let make = |namespace: &NamespaceConfig| {
            (namespace.nsid, Namespace::new(&config.nqn, namespace.clone()))
        };
        let mut subsystem = Subsystem {
            nqn: config.nqn.as_str().into(),
            serial: config.serial.clone().unwrap_or_else(|| identity::serial(origin, &config.nqn)),
            model: config.model.clone(),
            allowed_hosts: config.allowed_hosts.clone(),
            namespaces: config.namespaces.iter().map(make).collect(),
            generation: 0,
            table: Arc::default(),
            attached: BTreeMap::new(),
            retired: Usage::default(),
            transfer_bytes_max: limits.transfer_bytes_max(),
        };
        subsystem.changed();
        subsystem
    }

    pub(super) fn allows(&self, hostnqn: &str) -> bool {
        self.allowed_hosts.as_ref().is_none_or(|hosts| hosts.contains(hostnqn))
    }

    /// Adds a namespace.
    pub(super) fn add(&mut self, config: NamespaceConfig) -> Result<(), ConfigError> {
        config.check(&self.nqn)?;
        if self.namespaces.contains_key(&config.nsid) {
            return Err(ConfigError::DuplicateNamespace(self.nqn.to_string(), config.nsid));
        }
        self.replace(config);
        Ok(())
    }

    /// Adds or replaces a namespace whose configuration was checked.
    pub(super) fn replace(&mut self, config: NamespaceConfig) {
        self.namespaces.insert(config.nsid, Namespace::new(&self.nqn, config));
        self.changed();
    }

    pub(super) fn remove(&mut self, nsid: u32) -> Result<(), ConfigError> {
        self.namespaces.remove(&nsid).ok_or_else(|| self.unknown(nsid))?;
        self.changed();
        Ok(())
    }

    pub(super) fn resize(&mut self, nsid: u32, blocks: u64) -> Result<(), ConfigError> {
        let namespace = self.namespaces.get(&nsid).ok_or_else(|| self.unknown(nsid))?;
        let config = NamespaceConfig { blocks, ..namespace.config.clone() };
        config.check(&self.nqn)?;
        self.replace(config);
        Ok(())
    }

    fn unknown(&self, nsid: u32) -> ConfigError {
        ConfigError::UnknownNamespace(self.nqn.to_string(), nsid)
    }

    fn changed(&mut self) {
        self.generation += 1;
        let entry = |(nsid, ns): (&u32, &Namespace)| (*nsid, ns.geometry(self.transfer_bytes_max));
        let entries = self.namespaces.iter().map(entry).collect();
        self.table = Arc::new(NamespaceTable::new(self.generation, entries));
    }

    /// What hosts have read and written since the target started.
    pub(super) fn usage(&self) -> Usage {
        self.attached.values().fold(self.retired, |sum, shared| sum.plus(&shared.usage()))
    }

    pub(super) fn attach(&mut self, cntlid: u16, shared: Arc<ControllerShared>) {
        self.attached.insert(cntlid, shared);
    }

    pub(super) fn detach(&mut self, cntlid: u16) {
        if let Some(shared) = self.attached.remove(&cntlid) {
            self.retired = self.retired.plus(&shared.usage());
        }
    }
}
