//! Tests of failed flushes at a target. As in Linux, each failure is reported once, and the next flush succeeds.

use super::flaky::Flaky;
use super::tests::{LONG, NQN, eventually, host_config};
use super::{Export, Server, ServerConfig, ServerError, Subsystem};
use roadtrain_host_engine::{
    AdminConnection, Class, HostClient, HostControlError, IoOp, IoRequest,
};
use roadtrain_system::buffer::Buffer;
use roadtrain_wire::fabrics::{Property, PropertySize, property};
use roadtrain_wire::status::Status;
use std::sync::Arc;
use std::sync::mpsc::channel;

/// CC value that enables the controller and shuts it down.
const CC_SHUTDOWN: u32 = 0x0046_4001;

/// Target and its files, by NSID.
struct FlushHarness {
    server: Server,
    files: Vec<Arc<Flaky>>,
    _directory: tempfile::TempDir,
}

impl FlushHarness {
    /// Starts a target that exports `count` files.
    fn new(count: usize, reactors: usize) -> FlushHarness {
        let directory = tempfile::tempdir().unwrap();
        let file = |n: usize| Flaky::new(&directory.path().join(n.to_string()));
        let files: Vec<_> = (0..count).map(file).collect();
        let subsystems = vec![subsystem(&files)];
        let mut config = ServerConfig::new(vec!["127.0.0.1:0".parse().unwrap()], subsystems);
        config.cores = vec![0; reactors];
        FlushHarness { server: Server::start(config).unwrap(), files, _directory: directory }
    }

    /// See [`Flaky::fail_flushes`].
    fn fail_flushes(&self, nsid: usize, count: i64) -> i64 {
        self.files[nsid - 1].fail_flushes(count)
    }
}

fn subsystem(files: &[Arc<Flaky>]) -> Subsystem {
    let export = |(nsid, file): (u32, &Arc<Flaky>)| Export::with_store(nsid, file.clone());
    let exports = (1..).zip(files).map(export).collect();
    Subsystem { namespaces: exports, ..Subsystem::new(NQN) }
}

fn connect(server: &Server, host: &str) -> HostClient {
    let mut config = host_config(server, host);
    (config.timeout, config.connect_timeout) = (LONG, LONG);
    HostClient::connect(config).unwrap()
}

fn run(client: &HostClient, op: IoOp, nsid: u32, fua: bool) -> Status {
    let (blocks, buffer) = match op {
        IoOp::Write => (1, Some(Buffer::alloc(4096))),
        IoOp::WriteZeroes { .. } => (1, None),
        _ => (0, None),
    };
    let class = Class::Normal;
    let request =
        IoRequest { op, nsid, slba: 0, blocks, fua, urgent: false, class, buffer, token: 0 };
    let (done, ended) = channel();
    client.submit_to(request, &done);
    ended.recv_timeout(LONG).unwrap().status
}

fn write(client: &HostClient, nsid: u32) {
    assert!(run(client, IoOp::Write, nsid, false).is_success());
}

fn flush(client: &HostClient) -> Status {
    run(client, IoOp::Flush, 1, false)
}

#[test]
fn a_failed_flush_is_final_and_reported_once_to_every_writer() {
    for reactors in [1, 2] {
        let harness = FlushHarness::new(1, reactors);
        let server = &harness.server;
        let hosts = ["nqn.x:a", "nqn.x:b", "nqn.x:c"].map(|host| connect(server, host));
        hosts[..2].iter().for_each(|host| write(host, 1));
        harness.fail_flushes(1, 1);
        let status = flush(&hosts[0]);
        assert!(!status.is_success() && status.is_dnr(), "{status}");
        let status = flush(&hosts[1]);
        assert!(status.is(Status::WRITE_FAULT) && status.is_dnr(), "{status}");
        for host in &hosts {
            assert!(flush(host).is_success(), "it has received the error, or has not written");
        }
        write(&hosts[2], 1);
        assert!(flush(&hosts[2]).is_success(), "it wrote after that");
        drop(hosts);
        server.shut_down().unwrap();
    }
}

#[test]
fn a_failed_flush_is_reported_after_a_reconnect() {
    let harness = FlushHarness::new(1, 1);
    let server = &harness.server;
    let (a, b) = (connect(server, "nqn.x:a"), connect(server, "nqn.x:b"));
    write(&a, 1);
    // Its completion is lost with the connection, so the host flushes again.
    harness.fail_flushes(1, 1);
    assert!(flush(&b).is_dnr());
    let mut config = host_config(server, "nqn.x:a");
    config.connect_timeout = LONG;
    let again = HostClient::connect(config).unwrap();
    assert!(flush(&again).is_dnr());
    assert!(flush(&again).is_success());
}

