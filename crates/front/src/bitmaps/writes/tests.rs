use super::*;
use proptest::prelude::*;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::thread;

const GRANULARITY: u32 = 4096;
const BLOCKS: usize = 300;
const BYTES: u64 = BLOCKS as u64 * GRANULARITY as u64;
const IDENTITY: BitmapIdentity =
    BitmapIdentity { nguid: [7; 16], uuid: [0; 16], eui64: [0; 8], lba_bytes: 512 };

fn spec(file: Option<&Path>) -> BitmapSpec {
    let file = file.map(Path::to_owned);
    BitmapSpec { name: "b".into(), file, granularity_bytes: GRANULARITY }
}

fn open(file: Option<&Path>) -> Arc<DirtyBitmaps> {
    Arc::new(DirtyBitmaps::open(&[spec(file)], IDENTITY, BYTES).unwrap())
}

fn invalid(bitmaps: &DirtyBitmaps) -> Option<String> {
    bitmaps.views()[0].invalid.clone()
}

/// Returns the dirty state of each block.
fn dirty(bitmaps: &DirtyBitmaps) -> Vec<bool> {
    let (mut at, mut all) = (0, Vec::new());
    while at < BYTES {
        for (length, is_dirty) in bitmaps.extents(0, (at, (BYTES - at) as u32), 3) {
            all.extend(vec![is_dirty; (length / GRANULARITY) as usize]);
            at += u64::from(length);
        }
    }
    assert_eq!(all.len(), BLOCKS);
    all
}

fn block(at: usize) -> (u64, u32) {
    (at as u64 * u64::from(GRANULARITY), GRANULARITY)
}

/// Makes a full backup, after which the bitmap is valid and clean.
fn full(bitmaps: &DirtyBitmaps) {
    let backup = bitmaps.start("b", BYTES).unwrap();
    assert!(backup.full && dirty(bitmaps).iter().all(|is_dirty| *is_dirty));
    bitmaps.finish("b", backup.number).unwrap();
    assert!(invalid(bitmaps).is_none() && dirty(bitmaps).iter().all(|is_dirty| !is_dirty));
}

#[test]
fn a_new_bitmap_needs_a_full_backup() {
    let bitmaps = open(None);
    assert!(invalid(&bitmaps).unwrap().contains("new"));
    assert_eq!(bitmaps.views()[0].dirty_bytes, BYTES);
    full(&bitmaps);
    drop(bitmaps.begin(block(3).0 + 4095, 2));
    let found: Vec<usize> = (0..BLOCKS).filter(|at| dirty(&bitmaps)[*at]).collect();
    assert_eq!(found, [3, 4]);
    assert_eq!(bitmaps.views()[0].dirty_bytes, 2 * u64::from(GRANULARITY));
}

#[test]
fn changes_after_the_start_stay_dirty() {
    let bitmaps = open(None);
    full(&bitmaps);
    drop(bitmaps.begin(block(1).0, 1));
    let backup = bitmaps.start("b", BYTES).unwrap();
    assert!(!backup.full);
    drop(bitmaps.begin(block(2).0, 1));
    assert!(dirty(&bitmaps)[1] && dirty(&bitmaps)[2], "both are to be copied");
    bitmaps.finish("b", backup.number).unwrap();
    assert!(!dirty(&bitmaps)[1] && dirty(&bitmaps)[2]);
}

#[test]
fn a_backup_that_fails_loses_nothing_and_its_finish_counts_no_more() {
    let bitmaps = open(None);
    full(&bitmaps);
    drop(bitmaps.begin(block(1).0, 1));
    let first = bitmaps.start("b", BYTES).unwrap();
    drop(bitmaps.begin(block(2).0, 1));
    let second = bitmaps.start("b", BYTES).unwrap();
    assert!(dirty(&bitmaps)[1] && dirty(&bitmaps)[2]);
    assert!(bitmaps.finish("b", first.number).is_err());
    bitmaps.finish("b", second.number).unwrap();
    assert!(bitmaps.finish("b", second.number).is_err(), "once");
    assert!(!dirty(&bitmaps)[1] && !dirty(&bitmaps)[2]);
    assert_eq!(bitmaps.start("c", BYTES), Err(BitmapError::Unknown("c".into())));
}

#[test]
fn a_start_waits_for_writes_in_flight() {
    let bitmaps = open(None);
    full(&bitmaps);
    let write = bitmaps.begin(block(5).0, 1);
    let refusal = bitmaps.start_within("b", BYTES, Duration::ZERO).unwrap_err();
    assert!(refusal.to_string().contains("1 writes"), "{refusal}");
    assert!(bitmaps.start_within("b", BYTES, Duration::ZERO).is_err(), "still");
    // A write after the start that has failed is no reason to wait for it.
    let later = bitmaps.begin(block(6).0, 1);
    drop(write);
    let waiting = bitmaps.clone();
    let starting = thread::spawn(move || waiting.start("b", BYTES).unwrap());
    // It ends when this write does: the first of the epoch that is over now.
    while bitmaps.epoch.load(Ordering::SeqCst) < 3 {
        thread::yield_now();
    }
    drop(later);
    let backup = starting.join().unwrap();
    assert!(dirty(&bitmaps)[5] && dirty(&bitmaps)[6]);
    bitmaps.finish("b", backup.number).unwrap();
    assert!(!dirty(&bitmaps)[5] && !dirty(&bitmaps)[6]);
}

