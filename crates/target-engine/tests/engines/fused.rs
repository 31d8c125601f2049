//! Compare and Write: a lock that several hosts contend for, exclusive among all other writes, and commands that are no
//! pair.

use crate::harness::*;
use crate::peer::*;
use roadtrain_host_engine::{HostClient, PathPolicy, RequestError};
use roadtrain_store::{EmulatedBlockStore, MemoryStore, SsdStore};
use roadtrain_system::buffer::Buffer;
use roadtrain_target_engine::{Export, Server, ServerConfig};
use roadtrain_wire::sqe::{FUSE_FIRST, FUSE_SECOND, Sqe, opcode};
use roadtrain_wire::status::Status;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const HOSTS: u64 = 8;
/// Blocks of the lock and of the counter that it protects.
const LOCK: u64 = 5;
const COUNTER: u64 = 9;
const BLOCK_BYTES: usize = BLOCK as usize;

/// Returns blocks of 512 bytes by read-modify-write over an SSD with blocks of 4096.
fn small_blocks(nsid: u32) -> Export {
    let memory = Arc::new(MemoryStore::new(MIB, 4096, false).unwrap());
    let below = Arc::new(SsdStore::new(memory, Duration::from_micros(20), 4));
    Export::with_store(nsid, Arc::new(EmulatedBlockStore::new(below, 9)))
}

/// Starts a target with several reactors, memory, a file, an emulated SSD, and small blocks over one.
fn serve_all(directory: &tempfile::TempDir) -> Server {
    let exports: Vec<Export> = vec![
        memory(1, MIB, BLOCK),
        file(2, directory, MIB, BLOCK),
        ssd(3, MIB, BLOCK, Duration::from_micros(20), 4),
        small_blocks(4),
    ];
    let mut config = server_config(exports);
    config.cores = reactors(3);
    Server::start(config).unwrap()
}

fn host(server: &Server, number: u64) -> HostClient {
    let mut config = host_config(address(server));
    (config.host_nqn, config.host_id) = (format!("{HOST_NQN}{number}"), [number as u8 + 1; 16]);
    HostClient::connect(config).unwrap()
}

/// Returns a block with this counter and tag.
fn block(counter: u64, tag: u64) -> [u8; BLOCK_BYTES] {
    let mut block = [0; BLOCK_BYTES];
    block[..8].copy_from_slice(&counter.to_le_bytes());
    block[8..16].copy_from_slice(&tag.to_le_bytes());
    block[BLOCK_BYTES - 8..].copy_from_slice(&tag.to_le_bytes());
    block
}

/// Returns counter and tag of a block; `None` if a write was in flight while it was read.
fn counter_and_tag(block: &[u8]) -> Option<(u64, u64)> {
    let word = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().unwrap());
    (word(8) == word(BLOCK_BYTES - 8)).then(|| (word(0), word(8)))
}

fn read(client: &HostClient, nsid: u32, slba: u64) -> Buffer {
    client.read(nsid, slba, Buffer::alloc(BLOCK_BYTES)).unwrap()
}

/// True if the blocks were as expected.
fn was_equal(result: Result<(), RequestError>) -> bool {
    match result {
        Ok(()) => true,
        Err(error) => {
            assert!(error.status.is(Status::COMPARE_FAILURE), "{error}");
            false
        }
    }
}

/// Adds one to the counter `times` times while holding the lock.
fn count_locked(client: &HostClient, nsid: u32, me: u64, times: u64) {
    let (free, mine) = (block(0, 0), block(me, me));
    for _ in 0..times {
        while !was_equal(client.compare_and_write(nsid, LOCK, &free, &mine)) {}
        let (counter, _) = counter_and_tag(&read(client, nsid, COUNTER)).unwrap();
        let more = block(counter + 1, me);
        let mut buffer = Buffer::alloc(BLOCK_BYTES);
        buffer.copy_from_slice(&more);
        client.write(nsid, COUNTER, buffer, false).unwrap();
        assert!(was_equal(client.compare_and_write(nsid, LOCK, &mine, &free)), "it was mine");
    }
}

