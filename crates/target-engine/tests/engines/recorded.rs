//! Records of the same requests at both ends.

use crate::harness::*;
use roadtrain_host_engine::{HostClient, HostConfig};
use roadtrain_proto::recorder::SlowOver;
use roadtrain_reactor::recorded::{
    RecordedRequest, RecordedRequests, RecordingEnd, RecordingReason,
};
use roadtrain_system::buffer::Buffer;
use roadtrain_target_engine::{Server, ServerConfig};
use std::time::Duration;

/// Service time of the store, and threshold of slow requests.
const SERVICE: Duration = Duration::from_millis(20);
const SLOW: Duration = Duration::from_millis(10);

fn both(slow_over: SlowOver) -> (Server, HostClient) {
    let namespaces = vec![memory(1, MIB, 512), ssd(2, MIB, 512, SERVICE, 4)];
    let config = server_config(namespaces);
    let server = Server::start(ServerConfig { slow_over, ..config }).unwrap();
    let config = HostConfig { slow_over, lanes: 1, ..host_config(address(&server)) };
    let client = HostClient::connect(config).unwrap();
    (server, client)
}

/// Returns the records of both ends. Retries until no reactor has missed its time limit.
fn recorded_by(client: &HostClient, server: &Server) -> (RecordedRequests, RecordedRequests) {
    let query = || (client.recorded(), server.recorded());
    let mut both = query();
    eventually("both answer", || {
        let is_whole = !both.0.reactors.is_empty() && !both.1.reactors.is_empty();
        if !is_whole {
            both = query();
        }
        is_whole
    });
    both
}

fn us(request: &RecordedRequest, name: &str) -> f64 {
    let stage = request.stages.iter().find(|stage| stage.stage == name);
    stage.unwrap_or_else(|| panic!("no {name} in {request:?}")).us
}

/// Checks that the stage named as the longest is the longest.
fn assert_longest(request: &RecordedRequest) {
    let longest = us(request, &request.longest);
    assert!(request.stages.iter().all(|stage| stage.us <= longest), "{request:?}");
}

fn slow(recorded: &RecordedRequests) -> Vec<&RecordedRequest> {
    recorded.requests.iter().filter(|request| request.why == RecordingReason::Slow).collect()
}

#[test]
fn a_slow_store_is_seen_at_both_ends() {
    let (server, client) = both(SlowOver::Time(SLOW));
    for block in 0..8 {
        client.read(2, block, Buffer::alloc(4096)).unwrap();
        client.write(2, 64 + block, Buffer::alloc(512), false).unwrap();
    }
    let (here, there) = recorded_by(&client, &server);
    let at_host: Vec<_> = slow(&here).into_iter().filter(|request| request.nsid == 2).collect();
    let at_target: Vec<_> = slow(&there).into_iter().filter(|request| request.nsid == 2).collect();
    assert_eq!((at_host.len(), at_target.len()), (16, 16), "{here:?} {there:?}");
    let mut by_the_store = 0;
    let least = SERVICE.as_secs_f64() * 1e6 - 1000.0;
    for (host, target) in at_host.into_iter().zip(at_target) {
        assert_eq!((host.end, target.end), (RecordingEnd::Host, RecordingEnd::Target));
        assert_eq!((host.cid, &host.op, host.lba), (target.cid, &target.op, target.lba));
        assert_eq!((host.bytes, &*host.status), (target.bytes, "success"));
        assert_longest(host);
        assert_longest(target);
        // On a busy machine another stage may occasionally take longer.
        by_the_store += usize::from((&*host.longest, &*target.longest) == ("target", "store"));
        assert!(us(host, "target") >= least && us(target, "store") >= least, "{host:?} {target:?}");
        let sum: f64 = target.stages.iter().map(|stage| stage.us).sum();
        assert!((sum - target.total_us).abs() < 1.0, "{target:?}");
        let (line, other) =
            (&here.connections[host.connection], &there.connections[target.connection]);
        assert_eq!((&line.local, line.qid), (&other.peer, other.qid));
        assert!(host.begun_ns <= target.begun_ns + 1_000_000, "one clock");
    }
    assert!(by_the_store > 8, "{here:?} {there:?}");
    assert_eq!(here.boot, there.boot);
}

#[test]
fn fast_requests_are_sampled() {
    let (server, client) = both(SlowOver::P99);
    for block in 0..2000u64 {
        client.read(1, block % 8, Buffer::alloc(512)).unwrap();
        client.write(1, block % 8, Buffer::alloc(512), false).unwrap();
    }
    for recorded in <[RecordedRequests; 2]>::from(recorded_by(&client, &server)) {
        let sampled =
            recorded.requests.iter().filter(|request| request.why == RecordingReason::Sampled);
        let ops: Vec<&str> = sampled.map(|request| &*request.op).collect();
        assert!(ops.len() >= 8, "{ops:?}");
        assert!(ops.contains(&"read") && ops.contains(&"write"), "{ops:?}");
        assert!(recorded.reactors[0].slow_over_us.is_some());
    }
}

#[test]
fn nothing_is_recorded_when_it_is_off() {
    let (server, client) = both(SlowOver::Never);
    client.read(2, 0, Buffer::alloc(512)).unwrap();
    (0..500).for_each(|_| _ = client.read(1, 0, Buffer::alloc(512)).unwrap());
    for recorded in <[RecordedRequests; 2]>::from(recorded_by(&client, &server)) {
        assert!(recorded.requests.is_empty());
        assert_eq!(recorded.reactors[0].slow_over_us, None);
    }
}
