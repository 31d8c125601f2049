//! Methods that report versions, reactors and buffers of the target.

use super::devices::{DeviceNameParams, find_any};
use super::{Method, device_params, none, query};
use crate::rpc::{ManagerSession, Rpc};
use roadtrain_reactor::metrics::ReactorSample;
use serde_json::{Value, json};

pub(super) const METHODS: &[Method] = &[
    query("spdk_get_version", "The version of SPDK whose methods these are.", version),
    query("framework_get_subsystems", "Names that framework_get_config accepts.", subsystems),
    query("framework_wait_init", "Nothing: everything is there when the socket is.", nothing),
    query("bdev_wait_for_examine", "Nothing: a device is there when it is made.", nothing),
    query("bdev_examine", "Nothing: what a device has is found when it is made.", examine),
    query("framework_get_reactors", "The reactors and their CPU time.", reactors),
    query("framework_get_scheduler", "The scheduler: each reactor stays on its core.", scheduler),
    query("thread_get_stats", "The reactors, as SPDK shows threads.", threads),
    query("thread_get_pollers", "The loop of each reactor, as SPDK shows pollers.", pollers),
    query("iobuf_get_stats", "How often a command has waited for a buffer.", buffers),
];

/// Ticks per second: a tick is a nanosecond.
pub(super) const TICK_RATE: u64 = 1_000_000_000;

/// Returns a time in ticks.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds of a process")]
pub(super) fn ticks(seconds: f64) -> u64 {
    (seconds * TICK_RATE as f64) as u64
}

fn version(_: &ManagerSession<'_>, params: super::MethodParams<'_>) -> Rpc<Value> {
    none(&params)?;
    let fields = json!({"major": 26, "minor": 5, "patch": 0, "suffix": ""});
    Ok(json!({"version": "SPDK v26.05", "fields": fields}))
}

fn subsystems(_: &ManagerSession<'_>, params: super::MethodParams<'_>) -> Rpc<Value> {
    none(&params)?;
    Ok(json!([
        {"subsystem": "keyring", "depends_on": []},
        {"subsystem": "bdev", "depends_on": ["keyring"]},
        {"subsystem": "nvmf", "depends_on": ["bdev", "keyring"]},
    ]))
}

fn nothing(_: &ManagerSession<'_>, params: super::MethodParams<'_>) -> Rpc<Value> {
    none(&params)?;
    Ok(json!(true))
}

fn examine(manager: &ManagerSession<'_>, params: super::MethodParams<'_>) -> Rpc<Value> {
    let DeviceNameParams { name } = device_params(&params)?;
    find_any(manager, &name)?;
    Ok(json!(true))
}

fn scheduler(manager: &ManagerSession<'_>, params: super::MethodParams<'_>) -> Rpc<Value> {
    none(&params)?;
    let seen = manager.server().snapshot();
    let core = seen.reactors.first().map_or(0, |one| one.core.unwrap_or(one.reactor));
    Ok(json!({
        "scheduler_name": "static", "scheduler_period": 0, "isolated_core_mask": "0x0",
        "scheduling_core": core,
    }))
}

/// Returns SPDK's name for the thread of a reactor.
pub(super) fn group_name(number: usize) -> String {
    format!("nvmf_tgt_poll_group_{number:03}")
}

fn mask(core: usize) -> String {
    format!("{:x}", 1_u128.checked_shl(u32::try_from(core).unwrap_or(127)).unwrap_or(0))
}

fn reactors(manager: &ManagerSession<'_>, params: super::MethodParams<'_>) -> Rpc<Value> {
    none(&params)?;
    let seen = manager.server().snapshot();
    let reactors = seen.reactors.iter().map(|one| {
        let core = one.core.unwrap_or(one.reactor);
        let (busy, idle) = times(one);
        let thread = json!({
            "name": group_name(one.reactor), "id": one.reactor + 1, "cpumask": mask(core),
            "elapsed": busy + idle,
        });
        json!({
            "lcore": core, "numa_id": one.node.unwrap_or(0), "tid": one.thread, "busy": busy,
            "idle": idle, "in_interrupt": false, "irq": 0, "sys": ticks(one.system_seconds),
            "usr": ticks(one.user_seconds), "lw_threads": [thread],
        })
    });
    let reactors: Vec<Value> = reactors.collect();
    Ok(json!({"tick_rate": TICK_RATE, "pid": std::process::id(), "reactors": reactors}))
}

/// Returns the busy time of a reactor, and its idle time with spinning.
fn times(reactor: &ReactorSample) -> (u64, u64) {
    (ticks(reactor.busy_seconds), ticks(reactor.idle_seconds + reactor.spin_seconds))
}

fn threads(manager: &ManagerSession<'_>, params: super::MethodParams<'_>) -> Rpc<Value> {
    none(&params)?;
    let seen = manager.server().snapshot();
    let threads = seen.reactors.iter().map(|one| {
        let (busy, idle) = times(one);
        json!({
            "name": group_name(one.reactor), "id": one.reactor + 1,
            "cpumask": mask(one.core.unwrap_or(one.reactor)), "busy": busy, "idle": idle,
            "active_pollers_count": 1, "timed_pollers_count": 0, "paused_pollers_count": 0,
        })
    });
    let threads: Vec<Value> = threads.collect();
    Ok(json!({"tick_rate": TICK_RATE, "threads": threads}))
}

fn pollers(manager: &ManagerSession<'_>, params: super::MethodParams<'_>) -> Rpc<Value> {
    none(&params)?;
    let seen = manager.server().snapshot();
    let threads = seen.reactors.iter().map(|one| {
        let poller = json!({
            "name": "reactor", "id": 1, "state": "running", "run_count": one.turns,
            // A turn without work ends in a wait.
            "busy_count": one.turns.saturating_sub(one.waits),
        });
        json!({
            "name": group_name(one.reactor), "id": one.reactor + 1, "active_pollers": [poller],
            "timed_pollers": [], "paused_pollers": [],
        })
    });
    let threads: Vec<Value> = threads.collect();
    Ok(json!({"tick_rate": TICK_RATE, "threads": threads}))
}

fn buffers(manager: &ManagerSession<'_>, params: super::MethodParams<'_>) -> Rpc<Value> {
    none(&params)?;
    let seen = manager.server().snapshot();
    let waits: u64 = seen.reactors.iter().map(|one| one.buffer_waits).sum();
    let pool = |retry: u64| json!({"cache": 0, "main": 0, "retry": retry, "cache_size": 0});
    Ok(json!([{"module": "nvmf_TCP", "small_pool": pool(waits), "large_pool": pool(0)}]))
}
