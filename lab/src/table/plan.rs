//! The rows: which workload, how the product is set, what it is compared with, what it must reach.

use crate::floor::Direction;
use crate::workload::{KIB, Load, Setup, Waiting};
use serde::{Deserialize, Serialize};

/// Where a row stands in the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Group {
    /// 4 KiB random at depth 128, one lane.
    Throughput,
    /// What lanes, caravans and doorbells each add.
    Parts,
    /// Latency at several depths.
    Depths,
    /// Large requests.
    Bandwidth,
    /// Round trips at depth 1, by the way of waiting.
    RoundTrip,
}

/// What is compared with a bound. Ratios are product to floor, in pairs of adjacent runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Metric {
    Iops,
    Bandwidth,
    Cpu,
    Latency,
}

/// A bound that a metric must keep: at least it, or at most.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Goal {
    pub(crate) metric: Metric,
    pub(crate) bound: f64,
}

/// One row of the table.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) id: String,
    pub(crate) group: Group,
    pub(crate) title: String,
    pub(crate) load: Load,
    pub(crate) setup: Setup,
    /// Most messages a send of the floor carries; no comparison without.
    pub(crate) floor_gather: Option<usize>,
    pub(crate) goals: Vec<Goal>,
}

impl Goal {
    /// Whether more is better.
    pub(crate) fn is_minimum(&self) -> bool {
        matches!(self.metric, Metric::Iops | Metric::Bandwidth)
    }

    /// Whether `value` keeps the bound.
    pub(crate) fn holds(&self, value: f64) -> bool {
        if self.is_minimum() { value >= self.bound } else { value <= self.bound }
    }
}

const IOPS_RATIO_MIN: f64 = 0.85;
const CPU_RATIO_MAX: f64 = 1.25;
/// 800 k reads where the floor does 1,050 k, 900 k writes where it does 1,260 k.
const LIFTED_READS_RATIO_MIN: f64 = 800.0 / 1050.0;
const LIFTED_WRITES_RATIO_MIN: f64 = 900.0 / 1260.0;
const BANDWIDTH_RATIO_MIN: f64 = 0.85;
const SLEEPING_RATIO_MAX: f64 = 1.15;
/// 12.5 us where the polled floor takes 9.8.
const AWAKE_RATIO_MAX: f64 = 12.5 / 9.8;

/// One request a send, as NVMe/TCP of 2019.
const UNBATCHED: Setup = Setup::new("none").limited(1, 64 * KIB);
/// Caravans of what is queued anyway, as today's Linux.
const NONE: Setup = Setup::new("none").limited(16, 64 * KIB);
/// i10 as published.
const I10: Setup = i10(16, 64 * KIB);
/// i10 with the caravan's limits lifted: a full caravan is all that is in flight, so waiting for one would
/// let both ends take turns.
const LIFTED: Setup = Setup { doorbell_delay_us: Some(0), ..LIFTED_HELD };
/// The same with the delay.
const LIFTED_HELD: Setup = i10(128, 512 * KIB);
/// i10's published delay.
const DOORBELL_DELAY_US: usize = 50;

const fn i10(requests: usize, bytes: usize) -> Setup {
    let delay = Some(DOORBELL_DELAY_US);
    Setup { doorbell_delay_us: delay, ..Setup::new("i10").limited(requests, bytes) }
}

/// All rows, in the order they are run and printed.
pub(crate) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for (rw, name) in [(Direction::Read, "reads"), (Direction::Write, "writes")] {
        throughput(&mut rows, rw, name);
    }
    parts(&mut rows);
    depths(&mut rows);
    for (rw, name) in [(Direction::Read, "reads"), (Direction::Write, "writes")] {
        bandwidth(&mut rows, rw, name);
    }
    round_trips(&mut rows);
    rows
}

fn goal(metric: Metric, bound: f64) -> Goal {
    Goal { metric, bound }
}

fn load(rw: Direction, bs: usize, depth: usize) -> Load {
    Load::new(if rw == Direction::Read { 100 } else { 0 }, bs, depth)
}

