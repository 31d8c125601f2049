//! Who changes what RPC has made, and who knows it.

use super::baselines::Baselines;
use super::caller::Access;
use super::calls::CallCounts;
use super::error::{Rpc, RpcError};
use crate::bursts::Bursts;
use crate::metrics::{Managed, StoreSample};
use crate::model::{self, Device, Model, State};
use crate::volumes::{CLUSTER_BYTES, Store};
use roadtrain_proto::security::TlsKey;
use roadtrain_proto::security::dhchap::Keys;
use roadtrain_store::Resize;
use roadtrain_target_engine::{ConfigError, Export, Listener, Operation, Server, Subsystem};
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

/// Between two looks at stores for metrics: what is free is asked of the file system, for each volume.
const STORES_LOOK: Duration = Duration::from_secs(10);

/// Keys of hosts for TLS, by the NQNs of host and subsystem.
pub type Psks = BTreeMap<(String, String), TlsKey>;

/// The control plane of a running target.
pub trait Plane: Send + Sync {
    /// Does all of `operations`, or nothing; hosts have `psks` then, if they are given. Returns what has changed for hosts.
    ///
    /// # Errors
    /// The first that cannot be; or (`Err(None)`) nothing may change now.
    fn apply(
        &self,
        operations: &[Operation<Export>],
        psks: Option<Psks>,
    ) -> Result<Vec<Operation>, Option<ConfigError>>;

    /// The target that runs.
    fn server(&self) -> Arc<Server>;

    /// Owner of what the target was started with: `file` or `group`.
    fn file_owner(&self) -> &'static str {
        "file"
    }

    /// Requests the end of the process, as a signal does.
    fn stop(&self);

    /// Logs what is of these levels or above: one for all (error, warn, info, debug), and `,MODULE=LEVEL` for others.
    ///
    /// # Errors
    /// Why not.
    fn set_log_level(&self, level: &str) -> Result<(), String>;
}

/// Files that RPC may use.
#[derive(Clone, Debug, Default)]
pub struct Files {
    /// What is written down is there; `None`: it is gone with the process.
    pub state: Option<PathBuf>,
    /// Folders below which files and devices may be opened.
    pub roots: Vec<PathBuf>,
}

/// Knows what RPC has made, and changes it. Looking waits for nobody who changes.
pub struct Manager {
    plane: Box<dyn Plane>,
    files: Files,
    model: RwLock<Arc<Model>>,
    /// Changes take turns.
    turn: Mutex<()>,
    log: Mutex<LogState>,
    pub(super) calls: CallCounts,
    /// Counters of devices when they were reset.
    baselines: Mutex<Baselines>,
    /// Stores as metrics show them, and when they were looked at.
    stores: Mutex<(Option<Instant>, Vec<StoreSample>)>,
    state_write_errors: AtomicU64,
    /// The log says that changes are not kept.
    has_warned: AtomicBool,
    /// Another process has taken over.
    is_released: AtomicBool,
    /// What callers may cause often, in the log.
    pub(super) bursts: Bursts,
}

/// The log as RPC has set it last.
#[derive(Debug, Default)]
pub(super) struct LogState {
    /// In SPDK's words; `None`: as it was at the start.
    pub(super) level: Option<&'static str>,
    /// Flags that are set.
    pub(super) flags: BTreeSet<&'static str>,
}

/// What was let go, and may be in use by a request yet.
pub struct LetGo(Vec<Weak<Store>>);

impl LetGo {
    /// Whether nobody has any of it any more.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.0.iter().all(|store| store.strong_count() == 0)
    }
}

