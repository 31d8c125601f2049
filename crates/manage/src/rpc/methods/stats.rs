//! What was counted.

use super::look::{TICK_RATE, group_name, ticks};
use super::nvmf::DISCOVERY;
use super::place;
use super::transport::check_target;
use super::{Method, Params, device_params, look, params_of};
use crate::rpc::{Manager, Rpc, RpcError};
use roadtrain_reactor::metrics::{AuthSample, Io, Latency};
use serde::Deserialize;
use serde_json::{Value, json};
use std::net::SocketAddr;

pub(super) const METHODS: &[Method] = &[
    look("bdev_get_iostat", "What hosts have done with devices.", iostat),
    look("nvmf_get_stats", "What each reactor has done.", stats),
    look("nvmf_subsystem_get_qpairs", "Queues of a subsystem's hosts.", qpairs),
];

fn iostat(manager: &Manager, params: Params<'_>) -> Rpc<Value> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Asked {
        names: Option<Vec<String>>,
        name: Option<String>,
        per_channel: Option<bool>,
        reset_mode: Option<String>,
    }
    let Asked { names, name, per_channel, reset_mode } = device_params(&params)?;
    if per_channel == Some(true) || reset_mode.is_some_and(|mode| mode != "none") {
        return Err(RpcError::invalid(
            "no per_channel and no reset_mode here: leave them out; counters are of all reactors, and only grow",
        ));
    }
    let wanted: Option<Vec<String>> = names.or(name.map(|name| vec![name]));
    let (model, seen) = (manager.model(), manager.server().snapshot());
    let mut all: Vec<(String, Option<&Io>)> = Vec::new();
    for one in seen.namespaces.iter().filter(|one| model.subsystem(&one.nqn).is_none()) {
        all.push((one.name.clone(), Some(&one.io)));
    }
    for device in &model.devices {
        let claim = model.claim(&device.name);
        let is_it = |one: &&roadtrain_reactor::metrics::NamespaceSample| {
            claim == Some((one.nqn.as_str(), one.nsid))
        };
        let io = seen.namespaces.iter().find(is_it).map(|one| &one.io);
        all.push((device.name.clone(), io));
    }
    let resolve = |name: &String| {
        let own = model.device(name).map(|device| device.name.clone());
        own.unwrap_or_else(|| name.clone())
    };
    let shown = match wanted {
        None => all.iter().map(|(name, io)| device(name, *io, &seen.latency_bounds)).collect(),
        Some(names) => {
            let found = names.iter().map(|name| {
                let known = resolve(name);
                let found = all.iter().find(|(name, _)| *name == known);
                let (name, io) = found.ok_or_else(|| RpcError::no_device(name))?;
                Ok(device(name, *io, &seen.latency_bounds))
            });
            found.collect::<Rpc<Vec<Value>>>()?
        }
    };
    Ok(json!({"tick_rate": TICK_RATE, "ticks": ticks(seen.unix_seconds), "bdevs": shown}))
}

/// What was done with a device since its namespace is there; nothing without one.
fn device(name: &str, io: Option<&Io>, bounds: &[f64]) -> Value {
    let none = Io::default();
    let io = io.unwrap_or(&none);
    let (read_min, read_max) = ends(&io.read_latency, bounds);
    let (write_min, write_max) = ends(&io.write_latency, bounds);
    json!({
        "name": name,
        "bytes_read": io.read_bytes, "num_read_ops": io.reads,
        "bytes_written": io.written_bytes, "num_write_ops": io.writes,
        "bytes_unmapped": io.discarded_bytes, "num_unmap_ops": io.discards,
        "bytes_copied": 0, "num_copy_ops": 0,
        "read_latency_ticks": ticks(io.read_latency.seconds),
        "max_read_latency_ticks": read_max, "min_read_latency_ticks": read_min,
        "write_latency_ticks": ticks(io.write_latency.seconds),
        "max_write_latency_ticks": write_max, "min_write_latency_ticks": write_min,
        "unmap_latency_ticks": 0, "max_unmap_latency_ticks": 0, "min_unmap_latency_ticks": 0,
        "copy_latency_ticks": 0, "max_copy_latency_ticks": 0, "min_copy_latency_ticks": 0,
        "io_error": {"total": io.errors},
    })
}

/// The bounds of the first and of the last bucket with a request.
fn ends(latency: &Latency, bounds: &[f64]) -> (u64, u64) {
    let used = || latency.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
    let bound = |at: usize| bounds.get(at).or(bounds.last()).copied().unwrap_or_default();
    let first =
        used().next().map_or(0, |(at, _)| at.checked_sub(1).map_or(0, |at| ticks(bound(at))));
    let last = used().next_back().map_or(0, |(at, _)| ticks(bound(at)));
    (first, last)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Target {
    tgt_name: Option<String>,
}

fn stats(manager: &Manager, params: Params<'_>) -> Rpc<Value> {
    let Target { tgt_name } = params_of(&params)?;
    check_target(tgt_name.as_deref())?;
    let server = manager.server();
    let seen = server.snapshot();
    let groups = seen.reactors.iter().map(|reactor| {
        let own = seen.lanes.iter().filter(|lane| lane.reactor == reactor.reactor && lane.qid > 0);
        let (io, in_flight) = own.fold((0_u64, 0_i64), |(io, sum), lane| (io + 1, sum + lane.io.in_flight));
        let admin = reactor.lanes.saturating_sub(io);
        json!({
            "name": group_name(reactor.reactor), "admin_qpairs": admin, "io_qpairs": io,
            "current_admin_qpairs": admin, "current_io_qpairs": io, "current_unassociated_qpairs": 0,
            "pending_bdev_io": in_flight.max(0), "completed_nvme_io": reactor.batching.requests,
            "transports": [{"trtype": "TCP"}],
        })
    });
    let groups: Vec<Value> = groups.collect();
    Ok(json!({"tick_rate": TICK_RATE, "poll_groups": groups}))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    nqn: String,
    tgt_name: Option<String>,
}

fn qpairs(manager: &Manager, params: Params<'_>) -> Rpc<Value> {
    let Named { nqn, tgt_name } = params_of(&params)?;
    check_target(tgt_name.as_deref())?;
    let server = manager.server();
    let is_there = server.exports().subsystems.iter().any(|subsystem| subsystem.nqn == nqn);
    if !is_there && nqn != DISCOVERY {
        return Err(RpcError::params(format!("no subsystem {nqn}")));
    }
    let (queues, (_, controllers)) = (server.queues(), server.view());
    let own = queues.iter().filter(|lane| lane.nqn == nqn);
    let shown = own.map(|lane| {
        let local = controllers.iter().find(|controller| controller.cntlid == lane.cntlid);
        let mut shown = json!({
            "cntlid": lane.cntlid, "qid": lane.qid, "state": "enabled",
            "thread": group_name(lane.reactor), "hostnqn": lane.host_nqn,
        });
        if let Some(controller) = local {
            shown["listen_address"] = place::show(controller.local);
        }
        if let Ok(peer) = lane.peer.parse::<SocketAddr>() {
            shown["peer_address"] = place::show(peer);
        }
        if let Some(AuthSample { hash, group }) = &lane.auth {
            shown["auth"] = json!({"state": "completed", "digest": hash, "dhgroup": group});
        }
        shown
    });
    Ok(Value::Array(shown.collect()))
}
