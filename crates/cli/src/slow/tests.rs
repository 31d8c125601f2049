use super::*;
use roadtrain_reactor::recorded::StageTime;
use serde_json::{Value, json};
use std::collections::BTreeMap;

fn stages(names: &[&str], us: &[f64]) -> Vec<StageTime> {
    let stage = |(stage, us): (&&str, &f64)| StageTime { stage: (*stage).to_owned(), us: *us };
    names.iter().zip(us).map(stage).collect()
}

fn at_host(begun_us: u64, cid: u16, us: [f64; 4]) -> RecordedRequest {
    RecordedRequest {
        why: RecordingReason::Slow,
        cid,
        op: "read".into(),
        nsid: 1,
        lba: Some(4096),
        bytes: 4096,
        status: "success".into(),
        unix_seconds: 1_700_000_000.5,
        begun_ns: begun_us * 1000,
        total_us: us.iter().sum(),
        longest: "target".into(),
        stages: stages(&["lane", "caravan", "target", "data"], &us),
        ..RecordedRequest::default()
    }
}

fn at_target(begun_us: u64, cid: u16, us: [f64; 5]) -> RecordedRequest {
    RecordedRequest {
        end: RecordingEnd::Target,
        longest: "store".into(),
        total_us: us.iter().sum(),
        stages: stages(&["buffer", "data", "store", "caravan", "send"], &us),
        ..at_host(begun_us, cid, [0.0; 4])
    }
}

fn source(id: &str, line: ConnectionInfo, requests: Vec<RecordedRequest>) -> RecordSource {
    let reactors = vec![RecorderState { slow_over_us: Some(120.4), sampled_one_in: 64 }];
    let (boot, connections) = ("boot".to_owned(), vec![line]);
    let recorded =
        RecordedRequests { boot, reactors, connections, requests, ..RecordedRequests::default() };
    RecordSource { id: id.into(), recorded }
}

/// Returns a host and its target.
fn both(host: Vec<RecordedRequest>, target: Vec<RecordedRequest>) -> [RecordSource; 2] {
    let (local, peer) = ("127.0.0.1:5555".to_owned(), "127.0.0.1:4420".to_owned());
    let here = ConnectionInfo { local, peer, qid: 2, ..ConnectionInfo::default() };
    let (peer, host_nqn) = ("[::ffff:127.0.0.1]:5555".to_owned(), "nqn.x:host".to_owned());
    let there = ConnectionInfo { peer, host_nqn, qid: 2, cntlid: 1, ..ConnectionInfo::default() };
    [source("nbd0", here, host), source("target0", there, target)]
}

