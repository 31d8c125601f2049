//! Octets that nobody else may learn.

use core::fmt;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// A key, or what was computed of one. It is overwritten when it is dropped, its comparison takes the same time
/// whatever differs, and `Debug` shows its length only.
#[derive(Clone)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// A copy of `octets`; the original is the caller's to overwrite.
    #[must_use]
    pub fn new(octets: &[u8]) -> Self {
        Secret(Zeroizing::new(octets.to_vec()))
    }

    /// Its octets, for computing with them. They are not to be kept or shown.
    #[must_use]
    pub fn reveal(&self) -> &[u8] {
        &self.0
    }

    /// Whether `octets` are the same, in a time that tells nothing of where they differ.
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
