//! Secret bytes.

use core::fmt;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// A key, or a value derived from one. It is overwritten when it is dropped, compared in constant time, and `Debug`
/// shows only its length.
#[derive(Clone)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Copies `bytes`; the caller overwrites the original.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        Secret(Zeroizing::new(bytes.to_vec()))
    }

    /// Returns the bytes for computing. The caller must not keep or show them.
    #[must_use]
    pub fn reveal(&self) -> &[u8] {
        &self.0
    }

    /// True if `bytes` are the same; compares in constant time.
    #[must_use]
    pub fn is(&self, bytes: &[u8]) -> bool {
        self.0.ct_eq(bytes).into()
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
        write!(f, "Secret({} bytes)", self.0.len())
    }
}
