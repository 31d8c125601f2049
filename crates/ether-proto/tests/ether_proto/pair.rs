//! A host and a target queue pair against each other: all transfers of data, all parameters of ICReq and ICResp, all
//! cuts of the stream.

use crate::common::show;
use crate::common::{BLOCK, ConnectionPair, Delivery, PairSetup, pattern};
use roadtrain_host_proto::qpair::CommandTransfer;
use roadtrain_wire::fabrics::{AuthenticationFields, fctype};
use roadtrain_wire::pdu::{CapsuleCmd, CommonHeader, Digests, PduType, flag};
use roadtrain_wire::sqe::{SGL_OFFSET, SGL_TRANSPORT, Sqe, opcode};
use roadtrain_wire::status::Status;

const DELIVERIES: [Delivery; 6] = [
    Delivery::Whole,
    Delivery::Pieces(1),
    Delivery::Pieces(7),
    Delivery::Pieces(4099),
    Delivery::Placed(5000),
    Delivery::Placed(3),
];

fn digests() -> impl Iterator<Item = Digests> {
    (0..4).map(|byte| Digests::from_byte(byte).expect("two bits"))
}

fn setups() -> impl Iterator<Item = PairSetup> {
    digests().flat_map(|digests| {
        [false, true].into_iter().flat_map(move |sq_flow_control| {
            DELIVERIES.map(|delivery| PairSetup {
                digests,
                sq_flow_control,
                delivery,
                ..PairSetup::default()
            })
        })
    })
}

/// Writes in the capsule and by R2T, reads both back, and checks every byte.
fn write_and_read(setup: PairSetup) {
    let mut pair = ConnectionPair::connected(setup);
    let (small, large) = (pattern(setup.in_capsule_bytes.max(BLOCK), 3), pattern(25 * BLOCK, 99));
    let now = pair.now;
    pair.host.write(now, 8, small.clone());
    pair.host.write(now, 200, large.clone());
    pair.settle().expect("valid");
    let done = pair.host.take_completions();
    assert_eq!(done.len(), 2, "{setup:?}");
    assert!(done.iter().all(|d| d.cqe.status().is_success() && d.data_intact), "{setup:?}");
    pair.host.read(now, 200, 25);
    pair.host.read(now, 8, small.len() as u32 / BLOCK);
    pair.host.flush(now);
    pair.settle().expect("valid");
    let done = pair.host.take_completions();
    assert_eq!(done.len(), 3, "{setup:?}");
    assert!(done.iter().all(|d| d.cqe.status().is_success() && d.data_intact), "{setup:?}");
    let data: Vec<&Vec<u8>> = done.iter().map(|d| &d.data).collect();
    assert!(data.contains(&&small) && data.contains(&&large), "{setup:?}");
    assert_eq!((pair.host.qpair.in_flight(), pair.target.qpair.in_flight()), (0, 0), "{setup:?}");
}

#[test]
fn data_survives_every_digest_flow_control_and_delivery() {
    setups().for_each(write_and_read);
}

#[test]
fn data_survives_every_alignment() {
    for pda in 0..=31 {
        for digests in digests() {
            write_and_read(PairSetup { digests, hpda: pda, cpda: pda, ..PairSetup::default() });
        }
    }
}

#[test]
fn data_starts_at_multiples_of_hpda_and_cpda() {
    for (hpda, cpda) in [(0, 31), (31, 0), (3, 7), (15, 2)] {
        let mut pair = ConnectionPair::connected(PairSetup {
            digests: Digests { header: true, data: true },
            hpda,
            cpda,
            ..PairSetup::default()
        });
        pair.host.write(pair.now, 0, pattern(BLOCK, 1));
        pair.host.write(pair.now, 0, pattern(32 * BLOCK, 1));
        pair.host.read(pair.now, 0, 4);
        let (from_host, from_target) = pair.settle().expect("valid");
        let aligned = |bytes: &[u8], pda: u8, kinds: &[PduType]| {
            let offsets = data_offsets(bytes, kinds);
            assert!(!offsets.is_empty());
            offsets.iter().all(|pdo| u32::from(*pdo) % (4 * (u32::from(pda) + 1)) == 0)
        };
        assert!(aligned(&from_host, cpda, &[PduType::CapsuleCmd]));
        assert!(aligned(&from_host, cpda, &[PduType::H2cData]));
        assert!(aligned(&from_target, hpda, &[PduType::C2hData]));
    }
}

/// Returns the PDO of every PDU of those kinds that carries data.
fn data_offsets(mut bytes: &[u8], kinds: &[PduType]) -> Vec<u8> {
    let mut offsets = Vec::new();
    while !bytes.is_empty() {
        let ch: &CommonHeader = show::at(bytes);
        if ch.pdo > 0 && kinds.iter().any(|&kind| kind as u8 == ch.pdu_type) {
            offsets.push(ch.pdo);
        }
        bytes = &bytes[ch.plen.get() as usize..];
    }
    offsets
}

