//! Tests of the families with made-up snapshots.

use super::super::encode::{Format, text};
use super::super::managed::{Calls, ManagementSample, StoreSample};
use super::*;
use roadtrain_reactor::metrics::{
    AnaSample, AttachmentSample, ConnectionCount, DeviceSample, GatewaySample, LaneSample,
    LinkSample, PathSample, StatusCount, TransportSample,
};
use std::collections::{BTreeMap, BTreeSet};

const PAGE: &str = include_str!("../../../../../docs/reference/metrics.md");

fn some(reason: &str) -> Vec<ReasonCount> {
    vec![ReasonCount { reason: reason.into(), count: 2 }]
}

fn io() -> IoCounters {
    let latency = Latency { buckets: vec![1, 2, 3], sum_seconds: 6e-5 };
    IoCounters {
        reads: 6,
        writes: 6,
        read_latency: latency.clone(),
        write_latency: latency,
        ..IoCounters::default()
    }
}

/// Returns a snapshot with a sample of every kind.
fn full(kind: SnapshotKind) -> MetricsSnapshot {
    let of =
        |op: &str| LatencyOf { op: op.into(), class: "normal".into(), latency: io().read_latency };
    let reactor = ReactorSample {
        caravan_sizes: vec![1; 12],
        latencies: vec![of("read"), of("write")],
        ..ReactorSample::default()
    };
    let host = HostSample {
        losses: some("closed"),
        refused_connects: some("HOSTNQN"),
        io: io(),
        ..HostSample::default()
    };
    let connection =
        ConnectionCount { transport: "tcp".into(), outcome: "accepted".into(), count: 1 };
    MetricsSnapshot {
        kind,
        id: "a \"name\"\\".into(),
        last_reload_successful: Some(true),
        reactors: vec![reactor],
        namespaces: vec![NamespaceSample {
            statuses: vec![StatusCount { status: "x".into(), count: 2 }],
            io: io(),
            ..NamespaceSample::default()
        }],
        hosts: vec![host],
        lanes: vec![LaneSample::default()],
        subsystems: vec![SubsystemSample {
            ana_listeners: vec![AnaSample {
                listener: "[::1]:4420".into(),
                ana: "optimized".into(),
            }],
            ..SubsystemSample::default()
        }],
        transports: TransportSample {
            listeners: vec!["[::1]:4420".into()],
            connection_counts: vec![connection],
            protocol_errors: some("LimitExceeded"),
            digest_errors: some("data"),
            frames: vec![FrameCount { interface: "eth1".into(), ..FrameCount::default() }],
            frames_dropped: some("token"),
            ..TransportSample::default()
        },
        links: vec![LinkSample::default()],
        paths: vec![PathSample { ana: Some("change".into()), ..PathSample::default() }],
        attachment: Some(AttachmentSample { io: io(), ..AttachmentSample::default() }),
        ..MetricsSnapshot::default()
    }
}

fn managed() -> ManagementSample {
    let call = Calls {
        method: "spdk_get_version".into(),
        codes: vec![(0, 5), (-32602, 1)],
        latency: io().read_latency,
    };
    let store = StoreSample { name: "lvs0".into(), ..StoreSample::default() };
    ManagementSample { calls: vec![call], state_write_errors: 1, stores: vec![store] }
}

/// Families with their type and labels.
type Families = BTreeMap<String, (String, BTreeSet<String>)>;

fn families(text: &str) -> Families {
    let mut found = Families::new();
    let mut family = String::new();
    for line in text.lines() {
        if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            family = name.to_owned();
            found.insert(family.clone(), (kind.to_owned(), BTreeSet::new()));
        } else if !line.starts_with('#') {
            let labels =
                line.split_once('{').map_or("", |(_, rest)| rest.rsplit_once('}').unwrap().0);
            let names = labels.split("\",").filter_map(|label| label.split_once('='));
            let names = names.map(|(name, _)| name.to_owned()).filter(|name| name != "le");
            found.get_mut(&family).unwrap().1.extend(names);
        }
    }
    found
}

fn on_the_page() -> Families {
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let name = cells.get(1)?.strip_prefix('`')?.strip_suffix('`')?;
        let labels = cells.get(3)?.split(',').map(|label| label.trim().trim_matches('`'));
        let labels = labels.filter(|label| !label.is_empty()).map(str::to_owned).collect();
        Some((name.to_owned(), (cells.get(2)?.to_string(), labels)))
    };
    PAGE.lines().filter(|line| line.starts_with("| `")).filter_map(row).collect()
}

