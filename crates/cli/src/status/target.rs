//! The state of a target, as its process tells it and as it is shown.

use super::proof::Proof;
use super::waiting::{self, WaitReport};
use crate::identity::show_uuid;
use crate::output::columns;
use crate::rates::LimitReport;
use crate::registry::TargetEntry;
use crate::units::show_bytes;
use roadtrain_manage::model::Model;
use roadtrain_reactor::metrics::{AuthSample, LaneSample};
use roadtrain_store::StoreKind;
use roadtrain_target_engine::{AnaListener, AnaState, Blocks, Export, LanePlace};
use roadtrain_target_proto::{ControllerView, NamespaceConfig, SubsystemConfig, TargetConfig};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Most lanes shown as text.
const LANES_SHOWN: usize = 32;

/// How it stands with a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum TargetState {
    /// Hosts can use it.
    Serving,
    /// Its process does not answer.
    Silent,
    /// Its process has ended without a word: it was killed, or crashed.
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
    /// Its name.
    pub id: String,
    /// Its process.
    pub pid: u32,
    /// The user of that.
    #[serde(default)]
    pub uid: u32,
    /// How it stands.
    pub state: TargetState,
    /// Reason why it does not serve.
    pub error: Option<String>,
    /// Everything that needs a person while it serves, in words.
    #[serde(default)]
    pub problems: Vec<String>,
    /// Where it listens.
    pub listeners: Vec<String>,
    /// Its configuration file.
    pub config: Option<PathBuf>,
    /// How good the paths are that they give, and addresses of them that have a state of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ana_listeners: Vec<AnaReport>,
    /// What only its process knows; none when that does not answer.
    #[serde(flatten)]
    pub inside: Option<Inside>,
}

/// How good a way to the namespaces is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AnaReport {
    /// Where hosts come in; `ether` over Ethernet.
    pub listener: String,
    /// The state, as `roadtrain ctl listener set` takes it.
    pub ana: String,
}

/// What only the process knows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Inside {
    /// What it does.
    #[serde(flatten)]
    pub traffic: Traffic,
    /// What it exports.
    pub subsystems: Vec<SubsystemReport>,
    /// Its lanes.
    #[serde(default)]
    pub lanes: Vec<LaneReport>,
}

/// What a target does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Traffic {
    /// Since it can be used.
    pub uptime_seconds: f64,
    /// Connections, and lanes over Ethernet.
    pub connections: usize,
    /// Commands that a store has.
    pub in_stores: usize,
    /// Memory of data in flight.
    pub buffer_bytes: usize,
    /// Requests that were answered.
    pub requests: u64,
    /// Octets of their data.
    pub data_bytes: u64,
    /// State of its reactors' waits.
    #[serde(default)]
    pub waiting: Vec<WaitReport>,
}

/// A lane.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LaneReport {
    /// Its controller.
    pub cntlid: u16,
    /// Its queue.
    pub qid: u16,
    /// The core that it is served on.
    pub core: Option<usize>,
    /// The core that processes its packets.
    pub packets_core: Option<usize>,
    /// The network card's receive queue that they come by: the kernel's number of its NAPI instance.
    #[serde(default)]
    pub napi_id: Option<u32>,
    /// How often it has moved to another core.
    pub moves: u32,
    /// Requests that were answered.
    pub requests: u64,
}

/// A subsystem.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SubsystemReport {
    /// Its NQN.
    pub nqn: String,
    /// Owner of its configuration: `file`, `state` or `group`.
    #[serde(default)]
    pub owner: String,
    /// Hosts that may use it; none: any host.
    pub allow_hosts: Option<Vec<String>>,
    /// Each host has to authenticate.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub require_auth: bool,
    /// Each connection has to be secured by TLS.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub require_tls: bool,
    /// Its namespaces.
    pub namespaces: Vec<NamespaceReport>,
    /// What hosts may do in a second, by their NQNs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub host_limits: BTreeMap<String, LimitReport>,
    /// Its controllers.
    pub controllers: Vec<ControllerReport>,
}

