//! A store: opening it, and who may do what to it at the same time.

mod background;

use super::VolumeError;
use super::contents::{CLUSTER_BYTES, Contents, Volume};
use super::copy::Progress;
use super::figures::{self, Held};
use super::gate::{Gate, Open};
use super::home::Home;
use super::uuid::Uuid;
use background::Background;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use tracing::{info, warn};

/// Octets that a name has at most.
const NAME_BYTES_MAX: usize = 63;

/// A store of volumes. All threads may use it at the same time.
pub struct Store {
    pub(super) shared: Arc<Shared>,
}

/// What a store is and has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreInfo {
    /// Its name.
    pub name: String,
    /// Its UUID, which it keeps.
    pub uuid: Uuid,
    /// Its folder; "memory" without one.
    pub path: PathBuf,
    /// Block size of its volumes: 512 or 4096.
    pub lba: u32,
    /// Its quota in clusters.
    pub total_clusters: u64,
    /// Rest of it, or of the file system, if that is less.
    pub free_clusters: u64,
    /// Its quota after [`Store::grow`].
    pub growable_clusters: u64,
}

/// What a volume is and has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeInfo {
    /// Name, size and kind.
    pub volume: Volume,
    /// Clusters that it is counted with.
    pub clusters: u64,
    /// Name of the snapshot that it began with.
    pub parent: Option<String>,
    /// Names of those that began with it, if it is a snapshot.
    pub clones: Vec<String>,
}

pub(super) struct Shared {
    pub(super) home: Home,
    state: Mutex<State>,
    /// A claim has ended.
    released: Condvar,
}

pub(super) struct State {
    pub(super) contents: Contents,
    /// Names that volumes will have.
    pending: BTreeMap<String, Pending>,
    claims: BTreeMap<Uuid, Use>,
    pub(super) background: Background,
    /// It was removed.
    pub(super) gone: bool,
}

/// A volume to come.
#[derive(Clone, Copy, Debug)]
struct Pending {
    /// That it needs.
    clusters: u64,
    /// What it is to have is being copied.
    copy: Option<Progress>,
}

/// Clusters of a store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figures {
    /// Its quota.
    total: u64,
    /// Rest of it, or of the file system, if that is less.
    free: u64,
    /// Its quota with all that its file system has free.
    pub(super) growable: u64,
}

/// Who uses a volume's file.
#[derive(Clone, Copy, Debug)]
struct Use {
    count: u32,
    claim: Claim,
    /// A copy is under way, which takes long.
    long: bool,
}

/// What for a volume's file is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// Others may read it meanwhile.
    Read,
    /// It changes.
    Change,
}

impl Store {
    /// Opens the store in the folder at `path`, which is made if it is not there. With `size` octets that is its quota
    /// from now on; without, a new one has what the file system has. `lba`: block size of a new one's volumes.
    ///
    /// # Errors
    /// It is another store's folder, or in use, or the file system has trouble.
    pub fn open(
        path: &Path,
        name: &str,
        size: Option<u64>,
        lba: u32,
    ) -> Result<Store, VolumeError> {
        Store::open_with(path, name, (size, lba), Box::new(Open))
    }

