//! Configuration of `serve`, from flags or from a TOML file.

mod ana;
mod discovery;
mod management;
mod policy;
mod spelling;

pub(crate) use ana::listener_of;

pub(crate) use spelling::{SettingForm, Spelling};

pub use discovery::{DiscoverySpec, ReferralSettings};

use crate::addresses::Addresses;
use crate::args::{
    AnaName, AnaPort, EtherArgs, ExportArgs, LimitArgs, ListenerAna, ListenerTls, LvStoreArg,
    MemberArgs, PlacementName, PolicyArgs, RpcServeArgs, ServeArgs, SlowOverName, TlsMode,
    TransportName, WaitArgs,
};
use crate::connect::resolve;
use crate::failure::{CommandFailure, CommandResult};
pub use crate::keys::authentication::HostSpec;
use crate::keys::authentication::{self, AuthenticationSpec};
use crate::namespace::NamespaceSettings;
use crate::rates::RateArgs;
use crate::tls::TlsSpec;
use crate::units::{CoreList, seconds_field, show_bytes};
use crate::usage::readable;
use roadtrain_target_engine::{ConnectionLimits, ServerConfig, Subsystem, TlsUse};
use roadtrain_target_proto::rate::RateSettings;
use roadtrain_target_proto::{ANA_GROUPS_MAX, HostAuthentication, TargetConfig, TargetLimits};
use roadtrain_wire::pdu::Digests;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Default size of the memory for data in flight.
const POOL_BYTES: u64 = 128 << 20;

/// Configuration of `serve`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServeConfig {
    /// Addresses or names to listen on.
    #[serde(default, skip_serializing_if = "Addresses::is_empty")]
    pub address: Addresses,
    /// TCP port; 0 lets the system choose.
    #[serde(default = "default_port")]
    pub port: u16,
    /// Cores to pin reactors to, one for each; `None`: one reactor, not pinned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cores: Option<CoreList>,
    /// Objects kept on one NUMA node.
    #[serde(default)]
    pub placement: PlacementName,
    /// Log level.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_level: Option<String>,
    /// HTTP address of metrics, the charts page and the health check.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<SocketAddr>,
    /// True to take connections over MPTCP beside TCP.
    #[serde(default, skip_serializing_if = "is_false")]
    pub mptcp: bool,
    /// True to announce the discovery service on the local network.
    #[serde(default, skip_serializing_if = "is_false")]
    pub mdns: bool,
    /// Time limit of a shutdown.
    #[serde(default, with = "seconds_field", skip_serializing_if = "Option::is_none")]
    pub drain_timeout: Option<Duration>,
    /// Folders below which JSON-RPC requests may open files and devices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub file_roots: Vec<PathBuf>,
    /// Unix socket for JSON-RPC requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rpc: Option<PathBuf>,
    /// HTTP address for JSON-RPC requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rpc_http: Option<SocketAddr>,
    /// File with the users who may send requests over HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rpc_credentials: Option<PathBuf>,
    /// Permits JSON-RPC over HTTP at any address, without TLS.
    #[serde(default, skip_serializing_if = "is_false")]
    pub rpc_http_anywhere: bool,
    /// File with the objects made by JSON-RPC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<PathBuf>,
    /// Threshold for recording slow commands.
    #[serde(default, skip_serializing_if = "SlowOverName::is_default")]
    pub slow_over: SlowOverName,
    /// Batching policy.
    #[serde(default)]
    pub batching: PolicyArgs,
    /// Waiting: polling or blocking.
    #[serde(default)]
    pub waiting: WaitArgs,
    /// Limits of hosts.
    #[serde(default)]
    pub limits: LimitArgs,
    /// ANA states of the paths through listeners.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ana: BTreeMap<AnaPort, AnaName>,
    /// TLS on TCP connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsSpec>,
    /// Interfaces to listen on for frames.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ether: Option<EtherSpec>,
    /// Further addresses to listen on, with settings of their own.
    #[serde(default, rename = "listener", skip_serializing_if = "Vec::is_empty")]
    pub listeners: Vec<ListenerSettings>,
    /// Stores of volumes.
    #[serde(default, rename = "lvstore", skip_serializing_if = "Vec::is_empty")]
    pub lvstores: Vec<LvStoreArg>,
    /// Further entries of the discovery log.
    #[serde(default, skip_serializing_if = "is_default")]
    pub discovery: DiscoverySpec,
    /// Authentication of hosts.
    #[serde(default, skip_serializing_if = "is_default")]
    pub authentication: AuthenticationSpec,
    /// Keys of hosts.
    #[serde(default, rename = "host", skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostSpec>,
    /// Subsystems to export.
    #[serde(default, rename = "subsystem")]
    pub subsystems: Vec<SubsystemSettings>,
    /// Source of the settings, for messages.
    #[serde(skip)]
    pub(crate) spelling: Spelling,
}

