//! State of a target, as reported by its process and as shown.

use super::proof::RequiredProof;
use super::waiting::{self, WaitReport};
use crate::identity::show_uuid;
use crate::output::columns;
use crate::rates::LimitReport;
use crate::registry::TargetEntry;
use crate::units::show_bytes;
use roadtrain_manage::model::ManagedModel;
use roadtrain_reactor::metrics::{AnaSample, AuthSample, LaneSample};
use roadtrain_target_engine::{AnaListener, AnaState, Export, LanePlace};
use roadtrain_target_proto::{ControllerSummary, NamespaceConfig, SubsystemConfig, TargetConfig};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Most lanes shown as text.
const LANES_SHOWN: usize = 32;

/// State of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum TargetState {
    /// Hosts can use it.
    Serving,
    /// Its process does not reply.
    Silent,
    /// Its process was killed, or crashed.
    Gone,
}

impl std::fmt::Display for TargetState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.serialize(f)
    }
}

/// A target.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TargetReport {
    /// `target`: attachments are in the same list.
    pub kind: String,
    /// Name.
    pub id: String,
    /// Process ID.
    pub pid: u32,
    /// User of the process.
    #[serde(default)]
    pub uid: u32,
    /// State.
    pub state: TargetState,
    /// Reason why it does not serve.
    pub error: Option<String>,
    /// Problems that need a person while it serves.
    #[serde(default)]
    pub problems: Vec<String>,
    /// Listeners.
    pub listeners: Vec<String>,
    /// Its configuration file.
    pub config: Option<PathBuf>,
    /// ANA states of the listeners, and of further addresses with a separate state.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ana_listeners: Vec<AnaSample>,
    /// Data that only its process has; `None` if that does not reply.
    #[serde(flatten)]
    pub inside: Option<TargetDetails>,
}

/// Data that only the process has.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TargetDetails {
    /// Counters.
    #[serde(flatten)]
    pub traffic: TargetTraffic,
    /// Exports.
    pub subsystems: Vec<TargetSubsystemReport>,
    /// Its lanes.
    #[serde(default)]
    pub lanes: Vec<TargetLaneReport>,
}

/// Counters of a target.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TargetTraffic {
    /// Seconds since it was ready.
    pub uptime_seconds: f64,
    /// Connections, and lanes over Ethernet.
    pub connections: usize,
    /// Commands in stores.
    pub in_stores: usize,
    /// Bytes of buffers in use.
    pub buffer_bytes: usize,
    /// Requests completed.
    pub requests: u64,
    /// Bytes of their data.
    pub data_bytes: u64,
    /// Wait statistics of its reactors.
    #[serde(default)]
    pub waiting: Vec<WaitReport>,
}

/// A lane.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TargetLaneReport {
    /// Controller ID.
    pub cntlid: u16,
    /// Queue ID.
    pub qid: u16,
    /// Core of its reactor.
    pub core: Option<usize>,
    /// Core that processes its packets.
    pub packets_core: Option<usize>,
    /// NAPI ID of the network card's receive queue for its packets.
    #[serde(default)]
    pub napi_id: Option<u32>,
    /// Number of moves to another core.
    pub moves: u32,
    /// Requests completed.
    pub requests: u64,
}

/// A subsystem.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TargetSubsystemReport {
    /// Its NQN.
    pub nqn: String,
    /// Owner of its configuration: `file`, `state` or `group`.
    #[serde(default)]
    pub owner: String,
    /// Hosts that may use it; `None`: any host.
    pub allow_hosts: Option<Vec<String>>,
    /// True if each host has to authenticate.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub require_auth: bool,
    /// True if each connection needs TLS.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub require_tls: bool,
    /// Its namespaces.
    pub namespaces: Vec<TargetNamespaceReport>,
    /// Rate limits of hosts, by host NQN.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub host_limits: BTreeMap<String, LimitReport>,
    /// Its controllers.
    pub controllers: Vec<ControllerReport>,
}

