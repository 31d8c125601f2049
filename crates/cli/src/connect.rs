//! Converts options to the host's configuration, and its errors to failures.

use crate::args::{
    ConnectArgs, EtherArgs, LaneArgs, PolicyArgs, Portal, Portals, TransportName, WaitArgs,
};
use crate::failure::{CommandFailure, CommandResult};
use crate::identity::{HostIdentity, check_nqn};
use crate::keys::{authentication, keyring};
use crate::{mdns, tls};
use roadtrain_host_engine::{
    EtherAddress, HostConfig, HostControlError, HostTls, LocalEnd, TargetAddress, TargetName,
    TlsKeySource,
};
use roadtrain_proto::security::IdentityVersion;
use roadtrain_reactor::ip_address;
use roadtrain_wire::fabrics::DISCOVERY_NQN;
use roadtrain_wire::pdu::Digests;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::time::Duration;

/// Resolves a name to its first address.
///
/// # Errors
/// A name that resolves to no address.
pub(crate) fn resolve(address: &str, port: u16) -> CommandResult<SocketAddr> {
    let (host, port) = split_port(address, port)?;
    let bad = |why| CommandFailure::usage(format!("address {why}"));
    if let Some(address) = ip_address::parse(host, port).map_err(bad)? {
        return Ok(address);
    }
    let mut found = (host, port).to_socket_addrs().map_err(|error| {
        let hint = name_hint(host);
        CommandFailure::usage(format!("address {address}: {error}: {hint}"))
    })?;
    found
        .next()
        .ok_or_else(|| CommandFailure::usage(format!("address {address}: stands for no address")))
}

/// Returns the hint for an unknown name.
fn name_hint(host: &str) -> &'static str {
    match is_interface(host) {
        true => "that is an interface: -t ether listens and connects there without TCP",
        false => {
            "write an IP address, or a name that `getent ahosts` finds; an interface needs -t ether"
        }
    }
}

/// True if this machine has an interface of that name.
fn is_interface(name: &str) -> bool {
    !name.is_empty() && !name.contains('/') && Path::new("/sys/class/net").join(name).exists()
}

/// Parses a list of interfaces.
///
/// # Errors
/// An invalid list, or an interface that is named twice.
fn interfaces(list: &str) -> CommandResult<Vec<String>> {
    let names: Vec<String> = list.split(',').map(str::to_owned).collect();
    let is_twice = |(at, name): (usize, &String)| names[..at].contains(name);
    if names.iter().any(String::is_empty) || names.iter().enumerate().any(is_twice) {
        let text = format!("-a {list}: name interfaces, each once, such as eth1,eth2");
        return Err(CommandFailure::usage(text));
    }
    Ok(names)
}

/// Returns the Ethernet address of a target, with frame options.
///
/// # Errors
/// Options that exclude each other.
pub(crate) fn ether_address(portal: &Portal) -> CommandResult<EtherAddress> {
    portal.ether.address(interfaces(&portal.traddr)?).map_err(CommandFailure::usage)
}

/// Splits ADDR, ADDR:PORT or `[IPv6]:PORT` into host and port; `port` is the default.
///
/// # Errors
/// An invalid port.
pub(crate) fn split_port(address: &str, port: u16) -> CommandResult<(&str, u16)> {
    let bad = || {
        CommandFailure::usage(format!("address {address}: write ADDR, ADDR:PORT or [IPv6]:PORT"))
    };
    let (host, named) = match address.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']').ok_or_else(bad)?;
            let named = rest.strip_prefix(':');
            if named.is_none() && !rest.is_empty() {
                return Err(bad());
            }
            (host, named)
        }
        None => match address.split_once(':') {
            Some((host, named)) if !named.contains(':') => (host, Some(named)),
            _ => (address, None), // a name, or IPv6
        },
    };
    let port = named.map_or(Ok(port), |named| named.parse().map_err(|_| bad()))?;
    Ok((host, port))
}

