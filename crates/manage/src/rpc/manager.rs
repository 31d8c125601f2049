//! Who changes what RPC has made, and who knows it.

use super::calls::CallCounts;
use super::error::{Rpc, RpcError};
use super::message::{Methods, Params};
use super::methods;
use crate::bursts::{Bursts, Weight};
use crate::metrics::{Managed, StoreSample};
use crate::model::{self, Model, State};
use crate::volumes::{CLUSTER_BYTES, Store};
use roadtrain_engine::metrics::NamespaceSample;
use roadtrain_engine::target::{ConfigError, Export, Listener, Operation, Server, Subsystem};
use roadtrain_proto::security::TlsKey;
use roadtrain_proto::security::dhchap::Keys;
use roadtrain_proto::target::TargetConfig;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};
use tracing::{debug, error, info};

/// Between two looks at stores for metrics: what is free is asked of the file system, for each volume.
const STORES_LOOK: Duration = Duration::from_secs(10);

/// Keys of hosts for TLS, by the NQNs of host and subsystem.
pub type Psks = BTreeMap<(String, String), TlsKey>;

/// The control plane of a running target.
pub trait Plane: Send + Sync {
    /// Does all of `operations`, or nothing; hosts have `psks` then, if they are given.
    ///
    /// # Errors
    /// The first that cannot be; or (`Err(None)`) nothing may change now.
    fn apply(
        &self,
        operations: &[Operation<Export>],
        psks: Option<Psks>,
    ) -> Result<(), Option<ConfigError>>;

    /// The target that runs.
    fn server(&self) -> Arc<Server>;

    /// Asks the process to stop, as a signal does.
    fn stop(&self);

