//! The load: random requests, and their records until they complete.

use crate::counting::CountingJobs;
use crate::disk::{BLOCK_BYTES, BlockStamp, block, stamp_of};
use crate::history::{History, MARK, MIXTURE};
use crate::request::LoadRequest;
use crate::rng::SimRng;
use crate::tenures::{TenureRequestKind, Tenures};
use roadtrain_host_proto::bringup::NamespaceInfo;
use roadtrain_host_proto::qpair::CommandTransfer;
use roadtrain_proto::policy::{Class, Urgency};
use roadtrain_target_proto::NamespaceId;
use roadtrain_wire::sqe::{Sqe, cdw12, opcode};
use roadtrain_wire::status::Status;
use std::collections::BTreeMap;
use std::ops::Range;

/// Number of stores that the namespace 2 may have, counted from 1.
pub const STORES: u8 = 3;
/// Percentage of requests to counters, where there are some.
const COUNTING_PERCENT: u64 = 50;
/// Percentage of requests of hosts that take the namespace from one another.
const TENURES_PERCENT: u64 = 50;
/// Permitted failures of a request: no connection, the disk, or changed bits or no response in every attempt.
const FAILURES: [Status; 5] = [
    Status::HOST_PATH_ERROR,
    Status::INTERNAL_ERROR,
    Status::TRANSIENT_TRANSPORT_ERROR,
    Status::HOST_ABORTED,
    Status::ABORT_REQUESTED,
];

#[derive(Clone, Debug)]
enum LoadRequestKind {
    Read {
        lbas: Range<u64>,
        fua: bool,
    },
    /// Write, zero or discard.
    Write {
        fua: bool,
    },
    /// Compare and Write.
    Swap {
        fua: bool,
    },
    /// Write Uncorrectable.
    Mark,
    Flush,
    /// Request of a job of [`CountingJobs`].
    Counting {
        /// Number of the job.
        job: usize,
    },
    /// Request of a host that takes the namespace from others.
    Tenure {
        /// Kind of the request.
        what: TenureRequestKind,
    },
    /// Read of the namespace that changes: any valid response is correct, except another namespace's data.
    ChangingNamespace {
        /// Store that the request means, if its host has seen one.
        meant: Option<u8>,
    },
}

roadtrain_proto::counters! {
    /// Outcomes of requests.
    pub struct LoadTally {
        /// Submitted requests.
        submitted,
        /// Successful requests.
        succeeded,
        /// Failed requests.
        failed,
        /// Completions with a status that permits another attempt.
        repeated,
        /// Flushes that have failed for good.
        lost,
        /// Reads of blocks that are marked.
        unreadable,
        /// Compare and Write that have replaced the expected content.
        swapped,
        /// Compare and Write that have found other content.
        refused,
    }
}

/// The load and its checker.
pub struct SimLoad {
    blocks: u64,
    rng: SimRng,
    /// Requests that have not completed, with their hosts.
    open: BTreeMap<u64, (u8, LoadRequestKind)>,
    /// By host: store of the namespace that changes, when the host first saw it.
    pinned: BTreeMap<u8, u8>,
    /// Jobs that count.
    pub counting: CountingJobs,
    /// Hosts that take the namespace from others.
    pub tenures: Tenures,
    /// True if writes have classes as well, with express connections.
    pub classes: bool,
    /// Percentage of requests that mark blocks.
    pub marks_percent: u64,
    /// Percentage of requests that replace a block by Compare and Write.
    pub swaps_percent: u64,
    /// True if reads may show mixtures with concurrent writes.
    pub may_mix: bool,
    /// Checker of reads.
    pub history: History,
    /// Counters.
    pub tally: LoadTally,
}

impl SimLoad {
    /// Makes a load on a namespace of so many blocks, which counters may follow.
    #[must_use]
    pub fn new(blocks: u64, counting: CountingJobs, rng: SimRng) -> Self {
        let history = History::new(blocks);
        let (open, pinned, tally) = (BTreeMap::new(), BTreeMap::new(), LoadTally::default());
        let (tenures, classes, marks_percent, swaps_percent) = (Tenures::default(), false, 0, 0);
        SimLoad {
            blocks,
            rng,
            open,
            pinned,
            counting,
            tenures,
            classes,
            marks_percent,
            swaps_percent,
            may_mix: false,
            history,
            tally,
        }
    }

    /// Returns the number of requests that have not completed.
    #[must_use]
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// Returns the number of requests of `host` that have not completed.
    #[must_use]
    pub fn open_of(&self, host: u8) -> usize {
        self.open.values().filter(|(of, _)| *of == host).count()
    }

