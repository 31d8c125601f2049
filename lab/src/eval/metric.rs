//! What is charted, compared and tabulated: a figure of a measurement with its name and unit.

use crate::measure::Measure;

/// A figure of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Metric {
    /// The main load's requests.
    Iops,
    /// The main load's data.
    Bandwidth,
    /// With the load beside it.
    BandwidthTotal,
    LatencyMean,
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
    /// The load beside the main one.
    BesideIops,
    BesideBandwidth,
    BesideP99,
    /// The bulk load's requests, whether it is the one beside or the only one.
    BulkIops,
    /// All data over what the links can carry.
    LinkUse,
    /// Of the machine's cores, the one with least to spare, with whatever it was busy.
    BusiestCore,
    /// Until the IOPS are at 95 % of their new level.
    Settle,
}

impl Metric {
    /// What every row of a table shows.
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

    /// What a row shows besides when there is a second load.
    pub(crate) const BESIDE: [Self; 3] = [Self::BesideIops, Self::BesideBandwidth, Self::BesideP99];

    /// The figure in the unit of its title.
    pub(crate) fn of(self, m: &Measure) -> Option<f64> {
        let beside = m.beside.as_ref();
        match self {
            Self::Iops => Some(m.iops / 1e3),
            Self::Bandwidth => Some(m.bytes_per_second / 1e9),
            Self::BandwidthTotal => Some(m.bytes_per_second_total() / 1e9),
            Self::LatencyMean => Some(m.latency_us_mean),
            Self::LatencyP99 => Some(m.latency_us_p99),
            Self::Cpu => m.cpu_us_per_io().map(|us| us * 1e3),
            Self::RequestsPerCaravan => m.requests_per_caravan,
            Self::TargetRequestsPerCaravan => m.target_requests_per_caravan,
            Self::BytesPerSend => m.bytes_per_send,
            Self::TargetBytesPerSend => m.target_bytes_per_send,
            Self::Syscalls => m.syscalls_per_io,
            Self::Switches => m.context_switches_per_io,
            Self::HostWakeUps => m.host_wake_ups_per_io,
            Self::BesideIops => beside.map(|b| b.iops / 1e3),
            Self::BesideBandwidth => beside.map(|b| b.bytes_per_second / 1e9),
            Self::BesideP99 => beside.map(|b| b.latency_us_p99),
            Self::Settle => m.settle_ms,
            Self::LinkUse => m.link_use.map(|share| share * 100.0),
            Self::BusiestCore => {
                m.cores_busy.iter().copied().reduce(f64::max).map(|share| share * 100.0)
            }
            Self::BulkIops => Some(beside.map_or(m.iops, |b| b.iops) / 1e3),
        }
    }

    /// Name and unit.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Iops => "kIOPS",
            Self::Bandwidth => "GB/s",
            Self::BandwidthTotal => "total GB/s",
            Self::LatencyMean => "mean us",
            Self::LatencyP99 => "p99 us",
            Self::Cpu => "CPU-ns per I/O",
            Self::RequestsPerCaravan => "requests per caravan",
            Self::TargetRequestsPerCaravan => "answers per caravan",
            Self::BytesPerSend => "host bytes per send",
            Self::TargetBytesPerSend => "target bytes per send",
            Self::Syscalls => "syscalls per I/O",
            Self::Switches => "context switches per I/O",
            Self::HostWakeUps => "host wake-ups per I/O",
            Self::BesideIops => "beside: kIOPS",
            Self::BesideBandwidth => "beside: GB/s",
            Self::BesideP99 => "beside: p99 us",
            Self::BulkIops => "bulk kIOPS",
            Self::Settle => "settles in ms",
            Self::LinkUse => "link use %",
            Self::BusiestCore => "busiest core %",
        }
    }

    /// A value with the digits that mean something.
    pub(crate) fn show(self, value: f64) -> String {
        match self {
            Self::Iops | Self::BesideIops | Self::BulkIops if value >= 100.0 => {
                format!("{value:.0}")
            }
            Self::Bandwidth | Self::BandwidthTotal | Self::BesideBandwidth => format!("{value:.2}"),
            Self::Cpu | Self::BusiestCore | Self::BytesPerSend | Self::TargetBytesPerSend => {
                format!("{value:.0}")
            }
            Self::Syscalls => format!("{value:.3}"),
            Self::Switches | Self::HostWakeUps => format!("{value:.4}"),
            _ => format!("{value:.1}"),
        }
    }
}
