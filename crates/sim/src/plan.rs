//! What a seed stands for: settings of both ends, the network, the disk, the load and the faults.

use crate::disk::Manners;
use crate::ends::End;
use crate::ether::settings::Settings;
use crate::network::Weather;
use crate::rng::Rng;
use crate::secure::Security;
use core::num::NonZeroU64;
use core::ops::Range;
use core::time::Duration;
use roadtrain_host_proto as host;
use roadtrain_host_proto::express::Rules;
use roadtrain_proto::caravan::Limits;
use roadtrain_proto::policy::{PolicyConfig, PolicyKind};
use roadtrain_proto::security::dhchap::Keys;
use roadtrain_proto::security::{DhchapKey, Hash};
use roadtrain_proto::time::Instant;
use roadtrain_target_proto as target;
use roadtrain_target_proto::rate::Rates;
use roadtrain_wire::pdu::Digests;
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::status::Status;

/// The subsystem.
pub const NQN: &str = "nqn.2026-11.test:sim";
/// Everything over Ethernet is lost for so long, if anything is: longer than a keep-alive timeout.
pub(crate) const SWALLOWED: Duration = Duration::from_millis(150);
/// The host.
pub const HOST_NQN: &str = "nqn.2026-11.test:host";

/// NQN of one of several hosts.
pub(crate) fn host_nqn(hostid: [u8; 16]) -> String {
    format!("{HOST_NQN}-{}", hostid[0])
}

/// A fault, or another event from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The network resets a connection.
    Reset,
    /// The network resets a connection, but only one end hears of it.
    ResetOne {
        /// Which.
        end: End,
    },
    /// An end does not read a connection for a while; over Ethernet it does nothing at all.
    Stall {
        /// Which.
        end: End,
        /// How long.
        time: Duration,
    },
    /// An end ends a connection.
    Leave(End),
    /// A link is cut for a while. This and what follows happens to links of Ethernet only.
    Cut {
        /// Which.
        link: u8,
        /// How long.
        time: Duration,
        /// The ends are told that there is no carrier.
        told: bool,
        /// What is sent meanwhile waits in the interface, and leaves when the link is back.
        sticks: bool,
    },
    /// Nothing arrives over a link in one direction for a while.
    Deaf {
        /// Which.
        link: u8,
        /// In which direction.
        to: End,
        /// How long.
        time: Duration,
    },
    /// The hosts' lanes move to other socket numbers.
    Move,
    /// An end says that it has little room, or none, for a while.
    Narrow {
        /// Which.
        end: End,
        /// Room.
        credits: u16,
        /// How long.
        time: Duration,
    },
    /// Somebody on the segment sends frames: replayed, truncated, changed, random.
    Flood {
        /// So many.
        frames: u32,
    },
    /// Nothing that is sent over Ethernet arrives at an end for a while, but frames of the past, which somebody repeats.
    Echo {
        /// Which.
        to: End,
        /// How long.
        time: Duration,
    },
    /// Nothing arrives anywhere for a while.
    Hold {
        /// How long.
        time: Duration,
    },
    /// A target's process dies and comes back.
    Kill {
        /// Which.
        target: u8,
        /// How long it is away.
        time: Duration,
    },
    /// A target's process stands still: it executes nothing, its timers do not run, and what is sent to it arrives.
    Pause {
        /// Which.
        target: u8,
        /// How long.
        time: Duration,
    },
    /// A host detaches: what is not answered in time fails. Then another process attaches in its place.
    Detach {
        /// Which.
        host: u8,
        /// Time between the two.
        time: Duration,
    },
    /// From now on an address leads to another target; connections that are there stay.
    Reroute {
        /// Which path's, over all hosts.
        path: u8,
        /// The target.
        target: u8,
    },
    /// The next write takes longer in the store.
    Stick {
        /// How much longer.
        time: Duration,
    },
    /// The machine of all targets loses power and comes back.
    PowerLoss {
        /// How long it is away.
        time: Duration,
    },
    /// A host's process dies, whatever it has under way, and another takes its place: its connections are reset.
    KillHost {
        /// Which.
        host: u8,
        /// How long it is away.
        time: Duration,
    },
    /// The network swallows all that is sent over a connection from then on, its end as well. Both ends find out
    /// because nothing comes. Over Ethernet it swallows everything for a while.
    Swallow,
    /// The target reads none of the connections that are there for a while; over Ethernet it does nothing at all.
    Unread {
        /// How long.
        time: Duration,
    },
    /// All connections are over, but only hosts hear of it.
    Partition,
    /// One path of a host fails, over TCP. At first the target reads nothing of it for a while.
    Silence {
        /// Which, over all hosts.
        path: u8,
        /// How long.
        time: Duration,
    },
    /// Then its connections are over, of which only the host hears, and it can make no others for a while.
    Isolate {
        /// Which, over all hosts.
        path: u8,
        /// How long.
        time: Duration,
    },
    /// The network changes a bit: with both digests on, whatever it is must be found.
    Corrupt,
    /// Somebody on the wire changes what is under way: octets are altered, left out, put in, or come again.
    Forge,
    /// A namespace without data changes.
    Namespace,
    /// The disk does nothing for a while, as one whose path fails over.
    StallDisk {
        /// How long.
        time: Duration,
    },
    /// The namespace that is used grows, or shrinks to what it was.
    Resize,
}

