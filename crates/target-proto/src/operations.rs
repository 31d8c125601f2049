//! Changes to a target's configuration, as values.
//!
//! Every change to a running target is a list of [`Operation`]s: of an RPC request, or of a configuration file that is
//! read again. [`TargetConfig::with`] checks the list and applies it as a whole, or not at all.
//! [`TargetConfig::operations_to`] is its inverse: it returns the changes between two configurations.
//!
//! The same operations work on two configurations. In the requested one a namespace names its store; in the one that
//! hosts see it has a size and an identity. [`Description`] is the common interface of both.

use super::ana::{AnaListener, AnaState};
use super::authentication::Authentication;
use super::config::{
    Description, NamespaceConfig, SubsystemConfig, TargetConfig, check_host, check_namespace,
};
use super::config_error::{ConfigError, Place};
use super::listen::{Listener, TlsUse};
use super::rate::Rates;
use core::fmt;
use core::net::SocketAddr;
use roadtrain_proto::security::dhchap::Keys;
use std::collections::{BTreeMap, BTreeSet};

/// One change to a target's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation<N = NamespaceConfig> {
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
        rates: Rates,
    },
    /// Sets the rate limits of a host, for all namespaces of a subsystem together.
    LimitHost {
        nqn: String,
        host: String,
        rates: Rates,
    },
    /// Opens a listener.
    Listen(Listener),
    /// Closes a listener; existing connections stay.
    Unlisten(Listener),
    /// Sets the use of TLS at a listener; existing connections stay.
    SetTls(Listener),
    /// Sets the ANA state of a listener, and notifies the hosts connected there. `None`: the state of the listener at
    /// the unspecified address, or optimized.
    SetAna {
        listener: AnaListener,
        state: Option<AnaState>,
    },
    /// Sets the authentication required of hosts when they connect, and when they authenticate again.
    SetAuthentication(Authentication),
    /// Sets a host's keys for one subsystem, or (`None`) removes them.
    SetKeys {
        nqn: String,
        host: String,
        keys: Option<Keys>,
    },
    /// Adds a referral to another discovery controller.
    AddReferral(SocketAddr),
    /// Removes a referral.
    RemoveReferral(SocketAddr),
}

impl<N: Description> Operation<N> {
    /// Returns the object concerned.
    #[must_use]
    pub fn place(&self) -> Place {
        match self {
            Operation::AddSubsystem(SubsystemConfig { nqn, .. })
            | Operation::RemoveSubsystem { nqn }
            | Operation::SetSubsystem { nqn, .. }
            | Operation::SetListeners { nqn, .. }
            | Operation::AllowAnyHost { nqn, .. } => Place::subsystem(nqn),
            Operation::AddNamespace { nqn, namespace }
            | Operation::ReplaceNamespace { nqn, namespace } => {
                Place::namespace(nqn, namespace.nsid())
            }
            Operation::RemoveNamespace { nqn, nsid }
            | Operation::LimitNamespace { nqn, nsid, .. }
            | Operation::ResizeNamespace { nqn, nsid, .. } => Place::namespace(nqn, *nsid),
            Operation::AllowHost { nqn, host }
            | Operation::DisallowHost { nqn, host }
            | Operation::SetKeys { nqn, host, .. }
            | Operation::LimitHost { nqn, host, .. } => Place::Host(nqn.clone(), host.clone()),
            Operation::Listen(listener)
            | Operation::Unlisten(listener)
            | Operation::SetTls(listener) => Place::Listener(listener.address),
            Operation::SetAna { listener, .. } => Place::Ana(*listener),
            Operation::SetAuthentication(_) => Place::Authentication,
            Operation::AddReferral(address) | Operation::RemoveReferral(address) => {
                Place::Referral(*address)
            }
        }
    }
}

/// Description of the change, for logs and replies.
impl<N: Description> fmt::Display for Operation<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self {
            Operation::AddSubsystem(_)
            | Operation::AddNamespace { .. }
            | Operation::Listen(_)
            | Operation::AddReferral(_) => "added",
            Operation::RemoveSubsystem { .. }
            | Operation::RemoveNamespace { .. }
            | Operation::Unlisten(_)
            | Operation::RemoveReferral(_) => "removed",
            Operation::SetSubsystem { serial: Some(serial), model, .. } => {
                return write!(f, "{}: serial number {serial}, model number {model}", self.place());
            }
            Operation::SetSubsystem { serial: None, model, .. } => {
                return write!(f, "{}: its own serial number, model number {model}", self.place());
            }
            Operation::SetListeners { .. } => "can be reached at other listeners",
            Operation::ReplaceNamespace { .. } => "replaced",
            Operation::ResizeNamespace { bytes, .. } => {
                return write!(f, "{}: resized to {bytes} bytes", self.place());
            }
            Operation::AllowAnyHost { allow: true, .. } => "any host allowed",
            Operation::AllowAnyHost { allow: false, .. } => "only named hosts allowed",
            Operation::AllowHost { .. } => "allowed",
            Operation::DisallowHost { .. } => "not allowed any more",
            Operation::LimitNamespace { rates, .. } | Operation::LimitHost { rates, .. } => {
                return write!(f, "{}: {rates}", self.place());
            }
            Operation::SetTls(listener) => match listener.tls {
                TlsUse::Off => "new connections have no TLS",
                TlsUse::Allowed => "new connections may have TLS",
                TlsUse::Required => "new connections need TLS",
            },
            Operation::SetAna { state: Some(state), .. } => {
                return write!(f, "{}: ANA {state}", self.place());
            }
            Operation::SetAna { state: None, .. } => "no ANA state of its own",
            Operation::SetAuthentication(_) => "other keys or requirements",
            Operation::SetKeys { .. } => "other keys",
        };
        write!(f, "{}: {what}", self.place())
    }
}

