//! A running target: its state, and changes by the control socket, RPC, a group and SIGHUP.

use super::changes::{Batch, subsystem_of};
use super::group::GroupMember;
#[cfg(feature = "rbd")]
use super::group::{GroupFollower, Serves};
use super::problems;
use super::successor::Successor;
use crate::addresses::Addresses;
use crate::args::{AnaPort, RpcServeArgs};
use crate::config::ServeConfig;
use crate::control::socket::PendingReply;
use crate::control::{
    ChangesReply, ControlRefusal, ControlReply, ExportChange, HostVisibleChange, RefusalReason,
};
use crate::failure::{CommandFailure, CommandResult};
use crate::mdns::Announcement;
use crate::registry::{TargetEntry, TargetRegistration, write_entry};
use crate::signals;
use crate::status::target::{TargetReport, TargetTraffic};
use crate::status::waiting::WaitReport;
use crate::tls::TlsSpec;
use roadtrain_manage::model::ManagedModel;
use roadtrain_manage::rpc::{CallerAccess, Manager, Psks, RpcError};
use roadtrain_proto::security::TlsKeys;
use roadtrain_reactor::metrics::{Batching, MetricsSnapshot};
use roadtrain_target_engine::{
    AnaListener, AnaStates, ConfigError, ConfigObject, ConfigOperation, Export, Server,
    ServerConfig, ServerError, Subsystem, TlsUse,
};
#[cfg(feature = "rbd")]
use roadtrain_target_proto::SubsystemConfig;
use roadtrain_target_proto::{HostAuthentication, NamespaceRequest};
use roadtrain_wire::status::Status;
use serde_json::json;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Instant;
use tracing::{info, warn};

/// A running target, shared by the main thread and the control server.
pub(super) struct RunningTarget {
    /// The server; replaced after a failed takeover.
    server: Mutex<Arc<Server>>,
    /// Configuration at the start, with the present keys.
    engine_config: Mutex<ServerConfig>,
    /// Process that waits to take over; the main thread continues with it.
    successor: Mutex<Option<Successor>>,
    /// Connection of the caller of an upgrade, for its outcome.
    pub(super) upgrade_caller: Mutex<Option<PendingReply>>,
    /// True during a takeover, when nothing may change. Set while `config` is locked.
    is_handing_over: AtomicBool,
    /// Registry entry and its directory, if the target is registered.
    registration: Mutex<Option<(TargetEntry, PathBuf)>>,
    interfaces: Addresses,
    /// Configuration as it was read last. Keys that need a restart keep their values, so that each reload reports them
    /// again.
    config: Mutex<ServeConfig>,
    file: Option<PathBuf>,
    /// Group that determines the exports, if this is its gateway.
    member: Option<Arc<GroupMember>>,
    begun: Instant,
    /// True if the last reload was successful.
    reloaded: AtomicBool,
    /// RPC options of the command line, which win over the file.
    options: OnceLock<RpcServeArgs>,
    /// The RPC manager, while it exists.
    manager: Mutex<Weak<Manager>>,
    /// Announcement by multicast DNS, if any.
    announcement: Mutex<Option<Announcement>>,
}

impl RunningTarget {
    pub(super) fn new(
        (server, engine_config): (Server, ServerConfig),
        registration: Option<&TargetRegistration>,
        (config, file, member): (ServeConfig, Option<&Path>, Option<Arc<GroupMember>>),
    ) -> RunningTarget {
        server.on_failure(signals::stop_self);
        RunningTarget {
            server: Mutex::new(Arc::new(server)),
            engine_config: Mutex::new(engine_config),
            successor: Mutex::default(),
            upgrade_caller: Mutex::default(),
            is_handing_over: AtomicBool::new(false),
            registration: Mutex::new(
                registration
                    .map(|registration| (registration.entry.clone(), registration.folder.clone())),
            ),
            interfaces: interfaces(&config),
            config: Mutex::new(config),
            file: file.map(Path::to_owned),
            member,
            begun: Instant::now(),
            reloaded: AtomicBool::new(true),
            options: OnceLock::new(),
            manager: Mutex::default(),
            announcement: Mutex::default(),
        }
    }

    /// Sets the RPC options of the command line, which win over the file at each reload.
    pub(super) fn set_rpc_options(&self, options: &RpcServeArgs) {
        self.options.get_or_init(|| options.clone());
    }

