//! What a host is told to connect to, and how.

use super::address::Address;
use roadtrain_host_proto::association::{self, Beside};
use roadtrain_host_proto::bringup::Wants;
use roadtrain_host_proto::express::EXPRESSES_MAX;
use roadtrain_host_proto::old_commands::{OldCommands, OpenController};
use roadtrain_host_proto::paths::PathPolicy;
use roadtrain_proto::policy::{Class, PolicyConfig};
use roadtrain_proto::recorder::SlowOver;
use roadtrain_proto::security::dhchap::Keys;
use roadtrain_proto::security::{Derivation, IdentityVersion, SealUse, TlsKey, TlsPsk};
use roadtrain_reactor::waits::Waiting;
use roadtrain_system::platform::Placement;
use roadtrain_tls::BLOCKS_MAX;
use roadtrain_wire::pdu::Digests;
use std::net::IpAddr;
use std::time::Duration;

/// A connection to a subsystem.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// Where the target is.
    pub address: Address,
    /// More addresses of the same subsystem, of either transport: with these, each is a path to the same namespaces.
    /// No interface belongs to two of them.
    pub more_addresses: Vec<Address>,
    /// Discovery controllers that know the paths, and how they are connected to: with these, the addresses above are
    /// replaced by what is found.
    pub discovery: Option<Box<HostConfig>>,
    /// Where connections over TCP begin.
    pub local: LocalEnd,
    /// Which path a request takes, where there are several.
    pub path_policy: PathPolicy,
    /// Subsystem to connect to.
    pub subsystem_nqn: String,
    /// Who this host says it is.
    pub host_nqn: String,
    /// Host identifier, a UUID.
    pub host_id: [u8; 16],
    /// Keys to authenticate with, when the target asks for it. With one of the target's it has to prove that it has
    /// the key, too.
    pub keys: Keys,
    /// Lanes (I/O queues), each with its own connection.
    pub lanes: u32,
    /// Controllers that an earlier process of this host has lost, and that may still execute writes.
    pub inherited: Vec<OpenController>,
    /// Cores of the reactors, which are dealt out to them in turn. Empty: not pinned.
    pub cores: Vec<usize>,
    /// Reactors, to which lanes are dealt out in turn. `None`: one for each core, one without cores.
    pub reactors: Option<usize>,
    /// What is kept on one NUMA node.
    pub placement: Placement,
    /// Entries of each I/O queue.
    pub queue_entries: u16,
    /// Digests to ask for.
    pub digests: Digests,
    /// When lanes send.
    pub policy: PolicyConfig,
    /// Class of the lanes, and so of requests that are of none ([`Class::Normal`]).
    pub class: Class,
    /// Lanes on which latency-critical requests and bulk meet may get express connections, over TCP.
    pub express: bool,
    /// How reactors wait.
    pub waiting: Waiting,
    /// Which requests are recorded as slow.
    pub slow_over: SlowOver,
    /// Keep-alive timeout; zero for none.
    pub keep_alive: Duration,
    /// How long the first connection is tried again while the controller is busy.
    pub connect_timeout: Duration,
    /// First wait before connecting again; doubles up to [`RECONNECT_DELAY_MAX`].
    pub reconnect_delay: Duration,
    /// Requests fail when the controller has been gone that long; `None`: they wait for ever.
    pub controller_loss_timeout: Option<Duration>,
    /// The same before that, for requests only: attempts to connect go on all the same. With several paths it counts for
    /// each, and requests fail when none works. `None`: only the timeout above counts.
    pub fast_io_fail_timeout: Option<Duration>,
    /// A request on its way for so long is aborted, and with no end after that the connection is given up, to be
    /// made again; `None`: requests take as long as they take. Time without a connection does not count.
    pub io_timeout: Option<Duration>,
    /// Longest wait for an answer on the control plane.
    pub timeout: Duration,
    /// Connections over TCP are secured by TLS like this; a target that does not do so is refused.
    pub tls: Option<HostTls>,
}

/// Where this host's connections over TCP begin; what is not given is the kernel's choice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalEnd {
    /// An address of this machine.
    pub address: Option<IpAddr>,
    /// The interface that packets leave and arrive by.
    pub interface: Option<String>,
}

/// How a host's connections are secured.
#[derive(Clone, Debug)]
pub struct HostTls {
    /// Where their PSK comes from.
    pub key: HostKey,
    /// The version of the identity by which a configured PSK is named. `None`: version 1, and version 0 where the
    /// target refuses that.
    pub identity: Option<IdentityVersion>,
    /// Blocks of AES for which the keys of a connection are used; then all connections are made anew.
    pub blocks_max: u64,
}

/// The PSK that a host offers for a connection.
#[derive(Clone, Debug)]
pub(super) struct OfferedPsk {
    pub(super) psk: TlsPsk,
    /// The same key by another identity, for targets that refuse the first one.
    pub(super) other: Option<TlsPsk>,
    /// Blocks of AES for which the keys are good.
    pub(super) blocks_max: u64,
}

/// Where a host's PSK comes from.
#[derive(Clone, Debug)]
pub enum HostKey {
    /// A configured PSK, of which that of a host and a subsystem is derived.
    Configured(TlsKey),
    /// It was derived elsewhere, for this host and this subsystem, as keyrings have them.
    Derived(TlsPsk),
    /// It is made by authenticating, with [`HostConfig::keys`] (secure channel concatenation).
    Authentication,
}

