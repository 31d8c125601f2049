//! Lost connections and targets: every request completes exactly once.

use crate::harness::*;
use crate::peer::{BLOCK, ENTRIES, EngineHarness, RawPeer, raw};
use crate::proxy::{ConnectionFault, Proxy};
use roadtrain_host_engine::{HostClient, IoOp, LinkState};
use roadtrain_system::buffer::Buffer;
use roadtrain_target_engine::{Export, Server, ServerConfig};
use roadtrain_wire::feature::fid;
use roadtrain_wire::identify::IdentifyController;
use roadtrain_wire::pdu::{CapsuleCmd, Digests, PduType};
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::status::Status;
use roadtrain_wire::zerocopy::FromBytes;
use std::mem::offset_of;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

const REQUESTS: u64 = 400;
const BOTH: Digests = Digests { header: true, data: true };

fn restart(server: Server, config: &ServerConfig) -> Server {
    let listen = server.addresses().to_vec();
    server.stop();
    Server::start(ServerConfig { listen, ..config.clone() }).unwrap()
}

/// Restarts the target under load. Completed writes are still there afterwards.
fn survives_restarts(lanes: u32, hosts_reactors: usize, len: usize) {
    let directory = tempfile::tempdir().unwrap();
    let config = server_config(vec![file(1, &directory, 64 * MIB, 512)]);
    let mut server = Server::start(config.clone()).unwrap();
    let mut host = host_config(address(&server));
    (host.lanes, host.cores, host.queue_entries) = (lanes, reactors(hosts_reactors), 32);
    let client = HostClient::connect(host).unwrap();
    let blocks = (len / 512) as u64;
    let (done, completions) = channel();
    let submitter = std::thread::spawn({
        let client = client.clone();
        move || {
            for slot in 0..REQUESTS {
                let buffer = Some(pattern(len, slot));
                let write = request(IoOp::Write, slot * blocks, blocks as u32, buffer, slot);
                client.submit_to(write, &done);
            }
        }
    });
    let mut seen = vec![false; REQUESTS as usize];
    for index in 0..REQUESTS {
        if index % (REQUESTS / 4) == 10 {
            server = restart(server, &config);
        }
        let completion = completions.recv_timeout(LONG).expect("every request ends");
        assert!(completion.status.is_success(), "{}", completion.status);
        assert!(!std::mem::replace(&mut seen[completion.token as usize], true), "twice");
    }
    submitter.join().unwrap();
    for slot in 0..REQUESTS {
        let got = client.read(1, slot * blocks, Buffer::alloc(len)).unwrap();
        assert!(*got == *pattern(len, slot), "slot {slot}");
    }
    drop(client);
    assert!(completions.recv().is_err(), "more completions than requests");
    assert_nothing_left(&server);
}

#[test]
fn a_restarted_target_is_found_again() {
    survives_restarts(1, 1, 4096);
}

#[test]
fn several_lanes_find_a_restarted_target_again() {
    survives_restarts(4, 2, 65536);
}

#[test]
fn requests_fail_after_the_controller_loss_timeout_and_work_again_later() {
    // The configured UUID identifies the restarted target's memory as the same. The test uses no data that is lost.
    let same = Export { uuid: Some([1; 16]), ..memory(1, MIB, 512) };
    let config = server_config(vec![same]);
    let server = Server::start(config.clone()).unwrap();
    let listen = server.addresses().to_vec();
    let mut host = host_config(listen[0]);
    host.controller_loss_timeout = Some(Duration::from_millis(300));
    let client = HostClient::connect(host).unwrap();
    assert_eq!(client.view().link().state, LinkState::Connected);
    server.stop();
    let error = client.write(1, 0, pattern(4096, 1), false).unwrap_err();
    let link = client.view().link();
    assert_eq!(link.state, LinkState::Failing);
    assert!(link.error.unwrap().contains("cannot reach"));
    assert!(error.status.is(Status::HOST_PATH_ERROR), "{error}");
    assert!(*error.buffer.unwrap() == *pattern(4096, 1));
    assert!(client.flush(1).unwrap_err().status.is(Status::HOST_PATH_ERROR));
    let _server = Server::start(ServerConfig { listen, ..config }).unwrap();
    eventually("the target is found again", || client.flush(1).is_ok());
    let connected = || client.view().link().state == LinkState::Connected;
    eventually("the view follows", connected);
}

