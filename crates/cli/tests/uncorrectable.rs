//! Marks of Write Uncorrectable when the target is killed, again and again: what was answered holds.

mod harness;

use harness::{NQN, Target};
use roadtrain_engine::buffer::Buffer;
use roadtrain_engine::host::{Client, HostConfig, RequestError};
use roadtrain_wire::status::Status;
use std::collections::BTreeMap;
use std::path::Path;
use std::thread;
use std::time::Duration;

const BLOCK: usize = 512;
const BLOCKS: u64 = 64;
const ROUNDS: u64 = 12;

/// What a block is known to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Block {
    Marked,
    Written(u8),
    /// A command was not answered, of which this may be left, or what was before.
    Either(Option<u8>, Option<u8>),
}

fn start(folder: &Path) -> Target {
    let namespace = format!("file:{},size=1MiB", folder.join("disk.img").display());
    let arguments = ["-a", "127.0.0.1", "-s", "0", "-n", NQN, "--namespace", &namespace];
    Target::start_in(folder, &arguments)
}

fn connect(target: &Target) -> Client {
    let address: std::net::SocketAddr = ([127, 0, 0, 1], target.port).into();
    let mut config = HostConfig::new(address, NQN, "nqn.2025-01.io.example:host", [7; 16]);
    config.controller_loss_timeout = Some(Duration::ZERO);
    Client::connect(config).unwrap()
}

/// What a block has; `None`: it cannot be read.
fn read(client: &Client, slba: u64) -> Option<u8> {
    match client.read(1, slba, Buffer::alloc(BLOCK)) {
        Ok(block) => {
            assert!(block.iter().all(|octet| *octet == block[0]), "block {slba} is torn");
            Some(block[0])
        }
        Err(RequestError { status, .. }) => {
            assert_eq!(status, Status::UNRECOVERED_READ_ERROR.dnr(), "block {slba}");
            None
        }
    }
}

/// Marks and writes blocks in turn, until the target is gone.
fn work(client: &Client, known: &mut BTreeMap<u64, Block>, round: u64) {
    for step in 0.. {
        let slba = (step * 7 + round) % BLOCKS;
        let before = match known.get(&slba) {
            Some(Block::Written(octet)) => Some(*octet),
            Some(_) => None,
            None => Some(0),
        };
        let octet = 1 + (step % 250) as u8;
        let (result, after) = if before.is_none() {
            let mut block = Buffer::alloc(BLOCK);
            block.fill(octet);
            (client.write(1, slba, block, false).map(drop), Some(octet))
        } else {
            (client.write_uncorrectable(1, slba, 1), None)
        };
        if result.is_err() {
            known.insert(slba, Block::Either(before, after));
            return;
        }
        known.insert(slba, after.map_or(Block::Marked, Block::Written));
    }
}

#[test]
fn what_was_answered_holds_when_the_target_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let mut known = BTreeMap::new();
    for round in 0..ROUNDS {
        let mut target = start(folder.path());
        let client = connect(&target);
        for (slba, block) in &mut known {
            let found = read(&client, *slba);
            match *block {
                Block::Marked => assert_eq!(found, None, "block {slba}, round {round}"),
                Block::Written(octet) => assert_eq!(found, Some(octet), "block {slba}"),
                Block::Either(one, other) => {
                    assert!([one, other].contains(&found), "block {slba}: {found:?}");
                }
            }
            *block = found.map_or(Block::Marked, Block::Written);
        }
        let pause = Duration::from_millis(40 + round * 17);
        thread::scope(|scope| {
            scope.spawn(|| work(&client, &mut known, round));
            thread::sleep(pause);
            target.child.kill().unwrap();
        });
    }
    assert!(known.len() > 8, "{} blocks were used", known.len());
}