impl Manager {
    /// For a target that exports what `model` says already.
    #[must_use]
    pub fn new(plane: Box<dyn Plane>, model: Model, files: Files) -> Manager {
        let model = RwLock::new(Arc::new(model));
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
            has_warned,
            is_released,
            bursts,
        }
    }

    /// Whether another process could go on with all that there is.
    ///
    /// # Errors
    /// What would be lost, and what to do.
    pub fn check_kept(&self) -> Result<(), String> {
        let model = self.model();
        model.check_kept()?;
        match self.files.state.is_none() && model.state() != State::default() {
            true => Err("what JSON-RPC requests have made is in this process's memory: without --state it would be \
                 lost"
                .into()),
            false => Ok(()),
        }
    }

    /// Lets go of everything, for another process. Requests find nothing, and change nothing, from now on.
    pub fn release(&self) -> LetGo {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_released.store(true, Relaxed);
        let mut model = self.model.write().unwrap_or_else(PoisonError::into_inner);
        let model = std::mem::take(&mut *model);
        LetGo(model.lvstores.iter().map(|lvstore| Arc::downgrade(&lvstore.store)).collect())
    }

    /// What requests have come to, and stores lately.
    #[must_use]
    pub fn managed(&self) -> Managed {
        let mut seen = self.stores.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.0.is_none_or(|at| at.elapsed() >= STORES_LOOK) {
            *seen = (Some(Instant::now()), self.look_at_stores());
        }
        Managed {
            calls: self.calls.all(),
            state_write_errors: self.state_write_errors.load(Relaxed),
            stores: seen.1.clone(),
        }
    }

    fn look_at_stores(&self) -> Vec<StoreSample> {
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

    /// What RPC has made, as it is now.
    #[must_use]
    pub fn model(&self) -> Arc<Model> {
        self.model.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The target that runs.
    #[must_use]
    pub fn server(&self) -> Arc<Server> {
        self.plane.server()
    }

    /// This manager with the rights of a caller.
    #[must_use]
    pub fn session(&self, access: Access) -> Session<'_> {
        Session { manager: self, access }
    }

    /// True when changes are kept in a state file.
    #[must_use]
    pub fn keeps_changes(&self) -> bool {
        self.files.state.is_some()
    }

    /// Counts a call of a method of another table, as its own are counted.
    pub fn count(&self, method: &'static str, code: i32, took: Duration) {
        self.calls.count(method, code, took);
    }

    /// The control plane.
    #[must_use]
    pub fn plane(&self) -> &dyn Plane {
        &*self.plane
    }

    /// Counters of devices when they were reset. Counters are read while they are locked.
    pub(super) fn baselines(&self) -> MutexGuard<'_, Baselines> {
        self.baselines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The log as RPC has set it last.
    pub(super) fn log(&self) -> MutexGuard<'_, LogState> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Subsystems of the configuration file, as they are served: all that are not of the state.
    #[must_use]
    pub fn file_subsystems(&self) -> Vec<Subsystem> {
        let model = self.model();
        let own = self.server().exports().subsystems;
        own.into_iter().filter(|subsystem| !model.serves(&subsystem.nqn)).collect()
    }

    /// A subsystem of the configuration file, as it is served.
    #[must_use]
    pub fn file_subsystem(&self, nqn: &str) -> Option<Subsystem> {
        self.file_subsystems().into_iter().find(|subsystem| subsystem.nqn == nqn)
    }

    /// Changes what the state has, as a whole or not at all; it is written down when this returns. `refused` makes the
    /// reply when the target cannot do it.
    ///
    /// # Errors
    /// Nothing has changed.
    pub fn change<T>(
        &self,
        refused: impl Fn(ConfigError) -> RpcError,
        edit: impl FnOnce(&mut Model) -> Rpc<T>,
    ) -> Rpc<T> {
        self.change_with(refused, |model, _| edit(model)).map(|(result, _)| result)
    }

    /// The same with operations on what the configuration file has, which come first and hold until the next reload.
    /// Returns what has changed for hosts as well.
    ///
    /// # Errors
    /// Nothing has changed.
    pub fn change_with<T>(
        &self,
        refused: impl Fn(ConfigError) -> RpcError,
        edit: impl FnOnce(&mut Model, &mut Vec<Operation<Export>>) -> Rpc<T>,
    ) -> Rpc<(T, Vec<Operation>)> {
        let _turn = self.take_turn()?;
        let (old, before) = (self.model(), self.server().exports());
        let (mut next, mut operations) = ((*old).clone(), Vec::new());
        let result = edit(&mut next, &mut operations)?;
        next.subsystems.sort_by(|a, b| a.nqn.cmp(&b.nqn));
        let changes = self.apply(&old, &next, (operations, &refused))?;
        if let Err(failure) = self.save(&old.state(), &next.state()) {
            let back = self.server().exports().operations_to(&before);
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

    /// Warns once that changes are not kept, which is so without a state file.
    fn warn_if_not_kept(&self, old: &Model, next: &Model) {
        let is_kept = self.files.state.is_some() || old.state() == next.state();
        if !is_kept && !self.has_warned.swap(true, Relaxed) {
            warn!(
                "this change and later ones end with the process: `serve --state FILE` keeps them"
            );
        }
    }

    /// Gives a device another size, for which there is room by now, tells hosts, and writes it down.
    ///
    /// # Errors
    /// Hosts cannot be told, or it is not written down. What the state file keeps the size of has the old one again; a
    /// file and an image are as large as they are.
    pub fn resize(&self, device: &Device, resize: &Resize) -> Rpc<()> {
        let _turn = self.take_turn()?;
        let model = self.model();
        let (was, from) = (model.state(), device.store.geometry().bytes());
        let switch = |resize: &Resize| {
            device.store.switch(resize);
            device.store.settle(resize);
            self.look_again(&model, &device.name)
        };
        let done = switch(resize).and_then(|()| self.save(&was, &model.state()));
        if done.is_err() && model.state() != was {
            switch(&Resize::to(resize.to, from)).unwrap_or_else(|e| {
                error!("a size that is not written down stays: {}", e.message);
            });
        }
        done
    }

    /// Looks at the namespace of a device again, whose size is another one by now.
    fn look_again(&self, model: &Model, device: &str) -> Rpc<()> {
        let exports = model.exports();
        let Some((nqn, nsid)) = model.claim(device) else { return Ok(()) };
        let namespaces =
            exports.iter().filter(|one| one.nqn == nqn).flat_map(|one| &one.namespaces);
        let looked = namespaces.filter(|one| one.nsid == nsid).map(|namespace| {
            Operation::ReplaceNamespace { nqn: nqn.to_owned(), namespace: namespace.clone() }
        });
        let looked: Vec<_> = looked.collect();
        let done = self.plane.apply(&looked, None);
        done.map(drop).map_err(|error| refusal(error, &|e| RpcError::internal(e)))
    }

    /// Nobody else changes anything meanwhile. After [`Manager::release`] nobody may: the state file is another process's.
    fn take_turn(&self) -> Rpc<MutexGuard<'_, ()>> {
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        match self.is_released.load(Relaxed) {
            true => Err(RpcError::busy("another process has taken over")),
            false => Ok(turn),
        }
    }

    /// Runs `change`, after which the configuration file has the subsystems `names`. `change` gets the state beside it.
    ///
    /// # Errors
    /// Those of `change`; another process has taken over.
    pub fn change_file<T, E: From<RpcError>>(
        &self,
        names: BTreeSet<String>,
        change: impl FnOnce(&Model) -> Result<T, E>,
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
        old: &Model,
        next: &Model,
        (mut operations, refused): (Vec<Operation<Export>>, &impl Fn(ConfigError) -> RpcError),
    ) -> Rpc<Vec<Operation>> {
        let here = (&self.server().exports(), &self.server().addresses()[..]);
        operations.extend(self::operations(here, old, next));
        let psks = Some(next.psks()).filter(|psks| *psks != old.psks());
        if operations.is_empty() && psks.is_none() {
            return Ok(Vec::new());
        }
        self.plane.apply(&operations, psks).map_err(|error| refusal(error, refused))
    }

    /// What is on stable storage is `next` when this returns, or `old` after an error.
    fn save(&self, was: &State, state: &State) -> Rpc<()> {
        let Some(path) = self.files.state.as_deref().filter(|_| was != state) else {
            return Ok(());
        };
        let with_paths = |state: &State| state.clone().with_owner_paths(&self.files.roots);
        let (was, state) = (&with_paths(was), &with_paths(state));
        model::save(path, state).map_err(|error| {
            self.state_write_errors.fetch_add(1, Relaxed);
            error!("{}: {error}: the change is undone", path.display());
            // Perhaps it has its new content already.
            let _ = model::save(path, was);
            RpcError::io(format!("{}: {error}", path.display()))
        })
    }
}

/// A manager with the rights of a caller.
#[derive(Clone, Copy)]
pub struct Session<'a> {
    manager: &'a Manager,
    access: Access,
}