/// Returns an address, or a name. A name is resolved for each connection, as its addresses may change.
pub(crate) fn tcp_address(address: &str, port: u16) -> CommandResult<TargetAddress> {
    let (host, port) = split_port(address, port)?;
    if host.is_empty() {
        return Err(CommandFailure::usage("-a is empty: write an address or a name"));
    }
    // An interface's index may change, so an address with an interface is handled as a name.
    if let Some(spelling) = ip_address::spelling(host) {
        return Ok(TargetName::new(&spelling, port).into());
    }
    let bad = |why| CommandFailure::usage(format!("-a {why}"));
    Ok(match ip_address::parse(host, port).map_err(bad)? {
        Some(address) => address.into(),
        None => TargetName::new(host, port).into(),
    })
}

/// Returns the address of the portal.
///
/// # Errors
/// An empty name, or options that exclude each other.
fn address(portal: &Portal) -> CommandResult<TargetAddress> {
    match portal.transport {
        TransportName::Tcp if portal.ether != EtherArgs::default() => {
            Err(CommandFailure::usage("the options under Ethernet need -t ether"))
        }
        TransportName::Tcp => tcp_address(&portal.traddr, portal.trsvcid),
        TransportName::Ether => Ok(ether_address(portal)?.into()),
    }
}

/// Returns the configuration to reach `nqn` at the portal, without lanes.
///
/// # Errors
/// Options that exclude each other.
pub(crate) fn config(
    portal: &Portal,
    nqn: &str,
    connect: &ConnectArgs,
) -> CommandResult<HostConfig> {
    if portal.ether.requires_seal() && connect.keys.dhchap_secret.is_none() {
        let text = "--seal required needs --dhchap-secret, the key of this host";
        return Err(CommandFailure::usage(text));
    }
    config_at(address(portal)?, nqn, connect)
}

/// Returns the configuration to reach `nqn` by the paths that the portals' discovery controllers know, without lanes.
fn config_of_discovery(
    portals: &Portals,
    nqn: &str,
    connect: &ConnectArgs,
) -> CommandResult<HostConfig> {
    if portals.transport.has_frames() || portals.each().iter().any(|p| p.transport.has_frames()) {
        let text = "--discover is for TCP: over Ethernet targets are found without it";
        return Err(CommandFailure::usage(text));
    }
    let discovery = if portals.mdns {
        let mut found = mdns::discovery_addresses()?.into_iter().map(TargetAddress::from);
        let first = found
            .next()
            .ok_or_else(|| CommandFailure::connect("--mdns: no discovery service replies"))?;
        let config = config_at(first, DISCOVERY_NQN, connect)?;
        HostConfig { more_addresses: found.collect(), ..config }
    } else {
        let plain = Portals { discover: false, ..portals.clone() };
        config_of_paths(&plain, DISCOVERY_NQN, connect)?
    };
    let config = config_at(discovery.address.clone(), nqn, connect)?;
    Ok(HostConfig { discovery: Some(Box::new(discovery)), ..config })
}

/// Returns the configuration to reach `nqn` by all paths of the portals, without lanes.
///
/// # Errors
/// Options that exclude each other.
pub(crate) fn config_of_paths(
    portals: &Portals,
    nqn: &str,
    connect: &ConnectArgs,
) -> CommandResult<HostConfig> {
    if portals.discover || portals.mdns {
        return config_of_discovery(portals, nqn, connect);
    }
    let each = portals.each();
    let (first, more) = each.split_first().ok_or_else(|| CommandFailure::usage("-a is missing"))?;
    let config = config(first, nqn, connect)?;
    let other = |portal| Ok(self::config(portal, nqn, connect)?.address);
    let more_addresses = more.iter().map(other).collect::<CommandResult<Vec<_>>>()?;
    let has_several = !more_addresses.is_empty();
    let mut seen: Vec<String> = Vec::new();
    for address in std::iter::once(&config.address).chain(&more_addresses) {
        let places = path_addresses(address, has_several);
        if let Some(twice) = places.iter().find(|place| seen.contains(place)) {
            let name = address.to_string();
            let why = if *twice == name { String::new() } else { format!(", as {twice}") };
            return Err(CommandFailure::usage(format!("-a {name} is given twice{why}")));
        }
        seen.extend(places);
    }
    Ok(HostConfig { more_addresses, ..config })
}

