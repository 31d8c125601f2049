//! How long a target takes to spread lanes over its cores whose packets all come in on one.

use crate::interrupt;
use crate::measure::median;
use crate::noise;
use crate::table::serve::{self, NQN, Process};
use anyhow::{Context, ensure};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Lanes, and what each has in flight.
const LANES: usize = 4;
const DEPTH: usize = 64;
/// How long is watched, and how often.
const WATCHED: Duration = Duration::from_secs(3);
const EVERY: Duration = Duration::from_millis(20);
/// How long it may take.
const BAR_MS: f64 = 1000.0;

/// How to measure.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The product
    #[arg(long, default_value = "target/release/roadtrain")]
    program: PathBuf,
    /// Rounds
    #[arg(long, default_value_t = 5)]
    rounds: usize,
}

/// A target, as `roadtrain status --json` shows it.
#[derive(Deserialize)]
struct Target {
    pid: Option<u32>,
    #[serde(default)]
    lanes: Vec<Lane>,
}

#[derive(Deserialize)]
struct Lane {
    qid: u16,
    core: Option<usize>,
    moves: u32,
    requests: u64,
}

/// What came of a round.
struct Round {
    /// From the first request seen to the last move seen.
    balanced_ms: f64,
    moves: u32,
    on_second_core: usize,
}

pub(crate) fn main(args: &Args) -> anyhow::Result<()> {
    ensure!(args.program.exists(), "no {}: build it first", args.program.display());
    interrupt::watch();
    noise::settle(Duration::from_secs(10));
    println!("{LANES} lanes of depth {DEPTH} from core 0, target on cores 0 and 1");
    let mut rounds = Vec::new();
    for _ in 0..args.rounds {
        interrupt::check()?;
        let round = round(&args.program)?;
        let Round { balanced_ms, moves, on_second_core } = round;
        println!(
            "balanced after {balanced_ms:4.0} ms, {moves} moves, {on_second_core} lanes on core 1"
        );
        rounds.push(round);
    }
    let middle = median(rounds.iter().map(|round| round.balanced_ms)).context("no round")?;
    let verdict = if middle <= BAR_MS { "kept" } else { "MISSED" };
    println!("median {middle:.0} ms (at most {BAR_MS:.0}): {verdict}");
    Ok(())
}

fn round(program: &Path) -> anyhow::Result<Round> {
    let port = serve::free_port()?;
    let line = format!("serve -a 127.0.0.1 -s {port} -n {NQN} --namespace mem:64MiB --cores 0,1");
    let target = Process::start(program, &line.split(' ').map(str::to_owned).collect::<Vec<_>>())?;
    let seconds = WATCHED.as_secs() + 1;
    let line = format!(
        "bench -t tcp -a 127.0.0.1 -s {port} -n {NQN} --rw randread --bs 4k --depth {DEPTH} --lanes {LANES} --cores 0 \
         --seconds {seconds}"
    );
    let mut host = Command::new(program)
        .args(line.split(' '))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("start the host")?;
    let watched = watch(program, target.pid());
    let _ = host.wait();
    watched
}

fn watch(program: &Path, pid: u32) -> anyhow::Result<Round> {
    let (mut began, mut last) = (None, None);
    let (mut moves, mut on_second_core) = (0, 0);
    let until = Instant::now() + WATCHED;
    while Instant::now() < until {
        let lanes = lanes(program, pid)?;
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
        thread::sleep(EVERY);
    }
    let began = began.context("no request was seen")?;
    ensure!(on_second_core > 0, "all lanes stayed on one core");
    let balanced_ms = last.map_or(0.0, |last| (last - began).as_secs_f64() * 1e3);
    Ok(Round { balanced_ms, moves, on_second_core })
}

fn lanes(program: &Path, pid: u32) -> anyhow::Result<Vec<Lane>> {
    let output =
        Command::new(program).args(["status", "--json"]).output().context("ask for the status")?;
    let targets: Vec<Target> = serde_json::from_slice(&output.stdout).context("read the status")?;
    let target = targets.into_iter().find(|target| target.pid == Some(pid));
    Ok(target.context("the target is not there")?.lanes)
}
