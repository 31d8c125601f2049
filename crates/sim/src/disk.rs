//! Storage with a volatile cache: commands take their time, touch their blocks one by one in between, and a
//! power loss takes back whatever was not flushed, block by block. A flush that fails loses what it was for,
//! and the next one succeeds nevertheless: as with write-back errors of real systems. Several processes may serve the
//! same storage: each gets the completions of its own commands.

use crate::rng::Rng;
use core::time::Duration;
use roadtrain_proto::time::Instant;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Octets of a logical block.
pub const BLOCK_BYTES: usize = 512;

/// Longest time in microseconds until a command goes on after a stall.
const AFTER_STALL_US: u64 = 5_000;

/// Content of a block: which write it is of; 0 for zeroes.
pub type Stamp = u64;

/// The octets of a block.
#[must_use]
pub fn block(stamp: Stamp, lba: u64) -> [u8; BLOCK_BYTES] {
    let mut octets = [0; BLOCK_BYTES];
    if stamp != 0 {
        let (words, _) = octets.as_chunks_mut::<8>();
        for (index, word) in (0..).zip(words) {
            *word = if index == 0 { stamp } else { stamp ^ lba << 32 ^ index << 56 }.to_le_bytes();
        }
    }
    octets
}

/// What a block's octets are of; `None` when they belong to no write of that block.
#[must_use]
pub fn stamp_of(octets: &[u8], lba: u64) -> Option<Stamp> {
    let stamp = u64::from_le_bytes(*octets.first_chunk()?);
    (octets == block(stamp, lba)).then_some(stamp)
}

/// What a command does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Read blocks.
    Read {
        /// The first.
        slba: u64,
        /// How many.
        blocks: u64,
    },
    /// Write blocks.
    Write {
        /// The first.
        slba: u64,
        /// Their octets.
        data: Vec<u8>,
        /// To stable storage.
        fua: bool,
    },
    /// Everything that was written is stable.
    Flush,
}

/// A command under way.
struct Task {
    /// The process that has started it.
    process: u8,
    work: Work,
    /// Blocks still to be touched: when, and which.
    steps: Vec<(Instant, u64)>,
    ends: Instant,
    fails: bool,
    /// A flush that loses what it was for.
    loses: bool,
    /// Read so far, or nothing.
    data: Vec<u8>,
    /// Flush: what was written before it.
    flushes: u64,
}

/// A command that has ended.
#[derive(Debug)]
pub struct Done {
    /// As [`SimDisk::start`] has numbered it.
    pub task: u64,
    /// It went well; what it has read.
    pub result: Result<Vec<u8>, ()>,
    /// It has failed, and lost what was not flushed.
    pub lost: bool,
    /// A write that was to be forced, and is stable after a flush.
    pub is_unforced: bool,
}

#[derive(Clone)]
struct Cell {
    stable: Vec<u8>,
    /// Written since, in order: serial number and content.
    cached: Vec<(u64, Vec<u8>)>,
    /// Up to here no flush reaches what is cached, though it can be read.
    lost: u64,
}

impl Cell {
    fn now(&self) -> &Vec<u8> {
        self.cached.last().map_or(&self.stable, |(_, content)| content)
    }

    /// Everything up to `serial` becomes stable.
    fn settle(&mut self, serial: u64) {
        let count = self.cached.partition_point(|(written, _)| *written <= serial);
        if self.cached[..count].last().is_some_and(|(written, _)| *written > self.lost) {
            let settled = self.cached.drain(..count).next_back();
            self.stable = settled.map(|(_, content)| content).unwrap_or_default();
        }
    }
}

/// First block and number of blocks.
fn blocks_of(offset: u64, bytes: usize) -> (usize, usize) {
    let offset = offset as usize;
    assert!(
        offset.is_multiple_of(BLOCK_BYTES) && bytes.is_multiple_of(BLOCK_BYTES),
        "whole blocks"
    );
    (offset / BLOCK_BYTES, bytes / BLOCK_BYTES)
}

