//! All counters of a target or an attachment at a moment.

use super::latency::Latency;
use roadtrain_proto::policy::Doorbells;
use serde::{Deserialize, Serialize};

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A target.
    #[default]
    Target,
    /// An attachment.
    Attachment,
}

/// All counters of a target or an attachment at a moment. Counters only grow; who wants rates takes two of them.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct Snapshot {
    /// Of which of them.
    pub kind: Kind,
    /// Its name.
    pub id: String,
    /// What a target is in its gateway group, if it is in one.
    #[serde(default)]
    pub gateway: Option<GatewaySample>,
    /// The program's version.
    pub version: String,
    /// When, in seconds since 1970.
    pub unix_seconds: f64,
    /// For how long it has run.
    pub uptime_seconds: f64,
    /// `serving`; of an attachment `connected`, `reconnecting`, `failing` or `stopping`.
    pub state: String,
    /// What is wrong; nothing when all is well.
    pub problems: Vec<String>,
    /// Whether the configuration file could be used when it was read last; `None`: there is none.
    pub last_reload_successful: Option<bool>,
    /// Upper bounds of the buckets of all latencies, in seconds; the last bucket has none.
    pub latency_bounds: Vec<f64>,
    /// By number.
    pub reactors: Vec<ReactorSample>,
    /// What a target exports, or an attachment shows.
    pub namespaces: Vec<NamespaceSample>,
    /// Devices of a target that no namespace shows.
    #[serde(default)]
    pub devices: Vec<DeviceSample>,
    /// Hosts that are or were connected, of a target.
    pub hosts: Vec<HostSample>,
    /// I/O queues: of a target those that are connected, of an attachment its lanes.
    pub lanes: Vec<LaneSample>,
    /// Of a target.
    pub subsystems: Vec<SubsystemSample>,
    /// Connections and what has gone wrong with them.
    pub transport: TransportSample,
    /// Links over Ethernet, of an attachment.
    pub links: Vec<LinkSample>,
    /// Paths to the namespaces, of an attachment.
    pub paths: Vec<PathSample>,
    /// What only an attachment has.
    pub attachment: Option<AttachmentSample>,
}

/// What was done.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct Io {
    /// Reads that ended well.
    pub reads: u64,
    /// Writes that ended well.
    pub writes: u64,
    /// Flushes that ended well.
    pub flushes: u64,
    /// Dataset Management commands that ended well.
    pub discards: u64,
    /// Other I/O commands that ended well.
    pub others: u64,
    /// Octets read.
    pub read_bytes: u64,
    /// Octets written.
    pub written_bytes: u64,
    /// Octets deallocated.
    pub discarded_bytes: u64,
    /// Commands that failed.
    pub errors: u64,
    /// Commands under way.
    pub in_flight: i64,
    /// Of reads.
    pub read_latency: Latency,
    /// Of writes.
    pub write_latency: Latency,
}

impl Io {
    /// Commands that ended well.
    #[must_use]
    pub fn commands(&self) -> u64 {
        self.reads + self.writes + self.flushes + self.discards + self.others
    }
}

impl std::ops::AddAssign<&Io> for Io {
    fn add_assign(&mut self, other: &Io) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.flushes += other.flushes;
        self.discards += other.discards;
        self.others += other.others;
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
        self.discarded_bytes += other.discarded_bytes;
        self.errors += other.errors;
        self.in_flight = self.in_flight.wrapping_add(other.in_flight);
        self.read_latency += &other.read_latency;
        self.write_latency += &other.write_latency;
    }
}

roadtrain_proto::counters! {
    /// How requests of a lane travel together, or those of several.
    #[derive(Serialize, Deserialize)]
    pub struct Batching {
        /// Requests answered, admin commands among them.
        requests,
        /// Octets of their data.
        data_bytes,
        /// Caravans sent.
        caravans,
        /// Requests (responses) in them.
        caravan_requests,
        /// Octets in them.
        caravan_bytes,
        /// Send system calls.
        sends,
        /// Receive system calls.
        receives,
        /// Doorbells because enough had gathered.
        doorbells_size,
        /// Doorbells because time was over.
        doorbells_timer,
        /// Doorbells of urgent requests.
        doorbells_urgent,
        /// Doorbells because nothing more was ready.
        doorbells_drained,
    }
}

impl Batching {
    /// With the doorbells of a batcher.
    #[must_use]
    #[inline]
    pub fn with_doorbells(mut self, doorbells: Doorbells) -> Self {
        self.doorbells_size += doorbells.size;
        self.doorbells_timer += doorbells.timer;
        self.doorbells_urgent += doorbells.urgent;
        self.doorbells_drained += doorbells.drained;
        self
    }
}

