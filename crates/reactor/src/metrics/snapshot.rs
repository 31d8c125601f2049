//! Snapshot of all counters of a target or an attachment.

use super::latency::Latency;
use roadtrain_proto::policy::DoorbellTotals;
use serde::{Deserialize, Serialize};

/// Kind of process that a snapshot is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SnapshotKind {
    /// A target.
    #[default]
    Target,
    /// An attachment.
    Attachment,
}

/// Snapshot of all counters of a target or an attachment. Counters only grow; rates need two snapshots.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct MetricsSnapshot {
    /// Kind of the process.
    pub kind: SnapshotKind,
    /// Name of the target or the attachment.
    pub id: String,
    /// Role of the target in its gateway group, if it is in one.
    pub gateway: Option<GatewaySample>,
    /// The program's version.
    pub version: String,
    /// Time of the snapshot, in seconds since 1970.
    pub unix_seconds: f64,
    /// Uptime in seconds.
    pub uptime_seconds: f64,
    /// `serving`; of an attachment `connected`, `reconnecting`, `failing` or `stopping`.
    pub state: String,
    /// Current problems; empty when all is well.
    pub problems: Vec<String>,
    /// True if the last reading of the configuration file succeeded; `None`: there is no file.
    pub last_reload_successful: Option<bool>,
    /// Upper bounds of the buckets of all latencies, in seconds; the last bucket has none.
    pub latency_bounds_seconds: Vec<f64>,
    /// Reactors by number.
    pub reactors: Vec<ReactorSample>,
    /// Namespaces that a target exports, or an attachment shows.
    pub namespaces: Vec<NamespaceSample>,
    /// Namespaces that the limit of the query has left out of `namespaces`.
    pub namespaces_left_out: u64,
    /// Devices of a target that belong to no namespace.
    pub unused_devices: Vec<DeviceSample>,
    /// Hosts that are or were connected to a target.
    pub hosts: Vec<HostSample>,
    /// I/O queues: those connected to a target, or the lanes of an attachment.
    pub lanes: Vec<LaneSample>,
    /// Subsystems of a target.
    pub subsystems: Vec<SubsystemSample>,
    /// Connections and their errors.
    pub transports: TransportSample,
    /// Links over Ethernet, of an attachment.
    pub links: Vec<LinkSample>,
    /// Paths to the namespaces, of an attachment.
    pub paths: Vec<PathSample>,
    /// Counters that only an attachment has.
    pub attachment: Option<AttachmentSample>,
}

/// Counters of I/O.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct IoCounters {
    /// Successful reads.
    pub reads: u64,
    /// Successful writes.
    pub writes: u64,
    /// Successful flushes.
    pub flushes: u64,
    /// Successful Dataset Management commands.
    pub discards: u64,
    /// Other successful I/O commands.
    pub others: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Bytes deallocated.
    pub discarded_bytes: u64,
    /// Commands that failed.
    pub errors: u64,
    /// Commands in flight.
    pub in_flight: i64,
    /// Latencies of reads.
    pub read_latency: Latency,
    /// Latencies of writes.
    pub write_latency: Latency,
}

impl IoCounters {
    /// Returns the number of successful commands.
    #[must_use]
    pub fn commands(&self) -> u64 {
        self.reads + self.writes + self.flushes + self.discards + self.others
    }
}

impl std::ops::AddAssign<&IoCounters> for IoCounters {
    fn add_assign(&mut self, other: &IoCounters) {
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
    /// Batching of the requests of one lane or several.
    #[derive(Serialize, Deserialize)]
    pub struct Batching {
        /// Completed requests, admin commands included.
        requests,
        /// Bytes of their data.
        data_bytes,
        /// Caravans sent.
        caravans,
        /// Requests (responses) in them.
        caravan_requests,
        /// Bytes in them.
        caravan_bytes,
        /// Send system calls.
        sends,
        /// Receive system calls.
        receives,
        /// Doorbells because a caravan was full.
        doorbells_size,
        /// Doorbells because a timer fired.
        doorbells_timer,
        /// Doorbells of urgent requests.
        doorbells_urgent,
        /// Doorbells because nothing more was ready.
        doorbells_drained,
    }
}

impl Batching {
    /// Adds the doorbells of a batcher.
    #[must_use]
    #[inline]
    pub fn with_doorbells(mut self, doorbells: DoorbellTotals) -> Self {
        self.doorbells_size += doorbells.size;
        self.doorbells_timer += doorbells.timer;
        self.doorbells_urgent += doorbells.urgent;
        self.doorbells_drained += doorbells.drained;
        self
    }
}

/// Counters of a reactor.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct ReactorSample {
    /// Number of the reactor.
    pub reactor: usize,
    /// Thread ID.
    pub thread: u32,
    /// Core that the reactor is pinned to.
    pub core: Option<usize>,
    /// NUMA node of its memory.
    pub node: Option<u32>,
    /// Number of lanes.
    pub lane_count: u64,
    /// Bytes of buffers for data in flight.
    pub buffer_bytes: u64,
    /// Limit of these bytes; 0: the reactor has no pool of its own.
    pub buffer_limit_bytes: u64,
    /// Number of times that a request waited for a buffer.
    pub buffer_waits: u64,
    /// Turns of the loop.
    pub turns: u64,
    /// Sleeps.
    pub waits: u64,
    /// Seconds of work since the start.
    pub busy_seconds: f64,
    /// Seconds asleep.
    pub idle_seconds: f64,
    /// Seconds of polling without work.
    pub spin_seconds: f64,
    /// CPU time in user space in seconds.
    pub user_seconds: f64,
    /// CPU time in the kernel in seconds.
    pub system_seconds: f64,
    /// Context switches of the thread.
    pub context_switches: u64,
    /// Batching of its requests.
    pub batching: Batching,
    /// Caravans by number of requests: 1, 2, up to 4, up to 8 and so on to 1024, and more.
    pub caravan_sizes: Vec<u64>,
    /// Latencies by operation and class.
    pub latencies: Vec<LatencyOf>,
}

