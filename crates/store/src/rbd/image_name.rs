//! Names of images, and how to reach them.

use std::fmt;
use std::path::PathBuf;

/// An image of a Ceph cluster, and how to get at it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct RbdImage {
    /// The pool.
    pub pool: String,
    /// The pool's namespace, if not the default one.
    pub namespace: Option<String>,
    /// The image.
    pub image: String,
    /// A snapshot of it, which is read-only.
    pub snapshot: Option<String>,
    /// The cluster's configuration file; `None`: $CEPH_CONF, or /etc/ceph/ceph.conf.
    pub conf: Option<PathBuf>,
    /// An RPC has named that file: it may not have files written, sockets made or code loaded.
    pub conf_by_rpc: bool,
    /// Whose rights we have, without `client.`; `None`: admin.
    pub id: Option<String>,
    /// File with that one's key; `None`: as the configuration file says.
    pub keyring: Option<PathBuf>,
    /// Octets of the image that is made if there is none.
    pub create: Option<u64>,
    /// Several targets reach it, and one of them has it.
    pub shared: bool,
}

impl RbdImage {
    /// Whether both name the same blocks, however they get at them.
    #[must_use]
    pub fn is_same(&self, other: &RbdImage) -> bool {
        self.to_string() == other.to_string() && self.conf == other.conf
    }

    /// Whether what is open as this says can be used as `other` says. What several targets reach has to be opened for
    /// that, and can be opened with other rights: it is out of reach for a moment. Who has it alone would be in its own
    /// way.
    #[must_use]
    pub fn serves_as(&self, other: &RbdImage) -> bool {
        let rights = |image: &RbdImage| (image.id.clone(), image.keyring.clone());
        let is_open = !other.shared || (self.shared && rights(self) == rights(other));
        self.is_same(other) && is_open
    }
}

impl fmt::Display for RbdImage {
    /// As Ceph's own programs write it: `POOL/[NAMESPACE/]IMAGE[@SNAPSHOT]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/", self.pool)?;
        if let Some(namespace) = &self.namespace {
            write!(f, "{namespace}/")?;
        }
        f.write_str(&self.image)?;
        match &self.snapshot {
            Some(snapshot) => write!(f, "@{snapshot}"),
            None => Ok(()),
        }
    }
}
