//! A store: opening it, and coordinating concurrent operations on it.

mod background;

use super::VolumeError;
use super::contents::{CLUSTER_BYTES, Contents, Volume};
use super::copy::CopyProgress;
use super::step_hook::{NoStepHook, StoreStepHook};
use super::store_files::StoreFiles;
use super::uuid::Uuid;
use super::volume_space::{self, VolumeSpace};
use background::Background;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use tracing::{info, warn};

/// Longest name in bytes.
const NAME_BYTES_MAX: usize = 63;

/// A store of volumes, usable by all threads at the same time.
pub struct VolumeStore {
    pub(super) shared: Arc<SharedStore>,
}

/// Properties and space of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreInfo {
    /// Its name.
    pub name: String,
    /// UUID, stored with it.
    pub uuid: Uuid,
    /// Folder; "memory" without one.
    pub path: PathBuf,
    /// Block size of its volumes: 512 or 4096.
    pub lba: u32,
    /// Quota in clusters.
    pub total_clusters: u64,
    /// Free clusters of the quota or of the file system, whichever is less.
    pub free_clusters: u64,
    /// Quota in clusters after [`VolumeStore::grow`].
    pub growable_clusters: u64,
}

/// Properties and space of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeInfo {
    /// Name, size and kind.
    pub volume: Volume,
    /// Clusters that the volume is counted with.
    pub clusters: u64,
    /// Name of its parent snapshot.
    pub parent: Option<String>,
    /// Names of its clones, if it is a snapshot.
    pub clones: Vec<String>,
}

pub(super) struct SharedStore {
    pub(super) store_files: StoreFiles,
    state: Mutex<StoreState>,
    /// Signal that a claim has ended.
    released: Condvar,
}

pub(super) struct StoreState {
    pub(super) contents: Contents,
    /// Volumes that are being created, by name.
    pending: BTreeMap<String, PendingVolume>,
    claims: BTreeMap<Uuid, VolumeUse>,
    pub(super) background: Background,
    /// True once the store was removed.
    pub(super) gone: bool,
}

/// A volume that is being created.
#[derive(Clone, Copy, Debug)]
struct PendingVolume {
    /// Clusters reserved for it.
    clusters: u64,
    /// Progress of the copy of its content.
    copy: Option<CopyProgress>,
}

/// Space of a store in clusters.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoreSpace {
    /// Quota.
    total: u64,
    /// Free clusters of the quota or of the file system, whichever is less.
    free: u64,
    /// Quota with all free space of the file system.
    pub(super) growable: u64,
}

/// Use of a volume's file.
#[derive(Clone, Copy, Debug)]
struct VolumeUse {
    count: u32,
    claim: VolumeClaimKind,
    /// True during a long copy.
    long: bool,
}

/// Kind of use of a volume's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VolumeClaimKind {
    /// Reading: others may read as well.
    Read,
    /// Changing: no other use.
    Change,
}

impl VolumeStore {
    /// Opens the store in the folder at `path`, and creates it if necessary. `size` in bytes is the new quota; without
    /// it a new store gets the free space of the file system. `lba`: block size of a new store's volumes.
    ///
    /// # Errors
    /// The folder has another store, or is in use, or the file system fails.
    pub fn open(
        path: &Path,
        name: &str,
        size: Option<u64>,
        lba: u32,
    ) -> Result<VolumeStore, VolumeError> {
        VolumeStore::open_with(path, name, (size, lba), Box::new(NoStepHook))
    }

    /// Opens the store in the folder at `path`, whatever its present name is; a new one is called `name`.
    ///
    /// # Errors
    /// As [`VolumeStore::open`].
    pub fn reopen(path: &Path, name: &str, lba: u32) -> Result<VolumeStore, VolumeError> {
        let index = std::fs::read(path.join(super::store_files::INDEX)).ok();
        let there = index.and_then(|image| Contents::parse(&image).ok());
        let name = there.as_ref().map_or(name, |contents| &contents.name);
        VolumeStore::open(path, name, None, lba)
    }

