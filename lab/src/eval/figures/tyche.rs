//! Tyche for small requests: batching requests, here over TCP.

use crate::eval::plan::{
    AUTO, ChartKind, EvalClaim, EvalFigure, EvalPoint, I10, LARGE, NONE, PINOF, PairPick, Panel,
    PointPair, TYCHE, Test, XAxis,
};
use crate::floor::DataDirection;
use crate::judge::Bound;
use crate::metric::Metric;
use crate::runs::{Compare, MeasuringExtent};
use crate::workload::{LabLoad, ProductSetup, SecondLoad};

const DEPTH: usize = 128;

pub(super) fn figures(extent: MeasuringExtent) -> Vec<EvalFigure> {
    vec![levels(extent), joined(extent)]
}

fn level(level: usize) -> ProductSetup {
    ProductSetup { batch_level: Some(level), ..ProductSetup::new("tyche") }
}

fn levels(extent: MeasuringExtent) -> EvalFigure {
    let levels = extent.pick(&[1, 2, 4, 8, 16, 32, 64], &[1, 4, 16, 64]);
    let panel = |name: &str, share| {
        let load = LabLoad::small(share, DEPTH);
        let title = format!("4 KiB random {name}, depth 128, memory");
        let panel = Panel::new(title, XAxis::Ticks("batch level"));
        let panel = levels.iter().fold(panel, |panel, &n| {
            let panel = panel.cell("fixed level", n, EvalPoint::new(load, level(n)));
            panel.loads(n, load, &[TYCHE, NONE, AUTO])
        });
        panel.chart(Metric::Iops, ChartKind::Lines).chart(Metric::LatencyMean, ChartKind::LogLines)
    };
    let up_to = |share, published| {
        let load = LabLoad::small(share, DEPTH);
        let pairs = levels[1..].iter().map(|&n| PointPair::at(load, level(n), level(1)));
        Test::Effect {
            metric: Metric::Iops,
            pairs: pairs.collect(),
            pick: PairPick::Most,
            published,
        }
    };
    let why = "Over TCP a batch is one send instead of one frame, and saves more: a pass through \
               TCP and a wake-up on either end cost more than a frame's.";
    EvalFigure {
        id: "tyche-fig5",
        source: "Tyche for small requests, fig. 5",
        title: "Batching requests",
        question: "What does batching bring at each fixed level, and does the adaptive one find the best?",
        how: "Level 1 is batching off. The adaptive level (tyche), none and auto have no level of \
              their own: they are drawn across. tyche adapts every 20 ms here instead of every \
              second, since a run is short.",
        panels: vec![panel("reads", 100), panel("writes", 0)],
        claims: vec![
            EvalClaim {
                text: "batching requests: reads up to 44 % faster",
                published: "+44 %",
                test: up_to(100, 1.44),
                why,
            },
            EvalClaim {
                text: "batching requests: writes up to 50 % faster",
                published: "+50 %",
                test: up_to(0, 1.50),
                why,
            },
            adaptive(&levels),
        ],
        ..EvalFigure::default()
    }
}

fn adaptive(levels: &[usize]) -> EvalClaim {
    let pair = |share, n| {
        let load = LabLoad::small(share, DEPTH);
        PointPair::at(load, TYCHE, level(n))
    };
    EvalClaim {
        text: "the adaptive level finds the best one",
        published: "its purpose",
        test: Test::Everywhere {
            metric: Metric::Iops,
            pairs: levels.iter().flat_map(|&n| [pair(100, n), pair(0, n)]).collect(),
            compare: Compare::Ratio,
            bound: Bound::AtLeast(0.9),
        },
        why: "The host's level climbs, the target's hardly: answers do not pile up while each is \
              sent at once, so a climb that follows the backlog sees nothing to gain. Tyche's own \
              target has no level: it answers a batch as a whole, which NVMe/TCP cannot.",
    }
}

/// 4 KiB requests together with 128 KiB ones of the same direction.
fn mixed(share: u8) -> LabLoad {
    let rw = if share == 100 { DataDirection::Read } else { DataDirection::Write };
    let second_load = SecondLoad { rw, bs: LARGE, depth: 8, class: None, own_lane: false };
    LabLoad::small(share, 64).with_second_load(second_load)
}

fn joined(extent: MeasuringExtent) -> EvalFigure {
    let setups = match extent {
        MeasuringExtent::Full => vec![level(1), NONE, I10, PINOF, TYCHE, AUTO],
        MeasuringExtent::Quick => vec![level(1), TYCHE, AUTO],
    };
    let panel = |name: &str, share| {
        let title = format!("4 KiB random {name}, depth 64, memory");
        let alone = LabLoad::small(share, 64);
        Panel::new(title, XAxis::Ticks("beside"))
            .loads("alone", alone, &setups)
            .loads("128 KiB, depth 8", mixed(share), &setups)
            .chart(Metric::Iops, ChartKind::Bars)
            .chart(Metric::BandwidthTotal, ChartKind::Bars)
            .chart(Metric::LatencyP99, ChartKind::Bars)
    };
    let claim = |text, published, share, ratio| EvalClaim {
        text,
        published,
        test: Test::Effect {
            metric: Metric::Iops,
            pairs: vec![PointPair::at(mixed(share), TYCHE, level(1))],
            pick: PairPick::Most,
            published: ratio,
        },
        why: "The large requests take most of the CPU for copying; and the target's level stays \
              near 1 (see fig. 5), so the answers of the small ones leave one by one as without \
              batching.",
    };
    EvalFigure {
        id: "tyche-fig8",
        source: "Tyche for small requests, fig. 8",
        title: "4 KiB with 128 KiB joining",
        question: "Does batching small requests still help when large ones share the connection?",
        how: "64 small requests in flight, then 8 large ones of the same direction beside them in \
              the same lane. Level 1 is batching off.",
        panels: vec![panel("reads", 100), panel("writes", 0)],
        claims: vec![
            claim("beside 128 KiB requests: up to 3 times the reads", "x3", 100, 3.0),
            claim("beside 128 KiB requests: up to 2 times the writes", "x2", 0, 2.0),
        ],
        ..EvalFigure::default()
    }
}
