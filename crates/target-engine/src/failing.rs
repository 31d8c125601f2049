//! Tests that both ends notice reactors that die or hang.

use super::server::BROKEN_CORE;
use super::tests::{LONG, NQN, eventually};
use super::{Export, Server, ServerConfig, Subsystem};
use roadtrain_host_engine::{
    Class, Front, FrontTurn, HostClient, HostConfig, HostController, IoOp, IoRequest,
};
use roadtrain_proto::time::Instant;
use roadtrain_reactor::probes::ReactorUnresponsive;
use roadtrain_store::{StoreKind, StoreSpec};
use roadtrain_system::buffer::Buffer;
use std::sync::mpsc::channel;
use std::time::Duration;

fn config(reactors: usize) -> ServerConfig {
    let kind = StoreKind::Memory { size: 1 << 20 };
    let store = StoreSpec { kind, lba_bytes: 512, read_only: false };
    let exports = vec![Export::new(1, store)];
    let subsystem = Subsystem { namespaces: exports, ..Subsystem::new(NQN) };
    let mut config = ServerConfig::new(vec!["127.0.0.1:0".parse().unwrap()], vec![subsystem]);
    config.cores = vec![0; reactors];
    config
}

/// Front that does nothing until it must stop.
struct FailingFront;

impl Front for FailingFront {
    fn turn(&mut self, turn: &mut dyn FrontTurn) {
        if turn.stopping() {
            turn.stop();
        }
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }
}

fn attach(server: &Server) -> HostController {
    let mut host = HostConfig::new(server.addresses()[0], NQN, "nqn.x:host", [7; 16]);
    (host.lanes, host.reactors) = (2, Some(2));
    HostController::connect(host, |_, _| Box::new(FailingFront)).unwrap()
}

#[test]
fn a_reactor_that_dies_fails_the_target() {
    for dies in [0, 1] {
        let server = Server::start(config(2)).unwrap();
        let (sender, failed) = channel();
        server.on_failure(move || sender.send(()).unwrap());
        assert_eq!(server.failure(), None);
        assert_eq!(server.pulse().check(LONG), Ok(()));
        server.call(dies, || panic!("a test wants it so"));
        failed.recv_timeout(LONG).expect("the failure is reported");
        assert_eq!(server.failure(), Some(format!("reactor {dies} has panicked")));
        assert_eq!(server.pulse().check(LONG), Err(ReactorUnresponsive::Ended(dies)));
        let (sender, failed) = channel();
        server.on_failure(move || sender.send(()).unwrap());
        failed.recv_timeout(LONG).expect("a later callback is called, too");
    }
}

#[test]
fn a_reactor_that_hangs_has_no_pulse() {
    let server = Server::start(config(2)).unwrap();
    let controller = attach(&server);
    assert_eq!(controller.pulse().check(LONG), Ok(()));
    let short = Duration::from_secs(1); // the other reactor replies in that time
    let (go_on, wait) = channel::<()>();
    server.call(1, move || _ = wait.recv());
    assert_eq!(server.pulse().check(short), Err(ReactorUnresponsive::Hangs(1, short)));
    drop(go_on);
    assert_eq!(server.pulse().check(LONG), Ok(()));
    let (go_on, wait) = channel::<()>();
    controller.call(0, move || _ = wait.recv());
    assert_eq!(controller.pulse().check(short), Err(ReactorUnresponsive::Hangs(0, short)));
    drop(go_on);
    assert_eq!(controller.pulse().check(LONG), Ok(()));
}

/// Otherwise the lanes of the other reactor would continue, and the failure would stay unnoticed.
#[test]
fn a_reactor_that_dies_ends_the_controller() {
    let server = Server::start(config(1)).unwrap();
    let controller = attach(&server);
    assert_eq!(controller.view().failure(), None);
    controller.call(1, || panic!("a test wants it so"));
    eventually("the controller has ended", || controller.has_ended());
    assert_eq!(controller.view().failure().as_deref(), Some("reactor 1 has panicked"));
}

/// No thread would reconnect its lanes: requests must not wait for that.
#[test]
fn a_control_thread_that_dies_ends_the_controller_and_its_requests() {
    let server = Server::start(config(1)).unwrap();
    let mut host = HostConfig::new(server.addresses()[0], NQN, "nqn.x:host", [7; 16]);
    host.controller_loss_timeout = None;
    let client = HostClient::connect(host).unwrap();
    let view = client.view().clone();
    let (go_on, wait) = channel::<()>();
    server.call(0, move || _ = wait.recv());
    let (done, ended) = channel();
    let (nsid, slba, blocks, buffer) = (1, 0, 1, Some(Buffer::alloc(512)));
    let (op, fua, urgent, class, token) = (IoOp::Read, false, false, Class::Normal, 0);
    let read = IoRequest { op, nsid, slba, blocks, fua, urgent, class, buffer, token };
    client.submit_to(read, &done);
    client.call_control(|| panic!("a test wants it so"));
    let completion = ended.recv_timeout(LONG).expect("it does not wait for ever");
    assert!(!completion.status.is_success());
    let failure = view.failure().expect("the failure is reported");
    assert!(failure.contains("control thread") && failure.contains("panicked"), "{failure}");
    drop(client);
    drop(go_on);
}

/// Returns the number of threads of this process with that name.
fn threads(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|found| found.trim() == name).count()
}

/// Waits until no thread has that name. A joined thread may be listed for a moment longer.
fn no_threads(name: &str) {
    for _ in 0..200 {
        if threads(name) == 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{} threads are left", threads(name));
}

/// Two reactors start, on a core that no other test uses, and the third one fails.
#[test]
fn a_start_that_fails_leaves_no_threads() {
    const CORE: usize = BROKEN_CORE - 1;
    let name = format!("roadtrain-{CORE}");
    let mut config = config(1);
    config.cores = vec![CORE; 2];
    let server = Server::start(config.clone()).unwrap();
    assert_eq!(threads(&name), 2);
    drop(server);
    no_threads(&name);
    config.cores.push(BROKEN_CORE);
    let error = Server::start(config).err().expect("not every reactor runs");
    assert_eq!(error.to_string(), "reactor: a test wants it so");
    no_threads(&name);
}
