use super::*;

const US: u64 = 1_000;

/// A host's request that ends at `end` with that `latency`, both in microseconds.
fn record(end: u64, latency: u64) -> RequestRecord<u32> {
    let (taken, ended) = (Instant((end - latency) * US), Instant(end * US));
    RequestRecord {
        connection: 7,
        command: RecordedParams::default(),
        cid: 1,
        status: Status::SUCCESS,
        reason: RecordReason::Sampled,
        timeline: Timeline::at_host([taken, taken, taken, ended, ended]),
    }
}

/// Reports half a million requests in a second, as a reactor does; returns the number of slow ones.
fn run(
    recorder: &mut FlightRecorder<u32>,
    from_us: u64,
    latencies: impl Iterator<Item = u64>,
) -> u64 {
    run_at(recorder, (from_us, 2), latencies)
}

/// Reports requests of which one ends every `step` microseconds.
fn run_at(
    recorder: &mut FlightRecorder<u32>,
    (from_us, step): (u64, u64),
    latencies: impl Iterator<Item = u64>,
) -> u64 {
    let mut end = from_us;
    let mut reported = 0;
    for latency in latencies {
        end += step;
        let now = Instant(end * US);
        let left = recorder.until_sample(now);
        let is_sample = recorder.ended(1);
        assert_eq!(is_sample, left == 1);
        let is_slow = recorder.is_slow(latency * US);
        assert_eq!(is_slow, Instant((end - latency) * US) <= recorder.slow_before(now));
        reported += u64::from(is_sample || is_slow);
        if is_slow {
            recorder.slow(now, record(end, latency));
        }
        if is_sample {
            recorder.sample(now, record(end, latency));
        }
    }
    reported
}

/// Latencies between 100 and 199 us.
fn usual(count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(|n| 100 + n.wrapping_mul(2_654_435_761) % 100)
}

fn of(recorder: &FlightRecorder<u32>, why: RecordReason) -> Vec<u64> {
    let records = recorder.records().filter(|record| record.reason == why);
    records.map(|record| record.timeline.total_ns() / US).collect()
}

#[test]
fn the_threshold_follows_the_99th_percentile() {
    let mut recorder = FlightRecorder::default();
    run_at(&mut recorder, (10_000, 200), usual(50_000)); // 10 s
    let threshold = recorder.threshold().unwrap().as_micros();
    assert!((185..=205).contains(&threshold), "{threshold} us");
    let slower = usual(50_000).map(|latency| latency * 10);
    run_at(&mut recorder, (20_000_000, 200), slower);
    let threshold = recorder.threshold().unwrap().as_micros();
    assert!((1850..=2050).contains(&threshold), "{threshold} us");
    run_at(&mut recorder, (40_000_000, 200), usual(50_000));
    let threshold = recorder.threshold().unwrap().as_micros();
    assert!((185..=205).contains(&threshold), "{threshold} us: it falls again");
}

#[test]
fn a_slow_request_is_found_among_a_million() {
    let mut recorder = FlightRecorder::default();
    let with_one = usual(1_000_000).enumerate().map(|(n, l)| if n == 900_000 { 9_000 } else { l });
    run(&mut recorder, 10_000, with_one);
    assert_eq!(of(&recorder, RecordReason::Slow).into_iter().max(), Some(9_000));
    assert_eq!(recorder.records().map(|record| record.timeline.longest()).next(), Some("target"));
}

#[test]
fn about_sixty_in_a_second_are_sampled_at_any_rate() {
    let mut recorder = FlightRecorder::default();
    run(&mut recorder, 10_000, usual(3_000_000));
    let per_second = 500_000 / recorder.interval();
    assert!((30..=125).contains(&per_second), "{per_second}");
    for second in 0..400 {
        run(&mut recorder, (20 + second) * 1_000_000, usual(1));
    }
    assert_eq!(recorder.interval(), 1, "at rest each one is");
}

