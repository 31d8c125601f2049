//! Changes to a target's configuration, as values.
//!
//! Every change to a running target is a list of [`ConfigOperation`]s: of an RPC request, or of a configuration file that is
//! read again. [`TargetConfig::with`] checks the list and applies it as a whole, or not at all.
//! [`TargetConfig::operations_to`] is its inverse: it returns the changes between two configurations.
//!
//! The same operations work on two configurations. In the requested one a namespace names its store; in the one that
//! hosts see it has a size and an identity. [`NamespaceDescription`] is the common interface of both.

use super::ana::{AnaListener, AnaState, AnaStates};
use super::authentication::HostAuthentication;
use super::config::{
    NamespaceConfig, NamespaceDescription, SubsystemConfig, TargetConfig, check_host,
    check_namespace,
};
use super::config_error::{ConfigError, ConfigObject};
use super::listen::{TargetListener, TlsUse};
use super::namespace_request::NamespaceManagement;
use super::rate::RateSettings;
use super::view::NamespaceView;
use core::fmt;
use core::net::SocketAddr;
use roadtrain_proto::security::dhchap::DhchapKeys;
use std::collections::{BTreeMap, BTreeSet};

/// One change to a target's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigOperation<N = NamespaceConfig> {
    /// Adds a subsystem, with its namespaces.
    AddSubsystem(SubsystemConfig<N>),
    /// Removes a subsystem, with its namespaces; its controllers end.
    RemoveSubsystem {
        nqn: String,
    },
    /// Sets a subsystem's serial number and model number.
    SetSubsystem {
        nqn: String,
        serial: Option<String>,
        model: String,
    },
    /// Sets which hosts may manage the namespaces of a subsystem; `None`: none.
    SetNamespaceManagement {
        nqn: String,
        management: Option<NamespaceManagement>,
    },
    /// Sets the listeners at which a subsystem is reachable; existing controllers stay.
    SetListeners {
        nqn: String,
        /// Listeners, as in [`SubsystemConfig::listeners`].
        listeners: Option<BTreeMap<SocketAddr, AnaState>>,
    },
    AddNamespace {
        nqn: String,
        namespace: N,
    },
    /// Removes a namespace.
    RemoveNamespace {
        nqn: String,
        nsid: u32,
    },
    /// Replaces the namespace with that NSID: by the same blocks in another way, or by other blocks.
    ReplaceNamespace {
        nqn: String,
        namespace: N,
    },
    /// Sets the size of a namespace.
    ResizeNamespace {
        nqn: String,
        nsid: u32,
        /// New size in bytes.
        bytes: u64,
    },
    /// Lets any host use a subsystem, or only named ones.
    AllowAnyHost {
        nqn: String,
        /// True if any host may use it.
        allow: bool,
    },
    /// Lets a host use a subsystem.
    AllowHost {
        nqn: String,
        host: String,
    },
    /// Revokes a host's use of a subsystem; its controllers end.
    DisallowHost {
        nqn: String,
        host: String,
    },
    /// Sets the rate limits of a namespace, for all hosts together.
    LimitNamespace {
        nqn: String,
        nsid: u32,
        rates: RateSettings,
    },
    /// Sets which hosts see a namespace, and its ANA group.
    ViewNamespace {
        nqn: String,
        nsid: u32,
        view: NamespaceView,
    },
    /// Sets the ANA state of a group of a subsystem at a listener, and notifies the hosts connected there. `None`: the
    /// state of the listener.
    SetGroupAna {
        nqn: String,
        group: u32,
        listener: AnaListener,
        state: Option<AnaState>,
    },
    /// Sets the rate limits of a host, for all namespaces of a subsystem together.
    LimitHost {
        nqn: String,
        host: String,
        rates: RateSettings,
    },
    /// Opens a listener.
    Listen(TargetListener),
    /// Closes a listener; existing connections stay.
    Unlisten(TargetListener),
    /// Sets the use of TLS at a listener; existing connections stay.
    SetTls(TargetListener),
    /// Sets the ANA state of a listener, and notifies the hosts connected there. `None`: the state of the listener at
    /// the unspecified address, or optimized.
    SetAna {
        listener: AnaListener,
        state: Option<AnaState>,
    },
    /// Sets the authentication required of hosts when they connect, and when they authenticate again.
    SetAuthentication(HostAuthentication),
    /// Sets a host's keys for one subsystem, or (`None`) removes them.
    SetKeys {
        nqn: String,
        host: String,
        keys: Option<DhchapKeys>,
    },
    /// Adds a referral to another discovery controller.
    AddReferral(SocketAddr),
    /// Removes a referral.
    RemoveReferral(SocketAddr),
}

