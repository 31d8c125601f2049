//! Images of a Ceph cluster. `tests/ceph/run.sh` starts it and runs these tests, one by one:
//! `scripts/test.sh ceph=store_images,store_encrypted_images,store_shared_images,store_owner_without_heartbeat`.

#![cfg(feature = "rbd")]

use roadtrain_store::{
    BlockOwnership, OpenError, RbdImage, RbdPassphrase, Store, StoreKind, StoreSpec, conformance,
    observe, open,
};
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/ceph/cluster.sh");
const SIZE: u64 = 1 << 20;
const LONG: Duration = Duration::from_secs(60);

/// Folder of a running cluster with an empty pool `rbd`.
struct TestCluster(PathBuf);

impl TestCluster {
    fn running() -> TestCluster {
        let directory = std::env::var_os("ROADTRAIN_TEST_CEPH");
        TestCluster(directory.expect("ROADTRAIN_TEST_CEPH names the folder of a cluster").into())
    }

    fn script(&self, verb: &[&str], rest: &[&str]) -> String {
        let mut command = Command::new(SCRIPT);
        let output = command.args(verb).arg(&self.0).args(rest).output().unwrap();
        assert!(output.status.success(), "{verb:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn rbd(&self, arguments: &[&str]) -> String {
        self.script(&["exec"], &[&["--", "rbd"], arguments].concat())
    }

    /// Returns a new file with that text, which only its owner may read.
    fn passphrase_file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        let mut options = std::fs::File::options();
        let options = options.write(true).create(true).truncate(true).mode(0o600);
        options.open(&path).unwrap().write_all(text.as_bytes()).unwrap();
        path
    }

    fn image(&self, name: &str) -> RbdImage {
        RbdImage {
            pool: "rbd".into(),
            image: name.into(),
            conf: Some(self.0.join("ceph.conf")),
            id: Some("tenant".into()),
            ..RbdImage::default()
        }
    }
}

/// Ends the process without the cleanup of Ceph's libraries, which frees data that their threads still use; like
/// [`roadtrain_store::end_process`], but after the test's result was printed.
impl Drop for TestCluster {
    fn drop(&mut self) {
        extern "C" fn leave(status: c_int, _: *mut c_void) {
            // SAFETY: it does not return.
            unsafe { libc::_exit(status) }
        }
        unsafe extern "C" {
            fn on_exit(run: extern "C" fn(c_int, *mut c_void), with: *mut c_void) -> c_int;
        }
        // SAFETY: the function has no state. The last one registered, after the libraries were loaded, runs first.
        assert_eq!(unsafe { on_exit(leave, std::ptr::null_mut()) }, 0);
    }
}

fn opened(image: RbdImage, read_only: bool) -> Result<Arc<dyn Store>, OpenError> {
    open(&StoreSpec { kind: StoreKind::Rbd(image), lba_bytes: 4096, read_only })
}

fn problem(image: RbdImage) -> String {
    opened(image, false).unwrap_err().to_string()
}

#[test]
#[ignore = "tests/ceph runs it"]
fn images_are_stores() {
    let cluster = TestCluster::running();
    conform(&cluster, false);
    identities_last(&cluster);
    has_one_writer(&cluster);
    another_size_is_seen(&cluster);
    a_created_image_is_removed_after_a_failed_opening(&cluster);
    says_what_is_wrong(&cluster);
    options_of_image_and_pool(&cluster);
}

/// Encrypted images, as `rbd encryption format` makes them, but with few iterations for the key: each opening takes
/// seconds otherwise.
#[test]
#[ignore = "tests/ceph runs it"]
fn encrypted_images_are_stores() {
    let cluster = TestCluster::running();
    let passphrase = cluster.passphrase_file("right", "a passphrase\n");
    let image = |name: &str| RbdImage {
        passphrase: Some(Box::new(RbdPassphrase::File(passphrase.clone()))),
        ..cluster.image(name)
    };
    for (format, shared) in [("luks1", false), ("luks2", true)] {
        encrypt(&cluster, format, "a passphrase");
        let count = Cell::new(0);
        conformance::run(|| {
            count.set(count.get() + 1);
            let name = format!("{format}-{}", count.get());
            cluster.rbd(&["cp", &format!("rbd/{format}"), &format!("rbd/{name}")]);
            opened(RbdImage { shared, ..image(&name) }, false).unwrap()
        });
        encrypted_image_grows(&cluster, &image(format));
    }
    let dense = ["config", "image", "set", "rbd/luks2", "rbd_sparse_read_threshold_bytes", "64K"];
    cluster.rbd(&dense);
    let why = problem(image("luks2"));
    let remedy = "`rbd config image remove rbd/luks2 rbd_sparse_read_threshold_bytes`";
    assert!(why.contains("unwritten blocks") && why.contains(remedy), "{why}");
    cluster.rbd(&["config", "image", "remove", dense[3], dense[4]]);
    encrypted_image_is_refused(&cluster, &image("luks2"));
    encrypted_image_is_observed(&image("luks2"));
}

