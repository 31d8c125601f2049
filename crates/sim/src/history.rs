//! Checker of reads: every block is a register on which concurrent writes and reads must be linearisable, and that may
//! lose unflushed data in a power loss, and nothing else.
//!
//! Soundness: for each block there is a set of candidates for its content now, and one for its stable content. A write
//! is a candidate from its submission. It leaves the set once another write or read, begun after its acknowledgement,
//! has ended with another content. A write that failed stays a candidate until its host has written the block again: it
//! may have happened, and may still happen. Nothing allowed is ever reported as wrong.
//!
//! On storage that loses data with a failed flush, a flush covers its own host's writes only, and only those since the
//! last failure that was reported to this host. It covers none if the host has another flush in flight, since that one
//! may report a failure later. Nor does it cover a write that is not acknowledged, even if others have read it: a
//! failed flush may take that back without a report, as its host was promised nothing and repeats it after losing the
//! connection.
//!
//! A block that is marked as uncorrectable has [`MARK`] as its content. A mark is on stable storage at once, and a
//! discard leaves it.
//!
//! A mark that failed is not in force, but the next start of the target may find it saved. So no read that the target
//! may have executed before that start rules the mark out. A later write does, because it clears the mark. NVM Command
//! Set 1.1, section 2.1.4, allows old and new content after a command that failed, and no read decides between them.
//!
//! The same holds for a failed write to a marked block: the mark is in force, but the next start may find it cleared.
//! So no such read that shows the mark rules out the write, nor a discard behind it, whose zeroes are then under the
//! mark.

use crate::disk::{BlockStamp, block};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Stamp of a block that is marked as uncorrectable; no write has it.
pub const MARK: BlockStamp = BlockStamp::MAX;

/// Stamp of a block that a read and a write transfer at the same time, where storage lends its memory.
pub const MIXTURE: BlockStamp = BlockStamp::MAX - 1;

/// Number of an event, which orders events of the same instant.
type Tick = u64;

#[derive(Clone, Copy, Debug)]
struct BlockCandidate {
    stamp: BlockStamp,
    write: u64,
    /// Event at which it was acknowledged, or could have no effect any more.
    ended: Option<Tick>,
    /// True once it was acknowledged.
    is_done: bool,
    /// Event that acknowledged the write whose content this one, an acknowledged Compare and Write, has found.
    found: Option<Tick>,
    /// Event that reported its failure to the host.
    failed: Option<Tick>,
}

impl BlockCandidate {
    fn new(stamp: BlockStamp, write: u64) -> Self {
        BlockCandidate { stamp, write, ended: None, is_done: false, found: None, failed: None }
    }

    /// True if it may have taken effect after `tick`.
    fn may_follow(&self, tick: Tick) -> bool {
        self.ended.is_none_or(|ended| ended > tick)
    }
}

#[derive(Clone, Debug)]
struct BlockRegister {
    current: Vec<BlockCandidate>,
    stable: Vec<BlockCandidate>,
    /// Writes that have not succeeded: a start of the target may find that they have cleared the mark.
    clears: Vec<u64>,
}

/// A change of blocks that has begun.
#[derive(Clone, Debug)]
struct BlockChange {
    lbas: Range<u64>,
    fua: bool,
    /// True if marked blocks stay marked.
    leaves_marks: bool,
    /// Event that acknowledged the write whose content this one, a Compare and Write, expects.
    expects: Option<Tick>,
}

#[derive(Clone, Debug)]
enum PendingRequest {
    Write(BlockChange),
    /// A read.
    Read {
        lbas: Range<u64>,
        allowed: Vec<Vec<BlockStamp>>,
        /// With Force Unit Access: possible contents of each block at its begin.
        before: Vec<Vec<BlockCandidate>>,
    },
    /// A flush, with the possible contents of each block at its begin.
    Flush {
        before: Vec<Vec<BlockCandidate>>,
    },
}

