//! Conditions of a measurement, and its machine.

use serde::{Deserialize, Serialize};
use std::{fmt, fs};

/// Conditions of a measurement: part of the JSON of results.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Conditions {
    pub(crate) machine: LabMachine,
    /// Command line of the measurement.
    pub(crate) command: String,
    pub(crate) rounds: usize,
    /// Measured time of each run.
    pub(crate) seconds: f64,
}

impl Conditions {
    /// This machine and this command.
    pub(crate) fn now(rounds: usize, seconds: f64) -> Self {
        let command = std::env::args().collect::<Vec<_>>().join(" ");
        Self { machine: LabMachine::read(), command, rounds, seconds }
    }
}

/// A machine, as far as it decides the figures.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LabMachine {
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) memory_gib: f64,
    pub(crate) hypervisor: bool,
    pub(crate) kernel: String,
    /// The system's default; data connections set their own.
    pub(crate) congestion_control: String,
    pub(crate) huge_pages: String,
}

impl LabMachine {
    /// This machine.
    pub(crate) fn read() -> Self {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let field = |file: &str, name: &str| {
            let line = file.lines().find(|l| l.starts_with(name)).and_then(|l| l.split_once(':'));
            line.map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
        };
        let cpu = text("/proc/cpuinfo");
        let (family, model) = (field(&cpu, "cpu family"), field(&cpu, "model\t"));
        let kib = field(&text("/proc/meminfo"), "MemTotal");
        let kib: f64 = kib.trim_end_matches("kB").trim().parse().unwrap_or_default();
        let thp = text("/sys/kernel/mm/transparent_hugepage/enabled");
        let chosen = thp.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
        Self {
            processor: format!("{} (family {family}, model {model})", field(&cpu, "model name")),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_gib: (kib / 1048576.0 * 10.0).round() / 10.0,
            hypervisor: field(&cpu, "flags").split(' ').any(|flag| flag == "hypervisor"),
            kernel: text("/proc/sys/kernel/osrelease"),
            congestion_control: text("/proc/sys/net/ipv4/tcp_congestion_control"),
            huge_pages: chosen.map_or("absent", |(name, _)| name).to_owned(),
        }
    }
}

#[cfg(test)]
impl Conditions {
    pub(crate) fn made_up() -> Self {
        let machine = LabMachine {
            processor: "made up".into(),
            cores: 2,
            memory_gib: 1.0,
            hypervisor: true,
            kernel: "6".into(),
            congestion_control: "cubic".into(),
            huge_pages: "always".into(),
        };
        Self { machine, command: "roadtrain-lab".into(), rounds: 3, seconds: 0.2 }
    }
}

impl fmt::Display for LabMachine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, {} cores{}, {} GiB, Linux {}, huge pages {}, system's congestion control {}",
            self.processor,
            self.cores,
            if self.hypervisor { " of a virtual machine" } else { "" },
            self.memory_gib,
            self.kernel,
            self.huge_pages,
            self.congestion_control,
        )
    }
}
