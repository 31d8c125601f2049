//! Figures of a measurement with name and unit, for charts, comparisons and tables.

use crate::measure::Measure;

/// A figure of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Metric {
    /// The main load's requests.
    Iops,
    /// The main load's data.
    Bandwidth,
    /// Including the second load.
    BandwidthTotal,
    LatencyMean,
    LatencyP50,
    LatencyP99,
    /// Both ends' CPU time.
    Cpu,
    RequestsPerCaravan,
    TargetRequestsPerCaravan,
    BytesPerSend,
    TargetBytesPerSend,
    Syscalls,
    Switches,
    /// The host's voluntary ones: each is a wake-up.
    HostWakeUps,
    /// The second load.
    BesideIops,
    BesideBandwidth,
    BesideP99,
    /// The bulk load's requests, whether it is the second load or the only one.
    BulkIops,
    /// All data over what the links can carry.
    LinkUse,
    /// The core of the machine with least to spare, busy with anything.
    BusiestCore,
    /// Until the IOPS are at 95 % of their new level.
    Settle,
    /// Jain's index over the lanes.
    Fairness,
    /// Operations of an application for each second of a busy core.
    PerCpuSecond,
}

/// The value of a figure.
type MetricValue = fn(&Measure) -> Option<f64>;

impl Metric {
    /// Figures of every row of a table.
    pub(crate) const ALWAYS: [Self; 11] = [
        Self::Iops,
        Self::Bandwidth,
        Self::LatencyMean,
        Self::LatencyP99,
        Self::Cpu,
        Self::RequestsPerCaravan,
        Self::TargetRequestsPerCaravan,
        Self::BytesPerSend,
        Self::TargetBytesPerSend,
        Self::Syscalls,
        Self::Switches,
    ];

    /// Further figures of a row with a second load.
    pub(crate) const BESIDE: [Self; 3] = [Self::BesideIops, Self::BesideBandwidth, Self::BesideP99];

    /// The figure in the unit of its title.
    pub(crate) fn of(self, m: &Measure) -> Option<f64> {
        self.row().2(m)
    }

    /// Name and unit.
    pub(crate) fn title(self) -> &'static str {
        self.row().0
    }

    /// A value with the digits that mean something.
    pub(crate) fn show(self, value: f64) -> String {
        let is_rate = matches!(self, Self::Iops | Self::BesideIops | Self::BulkIops);
        let digits = if is_rate && value >= 100.0 { 0 } else { self.row().1 };
        format!("{value:.digits$}")
    }

    /// Title, digits, and the figure of a measurement.
    fn row(self) -> (&'static str, usize, MetricValue) {
        match self {
            Self::Iops => ("kIOPS", 1, |m| Some(m.iops / 1e3)),
            Self::Bandwidth => ("GB/s", 2, |m| Some(m.bytes_per_second / 1e9)),
            Self::BandwidthTotal => ("total GB/s", 2, |m| Some(m.bytes_per_second_total() / 1e9)),
            Self::LatencyMean => ("mean us", 1, |m| Some(m.latency_us_mean)),
            Self::LatencyP50 => ("p50 us", 1, |m| Some(m.latency_us_p50)),
            Self::LatencyP99 => ("p99 us", 1, |m| Some(m.latency_us_p99)),
            Self::Cpu => ("CPU-ns per I/O", 0, |m| m.cpu_us_per_io().map(|us| us * 1e3)),
            Self::RequestsPerCaravan => ("requests per caravan", 1, |m| m.requests_per_caravan),
            Self::TargetRequestsPerCaravan => {
                ("answers per caravan", 1, |m| m.target_requests_per_caravan)
            }
            Self::BytesPerSend => ("host bytes per send", 0, |m| m.bytes_per_send),
            Self::TargetBytesPerSend => ("target bytes per send", 0, |m| m.target_bytes_per_send),
            Self::Syscalls => ("syscalls per I/O", 3, |m| m.syscalls_per_io),
            Self::Switches => ("context switches per I/O", 4, |m| m.context_switches_per_io),
            Self::HostWakeUps => ("host wake-ups per I/O", 4, |m| m.host_wake_ups_per_io),
            Self::BesideIops => ("beside: kIOPS", 1, |m| m.beside.as_ref().map(|b| b.iops / 1e3)),
            Self::BesideBandwidth => {
                ("beside: GB/s", 2, |m| m.beside.as_ref().map(|b| b.bytes_per_second / 1e9))
            }
            Self::BesideP99 => {
                ("beside: p99 us", 1, |m| m.beside.as_ref().map(|b| b.latency_us_p99))
            }
            Self::BulkIops => {
                ("bulk kIOPS", 1, |m| Some(m.beside.as_ref().map_or(m.iops, |b| b.iops) / 1e3))
            }
            Self::Settle => ("settles in ms", 1, |m| m.settle_ms),
            Self::Fairness => ("fairness", 1, |m| m.fairness),
            Self::PerCpuSecond => ("operations per CPU-second", 1, |m| m.per_cpu_second()),
            Self::LinkUse => ("link use %", 1, |m| m.link_use.map(|share| share * 100.0)),
            Self::BusiestCore => ("busiest core %", 0, |m| {
                m.cores_busy.iter().copied().reduce(f64::max).map(|share| share * 100.0)
            }),
        }
    }
}