    /// Opens the store that is in the folder at `path`, whatever its name is by now; a new one gets `name`.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn reopen(path: &Path, name: &str, lba: u32) -> Result<Store, VolumeError> {
        let index = std::fs::read(path.join(super::home::INDEX)).ok();
        let there = index.and_then(|image| Contents::parse(&image).ok());
        let name = there.as_ref().map_or(name, |contents| &contents.name);
        Store::open(path, name, None, lba)
    }

    pub(super) fn open_with(
        path: &Path,
        name: &str,
        (size, lba): (Option<u64>, u32),
        gate: Box<dyn Gate>,
    ) -> Result<Store, VolumeError> {
        check_name(name)?;
        check_lba(lba)?;
        std::fs::create_dir_all(path).map_err(|e| VolumeError::io(path, "make", e))?;
        let home = Home::folder(path, gate)?;
        let index = home.load().map_err(|e| VolumeError::io(path, "read store.json in", e))?;
        let contents = match index {
            Some(image) => known(&home, &image, name, size)?,
            None => new(&home, name, size, lba)?,
        };
        Store::with(home, contents)
    }

    /// One in memory that is gone with the process.
    ///
    /// # Errors
    /// The name or the sizes cannot be.
    pub fn memory(name: &str, size: u64, lba: u32) -> Result<Store, VolumeError> {
        check_name(name)?;
        check_lba(lba)?;
        let home = Home::memory(Box::new(Open));
        let uuid = random(&home)?;
        Store::with(home, Contents::new(name, uuid, size, lba))
    }

    fn with(home: Home, contents: Contents) -> Result<Store, VolumeError> {
        let failed = |path: &Path, e| VolumeError::io(path, "clean", e);
        match home.sweep(&contents).map_err(|e| failed(home.path(), e))? {
            0 => {}
            files => info!(store = contents.name, files, "removed what was not finished"),
        }
        settle(&home, &contents);
        let state = State {
            contents,
            pending: BTreeMap::new(),
            claims: BTreeMap::new(),
            background: Background::default(),
            gone: false,
        };
        let shared = Shared { home, state: Mutex::new(state), released: Condvar::new() };
        let store = Store { shared: Arc::new(shared) };
        store.shared.wake(&mut store.shared.lock());
        Ok(store)
    }

    /// What it is and has by now.
    ///
    /// # Errors
    /// The file system does not tell.
    pub fn info(&self) -> Result<StoreInfo, VolumeError> {
        let state = self.shared.lock();
        let Figures { total, free, growable } = self.shared.figures(&state)?;
        let Contents { name, uuid, lba, .. } = &state.contents;
        let path = self.shared.home.path().to_owned();
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

    /// Volumes to come whose content is being copied, and how far that is.
    #[must_use]
    pub fn copies(&self) -> Vec<(String, Progress)> {
        let state = self.shared.lock();
        let copy = |(name, pending): (&String, &Pending)| Some((name.clone(), pending.copy?));
        state.pending.iter().filter_map(copy).collect()
    }

    /// Its volumes in the order in which they were made.
    #[must_use]
    pub fn volumes(&self) -> Vec<VolumeInfo> {
        let volumes = self.shared.lock().contents.volumes.clone();
        let held = figures::held(&self.shared.home, &volumes);
        let mut names = BTreeMap::new();
        let mut clones: BTreeMap<Uuid, Vec<String>> = BTreeMap::new();
        for volume in &volumes {
            names.insert(volume.uuid, volume.name.clone());
            if let Some(parent) = volume.parent {
                clones.entry(parent).or_default().push(volume.name.clone());
            }
        }
        let info = |(volume, held): (Volume, Held)| VolumeInfo {
            clusters: held.clusters,
            parent: volume.parent.and_then(|parent| names.get(&parent).cloned()),
            clones: clones.get(&volume.uuid).cloned().unwrap_or_default(),
            volume,
        };
        volumes.into_iter().zip(held).map(info).collect()
    }

    /// Its volumes without what they hold, which costs less.
    #[must_use]
    pub fn list(&self) -> Vec<Volume> {
        self.shared.lock().contents.volumes.clone()
    }

    /// One of its volumes.
    #[must_use]
    pub fn volume(&self, uuid: Uuid) -> Option<Volume> {
        self.shared.lock().contents.find(uuid).cloned()
    }

    /// The file of a volume, by which a namespace opens it.
    #[must_use]
    pub fn file(&self, uuid: Uuid) -> PathBuf {
        self.shared.home.file(uuid)
    }

    /// The same, if it outlives the process.
    #[must_use]
    pub fn lasting_file(&self, uuid: Uuid) -> Option<PathBuf> {
        self.shared.home.lasting_file(uuid)
    }

    /// Block size of its volumes: 512 or 4096.
    #[must_use]
    pub fn lba(&self) -> u32 {
        self.shared.lock().contents.lba
    }

    /// Name and UUID.
    #[must_use]
    pub fn identity(&self) -> (String, Uuid) {
        let state = self.shared.lock();
        (state.contents.name.clone(), state.contents.uuid)
    }
}