#[test]
fn the_slowest_come_first_with_what_the_other_end_has_seen() {
    let sources = both(
        vec![at_host(1000, 5, [0.0, 1.0, 300.0, 2.0]), at_host(5000, 6, [0.0, 1.0, 900.0, 2.0])],
        vec![
            at_target(1050, 5, [0.0, 0.0, 200.0, 1.0, 3.0]),
            at_target(9000, 6, [0.0, 0.0, 500.0, 1.0, 3.0]), // another use of the identifier
        ],
    );
    let report = report(&sources, 20, false);
    let listed: Vec<_> = report
        .requests
        .iter()
        .map(|shown| (shown.id, shown.request.total_us, shown.other_end.as_ref().map(|o| o.id)))
        .collect();
    let expected =
        [("nbd0", 903.0, None), ("target0", 504.0, None), ("nbd0", 303.0, Some("target0"))];
    assert_eq!(listed, expected);
    let text = text(&report, None);
    for part in [
        "nbd0: slow is over 120 us now, by reactor; one in 64 is sampled",
        "time (UTC)",
        "22:13:20.500  nbd0     read  4KiB  4096",
        "lane 0 us  caravan 1.00 us  *target 300 us  data 2.00 us",
        "there:      target0  read",
        "buffer 0 us  data 0 us  *store 200 us  caravan 1.00 us  send 3.00 us",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    assert_eq!(super::report(&sources, 1, false).requests.len(), 1);
}

#[test]
fn requests_are_joined_only_where_that_is_sure() {
    let host = || vec![at_host(1000, 5, [0.0, 1.0, 300.0, 2.0])];
    let target = |begun| at_target(begun, 5, [0.0, 0.0, 200.0, 1.0, 3.0]);
    let joined = |sources: &[RecordSource]| {
        JoinedRequests::new(sources)
            .other_end(join::RecordIndex { source: 0, request: 0 })
            .is_some()
    };
    assert!(joined(&both(host(), vec![target(1050)])));
    assert!(!joined(&both(host(), vec![target(1050), target(1060)])), "there are two");
    assert!(!joined(&both(host(), vec![target(800)])), "before it");
    assert!(!joined(&both(host(), vec![target(1300)])), "longer than it");
    let mut other_boot = both(host(), vec![target(1050)]);
    other_boot[1].recorded.boot = "another".into();
    assert!(!joined(&other_boot));
    let mut other_queue = both(host(), vec![target(1050)]);
    other_queue[1].recorded.connections[0].qid = 3;
    assert!(!joined(&other_queue));
    let mut other_port = both(host(), vec![target(1050)]);
    other_port[1].recorded.connections[0].peer = "127.0.0.1:5556".into();
    assert!(!joined(&other_port));
}

#[test]
fn sampled_requests_are_shown_on_request() {
    let sampled = RecordedRequest { why: RecordingReason::Sampled, ..at_host(1, 1, [1.0; 4]) };
    let [source, _] = both(vec![sampled], Vec::new());
    let sources = [source];
    assert_eq!(report(&sources, 20, false).requests.len(), 0);
    assert!(text(&report(&sources, 20, false), None).contains("no recent request was slow"));
    assert_eq!(report(&sources, 20, true).requests.len(), 1);
    assert!(text(&report(&[], 20, true), None).contains("nothing"));
}

#[test]
fn json_has_the_lines_and_both_ends() {
    let sources = both(
        vec![at_host(1000, 5, [0.0, 1.0, 300.0, 2.0])],
        vec![at_target(1050, 5, [0.0, 0.0, 200.0, 1.0, 3.0])],
    );
    let value = json!(report(&sources, 20, false));
    let request = &value["recorded_requests"][0];
    assert_eq!((&request["id"], &request["end"]), (&json!("nbd0"), &json!("host")));
    assert_eq!(request["line"]["peer"], "127.0.0.1:4420");
    assert_eq!(request["other_end"]["line"]["host_nqn"], "nqn.x:host");
    assert_eq!(request["other_end"]["stages"][2], json!({"stage": "store", "us": 200.0}));
    assert_eq!(value["recorders"][1]["reactors"][0]["sampled_one_in"], 64);
}

/// Checks that slices of a track nest or do not overlap, and that stages lie within their request; returns the tracks'
/// names.
fn check_nesting(trace: &Value) -> BTreeMap<(u64, u64), String> {
    let ns = |value: &Value| (value.as_f64().unwrap() * 1e3).round() as u64;
    let mut names = BTreeMap::new();
    let mut open: BTreeMap<(u64, u64), Vec<(u64, u64)>> = BTreeMap::new();
    for event in trace["traceEvents"].as_array().unwrap() {
        let track = (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap_or(0));
        match event["ph"].as_str().unwrap() {
            "M" if event["name"] == "thread_name" => {
                names.insert(track, event["args"]["name"].as_str().unwrap().to_owned());
            }
            "X" => {
                assert!(names.contains_key(&track), "a track without a name: {event}");
                let (from, length) = (ns(&event["ts"]), ns(&event["dur"]));
                let stack = open.entry(track).or_default();
                while stack.last().is_some_and(|(_, end)| *end <= from) {
                    stack.pop();
                }
                let outer = stack.last().copied();
                let is_stage = event["cat"] == "stage";
                assert_eq!(outer.is_some(), is_stage, "{event}");
                assert!(
                    outer.is_none_or(|(begun, end)| begun <= from && from + length <= end),
                    "{event}"
                );
                stack.push((from, from + length));
            }
            _ => {}
        }
    }
    names
}

#[test]
fn a_trace_nests_stages_in_requests_and_overlapping_requests_are_side_by_side() {
    let host: Vec<_> = (0..40u16)
        .map(|n| at_host(1000 + u64::from(n) * 50, n, [0.333, 1.777, 140.001 + f64::from(n), 2.5]))
        .collect();
    let target =
        (0..40u16).map(|n| at_target(1010 + u64::from(n) * 50, n, [0.0, 0.1, 100.033, 1.0, 3.009]));
    let sources = both(host, target.collect());
    let trace: Value = serde_json::from_str(&trace::trace(&sources).to_string()).unwrap();
    let names = check_nesting(&trace);
    let names: Vec<&str> = names.values().map(String::as_str).collect();
    assert!(names.contains(&"lane 2") && names.contains(&"lane 2 +1"), "{names:?}");
    assert!(names.contains(&"nqn.x:host lane 2 of controller 1"), "{names:?}");
    let events = trace["traceEvents"].as_array().unwrap();
    let count = |ph: &str| events.iter().filter(|event| event["ph"] == ph).count();
    assert_eq!((count("s"), count("f")), (40, 40), "an arrow for each request");
    let slices = events.iter().filter(|event| event["ph"] == "X" && event["cat"] == "slow");
    assert_eq!(slices.count(), 80);
    let stage = events.iter().find(|event| event["name"] == "store").unwrap();
    assert_eq!(stage["dur"], 100.033);
}
