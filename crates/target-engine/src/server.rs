//! A running target: its listeners and reactors.

use super::control::Control;
use super::error::ServerError;
use super::ether::Drops;
use super::ether::{EtherConfig, EtherPorts};
use super::export::{Export, Subsystem};
use super::handshakes::{Handshakes, Secure};
use super::health::{Health, Warden};
use super::inherited::Inherited;
use super::listeners::{self, Opened};
use super::meters::{LaneCells, Meters};
use super::order::{LanePlace, Order, Usage};
use super::reactor::{Balance, Parts, Reactor};
use super::stores::Stores;
use super::tickets::Tickets;
use roadtrain_proto::policy::PolicyConfig;
use roadtrain_proto::recorder::SlowOver;
use roadtrain_proto::security::{TlsKey, TlsKeys};
use roadtrain_reactor::pulse::Pulse;
use roadtrain_reactor::recorded::Recorded;
use roadtrain_reactor::tuning;
use roadtrain_reactor::waits::{Meter, WaitState, Waiting};
use roadtrain_store::Store;
use roadtrain_system::buffer::Pool;
use roadtrain_system::clock;
use roadtrain_system::machine;
use roadtrain_system::mailbox::{Outbox, mailbox};
use roadtrain_system::platform::{
    Affinity, Placement, Threads, files, memory_nodes, numa, target_affinities,
};
use roadtrain_target_proto::qpair::Config as QpairConfig;
use roadtrain_target_proto::{
    AnaStates, Authentication, ConfigError, ConnectionLimits, ControllerView, Limits, Listener,
    Operation, Place, Target, TargetConfig, TlsUse,
};
use roadtrain_wire::pdu::Digests;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tracing::{error, info};

// A command that needs a longer buffer than there can be would wait for ever.
const _: () = assert!(4096 << Limits::MDTS_MAX <= Pool::LEN_MAX);

/// Default of [`ServerConfig::drain_timeout`].
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Default of [`ServerConfig::connect_timeout`].
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Default of [`ServerConfig::connections`]: 128 hosts of 128 queues.
const CONNECTIONS: u32 = 16384;
/// Default of [`ServerConfig::transfer_timeout`]: a minute is more than networks are away for without hosts
/// giving up themselves, and 1 MiB within it takes no more than 140 kbit/s.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(60);
/// Default of [`ServerConfig::buffer_idle`]: touching the memory again costs about 0.1 ms for each 2 MiB, which
/// is nothing once in so long.
const BUFFER_IDLE: Duration = Duration::from_secs(10);
/// Longest wait for a reactor's counters.
const STATS_WAIT: Duration = Duration::from_secs(1);

/// Longest wait for reactors that end: longer than they wait for their stores.
const REACTORS_WAIT: Duration = Duration::from_secs(15);
const SHUT_DOWN_PAUSE: Duration = Duration::from_millis(2);
/// Longest wait for what was written to become stable when a target ends.
const LAST_FLUSH_WAIT: Duration = Duration::from_secs(60);

/// How a target's connections over TCP are secured.
#[derive(Clone, Debug)]
pub struct TlsConfig {
    /// Whether listeners ask for it.
    pub tls: TlsUse,
    /// The same of those at these addresses.
    pub at: BTreeMap<SocketAddr, TlsUse>,
    /// The keys of the hosts that are let in; others are where they may make a PSK by authenticating.
    pub keys: TlsKeys,
}

