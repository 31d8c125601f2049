//! What a run of the floor reports.

use super::case::Case;
use super::end::Counts;
use super::host::Outcome;
use crate::floor::LatencyUs;
use serde::{Deserialize, Serialize};

/// What a run measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct EtherResult {
    #[serde(flatten)]
    pub(crate) case: Case,
    pub(crate) zero_copy: bool,
    pub(crate) seconds: f64,
    pub(crate) iops: f64,
    pub(crate) bytes_per_second: f64,
    pub(crate) latency_us: LatencyUs,
    pub(crate) cpu_us_per_io: f64,
    pub(crate) host_cores: f64,
    pub(crate) target_cores: f64,
    /// Both ends together.
    pub(crate) frames_per_io: f64,
    pub(crate) octets_per_io: f64,
    pub(crate) sends_per_io: f64,
    pub(crate) context_switches_per_io: f64,
    /// Frames lost: more than none says that the depth is beyond what the ports hold.
    pub(crate) lost: u64,
}

impl EtherResult {
    pub(super) fn new(case: &Case, outcome: &Outcome, target: &Counts) -> EtherResult {
        let host = &outcome.counts;
        let seconds = outcome.elapsed.as_secs_f64();
        let requests = outcome.requests.max(1) as f64;
        let cpu_seconds = outcome.host.cpu_seconds + outcome.target.cpu_seconds;
        let switches = outcome.host.context_switches + outcome.target.context_switches;
        // Counted over the warm-up as well, so each end's by its own requests.
        let each = |of: fn(&Counts) -> u64| {
            [host, target].iter().map(|c| of(c) as f64 / c.requests.max(1) as f64).sum()
        };
        EtherResult {
            case: *case,
            zero_copy: outcome.zero_copy,
            seconds,
            iops: requests / seconds,
            bytes_per_second: requests * case.bs as f64 / seconds,
            latency_us: LatencyUs::of(&outcome.latency_ns),
            cpu_us_per_io: cpu_seconds * 1e6 / requests,
            host_cores: outcome.host.cpu_seconds / seconds,
            target_cores: outcome.target.cpu_seconds / seconds,
            frames_per_io: each(|counts| counts.frames),
            octets_per_io: each(|counts| counts.octets),
            sends_per_io: each(|counts| counts.sends),
            context_switches_per_io: switches as f64 / requests,
            lost: host.lost + target.lost,
        }
    }

    /// The one with the median rate.
    pub(super) fn median(mut runs: Vec<EtherResult>) -> Option<EtherResult> {
        runs.sort_by(|a, b| a.iops.total_cmp(&b.iops));
        (!runs.is_empty()).then(|| runs.swap_remove(runs.len() / 2))
    }
}

/// Prints a table.
pub(super) fn print(results: &[EtherResult]) {
    println!(
        "| MTU | | depth | payloads/frame | port | kIOPS | GB/s | mean us | p99 us | CPU us/IO | host, target cores \
         | frames/IO | octets/IO | sends/IO | switches/IO | lost |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|");
    for result in results {
        let EtherResult { case, latency_us, .. } = result;
        println!(
            "| {} | {:?} | {} | {} | {:?}{} | {:.1} | {:.2} | {:.1} | {:.1} | {:.2} | {:.2}, {:.2} | {:.2} | {:.0} \
             | {:.3} | {:.3} | {} |",
            case.mtu,
            case.rw,
            case.depth,
            case.payloads,
            case.kind,
            if result.zero_copy { ", zero-copy" } else { "" },
            result.iops / 1e3,
            result.bytes_per_second / 1e9,
            latency_us.mean,
            latency_us.p99,
            result.cpu_us_per_io,
            result.host_cores,
            result.target_cores,
            result.frames_per_io,
            result.octets_per_io,
            result.sends_per_io,
            result.context_switches_per_io,
            result.lost,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::args::Kind;
    use super::*;
    use crate::floor::{Direction, Sample};
    use hdrhistogram::Histogram;
    use std::time::Duration;

    fn result(requests: u64) -> EtherResult {
        let mut latency_ns = Histogram::new_with_bounds(1, 1_000_000, 3).unwrap();
        latency_ns.record_n(2000, 10).unwrap();
        let sample = Sample { cpu_seconds: 1.0, context_switches: 50 };
        let counts = Counts { requests: 200, frames: 100, octets: 1600, sends: 20, lost: 1 };
        let outcome = Outcome {
            requests,
            elapsed: Duration::from_secs(2),
            latency_ns,
            host: sample,
            target: sample,
            zero_copy: false,
            counts,
        };
        let case = Case {
            kind: Kind::Xdp,
            mtu: 9000,
            rw: Direction::Read,
            bs: 4096,
            depth: 128,
            payloads: 2,
        };
        let target = Counts { requests: 400, frames: 400, octets: 400 * 4096, sends: 20, lost: 2 };
        EtherResult::new(&case, &outcome, &target)
    }

    #[test]
    fn each_end_is_divided_by_its_own_requests() {
        let result = result(100);
        assert_eq!(result.iops, 50.0);
        assert_eq!(result.bytes_per_second, 50.0 * 4096.0);
        assert_eq!(result.frames_per_io, 0.5 + 1.0);
        assert_eq!(result.octets_per_io, 8.0 + 4096.0);
        assert_eq!(result.sends_per_io, 0.1 + 0.05);
        assert_eq!((result.host_cores, result.target_cores), (0.5, 0.5));
        assert_eq!(result.cpu_us_per_io, 2e6 / 100.0);
        assert_eq!(result.context_switches_per_io, 1.0);
        assert_eq!(result.lost, 3);
        assert!((result.latency_us.mean - 2.0).abs() < 0.01);
    }

    #[test]
    fn the_median_counts() {
        let runs = [5, 1, 3].map(result).to_vec();
        assert_eq!(EtherResult::median(runs).expect("three").iops, 1.5);
        assert!(EtherResult::median(Vec::new()).is_none());
    }

    #[test]
    fn results_survive_json() {
        let text = serde_json::to_string(&result(7)).expect("plain data");
        let back: EtherResult = serde_json::from_str(&text).expect("its own");
        assert_eq!((back.case, back.iops), (result(7).case, 3.5));
    }
}
