//! The manager: applies RPC's changes, and holds the model.

use super::baselines::Baselines;
use super::caller::CallerAccess;
use super::calls::CallCounts;
use super::error::{Rpc, RpcError};
use crate::bursts::Bursts;
use crate::metrics::{ManagementSample, StoreSample};
use crate::model::{ManagedDevice, ManagedModel, SavedModel, StateChange, StateFile};
use crate::volumes::{CLUSTER_BYTES, VolumeStore};
use roadtrain_proto::security::TlsKey;
use roadtrain_proto::security::dhchap::DhchapKeys;
use roadtrain_store::Resize;
use roadtrain_target_engine::{
    ConfigError, ConfigOperation, Export, Server, Subsystem, TargetListener,
};
use roadtrain_target_proto::TargetConfig;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};
use tracing::{error, warn};

/// Interval between two queries of stores for metrics. Free space is read from the file system, for each volume.
const STORES_QUERY_INTERVAL: Duration = Duration::from_secs(10);

/// Keys of hosts for TLS, by the NQNs of host and subsystem.
pub type Psks = BTreeMap<(String, String), TlsKey>;

/// The control plane of a running target.
pub trait ControlPlane: Send + Sync {
    /// Applies all of `operations`, or none, and sets `psks` if they are given. Returns what has changed for hosts.
    ///
    /// # Errors
    /// The first operation that is impossible; or (`Err(None)`) nothing may change now.
    fn apply(
        &self,
        operations: &[ConfigOperation<Export>],
        psks: Option<Psks>,
    ) -> Result<Vec<ConfigOperation>, Option<ConfigError>>;

    /// Returns the running target.
    fn server(&self) -> Arc<Server>;

    /// Returns the origin of the start-up configuration: `file` or `group`.
    fn file_owner(&self) -> &'static str {
        "file"
    }

    /// Requests the end of the process, as a signal does.
    fn stop(&self);

    /// Sets the log levels: one for all (error, warn, info, debug), then `,MODULE=LEVEL` for single modules.
    ///
    /// # Errors
    /// The reason why it cannot.
    fn set_log_level(&self, level: &str) -> Result<(), String>;
}

/// Files that RPC may use.
#[derive(Clone, Debug, Default)]
pub struct Files {
    /// State file; `None`: the model is lost with the process.
    pub state: Option<PathBuf>,
    /// Folders below which files and devices may be opened.
    pub roots: Vec<PathBuf>,
}

/// Owner of the model. Reads never wait for a change.
pub struct Manager {
    plane: Box<dyn ControlPlane>,
    files: Files,
    model: RwLock<Arc<ManagedModel>>,
    /// Lock that serialises changes.
    turn: Mutex<()>,
    log: Mutex<LogState>,
    pub(super) calls: CallCounts,
    /// Baselines of devices' counters, set by resets.
    baselines: Mutex<Baselines>,
    /// Samples of stores for metrics, and the time of the last query.
    stores: Mutex<(Option<Instant>, Vec<StoreSample>)>,
    state_write_errors: AtomicU64,
    /// Writer of the state file.
    state_file: Mutex<Option<StateFile>>,
    /// True once the log has warned that changes are not kept.
    has_warned: AtomicBool,
    /// True once another process has taken over.
    is_released: AtomicBool,
    /// Limiter of log lines that callers may cause often.
    pub(super) bursts: Bursts,
}

/// Log settings that RPC has made.
#[derive(Debug, Default)]
pub(super) struct LogState {
    /// Level in SPDK's words; `None`: the level of the start.
    pub(super) level: Option<&'static str>,
    /// Log flags that are set.
    pub(super) flags: BTreeSet<&'static str>,
}

/// Stores that the manager has released, and that requests may still use.
pub struct ReleasedStores(Vec<Weak<VolumeStore>>);

impl ReleasedStores {
    /// True if no request uses any of the stores.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.0.iter().all(|store| store.strong_count() == 0)
    }
}

impl Manager {
    /// Makes a manager for a target that exports `model` already.
    #[must_use]
    pub fn new(plane: Box<dyn ControlPlane>, model: ManagedModel, files: Files) -> Manager {
        let model = RwLock::new(Arc::new(model));
        let state_file = Mutex::new(files.state.clone().map(StateFile::new));
        let (turn, log, calls, baselines, stores) = Default::default();
        let (state_write_errors, has_warned, is_released, bursts) = Default::default();
        Manager {
            plane,
            files,
            model,
            turn,
            log,
            calls,
            baselines,
            stores,
            state_write_errors,
            state_file,
            has_warned,
            is_released,
            bursts,
        }
    }

