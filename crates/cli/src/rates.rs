//! Rate limits of a namespace or a host.

use crate::config::SettingForm;
use crate::units::{parse_count, parse_seconds, parse_size, seconds_field, size_field};
use clap::Args;
use roadtrain_manage::model::RateLimitsSpec;
use roadtrain_target_proto::rate::{BURST_MAX, RateSettings};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

/// Rate limits as options of the command line, and a table of the configuration. Missing ones are unlimited.
#[derive(Args, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RateArgs {
    /// Reads and writes in a second.
    #[arg(long, value_name = "N", value_parser = parse_count)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iops: Option<u64>,
    /// Reads in a second.
    #[arg(long, value_name = "N", value_parser = parse_count)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_iops: Option<u64>,
    /// Writes in a second.
    #[arg(long, value_name = "N", value_parser = parse_count)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_iops: Option<u64>,
    /// Bytes that are read or written in a second, such as 100MiB.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    #[serde(with = "size_field", skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<u64>,
    /// Bytes that are read in a second.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    #[serde(with = "size_field", skip_serializing_if = "Option::is_none")]
    pub read_bandwidth: Option<u64>,
    /// Bytes that are written in a second.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    #[serde(with = "size_field", skip_serializing_if = "Option::is_none")]
    pub write_bandwidth: Option<u64>,
    /// So much of the limits may be caught up on at once after a quiet time [default: 5ms].
    #[arg(long, value_name = "TIME", value_parser = parse_seconds)]
    #[serde(with = "seconds_field", skip_serializing_if = "Option::is_none")]
    pub burst: Option<Duration>,
}

impl RateArgs {
    /// Converts the limits for the engine.
    ///
    /// # Errors
    /// The error, with a valid alternative.
    pub(crate) fn rates(&self) -> Result<RateSettings, String> {
        self.rates_as(SettingForm::Option)
    }

    /// Converts limits that are written in `form`.
    ///
    /// # Errors
    /// The error, with a valid alternative.
    pub(crate) fn rates_as(&self, form: SettingForm) -> Result<RateSettings, String> {
        let rate = |key: &str, value: Option<u64>| match value.map(NonZeroU64::new) {
            Some(None) => {
                let zero = form.value(key, 0);
                Err(format!("{zero} lets nothing through: leave it out for no limit"))
            }
            other => Ok(other.flatten()),
        };
        if self.burst.is_some_and(|burst| burst > BURST_MAX) {
            return Err(format!("{}: {} s at most", form.name("burst"), BURST_MAX.as_secs()));
        }
        Ok(RateSettings {
            iops: rate("iops", self.iops)?,
            read_iops: rate("read_iops", self.read_iops)?,
            write_iops: rate("write_iops", self.write_iops)?,
            bandwidth: rate("bandwidth", self.bandwidth)?,
            read_bandwidth: rate("read_bandwidth", self.read_bandwidth)?,
            write_bandwidth: rate("write_bandwidth", self.write_bandwidth)?,
            burst: self.burst,
        })
    }

    /// Converts the limits for the state.
    ///
    /// # Errors
    /// The error, with a valid alternative.
    pub(crate) fn limits(&self) -> Result<RateLimitsSpec, String> {
        Ok(RateLimitsSpec::from(&self.rates()?))
    }

    /// True if no limit is set.
    pub(crate) fn is_empty(&self) -> bool {
        *self == RateArgs::default()
    }

    /// Sets the option of that name; `None` if there is no such option.
    pub(crate) fn set(&mut self, key: &str, value: &str) -> Option<Result<(), String>> {
        if key == "burst" {
            return Some(parse_seconds(value).map(|burst| self.burst = Some(burst)));
        }
        let place = match key {
            "iops" => &mut self.iops,
            "read-iops" => &mut self.read_iops,
            "write-iops" => &mut self.write_iops,
            "bandwidth" => &mut self.bandwidth,
            "read-bandwidth" => &mut self.read_bandwidth,
            "write-bandwidth" => &mut self.write_bandwidth,
            _ => return None,
        };
        let is_count = key.ends_with("iops");
        let parsed = if is_count { parse_count(value) } else { parse_size(value) };
        Some(parsed.map(|value| *place = Some(value)))
    }
}

