//! Runs a side of the table once.

use super::exchange;
use super::peer;
use super::plan::{TableSide, WAYS, WaitLoad};
use crate::floor::{self, DataDirection, FloorCipher, SealingCost};
use crate::loopback::{Loopback, NQN};
use crate::measure::Measure;
use crate::noise::{self, quiet};
use crate::product::{self, LoadTiming};
use crate::workload::{LabLoad, LoadWaiting, ProductSetup};
use crate::{command, procfs};
use anyhow::Context;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Requests in flight on a lane where both ends share cores.
const DEPTH: usize = 128;
/// Queue entries that every host requests at least.
const ENTRIES_MIN: usize = 32;
/// Interval of readings of the target's memory.
const PERIOD: Duration = Duration::from_millis(50);
/// Longest time for writing the memory of a target.
const FILL_MAX: Duration = Duration::from_secs(60);
/// Ways of [`WAYS`] that sleep and have a fixed time to spin.
const FIXED: std::ops::Range<usize> = 0..3;

/// The way of measuring.
pub(super) struct TableManner {
    pub(super) program: PathBuf,
    pub(super) seconds: f64,
    /// Repetitions of a run that others disturbed.
    pub(super) retries: usize,
    /// Command of another stack.
    pub(super) peer: Option<String>,
}

impl TableManner {
    fn timing(&self, mib: usize, ramp_seconds: f64) -> LoadTiming {
        LoadTiming { mib, seconds: self.seconds, ramp_seconds, rate: None }
    }

    /// Arguments of a run of the product.
    pub(super) fn arguments(&self, load: &LabLoad, setup: &ProductSetup) -> Vec<String> {
        product::arguments(load, setup, &self.timing(1024, 0.0))
    }

    /// Figures of the runs of a side, in their order.
    pub(super) fn measure(&self, side: &TableSide) -> Vec<anyhow::Result<Measure>> {
        let run = |once: &dyn Fn() -> anyhow::Result<Measure>| vec![quiet(self.retries, once)];
        match *side {
            TableSide::Product(load, setup) | TableSide::Policy(load, setup) => {
                run(&|| product::run(&self.program, &self.arguments(&load, &setup)))
            }
            TableSide::Floor(load, setup, gather) => {
                run(&|| self.floor(&load, setup.waiting, gather))
            }
            TableSide::Peer(load) => {
                run(&|| peer::run(self.peer.as_deref().context("no peer")?, &load, self.seconds))
            }
            TableSide::Hosts(hosts) => run(&|| hosts.run(&self.program, self.seconds)),
            TableSide::Pairs(pairs, lanes) => run(&|| self.pairs(pairs, lanes)),
            TableSide::Floors(floors) => run(&|| self.floors(floors)),
            TableSide::Connections(connections, depth) => {
                run(&|| self.connections(connections, depth))
            }
            TableSide::Exchange(connections, depth) => {
                run(&|| exchange::run(connections, depth, self.seconds))
            }
            TableSide::Tls(load) => all(side, self.tls(&load)),
            TableSide::Waits(wait) => all(side, self.waits(wait)),
        }
    }

    fn floor(
        &self,
        load: &LabLoad,
        waiting: LoadWaiting,
        gather: usize,
    ) -> anyhow::Result<Measure> {
        let direction = load.direction().context("the floor has no mixed loads")?;
        let tuned = load.floor(direction, waiting);
        let args = floor::FloorArgs { gather, seconds: self.seconds, ..tuned };
        floor::run(&args)
    }

    /// All hosts at the same time, each with a target of its own.
    fn pairs(&self, pairs: &[(&str, &str)], lanes: usize) -> anyhow::Result<Measure> {
        let load = LabLoad { lanes, ..LabLoad::small(100, DEPTH * lanes) };
        let line = product::arguments(&load, &ProductSetup::new("auto"), &self.timing(256, 0.5));
        let measures = at_once(pairs, |&(host, target)| {
            let mut line = line.clone();
            for (option, cores) in [("--cores", host), ("--target-cores", target)] {
                let at = line.iter().position(|word| word == option);
                line[at.expect("the line has it") + 1] = cores.into();
            }
            product::run(&self.program, &line)
        })?;
        Ok(Measure::together(&measures))
    }

    /// All floors at the same time.
    fn floors(&self, floors: &[(usize, usize)]) -> anyhow::Result<Measure> {
        let measures = at_once(floors, |&(host_core, target_core)| {
            let tuned = LabLoad::small(100, DEPTH)
                .floor(DataDirection::Read, ProductSetup::new("auto").waiting);
            let (memory, seconds) = (256 << 20, self.seconds);
            let floor = floor::FloorArgs { host_core, target_core, memory, seconds, ..tuned };
            floor::run(&floor)
        })?;
        Ok(Measure::together(&measures))
    }

