//! PINoF (2022).

use crate::eval::plan::{
    ALL, AUTO, Claim, Figure, I10, Kind, LARGE, NONE, PINOF, PINOF_FLAT, Pair, Panel, Pick, STORES,
    Test, UNBATCHED, XAxis,
};
use crate::floor::Direction;
use crate::metric::Metric;
use crate::runs::Extent;
use crate::workload::{Class, KIB, Load, Setup, StoreKind, Stream, size};

const DEPTH: usize = 128;

pub(super) fn figures(extent: Extent) -> Vec<Figure> {
    vec![mixes(extent), write_sizes(extent), key_value()]
}

fn effect(metric: Metric, pairs: Vec<Pair>, pick: Pick, published: f64) -> Test {
    Test::Effect { metric, pairs, pick, published }
}

fn mixes(extent: Extent) -> Figure {
    let shares = extent.pick(&[100, 70, 50, 30, 0], &[100, 50, 0]);
    let stores = extent.pick(&STORES, &[StoreKind::Memory]);
    let panels = stores.iter().map(|&store| {
        let title = format!("4 KiB random, depth 128, {}", store.name());
        let panel = Panel::new(title, XAxis::Ticks("reads"));
        shares
            .iter()
            .fold(panel, |panel, &share| {
                let load = Load::small(share, DEPTH).on(store);
                panel.loads(format!("{share} %"), load, &[I10, PINOF, PINOF_FLAT, AUTO])
            })
            .chart(Metric::LatencyMean, Kind::Bars)
            .chart(Metric::LatencyP99, Kind::Bars)
            .chart(Metric::Bandwidth, Kind::Bars)
    });
    Figure {
        id: "pinof-fig5",
        source: "PINoF, fig. 5",
        title: "Mixes of 4 KiB reads and writes",
        question: "Do separate freights for commands and data beat one caravan for all?",
        how: "A closed loop of 128 requests over one lane; pinof-flat is its ablation without priorities.",
        panels: panels.collect(),
        claims: mixes_claims(&stores, &shares),
        ..Figure::default()
    }
}

fn mixes_claims(stores: &[StoreKind], shares: &[u8]) -> Vec<Claim> {
    let reads = || Pair::over([Load::small(100, DEPTH)], PINOF, I10);
    let mixed = || {
        let mixes = shares.iter().filter(|&&share| (1..100).contains(&share));
        Pair::over(mixes.map(|&share| Load::small(share, DEPTH)), PINOF, I10)
    };
    let why_reads = "A freight of 8 commands goes out earlier than a caravan of 16, so the two \
                     ends take turns less. At depth 128 neither timer often fires: what the \
                     publication gains by waiting 25 us instead of 50 is not there to be gained.";
    let why_mixed = "Two containers halve the fill at equal load: answers to writes (four a \
                     freight) and data leave in about twice as many sends, and the send is what \
                     costs here.";
    let mut claims = vec![
        Claim {
            text: "read-only, memory: mean latency 31.9 % below i10's",
            published: "-31.9 %",
            test: effect(Metric::LatencyMean, reads(), Pick::Median, 1.0 - 0.319),
            why: why_reads,
        },
        Claim {
            text: "read-only, memory: tail latency 20.5 % below i10's",
            published: "-20.5 %",
            test: effect(Metric::LatencyP99, reads(), Pick::Median, 1.0 - 0.205),
            why: why_reads,
        },
        Claim {
            text: "read-only, memory: bandwidth 33.6 % above i10's",
            published: "+33.6 %",
            test: effect(Metric::Bandwidth, reads(), Pick::Median, 1.336),
            why: why_reads,
        },
        Claim {
            text: "mixed, memory: latency up to 20.6 % below i10's",
            published: "-20.6 %",
            test: effect(Metric::LatencyMean, mixed(), Pick::Most, 1.0 - 0.206),
            why: why_mixed,
        },
        Claim {
            text: "mixed, memory: bandwidth up to 18.9 % above i10's",
            published: "+18.9 %",
            test: effect(Metric::Bandwidth, mixed(), Pick::Most, 1.189),
            why: why_mixed,
        },
    ];
    let ssd = match stores.contains(&StoreKind::Ssd) {
        true => {
            let loads = shares.iter().map(|&share| Load::small(share, DEPTH).on(StoreKind::Ssd));
            let pairs = Pair::over(loads, PINOF, I10);
            effect(Metric::Bandwidth, pairs, Pick::Least, 1.128)
        }
        false => Test::Elsewhere,
    };
    claims.push(Claim {
        text: "SSD: bandwidth at least 12.8 % above i10's",
        published: "+12.8 %",
        test: ssd,
        why: "The emulated SSD serves 64 commands at once in 100 us each, at most 640 kIOPS: it \
              is a limit that all policies come close to.",
    });
    claims
}

