//! Digests of names.

/// Returns a digest of `parts`, joined: FNV-1a of 128 bits, mixed so that every input bit reaches every output bit. Not
/// cryptographic: digests of different names only need to differ, and to stay the same.
#[must_use]
pub fn digest(parts: &[&[u8]]) -> u128 {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let bytes = parts.iter().flat_map(|part| part.iter());
    let fnv = bytes.fold(BASIS, |h, &byte| (h ^ u128::from(byte)).wrapping_mul(PRIME));
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
