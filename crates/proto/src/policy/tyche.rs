//! Tyche's adaptive batching (its second paper) over TCP: a batch level found by hill-climbing.
//!
//! Completions stay one per command: a batch's group completion is a wire format of the Ethernet transport.

use super::{Backlog, BatchPolicy, Doorbell, DoorbellCause, Freight, PduInfo, PolicyRole};
use crate::caravan::CaravanLimits;
use crate::time::Instant;
use core::time::Duration;

/// Maximum bytes of a batched request.
const BATCHED_BYTES_MAX: u32 = 4096;
/// Maximum bytes of a caravan: a full level of the largest batched requests, many times over.
const CARAVAN_BYTES_MAX: u32 = 4 << 20;

/// Settings of the hill-climb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TycheSettings {
    /// Requests of a batch: the start of the climb, or the fixed level when it is static.
    pub level: u32,
    /// The highest level.
    pub level_max: u32,
    /// Interval between two changes of the level; zero: never, the level is static.
    pub interval: Duration,
    /// Longest wait of a batch's first request.
    pub delay: Duration,
    /// Change of throughput that counts, in percent.
    pub gain_percent: u32,
    /// Unchanged intervals until the neighbouring levels are tried.
    pub probe_intervals: u32,
}

impl TycheSettings {
    /// As published.
    #[must_use]
    pub const fn published() -> Self {
        TycheSettings {
            level: 1,
            level_max: 64,
            interval: Duration::from_secs(1),
            delay: Duration::from_millis(5),
            gain_percent: 3,
            probe_intervals: 10,
        }
    }

    /// Settings with a fixed level: always `level` requests a batch.
    #[must_use]
    #[inline]
    pub const fn fixed(level: u32) -> Self {
        TycheSettings { level, interval: Duration::ZERO, ..Self::published() }
    }
}

/// State of the climb in this interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Climb {
    /// Steady for that many intervals.
    Steady(u32),
    /// Trying `level - 1`; the level and its throughput to return to.
    ProbeDown { level: u32, throughput: u64 },
    /// Trying `level + 1`.
    ProbeUp { level: u32, throughput: u64 },
}

/// Sends at `level` requests or when the first has waited long enough.
#[derive(Clone, Copy, Debug)]
pub struct Tyche {
    settings: TycheSettings,
    role: PolicyRole,
    level: u32,
    climb: Climb,
    deadline: Instant,
    interval_end: Instant,
    bytes: u64,
    throughput_before: u64,
    outstanding_sum: u64,
    outstanding_samples: u64,
}

impl Tyche {
    /// The policy with `settings`.
    #[must_use]
    pub fn new(settings: TycheSettings, role: PolicyRole) -> Self {
        let settings = TycheSettings { level_max: settings.level_max.max(1), ..settings };
        // A target responds to what is complete: its batches follow the host's.
        let level = match role {
            PolicyRole::Host => settings.level.clamp(1, settings.level_max),
            PolicyRole::Target => settings.level_max,
        };
        Tyche {
            settings,
            role,
            level,
            climb: Climb::Steady(0),
            deadline: Instant::default(),
            interval_end: Instant::default(),
            bytes: 0,
            throughput_before: 0,
            outstanding_sum: 0,
            outstanding_samples: 0,
        }
    }

    /// Current number of requests in a batch.
    #[must_use]
    #[inline]
    pub fn level(&self) -> u32 {
        self.level
    }

    fn tick(&mut self, now: Instant) {
        let is_static = self.settings.interval.is_zero() || self.role == PolicyRole::Target;
        if is_static || now < self.interval_end {
            return;
        }
        if self.interval_end != Instant::default() {
            self.adapt();
        }
        self.interval_end = now + self.settings.interval;
        (self.bytes, self.outstanding_sum, self.outstanding_samples) = (0, 0, 0);
    }

    /// Ends an interval: adapts the level.
    fn adapt(&mut self) {
        let throughput = self.bytes;
        let backlog = (self.outstanding_sum / self.outstanding_samples.max(1)) as u32;
        match self.climb {
            Climb::Steady(unchanged) => self.step(throughput, backlog, unchanged),
            Climb::ProbeDown { level, throughput: before } => {
                if self.gain(before, throughput) > 0 {
                    self.climb = Climb::Steady(0);
                } else {
                    self.level = (level + 1).min(self.settings.level_max);
                    self.climb = Climb::ProbeUp { level, throughput: before };
                    return; // compared with the level before both probes
                }
            }
            Climb::ProbeUp { level, throughput: before } => {
                if self.gain(before, throughput) <= 0 {
                    self.level = level;
                    self.throughput_before = before;
                    self.climb = Climb::Steady(0);
                    return;
                }
                self.climb = Climb::Steady(0);
            }
        }
        self.throughput_before = throughput;
    }

    fn step(&mut self, throughput: u64, backlog: u32, unchanged: u32) {
        let (level, most) = (self.level, self.settings.level_max);
        let next = match self.gain(self.throughput_before, throughput) {
            1.. => level.midpoint(backlog.min(most)),
            0 => level,
            ..0 => 1u32.midpoint(backlog.min(level)),
        };
        self.level = next.clamp(1, most);
        self.climb = if self.level != level {
            Climb::Steady(0)
        } else if unchanged + 1 < self.settings.probe_intervals {
            Climb::Steady(unchanged + 1)
        } else {
            self.level = (level - 1).max(1);
            Climb::ProbeDown { level, throughput }
        };
    }

    /// Returns 1 if throughput has risen by the threshold, -1 if it has fallen by it, 0 otherwise.
    fn gain(&self, before: u64, after: u64) -> i32 {
        let (before, after) = (u128::from(before) * 100, u128::from(after) * 100);
        let threshold = before / 100 * u128::from(self.settings.gain_percent);
        if after > before + threshold {
            1
        } else if after + threshold < before {
            -1
        } else {
            0
        }
    }
}

impl BatchPolicy for Tyche {
    fn on_enqueue(&mut self, now: Instant, backlog: &Backlog, pdu: &PduInfo) -> Doorbell {
        self.tick(now);
        self.outstanding_sum += u64::from(backlog.in_flight);
        self.outstanding_samples += 1;
        if pdu.is_urgent() {
            return Doorbell::Ring(DoorbellCause::Urgent);
        }
        if backlog.requests >= self.level || pdu.request_bytes > BATCHED_BYTES_MAX {
            return Doorbell::Ring(DoorbellCause::Size);
        }
        if backlog.requests == 1 {
            self.deadline = now + self.settings.delay;
        }
        Doorbell::ArmUntil(self.deadline)
    }

    #[inline]
    fn on_drained(&mut self, _: Freight, is_due: bool) -> Doorbell {
        match self.role {
            _ if is_due => Doorbell::Ring(DoorbellCause::Timer),
            PolicyRole::Host => Doorbell::ArmUntil(self.deadline),
            PolicyRole::Target => Doorbell::Ring(DoorbellCause::Drained),
        }
    }

    #[inline]
    fn on_complete(&mut self, now: Instant, data_bytes: u32) {
        self.bytes += u64::from(data_bytes);
        self.tick(now);
    }

    #[inline]
    fn limits(&self, _: Freight, _: bool) -> CaravanLimits {
        CaravanLimits { count_max: self.level, bytes_max: CARAVAN_BYTES_MAX }
    }
}