/// A failed command that may have changed the file of marks.
#[derive(Clone, Copy, Debug)]
struct Unsaved {
    failed: Tick,
    /// Next start of the target.
    started: Option<Tick>,
}

impl Unsaved {
    /// True if a start after `tick` decides its effect.
    fn is_undecided(self, tick: Tick) -> bool {
        self.started.is_none_or(|started| started > tick)
    }
}

/// Paths by host and number. A path that seems to be live when the power fails reports the loss once it is connected
/// again. Until then Flushes of its host may succeed.
#[derive(Default)]
struct HistoryPaths {
    /// Paths that this process has connected before.
    known: BTreeSet<(u8, u8)>,
    live: BTreeSet<(u8, u8)>,
    /// Paths that seemed live when the power failed, and have not been connected since.
    unaware: BTreeSet<(u8, u8)>,
}

impl HistoryPaths {
    fn connected(&mut self, path: (u8, u8)) {
        self.unaware.remove(&path);
        self.live.insert(path);
        if !self.known.insert(path) {
            // It reports the loss for paths without a connection as well.
            self.unaware.retain(|other| other.0 != path.0 || self.live.contains(other));
        }
    }

    fn is_unaware(&self, host: u8) -> bool {
        self.unaware.iter().any(|path| path.0 == host)
    }

    /// Removes the paths of a host process that has ended.
    fn forget(&mut self, host: u8) {
        for paths in [&mut self.known, &mut self.live, &mut self.unaware] {
            paths.retain(|path| path.0 != host);
        }
    }
}

/// History of a namespace.
pub struct History {
    registers: Vec<BlockRegister>,
    pending: BTreeMap<u64, (Tick, PendingRequest)>,
    tick: Tick,
    /// By command that changes blocks: its begin, and whether it leaves marks.
    changes: BTreeMap<u64, (Tick, bool)>,
    /// By failed command.
    unsaved: BTreeMap<u64, Unsaved>,
    lost_power_at: Tick,
    /// True if the storage loses data with flushes that fail.
    loses: bool,
    /// True if targets run on several machines: a Flush over one of them covers the writes of all.
    has_machines: bool,
    paths: HistoryPaths,
    /// Hosts by request, where they matter.
    hosts: BTreeMap<u64, u8>,
    /// By host: the last request of all at the last reported failure of a flush.
    last_reported: BTreeMap<u8, u64>,
    /// By killed host: writes that may happen until a successor is connected.
    orphans: BTreeMap<u8, Vec<u64>>,
    /// By host: its last acknowledged write that no flush of it covers.
    unflushed: BTreeMap<u8, Tick>,
    /// By host: the last such write that a power loss may have taken, while no flush has failed since.
    unreported: BTreeMap<u8, Tick>,
}

impl History {
    /// Makes the history of `blocks` blocks of zeroes.
    #[must_use]
    pub fn new(blocks: u64) -> Self {
        let zero = BlockCandidate { ended: Some(0), ..BlockCandidate::new(0, 0) };
        let register =
            BlockRegister { current: vec![zero], stable: vec![zero], clears: Vec::new() };
        let registers = vec![register; blocks as usize];
        History {
            registers,
            pending: BTreeMap::new(),
            tick: 0,
            changes: BTreeMap::new(),
            unsaved: BTreeMap::new(),
            lost_power_at: 0,
            loses: false,
            has_machines: false,
            paths: HistoryPaths::default(),
            hosts: BTreeMap::new(),
            last_reported: BTreeMap::new(),
            orphans: BTreeMap::new(),
            unflushed: BTreeMap::new(),
            unreported: BTreeMap::new(),
        }
    }

    /// Expects storage that loses data with each flush that fails.
    pub fn expect_losses(&mut self) {
        self.loses = true;
    }

    /// Expects paths to several machines, which lose power together.
    pub fn expect_machines(&mut self) {
        self.has_machines = true;
    }