/// Everything a target is started with.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Addresses to listen on; port 0 takes a free one.
    pub listen: Vec<SocketAddr>,
    /// Which of these only subsystems have that name them.
    pub named_only: BTreeSet<SocketAddr>,
    /// How connections over TCP are secured; `None`: not at all.
    pub tls: Option<TlsConfig>,
    /// Interfaces to listen on for frames, without TCP and IP.
    pub ether: Option<EtherConfig>,
    /// What to export. Of all this only `listen`, `named_only`, `subsystems`, `ana` and `authentication`
    /// change while the target runs.
    pub subsystems: Vec<Subsystem>,
    /// Other discovery controllers over TCP, to which the discovery log refers hosts.
    pub referrals: Vec<SocketAddr>,
    /// How good the paths to the namespaces are, by listener.
    pub ana: AnaStates,
    /// Which hosts authenticate.
    pub authentication: Authentication,
    /// What controllers are granted.
    pub limits: Limits,
    /// Digests granted when asked for.
    pub digests: Digests,
    /// Most octets in a H2CData PDU.
    pub maxh2cdata: u32,
    /// When responses are sent.
    pub policy: PolicyConfig,
    /// Cores of the reactors. Empty: one reactor, not pinned.
    pub cores: Vec<usize>,
    /// What is kept on one NUMA node: memory namespaces, too.
    pub placement: Placement,
    /// Buffer memory over all reactors, in octets.
    pub pool_bytes: usize,
    /// How reactors wait.
    pub waiting: Waiting,
    /// Which commands are recorded as slow.
    pub slow_over: SlowOver,
    /// How many connections over TCP there may be; fewer when this process may not have the descriptors.
    pub connections: ConnectionLimits,
    /// A connection ends that has not connected a queue by then, or that takes so long to authenticate again.
    pub connect_timeout: Duration,
    /// While other connections wait for buffers, one ends that has had a buffer for so long for a command whose
    /// data does not come or whose answer is not taken. Time in the store does not count.
    pub transfer_timeout: Duration,
    /// After this time without using its buffers a reactor gives their memory back to the system.
    pub buffer_idle: Duration,
    /// How long [`Server::drain`] takes at most; zero: it does nothing.
    pub drain_timeout: Duration,
}

impl ServerConfig {
    /// `subsystems` at `listen`, everything else by default.
    #[must_use]
    pub fn new(listen: Vec<SocketAddr>, subsystems: Vec<Subsystem>) -> Self {
        ServerConfig {
            listen,
            named_only: BTreeSet::new(),
            tls: None,
            ether: None,
            subsystems,
            referrals: Vec::new(),
            ana: AnaStates::default(),
            authentication: Authentication::default(),
            limits: Limits::default(),
            digests: Digests { header: true, data: true },
            maxh2cdata: 1 << 20,
            policy: PolicyConfig::auto(),
            cores: Vec::new(),
            placement: Placement::default(),
            pool_bytes: 256 << 20,
            waiting: Waiting::default(),
            slow_over: SlowOver::default(),
            connections: ConnectionLimits { all: CONNECTIONS, per_address: CONNECTIONS / 4 },
            connect_timeout: CONNECT_TIMEOUT,
            transfer_timeout: TRANSFER_TIMEOUT,
            buffer_idle: BUFFER_IDLE,
            drain_timeout: DRAIN_TIMEOUT,
        }
    }

    /// What is exported at first.
    fn exports(&self) -> TargetConfig<Export> {
        let tls = self.tls.as_ref().map(|tls| tls.tls).unwrap_or_default();
        let tls_at = self.tls.as_ref().map(|tls| tls.at.clone()).unwrap_or_default();
        let nothing = TargetConfig::<Export> { tls, tls_at, ..TargetConfig::default() };
        TargetConfig {
            subsystems: self.subsystems.clone(),
            listeners: listeners(&nothing, &self.listen, &self.named_only),
            referrals: self.referrals.clone(),
            authentication: self.authentication.clone(),
            tls,
            tls_at: nothing.tls_at.clone(),
            ana: self.ana.clone(),
            limits: self.limits,
            origin: machine::machine(),
            network: machine::network(),
        }
    }

    /// Whether it can be, as far as that is seen before anything is opened.
    ///
    /// # Errors
    /// What is wrong first.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.exports().check()
    }

    /// The same, with what has changed while a target ran that was started with it: what it exports, at which
    /// addresses, and to whom.
    #[must_use]
    pub fn as_changed(
        &self,
        now: &TargetConfig<Export>,
        addresses: Vec<SocketAddr>,
    ) -> ServerConfig {
        let named_only = now.listeners.iter().filter(|listener| listener.named_only);
        let named_at = named_only.clone().map(|listener| (listener.address, listener.tls));
        let at = now.tls_at.clone().into_iter().chain(named_at).collect();
        let changed = |tls: &TlsConfig| TlsConfig { tls: now.tls, at, keys: tls.keys.clone() };
        ServerConfig {
            listen: addresses,
            named_only: named_only.map(|listener| listener.address).collect(),
            tls: self.tls.as_ref().map(changed),
            subsystems: now.subsystems.clone(),
            referrals: now.referrals.clone(),
            ana: now.ana.clone(),
            authentication: now.authentication.clone(),
            ..self.clone()
        }
    }
}

