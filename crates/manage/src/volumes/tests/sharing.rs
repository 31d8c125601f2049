//! Extents that several volumes share are counted once; without them content is copied, which must not be torn.

use super::*;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

#[test]
fn a_shared_extent_is_counted_once_with_its_oldest_snapshot() {
    let Some(lab) = StoreLab::xfs() else { return };
    let store = lab.open();
    let disk = store.create("disk", 40 << 20, true).unwrap();
    for cluster in 0..6 {
        fill(&store, disk, cluster);
    }
    assert_eq!(held(&store), [6]);
    let first = store.snapshot(disk, "first", &quiet).unwrap();
    assert_eq!(held(&store), [0, 6]);
    fill(&store, disk, 0);
    fill(&store, disk, 7);
    assert_eq!(held(&store), [2, 6]);
    store.snapshot(disk, "second", &quiet).unwrap();
    assert_eq!(held(&store), [0, 6, 2]);
    let clone = store.clone_snapshot(first, "clone").unwrap();
    fill(&store, clone, 5);
    assert_eq!((held(&store), free(&store)), (vec![0, 6, 2, 1], 91));
    // Clusters 1 to 5 belong to the second snapshot now, cluster 0 to the clone alone.
    store.delete(first).unwrap();
    assert_eq!((held(&store), free(&store)), (vec![0, 7, 2], 91));

    store.inflate(disk).unwrap();
    assert_eq!(held(&store), [10, 7, 2]);
    store.settle();
    assert_eq!(held(&store), [10, 7, 2]);
    store.delete(disk).unwrap();
    assert_eq!(free(&store), 91);
}

#[test]
fn an_inflated_volume_shares_nothing_when_it_is_done_also_after_a_restart() {
    let Some(lab) = StoreLab::xfs() else { return };
    let store = lab.open();
    let disk = store.create("disk", 80 << 20, true).unwrap();
    for cluster in 0..20 {
        fill(&store, disk, cluster);
    }
    let snapshot = store.snapshot(disk, "still", &quiet).unwrap();
    store.inflate(disk).unwrap();
    drop(store); // in the middle of it
    let store = lab.open();
    store.settle();
    assert!(!store.volume(disk).unwrap().inflating);
    for uuid in [disk, snapshot] {
        let (mut shared, mut bytes) = (0, 0);
        let file = std::fs::File::open(store.file(uuid)).unwrap();
        roadtrain_store::extents(&file, |extent| {
            shared += u64::from(extent.shared);
            bytes += extent.bytes;
        })
        .unwrap();
        assert_eq!((shared, bytes), (0, 80 << 20));
        assert_eq!(read(&store, uuid, 79 << 20), 1);
    }
}

/// Shared content is replaced by its own, after a restart as well; holes stay.
#[test]
fn a_decoupled_volume_stays_thin_and_shares_nothing_when_it_is_done() {
    let Some(lab) = StoreLab::xfs() else { return };
    let store = lab.open();
    let disk = store.create("disk", 400 << 20, true).unwrap();
    for cluster in 0..10 {
        fill(&store, disk, 2 * cluster);
    }
    assert!(matches!(store.decouple(disk), Err(VolumeError::Invalid(_))), "it has no snapshot");
    let snapshot = store.snapshot(disk, "still", &quiet).unwrap();
    assert!(matches!(store.decouple(snapshot), Err(VolumeError::ReadOnly(_))));
    assert_eq!(free(&store), 90);
    store.decouple(disk).unwrap();
    assert_eq!(free(&store), 80, "its space is kept at once");
    drop(store); // in the middle of it
    let store = lab.open();
    store.settle();
    let volume = store.volume(disk).unwrap();
    assert!(volume.thin && !volume.detaching && volume.parent.is_none());
    let (mut shared, mut bytes) = (0, 0);
    let file = std::fs::File::open(store.file(disk)).unwrap();
    roadtrain_store::extents(&file, |extent| {
        shared += u64::from(extent.shared);
        bytes += extent.bytes;
    })
    .unwrap();
    assert_eq!((shared, bytes, free(&store)), (0, 40 << 20, 80));
    assert_eq!([0, 4 << 20, 8 << 20].map(|at| read(&store, disk, at)), [1, 0, 1]);
}

/// Imports from a file on the same file system, with sharing if possible, on another file system, and into memory.
#[test]
fn a_volume_begins_as_a_file_that_is_no_volume() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("image");
    let image = std::fs::File::create(&path).unwrap();
    image.set_len((9 << 20) + 512).unwrap();
    image.write_all_at(&[7; 4096], 5 << 20).unwrap();
    image.write_all_at(&[8; 512], 9 << 20).unwrap();
    let labs = [Some(StoreLab::plain()), Some(StoreLab::quick()), StoreLab::xfs()];
    for lab in labs.into_iter().flatten() {
        let store = lab.open();
        let source = (path.as_path(), (9 << 20) + 512);
        let uuid = store.import("one", source, &quiet).unwrap();
        let volume = store.volume(uuid).unwrap();
        assert_eq!((volume.size, volume.thin, volume.parent), (12 << 20, true, None));
        assert_eq!([0, 5 << 20].map(|at| read(&store, uuid, at)), [0, 7]);
        let mut end = [0; 1024];
        std::fs::File::open(store.file(uuid)).unwrap().read_exact_at(&mut end, 9 << 20).unwrap();
        assert_eq!((end[511], end[512]), (8, 0));
        assert!(matches!(store.import("one", source, &quiet), Err(VolumeError::Taken(_))));
        let missing = store.import("two", (&directory.path().join("no"), 512), &quiet);
        assert!(matches!(missing, Err(VolumeError::Io { .. })));
        assert_eq!(store.list().len(), 1);
    }
    // A file system different from the image's.
    let store = VolumeStore::memory("vols", 400 << 20, 512).unwrap();
    let busy = store.import("busy", (&path, 9 << 20), &|| false).unwrap_err();
    assert!(matches!(busy, VolumeError::Busy(_)), "{busy}");
    assert!(store.list().is_empty());
}

