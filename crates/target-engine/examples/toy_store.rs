//! A custom store: it changes every byte on the way to the store below it.
//!
//!     cargo run --example toy_store -- 127.0.0.1:4420 nqn.2025-01.io.example:disk /tmp/disk
//!
//! docs/internals/how-to-add-a-store.md explains it.

use roadtrain_store::{
    OpenError, Store, StoreCompletion, StoreContinuation, StoreGeometry, StoreIo, StoreKind,
    StoreOperation, StoreSpec, StoreToken, open,
};
use roadtrain_system::buffer::Buffer;
use roadtrain_target_engine::{Export, Server, ServerConfig, Subsystem};
use std::sync::Arc;

/// Stores each byte of a store XORed with a key. This is no encryption.
#[derive(Debug)]
pub(crate) struct XorStore {
    below: Arc<dyn Store>,
    key: Arc<XorKey>,
}

#[derive(Debug)]
struct XorKey(u8);

impl XorStore {
    pub(crate) fn new(below: Arc<dyn Store>, key: u8) -> XorStore {
        XorStore { below, key: Arc::new(XorKey(key)) }
    }
}

impl XorKey {
    /// Applies the key. Zero stays zero, and so does the key: zeroed blocks below are zero here, too.
    fn apply(&self, buffer: &mut Option<Buffer>) {
        let bytes = buffer.iter_mut().flat_map(|buffer| buffer.iter_mut());
        bytes.filter(|byte| ![0, self.0].contains(byte)).for_each(|byte| *byte ^= self.0);
    }
}

impl Store for XorStore {
    /// Returns the store below, which handles everything that this one does not define.
    fn below(&self) -> Option<&dyn Store> {
        Some(&*self.below)
    }

    fn geometry(&self) -> StoreGeometry {
        self.below.geometry()
    }

    fn identity(&self) -> Result<u128, OpenError> {
        self.below.identity().map(|identity| identity ^ u128::from(self.key.0))
    }

    fn submit(
        &self,
        op: StoreOperation,
        mut buffer: Option<Buffer>,
        token: StoreToken,
        io: &mut StoreIo<'_>,
    ) {
        let token = match op {
            StoreOperation::Write { .. } | StoreOperation::Compare { .. } => {
                self.key.apply(&mut buffer);
                token
            }
            // The key is applied when the data has been read.
            StoreOperation::Read { .. } => io.then(token, self.key.clone()),
            _ => token,
        };
        self.below.submit(op, buffer, token, io);
    }
}

impl StoreContinuation for XorKey {
    fn answered(&self, mut completion: StoreCompletion, io: &mut StoreIo<'_>) {
        self.apply(&mut completion.buffer);
        io.complete(completion);
    }
}

#[allow(dead_code, reason = "tests use the store alone")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, nqn, path] = &arguments[..] else {
        return Err("usage: toy_store ADDRESS:PORT NQN FILE".into());
    };
    let kind = StoreKind::File { path: path.into(), size: Some(64 << 20), create: true };
    let file = open(&StoreSpec { kind, lba_bytes: 4096, read_only: false })?;
    let export = Export::with_store(1, Arc::new(XorStore::new(file, 0x5a)));
    let subsystem = Subsystem { namespaces: vec![export], ..Subsystem::new(nqn) };
    let server = Server::start(ServerConfig::new(vec![address.parse()?], vec![subsystem]))?;
    println!("ready {}", server.addresses()[0]);
    loop {
        std::thread::park();
    }
}
