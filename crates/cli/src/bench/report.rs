//! The result: one JSON object, or a table for people.

use super::lane::LaneResult;
use super::latency::{Latencies, LatencyUs};
use super::plan::Plan;
use super::usage::Usage;
use crate::output::columns;
use crate::units::{show_bytes, show_count, show_us};
use roadtrain_engine::stats::LaneStats;
use serde::Serialize;

/// What was measured.
pub(super) struct Measured {
    /// Seconds of it.
    pub seconds: f64,
    /// Each lane's.
    pub lanes: Vec<LaneResult>,
    /// What this process used.
    pub host: Usage,
    /// What the own target used, and its counters.
    pub target: Option<(Usage, LaneStats)>,
}

/// The JSON object. Ratios are 0 where nothing happened.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    /// Requests a second.
    pub iops: f64,
    /// Octets of data a second.
    pub bytes_per_second: f64,
    /// Of reads and writes together.
    pub latency_us: LatencyUs,
    /// Requests that succeeded in the measured time.
    pub requests: u64,
    /// The measured time.
    pub seconds: f64,
    /// Requests that failed, and blocks that were wrong, at any time.
    pub errors: u64,
    /// The first of them, in words.
    pub error_texts: Vec<String>,
    /// Reads alone.
    pub read: Direction,
    /// Writes alone.
    pub write: Direction,
    /// CPU time of this process.
    pub host_cpu_seconds: f64,
    /// CPU time of the own target's process.
    pub target_cpu_seconds: Option<f64>,
    /// Both ends' if known, else this one's.
    pub cpu_ns_per_io: f64,
    /// Requests that one caravan of this end carried.
    pub requests_per_caravan: f64,
    /// This end's send calls for each request.
    pub sends_per_io: f64,
    /// Octets of one of them.
    pub bytes_per_send: f64,
    /// This end's doorbells by cause.
    pub doorbells: Doorbells,
    /// Send, receive and wait calls for each request, of both ends if known.
    pub syscalls_per_io: f64,
    /// Context switches for each request, of both ends if known.
    pub context_switches_per_io: f64,
    /// The own target's, the two most wanted.
    pub target_requests_per_caravan: Option<f64>,
    /// Octets of its sends.
    pub target_bytes_per_send: Option<f64>,
    /// This end's instruments.
    pub host: Instruments,
    /// The own target's.
    pub target: Option<Instruments>,
    /// Connections lost and made again.
    pub reconnects: u64,
    /// Blocks whose data was checked and right (`--verify`).
    pub blocks_checked: u64,
    /// Requests that were due but not sent when it ended (`--rate`).
    pub unsent: u64,
    /// What was asked for.
    pub settings: Settings,
    /// Each lane.
    pub lanes: Vec<Lane>,
}

/// Reads or writes.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Direction {
    pub requests: u64,
    pub iops: f64,
    pub bytes_per_second: f64,
    pub latency_us: LatencyUs,
}

/// Why it is as fast as it is.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Instruments {
    /// Requests (responses) that one caravan carried.
    pub requests_per_caravan: f64,
    /// Send calls for each request.
    pub sends_per_io: f64,
    /// Octets of a send call.
    pub bytes_per_send: f64,
    /// Doorbells by cause.
    pub doorbells: Doorbells,
    /// Send, receive and wait calls for each request.
    pub syscalls_per_io: f64,
    /// Of all threads of the process.
    pub context_switches_per_io: f64,
}

/// Doorbells by cause.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Doorbells {
    pub size: u64,
    pub timer: u64,
    pub urgent: u64,
    pub drained: u64,
}

/// What was asked for.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Settings {
    pub rw: String,
    pub rwmixread: u8,
    pub bs: usize,
    pub depth: u32,
    pub lanes: u32,
    pub policy: String,
    pub rate: Option<f64>,
    pub verify: bool,
    pub seed: u64,
}

/// One lane.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Lane {
    pub lane: u32,
    pub requests: u64,
    pub iops: f64,
    pub latency_us: LatencyUs,
    pub errors: u64,
    pub requests_per_caravan: f64,
    pub sends_per_io: f64,
    pub bytes_per_send: f64,
    pub doorbells: Doorbells,
    pub syscalls_per_io: f64,
}

