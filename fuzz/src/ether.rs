//! Lanes over Ethernet: frames from the bytes of an input, and checks of the frames sent.

use crate::cursor::InputCursor;
use roadtrain_ether_proto::channel::{ChannelConfig, WINDOW};
use roadtrain_ether_proto::frame_writer::MemoryFrame;
use roadtrain_ether_proto::links::LaneLinks;
use roadtrain_proto::time::Instant;
use roadtrain_wire::cqe::Cqe;
use roadtrain_wire::ether::{
    COMMAND_RECORD_BYTES, COMPLETION_RECORD_BYTES, CargoRecords, CommandRecord, CompletionRecord,
    DATA_RECORD_BYTES, DataRecord, FRAME_HEADER_BYTES, FrameHeader, FrameType, RecordHead,
    RecordKind, VERSION, flags, padded, parse,
};
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::status::Status;
use roadtrain_wire::zerocopy::IntoBytes;

/// Token of this end.
pub const TOKEN: u64 = 0x1234_5678_0000_0001;
/// Token of the peer.
pub const PEER_TOKEN: u64 = 0xfedc_ba98_0000_0002;
/// PIECE of the lane.
pub const PIECE_BYTES: u16 = 1408;
/// First SEQ of either end: numbers wrap soon after it.
const FIRST: u32 = u32::MAX - 20;
const FRAME_BYTES: u16 = 1500;
/// Links of a lane.
pub const LINKS: u8 = 2;

/// Returns the links of an end.
#[must_use]
pub fn links<R: Copy>() -> LaneLinks<R> {
    links_of(TOKEN, PEER_TOKEN)
}

/// Returns the links of an end with these tokens, its own first.
#[must_use]
pub fn links_of<R: Copy>(token: u64, peer_token: u64) -> LaneLinks<R> {
    let mut links = LaneLinks::new(token, peer_token, 7);
    for link in 0..LINKS {
        let config = ChannelConfig {
            link,
            first_tx: FIRST,
            first_rx: FIRST,
            window: WINDOW as u16,
            frame_bytes: FRAME_BYTES,
        };
        assert!(links.add(Instant(0), &config, 9));
    }
    links
}

/// Returns a frame from the input; `newest` is the SEQ of the last frame of each link.
pub fn frame(
    cursor: &mut InputCursor<'_>,
    newest: &mut [u32; LINKS as usize],
) -> (FrameHeader, FrameType, Vec<u8>) {
    let bits = cursor.byte();
    let kind = match bits & 7 {
        0..5 => FrameType::Cargo,
        5 => FrameType::Ack,
        _ => FrameType::from_byte(cursor.byte() % 10 + 1).expect("a type"),
    };
    let link = bits >> 3 & 1;
    let last = &mut newest[usize::from(link)];
    // Usually the next number.
    let seq =
        FIRST.wrapping_add(*last).wrapping_add(if bits & 0x10 != 0 { cursor.number() } else { 0 });
    *last = last.wrapping_add(1);
    let mut header = FrameHeader {
        version: VERSION,
        kind: kind as u8,
        flags: if kind == FrameType::Cargo { flags::SEQ } else { 0 }.into(),
        token: TOKEN.into(),
        link,
        seq: seq.into(),
        base: FIRST.into(),
        ack: FIRST.into(),
        credits: (WINDOW as u16).into(),
        ..FrameHeader::default()
    };
    if bits & 0x20 != 0 {
        header.base = FIRST.wrapping_add(cursor.number()).into();
        header.flags = (header.flags.get() ^ u16::from(cursor.byte() & 7)).into();
    }
    if bits & 0x40 != 0 {
        header.ack = FIRST.wrapping_add(cursor.number()).into();
        header.sack = (u64::from(cursor.number()) << 32 | u64::from(cursor.number())).into();
        header.credits = (cursor.number() as u16).into();
        header.delay_us = (cursor.number() as u16).into();
    }
    let mut body = Vec::new();
    for _ in 0..cursor.byte() % 8 {
        record(cursor, &mut body);
    }
    if bits & 0x80 != 0 {
        let length = usize::from(cursor.byte()).min(cursor.0.len());
        body.extend_from_slice(&cursor.0[..length]);
        cursor.0 = &cursor.0[length..];
    }
    (header, kind, body)
}

/// Appends a record from the input; dependent fields usually fit together.
fn record(cursor: &mut InputCursor<'_>, body: &mut Vec<u8>) {
    let bits = cursor.byte();
    let (slot, generation) = (u16::from(bits >> 3 & 3), u32::from(cursor.byte()) % 4);
    let bytes = u32::from(cursor.byte()) * 64;
    let position = cursor.number().into();
    let pieces = bytes.div_ceil(PIECE_BYTES.into()) as u16;
    match bits & 7 {
        0..3 => {
            let mut sqe = Sqe::rw(cursor.byte(), 1, 0, 1);
            sqe.cid = slot.into();
            let head = RecordHead::new(RecordKind::Command, COMMAND_RECORD_BYTES, slot, generation);
            let bytes = (bytes | u32::from(bits >> 7) << 31).into();
            body.extend_from_slice(CommandRecord { head, sqe, position, bytes }.as_bytes());
        }
        3..6 => {
            let index = u16::from(cursor.byte()) % 8;
            let offset = u32::from(index) * u32::from(PIECE_BYTES);
            let length = bytes.saturating_sub(offset).min(PIECE_BYTES.into()) as usize;
            let head =
                RecordHead::new(RecordKind::Data, DATA_RECORD_BYTES + length, slot, generation);
            let data = DataRecord {
                head,
                offset: offset.into(),
                position,
                index: index.into(),
                pieces: pieces.into(),
                bytes: bytes.into(),
            };
            body.extend_from_slice(data.as_bytes());
            body.resize(body.len() + padded(length), 0xab);
        }
        _ => {
            let kind = RecordKind::Completion;
            let head = RecordHead::new(kind, COMPLETION_RECORD_BYTES, slot, generation);
            let pieces = if bits & 0x20 != 0 { pieces } else { 0 }.into();
            let cqe = Cqe::new(slot, Status::from_field(u16::from(bits >> 6) << 1));
            body.extend_from_slice(
                CompletionRecord { head, cqe, pieces, reserved: [0; 6] }.as_bytes(),
            );
        }
    }
}

/// Asserts that the peer can parse the frames.
pub fn assert_right(frames: &[MemoryFrame]) {
    for frame in frames {
        let bytes = [frame.header.as_bytes(), &frame.body].concat();
        assert!(bytes.len() <= usize::from(FRAME_BYTES), "a frame of {} bytes", bytes.len());
        let (header, kind, body) = parse(&bytes).expect("we sent what is no frame");
        assert_eq!(header.token.get(), PEER_TOKEN);
        assert_eq!((header.link, bytes.len()), (frame.link, FRAME_HEADER_BYTES + body.len()));
        if kind == FrameType::Cargo {
            assert!(
                CargoRecords::new(body).all(|record| record.is_ok()),
                "a record makes no sense"
            );
            assert!(!body.is_empty() && header.flags.get() & flags::SEQ != 0);
        }
    }
}
