//! CPU time while something runs: of the whole machine, and of the processes that are known to take part.
//!
//! The cost of a request is spread over the application, the kernel's threads, a file system daemon and
//! a server, so first of all the time of the whole machine counts, but for that which was idle (time that
//! the hypervisor gave to others does not). Nothing else may run meanwhile.

use crate::cores::Clocks;
use crate::measure::{Cpu, MachineUsage};
use crate::process::{Processes, Used};
use anyhow::Context;
use std::time::Instant;

/// Share of the measured seconds that counts,
const WINDOW: f64 = 0.8;
/// up to so many seconds before the last sample: a program that measures for some seconds starts at its
/// leisure and ends at once, so the end is the sure place.
const MARGIN_SECONDS: f64 = 0.1;

/// The processes of a side, without those that it starts for a run.
#[derive(Clone, Debug, Default)]
pub(super) struct SideProcesses {
    /// Beside what is run.
    pub(super) application: Vec<u32>,
    pub(super) client: Vec<u32>,
    pub(super) server: Vec<u32>,
}

/// The clocks at one time.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ClockSample {
    seconds: f64,
    cores: f64,
    /// Idle and stolen time of all cores.
    idle_seconds: f64,
    /// Context switches of the whole machine.
    switches: f64,
    application: Used,
    client: Used,
    server: Used,
}

/// Samples of a run.
pub(super) struct CpuSampler {
    began: Instant,
    samples: Vec<ClockSample>,
    application: Processes,
    client: Processes,
    server: Processes,
}

impl CpuSampler {
    pub(super) fn new(parties: &SideProcesses) -> Self {
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
        let clocks = Clocks::now();
        self.samples.push(ClockSample {
            seconds: self.began.elapsed().as_secs_f64(),
            cores: clocks.cores() as f64,
            idle_seconds: clocks.idle_seconds,
            switches: clocks.switches,
            application: self.application.used(),
            client: self.client.used(),
            server: self.server.used(),
        });
        Ok(())
    }

    /// Usage near the end of a run with that measuring time.
    pub(super) fn usage(&self, measured_seconds: f64) -> anyhow::Result<MachineUsage> {
        usage(&self.samples, measured_seconds).context("it ended too early to see its CPU time")
    }
}

fn usage(samples: &[ClockSample], measured_seconds: f64) -> Option<MachineUsage> {
    let last = samples.last()?.seconds - MARGIN_SECONDS;
    let at = |seconds: f64| samples.iter().rfind(|sample| sample.seconds <= seconds);
    let (from, to) = (at(last - WINDOW * measured_seconds)?, at(last)?);
    let seconds = to.seconds - from.seconds;
    if seconds <= 0.0 {
        return None;
    }
    let load = |of: fn(&ClockSample) -> Used| Cpu {
        cores: (of(to).cpu_seconds - of(from).cpu_seconds) / seconds,
        switches_per_second: (of(to).switches - of(from).switches) / seconds,
    };
    let idle = to.idle_seconds - from.idle_seconds;
    Some(MachineUsage {
        machine: Cpu {
            cores: (to.cores - idle / seconds).max(0.0),
            switches_per_second: (to.switches - from.switches) / seconds,
        },
        application: load(|sample| sample.application),
        client: load(|sample| sample.client),
        server: load(|sample| sample.server),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two cores: idle for a second, then one and a half busy for another, half of that by a server
    /// with 100 switches a second.
    fn sample(n: u32) -> ClockSample {
        let seconds = f64::from(n) * 0.05;
        let busy = (seconds - 1.0).max(0.0);
        ClockSample {
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
        let samples: Vec<ClockSample> = (0..=40).map(sample).collect();
        let all = usage(&samples, 1.0).expect("long enough");
        let is = |load: Cpu, cores: f64, switches: f64| {
            (load.cores - cores).abs() < 1e-9 && (load.switches_per_second - switches).abs() < 1e-6
        };
        assert!(is(all.machine, 1.5, 300.0), "{all:?}");
        assert!(is(all.server, 0.75, 100.0), "{all:?}");
        assert!(is(all.application, 0.0, 0.0) && is(all.client, 0.0, 0.0), "{all:?}");
        assert!((all.rest_cores() - 0.75).abs() < 1e-9);
        assert!(usage(&samples, 3.0).is_none(), "it did not run so long");
        assert!(usage(&[], 1.0).is_none());
    }

    #[test]
    fn this_machine_is_seen() {
        let mut sampler = CpuSampler::new(&SideProcesses::default());
        sampler.sample(std::process::id()).expect("Linux");
        let sample = sampler.samples[0];
        assert!(sample.cores >= 1.0 && sample.idle_seconds > 0.0 && sample.switches > 0.0);
        assert!(sample.application.cpu_seconds > 0.0 && sample.server == Used::default());
    }
}
