//! Tests of a lane against a target that the test simulates.

use super::*;
use crate::api::IoOp;
use crate::ether::Ports;
use crate::link::TcpLink;
use roadtrain_host_proto::qpair::{HostQpair, HostQpairConfig, HostRxEvent};
use roadtrain_host_proto::retry::BACK_OFF;
use roadtrain_proto::policy::PolicyConfig;
use roadtrain_reactor::connection::TcpConnection;
use roadtrain_reactor::stream::ConnectionStream;
use roadtrain_system::buffer::Buffer;
use roadtrain_wire::cqe::Cqe;
use roadtrain_wire::pdu::{CapsuleCmd, CapsuleResp, CommonHeader, Digests, IcResp, PduType};
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::status::Status;
use roadtrain_wire::zerocopy::{FromBytes, IntoBytes};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

const ENTRIES: u16 = 16;

/// Returns a link, and its peer socket for the test.
pub(crate) fn link(policy: PolicyConfig) -> (QpairLink, UnixStream) {
    link_with_capsules_of(0, policy)
}

/// Returns a link whose capsules take `in_capsule_bytes` of data, and its peer socket.
pub(crate) fn link_with_capsules_of(
    in_capsule_bytes: u32,
    policy: PolicyConfig,
) -> (QpairLink, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    theirs.set_nonblocking(true).unwrap();
    let digests = Digests::default();
    let config = HostQpairConfig { digests, queue_entries: ENTRIES, in_capsule_bytes, policy };
    let mut qpair = HostQpair::new(Instant(0), config);
    let welcome = IcResp::new(Digests::default(), 0, 4096);
    let event = qpair.poll_rx(Instant(0), welcome.as_bytes(), &mut 0, |_, _, _| {});
    assert!(matches!(event, Ok(Some(HostRxEvent::Ready))));
    (
        QpairLink::Tcp(TcpLink::new(
            TcpConnection::new(ConnectionStream::Plain(theirs.into())),
            qpair,
        )),
        ours,
    )
}

fn shared() -> LaneShared {
    let shared = LaneShared::new(Ports::default(), Default::default(), Default::default());
    LaneShared { now: Instant(7), ..shared }
}

/// Submits flushes of namespaces `numbers`, all in one turn.
fn submit(lane: &mut HostLane, shared: &mut LaneShared, numbers: impl IntoIterator<Item = u32>) {
    for nsid in numbers {
        let token = nsid.into();
        let (op, slba, blocks, fua, urgent) = (IoOp::Flush, 0, 0, false, false);
        let request = IoRequest {
            op,
            nsid,
            slba,
            blocks,
            fua,
            urgent,
            class: Class::Normal,
            buffer: None,
            token,
        };
        lane.submit(request, shared).unwrap();
    }
    lane.end_turn(shared).unwrap();
}

/// Reads the next `count` commands.
pub(crate) fn sqes(peer: &mut UnixStream, count: usize) -> Vec<Sqe> {
    let sqe = |_| {
        let mut pdu = [0; size_of::<CapsuleCmd>()];
        loop {
            peer.read_exact(&mut pdu[..8]).unwrap();
            let length = u32::from_le_bytes([pdu[4], pdu[5], pdu[6], pdu[7]]) as usize;
            if pdu[0] == PduType::CapsuleCmd as u8 {
                break;
            }
            peer.read_exact(&mut vec![0; length - 8]).unwrap(); // ICReq
        }
        peer.read_exact(&mut pdu[8..]).unwrap();
        CapsuleCmd::read_from_bytes(&pdu).unwrap().sqe
    };
    (0..count).map(sqe).collect()
}

/// Reads the next `count` commands: namespace and CID.
fn commands(peer: &mut UnixStream, count: usize) -> Vec<(u32, u16)> {
    sqes(peer, count).iter().map(|sqe| (sqe.nsid.get(), sqe.cid.get())).collect()
}

pub(crate) fn answer(peer: &mut UnixStream, cid: u16, status: Status) {
    let ch = CommonHeader::new(PduType::CapsuleResp, 0, Digests::default(), 1);
    peer.write_all(CapsuleResp { ch, cqe: Cqe::new(cid, status) }.as_bytes()).unwrap();
}

