//! The cases of the table: sides that are run in turns, and what their figures have to be.

use super::hosts::HostProcesses;
use crate::floor::DataDirection;
use crate::judge::{Bound, Goal, Rule};
use crate::metric::Metric;
use crate::runs::Compare;
use crate::workload::{KIB, LabLoad, LoadWaiting, ProductSetup};

/// The part of the report that has a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TableSection {
    /// The product without any option.
    Default,
    /// 4 KiB random at depth 128, one lane.
    Throughput,
    /// Large requests.
    Bandwidth,
    /// Round trips at depth 1, by the way of waiting.
    RoundTrip,
    /// Gains of lanes, caravans and doorbells.
    Parts,
    /// Latency at several depths.
    Depths,
    /// Ends that share a core, that have one each, and two lanes over both.
    Cores,
    /// The same number in flight over one connection and over many, to one reactor.
    Connections,
    /// Several host processes at one target.
    Hosts,
    /// The product with and without TLS.
    Tls,
    /// Waiting modes: blocking, spinning for a set time, the product's default, polling all the time.
    Waiting,
}

/// A side of a case; it can make several runs in one turn.
#[derive(Clone, Debug)]
pub(super) enum TableSide {
    Product(LabLoad, ProductSetup),
    /// The product, named by its policy.
    Policy(LabLoad, ProductSetup),
    /// Another stack, by the command that the user names.
    Peer(LabLoad),
    /// The floor with at most so many messages a send.
    Floor(LabLoad, ProductSetup, usize),
    /// Hosts that run at once, each with a target: the cores of both, and the lanes of each host.
    Pairs(&'static [(&'static str, &'static str)], usize),
    /// Floors that run at once: the host's core and the target's.
    Floors(&'static [(usize, usize)]),
    /// Several host processes.
    Hosts(HostProcesses),
    /// Connections, and how many are in flight on each.
    Connections(usize, usize),
    /// A bare exchange over them.
    Exchange(usize, usize),
    /// Plain, with TLS, the cipher alone, and the limit that follows from it.
    Tls(LabLoad),
    /// All ways of waiting, the best of those that sleep, and the polled floor.
    Waits(WaitLoad),
}

/// A load for the ways of waiting.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitLoad {
    pub(super) depth: usize,
    /// Requests a second; a closed loop without.
    pub(super) rate: Option<f64>,
    /// Another thread wants all that each core has.
    pub(super) has_neighbour: bool,
}

/// One line of the table.
#[derive(Clone, Debug)]
pub(super) struct TableCase {
    pub(super) id: String,
    pub(super) section: TableSection,
    pub(super) title: String,
    pub(super) sides: Vec<TableSide>,
    pub(super) goals: Vec<Goal<(String, String)>>,
}

/// The ways of waiting, named as options. The product decides by itself without one.
pub(super) const WAYS: [(&str, LoadWaiting); 5] = [
    ("--no-spin", LoadWaiting::Sleep),
    ("--spin-us 20", LoadWaiting::SpinUs(20)),
    ("--spin-us 50", LoadWaiting::SpinUs(50)),
    ("default", LoadWaiting::Default),
    ("--busy-poll", LoadWaiting::BusyPoll),
];

impl TableSide {
    /// Names of its runs.
    pub(super) fn runs(&self) -> Vec<&'static str> {
        match self {
            Self::Product(..) | Self::Pairs(..) | Self::Connections(..) => vec!["product"],
            Self::Policy(_, setup) => vec![setup.policy],
            Self::Peer(_) => vec!["peer"],
            Self::Hosts(hosts) => vec![hosts.name],
            Self::Floor(..) | Self::Floors(_) => vec!["floor"],
            Self::Exchange(..) => vec!["bare exchange"],
            Self::Tls(_) => vec!["plain", "TLS", "cipher", "limit"],
            Self::Waits(wait) => {
                let mut runs: Vec<&str> = WAYS.iter().map(|(name, _)| *name).collect();
                if wait.rate.is_none() && !wait.has_neighbour {
                    runs.extend(["best", "polled floor"]);
                }
                runs
            }
        }
    }

    /// Runs without the product.
    pub(super) fn is_floor(&self) -> bool {
        matches!(self, Self::Floor(..) | Self::Floors(_) | Self::Exchange(..))
    }
}

impl TableCase {
    /// Adds another stack to a case of the product without any option.
    pub(super) fn with_peer(mut self) -> Self {
        if let (TableSection::Default, TableSide::Policy(load, _)) = (self.section, &self.sides[0])
        {
            let load = *load;
            self.sides.push(TableSide::Peer(load));
        }
        self
    }
}

