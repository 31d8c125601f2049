//! Names that the running target knows, for shells that complete them.

use super::rpc::default_socket;
use clap_complete::CompletionCandidate;
use roadtrain_manage::rpc::client;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Nobody waits longer for a key to have an effect.
const PATIENCE: Duration = Duration::from_millis(500);

/// Names, each with what it is.
type Names = BTreeMap<String, String>;

fn candidates(names: Option<Names>) -> Vec<CompletionCandidate> {
    let candidate = |(name, what): (String, String)| {
        CompletionCandidate::new(name).help((!what.is_empty()).then(|| what.into()))
    };
    names.unwrap_or_default().into_iter().map(candidate).collect()
}

/// The socket that the command line names, before or behind what is completed.
fn socket(words: impl Iterator<Item = OsString>) -> PathBuf {
    let mut words = words.skip_while(|word| word != "--");
    while let Some(word) = words.next() {
        let told = match word.to_str() {
            Some("--rpc") => words.next(),
            Some(word) => word.strip_prefix("--rpc=").map(OsString::from),
            None => None,
        };
        if let Some(told) = told {
            return told.into();
        }
    }
    default_socket()
}

/// What a method of the target has to say; nothing without a target.
fn ask(method: &str) -> Option<Vec<Value>> {
    let socket = socket(std::env::args_os());
    match client::call_within(PATIENCE, &socket, method, &Value::Null) {
        Ok(Ok(Value::Array(all))) => Some(all),
        _ => None,
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Devices.
pub(super) fn devices() -> Vec<CompletionCandidate> {
    let device = |one: &Value| (text(&one["name"]), text(&one["product_name"]));
    candidates(ask("bdev_get_bdevs").map(|all| all.iter().map(device).collect()))
}

/// Volumes and snapshots, as STORE/NAME.
pub(super) fn volumes() -> Vec<CompletionCandidate> {
    let kind = |one: &Value| if one["is_snapshot"] == true { "snapshot" } else { "volume" };
    let volume = |one: &Value| (text(&one["alias"]), kind(one).to_owned());
    candidates(ask("bdev_lvol_get_lvols").map(|all| all.iter().map(volume).collect()))
}

/// Stores of volumes.
pub(super) fn stores() -> Vec<CompletionCandidate> {
    let store = |one: &Value| (text(&one["name"]), text(&one["base_bdev"]));
    candidates(ask("bdev_lvol_get_lvstores").map(|all| all.iter().map(store).collect()))
}

/// What subsystems have, but for the discovery service.
fn of_subsystems(list: impl Fn(&Value) -> Names) -> Vec<CompletionCandidate> {
    let all = ask("nvmf_get_subsystems");
    let own = |all: Vec<Value>| {
        all.iter().filter(|one| one["subtype"] == "NVMe").flat_map(&list).collect()
    };
    candidates(all.map(own))
}

fn list<'a>(of: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    of[name].as_array().into_iter().flatten()
}

/// Subsystems.
pub(super) fn subsystems() -> Vec<CompletionCandidate> {
    of_subsystems(|one| [(text(&one["nqn"]), text(&one["serial_number"]))].into())
}

/// Hosts that are named.
pub(super) fn hosts() -> Vec<CompletionCandidate> {
    of_subsystems(|one| {
        list(one, "hosts").map(|host| (text(&host["nqn"]), String::new())).collect()
    })
}

/// Where subsystems can be reached.
pub(super) fn listeners() -> Vec<CompletionCandidate> {
    let listener = |at: &Value| {
        let (address, port) = (text(&at["traddr"]), text(&at["trsvcid"]));
        let is_v6 = address.contains(':');
        let shown = if is_v6 { format!("[{address}]:{port}") } else { format!("{address}:{port}") };
        (shown, String::new())
    };
    of_subsystems(|one| list(one, "listen_addresses").map(listener).collect())
}

/// Namespace IDs.
pub(super) fn nsids() -> Vec<CompletionCandidate> {
    let namespace = |one: &Value| (one["nsid"].to_string(), text(&one["bdev_name"]));
    of_subsystems(|one| list(one, "namespaces").map(namespace).collect())
}

/// Methods of JSON-RPC.
pub(super) fn methods() -> Vec<CompletionCandidate> {
    let method = |one: &Value| (text(one), String::new());
    candidates(ask("rpc_get_methods").map(|all| all.iter().map(method).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_is_that_of_the_line() {
        let of = |line: &str| socket(line.split(' ').map(OsString::from));
        assert_eq!(of("roadtrain -- roadtrain ctl --rpc /a device remove"), PathBuf::from("/a"));
        assert_eq!(of("roadtrain -- roadtrain ctl device remove x --rpc=/b"), PathBuf::from("/b"));
        assert_eq!(of("roadtrain -- roadtrain ctl device remove"), default_socket());
        assert_eq!(of("roadtrain -- roadtrain ctl device remove --rpc"), default_socket());
    }
}