fn receive(lane: &mut HostLane, shared: &mut LaneShared) {
    let mut rx = RxBuffer::new().unwrap();
    while let (_, mut rest @ Some(_)) =
        lane.receive(&mut rx, roadtrain_reactor::tuning::RX_BUFFER_BYTES).unwrap()
    {
        // Parsing pauses at a sampled request.
        while let Some(bytes) = rest {
            rest = lane.parse(shared, bytes, usize::MAX).unwrap();
        }
    }
    lane.end_turn(shared).unwrap();
}

#[test]
fn requests_keep_their_order_over_a_lost_connection() {
    let (mut lane, mut shared) = (HostLane::new(ENTRIES, Class::Normal, None), shared());
    let (first, mut peer) = link(PolicyConfig::none());
    lane.attach(first, Default::default(), shared.now);
    submit(&mut lane, &mut shared, 1..=6);
    let sent = commands(&mut peer, 6);
    assert!(sent.is_sorted_by_key(|&(number, _)| number));
    // The slots of 1 and 2 go to 7 and 8, and 4 gets another one.
    for (number, cid) in sent {
        match number {
            1 | 2 => answer(&mut peer, cid, Status::SUCCESS),
            4 => answer(&mut peer, cid, Status::NAMESPACE_NOT_READY),
            _ => {}
        }
    }
    receive(&mut lane, &mut shared);
    assert_eq!(shared.completions.len(), 2);
    submit(&mut lane, &mut shared, [7, 8]);
    shared.now += BACK_OFF;
    lane.end_turn(&mut shared).unwrap();
    let again: Vec<u32> = commands(&mut peer, 3).iter().map(|&(number, _)| number).collect();
    assert_eq!(again, [7, 8, 4], "4 has waited without delaying others");

    lane.detach(&mut shared);
    submit(&mut lane, &mut shared, [9]);
    let (second, mut peer) = link(PolicyConfig::none());
    lane.attach(second, Default::default(), shared.now);
    lane.end_turn(&mut shared).unwrap();
    let order: Vec<u32> = commands(&mut peer, 7).iter().map(|&(number, _)| number).collect();
    assert_eq!(order, [3, 4, 5, 6, 7, 8, 9]);
}

#[test]
fn caravans_are_counted_by_their_requests() {
    let (mut lane, mut shared) = (HostLane::new(ENTRIES, Class::Normal, None), shared());
    shared.cells.begin();
    let (link, mut peer) = link(PolicyConfig::none());
    lane.attach(link, Default::default(), shared.now);
    submit(&mut lane, &mut shared, [1]); // with the ICReq
    commands(&mut peer, 1);
    let sizes = |shared: &LaneShared| shared.cells.sample(0, Batching::default()).caravan_sizes;
    let before = sizes(&shared);
    submit(&mut lane, &mut shared, 2..=4);
    submit(&mut lane, &mut shared, [5]);
    commands(&mut peer, 4);
    let more = sizes(&shared).into_iter().zip(before).map(|(now, before)| now - before);
    assert_eq!(more.collect::<Vec<_>>()[..4], [1, 0, 1, 0], "one of three requests, one of one");
}

/// A retry is due while the target violates the protocol: it is not submitted in a loop.
#[test]
fn what_is_due_when_the_connection_breaks_waits_for_the_next() {
    let (mut lane, mut shared) = (HostLane::new(ENTRIES, Class::Normal, None), shared());
    let (first, mut peer) = link(PolicyConfig::none());
    lane.attach(first, Default::default(), shared.now);
    submit(&mut lane, &mut shared, [1]);
    let (_, cid) = commands(&mut peer, 1)[0];
    answer(&mut peer, cid, Status::NAMESPACE_NOT_READY);
    receive(&mut lane, &mut shared);
    shared.now += BACK_OFF;
    peer.write_all(&[0xff; 8]).unwrap();
    let mut rx = RxBuffer::new().unwrap();
    let (_, rest) = lane.receive(&mut rx, roadtrain_reactor::tuning::RX_BUFFER_BYTES).unwrap();
    assert!(lane.parse(&mut shared, rest.unwrap(), usize::MAX).is_err());
    lane.end_turn(&mut shared).unwrap(); // sends the H2CTermReq
    lane.detach(&mut shared);
    let (second, mut peer) = link(PolicyConfig::none());
    lane.attach(second, Default::default(), shared.now);
    lane.end_turn(&mut shared).unwrap();
    assert_eq!(commands(&mut peer, 1)[0].0, 1);
    assert!(shared.completions.is_empty());
}