/// Latencies of requests of one operation and class.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct LatencyOf {
    /// `read` or `write`.
    pub op: String,
    /// `latency`, `normal` or `bulk`.
    pub class: String,
    /// Latencies of these requests.
    pub latency: Latency,
}

/// Commands that failed with one status.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StatusCount {
    /// Name of the status in the specification, its code where it has none, or `other`.
    pub status: String,
    /// Number of commands.
    pub count: u64,
}

/// Events with one reason.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ReasonCount {
    /// Reason: a Fatal Error Status, or a word.
    pub reason: String,
    /// Number of events.
    pub count: u64,
}

/// Returns the name of a device from the configuration file, which is a namespace there.
#[must_use]
pub fn name_in_file(nqn: &str, nsid: u32) -> String {
    format!("{nqn}/{nsid}")
}

/// Counters of a namespace.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct NamespaceSample {
    /// NQN of the subsystem.
    pub nqn: String,
    /// Namespace ID.
    pub nsid: u32,
    /// Name of the device in JSON-RPC: the one that RPC has set, else [`name_in_file`]. At an attachment the first name
    /// of its device.
    pub device: String,
    /// Place of the blocks, as `--namespace` takes it, or that of RPC's device; empty at an attachment.
    pub store: String,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Kind of the store.
    pub product: String,
    /// Capacity in bytes.
    pub capacity_bytes: u64,
    /// ANA group.
    pub ana_group: u32,
    /// True if the namespace is read-only.
    pub read_only: bool,
    /// True if hosts can use the namespace here: no other target owns its blocks.
    pub accessible: bool,
    /// I/O of the hosts.
    pub io: IoCounters,
    /// Failed commands by status.
    pub statuses: Vec<StatusCount>,
}

/// Counters of a host at a subsystem.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct HostSample {
    /// NQN of the subsystem.
    pub nqn: String,
    /// NQN of the host.
    pub host_nqn: String,
    /// Address of the host, if it is connected.
    pub address: Option<String>,
    /// I/O queues connected.
    pub io_queues: u64,
    /// Controllers that the host has connected.
    pub connects: u64,
    /// Lost connections, by reason.
    pub losses: Vec<ReasonCount>,
    /// Refused Connects, by reason.
    pub refused_connects: Vec<ReasonCount>,
    /// I/O of the host.
    pub io: IoCounters,
}

/// Counters of an I/O queue.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct LaneSample {
    /// NQN of the subsystem.
    pub nqn: String,
    /// NQN of the host.
    pub host_nqn: String,
    /// Address of the peer.
    pub peer: String,
    /// `tcp`, `tls` or `ether`.
    pub transport: String,
    /// Controller ID; 0 at an attachment.
    pub cntlid: u16,
    /// Queue ID; an attachment's lanes count from 1.
    pub qid: u16,
    /// Number of the reactor.
    pub reactor: usize,
    /// Authentication of the host, at a target that requires it.
    pub auth: Option<AuthSample>,
    /// I/O of the queue. At an attachment only in flight and errors: its reactors have the rest.
    pub io: IoCounters,
    /// Batching of its requests.
    pub batching: Batching,
    /// Reconnects of an attachment's lane.
    pub reconnects: u64,
}

/// Negotiated parameters of an authentication.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AuthSample {
    /// `sha256`, `sha384` or `sha512`.
    pub hash: String,
    /// `null`, or `ffdhe2048` and so on.
    pub dhgroup: String,
}

