//! Compare and Write over a connection: its bytes, its single completion, and other commands in flight. Also the
//! bytes of Verify, Write Uncorrectable and Copy.

use crate::common::host_end::HostCompletion;
use crate::common::{BLOCK, ConnectionPair, PairSetup, raw};
use roadtrain_host_proto::qpair::CommandTransfer;
use roadtrain_proto::policy::{PolicyConfig, Urgency};
use roadtrain_wire::sqe::{Sqe, cdw12, opcode};
use roadtrain_wire::status::Status;
use roadtrain_wire::zerocopy::IntoBytes;

/// Returns the bytes of hexadecimal digits; spaces are ignored.
fn bytes(digits: &str) -> Vec<u8> {
    let digits: Vec<u32> = digits.chars().filter_map(|c| c.to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

/// A Compare and a Write of the block 0123456789ABCDEFh of namespace 2.
fn pair_of_commands() -> (Sqe, Sqe) {
    let sqe = |opcode| Sqe::rw(opcode, 2, 0x0123_4567_89ab_cdef, 1);
    (sqe(opcode::COMPARE), sqe(opcode::WRITE))
}

fn data() -> Vec<u8> {
    [[0xaa; BLOCK as usize], [0xbb; BLOCK as usize]].concat()
}

/// NVMe Base 2.1, figures 91 and 92 (FUSE in bits 9:8 of CDW0); NVM Command Set 1.1, sections 3.3.1 and 3.3.6.
#[test]
fn two_capsules_side_by_side() {
    for policy in [PolicyConfig::none(), PolicyConfig::i10(), PolicyConfig::auto()] {
        let mut pair = ConnectionPair::connected(PairSetup { policy, ..PairSetup::default() });
        let (compare, write) = pair_of_commands();
        let now = pair.now;
        let slot = pair.host.qpair.submit_fused(now, (&compare, &write), BLOCK, Urgency::Urgent);
        pair.host.data[usize::from(slot.unwrap())] = data();
        let sent = pair.host.send(now);
        let capsule = |opcode: &str, fuse: &str, cid: &[u8], data: u8| {
            let header = bytes("04 00 48 48 48 02 00 00");
            let (opcode, flags) = (bytes(opcode), bytes(fuse));
            let rest = bytes(
                "02000000 00000000 00000000 0000000000000000 \
                 0000000000000000 00020000 000000 01 \
                 efcdab89 67452301 00000000 00000000 00000000 00000000",
            );
            [&header[..], &opcode, &flags, cid, &rest, &[data; BLOCK as usize]].concat()
        };
        let cid = |at: usize| sent[at + 10..][..2].to_vec();
        let length = 72 + BLOCK as usize;
        assert_eq!(sent.len(), 2 * length);
        assert!(sent[..length] == capsule("05", "41", &cid(0), 0xaa), "{:x?}", &sent[..72]);
        assert!(sent[length..] == capsule("01", "42", &cid(length), 0xbb));
        assert_ne!(cid(0), cid(length));
    }
}

/// NVM Command Set 1.1, section 3.3.5.
#[test]
fn a_verify_has_no_data() {
    let mut sqe = Sqe::rw(opcode::VERIFY, 3, 7, 0x1_0000);
    sqe.cid = 0x1234.into();
    let expected = bytes(
        "0c 40 3412 03000000 00000000 00000000 0000000000000000 \
         0000000000000000 00000000 000000 5a \
         07000000 00000000 ffff0000 00000000 00000000 00000000",
    );
    assert_eq!(sqe.as_bytes(), expected);
}

/// NVM Command Set 1.1, section 3.3.7.
#[test]
fn a_write_uncorrectable_has_no_data() {
    let mut sqe = Sqe::rw(opcode::WRITE_UNCORRECTABLE, 3, 0x0123_4567_89ab_cdef, 16);
    sqe.cid = 0x1234.into();
    let expected = bytes(
        "04 40 3412 03000000 00000000 00000000 0000000000000000 \
         0000000000000000 00000000 000000 5a \
         efcdab89 67452301 0f000000 00000000 00000000 00000000",
    );
    assert_eq!(sqe.as_bytes(), expected);
}

/// NVM Command Set 1.1, section 3.3.2: the command names its destination and how many ranges its data has.
#[test]
fn a_copy_names_its_destination() {
    let mut sqe = Sqe::new(opcode::COPY, 3);
    sqe.set_slba(0x0123_4567_89ab_cdef);
    (sqe.cid, sqe.cdw12) = (0x1234.into(), (127 | cdw12::FUA).into());
    sqe.set_in_capsule(4096);
    let expected = bytes(
        "19 40 3412 03000000 00000000 00000000 0000000000000000 \
         0000000000000000 00100000 000000 01 \
         efcdab89 67452301 7f000040 00000000 00000000 00000000",
    );
    assert_eq!(sqe.as_bytes(), expected);
}

/// Returns the status of a fused pair in flight when the target responds to its two commands with `first` and
/// `second`.
fn ended(first: Status, second: Status, second_is_first: bool) -> Status {
    let mut pair = ConnectionPair::connected(PairSetup::default());
    let (compare, write) = pair_of_commands();
    let now = pair.now;
    let slot = pair.host.qpair.submit_fused(now, (&compare, &write), BLOCK, Urgency::Urgent);
    let slot = slot.unwrap();
    pair.host.data[usize::from(slot)] = data();
    let other = Sqe::new(opcode::FLUSH, 1);
    let other = pair.host.submit(now, &other, CommandTransfer::None, Vec::new());
    assert_eq!(pair.host.qpair.in_flight(), 3, "a pair is two commands");
    let sent = pair.host.send(now);
    let cid = |at: usize| u16::from_le_bytes([sent[at + 10], sent[at + 11]]);
    let length = 72 + BLOCK as usize;
    let mut answers = [raw::response(cid(0), first), raw::response(cid(length), second)];
    if second_is_first {
        answers.reverse();
    }
    let delivery = pair.setup.delivery;
    pair.host.receive(now, &answers[0], delivery).unwrap();
    assert_eq!(pair.host.take_completions(), [], "one half has ended");
    let flushed = raw::response(cid(2 * length), Status::SUCCESS);
    pair.host.receive(now, &flushed, delivery).unwrap();
    let done = pair.host.take_completions();
    assert!(matches!(&done[..], [HostCompletion { slot, .. }] if *slot == other), "{done:?}");
    pair.host.receive(now, &answers[1], delivery).unwrap();
    let done = pair.host.take_completions();
    assert_eq!(done.iter().map(|done| done.slot).collect::<Vec<_>>(), [slot]);
    assert_eq!(pair.host.qpair.in_flight(), 0);
    done[0].cqe.status()
}

#[test]
fn two_answers_are_one() {
    let (ok, failed) = (Status::SUCCESS, Status::FUSED_FAILED);
    let conflict = Status::RESERVATION_CONFLICT;
    for (first, second, expected) in [
        (ok, ok, ok),
        (Status::COMPARE_FAILURE, failed, Status::COMPARE_FAILURE),
        (failed, conflict, conflict),
        (conflict, failed, conflict),
        (Status::COMMAND_INTERRUPTED, failed, Status::COMMAND_INTERRUPTED),
        // The state of the written data is unknown: another Compare would prove nothing.
        (ok, Status::WRITE_FAULT, Status::WRITE_FAULT.dnr()),
        (ok, Status::COMMAND_INTERRUPTED, Status::COMMAND_INTERRUPTED.dnr()),
        (ok, Status::ABORT_REQUESTED, Status::ABORT_REQUESTED.dnr()),
    ] {
        for second_is_first in [false, true] {
            let status = ended(first, second, second_is_first);
            assert_eq!(status, expected, "{first} {second}");
        }
    }
}

#[test]
fn a_pair_needs_room_for_two() {
    let mut pair = ConnectionPair::connected(PairSetup { entries: 4, ..PairSetup::default() });
    let (compare, write) = pair_of_commands();
    let now = pair.now;
    let mut submit = || {
        let slot = pair.host.qpair.submit_fused(now, (&compare, &write), BLOCK, Urgency::Urgent)?;
        pair.host.data[usize::from(slot)] = data();
        Some(slot)
    };
    assert!(submit().is_some());
    assert_eq!(submit(), None, "three commands at once: there is room for one");
}
