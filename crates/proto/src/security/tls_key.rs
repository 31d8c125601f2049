//! PSKs of TLS: the configured key, its derivations, and the identities by which both ends name them.

use super::interchange::{self, KeyError};
use super::{Hash, SEED, Secret};
use base64ct::{Base64, Encoding};
use zeroize::Zeroizing;

pub(super) const FORM: &str = "NVMeTLSkey-1";

/// A cipher suite of TLS 1.3, with the hash of its PSK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suite {
    /// `TLS_AES_128_GCM_SHA256`.
    Aes128GcmSha256,
    /// `TLS_AES_256_GCM_SHA384`.
    Aes256GcmSha384,
}

impl Suite {
    /// Returns the hash of the PSK.
    #[must_use]
    pub const fn hash(self) -> Hash {
        match self {
            Suite::Aes128GcmSha256 => Hash::Sha256,
            Suite::Aes256GcmSha384 => Hash::Sha384,
        }
    }

    /// Number of the suite in TLS.
    #[must_use]
    pub const fn code(self) -> u16 {
        match self {
            Suite::Aes128GcmSha256 => 0x1301,
            Suite::Aes256GcmSha384 => 0x1302,
        }
    }

    /// Bytes of the cipher's key.
    #[must_use]
    pub const fn key_bytes(self) -> usize {
        match self {
            Suite::Aes128GcmSha256 => 16,
            Suite::Aes256GcmSha384 => 32,
        }
    }

    /// Returns the suite with that hash.
    #[must_use]
    pub const fn of_hash(hash: Hash) -> Option<Self> {
        match hash {
            Hash::Sha256 => Some(Suite::Aes128GcmSha256),
            Hash::Sha384 => Some(Suite::Aes256GcmSha384),
            Hash::Sha512 => None,
        }
    }

    fn of_length(bytes: usize) -> Option<Self> {
        match bytes {
            32 => Some(Suite::Aes128GcmSha256),
            48 => Some(Suite::Aes256GcmSha384),
            _ => None,
        }
    }
}

/// Version of a PSK's identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum IdentityVersion {
    /// Contains NQNs and hash; obsolete.
    V0,
    /// Ends with a digest of the PSK, so that two keys have two identities.
    #[default]
    V1,
}

/// Derivation of a PSK.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Derivation {
    pub version: IdentityVersion,
    /// True for the derivation of libnvme before 1.16: the label's length is little-endian and its parts have no length
    /// bytes.
    pub compat: bool,
}

/// A configured PSK, in the form `NVMeTLSkey-1:hh:..:`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsKey {
    hash: Option<Hash>,
    key: Secret,
}

impl TlsKey {
    /// A configured PSK of those bytes. Without a hash it is used unchanged, with the suite of its length.
    ///
    /// # Errors
    /// A key has 32 or 48 bytes, and as many as its hash has.
    pub fn new(hash: Option<Hash>, bytes: &[u8]) -> Result<Self, KeyError> {
        let (fits, expected) = match hash {
            None => (matches!(bytes.len(), 32 | 48), "32 or 48"),
            Some(Hash::Sha256) => (bytes.len() == 32, "32"),
            Some(Hash::Sha384) => (bytes.len() == 48, "48"),
            Some(Hash::Sha512) => return Err(unknown_hash(Hash::Sha512.id())),
        };
        if !fits {
            return Err(KeyError::Length { found: bytes.len(), expected });
        }
        Ok(TlsKey { hash, key: Secret::new(bytes) })
    }

    /// Parses a line `NVMeTLSkey-1:hh:..:`.
    ///
    /// # Errors
    /// Names the wrong part of the line.
    pub fn parse(line: &str) -> Result<Self, KeyError> {
        let (id, key) = interchange::parse(FORM, line)?;
        let hash = match id {
            0 => None,
            id => Some(Hash::from_id(id).ok_or(unknown_hash(id))?),
        };
        Self::new(hash, key.reveal())
    }

    /// Returns the line that [`TlsKey::parse`] reads.
    #[must_use]
    pub fn print(&self) -> Zeroizing<String> {
        interchange::print(FORM, self.hash.map_or(0, Hash::id), &self.key)
    }

    /// Returns the hash that binds the key to a host.
    #[must_use]
    pub fn hash(&self) -> Option<Hash> {
        self.hash
    }

    /// Returns the suite of the key's PSKs.
    #[must_use]
    pub fn suite(&self) -> Suite {
        // Keys of other lengths are refused when they are made.
        Suite::of_length(self.key.reveal().len()).unwrap_or(Suite::Aes128GcmSha256)
    }

    /// Returns the PSK bound to `hostnqn`.
    #[must_use]
    pub fn retained(&self, hostnqn: &str, compat: bool) -> RetainedPsk {
        let (suite, key) = (self.suite(), &self.key);
        let psk = match self.hash {
            None => key.clone(),
            Some(hash) => {
                let label = Label { name: b"HostNQN", context: hostnqn.as_bytes(), compat };
                label.expand(hash, &extract(hash, key))
            }
        };
        RetainedPsk { suite, psk }
    }

    /// Returns the PSK of a host at a subsystem, with an identity of version 1.
    #[must_use]
    pub fn tls_psk(&self, hostnqn: &str, subnqn: &str) -> TlsPsk {
        self.tls_psk_by(hostnqn, subnqn, Derivation::default())
    }

