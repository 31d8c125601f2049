//! Idle peers with buffers lose them when others need buffers, and only then.

use crate::harness::*;
use crate::peer::*;
use roadtrain_host_engine::{HostClient, IoOp};
use std::sync::mpsc::channel;
use std::time::Duration;

fn harness(transfer_timeout: Duration) -> EngineHarness {
    EngineHarness::scarce(|config| config.transfer_timeout = transfer_timeout)
}

/// Checks that a write that needs a buffer succeeds eventually.
fn assert_goes_on(client: &HostClient) {
    let (done, completions) = channel();
    client.submit_to(request(IoOp::Write, 0, 128, Some(pattern(65536, 1)), 0), &done);
    let completion = completions.recv_timeout(LONG).expect("others are not kept waiting");
    assert!(completion.status.is_success(), "{}", completion.status);
}

#[test]
fn a_peer_that_does_not_send_its_data_is_ended() {
    let harness = harness(Duration::from_millis(200));
    let mut peer = harness.queue(raw::PLAIN);
    harness.hold_buffers(&mut peer);
    assert_goes_on(&harness.client);
    peer.assert_ends();
    harness.assert_healthy();
}

#[test]
fn a_peer_that_stops_within_its_data_is_ended() {
    let harness = harness(Duration::from_millis(200));
    let mut peer = harness.queue(raw::PLAIN);
    let ttag = harness.hold_buffers(&mut peer);
    peer.send(&raw::h2c_data(2, ttag, 0, &vec![1; LARGE as usize], true)[..5000]);
    assert_goes_on(&harness.client);
    peer.assert_ends();
    harness.assert_healthy();
}

#[test]
fn a_peer_that_does_not_take_its_answers_is_ended() {
    let harness = harness(Duration::from_millis(200));
    let entries = 128; // more than the sockets of both ends hold
    let mut peer = harness.queue_of(1, entries);
    for cid in 2..entries {
        peer.send(&read(cid, LARGE));
    }
    eventually("its connection is ended", || {
        assert_goes_on(&harness.client);
        harness.server.usage().connections == harness.connections
    });
    harness.assert_healthy();
}

#[test]
fn no_connection_ends_while_no_other_waits() {
    let harness = harness(Duration::from_millis(20));
    let mut peer = harness.queue(raw::PLAIN);
    let first = harness.hold_buffers(&mut peer);
    peer.send(&write(4, LARGE, raw::PLAIN)); // waits for its own buffer
    for round in 0..20 {
        harness.client.write(2, 0, pattern(65536, round), false).unwrap(); // needs no buffer
        std::thread::sleep(Duration::from_millis(20));
    }
    let data = vec![7; LARGE as usize];
    peer.send(&raw::h2c_data(2, first, 0, &data, true));
    assert!(peer.completion(2).is_success());
    let second = peer.r2t(4);
    peer.send(&raw::h2c_data(4, second, 0, &data, true));
    assert!(peer.completion(4).is_success());
    drop(peer);
    harness.assert_healthy();
}

/// A peer is not to blame if its data is queued behind a command without a buffer.
#[test]
fn a_peer_that_is_not_received_from_is_not_ended() {
    const BUFFERS: u16 = (SCARCE_BYTES >> 16) as u16;
    // A quarter of the buffers may wait for the data of one lane.
    const WRITES: u16 = BUFFERS / 4;
    const RESERVE: u16 = 16;
    let harness = harness(Duration::from_secs(2));
    let mut victim = harness.queue_of(1, ENTRIES);
    victim.send(&write(2, 65536, raw::PLAIN));
    let ttag = victim.r2t(2);
    let mut holder = harness.queue_of(2, 2 * BUFFERS);
    for cid in 2..2 + WRITES {
        holder.send(&write(cid, 65536, raw::PLAIN));
        holder.r2t(cid);
    }
    (2 + WRITES..=BUFFERS).for_each(|cid| holder.send(&slow_read(cid, 65536)));
    eventually("all buffers are out", || harness.server.usage().buffer_bytes == SCARCE_BYTES);
    let capsule = raw::write_in_capsule(2, &[1; 512], raw::PLAIN);
    let reserved = |qid| {
        let mut peer = harness.queue_of(qid, ENTRIES);
        peer.send(&capsule[..100]);
        peer
    };
    let reserved: Vec<RawPeer> = (3..3 + RESERVE).map(reserved).collect();
    eventually("the reserve is used up", || {
        harness.server.usage().reserved_buffers == usize::from(RESERVE)
    });
    victim.send(&raw::write_in_capsule(3, &[2; 512], raw::PLAIN));
    victim.send(&raw::h2c_data(2, ttag, 0, &[3; 65536], true));
    let mut completed = [(); 2].map(|()| victim.any_completion());
    completed.sort_by_key(|&(cid, _)| cid);
    assert!(matches!(completed, [(2, a), (3, b)] if a.is_success() && b.is_success()));
    holder.assert_ends();
    // Their time limit may not have passed, and no other connection waits any more.
    drop(reserved);
    drop(victim);
    harness.assert_healthy();
}