/// A namespace.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TargetNamespaceReport {
    /// Namespace ID.
    pub nsid: u32,
    /// Size in bytes.
    pub capacity_bytes: u64,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// True if it refuses writes.
    pub read_only: bool,
    /// UUID.
    pub uuid: Option<String>,
    /// NGUID, as a UUID.
    pub nguid: Option<String>,
    /// Storage of its blocks.
    pub store: String,
    /// Best ANA state at this target, as `roadtrain ctl listener set` takes it.
    #[serde(default)]
    pub ana: String,
    /// Rate limits.
    #[serde(default, skip_serializing_if = "LimitReport::is_empty")]
    pub limits: LimitReport,
}

/// A controller.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ControllerReport {
    /// Controller ID.
    pub cntlid: u16,
    /// Its host's NQN.
    pub host_nqn: String,
    /// Its host's identifier.
    pub host_id: String,
    /// I/O queues connected.
    pub io_queues: usize,
    /// Local address that its host has connected to; `None` over Ethernet.
    #[serde(default)]
    pub address: Option<SocketAddr>,
    /// ANA state of its path.
    #[serde(default)]
    pub ana: String,
    /// Address of the host; `None` while it has no queue.
    #[serde(default)]
    pub peer: Option<String>,
    /// Transport of its queues: `tcp`, `tls` or `ether`.
    #[serde(default)]
    pub transport: String,
    /// Authentication of the host; `None` if it was not required.
    #[serde(default)]
    pub auth: Option<AuthSample>,
}

impl TargetReport {
    /// Adds the connections of each controller: its host's address, encryption and authentication.
    pub(crate) fn set_connections(&mut self, queues: &[LaneSample]) {
        let Some(inside) = &mut self.inside else { return };
        for subsystem in &mut inside.subsystems {
            for controller in &mut subsystem.controllers {
                let is_own = |queue: &&LaneSample| {
                    queue.cntlid == controller.cntlid && queue.nqn == subsystem.nqn
                };
                let Some(queue) = queues.iter().find(is_own) else { continue };
                controller.peer = Some(queue.peer.clone()).filter(|peer| !peer.is_empty());
                controller.transport.clone_from(&queue.transport);
                controller.auth = queue.auth.clone();
            }
        }
    }

    /// Creates a report without the process's data, with the reason why it does not reply.
    pub(crate) fn without_process(
        entry: &TargetEntry,
        state: TargetState,
        error: String,
    ) -> TargetReport {
        let TargetEntry { id, listeners, process, config } = entry.clone();
        TargetReport {
            kind: "target".into(),
            id,
            pid: process.pid,
            uid: process.owner,
            state,
            error: Some(error),
            problems: Vec::new(),
            listeners,
            config,
            ana_listeners: Vec::new(),
            inside: None,
        }
    }

    /// Creates the report of the running target.
    pub(crate) fn serving(
        (id, listeners, config): (String, Vec<String>, Option<PathBuf>),
        (traffic, lanes): (TargetTraffic, &[LanePlace]),
        exports: &TargetConfig<Export>,
        (seen, controllers): (&TargetConfig, &[ControllerSummary]),
    ) -> TargetReport {
        let has_ether = listeners.iter().any(|listener| listener.starts_with("ether:"));
        let subsystems = seen.subsystems.iter().map(|subsystem| {
            let exported = exports.subsystems.iter().find(|exported| exported.nqn == subsystem.nqn);
            let proof = RequiredProof::new(seen, subsystem, has_ether);
            TargetSubsystemReport::new(subsystem, exported, proof, controllers)
        });
        let ana_listeners = listener_states(seen, has_ether);
        TargetReport {
            ana_listeners,
            kind: "target".into(),
            id,
            pid: std::process::id(),
            uid: crate::registry::ProcessIdentity::this().owner,
            state: TargetState::Serving,
            error: None,
            problems: Vec::new(),
            listeners,
            config,
            inside: Some(TargetDetails {
                traffic,
                subsystems: subsystems.collect(),
                lanes: lanes.iter().map(TargetLaneReport::new).collect(),
            }),
        }
    }

    /// Adds the owner of each subsystem, the state or `file`, and the names of devices of the state.
    pub(crate) fn name_devices(&mut self, (model, file): (&ManagedModel, &str)) {
        let subsystems = self.inside.iter_mut().flat_map(|inside| &mut inside.subsystems);
        for subsystem in subsystems {
            let is_of_state = model.serves(&subsystem.nqn);
            subsystem.owner = if is_of_state { "state" } else { file }.to_owned();
            for namespace in &mut subsystem.namespaces {
                let place = (subsystem.nqn.as_str(), namespace.nsid);
                let own = model.claims().filter(|_| is_of_state).find(|(at, _)| *at == place);
                let lent =
                    model.lent.iter().find(|(_, (nqn, nsid))| (nqn.as_str(), *nsid) == place);
                let name = own.map(|(_, name)| name).or(lent.map(|(name, _)| name.as_str()));
                if let Some(device) = name.and_then(|name| model.device(name)) {
                    namespace.store = device.location();
                }
            }
        }
    }

