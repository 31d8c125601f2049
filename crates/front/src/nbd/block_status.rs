//! Block status: queries of the target's allocated blocks for clients.
//!
//! One query is in flight at a time. Blocks without a reported state count as data: a client that copies a disk leaves
//! holes out.

use super::connection_id::ConnectionId;
use crate::disk::DiskInfo;
use roadtrain_host_engine::{Allocation, AllocationQuery, FrontTurn, RANGES_MAX};
use roadtrain_proto::time::Instant;
use roadtrain_wire::nbd::{NbdExtent, NbdRequest, allocation_state, command_flag};
use std::collections::VecDeque;
use std::time::Duration;

/// Longest wait for the target's reply to a query.
const ANSWER_WAIT: Duration = Duration::from_secs(1);

/// State of blocks that are not allocated.
const HOLE_OF_ZEROES: u32 = allocation_state::HOLE | allocation_state::ZERO;

/// Pending block status requests of a server's clients.
#[derive(Debug, Default)]
pub(super) struct BlockStatuses {
    waiting: VecDeque<(ConnectionId, NbdRequest)>,
    /// Request whose query is in flight, with the deadline of its reply.
    in_flight: Option<(ConnectionId, NbdRequest, Instant)>,
    /// True if the target has not answered a query in time: no other is sent until it does.
    is_silent: bool,
    /// Key of the query in flight; older replies have another.
    key: u64,
}

impl BlockStatuses {
    /// Adds a client's request.
    pub(super) fn push(&mut self, id: ConnectionId, request: NbdRequest) {
        self.waiting.push_back((id, request));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.in_flight.is_none()
    }

    /// Drops the requests of a client that is gone.
    pub(super) fn forget(&mut self, id: ConnectionId) {
        self.waiting.retain(|(other, _)| *other != id);
    }

    /// Returns the time at which [`BlockStatuses::next`] has a result, even without the target's reply.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.in_flight.as_ref().map(|(.., until)| *until)
    }

    /// Returns the next request with its result. While the target is silent its connection may be lost, which takes
    /// long to be noticed. A client that copies a disk would rather copy a hole than wait.
    pub(super) fn next(
        &mut self,
        turn: &mut dyn FrontTurn,
        info: &DiskInfo,
    ) -> Option<(ConnectionId, NbdRequest, Option<Allocation>)> {
        while let Some((key, found)) = turn.next_allocation() {
            self.is_silent &= key != self.key;
            if key == self.key
                && let Some((id, request, _)) = self.in_flight.take()
            {
                return Some((id, request, found));
            }
        }
        let now = turn.now();
        if let Some((id, request, _)) = self.in_flight.take_if(|(.., until)| *until <= now) {
            self.is_silent = true;
            return Some((id, request, None));
        }
        if self.in_flight.is_some() {
            return None;
        }
        let (id, request) = self.waiting.pop_front()?;
        if self.is_silent || !info.reports_allocation {
            return Some((id, request, None));
        }
        self.key += 1;
        if turn.query_allocation(query(info, &request), self.key) {
            self.in_flight = Some((id, request, now + ANSWER_WAIT));
            return None;
        }
        Some((id, request, None))
    }
}

/// Returns the target's query for a request.
fn query(info: &DiskInfo, request: &NbdRequest) -> AllocationQuery {
    let block = u64::from(info.lba_bytes);
    let (slba, end) =
        (request.offset / block, (request.offset + u64::from(request.length)).div_ceil(block));
    let ranges = if request.has(command_flag::REQ_ONE) { 1 } else { RANGES_MAX };
    AllocationQuery { nsid: info.nsid, slba, blocks: end - slba, ranges }
}

/// Returns the extents of a request: from its start on, perhaps not to its end.
pub(super) fn extents(
    lba_bytes: u32,
    request: &NbdRequest,
    found: Option<&Allocation>,
) -> Vec<NbdExtent> {
    let (start, end) = (request.offset, request.offset + u64::from(request.length));
    let byte = |block: u64| block.saturating_mul(lba_bytes.into()).clamp(start, end);
    let known = found.filter(|found| byte(found.known.end) > start);
    let Some(Allocation { known, allocated }) = known else {
        return vec![extent(start, end, allocation_state::DATA)];
    };
    let (mut at, mut extents) = (start, Vec::new());
    for range in allocated {
        let from = byte(range.start).max(at);
        let to = byte(range.end).max(from);
        for (from, to, state) in [(at, from, HOLE_OF_ZEROES), (from, to, allocation_state::DATA)] {
            if from < to {
                extents.push(extent(from, to, state));
            }
        }
        at = to;
    }
    let known_to = byte(known.end);
    if known_to > at {
        extents.push(extent(at, known_to, HOLE_OF_ZEROES));
    }
    if request.has(command_flag::REQ_ONE) {
        extents.truncate(1);
    }
    extents
}

fn extent(from: u64, to: u64, state: u32) -> NbdExtent {
    // No longer than the request.
    NbdExtent { length: ((to - from) as u32).into(), state: state.into() }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "lists of ranges, some of which have one")]
mod tests {
    use super::*;
    use crate::disk::harness::{Mock, MockOptions};
    use crate::disk::test_info;
    use proptest::prelude::*;
    use roadtrain_wire::nbd::Command;
    use std::ops::Range;

    const DATA: u32 = 0;
    const HOLE: u32 = 3;

    fn request(flags: u16, offset: u64, length: u32) -> NbdRequest {
        NbdRequest { flags, command: Command::BLOCK_STATUS, cookie: 1, offset, length }
    }