#[test]
fn a_lock_under_contention_from_eight_hosts_loses_no_increment() {
    let times = effort(8, 40);
    let directory = tempfile::tempdir().unwrap();
    let server = serve_all(&directory);
    for nsid in 1..=4 {
        std::thread::scope(|scope| {
            for me in 1..=HOSTS {
                let server = &server;
                scope.spawn(move || count_locked(&host(server, me), nsid, me, times));
            }
        });
        let (counter, _) = counter_and_tag(&read(&host(&server, 0), nsid, COUNTER)).unwrap();
        assert_eq!(counter, HOSTS * times, "nsid {nsid}");
    }
    assert_nothing_left(&server);
}

/// Each host counts in its own block of one physical block: no comparison fails, and no neighbour is lost.
#[test]
fn hosts_count_in_neighbouring_blocks_of_a_physical_block() {
    let times = effort(40, 400);
    let directory = tempfile::tempdir().unwrap();
    let server = serve_all(&directory);
    std::thread::scope(|scope| {
        for me in 0..HOSTS {
            let server = &server;
            scope.spawn(move || {
                let client = host(server, me);
                for count in 0..times {
                    let tag = |count: u64| if count == 0 { 0 } else { me };
                    let (old, new) = (block(count, tag(count)), block(count + 1, me));
                    let result = client.compare_and_write(4, me, &old, &new);
                    assert!(was_equal(result), "{me}: {count} was lost");
                }
            });
        }
    });
    let client = host(&server, 0);
    for me in 0..HOSTS {
        assert_eq!(counter_and_tag(&read(&client, 4, me)), Some((times, me)));
    }
    drop(client);
    assert_nothing_left(&server);
}

/// Also with a path through each listener for each host.
#[test]
fn the_lock_is_one_over_all_paths() {
    let times = effort(5, 25);
    let any = "127.0.0.1:0".parse().unwrap();
    let config = server_config(vec![memory(1, MIB, BLOCK)]);
    let config = ServerConfig { listen: vec![any, any], cores: reactors(2), ..config };
    let server = Server::start(config).unwrap();
    let several = |me: u64| {
        let addresses = server.addresses();
        let mut config = host_config(addresses[0]);
        config.more_addresses = vec![addresses[1].into()];
        config.path_policy = PathPolicy::RoundRobin;
        (config.host_nqn, config.host_id) = (format!("{HOST_NQN}{me}"), [me as u8 + 1; 16]);
        HostClient::connect(config).unwrap()
    };
    std::thread::scope(|scope| {
        for me in 1..=HOSTS {
            let several = &several;
            scope.spawn(move || count_locked(&several(me), 1, me, times));
        }
    });
    let (counter, _) = counter_and_tag(&read(&several(0), 1, COUNTER)).unwrap();
    assert_eq!(counter, HOSTS * times);
    assert_nothing_left(&server);
}

/// Increments the counter in the block, and keeps its tag, until it must stop. Returns the number of increments.
fn count_alone(client: &HostClient, nsid: u32, stop: &AtomicBool) -> u64 {
    let mut done = 0;
    while !stop.load(Ordering::Relaxed) {
        let Some((counter, tag)) = counter_and_tag(&read(client, nsid, LOCK)) else { continue };
        let (old, new) = (block(counter, tag), block(counter + 1, tag));
        done += u64::from(was_equal(client.compare_and_write(nsid, LOCK, &old, &new)));
    }
    done
}

/// Stops the counting hosts, even if the test has failed.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A written tag never gives way to an older one: a host that compares with the old one must not write it back.
#[test]
fn a_write_of_others_never_falls_between_the_comparison_and_the_write() {
    let writes = effort(45, 150);
    let directory = tempfile::tempdir().unwrap();
    let server = serve_all(&directory);
    for nsid in 1..=4 {
        let stop = AtomicBool::new(false);
        let done = std::thread::scope(|scope| {
            let counting = (1..=4).map(|me| {
                let (server, stop) = (&server, &stop);
                scope.spawn(move || count_alone(&host(server, me), nsid, stop))
            });
            let counting: Vec<_> = counting.collect();
            let stopping = StopOnDrop(&stop);
            let client = host(&server, 0);
            // Data in the capsule, data with R2T that arrives in many receives, and zeroes.
            for tag in 1..=writes {
                let blocks = [1, 64, 1024][tag as usize % 3];
                let mut buffer = Buffer::alloc(blocks * BLOCK_BYTES);
                let at = LOCK as usize * BLOCK_BYTES;
                let (at, slba) = if blocks == 1 { (0, LOCK) } else { (at, 0) };
                buffer[at..at + BLOCK_BYTES].copy_from_slice(&block(0, tag));
                client.write(nsid, slba, buffer, false).unwrap();
                let now = std::iter::repeat_with(|| counter_and_tag(&read(&client, nsid, LOCK)));
                let (_, now) = now.flatten().next().unwrap();
                assert_eq!(now, tag, "nsid {nsid}: an older block was written back");
            }
            drop(stopping);
            counting.into_iter().map(|host| host.join().unwrap()).sum::<u64>()
        });
        assert!(done > 0, "nsid {nsid}: no host has counted");
    }
    assert_nothing_left(&server);
}

