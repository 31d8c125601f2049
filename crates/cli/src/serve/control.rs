//! A target while it runs: what can be asked and changed, at the control socket and by SIGHUP.

use super::group::Member;
use super::handover::Successor;
use super::{snapshots, upgrade};
use crate::addresses::Addresses;
use crate::args::{AnaPort, RpcServeArgs};
use crate::config::{ServeConfig, SubsystemSpec, default_port, listener_of};
use crate::connect::resolve;
use crate::control::{Call, Change, Changed, Done, Refusal, Reply, Why, socket};
use crate::failure::{Failure, Outcome};
use crate::mdns::Announcement;
use crate::namespace::NamespaceSpec;
use crate::rates::RateArgs;
use crate::registry::{TargetEntry, TargetPlace, write_entry};
use crate::signals;
use crate::status::target::{TargetReport, Traffic};
use crate::status::waiting::WaitReport;
use crate::tls::TlsSpec;
use roadtrain_manage::rpc::{Manager, Psks};
use roadtrain_proto::security::TlsKeys;
use roadtrain_reactor::metrics::Snapshot;
use roadtrain_store::StoreKind;
use roadtrain_target_engine::{
    AnaListener, Blocks, ConfigError, Export, Listener, Operation, Place, Server, ServerConfig,
    ServerError, Subsystem,
};
#[cfg(feature = "rbd")]
use roadtrain_target_proto::SubsystemConfig;
use roadtrain_target_proto::TargetConfig;
use roadtrain_target_proto::rate::Rates;
use serde_json::json;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};
use std::{io, thread};
use tracing::{info, warn};

/// How long a namespace that stands by may take until it is served.
const CLAIM: Duration = Duration::from_secs(20);

/// A running target, shared by the main thread and the one that answers.
pub(super) struct Served {
    /// Another one when a process that wanted to take over has failed.
    server: Mutex<Arc<Server>>,
    /// As the target was started, with the keys that hold by now.
    engine_config: Mutex<ServerConfig>,
    /// Another process wants to take over, and the main thread is to go on with it.
    successor: Mutex<Option<Successor>>,
    /// Who is to hear what becomes of a new process that this one has started.
    pub(super) upgrader: Mutex<Option<UnixStream>>,
    /// The main thread does, so nothing may change. It is set while `config` is locked.
    is_leaving: AtomicBool,
    /// What is written about it, and where, if it has a place.
    place: Mutex<Option<(TargetEntry, PathBuf)>>,
    interfaces: Addresses,
    /// As it was read last. What needs a restart stays what it was, so that each reload says so again.
    config: Mutex<ServeConfig>,
    file: Option<PathBuf>,
    /// It is a gateway of a group, which says what is exported.
    member: Option<Arc<Member>>,
    begun: Instant,
    /// Whether the file could be used when it was read last.
    reloaded: AtomicBool,
    /// What the command line says of RPC, which wins over the file.
    options: OnceLock<RpcServeArgs>,
    /// Who answers to RPC, as long as somebody does.
    manager: Mutex<Weak<Manager>>,
    /// What the local network is told, if it is.
    announcement: Mutex<Option<Announcement>>,
}