/// Completes each command with `status` until the request has ended. Returns the delays of the retries.
fn waits(status: Status, rules: RetryRules, limit: usize) -> Vec<Duration> {
    let (mut lane, mut shared) = (HostLane::new(ENTRIES, Class::Normal, None), shared());
    let (link, mut peer) = link(PolicyConfig::none());
    lane.attach(link, (rules, LaneGuard::default()), shared.now);
    submit(&mut lane, &mut shared, [1]);
    let mut waits = Vec::new();
    while shared.completions.is_empty() && waits.len() < limit {
        let (_, cid) = commands(&mut peer, 1)[0];
        answer(&mut peer, cid, status);
        receive(&mut lane, &mut shared);
        assert_eq!(lane.room(), u32::from(ENTRIES) - 1 - lane.outstanding());
        let Some(due) = lane.deadline() else { break };
        waits.push(due.since(shared.now));
        shared.now = due;
        lane.end_turn(&mut shared).unwrap();
    }
    let ended = shared.completions.pop_front();
    assert!(ended.is_none_or(|completion| completion.status.is(status)));
    waits
}

#[test]
fn what_may_be_tried_again_waits_as_long_as_the_controller_says() {
    let second = Duration::from_secs(1);
    let rules = RetryRules::new([3, 0, 10], Some(second * 10));
    let not_ready = Status::NAMESPACE_NOT_READY;
    let delays = waits(not_ready.retry_after(1), rules, 1000);
    let delay_total: Duration = delays.iter().sum();
    assert_eq!((delays[0], delay_total), (second * 3 / 10, second * 10));
    assert_eq!(waits(Status::COMMAND_INTERRUPTED.retry_after(3), rules, 1000), [second; 5]);
    for unreachable in [not_ready, Status::ANA_INACCESSIBLE, Status::INTERNAL_PATH_ERROR] {
        let waits = waits(unreachable, rules, 1000);
        assert_eq!(waits.iter().sum::<Duration>(), second * 10, "{unreachable}");
        assert!(waits.iter().all(|wait| *wait >= BACK_OFF), "{unreachable}: back to back");
    }
    assert!(waits(Status::ANA_PERSISTENT_LOSS.dnr(), rules, 1000).is_empty());
    let patient = RetryRules::new([0; 3], None);
    assert_eq!(waits(Status::ANA_PERSISTENT_LOSS, patient, 500).len(), 500);
}

const TIMEOUT: Duration = Duration::from_secs(30);

#[test]
fn a_command_without_answer_is_aborted_and_then_ends_its_connection() {
    let (mut lane, mut shared) = (HostLane::new(ENTRIES, Class::Normal, Some(TIMEOUT)), shared());
    let mut giving_up = 0;
    while shared.completions.is_empty() {
        let (link, mut peer) = link(PolicyConfig::none());
        lane.attach(link, Default::default(), shared.now);
        if giving_up == 0 {
            submit(&mut lane, &mut shared, [1]);
        }
        lane.end_turn(&mut shared).unwrap();
        let (_, cid) = commands(&mut peer, 1)[0];
        assert_eq!(lane.deadline(), Some(shared.now + TIMEOUT), "nothing else wakes the reactor");
        shared.now += TIMEOUT - Duration::from_nanos(1);
        lane.end_turn(&mut shared).unwrap();
        assert_eq!(lane.take_overdue(), None);
        shared.now = lane.deadline().unwrap();
        lane.end_turn(&mut shared).unwrap();
        assert_eq!((lane.take_overdue(), lane.take_overdue()), (Some(vec![cid]), None));
        shared.now = lane.deadline().unwrap();
        let ended = lane.end_turn(&mut shared);
        assert!(matches!(ended, Err(LinkError::Unanswered(_))), "{ended:?}");
        lane.detach(&mut shared);
        assert_eq!(lane.deadline(), None);
        // Without a connection no timeout runs.
        shared.now += TIMEOUT * 100;
        lane.end_turn(&mut shared).unwrap();
        giving_up += 1;
    }
    assert_eq!(giving_up, 6, "one try and five more");
    assert!(shared.completions[0].status.is(Status::HOST_ABORTED));
}

