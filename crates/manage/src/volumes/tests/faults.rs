//! Ends the process at each step of each operation, or fails the step. Finished operations persist, others are done or
//! not done as a whole, and no file is left over.

use super::*;
use crate::volumes::step_hook::{StoreFileStep, StoreStepHook};
use std::io;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

/// Visible properties of volumes, with a byte of their content.
type VolumesView = Vec<(String, u64, bool, bool, Option<String>, u8)>;
type ScriptedOperation = fn(&VolumeStore) -> Result<(), VolumeError>;

/// Operations of all kinds, each of which builds on the previous ones.
const SCRIPT: &[ScriptedOperation] = &[
    |store| store.create("thick", 8 << 20, false).map(|uuid| write(store, uuid, 0, 1)),
    |store| store.create("thin", 1 << 30, true).map(|uuid| write(store, uuid, 0, 2)),
    |store| store.snapshot(named(store, "thick"), "snap", &quiet).map(drop),
    |store| store.clone_snapshot(named(store, "snap"), "clone").map(drop),
    |store| store.decouple(named(store, "clone")),
    |store| store.resize(named(store, "thin"), 2 << 30).map(drop),
    |store| store.import("copy", (&store.file(named(store, "thin")), 4096), &quiet).map(drop),
    |store| store.set_read_only(named(store, "copy")),
    |store| store.inflate(named(store, "thick")),
    |store| store.resize(named(store, "thick"), 16 << 20).map(drop),
    |store| store.rename(named(store, "clone"), "second"),
    |store| store.inflate(named(store, "second")),
    |store| store.delete(named(store, "snap")),
    |store| store.delete(named(store, "thick")),
];

fn named(store: &VolumeStore, name: &str) -> Uuid {
    store.list().iter().find(|volume| volume.name == name).unwrap().uuid
}

fn view(store: &VolumeStore) -> VolumesView {
    let see = |info: crate::volumes::VolumeInfo| {
        let volume = info.volume;
        let content = read(store, volume.uuid, 0);
        (volume.name, volume.size, volume.thin, volume.snapshot, info.parent, content)
    };
    store.volumes().into_iter().map(see).collect()
}

/// Lets `left` steps run. Then every step fails, or only the next one.
struct StepFault {
    left: AtomicI64,
    once: bool,
}

impl StoreStepHook for Arc<StepFault> {
    fn pass(&self, _: StoreFileStep) -> io::Result<()> {
        let left = self.left.fetch_sub(1, Ordering::Relaxed);
        let is_done = if self.once { left != 0 } else { left > 0 };
        if is_done { Ok(()) } else { Err(io::Error::from_raw_os_error(5)) }
    }
}

fn open_with(
    lab: &StoreLab,
    step_hook: impl StoreStepHook + 'static,
) -> Result<VolumeStore, VolumeError> {
    VolumeStore::open_with(&lab.folder, "vols", (Some(400 << 20), 512), Box::new(step_hook))
}

/// Checks that disk and memory of a reopened store agree, and returns its volumes.
fn check(lab: &StoreLab) -> VolumesView {
    let store = lab.open();
    store.settle();
    let mut known: Vec<Uuid> = store.list().iter().map(|volume| volume.uuid).collect();
    known.sort_unstable();
    assert_eq!(known, lab.files());
    assert!(!lab.folder.join("store.json.new").exists());
    for volume in store.list() {
        let length = std::fs::metadata(store.file(volume.uuid)).unwrap().len();
        assert_eq!(length, volume.size, "{}", volume.name);
        assert!(!volume.inflating, "{}", volume.name);
    }
    view(&store)
}

/// Leaves out the content of new volumes, which is written after the operation and may be missing.
fn forget_content(view: &VolumesView) -> Vec<(&String, u64, bool, bool, &Option<String>)> {
    view.iter()
        .map(|(name, size, thin, snapshot, parent, _)| (name, *size, *thin, *snapshot, parent))
        .collect()
}

fn ended_at_each_step(make: &dyn Fn() -> Option<StoreLab>) {
    for steps in 0.. {
        let Some(lab) = make() else { return };
        let fault = Arc::new(StepFault { left: AtomicI64::new(steps), once: false });
        let Ok(store) = open_with(&lab, fault) else {
            assert!(check(&lab).is_empty());
            continue;
        };
        let mut answered = view(&store);
        let mut ended = None;
        for (number, operation) in SCRIPT.iter().enumerate() {
            let result = operation(&store);
            store.settle();
            if result.is_err() {
                ended = Some(number);
                break;
            }
            answered = view(&store);
        }
        drop(store);
        let found = check(&lab);
        let Some(number) = ended else {
            assert_eq!(found, answered);
            return;
        };
        if found != answered {
            // The operation was done, but returned an error: the result is the same as without the fault.
            let reference = after(number + 1);
            assert_eq!(
                forget_content(&found),
                forget_content(&reference),
                "step {steps}, {number}"
            );
        }
        // The store is usable in any case.
        let store = lab.open();
        store.create("afterwards", 4 << 20, false).unwrap();
    }
}