#[test]
fn what_happens_during_a_backup_can_make_it_worthless() {
    let bitmaps = open(None);
    full(&bitmaps);
    let backup = bitmaps.start("b", BYTES).unwrap();
    let write = bitmaps.begin(block(5).0, 1);
    write.may_come_late();
    drop(write);
    let refusal = bitmaps.finish("b", backup.number).unwrap_err().to_string();
    assert!(refusal.contains("may still execute it"), "{refusal}");
    full(&bitmaps);
    // Another size needs a full backup of that size.
    bitmaps.invalidate("resized");
    let backup = bitmaps.start("b", BYTES * 40).unwrap();
    assert!(backup.full);
    bitmaps.begin(BYTES * 39, 1);
    bitmaps.finish("b", backup.number).unwrap();
    assert_eq!(bitmaps.views()[0].bytes, BYTES * 40);
    assert_eq!(bitmaps.views()[0].dirty_bytes, u64::from(GRANULARITY), "beyond the first size");
}

#[test]
fn a_clean_end_keeps_changes_and_a_crash_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bitmap");
    let bitmaps = open(Some(&path));
    full(&bitmaps);
    drop(bitmaps.begin(block(7).0, 1));
    // A backup in progress is none after the end: its changes are dirty again.
    let backup = bitmaps.start("b", BYTES).unwrap();
    bitmaps.save();
    drop(bitmaps);
    let bitmaps = open(Some(&path));
    assert_eq!(invalid(&bitmaps), None);
    assert_eq!(dirty(&bitmaps).iter().filter(|is_dirty| **is_dirty).count(), 1);
    assert!(dirty(&bitmaps)[7] && bitmaps.finish("b", backup.number).is_err());
    drop(bitmaps);
    let bitmaps = open(Some(&path));
    assert!(invalid(&bitmaps).unwrap().contains("not ended cleanly"));
    full(&bitmaps);
    let unfinished = bitmaps.begin(block(7).0, 1);
    bitmaps.save();
    assert!(invalid(&bitmaps).unwrap().contains("had not ended"), "a write that hangs");
    drop(unfinished);
}

#[test]
fn unfit_specs_are_refused() {
    let refused = |change: &dyn Fn(&mut BitmapSpec)| {
        let mut spec = spec(None);
        change(&mut spec);
        DirtyBitmaps::open(&[spec], IDENTITY, BYTES).unwrap_err().to_string()
    };
    assert!(refused(&|spec| spec.name = "a:b".into()).contains("letters"));
    assert!(refused(&|spec| spec.name = String::new()).contains("letters"));
    assert!(refused(&|spec| spec.granularity_bytes = 2048).contains("4KiB"));
    assert!(refused(&|spec| spec.granularity_bytes = 5000).contains("power of two"));
    assert!(refused(&|spec| spec.file = Some("/nonexistent/b".into())).contains("/nonexistent/b"));
    assert!(DirtyBitmaps::open(&[spec(None), spec(None)], IDENTITY, BYTES).is_err());
    assert!(DirtyBitmaps::open(&[spec(None)], IDENTITY, 1 << 62).is_err(), "too much memory");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bitmap");
    let nameless = BitmapIdentity { lba_bytes: 512, ..BitmapIdentity::default() };
    let bitmaps = DirtyBitmaps::open(&[spec(Some(&path))], nameless, BYTES).unwrap();
    assert!(invalid(&bitmaps).unwrap().contains("no identifier"));
}

/// A step of the model.
#[derive(Clone, Debug)]
enum Step {
    Begin(usize),
    Land(usize),
    End(usize),
    Start,
    Copy(usize),
    Finish,
    Reopen,
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    let block = || 0..8usize;
    prop_oneof![
        4 => block().prop_map(Step::Begin),
        3 => block().prop_map(Step::Land),
        3 => block().prop_map(Step::End),
        3 => Just(Step::Start),
        4 => block().prop_map(Step::Copy),
        3 => Just(Step::Finish),
        1 => Just(Step::Reopen),
        1 => Just(Step::Crash),
    ]
}

/// A disk, its backup, and what happens to both.
struct Model {
    bitmaps: Arc<DirtyBitmaps>,
    path: PathBuf,
    disk: [u32; 8],
    backup: [u32; 8],
    /// Writes in flight: block, and true once its data is on the disk.
    writes: Vec<(usize, bool, TrackedWrite)>,
    /// Number of the backup in progress, and the blocks that it has not copied yet.
    started: Option<(u64, Vec<usize>)>,
    count: u32,
}

