//! What is done to volumes. Each operation is on stable storage when it answers, or has left nothing.

use super::VolumeError;
use super::contents::{CLUSTER_BYTES, Volume, clusters};
use super::copy::{self, Progress, Quiet};
use super::figures;
use super::store::{Claim, Claimed, Reserved, Shared, Store, check_name};
use super::uuid::Uuid;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// Between two lines of the log about one copy.
const SAY_EACH: Duration = Duration::from_secs(10);

impl Store {
    /// Makes a volume of `bytes`, rounded up to clusters, that reads as zeroes. A thin one takes space when it is
    /// written, and may be larger than what is free.
    ///
    /// # Errors
    /// The name is taken, or there is no room.
    pub fn create(&self, name: &str, bytes: u64, thin: bool) -> Result<Uuid, VolumeError> {
        let shared = &self.shared;
        let size = whole(bytes)?;
        let reserved = shared.reserve(name, if thin { 0 } else { clusters(size) })?;
        let volume = Volume { thin, ..shared.new_volume(name, size)? };
        let file = shared.make(&volume, |file| match thin {
            true => shared.home.set_size(file, size),
            false => shared.home.allocate(file, 0, size),
        })?;
        drop(file);
        shared.add(reserved, volume, |_, _| {})
    }

    /// Makes a snapshot of a volume, with all that was written to it before the call. The volume goes on as its clone.
    /// `quiet` says whether no host can write; only asked where content has to be copied.
    ///
    /// # Errors
    /// It is a snapshot itself, the name is taken, a copy would be torn, or there is no room.
    pub fn snapshot(&self, uuid: Uuid, name: &str, quiet: Quiet<'_>) -> Result<Uuid, VolumeError> {
        let shared = &self.shared;
        // First the name: who asks for the same again is told so, and does not wait.
        let reserved = shared.reserve(name, 0)?;
        let claimed = shared.claim(uuid, Claim::Change)?;
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

    /// Makes a volume that begins with a snapshot's content.
    ///
    /// # Errors
    /// It is not read-only, the name is taken, or there is no room.
    pub fn clone_snapshot(&self, uuid: Uuid, name: &str) -> Result<Uuid, VolumeError> {
        let shared = &self.shared;
        let reserved = shared.reserve(name, 0)?;
        let claimed = shared.claim(uuid, Claim::Read)?;
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

    /// Reserves the full size of a volume and detaches it from its snapshot; its own space follows in the background.
    ///
    /// # Errors
    /// It is a snapshot, or there is no room.
    pub fn inflate(&self, uuid: Uuid) -> Result<(), VolumeError> {
        let shared = &self.shared;
        let claimed = shared.claim(uuid, Claim::Change)?;
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

    /// Detaches a volume from its snapshot. It stays thin; what both share becomes its own in the background.
    ///
    /// # Errors
    /// It is a snapshot, or began with none, or there is no room.
    pub fn decouple(&self, uuid: Uuid) -> Result<(), VolumeError> {
        let shared = &self.shared;
        let claimed = shared.claim(uuid, Claim::Change)?;
        let volume = &claimed.volume;
        let name = &volume.name;
        if volume.snapshot {
            return Err(VolumeError::ReadOnly(name.clone()));
        }
        if volume.parent.is_none() {
            return Err(VolumeError::Invalid(format!("{name} did not begin as a snapshot")));
        }
        let failed = |e| VolumeError::io(&shared.home.file(uuid), "examine", e);
        let content = shared.home.open(uuid).and_then(|file| figures::content(&file));
        let needed = clusters(content.map_err(failed)?);
        shared.detach(volume, needed, |volume| volume.detaching = true)
    }

    /// Makes a volume read-only, for ever. What it is exported by is another matter.
    ///
    /// # Errors
    /// There is no such volume.
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

    /// Makes a thin volume with the content of another file or block device, whose `bytes` are rounded up to clusters.
    /// It shares nothing with that but what the file system can share. `quiet` says whether nobody can write to it.
    ///
    /// # Errors
    /// The name is taken, somebody writes to it, or there is no room.
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
        let source = Source { file: &file, path: from, name: &from.display().to_string(), bytes };
        shared.fill_with(&source, (&reserved, &volume), quiet, (|| Ok(()), || {}))?;
        shared.add(reserved, volume, |_, _| {})
    }

    /// Gives the store all that its file system has free, if that is more than its quota.
    ///
    /// # Errors
    /// The file system has trouble.
    pub fn grow(&self) -> Result<(), VolumeError> {
        let mut state = self.shared.lock();
        let growable = self.shared.figures(&state)?.growable * CLUSTER_BYTES;
        if growable <= state.contents.size {
            return Ok(());
        }
        self.shared.commit(&mut state, |contents| contents.size = growable)
    }

    /// Gives the store another name.
    ///
    /// # Errors
    /// It cannot be one.
    pub fn rename_store(&self, name: &str) -> Result<(), VolumeError> {
        check_name(name)?;
        self.shared.commit(&mut self.shared.lock(), |contents| contents.name = name.into())
    }

    /// Gives a volume `bytes`, rounded up to clusters. What is new reads as zeroes. The size that it has.
    ///
    /// # Errors
    /// It is larger, or a snapshot, or there is no room.
    pub fn resize(&self, uuid: Uuid, bytes: u64) -> Result<u64, VolumeError> {
        let shared = &self.shared;
        let claimed = shared.claim(uuid, Claim::Change)?;
        let (volume, size) = (&claimed.volume, whole(bytes)?);
        let (name, old) = (&volume.name, volume.size);
        if volume.is_read_only() {
            return Err(VolumeError::ReadOnly(name.clone()));
        }
        if size < old {
            return Err(VolumeError::Invalid(format!(
                "{name} has {old} octets: {size} would cut data off"
            )));
        }
        if size == old {
            return Ok(size);
        }
        if !volume.thin {
            shared.check_space(&shared.lock(), clusters(size - old))?;
        }
        let path = shared.home.file(uuid);
        let failed = |e| VolumeError::io(&path, "grow", e);
        let file = shared.home.open(uuid).map_err(failed)?;
        let grown = match volume.thin {
            true => shared.home.set_size(&file, size),
            false => shared.home.allocate(&file, old, size),
        };
        let grown = grown.and_then(|()| shared.home.sync(&file)).map_err(failed);
        let known = grown.and_then(|()| {
            shared.commit(&mut shared.lock(), |contents| {
                contents.find_mut(uuid).into_iter().for_each(|volume| volume.size = size);
            })
        });
        if known.is_err()
            && let Err(error) = shared.home.set_size(&file, old)
        {
            warn!(volume = name, "cannot cut its file back: {error}");
        }
        known.map(|()| size)
    }

    /// Gives a volume another name.
    ///
    /// # Errors
    /// The name is taken or cannot be one.
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

    /// Deletes a volume. Its file goes in the background. Clones of a snapshot stay what they are.
    ///
    /// # Errors
    /// There is no such volume, or it is being copied.
    pub fn delete(&self, uuid: Uuid) -> Result<(), VolumeError> {
        self.begin_delete(uuid)?.end()
    }

    /// The same in two steps, for who has to take it from others in between.
    ///
    /// # Errors
    /// As [`Store::delete`].
    pub fn begin_delete(&self, uuid: Uuid) -> Result<Deletion<'_>, VolumeError> {
        let claimed = self.shared.claim(uuid, Claim::Change)?;
        Ok(Deletion { shared: &self.shared, claimed })
    }

    /// Removes the store with all volumes; the folder stays.
    ///
    /// # Errors
    /// A volume is being copied, or the file system has trouble.
    pub fn destroy(&self) -> Result<(), VolumeError> {
        self.begin_destroy()?.end()
    }

    /// The same in two steps, for who has to take it from others in between.
    ///
    /// # Errors
    /// As [`Store::destroy`].
    pub fn begin_destroy(&self) -> Result<Destruction<'_>, VolumeError> {
        let claim = |volume: &Volume| self.shared.claim(volume.uuid, Claim::Change);
        let claimed = self.list().iter().map(claim).collect::<Result<_, _>>()?;
        Ok(Destruction { shared: &self.shared, claimed })
    }
}

