//! What was measured on.

use serde::{Deserialize, Serialize};
use std::{fmt, fs};

/// A machine, as far as it decides the figures.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) memory_gib: f64,
    pub(crate) hypervisor: bool,
    pub(crate) kernel: String,
    /// The system's default; data connections set their own.
    pub(crate) congestion_control: String,
    pub(crate) huge_pages: String,
}

impl Machine {
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

impl fmt::Display for Machine {
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
