//! Attachments and targets that run here, of this user; for root, of every user.

use crate::connect::split_port;
use crate::control::{Call, socket};
use crate::failure::{CommandFailure, CommandResult};
use crate::registry::{self, AttachmentEntry, Registry, TargetEntry, Targets};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use tracing::warn;

/// Registry entries, each with the control socket of its process.
#[derive(Default)]
pub(crate) struct RunningEntries {
    pub(crate) attached: Vec<(AttachmentEntry, PathBuf)>,
    pub(crate) served: Vec<(TargetEntry, PathBuf)>,
}

/// Returns all entries, including those of dead processes.
///
/// # Errors
/// The directory of this user cannot be read. That of another user is left out.
pub(crate) fn all() -> CommandResult<RunningEntries> {
    let mut found = RunningEntries::default();
    for (number, registry) in Registry::visible().into_iter().enumerate() {
        match found.add(&registry) {
            Err(failure) if number > 0 => warn!("{}", failure.message),
            added => added?,
        }
    }
    found.attached.sort_by(|(a, _), (b, _)| a.id.cmp(&b.id));
    found.served.sort_by(|(a, _), (b, _)| a.id.cmp(&b.id));
    Ok(found)
}

/// Returns the entries that the names mean: an ID, or any other name of an attachment; all without names.
///
/// # Errors
/// A name that is unknown; the directory of this user cannot be read.
pub(crate) fn find(names: &[String]) -> CommandResult<RunningEntries> {
    let mut found = all()?;
    if names.is_empty() {
        return Ok(found);
    }
    let mut is_meant = vec![false; found.attached.len()];
    for name in names {
        let is_id = |(entry, _): &(AttachmentEntry, PathBuf)| entry.id == *name;
        let has_id = found.attached.iter().any(is_id);
        let mut is_known = found.served.iter().any(|(entry, _)| entry.id == *name);
        for (one, is_meant) in found.attached.iter().zip(&mut is_meant) {
            let is_this = if has_id { is_id(one) } else { one.0.is_called(name) };
            *is_meant |= is_this;
            is_known |= is_this;
        }
        if !is_known {
            return Err(nothing(format!("is called {name}")));
        }
    }
    let mut is_meant = is_meant.into_iter();
    found.attached.retain(|_| is_meant.next().unwrap_or_default());
    found.served.retain(|(entry, _)| names.contains(&entry.id));
    Ok(found)
}

fn nothing(is: String) -> CommandFailure {
    CommandFailure::failed(format!("nothing here {is}: `roadtrain list` shows what there is"))
}

impl RunningEntries {
    fn add(&mut self, registry: &Registry) -> CommandResult {
        let targets = Targets::of(registry);
        let attached = registry.entries()?.into_iter();
        self.attached.extend(attached.map(|entry| {
            let socket = registry.control_socket(&entry.id);
            (entry, socket)
        }));
        let served = targets.written()?.into_iter();
        self.served.extend(served.map(|entry| {
            let socket = targets.control_socket(&entry.id);
            (entry, socket)
        }));
        Ok(())
    }

    /// Keeps targets that listen at one of the addresses, and attachments with a path to one of them; all without
    /// addresses.
    ///
    /// # Errors
    /// An invalid address; or no process is at any of them.
    pub(crate) fn at(mut self, addresses: &[String]) -> CommandResult<RunningEntries> {
        if addresses.is_empty() {
            return Ok(self);
        }
        for address in addresses.iter().filter(|address| !address.starts_with("ether:")) {
            let (host, _) = split_port(without_tcp(address), 0)?;
            if host.is_empty() {
                let form = "write ADDRESS or ADDRESS:PORT, such as 192.0.2.7:4420";
                return Err(CommandFailure::usage(format!(
                    "-a '{address}': the address is empty: {form}"
                )));
            }
        }
        self.attached.retain(|(entry, socket)| {
            is_at(&entry.address, addresses) || has_path(entry, socket, addresses)
        });
        self.served.retain(|(entry, _)| entry.listeners.iter().any(|at| is_at(at, addresses)));
        if self.attached.is_empty() && self.served.is_empty() {
            return Err(nothing(format!("leads to or listens at {}", addresses.join(", "))));
        }
        Ok(self)
    }
}

/// True if the attachment has a path to one of the addresses, by its process.
fn has_path(entry: &AttachmentEntry, socket: &Path, addresses: &[String]) -> bool {
    /// The paths of a status.
    #[derive(Deserialize)]
    struct StatusPaths {
        paths: Vec<StatusPath>,
    }
    #[derive(Deserialize)]
    struct StatusPath {
        address: String,
    }
    if !entry.process.is_alive() {
        return false;
    }
    let status = query::<StatusPaths>((socket, entry.process.owner), &Call::Status);
    status.is_ok_and(|status| status.paths.iter().any(|path| is_at(&path.address, addresses)))
}

/// A process with a control socket.
pub(crate) struct ControlledProcess {
    pub(crate) id: String,
    pub(crate) socket: PathBuf,
    /// The user that it runs as.
    pub(crate) owner: u32,
}

/// Returns the running processes with these names. With addresses, only targets that listen at one of them, and
/// attachments that connect to one.
///
/// # Errors
/// A name that is unknown here; an invalid address.
pub(crate) fn processes(
    names: &[String],
    addresses: &[String],
) -> CommandResult<Vec<ControlledProcess>> {
    let RunningEntries { attached, served } = find(names)?.at(addresses)?;
    let attached = attached.into_iter().map(|(entry, socket)| (entry.id, entry.process, socket));
    let served = served.into_iter().map(|(entry, socket)| (entry.id, entry.process, socket));
    let alive = attached.chain(served).filter(|(_, process, _)| process.is_alive());
    let process = |(id, process, socket): (String, registry::ProcessIdentity, PathBuf)| {
        ControlledProcess { id, socket, owner: process.owner }
    };
    Ok(alive.map(process).collect())
}

/// Removes the name of the transport before an address.
pub(crate) fn without_tcp(address: &str) -> &str {
    address.strip_prefix("tcp:").unwrap_or(address)
}

/// True if a place is one of the addresses; an address without a port means any port.
pub(crate) fn is_at(place: &str, addresses: &[String]) -> bool {
    addresses.iter().any(|wanted| match split_port(without_tcp(wanted), 0) {
        _ if wanted == place => true,
        Ok((host, 0)) => split_port(place, 0).is_ok_and(|(of, _)| of == host),
        wanted => split_port(place, 0).is_ok_and(|of| wanted.is_ok_and(|wanted| of == wanted)),
    })
}

/// Returns the reply of a process of `owner` at `socket`, or the reason why there is none.
pub(crate) fn query<T: DeserializeOwned>(
    (socket, owner): (&Path, u32),
    call: &Call,
) -> Result<T, String> {
    let reply = socket::call_user(socket, owner, call).map_err(|error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => "its process does not answer".into(),
        _ => error.to_string(),
    })?;
    let answer = reply.map_err(|refusal| refusal.message.into_string())?;
    serde_json::from_value(answer).map_err(|e| format!("an invalid reply: {e}"))
}