/// A volume that nobody else uses any more, and that is there until [`Deletion::end`].
#[must_use = "nothing is deleted before its end"]
pub struct Deletion<'a> {
    shared: &'a Arc<Shared>,
    claimed: Claimed<'a>,
}

impl Deletion<'_> {
    /// It is not there any more.
    ///
    /// # Errors
    /// The file system has trouble: it is there.
    pub fn end(self) -> Result<(), VolumeError> {
        let Deletion { shared, claimed } = &self;
        let uuid = claimed.volume.uuid;
        let file = shared.home.open(uuid);
        let bytes = file.and_then(|file| figures::alone(&file, None)).unwrap_or(0);
        let mut state = shared.lock();
        shared.commit(&mut state, |contents| drop(contents.take(uuid)))?;
        state.background.remove(uuid, bytes);
        shared.wake(&mut state);
        Ok(())
    }
}

/// A store whose volumes nobody else uses any more, and that is there until [`Destruction::end`].
#[must_use = "nothing is removed before its end"]
pub struct Destruction<'a> {
    shared: &'a Arc<Shared>,
    claimed: Vec<Claimed<'a>>,
}

impl Destruction<'_> {
    /// Its volumes.
    pub fn volumes(&self) -> impl Iterator<Item = Uuid> {
        self.claimed.iter().map(|claimed| claimed.volume.uuid)
    }

    /// It is not there any more.
    ///
    /// # Errors
    /// Volumes are being made in it, or the file system has trouble: it is there.
    pub fn end(self) -> Result<(), VolumeError> {
        let Destruction { shared, claimed } = &self;
        let mut state = shared.lock();
        if state.contents.volumes.len() != claimed.len() {
            return Err(VolumeError::Busy("volumes are being made in it".into()));
        }
        shared.commit(&mut state, |contents| contents.volumes.clear())?;
        state.gone = true;
        let path = shared.home.path();
        // It has no volumes any more: what is left of their files goes when somebody opens it again.
        let removed = self.volumes().try_for_each(|uuid| shared.home.remove(uuid));
        removed.and_then(|()| shared.home.forget()).unwrap_or_else(|error| {
            warn!("{}: is not cleared: {error}", path.display());
        });
        Ok(())
    }
}

