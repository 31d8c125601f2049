//! Built frames are parsed again; any bytes are parsed without panic; damage is detected.

use proptest::prelude::*;
use roadtrain_wire::ether::setup::{
    JoinBody, JoinedBody, LeaveBody, OfferBody, QueryBody, with_nqn,
};
use roadtrain_wire::ether::{
    COMMAND_RECORD_BYTES, COMPLETION_RECORD_BYTES, CargoRecord, CargoRecords, CommandRecord,
    CompletionRecord, DATA_RECORD_BYTES, DataRecord, FRAME_HEADER_BYTES, FrameError, FrameHeader,
    FrameType, GENERATION_MASK, RECORDS_MAX, RecordHead, RecordKind, VERSION, flags, padded, parse,
    set_hcrc,
};
use roadtrain_wire::zerocopy::{FromBytes, IntoBytes};

/// CRC32C, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32| (crc >> 1) ^ ((crc & 1) * 0x82f6_3b78);
    let add = |crc: u32, byte: &u8| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc));
    !bytes.iter().fold(!0, add)
}

/// A frame of any type with any fields, sealed; its body's CRC is right if it has one.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let body = proptest::collection::vec(any::<u8>(), 0..300);
    (any::<[u8; FRAME_HEADER_BYTES]>(), 1u8..=10, body).prop_map(|(fields, kind, body)| {
        let mut header = FrameHeader::read_from_bytes(&fields).expect("as long");
        header.version = VERSION;
        header.kind = kind;
        header.body = (body.len() as u16).into();
        if header.flags.get() & flags::CRC != 0 {
            header.bcrc = crc32c(&body).into();
        }
        set_hcrc(&mut header);
        [header.as_bytes(), &body].concat()
    })
}

/// A record with its padding.
fn record() -> impl Strategy<Value = Vec<u8>> {
    let content = proptest::collection::vec(any::<u8>(), 0..200);
    (0..3, any::<[u8; COMMAND_RECORD_BYTES]>(), content).prop_map(|(kind, fields, content)| {
        let (kind, length) = match kind {
            0 => (RecordKind::Command, COMMAND_RECORD_BYTES),
            1 => (RecordKind::Data, DATA_RECORD_BYTES + content.len()),
            _ => (RecordKind::Completion, COMPLETION_RECORD_BYTES),
        };
        let (old, _) = RecordHead::read_from_prefix(&fields).expect("as long");
        let head = RecordHead::new(kind, length, old.slot.get(), old.generation());
        let mut bytes = [head.as_bytes(), &fields[8..length.min(DATA_RECORD_BYTES)]].concat();
        match kind {
            RecordKind::Data => bytes.extend_from_slice(&content),
            _ => bytes = [head.as_bytes(), &fields[8..length]].concat(),
        }
        bytes.resize(padded(length), 0);
        bytes
    })
}

/// The bytes of a record as it was viewed.
fn bytes_of(record: &CargoRecord<'_>) -> Vec<u8> {
    match record {
        CargoRecord::Command(command) => command.as_bytes().to_vec(),
        CargoRecord::Data { data, bytes, .. } => [data.as_bytes(), bytes].concat(),
        CargoRecord::Completion(completion) => completion.as_bytes().to_vec(),
    }
}

/// Checks that records lie inside the body, one behind the other, and do not exceed the maximum.
fn assert_consistent(body: &[u8]) {
    let mut count = 0;
    for record in CargoRecords::new(body) {
        count += 1;
        if let Ok(CargoRecord::Data { start, bytes, .. }) = record {
            assert_eq!(&body[start..start + bytes.len()], bytes);
        }
    }
    assert!(count <= body.len() / 8 + 1);
}

