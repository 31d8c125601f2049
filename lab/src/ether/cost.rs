//! The cost of a request of 4 KiB in software, step by step: one thread plays host and target in turns over a
//! veth pair, with the queue pairs and ports of the product, so there is neither a wire nor a wake-up. Each step
//! is timed; the clock's own time is taken off.

use super::direction;
use crate::checks::Bench;
use crate::judge::Judged;
use crate::links::{Links, Wiring};
use crate::measure::median;
use anyhow::{Context, ensure};
use ends::{Host, Target};
use roadtrain_reactor::tuning;

mod ends;

/// Requests before those that count.
const WARM_UP: usize = 2_000;
const REQUESTS: usize = 20_000;
/// The authors' own overhead of a write, with neither hand-overs nor work queues.
const PUBLISHED_US: f64 = 14.0;

/// Steps of a request, in order; `HostTakes` and `TargetTakes` take what the kernel has ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
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

impl Step {
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
struct Steps {
    samples: [Vec<f64>; 10],
    last: u64,
    clock_us: f64,
}

impl Steps {
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
    fn end(&mut self, step: Step) {
        let at = now();
        let us = (at - self.last) as f64 / 1e3 - self.clock_us;
        self.samples[step as usize].push(us.max(0.0));
        self.last = now();
    }

    fn median(&self, step: Step) -> f64 {
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
pub(super) fn components(_bench: &Bench) -> anyhow::Result<Vec<Judged>> {
    let links = Links::new(1, &Wiring::plain(9000))?;
    let interface = links.interfaces();
    let mut rows = Vec::new();
    for share in [100, 0] {
        let target = links.target.run(|| Target::new(&interface))?;
        let mut host = links.host.run(|| Host::new(&interface))?;
        let steps = std::thread::scope(|scope| {
            let run = || {
                tuning::pin_to_core(0).context("pin")?;
                single_steps(&mut host, target, share == 100)
            };
            scope.spawn(run).join().expect("it does not panic")
        })?;
        let what = direction(share);
        let each = Step::ALL.map(|(step, name)| (step, name, steps.median(step)));
        let sum: f64 = each.iter().map(|(.., us)| us).sum();
        let kernel: f64 = each
            .iter()
            .filter(|(step, ..)| matches!(step, Step::HostSends | Step::TargetSends))
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

fn single_steps(host: &mut Host, mut target: Target, reads: bool) -> anyhow::Result<Steps> {
    let mut steps = Steps::new();
    host.meet(&mut target);
    for number in 0..WARM_UP + REQUESTS {
        steps.begin();
        host.submit(number, reads)?;
        steps.end(Step::HostSubmits);
        host.pack();
        steps.end(Step::HostPacks);
        host.send()?;
        steps.end(Step::HostSends);
        let command = target.receive(&mut steps)?;
        target.answer(command, reads);
        steps.end(Step::TargetAnswers);
        target.pack();
        steps.end(Step::TargetPacks);
        target.send()?;
        steps.end(Step::TargetSends);
        ensure!(host.receive(&mut steps)?, "the request failed");
    }
    Ok(steps)
}
