//! Every operation, on every kind of store, block size and digest.

#[path = "../../../proto/examples/toy_policy.rs"]
#[allow(dead_code, reason = "an example has a main function")]
mod toy_policy;

use crate::harness::*;
use roadtrain_host_engine::{HostClient, HostConfig, IoOp};
use roadtrain_proto::policy::PolicyConfig;
use roadtrain_system::buffer::Buffer;
use roadtrain_target_engine::Server;
use roadtrain_wire::pdu::Digests;
use roadtrain_wire::status::Status;
use std::time::Duration;

const SIZE: u64 = 8 * MIB;
/// Lengths in the capsule, by R2T, and below and above the size of a receive.
const LENGTHS: [usize; 8] = [512, 4096, 8192, 16384, 20480, 65536, 69632, 1 << 20];

/// Starts a target with namespaces 1 and 2 in memory, 3 and 4 in files, with 512 and 4096 bytes per block. 5 is an
/// emulated SSD.
fn serve_all(directory: &tempfile::TempDir) -> Server {
    serve(vec![
        memory(1, SIZE, 512),
        memory(2, SIZE, 4096),
        file(3, directory, SIZE, 512),
        file(4, directory, SIZE, 4096),
        ssd(5, SIZE, 512, Duration::from_micros(100), 4),
    ])
}

fn all_digests() -> impl Iterator<Item = Digests> {
    (0..4).map(|bits| Digests { header: bits & 1 != 0, data: bits & 2 != 0 })
}

fn block_bytes(client: &HostClient, nsid: u32) -> usize {
    client.view().namespace(nsid).unwrap().block_bytes as usize
}

fn read(client: &HostClient, nsid: u32, slba: u64, len: usize) -> Buffer {
    client.read(nsid, slba, pattern(len, 0xdead)).unwrap()
}

fn write_and_read(client: &HostClient, nsid: u32, len: usize, seed: u64) {
    let slba = 3 + seed % 5;
    client.write(nsid, slba, pattern(len, seed), seed.is_multiple_of(2)).unwrap();
    assert!(*read(client, nsid, slba, len) == *pattern(len, seed), "nsid {nsid}, {len} bytes");
    client.compare(nsid, slba, pattern(len, seed)).unwrap();
    client.verify(nsid, slba, (len / block_bytes(client, nsid)) as u64).unwrap();
    client.flush(nsid).unwrap();
}

fn clear(client: &HostClient, nsid: u32) {
    let bytes = block_bytes(client, nsid);
    client.write(nsid, 0, pattern(16 * bytes, 9), false).unwrap();
    client.write_zeroes(nsid, 2, 3, false).unwrap();
    client.write_zeroes(nsid, 6, 2, true).unwrap();
    client.discard(nsid, 10, 4).unwrap();
    let mut expected = pattern(16 * bytes, 9);
    for cleared in [2..5, 6..8, 10..14] {
        expected[cleared.start * bytes..cleared.end * bytes].fill(0);
    }
    assert!(*read(client, nsid, 0, 16 * bytes) == *expected, "nsid {nsid}");
    client.copy(nsid, &[(0, 16), (4, 2)], 20, false).unwrap();
    assert!(*read(client, nsid, 20, 16 * bytes) == *expected, "nsid {nsid}: copied");
    assert!(read(client, nsid, 36, 2 * bytes)[..] == expected[4 * bytes..6 * bytes]);
}

fn exercise(configure: impl Fn(&mut HostConfig)) {
    let directory = tempfile::tempdir().unwrap();
    let server = serve_all(&directory);
    for (round, digests) in all_digests().enumerate() {
        let mut config = host_config(address(&server));
        config.digests = digests;
        configure(&mut config);
        let client = HostClient::connect(config).unwrap();
        for nsid in 1..=5 {
            let lengths = LENGTHS.iter().filter(|len| **len >= block_bytes(&client, nsid));
            for (index, len) in lengths.enumerate() {
                write_and_read(&client, nsid, *len, (round * 100 + index) as u64);
            }
            clear(&client, nsid);
        }
    }
    assert_nothing_left(&server);
}

#[test]
fn every_operation_with_every_digest() {
    exercise(|_| ());
}

#[test]
fn every_operation_under_i10_over_several_lanes_and_reactors() {
    exercise(|config| {
        config.policy = PolicyConfig::i10();
        config.lanes = 4;
        config.cores = reactors(2);
    });
}

#[test]
fn every_operation_under_a_policy_of_another_crate() {
    exercise(|config| config.policy = toy_policy::pairs());
}

fn status<T: std::fmt::Debug>(result: Result<T, roadtrain_host_engine::RequestError>) -> Status {
    result.expect_err("must fail").status
}