/// The ratio of a figure of a side to that of a side of any case.
pub(super) fn ratio(
    id: &str,
    (what, metric): (&str, Metric),
    of: &str,
    (to_id, to): (&str, &str),
    bound: Option<Bound>,
) -> Goal<(String, String)> {
    Goal {
        row: id.to_owned(),
        column: what.to_owned(),
        metric,
        compare: Compare::Ratio,
        of: (id.to_owned(), of.to_owned()),
        among: vec![(to_id.to_owned(), to.to_owned())],
        bound,
        rule: Rule::Median,
    }
}

/// IOPS by default, of those of `none`: up to 8 in flight, and from 32 on.
const OF_NONE_MIN: f64 = 0.95;
const OF_NONE_MIN_OF_MUCH: f64 = 0.97;
const IOPS_RATIO_MIN: f64 = 0.85;
const CPU_RATIO_MAX: f64 = 1.25;
/// 800 k reads where the floor does 1,050 k, 900 k writes where it does 1,260 k.
const LIFTED_READS_RATIO_MIN: f64 = 800.0 / 1050.0;
const LIFTED_WRITES_RATIO_MIN: f64 = 900.0 / 1260.0;
const BANDWIDTH_RATIO_MIN: f64 = 0.85;
const SLEEPING_RATIO_MAX: f64 = 1.15;
/// 12.5 us where the polled floor takes 9.8.
const AWAKE_RATIO_MAX: f64 = 12.5 / 9.8;
/// Two lanes over both cores, of two pairs on a core each: throughput, and the 99th percentile.
const PAIRS_IOPS_MIN: f64 = 0.95;
const PAIRS_P99_MAX: f64 = 1.2;
/// Throughput of 16 connections, of that of one. With more the time is the kernel's: see the bare exchange.
const OF_ONE_MIN: f64 = 0.8;
/// Jain's index over the connections.
const FAIRNESS_MIN: f64 = 0.95;
/// Throughput with TLS, of that of the limit.
const OF_LIMIT_MIN: f64 = 0.85;
/// Time that TLS may add to a round trip at depth 1, in microseconds.
const ADDED_US_MAX: f64 = 8.0;
/// Mean latency by default, of that of the best other way that sleeps.
const OF_BEST_MAX: f64 = 1.15;
/// CPU time by default, of that of sleeping: of closed loops, and of requests at a rate.
const OF_SLEEPING_MAX: f64 = 1.10;
const OF_SLEEPING_AT_RATE_MAX: f64 = 1.05;
/// Mean latency by default, of that of the polled floor.
const OF_POLLED_MAX: f64 = 1.3;

/// One request a send, as NVMe/TCP of 2019.
const UNBATCHED: ProductSetup = ProductSetup::new("none").limited(1, 64 * KIB);
/// Caravans of what is queued anyway, as today's Linux.
const NONE: ProductSetup = ProductSetup::new("none").limited(16, 64 * KIB);
/// i10 as published.
const I10: ProductSetup = i10(16, 64 * KIB);
/// i10 with the caravan's limits lifted: a full caravan is all that is in flight, so waiting for one would
/// let both ends take turns.
const LIFTED: ProductSetup = ProductSetup { doorbell_delay_us: Some(0), ..LIFTED_HELD };
/// The same with the delay.
const LIFTED_HELD: ProductSetup = i10(128, 512 * KIB);
/// i10's published delay.
const DOORBELL_DELAY_US: usize = 50;

const fn i10(requests: usize, bytes: usize) -> ProductSetup {
    let delay = Some(DOORBELL_DELAY_US);
    ProductSetup { doorbell_delay_us: delay, ..ProductSetup::new("i10").limited(requests, bytes) }
}

/// All cases, in the order in which they are run and shown.
pub(super) fn cases() -> Vec<TableCase> {
    let mut cases = defaults(DataDirection::Read, "reads");
    cases.extend(defaults(DataDirection::Write, "writes"));
    cases.extend(throughput(DataDirection::Read, "reads"));
    cases.extend(throughput(DataDirection::Write, "writes"));
    cases.extend(parts());
    cases.extend(depths());
    cases.extend([
        bandwidth(DataDirection::Read, "reads"),
        bandwidth(DataDirection::Write, "writes"),
    ]);
    cases.extend(round_trips());
    cases.extend(cores());
    cases.extend(connections());
    cases.extend(tls());
    cases.extend(waiting());
    cases
}

fn load(rw: DataDirection, bs: usize, depth: usize) -> LabLoad {
    LabLoad::new(if rw == DataDirection::Read { 100 } else { 0 }, bs, depth)
}

