//! Buffers that may be used in part.

use core::ops::Deref;

/// A buffer that can be shortened.
pub trait Shorten: Deref<Target = [u8]> {
    /// Sets the number of bytes in use, at most the original length. Bytes keep their values.
    fn shorten(&mut self, bytes: usize);
}

impl Shorten for Vec<u8> {
    fn shorten(&mut self, bytes: usize) {
        self.resize(bytes, 0);
    }
}