#[test]
fn an_aborted_command_is_submitted_again() {
    let (mut lane, mut shared) = (HostLane::new(ENTRIES, Class::Normal, Some(TIMEOUT)), shared());
    let (link, mut peer) = link(PolicyConfig::none());
    lane.attach(link, Default::default(), shared.now);
    submit(&mut lane, &mut shared, [1]);
    shared.now += TIMEOUT;
    lane.end_turn(&mut shared).unwrap();
    let (_, cid) = commands(&mut peer, 1)[0];
    assert_eq!(lane.take_overdue(), Some(vec![cid]));
    answer(&mut peer, cid, Status::ABORT_REQUESTED);
    receive(&mut lane, &mut shared);
    shared.now = lane.deadline().unwrap();
    lane.end_turn(&mut shared).unwrap();
    let (_, cid) = commands(&mut peer, 1)[0];
    answer(&mut peer, cid, Status::SUCCESS);
    receive(&mut lane, &mut shared);
    assert!(shared.completions[0].status.is_success());
    assert_eq!(lane.deadline(), None, "an idle lane does not wake the reactor");
}

/// Submits reads of these classes in one turn. Returns their starting LBAs and DSM values in the order sent.
fn reads(lane_class: Class, classes: &[Class]) -> Vec<(u64, u32)> {
    let (mut lane, mut shared) = (HostLane::new(ENTRIES, lane_class, None), shared());
    let (link, mut peer) = link(PolicyConfig::auto());
    lane.attach(link, Default::default(), shared.now);
    for (number, &class) in (0..).zip(classes) {
        let request = IoRequest {
            op: IoOp::Read,
            nsid: 1,
            slba: number,
            blocks: 1,
            fua: false,
            urgent: false,
            class,
            buffer: Some(Buffer::alloc(512)),
            token: number,
        };
        lane.submit(request, &mut shared).unwrap();
    }
    lane.end_turn(&mut shared).unwrap();
    let sqes = sqes(&mut peer, classes.len());
    sqes.iter().map(|sqe| (sqe.slba(), sqe.cdw13.get())).collect()
}

#[test]
fn latency_critical_requests_pass_bulk_in_a_lane() {
    use Class::{Bulk, Latency, Normal};
    let (bulk, latency) = (Bulk.to_dsm(), Latency.to_dsm());
    let passed = [(3, latency), (1, 0), (0, bulk), (2, bulk)];
    assert_eq!(reads(Normal, &[Bulk, Normal, Bulk, Latency]), passed);
}

#[test]
fn requests_of_no_class_are_of_their_lane_s() {
    use Class::{Bulk, Latency, Normal};
    let (bulk, latency) = (Bulk.to_dsm(), Latency.to_dsm());
    assert_eq!(reads(Bulk, &[Normal, Latency]), [(1, latency), (0, bulk)]);
    assert_eq!(reads(Latency, &[Bulk, Normal]), [(1, latency), (0, bulk)]);
}

/// A target refuses a write before it has read all of it. The kernel may still read the rest from the request's buffer.
/// So the request does not move to another path, which could complete it and return the buffer.
#[test]
fn a_refused_write_stays_while_its_data_is_being_sent() {
    const BYTES: usize = 4 << 20;
    let (mut lane, mut shared) = (HostLane::new(ENTRIES, Class::Normal, None), shared());
    lane.requests.core.share();
    let (link, mut peer) = link_with_capsules_of(BYTES as u32, PolicyConfig::none());
    lane.attach(link, Default::default(), shared.now);
    let write = IoRequest {
        op: IoOp::Write,
        nsid: 1,
        slba: 0,
        blocks: (BYTES / 512) as u32,
        fua: false,
        urgent: false,
        class: Class::Normal,
        buffer: Some(Buffer::alloc(BYTES)),
        token: 1,
    };
    lane.submit(write, &mut shared).unwrap();
    lane.end_turn(&mut shared).unwrap();
    assert!(lane.is_blocked(), "more than the socket takes");
    let (_, cid) = commands(&mut peer, 1)[0];
    answer(&mut peer, cid, Status::ANA_INACCESSIBLE);
    receive(&mut lane, &mut shared);
    assert!(lane.is_blocked() && lane.requests.core.has_diverted());
    assert!(!lane.diverts() && lane.take_free().is_empty());
    // The rest is read: now it may move.
    let mut rest = vec![0; BYTES];
    let mut read = 0;
    while read < BYTES {
        read += peer.read(&mut rest[read..]).unwrap();
        lane.writable(&mut shared).unwrap();
    }
    assert!(!lane.is_blocked() && lane.diverts());
    assert_eq!(lane.take_free().len(), 1);
    assert!(shared.completions.is_empty());
}
