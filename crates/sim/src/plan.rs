//! Plan of a seed: settings of both ends, the network, the disk, the load and the faults.

use crate::disk::{BLOCK_BYTES, DiskBehaviour};
use crate::ends::ConnEnd;
use crate::ether::settings::EtherSettings;
use crate::network::NetworkBehaviour;
use crate::rng::SimRng;
use crate::secure::Security;
use core::num::NonZeroU64;
use core::ops::Range;
use core::time::Duration;
use roadtrain_host_proto as host;
use roadtrain_host_proto::express::ExpressRules;
use roadtrain_proto::caravan::CaravanLimits;
use roadtrain_proto::policy::{PolicyConfig, PolicyKind};
use roadtrain_proto::security::dhchap::DhchapKeys;
use roadtrain_proto::security::{DhchapKey, Hash};
use roadtrain_proto::time::Instant;
use roadtrain_target_proto as target;
use roadtrain_target_proto::rate::RateSettings;
use roadtrain_wire::pdu::Digests;
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::status::Status;

/// NQN of the subsystem.
pub const NQN: &str = "nqn.2026-11.test:sim";
/// Duration for which everything over Ethernet is lost: longer than a keep-alive timeout.
pub(crate) const SWALLOWED: Duration = Duration::from_millis(150);
/// Begin of the hosts' NQNs.
pub const HOST_NQN: &str = "nqn.2026-11.test:host";

/// Returns the NQN of one of several hosts.
pub(crate) fn host_nqn(hostid: [u8; 16]) -> String {
    format!("{HOST_NQN}-{}", hostid[0])
}

/// A fault, or another event from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimFault {
    /// The network resets a connection.
    Reset,
    /// The network resets a connection, with notice to one end only.
    ResetOne {
        /// End that is notified.
        end: ConnEnd,
    },
    /// An end does not read a connection for a while; over Ethernet it does nothing at all.
    Stall {
        /// Stalled end.
        end: ConnEnd,
        /// Duration of the stall.
        time: Duration,
    },
    /// An end closes a connection.
    Leave(ConnEnd),
    /// A link is cut for a while. This fault and the following ones apply to links of Ethernet only.
    Cut {
        /// Number of the link.
        link: u8,
        /// Duration of the cut.
        time: Duration,
        /// True if the ends are notified of the missing carrier.
        is_notified: bool,
        /// True if frames sent meanwhile wait in the interface, and leave when the link is back.
        sticks: bool,
    },
    /// All frames over a link in one direction are lost for a while.
    DropTowards {
        /// Number of the link.
        link: u8,
        /// Direction of the loss.
        to: ConnEnd,
        /// Duration of the loss.
        time: Duration,
    },
    /// The hosts' lanes move to other socket numbers.
    Move,
    /// An end advertises little room, or none, for a while.
    Narrow {
        /// Advertising end.
        end: ConnEnd,
        /// Advertised credits.
        credits: u16,
        /// Duration.
        time: Duration,
    },
    /// An attacker on the segment sends frames: replayed, truncated, changed, random.
    Flood {
        /// Number of frames.
        frames: u32,
    },
    /// All frames to an end are lost for a while, except recorded ones that an attacker repeats.
    Echo {
        /// Receiving end.
        to: ConnEnd,
        /// Duration.
        time: Duration,
    },
    /// All arrivals are held for a while.
    Hold {
        /// Duration.
        time: Duration,
    },
    /// A target's process dies and restarts.
    Kill {
        /// Number of the target.
        target: u8,
        /// Duration of the absence.
        time: Duration,
    },
    /// A target's process is paused: it executes nothing and its timers do not run, but data sent to it arrives.
    Pause {
        /// Number of the target.
        target: u8,
        /// Duration of the pause.
        time: Duration,
    },
    /// A host detaches: requests without a timely response fail. Then another process attaches in its place.
    Detach {
        /// Number of the host.
        host: u8,
        /// Time between the two.
        time: Duration,
    },
    /// An address leads to another target from now on; existing connections stay.
    Reroute {
        /// Number of the path, over all hosts.
        path: u8,
        /// New target.
        target: u8,
    },
    /// The next write takes longer in the store.
    Stick {
        /// Extra duration.
        time: Duration,
    },
    /// The machine of all targets loses power and comes back.
    PowerLoss {
        /// Duration of the absence.
        time: Duration,
    },
    /// A host's process dies with its requests, and another takes its place: its connections are reset.
    KillHost {
        /// Number of the host.
        host: u8,
        /// Duration of the absence.
        time: Duration,
    },
    /// The network drops all that is sent over a connection from then on, its end as well. Both ends detect that by
    /// timeouts. Over Ethernet it drops everything for a while.
    Swallow,
    /// The target reads none of the present connections for a while; over Ethernet it is stalled.
    Unread {
        /// Duration.
        time: Duration,
    },
    /// All connections end, with notice to hosts only.
    Partition,
    /// One path of a host fails, over TCP. At first the target does not read its connections for a while.
    Silence {
        /// Number of the path, over all hosts.
        path: u8,
        /// Duration.
        time: Duration,
    },
    /// Then its connections end, with notice to the host only, and it can make no others for a while.
    Isolate {
        /// Number of the path, over all hosts.
        path: u8,
        /// Duration.
        time: Duration,
    },
    /// The network flips a bit: both digests are on and must detect it.
    Corrupt,
    /// An attacker on the wire changes bytes in flight: they are altered, dropped, inserted, or repeated.
    Forge,
    /// A namespace without data changes.
    Namespace,
    /// The disk is stalled for a while, like one whose path fails over.
    StallDisk {
        /// Duration of the stall.
        time: Duration,
    },
    /// The namespace in use grows, or shrinks to its previous size.
    Resize,
}

