//! Limits of namespaces and hosts as text.

use super::target::ControlledTarget;
use crate::failure::{CommandFailure, CommandResult};
use crate::rates::RateArgs;
use crate::units::{show_bytes, show_us};
use serde_json::Value;

/// Checks limits before they are sent.
///
/// # Errors
/// A limit of 0, or a burst without a limit.
pub(super) fn check(rates: &RateArgs) -> CommandResult {
    let limited = rates.rates().map_err(CommandFailure::usage)?;
    match rates.burst.is_some() && !limited.is_limited() {
        true => Err(CommandFailure::usage("--burst: of which limit? Give that limit, too")),
        false => Ok(()),
    }
}

impl ControlledTarget {
    /// Formats limits in `rows` for people; programs get the target's values.
    pub(super) fn with_limits(&self, mut rows: Vec<Value>) -> Vec<Value> {
        if !self.json {
            rows.iter_mut().for_each(|row| row["limits"] = show(&row["limits"]));
        }
        rows
    }
}

/// Renames a method's limits to the keys of all other output.
pub(super) fn report(limits: &Value) -> Value {
    const NAMES: [(&str, &str); 7] = [
        ("iops", "iops"),
        ("read_iops", "read_iops"),
        ("write_iops", "write_iops"),
        ("bandwidth", "bytes_per_second"),
        ("read_bandwidth", "read_bytes_per_second"),
        ("write_bandwidth", "written_bytes_per_second"),
        ("burst_us", "burst_us"),
    ];
    let Some(limits) = limits.as_object() else { return Value::Null };
    let own =
        NAMES.iter().filter_map(|(of, name)| Some(((*name).to_owned(), limits.get(*of)?.clone())));
    Value::Object(own.collect())
}

/// Formats limits in one line; null for no limits.
fn show(limits: &Value) -> Value {
    let number = |name: &str| limits[name].as_u64();
    let counts = [("iops", "IOPS"), ("read_iops", "read IOPS"), ("write_iops", "write IOPS")];
    let counts = counts.map(|(name, unit)| Some(format!("{} {unit}", number(name)?)));
    let amounts = [
        ("bytes_per_second", ""),
        ("read_bytes_per_second", " read"),
        ("written_bytes_per_second", " written"),
    ];
    let amounts =
        amounts.map(|(name, what)| Some(format!("{}/s{what}", show_bytes(number(name)?))));
    let burst = number("burst_us").map(|us| format!("burst {}", show_us(us as f64)));
    let all: Vec<String> = counts.into_iter().chain(amounts).chain([burst]).flatten().collect();
    if all.is_empty() { Value::Null } else { all.join(", ").into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_burst_is_of_a_limit() {
        let burst = Some(std::time::Duration::from_secs(1));
        assert!(check(&RateArgs { burst, ..RateArgs::default() }).is_err());
        assert!(check(&RateArgs { burst, read_iops: Some(7), ..RateArgs::default() }).is_ok());
        assert!(check(&RateArgs { iops: Some(0), ..RateArgs::default() }).is_err());
        assert!(check(&RateArgs::default()).is_ok());
    }

    #[test]
    fn limits_are_shown_in_one_line() {
        let limits = json!({"iops": 1000, "write_bandwidth": 100 << 20, "burst_us": 5000});
        let limits = report(&limits);
        assert_eq!(show(&limits), "1000 IOPS, 100 MiB/s written, burst 5.00 ms");
        assert_eq!(show(&report(&Value::Null)), Value::Null);
    }
}
