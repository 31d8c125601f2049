//! The report: one JSON object, or a table.

#[cfg(test)]
mod tests;
mod text;

use super::lane::LaneResult;
use super::latency::{Latencies, LatencySummary};
use super::plan::LoadPlan;
use super::step::StepReport;
use super::usage::ProcessWork;
use crate::args::word;
use roadtrain_reactor::metrics::Batching;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Results of a measurement.
pub(super) struct BenchMeasurement {
    /// Measured time in seconds.
    pub seconds: f64,
    /// Results of each load on each of its lanes, the main load's first.
    pub results: Vec<LaneResult>,
    /// CPU usage and counters of this process.
    pub host: ProcessWork,
    /// CPU usage and counters of the own target.
    pub target: Option<ProcessWork>,
    /// Connections lost and made again.
    pub reconnects: u64,
}

/// The JSON object. Ratios are 0 where nothing happened. Requests, IOPS, bandwidth and latency are the main load's.
/// Errors, CPU time, instruments and values "per request" include the streams.
#[derive(Clone, Debug, Serialize)]
pub(super) struct BenchReport {
    /// Requests a second.
    pub iops: f64,
    /// Bytes of data a second.
    pub bytes_per_second: f64,
    /// Latency of reads and writes together.
    pub latency: LatencySummary,
    /// Requests that succeeded in the measured time.
    pub requests: u64,
    /// Requests that succeeded, with those of the streams.
    pub requests_total: u64,
    /// Measured time in seconds.
    pub seconds: f64,
    /// Requests that failed, and blocks that were wrong, at any time.
    pub errors: u64,
    /// Descriptions of the first errors.
    pub error_texts: Vec<String>,
    /// Reads alone.
    pub read: DirectionReport,
    /// Writes alone.
    pub write: DirectionReport,
    /// Loads in addition to the main one (`--stream`).
    pub streams: Vec<StreamReport>,
    /// Results of load steps (`--step`).
    pub step: Option<StepReport>,
    /// CPU time of this process.
    pub host_cpu_seconds: f64,
    /// CPU time of the own target's process.
    pub target_cpu_seconds: Option<f64>,
    /// CPU time of both ends if known, else of this one, for each request.
    pub cpu_ns_per_io: f64,
    /// Requests that one caravan of this end carried.
    pub requests_per_caravan: f64,
    /// This end's send calls for each request.
    pub sends_per_io: f64,
    /// Bytes of a send call of this end.
    pub bytes_per_send: f64,
    /// This end's doorbells by cause.
    #[serde(flatten)]
    pub doorbells: DoorbellCounts,
    /// Send, receive and wait calls for each request, of both ends if known.
    pub syscalls_per_io: f64,
    /// Context switches for each request, of both ends if known.
    pub context_switches_per_io: f64,
    /// Requests (responses) in a caravan of the own target.
    pub target_requests_per_caravan: Option<f64>,
    /// Bytes of a send call of the own target.
    pub target_bytes_per_send: Option<f64>,
    /// This end's instruments.
    pub host: Instruments,
    /// The own target's.
    pub target: Option<Instruments>,
    /// Connections lost and made again.
    pub reconnects: u64,
    /// Blocks whose data was checked and right (`--verify`).
    pub blocks_checked: u64,
    /// Requests that were due but not sent at the end (`--rate`).
    pub unsent: u64,
    /// Settings of the run.
    pub settings: BenchSettings,
    /// Each lane; in queue mode each thread, the first with the counters of all lanes.
    pub lanes: Vec<LaneFigures>,
}

/// Reads or writes.
#[derive(Clone, Debug, Serialize)]
pub(super) struct DirectionReport {
    pub requests: u64,
    pub iops: f64,
    pub bytes_per_second: f64,
    pub latency: LatencySummary,
}

/// A load in addition to the main one.
#[derive(Clone, Debug, Serialize)]
pub(super) struct StreamReport {
    pub rw: String,
    pub rwmixread: u8,
    pub bs: usize,
    /// Depth on each of its lanes.
    pub depth: u32,
    pub class: String,
    /// `shared` or `own`.
    pub lane_choice: String,
    pub rate: Option<f64>,
    pub requests: u64,
    pub iops: f64,
    pub bytes_per_second: f64,
    pub latency: LatencySummary,
    pub read: DirectionReport,
    pub write: DirectionReport,
    pub errors: u64,
    pub unsent: u64,
}

/// Measurements of one end that explain its speed.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Instruments {
    /// Requests (responses) that one caravan carried.
    pub requests_per_caravan: f64,
    /// Send calls for each request.
    pub sends_per_io: f64,
    /// Bytes of a send call.
    pub bytes_per_send: f64,
    /// Doorbells by cause.
    #[serde(flatten)]
    pub doorbells: DoorbellCounts,
    /// Send, receive and wait calls for each request.
    pub syscalls_per_io: f64,
    /// Context switches of all threads of the process, for each request.
    pub context_switches_per_io: f64,
    /// Context switches because a thread waited: each has a wake-up.
    pub voluntary_switches_per_io: f64,
}

