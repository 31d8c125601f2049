//! The applications: starts each, and reads its report.

pub(super) mod fio;
pub(super) mod postgres;
pub(super) mod rocksdb;
pub(super) mod scan;

use super::cpu::{CpuSampler, SideProcesses};
use crate::measure::MachineUsage;
use crate::{command, interrupt};
use std::process::Command;
use std::time::Duration;

/// How often the machine's clocks are read.
const PERIOD: Duration = Duration::from_millis(80);
/// A run that takes so much longer than it should is ended.
const GRACE: Duration = Duration::from_secs(30);

/// Time that an application measures, and the processes that take part.
#[derive(Clone, Debug)]
pub(super) struct AppMeter {
    pub(super) seconds: u32,
    pub(super) parties: SideProcesses,
}

impl AppMeter {
    /// Runs an application; gives what it printed and what was used meanwhile.
    fn metered(&self, command: &mut Command) -> anyhow::Result<(String, MachineUsage)> {
        let mut sampler = CpuSampler::new(&self.parties);
        let limit = Duration::from_secs(self.seconds.into()) + GRACE;
        let observe = |process| {
            interrupt::check()?;
            sampler.sample(process)
        };
        let printed = command::watched(command, limit, PERIOD, observe)?;
        Ok((printed, sampler.usage(f64::from(self.seconds))?))
    }
}