impl SimFault {
    /// Returns the duration of the fault.
    #[must_use]
    pub fn time(&self) -> Duration {
        match *self {
            SimFault::Stall { time, .. }
            | SimFault::Hold { time }
            | SimFault::Kill { time, .. }
            | SimFault::Pause { time, .. }
            | SimFault::Detach { time, .. }
            | SimFault::Stick { time }
            | SimFault::KillHost { time, .. }
            | SimFault::StallDisk { time }
            | SimFault::Unread { time }
            | SimFault::Silence { time, .. }
            | SimFault::Isolate { time, .. }
            | SimFault::PowerLoss { time }
            | SimFault::Cut { time, .. }
            | SimFault::DropTowards { time, .. }
            | SimFault::Echo { time, .. }
            | SimFault::Narrow { time, .. } => time,
            SimFault::Swallow => SWALLOWED,
            SimFault::Flood { .. } => Duration::from_millis(25),
            SimFault::Reset
            | SimFault::ResetOne { .. }
            | SimFault::Leave(_)
            | SimFault::Partition
            | SimFault::Move
            | SimFault::Corrupt
            | SimFault::Forge
            | SimFault::Reroute { .. }
            | SimFault::Namespace
            | SimFault::Resize => Duration::ZERO,
        }
    }

    /// True if the fault may end connections.
    #[must_use]
    pub fn ends(&self) -> bool {
        let harmless = matches!(
            self,
            SimFault::Namespace
                | SimFault::Resize
                | SimFault::StallDisk { .. }
                | SimFault::Stick { .. }
        );
        let is_survived = matches!(
            self,
            SimFault::Stall { .. }
                | SimFault::Unread { .. }
                | SimFault::Silence { .. }
                | SimFault::Cut { .. }
                | SimFault::DropTowards { .. }
                | SimFault::Move
                | SimFault::Narrow { .. }
                | SimFault::Flood { .. }
        );
        !harmless && !is_survived
    }
}

/// Reactors of a target.
#[derive(Clone, Copy, Debug)]
pub struct ReactorsPlan {
    /// Number of reactors.
    pub count: usize,
    /// Longest time in microseconds for which a reactor leaves a message in its inbox, if there are several.
    pub inbox_delay_us: u64,
    /// Moves of lanes to another reactor per second.
    pub moves: u32,
}

impl Default for ReactorsPlan {
    fn default() -> Self {
        ReactorsPlan { count: 1, inbox_delay_us: 0, moves: 0 }
    }
}

