//! Discovery of the paths to a subsystem by discovery controllers.

use super::address::TargetAddress;
use super::config::{DISCOVERED_PATHS_MAX, HostConfig};
use super::discovery::discover_at;
use super::error::HostControlError;
use super::stopping::{self, StopSignal};
use roadtrain_host_proto::discovered::Offers;
use roadtrain_wire::discovery::DiscoveryEntry;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// Maximum number of discovery controllers, including referrals.
const CONTROLLERS_MAX: usize = 16;
/// Time for the other discovery controllers once one has reported a path.
const FURTHER_REPLIES: Duration = Duration::from_millis(500);
/// Maximum number of remembered warnings about entries; then they may repeat.
const WARNED_MAX: usize = 1024;

/// Returns the configuration with each path that its discovery controllers report, and the discovery controllers.
///
/// # Errors
/// No discovery controller replies, or none reports a path.
pub(super) fn with_found_paths(
    config: HostConfig,
) -> Result<(HostConfig, Option<DiscoverySources>), HostControlError> {
    let Some(discovery) = config.discovery.as_deref() else { return Ok((config, None)) };
    let mut sources = DiscoverySources::new(&config, discovery);
    let signal = StopSignal::new();
    let signal = signal.map_err(|source| HostControlError::System { what: "eventfd", source })?;
    let (queried, failure) = query_all(&mut sources, discovery, &signal);
    let mut paths = sources.paths();
    if paths.len() > DISCOVERED_PATHS_MAX {
        warn!("{} paths were found; {DISCOVERED_PATHS_MAX} of them are used", paths.len());
        paths.truncate(DISCOVERED_PATHS_MAX);
    }
    let mut paths = paths.into_iter().map(TargetAddress::from);
    let Some(address) = paths.next() else {
        return Err(failure.unwrap_or_else(|| no_path_error(&config, &queried)));
    };
    let more_addresses = paths.collect();
    Ok((HostConfig { address, more_addresses, ..config }, Some(sources)))
}

/// Reads the logs of all discovery controllers and of their referrals, in parallel. Once a path is known the others
/// have little time left; the follower of the logs connects to them again. Returns their names and the first failure.
fn query_all(
    sources: &mut DiscoverySources,
    discovery: &HostConfig,
    signal: &Arc<StopSignal>,
) -> (BTreeSet<String>, Option<HostControlError>) {
    let (mut queried, mut failure) = (BTreeSet::new(), None);
    thread::scope(|scope| {
        let (results, answers) = channel();
        let (mut open, mut until) = (0_usize, None);
        loop {
            while let Some((name, address)) = sources.first_but(&queried) {
                queried.insert(name.clone());
                // The connection is short: no keep-alive.
                let keep_alive = Duration::ZERO;
                let config = HostConfig { address, keep_alive, ..discovery.clone() };
                let results = results.clone();
                scope.spawn(move || {
                    stopping::limit_waits_by(signal);
                    let _ = results.send((name, discover_at(&config)));
                });
                open += 1;
            }
            let now = Instant::now();
            if open == 0 || until.is_some_and(|until| until <= now) {
                break signal.raise_for(Duration::ZERO);
            }
            let wait = until.map_or(FURTHER_REPLIES, |until| until - now);
            match answers.recv_timeout(wait) {
                Ok((name, Ok((_, entries, scope)))) => sources.update_log(&name, &entries, scope),
                Ok((_, Err(error))) => {
                    warn!("discovery: {error}");
                    failure.get_or_insert(error);
                }
                Err(_) => continue,
            }
            open -= 1;
            if !sources.paths().is_empty() {
                until.get_or_insert(Instant::now() + FURTHER_REPLIES);
            }
        }
    });
    (queried, failure)
}

/// Returns the error if no discovery controller reports a path.
fn no_path_error(config: &HostConfig, queried: &BTreeSet<String>) -> HostControlError {
    let queried: Vec<&str> = queried.iter().map(String::as_str).collect();
    HostControlError::Controller(format!(
        "no path to {} in the discovery log of {}; is the subsystem NQN right, and may this host use it? `roadtrain \
         discover` lists what there is",
        config.subsystem_nqn,
        queried.join(", ")
    ))
}

/// Configured discovery controllers, and their referrals.
pub(super) struct DiscoverySources {
    nqn: String,
    tls: Option<bool>,
    list: Vec<DiscoverySource>,
    /// Warnings that were logged about unusable entries.
    warned: BTreeSet<String>,
}

/// Discovery controller.
struct DiscoverySource {
    name: String,
    address: TargetAddress,
    is_named: bool,
    /// Last log contents, kept until the next read.
    offers: Offers,
}

impl DiscoverySource {
    fn new(address: TargetAddress, is_named: bool) -> Self {
        DiscoverySource { name: address.to_string(), address, is_named, offers: Offers::default() }
    }
}

impl DiscoverySources {
    /// Creates the set of configured discovery controllers.
    fn new(config: &HostConfig, discovery: &HostConfig) -> Self {
        let (nqn, tls) = (config.subsystem_nqn.clone(), config.secures());
        let list = discovery.addresses().map(|address| DiscoverySource::new(address.clone(), true));
        DiscoverySources { nqn, tls, list: list.collect(), warned: BTreeSet::new() }
    }

    /// Returns the first one that is not among `names`.
    pub(super) fn first_but(&self, names: &BTreeSet<String>) -> Option<(String, TargetAddress)> {
        let first = self.list.iter().find(|source| !names.contains(&source.name))?;
        Some((first.name.clone(), first.address.clone()))
    }

