//! Store whose blocks are an export of an NBD server.

use crate::NbdStoreSettings;
use crate::link::{NbdConnections, NbdLink};
use crate::queue::{NbdQueue, NbdRecipient, QueuedOperation};
use crate::worker::{NbdShared, NbdWorker};
use roadtrain_store::{
    BlockLimits, BlockLocation, BlockOwnership, OpenError, Resize, SizeWatcher, Store,
    StoreCompletion, StoreCompletions, StoreGeometry, StoreIo, StoreOperation, StoreToken,
};
use roadtrain_system::buffer::Buffer;
use roadtrain_wire::nbd::transmission_flag;
use roadtrain_wire::status::Status;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tracing::warn;

/// Time without a connection after which hosts see the namespace as inaccessible. A server that is started again is back
/// before.
const CUT_OFF_AFTER: Duration = Duration::from_secs(2);
/// Time without a connection after which a last flush is abandoned.
const SYNC_WITHOUT_SERVER: Duration = Duration::from_secs(5);

/// Export of an NBD server as a store.
pub struct NbdStore {
    /// Kind and location, for messages.
    name: String,
    identity: u128,
    lba_shift: u8,
    /// Capacity in blocks, as hosts see it.
    blocks: AtomicU64,
    read_only: bool,
    volatile_cache: bool,
    reports_allocation: bool,
    limits: BlockLimits,
    queue: Arc<NbdQueue>,
    shared: Arc<NbdShared>,
    worker: Mutex<Option<JoinHandle<()>>>,
}

impl NbdStore {
    /// Connects. Waits for the server.
    ///
    /// # Errors
    /// The server cannot be reached, or its export cannot be used.
    pub(crate) fn open(
        name: String,
        mut link: NbdLink,
        settings: &NbdStoreSettings,
        (identity, read_only): (u128, bool),
    ) -> Result<NbdStore, String> {
        let failed = |error: &dyn fmt::Display| error.to_string();
        let connections = link.connect().map_err(|error| failed(&error))?;
        let NbdConnections { terms, .. } = &connections;
        let terms = *terms;
        link.lba_bytes = terms.lba_bytes(link.lba_bytes).map_err(|error| failed(&error))?;
        let lba_shift = link.lba_bytes.trailing_zeros() as u8;
        let rest = terms.bytes % u64::from(link.lba_bytes);
        if rest > 0 {
            warn!("{name}: its last {rest} bytes are no whole block, and are not served");
        }
        let read_only = read_only || terms.is_read_only();
        let volatile_cache = !read_only && terms.has(transmission_flag::SEND_FLUSH);
        if !read_only && !volatile_cache {
            warn!("{name}: the server has no flush: completed writes count as stable");
        }
        let queue = Arc::new(NbdQueue::new().map_err(|error| failed(&error))?);
        let shared = Arc::new(NbdShared::default());
        let of = (queue.clone(), shared.clone());
        let mut worker = NbdWorker::new(name.clone(), link, settings.clone(), of);
        worker.connected(connections);
        let thread = thread::Builder::new().name("roadtrain-nbd".into());
        let worker = thread.spawn(move || worker.run()).map_err(|error| failed(&error))?;
        Ok(NbdStore {
            name,
            identity,
            lba_shift,
            blocks: AtomicU64::new(terms.bytes >> lba_shift),
            read_only,
            volatile_cache,
            reports_allocation: terms.allocation.is_some(),
            limits: limits(terms.bytes_preferred, lba_shift),
            queue,
            shared,
            worker: Mutex::new(Some(worker)),
        })
    }

    /// Submits an operation to the store's thread.
    fn put(
        &self,
        op: StoreOperation,
        buffer: Option<Buffer>,
        token: StoreToken,
        completions: StoreCompletions,
    ) {
        let recipient = NbdRecipient { token, completions };
        let operation = QueuedOperation { op, buffer, recipient };
        if let Err(operation) = self.queue.put(operation) {
            operation.refuse(Status::ANA_INACCESSIBLE);
        }
    }
}

