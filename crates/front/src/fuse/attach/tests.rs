//! Tests with a real target, and with the kernel's FUSE if this user may mount.

use super::*;
use roadtrain_store::{StoreKind, StoreSpec};
use roadtrain_target_engine::{Export, Server, ServerConfig, Subsystem};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Mutex;
use std::time::Instant;

const NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:5a7e0000-0000-4000-8000-000000000002";
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";
/// Serializes the tests: the kernel's io_uring switch is global.
static ALONE: Mutex<()> = Mutex::new(());

fn memory(sizes: &[(u32, u64)]) -> Vec<Subsystem> {
    let export = |&(nsid, size): &(u32, u64)| {
        let kind = StoreKind::Memory { size };
        let store = StoreSpec { kind, lba_bytes: 4096, read_only: nsid == 3 };
        Export::new(nsid, store)
    };
    let exports = sizes.iter().map(export).collect();
    vec![Subsystem { namespaces: exports, ..Subsystem::new(NQN) }]
}

fn target() -> Server {
    let listen = vec!["127.0.0.1:0".parse().unwrap()];
    Server::start(ServerConfig::new(listen, memory(&[(1, 8 << 20), (3, 4 << 20)]))).unwrap()
}

fn attach(
    target: &Server,
    mountpoint: &Path,
    nsid: Option<u32>,
    uring: FuseUring,
) -> Result<FuseAttachment, AttachError> {
    let mut host = HostConfig::new(target.addresses()[0], NQN, NQN, [1; 16]);
    (host.lanes, host.cores) = (2, vec![0, 0]);
    let mountpoint = mountpoint.to_owned();
    FuseAttachment::start(host, &FuseConfig { mountpoint, nsid, loop_devices: false, uring })
}

/// Returns the transports that this machine has; none without root.
fn transports() -> Vec<FuseUring> {
    let may_mount = super::super::sys::user_and_group().0 == 0 && Path::new("/dev/fuse").exists();
    let has_ring = Path::new(SWITCH).exists();
    match (may_mount, has_ring) {
        (false, _) => crate::skipped::skipped("mounting needs root and /dev/fuse"),
        (true, false) => println!("in part: no FUSE over io_uring before Linux 6.14"),
        (true, true) => return vec![FuseUring::Off, FuseUring::On],
    }
    if may_mount { vec![FuseUring::Off] } else { Vec::new() }
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

#[test]
fn namespaces_are_files() {
    let _alone = ALONE.lock();
    for uring in transports() {
        let directory = tempfile::tempdir().unwrap();
        let target = target();
        let attachment = attach(&target, directory.path(), None, uring).unwrap();
        let mut names: Vec<_> = std::fs::read_dir(directory.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort_unstable();
        assert_eq!(names, ["nvme0n1", "nvme0n3"], "{uring:?}");
        let path = directory.path().join("nvme0n1");
        let status = path.metadata().unwrap();
        assert_eq!((status.size(), status.mode() & 0o7777), (8 << 20, 0o600));
        let file = open(&path);
        let data: Vec<u8> = (0..3 << 20).map(|at: u32| (at % 251) as u8).collect();
        file.write_all_at(&data, 1000).unwrap();
        file.sync_all().unwrap();
        let mut back = vec![0; data.len()];
        file.read_exact_at(&mut back, 1000).unwrap();
        assert!(back == data, "{uring:?}");
        assert_eq!(file.write_at(&[1; 8192], (8 << 20) - 4096).unwrap(), 4096);
        assert!(file.write_at(&[1], 8 << 20).is_err());
        assert_eq!(file.read_at(&mut back, 8 << 20).unwrap(), 0);
        let read_only = directory.path().join("nvme0n3");
        assert!(OpenOptions::new().write(true).open(&read_only).is_err());
        assert!(File::open(&read_only).is_ok());
        drop(file);
        attachment.stop();
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "unmounted");
        target.stop();
    }
}

/// A file of a mount cannot back a guest's memory, which must not depend on a program.
#[test]
fn a_file_is_no_memory_for_a_virtual_machine() {
    let _alone = ALONE.lock();
    for uring in transports().into_iter().take(1) {
        let directory = tempfile::tempdir().unwrap();
        let target = target();
        let attachment = attach(&target, directory.path(), Some(1), uring).unwrap();
        let file = open(&directory.path().join("nvme0n1"));
        let error = crate::vhost_user::map_file(file, 0, 4096).map(drop).unwrap_err();
        assert!(error.to_string().contains("a file of FUSE"), "{error}");
        attachment.stop();
        target.stop();
    }
}

#[test]
fn a_file_in_use_does_not_delay_the_end() {
    let _alone = ALONE.lock();
    for uring in transports() {
        let directory = tempfile::tempdir().unwrap();
        let target = target();
        let made = directory.path().join("made");
        let attachment = attach(&target, &made, Some(1), uring).unwrap();
        let file = open(&made.join("nvme0n1"));
        file.write_all_at(&[5; 4096], 0).unwrap();
        attachment.stop();
        assert!(file.write_at(&[6; 4096], 0).is_err(), "{uring:?}");
        assert!(!made.exists(), "it was not there before");
        target.stop();
    }
}

#[test]
fn a_new_size_is_seen() {
    let _alone = ALONE.lock();
    for uring in transports() {
        let directory = tempfile::tempdir().unwrap();
        let target = target();
        let attachment = attach(&target, directory.path(), Some(1), uring).unwrap();
        let path = directory.path().join("nvme0n1");
        target.reload(&memory(&[(1, 16 << 20)])).unwrap();
        let last = Instant::now() + Duration::from_secs(20);
        while path.metadata().unwrap().size() != 16 << 20 {
            assert!(Instant::now() < last, "the new size is not seen");
            std::thread::sleep(Duration::from_millis(20));
        }
        open(&path).write_all_at(&[1; 4096], (16 << 20) - 4096).unwrap();
        attachment.stop();
        target.stop();
    }
}

#[test]
fn a_failed_attach_is_explained_and_leaves_nothing() {
    let _alone = ALONE.lock();
    let target = target();
    let directory = tempfile::tempdir().unwrap();
    let error = attach(&target, directory.path(), Some(2), FuseUring::Off).map(drop).unwrap_err();
    assert_eq!(error.to_string(), "the subsystem has no namespace 2; it has 1, 3");
    let file = directory.path().join("file");
    File::create(&file).unwrap();
    let error = attach(&target, &file, None, FuseUring::Off).map(drop).unwrap_err();
    assert!(error.to_string().starts_with("cannot mount at"), "{error}");
    let error = attach(&target, &file.join("below"), None, FuseUring::Off).map(drop).unwrap_err();
    assert!(error.to_string().starts_with("cannot mount at"), "{error}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    target.stop();
}