    /// Returns the next request of `host`.
    pub fn request(&mut self, host: u8) -> LoadRequest {
        self.tally.submitted += 1;
        let token = self.tally.submitted;
        if self.counting.is_used()
            && self.rng.chance(COUNTING_PERCENT)
            && let Some((job, request)) = self.counting.request(host, &mut self.rng, token)
        {
            self.history.belongs(token, host);
            self.open.insert(token, (host, LoadRequestKind::Counting { job }));
            return request;
        }
        if self.tenures.is_used()
            && self.rng.chance(TENURES_PERCENT)
            && let Some((what, request)) = self.tenures.request(host, &mut self.rng, token)
        {
            self.history.belongs(token, host);
            self.open.insert(token, (host, LoadRequestKind::Tenure { what }));
            return request;
        }
        self.history.belongs(token, host);
        if self.marks_percent > 0 && self.rng.chance(self.marks_percent) {
            self.open.insert(token, (host, LoadRequestKind::Mark));
            return self.mark(token);
        }
        if self.swaps_percent > 0
            && self.rng.chance(self.swaps_percent)
            && let Some((kind, request)) = self.swap(token)
        {
            self.open.insert(token, (host, kind));
            return request;
        }
        let (kind, mut request) = match self.rng.below(100) {
            0..40 => self.read(token),
            40..80 => self.write(token),
            80..85 => self.zeroes(token),
            85..90 => self.discard(token),
            90..97 => {
                self.history.begin_flush(token);
                let sqe = Sqe::new(opcode::FLUSH, 1);
                (
                    LoadRequestKind::Flush,
                    request(token, sqe, CommandTransfer::None, Vec::new(), Urgency::Urgent),
                )
            }
            _ => {
                let sqe = Sqe::rw(opcode::READ, 2, 0, 1);
                (
                    LoadRequestKind::ChangingNamespace { meant: self.pinned.get(&host).copied() },
                    request(token, sqe, CommandTransfer::In(512), vec![0; 512], Urgency::Normal),
                )
            }
        };
        if self.rng.chance(3) {
            request.urgency = Urgency::Urgent;
        }
        let has_class = match request.sqe.opcode {
            opcode::READ => matches!(kind, LoadRequestKind::Read { .. }),
            opcode::WRITE => self.classes,
            _ => false,
        };
        if has_class && self.rng.chance(20) {
            let class = if self.rng.chance(50) { Class::Latency } else { Class::Bulk };
            request.sqe.cdw13 = class.to_dsm().into();
            request.urgency = class.urgency();
        }
        self.open.insert(token, (host, kind));
        request
    }

    /// Notes the namespaces that a host sees; requests mean the store that it saw first under the NSID that changes.
    pub fn sees(&mut self, host: u8, namespaces: &[NamespaceInfo]) {
        let Some(namespace) = namespaces.iter().find(|namespace| namespace.nsid == 2) else {
            return;
        };
        let is_it = |store: &u8| NamespaceId::of_store((*store).into()).nguid == namespace.nguid;
        if let Some(store) = (1..=STORES).find(is_it) {
            self.pinned.entry(host).or_insert(store);
        }
    }

    /// Notes the end of a process of `host`: the next one does not know what it has seen and written.
    pub fn end_process(&mut self, host: u8) {
        self.pinned.remove(&host);
        self.history.end_process(host);
    }

    /// Notes that the process of `host` was killed, with all its requests.
    pub fn kill(&mut self, host: u8) {
        let open = self.open.iter().filter(|(_, (of, _))| *of == host);
        let tokens: Vec<u64> = open.map(|(&token, _)| token).collect();
        self.end_process(host);
        self.counting.kill(host);
        self.tenures.kill(host);
        for token in tokens {
            self.open.remove(&token);
            self.tally.failed += 1;
            self.history.orphan(token);
        }
    }

    fn lbas(&mut self) -> Range<u64> {
        let most = self.blocks.min(40);
        let blocks = if self.rng.chance(60) { 1 } else { self.rng.between(1, most) };
        let slba = self.rng.below(self.blocks - blocks + 1);
        slba..slba + blocks
    }

    fn read(&mut self, token: u64) -> (LoadRequestKind, LoadRequest) {
        let (lbas, fua) = (self.lbas(), self.rng.chance(10));
        self.history.begin_read(token, lbas.clone(), fua);
        let blocks = lbas.end - lbas.start;
        let mut sqe = Sqe::rw(opcode::READ, 1, lbas.start, blocks as u32);
        force(&mut sqe, fua);
        let buffer = vec![0xee; blocks as usize * BLOCK_BYTES];
        let data = CommandTransfer::In(buffer.len() as u32);
        (LoadRequestKind::Read { lbas, fua }, request(token, sqe, data, buffer, Urgency::Normal))
    }

