//! What `serve` exports: from flags or from a TOML file, in one shape.

mod ana;
mod policy;

pub(crate) use ana::listener_of;

use crate::addresses::Addresses;
use crate::args::{
    AnaAt, AnaName, AnaPort, EtherArgs, ExportArgs, LimitArgs, PlacementName, PolicyArgs,
    ServeArgs, TlsAt, TlsMode, Transport, WaitArgs,
};
use crate::connect::resolve;
use crate::failure::{Failure, Outcome};
use crate::keys::authentication::{self, AuthenticationSpec};
use crate::namespace::NamespaceSpec;
use crate::tls::TlsSpec;
use crate::units::{CoreList, seconds_field};
use roadtrain_engine::target::{ConnectionLimits, ServerConfig, Subsystem, TlsUse};
use roadtrain_proto::target::{Authentication, Limits, TargetConfig};
use roadtrain_wire::pdu::Digests;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// Memory for data in flight unless told otherwise.
const POOL_BYTES: u64 = 128 << 20;

/// The whole of it.
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
    /// What is kept on one NUMA node.
    #[serde(default)]
    pub placement: PlacementName,
    /// Log level.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_level: Option<String>,
    /// How long the end may take.
    #[serde(default, with = "seconds_field", skip_serializing_if = "Option::is_none")]
    pub drain_timeout: Option<Duration>,
    /// When to send.
    #[serde(default)]
    pub batching: PolicyArgs,
    /// How to wait.
    #[serde(default)]
    pub waiting: WaitArgs,
    /// What hosts are granted.
    #[serde(default)]
    pub limits: LimitArgs,
    /// How good the ways are that listeners give.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ana: BTreeMap<AnaPort, AnaName>,
    /// How connections over TCP are secured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsSpec>,
    /// Interfaces to listen on for frames.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ether: Option<EtherSpec>,
    /// More addresses to listen on, each with what it asks for.
    #[serde(default, rename = "listener", skip_serializing_if = "Vec::is_empty")]
    pub listeners: Vec<ListenerSpec>,
    /// Whom the target asks for authentication.
    #[serde(default, skip_serializing_if = "is_default")]
    pub authentication: AuthenticationSpec,
    /// Keys of hosts.
    #[serde(default, rename = "host", skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostSpec>,
    /// What to export.
    #[serde(default, rename = "subsystem")]
    pub subsystems: Vec<SubsystemSpec>,
}

/// Interfaces to listen on for frames, without TCP and IP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EtherSpec {
    /// Their names.
    pub interfaces: Addresses,
    /// How frames are.
    #[serde(flatten)]
    pub frames: EtherArgs,
}

/// An address to listen on over TCP, with what it asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListenerSpec {
    /// Address or name.
    pub address: String,
    /// TCP port; `None`: that of all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Whether its connections are secured; `None`: as all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsMode>,
}

/// A host, and where its keys are. The keys themselves are never in a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostSpec {
    /// Its NQN.
    pub nqn: String,
    /// File with its key for authentication.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dhchap_key: Option<String>,
    /// File with the key by which the target proves who it is to this host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dhchap_ctrl_key: Option<String>,
}

fn is_false(value: &bool) -> bool {
    !value
}

fn is_default(spec: &AuthenticationSpec) -> bool {
    *spec == AuthenticationSpec::default()
}

/// One subsystem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubsystemSpec {
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
    /// Its namespaces.
    #[serde(default, rename = "namespace")]
    pub namespaces: Vec<NamespaceSpec>,
}

pub(crate) fn default_port() -> u16 {
    4420
}

impl ServeConfig {
    /// From the command line: its file, or its flags.
    ///
    /// # Errors
    /// What is wrong first.
    pub fn from_args(args: &ServeArgs) -> Outcome<ServeConfig> {
        match &args.config {
            Some(path) => ServeConfig::read(path),
            None => ServeConfig::from_flags(args).map_err(Failure::usage),
        }
    }

