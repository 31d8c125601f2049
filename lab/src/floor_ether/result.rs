//! Figures of a run of the floor.

use super::case::FloorEtherCase;
use super::end::FloorEtherCounts;
use super::host::FloorEtherOutcome;
use crate::floor::{ThreadUsage, latencies};
use crate::measure::Measure;
use crate::page::{PageParts, cells, optional};
use serde::Serialize;

/// The figures of a case.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct EtherResult {
    #[serde(flatten)]
    pub(crate) case: FloorEtherCase,
    zero_copy: bool,
    #[serde(flatten)]
    pub(crate) measure: Measure,
    /// Both ends together.
    frames_per_io: f64,
    bytes_per_io: f64,
    sends_per_io: f64,
    /// Frames lost: if there are any, the depth is beyond what the ports hold.
    lost: u64,
}

impl EtherResult {
    pub(super) fn new(
        case: &FloorEtherCase,
        outcome: &FloorEtherOutcome,
        target: &FloorEtherCounts,
    ) -> EtherResult {
        let host = &outcome.counts;
        let requests = outcome.requests.max(1) as f64;
        let iops = requests / outcome.elapsed.as_secs_f64();
        let switches = outcome.host.context_switches + outcome.target.context_switches;
        let per_io = |sample: &ThreadUsage| Some(sample.cpu_seconds * 1e6 / requests);
        // Counted over the warm-up as well, so each end's by its own requests.
        let each = |of: fn(&FloorEtherCounts) -> u64| {
            [host, target].iter().map(|c| of(c) as f64 / c.requests.max(1) as f64).sum()
        };
        EtherResult {
            case: *case,
            zero_copy: outcome.zero_copy,
            measure: Measure {
                iops,
                bytes_per_second: iops * case.bs as f64,
                host_cpu_us_per_io: per_io(&outcome.host),
                target_cpu_us_per_io: per_io(&outcome.target),
                context_switches_per_io: Some(switches as f64 / requests),
                ..latencies(&outcome.latency_ns)
            },
            frames_per_io: each(|counts| counts.frames),
            bytes_per_io: each(|counts| counts.bytes),
            sends_per_io: each(|counts| counts.sends),
            lost: host.lost + target.lost,
        }
    }

    /// The one with the median rate.
    pub(super) fn median(mut runs: Vec<EtherResult>) -> Option<EtherResult> {
        runs.sort_by(|a, b| a.measure.iops.total_cmp(&b.measure.iops));
        (!runs.is_empty()).then(|| runs.swap_remove(runs.len() / 2))
    }
}

/// A line for each case.
pub(super) fn page(results: &[EtherResult]) -> PageParts {
    let mut grid = vec![cells(
        "MTU | | depth | payloads/frame | port | kIOPS | GB/s | mean us | p99 us | CPU us/IO | host, target cores \
         | frames/IO | bytes/IO | sends/IO | switches/IO | lost",
    )];
    for EtherResult {
        case,
        zero_copy,
        measure: m,
        frames_per_io,
        bytes_per_io,
        sends_per_io,
        lost,
    } in results
    {
        let cores = |us: Option<f64>| us.unwrap_or(0.0) * m.iops / 1e6;
        grid.push(vec![
            case.mtu.to_string(),
            format!("{:?}", case.rw),
            case.depth.to_string(),
            case.payloads.to_string(),
            format!("{:?}{}", case.kind, if *zero_copy { ", zero-copy" } else { "" }),
            format!("{:.1}", m.iops / 1e3),
            format!("{:.2}", m.bytes_per_second / 1e9),
            format!("{:.1}", m.latency_us_mean),
            format!("{:.1}", m.latency_us_p99),
            optional(m.cpu_us_per_io(), 2),
            format!("{:.2}, {:.2}", cores(m.host_cpu_us_per_io), cores(m.target_cpu_us_per_io)),
            format!("{frames_per_io:.2}"),
            format!("{bytes_per_io:.0}"),
            format!("{sends_per_io:.3}"),
            optional(m.context_switches_per_io, 3),
            lost.to_string(),
        ]);
    }
    let mut page = PageParts::default();
    page.table(grid);
    page
}

#[cfg(test)]
mod tests {
    use super::super::args::FloorPortKind;
    use super::*;
    use crate::floor::DataDirection;
    use hdrhistogram::Histogram;
    use std::time::Duration;

    fn result(requests: u64) -> EtherResult {
        let mut latency_ns = Histogram::new_with_bounds(1, 1_000_000, 3).unwrap();
        latency_ns.record_n(2000, 10).unwrap();
        let sample = ThreadUsage { cpu_seconds: 1.0, context_switches: 50 };
        let counts =
            FloorEtherCounts { requests: 200, frames: 100, bytes: 1600, sends: 20, lost: 1 };
        let outcome = FloorEtherOutcome {
            requests,
            elapsed: Duration::from_secs(2),
            latency_ns,
            host: sample,
            target: sample,
            zero_copy: false,
            counts,
        };
        let case = FloorEtherCase {
            kind: FloorPortKind::Xdp,
            mtu: 9000,
            rw: DataDirection::Read,
            bs: 4096,
            depth: 128,
            payloads: 2,
        };
        let target =
            FloorEtherCounts { requests: 400, frames: 400, bytes: 400 * 4096, sends: 20, lost: 2 };
        EtherResult::new(&case, &outcome, &target)
    }

    #[test]
    fn each_end_is_divided_by_its_own_requests() {
        let result = result(100);
        let m = &result.measure;
        assert_eq!((m.iops, m.bytes_per_second), (50.0, 50.0 * 4096.0));
        assert_eq!(result.frames_per_io, 0.5 + 1.0);
        assert_eq!(result.bytes_per_io, 8.0 + 4096.0);
        assert_eq!(result.sends_per_io, 0.1 + 0.05);
        assert_eq!(m.cpu_us_per_io(), Some(2e6 / 100.0));
        assert_eq!(m.context_switches_per_io, Some(1.0));
        assert_eq!(result.lost, 3);
        assert!((m.latency_us_mean - 2.0).abs() < 0.01);
    }

    #[test]
    fn the_median_counts() {
        let runs = [5, 1, 3].map(result).to_vec();
        assert_eq!(EtherResult::median(runs).expect("three").measure.iops, 1.5);
        assert!(EtherResult::median(Vec::new()).is_none());
    }
}
