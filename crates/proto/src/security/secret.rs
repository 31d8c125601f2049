//! Secret bytes.

use core::fmt;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// A key, or a value derived from one. It is overwritten when it is dropped, compared in constant time, and `Debug`
/// shows only its length.
#[derive(Clone)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Copies `octets`; the caller overwrites the original.
    #[must_use]
    pub fn new(octets: &[u8]) -> Self {
        Secret(Zeroizing::new(octets.to_vec()))
    }

    /// Returns the bytes for computing. The caller must not keep or show them.
    #[must_use]
    pub fn reveal(&self) -> &[u8] {
        &self.0
    }

    /// True if `octets` are the same; compares in constant time.
    #[must_use]
    pub fn is(&self, octets: &[u8]) -> bool {
        self.0.ct_eq(octets).into()
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.is(&other.0)
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({} octets)", self.0.len())
    }
}