/// Longest wait for the resolution of a name, to compare its addresses with other paths.
const NAME_WAIT: Duration = Duration::from_secs(2);

/// Returns the addresses or interfaces of a path, which no other path may have. For a name that `has_others`, these
/// include its resolved addresses.
fn path_addresses(address: &TargetAddress, has_others: bool) -> Vec<String> {
    let text = address.to_string();
    if let Some(interfaces) = text.strip_prefix("ether:") {
        return interfaces.split(',').map(|name| format!("ether:{name}")).collect();
    }
    let known = match address {
        TargetAddress::Name(name) if has_others => name.known_addresses(NAME_WAIT),
        _ => Vec::new(),
    };
    known.iter().map(ToString::to_string).chain([text]).collect()
}

/// As [`config`], for an address that is known already.
///
/// # Errors
/// Options that exclude each other.
pub(crate) fn config_at(
    address: impl Into<TargetAddress>,
    nqn: &str,
    connect: &ConnectArgs,
) -> CommandResult<HostConfig> {
    check_nqn(nqn).map_err(CommandFailure::usage)?;
    let host = HostIdentity::choose(connect.hostnqn.as_deref(), connect.hostid.as_deref())
        .map_err(CommandFailure::usage)?;
    let address = address.into();
    let local = LocalEnd { address: connect.host_traddr, interface: connect.host_iface.clone() };
    if matches!(address, TargetAddress::Ether(_)) && local != LocalEnd::default() {
        let text =
            "--host-traddr and --host-iface are for TCP: -a names the interfaces of -t ether";
        return Err(CommandFailure::usage(text));
    }
    Ok(HostConfig {
        local,
        keys: authentication::of_host(&connect.keys)?,
        tls: tls(connect, &address, (&host.nqn, nqn))?,
        digests: Digests { header: connect.hdgst, data: connect.ddgst },
        keep_alive: connect.keep_alive_tmo,
        connect_timeout: connect.connect_timeout,
        reconnect_delay: connect.reconnect_delay,
        controller_loss_timeout: connect.ctrl_loss_tmo.0,
        fast_io_fail_timeout: connect.fast_io_fail_tmo.0,
        io_timeout: Some(connect.io_timeout).filter(|timeout| !timeout.is_zero()),
        ..HostConfig::new(address, nqn, &host.nqn, host.id)
    })
}

/// Returns the TLS configuration, if connections are secured.
fn tls(
    connect: &ConnectArgs,
    address: &TargetAddress,
    names: (&str, &str),
) -> CommandResult<Option<HostTls>> {
    let option = if connect.concat { "--concat" } else { "--tls" };
    match (connect.tls || connect.concat, address, &connect.tls_key) {
        (false, ..) => Ok(None),
        (_, TargetAddress::Ether(_), _) => {
            Err(CommandFailure::usage(format!("{option}: there is no TLS over Ethernet")))
        }
        _ if connect.concat && connect.keys.dhchap_secret.is_none() => {
            Err(CommandFailure::usage("--concat needs --dhchap-secret FILE, the key of this host"))
        }
        _ if connect.concat => Ok(Some(HostTls::concatenated())),
        (_, _, Some(file)) => {
            let identity = match connect.tls_key_identity.as_deref() {
                None => None,
                Some("0") => Some(IdentityVersion::V0),
                Some("1") => Some(IdentityVersion::V1),
                Some(_) => {
                    let why = "--tls-key-identity: with --tls-key write 0 or 1, the version of the identity";
                    return Err(CommandFailure::usage(why));
                }
            };
            let key = TlsKeySource::Configured(tls::key("--tls-key", file)?);
            Ok(Some(HostTls { identity, ..HostTls::new(key) }))
        }
        (_, _, None) => {
            let (keyring, identity) = (&connect.keyring, connect.tls_key_identity.as_deref());
            let psk = match keyring {
                Some(keyring) => keyring::psk(keyring, identity, names)?,
                None => keyring::psk(keyring::DEFAULT, identity, names)
                    .map_err(|failure| missing_key(&failure, names.1))?,
            };
            Ok(Some(HostTls::new(TlsKeySource::Derived(psk))))
        }
    }
}