    /// Returns the PSK of a host at a subsystem, with the derivation of the other end.
    #[must_use]
    pub fn tls_psk_by(&self, hostnqn: &str, subnqn: &str, derivation: Derivation) -> TlsPsk {
        self.retained(hostnqn, derivation.compat).tls_psk(hostnqn, subnqn, derivation)
    }
}

fn unknown_hash(hash: u8) -> KeyError {
    KeyError::Hash { form: FORM, hash, known: "00, 01 and 02" }
}

/// A configured PSK bound to a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetainedPsk {
    suite: Suite,
    psk: Secret,
}

impl RetainedPsk {
    /// Returns the bytes of the PSK.
    #[must_use]
    pub fn secret(&self) -> &Secret {
        &self.psk
    }

    /// Returns the PSK of the host at a subsystem.
    #[must_use]
    pub fn tls_psk(&self, hostnqn: &str, subnqn: &str, derivation: Derivation) -> TlsPsk {
        PskParties { hostnqn, subnqn }.derive('R', self.suite, &self.psk, derivation)
    }
}

/// A PSK that an authentication has generated (secure channel concatenation).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeneratedPsk {
    suite: Suite,
    psk: Secret,
}

impl GeneratedPsk {
    /// Derives the PSK from the session key and both challenges, with the negotiated hash. There is no suite for
    /// SHA-512.
    #[must_use]
    pub fn new(hash: Hash, session_key: &Secret, c1: &[u8], c2: &[u8]) -> Option<Self> {
        let suite = Suite::of_hash(hash)?;
        Some(GeneratedPsk { suite, psk: hash.hmac(session_key.reveal(), &[c1, c2]) })
    }

    /// Returns the bytes of the PSK.
    #[must_use]
    pub fn secret(&self) -> &Secret {
        &self.psk
    }

    /// Returns the PSK of the authenticated host at its subsystem.
    #[must_use]
    pub fn tls_psk(&self, hostnqn: &str, subnqn: &str) -> TlsPsk {
        PskParties { hostnqn, subnqn }.derive('G', self.suite, &self.psk, Derivation::default())
    }
}

/// A PSK in the form that TLS uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsPsk {
    /// Identity that the host sends. It is not secret.
    pub identity: String,
    pub psk: Secret,
    /// The only suite it may be used with.
    pub suite: Suite,
}

/// The two ends that use a PSK.
#[derive(Clone, Copy)]
struct PskParties<'a> {
    hostnqn: &'a str,
    subnqn: &'a str,
}

impl PskParties<'_> {
    fn derive(self, kind: char, suite: Suite, psk: &Secret, derivation: Derivation) -> TlsPsk {
        let PskParties { hostnqn, subnqn } = self;
        let Derivation { version, compat } = derivation;
        let (hash, number) = (suite.hash(), suite.hash().id());
        let (identity, context) = match version {
            IdentityVersion::V0 => {
                let identity = format!("NVMe0{kind}{number:02} {hostnqn} {subnqn}");
                (identity.clone(), identity)
            }
            IdentityVersion::V1 => {
                let digest = self.digest(hash, psk);
                let identity = format!("NVMe1{kind}{number:02} {hostnqn} {subnqn} {digest}");
                (identity, format!("{number:02} {digest}"))
            }
        };
        let label = Label { name: b"nvme-tls-psk", context: context.as_bytes(), compat };
        TlsPsk { identity, psk: label.expand(hash, &extract(hash, psk)), suite }
    }

    /// Returns the digest that distinguishes a PSK from others in an identity of version 1.
    fn digest(self, hash: Hash, psk: &Secret) -> String {
        let names = format!("{} {} ", self.hostnqn, self.subnqn);
        Base64::encode_string(hash.hmac(psk.reveal(), &[names.as_bytes(), SEED]).reveal())
    }
}

/// HKDF-Extract (RFC 5869) with a salt of zeroes.
fn extract(hash: Hash, key: &Secret) -> Secret {
    hash.hmac(&[0; 64][..hash.bytes()], &[key.reveal()])
}

/// Label of HKDF-Expand-Label (RFC 8446).
struct Label<'a> {
    name: &'a [u8],
    context: &'a [u8],
    /// Without lengths of name and context.
    compat: bool,
}

impl Label<'_> {
    /// Returns as many bytes as the hash has: one block of HKDF-Expand.
    fn expand(&self, hash: Hash, key: &Secret) -> Secret {
        const PREFIX: &[u8] = b"tls13 ";
        let length = hash.bytes() as u16;
        // A context of version 1 has at most 67 bytes. One of version 0 has two NQNs, and may exceed the range of its
        // length byte; then the byte holds the length's low bits.
        let name_bytes = [(PREFIX.len() + self.name.len()) as u8];
        let context_bytes = [self.context.len() as u8];
        let (length, name_bytes, context_bytes): (_, &[u8], &[u8]) = if self.compat {
            (length.to_le_bytes(), &[], &[])
        } else {
            (length.to_be_bytes(), &name_bytes, &context_bytes)
        };
        let info = [&length, name_bytes, PREFIX, self.name, context_bytes, self.context, &[1]];
        hash.hmac(key.reveal(), &info)
    }
}
