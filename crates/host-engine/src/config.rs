//! Configuration of a host's connections.

use super::address::TargetAddress;
use roadtrain_host_proto::association::{self, SiblingConstraints};
use roadtrain_host_proto::bringup::Wants;
use roadtrain_host_proto::express::EXPRESSES_MAX;
use roadtrain_host_proto::old_commands::{OldCommands, OpenController};
use roadtrain_host_proto::paths::PathPolicy;
use roadtrain_proto::policy::{Class, PolicyConfig};
use roadtrain_proto::recorder::SlowOver;
use roadtrain_proto::security::dhchap::DhchapKeys;
use roadtrain_proto::security::{Derivation, IdentityVersion, SealUse, TlsKey, TlsPsk};
use roadtrain_reactor::waits::WaitPolicy;
use roadtrain_system::platform::NumaPlacement;
use roadtrain_tls::BLOCKS_MAX;
use roadtrain_wire::pdu::Digests;
use std::net::IpAddr;
use std::time::Duration;

/// Configuration of the connection to a subsystem.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// Address of the target.
    pub address: TargetAddress,
    /// More addresses of the same subsystem, of either transport: each is a path to the same namespaces. No two of them
    /// share an interface.
    pub more_addresses: Vec<TargetAddress>,
    /// Discovery controllers and their connection parameters: the discovered paths replace the addresses above.
    pub discovery: Option<Box<HostConfig>>,
    /// Local end of connections over TCP.
    pub local: LocalEnd,
    /// Path selection policy, if there are several paths.
    pub path_policy: PathPolicy,
    /// Subsystem to connect to.
    pub subsystem_nqn: String,
    /// NQN of this host.
    pub host_nqn: String,
    /// Host identifier, a UUID.
    pub host_id: [u8; 16],
    /// Authentication keys, used when the target requires it. With a controller key the target has to authenticate,
    /// too.
    pub keys: DhchapKeys,
    /// Lanes (I/O queues), each with its own connection.
    pub lanes: u32,
    /// Controllers that an earlier process of this host has lost, and that may still execute writes.
    pub inherited: Vec<OpenController>,
    /// Cores of the reactors, assigned in turn. Empty: not pinned.
    pub cores: Vec<usize>,
    /// Number of reactors; lanes are assigned to them in turn. `None`: one per core, one without cores.
    pub reactors: Option<usize>,
    /// Placement on NUMA nodes.
    pub placement: NumaPlacement,
    /// Entries of each I/O queue.
    pub queue_entries: u16,
    /// Digests to request.
    pub digests: Digests,
    /// Batching policy of the lanes.
    pub policy: PolicyConfig,
    /// Class of the lanes, and default class of requests without one ([`Class::Normal`]).
    pub class: Class,
    /// Express connections over TCP for lanes on which latency-critical requests and bulk meet.
    pub express: bool,
    /// Waiting policy of reactors.
    pub waiting: WaitPolicy,
    /// Threshold of requests that are recorded as slow.
    pub slow_over: SlowOver,
    /// Keep-alive timeout; zero for none.
    pub keep_alive: Duration,
    /// Duration of retries of the first connection while the controller is busy.
    pub connect_timeout: Duration,
    /// First pause before reconnecting; doubles up to [`RECONNECT_DELAY_MAX`].
    pub reconnect_delay: Duration,
    /// Duration of a controller loss after which requests fail; `None`: they wait for ever.
    pub controller_loss_timeout: Option<Duration>,
    /// Shorter duration after which requests fail while attempts to connect continue. With several paths it counts for
    /// each path, and requests fail when no path works. `None`: only the controller-loss timeout counts.
    pub fast_io_fail_timeout: Option<Duration>,
    /// I/O timeout: a request in flight for this long is aborted, and if it does not end then the connection is closed
    /// and made again. `None`: no timeout. Time without a connection does not count.
    pub io_timeout: Option<Duration>,
    /// Reply timeout of the control plane.
    pub timeout: Duration,
    /// TLS parameters of connections over TCP; a target without TLS is refused. `None`: no TLS.
    pub tls: Option<HostTls>,
}

/// Local end of this host's connections over TCP; the kernel chooses unset values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalEnd {
    /// Local address.
    pub address: Option<IpAddr>,
    /// Interface for sent and received packets.
    pub interface: Option<String>,
    /// True for MPTCP, if this kernel offers it and the target accepts it. Address and interface are then those of the
    /// first subflow.
    pub mptcp: bool,
}

