//! Hashes of NVMe's security protocols.

use super::Secret;
use core::fmt;
use hmac::digest::Digest;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Sha256, Sha384, Sha512};
use zeroize::Zeroize;

/// A hash function; its value is its identifier in keys and messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Hash {
    /// SHA-256.
    Sha256 = 1,
    /// SHA-384.
    Sha384 = 2,
    /// SHA-512.
    Sha512 = 3,
}

impl Hash {
    /// All hashes, the shortest first.
    pub const ALL: [Hash; 3] = [Hash::Sha256, Hash::Sha384, Hash::Sha512];

    /// The hash with that identifier.
    #[must_use]
    pub fn from_id(id: u8) -> Option<Self> {
        Hash::ALL.into_iter().find(|&hash| hash as u8 == id)
    }

    /// Identifier in keys and messages.
    #[must_use]
    pub const fn id(self) -> u8 {
        self as u8
    }

    /// Bytes of a hash value.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Hash::Sha256 => 32,
            Hash::Sha384 => 48,
            Hash::Sha512 => 64,
        }
    }

    /// Returns the hash of `parts`, joined.
    #[must_use]
    pub fn digest(self, parts: &[&[u8]]) -> Secret {
        match self {
            Hash::Sha256 => digest::<Sha256>(parts),
            Hash::Sha384 => digest::<Sha384>(parts),
            Hash::Sha512 => digest::<Sha512>(parts),
        }
    }

    /// Returns the HMAC with `key` of `parts`, joined.
    #[must_use]
    pub fn hmac(self, key: &[u8], parts: &[&[u8]]) -> Secret {
        match self {
            Hash::Sha256 => mac::<Hmac<Sha256>>(key, parts),
            Hash::Sha384 => mac::<Hmac<Sha384>>(key, parts),
            Hash::Sha512 => mac::<Hmac<Sha512>>(key, parts),
        }
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Hash::Sha256 => "SHA-256",
            Hash::Sha384 => "SHA-384",
            Hash::Sha512 => "SHA-512",
        })
    }
}

fn digest<D: Digest>(parts: &[&[u8]]) -> Secret {
    let mut state = D::new();
    for part in parts {
        state.update(part);
    }
    taken(&mut state.finalize())
}

fn mac<M: Mac + KeyInit>(key: &[u8], parts: &[&[u8]]) -> Secret {
    #[allow(clippy::expect_used, reason = "HMAC takes keys of every length")]
    let mut state = <M as KeyInit>::new_from_slice(key).expect("a key of any length");
    for part in parts {
        state.update(part);
    }
    taken(&mut state.finalize().into_bytes())
}

/// Takes the value and overwrites the original.
fn taken(value: &mut [u8]) -> Secret {
    let secret = Secret::new(value);
    value.zeroize();
    secret
}
