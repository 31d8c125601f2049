//! From options to the engine's host, and from its errors to failures.

use crate::args::{ConnectArgs, EtherArgs, LaneArgs, PolicyArgs, Portal, Transport, WaitArgs};
use crate::failure::{Failure, Outcome};
use crate::identity::{Identity, check_nqn};
use roadtrain_engine::host::{Address, EtherAddress, HostConfig, HostError};
use roadtrain_wire::pdu::Digests;
use std::net::{SocketAddr, ToSocketAddrs};

/// The first address that a name stands for.
///
/// # Errors
/// A name that stands for none.
pub(crate) fn resolve(address: &str, port: u16) -> Outcome<SocketAddr> {
    let host = address.trim_start_matches('[').trim_end_matches(']');
    let mut found = (host, port).to_socket_addrs().map_err(|e| {
        Failure::usage(format!(
            "-a {address}: {e}: write an address or a known name, the port with -s"
        ))
    })?;
    found.next().ok_or_else(|| Failure::usage(format!("-a {address}: stands for no address")))
}

/// The interfaces that a list names.
///
/// # Errors
/// It is no list, or names one twice.
fn interfaces(list: &str) -> Outcome<Vec<String>> {
    let names: Vec<String> = list.split(',').map(str::to_owned).collect();
    let is_twice = |(at, name): (usize, &String)| names[..at].contains(name);
    if names.iter().any(String::is_empty) || names.iter().enumerate().any(is_twice) {
        let text = format!("-a {list}: name interfaces, each once, such as eth1,eth2");
        return Err(Failure::usage(text));
    }
    Ok(names)
}

/// Where frames go, and how they are.
///
/// # Errors
/// Options that make no sense.
pub(crate) fn ether_address(portal: &Portal) -> Outcome<EtherAddress> {
    portal.ether.check().map_err(Failure::usage)?;
    let interfaces = interfaces(&portal.traddr)?;
    let port = portal.ether.over(portal.transport).port(portal.trsvcid);
    let packing = portal.ether.packing();
    Ok(EtherAddress { interfaces, port, packing })
}

/// Where the portal is.
///
/// # Errors
/// A name that stands for no address; options that make no sense.
fn address(portal: &Portal) -> Outcome<Address> {
    match portal.transport {
        Transport::Tcp if portal.ether != EtherArgs::default() => {
            Err(Failure::usage("the options under Ethernet need -t ether"))
        }
        // As when nobody listens: the network, or its names, may come later.
        Transport::Tcp => match resolve(&portal.traddr, portal.trsvcid) {
            Ok(address) => Ok(address.into()),
            Err(failure) => Err(Failure::connect(failure.message)),
        },
        Transport::Ether | Transport::Tsockets => Ok(ether_address(portal)?.into()),
    }
}

/// How to reach `nqn` at the portal, without lanes.
///
/// # Errors
/// Options that make no sense.
pub(crate) fn config(portal: &Portal, nqn: &str, connect: &ConnectArgs) -> Outcome<HostConfig> {
    config_at(address(portal)?, nqn, connect)
}

/// As [`config`], for an address that is known already.
///
/// # Errors
/// Options that make no sense.
pub(crate) fn config_at(
    address: impl Into<Address>,
    nqn: &str,
    connect: &ConnectArgs,
) -> Outcome<HostConfig> {
    check_nqn(nqn).map_err(Failure::usage)?;
    let host = Identity::choose(connect.hostnqn.as_deref(), connect.hostid.as_deref())?;
    Ok(HostConfig {
        digests: Digests { header: connect.hdgst, data: connect.ddgst },
        keep_alive: connect.keep_alive_tmo,
        connect_timeout: connect.connect_timeout,
        reconnect_delay: connect.reconnect_delay,
        controller_loss_timeout: connect.ctrl_loss_tmo.0,
        ..HostConfig::new(address, nqn, &host.nqn, host.id)
    })
}

/// Adds lanes to a configuration.
#[must_use]
pub(crate) fn with_lanes(
    config: HostConfig,
    lanes: &LaneArgs,
    policy: &PolicyArgs,
    wait: WaitArgs,
) -> HostConfig {
    HostConfig {
        lanes: lanes.count(),
        cores: lanes.cores.clone().unwrap_or_default().0,
        placement: lanes.placement.into(),
        queue_entries: lanes.queue_size,
        policy: policy.config(),
        waiting: wait.waiting(),
        ..config
    }
}

/// What a failure of the host means for the exit status.
impl From<HostError> for Failure {
    fn from(error: HostError) -> Failure {
        match error {
            HostError::Unreachable { .. }
            | HostError::Refused { .. }
            | HostError::Lost { .. }
            | HostError::Controller(_) => Failure::connect(error),
            HostError::Command { .. } | HostError::System { .. } => Failure::failed(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_resolve() {
        assert_eq!(resolve("127.0.0.1", 4420).unwrap(), "127.0.0.1:4420".parse().unwrap());
        assert_eq!(resolve("::1", 1).unwrap(), "[::1]:1".parse().unwrap());
        assert_eq!(resolve("[::1]", 1).unwrap(), "[::1]:1".parse().unwrap());
        assert!(resolve("", 1).is_err());
        assert!(resolve("300.0.0.1.", 1).is_err());
    }

    #[test]
    fn a_name_may_be_known_later() {
        let (transport, ether) = (Transport::Tcp, EtherArgs::default());
        let portal = Portal { transport, traddr: "300.0.0.1.".into(), trsvcid: 4420, ether };
        assert_eq!(address(&portal).unwrap_err().kind, crate::failure::Kind::Connect);
    }

    #[test]
    fn interfaces_are_named_once() {
        assert_eq!(interfaces("eth1,eth2").unwrap(), ["eth1", "eth2"]);
        for bad in ["", ",", "eth1,", "eth1,eth1"] {
            assert!(interfaces(bad).is_err(), "{bad}");
        }
    }
}