/// Interfaces to listen on for frames, without TCP and IP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EtherSpec {
    /// Their names.
    pub interfaces: Addresses,
    /// Format of frames.
    #[serde(flatten)]
    pub frames: EtherArgs,
}

/// A TCP address to listen on, with settings of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListenerSettings {
    /// Address or name.
    pub address: String,
    /// TCP port; `None`: the default port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Use of TLS; `None`: as for all listeners.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsMode>,
}

fn is_false(value: &bool) -> bool {
    !value
}

fn is_default<T: Default + PartialEq>(spec: &T) -> bool {
    *spec == T::default()
}

/// One subsystem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubsystemSettings {
    /// Its NQN.
    pub nqn: String,
    /// Serial number, at most 20 characters; derived from the NQN when missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// Model number, at most 40 characters; `None`: the product's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// NQNs of the hosts that may connect; `None`: any host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_hosts: Option<BTreeSet<String>>,
    /// Hosts without a key for authentication are refused.
    #[serde(default, skip_serializing_if = "is_false")]
    pub require_auth: bool,
    /// Connections without TLS are refused.
    #[serde(default, skip_serializing_if = "is_false")]
    pub require_tls: bool,
    /// Rate limits of hosts over all namespaces, by host NQN.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub host_rates: BTreeMap<String, RateArgs>,
    /// ANA states of groups at listeners.
    #[serde(default, rename = "ana_group", skip_serializing_if = "Vec::is_empty")]
    pub ana_groups: Vec<AnaGroupSettings>,
    /// Its namespaces.
    #[serde(default, rename = "namespace")]
    pub namespaces: Vec<NamespaceSettings>,
}

/// ANA state of a group of a subsystem at a listener, instead of the listener's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnaGroupSettings {
    /// ANA group of namespaces, 1 to 512.
    pub group: u32,
    /// The listener.
    pub listener: AnaPort,
    /// The state.
    pub state: AnaName,
}

pub(crate) fn default_port() -> u16 {
    4420
}

impl ServeConfig {
    /// Builds the configuration from the command line: its file, or its flags.
    ///
    /// # Errors
    /// The first error.
    pub fn from_args(args: &ServeArgs) -> CommandResult<ServeConfig> {
        match &args.config {
            Some(path) => ServeConfig::read_for(path, &args.rpc),
            None => ServeConfig::from_flags(args).map_err(CommandFailure::usage),
        }
    }

    /// Reads the configuration from a file.
    ///
    /// # Errors
    /// The first error, with the file's name and line.
    pub fn read(path: &Path) -> CommandResult<ServeConfig> {
        ServeConfig::read_for(path, &RpcServeArgs::default())
    }

    /// Reads a file; the RPC options of the command line win over its keys.
    ///
    /// # Errors
    /// The first error, with the file's name and line.
    pub(crate) fn read_for(path: &Path, args: &RpcServeArgs) -> CommandResult<ServeConfig> {
        let show = path.display();
        let text =
            fs::read_to_string(path).map_err(|e| CommandFailure::usage(format!("{show}: {e}")))?;
        let config = ServeConfig::parse_for(&text, args);
        config.map_err(|e| CommandFailure::usage(format!("{show}: {e}")))
    }

