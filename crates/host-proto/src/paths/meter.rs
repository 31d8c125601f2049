//! How fast a path is, as its own answers tell.

use super::{KINDS, kind};
use crate::express::Traffic;
use core::time::Duration;
use roadtrain_proto::time::Instant;

/// A part of each new measurement that counts for the service time, and of one that is above the floor for that.
const SERVICE_PART: u64 = 8;
const FLOOR_PART: u64 = 64;
/// Service time of a path that has answered nothing yet, in nanoseconds: any other one is preferred.
const UNKNOWN: u64 = 1_000_000_000;
/// A path that has carried nothing of a kind for so long gets a request of it, to see how fast it is now.
const PROBE: Duration = Duration::from_secs(2);

/// What is known of requests of one kind.
#[derive(Clone, Copy, Debug, Default)]
struct Kind {
    in_flight: u32,
    /// Latency over requests under way, smoothed, in nanoseconds; 0: not measured.
    service: u64,
    /// About the least latency, in nanoseconds.
    floor: u64,
    measured_at: Option<Instant>,
}

/// Measures a path of a lane. Times in nanoseconds.
#[derive(Debug, Default)]
pub struct Meter {
    kinds: [Kind; KINDS],
    in_flight: u32,
    /// When it has answered last, or got something to do.
    heard_at: Instant,
}

impl Meter {
    /// A command leaves: how many are under way with it.
    #[inline]
    pub fn begin(&mut self, now: Instant, traffic: Traffic) -> u16 {
        if self.in_flight == 0 {
            self.heard_at = now;
        }
        self.in_flight += 1;
        self.kinds[kind(traffic)].in_flight += 1;
        self.in_flight as u16
    }

    /// A command that has left at `since`, as the one of that number under way, is answered.
    #[inline]
    pub fn end(&mut self, now: Instant, traffic: Traffic, since: Instant, depth: u16) {
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
        self.heard_at = now;
    }

    /// The connection is gone: what was measured is of the past.
    pub fn lost(&mut self) {
        *self = Meter::default();
    }

    /// Commands under way.
    #[inline]
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// How long one more request of that kind is expected to take: behind what is under way, and not less than such
    /// requests have taken at least. A path that is silent with something to do is as slow as it is silent.
    #[inline]
    #[must_use]
    pub fn expected(&self, now: Instant, traffic: Traffic) -> u64 {
        let of = &self.kinds[kind(traffic)];
        let known = || self.kinds.iter().map(|kind| kind.service).max().unwrap_or(0);
        let or_known = |service| match service {
            0 => match known() {
                0 => UNKNOWN,
                known => known,
            },
            service => service,
        };
        let behind = |kind: &Kind| match kind.in_flight {
            0 => 0,
            count => u64::from(count).saturating_mul(or_known(kind.service)),
        };
        let queue = self.kinds.iter().map(behind).fold(0, u64::saturating_add);
        let silence = if self.in_flight > 0 { now.0.saturating_sub(self.heard_at.0) } else { 0 };
        queue.saturating_add(or_known(of.service)).max(of.floor).max(silence)
    }

    /// Whether nobody knows how long a request of that kind takes now: one is to find out.
    #[inline]
    #[must_use]
    pub fn wants_probe(&self, now: Instant, traffic: Traffic) -> bool {
        let of = &self.kinds[kind(traffic)];
        self.in_flight == 0 && of.measured_at.is_none_or(|at| at + PROBE <= now)
    }
}