    /// Checks that another process could continue with the whole model.
    ///
    /// # Errors
    /// The object that would be lost, and the remedy.
    pub fn check_kept(&self) -> Result<(), String> {
        let model = self.model();
        model.check_kept()?;
        match self.files.state.is_none() && model.state() != SavedModel::default() {
            true => Err("what JSON-RPC requests have made is in this process's memory: without --state it would be \
                 lost"
                .into()),
            false => Ok(()),
        }
    }

    /// Writes the whole state file if changes are in its journal, which versions without journals do not read.
    pub fn fold_journal(&self) {
        let Ok(_turn) = self.take_turn() else { return };
        self.fold(&mut self.lock_state_file());
    }

    fn fold(&self, file: &mut Option<StateFile>) {
        let Some(file) = file.as_mut().filter(|file| file.has_journal()) else { return };
        let state = self.model().state().with_owner_paths(&self.files.roots);
        if let Err(error) = file.save(&state) {
            warn!("{}: {error}: the last changes stay in its journal", file.path().display());
        }
    }

    /// Releases the model to another process. Later requests see an empty model and change nothing.
    pub fn release(&self) -> ReleasedStores {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.fold(&mut self.lock_state_file());
        self.is_released.store(true, Relaxed);
        let mut model = self.model.write().unwrap_or_else(PoisonError::into_inner);
        let model = std::mem::take(&mut *model);
        ReleasedStores(
            model.lvstores.iter().map(|lvstore| Arc::downgrade(&lvstore.store)).collect(),
        )
    }

    /// Returns counters of requests, and samples of stores that may be some seconds old.
    #[must_use]
    pub fn managed(&self) -> ManagementSample {
        let mut seen = self.stores.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.0.is_none_or(|at| at.elapsed() >= STORES_QUERY_INTERVAL) {
            *seen = (Some(Instant::now()), self.query_stores());
        }
        ManagementSample {
            calls: self.calls.all(),
            state_write_errors: self.state_write_errors.load(Relaxed),
            stores: seen.1.clone(),
        }
    }

    fn query_stores(&self) -> Vec<StoreSample> {
        let model = self.model();
        let stores = model.lvstores.iter().filter_map(|lvstore| {
            let info = lvstore.store.info().ok()?;
            Some(StoreSample {
                name: info.name,
                capacity_bytes: info.total_clusters * CLUSTER_BYTES,
                free_bytes: info.free_clusters * CLUSTER_BYTES,
                volumes: lvstore.store.volumes().len() as u64,
            })
        });
        stores.collect()
    }

    /// Returns the present model.
    #[must_use]
    pub fn model(&self) -> Arc<ManagedModel> {
        self.model.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the running target.
    #[must_use]
    pub fn server(&self) -> Arc<Server> {
        self.plane.server()
    }

    /// Returns this manager with the rights of a caller.
    #[must_use]
    pub fn session(&self, access: CallerAccess) -> ManagerSession<'_> {
        ManagerSession { manager: self, access }
    }

    /// True if changes are kept in a state file.
    #[must_use]
    pub fn keeps_changes(&self) -> bool {
        self.files.state.is_some()
    }

    /// Counts a call of another table's method.
    pub fn count(&self, method: &'static str, code: i32, took: Duration) {
        self.calls.count(method, code, took);
    }

    /// Returns the control plane.
    #[must_use]
    pub fn plane(&self) -> &dyn ControlPlane {
        &*self.plane
    }

    /// Locks the baselines of devices. Callers keep the lock while they read counters.
    pub(super) fn baselines(&self) -> MutexGuard<'_, Baselines> {
        self.baselines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the log settings.
    pub(super) fn log(&self) -> MutexGuard<'_, LogState> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the subsystems of the configuration file, as they are served: all that the model does not serve.
    #[must_use]
    pub fn file_subsystems(&self) -> Vec<Subsystem> {
        let model = self.model();
        let exports = self.server().exports();
        let own = exports.subsystems.iter();
        own.filter(|subsystem| !model.serves(&subsystem.nqn)).cloned().collect()
    }

