//! A lane's requests with their data buffers, while `host_proto::requests` decides about the requests themselves.

use super::api::{IoCompletion, IoOp, IoRequest};
use super::commands::{CommandEnd, EndedLinkCommand, LinkCommands};
use super::ether::CommandDataSource;
use roadtrain_host_proto::express::RequestTraffic;
use roadtrain_host_proto::old_commands::BlockRange;
use roadtrain_host_proto::qpair::CommandTransfer;
use roadtrain_host_proto::requests::{
    EndedRequest, RequestOutcome, RequestProperties, RequestQueue, RequestTable,
};
use roadtrain_host_proto::write_verifier::Durability;
use roadtrain_proto::policy::Urgency;
use roadtrain_proto::time::Instant;
use roadtrain_reactor::connection::PayloadDestination;
use roadtrain_wire::sqe::{Sqe, cdw12, opcode};
use std::collections::VecDeque;
use std::time::Duration;
use tracing::warn;

/// Bytes of a Dataset Management range.
const RANGE_BYTES: usize = 16;

/// All requests of a lane.
pub(crate) struct LaneRequests {
    pub(super) core: RequestTable<IoRequest>,
    /// Dataset Management ranges by slot: they must not move while they are sent.
    ranges: Box<[[u8; RANGE_BYTES]]>,
    /// Completions whose data is still in a blocked caravan.
    deferred: Vec<IoCompletion>,
}

/// Link, and the ranges of its commands.
struct LinkQueue<'a, L> {
    link: &'a mut L,
    ranges: &'a mut [[u8; RANGE_BYTES]],
}

impl IoRequest {
    /// Returns the bytes of its data.
    #[inline]
    pub(super) fn bytes(&self) -> u32 {
        self.buffer.as_ref().map_or(0, |buffer| buffer.len() as u32)
    }
}

impl RequestProperties for IoRequest {
    #[inline]
    fn nsid(&self) -> u32 {
        self.nsid
    }

    #[inline]
    fn traffic(&self) -> RequestTraffic {
        RequestTraffic::of(self.class, self.bytes())
    }

    fn may_repeat(&self) -> bool {
        self.op != IoOp::CompareAndWrite
    }

    fn has_effect(&self) -> bool {
        !matches!(self.op, IoOp::Read | IoOp::Compare | IoOp::Verify | IoOp::Flush)
    }

    fn changes(&self) -> BlockRange {
        match self.op {
            // The source ranges in its list determine the number of blocks.
            IoOp::Copy => BlockRange { first: self.slba, ..BlockRange::all(self.nsid) },
            _ => BlockRange { nsid: self.nsid, first: self.slba, count: self.blocks.into() },
        }
    }

    #[inline]
    fn durability(&self) -> Durability {
        match self.op {
            IoOp::Read | IoOp::Compare | IoOp::Verify => Durability::Unchanged,
            IoOp::Flush => Durability::Flush,
            _ if self.fua => Durability::Unchanged,
            _ => Durability::NeedsFlush,
        }
    }
}

impl<L: RequestQueue<IoRequest>> RequestQueue<IoRequest> for LinkQueue<'_, L> {
    #[inline]
    fn room(&self) -> u32 {
        self.link.room()
    }

    #[inline]
    fn in_flight(&self) -> u32 {
        self.link.in_flight()
    }

    #[inline]
    fn submit(&mut self, now: Instant, request: &mut IoRequest) -> Option<u16> {
        let slot = self.link.submit(now, request)?;
        if request.op == IoOp::Discard {
            self.ranges[usize::from(slot)] = range(request);
        }
        Some(slot)
    }
}

impl LaneRequests {
    /// Creates an empty set for a queue of `queue_entries`.
    pub(super) fn new(queue_entries: u16, timeout: Option<Duration>) -> Self {
        LaneRequests {
            core: RequestTable::new(queue_entries, timeout),
            ranges: vec![[0; RANGE_BYTES]; queue_entries.into()].into_boxed_slice(),
            deferred: Vec::new(),
        }
    }

    /// Takes a request. True if its command is in flight.
    #[inline]
    pub(super) fn take(
        &mut self,
        now: Instant,
        request: IoRequest,
        link: Option<&mut impl RequestQueue<IoRequest>>,
    ) -> bool {
        let LaneRequests { core, ranges, .. } = self;
        core.take(now, request, link.map(|link| LinkQueue { link, ranges }).as_mut())
    }

    /// Submits waiting requests.
    #[inline]
    pub(super) fn resume(&mut self, now: Instant, link: &mut impl RequestQueue<IoRequest>) {
        self.core.resume(now, &mut LinkQueue { link, ranges: &mut self.ranges });
    }

    /// Returns the entries of its queue.
    pub(super) fn entries(&self) -> u16 {
        self.ranges.len() as u16
    }

    /// Takes over the requests of another connection of the lane; both are closed.
    pub(super) fn absorb(&mut self, mut other: LaneRequests) {
        debug_assert!(other.deferred.is_empty(), "they have been taken");
        self.core.absorb(&mut other.core);
    }

    /// Takes completions that waited for their caravan, and those of failed requests. No data of this lane may be in
    /// the send buffer.
    pub(super) fn take_held_back(&mut self, now: Instant) -> impl Iterator<Item = IoCompletion> {
        let failed = std::iter::from_fn(|| self.core.next_failed());
        self.deferred.drain(..).chain(failed.map(move |ended| completion(now, ended)))
    }
}

impl CommandDataSource for LaneRequests {
    fn data(&self, slot: u16, offset: u32, length: u32) -> Option<&[u8]> {
        let request = self.core.get(slot)?;
        let data: &[u8] = match &request.buffer {
            Some(buffer) => buffer,
            None => &self.ranges[usize::from(slot)],
        };
        Some(&data[offset as usize..][..length as usize])
    }
}

