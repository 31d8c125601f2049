//! Blocks that another process has: their properties are visible, the blocks are not accessed.

use crate::{
    BlockIdentifiers, BlockLimits, BlockOwnership, DiskStore, OpenError, Resize, SizeWatcher,
    Store, StoreCompletion, StoreGeometry, StoreIo, StoreKind, StoreOperation, StoreSpec,
    StoreToken,
};
use roadtrain_system::buffer::Buffer;
use roadtrain_wire::status::Status;
use std::io;
use std::sync::{Arc, Weak};

/// Placeholder of a store until it can be opened: it has all properties for hosts, and no blocks.
#[derive(Debug)]
pub(crate) struct PlaceholderStore {
    /// The store, opened read-only without a lock.
    seen: Arc<dyn Store>,
    spec: StoreSpec,
}

impl PlaceholderStore {
    pub(crate) fn new(seen: Arc<dyn Store>, spec: StoreSpec) -> PlaceholderStore {
        PlaceholderStore { seen, spec }
    }
}

/// No operation that reads or changes blocks is passed on, so `seen` is not [below](Store::below) it.
impl Store for PlaceholderStore {
    fn geometry(&self) -> StoreGeometry {
        self.seen.geometry()
    }

    fn identity(&self) -> Result<u128, OpenError> {
        self.seen.identity()
    }

    fn identifiers(&self) -> BlockIdentifiers {
        self.seen.identifiers()
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
        self.seen.limits()
    }

    fn is_volatile(&self) -> bool {
        false
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn ownership(&self) -> BlockOwnership {
        match self.seen.ownership() {
            // The store does not know the owner, but the system does.
            BlockOwnership::Ours if is_free(&self.spec) => BlockOwnership::Free,
            BlockOwnership::Ours => BlockOwnership::Theirs,
            known => known,
        }
    }

    fn take_over(&self) -> Result<(), OpenError> {
        self.seen.take_over()
    }

    /// Returns the size that the other process gives it; a requested size is ignored.
    fn plan(&self, _: Option<u64>) -> Result<Resize, OpenError> {
        self.seen.plan(None)
    }

    fn watch_size(&self, watcher: Weak<SizeWatcher>) {
        self.seen.watch_size(watcher);
    }

    fn switch(&self, resize: &Resize) {
        self.seen.switch(resize);
    }
}

/// Returns true if no other process of the machine has the blocks of `spec`. Opens them only for the check.
fn is_free(spec: &StoreSpec) -> bool {
    match &spec.kind {
        StoreKind::File { path, .. } | StoreKind::Block { path } => DiskStore::is_free(spec, path),
        _ => true,
    }
}
