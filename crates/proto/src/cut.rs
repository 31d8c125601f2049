//! Buffers that may be used in part.

use core::ops::Deref;

/// A buffer of which a part may be used.
pub trait Cut: Deref<Target = [u8]> {
    /// How many octets are in use, up to as many as there were at first. The octets stay what they are.
    fn cut(&mut self, bytes: usize);
}

impl Cut for Vec<u8> {
    fn cut(&mut self, bytes: usize) {
        self.resize(bytes, 0);
    }
}
