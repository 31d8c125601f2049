//! Peers that break the protocol: the target sends them a TermReq or closes the connection, and other hosts are
//! unaffected.

use crate::harness::*;
use crate::peer::*;
use roadtrain_system::buffer::Buffer;
use roadtrain_wire::fabrics::{Connect, ConnectData, Property, PropertySize, property};
use roadtrain_wire::pdu::{Fes, IcReq, PduType, header_digest};
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::status::Status;
use roadtrain_wire::zerocopy::IntoBytes;
use std::net::Shutdown;

#[test]
fn garbage_is_answered_with_a_term_req() {
    let harness = EngineHarness::new();
    for seed in 0..32 {
        let mut peer = harness.peer();
        peer.send(&pattern(4096, seed));
        peer.assert_ends();
    }
    for garbage in [vec![0xff; 8], raw::unknown(0x55), b"GET / HTTP/1.1\r\n\r\n".to_vec()] {
        let mut peer = harness.peer();
        peer.send(&garbage);
        peer.assert_terminated(Fes::InvalidPduHeaderField);
    }
    harness.assert_healthy();
}

#[test]
fn a_term_req_is_readable_behind_a_flood() {
    let harness = EngineHarness::new();
    for _ in 0..20 {
        let mut peer = harness.ready(raw::PLAIN);
        let mut flood = raw::icreq();
        flood.resize(200 << 10, 0xa5);
        peer.send(&flood);
        peer.assert_terminated(Fes::PduSequenceError);
    }
    harness.assert_healthy();
}

#[test]
fn wrong_digests_are_noticed() {
    let harness = EngineHarness::new();
    let mut peer = harness.queue(raw::BOTH);
    let mut pdu = raw::write_in_capsule(2, &[1; 512], raw::BOTH);
    let last = pdu.len() - 1;
    pdu[last] ^= 1; // of the data: the command fails, the connection stays
    peer.send(&pdu);
    assert!(peer.completion(2).is(Status::TRANSIENT_TRANSPORT_ERROR));
    peer.send(&raw::write_in_capsule(3, &[1; 512], raw::BOTH));
    assert!(peer.completion(3).is_success());
    let mut pdu = raw::write_in_capsule(4, &[1; 512], raw::BOTH);
    pdu[72] ^= 1; // of the header: the connection is lost
    assert_ne!(header_digest(&pdu[..72]), pdu[72..76]);
    peer.send(&pdu);
    peer.assert_terminated(Fes::HeaderDigestError);
    harness.assert_healthy();
}

#[test]
fn bytes_may_arrive_one_by_one() {
    let harness = EngineHarness::new();
    for digests in [raw::PLAIN, raw::BOTH] {
        let mut peer = harness.peer();
        let send = |peer: &mut RawPeer, bytes: &[u8]| {
            bytes.iter().for_each(|byte| peer.send(std::slice::from_ref(byte)));
        };
        send(&mut peer, IcReq::new(digests, 0, 0).as_bytes());
        assert_eq!(peer.next().unwrap().0, PduType::IcResp as u8);
        peer.digests = digests;
        send(&mut peer, &harness.connect_capsule(digests));
        assert!(peer.completion(1).is_success());
        send(&mut peer, &raw::write_in_capsule(2, &pattern(512, 77), digests));
        assert!(peer.completion(2).is_success());
        assert!(*harness.client.read(1, 0, Buffer::alloc(512)).unwrap() == *pattern(512, 77));
    }
    harness.assert_healthy();
}

#[test]
fn connections_cut_anywhere_leave_nothing() {
    let harness = EngineHarness::new();
    let capsule = raw::write_in_capsule(2, &[1; 4096], raw::PLAIN);
    for cut in [0, 1, 7, 8, 71, 72, 73, 2000, capsule.len() - 1] {
        let mut peer = harness.queue(raw::PLAIN);
        peer.send(&write(3, 1 << 20, raw::PLAIN));
        peer.send(&capsule[..cut]);
        match cut % 2 {
            0 => drop(peer),
            _ => {
                peer.socket.shutdown(Shutdown::Write).unwrap();
                peer.assert_ends();
            }
        }
    }
    harness.assert_healthy();
}

/// Completions that do not fit the socket wait, and arrive completely when the peer reads.
#[test]
fn a_peer_that_reads_late_gets_everything() {
    let harness = EngineHarness::new();
    let len = 1usize << 20;
    harness.client.write(1, 0, pattern(len, 3), false).unwrap();
    for digests in [raw::PLAIN, raw::BOTH] {
        let mut peer = harness.queue(digests);
        for cid in 2..ENTRIES {
            let mut sqe = Sqe::rw(opcode::READ, 1, 0, len as u32 / BLOCK);
            sqe.set_transport(len as u32);
            peer.send(&raw::command(cid, sqe, &[], digests));
        }
        harness.client.flush(1).unwrap(); // others continue
        let mut answered = std::collections::BTreeSet::new();
        while answered.len() < usize::from(ENTRIES) - 2 {
            let (kind, pdu) = peer.next().unwrap();
            assert_eq!(kind, PduType::C2hData as u8);
            assert!(pdu[usize::from(pdu[3])..][..len] == pattern(len, 3)[..]);
            assert!(answered.insert(pdu[8]), "answered twice");
        }
    }
    harness.assert_healthy();
}

#[test]
fn resets_while_completions_leave_harm_no_other_host() {
    let harness = EngineHarness::new();
    harness.client.write(1, 0, pattern(65536, 1), false).unwrap();
    for _ in 0..100 {
        let mut peer = harness.queue(raw::PLAIN);
        for cid in 2..ENTRIES {
            peer.send(&read(cid, 4096));
        }
        peer.socket.peek(&mut [0]).unwrap();
        for cid in 2..ENTRIES {
            peer.send(&read(cid, 65536));
        }
        drop(peer); // with unread bytes: a reset
        assert!(*harness.client.read(1, 0, Buffer::alloc(65536)).unwrap() == *pattern(65536, 1));
    }
    harness.assert_healthy();
}

