//! Operations on volumes. A finished operation is on stable storage; a failed one leaves nothing.

use super::VolumeError;
use super::contents::{CLUSTER_BYTES, Volume, clusters};
use super::copy::{self, CopyProgress, Quiet};
use super::store::{
    ClaimedVolume, ReservedVolume, SharedStore, VolumeClaimKind, VolumeStore, check_name,
};
use super::uuid::Uuid;
use super::volume_space;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tracing::{info, warn};

/// Interval between two log lines about one copy.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);

impl VolumeStore {
    /// Creates a volume of `bytes`, rounded up to clusters, that reads as zeroes. A thin volume takes space when it is
    /// written, and may be larger than the free space.
    ///
    /// # Errors
    /// The name is taken, or there is too little space.
    pub fn create(&self, name: &str, bytes: u64, thin: bool) -> Result<Uuid, VolumeError> {
        let shared = &self.shared;
        let size = whole(bytes)?;
        let reserved = shared.reserve(name, if thin { 0 } else { clusters(size) })?;
        let volume = Volume { thin, ..shared.new_volume(name, size)? };
        let file = shared.make(&volume, |file| match thin {
            true => shared.store_files.set_size(file, size),
            false => shared.store_files.allocate(file, 0, size),
        })?;
        drop(file);
        shared.add(reserved, volume, |_, _| {})
    }

    /// Creates a snapshot of a volume, with all that was written before the call. The volume continues as its clone.
    /// `quiet` is true if no host can write; it is called only if content has to be copied.
    ///
    /// # Errors
    /// The volume is a snapshot itself, the name is taken, a copy would be torn, or there is too little space.
    pub fn snapshot(&self, uuid: Uuid, name: &str, quiet: Quiet<'_>) -> Result<Uuid, VolumeError> {
        let shared = &self.shared;
        // Reserves the name first: a repeated request fails at once and does not wait.
        let reserved = shared.reserve(name, 0)?;
        let claimed = shared.claim(uuid, VolumeClaimKind::Change)?;
        let source = &claimed.volume;
        if source.snapshot {
            let name = &source.name;
            return Err(VolumeError::Invalid(format!("{name} is a snapshot: clone it")));
        }
        let new = shared.new_volume(name, source.size)?;
        let snapshot = Volume { snapshot: true, parent: source.parent, thin: source.thin, ..new };
        shared.fill(&claimed, &reserved, &snapshot, quiet)?;
        shared.add(reserved, snapshot, |volumes, snapshot| {
            for volume in volumes.iter_mut().filter(|volume| volume.uuid == uuid) {
                (volume.parent, volume.thin) = (Some(snapshot), true);
                (volume.inflating, volume.detaching) = (false, false);
            }
        })
    }

    /// Creates a volume with a snapshot's content.
    ///
    /// # Errors
    /// The source is not read-only, the name is taken, or there is too little space.
    pub fn clone_snapshot(&self, uuid: Uuid, name: &str) -> Result<Uuid, VolumeError> {
        let shared = &self.shared;
        let reserved = shared.reserve(name, 0)?;
        let claimed = shared.claim(uuid, VolumeClaimKind::Read)?;
        let source = &claimed.volume;
        if !source.is_read_only() {
            let name = &source.name;
            return Err(VolumeError::Invalid(format!(
                "{name} is no snapshot: make one of it first"
            )));
        }
        let new = shared.new_volume(name, source.size)?;
        let clone = Volume { thin: true, parent: Some(uuid), ..new };
        shared.fill(&claimed, &reserved, &clone, &|| true)?;
        shared.add(reserved, clone, |_, _| {})
    }

    /// Reserves the full size of a volume and detaches it from its snapshot; its own space is allocated in the
    /// background.
    ///
    /// # Errors
    /// The volume is a snapshot, or there is too little space.
    pub fn inflate(&self, uuid: Uuid) -> Result<(), VolumeError> {
        let shared = &self.shared;
        let claimed = shared.claim(uuid, VolumeClaimKind::Change)?;
        let volume = &claimed.volume;
        if volume.snapshot {
            return Err(VolumeError::ReadOnly(volume.name.clone()));
        }
        if !volume.thin && volume.parent.is_none() {
            return Ok(());
        }
        shared.detach(volume, clusters(volume.size), |volume| {
            (volume.thin, volume.inflating, volume.detaching) = (false, true, false);
        })
    }