impl From<&RateSettings> for RateArgs {
    fn from(rates: &RateSettings) -> Self {
        let number = |rate: Option<NonZeroU64>| rate.map(NonZeroU64::get);
        RateArgs {
            iops: number(rates.iops),
            read_iops: number(rates.read_iops),
            write_iops: number(rates.write_iops),
            bandwidth: number(rates.bandwidth),
            read_bandwidth: number(rates.read_bandwidth),
            write_bandwidth: number(rates.write_bandwidth),
            burst: rates.burst,
        }
    }
}

/// Limits of a namespace or a host in a second, for programs: numbers, and only those that are limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct LimitReport {
    /// Reads and writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iops: Option<u64>,
    /// Reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_iops: Option<u64>,
    /// Writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_iops: Option<u64>,
    /// Bytes read or written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<u64>,
    /// Bytes read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_bytes_per_second: Option<u64>,
    /// Bytes written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written_bytes_per_second: Option<u64>,
    /// Time of the limits that may be caught up on at once, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst_us: Option<f64>,
}

impl LimitReport {
    /// True if nothing is limited.
    pub(crate) fn is_empty(&self) -> bool {
        *self == LimitReport::default()
    }
}

impl From<&RateSettings> for LimitReport {
    fn from(rates: &RateSettings) -> Self {
        let number = |rate: Option<NonZeroU64>| rate.map(NonZeroU64::get);
        LimitReport {
            iops: number(rates.iops),
            read_iops: number(rates.read_iops),
            write_iops: number(rates.write_iops),
            bytes_per_second: number(rates.bandwidth),
            read_bytes_per_second: number(rates.read_bandwidth),
            written_bytes_per_second: number(rates.write_bandwidth),
            burst_us: rates.burst.map(|burst| burst.as_nanos() as f64 / 1e3),
        }
    }
}

/// Formats limits as options of a namespace: `,iops=1000,burst=0.1`.
impl fmt::Display for LimitReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let burst = self.burst_us.map(|us| Duration::from_nanos((us * 1e3) as u64));
        let rates = RateArgs {
            iops: self.iops,
            read_iops: self.read_iops,
            write_iops: self.write_iops,
            bandwidth: self.bytes_per_second,
            read_bandwidth: self.read_bytes_per_second,
            write_bandwidth: self.written_bytes_per_second,
            burst,
        };
        rates.fmt(f)
    }
}

/// Formats limits as options of a namespace: `,iops=1000,burst=0.1`.
impl fmt::Display for RateArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in [
            ("iops", self.iops),
            ("read-iops", self.read_iops),
            ("write-iops", self.write_iops),
            ("bandwidth", self.bandwidth),
            ("read-bandwidth", self.read_bandwidth),
            ("write-bandwidth", self.write_bandwidth),
        ] {
            if let Some(value) = value {
                write!(f, ",{name}={value}")?;
            }
        }
        self.burst.map_or(Ok(()), |burst| write!(f, ",burst={}", burst.as_secs_f64()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_counted_in_thousands_and_bytes_in_binary_units() {
        let mut rates = RateArgs::default();
        for (key, value) in [("iops", "20k"), ("read-iops", "1M"), ("bandwidth", "100MiB")] {
            rates.set(key, value).unwrap().unwrap();
        }
        let kept = (rates.iops, rates.read_iops, rates.bandwidth);
        assert_eq!(kept, (Some(20_000), Some(1_000_000), Some(100 << 20)));
        let refusal = rates.set("bandwidth", "1Gb").unwrap().unwrap_err();
        assert!(
            refusal.contains("1GiB for 1073741824") && refusal.contains("125000000"),
            "{refusal}"
        );
    }
}