/// Listeners at `listen` and at the addresses that subsystems name. Addresses of `own` are listened at already.
fn all_listeners(
    old: &TargetConfig<Export>,
    subsystems: &[Subsystem],
    (listen, own): (&[SocketAddr], &[SocketAddr]),
) -> Vec<Listener> {
    let addresses = subsystems.iter().flat_map(|subsystem| subsystem.listeners.iter().flatten());
    let named_only: BTreeSet<SocketAddr> = addresses
        .map(|(address, _)| *address)
        .filter(|address| !listen.contains(address) && !own.contains(address))
        .collect();
    let all: Vec<SocketAddr> = listen.iter().chain(&named_only).copied().collect();
    listeners(old, &all, &named_only)
}

/// The target `old` with another configuration.
fn configured(
    old: &TargetConfig<Export>,
    (listen, own, subsystems): (&[SocketAddr], &[SocketAddr], &[Subsystem]),
    authentication: &Authentication,
    (tls, tls_at): (TlsUse, &BTreeMap<SocketAddr, TlsUse>),
    ana: &AnaStates,
) -> TargetConfig<Export> {
    let old = &TargetConfig { tls, tls_at: tls_at.clone(), ..old.clone() };
    let listeners = all_listeners(old, subsystems, (listen, own));
    let (subsystems, ana) = (subsystems.to_vec(), ana.clone());
    let authentication = authentication.clone();
    TargetConfig { subsystems, listeners, authentication, ana, ..old.clone() }
}

/// Listeners at `addresses`, of which some are for subsystems that name them.
fn listeners(
    config: &TargetConfig<Export>,
    addresses: &[SocketAddr],
    named_only: &BTreeSet<SocketAddr>,
) -> Vec<Listener> {
    let mut listeners = config.listeners_at(addresses);
    for listener in &mut listeners {
        listener.named_only = named_only.contains(&listener.address);
        // What others ask for does not hold for these.
        let there = config.listeners.iter().find(|one| one.address == listener.address);
        if let Some(there) = there.filter(|there| there.named_only && listener.named_only) {
            listener.tls = there.tls;
        }
    }
    listeners
}

/// A reactor: its mailbox and its thread.
type Handle = (Outbox<Order>, JoinHandle<()>);

/// All reactors, also while not all of them have begun: dropping them ends them.
#[derive(Default)]
struct Reactors(Vec<Handle>, Vec<Arc<Meter>>);

impl Drop for Reactors {
    fn drop(&mut self) {
        for (orders, _) in &self.0 {
            orders.send(Order::Stop);
        }
        for (_, thread) in self.0.drain(..) {
            let _ = thread.join(); // a panic was reported by its `Warden`
        }
    }
}

/// A running target. Dropping it stops it.
pub struct Server {
    pub(super) control: Arc<Control>,
    /// Nodes that memory namespaces are taken from.
    memory: BTreeSet<u32>,
    health: Arc<Health>,
    /// Ends before the reactors that it gives connections to.
    handshakes: Option<Handshakes>,
    reactors: Reactors,
    pub(super) drain_timeout: Duration,
    /// Of the reactors.
    pub(super) affinities: Vec<Affinity>,
    /// It listens for frames.
    pub(super) has_interfaces: bool,
}

impl Server {
    /// Frames that all reactors have dropped since the start.
    #[must_use]
    pub fn drops(&self) -> Drops {
        self.ask(Order::Frames).fold(Drops::default(), |sum, (drops, _)| sum + drops)
    }

    /// Opens the stores, listens, starts the reactors.
    ///
    /// # Errors
    /// The first thing that cannot be had; nothing keeps running then.
    pub fn start(config: ServerConfig) -> Result<Self, ServerError> {
        Server::succeed(config, &Inherited::default())
    }

