//! Tyche for small requests, over Ethernet.

use super::{ETHER, SOCKETS, TCP, name};
use crate::eval::plan::{
    ChartKind, EvalClaim, EvalFigure, EvalPoint, EvalSide, LARGE, PairPick, Panel, PointPair,
    TYCHE, Test, XAxis,
};
use crate::floor::DataDirection;
use crate::judge::Bound;
use crate::metric::Metric;
use crate::runs::{Compare, MeasuringExtent};
use crate::workload::{
    HandOver, LabLoad, LoadLinks, ProductSetup, ProductTransport, SecondLoad, Sharing,
};

const WIRE: LoadLinks = LoadLinks::gigabit(1);
/// Every command, completion and 4 KiB in a frame of its own.
const APART: ProductSetup = ProductSetup { sharing: Sharing::Nothing, ..ETHER };
/// Request batching alone.
const REQUESTS: ProductSetup = ProductSetup { sharing: Sharing::NoData, ..ETHER };

pub(super) fn figures(extent: MeasuringExtent) -> Vec<EvalFigure> {
    vec![requests(extent), data(extent), joined(extent), hand_overs(extent)]
}

fn load(share: u8, depth: usize) -> LabLoad {
    LabLoad::small(share, depth).over(WIRE)
}

fn level(level: usize) -> ProductSetup {
    ProductSetup {
        batch_level: Some(level),
        over: ProductTransport::Ether,
        ..ProductSetup::new("tyche")
    }
}

fn effect(metric: Metric, pairs: Vec<PointPair>, published: f64) -> Test {
    Test::Effect { metric, pairs, pick: PairPick::Most, published }
}

/// Figure 5: link use against outstanding requests, with and without batching of requests.
fn requests(extent: MeasuringExtent) -> EvalFigure {
    let depths = extent.pick(&[1, 8, 32, 128], &[128]);
    let adaptive = ProductSetup { over: ProductTransport::Ether, ..TYCHE };
    let setups = [
        ("all apart", APART),
        ("requests batched", REQUESTS),
        ("level 16", level(16)),
        ("adaptive level", adaptive),
    ];
    let panel = |share| {
        let title = format!("4 KiB random {}, 1 Gbit/s", name(share));
        let panel = Panel::new(title, XAxis::Ticks("requests in flight"));
        let panel = depths
            .iter()
            .fold(panel, |panel, &depth| panel.sides(depth, load(share, depth), &setups));
        panel.chart(Metric::LinkUse, ChartKind::Lines).chart(Metric::Cpu, ChartKind::LogLines)
    };
    let up_to = |text, published, share, ratio| EvalClaim {
        text,
        published,
        test: effect(Metric::Iops, PointPair::over([load(share, 128)], REQUESTS, APART), ratio),
        why: "On a link of 1 Gbit/s the small frames weigh little beside the data, and the cores keep up with \
              both: batching shows in CPU time.",
    };
    EvalFigure {
        id: "ether-fig5",
        source: "Tyche for small requests, fig. 5, over Ethernet",
        title: "Batching requests over Ethernet",
        question: "What does batching requests bring on a link of 1 Gbit/s?",
        how: "Link use is data over what Ethernet leaves of 1 Gbit/s with frames of 9000 bytes. All apart: each \
              command, completion and 4 KiB of data in a frame of its own. Requests batched: commands and \
              completions share frames. Levels are Tyche's, fixed and adaptive (every 20 ms), with data sharing \
              frames as well.",
        panels: vec![panel(100), panel(0)],
        claims: vec![
            up_to("over Ethernet, batching requests: reads up to 44 % faster", "+44 %", 100, 1.44),
            up_to("over Ethernet, batching requests: writes up to 50 % faster", "+50 %", 0, 1.5),
        ],
        tabled: &[Metric::LinkUse, Metric::Cpu],
        ..EvalFigure::default()
    }
}

