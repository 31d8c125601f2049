//! CPU time while something runs: of the whole machine, and of those who are known to take part.
//!
//! What a request costs is spread over the application, the kernel's threads, a file system daemon and
//! a server, so first of all it is not asked who used the time: all that was not idle counts (time that
//! the hypervisor gave to others does not). Nothing else may run meanwhile.

use super::result::{Load, Loads};
use crate::process::{Processes, Used};
use anyhow::Context;
use std::fs;
use std::time::Instant;

/// Of the measured seconds this share is looked at,
const WINDOW: f64 = 0.8;
/// up to so many seconds before the last sample: a program that measures for some seconds starts at its
/// leisure and ends at once, so the end is the sure place.
const MARGIN_SECONDS: f64 = 0.1;

/// The processes of a side, without those that it starts for a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Parties {
    /// Beside what is run.
    pub(super) application: Vec<u32>,
    pub(super) client: Vec<u32>,
    pub(super) server: Vec<u32>,
}

/// The clocks at one time.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sample {
    seconds: f64,
    cores: f64,
    /// Idle and stolen time of all cores.
    idle_seconds: f64,
    /// Of the whole machine.
    switches: f64,
    application: Used,
    client: Used,
    server: Used,
}

/// Samples of a run.
pub(super) struct CpuSampler {
    began: Instant,
    samples: Vec<Sample>,
    application: Processes,
    client: Processes,
    server: Processes,
}

/// What /proc/stat says.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Machine {
    cores: f64,
    idle_ticks: f64,
    switches: f64,
}

impl CpuSampler {
    pub(super) fn new(parties: &Parties) -> Self {
        Self {
            began: Instant::now(),
            samples: Vec::new(),
            application: Processes::of(&parties.application),
            client: Processes::of(&parties.client),
            server: Processes::of(&parties.server),
        }
    }

    /// Takes a sample while a process runs.
    pub(super) fn sample(&mut self, process: u32) -> anyhow::Result<()> {
        self.application.add(process);
        let stat = fs::read_to_string("/proc/stat")?;
        let seconds = self.began.elapsed().as_secs_f64();
        let machine = parse(&stat).context("/proc/stat lacks something")?;
        self.samples.push(Sample {
            seconds,
            cores: machine.cores,
            idle_seconds: machine.idle_ticks / crate::procfs::ticks_per_second(),
            switches: machine.switches,
            application: self.application.used(),
            client: self.client.used(),
            server: self.server.used(),
        });
        Ok(())
    }

    /// The loads near the end of a run that measured for so long.
    pub(super) fn loads(&self, measured_seconds: f64) -> anyhow::Result<Loads> {
        loads(&self.samples, measured_seconds).context("it ended too early to see its CPU time")
    }
}

fn loads(samples: &[Sample], measured_seconds: f64) -> Option<Loads> {
    let last = samples.last()?.seconds - MARGIN_SECONDS;
    let at = |seconds: f64| samples.iter().rfind(|sample| sample.seconds <= seconds);
    let (from, to) = (at(last - WINDOW * measured_seconds)?, at(last)?);
    let seconds = to.seconds - from.seconds;
    if seconds <= 0.0 {
        return None;
    }
    let load = |of: fn(&Sample) -> Used| Load {
        cores: (of(to).cpu_seconds - of(from).cpu_seconds) / seconds,
        switches_per_second: (of(to).switches - of(from).switches) / seconds,
    };
    let idle = to.idle_seconds - from.idle_seconds;
    Some(Loads {
        machine: Load {
            cores: (to.cores - idle / seconds).max(0.0),
            switches_per_second: (to.switches - from.switches) / seconds,
        },
        application: load(|sample| sample.application),
        client: load(|sample| sample.client),
        server: load(|sample| sample.server),
    })
}

fn parse(stat: &str) -> Option<Machine> {
    let mut lines = stat.lines();
    let all = lines.next()?.strip_prefix("cpu ")?;
    let ticks: Vec<f64> = all.split_whitespace().filter_map(|n| n.parse().ok()).collect();
    let cores = lines.clone().take_while(|line| line.starts_with("cpu")).count();
    let switches = lines.find_map(|line| line.strip_prefix("ctxt "))?.trim().parse().ok()?;
    // user nice system idle iowait irq softirq steal: the idle ones are counted exactly, the others by
    // looking at each tick.
    let idle_ticks = ticks.get(3)? + ticks.get(4)? + ticks.get(7)?;
    Some(Machine { cores: cores as f64, idle_ticks, switches })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_waiting_and_stolen_time_is_not_used() {
        let stat =
            "cpu  50 1 30 1000 200 3 4 7 0 0\ncpu0 1 2 3 4\ncpu1 1 2 3 4\nintr 5 6\nctxt 90\n";
        let machine = Machine { cores: 2.0, idle_ticks: 1207.0, switches: 90.0 };
        assert_eq!(parse(stat), Some(machine));
        assert_eq!(parse("cpu  50 1\n"), None);
        assert_eq!(parse("btime 3\n"), None);
    }

    /// Two cores: idle for a second, then one and a half busy for another, half of that by a server
    /// with 100 switches a second.
    fn sample(n: u32) -> Sample {
        let seconds = f64::from(n) * 0.05;
        let busy = (seconds - 1.0).max(0.0);
        Sample {
            seconds,
            cores: 2.0,
            idle_seconds: seconds.min(1.0) * 2.0 + busy * 0.5,
            switches: busy * 300.0,
            application: Used { cpu_seconds: 7.0, switches: 7.0 },
            client: Used::default(),
            server: Used { cpu_seconds: busy * 0.75, switches: busy * 100.0 },
        }
    }

    #[test]
    fn the_end_of_a_run_counts() {
        let samples: Vec<Sample> = (0..=40).map(sample).collect();
        let all = loads(&samples, 1.0).expect("long enough");
        let is = |load: Load, cores: f64, switches: f64| {
            (load.cores - cores).abs() < 1e-9 && (load.switches_per_second - switches).abs() < 1e-6
        };
        assert!(is(all.machine, 1.5, 300.0), "{all:?}");
        assert!(is(all.server, 0.75, 100.0), "{all:?}");
        assert!(is(all.application, 0.0, 0.0) && is(all.client, 0.0, 0.0), "{all:?}");
        assert!((all.rest_cores() - 0.75).abs() < 1e-9);
        assert!(loads(&samples, 3.0).is_none(), "it did not run so long");
        assert!(loads(&[], 1.0).is_none());
    }

    #[test]
    fn this_machine_is_seen() {
        let mut sampler = CpuSampler::new(&Parties::default());
        sampler.sample(std::process::id()).expect("Linux");
        let sample = sampler.samples[0];
        assert!(sample.cores >= 1.0 && sample.idle_seconds > 0.0 && sample.switches > 0.0);
        assert!(sample.application.cpu_seconds > 0.0 && sample.server == Used::default());
    }
}
