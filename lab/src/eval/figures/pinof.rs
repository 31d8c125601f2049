//! PINoF (2022).

use crate::eval::plan::{
    ALL, AUTO, ChartKind, EvalClaim, EvalFigure, I10, LARGE, NONE, PINOF, PINOF_FLAT, PairPick,
    Panel, PointPair, STORES, Test, UNBATCHED, XAxis,
};
use crate::floor::DataDirection;
use crate::metric::Metric;
use crate::runs::MeasuringExtent;
use crate::workload::{KIB, LabLoad, LoadStore, ProductSetup, SecondLoad, StreamClass, size};

const DEPTH: usize = 128;

pub(super) fn figures(extent: MeasuringExtent) -> Vec<EvalFigure> {
    vec![mixes(extent), write_sizes(extent), key_value()]
}

fn effect(metric: Metric, pairs: Vec<PointPair>, pick: PairPick, published: f64) -> Test {
    Test::Effect { metric, pairs, pick, published }
}

fn mixes(extent: MeasuringExtent) -> EvalFigure {
    let shares = extent.pick(&[100, 70, 50, 30, 0], &[100, 50, 0]);
    let stores = extent.pick(&STORES, &[LoadStore::Memory]);
    let panels = stores.iter().map(|&store| {
        let title = format!("4 KiB random, depth 128, {}", store.name());
        let panel = Panel::new(title, XAxis::Ticks("reads"));
        shares
            .iter()
            .fold(panel, |panel, &share| {
                let load = LabLoad::small(share, DEPTH).on(store);
                panel.loads(format!("{share} %"), load, &[I10, PINOF, PINOF_FLAT, AUTO])
            })
            .chart(Metric::LatencyMean, ChartKind::Bars)
            .chart(Metric::LatencyP99, ChartKind::Bars)
            .chart(Metric::Bandwidth, ChartKind::Bars)
    });
    EvalFigure {
        id: "pinof-fig5",
        source: "PINoF, fig. 5",
        title: "Mixes of 4 KiB reads and writes",
        question: "Do separate freights for commands and data beat one caravan for all?",
        how: "A closed loop of 128 requests over one lane; pinof-flat is its ablation without priorities.",
        panels: panels.collect(),
        claims: mixes_claims(&stores, &shares),
        ..EvalFigure::default()
    }
}

fn mixes_claims(stores: &[LoadStore], shares: &[u8]) -> Vec<EvalClaim> {
    let reads = || PointPair::over([LabLoad::small(100, DEPTH)], PINOF, I10);
    let mixed = || {
        let mixes = shares.iter().filter(|&&share| (1..100).contains(&share));
        PointPair::over(mixes.map(|&share| LabLoad::small(share, DEPTH)), PINOF, I10)
    };
    let why_reads = "A freight of 8 commands goes out earlier than a caravan of 16, so the two \
                     ends take turns less. At depth 128 neither timer often fires: what the \
                     publication gains by waiting 25 us instead of 50 is not there to be gained.";
    let why_mixed = "Two containers halve the fill at equal load: answers to writes (four a \
                     freight) and data leave in about twice as many sends, and the send is what \
                     costs here.";
    let mut claims = vec![
        EvalClaim {
            text: "read-only, memory: mean latency 31.9 % below i10's",
            published: "-31.9 %",
            test: effect(Metric::LatencyMean, reads(), PairPick::Median, 1.0 - 0.319),
            why: why_reads,
        },
        EvalClaim {
            text: "read-only, memory: tail latency 20.5 % below i10's",
            published: "-20.5 %",
            test: effect(Metric::LatencyP99, reads(), PairPick::Median, 1.0 - 0.205),
            why: why_reads,
        },
        EvalClaim {
            text: "read-only, memory: bandwidth 33.6 % above i10's",
            published: "+33.6 %",
            test: effect(Metric::Bandwidth, reads(), PairPick::Median, 1.336),
            why: why_reads,
        },
        EvalClaim {
            text: "mixed, memory: latency up to 20.6 % below i10's",
            published: "-20.6 %",
            test: effect(Metric::LatencyMean, mixed(), PairPick::Most, 1.0 - 0.206),
            why: why_mixed,
        },
        EvalClaim {
            text: "mixed, memory: bandwidth up to 18.9 % above i10's",
            published: "+18.9 %",
            test: effect(Metric::Bandwidth, mixed(), PairPick::Most, 1.189),
            why: why_mixed,
        },
    ];
    let ssd = match stores.contains(&LoadStore::Ssd) {
        true => {
            let loads = shares.iter().map(|&share| LabLoad::small(share, DEPTH).on(LoadStore::Ssd));
            let pairs = PointPair::over(loads, PINOF, I10);
            effect(Metric::Bandwidth, pairs, PairPick::Least, 1.128)
        }
        false => Test::Elsewhere,
    };
    claims.push(EvalClaim {
        text: "SSD: bandwidth at least 12.8 % above i10's",
        published: "+12.8 %",
        test: ssd,
        why: "The emulated SSD serves 64 commands at once in 100 us each, at most 640 kIOPS: it \
              is a limit that all policies come close to.",
    });
    claims
}

