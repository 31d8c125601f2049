//! Several host processes at one target: the attachments that a hypervisor has on a few cores.

use super::plan::{TableCase, TableSection, TableSide, ratio};
use super::sides::at_once;
use crate::judge::{Bound, Goal};
use crate::loopback::Loopback;
use crate::measure::Measure;
use crate::metric::Metric;
use crate::product;
use crate::workload::{LoadWaiting, ProductSetup};
use std::path::Path;

/// Host processes, and the requests that each has in flight.
const COUNTS: [usize; 5] = [1, 2, 4, 16, 64];
const DEPTHS: [usize; 4] = [1, 8, 32, 128];
/// Requests in flight of the process that runs together with a latency-critical one.
const BULK_DEPTH: usize = 128;
const TARGET_CORE: usize = 1;
/// Seconds of load before those that are measured, and more for each process: all have to be there.
const RAMP_SECONDS: f64 = 0.5;
const RAMP_SECONDS_EACH: f64 = 0.06;

/// IOPS by default, of those of the best fixed setting, and p99, of that of `none`.
const IOPS_MIN: f64 = 0.95;
const P99_MAX: f64 = 1.25;

/// Host processes with one lane each.
#[derive(Clone, Copy, Debug)]
pub(super) struct HostProcesses {
    /// Name of the setting.
    pub(super) name: &'static str,
    setup: ProductSetup,
    load: HostLoad,
    /// Cores of the processes, one after the other.
    cores: &'static [usize],
}

#[derive(Clone, Copy, Debug)]
enum HostLoad {
    /// So many processes, each with so many reads in flight.
    Alike { count: usize, depth: usize },
    /// One latency-critical read at a time in one process, [`BULK_DEPTH`] others in another one. IOPS are those of the
    /// others, latencies those of the first.
    CriticalBesideBulk,
}

/// Settings by their names: what is used without any option, and what it is held against.
const DEFAULT: &str = "default";
const NONE: &str = "none";
const SETTINGS: [(&str, &str, LoadWaiting); 5] = [
    (DEFAULT, "auto", LoadWaiting::Default),
    (NONE, "none", LoadWaiting::Default),
    ("none --no-spin", "none", LoadWaiting::Sleep),
    ("none --spin-us 50", "none", LoadWaiting::SpinUs(50)),
    ("auto --spin-us 50", "auto", LoadWaiting::SpinUs(50)),
];

/// Grid of processes on one core and on both, and a latency-critical process together with another one.
pub(super) fn cases() -> Vec<TableCase> {
    let placements: [(&str, &str, &'static [usize]); 2] =
        [("hosts", "on core 0", &[0]), ("hosts-both", "on both cores", &[0, 1])];
    let mut cases = Vec::new();
    for (id, place, cores) in placements {
        for count in COUNTS.into_iter().filter(|&count| count >= cores.len()) {
            for depth in DEPTHS {
                let load = HostLoad::Alike { count, depth };
                let title = format!("{count} x {depth}, {place}");
                cases.push(case(format!("{id}-{count}x{depth}"), title, load, cores));
            }
        }
        let title = format!("1 latency-critical beside {BULK_DEPTH}, {place}");
        cases.push(case(format!("{id}-critical"), title, HostLoad::CriticalBesideBulk, cores));
    }
    cases
}

fn case(id: String, title: String, load: HostLoad, cores: &'static [usize]) -> TableCase {
    let side = |(name, policy, waiting)| {
        let setup = ProductSetup { waiting, ..ProductSetup::new(policy) };
        TableSide::Hosts(HostProcesses { name, setup, load, cores })
    };
    let fixed = SETTINGS.iter().filter(|setting| setting.0 != DEFAULT);
    let iops = ratio(
        &id,
        ("IOPS of the best", Metric::Iops),
        DEFAULT,
        (&id, NONE),
        Some(Bound::AtLeast(IOPS_MIN)),
    );
    let iops = Goal { among: fixed.map(|of| (id.clone(), of.0.to_owned())).collect(), ..iops };
    let most = Some(Bound::AtMost(P99_MAX));
    let p99 = ratio(&id, ("p99 of none", Metric::LatencyP99), DEFAULT, (&id, NONE), most);
    let sides = SETTINGS.map(side).into();
    TableCase { section: TableSection::Hosts, title, sides, goals: vec![iops, p99], id }
}

impl HostProcesses {
    /// Figures of all processes together, with a target of their own.
    pub(super) fn run(&self, program: &Path, seconds: f64) -> anyhow::Result<Measure> {
        let loopback = Loopback::new(program)?;
        let options = format!("--policy {} {}", self.setup.policy, product::both(&self.setup));
        let target = format!("--namespace mem:64MiB --cores {TARGET_CORE} {options}");
        let _target = loopback.serve(&target)?;
        let measures = self.at_once(&options, |load| loopback.bench(load, seconds))?;
        match (self.load, &measures[..]) {
            (HostLoad::CriticalBesideBulk, [critical, bulk]) => {
                Ok(Measure { iops: bulk.iops, ..critical.clone() })
            }
            _ => Ok(Measure::together(&measures)),
        }
    }

    /// Loads of the processes: in flight, and what else is special.
    fn loads(&self) -> Vec<(usize, &'static str)> {
        match self.load {
            HostLoad::Alike { count, depth } => vec![(depth, ""); count],
            HostLoad::CriticalBesideBulk => vec![(1, "--class latency"), (BULK_DEPTH, "")],
        }
    }

    fn at_once(
        &self,
        options: &str,
        bench: impl Fn(&str) -> anyhow::Result<Measure> + Sync,
    ) -> anyhow::Result<Vec<Measure>> {
        let loads = self.loads();
        let ramp = RAMP_SECONDS + RAMP_SECONDS_EACH * loads.len() as f64;
        let lines = loads.iter().zip(self.cores.iter().cycle()).map(|((depth, class), core)| {
            format!(
                "--rw randread --bs 4k --lanes 1 --cores {core} --depth {depth} {class} --ramp {ramp} {options}"
            )
        });
        let lines: Vec<String> = lines.collect();
        at_once(&lines, |line| bench(line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_process_has_a_load_and_a_core() {
        let TableSide::Hosts(hosts) = cases()[0].sides[0].clone() else { panic!("no hosts") };
        let load = HostLoad::Alike { count: 3, depth: 8 };
        let hosts = HostProcesses { cores: &[0, 1], load, ..hosts };
        let lines = std::sync::Mutex::new(Vec::new());
        let measures = hosts.at_once("--policy auto", |line| {
            lines.lock().expect("no panic").push(line.to_owned());
            Ok(Measure { iops: 1.0, ..Measure::default() })
        });
        assert_eq!(Measure::together(&measures.expect("no failure")).iops, 3.0);
        let lines = lines.into_inner().expect("no panic");
        assert_eq!(lines.iter().filter(|line| line.contains("--cores 0 --depth 8")).count(), 2);
        assert_eq!(lines.iter().filter(|line| line.contains("--cores 1 --depth 8")).count(), 1);
    }
}
