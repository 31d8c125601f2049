//! Background work of a store: removing files of deleted volumes, and allocating the space of inflated volumes.

use super::{SharedStore, StoreState, VolumeClaimKind};
use crate::volumes::contents::Volume;
use crate::volumes::store_files::StoreFiles;
use crate::volumes::uuid::Uuid;
use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle, sleep};
use std::time::Duration;
use tracing::{info, warn};

/// Bytes allocated at once; hosts' writes may wait that long.
const CHUNK: u64 = 4 << 20;
/// Interval between two attempts to claim a volume that is being copied.
const PAUSE: Duration = Duration::from_millis(20);

/// Pending background work, and its thread.
#[derive(Default)]
pub(in crate::volumes) struct Background {
    /// Files to remove, with the bytes that this frees.
    leaving: VecDeque<(Uuid, u64)>,
    /// Volume that is being inflated; `false`: start from its begin again.
    inflating: Option<(Uuid, bool)>,
    /// Volumes that could not be inflated, as a warning has reported.
    failed: BTreeSet<Uuid>,
    pub(in crate::volumes) worker: Option<JoinHandle<()>>,
    is_running: bool,
    /// True at the end: pending files are removed, and nothing else is begun.
    pub(in crate::volumes) stop: bool,
}

impl Background {
    /// Returns the bytes that pending removals will free.
    pub(in crate::volumes) fn leaving(&self, store_files: &StoreFiles) -> u64 {
        self.leaving.iter().map(|(uuid, bytes)| store_files.allocated(*uuid).min(*bytes)).sum()
    }

    pub(in crate::volumes) fn remove(&mut self, uuid: Uuid, bytes: u64) {
        self.leaving.push_back((uuid, bytes));
    }

    /// Restarts the inflation of a volume.
    pub(in crate::volumes) fn again(&mut self, uuid: Uuid) {
        self.failed.remove(&uuid);
        if let Some((which, valid)) = &mut self.inflating {
            *valid &= *which != uuid;
        }
    }
}

impl StoreState {
    fn has_work(&self) -> bool {
        !self.background.leaving.is_empty() || self.to_inflate().is_some()
    }

    fn to_inflate(&self) -> Option<&Volume> {
        let Background { stop, failed, .. } = &self.background;
        let mut volumes = self.contents.volumes.iter();
        let is_due = |v: &&Volume| (v.inflating || v.detaching) && !failed.contains(&v.uuid);
        volumes.find(is_due).filter(|_| !stop && !self.gone)
    }
}

/// Inflation of a volume, in progress.
struct Inflation {
    uuid: Uuid,
    file: File,
    at: u64,
}

impl SharedStore {
    /// Starts the worker thread if there is work.
    pub(in crate::volumes) fn wake(self: &Arc<SharedStore>, state: &mut StoreState) {
        if state.background.is_running || !state.has_work() {
            return;
        }
        let shared = self.clone();
        let thread = Builder::new().name("roadtrain-volumes".into());
        match thread.spawn(move || shared.work()) {
            Ok(worker) => {
                state.background.is_running = true;
                state.background.worker = Some(worker);
            }
            Err(error) => warn!("files of deleted volumes stay until the next start: {error}"),
        }
    }

    fn work(&self) {
        let mut inflation = None;
        loop {
            let mut state = self.lock();
            if let Some((uuid, _)) = state.background.leaving.front().copied() {
                drop(state);
                if let Err(error) = self.store_files.remove(uuid) {
                    warn!("cannot remove {}: {error}", self.store_files.file(uuid).display());
                }
                self.lock().background.leaving.pop_front();
                continue;
            }
            let Some(volume) = state.to_inflate().cloned() else {
                state.background.is_running = false;
                state.background.inflating = None;
                return;
            };
            let is_valid = state.background.inflating == Some((volume.uuid, true));
            state.background.inflating = Some((volume.uuid, true));
            drop(state);
            let present =
                inflation.take().filter(|i: &Inflation| is_valid && i.uuid == volume.uuid);
            let next = present.map_or_else(|| self.begin(&volume), Ok);
            match next.and_then(|next| self.inflate_some(next, &volume)) {
                Ok(unfinished) => inflation = unfinished,
                Err(error) => {
                    warn!(volume = volume.name, "has not got space of its own: {error}");
                    self.lock().background.failed.insert(volume.uuid);
                }
            }
        }
    }

    fn begin(&self, volume: &Volume) -> io::Result<Inflation> {
        let file = self.store_files.open(volume.uuid)?;
        Ok(Inflation { uuid: volume.uuid, file, at: 0 })
    }

    /// Allocates the next piece of a volume; `None`: the volume is complete.
    fn inflate_some(
        &self,
        mut inflation: Inflation,
        volume: &Volume,
    ) -> io::Result<Option<Inflation>> {
        let Inflation { file, at, uuid } = &mut inflation;
        let to = (*at + CHUNK).min(volume.size);
        if *at < to {
            // A concurrent copy would see the source change.
            let Ok(_claimed) = self.claim(*uuid, VolumeClaimKind::Change) else {
                sleep(PAUSE);
                return Ok(Some(inflation));
            };
            // A file system that cannot unshare shares nothing, or finds space for later writes.
            if volume.detaching {
                self.store_files.unshare_content(file, *at, to)?;
            } else {
                self.store_files.unshare(file, *at, to)?;
                self.store_files.allocate(file, *at, to)?;
            }
            *at = to;
            return Ok(Some(inflation));
        }
        self.store_files.sync(file)?;
        let mut state = self.lock();
        let is_all = state.contents.find(*uuid).is_some_and(|now| now.size <= *at);
        if state.background.inflating != Some((*uuid, true)) || !is_all {
            return Ok(Some(inflation));
        }
        let name = &volume.name;
        self.commit(&mut state, |contents| {
            if let Some(volume) = contents.find_mut(*uuid) {
                (volume.inflating, volume.detaching) = (false, false);
            }
        })
        .map_err(io::Error::other)?;
        info!(volume = name, "has space of its own");
        Ok(None)
    }
}

#[cfg(test)]
impl super::VolumeStore {
    /// Waits until no background work is left.
    pub(crate) fn settle(&self) {
        while self.shared.lock().background.is_running {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}