fn write_sizes(extent: MeasuringExtent) -> EvalFigure {
    let sizes = extent.pick(&[1, 2, 4, 8, 16, 32, 64], &[4, 32, 64]);
    let setups: &[ProductSetup] = match extent {
        MeasuringExtent::Full => &ALL,
        MeasuringExtent::Quick => &[NONE, I10, PINOF, PINOF_FLAT, AUTO],
    };
    let loads: Vec<LabLoad> = sizes.iter().map(|kib| LabLoad::new(0, kib * KIB, DEPTH)).collect();
    let panel = Panel::new("random writes, depth 128, memory", XAxis::Ticks("bytes a request"));
    let panel = loads.iter().fold(panel, |panel, load| panel.loads(size(load.bs), *load, setups));
    EvalFigure {
        id: "pinof-fig6",
        source: "PINoF, fig. 6",
        title: "Write sizes",
        question: "Do priorities pay, and where is the knee that R2T makes?",
        how: "Writes of up to 16 KiB travel in the command capsule; larger ones wait for an R2T. \
              The comparison is PINoF's own: the same freights without priorities.",
        panels: vec![
            panel
                .chart(Metric::Iops, ChartKind::LogLines)
                .chart(Metric::Bandwidth, ChartKind::Lines)
                .chart(Metric::LatencyP99, ChartKind::LogLines),
        ],
        claims: vec![EvalClaim {
            text: "priorities bring 9.2 % more IOPS than the same design without",
            published: "+9.2 %",
            test: effect(
                Metric::Iops,
                PointPair::over(loads, PINOF, PINOF_FLAT),
                PairPick::Median,
                1.092,
            ),
            why: "Priorities matter where commands or R2Ts would wait behind data. One core a \
                  side is limited by copying data, and a reactor that sends all it has at the end \
                  of a turn leaves little to wait for.",
        }],
        ..EvalFigure::default()
    }
}

/// Point requests together with the writes of flushing and compaction.
fn key_value_load() -> LabLoad {
    LabLoad::small(90, 32).with_second_load(SecondLoad {
        rw: DataDirection::Write,
        bs: LARGE,
        depth: 4,
        class: Some(StreamClass::Bulk),
        own_lane: false,
    })
}

fn key_value() -> EvalFigure {
    let load = key_value_load();
    let panel = Panel::new(load.to_string(), XAxis::Ticks("load")).loads("mix", load, &ALL);
    let against = |metric, to, published| {
        effect(metric, vec![PointPair::at(load, PINOF, to)], PairPick::Median, published)
    };
    let of_i10 = |metric, published| {
        effect(metric, vec![PointPair::at(load, I10, UNBATCHED)], PairPick::Median, published)
    };
    let stand_in = "RocksDB itself is not run: a fixed mix stands for it, and its writes weigh \
                    more than compaction does there. As with the 4 KiB mixes, two containers are \
                    less full than one.";
    let batching = "RocksDB itself is not run: a fixed mix stands for it. Its point requests are \
                    small, so nearly all of their cost is in sends, and there is no application \
                    beside.";
    EvalFigure {
        id: "pinof-fig8",
        source: "PINoF, fig. 8; i10, fig. 13",
        title: "A key-value mix",
        question: "What would a key-value store see?",
        how: "A stand-in for RocksDB, not RocksDB: 4 KiB point requests, nine reads to a write, \
              32 in flight, beside 128 KiB writes, four in flight, as flushing and compaction \
              make them; all over one lane. Real applications come later.",
        panels: vec![
            panel
                .chart(Metric::Iops, ChartKind::Bars)
                .chart(Metric::LatencyP99, ChartKind::Bars)
                .chart(Metric::BesideBandwidth, ChartKind::Bars),
        ],
        claims: vec![
            EvalClaim {
                text: "RocksDB: throughput 15.7 % above i10's",
                published: "+15.7 %",
                test: against(Metric::Iops, I10, 1.157),
                why: stand_in,
            },
            EvalClaim {
                text: "RocksDB: p99 12.9 % below i10's",
                published: "-12.9 %",
                test: against(Metric::LatencyP99, I10, 1.0 - 0.129),
                why: stand_in,
            },
            EvalClaim {
                text: "RocksDB: throughput 44 % above NVMe/TCP's",
                published: "+44 %",
                test: against(Metric::Iops, UNBATCHED, 1.44),
                why: batching,
            },
            EvalClaim {
                text: "i10: RocksDB 1.2 times faster than over NVMe/TCP",
                published: "x1.2",
                test: of_i10(Metric::Iops, 1.2),
                why: batching,
            },
            EvalClaim {
                text: "i10: RocksDB with half of the kernel's CPU time (here: all CPU time a request)",
                published: "x0.5",
                test: of_i10(Metric::Cpu, 0.5),
                why: batching,
            },
        ],
        ..EvalFigure::default()
    }
}