    /// The same, with what a target leaves that ends for this one; see [`Server::hand_over`].
    ///
    /// # Errors
    /// The first thing that cannot be had; nothing keeps running then, and the sockets live on.
    pub fn succeed(config: ServerConfig, inherited: &Inherited) -> Result<Self, ServerError> {
        let exports = config.exports();
        exports.check()?;
        let Opened { listeners, sockets } =
            listeners::open(&exports.listeners, (&[], &[]), &inherited.sockets)?;
        let addresses: Vec<SocketAddr> = listeners.iter().map(|one| one.address).collect();
        let affinities = affinities(&config, &addresses);
        let ports = EtherPorts::open(config.ether.as_ref(), affinities.len())?;
        let memory = memory_nodes(&affinities);
        let near = numa::take_from(memory.clone());
        let mut prepared = Stores::default().prepare(&config.subsystems, |_, _| true)?;
        prepared.stage()?;
        drop(near);
        let mut target = Target::new(clock::now(), &prepared.config(&exports, listeners))?;
        target.set_frame_listeners(ports.frame_listeners());
        inherited.adopt_reservations(&mut target)?;
        inherited.keep_reservations(&target, &prepared.stores())?;
        let system = |source| ServerError::System { what: "thread", source };
        let control = Control::new(
            target,
            prepared.stores(),
            exports,
            config.connect_timeout,
            Arc::new(Meters::new(affinities.len())),
        );
        let control = control.map_err(system)?;
        let hosts = config.tls.as_ref().map(|tls| tls.keys.hosts());
        control.set_tls_hosts(hosts.unwrap_or_default());
        let health = Arc::<Health>::default();
        let (psks, time) = (control.psks(), config.connect_timeout);
        let secure = |TlsConfig { keys, .. }| Handshakes::start(keys, psks, time);
        let handshakes = config.tls.clone().map(secure).transpose().map_err(system)?;
        let secure = handshakes.as_ref().map(Handshakes::secure);
        let reactors = spawn(&config, ports, affinities.clone(), (&control, secure), &health)?;
        control.listen(sockets);
        drop(prepared.switch(&mut Stores::default())); // a start that fails leaves no new files
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

    /// The addresses it listens on.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.control.addresses()
    }

    /// Makes the exports those of `subsystems`: hosts that are connected see namespaces appear,
    /// disappear and change their size. Files and devices are looked at again. What has changed.
    ///
    /// # Errors
    /// The first thing that cannot be; nothing has changed then.
    pub fn reload(&self, subsystems: &[Subsystem]) -> Result<Vec<Operation>, ConfigError> {
        self.change(
            |_, _| true,
            |old| Ok(TargetConfig { subsystems: subsystems.into(), ..old.clone() }),
        )
    }

    /// The same, and listens at the addresses of `listen`, and nowhere else; asks hosts for `authentication`.
    /// Connections that have come at others, and hosts that are connected, live on. `tls` says what listeners ask of
    /// connections that come, and `tls_at` where that is not the same for all; `ana` how good the paths are. Subsystems that
    /// name their listeners stay, with these.
    ///
    /// # Errors
    /// The first thing that cannot be; nothing has changed then.
    pub fn reconfigure(
        &self,
        listen: &[SocketAddr],
        subsystems: &[Subsystem],
        authentication: &Authentication,
        (tls, tls_at): (TlsUse, &BTreeMap<SocketAddr, TlsUse>),
        ana: &AnaStates,
    ) -> Result<Vec<Operation>, ConfigError> {
        let tls_of = |address: &SocketAddr| tls_at.get(address).copied().unwrap_or(tls);
        let secured = || listen.iter().find(|address| tls_of(address) != TlsUse::Off);
        if self.handshakes.is_none()
            && let Some(address) = secured()
        {
            let (place, tls) = (Place::Listener(*address), tls_of(address));
            let hint = "restart the target: it was started without TLS";
            return Err(ConfigError::invalid(place, "tls", format!("{tls:?}"), hint));
        }
        let (own, tls) = (self.shared_addresses(), (tls, tls_at));
        let next = |old: &TargetConfig<Export>| {
            configured(old, (listen, &own, subsystems), authentication, tls, ana)
        };
        self.change(|_, _| true, |old| Ok(next(old)))
    }

    /// Operations that [`Server::reconfigure`] would do, as far as that is seen before anything is opened.
    ///
    /// # Errors
    /// The first thing that cannot be.
    pub fn preview(
        &self,
        listen: &[SocketAddr],
        subsystems: &[Subsystem],
        authentication: &Authentication,
        tls: (TlsUse, &BTreeMap<SocketAddr, TlsUse>),
        ana: &AnaStates,
    ) -> Result<Vec<Operation<Export>>, ConfigError> {
        let (now, own) = (self.exports(), self.shared_addresses());
        let next = configured(&now, (listen, &own, subsystems), authentication, tls, ana);
        next.check()?;
        Ok(now.operations_to(&next))
    }