    pub(super) fn open_with(
        path: &Path,
        name: &str,
        (size, lba): (Option<u64>, u32),
        step_hook: Box<dyn StoreStepHook>,
    ) -> Result<VolumeStore, VolumeError> {
        check_name(name)?;
        check_lba(lba)?;
        std::fs::create_dir_all(path).map_err(|e| VolumeError::io(path, "make", e))?;
        let store_files = StoreFiles::folder(path, step_hook)?;
        let index =
            store_files.load().map_err(|e| VolumeError::io(path, "read store.json in", e))?;
        let contents = match index {
            Some(image) => known(&store_files, &image, name, size)?,
            None => new(&store_files, name, size, lba)?,
        };
        VolumeStore::with(store_files, contents)
    }

    /// Creates a store in memory, which is lost with the process.
    ///
    /// # Errors
    /// The name or a size is invalid.
    pub fn memory(name: &str, size: u64, lba: u32) -> Result<VolumeStore, VolumeError> {
        check_name(name)?;
        check_lba(lba)?;
        let store_files = StoreFiles::memory(Box::new(NoStepHook));
        let uuid = random(&store_files)?;
        VolumeStore::with(store_files, Contents::new(name, uuid, size, lba))
    }

    fn with(store_files: StoreFiles, contents: Contents) -> Result<VolumeStore, VolumeError> {
        let failed = |path: &Path, e| VolumeError::io(path, "clean", e);
        match store_files.sweep(&contents).map_err(|e| failed(store_files.path(), e))? {
            0 => {}
            files => info!(store = contents.name, files, "removed what was not finished"),
        }
        settle(&store_files, &contents);
        let state = StoreState {
            contents,
            pending: BTreeMap::new(),
            claims: BTreeMap::new(),
            background: Background::default(),
            gone: false,
        };
        let shared =
            SharedStore { store_files, state: Mutex::new(state), released: Condvar::new() };
        let store = VolumeStore { shared: Arc::new(shared) };
        store.shared.wake(&mut store.shared.lock());
        Ok(store)
    }

    /// Returns properties and space of the store.
    ///
    /// # Errors
    /// The file system reports no figures.
    pub fn info(&self) -> Result<StoreInfo, VolumeError> {
        let state = self.shared.lock();
        let StoreSpace { total, free, growable } = self.shared.store_space(&state)?;
        let Contents { name, uuid, lba, .. } = &state.contents;
        let path = self.shared.store_files.path().to_owned();
        Ok(StoreInfo {
            name: name.clone(),
            uuid: *uuid,
            path,
            lba: *lba,
            total_clusters: total,
            free_clusters: free,
            growable_clusters: growable,
        })
    }

    /// Returns the volumes whose content is being copied, with the progress.
    #[must_use]
    pub fn copies(&self) -> Vec<(String, CopyProgress)> {
        let state = self.shared.lock();
        let copy = |(name, pending): (&String, &PendingVolume)| Some((name.clone(), pending.copy?));
        state.pending.iter().filter_map(copy).collect()
    }

    /// Returns the volumes in the order of their creation.
    #[must_use]
    pub fn volumes(&self) -> Vec<VolumeInfo> {
        let volumes = self.shared.lock().contents.volumes.clone();
        let held = volume_space::held(&self.shared.store_files, &volumes);
        let mut names = BTreeMap::new();
        let mut clones: BTreeMap<Uuid, Vec<String>> = BTreeMap::new();
        for volume in &volumes {
            names.insert(volume.uuid, volume.name.clone());
            if let Some(parent) = volume.parent {
                clones.entry(parent).or_default().push(volume.name.clone());
            }
        }
        let info = |(volume, held): (Volume, VolumeSpace)| VolumeInfo {
            clusters: held.clusters,
            parent: volume.parent.and_then(|parent| names.get(&parent).cloned()),
            clones: clones.get(&volume.uuid).cloned().unwrap_or_default(),
            volume,
        };
        volumes.into_iter().zip(held).map(info).collect()
    }

