//! Lost frames, links that fail, hostile peers: what is left of the throughput, and whether all data is right.

use super::{ETHER, direction, middle, timing};
use crate::checks::CheckBench;
use crate::impair::Impairment;
use crate::judge::Judged;
use crate::links::NamespaceLinks;
use crate::product::LoadTiming;
use crate::service::Service;
use crate::wired::{Wired, WiredContestant};
use crate::workload::{KIB, LabLoad, LoadLinks, size};
use crate::{command, interrupt, procfs, runs};
use anyhow::{Context, ensure};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const LOSS_PERCENT: f64 = 1.0;
const HEAVY_PERCENT: f64 = 5.0;
const LIMIT: Duration = Duration::from_secs(60);
const PERIOD: Duration = Duration::from_millis(20);

/// Goodput with 1 % of frames lost, both ways, over that without loss.
pub(super) fn loss(bench: &CheckBench) -> anyhow::Result<Vec<Judged>> {
    let mut rows = Vec::new();
    for wire in [LoadLinks::gigabit(1), LoadLinks::unshaped(1)] {
        let good = Wired::impaired(&bench.program, wire, Impairment::NONE, true)?;
        let bad = Wired::impaired(&bench.program, wire, Impairment::NONE, true)?;
        bad.links.impair(0, Impairment::of_loss(LOSS_PERCENT))?;
        for (share, bs, depth) in [(100, 4, 128), (0, 4, 128), (100, 128, 16), (0, 128, 16)] {
            let load = LabLoad::new(share, bs * KIB, depth).over(wire);
            let rate = |wired: &&Wired| {
                let one = WiredContestant::Product(ETHER);
                wired.measure(&load, one, &timing(bench)).map(|m| m.bytes_per_second)
            };
            let pairs = runs::rounds(bench.rounds, &[&bad, &good], rate)?;
            let of = |f: fn(&Vec<f64>) -> f64| middle(pairs.iter().map(f));
            let kind = if wire.is_gigabit { "1 Gbit/s" } else { "unshaped" };
            let what = format!("{kind}, {} {}", size(bs * KIB), direction(share));
            let row = Judged::new("loss", what, "x lossless", of(|p| p[0] / p[1])?).note(format!(
                "{:.0} of {:.0} MB/s with {LOSS_PERCENT} % lost",
                of(|p| p[0])? / 1e6,
                of(|p| p[1])? / 1e6
            ));
            rows.push(if wire.is_gigabit { row.at_least(0.8) } else { row });
        }
    }
    Ok(rows)
}

/// Requests that fail, and blocks that are wrong, with 5 % of frames lost.
pub(super) fn heavy_loss(bench: &CheckBench) -> anyhow::Result<Vec<Judged>> {
    let wire = LoadLinks::gigabit(1);
    let bad = Impairment { duplicate: 1.0, ..Impairment::of_loss(HEAVY_PERCENT) };
    let wired = Wired::impaired(&bench.program, wire, bad, true)?;
    let mut rows = Vec::new();
    for bs in [4, 128] {
        let load = LabLoad::new(50, bs * KIB, 32).over(wire);
        let checked = verified(&wired, &load, 3.0, |_, _| Ok(()))?;
        let what = format!("{} reads and writes: errors", size(bs * KIB));
        let note = format!("{} requests, {}", checked.requests, checked.summary());
        rows.push(Judged::new("heavy", what, "", checked.errors).at_most(0.0).note(note));
    }
    Ok(rows)
}

/// The report of a run that checks all data.
struct Verified {
    errors: f64,
    requests: f64,
    blocks: f64,
    reconnects: f64,
    bytes_per_second: f64,
}

impl Verified {
    fn summary(&self) -> String {
        let Self { blocks, reconnects, bytes_per_second, .. } = self;
        format!(
            "{blocks} blocks checked, {reconnects} reconnects, {:.0} MB/s",
            bytes_per_second / 1e6
        )
    }
}

