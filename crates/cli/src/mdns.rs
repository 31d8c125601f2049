//! Discovery services on the local network, by multicast DNS: `_nvme-disc._tcp` (NVMe Base 2.1, section 8.3.1).
//!
//! It runs only on request, in a separate thread.

use crate::failure::{CommandFailure, CommandResult};
use indicatif::{ProgressBar, ProgressStyle};
use mdns_sd::{ResolvedService, ScopedIp, ServiceDaemon, ServiceEvent, ServiceInfo};
use roadtrain_wire::fabrics::DISCOVERY_NQN;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::time::{Duration, Instant};
use tracing::{debug, info, warn};

/// The type of the service.
const SERVICE: &str = "_nvme-disc._tcp.local.";
/// Duration of a search.
const SEARCH_TIME: Duration = Duration::from_secs(3);
/// Most services in a result.
const SERVICES_MAX: usize = 64;
/// Most addresses of a service.
const ADDRESSES_MAX: usize = 16;
/// Longest wait for the thread at the end.
const SHUTDOWN_WAIT: Duration = Duration::from_millis(500);

/// A discovery service that replied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct DiscoveredService {
    /// Its name.
    pub name: String,
    /// Its addresses; link-local ones with their interface, as in `fe80::1%eth0`.
    pub addresses: Vec<String>,
    /// Its socket addresses.
    #[serde(skip)]
    pub sockets: Vec<SocketAddr>,
    /// Its TCP port.
    pub trsvcid: String,
    /// Its transport: `tcp` or `udp`, if announced.
    pub transport: Option<String>,
    /// The NQN of the discovery subsystem, if announced.
    pub nqn: Option<String>,
}

impl DiscoveredService {
    fn new(service: &ResolvedService) -> DiscoveredService {
        let usable = |ip: &ScopedIp| Some((socket(ip, service.port)?, ip.to_string()));
        let found: BTreeMap<SocketAddr, String> =
            service.addresses.iter().filter_map(usable).take(ADDRESSES_MAX).collect();
        let text = |key: &str| service.get_property_val_str(key).map(str::to_owned);
        let name = service.fullname.strip_suffix(SERVICE).unwrap_or(&service.fullname);
        DiscoveredService {
            name: name.trim_end_matches('.').chars().filter(|c| !c.is_control()).collect(),
            sockets: found.keys().copied().collect(),
            addresses: found.into_values().collect(),
            trsvcid: service.port.to_string(),
            transport: text("p"),
            nqn: text("nqn"),
        }
    }

    /// Returns its socket addresses for TCP.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = SocketAddr> {
        let is_tcp = self.transport.as_deref().is_none_or(|transport| transport == "tcp");
        self.sockets.iter().copied().filter(move |_| is_tcp && self.trsvcid != "0")
    }
}

/// Returns a service's socket address; `None` if its interface is missing.
fn socket(ip: &ScopedIp, port: u16) -> Option<SocketAddr> {
    match ip {
        ScopedIp::V6(ip) if ip.addr().is_unicast_link_local() => {
            let scope = ip.scope_id().index;
            (scope != 0).then(|| SocketAddrV6::new(*ip.addr(), port, 0, scope).into())
        }
        ip => Some(SocketAddr::new(ip.to_ip_addr(), port)).filter(|at| !at.ip().is_unspecified()),
    }
}

fn failed(error: mdns_sd::Error) -> CommandFailure {
    CommandFailure::failed(format!("multicast DNS: {error}"))
}

/// Searches for discovery services for 3 s, and returns them by name.
///
/// # Errors
/// The socket cannot be created.
pub(crate) fn search() -> CommandResult<Vec<DiscoveredService>> {
    let daemon = ServiceDaemon::new().map_err(failed)?;
    let events = daemon.browse(SERVICE).map_err(failed)?;
    let progress = ProgressBar::new_spinner();
    let style = ProgressStyle::with_template("{spinner} searching for discovery services: {msg}");
    progress.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    progress.enable_steady_tick(Duration::from_millis(100));
    let (until, mut found) = (Instant::now() + SEARCH_TIME, BTreeMap::new());
    while let Ok(event) = events.recv_deadline(until) {
        match event {
            ServiceEvent::ServiceResolved(service) if found.len() < SERVICES_MAX => {
                let one = DiscoveredService::new(&service);
                debug!(name = one.name, port = one.trsvcid, "found");
                found.insert(one.name.clone(), one);
            }
            ServiceEvent::ServiceRemoved(_, name) => {
                found.remove(name.strip_suffix(SERVICE).unwrap_or(&name).trim_end_matches('.'));
            }
            _ => {}
        }
        progress.set_message(format!("{} found", found.len()));
    }
    progress.finish_and_clear();
    end(&daemon);
    Ok(found.into_values().collect())
}