impl<N: Description> TargetConfig<N> {
    /// Returns the configuration after `operations`, in their order. Only the final one has to be valid, so that
    /// namespaces can change places.
    ///
    /// # Errors
    /// The first error.
    pub fn with(&self, operations: &[Operation<N>]) -> Result<Self, ConfigError> {
        let mut next = self.clone();
        operations.iter().try_for_each(|operation| next.apply(operation))?;
        next.check()?;
        Ok(next)
    }

    fn apply(&mut self, operation: &Operation<N>) -> Result<(), ConfigError> {
        match operation {
            Operation::AddSubsystem(new) => {
                let is_there = self.subsystems.iter().any(|subsystem| subsystem.nqn == new.nqn);
                add_unless(is_there, &mut self.subsystems, new, operation)
            }
            Operation::RemoveSubsystem { nqn } => {
                let at = self.subsystems.iter().position(|subsystem| subsystem.nqn == *nqn);
                self.subsystems.remove(at.ok_or_else(|| ConfigError::Unknown(operation.place()))?);
                Ok(())
            }
            Operation::Listen(listener) => {
                self.listeners.push(*listener);
                Ok(())
            }
            Operation::Unlisten(listener) => {
                let at = self.listeners.iter().position(|other| other == listener);
                self.listeners.remove(at.ok_or_else(|| ConfigError::Unknown(operation.place()))?);
                self.ana.retain(&self.listeners);
                Ok(())
            }
            Operation::SetTls(listener) => {
                let mut all = self.listeners.iter_mut();
                let there = all.find(|one| one.is_same_place(listener));
                *there.ok_or_else(|| ConfigError::Unknown(operation.place()))? = *listener;
                Ok(())
            }
            Operation::SetAna { listener, state } => {
                self.ana.set(*listener, *state);
                Ok(())
            }
            Operation::SetAuthentication(authentication) => {
                self.authentication = authentication.clone();
                Ok(())
            }
            Operation::SetKeys { nqn, host, keys } => {
                self.authentication.set_keys(nqn, host, keys.clone());
                Ok(())
            }
            Operation::AddReferral(address) => {
                self.referrals.push(*address);
                Ok(())
            }
            Operation::RemoveReferral(address) => {
                let at = self.referrals.iter().position(|other| other == address);
                self.referrals.remove(at.ok_or_else(|| ConfigError::Unknown(operation.place()))?);
                Ok(())
            }
            Operation::SetSubsystem { nqn, .. }
            | Operation::SetListeners { nqn, .. }
            | Operation::AddNamespace { nqn, .. }
            | Operation::RemoveNamespace { nqn, .. }
            | Operation::ReplaceNamespace { nqn, .. }
            | Operation::ResizeNamespace { nqn, .. }
            | Operation::AllowAnyHost { nqn, .. }
            | Operation::AllowHost { nqn, .. }
            | Operation::DisallowHost { nqn, .. }
            | Operation::LimitNamespace { nqn, .. }
            | Operation::LimitHost { nqn, .. } => {
                let subsystem = self.subsystems.iter_mut().find(|other| other.nqn == *nqn);
                let unknown = || ConfigError::Unknown(Place::subsystem(nqn));
                subsystem.ok_or_else(unknown)?.apply(operation)
            }
        }
    }
}

fn add_unless<T: Clone, N: Description>(
    is_there: bool,
    all: &mut Vec<T>,
    new: &T,
    operation: &Operation<N>,
) -> Result<(), ConfigError> {
    if is_there {
        return Err(ConfigError::Exists(operation.place()));
    }
    all.push(new.clone());
    Ok(())
}