/// Returns the commands that a host has sent on a connection without digests.
pub fn sqes(mut bytes: &[u8]) -> Vec<Sqe> {
    let mut sqes = Vec::new();
    while bytes.len() >= 8 {
        let length = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]) as usize;
        let Some((pdu, rest)) = bytes.split_at_checked(length) else { break };
        if pdu[0] == PduType::CapsuleCmd as u8 {
            sqes.push(CapsuleCmd::read_from_prefix(pdu).unwrap().0.sqe);
        }
        bytes = rest;
    }
    sqes
}

/// A lane's connection is black-holed while the admin queue works: commands in flight are aborted, then all connections
/// are made again.
#[test]
fn a_lane_that_is_silent_is_aborted_and_given_up() {
    let server = serve(vec![memory(1, MIB, 512)]);
    let proxy = Proxy::new(address(&server), vec![]);
    let mut host = host_config(proxy.address);
    (host.io_timeout, host.lanes) = (Some(Duration::from_secs(2)), 2);
    let client = HostClient::connect(host).unwrap();
    client.write(1, 0, pattern(65536, 1), false).unwrap();
    (1..3).for_each(|lane| proxy.freeze_one(lane));
    client.write(1, 0, pattern(65536, 2), false).unwrap();
    assert!(*client.read(1, 0, Buffer::alloc(65536)).unwrap() == *pattern(65536, 2));
    let admin = sqes(&proxy.sent(0));
    let aborts: Vec<u32> =
        admin.iter().filter(|s| s.opcode == opcode::ABORT).map(|s| s.cdw10.get()).collect();
    assert!(!aborts.is_empty(), "no Abort by the admin queue");
    assert!(aborts.iter().all(|cdw10| (1..3).contains(&(cdw10 & 0xffff))), "of which queue?");
    assert!(client.view().lanes().iter().all(|lane| lane.reconnects == 1));
}

/// Size in bytes of a C2HData PDU header, and of an Identify page.
const C2H_DATA_BYTES: usize = 24;
const IDENTIFY_BYTES: usize = 4096;

/// The controller requests retry delays after the host has announced support for them.
#[test]
fn the_controller_s_retry_delays_are_heeded() {
    let server = serve(vec![memory(1, MIB, 512)]);
    let (pages, answers) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let proxy = Proxy::editing(address(&server), move |connection, pdu| {
        let is = |kind: PduType| pdu[0] == kind as u8;
        if connection == 0 && is(PduType::C2hData) && pdu.len() == C2H_DATA_BYTES + IDENTIFY_BYTES {
            if pages.fetch_add(1, SeqCst) == 0 {
                let crdt1 = C2H_DATA_BYTES + offset_of!(IdentifyController, crdt);
                pdu[crdt1..][..2].copy_from_slice(&3u16.to_le_bytes()); // of 100 ms
            }
        } else if connection == 1 && is(PduType::CapsuleResp) {
            // The first completion is that of Connect.
            if answers.fetch_add(1, SeqCst) == 1 {
                let not_ready = Status::NAMESPACE_NOT_READY.retry_after(1);
                pdu[22..24].copy_from_slice(&not_ready.to_field().to_le_bytes());
            }
        }
    });
    let client = HostClient::connect(host_config(proxy.address)).unwrap();
    let begin = Instant::now();
    client.write(1, 0, pattern(4096, 1), false).unwrap();
    assert!(begin.elapsed() >= Duration::from_millis(300), "{:?}", begin.elapsed());
    let admin = sqes(&proxy.sent(0));
    let heeds = |sqe: &Sqe| {
        sqe.opcode == opcode::SET_FEATURES && sqe.cdw10.get() as u8 == fid::HOST_BEHAVIOR
    };
    assert_eq!(admin.iter().filter(|sqe| heeds(sqe)).count(), 1);
    let lane = sqes(&proxy.sent(1));
    assert_eq!(lane.iter().filter(|sqe| sqe.opcode == opcode::WRITE).count(), 2);
}

/// Without keep-alive and requests, the kernel's probes detect a network failure.
#[test]
fn an_idle_host_notices_that_its_network_is_gone() {
    in_a_network_of_our_own(|| {
        let server = serve(vec![memory(1, MIB, 512)]);
        let mut host = host_config(address(&server));
        (host.keep_alive, host.lanes) = (Duration::ZERO, 2);
        host.io_timeout = Some(Duration::from_secs(2));
        let client = HostClient::connect(host).unwrap();
        client.write(1, 0, pattern(4096, 1), false).unwrap();
        set_loopback("down");
        eventually("the host reconnects", || client.view().link().state == LinkState::Reconnecting);
        set_loopback("up");
        assert!(*client.read(1, 0, Buffer::alloc(4096)).unwrap() == *pattern(4096, 1));
    });
}

