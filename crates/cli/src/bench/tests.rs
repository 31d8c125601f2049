//! Loads on a reactor without sockets: order of requests, counters, and detected errors.

use super::harness::{LoadHarness, begin, finish, generator, generators};
use super::lane::LaneResult;
use super::plan::tests::{plan, plans};
use super::run::add_counters;
use super::run_state::RunPhase;
use super::usage::ProcessUsage;
use roadtrain_host_engine::{Class, Front, IoOp};
use roadtrain_proto::time::Instant;
use roadtrain_reactor::metrics::Batching;
use roadtrain_wire::status::Status;

const BYTES: usize = 1 << 20;

fn harness() -> LoadHarness {
    LoadHarness::new(BYTES, 512)
}

#[test]
fn closed_loop_refills_in_the_same_turn() {
    let (mut load, run_state, inbox) = generator(plan("--depth 8 --rw randread", 1).unwrap());
    let mut harness = harness();
    begin(&mut load, &run_state, &mut harness);
    assert_eq!(harness.queue.len(), 8);
    harness.execute(3, 50_000);
    load.turn(&mut harness);
    assert_eq!(harness.queue.len(), 8);
    assert_eq!(run_state.progress()[0].requests, 3);
    run_state.set_phase(RunPhase::Stop);
    finish(&mut load, &mut harness);
    let result = inbox.try_recv().unwrap();
    assert_eq!((result.reads.count(), result.writes.count(), result.errors), (3, 0, 0));
    assert!((49.9..50.1).contains(&result.reads.summary().mean_us));
}

#[test]
fn ramp_is_not_counted() {
    let (mut load, run_state, inbox) = generator(plan("--depth 4", 1).unwrap());
    let mut harness = harness();
    load.turn(&mut harness);
    assert!(run_state.all_prepared() && harness.queue.is_empty(), "waits for the others");
    run_state.set_phase(RunPhase::Ramp);
    load.turn(&mut harness);
    harness.execute(4, 10);
    load.turn(&mut harness);
    run_state.set_phase(RunPhase::Measure);
    load.turn(&mut harness);
    harness.execute(2, 10);
    load.turn(&mut harness);
    run_state.set_phase(RunPhase::Stop);
    finish(&mut load, &mut harness);
    assert_eq!(inbox.try_recv().unwrap().reads.count(), 2);
}

#[test]
fn ios_are_sent_exactly() {
    let (mut load, run_state, inbox) =
        generator(plan("--depth 8 --ios 21 --rw randrw", 2).unwrap());
    let mut harness = harness();
    begin(&mut load, &run_state, &mut harness);
    finish(&mut load, &mut harness);
    let counts: Vec<u64> =
        inbox.try_iter().map(|lane| lane.reads.count() + lane.writes.count()).collect();
    assert_eq!(counts, [11, 10]);
    assert!(run_state.finished_at().is_some());
}

#[test]
fn a_lane_without_room_waits() {
    let (mut load, run_state, _inbox) =
        generator(plan("--depth 8 --verify --rw randwrite", 1).unwrap());
    let mut harness = harness();
    harness.capacity = 3;
    begin(&mut load, &run_state, &mut harness);
    assert_eq!(harness.queue.len(), 3);
    harness.capacity = 1024;
    load.turn(&mut harness);
    assert_eq!(harness.queue.len(), 8);
    run_state.set_phase(RunPhase::Stop);
    finish(&mut load, &mut harness);
    assert_eq!(run_state.errors(), 0);
}

#[test]
fn open_loop_counts_from_the_schedule() {
    let (mut load, run_state, inbox) = generator(plan("--depth 2 --rate 1000", 1).unwrap());
    let mut harness = harness();
    begin(&mut load, &run_state, &mut harness);
    assert_eq!(harness.queue.len(), 1, "the first is due at once");
    assert_eq!(load.deadline(), Some(Instant(harness.now + 1_000_000)));
    // No completion for 5 ms: requests 1 to 5 become due, the lane has capacity for one of them.
    harness.now += 5_000_000;
    load.turn(&mut harness);
    assert_eq!(harness.queue.len(), 2);
    harness.execute(2, 0);
    load.turn(&mut harness);
    assert_eq!(harness.queue.len(), 2, "late, but sent");
    run_state.set_phase(RunPhase::Stop);
    load.turn(&mut harness);
    finish(&mut load, &mut harness);
    let result = inbox.try_recv().unwrap();
    let latency = result.reads.summary();
    assert!(
        (4_990.0..5_010.0).contains(&latency.max_us),
        "due at 0, answered at 5 ms: {latency:?}"
    );
    assert!((3_990.0..4_010.0).contains(&latency.min_us), "due at 1 ms: {latency:?}");
    assert_eq!(result.unsent, 2, "due at 4 and 5 ms");
}