    /// Returns the volumes without their space, which is cheaper.
    #[must_use]
    pub fn list(&self) -> Vec<Volume> {
        self.shared.lock().contents.volumes.clone()
    }

    /// Returns one of its volumes.
    #[must_use]
    pub fn volume(&self, uuid: Uuid) -> Option<Volume> {
        self.shared.lock().contents.find(uuid).cloned()
    }

    /// Returns the path of a volume's file, for opening it.
    #[must_use]
    pub fn file(&self, uuid: Uuid) -> PathBuf {
        self.shared.store_files.file(uuid)
    }

    /// Returns the path of a volume's file, if it outlives the process.
    #[must_use]
    pub fn lasting_file(&self, uuid: Uuid) -> Option<PathBuf> {
        self.shared.store_files.lasting_file(uuid)
    }

    /// Returns the block size of its volumes: 512 or 4096.
    #[must_use]
    pub fn lba(&self) -> u32 {
        self.shared.lock().contents.lba
    }

    /// Returns name and UUID.
    #[must_use]
    pub fn identity(&self) -> (String, Uuid) {
        let state = self.shared.lock();
        (state.contents.name.clone(), state.contents.uuid)
    }
}

impl Drop for VolumeStore {
    /// Waits until the files of deleted volumes are removed.
    fn drop(&mut self) {
        let worker = {
            let mut state = self.shared.lock();
            state.background.stop = true;
            state.background.worker.take()
        };
        if let Some(worker) = worker {
            let _ = worker.join();
        }
    }
}

impl SharedStore {
    pub(super) fn lock(&self) -> MutexGuard<'_, StoreState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the present space of the store.
    pub(super) fn store_space(&self, state: &StoreState) -> Result<StoreSpace, VolumeError> {
        let held = volume_space::held(&self.store_files, &state.contents.volumes);
        let used: u64 = held.iter().map(|held| held.clusters).sum();
        let owed: u64 = held.iter().map(|held| held.owed).sum();
        let total = volume_space::whole_clusters(state.contents.size);
        let pending: u64 = state.pending.values().map(|pending| pending.clusters).sum();
        let of_quota = total.saturating_sub(used);
        let space = self
            .store_files
            .space()
            .map_err(|e| VolumeError::io(self.store_files.path(), "examine", e))?;
        let (free, growable) = match space {
            None => (of_quota, total),
            Some((_, free)) => {
                let free =
                    (free + state.background.leaving(&self.store_files)).saturating_sub(owed);
                let free = volume_space::whole_clusters(free);
                (of_quota.min(free), total.max(used + free))
            }
        };
        Ok(StoreSpace { total, free: free.saturating_sub(pending), growable })
    }

    /// Changes the index; the copy in memory changes once the disk has it.
    pub(super) fn commit(
        &self,
        state: &mut StoreState,
        change: impl FnOnce(&mut Contents),
    ) -> Result<(), VolumeError> {
        if state.gone {
            return Err(VolumeError::NotFound(state.contents.name.clone()));
        }
        let mut changed = state.contents.clone();
        change(&mut changed);
        if let Err(error) = self.store_files.save(&changed) {
            // The file may have the change in spite of the error: write the old index back.
            if let Err(again) = self.store_files.save(&state.contents) {
                warn!(store = state.contents.name, "store.json may have an undone change: {again}");
            }
            return Err(VolumeError::io(self.store_files.path(), "write store.json in", error));
        }
        state.contents = changed;
        Ok(())
    }