    /// Parses the text of a file.
    ///
    /// # Errors
    /// The first error.
    pub fn parse(text: &str) -> Result<ServeConfig, String> {
        ServeConfig::parse_for(text, &RpcServeArgs::default())
    }

    fn parse_for(text: &str, args: &RpcServeArgs) -> Result<ServeConfig, String> {
        let config = toml::from_str(text).map_err(|e| readable(&e.to_string()));
        let mut config: ServeConfig = config?;
        config.apply_rpc_options(args);
        config.check(false)?;
        Ok(config)
    }

    /// Parses the configuration of a gateway group, which may have nothing to export yet.
    ///
    /// # Errors
    /// The first error.
    #[cfg(feature = "rbd")]
    pub(crate) fn parse_group(text: &str) -> Result<ServeConfig, String> {
        let config: ServeConfig = toml::from_str(text).map_err(|e| e.message().to_owned())?;
        config.check_of_group()?;
        Ok(config)
    }

    fn from_flags(args: &ServeArgs) -> Result<ServeConfig, String> {
        args.policy.check_options(None)?;
        check_member(&args.member)?;
        let ExportArgs {
            transport,
            traddr,
            trsvcid,
            nqn,
            serial,
            model,
            namespaces,
            allow_hosts,
            mptcp,
            mdns,
            ana,
            drain_timeout,
            cores,
            placement,
        } = args.export.clone();
        let (interfaces, mut addresses) = split_transports(traddr, transport);
        let listeners = take_listeners(&mut addresses, &args.security.tls_at)?;
        let (frames, interfaces) = (args.ether, Addresses(interfaces));
        let ether = (!interfaces.is_empty()).then_some(EtherSpec { interfaces, frames });
        let allow_hosts = (!allow_hosts.is_empty()).then(|| allow_hosts.into_iter().collect());
        let subsystem = nqn.map(|nqn| SubsystemSettings {
            serial,
            model,
            allow_hosts,
            namespaces: assign_nsids(namespaces),
            ..SubsystemSettings::new(nqn)
        });
        let mut config = ServeConfig {
            address: Addresses(addresses),
            port: trsvcid,
            cores,
            placement,
            log_level: args.log_level.clone(),
            metrics: args.metrics,
            mptcp,
            mdns,
            drain_timeout,
            ana: ana.into_iter().map(|ListenerAna { port, state }| (port, state)).collect(),
            slow_over: args.slow_over,
            batching: args.policy.clone(),
            waiting: args.wait,
            limits: args.limits.clone(),
            tls: TlsSpec::from_args(&args.security)?,
            ether,
            listeners,
            discovery: DiscoverySpec::default(),
            authentication: AuthenticationSpec::of(&args.security),
            hosts: authentication::hosts(&args.security)?,
            file_roots: args.rpc.file_roots.clone(),
            rpc: None,
            rpc_http: None,
            rpc_credentials: None,
            rpc_http_anywhere: false,
            state: None,
            lvstores: Vec::new(),
            subsystems: subsystem.into_iter().collect(),
            spelling: Spelling::of_command_line(),
        };
        config.apply_rpc_options(&args.rpc);
        // The configuration of a group is checked after its object has been read.
        if args.member.gateway_group.is_none() {
            config.check(false)?;
        }
        Ok(config)
    }

    /// Formats the configuration as a TOML file.
    #[must_use]
    pub fn to_toml(&self) -> String {
        // Cannot fail: every field is a string, number, bool, list or table, tables last.
        toml::to_string(self).unwrap_or_else(|e| format!("# {e}\n"))
    }

    /// Returns the keys that differ in `new` and that a reload cannot change.
    #[must_use]
    pub fn needs_restart(&self, new: &ServeConfig) -> Vec<String> {
        let fixed = |c: &ServeConfig| {
            let (address, subsystems, hosts) = (Addresses::default(), Vec::new(), Vec::new());
            let authentication = AuthenticationSpec::default();
            let tls = None;
            let c = ServeConfig { listeners: Vec::new(), ana: BTreeMap::new(), ..c.clone() };
            let c = ServeConfig { address, port: 0, subsystems, hosts, authentication, tls, ..c };
            // Cannot fail, as above.
            toml::Table::try_from(c).unwrap_or_default()
        };
        let (old, new) = (fixed(self), fixed(new));
        let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        let changed = keys.into_iter().filter(|key| old.get(*key) != new.get(*key));
        changed.cloned().collect()
    }