#[test]
fn requests_with_a_rhythm_are_sampled_evenly() {
    let mut recorder = FlightRecorder::default();
    run(&mut recorder, 10_000, (0..20_000_000).map(|n: u64| 100 + n % 32));
    let mut seen = [0u32; 32];
    of(&recorder, RecordReason::Sampled)
        .iter()
        .for_each(|latency| seen[*latency as usize - 100] += 1);
    // Those beyond the 99th percentile are kept as slow ones.
    assert!(seen[..31].iter().all(|count| *count > 8), "{seen:?}");
}

#[test]
fn a_flood_of_slow_requests_is_bounded_and_the_slowest_are_kept() {
    let mut recorder = FlightRecorder::default();
    run(&mut recorder, 10_000, usual(500_000));
    // One second: ten times as slow, and one request a hundred times.
    let flood = usual(500_000).enumerate().map(|(n, l)| if n == 400_000 { 50_000 } else { l * 10 });
    let reported = run(&mut recorder, 2_000_000, flood);
    assert!(reported < 1_000, "{reported}");
    assert_eq!(of(&recorder, RecordReason::Slow).into_iter().max(), Some(50_000));
}

#[test]
fn memory_is_bounded() {
    let mut recorder = FlightRecorder::new(SlowOver::Time(Duration::from_nanos(1)));
    run(&mut recorder, 10_000, usual(100_000).map(|l| l * 2));
    for n in 0..10_000 {
        recorder.slow(Instant(n * 1_000_000_000), record(1_000_000 + n, 5));
        recorder.sample(Instant(n * 1_000_000_000), record(1_000_000 + n, 0));
    }
    assert_eq!(recorder.records().count(), SLOW_KEPT + SAMPLES_KEPT);
}

#[test]
fn a_threshold_that_was_set_stays() {
    let mut recorder = FlightRecorder::new(SlowOver::Time(Duration::from_micros(150)));
    run(&mut recorder, 10_000, usual(10_000).map(|latency| latency.min(149)));
    assert!(of(&recorder, RecordReason::Slow).is_empty());
    assert_eq!(recorder.threshold(), Some(Duration::from_micros(150)));
    run(&mut recorder, 1_000_000, [149, 150, 151, 152].into_iter());
    assert_eq!(of(&recorder, RecordReason::Slow), [151, 152]);
    run(&mut recorder, 2_000_000, usual(500_000).map(|latency| latency * 100)); // a flood
    assert!(recorder.threshold() > Some(Duration::from_micros(150)));
    run(&mut recorder, 20_000_000, usual(100_000).map(|latency| latency.min(149)));
    assert_eq!(recorder.threshold(), Some(Duration::from_micros(150)), "after a second without");
}

#[test]
fn a_recorder_that_is_off_records_nothing() {
    let mut recorder = FlightRecorder::new(SlowOver::Never);
    assert_eq!(run(&mut recorder, 10_000_000, usual(100_000).map(|latency| latency * 50)), 0);
    recorder.slow(Instant(0), record(10, 5));
    recorder.sample(Instant(0), record(10, 5));
    assert_eq!((recorder.records().count(), recorder.threshold()), (0, None));
}

#[test]
fn timestamps_never_go_back() {
    let at = |us: u64| Instant(us * US);
    // A request with two tries: the timestamps of the second try are later, and one timestamp is missing.
    let timeline = Timeline::at_target([at(5), at(0), at(9), at(8), at(30), at(20)]);
    let stages: Vec<_> = timeline
        .stages()
        .map(|(name, begun, time)| (name, begun.0 / US, time.as_micros()))
        .collect();
    assert_eq!(
        stages,
        [("buffer", 5, 0), ("data", 5, 4), ("store", 9, 0), ("caravan", 9, 11), ("send", 20, 0)]
    );
    assert_eq!((timeline.longest(), timeline.total_ns()), ("caravan", 15 * US));
    let timeline = Timeline::at_host([at(1), at(2), at(4), at(8), at(16)]);
    assert_eq!(
        timeline.stages().map(|(_, _, time)| time.as_micros()).collect::<Vec<_>>(),
        [1, 2, 4, 8]
    );
    assert_eq!((timeline.longest(), timeline.end()), ("data", TimelineEnd::Host));
}
