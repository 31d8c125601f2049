//! Peers that do not read their data: it waits in buffers, whose number is bounded.

use crate::harness::*;
use crate::peer::*;
use roadtrain_host_engine::Class;
use roadtrain_wire::fabrics::{CNTLID_DYNAMIC, Connect, ConnectData, Property, cattr, property};
use roadtrain_wire::log::{GetLogPage, lid};
use roadtrain_wire::pdu::PduType;
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::zerocopy::IntoBytes;
use std::time::Duration;

const PAGE_BYTES: u32 = 1 << 20;
/// More pages than the sockets of both ends and the buffers hold.
const PAGES: u16 = 28;
const POOL_BYTES: usize = 8 << 20;
/// CC: enabled, SQEs of 64 bytes, CQEs of 16.
const ENABLED: u32 = 4 << 20 | 6 << 16 | 1;

/// Returns the number of completed requests.
fn requests(harness: &EngineHarness) -> u64 {
    harness.server.reactors().iter().map(|reactor| reactor.batching.requests).sum()
}

/// Connects an admin queue by hand, and enables its controller.
fn admin_queue(harness: &EngineHarness) -> RawPeer {
    let mut peer = harness.ready(raw::PLAIN);
    let cattr = cattr::DISABLE_SQ_FLOW_CONTROL | Class::Normal.to_cattr();
    let connect = Connect { recfmt: 0, qid: 0, sqsize: 31, cattr, kato_ms: 0 };
    let data = ConnectData::new([9; 16], CNTLID_DYNAMIC, NQN, "nqn.x:other");
    peer.send(&raw::command(1, connect.emit(), data.as_bytes(), raw::PLAIN));
    assert!(peer.completion(1).is_success());
    peer.send(&raw::command(1, Property::set(property::CC, ENABLED), &[], raw::PLAIN));
    assert!(peer.completion(1).is_success());
    peer
}

/// Requests `PAGES` log pages of `PAGE_BYTES` each, in one send: while much of a page is unsent, the target does not
/// receive the next command.
fn request_pages(peer: &mut RawPeer) {
    let commands = (2..2 + PAGES).flat_map(|cid| {
        let sqe = GetLogPage::new(lid::ERROR, PAGE_BYTES).emit(0);
        raw::command(cid, sqe, &[], raw::PLAIN)
    });
    peer.send(&commands.collect::<Vec<u8>>());
}

#[test]
fn pages_that_wait_to_be_sent_are_in_buffers() {
    let harness = EngineHarness::with_file(|config| config.pool_bytes = POOL_BYTES);
    let mut peer = admin_queue(&harness);
    request_pages(&mut peer);
    eventually("pages are in buffers", || harness.server.usage().buffer_bytes >= 1 << 20);
    assert!(harness.server.usage().buffer_bytes <= POOL_BYTES);
    for _ in 0..PAGES {
        let (kind, pdu) = peer.next().expect("a page");
        assert_eq!((kind, pdu.len()), (PduType::C2hData as u8, 24 + PAGE_BYTES as usize));
        assert!(pdu[24 + 4096..].iter().all(|&byte| byte == 0), "what a buffer held before");
    }
    drop(peer);
    harness.assert_healthy();
}

#[test]
fn a_peer_that_does_not_take_its_pages_is_ended_when_others_need_buffers() {
    let harness = EngineHarness::with_file(|config| {
        (config.pool_bytes, config.transfer_timeout) = (2 << 20, Duration::from_millis(200));
    });
    let mut peer = admin_queue(&harness);
    request_pages(&mut peer);
    eventually("every buffer is taken", || harness.server.usage().buffer_bytes == 2 << 20);
    harness.client.write(1, 0, pattern(65536, 1), false).unwrap();
    eventually("its connection is ended", || {
        harness.server.usage().connections == harness.connections
    });
    harness.assert_healthy();
}

#[test]
fn a_reactor_sleeps_while_a_lane_waits_for_buffers() {
    let harness = EngineHarness::with_file(|config| config.pool_bytes = POOL_BYTES);
    let mut peer = admin_queue(&harness);
    request_pages(&mut peer);
    eventually("every buffer is taken", || harness.server.usage().buffer_bytes == POOL_BYTES);
    // Each query wakes the reactor, which sleeps again if it has nothing else to do.
    let sleeps = || {
        let _ = harness.server.usage();
        harness.server.reactors()[0].waits
    };
    let before = sleeps();
    eventually("the reactor sleeps", || sleeps() >= before + 3);
}

/// Its commands wait in the network, not at the target.
#[test]
fn a_lane_with_much_unsent_is_not_received_from() {
    const LEN: u32 = 128 << 10;
    const READS: u16 = 400;
    /// The test requests 50 MiB. The target does not receive from a lane with this much unsent data.
    const UNSENT_MAX: usize = 4 << 20;
    /// The last receive may add some: each command is received before the next one is sent.
    const HELD_MAX: usize = 16 << 20;
    let harness = EngineHarness::with_file(|config| config.pool_bytes = 64 << 20);
    let mut peer = harness.queue_with(1, READS + 2, raw::BOTH);
    let before = requests(&harness);
    for cid in 2..2 + READS {
        let mut sqe = Sqe::rw(opcode::READ, 2, 0, LEN / BLOCK); // staged, because of the digests
        sqe.set_transport(LEN);
        peer.send(&raw::command(cid, sqe, &[], raw::BOTH));
        eventually("the command is received, or too much is unsent", || {
            let usage = harness.server.usage();
            let sent = requests(&harness) - before;
            let received = sent + usage.io_commands as u64;
            received >= u64::from(cid) - 1 || usage.buffer_bytes >= UNSENT_MAX
        });
        let held = harness.server.usage().buffer_bytes;
        assert!(held <= HELD_MAX, "{held} bytes wait for a peer that does not read");
    }
    harness.client.write(1, 8, pattern(65536, 1), false).unwrap(); // others continue
    let mut answered = std::collections::BTreeSet::new();
    while answered.len() < usize::from(READS) {
        let (kind, pdu) = peer.next().expect("the data");
        assert_eq!((kind, pdu.len()), (PduType::C2hData as u8, 24 + 4 + LEN as usize + 4));
        assert!(answered.insert(u16::from_le_bytes([pdu[8], pdu[9]])), "answered twice");
    }
    drop(peer);
    harness.assert_healthy();
}
