//! Reports of known results.

use super::*;
use crate::bench::plan::tests::plans;
use crate::bench::usage::ProcessUsage;
use std::time::Duration;

fn lane(reads: u64, writes: u64) -> LaneResult {
    let mut result = LaneResult {
        load: 0,
        lane: 0,
        part: 0,
        reads: Latencies::new(),
        writes: Latencies::new(),
        errors: 0,
        error_texts: vec![],
        blocks_checked: 0,
        unsent: 0,
        host_lane: 0,
        batching: Batching {
            caravans: 10,
            caravan_requests: 160,
            caravan_bytes: 11_520,
            sends: 10,
            receives: 20,
            doorbells_size: 9,
            doorbells_timer: 1,
            ..Batching::default()
        },
        windows: vec![],
    };
    (0..reads).for_each(|_| result.reads.record(50_000));
    (0..writes).for_each(|_| result.writes.record(100_000));
    result
}

fn report(results: Vec<LaneResult>, own_target: bool) -> BenchReport {
    report_of("--rw randrw --bs 4k", results, own_target)
}

fn report_of(line: &str, results: Vec<LaneResult>, own_target: bool) -> BenchReport {
    let cpu = Duration::from_millis(800);
    let usage = ProcessUsage { cpu, switches_voluntary: 12, switches_involuntary: 4 };
    let work = ProcessWork { usage, batching: results[0].batching, sleeps: 2 };
    let target = own_target.then_some(work);
    let measured = BenchMeasurement { seconds: 2.0, results, host: work, target, reconnects: 0 };
    let plans: Vec<_> = plans(line, 1).unwrap().into_iter().map(Arc::new).collect();
    let manner = RunManner { policy: "i10".into(), threads: Some(2), ..RunManner::default() };
    BenchReport::new(&plans, manner, &measured)
}

#[test]
fn json_has_what_scripts_rely_on() {
    let json = serde_json::to_value(report(vec![lane(120, 40)], true)).unwrap();
    assert_eq!(json["iops"], 80.0);
    assert_eq!(json["bytes_per_second"], 80.0 * 4096.0);
    assert_eq!(json["requests"], 160);
    assert_eq!(json["errors"], 0);
    assert_eq!(
        (&json["settings"]["policy"], &json["settings"]["threads"]),
        (&"i10".into(), &2.into())
    );
    assert_eq!(json["host_cpu_seconds"], 0.8);
    assert_eq!(json["target_cpu_seconds"], 0.8);
    assert_eq!(json["cpu_ns_per_io"], 10_000_000.0);
    assert_eq!(json["requests_per_caravan"], 16.0);
    assert_eq!(json["target_requests_per_caravan"], 16.0);
    assert_eq!(json["sends_per_io"], 0.0625);
    assert_eq!(json["bytes_per_send"], 1152.0);
    assert_eq!(json["syscalls_per_io"], 0.4);
    assert_eq!(json["context_switches_per_io"], 0.2);
    assert_eq!(json["doorbells_size"], 9);
    assert_eq!(json["host"]["syscalls_per_io"], 0.2);
    assert_eq!(json["target"]["context_switches_per_io"], 0.1);
    assert_eq!(json["host"]["voluntary_switches_per_io"], 0.075);
    assert_eq!(json["read"]["requests"], 120);
    assert_eq!(json["write"]["iops"], 20.0);
    assert_eq!(json["lanes"].as_array().unwrap().len(), 1);
    for name in ["mean_us", "p50_us", "p99_us", "p999_us"] {
        assert!(json["latency"][name].as_f64().unwrap() > 49.0, "{name}");
    }
}

#[test]
fn streams_have_their_own_figures_and_share_the_cost() {
    let line = "--rw randrw --bs 4k --class latency --stream rw=write,bs=128k,depth=8,class=bulk \
                --stream rw=randread,lane=own,rate=5";
    let nothing = Batching::default();
    let shared = LaneResult { load: 1, batching: nothing, errors: 2, ..lane(0, 40) };
    let own = LaneResult { load: 2, lane: 1, unsent: 3, ..lane(40, 0) };
    let report = report_of(line, vec![lane(60, 20), shared, own], true);
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!((&json["requests"], &json["requests_total"]), (&80.into(), &160.into()));
    assert_eq!((&json["iops"], &json["errors"]), (&40.0.into(), &2.into()));
    assert_eq!((&json["cpu_ns_per_io"], &json["unsent"]), (&10_000_000.0.into(), &0.into()));
    assert_eq!(json["settings"]["class"], "latency");
    let bulk = &json["streams"][0];
    assert_eq!(
        (&bulk["rw"], &bulk["class"], &bulk["lane_choice"]),
        (&"write".into(), &"bulk".into(), &"shared".into())
    );
    assert_eq!(
        (&bulk["bs"], &bulk["depth"], &bulk["iops"]),
        (&131_072.into(), &8.into(), &20.0.into())
    );
    assert_eq!((&bulk["bytes_per_second"], &bulk["errors"]), (&2_621_440.0.into(), &2.into()));
    assert!(bulk["latency"]["p99_us"].as_f64().unwrap() > 99.0);
    assert_eq!(
        (&json["streams"][1]["unsent"], &json["streams"][1]["rate"]),
        (&3.into(), &5.0.into())
    );
    let per_lane: Vec<_> = report.lanes.iter().map(|lane| (lane.lane, lane.requests)).collect();
    assert_eq!(per_lane, [(0, 120), (1, 40)]);
    assert_eq!(report.host.requests_per_caravan, 16.0);
    let text = report.text();
    assert!(
        text.contains("stream 1: write 128 KiB bulk") && text.contains("stream 2: randread 4 KiB "),
        "{text}"
    );
}

#[test]
fn steps_are_reported() {
    let mut windows = vec![5u32; 200];
    windows[100..].fill(100);
    let halves = [windows.clone(), windows];
    let results = halves.map(|windows| LaneResult { windows, ..lane(1, 0) });
    let line = "--step depth=1:64,period-ms=200 --seconds 2";
    let report = report_of(line, results.into(), false);
    let json = serde_json::to_value(&report).unwrap();
    let step = &json["step"];
    assert_eq!((&step["low_iops"], &step["high_iops"]), (&10_000.0.into(), &200_000.0.into()));
    assert_eq!((&step["period_ms"], &step["settle_ms"]), (&200.into(), &1.0.into()));
    assert!(report.text().contains("load step        10.0 k IOPS at depth 1"), "{}", report.text());
    let report = report_of("", vec![lane(1, 0)], false);
    assert!(serde_json::to_value(&report).unwrap()["step"].is_null());
}

#[test]
fn nothing_is_no_nan() {
    let json = serde_json::to_string(&report(vec![lane(0, 0)], false)).unwrap();
    assert!(
        json.contains("\"iops\":0.0") && json.contains("\"target_cpu_seconds\":null"),
        "{json}"
    );
    let numbers: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(numbers["cpu_ns_per_io"], 0.0);
}

#[test]
fn people_see_errors() {
    let mut bad = lane(10, 0);
    bad.errors = 1;
    bad.error_texts.push("block 7 is blank, but was written".into());
    let text = report(vec![bad], true).text();
    assert!(text.starts_with("      IOPS"), "{text}");
    assert!(text.contains("errors           1\n  block 7 is blank"), "{text}");
}