impl Deref for Session<'_> {
    type Target = Manager;

    fn deref(&self) -> &Manager {
        self.manager
    }
}

impl Session<'_> {
    /// The file or device at `path`, if the caller may open it, by a name without links.
    ///
    /// # Errors
    /// It is not there, or not below one of the folders that RPC may use.
    pub fn allowed(&self, path: &Path) -> Rpc<PathBuf> {
        let problem = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => RpcError::no_file(format!(
                "{path} does not exist: make it first, a file with truncate -s SIZE {path}",
                path = path.display()
            )),
            _ => RpcError::no_file(format!("{}: {error}", path.display())),
        };
        let real = path.canonicalize().map_err(problem)?;
        let roots = self.manager.files.roots.iter().filter_map(|root| root.canonicalize().ok());
        let is_allowed =
            self.access == Access::Owner || roots.into_iter().any(|root| real.starts_with(root));
        match is_allowed {
            true => Ok(real),
            false => Err(RpcError::not_permitted(format!(
                "{} is not below one of the file_roots of the configuration",
                path.display()
            ))),
        }
    }
}

impl Session<'_> {
    /// True for the user of the process, who may open any file.
    #[must_use]
    pub fn is_owner(&self) -> bool {
        self.access == Access::Owner
    }

    /// The file at `path`, which may be a new one in a folder that the caller may use.
    ///
    /// # Errors
    /// It is not below one of the folders that the caller may use.
    pub fn allowed_new(&self, path: &Path) -> Rpc<PathBuf> {
        match (path.parent(), path.file_name()) {
            // A link to nothing would be followed when the file is made.
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

/// What makes of a target that exports `old`, among other things, one that exports `next`. The ports of `addresses` are
/// those that it has, which the system may have chosen.
fn operations(
    (exports, addresses): (&TargetConfig<Export>, &[SocketAddr]),
    old: &Model,
    next: &Model,
) -> Vec<Operation<Export>> {
    let only = |model: &Model| TargetConfig {
        subsystems: model.exports(),
        referrals: model.referrals.iter().map(SocketAddr::from).collect(),
        ..TargetConfig::<Export>::default()
    };
    let mut operations = Vec::new();
    let (had, wanted) = (old.addresses(), next.addresses());
    let gone =
        |listener: &&Listener| listener.named_only && !wanted.contains_key(&listener.address);
    operations.extend(exports.listeners.iter().filter(gone).map(|one| Operation::Unlisten(*one)));
    operations.extend(key_changes(old, next));
    operations.extend(only(old).operations_to(&only(next)));
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
        Some(Operation::Listen(Listener { portid, address, tls, named_only }))
    }));
    operations
}

/// What hosts authenticate with at subsystems.
fn key_changes(old: &Model, next: &Model) -> Vec<Operation<Export>> {
    let (had, have) = (old.keys_at(), next.keys_at());
    let all = |keys: &BTreeMap<String, BTreeMap<String, Keys>>| {
        let pairs =
            keys.iter().flat_map(|(nqn, hosts)| hosts.keys().map(|h| (nqn.clone(), h.clone())));
        pairs.collect::<BTreeSet<_>>()
    };
    let of = |keys: &BTreeMap<String, BTreeMap<String, Keys>>, nqn: &str, host: &str| {
        keys.get(nqn)?.get(host).cloned()
    };
    let pairs = &all(&had) | &all(&have);
    let changed = pairs.into_iter().filter_map(|(nqn, host)| {
        let keys = of(&have, &nqn, &host);
        let is_same = keys == of(&had, &nqn, &host);
        (!is_same).then_some(Operation::SetKeys { nqn, host, keys })
    });
    changed.collect()
}

#[cfg(test)]
mod tests;