    /// Notes that a path of `host` is connected.
    pub fn path_connected(&mut self, host: u8, path: u8) {
        self.paths.connected((host, path));
    }

    /// Notes that a path has lost its connections.
    pub fn path_lost(&mut self, host: u8, path: u8) {
        self.paths.live.remove(&(host, path));
    }

    /// Assigns request `id` to `host`.
    pub fn belongs(&mut self, id: u64, host: u8) {
        self.hosts.insert(id, host);
    }

    /// Ends flush `id`, which has failed for good: its host has to repeat the writes that it needs.
    ///
    /// # Errors
    /// There was nothing that could be lost.
    pub fn lose(&mut self, id: u64) -> Result<(), String> {
        if !self.loses && self.lost_power_at == 0 {
            return Err("a flush has failed, and nothing was lost".into());
        }
        let began = self.pending.get(&id).map_or(0, |(began, _)| *began);
        if let Some(host) = self.hosts.get(&id) {
            self.unreported.remove(host);
            self.unflushed.retain(|other, last| other != host || *last > began);
        }
        let last = self.hosts.last_key_value().map_or(id, |(last, _)| *last);
        if let Some(host) = self.hosts.get(&id) {
            self.last_reported.insert(*host, last);
        }
        self.fail(id);
        Ok(())
    }

    /// Ends a flush that began at `began` with success.
    ///
    /// # Errors
    /// Acknowledged writes of its host may be lost, and no flush has failed.
    fn end_flush(&mut self, id: u64, began: Tick) -> Result<(), String> {
        let Some(host) = self.hosts.get(&id) else { return Ok(()) };
        self.unflushed.retain(|other, last| other != host || *last > began);
        if began <= self.lost_power_at {
            // The response may be older than the power loss.
            self.unreported.retain(|other, last| other != host || *last > began);
        } else if self.paths.is_unaware(*host) {
            self.unreported.retain(|other, _| other != host || !self.has_machines);
        } else if self.unreported.contains_key(host) {
            return Err("a flush succeeds though the power took acknowledged writes".into());
        }
        Ok(())
    }

    /// True if its host has another flush in flight, to which a failure may be reported.
    fn has_other_flush(&self, id: u64) -> bool {
        let host = self.hosts.get(&id);
        let is_flush = |pending: &PendingRequest| matches!(pending, PendingRequest::Flush { .. });
        let mut others = self.pending.iter().filter(|(_, (_, pending))| is_flush(pending));
        others.any(|(other, _)| self.hosts.get(other) == host)
    }

    /// True if flush `id` proves that `candidate`, as it was at the flush's begin, is stable.
    fn covers(&self, id: u64, candidate: &BlockCandidate) -> bool {
        let BlockCandidate { write, ended, .. } = *candidate;
        let (host, writer) = (self.hosts.get(&id), self.hosts.get(&write));
        let last_reported = host.and_then(|host| self.last_reported.get(host));
        let is_kept =
            host == writer && last_reported.is_none_or(|last_reported| write > *last_reported);
        !self.loses || write == 0 || ended.is_some() && is_kept
    }

    fn tick(&mut self) -> Tick {
        self.tick += 1;
        self.tick
    }

    /// Begins request `id` (above 0), a write of `stamp`.
    pub fn begin_write(&mut self, id: u64, lbas: Range<u64>, stamp: BlockStamp, fua: bool) {
        self.begin_change(id, stamp, BlockChange { lbas, fua, leaves_marks: false, expects: None });
    }

    /// Begins request `id`, which writes zeroes except to marked blocks.
    pub fn begin_discard(&mut self, id: u64, lbas: Range<u64>) {
        self.begin_change(
            id,
            0,
            BlockChange { lbas, fua: false, leaves_marks: true, expects: None },
        );
    }

