//! Opens stores, or looks at those that another process has.

#[cfg(feature = "rbd")]
use crate::RbdStore;
use crate::elsewhere::Elsewhere;
use crate::spec::lba_shift;
use crate::{DiskStore, MemoryStore, NullStore, OpenError, SsdStore, Store, StoreKind, StoreSpec};
use std::sync::Arc;

/// Opens what `spec` names; a file may be created or grown for it.
///
/// # Errors
/// It cannot be had. Nothing was created or changed then.
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

/// What `spec` names and another process has: all that hosts are told of it, and none of its blocks. Of files,
/// devices and shared images.
///
/// # Errors
/// It is not there, or cannot be looked at.
pub fn look(spec: &StoreSpec) -> Result<Arc<dyn Store>, OpenError> {
    lba_shift(spec.lba_bytes)?;
    let seen: Arc<dyn Store> = match &spec.kind {
        StoreKind::File { path, .. } | StoreKind::Block { path } => {
            Arc::new(DiskStore::look(spec, path)?)
        }
        #[cfg(feature = "rbd")]
        StoreKind::Rbd(image) => Arc::new(RbdStore::look(image, spec.lba_bytes)?),
        _ => open(spec)?,
    };
    Ok(Arc::new(Elsewhere::new(seen, spec.clone())))
}