/// Figure 7: the same with batching of data, compared with others.
fn data(extent: MeasuringExtent) -> EvalFigure {
    let depths = extent.pick(&[1, 8, 32, 128], &[128]);
    let sides = [
        ("ether", EvalSide::Product(ETHER)),
        ("data apart", EvalSide::Product(REQUESTS)),
        ("TCP", EvalSide::Product(TCP)),
        ("TSockets", EvalSide::Product(SOCKETS)),
        ("nbdkit", EvalSide::Nbdkit),
    ];
    let panel = |share| {
        let title = format!("4 KiB random {}, 1 Gbit/s", name(share));
        let panel = Panel::new(title, XAxis::Ticks("requests in flight"));
        let panel = depths
            .iter()
            .fold(panel, |panel, &depth| panel.sides(depth, load(share, depth), &sides));
        let panel = panel
            .chart(Metric::LinkUse, ChartKind::Lines)
            .chart(Metric::LatencyP99, ChartKind::LogLines);
        panel.chart(Metric::Cpu, ChartKind::LogLines)
    };
    let reaches = |text, published, share, percent| EvalClaim {
        text,
        published,
        test: Test::Value {
            metric: Metric::LinkUse,
            at: EvalPoint::new(load(share, 128), ETHER),
            published: percent,
        },
        why: "Two payloads of 4 KiB share a frame of 9000 bytes with the heads and completions: 97.8 % of \
              what Ethernet can carry would be all.",
    };
    EvalFigure {
        id: "ether-fig7",
        source: "Tyche for small requests, fig. 1 and 7",
        title: "Batching data over Ethernet",
        question: "How full is the link with two payloads in a frame, and beside others?",
        how: "As before. TCP: one connection of NVMe/TCP; nbdkit: fio with libnbd.",
        panels: vec![panel(100), panel(0)],
        claims: vec![
            reaches("with data batching reads use 88 % of the link", "88.0 %", 100, 88.0),
            reaches("with data batching writes use 81 % of the link", "81.1 %", 0, 81.1),
            EvalClaim {
                text: "without batching, 4 KiB requests use 56 % of the link",
                published: "56 %",
                test: Test::Value {
                    metric: Metric::LinkUse,
                    at: EvalPoint::new(load(100, 128), APART),
                    published: 56.0,
                },
                why: "There the processor was the limit at 10 Gbit/s; at 1 Gbit/s it is the frames' own bytes, \
                      which are few.",
            },
        ],
        tabled: &[Metric::Iops, Metric::LinkUse, Metric::LatencyP99, Metric::Cpu],
        ..EvalFigure::default()
    }
}

/// Figure 8: 4 KiB requests together with 128 KiB ones of the same direction.
fn joined(extent: MeasuringExtent) -> EvalFigure {
    let mixed = |share| {
        let rw = if share == 100 { DataDirection::Read } else { DataDirection::Write };
        let second_load = SecondLoad { rw, bs: LARGE, depth: 8, class: None, own_lane: false };
        LabLoad::small(share, 64).with_second_load(second_load).over(WIRE)
    };
    let setups = match extent {
        MeasuringExtent::Full => vec![("all apart", APART), ("ether", ETHER), ("TCP", TCP)],
        MeasuringExtent::Quick => vec![("all apart", APART), ("ether", ETHER)],
    };
    let panel = |share| {
        let title = format!("4 KiB random {}, depth 64, 1 Gbit/s", name(share));
        let loads = [("alone", load(share, 64)), ("128 KiB, depth 8", mixed(share))];
        let panel = Panel::new(title, XAxis::Ticks("beside"));
        let panel =
            loads.into_iter().fold(panel, |panel, (tick, load)| panel.sides(tick, load, &setups));
        panel.chart(Metric::Iops, ChartKind::Bars).chart(Metric::LinkUse, ChartKind::Bars)
    };
    let claim = |text, published, share, ratio| EvalClaim {
        text,
        published,
        test: effect(Metric::Iops, PointPair::over([mixed(share)], ETHER, APART), ratio),
        why: "Both share one link, and the large requests take what the small ones leave: how it is divided \
              is a matter of order in the lane, not of batching.",
    };
    EvalFigure {
        id: "ether-fig8",
        source: "Tyche for small requests, fig. 8, over Ethernet",
        title: "4 KiB with 128 KiB joining, over Ethernet",
        question: "Does batching still help on a link that large requests fill?",
        how: "64 small requests in flight, then 8 large ones of the same direction beside them in the same lane; \
              link use covers both.",
        panels: vec![panel(100), panel(0)],
        claims: vec![
            claim("over Ethernet, beside 128 KiB: up to 3 times the reads", "x3", 100, 3.0),
            claim("over Ethernet, beside 128 KiB: up to 2 times the writes", "x2", 0, 2.0),
            EvalClaim {
                text: "mixed loads use 88.8 % of the link",
                published: "88.8 %",
                test: Test::Value {
                    metric: Metric::LinkUse,
                    at: EvalPoint::new(mixed(100), ETHER),
                    published: 88.8,
                },
                why: "Large pieces fill frames by themselves.",
            },
        ],
        tabled: &[Metric::Iops, Metric::BesideIops, Metric::LinkUse, Metric::Cpu],
        ..EvalFigure::default()
    }
}