impl Served {
    pub(super) fn new(
        (server, engine_config): (Server, ServerConfig),
        place: Option<&TargetPlace>,
        (config, file, member): (ServeConfig, Option<&Path>, Option<Arc<Member>>),
    ) -> Served {
        server.on_failure(signals::stop_self);
        Served {
            server: Mutex::new(Arc::new(server)),
            engine_config: Mutex::new(engine_config),
            successor: Mutex::default(),
            upgrader: Mutex::default(),
            is_leaving: AtomicBool::new(false),
            place: Mutex::new(place.map(|place| (place.entry.clone(), place.folder.clone()))),
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

    /// What the command line says of RPC, which wins over the file whenever that is read.
    pub(super) fn manage_as(&self, options: &RpcServeArgs) {
        self.options.get_or_init(|| options.clone());
    }

    /// That one answers to RPC from now on.
    pub(super) fn managed_by(&self, manager: &Arc<Manager>) {
        *lock(&self.manager) = Arc::downgrade(manager);
    }

    /// Who answers to RPC.
    pub(super) fn manager(&self) -> Option<Arc<Manager>> {
        lock(&self.manager).upgrade()
    }

    /// Does all of what RPC has asked for, or nothing; hosts have `psks` then, if they are given.
    ///
    /// # Errors
    /// What cannot be; `None`: nothing may change now.
    pub(super) fn apply_all(
        &self,
        operations: &[Operation<Export>],
        psks: Option<Psks>,
    ) -> Result<(), Option<ConfigError>> {
        let _config = lock(&self.config);
        self.check_stays().map_err(|_| None)?;
        let server = self.server();
        let changes = server.apply(operations)?;
        if let Some(psks) = psks {
            if let Some(tls) = &mut lock(&self.engine_config).tls {
                tls.keys.at.clone_from(&psks);
            }
            server.set_tls_keys_at(psks);
        }
        info!(changes = changes.len(), "changed by RPC");
        self.write_listeners();
        Ok(())
    }

    /// Tells the local network from now on where discovery can be asked.
    ///
    /// # Errors
    /// There is no socket for it.
    pub(super) fn announce(&self) -> Outcome {
        let mut announcement = Announcement::new()?;
        announcement.show(&self.server().addresses());
        *lock(&self.announcement) = Some(announcement);
        Ok(())
    }

    /// Tells it that this is over; whether it was told before.
    pub(super) fn withdraw(&self) -> bool {
        let announcement = lock(&self.announcement).take();
        announcement.is_some()
    }

    /// Answers at `socket` from now on.
    ///
    /// # Errors
    /// The socket cannot be made.
    pub(super) fn answer_at(self: &Arc<Self>, socket: &Path) -> io::Result<()> {
        let served = self.clone();
        socket::serve(socket, move |call, asker: &UnixStream| match call {
            Call::TakeOver => served.take_over(asker).err().map(Err),
            Call::Upgrade => upgrade::begin(&served, asker).err().map(Err),
            call => Some(served.answer(call)),
        })
    }

    /// Its name, if it has one.
    pub(super) fn id(&self) -> Option<String> {
        lock(&self.place).as_ref().map(|(entry, _)| entry.id.clone())
    }

    /// The target that runs.
    pub(super) fn server(&self) -> Arc<Server> {
        lock(&self.server).clone()
    }

    /// Another one runs from now on, and everything may change again.
    pub(super) fn replace(&self, server: Server) {
        server.on_failure(signals::stop_self);
        *lock(&self.server) = Arc::new(server);
        self.write_listeners();
    }

    pub(super) fn engine_config(&self) -> ServerConfig {
        lock(&self.engine_config).clone()
    }

    pub(super) fn listens_on_ethernet(&self) -> bool {
        !self.interfaces.is_empty()
    }

    /// That one is to take over; `false`: another one does already.
    pub(super) fn set_successor(&self, successor: Successor) -> bool {
        let mut waiting = lock(&self.successor);
        let is_first = waiting.is_none() && !self.is_leaving.load(Ordering::Acquire);
        if is_first {
            *waiting = Some(successor);
        }
        is_first
    }

    /// The one that is to take over. Nothing may change until [`Served::stay`].
    pub(super) fn leave(&self) -> Option<Successor> {
        let _config = lock(&self.config);
        let successor = lock(&self.successor).take()?;
        self.is_leaving.store(true, Ordering::Release);
        Some(successor)
    }

    /// This process serves on.
    pub(super) fn stay(&self) {
        self.is_leaving.store(false, Ordering::Release);
    }

    /// Whether changes can be made; `config` is locked.
    fn check_stays(&self) -> Result<(), Refusal> {
        match self.is_leaving.load(Ordering::Acquire) {
            true => Err(Refusal::new(Why::Failed, "another process takes over")),
            false => Ok(()),
        }
    }

    /// Answers on stdin, which is a socket, and stops at its end: so the target does not outlive its parent.
    ///
    /// # Errors
    /// There is no thread for it.
    pub(super) fn answer_on_stdin(self: &Arc<Self>) -> io::Result<()> {
        let stream = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        let served = self.clone();
        let answer = move || {
            let ended =
                socket::serve_stream(&stream, |call, _: &UnixStream| Some(served.answer(call)));
            ended.unwrap_or_else(|error| warn!("stdin: {error}"));
            signals::stop_self();
        };
        thread::Builder::new().name("roadtrain-ask".into()).spawn(answer)?;
        Ok(())
    }

    fn answer(&self, call: Call) -> Reply {
        match call {
            Call::Status => Ok(json!(self.report())),
            Call::Counters => Ok(json!(self.server().stats())),
            Call::Snapshot => Ok(json!(self.snapshot())),
            Call::Recorded => Ok(json!(self.server().recorded())),
            Call::Reload => Ok(json!(self.reload()?)),
            Call::Apply { operations } => self.apply(operations),
            Call::Claim { nqn, nsid } => self.claim(nqn, nsid),
            Call::Snapshots(call) => {
                let server = self.server();
                let nqn = subsystem_of(&server.exports(), call.nqn)?;
                snapshots::answer(&server, (&nqn, call.nsid), &call.action)
            }
            Call::Stop => Err(Refusal::not_for("a target")),
            Call::Upgrade | Call::TakeOver | Call::Proceed | Call::Serving => {
                Err(Refusal::new(Why::Request, "nobody takes over here"))
            }
        }
    }

    /// Reads the configuration again: the file, or what the group has.
    ///
    /// # Errors
    /// The file cannot be; nothing has changed then.
    pub(super) fn reload(&self) -> Outcome<Done> {
        if let Some(member) = &self.member {
            member.retry();
            let hint = format!("{} is followed all the time", member.source());
            return Ok(Done { changes: Vec::new(), hint: Some(hint) });
        }
        let done = self.read_again();
        if self.file.is_some() {
            self.reloaded.store(done.is_ok(), Ordering::Relaxed);
        }
        done
    }

    /// Where HTTP is answered, if the file says so.
    pub(super) fn metrics_address(&self) -> Option<SocketAddr> {
        lock(&self.config).metrics
    }

    /// Where what RPC has made is kept.
    pub(super) fn state_file(&self) -> Option<PathBuf> {
        std::path::absolute(lock(&self.config).state.as_deref()?).ok()
    }

    fn read_again(&self) -> Outcome<Done> {
        let Some(file) = &self.file else {
            return Err(Failure::usage("there is no configuration file to read again"));
        };
        let mut config = lock(&self.config);
        self.check_stays()?;
        let new = ServeConfig::read_for(file, self.options.get_or_init(Default::default))?;
        let kept = config.needs_restart(&new);
        let hint = (!kept.is_empty()).then(|| {
            format!(
                "{}: only addresses, subsystems, authentication, TLS and keys are reloaded; the other changes need a \
                 restart or a takeover: {}",
                file.display(),
                kept.join(", ")
            )
        });
        hint.iter().for_each(|hint| warn!("{hint}"));
        let changes = self.adopt(&mut config, new, &file.display().to_string())?;
        Ok(Done { changes, hint })
    }

    /// Exports what `new` says from now on, or what it has exported, with the share that this gateway has by now.
    ///
    /// # Errors
    /// It cannot be; nothing has changed then.
    #[cfg(feature = "rbd")]
    pub(super) fn follow(&self, new: Option<ServeConfig>, from: &str) -> Outcome {
        let mut config = lock(&self.config);
        self.check_stays()?;
        let new = new.unwrap_or_else(|| config.clone());
        self.adopt(&mut config, new, from).map(drop)
    }

    /// Where it listens, and the namespaces that hosts reach here, by subsystem.
    #[cfg(feature = "rbd")]
    pub(super) fn served(&self) -> (Vec<String>, super::group::Serves) {
        let server = self.server();
        let (config, _) = server.view();
        let of = |subsystem: SubsystemConfig| {
            let here = subsystem.namespaces.iter().filter(|namespace| namespace.ana.is_usable());
            (subsystem.nqn, here.map(|namespace| namespace.nsid).collect())
        };
        (listeners(&server, &self.interfaces), config.subsystems.into_iter().map(of).collect())
    }

    /// Exports what `new` says from now on, which is `from` there. What has changed for hosts.
    fn adopt(
        &self,
        config: &mut ServeConfig,
        new: ServeConfig,
        from: &str,
    ) -> Outcome<Vec<Changed>> {
        let (listen, mut exports) = (new.addresses()?, new.exports().map_err(Failure::usage)?);
        let authentication = new.authentication()?;
        let tls_at = new.tls_at()?;
        let read = |tls: &TlsSpec| tls.config(tls_at.clone());
        let keys = new.tls.as_ref().map(read).transpose()?.map(|tls| tls.keys);
        let keys = keys.unwrap_or_default();
        new.check_keys(&keys).map_err(Failure::usage)?;
        let (server, tls, ana) =
            (self.server(), (new.tls_mode().into(), &tls_at), new.ana_states()?);
        let tls_of = |at: &SocketAddr| tls_at.get(at).copied().unwrap_or(tls.0);
        let managed = self.manager().map(|manager| manager.model());
        managed
            .map_or(Ok(()), |model| model.check_listeners(&listen, tls_of))
            .map_err(Failure::usage)?;
        let changes = match &self.member {
            None => server.reconfigure(&listen, &exports, &authentication, tls, &ana),
            Some(member) => {
                member.share(&mut exports);
                server.follow(&exports, &authentication)
            }
        };
        let changes = changes.map_err(ServerError::from)?;
        if let Some(tls) = &mut lock(&self.engine_config).tls {
            let at = std::mem::take(&mut tls.keys.at);
            tls.keys = TlsKeys { at, ..keys.clone() };
        }
        server.set_tls_keys(keys);
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
        Ok(changes.iter().map(Changed::from).collect())
    }

    fn apply(&self, changes: Vec<Change>) -> Reply {
        let _config = lock(&self.config);
        self.check_stays()?;
        let server = self.server();
        let (mut exports, (seen, _)) = (server.exports(), server.view());
        let mut operations = Vec::new();
        for change in changes {
            if let Change::SetAna { listener: AnaPort::Ether, .. } = change
                && self.interfaces.is_empty()
            {
                Err(ConfigError::Unknown(Place::Ana(AnaListener::Ether)))?;
            }
            // Each is meant as the ones before it leave things.
            let operation = operation(&exports, &seen, change)?;
            check_owner(&exports, &operation)?;
            exports = exports.with(std::slice::from_ref(&operation))?;
            operations.push(operation);
        }
        let changes = server.apply(&operations)?;
        info!(changes = changes.len(), "changed at the control socket");
        self.write_listeners();
        let lasts = || {
            match &self.file {
            _ if self.member.is_some() => {
                "it lasts until its gateway group changes: `roadtrain gateway` makes changes that last".to_owned()
            }
            Some(file) => format!(
                "not written to {}: a reload or a restart goes back to what that says",
                file.display()
            ),
            None => "it lasts until the target ends: there is no configuration file".to_owned(),
        }
        };
        let hint = (!changes.is_empty()).then(lasts);
        Ok(json!(Done { changes: changes.iter().map(Changed::from).collect(), hint }))
    }

    /// Serves a namespace that stands by.
    fn claim(&self, nqn: Option<String>, nsid: u32) -> Reply {
        let server = self.server();
        let nqn = subsystem_of(&server.exports(), nqn)?;
        let mut changes = Vec::new();
        if server.claim(&nqn, nsid, CLAIM)? {
            let what = format!("namespace {nsid} of {nqn} is served here");
            changes.push(Changed { what, nqn: Some(nqn), nsid: Some(nsid), address: None });
        }
        Ok(json!(Done { changes, hint: None }))
    }

    /// The listeners may have changed: for the local network, and for those who look while this process does not answer.
    fn write_listeners(&self) {
        if let Some(announcement) = lock(&self.announcement).as_mut() {
            announcement.show(&self.server().addresses());
        }
        let mut place = lock(&self.place);
        let Some((entry, folder)) = place.as_mut() else { return };
        let listeners = listeners(&self.server(), &self.interfaces);
        if listeners != entry.listeners {
            entry.listeners = listeners;
            let written = write_entry(folder, entry);
            written.unwrap_or_else(|error| warn!("{}: {error}", folder.display()));
        }
    }

    /// All counters.
    pub(super) fn snapshot(&self) -> Snapshot {
        let mut seen = self.server().snapshot();
        seen.gateway = self.member.as_ref().map(|member| member.sample());
        let is_gateway = seen.gateway.is_some();
        seen.subsystems.iter_mut().for_each(|subsystem| subsystem.shared = is_gateway);
        if let Some(manager) = self.manager() {
            manager.describe(&mut seen);
        }
        Snapshot {
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

    fn report(&self) -> TargetReport {
        let server = self.server();
        let (stats, usage) = (server.stats(), server.usage());
        let traffic = Traffic {
            uptime_seconds: self.begun.elapsed().as_secs_f64(),
            connections: usage.connections,
            in_stores: usage.store_commands,
            buffer_bytes: usage.buffer_bytes,
            requests: stats.requests,
            data_bytes: stats.data_bytes,
            waiting: server.waiting().into_iter().map(WaitReport::from).collect(),
        };
        let (config, controllers) = server.view();
        let exports = server.exports();
        let place = lock(&self.place);
        let id = place.as_ref().map_or_else(String::new, |(entry, _)| entry.id.clone());
        let facts = (id, listeners(&server, &self.interfaces), self.file.clone());
        let lanes = server.lanes();
        TargetReport::serving(facts, (traffic, &lanes), &exports, (&config, &controllers))
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What RPC has made only RPC changes: it would not know.
fn check_owner(
    exports: &TargetConfig<Export>,
    operation: &Operation<Export>,
) -> Result<(), Refusal> {
    let refuse = |what: &str| {
        let message = format!("{what} was made by RPC: use `roadtrain ctl` or `roadtrain rpc`");
        Err(Refusal::new(Why::Invalid, message))
    };
    match operation.place() {
        Place::Subsystem(nqn) | Place::Namespace(nqn, _) | Place::Host(nqn, _) => {
            let mut all = exports.subsystems.iter();
            match all.any(|one| one.nqn == nqn && one.listeners.is_some()) {
                true => refuse(&nqn),
                false => Ok(()),
            }
        }
        Place::Listener(address) => {
            let mut all = exports.listeners.iter();
            match all.any(|one| one.address == address && one.named_only) {
                true => refuse(&address.to_string()),
                false => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

/// The subsystem that is named, or the only one.
fn subsystem_of(exports: &TargetConfig<Export>, nqn: Option<String>) -> Result<String, Refusal> {
    match (nqn, &exports.subsystems[..]) {
        (Some(nqn), _) => Ok(nqn),
        (None, [only]) => Ok(only.nqn.clone()),
        (None, all) => {
            let nqns: Vec<&str> = all.iter().map(|subsystem| subsystem.nqn.as_str()).collect();
            let message = format!("which subsystem? There are {}", nqns.join(", "));
            Err(Refusal { field: Some("nqn".into()), ..Refusal::new(Why::Invalid, message) })
        }
    }
}

/// What a change means for what is exported.
fn operation(
    exports: &TargetConfig<Export>,
    seen: &TargetConfig,
    change: Change,
) -> Result<Operation<Export>, Refusal> {
    let only = |nqn| subsystem_of(exports, nqn);
    let subsystem = |nqn: &str| exports.subsystems.iter().find(|subsystem| subsystem.nqn == nqn);
    let namespaces = |nqn: &str| subsystem(nqn).map_or(&[][..], |found| &found.namespaces);
    Ok(match change {
        Change::AddSubsystem { subsystem } => Operation::AddSubsystem(new_subsystem(&subsystem)?),
        Change::RemoveSubsystem { nqn } => Operation::RemoveSubsystem { nqn },
        Change::SetSubsystem { nqn, serial, model } => {
            let nqn = only(nqn)?;
            let unknown = || ConfigError::Unknown(Place::Subsystem(nqn.clone()));
            let old = subsystem(&nqn).ok_or_else(unknown)?;
            let serial = serial.or_else(|| old.serial.clone());
            let model = model.unwrap_or_else(|| old.model.clone());
            Operation::SetSubsystem { nqn, serial, model }
        }
        Change::AddNamespace { nqn, mut namespace } => {
            let nqn = only(nqn)?;
            let is_free = |nsid: &u32| namespaces(&nqn).iter().all(|other| other.nsid != *nsid);
            namespace.nsid = namespace.nsid.or_else(|| (1..).find(is_free));
            Operation::AddNamespace { nqn, namespace: checked(&namespace)? }
        }
        Change::ReplaceNamespace { nqn, namespace } => {
            if namespace.nsid.is_none() {
                let refusal = Refusal::new(Why::Invalid, "which namespace? Say its nsid");
                return Err(Refusal { field: Some("nsid".into()), ..refusal });
            }
            Operation::ReplaceNamespace { nqn: only(nqn)?, namespace: checked(&namespace)? }
        }
        Change::RemoveNamespace { nqn, nsid } => {
            Operation::RemoveNamespace { nqn: only(nqn)?, nsid }
        }
        Change::ResizeNamespace { nqn, nsid, size: Some(bytes) } => {
            Operation::ResizeNamespace { nqn: only(nqn)?, nsid, bytes }
        }
        Change::ResizeNamespace { nqn, nsid, size: None } => {
            let nqn = only(nqn)?;
            let there = namespaces(&nqn).iter().find(|namespace| namespace.nsid == nsid).cloned();
            let unknown = || ConfigError::Unknown(Place::Namespace(nqn.clone(), nsid));
            let namespace = there.ok_or_else(unknown)?;
            Operation::ReplaceNamespace { nqn, namespace: as_large_as_it_is(namespace) }
        }
        Change::AllowHost { nqn, host } => Operation::AllowHost { nqn: only(nqn)?, host },
        Change::DisallowHost { nqn, host } => Operation::DisallowHost { nqn: only(nqn)?, host },
        Change::AllowAnyHost { nqn, allow } => Operation::AllowAnyHost { nqn: only(nqn)?, allow },
        Change::LimitNamespace { nqn, nsid, rates } => {
            let rates = checked_rates(&rates)?;
            Operation::LimitNamespace { nqn: only(nqn)?, nsid, rates }
        }
        Change::LimitHost { nqn, host, rates } => {
            let rates = checked_rates(&rates)?;
            Operation::LimitHost { nqn: only(nqn)?, host, rates }
        }
        Change::Listen { address, port } => {
            Operation::Listen(listener_to_come(exports, tcp_address(&address, port)?)?)
        }
        Change::Unlisten { address, port } => {
            Operation::Unlisten(listener_at(exports, seen, tcp_address(&address, port)?)?)
        }
        Change::SetAna { listener, state } => {
            let listener = listener_of(&listener, default_port())?;
            Operation::SetAna { listener, state: Some(state.into()) }
        }
    })
}

fn new_subsystem(new: &SubsystemSpec) -> Result<Subsystem, Refusal> {
    let unfit = |e| Refusal::new(Why::Invalid, format!("subsystem {}: {e}", new.nqn));
    if new.require_auth || new.require_tls {
        return Err(unfit("what it requires is said in the configuration file".to_owned()));
    }
    new.subsystem().map_err(unfit)
}

fn listener_to_come(
    exports: &TargetConfig<Export>,
    address: SocketAddr,
) -> Result<Listener, Refusal> {
    let addresses = exports.listeners.iter().map(|listener| listener.address).chain([address]);
    let listeners = exports.listeners_at(&addresses.collect::<Vec<_>>());
    listeners.last().copied().ok_or_else(|| Refusal::new(Why::Failed, "too many listeners"))
}

/// The listener at that address, as it was asked for, which may be with port 0.
fn listener_at(
    exports: &TargetConfig<Export>,
    seen: &TargetConfig,
    address: SocketAddr,
) -> Result<Listener, ConfigError> {
    let mut known = exports.listeners.iter().chain(&seen.listeners);
    let known = known.find(|listener| listener.address == address);
    let asked = |known: &Listener| exports.listeners.iter().find(|one| one.portid == known.portid);
    known.and_then(asked).copied().ok_or(ConfigError::Unknown(Place::Listener(address)))
}

fn checked(namespace: &NamespaceSpec) -> Result<Export, Refusal> {
    namespace.export().map_err(|e| Refusal::new(Why::Invalid, e))
}

fn checked_rates(rates: &RateArgs) -> Result<Rates, Refusal> {
    rates.rates().map_err(|e| Refusal::new(Why::Invalid, e))
}

fn tcp_address(address: &str, port: u16) -> Outcome<SocketAddr> {
    if address.starts_with("ether:") {
        return Err(Failure::usage("interfaces need a restart: give an address or a name"));
    }
    resolve(address, port)
}

/// The same, with the size that its file or device has.
fn as_large_as_it_is(mut export: Export) -> Export {
    if let Blocks::Spec(spec) = &mut export.blocks
        && let StoreKind::File { size, create, .. } = &mut spec.kind
    {
        (*size, *create) = (None, false);
    }
    export
}

/// Where it listens.
pub(super) fn listeners(server: &Server, interfaces: &Addresses) -> Vec<String> {
    let interfaces = interfaces.0.iter().map(|name| format!("ether:{name}"));
    let addresses = server.addresses().into_iter().map(|address| address.to_string());
    addresses.chain(interfaces).collect()
}

pub(super) fn interfaces(config: &ServeConfig) -> Addresses {
    config.ether.as_ref().map(|ether| ether.interfaces.clone()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::CommandFactory;
    use roadtrain_target_proto::TlsUse;
    use serde_json::Value;
    use std::collections::BTreeSet;

    const PAGE: &str = include_str!("../../../../docs/reference/control-socket.md");

    fn word(operation: &Operation<Export>) -> &'static str {
        match operation {
            Operation::AddSubsystem(_) => "add_subsystem",
            Operation::RemoveSubsystem { .. } => "remove_subsystem",
            Operation::SetSubsystem { .. } => "set_subsystem",
            // RPC only.
            Operation::SetListeners { .. } => "set_listeners",
            Operation::SetKeys { .. } => "set_keys",
            Operation::AddReferral(_) => "add_referral",
            Operation::RemoveReferral(_) => "remove_referral",
            Operation::AddNamespace { .. } => "add_namespace",
            Operation::RemoveNamespace { .. } => "remove_namespace",
            Operation::ReplaceNamespace { .. } => "replace_namespace",
            Operation::ResizeNamespace { .. } => "resize_namespace",
            Operation::AllowAnyHost { .. } => "allow_any_host",
            Operation::LimitNamespace { .. } => "limit_namespace",
            Operation::LimitHost { .. } => "limit_host",
            Operation::AllowHost { .. } => "allow_host",
            Operation::DisallowHost { .. } => "disallow_host",
            Operation::Listen(_) => "listen",
            Operation::Unlisten(_) => "unlisten",
            Operation::SetTls(_) => "set-tls",
            Operation::SetAna { .. } => "set_ana",
            // Keys come from files only: see the configuration.
            Operation::SetAuthentication(_) => "set_authentication",
        }
    }

    /// Each is itself at the socket, a command of the command line, and on the page.
    #[test]
    fn every_operation_has_one_word_everywhere() {
        let listener = Listener {
            portid: 1,
            address: ([127, 0, 0, 1], 4420).into(),
            tls: TlsUse::Off,
            named_only: false,
        };
        let exports = TargetConfig {
            subsystems: vec![Subsystem::new("nqn.x:y")],
            listeners: vec![listener],
            ..TargetConfig::default()
        };
        let namespace = json!({"kind": "mem", "size": 4096, "nsid": 1});
        let operation = |params: Value| {
            let change: Change = serde_json::from_value(params).unwrap();
            operation(&exports, &TargetConfig::default(), change).unwrap()
        };
        let mut words = BTreeSet::new();
        for (name, more) in [
            ("add_subsystem", json!({"subsystem": {"nqn": "nqn.x:z"}})),
            ("remove_subsystem", json!({"nqn": "nqn.x:y"})),
            ("set_subsystem", json!({"serial": "S"})),
            ("add_namespace", json!({"namespace": namespace})),
            ("remove_namespace", json!({"nsid": 1})),
            ("replace_namespace", json!({"namespace": namespace})),
            ("resize_namespace", json!({"nsid": 1, "size": 8192})),
            ("allow_any_host", json!({"allow": true})),
            ("allow_host", json!({"host": "nqn.x:h"})),
            ("disallow_host", json!({"host": "nqn.x:h"})),
            ("limit_namespace", json!({"nsid": 1, "rates": {"iops": 1000}})),
            ("limit_host", json!({"host": "nqn.x:h", "rates": {"bandwidth": "100MiB"}})),
            ("listen", json!({"address": "::1"})),
            ("unlisten", json!({"address": "127.0.0.1"})),
            ("set_ana", json!({"listener": "127.0.0.1:4420", "state": "change"})),
        ] {
            let mut params = more;
            params["operation"] = name.into();
            assert_eq!(word(&operation(params)), name);
            words.insert(name.to_owned());
        }
        let (_, table) = PAGE.split_once("| `operation` | members |").unwrap();
        let rows = table.lines().skip(1).take_while(|line| line.starts_with('|'));
        let names = rows.flat_map(|row| row.split('|').nth(1).unwrap_or_default().split('`'));
        let named: BTreeSet<String> =
            names.filter(|name| name.starts_with(char::is_alphabetic)).map(str::to_owned).collect();
        assert_eq!(named, words, "docs/reference/control-socket.md");
        let cli = Cli::command();
        let commands = cli.find_subcommand("target").unwrap().get_subcommands();
        let commands = commands.map(|command| command.get_name().replace('-', "_"));
        let others = ["reload", "upgrade", "claim_namespace", "disallow_any_host"]; // which is allow_any_host with false
        let told = cli.find_subcommand("ctl").unwrap().get_subcommands();
        // The others are methods of JSON-RPC.
        let told = told.filter(|command| command.get_name() == "ana");
        let told = told.map(|command| format!("set_{}", command.get_name()));
        let commands: BTreeSet<String> =
            commands.chain(told).filter(|name| !others.contains(&name.as_str())).collect();
        assert_eq!(commands, words, "roadtrain target");
    }
}
