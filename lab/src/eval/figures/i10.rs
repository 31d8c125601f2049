//! i10 (NSDI 2020), and its later I/O-scheduler version.

use crate::eval::plan::{
    ALL, AUTO, ChartKind, CpuPart, EvalClaim, EvalFigure, EvalPoint, I10, MAIN, NONE, PINOF,
    PairPick, Panel, PointPair, TYCHE, Test, UNBATCHED, XAxis,
};
use crate::judge::Bound;
use crate::metric::Metric;
use crate::runs::{Compare, MeasuringExtent};
use crate::workload::{KIB, LabLoad, LoadStore, ProductSetup};

/// Requests in flight on the core, as published.
const DEPTH: usize = 128;
const READS: LabLoad = LabLoad::small(100, DEPTH);

pub(super) fn figures(extent: MeasuringExtent) -> Vec<EvalFigure> {
    vec![
        load_latency(extent),
        read_share(extent),
        many_targets(extent),
        parts(),
        bytes(extent),
        cpu(extent),
    ]
}

fn open(store: LoadStore, percent: u8) -> LabLoad {
    LabLoad { peak_percent: Some(percent), ..READS.on(store) }
}

fn load_latency(extent: MeasuringExtent) -> EvalFigure {
    let steps = extent.pick(&[10, 30, 50, 70, 80, 90, 100], &[10, 50, 90]);
    let stores = extent.pick(&[LoadStore::Memory, LoadStore::Ssd], &[LoadStore::Memory]);
    let setups = match extent {
        MeasuringExtent::Full => vec![NONE, I10, PINOF, TYCHE, AUTO],
        MeasuringExtent::Quick => vec![NONE, I10, AUTO],
    };
    let panels = stores.iter().map(|&store| {
        let panel = Panel::new(
            format!("4 KiB random reads at a given rate, {}", store.name()),
            XAxis::Measured(Metric::Iops),
        );
        steps
            .iter()
            .fold(panel, |panel, &percent| {
                panel.loads(format!("{percent} %"), open(store, percent), &setups)
            })
            .chart(Metric::LatencyMean, ChartKind::LogLines)
            .chart(Metric::LatencyP99, ChartKind::LogLines)
            .chart(Metric::Cpu, ChartKind::Lines)
    });
    let low = open(stores[stores.len() - 1], 10);
    EvalFigure {
        id: "i10-fig6",
        source: "i10, fig. 6",
        title: "Load and latency",
        question: "How does latency grow with the load, and what does waiting cost while there is little?",
        how: "An open loop: requests come at a fixed rate, latency counts from when one was due. \
              The rates are shares of the peak: what the slowest of none, i10 and auto does in a \
              closed loop at depth 128. RDMA, i10's comparison, does not exist here: none stands \
              for a system that does not wait.",
        panels: panels.collect(),
        claims: load_latency_claims(low),
        ..EvalFigure::default()
    }
}

fn load_latency_claims(low: LabLoad) -> Vec<EvalClaim> {
    vec![
        EvalClaim {
            text: "at low load the doorbell's delay shows: i10's mean is 189 us where a system \
                       that does not wait (RDMA) takes 105",
            published: "x1.80",
            test: Test::Effect {
                metric: Metric::LatencyMean,
                pairs: vec![PointPair::at(low, I10, NONE)],
                pick: PairPick::Median,
                published: 189.0 / 105.0,
            },
            why: "The delay of 50 us is added to a round trip that takes about as long. On the \
                      emulated SSD the service time is in both, so the ratio is smaller than in \
                      memory.",
        },
        EvalClaim {
            text: "one core, memory: i10 as an I/O scheduler reaches 250 kIOPS where unbatched \
                       sending reaches 140",
            published: "x1.79",
            test: Test::Effect {
                metric: Metric::Iops,
                pairs: vec![PointPair::at(READS, I10, UNBATCHED)],
                pick: PairPick::Median,
                published: 250.0 / 140.0,
            },
            why: "Per-send costs are nearly all that the unbatched side does here: the storage \
                      path in user space is short, so removing sends removes more than in the \
                      kernel.",
        },
        EvalClaim {
            text: "an adaptive scheduler keeps i10's throughput (245 of 250 kIOPS)",
            published: "x0.98",
            test: Test::Everywhere {
                metric: Metric::Iops,
                pairs: vec![PointPair::at(READS, AUTO, I10)],
                compare: Compare::Ratio,
                bound: Bound::AtLeast(0.95),
            },
            why: "auto stands for the adaptive scheduler. It has no fixed limit of 16 requests, \
                      so it can also be ahead.",
        },
        EvalClaim {
            text: "an adaptive scheduler has the latency of no batching at low load (30 and 30 us; i10: 95)",
            published: "x1.00",
            test: Test::Everywhere {
                metric: Metric::LatencyMean,
                pairs: vec![PointPair::at(LabLoad::small(100, 1), AUTO, NONE)],
                compare: Compare::Ratio,
                bound: Bound::AtMost(1.05),
            },
            why: "At depth 1 nothing else can arrive before the completion, and auto sees that.",
        },
    ]
}