/// TLS parameters of a host's connections.
#[derive(Clone, Debug)]
pub struct HostTls {
    /// Source of the PSK.
    pub key: TlsKeySource,
    /// Version of the identity of a configured PSK. `None`: version 1, and version 0 if the target refuses that.
    pub identity: Option<IdentityVersion>,
    /// Maximum AES blocks under the keys of a connection; then all connections are made again.
    pub blocks_max: u64,
}

/// PSK that a host offers for a connection.
#[derive(Clone, Debug)]
pub(super) struct OfferedPsk {
    pub(super) psk: TlsPsk,
    /// The same key with another identity, for targets that refuse the first one.
    pub(super) other: Option<TlsPsk>,
    /// Maximum AES blocks under the keys.
    pub(super) blocks_max: u64,
}

/// Source of a host's PSK.
#[derive(Clone, Debug)]
pub enum TlsKeySource {
    /// Configured PSK, from which the PSK of a host and a subsystem is derived.
    Configured(TlsKey),
    /// PSK that was already derived for this host and this subsystem, as keyrings store it.
    Derived(TlsPsk),
    /// Negotiated by authentication with [`HostConfig::keys`] (secure channel concatenation).
    Authentication,
}

impl HostTls {
    /// Creates the parameters with this key. Connections are made again a little before AES-GCM's limit, so that no
    /// target has to end them.
    #[must_use]
    pub fn new(key: TlsKeySource) -> Self {
        HostTls { key, identity: None, blocks_max: BLOCKS_MAX - (BLOCKS_MAX >> 4) }
    }

    /// Creates the parameters with a PSK that is negotiated by authentication.
    #[must_use]
    pub fn concatenated() -> Self {
        HostTls::new(TlsKeySource::Authentication)
    }
}

/// Maximum number of discovered paths that are used.
pub(super) const DISCOVERED_PATHS_MAX: usize = 16;
/// Minimum reply timeout with several paths.
const ANSWER_MIN: Duration = Duration::from_millis(500);
/// Longest pause between two attempts to reconnect.
pub const RECONNECT_DELAY_MAX: Duration = Duration::from_secs(10);

impl HostConfig {
    /// Creates a configuration with one lane, no digests, and the timeouts of nvme-cli.
    #[must_use]
    pub fn new(
        address: impl Into<TargetAddress>,
        subsystem_nqn: &str,
        host_nqn: &str,
        host_id: [u8; 16],
    ) -> Self {
        HostConfig {
            address: address.into(),
            more_addresses: Vec::new(),
            discovery: None,
            local: LocalEnd::default(),
            path_policy: PathPolicy::default(),
            subsystem_nqn: subsystem_nqn.to_owned(),
            host_nqn: host_nqn.to_owned(),
            host_id,
            keys: DhchapKeys::default(),
            lanes: 1,
            inherited: Vec::new(),
            cores: Vec::new(),
            reactors: None,
            placement: NumaPlacement::default(),
            queue_entries: 128,
            digests: Digests::default(),
            policy: PolicyConfig::auto(),
            class: Class::Normal,
            express: true,
            waiting: WaitPolicy::default(),
            slow_over: SlowOver::default(),
            keep_alive: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(5),
            reconnect_delay: Duration::from_millis(250),
            controller_loss_timeout: Some(Duration::from_secs(600)),
            fast_io_fail_timeout: None,
            io_timeout: Some(Duration::from_secs(30)),
            timeout: Duration::from_secs(10),
            tls: None,
        }
    }

    /// Returns the number of reactors for `lanes` lanes: each has at least one lane.
    pub(super) fn reactor_count(&self, lanes: usize) -> usize {
        self.reactors.unwrap_or(self.cores.len()).clamp(1, lanes.max(1))
    }

    /// Returns the core of the reactor of lane `number` (over all reactors), if it is pinned.
    pub(super) fn core_of(&self, number: usize) -> Option<usize> {
        let reactors = self.reactors.unwrap_or(self.cores.len()).max(1);
        self.cores.get(number % reactors % self.cores.len().max(1)).copied()
    }