    /// Sets the RPC manager.
    pub(super) fn managed_by(&self, manager: &Arc<Manager>) {
        *lock(&self.manager) = Arc::downgrade(manager);
        self.execute_namespace_requests(&self.server());
    }

    /// Lets the RPC manager execute requests of hosts for changes of namespaces.
    fn execute_namespace_requests(&self, server: &Server) {
        let manager = lock(&self.manager).clone();
        let execute = move |nqn: &str, request: &NamespaceRequest| match manager.upgrade() {
            Some(manager) => manager.execute_namespace_request(nqn, request),
            None => Err(Status::COMMAND_INTERRUPTED),
        };
        if let Err(error) = server.manage_namespaces(execute) {
            warn!("hosts cannot manage namespaces, as no thread can be started: {error}");
        }
    }

    /// Returns the RPC manager.
    pub(super) fn manager(&self) -> Option<Arc<Manager>> {
        lock(&self.manager).upgrade()
    }

    /// Makes all changes of an RPC request, or none, and sets `psks`, if given.
    ///
    /// # Errors
    /// Problem of the change; `None` while nothing may change.
    pub(super) fn apply_all(
        &self,
        operations: &[ConfigOperation<Export>],
        psks: Option<Psks>,
    ) -> Result<Vec<ConfigOperation>, Option<ConfigError>> {
        let _config = lock(&self.config);
        self.check_no_handover().map_err(|_| None)?;
        let server = self.server();
        let changes = server.apply(operations)?;
        if let Some(psks) = psks {
            if let Some(tls) = &mut lock(&self.engine_config).tls {
                tls.keys.at.clone_from(&psks);
            }
            server.set_tls_keys_at(psks);
        }
        info!(changes = changes.len(), "changed");
        self.write_listeners();
        Ok(changes)
    }

    /// Announces the discovery service by multicast DNS.
    ///
    /// # Errors
    /// The socket cannot be created.
    pub(super) fn announce(&self) -> CommandResult {
        let mut announcement = Announcement::new()?;
        announcement.update(&self.server().addresses());
        *lock(&self.announcement) = Some(announcement);
        Ok(())
    }

    /// Withdraws the announcement; returns true if there was one.
    pub(super) fn withdraw(&self) -> bool {
        let announcement = lock(&self.announcement).take();
        announcement.is_some()
    }

    /// Returns the target's name, if it is registered.
    pub(super) fn id(&self) -> Option<String> {
        lock(&self.registration).as_ref().map(|(entry, _)| entry.id.clone())
    }

    /// Returns the configuration file.
    pub(super) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Returns the running server.
    pub(super) fn server(&self) -> Arc<Server> {
        lock(&self.server).clone()
    }

    /// Replaces the server after a failed takeover.
    pub(super) fn replace(&self, server: Server) {
        server.on_failure(signals::stop_self);
        self.execute_namespace_requests(&server);
        *lock(&self.server) = Arc::new(server);
        self.write_listeners();
    }

    pub(super) fn engine_config(&self) -> ServerConfig {
        lock(&self.engine_config).clone()
    }

    pub(super) fn listens_on_ethernet(&self) -> bool {
        !self.interfaces.is_empty()
    }

    /// Sets the process that wants to take over, unless there is one already.
    pub(super) fn set_successor(&self, successor: Successor) -> Result<(), Successor> {
        let mut waiting = lock(&self.successor);
        if waiting.is_some() || self.is_handing_over.load(Ordering::Acquire) {
            return Err(successor);
        }
        *waiting = Some(successor);
        Ok(())
    }

    /// Returns the process that takes over. Nothing may change until [`RunningTarget::cancel_handover`].
    pub(super) fn begin_handover(&self) -> Option<Successor> {
        let _config = lock(&self.config);
        let successor = lock(&self.successor).take()?;
        self.is_handing_over.store(true, Ordering::Release);
        Some(successor)
    }

    /// Permits changes again after a failed takeover.
    pub(super) fn cancel_handover(&self) {
        self.is_handing_over.store(false, Ordering::Release);
    }

    /// Checks that changes can be made; `config` is locked.
    fn check_no_handover(&self) -> Result<(), ControlRefusal> {
        match self.is_handing_over.load(Ordering::Acquire) {
            true => Err(ControlRefusal::new(RefusalReason::Failed, "another process takes over")),
            false => Ok(()),
        }
    }