/// Returns the capsule of a fused command with its data.
fn fused(cid: u16, opcode: u8, fuse: u8, (slba, blocks): (u64, u32), byte: u8) -> Vec<u8> {
    let mut sqe = Sqe::rw(opcode, 1, slba, blocks);
    sqe.flags |= fuse;
    sqe.set_in_capsule(blocks * BLOCK);
    raw::command(cid, sqe, &vec![byte; (blocks * BLOCK) as usize], raw::PLAIN)
}

fn harness() -> EngineHarness {
    EngineHarness::with(server_config(vec![memory(1, MIB, BLOCK)]))
}

/// Sends `commands`, whose CIDs are their positions, and returns the statuses in that order.
fn answers(peer: &mut RawPeer, commands: &[Vec<u8>]) -> Vec<Status> {
    peer.send(&commands.concat());
    let mut answers: Vec<_> = commands.iter().map(|_| peer.any_completion()).collect();
    answers.sort_by_key(|(cid, _)| *cid);
    // Without the flags of the status.
    let bare = |status: Status| Status::new((status.code() >> 8) as u8, status.code() as u8);
    answers.into_iter().map(|(_, status)| bare(status)).collect()
}

const COMPARE: u8 = opcode::COMPARE;
const WRITE: u8 = opcode::WRITE;
const AT: (u64, u32) = (3, 1);

