//! Tyche over Ethernet: several links. All over veth pairs between two network namespaces, host on core 0,
//! target on core 1.

mod small;

use crate::eval::plan::{
    AUTO, ChartKind, EvalClaim, EvalFigure, EvalPoint, EvalSide, LARGE, PairPick, Panel, PointPair,
    Test, XAxis,
};
use crate::judge::{Bound, Goal, Rule};
use crate::metric::Metric;
use crate::runs::{Compare, MeasuringExtent};
use crate::workload::{KIB, LabLoad, LoadLinks, ProductSetup, ProductTransport, SendMode};

/// The product over frames.
const ETHER: ProductSetup = ProductSetup { over: ProductTransport::Ether, ..AUTO };
/// The same protocol over a TCP connection for each link.
const SOCKETS: ProductSetup = ProductSetup { over: ProductTransport::Sockets, ..AUTO };
/// NVMe/TCP, as everywhere else in the evaluation.
const TCP: ProductSetup = AUTO;

pub(super) fn figures(extent: MeasuringExtent) -> Vec<EvalFigure> {
    let mut figures = vec![links(extent), receivers(extent), modes(extent)];
    figures.extend(small::figures(extent));
    figures
}

/// Sides at every load.
fn contestants() -> [(&'static str, EvalSide); 4] {
    [
        ("ether", EvalSide::Product(ETHER)),
        ("TCP", EvalSide::Product(TCP)),
        ("TSockets", EvalSide::Product(SOCKETS)),
        ("nbdkit", EvalSide::Nbdkit),
    ]
}

fn name(share: u8) -> &'static str {
    if share == 100 { "reads" } else { "writes" }
}

/// 128 KiB requests, 16 in flight for each link.
fn large(share: u8, wire: LoadLinks) -> LabLoad {
    LabLoad::new(share, LARGE, 16 * wire.links).over(wire)
}

fn links(extent: MeasuringExtent) -> EvalFigure {
    let shaped = extent.pick(&[1, 2, 3, 4, 5, 6], &[1, 2]);
    let unshaped = extent.pick(&[1, 3, 6], &[1]);
    let panel =
        |kind: &str, share, counts: &[usize], wire: fn(usize) -> LoadLinks, sides: usize| {
            let title = format!("128 KiB random {}, {kind}", name(share));
            let panel = Panel::new(title, XAxis::Ticks("links"));
            let panel = counts.iter().fold(panel, |panel, &n| {
                panel.sides(n, large(share, wire(n)), &contestants()[..sides])
            });
            let panel = panel
                .chart(Metric::Bandwidth, ChartKind::Lines)
                .chart(Metric::Cpu, ChartKind::Lines);
            panel.chart(Metric::BusiestCore, ChartKind::Lines)
        };
    let of = |share| {
        [
            panel("1 Gbit/s each", share, &shaped, LoadLinks::gigabit, 4),
            panel("as fast as the machine", share, &unshaped, LoadLinks::unshaped, 2),
        ]
    };
    EvalFigure {
        id: "ether-fig9",
        source: "Tyche, fig. 9",
        title: "Throughput against the number of links",
        question: "Does each link add its speed?",
        how: "16 requests in flight for each link, all over one lane; TCP: a process, and so a connection, for \
              each link; nbdkit: fio with a connection for each. Links are shaped to 1 Gbit/s in a namespace \
              between host and target, with 24 bytes more for each frame, as on a wire: the two cores shape and \
              forward as well. A core is busy when it is not idle, interrupts included: that says where they stop \
              sufficing.",
        panels: [100, 0].into_iter().flat_map(of).collect(),
        claims: vec![
            scaling(&shaped, "line rate as links are added (1 to 3 NICs of 10 GbE there)"),
            against(
                "reads: three times the throughput of TSockets at 6 NICs",
                "x2.95",
                2.95,
                &shaped,
                SOCKETS,
            ),
            nbd(&shaped),
        ],
        goals: shaped_goals(&shaped),
        why: "Where a link is not filled both cores are busy nearly all the time: they have to shape and pass on the \
              frames of all links besides.",
        tabled: &[Metric::Bandwidth, Metric::LinkUse, Metric::BusiestCore],
        ..EvalFigure::default()
    }
}