    /// A target whose namespace is written before, and whose memory is read during the load.
    fn connections(&self, connections: usize, depth: usize) -> anyhow::Result<Measure> {
        let loopback = Loopback::new(&self.program)?;
        let target = loopback.serve("--namespace mem:64MiB --cores 1 --max-queues 1024")?;
        let fill = format!(
            "bench -t tcp -a 127.0.0.1:{} -n {NQN} --rw write --bs 131072 --depth 8 --lanes 1 --ios 512",
            loopback.port()
        );
        command::run(&mut loopback.host(&fill), FILL_MAX)?;
        let entries = (depth + 1).max(ENTRIES_MIN);
        let load = format!(
            "--rw randread --bs 4096 --lanes {connections} --depth {depth} --queue-size {entries}"
        );
        let pid = target.id();
        let before = procfs::resident_bytes(pid)?;
        let (is_over, cpu) = (AtomicBool::new(false), procfs::cpu_seconds(pid)?);
        let (measure, most) = thread::scope(|scope| {
            let watch = scope.spawn(|| {
                let mut most = before;
                while !is_over.load(Ordering::Relaxed) {
                    most = most.max(procfs::resident_bytes(pid).unwrap_or(0));
                    thread::sleep(PERIOD);
                }
                most
            });
            let measure = loopback.bench(&load, self.seconds);
            is_over.store(true, Ordering::Relaxed);
            (measure, watch.join().expect("it does not panic"))
        });
        let measure = measure?;
        // Over the whole run, as long as the load takes most of it.
        let requests = measure.iops * (self.seconds + 0.5);
        let target_us = (procfs::cpu_seconds(pid)? - cpu) * 1e6 / requests.max(1.0);
        Ok(Measure {
            target_kib: Some((most - before) as f64 / 1024.0 / connections as f64),
            target_cpu_us_per_io: measure.target_cpu_us_per_io.or(Some(target_us)),
            ..measure
        })
    }

    /// Plain, with TLS, the cipher alone, and plain with the CPU time of the cipher added.
    fn tls(&self, load: &LabLoad) -> anyhow::Result<Vec<Measure>> {
        let setup = ProductSetup { waiting: LoadWaiting::Default, ..ProductSetup::new("auto") };
        let line = product::arguments(load, &setup, &self.timing(256, 0.3));
        let secured = [&line[..], &["--tls".to_owned()]].concat();
        let run = |line: &[String]| quiet(self.retries, || product::run(&self.program, line));
        let (plain, tls) = (run(&line)?, run(&secured)?);
        let rw = load.direction().context("one direction only")?;
        let workload =
            floor::FloorArgs { rw, bs: load.bs, depth: load.depth, ..floor::FloorArgs::default() };
        let sealing = SealingCost::measure(FloorCipher::Aes128, &workload)?;
        let cipher = Measure {
            host_cpu_us_per_io: Some(sealing.host_us),
            target_cpu_us_per_io: Some(sealing.target_us),
            ..Measure::default()
        };
        let limit = limit(&plain, &cipher).context("no CPU time")?;
        Ok(vec![plain, tls, cipher, limit])
    }

    fn waits(&self, wait: WaitLoad) -> anyhow::Result<Vec<Measure>> {
        let load = LabLoad::small(100, wait.depth);
        let timing = LoadTiming { rate: wait.rate, ..self.timing(256, 0.3) };
        let measured = |run: &dyn Fn() -> anyhow::Result<Measure>| match wait.has_neighbour {
            true => noise::beside_neighbours(run),
            false => quiet(self.retries, run),
        };
        let way = |&(_, waiting): &(&str, LoadWaiting)| {
            let setup = ProductSetup { waiting, ..ProductSetup::new("auto") };
            let line = product::arguments(&load, &setup, &timing);
            measured(&|| product::run(&self.program, &line))
        };
        let mut measures = WAYS.iter().map(way).collect::<anyhow::Result<Vec<_>>>()?;
        if TableSide::Waits(wait).runs().len() > WAYS.len() {
            let fixed = measures[FIXED].iter();
            let best = fixed.min_by(|a, b| a.latency_us_mean.total_cmp(&b.latency_us_mean));
            measures.push(best.context("there are some")?.clone());
            let args = floor::FloorArgs {
                seconds: self.seconds,
                ..load.floor(DataDirection::Read, LoadWaiting::BusyPoll)
            };
            measures.push(measured(&|| floor::run(&args))?);
        }
        Ok(measures)
    }
}

/// Throughput if the CPU time were longer by the cipher's, on cores as busy.
fn limit(plain: &Measure, cipher: &Measure) -> Option<Measure> {
    let (cpu, more) = (plain.cpu_us_per_io()?, cipher.cpu_us_per_io()?);
    Some(Measure { iops: plain.iops * cpu / (cpu + more), ..Measure::default() })
}

/// A failure is that of each run.
fn all(side: &TableSide, outcome: anyhow::Result<Vec<Measure>>) -> Vec<anyhow::Result<Measure>> {
    match outcome {
        Ok(measures) => measures.into_iter().map(Ok).collect(),
        Err(e) => side.runs().iter().map(|_| Err(anyhow::anyhow!("{e:#}"))).collect(),
    }
}

/// Runs all parts at the same time.
pub(super) fn at_once<T: Sync>(
    parts: &[T],
    run: impl Fn(&T) -> anyhow::Result<Measure> + Sync,
) -> anyhow::Result<Vec<Measure>> {
    thread::scope(|scope| {
        let threads: Vec<_> = parts.iter().map(|part| scope.spawn(|| run(part))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a run does not panic"))
            .collect::<anyhow::Result<Vec<_>>>()
    })
    .context("one of the parts")
}