    /// Reserves a name and `clusters` for a new volume.
    pub(super) fn reserve(
        &self,
        name: &str,
        clusters: u64,
    ) -> Result<ReservedVolume<'_>, VolumeError> {
        check_name(name)?;
        let mut state = self.lock();
        state.check_free(name)?;
        self.check_space(&state, clusters)?;
        state.pending.insert(name.into(), PendingVolume { clusters, copy: None });
        Ok(ReservedVolume { shared: self, name: name.into() })
    }

    pub(super) fn check_space(&self, state: &StoreState, needed: u64) -> Result<(), VolumeError> {
        if needed == 0 {
            return Ok(());
        }
        let free = self.store_space(state)?.free;
        if needed > free {
            return Err(VolumeError::NoSpace { needed, free });
        }
        Ok(())
    }

    /// Claims a volume's file; waits until no other claim conflicts with it.
    ///
    /// # Errors
    /// The volume does not exist, or a long copy holds it.
    pub(super) fn claim(
        &self,
        uuid: Uuid,
        claim: VolumeClaimKind,
    ) -> Result<ClaimedVolume<'_>, VolumeError> {
        let mut state = self.lock();
        loop {
            let volume = state.contents.find(uuid).filter(|_| !state.gone).cloned();
            let volume = volume.ok_or_else(|| VolumeError::NotFound(uuid.to_string()))?;
            match state.claims.get_mut(&uuid) {
                None => {
                    state.claims.insert(uuid, VolumeUse { count: 1, claim, long: false });
                    return Ok(ClaimedVolume { shared: self, volume });
                }
                Some(held)
                    if (held.claim, claim) == (VolumeClaimKind::Read, VolumeClaimKind::Read) =>
                {
                    held.count += 1;
                    return Ok(ClaimedVolume { shared: self, volume });
                }
                Some(held) if held.long => {
                    return Err(VolumeError::Busy(format!("{} is being copied", volume.name)));
                }
                Some(_) => {}
            }
            state = self.released.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl StoreState {
    pub(super) fn check_free(&self, name: &str) -> Result<(), VolumeError> {
        let is_taken = self.contents.volumes.iter().any(|volume| volume.name == name);
        match is_taken || self.pending.contains_key(name) {
            true => Err(VolumeError::Taken(name.into())),
            false => Ok(()),
        }
    }
}

/// Name and space reserved for a new volume, until this is dropped.
pub(super) struct ReservedVolume<'a> {
    shared: &'a SharedStore,
    pub(super) name: String,
}

impl ReservedVolume<'_> {
    /// Reserves more space.
    pub(super) fn grow(&self, clusters: u64) -> Result<(), VolumeError> {
        let mut state = self.shared.lock();
        self.shared.check_space(&state, clusters)?;
        if let Some(kept) = state.pending.get_mut(&self.name) {
            kept.clusters += clusters;
        }
        Ok(())
    }

    /// Records the progress of the copy.
    pub(super) fn record_progress(&self, progress: CopyProgress) {
        if let Some(kept) = self.shared.lock().pending.get_mut(&self.name) {
            kept.copy = Some(progress);
        }
    }

    /// Ends the reservation, since the volume is counted itself from now on.
    pub(super) fn end(self, state: &mut StoreState) {
        state.pending.remove(&self.name);
        #[expect(clippy::mem_forget, reason = "its drop would take the entry away once more")]
        std::mem::forget(self);
    }
}

impl Drop for ReservedVolume<'_> {
    fn drop(&mut self) {
        self.shared.lock().pending.remove(&self.name);
    }
}

/// Claim on a volume's file, until this is dropped.
pub(super) struct ClaimedVolume<'a> {
    shared: &'a SharedStore,
    /// Entry of the volume at the time of the claim.
    pub(super) volume: Volume,
}

impl ClaimedVolume<'_> {
    /// Marks the claim as long: conflicting claims fail instead of waiting.
    pub(super) fn takes_long(&self) {
        if let Some(held) = self.shared.lock().claims.get_mut(&self.volume.uuid) {
            held.long = true;
        }
        self.shared.released.notify_all();
    }
}

