//! Stores for tests: one whose flushes fail on request, one that is slow to open, and one that keeps its commands.

use roadtrain_store::{
    DiskStore, LastSync, OpenError, Store, StoreCompletion, StoreCompletions, StoreContinuation,
    StoreGeometry, StoreIo, StoreKind, StoreOperation, StoreSpec, StoreToken,
};
use roadtrain_system::buffer::Buffer;
use roadtrain_wire::status::Status;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

/// Opens a FIFO as a store: a read completes when the test has written as much.
pub(super) fn fifo(path: &Path) -> Arc<dyn Store> {
    let file = File::options().read(true).write(true).open(path).unwrap();
    Arc::new(DiskStore::from_file(file, 1 << 20, 512).unwrap())
}

/// File whose flushes fail on request.
#[derive(Debug)]
pub(super) struct Flaky {
    below: Arc<dyn Store>,
    fails: Arc<FlushFailures>,
}

/// Number of flushes that shall still fail. Each flush decrements it.
#[derive(Debug, Default)]
struct FlushFailures(AtomicI64);

impl FlushFailures {
    fn next(&self) -> bool {
        self.0.fetch_sub(1, Ordering::Relaxed) > 0
    }
}

impl Flaky {
    pub(super) fn new(path: &Path) -> Arc<Flaky> {
        let kind = StoreKind::File { path: path.into(), size: Some(1 << 20), create: true };
        let spec = StoreSpec { kind, lba_bytes: 4096, read_only: false };
        let below = roadtrain_store::open(&spec).unwrap();
        Arc::new(Flaky { below, fails: Arc::default() })
    }

    /// Makes the next `count` flushes fail. Returns the rest of the previous count, which is negative if more flushes
    /// ran.
    pub(super) fn fail_flushes(&self, count: i64) -> i64 {
        self.fails.0.swap(count, Ordering::Relaxed)
    }
}

impl StoreContinuation for FlushFailures {
    fn answered(&self, completion: StoreCompletion, io: &mut StoreIo<'_>) {
        let failed = Err(Status::WRITE_FAULT.dnr());
        let result = if self.next() { failed } else { completion.result };
        io.complete(StoreCompletion { result, ..completion });
    }
}

impl Store for Flaky {
    fn below(&self) -> Option<&dyn Store> {
        Some(&*self.below)
    }

    fn geometry(&self) -> StoreGeometry {
        self.below.geometry()
    }

    fn identity(&self) -> Result<u128, OpenError> {
        self.below.identity()
    }

    fn submit(
        &self,
        op: StoreOperation,
        buffer: Option<Buffer>,
        token: StoreToken,
        io: &mut StoreIo<'_>,
    ) {
        let token =
            if op == StoreOperation::Flush { io.then(token, self.fails.clone()) } else { token };
        self.below.submit(op, buffer, token, io);
    }

    fn sync(&self) -> io::Result<()> {
        if self.fails.next() {
            Err(io::Error::other("a test wants it so"))
        } else {
            self.below.sync()
        }
    }

    fn last_sync(&self) -> Option<LastSync> {
        let (fails, sync) = (self.fails.clone(), self.below.last_sync()?);
        Some(Box::new(move || {
            fails.next();
            sync()
        }))
    }
}

/// Store whose identity is not available until the test permits it.
#[derive(Debug, Default)]
pub(super) struct SlowIdentityStore {
    is_queried: AtomicBool,
    may_answer: AtomicBool,
}

impl SlowIdentityStore {
    pub(super) fn is_queried(&self) -> bool {
        self.is_queried.load(Ordering::Relaxed)
    }

    pub(super) fn answer(&self) {
        self.may_answer.store(true, Ordering::Relaxed);
    }
}

impl Store for SlowIdentityStore {
    fn geometry(&self) -> StoreGeometry {
        StoreGeometry { lba_shift: 9, blocks: 8, read_only: true, volatile_cache: false }
    }

    fn identity(&self) -> Result<u128, OpenError> {
        self.is_queried.store(true, Ordering::Relaxed);
        super::tests::eventually("it may answer", || self.may_answer.load(Ordering::Relaxed));
        Ok(7)
    }

    fn submit(
        &self,
        _: StoreOperation,
        buffer: Option<Buffer>,
        token: StoreToken,
        io: &mut StoreIo<'_>,
    ) {
        io.complete(StoreCompletion::new(token, Ok(()), buffer));
    }
}

/// Dead device: keeps its commands, also aborted ones, until the test releases them.
#[derive(Debug, Default)]
pub(super) struct DeadStore(Mutex<Vec<(StoreCompletions, StoreCompletion)>>);

impl DeadStore {
    /// Completes all commands with an error.
    pub(super) fn release(&self) {
        for (completions, completion) in self.0.lock().unwrap().drain(..) {
            let result = Err(Status::INTERNAL_ERROR.dnr());
            completions.send(StoreCompletion { result, ..completion });
        }
    }
}

impl Store for DeadStore {
    fn geometry(&self) -> StoreGeometry {
        StoreGeometry { lba_shift: 9, blocks: 1024, read_only: false, volatile_cache: false }
    }

    fn identity(&self) -> Result<u128, OpenError> {
        Ok(8)
    }

    fn submit(
        &self,
        _: StoreOperation,
        buffer: Option<Buffer>,
        token: StoreToken,
        io: &mut StoreIo<'_>,
    ) {
        let completion = StoreCompletion::new(token, Ok(()), buffer);
        self.0.lock().unwrap().push((io.completions(), completion));
    }
}
