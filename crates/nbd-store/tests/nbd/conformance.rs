//! Conformance test of the store, over other projects' servers.

use crate::harness::{ServerProcess, has, open, settings};
use roadtrain_nbd_store::NbdStoreSettings;
use roadtrain_store::conformance;
use std::cell::RefCell;
use std::path::Path;
use std::process::Command;

/// Runs the test with a new server of nbdkit for each check.
fn run_with_nbdkit(arguments: &[&str], settings: &NbdStoreSettings) {
    if !has("nbdkit") {
        return;
    }
    let servers = RefCell::new(Vec::new());
    conformance::run(|| {
        let directory = tempfile::tempdir().unwrap();
        let server = ServerProcess::nbdkit(directory.path(), arguments);
        let store = open(&server.socket, settings.clone());
        servers.borrow_mut().push((server, directory));
        store
    });
}

#[test]
fn memory_of_nbdkit() {
    run_with_nbdkit(&["memory", "1M"], &settings());
    run_with_nbdkit(&["memory", "1M"], &NbdStoreSettings { lba_bytes: 4096, ..settings() });
}

/// Few features: no structured replies, zeroes as data, one connection.
#[test]
fn a_server_with_few_features() {
    let filters = ["--no-sr", "--filter=nozero", "--filter=multi-conn"];
    let plugin = ["memory", "1M", "zeromode=none", "multi-conn-mode=disable"];
    run_with_nbdkit(&[&filters[..], &plugin].concat(), &settings());
}

/// Requests are limited to less than what hosts transfer.
#[test]
fn requests_are_split() {
    let filter = ["--filter=blocksize-policy", "memory", "1M"];
    let sizes = ["blocksize-minimum=512", "blocksize-preferred=4096", "blocksize-maximum=4096"];
    let policy = ["blocksize-error-policy=error"];
    run_with_nbdkit(&[&filter[..], &sizes, &policy].concat(), &settings());
}

/// Blocks of 4096 bytes: those of 512 would be refused.
#[test]
fn larger_blocks() {
    let filter = ["--filter=blocksize-policy", "memory", "1M"];
    let sizes = ["blocksize-minimum=4096", "blocksize-preferred=65536", "blocksize-maximum=1M"];
    let policy = ["blocksize-error-policy=error"];
    run_with_nbdkit(&[&filter[..], &sizes, &policy].concat(), &settings());
}

/// Late replies, in another order.
#[test]
fn a_slow_server() {
    let filter = ["--filter=delay", "memory", "1M", "rdelay=3ms", "wdelay=5ms"];
    run_with_nbdkit(&filter, &settings());
}

fn qemu_image(directory: &Path, format: &str) -> String {
    let image = directory.join("image").to_str().unwrap().to_owned();
    let made = Command::new("qemu-img").args(["create", "-q", "-f", format, &image, "1M"]).status();
    assert!(made.unwrap().success());
    image
}

#[test]
fn images_of_qemu() {
    if !has("qemu-nbd") || !has("qemu-img") {
        return;
    }
    for format in ["qcow2", "raw", "vmdk"] {
        let servers = RefCell::new(Vec::new());
        conformance::run(|| {
            let directory = tempfile::tempdir().unwrap();
            let image = qemu_image(directory.path(), format);
            let socket = directory.path().join("qemu.sock");
            let path = socket.to_str().unwrap();
            let arguments = ["-f", format, "-k", path, "-t", "-e", "8", "--discard=unmap", &image];
            let server = ServerProcess::start("qemu-nbd", &arguments, &socket);
            let store = open(&server.socket, settings());
            servers.borrow_mut().push((server, directory));
            store
        });
    }
}
