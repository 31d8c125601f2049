//! What several paths have to reach: the bandwidth of two links, how well a slow path is avoided, and what the layer
//! that chooses paths costs where there is one. Host on core 0, target on core 1.
//!
//! Pauses at faults are measured by the end-to-end tests `faults_of_paths_are_pauses`, `ana_*` and `takeover_*`, which
//! print them.

use crate::bars::{self, Bar, Row, Runs};
use crate::command;
use crate::impair::Impairment;
use crate::links::{self, Links, Shape, Wiring};
use crate::measure::{Measure, median};
use crate::product;
use crate::service::{Service, free_port};
use crate::undo::Folder;
use anyhow::{Context, bail};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const NQN: &str = "nqn.2026-11.io.roadtrain:paths";
const PORT: u16 = 4420;
/// How late what goes to the target by a slow path is.
const DELAY_US: u64 = 30_000;
/// Beyond measuring: connecting, ending.
const SLACK: Duration = Duration::from_secs(30);

/// Checks the bars.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    runs: Runs,
    /// Only these checks: links, delay, layer (comma-separated)
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
}

/// Compares; prints a table.
pub(crate) fn main(args: &Args) -> anyhow::Result<()> {
    bars::check(
        &args.runs,
        &args.only,
        &[("links", two_links), ("delay", slow_path), ("layer", layer)],
    )
}

/// Ends of links, or of the loopback, with a target.
struct Lab {
    target: Option<Service>,
    links: Option<Links>,
    program: PathBuf,
    scratch: Folder,
}

impl Lab {
    fn new(args: &Runs, links: Option<Links>) -> anyhow::Result<Self> {
        let scratch = std::env::temp_dir().join(format!("roadtrain-paths-{}", std::process::id()));
        let program = args.program.canonicalize()?;
        Ok(Lab { target: None, links, program, scratch: Folder::new(scratch)? })
    }

    /// Starts the target anew.
    fn serve(&mut self, at: &str, more: &str) -> anyhow::Result<()> {
        self.target = None;
        let line = format!("serve {at} -n {NQN} --namespace mem:256MiB --cores 1 {more}");
        let mut command = Command::new(&self.program);
        command.args(line.split_whitespace());
        if let Some(links) = &self.links {
            links.target.enter(&mut command);
        }
        let mut service = Service::start(&mut command, &self.scratch.path().join("target"))?;
        service.until_line("ready").context("the target")?;
        self.target = Some(service);
        Ok(())
    }

    fn bench(&self, args: &Runs, at: &str, load: &str) -> anyhow::Result<Measure> {
        let line = format!(
            "bench -t tcp {at} -n {NQN} {load} --cores 0 --ramp 0.5 --seconds {} --json",
            args.seconds
        );
        let mut command = Command::new(&self.program);
        command.args(line.split_whitespace());
        if let Some(links) = &self.links {
            links.host.enter(&mut command);
        }
        let said = command::run(&mut command, Duration::from_secs_f64(args.seconds) + SLACK)?;
        product::measure(said.as_bytes())
    }

    /// The median, over alternating rounds, of what `compare` makes of a run there and one here.
    fn compare(
        &self,
        args: &Runs,
        (there, here): (&str, &str),
        load: &str,
        compare: impl Fn(&Measure, &Measure) -> f64,
    ) -> anyhow::Result<f64> {
        let mut found = Vec::new();
        for round in 0..args.rounds.max(1) {
            let (first, second) = if round % 2 == 0 { (there, here) } else { (here, there) };
            let (first, second) = (self.bench(args, first, load)?, self.bench(args, second, load)?);
            found.push(match round % 2 {
                0 => compare(&first, &second),
                _ => compare(&second, &first),
            });
        }
        median(found).context("no rounds")
    }
}

/// Two links beside one, each of 1 Gbit/s.
fn two_links(args: &Runs) -> anyhow::Result<Vec<Row>> {
    let wiring = Wiring { shape: Some(Shape::GIGABIT), ..Wiring::plain(9000) };
    between(args, &wiring, ("links", "x one link"), 1.9, |rw| {
        (
            format!("128 KiB {rw}, depth 32, over two links"),
            format!("--rw {rw} --bs 128k --depth 32"),
        )
    })
}

/// A good path beside one on which everything is late, against the good one alone.
fn slow_path(args: &Runs) -> anyhow::Result<Vec<Row>> {
    let late = Impairment { delay_us: DELAY_US, back_delay_us: Some(0), ..Impairment::NONE };
    let wiring = Wiring { impairment: late, impaired: Some(1), ..Wiring::plain(1500) };
    between(args, &wiring, ("delay", "x the good path"), 0.95, |rw| {
        (
            format!("4 KiB {rw}, depth 32, beside a path that is late"),
            format!("--rw {rw} --bs 4k --depth 32"),
        )
    })
}

/// Both paths beside the first one.
fn between(
    args: &Runs,
    wiring: &Wiring,
    (check, unit): (&'static str, &'static str),
    bar: f64,
    load: impl Fn(&str) -> (String, String),
) -> anyhow::Result<Vec<Row>> {
    if let Some(why) = links::unavailable() {
        bail!("no links: {why}");
    }
    let mut lab = Lab::new(args, Some(Links::new(2, wiring)?))?;
    let [one, both] = [1, 2].map(|count| {
        let path = |link: usize| format!("-a {}:{PORT}", links::addresses(link)[1]);
        (0..count).map(path).collect::<Vec<_>>().join(" ")
    });
    lab.serve(&format!("-a 0.0.0.0 -s {PORT}"), "")?;
    let mut rows = Vec::new();
    for rw in ["randread", "randwrite"] {
        let (what, load) = load(rw);
        let ratio = |both: &Measure, one: &Measure| both.bytes_per_second / one.bytes_per_second;
        let measured = lab.compare(args, (&both, &one), &load, ratio)?;
        rows.push(Row { check, what, measured, unit, bar: Bar::AtLeast(bar) });
    }
    Ok(rows)
}

/// One path that is chosen, as it was discovered and others may come, beside one that is not.
fn layer(args: &Runs) -> anyhow::Result<Vec<Row>> {
    let mut lab = Lab::new(args, None)?;
    let port = free_port()?;
    let (check, at) = ("layer", format!("-a 127.0.0.1:{port}"));
    let chosen = format!("{at} --discover");
    let mut rows = Vec::new();
    for rw in ["randread", "randwrite"] {
        lab.serve(&format!("-a 127.0.0.1 -s {port}"), "")?;
        let ratio = |chosen: &Measure, one: &Measure| chosen.iops / one.iops;
        let load = format!("--rw {rw} --bs 4k --depth 128");
        let measured = lab.compare(args, (&chosen, &at), &load, ratio)?;
        let what = format!("4 KiB {rw}, depth 128: IOPS with the layer");
        rows.push(Row { check, what, measured, unit: "x without", bar: Bar::AtLeast(0.98) });
        lab.serve(&format!("-a 127.0.0.1 -s {port}"), "--busy-poll")?;
        let more = |chosen: &Measure, one: &Measure| chosen.latency_us_mean - one.latency_us_mean;
        let load = format!("--rw {rw} --bs 4k --depth 1 --busy-poll");
        let measured = lab.compare(args, (&chosen, &at), &load, more)?;
        let what = format!("4 KiB {rw}, depth 1: latency that the layer adds");
        rows.push(Row { check, what, measured, unit: "us", bar: Bar::AtMost(1.0) });
    }
    Ok(rows)
}
