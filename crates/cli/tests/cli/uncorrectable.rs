//! Marks of Write Uncorrectable survive repeated kills of the target, and a takeover by another process: acknowledged
//! changes hold.

use crate::harness::{NQN, TargetProcess, eventually};
use roadtrain_host_engine::{HostClient, HostConfig, RequestError};
use roadtrain_system::buffer::Buffer;
use roadtrain_wire::status::Status;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

const BLOCK: usize = 512;
const BLOCKS: u64 = 64;
const ROUNDS: u64 = 12;

/// Known content of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KnownBlock {
    Marked,
    Written(u8),
    /// Old or new content, after a command that was not completed.
    Either(Option<u8>, Option<u8>),
}

fn start(folder: &Path) -> TargetProcess {
    start_at(folder, 0, &[])
}

fn start_at(folder: &Path, port: u16, options: &[&str]) -> TargetProcess {
    let namespace = format!("file:{},size=1MiB", folder.join("disk.img").display());
    let port = port.to_string();
    let arguments = ["-a", "127.0.0.1", "-s", &port, "-n", NQN, "--namespace", &namespace];
    TargetProcess::start_in(folder, &[&arguments, options].concat())
}

fn connect(target: &TargetProcess, controller_loss_timeout: Duration) -> HostClient {
    let address: std::net::SocketAddr = ([127, 0, 0, 1], target.port).into();
    let mut config = HostConfig::new(address, NQN, "nqn.2025-01.io.example:host", [7; 16]);
    config.controller_loss_timeout = Some(controller_loss_timeout);
    HostClient::connect(config).unwrap()
}

/// Returns the content of a block; `None` if it cannot be read.
fn read(client: &HostClient, slba: u64) -> Option<u8> {
    match client.read(1, slba, Buffer::alloc(BLOCK)) {
        Ok(block) => {
            assert!(block.iter().all(|byte| *byte == block[0]), "block {slba} is torn");
            Some(block[0])
        }
        Err(RequestError { status, .. }) => {
            assert_eq!(status, Status::UNRECOVERED_READ_ERROR.dnr(), "block {slba}");
            None
        }
    }
}

/// Marks and writes blocks in turn until the target has ended; counts the completions.
fn work(
    client: &HostClient,
    known: &mut BTreeMap<u64, KnownBlock>,
    round: u64,
    answers: &AtomicU64,
) {
    for step in 0.. {
        let slba = (step * 7 + round) % BLOCKS;
        let before = match known.get(&slba) {
            Some(KnownBlock::Written(byte)) => Some(*byte),
            Some(_) => None,
            None => Some(0),
        };
        let byte = 1 + (step % 250) as u8;
        let (result, after) = if before.is_none() {
            let mut block = Buffer::alloc(BLOCK);
            block.fill(byte);
            (client.write(1, slba, block, false).map(drop), Some(byte))
        } else {
            (client.write_uncorrectable(1, slba, 1), None)
        };
        if result.is_err() {
            known.insert(slba, KnownBlock::Either(before, after));
            return;
        }
        known.insert(slba, after.map_or(KnownBlock::Marked, KnownBlock::Written));
        answers.fetch_add(1, Relaxed);
    }
}

#[test]
fn what_was_answered_holds_when_the_target_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let mut known = BTreeMap::new();
    for round in 0..ROUNDS {
        let mut target = start(folder.path());
        let client = connect(&target, Duration::ZERO);
        for (slba, block) in &mut known {
            let found = read(&client, *slba);
            match *block {
                KnownBlock::Marked => assert_eq!(found, None, "block {slba}, round {round}"),
                KnownBlock::Written(byte) => assert_eq!(found, Some(byte), "block {slba}"),
                KnownBlock::Either(one, other) => {
                    assert!([one, other].contains(&found), "block {slba}: {found:?}");
                }
            }
            *block = found.map_or(KnownBlock::Marked, KnownBlock::Written);
        }
        let answers = AtomicU64::new(0);
        thread::scope(|scope| {
            scope.spawn(|| work(&client, &mut known, round, &answers));
            eventually("commands are answered", || answers.load(Relaxed) >= 5 + round * 3);
            target.child.kill().unwrap();
        });
    }
    assert!(known.len() > 8, "{} blocks were used", known.len());
}

/// Marks and writes continue over three takeovers; each process has the earlier ones' marks, and its own.
#[test]
fn marks_are_taken_over_by_the_next_process() {
    const FILLED: u8 = 7;
    let folder = tempfile::tempdir().unwrap();
    let mut target = start(folder.path());
    let client = connect(&target, Duration::from_secs(20));
    let write = |slba| {
        let mut block = Buffer::alloc(BLOCK);
        block.fill(FILLED);
        client.write(1, slba, block, false).unwrap();
    };
    // Each round marks two blocks and removes one mark of the round before.
    for round in 0..4 {
        if round > 0 {
            let next = start_at(folder.path(), target.port, &["--takeover"]);
            assert!(target.child.wait().unwrap().success(), "the old process, round {round}");
            target = next;
            write(round * 2 - 1);
        }
        client.write_uncorrectable(1, round * 2, 2).unwrap();
        let found: Vec<Option<u8>> = (0..round * 2 + 2).map(|slba| read(&client, slba)).collect();
        let due = |slba| (slba % 2 == 1 && slba / 2 < round).then_some(FILLED);
        assert_eq!(found, (0..round * 2 + 2).map(due).collect::<Vec<_>>(), "round {round}");
    }
}
