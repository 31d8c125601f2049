//! Unshaped links: compared with the floor, and with our own NVMe/TCP.

use super::{ETHER, TCP, direction, middle, rounds, timing};
use crate::checks::CheckBench;
use crate::floor::DataDirection;
use crate::floor_ether::{self, EtherResult};
use crate::judge::Judged;
use crate::measure::Measure;
use crate::wired::{Wired, WiredContestant};
use crate::workload::{LabLoad, LoadLinks};
use anyhow::Context;

const MTUS: [usize; 3] = [1500, 9000, 65535];

/// IOPS at depth 128 and the round trip at depth 1 as a share of the floor's, by MTU.
pub(super) fn floor(bench: &CheckBench) -> anyhow::Result<Vec<Judged>> {
    let mut rows = Vec::new();
    for mtu in MTUS {
        let wire = LoadLinks { mtu, ..LoadLinks::unshaped(1) };
        let wired = Wired::new(&bench.program, wire)?;
        for share in [100, 0] {
            let of = |depth, unit: &str, figure: AgainstFigure| {
                let load = LabLoad::small(share, depth).over(wire);
                let mut pairs = Vec::new();
                for _ in 0..bench.rounds {
                    let floor = best_floor(bench, mtu, share, depth)?;
                    let measure =
                        wired.measure(&load, WiredContestant::Product(ETHER), &timing(bench))?;
                    let kind = format!("{:?}", floor.case.kind).to_lowercase();
                    pairs.push((figure(&measure), figure(&floor.measure), kind));
                }
                let ratio = middle(pairs.iter().map(|(ours, floor, _)| ours / floor))?;
                let ours = middle(pairs.iter().map(|pair| pair.0))?;
                let floor = middle(pairs.iter().map(|pair| pair.1))?;
                let what = format!("MTU {mtu}, {}, depth {depth}: {unit}", direction(share));
                let note = format!("{ours:.1}; floor {floor:.1} ({})", pairs[0].2);
                anyhow::Ok(Judged::new("floor", what, "x floor", ratio).note(note))
            };
            let many = of(128, "kIOPS", |m| m.iops / 1e3)?;
            let one = of(1, "mean us", |m| m.latency_us_mean)?;
            rows.extend([many.at_least(0.85), one.at_most(1.15)]);
        }
    }
    Ok(rows)
}

/// The fastest kind of port with the fullest frames.
fn best_floor(
    bench: &CheckBench,
    mtu: usize,
    share: u8,
    depth: usize,
) -> anyhow::Result<EtherResult> {
    let args = floor_ether::FloorEtherArgs {
        mtu: vec![mtu],
        rw: vec![if share == 100 { DataDirection::Read } else { DataDirection::Write }],
        depth: vec![depth],
        payloads: vec![64],
        memory: 64 << 20,
        seconds: bench.seconds,
        ..floor_ether::FloorEtherArgs::default()
    };
    let floors = floor_ether::measure_apart(&args)?.into_iter();
    let best = match depth {
        1 => floors.min_by(|a, b| a.measure.latency_us_mean.total_cmp(&b.measure.latency_us_mean)),
        _ => floors.max_by(|a, b| a.measure.iops.total_cmp(&b.measure.iops)),
    };
    best.context("floor-ether has measured nothing")
}

/// A figure of a measurement.
type AgainstFigure = fn(&Measure) -> f64;

/// The same link by frames and by TCP: IOPS, round trip, CPU time.
pub(super) fn tcp(bench: &CheckBench) -> anyhow::Result<Vec<Judged>> {
    let wire = LoadLinks::unshaped(1);
    let wired = Wired::new(&bench.program, wire)?;
    let mut rows = Vec::new();
    for (share, depth) in [(100, 1), (0, 1), (100, 128), (0, 128)] {
        let load = LabLoad::small(share, depth).over(wire);
        let sides = [ETHER, TCP].map(WiredContestant::Product);
        let rounds = rounds(bench, &wired, &load, &sides)?;
        let ratio = |f: AgainstFigure| middle(rounds.iter().map(|r| f(&r[0]) / f(&r[1])));
        let both = |f: AgainstFigure| {
            let of = |side: usize| middle(rounds.iter().map(|round| f(&round[side])));
            anyhow::Ok(format!("{:.1}; TCP {:.1}", of(0)?, of(1)?))
        };
        let figures: [(&str, AgainstFigure); 4] = [
            ("kIOPS", |m| m.iops / 1e3),
            ("mean us", |m| m.latency_us_mean),
            ("CPU us per I/O", |m| m.cpu_us_per_io().unwrap_or(f64::NAN)),
            ("share of it in the kernel, %", |m| m.kernel_share.unwrap_or(f64::NAN) * 100.0),
        ];
        for (name, figure) in figures {
            let what = format!("{}, depth {depth}: {name}", direction(share));
            let row = Judged::new("tcp", what, "x TCP", ratio(figure)?).note(both(figure)?);
            rows.push(match (depth, name) {
                (1, "mean us") => row.at_most(1.0),
                _ => row,
            });
        }
    }
    Ok(rows)
}