impl<N: NamespaceDescription> ConfigOperation<N> {
    /// Returns the object concerned.
    #[must_use]
    pub fn place(&self) -> ConfigObject {
        match self {
            ConfigOperation::AddSubsystem(SubsystemConfig { nqn, .. })
            | ConfigOperation::RemoveSubsystem { nqn }
            | ConfigOperation::SetSubsystem { nqn, .. }
            | ConfigOperation::SetNamespaceManagement { nqn, .. }
            | ConfigOperation::SetListeners { nqn, .. }
            | ConfigOperation::SetGroupAna { nqn, .. }
            | ConfigOperation::AllowAnyHost { nqn, .. } => ConfigObject::subsystem(nqn),
            ConfigOperation::AddNamespace { nqn, namespace }
            | ConfigOperation::ReplaceNamespace { nqn, namespace } => {
                ConfigObject::namespace(nqn, namespace.nsid())
            }
            ConfigOperation::RemoveNamespace { nqn, nsid }
            | ConfigOperation::LimitNamespace { nqn, nsid, .. }
            | ConfigOperation::ViewNamespace { nqn, nsid, .. }
            | ConfigOperation::ResizeNamespace { nqn, nsid, .. } => {
                ConfigObject::namespace(nqn, *nsid)
            }
            ConfigOperation::AllowHost { nqn, host }
            | ConfigOperation::DisallowHost { nqn, host }
            | ConfigOperation::SetKeys { nqn, host, .. }
            | ConfigOperation::LimitHost { nqn, host, .. } => {
                ConfigObject::Host(nqn.clone(), host.clone())
            }
            ConfigOperation::Listen(listener)
            | ConfigOperation::Unlisten(listener)
            | ConfigOperation::SetTls(listener) => ConfigObject::Listener(listener.address),
            ConfigOperation::SetAna { listener, .. } => ConfigObject::Ana(*listener),
            ConfigOperation::SetAuthentication(_) => ConfigObject::Authentication,
            ConfigOperation::AddReferral(address) | ConfigOperation::RemoveReferral(address) => {
                ConfigObject::Referral(*address)
            }
        }
    }
}