impl<N: Description> SubsystemConfig<N> {
    fn apply(&mut self, operation: &Operation<N>) -> Result<(), ConfigError> {
        let place = || operation.place();
        match operation {
            Operation::SetSubsystem { serial, model, .. } => {
                (self.serial, self.model) = (serial.clone(), model.clone());
            }
            Operation::SetListeners { listeners, .. } => self.listeners.clone_from(listeners),
            Operation::AddNamespace { namespace, .. } => {
                check_namespace(&self.nqn, namespace)?;
                let is_there = self.namespaces.iter().any(|old| old.nsid() == namespace.nsid());
                add_unless(is_there, &mut self.namespaces, namespace, operation)?;
            }
            Operation::RemoveNamespace { nsid, .. } => {
                let at = self.namespaces.iter().position(|namespace| namespace.nsid() == *nsid);
                self.namespaces.remove(at.ok_or_else(|| ConfigError::Unknown(place()))?);
            }
            Operation::ReplaceNamespace { namespace, .. } => {
                check_namespace(&self.nqn, namespace)?;
                *self.namespace(namespace.nsid())? = namespace.clone();
            }
            Operation::ResizeNamespace { nsid, bytes, .. } => {
                let nqn = self.nqn.clone();
                let namespace = self.namespace(*nsid)?;
                let unfit = |hint| ConfigError::invalid(place(), "size", bytes, hint);
                let resized = namespace.resized(*bytes).map_err(unfit)?;
                check_namespace(&nqn, &resized)?;
                *namespace = resized;
            }
            Operation::AllowAnyHost { allow, .. } => match (allow, &self.allowed_hosts) {
                (true, _) => self.allowed_hosts = None,
                (false, None) => self.allowed_hosts = Some(BTreeSet::new()),
                (false, Some(_)) => {}
            },
            Operation::AllowHost { host, .. } => {
                check_host(&self.nqn, host)?;
                if !self.hosts(host)?.insert(host.clone()) {
                    return Err(ConfigError::Exists(place()));
                }
            }
            Operation::DisallowHost { host, .. } => {
                if !self.hosts(host)?.remove(host) {
                    return Err(ConfigError::Unknown(place()));
                }
            }
            Operation::LimitNamespace { nsid, rates, .. } => {
                let namespace = self.namespace(*nsid)?;
                *namespace = namespace.limited(*rates);
            }
            Operation::LimitHost { host, rates, .. } => {
                check_host(&self.nqn, host)?;
                self.host_rates.remove(host);
                let limited = rates.is_limited().then(|| (host.clone(), *rates));
                self.host_rates.extend(limited);
            }
            // These concern no subsystem, or a whole one.
            Operation::AddSubsystem(_)
            | Operation::RemoveSubsystem { .. }
            | Operation::Listen(_)
            | Operation::Unlisten(_)
            | Operation::SetTls(_)
            | Operation::SetAna { .. }
            | Operation::SetKeys { .. }
            | Operation::AddReferral(_)
            | Operation::RemoveReferral(_)
            | Operation::SetAuthentication(_) => {}
        }
        Ok(())
    }

    fn namespace(&mut self, nsid: u32) -> Result<&mut N, ConfigError> {
        let unknown = ConfigError::Unknown(Place::namespace(&self.nqn, nsid));
        self.namespaces.iter_mut().find(|namespace| namespace.nsid() == nsid).ok_or(unknown)
    }

    /// Returns the hosts that may use it. While any host may, naming one would exclude all others.
    fn hosts(&mut self, host: &str) -> Result<&mut BTreeSet<String>, ConfigError> {
        let hint = "any host may use the subsystem: disallow any host first";
        let any = ConfigError::invalid(Place::subsystem(&self.nqn), "host", host, hint);
        self.allowed_hosts.as_mut().ok_or(any)
    }
}

