//! Checks of several paths: the bandwidth of two links and of four, how well a slow path is avoided, and the cost of the
//! layer that chooses paths where there is one.
//!
//! Pauses at faults are measured by the end-to-end tests `faults_of_paths_are_pauses`, `ana_*` and `takeover_*`, which
//! print them.

use crate::checks::{self, CheckBench, ChecksArgs, Set};
use crate::impair::Impairment;
use crate::judge::Judged;
use crate::links::{self, LinkSpeed, NamespaceLinks, SegmentWiring};
use crate::loopback::Loopback;
use crate::measure::{Measure, median};
use crate::runs::rounds;
use anyhow::{Context, bail};

/// Delay of what goes to the target by a slow path.
const DELAY_US: u64 = 30_000;
/// Links of 1 Gbit/s that one lane uses.
const FOUR: usize = 4;
const TARGET: &str = "--namespace mem:256MiB --cores 1";

/// Runs the checks.
pub(crate) fn main(args: &ChecksArgs) -> anyhow::Result<()> {
    let checks: [checks::CheckEntry; 4] = [
        ("links", "two links beside one, each of 1 Gbit/s", &two_links),
        ("four", "one lane over four links of 1 Gbit/s: MPTCP, paths, Ethernet", &four_links),
        ("delay", "a good path beside one that is late", &slow_path),
        ("layer", "one path that is chosen beside one that is not", &layer),
    ];
    let set = Set { name: "paths", rounds: 5, seconds: 2.0, needs_links: false, checks: &checks };
    checks::main(args, &set)
}

/// The median of the comparisons of a load at two addresses.
fn compare(
    bench: &CheckBench,
    loopback: &Loopback,
    at: [&str; 2],
    load: &str,
    compare: fn(&Measure, &Measure) -> f64,
) -> anyhow::Result<f64> {
    let once = |at: &&str| loopback.bench(&format!("{at} {load}"), bench.seconds);
    let rounds = rounds(bench.rounds, &at, once)?;
    median(rounds.iter().map(|round| compare(&round[0], &round[1]))).context("no rounds")
}

fn two_links(bench: &CheckBench) -> anyhow::Result<Vec<Judged>> {
    let wiring = SegmentWiring { shape: Some(LinkSpeed::GIGABIT), ..SegmentWiring::plain(9000) };
    between(bench, &wiring, |rw, both| {
        let what = format!("128 KiB {rw}, depth 32, over two links");
        let ratio = both(&format!("--rw {rw} --bs 128k --depth 32"))?;
        Ok(Judged::new("links", what, "x one link", ratio).at_least(1.9))
    })
}

/// One lane over four links: as subflows of one connection, as four paths, as links of Ethernet.
fn four_links(bench: &CheckBench) -> anyhow::Result<Vec<Judged>> {
    if let Some(why) = links::unavailable() {
        bail!("no links: {why}");
    }
    let (mtu, speed) = (9000, LinkSpeed::GIGABIT);
    let links = NamespaceLinks::new(
        FOUR,
        &SegmentWiring { shape: Some(speed), ..SegmentWiring::plain(mtu) },
    )?;
    links.add_subflows()?;
    let interfaces = links.interfaces();
    let loopback = Loopback::over(&bench.program, links)?;
    let path = |link: usize| format!("-a {}:{}", links::addresses(link)[1], loopback.port());
    let paths = (0..FOUR).map(path).collect::<Vec<_>>().join(" ");
    let sides = [
        ("MPTCP", format!("{} --mptcp", path(0))),
        ("four paths", paths),
        ("Ethernet", format!("-a ether:{interfaces}")),
    ];
    let ether: String = interfaces.split(',').map(|name| format!("-a ether:{name} ")).collect();
    let _target = loopback.serve(&format!("{ether} --mptcp {TARGET}"))?;
    let sum = speed.payload_bytes_per_second(mtu) * FOUR as f64;
    let mut judged = Vec::new();
    for rw in ["randread", "randwrite"] {
        let once = |(_, at): &(&str, String)| {
            let load = format!("{at} --lanes 1 --rw {rw} --bs 128k --depth 64");
            loopback.bench(&load, bench.seconds)
        };
        let rounds = rounds(bench.rounds, &sides, once)?;
        for (side, (name, _)) in sides.iter().enumerate() {
            let rates = rounds.iter().map(|round| round[side].bytes_per_second / sum);
            let share = median(rates).context("no rounds")? * 100.0;
            let what = format!("128 KiB {rw}, depth 64, one lane, {name}");
            let note = "of what frames of 9000 bytes can carry over four links";
            let row = Judged::new("four", what, "%", share).note(note);
            judged.push(if side == 0 { row.at_least(95.0) } else { row });
        }
    }
    Ok(judged)
}

