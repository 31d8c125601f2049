//! A running target: its listeners and reactors.

mod config;

pub use config::{ServerConfig, TlsConfig};

use super::control::TargetControlPlane;
use super::error::ServerError;
use super::ether::{Drops, EtherPorts};
use super::export::{Export, Subsystem};
use super::guest_threads::GuestThreads;
use super::handshakes::{Secure, TlsHandshakes};
use super::health::{ReactorExitReporter, ReactorHealth};
use super::inherited::Inherited;
use super::listeners::{self, OpenedListeners};
use super::meters::{LaneCells, Meters};
use super::order::{LanePlace, TargetReactorMessage, TargetUsage};
use super::reactor::{Balance, TargetReactor, TargetReactorParts};
use super::stores::OpenNamespaces;
use super::tickets::Tickets;
use config::configured;
use roadtrain_proto::security::{TlsKey, TlsKeys};
use roadtrain_reactor::probes::ReactorProbes;
use roadtrain_reactor::recorded::RecordedRequests;
use roadtrain_reactor::tuning;
use roadtrain_reactor::waits::{WaitMeter, WaitPolicy, WaitState};
use roadtrain_store::Store;
use roadtrain_system::buffer::BufferPool;
use roadtrain_system::clock;
use roadtrain_system::mailbox::{MailboxSender, mailbox};
use roadtrain_system::platform::{
    Affinity, PlacedThreads, files, memory_nodes, numa, target_affinities,
};
use roadtrain_target_proto::qpair::TargetQpairConfig as QpairConfig;
use roadtrain_target_proto::{
    AnaStates, ConfigError, ConfigObject, ConfigOperation, ConnectionLimits, ControllerSummary,
    HostAuthentication, NamespaceRequest, TargetConfig, TargetControl, TargetLimits, TlsUse,
    changed_namespaces,
};
use roadtrain_wire::status::Status;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tracing::{error, info};

// A command that needs more than the largest buffer would wait forever.
const _: () = assert!(4096 << TargetLimits::MDTS_MAX <= BufferPool::LEN_MAX);

/// Longest wait for the reply of a reactor.
const STATS_WAIT: Duration = Duration::from_secs(1);

/// Longest wait for reactors to end: longer than they wait for their stores.
const REACTORS_WAIT: Duration = Duration::from_secs(15);
const SHUT_DOWN_PAUSE: Duration = Duration::from_millis(2);
/// Longest wait for the last flush when a target ends.
const LAST_FLUSH_WAIT: Duration = Duration::from_secs(60);

/// Mailbox and thread of a reactor.
type ReactorThread = (MailboxSender<TargetReactorMessage>, JoinHandle<()>);

/// All started reactors. Dropping them ends them.
#[derive(Default)]
struct ReactorThreads(Vec<ReactorThread>, Vec<Arc<WaitMeter>>);

impl Drop for ReactorThreads {
    fn drop(&mut self) {
        for (orders, _) in &self.0 {
            orders.send(TargetReactorMessage::Stop);
        }
        for (_, thread) in self.0.drain(..) {
            let _ = thread.join(); // its `ReactorExitReporter` has reported a panic
        }
    }
}

/// A running target. Dropping it stops it.
pub struct Server {
    pub(super) control: Arc<TargetControlPlane>,
    /// NUMA nodes of memory namespaces.
    memory: BTreeSet<u32>,
    health: Arc<ReactorHealth>,
    /// Handshake thread. It ends before the reactors that get its connections.
    handshakes: Option<TlsHandshakes>,
    reactors: ReactorThreads,
    pub(super) drain_timeout: Duration,
    /// Placement of the reactors.
    pub(super) affinities: Vec<Affinity>,
    /// True if the target listens for frames.
    pub(super) has_interfaces: bool,
}

impl Server {
    /// Returns the frames that all reactors have dropped since the start.
    #[must_use]
    pub fn drops(&self) -> Drops {
        self.query_reactors(TargetReactorMessage::Frames)
            .fold(Drops::default(), |sum, (drops, _)| sum + drops)
    }

    /// Opens the stores, listens, and starts the reactors.
    ///
    /// # Errors
    ///
    /// The first resource that is not available; nothing keeps running then.
    pub fn start(config: ServerConfig) -> Result<Self, ServerError> {
        Server::succeed(config, &Inherited::default())
    }