proptest! {
    #[test]
    fn any_bytes_are_no_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        if let Ok((_, _, body)) = parse(&bytes) {
            prop_assert!(FRAME_HEADER_BYTES + body.len() <= bytes.len());
        }
        assert_consistent(&bytes);
        let _ = with_nqn(&bytes, |offer: &OfferBody| offer.nqn_length.get());
        let _ = with_nqn(&bytes, |join: &JoinBody| join.nqn_length.get());
        let _ = with_nqn(&bytes, |query: &QueryBody| query.nqn_length.get());
        prop_assert_eq!(JoinedBody::ref_from_prefix(&bytes).is_ok(), bytes.len() >= 24);
        prop_assert_eq!(LeaveBody::ref_from_prefix(&bytes).is_ok(), bytes.len() >= 16);
    }

    #[test]
    fn frames_round_trip(frame in frame(), padding in 0usize..60) {
        let padded = [&frame[..], &vec![0x5a; padding]].concat();
        let (header, kind, body) = parse(&padded).expect("a frame");
        prop_assert_eq!([header.as_bytes(), body].concat(), frame);
        prop_assert_eq!(FrameType::from_byte(header.kind), Some(kind));
    }

    #[test]
    fn a_cut_frame_is_refused(frame in frame(), cut: proptest::sample::Index) {
        let length = cut.index(frame.len());
        prop_assert_eq!(parse(&frame[..length]).err(), Some(FrameError::Truncated));
    }

    /// All bits, not some: 512 bits are few.
    #[test]
    fn every_flipped_bit_of_a_header_is_found(frame in frame()) {
        for bit in 0..FRAME_HEADER_BYTES * 8 {
            let mut damaged = frame.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let expected = if bit < 8 { FrameError::Version } else { FrameError::HeaderCrc };
            prop_assert_eq!(parse(&damaged).err(), Some(expected), "bit {}", bit);
        }
    }

    /// Three damaged bits anywhere and a burst of up to 32 bits are found as well.
    #[test]
    fn damaged_headers_are_found(
        frame in frame(),
        bits in proptest::collection::btree_set(8..FRAME_HEADER_BYTES * 8, 1..4),
        (burst, at) in (1u32.., 1..FRAME_HEADER_BYTES - 4),
    ) {
        let mut damaged = frame.clone();
        for bit in bits {
            damaged[bit / 8] ^= 1 << (bit % 8);
        }
        prop_assert_eq!(parse(&damaged).err(), Some(FrameError::HeaderCrc));
        let mut damaged = frame;
        for (byte, flip) in damaged[at..].iter_mut().zip(burst.to_le_bytes()) {
            *byte ^= flip;
        }
        prop_assert_eq!(parse(&damaged).err(), Some(FrameError::HeaderCrc));
    }

    #[test]
    fn a_flipped_bit_of_a_body_with_crc_is_found(frame in frame(), at: proptest::sample::Index) {
        let (mut header, _, body) = parse(&frame).expect("a frame");
        prop_assume!(!body.is_empty());
        header.flags = (header.flags.get() | flags::CRC).into();
        header.bcrc = crc32c(body).into();
        set_hcrc(&mut header);
        let mut damaged = [header.as_bytes(), body].concat();
        prop_assert!(parse(&damaged).is_ok());
        let bit = at.index(body.len() * 8);
        damaged[FRAME_HEADER_BYTES + bit / 8] ^= 1 << (bit % 8);
        prop_assert_eq!(parse(&damaged).err(), Some(FrameError::BodyCrc));
    }

    #[test]
    fn unknown_types_are_refused(frame in frame(), kind in 11u8..) {
        let (mut header, _, body) = parse(&frame).expect("a frame");
        for kind in [0, kind] {
            header.kind = kind;
            set_hcrc(&mut header);
            let bytes = [header.as_bytes(), body].concat();
            prop_assert_eq!(parse(&bytes).err(), Some(FrameError::Type));
        }
    }

    #[test]
    fn heads_round_trip(length: u16, slot: u16, generation: u32) {
        let head = RecordHead::new(RecordKind::Data, length.into(), slot, generation);
        prop_assert_eq!((head.length.get(), head.slot.get()), (length, slot));
        prop_assert_eq!(head.generation(), generation & GENERATION_MASK);
    }

    #[test]
    fn records_round_trip(
        records in proptest::collection::vec(record(), 0..RECORDS_MAX),
        rest in proptest::collection::vec(any::<u8>(), 0..40),
    ) {
        let mut body = records.concat();
        let length = body.len();
        // A KIND of zero ends the list, whatever follows.
        body.push(0);
        body.extend_from_slice(&rest);
        for body in [&body[..length], &body] {
            let seen: Vec<_> = CargoRecords::new(body).map(|record| record.expect("sense")).collect();
            prop_assert_eq!(seen.len(), records.len());
            for (seen, built) in seen.iter().zip(&records) {
                let seen = bytes_of(seen);
                prop_assert_eq!(&seen[..], &built[..seen.len()]);
                prop_assert_eq!(padded(seen.len()), built.len());
            }
            assert_consistent(body);
        }
    }

    #[test]
    fn a_wrong_length_ends_the_list(
        before in proptest::collection::vec(record(), 0..4),
        mut record in record(),
        length: u16,
    ) {
        let (head, _) = RecordHead::read_from_prefix(&record).expect("as long");
        prop_assume!(head.length.get() != length);
        record[2..4].copy_from_slice(&length.to_le_bytes());
        let is_data = head.kind == RecordKind::Data as u8;
        let fits = (DATA_RECORD_BYTES..=record.len()).contains(&usize::from(length));
        let body = [before.concat(), record].concat();
        let seen: Vec<_> = CargoRecords::new(&body).collect();
        prop_assert!(seen[..before.len()].iter().all(Result::is_ok));
        prop_assert_eq!(seen[before.len()].is_ok(), is_data && fits);
        prop_assert!(seen[before.len()].is_ok() || seen.len() == before.len() + 1);
    }

    /// A body that was cut: whole records are parsed, and the rest is an error.
    #[test]
    fn cut_records_are_errors(
        records in proptest::collection::vec(record(), 1..8),
        cut: proptest::sample::Index,
    ) {
        let body = records.concat();
        let length = cut.index(body.len());
        let whole = CargoRecords::new(&body[..length]).take_while(Result::is_ok).count();
        let (mut end, mut expected) = (0, 0);
        for record in &records {
            let (head, _) = RecordHead::read_from_prefix(record).expect("as long");
            // Only the padding may be missing.
            expected += usize::from(end + usize::from(head.length.get()) <= length);
            end += record.len();
        }
        prop_assert_eq!(whole, expected);
    }

    #[test]
    fn setup_bodies_round_trip(fields: [u8; 40], nqn in "[!-~]{0,223}") {
        let length = nqn.len() as u16;
        let mut offer = OfferBody::read_from_bytes(&fields[..24]).expect("as long");
        offer.nqn_length = length.into();
        let body = [offer.as_bytes(), nqn.as_bytes(), &[0xff; 9]].concat();
        let seen = with_nqn(&body, |offer: &OfferBody| offer.nqn_length.get());
        prop_assert_eq!(seen, Some((&offer, &nqn[..])));
        let mut join = JoinBody::read_from_bytes(&fields).expect("as long");
        join.nqn_length = length.into();
        let body = [join.as_bytes(), nqn.as_bytes()].concat();
        let seen = with_nqn(&body, |join: &JoinBody| join.nqn_length.get());
        prop_assert_eq!(seen, Some((&join, &nqn[..])));
        let cut = &body[..body.len() - 1];
        prop_assert_eq!(with_nqn(cut, |join: &JoinBody| join.nqn_length.get()), None);
    }
}

