//! What runs here and can be asked: attachments, and targets.

use crate::connect::split_port;
use crate::control::{Call, socket};
use crate::failure::Outcome;
use crate::registry::{Entry, Registry, TargetEntry, Targets};
use serde::de::DeserializeOwned;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Attachments, then targets.
pub(crate) type Found = (Vec<Entry>, Vec<TargetEntry>);

/// Those that are called so; all if there is no name.
///
/// # Errors
/// Nothing here is called so.
pub(crate) fn find(names: &[String]) -> Outcome<Found> {
    let (registry, targets) = (Registry::of_user(), Targets::of_user());
    let mut served = targets.entries()?;
    let mut entries = Vec::new();
    for name in names {
        match served.iter().any(|target| target.id == *name) {
            true => entries.extend(registry.find(name)?),
            false => entries.extend(registry.find_some(name)?),
        }
    }
    if names.is_empty() {
        entries = registry.entries()?;
    } else {
        served.retain(|target| names.contains(&target.id));
    }
    entries.sort_by(|a, b| a.id.cmp(&b.id));
    entries.dedup_by(|a, b| a.id == b.id);
    Ok((entries, served))
}

/// A process that can be asked.
pub(crate) struct Process {
    pub(crate) id: String,
    pub(crate) socket: PathBuf,
}

/// Processes that are called so; of those, when there are addresses, targets that listen at one of them and attachments
/// that lead to one.
///
/// # Errors
/// Nothing here is called so; an address that is none.
pub(crate) fn processes(names: &[String], addresses: &[String]) -> Outcome<Vec<Process>> {
    for address in addresses {
        split_port(without_tcp(address), 0)?;
    }
    let (registry, targets) = (Registry::of_user(), Targets::of_user());
    let (mut entries, mut served) = find(names)?;
    if !addresses.is_empty() {
        entries.retain(|entry| is_at(&entry.address, addresses));
        let listens = |entry: &TargetEntry| entry.listeners.iter().any(|at| is_at(at, addresses));
        served.retain(listens);
    }
    let attached = entries.into_iter().filter(|entry| entry.process.is_alive()).map(|entry| {
        let socket = registry.control_socket(&entry.id);
        Process { id: entry.id, socket }
    });
    let served = served.into_iter().map(|entry| {
        let socket = targets.control_socket(&entry.id);
        Process { id: entry.id, socket }
    });
    Ok(attached.chain(served).collect())
}

/// An address may stand behind the name of its transport.
pub(crate) fn without_tcp(address: &str) -> &str {
    address.strip_prefix("tcp:").unwrap_or(address)
}

/// Whether a place is at one of the addresses, of which those without a port mean any.
pub(crate) fn is_at(place: &str, addresses: &[String]) -> bool {
    addresses.iter().any(|asked| match split_port(without_tcp(asked), 0) {
        _ if asked == place => true,
        Ok((host, 0)) => split_port(place, 0).is_ok_and(|(of, _)| of == host),
        asked => split_port(place, 0).is_ok_and(|of| asked.is_ok_and(|asked| of == asked)),
    })
}

/// What a process answers, or why it does not.
pub(crate) fn ask<T: DeserializeOwned>(socket: &Path, call: &Call) -> Result<T, String> {
    let reply = socket::ask(socket, call).map_err(|error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => "its process does not answer".into(),
        _ => error.to_string(),
    })?;
    let answer = reply.map_err(|refusal| refusal.message.into_string())?;
    serde_json::from_value(answer).map_err(|e| format!("an answer that makes no sense: {e}"))
}