/// Doorbells by cause.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct DoorbellCounts {
    #[serde(rename = "doorbells_size")]
    pub size: u64,
    #[serde(rename = "doorbells_timer")]
    pub timer: u64,
    #[serde(rename = "doorbells_urgent")]
    pub urgent: u64,
    #[serde(rename = "doorbells_drained")]
    pub drained: u64,
}

/// Settings of the run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct BenchSettings {
    pub rw: String,
    pub rwmixread: u8,
    pub bs: usize,
    pub depth: u32,
    pub class: String,
    pub lane_count: u32,
    pub rate: Option<f64>,
    pub verify: bool,
    pub seed: u64,
    #[serde(flatten)]
    pub manner: RunManner,
}

/// Policy, mode and placement of the run.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct RunManner {
    pub policy: String,
    /// `inline` or `queue`.
    pub mode: String,
    /// Threads of the load; `None`: the lanes' reactors.
    pub threads: Option<u32>,
    pub placement: String,
    /// Core and memory node of each reactor.
    pub reactor_places: Vec<String>,
}

/// One lane, with all loads that ran on it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct LaneFigures {
    pub lane: u32,
    pub requests: u64,
    pub iops: f64,
    pub latency: LatencySummary,
    pub errors: u64,
    pub requests_per_caravan: f64,
    pub sends_per_io: f64,
    pub bytes_per_send: f64,
    #[serde(flatten)]
    pub doorbells: DoorbellCounts,
    pub syscalls_per_io: f64,
}

/// Sum of one load over all its lanes.
struct LoadSum {
    reads: Latencies,
    writes: Latencies,
    errors: u64,
    unsent: u64,
}

impl LoadSum {
    fn of<'a>(results: impl Iterator<Item = &'a LaneResult>) -> LoadSum {
        let none =
            LoadSum { reads: Latencies::new(), writes: Latencies::new(), errors: 0, unsent: 0 };
        results.fold(none, |mut sum, result| {
            sum.reads.add(&result.reads);
            sum.writes.add(&result.writes);
            sum.errors += result.errors;
            sum.unsent += result.unsent;
            sum
        })
    }

    fn all(&self) -> Latencies {
        let mut all = self.reads.clone();
        all.add(&self.writes);
        all
    }
}

impl BenchReport {
    /// Builds the report from the results.
    #[must_use]
    pub(super) fn new(
        plans: &[Arc<LoadPlan>],
        manner: RunManner,
        measured: &BenchMeasurement,
    ) -> BenchReport {
        let (results, seconds) = (&measured.results, measured.seconds);
        let sum_of =
            |plan: &LoadPlan| LoadSum::of(results.iter().filter(|r| r.load == plan.number));
        let (plan, sum) = (&plans[0], sum_of(&plans[0]));
        let main = DirectionReport::new(plan, &sum.all(), seconds);
        let requests_total = results.iter().map(|r| r.reads.count() + r.writes.count()).sum();
        let cpu = |work: &ProcessWork| work.usage.cpu.as_secs_f64();
        let end = measured.target.as_ref();
        let cpu_seconds = cpu(&measured.host) + end.map_or(0.0, cpu);
        let host = Instruments::new(&measured.host, requests_total);
        let target = end.map(|work| Instruments::new(work, requests_total));
        let both =
            |count: fn(&Instruments) -> f64| count(&host) + target.as_ref().map_or(0.0, count);
        BenchReport {
            iops: main.iops,
            bytes_per_second: main.bytes_per_second,
            latency: main.latency,
            requests: main.requests,
            requests_total,
            seconds,
            errors: results.iter().map(|result| result.errors).sum(),
            error_texts: results.iter().flat_map(|r| r.error_texts.clone()).take(5).collect(),
            read: DirectionReport::new(plan, &sum.reads, seconds),
            write: DirectionReport::new(plan, &sum.writes, seconds),
            streams: plans[1..].iter().map(|p| StreamReport::new(p, &sum_of(p), seconds)).collect(),
            step: step(plan, results, seconds),
            host_cpu_seconds: cpu(&measured.host),
            target_cpu_seconds: end.map(cpu),
            cpu_ns_per_io: ratio(cpu_seconds * 1e9, requests_total as f64),
            requests_per_caravan: host.requests_per_caravan,
            sends_per_io: host.sends_per_io,
            bytes_per_send: host.bytes_per_send,
            doorbells: host.doorbells,
            syscalls_per_io: both(|end| end.syscalls_per_io),
            context_switches_per_io: both(|end| end.context_switches_per_io),
            target_requests_per_caravan: target.as_ref().map(|t| t.requests_per_caravan),
            target_bytes_per_send: target.as_ref().map(|t| t.bytes_per_send),
            host,
            target,
            reconnects: measured.reconnects,
            blocks_checked: results.iter().map(|result| result.blocks_checked).sum(),
            unsent: sum.unsent,
            settings: BenchSettings::new(plan, manner),
            lanes: lanes(results, seconds),
        }
    }
}