/// Description of the change, for logs and replies.
impl<N: NamespaceDescription> fmt::Display for ConfigOperation<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self {
            ConfigOperation::AddSubsystem(_)
            | ConfigOperation::AddNamespace { .. }
            | ConfigOperation::Listen(_)
            | ConfigOperation::AddReferral(_) => "added",
            ConfigOperation::RemoveSubsystem { .. }
            | ConfigOperation::RemoveNamespace { .. }
            | ConfigOperation::Unlisten(_)
            | ConfigOperation::RemoveReferral(_) => "removed",
            ConfigOperation::SetSubsystem { serial: Some(serial), model, .. } => {
                return write!(f, "{}: serial number {serial}, model number {model}", self.place());
            }
            ConfigOperation::SetSubsystem { serial: None, model, .. } => {
                return write!(f, "{}: its own serial number, model number {model}", self.place());
            }
            ConfigOperation::SetNamespaceManagement { management, .. } => match management {
                Some(_) => "administrators may manage its namespaces",
                None => "no host may manage its namespaces",
            },
            ConfigOperation::SetListeners { .. } => "can be reached at other listeners",
            ConfigOperation::ReplaceNamespace { .. } => "replaced",
            ConfigOperation::ResizeNamespace { bytes, .. } => {
                return write!(f, "{}: resized to {bytes} bytes", self.place());
            }
            ConfigOperation::AllowAnyHost { allow: true, .. } => "any host allowed",
            ConfigOperation::AllowAnyHost { allow: false, .. } => "only named hosts allowed",
            ConfigOperation::AllowHost { .. } => "allowed",
            ConfigOperation::DisallowHost { .. } => "not allowed any more",
            ConfigOperation::LimitNamespace { rates, .. }
            | ConfigOperation::LimitHost { rates, .. } => {
                return write!(f, "{}: {rates}", self.place());
            }
            ConfigOperation::ViewNamespace { view, .. } => {
                return write!(f, "{}: {view}", self.place());
            }
            ConfigOperation::SetGroupAna { group, listener, state, .. } => {
                let place = self.place();
                return match state {
                    Some(state) => {
                        write!(f, "{place}: ANA group {group} at {listener}: {state}")
                    }
                    None => write!(f, "{place}: ANA group {group} as {listener}"),
                };
            }
            ConfigOperation::SetTls(listener) => match listener.tls {
                TlsUse::Off => "new connections have no TLS",
                TlsUse::Allowed => "new connections may have TLS",
                TlsUse::Required => "new connections need TLS",
            },
            ConfigOperation::SetAna { state: Some(state), .. } => {
                return write!(f, "{}: ANA {state}", self.place());
            }
            ConfigOperation::SetAna { state: None, .. } => "no ANA state of its own",
            ConfigOperation::SetAuthentication(_) => "other keys or requirements",
            ConfigOperation::SetKeys { .. } => "other keys",
        };
        write!(f, "{}: {what}", self.place())
    }
}

impl<N: NamespaceDescription> TargetConfig<N> {
    /// Returns the configuration after `operations`, in their order. Only the final one has to be valid, so that
    /// namespaces can change places.
    ///
    /// # Errors
    /// The first error.
    pub fn with(&self, operations: &[ConfigOperation<N>]) -> Result<Self, ConfigError> {
        let mut next = self.clone();
        operations.iter().try_for_each(|operation| next.apply(operation))?;
        next.check()?;
        Ok(next)
    }

    pub(super) fn apply(&mut self, operation: &ConfigOperation<N>) -> Result<(), ConfigError> {
        match operation {
            ConfigOperation::AddSubsystem(new) => {
                let is_there = self.subsystems.iter().any(|subsystem| subsystem.nqn == new.nqn);
                add_unless(is_there, &mut self.subsystems, new, operation)
            }
            ConfigOperation::RemoveSubsystem { nqn } => {
                let at = self.subsystems.iter().position(|subsystem| subsystem.nqn == *nqn);
                self.subsystems.remove(at.ok_or_else(|| ConfigError::Unknown(operation.place()))?);
                Ok(())
            }
            ConfigOperation::Listen(listener) => {
                self.listeners.push(*listener);
                Ok(())
            }
            ConfigOperation::Unlisten(listener) => self.unlisten(listener),
            ConfigOperation::SetTls(listener) => {
                let mut all = self.listeners.iter_mut();
                let there = all.find(|one| one.is_same_listener(listener));
                *there.ok_or_else(|| ConfigError::Unknown(operation.place()))? = *listener;
                Ok(())
            }
            ConfigOperation::SetAna { listener, state } => {
                self.ana.set(*listener, *state);
                Ok(())
            }
            ConfigOperation::SetAuthentication(authentication) => {
                self.authentication = authentication.clone();
                Ok(())
            }
            ConfigOperation::SetKeys { nqn, host, keys } => {
                self.authentication.set_keys(nqn, host, keys.clone());
                Ok(())
            }
            ConfigOperation::AddReferral(address) => {
                self.referrals.push(*address);
                Ok(())
            }
            ConfigOperation::RemoveReferral(address) => {
                let at = self.referrals.iter().position(|other| other == address);
                self.referrals.remove(at.ok_or_else(|| ConfigError::Unknown(operation.place()))?);
                Ok(())
            }
            ConfigOperation::SetSubsystem { nqn, .. }
            | ConfigOperation::SetNamespaceManagement { nqn, .. }
            | ConfigOperation::SetListeners { nqn, .. }
            | ConfigOperation::AddNamespace { nqn, .. }
            | ConfigOperation::RemoveNamespace { nqn, .. }
            | ConfigOperation::ReplaceNamespace { nqn, .. }
            | ConfigOperation::ResizeNamespace { nqn, .. }
            | ConfigOperation::AllowAnyHost { nqn, .. }
            | ConfigOperation::AllowHost { nqn, .. }
            | ConfigOperation::DisallowHost { nqn, .. }
            | ConfigOperation::LimitNamespace { nqn, .. }
            | ConfigOperation::ViewNamespace { nqn, .. }
            | ConfigOperation::SetGroupAna { nqn, .. }
            | ConfigOperation::LimitHost { nqn, .. } => {
                let subsystem = self.subsystems.iter_mut().find(|other| other.nqn == *nqn);
                let unknown = || ConfigError::Unknown(ConfigObject::subsystem(nqn));
                subsystem.ok_or_else(unknown)?.apply(operation)
            }
        }
    }

