//! A cursor over the bytes of an input.

/// The bytes of an input in order, and zeroes after its end.
pub struct InputCursor<'a>(pub &'a [u8]);

impl InputCursor<'_> {
    /// True if the input has ended.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the next byte.
    pub fn byte(&mut self) -> u8 {
        self.0.split_off_first().copied().unwrap_or_default()
    }

    /// Returns the next two bytes, the lower first.
    pub fn pair(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    /// Returns up to `count` bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let (bytes, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        bytes.to_vec()
    }

    /// Returns a number that is usually small, also below zero.
    pub fn number(&mut self) -> u32 {
        match self.byte() {
            0x7f => u32::from_le_bytes([0; 4].map(|_| self.byte())),
            byte => i32::from(byte.cast_signed()).cast_unsigned(),
        }
    }
}
