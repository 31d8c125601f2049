//! Every frame and record, byte for byte. Another program has made the bytes from the page alone.

use roadtrain_wire::cqe::Cqe;
use roadtrain_wire::ether::setup::{
    ADDRESSES_MAX, JoinBody, JoinedBody, LeaveBody, LeaveReason, OfferBody, QueryBody, addresses,
    join_flags, with_nqn,
};
use roadtrain_wire::ether::{
    CargoRecord, CargoRecords, CommandRecord, CompletionRecord, DATA_RECORD_BYTES, DataRecord,
    ETHERTYPE, EthernetHeader, FrameHeader, FrameType, GROUP, MacAddress, RecordHead, RecordKind,
    VERSION, flags, padded, parse, set_hcrc,
};
use roadtrain_wire::sqe::{FLAG_SGL, Sqe, opcode};
use roadtrain_wire::zerocopy::{FromBytes, IntoBytes};

const NQN: &str = "nqn.2026-01.org.roadtrain:t";
const NQN_LENGTH: u16 = NQN.len() as u16;
const HOST_TOKEN: u64 = 0x1122_3344_5566_7788;
const TARGET_TOKEN: u64 = 0x99aa_bbcc_ddee_ff00;
const HOST_SOCKET: u16 = 0x4711;
const TARGET_SOCKET: u16 = 0x0815;
const ZEROES: &str = "00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00";
const NQN_BYTES: &str =
    "6e 71 6e 2e 32 30 32 36 2d 30 31 2e 6f 72 67 2e 72 6f 61 64 74 72 61 69 6e 3a 74";

fn bytes(lines: &[&str]) -> Vec<u8> {
    let byte = |text| u8::from_str_radix(text, 16).expect("two digits");
    lines.iter().flat_map(|line| line.split_whitespace()).map(byte).collect()
}

/// A header from the host to the target's listener.
fn to_listener(kind: FrameType) -> FrameHeader {
    FrameHeader {
        version: VERSION,
        kind: kind as u8,
        reply: HOST_SOCKET.into(),
        ..FrameHeader::default()
    }
}

/// A header from the target to the host.
fn to_host(kind: FrameType) -> FrameHeader {
    FrameHeader {
        version: VERSION,
        kind: kind as u8,
        token: HOST_TOKEN.into(),
        socket_number: HOST_SOCKET.into(),
        reply: TARGET_SOCKET.into(),
        link: 1,
        ..FrameHeader::default()
    }
}

/// Checks that the frame is built to `expected`, and parsed to its fields again.
fn assert_frame(mut header: FrameHeader, body: &[u8], expected: &[&str]) {
    header.body = (body.len() as u16).into();
    set_hcrc(&mut header);
    let built = [header.as_bytes(), body].concat();
    let expected = bytes(expected);
    assert_eq!(format!("{built:02x?}"), format!("{expected:02x?}"));
    let (seen, kind, seen_body) = parse(&expected).expect("a frame");
    assert_eq!((seen, seen_body), (header, body));
    assert_eq!(kind as u8, header.kind);
}

#[test]
fn ethernet_header() {
    let header = EthernetHeader {
        destination: GROUP,
        source: MacAddress([2, 0, 0, 0, 0, 9]),
        ethertype: ETHERTYPE.into(),
    };
    assert_eq!(header.as_bytes(), bytes(&["03 52 54 4e 56 4d", "02 00 00 00 00 09", "88 b5"]));
}

#[test]
fn discover() {
    let expected = [
        "01 01 00 00 8e f3 31 ef 00 00 00 00 00 00 00 00",
        "00 00 11 47 00 00 1b 00 00 00 00 00 00 00 00 00",
        ZEROES,
        ZEROES,
        NQN_BYTES,
    ];
    assert_frame(to_listener(FrameType::Discover), NQN.as_bytes(), &expected);
}

