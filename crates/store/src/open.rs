//! Opens stores, or observes those that another process has.

#[cfg(feature = "rbd")]
use crate::RbdStore;
use crate::block_access::lba_shift;
use crate::placeholder_store::PlaceholderStore;
use crate::{
    DiskStore, EmulatedBlockStore, MemoryStore, NullStore, OpenError, RemoteContext, SsdStore,
    Store, StoreKind, StoreSpec,
};
use std::sync::Arc;
use tracing::info;

/// Opens the store that `spec` names; may create or grow a file.
///
/// # Errors
/// Fails if the store is not available. Nothing was created or changed then.
pub fn open(spec: &StoreSpec) -> Result<Arc<dyn Store>, OpenError> {
    open_for(spec, &RemoteContext::default())
}

/// Opens a store as [`open`] does. A store over the network gets `context`, with the access of `spec`.
///
/// # Errors
/// As [`open`].
pub fn open_for(spec: &StoreSpec, context: &RemoteContext) -> Result<Arc<dyn Store>, OpenError> {
    lba_shift(spec.lba_bytes)?;
    let memory = |size| MemoryStore::new(size, spec.lba_bytes, spec.read_only);
    Ok(match &spec.kind {
        StoreKind::Memory { size } => Arc::new(memory(*size)?),
        StoreKind::Ssd { size, service, parallel } => {
            spec.access().whole_blocks("ssd", *size)?;
            Arc::new(SsdStore::new(Arc::new(memory(*size)?), *service, *parallel))
        }
        StoreKind::Null { size } => {
            Arc::new(NullStore::new(*size, spec.lba_bytes, spec.read_only)?)
        }
        StoreKind::File { path, size, create } => {
            with_blocks_of(spec, DiskStore::open_file(spec, path, *size, *create)?)?
        }
        StoreKind::Block { path } => with_blocks_of(spec, DiskStore::open_block(spec, path)?)?,
        StoreKind::Remote(blocks) => {
            let context = RemoteContext { read_only: spec.read_only, ..context.clone() };
            blocks.source().open(&context)?
        }
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
            with_blocks_of(spec, DiskStore::observe(spec, path)?)?
        }
        #[cfg(feature = "rbd")]
        StoreKind::Rbd(image) => Arc::new(RbdStore::observe(image, spec.lba_bytes)?),
        StoreKind::Remote(blocks) => {
            let problem = "several targets reach it at once: leave standby out".into();
            return Err(OpenError::Remote { blocks: blocks.to_string(), problem });
        }
        _ => open(spec)?,
    };
    Ok(Arc::new(PlaceholderStore::new(seen, spec.clone())))
}

/// Returns the disk with the blocks of `spec`, which may be smaller than those that it reads and writes.
fn with_blocks_of(spec: &StoreSpec, disk: DiskStore) -> Result<Arc<dyn Store>, OpenError> {
    let (lba_shift, physical_bytes) = (lba_shift(spec.lba_bytes)?, disk.geometry().lba_bytes());
    if physical_bytes <= spec.lba_bytes {
        return Ok(Arc::new(disk));
    }
    info!(
        path = %disk.path().display(),
        "reads and writes blocks of {physical_bytes} bytes: smaller changes, down to the {} bytes of a logical block, \
         are made by read-modify-write",
        spec.lba_bytes
    );
    Ok(Arc::new(EmulatedBlockStore::new(Arc::new(disk), lba_shift)))
}
