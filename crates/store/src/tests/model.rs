//! Random operations on a store and on a plain vector leave the same bytes.

use crate::cases::cases;
use proptest::prelude::*;

use super::*;

const SIZE: u64 = 256 * KIB;

#[derive(Clone, Debug)]
enum ModelStep {
    Write { at: u64, len: u64, byte: u8, fua: bool },
    Discard(Vec<(u64, u64)>),
    Zero { at: u64, len: u64, deallocate: bool },
    Read { at: u64, len: u64 },
    Compare { at: u64, len: u64 },
    Flush,
}

/// A range in bytes, whole blocks.
fn range(lba: u64) -> impl Strategy<Value = (u64, u64)> {
    (0..SIZE / lba).prop_flat_map(move |at| {
        let room = SIZE / lba - at;
        let len = prop_oneof![1..=room.min(8), 1..=room];
        (Just(at * lba), len.prop_map(move |len| len * lba))
    })
}

fn step(lba: u64) -> impl Strategy<Value = ModelStep> {
    prop_oneof![
        4 => (range(lba), 1_u8.., any::<bool>())
            .prop_map(|((at, len), byte, fua)| ModelStep::Write { at, len, byte, fua }),
        2 => proptest::collection::vec(range(lba), 1..5).prop_map(ModelStep::Discard),
        2 => (range(lba), any::<bool>())
            .prop_map(|((at, len), deallocate)| ModelStep::Zero { at, len, deallocate }),
        2 => range(lba).prop_map(|(at, len)| ModelStep::Read { at, len }),
        1 => range(lba).prop_map(|(at, len)| ModelStep::Compare { at, len }),
        1 => Just(ModelStep::Flush),
    ]
}

fn apply(harness: &mut RingHarness, store: &dyn Store, model: &mut [u8], step: ModelStep) {
    let slice = |at: u64, len: u64| at as usize..(at + len) as usize;
    match step {
        ModelStep::Write { at: offset, len, byte, fua } => {
            let buffer = filled(len, byte);
            harness.run(store, (StoreOperation::Write { offset, fua }, Some(buffer))).0.unwrap();
            model[slice(offset, len)].fill(byte);
        }
        ModelStep::Discard(ranges) => {
            harness.discard(store, &ranges).unwrap();
            ranges.iter().for_each(|&(at, len)| model[slice(at, len)].fill(0));
        }
        ModelStep::Zero { at: offset, len, deallocate } => {
            let range = ByteRange { offset, len };
            harness
                .run(store, (StoreOperation::WriteZeroes { range, deallocate }, None))
                .0
                .unwrap();
            model[slice(offset, len)].fill(0);
        }
        ModelStep::Read { at, len } => {
            assert!(harness.read(store, at, len).unwrap() == model[slice(at, len)]);
        }
        ModelStep::Compare { at, len } => {
            let mut same = Buffer::alloc(len as usize);
            same.copy_from_slice(&model[slice(at, len)]);
            harness.compare(store, at, same).unwrap();
        }
        ModelStep::Flush => harness.flush(store).unwrap(),
    }
}

fn check(spec: &StoreSpec, steps: Vec<ModelStep>) {
    let mut harness = RingHarness::new();
    let store = open(spec).unwrap();
    let mut model = vec![0; SIZE as usize];
    for step in steps {
        apply(&mut harness, &*store, &mut model, step);
    }
    assert!(harness.read(&*store, 0, SIZE).unwrap() == model);
    assert_eq!(store.plan(None).unwrap().to, SIZE, "the size stays");
    drop(store);
    if let StoreKind::File { path, .. } = &spec.kind {
        assert!(std::fs::read(path).unwrap() == model, "another reader sees the same");
    }
}

fn check_file_in(base: &Path, lba: u32, steps: Vec<ModelStep>) {
    let dir = tempfile::tempdir_in(base).unwrap();
    check(&file(dir.path().join("disk"), Some(SIZE), lba), steps);
}

fn steps(lba: u64) -> impl Strategy<Value = Vec<ModelStep>> {
    proptest::collection::vec(step(lba), 1..40)
}

/// Returns a memory-backed folder, if there is one.
fn tmpfs() -> Option<&'static Path> {
    let path = Path::new("/dev/shm");
    let usable = tempfile::tempdir_in(path).is_ok();
    if !usable {
        skipped("stores on tmpfs", "cannot write to /dev/shm");
    }
    usable.then_some(path)
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: cases(24), failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn memory_512(steps in steps(512)) {
        check(&memory(SIZE, 512), steps);
    }

    #[test]
    fn memory_4096(steps in steps(4096)) {
        check(&memory(SIZE, 4096), steps);
    }

    #[test]
    fn file_512(steps in steps(512)) {
        check_file_in(&std::env::temp_dir(), 512, steps);
    }

    #[test]
    fn file_4096(steps in steps(4096)) {
        check_file_in(&std::env::temp_dir(), 4096, steps);
    }

    #[test]
    fn file_on_tmpfs(steps in steps(512)) {
        if let Some(base) = tmpfs() {
            check_file_in(base, 512, steps);
        }
    }
}