#[test]
fn the_page_has_every_metric_with_its_labels() {
    let shown = [SnapshotKind::Target, SnapshotKind::Attachment]
        .map(|kind| text(&full(kind), Some(&managed()), Format::Plain));
    let mut shown: Vec<Families> = shown.iter().map(|text| families(text)).collect();
    let mut all = shown.remove(0);
    for (name, (kind, labels)) in shown.remove(0) {
        all.entry(name).or_insert_with(|| (kind, BTreeSet::new())).1.extend(labels);
    }
    let page = on_the_page();
    let row = |(name, (kind, labels)): (&String, &(String, BTreeSet<String>))| {
        let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
        format!("| `{name}` | {kind} | {} | ... |", labels.join(", "))
    };
    let missing = all.iter().filter(|(name, _)| !page.contains_key(*name)).map(row);
    let missing: Vec<String> = missing.collect();
    assert!(missing.is_empty(), "docs/reference/metrics.md lacks\n{}", missing.join("\n"));
    assert_eq!(page, all);
}

#[test]
fn names_and_numbers_are_as_prometheus_wants_them() {
    for kind in [SnapshotKind::Target, SnapshotKind::Attachment] {
        let text = text(&full(kind), Some(&managed()), Format::Plain);
        let mut series = BTreeSet::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().is_ok(), "{line}");
            assert!(series.insert(name), "twice: {name}");
        }
        for (name, (kind, _)) in families(&text) {
            assert_eq!(name.ends_with("_total"), kind == "counter", "{name}");
            assert!(name.starts_with("roadtrain_") || name.starts_with("process_"), "{name}");
        }
    }
}

#[test]
fn a_scrape_of_a_thousand_namespaces_is_as_long_as_it_has_to_be() {
    let mut snapshot = full(SnapshotKind::Target);
    let one = snapshot.namespaces[0].clone();
    let number = |nsid| NamespaceSample { nsid, device: format!("{nsid}"), ..one.clone() };
    snapshot.namespaces = (1..=1000).map(number).collect();
    let text = text(&snapshot, None, Format::Plain);
    let lines = text.lines().filter(|line| line.contains("nsid=") || line.contains("bdev_name="));
    assert_eq!(lines.count(), 1000 * (8 + 1 + 10 + 1 + 2 * 13));
}

/// Asserts that the text has that sample once, in any order of its labels.
#[track_caller]
fn has(text: &str, name: &str, labels: &[(&str, &str)], value: &str) {
    let is_it = |line: &&str| {
        let Some(rest) = line.strip_prefix(name).and_then(|rest| rest.strip_prefix('{')) else {
            return false;
        };
        let (own, shown) = rest.rsplit_once("} ").unwrap();
        shown == value
            && labels.iter().all(|(label, of)| own.contains(&format!("{label}=\"{of}\"")))
    };
    let count = text.lines().filter(is_it).count();
    assert_eq!(count, 1, "{name} {labels:?} {value} in\n{text}");
}

/// Returns a target with an image, a device without a namespace, two subsystems and a host.
fn like_a_gateway() -> MetricsSnapshot {
    let image = NamespaceSample {
        nqn: "n:a".into(),
        nsid: 3,
        ana_group: 7,
        device: "bdev_1".into(),
        product: "Ceph Rbd Disk".into(),
        store: "rbd:pool/of/disk".into(),
        block_bytes: 4096,
        io: io(),
        ..NamespaceSample::default()
    };
    let spare = DeviceSample {
        name: "spare".into(),
        product: "Malloc disk".into(),
        capacity_bytes: 7,
        ..DeviceSample::default()
    };
    let subsystem = |nqn: &str, namespaces_max, listener_count| SubsystemSample {
        nqn: nqn.into(),
        namespaces_max,
        listener_count,
        named_hosts: vec!["h:1".into(), "h:2".into()],
        shared: nqn == "n:a",
        ..SubsystemSample::default()
    };
    let host = HostSample {
        nqn: "n:a".into(),
        host_nqn: "h:1".into(),
        address: Some("192.0.2.9:5".into()),
        io_queues: 2,
        ..HostSample::default()
    };
    MetricsSnapshot {
        id: "target0".into(),
        namespaces: vec![image],
        unused_devices: vec![spare],
        subsystems: vec![subsystem("n:a", 256, 2), subsystem("n:b", 1024, 1)],
        hosts: vec![host],
        ..full(SnapshotKind::Target)
    }
}