    /// Checks the configuration of a gateway group, which may have nothing to export yet.
    ///
    /// # Errors
    /// The first error.
    #[cfg(feature = "rbd")]
    pub(crate) fn check_of_group(&self) -> Result<(), String> {
        self.check(true)
    }

    /// Checks the configuration. One that is managed by RPC, or belongs to a gateway group, may export nothing at
    /// first.
    fn check(&self, is_of_group: bool) -> Result<(), String> {
        self.check_management()?;
        let (is_managed, spelling) = (is_of_group || self.is_managed(), &self.spelling);
        let is_needed = self.ether.is_none() && self.listeners.is_empty() && !is_managed;
        if let Some(ether) = &self.ether {
            ether.check(spelling)?;
        }
        if is_needed || !self.address.is_empty() {
            self.address.check("address", spelling)?;
        }
        self.check_limits()?;
        authentication::check(&self.authentication, &self.hosts, spelling)?;
        self.tls.as_ref().map_or(Ok(()), |tls| tls.check(spelling))?;
        self.check_policy()?;
        if self.requires_seal() && self.hosts.iter().all(|host| host.dhchap_key.is_none()) {
            let seal = spelling.form("ether.seal").text("ether.seal", "required");
            let advice = spelling.add_dhchap_key();
            return Err(format!("{seal} without a key admits no host: {advice}"));
        }
        if self.tls_mode() == TlsMode::Required && self.ether.is_some() {
            let tls = spelling.form("tls.mode").text("tls.mode", "required");
            return Err(format!(
                "{tls}: there is no TLS over Ethernet, so it cannot be required beside it"
            ));
        }
        if self.subsystems.is_empty() && !is_managed {
            let advice = match spelling.is_command_line() {
                true => "give --nqn and --namespace",
                false => "add a [[subsystem]] with an nqn",
            };
            return Err(format!("nothing to export: {advice}"));
        }
        self.exports().map(drop)
    }

    /// Builds the subsystems for the engine.
    ///
    /// # Errors
    /// The first error in the subsystems.
    pub(crate) fn exports(&self) -> Result<Vec<Subsystem>, String> {
        let subsystem = |spec: &SubsystemSettings| {
            spec.subsystem().map_err(|error| format!("subsystem {}: {error}", spec.nqn))
        };
        let subsystems = self.subsystems.iter().map(subsystem).collect::<Result<_, _>>()?;
        let referrals = self.discovery.addresses();
        let exports = TargetConfig { subsystems, referrals, ..TargetConfig::default() };
        exports.check().map_err(|error| error.to_string())?;
        Ok(exports.subsystems)
    }