    /// Returns a subsystem of the configuration file, as it is served.
    #[must_use]
    pub fn file_subsystem(&self, nqn: &str) -> Option<Subsystem> {
        if self.model().serves(nqn) {
            return None;
        }
        self.server().exports().subsystems.iter().find(|subsystem| subsystem.nqn == nqn).cloned()
    }

    /// Changes the model completely or not at all, and writes the state file before it returns. `refused` makes the
    /// reply if the target refuses the change.
    ///
    /// # Errors
    /// Nothing has changed.
    pub fn change<T>(
        &self,
        refused: impl Fn(ConfigError) -> RpcError,
        edit: impl FnOnce(&mut ManagedModel) -> Rpc<T>,
    ) -> Rpc<T> {
        self.change_with(refused, |model, _| edit(model)).map(|(result, _)| result)
    }

    /// Changes the model as [`Manager::change`] does, together with operations on the configuration file's objects.
    /// Those come first and hold until the next reload. Returns what has changed for hosts as well.
    ///
    /// # Errors
    /// Nothing has changed.
    pub fn change_with<T>(
        &self,
        refused: impl Fn(ConfigError) -> RpcError,
        edit: impl FnOnce(&mut ManagedModel, &mut Vec<ConfigOperation<Export>>) -> Rpc<T>,
    ) -> Rpc<(T, Vec<ConfigOperation>)> {
        let _turn = self.take_turn()?;
        let old = self.model();
        let (mut next, mut operations) = ((*old).clone(), Vec::new());
        let result = edit(&mut next, &mut operations)?;
        next.subsystems.sort_by(|a, b| a.nqn.cmp(&b.nqn));
        // Only the model's own objects have a model to return to.
        let before = (!operations.is_empty()).then(|| self.server().exports());
        let changes = self.apply(&old, &next, (operations, &refused))?;
        if let Err(failure) = self.save_change(&old, &next) {
            let now = self.server().exports();
            let addresses = self.server().addresses();
            let back = before.map_or_else(
                || self::operations((&now, &addresses[..]), &next, &old),
                |before| now.operations_to(&before),
            );
            let psks = Some(old.psks()).filter(|psks| *psks != next.psks());
            if let Err(error) = self.plane.apply(&back, psks) {
                let error = refusal(error, &refused).message;
                error!("a change that is not written down stays: {error}");
            }
            return Err(failure);
        }
        self.warn_if_not_kept(&old, &next);
        *self.model.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(next);
        Ok((result, changes))
    }

    /// Warns once that changes are lost with the process, if there is no state file.
    fn warn_if_not_kept(&self, old: &ManagedModel, next: &ManagedModel) {
        let is_kept = || self.files.state.is_some() || old.state() == next.state();
        if !self.has_warned.load(Relaxed) && !is_kept() {
            self.has_warned.store(true, Relaxed);
            warn!(
                "this change and later ones end with the process: `serve --state FILE` keeps them"
            );
        }
    }

    /// Resizes a device that has the room, notifies hosts, and writes the state file.
    ///
    /// # Errors
    /// The target refuses the change, or the state file cannot be written. A size that the state file keeps is
    /// restored; a file or an image keeps its new size.
    pub fn resize(&self, device: &ManagedDevice, resize: &Resize) -> Rpc<()> {
        let _turn = self.take_turn()?;
        let model = self.model();
        let (was, from) = (model.state(), device.store.geometry().bytes());
        let switch = |resize: &Resize| {
            device.store.switch(resize);
            device.store.settle(resize);
            self.update_namespace(&model, &device.name)
        };
        let done = switch(resize).and_then(|()| self.save(&was, &model.state()));
        if done.is_err() && model.state() != was {
            switch(&Resize::to(resize.to, from)).unwrap_or_else(|e| {
                error!("a size that is not written down stays: {}", e.message);
            });
        }
        done
    }

    /// Updates the namespace of a device after a change of its size.
    fn update_namespace(&self, model: &ManagedModel, device: &str) -> Rpc<()> {
        let Some((nqn, nsid)) = model.claim(device) else { return Ok(()) };
        let subsystems = model.served().filter(|one| one.nqn == nqn);
        let namespaces = subsystems.flat_map(|one| &one.namespaces).filter(|one| one.nsid == nsid);
        let replacements = namespaces
            .filter_map(|one| one.export(model))
            .map(|namespace| ConfigOperation::ReplaceNamespace { nqn: nqn.to_owned(), namespace });
        let replacements: Vec<_> = replacements.collect();
        let done = self.plane.apply(&replacements, None);
        done.map(drop).map_err(|error| refusal(error, &|e| RpcError::internal(e)))
    }

