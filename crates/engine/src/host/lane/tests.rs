//! A lane against a target that is played by the test.

use super::*;
use crate::buffer::Buffer;
use crate::connection::Connection;
use crate::host::link::TcpLink;
use roadtrain_proto::host::qpair::{Config, Qpair, RxEvent};
use roadtrain_proto::policy::PolicyConfig;
use roadtrain_wire::cqe::Cqe;
use roadtrain_wire::pdu::{CapsuleCmd, CapsuleResp, CommonHeader, Digests, IcResp, PduType};
use roadtrain_wire::zerocopy::{FromBytes, IntoBytes};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

const ENTRIES: u16 = 16;

/// A link whose other end is ours.
fn link(policy: PolicyConfig) -> (Link, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let config =
        Config { digests: Digests::default(), queue_entries: ENTRIES, in_capsule_bytes: 0, policy };
    let mut qpair = Qpair::new(Instant(0), config);
    let welcome = IcResp::new(Digests::default(), 0, 4096);
    let event = qpair.poll_rx(Instant(0), welcome.as_bytes(), &mut 0);
    assert!(matches!(event, Ok(Some(RxEvent::Ready))));
    (Link::Tcp(TcpLink::new(Connection::new(theirs.into()), qpair)), ours)
}

fn shared() -> Shared {
    let (gather, ports, now) = (Box::default(), Ports::default(), Instant(7));
    Shared { gather, ports, now, completions: VecDeque::new() }
}

/// Submits flushes of namespaces `numbers`, all in one turn.
fn submit(lane: &mut Lane, shared: &mut Shared, numbers: impl IntoIterator<Item = u32>) {
    for nsid in numbers {
        let token = nsid.into();
        let (op, slba, blocks, fua, urgent) = (Op::Flush, 0, 0, false, false);
        let request = Request {
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

/// The next `count` commands that came.
fn sqes(peer: &mut UnixStream, count: usize) -> Vec<Sqe> {
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

/// The next `count` commands that came: namespace and CID.
fn commands(peer: &mut UnixStream, count: usize) -> Vec<(u32, u16)> {
    sqes(peer, count).iter().map(|sqe| (sqe.nsid.get(), sqe.cid.get())).collect()
}

fn answer(peer: &mut UnixStream, cid: u16, status: Status) {
    let ch = CommonHeader::new(PduType::CapsuleResp, 0, Digests::default(), 1);
    peer.write_all(CapsuleResp { ch, cqe: Cqe::new(cid, status) }.as_bytes()).unwrap();
}

fn receive(lane: &mut Lane, shared: &mut Shared) {
    let mut rx = RxBuffer::new().unwrap();
    while let (_, Some(rest)) = lane.receive(&mut rx, crate::tuning::RX_BUFFER_BYTES).unwrap() {
        assert!(lane.parse(shared, rest, usize::MAX).unwrap().is_none());
    }
    lane.end_turn(shared).unwrap();
}

#[test]
fn requests_keep_their_order_over_a_lost_connection() {
    let (mut lane, mut shared) = (Lane::new(ENTRIES, Class::Normal), shared());
    let (first, mut peer) = link(PolicyConfig::none());
    lane.attach(first, shared.now);
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
    let again: Vec<u32> = commands(&mut peer, 3).iter().map(|&(number, _)| number).collect();
    assert_eq!(again, [4, 7, 8]);

    lane.detach(&mut shared);
    submit(&mut lane, &mut shared, [9]);
    let (second, mut peer) = link(PolicyConfig::none());
    lane.attach(second, shared.now);
    lane.end_turn(&mut shared).unwrap();
    let order: Vec<u32> = commands(&mut peer, 7).iter().map(|&(number, _)| number).collect();
    assert_eq!(order, [3, 4, 5, 6, 7, 8, 9]);
}

/// Submits reads of those classes and sends them in one turn: what comes, as starting LBA and DSM.
fn reads(lane_class: Class, classes: &[Class]) -> Vec<(u64, u32)> {
    let (mut lane, mut shared) = (Lane::new(ENTRIES, lane_class), shared());
    let (link, mut peer) = link(PolicyConfig::auto());
    lane.attach(link, shared.now);
    for (number, &class) in (0..).zip(classes) {
        let request = Request {
            op: Op::Read,
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
