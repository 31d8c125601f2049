//! What namespaces and hosts may do in a second, by the target's JSON-RPC methods.

use super::objects::Desk;
use crate::failure::{Failure, Outcome};
use crate::rates::RateArgs;
use crate::units::{show_bytes, show_us};
use roadtrain_manage::model::Limits;
use serde_json::{Value, json};

impl Desk<'_> {
    /// `roadtrain ctl namespace limit`
    pub(super) fn limit_namespace(&self, (nqn, nsid): (&str, u32), rates: &RateArgs) -> Outcome {
        let device = self.device_of(nqn, nsid)?;
        let params = json!({"name": device, "limits": limits(rates)?});
        let done = format!("namespace {nsid} of {nqn}: {}", self::done(rates));
        self.change("roadtrain_set_device_limits", &params, &done)
    }

    /// `roadtrain ctl host limit`
    pub(super) fn limit_host(&self, (nqn, host): (&str, &str), rates: &RateArgs) -> Outcome {
        let params = json!({"nqn": nqn, "host": host, "limits": limits(rates)?});
        let done = format!("host {host} of {nqn}: {}", self::done(rates));
        self.change("roadtrain_set_host_limits", &params, &done)
    }

    /// Limits in `rows` as people read them; programs get what the target has said.
    pub(super) fn with_limits(&self, mut rows: Vec<Value>) -> Vec<Value> {
        if !self.json {
            rows.iter_mut().for_each(|row| row["limits"] = show(&row["limits"]));
        }
        rows
    }
}

fn limits(rates: &RateArgs) -> Outcome<Limits> {
    let rates = rates.rates().map_err(Failure::usage)?;
    if rates.burst.is_some() && !rates.is_limited() {
        return Err(Failure::usage("--burst: of which limit? Say that, too"));
    }
    Ok(Limits::from(&rates))
}

fn done(rates: &RateArgs) -> &'static str {
    if rates.is_empty() { "not limited" } else { "limited" }
}

/// In one line; null is nothing.
fn show(limits: &Value) -> Value {
    let number = |name: &str| limits[name].as_u64();
    let counts = [("iops", "IOPS"), ("read_iops", "read IOPS"), ("write_iops", "write IOPS")];
    let counts = counts.map(|(name, unit)| Some(format!("{} {unit}", number(name)?)));
    let octets = [("bandwidth", ""), ("read_bandwidth", " read"), ("write_bandwidth", " written")];
    let octets = octets.map(|(name, what)| Some(format!("{}/s{what}", show_bytes(number(name)?))));
    let burst = number("burst_us").map(|us| format!("burst {}", show_us(us as f64)));
    let all: Vec<String> = counts.into_iter().chain(octets).chain([burst]).flatten().collect();
    if all.is_empty() { Value::Null } else { all.join(", ").into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_shown_in_one_line() {
        let limits = json!({"iops": 1000, "write_bandwidth": 100 << 20, "burst_us": 5000});
        assert_eq!(show(&limits), "1000 IOPS, 100 MiB/s written, burst 5.00 ms");
        assert_eq!(show(&Value::Null), Value::Null);
    }

    #[test]
    fn a_burst_is_of_a_limit() {
        let burst = Some(std::time::Duration::from_secs(1));
        assert!(limits(&RateArgs { burst, ..RateArgs::default() }).is_err());
        let limited = limits(&RateArgs { burst, read_iops: Some(7), ..RateArgs::default() });
        let limited = limited.unwrap();
        assert_eq!((limited.read_iops, limited.burst_us), (7, Some(1_000_000)));
        assert!(limits(&RateArgs { iops: Some(0), ..RateArgs::default() }).is_err());
    }
}
