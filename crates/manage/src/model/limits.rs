//! Rate limits of a device, or of a host at a subsystem.

use roadtrain_target_proto::rate::{BURST_MAX, RateSettings};
use serde::{Deserialize, Serialize};
use std::num::NonZeroU64;
use std::time::Duration;

/// Bytes of a MiB, the unit of bandwidth in SPDK's RPC.
pub(crate) const MIB: u64 = 1 << 20;

/// Rate limits; zero is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RateLimitsSpec {
    /// Reads and writes per second.
    #[serde(skip_serializing_if = "is_zero")]
    pub iops: u64,
    /// Reads per second.
    #[serde(skip_serializing_if = "is_zero")]
    pub read_iops: u64,
    /// Writes per second.
    #[serde(skip_serializing_if = "is_zero")]
    pub write_iops: u64,
    /// Bytes read or written per second.
    #[serde(skip_serializing_if = "is_zero")]
    pub bandwidth: u64,
    /// Bytes read per second.
    #[serde(skip_serializing_if = "is_zero")]
    pub read_bandwidth: u64,
    /// Bytes written per second.
    #[serde(skip_serializing_if = "is_zero")]
    pub write_bandwidth: u64,
    /// Longest burst in microseconds at the limits; `None`: the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst_us: Option<u64>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl RateLimitsSpec {
    /// Returns the rates for the engine.
    #[must_use]
    pub fn rates(&self) -> RateSettings {
        RateSettings {
            iops: NonZeroU64::new(self.iops),
            read_iops: NonZeroU64::new(self.read_iops),
            write_iops: NonZeroU64::new(self.write_iops),
            bandwidth: NonZeroU64::new(self.bandwidth),
            read_bandwidth: NonZeroU64::new(self.read_bandwidth),
            write_bandwidth: NonZeroU64::new(self.write_bandwidth),
            burst: self.burst_us.map(Duration::from_micros),
        }
    }

    /// True if anything is limited.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.rates().is_limited()
    }

    /// Checks that the engine and the state file can hold the limits.
    ///
    /// # Errors
    /// A description of the limit that is too large.
    pub fn check(&self) -> Result<(), String> {
        let all = [self.iops, self.read_iops, self.write_iops];
        let all =
            all.into_iter().chain([self.bandwidth, self.read_bandwidth, self.write_bandwidth]);
        // TOML has no larger numbers.
        if all.into_iter().any(|limit| i64::try_from(limit).is_err()) {
            return Err(format!("a limit is at most {}", i64::MAX));
        }
        match self.burst_us.map(Duration::from_micros) {
            Some(burst) if burst > BURST_MAX => {
                Err(format!("burst_us is at most {}", BURST_MAX.as_micros()))
            }
            _ => Ok(()),
        }
    }

    /// True if SPDK's RPC can express all limits.
    #[must_use]
    pub fn is_of_spdk(&self) -> bool {
        let is_whole = |bandwidth: u64| bandwidth.is_multiple_of(MIB);
        let are_whole =
            [self.bandwidth, self.read_bandwidth, self.write_bandwidth].into_iter().all(is_whole);
        are_whole && (self.read_iops, self.write_iops, self.burst_us) == (0, 0, None)
    }
}

impl From<&RateSettings> for RateLimitsSpec {
    fn from(rates: &RateSettings) -> Self {
        let number = |rate: Option<NonZeroU64>| rate.map_or(0, NonZeroU64::get);
        RateLimitsSpec {
            iops: number(rates.iops),
            read_iops: number(rates.read_iops),
            write_iops: number(rates.write_iops),
            bandwidth: number(rates.bandwidth),
            read_bandwidth: number(rates.read_bandwidth),
            write_bandwidth: number(rates.write_bandwidth),
            burst_us: rates.burst.map(|burst| burst.as_micros() as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_the_engines_rates_and_back() {
        let all = RateLimitsSpec {
            iops: 1,
            read_iops: 2,
            write_iops: 3,
            bandwidth: 4,
            read_bandwidth: 5,
            write_bandwidth: 6,
            burst_us: Some(7),
        };
        assert_eq!(RateLimitsSpec::from(&all.rates()), all);
        assert!(!all.is_of_spdk() && all.check().is_ok());
        assert_eq!(RateLimitsSpec::default().rates(), RateSettings::UNLIMITED);
        assert!(
            RateLimitsSpec { iops: 1, bandwidth: MIB, ..RateLimitsSpec::default() }.is_of_spdk()
        );
        assert!(!RateLimitsSpec { bandwidth: MIB + 1, ..RateLimitsSpec::default() }.is_of_spdk());
    }

    #[test]
    fn what_cannot_be_kept_is_refused() {
        for (odd, why) in [
            (RateLimitsSpec { write_bandwidth: u64::MAX, ..RateLimitsSpec::default() }, "at most"),
            (
                RateLimitsSpec { iops: 1, burst_us: Some(60_000_001), ..RateLimitsSpec::default() },
                "burst_us",
            ),
        ] {
            assert!(odd.check().unwrap_err().contains(why), "{odd:?}");
        }
    }
}