#[test]
fn a_write_by_r2t_is_cut_at_maxh2cdata() {
    let mut pair =
        ConnectionPair::connected(PairSetup { maxh2cdata: 8192, ..PairSetup::default() });
    pair.host.write(pair.now, 0, pattern(40 * BLOCK, 1));
    let (from_host, _) = pair.settle().expect("valid");
    let lines = show::pdus(true, &from_host, Digests::default());
    insta::assert_snapshot!(lines.join("\n"), @r"
    CapsuleCmd opcode 0x01 cid 0x800 (pdo 0 plen 72)
    H2cData cid 0x800 0+8192 (pdo 24 plen 8216)
    H2cData cid 0x800 8192+8192 (pdo 24 plen 8216)
    H2cData cid 0x800 16384+4096 LAST (pdo 24 plen 4120)
    ");
}

/// The size of a capsule is known after Identify Controller: from then on, a write that fits carries its data.
#[test]
fn writes_carry_their_data_once_the_size_of_a_capsule_is_known() {
    let mut pair =
        ConnectionPair::connected(PairSetup { in_capsule_bytes: 0, ..PairSetup::default() });
    for (bytes, pdu_bytes) in [(0, 72), (BLOCK, 72 + BLOCK)] {
        pair.host.qpair.set_in_capsule_bytes(bytes);
        pair.host.write(pair.now, 0, pattern(BLOCK, 1));
        let (from_host, _) = pair.settle().expect("valid");
        let ch: &CommonHeader = show::at(&from_host);
        assert_eq!(ch.plen.get(), pdu_bytes, "{bytes} bytes");
    }
}

/// Linux's target never requests the data of an Authentication Send, and waits for it for ever.
#[test]
fn data_of_fabrics_commands_is_in_their_capsules() {
    let setup = PairSetup { in_capsule_bytes: 0, ..PairSetup::default() };
    for (length, pdu_bytes) in [(72, 72 + 72), (8192, 72 + 8192), (8193, 72)] {
        let mut pair = ConnectionPair::connected(setup);
        let sqe = AuthenticationFields::of_nvme(length).emit(fctype::AUTHENTICATION_SEND);
        pair.host.submit(pair.now, &sqe, CommandTransfer::Out(length), pattern(length, 7));
        let from_host = pair.host.send(pair.now);
        let ch: &CommonHeader = show::at(&from_host);
        assert_eq!(ch.plen.get(), pdu_bytes, "{length} bytes");
        let capsule: &CapsuleCmd = show::at(&from_host);
        let kind = if pdu_bytes > 72 { SGL_OFFSET } else { SGL_TRANSPORT };
        assert_eq!((capsule.sqe.sgl.kind, capsule.sqe.sgl.length.get()), (kind, length));
    }
}

#[test]
fn without_flow_control_the_data_says_success() {
    for (sq_flow_control, responses) in [(true, 1), (false, 0)] {
        let mut pair =
            ConnectionPair::connected(PairSetup { sq_flow_control, ..PairSetup::default() });
        pair.host.read(pair.now, 0, 8);
        let (_, from_target) = pair.settle().expect("valid");
        let lines = show::pdus(false, &from_target, Digests::default());
        assert_eq!(lines.iter().filter(|l| l.starts_with("CapsuleResp")).count(), responses);
        assert_eq!(lines.iter().any(|l| l.contains("SUCCESS")), !sq_flow_control);
        assert_eq!(pair.host.take_completions().len(), 1);
    }
}

/// NVMe over Fabrics: SQHD FFFFh in the response to Connect means that SQ flow control is off.
#[test]
fn the_connect_response_says_whether_flow_control_is_off() {
    for (sq_flow_control, sqhd) in [(true, 1), (false, 0xffff)] {
        let setup = PairSetup { sq_flow_control, ..PairSetup::default() };
        let mut pair = ConnectionPair::new(setup);
        pair.settle().expect("valid");
        pair.host.connect(pair.now, &setup);
        pair.settle().expect("valid");
        let done = pair.host.take_completions();
        assert_eq!(done[0].cqe.sqhd.get(), sqhd);
    }
}

#[test]
fn sqhd_follows_the_commands_and_wraps() {
    let mut pair = ConnectionPair::connected(PairSetup { entries: 4, ..PairSetup::default() });
    let mut heads = Vec::new();
    for _ in 0..9 {
        pair.host.flush(pair.now);
        pair.settle().expect("valid");
        heads.push(pair.host.take_completions()[0].cqe.sqhd.get());
    }
    assert_eq!(heads, [2, 3, 0, 1, 2, 3, 0, 1, 2]);
}

#[test]
fn a_full_queue_completes_out_of_order_and_frees_every_slot() {
    let mut pair = ConnectionPair::connected(PairSetup { entries: 32, ..PairSetup::default() });
    pair.target.hold = true;
    for round in 0..70 {
        for block in 0..31 {
            pair.host.write(pair.now, block, pattern(BLOCK, round ^ block as u8));
        }
        assert_eq!(pair.host.qpair.room(), 0);
        let sqe = Sqe::new(opcode::FLUSH, 1);
        let data = roadtrain_host_proto::qpair::CommandTransfer::None;
        let urgency = roadtrain_proto::policy::Urgency::Normal;
        assert_eq!(pair.host.qpair.submit(pair.now, &sqe, data, urgency), None);
        pair.settle().expect("valid");
        assert_eq!(pair.target.qpair.in_flight(), 31);
        pair.target.execute_held(pair.now);
        pair.settle().expect("valid");
        let done = pair.host.take_completions();
        assert_eq!(done.len(), 31);
        assert_eq!((pair.host.qpair.room(), pair.target.qpair.in_flight()), (31, 0));
    }
}

#[test]
fn a_wrong_data_digest_fails_only_its_command() {
    let digests = Digests { header: true, data: true };
    for write_bytes in [BLOCK, 20 * BLOCK] {
        let mut pair = ConnectionPair::connected(PairSetup { digests, ..PairSetup::default() });
        pair.host.write(pair.now, 0, pattern(write_bytes, 1));
        let mut out = pair.host.send(pair.now);
        if write_bytes > pair.setup.in_capsule_bytes {
            pair.target.receive(pair.now, &out, Delivery::Whole).expect("valid");
            let r2t = pair.target.send(pair.now);
            pair.host.receive(pair.now, &r2t, Delivery::Whole).expect("valid");
            out = pair.host.send(pair.now);
        }
        let middle = out.len() - 40;
        out[middle] ^= 0x10;
        pair.target.receive(pair.now, &out, Delivery::Whole).expect("not fatal");
        pair.settle().expect("valid");
        let done = pair.host.take_completions();
        assert!(done[0].cqe.status().is(Status::TRANSIENT_TRANSPORT_ERROR));
        assert!(pair.target.disk.iter().all(|&byte| byte == 0), "corrupt data was written");
    }
}

#[test]
fn a_read_with_a_wrong_data_digest_is_not_intact() {
    for sq_flow_control in [true, false] {
        let digests = Digests { header: false, data: true };
        let mut pair = ConnectionPair::connected(PairSetup {
            digests,
            sq_flow_control,
            ..PairSetup::default()
        });
        pair.host.read(pair.now, 0, 2);
        pair.host.read(pair.now, 0, 2);
        let out = pair.host.send(pair.now);
        pair.target.receive(pair.now, &out, Delivery::Whole).expect("valid");
        let mut back = pair.target.send(pair.now);
        back[100] ^= 1;
        pair.host.receive(pair.now, &back, Delivery::Whole).expect("not fatal");
        let done = pair.host.take_completions();
        assert!(done[0].cqe.status().is(Status::TRANSIENT_TRANSPORT_ERROR) && !done[0].data_intact);
        assert!(done[1].cqe.status().is_success() && done[1].data_intact);
    }
}

#[test]
fn an_error_completes_a_read_without_data() {
    let mut pair =
        ConnectionPair::connected(PairSetup { sq_flow_control: false, ..PairSetup::default() });
    pair.host.read(pair.now, 1 << 40, 8);
    pair.settle().expect("valid");
    let done = pair.host.take_completions();
    assert!(done[0].cqe.status().is(Status::LBA_OUT_OF_RANGE));
    assert!(!done[0].data_intact);
}

#[test]
fn digest_flags_are_on_every_pdu_that_has_them() {
    let digests = Digests { header: true, data: true };
    let mut pair = ConnectionPair::connected(PairSetup { digests, ..PairSetup::default() });
    pair.host.write(pair.now, 0, pattern(20 * BLOCK, 1));
    pair.host.read(pair.now, 0, 1);
    let (from_host, from_target) = pair.settle().expect("valid");
    for mut bytes in [&from_host[..], &from_target[..]] {
        while !bytes.is_empty() {
            let ch: &CommonHeader = show::at(bytes);
            assert_ne!(ch.flags & flag::HDGST, 0);
            assert_eq!(ch.flags & flag::DDGST != 0, ch.pdo > 0);
            bytes = &bytes[ch.plen.get() as usize..];
        }
    }
}
