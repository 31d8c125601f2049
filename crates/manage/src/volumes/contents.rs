//! What a store knows of its volumes, as `store.json` has it.

use super::uuid::Uuid;
use serde::{Deserialize, Serialize};

/// Octets of a cluster: sizes are whole ones.
pub const CLUSTER_BYTES: u64 = 4 << 20;

/// The number of this form of `store.json`.
const FORM: u32 = 1;

/// Clusters that hold so many octets.
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
    /// Its quota, in octets.
    pub(crate) size: u64,
    /// Block size of its volumes: 512 or 4096.
    pub(crate) lba: u32,
    /// In the order in which they were made.
    pub(crate) volumes: Vec<Volume>,
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Volume {
    /// Its file's name.
    pub uuid: Uuid,
    /// What people call it.
    pub name: String,
    /// Its size in octets, whole clusters.
    pub size: u64,
    /// Takes space when it is written, not before.
    #[serde(default, skip_serializing_if = "is_false")]
    pub thin: bool,
    /// Is read-only, for ever.
    #[serde(default, skip_serializing_if = "is_false")]
    pub snapshot: bool,
    /// The same of a volume that was made read-only.
    #[serde(default, skip_serializing_if = "is_false")]
    pub read_only: bool,
    /// The snapshot whose content it began with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Uuid>,
    /// Is counted whole, and gets its own space in the background.
    #[serde(default, skip_serializing_if = "is_false")]
    pub inflating: bool,
    /// Stays thin, and gets space of its own in the background for what it shares.
    #[serde(default, skip_serializing_if = "is_false")]
    pub detaching: bool,
}

impl Volume {
    /// True if its content stays as it is.
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

    /// As the file has it.
    pub(crate) fn image(&self) -> Vec<u8> {
        let mut image = serde_json::to_vec_pretty(self).unwrap_or_default();
        image.push(b'\n');
        image
    }

    /// # Errors
    /// What is wrong with it.
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

    /// Takes a volume out. What began with its content began with its parent's, then.
    pub(crate) fn take(&mut self, uuid: Uuid) -> Option<Volume> {
        let at = self.volumes.iter().position(|volume| volume.uuid == uuid)?;
        let gone = self.volumes.remove(at);
        for child in self.volumes.iter_mut().filter(|volume| volume.parent == Some(uuid)) {
            child.parent = gone.parent;
        }
        Some(gone)
    }
}
