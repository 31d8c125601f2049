//! An owner and an observer, over a slow cluster. Whatever is delayed or lost: no target is fenced while it serves. A
//! dead owner is fenced in time. An outage of the cluster changes nothing.

use proptest::prelude::*;
use roadtrain_proto::ownership::{
    BlockClaim, BlockOwner, FenceVerdict, ObservedOwner, OwnershipObserver, OwnershipState,
    OwnershipTiming,
};
use roadtrain_proto::time::Instant;
use std::time::Duration;

const MS: u64 = 1_000_000;

fn at(ms: u64) -> Instant {
    Instant(ms * MS)
}

/// Delays of one request: from its start to the cluster, and from there to the reply.
#[derive(Clone, Copy, Debug)]
struct Delay {
    there: u64,
    back: u64,
}

fn delays() -> impl Strategy<Value = Vec<Delay>> {
    let usual = (0..50u64, 0..50u64);
    let slow = (0..9_000u64, 0..9_000u64);
    let delay = prop_oneof![4 => usual, 1 => slow];
    prop::collection::vec(delay.prop_map(|(there, back)| Delay { there, back }), 40)
}

/// Requests one at a time, each a while after the reply to the one before: times of start, arrival, reply.
fn requests(delays: &[Delay], begin: u64, pause: u64) -> Vec<[u64; 3]> {
    let mut now = begin;
    let mut all = Vec::new();
    for delay in delays {
        let (there, back) = (now + delay.there, now + delay.there + delay.back);
        all.push([now, there, back]);
        now = back.max(now + pause);
    }
    all
}

/// Returns the time of the observer's first verdict to fence, and the periods in which the owner serves.
fn run(beats: &[[u64; 3]], checks: &[[u64; 3]]) -> (Option<u64>, Vec<(u64, u64)>) {
    let timing = OwnershipTiming::default();
    let mut observer = OwnershipObserver::new(timing);
    let verdict = checks.iter().find(|[queried, came, replied]| {
        let number = beats.iter().filter(|beat| beat[1] <= *came).count() as u64;
        let seen = if number == 0 {
            ObservedOwner::OpenWithoutHeartbeat
        } else {
            ObservedOwner::Heartbeat(number)
        };
        observer.check_completed(at(*queried), at(*replied), seen) == FenceVerdict::Fence
    });
    let mut owner = BlockOwner::new(timing, at(0));
    let mut serves = Vec::new();
    let mut from = 0;
    let gives_up = timing.cut_off_after.as_millis() as u64;
    let blind = timing.max_check_gap.as_millis() as u64;
    let mut confirmed = 0;
    for [begun, _, back] in beats {
        let last = confirmed + gives_up - 1;
        let expected = if last >= from { OwnershipState::Serves } else { OwnershipState::CutOff };
        assert_eq!(owner.state(at(last)), expected);
        assert_eq!(owner.state(at(confirmed + gives_up)), OwnershipState::CutOff);
        if *back >= confirmed + gives_up {
            serves.push((from, confirmed + gives_up));
            // A check from before this heartbeat is answered by then, or ignored.
            from = *back + blind;
        }
        if owner.confirmed(at(*begun), at(*back)) {
            owner.ownership_checked(true, at(*back));
        }
        confirmed = *begun;
        // A reply that is older than that changes nothing.
        if *back >= begun + gives_up {
            assert_eq!(owner.state(at(*back)), OwnershipState::CutOff);
        }
    }
    serves.push((from, (confirmed + gives_up).max(from)));
    (verdict.map(|look| look[2]), serves)
}

