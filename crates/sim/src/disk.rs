//! Storage with a volatile cache: commands take their time and touch their blocks one by one in between. A power loss
//! takes back data that was not flushed, block by block. A flush that fails loses the data it was for, and the next one
//! succeeds nevertheless, like write-back errors of real systems. Several processes may serve the same storage: each
//! gets the completions of its own commands.

use crate::rng::SimRng;
use core::time::Duration;
use roadtrain_proto::time::Instant;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Bytes of a logical block.
pub const BLOCK_BYTES: usize = 512;

/// Longest time in microseconds until a command continues after a stall.
const AFTER_STALL_US: u64 = 5_000;

/// Content of a block, by the number of its write; 0 for zeroes.
pub type BlockStamp = u64;

/// Returns the bytes of a block.
#[must_use]
pub fn block(stamp: BlockStamp, lba: u64) -> [u8; BLOCK_BYTES] {
    let mut bytes = [0; BLOCK_BYTES];
    if stamp != 0 {
        let (words, _) = bytes.as_chunks_mut::<8>();
        for (index, word) in (0..).zip(words) {
            *word = if index == 0 { stamp } else { stamp ^ lba << 32 ^ index << 56 }.to_le_bytes();
        }
    }
    bytes
}

/// Returns the stamp of a block's bytes; `None` if no write of that block has these bytes.
#[must_use]
pub fn stamp_of(bytes: &[u8], lba: u64) -> Option<BlockStamp> {
    let stamp = u64::from_le_bytes(*bytes.first_chunk()?);
    (bytes == block(stamp, lba)).then_some(stamp)
}

/// Effect of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskWork {
    /// Read blocks: physical ones at a [`SimDisk`].
    Read {
        /// First block.
        slba: u64,
        /// Number of blocks.
        blocks: u64,
    },
    /// Write blocks.
    Write {
        /// First block.
        slba: u64,
        /// Bytes of the blocks.
        data: Vec<u8>,
        /// True if the write goes to stable storage.
        fua: bool,
    },
    /// Make everything stable that was written.
    Flush,
}

/// A command in flight.
struct DiskCommand {
    /// Process that has started it.
    process: u8,
    work: DiskWork,
    /// Blocks still to be touched, with their times.
    steps: Vec<(Instant, u64)>,
    ends: Instant,
    fails: bool,
    /// True for a flush that fails and loses the data it was for.
    loses: bool,
    /// Bytes read so far; empty for other commands.
    data: Vec<u8>,
    /// Serial number up to which a flush makes writes stable.
    flushes: u64,
}

/// A completed command.
#[derive(Debug)]
pub struct DiskCompletion {
    /// Number that [`SimDisk::start`] has returned.
    pub task: u64,
    /// Bytes that it has read, or a failure.
    pub result: Result<Vec<u8>, ()>,
    /// True if it has failed, and lost the data that was not flushed.
    pub lost: bool,
    /// True for a FUA write that becomes stable only by a flush.
    pub is_unforced: bool,
}

#[derive(Clone)]
struct DiskBlock {
    stable: Vec<u8>,
    /// Later writes in order: serial number and content.
    cached: Vec<(u64, Vec<u8>)>,
    /// Serial number up to which flushes do not reach cached writes, though they can be read.
    lost: u64,
}

impl DiskBlock {
    fn now(&self) -> &Vec<u8> {
        self.cached.last().map_or(&self.stable, |(_, content)| content)
    }

    /// Makes every write up to `serial` stable.
    fn settle(&mut self, serial: u64) {
        let count = self.cached.partition_point(|(written, _)| *written <= serial);
        if self.cached[..count].last().is_some_and(|(written, _)| *written > self.lost) {
            let settled = self.cached.drain(..count).next_back();
            self.stable = settled.map(|(_, content)| content).unwrap_or_default();
        }
    }
}

/// Latency and failure rates of commands.
#[derive(Clone, Copy, Debug)]
pub struct DiskBehaviour {
    /// Shortest and longest latency in microseconds.
    pub latency_us: (u64, u64),
    /// Percentage of commands that take ten times as long.
    pub slow_percent: u64,
    /// Commands of 1,000 that fail.
    pub failing_per_mille: u64,
    /// Percentage of flushes that fail and lose the data that was not flushed. With such flushes, the disk does not
    /// force FUA writes itself, since that could hide a failure from a flush.
    pub losing_percent: u64,
}

/// The storage that all processes share.
struct Storage {
    /// Physical blocks.
    cells: Vec<DiskBlock>,
    /// Bytes of a physical block.
    block_bytes: usize,
    tasks: BTreeMap<u64, DiskCommand>,
    /// Completions that their processes have not taken yet.
    ended: Vec<(u8, DiskCompletion)>,
    serial: u64,
    behaviour: DiskBehaviour,
    /// End of a stall, before which nothing happens.
    stalled_until: Instant,
    /// Extra delay of the next write.
    delay: Duration,
    rng: SimRng,
}

