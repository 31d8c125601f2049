//! Tyche's two ways to send: the thread whose request it is, or another one.

use crate::eval::plan::{
    AUTO, ChartKind, EvalClaim, EvalFigure, EvalPoint, PairPick, Panel, PointPair, Test, XAxis,
};
use crate::judge::{Bound, Goal, Rule};
use crate::metric::Metric;
use crate::runs::{Compare, MeasuringExtent};
use crate::workload::{KIB, LabLoad, ProductSetup, SendMode, size};

const SMALL: usize = 4 * KIB;
const HUGE: usize = 512 * KIB;
const INLINE: ProductSetup = AUTO;
const QUEUE: ProductSetup = ProductSetup { mode: SendMode::Queue, ..AUTO };

pub(super) fn figures(extent: MeasuringExtent) -> Vec<EvalFigure> {
    vec![figure(extent)]
}

/// Numbers of threads for a size of request.
fn threads(extent: MeasuringExtent, bs: usize) -> Vec<usize> {
    match bs {
        SMALL => extent.pick(&[1, 2, 4, 8, 16, 32, 64], &[1, 16]),
        _ => extent.pick(&[1, 4, 16, 64], &[64]),
    }
}

fn loads(extent: MeasuringExtent, share: u8, bs: usize) -> impl Iterator<Item = (usize, LabLoad)> {
    threads(extent, bs).into_iter().map(move |n| (n, LabLoad::of_threads(share, bs, n)))
}

fn panel(extent: MeasuringExtent, share: u8, bs: usize) -> Panel {
    let what = if share == 100 { "reads" } else { "writes" };
    let title = format!("{} random {what}, memory", size(bs));
    let panel = Panel::new(title, XAxis::Ticks("threads"));
    let panel = loads(extent, share, bs).fold(panel, |panel, (n, load)| {
        let panel = panel.sides(n, load, &[("inline", INLINE), ("queue", QUEUE)]);
        match bs {
            // The points of the ladder of depths.
            SMALL => panel.cell("front", n, EvalPoint::new(LabLoad::small(share, n), AUTO)),
            _ => panel,
        }
    });
    let y = if bs == SMALL { Metric::Iops } else { Metric::Bandwidth };
    let panel = panel.chart(y, ChartKind::LogLines).chart(Metric::Cpu, ChartKind::LogLines);
    panel.chart(Metric::HostWakeUps, ChartKind::Lines)
}

fn faster(
    text: &'static str,
    pairs: Vec<PointPair>,
    published: (&'static str, f64),
    why: &'static str,
) -> EvalClaim {
    let (published, ratio) = published;
    let test = Test::Effect { metric: Metric::Iops, pairs, pick: PairPick::Most, published: ratio };
    EvalClaim { text, published, test, why }
}

fn claims(extent: MeasuringExtent) -> Vec<EvalClaim> {
    let small = [100, 0].into_iter().flat_map(|share| loads(extent, share, SMALL));
    let many = loads(extent, 0, HUGE).filter(|&(n, _)| n == 64);
    let small = PointPair::over(small.map(|(_, load)| load), INLINE, QUEUE);
    let many = PointPair::over(many.map(|(_, load)| load), QUEUE, INLINE);
    vec![
        faster(
            "4 KiB requests: inline up to 31 % faster than queue mode",
            small,
            ("+31 %", 1.31),
            "A hand-over costs a wake-up each way: at one thread three a request instead of one. The more \
             threads, the more of them the reactor serves with each, and it sends for all at once, which a \
             thread with a connection of its own cannot: with 32 and more on one core queue mode is ahead.",
        ),
        faster(
            "512 KiB writes of 64 threads: queue mode up to 31 % faster than inline",
            many,
            ("+31 %", 1.31),
            "In the publication threads fight for a lock to send. Here there is no lock, but a connection for \
             each thread: 64 of them take turns on one core, and the same data costs 1.7 times the CPU time \
             of a single stream.",
        ),
    ]
}

/// Limits of the host's wake-ups in inline mode.
fn goals() -> Vec<Goal<EvalPoint>> {
    let goal = |row: &str, share, load, most| Goal {
        row: row.to_owned(),
        column: if share == 100 { "reads" } else { "writes" }.to_owned(),
        metric: Metric::HostWakeUps,
        of: EvalPoint::new(load, INLINE),
        among: vec![],
        compare: Compare::Value,
        bound: Some(Bound::AtMost(most)),
        rule: Rule::Interval,
    };
    let of = |share| {
        [
            goal("front, depth 128", share, LabLoad::small(share, 128), 0.05),
            goal("front, depth 1", share, LabLoad::small(share, 1), 1.01),
            goal("1 thread", share, LabLoad::of_threads(share, SMALL, 1), 1.01),
        ]
    };
    [100, 0].into_iter().flat_map(of).collect()
}

fn figure(extent: MeasuringExtent) -> EvalFigure {
    let kinds = [(100, SMALL), (0, SMALL), (100, HUGE), (0, HUGE)];
    EvalFigure {
        id: "tyche-fig12",
        source: "Tyche, fig. 12",
        title: "Inline and queue mode",
        question: "Should the thread that has a request send it, or hand it over, and what does either cost?",
        how: "Threads with one request each at a time, all on one core with what serves them. Inline: each \
              drives a lane of its own, so it sends and sleeps on its connection. Queue: they hand over to \
              one reactor with one lane and sleep until it hands the answer back. Front: as many requests \
              in flight arise on the reactor itself, which is what the block front-ends do. The bars are \
              the host's wake-ups (voluntary context switches) for each request in inline mode.",
        panels: kinds.map(|(share, bs)| panel(extent, share, bs)).to_vec(),
        claims: claims(extent),
        goals: goals(),
        tabled: &[Metric::Iops, Metric::LatencyP99, Metric::Cpu, Metric::HostWakeUps],
        ..EvalFigure::default()
    }
}