    /// Addresses that all subsystems share, with the ports that the system has chosen.
    fn shared_addresses(&self) -> Vec<SocketAddr> {
        let (seen, _) = self.view();
        let own = seen.listeners.iter().filter(|listener| !listener.named_only);
        own.map(|listener| listener.address).collect()
    }

    /// Makes the exports those of `subsystems`, and asks hosts for `authentication`. Files, devices and images of
    /// exports that stay the same are not looked at.
    ///
    /// # Errors
    /// The first thing that cannot be; nothing has changed then.
    pub fn follow(
        &self,
        subsystems: &[Subsystem],
        authentication: &Authentication,
    ) -> Result<Vec<Operation>, ConfigError> {
        let subsystems = subsystems.to_vec();
        self.change(
            |_, _| false,
            |old| {
                let authentication = authentication.clone();
                Ok(TargetConfig { subsystems, authentication, ..old.clone() })
            },
        )
    }

    /// Lets in the hosts with `keys`, and no others, from now on. Connections of hosts that have no key any more end,
    /// others live on. Keys for one subsystem stay. Nothing happens at a target that was started without TLS.
    pub fn set_tls_keys(&self, keys: TlsKeys) {
        self.change_tls_keys(|old| {
            let at = std::mem::take(&mut old.at);
            *old = TlsKeys { at, ..keys };
        });
    }

    /// Gives hosts these keys for one subsystem each, by NQN of host and subsystem, and takes the others of that kind
    /// away. Keys for all subsystems stay.
    pub fn set_tls_keys_at(&self, at: BTreeMap<(String, String), TlsKey>) {
        self.change_tls_keys(|old| old.at = at);
    }

    fn change_tls_keys(&self, change: impl FnOnce(&mut TlsKeys)) {
        if let Some(handshakes) = &self.handshakes {
            let hosts = handshakes.change_keys(change);
            // Whoever was let in meanwhile with a key that is gone is refused at Connect.
            self.control.set_tls_hosts(hosts);
        }
    }

    /// Does all of `operations`, or nothing. Files and devices that they do not name are not looked at. What has changed
    /// for hosts.
    ///
    /// # Errors
    /// The first thing that cannot be; nothing has changed then.
    pub fn apply(&self, operations: &[Operation<Export>]) -> Result<Vec<Operation>, ConfigError> {
        let named: Vec<Place> = operations.iter().map(Operation::place).collect();
        let is_named = |nqn: &str, nsid| named.contains(&Place::Namespace(nqn.to_owned(), nsid));
        self.change(is_named, |old| old.with(operations))
    }

    /// Takes the blocks of a namespace that stands by away from the target that has them, and serves it: that one
    /// cannot write them any more. Waits until it is served, so long at most. Whether it was not served here before.
    ///
    /// # Errors
    /// There is no such namespace; nobody can fence whoever has its blocks; it took too long.
    pub fn claim(&self, nqn: &str, nsid: u32, patience: Duration) -> Result<bool, ConfigError> {
        self.control.claim(nqn, nsid, patience)
    }

    /// The store of a namespace; `None`: there is no such namespace, or its blocks are out of reach.
    #[must_use]
    pub fn store(&self, nqn: &str, nsid: u32) -> Option<Arc<dyn Store>> {
        self.control.store(nqn, nsid)
    }

    /// What is exported, as it was asked for.
    #[must_use]
    pub fn exports(&self) -> TargetConfig<Export> {
        self.control.exports()
    }

    /// What hosts see of it, and the controllers that there are.
    #[must_use]
    pub fn view(&self) -> (TargetConfig, Vec<ControllerView>) {
        self.control.view()
    }

    fn change(
        &self,
        looked: impl Fn(&str, u32) -> bool,
        next: impl FnOnce(&TargetConfig<Export>) -> Result<TargetConfig<Export>, ConfigError>,
    ) -> Result<Vec<Operation>, ConfigError> {
        let near = numa::take_from(self.memory.clone());
        let changed = self.control.change(looked, next);
        drop(near);
        // Asked after they were told: when they answer, no lane uses what was removed for new commands.
        let _ = self.usage();
        changed
    }

