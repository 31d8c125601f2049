//! Stores on file systems with and without shared extents, and in memory.

mod differences;
mod faults;
mod model;
mod sharing;
mod together;

use super::{CLUSTER_BYTES, CopyProgress, Uuid, VolumeError, VolumeStore};
use roadtrain_target_engine::marks_file_of;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

const CLUSTER: u64 = CLUSTER_BYTES;
const BLOCK: usize = 4096;

/// A folder for a store, on a file system of a given kind.
pub(super) struct StoreLab {
    pub(super) folder: PathBuf,
    /// Mount point of a file system made for the test.
    mounted: Option<PathBuf>,
    _directory: TempDir,
}

impl StoreLab {
    /// Uses the folder for temporary files: mostly ext4, which shares nothing.
    pub(super) fn plain() -> StoreLab {
        let directory = tempfile::tempdir().unwrap();
        let folder = directory.path().join("store");
        StoreLab { folder, mounted: None, _directory: directory }
    }

    /// Uses a file system in memory, where syncs are free.
    pub(super) fn quick() -> StoreLab {
        let shm = tempfile::tempdir_in("/dev/shm");
        let directory = shm.unwrap_or_else(|_| tempfile::tempdir().unwrap());
        let folder = directory.path().join("store");
        StoreLab { folder, mounted: None, _directory: directory }
    }

    /// Makes an XFS, which shares extents; `None`, with a message, if the machine cannot.
    pub(super) fn xfs() -> Option<StoreLab> {
        let directory = tempfile::tempdir().unwrap();
        let (image, mounted) = (directory.path().join("xfs.img"), directory.path().join("xfs"));
        std::fs::create_dir(&mounted).unwrap();
        std::fs::File::create(&image).unwrap().set_len(600 << 20).unwrap();
        let run = |program: &str, args: &[&str], paths: &[&Path]| {
            let output = Command::new(program).args(args).args(paths).output();
            let failed = |why: String| format!("{program} does not work here: {}", why.trim());
            match output {
                Ok(output) if output.status.success() => Ok(()),
                Ok(output) => Err(failed(String::from_utf8_lossy(&output.stderr).into())),
                Err(error) => Err(failed(error.to_string())),
            }
        };
        let made = run("mkfs.xfs", &["-q", "-m", "reflink=1"], &[&image])
            .and_then(|()| run("mount", &["-o", "loop"], &[&image, &mounted]));
        if let Err(why) = made {
            crate::skipped::skipped(why);
            return None;
        }
        let folder = mounted.join("store");
        Some(StoreLab { folder, mounted: Some(mounted), _directory: directory })
    }

    pub(super) fn open(&self) -> VolumeStore {
        self.open_sized(400 << 20)
    }

    pub(super) fn open_sized(&self, size: u64) -> VolumeStore {
        VolumeStore::open(&self.folder, "vols", Some(size), 512).unwrap()
    }

    /// Returns the names of the volumes' files.
    pub(super) fn files(&self) -> Vec<Uuid> {
        let entries = std::fs::read_dir(&self.folder).unwrap();
        let mut found: Vec<Uuid> = entries
            .filter_map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().ok())
            .collect();
        found.sort_unstable();
        found
    }
}

impl Drop for StoreLab {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
        if let Some(mounted) = &self.mounted {
            let _ = Command::new("umount").arg(mounted).status();
        }
    }
}

/// Writes and syncs a block of `value`, as a host does.
pub(super) fn write(store: &VolumeStore, uuid: Uuid, at: u64, value: u8) {
    let file = OpenOptions::new().write(true).open(store.file(uuid)).unwrap();
    file.write_all_at(&[value; BLOCK], at).unwrap();
    file.sync_data().unwrap();
}

pub(super) fn read(store: &VolumeStore, uuid: Uuid, at: u64) -> u8 {
    let mut block = [0; BLOCK];
    let file = std::fs::File::open(store.file(uuid)).unwrap();
    file.read_exact_at(&mut block, at).unwrap();
    assert!(block.iter().all(|byte| *byte == block[0]), "a block that was not written as one");
    block[0]
}

/// Check for a source without writers.
pub(super) fn quiet() -> bool {
    true
}

pub(super) fn free(store: &VolumeStore) -> u64 {
    store.info().unwrap().free_clusters
}

/// Runs a test on all kinds of file systems that this machine has.
fn everywhere(test: impl Fn(&VolumeStore)) {
    test(&StoreLab::plain().open());
    test(&StoreLab::quick().open());
    test(&VolumeStore::memory("vols", 400 << 20, 512).unwrap());
    if let Some(lab) = StoreLab::xfs() {
        let store = lab.open();
        test(&store);
    }
}