    /// Removes a listener with its ANA states.
    fn unlisten(&mut self, listener: &TargetListener) -> Result<(), ConfigError> {
        let unknown = ConfigError::Unknown(ConfigObject::Listener(listener.address));
        let at = self.listeners.iter().position(|other| other == listener);
        self.listeners.remove(at.ok_or(unknown)?);
        self.ana.retain(&self.listeners);
        for subsystem in &mut self.subsystems {
            subsystem.retain_groups(&self.listeners);
        }
        Ok(())
    }
}

fn add_unless<T: Clone, N: NamespaceDescription>(
    is_there: bool,
    all: &mut Vec<T>,
    new: &T,
    operation: &ConfigOperation<N>,
) -> Result<(), ConfigError> {
    if is_there {
        return Err(ConfigError::Exists(operation.place()));
    }
    all.push(new.clone());
    Ok(())
}

impl<N: NamespaceDescription> SubsystemConfig<N> {
    fn apply(&mut self, operation: &ConfigOperation<N>) -> Result<(), ConfigError> {
        let place = || operation.place();
        match operation {
            ConfigOperation::SetSubsystem { serial, model, .. } => {
                (self.serial, self.model) = (serial.clone(), model.clone());
            }
            ConfigOperation::SetNamespaceManagement { management, .. } => {
                self.management.clone_from(management);
            }
            ConfigOperation::SetListeners { listeners, .. } => self.listeners.clone_from(listeners),
            ConfigOperation::AddNamespace { namespace, .. } => {
                check_namespace(&self.nqn, namespace)?;
                let is_there = self.namespaces.iter().any(|old| old.nsid() == namespace.nsid());
                add_unless(is_there, &mut self.namespaces, namespace, operation)?;
            }
            ConfigOperation::RemoveNamespace { nsid, .. } => self.remove(*nsid)?,
            ConfigOperation::ReplaceNamespace { namespace, .. } => {
                check_namespace(&self.nqn, namespace)?;
                *self.namespace(namespace.nsid())? = namespace.clone();
            }
            ConfigOperation::ResizeNamespace { nsid, bytes, .. } => self.resize(*nsid, *bytes)?,
            ConfigOperation::AllowAnyHost { allow: true, .. } => self.allowed_hosts = None,
            ConfigOperation::AllowAnyHost { allow: false, .. } => {
                self.allowed_hosts.get_or_insert_default();
            }
            ConfigOperation::AllowHost { host, .. } => {
                check_host(&self.nqn, host)?;
                if !self.hosts(host)?.insert(host.clone()) {
                    return Err(ConfigError::Exists(place()));
                }
            }
            ConfigOperation::DisallowHost { host, .. } => {
                if !self.hosts(host)?.remove(host) {
                    return Err(ConfigError::Unknown(place()));
                }
            }
            ConfigOperation::LimitNamespace { nsid, rates, .. } => {
                let namespace = self.namespace(*nsid)?;
                *namespace = namespace.limited(*rates);
            }
            ConfigOperation::ViewNamespace { nsid, view, .. } => {
                let namespace = self.namespace(*nsid)?;
                *namespace = namespace.viewed(view.clone());
            }
            ConfigOperation::SetGroupAna { group, listener, state, .. } => {
                self.ana_groups.entry(*group).or_default().set(*listener, *state);
                self.ana_groups.retain(|_, states| !states.is_empty());
            }
            ConfigOperation::LimitHost { host, rates, .. } => {
                check_host(&self.nqn, host)?;
                self.host_rates.remove(host);
                self.host_rates.extend(rates.is_limited().then(|| (host.clone(), *rates)));
            }
            // These concern no subsystem, or a whole one.
            ConfigOperation::AddSubsystem(_)
            | ConfigOperation::RemoveSubsystem { .. }
            | ConfigOperation::Listen(_)
            | ConfigOperation::Unlisten(_)
            | ConfigOperation::SetTls(_)
            | ConfigOperation::SetAna { .. }
            | ConfigOperation::SetKeys { .. }
            | ConfigOperation::AddReferral(_)
            | ConfigOperation::RemoveReferral(_)
            | ConfigOperation::SetAuthentication(_) => {}
        }
        Ok(())
    }

