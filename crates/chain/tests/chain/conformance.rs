//! Conformance test of the store, over targets in this process.

use crate::harness::{BACK, MIB, address, any_address, back_config, config, memory, remote};
use roadtrain_store::{StoreKind, StoreSpec, conformance, open};
use roadtrain_target_engine::{Export, Server, ServerConfig};
use std::cell::RefCell;

/// Runs the test with a new target for each check.
fn run(make_export: impl Fn() -> Export, change: impl Fn(&mut ServerConfig)) {
    let servers = RefCell::new(Vec::new());
    conformance::run(|| {
        let mut config = config(BACK, any_address(), vec![make_export()]);
        change(&mut config);
        let server = Server::start(config).unwrap();
        let kind = remote(back_config(address(&server)));
        servers.borrow_mut().push(server);
        open(&StoreSpec { kind, lba_bytes: 512, read_only: false }).unwrap()
    });
}

#[test]
fn memory_of_another_target() {
    for lba_bytes in [512, 4096] {
        run(|| memory(MIB, lba_bytes), |_| {});
    }
}

/// A file's target has a volatile cache, and reports what is allocated.
#[test]
fn a_file_of_another_target() {
    let directory = tempfile::tempdir().unwrap();
    let number = std::cell::Cell::new(0);
    let make = || {
        number.set(number.get() + 1);
        let path = directory.path().join(number.get().to_string());
        let kind = StoreKind::File { path, size: Some(MIB), create: true };
        Export::new(1, StoreSpec { kind, lba_bytes: 4096, read_only: false })
    };
    run(make, |_| {});
}

/// Operations are longer than a transfer to the other target may be.
#[test]
fn transfers_are_split() {
    run(|| memory(MIB, 4096), |config| config.limits.mdts = 1);
}