#[test]
fn offer() {
    let endpoint = core::array::from_fn(|index| 0x10 + index as u8);
    let offer = OfferBody {
        endpoint,
        frame: 9000.into(),
        nqn_length: NQN_LENGTH.into(),
        reserved: 0.into(),
    };
    let body = [offer.as_bytes(), NQN.as_bytes()].concat();
    assert_eq!(with_nqn(&body, |o: &OfferBody| o.nqn_length.get()), Some((&offer, NQN)));
    let expected = [
        "01 02 00 00 75 78 1d fe 00 00 00 00 00 00 00 00",
        "11 47 15 08 00 00 33 00 00 00 00 00 00 00 00 00",
        ZEROES,
        ZEROES,
        "10 11 12 13 14 15 16 17 18 19 1a 1b 1c 1d 1e 1f",
        "28 23 1b 00 00 00 00 00",
        NQN_BYTES,
    ];
    let header = FrameHeader { token: 0.into(), link: 0, ..to_host(FrameType::Offer) };
    assert_frame(header, &body, &expected);
}

#[test]
fn join() {
    let join = JoinBody {
        token: HOST_TOKEN.into(),
        first: 0xffff_fff0.into(),
        frame: 9000.into(),
        piece: 4096.into(),
        link: 1,
        links: 2,
        slots: 128.into(),
        flags: join_flags::CRC.into(),
        nqn_length: NQN_LENGTH.into(),
        endpoint: core::array::from_fn(|index| 0x10 + index as u8),
    };
    let body = [join.as_bytes(), NQN.as_bytes()].concat();
    assert_eq!(with_nqn(&body, |j: &JoinBody| j.nqn_length.get()), Some((&join, NQN)));
    let expected = [
        "01 03 00 00 6b 10 ba 3c 00 ff ee dd cc bb aa 99",
        "00 00 11 47 01 00 43 00 00 00 00 00 00 00 00 00",
        ZEROES,
        ZEROES,
        "88 77 66 55 44 33 22 11 f0 ff ff ff 28 23 00 10",
        "01 02 80 00 01 00 1b 00",
        "10 11 12 13 14 15 16 17 18 19 1a 1b 1c 1d 1e 1f",
        NQN_BYTES,
    ];
    let header =
        FrameHeader { token: TARGET_TOKEN.into(), link: 1, ..to_listener(FrameType::Join) };
    assert_frame(header, &body, &expected);
}

#[test]
fn joined() {
    let joined = JoinedBody {
        status: 0.into(),
        slots: 64.into(),
        token: TARGET_TOKEN.into(),
        first: 0x0102_0304.into(),
        pages: 0x2000.into(),
        frame: 1500.into(),
        window: 1024.into(),
    };
    let expected = [
        "01 04 00 00 10 3a aa f5 88 77 66 55 44 33 22 11",
        "11 47 15 08 01 00 24 00 00 00 00 00 00 00 00 00",
        ZEROES,
        ZEROES,
        "00 00 40 00 00 ff ee dd cc bb aa 99 04 03 02 01",
        "00 20 00 00 dc 05 00 04 02 00 00 00 00 01 02 00",
        "00 00 00 02",
    ];
    let at = [1, 2].map(|last| MacAddress([2, 0, 0, 0, 0, last]));
    let body = [joined.as_bytes(), &at[0].0, &at[1].0].concat();
    assert_frame(to_host(FrameType::Joined), &body, &expected);
    let (_, rest) = JoinedBody::ref_from_prefix(&body).unwrap();
    assert!(addresses(rest).eq(at));
    assert!(addresses(&rest[..11]).eq([at[0]]), "not half an address");
    assert_eq!(addresses(&[0; 6000]).count(), ADDRESSES_MAX);
}

