//! Diffie-Hellman groups (RFC 7919), and modular exponentiation in them: the one slow step of an authentication.

use crate::security::{Hash, Secret};
use core::fmt;
use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, Odd};
use std::sync::{Arc, OnceLock};
use zeroize::{Zeroize, Zeroizing};

/// A Diffie-Hellman group; its value is its identifier in messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum DhGroup {
    /// No Diffie-Hellman exchange.
    Null = 0,
    /// 2,048 bits.
    Ffdhe2048 = 1,
    /// 3,072 bits.
    Ffdhe3072 = 2,
    /// 4,096 bits.
    Ffdhe4096 = 3,
    /// 6,144 bits.
    Ffdhe6144 = 4,
    /// 8,192 bits.
    Ffdhe8192 = 5,
}

impl DhGroup {
    /// All groups.
    pub const ALL: [DhGroup; 6] = [
        DhGroup::Null,
        DhGroup::Ffdhe2048,
        DhGroup::Ffdhe3072,
        DhGroup::Ffdhe4096,
        DhGroup::Ffdhe6144,
        DhGroup::Ffdhe8192,
    ];

    /// The group with that identifier.
    #[must_use]
    pub fn from_id(id: u8) -> Option<Self> {
        DhGroup::ALL.into_iter().find(|&group| group as u8 == id)
    }

    /// Identifier in messages.
    #[must_use]
    pub const fn id(self) -> u8 {
        self as u8
    }

    /// Bytes of a public value.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            DhGroup::Null => 0,
            DhGroup::Ffdhe2048 => 256,
            DhGroup::Ffdhe3072 => 384,
            DhGroup::Ffdhe4096 => 512,
            DhGroup::Ffdhe6144 => 768,
            DhGroup::Ffdhe8192 => 1024,
        }
    }

    /// Bytes of an exponent: at least twice the strength of the group.
    #[must_use]
    pub const fn exponent_bytes(self) -> usize {
        match self {
            DhGroup::Null => 0,
            DhGroup::Ffdhe2048 | DhGroup::Ffdhe3072 => 32,
            DhGroup::Ffdhe4096 | DhGroup::Ffdhe6144 | DhGroup::Ffdhe8192 => 64,
        }
    }

    /// Returns the group's prime: the beginning of that of ffdhe8192, but for the last 16 bytes.
    fn prime(self) -> Vec<u8> {
        let end: u64 = match self {
            DhGroup::Null => return Vec::new(),
            DhGroup::Ffdhe2048 => 0x886b_4238_6128_5c97,
            DhGroup::Ffdhe3072 => 0x25e4_1d2b_66c6_2e37,
            DhGroup::Ffdhe4096 => 0xc68a_007e_5e65_5f6a,
            DhGroup::Ffdhe6144 => 0xa40e_329c_d0e4_0e65,
            DhGroup::Ffdhe8192 => 0xd68c_8bb7_c5c6_424c,
        };
        let digit = |byte: u8| (byte as char).to_digit(16).unwrap_or(0) as u8;
        let (pairs, _) = FFDHE8192.as_bytes().as_chunks::<2>();
        let bytes = pairs.iter().map(|&[high, low]| digit(high) << 4 | digit(low));
        let mut prime: Vec<u8> = bytes.take(self.bytes() - 16).collect();
        prime.extend(end.to_be_bytes());
        prime.extend([0xff; 8]);
        prime
    }

    /// True if `value` is a valid public value of the other end: of the prime's length, from 2 to p - 2. With 0, 1 and
    /// p - 1 everybody could compute the shared secret.
    #[must_use]
    pub fn takes(self, value: &[u8]) -> bool {
        if value.len() != self.bytes() {
            return false;
        }
        let Some((last, most)) = value.split_last() else { return true }; // without a group there is no value
        let is_small = most.iter().all(|&byte| byte == 0) && *last < 2;
        // The prime is odd, so p - 2 has a last byte that is lower by 2, without a borrow.
        let mut largest = self.prime();
        if let Some(byte) = largest.last_mut() {
            *byte -= 2;
        }
        !is_small && value <= &largest[..]
    }

    fn params(self) -> Option<&'static BoxedMontyParams> {
        static PARAMS: [OnceLock<Option<BoxedMontyParams>>; 6] = [const { OnceLock::new() }; 6];
        let make = || {
            let prime = self.integer(&self.prime())?;
            Some(BoxedMontyParams::new_vartime(Option::from(Odd::new(prime))?))
        };
        PARAMS[self as usize].get_or_init(make).as_ref()
    }

    fn integer(self, bytes: &[u8]) -> Option<BoxedUint> {
        BoxedUint::from_be_slice(bytes, self.bytes() as u32 * 8).ok()
    }

    /// Returns `base` to the power of `exponent`, as long as the prime; the generator is the base when `base` is
    /// `None`.
    fn power(self, base: Option<&[u8]>, exponent: &Secret) -> Option<Secret> {
        let params = self.params()?;
        let base = self.integer(base.unwrap_or(&[2]))?;
        let bits = exponent.reveal().len() as u32 * 8;
        let mut exponent = BoxedUint::from_be_slice(exponent.reveal(), bits).ok()?;
        let mut power = BoxedMontyForm::new(base, params).pow_bounded_exp(&exponent, bits);
        let mut value = power.retrieve();
        let bytes = Zeroizing::new(value.to_be_bytes());
        exponent.zeroize();
        power.zeroize();
        value.zeroize();
        Some(Secret::new(&bytes))
    }
}

