//! Namespaces that are added and removed, hosts that may not connect, and silent hosts.

use crate::harness::*;
use roadtrain_host_engine::{AdminConnection, HostClient, HostControlError};
use roadtrain_store::{StoreKind, StoreSpec};
use roadtrain_system::buffer::Buffer;
use roadtrain_target_engine::{
    ConfigError, ConfigObject, ConfigOperation, Export, Server, Subsystem,
};
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::status::Status;
use std::path::Path;
use std::time::Duration;

#[test]
fn namespaces_come_grow_and_go() {
    let server = serve(vec![memory(1, MIB, 512)]);
    let client = connect(&server);
    assert_eq!(client.view().info().namespaces.len(), 1);
    client.write(1, 0, pattern(4096, 1), false).unwrap();

    let reload = |exports| server.reload(&[subsystem(exports)]).unwrap();
    reload(vec![memory(1, MIB, 512), memory(5, MIB, 4096)]);
    eventually("namespace 5 appears", || client.view().namespace(5).is_some());
    client.write(5, 0, pattern(4096, 2), false).unwrap();

    reload(vec![memory(1, 2 * MIB, 512), memory(5, MIB, 4096)]);
    eventually("namespace 1 grows", || client.view().namespace(1).unwrap().blocks == 4096);
    client.write(1, 4000, pattern(4096, 3), false).unwrap();
    assert!(*client.read(1, 0, Buffer::alloc(4096)).unwrap() == *pattern(4096, 1), "kept");

    reload(vec![memory(1, 2 * MIB, 512)]);
    eventually("namespace 5 is gone", || client.view().namespace(5).is_none());
    let gone = client.flush(5).unwrap_err();
    assert!(gone.status.is(Status::INVALID_NAMESPACE), "{gone}");
    assert!(*client.read(1, 4000, Buffer::alloc(4096)).unwrap() == *pattern(4096, 3), "kept");

    reload(vec![memory(1, MIB, 512)]);
    eventually("namespace 1 shrinks", || client.view().namespace(1).unwrap().blocks == 2048);
    let beyond = client.read(1, 4000, Buffer::alloc(4096)).unwrap_err();
    assert!(beyond.status.is(Status::LBA_OUT_OF_RANGE), "{beyond}");
}

/// A single change raises the same events, and leaves other namespaces alone.
#[test]
fn one_thing_is_changed_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let path = |nsid: u32| directory.path().join(format!("{nsid}.img"));
    let server = serve(vec![memory(1, MIB, 512), file(2, &directory, MIB, 512)]);
    let client = connect(&server);
    let nqn = || NQN.to_owned();
    let add = |namespace: Export| ConfigOperation::AddNamespace { nqn: nqn(), namespace };
    let resize = |nsid, bytes| ConfigOperation::ResizeNamespace { nqn: nqn(), nsid, bytes };
    let grown = std::fs::OpenOptions::new().write(true).open(path(2)).unwrap();
    grown.set_len(4 * MIB).unwrap();

    let changes = server.apply(&[add(file(5, &directory, MIB, 4096))]).unwrap();
    assert_eq!(changes[0].to_string(), format!("namespace 5 of {NQN}: added"));
    eventually("namespace 5 appears", || client.view().namespace(5).is_some());
    client.write(5, 0, pattern(4096, 2), false).unwrap();
    server.apply(&[resize(1, 2 * MIB), resize(5, 2 * MIB)]).unwrap();
    eventually("namespace 1 grows", || client.view().namespace(1).unwrap().blocks == 4096);
    eventually("namespace 5 grows", || client.view().namespace(5).unwrap().blocks == 512);
    assert_eq!(client.view().namespace(2).unwrap().blocks, 2048, "no operation names it");

    let wrong = [add(file(6, &directory, MIB, 512)), resize(1, MIB), resize(5, MIB)];
    let error = server.apply(&wrong).unwrap_err();
    assert!(
        matches!(&error, ConfigError::Store { place: ConfigObject::Namespace(_, 5), .. }),
        "{error}"
    );
    assert!(!path(6).exists(), "what was made for it is gone");
    let unknown = ConfigOperation::RemoveNamespace { nqn: nqn(), nsid: 7 };
    let error = server.apply(&[resize(1, MIB), unknown]).unwrap_err();
    assert_eq!(error, ConfigError::Unknown(ConfigObject::Namespace(nqn(), 7)));
    client.write(1, 4000, pattern(4096, 3), false).unwrap();

    server.apply(&[ConfigOperation::RemoveNamespace { nqn: nqn(), nsid: 5 }]).unwrap();
    eventually("namespace 5 is gone", || client.view().namespace(5).is_none());
    let replaced =
        ConfigOperation::ReplaceNamespace { nqn: nqn(), namespace: file_of(2, &path(2)) };
    server.apply(&[replaced]).unwrap();
    eventually("namespace 2 is checked again", || {
        client.view().namespace(2).unwrap().blocks == 8192
    });
    assert!(*client.read(1, 4000, Buffer::alloc(4096)).unwrap() == *pattern(4096, 3), "kept");
}