/// Everything that a seed decides.
#[derive(Clone, Debug)]
pub struct SimPlan {
    /// Hosts that share the namespace.
    pub hosts: u8,
    /// Targets that serve the namespace from one disk. At first a host's path leads to the target of its number.
    pub targets: u8,
    /// Reactors of each target.
    pub reactors: ReactorsPlan,
    /// True if the storage lends its memory: data of reads and writes is transferred in place.
    pub lends_memory: bool,
    /// Paths of each host. Hosts with several are not killed.
    pub paths: u8,
    /// Lanes of a host.
    pub lanes: usize,
    /// Entries of the I/O queues.
    pub queue_entries: u16,
    /// Requests outstanding per lane.
    pub depth: usize,
    /// Time before which requests and faults begin.
    pub chaos: Duration,
    /// Mean time between two requests of a lane.
    pub pause: Duration,
    /// Blocks of the namespace.
    pub blocks: u64,
    /// Bytes of a physical block of the disk; larger than a logical one: smaller writes are read-modify-writes.
    pub physical_bytes: usize,
    /// Number of blocks at the end of the namespace that are counters.
    pub counters: u64,
    /// Number of blocks before those that hosts write which take the namespace from one another by reservations.
    pub reserved: u64,
    /// Percentage of requests that mark blocks as uncorrectable.
    pub marks_percent: u64,
    /// Percentage of requests that replace a block by Compare and Write.
    pub swaps_percent: u64,
    /// Settings of the host's I/O queue pairs.
    pub host: host::qpair::HostQpairConfig,
    /// True if the host requests SQ flow control.
    pub sq_flow_control: bool,
    /// True if hosts and target authenticate each other.
    pub authenticates: bool,
    /// Time of a target's Diffie-Hellman computation in microseconds; 0: none.
    pub dh_compute_us: u64,
    /// True if connections are secured by TLS.
    pub tls: bool,
    /// Parameters of TLS.
    pub security: Security,
    /// Settings of the target's queue pairs.
    pub target: target::qpair::TargetQpairConfig,
    /// Parts of a caravan (a PDU has one or two).
    pub caravan_parts: usize,
    /// Bytes of the target's buffers.
    pub pool_bytes: usize,
    /// Rate limits of the namespace in use; they come and go with changes of the other namespace.
    pub rates: RateSettings,
    /// Percentage of connections that receive data directly into its destination.
    pub placed_percent: u64,
    /// Behaviour of the network.
    pub network_behaviour: NetworkBehaviour,
    /// Behaviour of the disk.
    pub behaviour: DiskBehaviour,
    /// Keep-alive timeout; zero: none.
    pub keep_alive: Duration,
    /// Timeout of a command of the control plane.
    pub timeout: Duration,
    /// First pause before connecting again.
    pub reconnect_delay: Duration,
    /// Time without a connection after which requests fail.
    pub controller_loss_timeout: Option<Duration>,
    /// Earlier time without a connection after which requests fail fast.
    pub fast_io_fail_timeout: Option<Duration>,
    /// Time after which the host aborts a command, and then resets the connection.
    pub io_timeout: Option<Duration>,
    /// Times at which the target refuses I/O, with the status of its responses.
    pub refusals: Vec<(Range<Instant>, Status)>,
    /// Settings of lanes over Ethernet and their links; empty over TCP.
    pub ether: EtherSettings,
    /// Rules of express connections; `None`: lanes have none.
    pub express: Option<ExpressRules>,
    /// Faults, sorted by time.
    pub faults: Vec<(Instant, SimFault)>,
    /// Random numbers for scenarios.
    pub dice: SimRng,
    /// Deliberate fault of a state machine, which the checker must find.
    pub sabotage: Option<Sabotage>,
}

/// A deliberate fault, of the target unless it says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// It does not delay new associations until commands of old ones have ended, nor does it reset controllers that the
    /// host names.
    NoFence,
    /// It responds to a flush at once.
    IdleFlush,
    /// It reports a failed flush only to the host that has flushed.
    UnreportedFailure,
    /// It ignores FUA.
    IgnoredFua,
    /// It writes only the first half of a block.
    TornBlock,
    /// It does not wait for commands of ended connections.
    NoDrain,
    /// Hosts: they retry everything on another path at once when one is lost, without having the lost controller ended.
    EarlyMove,
    /// Hosts: they retry requests of a lost express connection on another path at once.
    EarlyExpress,
    /// It reports the reset of another controller of the host without doing it.
    NoReset,
    /// Commands that need exclusive access to their blocks do not get it.
    NotAlone,
    /// While a command has exclusive access to blocks, data of writes still reaches memory that is lent.
    OpenPlaces,
    /// It responds to Write Uncorrectable before the mark is saved.
    EarlyMark,
    /// Taking a reservation does not wait for others' commands in the store.
    NoWait,
    /// Hosts: they continue after the quiet time though a target reports that it still has the controller.
    IgnoredClaim,
    /// Hosts: while a write may still be executed they hold back its retries, but not other writes.
    OpenBlocks,
    /// All targets report the same location, as if each had replaced another one.
    OnePlace,
    /// After a pause it executes received commands before it checks keep-alive timers.
    LateCheck,
    /// Its write verifier stays the same after a power loss.
    SameVerifier,
    /// It drops the response to one command of a hundred.
    DroppedResponse,
    /// Other changes of a physical block run between the read and the write of a read-modify-write.
    SharedBlocks,
    /// Its reactors do not forward events to lanes that have moved.
    LostEvents,
    /// A host that takes a reservation waits for one reactor only.
    OneReactor,
    /// Hosts: they have no host identifier.
    NoHostId,
}

