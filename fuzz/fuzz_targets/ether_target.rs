//! Any frames from a host into a target's end of a lane that executes all commands: no panic, data lies within the
//! damq, no more commands than slots, every frame sent is valid.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roadtrain_ether_proto::Packing;
use roadtrain_ether_proto::frame_writer::MemoryWriter;
use roadtrain_ether_proto::target_queue::{EtherTargetConfig, EtherTargetEvent, EtherTargetQpair};
use roadtrain_fuzz::cursor::InputCursor;
use roadtrain_fuzz::ether::{PIECE_BYTES, assert_right, frame, links};
use roadtrain_fuzz::policy;
use roadtrain_proto::policy::Class;
use roadtrain_proto::time::Instant;
use roadtrain_wire::ether::PAGE_BYTES;
use roadtrain_wire::status::Status;

const SLOTS: u16 = 4;
const PAGES: u32 = 6;

fuzz_target!(|input: &[u8]| {
    let mut cursor = InputCursor(input);
    let shape = cursor.byte();
    let config = EtherTargetConfig {
        slots: SLOTS,
        pages: PAGES,
        piece_bytes: PIECE_BYTES,
        data_bytes_max: 1 << 14,
        policy: policy(shape),
        packing: Packing { requests: shape & 1 != 0, pieces: shape & 2 != 0 },
        body_crc: shape & 4 != 0,
    };
    let mut qpair = EtherTargetQpair::new(config, links());
    qpair.set_connected(1, SLOTS + 1, shape & 8 == 0, Class::from_cattr(shape));
    let (mut now, mut newest) = (Instant(0), [0; 2]);
    // Slots with a command, and slots with data that was not released.
    let (mut executing, mut kept) = ([false; SLOTS as usize], [false; SLOTS as usize]);
    while !cursor.is_empty() {
        let (header, kind, body) = frame(&mut cursor, &mut newest);
        let mut commands = Vec::new();
        qpair.receive(now, &header, kind, &body, &mut |event| match event {
            EtherTargetEvent::Data { place, start, length, .. } => {
                assert!(place + u64::from(length) <= u64::from(PAGES) * PAGE_BYTES as u64);
                assert!(start + length as usize <= body.len());
            }
            EtherTargetEvent::Command { slot, place, data_bytes, room_bytes, .. } => {
                let end = place + u64::from(data_bytes);
                assert!(data_bytes == 0 || end <= u64::from(PAGES) * PAGE_BYTES as u64);
                assert!(data_bytes == 0 || room_bytes == 0);
                let was = std::mem::replace(&mut executing[usize::from(slot)], true);
                assert!(!was && !kept[usize::from(slot)], "a command over another");
                commands.push((slot, room_bytes));
            }
            EtherTargetEvent::Released { slot } => kept[usize::from(slot)] = false,
        });
        let answers = cursor.byte();
        for (slot, room_bytes) in commands {
            // Some commands stay in flight for ever.
            if answers & 1 << slot == 0 {
                executing[usize::from(slot)] = false;
                kept[usize::from(slot)] = true;
                match room_bytes {
                    0 => qpair.respond(now, slot, Status::SUCCESS, 7),
                    bytes => qpair.respond_with_data(now, slot, bytes, 0),
                }
            }
        }
        now.0 += u64::from(cursor.byte()) * 20_000;
        qpair.end.expire(now);
        qpair.batcher().drained(now);
        let mut writer = MemoryWriter::new(64, |slot, _: &mut [u8], _| {
            assert!(kept[usize::from(slot)], "data that was released");
        });
        while qpair.poll_tx(now, &mut writer) {
            assert_right(&writer.frames);
            writer.frames.clear();
        }
        assert!(!qpair.end.has_tx(now));
        assert!(qpair.in_flight() <= SLOTS.into());
    }
});
