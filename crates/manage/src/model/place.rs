//! Devices whose blocks others keep: a volume of a store, or an image of a Ceph cluster with the access to the cluster.

use crate::volumes::{Uuid, VolumeStore};
#[cfg(feature = "rbd")]
use roadtrain_store::RbdPassphrase;
use roadtrain_store::{OpenError, StoreKind};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A volume of a store, as the kind of a device.
#[derive(Clone)]
pub struct VolumeDevice {
    /// Store of the volume.
    pub store: Arc<VolumeStore>,
    /// UUID of the volume.
    pub uuid: Uuid,
}

impl PartialEq for VolumeDevice {
    fn eq(&self, other: &VolumeDevice) -> bool {
        self.uuid == other.uuid
    }
}

impl Eq for VolumeDevice {}

impl std::fmt::Debug for VolumeDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("VolumeDevice").field(&self.uuid).finish()
    }
}

/// A cluster that RPC has named.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RbdCluster {
    /// Unique.
    pub name: String,
    /// Access to the cluster.
    #[serde(flatten)]
    pub access: RbdAccess,
}

/// Access to a Ceph cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RbdAccess {
    /// Name of the Ceph client, without `client.`; `None`: admin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Configuration file of the cluster; `None`: Ceph's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conf: Option<PathBuf>,
    /// File with the key; `None`: the one of the configuration file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keyring: Option<PathBuf>,
}

impl RbdAccess {
    /// Returns the files that it names.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        [&self.conf, &self.keyring].into_iter().filter_map(|path| path.as_deref())
    }
}

/// An image of a Ceph cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RbdImageSpec {
    /// Its pool.
    pub pool: String,
    /// Its name.
    pub image: String,
    /// Name of the cluster, if RPC has named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Access to the cluster.
    #[serde(flatten)]
    pub access: RbdAccess,
    /// File with the passphrase of an encrypted image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passphrase_file: Option<PathBuf>,
    /// The same as a `user` key of the kernel's keyrings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passphrase_key: Option<String>,
}

impl RbdImageSpec {
    /// Returns the files that it names.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.access.paths().chain(self.passphrase_file.as_deref())
    }

    /// Returns the kind of store that opens the image.
    #[cfg(feature = "rbd")]
    pub(super) fn store(&self) -> Result<StoreKind, OpenError> {
        let RbdAccess { id, conf, keyring } = self.access.clone();
        let file = self.passphrase_file.clone().map(RbdPassphrase::File);
        let key = self.passphrase_key.clone().map(RbdPassphrase::Key);
        Ok(StoreKind::Rbd(roadtrain_store::RbdImage {
            pool: self.pool.clone(),
            image: self.image.clone(),
            id,
            conf,
            conf_by_rpc: true,
            keyring,
            passphrase: file.or(key).map(Box::new),
            ..Default::default()
        }))
    }

    #[cfg(not(feature = "rbd"))]
    pub(super) fn store(&self) -> Result<StoreKind, OpenError> {
        let image = format!("{}/{}", self.pool, self.image);
        let problem = "this program was built without images of Ceph clusters".into();
        Err(OpenError::Rbd { image, problem })
    }
}