    /// Logs what is of that level or above: error, warn, info, debug.
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
    /// The log level as RPC has set it last.
    log_level: Mutex<Option<&'static str>>,
    calls: CallCounts,
    /// Stores as metrics show them, and when they were looked at.
    stores: Mutex<(Option<Instant>, Vec<StoreSample>)>,
    state_write_errors: AtomicU64,
    /// Another process goes on with what it had.
    is_released: AtomicBool,
    /// What callers may cause often, in the log.
    bursts: Bursts,
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
        let (turn, log_level, calls, stores) = Default::default();
        let (state_write_errors, is_released, bursts) = Default::default();
        Manager {
            plane,
            files,
            model,
            turn,
            log_level,
            calls,
            stores,
            state_write_errors,
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

    /// What RPC has made is called as RPC calls it.
    pub fn name_devices(&self, namespaces: &mut [NamespaceSample]) {
        let model = self.model();
        let names: HashMap<(&str, u32), &str> = model.claims().collect();
        for namespace in namespaces {
            if let Some(name) = names.get(&(namespace.nqn.as_str(), namespace.nsid)) {
                namespace.name = (*name).to_owned();
            }
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

    /// The control plane.
    #[must_use]
    pub fn plane(&self) -> &dyn Plane {
        &*self.plane
    }

    /// The log level as RPC has set it last.
    pub fn log_level(&self) -> MutexGuard<'_, Option<&'static str>> {
        self.log_level.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the target exports that RPC has not made: it is the configuration file's.
    #[must_use]
    pub fn files_own(&self) -> Vec<Subsystem> {
        let own = self.server().exports().subsystems;
        own.into_iter().filter(|subsystem| subsystem.listeners.is_none()).collect()
    }

    /// Whether a subsystem is the configuration file's.
    ///
    /// # Errors
    /// It is, so RPC may not change it.
    pub fn check_owner(&self, nqn: &str) -> Rpc<()> {
        match self.files_own().iter().any(|subsystem| subsystem.nqn == nqn) {
            true => Err(RpcError::not_permitted(format!(
                "{nqn} is of the configuration file: change it there and send SIGHUP"
            ))),
            false => Ok(()),
        }
    }

    /// Changes what RPC has made, as a whole or not at all; it is written down when this returns. `refused` says what to
    /// answer when the target cannot do it.
    ///
    /// # Errors
    /// Nothing has changed.
    pub fn change<T>(
        &self,
        refused: impl Fn(String) -> RpcError,
        edit: impl FnOnce(&mut Model) -> Rpc<T>,
    ) -> Rpc<T> {
        let _turn = self.take_turn()?;
        let old = self.model();
        let mut next = (*old).clone();
        let result = edit(&mut next)?;
        next.subsystems.sort_by(|a, b| a.nqn.cmp(&b.nqn));
        self.apply(&old, &next, &refused)?;
        if let Err(failure) = self.save(&old, &next) {
            let undone = self.apply(&next, &old, &refused);
            undone.unwrap_or_else(|e| {
                error!("a change that is not written down stays: {}", e.message)
            });
            return Err(failure);
        }
        *self.model.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(next);
        Ok(result)
    }

    /// Looks at the namespaces of a device again, whose size is another one by now, and writes it down.
    ///
    /// # Errors
    /// Hosts cannot be told.
    pub fn resized(&self, device: &str) -> Rpc<()> {
        let _turn = self.take_turn()?;
        let model = self.model();
        let exports = model.exports();
        let Some((nqn, nsid)) = model.claim(device) else { return self.save_now(&model) };
        let namespaces =
            exports.iter().filter(|one| one.nqn == nqn).flat_map(|one| &one.namespaces);
        let looked = namespaces.filter(|one| one.nsid == nsid).map(|namespace| {
            Operation::ReplaceNamespace { nqn: nqn.to_owned(), namespace: namespace.clone() }
        });
        let looked: Vec<_> = looked.collect();
        self.plane.apply(&looked, None).map_err(|error| refusal(error, &RpcError::internal))?;
        self.save_now(&model)
    }

    /// Nobody else changes anything meanwhile. After [`Manager::release`] nobody may: the state file is another process's.
    fn take_turn(&self) -> Rpc<MutexGuard<'_, ()>> {
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        match self.is_released.load(Relaxed) {
            true => Err(RpcError::busy("another process has taken over")),
            false => Ok(turn),
        }
    }

    fn apply(&self, old: &Model, next: &Model, refused: &impl Fn(String) -> RpcError) -> Rpc<()> {
        let operations = operations(&self.server().exports(), old, next);
        let psks = Some(next.psks()).filter(|psks| *psks != old.psks());
        if operations.is_empty() && psks.is_none() {
            return Ok(());
        }
        self.plane.apply(&operations, psks).map_err(|error| refusal(error, refused))
    }

    /// What is on stable storage is `next` when this returns, or `old` after an error.
    fn save(&self, old: &Model, next: &Model) -> Rpc<()> {
        let (was, state) = (old.state(), next.state());
        let Some(path) = self.files.state.as_deref().filter(|_| was != state) else {
            return Ok(());
        };
        model::save(path, &state).map_err(|error| {
            self.state_write_errors.fetch_add(1, Relaxed);
            error!("{}: {error}: the change is undone", path.display());
            // Perhaps it has its new content already.
            let _ = model::save(path, &was);
            RpcError::io(format!("{}: {error}", path.display()))
        })
    }

    fn save_now(&self, model: &Model) -> Rpc<()> {
        let Some(path) = &self.files.state else { return Ok(()) };
        let failed = |error| {
            self.state_write_errors.fetch_add(1, Relaxed);
            RpcError::io(format!("{}: {error}", path.display()))
        };
        model::save(path, &model.state()).map_err(failed)
    }

    /// The file or device at `path`, if RPC may open it, by a name without links.
    ///
    /// # Errors
    /// It is not there, or not below one of the folders that RPC may use.
    pub fn allowed(&self, path: &Path) -> Rpc<PathBuf> {
        let problem = |error| RpcError::no_file(format!("{}: {error}", path.display()));
        let real = path.canonicalize().map_err(problem)?;
        let roots = self.files.roots.iter().filter_map(|root| root.canonicalize().ok());
        match roots.into_iter().any(|root| real.starts_with(root)) {
            true => Ok(real),
            false => Err(RpcError::not_permitted(format!(
                "{} is not below one of the file_roots of the configuration",
                path.display()
            ))),
        }
    }
}

/// Somebody who calls: `peer` in the log.
#[derive(Clone, Copy)]
pub struct Caller<'a> {
    /// Whom they call.
    pub manager: &'a Manager,
    /// Who they are.
    pub peer: &'a str,
}

impl Caller<'_> {
    /// Logs what they may do often.
    pub fn tell(&self, weight: Weight, what: &str, detail: &str) {
        self.manager.bursts.tell(weight, &format!("RPC: {what}"), self.peer, detail);
    }
}

impl Methods for Caller<'_> {
    fn call(&self, name: &str, params: Params<'_>) -> Rpc<Value> {
        let Some(method) = methods::find(name) else {
            self.tell(Weight::Info, "an unknown method", name);
            return Err(RpcError::method(""));
        };
        let (peer, began) = (self.peer, Instant::now());
        let result = (method.run)(self.manager, params);
        let code = result.as_ref().map_or_else(|error| error.code, |_| 0);
        self.manager.calls.count(method.name, code, began.elapsed());
        match &result {
            Ok(_) if method.changes => info!("RPC: {name} from {peer}"),
            Ok(_) => debug!("RPC: {name} from {peer}"),
            Err(error) => {
                self.tell(Weight::Info, &format!("{name} refused ({code})"), &error.message);
            }
        }
        result
    }