    /// Detaches a volume from its snapshot. It stays thin; shared extents are replaced by its own in the background.
    ///
    /// # Errors
    /// The volume is a snapshot, or has no parent, or there is too little space.
    pub fn decouple(&self, uuid: Uuid) -> Result<(), VolumeError> {
        let shared = &self.shared;
        let claimed = shared.claim(uuid, VolumeClaimKind::Change)?;
        let volume = &claimed.volume;
        let name = &volume.name;
        if volume.snapshot {
            return Err(VolumeError::ReadOnly(name.clone()));
        }
        if volume.parent.is_none() {
            return Err(VolumeError::Invalid(format!("{name} did not begin as a snapshot")));
        }
        let failed = |e| VolumeError::io(&shared.store_files.file(uuid), "examine", e);
        let content = shared.store_files.open(uuid).and_then(|file| volume_space::content(&file));
        let needed = clusters(content.map_err(failed)?);
        shared.detach(volume, needed, |volume| volume.detaching = true)
    }

    /// Makes a volume read-only, for ever. Exports of the volume are not changed.
    ///
    /// # Errors
    /// The volume does not exist.
    pub fn set_read_only(&self, uuid: Uuid) -> Result<(), VolumeError> {
        let mut state = self.shared.lock();
        let volume = state.contents.find(uuid);
        let volume = volume.ok_or_else(|| VolumeError::NotFound(uuid.to_string()))?;
        if volume.is_read_only() {
            return Ok(());
        }
        self.shared.commit(&mut state, |contents| {
            contents.find_mut(uuid).into_iter().for_each(|volume| volume.read_only = true);
        })
    }

    /// Creates a thin volume with the content of another file or block device, whose `bytes` are rounded up to
    /// clusters. Both share extents only if the file system can. `quiet` is true if no host can write to the source.
    ///
    /// # Errors
    /// The name is taken, a host writes to the source, or there is too little space.
    pub fn import(
        &self,
        name: &str,
        (from, bytes): (&Path, u64),
        quiet: Quiet<'_>,
    ) -> Result<Uuid, VolumeError> {
        let shared = &self.shared;
        let reserved = shared.reserve(name, 0)?;
        let file = File::open(from).map_err(|e| VolumeError::io(from, "read", e))?;
        let volume = Volume { thin: true, ..shared.new_volume(name, whole(bytes)?)? };
        let source =
            CopySource { file: &file, path: from, name: &from.display().to_string(), bytes };
        shared.fill_with(&source, (&reserved, &volume), quiet, (|| Ok(()), || {}))?;
        shared.add(reserved, volume, |_, _| {})
    }

    /// Raises the quota to all free space of the file system, if that is more.
    ///
    /// # Errors
    /// The file system fails.
    pub fn grow(&self) -> Result<(), VolumeError> {
        let mut state = self.shared.lock();
        let growable = self.shared.store_space(&state)?.growable * CLUSTER_BYTES;
        if growable <= state.contents.size {
            return Ok(());
        }
        self.shared.commit(&mut state, |contents| contents.size = growable)
    }

    /// Renames the store.
    ///
    /// # Errors
    /// The name is invalid.
    pub fn rename_store(&self, name: &str) -> Result<(), VolumeError> {
        check_name(name)?;
        self.shared.commit(&mut self.shared.lock(), |contents| contents.name = name.into())
    }

