//! Policies on a modelled machine under virtual time, with constant and with changing loads.
//!
//! The model has two queue pairs with everything between their sockets, two cores that are busy or asleep, and
//! actions and bytes that take time (`costs`). It serves to compare policies and to show how `auto` follows a
//! changing load. Only a measurement shows what is true of a real machine.
#![allow(unreachable_pub, reason = "modules of one test")]

mod awake;
mod costs;
mod cpu;
mod fit;
mod grid;
mod host;
mod hosts;
mod load;
mod open;
mod published;
mod run;
mod step;
mod table;
mod target;
mod waits;
mod wire;

use crate::cases::is_thorough;
use load::{ModelLoad, ms};
use roadtrain_proto::time::Instant;
use std::fmt::Write;
use std::ops::Range;
use std::time::Duration;
use step::StepWave;
use table::{AUTO, Comparison, HEAD, NONE};
use target::ModelStore;

/// Logical blocks of a request.
const BLOCKS: u32 = 8;
const READ_BYTES: u32 = 4096;
const ZEROES: [u8; READ_BYTES as usize] = [0; READ_BYTES as usize];
const QUEUE_ENTRIES: u16 = 512;

const DEPTHS: [u32; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];
/// Measured time; the start of the run is excluded.
const MEASURED: Range<Instant> = ms(5)..ms(105);
const SSD: ModelStore = ModelStore::Ssd { service: Duration::from_micros(100), parallel: 64 };

/// Measurements with blocking ends, on the machine that `costs` models: policy, depth, kIOPS.
const REAL: [(&str, u32, f64); 14] = [
    ("unbatched", 8, 161.0),
    ("unbatched", 32, 165.0),
    ("unbatched", 128, 166.0),
    (NONE, 1, 17.0),
    (NONE, 4, 63.0),
    (NONE, 8, 112.0),
    (NONE, 16, 189.0),
    (NONE, 32, 340.0),
    (NONE, 64, 719.0),
    (NONE, 128, 840.0),
    ("i10", 1, 7.3),
    ("i10", 8, 57.0),
    ("i10", 32, 566.0),
    ("i10", 128, 705.0),
];

/// Depths at which `auto` is behind the best other policy in this model, and the share of it that `auto` reaches. It
/// sends two requests together, though the first alone would wake the target sooner. At depth 32 two parts would
/// still pay here; on the real machine they lose 8 to 11 %.
const BEHIND: [(u32, f64); 3] = [(2, 0.89), (4, 0.95), (32, 0.83)];
/// With an SSD, requests that become due in one turn leave together, however small their share. At depth 64, fewer
/// commands than are in flight keep the ends busy.
const BEHIND_WITH_SSD: [(u32, f64); 5] = [(4, 0.89), (8, 0.84), (16, 0.70), (32, 0.85), (64, 0.74)];

/// Numbers of lanes, and depths of each.
const LANES: [usize; 6] = [2, 4, 16, 64, 128, 512];
const LANES_DEPTHS: [u32; 5] = [1, 2, 8, 32, 128];
/// Limit over all lanes: more would take longer than is modelled.
const IN_FLIGHT_MAX: u32 = 4096;
macro_rules! assert_table {
    ($table:expr) => {
        insta::with_settings!({omit_expression => true}, { insta::assert_snapshot!($table) })
    };
}

/// Checks that a snapshot contains every `step`th part: a run without `THOROUGH=1` has no time for all.
fn check_parts<T>(snapshot: &str, all: &[T], step: usize, text: impl Fn(&T) -> String) {
    for part in all.iter().step_by(step).map(text) {
        assert!(snapshot.contains(part.trim()), "the snapshot has no such part:\n{part}");
    }
}