    /// Returns contents of a block that Compare and Write may expect: those of acknowledged writes that no other one
    /// equals, each with the event of its acknowledgement.
    #[must_use]
    pub fn contents(&self, lba: u64) -> Vec<(BlockStamp, Tick)> {
        let is_known = |c: &&BlockCandidate| c.is_done && c.stamp != 0 && c.stamp != MARK;
        let known = self.registers[lba as usize].current.iter().filter(is_known);
        known.filter_map(|c| Some((c.stamp, c.ended?))).collect()
    }

    /// Begins request `id`, which writes `stamp` if it finds the content that was acknowledged at `expects`.
    pub fn begin_swap(
        &mut self,
        id: u64,
        lba: u64,
        stamp: BlockStamp,
        (fua, expects): (bool, Tick),
    ) {
        let (lbas, expects) = (lba..lba + 1, Some(expects));
        self.begin_change(id, stamp, BlockChange { lbas, fua, leaves_marks: false, expects });
    }

    /// Ends request `id`, a Compare and Write that found other content: it has written nothing.
    pub fn refuse(&mut self, id: u64) {
        self.tick();
        let Some((_, PendingRequest::Write(BlockChange { lbas, .. }))) = self.pending.remove(&id)
        else {
            return;
        };
        for lba in lbas {
            let BlockRegister { current, stable, clears } = &mut self.registers[lba as usize];
            current.retain(|c| c.write != id);
            stable.retain(|c| c.write != id);
            clears.retain(|other| *other != id);
        }
    }

    fn begin_change(&mut self, id: u64, stamp: BlockStamp, change: BlockChange) {
        let tick = self.tick();
        let candidate = BlockCandidate::new(stamp, id);
        let (lbas, leaves_marks) = (change.lbas.clone(), change.leaves_marks);
        for lba in lbas.clone() {
            let register = &mut self.registers[lba as usize];
            register.current.push(candidate);
            register.stable.push(candidate);
            register.clears.extend((stamp != MARK && !leaves_marks).then_some(id));
        }
        for (_, pending) in self.pending.values_mut() {
            if let PendingRequest::Read { lbas: read, allowed, .. } = pending {
                for lba in lbas.start.max(read.start)..lbas.end.min(read.end) {
                    allowed[(lba - read.start) as usize].push(stamp);
                }
            }
        }
        self.changes.insert(id, (tick, leaves_marks));
        self.pending.insert(id, (tick, PendingRequest::Write(change)));
    }

    /// Begins request `id`, a read; with `fua` the content is stable before it is read.
    pub fn begin_read(&mut self, id: u64, lbas: Range<u64>, fua: bool) {
        let tick = self.tick();
        let registers = &self.registers[lbas.start as usize..lbas.end as usize];
        let stamps = |register: &BlockRegister| register.current.iter().map(|c| c.stamp).collect();
        let allowed = registers.iter().map(stamps).collect();
        let forced = if fua { registers } else { &[] };
        let before = forced.iter().map(|register| register.current.clone()).collect();
        self.pending.insert(id, (tick, PendingRequest::Read { lbas, allowed, before }));
    }

    /// Begins request `id`, a flush.
    pub fn begin_flush(&mut self, id: u64) {
        let tick = self.tick();
        let before = self.registers.iter().map(|register| register.current.clone()).collect();
        self.pending.insert(id, (tick, PendingRequest::Flush { before }));
    }

    /// Ends request `id`, which has failed. It may have had any part of its effect, and may still have it until its
    /// host has written the blocks again.
    pub fn fail(&mut self, id: u64) {
        let tick = self.tick();
        self.unsaved.insert(id, Unsaved { failed: tick, started: None });
        if let Some((_, PendingRequest::Write(BlockChange { lbas, .. }))) = self.pending.remove(&id)
        {
            for lba in lbas {
                let register = &mut self.registers[lba as usize];
                let candidates = register.current.iter_mut().chain(&mut register.stable);
                candidates.filter(|c| c.write == id).for_each(|c| c.failed = Some(tick));
            }
        }
    }

