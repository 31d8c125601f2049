//! Stores of an embedding program, at a running target.

#[path = "../../../store/tests/store/late.rs"]
mod late;
#[path = "../../examples/toy_store.rs"]
mod toy_store;

use crate::harness::*;
use late::LateStore;
use roadtrain_host_engine::{HostClient, IoOp};
use roadtrain_store::{
    InPlace, OpenError, SsdStore, Store, StoreCompletion, StoreGeometry, StoreIo, StoreKind,
    StoreOperation as StoreOp, StoreSpec, StoreToken, conformance, open,
};
use roadtrain_system::buffer::Buffer;
use roadtrain_target_engine::{Export, Server};
use roadtrain_wire::status::Status;
use std::fs::File;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;
use toy_store::XorStore;

const BYTES: usize = 4096;
const BLOCKS: u32 = 8;
const SLOTS: u64 = 200;

/// Starts a target with two reactors that serves `store`, and a host with five lanes.
fn pair(store: Arc<dyn Store>) -> (Server, HostClient) {
    let mut config = server_config(vec![Export::with_store(1, store)]);
    config.cores = reactors(2);
    let server = Server::start(config).unwrap();
    let mut config = host_config(address(&server));
    (config.lanes, config.cores, config.queue_entries) = (5, reactors(2), 64);
    let client = HostClient::connect(config).unwrap();
    (server, client)
}

/// Reads or writes all of `slots` at once, and checks the data. Each request completes once. Returns the failed ones.
fn run(client: &HostClient, op: IoOp, slots: &[u64], seed: u64) -> Vec<u64> {
    let (done, completions) = channel();
    for &slot in slots {
        let buffer =
            if op == IoOp::Write { pattern(BYTES, slot ^ seed) } else { Buffer::alloc(BYTES) };
        let request = request(op, slot * u64::from(BLOCKS), BLOCKS, Some(buffer), slot);
        client.submit_to(request, &done);
    }
    let (mut open, mut failed) = (slots.to_vec(), Vec::new());
    while !open.is_empty() {
        let completion = completions.recv_timeout(LONG).expect("every request ends");
        let slot = completion.token;
        let index = open.iter().position(|open| *open == slot).expect("once");
        open.swap_remove(index);
        match completion.status.is_success() {
            true => assert!(*completion.buffer.unwrap() == *pattern(BYTES, slot ^ seed), "{slot}"),
            false => failed.push(slot),
        }
    }
    failed
}

fn slots() -> Vec<u64> {
    (0..SLOTS).collect()
}

#[test]
fn a_store_may_answer_from_a_thread_late_and_out_of_order() {
    let late = LateStore::new(SLOTS * u64::from(BLOCKS), 0);
    let (server, client) = pair(Arc::new(late));
    for seed in 0..3 {
        assert!(run(&client, IoOp::Write, &slots(), seed << 32).is_empty());
        assert!(run(&client, IoOp::Read, &slots(), seed << 32).is_empty());
    }
    client.flush(1).unwrap();
    drop(client);
    assert_nothing_left(&server);
}

#[test]
fn errors_of_a_store_reach_the_command_that_they_are_of() {
    let late = LateStore::new(SLOTS * u64::from(BLOCKS), 5);
    let (server, client) = pair(Arc::new(late));
    for op in [IoOp::Write, IoOp::Read] {
        let (mut left, mut rounds) = (slots(), 0);
        while !left.is_empty() {
            let failed = run(&client, op, &left, 7);
            assert!(failed.len() <= left.len() / 5 + 1, "only one of five fails");
            assert!(rounds > 0 || failed.len() >= left.len() / 5 - 1, "{} fail", failed.len());
            (left, rounds) = (failed, rounds + 1);
            assert!(rounds < 100);
        }
    }
    drop(client);
    assert_nothing_left(&server);
}

/// Store that lends its memory, requires an announcement of in-place reads, and fails these.
#[derive(Debug)]
struct FailsReads(Arc<dyn Store>);

impl Store for FailsReads {
    fn geometry(&self) -> StoreGeometry {
        self.0.geometry()
    }

    fn identity(&self) -> Result<u128, OpenError> {
        self.0.identity()
    }

    fn in_place(&self) -> Option<InPlace> {
        self.0.in_place().map(InPlace::announced)
    }

    fn submit(&self, op: StoreOp, buffer: Option<Buffer>, token: StoreToken, io: &mut StoreIo<'_>) {
        match op {
            StoreOp::ReadInPlace { .. } => {
                let failed = Err(Status::WRITE_FAULT.dnr());
                io.complete(StoreCompletion::new(token, failed, buffer));
            }
            _ => self.0.submit(op, buffer, token, io),
        }
    }
}