    /// From a file.
    ///
    /// # Errors
    /// What is wrong first, with the file's name and line.
    pub fn read(path: &Path) -> Outcome<ServeConfig> {
        let show = path.display();
        let text = fs::read_to_string(path).map_err(|e| Failure::usage(format!("{show}: {e}")))?;
        ServeConfig::parse(&text).map_err(|e| Failure::usage(format!("{show}: {e}")))
    }

    /// From the text of a file.
    ///
    /// # Errors
    /// What is wrong first.
    pub fn parse(text: &str) -> Result<ServeConfig, String> {
        let config: ServeConfig = toml::from_str(text).map_err(|e| e.to_string())?;
        config.check()?;
        Ok(config)
    }

    fn from_flags(args: &ServeArgs) -> Result<ServeConfig, String> {
        args.policy.check_options(None)?;
        let ExportArgs {
            transport,
            traddr,
            trsvcid,
            nqn,
            namespaces,
            allow_hosts,
            ana,
            drain_timeout,
            cores,
            placement,
        } = args.export.clone();
        let (interfaces, mut addresses) = sort(traddr, transport);
        let listeners = args.security.tls_at.iter().map(|TlsAt { address, tls }| {
            let at = addresses.iter().position(|one| one == address);
            let at = at.ok_or_else(|| format!("--tls-at: {address} is none of --traddr"))?;
            let address = addresses.remove(at);
            Ok(ListenerSpec { address, port: None, tls: Some(*tls) })
        });
        let listeners = listeners.collect::<Result<_, String>>()?;
        let frames = args.ether;
        let interfaces = Addresses(interfaces);
        let ether = (!interfaces.is_empty()).then_some(EtherSpec { interfaces, frames });
        let allow_hosts = (!allow_hosts.is_empty()).then(|| allow_hosts.into_iter().collect());
        let subsystem = SubsystemSpec {
            nqn: nqn.unwrap_or_default(),
            serial: None,
            model: None,
            allow_hosts,
            require_auth: false,
            require_tls: false,
            namespaces: number(namespaces),
        };
        let config = ServeConfig {
            address: Addresses(addresses),
            port: trsvcid,
            cores,
            placement,
            log_level: args.log_level.clone(),
            drain_timeout,
            ana: ana.into_iter().map(|AnaAt { port, state }| (port, state)).collect(),
            batching: args.policy.clone(),
            waiting: args.wait,
            limits: args.limits.clone(),
            tls: TlsSpec::from_args(&args.security)?,
            ether,
            listeners,
            authentication: AuthenticationSpec::of(&args.security),
            hosts: authentication::hosts(&args.security)?,
            subsystems: vec![subsystem],
        };
        config.check()?;
        Ok(config)
    }

    /// As a TOML file.
    #[must_use]
    pub fn to_toml(&self) -> String {
        // Cannot fail: every field is a string, number, bool, list or table, tables last.
        toml::to_string(self).unwrap_or_else(|e| format!("# {e}\n"))
    }

    /// Settings that a reload cannot change, compared.
    #[must_use]
    pub fn needs_restart(&self, new: &ServeConfig) -> bool {
        let fixed = |c: &ServeConfig| {
            let (address, subsystems, hosts) = (Addresses::default(), Vec::new(), Vec::new());
            let authentication = AuthenticationSpec::default();
            let tls = None;
            let c = ServeConfig { listeners: Vec::new(), ana: BTreeMap::new(), ..c.clone() };
            ServeConfig { address, port: 0, subsystems, hosts, authentication, tls, ..c }
        };
        fixed(self) != fixed(new)
    }

    fn check(&self) -> Result<(), String> {
        match &self.ether {
            Some(ether) => ether.check().map_err(|e| format!("[ether]: {e}"))?,
            None if self.listeners.is_empty() => self.address.check("address")?,
            None => {}
        }
        if !self.address.is_empty() {
            self.address.check("address")?;
        }
        self.check_limits()?;
        authentication::check(&self.authentication, &self.hosts)?;
        self.tls.as_ref().map_or(Ok(()), TlsSpec::check)?;
        self.check_policy()?;
        if self.requires_seal() && self.hosts.iter().all(|host| host.dhchap_key.is_none()) {
            return Err(
                "[ether]: seal required without a key lets nobody in: add a host with a dhchap_key"
                    .into(),
            );
        }
        if self.tls_mode() == TlsMode::Required && self.ether.is_some() {
            return Err(
                "tls: there is no TLS over Ethernet, so it cannot be required beside it".into()
            );
        }
        if self.subsystems.is_empty() {
            return Err("nothing to export: add a [[subsystem]] with an nqn".into());
        }
        self.exports().map(drop)
    }

