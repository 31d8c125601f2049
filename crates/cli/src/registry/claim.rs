//! A place for a new attachment: no two of them have the same name, mountpoint or socket.

use super::entry::{DeviceEntry, Entry, Phase, write_entry};
use super::process::Process;
use super::{Registry, remove_folder};
use crate::failure::{Failure, Outcome};
use roadtrain_front::spec::FrontSpec;
use roadtrain_front::system_resource::SystemResource;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

/// Longest name of an attachment.
const ID_LENGTH_MAX: usize = 64;

/// What somebody wants to attach.
pub(crate) struct Claim<'a> {
    /// Its name; `None`: one is made up.
    pub id: Option<&'a str>,
    /// The front-end.
    pub spec: &'a FrontSpec,
    /// Where the target is.
    pub address: String,
    /// The subsystem.
    pub nqn: String,
}

/// An attachment's place. It is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Registration {
    registry: Registry,
    entry: Entry,
    /// What an earlier process left to be taken over.
    pub recovered: Vec<SystemResource>,
    /// What was done to have the place, for the log.
    pub notes: Vec<String>,
}

impl Registry {
    /// Writes a new attachment down. What a process that is gone has left in its place is removed.
    ///
    /// # Errors
    /// The place is taken, or what is left there cannot be removed.
    pub(crate) fn claim(&self, claim: &Claim) -> Outcome<Registration> {
        claim.id.map_or(Ok(()), check_id)?;
        let _lock = self.lock()?;
        let (recovered, notes) = self.make_room(claim)?;
        let id = claim.id.map_or_else(|| self.free_id(claim.spec), str::to_owned);
        let folder = self.folder(&id);
        let make = || -> io::Result<()> {
            remove_folder(&folder)?; // what was never finished
            DirBuilder::new().mode(0o700).create(&folder)
        };
        make().map_err(|e| Failure::failed(format!("{}: {e}", folder.display())))?;
        let wanted = claim.spec.resources();
        let more = recovered.iter().filter(|one| !wanted.contains(one));
        let resources = wanted.iter().chain(more).map(ToString::to_string).collect();
        let entry = Entry {
            id,
            spec: claim.spec.to_string(),
            address: claim.address.clone(),
            nqn: claim.nqn.clone(),
            process: Process::this(),
            phase: Phase::Starting,
            devices: Vec::new(),
            resources,
            log: None,
        };
        let registration = Registration { registry: self.clone(), entry, recovered, notes };
        registration.write()?;
        Ok(registration)
    }

    /// Sees to it that nobody is where the new one wants to be: what is to be taken over, and what was done.
    fn make_room(&self, claim: &Claim) -> Outcome<(Vec<SystemResource>, Vec<String>)> {
        let wanted = claim.spec.resources();
        let (mut recovered, mut notes) = (Vec::new(), Vec::new());
        for other in self.entries()? {
            let shares = other.resources().iter().any(|one| wanted.contains(one));
            if !shares && claim.id != Some(&other.id) {
                continue;
            }
            if other.process.is_alive() {
                return Err(taken(&other, claim));
            }
            recovered.extend(self.take_over(other, &mut notes)?);
        }
        Ok((recovered, notes))
    }

    /// Puts the place of a process that is gone in order; what stays is for the new one.
    fn take_over(&self, mut old: Entry, notes: &mut Vec<String>) -> Outcome<Vec<SystemResource>> {
        let (kept, gone): (Vec<_>, Vec<_>) =
            old.resources().into_iter().partition(SystemResource::is_recovered);
        old.resources = gone.iter().map(ToString::to_string).collect();
        let cleared = self.clear_locked(&old);
        let removed = cleared.removed.iter().map(|one| format!(", removed {one}"));
        notes.push(format!("process of {} is gone{}", old.id, removed.collect::<String>()));
        match cleared.stuck.first() {
            None => Ok(kept),
            Some(stuck) => Err(Failure::failed(format!("{stuck}, left by {}", old.id))),
        }
    }