    /// Reloads the configuration file; a gateway follows its group instead.
    ///
    /// # Errors
    /// The file cannot be read, or is invalid; nothing has changed then.
    pub(super) fn reload(&self) -> CommandResult<ChangesReply> {
        if let Some(member) = &self.member {
            member.retry();
            let hint = format!("{} is followed all the time", member.source());
            return Ok(ChangesReply { changes: Vec::new(), hint: Some(hint) });
        }
        let done = self.read_again();
        if self.file.is_some() {
            self.reloaded.store(done.is_ok(), Ordering::Relaxed);
        }
        done
    }

    /// Returns the metrics address of the configuration.
    pub(super) fn metrics_address(&self) -> Option<SocketAddr> {
        lock(&self.config).metrics
    }

    /// Returns the state file.
    pub(super) fn state_file(&self) -> Option<PathBuf> {
        std::path::absolute(lock(&self.config).state.as_deref()?).ok()
    }

    fn read_again(&self) -> CommandResult<ChangesReply> {
        let Some(file) = &self.file else {
            return Err(CommandFailure::usage("there is no configuration file to read again"));
        };
        let new = self.read_file(file)?;
        let kept = lock(&self.config).needs_restart(&new);
        let hint = (!kept.is_empty()).then(|| {
            format!(
                "{}: only addresses, subsystems, authentication, TLS and keys are reloaded; the other changes need a \
                 restart or a takeover: {}",
                file.display(),
                kept.join(", ")
            )
        });
        hint.iter().for_each(|hint| warn!("{hint}"));
        let changes = self.export_config(new, &file.display().to_string())?;
        Ok(ChangesReply { changes, hint })
    }

    /// Reads the configuration file.
    pub(super) fn read_file(&self, file: &Path) -> CommandResult<ServeConfig> {
        ServeConfig::read_for(file, self.options.get_or_init(Default::default))
    }

    /// Returns the configuration that was read last.
    pub(super) fn config(&self) -> &Mutex<ServeConfig> {
        &self.config
    }

    /// Exports the configuration `new` from the source `from`, in addition to the state. Returns the changes for hosts.
    fn export_config(&self, new: ServeConfig, from: &str) -> CommandResult<Vec<HostVisibleChange>> {
        let names = new.subsystems.iter().map(|subsystem| subsystem.nqn.clone()).collect();
        self.managed()?.change_file(names, |model| {
            let mut config = lock(&self.config);
            self.check_no_handover()?;
            self.export_with_state(model, (&mut config, new), from)
        })
    }

    fn export_with_state(
        &self,
        model: &ManagedModel,
        (config, new): (&mut ServeConfig, ServeConfig),
        from: &str,
    ) -> CommandResult<Vec<HostVisibleChange>> {
        let read = |tls: &TlsSpec| tls.config(new.tls_at()?);
        let keys = new.tls.as_ref().map(read).transpose()?.map(|tls| tls.keys);
        let keys = keys.unwrap_or_default();
        new.check_keys(&keys).map_err(CommandFailure::usage)?;
        let (server, wanted) = (self.server(), self.wanted(&new, model)?);
        let changes = wanted.apply(&server);
        let changes = changes.map_err(ServerError::from)?;
        if let Some(tls) = &mut lock(&self.engine_config).tls {
            tls.keys = TlsKeys { at: model.psks(), ..keys.clone() };
        }
        server.set_tls_keys(keys);
        server.set_tls_keys_at(model.psks());
        info!(changes = changes.len(), "reloaded {from}");
        let ServeConfig {
            address,
            port,
            listeners,
            ana,
            subsystems,
            authentication,
            hosts,
            tls,
            ..
        } = new;
        let old = config.clone();
        let new = ServeConfig { address, port, subsystems, authentication, hosts, tls, ..old };
        *config = ServeConfig { listeners, ana, ..new };
        self.write_listeners();
        Ok(changes.iter().map(HostVisibleChange::from).collect())
    }

