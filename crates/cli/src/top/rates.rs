//! Rates between two snapshots.

use roadtrain_reactor::metrics::{
    Batching, HostSample, IoCounters, LaneSample, Latency, MetricsSnapshot, NamespaceSample,
    ReactorSample,
};
use serde::Serialize;
use std::cmp::Ordering;
use std::collections::HashMap;

/// Rates and latencies of an interval.
#[derive(Clone, Debug, PartialEq, Default, Serialize)]
pub(super) struct IoRates {
    pub(super) iops: f64,
    pub(super) read_iops: f64,
    pub(super) write_iops: f64,
    pub(super) bytes_per_second: f64,
    pub(super) read_bytes_per_second: f64,
    pub(super) written_bytes_per_second: f64,
    /// Latencies of reads and writes, with the precision of buckets; null without requests.
    pub(super) p50_us: Option<f64>,
    pub(super) p99_us: Option<f64>,
    pub(super) p999_us: Option<f64>,
    pub(super) in_flight: i64,
    /// Null if caravans are not counted.
    pub(super) requests_per_caravan: Option<f64>,
    pub(super) errors_per_second: f64,
}

/// A namespace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct NamespaceRates {
    pub(super) nqn: String,
    pub(super) nsid: u32,
    pub(super) device: String,
    /// Place of the blocks; empty at an attachment.
    pub(super) store: String,
    pub(super) product: String,
    pub(super) capacity_bytes: u64,
    pub(super) read_only: bool,
    #[serde(flatten)]
    pub(super) rates: IoRates,
}

impl NamespaceRates {
    /// Returns the place of the blocks at a target, the device at an attachment.
    pub(super) fn place(&self) -> &str {
        if self.store.is_empty() { &self.device } else { &self.store }
    }
}

/// A host of a subsystem.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct HostRates {
    pub(super) nqn: String,
    pub(super) host_nqn: String,
    pub(super) address: Option<String>,
    pub(super) io_queues: u64,
    #[serde(flatten)]
    pub(super) rates: IoRates,
}

/// An I/O queue.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct LaneRates {
    pub(super) nqn: String,
    pub(super) host_nqn: String,
    pub(super) peer: String,
    pub(super) transport: String,
    pub(super) cntlid: u16,
    pub(super) qid: u16,
    pub(super) reactor: usize,
    pub(super) sends_per_second: f64,
    pub(super) receives_per_second: f64,
    /// Doorbells in a second, by cause: size, timer, urgent, drained.
    pub(super) doorbells_per_second: [f64; 4],
    pub(super) reconnects: u64,
    #[serde(flatten)]
    pub(super) rates: IoRates,
}

/// A reactor with the shares of its time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct ReactorShares {
    pub(super) reactor: usize,
    pub(super) core: Option<usize>,
    pub(super) busy: f64,
    pub(super) spin: f64,
    pub(super) idle: f64,
}

/// A target or an attachment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct ProcessRates {
    /// Name, or address.
    pub(super) id: String,
    /// `target` or `attachment`.
    pub(super) kind: &'static str,
    pub(super) state: String,
    pub(super) problems: Vec<String>,
    pub(super) version: String,
    pub(super) uptime_seconds: f64,
    /// Seconds between the two snapshots.
    pub(super) seconds: f64,
    pub(super) total: IoRates,
    pub(super) namespaces: Vec<NamespaceRates>,
    /// Namespaces that are not among the busiest.
    pub(super) namespaces_left_out: usize,
    pub(super) hosts: Vec<HostRates>,
    pub(super) lanes: Vec<LaneRates>,
    pub(super) reactors: Vec<ReactorShares>,
}

