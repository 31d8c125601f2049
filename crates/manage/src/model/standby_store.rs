//! Properties of blocks that another process may have, without the blocks.

use roadtrain_store::{
    BlockLimits, BlockOwnership, OpenError, Resize, Store, StoreCompletion, StoreGeometry, StoreIo,
    StoreOperation, StoreSpec, StoreToken, observe,
};
use roadtrain_system::buffer::Buffer;
use roadtrain_wire::status::Status;
use std::sync::atomic::{AtomicU64, Ordering};

/// Store of a device that stands by: the target opens the blocks itself, and this one keeps nothing open.
#[derive(Debug)]
pub(super) struct StandbyStore {
    geometry: StoreGeometry,
    limits: BlockLimits,
    identity: u128,
    /// Present size in blocks.
    blocks: AtomicU64,
}

impl StandbyStore {
    /// Reads the properties of the blocks of `spec`.
    ///
    /// # Errors
    /// They do not exist, or cannot be opened.
    pub(super) fn of(spec: &StoreSpec) -> Result<StandbyStore, OpenError> {
        let seen = observe(spec)?;
        let (geometry, limits, identity) = (seen.geometry(), seen.limits(), seen.identity()?);
        let blocks = AtomicU64::new(geometry.blocks);
        Ok(StandbyStore { geometry, limits, identity, blocks })
    }
}

impl Store for StandbyStore {
    fn geometry(&self) -> StoreGeometry {
        StoreGeometry { blocks: self.blocks.load(Ordering::Relaxed), ..self.geometry }
    }

    fn identity(&self) -> Result<u128, OpenError> {
        Ok(self.identity)
    }

    fn submit(
        &self,
        _: StoreOperation,
        buffer: Option<Buffer>,
        token: StoreToken,
        io: &mut StoreIo<'_>,
    ) {
        io.complete(StoreCompletion::new(token, Err(Status::ANA_INACCESSIBLE), buffer));
    }

    fn limits(&self) -> BlockLimits {
        self.limits
    }

    fn ownership(&self) -> BlockOwnership {
        BlockOwnership::Theirs
    }

    fn plan(&self, bytes: Option<u64>) -> Result<Resize, OpenError> {
        let from = self.geometry().bytes();
        Ok(Resize::to(from, bytes.unwrap_or(from)))
    }

    fn switch(&self, resize: &Resize) {
        self.blocks.store(resize.to >> self.geometry.lba_shift, Ordering::Relaxed);
    }
}