    /// Makes all of `changes`, or none.
    pub(super) fn apply(&self, changes: Vec<ExportChange>, access: CallerAccess) -> ControlReply {
        let manager = self.managed()?;
        if let [ExportChange::ResizeNamespace { nqn, nsid, size }] = &changes[..] {
            let nqn = subsystem_of(&self.server().exports(), nqn.clone())?;
            if manager.model().serves(&nqn) {
                manager.resize_namespace((&nqn, *nsid), *size)?;
                let what = format!("namespace {nsid} of {nqn}: another size");
                let change =
                    HostVisibleChange { what, nqn: Some(nqn), nsid: Some(*nsid), address: None };
                return Ok(json!(ChangesReply {
                    changes: vec![change],
                    hint: self.state_hint(&manager)
                }));
            }
        }
        let refused = |error| RpcError::from(ControlRefusal::from(error));
        let (batch, changes) = manager.change_with(refused, |model, operations| {
            let mut batch = Batch::new(&self.server(), manager.session(access));
            for change in changes {
                self.check_ether(&change)?;
                batch.add(change, (model, operations))?;
            }
            Ok(batch)
        })?;
        let hint = match (batch.touches_file, batch.touches_state) {
            (_, true) if changes.is_empty() => {
                Some("the state has it; for hosts nothing changes now".to_owned())
            }
            _ if changes.is_empty() => None,
            (true, _) => Some(self.file_hint()),
            (false, true) => self.state_hint(&manager),
            (false, false) => None,
        };
        Ok(json!(ChangesReply {
            changes: changes.iter().map(HostVisibleChange::from).collect(),
            hint
        }))
    }

    fn check_ether(&self, change: &ExportChange) -> Result<(), ControlRefusal> {
        match change {
            ExportChange::SetAna { listener: AnaPort::Ether, .. } if self.interfaces.is_empty() => {
                Err(ConfigError::Unknown(ConfigObject::Ana(AnaListener::Ether)).into())
            }
            _ => Ok(()),
        }
    }

    /// Returns the owner of subsystems that are not in the state.
    pub(super) fn file_owner(&self) -> &'static str {
        if self.member.is_some() { "group" } else { "file" }
    }

    /// Returns how long a change of the configuration file's objects stays.
    fn file_hint(&self) -> String {
        match &self.file {
            _ if self.member.is_some() => {
                "it holds until the gateway group changes: `roadtrain ctl --group` makes changes that stay".to_owned()
            }
            Some(file) => format!(
                "{} has it: this holds until the next reload or restart",
                file.display()
            ),
            None => "it holds until the target ends: it was started without a configuration file".to_owned(),
        }
    }

    /// Returns how long a change of the state stays, if not permanently.
    fn state_hint(&self, manager: &Manager) -> Option<String> {
        let hint = "it ends with the process: `serve --state FILE` keeps such changes";
        (!manager.keeps_changes()).then(|| hint.to_owned())
    }

    /// Returns the RPC manager, which makes changes.
    pub(super) fn managed(&self) -> Result<Arc<Manager>, ControlRefusal> {
        self.manager()
            .ok_or_else(|| ControlRefusal::new(RefusalReason::Failed, "another process takes over"))
    }

    /// Returns the exports for the configuration `new`, together with those of the state.
    pub(super) fn wanted(
        &self,
        new: &ServeConfig,
        model: &ManagedModel,
    ) -> CommandResult<WantedExports> {
        let (listen, mut subsystems) = (new.addresses()?, new.reachable_exports()?);
        let mut authentication = new.authentication()?;
        authentication.keys_at = model.keys_at();
        let (tls, mut tls_at) = (new.tls_mode().into(), new.tls_at()?);
        let tls_of = |at: &SocketAddr| tls_at.get(at).copied().unwrap_or(tls);
        model.check_listeners(&listen, tls_of).map_err(CommandFailure::usage)?;
        self.member.iter().for_each(|member| member.share(&mut subsystems));
        subsystems.extend(model.exports());
        // These include addresses that only subsystems of the state have.
        tls_at.extend(model.addresses().into_iter().filter(|(at, _)| !listen.contains(at)));
        let (ana, follows) = (new.ana_states()?, self.member.is_some());
        Ok(WantedExports { listen, subsystems, authentication, tls: (tls, tls_at), ana, follows })
    }

    /// Updates the announcement and the registry entry after a possible change of the listeners.
    fn write_listeners(&self) {
        if let Some(announcement) = lock(&self.announcement).as_mut() {
            announcement.update(&self.server().addresses());
        }
        let mut registration = lock(&self.registration);
        let Some((entry, folder)) = registration.as_mut() else { return };
        let listeners = listeners(&self.server(), &self.interfaces);
        if listeners != entry.listeners {
            entry.listeners = listeners;
            let written = write_entry(folder, entry);
            written.unwrap_or_else(|error| warn!("{}: {error}", folder.display()));
        }
    }

    /// Returns all counters.
    pub(super) fn snapshot(&self) -> MetricsSnapshot {
        let server = self.server();
        let mut seen = server.snapshot();
        seen.transports.listeners = listeners(&server, &self.interfaces);
        seen.gateway = self.member.as_ref().map(|member| member.sample());
        let is_gateway = seen.gateway.is_some();
        seen.subsystems.iter_mut().for_each(|subsystem| subsystem.shared = is_gateway);
        if let Some(manager) = self.manager() {
            manager.describe(&mut seen);
        }
        MetricsSnapshot {
            id: self.id().unwrap_or_default(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_seconds: self.begun.elapsed().as_secs_f64(),
            last_reload_successful: self
                .file
                .as_ref()
                .map(|_| self.reloaded.load(Ordering::Relaxed)),
            ..seen
        }
    }

    pub(super) fn report(&self) -> TargetReport {
        let server = self.server();
        let usage = server.usage();
        let done: Batching = server.reactors().iter().map(|reactor| reactor.batching).sum();
        let traffic = TargetTraffic {
            uptime_seconds: self.begun.elapsed().as_secs_f64(),
            connections: usage.connections,
            in_stores: usage.store_commands,
            buffer_bytes: usage.buffer_bytes,
            requests: done.requests,
            data_bytes: done.data_bytes,
            waiting: server.waiting().into_iter().map(WaitReport::from).collect(),
        };
        let (config, controllers) = server.view();
        let exports = server.exports();
        let registration = lock(&self.registration);
        let id = registration.as_ref().map_or_else(String::new, |(entry, _)| entry.id.clone());
        let facts = (id, listeners(&server, &self.interfaces), self.file.clone());
        let lanes = server.lanes();
        let mut report =
            TargetReport::serving(facts, (traffic, &lanes), &exports, (&config, &controllers));
        report.problems = server.failure().into_iter().collect();
        report.set_connections(&server.queues());
        if let Some(manager) = self.manager() {
            let model = manager.model();
            report.name_devices((&model, self.file_owner()));
            report.problems.extend(problems::truncated(&exports, &config, &model));
        }
        report
    }
}