#[test]
fn connections_without_a_queue_end() {
    let mut config = server_config(vec![memory(1, MIB, BLOCK)]);
    config.connect_timeout = std::time::Duration::from_secs(3);
    let harness = EngineHarness::with(config);
    let mut half = harness.peer();
    half.send(&raw::icreq()[..100]);
    for peer in [harness.peer(), half, harness.ready(raw::PLAIN)] {
        peer.assert_ends();
    }
    harness.assert_healthy();
}

#[test]
fn idle_half_open_and_stuck_connections_do_not_keep_others_waiting() {
    let mut harness = EngineHarness::new();
    let icreq = raw::icreq();
    let mut peers: Vec<RawPeer> = (0..100)
        .map(|index| {
            let mut peer = harness.peer();
            peer.send(&icreq[..index]);
            peer
        })
        .collect();
    let mut stuck = harness.queue(raw::PLAIN);
    for cid in 2..6 {
        stuck.send(&write(cid, 65536, raw::PLAIN)); // the data never comes
    }
    harness.client.write(1, 0, pattern(65536, 1), false).unwrap();
    peers.push(stuck);
    eventually("all are connected", || {
        harness.server.usage().connections == harness.connections + 101
    });
    harness.client.write(1, 0, pattern(65536, 2), false).unwrap();
    drop(peers);
    harness.assert_healthy();
    let keep_alive = Sqe::new(opcode::KEEP_ALIVE, 0);
    harness.admin.run("Keep Alive", &keep_alive, &[], &mut []).unwrap();
}

fn connect_sqe(qid: u16) -> Sqe {
    Connect { recfmt: 0, qid, sqsize: ENTRIES - 1, cattr: 0, kato_ms: 0 }.emit()
}

/// Connects an admin queue and enables its controller, with commands 1 and 2.
fn admin_queue(harness: &EngineHarness) -> RawPeer {
    let mut peer = harness.ready(raw::PLAIN);
    let data = ConnectData::new([7; 16], 0xffff, NQN, "nqn.2026-11.test:hostile");
    peer.send(&raw::command(1, connect_sqe(0), data.as_bytes(), raw::PLAIN));
    assert!(peer.completion(1).is_success());
    let enable = Property::set(property::CC, 6 << 16 | 4 << 20 | 1);
    peer.send(&raw::command(2, enable, &[], raw::PLAIN));
    assert!(peer.completion(2).is_success());
    peer
}

/// The control plane completes some admin commands later, and identifies them by CID.
#[test]
fn an_identifier_that_another_admin_command_has_ends_the_connection() {
    let harness = EngineHarness::new();
    let mut peer = admin_queue(&harness);
    let mut features = Sqe::new(opcode::SET_FEATURES, 0);
    features.set_transport(4096);
    peer.send(&raw::command(7, features, &[], raw::PLAIN)); // its data never comes
    peer.r2t(7);
    peer.send(&raw::command(7, Sqe::new(opcode::KEEP_ALIVE, 0), &[], raw::PLAIN));
    peer.assert_terminated(Fes::InvalidPduHeaderField);
    harness.assert_healthy();
}

/// Linux hosts end their Asynchronous Event Requests themselves before they shut a controller down, and reuse the CIDs:
/// these requests get no completion.
#[test]
fn an_identifier_of_an_event_request_may_be_used_again() {
    let harness = EngineHarness::new();
    let mut peer = admin_queue(&harness);
    let request = Sqe::new(opcode::ASYNC_EVENT_REQUEST, 0);
    for cid in [3, 4, 5, 6] {
        peer.send(&raw::command(cid, request, &[], raw::PLAIN));
    }
    let get = |register| Property::get(register, PropertySize::Four);
    peer.send(&raw::command(3, get(property::CC), &[], raw::PLAIN));
    assert!(peer.completion(3).is_success());
    // A retired request leaves room for another one, also with the same CID.
    for cid in [3, 3, 4] {
        peer.send(&raw::command(cid, request, &[], raw::PLAIN));
    }
    let shut_down = Property::set(property::CC, 1 << 14 | 6 << 16 | 4 << 20 | 1);
    peer.send(&raw::command(5, shut_down, &[], raw::PLAIN));
    assert!(peer.completion(5).is_success());
    peer.send(&raw::command(6, get(property::CSTS), &[], raw::PLAIN));
    assert!(peer.completion(6).is_success());
    drop(peer);
    harness.assert_healthy();
}

/// A peer without a connected queue has one small buffer of its own, and takes none from others.
#[test]
fn strangers_hold_no_buffers_of_others() {
    let harness = EngineHarness::new();
    let mut peer = harness.ready(raw::PLAIN);
    let mut connect = connect_sqe(1);
    connect.set_transport(1024); // its data needs an R2T
    peer.send(&raw::command(1, connect, &[], raw::PLAIN));
    peer.r2t(1);
    peer.send(&raw::command(2, connect, &[], raw::PLAIN));
    assert_eq!(peer.completion(2), Status::COMMAND_INTERRUPTED);
    let mut other = Sqe::new(opcode::SET_FEATURES, 0);
    other.set_transport(4096);
    other.opcode |= 1; // its data would need an R2T
    peer.send(&raw::command(3, other, &[], raw::PLAIN));
    assert_eq!(peer.completion(3), Status::COMMAND_SEQUENCE_ERROR.dnr());
    assert_eq!(harness.server.usage().buffer_bytes, 0);
    drop(peer);
    harness.assert_healthy();
}