/// ceph-nvmeof's dashboards use these metrics.
#[test]
fn devices_and_subsystems_are_said_as_ceph_nvmeof_says_them() {
    let mut shown = like_a_gateway();
    let alone = text(&shown, None, Format::Plain);
    has(
        &alone,
        "roadtrain_gateway_info",
        &[("name", "target0"), ("group", "_null_"), ("addr", "::1"), ("port", "4420")],
        "1",
    );
    let group = GatewaySample { name: "gw1".into(), group: "blue".into() };
    shown.gateway = Some(group);
    let text = text(&shown, None, Format::Plain);
    has(&text, "roadtrain_gateway_info", &[("name", "gw1"), ("group", "blue")], "1");
    let labels = [
        ("bdev_name", "bdev_1"),
        ("pool_name", "pool"),
        ("namespace", "of"),
        ("rbd_name", "disk"),
        ("block_size", "4096"),
    ];
    has(&text, "roadtrain_bdev_metadata", &labels, "1");
    let labels = [("bdev_name", "spare"), ("product_name", "Malloc disk"), ("pool_name", "")];
    has(&text, "roadtrain_bdev_metadata", &labels, "1");
    has(&text, "roadtrain_bdev_capacity_bytes", &[("bdev_name", "spare")], "7");
    has(&text, "roadtrain_bdev_reads_completed_total", &[("bdev_name", "spare")], "0");
    has(&text, "roadtrain_bdev_reads_completed_total", &[("bdev_name", "bdev_1")], "6");
    for (nqn, limit, listeners, ha) in [("n:a", "256", "2", "yes"), ("n:b", "1024", "1", "no")] {
        let of = [("nqn", nqn)];
        has(&text, "roadtrain_subsystem_namespace_limit", &of, limit);
        has(&text, "roadtrain_subsystem_listener_count", &of, listeners);
        has(&text, "roadtrain_subsystem_host_count", &of, "2");
        let labels =
            [("nqn", nqn), ("ha_enabled", ha), ("group", "blue"), ("allow_any_host", "yes")];
        has(&text, "roadtrain_subsystem_metadata", &labels, "1");
    }
    let labels = [("nqn", "n:a"), ("nsid", "3"), ("bdev_name", "bdev_1"), ("anagrpid", "7")];
    has(&text, "roadtrain_subsystem_namespace_metadata", &labels, "1");
    let state = |host, address, value| {
        let labels =
            [("gw_name", "gw1"), ("nqn", "n:a"), ("host_nqn", host), ("host_addr", address)];
        has(&text, "roadtrain_host_connection_state", &labels, value);
    };
    state("h:1", "192.0.2.9:5", "1");
    state("h:2", "<n/a>", "0");
}

#[test]
fn listeners_are_in_one_ana_state_each() {
    let mut shown = full(SnapshotKind::Target);
    shown.subsystems[0].nqn = "n:a".into();
    shown.subsystems[0].ana_listeners[0].ana = "non-optimized".into();
    let text = text(&shown, None, Format::Plain);
    for (state, value) in [("optimized", "0"), ("non-optimized", "1"), ("inaccessible", "0")] {
        let labels = [("nqn", "n:a"), ("listener", "[::1]:4420"), ("state", state)];
        has(&text, "roadtrain_listener_ana_state", &labels, value);
    }
}

#[test]
fn paths_are_distinguished_by_their_addresses() {
    let path = |address: &str, state: &str, ana: Option<&str>| PathSample {
        address: address.into(),
        state: state.into(),
        ana: ana.map(str::to_owned),
        requests: 5,
        data_bytes: 4096,
        loss_count: 1,
        in_flight: 3,
        waiting_requests: 2,
    };
    let paths = vec![path("a:1", "live", Some("optimized")), path("b:1", "lost", None)];
    let shown = MetricsSnapshot { id: "disk".into(), paths, ..full(SnapshotKind::Attachment) };
    let text = text(&shown, None, Format::Plain);
    let of = |address| [("id", "disk"), ("address", address)];
    for (address, live, lost) in [("a:1", "1", "0"), ("b:1", "0", "1")] {
        let [id, at] = of(address);
        has(&text, "roadtrain_path_state", &[id, at, ("state", "live")], live);
        has(&text, "roadtrain_path_state", &[id, at, ("state", "lost")], lost);
        has(&text, "roadtrain_path_state", &[id, at, ("state", "connecting")], "0");
        has(&text, "roadtrain_path_requests_total", &of(address), "5");
        has(&text, "roadtrain_path_bytes_total", &of(address), "4096");
        has(&text, "roadtrain_path_losses_total", &of(address), "1");
        has(&text, "roadtrain_path_in_flight", &of(address), "3");
        has(&text, "roadtrain_path_waiting", &of(address), "2");
    }
    let [id, at] = of("a:1");
    has(&text, "roadtrain_path_ana_state", &[id, at, ("state", "optimized")], "1");
    has(&text, "roadtrain_path_ana_state", &[id, at, ("state", "change")], "0");
    let reported = text.lines().filter(|line| line.starts_with("roadtrain_path_ana_state{"));
    assert_eq!(
        reported.count(),
        AnaState::ALL.len(),
        "no samples of a state that was not reported"
    );
}

#[test]
fn an_attachment_has_the_caravans_of_all_its_reactors() {
    let mut shown = full(SnapshotKind::Attachment);
    let mut other = shown.reactors[0].clone();
    other.batching.caravan_requests = 30;
    shown.reactors.push(other);
    shown.id = "disk".into();
    let text = text(&shown, None, Format::Plain);
    has(&text, "roadtrain_caravan_size_requests_bucket", &[("id", "disk"), ("le", "1")], "2");
    has(&text, "roadtrain_caravan_size_requests_count", &[("id", "disk")], "24");
    has(&text, "roadtrain_caravan_size_requests_sum", &[("id", "disk")], "30.0");
}
