//! Registration of a new attachment: no two have the same name, mountpoint or socket.

use super::entry::{AttachmentEntry, AttachmentPhase, DeviceEntry, write_entry};
use super::process::ProcessIdentity;
use super::{Registry, remove_folder};
use crate::failure::{CommandFailure, CommandResult};
use roadtrain_front::spec::FrontSpec;
use roadtrain_front::system_resource::SystemResource;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

/// Most bytes of an attachment's name.
const ID_LENGTH_MAX: usize = 64;

/// Properties of a new attachment.
pub(crate) struct AttachmentClaim<'a> {
    /// Name; `None`: chosen by the registry.
    pub id: Option<&'a str>,
    /// The front-end.
    pub spec: &'a FrontSpec,
    /// Address of the target.
    pub address: String,
    /// The subsystem.
    pub nqn: String,
}

/// Registration of an attachment. It is removed on drop.
#[derive(Debug)]
pub(crate) struct Registration {
    registry: Registry,
    entry: AttachmentEntry,
    /// Resources that an earlier process has left to be taken over.
    pub recovered: Vec<SystemResource>,
    /// Cleanup actions, for the log.
    pub notes: Vec<String>,
}

impl Registry {
    /// Registers a new attachment. Leftovers of a dead process in its place are removed.
    ///
    /// # Errors
    /// The name or a resource is taken, or leftovers cannot be removed.
    pub(crate) fn claim(&self, claim: &AttachmentClaim) -> CommandResult<Registration> {
        claim.id.map_or(Ok(()), check_id)?;
        let _lock = self.lock()?;
        let (recovered, notes) = self.claim_resources(claim)?;
        let id = claim.id.map_or_else(|| self.free_id(claim.spec), str::to_owned);
        self.check_socket(&id)?;
        let folder = self.folder(&id);
        let make = || -> io::Result<()> {
            remove_folder(&folder)?; // an unfinished registration
            DirBuilder::new().mode(0o700).create(&folder)
        };
        make().map_err(|e| CommandFailure::failed(format!("{}: {e}", folder.display())))?;
        let wanted = claim.spec.resources();
        let more = recovered.iter().filter(|one| !wanted.contains(one));
        let resources = wanted.iter().chain(more).map(ToString::to_string).collect();
        let entry = AttachmentEntry {
            id,
            spec: claim.spec.to_string(),
            address: claim.address.clone(),
            nqn: claim.nqn.clone(),
            process: ProcessIdentity::this(),
            phase: AttachmentPhase::Starting,
            devices: Vec::new(),
            resources,
            log: None,
        };
        let registration = Registration { registry: self.clone(), entry, recovered, notes };
        registration.write()?;
        Ok(registration)
    }

    /// Checks that no running attachment has the name or a resource. Returns the resources to take over, and the
    /// cleanup actions.
    fn claim_resources(
        &self,
        claim: &AttachmentClaim,
    ) -> CommandResult<(Vec<SystemResource>, Vec<String>)> {
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
            recovered.extend(self.recover(other, &mut notes)?);
        }
        Ok((recovered, notes))
    }

    /// Clears the registration of a dead process; returns the resources to take over.
    fn recover(
        &self,
        mut old: AttachmentEntry,
        notes: &mut Vec<String>,
    ) -> CommandResult<Vec<SystemResource>> {
        let (kept, gone): (Vec<_>, Vec<_>) =
            old.resources().into_iter().partition(SystemResource::is_recovered);
        old.resources = gone.iter().map(ToString::to_string).collect();
        let cleared = self.clear_locked(&old);
        let removed = cleared.removed.iter().map(|one| format!(", removed {one}"));
        notes.push(format!("process of {} is gone{}", old.id, removed.collect::<String>()));
        match cleared.stuck.first() {
            None => Ok(kept),
            Some(stuck) => Err(CommandFailure::failed(format!("{stuck}, left by {}", old.id))),
        }
    }

    fn free_id(&self, spec: &FrontSpec) -> String {
        let mut numbers = 0..;
        let ids = numbers.by_ref().map(|number| format!("{}{number}", spec.kind()));
        let mut free = ids
            .filter(|id| matches!(AttachmentEntry::read(&self.folder(id), self.owner), Ok(None)));
        free.next().unwrap_or_default()
    }
}

