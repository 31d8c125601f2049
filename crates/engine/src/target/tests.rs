//! A target whose backend answers when it is told to.

use super::{Dispatch, Export, Server, ServerConfig, Subsystem};
use crate::backend::{BackendKind, BackendSpec};
use crate::buffer::Buffer;
use crate::host::{Class, Client, HostConfig, HostError, Op, Request};
use roadtrain_wire::status::Status;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

pub(super) const NQN: &str = "nqn.2024-01.test:disk";
pub(super) const LONG: Duration = Duration::from_secs(60);

pub(super) fn make_fifo(path: &Path) {
    let name = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: the name is a C string.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
}

fn serve(fifo: &Path, reactors: usize, dispatch: Dispatch) -> Server {
    let kind = BackendKind::Fifo { path: fifo.into(), size: 1 << 20 };
    let backend = BackendSpec { kind, lba_bytes: 512, read_only: false };
    let exports = vec![Export { nsid: 1, backend, uuid: None, class: None }];
    let subsystem = Subsystem { nqn: NQN.into(), serial: None, allowed_hosts: None, exports };
    let mut config = ServerConfig::new(vec!["127.0.0.1:0".parse().unwrap()], vec![subsystem]);
    (config.cores, config.dispatch) = (vec![0; reactors], dispatch);
    Server::start(config).unwrap()
}

fn host_config(server: &Server, host_nqn: &str) -> HostConfig {
    let mut config = HostConfig::new(server.addresses()[0], NQN, host_nqn, [7; 16]);
    config.timeout = Duration::from_secs(1);
    config.connect_timeout = Duration::ZERO;
    config
}

fn connect(server: &Server, host_nqn: &str) -> Result<Client, HostError> {
    Client::connect(host_config(server, host_nqn))
}

pub(super) fn read() -> Request {
    Request {
        op: Op::Read,
        nsid: 1,
        slba: 0,
        blocks: 8,
        fua: false,
        urgent: false,
        class: Class::Normal,
        buffer: Some(Buffer::alloc(4096)),
        token: 0,
    }
}

pub(super) fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !done() {
        assert!(Instant::now() < deadline, "{what}: not within {LONG:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// So that no old write overtakes its retry, or a newer one.
#[test]
fn a_host_cannot_connect_again_while_its_old_commands_are_in_a_backend() {
    let directory = tempfile::tempdir().unwrap();
    let fifo = directory.path().join("fifo");
    make_fifo(&fifo);
    let modes = [Dispatch::NoWq, Dispatch::Rec, Dispatch::Base];
    for (reactors, dispatch) in [1, 2].into_iter().flat_map(|n| modes.map(|mode| (n, mode))) {
        let server = serve(&fifo, reactors, dispatch);
        let client = connect(&server, "nqn.x:host").unwrap();
        let (done, ended) = channel();
        client.submit_to(read(), &done);
        eventually("the read is in the backend", || server.usage().backend_commands == 1);
        drop(client); // gives up after its timeout
        assert!(ended.recv_timeout(LONG).unwrap().status.is(Status::HOST_PATH_ERROR));

        for _ in 0..3 {
            let refused = connect(&server, "nqn.x:host").err().expect("its read is not over");
            let HostError::Refused { status, .. } = refused else { panic!("{refused}") };
            assert!(status.is(Status::CONNECT_CONTROLLER_BUSY) && !status.is_dnr(), "{status}");
        }
        drop(connect(&server, "nqn.x:other").expect("others are not concerned"));
        assert_eq!(server.usage().backend_commands, 1);

        std::fs::write(&fifo, [0; 4096]).unwrap();
        eventually("the read is over", || server.usage().backend_commands == 0);
        drop(connect(&server, "nqn.x:host").unwrap());
        eventually("everything is given back", || server.usage().connections == 0);
    }
}

/// A restarted host does not fail because of what it has left.
#[test]
fn a_first_connection_waits_while_the_controller_is_busy() {
    let directory = tempfile::tempdir().unwrap();
    let fifo = directory.path().join("fifo");
    make_fifo(&fifo);
    let server = serve(&fifo, 1, Dispatch::NoWq);
    let client = connect(&server, "nqn.x:host").unwrap();
    let (done, _ended) = channel();
    client.submit_to(read(), &done);
    eventually("the read is in the backend", || server.usage().backend_commands == 1);
    drop(client);
    let mut config = host_config(&server, "nqn.x:host");
    config.connect_timeout = LONG;
    let waiting = std::thread::spawn(move || Client::connect(config).map(drop));
    std::thread::sleep(Duration::from_millis(200)); // so that it is refused at first
    std::fs::write(&fifo, [0; 4096]).unwrap();
    waiting.join().unwrap().expect("the controller is busy no more");
}

/// A host whose commands fail holds up nobody in the control plane.
#[test]
fn commands_that_fail_do_not_need_the_control_plane() {
    let directory = tempfile::tempdir().unwrap();
    let fifo = directory.path().join("fifo");
    make_fifo(&fifo);
    // The first reactor has the admin queue, the second the lane.
    let server = serve(&fifo, 2, Dispatch::NoWq);
    let client = connect(&server, "nqn.x:host").unwrap();
    let (done, ended) = channel();
    let held = server.control.hold();
    let beyond = || Request { slba: 1 << 40, ..read() };
    let unknown = || Request { nsid: 9, ..read() };
    let cases = [(beyond(), Status::LBA_OUT_OF_RANGE), (unknown(), Status::INVALID_NAMESPACE)];
    for (request, status) in cases {
        client.submit_to(request, &done);
        let completion = ended.recv_timeout(LONG).expect("an answer without the lock");
        assert!(completion.status.is(status), "{}", completion.status);
    }
    drop(held);
}