#[test]
fn a_failed_in_place_read_is_reported() {
    let kind = StoreKind::Memory { size: MIB };
    let memory = open(&StoreSpec { kind, lba_bytes: 512, read_only: false }).unwrap();
    let (server, client) = pair(Arc::new(FailsReads(memory)));
    client.write(1, 0, pattern(BYTES, 1), false).unwrap();
    assert_eq!(run(&client, IoOp::Read, &slots(), 1).len(), slots().len());
    drop(client);
    assert_nothing_left(&server);
}

/// Hosts see the change without a reload.
#[test]
fn a_store_whose_size_changes_is_seen() {
    let late = Arc::new(LateStore::new(256, 0));
    let (server, client) = pair(Arc::new(XorStore::new(late.clone(), 0x5a)));
    for blocks in [512, 128, 1024] {
        late.becomes(blocks);
        let seen = || client.view().namespace(1).is_some_and(|n| n.blocks == blocks);
        eventually("the size is seen", seen);
        client.write(1, blocks - 8, pattern(BYTES, blocks), false).unwrap();
        let beyond = client.write(1, blocks - 7, pattern(BYTES, 0), false).unwrap_err();
        assert!(beyond.status.is(Status::LBA_OUT_OF_RANGE), "{beyond}");
    }
    drop(client);
    assert_nothing_left(&server);
}

/// Loop device that is detached on drop.
struct AttachedLoopDevice(String);

impl Drop for AttachedLoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

#[test]
fn a_block_device_that_grows_is_seen() {
    let directory = tempfile::tempdir().unwrap();
    let backing = directory.path().join("backing");
    let file = File::create(&backing).unwrap();
    file.set_len(MIB).unwrap();
    let attached = Command::new("losetup").args(["--find", "--show"]).arg(&backing).output();
    let node = match &attached {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout),
        _ => return eprintln!("SKIPPED a_block_device_that_grows_is_seen: no loop devices here"),
    };
    let device = AttachedLoopDevice(node.trim().to_owned());
    let kind = StoreKind::Block { path: device.0.clone().into() };
    let spec = StoreSpec { kind, lba_bytes: 512, read_only: false };
    let server = serve(vec![Export::new(1, spec)]);
    let client = connect(&server);
    file.set_len(4 * MIB).unwrap();
    let grown = Command::new("losetup").args(["--set-capacity", &device.0]).status().unwrap();
    assert!(grown.success());
    let blocks = || client.view().namespace(1).map(|namespace| namespace.blocks);
    eventually("the size is seen", || blocks() == Some(4 * MIB / 512));
    client.write(1, 8000, pattern(BYTES, 1), false).unwrap();
    drop((client, server));
}

/// The target waits for the commands in the store, and each completion reaches its own host.
#[test]
fn hosts_leave_while_a_store_has_their_commands() {
    let late = Arc::new(LateStore::new(SLOTS * u64::from(BLOCKS), 0));
    let (server, client) = pair(late.clone());
    for _ in 0..5 {
        let (done, completions) = channel();
        let other = connect(&server);
        for slot in slots() {
            let buffer = Some(pattern(BYTES, slot));
            other.submit_to(
                request(IoOp::Write, slot * u64::from(BLOCKS), BLOCKS, buffer, slot),
                &done,
            );
        }
        drop((other, completions));
        assert!(run(&client, IoOp::Write, &slots(), 1 << 40).is_empty());
    }
    drop(client);
    assert_nothing_left(&server);
    server.stop();
}

#[test]
fn a_store_on_top_of_a_file_changes_what_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk");
    let kind = StoreKind::File { path: path.clone(), size: Some(16 * MIB), create: true };
    let file = open(&StoreSpec { kind, lba_bytes: 512, read_only: false }).unwrap();
    let (server, client) = pair(Arc::new(XorStore::new(file, 0x5a)));
    assert!(run(&client, IoOp::Write, &slots(), 0).is_empty());
    assert!(run(&client, IoOp::Read, &slots(), 0).is_empty());
    client.flush(1).unwrap();
    let kept = std::fs::read(&path).unwrap();
    let plain = pattern(BYTES, 1);
    let slot = &kept[BYTES..2 * BYTES];
    assert!(slot != &plain[..], "it is not kept as it was written");
    let changed = |(kept, plain): (&u8, &u8)| kept == plain || kept ^ plain == 0x5a;
    assert!(slot.iter().zip(&plain[..]).all(changed));
    drop(client);
    assert_nothing_left(&server);
}

#[test]
fn the_toy_store_keeps_the_contract() {
    let memory = || {
        let kind = StoreKind::Memory { size: MIB };
        open(&StoreSpec { kind, lba_bytes: 512, read_only: false }).unwrap()
    };
    conformance::run(|| Arc::new(XorStore::new(memory(), 0x5a)));
    conformance::run(|| Arc::new(XorStore::new(Arc::new(LateStore::new(256, 0)), 0xff)));
    let paced = || SsdStore::new(memory(), Duration::from_micros(20), 4);
    conformance::run(|| Arc::new(XorStore::new(Arc::new(paced()), 1)));
}