/// A namespace.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct NamespaceReport {
    /// Its number.
    pub nsid: u32,
    /// Its size.
    pub capacity_bytes: u64,
    /// Octets of a block.
    pub block_bytes: u32,
    /// Refuses writes.
    pub read_only: bool,
    /// UUID.
    pub uuid: Option<String>,
    /// NGUID, as a UUID.
    pub nguid: Option<String>,
    /// Where its blocks are.
    pub store: String,
    /// How it is in reach of this target at best, as `roadtrain ctl listener set` takes it.
    #[serde(default)]
    pub ana: String,
    /// What it may do in a second.
    #[serde(default, skip_serializing_if = "LimitReport::is_empty")]
    pub limits: LimitReport,
}

/// A controller.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ControllerReport {
    /// Its number.
    pub cntlid: u16,
    /// Its host's NQN.
    pub host_nqn: String,
    /// Its host's identifier.
    pub host_id: String,
    /// I/O queues connected.
    pub io_queues: usize,
    /// Our address as its host has reached it; none over Ethernet.
    #[serde(default)]
    pub address: Option<SocketAddr>,
    /// How good its way to the namespaces is.
    #[serde(default)]
    pub ana: String,
    /// The host's address; none while it has no queue.
    #[serde(default)]
    pub peer: Option<String>,
    /// How its queues travel: `tcp`, `tls` or `ether`.
    #[serde(default)]
    pub transport: String,
    /// How the host has proved its identity; none where nobody has asked for that.
    #[serde(default)]
    pub auth: Option<AuthReport>,
}

/// Hash and Diffie-Hellman group of an authentication.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AuthReport {
    /// `sha256`, `sha384` or `sha512`.
    pub hash: String,
    /// `null`, or `ffdhe2048` and so on.
    pub dhgroup: String,
}

impl From<&AuthSample> for AuthReport {
    fn from(sample: &AuthSample) -> AuthReport {
        AuthReport { hash: sample.hash.clone(), dhgroup: sample.group.clone() }
    }
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
                controller.auth = queue.auth.as_ref().map(AuthReport::from);
            }
        }
    }

    /// Says what is known without its process, and why that does not answer.
    pub(crate) fn outside(entry: &TargetEntry, state: TargetState, error: String) -> TargetReport {
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

    /// What its process says.
    pub(crate) fn serving(
        (id, listeners, config): (String, Vec<String>, Option<PathBuf>),
        (traffic, lanes): (Traffic, &[LanePlace]),
        exports: &TargetConfig<Export>,
        (seen, controllers): (&TargetConfig, &[ControllerView]),
    ) -> TargetReport {
        let has_ether = listeners.iter().any(|listener| listener.starts_with("ether:"));
        let subsystems = seen.subsystems.iter().map(|subsystem| {
            let asked = exports.subsystems.iter().find(|asked| asked.nqn == subsystem.nqn);
            let proof = Proof::new(seen, subsystem, has_ether);
            SubsystemReport::new(subsystem, asked, proof, controllers)
        });
        let ana_listeners = ways(seen, has_ether);
        TargetReport {
            ana_listeners,
            kind: "target".into(),
            id,
            pid: std::process::id(),
            uid: crate::registry::Process::this().owner,
            state: TargetState::Serving,
            error: None,
            problems: Vec::new(),
            listeners,
            config,
            inside: Some(Inside {
                traffic,
                subsystems: subsystems.collect(),
                lanes: lanes.iter().map(LaneReport::new).collect(),
            }),
        }
    }

    /// Adds the owner of each subsystem, the state or `file`, and the names of devices of the state.
    pub(crate) fn name_devices(&mut self, (model, file): (&Model, &str)) {
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
                    namespace.store = device.place();
                }
            }
        }
    }

    /// As text.
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
        let worse = self.ana_listeners.iter().filter(|way| way.ana != AnaState::Optimized.name());
        let worse: Vec<_> = worse.map(|way| format!("{} {}", way.listener, way.ana)).collect();
        if !worse.is_empty() {
            line("ana", worse.join("  "));
        }
        line("process", crate::status::process(self.pid, self.uid));
        let Some(Inside { traffic, subsystems, lanes }) = &self.inside else { return text };
        let Traffic { connections, in_stores, buffer_bytes, requests, data_bytes, .. } = traffic;
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