    /// Locks out other changes. Fails after [`Manager::release`]: the state file belongs to another process.
    fn take_turn(&self) -> Rpc<MutexGuard<'_, ()>> {
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        match self.is_released.load(Relaxed) {
            true => Err(RpcError::busy("another process has taken over")),
            false => Ok(turn),
        }
    }

    /// Runs `change`, which replaces the configuration file's subsystems by `names`. `change` receives the model next
    /// to them.
    ///
    /// # Errors
    /// Errors of `change`, or another process has taken over.
    pub fn change_file<T, E: From<RpcError>>(
        &self,
        names: BTreeSet<String>,
        change: impl FnOnce(&ManagedModel) -> Result<T, E>,
    ) -> Result<T, E> {
        let _turn = self.take_turn()?;
        let mut next = (*self.model()).clone();
        next.shadowed = names;
        next.lent.clear();
        let result = change(&next)?;
        *self.model.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(next);
        Ok(result)
    }

    fn apply(
        &self,
        old: &ManagedModel,
        next: &ManagedModel,
        (mut operations, refused): (
            Vec<ConfigOperation<Export>>,
            &impl Fn(ConfigError) -> RpcError,
        ),
    ) -> Rpc<Vec<ConfigOperation>> {
        {
            // Not held during the change, which would copy them.
            let (exports, addresses) = (self.server().exports(), self.server().addresses());
            operations.extend(self::operations((&exports, &addresses[..]), old, next));
        }
        let psks = Some(next.psks()).filter(|psks| *psks != old.psks());
        if operations.is_empty() && psks.is_none() {
            return Ok(Vec::new());
        }
        self.plane.apply(&operations, psks).map_err(|error| refusal(error, refused))
    }

    /// Writes the state file after a change, if there is one.
    fn save_change(&self, old: &ManagedModel, next: &ManagedModel) -> Rpc<()> {
        let mut file = self.lock_state_file();
        let Some(open) = &mut *file else { return Ok(()) };
        let change = StateChange::between(old, next, &self.files.roots);
        match change.map_or(Ok(false), |change| open.append(&change)) {
            Ok(true) => Ok(()),
            Ok(false) => {
                drop(file);
                self.save(&old.state(), &next.state())
            }
            Err(error) => Err(self.not_saved(open, &old.state(), &error)),
        }
    }

    /// Writes the state file. Stable storage has `state` on success, and `was` after an error.
    fn save(&self, was: &SavedModel, state: &SavedModel) -> Rpc<()> {
        let mut file = self.lock_state_file();
        let Some(file) = file.as_mut().filter(|_| was != state) else { return Ok(()) };
        let state = state.clone().with_owner_paths(&self.files.roots);
        file.save(&state).map_err(|error| self.not_saved(file, was, &error))
    }

    /// Returns the reply to a change that could not be written, and writes the old content back: the new one may be
    /// there in spite of the error.
    fn not_saved(&self, file: &mut StateFile, was: &SavedModel, error: &io::Error) -> RpcError {
        self.state_write_errors.fetch_add(1, Relaxed);
        let path = file.path().display().to_string();
        error!("{path}: {error}: the change is undone");
        let _ = file.save(&was.clone().with_owner_paths(&self.files.roots));
        RpcError::io(format!("{path}: {error}"))
    }

    fn lock_state_file(&self) -> MutexGuard<'_, Option<StateFile>> {
        self.state_file.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A manager with the rights of a caller.
#[derive(Clone, Copy)]
pub struct ManagerSession<'a> {
    manager: &'a Manager,
    access: CallerAccess,
}

impl Deref for ManagerSession<'_> {
    type Target = Manager;

    fn deref(&self) -> &Manager {
        self.manager
    }
}