    /// Starts a target with the state of one that ends for it; see [`Server::hand_over`].
    ///
    /// # Errors
    ///
    /// The first resource that is not available. Nothing keeps running then, and the sockets stay open.
    pub fn succeed(config: ServerConfig, inherited: &Inherited) -> Result<Self, ServerError> {
        let exports = config.exports();
        exports.check()?;
        let OpenedListeners { listeners, sockets } =
            listeners::open(&exports.listeners, (&[], &[]), (&inherited.sockets, config.mptcp))?;
        let addresses: Vec<SocketAddr> = listeners.iter().map(|one| one.address).collect();
        let affinities = affinities(&config, &addresses);
        let ports = EtherPorts::open(config.ether.as_ref(), affinities.len())?;
        let memory = memory_nodes(&affinities);
        let numa_guard = numa::scoped_memory_nodes(memory.clone());
        let guests = config.guest_threads.clone();
        let guests = guests.unwrap_or_else(|| Arc::new(GuestThreads::new(affinities.len())));
        let remote = ServerConfig::remote_at(&addresses, &guests);
        let mut prepared = OpenNamespaces::new(remote).prepare(&config.subsystems, |_, _| true)?;
        prepared.stage()?;
        drop(numa_guard);
        let mut target = TargetControl::new(clock::now(), &prepared.config(&exports, listeners))?;
        target.set_frame_listeners(ports.frame_listeners());
        inherited.adopt_reservations(&mut target)?;
        inherited.keep_reservations(&target, &prepared.stores())?;
        let system = |source| ServerError::System { what: "thread", source };
        let control = TargetControlPlane::new(
            target,
            prepared.stores(),
            (exports, config.mptcp),
            config.connect_timeout,
            Arc::new(Meters::new(affinities.len())),
        );
        let control = control.map_err(system)?;
        let hosts = config.tls.as_ref().map(|tls| tls.keys.hosts());
        control.set_tls_hosts(hosts.unwrap_or_default());
        let health = Arc::<ReactorHealth>::default();
        let (psks, time) = (control.psks(), config.connect_timeout);
        let secure = |TlsConfig { keys, .. }| TlsHandshakes::start(keys, psks, time);
        let handshakes = config.tls.clone().map(secure).transpose().map_err(system)?;
        let secure = handshakes.as_ref().map(TlsHandshakes::secure);
        let reactors = spawn(&config, ports, affinities.clone(), (&control, secure), &health)?;
        guests.begin(reactors.0.iter().map(|(orders, _)| orders.clone()).collect());
        control.listen(sockets);
        drop(prepared.switch(&mut OpenNamespaces::default())); // a start that fails leaves no new files
        Ok(Server {
            control,
            memory,
            health,
            handshakes,
            reactors,
            drain_timeout: config.drain_timeout,
            affinities,
            has_interfaces: config.ether.is_some(),
        })
    }