    fn remove(&mut self, nsid: u32) -> Result<(), ConfigError> {
        let unknown = ConfigError::Unknown(ConfigObject::namespace(&self.nqn, nsid));
        let at = self.namespaces.iter().position(|namespace| namespace.nsid() == nsid);
        self.namespaces.remove(at.ok_or(unknown)?);
        Ok(())
    }

    fn resize(&mut self, nsid: u32, bytes: u64) -> Result<(), ConfigError> {
        let nqn = self.nqn.clone();
        let namespace = self.namespace(nsid)?;
        let place = || ConfigObject::namespace(&nqn, nsid);
        let unfit = |hint| ConfigError::invalid(place(), "size", bytes, hint);
        let resized = namespace.resized(bytes).map_err(unfit)?;
        check_namespace(&nqn, &resized)?;
        *namespace = resized;
        Ok(())
    }

    /// Removes the states of groups at all listeners that are not among `listeners`.
    fn retain_groups(&mut self, listeners: &[TargetListener]) {
        self.ana_groups.retain(|_, states| {
            states.retain(listeners);
            !states.is_empty()
        });
    }

    fn namespace(&mut self, nsid: u32) -> Result<&mut N, ConfigError> {
        let unknown = ConfigError::Unknown(ConfigObject::namespace(&self.nqn, nsid));
        self.namespaces.iter_mut().find(|namespace| namespace.nsid() == nsid).ok_or(unknown)
    }

    /// Returns the hosts that may use it. While any host may, naming one would exclude all others.
    fn hosts(&mut self, host: &str) -> Result<&mut BTreeSet<String>, ConfigError> {
        let hint = "any host may use the subsystem: refuse them first (ctl host deny --any)";
        let any = ConfigError::invalid(ConfigObject::subsystem(&self.nqn), "host", host, hint);
        self.allowed_hosts.as_mut().ok_or(any)
    }
}