impl Drop for Store {
    /// Waits for files that are being removed.
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

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Clusters that it has and holds now.
    pub(super) fn figures(&self, state: &State) -> Result<Figures, VolumeError> {
        let held = figures::held(&self.home, &state.contents.volumes);
        let used: u64 = held.iter().map(|held| held.clusters).sum();
        let owed: u64 = held.iter().map(|held| held.owed).sum();
        let total = figures::whole_clusters(state.contents.size);
        let pending: u64 = state.pending.values().map(|pending| pending.clusters).sum();
        let of_quota = total.saturating_sub(used);
        let space =
            self.home.space().map_err(|e| VolumeError::io(self.home.path(), "examine", e))?;
        let (free, growable) = match space {
            None => (of_quota, total),
            Some((_, free)) => {
                let free = (free + state.background.leaving(&self.home)).saturating_sub(owed);
                let free = figures::whole_clusters(free);
                (of_quota.min(free), total.max(used + free))
            }
        };
        Ok(Figures { total, free: free.saturating_sub(pending), growable })
    }

    /// Changes the index; in memory it is changed when the disk has it.
    pub(super) fn commit(
        &self,
        state: &mut State,
        change: impl FnOnce(&mut Contents),
    ) -> Result<(), VolumeError> {
        if state.gone {
            return Err(VolumeError::NotFound(state.contents.name.clone()));
        }
        let mut changed = state.contents.clone();
        change(&mut changed);
        if let Err(error) = self.home.save(&changed) {
            // It may be there all the same, but nobody is told so.
            if let Err(again) = self.home.save(&state.contents) {
                warn!(store = state.contents.name, "store.json may have an undone change: {again}");
            }
            return Err(VolumeError::io(self.home.path(), "write store.json in", error));
        }
        state.contents = changed;
        Ok(())
    }

    /// Keeps a name for a volume to come, and `clusters`.
    pub(super) fn reserve(&self, name: &str, clusters: u64) -> Result<Reserved<'_>, VolumeError> {
        check_name(name)?;
        let mut state = self.lock();
        state.check_free(name)?;
        self.check_space(&state, clusters)?;
        state.pending.insert(name.into(), Pending { clusters, copy: None });
        Ok(Reserved { shared: self, name: name.into() })
    }

    pub(super) fn check_space(&self, state: &State, needed: u64) -> Result<(), VolumeError> {
        if needed == 0 {
            return Ok(());
        }
        let free = self.figures(state)?.free;
        if needed > free {
            return Err(VolumeError::NoSpace { needed, free });
        }
        Ok(())
    }

    /// Waits until nobody else has a volume's file in a way that does not go together with `claim`.
    ///
    /// # Errors
    /// There is no such volume, or somebody has it for long.
    pub(super) fn claim(&self, uuid: Uuid, claim: Claim) -> Result<Claimed<'_>, VolumeError> {
        let mut state = self.lock();
        loop {
            let volume = state.contents.find(uuid).filter(|_| !state.gone).cloned();
            let volume = volume.ok_or_else(|| VolumeError::NotFound(uuid.to_string()))?;
            match state.claims.get_mut(&uuid) {
                None => {
                    state.claims.insert(uuid, Use { count: 1, claim, long: false });
                    return Ok(Claimed { shared: self, volume });
                }
                Some(held) if (held.claim, claim) == (Claim::Read, Claim::Read) => {
                    held.count += 1;
                    return Ok(Claimed { shared: self, volume });
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

impl State {
    pub(super) fn check_free(&self, name: &str) -> Result<(), VolumeError> {
        let is_taken = self.contents.volumes.iter().any(|volume| volume.name == name);
        match is_taken || self.pending.contains_key(name) {
            true => Err(VolumeError::Taken(name.into())),
            false => Ok(()),
        }
    }
}

/// A name and space that are kept for a volume to come, until this is dropped.
pub(super) struct Reserved<'a> {
    shared: &'a Shared,
    pub(super) name: String,
}

impl Reserved<'_> {
    /// Keeps more space.
    pub(super) fn grow(&self, clusters: u64) -> Result<(), VolumeError> {
        let mut state = self.shared.lock();
        self.shared.check_space(&state, clusters)?;
        if let Some(kept) = state.pending.get_mut(&self.name) {
            kept.clusters += clusters;
        }
        Ok(())
    }

    /// Whoever asks is told how far its copy is.
    pub(super) fn tell(&self, progress: Progress) {
        if let Some(kept) = self.shared.lock().pending.get_mut(&self.name) {
            kept.copy = Some(progress);
        }
    }

    /// The volume is there: no figure counts it twice.
    pub(super) fn end(self, state: &mut State) {
        state.pending.remove(&self.name);
        #[expect(clippy::mem_forget, reason = "its drop would take the entry away once more")]
        std::mem::forget(self);
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.shared.lock().pending.remove(&self.name);
    }
}

/// A volume whose file is used, until this is dropped.
pub(super) struct Claimed<'a> {
    shared: &'a Shared,
    /// As it was when it was claimed.
    pub(super) volume: Volume,
}

