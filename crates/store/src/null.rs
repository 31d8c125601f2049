//! A store that keeps no data: reads are zeroes, writes are dropped. For benchmarks.

use crate::resize::Size;
use crate::zeroes::{ZEROES, compare};
use crate::{
    InPlace, OpenError, Resize, Store, StoreCompletion, StoreGeometry, StoreIo, StoreOperation,
    StoreToken, identity,
};
use roadtrain_system::buffer::Buffer;
use roadtrain_wire::lba_status::{LbaStatusList, condition};
use roadtrain_wire::status::Status;

/// A store that keeps no data.
#[derive(Debug)]
pub struct NullStore {
    size: Size,
    identity: u128,
}

impl NullStore {
    /// Makes a store of `bytes`, whole blocks of `lba_bytes` (512 or 4096).
    ///
    /// # Errors
    /// Fails if the sizes do not fit.
    pub fn new(bytes: u64, lba_bytes: u32, read_only: bool) -> Result<NullStore, OpenError> {
        let size = Size::new("null", bytes, lba_bytes, read_only)?;
        Ok(NullStore { size, identity: identity::of_memory()? })
    }

    fn run(&self, op: &StoreOperation, buffer: Option<&mut Buffer>) -> Result<(), Status> {
        self.geometry().check(op, buffer.as_deref())?;
        match (op, buffer) {
            (StoreOperation::Read { .. }, Some(buffer)) => {
                buffer.fill(0);
                Ok(())
            }
            (StoreOperation::QueryAllocation { .. }, Some(buffer)) => {
                LbaStatusList::new(buffer).end(condition::COMPLETE);
                Ok(())
            }
            (StoreOperation::Compare { .. }, Some(expected)) => {
                compare(expected, |_| ZEROES.0.as_ptr())
            }
            _ => Ok(()),
        }
    }
}

impl Store for NullStore {
    fn geometry(&self) -> StoreGeometry {
        self.size.geometry()
    }

    fn identity(&self) -> Result<u128, OpenError> {
        Ok(self.identity)
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

    /// Reports no block as allocated.
    fn reports_allocation(&self) -> bool {
        true
    }

    fn in_place(&self) -> Option<InPlace> {
        Some(InPlace::zeroes(self.size.shared()))
    }

    fn stays_on_thread(&self) -> bool {
        true
    }

    fn plan(&self, bytes: Option<u64>) -> Result<Resize, OpenError> {
        self.size.plan(bytes, u64::MAX)
    }

    fn switch(&self, resize: &Resize) {
        self.size.switch(resize);
    }
}