#[test]
fn failures_are_counted_and_named() {
    let (mut load, run_state, inbox) = generator(plan("--depth 2 --rw randwrite", 1).unwrap());
    let mut harness = harness();
    begin(&mut load, &run_state, &mut harness);
    harness.status = Status::CAPACITY_EXCEEDED;
    harness.execute(1, 10);
    load.turn(&mut harness);
    assert!(!run_state.lost.load(std::sync::atomic::Ordering::Relaxed));
    harness.status = Status::HOST_PATH_ERROR;
    harness.execute(1, 10);
    load.turn(&mut harness);
    assert!(run_state.lost.load(std::sync::atomic::Ordering::Relaxed), "the path is gone");
    run_state.set_phase(RunPhase::Stop);
    harness.status = Status::SUCCESS;
    finish(&mut load, &mut harness);
    let result = inbox.try_recv().unwrap();
    assert_eq!(result.errors, 2);
    assert!(result.error_texts[0].contains("writing block"), "{:?}", result.error_texts);
    assert!(result.error_texts[0].contains("Capacity Exceeded"), "{:?}", result.error_texts);
}

#[test]
fn fill_writes_everything_once() {
    for line in ["--depth 4 --bs 4k", "--depth 4 --bs 4k --verify"] {
        let mut plan = plan(line, 3).unwrap();
        plan.fill = true;
        let (mut load, run_state, inbox) = generator(plan);
        let mut harness = harness();
        begin(&mut load, &run_state, &mut harness);
        let blank = harness.store.chunks(512).filter(|block| block.iter().all(|b| *b == 0)).count();
        assert_eq!(blank, 0, "{line}");
        run_state.set_phase(RunPhase::Stop);
        finish(&mut load, &mut harness);
        assert!(inbox.try_iter().all(|lane| lane.errors == 0), "{line}");
    }
}

#[test]
fn verified_requests_never_overlap() {
    let (mut load, run_state, _inbox) =
        generator(plan("--depth 16 --bs 4k --size 128k --verify --rw randrw", 1).unwrap());
    let mut harness = harness();
    begin(&mut load, &run_state, &mut harness);
    for _ in 0..1000 {
        let mut slots: Vec<u64> = harness.queue.iter().map(|(_, request)| request.slba).collect();
        slots.sort_unstable();
        slots.dedup();
        assert_eq!(slots.len(), harness.queue.len());
        harness.execute(5, 10);
        load.turn(&mut harness);
    }
    run_state.set_phase(RunPhase::Stop);
    finish(&mut load, &mut harness);
    assert_eq!(run_state.errors(), 0);
}

#[test]
fn more_depth_than_slots_is_no_deadlock() {
    let (mut load, run_state, inbox) =
        generator(plan("--depth 16 --bs 4k --size 16k --verify --rw randrw --ios 500", 1).unwrap());
    let mut harness = harness();
    begin(&mut load, &run_state, &mut harness);
    assert_eq!(harness.queue.len(), 4);
    finish(&mut load, &mut harness);
    let result = inbox.try_recv().unwrap();
    assert_eq!((result.reads.count() + result.writes.count(), result.errors), (500, 0));
}

#[test]
fn lost_writes_are_found_when_read_back() {
    let (mut load, run_state, inbox) =
        generator(plan("--depth 4 --bs 4k --verify --rw write", 1).unwrap());
    let mut harness = harness();
    begin(&mut load, &run_state, &mut harness);
    harness.execute(1, 10);
    harness.complete_blindly(); // acknowledged, never done
    load.turn(&mut harness);
    run_state.set_phase(RunPhase::Stop);
    finish(&mut load, &mut harness);
    let result = inbox.try_recv().unwrap();
    assert_eq!(result.errors, 8, "the eight blocks of one request");
    assert!(result.error_texts[0].contains("block 8 is blank"), "{:?}", result.error_texts);
}

