//! Abort of commands that wait for data, for a buffer, or for the store: nothing of them is executed afterwards.

use crate::harness::*;
use crate::peer::*;
use roadtrain_host_engine::AdminConnection;
use roadtrain_system::buffer::Buffer;
use roadtrain_wire::fabrics::{Property, PropertySize, fabrics_sqe, fctype, property};
use roadtrain_wire::pdu::PduType;
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::status::Status;
use std::time::Duration;

const LENGTH: u32 = 65536;

/// Aborts command `cid` of queue `qid`. Returns true if it was aborted.
fn abort(admin: &mut AdminConnection, qid: u16, cid: u16) -> bool {
    let mut sqe = Sqe::new(opcode::ABORT, 0);
    sqe.cdw10 = (u32::from(qid) | u32::from(cid) << 16).into();
    admin.run("Abort", &sqe, &[], &mut []).unwrap().dw0.get() & 1 == 0
}

/// The data is in flight when the write is aborted: it is discarded, and the connection stays.
#[test]
fn a_write_is_not_executed_when_its_data_comes_after_its_abort() {
    let mut harness = EngineHarness::new();
    harness.client.write(1, 0, pattern(LENGTH as usize, 7), false).unwrap();
    let mut peer = harness.queue(raw::PLAIN);
    peer.send(&write(2, LENGTH, raw::PLAIN));
    let ttag = peer.r2t(2);
    let half = [1; LENGTH as usize / 2];
    let first = raw::h2c_data(2, ttag, 0, &half, false);
    let second = raw::h2c_data(2, ttag, LENGTH / 2, &half, true);
    peer.send(&first[..first.len() / 2]); // into the middle of a piece
    let EngineHarness { server, admin, .. } = &mut harness;
    std::thread::scope(|scope| {
        let aborting = scope.spawn(|| abort(admin, 1, 2));
        eventually("its buffer is given back", || server.usage().buffer_bytes == 0);
        peer.send(&first[first.len() / 2..]);
        peer.send(&second);
        assert_eq!(peer.completion(2), Status::ABORT_REQUESTED);
        aborting.join().unwrap(); // aborted, unless this machine took a second for that
    });
    let kept = harness.client.read(1, 0, Buffer::alloc(LENGTH as usize)).unwrap();
    assert!(*kept == *pattern(LENGTH as usize, 7), "it was executed");
    peer.send(&raw::flush(3));
    assert!(peer.completion(3).is_success());
    assert!(!abort(&mut harness.admin, 1, 3), "it has ended");
    drop(peer);
    harness.assert_healthy();
}

/// The Abort does not wait forever, and the write is not executed whenever its data arrives.
#[test]
fn an_abort_does_not_wait_for_data_that_does_not_come() {
    let mut harness = EngineHarness::new();
    harness.client.write(1, 0, pattern(LENGTH as usize, 7), false).unwrap();
    let mut peer = harness.queue(raw::PLAIN);
    peer.send(&write(2, LENGTH, raw::PLAIN));
    let ttag = peer.r2t(2);
    assert!(!abort(&mut harness.admin, 1, 2), "nothing can be said of it yet");
    peer.send(&raw::h2c_data(2, ttag, 0, &[1; LENGTH as usize], true));
    assert_eq!(peer.completion(2), Status::ABORT_REQUESTED);
    let kept = harness.client.read(1, 0, Buffer::alloc(LENGTH as usize)).unwrap();
    assert!(*kept == *pattern(LENGTH as usize, 7), "it was executed");
    drop(peer);
    harness.assert_healthy();
}

#[test]
fn commands_that_wait_for_a_buffer_are_aborted() {
    let mut harness = EngineHarness::scarce(|_| {});
    let mut holder = harness.queue_of(1, ENTRIES);
    harness.hold_buffers(&mut holder);
    let mut peer = harness.queue_of(2, ENTRIES);
    peer.send(&write(2, LENGTH, raw::PLAIN));
    peer.send(&read(3, LENGTH));
    peer.send(&raw::flush(4)); // needs no buffer; it arrives after the commands before it
    assert!(peer.completion(4).is_success());
    for cid in [3, 2] {
        assert!(abort(&mut harness.admin, 2, cid));
        assert_eq!(peer.completion(cid), Status::ABORT_REQUESTED);
    }
    assert!(!abort(&mut harness.admin, 2, 2), "it has ended");
    drop(holder);
    peer.send(&read(5, LENGTH));
    let (kind, _) = peer.next().unwrap();
    assert_eq!(kind, PduType::C2hData as u8);
    drop(peer);
    harness.assert_healthy();
}

