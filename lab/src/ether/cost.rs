//! The cost of a request of 4 KiB in software, step by step: one thread plays host and target in turns over a
//! veth pair, with the queue pairs and ports of the product, so there is neither a wire nor a wake-up. Each step
//! is timed; the clock's own time is taken off.

use super::direction;
use crate::checks::CheckBench;
use crate::judge::Judged;
use crate::links::{NamespaceLinks, SegmentWiring};
use crate::measure::median;
use anyhow::{Context, ensure};
use ends::{CostHost, CostTarget};
use roadtrain_reactor::tuning;

mod ends;

/// Requests before those that count.
const WARM_UP: usize = 2_000;
const REQUESTS: usize = 20_000;
/// The authors' own overhead of a write, with neither hand-overs nor work queues.
const PUBLISHED_US: f64 = 14.0;

/// Steps of a request, in order; `HostTakes` and `TargetTakes` take what the kernel has ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CostStep {
    HostSubmits,
    HostPacks,
    HostSends,
    TargetTakes,
    TargetHandles,
    TargetAnswers,
    TargetPacks,
    TargetSends,
    HostTakes,
    HostHandles,
}

impl CostStep {
    const ALL: [(Self, &str); 10] = [
        (Self::HostSubmits, "host: queue pair takes the request"),
        (Self::HostPacks, "host: builds the frame"),
        (Self::HostSends, "host: system call that sends (kernel, to the peer's ring)"),
        (Self::TargetTakes, "target: takes the frame from the ring, checks it"),
        (Self::TargetHandles, "target: queue pair, data to its place"),
        (Self::TargetAnswers, "target: store (memory), completion"),
        (Self::TargetPacks, "target: builds the frame"),
        (Self::TargetSends, "target: system call that sends (kernel, to the peer's ring)"),
        (Self::HostTakes, "host: takes the frame from the ring, checks it"),
        (Self::HostHandles, "host: queue pair, data to the caller's buffer"),
    ];
}

/// The time of each step of each request, in microseconds.
#[derive(Default)]
struct StepTimes {
    samples: [Vec<f64>; 10],
    last: u64,
    clock_us: f64,
}

impl StepTimes {
    fn new() -> Self {
        const CHECKS: u32 = 100_000;
        let began = now();
        (0..CHECKS).for_each(|_| _ = std::hint::black_box(now()));
        let clock_us = (now() - began) as f64 / 1e3 / f64::from(CHECKS);
        Self { clock_us, ..Self::default() }
    }

    /// A request begins.
    fn begin(&mut self) {
        self.last = now();
    }

    /// A step ends, and the next one begins.
    fn end(&mut self, step: CostStep) {
        let at = now();
        let us = (at - self.last) as f64 / 1e3 - self.clock_us;
        self.samples[step as usize].push(us.max(0.0));
        self.last = now();
    }

    fn median(&self, step: CostStep) -> f64 {
        let samples = &self.samples[step as usize];
        median(samples[WARM_UP.min(samples.len())..].iter().copied()).unwrap_or(0.0)
    }
}

/// Nanoseconds of the clock that the product's timers use.
fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is ours.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Own overhead of one 4 KiB request, both ends together, by component.
pub(super) fn components(_bench: &CheckBench) -> anyhow::Result<Vec<Judged>> {
    let links = NamespaceLinks::new(1, &SegmentWiring::plain(9000))?;
    let interface = links.interfaces();
    let mut rows = Vec::new();
    for share in [100, 0] {
        let target = links.target.run(|| CostTarget::new(&interface))?;
        let mut host = links.host.run(|| CostHost::new(&interface))?;
        let steps = std::thread::scope(|scope| {
            let run = || {
                tuning::pin_to_core(0).context("pin")?;
                single_steps(&mut host, target, share == 100)
            };
            scope.spawn(run).join().expect("it does not panic")
        })?;
        let what = direction(share);
        let each = CostStep::ALL.map(|(step, name)| (step, name, steps.median(step)));
        let sum: f64 = each.iter().map(|(.., us)| us).sum();
        let kernel: f64 = each
            .iter()
            .filter(|(step, ..)| matches!(step, CostStep::HostSends | CostStep::TargetSends))
            .map(|(.., us)| us)
            .sum();
        for (_, name, us) in each {
            rows.push(Judged::new("cost", format!("{what}, {name}"), "us", us));
        }
        let total = format!("4 KiB {what}: both ends together");
        let note = format!("{:.2} of it in the kernel; published {PUBLISHED_US}", kernel);
        rows.push(Judged::new("cost", total, "us", sum).at_most(PUBLISHED_US).note(note));
    }
    Ok(rows)
}

fn single_steps(
    host: &mut CostHost,
    mut target: CostTarget,
    reads: bool,
) -> anyhow::Result<StepTimes> {
    let mut steps = StepTimes::new();
    host.meet(&mut target);
    for number in 0..WARM_UP + REQUESTS {
        steps.begin();
        host.submit(number, reads)?;
        steps.end(CostStep::HostSubmits);
        host.pack();
        steps.end(CostStep::HostPacks);
        host.send()?;
        steps.end(CostStep::HostSends);
        let command = target.receive(&mut steps)?;
        target.answer(command, reads);
        steps.end(CostStep::TargetAnswers);
        target.pack();
        steps.end(CostStep::TargetPacks);
        target.send()?;
        steps.end(CostStep::TargetSends);
        ensure!(host.receive(&mut steps)?, "the request failed");
    }
    Ok(steps)
}
