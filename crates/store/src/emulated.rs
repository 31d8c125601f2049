//! A store of small blocks over a store of larger ones, by read-modify-write (512-byte emulation, "512e").
//!
//! `roadtrain_proto::read_modify_write` decides which physical blocks are read and written, and which operations wait for
//! each other. All reactors share one [`RmwAdmission`], so an operation may be admitted by the end of one on another
//! reactor: it is then continued by a completion that is sent to its own reactor. Its buffers stay on its thread.
//!
//! Reads, compares and flushes of whole physical blocks go to the store below as they are. Changes of whole physical
//! blocks do so as well, once no read-modify-write of the same blocks is in flight; this needs no allocation.

mod allocated;
mod task;

use crate::{
    BlockLimits, OpenError, Store, StoreCompletion, StoreCompletions, StoreContinuation,
    StoreGeometry, StoreIo, StoreOperation, StoreToken,
};
use allocated::PhysicalQuery;
use roadtrain_proto::read_modify_write::{RmwAdmission, RmwPlan, enclosing};
use roadtrain_system::buffer::Buffer;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use task::{EmulatedTask, EmulatedWork};

/// Memory of all bounce buffers of a store, in bytes. Operations that need more wait for others.
const BOUNCE_BUDGET_BYTES: u64 = 8 << 20;

/// Another store, with smaller blocks than its own.
#[derive(Debug)]
pub struct EmulatedBlockStore {
    blocks: Arc<EmulatedBlocks>,
    lba_shift: u8,
}

impl EmulatedBlockStore {
    /// Makes a store with blocks of `1 << lba_shift` bytes, smaller than those of `below`.
    #[must_use]
    pub fn new(below: Arc<dyn Store>, lba_shift: u8) -> EmulatedBlockStore {
        let physical_shift = below.geometry().lba_shift;
        let operations = EmulatedOperations {
            admission: RmwAdmission::new(BOUNCE_BUDGET_BYTES),
            waiting: HashMap::new(),
        };
        let blocks = EmulatedBlocks { below, physical_shift, operations: Mutex::new(operations) };
        EmulatedBlockStore { blocks: Arc::new(blocks), lba_shift }
    }
}

impl Store for EmulatedBlockStore {
    fn geometry(&self) -> StoreGeometry {
        let physical = self.blocks.below.geometry();
        let blocks = physical.blocks << (physical.lba_shift - self.lba_shift);
        StoreGeometry { lba_shift: self.lba_shift, blocks, ..physical }
    }

    fn identity(&self) -> Result<u128, OpenError> {
        self.blocks.below.identity()
    }

    fn submit(
        &self,
        op: StoreOperation,
        buffer: Option<Buffer>,
        token: StoreToken,
        io: &mut StoreIo<'_>,
    ) {
        let blocks = &self.blocks;
        if let Err(status) = self.geometry().check(&op, buffer.as_ref()) {
            return io.complete(StoreCompletion::new(token, Err(status), buffer));
        }
        if let StoreOperation::QueryAllocation { range } = op {
            let query = PhysicalQuery::new(blocks, range, self.lba_shift);
            let range = enclosing(range, blocks.physical_bytes());
            let token = io.then(token, Arc::new(query));
            return blocks.below.submit(
                StoreOperation::QueryAllocation { range },
                buffer,
                token,
                io,
            );
        }
        let bytes = buffer.as_ref().map_or(0, Buffer::len) as u64;
        match RmwPlan::of(&op, bytes, blocks.physical_bytes()) {
            RmwPlan::Nothing => io.complete(StoreCompletion::new(token, Ok(()), buffer)),
            RmwPlan::Pass(op) => blocks.below.submit(op, buffer, token, io),
            RmwPlan::Claimed(op, claim) => {
                let key = (io.executor(), token);
                let mut operations = blocks.lock();
                if operations.admission.begin(key, claim) {
                    drop(operations);
                    let token = io.then(token, blocks.clone());
                    return blocks.below.submit(op, buffer, token, io);
                }
                let task = EmulatedTask::new(blocks, key, EmulatedWork::Whole(op), buffer);
                operations.waiting.insert(key, task.wait(io));
            }
            RmwPlan::Task(rmw, claim) => {
                let key = (io.executor(), token);
                let task = EmulatedTask::new(blocks, key, EmulatedWork::Parts(rmw), buffer);
                let mut operations = blocks.lock();
                if operations.admission.begin(key, claim) {
                    drop(operations);
                    return task.begin(io);
                }
                operations.waiting.insert(key, task.wait(io));
            }
        }
    }

    fn below(&self) -> Option<&dyn Store> {
        Some(&*self.blocks.below)
    }

    /// Returns the limits of the store below, with the physical block as the least granularity.
    fn limits(&self) -> BlockLimits {
        let physical_bytes = self.blocks.physical_bytes() as u32;
        let limits = self.blocks.below.limits();
        // A write that begins inside a physical block may be made in pieces.
        let limits = BlockLimits { atomic_bytes: 0, ..limits };
        let fits = limits.check(self.lba_shift).is_ok() && limits.write_bytes >= physical_bytes;
        if fits { limits } else { BlockLimits::pages_of(physical_bytes) }
    }
}

/// Operation in flight: its executor and its token there.
type OperationKey = (usize, StoreToken);

/// The store below, and the operations in flight there.
struct EmulatedBlocks {
    below: Arc<dyn Store>,
    physical_shift: u8,
    operations: Mutex<EmulatedOperations>,
}

/// Operations in flight, and the continuations of those that wait.
struct EmulatedOperations {
    admission: RmwAdmission<OperationKey>,
    waiting: HashMap<OperationKey, AdmissionWaiter>,
}

/// Completion that continues a waiting operation on its reactor.
struct AdmissionWaiter {
    completions: StoreCompletions,
    token: StoreToken,
}

impl fmt::Debug for EmulatedBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmulatedBlocks").field("below", &self.below).finish_non_exhaustive()
    }
}

impl EmulatedBlocks {
    fn physical_bytes(&self) -> u64 {
        1 << self.physical_shift
    }

    fn lock(&self) -> MutexGuard<'_, EmulatedOperations> {
        self.operations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a waiting operation back. `None` if it was admitted.
    fn stop_waiting(&self, key: OperationKey) -> Option<AdmissionWaiter> {
        self.lock().waiting.remove(&key)
    }

    /// Ends an operation, and continues those that are admitted now.
    fn end(&self, key: OperationKey, io: &mut StoreIo<'_>) {
        let mut admitted = Vec::new();
        let mut ended = Some(key);
        while let Some(key) = ended.take() {
            self.lock().admission.end(key, &mut admitted);
            while let Some(next) = admitted.pop() {
                let Some(waiter) = self.stop_waiting(next) else { continue };
                let completion = StoreCompletion::new(waiter.token, Ok(()), None);
                if next.0 == io.executor() {
                    io.complete(completion);
                } else if !waiter.completions.send(completion) {
                    ended = Some(next); // its reactor has ended
                    break;
                }
            }
        }
    }
}

/// Ends a change of whole physical blocks that the store below has completed.
impl StoreContinuation for EmulatedBlocks {
    fn answered(&self, completion: StoreCompletion, io: &mut StoreIo<'_>) {
        self.end((io.executor(), completion.token), io);
        io.complete(completion);
    }

    fn cancel(&self, token: StoreToken) {
        self.below.cancel(token);
    }
}