/// Builds the failure for a missing key that no option names.
fn missing_key(failure: &CommandFailure, subnqn: &str) -> CommandFailure {
    CommandFailure::connect(format!(
        "this host does not connect to {subnqn}: --tls needs --tls-key FILE, the key of this host, or --keyring ({})",
        failure.message
    ))
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
        path_policy: lanes.path_policy.into(),
        express: !lanes.no_express,
        policy: policy.config(),
        waiting: wait.waiting(),
        ..config
    }
}

/// Maps a failure of the host to an exit status.
impl From<HostControlError> for CommandFailure {
    fn from(error: HostControlError) -> CommandFailure {
        match error {
            HostControlError::Unreachable { .. }
            | HostControlError::Refused { .. }
            | HostControlError::Authentication { .. }
            | HostControlError::Lost { .. }
            | HostControlError::Controller(_) => CommandFailure::connect(error),
            HostControlError::Command { .. } | HostControlError::System { .. } => {
                CommandFailure::failed(error)
            }
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
        assert_eq!(resolve("::ffff:127.0.0.1", 1).unwrap(), "127.0.0.1:1".parse().unwrap());
        assert_eq!(resolve("127.0.0.1:7", 1).unwrap(), "127.0.0.1:7".parse().unwrap());
        assert_eq!(resolve("[::1]:7", 1).unwrap(), "[::1]:7".parse().unwrap());
        assert!(resolve("127.0.0.1:x", 1).unwrap_err().message.contains("ADDR:PORT"));
        assert!(resolve("lo", 1).unwrap_err().message.contains("-t ether"));
        assert!(resolve("fe80::1", 1).unwrap_err().message.contains("interface"));
        assert!(resolve("", 1).is_err());
        assert!(resolve("300.0.0.1.", 1).is_err());
    }

    #[test]
    fn addresses_may_have_ports() {
        for (text, host, port) in [
            ("192.0.2.1", "192.0.2.1", 4420),
            ("192.0.2.1:7", "192.0.2.1", 7),
            ("::1", "::1", 4420),
            ("[::1]", "::1", 4420),
            ("[2001:db8::1]:65535", "2001:db8::1", 65535),
            ("disk.example.org:1", "disk.example.org", 1),
            ("disk.example.org", "disk.example.org", 4420),
        ] {
            assert_eq!(split_port(text, 4420).unwrap(), (host, port), "{text}");
        }
        for bad in ["h:", "h:65536", "h:x", "[::1", "[::1]7", "[::1]:", "[::1]:x"] {
            let failure = split_port(bad, 4420).unwrap_err();
            assert_eq!(failure.kind, crate::failure::FailureKind::Usage, "{bad}");
        }
    }

    #[test]
    fn names_are_resolved_later() {
        let address = |text| tcp_address(text, 4420);
        for ip in ["192.0.2.1", "::1", "[::1]"] {
            assert!(matches!(address(ip).unwrap(), TargetAddress::Tcp(_)), "{ip}");
        }
        for name in ["300.0.0.1.", "disk.example.org", "fe80:0::1%eth1"] {
            assert!(matches!(address(name).unwrap(), TargetAddress::Name(_)), "{name}");
        }
        assert_eq!(address("fe80:0::1%eth1").unwrap().to_string(), "[fe80::1%eth1]:4420");
        assert_eq!(address("::ffff:192.0.2.1").unwrap().to_string(), "192.0.2.1:4420");
        assert_eq!(address("fe80::1").unwrap_err().kind, crate::failure::FailureKind::Usage);
        assert_eq!(address("").unwrap_err().kind, crate::failure::FailureKind::Usage);
    }

    #[test]
    fn interfaces_are_named_once() {
        assert_eq!(interfaces("eth1,eth2").unwrap(), ["eth1", "eth2"]);
        for bad in ["", ",", "eth1,", "eth1,eth1"] {
            assert!(interfaces(bad).is_err(), "{bad}");
        }
    }
}
