//! Unshaped links: beside the floor, and beside our own NVMe/TCP.

use super::report::{Bound, Row};
use super::{Bench, ETHER, TCP, direction, middle};
use crate::command;
use crate::measure::Measure;
use crate::wired::{Contestant, Wired};
use crate::workload::{Load, Wire};
use anyhow::Context;
use serde_json::Value;
use std::process::Command;
use std::time::Duration;

const MTUS: [usize; 3] = [1500, 9000, 65535];
const LIMIT: Duration = Duration::from_secs(60);

/// IOPS at depth 128 and the round trip at depth 1 as a share of the floor's, by MTU.
pub(super) fn floor(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for mtu in MTUS {
        let wire = Wire { mtu, ..Wire::unshaped(1) };
        let wired = Wired::new(&bench.program, wire)?;
        for share in [100, 0] {
            let of = |depth, unit: &str, f: fn(&Measure) -> f64, g: fn(&Floor) -> f64| {
                let load = Load::small(share, depth).over(wire);
                let mut pairs = Vec::new();
                for _ in 0..bench.rounds {
                    let floor = best_floor(bench, mtu, share, depth)?;
                    let measure =
                        wired.measure(&load, Contestant::Product(ETHER), &bench.timing())?;
                    pairs.push((f(&measure), g(&floor), floor.name));
                }
                let ratio = middle(pairs.iter().map(|(ours, floor, _)| ours / floor))?;
                let ours = middle(pairs.iter().map(|pair| pair.0))?;
                let floor = middle(pairs.iter().map(|pair| pair.1))?;
                let what = format!("MTU {mtu}, {}, depth {depth}: {unit}", direction(share));
                let note = format!("{ours:.1}; floor {floor:.1} ({})", pairs[0].2);
                anyhow::Ok(Row::new("floor", what, "x floor", ratio).note(note))
            };
            let many = of(128, "kIOPS", |m| m.iops / 1e3, |f| f.iops / 1e3)?;
            let one = of(1, "mean us", |m| m.latency_us_mean, |f| f.latency_us)?;
            rows.extend([many.bound(Bound::AtLeast(0.85)), one.bound(Bound::AtMost(1.15))]);
        }
    }
    Ok(rows)
}

/// What the floor does.
struct Floor {
    iops: f64,
    latency_us: f64,
    name: String,
}

/// The fastest kind of port with the fullest frames.
fn best_floor(bench: &Bench, mtu: usize, share: u8, depth: usize) -> anyhow::Result<Floor> {
    let rw = if share == 100 { "randread" } else { "randwrite" };
    let line = format!(
        "floor-ether --mtu {mtu} --rw {rw} --depth {depth} --payloads 64 --memory 64m --seconds {} \
         --json",
        bench.seconds
    );
    let mut command = Command::new(std::env::current_exe()?);
    let said = command::run(command.args(line.split(' ')), LIMIT)?;
    let cases: Value = serde_json::from_str(said.trim()).context("JSON of floor-ether")?;
    let figure = |case: &Value, path: &str| case.pointer(path).and_then(Value::as_f64);
    let floors = cases.as_array().into_iter().flatten().filter_map(|case| {
        Some(Floor {
            iops: figure(case, "/iops")?,
            latency_us: figure(case, "/latency_us/mean")?,
            name: case.get("kind").and_then(Value::as_str).unwrap_or_default().into(),
        })
    });
    let best = match depth {
        1 => floors.min_by(|a, b| a.latency_us.total_cmp(&b.latency_us)),
        _ => floors.max_by(|a, b| a.iops.total_cmp(&b.iops)),
    };
    best.context("floor-ether has measured nothing")
}

/// What is looked at in a measurement.
type Figure = fn(&Measure) -> f64;

/// The same link by frames and by TCP: IOPS, round trip, CPU time.
pub(super) fn tcp(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let wire = Wire::unshaped(1);
    let wired = Wired::new(&bench.program, wire)?;
    let mut rows = Vec::new();
    for (share, depth) in [(100, 1), (0, 1), (100, 128), (0, 128)] {
        let load = Load::small(share, depth).over(wire);
        let sides = [ETHER, TCP].map(Contestant::Product);
        let rounds = bench.rounds(&wired, &load, &sides)?;
        let ratio = |f: Figure| middle(rounds.iter().map(|r| f(&r[0]) / f(&r[1])));
        let both = |f: Figure| {
            let of = |side: usize| middle(rounds.iter().map(|round| f(&round[side])));
            anyhow::Ok(format!("{:.1}; TCP {:.1}", of(0)?, of(1)?))
        };
        let figures: [(&str, Figure); 4] = [
            ("kIOPS", |m| m.iops / 1e3),
            ("mean us", |m| m.latency_us_mean),
            ("CPU us per I/O", |m| m.cpu_us_per_io().unwrap_or(f64::NAN)),
            ("share of it in the kernel, %", |m| m.kernel_share.unwrap_or(f64::NAN) * 100.0),
        ];
        for (name, figure) in figures {
            let what = format!("{}, depth {depth}: {name}", direction(share));
            let row = Row::new("tcp", what, "x TCP", ratio(figure)?).note(both(figure)?);
            rows.push(match (depth, name) {
                (1, "mean us") => row.bound(Bound::AtMost(1.0)),
                _ => row,
            });
        }
    }
    Ok(rows)
}
