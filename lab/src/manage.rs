//! What managing and limiting may cost, and how well limits are kept: the data path of a target that is watched (its
//! metrics scraped each second, requests recorded, a management call each millisecond) against one that is not, rate
//! limits against what they say, and a host without a limit beside one with. Host on core 0, target on core 1.
//!
//! Where the data path has both cores whoever calls and whoever answers takes time from it, whatever the answer. So the
//! same calls to a server that answers with a fixed text are measured, too, and both ends on core 0, where the other core
//! is there for who calls.

use crate::bars::{self, Bar, Row, Runs};
use crate::command;
use crate::measure::{Measure, median};
use crate::product;
use crate::service::{Service, free_port};
use crate::undo::Folder;
use anyhow::{Context, ensure};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const NQN: &str = "nqn.2026-11.io.roadtrain:manage";
/// Beyond measuring: connecting, ending.
const SLACK: Duration = Duration::from_secs(30);
const LIMITS: [u64; 4] = [1_000, 10_000, 100_000, 500_000];
/// Of the one beside which another is measured.
const LIMITED: u64 = 20_000;

/// Checks the bars.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    runs: Runs,
    /// Only these checks: watched, limit, neighbour (comma-separated)
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
}

/// Compares; prints a table.
pub(crate) fn main(args: &Args) -> anyhow::Result<()> {
    bars::check(
        &args.runs,
        &args.only,
        &[("watched", watched), ("limit", limits), ("neighbour", neighbour)],
    )
}

/// A target, and hosts of it.
struct Lab<'a> {
    args: &'a Runs,
    scratch: Folder,
    port: u16,
    metrics: u16,
}

impl<'a> Lab<'a> {
    fn new(args: &'a Runs) -> anyhow::Result<Self> {
        let scratch = std::env::temp_dir().join(format!("roadtrain-manage-{}", std::process::id()));
        let (port, metrics) = (free_port()?, free_port()?);
        Ok(Lab { args, scratch: Folder::new(scratch)?, port, metrics })
    }

    fn serve(&self, namespaces: &str) -> anyhow::Result<Service> {
        self.serve_at(1, namespaces)
    }

    fn serve_at(&self, core: u32, namespaces: &str) -> anyhow::Result<Service> {
        let Lab { port, metrics, .. } = self;
        let line = format!(
            "serve -a 127.0.0.1 -s {port} -n {NQN} --cores {core} {namespaces} --metrics 127.0.0.1:{metrics} --rpc {}",
            self.rpc().display(),
        );
        let mut command = Command::new(&self.args.program);
        command.args(line.split_whitespace());
        let mut service = Service::start(&mut command, &self.scratch.path().join("target"))?;
        service.until_line("ready").context("the target")?;
        Ok(service)
    }

    fn rpc(&self) -> PathBuf {
        self.scratch.path().join("rpc.sock")
    }

    fn load(&self, load: &str, seconds: f64) -> Command {
        let line = format!(
            "bench -t tcp -a 127.0.0.1 -s {} -n {NQN} --cores 0 --lanes 1 {load} --ramp 0.5 --seconds {seconds} --json",
            self.port,
        );
        let mut command = Command::new(&self.args.program);
        command.args(line.split_whitespace());
        command
    }

    fn bench(&self, load: &str) -> anyhow::Result<Measure> {
        let seconds = self.args.seconds;
        let limit = Duration::from_secs_f64(seconds) + SLACK;
        product::measure(command::run(&mut self.load(load, seconds), limit)?.as_bytes())
    }
}

/// Somebody who looks at a target all the time.
struct Watcher {
    is_over: AtomicBool,
    calls: AtomicU64,
    scrapes: AtomicU64,
}

