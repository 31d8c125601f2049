//! Index of a store: its volumes, as `store.json` has them.

use super::uuid::Uuid;
use serde::{Deserialize, Serialize};

/// Bytes of a cluster: sizes are multiples of it.
pub const CLUSTER_BYTES: u64 = 4 << 20;

/// Version of the format of `store.json`.
const FORM: u32 = 1;

/// Returns the number of clusters that hold `bytes`.
#[must_use]
pub fn clusters(bytes: u64) -> u64 {
    bytes.div_ceil(CLUSTER_BYTES)
}

/// A store with its volumes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Contents {
    form: u32,
    pub(crate) name: String,
    pub(crate) uuid: Uuid,
    /// Quota in bytes.
    pub(crate) size: u64,
    /// Block size of its volumes: 512 or 4096.
    pub(crate) lba: u32,
    /// Volumes in the order of their creation.
    pub(crate) volumes: Vec<Volume>,
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Volume {
    /// Name of its file.
    pub uuid: Uuid,
    /// Name, for users.
    pub name: String,
    /// Size in bytes, whole clusters.
    pub size: u64,
    /// True if space is allocated only by writes.
    #[serde(default, skip_serializing_if = "is_false")]
    pub thin: bool,
    /// True for a snapshot, which is read-only for ever.
    #[serde(default, skip_serializing_if = "is_false")]
    pub snapshot: bool,
    /// True for a volume that was made read-only.
    #[serde(default, skip_serializing_if = "is_false")]
    pub read_only: bool,
    /// Snapshot whose content it began with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Uuid>,
    /// True while its own space is allocated in the background; it is counted with its full size already.
    #[serde(default, skip_serializing_if = "is_false")]
    pub inflating: bool,
    /// True while shared space is replaced by its own in the background; the volume stays thin.
    #[serde(default, skip_serializing_if = "is_false")]
    pub detaching: bool,
    /// Time of its creation in seconds since 1970; `None` if an older version created it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_unix_seconds: Option<u64>,
}

impl Volume {
    /// True if its content never changes.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.snapshot || self.read_only
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_false(is: &bool) -> bool {
    !is
}

impl Contents {
    pub(crate) fn new(name: &str, uuid: Uuid, size: u64, lba: u32) -> Contents {
        Contents { form: FORM, name: name.into(), uuid, size, lba, volumes: Vec::new() }
    }

    /// Returns the file's content.
    pub(crate) fn image(&self) -> Vec<u8> {
        let mut image = serde_json::to_vec_pretty(self).unwrap_or_default();
        image.push(b'\n');
        image
    }

    /// # Errors
    /// A description of the damage.
    pub(crate) fn parse(image: &[u8]) -> Result<Contents, String> {
        let contents: Contents = serde_json::from_slice(image).map_err(|e| e.to_string())?;
        if contents.form != FORM {
            return Err(format!("its form is {}, and this program knows {FORM}", contents.form));
        }
        let mut names: Vec<&str> = contents.volumes.iter().map(|v| v.name.as_str()).collect();
        let mut uuids: Vec<Uuid> = contents.volumes.iter().map(|v| v.uuid).collect();
        names.sort_unstable();
        uuids.sort_unstable();
        if names.windows(2).any(|two| two[0] == two[1]) || uuids.windows(2).any(|t| t[0] == t[1]) {
            return Err("a volume is in it twice".into());
        }
        Ok(contents)
    }

    pub(crate) fn find(&self, uuid: Uuid) -> Option<&Volume> {
        self.volumes.iter().find(|volume| volume.uuid == uuid)
    }

    pub(crate) fn find_mut(&mut self, uuid: Uuid) -> Option<&mut Volume> {
        self.volumes.iter_mut().find(|volume| volume.uuid == uuid)
    }

    /// Removes a volume. Its clones get its parent.
    pub(crate) fn take(&mut self, uuid: Uuid) -> Option<Volume> {
        let at = self.volumes.iter().position(|volume| volume.uuid == uuid)?;
        let gone = self.volumes.remove(at);
        for child in self.volumes.iter_mut().filter(|volume| volume.parent == Some(uuid)) {
            child.parent = gone.parent;
        }
        Some(gone)
    }
}
