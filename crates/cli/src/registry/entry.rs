//! Registry entry of an attachment, for other processes to read.

use super::directory;
use super::process::ProcessIdentity;
use roadtrain_front::attachment::AttachedDevice;
use roadtrain_front::system_resource::SystemResource;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Name of an entry's file.
pub(super) const FILE: &str = "entry.json";

/// Phase of an attachment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum AttachmentPhase {
    /// It connects.
    Starting,
    /// It is ready.
    Ready,
}

/// A namespace, with the names of its device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeviceEntry {
    /// The namespace.
    pub nsid: u32,
    /// Paths or a URI.
    pub names: Vec<String>,
}

/// An attachment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AttachmentEntry {
    /// Its name here.
    pub id: String,
    /// Front-end with its place, as `--as` takes it.
    #[serde(rename = "as")]
    pub spec: String,
    /// Address of the target.
    pub address: String,
    /// The subsystem.
    pub nqn: String,
    /// Process of the attachment.
    #[serde(flatten)]
    pub process: ProcessIdentity,
    /// Phase.
    pub phase: AttachmentPhase,
    /// Devices.
    pub devices: Vec<DeviceEntry>,
    /// Resources to clean up after the end of the process, in order.
    #[serde(rename = "leftovers")]
    pub resources: Vec<String>,
    /// Path of the log, if not the standard error.
    pub log: Option<PathBuf>,
}

impl AttachmentEntry {
    /// Reads the entry in a directory of `owner`; `None` if the directory has none.
    ///
    /// # Errors
    /// The entry cannot be read, or is invalid.
    pub(crate) fn read(folder: &Path, owner: u32) -> io::Result<Option<AttachmentEntry>> {
        let text = match directory::read(&folder.join(FILE), owner) {
            Ok(text) => text,
            Err(error) if is_absence(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut entry: AttachmentEntry = serde_json::from_slice(&text)?;
        entry.process.owner = owner;
        if folder.file_name().is_none_or(|name| name != entry.id.as_str()) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "is of another folder"));
        }
        Ok(Some(entry))
    }

    /// True if `name` is its ID, NQN or `--as`, or the name of a device or resource.
    #[must_use]
    pub(crate) fn is_called(&self, name: &str) -> bool {
        let path = std::path::absolute(name).unwrap_or_default();
        let is_path = |other: &str| other == name || Path::new(other) == path;
        let is_place = |text: &str| text.split_once(':').is_some_and(|(_, place)| is_path(place));
        let mut resources = self.resources.iter().filter(|text| !text.starts_with("folder:"));
        self.id == name
            || self.nqn == name
            || self.spec == name
            || is_place(&self.spec)
            || self.devices.iter().flat_map(|device| &device.names).any(|other| is_path(other))
            || resources.any(|resource| is_place(resource))
    }

    /// Returns the resources to clean up, except kinds that this program version does not know.
    #[must_use]
    pub(crate) fn resources(&self) -> Vec<SystemResource> {
        self.resources.iter().filter_map(|text| text.parse().ok()).collect()
    }

    /// Returns the names of all its devices, or its front-end while it has none.
    #[must_use]
    pub(crate) fn device_names(&self) -> Vec<String> {
        let first = |device: &DeviceEntry| device.names.first().cloned();
        let names: Vec<String> = self.devices.iter().filter_map(first).collect();
        if names.is_empty() { vec![self.spec.clone()] } else { names }
    }

    /// Returns the name of the first device, or its front-end.
    #[must_use]
    pub(crate) fn name(&self) -> &str {
        let first = self.devices.first().and_then(|device| device.names.first());
        first.unwrap_or(&self.spec)
    }
}

/// Writes an entry into its directory atomically.
///
/// # Errors
/// The directory is gone, or the disk is full.
pub(crate) fn write_entry(folder: &Path, entry: &impl Serialize) -> io::Result<()> {
    let new = folder.join(".entry.new");
    fs::write(&new, serde_json::to_vec_pretty(entry)?)?;
    fs::rename(new, folder.join(FILE))
}

fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

impl From<AttachedDevice> for DeviceEntry {
    fn from(device: AttachedDevice) -> DeviceEntry {
        DeviceEntry { nsid: device.nsid, names: device.names }
    }
}