impl ManagerSession<'_> {
    /// Resolves `path` to a name without links, if the caller may open the file or device.
    ///
    /// # Errors
    /// The path does not exist, or is not below one of the folders that RPC may use.
    pub fn allowed(&self, path: &Path) -> Rpc<PathBuf> {
        let problem = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => {
                RpcError::no_file(format!("{} does not exist: make it first", path.display()))
            }
            _ => RpcError::no_file(format!("{}: {error}", path.display())),
        };
        let real = path.canonicalize().map_err(problem)?;
        let roots = self.manager.files.roots.iter().filter_map(|root| root.canonicalize().ok());
        let is_allowed = self.access == CallerAccess::Owner
            || roots.into_iter().any(|root| real.starts_with(root));
        match is_allowed {
            true => Ok(real),
            false => Err(RpcError::not_permitted(format!(
                "{} is not below one of the file_roots of the configuration",
                path.display()
            ))),
        }
    }
}

impl ManagerSession<'_> {
    /// True for the user of the process, who may open any file.
    #[must_use]
    pub fn is_owner(&self) -> bool {
        self.access == CallerAccess::Owner
    }

    /// Resolves the path of a file that may be new, in a folder that the caller may use.
    ///
    /// # Errors
    /// The path is not below one of the folders that the caller may use.
    pub fn allowed_new(&self, path: &Path) -> Rpc<PathBuf> {
        match (path.parent(), path.file_name()) {
            // Creating the file would follow a dangling link.
            _ if path.symlink_metadata().is_ok() => self.allowed(path),
            (Some(folder), Some(name)) => Ok(self.allowed(folder)?.join(name)),
            _ => Err(RpcError::no_file(path.display())),
        }
    }
}

fn refusal(error: Option<ConfigError>, refused: &impl Fn(ConfigError) -> RpcError) -> RpcError {
    match error {
        Some(error) => refused(error),
        None => RpcError::busy("another process takes over"),
    }
}

/// Returns the operations that change the target's exports from `old` to `next`; it may export other things as well.
/// `addresses` are the bound ones, whose ports the system may have chosen.
fn operations(
    (exports, addresses): (&TargetConfig<Export>, &[SocketAddr]),
    old: &ManagedModel,
    next: &ManagedModel,
) -> Vec<ConfigOperation<Export>> {
    let only = |model: &ManagedModel, subsystems| TargetConfig {
        subsystems,
        referrals: model.referrals.iter().map(SocketAddr::from).collect(),
        ..TargetConfig::<Export>::default()
    };
    let (before, after) = old.differing_exports(next);
    let mut operations = Vec::new();
    let (had, wanted) = (old.addresses(), next.addresses());
    let gone =
        |listener: &&TargetListener| listener.named_only && !wanted.contains_key(&listener.address);
    operations
        .extend(exports.listeners.iter().filter(gone).map(|one| ConfigOperation::Unlisten(*one)));
    operations.extend(key_changes(old, next));
    operations.extend(only(old, before).operations_to(&only(next, after)));
    let is_there = |address: &SocketAddr| {
        addresses.contains(address) || exports.listeners.iter().any(|one| one.address == *address)
    };
    let mut portids =
        (1..=u16::MAX).filter(|id| exports.listeners.iter().all(|listener| listener.portid != *id));
    let come = wanted.iter().filter(|(address, _)| !had.contains_key(*address));
    let come = come.filter(|(address, _)| !is_there(address));
    operations.extend(come.filter_map(|(address, tls)| {
        let portid = portids.next()?;
        let (address, tls, named_only) = (*address, *tls, true);
        Some(ConfigOperation::Listen(TargetListener { portid, address, tls, named_only }))
    }));
    operations
}

/// Returns the changes of authentication keys between two models.
fn key_changes(old: &ManagedModel, next: &ManagedModel) -> Vec<ConfigOperation<Export>> {
    let (had, have) = (old.keys_at(), next.keys_at());
    let all = |keys: &BTreeMap<String, BTreeMap<String, DhchapKeys>>| {
        let pairs =
            keys.iter().flat_map(|(nqn, hosts)| hosts.keys().map(|h| (nqn.clone(), h.clone())));
        pairs.collect::<BTreeSet<_>>()
    };
    let of = |keys: &BTreeMap<String, BTreeMap<String, DhchapKeys>>, nqn: &str, host: &str| {
        keys.get(nqn)?.get(host).cloned()
    };
    let pairs = &all(&had) | &all(&have);
    let changed = pairs.into_iter().filter_map(|(nqn, host)| {
        let keys = of(&have, &nqn, &host);
        let is_same = keys == of(&had, &nqn, &host);
        (!is_same).then_some(ConfigOperation::SetKeys { nqn, host, keys })
    });
    changed.collect()
}

#[cfg(test)]
mod tests;
