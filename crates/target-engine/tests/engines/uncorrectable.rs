//! Write Uncorrectable: blocks that cannot be read until they are written, for every host and across a restart.

use crate::harness::*;
use crate::peer::*;
use roadtrain_host_engine::{HostClient, RequestError};
use roadtrain_system::buffer::Buffer;
use roadtrain_target_engine::{Export, KeptPlace, Server, ServerConfig};
use roadtrain_wire::status::Status;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const BLOCK_BYTES: usize = BLOCK as usize;
const UNREADABLE: Status = Status::UNRECOVERED_READ_ERROR.dnr();

fn exports(directory: &tempfile::TempDir) -> Vec<Export> {
    vec![
        memory(1, MIB, BLOCK),
        file(2, directory, MIB, BLOCK),
        ssd(3, MIB, BLOCK, Duration::from_micros(20), 4),
    ]
}

fn start(exports: Vec<Export>) -> Server {
    Server::start(ServerConfig { cores: reactors(2), ..server_config(exports) }).unwrap()
}

/// Connects host `number`, with lanes on both reactors.
fn host(server: &Server, number: u8) -> HostClient {
    let mut config = host_config(address(server));
    (config.host_nqn, config.host_id) = (format!("{HOST_NQN}{number}"), [number + 1; 16]);
    HostClient::connect(config).unwrap()
}

fn status<T>(result: Result<T, RequestError>) -> Status {
    result.err().map_or(Status::SUCCESS, |error| error.status)
}

fn read(client: &HostClient, nsid: u32, slba: u64, blocks: usize) -> Status {
    status(client.read(nsid, slba, Buffer::alloc(blocks * BLOCK_BYTES)))
}

fn write(client: &HostClient, nsid: u32, slba: u64, blocks: usize, seed: u64) -> Status {
    status(client.write(nsid, slba, pattern(blocks * BLOCK_BYTES, seed), false))
}

fn has(client: &HostClient, nsid: u32, slba: u64, blocks: usize, seed: u64) -> bool {
    let bytes = blocks * BLOCK_BYTES;
    *client.read(nsid, slba, Buffer::alloc(bytes)).unwrap() == *pattern(bytes, seed)
}

#[test]
fn what_is_marked_fails_every_command_that_reads_it() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(exports(&directory));
    let (one, other) = (host(&server, 1), host(&server, 2));
    for nsid in 1..=3 {
        assert_eq!(write(&one, nsid, 0, 64, 1), Status::SUCCESS);
        one.write_uncorrectable(nsid, 10, 4).unwrap();
        for client in [&one, &other] {
            assert_eq!(read(client, nsid, 0, 10), Status::SUCCESS);
            assert_eq!(read(client, nsid, 0, 11), UNREADABLE, "nsid {nsid}");
            assert_eq!(read(client, nsid, 13, 3), UNREADABLE);
            assert_eq!(read(client, nsid, 14, 3), Status::SUCCESS);
            let compared = client.compare(nsid, 0, pattern(64 * BLOCK_BYTES, 1));
            assert_eq!(status(compared), UNREADABLE);
            assert_eq!(status(client.verify(nsid, 8, 4)), UNREADABLE);
            assert_eq!(status(client.copy(nsid, &[(0, 4), (12, 1)], 100, false)), UNREADABLE);
            let block = &pattern(64 * BLOCK_BYTES, 1)[10 * BLOCK_BYTES..][..BLOCK_BYTES];
            let fused = client.compare_and_write(nsid, 10, block, block);
            assert_eq!(status(fused), UNREADABLE);
        }
        // Deallocation does not count as a write.
        one.discard(nsid, 10, 4).unwrap();
        assert_eq!(read(&other, nsid, 10, 1), UNREADABLE);
    }
    drop((one, other));
    assert_nothing_left(&server);
}

#[test]
fn what_is_written_can_be_read_again() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(exports(&directory));
    let (one, other) = (host(&server, 1), host(&server, 2));
    for nsid in 1..=3 {
        one.write_uncorrectable(nsid, 0, 64).unwrap();
        assert_eq!(write(&other, nsid, 10, 2, 1), Status::SUCCESS);
        assert!(has(&one, nsid, 10, 2, 1), "nsid {nsid}");
        assert_eq!([9, 12].map(|slba| read(&one, nsid, slba, 1)), [UNREADABLE; 2]);
        other.write_zeroes(nsid, 20, 2, false).unwrap();
        let zeroes = one.read(nsid, 20, Buffer::alloc(2 * BLOCK_BYTES)).unwrap();
        assert!(zeroes.iter().all(|byte| *byte == 0));
        other.copy(nsid, &[(10, 2)], 30, false).unwrap();
        assert!(has(&one, nsid, 30, 2, 1));
        let last = other.write(nsid, 0, pattern(64 * BLOCK_BYTES, 2), true);
        assert_eq!((status(last), read(&one, nsid, 0, 64)), (Status::SUCCESS, Status::SUCCESS));
        assert!(has(&one, nsid, 0, 64, 2));
    }
    drop((one, other));
    assert_nothing_left(&server);
}