    /// Checks the content of a block on the disk, when no request is in flight any more.
    ///
    /// # Errors
    /// The content is impossible.
    pub fn judge(&self, lba: u64, stamp: BlockStamp) -> Result<(), String> {
        let current = &self.registers[lba as usize].current;
        let stamps: Vec<BlockStamp> = current.iter().map(|candidate| candidate.stamp).collect();
        // The content under a mark does not matter.
        if stamps.contains(&stamp) || stamps.contains(&MARK) {
            return Ok(());
        }
        Err(format!("block {lba} has {stamp:#x} at the end, which is none of {stamps:x?}"))
    }

    /// Ends request `id`, a mark that has failed. It has taken effect, or does when the target starts again, but not on
    /// later writes.
    pub fn fail_mark(&mut self, id: u64) {
        let tick = self.tick();
        self.pending.remove(&id);
        self.unsaved.insert(id, Unsaved { failed: tick, started: None });
        for register in &mut self.registers {
            let candidates = register.current.iter_mut().chain(&mut register.stable);
            candidates.filter(|c| c.write == id).for_each(|c| c.ended = Some(tick));
        }
    }

    /// Ends request `id`, a read that has reported a marked block.
    ///
    /// # Errors
    /// No block can be marked.
    pub fn unreadable(&mut self, id: u64) -> Result<(), String> {
        self.tick();
        let Some((began, PendingRequest::Read { lbas, allowed, .. })) = self.pending.remove(&id)
        else {
            return Err("it is no read, or has ended".into());
        };
        let may_be = |(_, allowed): &(u64, Vec<BlockStamp>)| allowed.contains(&MARK);
        let marked: Vec<u64> =
            lbas.clone().zip(allowed).filter(may_be).map(|(lba, _)| lba).collect();
        match marked[..] {
            [] => return Err(format!("blocks {lbas:?} cannot be read, and none was marked")),
            [lba] if self.lost_power_at <= began => {
                self.show(lba, MARK, began);
            }
            _ => {}
        }
        Ok(())
    }

    /// Applies the result of a read that began at `began`: the block has `stamp`.
    fn show(&mut self, lba: u64, stamp: BlockStamp, began: Tick) {
        let (changes, unsaved) = (&self.changes, &self.unsaved);
        let leaves_marks =
            |c: &BlockCandidate| changes.get(&c.write).is_some_and(|change| change.1);
        let BlockRegister { current, clears, .. } = &mut self.registers[lba as usize];
        // Begin of the first write that a start may find to have cleared the mark.
        let is_undecided =
            |id: &&u64| unsaved.get(id).is_none_or(|unsaved| unsaved.is_undecided(began));
        let undecided = clears.iter().filter(is_undecided).filter_map(|id| changes.get(id));
        let cleared = undecided.map(|change| change.0).min().filter(|_| stamp == MARK);
        let is_under_mark = |c: &BlockCandidate| {
            leaves_marks(c) && cleared.is_some_and(|cleared| c.may_follow(cleared))
        };
        let depends_on_start = |c: &BlockCandidate| {
            let is_undecided = unsaved.get(&c.write).is_some_and(|u| u.is_undecided(began));
            is_undecided && (c.stamp == MARK) != (stamp == MARK) && !leaves_marks(c)
        };
        current.retain(|c| {
            c.stamp == stamp || c.may_follow(began) || depends_on_start(c) || is_under_mark(c)
        });
    }

    /// Notes a start of the target: the effect of failed commands on marks is decided.
    pub fn start_target(&mut self) {
        let tick = self.tick();
        for unsaved in self.unsaved.values_mut() {
            unsaved.started.get_or_insert(tick);
        }
    }