/// The product compared with the floor; the ratio of one figure may have a bound.
fn beside_floor(
    (id, title): (String, String),
    section: TableSection,
    (load, setup, gather): (LabLoad, ProductSetup, usize),
    figure: (&str, Metric),
    bound: Option<Bound>,
) -> TableCase {
    let sides = vec![TableSide::Floor(load, setup, gather), TableSide::Product(load, setup)];
    let goals = vec![
        ratio(&id, figure, "product", (&id, "floor"), bound),
        ratio(&id, ("CPU", Metric::Cpu), "product", (&id, "floor"), None),
    ];
    TableCase { id, section, title, sides, goals }
}

/// The floor polls for a time of which some may be in vain, as the product does.
fn defaults(rw: DataDirection, name: &str) -> Vec<TableCase> {
    let by_default =
        |policy| ProductSetup { waiting: LoadWaiting::Default, ..ProductSetup::new(policy) };
    let case = |depth| {
        let (id, load) = (format!("default-{name}-{depth}"), load(rw, 4 * KIB, depth));
        let floor = ProductSetup { waiting: LoadWaiting::SpinUs(50), ..NONE };
        let least = if depth < 32 { OF_NONE_MIN } else { OF_NONE_MIN_OF_MUCH };
        let of =
            |what, side: &str, bound| ratio(&id, (what, Metric::Iops), "auto", (&id, side), bound);
        let goals = vec![
            of("IOPS of none", "none", Some(Bound::AtLeast(least))),
            of("IOPS of the floor", "floor", None),
        ];
        let sides = vec![
            TableSide::Policy(load, by_default("auto")),
            TableSide::Policy(load, by_default("none")),
            TableSide::Floor(load, floor, depth),
        ];
        TableCase {
            section: TableSection::Default,
            title: format!("{name}, {depth}"),
            sides,
            goals,
            id,
        }
    };
    [1, 8, 32, 128].map(case).into()
}

fn throughput(rw: DataDirection, name: &str) -> Vec<TableCase> {
    let lifted = match rw {
        DataDirection::Read => LIFTED_READS_RATIO_MIN,
        DataDirection::Write => LIFTED_WRITES_RATIO_MIN,
    };
    let cases = [
        ("unbatched", "one request a send", UNBATCHED, 1, None),
        ("none", "none, 16 / 64 KiB", NONE, 16, None),
        ("i10", "i10, 16 / 64 KiB", I10, 16, Some(IOPS_RATIO_MIN)),
        ("held", "i10, 128 / 512 KiB, 50 us", LIFTED_HELD, 128, None),
        ("lifted", "i10, 128 / 512 KiB, no delay", LIFTED, 128, Some(lifted)),
    ];
    let case =
        |(id, title, setup, gather, least): (&str, &str, ProductSetup, usize, Option<f64>)| {
            let names = (format!("{name}-{id}"), format!("{name}, {title}"));
            let run = (load(rw, 4 * KIB, 128), setup, gather);
            let bound = least.map(Bound::AtLeast);
            let mut case =
                beside_floor(names, TableSection::Throughput, run, ("IOPS", Metric::Iops), bound);
            if id == "i10" {
                case.goals[1].bound = Some(Bound::AtMost(CPU_RATIO_MAX));
            }
            case
        };
    cases.map(case).into()
}

fn parts() -> Vec<TableCase> {
    let four_lanes = LabLoad { lanes: 4, ..LabLoad::small(100, 128) };
    let one_lane = LabLoad::small(100, 128);
    let cases = [
        ("queues", "4 connections on the core, one request a send", four_lanes, UNBATCHED),
        ("lane", "+ lane: 1 connection a core", one_lane, UNBATCHED),
        ("caravans", "+ caravans: 16 / 64 KiB of what is queued", one_lane, NONE),
        ("doorbells", "+ doorbells: 50 us (i10)", one_lane, I10),
        ("lifted", "+ limits lifted: 128 / 512 KiB, no delay", one_lane, LIFTED),
    ];
    let case = |(id, title, load, setup): (&str, &str, LabLoad, ProductSetup)| {
        let (id, title, sides) =
            (format!("parts-{id}"), title.into(), vec![TableSide::Product(load, setup)]);
        TableCase { id, section: TableSection::Parts, title, sides, goals: vec![] }
    };
    cases.map(case).into()
}