    /// Grows a volume to `bytes`, rounded up to clusters. New space reads as zeroes. Returns the new size.
    ///
    /// # Errors
    /// The volume is larger, or a snapshot, or there is too little space.
    pub fn resize(&self, uuid: Uuid, bytes: u64) -> Result<u64, VolumeError> {
        let shared = &self.shared;
        let claimed = shared.claim(uuid, VolumeClaimKind::Change)?;
        let (volume, size) = (&claimed.volume, whole(bytes)?);
        let (name, old) = (&volume.name, volume.size);
        if volume.is_read_only() {
            return Err(VolumeError::ReadOnly(name.clone()));
        }
        if size < old {
            return Err(VolumeError::Invalid(format!(
                "{name} has {old} bytes: {size} would cut data off"
            )));
        }
        if size == old {
            return Ok(size);
        }
        if !volume.thin {
            shared.check_space(&shared.lock(), clusters(size - old))?;
        }
        let path = shared.store_files.file(uuid);
        let failed = |e| VolumeError::io(&path, "grow", e);
        let file = shared.store_files.open(uuid).map_err(failed)?;
        let grown = match volume.thin {
            true => shared.store_files.set_size(&file, size),
            false => shared.store_files.allocate(&file, old, size),
        };
        let grown = grown.and_then(|()| shared.store_files.sync(&file)).map_err(failed);
        let known = grown.and_then(|()| {
            shared.commit(&mut shared.lock(), |contents| {
                contents.find_mut(uuid).into_iter().for_each(|volume| volume.size = size);
            })
        });
        if known.is_err()
            && let Err(error) = shared.store_files.set_size(&file, old)
        {
            warn!(volume = name, "cannot cut its file back: {error}");
        }
        known.map(|()| size)
    }

    /// Renames a volume.
    ///
    /// # Errors
    /// The name is taken or invalid.
    pub fn rename(&self, uuid: Uuid, name: &str) -> Result<(), VolumeError> {
        check_name(name)?;
        let mut state = self.shared.lock();
        let volume = state.contents.find(uuid);
        let volume = volume.ok_or_else(|| VolumeError::NotFound(uuid.to_string()))?;
        if volume.name == name {
            return Ok(());
        }
        state.check_free(name)?;
        self.shared.commit(&mut state, |contents| {
            contents.find_mut(uuid).into_iter().for_each(|volume| volume.name = name.into());
        })
    }

    /// Deletes a volume. Its file is removed in the background. Clones of a snapshot keep their content.
    ///
    /// # Errors
    /// The volume does not exist, or is being copied.
    pub fn delete(&self, uuid: Uuid) -> Result<(), VolumeError> {
        self.begin_delete(uuid)?.end()
    }

    /// Begins to delete a volume, so that the caller can withdraw it from hosts before [`Deletion::end`].
    ///
    /// # Errors
    /// As [`VolumeStore::delete`].
    pub fn begin_delete(&self, uuid: Uuid) -> Result<Deletion<'_>, VolumeError> {
        let claimed = self.shared.claim(uuid, VolumeClaimKind::Change)?;
        Ok(Deletion { shared: &self.shared, claimed })
    }

    /// Removes the store with all volumes; the folder stays.
    ///
    /// # Errors
    /// A volume is being copied, or the file system fails.
    pub fn destroy(&self) -> Result<(), VolumeError> {
        self.begin_destroy()?.end()
    }

    /// Begins to remove the store, so that the caller can withdraw its volumes from hosts before [`Destruction::end`].
    ///
    /// # Errors
    /// As [`VolumeStore::destroy`].
    pub fn begin_destroy(&self) -> Result<Destruction<'_>, VolumeError> {
        let claim = |volume: &Volume| self.shared.claim(volume.uuid, VolumeClaimKind::Change);
        let claimed = self.list().iter().map(claim).collect::<Result<_, _>>()?;
        Ok(Destruction { shared: &self.shared, claimed })
    }
}

/// A volume that is claimed for deletion, and exists until [`Deletion::end`].
#[must_use = "nothing is deleted before its end"]
pub struct Deletion<'a> {
    shared: &'a Arc<SharedStore>,
    claimed: ClaimedVolume<'a>,
}

impl Deletion<'_> {
    /// Deletes the volume.
    ///
    /// # Errors
    /// The file system fails: the volume still exists.
    pub fn end(self) -> Result<(), VolumeError> {
        let Deletion { shared, claimed } = &self;
        let uuid = claimed.volume.uuid;
        let file = shared.store_files.open(uuid);
        let bytes = file.and_then(|file| volume_space::alone(&file, None)).unwrap_or(0);
        let mut state = shared.lock();
        shared.commit(&mut state, |contents| drop(contents.take(uuid)))?;
        state.background.remove(uuid, bytes);
        shared.wake(&mut state);
        Ok(())
    }
}