    /// Formats the report.
    #[must_use]
    pub(crate) fn text(&self) -> String {
        let mut text = format!("{}  serve  {}\n", self.id, self.state);
        let mut line = |name: &str, value: String| text.push_str(&format!("  {name:<9}{value}\n"));
        line("listens", self.listeners.join("  "));
        for problem in self.error.iter().chain(&self.problems) {
            line("problem", problem.clone());
        }
        if let Some(config) = &self.config {
            line("file", config.display().to_string());
        }
        let worse = self.ana_listeners.iter().filter(|path| path.ana != AnaState::Optimized.name());
        let worse: Vec<_> = worse.map(|path| format!("{} {}", path.listener, path.ana)).collect();
        if !worse.is_empty() {
            line("ana", worse.join("  "));
        }
        line("process", crate::status::process(self.pid, self.uid));
        let Some(TargetDetails { traffic, subsystems, lanes }) = &self.inside else { return text };
        let TargetTraffic { connections, in_stores, buffer_bytes, requests, data_bytes, .. } =
            traffic;
        let buffers = show_bytes(*buffer_bytes as u64);
        line(
            "load",
            format!("{connections} connections, {in_stores} in stores, {buffers} of buffers"),
        );
        line("total", format!("{requests} requests, {}", show_bytes(*data_bytes)));
        if let Some(waiting) = waiting::text(&traffic.waiting) {
            line("waiting", waiting);
        }
        for subsystem in subsystems {
            text.push_str(&subsystem.text());
        }
        text.push_str(&lane_text(lanes));
        text
    }
}

/// Returns the ANA state at each listener, and at further addresses with a separate state.
fn listener_states(seen: &TargetConfig, has_ether: bool) -> Vec<AnaSample> {
    let tcp = seen.listeners.iter().map(|listener| AnaListener::Tcp(listener.address));
    let ether = has_ether.then_some(AnaListener::Ether);
    let mut all: Vec<AnaListener> = tcp.chain(ether).collect();
    let own = seen.ana.iter().map(|(listener, _)| listener);
    let own: Vec<_> = own.filter(|own| !all.contains(own)).collect();
    all.extend(own);
    let report = |listener: AnaListener| {
        let state = seen.ana.get(listener).unwrap_or_default();
        AnaSample { listener: listener.to_string(), ana: state.name().to_owned() }
    };
    all.into_iter().map(report).collect()
}

/// Formats the lanes of I/O queues, up to a maximum.
fn lane_text(lanes: &[TargetLaneReport]) -> String {
    let lanes: Vec<&TargetLaneReport> = lanes.iter().filter(|lane| lane.qid > 0).collect();
    if lanes.is_empty() {
        return String::new();
    }
    let rows: Vec<Vec<String>> = lanes.iter().take(LANES_SHOWN).map(|lane| lane.cells()).collect();
    let heads = ["    controller", "queue", "core", "packets' core", "moves", "requests"];
    let table = columns(&heads, &rows);
    let mut text: String = table.lines().map(|row| format!("{row}\n")).collect();
    if let Some(more @ 1..) = lanes.len().checked_sub(LANES_SHOWN) {
        text.push_str(&format!("    {more} more lanes: --json\n"));
    }
    text
}

impl TargetLaneReport {
    fn new(lane: &LanePlace) -> TargetLaneReport {
        let &LanePlace { cntlid, qid, core, packets_core, napi_id, moves, requests } = lane;
        TargetLaneReport { cntlid, qid, core, packets_core, napi_id, moves, requests }
    }

    fn cells(&self) -> Vec<String> {
        let core = |core: Option<usize>| core.map_or("-".to_owned(), |core| core.to_string());
        vec![
            format!("    {}", self.cntlid),
            self.qid.to_string(),
            core(self.core),
            core(self.packets_core),
            self.moves.to_string(),
            self.requests.to_string(),
        ]
    }
}