    /// Notes that the host of request `id` was killed: it may take effect until [`History::succeed`], and not later.
    pub fn orphan(&mut self, id: u64) {
        if let Some(&host) = self.hosts.get(&id) {
            self.orphans.entry(host).or_default().push(id);
        }
        self.tick();
        self.pending.remove(&id);
    }

    /// Notes the end of a process of `host`: the next one knows nothing of its writes.
    pub fn end_process(&mut self, host: u8) {
        self.unflushed.remove(&host);
        self.unreported.remove(&host);
        self.paths.forget(host);
    }

    /// Notes that a new process of `host` is connected: earlier writes have taken effect, or never will.
    pub fn succeed(&mut self, host: u8) {
        let tick = self.tick();
        let Some(orphans) = self.orphans.remove(&host) else { return };
        let unsaved = Unsaved { failed: tick, started: None };
        self.unsaved.extend(orphans.iter().map(|&id| (id, unsaved)));
        for register in &mut self.registers {
            for candidate in register.current.iter_mut().chain(&mut register.stable) {
                if orphans.contains(&candidate.write) {
                    candidate.ended = Some(tick);
                }
            }
        }
    }

    /// True if the bytes of a block that request `id` has read are a mixture of contents that it may show.
    #[must_use]
    pub fn is_mixture(&self, id: u64, lba: u64, bytes: &[u8]) -> bool {
        let Some((_, PendingRequest::Read { lbas, allowed, .. })) = self.pending.get(&id) else {
            return false;
        };
        let Some(allowed) = allowed.get((lba - lbas.start) as usize) else { return false };
        let blocks: Vec<_> = allowed.iter().map(|stamp| block(*stamp, lba)).collect();
        let is_of_one = |(at, byte): (usize, &u8)| blocks.iter().any(|block| block[at] == *byte);
        bytes.iter().enumerate().all(is_of_one)
    }

    /// Ends request `id` with success; `read` is the content that a read has returned.
    ///
    /// # Errors
    /// The result is impossible.
    pub fn end(&mut self, id: u64, read: &[BlockStamp]) -> Result<(), String> {
        let tick = self.tick();
        let (began, pending) =
            self.pending.remove(&id).ok_or("it was never begun, or has ended")?;
        let lost_power = self.lost_power_at > began;
        if matches!(pending, PendingRequest::Flush { .. }) {
            self.end_flush(id, began)?;
        }
        match pending {
            PendingRequest::Write(change) => {
                self.end_write(id, change, (began, tick), lost_power)?
            }
            PendingRequest::Flush { before } if !lost_power => {
                let alone = !self.loses || !self.has_other_flush(id);
                for (lba, before) in before.into_iter().enumerate() {
                    if alone && before.iter().all(|candidate| self.covers(id, candidate)) {
                        self.settle(id, lba, &before);
                    }
                }
            }
            // The response may be older than the power loss, or of a retry.
            PendingRequest::Flush { .. } => {}
            PendingRequest::Read { lbas, allowed, before } => {
                // A read reports no failure but its own.
                if !lost_power && !self.loses {
                    let blocks = (lbas.start as usize..).zip(before);
                    blocks.for_each(|(lba, before)| self.settle(id, lba, &before));
                }
                for ((lba, allowed), &stamp) in lbas.zip(allowed).zip(read) {
                    if stamp == MIXTURE {
                        continue;
                    }
                    if !allowed.contains(&stamp) {
                        return Err(format!(
                            "block {lba} shows {stamp:#x}, which is none of {allowed:x?}"
                        ));
                    }
                    if !lost_power {
                        self.show(lba, stamp, began);
                    }
                }
            }
        }
        Ok(())
    }

    /// Notes that the possible contents of the block at the begin of request `id` are stable.
    fn settle(&mut self, id: u64, lba: usize, before: &[BlockCandidate]) {
        let is_before = |write| before.iter().any(|other| other.write == write);
        self.registers[lba].stable.retain(|c| is_before(c.write) || c.write > id);
    }

