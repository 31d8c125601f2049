//! A bad link: frames pass between two interfaces, and some are lost, doubled, damaged, late or out of
//! order. Loss and doubles are cheap: an eBPF program does them in the kernel. The rest is done by this
//! process, which then moves every frame.

mod bridge;
mod kernel;
mod line;

use crate::interrupt;
use anyhow::{Context, ensure};
use bridge::Bridge;
use kernel::ForwardingPath;
use line::Counts;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Interval of checks for the end.
const POLL: Duration = Duration::from_millis(20);

/// Passes all frames between two interfaces of this network namespace, badly.
#[derive(Debug, clap::Args)]
pub(crate) struct ImpairArgs {
    /// The interfaces: what arrives at one leaves the other
    one: String,
    other: String,
    #[command(flatten)]
    impairment: Impairment,
    /// End after so long; else with Ctrl-C
    #[arg(long)]
    seconds: Option<f64>,
}

/// Treatment of frames, both ways; shares are percentages.
#[derive(Clone, Copy, Debug, PartialEq, clap::Args)]
pub(crate) struct Impairment {
    /// Lost, at random
    #[arg(long, default_value_t = 0.0, value_parser = percentage)]
    pub(crate) loss: f64,
    /// Sent twice
    #[arg(long, default_value_t = 0.0, value_parser = percentage)]
    pub(crate) duplicate: f64,
    /// One bit is turned over
    #[arg(long, default_value_t = 0.0, value_parser = percentage)]
    pub(crate) corrupt: f64,
    /// Cut off somewhere
    #[arg(long, default_value_t = 0.0, value_parser = percentage)]
    pub(crate) truncate: f64,
    /// Held back for --held-us, so that others overtake them
    #[arg(long, default_value_t = 0.0, value_parser = percentage)]
    pub(crate) reorder: f64,
    #[arg(long, default_value_t = 500)]
    pub(crate) held_us: u64,
    /// How long every frame from the first interface is under way
    #[arg(long, default_value_t = 0)]
    pub(crate) delay_us: u64,
    /// And from the second [default: as --delay-us]
    #[arg(long)]
    pub(crate) back_delay_us: Option<u64>,
}

impl Impairment {
    /// A good link.
    pub(crate) const NONE: Self = Self {
        loss: 0.0,
        duplicate: 0.0,
        corrupt: 0.0,
        truncate: 0.0,
        reorder: 0.0,
        held_us: 0,
        delay_us: 0,
        back_delay_us: None,
    };

    /// Loses so many percent.
    pub(crate) const fn of_loss(loss: f64) -> Self {
        Self { loss, ..Self::NONE }
    }

    /// True if the kernel's program can do it.
    fn is_for_kernel(&self) -> bool {
        let delayed = self.delay_us > 0 || self.back_delay_us.is_some_and(|us| us > 0);
        self.corrupt == 0.0 && self.truncate == 0.0 && self.reorder == 0.0 && !delayed
    }

    /// The same for what goes the other way.
    fn back(self) -> Self {
        Self { delay_us: self.back_delay_us.unwrap_or(self.delay_us), ..self }
    }
}

/// Impairs until a signal or the time ends it.
pub(crate) fn main(args: &ImpairArgs) -> anyhow::Result<()> {
    interrupt::watch();
    let until = args.seconds.map(|s| Instant::now() + Duration::from_secs_f64(s));
    let ended =
        || interrupt::check().is_err() || until.is_some_and(|until| Instant::now() >= until);
    let ImpairArgs { one, other, impairment, .. } = args;
    let passage = Passage::new(one, other, *impairment)?;
    println!("ready");
    let counts = passage.run(ended)?;
    if let Some(counts) = counts {
        println!("from {one}: {:?}\nfrom {other}: {:?}", counts[0], counts[1]);
    }
    Ok(())
}

/// A way through between two interfaces.
#[derive(Debug)]
enum Passage {
    Kernel([ForwardingPath; 2]),
    Process(Bridge),
}

impl Passage {
    /// Opens it, in the calling thread's network namespace.
    fn new(one: &str, other: &str, impairment: Impairment) -> anyhow::Result<Self> {
        if !impairment.is_for_kernel() {
            return Ok(Self::Process(Bridge::new(one, other, impairment)?));
        }
        Ok(Self::Kernel([
            ForwardingPath::new(one, other, impairment)?,
            ForwardingPath::new(other, one, impairment)?,
        ]))
    }

    /// Passes frames until `ended`; gives what has become of them if it knows.
    fn run(&self, ended: impl Fn() -> bool) -> anyhow::Result<Option<[Counts; 2]>> {
        match self {
            Self::Process(bridge) => bridge.run(ended).map(Some),
            Self::Kernel(_) => {
                while !ended() {
                    thread::sleep(POLL);
                }
                Ok(None)
            }
        }
    }
}

/// A passage that works on another thread, until it is dropped.
#[derive(Debug)]
pub(crate) struct ImpairedPassage {
    paths: Option<[ForwardingPath; 2]>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl ImpairedPassage {
    /// Opens it, in the calling thread's network namespace.
    pub(crate) fn new(one: &str, other: &str, impairment: Impairment) -> anyhow::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (paths, thread) = match Passage::new(one, other, impairment)? {
            Passage::Kernel(paths) => (Some(paths), None),
            Passage::Process(bridge) => {
                let stop = stop.clone();
                let serve = move || match bridge.run(|| stop.load(Ordering::Relaxed)) {
                    Ok(counts) => eprintln!("  impaired: {counts:?}"),
                    Err(e) => eprintln!("  the impaired link: {e:#}"),
                };
                (None, Some(thread::spawn(serve)))
            }
        };
        Ok(Self { paths, stop, thread })
    }

    /// From now on frames are treated so, if the kernel does it.
    pub(crate) fn set(&self, impairment: Impairment) -> anyhow::Result<()> {
        ensure!(impairment.is_for_kernel(), "only loss and doubles change");
        let paths = self.paths.as_ref().context("this link is served by a process")?;
        paths.iter().try_for_each(|path| path.set(impairment))
    }
}

impl Drop for ImpairedPassage {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn percentage(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.0..=100.0).contains(&share) => Ok(share),
        _ => Err("0 to 100".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_percentages() {
        assert_eq!(percentage("0.5"), Ok(0.5));
        assert_eq!(percentage("100"), Ok(100.0));
        assert!(percentage("101").is_err() && percentage("-1").is_err());
        assert!(percentage("NaN").is_err() && percentage("x").is_err());
    }

    #[test]
    fn the_kernel_only_loses_and_doubles() {
        let cheap = Impairment { loss: 1.0, duplicate: 1.0, ..Impairment::NONE };
        assert!(cheap.is_for_kernel());
        assert!(!Impairment { corrupt: 1.0, ..cheap }.is_for_kernel());
        assert!(!Impairment { reorder: 1.0, ..cheap }.is_for_kernel());
        let late = Impairment { back_delay_us: Some(5), ..cheap };
        assert!(!late.is_for_kernel());
        assert_eq!((late.delay_us, late.back().delay_us, late.back().back().delay_us), (0, 5, 5));
    }
}
