//! Devices: stores of blocks, exported or not. SPDK calls them bdevs.

use super::place::{RbdImageSpec, VolumeDevice};
use crate::volumes::Uuid;
use roadtrain_store::{
    OpenError, ReadOnlyStore, RemoteBlocks, RemoteContext, Store, StoreKind, StoreSpec, open_for,
};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// An open device.
#[derive(Debug)]
pub struct ManagedDevice {
    /// Unique name.
    pub name: String,
    /// Other names, without its UUID.
    pub aliases: Vec<String>,
    /// UUID that hosts see.
    pub uuid: [u8; 16],
    /// Kind, with its parameters.
    pub kind: DeviceKind,
    /// File of the blocks, if another file may be kept next to it.
    pub file: Option<PathBuf>,
    /// Store of its blocks.
    pub store: Arc<dyn Store>,
}

/// Kind of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// Memory, lost when the process ends.
    Malloc,
    /// No storage: reads return zeroes.
    Null,
    /// A file or block device, created with `bdev_aio_create`.
    Aio(PathBuf),
    /// A file or block device, created with `bdev_uring_create`.
    Uring(PathBuf),
    /// An image of a Ceph cluster.
    Rbd(RbdImageSpec),
    /// Blocks over the network.
    Remote(RemoteBlocks),
    /// A volume of a store, which keeps its blocks.
    Volume(VolumeDevice),
}

/// A device in the state file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceSpec {
    /// Its name.
    pub name: String,
    /// Kind: `mem`, `null`, `aio`, `uring`, `rbd` or `remote`.
    pub kind: KindWord,
    /// File or device node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// Size in bytes, for kinds without a size of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Block size in bytes.
    pub lba: u32,
    /// True if writes are refused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// Its UUID.
    pub uuid: String,
    /// Image of a Ceph cluster, for `rbd`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rbd: Option<RbdImageSpec>,
    /// Blocks over the network as on the command line, for `remote`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<String>,
}

/// Kind of a device in the state file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KindWord {
    /// Memory.
    Mem,
    /// No storage.
    Null,
    /// A file or block device.
    Aio,
    /// A file or block device, created by SPDK's other name.
    Uring,
    /// An image of a Ceph cluster.
    Rbd,
    /// Blocks over the network.
    Remote,
}

/// Parser of a specification of blocks over the network, as on the command line.
pub type RemoteParser = fn(&str) -> Result<RemoteBlocks, String>;

/// Blocks over the network: what the program brings to open them.
#[derive(Clone, Debug, Default)]
pub struct RemoteDevices {
    /// Parser of specifications; `None`: there are no such devices.
    pub parse: Option<RemoteParser>,
    /// Surroundings of the stores.
    pub context: RemoteContext,
}

/// Returns the specification of blocks over the network, as on the command line.
#[must_use]
pub fn remote_word(blocks: &RemoteBlocks) -> String {
    let options = blocks.source().options().into_iter();
    let options = options.map(|(name, value)| match value.is_empty() {
        true => format!(",{name}"),
        false => format!(",{name}={value}"),
    });
    format!("{blocks}{}", options.collect::<String>())
}

impl ManagedDevice {
    /// Opens the store of `kind`. `bytes` is the size for kinds without a size of their own.
    ///
    /// # Errors
    /// The store cannot be opened.
    pub fn open(
        names: (String, [u8; 16]),
        kind: DeviceKind,
        shape: (u32, u64, bool),
    ) -> Result<ManagedDevice, OpenError> {
        ManagedDevice::open_for(names, kind, shape, &RemoteContext::default())
    }

