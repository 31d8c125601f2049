//! At which listeners a subsystem can be reached.

use super::ana::{AnaState, plain};
use super::config::Listener;
use core::net::SocketAddr;
use std::collections::BTreeMap;

/// Listeners that a subsystem names.
type Named = BTreeMap<SocketAddr, AnaState>;

/// Whether a subsystem that names those listeners (`None`: none) can be reached at this one.
pub(super) fn is_at(named: Option<&Named>, listener: &Listener) -> bool {
    match named {
        Some(named) => named.contains_key(&listener.address),
        None => !listener.named_only,
    }
}

/// How good the path is of a host that has reached us at `local`; `None`: the subsystem cannot be reached there. Over
/// Ethernet, with port 0, only what names no listener can.
pub(super) fn way(
    named: Option<&Named>,
    listeners: &[Listener],
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

/// Whether a connection that has come in at `local` can have come to a listener at `address`.
pub(super) fn is_reached(address: SocketAddr, local: SocketAddr) -> bool {
    let (there, here) = (plain(address), plain(local));
    let is_ip = there.ip() == here.ip()
        || there.ip().is_unspecified() && (there.is_ipv6() || here.is_ipv4());
    is_ip && there.port() == here.port()
}

#[cfg(test)]
mod tests {
    use super::super::config::TlsUse;
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_subsystem_is_reached_where_it_says() {
        let named: Named =
            [("127.0.0.1:4420", AnaState::Optimized), ("0.0.0.0:4421", AnaState::Change)]
                .map(|(address, state)| (at(address), state))
                .into();
        let way = |local| way(Some(&named), &[], at(local));
        assert_eq!(way("127.0.0.1:4420"), Some(AnaState::Optimized));
        assert_eq!(way("[::ffff:127.0.0.1]:4420"), Some(AnaState::Optimized));
        assert_eq!(way("192.0.2.1:4421"), Some(AnaState::Change));
        for elsewhere in ["127.0.0.2:4420", "127.0.0.1:4422", "[::1]:4421", "0.0.0.0:0"] {
            assert_eq!(way(elsewhere), None, "{elsewhere}");
        }
    }

    #[test]
    fn what_names_nothing_is_reached_everywhere_else() {
        let listener = |address: &str, named_only| Listener {
            portid: 1,
            address: at(address),
            tls: TlsUse::Off,
            named_only,
        };
        let listeners = [listener("127.0.0.1:4420", false), listener("127.0.0.1:4421", true)];
        assert!(way(None, &listeners, at("127.0.0.1:4420")).is_some());
        assert!(way(None, &listeners, at("0.0.0.0:0")).is_some(), "Ethernet");
        assert_eq!(way(None, &listeners, at("127.0.0.1:4421")), None);
    }
}
