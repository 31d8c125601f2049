//! A store that completes on a thread of its own: late, out of order, and with errors if configured.

use roadtrain_store::{
    OpenError, SizeWatcher, Store, StoreCompletion, StoreCompletions, StoreGeometry, StoreIo,
    StoreOperation, StoreToken,
};
use roadtrain_system::buffer::Buffer;
use roadtrain_wire::status::Status;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::Duration;

/// Operations that are shuffled with each other.
const BATCH: usize = 8;

type LateJob = (StoreOperation, Option<Buffer>, StoreToken, StoreCompletions);

/// A store with a thread. Dropping it ends the thread, which completes its operations before.
#[derive(Debug)]
pub(crate) struct LateStore {
    blocks: Arc<AtomicU64>,
    lba_shift: u8,
    jobs: Mutex<Sender<LateJob>>,
    watchers: Watchers,
}

/// Watchers of the size.
#[derive(Default)]
struct Watchers(Mutex<Vec<Weak<SizeWatcher>>>);

impl fmt::Debug for Watchers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watchers")
    }
}

fn geometry(blocks: &AtomicU64, lba_shift: u8) -> StoreGeometry {
    let blocks = blocks.load(Relaxed);
    StoreGeometry { lba_shift, blocks, read_only: false, volatile_cache: true }
}

impl LateStore {
    /// Makes a store of `blocks` blocks of 512 bytes; one of each `fails_each` operations that move data fails (0:
    /// none).
    pub(crate) fn new(blocks: u64, fails_each: u64) -> LateStore {
        LateStore::with(blocks, 9, fails_each)
    }

    /// Makes a store of blocks of `1 << lba_shift` bytes.
    pub(crate) fn with(blocks: u64, lba_shift: u8, fails_each: u64) -> LateStore {
        let (jobs, inbox) = channel();
        let blocks = Arc::new(AtomicU64::new(blocks));
        let worker = LateWorker {
            bytes: Vec::new(),
            blocks: blocks.clone(),
            lba_shift,
            fails_each,
            moved: 0,
            random: 0x9e37_79b9,
        };
        thread::spawn(move || worker.run(&inbox));
        LateStore { blocks, lba_shift, jobs: Mutex::new(jobs), watchers: Watchers::default() }
    }

    /// Changes the size, and notifies the watchers.
    #[allow(dead_code, reason = "not every test resizes it")]
    pub(crate) fn becomes(&self, blocks: u64) {
        self.blocks.store(blocks, Relaxed);
        let watchers = self.watchers.0.lock().unwrap();
        watchers.iter().filter_map(Weak::upgrade).for_each(|watcher| watcher());
    }
}

impl Store for LateStore {
    fn geometry(&self) -> StoreGeometry {
        geometry(&self.blocks, self.lba_shift)
    }

    fn watch_size(&self, watcher: Weak<SizeWatcher>) {
        self.watchers.0.lock().unwrap().push(watcher);
    }

    fn identity(&self) -> Result<u128, OpenError> {
        Ok(0x1a7e)
    }

    fn submit(
        &self,
        op: StoreOperation,
        buffer: Option<Buffer>,
        token: StoreToken,
        io: &mut StoreIo<'_>,
    ) {
        let job = (op, buffer, token, io.completions());
        self.jobs.lock().unwrap().send(job).expect("the thread lives as long as this");
    }
}

struct LateWorker {
    bytes: Vec<u8>,
    blocks: Arc<AtomicU64>,
    lba_shift: u8,
    fails_each: u64,
    moved: u64,
    random: u64,
}

impl LateWorker {
    fn run(mut self, inbox: &Receiver<LateJob>) {
        while let Ok(first) = inbox.recv() {
            // Long enough for others to arrive.
            thread::sleep(Duration::from_micros(300));
            let mut batch: Vec<LateJob> =
                std::iter::once(first).chain(inbox.try_iter().take(BATCH - 1)).collect();
            while !batch.is_empty() {
                self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let chosen = (self.random >> 33) as usize % batch.len();
                let (op, mut buffer, token, completions) = batch.swap_remove(chosen);
                let result = self.execute(&op, buffer.as_mut());
                completions.send(StoreCompletion::new(token, result, buffer));
            }
        }
    }

    fn execute(&mut self, op: &StoreOperation, buffer: Option<&mut Buffer>) -> Result<(), Status> {
        let geometry = geometry(&self.blocks, self.lba_shift);
        let block = u64::from(geometry.lba_bytes());
        let is_whole = |at: u64| at.is_multiple_of(block);
        let range = op.changed(buffer.as_ref().map_or(0, |buffer| buffer.len() as u64));
        assert!(range.is_none_or(|range| is_whole(range.offset) && is_whole(range.len)), "{op:?}");
        geometry.check(op, buffer.as_deref())?;
        self.bytes.resize(geometry.bytes() as usize, 0);
        match (op, buffer) {
            (StoreOperation::Read { offset }, Some(buffer)) => {
                self.may_fail(Status::UNRECOVERED_READ_ERROR)?;
                let at = *offset as usize;
                let end = at + buffer.len();
                buffer.copy_from_slice(&self.bytes[at..end]);
            }
            (StoreOperation::Write { offset, .. }, Some(buffer)) => {
                self.may_fail(Status::WRITE_FAULT)?;
                let at = *offset as usize;
                self.bytes[at..at + buffer.len()].copy_from_slice(buffer);
            }
            (StoreOperation::Compare { offset }, Some(buffer)) => {
                let at = *offset as usize;
                if self.bytes[at..at + buffer.len()] != buffer[..] {
                    return Err(Status::COMPARE_FAILURE.dnr());
                }
            }
            (StoreOperation::WriteZeroes { range, .. }, _) => {
                let at = range.offset as usize;
                self.bytes[at..at + range.len as usize].fill(0);
            }
            _ => {}
        }
        Ok(())
    }

    fn may_fail(&mut self, status: Status) -> Result<(), Status> {
        self.moved += 1;
        match self.fails_each != 0 && self.moved.is_multiple_of(self.fails_each) {
            true => Err(status.dnr()),
            false => Ok(()),
        }
    }
}