    /// Begins a write, with its token as stamp.
    fn write(&mut self, token: u64) -> (LoadRequestKind, LoadRequest) {
        let (lbas, fua) = (self.lbas(), self.rng.chance(10));
        self.history.begin_write(token, lbas.clone(), token, fua);
        let mut sqe = Sqe::rw(opcode::WRITE, 1, lbas.start, (lbas.end - lbas.start) as u32);
        force(&mut sqe, fua);
        let buffer: Vec<u8> = lbas.flat_map(|lba| block(token, lba)).collect();
        let data = CommandTransfer::Out(buffer.len() as u32);
        let urgency = if fua { Urgency::Urgent } else { Urgency::Normal };
        (LoadRequestKind::Write { fua }, request(token, sqe, data, buffer, urgency))
    }

    /// Replaces a block, if there is one with content that can be expected.
    fn swap(&mut self, token: u64) -> Option<(LoadRequestKind, LoadRequest)> {
        let (lba, fua) = (self.rng.below(self.blocks), self.rng.chance(10));
        let contents = self.history.contents(lba);
        let at = self.rng.below(contents.len().max(1) as u64) as usize;
        let (expected, since) = *contents.get(at)?;
        self.history.begin_swap(token, lba, token, (fua, since));
        let mut sqe = Sqe::rw(opcode::WRITE, 1, lba, 1);
        let compare = Some(Sqe { opcode: opcode::COMPARE, ..sqe });
        force(&mut sqe, fua);
        let buffer = [block(expected, lba), block(token, lba)].concat();
        let data = CommandTransfer::Out(BLOCK_BYTES as u32);
        let swap = request(token, sqe, data, buffer, Urgency::Urgent);
        Some((LoadRequestKind::Swap { fua }, LoadRequest { compare, ..swap }))
    }

    fn zeroes(&mut self, token: u64) -> (LoadRequestKind, LoadRequest) {
        let (lbas, fua) = (self.lbas(), self.rng.chance(20));
        self.history.begin_write(token, lbas.clone(), 0, fua);
        let mut sqe = Sqe::rw(opcode::WRITE_ZEROES, 1, lbas.start, (lbas.end - lbas.start) as u32);
        force(&mut sqe, fua);
        (
            LoadRequestKind::Write { fua },
            request(token, sqe, CommandTransfer::None, Vec::new(), Urgency::Urgent),
        )
    }

    fn mark(&mut self, token: u64) -> LoadRequest {
        let lbas = self.lbas();
        self.history.begin_write(token, lbas.clone(), MARK, true);
        let blocks = (lbas.end - lbas.start) as u32;
        let sqe = Sqe::rw(opcode::WRITE_UNCORRECTABLE, 1, lbas.start, blocks);
        request(token, sqe, CommandTransfer::None, Vec::new(), Urgency::Urgent)
    }

    fn discard(&mut self, token: u64) -> (LoadRequestKind, LoadRequest) {
        let lbas = self.lbas();
        self.history.begin_discard(token, lbas.clone());
        // Splits the range in two, of which the first may be empty.
        let middle = self.rng.between(lbas.start, lbas.end - 1);
        let range = |lbas: Range<u64>| {
            let blocks = (lbas.end - lbas.start) as u32;
            [&[0; 4][..], &blocks.to_le_bytes(), &lbas.start.to_le_bytes()].concat()
        };
        let ranges = [range(lbas.start..middle), range(middle..lbas.end)].concat();
        let mut sqe = Sqe::new(opcode::DATASET_MANAGEMENT, 1);
        (sqe.cdw10, sqe.cdw11) = (1.into(), 4.into());
        let data = CommandTransfer::Out(ranges.len() as u32);
        (LoadRequestKind::Write { fua: false }, request(token, sqe, data, ranges, Urgency::Urgent))
    }

    /// Checks the final contents of the disk.
    ///
    /// # Errors
    /// A block has impossible content.
    pub fn judge(&self, content: impl Fn(u64) -> Vec<u8>) -> Result<(), String> {
        for lba in 0..self.blocks {
            let stamp = stamp_of(&content(lba), lba).ok_or("a block is torn or strange")?;
            self.history.judge(lba, stamp)?;
        }
        Ok(())
    }