    /// Returns the addresses that the target listens on.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.control.addresses()
    }

    /// Replaces the exports by `subsystems`: connected hosts see namespaces appear, disappear and change their size.
    /// Checks files and devices again. Returns the operations.
    ///
    /// # Errors
    ///
    /// The first problem; nothing has changed then.
    pub fn reload(&self, subsystems: &[Subsystem]) -> Result<Vec<ConfigOperation>, ConfigError> {
        self.change(
            |_, _| true,
            |old| Ok(TargetConfig { subsystems: subsystems.into(), ..old.clone() }),
        )
    }

    /// Replaces the exports, the listeners and the authentication. Connections to other addresses and connected hosts
    /// stay. `tls` is the use of TLS for new connections, `tls_at` its exceptions by address; `ana` are the states of
    /// the paths. Subsystems that name their listeners keep them, with these settings.
    ///
    /// # Errors
    ///
    /// The first problem; nothing has changed then.
    pub fn reconfigure(
        &self,
        listen: &[SocketAddr],
        subsystems: &[Subsystem],
        authentication: &HostAuthentication,
        (tls, tls_at): (TlsUse, &BTreeMap<SocketAddr, TlsUse>),
        ana: &AnaStates,
    ) -> Result<Vec<ConfigOperation>, ConfigError> {
        let tls_of = |address: &SocketAddr| tls_at.get(address).copied().unwrap_or(tls);
        let secured = || listen.iter().find(|address| tls_of(address) != TlsUse::Off);
        if self.handshakes.is_none()
            && let Some(address) = secured()
        {
            let (place, tls) = (ConfigObject::Listener(*address), tls_of(address));
            let hint = "restart the target: it was started without TLS";
            return Err(ConfigError::invalid(place, "tls", format!("{tls:?}"), hint));
        }
        let (own, tls) = (self.shared_addresses(), (tls, tls_at));
        let next = |old: &TargetConfig<Export>| {
            configured(old, (listen, &own, subsystems), authentication, tls, ana)
        };
        self.change(|_, _| true, |old| Ok(next(old)))
    }

    /// Returns the operations of [`Server::reconfigure`], as far as they are known without opening anything.
    ///
    /// # Errors
    ///
    /// The first problem.
    pub fn preview(
        &self,
        listen: &[SocketAddr],
        subsystems: &[Subsystem],
        authentication: &HostAuthentication,
        tls: (TlsUse, &BTreeMap<SocketAddr, TlsUse>),
        ana: &AnaStates,
    ) -> Result<Vec<ConfigOperation<Export>>, ConfigError> {
        let (now, own) = (self.exports(), self.shared_addresses());
        let next = configured(&now, (listen, &own, subsystems), authentication, tls, ana);
        next.check()?;
        Ok(now.operations_to(&next))
    }

    /// Returns the addresses that all subsystems share, with the ports that the system has chosen.
    fn shared_addresses(&self) -> Vec<SocketAddr> {
        let (seen, _) = self.view();
        let own = seen.listeners.iter().filter(|listener| !listener.named_only);
        own.map(|listener| listener.address).collect()
    }

    /// Replaces the exports by `subsystems`, and sets `authentication`. Does not check files, devices and images of
    /// unchanged exports again.
    ///
    /// # Errors
    ///
    /// The first problem; nothing has changed then.
    pub fn follow(
        &self,
        subsystems: &[Subsystem],
        authentication: &HostAuthentication,
    ) -> Result<Vec<ConfigOperation>, ConfigError> {
        let subsystems = subsystems.to_vec();
        self.change(
            |_, _| false,
            |old| {
                let authentication = authentication.clone();
                Ok(TargetConfig { subsystems, authentication, ..old.clone() })
            },
        )
    }

    /// Permits the hosts with `keys`, and no others, from now on. Connections of hosts without a key end; others stay.
    /// Keys for one subsystem stay. No effect at a target that was started without TLS.
    pub fn set_tls_keys(&self, keys: TlsKeys) {
        self.change_tls_keys(|old| {
            let at = std::mem::take(&mut old.at);
            *old = TlsKeys { at, ..keys };
        });
    }

    /// Replaces the keys for one subsystem, by NQN of host and subsystem. Keys for all subsystems stay.
    pub fn set_tls_keys_at(&self, at: BTreeMap<(String, String), TlsKey>) {
        self.change_tls_keys(|old| old.at = at);
    }

    fn change_tls_keys(&self, change: impl FnOnce(&mut TlsKeys)) {
        if let Some(handshakes) = &self.handshakes {
            let hosts = handshakes.change_keys(change);
            // A host that was accepted meanwhile with a removed key is refused at Connect.
            self.control.set_tls_hosts(hosts);
        }
    }

    /// Applies all of `operations`, or none. Does not check files and devices that they do not name. Returns the
    /// operations that hosts notice.
    ///
    /// # Errors
    ///
    /// The first problem; nothing has changed then.
    pub fn apply(
        &self,
        operations: &[ConfigOperation<Export>],
    ) -> Result<Vec<ConfigOperation>, ConfigError> {
        if let Some(keys) = changed_namespaces(operations) {
            return self.settled(|control| control.change_namespaces(operations, &keys));
        }
        let named: Vec<ConfigObject> = operations.iter().map(ConfigOperation::place).collect();
        let is_named =
            |nqn: &str, nsid| named.contains(&ConfigObject::Namespace(nqn.to_owned(), nsid));
        self.change(is_named, |old| old.with(operations))
    }

    /// Seizes the blocks of a namespace that stands by from the target that owns them, and serves it. The other target
    /// cannot write them any more. Waits at most `timeout`. Returns true if this target did not serve the namespace
    /// before.
    ///
    /// # Errors
    ///
    /// The namespace does not exist, the owner of its blocks cannot be fenced, or it took too long.
    pub fn claim(&self, nqn: &str, nsid: u32, timeout: Duration) -> Result<bool, ConfigError> {
        self.control.claim(nqn, nsid, timeout)
    }

    /// Executes requests of hosts for changes of namespaces by `execute`, on a thread of its own, one after the other. It
    /// returns DW0 of the completion (the NSID of a new namespace, else 0), or the status of a failure. Without this call,
    /// requests fail.
    ///
    /// # Errors
    ///
    /// The thread cannot be started.
    pub fn manage_namespaces(
        &self,
        execute: impl Fn(&str, &NamespaceRequest) -> Result<u32, Status> + Send + 'static,
    ) -> io::Result<()> {
        self.control.manage_namespaces(execute)
    }

    /// Returns the store of a namespace; `None` if the namespace does not exist or is not accessible.
    #[must_use]
    pub fn store(&self, nqn: &str, nsid: u32) -> Option<Arc<dyn Store>> {
        self.control.store(nqn, nsid)
    }

    /// Returns the exports as the configuration requests them.
    #[must_use]
    pub fn exports(&self) -> Arc<TargetConfig<Export>> {
        self.control.exports()
    }

    /// Returns the configuration that hosts see, and the controllers.
    #[must_use]
    pub fn view(&self) -> (Arc<TargetConfig>, Vec<ControllerSummary>) {
        self.control.view()
    }

    fn change(
        &self,
        is_rechecked: impl Fn(&str, u32) -> bool,
        next: impl FnOnce(&TargetConfig<Export>) -> Result<TargetConfig<Export>, ConfigError>,
    ) -> Result<Vec<ConfigOperation>, ConfigError> {
        self.settled(|control| control.change(is_rechecked, next))
    }

    /// Makes a change, with new memory on the right nodes, and waits until all lanes have noticed it.
    fn settled(
        &self,
        change: impl FnOnce(&TargetControlPlane) -> Result<Vec<ConfigOperation>, ConfigError>,
    ) -> Result<Vec<ConfigOperation>, ConfigError> {
        let numa_guard = numa::scoped_memory_nodes(self.memory.clone());
        let changed = change(&self.control);
        drop(numa_guard);
        // Replies come after the change: then no lane uses a removed namespace for new commands.
        let _ = self.usage();
        changed
    }

    /// Sends an order to each reactor, and returns the replies that arrive in time.
    pub(super) fn query_reactors<T: Default>(
        &self,
        order: impl Fn(SyncSender<T>) -> TargetReactorMessage,
    ) -> impl Iterator<Item = T> {
        self.reactors.0.iter().map(move |(orders, _)| {
            let (reply, answer) = sync_channel(1);
            orders.send(order(reply));
            answer.recv_timeout(STATS_WAIT).unwrap_or_default()
        })
    }

    /// Returns the wait state of each reactor.
    #[must_use]
    pub fn waiting(&self) -> Vec<WaitState> {
        self.reactors.1.iter().map(|meter| meter.read()).collect()
    }

    /// Returns the recent records of the reactors: slow commands, and samples of others.
    #[must_use]
    pub fn recorded(&self) -> RecordedRequests {
        RecordedRequests::new(
            self.query_reactors(TargetReactorMessage::Recorded),
            LaneCells::connection_info,
        )
    }

    /// Returns the resources that all reactors use.
    #[must_use]
    pub fn usage(&self) -> TargetUsage {
        self.query_reactors(TargetReactorMessage::Usage).fold(
            TargetUsage::default(),
            |sum, usage| TargetUsage {
                connections: sum.connections + usage.connections,
                store_commands: sum.store_commands + usage.store_commands,
                io_commands: sum.io_commands + usage.io_commands,
                buffer_bytes: sum.buffer_bytes + usage.buffer_bytes,
                kept_bytes: sum.kept_bytes + usage.kept_bytes,
                reserved_buffers: sum.reserved_buffers + usage.reserved_buffers,
            },
        )
    }

    /// Returns the places of the lanes, sorted by controller and queue.
    #[must_use]
    pub fn lanes(&self) -> Vec<LanePlace> {
        let mut lanes: Vec<_> =
            self.query_reactors(TargetReactorMessage::Lanes).flatten().collect();
        lanes.sort_by_key(|lane| (lane.cntlid, lane.qid));
        lanes
    }

    /// Returns the number of moves of lanes between reactors.
    #[must_use]
    pub fn moves(&self) -> u64 {
        self.query_reactors(TargetReactorMessage::Moves).sum()
    }

    /// Returns the reason why a reactor has ended unexpectedly, if one has. The target is unusable then.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.health.failure()
    }

    /// Calls `callback`, from any thread, when a reactor ends unexpectedly; see [`Server::failure`].
    pub fn on_failure(&self, callback: impl FnOnce() + Send + 'static) {
        self.health.on_failure(callback);
    }

    /// Returns a probe that checks whether all reactors make turns.
    #[must_use]
    pub fn pulse(&self) -> ReactorProbes {
        ReactorProbes::new(self.reactors.0.iter().map(|(orders, _)| {
            let orders = orders.clone();
            Box::new(move |reply| orders.send(TargetReactorMessage::Heartbeat(reply))) as Box<_>
        }))
    }

    /// Makes a reactor move its I/O lanes to another one.
    #[cfg(test)]
    pub(super) fn move_lanes(&self, from: usize, to: usize) {
        self.reactors.0[from].0.send(TargetReactorMessage::Move(to));
    }

    /// True if no authentication waits for the Diffie-Hellman worker.
    #[cfg(test)]
    pub(super) fn is_dh_idle(&self) -> bool {
        self.control.is_dh_idle()
    }

    /// Returns the number of Diffie-Hellman computations that have begun.
    #[cfg(test)]
    pub(super) fn dh_computations_begun(&self) -> u64 {
        self.control.dh_computations_begun()
    }

    /// Calls a function on the thread of a reactor.
    #[cfg(test)]
    pub(super) fn call(&self, reactor: usize, call: impl FnOnce() + Send + 'static) {
        self.reactors.0[reactor].0.send(TargetReactorMessage::Call(Box::new(call)));
    }

    /// Ends every connection, waits for the stores, ends the reactors, and flushes all writes.
    ///
    /// # Errors
    ///
    /// The first namespace with writes that may be lost without their hosts knowing. The others are logged.
    pub fn shut_down(&self) -> Result<(), ServerError> {
        self.stop_reactors();
        let until = Instant::now() + REACTORS_WAIT;
        while self.reactors.0.iter().any(|(_, thread)| !thread.is_finished())
            && Instant::now() < until
        {
            thread::sleep(SHUT_DOWN_PAUSE);
        }
        self.close()
    }

    /// True if all reactors have ended.
    pub(super) fn is_over(&self) -> bool {
        self.reactors.0.iter().all(|(_, thread)| thread.is_finished())
    }

    /// Flushes all stores after the last write.
    fn close(&self) -> Result<(), ServerError> {
        let (reply, answer) = sync_channel(1);
        let control = self.control.clone();
        let close = move || {
            let failures = control.close();
            drop(control); // with its locks: the caller may open the files again after the reply
            let _ = reply.send(failures);
        };
        let system = |what| move |source| ServerError::System { what, source };
        let name = thread::Builder::new().name("roadtrain-flush".into());
        name.spawn(close).map_err(system("the last flush"))?;
        let unanswered = |_| system("the last flush")(io::ErrorKind::TimedOut.into());
        let failures = answer.recv_timeout(LAST_FLUSH_WAIT).map_err(unanswered)?;
        let unsaved = |(nqn, nsid, source)| ServerError::Unsaved { nqn, nsid, source };
        let mut failures = failures.into_iter().map(unsaved);
        let first = failures.next();
        failures.for_each(|failure| error!("{failure}"));
        first.map_or(Ok(()), Err)
    }

    /// Drains ([`Server::drain`]) and shuts down. Only logs writes that may be lost. Dropping the server instead does
    /// not wait for hosts.
    pub fn stop(self) {
        self.drain(|pause| {
            thread::sleep(pause);
            true
        });
        drop(self);
    }

    /// Orders the reactors to end.
    pub(super) fn stop_reactors(&self) {
        for (orders, _) in &self.reactors.0 {
            orders.send(TargetReactorMessage::Stop);
        }
    }
}