fn read_share(extent: MeasuringExtent) -> EvalFigure {
    let shares = extent.pick(&[0, 30, 50, 70, 100], &[0, 50, 100]);
    let setups: &[ProductSetup] = if extent == MeasuringExtent::Full { &ALL } else { &MAIN };
    let panel = Panel::new("4 KiB random, depth 128, memory", XAxis::Ticks("reads"));
    let panel = shares.iter().fold(panel, |panel, &share| {
        panel.loads(format!("{share} %"), LabLoad::small(share, DEPTH), setups)
    });
    let loads = shares.iter().map(|&share| LabLoad::small(share, DEPTH));
    let everywhere = |to| Test::Everywhere {
        metric: Metric::Iops,
        pairs: PointPair::over(loads.clone(), I10, to),
        compare: Compare::Ratio,
        bound: Bound::AtLeast(0.97),
    };
    EvalFigure {
        id: "i10-fig8",
        source: "i10, fig. 8",
        title: "Read share",
        question: "Does batching pay for every mix of reads and writes?",
        how: "A closed loop of 128 requests over one lane.",
        panels: vec![
            panel.chart(Metric::Iops, ChartKind::Lines).chart(Metric::LatencyP99, ChartKind::Lines),
        ],
        claims: vec![
            EvalClaim {
                text: "i10 is at least as fast as NVMe/TCP at every read share",
                published: ">= 1 everywhere",
                test: everywhere(UNBATCHED),
                why: "NVMe/TCP of 2019 is one request a send. Batching saves a system call, a \
                      pass through TCP and a wake-up in either direction, whatever the data's.",
            },
            EvalClaim {
                text: "the same against today's way of sending (all that is queued goes at once)",
                published: "not published",
                test: everywhere(NONE),
                why: "At depth 128 there is always something queued, so none fills its caravans \
                      without waiting, and it is not bound to 16 requests.",
            },
        ],
        ..EvalFigure::default()
    }
}

fn many_targets(extent: MeasuringExtent) -> EvalFigure {
    let lanes = extent.pick(&[1, 2, 4, 8, 16, 32], &[1, 8, 32]);
    let over = |lanes| LabLoad { lanes, ..READS };
    let panel =
        Panel::new("4 KiB random reads, 128 in flight in all, memory", XAxis::Ticks("lanes"));
    let setups: &[ProductSetup] = match extent {
        MeasuringExtent::Full => &MAIN,
        MeasuringExtent::Quick => &[UNBATCHED, NONE, I10, AUTO],
    };
    let panel = lanes.iter().fold(panel, |panel, &n| panel.loads(n, over(n), setups));
    let many = lanes.iter().copied().filter(|&n| n >= 16);
    EvalFigure {
        id: "i10-fig9",
        source: "i10, fig. 9",
        title: "Many targets",
        question: "What remains of batching when one core's requests go to many targets?",
        how: "A lane for each target, all lanes on one core of the host. They end at one target \
              process on the other core, as this machine has two: its cost is that of many \
              connections, not of many machines. The 128 requests in flight are shared among the \
              lanes, so each lane has 128/N.",
        panels: vec![
            panel
                .chart(Metric::Iops, ChartKind::Lines)
                .chart(Metric::RequestsPerCaravan, ChartKind::Lines)
                .chart(Metric::LatencyMean, ChartKind::Lines),
        ],
        claims: vec![EvalClaim {
            text: "the link is filled with 16 and more targets",
            published: "full from 16 targets on",
            test: Test::Everywhere {
                metric: Metric::Iops,
                pairs: many
                    .map(|n| PointPair {
                        of: EvalPoint::new(over(n), I10),
                        to: EvalPoint::new(READS, I10),
                    })
                    .collect(),
                compare: Compare::Ratio,
                bound: Bound::AtLeast(0.9),
            },
            why: "There, more targets bring more machines; here one core serves all of them, and \
                  with 128/N requests a lane the caravans shrink, less with i10's delay than \
                  without. The total depth is kept on purpose: it isolates what splitting costs.",
        }],
        ..EvalFigure::default()
    }
}

