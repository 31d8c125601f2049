//! CPU time of both ends during a run, from outside: what they use between two moments of the time that is
//! measured, for each request of that time.

use crate::cores::Clocks;
use crate::interrupt;
use crate::measure::Measure;
use crate::process::Processes;
use crate::procfs;
use crate::product::LoadTiming;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Interval of checks of the time.
pub(super) const PERIOD: Duration = Duration::from_millis(10);
/// Longest time of starting; until then nothing is counted.
const START_SECONDS: f64 = 0.3;
/// Before the end.
const MARGIN_SECONDS: f64 = 0.1;

/// Counts CPU time.
pub(super) struct Sampler(Mutex<SamplerState>);

struct SamplerState {
    began: Instant,
    /// All of them, the host's later.
    processes: Vec<u32>,
    /// Sampling times, in seconds from the beginning.
    moments: [f64; 2],
    host: Processes,
    target: Processes,
    samples: Vec<UsageSample>,
}

/// Usage until a moment.
#[derive(Clone, Debug)]
struct UsageSample {
    at: Instant,
    host_seconds: f64,
    target_seconds: f64,
    switches: f64,
    clocks: Clocks,
    user_and_kernel: [f64; 2],
}

impl Sampler {
    pub(super) fn new(target: u32, timing: &LoadTiming) -> Self {
        let start = timing.ramp_seconds + START_SECONDS;
        let end = timing.ramp_seconds + timing.seconds - MARGIN_SECONDS;
        Self(Mutex::new(SamplerState {
            began: Instant::now(),
            processes: vec![target],
            moments: [start, end.max(start)],
            host: Processes::of(&[]),
            target: Processes::of(&[target]),
            samples: Vec::new(),
        }))
    }

    /// Counts when it is time to, and learns of the host's processes.
    pub(super) fn sample(&self, host: u32) -> anyhow::Result<()> {
        interrupt::check()?;
        let mut state = self.0.lock().expect("no holder panics");
        state.host.add(host);
        if !state.processes.contains(&host) {
            state.processes.push(host);
        }
        let moment = state.moments.get(state.samples.len()).copied();
        if moment.is_some_and(|moment| state.began.elapsed().as_secs_f64() >= moment) {
            let (host, target) = (state.host.used(), state.target.used());
            let user_and_kernel = user_and_kernel(&state.processes);
            state.samples.push(UsageSample {
                at: Instant::now(),
                host_seconds: host.cpu_seconds,
                target_seconds: target.cpu_seconds,
                switches: host.switches + target.switches,
                clocks: Clocks::now(),
                user_and_kernel,
            });
        }
        Ok(())
    }

    /// Adds CPU time to what a run has measured.
    pub(super) fn complete(self, measure: Measure) -> Measure {
        let samples = self.0.into_inner().expect("no holder panics").samples;
        let [first, last] = &samples[..] else { return measure };
        let seconds = last.at.duration_since(first.at).as_secs_f64().max(1e-6);
        let ios = (measure.iops * seconds).max(1.0);
        let host = last.host_seconds - first.host_seconds;
        let target = last.target_seconds - first.target_seconds;
        let busy = last.clocks.busy_seconds - first.clocks.busy_seconds;
        let [user, kernel] =
            [0, 1].map(|which| last.user_and_kernel[which] - first.user_and_kernel[which]);
        Measure {
            host_cpu_us_per_io: Some(host * 1e6 / ios),
            target_cpu_us_per_io: Some(target * 1e6 / ios),
            context_switches_per_io: Some((last.switches - first.switches) / ios),
            kernel_share: Some(kernel / (user + kernel).max(1e-9)),
            cores_busy: first.clocks.busy_until(&last.clocks),
            foreign_cores: ((busy - host - target) / seconds).max(0.0),
            ..measure
        }
    }
}

/// Sums of several processes.
fn user_and_kernel(processes: &[u32]) -> [f64; 2] {
    let each = processes.iter().filter_map(|&pid| procfs::user_and_kernel_seconds(pid).ok());
    each.fold([0.0; 2], |sum, one| [sum[0] + one[0], sum[1] + one[1]])
}
