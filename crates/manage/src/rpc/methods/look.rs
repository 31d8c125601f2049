//! What the target is, and what it can do.

use super::{Method, all, look, none, params_of};
use crate::rpc::{Manager, Rpc};
use roadtrain_reactor::metrics::ReactorSample;
use serde::Deserialize;
use serde_json::{Value, json};

pub(super) const METHODS: &[Method] = &[
    look("spdk_get_version", "The version of SPDK whose methods these are.", version),
    look("rpc_get_methods", "The names of all methods.", methods),
    look("framework_get_subsystems", "What framework_get_config can be asked for.", subsystems),
    look("framework_wait_init", "Nothing: everything is there when the socket is.", nothing),
    look("bdev_wait_for_examine", "Nothing: a device is there when it is made.", nothing),
    look("framework_get_reactors", "The reactors and their CPU time.", reactors),
    look("thread_get_stats", "The reactors, as SPDK shows threads.", threads),
];

/// Nanoseconds are ticks here.
pub(super) const TICK_RATE: u64 = 1_000_000_000;

/// A time in ticks.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds of a process")]
pub(super) fn ticks(seconds: f64) -> u64 {
    (seconds * TICK_RATE as f64) as u64
}

fn version(_: &Manager, params: super::Params<'_>) -> Rpc<Value> {
    none(&params)?;
    let fields = json!({"major": 26, "minor": 5, "patch": 0, "suffix": ""});
    Ok(json!({"version": "SPDK v26.05", "fields": fields}))
}

fn methods(_: &Manager, params: super::Params<'_>) -> Rpc<Value> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "every method can be called now, and none has another name")]
    struct Asked {
        current: Option<bool>,
        include_aliases: Option<bool>,
    }
    params_of::<Asked>(&params)?;
    let mut names: Vec<&str> = all().map(|method| method.name).collect();
    names.sort_unstable();
    Ok(json!(names))
}

fn subsystems(_: &Manager, params: super::Params<'_>) -> Rpc<Value> {
    none(&params)?;
    Ok(json!([
        {"subsystem": "keyring", "depends_on": []},
        {"subsystem": "bdev", "depends_on": ["keyring"]},
        {"subsystem": "nvmf", "depends_on": ["bdev", "keyring"]},
    ]))
}

fn nothing(_: &Manager, params: super::Params<'_>) -> Rpc<Value> {
    none(&params)?;
    Ok(json!(true))
}

/// What SPDK calls the thread of a reactor.
pub(super) fn group_name(number: usize) -> String {
    format!("nvmf_tgt_poll_group_{number:03}")
}

fn mask(core: usize) -> String {
    format!("{:x}", 1_u128.checked_shl(u32::try_from(core).unwrap_or(127)).unwrap_or(0))
}

fn reactors(manager: &Manager, params: super::Params<'_>) -> Rpc<Value> {
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

/// How long a reactor has worked, and how long it has looked for work or slept.
fn times(reactor: &ReactorSample) -> (u64, u64) {
    (ticks(reactor.busy_seconds), ticks(reactor.idle_seconds + reactor.spin_seconds))
}

fn threads(manager: &Manager, params: super::Params<'_>) -> Rpc<Value> {
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