fn set_loopback(state: &str) {
    let done = Command::new("ip").args(["link", "set", "lo", state]).status();
    assert!(done.is_ok_and(|status| status.success()));
}

/// Runs `test` on a thread with its own loopback interface.
fn in_a_network_of_our_own(test: impl FnOnce() + Send) {
    let name = crate::skipped::this_test();
    let body = || {
        // SAFETY: takes a number; affects only this thread and those that it starts.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            let error = std::io::Error::last_os_error();
            let why = format!("no network namespace of our own: {error}");
            return crate::skipped::skipped_test(&name, why);
        }
        set_loopback("up");
        test();
    };
    std::thread::scope(|scope| {
        if let Err(panic) = scope.spawn(body).join() {
            std::panic::resume_unwind(panic);
        }
    });
}

#[test]
fn a_client_ends_while_its_target_is_gone() {
    let server = serve(vec![memory(1, MIB, 512)]);
    let client = connect(&server);
    server.stop();
    let (done, ended) = channel();
    for token in 0..20 {
        client.submit_to(request(IoOp::Write, 0, 8, Some(pattern(4096, 1)), token), &done);
    }
    drop((client, done));
    let statuses: Vec<Status> = ended.iter().map(|completion| completion.status).collect();
    assert_eq!(statuses.len(), 20);
    assert!(statuses.iter().all(|status| status.is(Status::HOST_PATH_ERROR)), "{statuses:?}");
}

/// Writes every block several times with different data while `fault` strikes connections at arbitrary bytes. Reads
/// return the last acknowledged data.
fn survives(fault: fn(u64) -> ConnectionFault, digests: Digests, lanes: u32) {
    let directory = tempfile::tempdir().unwrap();
    survives_on(file(1, &directory, 16 * MIB, 512), fault, digests, lanes);
}

fn survives_on(export: Export, fault: fn(u64) -> ConnectionFault, digests: Digests, lanes: u32) {
    survives_at(serve(vec![export]), fault, digests, lanes);
}

pub fn survives_at(
    server: Server,
    fault: fn(u64) -> ConnectionFault,
    digests: Digests,
    lanes: u32,
) {
    const SLOTS: u64 = 8;
    const ROUNDS: u64 = 40;
    const LENGTHS: [usize; 4] = [4096, 65536, 16384, 262_144];
    // Far enough for the admin queue to be ready.
    let faults = (0..40u64).map(|n| fault(30_000 + (n * 7919 * 104_729) % 700_001)).collect();
    let proxy = Proxy::new(address(&server), faults);
    let mut host = host_config(proxy.address);
    (host.digests, host.lanes) = (digests, lanes);
    let client = HostClient::connect(host).unwrap();
    let threads = (0..SLOTS).map(|slot| {
        let client = client.clone();
        std::thread::spawn(move || {
            let len = LENGTHS[slot as usize % LENGTHS.len()];
            for round in 0..ROUNDS {
                let seed = slot << 32 | round;
                client.write(1, slot * 2048, pattern(len, seed), false).unwrap();
                let got = client.read(1, slot * 2048, Buffer::alloc(len)).unwrap();
                assert!(*got == *pattern(len, seed), "slot {slot}, round {round}");
            }
        })
    });
    threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
    assert!(proxy.strikes() >= 5, "only {} connections were struck", proxy.strikes());
    drop(client);
    assert_nothing_left(&server);
}

#[test]
fn connections_cut_at_any_byte_lose_nothing() {
    survives(ConnectionFault::Cut, Digests::default(), 1);
}

#[test]
fn connections_with_digests_cut_at_any_byte_lose_nothing() {
    survives(ConnectionFault::Cut, BOTH, 2);
}

#[test]
fn connections_cut_while_commands_wait_their_turn_lose_nothing() {
    let slow = || ssd(1, 16 * MIB, 512, Duration::from_millis(2), 3);
    survives_on(slow(), ConnectionFault::Cut, Digests::default(), 2);
    survives_on(slow(), ConnectionFault::Cut, BOTH, 1);
}

#[test]
fn flipped_bits_do_not_get_past_digests() {
    // Rarely enough for a retry to succeed: one of the largest requests is a tenth of the data between two strikes, so
    // hardly one is struck at each of its six attempts.
    survives(|bytes| ConnectionFault::Flip(2_500_000 + bytes), BOTH, 1);
}

