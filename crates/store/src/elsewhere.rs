//! Blocks that another process has: they are seen, and not touched.

use crate::{
    BlockLimits, Completion, Custody, DiskStore, Geometry, Io, Op, OpenError, Resize, SizeWatcher,
    Store, StoreKind, StoreSpec, Token,
};
use roadtrain_system::buffer::Buffer;
use roadtrain_wire::status::Status;
use std::io;
use std::sync::{Arc, Weak};

/// What stands for a store until it can be opened: everything that hosts are told, and no block.
#[derive(Debug)]
pub(crate) struct Elsewhere {
    /// Open to be looked at, without a lock.
    seen: Arc<dyn Store>,
    spec: StoreSpec,
}

impl Elsewhere {
    pub(crate) fn new(seen: Arc<dyn Store>, spec: StoreSpec) -> Elsewhere {
        Elsewhere { seen, spec }
    }
}

/// Nothing is passed on that reads or changes blocks, so it is not [below](Store::below).
impl Store for Elsewhere {
    fn geometry(&self) -> Geometry {
        self.seen.geometry()
    }

    fn identity(&self) -> Result<u128, OpenError> {
        self.seen.identity()
    }

    fn submit(&self, _: Op, buffer: Option<Buffer>, token: Token, io: &mut Io<'_>) {
        io.complete(Completion::new(token, Err(Status::ANA_INACCESSIBLE), buffer));
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

    fn custody(&self) -> Custody {
        match self.seen.custody() {
            // It does not know, but the system does.
            Custody::Ours if is_free(&self.spec) => Custody::Free,
            Custody::Ours => Custody::Theirs,
            known => known,
        }
    }

    fn seize(&self) -> Result<(), OpenError> {
        self.seen.seize()
    }

    /// It has the size that the other process gives it, whatever is asked for here.
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

/// Returns true if no other process of the machine has what `spec` names. Opens nothing for longer than that.
fn is_free(spec: &StoreSpec) -> bool {
    match &spec.kind {
        StoreKind::File { path, .. } | StoreKind::Block { path } => DiskStore::is_free(spec, path),
        _ => true,
    }
}
