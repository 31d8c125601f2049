//! Hosts of a front target whose namespace is that of a back target.

use crate::harness::{
    BACK, FRONT, MIB, address, any_address, back_config, chained, config, connect, connect_as,
    eventually, export, memory, pattern, remote, serve,
};
use roadtrain_chain::NvmeSource;
use roadtrain_host_engine::{
    ChangePersistence, HostClient, HostConfig, HostReservations, RegisterAction,
};
use roadtrain_store::{
    OpenError, RemoteBlocks, Store, StoreCompletion, StoreGeometry, StoreIo, StoreKind,
    StoreOperation, StoreSpec, StoreToken, open,
};
use roadtrain_system::buffer::Buffer;
use roadtrain_target_engine::{AnaState, Export, ExportBlocks, Server, Subsystem};
use roadtrain_wire::status::Status;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

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

/// Compare and Write is atomic for all users of the blocks: two fronts, and a host of the back target.
#[test]
fn compare_and_write_is_executed_by_the_back_target() {
    let back = serve(BACK, vec![memory(4 * MIB, 512)]);
    let fronts: Vec<_> = (0..2).map(|_| serve(FRONT, vec![chained(address(&back))])).collect();
    let mut hosts: Vec<_> = fronts.iter().map(connect).collect();
    hosts.push(HostClient::connect(back_config(address(&back))).unwrap());
    let counter = |value: u64| {
        let mut block = pattern(512, 0);
        block[..8].copy_from_slice(&value.to_le_bytes());
        block
    };
    hosts[0].write(1, 0, counter(0), false).unwrap();
    let rounds = 40;
    std::thread::scope(|scope| {
        for host in &hosts {
            scope.spawn(move || {
                for _ in 0..rounds {
                    loop {
                        let found = host.read(1, 0, pattern(512, 9)).unwrap();
                        let value = u64::from_le_bytes(found[..8].try_into().unwrap());
                        let next = counter(value + 1);
                        match host.compare_and_write(1, 0, &found, &next) {
                            Ok(()) => break,
                            Err(error) => {
                                assert!(error.status.is(Status::COMPARE_FAILURE), "{error}")
                            }
                        }
                    }
                }
            });
        }
    });
    let found = hosts[2].read(1, 0, pattern(512, 9)).unwrap();
    let expected = rounds * hosts.len() as u64;
    assert_eq!(u64::from_le_bytes(found[..8].try_into().unwrap()), expected, "an update was lost");
}

/// Marks are where the blocks are: every user of them sees them.
#[test]
fn write_uncorrectable_is_executed_by_the_back_target() {
    let back = serve(BACK, vec![memory(4 * MIB, 512)]);
    let front = serve(FRONT, vec![chained(address(&back))]);
    let host = connect(&front);
    host.write_uncorrectable(1, 8, 8).unwrap();
    let direct = HostClient::connect(back_config(address(&back))).unwrap();
    for host in [&host, &direct] {
        let error = host.read(1, 8, pattern(512, 0)).unwrap_err();
        assert!(error.status.is(Status::UNRECOVERED_READ_ERROR), "{error}");
    }
    host.write(1, 8, pattern(4096, 1), false).unwrap();
    assert!(*direct.read(1, 8, pattern(4096, 0)).unwrap() == *pattern(4096, 1));
}

/// Hosts of the front target receive the event of a new size at the back target.
#[test]
fn a_resize_is_followed() {
    let back = serve(BACK, vec![memory(4 * MIB, 512)]);
    let front = serve(FRONT, vec![chained(address(&back))]);
    let host = connect(&front);
    let larger = Subsystem { namespaces: vec![memory(8 * MIB, 512)], ..Subsystem::new(BACK) };
    back.reload(&[larger]).unwrap();
    let blocks = || host.view().namespace(1).map(|namespace| namespace.blocks);
    eventually("the host sees the new size", || blocks() == Some(8 * MIB / 512));
    host.write(1, 8 * MIB / 512 - 8, pattern(4096, 1), false).unwrap();
}