/// Compares closed loops: a lone request is treated exactly as by `none`, and `auto` reaches the best policy.
fn compare_depths(store: ModelStore, behind: &[(u32, f64)]) -> Vec<(u32, Comparison)> {
    let compare = |depth| (depth, Comparison::run(&ModelLoad::depth(depth), store, &MEASURED));
    let step = if is_thorough() { 1 } else { 3 };
    let comparisons: Vec<_> = DEPTHS.into_iter().step_by(step).map(compare).collect();
    assert_eq!(comparisons[0].1.of(AUTO).done, comparisons[0].1.of(NONE).done);
    for (depth, comparison) in &comparisons {
        let (ratio, best) = comparison.of_best(&MEASURED);
        let miss = behind.iter().find(|miss| miss.0 == *depth);
        let least = miss.map_or(0.97, |miss| miss.1);
        assert!(ratio >= least, "depth {depth}: {ratio:.3} of {best}");
    }
    comparisons
}

fn part_of_depth((depth, comparison): &(u32, Comparison)) -> String {
    let (ratio, best) = comparison.of_best(&MEASURED);
    let rows = comparison.rows(&format!("depth {depth}"));
    format!("\n{rows}auto does {ratio:.2} of {best}\n")
}

fn table_of_depths(comparisons: &[(u32, Comparison)]) -> String {
    let parts: String = comparisons.iter().map(part_of_depth).collect();
    format!("{HEAD}{parts}")
}

#[test]
fn depths() {
    let comparisons = compare_depths(ModelStore::Memory, &BEHIND);
    if !is_thorough() {
        let snapshot = include_str!("snapshots/ether_proto__model__depths.snap");
        return check_parts(snapshot, &comparisons, 1, part_of_depth);
    }
    assert_table!(table_of_depths(&comparisons));
}

#[test]
fn ends_that_sleep_do_as_much_as_measured() {
    for depth in [1, 4, 8, 16, 32, 64, 128] {
        let comparison = Comparison::run_blocking(&ModelLoad::depth(depth), &MEASURED);
        for (policy, _, real) in REAL.into_iter().filter(|real| real.1 == depth) {
            let ratio = comparison.of(policy).iops(&MEASURED) / 1000.0 / real;
            assert!(
                (0.8..1.25).contains(&ratio),
                "{policy}, depth {depth}: {ratio:.2} of the real one"
            );
        }
    }
}

#[test]
fn depths_with_ssd() {
    let comparisons = compare_depths(SSD, &BEHIND_WITH_SSD);
    if !is_thorough() {
        let snapshot = include_str!("snapshots/ether_proto__model__depths_with_ssd.snap");
        return check_parts(snapshot, &comparisons, 1, part_of_depth);
    }
    assert_table!(table_of_depths(&comparisons));
}

/// Both ends on one core: only one of them works at a time, so splitting would only cost sends.
#[test]
fn depths_on_one_core() {
    let mut table = String::from(HEAD);
    for depth in DEPTHS {
        let load = ModelLoad::depth(depth);
        let comparison = Comparison::run_on_one_core(&load, ModelStore::Memory, &MEASURED);
        let rows = comparison.rows(&format!("depth {depth}"));
        let of = |policy| comparison.of(policy).iops(&MEASURED);
        let ratio = of(AUTO) / of(NONE);
        write!(table, "\n{rows}auto does {ratio:.2} of none\n").expect("a string");
        assert!(ratio >= 0.97, "depth {depth}: {ratio:.3}");
    }
    assert_table!(table);
}

/// Many lanes share the two cores: `auto` reaches the best policy for every distribution of the load.
#[test]
fn lanes() {
    let measured = ms(10)..ms(50);
    let loads = LANES.into_iter().flat_map(|lanes| LANES_DEPTHS.map(|depth| (lanes, depth)));
    let loads: Vec<_> =
        loads.filter(|(lanes, depth)| *lanes as u32 * depth <= IN_FLIGHT_MAX).collect();
    let snapshot = include_str!("snapshots/ether_proto__model__lanes.snap");
    let part = |&(lanes, depth): &(usize, u32)| {
        let load = ModelLoad::depth(depth);
        let comparison = Comparison::run_lanes(lanes, &load, ModelStore::Memory, &measured);
        let (ratio, best) = comparison.of_best(&measured);
        assert!(ratio >= 0.97, "{lanes} lanes, depth {depth}: {ratio:.3} of {best}");
        let rows = comparison.rows(&format!("{lanes} x {depth}"));
        format!("\n{rows}auto does {ratio:.2} of {best}\n")
    };
    if !is_thorough() {
        return check_parts(snapshot, &loads, 4, part);
    }
    let parts: String = loads.iter().map(part).collect();
    assert_table!(format!("{HEAD}{parts}"));
}

