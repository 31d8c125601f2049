//! Every store keeps the contract.

use crate::late::LateStore;
use roadtrain_store::{
    DiskStore, EmulatedBlockStore, SsdStore, Store, StoreKind, StoreSpec, conformance, open,
};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

const SIZE: u64 = 1 << 20;
const SERVICE: Duration = Duration::from_micros(20);

fn opened(kind: StoreKind, lba_bytes: u32) -> Arc<dyn Store> {
    open(&StoreSpec { kind, lba_bytes, read_only: false }).unwrap()
}

#[test]
fn memory() {
    for lba_bytes in [512, 4096] {
        conformance::run(|| opened(StoreKind::Memory { size: SIZE }, lba_bytes));
    }
}

/// Makes new files below one directory.
fn files(lba_bytes: u32) -> impl Fn() -> Arc<dyn Store> {
    let directory = tempfile::tempdir().unwrap();
    let count = std::cell::Cell::new(0);
    move || {
        count.set(count.get() + 1);
        let path = directory.path().join(count.get().to_string());
        opened(StoreKind::File { path, size: Some(SIZE), create: true }, lba_bytes)
    }
}

#[test]
fn file() {
    for lba_bytes in [512, 4096] {
        conformance::run(files(lba_bytes));
    }
}

#[test]
fn a_file_that_was_opened_elsewhere() {
    conformance::run(|| {
        let file = tempfile::tempfile().unwrap();
        file.set_len(SIZE).unwrap();
        Arc::new(DiskStore::from_file(file, SIZE, 512).unwrap())
    });
}

/// A loop device, until it is dropped.
struct AttachedLoop(PathBuf);

impl Drop for AttachedLoop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

/// Attaches a loop device with these logical blocks over a new file.
fn attach_loop(directory: &Path, block_bytes: u32) -> Option<AttachedLoop> {
    let backing = directory.join("backing");
    File::create(&backing).unwrap().set_len(SIZE).unwrap();
    let block_bytes = block_bytes.to_string();
    let options = ["--find", "--show", "--sector-size", &block_bytes];
    let attached = Command::new("losetup").args(options).arg(&backing).output();
    match &attached {
        Ok(output) if output.status.success() => {
            Some(AttachedLoop(String::from_utf8_lossy(&output.stdout).trim().into()))
        }
        _ => None,
    }
}

#[test]
fn block_device() {
    let directory = tempfile::tempdir().unwrap();
    let Some(device) = attach_loop(directory.path(), 512) else {
        return eprintln!("SKIPPED block_device: no loop devices here");
    };
    conformance::run(|| opened(StoreKind::Block { path: device.0.clone() }, 512));
}

#[test]
fn small_blocks_on_a_block_device_of_larger_ones() {
    let directory = tempfile::tempdir().unwrap();
    let Some(device) = attach_loop(directory.path(), 4096) else {
        return eprintln!("SKIPPED small_blocks_on_a_block_device_of_larger_ones: no loop devices");
    };
    let open = || opened(StoreKind::Block { path: device.0.clone() }, 512);
    let limits = open().limits();
    assert_eq!((limits.write_bytes, limits.discard_bytes, limits.atomic_bytes), (4096, 4096, 0));
    conformance::run(open);
}

fn small_blocks_of(below: Arc<dyn Store>) -> Arc<dyn Store> {
    Arc::new(EmulatedBlockStore::new(below, 9))
}

#[test]
fn small_blocks_of_memory() {
    conformance::run(|| small_blocks_of(opened(StoreKind::Memory { size: SIZE }, 4096)));
}

#[test]
fn small_blocks_of_a_file() {
    let make = files(4096);
    conformance::run(|| small_blocks_of(make()));
}

#[test]
fn small_blocks_of_an_emulated_ssd_over_a_thread() {
    conformance::run(|| {
        let late = Arc::new(LateStore::with(32, 12, 0));
        small_blocks_of(Arc::new(SsdStore::new(late, SERVICE, 4)))
    });
}

#[test]
fn emulated_ssd() {
    conformance::run(|| opened(StoreKind::Ssd { size: SIZE, service: SERVICE, parallel: 4 }, 512));
}

#[test]
fn emulated_ssd_over_a_file() {
    let make = files(4096);
    conformance::run(|| Arc::new(SsdStore::new(make(), SERVICE, 4)));
}

#[test]
fn emulated_ssd_over_an_emulated_ssd_over_a_thread() {
    conformance::run(|| {
        let late = Arc::new(LateStore::new(256, 0));
        let below = Arc::new(SsdStore::new(late, SERVICE, 4));
        Arc::new(SsdStore::new(below, SERVICE, 2))
    });
}

#[test]
fn a_thread_that_answers_late_and_out_of_order() {
    conformance::run(|| Arc::new(LateStore::new(256, 0)));
}

/// The conformance test can fail.
#[test]
#[should_panic(expected = "fails")]
fn errors_are_found() {
    conformance::run(|| Arc::new(LateStore::new(256, 3)));
}

/// The null store keeps nothing: it cannot conform.
#[test]
#[should_panic(expected = "block 0")]
fn losing_data_is_found() {
    conformance::run(|| opened(StoreKind::Null { size: SIZE }, 512));
}