    /// Opens the store of `kind` as [`ManagedDevice::open`] does. Blocks over the network get `context`.
    ///
    /// # Errors
    /// The store cannot be opened.
    pub fn open_for(
        (name, uuid): (String, [u8; 16]),
        kind: DeviceKind,
        (lba_bytes, bytes, read_only): (u32, u64, bool),
        context: &RemoteContext,
    ) -> Result<ManagedDevice, OpenError> {
        let kind_of_store = match &kind {
            DeviceKind::Remote(blocks) => StoreKind::Remote(blocks.clone()),
            DeviceKind::Rbd(image) => image.store()?,
            DeviceKind::Malloc => StoreKind::Memory { size: bytes },
            DeviceKind::Null | DeviceKind::Volume(_) => StoreKind::Null { size: bytes },
            DeviceKind::Aio(path) | DeviceKind::Uring(path) => {
                let is_file = path.metadata().is_ok_and(|metadata| metadata.is_file());
                match is_file {
                    true => StoreKind::File { path: path.clone(), size: None, create: false },
                    false => StoreKind::Block { path: path.clone() },
                }
            }
        };
        let file = match &kind_of_store {
            StoreKind::File { path, .. } => Some(path.clone()),
            _ => None,
        };
        let store = open_for(&StoreSpec { kind: kind_of_store, lba_bytes, read_only }, context)?;
        Ok(ManagedDevice { name, aliases: Vec::new(), uuid, kind, file, store })
    }

    /// Opens a device of the state file.
    ///
    /// # Errors
    /// The store cannot be opened, or the entry is invalid.
    pub fn from_spec(spec: &DeviceSpec, remote: &RemoteDevices) -> Result<ManagedDevice, String> {
        let path = || spec.path.clone().ok_or_else(|| "it needs a path".to_owned());
        let kind = match spec.kind {
            KindWord::Mem => DeviceKind::Malloc,
            KindWord::Null => DeviceKind::Null,
            KindWord::Aio => DeviceKind::Aio(path()?),
            KindWord::Uring => DeviceKind::Uring(path()?),
            KindWord::Rbd => {
                let image = spec.rbd.clone();
                DeviceKind::Rbd(image.ok_or_else(|| "it needs an image".to_owned())?)
            }
            KindWord::Remote => {
                let word = spec.remote.as_deref().ok_or("it needs remote")?;
                let parse = remote.parse.ok_or("this program has no stores over the network")?;
                DeviceKind::Remote(parse(word)?)
            }
        };
        let uuid = parse_uuid(&spec.uuid).ok_or_else(|| format!("uuid {:?} is none", spec.uuid))?;
        let shape = (spec.lba, spec.size.unwrap_or(0), spec.read_only);
        ManagedDevice::open_for((spec.name.clone(), uuid), kind, shape, &remote.context)
            .map_err(|error| error.to_string())
    }

    /// Returns the same device with other aliases.
    #[must_use]
    pub fn with_aliases(&self, aliases: Vec<String>) -> ManagedDevice {
        ManagedDevice {
            name: self.name.clone(),
            aliases,
            uuid: self.uuid,
            kind: self.kind.clone(),
            file: self.file.clone(),
            store: self.store.clone(),
        }
    }

    /// Returns the same device, read-only for hosts.
    #[must_use]
    pub fn read_only(&self) -> ManagedDevice {
        let store = Arc::new(ReadOnlyStore::new(self.store.clone()));
        ManagedDevice { store, ..self.with_aliases(self.aliases.clone()) }
    }

    /// Returns its entry for the state file; `None` for a volume, which its store keeps.
    #[must_use]
    pub fn spec(&self) -> Option<DeviceSpec> {
        let geometry = self.store.geometry();
        let (kind, path) = match &self.kind {
            DeviceKind::Malloc => (KindWord::Mem, None),
            DeviceKind::Null => (KindWord::Null, None),
            DeviceKind::Aio(path) => (KindWord::Aio, Some(path.clone())),
            DeviceKind::Uring(path) => (KindWord::Uring, Some(path.clone())),
            DeviceKind::Rbd(_) => (KindWord::Rbd, None),
            DeviceKind::Remote(_) => (KindWord::Remote, None),
            DeviceKind::Volume(_) => return None,
        };
        let has_size = matches!(kind, KindWord::Mem | KindWord::Null);
        let rbd = match &self.kind {
            DeviceKind::Rbd(image) => Some(image.clone()),
            _ => None,
        };
        let remote = match &self.kind {
            DeviceKind::Remote(blocks) => Some(remote_word(blocks)),
            _ => None,
        };
        Some(DeviceSpec {
            name: self.name.clone(),
            kind,
            size: has_size.then(|| geometry.bytes()),
            path,
            lba: geometry.lba_bytes(),
            read_only: geometry.read_only,
            uuid: show_uuid(&self.uuid),
            rbd,
            remote,
        })
    }