/// Returns the addresses of all discovery services over TCP.
///
/// # Errors
/// No service replies.
pub(crate) fn discovery_addresses() -> CommandResult<Vec<SocketAddr>> {
    let found = search()?;
    let sockets: BTreeSet<SocketAddr> = found.iter().flat_map(DiscoveredService::sockets).collect();
    match sockets.is_empty() {
        true => Err(CommandFailure::connect(
            "--mdns: no discovery service answers on this network; name one with -a",
        )),
        false => Ok(sockets.into_iter().collect()),
    }
}

fn end(daemon: &ServiceDaemon) {
    if let Ok(ended) = daemon.shutdown() {
        let _ = ended.recv_timeout(SHUTDOWN_WAIT);
    }
}

/// Announces the discovery service of a target, until it is dropped.
pub(crate) struct Announcement {
    daemon: ServiceDaemon,
    /// Announced full names by port, with the addresses.
    shown: BTreeMap<u16, (String, BTreeSet<IpAddr>)>,
}

impl Announcement {
    /// Starts without an announcement.
    ///
    /// # Errors
    /// The socket cannot be created.
    pub(crate) fn new() -> CommandResult<Announcement> {
        Ok(Announcement { daemon: ServiceDaemon::new().map_err(failed)?, shown: BTreeMap::new() })
    }

    /// Announces these listeners, and no others. Loopback listeners are left out.
    pub(crate) fn update(&mut self, listeners: &[SocketAddr]) {
        let mut wanted: BTreeMap<u16, BTreeSet<IpAddr>> = BTreeMap::new();
        for listener in listeners.iter().filter(|listener| !listener.ip().is_loopback()) {
            wanted.entry(listener.port()).or_default().insert(listener.ip());
        }
        let is_wanted =
            |port: &u16, shown: &(String, BTreeSet<IpAddr>)| wanted.get(port) == Some(&shown.1);
        let gone: Vec<u16> =
            self.shown.iter().filter(|(p, s)| !is_wanted(p, s)).map(|(port, _)| *port).collect();
        for port in gone {
            self.withdraw(port);
        }
        for (port, addresses) in wanted {
            if !self.shown.contains_key(&port) {
                self.announce(port, addresses);
            }
        }
        if self.shown.is_empty() {
            warn!("--mdns: no listener can be reached from elsewhere: nothing is announced");
        }
    }

    fn announce(&mut self, port: u16, addresses: BTreeSet<IpAddr>) {
        let host = host_name();
        let name = format!("{host} {port}");
        let is_any = addresses.iter().any(IpAddr::is_unspecified);
        let named: Vec<IpAddr> = addresses.iter().copied().filter(|_| !is_any).collect();
        let text = [("p", "tcp"), ("nqn", DISCOVERY_NQN)];
        // A separate host name: other services of this machine have other addresses.
        let host = format!("{host}-{port}.local.");
        let service = ServiceInfo::new(SERVICE, &name, &host, &named[..], port, &text[..]);
        let service = service.map(|new| if is_any { new.enable_addr_auto() } else { new });
        let announced = service.and_then(|service| {
            let full = service.get_fullname().to_owned();
            self.daemon.register(service).map(|()| full)
        });
        match announced {
            Ok(full) => {
                info!(name, "announced by multicast DNS");
                self.shown.insert(port, (full, addresses));
            }
            Err(error) => warn!(name, "not announced by multicast DNS: {error}"),
        }
    }

    fn withdraw(&mut self, port: u16) {
        let Some((name, _)) = self.shown.remove(&port) else { return };
        if let Ok(done) = self.daemon.unregister(&name) {
            let _ = done.recv_timeout(SHUTDOWN_WAIT);
        }
    }
}

/// Withdraws the announcements.
impl Drop for Announcement {
    fn drop(&mut self) {
        let ports: Vec<u16> = self.shown.keys().copied().collect();
        ports.into_iter().for_each(|port| self.withdraw(port));
        end(&self.daemon);
    }
}

/// Returns the machine's name as a DNS label.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let label = name.trim().split('.').next().unwrap_or_default();
    let label: String =
        label.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').take(40).collect();
    if label.is_empty() { "roadtrain".into() } else { label }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_services_over_tcp_are_queried() {
        let found = |transport: Option<&str>, port| DiscoveredService {
            name: "a".into(),
            addresses: Vec::new(),
            sockets: ["192.0.2.7", "2001:db8::7", "fe80::7"]
                .into_iter()
                .filter_map(|ip| socket(&ip.parse::<IpAddr>().unwrap().into(), port))
                .collect(),
            trsvcid: port.to_string(),
            transport: transport.map(str::to_owned),
            nqn: None,
        };
        assert_eq!(found(Some("tcp"), 8009).sockets().count(), 2);
        assert_eq!(found(None, 8009).sockets().count(), 2);
        assert_eq!(found(Some("udp"), 4791).sockets().count(), 0);
        assert_eq!(found(Some("tcp"), 0).sockets().count(), 0);
    }

    #[test]
    fn the_machine_has_a_label() {
        let name = host_name();
        assert!(!name.is_empty() && !name.contains('.'), "{name}");
    }
}
