//! Writes that may still be executed after their attachment has ended. The next attachment to the same subsystem by the
//! same host has their controllers ended first. Each attachment that leaves such writes has a separate file in the
//! registry's directory.

use super::Registry;
use crate::failure::{CommandFailure, CommandResult};
use roadtrain_host_engine::{BlockRange, ControllerIdentity, ControllerInstance, OpenController};
use serde::{Deserialize, Serialize};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::Duration;
use tracing::warn;

/// Prefix and suffix of a file's name; the attachment's ID is between them.
const NAME: (&str, &str) = (".open-", ".json");

/// Host that has sent the writes, and their subsystem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WritesSender {
    pub(crate) nqn: String,
    pub(crate) host_nqn: String,
}

/// Content of a file.
#[derive(Debug, Serialize, Deserialize)]
struct OpenWrites {
    #[serde(flatten)]
    sender: WritesSender,
    controllers: Vec<OpenWritesController>,
}

/// A controller that may still execute writes.
#[derive(Debug, Serialize, Deserialize)]
struct OpenWritesController {
    /// CNTLID, CIU and CIRN; `None` if the target does not offer Cross-Controller Reset.
    instance: Option<(u16, u8, u64)>,
    endpoint: u64,
    /// Quiet time in milliseconds; `None` without keep-alive.
    quiet_ms: Option<u64>,
    /// NSID, first block and count.
    ranges: Vec<(u32, u64, u64)>,
}

impl From<&OpenController> for OpenWritesController {
    fn from(open: &OpenController) -> OpenWritesController {
        let ControllerIdentity { instance, endpoint, quiet } = open.controller;
        OpenWritesController {
            instance: instance.map(|of| (of.cntlid, of.ciu, of.cirn)),
            endpoint,
            quiet_ms: quiet.map(|quiet| u64::try_from(quiet.as_millis()).unwrap_or(u64::MAX)),
            ranges: open.ranges.iter().map(|of| (of.nsid, of.first, of.count)).collect(),
        }
    }
}

impl From<OpenWritesController> for OpenController {
    fn from(read: OpenWritesController) -> OpenController {
        let instance =
            read.instance.map(|(cntlid, ciu, cirn)| ControllerInstance { cntlid, ciu, cirn });
        let quiet = read.quiet_ms.map(Duration::from_millis);
        let range = |(nsid, first, count)| BlockRange { nsid, first, count };
        OpenController {
            controller: ControllerIdentity { instance, endpoint: read.endpoint, quiet },
            ranges: read.ranges.into_iter().map(range).collect(),
            left: quiet,
        }
    }
}

impl Registry {
    /// Returns the controllers that attachments of that sender have left, and their files.
    pub(crate) fn open_writes(&self, sender: &WritesSender) -> (Vec<OpenController>, Vec<PathBuf>) {
        let (mut open, mut files) = (Vec::new(), Vec::new());
        for file in fs::read_dir(&self.directory).into_iter().flatten().flatten() {
            let name = file.file_name();
            let is_one = |name: &str| name.starts_with(NAME.0) && name.ends_with(NAME.1);
            if !name.to_str().is_some_and(is_one) {
                continue;
            }
            let read = fs::read(file.path()).map_err(|error| error.to_string());
            let parse = |text: Vec<u8>| {
                serde_json::from_slice::<OpenWrites>(&text).map_err(|error| error.to_string())
            };
            match read.and_then(parse) {
                Ok(writes) if writes.sender == *sender => {
                    open.extend(writes.controllers.into_iter().map(OpenController::from));
                    files.push(file.path());
                }
                Ok(_) => {}
                Err(error) => warn!("{}: {error}", file.path().display()),
            }
        }
        (open, files)
    }

    /// Writes controllers for the next attachment of that sender, in place of the files in `read`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn leave_open_writes(
        &self,
        id: &str,
        sender: &WritesSender,
        open: &[OpenController],
        read: &[PathBuf],
    ) -> CommandResult {
        let path = self.directory.join(format!("{}{id}{}", NAME.0, NAME.1));
        if !open.is_empty() {
            let controllers = open.iter().map(OpenWritesController::from).collect();
            let text = serde_json::to_vec(&OpenWrites { sender: sender.clone(), controllers });
            let write = |text: Vec<u8>| {
                let new = path.with_extension("new");
                let mut options = OpenOptions::new();
                let mut file =
                    options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
                file.write_all(&text)?;
                file.sync_all()?;
                fs::rename(&new, &path)
            };
            let written = text.map_err(std::io::Error::from).and_then(write);
            written.map_err(|e| CommandFailure::failed(format!("{}: {e}", path.display())))?;
        }
        for old in read.iter().filter(|old| open.is_empty() || **old != path) {
            let _ = fs::remove_file(old); // another process may have removed it
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_writes_are_passed_to_the_next_attachment_of_the_sender() {
        let directory = tempfile::tempdir().unwrap();
        let registry = Registry::at(directory.path());
        let sender = WritesSender {
            nqn: "nqn.2026-11.test:a".into(),
            host_nqn: "nqn.2026-11.test:h".into(),
        };
        let other = WritesSender { host_nqn: "nqn.2026-11.test:i".into(), ..sender.clone() };
        let quiet = Some(Duration::from_secs(15));
        let open = OpenController {
            controller: ControllerIdentity {
                instance: Some(ControllerInstance { cntlid: 7, ciu: 8, cirn: u64::MAX - 1 }),
                endpoint: 9,
                quiet,
            },
            ranges: vec![BlockRange { nsid: 1, first: 8, count: 8 }, BlockRange::all(2)],
            left: quiet,
        };
        let unnamed = OpenController {
            controller: ControllerIdentity { instance: None, endpoint: 0, quiet: None },
            left: None,
            ..open.clone()
        };
        let all = [open, unnamed];
        registry.leave_open_writes("nbd0", &sender, &all, &[]).unwrap();
        let (found, files) = registry.open_writes(&sender);
        assert_eq!((&found[..], files.len()), (&all[..], 1));
        assert!(registry.open_writes(&other).0.is_empty());
        assert!(registry.entries().unwrap().is_empty(), "it is no attachment");
        registry.leave_open_writes("nbd1", &sender, &all[..1], &files).unwrap();
        let (found, files) = registry.open_writes(&sender);
        assert_eq!(
            (&found[..], files.len()),
            (&all[..1], 1),
            "instead of the one that it has read"
        );
        registry.leave_open_writes("nbd1", &sender, &[], &files).unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