/// Not even the reserve has a buffer for data that has arrived: the lane receives nothing more until the data is
/// discarded.
#[test]
fn data_in_a_capsule_that_waits_for_a_buffer_passes_when_it_is_aborted() {
    const RESERVED: u16 = 16;
    let mut harness = EngineHarness::scarce(|_| {});
    let data = [1; 8192];
    let mut holders: Vec<_> =
        (1..=RESERVED + 1).map(|qid| harness.queue_of(qid, ENTRIES)).collect();
    harness.hold_buffers(&mut holders[0]);
    for holder in &mut holders[1..] {
        holder.send(&raw::write_in_capsule(2, &data, raw::PLAIN)[..5000]);
    }
    eventually("the reserve is used up", || {
        harness.server.usage().reserved_buffers == usize::from(RESERVED)
    });
    let qid = RESERVED + 2;
    let mut peer = harness.queue_of(qid, ENTRIES);
    peer.send(&raw::write_in_capsule(2, &data, raw::PLAIN));
    peer.send(&raw::flush(3));
    // There is nothing to abort before the command has arrived, which the test cannot observe.
    eventually("it is aborted", || abort(&mut harness.admin, qid, 2));
    assert_eq!(peer.completion(2), Status::ABORT_REQUESTED);
    assert!(peer.completion(3).is_success(), "the lane receives again");
    drop((holders, peer));
    harness.assert_healthy();
    let first = harness.client.read(1, 0, Buffer::alloc(512)).unwrap();
    assert!(first[..] != data[..512], "it was executed");
}

#[test]
fn commands_that_wait_for_an_emulated_ssd_are_aborted() {
    const HOUR: Duration = Duration::from_secs(3600);
    let config = server_config(vec![ssd(1, MIB, BLOCK, HOUR, 1)]);
    let mut harness = EngineHarness::with(config);
    let mut peer = harness.queue(raw::PLAIN);
    peer.send(&read(2, 4096));
    peer.send(&raw::flush(3));
    let mut sqe = Sqe::rw(opcode::WRITE, 1, 0, 8);
    sqe.set_in_capsule(4096);
    peer.send(&raw::command(4, sqe, &[1; 4096], raw::PLAIN));
    eventually("they wait", || harness.server.usage().store_commands == 3);
    for cid in [4, 2, 3] {
        assert!(abort(&mut harness.admin, 1, cid), "{cid}");
        assert_eq!(peer.completion(cid), Status::ABORT_REQUESTED);
    }
    assert_eq!(harness.server.usage().store_commands, 0);
    assert!(!abort(&mut harness.admin, 1, 2), "it has ended");
    assert!(!abort(&mut harness.admin, 7, 2), "no such queue");
}

/// A reset does not abort commands in a store: RDY stays 1 until they have completed.
#[test]
fn a_reset_is_over_when_no_command_is_in_the_store() {
    const SERVICE: Duration = Duration::from_secs(1);
    let is_reset = |reset: bool| {
        let mut config = server_config(vec![ssd(1, MIB, BLOCK, SERVICE, 1)]);
        config.cores = reactors(2);
        let mut harness = EngineHarness::with(config);
        let mut peer = harness.queue(raw::PLAIN);
        peer.send(&read(2, 4096));
        eventually("it is in the store", || harness.server.usage().store_commands == 1);
        if !reset {
            // The reset also waits for a lane that the host has disconnected.
            peer.send(&raw::command(3, fabrics_sqe(fctype::DISCONNECT), &[], raw::PLAIN));
            assert!(peer.completion(3).is_success());
        }
        harness.admin.run("reset", &Property::set(property::CC, 0), &[], &mut []).unwrap();
        peer.assert_ends();
        let get = Property::get(property::CSTS, PropertySize::Four);
        let mut is_ready = || {
            let csts = harness.admin.run("CSTS", &get, &[], &mut []).unwrap();
            csts.dw0.get() & 1 != 0
        };
        eventually("the reset is over", || !is_ready());
        assert_eq!(harness.server.usage().store_commands, 0, "a command is in the store");
    };
    std::thread::scope(|scope| {
        for reset in [false, true] {
            scope.spawn(move || is_reset(reset));
        }
    });
}