    fn refused(&self, error: &RpcError, octets: &[u8]) {
        const SHOWN: usize = 80;
        let begin = String::from_utf8_lossy(&octets[..octets.len().min(SHOWN)]);
        let what = format!("what is no request ({})", error.code);
        self.tell(Weight::Info, &what, &format!("{}: {begin}", error.message));
    }
}

fn refusal(error: Option<ConfigError>, refused: &impl Fn(String) -> RpcError) -> RpcError {
    match error {
        Some(error) => refused(error.to_string()),
        None => RpcError::busy("another process takes over"),
    }
}

/// What makes of a target that exports `old`, among other things, one that exports `next`.
fn operations(exports: &TargetConfig<Export>, old: &Model, next: &Model) -> Vec<Operation<Export>> {
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
    let is_there =
        |address: &SocketAddr| exports.listeners.iter().any(|one| one.address == *address);
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
mod tests {
    use super::*;
    use crate::rpc::message;
    use roadtrain_engine::target::ServerConfig;
    use roadtrain_proto::security::DhchapKey;
    use serde_json::json;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    struct Alone(Arc<Server>);

    impl Plane for Alone {
        fn apply(
            &self,
            operations: &[Operation<Export>],
            psks: Option<Psks>,
        ) -> Result<(), Option<ConfigError>> {
            self.0.apply(operations).map_err(Some)?;
            psks.into_iter().for_each(|psks| self.0.set_tls_keys_at(psks));
            Ok(())
        }

        fn server(&self) -> Arc<Server> {
            self.0.clone()
        }

        fn stop(&self) {}

        fn set_log_level(&self, level: &str) -> Result<(), String> {
            if level == "debug" { Err("not here".into()) } else { Ok(()) }
        }
    }

    /// A target, and the file that it writes.
    fn manager(folder: &Path) -> Manager {
        let config = ServerConfig::new(vec![([127, 0, 0, 1], 0).into()], Vec::new());
        let server = Arc::new(Server::start(config).unwrap());
        let files = Files { state: Some(folder.join("state.toml")), roots: Vec::new() };
        Manager::new(Box::new(Alone(server)), Model::default(), files)
    }

    fn ask(manager: &Manager, method: &str, params: Value) -> Value {
        let request = serde_json::json!({"method": method, "params": params, "id": 1});
        let caller = Caller { manager, peer: "a test" };
        let answered = message::answer(request.to_string().as_bytes(), &caller);
        serde_json::from_str(&answered.text.unwrap()).unwrap()
    }

    #[test]
    fn a_change_that_cannot_be_written_down_is_undone() {
        let folder = tempfile::tempdir().unwrap();
        let manager = manager(folder.path());
        let nqn = |name: &str| serde_json::json!({"nqn": format!("nqn.2025-01.io.example:{name}")});
        assert_eq!(ask(&manager, "nvmf_create_subsystem", nqn("a"))["result"], true);
        let before = model::load(&folder.path().join("state.toml")).unwrap().state();
        assert_eq!(before, manager.model().state());
        drop(folder); // nothing can be written there any more
        let refused = ask(&manager, "nvmf_create_subsystem", nqn("b"));
        assert_eq!(refused["error"]["code"], -5, "{refused}");
        assert_eq!(manager.server().exports().subsystems.len(), 1);
        assert_eq!(manager.model().state(), before);
    }

    /// A resize may be under way when another process takes over: what it writes down then would be nothing.
    #[test]
    fn nothing_is_written_down_after_another_process_has_taken_over() {
        let folder = tempfile::tempdir().unwrap();
        let manager = manager(folder.path());
        let nqn = json!({"nqn": "nqn.2025-01.io.example:a"});
        assert_eq!(ask(&manager, "nvmf_create_subsystem", nqn)["result"], true);
        let written = || std::fs::read(folder.path().join("state.toml")).unwrap();
        let before = written();
        manager.release();
        assert_eq!(manager.resized("m").unwrap_err().code, -16);
        assert_eq!(written(), before);
    }

    #[test]
    fn a_device_is_in_one_namespace() {
        let folder = tempfile::tempdir().unwrap();
        let manager = manager(folder.path());
        let device = serde_json::json!({"name": "m", "num_blocks": 8, "block_size": 512});
        assert_eq!(ask(&manager, "bdev_malloc_create", device)["result"], "m");
        for name in ["a", "b"] {
            let nqn = format!("nqn.2025-01.io.example:{name}");
            ask(&manager, "nvmf_create_subsystem", serde_json::json!({"nqn": nqn}));
            let namespace = serde_json::json!({"nqn": nqn, "namespace": {"bdev_name": "m"}});
            let answer = ask(&manager, "nvmf_subsystem_add_ns", namespace);
            let expected = if name == "a" { Value::from(1) } else { Value::Null };
            assert_eq!(answer["result"], expected, "{answer}");
        }
        ask(&manager, "bdev_malloc_delete", serde_json::json!({"name": "m"}));
        assert_eq!(manager.server().view().0.subsystems[0].namespaces, []);
    }

    /// A file with a key, and a manager that may read it.
    fn with_key(folder: &Path) -> (Manager, String) {
        let path = folder.join("host.key");
        let line = DhchapKey::new(None, &[7; 32]).unwrap().print();
        std::fs::write(&path, &*line).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let plain = manager(folder);
        let files = Files { roots: vec![folder.into()], ..plain.files };
        (Manager { files, ..plain }, path.display().to_string())
    }

    #[test]
    fn what_cannot_be_deleted_stays_what_it_is() {
        let [folder, volumes] = [(), ()].map(|()| tempfile::tempdir().unwrap());
        let plain = manager(folder.path());
        let files = Files { roots: vec![volumes.path().into()], ..plain.files };
        let manager = Manager { files, ..plain };
        let path = volumes.path().display().to_string();
        ask(&manager, "bdev_lvol_create_lvstore", json!({"bdev_name": path, "lvs_name": "s"}));
        let made =
            json!({"lvs_name": "s", "lvol_name": "v", "size_in_mib": 4, "thin_provision": true});
        let name = ask(&manager, "bdev_lvol_create", made)["result"].clone();
        let nqn = "nqn.2025-01.io.example:a";
        ask(&manager, "nvmf_create_subsystem", json!({"nqn": nqn}));
        let namespace = json!({"bdev_name": name, "nsid": 7});
        ask(&manager, "nvmf_subsystem_add_ns", json!({"nqn": nqn, "namespace": namespace}));
        let limit = json!({"name": name, "rw_ios_per_sec": 1000});
        assert_eq!(ask(&manager, "bdev_set_qos_limit", limit)["result"], true);
        let before = manager.model().state();
        // In the way of the next index.
        std::fs::create_dir(volumes.path().join("store.json.new")).unwrap();
        for (method, params) in [
            ("bdev_lvol_delete", json!({"name": name})),
            ("bdev_lvol_delete_lvstore", json!({"lvs_name": "s"})),
        ] {
            let refused = ask(&manager, method, params);
            assert!(refused["error"]["code"].is_i64(), "{refused}");
            assert_eq!(manager.model().state(), before, "{method}");
            let subsystems = &manager.server().view().0.subsystems;
            assert_eq!(subsystems[0].namespaces[0].nsid, 7, "{method}");
        }
        std::fs::remove_dir(volumes.path().join("store.json.new")).unwrap();
        let deleted = ask(&manager, "bdev_lvol_delete_lvstore", json!({"lvs_name": "s"}));
        assert_eq!(deleted["result"], true, "{deleted}");
        assert!(manager.model().devices.is_empty() && manager.model().limits.is_empty());
    }

    /// The calls of `framework_get_config`, as save_config has them.
    fn saved(manager: &Manager) -> Vec<Value> {
        let of = |name: &str| ask(manager, "framework_get_config", json!({"name": name}));
        let calls = ["keyring", "bdev", "nvmf"].map(|name| of(name)["result"].take());
        calls.into_iter().flat_map(|calls| calls.as_array().unwrap().clone()).collect()
    }

    /// In memory, in a folder, of the start; shown to hosts, and limited.
    #[test]
    fn saved_volumes_are_found_by_another_target() {
        let [folder, volumes] = [(), ()].map(|()| tempfile::tempdir().unwrap());
        let with_roots = || {
            let plain = manager(folder.path());
            let files = Files { roots: vec![volumes.path().into()], ..plain.files };
            Manager { files, ..plain }
        };
        let manager = with_roots();
        let done = |method: &str, params: Value| {
            let answer = ask(&manager, method, params);
            assert!(answer["error"].is_null(), "{method}: {answer}");
            answer["result"].clone()
        };
        let (path, nqn) = (volumes.path().display().to_string(), "nqn.2025-01.io.example:a");
        done("bdev_malloc_create", json!({"name": "m", "num_blocks": 65536, "block_size": 512}));
        done("bdev_lvol_create_lvstore", json!({"bdev_name": "m", "lvs_name": "mem"}));
        done("bdev_lvol_create_lvstore", json!({"bdev_name": path, "lvs_name": "disk"}));
        done("nvmf_create_subsystem", json!({"nqn": nqn}));
        let mut uuids = Vec::new();
        for store in ["mem", "disk"] {
            let new = json!({"lvs_name": store, "lvol_name": "v", "size": 4 << 20});
            let uuid = done("bdev_lvol_create", new);
            let namespace = json!({"bdev_name": uuid});
            done("nvmf_subsystem_add_ns", json!({"nqn": nqn, "namespace": namespace}));
            done("bdev_set_qos_limit", json!({"name": uuid, "rw_ios_per_sec": 20000}));
            uuids.push(uuid);
        }
        done("bdev_lvol_snapshot", json!({"lvol_name": "mem/v", "snapshot_name": "s"}));
        let ids = |manager: &Manager| -> Vec<_> {
            let subsystem = &manager.server().exports().subsystems[0];
            subsystem.namespaces.iter().map(|one| (one.nsid, one.uuid)).collect()
        };
        let (calls, seen) = (saved(&manager), ids(&manager));
        drop(manager);
        let other = with_roots();
        for call in &calls {
            let answer = ask(&other, call["method"].as_str().unwrap(), call["params"].clone());
            assert!(answer["error"].is_null(), "{call}: {answer}");
        }
        assert_eq!(saved(&other), calls);
        assert_eq!(ids(&other), seen, "hosts know them by the same names");
        let model = other.model();
        assert!(model.device(uuids[1].as_str().unwrap()).is_some(), "it is the same volume");
        assert_eq!(model.limits.len(), 2);
    }

    #[test]
    fn keys_come_and_go_by_their_names() {
        let folder = tempfile::tempdir().unwrap();
        let (manager, path) = with_key(folder.path());
        let [nqn, host] = ["a", "h"].map(|name| format!("nqn.2025-01.io.example:{name}"));
        let add = json!({"name": "k", "path": path});
        assert_eq!(ask(&manager, "keyring_file_add_key", add.clone())["result"], true);
        assert_eq!(ask(&manager, "keyring_file_add_key", add.clone())["error"]["code"], -17);
        ask(&manager, "nvmf_create_subsystem", json!({"nqn": nqn}));
        let with = |key: &str, name: &str| json!({"nqn": nqn, "host": host, key: name});
        for (key, name, code) in [
            ("dhchap_key", "none", -32602),
            ("psk", "k", -32602), // it is for authentication
            ("dhchap_ctrlr_key", "k", -32603),
        ] {
            let refused = ask(&manager, "nvmf_subsystem_add_host", with(key, name));
            assert_eq!(refused["error"]["code"], code, "{refused}");
        }
        let added = ask(&manager, "nvmf_subsystem_add_host", with("dhchap_key", "k"));
        assert_eq!(added["result"], true, "{added}");
        let keys_at = || manager.server().exports().authentication.keys_at;
        assert!(keys_at()[&nqn][&host].host.is_some());
        let shown = ask(&manager, "nvmf_get_subsystems", json!({"nqn": nqn}));
        assert_eq!(shown["result"][0]["hosts"], json!([{"nqn": host, "dhchap_key": "k"}]));
        let shown = ask(&manager, "keyring_get_keys", Value::Null);
        assert_eq!(shown["result"][0]["refcnt"], 2, "{shown}");
        let used = ask(&manager, "keyring_file_remove_key", json!({"name": "k"}));
        assert_eq!(used["error"]["code"], -16, "{used}");
        let calls = ask(&manager, "framework_get_config", json!({"name": "keyring"}));
        assert_eq!(calls["result"], json!([{"method": "keyring_file_add_key", "params": add}]));
        let kept = model::load(&folder.path().join("state.toml")).unwrap();
        assert_eq!((kept.state(), kept.keys_at()), (manager.model().state(), keys_at()));
        ask(&manager, "nvmf_subsystem_set_keys", json!({"nqn": nqn, "host": host}));
        assert!(keys_at().is_empty());
        let removed = ask(&manager, "keyring_file_remove_key", json!({"name": "k"}));
        assert_eq!(removed["result"], true, "{removed}");
        let none = ask(&manager, "keyring_file_remove_key", json!({"name": "k"}));
        assert_eq!(none["error"]["code"], -126, "{none}");
    }

    #[test]
    fn keys_that_others_can_read_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (manager, path) = with_key(folder.path());
        std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        for (path, code) in
            [(path.as_str(), -1), ("host.key", -1), ("/etc/passwd", -1), ("/nowhere/at/all", -2)]
        {
            let refused = ask(&manager, "keyring_file_add_key", json!({"name": "k", "path": path}));
            assert_eq!(refused["error"]["code"], code, "{refused}");
        }
        assert_eq!(ask(&manager, "keyring_get_keys", Value::Null)["result"], json!([]));
    }

    #[test]
    fn referrals_are_in_the_log() {
        let folder = tempfile::tempdir().unwrap();
        let manager = manager(folder.path());
        let other = json!({"address": {"trtype": "tcp", "traddr": "192.0.2.1"}});
        let add = || ask(&manager, "nvmf_discovery_add_referral", other.clone());
        assert_eq!(add()["result"], true);
        assert_eq!(add()["error"]["code"], -32603, "twice");
        let expected: Vec<SocketAddr> = vec!["192.0.2.1:8009".parse().unwrap()];
        assert_eq!(manager.server().view().0.referrals, expected);
        let shown = ask(&manager, "nvmf_discovery_get_referrals", Value::Null);
        assert_eq!(shown["result"][0]["address"]["trsvcid"], "8009", "{shown}");
        let kept = model::load(&folder.path().join("state.toml")).unwrap();
        assert_eq!(kept.state(), manager.model().state());
        let remove = || ask(&manager, "nvmf_discovery_remove_referral", other.clone());
        assert_eq!(remove()["result"], true);
        let message = remove()["error"]["message"].clone();
        assert!(message.as_str().unwrap().starts_with("Unable to remove a referral."));
        assert_eq!(manager.server().view().0.referrals, []);
    }

    #[test]
    fn log_levels_are_those_of_spdk() {
        let folder = tempfile::tempdir().unwrap();
        let manager = manager(folder.path());
        let set = |level: &str| ask(&manager, "log_set_print_level", json!({"level": level}));
        assert_eq!(set("WARNING")["result"], true);
        for method in ["log_get_level", "log_get_print_level"] {
            assert_eq!(ask(&manager, method, Value::Null)["result"], "WARNING");
        }
        assert_eq!(set("loud")["error"]["code"], -32602);
        assert_eq!(set("DEBUG")["error"]["code"], -32603, "the process says no");
        assert_eq!(ask(&manager, "log_get_level", Value::Null)["result"], "WARNING");
        let kill = |name: &str| ask(&manager, "spdk_kill_instance", json!({"sig_name": name}));
        assert_eq!(kill("SIGKILL")["error"]["code"], -32602);
        assert_eq!(kill("SIGTERM")["result"], true);
    }
}