#[test]
fn probe_and_probed() {
    let probe = [
        "01 05 00 00 59 d0 28 8d 00 00 00 00 00 00 00 00",
        "00 00 11 47 01 00 08 00 00 00 00 00 00 00 00 00",
        ZEROES,
        ZEROES,
        "00 00 00 00 00 00 00 00",
    ];
    assert_frame(FrameHeader { link: 1, ..to_listener(FrameType::Probe) }, &[0; 8], &probe);
    let probed = [
        "01 06 00 00 d5 f7 c5 40 00 00 00 00 00 00 00 00",
        "11 47 00 00 01 00 02 00 00 00 00 00 00 00 00 00",
        ZEROES,
        ZEROES,
        "48 00",
    ];
    let header = FrameHeader { token: 0.into(), reply: 0.into(), ..to_host(FrameType::Probed) };
    assert_frame(header, &72u16.to_le_bytes(), &probed);
}

#[test]
fn query() {
    let query = QueryBody {
        token: TARGET_TOKEN.into(),
        host_token: HOST_TOKEN.into(),
        nqn_length: NQN_LENGTH.into(),
        reserved: [0; 6],
    };
    let body = [query.as_bytes(), NQN.as_bytes()].concat();
    assert_eq!(with_nqn(&body, |q: &QueryBody| q.nqn_length.get()), Some((&query, NQN)));
    let expected = [
        "01 07 00 00 3f 8b 70 76 00 ff ee dd cc bb aa 99",
        "00 00 11 47 00 00 33 00 00 00 00 00 00 00 00 00",
        ZEROES,
        ZEROES,
        "00 ff ee dd cc bb aa 99 88 77 66 55 44 33 22 11",
        "1b 00 00 00 00 00 00 00",
        NQN_BYTES,
    ];
    let header = FrameHeader { token: TARGET_TOKEN.into(), ..to_listener(FrameType::Query) };
    assert_frame(header, &body, &expected);
}

fn command() -> CommandRecord {
    CommandRecord {
        head: RecordHead::new(RecordKind::Command, 80, 5, 0x12_3456),
        sqe: Sqe {
            opcode: opcode::WRITE,
            flags: FLAG_SGL,
            cid: 5.into(),
            nsid: 1.into(),
            cdw10: 2.into(),
            cdw11: 1.into(),
            cdw12: 7.into(),
            ..Sqe::default()
        },
        position: 0x30.into(),
        bytes: 10.into(),
    }
}

fn data() -> DataRecord {
    DataRecord {
        head: RecordHead::new(RecordKind::Data, DATA_RECORD_BYTES + 10, 5, 0x12_3456),
        offset: 0.into(),
        position: 0x30.into(),
        index: 0.into(),
        pieces: 1.into(),
        bytes: 10.into(),
    }
}

fn completion() -> CompletionRecord {
    CompletionRecord {
        head: RecordHead::new(RecordKind::Completion, 32, 9, 1),
        cqe: Cqe {
            dw0: 0x11.into(),
            dw1: 0x22.into(),
            sqhd: 3.into(),
            sqid: 1.into(),
            cid: 9.into(),
            status: 0x4002.into(),
        },
        pieces: 2.into(),
        reserved: [0; 6],
    }
}