    /// What the engine exports for it.
    ///
    /// # Errors
    /// What is wrong first with the subsystems.
    pub(crate) fn exports(&self) -> Result<Vec<Subsystem>, String> {
        let subsystem = |spec: &SubsystemSpec| {
            spec.subsystem().map_err(|error| format!("subsystem {}: {error}", spec.nqn))
        };
        let subsystems = self.subsystems.iter().map(subsystem).collect::<Result<_, _>>()?;
        let exports = TargetConfig { subsystems, ..TargetConfig::default() };
        exports.check().map_err(|error| error.to_string())?;
        Ok(exports.subsystems)
    }

    /// What the engine is started with.
    ///
    /// # Errors
    /// What is wrong first.
    pub fn server(&self) -> Outcome<ServerConfig> {
        let (asked, granted) = (&self.limits, Limits::default());
        let subsystems = self.exports().map_err(Failure::usage)?;
        let base = ServerConfig::new(self.addresses()?, subsystems);
        let pool_bytes = asked.buffers.unwrap_or(POOL_BYTES);
        let ether =
            self.ether.as_ref().map(|ether| ether.frames.listen(ether.interfaces.0.clone()));
        let (tls, tls_at) = (self.tls.as_ref().filter(|_| self.uses_tls()), self.tls_at()?);
        let tls = tls.map(|tls| tls.config(tls_at)).transpose()?;
        if let Some(tls) = &tls {
            self.check_keys(&tls.keys).map_err(Failure::usage)?;
        }
        Ok(ServerConfig {
            tls,
            ether: ether.transpose().map_err(Failure::usage)?,
            ana: self.ana_states()?,
            authentication: self.authentication()?,
            limits: Limits {
                io_queues_max: asked.max_queues.unwrap_or(granted.io_queues_max),
                queue_entries_max: asked.queue_size.unwrap_or(granted.queue_entries_max),
                controllers_max: asked.max_controllers.unwrap_or(granted.controllers_max),
                host_controllers_max: asked
                    .max_controllers_per_host
                    .unwrap_or(granted.host_controllers_max),
                host_queues_max: asked.max_connections_per_host.unwrap_or(granted.host_queues_max),
                in_capsule_bytes_max: asked
                    .in_capsule_bytes
                    .unwrap_or(granted.in_capsule_bytes_max),
                cntlid_min: asked.cntlid_range.map_or(granted.cntlid_min, |range| range.min),
                cntlid_max: asked.cntlid_range.map_or(granted.cntlid_max, |range| range.max),
                ..granted
            },
            connections: ConnectionLimits {
                all: asked.max_connections.unwrap_or(base.connections.all),
                per_address: asked
                    .max_connections_per_address
                    .unwrap_or(base.connections.per_address),
            },
            digests: Digests { header: !asked.no_hdgst, data: !asked.no_ddgst },
            maxh2cdata: asked.max_h2c_data.unwrap_or(base.maxh2cdata),
            policy: self.batching.config(),
            cores: self.cores.clone().unwrap_or_default().0,
            placement: self.placement.into(),
            pool_bytes: usize::try_from(pool_bytes)
                .map_err(|_| Failure::usage("--buffers is too large"))?,
            waiting: self.waiting.waiting(),
            drain_timeout: self.drain_timeout.unwrap_or(base.drain_timeout),
            ..base
        })
    }

    /// Whom it asks for authentication, with the keys of their files.
    ///
    /// # Errors
    /// A key that cannot be read, or is none.
    pub(crate) fn authentication(&self) -> Outcome<Authentication> {
        let of = |is_so: fn(&SubsystemSpec) -> bool| {
            self.subsystems.iter().filter(|one| is_so(one)).map(|one| one.nqn.clone()).collect()
        };
        let read = self.authentication.read(&self.hosts)?;
        Ok(Authentication {
            required: read.required || self.requires_seal(),
            required_at: of(|subsystem| subsystem.require_auth),
            tls_at: of(|subsystem| subsystem.require_tls),
            ..read
        })
    }