impl fmt::Display for DhGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DhGroup::Null => f.write_str("no group"),
            group => write!(f, "ffdhe{}", group.bytes() * 8),
        }
    }
}

/// Exponentiations for a Diffie-Hellman worker thread. Clones are the same computation.
#[derive(Clone, Debug)]
pub struct DhTask(Arc<DhTaskState>);

#[derive(Debug)]
struct DhTaskState {
    hash: Hash,
    group: DhGroup,
    exponent: Secret,
    /// Public value of the other end; `None`: not known yet.
    peer: Option<Vec<u8>>,
    /// True if this end's public value has to be computed, too.
    public: bool,
    done: OnceLock<DhResult>,
}

/// Results of the computation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DhResult {
    /// This end's public value.
    pub public: Vec<u8>,
    /// Ks, the hash of the shared secret, which is not kept itself.
    pub session_key: Option<Secret>,
}

impl DhTask {
    pub(super) fn new(
        (hash, group): (Hash, DhGroup),
        exponent: Secret,
        peer: Option<Vec<u8>>,
        public: bool,
    ) -> Self {
        DhTask(Arc::new(DhTaskState { hash, group, exponent, peer, public, done: OnceLock::new() }))
    }

    /// Computes the results, once: an exponentiation takes from half a millisecond to 13 ms.
    pub fn compute(&self) {
        let DhTaskState { hash, group, exponent, peer, public, done } = &*self.0;
        let shared = |peer: &Vec<u8>| group.power(Some(peer), exponent);
        done.get_or_init(|| DhResult {
            public: match public.then(|| group.power(None, exponent)).flatten() {
                Some(value) => value.reveal().to_vec(),
                None => Vec::new(),
            },
            session_key: peer.as_ref().and_then(shared).map(|s| hash.digest(&[s.reveal()])),
        });
    }

    /// Takes results computed by another process.
    pub fn supply(&self, powers: DhResult) {
        let _ = self.0.done.set(powers); // existing results stay
    }

    /// Returns the results, once they are computed.
    #[must_use]
    pub fn result(&self) -> Option<&DhResult> {
        self.0.done.get()
    }

    /// True if no authentication waits for the results any more.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

/// Prime of ffdhe8192 in hexadecimal (RFC 7919, appendix A.5). The smaller primes begin as it does.
const FFDHE8192: &str = concat!(
    "ffffffffffffffffadf85458a2bb4a9aafdc5620273d3cf1d8b9c583ce2d3695a9e13641146433fbcc939dce249b3ef9",
    "7d2fe363630c75d8f681b202aec4617ad3df1ed5d5fd65612433f51f5f066ed0856365553ded1af3b557135e7f57c935",
    "984f0c70e0e68b77e2a689daf3efe8721df158a136ade73530acca4f483a797abc0ab182b324fb61d108a94bb2c8e3fb",
    "b96adab760d7f4681d4f42a3de394df4ae56ede76372bb190b07a7c8ee0a6d709e02fce1cdf7e2ecc03404cd28342f61",
    "9172fe9ce98583ff8e4f1232eef28183c3fe3b1b4c6fad733bb5fcbc2ec22005c58ef1837d1683b2c6f34a26c1b2effa",
    "886b4238611fcfdcde355b3b6519035bbc34f4def99c023861b46fc9d6e6c9077ad91d2691f7f7ee598cb0fac186d91c",
    "aefe130985139270b4130c93bc437944f4fd4452e2d74dd364f2e21e71f54bff5cae82ab9c9df69ee86d2bc522363a0d",
    "abc521979b0deada1dbf9a42d5c4484e0abcd06bfa53ddef3c1b20ee3fd59d7c25e41d2b669e1ef16e6f52c3164df4fb",
    "7930e9e4e58857b6ac7d5f42d69f6d187763cf1d5503400487f55ba57e31cc7a7135c886efb4318aed6a1e012d9e6832",
    "a907600a918130c46dc778f971ad0038092999a333cb8b7a1a1db93d7140003c2a4ecea9f98d0acc0a8291cdcec97dcf",
    "8ec9b55a7f88a46b4db5a851f44182e1c68a007e5e0dd9020bfd64b645036c7a4e677d2c38532a3a23ba4442caf53ea6",
    "3bb454329b7624c8917bdd64b1c0fd4cb38e8c334c701c3acdad0657fccfec719b1f5c3e4e46041f388147fb4cfdb477",
    "a52471f7a9a96910b855322edb6340d8a00ef092350511e30abec1fff9e3a26e7fb29f8c183023c3587e38da0077d9b4",
    "763e4e4b94b2bbc194c6651e77caf992eeaac0232a281bf6b3a739c1226116820ae8db5847a67cbef9c9091b462d538c",
    "d72b03746ae77f5e62292c311562a846505dc82db854338ae49f5235c95b91178ccf2dd5cacef403ec9d1810c6272b04",
    "5b3b71f9dc6b80d63fdd4a8e9adb1e6962a69526d43161c1a41d570d7938dad4a40e329ccff46aaa36ad004cf600c838",
    "1e425a31d951ae64fdb23fcec9509d43687feb69edd1cc5e0b8cc3bdf64b10ef86b63142a3ab8829555b2f747c932665",
    "cb2c0f1cc01bd70229388839d2af05e454504ac78b7582822846c0ba35c35f5c59160cc046fd8251541fc68c9c86b022",
    "bb7099876a460e7451a8a93109703fee1c217e6c3826e52c51aa691e0e423cfc99e9e31650c1217b624816cdad9a95f9",
    "d5b8019488d9c0a0a1fe3075a577e23183f81d4a3f2fa4571efc8ce0ba8a4fe8b6855dfe72b0a66eded2fbabfbe58a30",
    "fafabe1c5d71a87e2f741ef8c1fe86fea6bbfde530677f0d97d11d49f7a8443d0822e506a9f4614e011e2a94838ff88c",
    "d68c8bb7c5c6424cffffffffffffffff",
);

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &str = include_str!("../../../tests/proto/security/dhchap-known.txt");

