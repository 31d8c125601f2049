//! The process: its log, and its end.

use super::{Method, MethodParams, change, device_params, none, params_of, query};
use crate::rpc::manager::LogState;
use crate::rpc::{ManagerSession, Rpc, RpcError};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use tracing::level_filters::LevelFilter;

pub(super) const METHODS: &[Method] = &[
    query("log_get_flags", "Flags of the log, and which are set.", flags),
    change("log_set_flag", "Logs one part of the program at the level DEBUG, too.", set_flag),
    change("log_clear_flag", "Logs that part as all others again.", clear_flag),
    query("log_get_level", "The log level.", get_level),
    change("log_set_level", "Sets the log level.", set_level),
    query("log_get_print_level", "As log_get_level: there is one log.", get_level),
    change("log_set_print_level", "As log_set_level.", set_level),
    change("spdk_kill_instance", "Stops the target, as a signal does.", kill),
];

/// Log levels in SPDK's words and in ours. A lookup takes the first match.
const LEVELS: &[(&str, &str)] = &[
    ("DISABLED", "off"),
    ("ERROR", "error"),
    ("WARNING", "warn"),
    ("NOTICE", "info"),
    ("INFO", "info"),
    ("DEBUG", "debug"),
];

/// Log flags, with the modules that each selects.
const FLAGS: &[(&str, &[&str])] = &[
    ("nvmf", &["roadtrain_target_proto", "roadtrain_target_engine"]),
    ("nvmf_tcp", &["roadtrain_reactor"]),
    ("rpc", &["roadtrain_manage::rpc"]),
];

fn flags(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    none(&params)?;
    let log = manager.log();
    let all = FLAGS.iter().map(|(flag, _)| ((*flag).to_owned(), log.flags.contains(flag).into()));
    Ok(Value::Object(all.collect()))
}

fn set_flag(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    flag(manager, &params, true)
}

fn clear_flag(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    flag(manager, &params, false)
}

fn flag(manager: &ManagerSession<'_>, params: &MethodParams<'_>, is_set: bool) -> Rpc<Value> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct LogFlagParams {
        flag: String,
    }
    let LogFlagParams { flag } = device_params(params)?;
    let named = FLAGS.iter().map(|(name, _)| *name).filter(|name| flag == "all" || flag == *name);
    let named: BTreeSet<&str> = named.collect();
    if named.is_empty() {
        let all: Vec<&str> = FLAGS.iter().map(|(name, _)| *name).collect();
        let hint = format!("{flag:?}: use all, {}", all.join(", "));
        return Err(RpcError::new(-32602, "invalid log flag", hint));
    }
    let mut log = manager.log();
    let level = Some(log.level.unwrap_or_else(current));
    let flags = if is_set { &log.flags | &named } else { &log.flags - &named };
    set(manager, &mut log, LogState { level, flags })
}

/// Returns the level of the process in SPDK's words, for when RPC has set none.
fn current() -> &'static str {
    let now = LevelFilter::current().to_string();
    LEVELS.iter().find(|(_, own)| *own == now).map_or("DEBUG", |(word, _)| word)
}

/// Applies log settings.
fn set(manager: &ManagerSession<'_>, log: &mut LogState, next: LogState) -> Rpc<Value> {
    let level = LEVELS.iter().find(|(word, _)| Some(*word) == next.level);
    let level = level.map_or("info", |(_, own)| own);
    let modules = FLAGS.iter().filter(|(flag, _)| next.flags.contains(flag));
    let modules = modules.flat_map(|(_, modules)| *modules);
    let levels =
        modules.fold(level.to_owned(), |levels, module| format!("{levels},{module}=debug"));
    manager.plane().set_log_level(&levels).map_err(RpcError::internal)?;
    *log = next;
    Ok(json!(true))
}

fn get_level(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    none(&params)?;
    Ok(json!(manager.log().level.unwrap_or_else(current)))
}

fn set_level(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct SetLogLevelParams {
        level: String,
    }
    let SetLogLevelParams { level } = params_of(&params)?;
    let known = LEVELS.iter().find(|(word, _)| word.eq_ignore_ascii_case(&level));
    let (word, _) = known.ok_or_else(|| RpcError::params(format!("level {level:?}")))?;
    let mut log = manager.log();
    let flags = log.flags.clone();
    set(manager, &mut log, LogState { level: Some(word), flags })
}

fn kill(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct KillInstanceParams {
        sig_name: String,
    }
    let KillInstanceParams { sig_name } = params_of(&params)?;
    match sig_name.as_str() {
        "SIGTERM" | "SIGINT" | "TERM" | "INT" | "15" | "2" => manager.plane().stop(),
        _ => {
            return Err(RpcError::params(format!("sig_name {sig_name:?}: use SIGTERM or SIGINT")));
        }
    }
    Ok(json!(true))
}