    /// Whether frames have to be sealed: then hosts have to authenticate.
    fn requires_seal(&self) -> bool {
        self.ether.as_ref().is_some_and(|ether| ether.frames.requires_seal())
    }

    /// Whether some listener has TLS.
    fn uses_tls(&self) -> bool {
        self.tls_mode() != TlsMode::Off || self.tls_modes().values().any(|tls| *tls != TlsMode::Off)
    }

    /// What every address asks for, as it is written.
    fn tls_modes(&self) -> BTreeMap<(String, u16), TlsMode> {
        let plain = self.address.0.iter();
        let plain = plain.map(|address| ((address.clone(), self.port), self.tls_mode()));
        let own = self.listeners.iter().map(|one| {
            let at = (one.address.clone(), one.port.unwrap_or(self.port));
            (at, one.tls.unwrap_or(self.tls_mode()))
        });
        plain.chain(own).collect()
    }

    /// What addresses ask for that do not ask for what all do.
    ///
    /// # Errors
    /// A name that stands for no address.
    pub(crate) fn tls_at(&self) -> Outcome<BTreeMap<SocketAddr, TlsUse>> {
        let own = self.listeners.iter().filter_map(|one| Some((one, one.tls?)));
        let at = |(one, tls): (&ListenerSpec, TlsMode)| {
            Ok((resolve(&one.address, one.port.unwrap_or(self.port))?, tls.into()))
        };
        own.map(at).collect()
    }

    /// Whether connections over TCP are secured.
    pub(crate) fn tls_mode(&self) -> TlsMode {
        self.tls.as_ref().map_or(TlsMode::Off, |tls| tls.mode)
    }

    /// Where it listens for connections.
    ///
    /// # Errors
    /// A name that stands for no address.
    pub(crate) fn addresses(&self) -> Outcome<Vec<SocketAddr>> {
        let plain = self.address.0.iter().map(|address| resolve(address, self.port));
        let own = self.listeners.iter();
        let own = own.map(|one| resolve(&one.address, one.port.unwrap_or(self.port)));
        plain.chain(own).collect()
    }