/// Counters of a subsystem.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct SubsystemSample {
    /// NQN of the subsystem.
    pub nqn: String,
    /// Serial number.
    pub serial: String,
    /// Model number.
    pub model: String,
    /// NQNs of the hosts that may use it; `None`: any host.
    pub allow_hosts: Option<Vec<String>>,
    /// NQNs of the hosts that are named, also where any host may use it.
    pub named_hosts: Vec<String>,
    /// Number of namespaces.
    pub namespace_count: u64,
    /// Maximum number of namespaces.
    pub namespaces_max: u64,
    /// Number of its TCP listeners.
    pub listener_count: u64,
    /// ANA states of its listeners.
    pub ana_listeners: Vec<AnaSample>,
    /// True if other targets may export it, too, or its listeners may have states of their own.
    pub shared: bool,
}

/// ANA state of the paths through a listener.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AnaSample {
    /// Address of the listener, one of its addresses if it has several, or `ether`.
    pub listener: String,
    /// ANA state, as `roadtrain ctl listener set` takes it.
    pub ana: String,
}

/// A device that belongs to no namespace.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DeviceSample {
    /// Name of the device.
    pub name: String,
    /// Place of the blocks.
    pub store: String,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Kind of the store.
    pub product: String,
    /// Capacity in bytes.
    pub capacity_bytes: u64,
}

/// Role of a target in its gateway group.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GatewaySample {
    /// Name of the target in the group.
    pub name: String,
    /// Name of the group.
    pub group: String,
}

/// Connections by transport and outcome.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ConnectionCount {
    /// `tcp`, `tls` or `ether`.
    pub transport: String,
    /// `accepted`, `connected` (has become a queue), or `refused`.
    pub outcome: String,
    /// Number of connections.
    pub count: u64,
}

/// Counters of the transports.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TransportSample {
    /// Listeners.
    pub listeners: Vec<String>,
    /// Open connections, and lanes over Ethernet.
    pub connections: u64,
    /// Accepted connections, by transport and outcome.
    pub connection_counts: Vec<ConnectionCount>,
    /// Connections that ended because the peer broke the protocol, by Fatal Error Status.
    pub protocol_errors: Vec<ReasonCount>,
    /// Wrong digests: `header` or `data`.
    pub digest_errors: Vec<ReasonCount>,
    /// Frames of each interface.
    pub frames: Vec<FrameCount>,
    /// Frames dropped, by reason.
    pub frames_dropped: Vec<ReasonCount>,
}

/// Frames of a target at an interface.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FrameCount {
    /// Name of the interface.
    pub interface: String,
    /// Frames sent.
    pub sent_frames: u64,
    /// Frames received.
    pub received_frames: u64,
    /// Frames that were lost: their contents were sent again.
    pub lost_frames: u64,
}

/// Counters of a link over Ethernet: the sum of all lanes' parts.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct LinkSample {
    /// Local interface.
    pub interface: String,
    /// NUMA node of the interface, if known.
    pub node: Option<u32>,
    /// Address of the target on the link.
    pub peer: String,
    /// True if no lane suspects the link: new frames avoid a suspect one.
    pub up: bool,
    /// True if frames of all lanes are sealed.
    pub sealed: bool,
    /// Smoothed round-trip time in microseconds: the longest of all lanes.
    pub rtt_us: f64,
    /// Frames sent.
    pub sent_frames: u64,
    /// Frames that were lost: their contents were sent again.
    pub lost_frames: u64,
}

/// Counters of a path to the namespaces.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PathSample {
    /// Address of the target.
    pub address: String,
    /// `live`, `connecting` or `lost`.
    pub state: String,
    /// Best ANA state that the controller reports for a namespace.
    pub ana: Option<String>,
    /// Requests completed on the path.
    pub requests: u64,
    /// Bytes of their data.
    pub data_bytes: u64,
    /// Lost connections of its lanes.
    pub loss_count: u64,
    /// Requests of the path in flight.
    pub in_flight: u64,
    /// Requests in flight that wait for a slot or a connection of the path.
    pub waiting_requests: u64,
}

/// Counters that only an attachment has.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct AttachmentSample {
    /// NQN of the subsystem.
    pub nqn: String,
    /// Front-end with its place, as `--as` takes it.
    #[serde(rename = "as")]
    pub front: String,
    /// Names of the devices.
    pub names: Vec<String>,
    /// Address of the target.
    pub address: String,
    /// `tcp` or `ether`.
    pub transport: String,
    /// True if the target can be used.
    pub connected: bool,
    /// Requests in flight.
    pub in_flight: u64,
    /// Requests in flight that wait for a slot or a connection.
    pub waiting_requests: u64,
    /// Size of the devices in bytes.
    pub capacity_bytes: u64,
    /// Reconnects of the lanes.
    pub reconnects: u64,
    /// I/O of the attachment.
    pub io: IoCounters,
}