    /// Builds the engine's configuration.
    ///
    /// # Errors
    /// The first error.
    pub fn server(&self) -> CommandResult<ServerConfig> {
        let (requested, granted) = (&self.limits, TargetLimits::default());
        let subsystems = self.reachable_exports()?;
        let base = ServerConfig::new(self.addresses()?, subsystems);
        let pool_bytes = requested.buffers.unwrap_or(POOL_BYTES);
        let ether =
            self.ether.as_ref().map(|ether| ether.frames.listen(ether.interfaces.0.clone()));
        let (tls, tls_at) = (self.tls.as_ref().filter(|_| self.uses_tls()), self.tls_at()?);
        let tls = tls.map(|tls| tls.config(tls_at)).transpose()?;
        if let Some(tls) = &tls {
            self.check_keys(&tls.keys).map_err(CommandFailure::usage)?;
        }
        Ok(ServerConfig {
            mptcp: self.mptcp,
            tls,
            ether: ether.transpose().map_err(CommandFailure::usage)?,
            referrals: self.discovery.addresses(),
            ana: self.ana_states()?,
            authentication: self.authentication()?,
            limits: TargetLimits {
                io_queues_max: requested.max_queues.unwrap_or(granted.io_queues_max),
                queue_entries_max: requested.queue_size.unwrap_or(granted.queue_entries_max),
                controllers_max: requested.max_controllers.unwrap_or(granted.controllers_max),
                host_controllers_max: requested
                    .max_controllers_per_host
                    .unwrap_or(granted.host_controllers_max),
                host_queues_max: requested
                    .max_connections_per_host
                    .unwrap_or(granted.host_queues_max),
                in_capsule_bytes_max: requested
                    .in_capsule_bytes
                    .unwrap_or(granted.in_capsule_bytes_max),
                cntlid_min: requested.cntlid_range.map_or(granted.cntlid_min, |range| range.min),
                cntlid_max: requested.cntlid_range.map_or(granted.cntlid_max, |range| range.max),
                ..granted
            },
            connections: ConnectionLimits {
                all: requested.max_connections.unwrap_or(base.connections.all),
                per_address: requested
                    .max_connections_per_address
                    .unwrap_or(base.connections.per_address),
            },
            digests: Digests { header: !requested.no_hdgst, data: !requested.no_ddgst },
            maxh2cdata: requested.max_h2c_data.unwrap_or(base.maxh2cdata),
            policy: self.batching.config(),
            cores: self.cores.clone().unwrap_or_default().0,
            placement: self.placement.into(),
            pool_bytes: usize::try_from(pool_bytes).map_err(|_| {
                CommandFailure::usage(format!(
                    "{} is too large",
                    self.spelling.name("limits.buffers")
                ))
            })?,
            waiting: self.waiting.waiting(),
            slow_over: self.slow_over.into(),
            drain_timeout: self.drain_timeout.unwrap_or(base.drain_timeout),
            ..base
        })
    }

    /// Reads the authentication settings, with the keys of their files.
    ///
    /// # Errors
    /// A key cannot be read, or is invalid.
    pub(crate) fn authentication(&self) -> CommandResult<HostAuthentication> {
        let of = |is_so: fn(&SubsystemSettings) -> bool| {
            self.subsystems.iter().filter(|one| is_so(one)).map(|one| one.nqn.clone()).collect()
        };
        let read = self.authentication.read(&self.hosts, &self.spelling)?;
        Ok(HostAuthentication {
            required: read.required || self.requires_seal(),
            required_at: of(|subsystem| subsystem.require_auth),
            tls_at: of(|subsystem| subsystem.require_tls),
            ..read
        })
    }

    /// True if frames have to be sealed: then hosts have to authenticate.
    fn requires_seal(&self) -> bool {
        self.ether.as_ref().is_some_and(|ether| ether.frames.requires_seal())
    }

    /// True if a listener has TLS.
    fn uses_tls(&self) -> bool {
        self.tls_mode() != TlsMode::Off || self.tls_modes().values().any(|tls| *tls != TlsMode::Off)
    }

    /// Returns the use of TLS of every address, as written.
    fn tls_modes(&self) -> BTreeMap<(String, u16), TlsMode> {
        let plain = self.address.0.iter();
        let plain = plain.map(|address| ((address.clone(), self.port), self.tls_mode()));
        let own = self.listeners.iter().map(|one| {
            let at = (one.address.clone(), one.port.unwrap_or(self.port));
            (at, one.tls.unwrap_or(self.tls_mode()))
        });
        plain.chain(own).collect()
    }

    /// Returns the use of TLS of addresses that differ from the default.
    ///
    /// # Errors
    /// A name that resolves to no address.
    pub(crate) fn tls_at(&self) -> CommandResult<BTreeMap<SocketAddr, TlsUse>> {
        let own = self.listeners.iter().filter_map(|one| Some((one, one.tls?)));
        let at = |(one, tls): (&ListenerSettings, TlsMode)| {
            Ok((resolve(&one.address, one.port.unwrap_or(self.port))?, tls.into()))
        };
        own.map(at).collect()
    }

