//! Asymmetric namespace access: usable and unusable paths, and a target that drains.

use crate::harness::*;
use roadtrain_host_engine::{HostClient, IoOp, RequestError};
use roadtrain_store::{
    OpenError, Store, StoreCompletion, StoreGeometry, StoreIo, StoreOperation as StoreOp,
    StoreToken,
};
use roadtrain_system::buffer::Buffer;
use roadtrain_target_engine::{
    AnaListener, AnaState, ConfigError, ConfigObject, ConfigOperation, Export, Server, ServerConfig,
};
use roadtrain_wire::status::Status;
use std::net::SocketAddr;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Starts a target with two listeners, the second of which is non-optimized.
fn two_paths(exports: Vec<Export>) -> (Server, [SocketAddr; 2]) {
    let mut config = server_config(exports);
    config.listen.push("127.0.0.2:0".parse().unwrap());
    let server = Server::start(config).unwrap();
    let addresses = server.addresses();
    set(&server, addresses[1], AnaState::NonOptimized);
    (server, [addresses[0], addresses[1]])
}

fn set(server: &Server, address: SocketAddr, state: AnaState) {
    let listener = AnaListener::Tcp(address);
    let changes =
        server.apply(&[ConfigOperation::SetAna { listener, state: Some(state) }]).unwrap();
    let changed_operations: Vec<String> = changes.iter().map(ToString::to_string).collect();
    assert!(
        changed_operations.is_empty()
            || changed_operations == [format!("listener {address}: ANA {state}")],
        "{changed_operations:?}"
    );
}

/// Connects a host that does not wait for an unusable path.
fn impatient(address: SocketAddr) -> HostClient {
    let mut config = host_config(address);
    config.controller_loss_timeout = Some(Duration::ZERO);
    HostClient::connect(config).unwrap()
}

fn status<T: std::fmt::Debug>(result: Result<T, RequestError>) -> Option<Status> {
    result.err().map(|error| error.status)
}

/// Returns the status of each kind of command: with data in the capsule, with R2T, and without data.
fn answers(client: &HostClient, nsid: u32) -> Vec<Option<Status>> {
    vec![
        status(client.read(nsid, 0, Buffer::alloc(4096))),
        status(client.write(nsid, 0, pattern(4096, 1), false)),
        status(client.write(nsid, 0, pattern(256 << 10, 1), false)),
        status(client.compare(nsid, 0, pattern(4096, 1))),
        status(client.write_zeroes(nsid, 1024, 8, false)),
        status(client.discard(nsid, 1024, 8)),
        status(client.verify(nsid, 0, 8)),
        status(client.copy(nsid, &[(0, 8)], 2048, false)),
        status(client.compare_and_write(nsid, 0, &pattern(512, 1), &pattern(512, 1))),
        status(client.flush(nsid)),
    ]
}

#[test]
fn commands_complete_with_the_status_of_their_path() {
    let directory = tempfile::tempdir().unwrap();
    let (server, [here, there]) =
        two_paths(vec![memory(1, 2 * MIB, 512), file(2, &directory, 2 * MIB, 512)]);
    let (good, other) = (impatient(here), impatient(there));
    for (state, refusal) in [
        (AnaState::NonOptimized, None),
        (AnaState::Inaccessible, Some(Status::ANA_INACCESSIBLE)),
        (AnaState::Change, Some(Status::ANA_TRANSITION)),
        (AnaState::Optimized, None),
        (AnaState::PersistentLoss, Some(Status::ANA_PERSISTENT_LOSS)),
    ] {
        set(&server, there, state);
        for nsid in [1, 2] {
            assert_eq!(answers(&good, nsid), [None; 10], "{state}");
            assert_eq!(answers(&other, nsid), [refusal; 10], "{state}");
        }
        let absent = other.read(7, 0, Buffer::alloc(4096)).unwrap_err().status;
        assert!(absent.is(Status::INVALID_NAMESPACE), "{state}: {absent}");
    }
    drop((good, other));
    assert_nothing_left(&server);
}

/// A host with one path waits until the path is usable again, and sees no error.
#[test]
fn a_host_waits_for_its_only_path() {
    let (server, [_, there]) = two_paths(vec![memory(1, MIB, 512)]);
    let client = HostClient::connect(host_config(there)).unwrap();
    set(&server, there, AnaState::Inaccessible);
    let begun = Instant::now();
    thread::scope(|scope| {
        let write = scope.spawn(|| client.write(1, 0, pattern(4096, 3), false));
        thread::sleep(Duration::from_millis(200));
        assert!(!write.is_finished());
        set(&server, there, AnaState::Optimized);
        write.join().unwrap().unwrap();
    });
    assert!(begun.elapsed() >= Duration::from_millis(200));
    assert!(*client.read(1, 0, Buffer::alloc(4096)).unwrap() == *pattern(4096, 3));
}

#[test]
fn states_of_listeners_that_are_none_are_refused() {
    let (server, [here, _]) = two_paths(vec![memory(1, MIB, 512)]);
    let listener = AnaListener::Tcp(SocketAddr::new(here.ip(), 1));
    let state = Some(AnaState::Inaccessible);
    let error = server.apply(&[ConfigOperation::SetAna { listener, state }]).unwrap_err();
    assert_eq!(error, ConfigError::Unknown(ConfigObject::Ana(listener)));
    let config = ServerConfig {
        ana: [(listener, AnaState::Inaccessible)].into_iter().collect(),
        ..server_config(vec![memory(1, MIB, 512)])
    };
    assert!(Server::start(config).is_err());
}