/// How long commands take and how often they fail.
#[derive(Clone, Copy, Debug)]
pub struct Manners {
    /// Shortest and longest time in microseconds.
    pub latency_us: (u64, u64),
    /// Commands of 100 that take ten times as long.
    pub slow_percent: u64,
    /// Commands of 1,000 that fail.
    pub failing_per_mille: u64,
    /// Flushes of 100 that fail and lose what was not flushed. Where some do, the disk forces no write by itself, which
    /// could hide such a failure from a flush.
    pub losing_percent: u64,
}

/// The storage, as all processes share it.
struct Storage {
    cells: Vec<Cell>,
    tasks: BTreeMap<u64, Task>,
    /// Completions that their processes have not taken.
    ended: Vec<(u8, Done)>,
    serial: u64,
    manners: Manners,
    /// Nothing happens before.
    stalled_until: Instant,
    /// The next write begins so much later.
    delay: Duration,
    rng: Rng,
}

impl Storage {
    fn start(&mut self, now: Instant, process: u8, work: Work) -> u64 {
        let mut now = now.max(self.stalled_until);
        if matches!(work, Work::Write { .. }) {
            now += std::mem::take(&mut self.delay);
        }
        let (shortest, longest) = self.manners.latency_us;
        let mut takes = self.rng.micros(shortest, longest);
        if self.rng.chance(self.manners.slow_percent) {
            takes *= 10;
        }
        let (slba, blocks) = match &work {
            Work::Read { slba, blocks } => (*slba, *blocks),
            Work::Write { slba, data, .. } => (*slba, (data.len() / BLOCK_BYTES) as u64),
            Work::Flush => (0, 0),
        };
        let rng = &mut self.rng;
        let mut moment = || now + Duration::from_nanos(rng.below(takes.as_nanos() as u64 + 1));
        let mut steps: Vec<_> = (slba..slba + blocks).map(|lba| (moment(), lba)).collect();
        steps.sort_unstable();
        steps.reverse();
        let read = if matches!(work, Work::Read { .. }) { blocks as usize } else { 0 };
        let data = vec![0; read * BLOCK_BYTES];
        let fails = self.rng.below(1000) < self.manners.failing_per_mille;
        self.serial += 1;
        let losing = self.manners.losing_percent;
        let loses = work == Work::Flush && losing > 0 && self.rng.chance(losing);
        let (ends, flushes) = (now + takes, self.serial);
        let task = Task { process, work, steps, ends, fails, loses, data, flushes };
        self.tasks.insert(self.serial, task);
        self.serial
    }

    /// Lets the time pass until `now`, for all processes.
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
        let Some(task) = self.tasks.get_mut(&number) else { return };
        let cell = &mut self.cells[lba as usize];
        match &task.work {
            Work::Read { slba, .. } => {
                let at = (lba - slba) as usize * BLOCK_BYTES;
                task.data[at..at + BLOCK_BYTES].copy_from_slice(cell.now());
            }
            Work::Write { slba, data, .. } => {
                let at = (lba - slba) as usize * BLOCK_BYTES;
                self.serial += 1;
                cell.cached.push((self.serial, data[at..at + BLOCK_BYTES].to_vec()));
            }
            Work::Flush => {}
        }
    }

    fn end(&mut self, number: u64) -> Option<(u8, Done)> {
        let task = self.tasks.remove(&number)?;
        if task.loses {
            self.cells.iter_mut().for_each(|cell| cell.lost = self.serial);
        }
        if task.fails || task.loses {
            let (result, lost) = (Err(()), task.loses);
            return Some((task.process, Done { task: number, result, lost, is_unforced: false }));
        }
        let is_forced = matches!(task.work, Work::Write { fua: true, .. });
        let is_unforced = is_forced && self.manners.losing_percent > 0;
        match task.work {
            Work::Write { slba, data, fua: true } if !is_unforced => {
                let blocks = data.len() / BLOCK_BYTES;
                self.cells[slba as usize..][..blocks].iter_mut().for_each(|c| {
                    c.lost = 0; // what it has written goes there by itself
                    c.settle(self.serial);
                });
            }
            Work::Flush => self.cells.iter_mut().for_each(|cell| cell.settle(task.flushes)),
            _ => {}
        }
        let result = Ok(task.data);
        Some((task.process, Done { task: number, result, lost: false, is_unforced }))
    }
}