/// A store whose volumes are claimed for deletion, and that exists until [`Destruction::end`].
#[must_use = "nothing is removed before its end"]
pub struct Destruction<'a> {
    shared: &'a Arc<SharedStore>,
    claimed: Vec<ClaimedVolume<'a>>,
}

impl Destruction<'_> {
    /// Returns its volumes.
    pub fn volumes(&self) -> impl Iterator<Item = Uuid> {
        self.claimed.iter().map(|claimed| claimed.volume.uuid)
    }

    /// Removes the store.
    ///
    /// # Errors
    /// Volumes are being created in it, or the file system fails: the store still exists.
    pub fn end(self) -> Result<(), VolumeError> {
        let Destruction { shared, claimed } = &self;
        let mut state = shared.lock();
        if state.contents.volumes.len() != claimed.len() {
            return Err(VolumeError::Busy("volumes are being made in it".into()));
        }
        shared.commit(&mut state, |contents| contents.volumes.clear())?;
        state.gone = true;
        let path = shared.store_files.path();
        // The store is empty by now: the next start removes files that are left over.
        let removed = self.volumes().try_for_each(|uuid| shared.store_files.remove(uuid));
        removed.and_then(|()| shared.store_files.forget()).unwrap_or_else(|error| {
            warn!("{}: is not cleared: {error}", path.display());
        });
        Ok(())
    }
}

impl SharedStore {
    fn new_volume(&self, name: &str, size: u64) -> Result<Volume, VolumeError> {
        let uuid =
            Uuid::random().map_err(|e| VolumeError::io(self.store_files.path(), "name", e))?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Ok(Volume {
            uuid,
            name: name.into(),
            size,
            thin: false,
            snapshot: false,
            read_only: false,
            parent: None,
            inflating: false,
            detaching: false,
            created_unix_seconds: now.ok().map(|since| since.as_secs()),
        })
    }

    /// Detaches a volume from its snapshot: it is counted with `needed` clusters at once, and gets them in the
    /// background.
    fn detach(
        self: &Arc<Self>,
        volume: &Volume,
        needed: u64,
        change: impl Fn(&mut Volume),
    ) -> Result<(), VolumeError> {
        let uuid = volume.uuid;
        let mut state = self.lock();
        let held = volume_space::held(&self.store_files, &state.contents.volumes);
        let at = state.contents.volumes.iter().position(|volume| volume.uuid == uuid);
        let held = at.and_then(|at| held.get(at)).map_or(0, |held| held.clusters);
        self.check_space(&state, needed.saturating_sub(held))?;
        self.commit(&mut state, |contents| {
            if let Some(volume) = contents.find_mut(uuid) {
                volume.parent = None;
                change(volume);
            }
        })?;
        state.background.again(uuid);
        self.wake(&mut state);
        Ok(())
    }

    /// Creates a volume's file, on stable storage; removes it on failure.
    fn make(
        &self,
        volume: &Volume,
        fill: impl FnOnce(&File) -> std::io::Result<()>,
    ) -> Result<File, VolumeError> {
        let path = self.store_files.file(volume.uuid);
        let file =
            self.store_files.create(volume.uuid).map_err(|e| VolumeError::io(&path, "make", e))?;
        let made = fill(&file).and_then(|()| self.store_files.sync_new(&file));
        if let Err(error) = made {
            self.unmake(volume.uuid);
            return Err(VolumeError::io(&path, "make", error));
        }
        Ok(file)
    }