/// Computes the rates of a process between two snapshots.
pub(super) fn between(id: &str, before: &MetricsSnapshot, now: &MetricsSnapshot) -> ProcessRates {
    let seconds = now.unix_seconds - before.unix_seconds;
    // Another process has the name or address now: its counters started at zero.
    let nothing = MetricsSnapshot::default();
    let is_same = now.uptime_seconds >= before.uptime_seconds && seconds > 0.0;
    let (before, seconds) = match is_same {
        true => (before, seconds),
        false => (&nothing, now.uptime_seconds.max(1e-3)),
    };
    let of = SnapshotPair { before, now, seconds, namespaces: samples_of(before) };
    ProcessRates {
        id: id.to_owned(),
        kind: match now.kind {
            roadtrain_reactor::metrics::SnapshotKind::Target => "target",
            roadtrain_reactor::metrics::SnapshotKind::Attachment => "attachment",
        },
        state: now.state.clone(),
        problems: now.problems.clone(),
        version: now.version.clone(),
        uptime_seconds: now.uptime_seconds,
        seconds,
        total: of.total(),
        namespaces: now.namespaces.iter().map(|one| of.namespace(one)).collect(),
        namespaces_left_out: 0,
        hosts: now.hosts.iter().map(|one| of.host(one)).collect(),
        lanes: now.lanes.iter().map(|one| of.lane(one)).collect(),
        reactors: now.reactors.iter().map(|one| of.reactor(one)).collect(),
    }
}

/// Namespaces of a snapshot, by NQN and NSID.
type NamespaceSamples<'a> = HashMap<(&'a str, u32), &'a NamespaceSample>;

fn samples_of(snapshot: &MetricsSnapshot) -> NamespaceSamples<'_> {
    snapshot.namespaces.iter().map(|one| ((one.nqn.as_str(), one.nsid), one)).collect()
}

impl ProcessRates {
    /// Keeps the busiest `count` namespaces, in their order, and counts the others.
    pub(super) fn keep_busiest(&mut self, count: usize) {
        let Some(left_out) = self.namespaces.len().checked_sub(count).filter(|n| *n > 0) else {
            return;
        };
        let load = |one: &NamespaceRates| (one.rates.iops, one.rates.bytes_per_second);
        let mut by_load: Vec<usize> = (0..self.namespaces.len()).collect();
        by_load.sort_by(|a, b| {
            let (a, b) = (load(&self.namespaces[*a]), load(&self.namespaces[*b]));
            b.partial_cmp(&a).unwrap_or(Ordering::Equal)
        });
        let mut busiest = vec![false; self.namespaces.len()];
        by_load.iter().take(count).for_each(|at| busiest[*at] = true);
        let mut is_busiest = busiest.into_iter();
        self.namespaces.retain(|_| is_busiest.next().unwrap_or_default());
        self.namespaces_left_out += left_out;
    }
}

struct SnapshotPair<'a> {
    before: &'a MetricsSnapshot,
    now: &'a MetricsSnapshot,
    seconds: f64,
    /// Namespaces of `before`.
    namespaces: NamespaceSamples<'a>,
}

