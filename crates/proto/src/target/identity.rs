//! Names that stay the same over restarts because they are derived from the configuration.

/// UUID of a namespace: version 8 (RFC 9562), from a hash of NQN and NSID.
pub(super) fn namespace_uuid(nqn: &str, nsid: u32) -> [u8; 16] {
    let mut uuid = hash("uuid", nqn, nsid).to_be_bytes();
    uuid[6] = uuid[6] & 0x0f | 0x80;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}

/// NGUID of a namespace.
pub(super) fn namespace_nguid(nqn: &str, nsid: u32) -> [u8; 16] {
    hash("nguid", nqn, nsid).to_be_bytes()
}

/// Serial number of a subsystem: 20 hexadecimal digits.
pub(super) fn serial(nqn: &str) -> String {
    format!("{:032x}", hash("serial", nqn, 0))[..20].to_owned()
}

/// FNV-1a of 128 bits, then mixed so that every input bit reaches every output bit. Not cryptographic:
/// names only need to differ and to last.
fn hash(salt: &str, nqn: &str, nsid: u32) -> u128 {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let octets = salt.bytes().chain([0]).chain(nqn.bytes()).chain(nsid.to_le_bytes());
    let fnv = octets.fold(BASIS, |h, octet| (h ^ u128::from(octet)).wrapping_mul(PRIME));
    let (high, low) = ((fnv >> 64) as u64, fnv as u64);
    let first = mix(high ^ low.rotate_left(32));
    u128::from(first) << 64 | u128::from(mix(low ^ first))
}

/// SplitMix64's finaliser.
fn mix(mut x: u64) -> u64 {
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_stable_and_distinct() {
        let uuid = namespace_uuid("nqn.2024-01.test:a", 1);
        assert_eq!(uuid, namespace_uuid("nqn.2024-01.test:a", 1));
        let mut all = BTreeSet::from([uuid, namespace_nguid("nqn.2024-01.test:a", 1)]);
        all.extend((2..500).map(|nsid| namespace_uuid("nqn.2024-01.test:a", nsid)));
        all.insert(namespace_uuid("nqn.2024-01.test:b", 1));
        assert_eq!(all.len(), 501);
        assert_eq!((uuid[6] >> 4, uuid[8] >> 6), (8, 2));
    }

    /// Hosts keep these in fstab and multipath maps: a change here breaks them.
    #[test]
    fn names_do_not_change_between_releases() {
        let uuid = u128::from_be_bytes(namespace_uuid("nqn.2024-01.test:a", 1));
        assert_eq!(format!("{uuid:032x}"), "ff6ef2b757338928a36621233d995720");
        assert_eq!(serial("nqn.2024-01.test:a"), "85cb456bf7de58c54d17");
    }
}