impl Storage {
    /// Returns the first physical block and the number of them.
    fn blocks_of(&self, offset: u64, bytes: usize) -> (usize, usize) {
        let (offset, block) = (offset as usize, self.block_bytes);
        assert!(offset.is_multiple_of(block) && bytes.is_multiple_of(block), "whole blocks");
        (offset / block, bytes / block)
    }

    fn start(&mut self, now: Instant, process: u8, work: DiskWork) -> u64 {
        let mut now = now.max(self.stalled_until);
        if matches!(work, DiskWork::Write { .. }) {
            now += std::mem::take(&mut self.delay);
        }
        let (shortest, longest) = self.behaviour.latency_us;
        let mut takes = self.rng.micros(shortest, longest);
        if self.rng.chance(self.behaviour.slow_percent) {
            takes *= 10;
        }
        let (slba, blocks) = match &work {
            DiskWork::Read { slba, blocks } => (*slba, *blocks),
            DiskWork::Write { slba, data, .. } => (*slba, (data.len() / self.block_bytes) as u64),
            DiskWork::Flush => (0, 0),
        };
        let rng = &mut self.rng;
        let mut moment = || now + Duration::from_nanos(rng.below(takes.as_nanos() as u64 + 1));
        let mut steps: Vec<_> = (slba..slba + blocks).map(|lba| (moment(), lba)).collect();
        steps.sort_unstable();
        steps.reverse();
        let read = if matches!(work, DiskWork::Read { .. }) { blocks as usize } else { 0 };
        let data = vec![0; read * self.block_bytes];
        let fails = self.rng.below(1000) < self.behaviour.failing_per_mille;
        self.serial += 1;
        let losing = self.behaviour.losing_percent;
        let loses = work == DiskWork::Flush && losing > 0 && self.rng.chance(losing);
        let (ends, flushes) = (now + takes, self.serial);
        let task = DiskCommand { process, work, steps, ends, fails, loses, data, flushes };
        self.tasks.insert(self.serial, task);
        self.serial
    }

    /// Advances the time to `now`, for all processes.
    fn advance(&mut self, now: Instant) {
        let mut steps: Vec<(Instant, u64, u64)> = Vec::new();
        for (&number, task) in &mut self.tasks {
            while task.steps.last().is_some_and(|(at, _)| *at <= now) {
                steps.extend(task.steps.pop().map(|(at, lba)| (at, number, lba)));
            }
        }
        steps.sort_unstable();
        for (_, number, lba) in steps {
            self.touch(number, lba);
        }
        let over =
            self.tasks.iter().filter(|(_, task)| task.ends <= now).map(|(&number, _)| number);
        let over: Vec<u64> = over.collect();
        for number in over {
            let ended = self.end(number);
            self.ended.extend(ended);
        }
    }

    fn touch(&mut self, number: u64, lba: u64) {
        let block_bytes = self.block_bytes;
        let Some(task) = self.tasks.get_mut(&number) else { return };
        let cell = &mut self.cells[lba as usize];
        match &task.work {
            DiskWork::Read { slba, .. } => {
                let at = (lba - slba) as usize * block_bytes;
                task.data[at..at + block_bytes].copy_from_slice(cell.now());
            }
            DiskWork::Write { slba, data, .. } => {
                let at = (lba - slba) as usize * block_bytes;
                self.serial += 1;
                cell.cached.push((self.serial, data[at..at + block_bytes].to_vec()));
            }
            DiskWork::Flush => {}
        }
    }

    fn end(&mut self, number: u64) -> Option<(u8, DiskCompletion)> {
        let task = self.tasks.remove(&number)?;
        if task.loses {
            self.cells.iter_mut().for_each(|cell| cell.lost = self.serial);
        }
        if task.fails || task.loses {
            let (result, lost) = (Err(()), task.loses);
            return Some((
                task.process,
                DiskCompletion { task: number, result, lost, is_unforced: false },
            ));
        }
        let is_forced = matches!(task.work, DiskWork::Write { fua: true, .. });
        let is_unforced = is_forced && self.behaviour.losing_percent > 0;
        match task.work {
            DiskWork::Write { slba, data, fua: true } if !is_unforced => {
                let blocks = data.len() / self.block_bytes;
                self.cells[slba as usize..][..blocks].iter_mut().for_each(|c| {
                    c.lost = 0; // a forced write reaches stable storage without a flush
                    c.settle(self.serial);
                });
            }
            DiskWork::Flush => self.cells.iter_mut().for_each(|cell| cell.settle(task.flushes)),
            _ => {}
        }
        let result = Ok(task.data);
        Some((task.process, DiskCompletion { task: number, result, lost: false, is_unforced }))
    }
}

/// The storage, as one process uses it.
#[derive(Clone)]
pub struct SimDisk {
    storage: Rc<RefCell<Storage>>,
    process: u8,
}

