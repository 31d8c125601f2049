//! Emulated SSD: memory with a service time.

use crate::harness::*;
use roadtrain_host_engine::{HostClient, IoCompletion, IoOp};
use roadtrain_system::buffer::Buffer;
use roadtrain_target_engine::Server;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const BYTES: usize = 4096;
const BLOCKS: u32 = 8;

/// Starts a target with two reactors, and a host with two reactors and `lanes` lanes.
fn pair(service: Duration, parallel: u16, lanes: u32) -> (Server, HostClient) {
    let mut config = server_config(vec![ssd(1, 16 * MIB, 512, service, parallel)]);
    config.cores = reactors(2);
    let server = Server::start(config).unwrap();
    let mut config = host_config(address(&server));
    (config.lanes, config.cores, config.queue_entries) = (lanes, reactors(2), 64);
    let client = HostClient::connect(config).unwrap();
    (server, client)
}

/// Submits a read or write of each slot in `slots` at once.
pub fn submit(
    client: &HostClient,
    op: IoOp,
    slots: std::ops::Range<u64>,
) -> Receiver<IoCompletion> {
    let (done, completions) = channel();
    for slot in slots {
        let seed = if op == IoOp::Write { slot } else { !slot };
        let buffer = Some(pattern(BYTES, seed));
        client.submit_to(request(op, slot * u64::from(BLOCKS), BLOCKS, buffer, slot), &done);
    }
    completions
}

/// Collects `count` completions, each with the data of its slot.
pub fn collect(completions: &Receiver<IoCompletion>, count: usize) {
    let mut seen = vec![false; count];
    for _ in 0..count {
        let completion = completions.recv_timeout(LONG).expect("every request ends");
        assert!(completion.status.is_success(), "{}", completion.status);
        assert!(!std::mem::replace(&mut seen[completion.token as usize], true), "twice");
        assert!(*completion.buffer.unwrap() == *pattern(BYTES, completion.token));
    }
}

#[test]
fn many_commands_from_many_lanes_keep_their_data() {
    const COUNT: usize = 1000;
    let (server, client) = pair(Duration::from_micros(100), 16, 5);
    for _ in 0..3 {
        collect(&submit(&client, IoOp::Write, 0..COUNT as u64), COUNT);
        collect(&submit(&client, IoOp::Read, 0..COUNT as u64), COUNT);
    }
    drop(client);
    assert_nothing_left(&server);
}

#[test]
fn no_command_is_faster_than_the_station() {
    const SERVICE: Duration = Duration::from_millis(4);
    let (_server, client) = pair(SERVICE, 4, 3);
    let begin = Instant::now();
    collect(&submit(&client, IoOp::Write, 0..30), 30);
    assert!(begin.elapsed() >= SERVICE * 8, "30 commands, 4 at once: {:?}", begin.elapsed());
    for run in
        [HostClient::flush, |client: &HostClient, nsid| client.write_zeroes(nsid, 0, 1, false)]
    {
        let begin = Instant::now();
        run(&client, 1).unwrap();
        assert!(begin.elapsed() >= SERVICE);
    }
    let begin = Instant::now();
    client.read(1, 8, Buffer::alloc(BYTES)).unwrap();
    assert!(begin.elapsed() >= SERVICE);
}

#[test]
fn a_target_that_stops_does_not_wait_for_it() {
    let (server, client) = pair(Duration::from_secs(1), 1, 2);
    let completions = submit(&client, IoOp::Write, 0..100);
    eventually("commands are in the store", || server.usage().store_commands >= 50);
    let begin = Instant::now();
    server.stop();
    // It abandons a store that does not respond after ten seconds.
    assert!(begin.elapsed() < Duration::from_secs(9), "not {:?}", begin.elapsed());
    drop(completions);
}

#[test]
fn a_reload_keeps_its_data_unless_the_pace_is_another() {
    let service = Duration::from_micros(10);
    let server = serve(vec![ssd(1, MIB, 512, service, 4)]);
    let client = connect(&server);
    client.write(1, 0, pattern(BYTES, 1), false).unwrap();
    let read = || client.read(1, 0, Buffer::alloc(BYTES)).unwrap();
    server.reload(&[subsystem(vec![ssd(1, 2 * MIB, 512, service, 4)])]).unwrap();
    assert!(*read() == *pattern(BYTES, 1));
    server.reload(&[subsystem(vec![ssd(1, 2 * MIB, 512, service, 5)])]).unwrap();
    assert!(client.write(1, 0, pattern(BYTES, 2), false).is_err(), "it is another one now");
    let new = connect(&server).read(1, 0, Buffer::alloc(BYTES)).unwrap();
    assert!(new.iter().all(|&byte| byte == 0), "empty");
}