    /// Completes a request.
    ///
    /// # Errors
    /// It has completed before, or its result is impossible.
    pub fn complete(&mut self, token: u64, status: Status, buffer: &[u8]) -> Result<(), String> {
        let (host, kind) = self.open.remove(&token).ok_or("completed twice")?;
        let count =
            if status.is_success() { &mut self.tally.succeeded } else { &mut self.tally.failed };
        *count += 1;
        match kind {
            LoadRequestKind::ChangingNamespace { meant } if status.is_success() => {
                match (meant, buffer.first()) {
                    (Some(meant), Some(&store)) if meant != store => {
                        Err(format!("a read meant namespace {meant} and shows namespace {store}"))
                    }
                    _ => Ok(()),
                }
            }
            LoadRequestKind::ChangingNamespace { .. } => {
                if status.is(Status::INVALID_NAMESPACE) || FAILURES.iter().any(|&s| status.is(s)) {
                    Ok(())
                } else {
                    Err(format!("namespace 2 answers {status}"))
                }
            }
            LoadRequestKind::Counting { job } => {
                let is_known = status.is_success() || status.is(Status::COMPARE_FAILURE);
                match is_known || FAILURES.iter().any(|&s| status.is(s)) {
                    true => self.counting.complete(job, status, buffer),
                    false => Err(format!("a counter answers {status}")),
                }
            }
            LoadRequestKind::Tenure { what } => {
                self.tenures.complete(host, what, status);
                let is_known = status.is_success() || status.is(Status::RESERVATION_CONFLICT);
                match is_known || FAILURES.iter().any(|&s| status.is(s)) {
                    true => Ok(()),
                    false => Err(format!("who takes the namespace is answered {status}")),
                }
            }
            // The outcome of an earlier attempt is unknown.
            _ if self.tenures.is_used() && status.is(Status::RESERVATION_CONFLICT) => {
                self.history.fail(token);
                Ok(())
            }
            LoadRequestKind::Flush if status.is(Status::WRITE_FAULT) && status.is_dnr() => {
                self.tally.lost += 1;
                self.history.lose(token)
            }
            LoadRequestKind::Read { .. } if status.is(Status::UNRECOVERED_READ_ERROR) => {
                self.tally.unreadable += 1;
                self.history.unreadable(token)
            }
            LoadRequestKind::Mark if status.is(Status::INTERNAL_ERROR) => {
                self.history.fail_mark(token);
                Ok(())
            }
            LoadRequestKind::Swap { .. } if status.is(Status::COMPARE_FAILURE) => {
                self.tally.refused += 1;
                self.history.refuse(token);
                Ok(())
            }
            _ if !status.is_success() => self.fail(token, &kind, status),
            LoadRequestKind::Swap { .. } => {
                self.tally.swapped += 1;
                self.history.end(token, &[])
            }
            LoadRequestKind::Read { lbas, .. } => self.end_read(token, lbas, buffer),
            LoadRequestKind::Write { .. } | LoadRequestKind::Mark | LoadRequestKind::Flush => {
                self.history.end(token, &[])
            }
        }
    }
}

impl SimLoad {
    fn end_read(&mut self, token: u64, lbas: Range<u64>, data: &[u8]) -> Result<(), String> {
        let blocks = data.chunks_exact(BLOCK_BYTES);
        let mixture = |lba, block: &[u8]| {
            let is_one = self.may_mix && self.history.is_mixture(token, lba, block);
            is_one.then_some(MIXTURE)
        };
        let stamp = |(lba, block)| stamp_of(block, lba).or_else(|| mixture(lba, block));
        let stamps: Option<Vec<BlockStamp>> = lbas.zip(blocks).map(stamp).collect();
        self.history.end(token, &stamps.ok_or("a block is torn or strange")?)
    }

    /// Fails a request with a permitted status.
    fn fail(&mut self, token: u64, kind: &LoadRequestKind, status: Status) -> Result<(), String> {
        self.history.fail(token);
        // The flush of the command itself has failed.
        let is_forced = matches!(
            kind,
            LoadRequestKind::Read { fua: true, .. }
                | LoadRequestKind::Write { fua: true }
                | LoadRequestKind::Swap { fua: true }
        );
        let is_due = is_forced && status.is(Status::WRITE_FAULT);
        match is_due || FAILURES.iter().any(|&s| status.is(s)) {
            true => Ok(()),
            false => Err(format!("failed with {status}")),
        }
    }
}

/// Sets Force Unit Access.
fn force(sqe: &mut Sqe, fua: bool) {
    if fua {
        sqe.cdw12 = (sqe.cdw12.get() | cdw12::FUA).into();
    }
}

fn request(
    token: u64,
    sqe: Sqe,
    data: CommandTransfer,
    buffer: Vec<u8>,
    urgency: Urgency,
) -> LoadRequest {
    let (compare, hides_blocks) = (None, false);
    LoadRequest { token, sqe, compare, data, buffer, urgency, hides_blocks }
}