fn depths() -> Vec<TableCase> {
    let of_depth = |depth| {
        [("unbatched", UNBATCHED, 1), ("none", NONE, 16), ("i10", I10, 16)].map(
            |(name, setup, gather)| {
                let load = LabLoad::small(100, depth);
                TableCase {
                    id: format!("depth-{depth}-{name}"),
                    section: TableSection::Depths,
                    title: format!("depth {depth}, {name}"),
                    sides: vec![
                        TableSide::Floor(load, setup, gather),
                        TableSide::Product(load, setup),
                    ],
                    goals: vec![],
                }
            },
        )
    };
    [1, 8, 32, 128].into_iter().flat_map(of_depth).collect()
}

fn bandwidth(rw: DataDirection, name: &str) -> TableCase {
    let title = format!("128 KiB {name}, depth 32, i10, 16 / 2 MiB");
    let run = (load(rw, 128 * KIB, 32), i10(16, 2048 * KIB), 16);
    let bound = Some(Bound::AtLeast(BANDWIDTH_RATIO_MIN));
    let figure = ("bandwidth", Metric::Bandwidth);
    beside_floor((format!("large-{name}"), title), TableSection::Bandwidth, run, figure, bound)
}

fn round_trips() -> Vec<TableCase> {
    let cases = [
        ("sleep", "none, asleep between", LoadWaiting::Sleep, SLEEPING_RATIO_MAX),
        ("spin", "none, spinning 20 us", LoadWaiting::SpinUs(20), AWAKE_RATIO_MAX),
        ("poll", "none, busy polling", LoadWaiting::BusyPoll, AWAKE_RATIO_MAX),
    ];
    let case = |(id, title, waiting, most): (&str, &str, LoadWaiting, f64)| {
        let run = (LabLoad::small(100, 1), ProductSetup { waiting, ..NONE }, 16);
        let (names, bound) = ((format!("trip-{id}"), title.to_owned()), Some(Bound::AtMost(most)));
        beside_floor(names, TableSection::RoundTrip, run, ("latency", Metric::LatencyMean), bound)
    };
    cases.map(case).into()
}

/// The floor has one connection, so lanes over both cores have none.
fn cores() -> Vec<TableCase> {
    let case = |id: &str, title: &str, pairs, lanes, floors: &'static [_]| {
        let floor = (!floors.is_empty()).then_some(TableSide::Floors(floors));
        let sides = floor.into_iter().chain([TableSide::Pairs(pairs, lanes)]).collect();
        let (id, title) = (id.to_owned(), title.to_owned());
        TableCase { id, section: TableSection::Cores, title, sides, goals: vec![] }
    };
    let pairs = |what, metric, bound| {
        ratio("cores-both", (what, metric), "product", ("cores-pairs", "product"), Some(bound))
    };
    let mut both =
        case("cores-both", "both ends on both cores, two lanes", &[("0,1", "0,1")], 2, &[]);
    both.goals = vec![
        pairs("IOPS of two pairs", Metric::Iops, Bound::AtLeast(PAIRS_IOPS_MIN)),
        pairs("p99 of two pairs", Metric::LatencyP99, Bound::AtMost(PAIRS_P99_MAX)),
    ];
    let apart = "host on one core, target on the other, one lane";
    vec![
        case("cores-one", "both ends on one core, one lane", &[("0", "0")], 1, &[(0, 0)]),
        case(
            "cores-pairs",
            "two such pairs, a core each",
            &[("0", "0"), ("1", "1")],
            1,
            &[(0, 0), (1, 1)],
        ),
        case("cores-apart", apart, &[("0", "1")], 1, &[(0, 1)]),
        both,
    ]
}

/// A queue of 1,024 entries takes one request less.
fn connections() -> Vec<TableCase> {
    let case = |(connections, depth)| {
        let id = format!("connections-{connections}");
        let mut goals = Vec::new();
        if connections == 16 {
            let (figure, one) = (("IOPS of one", Metric::Iops), ("connections-1", "product"));
            goals.push(ratio(&id, figure, "product", one, Some(Bound::AtLeast(OF_ONE_MIN))));
        }
        if connections > 1 {
            let figure = ("fairness", Metric::Fairness);
            let bound = Some(Bound::AtLeast(FAIRNESS_MIN));
            let fairness = ratio(&id, figure, "product", (&id, "product"), bound);
            goals.push(Goal { compare: Compare::Value, among: vec![], ..fairness });
        }
        TableCase {
            id,
            section: TableSection::Connections,
            title: format!("{connections} x {depth}"),
            sides: vec![
                TableSide::Exchange(connections, depth),
                TableSide::Connections(connections, depth),
            ],
            goals,
        }
    };
    [(1, 1023), (16, 64), (128, 8), (1024, 1)].map(case).into()
}