fn taken(other: &AttachmentEntry, claim: &AttachmentClaim) -> CommandFailure {
    let AttachmentEntry { id, process, .. } = other;
    let pid = process.pid;
    if claim.id == Some(id) {
        return CommandFailure::failed(format!(
            "--id {id}: process {pid} has that name: choose another"
        ));
    }
    CommandFailure::failed(format!(
        "--as {}: attachment {id} (process {pid}) is there: `roadtrain detach {id}`, or choose another place",
        claim.spec
    ))
}

/// Checks a name, which is also a directory's name.
pub(super) fn check_id(id: &str) -> CommandResult {
    let good = |c: char| c.is_ascii_alphanumeric() || "-_.:@".contains(c);
    if id.is_empty() || id.len() > ID_LENGTH_MAX || id.starts_with('.') || !id.chars().all(good) {
        let rule = "write up to 64 letters, digits and -_.:@, no dot first";
        return Err(CommandFailure::usage(format!("--id {id}: {rule}")));
    }
    Ok(())
}

impl Registration {
    /// Returns the name.
    pub(crate) fn id(&self) -> &str {
        &self.entry.id
    }

    /// Returns the path of the process's control socket.
    pub(crate) fn control_socket(&self) -> PathBuf {
        self.registry.control_socket(self.id())
    }

    /// Returns the path of a separate log file.
    pub(crate) fn log_file(&self) -> PathBuf {
        self.registry.folder(self.id()).join("log")
    }

    /// Records the path of the log.
    ///
    /// # Errors
    /// The entry cannot be written.
    pub(crate) fn set_log(&mut self, path: PathBuf) -> CommandResult {
        self.entry.log = Some(path);
        self.write()
    }

    /// Records the devices and the resources to clean up of a ready attachment, if they have changed.
    ///
    /// # Errors
    /// The entry cannot be written.
    pub(crate) fn update(
        &mut self,
        devices: Vec<DeviceEntry>,
        resources: &[SystemResource],
    ) -> CommandResult {
        let resources = resources.iter().map(ToString::to_string).collect();
        let new = AttachmentEntry {
            phase: AttachmentPhase::Ready,
            devices,
            resources,
            ..self.entry.clone()
        };
        if new != self.entry {
            self.entry = new;
            self.write()?;
        }
        Ok(())
    }

    /// Returns the resources that a sudden end would leave now.
    pub(crate) fn resources(&self) -> Vec<SystemResource> {
        self.entry.resources()
    }

    /// Removes the resources of this process, which is about to end.
    pub(crate) fn clean_up(&self) {
        let mut stays = false;
        for resource in self.resources() {
            match &resource {
                // This process listens there. Before it is ready, the socket may belong to another one.
                SystemResource::Socket(path) if self.entry.phase == AttachmentPhase::Ready => {
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

    /// Removes the entry if this process still owns it: another process may have cleared it and taken the name. The
    /// entry stays for the next process if resources were to be taken over and this one has not become ready.
    fn remove(&self) {
        if self.entry.phase == AttachmentPhase::Starting && !self.recovered.is_empty() {
            return;
        }
        let folder = self.registry.folder(self.id());
        if let Ok(Some(entry)) = AttachmentEntry::read(&folder, self.registry.owner)
            && entry.process == self.entry.process
        {
            let _ = fs::remove_dir_all(folder);
        }
    }

    fn write(&self) -> CommandResult {
        let folder = self.registry.folder(self.id());
        write_entry(&folder, &self.entry)
            .map_err(|e| CommandFailure::failed(format!("{}: {e}", folder.display())))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.remove();
    }
}