impl Report {
    /// Adds it all up.
    #[must_use]
    pub(super) fn new(plan: &Plan, policy: &str, measured: &Measured) -> Report {
        let mut reads = Latencies::new();
        let mut writes = Latencies::new();
        let mut stats = LaneStats::default();
        for lane in &measured.lanes {
            reads.add(&lane.reads);
            writes.add(&lane.writes);
            stats = stats + lane.stats;
        }
        let mut all = reads.clone();
        all.add(&writes);
        let (requests, seconds) = (all.count(), measured.seconds);
        let cpu = |usage: &Usage| usage.cpu.as_secs_f64();
        let target = measured.target.as_ref();
        let cpu_seconds = cpu(&measured.host) + target.map_or(0.0, |(usage, _)| cpu(usage));
        let target_instruments =
            target.map(|(usage, stats)| Instruments::new(stats, requests, usage.switches));
        let host = Instruments::new(&stats, requests, measured.host.switches);
        let both = |count: fn(&Instruments) -> f64| {
            count(&host) + target_instruments.as_ref().map_or(0.0, count)
        };
        let (syscalls_per_io, context_switches_per_io) =
            (both(|end| end.syscalls_per_io), both(|end| end.context_switches_per_io));
        let lanes = &measured.lanes;
        Report {
            iops: ratio(requests as f64, seconds),
            bytes_per_second: ratio(requests as f64 * plan.slot_bytes() as f64, seconds),
            latency_us: all.summary(),
            requests,
            seconds,
            errors: lanes.iter().map(|lane| lane.errors).sum(),
            error_texts: lanes.iter().flat_map(|lane| lane.error_texts.clone()).take(5).collect(),
            read: Direction::new(plan, &reads, seconds),
            write: Direction::new(plan, &writes, seconds),
            host_cpu_seconds: cpu(&measured.host),
            target_cpu_seconds: target.map(|(usage, _)| cpu(usage)),
            cpu_ns_per_io: ratio(cpu_seconds * 1e9, requests as f64),
            requests_per_caravan: host.requests_per_caravan,
            sends_per_io: host.sends_per_io,
            bytes_per_send: host.bytes_per_send,
            doorbells: host.doorbells,
            syscalls_per_io,
            context_switches_per_io,
            target_requests_per_caravan: target_instruments
                .as_ref()
                .map(|t| t.requests_per_caravan),
            target_bytes_per_send: target_instruments.as_ref().map(|t| t.bytes_per_send),
            host,
            target: target_instruments,
            reconnects: stats.reconnects,
            blocks_checked: lanes.iter().map(|lane| lane.blocks_checked).sum(),
            unsent: lanes.iter().map(|lane| lane.unsent).sum(),
            settings: Settings::new(plan, policy),
            lanes: lanes.iter().map(|lane| Lane::new(lane, seconds)).collect(),
        }
    }

    /// For people.
    #[must_use]
    pub(super) fn text(&self) -> String {
        let mut text = self.directions();
        let cpu = |seconds: f64| {
            format!("{:.2} s ({:.2} cores)", seconds, seconds / self.seconds.max(1e-9))
        };
        let mut lines = vec![("host CPU", cpu(self.host_cpu_seconds))];
        if let Some(seconds) = self.target_cpu_seconds {
            lines.push(("target CPU", cpu(seconds)));
        }
        lines.push(("CPU per request", show_us(self.cpu_ns_per_io / 1e3)));
        lines.push(("host sends", self.host.text()));
        if let Some(target) = &self.target {
            lines.push(("target sends", target.text()));
        }
        if self.reconnects > 0 {
            lines.push(("reconnects", self.reconnects.to_string()));
        }
        if self.settings.verify {
            lines.push(("blocks checked", self.blocks_checked.to_string()));
        }
        if self.unsent * 1000 > self.requests {
            lines.push((
                "due, not sent",
                format!("{}: the rate is beyond what is possible", self.unsent),
            ));
        }
        if self.errors > 0 {
            lines.push(("errors", self.errors.to_string()));
        }
        text.push('\n');
        for (name, value) in lines {
            text.push_str(&format!("{name:<16} {value}\n"));
        }
        for error in &self.error_texts {
            text.push_str(&format!("  {error}\n"));
        }
        text
    }

    fn directions(&self) -> String {
        let row = |name: &str, iops: f64, bytes: f64, l: &LatencyUs| {
            let mut row =
                vec![name.to_owned(), show_count(iops), format!("{}/s", show_bytes(bytes as u64))];
            row.extend([l.mean, l.p50, l.p99, l.p999, l.max].map(show_us));
            row
        };
        let mut rows = Vec::new();
        for (name, d) in [("read", &self.read), ("write", &self.write)] {
            if d.requests > 0 {
                rows.push(row(name, d.iops, d.bytes_per_second, &d.latency_us));
            }
        }
        if rows.len() != 1 {
            rows.push(row("all", self.iops, self.bytes_per_second, &self.latency_us));
        }
        columns(&["", "IOPS", "bandwidth", "mean", "p50", "p99", "p99.9", "max"], &rows)
    }
}

impl Direction {
    fn new(plan: &Plan, latencies: &Latencies, seconds: f64) -> Direction {
        let requests = latencies.count();
        Direction {
            requests,
            iops: ratio(requests as f64, seconds),
            bytes_per_second: ratio(requests as f64 * plan.slot_bytes() as f64, seconds),
            latency_us: latencies.summary(),
        }
    }
}

impl Instruments {
    fn new(stats: &LaneStats, requests: u64, switches: u64) -> Instruments {
        let per_io = |count: u64| ratio(count as f64, requests as f64);
        Instruments {
            requests_per_caravan: ratio(stats.caravan_requests as f64, stats.caravans as f64),
            sends_per_io: per_io(stats.sends),
            bytes_per_send: ratio(stats.caravan_bytes as f64, stats.sends as f64),
            doorbells: Doorbells::new(stats),
            syscalls_per_io: per_io(stats.sends + stats.receives + stats.waits),
            context_switches_per_io: per_io(switches),
        }
    }