/// Two processes serve one subsystem: hosts see their controllers and namespaces as those of one.
#[test]
fn several_targets_are_one_subsystem() {
    let start = |(min, max)| {
        let one = Export { uuid: Some([7; 16]), ..memory(1, MIB, 512) };
        let mut config = server_config(vec![one]);
        (config.limits.cntlid_min, config.limits.cntlid_max) = (min, max);
        Server::start(config).unwrap()
    };
    let servers = [start((1, 99)), start((100, 199))];
    let clients = servers.each_ref().map(connect);
    let info = clients.each_ref().map(|client| client.view().info());
    assert!(info[0].cntlid < 100 && (100..200).contains(&info[1].cntlid));
    assert_eq!(info[0].identify.sn, info[1].identify.sn);
    let [one, other] = clients.each_ref().map(|client| client.view().namespace(1).unwrap());
    assert_eq!((one.nguid, one.uuid), (other.nguid, other.uuid));
}

/// Store that delays every write while the test holds the lock.
#[derive(Debug, Default)]
struct HeldStore(Arc<Mutex<()>>);

impl Store for HeldStore {
    fn geometry(&self) -> StoreGeometry {
        StoreGeometry { lba_shift: 9, blocks: MIB / 512, read_only: false, volatile_cache: false }
    }

    fn identity(&self) -> Result<u128, OpenError> {
        Ok(0x510)
    }

    fn submit(&self, op: StoreOp, buffer: Option<Buffer>, token: StoreToken, io: &mut StoreIo<'_>) {
        let completion = StoreCompletion::new(token, Ok(()), buffer);
        if !matches!(op, StoreOp::Write { .. }) {
            return io.complete(completion);
        }
        let (lock, completions) = (self.0.clone(), io.completions());
        thread::spawn(move || {
            drop(lock.lock());
            completions.send(completion);
        });
    }
}

fn held(lock: &Arc<Mutex<()>>) -> Export {
    Export::with_store(1, Arc::new(HeldStore(lock.clone())))
}

fn drain(server: &Server) {
    server.drain(|pause| {
        thread::sleep(pause);
        true
    });
}

/// Commands in flight succeed, later ones are refused, and no new connection is accepted.
#[test]
fn a_target_departs_when_everything_is_finished() {
    let lock = Arc::default();
    let mut config = server_config(vec![held(&lock)]);
    (config.cores, config.drain_timeout) = (reactors(2), LONG);
    let server = Server::start(config).unwrap();
    let at = address(&server);
    let client = impatient(at);
    let (done, ended) = channel();
    let guard = lock.lock().unwrap();
    client.submit_to(request(IoOp::Write, 0, 8, Some(pattern(4096, 5)), 1), &done);
    eventually("the store has it", || server.usage().store_commands == 1);
    let begun = Instant::now();
    thread::scope(|scope| {
        let drained = scope.spawn(|| drain(&server));
        eventually("it departs", || {
            status(client.read(1, 0, Buffer::alloc(4096))) == Some(Status::ANA_INACCESSIBLE)
        });
        eventually("no listener is left", || std::net::TcpStream::connect(at).is_err());
        assert!(!drained.is_finished(), "the store still has the write");
        drop(guard);
        drained.join().unwrap();
    });
    assert_eq!(ended.recv().unwrap().status, Status::SUCCESS);
    assert!(begun.elapsed() < LONG, "it has waited for its limit");
    server.shut_down().unwrap();
}

/// The drain ends at its limit even if a store does not respond. The caller can end it immediately.
#[test]
fn the_wait_has_an_end() {
    let has_an_end = |limit, patience: Option<u32>| {
        let lock = Arc::default();
        let mut config = server_config(vec![held(&lock)]);
        config.drain_timeout = limit;
        let server = Server::start(config).unwrap();
        let client = impatient(address(&server));
        let (done, _ended) = channel();
        let guard = lock.lock().unwrap();
        client.submit_to(request(IoOp::Write, 0, 8, Some(pattern(4096, 5)), 1), &done);
        eventually("the store has it", || server.usage().store_commands == 1);
        let (begun, mut pauses) = (Instant::now(), 0);
        server.drain(|pause| {
            thread::sleep(pause);
            pauses += 1;
            patience.is_none_or(|most| pauses < most)
        });
        let elapsed = begun.elapsed();
        assert_eq!(server.usage().store_commands, 1, "the store has answered");
        assert!(patience.is_some() || elapsed >= limit, "{elapsed:?} of {limit:?}");
        drop(guard);
    };
    thread::scope(|scope| {
        let short = Duration::from_millis(300);
        for (limit, patience) in [(short, None), (LONG * 10, Some(3)), (Duration::ZERO, None)] {
            scope.spawn(move || has_an_end(limit, patience));
        }
    });
}

/// No host is connected, so there is nothing to wait for.
#[test]
fn a_target_without_hosts_ends_at_once() {
    let server = serve(vec![memory(1, MIB, 512)]);
    server.drain(|_| panic!("it waits"));
}