impl Fault {
    /// How long it lasts.
    #[must_use]
    pub fn time(&self) -> Duration {
        match *self {
            Fault::Stall { time, .. }
            | Fault::Hold { time }
            | Fault::Kill { time, .. }
            | Fault::Pause { time, .. }
            | Fault::Detach { time, .. }
            | Fault::Stick { time }
            | Fault::KillHost { time, .. }
            | Fault::StallDisk { time }
            | Fault::Unread { time }
            | Fault::Silence { time, .. }
            | Fault::Isolate { time, .. }
            | Fault::PowerLoss { time }
            | Fault::Cut { time, .. }
            | Fault::Deaf { time, .. }
            | Fault::Echo { time, .. }
            | Fault::Narrow { time, .. } => time,
            Fault::Swallow => SWALLOWED,
            Fault::Flood { .. } => Duration::from_millis(25),
            Fault::Reset
            | Fault::ResetOne { .. }
            | Fault::Leave(_)
            | Fault::Partition
            | Fault::Move
            | Fault::Corrupt
            | Fault::Forge
            | Fault::Reroute { .. }
            | Fault::Namespace
            | Fault::Resize => Duration::ZERO,
        }
    }

    /// Whether connections may end by it.
    #[must_use]
    pub fn ends(&self) -> bool {
        let harmless = matches!(
            self,
            Fault::Namespace | Fault::Resize | Fault::StallDisk { .. } | Fault::Stick { .. }
        );
        let is_survived = matches!(
            self,
            Fault::Stall { .. }
                | Fault::Unread { .. }
                | Fault::Silence { .. }
                | Fault::Cut { .. }
                | Fault::Deaf { .. }
                | Fault::Move
                | Fault::Narrow { .. }
                | Fault::Flood { .. }
        );
        !harmless && !is_survived
    }
}

/// Reactors of a target.
#[derive(Clone, Copy, Debug)]
pub struct Reactors {
    /// How many.
    pub count: usize,
    /// Longest time for which one leaves a message in its inbox, where there are several.
    pub inbox_delay_us: u64,
    /// Moves of lanes to another one that begin in a second.
    pub moves: u32,
}

impl Default for Reactors {
    fn default() -> Self {
        Reactors { count: 1, inbox_delay_us: 0, moves: 0 }
    }
}

