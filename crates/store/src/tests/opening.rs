//! Opening, creating, locking, resizing, and their error messages.

use std::os::unix::fs::MetadataExt;

use super::*;

fn message(spec: &StoreSpec) -> String {
    open(spec).expect_err("must not open").to_string()
}

#[test]
fn sizes_are_checked() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    assert_eq!(
        message(&memory(MIB, 520)),
        "a block size of 520 bytes is not supported: use 512 or 4096"
    );
    assert_eq!(message(&memory(0, 512)), "mem: has a size of zero: give it at least one block");
    assert_eq!(
        message(&memory(4096 * 3 + 512, 4096)),
        "mem: 12800 bytes are not a whole number of 4096-byte blocks: \
         use 12288 or 16384, or a block size of 512"
    );
    assert_eq!(
        message(&null(100)),
        "null: 100 bytes are not a whole number of 4096-byte blocks: use 4096"
    );
    // 2^51 - 1 blocks at most.
    assert!(open(&null(((1 << 51) - 1) << 12)).is_ok());
    assert_eq!(
        message(&null(1 << 63)),
        "null: 9223372036854775808 bytes are more than a namespace can have with blocks of 4096: \
         9223372036854771712 at most"
    );
    assert!(message(&file(&path, Some(1000), 512)).ends_with("use 512 or 1024"));
    assert!(message(&memory(1 << 60, 4096)).contains("choose a smaller size"));
    assert!(!path.exists());
}

#[test]
fn a_missing_file_needs_a_size_and_leave() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    let shown = path.display();
    assert_eq!(
        message(&file(&path, None, 512)),
        format!("{shown}: no such file: give a size to have it created")
    );
    let kind = StoreKind::File { path: path.clone(), size: Some(MIB), create: false };
    let spec = StoreSpec { kind, lba_bytes: 512, read_only: false };
    assert_eq!(message(&spec), format!("{shown}: no such file or device"));
    assert!(message(&read_only(file(&path, Some(MIB), 512))).contains("no such file or device"));
    let nowhere = dir.path().join("no/disk");
    assert!(message(&file(nowhere, Some(MIB), 512)).ends_with("no such directory to create it in"));
    assert!(!path.exists());
}

#[test]
fn a_created_file_is_sparse() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    let store = open(&file(&path, Some(1 << 30), 4096)).unwrap();
    assert_eq!(store.geometry().bytes(), 1 << 30);
    let metadata = std::fs::metadata(&path).unwrap();
    assert_eq!(metadata.len(), 1 << 30);
    assert!(metadata.blocks() * 512 < MIB);
}

#[test]
fn an_existing_file_is_never_cut() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    std::fs::write(&path, [1; 8192]).unwrap();
    assert!(message(&file(&path, Some(4096), 4096)).contains("more than the 4096 requested"));
    let larger = file(&path, Some(16384), 4096);
    assert!(message(&read_only(larger.clone())).contains("cannot be grown"));
    assert_eq!(open(&larger).unwrap().geometry().blocks, 4);
    let content = std::fs::read(&path).unwrap();
    assert_eq!((&content[..8192], &content[8192..]), (&[1; 8192][..], &[0; 8192][..]));
}

#[test]
fn odd_and_empty_files_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    std::fs::write(&path, [1; 1000]).unwrap();
    assert!(message(&file(&path, None, 512)).contains("1000 bytes are not a whole number"));
    std::fs::write(&path, []).unwrap();
    assert!(message(&file(&path, None, 512)).contains("size of zero"));
}

#[test]
fn only_files_are_files() {
    let dir = tempfile::tempdir().unwrap();
    assert!(message(&file(dir.path(), None, 512)).contains("is not a regular file"));
    assert!(message(&file("/dev/null", None, 512)).contains("is not a regular file"));
    let path = dir.path().join("disk");
    std::fs::write(&path, [1; 4096]).unwrap();
    assert!(message(&block(&path, 512)).ends_with("is not a block device: use the kind for files"));
    assert!(message(&block(Path::new("/dev/no-such-device"), 512)).contains("no such"));
}

