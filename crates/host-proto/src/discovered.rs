//! Evaluation of discovery log entries for a host that wants one subsystem (NVMe Base 2.1, section 5.1.12.3.1; NVMe/TCP
//! 1.1, section 3.1.1): addresses that are paths to it, other discovery controllers, and unusable entries.

use core::fmt;
use core::net::{IpAddr, SocketAddr, SocketAddrV6};
use roadtrain_wire::discovery::{DiscoveryEntry, adrfam, sectype, subtype, treq, trtype};

/// Usable and unusable entries of a discovery log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offers {
    /// Addresses of the subsystem, each once, in the log's order.
    pub paths: Vec<SocketAddr>,
    /// Addresses of other discovery controllers, each once, in the log's order.
    pub referrals: Vec<SocketAddr>,
    /// Unusable entries for the subsystem, and unusable referrals.
    pub unusable: Vec<Unusable>,
}

/// Unusable entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unusable {
    /// Address and port, as far as they are text.
    pub place: String,
    /// Reason.
    pub why: UnusableReason,
}

/// Reason why an entry is unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnusableReason {
    /// TRTYPE of another transport.
    Transport(u8),
    /// ADRFAM other than IPv4 and IPv6.
    Family(u8),
    /// TRADDR that is no address of its family, or no unicast address.
    Address,
    /// Link-local TRADDR, while the discovery controller was not reached by a link-local address.
    Interface,
    /// TRSVCID that is no port.
    Port,
    /// TLS required, while this host has no key.
    NeedsTls,
    /// TLS not supported, while this host requires it.
    HasNoTls,
}

impl fmt::Display for UnusableReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UnusableReason::Transport(trtype) => write!(f, "its transport is not TCP (TRTYPE {trtype})"),
            UnusableReason::Family(family) => write!(f, "neither IPv4 nor IPv6 (ADRFAM {family})"),
            UnusableReason::Address => f.write_str("no address of its family that a host can connect to"),
            UnusableReason::Interface => f.write_str(
                "a link-local address, and no interface is known: reach the discovery controller by one, as in \
                 fe80::1%eth0",
            ),
            UnusableReason::Port => f.write_str("its TRSVCID is no TCP port"),
            UnusableReason::NeedsTls => f.write_str("it needs TLS, and this host uses none"),
            UnusableReason::HasNoTls => f.write_str("it has no TLS, and this host wants that"),
        }
    }
}

impl Offers {
    /// Evaluates `entries` for a host that wants subsystem `nqn`. `scope` is the interface by which the discovery
    /// controller was reached, if it has a link-local address, else 0: link-local addresses in its log are at that
    /// interface. `tls` is true if the host secures connections with a key that it has; `None`: it negotiates one, and
    /// starts without.
    #[must_use]
    pub fn new(entries: &[DiscoveryEntry], nqn: &str, scope: u32, tls: Option<bool>) -> Self {
        let mut offers = Offers::default();
        for entry in entries {
            let is_path = entry.subtype == subtype::NVM && entry.subnqn() == Some(nqn);
            if !is_path && entry.subtype != subtype::REFERRAL {
                continue;
            }
            let place = place(entry, scope).and_then(|place| match is_path {
                true => secured(entry, tls).map(|()| place),
                false => Ok(place),
            });
            let list = if is_path { &mut offers.paths } else { &mut offers.referrals };
            match place {
                Ok(place) if !list.contains(&place) => list.push(place),
                Ok(_) => {}
                Err(why) => {
                    let (address, port) = (entry.traddr(), entry.trsvcid());
                    let unusable = Unusable { place: format!("{address} port {port}"), why };
                    if !offers.unusable.contains(&unusable) {
                        offers.unusable.push(unusable);
                    }
                }
            }
        }
        offers
    }
}

/// Existing path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PresentPath {
    /// Address of the path.
    pub address: SocketAddr,
    /// True if the path is connected.
    pub is_live: bool,
}

/// Changes from the current paths to those of discovery logs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathChanges {
    /// Paths to connect.
    pub add: Vec<SocketAddr>,
    /// Paths to remove.
    pub remove: Vec<SocketAddr>,
    /// Paths that no log has any more, kept until another path is connected.
    pub kept: Vec<SocketAddr>,
    /// Number of paths beyond the maximum, which are not used.
    pub left_off: usize,
}