/// Everything a seed decides.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Hosts that share the namespace.
    pub hosts: u8,
    /// Targets that serve the namespace from one disk. At first a host's path leads to the target of its number.
    pub targets: u8,
    /// Reactors of each target.
    pub reactors: Reactors,
    /// The storage is memory that is lent: data of reads and writes moves in place.
    pub lends_memory: bool,
    /// Paths of each host. Nobody kills hosts with several.
    pub paths: u8,
    /// Lanes of a host.
    pub lanes: usize,
    /// Entries of the I/O queues.
    pub queue_entries: u16,
    /// Requests outstanding a lane.
    pub depth: usize,
    /// Requests begin before then; faults happen before then.
    pub chaos: Duration,
    /// Mean time between two requests of a lane.
    pub pause: Duration,
    /// Blocks of the namespace.
    pub blocks: u64,
    /// The last so many of them are counters.
    pub counters: u64,
    /// The last so many of those before are written by hosts that take the namespace from one another by reservations.
    pub reserved: u64,
    /// Requests of 100 that mark blocks as uncorrectable.
    pub marks_percent: u64,
    /// Requests of 100 that replace a block by Compare and Write.
    pub swaps_percent: u64,
    /// Settings of the host's I/O queue pairs.
    pub host: host::qpair::Config,
    /// The host asks for SQ flow control.
    pub sq_flow_control: bool,
    /// Hosts and target authenticate each other.
    pub authenticates: bool,
    /// Time of a target's Diffie-Hellman computation in microseconds; 0: there is none.
    pub power_us: u64,
    /// Connections are secured by TLS.
    pub tls: bool,
    /// How, if they are.
    pub security: Security,
    /// Settings of the target's queue pairs.
    pub target: target::qpair::Config,
    /// Parts of a caravan (a PDU has one or two).
    pub caravan_parts: usize,
    /// Octets of the target's buffers.
    pub pool_bytes: usize,
    /// What the namespace in use may do in a second; its limits come and go with changes of the other one.
    pub rates: Rates,
    /// Connections of 100 that receive data straight into its place.
    pub placed_percent: u64,
    /// The network.
    pub weather: Weather,
    /// The disk.
    pub manners: Manners,
    /// Keep alive timeout; zero: none.
    pub keep_alive: Duration,
    /// A command of the control plane is given up after that.
    pub timeout: Duration,
    /// First pause before connecting again.
    pub reconnect_delay: Duration,
    /// Requests fail after that time without a connection.
    pub controller_loss_timeout: Option<Duration>,
    /// The same, before that.
    pub fast_io_fail_timeout: Option<Duration>,
    /// The host aborts commands that take longer, then gives the connection up.
    pub io_timeout: Option<Duration>,
    /// Times at which the target does no I/O, and what it says then.
    pub refusals: Vec<(Range<Instant>, Status)>,
    /// Lanes over Ethernet and their links; nothing over TCP.
    pub ether: Settings,
    /// Lanes may have express connections.
    pub express: Option<Rules>,
    /// Faults, in order of time.
    pub faults: Vec<(Instant, Fault)>,
    /// What scenarios draw from.
    pub dice: Rng,
    /// What the target does wrong, to see that it is found.
    pub sabotage: Option<Sabotage>,
}

/// A wrong target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// It does not hold new associations back until what old ones have started has ended, nor does it reset those that
    /// the host names.
    NoFence,
    /// It answers a flush at once.
    IdleFlush,
    /// It tells of a failed flush only who has flushed.
    UntoldFailure,
    /// It takes no notice of FUA.
    IgnoredFua,
    /// It writes the first half of a block only.
    TornBlock,
    /// It does not wait for commands of connections that are over.
    NoDrain,
    /// Not the target: hosts try everything on another path at once when one is lost, and do not have it ended there.
    EarlyMove,
    /// Not the target: hosts try at once on another path what a lost express connection had.
    EarlyExpress,
    /// It only says that it has reset another controller of the host.
    NoReset,
    /// Commands that have to be alone with their blocks are not.
    NotAlone,
    /// While a command is alone with blocks, data of writes goes on to memory that is lent.
    OpenPlaces,
    /// It answers Write Uncorrectable before the mark is saved.
    EarlyMark,
    /// Who takes a reservation does not wait for what others have in the store.
    NoWait,
    /// Not the target: hosts go on after the quiet time though a target says that it still has the controller.
    IgnoredClaim,
    /// Not the target: of a write that may still be executed hosts hold back other tries of it, but no other writes.
    OpenBlocks,
    /// All targets say that they are in one place, as if each had taken that of another one.
    OnePlace,
    /// After a pause it executes what it has received before it checks keep-alive timers.
    LateCheck,
    /// Its write verifier stays the same when it loses power.
    SameVerifier,
    /// It forgets the answer to one command of a hundred.
    ForgottenCommand,
    /// Its reactors do not send events after lanes that have moved.
    LostEvents,
    /// A host that takes a reservation waits for one reactor only.
    OneReactor,
    /// Not the target: hosts have no identifier.
    NoHostId,
}

