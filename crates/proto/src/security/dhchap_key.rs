//! Keys of in-band authentication, DH-HMAC-CHAP.

use super::interchange::{self, KeyError};
use super::{Hash, SEED, Secret};
use zeroize::Zeroizing;

const FORM: &str = "DHHC-1";

/// A key of a host or a controller, in the form `DHHC-1:hh:..:`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DhchapKey {
    hash: Option<Hash>,
    key: Secret,
}

impl DhchapKey {
    /// A key of those bytes. With a hash it is transformed before its use, so that it fits one NQN only.
    ///
    /// # Errors
    /// A key has 32, 48 or 64 bytes.
    pub fn new(hash: Option<Hash>, bytes: &[u8]) -> Result<Self, KeyError> {
        if !matches!(bytes.len(), 32 | 48 | 64) {
            return Err(KeyError::Length { found: bytes.len(), expected: "32, 48 or 64" });
        }
        Ok(DhchapKey { hash, key: Secret::new(bytes) })
    }

    /// Parses a line `DHHC-1:hh:..:`.
    ///
    /// # Errors
    /// Names the wrong part of the line.
    pub fn parse(line: &str) -> Result<Self, KeyError> {
        let (hash, key) = interchange::parse(FORM, line)?;
        let known = "00, 01, 02 and 03";
        let hash = match hash {
            0 => None,
            id => Some(Hash::from_id(id).ok_or(KeyError::Hash { form: FORM, hash: id, known })?),
        };
        Self::new(hash, key.reveal())
    }

    /// Returns the line that [`DhchapKey::parse`] reads.
    #[must_use]
    pub fn print(&self) -> Zeroizing<String> {
        interchange::print(FORM, self.hash.map_or(0, Hash::id), &self.key)
    }

    /// Returns the hash of the transformation.
    #[must_use]
    pub fn hash(&self) -> Option<Hash> {
        self.hash
    }

    /// Returns the secret of responses; `nqn` is that of the key's owner, a host or a subsystem.
    #[must_use]
    pub fn transform(&self, nqn: &str) -> Secret {
        match self.hash {
            None => self.key.clone(),
            Some(hash) => hash.hmac(self.key.reveal(), &[nqn.as_bytes(), SEED]),
        }
    }
}
