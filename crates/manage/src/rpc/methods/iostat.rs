//! Counters and latencies of devices.

use super::devices::find_any;
use super::framework::{TICK_RATE, ticks};
use super::{Method, MethodParams, change, device_params, query};
use crate::model::ManagedModel;
use crate::rpc::baselines::{Baselines, ResetMode, Since};
use crate::rpc::histogram::{HistogramOperations, HistogramShape};
use crate::rpc::{ManagerSession, Rpc, RpcError};
use roadtrain_reactor::metrics::{IoCounters, Latency, MetricsSnapshot, NamespaceSample};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};

pub(super) const METHODS: &[Method] = &[
    query("bdev_get_iostat", "Counters of devices.", iostat),
    change("bdev_reset_iostat", "Counts from 0 again, for all clients.", reset),
    change(
        "bdev_enable_histogram",
        "Begins or ends a histogram of a device's latencies.",
        enable_histogram,
    ),
    query("bdev_get_histogram", "Latencies since the histogram was begun.", histogram),
];

/// Returns all devices with their counters, and removes the baselines of deleted devices.
fn counted(
    baselines: &mut Baselines,
    model: &ManagedModel,
    seen: &MetricsSnapshot,
) -> Vec<(String, IoCounters)> {
    let of_file = seen.namespaces.iter().filter(|one| model.subsystem(&one.nqn).is_none());
    let of_file = of_file.map(|one| (one.device.clone(), one.io.clone()));
    let claims = model.claims_by_device();
    let samples = seen.namespaces.iter().map(|one| ((one.nqn.as_str(), one.nsid), one));
    let samples: HashMap<(&str, u32), &NamespaceSample> = samples.collect();
    let own = model.devices.iter().map(|device| {
        let sample = claims.get(&*device.name).and_then(|claim| samples.get(claim));
        (device.name.clone(), sample.map(|one| one.io.clone()).unwrap_or_default())
    });
    let all: Vec<(String, IoCounters)> = of_file.chain(own).collect();
    let there: HashSet<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
    baselines.retain(|name| there.contains(name));
    all
}

/// Returns the named devices, or all.
fn wanted(
    all: Vec<(String, IoCounters)>,
    model: &ManagedModel,
    names: Option<&[String]>,
) -> Rpc<Vec<(String, IoCounters)>> {
    let Some(names) = names else { return Ok(all) };
    let find = |name: &String| {
        let known = model.device(name).map_or(name.as_str(), |device| &device.name);
        let found = all.iter().find(|(name, _)| name == known);
        found.cloned().ok_or_else(|| RpcError::no_device(name))
    };
    names.iter().map(find).collect()
}

fn iostat(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct GetIostatParams {
        names: Option<Vec<String>>,
        name: Option<String>,
        per_channel: Option<bool>,
        reset_mode: Option<ResetMode>,
    }
    let GetIostatParams { names, name, per_channel, reset_mode } = device_params(&params)?;
    if per_channel == Some(true) {
        return Err(RpcError::invalid(
            "no per_channel here: leave it out; counters are of all reactors",
        ));
    }
    let names = names.or(name.map(|name| vec![name]));
    let mut baselines = manager.baselines();
    let (model, seen) = (manager.model(), manager.server().snapshot());
    let found = wanted(counted(&mut baselines, &model, &seen), &model, names.as_deref())?;
    let shown = found.iter().map(|(name, io)| {
        let since = baselines.with(name, io, |baseline| {
            let since = baseline.since(io);
            baseline.reset(reset_mode.unwrap_or_default(), io);
            since
        });
        device(name, &since, &seen.latency_bounds_seconds)
    });
    let shown: Vec<Value> = shown.collect();
    Ok(json!({"tick_rate": TICK_RATE, "ticks": ticks(seen.unix_seconds), "bdevs": shown}))
}

fn reset(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct ResetIostatParams {
        name: Option<String>,
        mode: Option<ResetMode>,
    }
    let ResetIostatParams { name, mode } = device_params(&params)?;
    let mut baselines = manager.baselines();
    let (model, seen) = (manager.model(), manager.server().snapshot());
    let all = counted(&mut baselines, &model, &seen);
    let names = name.map(|name| vec![name]);
    for (name, io) in wanted(all, &model, names.as_deref())? {
        let mode = mode.unwrap_or(ResetMode::All);
        baselines.with(&name, &io, |baseline| baseline.reset(mode, &io));
    }
    Ok(json!(true))
}