/// Name of the case, capsules, and their statuses.
type FusedCase = (&'static str, Vec<Vec<u8>>, Vec<Status>);

#[test]
fn commands_that_are_no_pair_have_their_status() {
    let (ok, missing, failed) = (Status::SUCCESS, Status::FUSED_MISSING, Status::FUSED_FAILED);
    let (invalid, too_long) = (Status::INVALID_FIELD, Status::ATOMIC_WRITE_UNIT_EXCEEDED);
    let (first, second) = (FUSE_FIRST, FUSE_SECOND);
    let harness = harness();
    let mut peer = harness.queue(raw::PLAIN);
    let c = |cid, opcode, fuse, at, byte| fused(cid, opcode, fuse, at, byte);
    let cases: Vec<FusedCase> = vec![
        ("a pair", vec![c(2, COMPARE, first, AT, 0), c(3, WRITE, second, AT, 7)], vec![ok, ok]),
        (
            "other data",
            vec![c(2, COMPARE, first, AT, 1), c(3, WRITE, second, AT, 8)],
            vec![Status::COMPARE_FAILURE, failed],
        ),
        ("a second one alone", vec![c(2, WRITE, second, AT, 8)], vec![missing]),
        (
            "a first one alone",
            vec![c(2, COMPARE, first, AT, 7), c(3, COMPARE, 0, AT, 7)],
            vec![missing, ok],
        ),
        (
            "two first ones",
            vec![
                c(2, COMPARE, first, AT, 7),
                c(3, COMPARE, first, AT, 7),
                c(4, WRITE, second, AT, 9),
            ],
            vec![missing, ok, ok],
        ),
        (
            "both at once",
            vec![c(2, COMPARE, first, AT, 9), c(3, WRITE, first | second, AT, 8)],
            vec![missing, invalid],
        ),
        (
            "a write first",
            vec![c(2, WRITE, first, AT, 8), c(3, COMPARE, second, AT, 8)],
            vec![missing, missing],
        ),
        (
            "no write",
            vec![c(2, COMPARE, first, AT, 9), c(3, COMPARE, second, AT, 9)],
            vec![missing, missing],
        ),
        (
            "other blocks",
            vec![c(2, COMPARE, first, AT, 9), c(3, WRITE, second, (4, 1), 8)],
            vec![invalid, invalid],
        ),
        (
            "more than is atomic",
            vec![c(2, COMPARE, first, (3, 2), 9), c(3, WRITE, second, (3, 2), 8)],
            vec![too_long, failed],
        ),
        (
            "out of range",
            vec![c(2, COMPARE, first, (1 << 40, 1), 9), c(3, WRITE, second, AT, 8)],
            vec![Status::LBA_OUT_OF_RANGE, failed],
        ),
        (
            "the second one out of range",
            vec![c(2, COMPARE, first, AT, 9), c(3, WRITE, second, (1 << 40, 1), 8)],
            vec![failed, Status::LBA_OUT_OF_RANGE],
        ),
    ];
    for (what, commands, expected) in cases {
        assert_eq!(answers(&mut peer, &commands), expected, "{what}");
    }
    assert_eq!(read(&harness.client, 1, 3)[..], [9; BLOCK_BYTES], "only pairs have written");
    drop(peer);
    harness.assert_healthy();
}

/// Data by R2T. Commands of two queues are no pair, however close they arrive.
#[test]
fn pairs_belong_to_one_queue_and_may_use_r2t() {
    let harness = harness();
    let (mut one, mut other) = (harness.queue_of(1, ENTRIES), harness.queue_of(2, ENTRIES));
    let with_r2t = |cid: u16, opcode: u8, fuse: u8| {
        let mut sqe = Sqe::rw(opcode, 1, 3, 1);
        sqe.flags |= fuse;
        sqe.set_transport(BLOCK);
        raw::command(cid, sqe, &[], raw::PLAIN)
    };
    one.send(&with_r2t(2, COMPARE, FUSE_FIRST));
    let ttag = one.r2t(2);
    other.send(&with_r2t(2, WRITE, FUSE_SECOND));
    assert!(other.completion(2).is(Status::FUSED_MISSING));
    one.send(&with_r2t(3, WRITE, FUSE_SECOND));
    let second = one.r2t(3);
    // The data arrives in the other order.
    one.send(&raw::h2c_data(3, second, 0, &[5; BLOCK_BYTES], true));
    one.send(&raw::h2c_data(2, ttag, 0, &[0; BLOCK_BYTES], true));
    assert!(one.completion(2).is_success() && one.completion(3).is_success());
    assert_eq!(read(&harness.client, 1, 3)[..], [5; BLOCK_BYTES]);
    // A connection that ends in the middle of a pair leaves nothing behind.
    one.send(&with_r2t(2, COMPARE, FUSE_FIRST));
    one.r2t(2);
    drop((one, other));
    harness.assert_healthy();
}

/// A partly received in-place write: no other command waits for the rest of its data.
#[test]
fn a_slow_write_delays_no_other_command() {
    const LEN: usize = 64 * BLOCK_BYTES;
    let mut config = server_config(vec![memory(1, MIB, BLOCK)]);
    config.cores = reactors(2);
    let harness = EngineHarness::with(config);
    let mut peer = harness.queue(raw::PLAIN);
    peer.send(&write(2, LEN as u32, raw::PLAIN));
    let ttag = peer.r2t(2);
    let data = raw::h2c_data(2, ttag, 0, &[4; LEN], true);
    let (some, rest) = data.split_at(LEN / 2);
    peer.send(some);
    for round in 0..20 {
        let (old, new) = ([round; BLOCK_BYTES], [round + 1; BLOCK_BYTES]);
        let result = harness.client.compare_and_write(1, 63, &old, &new);
        assert!(was_equal(result), "round {round}");
    }
    peer.send(rest);
    assert!(peer.completion(2).is_success());
    assert_eq!(read(&harness.client, 1, 63)[..], [4; BLOCK_BYTES], "what was written last");
    drop(peer);
    harness.assert_healthy();
}

#[test]
fn what_cannot_be_read_is_not_verified() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve(vec![file(1, &directory, MIB, BLOCK)]);
    let client = connect(&server);
    let blocks = MIB / u64::from(BLOCK);
    client.verify(1, 0, blocks).unwrap();
    let error = client.verify(1, blocks - 1, 2).unwrap_err();
    assert!(error.status.is(Status::LBA_OUT_OF_RANGE), "{error}");
    let path = directory.path().join("1.img");
    std::fs::File::options().write(true).open(path).unwrap().set_len(MIB / 2).unwrap();
    client.verify(1, 0, blocks / 2).unwrap();
    let error = client.verify(1, 0, blocks).unwrap_err();
    assert!(error.status.is(Status::UNRECOVERED_READ_ERROR), "{error}");
}
