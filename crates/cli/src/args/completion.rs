//! Shell completion of names: running processes and the objects that they serve.

use crate::control::{Call, SnapshotAction, SnapshotCall};
use crate::registry::{Registry, TargetEntry, Targets};
use crate::running;
use clap_complete::CompletionCandidate;
use roadtrain_manage::rpc::client;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Longest wait for the target: a key press must not seem to hang.
pub(super) const REPLY_WAIT: Duration = Duration::from_millis(500);

/// Names with their descriptions.
pub(super) type CompletionNames = BTreeMap<String, String>;

pub(super) fn candidates(names: Option<CompletionNames>) -> Vec<CompletionCandidate> {
    let candidate = |(name, what): (String, String)| {
        CompletionCandidate::new(name).help((!what.is_empty()).then(|| what.into()))
    };
    names.unwrap_or_default().into_iter().map(candidate).collect()
}

/// Returns the value of an option on the command line, before or behind the word that is completed.
pub(super) fn option(words: impl Iterator<Item = OsString>, names: &[&str]) -> Option<String> {
    let mut words = words.skip_while(|word| word != "--").map(|word| word.into_string());
    while let Some(word) = words.next() {
        let Ok(word) = word else { continue };
        let value = match word.split_once('=') {
            Some((name, value)) if names.contains(&name) => Some(value.to_owned()),
            _ if names.contains(&&*word) => words.next().and_then(Result::ok),
            _ => None,
        };
        if value.is_some() {
            return value;
        }
    }
    None
}

/// Returns the running targets that the command line may mean: the one that it names, or all.
fn named_targets() -> Vec<(TargetEntry, PathBuf)> {
    let mut all = running::all().unwrap_or_default().served;
    all.retain(|(entry, _)| entry.process.is_alive());
    if let Some(id) = option(std::env::args_os(), &["--id"]) {
        all.retain(|(entry, _)| *entry.id == *id);
    }
    all
}

/// Returns the control socket of the target that the command line means, if it is exactly one.
fn socket() -> Option<PathBuf> {
    let named = option(std::env::args_os(), &["--rpc"]).map(PathBuf::from);
    named.or_else(|| match &named_targets()[..] {
        [(_, socket)] => Some(socket.clone()),
        _ => None,
    })
}

/// Returns the result of a method of the target; `None` without a target.
fn call(method: &str, params: &Value) -> Option<Value> {
    client::call_within(REPLY_WAIT, &socket()?, method, params).ok()?.ok()
}

/// Returns the list that a method of the target returns.
fn query_list(method: &str) -> Option<Vec<Value>> {
    match call(method, &Value::Null) {
        Some(Value::Array(all)) => Some(all),
        _ => None,
    }
}

/// Completes names of targets; where the command is about both, of attachments as well.
pub(super) fn ids() -> Vec<CompletionCandidate> {
    if std::env::args_os().any(|word| word == "trace") {
        return all_ids();
    }
    let targets = running::all().unwrap_or_default().served.into_iter();
    let alive = targets.filter(|(one, _)| one.process.is_alive());
    candidates(Some(alive.map(|(one, _)| (one.id, one.listeners.join(", "))).collect()))
}

/// Completes names of attachments and targets that this user may see.
pub(super) fn all_ids() -> Vec<CompletionCandidate> {
    let found = running::all().unwrap_or_default();
    let attached = found.attached.into_iter().map(|(one, _)| (one.id, one.nqn));
    let served = found.served.into_iter().map(|(one, _)| (one.id, one.listeners.join(", ")));
    candidates(Some(attached.chain(served).collect()))
}

/// Completes names of this user's attachments, and of targets whose process has ended.
pub(super) fn detachable_ids() -> Vec<CompletionCandidate> {
    let attached = Registry::of_user().entries().unwrap_or_default().into_iter();
    let mut names: CompletionNames = attached.map(|one| (one.id, one.nqn)).collect();
    let gone = Targets::of_user().written().unwrap_or_default().into_iter();
    let gone = gone.filter(|one| !one.process.is_alive());
    names.extend(gone.map(|one| (one.id, "a target that is gone".to_owned())));
    candidates(Some(names))
}

