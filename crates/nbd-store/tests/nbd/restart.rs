//! Servers that go away and come back.

use crate::harness::{LONG, ServerProcess, eventually, has, open, settings};
use roadtrain_nbd_store::NbdStoreSettings;
use roadtrain_store::BlockOwnership;
use std::sync::mpsc::channel;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

/// An operation in flight is sent again to the new server, also if no other one follows.
#[test]
fn an_operation_in_flight_is_sent_again() {
    if !has("nbdkit") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let server = ServerProcess::nbdkit(directory.path(), &["memory", "1M"]);
    let store = open(&server.socket, settings());
    server.stop();
    let (done, result) = channel();
    let flushing = store.clone();
    thread::spawn(move || done.send(flushing.sync()));
    assert!(result.recv_timeout(Duration::from_millis(200)).is_err(), "no server has replied");
    drop(server);
    let _server = ServerProcess::nbdkit(directory.path(), &["memory", "1M"]);
    result.recv_timeout(LONG).expect("it is sent again").expect("nothing was written");
}

/// A new size is seen when the store has connected again, and its watcher is called.
#[test]
fn a_new_server_may_have_another_size() {
    if !has("nbdkit") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let server = ServerProcess::nbdkit(directory.path(), &["memory", "1049000"]);
    let store = open(&server.socket, settings());
    assert_eq!(store.geometry().bytes(), 1 << 20, "whole blocks");
    let (called, calls) = channel();
    let watcher: Arc<roadtrain_store::SizeWatcher> = Arc::new(move || _ = called.send(()));
    store.watch_size(Arc::downgrade(&watcher));
    drop(server);
    let server = ServerProcess::nbdkit(directory.path(), &["memory", "2M"]);
    calls.recv_timeout(LONG).expect("the size has changed");
    let plan = store.plan(None).unwrap();
    assert_eq!((plan.from, plan.to), (1 << 20, 2 << 20));
    store.switch(&plan);
    assert_eq!(store.geometry().bytes(), 2 << 20);
    store.watch_size(Weak::<fn()>::new());
    drop(server);
    eventually("it is cut off", || store.ownership() == BlockOwnership::CutOff);
    assert!(store.sync().is_err(), "a last flush does not wait for ever");
    store.release();
}

/// Without a server operations fail after a time.
#[test]
fn operations_fail_without_a_server() {
    if !has("nbdkit") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let server = ServerProcess::nbdkit(directory.path(), &["memory", "1M"]);
    let fast_io_fail = Some(Duration::from_millis(100));
    let store = open(&server.socket, NbdStoreSettings { fast_io_fail, ..settings() });
    drop(server);
    assert!(store.sync().is_err());
    let _server = ServerProcess::nbdkit(directory.path(), &["memory", "1M"]);
    eventually("it serves again", || store.sync().is_ok());
}