#[test]
fn all_records_of_a_frame_are_read_however_many() {
    let record = CompletionRecord {
        head: RecordHead::new(RecordKind::Completion, COMPLETION_RECORD_BYTES, 0, 1),
        cqe: Default::default(),
        pieces: 0.into(),
        reserved: [0; 6],
    };
    for count in [RECORDS_MAX, RECORDS_MAX + 1, 2000] {
        let body = record.as_bytes().repeat(count);
        assert_eq!(CargoRecords::new(&body).filter(Result::is_ok).count(), count);
    }
}

#[test]
fn the_offsets_are_those_of_the_page() {
    use core::mem::offset_of;
    let header = [
        offset_of!(FrameHeader, hcrc),
        offset_of!(FrameHeader, token),
        offset_of!(FrameHeader, socket_number),
        offset_of!(FrameHeader, link),
        offset_of!(FrameHeader, body),
        offset_of!(FrameHeader, seq),
        offset_of!(FrameHeader, base),
        offset_of!(FrameHeader, ack),
        offset_of!(FrameHeader, delay_us),
        offset_of!(FrameHeader, credits),
        offset_of!(FrameHeader, sack),
        offset_of!(FrameHeader, bcrc),
    ];
    assert_eq!(header, [4, 8, 16, 20, 22, 24, 28, 32, 36, 38, 40, 48]);
    assert_eq!([offset_of!(CommandRecord, sqe), offset_of!(CommandRecord, position)], [8, 72]);
    assert_eq!([offset_of!(DataRecord, offset), offset_of!(DataRecord, index)], [8, 16]);
    assert_eq!([offset_of!(CompletionRecord, cqe), offset_of!(CompletionRecord, pieces)], [8, 24]);
}
