//! Tests that need root: block devices and full disks. Reported as skipped for other users.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::{io, ptr, thread};

use super::*;

/// A loop device over a file; detached when dropped.
struct TestLoop {
    node: PathBuf,
}

impl TestLoop {
    fn attach(backing: &Path, sector_bytes: u32) -> Result<TestLoop, String> {
        let output = Command::new("losetup")
            .args(["--find", "--show", "--sector-size", &sector_bytes.to_string()])
            .arg(backing)
            .output()
            .map_err(|e| format!("cannot run losetup: {e}"))?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).trim().into());
        }
        Ok(TestLoop { node: PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()) })
    }
}

impl Drop for TestLoop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.node).status();
    }
}

/// Makes a backing file of `size`, and its device if the system allows one.
fn loop_device(test: &str, size: u64, sector_bytes: u32) -> Option<(tempfile::TempDir, TestLoop)> {
    let dir = tempfile::tempdir().unwrap();
    let backing = dir.path().join("backing");
    std::fs::File::create(&backing).unwrap().set_len(size).unwrap();
    match TestLoop::attach(&backing, sector_bytes) {
        Ok(device) => Some((dir, device)),
        Err(reason) => {
            skipped(test, &reason);
            None
        }
    }
}

#[test]
fn a_block_device_works() {
    for lba_bytes in [512, 4096] {
        let Some((dir, device)) = loop_device("a_block_device_works", MIB, lba_bytes) else {
            return;
        };
        let store = open(&block(&device.node, lba_bytes)).unwrap();
        let geometry = store.geometry();
        assert_eq!((geometry.bytes(), geometry.volatile_cache), (MIB, true));
        let mut harness = RingHarness::new();
        let write = (StoreOperation::Write { offset: 0, fua: true }, Some(filled(MIB, 8)));
        harness.run(&*store, write).0.unwrap();
        harness.flush(&*store).unwrap();
        harness.discard(&*store, &[(64 * KIB, 64 * KIB), (256 * KIB, 64 * KIB)]).unwrap();
        harness.zero(&*store, 512 * KIB, 64 * KIB).unwrap();
        let content = harness.read(&*store, 0, MIB).unwrap();
        for (index, chunk) in content.chunks(64 << 10).enumerate() {
            let byte = if [1, 4, 8].contains(&index) { 0 } else { 8 };
            assert!(chunk.iter().all(|&b| b == byte), "64 KiB chunk {index}");
        }
        harness.compare(&*store, 0, filled(64 * KIB, 8)).unwrap();
        let backing = std::fs::metadata(dir.path().join("backing")).unwrap();
        assert!(backing.blocks() * 512 < MIB, "discards reach the backing file");
    }
}

#[test]
fn a_block_device_has_one_writer() {
    let Some((_dir, device)) = loop_device("a_block_device_has_one_writer", MIB, 512) else {
        return;
    };
    let spec = block(&device.node, 4096);
    let writer = open(&spec).unwrap();
    let error = open(&spec).unwrap_err().to_string();
    assert!(error.contains("already in use"), "{error}");
    let reader = open(&read_only(spec.clone())).unwrap_err().to_string();
    assert!(reader.contains("already in use"), "{reader}");
    drop(writer);
    let one = open(&read_only(spec.clone())).unwrap();
    let other = open(&read_only(spec.clone())).unwrap();
    let writer = open(&spec).unwrap_err().to_string();
    assert!(writer.contains("already in use"), "{writer}");
    drop((one, other));
    let store = open(&read_only(spec)).unwrap();
    assert!(store.resize(2 * MIB).unwrap_err().to_string().contains("cannot be resized"));
}

/// Access by file and by loop device exclude each other.
#[test]
fn a_file_is_not_written_through_a_loop_device_too() {
    let name = "a_file_is_not_written_through_a_loop_device_too";
    let Some((dir, device)) = loop_device(name, MIB, 512) else { return };
    let (file, block) = (file(dir.path().join("backing"), None, 4096), block(&device.node, 4096));
    let by_device = open(&block).unwrap();
    assert!(open(&file).unwrap_err().to_string().contains("already in use"));
    drop(by_device);
    let by_name = open(&file).unwrap();
    let error = open(&block).unwrap_err().to_string();
    assert!(error.contains("already in use through") && error.contains("backing"), "{error}");
    assert!(open(&read_only(block.clone())).is_err());
    drop(by_name);
    let (_one, _other) = (open(&read_only(block)).unwrap(), open(&read_only(file)).unwrap());
}