    /// What each reactor answers, in time.
    pub(super) fn ask<T: Default>(
        &self,
        order: impl Fn(SyncSender<T>) -> Order,
    ) -> impl Iterator<Item = T> {
        self.reactors.0.iter().map(move |(orders, _)| {
            let (reply, answer) = sync_channel(1);
            orders.send(order(reply));
            answer.recv_timeout(STATS_WAIT).unwrap_or_default()
        })
    }

    /// State of the reactors' waits.
    #[must_use]
    pub fn waiting(&self) -> Vec<WaitState> {
        self.reactors.1.iter().map(|meter| meter.read()).collect()
    }

    /// What reactors have recorded of late: slow commands, and some others.
    #[must_use]
    pub fn recorded(&self) -> Recorded {
        Recorded::new(self.ask(Order::Recorded), LaneCells::line)
    }

    /// What all reactors hold now.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.ask(Order::Usage).fold(Usage::default(), |sum, usage| Usage {
            connections: sum.connections + usage.connections,
            store_commands: sum.store_commands + usage.store_commands,
            io_commands: sum.io_commands + usage.io_commands,
            buffer_bytes: sum.buffer_bytes + usage.buffer_bytes,
            kept_bytes: sum.kept_bytes + usage.kept_bytes,
            reserved_buffers: sum.reserved_buffers + usage.reserved_buffers,
        })
    }

    /// Where the lanes are, by controller and queue.
    #[must_use]
    pub fn lanes(&self) -> Vec<LanePlace> {
        let mut lanes: Vec<_> = self.ask(Order::Lanes).flatten().collect();
        lanes.sort_by_key(|lane| (lane.cntlid, lane.qid));
        lanes
    }

    /// How often lanes have moved from one reactor to another.
    #[must_use]
    pub fn moves(&self) -> u64 {
        self.ask(Order::Moves).sum()
    }

    /// Why a reactor has ended without being told to, if one has. The target is of no use then.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.health.failure()
    }

    /// Calls `tell`, from any thread, when a reactor ends without being told to; see [`Server::failure`].
    pub fn on_failure(&self, tell: impl FnOnce() + Send + 'static) {
        self.health.on_failure(tell);
    }

    /// For asking whether all reactors make turns.
    #[must_use]
    pub fn pulse(&self) -> Pulse {
        Pulse::new(self.reactors.0.iter().map(|(orders, _)| {
            let orders = orders.clone();
            Box::new(move |reply| orders.send(Order::Beat(reply))) as Box<_>
        }))
    }

    /// Has a reactor move its lanes of I/O to another one.
    #[cfg(test)]
    pub(super) fn move_lanes(&self, from: usize, to: usize) {
        self.reactors.0[from].0.send(Order::Move(to));
    }

    /// No authentication waits for powers.
    #[cfg(test)]
    pub(super) fn is_power_idle(&self) -> bool {
        self.control.is_power_idle()
    }

    /// Computations of powers that have begun.
    #[cfg(test)]
    pub(super) fn powers_begun(&self) -> u64 {
        self.control.powers_begun()
    }

    /// Has a reactor do something.
    #[cfg(test)]
    pub(super) fn call(&self, reactor: usize, call: impl FnOnce() + Send + 'static) {
        self.reactors.0[reactor].0.send(Order::Call(Box::new(call)));
    }

    /// Ends every connection, waits for the stores, ends the reactors, and brings everything that was
    /// written to stable storage.
    ///
    /// # Errors
    /// The first namespace whose hosts may have lost something of which they do not know. The others are
    /// logged.
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

    /// Whether all reactors have ended.
    pub(super) fn is_over(&self) -> bool {
        self.reactors.0.iter().all(|(_, thread)| thread.is_finished())
    }

    /// Brings everything that was written to stable storage: nobody writes any more.
    fn close(&self) -> Result<(), ServerError> {
        let (reply, answer) = sync_channel(1);
        let control = self.control.clone();
        let close = move || {
            let failures = control.close();
            drop(control); // with its locks: whoever has the answer may open the files again
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

    /// The same when hosts have gone elsewhere ([`Server::drain`]); what may be lost is only logged. Dropping the
    /// server waits for no host.
    pub fn stop(self) {
        self.drain(|pause| {
            thread::sleep(pause);
            true
        });
        drop(self);
    }

    /// Tells reactors to end.
    pub(super) fn stop_reactors(&self) {
        for (orders, _) in &self.reactors.0 {
            orders.send(Order::Stop);
        }
    }
}

/// Before the reactors' threads are joined.
impl std::ops::Drop for Server {
    fn drop(&mut self) {
        if let Err(failure) = self.shut_down() {
            error!("{failure}");
        }
    }
}

/// Where the reactors go: connections come in over the interfaces that they listen on.
fn affinities(config: &ServerConfig, addresses: &[SocketAddr]) -> Vec<Affinity> {
    let count = config.cores.len().max(1);
    let (placement, cores, allowed) = (config.placement, &config.cores[..], &numa::allowed());
    let names = config.ether.as_ref().map(|ether| ether.interfaces().to_vec()).unwrap_or_default();
    target_affinities(Threads { placement, count, cores, allowed }, addresses, names)
}

fn spawn(
    config: &ServerConfig,
    mut ports: EtherPorts,
    affinities: Vec<Affinity>,
    (control, handshakes): (&Arc<Control>, Option<Secure>),
    health: &Arc<Health>,
) -> Result<Reactors, ServerError> {
    let system = |what| move |source| ServerError::System { what, source };
    let count = affinities.len();
    let mailboxes = (0..count).map(|_| mailbox()).collect::<io::Result<Vec<_>>>();
    let (outboxes, inboxes): (Vec<_>, Vec<_>) =
        mailboxes.map_err(system("mailbox"))?.into_iter().unzip();
    control.set_reactors(outboxes.clone());
    let tickets = Arc::new(Tickets::new(connection_limits(config, count)));
    let cores = affinities.iter().map(|affinity| affinity.cpus.single()).collect();
    let balance = Balance::new(cores, config.waiting == Waiting::BusyPoll);
    let mut reactors = Reactors::default();
    let mut beginnings = Vec::new();
    let mailboxes = inboxes.into_iter().zip(outboxes.clone());
    for (number, (affinity, (inbox, orders))) in affinities.into_iter().zip(mailboxes).enumerate() {
        let meter = Arc::<Meter>::default();
        let parts = Parts {
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
        let warden = Warden { health: health.clone(), number };
        let (begun, beginning) = sync_channel(1);
        let body = move || run(&affinity, parts, &begun, warden);
        let thread = thread::Builder::new().name(name).spawn(body).map_err(system("thread"))?;
        reactors.0.push((orders, thread));
        reactors.1.push(meter);
        beginnings.push(beginning);
    }
    for beginning in beginnings {
        // No answer at all: its thread has panicked, and has said so.
        let begun = beginning.recv().unwrap_or_else(|_| Err(io::Error::other("it has panicked")));
        begun.map_err(system("reactor"))?;
    }
    Ok(reactors)
}

/// What was asked for, if there are descriptors for it.
fn connection_limits(config: &ServerConfig, reactors: usize) -> ConnectionLimits {
    let files = config.subsystems.iter().map(|subsystem| subsystem.namespaces.len()).sum();
    let most = files::connections_max(reactors, files);
    let asked = config.connections;
    if most < asked.all {
        info!("at most {most} connections instead of {}: RLIMIT_NOFILE is too low", asked.all);
    }
    ConnectionLimits { all: asked.all.min(most), ..asked }
}

fn run(affinity: &Affinity, parts: Parts, begun: &SyncSender<io::Result<()>>, warden: Warden) {
    tuning::set_exact_timers();
    numa::bind_thread(affinity);
    let reactor = match affinity.cpus.single() {
        #[cfg(test)]
        Some(BROKEN_CORE) => Err(io::Error::other("a test wants it so")),
        _ => Reactor::new(parts),
    };
    match reactor {
        Ok(mut reactor) => {
            let _ = begun.send(Ok(()));
            warden.ended(reactor.run());
        }
        Err(error) => {
            let _ = begun.send(Err(error));
        }
    }
}

/// No reactor begins on this core.
#[cfg(test)]
pub(super) const BROKEN_CORE: usize = 4322;
