//! JSON-RPC servers of a running target, and the objects of the state file.

use super::AfterTakeover;
use super::control::TargetMethods;
use super::served::RunningTarget;
use crate::addresses::check_socket_path;
use crate::args::LvStoreArg;
use crate::config::ServeConfig;
use crate::failure::{CommandFailure, CommandResult};
use crate::namespace::NamespaceSettings;
use crate::{logs, signals};
use roadtrain_manage::http;
use roadtrain_manage::model::{self, Base, LvStore, ManagedModel, RemoteDevices};
use roadtrain_manage::rpc::{
    ControlPlane, Credentials, Files, Manager, Psks, ReleasedStores, UnixServer, router,
};
use roadtrain_manage::volumes::VolumeStore;
use roadtrain_proto::security::TlsKeys;
use roadtrain_store::RemoteContext;
use roadtrain_system::platform::listen_problem;
use roadtrain_target_engine::{
    ConfigError, ConfigOperation, Export, GuestThreads, Server, ServerConfig, TlsConfig, TlsUse,
};
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tracing::{info, warn};

/// Time for sending the reply before the process stops.
const ANSWER: Duration = Duration::from_millis(100);
/// Bytes of `.new`: a socket gets its name when it is ready.
const RPC_SUFFIX_BYTES: usize = 4;

/// JSON-RPC servers, which run until this is dropped.
#[derive(Default)]
pub(super) struct Management {
    _unix: Option<UnixServer>,
    _http: Option<http::HttpServer>,
    manager: Option<Arc<Manager>>,
}

impl Management {
    /// Removes the objects of RPC from a configuration.
    pub(super) fn unload(&self, config: &mut ServerConfig) {
        let Some(manager) = &self.manager else { return };
        let model = manager.model();
        config.subsystems.retain(|subsystem| !model.serves(&subsystem.nqn));
        let own =
            config.subsystems.iter().flat_map(|subsystem| subsystem.listeners.iter().flatten());
        let own: Vec<SocketAddr> = own.map(|(address, _)| *address).collect();
        let named: BTreeSet<SocketAddr> = std::mem::take(&mut config.named_only);
        let (kept, gone): (_, BTreeSet<SocketAddr>) =
            named.into_iter().partition(|at| own.contains(at));
        config.named_only = kept;
        config.listen.retain(|address| !gone.contains(address));
        config.tls.iter_mut().for_each(|tls| tls.at.retain(|at, _| !gone.contains(at)));
        let ours: Vec<SocketAddr> = model.referrals.iter().map(SocketAddr::from).collect();
        config.referrals.retain(|referral| !ours.contains(referral));
    }

    /// Writes the state file as a whole before the process stops.
    pub(super) fn fold_journal(&self) {
        self.manager.iter().for_each(|manager| manager.fold_journal());
    }

    /// Stops the servers, and closes what is open, so that another process can continue.
    pub(super) fn release(&mut self) -> Option<ReleasedStores> {
        let Management { _unix, _http, manager } = std::mem::take(self);
        drop((_unix, _http));
        manager.map(|manager| manager.release())
    }
}

struct RunningTargetPlane(Arc<RunningTarget>);

impl ControlPlane for RunningTargetPlane {
    fn apply(
        &self,
        operations: &[ConfigOperation<Export>],
        psks: Option<Psks>,
    ) -> Result<Vec<ConfigOperation>, Option<ConfigError>> {
        self.0.apply_all(operations, psks)
    }

    fn server(&self) -> Arc<Server> {
        self.0.server()
    }

    fn file_owner(&self) -> &'static str {
        self.0.file_owner()
    }

    fn stop(&self) {
        let stop = || {
            thread::sleep(ANSWER);
            signals::stop_self();
        };
        let stopping = thread::Builder::new().name("roadtrain-stop".into()).spawn(stop);
        stopping.map_or_else(|_| signals::stop_self(), drop);
    }

    fn set_log_level(&self, level: &str) -> Result<(), String> {
        logs::set_level(level)
    }
}