#[test]
fn a_network_that_swallows_everything_is_noticed() {
    let server = serve(vec![memory(1, MIB, 512)]);
    let proxy = Proxy::new(address(&server), vec![]);
    let mut host = host_config(proxy.address);
    (host.keep_alive, host.timeout) = (Duration::from_secs(1), Duration::from_secs(2));
    let client = HostClient::connect(host).unwrap();
    client.write(1, 0, pattern(65536, 1), false).unwrap();
    proxy.freeze();
    // Written over new connections. The target drops the old ones when their keep-alive timer expires.
    client.write(1, 0, pattern(65536, 2), false).unwrap();
    assert!(*client.read(1, 0, Buffer::alloc(65536)).unwrap() == *pattern(65536, 2));
    drop(client);
    assert_nothing_left(&server);
}

/// A hanging target does not delay the end of a host, whatever timeouts the host has.
#[test]
fn a_controller_ends_soon_when_its_target_hangs() {
    let server = serve(vec![memory(1, MIB, 512)]);
    let proxy = Proxy::new(address(&server), vec![]);
    let mut host = host_config(proxy.address);
    (host.timeout, host.keep_alive) = (LONG * 10, Duration::ZERO);
    let client = HostClient::connect(host).unwrap();
    let view = client.view().clone();
    proxy.freeze_all();
    let (done, ended) = channel();
    for token in 0..3 {
        client.submit_to(request(IoOp::Write, 0, 8, Some(pattern(4096, 1)), token), &done);
    }
    let begin = Instant::now();
    drop((client, done));
    assert!(begin.elapsed() < LONG);
    assert!(ended.iter().all(|completion| completion.status.is(Status::HOST_PATH_ERROR)));
    assert_eq!(view.abandoned(), 3);
}

/// Data that a host has sent over closed connections is not executed after it has reconnected.
#[test]
fn unread_commands_are_not_executed_after_a_reconnect() {
    const RESERVE: u16 = 16;
    let harness = EngineHarness::scarce(|_| {});
    let to_memory = |cid, byte| {
        let mut sqe = Sqe::rw(opcode::WRITE, 2, 0, 1);
        sqe.set_in_capsule(BLOCK);
        raw::command(cid, sqe, &[byte; BLOCK as usize], raw::PLAIN)
    };
    // Other queues keep every buffer, so that the target does not receive from the old connection.
    let mut holder = harness.queue_of(1, ENTRIES);
    harness.hold_buffers(&mut holder);
    let capsule = raw::write_in_capsule(2, &[1; BLOCK as usize], raw::PLAIN);
    let reserved = |qid| {
        let mut peer = harness.queue_of(qid, ENTRIES);
        peer.send(&capsule[..100]);
        peer
    };
    let reserved: Vec<RawPeer> = (2..2 + RESERVE).map(reserved).collect();
    eventually("the reserve is used up", || {
        harness.server.usage().reserved_buffers == usize::from(RESERVE)
    });
    let mut old = harness.queue_of(2 + RESERVE, ENTRIES);
    old.send(&capsule);
    old.send(&to_memory(3, 1));
    drop(old);

    let mut new = harness.queue_of(3 + RESERVE, ENTRIES);
    new.send(&to_memory(2, 2));
    assert!(new.completion(2).is_success());
    drop((holder, reserved));
    drop(new);
    harness.assert_healthy();
    assert!(*harness.client.read(2, 0, Buffer::alloc(512)).unwrap() == [2; 512]);
}

/// Requests fail long before the controller loss timeout, and the host recovers with the target.
#[test]
fn requests_fail_at_the_fast_io_fail_timeout() {
    let server = serve(vec![memory(1, MIB, 512)]);
    let proxies = [0, 1].map(|_| Proxy::new(address(&server), vec![]));
    for paths in [1, 2] {
        let mut config = host_config(proxies[0].address);
        config.more_addresses = proxies[1..paths].iter().map(|p| p.address.into()).collect();
        config.fast_io_fail_timeout = Some(Duration::from_millis(200));
        let client = HostClient::connect(config).unwrap();
        client.write(1, 0, pattern(4096, 1), false).unwrap();
        let since = Instant::now();
        proxies.iter().for_each(Proxy::kill);
        let error = client.write(1, 0, pattern(4096, 2), false).unwrap_err();
        assert!(error.status.is(Status::HOST_PATH_ERROR), "{error}");
        println!("{paths} paths: failed after {:?}", since.elapsed());
        assert!(since.elapsed() > Duration::from_millis(100), "{:?}", since.elapsed());
        assert!(since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());
        proxies.iter().for_each(Proxy::revive);
        eventually("it is back", || client.write(1, 0, pattern(4096, 3), false).is_ok());
    }
}