#[test]
fn failures_have_their_status_and_give_the_buffer_back() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve(vec![
        memory(1, MIB, 512),
        file(2, &directory, MIB, 512),
        read_only(memory(3, MIB, 4096)),
    ]);
    let client = connect(&server);
    for nsid in [1, 2] {
        client.write(nsid, 0, pattern(8192, 1), false).unwrap();
        let mut other = pattern(8192, 1);
        other[8191] ^= 1;
        let error = client.compare(nsid, 0, other).unwrap_err();
        assert!(error.status.is(Status::COMPARE_FAILURE), "{error}");
        assert_eq!(error.buffer.unwrap().len(), 8192);
        let end = MIB / 512;
        for len in [1024, 65536] {
            for slba in [end - 1, end, u64::MAX - 1] {
                let expected = Status::LBA_OUT_OF_RANGE;
                assert!(status(client.read(nsid, slba, Buffer::alloc(len))).is(expected));
                assert!(status(client.write(nsid, slba, pattern(len, 1), false)).is(expected));
                assert!(status(client.compare(nsid, slba, pattern(len, 1))).is(expected));
            }
        }
        assert!(status(client.write_zeroes(nsid, end - 1, 2, false)).is(Status::LBA_OUT_OF_RANGE));
        assert!(status(client.discard(nsid, end - 1, 2)).is(Status::LBA_OUT_OF_RANGE));
        // The queue stays connected.
        assert!(*read(&client, nsid, 0, 8192) == *pattern(8192, 1));
    }
    let protected = Status::NAMESPACE_WRITE_PROTECTED;
    for len in [4096, 65536] {
        assert!(status(client.write(3, 0, pattern(len, 1), false)).is(protected));
    }
    assert!(status(client.write_zeroes(3, 0, 1, false)).is(protected));
    assert!(status(client.discard(3, 0, 1)).is(protected));
    assert!(status(client.copy(3, &[(0, 1)], 8, false)).is(protected));
    assert!(read(&client, 3, 0, 4096).iter().all(|&byte| byte == 0));
    client.flush(3).unwrap();
    drop(client);
    assert_nothing_left(&server);
}

#[test]
fn flush_takes_every_namespace_or_one_that_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let slow = ssd(3, MIB, 512, Duration::from_micros(50), 1);
    let server = serve(vec![memory(1, MIB, 512), file(2, &directory, MIB, 512), slow]);
    let client = connect(&server);
    client.flush(u32::MAX).unwrap();
    client.flush(2).unwrap();
    assert!(status(client.flush(9)).is(Status::INVALID_NAMESPACE));
    let everywhere = request(IoOp::WriteZeroes { deallocate: false }, 0, 1, None, 0);
    let everywhere = roadtrain_host_engine::IoRequest { nsid: u32::MAX, ..everywhere };
    assert!(status(client.run(everywhere)).is(Status::INVALID_NAMESPACE));
}

#[test]
fn many_requests_at_once_over_many_lanes() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = server_config(vec![file(1, &directory, 16 * MIB, 4096)]);
    config.cores = reactors(2);
    let server = Server::start(config).unwrap();
    let mut config = host_config(address(&server));
    (config.lanes, config.cores, config.queue_entries) = (3, reactors(2), 16);
    let client = HostClient::connect(config).unwrap();
    let (done, completions) = std::sync::mpsc::channel();
    let mut slots = 0..512u64;
    for slot in slots.by_ref() {
        let buffer = Some(pattern(32768, slot));
        client.submit_to(request(IoOp::Write, slot * 8, 8, buffer, slot), &done);
    }
    let mut seen = vec![false; 512];
    for completion in completions.iter().take(512) {
        assert!(completion.status.is_success(), "{}", completion.status);
        assert!(!std::mem::replace(&mut seen[completion.token as usize], true), "twice");
    }
    for slot in 0..512 {
        client.submit_to(request(IoOp::Read, slot * 8, 8, Some(Buffer::alloc(32768)), slot), &done);
    }
    for completion in completions.iter().take(512) {
        assert!(completion.status.is_success(), "{}", completion.status);
        assert!(*completion.buffer.unwrap() == *pattern(32768, completion.token));
    }
    drop(client);
    assert!(completions.try_recv().is_err(), "more completions than requests");
    assert_nothing_left(&server);
}

#[test]
fn ipv6_works_too() {
    let mut config = server_config(vec![memory(1, MIB, 512)]);
    config.listen = vec!["[::1]:0".parse().unwrap()];
    let server = match Server::start(config) {
        Err(error) => return crate::skipped::skipped(format!("no IPv6 here: {error}")),
        Ok(server) => server,
    };
    write_and_read(&connect(&server), 1, 65536, 1);
}
