//! Listeners, and the subsystems reachable at them.

use core::net::SocketAddr;
use roadtrain_wire::ana::AnaState;
use std::collections::BTreeMap;

/// Use of TLS at a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum TlsUse {
    /// No connection uses TLS.
    #[default]
    Off,
    /// Connections may begin with TLS.
    Allowed,
    /// All connections use TLS; others are refused.
    Required,
}

/// An address on which the target listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetListener {
    /// Port identifier in discovery log entries.
    pub portid: u16,
    /// Address. An unspecified one (`0.0.0.0`, `::`) is shown as the local address of the host's connection. In a
    /// requested configuration, port 0 is one that the system chooses.
    pub address: SocketAddr,
    /// Use of TLS.
    pub tls: TlsUse,
    /// True if only subsystems that name the address are reachable there.
    pub named_only: bool,
}

impl TargetListener {
    /// True if both have the same address and port identifier; their use of TLS may differ.
    #[must_use]
    pub fn is_same_listener(&self, other: &Self) -> bool {
        (self.portid, self.address) == (other.portid, other.address)
    }
}

/// A port on Ethernet, where the target is reached without TCP (docs/reference/ethernet.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameListener {
    /// MAC address.
    pub address: [u8; 6],
    /// EtherType of its frames.
    pub ethertype: u16,
    /// VLAN tag of its frames.
    pub vlan: Option<u16>,
}

/// Listeners that a subsystem names.
type NamedListeners = BTreeMap<SocketAddr, AnaState>;

/// True if a subsystem that names those listeners (`None`: none) is reachable at this one.
pub(super) fn is_at(named: Option<&NamedListeners>, listener: &TargetListener) -> bool {
    match named {
        Some(named) => named.contains_key(&listener.address),
        None => !listener.named_only,
    }
}

/// Returns the ANA state of the path of a host connected to `local`; `None`: the subsystem is not reachable there. Over
/// Ethernet, with port 0, only subsystems that name no listener are.
pub(super) fn path_state(
    named: Option<&NamedListeners>,
    listeners: &[TargetListener],
    local: SocketAddr,
) -> Option<AnaState> {
    let Some(named) = named else {
        let here = listeners.iter().filter(|listener| is_reached(listener.address, local));
        let mut here = here.peekable();
        let is_named_only = here.peek().is_some() && here.all(|listener| listener.named_only);
        return (!is_named_only).then(AnaState::default);
    };
    let exact = named.iter().find(|(address, _)| plain(**address) == plain(local));
    let any = || named.iter().find(|(address, _)| is_reached(**address, local));
    exact.or_else(any).map(|(_, state)| *state)
}

/// True if a connection with the local address `local` can belong to a listener at `address`.
pub(super) fn is_reached(address: SocketAddr, local: SocketAddr) -> bool {
    let (there, here) = (plain(address), plain(local));
    let is_ip = there.ip() == here.ip()
        || there.ip().is_unspecified() && (there.is_ipv6() || here.is_ipv4());
    is_ip && there.port() == here.port()
}

/// Returns the address without IPv6 flow and scope, and a mapped IPv4 address as IPv4.
pub(super) fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_subsystem_is_reached_where_it_says() {
        let named: NamedListeners =
            [("127.0.0.1:4420", AnaState::Optimized), ("0.0.0.0:4421", AnaState::Change)]
                .map(|(address, state)| (at(address), state))
                .into();
        let state = |local| path_state(Some(&named), &[], at(local));
        assert_eq!(state("127.0.0.1:4420"), Some(AnaState::Optimized));
        assert_eq!(state("[::ffff:127.0.0.1]:4420"), Some(AnaState::Optimized));
        assert_eq!(state("192.0.2.1:4421"), Some(AnaState::Change));
        for address in ["127.0.0.2:4420", "127.0.0.1:4422", "[::1]:4421", "0.0.0.0:0"] {
            assert_eq!(state(address), None, "{address}");
        }
    }

    #[test]
    fn what_names_nothing_is_reached_everywhere_else() {
        let listener = |address: &str, named_only| TargetListener {
            portid: 1,
            address: at(address),
            tls: TlsUse::Off,
            named_only,
        };
        let listeners = [listener("127.0.0.1:4420", false), listener("127.0.0.1:4421", true)];
        assert!(path_state(None, &listeners, at("127.0.0.1:4420")).is_some());
        assert!(path_state(None, &listeners, at("0.0.0.0:0")).is_some(), "Ethernet");
        assert_eq!(path_state(None, &listeners, at("127.0.0.1:4421")), None);
    }
}