    fn text(&self) -> String {
        let d = &self.doorbells;
        format!(
            "{:.1} requests a caravan, {} a send; doorbells {} size, {} timer, {} urgent, {} drained; \
             {:.2} syscalls and {:.3} switches a request",
            self.requests_per_caravan,
            show_bytes(self.bytes_per_send as u64),
            d.size,
            d.timer,
            d.urgent,
            d.drained,
            self.syscalls_per_io,
            self.context_switches_per_io,
        )
    }
}

impl Doorbells {
    fn new(stats: &LaneStats) -> Doorbells {
        Doorbells {
            size: stats.doorbells_size,
            timer: stats.doorbells_timer,
            urgent: stats.doorbells_urgent,
            drained: stats.doorbells_drained,
        }
    }
}

impl Settings {
    fn new(plan: &Plan, policy: &str) -> Settings {
        Settings {
            rw: format!("{:?}", plan.rw).to_lowercase(),
            rwmixread: plan.rw.read_percent(plan.mix),
            bs: plan.slot_bytes(),
            depth: plan.depth,
            lanes: plan.lanes,
            policy: policy.to_owned(),
            rate: plan.rate,
            verify: plan.verify,
            seed: plan.author.seed,
        }
    }
}

impl Lane {
    fn new(lane: &LaneResult, seconds: f64) -> Lane {
        let mut all = lane.reads.clone();
        all.add(&lane.writes);
        let requests = all.count();
        let i = Instruments::new(&lane.stats, requests, 0);
        Lane {
            lane: lane.lane,
            requests,
            iops: ratio(requests as f64, seconds),
            latency_us: all.summary(),
            errors: lane.errors,
            requests_per_caravan: i.requests_per_caravan,
            sends_per_io: i.sends_per_io,
            bytes_per_send: i.bytes_per_send,
            doorbells: i.doorbells,
            syscalls_per_io: i.syscalls_per_io,
        }
    }
}

/// 0 instead of a division by 0: JSON has no NaN.
fn ratio(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::plan::tests::plan;
    use std::time::Duration;

    fn lane(reads: u64, writes: u64) -> LaneResult {
        let mut result = LaneResult {
            lane: 0,
            reads: Latencies::new(),
            writes: Latencies::new(),
            errors: 0,
            error_texts: vec![],
            blocks_checked: 0,
            unsent: 0,
            stats: LaneStats {
                caravans: 10,
                caravan_requests: 160,
                caravan_bytes: 11_520,
                sends: 10,
                receives: 20,
                waits: 2,
                doorbells_size: 9,
                doorbells_timer: 1,
                ..LaneStats::default()
            },
        };
        (0..reads).for_each(|_| result.reads.record(50_000));
        (0..writes).for_each(|_| result.writes.record(100_000));
        result
    }

    fn report(lanes: Vec<LaneResult>, own_target: bool) -> Report {
        let cpu = Duration::from_millis(800);
        let usage = Usage { cpu, switches: 16 };
        let target = own_target.then(|| (usage, lanes[0].stats));
        let measured = Measured { seconds: 2.0, lanes, host: usage, target };
        Report::new(&plan("--rw randrw --bs 4k", 1).unwrap(), "i10", &measured)
    }

    #[test]
    fn json_has_what_scripts_rely_on() {
        let json = serde_json::to_value(report(vec![lane(120, 40)], true)).unwrap();
        assert_eq!(json["iops"], 80.0);
        assert_eq!(json["bytes_per_second"], 80.0 * 4096.0);
        assert_eq!(json["requests"], 160);
        assert_eq!(json["errors"], 0);
        assert_eq!(json["host_cpu_seconds"], 0.8);
        assert_eq!(json["target_cpu_seconds"], 0.8);
        assert_eq!(json["cpu_ns_per_io"], 10_000_000.0);
        assert_eq!(json["requests_per_caravan"], 16.0);
        assert_eq!(json["target_requests_per_caravan"], 16.0);
        assert_eq!(json["sends_per_io"], 0.0625);
        assert_eq!(json["bytes_per_send"], 1152.0);
        assert_eq!(json["syscalls_per_io"], 0.4);
        assert_eq!(json["context_switches_per_io"], 0.2);
        assert_eq!(json["doorbells"]["size"], 9);
        assert_eq!(json["host"]["syscalls_per_io"], 0.2);
        assert_eq!(json["target"]["context_switches_per_io"], 0.1);
        assert_eq!(json["read"]["requests"], 120);
        assert_eq!(json["write"]["iops"], 20.0);
        assert_eq!(json["lanes"].as_array().unwrap().len(), 1);
        for name in ["mean", "p50", "p99", "p999"] {
            assert!(json["latency_us"][name].as_f64().unwrap() > 49.0, "{name}");
        }
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
}