/// Shuts down before the reactors' threads are joined.
impl std::ops::Drop for Server {
    fn drop(&mut self) {
        if let Err(failure) = self.shut_down() {
            error!("{failure}");
        }
    }
}

/// Returns the placement of the reactors, near the interfaces that they listen on.
fn affinities(config: &ServerConfig, addresses: &[SocketAddr]) -> Vec<Affinity> {
    let count = config.cores.len().max(1);
    let (placement, cores, allowed) = (config.placement, &config.cores[..], &numa::allowed());
    let names = config.ether.as_ref().map(|ether| ether.interfaces().to_vec()).unwrap_or_default();
    target_affinities(PlacedThreads { placement, count, cores, allowed }, addresses, names)
}

fn spawn(
    config: &ServerConfig,
    mut ports: EtherPorts,
    affinities: Vec<Affinity>,
    (control, handshakes): (&Arc<TargetControlPlane>, Option<Secure>),
    health: &Arc<ReactorHealth>,
) -> Result<ReactorThreads, ServerError> {
    let system = |what| move |source| ServerError::System { what, source };
    let count = affinities.len();
    let mailboxes = (0..count).map(|_| mailbox()).collect::<io::Result<Vec<_>>>();
    let (outboxes, inboxes): (Vec<_>, Vec<_>) =
        mailboxes.map_err(system("mailbox"))?.into_iter().unzip();
    control.set_reactors(outboxes.clone());
    let tickets = Arc::new(Tickets::new(connection_limits(config, count)));
    let cores = affinities.iter().map(|affinity| affinity.cpus.single()).collect();
    let balance = Balance::new(cores, config.waiting == WaitPolicy::BusyPoll);
    let mut reactors = ReactorThreads::default();
    let mut beginnings = Vec::new();
    let mailboxes = inboxes.into_iter().zip(outboxes.clone());
    for (number, (affinity, (inbox, orders))) in affinities.into_iter().zip(mailboxes).enumerate() {
        let meter = Arc::<WaitMeter>::default();
        let parts = TargetReactorParts {
            number,
            ether: ports.take(number),
            inbox,
            peers: outboxes.clone(),
            control: control.clone(),
            balance: balance.clone(),
            tickets: tickets.clone(),
            handshakes: handshakes.clone(),
            qpair: QpairConfig {
                digests: config.digests,
                maxh2cdata: config.maxh2cdata,
                in_capsule_bytes_max: config.limits.in_capsule_bytes_max,
                policy: config.policy,
            },
            pool_bytes: config.pool_bytes / count,
            waiting: config.waiting,
            slow_over: config.slow_over,
            meter: meter.clone(),
            connect_timeout: config.connect_timeout,
            transfer_timeout: config.transfer_timeout,
            buffer_idle: config.buffer_idle,
        };
        let core = affinity.cpus.single();
        let name = format!("roadtrain-{}", core.map_or("target".into(), |core| core.to_string()));
        let exit_reporter = ReactorExitReporter { health: health.clone(), number };
        let (begun, beginning) = sync_channel(1);
        let body = move || run(&affinity, parts, &begun, exit_reporter);
        let thread = thread::Builder::new().name(name).spawn(body).map_err(system("thread"))?;
        reactors.0.push((orders, thread));
        reactors.1.push(meter);
        beginnings.push(beginning);
    }
    for beginning in beginnings {
        // No reply: the thread has panicked, and has reported that.
        let begun = beginning.recv().unwrap_or_else(|_| Err(io::Error::other("it has panicked")));
        begun.map_err(system("reactor"))?;
    }
    Ok(reactors)
}