impl SnapshotPair<'_> {
    fn per_second(&self, before: u64, now: u64) -> f64 {
        now.saturating_sub(before) as f64 / self.seconds
    }

    fn rates(&self, before: Option<&IoCounters>, now: &IoCounters) -> IoRates {
        let nothing = IoCounters::default();
        let before = before.unwrap_or(&nothing);
        let read_bytes = self.per_second(before.read_bytes, now.read_bytes);
        let written_bytes = self.per_second(before.written_bytes, now.written_bytes);
        let mut latency = Latency::default();
        latency += &now.read_latency.since(&before.read_latency);
        latency += &now.write_latency.since(&before.write_latency);
        let us = |share| latency.quantile(share).map(|seconds| seconds * 1e6);
        IoRates {
            iops: self.per_second(before.commands(), now.commands()),
            read_iops: self.per_second(before.reads, now.reads),
            write_iops: self.per_second(before.writes, now.writes),
            bytes_per_second: read_bytes + written_bytes,
            read_bytes_per_second: read_bytes,
            written_bytes_per_second: written_bytes,
            p50_us: us(0.5),
            p99_us: us(0.99),
            p999_us: us(0.999),
            in_flight: now.in_flight.max(0),
            requests_per_caravan: None,
            errors_per_second: self.per_second(before.errors, now.errors),
        }
    }

    /// Computes the rates of the whole process: its namespaces, and its reactors' sends.
    fn total(&self) -> IoRates {
        let sum = |snapshot: &MetricsSnapshot| match &snapshot.attachment {
            Some(attachment) => attachment.io.clone(),
            None => {
                let mut sum = IoCounters::default();
                snapshot.namespaces.iter().for_each(|one| sum += &one.io);
                sum
            }
        };
        let batching = |snapshot: &MetricsSnapshot| {
            let each = snapshot.reactors.iter().map(|reactor| reactor.batching);
            each.fold(Batching::default(), |sum, one| sum + one)
        };
        let rates = self.rates(Some(&sum(self.before)), &sum(self.now));
        let sent = per_caravan(batching(self.now) - batching(self.before));
        IoRates { requests_per_caravan: sent, ..rates }
    }

    fn namespace(&self, now: &NamespaceSample) -> NamespaceRates {
        let before = self.namespaces.get(&(now.nqn.as_str(), now.nsid));
        NamespaceRates {
            nqn: now.nqn.clone(),
            nsid: now.nsid,
            device: now.device.clone(),
            store: now.store.clone(),
            product: now.product.clone(),
            capacity_bytes: now.capacity_bytes,
            read_only: now.read_only,
            rates: self.rates(before.map(|one| &one.io), &now.io),
        }
    }

    fn host(&self, now: &HostSample) -> HostRates {
        let is_it = |one: &&HostSample| (&one.nqn, &one.host_nqn) == (&now.nqn, &now.host_nqn);
        let before = self.before.hosts.iter().find(is_it);
        let lanes = self.now.lanes.iter();
        let own = lanes.filter(|lane| (&lane.nqn, &lane.host_nqn) == (&now.nqn, &now.host_nqn));
        let sent = own.map(|lane| self.batching(lane)).reduce(|sum, one| sum + one);
        let rates = self.rates(before.map(|one| &one.io), &now.io);
        HostRates {
            nqn: now.nqn.clone(),
            host_nqn: now.host_nqn.clone(),
            address: now.address.clone(),
            io_queues: now.io_queues,
            rates: IoRates { requests_per_caravan: sent.and_then(per_caravan), ..rates },
        }
    }

    fn lane_before(&self, now: &LaneSample) -> Option<&LaneSample> {
        let key = |lane: &LaneSample| (lane.cntlid, lane.qid, lane.peer.clone());
        self.before.lanes.iter().find(|lane| key(lane) == key(now))
    }

    fn batching(&self, now: &LaneSample) -> Batching {
        now.batching - self.lane_before(now).map(|lane| lane.batching).unwrap_or_default()
    }

    fn lane(&self, now: &LaneSample) -> LaneRates {
        let sent = self.batching(now);
        let mut rates = self.rates(self.lane_before(now).map(|lane| &lane.io), &now.io);
        if rates.iops == 0.0 && sent.requests > 0 {
            // An attachment counts only its lanes' requests.
            rates.iops = sent.requests as f64 / self.seconds;
            rates.bytes_per_second = sent.data_bytes as f64 / self.seconds;
        }
        let rate = |count: u64| count as f64 / self.seconds;
        LaneRates {
            nqn: now.nqn.clone(),
            host_nqn: now.host_nqn.clone(),
            peer: now.peer.clone(),
            transport: now.transport.clone(),
            cntlid: now.cntlid,
            qid: now.qid,
            reactor: now.reactor,
            sends_per_second: rate(sent.sends),
            receives_per_second: rate(sent.receives),
            doorbells_per_second: [
                rate(sent.doorbells_size),
                rate(sent.doorbells_timer),
                rate(sent.doorbells_urgent),
                rate(sent.doorbells_drained),
            ],
            reconnects: now.reconnects,
            rates: IoRates { requests_per_caravan: per_caravan(sent), ..rates },
        }
    }

    fn reactor(&self, now: &ReactorSample) -> ReactorShares {
        let before = self.before.reactors.iter().find(|one| one.reactor == now.reactor);
        let share = |of: fn(&ReactorSample) -> f64| {
            let spent = of(now) - before.map_or(0.0, of);
            (spent / self.seconds).clamp(0.0, 1.0)
        };
        ReactorShares {
            reactor: now.reactor,
            core: now.core,
            busy: share(|of| of.busy_seconds),
            spin: share(|of| of.spin_seconds),
            idle: share(|of| of.idle_seconds),
        }
    }
}

fn per_caravan(sent: Batching) -> Option<f64> {
    (sent.caravans > 0).then(|| sent.caravan_requests as f64 / sent.caravans as f64)
}
