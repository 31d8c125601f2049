//! Blocks that are elsewhere: a volume of a store, or an image of a Ceph cluster and how the cluster is reached.

use crate::volumes::{Store, Uuid};
use roadtrain_store::{OpenError, StoreKind};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// One volume of a store, as what a device is.
#[derive(Clone)]
pub struct VolumeOf {
    /// Its store.
    pub store: Arc<Store>,
    /// The volume.
    pub uuid: Uuid,
}

impl PartialEq for VolumeOf {
    fn eq(&self, other: &VolumeOf) -> bool {
        self.uuid == other.uuid
    }
}

impl Eq for VolumeOf {}

impl std::fmt::Debug for VolumeOf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("VolumeOf").field(&self.uuid).finish()
    }
}

/// A cluster that RPC has named.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RbdCluster {
    /// Unique.
    pub name: String,
    /// How it is reached.
    #[serde(flatten)]
    pub access: RbdAccess,
}

/// How a cluster is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RbdAccess {
    /// Name of the Ceph client, without `client.`; `None`: admin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The cluster's configuration file; `None`: Ceph's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conf: Option<PathBuf>,
    /// File with the key; `None`: as the configuration file says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keyring: Option<PathBuf>,
}

impl RbdAccess {
    /// Files that it names.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        [&self.conf, &self.keyring].into_iter().filter_map(|path| path.as_deref())
    }
}

/// An image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RbdOf {
    /// Its pool.
    pub pool: String,
    /// Its name.
    pub image: String,
    /// The cluster, if it was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// How the cluster is reached.
    #[serde(flatten)]
    pub access: RbdAccess,
}

impl RbdOf {
    /// The store that it is opened as.
    #[cfg(feature = "rbd")]
    pub(super) fn store(&self) -> Result<StoreKind, OpenError> {
        let RbdAccess { id, conf, keyring } = self.access.clone();
        Ok(StoreKind::Rbd(roadtrain_store::RbdImage {
            pool: self.pool.clone(),
            image: self.image.clone(),
            id,
            conf,
            conf_by_rpc: true,
            keyring,
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