impl TargetSubsystemReport {
    fn new(
        seen: &SubsystemConfig,
        exported: Option<&SubsystemConfig<Export>>,
        proof: RequiredProof,
        controllers: &[ControllerSummary],
    ) -> TargetSubsystemReport {
        let namespace = |namespace: &NamespaceConfig| {
            let exports = exported.map_or(&[][..], |exported| &exported.namespaces);
            let export = exports.iter().find(|export| export.nsid == namespace.nsid);
            let id = namespace.id;
            TargetNamespaceReport {
                nsid: namespace.nsid,
                capacity_bytes: namespace.blocks << namespace.lba_shift,
                block_bytes: 1 << namespace.lba_shift,
                read_only: namespace.read_only,
                uuid: id.map(|id| show_uuid(&id.uuid)),
                nguid: id.map(|id| show_uuid(&id.nguid)),
                store: export.map_or_else(String::new, |export| export.blocks.place()),
                ana: namespace.ana.name().to_owned(),
                limits: export.map(|export| LimitReport::from(&export.rates)).unwrap_or_default(),
            }
        };
        let controller = |controller: &ControllerSummary| ControllerReport {
            cntlid: controller.cntlid,
            host_nqn: controller.hostnqn.to_string(),
            host_id: show_uuid(&controller.hostid),
            io_queues: controller.io_queues,
            address: Some(controller.local).filter(|local| local.port() != 0),
            ana: controller.ana.name().to_owned(),
            peer: None,
            transport: String::new(),
            auth: None,
        };
        let attached = controllers.iter().filter(|controller| *controller.subnqn == *seen.nqn);
        TargetSubsystemReport {
            nqn: seen.nqn.clone(),
            owner: String::new(),
            allow_hosts: seen.allowed_hosts.as_ref().map(|hosts| hosts.iter().cloned().collect()),
            require_auth: proof.auth,
            require_tls: proof.tls,
            namespaces: seen.namespaces.iter().map(namespace).collect(),
            host_limits: seen.host_rates.iter().map(|(host, r)| (host.clone(), r.into())).collect(),
            controllers: attached.map(controller).collect(),
        }
    }

    fn text(&self) -> String {
        let hosts = match &self.allow_hosts {
            None => RequiredProof { auth: self.require_auth, tls: self.require_tls }
                .any_host()
                .to_owned(),
            Some(hosts) if hosts.is_empty() => "no host".to_owned(),
            Some(hosts) => hosts.join(", "),
        };
        let owner = if self.owner == "state" { ", of the state" } else { "" };
        let mut text = format!("  {}  for {hosts}{owner}\n", self.nqn);
        let rows: Vec<Vec<String>> =
            self.namespaces.iter().map(TargetNamespaceReport::cells).collect();
        let namespaces = columns(&["    nsid", "size", "block", "access", "store"], &rows);
        let cells = |c: &ControllerReport| {
            let auth = c.auth.as_ref().map_or_else(|| "-".to_owned(), |auth| auth.hash.clone());
            let peer = c.peer.clone().unwrap_or_else(|| "-".to_owned());
            let queues = c.io_queues.to_string();
            let id = format!("    {}", c.cntlid);
            vec![id, queues, c.transport.clone(), auth, peer, c.host_nqn.clone()]
        };
        let rows: Vec<Vec<String>> = self.controllers.iter().map(cells).collect();
        let controllers = match rows.is_empty() {
            true => String::new(),
            false => columns(
                &["    controller", "I/O queues", "over", "authenticated", "from", "host"],
                &rows,
            ),
        };
        for row in namespaces.lines().chain(controllers.lines()) {
            text.push_str(&format!("{row}\n"));
        }
        text
    }
}

impl TargetNamespaceReport {
    fn cells(&self) -> Vec<String> {
        vec![
            format!("    {}", self.nsid),
            show_bytes(self.capacity_bytes),
            self.block_bytes.to_string(),
            if self.read_only { "read-only" } else { "read-write" }.to_owned(),
            match self.ana == AnaState::Inaccessible.name() {
                true => format!("{}{} (stands by)", self.store, self.limits),
                false => format!("{}{}", self.store, self.limits),
            },
        ]
    }
}