#[test]
fn marks_outlive_the_target() {
    let directory = tempfile::tempdir().unwrap();
    let exports = || vec![file(2, &directory, MIB, BLOCK)];
    let server = start(exports());
    let client = host(&server, 1);
    assert_eq!(write(&client, 2, 0, 64, 1), Status::SUCCESS);
    client.write_uncorrectable(2, 10, 4).unwrap();
    assert_eq!(write(&client, 2, 11, 1, 2), Status::SUCCESS);
    drop(client);
    // A target that was killed now would find this file: it has every completed change.
    let kept = directory.path().join("2.img.uncorrectable");
    let text = fs::read_to_string(&kept).unwrap();
    assert!(text.contains("marked 5120 512\nmarked 6144 1024\n"), "{text}");
    server.shut_down().unwrap();
    drop(server);
    let server = start(exports());
    let client = host(&server, 1);
    assert_eq!([10, 12, 13].map(|slba| read(&client, 2, slba, 1)), [UNREADABLE; 3]);
    assert_eq!([9, 11, 14].map(|slba| read(&client, 2, slba, 1)), [Status::SUCCESS; 3]);
    drop((client, server));
    // A read-only export has the marks, too.
    let server = start(vec![read_only(exports().remove(0))]);
    let client = host(&server, 1);
    assert_eq!(read(&client, 2, 10, 1), UNREADABLE);
    let protected = Status::NAMESPACE_WRITE_PROTECTED.dnr();
    assert_eq!(status(client.write_uncorrectable(2, 0, 1)), protected);
    drop((client, server));
    fs::write(&kept, text.replace("5120", "4608")).unwrap();
    let error = Server::start(server_config(exports())).map(drop).unwrap_err().to_string();
    assert!(error.contains("2.img.uncorrectable") && error.contains("damaged"), "{error}");
}

#[test]
fn a_mark_that_cannot_be_saved_is_none_and_stays_one() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(exports(&directory));
    let client = host(&server, 1);
    client.write_uncorrectable(2, 0, 2).unwrap();
    // Nothing can be written there.
    let new = directory.path().join("2.img.uncorrectable.new");
    fs::create_dir(&new).unwrap();
    assert_eq!(status(client.write_uncorrectable(2, 8, 1)), Status::INTERNAL_ERROR);
    assert_eq!(read(&client, 2, 8, 1), Status::SUCCESS);
    assert_eq!(write(&client, 2, 0, 1, 1), Status::INTERNAL_ERROR);
    assert_eq!(read(&client, 2, 0, 1), UNREADABLE);
    assert_eq!(write(&client, 2, 4, 2, 1), Status::SUCCESS, "others are not concerned");
    fs::remove_dir(&new).unwrap();
    assert_eq!(write(&client, 2, 0, 1, 2), Status::SUCCESS);
    assert!(has(&client, 2, 0, 1, 2));
    drop(client);
    assert_nothing_left(&server);
}

/// A target does not ignore marks that it can no longer keep: their blocks would read as good.
#[test]
fn a_target_does_not_start_with_marks_that_it_cannot_keep() {
    let directory = tempfile::tempdir().unwrap();
    let exports = || vec![file(2, &directory, MIB, BLOCK)];
    let server = start(exports());
    host(&server, 1).write_uncorrectable(2, 0, 2).unwrap();
    drop(server);
    // No file can be created there.
    let probe = directory.path().join("2.img.uncorrectable.probe");
    fs::create_dir(&probe).unwrap();
    let error = Server::start(server_config(exports())).map(drop).unwrap_err().to_string();
    assert!(
        error.contains("2.img.uncorrectable: ") && error.contains("make its folder writable"),
        "{error}"
    );
    // A read-only namespace keeps no marks, but has those of the file.
    let server = start(vec![read_only(exports().remove(0))]);
    assert_eq!(read(&host(&server, 1), 2, 0, 1), UNREADABLE);
    drop(server);
    // Without marks there is nothing to lose.
    fs::remove_file(directory.path().join("2.img.uncorrectable")).unwrap();
    let server = start(exports());
    let client = host(&server, 1);
    assert_eq!(status(client.write_uncorrectable(2, 0, 1)), Status::INVALID_OPCODE.dnr());
    assert_eq!(
        (write(&client, 2, 0, 4, 1), read(&client, 2, 0, 4)),
        (Status::SUCCESS, Status::SUCCESS)
    );
}