#[test]
fn corruption_under_load_is_found() {
    let (mut load, run_state, inbox) =
        generator(plan("--depth 4 --bs 4k --size 64k --verify --rw randrw", 1).unwrap());
    let mut harness = harness();
    begin(&mut load, &run_state, &mut harness);
    for _ in 0..200 {
        harness.execute(4, 10);
        load.turn(&mut harness);
    }
    assert_eq!(run_state.errors(), 0);
    harness.store.iter_mut().skip(300).step_by(512).for_each(|byte| *byte ^= 1);
    for _ in 0..10 {
        harness.execute(4, 10);
        load.turn(&mut harness);
    }
    run_state.set_phase(RunPhase::Stop);
    finish(&mut load, &mut harness);
    let result = inbox.try_recv().unwrap();
    assert!(result.errors > 0);
    assert!(result.error_texts[0].contains("is corrupt: byte 300"), "{:?}", result.error_texts);
}

#[test]
fn streams_run_beside_the_main_load() {
    let line = "--depth 4 --class latency --stream rw=randwrite,bs=8k,depth=2 \
                --stream rw=read,depth=3,lane=own";
    let (mut load, run_state, inbox) = generators(plans(line, 2).unwrap());
    let mut harness = harness();
    begin(&mut load, &run_state, &mut harness);
    let on = |lane: usize| harness.queue.iter().filter(|(id, _)| id.0 == lane).count();
    assert_eq!([0, 1, 2, 3].map(on), [6, 6, 3, 0], "the third lane is a stream's own");
    let requests = harness.queue.iter().map(|(_, request)| request);
    assert!(requests.clone().all(|r| (r.op == IoOp::Write) == (r.blocks == 16)));
    assert_eq!(
        requests.filter(|request| request.class == Class::Latency).count(),
        8,
        "of the main load alone"
    );
    harness.execute(15, 10);
    load.turn(&mut harness);
    assert_eq!(harness.queue.len(), 15);
    let done: Vec<u64> = run_state.progress().iter().map(|load| load.requests).collect();
    assert_eq!(done, [8, 4, 3]);
    run_state.set_phase(RunPhase::Stop);
    finish(&mut load, &mut harness);
    let mut results: Vec<_> = inbox.try_iter().collect();
    let lanes: Vec<_> = results.iter().map(|r| (r.load, r.part, r.lane, r.host_lane)).collect();
    assert_eq!(lanes, [(0, 0, 0, 0), (0, 1, 1, 1), (1, 0, 0, 0), (1, 1, 1, 1), (2, 0, 2, 2)]);
    let counted = [10, 20, 30].map(|requests| Batching { requests, ..Batching::default() });
    add_counters(&mut results, &counted, Some(&[true, false, true]));
    let requests = |results: &[LaneResult]| {
        results.iter().map(|result| result.batching.requests).collect::<Vec<_>>()
    };
    assert_eq!(requests(&results), [10, 20, 0, 0, 30], "a shared lane's are the main load's");
    results.iter_mut().for_each(|result| result.batching = Batching::default());
    add_counters(&mut results, &counted, None);
    assert_eq!(requests(&results), [60, 0, 0, 0, 0], "threads share all lanes");
}

#[test]
fn streams_last_as_long_as_the_main_load() {
    let plans = plans("--depth 2 --ios 10 --stream depth=4", 1).unwrap();
    let (mut load, run_state, inbox) = generators(plans);
    let mut harness = harness();
    begin(&mut load, &run_state, &mut harness);
    for _ in 0..100 {
        harness.execute(6, 10);
        load.turn(&mut harness);
    }
    assert!(run_state.finished_at().is_some() && !harness.stopped);
    assert_eq!(harness.queue.len(), 4, "the stream goes on");
    run_state.set_phase(RunPhase::Stop);
    finish(&mut load, &mut harness);
    let counts: Vec<u64> = inbox.try_iter().map(|result| result.reads.count()).collect();
    assert!(counts[0] == 10 && counts[1] > 300, "{counts:?}");
}