impl HostTls {
    /// With this key, and new connections a little before AES-GCM's limit, so that no target has to end them.
    #[must_use]
    pub fn new(key: HostKey) -> Self {
        HostTls { key, identity: None, blocks_max: BLOCKS_MAX - (BLOCKS_MAX >> 4) }
    }

    /// The same with a PSK that is made by authenticating.
    #[must_use]
    pub fn concatenated() -> Self {
        HostTls::new(HostKey::Authentication)
    }
}

/// Most paths that are used of those that discovery controllers know.
pub(super) const DISCOVERED_PATHS_MAX: usize = 16;
/// So long an answer is waited for at least, where there are several paths.
const ANSWER_MIN: Duration = Duration::from_millis(500);
/// Longest wait between two attempts to connect again.
pub const RECONNECT_DELAY_MAX: Duration = Duration::from_secs(10);

impl HostConfig {
    /// One lane, no digests, the defaults of nvme-cli for times.
    #[must_use]
    pub fn new(
        address: impl Into<Address>,
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
            keys: Keys::default(),
            lanes: 1,
            inherited: Vec::new(),
            cores: Vec::new(),
            reactors: None,
            placement: Placement::default(),
            queue_entries: 128,
            digests: Digests::default(),
            policy: PolicyConfig::auto(),
            class: Class::Normal,
            express: true,
            waiting: Waiting::default(),
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

    /// Reactors for `lanes` lanes: none is without one.
    pub(super) fn reactor_count(&self, lanes: usize) -> usize {
        self.reactors.unwrap_or(self.cores.len()).clamp(1, lanes.max(1))
    }

    /// The core of the reactor that lane `number` (over all reactors) is dealt to, if that has one.
    pub(super) fn core_of(&self, number: usize) -> Option<usize> {
        let reactors = self.reactors.unwrap_or(self.cores.len()).max(1);
        self.cores.get(number % reactors % self.cores.len().max(1)).copied()
    }

    /// Whether there are several paths, or may be.
    pub(super) fn has_paths(&self) -> bool {
        !self.more_addresses.is_empty() || self.discovery.is_some()
    }

    /// Paths that there may be at once.
    pub(super) fn paths_max(&self) -> usize {
        let paths = 1 + self.more_addresses.len();
        if self.discovery.is_some() { paths.max(DISCOVERED_PATHS_MAX) } else { paths }
    }

    /// The addresses of all paths.
    pub(super) fn addresses(&self) -> impl Iterator<Item = &Address> {
        std::iter::once(&self.address).chain(&self.more_addresses)
    }

    /// What one of several paths is connected with: another one is there, so nobody waits long for a target that is silent.
    pub(super) fn of_path(&self, address: &Address) -> HostConfig {
        let mut config = HostConfig { address: address.clone(), ..self.clone() };
        if self.has_paths() && !self.keep_alive.is_zero() {
            config.timeout = self.timeout.min((self.keep_alive / 2).max(ANSWER_MIN));
        }
        config
    }

    /// Express connections that so many lanes may have on this path: none over Ethernet, where urgent frames pass others
    /// anyway.
    pub(super) fn expresses(&self, lanes: u32) -> u32 {
        let has_sockets = self.address.as_ether().is_none();
        if self.express && has_sockets { lanes.min(EXPRESSES_MAX) } else { 0 }
    }

    /// Whether lanes of any path may have one.
    pub(super) fn may_express(&self) -> bool {
        self.express && self.addresses().any(|address| address.as_ether().is_none())
    }

    /// What a controller is connected with.
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
                Address::Ether(address) => address.seals(),
                Address::Tcp(_) | Address::Name(_) => SealUse::Off,
            },
            concatenates: self
                .tls
                .as_ref()
                .is_some_and(|tls| matches!(tls.key, HostKey::Authentication)),
        }
    }

    /// Whether its connections are secured with a key that it has; `None`: with one that is made.
    pub(super) fn secures(&self) -> Option<bool> {
        match &self.tls {
            Some(HostTls { key: HostKey::Authentication, .. }) => None,
            tls => Some(tls.is_some()),
        }
    }

    /// The PSKs of a connection; `made` is one that was made for it.
    pub(super) fn psk(&self, made: Option<&TlsPsk>) -> Option<OfferedPsk> {
        let HostTls { key, identity, blocks_max } = self.tls.as_ref()?;
        let of = |key: &TlsKey, version| {
            let derivation = Derivation { version, compat: false };
            key.tls_psk_by(&self.host_nqn, &self.subsystem_nqn, derivation)
        };
        let (psk, other) = match (key, identity) {
            (HostKey::Configured(key), Some(version)) => (of(key, *version), None),
            (HostKey::Configured(key), None) => {
                (of(key, IdentityVersion::V1), Some(of(key, IdentityVersion::V0)))
            }
            (HostKey::Derived(psk), _) => (psk.clone(), None),
            (HostKey::Authentication, _) => (made?.clone(), None),
        };
        Some(OfferedPsk { psk, other, blocks_max: *blocks_max })
    }

    /// How an association with `lanes` lanes is kept.
    pub(super) fn association(
        &self,
        lanes: u32,
        beside: Option<Beside>,
        old_commands: OldCommands,
    ) -> association::Config {
        association::Config {
            wants: self.wants(),
            lanes,
            expresses: self.expresses(lanes),
            reconnect_delay: self.reconnect_delay,
            reconnect_delay_max: RECONNECT_DELAY_MAX,
            controller_loss_timeout: self.controller_loss_timeout,
            fast_io_fail_timeout: self.fast_io_fail_timeout,
            beside,
            old_commands,
        }
    }
}