    /// Returns the maximum number of followed controllers, including those without a referral whose threads have not
    /// ended yet.
    pub(super) fn followed_max(&self) -> usize {
        self.list.len().max(CONTROLLERS_MAX)
    }

    /// True if it is configured or still referred to.
    pub(super) fn has(&self, name: &str) -> bool {
        self.list.iter().any(|source| source.name == name)
    }

    /// Returns the paths that any of them reports, each once.
    pub(super) fn paths(&self) -> Vec<SocketAddr> {
        let mut seen = BTreeSet::new();
        let all = self.list.iter().flat_map(|source| &source.offers.paths).copied();
        all.filter(|path| seen.insert(*path)).collect()
    }

    /// Takes the log of a discovery controller: it may add referrals, and drop others. `scope` is the interface by
    /// which it was reached, if it has a link-local address.
    pub(super) fn update_log(&mut self, name: &str, entries: &[DiscoveryEntry], scope: u32) {
        let offers = Offers::new(entries, &self.nqn, scope, self.tls);
        for unusable in &offers.unusable {
            let text = format!("{} is not used: {}", unusable.place, unusable.why);
            if self.warned.len() >= WARNED_MAX {
                self.warned.clear(); // a log may have other entries on each read
            }
            if self.warned.insert(text.clone()) {
                warn!(discovery = name, "{text}");
            }
        }
        let Some(source) = self.list.iter_mut().find(|source| source.name == name) else { return };
        source.offers = offers;
        self.follow_referrals();
    }

    fn follow_referrals(&mut self) {
        let mut known = std::mem::take(&mut self.list);
        self.list = known.extract_if(.., |source| source.is_named).collect();
        let mut at = 0;
        while let Some(source) = self.list.get(at) {
            for referral in source.offers.referrals.clone() {
                let name = referral.to_string();
                if self.has(&name) || self.list.len() >= CONTROLLERS_MAX {
                    continue;
                }
                let found = known.iter().position(|source| source.name == name);
                let source = found.map(|at| known.swap_remove(at)).unwrap_or_else(|| {
                    info!(discovery = self.list[at].name, "refers to {name}");
                    DiscoverySource::new(referral.into(), false)
                });
                self.list.push(source);
            }
            at += 1;
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use roadtrain_wire::discovery::{adrfam, subtype};
    use roadtrain_wire::fabrics::DISCOVERY_NQN;

    const NQN: &str = "nqn.2025-01.io.example:disk";

    pub(crate) fn at(number: u16) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 7], number))
    }

    pub(crate) fn entry(kind: u8, number: u16) -> DiscoveryEntry {
        let nqn = if kind == subtype::REFERRAL { DISCOVERY_NQN } else { NQN };
        let mut entry = DiscoveryEntry::new(kind, nqn);
        entry.set_address(adrfam::IPV4, "192.0.2.7", &number.to_string());
        entry
    }

    /// Returns a set with one configured controller.
    pub(crate) fn sources() -> DiscoverySources {
        let config = HostConfig::new(at(1), NQN, "nqn.x:host", [1; 16]);
        DiscoverySources::new(&config, &config)
    }

    fn names(sources: &DiscoverySources) -> Vec<String> {
        sources.list.iter().map(|source| source.name.clone()).collect()
    }

    #[test]
    fn the_error_names_queried_controllers() {
        let config = HostConfig::new(at(8009), NQN, "nqn.x:host", [1; 16]);
        let error = no_path_error(&config, &BTreeSet::from([at(8009).to_string()])).to_string();
        assert!(error.contains(NQN) && error.contains("192.0.2.7:8009"), "{error}");
        assert!(!error.contains('\n'));
    }

    #[test]
    fn referrals_come_and_go_with_their_paths() {
        let mut sources = sources();
        let (one, two, three) = (at(1).to_string(), at(2).to_string(), at(3).to_string());
        sources.update_log(&one, &[entry(subtype::NVM, 10), entry(subtype::REFERRAL, 2)], 0);
        sources.update_log(&two, &[entry(subtype::NVM, 20), entry(subtype::REFERRAL, 3)], 0);
        // A circle of referrals.
        sources.update_log(&three, &[entry(subtype::NVM, 10), entry(subtype::REFERRAL, 1)], 0);
        assert_eq!(names(&sources), [one.clone(), two.clone(), three]);
        assert_eq!(sources.paths(), [at(10), at(20)]);
        sources.update_log(&one, &[entry(subtype::NVM, 10)], 0);
        assert_eq!((names(&sources), sources.paths()), (vec![one], vec![at(10)]));
        sources.update_log(&two, &[entry(subtype::NVM, 30)], 0);
        assert_eq!(sources.paths(), [at(10)], "no controller refers to it");
    }

    /// Covers a log with other entries on each read.
    #[test]
    fn logged_warnings_are_bounded() {
        let mut sources = sources();
        for round in 0..40 {
            let unusable = |n: u16| {
                let mut entry = entry(subtype::NVM, 1);
                entry.set_address(adrfam::IPV4, "0.0.0.0", &(round * 100 + n).to_string());
                entry
            };
            sources.update_log(&at(1).to_string(), &(1..100).map(unusable).collect::<Vec<_>>(), 0);
            assert!((1..=WARNED_MAX).contains(&sources.warned.len()), "{}", sources.warned.len());
        }
    }

    #[test]
    fn the_number_of_controllers_is_bounded() {
        let mut sources = sources();
        let entries: Vec<_> = (2..200).map(|number| entry(subtype::REFERRAL, number)).collect();
        sources.update_log(&at(1).to_string(), &entries, 0);
        assert_eq!(sources.list.len(), CONTROLLERS_MAX);
    }
}