#[test]
fn block_sizes_must_fit_the_device() {
    let Some((_dir, device)) = loop_device("block_sizes_must_fit_the_device", MIB, 4096) else {
        return;
    };
    let mut harness = RingHarness::new();
    let small = open(&block(&device.node, 512)).unwrap();
    assert_eq!((small.geometry().lba_shift, small.geometry().bytes()), (9, MIB));
    harness.write(&*small, 4096, filled(4096, 1)).unwrap();
    harness.write(&*small, 4096 + 512, filled(512, 2)).unwrap();
    let observed = observe(&block(&device.node, 512)).unwrap();
    assert_eq!(observed.geometry().blocks, small.geometry().blocks);
    assert_eq!(observed.limits(), small.limits());
    drop((small, observed));
    let large = open(&block(&device.node, 4096)).unwrap();
    let found = harness.read(&*large, 4096, 4096).unwrap();
    assert!(found[..512].iter().chain(&found[1024..]).all(|&byte| byte == 1));
    assert!(found[512..1024].iter().all(|&byte| byte == 2));
    drop(large);
    let error = open(&file(&device.node, None, 4096)).unwrap_err().to_string();
    assert!(error.contains("use the kind for block devices"), "{error}");
}

/// Runs `test` in a thread of its own with a mount namespace of its own, where `dir` is a tmpfs of `size`.
fn with_small_tmpfs(name: &'static str, size: u64, test: impl FnOnce(&Path) + Send + 'static) {
    let run = move || {
        let dir = tempfile::tempdir().unwrap();
        match mount_tmpfs(dir.path(), size) {
            Ok(()) => test(dir.path()),
            Err(reason) => skipped(name, &reason),
        }
        let target = c_path(dir.path());
        // SAFETY: a C string; unmounts only within this thread's namespace.
        unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH) };
    };
    thread::spawn(run).join().unwrap();
}

fn mount_tmpfs(at: &Path, size: u64) -> io::Result<()> {
    let check = |result| if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    let (target, options) = (c_path(at), CString::new(format!("size={size}")).unwrap());
    // SAFETY: all pointers are C strings or null where the call allows it; only this thread's
    // namespace changes, since it was unshared before.
    unsafe {
        check(libc::unshare(libc::CLONE_NEWNS))?;
        let private = libc::MS_REC | libc::MS_PRIVATE;
        check(libc::mount(ptr::null(), c"/".as_ptr(), ptr::null(), private, ptr::null()))?;
        let tmpfs = c"tmpfs".as_ptr();
        check(libc::mount(tmpfs, target.as_ptr(), tmpfs, 0, options.as_ptr().cast()))
    }
}

fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

#[test]
fn a_full_filesystem_is_capacity_exceeded() {
    with_small_tmpfs("a_full_filesystem_is_capacity_exceeded", MIB, |dir| {
        let store = open(&file(dir.join("disk"), Some(4 * MIB), 4096)).unwrap();
        let mut harness = RingHarness::new();
        // The first half fits, the second ends in the middle of a write.
        harness.write(&*store, 0, filled(512 * KIB, 1)).unwrap();
        let status = harness.write(&*store, 512 * KIB, filled(2 * MIB, 2)).unwrap_err();
        assert!(status.is(Status::CAPACITY_EXCEEDED) && status.is_dnr(), "{status}");
        assert!(harness.read(&*store, 0, 512 * KIB).unwrap().iter().all(|&b| b == 1));
        // Discarding makes room again.
        harness.discard(&*store, &[(0, 4 * MIB)]).unwrap();
        harness.write(&*store, 3 * MIB, filled(512 * KIB, 3)).unwrap();
        assert!(harness.read(&*store, 3 * MIB, 512 * KIB).unwrap().iter().all(|&b| b == 3));
        assert!(harness.read(&*store, 0, MIB).unwrap().iter().all(|&b| b == 0));
    });
}

#[test]
fn discarding_gives_space_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    let store = open(&file(&path, Some(MIB), 4096)).unwrap();
    let mut harness = RingHarness::new();
    let write = (StoreOperation::Write { offset: 0, fua: true }, Some(filled(MIB, 1)));
    harness.run(&*store, write).0.unwrap();
    let before = std::fs::metadata(&path).unwrap().blocks();
    harness.discard(&*store, &[(0, 256 * KIB), (512 * KIB, 256 * KIB)]).unwrap();
    let after = std::fs::metadata(&path).unwrap().blocks();
    if after == before {
        return skipped("discarding_gives_space_back", "the temporary directory has no holes");
    }
    assert!(before - after >= 512 * KIB / 512);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), MIB);
}