#[test]
fn verified_streams_keep_to_their_parts() {
    let line = "--depth 4 --bs 4k --size 510k --verify --rw randrw \
                --stream rw=randwrite,bs=12k,depth=3 --stream rw=rw,bs=512,depth=5,lane=own";
    let fill = |fill| {
        let mut plans = plans(line, 2).unwrap();
        plans.iter_mut().for_each(|plan| plan.fill = fill);
        plans
    };
    for fills in [true, false] {
        let (mut load, run_state, inbox) = generators(fill(fills));
        let mut harness = harness();
        begin(&mut load, &run_state, &mut harness);
        for _ in 0..300 {
            harness.execute(7, 10);
            load.turn(&mut harness);
        }
        run_state.set_phase(RunPhase::Stop);
        finish(&mut load, &mut harness);
        let checked: Vec<bool> = inbox.try_iter().map(|r| r.blocks_checked > 0).collect();
        assert_eq!((run_state.errors(), checked), (0, vec![true; 5]), "filled: {fills}");
    }
    let (mut load, run_state, _inbox) = generators(fill(true));
    let mut harness = harness();
    begin(&mut load, &run_state, &mut harness);
    harness.store[400 << 10..].fill(0);
    run_state.set_phase(RunPhase::Stop);
    finish(&mut load, &mut harness);
    let errors: Vec<u64> = run_state.progress().iter().map(|load| load.errors).collect();
    assert!(errors[0] == 0 && errors[1] == 0 && errors[2] > 0, "the last one's part: {errors:?}");
}

#[test]
fn the_depth_follows_the_steps() {
    let plans = plans("--step depth=2:64,period-ms=20 --seconds 0.1 --stream depth=1", 1).unwrap();
    let (mut load, run_state, inbox) = generators(plans);
    let mut harness = harness();
    begin(&mut load, &run_state, &mut harness);
    let began_at = harness.now;
    assert_eq!(harness.queue.len(), 3);
    assert_eq!(load.deadline(), Some(Instant(began_at + 10_000_000)), "wakes up for the step");
    harness.now = began_at + 10_000_000;
    load.turn(&mut harness);
    assert_eq!(harness.queue.len(), 65);
    harness.execute(65, 9_999_999);
    load.turn(&mut harness);
    assert_eq!(harness.queue.len(), 65, "still up");
    harness.execute(0, 1);
    load.turn(&mut harness);
    assert_eq!(harness.queue.len(), 65, "what is in flight stays so");
    harness.execute(65, 0);
    load.turn(&mut harness);
    assert_eq!(harness.queue.len(), 3);
    run_state.set_phase(RunPhase::Stop);
    finish(&mut load, &mut harness);
    let windows = inbox.try_recv().unwrap().windows;
    assert_eq!((windows.len(), windows[19], windows[20]), (100, 62, 2), "{windows:?}");
}

#[test]
fn the_greatest_depth_is_used() {
    let (mut load, run_state, _inbox) = generator(plan("--depth 1023", 1).unwrap());
    let mut harness = harness();
    begin(&mut load, &run_state, &mut harness);
    assert_eq!(harness.queue.len(), 1023);
}

#[test]
fn an_abandoned_load_does_not_wait() {
    let (mut load, run_state, inbox) = generator(plan("--depth 4", 1).unwrap());
    let mut harness = harness();
    begin(&mut load, &run_state, &mut harness);
    run_state.abandoned.store(true, std::sync::atomic::Ordering::Relaxed);
    load.turn(&mut harness);
    assert!(harness.stopped && harness.queue.len() == 4);
    assert!(inbox.try_recv().is_err(), "no result");
}

/// Measures the generator's own cost: `cargo test --release -p roadtrain -- --ignored cost --nocapture`.
#[test]
#[ignore = "a measurement, not a test"]
fn cost_of_a_request() {
    const ROUNDS: u32 = 200_000;
    for line in ["--depth 128 --rw randread", "--depth 128 --rw randrw --rate 1g"] {
        let line = line.replace("1g", "1000000000");
        let (mut load, run_state, _inbox) = generator(plan(&line, 1).unwrap());
        let mut harness = harness();
        begin(&mut load, &run_state, &mut harness);
        let before = ProcessUsage::of(std::process::id()).unwrap();
        for _ in 0..ROUNDS {
            for _ in 0..32 {
                harness.complete_blindly();
            }
            harness.now += 30_000;
            load.turn(&mut harness);
        }
        let cpu = ProcessUsage::of(std::process::id()).unwrap().since(before).cpu;
        let ns = cpu.as_nanos() as f64 / f64::from(ROUNDS * 32);
        println!("{line}: {ns:.1} ns a request, queues of the harness included");
    }
}
