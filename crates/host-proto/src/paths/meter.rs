//! Latency of a path, measured by its completions.

use super::{KINDS, kind};
use crate::express::RequestTraffic;
use core::time::Duration;
use roadtrain_proto::time::Instant;

/// Weight of a new measurement (1/n) in the service time, and in the floor if it is above that.
const SERVICE_PART: u64 = 8;
const FLOOR_PART: u64 = 64;
/// Service time in nanoseconds of a path without a completion: any other path is preferred.
const UNKNOWN: u64 = 1_000_000_000;
/// Time without traffic of a class after which the path gets one request of it as a probe.
const PROBE: Duration = Duration::from_secs(2);

/// Measurements of one traffic class.
#[derive(Clone, Copy, Debug, Default)]
struct TrafficMeter {
    in_flight: u32,
    /// Smoothed latency divided by requests in flight, in nanoseconds; 0: not measured.
    service: u64,
    /// Approximate minimum latency, in nanoseconds.
    floor: u64,
    measured_at: Option<Instant>,
}

/// Latency meter of a lane's path. Times are in nanoseconds.
#[derive(Debug, Default)]
pub struct PathMeter {
    kinds: [TrafficMeter; KINDS],
    in_flight: u32,
    /// Time of the last completion, or of the first submission to an idle path.
    last_reply_at: Instant,
}

impl PathMeter {
    /// Counts a submitted command. Returns the number of commands in flight, including it.
    #[inline]
    pub fn begin(&mut self, now: Instant, traffic: RequestTraffic) -> u16 {
        if self.in_flight == 0 {
            self.last_reply_at = now;
        }
        self.in_flight += 1;
        self.kinds[kind(traffic)].in_flight += 1;
        self.in_flight as u16
    }

    /// Measures a completed command that was submitted at `since` as the `depth`-th in flight.
    #[inline]
    pub fn end(&mut self, now: Instant, traffic: RequestTraffic, since: Instant, depth: u16) {
        let latency = now.0.saturating_sub(since.0).max(1);
        let service = (latency / u64::from(depth.max(1))).max(1);
        let kind = &mut self.kinds[kind(traffic)];
        if kind.measured_at.is_none_or(|at| at + PROBE <= since) {
            (kind.service, kind.floor) = (service, latency);
        } else {
            kind.service = (kind.service * (SERVICE_PART - 1) + service) / SERVICE_PART;
            kind.floor = match latency.checked_sub(kind.floor) {
                Some(above) => kind.floor + above / FLOOR_PART,
                None => latency,
            };
        }
        kind.measured_at = Some(now);
        kind.in_flight = kind.in_flight.saturating_sub(1);
        self.in_flight = self.in_flight.saturating_sub(1);
        self.last_reply_at = now;
    }

    /// Resets all measurements, as the connection is lost.
    pub fn lost(&mut self) {
        *self = PathMeter::default();
    }

    /// Returns the commands in flight.
    #[inline]
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Returns the expected latency of one more request of this class: behind those in flight, and at least the floor.
    /// While commands are in flight, it is at least the time since the last completion.
    #[inline]
    #[must_use]
    pub fn expected(&self, now: Instant, traffic: RequestTraffic) -> u64 {
        let of = &self.kinds[kind(traffic)];
        let known = || self.kinds.iter().map(|kind| kind.service).max().unwrap_or(0);
        let or_known = |service| match service {
            0 => match known() {
                0 => UNKNOWN,
                known => known,
            },
            service => service,
        };
        let behind = |kind: &TrafficMeter| match kind.in_flight {
            0 => 0,
            count => u64::from(count).saturating_mul(or_known(kind.service)),
        };
        let queue = self.kinds.iter().map(behind).fold(0, u64::saturating_add);
        let silence =
            if self.in_flight > 0 { now.0.saturating_sub(self.last_reply_at.0) } else { 0 };
        queue.saturating_add(or_known(of.service)).max(of.floor).max(silence)
    }

    /// True if the latency of this class is unknown and a request should probe it.
    #[inline]
    #[must_use]
    pub fn wants_probe(&self, now: Instant, traffic: RequestTraffic) -> bool {
        let of = &self.kinds[kind(traffic)];
        self.in_flight == 0 && of.measured_at.is_none_or(|at| at + PROBE <= now)
    }
}
