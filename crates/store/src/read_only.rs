//! A read-only view of another store.

use crate::{
    OpenError, Store, StoreCompletion, StoreGeometry, StoreIo, StoreOperation, StoreToken,
};
use roadtrain_system::buffer::Buffer;
use std::sync::Arc;

/// Another store, which this one never changes.
#[derive(Debug)]
pub struct ReadOnlyStore(Arc<dyn Store>);

impl ReadOnlyStore {
    /// Makes a read-only view of `below`.
    #[must_use]
    pub fn new(below: Arc<dyn Store>) -> ReadOnlyStore {
        ReadOnlyStore(below)
    }
}

impl Store for ReadOnlyStore {
    fn geometry(&self) -> StoreGeometry {
        StoreGeometry { read_only: true, ..self.0.geometry() }
    }

    fn identity(&self) -> Result<u128, OpenError> {
        self.0.identity()
    }

    fn submit(
        &self,
        op: StoreOperation,
        buffer: Option<Buffer>,
        token: StoreToken,
        io: &mut StoreIo<'_>,
    ) {
        match self.geometry().check(&op, buffer.as_ref()) {
            Ok(()) => self.0.submit(op, buffer, token, io),
            Err(status) => io.complete(StoreCompletion::new(token, Err(status), buffer)),
        }
    }

    fn below(&self) -> Option<&dyn Store> {
        Some(&*self.0)
    }
}