impl Watcher {
    /// A call each millisecond.
    fn call(&self, path: &Path) -> anyhow::Result<()> {
        let mut socket = UnixStream::connect(path)?;
        let mut answer = [0; 4096];
        let mut next = Instant::now();
        while !self.is_over.load(Ordering::Relaxed) {
            let call = br#"{"jsonrpc": "2.0", "id": 1, "method": "spdk_get_version"}"#;
            socket.write_all(call)?;
            ensure!(socket.read(&mut answer)? > 0, "the target hung up");
            self.calls.fetch_add(1, Ordering::Relaxed);
            next += Duration::from_millis(1);
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        Ok(())
    }

    /// A scrape each second.
    fn scrape(&self, port: u16) -> anyhow::Result<()> {
        while !self.is_over.load(Ordering::Relaxed) {
            let mut socket = TcpStream::connect(("127.0.0.1", port))?;
            socket.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
            let mut page = Vec::new();
            socket.read_to_end(&mut page)?;
            ensure!(page.starts_with(b"HTTP/1.1 200 "), "no metrics");
            self.scrapes.fetch_add(1, Ordering::Relaxed);
            thread::sleep(Duration::from_secs(1));
        }
        Ok(())
    }

    /// Runs `work` meanwhile.
    fn beside<T>(
        path: &Path,
        metrics: Option<u16>,
        work: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let (is_over, calls, scrapes) = Default::default();
        let watcher = Watcher { is_over, calls, scrapes };
        let began = Instant::now();
        let done = thread::scope(|scope| {
            let caller = scope.spawn(|| watcher.call(path));
            let scraper = scope.spawn(|| metrics.map_or(Ok(()), |port| watcher.scrape(port)));
            let done = work();
            watcher.is_over.store(true, Ordering::Relaxed);
            for thread in [caller, scraper] {
                thread.join().expect("it does not panic")?;
            }
            done
        })?;
        let rate = watcher.calls.into_inner() as f64 / began.elapsed().as_secs_f64();
        ensure!(rate > 300.0, "only {rate:.0} calls a second");
        ensure!(metrics.is_none() || watcher.scrapes.into_inner() > 1, "nothing was scraped");
        Ok(done)
    }
}

/// Answers whatever comes with the same text, until the one that calls hangs up.
fn echo(listener: &UnixListener) -> anyhow::Result<()> {
    let (mut socket, _) = listener.accept()?;
    let mut call = [0; 4096];
    while socket.read(&mut call)? > 0 {
        socket.write_all(br#"{"jsonrpc":"2.0","id":1,"result":{}}"#)?;
    }
    Ok(())
}

/// Who is called while the data path is measured.
#[derive(Clone, Copy, PartialEq)]
enum Called {
    Nobody,
    /// A server that does nothing.
    Echo,
    /// The target, which also records and is scraped.
    Target,
}

fn watched_once(lab: &Lab<'_>, core: u32, load: &str, called: Called) -> anyhow::Result<f64> {
    let slow_over = if called == Called::Target { "p99" } else { "off" };
    let namespaces = format!("--namespace mem:256MiB --slow-over {slow_over}");
    let _target = lab.serve_at(core, &namespaces)?;
    let bench = || lab.bench(&format!("{load} --slow-over {slow_over}"));
    let measured = match called {
        Called::Nobody => bench()?,
        Called::Target => Watcher::beside(&lab.rpc(), Some(lab.metrics), bench)?,
        Called::Echo => {
            let path = lab.scratch.path().join("echo.sock");
            let listener = UnixListener::bind(&path)?;
            let answers = thread::spawn(move || echo(&listener));
            let measured = Watcher::beside(&path, None, bench)?;
            answers.join().expect("it does not panic")?;
            std::fs::remove_file(path)?;
            measured
        }
    };
    Ok(measured.iops)
}

/// A target that is watched, and records, beside one for which neither is so.
fn watched(args: &Runs) -> anyhow::Result<Vec<Row>> {
    let lab = Lab::new(args)?;
    let mut rows = Vec::new();
    for (core, cores) in [(1, "a core for each end"), (0, "one core for both ends")] {
        for (rw, depth) in [("randread", 128), ("randwrite", 128), ("randread", 1)] {
            let load = format!("--rw {rw} --bs 4k --depth {depth}");
            let iops = watched_in_turns(&lab, core, &load)?;
            let against = |other: usize| {
                median(iops[2].iter().zip(&iops[other]).map(|(mine, other)| mine / other))
            };
            for (other, unit) in [(0, "x unwatched"), (1, "x calls to nothing")] {
                let measured = against(other).context("no rounds")?;
                let what = format!("{cores}, 4 KiB {rw}, depth {depth}: IOPS while watched");
                rows.push(Row { check: "watched", what, measured, unit, bar: Bar::AtLeast(0.98) });
            }
        }
    }
    Ok(rows)
}

/// IOPS in each round, by who is called.
fn watched_in_turns(lab: &Lab<'_>, core: u32, load: &str) -> anyhow::Result<[Vec<f64>; 3]> {
    let mut iops: [Vec<f64>; 3] = Default::default();
    let mut order = [Called::Nobody, Called::Echo, Called::Target];
    for _ in 0..lab.args.rounds.max(1) {
        order.rotate_left(1);
        for called in order {
            iops[called as usize].push(watched_once(lab, core, load, called)?);
        }
    }
    Ok(iops)
}

/// What a host gets of what its namespace is limited to.
fn limits(args: &Runs) -> anyhow::Result<Vec<Row>> {
    let lab = Lab::new(args)?;
    let mut rows = Vec::new();
    for limit in LIMITS {
        let _target = lab.serve(&format!("--namespace mem:256MiB,iops={limit}"))?;
        let mut worst = 0.0_f64;
        for _ in 0..args.rounds.max(1) {
            let iops = lab.bench("--rw randread --bs 4k --depth 128")?.iops;
            worst = worst.max((iops / limit as f64 - 1.0).abs() * 100.0);
        }
        let what = format!("limited to {limit} IOPS: how far off, at most");
        rows.push(Row { check: "limit", what, measured: worst, unit: "%", bar: Bar::AtMost(3.0) });
    }
    Ok(rows)
}

/// A host of a namespace without a limit: alone, while another host exhausts its own one's, and while the other asks
/// for just so much without a limit. Both hosts share a core.
fn neighbour(args: &Runs) -> anyhow::Result<Vec<Row>> {
    let stores =
        [("memory", "mem:256MiB"), ("emulated SSD", "ssd:256MiB,service-us=100,parallel=64")];
    let mut rows = Vec::new();
    for (name, store) in stores {
        rows.extend(neighbour_of(args, name, store)?);
    }
    Ok(rows)
}

fn neighbour_of(args: &Runs, name: &str, store: &str) -> anyhow::Result<Vec<Row>> {
    let lab = Lab::new(args)?;
    let limited = format!("--namespace {store},iops={LIMITED}");
    let _target = lab.serve(&format!("--namespace {store} {limited} --namespace {store}"))?;
    let others = [
        ("--nsid 2 --depth 128".to_owned(), "x alone"),
        (format!("--nsid 3 --depth 128 --rate {LIMITED}"), "x beside as much without a limit"),
    ];
    let mut rows = Vec::new();
    for depth in [1, 16] {
        let load = format!("--nsid 1 --rw randread --bs 4k --depth {depth}");
        let mut p99: [Vec<f64>; 3] = Default::default();
        for _ in 0..args.rounds.max(1) {
            p99[0].push(lab.bench(&load)?.latency_us_p99);
            for (other, p99) in others.iter().zip(&mut p99[1..]) {
                let other = format!("{} --rw randread --bs 4k", other.0);
                let mut other = lab.load(&other, args.seconds + 60.0);
                let other = Service::start(&mut other, &lab.scratch.path().join("other"))?;
                thread::sleep(Duration::from_millis(500));
                p99.push(lab.bench(&load)?.latency_us_p99);
                drop(other.stopped_by(libc::SIGINT));
            }
        }
        for (against, (_, unit)) in [0, 2].into_iter().zip(others.iter()) {
            let ratios = p99[1].iter().zip(&p99[against]).map(|(mine, other)| mine / other);
            let measured = median(ratios).context("no rounds")?;
            let what =
                format!("{name}: p99 at depth {depth} beside a host limited to {LIMITED} IOPS");
            rows.push(Row { check: "neighbour", what, measured, unit, bar: Bar::AtMost(1.2) });
        }
    }
    Ok(rows)
}