impl Drop for ClaimedVolume<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        if let Some(held) = state.claims.get_mut(&self.volume.uuid) {
            held.count -= 1;
            if held.count == 0 {
                state.claims.remove(&self.volume.uuid);
            }
        }
        self.shared.released.notify_all();
    }
}

/// # Errors
/// A description of the problem.
pub(super) fn check_name(name: &str) -> Result<(), VolumeError> {
    let is_plain = !name.contains('/') && !name.contains(char::is_control);
    match (1..=NAME_BYTES_MAX).contains(&name.len()) && is_plain {
        true => Ok(()),
        false => Err(VolumeError::Invalid(format!(
            "{name:?} cannot be a name: it has 1 to {NAME_BYTES_MAX} bytes and no slash"
        ))),
    }
}

fn check_lba(lba: u32) -> Result<(), VolumeError> {
    match lba {
        512 | 4096 => Ok(()),
        _ => Err(VolumeError::Invalid(format!("blocks have 512 or 4096 bytes, not {lba}"))),
    }
}

fn random(store_files: &StoreFiles) -> Result<Uuid, VolumeError> {
    Uuid::random().map_err(|e| VolumeError::io(store_files.path(), "name", e))
}

/// Returns the index of an existing store, with a new quota if one is given.
fn known(
    store_files: &StoreFiles,
    image: &[u8],
    name: &str,
    size: Option<u64>,
) -> Result<Contents, VolumeError> {
    let path = store_files.path().display();
    let mut contents = Contents::parse(image)
        .map_err(|e| VolumeError::Invalid(format!("{path}: its store.json is damaged: {e}")))?;
    if contents.name != name {
        let has = &contents.name;
        return Err(VolumeError::Invalid(format!("{path}: has the store {has}, not {name}")));
    }
    if let Some(size) = size.filter(|size| *size != contents.size) {
        contents.size = size;
        store_files
            .save(&contents)
            .map_err(|e| VolumeError::io(store_files.path(), "write store.json in", e))?;
    }
    Ok(contents)
}

/// Returns the index of a new store.
fn new(
    store_files: &StoreFiles,
    name: &str,
    size: Option<u64>,
    lba: u32,
) -> Result<Contents, VolumeError> {
    let failed = |action| move |e| VolumeError::io(store_files.path(), action, e);
    let entries = std::fs::read_dir(store_files.path()).map_err(failed("read"))?;
    let is_volume = |name: &str| name.parse::<Uuid>().is_ok();
    if entries.flatten().any(|entry| is_volume(&entry.file_name().to_string_lossy())) {
        let path = store_files.path().display();
        return Err(VolumeError::Invalid(format!(
            "{path}: has files of volumes and no store.json: restore it, or choose an empty folder"
        )));
    }
    let free = store_files.space().map_err(failed("examine"))?.map_or(0, |(_, free)| free);
    let size = size.unwrap_or(free);
    if size < CLUSTER_BYTES {
        return Err(VolumeError::Invalid(format!("a store of {size} bytes holds no volume")));
    }
    let contents = Contents::new(name, random(store_files)?, size, lba);
    store_files.save(&contents).map_err(failed("write store.json in"))?;
    Ok(contents)
}

/// Truncates files whose resize was interrupted, and reports files that are too short.
fn settle(store_files: &StoreFiles, contents: &Contents) {
    for volume in &contents.volumes {
        let name = &volume.name;
        let settled = store_files.open(volume.uuid).and_then(|file| match file.metadata()?.len() {
            bytes if bytes > volume.size => store_files.set_size(&file, volume.size),
            bytes if bytes < volume.size => {
                warn!(
                    volume = name,
                    bytes, "its file is shorter than it was: {} were", volume.size
                );
                Ok(())
            }
            _ => Ok(()),
        });
        if let Err(error) = settled {
            let path = store_files.file(volume.uuid);
            warn!(volume = name, "cannot use its file {}: {error}", path.display());
        }
    }
}