/// Base, Rec, NoWQ, and what the authors never measured: both with batching.
fn hand_overs(extent: MeasuringExtent) -> EvalFigure {
    let depths = extent.pick(&[1, 128], &[1]);
    let with = |hand_over, sharing| ProductSetup { hand_over, sharing, ..ETHER };
    let mut setups = vec![("base, all apart", with(HandOver::Base, Sharing::Nothing))];
    if extent == MeasuringExtent::Full {
        setups.push(("Rec, all apart", with(HandOver::Rec, Sharing::Nothing)));
    }
    setups.push(("NoWQ, all apart", with(HandOver::NoWq, Sharing::Nothing)));
    setups.push(("NoWQ with batching", with(HandOver::NoWq, Sharing::All)));
    let of = |share, depth| LabLoad::small(share, depth).over(LoadLinks::unshaped(1));
    let panel = |share| {
        let title = format!("4 KiB random {}, one link", name(share));
        let panel = Panel::new(title, XAxis::Ticks("requests in flight"));
        let panel = depths
            .iter()
            .fold(panel, |panel, &depth| panel.sides(depth, of(share, depth), &setups));
        panel
            .chart(Metric::LatencyMean, ChartKind::LogLines)
            .chart(Metric::Cpu, ChartKind::LogLines)
    };
    let claim = |text, published, share, ratio| EvalClaim {
        text,
        published,
        test: effect(
            Metric::LatencyMean,
            PointPair::over(
                [of(share, 1)],
                with(HandOver::NoWq, Sharing::Nothing),
                with(HandOver::Base, Sharing::Nothing),
            ),
            ratio,
        ),
        why: "What a hand-over costs is a wake-up, and in this virtual machine one takes about 25 us.",
    };
    EvalFigure {
        id: "ether-modes",
        source: "Tyche for small requests, table I and II",
        title: "Threads and callbacks",
        question: "What do hand-overs between threads cost, and what is left with neither them nor small frames?",
        how: "Base: the network thread hands requests to another thread and gets completions back. Rec: the network \
              thread does the block layer's work, too. NoWQ: the completion is sent where it arises, too. Batching \
              on top is the combination that was never published. Base and Rec are a store on top of the product's, \
              which copies 4 KiB as often as that. One unshaped link.",
        panels: vec![panel(100), panel(0)],
        claims: vec![
            claim(
                "without hand-overs a 4 KiB read takes 53.4 us instead of 73.7",
                "-28 %",
                100,
                53.4 / 73.7,
            ),
            combination(
                of(100, 128),
                with(HandOver::NoWq, Sharing::All),
                with(HandOver::NoWq, Sharing::Nothing),
            ),
        ],
        tabled: &[
            Metric::Iops,
            Metric::LatencyMean,
            Metric::LatencyP99,
            Metric::Cpu,
            Metric::Switches,
        ],
        ..EvalFigure::default()
    }
}

fn combination(load: LabLoad, both: ProductSetup, apart: ProductSetup) -> EvalClaim {
    EvalClaim {
        text: "Rec, NoWQ and batching add up (never measured by the authors)",
        published: "not published",
        test: Test::Everywhere {
            metric: Metric::Iops,
            pairs: vec![PointPair::at(load, both, apart)],
            compare: Compare::Ratio,
            bound: Bound::AtLeast(1.0),
        },
        why: "They save different things: hand-overs between threads, and frames.",
    }
}