impl PathChanges {
    /// Computes the changes from `present` to `wanted`, for at most `paths_max` paths. A path is removed only if
    /// another wanted path is connected, so that requests can move there.
    #[must_use]
    pub fn new(present: &[PresentPath], wanted: &[SocketAddr], paths_max: usize) -> Self {
        let mut changes = PathChanges::default();
        let is_wanted = |path: &&PresentPath| wanted.contains(&path.address);
        let has_live = present.iter().filter(is_wanted).any(|path| path.is_live);
        for path in present.iter().filter(|path| !is_wanted(path)) {
            let list = if has_live { &mut changes.remove } else { &mut changes.kept };
            list.push(path.address);
        }
        let is_there = |address: &SocketAddr| present.iter().any(|path| path.address == *address);
        changes.add = wanted.iter().filter(|address| !is_there(address)).copied().collect();
        let room = paths_max.saturating_sub(present.len());
        changes.left_off = changes.add.len().saturating_sub(room);
        changes.add.truncate(room);
        changes
    }
}

/// Returns the address of an entry.
fn place(entry: &DiscoveryEntry, scope: u32) -> Result<SocketAddr, UnusableReason> {
    if entry.trtype != trtype::TCP {
        return Err(UnusableReason::Transport(entry.trtype));
    }
    if ![adrfam::IPV4, adrfam::IPV6].contains(&entry.adrfam) {
        return Err(UnusableReason::Family(entry.adrfam));
    }
    let ip: IpAddr = entry.traddr().parse().map_err(|_| UnusableReason::Address)?;
    let is_family = (entry.adrfam == adrfam::IPV6) == ip.is_ipv6();
    let ip = ip.to_canonical();
    if !is_family || ip.is_unspecified() || ip.is_multicast() {
        return Err(UnusableReason::Address);
    }
    let port =
        entry.trsvcid().parse().ok().filter(|&port| port != 0).ok_or(UnusableReason::Port)?;
    match ip {
        IpAddr::V6(ip) if ip.is_unicast_link_local() => match scope {
            0 => Err(UnusableReason::Interface),
            scope => Ok(SocketAddrV6::new(ip, port, 0, scope).into()),
        },
        ip => Ok(SocketAddr::new(ip, port)),
    }
}

