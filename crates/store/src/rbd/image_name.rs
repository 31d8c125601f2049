//! Names of images, with their access parameters.

use super::RbdPassphrase;
use std::fmt;
use std::path::PathBuf;

/// An image of a Ceph cluster, with its access parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct RbdImage {
    /// Name of the pool.
    pub pool: String,
    /// The pool's namespace, if not the default one.
    pub namespace: Option<String>,
    /// Name of the image.
    pub image: String,
    /// Name of a snapshot of it, which is read-only.
    pub snapshot: Option<String>,
    /// Configuration file of the cluster; `None` for $CEPH_CONF, or /etc/ceph/ceph.conf.
    pub conf: Option<PathBuf>,
    /// True if an RPC has named that file: it may not write files, make sockets or load code.
    pub conf_by_rpc: bool,
    /// User, without `client.`; `None` for admin.
    pub id: Option<String>,
    /// File with the user's key; `None` for the one in the configuration file.
    pub keyring: Option<PathBuf>,
    /// Source of the passphrase of an encrypted image; `None` to serve the image as it is stored.
    pub passphrase: Option<Box<RbdPassphrase>>,
    /// Size in bytes to create the image with, if it does not exist.
    pub create: Option<u64>,
    /// True if several targets reach it, and one of them owns it.
    pub shared: bool,
}

impl RbdImage {
    /// True if both name the same blocks, whatever their access parameters are.
    #[must_use]
    pub fn is_same(&self, other: &RbdImage) -> bool {
        self.to_string() == other.to_string() && self.conf == other.conf
    }

    /// True if an image opened with these parameters can serve as `other`. A shared image has to be opened as such. It
    /// can be reopened with other permissions, as it may be unavailable for a moment; a single owner would block
    /// itself.
    #[must_use]
    pub fn serves_as(&self, other: &RbdImage) -> bool {
        let rights =
            |image: &RbdImage| (image.id.clone(), image.keyring.clone(), image.passphrase.clone());
        let is_open = !other.shared || (self.shared && rights(self) == rights(other));
        // Stored and decrypted blocks differ.
        let has_same_blocks = self.passphrase.is_some() == other.passphrase.is_some();
        self.is_same(other) && has_same_blocks && is_open
    }
}

impl fmt::Display for RbdImage {
    /// Writes the name like Ceph's own programs: `POOL/[NAMESPACE/]IMAGE[@SNAPSHOT]`.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_image_serves_another_specification_with_the_same_blocks() {
        let image = |passphrase: Option<&str>, shared| RbdImage {
            pool: "p".into(),
            image: "i".into(),
            passphrase: passphrase.map(|name| Box::new(RbdPassphrase::Key(name.into()))),
            shared,
            ..RbdImage::default()
        };
        for shared in [false, true] {
            let serves = |a, b| image(a, shared).serves_as(&image(b, shared));
            assert!(serves(Some("a"), Some("a")) && serves(None, None));
            assert!(!serves(None, Some("a")) && !serves(Some("a"), None));
            // A shared one is opened anew, with the other passphrase.
            assert_eq!(serves(Some("a"), Some("b")), !shared);
        }
    }
}
