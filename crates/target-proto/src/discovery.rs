//! The discovery log as one host sees it.

use super::config::TargetLimits;
use super::controller::TargetController;
use super::listen::{self, FrameListener, TargetListener, TlsUse};
use super::subsystem::TargetSubsystem;
use core::net::{IpAddr, SocketAddr};
use roadtrain_wire::discovery::{
    DiscoveryEntry, DiscoveryLogHeader, adrfam, eflags, sectype, subtype, treq, trtype,
};
use roadtrain_wire::fabrics::{CNTLID_DYNAMIC, DISCOVERY_NQN};
use roadtrain_wire::zerocopy::IntoBytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Contents of the discovery log.
#[derive(Clone, Copy)]
pub(super) struct DiscoveryLogSource<'a> {
    pub(super) listeners: &'a [TargetListener],
    pub(super) frame_listeners: &'a [FrameListener],
    pub(super) referrals: &'a [SocketAddr],
    pub(super) subsystems: &'a BTreeMap<Arc<str>, TargetSubsystem>,
    /// Subsystems that accept only connections secured by TLS.
    pub(super) tls_at: &'a BTreeSet<String>,
    pub(super) genctr: u64,
}

impl<'a> DiscoveryLogSource<'a> {
    /// Returns the whole log page for the host of `controller`: at every address the discovery subsystem itself, then
    /// the subsystems that the host may use, and finally the referrals. A subsystem that requires TLS is hidden from an
    /// unauthenticated host on a plain connection.
    pub(super) fn log(&self, controller: &TargetController, limits: &TargetLimits) -> Vec<u8> {
        let is_proved = controller.has_proved();
        let allowed = self.subsystems.values().filter(|s| s.allows(&controller.hostnqn));
        let listed = allowed.filter(|one| is_proved || !self.tls_at.contains(&*one.nqn));
        let allowed: Vec<&TargetSubsystem> = listed.collect();
        let mut entries = Vec::new();
        for (known, listener) in self.listeners_for(controller.local) {
            let nqns = allowed.iter().filter(|one| listen::is_at(one.listeners.as_ref(), known));
            let mut current = entry(subtype::CURRENT_DISCOVERY, DISCOVERY_NQN, &listener, limits);
            current.eflags = eflags::PERSISTENT.into();
            entries.push(current);
            entries.extend(nqns.map(|one| entry(subtype::NVM, &one.nqn, &listener, limits)));
        }
        if controller.local.port() == 0 {
            entries.extend(self.frame_entries(&allowed, limits));
        }
        entries.extend(self.referrals.iter().map(|address| referral(*address, limits)));
        let header = DiscoveryLogHeader::new(self.genctr, entries.len() as u64);
        [header.as_bytes(), entries.as_bytes()].concat()
    }

    /// Returns entries for the ports on Ethernet, for a host connected over one of them. Subsystems that name addresses
    /// are left out.
    fn frame_entries(
        &self,
        allowed: &[&TargetSubsystem],
        limits: &TargetLimits,
    ) -> Vec<DiscoveryEntry> {
        let nqns = allowed.iter().filter(|one| one.listeners.is_none()).map(|one| &*one.nqn);
        let nqns: Vec<&str> = nqns.collect();
        let mut entries = Vec::new();
        for (portid, port) in (FRAME_PORTID..).zip(self.frame_listeners) {
            let mut add = |kind, nqn| entries.push(frame_entry(kind, nqn, (portid, port), limits));
            add(subtype::CURRENT_DISCOVERY, DISCOVERY_NQN);
            nqns.iter().for_each(|nqn| add(subtype::NVM, nqn));
        }
        entries
    }

    /// Returns the listeners to which a host connected to `local` can connect, each with its address as shown.
    fn listeners_for(&self, local: SocketAddr) -> Vec<(&'a TargetListener, TargetListener)> {
        // The address behind an unspecified one of the other family is not known.
        let known = [local.ip(), local.ip().to_canonical()].map(|ip| ip.is_ipv4());
        let shown = |listener: &'a TargetListener| {
            let mut address = listener.address;
            if address.ip().is_unspecified() {
                // A host on Ethernet has no IP address.
                (local.port() != 0).then_some(())?;
                known.contains(&address.is_ipv4()).then(|| address.set_ip(local.ip()))?;
            }
            Some((listener, TargetListener { address, ..*listener }))
        };
        self.listeners.iter().filter_map(shown).collect()
    }
}

fn entry(
    subtype: u8,
    nqn: &str,
    listener: &TargetListener,
    limits: &TargetLimits,
) -> DiscoveryEntry {
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

/// PORTID of the first port on Ethernet; those of TCP addresses count from 1.
const FRAME_PORTID: u16 = 0xf000;

fn frame_entry(
    subtype: u8,
    nqn: &str,
    (portid, port): (u16, &FrameListener),
    limits: &TargetLimits,
) -> DiscoveryEntry {
    let mut entry = DiscoveryEntry::new(subtype, nqn);
    let [a, b, c, d, e, f] = port.address;
    let address = format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}");
    let vlan = port.vlan.map(|vlan| format!(".{vlan}")).unwrap_or_default();
    entry.set_address(0, &address, &format!("{:04x}{vlan}", port.ethertype));
    entry.trtype = trtype::FRAMES;
    entry.treq = treq::DISABLE_SQ_FLOW_CONTROL;
    entry.portid = portid.into();
    entry.cntlid = CNTLID_DYNAMIC.into();
    entry.asqsz = limits.queue_entries_max.into();
    entry
}

/// Returns an entry for another discovery controller; its TLS use is not known.
fn referral(address: SocketAddr, limits: &TargetLimits) -> DiscoveryEntry {
    let mut entry = DiscoveryEntry::new(subtype::REFERRAL, DISCOVERY_NQN);
    set_place(&mut entry, address, limits);
    entry
}

fn set_place(entry: &mut DiscoveryEntry, address: SocketAddr, limits: &TargetLimits) {
    entry.cntlid = CNTLID_DYNAMIC.into();
    entry.asqsz = limits.queue_entries_max.into();
    let ip = address.ip().to_canonical();
    let family = match ip {
        IpAddr::V4(_) => adrfam::IPV4,
        IpAddr::V6(_) => adrfam::IPV6,
    };
    entry.set_address(family, &ip.to_string(), &address.port().to_string());
}
