//! Runs `roadtrain bench`, which measures both ends in one command, and reads its JSON.

use super::plan::{Load, Setup, Waiting};
use crate::floor::Direction;
use crate::measure::Measure;
use anyhow::{Context, bail};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

/// Arguments of `roadtrain` for one run.
pub(super) fn arguments(load: &Load, setup: &Setup, seconds: f64) -> Vec<String> {
    let rw = match load.rw {
        Direction::Read => "randread",
        Direction::Write => "randwrite",
    };
    let mut text = format!(
        "bench --namespace mem:1GiB --rw {rw} --bs {} --depth {} --lanes {} --cores 0 --target-cores 1 \
         --seconds {seconds} --policy {policy} --target-policy {policy} --caravan-requests {} \
         --caravan-bytes {} --doorbell-delay-us {} --json",
        load.bs,
        load.depth / load.lanes,
        load.lanes,
        setup.caravan_requests,
        setup.caravan_bytes,
        setup.doorbell_delay_us,
        policy = setup.policy,
    );
    match setup.waiting {
        Waiting::Sleep => {}
        Waiting::SpinUs(us) => text += &format!(" --spin-us {us}"),
        Waiting::BusyPoll => text += " --busy-poll",
    }
    text.split_whitespace().map(str::to_owned).collect()
}

/// Runs it once.
pub(super) fn run(program: &Path, arguments: &[String]) -> anyhow::Result<Measure> {
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("run {}", program.display()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{}: {}", output.status, said.lines().next_back().unwrap_or("(silent)"));
    }
    let json: Value = serde_json::from_slice(&output.stdout).context("JSON of roadtrain bench")?;
    measure(&json)
}

/// Reads the JSON object. Throughput, latency and errors must be there.
fn measure(json: &Value) -> anyhow::Result<Measure> {
    let number = |path: &str| json.pointer(path).and_then(Value::as_f64);
    let need = |path: &str| number(path).with_context(|| format!("no {path} in the JSON"));
    if need("/errors")? > 0.0 {
        bail!("{} errors", need("/errors")?);
    }
    let iops = need("/iops")?;
    // CPU time and I/Os must cover the same time: the measured one.
    let ios = number("/requests").or_else(|| Some(iops * number("/seconds")?));
    let per_io = |path: &str| Some(number(path)? * 1e6 / ios?.max(1.0));
    Ok(Measure {
        iops,
        bytes_per_second: need("/bytes_per_second")?,
        latency_us_mean: need("/latency_us/mean")?,
        latency_us_p50: need("/latency_us/p50")?,
        latency_us_p99: need("/latency_us/p99")?,
        host_cpu_us_per_io: per_io("/host_cpu_seconds"),
        target_cpu_us_per_io: per_io("/target_cpu_seconds"),
        requests_per_caravan: number("/requests_per_caravan"),
        target_requests_per_caravan: number("/target_requests_per_caravan"),
        bytes_per_send: number("/bytes_per_send"),
        target_bytes_per_send: number("/target_bytes_per_send"),
        syscalls_per_io: number("/syscalls_per_io"),
        context_switches_per_io: number("/context_switches_per_io"),
        foreign_cores: 0.0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn output() -> Value {
        json!({
            "iops": 1000.0, "bytes_per_second": 4096000.0, "seconds": 2.0, "errors": 0,
            "latency_us": { "mean": 10.0, "p50": 9.0, "p99": 20.0, "p999": 30.0 },
            "host_cpu_seconds": 0.5, "target_cpu_seconds": 1.0,
            "requests_per_caravan": 16.0, "sends_per_io": 0.0625,
        })
    }

    #[test]
    fn the_contract_is_read() {
        let m = measure(&output()).expect("complete");
        assert_eq!(m.iops, 1000.0);
        assert_eq!(m.host_cpu_us_per_io, Some(250.0));
        assert_eq!(m.cpu_us_per_io(), Some(750.0));
        assert_eq!(m.bytes_per_send, None);
    }

    #[test]
    fn errors_and_absent_figures_are_refused() {
        let mut with_errors = output();
        with_errors["errors"] = json!(1);
        assert!(measure(&with_errors).is_err());
        let mut without = output();
        without.as_object_mut().expect("an object").remove("iops");
        assert!(measure(&without).is_err());
    }

    #[test]
    fn depth_is_shared_by_the_lanes() {
        let setup = super::super::plan::rows()[0].setup;
        let load = Load { rw: Direction::Read, bs: 4096, depth: 128, lanes: 4 };
        let line = arguments(&load, &setup, 1.0).join(" ");
        assert!(line.contains("--depth 32 --lanes 4"), "{line}");
    }
}