fn write_sizes(extent: Extent) -> Figure {
    let sizes = extent.pick(&[1, 2, 4, 8, 16, 32, 64], &[4, 32, 64]);
    let setups: &[Setup] = match extent {
        Extent::Full => &ALL,
        Extent::Quick => &[NONE, I10, PINOF, PINOF_FLAT, AUTO],
    };
    let loads: Vec<Load> = sizes.iter().map(|kib| Load::new(0, kib * KIB, DEPTH)).collect();
    let panel = Panel::new("random writes, depth 128, memory", XAxis::Ticks("bytes a request"));
    let panel = loads.iter().fold(panel, |panel, load| panel.loads(size(load.bs), *load, setups));
    Figure {
        id: "pinof-fig6",
        source: "PINoF, fig. 6",
        title: "Write sizes",
        question: "Do priorities pay, and where is the knee that R2T makes?",
        how: "Writes of up to 16 KiB travel in the command capsule; larger ones wait for an R2T. \
              The comparison is PINoF's own: the same freights without priorities.",
        panels: vec![
            panel
                .chart(Metric::Iops, Kind::LogLines)
                .chart(Metric::Bandwidth, Kind::Lines)
                .chart(Metric::LatencyP99, Kind::LogLines),
        ],
        claims: vec![Claim {
            text: "priorities bring 9.2 % more IOPS than the same design without",
            published: "+9.2 %",
            test: effect(Metric::Iops, Pair::over(loads, PINOF, PINOF_FLAT), Pick::Median, 1.092),
            why: "Priorities matter where commands or R2Ts would wait behind data. One core a \
                  side is limited by copying data, and a reactor that sends all it has at the end \
                  of a turn leaves little to wait for.",
        }],
        ..Figure::default()
    }
}

/// Point requests beside what flushing and compaction write.
fn key_value_load() -> Load {
    Load::small(90, 32).beside(Stream {
        rw: Direction::Write,
        bs: LARGE,
        depth: 4,
        class: Some(Class::Bulk),
        own_lane: false,
    })
}

fn key_value() -> Figure {
    let load = key_value_load();
    let panel = Panel::new(load.to_string(), XAxis::Ticks("load")).loads("mix", load, &ALL);
    let against = |metric, to, published| {
        effect(metric, vec![Pair::at(load, PINOF, to)], Pick::Median, published)
    };
    let stand_in = "RocksDB itself is not run: a fixed mix stands for it, and its writes weigh \
                    more than compaction does there. As with the 4 KiB mixes, two containers are \
                    less full than one.";
    let batching = "RocksDB itself is not run: a fixed mix stands for it. Its point requests are \
                    small, so nearly all of their cost is in sends, and there is no application \
                    beside.";
    Figure {
        id: "pinof-fig8",
        source: "PINoF, fig. 8; i10, fig. 13",
        title: "A key-value mix",
        question: "What would a key-value store see?",
        how: "A stand-in for RocksDB, not RocksDB: 4 KiB point requests, nine reads to a write, \
              32 in flight, beside 128 KiB writes, four in flight, as flushing and compaction \
              make them; all over one lane. Real applications come later.",
        panels: vec![
            panel
                .chart(Metric::Iops, Kind::Bars)
                .chart(Metric::LatencyP99, Kind::Bars)
                .chart(Metric::BesideBandwidth, Kind::Bars),
        ],
        claims: vec![
            Claim {
                text: "RocksDB: throughput 15.7 % above i10's",
                published: "+15.7 %",
                test: against(Metric::Iops, I10, 1.157),
                why: stand_in,
            },
            Claim {
                text: "RocksDB: p99 12.9 % below i10's",
                published: "-12.9 %",
                test: against(Metric::LatencyP99, I10, 1.0 - 0.129),
                why: stand_in,
            },
            Claim {
                text: "RocksDB: throughput 44 % above NVMe/TCP's",
                published: "+44 %",
                test: against(Metric::Iops, UNBATCHED, 1.44),
                why: batching,
            },
            Claim {
                text: "i10: RocksDB 1.2 times faster than over NVMe/TCP",
                published: "x1.2",
                test: effect(Metric::Iops, vec![Pair::at(load, I10, UNBATCHED)], Pick::Median, 1.2),
                why: batching,
            },
            Claim {
                text: "i10: RocksDB with half of the kernel's CPU time (here: all CPU time a request)",
                published: "x0.5",
                test: effect(Metric::Cpu, vec![Pair::at(load, I10, UNBATCHED)], Pick::Median, 0.5),
                why: batching,
            },
        ],
        ..Figure::default()
    }
}