    /// What clap checks on the command line must hold for a file, too.
    fn check_limits(&self) -> Result<(), String> {
        let limits = &self.limits;
        let within = |name: &str, value: Option<u64>, least: u64, most: u64| match value {
            Some(value) if value < least || value > most => {
                Err(format!("{name} = {value} is not in {least} to {most}"))
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
        within("limits.in_capsule_bytes", in_capsule, 0, 1 << 20)?;
        within("limits.max_h2c_data", limits.max_h2c_data.map(u64::from), 4096, 1 << 30)?;
        within("limits.buffers", limits.buffers, 4 << 20, 1 << 46)?;
        self.batching.check().map_err(|e| format!("[batching]: {e}"))?;
        within("waiting.spin_us", self.waiting.spin_us.map(u64::from), 0, 100_000)?;
        self.waiting.check()?;
        if in_capsule.is_some_and(|bytes| bytes % 16 != 0) {
            return Err("limits.in_capsule_bytes must be a multiple of 16".into());
        }
        if limits.max_h2c_data.is_some_and(|bytes| bytes % 4 != 0) {
            return Err("limits.max_h2c_data must be a multiple of 4".into());
        }
        let levels = ["error", "warn", "info", "debug", "trace"];
        match &self.log_level {
            Some(level) if !levels.contains(&level.as_str()) => {
                Err(format!("log_level = \"{level}\" is none of {}", levels.join(", ")))
            }
            _ => Ok(()),
        }
    }
}

impl EtherSpec {
    fn check(&self) -> Result<(), String> {
        self.interfaces.check("interfaces")?;
        self.frames.check()
    }
}

/// Interfaces, and addresses: an entry that does not name its transport is of the one given.
fn sort(entries: Vec<String>, transport: Transport) -> (Vec<String>, Vec<String>) {
    let (mut interfaces, mut addresses) = (Vec::new(), Vec::new());
    for entry in entries {
        match (entry.strip_prefix("ether:"), entry.strip_prefix("tcp:"), transport) {
            (Some(interface), ..) => interfaces.push(interface.to_owned()),
            (_, Some(address), _) => addresses.push(address.to_owned()),
            (.., Transport::Ether) => interfaces.push(entry),
            (.., Transport::Tcp) => addresses.push(entry),
        }
    }
    (interfaces, addresses)
}

impl SubsystemSpec {
    /// What the engine exports for it.
    ///
    /// # Errors
    /// A namespace that cannot be.
    pub(crate) fn subsystem(&self) -> Result<Subsystem, String> {
        let plain = Subsystem::new(self.nqn.clone());
        Ok(Subsystem {
            serial: self.serial.clone(),
            model: self.model.clone().unwrap_or(plain.model),
            allowed_hosts: self.allow_hosts.clone(),
            namespaces: self
                .namespaces
                .iter()
                .map(NamespaceSpec::export)
                .collect::<Result<_, _>>()?,
            ..plain
        })
    }
}

/// Gives namespaces without a number the next free one, in order.
#[must_use]
pub fn number(mut namespaces: Vec<NamespaceSpec>) -> Vec<NamespaceSpec> {
    let mut taken: BTreeSet<u32> = namespaces.iter().filter_map(|n| n.nsid).collect();
    for namespace in namespaces.iter_mut().filter(|n| n.nsid.is_none()) {
        namespace.nsid = (1..).find(|nsid| taken.insert(*nsid));
    }
    namespaces
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command, PolicyName};
    use crate::namespace::Kind;
    use clap::Parser;
    use roadtrain_engine::host::Class;
    use roadtrain_engine::spin::Waiting;
    use roadtrain_engine::store::{StoreKind, StoreSpec};
    use roadtrain_engine::target::Export;

    const EXAMPLE: &str = include_str!("../../../examples/serve.toml");

    fn flags(line: &str) -> Result<ServeConfig, Failure> {
        let words = ["roadtrain", "serve", "-a", "127.0.0.1", "-n", "nqn.x:y"];
        let cli = Cli::try_parse_from(words.into_iter().chain(line.split_whitespace())).unwrap();
        let Command::Serve(args) = cli.command else { unreachable!() };
        ServeConfig::from_args(&args)
    }

    #[test]
    fn the_example_is_good() {
        let config = ServeConfig::parse(EXAMPLE).unwrap();
        assert!(config.subsystems.len() >= 2);
        let kinds: Vec<Kind> =
            config.subsystems.iter().flat_map(|s| &s.namespaces).map(|n| n.kind).collect();
        for kind in [Kind::Mem, Kind::Ssd, Kind::Null, Kind::File] {
            assert!(kinds.contains(&kind), "the example shows no {kind:?}");
        }
    }

    #[test]
    fn flags_and_their_file_are_the_same() {
        let config = flags(
            "--namespace mem:1GiB,class=latency --namespace file:x,size=8k,lba=4k,ro --policy i10 --cores 0-1 \
             --allow-host nqn.x:h --buffers 16MiB --spin-us 20 --placement none --caravan-bytes 96KiB --no-ddgst",
        )
        .unwrap();
        assert_eq!(config.batching.policy, PolicyName::I10);
        assert!(config.to_toml().contains("address = \"127.0.0.1\"\n"));
        assert_eq!(ServeConfig::parse(&config.to_toml()), Ok(config));
        let several = flags("--namespace mem:4k -a ::1 -a localhost").unwrap();
        assert_eq!(several.address.0, ["127.0.0.1", "::1", "localhost"]);
        assert_eq!(ServeConfig::parse(&several.to_toml()), Ok(several));
        let example = ServeConfig::parse(EXAMPLE).unwrap();
        assert_eq!(ServeConfig::parse(&example.to_toml()), Ok(example));
    }

    #[cfg(feature = "ether")]
    #[test]
    fn addresses_and_interfaces_go_together() {
        let line = "-a ether:eth1,ether:eth2 --vlan 7 --no-data-batching --namespace mem:4k";
        let config = flags(line).unwrap();
        let ether = config.ether.clone().unwrap();
        assert_eq!(config.address.0, ["127.0.0.1"]);
        assert_eq!(ether.interfaces.0, ["eth1", "eth2"]);
        assert_eq!((ether.frames.vlan, ether.frames.packing().pieces), (Some(7), false));
        assert_eq!(ServeConfig::parse(&config.to_toml()), Ok(config));
        let mixed = sort(["a", "tcp:b", "ether:c"].map(String::from).into(), Transport::Ether);
        assert_eq!(mixed, (vec!["a".into(), "c".into()], vec!["b".into()]));
        let head = "[[subsystem]]\nnqn = \"nqn.x:y\"\n[ether]\ninterfaces = ";
        let alone = ServeConfig::parse(&format!("{head}\"eth1\"\n")).unwrap();
        assert!(alone.address.is_empty());
        for (rest, why) in [
            ("[]", "interfaces is empty"),
            ("[\"a\", \"a\"]", "a is there twice"),
            ("\"a\"\nvlan = 4095", "4094"),
            ("\"a\"\nethertype = 12", "EtherType"),
            ("\"a\"\nport_kind = \"fast\"", "fast"),
            ("\"a\"\nvlna = 7", "vlna"),
        ] {
            let error = ServeConfig::parse(&format!("{head}{rest}\n")).expect_err(rest);
            assert!(error.contains(why), "{rest}\n-> {error}");
        }
    }

    #[test]
    fn namespaces_are_numbered_around_those_that_are() {
        let config =
            flags("--namespace mem:4k --namespace mem:4k,nsid=1 --namespace mem:4k").unwrap();
        let nsids: Vec<_> = config.subsystems[0].namespaces.iter().map(|n| n.nsid).collect();
        assert_eq!(nsids, [Some(2), Some(1), Some(3)]);
        for (twice, why) in [("1", "is there already"), ("0", "from 1 to"), ("1025", "from 1 to")] {
            let error =
                flags(&format!("--namespace mem:4k,nsid=1 --namespace mem:4k,nsid={twice}"));
            assert!(error.unwrap_err().message.contains(why));
        }
    }

    #[test]
    fn bad_files_say_where_and_why() {
        let head = "address = \"::1\"\n[[subsystem]]\nnqn = \"nqn.x:y\"\n";
        for (text, why) in [
            ("", "address"),
            ("address = []\n", "address is empty"),
            ("address = [\"::1\", \"\"]\n", "address is empty"),
            ("address = [\"::1\", \"::1\"]\n", "::1 is there twice"),
            ("address = 127\n", "or a list of them"),
            ("address = \"::1\"\n", "nothing to export"),
            ("address = \"::1\"\ncolour = 1\n", "colour"),
            ("address = \"::1\"\nport = 70000\n", "port"),
            ("address = \"::1\"\n[[subsystem]]\nnqn = \"x\"\n", "write nqn."),
            ("address = \"::1\"\n[[subsystem]]\n", "nqn"),
            (&format!("{head}[[subsystem]]\nnqn = \"nqn.x:y\"\n"), "is there already"),
            (&format!("{head}[[subsystem.namespace]]\nkind = \"mem\"\nsize = 4096\n"), "nsid"),
            (&format!("{head}[[subsystem.namespace]]\nnsid = 1\nkind = \"mem\"\n"), "size"),
            (&format!("{head}[[subsystem.namespace]]\nnsid = 1\nkind = \"ram\"\n"), "ram"),
            (
                &format!("{head}[[subsystem.namespace]]\nnsid = 1\nkind = \"mem\"\nsize = -1\n"),
                "negative",
            ),
            (
                &format!(
                    "{head}[[subsystem.namespace]]\nnsid = 1\nkind = \"mem\"\nsize = \"1x\"\n"
                ),
                "unit",
            ),
            (
                &format!(
                    "{head}[[subsystem.namespace]]\nnsid = 1\nkind = \"mem\"\nsize = 4096\nclass = \"urgent\"\n"
                ),
                "latency",
            ),
            (&format!("{head}allow_hosts = [\"x\"]\n"), "write nqn."),
            (&format!("{head}[limits]\nqueue_size = 1\n"), "32 to 4096"),
            (&format!("{head}[limits]\nin_capsule_bytes = 100\n"), "multiple of 16"),
            (&format!("{head}[batching]\npolicy = \"fast\"\n"), "fast"),
            (&format!("{head}[batching]\ncaravan_requests = 0\n"), "1..=1024"),
            (&format!("{head}[batching]\nbatch_level_max = 0\n"), "'batch_level_max <N>'"),
            (&format!("{head}[batching]\ndata_degree = 2000\n"), "1..=1024"),
            (&format!("{head}[batching]\ncaravan_bytes = 511\n"), "512 to 1GiB"),
            (&format!("{head}[batching]\ncaravan_bytes = 0\n"), "must not be 0"),
            (&format!("{head}[batching]\ncmd_delay_us = 1000001\n"), "1000000"),
            (&format!("{head}[batching]\nbatch_gain_percent = -1\n"), "[batching]"),
            (
                &format!(
                    "{head}[batching]\npolicy = \"tyche\"\nbatch_level = 4\nbatch_interval_ms = 9\n"
                ),
                "cannot be used with",
            ),
            (
                &format!("{head}[batching]\npolicy = \"tyche\"\ndoorbell_delay_us = 50\n"),
                "[batching]: doorbell_delay_us means nothing with policy tyche: leave it out, or choose policy i10",
            ),
            (&format!("{head}[batching]\ncaravan_requests = 4\n"), "policy auto"),
            (&format!("{head}[waiting]\nbusy_poll = true\nspin_us = 20\n"), "busy_poll"),
            (&format!("{head}[waiting]\nno_spin = true\nspin_us = 20\n"), "no_spin"),
            (&format!("{head}[waiting]\nno_spin = true\nbusy_poll = true\n"), "no_spin"),
            (&format!("{head}[batching]\nbatch_levle = 4\n"), "batch_levle"),
        ] {
            let error = ServeConfig::parse(text).expect_err(text);
            assert!(error.contains(why), "{text}\n-> {error}");
        }
    }

    #[test]
    fn the_engine_gets_what_was_said() {
        let text = "address = [\"127.0.0.1\", \"::1\"]\nport = 0\ncores = \"1\"\n[waiting]\nspin_us = 20\n\
            [limits]\nmax_queues = 4\nbuffers = \"8MiB\"\nno_ddgst = true\n\
            [[subsystem]]\nnqn = \"nqn.x:y\"\nallow_hosts = []\n\
            [[subsystem.namespace]]\nnsid = 3\nkind = \"file\"\npath = \"x\"\nread_only = true\n\
            class = \"bulk\"\nnguid = \"22222222222222222222222222222222\"\n";
        let config = ServeConfig::parse(text).unwrap().server().unwrap();
        assert_eq!(config.listen, ["127.0.0.1:0", "[::1]:0"].map(|a| a.parse().unwrap()));
        assert_eq!((config.cores, config.pool_bytes), (vec![1], 8 << 20));
        assert_eq!(config.limits.io_queues_max, 4);
        assert_eq!(config.digests, Digests { header: true, data: false });
        assert_eq!(config.waiting, Waiting::Spin(std::time::Duration::from_micros(20)));
        let subsystem = &config.subsystems[0];
        assert_eq!(
            subsystem.allowed_hosts,
            Some(Default::default()),
            "an empty list allows nobody"
        );
        let kind = StoreKind::File { path: "x".into(), size: None, create: false };
        let store = StoreSpec { kind, lba_bytes: 512, read_only: true };
        let class = Some(Class::Bulk);
        assert_eq!(
            subsystem.namespaces,
            [Export { nguid: Some([0x22; 16]), class, ..Export::new(3, store) }]
        );
    }

    /// Who is to prove something has a key, and each listener may ask for something else.
    #[test]
    fn any_host_and_secure_exclude_each_other() {
        const KEY: &str = "[[host]]\nnqn = \"nqn.x:h\"\ndhchap_key = \"h\"\n";
        const KEYS: &str = "[tls.keys]\n\"nqn.x:h\" = \"h.tls\"\n[[host]]\nnqn = \"nqn.x:h\"\ndhchap_key = \"h\"\n";
        let file = |listeners: &str, subsystem: &str, keys: &str| {
            let text =
                format!("{listeners}\n{keys}\n[[subsystem]]\nnqn = \"nqn.x:y\"\n{subsystem}\n");
            ServeConfig::parse(&text)
        };
        let plain = "[[listener]]\naddress = \"127.0.0.1\"\n";
        let secure = "[[listener]]\naddress = \"127.0.0.2\"\nport = 4421\ntls = \"required\"\n";
        let both = &format!("{plain}{secure}");
        let allowed = &secure.replace("required", "allowed");
        for (listeners, subsystem, keys, wrong) in [
            (secure, "", "", Some("name the hosts and their keys")),
            (both, "require_auth = true", "", Some("name the hosts and their keys")),
            (plain, "require_auth = true", "", Some("without a key lets nobody in")),
            (plain, "require_tls = true", KEYS, Some("no listener has TLS")),
            (
                secure,
                "allow_hosts = [\"nqn.x:g\"]",
                KEYS,
                Some("nqn.x:g, which may use it, has no key for TLS"),
            ),
            (
                plain,
                "require_auth = true\nallow_hosts = [\"nqn.x:g\"]",
                KEYS,
                Some("for authentication"),
            ),
            (both, "allow_hosts = [\"nqn.x:g\"]", KEYS, None),
            (
                both,
                "require_tls = true\nrequire_auth = true\nallow_hosts = [\"nqn.x:h\"]",
                KEYS,
                None,
            ),
            (secure, "", KEYS, None),
            // Its key for authentication makes one for TLS where plain connections are taken, too.
            (allowed, "require_tls = true\nallow_hosts = [\"nqn.x:h\"]", KEY, None),
            (secure, "", "[tls]\nkeyring = \".nvme\"\n", None),
            (allowed, "", "", Some("name the hosts and their keys")),
            (secure, "", KEY, Some("name the hosts and their keys")),
            (
                allowed,
                "require_tls = true\nallow_hosts = [\"nqn.x:g\"]",
                KEY,
                Some("no key for TLS"),
            ),
        ] {
            let parsed = file(listeners, subsystem, keys);
            match wrong {
                None => assert!(parsed.is_ok(), "{parsed:?}"),
                Some(wrong) => assert!(parsed.as_ref().unwrap_err().contains(wrong), "{parsed:?}"),
            }
        }
        let config = file(both, "", KEYS).unwrap();
        let at = config.tls_at().unwrap();
        assert_eq!(at, [("127.0.0.2:4421".parse().unwrap(), TlsUse::Required)].into());
        assert_eq!(config.addresses().unwrap().len(), 2);
        assert_eq!(
            ServeConfig::parse(&config.to_toml()).unwrap(),
            config,
            "it is written as it is read"
        );
        let flags = flags(
            "--namespace mem:4k -a ::1,::2 --tls required --tls-key nqn.x:h=f --tls-at ::1=off",
        );
        let at = flags.unwrap().tls_at().unwrap();
        assert_eq!(at, [("[::1]:4420".parse().unwrap(), TlsUse::Off)].into());
        let other = |tls| file(&secure.replace("required", tls), "", KEYS).unwrap();
        assert!(!other("required").needs_restart(&other("allowed")));
    }

    #[test]
    fn reload_knows_what_it_cannot_change() {
        let old = flags("--namespace mem:4k").unwrap();
        let grown = flags("--namespace mem:8k --allow-host nqn.x:h").unwrap();
        assert!(!old.needs_restart(&grown));
        assert!(!old.needs_restart(&flags("--namespace mem:4k -a ::1 -s 4421").unwrap()));
        assert!(old.needs_restart(&flags("--namespace mem:4k --policy i10").unwrap()));
        assert!(old.needs_restart(&flags("--namespace mem:4k --log-level debug").unwrap()));
    }
}
