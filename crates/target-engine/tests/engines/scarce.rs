//! Few buffers: everything becomes slower, and nothing fails.

use crate::harness::*;
use crate::peer::{EngineHarness, raw, write};
use roadtrain_host_engine::{HostClient, IoOp};
use roadtrain_system::buffer::Buffer;
use roadtrain_target_engine::Server;
use std::sync::mpsc::channel;
use std::time::Duration;

/// Writes and then reads `count` slots at once, with lengths from `bytes`, over `lanes` lanes.
fn exercise(pool_bytes: u64, lanes: u32, count: u64, bytes: impl Fn(u64) -> usize) {
    const SLOT_BYTES: u64 = MIB;
    let directory = tempfile::tempdir().unwrap();
    let mut config = server_config(vec![file(1, &directory, count * SLOT_BYTES, 512)]);
    config.pool_bytes = pool_bytes as usize;
    let server = Server::start(config).unwrap();
    let mut config = host_config(address(&server));
    (config.lanes, config.queue_entries) = (lanes, 128);
    let client = HostClient::connect(config).unwrap();
    let (done, completions) = channel();
    for (op, seed) in [(IoOp::Write, 0), (IoOp::Read, 1 << 32)] {
        for slot in 0..count {
            let len = bytes(slot);
            let buffer = Some(pattern(len, slot + seed));
            let request = request(op, slot * (SLOT_BYTES / 512), (len / 512) as u32, buffer, slot);
            client.submit_to(request, &done);
        }
        for _ in 0..count {
            let completion = completions.recv_timeout(LONG).expect("every request ends");
            assert!(completion.status.is_success(), "{}", completion.status);
            let (slot, buffer) = (completion.token, completion.buffer.unwrap());
            assert!(*buffer == *pattern(bytes(slot), slot), "{op:?} of slot {slot}");
        }
    }
    drop(client);
    assert_nothing_left(&server);
}

#[test]
fn large_requests_wait_for_buffers() {
    exercise(2 * MIB, 2, 64, |_| 1 << 20);
}

#[test]
fn small_requests_wait_for_buffers() {
    exercise(2 * MIB, 8, 64, |slot| if slot % 2 == 0 { 65536 } else { 131_072 });
}

#[test]
fn data_in_capsules_waits_for_buffers() {
    exercise(2 * MIB, 8, 1000, |_| 16384);
}

#[test]
fn data_in_capsules_passes_writes_that_hold_every_buffer() {
    // Large writes take all buffers when their R2T is sent; capsules arrive before the data of these writes.
    for lanes in [1, 3] {
        exercise(2 * MIB, lanes, 120, |slot| if slot % 4 == 0 { 1 << 20 } else { 4096 });
    }
}

/// Also after repeated use, on every reactor, and if a buffer was in use for longer than the idle time.
#[test]
fn idle_memory_is_returned() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = server_config(vec![file(1, &directory, 4 * MIB, 512)]);
    (config.buffer_idle, config.cores) = (Duration::from_secs(1), reactors(2));
    let harness = EngineHarness::with(config);
    for bytes in [4096, 65536] {
        let kept = (0..8).map(|slba| {
            harness.client.write(1, slba, pattern(bytes, slba), false).unwrap();
            harness.server.usage().kept_bytes
        });
        assert!(kept.max() >= Some(bytes));
        eventually("memory goes back", || harness.server.usage().kept_bytes == 0);
    }
    let mut slow = harness.queue(raw::PLAIN);
    slow.send(&write(2, 65536, raw::PLAIN));
    let ttag = slow.r2t(2);
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(harness.server.usage().kept_bytes, 65536);
    slow.send(&raw::h2c_data(2, ttag, 0, &[1; 65536], true));
    assert!(slow.completion(2).is_success());
    eventually("memory goes back", || harness.server.usage().kept_bytes == 0);
}

#[test]
fn one_buffer_is_enough_for_a_compare() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = server_config(vec![file(1, &directory, 4 * MIB, 512)]);
    config.pool_bytes = 2 << 20;
    let server = Server::start(config).unwrap();
    let client = connect(&server);
    client.write(1, 0, pattern(1 << 20, 5), false).unwrap();
    client.compare(1, 0, pattern(1 << 20, 5)).unwrap();
    assert!(*client.read(1, 0, Buffer::alloc(1 << 20)).unwrap() == *pattern(1 << 20, 5));
}
