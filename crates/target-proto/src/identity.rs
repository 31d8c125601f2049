//! Identity of namespaces, and serial numbers of subsystems.
//!
//! Hosts take two namespaces with the same UUID or NGUID for two paths to the same blocks. So both belong to the
//! blocks: their *store* has a number, from which UUID and NGUID are derived here.

use core::net::SocketAddr;
use roadtrain_proto::digest::digest;

/// Identity of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamespaceId {
    pub uuid: [u8; 16],
    pub nguid: [u8; 16],
}

impl NamespaceId {
    /// Returns the identity of a namespace on the store with number `store`.
    #[must_use]
    pub fn of_store(store: u128) -> Self {
        NamespaceId::seeded(&store.to_be_bytes())
    }

    /// Returns the configured identity. If only one half is configured, the other one is derived from it: two targets
    /// with one store then agree as soon as one value is the same. If neither is, both are derived from `store`.
    #[must_use]
    pub fn choose(uuid: Option<[u8; 16]>, nguid: Option<[u8; 16]>, store: u128) -> Self {
        match (uuid, nguid) {
            (Some(uuid), Some(nguid)) => NamespaceId { uuid, nguid },
            (Some(uuid), None) => NamespaceId { uuid, ..NamespaceId::seeded(&uuid) },
            (None, Some(nguid)) => NamespaceId { nguid, ..NamespaceId::seeded(&nguid) },
            (None, None) => NamespaceId::of_store(store),
        }
    }

    /// Returns an identity derived from NQN and NSID, independent of the blocks: for a target whose stores have no
    /// numbers.
    pub(super) fn of_place(nqn: &str, nsid: u32) -> Self {
        let place = [nqn.as_bytes(), &nsid.to_le_bytes()].concat();
        NamespaceId::seeded(&place)
    }

    fn seeded(seed: &[u8]) -> Self {
        let mut uuid = digest(&[b"uuid\0", seed]).to_be_bytes();
        // RFC 9562: version 8, custom format.
        uuid[6] = uuid[6] & 0x0f | 0x80;
        uuid[8] = uuid[8] & 0x3f | 0x80;
        NamespaceId { uuid, nguid: digest(&[b"nguid\0", seed]).to_be_bytes() }
    }
}

/// Returns the serial number of a subsystem of a target with that `origin`: 20 hexadecimal digits.
pub(super) fn serial(origin: u128, nqn: &str) -> String {
    let origin = if origin == 0 { Vec::new() } else { origin.to_be_bytes().to_vec() };
    let digest = digest(&[b"serial\0", &origin, nqn.as_bytes(), &[0; 4]]);
    format!("{digest:032x}")[..20].to_owned()
}

/// Returns the number of a listening endpoint: an address in a network namespace of a machine's boot, where one process
/// listens at a time. 0: not known.
pub(super) fn endpoint(network: u128, local: SocketAddr) -> u64 {
    if network == 0 || local.port() == 0 {
        return 0;
    }
    digest(&[b"endpoint\0", &network.to_be_bytes(), local.to_string().as_bytes()]) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn identities_are_stable_and_distinct() {
        let one = NamespaceId::of_store(1);
        assert_eq!(one, NamespaceId::of_store(1));
        assert_ne!(one.uuid, one.nguid);
        let stores = (0..500).map(NamespaceId::of_store).flat_map(|id| [id.uuid, id.nguid]);
        assert_eq!(stores.collect::<BTreeSet<_>>().len(), 1000);
        assert_eq!((one.uuid[6] >> 4, one.uuid[8] >> 6), (8, 2));
        let places = [("nqn.x:a", 1), ("nqn.x:a", 2), ("nqn.x:b", 1)];
        let places = places.map(|(nqn, nsid)| NamespaceId::of_place(nqn, nsid));
        assert_eq!(BTreeSet::from(places).len(), 3);
    }

    #[test]
    fn one_configured_half_determines_the_other() {
        let (uuid, nguid) = (Some([1; 16]), Some([2; 16]));
        let both = NamespaceId::choose(uuid, nguid, 7);
        assert_eq!((both.uuid, both.nguid), ([1; 16], [2; 16]));
        for (uuid, nguid) in [(uuid, None), (None, nguid)] {
            let id = NamespaceId::choose(uuid, nguid, 7);
            assert_eq!(id, NamespaceId::choose(uuid, nguid, 8), "whatever the store is");
            assert!(uuid.is_none_or(|uuid| uuid == id.uuid && uuid != id.nguid));
            assert!(nguid.is_none_or(|nguid| nguid == id.nguid && nguid != id.uuid));
        }
        assert_eq!(NamespaceId::choose(None, None, 7), NamespaceId::of_store(7));
    }

    /// Hosts store these in fstab and multipath maps: a change breaks them.
    #[test]
    fn identities_do_not_change_between_releases() {
        let hex = |bytes: [u8; 16]| format!("{:032x}", u128::from_be_bytes(bytes));
        let id = NamespaceId::of_store(0x0123_4567_89ab_cdef);
        assert_eq!(hex(id.uuid), "2556c79a6ab48607ad2b9986566665e0");
        assert_eq!(hex(id.nguid), "f1640f40c73c6030f4e8f51c1b574e35");
        let place = NamespaceId::of_place("nqn.2024-01.test:a", 1);
        assert_eq!(hex(place.uuid), "ff6ef2b757338928a36621233d995720");
        assert_eq!(serial(0, "nqn.2024-01.test:a"), "85cb456bf7de58c54d17");
        assert_ne!(serial(1, "nqn.2024-01.test:a"), serial(2, "nqn.2024-01.test:a"));
    }
}