    fn bytes(hex: &str) -> Vec<u8> {
        let (pairs, _) = hex.as_bytes().as_chunks::<2>();
        let digit = |byte: u8| (byte as char).to_digit(16).unwrap() as u8;
        pairs.iter().map(|&[high, low]| digit(high) << 4 | digit(low)).collect()
    }

    /// Transactions with Linux, with secrets that begin with a zero byte.
    #[test]
    fn powers_are_those_of_known_transactions() {
        let mut checked = 0;
        for known in KNOWN.split("\n\n") {
            let field = |name: &str| known.lines().find_map(|line| line.strip_prefix(name));
            let Some(private) = field("host private ") else { continue };
            let length = bytes(field("g^xy ").unwrap()).len();
            let group = DhGroup::ALL.into_iter().find(|group| group.bytes() == length).unwrap();
            let peer = bytes(field("controller public ").unwrap());
            assert!(group.takes(&peer));
            let (hash, exponent) = (Hash::Sha256, Secret::new(&bytes(private)));
            let shared = group.power(Some(&peer), &exponent).unwrap();
            assert_eq!(shared.reveal()[0], 0);
            assert!(shared.is(&bytes(field("g^xy ").unwrap())));
            let work = DhTask::new((hash, group), exponent, Some(peer), true);
            assert!(work.result().is_none());
            work.compute();
            let powers = work.result().unwrap();
            assert_eq!(powers.public, bytes(field("host public ").unwrap()));
            assert_eq!(powers.session_key, Some(hash.digest(&[shared.reveal()])));
            checked += 1;
        }
        assert_eq!(checked, 4);
    }

    /// 2 is a square modulo a safe prime of this form: to the power of (p - 1) / 2 it is 1. A wrong digit makes the
    /// result differ from 1.
    #[test]
    fn primes_are_primes() {
        for group in &DhGroup::ALL[1..] {
            let mut half = group.prime();
            let mut carry = 0;
            for byte in &mut half {
                (*byte, carry) = (*byte >> 1 | carry << 7, *byte & 1);
            }
            let power = group.power(None, &Secret::new(&half)).unwrap();
            let (last, most) = power.reveal().split_last().unwrap();
            assert!(*last == 1 && most.iter().all(|&byte| byte == 0), "{group}");
        }
    }

    #[test]
    fn values_that_everybody_knows_are_not_taken() {
        for group in &DhGroup::ALL[1..] {
            let small = |last: u8| {
                let mut value = vec![0; group.bytes()];
                *value.last_mut().unwrap() = last;
                value
            };
            let below = |by: u8| {
                let mut value = group.prime();
                *value.last_mut().unwrap() -= by;
                value
            };
            for bad in [small(0), small(1), below(1), below(0), vec![0xff; group.bytes()]] {
                assert!(!group.takes(&bad), "{group}");
            }
            assert!(group.takes(&small(2)) && group.takes(&below(2)));
            assert!(!group.takes(&small(2)[1..]) && !group.takes(&[]));
        }
        assert!(DhGroup::Null.takes(&[]) && !DhGroup::Null.takes(&[2]));
    }
}