/// An open loop; the last rates are 10, 30, 50, 70 and 90 % of the highest throughput.
#[test]
fn rates() {
    let mut table = String::from(HEAD);
    for per_ms in [10, 50, 86, 260, 430, 600, 775] {
        let load = ModelLoad::rate(per_ms * 1000, MEASURED.end);
        let comparison = Comparison::run(&load, ModelStore::Memory, &MEASURED);
        write!(table, "\n{}", comparison.rows(&format!("{per_ms} k/s"))).expect("a string");
        let p99 = |policy| comparison.of(policy).latency_us(&MEASURED).1;
        assert!(p99(AUTO) <= p99(NONE) + 20.0, "{per_ms} k/s: {} {}", p99(AUTO), p99(NONE));
    }
    assert_table!(table);
}

#[test]
fn bursts_and_pauses() {
    let measured = ms(0)..ms(100);
    let every = Duration::from_millis(1);
    let on_and_off = [32, 0].into_iter().cycle().take(20);
    let loads = [
        ("64 each ms", ModelLoad::bursts(64, every, measured.end)),
        ("8 each ms", ModelLoad::bursts(8, every, measured.end)),
        ("depth 32, 0", ModelLoad::depths(5, on_and_off)),
        ("100 k/s, 0", ModelLoad::rate(100_000, measured.end).on_and_off(5)),
    ];
    let mut table = String::from(HEAD);
    for (name, load) in loads {
        let comparison = Comparison::run(&load, ModelStore::Memory, &measured);
        write!(table, "\n{}", comparison.rows(name)).expect("a string");
    }
    assert_table!(table);
}

#[test]
fn steps() {
    let mut table = String::from(
        "Depth from low to high and back, each for 20 ms: kIOPS, and ms until they are reached (the slowest of 4)\n",
    );
    for (low, high) in [(1, 128), (4, 32)] {
        let wave = StepWave { low, high };
        let comparison = Comparison::run(&wave.load(), ModelStore::Memory, &StepWave::measured());
        writeln!(table, "\n{:10} | depth {low:4} | depth {high:4}", "").expect("a string");
        for (name, outcome) in &comparison.outcomes {
            let (down, up) = (StepWave::down(outcome), StepWave::up(outcome));
            let show = |s: &step::Settled| format!("{:6.1} {:3}", s.iops / 1000.0, s.ms_max);
            writeln!(table, "{name:10} | {} | {}", show(&down), show(&up)).expect("a string");
            assert!(*name != AUTO || up.ms_max.max(down.ms_max) <= 10, "it settles too late");
        }
    }
    assert_table!(table);
}

#[test]
fn ramp() {
    let stages = DEPTHS[..8].iter().zip(0..).map(|(depth, n)| (depth, ms(n * 5)..ms(n * 5 + 5)));
    let load = ModelLoad::depths(5, DEPTHS[..8].iter().copied());
    let comparison = Comparison::run(&load, ModelStore::Memory, &(ms(0)..ms(40)));
    let mut table = String::from("kIOPS while the depth doubles every 5 ms\n\ndepth     ");
    for depth in &DEPTHS[..8] {
        write!(table, " {depth:6}").expect("a string");
    }
    for (name, outcome) in &comparison.outcomes {
        write!(table, "\n{name:10}").expect("a string");
        for (_, span) in stages.clone() {
            write!(table, " {:6.1}", outcome.iops(&span) / 1000.0).expect("a string");
        }
    }
    let (ratio, best) = comparison.of_best(&(ms(0)..ms(40)));
    assert!(ratio >= 0.97, "{ratio:.3} of {best}");
    assert_table!(table);
}