impl LinkCommands for LaneRequests {
    fn place(&mut self, slot: u16, offset: u32, length: u32) -> Option<PayloadDestination> {
        let buffer = self.core.get_mut(slot)?.buffer.as_mut()?;
        let rest = &mut buffer[offset as usize..][..length as usize];
        Some(PayloadDestination { data: rest.as_mut_ptr(), length: rest.len() })
    }

    fn fill(&mut self, slot: u16, offset: u32, data: &[u8]) {
        if let Some(buffer) = self.core.get_mut(slot).and_then(|request| request.buffer.as_mut()) {
            buffer[offset as usize..][..data.len()].copy_from_slice(data);
        }
    }

    /// Completes its request now, or keeps it for a retry or for its caravan.
    fn end(
        &mut self,
        slot: u16,
        end: &CommandEnd,
        now: Instant,
        completions: &mut VecDeque<IoCompletion>,
    ) -> Option<EndedLinkCommand> {
        let request = self.core.get(slot)?;
        let bytes = request.buffer.as_ref().map_or(0, |buffer| buffer.len() as u64);
        let sends =
            matches!(request.op, IoOp::Write | IoOp::Compare | IoOp::CompareAndWrite | IoOp::Copy);
        let status = end.cqe.status();
        let completion = match self.core.end(now, slot, status, end.data_intact) {
            Some(RequestOutcome::Ended(ended)) => completion(now, ended),
            Some(RequestOutcome::Rests { nsid, is_first }) => {
                match status.is_success() {
                    _ if !is_first => {}
                    true => warn!(nsid, "success, but not all data has moved: trying again"),
                    false => warn!(nsid, "{status}: trying again"),
                }
                return Some(EndedLinkCommand { bytes, latency_ns: 0 });
            }
            None => return None,
        };
        let latency_ns = completion.latency_ns;
        if end.blocked && sends {
            self.deferred.push(completion);
        } else {
            completions.push_back(completion);
        }
        Some(EndedLinkCommand { bytes, latency_ns })
    }
}

/// Returns the completion of an ended request.
fn completion(now: Instant, ended: EndedRequest<IoRequest>) -> IoCompletion {
    let EndedRequest { request, status, since } = ended;
    let latency_ns = now.0.saturating_sub(since.0);
    let IoRequest { token, op, buffer, .. } = request;
    IoCompletion { token, op, status, buffer, latency_ns }
}

/// Returns a Dataset Management range: context attributes, length in blocks, starting LBA.
fn range(request: &IoRequest) -> [u8; RANGE_BYTES] {
    let mut range = [0; RANGE_BYTES];
    range[4..8].copy_from_slice(&request.blocks.to_le_bytes());
    range[8..].copy_from_slice(&request.slba.to_le_bytes());
    range
}

#[inline]
pub(super) fn command(request: &IoRequest) -> (Sqe, CommandTransfer) {
    let length = request.bytes();
    let rw = |opcode| Sqe::rw(opcode, request.nsid, request.slba, request.blocks);
    let (mut sqe, data) = match request.op {
        IoOp::Read => (rw(opcode::READ), CommandTransfer::In(length)),
        IoOp::Write => (rw(opcode::WRITE), CommandTransfer::Out(length)),
        IoOp::Compare => (rw(opcode::COMPARE), CommandTransfer::Out(length)),
        // Its second command: see `compare_of`.
        IoOp::CompareAndWrite => (rw(opcode::WRITE), CommandTransfer::Out(length / 2)),
        IoOp::Verify => (rw(opcode::VERIFY), CommandTransfer::None),
        IoOp::WriteUncorrectable => (rw(opcode::WRITE_UNCORRECTABLE), CommandTransfer::None),
        IoOp::Copy => {
            let mut sqe = Sqe::new(opcode::COPY, request.nsid);
            sqe.set_slba(request.slba);
            sqe.cdw12 = (request.blocks.wrapping_sub(1) & 0xff).into();
            (sqe, CommandTransfer::Out(length))
        }
        IoOp::Flush => (Sqe::new(opcode::FLUSH, request.nsid), CommandTransfer::None),
        IoOp::WriteZeroes { deallocate } => {
            let mut sqe = rw(opcode::WRITE_ZEROES);
            if deallocate {
                sqe.cdw12 = (sqe.cdw12.get() | cdw12::DEAC).into();
            }
            (sqe, CommandTransfer::None)
        }
        IoOp::Discard => {
            let mut sqe = Sqe::new(opcode::DATASET_MANAGEMENT, request.nsid);
            sqe.cdw11 = 4.into(); // deallocate one range
            (sqe, CommandTransfer::Out(RANGE_BYTES as u32))
        }
    };
    if matches!(request.op, IoOp::Read | IoOp::Write) {
        sqe.cdw13 = request.class.to_dsm().into(); // so that the target treats it likewise
    }
    if request.fua && !matches!(request.op, IoOp::Flush | IoOp::WriteUncorrectable) {
        sqe.cdw12 = (sqe.cdw12.get() | cdw12::FUA).into();
    }
    (sqe, data)
}

/// Returns the first command of a Compare and Write.
pub(super) fn compare_of(request: &IoRequest) -> Sqe {
    Sqe::rw(opcode::COMPARE, request.nsid, request.slba, request.blocks)
}

pub(super) fn urgency(request: &IoRequest) -> Urgency {
    let plain = matches!(request.op, IoOp::Read | IoOp::Write) && !request.fua && !request.urgent;
    let at_least = if plain { Urgency::Bulk } else { Urgency::Urgent };
    request.class.urgency().max(at_least)
}