/// A reactor.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct ReactorSample {
    /// Its number.
    pub reactor: usize,
    /// Its thread.
    pub thread: u32,
    /// The core that it is pinned to.
    pub core: Option<usize>,
    /// The node that its memory is taken from.
    pub node: Option<u32>,
    /// Its lanes.
    pub lanes: u64,
    /// Memory of data in flight.
    pub buffer_bytes: u64,
    /// The most that may be; 0: there is no pool of its own.
    pub buffer_limit_bytes: u64,
    /// Times when a request had to wait for a buffer.
    pub buffer_waits: u64,
    /// Turns made.
    pub turns: u64,
    /// Sleeps.
    pub waits: u64,
    /// Seconds since it began in which it worked.
    pub busy_seconds: f64,
    /// Seconds in which it slept.
    pub idle_seconds: f64,
    /// Seconds in which it looked for something to do and found nothing.
    pub spin_seconds: f64,
    /// CPU time in its own code.
    pub user_seconds: f64,
    /// CPU time in the kernel for it.
    pub system_seconds: f64,
    /// Context switches of its thread.
    pub context_switches: u64,
    /// How its requests travel.
    pub batching: Batching,
    /// Caravans by how many requests they had: 1, 2, up to 4, up to 8 and so on to 1024, and more.
    pub caravan_sizes: Vec<u64>,
    /// Latencies by operation and class.
    pub latencies: Vec<LatencyOf>,
}

/// Latencies of some requests of a reactor.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct LatencyOf {
    /// `read` or `write`.
    pub op: String,
    /// `latency`, `normal` or `bulk`.
    pub class: String,
    /// Their latencies.
    pub latency: Latency,
}

/// So many commands failed with a status.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StatusCount {
    /// Its name in the specification, its code where it has none, or `other`.
    pub status: String,
    /// Commands.
    pub count: u64,
}

/// The name of a device that the configuration file has, which is a namespace there.
#[must_use]
pub fn name_in_file(nqn: &str, nsid: u32) -> String {
    format!("{nqn}/{nsid}")
}

/// A namespace.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct NamespaceSample {
    /// Its subsystem.
    pub nqn: String,
    /// Its number there.
    pub nsid: u32,
    /// The name of its device, as JSON-RPC has it: that which RPC has given it, else [`name_in_file`].
    pub name: String,
    /// Where its blocks are.
    pub device: String,
    /// Octets of a block.
    pub block_bytes: u32,
    /// What it is kept in.
    pub product: String,
    /// Octets.
    pub capacity_bytes: u64,
    /// Its ANA group.
    pub ana_group: u32,
    /// It may be read only.
    pub read_only: bool,
    /// Hosts can use it here: no other target has its blocks.
    #[serde(default)]
    pub accessible: bool,
    /// What hosts did with it.
    pub io: Io,
    /// Of the commands that failed.
    pub statuses: Vec<StatusCount>,
}

/// A host of a subsystem.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct HostSample {
    /// The subsystem.
    pub nqn: String,
    /// The host.
    pub host_nqn: String,
    /// Where it is, if it is connected.
    pub address: Option<String>,
    /// I/O queues connected.
    pub io_queues: u64,
    /// Controllers that it has connected.
    pub connects: u64,
    /// Connections lost, by reason.
    pub losses: Vec<StatusCount>,
    /// Connects refused, by reason.
    pub refusals: Vec<StatusCount>,
    /// What it did.
    pub io: Io,
}

/// An I/O queue.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct LaneSample {
    /// The subsystem.
    pub nqn: String,
    /// The host.
    pub host_nqn: String,
    /// The other end's address.
    pub peer: String,
    /// `tcp`, `tls` or `ether`.
    pub transport: String,
    /// The controller; 0 at an attachment.
    pub cntlid: u16,
    /// The queue's number; an attachment's lanes count from 1.
    pub qid: u16,
    /// The reactor that has it.
    pub reactor: usize,
    /// How its host has proved who it is, at a target that has asked for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<AuthSample>,
    /// What it carried. At an attachment only in flight and errors: its reactors have the rest.
    pub io: Io,
    /// How its requests travel.
    pub batching: Batching,
    /// Connections lost and made again, at an attachment.
    pub reconnects: u64,
}

/// What a host and a target have agreed upon for the proof of who they are.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AuthSample {
    /// `sha256`, `sha384` or `sha512`.
    pub hash: String,
    /// `null`, or `ffdhe2048` and so on.
    pub group: String,
}

