//! Tests of lanes that move between reactors, continuously and at unfavorable moments.

use super::tests::{LONG, ManualQueue, NQN, eventually, host_config, queues};
use super::{Export, Server, ServerConfig, Subsystem, TargetUsage};
use roadtrain_host_engine::HostClient;
use roadtrain_store::{StoreKind, StoreSpec};
use roadtrain_system::buffer::Buffer;
use roadtrain_wire::fabrics::{Property, property};
use roadtrain_wire::status::Status;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::time::Duration;

const MIB: u64 = 1 << 20;

/// Starts a target with memory and a file, two reactors, and so few buffers that commands wait for them.
fn serve(directory: &Path) -> Server {
    let export =
        |nsid, kind| Export::new(nsid, StoreSpec { kind, lba_bytes: 512, read_only: false });
    let path = directory.join("file");
    let namespaces = vec![
        export(1, StoreKind::Memory { size: 8 * MIB }),
        export(2, StoreKind::File { path, size: Some(8 * MIB), create: true }),
    ];
    let subsystem = Subsystem { namespaces, ..Subsystem::new(NQN) };
    let mut config = ServerConfig::new(vec!["127.0.0.1:0".parse().unwrap()], vec![subsystem]);
    (config.cores, config.pool_bytes) = (vec![0; 2], 4 << 20);
    Server::start(config).unwrap()
}

fn filled(bytes: usize, seed: u64) -> Buffer {
    let mut buffer = Buffer::alloc(bytes);
    for (at, word) in buffer.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&(seed << 32 | at as u64).to_le_bytes());
    }
    buffer
}

/// Moves all lanes back and forth until `work` is done.
fn moving<T>(server: &Server, work: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 0.. {
                server.move_lanes(turn % 2, (turn + 1) % 2);
                std::thread::sleep(Duration::from_micros(300));
                if is_over.load(Relaxed) {
                    return;
                }
            }
        });
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        is_over.store(true, Relaxed);
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Small and large writes with R2T, to memory and to a file, and reads of them.
#[test]
fn lanes_that_move_all_the_time_lose_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve(directory.path());
    let mut config = host_config(&server, "nqn.x:host");
    (config.lanes, config.timeout) = (2, LONG);
    let client = HostClient::connect(config).unwrap();
    let work = |thread: u64| {
        for round in 0..60 {
            for (nsid, bytes) in [(1, 4096), (2, 4096), (1, 1 << 19), (2, 1 << 19)] {
                let slba = thread * MIB / 512;
                let seed = thread << 16 | round << 4 | u64::from(nsid);
                client.write(nsid, slba, filled(bytes, seed), round % 20 == 0).unwrap();
                let got = client.read(nsid, slba, Buffer::alloc(bytes)).unwrap();
                assert!(*got == *filled(bytes, seed), "{nsid}, {bytes}, {thread}, {round}");
            }
        }
    };
    moving(&server, || {
        std::thread::scope(|scope| (0..8).for_each(|thread| _ = scope.spawn(move || work(thread))));
    });
    assert!(server.moves() >= 20, "{} moves", server.moves());
    drop(client);
    let usage = || TargetUsage { kept_bytes: 0, ..server.usage() };
    eventually("everything is given back", || usage() == TargetUsage::default());
}

/// Hosts that connect and disconnect meanwhile leave nothing behind, and are never mistaken for their former
/// connections.
#[test]
fn hosts_come_and_go_while_lanes_move() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve(directory.path());
    moving(&server, || {
        for round in 0..40 {
            let mut config = host_config(&server, "nqn.x:host");
            (config.lanes, config.timeout, config.connect_timeout) = (3, LONG, LONG);
            let client = HostClient::connect(config).unwrap();
            for slot in 0..6 {
                client.write(1, slot * 8, filled(4096, round), false).unwrap();
            }
        }
    });
    eventually("nothing is left", || server.usage().connections == 0);
}

/// An event between two reactors reaches the lane: its controller is reset while it is about to move, and the other
/// reactor receives the event before it has the lane.
#[test]
fn a_reset_reaches_a_moving_lane() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve(directory.path());
    // The first reactor has the admin queue, the second the lane.
    let (mut admin, mut queue) = queues(&server);
    let (go_on, wait) = channel::<()>();
    server.call(1, move || _ = wait.recv_timeout(LONG));
    server.move_lanes(1, 0);
    let reset = Property::set(property::CC, 0x0046_0000);
    admin.run("reset", &reset, &[], &mut []).unwrap();
    go_on.send(()).unwrap();
    assert!(queue.has_ended(), "its controller is gone");
    eventually("only the admin queue is left", || server.usage().connections == 1);
    assert_eq!(server.moves(), 1, "it was on its way");
}

/// The lane continues on the reactor where it arrives.
#[test]
fn a_lane_goes_on_where_it_came_to() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve(directory.path());
    let (_admin, mut queue) = queues(&server);
    for round in 0..10u16 {
        let from = 1 - usize::from(round) % 2;
        eventually("it has moved", || {
            server.move_lanes(from, 1 - from); // not before the last move is complete
            server.moves() == u64::from(round) + 1
        });
        queue.send(&ManualQueue::flush(round));
        assert_eq!(queue.completion(), (round, Status::SUCCESS));
    }
}