/// The storage, as one process has it.
#[derive(Clone)]
pub struct SimDisk {
    storage: Rc<RefCell<Storage>>,
    process: u8,
}

impl SimDisk {
    /// `blocks` blocks of zeroes, as process 0 has them.
    #[must_use]
    pub fn new(blocks: u64, manners: Manners, rng: Rng) -> Self {
        let cell = Cell { stable: vec![0; BLOCK_BYTES], cached: Vec::new(), lost: 0 };
        let storage = Storage {
            cells: vec![cell; blocks as usize],
            tasks: BTreeMap::new(),
            ended: Vec::new(),
            serial: 0,
            manners,
            stalled_until: Instant::default(),
            delay: Duration::ZERO,
            rng,
        };
        SimDisk { storage: Rc::new(RefCell::new(storage)), process: 0 }
    }

    /// The same storage, as another process has it.
    #[must_use]
    pub fn shared_with(&self, process: u8) -> Self {
        SimDisk { storage: self.storage.clone(), process }
    }

    /// Starts a command within the namespace; its number comes back in [`Done`].
    pub fn start(&mut self, now: Instant, work: Work) -> u64 {
        self.storage.borrow_mut().start(now, self.process, work)
    }

    /// Lets the time pass until `now`; the commands of this process that have ended meanwhile.
    pub fn advance(&mut self, now: Instant) -> Vec<Done> {
        let mut storage = self.storage.borrow_mut();
        storage.advance(now);
        let own = storage.ended.extract_if(.., |(process, _)| *process == self.process);
        own.map(|(_, done)| done).collect()
    }

    /// Commands of this process end nowhere.
    pub fn abandon(&mut self) {
        let mut storage = self.storage.borrow_mut();
        storage.tasks.retain(|_, task| task.process != self.process);
        storage.ended.retain(|(process, _)| *process != self.process);
    }

    /// The power fails: of every block any version since the last stable one is left.
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

    /// The octets of a block.
    #[must_use]
    pub fn content(&self, lba: u64) -> Vec<u8> {
        self.storage.borrow().cells[lba as usize].now().clone()
    }

    /// Bytes as they are now, where the storage is memory that is lent.
    #[must_use]
    pub fn bytes(&self, offset: u64, length: u32) -> Vec<u8> {
        let (first, blocks) = blocks_of(offset, length as usize);
        let storage = self.storage.borrow();
        storage.cells[first..][..blocks].iter().flat_map(|cell| cell.now().clone()).collect()
    }

    /// Changes blocks at once, where the storage is memory that is lent.
    ///
    /// # Panics
    /// These are not whole blocks: a connection that ends here would leave one half written.
    pub fn put(&self, offset: u64, octets: &[u8]) {
        let (first, _) = blocks_of(offset, octets.len());
        let Storage { cells, serial, .. } = &mut *self.storage.borrow_mut();
        for (cell, content) in cells[first..].iter_mut().zip(octets.chunks(BLOCK_BYTES)) {
            *serial += 1;
            cell.cached.push((*serial, content.to_vec()));
        }
    }

    /// When the next command of this process ends.
    #[must_use]
    pub fn next_at(&self) -> Option<Instant> {
        let storage = self.storage.borrow();
        if storage.ended.iter().any(|(process, _)| *process == self.process) {
            return Some(Instant(0));
        }
        let own = storage.tasks.values().filter(|task| task.process == self.process);
        own.map(|task| task.ends).min()
    }

    /// The next write takes so much longer, as one that a device retries.
    pub fn stick(&mut self, time: Duration) {
        self.storage.borrow_mut().delay = time;
    }

    /// Nothing happens before `until`, then what is under way goes on in another order.
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