/// Without a path to the blocks the namespace is inaccessible at the front target, until there is one again.
#[test]
fn the_front_follows_the_paths_of_the_back() {
    let back = serve(BACK, vec![memory(4 * MIB, 512)]);
    let there = address(&back);
    let front = serve(FRONT, vec![chained(there)]);
    let host = connect(&front);
    let state = || front.view().0.subsystems[0].namespaces[0].ana;
    assert_eq!(state(), AnaState::Optimized);
    drop(back);
    eventually("it is inaccessible", || state() == AnaState::Inaccessible);
    let back = Server::start(config(BACK, there, vec![memory(4 * MIB, 512)])).unwrap();
    // Memory is another namespace at each start: its blocks are not those that hosts have used.
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert_eq!(state(), AnaState::Inaccessible);
    drop(back);
    let mut same = memory(4 * MIB, 512);
    let known = host.view().namespace(1).unwrap();
    (same.uuid, same.nguid) = (Some(known.uuid), Some(known.nguid));
    let _back = Server::start(config(BACK, there, vec![same])).unwrap();
    eventually("it is accessible", || state() == AnaState::Optimized);
    host.write(1, 0, pattern(4096, 1), false).unwrap();
    drop((host, front)); // before the back target, which they would wait for
}

#[test]
fn what_cannot_be_served_says_why() {
    let back = serve(BACK, vec![memory(4 * MIB, 512)]);
    let there = address(&back);
    let refused = |kind: StoreKind| {
        let wanted = config(FRONT, any_address(), vec![export(kind, 512)]);
        Server::start(wanted).err().expect("refused").to_string()
    };
    let source = |config, nsid| {
        StoreKind::Remote(RemoteBlocks::new(NvmeSource::new(config, nsid, Vec::new())))
    };
    let missing = refused(source(back_config(there), 2));
    assert!(missing.contains("no namespace 2: it has 1"), "{missing}");
    let other = HostConfig { subsystem_nqn: "nqn.2024-01.test:none".into(), ..back_config(there) };
    let unknown = refused(source(other, 1));
    assert!(unknown.contains("Connect"), "{unknown}");
    drop(back);
    let away = refused(remote(HostConfig {
        connect_timeout: Duration::from_millis(100),
        timeout: Duration::from_millis(500),
        ..back_config(there)
    }));
    assert!(away.contains("cannot reach"), "{away}");
}

/// A namespace that leads back to its own target would wait for itself.
#[test]
fn a_chain_to_itself_is_refused() {
    let listener = std::net::TcpListener::bind(any_address()).unwrap();
    let own = listener.local_addr().unwrap();
    drop(listener);
    let looped = config(BACK, own, vec![chained(own)]);
    let error = Server::start(looped).err().expect("refused").to_string();
    assert!(error.contains("of this target itself"), "{error}");
}

/// Two namespaces of one target with the same blocks would not know of each other's writes.
#[test]
fn blocks_have_one_namespace_that_writes() {
    let back = serve(BACK, vec![memory(4 * MIB, 512)]);
    let twice = || vec![chained(address(&back)), Export { nsid: 2, ..chained(address(&back)) }];
    let error = Server::start(config(FRONT, any_address(), twice())).err().expect("refused");
    assert!(error.to_string().contains("has these blocks"), "{error}");
}

/// The controller ends with its last namespace.
#[test]
fn a_removed_namespace_ends_its_controller() {
    let back = serve(BACK, vec![memory(4 * MIB, 512)]);
    let front = serve(FRONT, vec![chained(address(&back))]);
    let host = connect(&front);
    exercise(&host, 4, 1);
    assert_eq!(back.view().1.len(), 1);
    front.reload(&[Subsystem::new(FRONT)]).unwrap();
    eventually("its controller is shut down", || back.view().1.is_empty());
    front
        .reload(&[Subsystem { namespaces: vec![chained(address(&back))], ..Subsystem::new(FRONT) }])
        .unwrap();
    eventually("it is back", || host.view().namespace(1).is_some());
    exercise(&host, 4, 2);
}