/// The state at each listener, and at addresses that have one of their own.
fn ways(seen: &TargetConfig, has_ether: bool) -> Vec<AnaReport> {
    let tcp = seen.listeners.iter().map(|listener| AnaListener::Tcp(listener.address));
    let ether = has_ether.then_some(AnaListener::Ether);
    let mut all: Vec<AnaListener> = tcp.chain(ether).collect();
    let own = seen.ana.iter().map(|(listener, _)| listener);
    let own: Vec<_> = own.filter(|own| !all.contains(own)).collect();
    all.extend(own);
    let report = |listener: AnaListener| {
        let state = seen.ana.get(listener).unwrap_or_default();
        AnaReport { listener: listener.to_string(), ana: state.name().to_owned() }
    };
    all.into_iter().map(report).collect()
}

/// Lanes that carry I/O, as far as there is room.
fn lane_text(lanes: &[LaneReport]) -> String {
    let lanes: Vec<&LaneReport> = lanes.iter().filter(|lane| lane.qid > 0).collect();
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

impl LaneReport {
    fn new(lane: &LanePlace) -> LaneReport {
        let &LanePlace { cntlid, qid, core, packets_core, napi_id, moves, requests } = lane;
        LaneReport { cntlid, qid, core, packets_core, napi_id, moves, requests }
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

impl SubsystemReport {
    fn new(
        seen: &SubsystemConfig,
        asked: Option<&SubsystemConfig<Export>>,
        proof: Proof,
        controllers: &[ControllerView],
    ) -> SubsystemReport {
        let namespace = |namespace: &NamespaceConfig| {
            let exports = asked.map_or(&[][..], |asked| &asked.namespaces);
            let export = exports.iter().find(|export| export.nsid == namespace.nsid);
            let id = namespace.id;
            NamespaceReport {
                nsid: namespace.nsid,
                capacity_bytes: namespace.blocks << namespace.lba_shift,
                block_bytes: 1 << namespace.lba_shift,
                read_only: namespace.read_only,
                uuid: id.map(|id| show_uuid(&id.uuid)),
                nguid: id.map(|id| show_uuid(&id.nguid)),
                store: export.map_or_else(String::new, |export| store(&export.blocks)),
                ana: namespace.ana.name().to_owned(),
                limits: export.map(|export| LimitReport::from(&export.rates)).unwrap_or_default(),
            }
        };
        let controller = |controller: &ControllerView| ControllerReport {
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
        SubsystemReport {
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
            None => Proof { auth: self.require_auth, tls: self.require_tls }.any_host().to_owned(),
            Some(hosts) if hosts.is_empty() => "no host".to_owned(),
            Some(hosts) => hosts.join(", "),
        };
        let owner = if self.owner == "state" { ", of the state" } else { "" };
        let mut text = format!("  {}  for {hosts}{owner}\n", self.nqn);
        let rows: Vec<Vec<String>> = self.namespaces.iter().map(NamespaceReport::cells).collect();
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

impl NamespaceReport {
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

/// Where blocks are, as the command line begins to say it.
fn store(blocks: &Blocks) -> String {
    let Blocks::Spec(spec) = blocks else { return "a volume or device".into() };
    match &spec.kind {
        StoreKind::Memory { .. } => "mem".into(),
        StoreKind::Ssd { .. } => "ssd".into(),
        StoreKind::Null { .. } => "null".into(),
        StoreKind::File { path, .. } => format!("file:{}", path.display()),
        StoreKind::Block { path } => format!("block:{}", path.display()),
        #[cfg(feature = "rbd")]
        StoreKind::Rbd(image) => format!("rbd:{image}"),
    }
}
