//! Every record arrives, whatever the links do.

use super::network::{Cable, FRAME_BYTES, NetworkWorld};
use crate::cases::cases;
use proptest::prelude::*;
use std::slice;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(600);

fn cable() -> impl Strategy<Value = Cable> {
    let queue = prop_oneof![Just((0, u64::MAX)), (1..20u64, 20_000..400_000u64)];
    let cut = prop_oneof![Just((0, 0)), (0..20u64, 20..900u64)];
    (0..30u64, 0..20u64, 1..300u64, prop_oneof![Just(0), 1..500u64], queue, cut).prop_map(
        |(loss_percent, repeat_percent, delay_us, jitter_us, (byte_ns, queue_bytes), cut_ms)| {
            Cable {
                loss_percent,
                repeat_percent,
                delay_us,
                jitter_us,
                byte_ns,
                queue_bytes,
                cut_ms,
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(64)))]

    #[test]
    fn every_record_is_acknowledged_in_the_end(
        seed in any::<u64>(),
        cables in prop::collection::vec(cable(), 1..4),
        records in [0..3000usize, 0..3000usize],
        depth in 1..400usize,
    ) {
        let mut world = NetworkWorld::new(seed, records, &cables);
        world.set_depth(3, depth);
        world.run(LONG);
    }
}

#[test]
fn without_loss_each_frame_is_sent_once() {
    let mut world = NetworkWorld::new(1, [3000, 3000], &[Cable::perfect()]);
    world.run(LONG);
    for end in &world.ends {
        let stats = end.links.stats(0).unwrap();
        assert_eq!((stats.lost, stats.duplicates), (0, 0));
        assert_eq!(stats.sent, 1000);
    }
}

const RECORDS: usize = 20_000;

/// Returns the time for records in one direction, two in each frame, `depth` at once.
fn time(cables: &[Cable], depth: usize) -> (Duration, NetworkWorld) {
    let mut world = NetworkWorld::new(7, [RECORDS, 0], cables);
    world.set_depth(2, depth);
    (world.run(LONG), world)
}

/// Returns a link of 1 Gbit/s with room for about 90 frames.
fn gigabit() -> Cable {
    Cable { byte_ns: 8, delay_us: 30, queue_bytes: 400_000, ..Cable::perfect() }
}

/// Transmission time of all records at 1 Gbit/s.
fn gigabit_time() -> Duration {
    Duration::from_nanos(RECORDS as u64 / 2 * u64::from(FRAME_BYTES) * 8)
}

#[test]
fn a_window_never_limits_small_depths_for_long() {
    let cable = Cable { delay_us: 50, ..Cable::perfect() };
    let (took, world) = time(&[cable], 256);
    let round_trips = RECORDS.div_ceil(256) as u32;
    assert!(took < Duration::from_micros(100) * (round_trips + 8), "{took:?}");
    assert_eq!(world.ends[0].links.stats(0).unwrap().lost, 0);
}

#[test]
fn a_link_is_used_fully() {
    let gigabit = gigabit();
    let short = Cable { queue_bytes: 60_000, ..gigabit.clone() };
    let wild = Cable { jitter_us: 200, ..gigabit.clone() };
    let lossy = |loss_percent| Cable { loss_percent, ..gigabit.clone() };
    for (cable, depth, share) in [
        (gigabit.clone(), 256, 0.98),
        (gigabit.clone(), 2000, 0.98),
        (short, 2000, 0.98),
        (wild, 256, 0.98),
        (lossy(1), 256, 0.96),
        (lossy(5), 256, 0.90),
    ] {
        let (took, world) = time(slice::from_ref(&cable), depth);
        let reached = gigabit_time().as_secs_f64() / took.as_secs_f64();
        let stats = world.ends[0].links.stats(0);
        assert!(reached > share, "{reached} of {cable:?}: {stats:?}");
    }
}

/// A link of 8 Gbit/s needs a larger window than losses of 1 % would leave if each counted as a queue overflow.
#[test]
fn losses_by_chance_leave_a_fast_link_fast() {
    for delay_us in [10, 20, 50, 100] {
        let fast = Cable { byte_ns: 1, delay_us, ..Cable::perfect() };
        let took = |loss_percent| time(&[Cable { loss_percent, ..fast.clone() }], 512).0;
        let kept = took(0).as_secs_f64() / took(1).as_secs_f64();
        assert!(kept > 0.8, "{kept} with {delay_us} us");
    }
}

#[test]
fn several_links_are_used_fully_each_as_it_can() {
    let fast = Cable { byte_ns: 2, ..gigabit() };
    for (cables, times) in [(vec![gigabit(); 6], 6.0), (vec![gigabit(), fast], 5.0)] {
        let (took, _) = time(&cables, 256);
        let reached = gigabit_time().as_secs_f64() / took.as_secs_f64();
        assert!(reached > times * 0.95, "{reached} of {times}");
    }
}

#[test]
fn a_link_with_a_bias_is_used_when_the_others_are_loaded() {
    let sent = |depth, biased| {
        let mut world = NetworkWorld::new(7, [RECORDS, 0], &[gigabit(), gigabit()]);
        world.set_depth(2, depth);
        world.ends[0].links.set_bias(biased, Duration::from_micros(5));
        let took = world.run(LONG);
        (took, [0, 1].map(|link| world.ends[0].links.stats(link).unwrap().sent))
    };
    for biased in [0, 1] {
        let (_, frames) = sent(2, biased);
        assert!(frames[usize::from(biased)] <= 1, "one frame at a time, one to see: {frames:?}");
        let (took, frames) = sent(256, biased);
        let reached = gigabit_time().as_secs_f64() / took.as_secs_f64();
        assert!(reached > 1.9, "{reached}: {frames:?}");
    }
}

#[test]
fn what_was_sent_before_is_no_sign_of_life() {
    let mut world = NetworkWorld::new(7, [100, 0], &[gigabit(), gigabit()]);
    world.set_depth(1, 1);
    world.run(LONG);
    let [links, _] = &mut world.ends;
    assert!(links.links.has_replied());
    links.links.probe();
    assert!(!links.links.has_replied());
    world.run(LONG);
    while world.step() && !world.ends[0].links.has_replied() {}
    assert!(world.ends[0].links.has_replied());
}

#[test]
fn a_link_that_is_cut_is_avoided_and_comes_back() {
    let cut = Cable { cut_ms: (20, 220), ..gigabit() };
    let (took, world) = time(&[gigabit(), cut.clone()], 256);
    assert!(took < gigabit_time() + Duration::from_millis(20), "{took:?}");
    let stats = world.ends[0].links.stats(1).unwrap();
    assert_eq!((stats.suspicions, stats.is_suspect), (1, false));
    let (took, _) = time(&[cut], 256);
    assert!(took < gigabit_time() + Duration::from_millis(350), "{took:?}");
}

#[test]
fn without_carrier_nothing_leaves() {
    let mut world = NetworkWorld::new(7, [RECORDS, 0], &[gigabit(), gigabit()]);
    for _ in 0..1000 {
        world.step();
    }
    let now = world.now;
    world.ends[0].links.set_carrier(now, 1, false);
    let before = world.ends[0].links.stats(1).unwrap();
    assert!(before.is_suspect && before.in_flight == 0);
    for _ in 0..1000 {
        world.step();
    }
    let stats = world.ends[0].links.stats(1).unwrap();
    assert_eq!((stats.sent, stats.is_suspect), (before.sent, true));
    let now = world.now;
    world.ends[0].links.set_carrier(now, 1, true);
    world.run(LONG);
    assert!(!world.ends[0].links.stats(1).unwrap().is_suspect);
}