fn parts() -> EvalFigure {
    let published = |policy| {
        let delay = (policy == "i10").then_some(50); // the only one that has it
        ProductSetup { doorbell_delay_us: delay, ..ProductSetup::new(policy).limited(16, 64 * KIB) }
    };
    let queues = EvalPoint::new(LabLoad { lanes: 4, ..READS }, UNBATCHED);
    let lane = EvalPoint::new(READS, UNBATCHED);
    let caravans = EvalPoint::new(READS, published("none"));
    let doorbells = EvalPoint::new(READS, published("i10"));
    let steps = [
        ("4 connections", queues),
        ("+ lane", lane),
        ("+ caravans", caravans),
        ("+ doorbells", doorbells),
        ("auto", EvalPoint::new(READS, AUTO)),
    ];
    let panel = Panel::new("4 KiB random reads, 128 in flight, memory", XAxis::Ticks("step"));
    let panel =
        steps.iter().fold(panel, |panel, (step, point)| panel.cell("measured", step, *point));
    let share = |from, to, published| Test::Share {
        metric: Metric::Iops,
        from,
        to,
        whole: doorbells,
        published,
    };
    EvalFigure {
        id: "i10-fig10",
        source: "i10, fig. 10",
        title: "What each part adds",
        question: "How much of i10's throughput comes from lanes, from caravans and from delayed doorbells?",
        how: "Four connections on the core with one request a send; then one lane; then caravans \
              of up to 16 requests and 64 KiB of what is queued anyway; then the doorbell's delay \
              of 50 us. auto stands beside, as nothing of it is fixed.",
        panels: vec![
            panel
                .chart(Metric::Iops, ChartKind::Bars)
                .chart(Metric::Cpu, ChartKind::Bars)
                .chart(Metric::RequestsPerCaravan, ChartKind::Bars),
        ],
        claims: vec![
            EvalClaim {
                text: "caravans bring 38.2 % of i10's throughput",
                published: "38.2 %",
                test: share(lane, caravans, 0.382),
                why: "With 128 requests in flight on one core the queue is never empty, so \
                      caravans fill by themselves and bring nearly all of the gain.",
            },
            EvalClaim {
                text: "delayed doorbells bring another 23.2 %",
                published: "23.2 %",
                test: share(caravans, doorbells, 0.232),
                why: "They had to fill caravans that the kernel's submission path emptied too \
                      early. Our reactor looks at all that is ready before it sends, which has \
                      the same effect without a delay; at depth 128 nothing is left to wait for.",
            },
        ],
        ..EvalFigure::default()
    }
}

fn bytes(extent: MeasuringExtent) -> EvalFigure {
    let depths = extent.pick(&[1, 2, 4, 8, 16, 32, 64, 128, 256], &[1, 16, 128]);
    let panel = |name: &str, share, metric, requests| {
        let panel = Panel::new(format!("4 KiB random {name}, memory"), XAxis::Ticks("depth"));
        depths
            .iter()
            .fold(panel, |panel, &depth| panel.loads(depth, LabLoad::small(share, depth), &ALL))
            .chart(metric, ChartKind::LogLines)
            .chart(requests, ChartKind::LogLines)
    };
    EvalFigure {
        id: "i10-fig11",
        source: "i10, fig. 11",
        title: "Bytes per send",
        question: "How much does one send carry, so that segmentation offload has something to cut?",
        how: "What one send call carries: the target's answers with data for reads, the host's \
              commands with data for writes. The points are those of the depth ladder.",
        panels: vec![
            panel("reads", 100, Metric::TargetBytesPerSend, Metric::TargetRequestsPerCaravan),
            panel("writes", 0, Metric::BytesPerSend, Metric::RequestsPerCaravan),
        ],
        claims: vec![EvalClaim {
            text: "segments of about 61 KiB reach TCP",
            published: "61 KiB",
            test: Test::Value {
                metric: Metric::TargetBytesPerSend,
                at: EvalPoint::new(READS, I10),
                published: 61.0 * 1024.0,
            },
            why: "Sixteen answers of 4 KiB and their headers are 64.4 KiB.",
        }],
        ..EvalFigure::default()
    }
}

fn cpu(extent: MeasuringExtent) -> EvalFigure {
    let setups = extent.pick(&ALL, &[UNBATCHED, I10, AUTO]);
    let part = |part, published| Test::Profile {
        per_io: part != CpuPart::Application,
        part,
        of: EvalPoint::new(READS, I10),
        to: EvalPoint::new(READS, UNBATCHED),
        published,
    };
    EvalFigure {
        id: "i10-fig12",
        source: "i10, fig. 12",
        title: "Where CPU goes",
        question: "Which part of the CPU time does batching save?",
        how: "`perf record` of both cores by CPU clock (a virtual machine has no hardware \
              counters), 4 KiB random reads at depth 128, memory. Each sample counts where its \
              innermost frame of a known kind is: application (the load generator), block (both \
              ends' storage path: queue pairs, PDUs, memory), network (the kernel's TCP/IP, \
              sockets and copies), context switch (scheduler, sleeping, waking), other (entry, \
              interrupts, memory management), idle.",
        profiled: setups.into_iter().map(|setup| EvalPoint::new(READS, setup)).collect(),
        claims: vec![
            EvalClaim {
                text: "the network part takes 2.7 times less CPU",
                published: "x0.37",
                test: part(CpuPart::Network, 1.0 / 2.7),
                why: "One pass through TCP for 16 requests; what remains is copying.",
            },
            EvalClaim {
                text: "the others (scheduling and the rest) take 1.7 times less",
                published: "x0.59",
                test: part(CpuPart::Other, 1.0 / 1.7),
                why: "Fewer system calls and interrupts for each request.",
            },
            EvalClaim {
                text: "the application's share of the CPU is 1.8 to 2.9 times higher",
                published: "x1.8",
                test: part(CpuPart::Application, 1.8),
                why: "What batching saves is left for requests, and each of them is the \
                      application's. It is a load generator here: little, but more of it.",
            },
        ],
        ..EvalFigure::default()
    }
}