#[test]
fn a_thick_volume_counts_whole_and_a_thin_one_what_was_written() {
    everywhere(|store| {
        assert_eq!(free(store), 100);
        let thick = store.create("thick", 5 << 20, false).unwrap();
        assert_eq!((free(store), store.volume(thick).unwrap().size), (98, 8 << 20));
        let thin = store.create("thin", 1 << 40, true).unwrap();
        assert_eq!(free(store), 98);
        write(store, thin, (1 << 39) + 8192, 7);
        assert_eq!(free(store), 97);
        assert_eq!((read(store, thin, (1 << 39) + 8192), read(store, thin, 0)), (7, 0));
        assert_eq!(read(store, thick, CLUSTER), 0);
        let error = store.create("much", 98 * CLUSTER, false).unwrap_err();
        assert!(matches!(error, VolumeError::NoSpace { needed: 98, free: 97 }), "{error}");
        store.delete(thick).unwrap();
        store.delete(thin).unwrap();
        assert_eq!(free(store), 100);
    });
}

#[test]
fn snapshots_and_clones_go_ways_of_their_own() {
    everywhere(|store| {
        let disk = store.create("disk", 8 << 20, false).unwrap();
        write(store, disk, 0, 1);
        write(store, disk, CLUSTER, 2);
        let snapshot = store.snapshot(disk, "before", &quiet).unwrap();
        write(store, disk, 0, 3);
        let clone = store.clone_snapshot(snapshot, "other").unwrap();
        write(store, clone, CLUSTER, 4);
        let seen = |uuid| (read(store, uuid, 0), read(store, uuid, CLUSTER));
        assert_eq!((seen(disk), seen(snapshot), seen(clone)), ((3, 2), (1, 2), (1, 4)));
        let volumes = store.volumes();
        let names: Vec<&str> = volumes.iter().map(|v| v.volume.name.as_str()).collect();
        assert_eq!(names, ["disk", "before", "other"]);
        assert_eq!(volumes[1].clones, ["disk", "other"]);
        assert_eq!(volumes[0].parent.as_deref(), Some("before"));
        assert!(volumes[1].volume.snapshot && volumes[0].volume.thin);

        store.delete(snapshot).unwrap();
        assert_eq!((seen(disk), seen(clone)), ((3, 2), (1, 4)));
        assert_eq!(store.volumes()[0].parent, None);
        store.inflate(disk).unwrap();
        store.inflate(clone).unwrap();
        assert_eq!(free(store), 96);
        store.settle();
        assert_eq!((seen(disk), seen(clone)), ((3, 2), (1, 4)));
        assert!(store.list().iter().all(|volume| !volume.inflating && !volume.thin));
        assert_eq!(free(store), 96);
    });
}

/// Snapshots and clones keep the marks of unreadable blocks.
#[test]
fn marks_go_along_with_snapshots_and_clones() {
    let lab = StoreLab::quick();
    let store = lab.open();
    let volume = store.create("disk", CLUSTER, true).unwrap();
    let marks = |uuid| std::fs::read(marks_file_of(&store.file(uuid))).ok();
    let plain = store.snapshot(volume, "plain", &|| true).unwrap();
    assert_eq!(marks(plain), None);
    std::fs::write(marks_file_of(&store.file(volume)), "marks").unwrap();
    let snapshot = store.snapshot(volume, "then", &|| true).unwrap();
    std::fs::write(marks_file_of(&store.file(volume)), "others").unwrap();
    let clone = store.clone_snapshot(snapshot, "clone").unwrap();
    assert_eq!([snapshot, clone].map(marks), [(); 2].map(|()| Some(b"marks".to_vec())));
    store.delete(clone).unwrap();
    store.settle();
    assert_eq!(marks(clone), None, "they go with the volume");
    // Marks that a killed process has left.
    let stray = marks_file_of(&store.file(Uuid::random().unwrap()));
    std::fs::write(&stray, "marks").unwrap();
    let kept = marks_file_of(&store.file(volume));
    drop(store);
    drop(lab.open());
    assert!(!stray.exists() && kept.exists());
}

#[test]
fn sizes_grow_only() {
    everywhere(|store| {
        let thick = store.create("thick", 4 << 20, false).unwrap();
        let thin = store.create("thin", 4 << 20, true).unwrap();
        write(store, thick, 0, 9);
        assert_eq!(store.resize(thick, (8 << 20) + 1).unwrap(), 12 << 20);
        assert_eq!(store.resize(thin, 1 << 33).unwrap(), 1 << 33);
        assert_eq!(free(store), 97);
        assert_eq!((read(store, thick, 0), read(store, thick, 8 << 20)), (9, 0));
        assert_eq!(read(store, thin, (1 << 33) - 4096), 0);
        assert!(matches!(store.resize(thick, 4 << 20), Err(VolumeError::Invalid(_))));
        assert!(matches!(store.resize(thick, 1 << 33), Err(VolumeError::NoSpace { .. })));
        let snapshot = store.snapshot(thick, "still", &quiet).unwrap();
        assert!(matches!(store.resize(snapshot, 1 << 33), Err(VolumeError::ReadOnly(_))));
        assert!(matches!(store.inflate(snapshot), Err(VolumeError::ReadOnly(_))));
    });
}

