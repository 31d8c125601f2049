//! Concurrent operations.

use super::*;
use std::sync::atomic::{AtomicU32, Ordering};

#[test]
fn concurrent_threads_leave_exactly_their_volumes() {
    let lab = StoreLab::quick();
    let store = lab.open_sized(64 * CLUSTER);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let store = &store;
            scope.spawn(move || {
                for round in 0..12 {
                    let uuid =
                        store.create(&format!("v-{thread}-{round}"), 1, round % 2 == 0).unwrap();
                    write(store, uuid, 0, thread + 1);
                    let snapshot =
                        store.snapshot(uuid, &format!("s-{thread}-{round}"), &quiet).unwrap();
                    assert_eq!(read(store, snapshot, 0), thread + 1);
                    store.delete(uuid).unwrap();
                    if round > 0 {
                        store.delete(snapshot).unwrap();
                    }
                }
            });
        }
    });
    store.settle();
    let mut kept: Vec<Uuid> = store.list().iter().map(|volume| volume.uuid).collect();
    kept.sort_unstable();
    assert_eq!((kept.len(), free(&store)), (8, 56));
    assert_eq!(kept, lab.files());
    drop(store);
    assert_eq!(lab.open_sized(64 * CLUSTER).list().len(), 8);
}

#[test]
fn one_of_many_gets_a_name_and_the_last_space() {
    let store = VolumeStore::memory("vols", 5 * CLUSTER, 512).unwrap();
    let (made, taken, full) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0));
    let note = |result: Result<Uuid, VolumeError>| {
        match result {
            Ok(_) => &made,
            Err(VolumeError::Taken(_)) => &taken,
            Err(VolumeError::NoSpace { .. }) => &full,
            Err(error) => panic!("{error}"),
        }
        .fetch_add(1, Ordering::Relaxed);
    };
    let run = |name: &(dyn Fn(u32) -> String + Sync)| {
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (note, store) = (&note, &store);
                scope.spawn(move || note(store.create(&name(thread), 1, false)));
            }
        });
        [&made, &taken, &full].map(|count| count.swap(0, Ordering::Relaxed))
    };
    assert_eq!(run(&|_| "same".into()), [1, 7, 0]);
    assert_eq!(run(&|thread| thread.to_string()), [4, 0, 4]);
    assert_eq!(free(&store), 0);
}

/// Reported free space never exceeds what can be allocated, and includes what was returned.
#[test]
fn space_of_a_volume_that_is_being_made_is_kept_for_it() {
    let store = VolumeStore::memory("vols", 10 * CLUSTER, 512).unwrap();
    let kept = store.shared.reserve("soon", 4).unwrap();
    assert_eq!(free(&store), 6);
    assert!(matches!(store.create("soon", 1, true), Err(VolumeError::Taken(_))));
    drop(kept);
    assert_eq!(free(&store), 10);
}