fn throughput(rows: &mut Vec<Row>, rw: Direction, name: &str) {
    let equal_batch = vec![goal(Metric::Iops, IOPS_RATIO_MIN), goal(Metric::Cpu, CPU_RATIO_MAX)];
    let lifted = match rw {
        Direction::Read => LIFTED_READS_RATIO_MIN,
        Direction::Write => LIFTED_WRITES_RATIO_MIN,
    };
    for (id, title, setup, gather, goals) in [
        ("unbatched", "one request a send", UNBATCHED, 1, vec![]),
        ("none", "none, 16 / 64 KiB", NONE, 16, vec![]),
        ("i10", "i10, 16 / 64 KiB", I10, 16, equal_batch),
        ("held", "i10, 128 / 512 KiB, 50 us", LIFTED_HELD, 128, vec![]),
        ("lifted", "i10, 128 / 512 KiB, no delay", LIFTED, 128, vec![goal(Metric::Iops, lifted)]),
    ] {
        rows.push(Row {
            id: format!("{name}-{id}"),
            group: Group::Throughput,
            title: format!("{name}, {title}"),
            load: load(rw, 4 * KIB, 128),
            setup,
            floor_gather: Some(gather),
            goals,
        });
    }
}

fn parts(rows: &mut Vec<Row>) {
    let four_lanes = Load { lanes: 4, ..Load::small(100, 128) };
    let one_lane = Load::small(100, 128);
    for (id, title, load, setup) in [
        ("queues", "4 connections on the core, one request a send", four_lanes, UNBATCHED),
        ("lane", "+ lane: 1 connection a core", one_lane, UNBATCHED),
        ("caravans", "+ caravans: 16 / 64 KiB of what is queued", one_lane, NONE),
        ("doorbells", "+ doorbells: 50 us (i10)", one_lane, I10),
        ("lifted", "+ limits lifted: 128 / 512 KiB, no delay", one_lane, LIFTED),
    ] {
        rows.push(Row {
            id: format!("parts-{id}"),
            group: Group::Parts,
            title: title.into(),
            load,
            setup,
            floor_gather: None,
            goals: vec![],
        });
    }
}

fn depths(rows: &mut Vec<Row>) {
    for depth in [1, 8, 32, 128] {
        for (name, setup, gather) in
            [("unbatched", UNBATCHED, 1), ("none", NONE, 16), ("i10", I10, 16)]
        {
            rows.push(Row {
                id: format!("depth-{depth}-{name}"),
                group: Group::Depths,
                title: format!("depth {depth}, {name}"),
                load: Load::small(100, depth),
                setup,
                floor_gather: Some(gather),
                goals: vec![],
            });
        }
    }
}

fn bandwidth(rows: &mut Vec<Row>, rw: Direction, name: &str) {
    rows.push(Row {
        id: format!("large-{name}"),
        group: Group::Bandwidth,
        title: format!("128 KiB {name}, depth 32, i10, 16 / 2 MiB"),
        load: load(rw, 128 * KIB, 32),
        setup: i10(16, 2048 * KIB),
        floor_gather: Some(16),
        goals: vec![goal(Metric::Bandwidth, BANDWIDTH_RATIO_MIN)],
    });
}

fn round_trips(rows: &mut Vec<Row>) {
    for (id, title, waiting, bound) in [
        ("sleep", "none, asleep between", Waiting::Sleep, SLEEPING_RATIO_MAX),
        ("spin", "none, spinning 20 us", Waiting::SpinUs(20), AWAKE_RATIO_MAX),
        ("poll", "none, busy polling", Waiting::BusyPoll, AWAKE_RATIO_MAX),
    ] {
        rows.push(Row {
            id: format!("trip-{id}"),
            group: Group::RoundTrip,
            title: title.into(),
            load: Load::small(100, 1),
            setup: Setup { waiting, ..NONE },
            floor_gather: Some(16),
            goals: vec![goal(Metric::Latency, bound)],
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_goal_has_a_floor_to_compare_with() {
        for row in rows() {
            assert!(row.goals.is_empty() || row.floor_gather.is_some(), "{}", row.id);
        }
    }

    #[test]
    fn identifiers_are_unique() {
        let mut ids: Vec<_> = rows().into_iter().map(|row| row.id).collect();
        ids.sort();
        let count = ids.len();
        ids.dedup();
        assert_eq!(ids.len(), count);
    }

    #[test]
    fn bounds_have_a_side() {
        assert!(goal(Metric::Iops, 0.85).holds(0.9));
        assert!(!goal(Metric::Iops, 0.85).holds(0.8));
        assert!(goal(Metric::Latency, 1.15).holds(1.1));
        assert!(!goal(Metric::Cpu, 1.25).holds(1.3));
    }
}