/// Returns the subsystem that the command line names.
fn nqn() -> Option<String> {
    option(std::env::args_os(), &["-n", "--nqn"])
}

/// Completes snapshots of the namespace that the command line names.
pub(super) fn snapshots() -> Vec<CompletionCandidate> {
    let nsid = option(std::env::args_os(), &["--nsid"]).and_then(|text| text.parse().ok());
    let Some(nsid) = nsid else { return Vec::new() };
    let call = Call::Snapshots(SnapshotCall { nqn: nqn(), nsid, action: SnapshotAction::List });
    let (method, params) = call.request();
    let name = |one: &Value| (text(&one["name"]), String::new());
    let reply = self::call(&method, &params);
    candidates(reply.map(|reply| list(&reply, "snapshots").map(name).collect()))
}

/// Completes devices and volumes that no namespace has yet.
pub(super) fn specs() -> Vec<CompletionCandidate> {
    let free = |one: &&Value| one["claimed"] != true;
    // A volume has its store in its alias.
    let name = |one: &Value| {
        let alias = one["aliases"][0].as_str().filter(|alias| alias.contains('/'));
        alias.map_or_else(|| text(&one["name"]), str::to_owned)
    };
    let spec = |one: &Value| (format!("device:{}", name(one)), text(&one["product_name"]));
    candidates(query_list("bdev_get_bdevs").map(|all| all.iter().filter(free).map(spec).collect()))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Completes devices.
pub(super) fn devices() -> Vec<CompletionCandidate> {
    let device = |one: &Value| (text(&one["name"]), text(&one["product_name"]));
    candidates(query_list("bdev_get_bdevs").map(|all| all.iter().map(device).collect()))
}

/// Completes volumes and snapshots, as STORE/NAME.
pub(super) fn volumes() -> Vec<CompletionCandidate> {
    let kind = |one: &Value| if one["is_snapshot"] == true { "snapshot" } else { "volume" };
    let volume = |one: &Value| (text(&one["alias"]), kind(one).to_owned());
    candidates(query_list("bdev_lvol_get_lvols").map(|all| all.iter().map(volume).collect()))
}

/// Completes stores of volumes.
pub(super) fn stores() -> Vec<CompletionCandidate> {
    let store = |one: &Value| (text(&one["name"]), text(&one["base_bdev"]));
    candidates(query_list("bdev_lvol_get_lvstores").map(|all| all.iter().map(store).collect()))
}

/// Returns the names that `list` takes from each subsystem except the discovery subsystem.
fn names_of_subsystems(list: impl Fn(&Value) -> CompletionNames) -> Option<CompletionNames> {
    let all = query_list("nvmf_get_subsystems")?;
    Some(all.iter().filter(|one| one["subtype"] == "NVMe").flat_map(&list).collect())
}

fn of_subsystems(list: impl Fn(&Value) -> CompletionNames) -> Vec<CompletionCandidate> {
    candidates(names_of_subsystems(list))
}

fn list<'a>(of: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    of[name].as_array().into_iter().flatten()
}

/// Completes subsystems.
pub(super) fn subsystems() -> Vec<CompletionCandidate> {
    of_subsystems(|one| [(text(&one["nqn"]), text(&one["serial_number"]))].into())
}