impl Sabotage {
    /// True if the command resets another controller of the host, and gets a response without being executed.
    pub(crate) fn skips(self, sqe: &Sqe) -> bool {
        let skips_resets = matches!(self, Sabotage::NoFence | Sabotage::NoReset);
        skips_resets && sqe.opcode == opcode::CROSS_CONTROLLER_RESET
    }
}

pub(crate) fn policy(rng: &mut SimRng) -> PolicyConfig {
    let kinds =
        [PolicyKind::None, PolicyKind::I10, PolicyKind::Pinof, PolicyKind::Tyche, PolicyKind::Auto];
    let mut policy = PolicyConfig::of(rng.pick(&kinds));
    policy.tyche.interval = rng.micros(100, 10_000);
    if rng.chance(30) {
        let (count_max, bytes_max) = (rng.between(1, 20) as u32, rng.between(1, 100_000) as u32);
        policy.limits = CaravanLimits { count_max, bytes_max };
        policy.doorbell_delay = rng.micros(0, 200);
    }
    policy
}

/// Returns rate limits, for one namespace of five.
fn rates(mut rng: SimRng) -> RateSettings {
    if !rng.chance(20) {
        return RateSettings::UNLIMITED;
    }
    let bandwidth = rng.chance(50).then(|| rng.between(2_000_000, 50_000_000));
    RateSettings {
        iops: NonZeroU64::new(rng.between(2_000, 50_000)),
        write_bandwidth: bandwidth.and_then(NonZeroU64::new),
        burst: Some(rng.micros(0, 10_000)),
        ..RateSettings::UNLIMITED
    }
}

fn network_behaviour(rng: &mut SimRng, shortest: u64) -> NetworkBehaviour {
    NetworkBehaviour {
        delay_us: (shortest, shortest * rng.between(1, 6)),
        piece_bytes: rng.pick(&[40, 1500, 30_000, 200_000]),
        window_bytes: rng.pick(&[2_000, 65_536, 1 << 20]),
    }
}

fn behaviour(rng: &mut SimRng, latency: u64) -> DiskBehaviour {
    DiskBehaviour {
        latency_us: (latency, latency * rng.between(1, 5)),
        slow_percent: rng.pick(&[0, 2, 20]),
        failing_per_mille: rng.pick(&[0, 0, 20]),
        losing_percent: 0,
    }
}

fn digests(rng: &mut SimRng) -> Digests {
    Digests { header: rng.chance(50), data: rng.chance(50) }
}

impl SimPlan {
    /// Returns the most requests of a host that have not completed.
    #[must_use]
    pub fn requests_max(&self) -> usize {
        usize::from(self.paths) * self.lanes * self.depth
    }

    /// Returns the authentication keys of hosts and target.
    #[must_use]
    pub fn keys(&self) -> DhchapKeys {
        if !self.authenticates {
            return DhchapKeys::default();
        }
        let key = |byte| DhchapKey::new(Some(Hash::Sha256), &[byte; 32]).ok();
        DhchapKeys { host: key(1), controller: key(2) }
    }