    /// Returns the default use of TLS over TCP.
    pub(crate) fn tls_mode(&self) -> TlsMode {
        self.tls.as_ref().map_or(TlsMode::Off, |tls| tls.mode)
    }

    /// Returns the addresses to listen on.
    ///
    /// # Errors
    /// A name that resolves to no address.
    pub(crate) fn addresses(&self) -> CommandResult<Vec<SocketAddr>> {
        let plain = self.address.0.iter().map(|address| resolve(address, self.port));
        let own = self.listeners.iter();
        let own = own.map(|one| resolve(&one.address, one.port.unwrap_or(self.port)));
        plain.chain(own).collect()
    }

    /// Checks for a file what clap checks on the command line.
    fn check_limits(&self) -> Result<(), String> {
        let (limits, spelling) = (&self.limits, &self.spelling);
        let written = |name: &str, value: String| spelling.form(name).value(name, value);
        let within = |name: &str, value: Option<u64>, least: u64, most: u64| match value {
            Some(value) if value < least || value > most => {
                Err(format!("{}: write {least} to {most}", written(name, value.to_string())))
            }
            _ => Ok(()),
        };
        let size = |name: &str, value: Option<u64>, least: u64, most: u64| match value {
            Some(value) if value < least || value > most => {
                let [value, least, most] = [value, least, most].map(show_bytes);
                Err(format!("{}: write {least} to {most}", written(name, value)))
            }
            _ => Ok(()),
        };
        within("limits.max_queues", limits.max_queues.map(u64::from), 1, 1024)?;
        let connections = 2..=1 << 20;
        for (name, value) in [
            ("limits.max_connections", limits.max_connections),
            ("limits.max_connections_per_address", limits.max_connections_per_address),
            ("limits.max_connections_per_host", limits.max_connections_per_host),
        ] {
            within(name, value.map(u64::from), *connections.start(), *connections.end())?;
        }
        for (name, value) in [
            ("limits.max_controllers", limits.max_controllers),
            ("limits.max_controllers_per_host", limits.max_controllers_per_host),
        ] {
            within(name, value.map(u64::from), 1, 65519)?;
        }
        within("limits.queue_size", limits.queue_size.map(u64::from), 32, 4096)?;
        let in_capsule = limits.in_capsule_bytes.map(u64::from);
        size("limits.in_capsule_bytes", in_capsule, 0, 1 << 20)?;
        size("limits.max_h2c_data", limits.max_h2c_data.map(u64::from), 4096, 1 << 30)?;
        size("limits.buffers", limits.buffers, 4 << 20, 1 << 46)?;
        self.batching.check().map_err(|e| format!("[batching]: {e}"))?;
        within("waiting.spin_us", self.waiting.spin_us.map(u64::from), 0, 100_000)?;
        self.waiting.check()?;
        if in_capsule.is_some_and(|bytes| bytes % 16 != 0) {
            return Err(format!(
                "{} must be a multiple of 16",
                spelling.name("limits.in_capsule_bytes")
            ));
        }
        if limits.max_h2c_data.is_some_and(|bytes| bytes % 4 != 0) {
            return Err(format!(
                "{} must be a multiple of 4",
                spelling.name("limits.max_h2c_data")
            ));
        }
        let levels = ["error", "warn", "info", "debug", "trace"];
        match &self.log_level {
            Some(level) if !levels.contains(&level.as_str()) => {
                let given = spelling.form("log_level").text("log_level", level);
                Err(format!("{given} is not one of {}", levels.join(", ")))
            }
            _ => Ok(()),
        }
    }
}

/// Removes from `addresses` those with `--tls-at`, and returns them as listeners.
fn take_listeners(
    addresses: &mut Vec<String>,
    own: &[ListenerTls],
) -> Result<Vec<ListenerSettings>, String> {
    let take = |ListenerTls { address, tls }: &ListenerTls| {
        let at = addresses.iter().position(|one| one == address);
        let at = at.ok_or_else(|| format!("--tls-at: {address} is not one of --traddr"))?;
        let address = addresses.remove(at);
        Ok(ListenerSettings { address, port: None, tls: Some(*tls) })
    };
    own.iter().map(take).collect()
}