impl Shared {
    fn new_volume(&self, name: &str, size: u64) -> Result<Volume, VolumeError> {
        let uuid = Uuid::random().map_err(|e| VolumeError::io(self.home.path(), "name", e))?;
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
        })
    }

    /// Detaches a volume from its snapshot: it is counted with `needed` clusters from now on, and gets them in the
    /// background.
    fn detach(
        self: &Arc<Self>,
        volume: &Volume,
        needed: u64,
        change: impl Fn(&mut Volume),
    ) -> Result<(), VolumeError> {
        let uuid = volume.uuid;
        let mut state = self.lock();
        let held = figures::held(&self.home, &state.contents.volumes);
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

    /// Makes a volume's file, on stable storage; none stays if that fails.
    fn make(
        &self,
        volume: &Volume,
        fill: impl FnOnce(&File) -> std::io::Result<()>,
    ) -> Result<File, VolumeError> {
        let path = self.home.file(volume.uuid);
        let file = self.home.create(volume.uuid).map_err(|e| VolumeError::io(&path, "make", e))?;
        let made = fill(&file).and_then(|()| self.home.sync_new(&file));
        if let Err(error) = made {
            self.unmake(volume.uuid);
            return Err(VolumeError::io(&path, "make", error));
        }
        Ok(file)
    }

    /// Makes a volume's file with another one's content.
    fn fill(
        &self,
        from: &Claimed<'_>,
        reserved: &Reserved<'_>,
        volume: &Volume,
        quiet: Quiet<'_>,
    ) -> Result<(), VolumeError> {
        let (home, uuid) = (&self.home, from.volume.uuid);
        let path = home.file(uuid);
        let file = home.open(uuid).map_err(|e| VolumeError::io(&path, "read", e))?;
        let (name, bytes) = (from.volume.name.as_str(), from.volume.size);
        let source = Source { file: &file, path: &path, name, bytes };
        let marks = || home.copy_marks(uuid, volume.uuid);
        self.fill_with(&source, (reserved, volume), quiet, (marks, || from.takes_long()))
    }

    /// Makes a volume's file with the content of `source`. `marks` copies what is kept beside it, and `long` is called
    /// before a copy that takes its time.
    fn fill_with(
        &self,
        source: &Source<'_>,
        (reserved, volume): (&Reserved<'_>, &Volume),
        quiet: Quiet<'_>,
        (marks, long): (impl FnOnce() -> std::io::Result<()>, impl FnOnce()),
    ) -> Result<(), VolumeError> {
        let Source { file: from, path, name, bytes } = *source;
        let home = &self.home;
        let failed = |e| VolumeError::io(path, "read", e);
        let mut is_shared = false;
        let file = self.make(volume, |file| {
            marks()?;
            home.set_size(file, volume.size)?;
            is_shared = home.share(from, file)?;
            // It has the source's size by now.
            if is_shared { home.set_size(file, volume.size) } else { Ok(()) }
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
            let (mut progress, mut said_at) = (Progress { copied: 0, of: needed }, Instant::now());
            reserved.tell(progress);
            copy::copy(home, (from, &file, bytes), quiet, busy, |copied| {
                progress.copied += copied;
                reserved.tell(progress);
                if said_at.elapsed() >= SAY_EACH {
                    said_at = Instant::now();
                    info!(volume = name, to = reserved.name, "copied {} %", progress.percent());
                }
            })?;
            home.sync(&file).map_err(|e| VolumeError::io(&home.file(volume.uuid), "sync", e))
        };
        copied().inspect_err(|_| self.unmake(volume.uuid))
    }

    /// Adds a volume whose file is there; it goes if that fails.
    fn add(
        &self,
        reserved: Reserved<'_>,
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
        if let Err(error) = self.home.remove(uuid) {
            let path = self.home.file(uuid);
            warn!("cannot remove {}, which the next start does: {error}", path.display());
        }
    }
}

/// Content for a new volume.
struct Source<'a> {
    file: &'a File,
    path: &'a Path,
    /// For people.
    name: &'a str,
    /// Size to copy: the metadata of a block device have none.
    bytes: u64,
}

/// A size in whole clusters.
fn whole(bytes: u64) -> Result<u64, VolumeError> {
    let size = bytes.checked_next_multiple_of(CLUSTER_BYTES);
    match size.filter(|size| (1..=i64::MAX as u64).contains(size)) {
        Some(size) => Ok(size),
        None => Err(VolumeError::Invalid(format!("a volume cannot have {bytes} octets"))),
    }
}