/// Exports a file with its current size.
fn file_of(nsid: u32, path: &Path) -> Export {
    let kind = StoreKind::File { path: path.to_owned(), size: None, create: false };
    Export::new(nsid, StoreSpec { kind, lba_bytes: 512, read_only: false })
}

#[test]
fn reloading_under_load_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve(vec![memory(1, MIB, 512)]);
    let mut config = host_config(address(&server));
    (config.lanes, config.cores) = (2, reactors(2));
    let client = HostClient::connect(config).unwrap();
    let writer = std::thread::spawn({
        let client = client.clone();
        move || {
            for round in 0..2000 {
                client.write(1, 8, pattern(4096, round), false).unwrap();
                assert!(*client.read(1, 8, Buffer::alloc(4096)).unwrap() == *pattern(4096, round));
            }
        }
    });
    for round in 0..20 {
        let mut exports = vec![memory(1, MIB + round % 3 * 4096, 512)];
        if round % 2 == 0 {
            exports.push(file(2, &directory, MIB, 512));
        }
        server.reload(&[subsystem(exports)]).unwrap();
        let _ = client.write(2, 0, pattern(4096, round), false);
    }
    writer.join().unwrap();
}

#[test]
fn refusals_say_why() {
    let allowed = Some([HOST_NQN.to_owned()].into());
    let mut config = server_config(vec![]);
    config.subsystems =
        vec![Subsystem { allowed_hosts: allowed, ..subsystem(vec![memory(1, MIB, 512)]) }];
    let server = Server::start(config).unwrap();
    connect(&server).flush(1).unwrap();

    let mut stranger = host_config(address(&server));
    stranger.host_nqn = "nqn.2024-01.test:stranger".into();
    let error = HostClient::connect(stranger).err().unwrap();
    assert!(
        matches!(&error, HostControlError::Refused { status, .. }
        if status.is(Status::CONNECT_INVALID_HOST)),
        "{error}"
    );
    assert!(error.to_string().contains("does not allow this host NQN"), "{error}");

    let mut lost = host_config(address(&server));
    lost.subsystem_nqn = "nqn.2024-01.test:elsewhere".into();
    let error = HostClient::connect(lost).err().unwrap();
    assert!(
        matches!(&error, HostControlError::Refused { status, .. }
        if status.is(Status::CONNECT_INVALID_PARAMETERS)),
        "{error}"
    );
    assert!(error.to_string().contains("subsystem NQN"), "{error}");
    assert_nothing_left(&server);
}

/// With several reactors, the admin queue of the silent host is on another reactor than the listener.
#[test]
fn a_silent_host_loses_its_controller() {
    for count in [1, 2] {
        let mut config = server_config(vec![memory(1, MIB, 512)]);
        config.cores = reactors(count);
        let server = Server::start(config).unwrap();
        let mut config = host_config(address(&server));
        config.keep_alive = Duration::from_secs(1);
        let mut silent: Vec<AdminConnection> =
            (0..2).map(|_| AdminConnection::connect(&config).unwrap()).collect();
        assert_nothing_left(&server);
        let keep_alive = Sqe::new(opcode::KEEP_ALIVE, 0);
        for admin in &mut silent {
            assert!(admin.run("Keep Alive", &keep_alive, &[], &mut []).is_err());
        }
    }
}