    /// Creates a volume's file with another volume's content.
    fn fill(
        &self,
        from: &ClaimedVolume<'_>,
        reserved: &ReservedVolume<'_>,
        volume: &Volume,
        quiet: Quiet<'_>,
    ) -> Result<(), VolumeError> {
        let (store_files, uuid) = (&self.store_files, from.volume.uuid);
        let path = store_files.file(uuid);
        let file = store_files.open(uuid).map_err(|e| VolumeError::io(&path, "read", e))?;
        let (name, bytes) = (from.volume.name.as_str(), from.volume.size);
        let source = CopySource { file: &file, path: &path, name, bytes };
        let marks = || store_files.copy_marks(uuid, volume.uuid);
        self.fill_with(&source, (reserved, volume), quiet, (marks, || from.takes_long()))
    }

    /// Creates a volume's file with the content of `source`. `marks` copies the marks of unreadable blocks, and `long`
    /// runs before a slow copy.
    fn fill_with(
        &self,
        source: &CopySource<'_>,
        (reserved, volume): (&ReservedVolume<'_>, &Volume),
        quiet: Quiet<'_>,
        (marks, long): (impl FnOnce() -> std::io::Result<()>, impl FnOnce()),
    ) -> Result<(), VolumeError> {
        let CopySource { file: from, path, name, bytes } = *source;
        let store_files = &self.store_files;
        let failed = |e| VolumeError::io(path, "read", e);
        let mut is_shared = false;
        let file = self.make(volume, |file| {
            marks()?;
            store_files.set_size(file, volume.size)?;
            is_shared = store_files.share(from, file)?;
            // Sharing has set the source's size.
            if is_shared { store_files.set_size(file, volume.size) } else { Ok(()) }
        })?;
        if is_shared {
            return Ok(());
        }
        let busy = || {
            VolumeError::Busy(format!(
                "{name} is in use, and this file system cannot share what moves: disconnect its hosts, or keep \
                 the store on XFS or btrfs"
            ))
        };
        let copied = || {
            long();
            let needed = copy::needed(from, bytes).map_err(failed)?;
            reserved.grow(clusters(needed))?;
            warn!(
                volume = name,
                bytes = needed,
                "its content is copied: this file system cannot share it"
            );
            let (mut progress, mut logged_at) =
                (CopyProgress { copied: 0, of: needed }, Instant::now());
            reserved.record_progress(progress);
            copy::copy(store_files, (from, &file, bytes), quiet, busy, |copied| {
                progress.copied += copied;
                reserved.record_progress(progress);
                if logged_at.elapsed() >= PROGRESS_INTERVAL {
                    logged_at = Instant::now();
                    info!(volume = name, to = reserved.name, "copied {} %", progress.percent());
                }
            })?;
            store_files
                .sync(&file)
                .map_err(|e| VolumeError::io(&store_files.file(volume.uuid), "sync", e))
        };
        copied().inspect_err(|_| self.unmake(volume.uuid))
    }

    /// Adds a volume whose file exists; removes the file on failure.
    fn add(
        &self,
        reserved: ReservedVolume<'_>,
        volume: Volume,
        change: impl FnOnce(&mut [Volume], Uuid),
    ) -> Result<Uuid, VolumeError> {
        let uuid = volume.uuid;
        let mut state = self.lock();
        let added = self.commit(&mut state, |contents| {
            change(&mut contents.volumes, uuid);
            contents.volumes.push(volume);
        });
        reserved.end(&mut state);
        drop(state);
        added.inspect_err(|_| self.unmake(uuid))?;
        Ok(uuid)
    }

    fn unmake(&self, uuid: Uuid) {
        if let Err(error) = self.store_files.remove(uuid) {
            let path = self.store_files.file(uuid);
            warn!("cannot remove {}, which the next start does: {error}", path.display());
        }
    }
}

/// Content for a new volume.
struct CopySource<'a> {
    file: &'a File,
    path: &'a Path,
    /// Name for messages.
    name: &'a str,
    /// Bytes to copy: the metadata of a block device have no size.
    bytes: u64,
}

/// Rounds a size up to whole clusters.
fn whole(bytes: u64) -> Result<u64, VolumeError> {
    let size = bytes.checked_next_multiple_of(CLUSTER_BYTES);
    match size.filter(|size| (1..=i64::MAX as u64).contains(size)) {
        Some(size) => Ok(size),
        None => Err(VolumeError::Invalid(format!("a volume cannot have {bytes} bytes"))),
    }
}
