//! A store in memory, which completes operations at once and lends its memory to sockets.

use crate::resize::Size;
use crate::zeroes::compare;
use crate::{
    ByteRange, InPlace, OpenError, Resize, Store, StoreCompletion, StoreGeometry, StoreIo,
    StoreOperation, StoreToken, identity,
};
use roadtrain_system::buffer::Buffer;
use roadtrain_system::memory::HugeMemory;
use roadtrain_wire::status::Status;
use std::sync::Arc;
use std::{io, ptr};

/// Ratio of mapped memory to the size, as room for [`Store::resize`]; costs only address space.
const GROWTH_MAX: usize = 4;

/// Least length at which discarding pages is cheaper than filling them, even if it splits huge pages.
const ZERO_BY_DISCARD_BYTES: u64 = 256 << 10;

/// A store in memory that is lost with the process.
#[derive(Debug)]
pub struct MemoryStore {
    /// The memory; may be larger than the capacity, as room to grow.
    memory: Arc<HugeMemory>,
    size: Size,
    identity: u128,
}

impl MemoryStore {
    /// Makes a store of `bytes`, whole blocks of `lba_bytes` (512 or 4096), zeroed.
    ///
    /// # Errors
    /// Fails if the sizes do not fit, or if the system has no memory left.
    pub fn new(bytes: u64, lba_bytes: u32, read_only: bool) -> Result<MemoryStore, OpenError> {
        let size = Size::new("mem", bytes, lba_bytes, read_only)?;
        let memory = Arc::new(map(bytes)?);
        Ok(MemoryStore { memory, size, identity: identity::of_memory()? })
    }

    fn run(&self, op: &StoreOperation, buffer: Option<&mut Buffer>) -> Result<(), Status> {
        self.geometry().check(op, buffer.as_deref())?;
        // Reachable only if the memory shrank below a checked range, which it never does.
        let out_of_range = || Status::LBA_OUT_OF_RANGE.dnr();
        let memory = &*self.memory;
        match (op, buffer) {
            (StoreOperation::Read { offset }, Some(buffer)) => {
                let from = memory.range(*offset, buffer.len()).ok_or_else(out_of_range)?;
                // SAFETY: `range` checked the source; the buffer is separate memory.
                unsafe { ptr::copy_nonoverlapping(from, buffer.as_mut_ptr(), buffer.len()) };
                Ok(())
            }
            (StoreOperation::Write { offset, .. }, Some(buffer)) => {
                let to = memory.range(*offset, buffer.len()).ok_or_else(out_of_range)?;
                // SAFETY: as above, in the other direction.
                unsafe { ptr::copy_nonoverlapping(buffer.as_ptr(), to, buffer.len()) };
                Ok(())
            }
            (StoreOperation::Compare { offset }, Some(expected)) => {
                let stored = memory.range(*offset, expected.len()).ok_or_else(out_of_range)?;
                compare(expected, |at| stored.wrapping_add(at))
            }
            (StoreOperation::Discard { range }, _) => {
                let done = memory.discard(range.offset, range.len as usize);
                done.then_some(()).ok_or_else(out_of_range)
            }
            (&StoreOperation::WriteZeroes { range: ByteRange { offset, len }, deallocate }, _) => {
                let done = match deallocate || len >= ZERO_BY_DISCARD_BYTES {
                    true => memory.discard(offset, len as usize),
                    false => memory.zero(offset, len as usize),
                };
                done.then_some(()).ok_or_else(out_of_range)
            }
            _ => Ok(()),
        }
    }
}

impl Store for MemoryStore {
    fn geometry(&self) -> StoreGeometry {
        self.size.geometry()
    }

    fn identity(&self) -> Result<u128, OpenError> {
        Ok(self.identity)
    }

    /// Returns a number of the identity: the content lives as long as that.
    fn write_verifier(&self) -> Option<u64> {
        Some(self.identity as u64)
    }

    fn submit(
        &self,
        op: StoreOperation,
        mut buffer: Option<Buffer>,
        token: StoreToken,
        io: &mut StoreIo<'_>,
    ) {
        let result = self.run(&op, buffer.as_mut());
        io.complete(StoreCompletion::new(token, result, buffer));
    }

    fn in_place(&self) -> Option<InPlace> {
        let writable = !self.size.geometry().read_only;
        Some(InPlace::new(self.memory.clone(), self.size.shared(), writable))
    }

    fn stays_on_thread(&self) -> bool {
        true
    }

    fn plan(&self, bytes: Option<u64>) -> Result<Resize, OpenError> {
        self.size.plan(bytes, self.memory.len() as u64)
    }

    fn stage(&self, resize: &mut Resize) -> Result<(), OpenError> {
        if resize.to > resize.from {
            // Data written while the store was larger before must not appear. Inside, as was checked.
            let _ = self.memory.discard(resize.from, (resize.to - resize.from) as usize);
        }
        Ok(())
    }

    fn switch(&self, resize: &Resize) {
        self.size.switch(resize);
    }

    /// Discards the memory behind a smaller size.
    fn settle(&self, resize: &Resize) {
        if resize.to < resize.from {
            // Inside: it had that size before.
            let _ = self.memory.discard(resize.to, (resize.from - resize.to) as usize);
        }
    }
}

fn map(size: u64) -> Result<HugeMemory, OpenError> {
    let failed = |source| OpenError::Memory { size, source };
    let len = usize::try_from(size).map_err(|_| failed(io::ErrorKind::OutOfMemory.into()))?;
    let roomy = len.checked_mul(GROWTH_MAX);
    // If the system counts addresses as memory, there is no room to grow.
    roomy
        .and_then(|roomy| HugeMemory::new(roomy).ok())
        .map_or_else(|| HugeMemory::new(len).map_err(failed), Ok)
}
