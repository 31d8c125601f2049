//! What the target is, and what it can do.

use super::{Method, all, look, none, params_of};
use crate::rpc::{Manager, Rpc, RpcError};
use serde::Deserialize;
use serde_json::{Value, json};

pub(super) const METHODS: &[Method] = &[
    look("spdk_get_version", "The version of SPDK whose methods these are.", version),
    look("rpc_get_methods", "The names of all methods.", methods),
    look("framework_get_subsystems", "What framework_get_config can be asked for.", subsystems),
    look("framework_wait_init", "Nothing: everything is there when the socket is.", nothing),
    look("bdev_wait_for_examine", "Nothing: a device is there when it is made.", nothing),
    look("framework_get_reactors", "The reactors, and the CPU time of the process.", reactors),
    look("thread_get_stats", "The reactors, as SPDK shows threads.", threads),
];

/// Nanoseconds are ticks here.
pub(super) const TICK_RATE: u64 = 1_000_000_000;

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

/// User and system time of a thread of this process by its name, in nanoseconds.
fn cpu_times() -> Vec<(String, u32, u64, u64)> {
    let ticks = rustix::param::clock_ticks_per_second().max(1);
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let time = |task: std::fs::DirEntry| {
        let tid: u32 = task.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(task.path().join("stat")).ok()?;
        let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
        let mut fields = rest.split_whitespace().skip(11);
        let mut next = || fields.next()?.parse::<u64>().ok().map(|t| t * TICK_RATE / ticks);
        Some((name.to_owned(), tid, next()?, next()?))
    };
    let mut times: Vec<_> = tasks.filter_map(time).collect();
    times.sort_unstable_by_key(|time| time.1);
    times
}

/// A reactor's thread and its time.
pub(super) struct ReactorTime {
    pub(super) core: Option<usize>,
    pub(super) tid: u32,
    pub(super) user: u64,
    pub(super) system: u64,
    /// Since the target began.
    pub(super) idle: u64,
}

impl ReactorTime {
    pub(super) fn busy(&self) -> u64 {
        self.user + self.system
    }

    fn core(&self, number: usize) -> usize {
        self.core.unwrap_or(number)
    }
}

/// Reactors in their order.
pub(super) fn reactor_times(manager: &Manager) -> Vec<ReactorTime> {
    let elapsed = u64::try_from(manager.begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let threads = cpu_times().into_iter();
    let reactors = threads.filter_map(|(name, tid, user, system)| {
        // The kernel keeps 15 octets of a name: "roadtrain-targe".
        let core = name.strip_prefix("roadtrain-").filter(|core| !core.is_empty())?;
        let core = if "target".starts_with(core) { None } else { Some(core.parse().ok()?) };
        let idle = elapsed.saturating_sub(user + system);
        Some(ReactorTime { core, tid, user, system, idle })
    });
    reactors.collect()
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
    let times = reactor_times(manager);
    let reactors = times.iter().enumerate().map(|(number, time)| {
        let core = time.core(number);
        let thread = json!({
            "name": group_name(number), "id": number + 1, "cpumask": mask(core),
            "elapsed": time.busy() + time.idle,
        });
        json!({
            "lcore": core, "numa_id": 0, "tid": time.tid, "busy": time.busy(), "idle": time.idle,
            "in_interrupt": false, "irq": 0, "sys": time.system, "usr": time.user,
            "lw_threads": [thread],
        })
    });
    let reactors: Vec<Value> = reactors.collect();
    Ok(json!({"tick_rate": TICK_RATE, "pid": std::process::id(), "reactors": reactors}))
}

fn threads(manager: &Manager, params: super::Params<'_>) -> Rpc<Value> {
    none(&params)?;
    let times = reactor_times(manager);
    let threads = times.iter().enumerate().map(|(number, time)| {
        json!({
            "name": group_name(number), "id": number + 1, "cpumask": mask(time.core(number)),
            "busy": time.busy(), "idle": time.idle, "active_pollers_count": 1,
            "timed_pollers_count": 0, "paused_pollers_count": 0,
        })
    });
    let threads: Vec<Value> = threads.collect();
    match threads.is_empty() {
        true => Err(RpcError::internal("no reactor runs")),
        false => Ok(json!({"tick_rate": TICK_RATE, "threads": threads})),
    }
}
