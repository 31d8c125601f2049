//! An emulated SSD: another store with the latency of an SSD.

mod latency;

use crate::{
    Delayed, InPlace, OpenError, Store, StoreGeometry, StoreIo, StoreOperation, StoreToken,
};
use latency::LatencyModel;
use roadtrain_system::buffer::Buffer;
use roadtrain_system::clock;
use std::sync::Arc;
use std::time::Duration;

/// A store whose operations start when an SSD would have completed them.
#[derive(Debug)]
pub struct SsdStore {
    below: Arc<Below>,
    latency: LatencyModel,
}

impl SsdStore {
    /// Makes a store in which `parallel` operations at once (at least one) take `service` each; further ones wait for
    /// their turn.
    #[must_use]
    pub fn new(below: Arc<dyn Store>, service: Duration, parallel: u16) -> SsdStore {
        SsdStore { below: Arc::new(Below(below)), latency: LatencyModel::new(service, parallel) }
    }
}

/// The store below.
#[derive(Debug)]
struct Below(Arc<dyn Store>);

impl Delayed for Below {
    fn start(
        &self,
        op: StoreOperation,
        buffer: Option<Buffer>,
        token: StoreToken,
        io: &mut StoreIo<'_>,
    ) {
        self.0.submit(op, buffer, token, io);
    }
}

impl Store for SsdStore {
    fn submit(
        &self,
        op: StoreOperation,
        buffer: Option<Buffer>,
        token: StoreToken,
        io: &mut StoreIo<'_>,
    ) {
        let due = self.latency.admit(clock::now());
        io.delay(due, self.below.clone(), op, buffer, token);
    }

    fn below(&self) -> Option<&dyn Store> {
        Some(&*self.below.0)
    }

    fn geometry(&self) -> StoreGeometry {
        self.below.0.geometry()
    }

    fn identity(&self) -> Result<u128, OpenError> {
        self.below.0.identity()
    }

    /// Gives access to the memory below: reads are sent from it at their due time; writes change it at theirs.
    fn in_place(&self) -> Option<InPlace> {
        self.below.0.in_place().map(InPlace::announced)
    }
}