impl Claimed<'_> {
    /// From now on others are told to come later.
    pub(super) fn takes_long(&self) {
        if let Some(held) = self.shared.lock().claims.get_mut(&self.volume.uuid) {
            held.long = true;
        }
        self.shared.released.notify_all();
    }
}

impl Drop for Claimed<'_> {
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
/// What is wrong with it.
pub(super) fn check_name(name: &str) -> Result<(), VolumeError> {
    let is_plain = !name.contains('/') && !name.contains(char::is_control);
    match (1..=NAME_BYTES_MAX).contains(&name.len()) && is_plain {
        true => Ok(()),
        false => Err(VolumeError::Invalid(format!(
            "{name:?} cannot be a name: it has 1 to {NAME_BYTES_MAX} octets and no slash"
        ))),
    }
}

fn check_lba(lba: u32) -> Result<(), VolumeError> {
    match lba {
        512 | 4096 => Ok(()),
        _ => Err(VolumeError::Invalid(format!("blocks have 512 or 4096 octets, not {lba}"))),
    }
}

fn random(home: &Home) -> Result<Uuid, VolumeError> {
    Uuid::random().map_err(|e| VolumeError::io(home.path(), "name", e))
}

/// The index that was there, with another quota if that is asked for.
fn known(
    home: &Home,
    image: &[u8],
    name: &str,
    size: Option<u64>,
) -> Result<Contents, VolumeError> {
    let path = home.path().display();
    let mut contents = Contents::parse(image)
        .map_err(|e| VolumeError::Invalid(format!("{path}: its store.json is damaged: {e}")))?;
    if contents.name != name {
        let has = &contents.name;
        return Err(VolumeError::Invalid(format!("{path}: has the store {has}, not {name}")));
    }
    if let Some(size) = size.filter(|size| *size != contents.size) {
        contents.size = size;
        home.save(&contents).map_err(|e| VolumeError::io(home.path(), "write store.json in", e))?;
    }
    Ok(contents)
}

/// The index of a new store.
fn new(home: &Home, name: &str, size: Option<u64>, lba: u32) -> Result<Contents, VolumeError> {
    let failed = |action| move |e| VolumeError::io(home.path(), action, e);
    let entries = std::fs::read_dir(home.path()).map_err(failed("read"))?;
    let is_volume = |name: &str| name.parse::<Uuid>().is_ok();
    if entries.flatten().any(|entry| is_volume(&entry.file_name().to_string_lossy())) {
        let path = home.path().display();
        return Err(VolumeError::Invalid(format!(
            "{path}: has files of volumes and no store.json: restore it, or choose an empty folder"
        )));
    }
    let free = home.space().map_err(failed("examine"))?.map_or(0, |(_, free)| free);
    let size = size.unwrap_or(free);
    if size < CLUSTER_BYTES {
        return Err(VolumeError::Invalid(format!("a store of {size} octets holds no volume")));
    }
    let contents = Contents::new(name, random(home)?, size, lba);
    home.save(&contents).map_err(failed("write store.json in"))?;
    Ok(contents)
}

/// Cuts files back that were being grown, and says what is missing.
fn settle(home: &Home, contents: &Contents) {
    for volume in &contents.volumes {
        let name = &volume.name;
        let settled = home.open(volume.uuid).and_then(|file| match file.metadata()?.len() {
            bytes if bytes > volume.size => home.set_size(&file, volume.size),
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
            let path = home.file(volume.uuid);
            warn!(volume = name, "cannot use its file {}: {error}", path.display());
        }
    }
}
