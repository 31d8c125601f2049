//! Storage with a volatile cache: commands take their time, touch their blocks one by one in between, and a
//! power loss takes back whatever was not flushed, block by block. A flush that fails loses what it was for,
//! and the next one succeeds nevertheless: as with write-back errors of real systems.

use crate::rng::Rng;
use core::time::Duration;
use roadtrain_proto::time::Instant;
use std::collections::BTreeMap;

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

/// The storage.
pub struct SimDisk {
    cells: Vec<Cell>,
    tasks: BTreeMap<u64, Task>,
    serial: u64,
    manners: Manners,
    /// Nothing happens before.
    stalled_until: Instant,
    rng: Rng,
}

impl SimDisk {
    /// `blocks` blocks of zeroes.
    #[must_use]
    pub fn new(blocks: u64, manners: Manners, rng: Rng) -> Self {
        let cell = Cell { stable: vec![0; BLOCK_BYTES], cached: Vec::new(), lost: 0 };
        SimDisk {
            cells: vec![cell; blocks as usize],
            tasks: BTreeMap::new(),
            serial: 0,
            manners,
            stalled_until: Instant::default(),
            rng,
        }
    }

    /// Starts a command within the namespace; its number comes back in [`Done`].
    pub fn start(&mut self, now: Instant, work: Work) -> u64 {
        let now = now.max(self.stalled_until);
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
        let data =
            vec![
                0;
                if matches!(work, Work::Read { .. }) { blocks as usize * BLOCK_BYTES } else { 0 }
            ];
        let fails = self.rng.below(1000) < self.manners.failing_per_mille;
        self.serial += 1;
        let losing = self.manners.losing_percent;
        let loses = work == Work::Flush && losing > 0 && self.rng.chance(losing);
        let ends = now + takes;
        let task = Task { work, steps, ends, fails, loses, data, flushes: self.serial };
        self.tasks.insert(self.serial, task);
        self.serial
    }

    /// Lets the time pass until `now`; what has ended meanwhile.
    pub fn advance(&mut self, now: Instant) -> Vec<Done> {
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
        over.into_iter().filter_map(|number| self.end(number)).collect()
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

    fn end(&mut self, number: u64) -> Option<Done> {
        let task = self.tasks.remove(&number)?;
        if task.loses {
            self.cells.iter_mut().for_each(|cell| cell.lost = self.serial);
        }
        if task.fails || task.loses {
            return Some(Done {
                task: number,
                result: Err(()),
                lost: task.loses,
                is_unforced: false,
            });
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
        Some(Done { task: number, result: Ok(task.data), lost: false, is_unforced })
    }

    /// Commands under way end nowhere.
    pub fn abandon(&mut self) {
        self.tasks.clear();
    }

    /// The power fails: of every block any version since the last stable one is left.
    pub fn lose_power(&mut self) {
        self.abandon();
        for cell in &mut self.cells {
            cell.cached.retain(|(written, _)| *written > cell.lost);
            let keep = self.rng.below(cell.cached.len() as u64 + 1) as usize;
            let kept = cell.cached.drain(..).nth(keep.wrapping_sub(1));
            if let Some((_, content)) = kept {
                cell.stable = content;
            }
        }
    }

    /// What is in a block.
    #[must_use]
    pub fn content(&self, lba: u64) -> &[u8] {
        self.cells[lba as usize].now()
    }

    /// When the next command ends.
    #[must_use]
    pub fn next_at(&self) -> Option<Instant> {
        self.tasks.values().map(|task| task.ends).min()
    }

    /// Nothing happens before `until`, then what is under way goes on in another order.
    pub fn stall(&mut self, now: Instant, until: Instant) {
        self.stalled_until = self.stalled_until.max(until);
        for task in self.tasks.values_mut() {
            let later = until.since(now) + self.rng.micros(0, AFTER_STALL_US);
            task.steps.iter_mut().for_each(|(at, _)| *at += later);
            task.ends += later;
        }
    }
}
