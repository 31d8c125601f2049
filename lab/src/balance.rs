//! How long a target takes to spread lanes over its cores whose packets all come in on one.

use crate::checks::{self, CheckBench, ChecksArgs, Set};
use crate::interrupt;
use crate::judge::Judged;
use crate::loopback::Loopback;
use crate::measure::median;
use crate::service::Service;
use anyhow::{Context, ensure};
use serde::Deserialize;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// Lanes, and the requests in flight on each.
const LANES: usize = 4;
const DEPTH: usize = 64;
/// Time that the lanes are watched, and the interval of readings.
const WATCHED: Duration = Duration::from_secs(3);
const PERIOD: Duration = Duration::from_millis(20);
/// Longest time that it may take.
const MS_MAX: f64 = 1000.0;

/// A target, as `roadtrain status --json` shows it.
#[derive(Deserialize)]
struct BalanceTarget {
    pid: Option<u32>,
    #[serde(default)]
    lanes: Vec<BalanceLane>,
}

#[derive(Deserialize)]
struct BalanceLane {
    qid: u16,
    core: Option<usize>,
    moves: u32,
    requests: u64,
}

/// Runs the check.
pub(crate) fn main(args: &ChecksArgs) -> anyhow::Result<()> {
    let checks: [checks::CheckEntry; 1] =
        [("balance", "lanes that all come in on one core", &balance)];
    let set = Set { name: "balance", rounds: 5, seconds: 2.0, needs_links: false, checks: &checks };
    checks::main(args, &set)
}

fn balance(bench: &CheckBench) -> anyhow::Result<Vec<Judged>> {
    let mut times = Vec::new();
    let mut notes = Vec::new();
    for _ in 0..bench.rounds {
        interrupt::check()?;
        let loopback = Loopback::new(&bench.program)?;
        let target = loopback.serve("--namespace mem:64MiB --cores 0,1")?;
        let load = format!("--rw randread --bs 4k --depth {DEPTH} --lanes {LANES}");
        let mut load = loopback.load(&load, WATCHED.as_secs_f64() + 1.0);
        let _load = Service::start(&mut load, &loopback.path("load"))?.stopped_by(libc::SIGINT);
        let (ms, moves, moved) =
            watch(&|| lanes(&mut loopback.host("status --json"), target.id()))?;
        times.push(ms);
        notes.push(format!("{ms:.0} ms with {moves} moves, {moved} lanes on core 1"));
    }
    let ms = median(times).context("no round")?;
    let what = format!("{LANES} lanes of depth {DEPTH} from core 0, target on cores 0 and 1");
    let note = notes.join("; ");
    Ok(vec![Judged::new("balance", what, "ms", ms).at_most(MS_MAX).note(note)])
}

/// Milliseconds from the first request seen to the last move seen, the moves, and the lanes on the second core.
fn watch(
    lanes: &dyn Fn() -> anyhow::Result<Vec<BalanceLane>>,
) -> anyhow::Result<(f64, u32, usize)> {
    let (mut began, mut last) = (None, None);
    let (mut moves, mut on_second_core) = (0, 0);
    let until = Instant::now() + WATCHED;
    while Instant::now() < until {
        let lanes = lanes()?;
        let now = Instant::now();
        let io = || lanes.iter().filter(|lane| lane.qid > 0);
        if io().any(|lane| lane.requests > 1) {
            began.get_or_insert(now);
        }
        let seen: u32 = io().map(|lane| lane.moves).sum();
        if seen != moves {
            (moves, last) = (seen, Some(now));
        }
        on_second_core = io().filter(|lane| lane.core == Some(1)).count();
        thread::sleep(PERIOD);
    }
    let began = began.context("no request was seen")?;
    ensure!(on_second_core > 0, "all lanes stayed on one core");
    let ms = last.map_or(0.0, |last| (last - began).as_secs_f64() * 1e3);
    Ok((ms, moves, on_second_core))
}

fn lanes(status: &mut Command, pid: u32) -> anyhow::Result<Vec<BalanceLane>> {
    let output = status.output().context("query the status")?;
    let targets: Vec<BalanceTarget> =
        serde_json::from_slice(&output.stdout).context("read the status")?;
    let target = targets.into_iter().find(|target| target.pid == Some(pid));
    Ok(target.context("the target is not there")?.lanes)
}
