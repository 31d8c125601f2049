//! A read-only view of another store.

use crate::{Completion, Geometry, Io, Op, OpenError, Store, Token};
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
    fn geometry(&self) -> Geometry {
        Geometry { read_only: true, ..self.0.geometry() }
    }

    fn identity(&self) -> Result<u128, OpenError> {
        self.0.identity()
    }

    fn submit(&self, op: Op, buffer: Option<Buffer>, token: Token, io: &mut Io<'_>) {
        match self.geometry().check(&op, buffer.as_ref()) {
            Ok(()) => self.0.submit(op, buffer, token, io),
            Err(status) => io.complete(Completion::new(token, Err(status), buffer)),
        }
    }

    fn below(&self) -> Option<&dyn Store> {
        Some(&*self.0)
    }
}
