//! Differences between a snapshot and another volume of its store.

use super::VolumeError;
use super::store::{VolumeClaimKind, VolumeStore};
use super::uuid::Uuid;
use roadtrain_store::{DifferencesQuery, DiskDifferences, file_differences};

impl VolumeStore {
    /// Returns the ranges in which the volume `to` may differ from the volume `from`, which is read-only. Both stay
    /// meanwhile. Writes to `to` that had ended before the call are included.
    ///
    /// # Errors
    /// A volume does not exist, `from` is not read-only, or the file system fails.
    pub fn differences(
        &self,
        from: Uuid,
        to: Uuid,
        query: DifferencesQuery,
    ) -> Result<DiskDifferences, VolumeError> {
        let shared = &self.shared;
        let older = shared.claim(from, VolumeClaimKind::Read)?;
        let newer = shared.claim(to, VolumeClaimKind::Read)?;
        if !older.volume.is_read_only() {
            let name = &older.volume.name;
            return Err(VolumeError::Invalid(format!("{name} is no snapshot: it may change")));
        }
        let open = |uuid| {
            let failed = |e| VolumeError::io(&shared.store_files.file(uuid), "open", e);
            shared.store_files.open(uuid).map_err(failed)
        };
        let files = (open(from)?, open(to)?);
        let sides = ((&files.0, older.volume.size), (&files.1, newer.volume.size));
        let failed = |e| VolumeError::io(&shared.store_files.file(to), "compare", e);
        file_differences(sides.0, sides.1, query).map_err(failed)
    }
}