/// Bytes of the header of that format.
fn header_bytes(format: &str) -> u64 {
    if format == "luks1" { 4 << 20 } else { 16 << 20 }
}

/// Makes the image with the name of its format, and [`SIZE`] bytes behind its header.
fn encrypt(cluster: &TestCluster, format: &str, passphrase: &str) {
    let (key, stored) = (cluster.passphrase_file("bare", passphrase), cluster.0.join(format));
    let file = std::fs::File::create(&stored).unwrap();
    file.set_len(header_bytes(format) + SIZE).unwrap();
    let offset = (header_bytes(format) / 512).to_string();
    let mut program = Command::new("cryptsetup");
    program.args(["luksFormat", "--batch-mode", "--type", format, "--offset", &offset]);
    program.args(["--cipher", "aes-xts-plain64", "--key-size", "512", "--pbkdf", "pbkdf2"]);
    program.args(["--pbkdf-force-iterations", "1000"]);
    if format == "luks2" {
        program.args(["--sector-size", "4096"]);
    }
    let output = program.arg("--key-file").arg(&key).arg(&stored).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    cluster.rbd(&["import", stored.to_str().unwrap(), &format!("rbd/{format}")]);
}

fn encrypted_image_grows(cluster: &TestCluster, image: &RbdImage) {
    let name = format!("rbd/{}", image.image);
    let store = opened(image.clone(), false).unwrap();
    assert_eq!(store.geometry().bytes(), SIZE, "{name}: without its header");
    assert!(!store.reports_allocation());
    let stored = opened(RbdImage { passphrase: None, ..image.clone() }, true).unwrap();
    assert!(stored.geometry().bytes() > SIZE);
    assert_ne!(stored.identity().unwrap(), store.identity().unwrap());
    let mut resize = store.plan(Some(3 * SIZE)).unwrap();
    store.stage(&mut resize).unwrap();
    store.switch(&resize);
    assert_eq!(store.geometry().bytes(), 3 * SIZE);
    assert_eq!(store.plan(None).unwrap().to, 3 * SIZE, "{name}: as librbd says");
    let raw = cluster.rbd(&["info", "--format", "json", &name]);
    let expected = header_bytes(&image.image) + 3 * SIZE;
    assert!(raw.contains(&format!("\"size\":{expected},")), "{raw}");
    store.release();
}

fn encrypted_image_is_refused(cluster: &TestCluster, image: &RbdImage) {
    let wrong = cluster.passphrase_file("wrong", "another passphrase");
    let missing = cluster.0.join("missing");
    cluster.rbd(&["create", "rbd/plain", "--size", "32M"]);
    let from = |path: &Path, image: &RbdImage| RbdImage {
        passphrase: Some(Box::new(RbdPassphrase::File(path.into()))),
        ..image.clone()
    };
    let right = image.passphrase.clone();
    for (image, why) in [
        (from(&wrong, image), "this passphrase does not open it"),
        (from(&missing, image), "No such file"),
        (RbdImage { passphrase: right, ..cluster.image("plain") }, "it is not encrypted"),
    ] {
        let source = image.passphrase.clone().unwrap().to_string();
        let problem = problem(image);
        assert!(problem.contains(why) && problem.contains(&source), "{problem}");
        assert!(!problem.contains("passphrase\n") && !problem.contains("another"), "{problem}");
    }
}

/// A standby has size and identity of the decrypted image, and serves it when it is free.
fn encrypted_image_is_observed(image: &RbdImage) {
    let shared = || RbdImage { shared: true, ..image.clone() };
    let spec = || StoreSpec { kind: StoreKind::Rbd(shared()), lba_bytes: 4096, read_only: false };
    let first = opened(shared(), false).unwrap();
    let second = observe(&spec()).unwrap();
    assert_eq!(second.ownership(), BlockOwnership::Theirs);
    assert_eq!(second.identity().unwrap(), first.identity().unwrap());
    assert_eq!(second.geometry(), first.geometry());
    first.release();
    drop(first);
    becomes(&*second, BlockOwnership::Free);
    drop(second);
    let third = opened(shared(), false).unwrap();
    assert_eq!(third.ownership(), BlockOwnership::Ours);
    third.release();
}

/// Images that several targets reach.
#[test]
#[ignore = "tests/ceph runs it"]
fn shared_images_are_stores() {
    let cluster = TestCluster::running();
    conform(&cluster, true);
    changes_hands(&cluster);
}

fn conform(cluster: &TestCluster, shared: bool) {
    let count = Cell::new(0);
    conformance::run(|| {
        count.set(count.get() + 1);
        let image = cluster.image(&count.get().to_string());
        opened(RbdImage { create: Some(SIZE), shared, ..image }, false).unwrap()
    });
}

