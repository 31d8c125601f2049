//! Differences between snapshots.

use super::{BLOCK, CLUSTER, StoreLab, Uuid, VolumeError, VolumeStore};
use roadtrain_store::{DifferencesQuery, DiskDifferences};
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

const WHOLE: DifferencesQuery = DifferencesQuery { offset: 0, ranges_max: usize::MAX };

fn put(store: &VolumeStore, volume: Uuid, block: u64, value: u8) {
    let file = OpenOptions::new().write(true).open(store.file(volume)).unwrap();
    file.write_all_at(&[value; BLOCK], block * BLOCK as u64).unwrap();
}

fn has(found: &DiskDifferences, block: u64) -> bool {
    let at = block * BLOCK as u64;
    found.ranges.iter().any(|range| range.offset <= at && at < range.offset + range.bytes)
}

/// Compares a volume's snapshots. With `is_exact` equal blocks are known, though they have data.
fn compare(store: &VolumeStore, is_exact: bool) {
    let volume = store.create("disk", CLUSTER, true).unwrap();
    put(store, volume, 10, 1);
    put(store, volume, 500, 1);
    let one = store.snapshot(volume, "one", &|| true).unwrap();
    put(store, volume, 500, 2);
    put(store, volume, 700, 2);
    let two = store.snapshot(volume, "two", &|| true).unwrap();
    put(store, volume, 900, 3);
    let found = store.differences(one, two, WHOLE).unwrap();
    assert!(has(&found, 500) && has(&found, 700), "{found:?}");
    assert!(!has(&found, 100) && !has(&found, 900), "{found:?}");
    assert!(!is_exact || !has(&found, 10), "{found:?}");
    let found = store.differences(two, volume, WHOLE).unwrap();
    assert!(has(&found, 900) && !has(&found, 100), "{found:?}");
    assert!(!is_exact || !has(&found, 500), "{found:?}");
    // A larger volume: the new part counts as zeroes before.
    store.resize(volume, 3 * CLUSTER).unwrap();
    let last = 3 * CLUSTER / BLOCK as u64 - 1;
    put(store, volume, last, 4);
    let found = store.differences(one, volume, WHOLE).unwrap();
    assert_eq!((found.from_bytes, found.to_bytes), (CLUSTER, 3 * CLUSTER));
    assert!(has(&found, last) && has(&found, 500) && !has(&found, last - 100), "{found:?}");
    let refused = store.differences(volume, two, WHOLE).unwrap_err();
    assert!(matches!(refused, VolumeError::Invalid(_)), "{refused}");
}

#[test]
fn blocks_that_snapshots_do_not_share_may_differ() {
    compare(&StoreLab::plain().open(), false);
    compare(&VolumeStore::memory("m", 64 << 20, 512).unwrap(), false);
}

#[test]
fn blocks_that_snapshots_share_are_equal() {
    let Some(lab) = StoreLab::xfs() else { return };
    compare(&lab.open(), true);
}