fn slow_path(bench: &CheckBench) -> anyhow::Result<Vec<Judged>> {
    let late = Impairment { delay_us: DELAY_US, back_delay_us: Some(0), ..Impairment::NONE };
    let wiring =
        SegmentWiring { impairment: late, impaired: Some(1), ..SegmentWiring::plain(1500) };
    between(bench, &wiring, |rw, both| {
        let what = format!("4 KiB {rw}, depth 32, beside a path that is late");
        let ratio = both(&format!("--rw {rw} --bs 4k --depth 32"))?;
        Ok(Judged::new("delay", what, "x the good path", ratio).at_least(0.95))
    })
}

/// A figure for each direction; `judge` receives the function that measures both paths against the first one.
fn between(
    bench: &CheckBench,
    wiring: &SegmentWiring,
    judge: impl Fn(&str, &dyn Fn(&str) -> anyhow::Result<f64>) -> anyhow::Result<Judged>,
) -> anyhow::Result<Vec<Judged>> {
    if let Some(why) = links::unavailable() {
        bail!("no links: {why}");
    }
    let loopback = Loopback::over(&bench.program, NamespaceLinks::new(2, wiring)?)?;
    let path = |link: usize| format!("-a {}:{}", links::addresses(link)[1], loopback.port());
    let both = format!("{} {}", path(0), path(1));
    let _target = loopback.serve(TARGET)?;
    let ratio = |both: &Measure, one: &Measure| both.bytes_per_second / one.bytes_per_second;
    let beside = |load: &str| compare(bench, &loopback, [&both, &path(0)], load, ratio);
    ["randread", "randwrite"].iter().map(|rw| judge(rw, &beside)).collect()
}

/// A path that is chosen, as it was discovered and others may come.
fn layer(bench: &CheckBench) -> anyhow::Result<Vec<Judged>> {
    let loopback = Loopback::new(&bench.program)?;
    let at = format!("-a 127.0.0.1:{}", loopback.port());
    let chosen = format!("{at} --discover");
    let mut judged = Vec::new();
    for rw in ["randread", "randwrite"] {
        let target = loopback.serve(TARGET)?;
        let load = format!("--rw {rw} --bs 4k --depth 128");
        let ratio = |chosen: &Measure, one: &Measure| chosen.iops / one.iops;
        let ratio = compare(bench, &loopback, [&chosen, &at], &load, ratio)?;
        let what = format!("4 KiB {rw}, depth 128: IOPS with the layer");
        judged.push(Judged::new("layer", what, "x without", ratio).at_least(0.98));
        drop(target);
        let _target = loopback.serve(&format!("{TARGET} --busy-poll"))?;
        let load = format!("--rw {rw} --bs 4k --depth 1 --busy-poll");
        let more = |chosen: &Measure, one: &Measure| chosen.latency_us_mean - one.latency_us_mean;
        let more = compare(bench, &loopback, [&chosen, &at], &load, more)?;
        let what = format!("4 KiB {rw}, depth 1: latency that the layer adds");
        judged.push(Judged::new("layer", what, "us", more).at_most(1.0));
    }
    Ok(judged)
}
