//! Registry of attachments on this machine: a directory for each attachment, in a directory of this user.
//!
//! ```text
//! /run/roadtrain/nbd0/entry.json     the entry, with its process
//!                    /control.sock   control socket of the process
//!                    /log            its log, if it runs in the background
//!              /.open-nbd0.json       writes that may still be executed after its end
//! ```
//!
//! | file | purpose |
//! |---|---|
//! | `directory` | directories of users' attachments |
//! | `entry` | registry entry of an attachment |
//! | `open_writes` | writes that may still be executed after their attachment has ended |
//! | `process` | identity of the process that wrote an entry |
//! | `claim` | registration of a new attachment |
//! | `target` | registry of targets |

mod claim;
mod directory;
mod entry;
mod open_writes;
mod process;
mod target;

pub(crate) use claim::{AttachmentClaim, Registration};
pub(crate) use entry::{AttachmentEntry, AttachmentPhase, DeviceEntry, write_entry};
pub(crate) use open_writes::WritesSender;
pub(crate) use process::ProcessIdentity;
pub(crate) use target::{TargetClaim, TargetEntry, TargetRegistration, Targets};

use crate::addresses::{SOCKET_PATH_BYTES_MAX, check_socket_path};
use crate::failure::{CommandFailure, CommandResult};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use tracing::warn;

/// Directory of a user's attachments.
#[derive(Clone, Debug)]
pub(crate) struct Registry {
    directory: PathBuf,
    owner: u32,
}

impl Registry {
    /// Returns the registry of this user, which may not exist yet.
    #[must_use]
    pub(crate) fn of_user() -> Registry {
        Registry { directory: directory::of_user(), owner: directory::user_id() }
    }

    /// Returns all registries that this user may read, its own first: root reads those of other users. Only the owner
    /// makes changes.
    #[must_use]
    pub(crate) fn visible() -> Vec<Registry> {
        let of = |(directory, owner)| Registry { directory, owner };
        directory::visible().into_iter().map(of).collect()
    }

    #[cfg(test)]
    pub(crate) fn at(directory: &Path) -> Registry {
        Registry { directory: directory.to_owned(), owner: directory::user_id() }
    }

    /// Returns all attachments, by ID, including those of dead processes.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub(crate) fn entries(&self) -> CommandResult<Vec<AttachmentEntry>> {
        let Some(folders) = self.folders()? else { return Ok(Vec::new()) };
        let mut entries = Vec::new();
        for folder in folders {
            let path = folder.map_err(|e| self.failure(&e))?.path();
            match AttachmentEntry::read(&path, self.owner) {
                Ok(entry) => entries.extend(entry),
                Err(error) => warn!("{}: {error}", path.display()),
            }
        }
        entries.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(entries)
    }

    /// Lists the directory; `None` if it does not exist.
    fn folders(&self) -> CommandResult<Option<fs::ReadDir>> {
        let checked = directory::check(&self.directory, self.owner);
        match checked.and_then(|()| fs::read_dir(&self.directory)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            folders => folders.map(Some).map_err(|e| self.failure(&e)),
        }
    }

    /// Returns the attachments that `name` may mean: an ID, a front-end, a device, a path, an NQN.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub(crate) fn find(&self, name: &str) -> CommandResult<Vec<AttachmentEntry>> {
        let mut entries = self.entries()?;
        if let Some(by_id) = entries.iter().find(|entry| entry.id == name) {
            return Ok(vec![by_id.clone()]);
        }
        entries.retain(|entry| entry.is_called(name));
        Ok(entries)
    }

    /// As [`Registry::find`].
    ///
    /// # Errors
    /// No attachment has that name.
    pub(crate) fn find_some(&self, name: &str) -> CommandResult<Vec<AttachmentEntry>> {
        let found = self.find(name)?;
        if found.is_empty() {
            let advice = "`roadtrain list` shows what is";
            return Err(CommandFailure::failed(format!(
                "nothing here is attached as {name}: {advice}"
            )));
        }
        Ok(found)
    }

    /// Returns the path of an attachment's control socket.
    pub(crate) fn control_socket(&self, id: &str) -> PathBuf {
        self.folder(id).join("control.sock")
    }

    fn folder(&self, id: &str) -> PathBuf {
        self.directory.join(id)
    }

    /// Removes the resources of a dead process, and its entry if none is left. Returns the removed and the remaining
    /// resources.
    ///
    /// # Errors
    /// The directory cannot be locked.
    pub(crate) fn clear(&self, entry: &AttachmentEntry) -> CommandResult<Cleared> {
        let _lock = self.lock()?;
        Ok(self.clear_locked(entry))
    }

    fn clear_locked(&self, entry: &AttachmentEntry) -> Cleared {
        let mut cleared = Cleared::default();
        if entry.process.is_alive() {
            return cleared; // taken over meanwhile
        }
        for resource in entry.resources() {
            match resource.remove() {
                Ok(true) => cleared.removed.push(resource.to_string()),
                Ok(false) => {}
                Err(error) => cleared.stuck.push(format!("{resource}: {error}")),
            }
        }
        if cleared.stuck.is_empty()
            && let Err(error) = remove_folder(&self.folder(&entry.id))
        {
            cleared.stuck.push(format!("{}: {error}", entry.id));
        }
        cleared
    }

    /// Creates the directory, and locks it against changes by other processes.
    fn lock(&self) -> CommandResult<File> {
        directory::make(&self.directory).map_err(|e| {
            if e.raw_os_error() == Some(libc::ENAMETOOLONG) {
                return self.failure(&e);
            }
            let text = format!("{e}: name another folder with {}", directory::OVERRIDE);
            self.failure(&io::Error::new(e.kind(), text))
        })?;
        let file = File::create(self.directory.join(".lock"));
        file.and_then(|file| file.lock().map(|()| file)).map_err(|e| self.failure(&e))
    }

    /// Checks that the process called `id` can have a control socket in its directory.
    fn check_socket(&self, id: &str) -> CommandResult {
        let checked = check_socket_path(&self.control_socket(id), 0);
        checked.map_err(|problem| {
            CommandFailure::failed(format!("{problem} ({} names its folder)", directory::OVERRIDE))
        })
    }

    fn failure(&self, error: &io::Error) -> CommandFailure {
        let directory = self.directory.display();
        let is_too_long = error.raw_os_error() == Some(libc::ENAMETOOLONG);
        CommandFailure::failed(match is_too_long {
            true => {
                let bytes = self.directory.as_os_str().len();
                format!(
                    "{directory}: the path of this folder has {bytes} bytes, and that of a socket in it \
                     {SOCKET_PATH_BYTES_MAX} at most: name a shorter one with {}",
                    directory::OVERRIDE
                )
            }
            false => format!("{directory}: {error}"),
        })
    }
}

/// Result of the cleanup after a process.
#[derive(Debug, Default)]
pub(crate) struct Cleared {
    /// Removed resources.
    pub removed: Vec<String>,
    /// Remaining resources, with the reason.
    pub stuck: Vec<String>,
}

fn remove_folder(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        ended => ended,
    }
}

#[cfg(test)]
mod tests;