/// XFS takes a second to release the extents of a removed file that has many.
#[test]
fn the_space_of_a_deleted_volume_is_free_at_once_and_counted_once() {
    let Some(lab) = StoreLab::xfs() else { return };
    let store = VolumeStore::open(&lab.folder, "vols", Some(8 << 30), 512).unwrap();
    let disk = store.create("disk", 480 << 20, true).unwrap();
    let empty = free(&store);
    let file = OpenOptions::new().write(true).open(store.file(disk)).unwrap();
    for block in 0..50_000 {
        file.write_all_at(&[1; BLOCK], 2 * block * BLOCK as u64).unwrap();
    }
    file.sync_all().unwrap();
    drop(file);
    assert!(free(&store) + 45 < empty, "the file system is the limit: {}", free(&store));
    store.delete(disk).unwrap();
    let mut seen = Vec::new();
    let end = Instant::now() + Duration::from_secs(2);
    while Instant::now() < end {
        seen.push(free(&store));
        std::thread::sleep(Duration::from_millis(1));
    }
    let (least, most) = (seen.iter().min().unwrap(), seen.iter().max().unwrap());
    assert!(least + 3 >= empty && *most <= empty + 3, "{least} to {most} of {empty}");
}

#[test]
fn what_moves_is_shared_but_not_copied() {
    let moves = || false;
    if let Some(lab) = StoreLab::xfs() {
        let store = lab.open();
        let disk = store.create("disk", 1, true).unwrap();
        store.snapshot(disk, "shared", &moves).unwrap();
    }
    let lab = StoreLab::quick();
    let store = lab.open();
    let disk = store.create("disk", 1, true).unwrap();
    write(&store, disk, 0, 1);
    let error = store.snapshot(disk, "copied", &moves).unwrap_err();
    assert!(matches!(error, VolumeError::Busy(_)), "{error}");
    assert_eq!((store.list().len(), error.errno()), (1, 16));
}

#[test]
fn a_host_that_comes_or_writes_while_content_is_copied_ends_the_copy() {
    let lab = StoreLab::plain();
    let store = lab.open();
    let disk = store.create("disk", 1, true).unwrap();
    write(&store, disk, 0, 1);
    let checks = AtomicU32::new(0);
    let comes = || checks.fetch_add(1, Ordering::Relaxed) == 0;
    assert!(matches!(store.snapshot(disk, "s", &comes), Err(VolumeError::Busy(_))));
    // A host connected, wrote and disconnected between the two checks.
    let checks = AtomicU32::new(0);
    let wrote = || {
        if checks.fetch_add(1, Ordering::Relaxed) == 1 {
            std::thread::sleep(std::time::Duration::from_millis(20));
            write(&store, disk, 0, 2);
        }
        true
    };
    assert!(matches!(store.snapshot(disk, "s", &wrote), Err(VolumeError::Busy(_))));
    assert_eq!((store.list().len(), lab.files()), (1, vec![disk]));
    store.snapshot(disk, "s", &quiet).unwrap();
}

#[test]
fn the_progress_of_a_copy_is_reported() {
    let lab = StoreLab::quick();
    let store = lab.open();
    let disk = store.create("disk", 40 << 20, true).unwrap();
    (0..5).for_each(|cluster| fill(&store, disk, 2 * cluster));
    let seen = std::sync::Mutex::new(Vec::new());
    let check_progress = || {
        seen.lock().unwrap().push(store.copies());
        true
    };
    store.snapshot(disk, "s", &check_progress).unwrap();
    let (copied, of) = (5 * CLUSTER, 5 * CLUSTER);
    let [begun, ended] = &seen.lock().unwrap()[..] else { panic!("{seen:?}") };
    assert_eq!(begun, &[("s".to_owned(), CopyProgress { copied: 0, of })]);
    assert_eq!(ended, &[("s".to_owned(), CopyProgress { copied, of })]);
    assert_eq!((ended[0].1.percent(), store.copies()), (100, vec![]), "it is there");
}

#[test]
fn a_copy_needs_space_for_what_it_has() {
    let lab = StoreLab::quick();
    let store = lab.open_sized(5 * CLUSTER);
    let disk = store.create("disk", 12 << 20, true).unwrap();
    for cluster in 0..3 {
        fill(&store, disk, cluster);
    }
    let error = store.snapshot(disk, "copy", &quiet).unwrap_err();
    assert!(matches!(error, VolumeError::NoSpace { needed: 3, free: 2 }), "{error}");
    assert_eq!((lab.files(), free(&store)), (vec![disk], 2));
}

/// Writes a whole cluster.
fn fill(store: &VolumeStore, uuid: Uuid, cluster: u64) {
    let file = OpenOptions::new().write(true).open(store.file(uuid)).unwrap();
    file.write_all_at(&vec![1; CLUSTER as usize], cluster * CLUSTER).unwrap();
    file.sync_all().unwrap();
}

fn held(store: &VolumeStore) -> Vec<u64> {
    store.volumes().iter().map(|volume| volume.clusters).collect()
}