    fn found_extents(
        request: &NbdRequest,
        known: Range<u64>,
        allocated: &[Range<u64>],
    ) -> Vec<(u32, u32)> {
        let found = Allocation { known, allocated: allocated.to_vec() };
        show(&extents(512, request, Some(&found)))
    }

    fn show(extents: &[NbdExtent]) -> Vec<(u32, u32)> {
        extents.iter().map(|extent| (extent.length.get(), extent.state.get())).collect()
    }

    #[test]
    fn unreported_blocks_are_data() {
        let wanted = request(0, 512, 4096);
        assert_eq!(show(&extents(512, &wanted, None)), [(4096, DATA)]);
        assert_eq!(found_extents(&wanted, 1..1, &[]), [(4096, DATA)], "nothing is known");
        assert_eq!(
            found_extents(&wanted, 1..3, &[]),
            [(1024, HOLE)],
            "the rest is for another request"
        );
        assert_eq!(found_extents(&wanted, 1..3, &[2..3]), [(512, HOLE), (512, DATA)]);
    }

    #[test]
    fn holes_lie_between_what_is_allocated() {
        let wanted = request(0, 512, 4096);
        assert_eq!(found_extents(&wanted, 1..9, &[]), [(4096, HOLE)]);
        assert_eq!(found_extents(&wanted, 1..9, &[1..9]), [(4096, DATA)]);
        let parts = [(512, HOLE), (1024, DATA), (512, HOLE), (2048, DATA)];
        assert_eq!(found_extents(&wanted, 1..9, &[2..4, 5..9]), parts);
        let one = request(command_flag::REQ_ONE, 512, 4096);
        assert_eq!(found_extents(&one, 1..9, &[2..4, 5..9]), parts[..1]);
        // Not whole blocks: a block is a hole or data as a whole.
        let inside = request(0, 700, 1000);
        assert_eq!(found_extents(&inside, 1..4, &[2..3]), [(324, HOLE), (512, DATA), (164, HOLE)]);
        assert_eq!(
            found_extents(&inside, 1..4, &[1..2, 3..4]),
            [(324, DATA), (512, HOLE), (164, DATA)]
        );
    }

    /// A target that is gone may be silent for long before its connection is lost.
    #[test]
    fn a_silent_target_is_waited_for_a_second_once() {
        let info = DiskInfo { reports_allocation: true, ..test_info() };
        let options =
            MockOptions { info: info.clone(), allocated: Some(vec![]), ..MockOptions::default() };
        let (mut mock, mut statuses) = (Mock::new(options, 0), BlockStatuses::default());
        mock.silent = true;
        let id = ConnectionId { slot: 0, serial: 1 };
        let first = mock.now();
        (0..3).for_each(|_| statuses.push(id, request(0, 0, 512)));
        assert!(statuses.next(&mut mock, &info).is_none());
        assert_eq!(statuses.deadline(), Some(first + ANSWER_WAIT));
        mock.wait(ANSWER_WAIT - Duration::from_millis(1));
        assert!(statuses.next(&mut mock, &info).is_none());
        mock.wait(Duration::from_millis(1));
        for _ in 0..3 {
            let (.., found) = statuses.next(&mut mock, &info).expect("an answer");
            assert_eq!(found, None);
        }
        assert!(statuses.is_empty() && mock.all_queries.len() == 1, "no other query is sent");
        mock.silent = false;
        while mock.all_queries.len() == 1 {
            statuses.push(id, request(0, 0, 512));
            while statuses.next(&mut mock, &info).is_some() {}
        }
        assert!(statuses.deadline().is_some(), "it answers again, and gets a query");
    }

    #[test]
    fn queries_cover_whole_blocks() {
        let info = DiskInfo { nsid: 7, lba_bytes: 4096, ..test_info() };
        let queried = |flags, offset, length| {
            let AllocationQuery { nsid, slba, blocks, ranges } =
                query(&info, &request(flags, offset, length));
            (nsid, slba, blocks, ranges)
        };
        assert_eq!(queried(0, 4096, 4096), (7, 1, 1, RANGES_MAX));
        assert_eq!(queried(0, 4095, 2), (7, 0, 2, RANGES_MAX));
        assert_eq!(queried(command_flag::REQ_ONE, 0, u32::MAX), (7, 0, 1 << 20, 1));
    }

    proptest! {
        /// Each byte of a reply has the reported state of its block, and no byte is left out.
        #[test]
        fn answers_say_what_the_target_has_said(
            offset in 0u64..9000, length in 1u32..9000, known in 0u64..40,
            parts in prop::collection::vec((1u64..5, 1u64..5), 0..6), one: bool,
        ) {
            let wanted = request(if one { command_flag::REQ_ONE } else { 0 }, offset, length);
            let slba = offset / 512;
            let (mut at, mut allocated) = (slba, Vec::new());
            for (gap, blocks) in parts {
                allocated.push(at + gap..at + gap + blocks);
                at += gap + blocks;
            }
            let known = slba..slba + known.max(at - slba);
            let reported = found_extents(&wanted, known.clone(), &allocated);
            prop_assert!(!reported.is_empty() && (!one || reported.len() == 1));
            let mut at = offset;
            for (length, state) in reported {
                prop_assert!(length > 0);
                for byte in at..at + u64::from(length) {
                    let block = byte / 512;
                    let is_data = allocated.iter().any(|range| range.contains(&block));
                    let expected = if is_data || !known.contains(&block) { DATA } else { HOLE };
                    prop_assert_eq!(state, expected);
                }
                at += u64::from(length);
            }
            prop_assert!(at <= offset + u64::from(length));
        }
    }
}
