//! The process: its log, and its end.

use super::{Method, Params, change, look, none, params_of};
use crate::rpc::{Manager, Rpc, RpcError};
use serde::Deserialize;
use serde_json::{Value, json};
use tracing::level_filters::LevelFilter;

pub(super) const METHODS: &[Method] = &[
    look("log_get_flags", "Nothing: there are no flags.", flags),
    change("log_set_flag", "Nothing for all, as there are no flags; others are not known.", flag),
    change("log_clear_flag", "As log_set_flag.", flag),
    look("log_get_level", "The log level.", get_level),
    change("log_set_level", "Sets the log level.", set_level),
    look("log_get_print_level", "As log_get_level: there is one log.", get_level),
    change("log_set_print_level", "As log_set_level.", set_level),
    change("spdk_kill_instance", "Asks the target to stop.", kill),
];

/// Levels in SPDK's words and in ours, the first of a kind before others.
const LEVELS: &[(&str, &str)] = &[
    ("DISABLED", "off"),
    ("ERROR", "error"),
    ("WARNING", "warn"),
    ("NOTICE", "info"),
    ("INFO", "info"),
    ("DEBUG", "debug"),
];

fn flags(_: &Manager, params: Params<'_>) -> Rpc<Value> {
    none(&params)?;
    Ok(json!({}))
}

fn flag(_: &Manager, params: Params<'_>) -> Rpc<Value> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Asked {
        flag: String,
    }
    let Asked { flag } = params_of(&params)?;
    match flag.as_str() {
        "all" => Ok(json!(true)),
        _ => Err(RpcError::params(format!("there is no flag {flag:?}: there are none here"))),
    }
}

fn get_level(manager: &Manager, params: Params<'_>) -> Rpc<Value> {
    none(&params)?;
    let now = LevelFilter::current().to_string();
    let now = LEVELS.iter().find(|(_, own)| *own == now).map_or("DEBUG", |(word, _)| word);
    Ok(json!(manager.log_level().unwrap_or(now)))
}

fn set_level(manager: &Manager, params: Params<'_>) -> Rpc<Value> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Asked {
        level: String,
    }
    let Asked { level } = params_of(&params)?;
    let known = LEVELS.iter().find(|(word, _)| word.eq_ignore_ascii_case(&level));
    let (word, own) = known.ok_or_else(|| RpcError::params(format!("level {level:?}")))?;
    let mut last = manager.log_level();
    manager.plane().set_log_level(own).map_err(RpcError::internal)?;
    *last = Some(word);
    Ok(json!(true))
}

fn kill(manager: &Manager, params: Params<'_>) -> Rpc<Value> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Asked {
        sig_name: String,
    }
    let Asked { sig_name } = params_of(&params)?;
    match sig_name.as_str() {
        "SIGTERM" | "SIGINT" | "TERM" | "INT" | "15" | "2" => manager.plane().stop(),
        _ => {
            return Err(RpcError::params(format!("sig_name {sig_name:?}: use SIGTERM or SIGINT")));
        }
    }
    Ok(json!(true))
}