impl Sabotage {
    /// True if the command resets another controller of the host, and is answered without being executed.
    pub(crate) fn skips(self, sqe: &Sqe) -> bool {
        let skips_resets = matches!(self, Sabotage::NoFence | Sabotage::NoReset);
        skips_resets && sqe.opcode == opcode::CROSS_CONTROLLER_RESET
    }
}

pub(crate) fn policy(rng: &mut Rng) -> PolicyConfig {
    let kinds =
        [PolicyKind::None, PolicyKind::I10, PolicyKind::Pinof, PolicyKind::Tyche, PolicyKind::Auto];
    let mut policy = PolicyConfig::of(rng.pick(&kinds));
    policy.tyche.interval = rng.micros(100, 10_000);
    if rng.chance(30) {
        let (count_max, bytes_max) = (rng.between(1, 20) as u32, rng.between(1, 100_000) as u32);
        policy.limits = Limits { count_max, bytes_max };
        policy.doorbell_delay = rng.micros(0, 200);
    }
    policy
}

/// One namespace of five is limited.
fn rates(mut rng: Rng) -> Rates {
    if !rng.chance(20) {
        return Rates::UNLIMITED;
    }
    let bandwidth = rng.chance(50).then(|| rng.between(2_000_000, 50_000_000));
    Rates {
        iops: NonZeroU64::new(rng.between(2_000, 50_000)),
        write_bandwidth: bandwidth.and_then(NonZeroU64::new),
        burst: Some(rng.micros(0, 10_000)),
        ..Rates::UNLIMITED
    }
}

fn weather(rng: &mut Rng, shortest: u64) -> Weather {
    Weather {
        delay_us: (shortest, shortest * rng.between(1, 6)),
        piece_bytes: rng.pick(&[40, 1500, 30_000, 200_000]),
        window_bytes: rng.pick(&[2_000, 65_536, 1 << 20]),
    }
}

fn manners(rng: &mut Rng, latency: u64) -> Manners {
    Manners {
        latency_us: (latency, latency * rng.between(1, 5)),
        slow_percent: rng.pick(&[0, 2, 20]),
        failing_per_mille: rng.pick(&[0, 0, 20]),
        losing_percent: 0,
    }
}

fn digests(rng: &mut Rng) -> Digests {
    Digests { header: rng.chance(50), data: rng.chance(50) }
}

impl Plan {
    /// Most requests of a host that have not completed.
    #[must_use]
    pub fn requests_max(&self) -> usize {
        usize::from(self.paths) * self.lanes * self.depth
    }

    /// What hosts and target have to authenticate with.
    #[must_use]
    pub fn keys(&self) -> Keys {
        if !self.authenticates {
            return Keys::default();
        }
        let key = |octet| DhchapKey::new(Some(Hash::Sha256), &[octet; 32]).ok();
        Keys { host: key(1), controller: key(2) }
    }