/// Checks that the entry's security suits the host; `None`: it takes both.
fn secured(entry: &DiscoveryEntry, tls: Option<bool>) -> Result<(), UnusableReason> {
    let is_required = entry.treq & treq::SECURE_MASK == treq::SECURE_REQUIRED;
    match tls {
        Some(false) if is_required => Err(UnusableReason::NeedsTls),
        Some(true) if !is_required && entry.tsas[0] == sectype::NONE => {
            Err(UnusableReason::HasNoTls)
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roadtrain_wire::fabrics::DISCOVERY_NQN;
    use roadtrain_wire::zerocopy::FromBytes;

    const NQN: &str = "nqn.2025-01.io.example:disk";

    fn at(kind: u8, nqn: &str, family: u8, address: &str, port: &str) -> DiscoveryEntry {
        let mut entry = DiscoveryEntry::new(kind, nqn);
        entry.set_address(family, address, port);
        entry
    }

    fn path(address: &str, port: &str) -> DiscoveryEntry {
        at(subtype::NVM, NQN, adrfam::IPV4, address, port)
    }

    #[test]
    fn entries_of_the_subsystem_are_paths_and_referrals_lead_on() {
        let entries = [
            at(subtype::CURRENT_DISCOVERY, DISCOVERY_NQN, adrfam::IPV4, "192.0.2.7", "4420"),
            path("192.0.2.7", "4420"),
            at(subtype::NVM, "nqn.x:other", adrfam::IPV4, "192.0.2.8", "4420"),
            at(subtype::NVM, NQN, adrfam::IPV6, "2001:db8::1", "4421"),
            path("192.0.2.7", "4420"),
            at(subtype::REFERRAL, DISCOVERY_NQN, adrfam::IPV4, "192.0.2.9", "8009"),
        ];
        let offers = Offers::new(&entries, NQN, 0, None);
        let text = |list: &[SocketAddr]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(text(&offers.paths), ["192.0.2.7:4420", "[2001:db8::1]:4421"]);
        assert_eq!(text(&offers.referrals), ["192.0.2.9:8009"]);
        assert_eq!(offers.unusable, []);
    }

    #[test]
    fn what_cannot_be_used_has_a_reason() {
        let other = |trtype| DiscoveryEntry { trtype, ..path("192.0.2.7", "4420") };
        for (entry, why) in [
            (other(1), UnusableReason::Transport(1)),
            (at(subtype::NVM, NQN, 3, "192.0.2.7", "4420"), UnusableReason::Family(3)),
            (at(subtype::NVM, NQN, adrfam::IPV6, "192.0.2.7", "4420"), UnusableReason::Address),
            (at(subtype::NVM, NQN, adrfam::IPV4, "2001:db8::1", "4420"), UnusableReason::Address),
            (at(subtype::NVM, NQN, adrfam::IPV6, "fe80::1", "4420"), UnusableReason::Interface),
            (at(subtype::NVM, NQN, adrfam::IPV6, "fe80::1%2", "4420"), UnusableReason::Address),
            (path("0.0.0.0", "4420"), UnusableReason::Address),
            (path("224.0.0.1", "4420"), UnusableReason::Address),
            (path("disk.example.org", "4420"), UnusableReason::Address),
            (path("", ""), UnusableReason::Address),
            (path("192.0.2.7", "0"), UnusableReason::Port),
            (path("192.0.2.7", "65536"), UnusableReason::Port),
            (path("192.0.2.7", ""), UnusableReason::Port),
            (
                at(subtype::REFERRAL, DISCOVERY_NQN, adrfam::IPV4, "", "8009"),
                UnusableReason::Address,
            ),
        ] {
            let offers = Offers::new(&[entry, entry], NQN, 0, Some(false));
            let reasons: Vec<UnusableReason> =
                offers.unusable.iter().map(|entry| entry.why).collect();
            assert_eq!(reasons, [why], "{}", why);
            assert!(offers.paths.is_empty() && offers.referrals.is_empty());
        }
    }

    #[test]
    fn link_local_addresses_count_at_the_interface_of_the_discovery_controller() {
        let entries = ["fe80::1", "fe80:0:0::1", "fe80::2"]
            .map(|address| at(subtype::NVM, NQN, adrfam::IPV6, address, "4420"));
        let offers = Offers::new(&entries, NQN, 7, None);
        let path = |last| SocketAddrV6::new([0xfe80, 0, 0, 0, 0, 0, 0, last].into(), 4420, 0, 7);
        assert_eq!(offers.paths, [path(1).into(), path(2).into()]);
        assert_eq!(offers.unusable, []);
    }

    #[test]
    fn entries_are_secured_as_the_host_wants() {
        let plain = path("192.0.2.7", "4420");
        let mut allowed = DiscoveryEntry { treq: treq::SECURE_ALLOWED, ..plain };
        allowed.tsas[0] = sectype::TLS13;
        let required = DiscoveryEntry { treq: treq::SECURE_REQUIRED, ..allowed };
        let usable = |tls| {
            [plain, allowed, required]
                .map(|entry| !Offers::new(&[entry], NQN, 0, tls).paths.is_empty())
        };
        assert_eq!(usable(Some(false)), [true, true, false]);
        assert_eq!(usable(Some(true)), [false, true, true]);
        assert_eq!(usable(None), [true; 3]);
    }

    #[test]
    fn paths_follow_the_log_and_one_that_works_stays() {
        let address = |port: u16| SocketAddr::from(([192, 0, 2, 7], port));
        let path = |port, is_live| PresentPath { address: address(port), is_live };
        // Present ports and whether they are live, wanted ports; ports to add, remove and keep.
        for (present, wanted, add, remove, kept) in [
            (vec![path(1, true)], vec![1], vec![], vec![], vec![]),
            (vec![path(1, true)], vec![1, 2], vec![2], vec![], vec![]),
            (vec![path(1, true), path(2, true)], vec![2], vec![], vec![1], vec![]),
            (vec![path(1, true), path(2, false)], vec![2], vec![], vec![], vec![1]),
            (vec![path(1, true), path(2, true)], vec![3], vec![3], vec![], vec![1, 2]),
            (
                vec![path(1, false), path(2, true), path(3, true)],
                vec![2],
                vec![],
                vec![1, 3],
                vec![],
            ),
            (vec![path(1, true)], vec![], vec![], vec![], vec![1]),
        ] {
            let wanted: Vec<_> = wanted.into_iter().map(address).collect();
            let list = |ports: Vec<u16>| ports.into_iter().map(address).collect::<Vec<_>>();
            let (add, remove, kept) = (list(add), list(remove), list(kept));
            let expected = PathChanges { add, remove, kept, left_off: 0 };
            assert_eq!(PathChanges::new(&present, &wanted, 8), expected, "{present:?} {wanted:?}");
        }
        let wanted: Vec<_> = (1..=9).map(address).collect();
        let changes = PathChanges::new(&[path(1, true)], &wanted, 4);
        assert_eq!((changes.add.len(), changes.left_off), (3, 5));
    }

    #[test]
    fn hostile_entries_offer_nothing() {
        let noise = [0xff; size_of::<DiscoveryEntry>()];
        let noise = DiscoveryEntry::read_from_bytes(&noise).unwrap();
        assert_eq!(Offers::new(&[noise], NQN, 0, None), Offers::default());
    }
}
