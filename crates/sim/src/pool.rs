//! Buffers of the simulated target: few, and each is counted.

use core::ops::{Deref, DerefMut};
use roadtrain_proto::cut::Shorten;
use std::cell::Cell;
use std::rc::Rc;

/// Most buffers beyond the budget.
const RESERVED_MAX: usize = 16;

/// Accounting of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BufferOrigin {
    Budget,
    Reserve,
    Connection,
    Lent,
    Detached,
}

/// Bytes in the place where the host has put them; dropping this returns them.
#[derive(Debug)]
struct LentBytes {
    bytes: usize,
    out: Rc<Cell<usize>>,
}

impl Drop for LentBytes {
    fn drop(&mut self) {
        self.out.update(|out| out - self.bytes);
    }
}

/// A buffer.
#[derive(Debug)]
pub struct SimBuffer {
    bytes: Vec<u8>,
    origin: BufferOrigin,
    _lent: Option<LentBytes>,
}

impl Deref for SimBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for SimBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

/// No blocks are copied.
impl Shorten for SimBuffer {
    fn shorten(&mut self, bytes: usize) {
        self.bytes.resize(bytes, 0);
    }
}

/// Buffers of a target.
#[derive(Debug)]
pub struct SimPool {
    budget: usize,
    taken: usize,
    reserved: usize,
    /// Bytes of all buffers in use.
    out: usize,
    /// Bytes that are lent.
    lent: Rc<Cell<usize>>,
}

impl SimPool {
    pub(crate) fn new(budget: usize) -> Self {
        SimPool { budget, taken: 0, reserved: 0, out: 0, lent: Rc::default() }
    }

    /// Returns a buffer with a copy of bytes that lie elsewhere.
    pub(crate) fn copy(&mut self, bytes: &[u8]) -> SimBuffer {
        let lent = LentBytes { bytes: bytes.len(), out: self.lent.clone() };
        self.lent.update(|out| out + lent.bytes);
        SimBuffer { bytes: bytes.to_vec(), origin: BufferOrigin::Lent, _lent: Some(lent) }
    }

    /// Takes a buffer of the budget, while it lasts.
    pub(crate) fn take(&mut self, bytes: u32) -> Option<SimBuffer> {
        if self.taken + bytes as usize > self.budget {
            return None;
        }
        self.taken += bytes as usize;
        Some(self.out(bytes, BufferOrigin::Budget))
    }

    /// Takes a buffer beyond the budget, of which there are few.
    pub(crate) fn take_reserved(&mut self, bytes: u32) -> Option<SimBuffer> {
        if self.reserved == RESERVED_MAX {
            return None;
        }
        self.reserved += 1;
        Some(self.out(bytes, BufferOrigin::Reserve))
    }

    /// Makes a buffer for a connection's own use.
    pub(crate) fn make(&mut self, bytes: u32) -> SimBuffer {
        self.out(bytes, BufferOrigin::Connection)
    }

    fn out(&mut self, bytes: u32, origin: BufferOrigin) -> SimBuffer {
        self.out += bytes as usize;
        SimBuffer { bytes: vec![0xdb; bytes as usize], origin, _lent: None }
    }

    /// Checks that `held` bytes are in use.
    ///
    /// # Errors
    /// Another number of bytes is in use, or more than permitted.
    pub(crate) fn check(&self, held: usize) -> Result<(), String> {
        let SimPool { budget, taken, reserved, .. } = self;
        if taken > budget || *reserved > RESERVED_MAX {
            return Err(format!(
                "{taken} bytes of {budget} are taken, and {reserved} buffers more"
            ));
        }
        let out = self.out + self.lent.get();
        match held == out {
            true => Ok(()),
            false => Err(format!("{out} bytes are out, {held} held and in the store")),
        }
    }

    /// Takes a buffer back, and returns its bytes in a buffer without a pool.
    pub(crate) fn detach(&mut self, buffer: SimBuffer) -> SimBuffer {
        let own =
            SimBuffer { bytes: buffer.bytes.clone(), origin: BufferOrigin::Detached, _lent: None };
        self.give(buffer);
        own
    }

    /// Moves the bytes of a buffer without a pool to one of the budget, while it lasts.
    pub(crate) fn attach(&mut self, buffer: SimBuffer) -> SimBuffer {
        let bytes = buffer.len() as u32;
        let mut own = self.take(bytes).unwrap_or_else(|| self.make(bytes));
        own.bytes = buffer.bytes;
        own
    }

    /// Takes a buffer back.
    pub fn give(&mut self, buffer: SimBuffer) {
        match buffer.origin {
            BufferOrigin::Budget => self.taken -= buffer.len(),
            BufferOrigin::Reserve => self.reserved -= 1,
            BufferOrigin::Connection => {}
            BufferOrigin::Lent | BufferOrigin::Detached => return,
        }
        self.out -= buffer.len();
    }
}
