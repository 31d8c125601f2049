//! ANA states of the paths to a target's namespaces (asymmetric namespace access, NVMe Base 2.1, section 8.1.1). Each
//! listener has a state; a controller takes the state of the listener at which its admin queue connected.
//!
//! A namespace belongs to an ANA group, and a listener may have another state for a group. Another target may own the
//! blocks of some namespaces, as `NamespaceConfig::ana` says: hosts see the worse of both states. Such namespaces are
//! listed in reserved groups meanwhile.

use super::listen::{TargetListener, plain};
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
pub use roadtrain_wire::ana::AnaState;
use std::collections::{BTreeMap, BTreeSet};

/// ANATT: seconds within which [`AnaState::Change`] ends, as reported to hosts.
pub(super) const TRANSITION_SECONDS: u8 = 10;

/// Listener to which an ANA state applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AnaListener {
    /// A listener's address, or one address of a listener at the unspecified address (`0.0.0.0`, `::`).
    Tcp(SocketAddr),
    /// All interfaces of the Ethernet transport.
    Ether,
}

impl AnaListener {
    /// Returns the listener without IPv6 flow and scope, and with mapped IPv4 addresses as IPv4.
    fn plain(self) -> Self {
        match self {
            AnaListener::Tcp(address) => AnaListener::Tcp(plain(address)),
            AnaListener::Ether => self,
        }
    }

    /// True if hosts can connect there, given the TCP `listeners`. A listener's port 0 stands for a port that the
    /// system will choose.
    fn is_among(self, listeners: &[TargetListener]) -> bool {
        let AnaListener::Tcp(address) = self else { return true };
        let here = plain(address);
        let is_at = |listener: &TargetListener| {
            let there = plain(listener.address);
            let is_ip = here.ip() == there.ip() || there.ip().is_unspecified();
            is_ip && (here.port() == there.port() || there.port() == 0)
        };
        listeners.iter().any(is_at)
    }
}

impl fmt::Display for AnaListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AnaListener::Tcp(address) => write!(f, "{address}"),
            AnaListener::Ether => f.write_str("ether"),
        }
    }
}

/// ANA states of listeners; a listener without an entry is optimized.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct AnaStates {
    states: BTreeMap<AnaListener, AnaState>,
}

impl AnaStates {
    /// Sets a listener's state, or removes it.
    pub fn set(&mut self, listener: AnaListener, state: Option<AnaState>) {
        match state {
            Some(state) => self.states.insert(listener.plain(), state),
            None => self.states.remove(&listener.plain()),
        };
    }

    /// Returns the state set for exactly that listener.
    #[must_use]
    pub fn get(&self, listener: AnaListener) -> Option<AnaState> {
        self.states.get(&listener.plain()).copied()
    }

    /// Returns the state for connections with the local address `local`; connections over Ethernet have port 0.
    #[must_use]
    pub fn at(&self, local: SocketAddr) -> AnaState {
        self.find(local).unwrap_or_default()
    }

    /// Returns the state set for connections with the local address `local`, if one is set.
    pub(super) fn find(&self, local: SocketAddr) -> Option<AnaState> {
        let local = plain(local);
        if local.port() == 0 {
            return self.get(AnaListener::Ether);
        }
        let any = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
        // A socket at `::` accepts connections over IPv4, too, but not the other way round.
        let any = if local.is_ipv4() { &any[..] } else { &any[1..] };
        let places = [local.ip()].into_iter().chain(any.iter().copied());
        let at = |ip| self.get(AnaListener::Tcp(SocketAddr::new(ip, local.port())));
        places.into_iter().find_map(at)
    }

    /// True if no listener has a state of its own.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.states.is_empty()
    }

    /// Returns the listeners with a state of their own.
    pub fn iter(&self) -> impl Iterator<Item = (AnaListener, AnaState)> {
        self.states.iter().map(|(listener, state)| (*listener, *state))
    }

    /// Removes the states of all listeners that are not among `listeners`.
    pub(super) fn retain(&mut self, listeners: &[TargetListener]) {
        self.states.retain(|at, _| at.is_among(listeners));
    }

    /// Returns the first listener with a state that is not among `listeners`.
    pub(super) fn first_orphan(&self, listeners: &[TargetListener]) -> Option<AnaListener> {
        self.states.keys().copied().find(|at| !at.is_among(listeners))
    }

    /// Returns the changes that make these states equal to `wanted`.
    pub(super) fn changes_to(&self, wanted: &Self) -> Vec<(AnaListener, Option<AnaState>)> {
        let all: BTreeSet<_> = self.states.keys().chain(wanted.states.keys()).copied().collect();
        let differs = |at: &AnaListener| self.get(*at) != wanted.get(*at);
        all.into_iter().filter(differs).map(|at| (at, wanted.get(at))).collect()
    }
}

impl FromIterator<(AnaListener, AnaState)> for AnaStates {
    fn from_iter<T: IntoIterator<Item = (AnaListener, AnaState)>>(states: T) -> Self {
        let mut all = AnaStates::default();
        states.into_iter().for_each(|(listener, state)| all.set(listener, Some(state)));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(address: &str) -> AnaListener {
        AnaListener::Tcp(address.parse().unwrap())
    }

    #[test]
    fn the_nearest_listener_decides() {
        let states: AnaStates = [
            (tcp("0.0.0.0:4420"), AnaState::NonOptimized),
            (tcp("192.0.2.1:4420"), AnaState::Optimized),
            (tcp("[::]:4421"), AnaState::Inaccessible),
            (AnaListener::Ether, AnaState::Change),
        ]
        .into_iter()
        .collect();
        for (local, state) in [
            ("192.0.2.1:4420", AnaState::Optimized),
            ("[::ffff:192.0.2.1]:4420", AnaState::Optimized),
            ("192.0.2.2:4420", AnaState::NonOptimized),
            ("[2001:db8::1]:4420", AnaState::Optimized),
            ("[2001:db8::1]:4421", AnaState::Inaccessible),
            ("192.0.2.1:4421", AnaState::Inaccessible),
            ("192.0.2.1:4422", AnaState::Optimized),
            ("0.0.0.0:0", AnaState::Change),
        ] {
            assert_eq!(states.at(local.parse().unwrap()), state, "{local}");
        }
        assert_eq!(AnaStates::default().at("0.0.0.0:0".parse().unwrap()), AnaState::Optimized);
    }
}