/// Links that are full stay full as their number grows.
fn shaped_goals(counts: &[usize]) -> Vec<Goal<EvalPoint>> {
    let one = |share| EvalPoint::new(large(share, LoadLinks::gigabit(1)), ETHER);
    let goal = |share, n: usize| Goal {
        row: format!("{n} links"),
        column: name(share).to_owned(),
        metric: Metric::Bandwidth,
        of: EvalPoint::new(large(share, LoadLinks::gigabit(n)), ETHER),
        among: vec![one(share)],
        compare: Compare::Ratio,
        bound: Some(Bound::AtLeast(0.95 * n as f64)),
        rule: Rule::Interval,
    };
    let more = counts.iter().filter(|&&n| n > 1);
    more.flat_map(|&n| [goal(100, n), goal(0, n)]).collect()
}

fn scaling(counts: &[usize], text: &'static str) -> EvalClaim {
    let last = counts.iter().copied().max().unwrap_or(1).min(3);
    let pair = |share| PointPair {
        of: EvalPoint::new(large(share, LoadLinks::gigabit(last)), ETHER),
        to: EvalPoint::new(large(share, LoadLinks::gigabit(1)), ETHER),
    };
    EvalClaim {
        text,
        published: "line rate",
        test: Test::Everywhere {
            metric: Metric::Bandwidth,
            pairs: vec![pair(100), pair(0)],
            compare: Compare::Ratio,
            bound: Bound::AtLeast(0.95 * last as f64),
        },
        why: "Each frame takes the link on which it will be done first, so all are full at once; links of \
              1 Gbit/s are far from what a core can do.",
    }
}

fn against(
    text: &'static str,
    published: &'static str,
    ratio: f64,
    counts: &[usize],
    other: ProductSetup,
) -> EvalClaim {
    let most = counts.iter().copied().max().unwrap_or(1);
    let load = large(100, LoadLinks::gigabit(most));
    let pairs = vec![PointPair::at(load, ETHER, other)];
    EvalClaim {
        text,
        published,
        test: Test::Effect {
            metric: Metric::Bandwidth,
            pairs,
            pick: PairPick::Most,
            published: ratio,
        },
        why: "There six links of 10 Gbit/s were more than TCP could use. Here the links are the limit for \
              both: what differs is CPU time.",
    }
}

fn nbd(counts: &[usize]) -> EvalClaim {
    let most = counts.iter().copied().max().unwrap_or(1);
    let load = large(100, LoadLinks::gigabit(most));
    let of = EvalPoint::new(load, ETHER);
    let to = EvalPoint { load, side: EvalSide::Nbdkit };
    EvalClaim {
        text: "reads: ten times the throughput of NBD at 6 NICs",
        published: "x10.2",
        test: Test::Effect {
            metric: Metric::Bandwidth,
            pairs: vec![PointPair { of, to }],
            pick: PairPick::Most,
            published: 10.2,
        },
        why: "The NBD of 2014 had one connection; here nbdkit has one for each link and the links are the \
              limit.",
    }
}

