//! `roadtrain status --prometheus`: all counters of the processes here, as a file for node_exporter.

use crate::control::Call;
use crate::failure::{CommandFailure, CommandResult};
use crate::output;
use crate::running::{self, RunningEntries};
use roadtrain_manage::metrics::textfile;
use roadtrain_reactor::metrics::MetricsSnapshot;
use std::path::PathBuf;

/// Prints the counters of the processes. One that does not reply is left out, and makes the command fail.
pub(super) fn run(names: &[String]) -> CommandResult {
    let (mut snapshots, mut silent) = (Vec::new(), Vec::new());
    for (id, path, owner) in sockets(names)? {
        match running::query::<MetricsSnapshot>((&path, owner), &Call::Snapshot) {
            Ok(snapshot) => snapshots.push(snapshot),
            Err(error) => silent.push(format!("{id}: {error}")),
        }
    }
    output::line(textfile(&snapshots).trim_end())?;
    if silent.is_empty() { Ok(()) } else { Err(CommandFailure::failed(silent.join(", "))) }
}

fn sockets(names: &[String]) -> CommandResult<Vec<(String, PathBuf, u32)>> {
    let RunningEntries { attached, served } = running::all()?;
    let attached = attached.into_iter().map(|(entry, path)| (entry.id, path, entry.process.owner));
    let served = served.into_iter().map(|(entry, path)| (entry.id, path, entry.process.owner));
    let all = attached.chain(served);
    Ok(all.filter(|(id, ..)| names.is_empty() || names.contains(id)).collect())
}