#[test]
fn cargo_with_every_record() {
    let mut body = [command().as_bytes(), data().as_bytes(), b"roadtrain!"].concat();
    body.resize(80 + padded(DATA_RECORD_BYTES + 10), 0);
    body.extend_from_slice(completion().as_bytes());
    let header = FrameHeader {
        flags: (flags::CRC | flags::ASK | flags::SEQ).into(),
        token: TARGET_TOKEN.into(),
        socket_number: TARGET_SOCKET.into(),
        link: 1,
        seq: 0xffff_fff5.into(),
        base: 0xffff_fff2.into(),
        ack: 0x0102_0310.into(),
        delay_us: 250.into(),
        credits: 1000.into(),
        sack: 0x8000_0000_0000_0005.into(),
        bcrc: 0xe1d4_e719.into(),
        ..to_listener(FrameType::Cargo)
    };
    let expected = [
        "01 08 07 00 cc ee f7 72 00 ff ee dd cc bb aa 99",
        "15 08 11 47 01 00 98 00 f5 ff ff ff f2 ff ff ff",
        "10 03 02 01 fa 00 e8 03 05 00 00 00 00 00 00 80",
        "19 e7 d4 e1 00 00 00 00 00 00 00 00 00 00 00 00",
        "01 12 50 00 05 00 56 34 01 40 05 00 01 00 00 00",
        ZEROES,
        ZEROES,
        "02 00 00 00 01 00 00 00 07 00 00 00 00 00 00 00",
        "00 00 00 00 00 00 00 00 30 00 00 00 0a 00 00 00",
        "02 12 22 00 05 00 56 34 00 00 00 00 30 00 00 00",
        "00 00 01 00 0a 00 00 00 72 6f 61 64 74 72 61 69",
        "6e 21 00 00 00 00 00 00 03 00 20 00 09 00 01 00",
        "11 00 00 00 22 00 00 00 03 00 01 00 09 00 02 40",
        "02 00 00 00 00 00 00 00",
    ];
    assert_frame(header, &body, &expected);
    let records: Vec<CargoRecord<'_>> =
        CargoRecords::new(&body).map(|record| record.expect("sense")).collect();
    let [
        CargoRecord::Command(first),
        CargoRecord::Data { data: second, start, bytes },
        CargoRecord::Completion(third),
    ] = records[..]
    else {
        panic!("{records:?}");
    };
    assert_eq!((*first, *second, *third), (command(), data(), completion()));
    assert_eq!((start, bytes), (104, &b"roadtrain!"[..]));
    assert_eq!([first.head, second.head].map(|head| head.generation()), [0x12_3456; 2]);
}

#[test]
fn ack() {
    let header = FrameHeader {
        base: 0x0102_0304.into(),
        ack: 0xffff_fff6.into(),
        delay_us: u16::MAX.into(),
        sack: 0xff.into(),
        ..to_host(FrameType::Ack)
    };
    let body = [1u64, 1 << 63].map(u64::to_le_bytes).concat();
    let expected = [
        "01 09 00 00 a9 7c 1a 11 88 77 66 55 44 33 22 11",
        "11 47 15 08 01 00 10 00 00 00 00 00 04 03 02 01",
        "f6 ff ff ff ff ff 00 00 ff 00 00 00 00 00 00 00",
        ZEROES,
        "01 00 00 00 00 00 00 00 00 00 00 00 00 00 00 80",
    ];
    assert_frame(header, &body, &expected);
}

#[test]
fn leave() {
    let leave = LeaveBody {
        token: TARGET_TOKEN.into(),
        reason: (LeaveReason::Done as u16).into(),
        endpoint: [0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6],
    };
    let expected = [
        "01 0a 00 00 e4 49 6a 45 88 77 66 55 44 33 22 11",
        "11 47 00 00 00 00 10 00 00 00 00 00 00 00 00 00",
        ZEROES,
        ZEROES,
        "00 ff ee dd cc bb aa 99 02 00 a1 a2 a3 a4 a5 a6",
    ];
    let header = FrameHeader { reply: 0.into(), link: 0, ..to_host(FrameType::Leave) };
    assert_frame(header, leave.as_bytes(), &expected);
    let (seen, _) = LeaveBody::ref_from_prefix(leave.as_bytes()).expect("long enough");
    assert_eq!(LeaveReason::from_value(seen.reason.get()), Some(LeaveReason::Done));
}

#[test]
fn types_and_reasons_are_those_of_the_page() {
    let types: Vec<u8> = (0..=255).filter(|&byte| FrameType::from_byte(byte).is_some()).collect();
    assert_eq!(types, (1..=10).collect::<Vec<u8>>());
    let reasons: Vec<u16> =
        (0..100).filter(|&value| LeaveReason::from_value(value).is_some()).collect();
    assert_eq!(reasons, [1, 2, 3, 4]);
}