    /// True if there are several paths, or may be.
    pub(super) fn has_paths(&self) -> bool {
        !self.more_addresses.is_empty() || self.discovery.is_some()
    }

    /// Returns the maximum number of paths.
    pub(super) fn paths_max(&self) -> usize {
        let paths = 1 + self.more_addresses.len();
        if self.discovery.is_some() { paths.max(DISCOVERED_PATHS_MAX) } else { paths }
    }

    /// Returns the addresses of all paths.
    pub(super) fn addresses(&self) -> impl Iterator<Item = &TargetAddress> {
        std::iter::once(&self.address).chain(&self.more_addresses)
    }

    /// Returns the configuration of one of several paths. Its reply timeout is shorter, as another path can take over
    /// from a silent target.
    pub(super) fn of_path(&self, address: &TargetAddress) -> HostConfig {
        let mut config = HostConfig { address: address.clone(), ..self.clone() };
        if self.has_paths() && !self.keep_alive.is_zero() {
            config.timeout = self.timeout.min((self.keep_alive / 2).max(ANSWER_MIN));
        }
        config
    }

    /// Returns the number of express connections that this many lanes may have on this path: none over Ethernet, where
    /// urgent frames overtake others anyway.
    pub(super) fn expresses(&self, lanes: u32) -> u32 {
        let has_sockets = self.address.as_ether().is_none();
        if self.express && has_sockets { lanes.min(EXPRESSES_MAX) } else { 0 }
    }

    /// True if lanes of any path may have an express connection.
    pub(super) fn may_express(&self) -> bool {
        self.express && self.addresses().any(|address| address.as_ether().is_none())
    }

    /// Returns the connection parameters of a controller.
    pub(super) fn wants(&self) -> Wants {
        Wants {
            subsystem_nqn: self.subsystem_nqn.clone(),
            host_nqn: self.host_nqn.clone(),
            host_id: self.host_id,
            keep_alive: self.keep_alive,
            timeout: self.timeout,
            queue_entries: self.queue_entries,
            class: self.class,
            sq_flow_control: false,
            keys: self.keys.clone(),
            seals: match &self.address {
                TargetAddress::Ether(address) => address.seals(),
                TargetAddress::Tcp(_) | TargetAddress::Name(_) => SealUse::Off,
            },
            concatenates: self
                .tls
                .as_ref()
                .is_some_and(|tls| matches!(tls.key, TlsKeySource::Authentication)),
        }
    }

    /// Returns true if connections are secured with a key that the host has; `None`: with a negotiated one.
    pub(super) fn secures(&self) -> Option<bool> {
        match &self.tls {
            Some(HostTls { key: TlsKeySource::Authentication, .. }) => None,
            tls => Some(tls.is_some()),
        }
    }

    /// Returns the PSKs of a connection; `made` is the negotiated one.
    pub(super) fn psk(&self, made: Option<&TlsPsk>) -> Option<OfferedPsk> {
        let HostTls { key, identity, blocks_max } = self.tls.as_ref()?;
        let of = |key: &TlsKey, version| {
            let derivation = Derivation { version, compat: false };
            key.tls_psk_by(&self.host_nqn, &self.subsystem_nqn, derivation)
        };
        let (psk, other) = match (key, identity) {
            (TlsKeySource::Configured(key), Some(version)) => (of(key, *version), None),
            (TlsKeySource::Configured(key), None) => {
                (of(key, IdentityVersion::V1), Some(of(key, IdentityVersion::V0)))
            }
            (TlsKeySource::Derived(psk), _) => (psk.clone(), None),
            (TlsKeySource::Authentication, _) => (made?.clone(), None),
        };
        Some(OfferedPsk { psk, other, blocks_max: *blocks_max })
    }

    /// Returns the configuration of an association with `lanes` lanes.
    pub(super) fn association(
        &self,
        lanes: u32,
        beside: Option<SiblingConstraints>,
        old_commands: OldCommands,
    ) -> association::AssociationConfig {
        association::AssociationConfig {
            wants: self.wants(),
            lanes,
            expresses: self.expresses(lanes),
            reconnect_delay: self.reconnect_delay,
            reconnect_delay_max: RECONNECT_DELAY_MAX,
            controller_loss_timeout: self.controller_loss_timeout,
            fast_io_fail_timeout: self.fast_io_fail_timeout,
            siblings: beside,
            old_commands,
        }
    }
}