/// Sums the windows of all lanes.
fn step(plan: &LoadPlan, results: &[LaneResult], seconds: f64) -> Option<StepReport> {
    let wave = plan.wave?;
    let mut sum = Vec::new();
    for result in results.iter().filter(|result| result.load == plan.number) {
        sum.resize(result.windows.len().max(sum.len()), 0u32);
        sum.iter_mut().zip(&result.windows).for_each(|(sum, count)| *sum += count);
    }
    // Windows after a signal were not measured.
    sum.truncate((seconds * 1e3) as usize);
    Some(wave.report(&sum))
}

fn lanes(results: &[LaneResult], seconds: f64) -> Vec<LaneFigures> {
    let mut by_lane: BTreeMap<u32, Vec<&LaneResult>> = BTreeMap::new();
    for result in results {
        by_lane.entry(result.lane).or_default().push(result);
    }
    by_lane.into_iter().map(|(lane, results)| LaneFigures::new(lane, &results, seconds)).collect()
}

impl StreamReport {
    fn new(plan: &LoadPlan, sum: &LoadSum, seconds: f64) -> StreamReport {
        let (load, all) = (&plan.load, DirectionReport::new(plan, &sum.all(), seconds));
        StreamReport {
            rw: word(&load.rw),
            rwmixread: load.rw.read_percent(load.rwmixread),
            bs: plan.slot_bytes(),
            depth: load.depth,
            class: load.class.to_string(),
            lane_choice: word(&load.lane),
            rate: load.rate,
            requests: all.requests,
            iops: all.iops,
            bytes_per_second: all.bytes_per_second,
            latency: all.latency,
            read: DirectionReport::new(plan, &sum.reads, seconds),
            write: DirectionReport::new(plan, &sum.writes, seconds),
            errors: sum.errors,
            unsent: sum.unsent,
        }
    }
}

impl DirectionReport {
    fn new(plan: &LoadPlan, latencies: &Latencies, seconds: f64) -> DirectionReport {
        let requests = latencies.count();
        DirectionReport {
            requests,
            iops: ratio(requests as f64, seconds),
            bytes_per_second: ratio(requests as f64 * plan.slot_bytes() as f64, seconds),
            latency: latencies.summary(),
        }
    }
}

impl Instruments {
    fn new(work: &ProcessWork, requests: u64) -> Instruments {
        let ProcessWork { usage, batching, sleeps } = work;
        let per_io = |count: u64| ratio(count as f64, requests as f64);
        Instruments {
            requests_per_caravan: ratio(batching.caravan_requests as f64, batching.caravans as f64),
            sends_per_io: per_io(batching.sends),
            bytes_per_send: ratio(batching.caravan_bytes as f64, batching.sends as f64),
            doorbells: DoorbellCounts::new(batching),
            syscalls_per_io: per_io(batching.sends + batching.receives + sleeps),
            context_switches_per_io: per_io(usage.switches()),
            voluntary_switches_per_io: per_io(usage.switches_voluntary),
        }
    }
}

impl DoorbellCounts {
    fn new(batching: &Batching) -> DoorbellCounts {
        DoorbellCounts {
            size: batching.doorbells_size,
            timer: batching.doorbells_timer,
            urgent: batching.doorbells_urgent,
            drained: batching.doorbells_drained,
        }
    }
}

impl BenchSettings {
    fn new(plan: &LoadPlan, manner: RunManner) -> BenchSettings {
        BenchSettings {
            rw: word(&plan.load.rw),
            rwmixread: plan.load.rw.read_percent(plan.load.rwmixread),
            bs: plan.slot_bytes(),
            depth: plan.load.depth,
            class: plan.load.class.to_string(),
            lane_count: plan.lanes,
            rate: plan.load.rate,
            verify: plan.verify,
            seed: plan.author.seed,
            manner,
        }
    }
}

impl LaneFigures {
    fn new(lane: u32, results: &[&LaneResult], seconds: f64) -> LaneFigures {
        let sum = LoadSum::of(results.iter().copied());
        let all = sum.all();
        let requests = all.count();
        // One of the loads on a lane has its counters.
        let batching = results.iter().map(|result| result.batching).sum();
        let i = Instruments::new(&ProcessWork { batching, ..ProcessWork::default() }, requests);
        LaneFigures {
            lane,
            requests,
            iops: ratio(requests as f64, seconds),
            latency: all.summary(),
            errors: sum.errors,
            requests_per_caravan: i.requests_per_caravan,
            sends_per_io: i.sends_per_io,
            bytes_per_send: i.bytes_per_send,
            doorbells: i.doorbells,
            syscalls_per_io: i.syscalls_per_io,
        }
    }
}

/// Returns 0 instead of a division by 0: JSON has no NaN.
fn ratio(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 0.0 }
}
