//! `roadtrain status --prometheus`: all counters of what runs here, as a file that node_exporter collects.

use crate::control::{Call, socket};
use crate::failure::{Failure, Outcome};
use crate::output;
use crate::registry::{Registry, Targets};
use roadtrain_manage::metrics::textfile;
use roadtrain_reactor::metrics::Snapshot;
use std::path::PathBuf;

/// Prints what the processes say. One that does not answer is left out, and makes the exit status bad.
pub(super) fn run(names: &[String]) -> Outcome {
    let (mut snapshots, mut silent) = (Vec::new(), Vec::new());
    for (id, path) in sockets(names)? {
        match ask(&path) {
            Ok(snapshot) => snapshots.push(snapshot),
            Err(error) => silent.push(format!("{id}: {error}")),
        }
    }
    output::line(textfile(&snapshots).trim_end())?;
    if silent.is_empty() { Ok(()) } else { Err(Failure::failed(silent.join(", "))) }
}

fn sockets(names: &[String]) -> Outcome<Vec<(String, PathBuf)>> {
    let (registry, targets) = (Registry::of_user(), Targets::of_user());
    let attachments = registry.entries()?.into_iter().map(|entry| {
        let path = registry.control_socket(&entry.id);
        (entry.id, path)
    });
    let served = targets.entries()?.into_iter().map(|entry| {
        let path = targets.control_socket(&entry.id);
        (entry.id, path)
    });
    let all = attachments.chain(served);
    Ok(all.filter(|(id, _)| names.is_empty() || names.contains(id)).collect())
}

fn ask(path: &std::path::Path) -> Result<Snapshot, String> {
    let reply = socket::ask(path, &Call::Snapshot).map_err(|error| error.to_string())?;
    let snapshot = reply.map_err(|refusal| refusal.message.into_string())?;
    serde_json::from_value(snapshot).map_err(|error| error.to_string())
}
