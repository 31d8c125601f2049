//! Opens stores, or observes those that another process has.

#[cfg(feature = "rbd")]
use crate::RbdStore;
use crate::placeholder_store::PlaceholderStore;
use crate::spec::lba_shift;
use crate::{DiskStore, MemoryStore, NullStore, OpenError, SsdStore, Store, StoreKind, StoreSpec};
use std::sync::Arc;

/// Opens the store that `spec` names; may create or grow a file.
///
/// # Errors
/// Fails if the store is not available. Nothing was created or changed then.
pub fn open(spec: &StoreSpec) -> Result<Arc<dyn Store>, OpenError> {
    lba_shift(spec.lba_bytes)?;
    let memory = |size| MemoryStore::new(size, spec.lba_bytes, spec.read_only);
    Ok(match &spec.kind {
        StoreKind::Memory { size } => Arc::new(memory(*size)?),
        StoreKind::Ssd { size, service, parallel } => {
            spec.whole_blocks("ssd", *size)?;
            Arc::new(SsdStore::new(Arc::new(memory(*size)?), *service, *parallel))
        }
        StoreKind::Null { size } => {
            Arc::new(NullStore::new(*size, spec.lba_bytes, spec.read_only)?)
        }
        StoreKind::File { path, size, create } => {
            Arc::new(DiskStore::open_file(spec, path, *size, *create)?)
        }
        StoreKind::Block { path } => Arc::new(DiskStore::open_block(spec, path)?),
        #[cfg(feature = "rbd")]
        StoreKind::Rbd(image) => Arc::new(RbdStore::open(image, spec.lba_bytes, spec.read_only)?),
    })
}

/// Opens the properties of blocks that another process has: all that hosts see of them, and none of the blocks. Works
/// for files, devices and shared images.
///
/// # Errors
/// Fails if they do not exist, or cannot be opened.
pub fn observe(spec: &StoreSpec) -> Result<Arc<dyn Store>, OpenError> {
    lba_shift(spec.lba_bytes)?;
    let seen: Arc<dyn Store> = match &spec.kind {
        StoreKind::File { path, .. } | StoreKind::Block { path } => {
            Arc::new(DiskStore::observe(spec, path)?)
        }
        #[cfg(feature = "rbd")]
        StoreKind::Rbd(image) => Arc::new(RbdStore::observe(image, spec.lba_bytes)?),
        _ => open(spec)?,
    };
    Ok(Arc::new(PlaceholderStore::new(seen, spec.clone())))
}
