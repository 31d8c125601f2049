//! Fast pseudo-random numbers, reproducible from a seed.

/// SplitMix64: one addition and a mix; passes the usual tests, needs no warm-up.
#[derive(Clone, Debug)]
pub(super) struct SplitMix(u64);

/// 2^64 divided by the golden ratio.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl SplitMix {
    /// Creates the generator of a `(seed, stream)`, each with a different sequence.
    #[must_use]
    pub(super) fn new(seed: u64, stream: u64) -> SplitMix {
        SplitMix(mix(seed ^ mix(stream.wrapping_add(STEP))))
    }

    /// Returns 64 random bits.
    #[inline]
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }
}

/// Scales random bits to `0..n` by their high end; the bias is below n / 2^64.
#[inline]
#[must_use]
pub(super) fn scale(bits: u64, n: u64) -> u64 {
    ((u128::from(bits) * u128::from(n)) >> 64) as u64
}

/// Mixes every bit into all others (Stafford's variant 13 of MurmurHash3's finaliser).
#[inline]
#[must_use]
pub(super) fn mix(mut x: u64) -> u64 {
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_repeat_and_differ() {
        let draw = |seed, stream| {
            let mut rng = SplitMix::new(seed, stream);
            [rng.next(), rng.next(), rng.next()]
        };
        assert_eq!(draw(1, 0), draw(1, 0));
        assert_ne!(draw(1, 0), draw(1, 1));
        assert_ne!(draw(1, 0), draw(2, 0));
    }

    #[test]
    fn scale_is_even_and_in_bounds() {
        let mut rng = SplitMix::new(7, 0);
        let mut counts = [0u32; 10];
        for _ in 0..100_000 {
            counts[scale(rng.next(), 10) as usize] += 1;
        }
        assert!(counts.iter().all(|c| (9_500..10_500).contains(c)), "{counts:?}");
        assert_eq!(scale(u64::MAX, 3), 2);
        assert_eq!(scale(0, 3), 0);
    }
}