#[test]
fn concurrent_flushes_all_report_a_failure() {
    for reactors in [1, 3] {
        let harness = FlushHarness::new(1, reactors);
        let server = &harness.server;
        let hosts: Vec<HostClient> =
            (0..6).map(|n| connect(server, &format!("nqn.x:{n}"))).collect();
        for round in 0..20 {
            hosts.iter().for_each(|host| write(host, 1));
            harness.fail_flushes(1, 1);
            let flushed = std::thread::scope(|scope| {
                let threads: Vec<_> =
                    hosts.iter().map(|host| scope.spawn(|| flush(host))).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
            });
            let is_final_failure = |status: &Status| !status.is_success() && status.is_dnr();
            assert!(flushed.iter().all(is_final_failure), "{reactors} {round}: {flushed:?}");
        }
        assert!(hosts.iter().all(|host| flush(host).is_success()));
    }
}

#[test]
fn a_shutdown_flushes_every_namespace_and_says_when_one_fails() {
    let harness = FlushHarness::new(3, 1);
    let server = &harness.server;
    let mut admin = AdminConnection::connect(&host_config(server, "nqn.x:a")).unwrap();
    let failing: [(usize, i64); 3] = [(1, 1), (2, 0), (3, 1)];
    for (nsid, count) in failing {
        harness.fail_flushes(nsid, count);
    }
    let mut shut_down =
        || admin.run("Property Set", &Property::set(property::CC, CC_SHUTDOWN), &[], &mut []);
    let refused = shut_down().expect_err("two flushes have failed");
    let HostControlError::Command { status, .. } = refused else { panic!("{refused}") };
    assert!(status.is(Status::INTERNAL_ERROR) && status.is_dnr(), "{status}");
    for (nsid, count) in failing {
        assert_eq!(harness.fail_flushes(nsid, 0), count - 1, "{nsid} was flushed");
    }
    let get = Property::get(property::CSTS, PropertySize::Four);
    let csts = |admin: &mut AdminConnection| admin.run("Property Get", &get, &[], &mut []).unwrap();
    assert!(shut_down().is_ok(), "the host knows it now");
    assert_eq!(csts(&mut admin).result() & 0xc, 8, "shutdown complete");
}

/// The last flush belongs to the shutdown: the host must not take its failure for a clean shutdown.
#[test]
fn a_host_that_ends_says_that_the_last_flush_has_failed() {
    let harness = FlushHarness::new(1, 1);
    let server = &harness.server;
    for fails in [false, true] {
        let client = connect(server, "nqn.x:a");
        let view = client.view().clone();
        write(&client, 1);
        harness.fail_flushes(1, i64::from(fails));
        drop(client);
        let lost = view.lost();
        assert_eq!(lost.len(), usize::from(fails), "{lost:?}");
        assert!(lost.iter().all(|what| what.contains("has not said that its last flush is done")));
    }
}

#[test]
fn a_target_that_ends_says_what_may_be_lost() {
    for fails_before in [false, true] {
        let harness = FlushHarness::new(2, 2);
        let server = &harness.server;
        let (a, b) = (connect(server, "nqn.x:a"), connect(server, "nqn.x:b"));
        write(&a, 1);
        harness.fail_flushes(1, 1);
        if fails_before {
            assert!(flush(&b).is_dnr());
        }
        let error = server.shut_down().expect_err("a flush has failed");
        let ServerError::Unsaved { nqn, nsid, .. } = &error else { panic!("{error}") };
        assert_eq!((nqn.as_str(), *nsid), (NQN, 1), "{error}");
    }
}

#[test]
fn a_namespace_that_is_removed_is_flushed() {
    let harness = FlushHarness::new(2, 1);
    let server = &harness.server;
    let host = connect(server, "nqn.x:a");
    [1, 2].into_iter().for_each(|nsid| write(&host, nsid));
    harness.fail_flushes(2, 0);
    server.reload(&[subsystem(&harness.files[..1])]).unwrap();
    eventually("it is flushed", || harness.fail_flushes(2, 0) == -1);
    write(&host, 1);
}

#[test]
fn a_forced_write_may_report_the_failure_of_other_writes() {
    let harness = FlushHarness::new(1, 1);
    let server = &harness.server;
    let (a, b) = (connect(server, "nqn.x:a"), connect(server, "nqn.x:b"));
    write(&a, 1);
    harness.fail_flushes(1, 1);
    let zeroes = IoOp::WriteZeroes { deallocate: false };
    let status = run(&b, zeroes, 1, true);
    assert!(!status.is_success() && status.is_dnr(), "{status}");
    assert!(flush(&b).is_success(), "nothing of it was lost");
    assert!(flush(&a).is_dnr());
    assert!(flush(&a).is_success());
    assert!(run(&b, zeroes, 1, true).is_success());
}
