//! Lanes that pause for latency-critical ones keep all received data.

use crate::harness::*;
use crate::peer::{BLOCK, EngineHarness, RawPeer, raw};
use roadtrain_host_engine::Class;
use roadtrain_wire::pdu::PduType;
use roadtrain_wire::sqe::{Sqe, opcode};
use std::collections::BTreeSet;
use std::time::Duration;

const ENTRIES: u16 = 512;
/// Number of commands for which the target pauses many times. Later data arrives in one of these pauses.
const LONG_BURST: u16 = 400;
/// Number of blocks that each of its commands zeroes.
const ZEROED_BLOCKS: u32 = 500;
/// More commands than a lane handles before it pauses.
const BURST: u16 = 100;
/// Time after which a lane is no longer latency-critical.
const FORGOTTEN: Duration = Duration::from_millis(15);

fn commands(count: u16, command: impl Fn(u16) -> Sqe) -> Vec<u8> {
    (0..count).flat_map(|cid| raw::command(cid, command(cid), &[], raw::PLAIN)).collect()
}

fn reads(count: u16, class: Class) -> Vec<u8> {
    let mut sqe = Sqe::rw(opcode::READ, 1, 0, 1);
    sqe.set_transport(BLOCK);
    sqe.cdw13 = class.to_dsm().into();
    commands(count, |_| sqe)
}

/// Checks that each of `count` commands is completed once, by a PDU of that type.
fn assert_answered(peer: &mut RawPeer, count: u16, expected: PduType) {
    let mut answered = BTreeSet::new();
    while answered.len() < usize::from(count) {
        let (kind, pdu) = peer.next().expect("an answer");
        assert_eq!(kind, expected as u8, "the answer to a command of another lane");
        let at = if expected == PduType::C2hData { 8 } else { 20 };
        let cid = u16::from_le_bytes([pdu[at], pdu[at + 1]]);
        assert!(cid < count && answered.insert(cid), "{cid} answered twice");
    }
}

/// The lane paused in its last turn, has been latency-critical since its end, and is served next in the middle of
/// another lane's turn.
#[test]
fn a_lane_that_becomes_latency_critical_does_not_pause_in_between() {
    let harness = EngineHarness::with(server_config(vec![memory(1, 128 * MIB, BLOCK)]));
    let mut critical = harness.queue_of(1, ENTRIES);
    let mut bulk = harness.queue_of(2, ENTRIES);
    let mut late = harness.queue_of(3, ENTRIES);
    late.socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let zero = |cid: u16| {
        let slba = u64::from(cid) * u64::from(ZEROED_BLOCKS);
        Sqe::rw(opcode::WRITE_ZEROES, 1, slba, ZEROED_BLOCKS)
    };
    let long_burst = commands(LONG_BURST, zero);
    for _ in 0..effort(6, 20) {
        std::thread::sleep(FORGOTTEN);
        critical.send(&reads(1, Class::Latency));
        assert_answered(&mut critical, 1, PduType::C2hData);
        late.send(&reads(1, Class::Latency));
        assert_answered(&mut late, 1, PduType::C2hData);
        bulk.send(&long_burst);
        late.send(&reads(BURST, Class::Normal));
        assert_answered(&mut late, BURST, PduType::C2hData);
        assert_answered(&mut bulk, LONG_BURST, PduType::CapsuleResp);
    }
}