/// All namespaces of one subsystem share a controller.
#[test]
fn namespaces_share_a_controller() {
    let second = Export { nsid: 2, ..memory(2 * MIB, 512) };
    let back = serve(BACK, vec![memory(4 * MIB, 512), second]);
    let source = StoreKind::Remote(RemoteBlocks::new(NvmeSource::new(
        back_config(address(&back)),
        2,
        Vec::new(),
    )));
    let both = vec![chained(address(&back)), Export { nsid: 2, ..export(source, 512) }];
    let front = serve(FRONT, both);
    let host = connect(&front);
    host.write(2, 0, pattern(4096, 1), false).unwrap();
    host.write(1, 0, pattern(4096, 2), false).unwrap();
    assert!(*host.read(2, 0, pattern(4096, 0)).unwrap() == *pattern(4096, 1));
    assert_eq!(back.view().1.len(), 1);
}

#[test]
fn a_read_only_namespace_is_read_only() {
    let mut exported = memory(4 * MIB, 512);
    if let ExportBlocks::Spec(spec) = &mut exported.blocks {
        spec.read_only = true;
    }
    let back = serve(BACK, vec![exported]);
    let front = serve(FRONT, vec![chained(address(&back))]);
    let host = connect(&front);
    assert!(host.view().namespace(1).unwrap().read_only);
    host.write(1, 0, pattern(4096, 1), false).unwrap_err();
    host.read(1, 0, pattern(4096, 1)).unwrap();
}

/// Hosts of other targets, and of the back target itself, would not know of a reservation.
#[test]
fn reservations_are_refused() {
    let back = serve(BACK, vec![memory(4 * MIB, 512)]);
    let front = serve(FRONT, vec![chained(address(&back))]);
    let config = HostConfig::new(address(&front), FRONT, "nqn.2024-01.test:host", [7; 16]);
    let mut reserving = HostReservations::connect(&config).unwrap();
    let registered =
        reserving.register(1, (RegisterAction::Register, false), ChangePersistence::Keep, (0, 7));
    let error = registered.unwrap_err().to_string();
    assert!(error.contains("Invalid Command Opcode"), "{error}");
}

/// A failed flush of the back target is reported to each host of the front target that may have lost a write, once.
#[test]
fn a_failed_flush_is_reported_to_the_hosts_that_wrote() {
    let below = open(&StoreSpec {
        kind: StoreKind::Memory { size: 4 * MIB },
        lba_bytes: 512,
        read_only: false,
    });
    let fails = Arc::new(AtomicBool::new(false));
    let store = Arc::new(LosingStore { below: below.unwrap(), fails: fails.clone() });
    let back = serve(BACK, vec![Export::with_store(1, store)]);
    let front = serve(FRONT, vec![chained(address(&back))]);
    let hosts: Vec<_> = (1..=3).map(|number| connect_as(&front, number)).collect();
    assert!(hosts[0].view().info().identify.vwc & 1 != 0);
    for (number, host) in hosts.iter().take(2).enumerate() {
        host.write(1, number as u64 * 8, pattern(4096, 1), false).unwrap();
    }
    fails.store(true, Relaxed);
    let flushed: Vec<_> = hosts.iter().map(|host| host.flush(1).is_ok()).collect();
    assert_eq!(flushed, [false, false, true], "those that wrote");
    let again: Vec<_> = hosts.iter().map(|host| host.flush(1).is_ok()).collect();
    assert_eq!(again, [true; 3], "once");
    hosts[2].write(1, 64, pattern(4096, 1), true).unwrap();
}

/// Store in memory with a volatile cache, whose next flush fails on request.
#[derive(Debug)]
struct LosingStore {
    below: Arc<dyn Store>,
    fails: Arc<AtomicBool>,
}

impl Store for LosingStore {
    fn geometry(&self) -> StoreGeometry {
        StoreGeometry { volatile_cache: true, ..self.below.geometry() }
    }

    fn identity(&self) -> Result<u128, OpenError> {
        self.below.identity()
    }

    fn submit(
        &self,
        op: StoreOperation,
        buffer: Option<Buffer>,
        token: StoreToken,
        io: &mut StoreIo<'_>,
    ) {
        if op == StoreOperation::Flush && self.fails.swap(false, Relaxed) {
            let lost = Err(Status::WRITE_FAULT.dnr());
            return io.complete(StoreCompletion::new(token, lost, buffer));
        }
        self.below.submit(op, buffer, token, io);
    }
}
