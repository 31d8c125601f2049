//! Store whose blocks are a namespace of another target.

use crate::controller::ChainController;
use crate::queue::{OperationReply, SubmittedOperation};
use roadtrain_host_engine::block_operation::BackendRules;
use roadtrain_host_engine::{NamespaceInfo, NamespaceWatcher};
use roadtrain_proto::digest::digest;
use roadtrain_store::{
    BlockIdentifiers, BlockLimits, BlockLocation, BlockOwnership, ByteRange, OpenError,
    OwnCommands, Resize, SizeWatcher, Store, StoreCompletion, StoreCompletions, StoreGeometry,
    StoreIo, StoreOperation, StoreToken,
};
use roadtrain_system::buffer::Buffer;
use roadtrain_wire::identify::oacs;
use roadtrain_wire::status::Status;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// Time without a path after which hosts see the namespace as inaccessible. A target that is started again is back
/// before.
const CUT_OFF_AFTER: Duration = Duration::from_secs(2);
/// Time without a path after which the last flush fails.
const SYNC_PATIENCE: Duration = Duration::from_secs(5);
/// Interval of checks for a path during the last flush.
const SYNC_CHECK: Duration = Duration::from_millis(100);

/// Namespace of another target as a store.
pub struct NvmeStore {
    controller: Arc<ChainController>,
    /// Kind and location, for messages.
    name: String,
    namespace: NamespaceInfo,
    rules: BackendRules,
    /// Capacity in blocks, as this target's hosts see it.
    blocks: AtomicU64,
    read_only: bool,
    /// True once it does not use the controller any more.
    has_left: AtomicBool,
    /// Callback for changes of the controller's namespaces.
    watcher: Mutex<Option<Arc<NamespaceWatcher>>>,
}

impl NvmeStore {
    pub(crate) fn new(
        controller: Arc<ChainController>,
        name: String,
        (namespace, rules): (NamespaceInfo, BackendRules),
        read_only: bool,
    ) -> NvmeStore {
        NvmeStore {
            controller,
            name,
            blocks: AtomicU64::new(namespace.blocks),
            read_only: read_only || namespace.read_only,
            namespace,
            rules,
            has_left: AtomicBool::new(false),
            watcher: Mutex::new(None),
        }
    }

    /// True if no path has been usable for that time.
    fn is_lost_for(&self, time: Duration) -> bool {
        match self.controller.view().unreachable_since(&self.namespace) {
            None => false,
            Some(since) => since.is_none_or(|since| since.elapsed() >= time),
        }
    }

    /// Checks that the namespace can carry out `op`.
    fn check(&self, op: &StoreOperation, buffer: Option<&Buffer>) -> Result<(), Status> {
        let range = match (*op, buffer) {
            (StoreOperation::CompareAndWrite { offset, .. }, Some(buffer)) => {
                ByteRange { offset, len: buffer.len() as u64 / 2 }
            }
            (StoreOperation::WriteUncorrectable { range }, _) => range,
            _ => return self.geometry().check(op, buffer),
        };
        let geometry = self.geometry();
        match geometry.holds(range.offset, range.len) {
            _ if geometry.read_only => Err(Status::NAMESPACE_WRITE_PROTECTED.dnr()),
            true => Ok(()),
            false => Err(Status::LBA_OUT_OF_RANGE.dnr()),
        }
    }

    fn operation(
        &self,
        op: StoreOperation,
        buffer: Option<Buffer>,
        token: StoreToken,
        reply: OperationReply,
    ) -> SubmittedOperation {
        let (nsid, rules) = (self.namespace.nsid, self.rules);
        SubmittedOperation { nsid, rules, op, buffer, token, reply }
    }
}

impl Store for NvmeStore {
    fn geometry(&self) -> StoreGeometry {
        StoreGeometry {
            lba_shift: self.rules.lba_shift,
            blocks: self.blocks.load(Ordering::Relaxed),
            read_only: self.read_only,
            volatile_cache: self.rules.is_volatile,
        }
    }

    fn identity(&self) -> Result<u128, OpenError> {
        let NamespaceInfo { nguid, uuid, eui64, nsid, .. } = &self.namespace;
        Ok(match (nguid, uuid, eui64) {
            ([0, ..], [0, ..], _) if *nguid == [0; 16] && *uuid == [0; 16] => {
                let place = self.controller.view().info().identify.subnqn;
                let place: &[u8] = if *eui64 == [0; 8] { &place } else { eui64 };
                digest(&[b"nvme\0", place, &nsid.to_le_bytes()])
            }
            _ if *nguid != [0; 16] => u128::from_be_bytes(*nguid),
            _ => u128::from_be_bytes(*uuid),
        })
    }

    fn identifiers(&self) -> BlockIdentifiers {
        let given = |id: [u8; 16]| Some(id).filter(|id| *id != [0; 16]);
        let NamespaceInfo { uuid, nguid, .. } = self.namespace;
        BlockIdentifiers { uuid: given(uuid), nguid: given(nguid) }
    }