    /// Returns the plan of a seed.
    #[must_use]
    pub fn new(rng: &mut SimRng) -> Self {
        let rates = rates(rng.clone().fork()); // drawn from a fork, which leaves the rest of the plan unchanged
        let dice = SimRng::new(rng.clone().bits());
        let chaos = Duration::from_millis(rng.between(20, 400));
        let hosts = rng.pick(&[1, 1, 2, 3]);
        let (lanes, requests) = (rng.between(1, 4) as usize, rng.between(100, 1200) as u32);
        let in_capsule_bytes = rng.pick(&[0, 512, 4096, 8192]);
        let shortest = rng.between(2, 60);
        let latency = rng.between(5, 300);
        let keep_alive_ms = rng.pick(&[0, 100, 200]);
        let queue_entries = rng.pick(&[2, 3, 8, 32, 128]);
        let host = host::qpair::HostQpairConfig {
            digests: digests(rng),
            queue_entries,
            in_capsule_bytes,
            policy: policy(rng),
        };
        let target = target::qpair::TargetQpairConfig {
            digests: Digests { header: true, data: true },
            maxh2cdata: rng.pick(&[4096, 8192, 131_072]),
            in_capsule_bytes_max: in_capsule_bytes.max(1024),
            policy: policy(rng),
        };
        SimPlan {
            hosts,
            lanes,
            queue_entries,
            depth: rng.between(1, 40) as usize,
            chaos,
            pause: chaos * lanes as u32 * u32::from(hosts) / requests,
            blocks: rng.pick(&[16, 64, 512]),
            counters: 0,
            reserved: 0,
            marks_percent: 0,
            swaps_percent: 0,
            host,
            sq_flow_control: rng.chance(50),
            authenticates: false,
            dh_compute_us: 0,
            tls: false,
            security: Security::new(rng.clone()),
            target,
            caravan_parts: rng.pick(&[2, 5, 64, 1000]),
            rates,
            pool_bytes: 0,
            placed_percent: rng.pick(&[0, 50, 100]),
            network_behaviour: network_behaviour(rng, shortest),
            behaviour: behaviour(rng, latency),
            keep_alive: Duration::from_millis(keep_alive_ms),
            timeout: Duration::from_millis(100),
            reconnect_delay: Duration::from_millis(rng.pick(&[1, 10])),
            controller_loss_timeout: rng.chance(30).then(|| rng.micros(0, 50_000)),
            fast_io_fail_timeout: None,
            io_timeout: Some(Duration::from_millis(60)),
            refusals: Vec::new(),
            ether: EtherSettings::default(),
            express: None,
            targets: 1,
            reactors: ReactorsPlan::default(),
            lends_memory: false,
            physical_bytes: BLOCK_BYTES,
            paths: 1,
            faults: faults(rng, chaos, host.digests),
            dice,
            sabotage: None,
        }
        .with_host_faults(rng)
    }

    /// Returns the rules of express connections, which lanes over Ethernet do not have.
    #[must_use]
    pub fn express_rules(&self) -> Option<ExpressRules> {
        self.express.filter(|_| self.ether.links.is_empty())
    }

    /// Adds faults of hosts, and silent losses of connections.
    fn with_host_faults(mut self, rng: &mut SimRng) -> Self {
        for _ in 0..rng.below(4) {
            let host = rng.below(self.hosts.into()) as u8;
            let fault = SimFault::KillHost { host, time: rng.micros(0, 20_000) };
            self.faults.push((rng.moment(self.chaos), fault));
        }
        // Without a keep-alive timer a target keeps such a connection for ever.
        if !self.keep_alive.is_zero() {
            for _ in 0..rng.below(4) {
                let reset = SimFault::ResetOne { end: end(rng, 50) };
                let fault = if rng.chance(50) { SimFault::Swallow } else { reset };
                self.faults.push((rng.moment(self.chaos), fault));
            }
        }
        self.faults.sort_by_key(|(at, _)| *at);
        // The longest command takes 20 KiB.
        self.pool_bytes = rng.pick(&[24 << 10, 64 << 10, 4 << 20, 4 << 20]);
        self
    }
}

/// Returns an end: the target `percent` times of 100.
fn end(rng: &mut SimRng, percent: u64) -> ConnEnd {
    if rng.chance(percent) { ConnEnd::Target } else { ConnEnd::Host }
}

fn faults(rng: &mut SimRng, chaos: Duration, digests: Digests) -> Vec<(Instant, SimFault)> {
    let mut faults = Vec::new();
    if digests.header && digests.data {
        for _ in 0..rng.below(30) {
            faults.push((rng.moment(chaos), SimFault::Corrupt));
        }
    }
    for _ in 0..rng.below(12) {
        let time = rng.micros(0, 30_000);
        let fault = match rng.below(100) {
            0..40 => SimFault::Reset,
            40..65 => SimFault::Stall { end: end(rng, 70), time },
            65..75 => SimFault::Hold { time: time * rng.pick(&[1, 20]) },
            75..83 => SimFault::Kill { target: 0, time },
            83..88 => SimFault::PowerLoss { time },
            88..93 => SimFault::StallDisk { time },
            93..96 => SimFault::Resize,
            _ => SimFault::Namespace,
        };
        faults.push((rng.moment(chaos), fault));
    }
    faults.sort_by_key(|(at, _)| *at);
    faults
}
