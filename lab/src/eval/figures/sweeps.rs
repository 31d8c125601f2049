//! The sweeps of the i10 technical report.

use crate::eval::plan::{
    AUTO, ChartKind, EvalClaim, EvalFigure, EvalPoint, I10, MAIN, NONE, Panel, PointPair, Test,
    UNBATCHED, XAxis,
};
use crate::judge::Bound;
use crate::metric::Metric;
use crate::runs::{Compare, MeasuringExtent};
use crate::workload::{KIB, LabLoad, ProductSetup, size};

const SOURCE: &str = "i10 technical report";
const DEPTH: usize = 128;
const READS: LabLoad = LabLoad::small(100, DEPTH);

pub(super) fn figures(extent: MeasuringExtent) -> Vec<EvalFigure> {
    vec![aggregation(extent), timer(extent), request_size(extent)]
}

/// i10 with caravans of so many requests; their data never is the limit.
fn caravans(requests: usize) -> ProductSetup {
    I10.limited(requests, requests * 8 * KIB)
}

fn aggregation(extent: MeasuringExtent) -> EvalFigure {
    let sizes = extent.pick(&[1, 2, 4, 8, 16, 32, 64], &[1, 16, 64]);
    let panel = Panel::new("4 KiB random reads, depth 128, memory", XAxis::Ticks("requests"));
    let panel = sizes.iter().fold(panel, |panel, &n| {
        let panel = panel.cell("i10", n, EvalPoint::new(READS, caravans(n)));
        panel.loads(n, READS, &[NONE, AUTO])
    });
    EvalFigure {
        id: "sweep-aggregation",
        source: SOURCE,
        title: "Aggregation size",
        question: "How many requests should a caravan take at most?",
        how: "i10 with its delay of 50 us and caravans of 1 to 64 requests, their bytes not \
              limited. none and auto have no such number: they are drawn across.",
        panels: vec![
            panel
                .chart(Metric::Iops, ChartKind::Lines)
                .chart(Metric::LatencyP99, ChartKind::LogLines)
                .chart(Metric::Cpu, ChartKind::LogLines),
        ],
        claims: vec![EvalClaim {
            text: "16 requests are enough: that size was chosen",
            published: "16",
            test: Test::Everywhere {
                metric: Metric::Iops,
                pairs: vec![PointPair::at(READS, caravans(16), caravans(64))],
                compare: Compare::Ratio,
                bound: Bound::AtLeast(0.9),
            },
            why: "The cost of a send is spread over its requests; in user space what remains for \
                  each request is so little that spreading it further still pays.",
        }],
        ..EvalFigure::default()
    }
}

fn delayed(us: usize) -> ProductSetup {
    ProductSetup { doorbell_delay_us: Some(us), ..I10 }
}

fn timer(extent: MeasuringExtent) -> EvalFigure {
    let delays = extent.pick(&[0, 10, 25, 50, 100, 200, 500, 1000], &[0, 50, 1000]);
    let depths = extent.pick(&[8, DEPTH], &[8]);
    let panels = depths.iter().map(|&depth| {
        let load = LabLoad::small(100, depth);
        let title = format!("4 KiB random reads, depth {depth}, memory");
        let panel = Panel::new(title, XAxis::Ticks("delay, us"));
        let panel = delays.iter().fold(panel, |panel, &us| {
            let panel = panel.cell("i10", us, EvalPoint::new(load, delayed(us)));
            panel.loads(us, load, &[NONE, AUTO])
        });
        panel
            .chart(Metric::Iops, ChartKind::LogLines)
            .chart(Metric::LatencyMean, ChartKind::LogLines)
    });
    let few = LabLoad::small(100, 8);
    let mut claims = vec![EvalClaim {
        text: "the delay bounds what batching costs where caravans do not fill",
        published: "50 us chosen",
        test: Test::Everywhere {
            metric: Metric::LatencyMean,
            pairs: vec![PointPair::at(few, delayed(50), delayed(0))],
            compare: Compare::Difference,
            bound: Bound::AtMost(100.0),
        },
        why: "Eight requests never fill a caravan of 16, so each trip waits for the timer once, \
              and sleeps once more, which costs 25 us in this virtual machine. The bound is twice \
              the delay.",
    }];
    if extent == MeasuringExtent::Full {
        claims.push(EvalClaim {
            text: "where caravans fill, the delay does not matter",
            published: "no effect at depth 128",
            test: Test::Everywhere {
                metric: Metric::Iops,
                pairs: delays[1..]
                    .iter()
                    .map(|&us| PointPair::at(READS, delayed(us), delayed(0)))
                    .collect(),
                compare: Compare::Ratio,
                bound: Bound::AtLeast(0.9),
            },
            why: "128 requests are eight caravans; the timer fires only for what is left over.",
        });
    }
    EvalFigure {
        id: "sweep-timer",
        source: SOURCE,
        title: "The doorbell's delay",
        question: "How long should a request wait for company?",
        how: "i10 with its 16 requests and delays of 0 to 1,000 us, at a depth that never fills a \
              caravan and at one that always does. none and auto have no delay to set: they are \
              drawn across.",
        panels: panels.collect(),
        claims,
        ..EvalFigure::default()
    }
}

fn request_size(extent: MeasuringExtent) -> EvalFigure {
    let sizes = extent.pick(
        &[512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144, 524288, 1048576],
        &[512, 4096, 65536, 1048576],
    );
    let setups: &[ProductSetup] = match extent {
        MeasuringExtent::Full => &MAIN,
        MeasuringExtent::Quick => &[UNBATCHED, NONE, I10, AUTO],
    };
    let loads: Vec<LabLoad> = sizes.iter().map(|&bytes| LabLoad::new(100, bytes, 32)).collect();
    let panel = Panel::new("random reads, depth 32, memory", XAxis::Ticks("bytes a request"));
    let panel = loads.iter().fold(panel, |panel, load| panel.loads(size(load.bs), *load, setups));
    EvalFigure {
        id: "sweep-size",
        source: SOURCE,
        title: "Request size",
        question: "Up to which request size does batching pay?",
        how: "A closed loop of 32 requests over one lane.",
        panels: vec![
            panel
                .chart(Metric::Bandwidth, ChartKind::LogLines)
                .chart(Metric::LatencyMean, ChartKind::LogLines)
                .chart(Metric::Cpu, ChartKind::LogLines),
        ],
        claims: vec![EvalClaim {
            text: "batching never costs throughput, whatever the size",
            published: ">= 1 everywhere",
            test: Test::Everywhere {
                metric: Metric::Bandwidth,
                pairs: PointPair::over(loads, I10, UNBATCHED),
                compare: Compare::Ratio,
                bound: Bound::AtLeast(0.97),
            },
            why: "From 64 KiB on one request fills a caravan, and both sides send the same; with \
                  32 in flight i10's 16 let the two ends take turns.",
        }],
        ..EvalFigure::default()
    }
}