/// Loads and checks all data while `meanwhile` is called with the target's process and the seconds since the start.
fn verified(
    wired: &Wired,
    load: &LabLoad,
    seconds: f64,
    mut meanwhile: impl FnMut(u32, f64) -> anyhow::Result<()>,
) -> anyhow::Result<Verified> {
    let timing = LoadTiming { mib: 64, seconds, ramp_seconds: 0.0, rate: None };
    let target = wired.serve(load, &ETHER, &timing)?;
    let mut command = wired.loads(load, &ETHER, &timing)?.pop().context("a command")?;
    command.arg("--verify");
    let began = Instant::now();
    let said = command::watched(&mut command, LIMIT, PERIOD, |_| {
        interrupt::check()?;
        meanwhile(target.id(), began.elapsed().as_secs_f64())
    })?;
    drop(target);
    let json: Value = serde_json::from_str(&said).context("JSON of roadtrain bench")?;
    let number = |path: &str| {
        json.pointer(path).and_then(Value::as_f64).with_context(|| format!("no {path} in the JSON"))
    };
    Ok(Verified {
        errors: number("/errors")?,
        requests: number("/requests")?,
        blocks: number("/blocks_checked")?,
        reconnects: number("/reconnects")?,
        bytes_per_second: number("/bytes_per_second")?,
    })
}

/// After so many seconds: what happens, and how.
type TroubleEvent = (f64, &'static str, fn(&NamespaceLinks) -> anyhow::Result<()>);

/// Two links under load: one loses its carrier, then all frames in silence, then the other one.
pub(super) fn cut(bench: &CheckBench) -> anyhow::Result<Vec<Judged>> {
    let wire = LoadLinks::gigabit(2);
    let events: [TroubleEvent; 6] = [
        (1.0, "carrier of link 0 goes", |links| links.set_carrier(0, false)),
        (2.5, "and returns", |links| links.set_carrier(0, true)),
        (4.0, "link 0 falls silent", |links| links.impair(0, Impairment::of_loss(100.0))),
        (5.5, "and is back", |links| links.impair(0, Impairment::NONE)),
        (7.0, "link 1 falls silent", |links| links.impair(1, Impairment::of_loss(100.0))),
        (8.5, "and is back", |links| links.impair(1, Impairment::NONE)),
    ];
    let mut rows = Vec::new();
    for bs in [4, 128] {
        let wired = Wired::impaired(&bench.program, wire, Impairment::NONE, true)?;
        let load = LabLoad::new(50, bs * KIB, 64).over(wire);
        let mut done = 0;
        let checked = verified(&wired, &load, 10.0, |_, seconds| {
            if let Some((at, _, change)) = events.get(done)
                && seconds >= *at
            {
                done += 1;
                change(&wired.links)?;
            }
            Ok(())
        })?;
        ensure!(done == events.len(), "it ended before {}", events[done].1);
        let what = format!("{} reads and writes over 2 links: errors", size(bs * KIB));
        rows.push(Judged::new("cut", what, "", checked.errors).at_most(0.0).note(format!(
            "{} requests, {}",
            checked.requests,
            checked.summary()
        )));
    }
    Ok(rows)
}

/// Frames seen before, cut, changed, forged and random, at both ends, as fast as they can be sent.
pub(super) fn hostile(bench: &CheckBench, exercise: &Path) -> anyhow::Result<Vec<Judged>> {
    const BEGIN: f64 = 1.0;
    const FLOOD_SECONDS: u64 = 3;
    ensure!(exercise.exists(), "no {}: build it first", exercise.display());
    let wire = LoadLinks::gigabit(1);
    let wired = Wired::impaired(&bench.program, wire, Impairment::NONE, true)?;
    let load = LabLoad::new(50, 4 * KIB, 32).over(wire);
    let mut floods: Vec<Service> = Vec::new();
    let (mut loaded, mut last) = (0, 0);
    let checked = verified(&wired, &load, 8.0, |target, seconds| {
        last = procfs::resident_bytes(target)?;
        if seconds >= BEGIN && floods.is_empty() {
            loaded = last;
            for end in ["t0", "h0"] {
                let mut flood = Command::new(exercise);
                flood.args(["frames", end, "--seconds", &FLOOD_SECONDS.to_string()]);
                floods.push(wired.between(&mut flood, end)?);
            }
        }
        Ok(())
    })?;
    let note = format!("{} with {FLOOD_SECONDS} s of flood in 8 s", checked.summary());
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    Ok(vec![
        Judged::new("hostile", "errors and wrong blocks", "", checked.errors)
            .at_most(0.0)
            .note(note),
        Judged::new("hostile", "the target's memory grows by", "MiB", mib(last) - mib(loaded))
            .at_most(4.0)
            .note(format!("from {:.0} MiB under load", mib(loaded))),
    ])
}