#[cfg(feature = "rbd")]
impl GroupFollower for RunningTarget {
    fn follow(&self, new: Option<ServeConfig>, from: &str) -> CommandResult {
        let new = new.unwrap_or_else(|| lock(&self.config).clone());
        self.export_config(new, from).map(drop)
    }

    fn served(&self) -> (Vec<String>, Serves) {
        let server = self.server();
        let (config, _) = server.view();
        let of = |subsystem: &SubsystemConfig| {
            let here = subsystem.namespaces.iter().filter(|namespace| namespace.ana.is_usable());
            (subsystem.nqn.clone(), here.map(|namespace| namespace.nsid).collect())
        };
        (listeners(&server, &self.interfaces), config.subsystems.iter().map(of).collect())
    }
}

/// Wanted exports.
pub(super) struct WantedExports {
    listen: Vec<SocketAddr>,
    subsystems: Vec<Subsystem>,
    authentication: HostAuthentication,
    tls: (TlsUse, BTreeMap<SocketAddr, TlsUse>),
    ana: AnaStates,
    /// True for a gateway group, which determines only the exports.
    follows: bool,
}

impl WantedExports {
    fn apply(&self, server: &Server) -> Result<Vec<ConfigOperation>, ConfigError> {
        let (subsystems, authentication) = (&self.subsystems, &self.authentication);
        let tls = (self.tls.0, &self.tls.1);
        match self.follows {
            true => server.follow(subsystems, authentication),
            false => server.reconfigure(&self.listen, subsystems, authentication, tls, &self.ana),
        }
    }

    /// Returns the operations that [`WantedExports::apply`] would make.
    pub(super) fn preview(
        &self,
        server: &Server,
    ) -> Result<Vec<ConfigOperation<Export>>, ConfigError> {
        let (subsystems, authentication) = (&self.subsystems, &self.authentication);
        let tls = (self.tls.0, &self.tls.1);
        server.preview(&self.listen, subsystems, authentication, tls, &self.ana)
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the listeners.
pub(super) fn listeners(server: &Server, interfaces: &Addresses) -> Vec<String> {
    let interfaces = interfaces.0.iter().map(|name| format!("ether:{name}"));
    let addresses = server.addresses().into_iter().map(|address| address.to_string());
    addresses.chain(interfaces).collect()
}

pub(super) fn interfaces(config: &ServeConfig) -> Addresses {
    config.ether.as_ref().map(|ether| ether.interfaces.clone()).unwrap_or_default()
}