/// Writes that the target receives by one thread or by two.
fn receivers(extent: MeasuringExtent) -> EvalFigure {
    let counts = extent.pick(&[1, 2, 4, 6], &[2]);
    let load = |n| LabLoad { lanes: 2, ..large(0, LoadLinks::unshaped(n)) };
    let with = |reactors| ProductSetup { reactors, ..ETHER };
    let panel = Panel::new("128 KiB random writes, as fast as the machine", XAxis::Ticks("links"));
    let panel = counts.iter().fold(panel, |panel, &n| {
        let sides = [("1 receive thread", with(1)), ("2 receive threads", with(2))];
        panel.sides(n, load(n), &sides)
    });
    let pairs = counts.iter().map(|&n| PointPair::at(load(n), with(2), with(1))).collect();
    EvalFigure {
        id: "ether-fig11",
        source: "Tyche, fig. 11",
        title: "Receive threads against links",
        question: "How many links does one receive thread serve?",
        how: "Two lanes, so that the target can deal them out to its reactors; a reactor reads its part of every \
              link. The machine has two cores: the target's second reactor shares the host's.",
        panels: vec![
            panel.chart(Metric::Bandwidth, ChartKind::Lines).chart(Metric::Cpu, ChartKind::Lines),
        ],
        claims: vec![EvalClaim {
            text: "one receive thread serves about two NICs: more links want more threads",
            published: "2 NICs",
            test: Test::Everywhere {
                metric: Metric::Bandwidth,
                pairs,
                compare: Compare::Ratio,
                bound: Bound::AtLeast(1.0),
            },
            why: "A veth pair's receiver works in the sender's system call: with both cores busy on one link there \
                  is no third one for another thread.",
        }],
        tabled: &[Metric::Bandwidth, Metric::Cpu],
        ..EvalFigure::default()
    }
}

/// Inline and queue mode, as over TCP.
fn modes(extent: MeasuringExtent) -> EvalFigure {
    let threads = extent.pick(&[1, 4, 16, 64], &[1]);
    let queue = ProductSetup { mode: SendMode::Queue, ..ETHER };
    let wire = LoadLinks::unshaped(1);
    let load = |share, bs, n| LabLoad::of_threads(share, bs, n).over(wire);
    let panel = |share, bs: usize, threads: &[usize]| {
        let title = format!("{} KiB random {}, one link", bs / KIB, name(share));
        let panel = Panel::new(title, XAxis::Ticks("threads"));
        let panel = threads.iter().fold(panel, |panel, &n| {
            panel.sides(n, load(share, bs, n), &[("inline", ETHER), ("queue", queue)])
        });
        let y = if bs == 4 * KIB { Metric::Iops } else { Metric::Bandwidth };
        panel.chart(y, ChartKind::LogLines).chart(Metric::Cpu, ChartKind::LogLines)
    };
    let effect =
        |pairs| Test::Effect { metric: Metric::Iops, pairs, pick: PairPick::Most, published: 1.31 };
    let small = threads.iter().map(|&n| load(100, 4 * KIB, n));
    let many = [load(0, 512 * KIB, 64)];
    EvalFigure {
        id: "ether-fig12",
        source: "Tyche, fig. 12",
        title: "Inline and queue mode over Ethernet",
        question: "Should the thread that has a request send it, when no connection has to be shared?",
        how: "As over TCP: inline, each thread drives a lane of its own; queue, all hand over to one reactor with \
              one lane. One unshaped link.",
        panels: vec![
            panel(100, 4 * KIB, &threads),
            panel(0, 512 * KIB, &extent.pick(&[64], &[64])),
        ],
        claims: vec![
            EvalClaim {
                text: "4 KiB requests over Ethernet: inline up to 31 % faster than queue mode",
                published: "+31 %",
                test: effect(PointPair::over(small, ETHER, queue)),
                why: "A hand-over costs a wake-up each way; with more threads the reactor packs the requests of \
                      many into one frame, which threads with a lane each cannot.",
            },
            EvalClaim {
                text: "512 KiB writes of 64 threads over Ethernet: queue mode up to 31 % faster",
                published: "+31 %",
                test: effect(PointPair::over(many, queue, ETHER)),
                why: "In the publication threads fight for a lock to send. Here each has a lane, with a window and \
                      a socket of its own on the same core.",
            },
        ],
        tabled: &[Metric::Iops, Metric::Cpu, Metric::HostWakeUps],
        ..EvalFigure::default()
    }
}