/// Differences between configurations.
impl<N: NamespaceDescription> TargetConfig<N> {
    /// Returns the operations that turn this configuration into `wanted`, except limits and origin, which stay.
    /// Removals come first, so that removed objects can be added in another place.
    #[must_use]
    pub fn operations_to(&self, wanted: &Self) -> Vec<ConfigOperation<N>> {
        let old: BTreeMap<&str, &SubsystemConfig<N>> =
            self.subsystems.iter().map(|subsystem| (subsystem.nqn.as_str(), subsystem)).collect();
        let new: BTreeSet<&str> = wanted.subsystems.iter().map(|s| s.nqn.as_str()).collect();
        let mut operations = Vec::new();
        let is_among = |all: &[TargetListener], one: &TargetListener| {
            all.iter().any(|o| o.is_same_listener(one))
        };
        let gone = self.listeners.iter().filter(|one| !is_among(&wanted.listeners, one));
        operations.extend(gone.map(|listener| ConfigOperation::Unlisten(*listener)));
        let stays = wanted.listeners.iter().filter(|one| is_among(&self.listeners, one));
        let changed = stays.filter(|listener| !self.listeners.contains(listener));
        operations.extend(changed.map(|listener| ConfigOperation::SetTls(*listener)));
        // States are set before anything new becomes reachable. A removed listener takes its states along.
        let mut ana = self.ana.clone();
        ana.retain(&wanted.listeners);
        let states = ana.changes_to(&wanted.ana).into_iter();
        operations
            .extend(states.map(|(listener, state)| ConfigOperation::SetAna { listener, state }));
        if self.authentication != wanted.authentication {
            operations.push(ConfigOperation::SetAuthentication(wanted.authentication.clone()));
        }
        let gone = self.referrals.iter().filter(|one| !wanted.referrals.contains(one));
        operations.extend(gone.map(|address| ConfigOperation::RemoveReferral(*address)));
        let come = wanted.referrals.iter().filter(|one| !self.referrals.contains(one));
        operations.extend(come.map(|address| ConfigOperation::AddReferral(*address)));
        let gone = old.keys().filter(|nqn| !new.contains(*nqn));
        operations
            .extend(gone.map(|nqn| ConfigOperation::RemoveSubsystem { nqn: (*nqn).to_owned() }));
        let both = || {
            let wanted = wanted.subsystems.iter();
            wanted.filter_map(|subsystem| Some((*old.get(subsystem.nqn.as_str())?, subsystem)))
        };
        for (old, new) in both() {
            old.removals_to(new, &mut operations);
        }
        for (old, new) in both() {
            old.changes_to(new, &mut operations);
        }
        let come = wanted.subsystems.iter().filter(|new| !old.contains_key(new.nqn.as_str()));
        operations.extend(come.map(|new| ConfigOperation::AddSubsystem(new.clone())));
        let come = wanted.listeners.iter().filter(|one| !is_among(&self.listeners, one));
        operations.extend(come.map(|listener| ConfigOperation::Listen(*listener)));
        operations
    }
}

impl<N: NamespaceDescription> SubsystemConfig<N> {
    fn removals_to(&self, wanted: &Self, operations: &mut Vec<ConfigOperation<N>>) {
        let nqn = || self.nqn.clone();
        match (&self.allowed_hosts, &wanted.allowed_hosts) {
            (Some(old), Some(new)) => operations.extend(
                old.difference(new)
                    .map(|host| ConfigOperation::DisallowHost { nqn: nqn(), host: host.clone() }),
            ),
            (None, Some(_)) => {
                operations.push(ConfigOperation::AllowAnyHost { nqn: nqn(), allow: false });
            }
            (_, None) => {}
        }
        let kept: BTreeSet<u32> =
            wanted.namespaces.iter().map(NamespaceDescription::nsid).collect();
        let gone = self
            .namespaces
            .iter()
            .map(NamespaceDescription::nsid)
            .filter(|nsid| !kept.contains(nsid));
        operations.extend(gone.map(|nsid| ConfigOperation::RemoveNamespace { nqn: nqn(), nsid }));
    }