    fn own_commands(&self) -> OwnCommands {
        OwnCommands { compares_and_writes: true, marks: true }
    }

    fn submit(
        &self,
        op: StoreOperation,
        buffer: Option<Buffer>,
        token: StoreToken,
        io: &mut StoreIo<'_>,
    ) {
        let operation = self.operation(op, buffer, token, OperationReply::ThisThread);
        match self.check(&op, operation.buffer.as_ref()) {
            Ok(()) => self.controller.submit(operation, || io.completions()),
            Err(status) => {
                let completions = io.completions();
                SubmittedOperation { reply: OperationReply::Elsewhere(completions), ..operation }
                    .complete(Err(status));
            }
        }
    }

    fn limits(&self) -> BlockLimits {
        let NamespaceInfo { preferred_write_blocks, preferred_discard_blocks, .. } = self.namespace;
        let bytes = |blocks: u32| blocks.saturating_mul(1 << self.rules.lba_shift);
        let or_page = |blocks: u32| if blocks > 1 { bytes(blocks) } else { 4096 };
        let write_bytes = or_page(preferred_write_blocks);
        let optimal_bytes = bytes(self.namespace.optimal_write_blocks).max(write_bytes);
        let discard_bytes = or_page(preferred_discard_blocks);
        let limits =
            BlockLimits { write_bytes, optimal_bytes, discard_bytes, ..BlockLimits::default() };
        let fits = limits.check(self.rules.lba_shift).is_ok();
        if fits { limits } else { BlockLimits::default() }
    }

    fn reports_allocation(&self) -> bool {
        self.controller.view().info().identify.oacs.get() & oacs::GET_LBA_STATUS != 0
    }

    /// Returns the verifier of the other target at the time of opening. A later loss of its writes fails a flush.
    fn write_verifier(&self) -> Option<u64> {
        self.namespace.write_verifier
    }

    fn sync(&self) -> io::Result<()> {
        let (done, result) = sync_channel(1);
        let completions = StoreCompletions::new(move |completion| done.send(completion).is_ok());
        let reply = OperationReply::Elsewhere(completions);
        let token = StoreToken::new(0, 0);
        let flush = self.operation(StoreOperation::Flush, None, token, reply);
        self.controller.submit_elsewhere(flush);
        loop {
            match result.recv_timeout(SYNC_CHECK) {
                Ok(StoreCompletion { result: Ok(()), .. }) => return Ok(()),
                Ok(StoreCompletion { result: Err(status), .. }) => {
                    return Err(io::Error::other(format!("{}: {status}", self.name)));
                }
                Err(RecvTimeoutError::Timeout) if !self.is_lost_for(SYNC_PATIENCE) => {}
                Err(_) => {
                    return Err(io::Error::other(format!("{}: no path to it", self.name)));
                }
            }
        }
    }

    fn release(&self) {
        if !self.has_left.swap(true, Ordering::AcqRel) {
            self.controller.leave();
        }
    }

    fn ownership(&self) -> BlockOwnership {
        match self.is_lost_for(CUT_OFF_AFTER) {
            true => BlockOwnership::CutOff,
            false => BlockOwnership::Ours,
        }
    }

    fn location(&self) -> Option<BlockLocation> {
        self.identity().ok().map(BlockLocation::Remote)
    }

    fn plan(&self, bytes: Option<u64>) -> Result<Resize, OpenError> {
        let from = self.geometry().bytes();
        if bytes.is_some_and(|bytes| bytes != from) {
            let problem = "is not resized from here: resize it there, this target follows".into();
            return Err(OpenError::Remote { blocks: self.name.clone(), problem });
        }
        let namespace = self.controller.view().namespace(self.namespace.nsid);
        // Another namespace with this NSID is not used.
        let namespace = namespace.filter(|namespace| namespace.is_same(&self.namespace));
        let to = namespace.map_or(from, |namespace| namespace.blocks << self.rules.lba_shift);
        Ok(Resize::to(from, to))
    }

    fn watch_size(&self, watcher: Weak<SizeWatcher>) {
        let watch: Arc<NamespaceWatcher> = Arc::new(move || {
            watcher.upgrade().inspect(|watcher| watcher());
        });
        self.controller.view().watch_namespaces(Arc::downgrade(&watch));
        *self.watcher.lock().unwrap_or_else(PoisonError::into_inner) = Some(watch);
    }

    fn switch(&self, resize: &Resize) {
        self.blocks.store(resize.to >> self.rules.lba_shift, Ordering::Relaxed);
    }
}

impl Drop for NvmeStore {
    fn drop(&mut self) {
        if !*self.has_left.get_mut() {
            self.controller.leave_later();
        }
    }
}

impl fmt::Debug for NvmeStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NvmeStore({})", self.name)
    }
}