#[test]
fn where_there_is_no_place_nothing_is_marked() {
    let directory = tempfile::tempdir().unwrap();
    let nowhere = KeptPlace::Nowhere;
    let kept = KeptPlace::File(directory.path().join("kept"));
    let server = start(vec![
        Export { uncorrectable: nowhere, ..file(1, &directory, MIB, BLOCK) },
        Export { uncorrectable: kept.clone(), ..file(2, &directory, MIB, BLOCK) },
    ]);
    let client = host(&server, 1);
    assert_eq!(status(client.write_uncorrectable(1, 0, 1)), Status::INVALID_OPCODE.dnr());
    assert_eq!(status(client.write_uncorrectable(1, 2048, 1)), Status::LBA_OUT_OF_RANGE.dnr());
    client.write_uncorrectable(2, 0, 1).unwrap();
    assert!(Path::new(&directory.path().join("kept")).exists());
    let twice = vec![
        Export { uncorrectable: kept.clone(), ..file(3, &directory, MIB, BLOCK) },
        Export { uncorrectable: kept, ..file(4, &directory, MIB, BLOCK) },
    ];
    assert!(Server::start(server_config(twice)).is_err(), "marks of one would be the other's");
}

/// Runs a function on drop, also on a panic.
fn defer(last: impl FnMut()) -> impl Drop {
    struct Deferred<F: FnMut()>(F);
    impl<F: FnMut()> Drop for Deferred<F> {
        fn drop(&mut self) {
            (self.0)();
        }
    }
    Deferred(last)
}

/// One host marks and writes while others use other blocks: a read that begins after a completion never returns the
/// previous state.
#[test]
fn marks_hold_for_every_host_from_their_answer_on() {
    let rounds = effort(15, 60);
    let directory = tempfile::tempdir().unwrap();
    let server = start(exports(&directory));
    let (one, other) = (host(&server, 1), host(&server, 2));
    let beside = host(&server, 3);
    for nsid in 1..=3 {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Its blocks overlap with those of others every other time.
                for slba in [0, 6].into_iter().cycle() {
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    assert_eq!(write(&beside, nsid, slba, 6, 3), Status::SUCCESS);
                    assert_eq!(read(&beside, nsid, 0, 6), Status::SUCCESS);
                }
            });
            let _over = defer(|| is_over.store(true, Ordering::Relaxed));
            for round in 0..rounds {
                one.write_uncorrectable(nsid, 12, 20).unwrap();
                assert_eq!(read(&other, nsid, 12, 20), UNREADABLE, "nsid {nsid}, {round}");
                assert_eq!(write(&other, nsid, 12, 20, round), Status::SUCCESS);
                assert!(has(&one, nsid, 12, 20, round), "nsid {nsid}, round {round}");
                assert!(has(&other, nsid, 12, 20, round));
            }
        });
    }
    drop((one, other, beside));
    assert_nothing_left(&server);
}

/// Concurrent writes of the same marked blocks: each succeeds, and the data of one of them is stored.
#[test]
fn writes_of_marked_blocks_at_the_same_time_end_well() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(exports(&directory));
    let hosts: Vec<HostClient> = (1..=4).map(|number| host(&server, number)).collect();
    for nsid in 1..=3 {
        for round in 0..effort(6, 20) {
            hosts[0].write_uncorrectable(nsid, 0, 16).unwrap();
            std::thread::scope(|scope| {
                for (seed, client) in hosts.iter().enumerate() {
                    let slba = (seed as u64 + round) % 4 * 2;
                    scope.spawn(move || {
                        assert_eq!(write(client, nsid, slba, 8, slba), Status::SUCCESS);
                    });
                }
            });
            assert_eq!(read(&hosts[1], nsid, 0, 14), Status::SUCCESS, "nsid {nsid}");
            assert_eq!(read(&hosts[2], nsid, 14, 1), UNREADABLE);
        }
    }
    drop(hosts);
    assert_nothing_left(&server);
}
