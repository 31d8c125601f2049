//! Configuration of a target: its settings, and the exports that follow from them.

use crate::ether::EtherConfig;
use crate::export::{Export, Subsystem};
use crate::guest_threads::GuestThreads;
use roadtrain_proto::policy::PolicyConfig;
use roadtrain_proto::recorder::SlowOver;
use roadtrain_proto::security::TlsKeys;
use roadtrain_reactor::waits::WaitPolicy;
use roadtrain_store::RemoteContext;
use roadtrain_system::machine;
use roadtrain_system::platform::NumaPlacement;
use roadtrain_target_proto::{
    AnaStates, ConfigError, ConnectionLimits, HostAuthentication, TargetConfig, TargetLimits,
    TargetListener, TlsUse,
};
use roadtrain_wire::pdu::Digests;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Default of [`ServerConfig::drain_timeout`].
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Default of [`ServerConfig::connect_timeout`].
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Default of [`ServerConfig::connections`]: 128 hosts of 128 queues.
const CONNECTIONS: u32 = 16384;
/// Default of [`ServerConfig::transfer_timeout`]: hosts give up themselves on network failures of more than a minute,
/// and 1 MiB within a minute needs only 140 kbit/s.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(60);
/// Default of [`ServerConfig::buffer_idle`]: touching the memory again costs about 0.1 ms for each 2 MiB, which is
/// negligible at this interval.
const BUFFER_IDLE: Duration = Duration::from_secs(10);

/// TLS configuration of TCP connections.
#[derive(Clone, Debug)]
pub struct TlsConfig {
    /// Use of TLS at listeners.
    pub tls: TlsUse,
    /// Use of TLS at specific addresses.
    pub at: BTreeMap<SocketAddr, TlsUse>,
    /// Keys of the permitted hosts. Other hosts are accepted where they can generate a PSK by authenticating.
    pub keys: TlsKeys,
}

/// Configuration of a target.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Addresses to listen on; port 0 takes a free one.
    pub listen: Vec<SocketAddr>,
    /// Addresses among these that only serve subsystems that name them.
    pub named_only: BTreeSet<SocketAddr>,
    /// True if listeners take connections over MPTCP beside TCP, where the kernel offers it.
    pub mptcp: bool,
    /// TLS for TCP connections; `None`: no TLS.
    pub tls: Option<TlsConfig>,
    /// Interfaces to listen on for frames, without TCP and IP.
    pub ether: Option<EtherConfig>,
    /// Exported subsystems. Only `listen`, `named_only`, `subsystems`, `ana` and `authentication` change while the
    /// target runs.
    pub subsystems: Vec<Subsystem>,
    /// Threads of the reactors, for stores over the network that are opened outside of the target. `None`: the target
    /// has its own.
    pub guest_threads: Option<Arc<GuestThreads>>,
    /// Other discovery controllers over TCP, for referrals in the discovery log.
    pub referrals: Vec<SocketAddr>,
    /// ANA state of the paths, by listener.
    pub ana: AnaStates,
    /// Authentication of hosts.
    pub authentication: HostAuthentication,
    /// Limits that controllers are granted.
    pub limits: TargetLimits,
    /// Digests granted on request.
    pub digests: Digests,
    /// Most bytes in an H2CData PDU.
    pub maxh2cdata: u32,
    /// Batching policy for completions and data.
    pub policy: PolicyConfig,
    /// Cores of the reactors. Empty: one reactor, not pinned.
    pub cores: Vec<usize>,
    /// Resources to keep on one NUMA node, including memory namespaces.
    pub placement: NumaPlacement,
    /// Buffer memory over all reactors, in bytes.
    pub pool_bytes: usize,
    /// Wait strategy of the reactors.
    pub waiting: WaitPolicy,
    /// Threshold of slow commands to record.
    pub slow_over: SlowOver,
    /// Limits of TCP connections; lower if this process may not open enough descriptors.
    pub connections: ConnectionLimits,
    /// Longest time from a connection to its queue's Connect, and longest time of a reauthentication.
    pub connect_timeout: Duration,
    /// Longest time that a command may hold a buffer while other connections wait for buffers and its data does not
    /// arrive or its completion is not taken. The connection ends then. Time in the store does not count.
    pub transfer_timeout: Duration,
    /// Idle time after which a reactor returns the memory of its buffers to the system.
    pub buffer_idle: Duration,
    /// Longest duration of [`Server::drain`](super::Server::drain); zero: it does nothing.
    pub drain_timeout: Duration,
}

