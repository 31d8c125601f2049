//! Rate limits of a namespace and of a host: commands are delayed, not failed.

use crate::harness::*;
use roadtrain_host_engine::HostClient;
use roadtrain_system::buffer::Buffer;
use roadtrain_target_engine::{ConfigOperation, Export, Server, Subsystem};
use roadtrain_target_proto::rate::RateSettings;
use roadtrain_wire::status::Status;
use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

/// Returns a limit of `number` commands per second without a burst.
fn iops(number: u64) -> RateSettings {
    RateSettings {
        iops: NonZeroU64::new(number),
        burst: Some(Duration::ZERO),
        ..RateSettings::UNLIMITED
    }
}

fn limit(server: &Server, nsid: u32, rates: RateSettings) {
    let operation = ConfigOperation::LimitNamespace { nqn: NQN.to_owned(), nsid, rates };
    server.apply(&[operation]).unwrap();
}

/// Writes 4 KiB to each of `places`, all at the same time.
fn write_all(client: &HostClient, nsid: u32, places: u64) {
    std::thread::scope(|scope| {
        for place in 0..places {
            let client = client.clone();
            scope
                .spawn(move || client.write(nsid, place * 8, pattern(4096, place), false).unwrap());
        }
    });
}

fn check_all(client: &HostClient, nsid: u32, places: u64) {
    for place in 0..places {
        let read = client.read(nsid, place * 8, Buffer::alloc(4096)).unwrap();
        assert!(*read == *pattern(4096, place), "place {place}");
    }
}

/// More data waits in capsules than a connection may keep, in memory and in a file, on reactors that share the limit.
#[test]
fn commands_wait_for_their_time_and_lose_nothing() {
    const PLACES: u64 = 100;
    let directory = tempfile::tempdir().unwrap();
    let exports = vec![memory(1, MIB, 512), file(2, &directory, MIB, 512)];
    let exports = exports.into_iter().map(|export| Export { rates: iops(500), ..export });
    let mut config = server_config(exports.collect());
    config.cores = reactors(2);
    let server = Server::start(config).unwrap();
    let mut config = host_config(address(&server));
    (config.lanes, config.reactors) = (2, Some(1));
    let client = HostClient::connect(config).unwrap();
    for nsid in [1, 2] {
        let begun = Instant::now();
        write_all(&client, nsid, PLACES);
        assert!(
            begun.elapsed() >= Duration::from_millis(2 * (PLACES - 1)),
            "{:?}",
            begun.elapsed()
        );
        limit(&server, nsid, RateSettings::UNLIMITED);
        check_all(&client, nsid, PLACES);
    }
    drop(client);
    assert_nothing_left(&server);
}

#[test]
fn other_limits_count_for_commands_that_wait_already() {
    let server = serve(vec![Export { rates: iops(1), ..memory(1, MIB, 512) }]);
    let client = connect(&server);
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| write_all(&client, 1, 80));
        std::thread::sleep(Duration::from_millis(50));
        assert!(!writing.is_finished(), "80 commands at one a second");
        limit(&server, 1, RateSettings::UNLIMITED);
    });
    check_all(&client, 1, 80);
    drop(client);
    assert_nothing_left(&server);
}

/// Configuration changes do not charge waiting commands again.
#[test]
fn changes_of_other_things_do_not_keep_commands_waiting() {
    let server =
        serve(vec![Export { rates: iops(100), ..memory(1, MIB, 512) }, memory(2, MIB, 512)]);
    let client = connect(&server);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| write_all(&client, 1, 60));
        std::thread::sleep(Duration::from_millis(50));
        for number in (1..=40).take_while(|_| !writing.is_finished()) {
            limit(&server, 2, iops(number));
        }
    });
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    drop(client);
    assert_nothing_left(&server);
}

/// The limit of a host applies to all its namespaces together, and to no other host.
#[test]
fn a_host_is_limited_and_its_neighbour_is_not() {
    let host_rates = BTreeMap::from([(HOST_NQN.to_owned(), iops(1))]);
    let exports = vec![memory(1, MIB, 512), memory(2, MIB, 512)];
    let mut config = server_config(Vec::new());
    config.subsystems = vec![Subsystem { host_rates, ..subsystem(exports) }];
    let server = Server::start(config).unwrap();
    let limited = connect(&server);
    let mut config = host_config(address(&server));
    (config.host_nqn, config.host_id) = (format!("{HOST_NQN}-other"), [8; 16]);
    let other = HostClient::connect(config).unwrap();
    std::thread::scope(|scope| {
        let writing = [1, 2].map(|nsid| {
            let limited = &limited;
            scope.spawn(move || write_all(limited, nsid, 20))
        });
        write_all(&other, 1, 20);
        check_all(&other, 1, 20);
        assert!(writing.iter().any(|writing| !writing.is_finished()), "40 at one a second");
        let (nqn, host, rates) = (NQN.to_owned(), HOST_NQN.to_owned(), RateSettings::UNLIMITED);
        server.apply(&[ConfigOperation::LimitHost { nqn, host, rates }]).unwrap();
    });
    check_all(&limited, 2, 20);
}

/// Waiting commands end with their namespace, connection or controller.
#[test]
fn what_waits_ends_with_what_it_waits_for() {
    let server = serve(vec![memory(1, MIB, 512), Export { rates: iops(1), ..memory(2, MIB, 512) }]);
    let client = connect(&server);
    client.write(2, 0, pattern(4096, 0), false).unwrap();
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            (0..20).try_fold(Buffer::alloc(4096), |buffer, _| client.read(2, 0, buffer)).map(drop)
        });
        std::thread::sleep(Duration::from_millis(30));
        let (nqn, nsid) = (NQN.to_owned(), 2);
        server.apply(&[ConfigOperation::RemoveNamespace { nqn, nsid }]).unwrap();
        let status = reading.join().unwrap().unwrap_err().status;
        assert!(status.is(Status::INVALID_NAMESPACE), "{status}");
    });
    limit(&server, 1, iops(1));
    let waiting = connect(&server);
    let writing = std::thread::spawn({
        let waiting = waiting.clone();
        move || (0..5).try_for_each(|at| waiting.write(1, at, pattern(512, at), false).map(drop))
    });
    std::thread::sleep(Duration::from_millis(30));
    drop(waiting);
    limit(&server, 1, iops(100));
    writing.join().unwrap().unwrap();
    drop(client);
    assert_nothing_left(&server);
}
