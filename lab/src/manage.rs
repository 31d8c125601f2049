//! The cost of managing and limiting, and the accuracy of limits. The data path of a target that is watched (its
//! metrics scraped each second, requests recorded, a management call each millisecond) is compared with one that is
//! not. Rate limits are compared with their settings, and a host without a limit with one that has one. Host on core
//! 0, target on core 1.
//!
//! Where the data path has both cores, caller and server take time from it, whatever the reply. So the same calls to
//! a server that replies with a fixed text are measured, too, and both ends on core 0, where the other core is free
//! for the caller.

use crate::checks::{self, CheckBench, ChecksArgs, Set};
use crate::judge::Judged;
use crate::loopback::Loopback;
use crate::measure::{Measure, median};
use crate::runs::rounds;
use crate::service::{Service, free_port};
use anyhow::{Context, ensure};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const LIMITS: [u64; 4] = [1_000, 10_000, 100_000, 500_000];
/// Limit of the host that runs together with the measured one.
const LIMITED: u64 = 20_000;

/// Runs the checks.
pub(crate) fn main(args: &ChecksArgs) -> anyhow::Result<()> {
    let checks: [checks::CheckEntry; 3] = [
        ("watched", "a target that is watched, and records, beside one that is not", &watched),
        ("limit", "the rate of a host whose namespace is limited", &limits),
        ("neighbour", "a host beside one that is limited", &neighbour),
    ];
    let set = Set { name: "manage", rounds: 5, seconds: 2.0, needs_links: false, checks: &checks };
    checks::main(args, &set)
}

/// Targets with metrics and a control socket, and loads on them.
struct ManagedTargets<'a> {
    bench: &'a CheckBench,
    loopback: Loopback,
    metrics: u16,
}

impl<'a> ManagedTargets<'a> {
    fn new(bench: &'a CheckBench) -> anyhow::Result<Self> {
        let (loopback, metrics) = (Loopback::new(&bench.program)?, free_port()?);
        Ok(Self { bench, loopback, metrics })
    }

    fn serve(&self, core: u32, namespaces: &str) -> anyhow::Result<Service> {
        let Self { loopback, metrics, .. } = self;
        let rpc = self.rpc();
        loopback.serve(&format!(
            "--cores {core} {namespaces} --metrics 127.0.0.1:{metrics} --rpc {}",
            rpc.display()
        ))
    }

    fn rpc(&self) -> PathBuf {
        self.loopback.path("rpc.sock")
    }

    fn measure(&self, load: &str) -> anyhow::Result<Measure> {
        self.loopback.bench(&format!("--lanes 1 {load}"), self.bench.seconds)
    }
}

/// A client that queries a target all the time.
struct QueryingClient {
    is_over: AtomicBool,
    calls: AtomicU64,
    scrapes: AtomicU64,
}