/// Returns the limits of an export with this optimal granularity.
fn limits(bytes_preferred: u32, lba_shift: u8) -> BlockLimits {
    let limits = BlockLimits::pages_of(bytes_preferred.max(1 << lba_shift));
    if limits.check(lba_shift).is_ok() { limits } else { BlockLimits::default() }
}

impl Store for NbdStore {
    fn geometry(&self) -> StoreGeometry {
        StoreGeometry {
            lba_shift: self.lba_shift,
            blocks: self.blocks.load(Ordering::Relaxed),
            read_only: self.read_only,
            volatile_cache: self.volatile_cache,
        }
    }

    fn identity(&self) -> Result<u128, OpenError> {
        Ok(self.identity)
    }

    fn submit(
        &self,
        op: StoreOperation,
        buffer: Option<Buffer>,
        token: StoreToken,
        io: &mut StoreIo<'_>,
    ) {
        match self.geometry().check(&op, buffer.as_ref()) {
            Ok(()) => self.put(op, buffer, token, io.completions()),
            Err(status) => io.complete(StoreCompletion::new(token, Err(status), buffer)),
        }
    }

    fn limits(&self) -> BlockLimits {
        self.limits
    }

    fn reports_allocation(&self) -> bool {
        self.reports_allocation
    }

    fn sync(&self) -> io::Result<()> {
        let (done, result) = sync_channel(1);
        let completions = StoreCompletions::new(move |completion| done.send(completion).is_ok());
        self.put(StoreOperation::Flush, None, StoreToken::new(0, 0), completions);
        loop {
            match result.recv_timeout(SYNC_WITHOUT_SERVER) {
                Ok(completion) => {
                    let failed =
                        |status| io::Error::other(format!("{}: flush: {status}", self.name));
                    return completion.result.map_err(failed);
                }
                Err(RecvTimeoutError::Timeout)
                    if self.shared.down_for().is_none_or(|time| time < SYNC_WITHOUT_SERVER) => {}
                Err(error) => {
                    return Err(io::Error::other(format!("{}: flush: {error}", self.name)));
                }
            }
        }
    }

    fn release(&self) {
        self.queue.close();
        let worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner).take();
        if worker.is_some_and(|worker| worker.join().is_err()) {
            warn!("{}: its thread has panicked", self.name);
        }
    }

    fn ownership(&self) -> BlockOwnership {
        match self.shared.down_for() {
            Some(time) if time >= CUT_OFF_AFTER => BlockOwnership::CutOff,
            _ => BlockOwnership::Ours,
        }
    }

    fn location(&self) -> Option<BlockLocation> {
        Some(BlockLocation::Remote(self.identity))
    }

    fn plan(&self, bytes: Option<u64>) -> Result<Resize, OpenError> {
        let from = self.geometry().bytes();
        if bytes.is_some_and(|bytes| bytes != from) {
            let problem = "is not resized from here: resize it at its server, this target follows \
                           when it connects again"
                .into();
            return Err(OpenError::Remote { blocks: self.name.clone(), problem });
        }
        let to = self.shared.bytes.load(Ordering::Relaxed) >> self.lba_shift << self.lba_shift;
        Ok(Resize::to(from, to))
    }

    fn watch_size(&self, watcher: Weak<SizeWatcher>) {
        *self.shared.watcher.lock().unwrap_or_else(PoisonError::into_inner) = Some(watcher);
    }

    fn switch(&self, resize: &Resize) {
        self.blocks.store(resize.to >> self.lba_shift, Ordering::Relaxed);
    }
}

impl Drop for NbdStore {
    fn drop(&mut self) {
        self.queue.close();
    }
}

impl fmt::Debug for NbdStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NbdStore({})", self.name)
    }
}