/// Differences between configurations.
impl<N: Description> TargetConfig<N> {
    /// Returns the operations that turn this configuration into `wanted`, except limits and origin, which stay.
    /// Removals come first, so that removed objects can be added in another place.
    #[must_use]
    pub fn operations_to(&self, wanted: &Self) -> Vec<Operation<N>> {
        let old: BTreeMap<&str, &SubsystemConfig<N>> =
            self.subsystems.iter().map(|subsystem| (subsystem.nqn.as_str(), subsystem)).collect();
        let new: BTreeSet<&str> = wanted.subsystems.iter().map(|s| s.nqn.as_str()).collect();
        let mut operations = Vec::new();
        let is_among = |all: &[Listener], one: &Listener| all.iter().any(|o| o.is_same_place(one));
        let gone = self.listeners.iter().filter(|one| !is_among(&wanted.listeners, one));
        operations.extend(gone.map(|listener| Operation::Unlisten(*listener)));
        let stays = wanted.listeners.iter().filter(|one| is_among(&self.listeners, one));
        let changed = stays.filter(|listener| !self.listeners.contains(listener));
        operations.extend(changed.map(|listener| Operation::SetTls(*listener)));
        // States are set before anything new becomes reachable. A removed listener takes its states along.
        let mut ana = self.ana.clone();
        ana.retain(&wanted.listeners);
        let states = ana.changes_to(&wanted.ana).into_iter();
        operations.extend(states.map(|(listener, state)| Operation::SetAna { listener, state }));
        if self.authentication != wanted.authentication {
            operations.push(Operation::SetAuthentication(wanted.authentication.clone()));
        }
        let gone = self.referrals.iter().filter(|one| !wanted.referrals.contains(one));
        operations.extend(gone.map(|address| Operation::RemoveReferral(*address)));
        let come = wanted.referrals.iter().filter(|one| !self.referrals.contains(one));
        operations.extend(come.map(|address| Operation::AddReferral(*address)));
        let gone = old.keys().filter(|nqn| !new.contains(*nqn));
        operations.extend(gone.map(|nqn| Operation::RemoveSubsystem { nqn: (*nqn).to_owned() }));
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
        operations.extend(come.map(|new| Operation::AddSubsystem(new.clone())));
        let come = wanted.listeners.iter().filter(|one| !is_among(&self.listeners, one));
        operations.extend(come.map(|listener| Operation::Listen(*listener)));
        operations
    }
}

impl<N: Description> SubsystemConfig<N> {
    fn removals_to(&self, wanted: &Self, operations: &mut Vec<Operation<N>>) {
        let nqn = || self.nqn.clone();
        match (&self.allowed_hosts, &wanted.allowed_hosts) {
            (Some(old), Some(new)) => operations.extend(
                old.difference(new)
                    .map(|host| Operation::DisallowHost { nqn: nqn(), host: host.clone() }),
            ),
            (None, Some(_)) => {
                operations.push(Operation::AllowAnyHost { nqn: nqn(), allow: false });
            }
            (_, None) => {}
        }
        let kept: BTreeSet<u32> = wanted.namespaces.iter().map(Description::nsid).collect();
        let gone =
            self.namespaces.iter().map(Description::nsid).filter(|nsid| !kept.contains(nsid));
        operations.extend(gone.map(|nsid| Operation::RemoveNamespace { nqn: nqn(), nsid }));
    }

    fn changes_to(&self, wanted: &Self, operations: &mut Vec<Operation<N>>) {
        let nqn = || self.nqn.clone();
        if (&self.serial, &self.model) != (&wanted.serial, &wanted.model) {
            let (serial, model) = (wanted.serial.clone(), wanted.model.clone());
            operations.push(Operation::SetSubsystem { nqn: nqn(), serial, model });
        }
        let free = self.host_rates.keys().filter(|host| !wanted.host_rates.contains_key(*host));
        let free = free.map(|host| (host, &Rates::UNLIMITED));
        let limited = wanted.host_rates.iter();
        let limited = limited.filter(|(host, rates)| self.host_rates.get(*host) != Some(rates));
        operations.extend(free.chain(limited).map(|(host, rates)| Operation::LimitHost {
            nqn: nqn(),
            host: host.clone(),
            rates: *rates,
        }));
        if self.listeners != wanted.listeners {
            let listeners = wanted.listeners.clone();
            operations.push(Operation::SetListeners { nqn: nqn(), listeners });
        }
        let none = BTreeSet::new();
        match (&self.allowed_hosts, &wanted.allowed_hosts) {
            (old, Some(new)) => operations.extend(
                new.difference(old.as_ref().unwrap_or(&none))
                    .map(|host| Operation::AllowHost { nqn: nqn(), host: host.clone() }),
            ),
            (Some(_), None) => {
                operations.push(Operation::AllowAnyHost { nqn: nqn(), allow: true });
            }
            (None, None) => {}
        }
        let old: BTreeMap<u32, &N> =
            self.namespaces.iter().map(|namespace| (namespace.nsid(), namespace)).collect();
        let change = |namespace: &N| {
            let nsid = namespace.nsid();
            let new = || namespace.clone();
            match old.get(&nsid) {
                Some(old) if *old == namespace => None,
                Some(old) if old.limited(namespace.rates()) == *namespace => {
                    let (nqn, rates) = (nqn(), namespace.rates());
                    Some(Operation::LimitNamespace { nqn, nsid, rates })
                }
                Some(old) => Some(match namespace.bytes() {
                    Some(bytes)
                        if old.resized(bytes).is_ok_and(|resized| resized == *namespace) =>
                    {
                        Operation::ResizeNamespace { nqn: nqn(), nsid, bytes }
                    }
                    _ => Operation::ReplaceNamespace { nqn: nqn(), namespace: new() },
                }),
                None => Some(Operation::AddNamespace { nqn: nqn(), namespace: new() }),
            }
        };
        operations.extend(wanted.namespaces.iter().filter_map(change));
    }
}
