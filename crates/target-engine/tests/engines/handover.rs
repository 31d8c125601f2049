//! Handover: a target ends and another one continues with the same sockets.

use crate::harness::*;
use roadtrain_host_engine::{
    AcquireAction, ChangePersistence, HostClient, HostConfig, HostReservations, RegisterAction,
    ReservationType,
};
use roadtrain_system::buffer::Buffer;
use roadtrain_target_engine::{Export, Inherited, KeptPlace, Server, ServerConfig};
use roadtrain_wire::status::Status;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

const BLOCK: u32 = 4096;

fn config(export: &Export, at: &Server) -> ServerConfig {
    ServerConfig {
        listen: at.addresses(),
        cores: reactors(2),
        ..server_config(vec![export.clone()])
    }
}

/// Ends `old` and starts a successor with the same store.
fn succeeded(old: &Server, export: &Export) -> Server {
    let sockets = old.share_sockets();
    assert!(Server::start(server_config(vec![export.clone()])).is_err(), "the store is taken");
    let (reservations, ended) = old.hand_over(|pause| {
        thread::sleep(pause);
        true
    });
    ended.unwrap();
    let waits = TcpStream::connect(address(old)).expect("connections are not refused in between");
    let inherited = Inherited { sockets, reservations };
    let new = Server::succeed(config(export, old), &inherited).unwrap();
    drop(waits);
    new
}

/// Writes and reads one block after the other while targets succeed each other: no error, no old data.
#[test]
fn hosts_see_nothing_but_a_pause() {
    let folder = tempfile::tempdir().unwrap();
    let export = file(1, &folder, MIB, BLOCK);
    let first = ServerConfig { cores: reactors(2), ..server_config(vec![export.clone()]) };
    let mut servers = vec![Server::start(first).unwrap()];
    let client = connect(&servers[0]);
    let (over, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0.. {
                client.write(1, round % 256, pattern(BLOCK as usize, round), false).unwrap();
                let read = client.read(1, round % 256, Buffer::alloc(BLOCK as usize)).unwrap();
                assert!(*read == *pattern(BLOCK as usize, round), "round {round}");
                rounds.store(round, Ordering::Relaxed);
                if over.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        for _ in 0..5 {
            let before = rounds.load(Ordering::Relaxed);
            eventually("load", || rounds.load(Ordering::Relaxed) > before + 20);
            // The old server object stays, like the process of a target that has just handed over.
            let new = succeeded(servers.last().unwrap(), &export);
            servers.push(new);
        }
        over.store(true, Ordering::Relaxed);
    });
}

/// Reservations that do not persist through power loss still hold at a successor.
#[test]
fn reservations_go_along() {
    let folder = tempfile::tempdir().unwrap();
    let export = file(1, &folder, MIB, BLOCK);
    let first = ServerConfig { cores: reactors(2), ..server_config(vec![export.clone()]) };
    let old = Server::start(first).unwrap();
    let host = |server: &Server, number: u8| {
        let name = format!("nqn.2024-01.test:host{number}");
        let config = HostConfig::new(address(server), NQN, &name, [number; 16]);
        HostConfig { reconnect_delay: Duration::from_millis(20), ..config }
    };
    let mut one = HostReservations::connect(&host(&old, 1)).unwrap();
    let keep = ChangePersistence::Keep;
    one.register(1, (RegisterAction::Register, false), keep, (0, 5)).unwrap();
    one.acquire(1, AcquireAction::Acquire, ReservationType::WriteExclusive, (5, 0)).unwrap();
    drop(one);

    let new = succeeded(&old, &export);
    drop(old);
    let other = HostClient::connect(host(&new, 2)).unwrap();
    let refused = other.write(1, 0, pattern(BLOCK as usize, 1), false).unwrap_err();
    assert_eq!(refused.status, Status::RESERVATION_CONFLICT.dnr());
    let holder = HostClient::connect(host(&new, 1)).unwrap();
    holder.write(1, 0, pattern(BLOCK as usize, 2), false).unwrap();
}

/// A successor that keeps reservations in another file writes them there before a host can rely on it.
#[test]
fn reservations_persist_where_the_successor_keeps_them() {
    let folder = tempfile::tempdir().unwrap();
    let export = file(1, &folder, MIB, BLOCK);
    let old = Server::start(server_config(vec![export.clone()])).unwrap();
    let mut one = HostReservations::connect(&host_config(address(&old))).unwrap();
    one.register(1, (RegisterAction::Register, false), ChangePersistence::Set, (0, 5)).unwrap();
    one.acquire(1, AcquireAction::Acquire, ReservationType::WriteExclusive, (5, 0)).unwrap();
    drop(one);
    let reservations = KeptPlace::File(folder.path().join("kept"));
    let elsewhere = Export { reservations, ..export };
    let new = succeeded(&old, &elsewhere);
    drop(old);
    drop(new); // as if the power had failed
    let again = Server::start(server_config(vec![elsewhere])).unwrap();
    let mut config = host_config(address(&again));
    (config.host_nqn, config.host_id) = (format!("{HOST_NQN}-other"), [8; 16]);
    let other = HostClient::connect(config).unwrap();
    let refused = other.write(1, 0, pattern(BLOCK as usize, 1), false).unwrap_err();
    assert_eq!(refused.status, Status::RESERVATION_CONFLICT.dnr());
}

/// A target without a successor serves again, with all data.
#[test]
fn the_old_one_can_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let export = file(1, &folder, MIB, BLOCK);
    let old = Server::start(server_config(vec![export.clone()])).unwrap();
    let client = connect(&old);
    client.write(1, 3, pattern(BLOCK as usize, 1), false).unwrap();
    let again = server_config(vec![export]).as_changed(&old.exports(), old.addresses());
    let new = {
        let sockets = old.share_sockets();
        let (reservations, ended) = old.hand_over(|_| false);
        ended.unwrap();
        Server::succeed(again, &Inherited { sockets, reservations }).unwrap()
    };
    assert_eq!(new.addresses(), old.addresses());
    drop(old);
    assert!(
        *client.read(1, 3, Buffer::alloc(BLOCK as usize)).unwrap() == *pattern(BLOCK as usize, 1)
    );
    drop((client, new));
}