proptest! {
    /// Holds as long as clocks run.
    #[test]
    fn no_serving_owner_is_fenced(beats in delays(), checks in delays(), begin in 0..3_000u64) {
        let (beats, checks) = (requests(&beats, 0, 1_000), requests(&checks, begin, 500));
        let (fenced, serves) = run(&beats, &checks);
        if let Some(fenced) = fenced {
            let serving = serves.iter().find(|(from, to)| (*from..*to).contains(&fenced));
            // A reply that was delayed for longer than that stops the owner from serving.
            prop_assert!(serving.is_none_or(|(from, to)| from == to), "fenced at {fenced} ms, serves {serves:?}");
        }
    }

    /// A dead owner is fenced, and soon.
    #[test]
    fn a_dead_owner_is_fenced(last in 1..20usize, beats in prop::collection::vec((0..50u64, 0..50u64), 20)) {
        let beats: Vec<_> = beats.iter().map(|&(there, back)| Delay { there, back }).collect();
        let mut beats = requests(&beats, 0, 1_000);
        beats.truncate(last);
        let checks = requests(&[Delay { there: 20, back: 20 }; 60], 7, 500);
        let (fenced, _) = run(&beats, &checks);
        let died = beats[last - 1][1];
        let fenced = fenced.expect("it is fenced");
        prop_assert!((died + 5_000..=died + 6_100).contains(&fenced), "died at {died} ms, fenced at {fenced} ms");
    }

    /// No target reaches the cluster for a while, however long: afterwards the owner is still the owner.
    #[test]
    fn an_outage_changes_nothing(begin in 2_000..6_000u64, lasts in 0..30_000u64, late in 0..900u64) {
        let during = |made: u64| {
            let usual = Delay { there: 5, back: 5 };
            if (begin..begin + lasts).contains(&(made + usual.there)) {
                Delay { there: begin + lasts - made, back: 5 }
            } else {
                usual
            }
        };
        let all = |first: u64, pause: u64| {
            let (mut now, mut all) = (first, Vec::new());
            while now < begin + lasts + 10_000 {
                let Delay { there, back } = during(now);
                all.push([now, now + there, now + there + back]);
                now = (now + there + back).max(now + pause);
            }
            all
        };
        // The owner's requests reach the cluster a little later than the observer's.
        let beats: Vec<_> = all(0, 1_000).iter().map(|&[a, b, c]| [a, b + late, c + late]).collect();
        let (fenced, _) = run(&beats, &all(3, 500));
        prop_assert_eq!(fenced, None);
    }
}

#[test]
fn a_fenced_owner_stays_fenced() {
    let mut owner = BlockOwner::new(OwnershipTiming::default(), at(0));
    assert_eq!(owner.state(at(3_999)), OwnershipState::Serves);
    assert!(!owner.confirmed(at(3_000), at(3_010)));
    assert!(!owner.confirmed(at(2_000), at(3_020)));
    assert_eq!(owner.state(at(6_999)), OwnershipState::Serves);
    assert_eq!(owner.state(at(7_000)), OwnershipState::CutOff);
    assert!(owner.confirmed(at(8_000), at(8_010)));
    owner.ownership_checked(true, at(8_010));
    assert_eq!(
        owner.state(at(10_009)),
        OwnershipState::CutOff,
        "another target may be about to take it"
    );
    assert_eq!(owner.state(at(10_010)), OwnershipState::Serves);
    owner.fenced();
    assert!(!owner.confirmed(at(10_000), at(10_020)));
    assert_eq!(owner.state(at(10_020)), OwnershipState::Fenced);
}

/// Heartbeats are confirmed whichever target has the blocks, once the fence has ended.
#[test]
fn an_owner_that_was_cut_off_checks_its_ownership() {
    let mut owner = BlockOwner::new(OwnershipTiming::default(), at(0));
    let hour = 3_600_000;
    for n in 0..10 {
        let now = hour + n * 1_000;
        assert!(owner.confirmed(at(now), at(now + 10)), "nothing has been seen yet");
        assert_eq!(owner.state(at(now + 999)), OwnershipState::CutOff);
    }
    let mut other = owner.clone();
    owner.ownership_checked(true, at(hour + 9_500));
    assert_eq!(
        owner.state(at(hour + 11_499)),
        OwnershipState::CutOff,
        "another target may be about to take it"
    );
    assert!(!owner.confirmed(at(hour + 11_000), at(hour + 11_010)));
    assert_eq!(owner.state(at(hour + 11_500)), OwnershipState::Serves);
    other.ownership_checked(false, at(hour + 9_500));
    assert_eq!(other.state(at(hour + 9_500)), OwnershipState::Fenced);
}

