//! Names that the running target knows, for shells that complete them.

use super::socket::default_socket;
use clap_complete::CompletionCandidate;
use roadtrain_manage::rpc::client;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Nobody waits longer for a key to have an effect.
pub(super) const PATIENCE: Duration = Duration::from_millis(500);

/// Names, each with what it is.
pub(super) type Names = BTreeMap<String, String>;

pub(super) fn candidates(names: Option<Names>) -> Vec<CompletionCandidate> {
    let candidate = |(name, what): (String, String)| {
        CompletionCandidate::new(name).help((!what.is_empty()).then(|| what.into()))
    };
    names.unwrap_or_default().into_iter().map(candidate).collect()
}

/// What the command line says of an option, before or behind what is completed.
pub(super) fn option(words: impl Iterator<Item = OsString>, names: &[&str]) -> Option<String> {
    let mut words = words.skip_while(|word| word != "--").map(|word| word.into_string());
    while let Some(word) = words.next() {
        let Ok(word) = word else { continue };
        let told = match word.split_once('=') {
            Some((name, told)) if names.contains(&name) => Some(told.to_owned()),
            _ if names.contains(&&*word) => words.next().and_then(Result::ok),
            _ => None,
        };
        if told.is_some() {
            return told;
        }
    }
    None
}

/// The socket of the target.
fn socket(words: impl Iterator<Item = OsString>) -> PathBuf {
    option(words, &["--rpc"]).map_or_else(default_socket, PathBuf::from)
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

/// Hosts that are named or limited.
pub(super) fn hosts() -> Vec<CompletionCandidate> {
    of_subsystems(|one| {
        let named = list(one, "hosts").map(|host| text(&host["nqn"]));
        let limited = one["host_limits"].as_object().into_iter().flatten();
        let all = named.chain(limited.map(|(host, _)| host.clone()));
        all.map(|host| (host, String::new())).collect()
    })
}

/// An address with its port.
fn shown(at: &Value) -> String {
    let (address, port) = (text(&at["traddr"]), text(&at["trsvcid"]));
    if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") }
}

/// Where subsystems can be reached.
pub(super) fn listeners() -> Vec<CompletionCandidate> {
    let listener = |at: &Value| (shown(at), String::new());
    of_subsystems(|one| list(one, "listen_addresses").map(listener).collect())
}

/// Namespace IDs.
pub(super) fn nsids() -> Vec<CompletionCandidate> {
    let namespace = |one: &Value| (one["nsid"].to_string(), text(&one["bdev_name"]));
    of_subsystems(|one| list(one, "namespaces").map(namespace).collect())
}

/// Keys.
pub(super) fn keys() -> Vec<CompletionCandidate> {
    let key = |one: &Value| (text(&one["name"]), text(&one["path"]));
    candidates(ask("keyring_get_keys").map(|all| all.iter().map(key).collect()))
}

/// Ceph clusters.
pub(super) fn clusters() -> Vec<CompletionCandidate> {
    let cluster = |one: &Value| (text(&one["cluster_name"]), text(&one["config_file"]));
    candidates(ask("bdev_rbd_get_clusters_info").map(|all| all.iter().map(cluster).collect()))
}

/// Other discovery controllers.
pub(super) fn referrals() -> Vec<CompletionCandidate> {
    let referral = |one: &Value| (shown(&one["address"]), String::new());
    candidates(ask("nvmf_discovery_get_referrals").map(|all| all.iter().map(referral).collect()))
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
        let nqn = |line: &str| option(line.split(' ').map(OsString::from), &["-n", "--nqn"]);
        let line = "roadtrain -- roadtrain ctl snapshot list -n nqn.x:y 1";
        assert_eq!(nqn(line).as_deref(), Some("nqn.x:y"));
    }
}