#[test]
fn names_are_unique_and_plain() {
    let store = VolumeStore::memory("vols", 400 << 20, 512).unwrap();
    let one = store.create("one", 1, true).unwrap();
    let two = store.create("two", 1, true).unwrap();
    assert!(matches!(store.create("one", 1, true), Err(VolumeError::Taken(_))));
    assert!(matches!(store.rename(two, "one"), Err(VolumeError::Taken(_))));
    store.rename(one, "first").unwrap();
    store.rename(two, "one").unwrap();
    let long = "n".repeat(64);
    for name in ["", "a/b", "a\nb", long.as_str()] {
        assert!(matches!(store.create(name, 1, true), Err(VolumeError::Invalid(_))), "{name:?}");
    }
    store.create(&long[1..], 1, true).unwrap();
    for bytes in [0, u64::MAX, i64::MAX as u64] {
        assert!(matches!(store.create("odd", bytes, true), Err(VolumeError::Invalid(_))));
    }
    assert!(matches!(store.delete(Uuid([0; 16])), Err(VolumeError::NotFound(_))));
    assert!(matches!(store.clone_snapshot(one, "c"), Err(VolumeError::Invalid(_))));
    let snapshot = store.snapshot(one, "s", &quiet).unwrap();
    assert!(matches!(store.snapshot(snapshot, "t", &quiet), Err(VolumeError::Invalid(_))));
}

#[test]
fn a_folder_is_one_target_s_and_one_store_s() {
    let lab = StoreLab::plain();
    let store = lab.open();
    let uuid = store.create("kept", 1, true).unwrap();
    let identity = store.identity();
    let failed =
        |name: &str| VolumeStore::open(&lab.folder, name, None, 512).err().unwrap().to_string();
    assert!(failed("vols").contains("another target has that store"));
    drop(store);
    assert!(failed("other").contains("has the store vols, not other"));

    let store = lab.open_sized(40 << 20);
    assert_eq!((store.identity(), store.info().unwrap().total_clusters), (identity, 10));
    assert_eq!(store.list()[0].uuid, uuid);
    drop(store);
    std::fs::remove_file(lab.folder.join("store.json")).unwrap();
    assert!(failed("vols").contains("has files of volumes and no store.json"));
    std::fs::write(lab.folder.join("store.json"), "{").unwrap();
    assert!(failed("vols").contains("damaged"));
}

#[test]
fn a_store_takes_another_name_and_what_its_file_system_has() {
    let lab = StoreLab::plain();
    let store = lab.open_sized(40 << 20);
    let growable = store.info().unwrap().growable_clusters;
    assert!(growable > 10);
    store.grow().unwrap();
    let info = store.info().unwrap();
    assert!(info.total_clusters > 10 && info.total_clusters <= growable + 100);
    for name in ["", "a/b"] {
        assert!(matches!(store.rename_store(name), Err(VolumeError::Invalid(_))));
    }
    store.rename_store("other").unwrap();
    drop(store);
    assert!(VolumeStore::open(&lab.folder, "vols", None, 512).is_err());
    let store = VolumeStore::reopen(&lab.folder, "vols", 512).unwrap();
    assert_eq!(store.identity().0, "other");
    assert_eq!(store.info().unwrap().total_clusters, info.total_clusters);
    let memory = VolumeStore::memory("memory", 40 << 20, 512).unwrap();
    memory.grow().unwrap();
    assert_eq!(memory.info().unwrap().total_clusters, 10, "memory does not grow");
}

#[test]
fn a_read_only_volume_stays_so_and_can_be_cloned() {
    let lab = StoreLab::plain();
    let store = lab.open();
    let disk = store.create("disk", 1, false).unwrap();
    write(&store, disk, 0, 5);
    assert!(store.clone_snapshot(disk, "early").is_err());
    [(); 2].iter().for_each(|()| store.set_read_only(disk).unwrap());
    assert!(matches!(store.resize(disk, 8 << 20), Err(VolumeError::ReadOnly(_))));
    let clone = store.clone_snapshot(disk, "clone").unwrap();
    drop(store);
    let store = lab.open();
    assert!(store.volume(disk).unwrap().is_read_only());
    assert_eq!((read(&store, clone, 0), store.volume(clone).unwrap().read_only), (5, false));
    assert_eq!(store.volumes()[1].parent.as_deref(), Some("disk"));
}

#[test]
fn a_store_goes_with_its_volumes_and_the_folder_stays() {
    let lab = StoreLab::plain();
    let store = lab.open();
    let uuid = store.create("one", 1, false).unwrap();
    std::fs::write(lab.folder.join("notes"), "mine").unwrap();
    store.destroy().unwrap();
    assert!(matches!(store.create("two", 1, true), Err(VolumeError::NotFound(_))));
    assert!(matches!(store.delete(uuid), Err(VolumeError::NotFound(_))));
    drop(store);
    let left: Vec<_> =
        std::fs::read_dir(&lab.folder).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["notes"]);
}