/// Opens the objects of the state file, and adds them to the exports.
///
/// # Errors
/// The file is invalid, one of its objects is missing, or the configuration file names it, too.
pub(super) fn load(own: &ServeConfig, config: &mut ServerConfig) -> CommandResult<ManagedModel> {
    let roots = files(own)?.roots;
    let remote = remote_devices(config);
    let state = own.state.as_deref().map(|path| model::load(path, &roots, &remote)).transpose();
    let state = state.map_err(CommandFailure::failed)?;
    let mut model = state.unwrap_or_else(|| ManagedModel { remote, ..ManagedModel::default() });
    for spec in &own.lvstores {
        add_lvstore(&mut model, spec)?;
    }
    model.order_devices();
    // A listener with TLS may be added at any time.
    let (tls, keys) = (TlsUse::Off, TlsKeys::default());
    let tls = config.tls.get_or_insert(TlsConfig { tls, at: BTreeMap::new(), keys });
    tls.keys.at = model.psks();
    config.authentication.keys_at = model.keys_at();
    let Some(path) = &own.state else { return Ok(model) };
    model.shadowed = config.subsystems.iter().map(|subsystem| subsystem.nqn.clone()).collect();
    for twice in model.subsystems.iter().filter(|one| model.shadowed.contains(&one.nqn)) {
        let (nqn, path) = (&twice.nqn, path.display());
        warn!("{nqn} is in the configuration, which is served, and in {path}, where it is kept");
    }
    let exports = model.exports();
    config.authentication.keys_at = model.keys_at();
    config.tls.iter_mut().for_each(|tls| tls.keys.at = model.psks());
    let tls = |at: &SocketAddr| {
        config.tls.as_ref().map_or(TlsUse::Off, |tls| tls.at.get(at).copied().unwrap_or(tls.tls))
    };
    model.check_listeners(&config.listen, tls).map_err(CommandFailure::usage)?;
    let addresses = model.addresses().into_iter();
    let named_only = addresses.filter(|(at, _)| !config.listen.contains(at));
    let named_only: BTreeMap<SocketAddr, TlsUse> = named_only.collect();
    config.named_only.extend(named_only.keys());
    config.listen.extend(named_only.keys());
    config.tls.iter_mut().for_each(|tls| tls.at.extend(&named_only));
    config.subsystems.extend(exports);
    config.referrals.extend(model.referrals.iter().map(SocketAddr::from));
    Ok(model)
}

/// Returns the support for blocks over the network, which use the threads of the target.
fn remote_devices(config: &mut ServerConfig) -> RemoteDevices {
    let threads = config
        .guest_threads
        .get_or_insert_with(|| Arc::new(GuestThreads::new(config.cores.len().max(1))));
    let context = RemoteContext {
        threads: Some(threads.clone()),
        own_addresses: config.listen.clone(),
        ..RemoteContext::default()
    };
    RemoteDevices { parse: Some(NamespaceSettings::parse_remote), context }
}

/// Returns the listeners of the state file.
///
/// # Errors
/// The file is invalid.
pub(super) fn addresses(own: &ServeConfig) -> CommandResult<Vec<SocketAddr>> {
    let Some(path) = &own.state else { return Ok(Vec::new()) };
    let state = model::read(path).map_err(CommandFailure::failed)?;
    Ok(state.addresses().into_keys().collect())
}

/// Opens a store of volumes.
fn add_lvstore(model: &mut ManagedModel, spec: &LvStoreArg) -> CommandResult {
    let LvStoreArg { name, path, size, lba } = spec;
    let path = std::path::absolute(path).map_err(CommandFailure::failed)?;
    let failed =
        |error: &dyn std::fmt::Display| CommandFailure::failed(format!("lvstore {name}: {error}"));
    let store =
        VolumeStore::open(&path, name, *size, lba.unwrap_or(512)).map_err(|e| failed(&e))?;
    let lvstore = LvStore::new(store, Base::Folder(path), true);
    model.add_lvstore(lvstore).map_err(|e| failed(&e))
}