/// Returns the configured limits, reduced to the available descriptors.
fn connection_limits(config: &ServerConfig, reactors: usize) -> ConnectionLimits {
    let files = config.subsystems.iter().map(|subsystem| subsystem.namespaces.len()).sum();
    let most = files::connections_max(reactors, files);
    let limits = config.connections;
    if most < limits.all {
        info!("at most {most} connections instead of {}: RLIMIT_NOFILE is too low", limits.all);
    }
    ConnectionLimits { all: limits.all.min(most), ..limits }
}

fn run(
    affinity: &Affinity,
    parts: TargetReactorParts,
    begun: &SyncSender<io::Result<()>>,
    exit_reporter: ReactorExitReporter,
) {
    tuning::set_exact_timers();
    numa::bind_thread(affinity);
    let reactor = match affinity.cpus.single() {
        #[cfg(test)]
        Some(BROKEN_CORE) => Err(io::Error::other("a test wants it so")),
        _ => TargetReactor::new(parts),
    };
    match reactor {
        Ok(mut reactor) => {
            let _ = begun.send(Ok(()));
            exit_reporter.ended(reactor.run());
        }
        Err(error) => {
            let _ = begun.send(Err(error));
        }
    }
}

/// Core on which no reactor starts, for a test.
#[cfg(test)]
pub(super) const BROKEN_CORE: usize = 4322;