/// An owner without heartbeats is gone when checks have not seen the blocks open for long.
#[test]
fn strangers_that_are_gone_are_fenced() {
    let look = |observer: &mut OwnershipObserver, ms, seen| {
        observer.check_completed(at(ms), at(ms + 10), seen)
    };
    let all = |observer: &mut OwnershipObserver, from: u64, to: u64, seen| {
        (from..to).step_by(500).find(|ms| look(observer, *ms, seen) == FenceVerdict::Fence)
    };
    let mut observer = OwnershipObserver::new(OwnershipTiming::default());
    assert_eq!(all(&mut observer, 0, 29_000, ObservedOwner::Absent(1)), None);
    // The owner was alive: it had lost its connection.
    assert_eq!(all(&mut observer, 29_000, 30_000, ObservedOwner::OpenWithoutHeartbeat), None);
    assert_eq!(all(&mut observer, 30_000, 59_000, ObservedOwner::Absent(1)), None);
    // No check for a while.
    assert_eq!(all(&mut observer, 63_000, 90_000, ObservedOwner::Absent(1)), None);
    // Another owner.
    assert_eq!(all(&mut observer, 90_000, 119_500, ObservedOwner::Absent(2)), None);
    assert_eq!(all(&mut observer, 119_500, 130_000, ObservedOwner::Absent(2)), Some(120_500));
    // Heartbeats have a shorter timeout, of their own.
    let mut observer = OwnershipObserver::new(OwnershipTiming::default());
    assert_eq!(all(&mut observer, 0, 20_000, ObservedOwner::Absent(5)), None);
    assert_eq!(all(&mut observer, 20_000, 24_500, ObservedOwner::Heartbeat(5)), None);
}

#[test]
fn strangers_are_waited_for() {
    let mut observer = OwnershipObserver::new(OwnershipTiming::default());
    for n in 0..100 {
        assert_eq!(
            observer.check_completed(
                at(n * 500),
                at(n * 500 + 10),
                ObservedOwner::OpenWithoutHeartbeat
            ),
            FenceVerdict::Wait
        );
    }
    assert_eq!(
        observer.check_completed(at(50_000), at(50_010), ObservedOwner::NoOwner),
        FenceVerdict::Free
    );
    // Another owner, another heartbeat.
    for n in 0..100 {
        let (now, seen) = (at(51_000 + n * 500), ObservedOwner::Heartbeat(n / 5));
        assert_eq!(
            observer.check_completed(now, now + Duration::from_millis(9), seen),
            FenceVerdict::Wait
        );
    }
}

/// The target that takes seized blocks may be the one that has seized them; it continues to check for a moment.
#[test]
fn blocks_are_taken_from_the_owner_that_was_meant_and_from_no_other() {
    // One check each, and its result.
    let mut claim = BlockClaim::new(Some("old"));
    assert!(!claim.owner_checked(Some(&"old")) && !claim.is_free());
    claim.seize();
    assert!(claim.owner_checked(Some(&"old")), "it is tried until it has gone well");
    assert!(claim.owner_checked(Some(&"old")) && !claim.is_free());
    claim.fenced();
    assert!(claim.is_free() && !claim.owner_checked(Some(&"ours")));
    // The old owner leaves by itself, and the new one has the blocks before the next check.
    let mut claim = BlockClaim::new(Some("old"));
    claim.seize();
    assert!(!claim.owner_checked(Some(&"ours")) && !claim.owner_checked(Some(&"old")));
    // The blocks were free when they were seized.
    let mut claim = BlockClaim::new(None);
    claim.seize();
    assert!(claim.is_free() && !claim.owner_checked(Some(&"ours")));
    assert!(!claim.owner_checked(None) && claim.is_free());
}