impl QueryingClient {
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
    fn run_while_querying<T>(
        path: &Path,
        metrics: Option<u16>,
        work: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let (is_over, calls, scrapes) = Default::default();
        let watcher = QueryingClient { is_over, calls, scrapes };
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

/// Answers every call with the same text, until the caller hangs up.
fn echo(listener: &UnixListener) -> anyhow::Result<()> {
    let (mut socket, _) = listener.accept()?;
    let mut call = [0; 4096];
    while socket.read(&mut call)? > 0 {
        socket.write_all(br#"{"jsonrpc":"2.0","id":1,"result":{}}"#)?;
    }
    Ok(())
}

/// The server that is called while the data path is measured.
#[derive(Clone, Copy, PartialEq)]
enum CalledServer {
    Nothing,
    /// A server that does nothing.
    Echo,
    /// The target, which also records and is scraped.
    Target,
}

fn watched_once(
    managed: &ManagedTargets,
    core: u32,
    load: &str,
    called: CalledServer,
) -> anyhow::Result<f64> {
    let slow_over = if called == CalledServer::Target { "p99" } else { "off" };
    let namespaces = format!("--namespace mem:256MiB --slow-over {slow_over}");
    let _target = managed.serve(core, &namespaces)?;
    let measure = || managed.measure(&format!("{load} --slow-over {slow_over}"));
    let measured = match called {
        CalledServer::Nothing => measure()?,
        CalledServer::Target => {
            QueryingClient::run_while_querying(&managed.rpc(), Some(managed.metrics), measure)?
        }
        CalledServer::Echo => {
            let path = managed.loopback.path("echo.sock");
            let listener = UnixListener::bind(&path)?;
            let answers = thread::spawn(move || echo(&listener));
            let measured = QueryingClient::run_while_querying(&path, None, measure)?;
            answers.join().expect("it does not panic")?;
            std::fs::remove_file(path)?;
            measured
        }
    };
    Ok(measured.iops)
}

/// A watched target that records, compared with one without both.
fn watched(bench: &CheckBench) -> anyhow::Result<Vec<Judged>> {
    let managed = ManagedTargets::new(bench)?;
    let mut judged = Vec::new();
    for (core, cores) in [(1, "a core for each end"), (0, "one core for both ends")] {
        for (rw, depth) in [("randread", 128), ("randwrite", 128), ("randread", 1)] {
            let load = format!("--rw {rw} --bs 4k --depth {depth}");
            let called = [CalledServer::Target, CalledServer::Nothing, CalledServer::Echo];
            let once = |&called: &CalledServer| watched_once(&managed, core, &load, called);
            let iops = rounds(bench.rounds, &called, once)?;
            for (other, unit) in [(1, "x unwatched"), (2, "x calls to nothing")] {
                let ratio = median(iops.iter().map(|iops| iops[0] / iops[other]));
                let what = format!("{cores}, 4 KiB {rw}, depth {depth}: IOPS while watched");
                let ratio = ratio.context("no rounds")?;
                judged.push(Judged::new("watched", what, unit, ratio).at_least(0.98));
            }
        }
    }
    Ok(judged)
}

/// The share that a host gets of the limit of its namespace.
fn limits(bench: &CheckBench) -> anyhow::Result<Vec<Judged>> {
    let managed = ManagedTargets::new(bench)?;
    let mut judged = Vec::new();
    for limit in LIMITS {
        let _target = managed.serve(1, &format!("--namespace mem:256MiB,iops={limit}"))?;
        let mut worst = 0.0_f64;
        for _ in 0..bench.rounds {
            let iops = managed.measure("--rw randread --bs 4k --depth 128")?.iops;
            worst = worst.max((iops / limit as f64 - 1.0).abs() * 100.0);
        }
        let what = format!("limited to {limit} IOPS: how far off, at most");
        judged.push(Judged::new("limit", what, "%", worst).at_most(3.0));
    }
    Ok(judged)
}

/// A host of a namespace without a limit: alone, while another host exhausts its own one's, and while the other
/// requests just so much without a limit. Both hosts share a core.
fn neighbour(bench: &CheckBench) -> anyhow::Result<Vec<Judged>> {
    let stores =
        [("memory", "mem:256MiB"), ("emulated SSD", "ssd:256MiB,service-us=100,parallel=64")];
    let mut judged = Vec::new();
    for (name, store) in stores {
        judged.extend(neighbour_of(bench, name, store)?);
    }
    Ok(judged)
}

fn neighbour_of(bench: &CheckBench, name: &str, store: &str) -> anyhow::Result<Vec<Judged>> {
    let managed = ManagedTargets::new(bench)?;
    let limited = format!("--namespace {store},iops={LIMITED}");
    let namespaces = format!("--namespace {store} {limited} --namespace {store}");
    let _target = managed.serve(1, &namespaces)?;
    let others = [
        Some("--nsid 2 --depth 128".to_owned()),
        None,
        Some(format!("--nsid 3 --depth 128 --rate {LIMITED}")),
    ];
    let mut judged = Vec::new();
    for depth in [1, 16] {
        let load = format!("--nsid 1 --rw randread --bs 4k --depth {depth}");
        let p99 = rounds(bench.rounds, &others, |other| {
            let other = other.as_ref().map(|other| {
                let other = format!("--lanes 1 {other} --rw randread --bs 4k");
                let mut other = managed.loopback.load(&other, bench.seconds + 60.0);
                Service::start(&mut other, &managed.loopback.path("other"))
            });
            let other = other.transpose()?.map(|other| other.stopped_by(libc::SIGINT));
            if other.is_some() {
                thread::sleep(Duration::from_millis(500));
            }
            Ok(managed.measure(&load)?.latency_us_p99)
        })?;
        for (other, unit) in [(1, "x alone"), (2, "x beside as much without a limit")] {
            let ratio = median(p99.iter().map(|p99| p99[0] / p99[other])).context("no rounds")?;
            let what =
                format!("{name}: p99 at depth {depth} beside a host limited to {LIMITED} IOPS");
            judged.push(Judged::new("neighbour", what, unit, ratio).at_most(1.2));
        }
    }
    Ok(judged)
}