    /// Returns SPDK's name of its kind.
    #[must_use]
    pub fn product(&self) -> &'static str {
        match &self.kind {
            DeviceKind::Malloc => "Malloc disk",
            DeviceKind::Null => "Null disk",
            DeviceKind::Aio(_) => "AIO disk",
            DeviceKind::Uring(_) => "URING bdev",
            DeviceKind::Rbd(_) => "Ceph Rbd Disk",
            DeviceKind::Remote(blocks) => blocks.source().product(),
            DeviceKind::Volume(_) => "Logical Volume",
        }
    }

    /// Returns the location of its blocks, as text for users.
    #[must_use]
    pub fn location(&self) -> String {
        match &self.kind {
            DeviceKind::Malloc => "mem".to_owned(),
            DeviceKind::Null => "null".to_owned(),
            DeviceKind::Aio(path) | DeviceKind::Uring(path) => path.display().to_string(),
            DeviceKind::Rbd(image) => format!("{}/{}", image.pool, image.image),
            DeviceKind::Remote(blocks) => blocks.to_string(),
            DeviceKind::Volume(_) => self.aliases.first().unwrap_or(&self.name).clone(),
        }
    }

    /// True if `name` is an alias or the UUID of the device.
    #[must_use]
    pub fn is_called(&self, name: &str) -> bool {
        self.is_called_or_has(name, parse_uuid(name))
    }

    /// True if `name` is an alias of the device, or `uuid` its UUID.
    pub(super) fn is_called_or_has(&self, name: &str, uuid: Option<[u8; 16]>) -> bool {
        uuid == Some(self.uuid) || self.aliases.iter().any(|alias| alias == name)
    }
}

/// Returns a random UUID.
///
/// # Errors
/// The system returns no random numbers.
pub fn new_uuid() -> io::Result<[u8; 16]> {
    Uuid::random().map(|uuid| uuid.0)
}

/// Formats a UUID with hyphens.
#[must_use]
pub fn show_uuid(uuid: &[u8; 16]) -> String {
    Uuid(*uuid).to_string()
}

/// Parses a UUID with or without hyphens; `None` for the nil UUID as well.
#[must_use]
pub fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let hex: String = text.chars().filter(|c| *c != '-').collect();
    let is_hex = hex.len() == 32 && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = is_hex.then(|| u128::from_str_radix(&hex, 16).ok()).flatten()?;
    (number != 0).then(|| number.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_are_read_as_they_are_written() {
        let uuid = new_uuid().unwrap();
        assert_eq!(parse_uuid(&show_uuid(&uuid)), Some(uuid));
        assert_eq!(parse_uuid(&show_uuid(&uuid).replace('-', "")), Some(uuid));
        for none in
            ["", "x", "00000000-0000-0000-0000-000000000000", "+1234567890123456789012345678901"]
        {
            assert_eq!(parse_uuid(none), None, "{none}");
        }
    }

    #[test]
    fn a_device_is_opened_as_it_is_written() {
        let uuid = new_uuid().unwrap();
        let made =
            ManagedDevice::open(("m".into(), uuid), DeviceKind::Malloc, (4096, 1 << 20, false));
        let spec = made.unwrap().spec().unwrap();
        let open = |spec: &DeviceSpec| ManagedDevice::from_spec(spec, &RemoteDevices::default());
        assert_eq!(open(&spec).unwrap().spec(), Some(spec.clone()));
        let nowhere = DeviceSpec { kind: KindWord::Aio, ..spec.clone() };
        assert!(open(&nowhere).unwrap_err().contains("path"));
        let remote = Some("nvme:192.0.2.1/nqn.x:y/1".into());
        let foreign = DeviceSpec { kind: KindWord::Remote, remote, ..spec };
        assert!(open(&foreign).unwrap_err().contains("no stores over the network"));
    }
}
