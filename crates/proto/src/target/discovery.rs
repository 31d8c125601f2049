//! The discovery log as one host sees it.

use super::config::{Limits, Listener, TlsUse};
use super::controller::Controller;
use super::listen;
use super::subsystem::Subsystem;
use core::net::{IpAddr, SocketAddr};
use roadtrain_wire::discovery::{
    DiscoveryEntry, DiscoveryLogHeader, adrfam, eflags, sectype, subtype, treq,
};
use roadtrain_wire::fabrics::{CNTLID_DYNAMIC, DISCOVERY_NQN};
use roadtrain_wire::zerocopy::IntoBytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What the log is made of.
#[derive(Clone, Copy)]
pub(super) struct Discovery<'a> {
    pub(super) listeners: &'a [Listener],
    pub(super) referrals: &'a [SocketAddr],
    pub(super) subsystems: &'a BTreeMap<Arc<str>, Subsystem>,
    /// Subsystems that have no connections but those secured by TLS.
    pub(super) tls_at: &'a BTreeSet<String>,
    pub(super) genctr: u64,
}

impl<'a> Discovery<'a> {
    /// The whole log page for the host of `controller`: at every address the discovery subsystem
    /// itself, then the subsystems the host may use; after all these, other discovery controllers. A subsystem that needs
    /// TLS is not listed to a host that has proved nothing and asks in the clear.
    pub(super) fn log(&self, controller: &Controller, limits: &Limits) -> Vec<u8> {
        let is_proved = controller.has_proved();
        let allowed = self.subsystems.values().filter(|s| s.allows(&controller.hostnqn));
        let listed = allowed.filter(|one| is_proved || !self.tls_at.contains(&*one.nqn));
        let allowed: Vec<&Subsystem> = listed.collect();
        let mut entries = Vec::new();
        for (known, listener) in self.listeners_for(controller.local) {
            let nqns = allowed.iter().filter(|one| listen::is_at(one.listeners.as_ref(), known));
            let mut current = entry(subtype::CURRENT_DISCOVERY, DISCOVERY_NQN, &listener, limits);
            current.eflags = eflags::PERSISTENT.into();
            entries.push(current);
            entries.extend(nqns.map(|one| entry(subtype::NVM, &one.nqn, &listener, limits)));
        }
        entries.extend(self.referrals.iter().map(|address| referral(*address, limits)));
        let header = DiscoveryLogHeader::new(self.genctr, entries.len() as u64);
        [header.as_bytes(), entries.as_bytes()].concat()
    }

    /// Where a host that has reached us at `local` can connect to: listeners, and how they are shown.
    fn listeners_for(&self, local: SocketAddr) -> Vec<(&'a Listener, Listener)> {
        // Which address stands for "any" of the other family cannot be known.
        let known = [local.ip(), local.ip().to_canonical()].map(|ip| ip.is_ipv4());
        let shown = |listener: &'a Listener| {
            let mut address = listener.address;
            if address.ip().is_unspecified() {
                known.contains(&address.is_ipv4()).then(|| address.set_ip(local.ip()))?;
            }
            Some((listener, Listener { address, ..*listener }))
        };
        self.listeners.iter().filter_map(shown).collect()
    }
}

fn entry(subtype: u8, nqn: &str, listener: &Listener, limits: &Limits) -> DiscoveryEntry {
    let mut entry = DiscoveryEntry::new(subtype, nqn);
    let (required, sectype) = match listener.tls {
        TlsUse::Off => (0, sectype::NONE),
        TlsUse::Allowed => (treq::SECURE_ALLOWED, sectype::TLS13),
        TlsUse::Required => (treq::SECURE_REQUIRED, sectype::TLS13),
    };
    entry.treq = treq::DISABLE_SQ_FLOW_CONTROL | required;
    entry.tsas[0] = sectype;
    entry.portid = listener.portid.into();
    set_place(&mut entry, listener.address, limits);
    entry
}

/// An entry for another discovery controller; what it asks for is not known here.
fn referral(address: SocketAddr, limits: &Limits) -> DiscoveryEntry {
    let mut entry = DiscoveryEntry::new(subtype::REFERRAL, DISCOVERY_NQN);
    set_place(&mut entry, address, limits);
    entry
}

fn set_place(entry: &mut DiscoveryEntry, address: SocketAddr, limits: &Limits) {
    entry.cntlid = CNTLID_DYNAMIC.into();
    entry.asqsz = limits.queue_entries_max.into();
    let ip = address.ip().to_canonical();
    let family = match ip {
        IpAddr::V4(_) => adrfam::IPV4,
        IpAddr::V6(_) => adrfam::IPV6,
    };
    entry.set_address(family, &ip.to_string(), &address.port().to_string());
}
