use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

const QUIET: Duration = Duration::from_secs(15);

fn known(cntlid: u16, quiet: Option<Duration>) -> ControllerIdentity {
    let instance = ControllerInstance { cntlid, ciu: 1, cirn: cntlid.into() };
    ControllerIdentity { instance: Some(instance), endpoint: 0, quiet }
}

fn range(first: u64, count: u64) -> BlockRange {
    BlockRange { nsid: 1, first, count }
}

fn at(seconds: u64) -> Instant {
    Instant(0) + Duration::from_secs(seconds)
}

/// Returns the guard of a lost controller with a write to blocks 8 to 15.
fn lost(old: &OldCommands, known: ControllerIdentity) -> LaneGuard {
    let serial = old.begin(known);
    let guard = LaneGuard::new(old.clone(), serial);
    assert_eq!(guard.record(vec![range(8, 8)]), Some(serial));
    old.lost(at(0), serial);
    guard
}

#[test]
fn what_may_be_executed_blocks_its_blocks_until_it_has_ended() {
    let old = OldCommands::default();
    let guard = lost(&old, known(1, Some(QUIET)));
    let other = LaneGuard::new(old.clone(), old.begin(known(2, Some(QUIET))));
    assert!(guard.is_closed() && other.is_closed());
    for (blocks, is_blocked) in
        [(range(0, 8), false), (range(0, 9), true), (range(15, 1), true), (range(16, 9), false)]
    {
        assert_eq!((guard.blocks(&blocks), other.blocks(&blocks)), (is_blocked, is_blocked));
    }
    assert!(!other.blocks(&BlockRange { nsid: 2, ..range(8, 8) }));
    let serial = guard.serial.expect("it has one");
    let before = old.ended_so_far();
    old.end(serial);
    assert!(!guard.is_closed() && !other.blocks(&range(8, 8)) && !guard.may_execute(serial));
    assert_ne!(old.ended_so_far(), before);
    assert_eq!(guard.record(vec![range(8, 8)]), None, "it cannot be executed any more");
    assert!(!guard.is_closed());
}

#[test]
fn each_claim_begins_the_quiet_time_anew() {
    let old = OldCommands::default();
    let guard = lost(&old, known(1, Some(QUIET)));
    let instance = known(1, None).instance.expect("it has one");
    let serial = guard.serial.expect("it has one");
    assert_eq!(old.due(), Some(at(15)));
    old.expire(at(14));
    for seconds in 1..100 {
        old.claim(at(seconds), instance);
        old.expire(at(seconds + 14));
        assert!(guard.is_closed(), "claimed {seconds} s after the loss");
    }
    old.claim(at(99), ControllerInstance { cirn: 7, ..instance });
    old.claim_all(at(100));
    old.missed(at(108), serial);
    assert_eq!(old.due(), Some(at(115)));
    old.claim_all(at(50)); // late
    assert_eq!(old.open(at(105))[0].left, Some(Duration::from_secs(10)));
    old.expire(at(115));
    assert!(!guard.is_closed());
}

/// A target that has claimed a controller may still have it if no query has followed: a reconnect may come late.
#[test]
fn after_a_claim_time_without_a_query_does_not_count() {
    for is_absent in [false, true] {
        let old = OldCommands::default();
        let guard = lost(&old, known(1, Some(QUIET)));
        let serial = guard.serial.expect("it has one");
        old.claim_all(at(10));
        assert_eq!(old.probe_interval_max(), Some(QUIET / 4));
        for queried in [11, 17] {
            old.missed(at(queried), serial); // in the first half
            assert_eq!(old.due(), None);
            old.expire(at(99));
            assert!(guard.is_closed());
        }
        let quiet_at = if is_absent {
            old.absent(at(99), serial);
            old.absent(at(100), serial);
            at(99) + QUIET
        } else {
            old.missed(at(18), serial);
            at(25)
        };
        assert_eq!(old.due(), Some(quiet_at));
        old.expire(quiet_at);
        assert!(!guard.is_closed());
    }
}

#[test]
fn no_time_ends_a_controller_without_a_timer_or_with_connections() {
    let old = OldCommands::default();
    let guard = lost(&old, known(1, None));
    let live = LaneGuard::new(old.clone(), old.begin(known(2, Some(QUIET))));
    // Only one of its lanes is lost so far.
    let _ = live.record(vec![range(100, 1)]);
    old.claim_all(at(1));
    assert_eq!(old.due(), None);
    old.expire(at(1_000_000));
    assert!(guard.blocks(&range(8, 1)) && live.blocks(&range(100, 1)));
}

#[test]
fn too_many_ranges_are_the_whole_namespace() {
    let old = OldCommands::default();
    let serial = old.begin(known(1, None));
    let guard = LaneGuard::new(old.clone(), serial);
    let many = |count: u64| (0..count).map(|n| range(n * 2, 1)).collect::<Vec<_>>();
    let _ = guard.record(many(RANGES_MAX as u64));
    assert!(!guard.blocks(&range(1, 1)) && !guard.blocks(&range(1 << 40, 1)));
    let _ = guard.record(many(RANGES_MAX as u64 + 1));
    assert!(guard.blocks(&range(1, 1)) && guard.blocks(&range(1 << 40, 1)));
    assert_eq!(old.open(at(0))[0].ranges, [BlockRange::all(1)]);
}

#[test]
fn what_an_earlier_process_has_lost_counts_from_now() {
    let old = OldCommands::default();
    let open =
        OpenController { controller: known(1, Some(QUIET)), ranges: vec![range(8, 8)], left: None };
    let serial = old.inherit(at(3), open);
    assert!(old.has(serial) && old.blocks(&range(9, 1)));
    assert_eq!(old.due(), None, "this process has not tried its target");
    old.missed(at(12), serial);
    assert_eq!(old.due(), Some(at(18)));
    assert_eq!(old.take_inherited(), [(serial, known(1, None).instance)]);
    assert_eq!(old.take_inherited(), [], "one association has it ended");
}

proptest! {
    /// Checks that the set has the blocks of all ranges, and no others.
    #[test]
    fn ranges_are_a_set_of_blocks(added in prop::collection::vec((0..60u64, 0..9u64), 0..40)) {
        let (mut ranges, mut model) = (BlockRangeSet::default(), BTreeSet::new());
        for (first, count) in added {
            ranges.add(range(first, count));
            model.extend(first..first + count);
        }
        prop_assert_eq!(ranges.is_empty(), model.is_empty());
        for first in 0..70 {
            for count in 0..5 {
                let is_in = (first..first + count).any(|block| model.contains(&block));
                prop_assert_eq!(ranges.overlap(&range(first, count)), is_in);
            }
        }
        let listed: BTreeSet<u64> = ranges.iter().flat_map(|r| r.first..r.first + r.count).collect();
        prop_assert_eq!(listed, model);
    }
}