fn tls() -> Vec<TableCase> {
    let cases = [
        ("tls-reads", "4 KiB reads, depth 128", load(DataDirection::Read, 4 * KIB, 128)),
        ("tls-writes", "4 KiB writes, depth 128", load(DataDirection::Write, 4 * KIB, 128)),
        ("tls-large-reads", "128 KiB reads, depth 32", load(DataDirection::Read, 128 * KIB, 32)),
        ("tls-large-writes", "128 KiB writes, depth 32", load(DataDirection::Write, 128 * KIB, 32)),
        ("tls-trip", "4 KiB reads, depth 1", load(DataDirection::Read, 4 * KIB, 1)),
    ];
    let case = |(id, title, load): (&str, &str, LabLoad)| {
        let least = Some(Bound::AtLeast(OF_LIMIT_MIN));
        let of_limit = ratio(id, ("IOPS of the limit", Metric::Iops), "TLS", (id, "limit"), least);
        let most = Some(Bound::AtMost(ADDED_US_MAX));
        let added = ratio(id, ("us over plain", Metric::LatencyMean), "TLS", (id, "plain"), most);
        let added = Goal { compare: Compare::Difference, ..added };
        TableCase {
            id: id.to_owned(),
            section: TableSection::Tls,
            title: title.to_owned(),
            sides: vec![TableSide::Tls(load)],
            goals: vec![if load.depth > 1 { of_limit } else { added }],
        }
    };
    cases.map(case).into()
}

/// 180 k a second are some 30 % of what a lane can do.
fn waiting() -> Vec<TableCase> {
    let wait = |depth, rate| WaitLoad { depth, rate, has_neighbour: false };
    let cases = [
        ("1", "depth 1", wait(1, None)),
        ("8", "depth 8", wait(8, None)),
        ("5k", "5 k a second", wait(128, Some(5e3))),
        ("20k", "20 k a second", wait(128, Some(20e3))),
        ("180k", "180 k a second", wait(128, Some(180e3))),
        ("busy", "depth 1, busy neighbours", WaitLoad { has_neighbour: true, ..wait(1, None) }),
    ];
    let case = |(id, title, wait): (&str, &str, WaitLoad)| {
        let id = format!("waiting-{id}");
        let to = |what, metric, side, most| {
            ratio(&id, (what, metric), "default", (&id, side), Some(Bound::AtMost(most)))
        };
        let is_closed = wait.rate.is_none();
        let cpu_max = if is_closed { OF_SLEEPING_MAX } else { OF_SLEEPING_AT_RATE_MAX };
        let mut goals = vec![to("CPU of sleeping", Metric::Cpu, "--no-spin", cpu_max)];
        if is_closed && !wait.has_neighbour {
            let mean = Metric::LatencyMean;
            goals.insert(0, to("mean of the best", mean, "best", OF_BEST_MAX));
            goals.push(to("mean of the polled floor", mean, "polled floor", OF_POLLED_MAX));
        }
        let (section, title) = (TableSection::Waiting, title.to_owned());
        TableCase { id, section, title, sides: vec![TableSide::Waits(wait)], goals }
    };
    cases.map(case).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::BoundVerdict;
    use crate::runs::Index;
    use crate::runs::tests::run;
    use crate::table::hosts;
    use std::collections::HashSet;

    #[test]
    fn identifiers_are_unique_and_goals_have_their_sides() {
        let cases: Vec<_> = cases().into_iter().chain(hosts::cases()).collect();
        let sides: HashSet<(&str, &str)> = cases
            .iter()
            .flat_map(|case| case.sides.iter().map(move |side| (case, side)))
            .flat_map(|(case, side)| side.runs().into_iter().map(|run| (case.id.as_str(), run)))
            .collect();
        let count: usize = cases.iter().flat_map(|case| &case.sides).map(|s| s.runs().len()).sum();
        assert_eq!(sides.len(), count);
        for goal in cases.iter().flat_map(|case| &case.goals) {
            for (case, side) in goal.among.iter().chain([&goal.of]) {
                assert!(sides.contains(&(case.as_str(), side.as_str())), "{goal:?}");
            }
        }
    }

    #[test]
    fn comparisons_are_judged_by_the_median_of_the_rounds() {
        let case = &throughput(DataDirection::Read, "reads")[2];
        let runs = [
            run(&(&case.id, "product"), &[75e3, 50e3, 100e3]),
            run(&(&case.id, "floor"), &[100e3; 3]),
        ];
        let judged = case.goals[0].judged(&Index::new(&runs));
        assert_eq!((judged.value, judged.verdict()), (Some(0.75), Some(BoundVerdict::Missed)));
        let judged = case.goals[0].judged(&Index::new(&[]));
        assert_eq!((judged.value, judged.verdict()), (None, Some(BoundVerdict::Missed)));
    }
}