/// A subsystem.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct SubsystemSample {
    /// Its name.
    pub nqn: String,
    /// Its serial number.
    pub serial: String,
    /// Its model number.
    pub model: String,
    /// Hosts that may use it; `None`: any.
    pub allowed_hosts: Option<u64>,
    /// Namespaces.
    pub namespaces: u64,
    /// The most that there may be.
    pub namespace_limit: u64,
    /// Hosts that are named, whether any other may use it or not.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// Its listeners over TCP.
    #[serde(default)]
    pub listeners: u64,
    /// How good the ways to it are.
    #[serde(default)]
    pub ana: Vec<AnaSample>,
    /// Other targets may show it, too, or its listeners may have states of their own.
    #[serde(default)]
    pub shared: bool,
}

/// What a listener of a subsystem tells hosts of the way to its namespaces.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AnaSample {
    /// Its address, one address of a listener that has all of them, or `ether`.
    pub listener: String,
    /// Its ANA state.
    pub state: String,
}

/// A device that no namespace shows.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DeviceSample {
    /// Its name.
    pub name: String,
    /// Where its blocks are.
    pub device: String,
    /// Octets of a block.
    pub block_bytes: u32,
    /// What it is kept in.
    pub product: String,
    /// Octets.
    pub capacity_bytes: u64,
}

/// A target in its gateway group.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GatewaySample {
    /// Its name there.
    pub name: String,
    /// The group.
    pub group: String,
}

/// Connections by transport and outcome.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ConnectionCount {
    /// `tcp` or `tls` or `ether`.
    pub transport: String,
    /// `accepted`, `connected` (has become a queue), or `refused`.
    pub outcome: String,
    /// How many.
    pub count: u64,
}

/// What transports have gone through.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TransportSample {
    /// Listeners.
    pub listeners: Vec<String>,
    /// Connections over TCP that there are.
    pub open: u64,
    /// Connections that have come.
    pub connections: Vec<ConnectionCount>,
    /// Connections that ended because the other end broke the protocol, by Fatal Error Status.
    pub protocol_errors: Vec<StatusCount>,
    /// Digests that were wrong: `header` or `data`.
    pub digest_errors: Vec<StatusCount>,
    /// Frames of each interface.
    pub frames: Vec<FrameCount>,
    /// Frames dropped, by reason.
    pub frames_dropped: Vec<StatusCount>,
}

/// Frames that a target has had at an interface.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FrameCount {
    /// The interface's name.
    pub interface: String,
    /// Frames sent.
    pub sent: u64,
    /// Frames received.
    pub received: u64,
    /// Frames given up: what was in them was sent again.
    pub lost: u64,
}

/// A link over Ethernet.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct LinkSample {
    /// Our interface.
    pub interface: String,
    /// The target's address there.
    pub peer: String,
    /// New frames avoid it.
    pub suspect: bool,
    /// Round-trip time, smoothed: the longest of all lanes.
    pub rtt_seconds: f64,
    /// Frames sent.
    pub sent: u64,
    /// Frames given up: what was in them was sent again.
    pub lost: u64,
}

/// A path to the namespaces.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PathSample {
    /// Where it leads.
    pub address: String,
    /// `live`, `connecting` or `lost`.
    pub state: String,
    /// The best that its controller has said of a namespace.
    pub ana: Option<String>,
    /// Requests that it has answered.
    pub requests: u64,
    /// Octets of their data.
    #[serde(default)]
    pub data_bytes: u64,
    /// Connections of its lanes that were lost.
    #[serde(default)]
    pub losses: u64,
    /// Requests that were given to it and have not ended.
    #[serde(default)]
    pub in_flight: u64,
    /// Of those, requests that wait for a slot or a connection of it.
    #[serde(default)]
    pub waiting: u64,
}

/// What only an attachment has.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct AttachmentSample {
    /// The subsystem.
    pub nqn: String,
    /// How it is shown, as `--as` says.
    pub front: String,
    /// Where programs find it.
    pub devices: Vec<String>,
    /// The target's address.
    pub address: String,
    /// `tcp` or `ether`.
    pub transport: String,
    /// The target can be used.
    pub connected: bool,
    /// Requests taken and not completed.
    pub in_flight: u64,
    /// Of those, requests that wait for a slot or a connection.
    pub waiting: u64,
    /// Octets that it shows.
    pub size_bytes: u64,
    /// Connections lost and made again.
    pub reconnects: u64,
    /// What was done over it.
    pub io: Io,
}