/// Checks that options for a gateway of a group are not given without a group.
fn check_member(member: &MemberArgs) -> Result<(), String> {
    let says = member.pool.is_some() || member.gateway.is_some();
    match member.gateway_group.is_none() && says {
        true => Err("--pool and --gateway go with --group".into()),
        false => Ok(()),
    }
}

impl EtherSpec {
    fn check(&self, spelling: &Spelling) -> Result<(), String> {
        self.interfaces.check("ether.interfaces", spelling)?;
        let named = |error: String| match spelling.is_command_line() {
            true => error.replace("port-kind", "--port-kind").replace("vlan", "--vlan"),
            false => format!("[ether]: {}", error.replace("port-kind", "port_kind")),
        };
        self.frames.check().map_err(named)
    }
}

/// Splits entries into interfaces and addresses: an entry that does not name its transport has the given one.
fn split_transports(entries: Vec<String>, transport: TransportName) -> (Vec<String>, Vec<String>) {
    let (mut interfaces, mut addresses) = (Vec::new(), Vec::new());
    for entry in entries {
        match (entry.strip_prefix("ether:"), entry.strip_prefix("tcp:"), transport) {
            (Some(interface), ..) => interfaces.push(interface.to_owned()),
            (_, Some(address), _) => addresses.push(address.to_owned()),
            (.., TransportName::Ether) => interfaces.push(entry),
            (.., TransportName::Tcp) => addresses.push(entry),
        }
    }
    (interfaces, addresses)
}

impl SubsystemSettings {
    /// Creates a subsystem without namespaces that any host may use.
    pub(crate) fn new(nqn: String) -> SubsystemSettings {
        SubsystemSettings {
            nqn,
            serial: None,
            model: None,
            allow_hosts: None,
            require_auth: false,
            require_tls: false,
            host_rates: BTreeMap::new(),
            ana_groups: Vec::new(),
            namespaces: Vec::new(),
        }
    }

    /// Builds the subsystem for the engine.
    ///
    /// # Errors
    /// An invalid namespace.
    pub(crate) fn subsystem(&self) -> Result<Subsystem, String> {
        let plain = Subsystem::new(self.nqn.clone());
        let mut groups = self.ana_groups.iter().map(|one| one.group);
        if let Some(group) = groups.find(|group| !(1..=ANA_GROUPS_MAX).contains(group)) {
            return Err(format!(
                "ana_group: group = {group}: choose a number from 1 to {ANA_GROUPS_MAX}"
            ));
        }
        Ok(Subsystem {
            serial: self.serial.clone(),
            model: self.model.clone().unwrap_or(plain.model),
            allowed_hosts: self.allow_hosts.clone(),
            host_rates: self.host_rates()?,
            namespaces: self
                .namespaces
                .iter()
                .map(NamespaceSettings::export)
                .collect::<Result<_, _>>()?,
            ..plain
        })
    }
}

impl SubsystemSettings {
    fn host_rates(&self) -> Result<BTreeMap<String, RateSettings>, String> {
        let rates = |(host, rates): (&String, &RateArgs)| {
            let rates = rates.rates_as(SettingForm::Key);
            let rates = rates.map_err(|error| format!("host_rates of {host}: {error}"))?;
            Ok(rates.is_limited().then(|| (host.clone(), rates)))
        };
        self.host_rates.iter().map(rates).filter_map(Result::transpose).collect()
    }
}

/// Gives namespaces without an NSID the next free one, in order.
#[must_use]
pub fn assign_nsids(mut namespaces: Vec<NamespaceSettings>) -> Vec<NamespaceSettings> {
    let mut taken: BTreeSet<u32> = namespaces.iter().filter_map(|n| n.nsid).collect();
    for namespace in namespaces.iter_mut().filter(|n| n.nsid.is_none()) {
        namespace.nsid = (1..).find(|nsid| taken.insert(*nsid));
    }
    namespaces
}

#[cfg(test)]
mod tests;
