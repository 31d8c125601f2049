//! The applications: how each is started, and what it says.

pub(super) mod fio;
pub(super) mod postgres;
pub(super) mod rocksdb;
pub(super) mod scan;

use super::cpu::{CpuSampler, Parties};
use super::result::{Loads, Measure};
use crate::{command, interrupt};
use std::process::Command;
use std::time::Duration;

/// How often the machine's clocks are read.
const PERIOD: Duration = Duration::from_millis(80);
/// A run that takes so much longer than it should is ended.
const GRACE: Duration = Duration::from_secs(30);

/// What an application says of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Said {
    pub(super) operations_per_second: f64,
    pub(super) bytes_per_second: Option<f64>,
    pub(super) latency_us_p50: f64,
    pub(super) latency_us_p99: f64,
}

/// For how long an application measures, and who takes part.
#[derive(Clone, Debug)]
pub(super) struct Turn {
    pub(super) seconds: u32,
    pub(super) parties: Parties,
}

impl Turn {
    /// Runs an application; gives what it printed and what was used meanwhile.
    fn metered(&self, command: &mut Command) -> anyhow::Result<(String, Loads)> {
        let mut sampler = CpuSampler::new(&self.parties);
        let limit = Duration::from_secs(self.seconds.into()) + GRACE;
        let look = |process| {
            interrupt::check()?;
            sampler.sample(process)
        };
        let printed = command::watched(command, limit, PERIOD, look)?;
        Ok((printed, sampler.loads(f64::from(self.seconds))?))
    }
}

impl Said {
    fn with(self, loads: Loads) -> Measure {
        Measure {
            operations_per_second: self.operations_per_second,
            bytes_per_second: self.bytes_per_second,
            latency_us_p50: self.latency_us_p50,
            latency_us_p99: self.latency_us_p99,
            loads,
        }
    }
}