    fn free_id(&self, spec: &FrontSpec) -> String {
        let mut numbers = 0..;
        let ids = numbers.by_ref().map(|number| format!("{}{number}", spec.kind()));
        let mut free =
            ids.filter(|id| matches!(Entry::read(&self.folder(id), self.owner), Ok(None)));
        free.next().unwrap_or_default()
    }
}

fn taken(other: &Entry, claim: &Claim) -> Failure {
    let Entry { id, process, .. } = other;
    let pid = process.pid;
    if claim.id == Some(id) {
        return Failure::failed(format!("--id {id}: process {pid} has that name: choose another"));
    }
    Failure::failed(format!(
        "--as {}: attachment {id} (process {pid}) is there: `roadtrain detach {id}`, or choose another place",
        claim.spec
    ))
}

/// A name is also a folder's.
pub(super) fn check_id(id: &str) -> Outcome {
    let good = |c: char| c.is_ascii_alphanumeric() || "-_.:@".contains(c);
    if id.is_empty() || id.len() > ID_LENGTH_MAX || id.starts_with('.') || !id.chars().all(good) {
        let rule = "write up to 64 letters, digits and -_.:@, no dot first";
        return Err(Failure::usage(format!("--id {id}: {rule}")));
    }
    Ok(())
}

impl Registration {
    /// Its name.
    pub(crate) fn id(&self) -> &str {
        &self.entry.id
    }

    /// Where its process answers.
    pub(crate) fn control_socket(&self) -> PathBuf {
        self.registry.control_socket(self.id())
    }

    /// A file of its own for the log.
    pub(crate) fn log_file(&self) -> PathBuf {
        self.registry.folder(self.id()).join("log")
    }

    /// Says where the log goes.
    ///
    /// # Errors
    /// It cannot be written down.
    pub(crate) fn set_log(&mut self, path: PathBuf) -> Outcome {
        self.entry.log = Some(path);
        self.write()
    }

    /// It can be used, or has changed: says what is shown and what would stay.
    ///
    /// # Errors
    /// It cannot be written down.
    pub(crate) fn update(
        &mut self,
        devices: Vec<DeviceEntry>,
        resources: &[SystemResource],
    ) -> Outcome {
        let resources = resources.iter().map(ToString::to_string).collect();
        let new = Entry { phase: Phase::Ready, devices, resources, ..self.entry.clone() };
        if new != self.entry {
            self.entry = new;
            self.write()?;
        }
        Ok(())
    }

    /// What would be left of it now.
    pub(crate) fn resources(&self) -> Vec<SystemResource> {
        self.entry.resources()
    }

    /// Removes what this process, which is about to end, would leave.
    pub(crate) fn undo(&self) {
        let mut stays = false;
        for resource in self.resources() {
            match &resource {
                // Ours: somebody listens there. Before it is ready it may be another one's.
                SystemResource::Socket(path) if self.entry.phase == Phase::Ready => {
                    let _ = fs::remove_file(path);
                }
                other if other.is_recovered() => stays = true,
                other => stays |= other.remove().is_err(),
            }
        }
        if !stays {
            self.remove();
        }
    }

    /// Removes the entry while it is ours: it may have been cleared, and its name used again. It stays for
    /// the next one when there was something to take over, and it has not come to that.
    fn remove(&self) {
        if self.entry.phase == Phase::Starting && !self.recovered.is_empty() {
            return;
        }
        let folder = self.registry.folder(self.id());
        if let Ok(Some(entry)) = Entry::read(&folder, self.registry.owner)
            && entry.process == self.entry.process
        {
            let _ = fs::remove_dir_all(folder);
        }
    }

    fn write(&self) -> Outcome {
        let folder = self.registry.folder(self.id());
        write_entry(&folder, &self.entry)
            .map_err(|e| Failure::failed(format!("{}: {e}", folder.display())))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.remove();
    }
}