/// Covers the changes of ownership of a shared image.
fn changes_hands(cluster: &TestCluster) {
    let image = || RbdImage { create: Some(SIZE), shared: true, ..cluster.image("hands") };
    let spec = || StoreSpec { kind: StoreKind::Rbd(image()), lba_bytes: 4096, read_only: false };
    let first = opened(image(), false).unwrap();
    assert_eq!(first.ownership(), BlockOwnership::Ours);
    assert!(
        cluster.rbd(&["info", "rbd/hands"]).contains("features: layering, exclusive-lock, deep")
    );
    assert!(matches!(opened(image(), false), Err(OpenError::Taken { .. })));
    let second = observe(&spec()).unwrap();
    assert_eq!(second.ownership(), BlockOwnership::Theirs);
    assert_eq!(second.identity().unwrap(), first.identity().unwrap());
    let owner = owner_of(cluster, "rbd/hands");
    // The commands' output does not matter.
    let said = [["rbd_blocklist_on_break_lock", "false"], ["rbd_blocklist_expire_seconds", "60"]];
    for [name, value] in said {
        cluster.rbd(&["config", "image", "set", "rbd/hands", name, value]);
    }
    second.take_over().unwrap();
    becomes(&*second, BlockOwnership::Free);
    becomes(&*first, BlockOwnership::Lost);
    is_fenced_for_long(cluster, &owner);
    let third = opened(image(), false).unwrap();
    // It does not own the image any more, and does not take it away from the new owner.
    first.release();
    drop(first);
    assert_eq!(third.ownership(), BlockOwnership::Ours);
    // A previous owner continues to check, and leaves the next owner alone.
    becomes(&*second, BlockOwnership::Theirs);
    assert_eq!(third.ownership(), BlockOwnership::Ours);
    second.take_over().unwrap();
    third.release();
    drop(third);
    let third = opened(image(), false).unwrap();
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(
        (second.ownership(), third.ownership()),
        (BlockOwnership::Theirs, BlockOwnership::Ours)
    );
    let fourth = observe(&spec()).unwrap();
    third.release();
    becomes(&*fourth, BlockOwnership::Free);
}

/// Returns the address of the client that has its lock.
fn owner_of(cluster: &TestCluster, image: &str) -> String {
    let end = Instant::now() + LONG;
    loop {
        let locks = cluster.rbd(&["lock", "ls", image]);
        if let Some(owner) = locks.lines().last().and_then(|line| line.split_whitespace().last()) {
            return owner.to_owned();
        }
        assert!(Instant::now() < end, "{image} has no owner");
    }
}

/// Checks that the fence lasts longer than any operation in flight.
fn is_fenced_for_long(cluster: &TestCluster, address: &str) {
    let fenced = cluster.script(&["exec"], &["--", "ceph", "osd", "blocklist", "ls"]);
    let mut all = fenced.lines().filter_map(|line| line.split_once(' '));
    let end = all.find_map(|(known, end)| (known == address).then_some(end));
    let soonest = Command::new("date").args(["-d", "now + 300 days", "+%F"]).output().unwrap();
    let soonest = String::from_utf8(soonest.stdout).unwrap();
    assert!(end.is_some_and(|end| end > soonest.trim()), "{address}: {fenced}");
}