    /// The plan of a seed.
    #[must_use]
    pub fn new(rng: &mut Rng) -> Self {
        let rates = rates(rng.clone().fork()); // aside: the rest of the plan stays what it was
        let dice = Rng::new(rng.clone().bits());
        let chaos = Duration::from_millis(rng.between(20, 400));
        let hosts = rng.pick(&[1, 1, 2, 3]);
        let (lanes, requests) = (rng.between(1, 4) as usize, rng.between(100, 1200) as u32);
        let in_capsule_bytes = rng.pick(&[0, 512, 4096, 8192]);
        let shortest = rng.between(2, 60);
        let latency = rng.between(5, 300);
        let keep_alive_ms = rng.pick(&[0, 100, 200]);
        let queue_entries = rng.pick(&[2, 3, 8, 32, 128]);
        let host = host::qpair::Config {
            digests: digests(rng),
            queue_entries,
            in_capsule_bytes,
            policy: policy(rng),
        };
        let target = target::qpair::Config {
            digests: Digests { header: true, data: true },
            maxh2cdata: rng.pick(&[4096, 8192, 131_072]),
            in_capsule_bytes_max: in_capsule_bytes.max(1024),
            policy: policy(rng),
        };
        Plan {
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
            power_us: 0,
            tls: false,
            security: Security::new(rng.clone()),
            target,
            caravan_parts: rng.pick(&[2, 5, 64, 1000]),
            rates,
            pool_bytes: 0,
            placed_percent: rng.pick(&[0, 50, 100]),
            weather: weather(rng, shortest),
            manners: manners(rng, latency),
            keep_alive: Duration::from_millis(keep_alive_ms),
            timeout: Duration::from_millis(100),
            reconnect_delay: Duration::from_millis(rng.pick(&[1, 10])),
            controller_loss_timeout: rng.chance(30).then(|| rng.micros(0, 50_000)),
            fast_io_fail_timeout: None,
            io_timeout: Some(Duration::from_millis(60)),
            refusals: Vec::new(),
            ether: Settings::default(),
            express: None,
            targets: 1,
            reactors: Reactors::default(),
            lends_memory: false,
            paths: 1,
            faults: faults(rng, chaos, host.digests),
            dice,
            sabotage: None,
        }
        .with_host_faults(rng)
    }

    /// When lanes have express connections: not over Ethernet.
    #[must_use]
    pub fn express_rules(&self) -> Option<Rules> {
        self.express.filter(|_| self.ether.links.is_empty())
    }

    /// What happens to hosts and to connections that nobody hears of.
    fn with_host_faults(mut self, rng: &mut Rng) -> Self {
        for _ in 0..rng.below(4) {
            let host = rng.below(self.hosts.into()) as u8;
            let fault = Fault::KillHost { host, time: rng.micros(0, 20_000) };
            self.faults.push((rng.moment(self.chaos), fault));
        }
        // Without a Keep Alive Timer a target keeps such a connection for ever.
        if !self.keep_alive.is_zero() {
            for _ in 0..rng.below(4) {
                let reset = Fault::ResetOne { end: end(rng, 50) };
                let fault = if rng.chance(50) { Fault::Swallow } else { reset };
                self.faults.push((rng.moment(self.chaos), fault));
            }
        }
        self.faults.sort_by_key(|(at, _)| *at);
        // The longest command takes 20 KiB.
        self.pool_bytes = rng.pick(&[24 << 10, 64 << 10, 4 << 20, 4 << 20]);
        self
    }
}

/// An end: the target `percent` times of 100.
fn end(rng: &mut Rng, percent: u64) -> End {
    if rng.chance(percent) { End::Target } else { End::Host }
}

fn faults(rng: &mut Rng, chaos: Duration, digests: Digests) -> Vec<(Instant, Fault)> {
    let mut faults = Vec::new();
    if digests.header && digests.data {
        for _ in 0..rng.below(30) {
            faults.push((rng.moment(chaos), Fault::Corrupt));
        }
    }
    for _ in 0..rng.below(12) {
        let time = rng.micros(0, 30_000);
        let fault = match rng.below(100) {
            0..40 => Fault::Reset,
            40..65 => Fault::Stall { end: end(rng, 70), time },
            65..75 => Fault::Hold { time: time * rng.pick(&[1, 20]) },
            75..83 => Fault::Kill { target: 0, time },
            83..88 => Fault::PowerLoss { time },
            88..93 => Fault::StallDisk { time },
            93..96 => Fault::Resize,
            _ => Fault::Namespace,
        };
        faults.push((rng.moment(chaos), fault));
    }
    faults.sort_by_key(|(at, _)| *at);
    faults
}
