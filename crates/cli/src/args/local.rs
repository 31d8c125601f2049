//! Names of what runs here, and of what it serves, for shells that complete them.

use super::known::{Names, PATIENCE, candidates, option};
use crate::control::{Call, SnapshotAction, SnapshotCall, socket};
use crate::registry::{Registry, TargetEntry, Targets};
use crate::running;
use clap_complete::CompletionCandidate;
use serde_json::Value;
use std::os::unix::net::UnixStream;

/// Running targets that the line may mean: the one that it names, or all.
fn meant() -> Vec<TargetEntry> {
    let mut all = Targets::of_user().entries().unwrap_or_default();
    if let Some(id) = option(std::env::args_os(), &["--id"]) {
        all.retain(|entry| *entry.id == *id);
    }
    all
}

/// Targets; where the line is about both, attachments as well.
pub(super) fn ids() -> Vec<CompletionCandidate> {
    let targets = Targets::of_user().entries().unwrap_or_default();
    let mut names: Names =
        targets.into_iter().map(|one| (one.id, one.listeners.join(", "))).collect();
    if std::env::args_os().any(|word| word == "trace") {
        let attached = Registry::of_user().entries().unwrap_or_default();
        names.extend(attached.into_iter().map(|one| (one.id, one.nqn)));
    }
    candidates(Some(names))
}

/// Attachments and targets that this user may look at.
pub(super) fn all_ids() -> Vec<CompletionCandidate> {
    let found = running::all().unwrap_or_default();
    let attached = found.attached.into_iter().map(|(one, _)| (one.id, one.nqn));
    let served = found.served.into_iter().map(|(one, _)| (one.id, one.listeners.join(", ")));
    candidates(Some(attached.chain(served).collect()))
}

/// Attachments of this user, and targets that are gone.
pub(super) fn detachable_ids() -> Vec<CompletionCandidate> {
    let attached = Registry::of_user().entries().unwrap_or_default().into_iter();
    let mut names: Names = attached.map(|one| (one.id, one.nqn)).collect();
    let gone = Targets::of_user().written().unwrap_or_default().into_iter();
    let gone = gone.filter(|one| !one.process.is_alive());
    names.extend(gone.map(|one| (one.id, "a target that is gone".to_owned())));
    candidates(Some(names))
}

/// Listeners, as `ctl ana` has them.
pub(super) fn listeners() -> Vec<CompletionCandidate> {
    let of = |entry: TargetEntry| {
        let name = |at: String| if at.starts_with("ether:") { "ether".to_owned() } else { at };
        entry.listeners.into_iter().map(move |at| (name(at), entry.id.clone()))
    };
    candidates(Some(meant().into_iter().flat_map(of).collect()))
}

/// What the only target that is meant has to say; nothing when there are several.
fn ask(call: &Call) -> Option<Value> {
    let [only] = &meant()[..] else { return None };
    let stream = UnixStream::connect(Targets::of_user().control_socket(&only.id)).ok()?;
    socket::ask_within(&stream, call, PATIENCE).ok()?.ok()
}

fn list<'a>(of: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    of[name].as_array().into_iter().flatten()
}

/// Subsystems.
pub(super) fn subsystems() -> Vec<CompletionCandidate> {
    let nqn = |one: &Value| (one["nqn"].as_str().unwrap_or_default().to_owned(), String::new());
    candidates(ask(&Call::Status).map(|status| list(&status, "subsystems").map(nqn).collect()))
}

/// The subsystem that the line names.
fn nqn() -> Option<String> {
    option(std::env::args_os(), &["-n", "--nqn", "--subnqn"])
}

/// Namespace IDs of that subsystem, or of all.
pub(super) fn nsids() -> Vec<CompletionCandidate> {
    let wanted = nqn();
    let is_meant = |one: &&Value| wanted.as_deref().is_none_or(|nqn| one["nqn"] == nqn);
    let nsids = |status: Value| {
        let subsystems = list(&status, "subsystems").filter(is_meant);
        let namespaces = subsystems.flat_map(|one| {
            let nqn = one["nqn"].as_str().unwrap_or_default();
            list(one, "namespaces").map(move |of| (of["nsid"].to_string(), nqn.to_owned()))
        });
        namespaces.collect()
    };
    candidates(ask(&Call::Status).map(nsids))
}

/// Snapshots of the namespace whose ID is in the line.
pub(super) fn snapshots() -> Vec<CompletionCandidate> {
    let words = std::env::args_os().skip_while(|word| word != "snapshot");
    let Some(nsid) = words.skip(1).find_map(|word| word.to_str()?.parse().ok()) else {
        return Vec::new();
    };
    let call = Call::Snapshots(SnapshotCall { nqn: nqn(), nsid, action: SnapshotAction::List });
    let name = |one: &Value| (one["name"].as_str().unwrap_or_default().to_owned(), String::new());
    candidates(ask(&call).map(|reply| list(&reply, "snapshots").map(name).collect()))
}