impl ServerConfig {
    /// Creates a configuration of `subsystems` at `listen`, with defaults for everything else.
    #[must_use]
    pub fn new(listen: Vec<SocketAddr>, subsystems: Vec<Subsystem>) -> Self {
        ServerConfig {
            listen,
            named_only: BTreeSet::new(),
            mptcp: false,
            tls: None,
            ether: None,
            subsystems,
            guest_threads: None,
            referrals: Vec::new(),
            ana: AnaStates::default(),
            authentication: HostAuthentication::default(),
            limits: TargetLimits::default(),
            digests: Digests { header: true, data: true },
            maxh2cdata: 1 << 20,
            policy: PolicyConfig::auto(),
            cores: Vec::new(),
            placement: NumaPlacement::default(),
            pool_bytes: 256 << 20,
            waiting: WaitPolicy::default(),
            slow_over: SlowOver::default(),
            connections: ConnectionLimits { all: CONNECTIONS, per_address: CONNECTIONS / 4 },
            connect_timeout: CONNECT_TIMEOUT,
            transfer_timeout: TRANSFER_TIMEOUT,
            buffer_idle: BUFFER_IDLE,
            drain_timeout: DRAIN_TIMEOUT,
        }
    }

    /// Returns the surroundings of stores over the network for a target that listens at `addresses`.
    pub(super) fn remote_at(
        addresses: &[SocketAddr],
        threads: &Arc<GuestThreads>,
    ) -> RemoteContext {
        let own_addresses = addresses.to_vec();
        RemoteContext { read_only: false, threads: Some(threads.clone()), own_addresses }
    }

    /// Returns the initial exports.
    pub(super) fn exports(&self) -> TargetConfig<Export> {
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

    /// Checks the configuration as far as possible without opening anything.
    ///
    /// # Errors
    ///
    /// The first problem.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.exports().check()
    }

    /// Returns this configuration with the changes that the running target has made: exports, addresses and
    /// authentication.
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

/// Returns the listeners at `listen` and at the addresses that subsystems name. The target already listens at the
/// addresses of `own`.
pub(super) fn all_listeners(
    old: &TargetConfig<Export>,
    subsystems: &[Subsystem],
    (listen, own): (&[SocketAddr], &[SocketAddr]),
) -> Vec<TargetListener> {
    let addresses = subsystems.iter().flat_map(|subsystem| subsystem.listeners.iter().flatten());
    let named_only: BTreeSet<SocketAddr> = addresses
        .map(|(address, _)| *address)
        .filter(|address| !listen.contains(address) && !own.contains(address))
        .collect();
    let all: Vec<SocketAddr> = listen.iter().chain(&named_only).copied().collect();
    listeners(old, &all, &named_only)
}

/// Returns `old` with another configuration.
pub(super) fn configured(
    old: &TargetConfig<Export>,
    (listen, own, subsystems): (&[SocketAddr], &[SocketAddr], &[Subsystem]),
    authentication: &HostAuthentication,
    (tls, tls_at): (TlsUse, &BTreeMap<SocketAddr, TlsUse>),
    ana: &AnaStates,
) -> TargetConfig<Export> {
    let old = &TargetConfig { tls, tls_at: tls_at.clone(), ..old.clone() };
    let listeners = all_listeners(old, subsystems, (listen, own));
    let (subsystems, ana) = (subsystems.to_vec(), ana.clone());
    let authentication = authentication.clone();
    TargetConfig { subsystems, listeners, authentication, ana, ..old.clone() }
}

/// Returns the listeners at `addresses`. Those in `named_only` only serve subsystems that name them.
pub(super) fn listeners(
    config: &TargetConfig<Export>,
    addresses: &[SocketAddr],
    named_only: &BTreeSet<SocketAddr>,
) -> Vec<TargetListener> {
    let mut listeners = config.listeners_at(addresses);
    for listener in &mut listeners {
        listener.named_only = named_only.contains(&listener.address);
        // The general TLS setting does not apply to these.
        let there = config.listeners.iter().find(|one| one.address == listener.address);
        if let Some(there) = there.filter(|there| there.named_only && listener.named_only) {
            listener.tls = there.tls;
        }
    }
    listeners
}