fn becomes(store: &dyn Store, ownership: BlockOwnership) {
    let end = Instant::now() + LONG;
    while store.ownership() != ownership {
        assert!(Instant::now() < end, "it is {:?}", store.ownership());
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn identities_last(cluster: &TestCluster) {
    let of = |name: &str| opened(cluster.image(name), true).unwrap().identity().unwrap();
    let first = of("1");
    assert_ne!(first, of("2"));
    cluster.rbd(&["rename", "rbd/1", "rbd/renamed"]);
    assert_eq!(of("renamed"), first);
    cluster.rbd(&["snap", "create", "rbd/renamed@then"]);
    let snapshot = RbdImage { snapshot: Some("then".into()), ..cluster.image("renamed") };
    let snapshot = opened(snapshot, false).unwrap();
    assert!(snapshot.geometry().read_only);
    assert_ne!(snapshot.identity().unwrap(), first);
}

fn has_one_writer(cluster: &TestCluster) {
    let first = opened(cluster.image("2"), false).unwrap();
    let why = problem(cluster.image("2"));
    assert!(why.contains("has its exclusive lock"), "{why}");
    let _reader = opened(cluster.image("2"), true).unwrap();
    first.release();
    let second = opened(cluster.image("2"), false).unwrap();
    drop(first);
    assert!(problem(cluster.image("2")).contains("has its exclusive lock"));
    second.release();
}

fn another_size_is_seen(cluster: &TestCluster) {
    let store = opened(cluster.image("2"), false).unwrap();
    let (sender, changed) = channel();
    let watcher: Arc<roadtrain_store::SizeWatcher> = Arc::new(move || _ = sender.send(()));
    store.watch_size(Arc::downgrade(&watcher));
    cluster.rbd(&["resize", "rbd/2", "--size", "2M"]);
    while store.plan(None).unwrap().to != 2 * SIZE {
        changed.recv_timeout(LONG).unwrap();
    }
    let resize = store.plan(None).unwrap();
    store.switch(&resize);
    assert_eq!(store.geometry().bytes(), 2 * SIZE);
    let why = store.plan(Some(SIZE)).unwrap_err().to_string();
    assert!(why.contains("use `rbd resize`"), "{why}");
}

fn a_created_image_is_removed_after_a_failed_opening(cluster: &TestCluster) {
    let new = RbdImage { create: Some(SIZE), ..cluster.image("new") };
    let store = opened(new, false).unwrap();
    assert!(cluster.rbd(&["ls"]).contains("new"));
    store.undo_opening();
    drop(store);
    let end = Instant::now() + LONG;
    while cluster.rbd(&["ls"]).contains("new") {
        assert!(Instant::now() < end, "it stays");
    }
}

fn says_what_is_wrong(cluster: &TestCluster) {
    let is_said = |image: RbdImage, text: &str| {
        let why = problem(image);
        assert!(why.contains(text), "{why}");
    };
    is_said(cluster.image("none"), "rbd:rbd/none: there is no such image");
    is_said(RbdImage { pool: "none".into(), ..cluster.image("2") }, "there is no pool none");
    is_said(
        RbdImage { id: Some("nobody".into()), ..cluster.image("2") },
        "does not let client.nobody in",
    );
    let conf = Some(Path::new("/nowhere/ceph.conf").to_owned());
    is_said(RbdImage { conf, ..cluster.image("2") }, "name the file with conf=FILE");
}

/// Options of ceph.conf do not matter. Options of image or pool cannot be overruled, and are reported.
fn options_of_image_and_pool(cluster: &TestCluster) {
    let conf = cluster.0.join("cached.conf");
    let mut text = std::fs::read_to_string(cluster.0.join("ceph.conf")).unwrap();
    text +=
        "[client]\nrbd cache = true\nrbd plugins = pwl_cache\nrbd persistent cache mode = ssd\n";
    text += "rbd persistent cache path = /nowhere\n";
    std::fs::write(&conf, text).unwrap();
    let image = || RbdImage { conf: Some(conf.clone()), ..cluster.image("2") };
    opened(image(), false).unwrap().release();
    let fences = ("rbd_blocklist_on_break_lock", "false");
    for (option, value) in [("rbd_cache", "true"), ("rbd_persistent_cache_mode", "ssd"), fences] {
        for whose in [["image", "rbd/2"], ["pool", "rbd"]] {
            let [kind, name] = whose;
            cluster.rbd(&["config", kind, "set", name, option, value]);
            let why = problem(image());
            let remedy = format!("({option} = {value})");
            let command = format!("`rbd config {kind} remove {name} {option}`");
            assert!(why.contains(&remedy) && why.contains(&command), "{why}");
            cluster.rbd(&["config", kind, "remove", name, option]);
        }
    }
    cluster.rbd(&["config", "image", "set", "rbd/2", "rbd_cache", "false"]);
    opened(image(), false).unwrap().release();
}

/// A client without a heartbeat that no longer has the image open.
#[test]
#[ignore = "tests/ceph runs it"]
fn owners_without_heartbeat_are_followed() {
    let cluster = &TestCluster::running();
    // Ceph takes a client for dead after 30 s by default.
    let watch = ["ceph", "config", "set", "osd", "osd_client_watch_timeout", "5"];
    cluster.script(&["exec"], &[&["--"][..], &watch].concat());
    cluster.rbd(&["create", "rbd/gone", "--size", "64M"]);
    let mut writer = Command::new("rbd");
    writer.env("CEPH_CONF", cluster.0.join("ceph.conf"));
    writer.args(["bench", "--io-type", "write", "--io-total", "1T", "rbd/gone"]);
    let mut writer = writer.stdout(std::process::Stdio::null()).spawn().unwrap();
    let owner = owner_of(cluster, "rbd/gone");
    let image = RbdImage { shared: true, ..cluster.image("gone") };
    let spec = StoreSpec { kind: StoreKind::Rbd(image), lba_bytes: 4096, read_only: false };
    let store = observe(&spec).unwrap();
    writer.kill().unwrap();
    writer.wait().unwrap();
    let died = Instant::now();
    becomes(&*store, BlockOwnership::Free);
    assert!(died.elapsed() > Duration::from_secs(30), "after {:?}", died.elapsed());
    is_fenced_for_long(cluster, &owner);
}