/// Completes hosts that are allowed or limited by name, or connected.
pub(super) fn hosts() -> Vec<CompletionCandidate> {
    let named = names_of_subsystems(|one| {
        let named = list(one, "hosts").map(|host| text(&host["nqn"]));
        let limited = one["host_limits"].as_object().into_iter().flatten();
        let all = named.chain(limited.map(|(host, _)| host.clone()));
        all.map(|host| (host, String::new())).collect()
    });
    let mut all = named.unwrap_or_default();
    let (method, params) = Call::Status.request();
    let status = call(&method, &params).unwrap_or_default();
    let controllers = list(&status, "subsystems").flat_map(|one| list(one, "controllers"));
    all.extend(controllers.map(|one| (text(&one["host_nqn"]), "connected".to_owned())));
    candidates(Some(all))
}

/// Formats an address with its port.
fn shown(at: &Value) -> String {
    let (address, port) = (text(&at["traddr"]), text(&at["trsvcid"]));
    if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") }
}

/// Completes listeners of the targets that the command line may mean.
pub(super) fn listeners() -> Vec<CompletionCandidate> {
    let of = |(entry, _): (TargetEntry, PathBuf)| {
        let name = |at: String| if at.starts_with("ether:") { "ether".to_owned() } else { at };
        entry.listeners.into_iter().map(move |at| (name(at), entry.id.clone()))
    };
    candidates(Some(named_targets().into_iter().flat_map(of).collect()))
}

/// Completes addresses of what runs here: listeners of targets, and targets of attachments.
pub(super) fn all_addresses() -> Vec<CompletionCandidate> {
    let found = running::all().unwrap_or_default();
    let attached = found.attached.into_iter().map(|(one, _)| (one.address, one.id));
    let served = found.served.into_iter();
    let served =
        served.flat_map(|(one, _)| one.listeners.into_iter().map(move |at| (at, one.id.clone())));
    candidates(Some(attached.chain(served).collect()))
}

/// Completes namespace IDs of the subsystem that the command line names, or of all.
pub(super) fn nsids() -> Vec<CompletionCandidate> {
    let wanted = nqn();
    let namespace = |one: &Value| (one["nsid"].to_string(), text(&one["bdev_name"]));
    of_subsystems(|one| {
        let is_meant = wanted.as_deref().is_none_or(|nqn| one["nqn"] == nqn);
        list(one, "namespaces").filter(|_| is_meant).map(namespace).collect()
    })
}

/// Completes keys.
pub(super) fn keys() -> Vec<CompletionCandidate> {
    let key = |one: &Value| (text(&one["name"]), text(&one["path"]));
    candidates(query_list("keyring_get_keys").map(|all| all.iter().map(key).collect()))
}

/// Completes Ceph clusters.
pub(super) fn clusters() -> Vec<CompletionCandidate> {
    let cluster = |one: &Value| (text(&one["cluster_name"]), text(&one["config_file"]));
    candidates(
        query_list("bdev_rbd_get_clusters_info").map(|all| all.iter().map(cluster).collect()),
    )
}

/// Completes referrals to other discovery controllers.
pub(super) fn referrals() -> Vec<CompletionCandidate> {
    let referral = |one: &Value| (shown(&one["address"]), String::new());
    candidates(
        query_list("nvmf_discovery_get_referrals").map(|all| all.iter().map(referral).collect()),
    )
}

/// Completes methods of JSON-RPC.
pub(super) fn methods() -> Vec<CompletionCandidate> {
    let method = |one: &Value| (text(one), String::new());
    candidates(query_list("rpc_get_methods").map(|all| all.iter().map(method).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_those_of_the_line() {
        let of = |line: &str, name: &str| option(line.split(' ').map(OsString::from), &[name]);
        let line = "roadtrain -- roadtrain ctl --rpc /a device remove";
        assert_eq!(of(line, "--rpc").as_deref(), Some("/a"));
        let line = "roadtrain -- roadtrain ctl device remove x --rpc=/b";
        assert_eq!(of(line, "--rpc").as_deref(), Some("/b"));
        assert_eq!(of("roadtrain -- roadtrain ctl device remove", "--rpc"), None);
        assert_eq!(of("roadtrain -- roadtrain ctl device remove --rpc", "--rpc"), None);
    }
}
