//! Hosts of a front target whose namespace is that of a back target.

use crate::harness::{
    BACK, FRONT, MIB, address, any_address, back_config, chained, config, connect, eventually,
    memory, pattern, serve,
};
use roadtrain_host_engine::HostClient;
use roadtrain_target_engine::Server;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Writes and reads back `count` blocks of 4 KiB, and checks them.
fn exercise(host: &HostClient, count: u64, seed: u64) {
    let blocks = 8;
    for number in 0..count {
        let slba = number * blocks;
        host.write(1, slba, pattern(4096, seed + number), number % 5 == 0).unwrap();
    }
    host.flush(1).unwrap();
    for number in 0..count {
        let found = host.read(1, number * blocks, pattern(4096, 0)).unwrap();
        assert!(*found == *pattern(4096, seed + number), "block {number}");
    }
}

#[test]
fn a_host_uses_the_blocks_of_another_target() {
    let back = serve(BACK, vec![memory(4 * MIB, 512)]);
    let front = serve(FRONT, vec![chained(address(&back))]);
    let host = connect(&front);
    exercise(&host, 64, 1);
    let (near, far) = (host.view().namespace(1).unwrap(), {
        let back = HostClient::connect(back_config(address(&back))).unwrap();
        back.view().namespace(1).unwrap()
    });
    assert_eq!((near.uuid, near.nguid), (far.uuid, far.nguid), "the same blocks");
    assert_eq!((near.blocks, near.block_bytes), (far.blocks, far.block_bytes));
    host.compare(1, 0, pattern(4096, 1)).unwrap();
    host.compare(1, 0, pattern(4096, 2)).unwrap_err();
    host.write_zeroes(1, 0, 8, true).unwrap();
    assert!(host.read(1, 0, pattern(4096, 0)).unwrap().iter().all(|&byte| byte == 0));
    host.discard(1, 8, 8).unwrap();
}

/// The operations of a host run on the thread of its connection, not on the controller's own.
#[test]
fn operations_stay_on_the_thread_of_the_hosts_lane() {
    let back = serve(BACK, vec![memory(4 * MIB, 512)]);
    let front = serve(FRONT, vec![chained(address(&back))]);
    let host = connect(&front);
    exercise(&host, 64, 1);
    let (_, controllers) = back.view();
    assert_eq!(controllers.len(), 1);
    let requests: Vec<u64> =
        back.lanes().iter().filter(|lane| lane.qid > 0).map(|lane| lane.requests).collect();
    // One lane on the controller's own thread, one on the reactor of the front target.
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[0], 1, "only Connect: {requests:?}");
    assert!(requests[1] >= 128, "{requests:?}");
}

#[test]
fn several_reactors_have_a_lane_each() {
    let back = serve(BACK, vec![memory(4 * MIB, 512)]);
    let mut front = config(FRONT, any_address(), vec![chained(address(&back))]);
    front.cores = vec![0; 3];
    let front = Server::start(front).unwrap();
    let hosts: Vec<_> = (0..6).map(|_| connect(&front)).collect();
    std::thread::scope(|scope| {
        for (number, host) in hosts.iter().enumerate() {
            scope.spawn(move || {
                for round in 0..50 {
                    let (slba, seed) = (number as u64 * 64, (number * 1000 + round) as u64);
                    host.write(1, slba, pattern(4096, seed), false).unwrap();
                    assert!(*host.read(1, slba, pattern(4096, 0)).unwrap() == *pattern(4096, seed));
                }
            });
        }
    });
    assert_eq!(back.lanes().iter().filter(|lane| lane.qid > 0).count(), 4);
}

/// The loss of the back target is waited for.
#[test]
fn a_back_target_that_is_started_again_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let file = || {
        let path = directory.path().join("disk");
        let kind = roadtrain_store::StoreKind::File { path, size: Some(4 * MIB), create: true };
        crate::harness::export(kind, 512)
    };
    let mut back = Some(serve(BACK, vec![file()]));
    let there = address(back.as_ref().unwrap());
    let front = serve(FRONT, vec![chained(there)]);
    let host = Arc::new(connect(&front));
    let (writer, done) = (host.clone(), Arc::new(AtomicU64::new(0)));
    let progress = done.clone();
    let writing = std::thread::spawn(move || {
        for round in 0..400 {
            writer.write(1, round % 128 * 8, pattern(4096, round), false).unwrap();
            progress.store(round, Relaxed);
        }
    });
    for step in 1..4 {
        eventually("writes go on", || done.load(Relaxed) > step * 100);
        drop(back.take());
        back = Some(Server::start(config(BACK, there, vec![file()])).unwrap());
    }
    writing.join().unwrap();
    for round in 272..400 {
        let found = host.read(1, round % 128 * 8, pattern(4096, 0)).unwrap();
        assert!(*found == *pattern(4096, round), "round {round}");
    }
}