/// Returns the files that RPC may use.
///
/// # Errors
/// A path that cannot be made absolute.
pub(super) fn files(config: &ServeConfig) -> CommandResult<Files> {
    let absolute = |path: &Path| std::path::absolute(path).map_err(CommandFailure::failed);
    let state = config.state.as_deref().map(absolute).transpose()?;
    let roots = config.file_roots.iter().map(|root| absolute(root));
    Ok(Files { state, roots: roots.collect::<CommandResult<_>>()? })
}

/// Returns address and credentials for RPC over HTTP; `None` if there is none.
///
/// # Errors
/// Passwords could be read on the network, or the credentials cannot be read.
pub(super) fn web(own: &ServeConfig) -> CommandResult<Option<(SocketAddr, Credentials)>> {
    let Some(address) = own.rpc_http else { return Ok(None) };
    if !address.ip().to_canonical().is_loopback() && !own.rpc_http_anywhere {
        let form = own.spelling.form("rpc_http");
        let (name, anywhere) = (form.name("rpc_http"), form.name("rpc_http_anywhere"));
        return Err(CommandFailure::usage(format!(
            "{name} {address}: there is no TLS, so passwords could be read on the way: take a loopback address behind a \
             proxy with TLS, or add {anywhere}"
        )));
    }
    let Some(path) = &own.rpc_credentials else { return Ok(None) };
    let credentials = Credentials::read(path);
    let credentials = credentials.map_err(|error| {
        let name = own.spelling.name("rpc_credentials");
        CommandFailure::usage(format!("{name} {}: {error}", path.display()))
    })?;
    Ok(Some((address, credentials)))
}

/// Starts the servers.
///
/// # Errors
/// A socket cannot be created.
pub(super) fn start(
    own: &ServeConfig,
    web: Option<(SocketAddr, Credentials)>,
    over: AfterTakeover,
    (methods, model, files): (&Arc<TargetMethods>, ManagedModel, Files),
) -> CommandResult<Management> {
    let served = methods.served();
    let manager =
        Arc::new(Manager::new(Box::new(RunningTargetPlane(served.clone())), model, files));
    served.managed_by(&manager);
    let unix = own.rpc.as_deref().map(|path| at_socket(path, methods)).transpose();
    let name = own.spelling.name("rpc_http");
    let http = web.map(|(address, who)| over_http((&name, address), who, methods)).transpose();
    let (_unix, _http) = (over.or_without(unix)?, over.or_without(http)?);
    Ok(Management { _unix, _http, manager: Some(manager) })
}

fn at_socket(path: &Path, methods: &Arc<TargetMethods>) -> CommandResult<UnixServer> {
    check_socket_path(path, RPC_SUFFIX_BYTES).map_err(CommandFailure::usage)?;
    let server = UnixServer::start(path, methods.clone());
    let server = server.map_err(|error| match (error.kind(), path.parent()) {
        (ErrorKind::NotFound, Some(folder)) => {
            let (path, folder) = (path.display(), folder.display());
            CommandFailure::failed(format!(
                "{path}: the directory {folder} does not exist: make it first"
            ))
        }
        _ => CommandFailure::failed(format!("{}: {error}", path.display())),
    })?;
    info!("JSON-RPC at {}", path.display());
    Ok(server)
}

fn over_http(
    (name, address): (&str, SocketAddr),
    credentials: Credentials,
    methods: &Arc<TargetMethods>,
) -> CommandResult<http::HttpServer> {
    let answers = router(methods.clone(), credentials);
    let server = http::HttpServer::start("roadtrain-http", address, answers);
    let server = server.map_err(|error| {
        CommandFailure::failed(format!("{name} {address}: {}", listen_problem(address, &error)))
    })?;
    info!("JSON-RPC over HTTP at {}", server.address());
    Ok(server)
}