impl Model {
    fn end(&mut self, block: usize) {
        if let Some(at) = self.writes.iter().position(|(of, ..)| *of == block) {
            self.land(block);
            self.writes.remove(at);
        }
    }

    fn land(&mut self, block: usize) {
        if let Some((_, has_landed, _)) = self.writes.iter_mut().find(|(of, ..)| *of == block)
            && !std::mem::replace(has_landed, true)
        {
            self.count += 1;
            self.disk[block] = self.count;
        }
    }

    fn end_all(&mut self) {
        while let Some((block, ..)) = self.writes.first() {
            let block = *block;
            self.end(block);
        }
    }

    fn start(&mut self) -> bool {
        let Ok(backup) = self.bitmaps.start_within("b", BYTES, Duration::ZERO) else {
            self.started = None;
            return false;
        };
        let dirty = dirty(&self.bitmaps);
        self.started = Some((backup.number, (0..8).filter(|&block| dirty[block]).collect()));
        true
    }

    fn copy(&mut self, block: usize) {
        if let Some((_, left)) = &mut self.started
            && let Some(at) = left.iter().position(|other| *other == block)
        {
            left.remove(at);
            self.backup[block] = self.disk[block];
        }
    }

    fn finish(&mut self) {
        if let Some((number, left)) = self.started.take() {
            for block in left {
                self.backup[block] = self.disk[block];
            }
            self.bitmaps.finish("b", number).unwrap();
        }
    }

    fn run(&mut self, step: &Step) {
        match *step {
            Step::Begin(block) => {
                if self.writes.iter().all(|(of, ..)| *of != block) {
                    let offset = block as u64 * u64::from(GRANULARITY);
                    self.writes.push((block, false, self.bitmaps.begin(offset, 512)));
                }
            }
            Step::Land(block) => self.land(block),
            Step::End(block) => self.end(block),
            Step::Start => _ = self.start(),
            Step::Copy(block) => self.copy(block),
            Step::Finish => self.finish(),
            Step::Reopen | Step::Crash => {
                self.end_all();
                if matches!(step, Step::Reopen) {
                    self.bitmaps.save();
                }
                self.bitmaps = open(None); // closes the file
                self.bitmaps = open(Some(&self.path));
                // The client that copies has a number that is not known any more.
                self.started = None;
            }
        }
    }

    /// Checks that no change is lost: what differs is dirty.
    fn check(&self) {
        let dirty = dirty(&self.bitmaps);
        for (block, is_dirty) in dirty.into_iter().enumerate().take(8) {
            let is_lost = self.backup[block] != self.disk[block] && !is_dirty;
            assert!(!is_lost, "block {block} differs and is clean");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn no_change_is_ever_lost(steps in prop::collection::vec(step(), 1..80)) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bitmap");
        let mut model = Model {
            bitmaps: open(Some(&path)), path, disk: [0; 8], backup: [u32::MAX; 8],
            writes: Vec::new(), started: None, count: 0,
        };
        for step in &steps {
            model.run(step);
            model.check();
        }
        model.end_all();
        prop_assert!(model.start());
        model.finish();
        prop_assert_eq!(model.disk, model.backup);
    }
}

/// Several threads write while backups are made.
#[test]
fn threads_lose_nothing() {
    let bitmaps = open(None);
    let disk: Arc<Vec<AtomicU64>> = Arc::new((0..BLOCKS).map(|_| AtomicU64::new(0)).collect());
    let is_over = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (1..4usize)
        .map(|writer| {
            let (bitmaps, disk, is_over) = (bitmaps.clone(), disk.clone(), is_over.clone());
            thread::spawn(move || {
                let mut at = writer * 71;
                while !is_over.load(Ordering::Relaxed) {
                    at = (at * 31 + 17) % BLOCKS;
                    let write = bitmaps.begin(block(at).0, 4096);
                    disk[at].fetch_add(1, Ordering::SeqCst);
                    drop(write);
                }
            })
        })
        .collect();
    let mut backup = vec![u64::MAX; BLOCKS];
    let mut increment = |bitmaps: &DirtyBitmaps| {
        let started = bitmaps.start("b", BYTES).unwrap();
        for (at, _) in dirty(bitmaps).into_iter().enumerate().filter(|(_, is_dirty)| *is_dirty) {
            backup[at] = disk[at].load(Ordering::SeqCst);
        }
        bitmaps.finish("b", started.number).unwrap();
    };
    (0..200).for_each(|_| increment(&bitmaps));
    is_over.store(true, Ordering::Relaxed);
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    increment(&bitmaps);
    let written: Vec<u64> = disk.iter().map(|block| block.load(Ordering::SeqCst)).collect();
    assert_eq!(backup, written);
    assert!(written.iter().any(|count| *count > 0));
}