    fn end_write(
        &mut self,
        id: u64,
        BlockChange { lbas, fua, leaves_marks, expects }: BlockChange,
        (began, now): (Tick, Tick),
        lost_power: bool,
    ) -> Result<(), String> {
        if let Some(&host) = self.hosts.get(&id).filter(|_| !fua) {
            self.unflushed.insert(host, now);
        }
        let own = self.hosts.get(&id);
        let is_over = |c: &BlockCandidate| {
            c.failed.is_some_and(|failed| failed < began) && self.hosts.get(&c.write) == own
        };
        for lba in lbas.clone() {
            let register = &mut self.registers[lba as usize];
            for candidate in register.current.iter_mut().chain(&mut register.stable) {
                if candidate.write == id {
                    (candidate.ended, candidate.is_done) = (Some(now), true);
                    candidate.found = expects;
                }
            }
            let is_left = |c: &BlockCandidate| leaves_marks && c.stamp == MARK;
            let stays = |c: &BlockCandidate| {
                c.write == id || c.may_follow(began) && !is_over(c) || is_left(c)
            };
            if fua {
                register.stable.retain(stays);
            }
            if fua || !lost_power {
                register.current.retain(stays);
            }
            if !leaves_marks {
                // Its own change of the marks is saved, and with it those of earlier writes.
                let unsaved = &self.unsaved;
                let is_later = |other: &u64| unsaved.get(other).is_none_or(|u| u.failed > began);
                register.clears.retain(|other| *other != id && is_later(other));
            }
        }
        match fua || !lost_power {
            true => lbas.into_iter().try_for_each(|lba| self.order_swaps(id, lba, began, expects)),
            false => Ok(()),
        }
    }

    /// Orders write `id`, which began at `began` and has succeeded. A Compare and Write was executed before every write
    /// that began after the acknowledgement of the content that it found.
    ///
    /// # Errors
    /// Two have found the same content.
    fn order_swaps(
        &mut self,
        id: u64,
        lba: u64,
        began: Tick,
        expects: Option<Tick>,
    ) -> Result<(), String> {
        let (changes, lost_power_at) = (&self.changes, self.lost_power_at);
        // After a power loss the found content may be older than that of lost writes.
        let is_kept = |found: &Tick| lost_power_at < *found;
        let current = &mut self.registers[lba as usize].current;
        let found = expects.filter(is_kept);
        if found.is_some() && current.iter().any(|c| c.write != id && c.found == found) {
            return Err(format!("block {lba}: two Compare and Write have found the same content"));
        }
        let is_ahead =
            |c: &BlockCandidate| c.found.filter(is_kept).is_some_and(|found| found < began);
        current.retain(|c| c.write == id || !is_ahead(c));
        let began_after = |c: &BlockCandidate, found: Tick| {
            c.is_done && changes.get(&c.write).is_some_and(|(began, _)| *began > found)
        };
        let is_behind = |found| current.iter().any(|c| c.write != id && began_after(c, found));
        if found.is_some_and(is_behind) {
            current.retain(|c| c.write != id);
        }
        Ok(())
    }

    /// Notes a power loss: each block has any content that may have been stable.
    pub fn lose_power(&mut self) {
        self.lost_power_at = self.tick();
        // Two losses are not judged for a host if one of its paths missed the first.
        self.unreported.retain(|host, _| !self.paths.is_unaware(*host));
        self.paths.unaware.clone_from(&self.paths.live);
        self.unreported.append(&mut self.unflushed);
        for register in &mut self.registers {
            register.current.clone_from(&register.stable);
        }
        for (_, pending) in self.pending.values_mut() {
            if let PendingRequest::Read { lbas, allowed, .. } = pending {
                for (lba, allowed) in lbas.clone().zip(allowed) {
                    allowed.extend(self.registers[lba as usize].stable.iter().map(|c| c.stamp));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