/// Returns the counters of a device since its namespace was added, or since a reset.
fn device(name: &str, since: &Since, bounds: &[f64]) -> Value {
    let (io, [reads, writes]) = (&since.io, &since.extremes);
    let (read_min, read_max) = ends(reads, bounds);
    let (write_min, write_max) = ends(writes, bounds);
    json!({
        "name": name,
        "bytes_read": io.read_bytes, "num_read_ops": io.reads,
        "bytes_written": io.written_bytes, "num_write_ops": io.writes,
        "bytes_unmapped": io.discarded_bytes, "num_unmap_ops": io.discards,
        "bytes_copied": 0, "num_copy_ops": 0,
        "read_latency_ticks": ticks(io.read_latency.sum_seconds),
        "max_read_latency_ticks": read_max, "min_read_latency_ticks": read_min,
        "write_latency_ticks": ticks(io.write_latency.sum_seconds),
        "max_write_latency_ticks": write_max, "min_write_latency_ticks": write_min,
        "unmap_latency_ticks": 0, "max_unmap_latency_ticks": 0, "min_unmap_latency_ticks": 0,
        "copy_latency_ticks": 0, "max_copy_latency_ticks": 0, "min_copy_latency_ticks": 0,
        "io_error": {"total": io.errors},
    })
}

/// Returns the bounds of the first and of the last bucket with a request.
fn ends(latency: &Latency, bounds: &[f64]) -> (u64, u64) {
    let used = || latency.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
    let bound = |at: usize| bounds.get(at).or(bounds.last()).copied().unwrap_or_default();
    let first =
        used().next().map_or(0, |(at, _)| at.checked_sub(1).map_or(0, |at| ticks(bound(at))));
    let last = used().next_back().map_or(0, |(at, _)| ticks(bound(at)));
    (first, last)
}

/// Returns a device with its counters.
fn one(
    manager: &ManagerSession<'_>,
    baselines: &mut Baselines,
    name: &str,
) -> Rpc<(String, IoCounters)> {
    let (model, seen) = (manager.model(), manager.server().snapshot());
    let name = find_any(manager, name)?;
    let found =
        wanted(counted(baselines, &model, &seen), &model, Some(std::slice::from_ref(&name)))?;
    found.into_iter().next().ok_or_else(|| RpcError::no_device(name))
}

fn enable_histogram(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct EnableHistogramParams {
        name: String,
        enable: bool,
        opc: Option<String>,
        granularity: Option<u8>,
        min_nsec: Option<u64>,
        max_nsec: Option<u64>,
    }
    let given: EnableHistogramParams = device_params(&params)?;
    let mut baselines = manager.baselines();
    let (name, io) = one(manager, &mut baselines, &given.name)?;
    let operations = match given.opc.as_deref() {
        None => HistogramOperations::Both,
        Some("read") => HistogramOperations::Reads,
        Some("write") => HistogramOperations::Writes,
        Some(other) => {
            let more = format!("{other:?}: read and write are timed");
            return Err(RpcError::new(-32603, "Invalid Io type", more));
        }
    };
    let range = (given.min_nsec, given.max_nsec);
    let shape = HistogramShape::new(operations, given.granularity, range)?;
    baselines.with(&name, &io, |baseline| {
        let from = [io.read_latency.clone(), io.write_latency.clone()];
        baseline.histogram = given.enable.then_some((shape, from));
    });
    Ok(json!(true))
}

fn histogram(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct GetHistogramParams {
        name: String,
    }
    let GetHistogramParams { name } = device_params(&params)?;
    let mut baselines = manager.baselines();
    let (name, io) = one(manager, &mut baselines, &name)?;
    let begun = baselines.with(&name, &io, |baseline| baseline.histogram.clone());
    let none = || RpcError::new(-32603, "Bad address", "bdev_enable_histogram begins one");
    let (shape, [reads, writes]) = begun.ok_or_else(none)?;
    let latencies = [io.read_latency.since(&reads), io.write_latency.since(&writes)];
    Ok(shape.show(&latencies, TICK_RATE))
}