/// Returns the volumes after `operations` operations without a fault.
fn after(operations: usize) -> VolumesView {
    let lab = StoreLab::quick();
    let store = lab.open();
    for operation in &SCRIPT[..operations] {
        operation(&store).unwrap();
        store.settle();
    }
    view(&store)
}

#[test]
fn a_process_that_ends_at_any_step_leaves_nothing_half() {
    ended_at_each_step(&|| Some(StoreLab::quick()));
}

/// One file system for all steps: making one for each takes long.
#[test]
fn a_process_that_ends_at_any_step_leaves_nothing_half_where_extents_are_shared() {
    let Some(xfs) = StoreLab::xfs() else { return };
    let number = AtomicI64::new(0);
    ended_at_each_step(&|| {
        let folder = xfs.folder.join(number.fetch_add(1, Ordering::Relaxed).to_string());
        Some(StoreLab { folder, mounted: None, _directory: tempfile::tempdir().unwrap() })
    });
}

#[test]
fn a_step_that_fails_undoes_its_operation_which_works_when_it_is_tried_again() {
    for steps in 0.. {
        let lab = StoreLab::quick();
        let fault = Arc::new(StepFault { left: AtomicI64::new(steps), once: true });
        let Ok(store) = open_with(&lab, fault.clone()) else { continue };
        let mut failures = 0;
        for operation in SCRIPT {
            let before = view(&store);
            if operation(&store).is_err() {
                failures += 1;
                assert_eq!(view(&store), before);
                operation(&store).unwrap();
            }
            store.settle();
        }
        let expected = view(&store);
        drop(store);
        assert_eq!(check(&lab), expected);
        if fault.left.load(Ordering::Relaxed) >= 0 {
            assert_eq!(failures, 0);
            return;
        }
    }
}

/// Gate that records the steps.
#[derive(Default)]
struct Notes(Mutex<Vec<StoreFileStep>>);

impl StoreStepHook for Arc<Notes> {
    fn pass(&self, step: StoreFileStep) -> io::Result<()> {
        self.0.lock().unwrap().push(step);
        Ok(())
    }
}

/// A power cut loses what was not synced. A killed process does not show that, so the test checks the order of syncs.
#[test]
fn a_file_is_stable_before_the_index_has_it_and_the_index_before_a_file_goes() {
    use StoreFileStep::{
        Allocate, Copy, Create, Remove, Rename, Share, Size, SyncFile, SyncFolder, Write,
    };
    let lab = StoreLab::plain();
    let notes = Arc::new(Notes::default());
    let store = open_with(&lab, notes.clone()).unwrap();
    let taken = || {
        store.settle();
        std::mem::take(&mut *notes.0.lock().unwrap())
    };
    assert_eq!(taken(), [Write, Rename, SyncFolder]);
    let disk = store.create("disk", 1, false).unwrap();
    assert_eq!(taken(), [Create, Allocate, SyncFile, SyncFolder, Write, Rename, SyncFolder]);
    write(&store, disk, 0, 1);
    store.snapshot(disk, "snap", &quiet).unwrap();
    let steps = taken();
    assert!(steps.starts_with(&[Create, Size, Share, SyncFile, SyncFolder]), "{steps:?}");
    if steps.contains(&Copy) {
        assert!(steps.ends_with(&[Copy, SyncFile, Write, Rename, SyncFolder]), "{steps:?}");
    }
    store.resize(disk, 8 << 20).unwrap();
    assert_eq!(taken(), [Size, SyncFile, Write, Rename, SyncFolder]);
    store.delete(disk).unwrap();
    assert_eq!(taken(), [Write, Rename, SyncFolder, Remove]);
}

/// Gate of a full file system, until the reserved file is removed.
struct FullFileSystem(PathBuf);

impl StoreStepHook for Arc<Mutex<Option<FullFileSystem>>> {
    fn pass(&self, step: StoreFileStep) -> io::Result<()> {
        let is_full = self.lock().unwrap().as_ref().is_some_and(|full| full.0.exists());
        match is_full && step == StoreFileStep::Write {
            true => Err(io::ErrorKind::StorageFull.into()),
            false => Ok(()),
        }
    }
}

#[test]
fn volumes_can_be_deleted_on_a_full_file_system() {
    let lab = StoreLab::plain();
    let full = Arc::new(Mutex::new(None));
    let store = open_with(&lab, full.clone()).unwrap();
    let [first, second] = ["a", "b"].map(|name| store.create(name, 4 << 20, true).unwrap());
    let spare = lab.folder.join("store.json.spare");
    assert!(spare.exists());
    *full.lock().unwrap() = Some(FullFileSystem(spare.clone()));
    store.delete(first).unwrap();
    assert!(spare.exists(), "for the next one");
    store.delete(second).unwrap();
    drop(store);
    assert_eq!(check(&lab), []);
}