    fn changes_to(&self, wanted: &Self, operations: &mut Vec<ConfigOperation<N>>) {
        let nqn = || self.nqn.clone();
        if (&self.serial, &self.model) != (&wanted.serial, &wanted.model) {
            let (serial, model) = (wanted.serial.clone(), wanted.model.clone());
            operations.push(ConfigOperation::SetSubsystem { nqn: nqn(), serial, model });
        }
        if self.management != wanted.management {
            let management = wanted.management.clone();
            operations.push(ConfigOperation::SetNamespaceManagement { nqn: nqn(), management });
        }
        let free = self.host_rates.keys().filter(|host| !wanted.host_rates.contains_key(*host));
        let free = free.map(|host| (host, &RateSettings::UNLIMITED));
        let limited = wanted.host_rates.iter();
        let limited = limited.filter(|(host, rates)| self.host_rates.get(*host) != Some(rates));
        operations.extend(free.chain(limited).map(|(host, rates)| ConfigOperation::LimitHost {
            nqn: nqn(),
            host: host.clone(),
            rates: *rates,
        }));
        if self.listeners != wanted.listeners {
            let listeners = wanted.listeners.clone();
            operations.push(ConfigOperation::SetListeners { nqn: nqn(), listeners });
        }
        let none = BTreeSet::new();
        match (&self.allowed_hosts, &wanted.allowed_hosts) {
            (old, Some(new)) => operations.extend(
                new.difference(old.as_ref().unwrap_or(&none))
                    .map(|host| ConfigOperation::AllowHost { nqn: nqn(), host: host.clone() }),
            ),
            (Some(_), None) => {
                operations.push(ConfigOperation::AllowAnyHost { nqn: nqn(), allow: true });
            }
            (None, None) => {}
        }
        let old: BTreeMap<u32, &N> =
            self.namespaces.iter().map(|namespace| (namespace.nsid(), namespace)).collect();
        for namespace in &wanted.namespaces {
            match old.get(&namespace.nsid()) {
                Some(old) => operations.extend(namespace_changes(&self.nqn, *old, namespace)),
                None => {
                    let namespace = namespace.clone();
                    operations.push(ConfigOperation::AddNamespace { nqn: nqn(), namespace });
                }
            }
        }
        self.group_changes_to(wanted, operations);
    }

    fn group_changes_to(&self, wanted: &Self, operations: &mut Vec<ConfigOperation<N>>) {
        let none = AnaStates::default();
        let of = |config: &Self, group: u32| config.ana_groups.get(&group).unwrap_or(&none).clone();
        let groups: BTreeSet<u32> =
            self.ana_groups.keys().chain(wanted.ana_groups.keys()).copied().collect();
        for group in groups {
            // A removed listener has taken its states along.
            for (listener, state) in of(self, group).changes_to(&of(wanted, group)) {
                let nqn = self.nqn.clone();
                operations.push(ConfigOperation::SetGroupAna { nqn, group, listener, state });
            }
        }
    }
}

/// Returns the operations that turn a namespace into `wanted`.
fn namespace_changes<N: NamespaceDescription>(
    nqn: &str,
    old: &N,
    wanted: &N,
) -> Vec<ConfigOperation<N>> {
    let (nqn, nsid) = (|| nqn.to_owned(), wanted.nsid());
    let (rates, view) = (wanted.rates(), wanted.view());
    let resized = || wanted.bytes().filter(|&bytes| old.resized(bytes).as_ref() == Ok(wanted));
    let mut operations = Vec::new();
    if old == wanted {
        return operations;
    }
    if old.limited(rates).viewed(view.clone()) == *wanted {
        if old.rates() != rates {
            operations.push(ConfigOperation::LimitNamespace { nqn: nqn(), nsid, rates });
        }
        if old.view() != view {
            let view = view.clone();
            operations.push(ConfigOperation::ViewNamespace { nqn: nqn(), nsid, view });
        }
    } else if let Some(bytes) = resized() {
        operations.push(ConfigOperation::ResizeNamespace { nqn: nqn(), nsid, bytes });
    } else {
        let namespace = wanted.clone();
        operations.push(ConfigOperation::ReplaceNamespace { nqn: nqn(), namespace });
    }
    operations
}