#[test]
fn a_file_has_one_writer_or_many_readers() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    let spec = file(&path, Some(MIB), 4096);
    let writer = open(&spec).unwrap();
    assert!(message(&spec).contains("already in use"));
    assert!(message(&read_only(spec.clone())).contains("already in use"));
    drop(writer);
    let _one = open(&read_only(spec.clone())).unwrap();
    let _two = open(&read_only(spec.clone())).unwrap();
    assert!(message(&spec).contains("already in use"));
}

/// A write in the kernel refers to the file that was open when it was submitted, also when the process is gone.
#[test]
fn a_file_is_locked_until_the_last_write_has_ended() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    let store = open_disk(&file(&path, Some(MIB), 4096));
    let data = store.disk.data_fd(false);
    // SAFETY: the store is open, and so is its descriptor.
    let write = unsafe { std::os::fd::BorrowedFd::borrow_raw(data) }.try_clone_to_owned().unwrap();
    drop(store);
    assert!(message(&file(&path, None, 4096)).contains("already in use"));
    drop(write);
    open(&file(&path, None, 4096)).unwrap();
}

#[test]
fn permission_errors_are_explained() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    std::fs::write(&path, [1; 4096]).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o444)).unwrap();
    if is_root() {
        return skipped("permission_errors_are_explained", "root may open everything");
    }
    assert!(message(&file(&path, None, 512)).contains("export it read-only"));
    open(&read_only(file(&path, None, 512))).unwrap();
}

/// Applies the size that others have given it.
fn refresh(store: &dyn Store) -> StoreGeometry {
    let resize = store.plan(None).unwrap();
    store.switch(&resize);
    store.geometry()
}

#[test]
fn files_resize_while_open() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    let store = open(&file(&path, Some(MIB), 4096)).unwrap();
    let mut harness = RingHarness::new();
    assert!(harness.read(&*store, MIB, 4096).is_err());
    let outside = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    outside.set_len(2 * MIB + 100).unwrap();
    assert_eq!(refresh(&*store).blocks, 512, "whole blocks only");
    assert!(harness.read(&*store, MIB, 4096).is_ok());
    outside.set_len(MIB).unwrap();
    assert_eq!(refresh(&*store).blocks, 256);
    assert!(harness.read(&*store, MIB, 4096).unwrap_err().is(Status::LBA_OUT_OF_RANGE));
    assert_eq!(store.resize(3 * MIB).unwrap().blocks, 768);
    assert!(store.resize(MIB).unwrap_err().to_string().contains("holds 3145728 bytes"));
    assert_eq!(store.geometry().blocks, 768);
}

#[test]
fn memory_resizes_and_forgets() {
    let store = open(&memory(MIB, 4096)).unwrap();
    let mut harness = RingHarness::new();
    harness.write(&*store, 0, filled(MIB, 6)).unwrap();
    assert_eq!(store.resize(4096).unwrap().blocks, 1);
    assert!(harness.read(&*store, 4096, 4096).is_err());
    assert_eq!(store.resize(2 * MIB).unwrap().blocks, 512);
    let content = harness.read(&*store, 0, 2 * MIB).unwrap();
    assert!(content[..4096].iter().all(|&b| b == 6) && content[4096..].iter().all(|&b| b == 0));
    assert!(store.resize(100).is_err());
    assert!(store.resize(1 << 50).unwrap_err().to_string().contains("restart"));
    assert_eq!(open(&null(MIB)).unwrap().resize(2 * MIB).unwrap().blocks, 512);
}

#[test]
fn files_bypass_the_page_cache_where_they_can() {
    use std::os::unix::fs::OpenOptionsExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    let store = open_disk(&file(&path, Some(MIB), 4096));
    let disk = &store.disk;
    let mut options = std::fs::OpenOptions::new();
    let openable = options.read(true).custom_flags(libc::O_DIRECT).open(&path).is_ok();
    if !openable {
        skipped("files_bypass_the_page_cache_where_they_can", "no direct I/O in this directory");
    }
    assert_eq!(disk.has_direct(), openable);
    assert_eq!(disk.data_fd(false) != disk.control_fd(), openable);
    assert_eq!(disk.data_fd(true), disk.control_fd());
    disk.refuse_direct();
    assert_eq!(disk.data_fd(false), disk.control_fd());
}