impl SimDisk {
    /// Makes a storage of `blocks` logical blocks of zeroes in physical blocks of `block_bytes`, for process 0.
    #[must_use]
    pub fn new(blocks: u64, block_bytes: usize, behaviour: DiskBehaviour, rng: SimRng) -> Self {
        let cell = DiskBlock { stable: vec![0; block_bytes], cached: Vec::new(), lost: 0 };
        let storage = Storage {
            cells: vec![cell; blocks as usize * BLOCK_BYTES / block_bytes],
            block_bytes,
            tasks: BTreeMap::new(),
            ended: Vec::new(),
            serial: 0,
            behaviour,
            stalled_until: Instant::default(),
            delay: Duration::ZERO,
            rng,
        };
        SimDisk { storage: Rc::new(RefCell::new(storage)), process: 0 }
    }

    /// Returns the same storage for another process.
    #[must_use]
    pub fn shared_with(&self, process: u8) -> Self {
        SimDisk { storage: self.storage.clone(), process }
    }

    /// Returns the bytes of a physical block.
    #[must_use]
    pub fn block_bytes(&self) -> u64 {
        self.storage.borrow().block_bytes as u64
    }

    /// Starts a command on physical blocks. Returns its number, which [`DiskCompletion`] repeats.
    pub fn start(&mut self, now: Instant, work: DiskWork) -> u64 {
        self.storage.borrow_mut().start(now, self.process, work)
    }

    /// Advances the time to `now`. Returns the commands of this process that have completed.
    pub fn advance(&mut self, now: Instant) -> Vec<DiskCompletion> {
        let mut storage = self.storage.borrow_mut();
        storage.advance(now);
        let own = storage.ended.extract_if(.., |(process, _)| *process == self.process);
        own.map(|(_, done)| done).collect()
    }

    /// Drops the commands of this process without completions.
    pub fn abandon(&mut self) {
        let mut storage = self.storage.borrow_mut();
        storage.tasks.retain(|_, task| task.process != self.process);
        storage.ended.retain(|(process, _)| *process != self.process);
    }

    /// Simulates a power loss: each block keeps any version since the last stable one.
    pub fn lose_power(&mut self) {
        self.abandon();
        let Storage { cells, rng, .. } = &mut *self.storage.borrow_mut();
        for cell in cells {
            cell.cached.retain(|(written, _)| *written > cell.lost);
            let keep = rng.below(cell.cached.len() as u64 + 1) as usize;
            let kept = cell.cached.drain(..).nth(keep.wrapping_sub(1));
            if let Some((_, content)) = kept {
                cell.stable = content;
            }
        }
    }

    /// Returns the bytes of a logical block.
    #[must_use]
    pub fn content(&self, lba: u64) -> Vec<u8> {
        let storage = self.storage.borrow();
        let offset = lba as usize * BLOCK_BYTES;
        let cell = storage.cells[offset / storage.block_bytes].now();
        cell[offset % storage.block_bytes..][..BLOCK_BYTES].to_vec()
    }

    /// Returns present bytes, for storage that lends its memory.
    #[must_use]
    pub fn bytes(&self, offset: u64, length: u32) -> Vec<u8> {
        let storage = self.storage.borrow();
        let (first, blocks) = storage.blocks_of(offset, length as usize);
        storage.cells[first..][..blocks].iter().flat_map(|cell| cell.now().clone()).collect()
    }

    /// Changes blocks at once, for storage that lends its memory.
    ///
    /// # Panics
    /// The range is not whole blocks: a connection that ends here would leave one half written.
    pub fn put(&self, offset: u64, bytes: &[u8]) {
        let storage = &mut *self.storage.borrow_mut();
        let (first, _) = storage.blocks_of(offset, bytes.len());
        let Storage { cells, serial, block_bytes, .. } = storage;
        for (cell, content) in cells[first..].iter_mut().zip(bytes.chunks(*block_bytes)) {
            *serial += 1;
            cell.cached.push((*serial, content.to_vec()));
        }
    }

    /// Returns the time at which the next command of this process completes.
    #[must_use]
    pub fn next_at(&self) -> Option<Instant> {
        let storage = self.storage.borrow();
        if storage.ended.iter().any(|(process, _)| *process == self.process) {
            return Some(Instant(0));
        }
        let own = storage.tasks.values().filter(|task| task.process == self.process);
        own.map(|task| task.ends).min()
    }

    /// Delays the next write, like a retry of the device.
    pub fn stick(&mut self, time: Duration) {
        self.storage.borrow_mut().delay = time;
    }

    /// Stalls everything until `until`; commands in flight continue in another order.
    pub fn stall(&mut self, now: Instant, until: Instant) {
        let Storage { tasks, stalled_until, rng, .. } = &mut *self.storage.borrow_mut();
        *stalled_until = (*stalled_until).max(until);
        for task in tasks.values_mut() {
            let later = until.since(now) + rng.micros(0, AFTER_STALL_US);
            task.steps.iter_mut().for_each(|(at, _)| *at += later);
            task.ends += later;
        }
    }
}
