//! Finds the paths to a subsystem by discovery controllers.

use super::address::Address;
use super::config::HostConfig;
use super::discovery::discover;
use super::error::HostError;
use roadtrain_proto::host::discovered::Offers;
use roadtrain_wire::discovery::DiscoveryEntry;
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;
use tracing::{info, warn};

/// Most paths that are used of those that are found.
pub(super) const PATHS_MAX: usize = 16;
/// Most discovery controllers that are asked, with those that others refer to.
const CONTROLLERS_MAX: usize = 16;

/// The same host, with each path to its subsystem that its discovery controllers know.
///
/// # Errors
/// No discovery controller can be asked, or none knows a path.
pub(super) fn with_found_paths(config: HostConfig) -> Result<HostConfig, HostError> {
    let Some(discovery) = config.discovery.clone() else { return Ok(config) };
    let mut finder = Finder::new(&config);
    let mut asked = VecDeque::from_iter(discovery.addresses().cloned());
    let mut names: BTreeSet<String> = asked.iter().map(ToString::to_string).collect();
    let (mut paths, mut failure) = (Vec::new(), None);
    while let Some(address) = asked.pop_front() {
        // Nobody keeps this connection: no keep-alive.
        let keep_alive = Duration::ZERO;
        let address_of = address.clone();
        let read =
            discover(&HostConfig { address: address_of, keep_alive, ..(*discovery).clone() });
        match read {
            Ok((_, entries)) => {
                let offers = finder.sort_out(&address, &entries);
                paths.extend(offers.paths);
                for referral in offers.referrals {
                    if names.len() < CONTROLLERS_MAX && names.insert(referral.to_string()) {
                        info!(discovery = %address, "refers to {referral}");
                        asked.push_back(referral.into());
                    }
                }
            }
            Err(error) => {
                warn!("discovery: {error}");
                failure.get_or_insert(error);
            }
        }
    }
    let mut seen = BTreeSet::new();
    paths.retain(|path| seen.insert(*path));
    if paths.len() > PATHS_MAX {
        warn!("{} paths were found; {PATHS_MAX} of them are used", paths.len());
        paths.truncate(PATHS_MAX);
    }
    let mut paths = paths.into_iter().map(Address::from);
    let Some(address) = paths.next() else {
        return Err(failure.unwrap_or_else(|| nowhere(&config, &names)));
    };
    Ok(HostConfig { address, more_addresses: paths.collect(), ..config })
}

/// Nobody knows a path.
fn nowhere(config: &HostConfig, asked: &BTreeSet<String>) -> HostError {
    let asked: Vec<&str> = asked.iter().map(String::as_str).collect();
    HostError::Controller(format!(
        "no path to {} in the discovery log of {}; is the subsystem NQN right, and may this host use it? `roadtrain \
         discover` lists what there is",
        config.subsystem_nqn,
        asked.join(", ")
    ))
}

/// Sorts entries of discovery logs out, and says once what cannot be used.
struct Finder {
    nqn: String,
    tls: Option<bool>,
    said: BTreeSet<String>,
}

impl Finder {
    fn new(config: &HostConfig) -> Self {
        let nqn = config.subsystem_nqn.clone();
        Finder { nqn, tls: config.secures(), said: BTreeSet::new() }
    }

    fn sort_out(&mut self, from: &Address, entries: &[DiscoveryEntry]) -> Offers {
        let offers = Offers::new(entries, &self.nqn, self.tls);
        for unusable in &offers.unusable {
            let text = format!("{} is not used: {}", unusable.place, unusable.why);
            if self.said.insert(text.clone()) {
                warn!(discovery = %from, "{text}");
            }
        }
        offers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    #[test]
    fn nowhere_names_what_was_asked() {
        let at: SocketAddr = "192.0.2.7:8009".parse().unwrap();
        let config = HostConfig::new(at, "nqn.x:disk", "nqn.x:host", [1; 16]);
        let error = nowhere(&config, &BTreeSet::from([at.to_string()])).to_string();
        assert!(error.contains("nqn.x:disk") && error.contains("192.0.2.7:8009"), "{error}");
        assert!(!error.contains('\n'));
    }
}
