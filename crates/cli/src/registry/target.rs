//! Registry of targets on this machine: a directory for each running `serve`, in the same directory as the
//! attachments'.
//!
//! ```text
//! /run/roadtrain/targets/target0/entry.json     the entry, with its process
//!                               /control.sock   control socket of the process
//! ```

use super::entry::{FILE, write_entry};
use super::process::ProcessIdentity;
use super::{Registry, claim, directory, remove_folder};
use crate::failure::{CommandFailure, CommandResult};
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// A running target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TargetEntry {
    /// Its name here.
    pub id: String,
    /// Listeners: addresses, and interfaces as `ether:NAME`.
    pub listeners: Vec<String>,
    /// Its process.
    #[serde(flatten)]
    pub process: ProcessIdentity,
    /// Its configuration file.
    pub config: Option<PathBuf>,
}

/// Directory of a user's targets.
pub(crate) struct Targets(Registry);

impl Targets {
    /// Returns the targets of this user, whose directory may not exist yet.
    #[must_use]
    pub(crate) fn of_user() -> Targets {
        Targets::of(&Registry::of_user())
    }

    /// Returns the targets in the directory of `registry`.
    pub(crate) fn of(registry: &Registry) -> Targets {
        Targets(Registry { directory: registry.directory.join("targets"), owner: registry.owner })
    }

    /// Returns all running targets, by ID.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub(crate) fn entries(&self) -> CommandResult<Vec<TargetEntry>> {
        let mut entries = self.written()?;
        entries.retain(|entry| entry.process.is_alive());
        Ok(entries)
    }

    /// Returns all targets, by ID: running ones, and those whose process has ended without removing its entry.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub(crate) fn written(&self) -> CommandResult<Vec<TargetEntry>> {
        let Some(folders) = self.0.folders()? else { return Ok(Vec::new()) };
        let read = |folder: io::Result<fs::DirEntry>| {
            let folder = folder.ok()?.path();
            let text = directory::read(&folder.join(FILE), self.0.owner).ok()?;
            let mut entry: TargetEntry = serde_json::from_slice(&text).ok()?;
            entry.process.owner = self.0.owner;
            (folder.file_name()? == entry.id.as_str()).then_some(entry)
        };
        let mut entries: Vec<TargetEntry> = folders.filter_map(read).collect();
        entries.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(entries)
    }

    /// Removes the entry of a dead target; false if it runs or does not exist.
    ///
    /// # Errors
    /// The directory cannot be locked, or the entry not removed.
    pub(crate) fn clear(&self, id: &str) -> CommandResult<bool> {
        let is_gone = |entry: &TargetEntry| entry.id == id && !entry.process.is_alive();
        let _lock = self.0.lock()?;
        let is_there = self.written()?.iter().any(is_gone);
        if is_there {
            remove_folder(&self.0.folder(id)).map_err(|e| self.0.failure(&e))?;
        }
        Ok(is_there)
    }

    /// Returns the path of a target's control socket.
    pub(crate) fn control_socket(&self, id: &str) -> PathBuf {
        self.0.control_socket(id)
    }

    /// Registers a target, and removes entries of dead processes.
    ///
    /// # Errors
    /// The name is taken, or the directory cannot be written to.
    pub(crate) fn claim(&self, claim: &TargetClaim) -> CommandResult<TargetRegistration> {
        claim.id.map_or(Ok(()), claim::check_id)?;
        let _lock = self.0.lock()?;
        let mut taken = self.written()?;
        for gone in taken.extract_if(.., |entry| !entry.process.is_alive()) {
            remove_folder(&self.0.folder(&gone.id)).map_err(|e| self.0.failure(&e))?;
        }
        let is_free = |id: &String| taken.iter().all(|entry| entry.id != *id);
        let mut free = (0..).map(|number| format!("target{number}")).filter(is_free);
        let id = match claim.id {
            Some(id) if !is_free(&id.to_owned()) => {
                let message = format!("--id {id}: another target has that name: choose another");
                return Err(CommandFailure::failed(message));
            }
            Some(id) => id.to_owned(),
            None => free.next().unwrap_or_default(),
        };
        self.0.check_socket(&id)?;
        let (listeners, config) = (claim.listeners.clone(), claim.config.map(Path::to_owned));
        let entry = TargetEntry { id, listeners, process: ProcessIdentity::this(), config };
        let folder = self.0.folder(&entry.id);
        let make = || -> io::Result<()> {
            remove_folder(&folder)?; // an unfinished registration
            DirBuilder::new().mode(0o700).create(&folder)?;
            write_entry(&folder, &entry)
        };
        make().map_err(|e| CommandFailure::failed(format!("{}: {e}", folder.display())))?;
        Ok(TargetRegistration { entry, folder })
    }
}

/// Properties of a new target.
pub(crate) struct TargetClaim<'a> {
    /// Name; `None`: chosen by the registry.
    pub id: Option<&'a str>,
    /// Its listeners.
    pub listeners: Vec<String>,
    /// Its configuration file.
    pub config: Option<&'a Path>,
}

/// Registration of a target. It is removed on drop.
#[derive(Debug)]
pub(crate) struct TargetRegistration {
    /// Its entry.
    pub entry: TargetEntry,
    /// Its directory.
    pub folder: PathBuf,
}

impl TargetRegistration {
    /// Returns the path of the control socket.
    pub(crate) fn control_socket(&self) -> PathBuf {
        self.folder.join("control.sock")
    }
}

impl Drop for TargetRegistration {
    fn drop(&mut self) {
        let _ = remove_folder(&self.folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_have_separate_directories() {
        let directory = tempfile::tempdir().unwrap();
        let targets = Targets::of(&Registry::at(&directory.path().join("run")));
        let claim = |id| {
            let listeners = vec!["127.0.0.1:4420".to_owned()];
            targets.claim(&TargetClaim { id, listeners, config: None })
        };
        let ids = || -> Vec<String> {
            targets.entries().unwrap().into_iter().map(|entry| entry.id).collect()
        };
        assert!(ids().is_empty(), "no folder yet");
        let (first, disk) = (claim(None).unwrap(), claim(Some("disk")).unwrap());
        assert_eq!(
            (ids(), first.entry.id.as_str()),
            (vec!["disk".into(), "target0".into()], "target0")
        );
        assert!(claim(Some("disk")).unwrap_err().message.contains("choose another"));
        assert_eq!(claim(Some("../x")).unwrap_err().kind, crate::FailureKind::Usage);
        let mut gone = targets.entries().unwrap().remove(0);
        gone.process.started += 1;
        fs::write(disk.folder.join(FILE), serde_json::to_vec(&gone).unwrap()).unwrap();
        let again = claim(Some("disk")).unwrap();
        assert_eq!(again.control_socket(), targets.control_socket("disk"));
        drop((first, again));
        assert!(ids().is_empty());
    }
}
