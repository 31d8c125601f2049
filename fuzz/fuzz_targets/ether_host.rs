//! Any frames from a target into a host's end of a lane with commands in flight: no panic, every command completes at
//! most once, data lies within its buffer, every frame sent is valid.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roadtrain_ether_proto::Packing;
use roadtrain_ether_proto::frame_writer::MemoryWriter;
use roadtrain_ether_proto::host_queue::{EtherHostConfig, EtherHostEvent, EtherHostQpair};
use roadtrain_fuzz::cursor::InputCursor;
use roadtrain_fuzz::ether::{PIECE_BYTES, assert_right, frame, links};
use roadtrain_fuzz::policy;
use roadtrain_host_proto::qpair::CommandTransfer;
use roadtrain_proto::policy::Urgency;
use roadtrain_proto::time::Instant;
use roadtrain_wire::sqe::{Sqe, opcode};

/// Commands kept in flight, of every kind of data.
const COMMANDS: [(u8, CommandTransfer); 5] = [
    (opcode::READ, CommandTransfer::In(4096)),
    (opcode::WRITE, CommandTransfer::Out(512)),
    (opcode::WRITE, CommandTransfer::Out(8192)),
    (opcode::FLUSH, CommandTransfer::None),
    (opcode::READ, CommandTransfer::In(128)),
];

fuzz_target!(|input: &[u8]| {
    let mut cursor = InputCursor(input);
    let shape = cursor.byte();
    let config = EtherHostConfig {
        queue_entries: 5,
        pages: 4,
        piece_bytes: PIECE_BYTES,
        data_bytes_max: 1 << 16,
        policy: policy(shape),
        packing: Packing { requests: shape & 1 != 0, pieces: shape & 2 != 0 },
        body_crc: shape & 4 != 0,
    };
    let mut qpair = EtherHostQpair::new(config, links());
    let mut in_flight = [None; 4];
    let (mut now, mut newest, mut submitted) = (Instant(0), [0; 2], 0);
    while !cursor.is_empty() {
        let (opcode, data) = COMMANDS[submitted % COMMANDS.len()];
        let sqe = Sqe::rw(opcode, 1, 0, 1);
        if let Some(slot) = qpair.submit(now, &sqe, data, Urgency::Normal) {
            let was = in_flight[usize::from(slot)].replace(data);
            assert!(was.is_none(), "slot given twice");
            submitted += 1;
        }
        let (header, kind, body) = frame(&mut cursor, &mut newest);
        qpair.receive(now, &header, kind, &body, &mut |event| match event {
            EtherHostEvent::Data { slot, offset, start, length } => {
                let data = in_flight[usize::from(slot)].expect("data for an idle slot");
                let CommandTransfer::In(bytes) = data else { panic!("data for a write") };
                assert!(offset + length <= bytes && start + length as usize <= body.len());
            }
            EtherHostEvent::Complete { slot, .. } => {
                assert!(in_flight[usize::from(slot)].take().is_some(), "completed twice");
            }
        });
        now.0 += u64::from(cursor.byte()) * 20_000;
        qpair.end.expire(now);
        qpair.batcher().drained(now);
        let mut writer = MemoryWriter::new(64, |_, _: &mut [u8], _| ());
        while qpair.poll_tx(now, &mut writer) {
            assert_right(&writer.frames);
            writer.frames.clear();
        }
        assert!(!qpair.end.has_tx(now));
        assert_eq!(qpair.in_flight() as usize, in_flight.iter().flatten().count());
    }
});
