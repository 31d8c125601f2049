//! A load, and the product's settings for it. Both have a short name in results.

use crate::floor::{self, DataDirection};
use std::fmt;

pub(crate) const KIB: usize = 1024;
/// Period of a load whose depth changes.
pub(crate) const STEP_PERIOD_MS: usize = 100;

/// Where the target keeps the blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LoadStore {
    /// Memory.
    Memory,
    /// Memory whose every command takes 100 us, at most 64 at once: an emulated SSD.
    Ssd,
}

/// How a stream's requests are marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum StreamClass {
    Latency,
    Bulk,
}

/// A second load together with the main one, from the same core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SecondLoad {
    pub(crate) rw: DataDirection,
    pub(crate) bs: usize,
    pub(crate) depth: usize,
    pub(crate) class: Option<StreamClass>,
    /// Over a connection of its own instead of the main load's.
    pub(crate) own_lane: bool,
}

/// The links that a load goes over, instead of the loopback: interfaces between two network namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LoadLinks {
    pub(crate) links: usize,
    pub(crate) mtu: usize,
    /// Shaped to 1 Gbit/s each; else as fast as the machine.
    pub(crate) is_gigabit: bool,
}

/// Transport of the product's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ProductTransport {
    /// NVMe/TCP; over several links a process of its own for each.
    Tcp,
    /// Ethernet frames.
    Ether,
    /// The frames' queue pairs over a TCP connection for each link.
    Sockets,
}

/// Parts of requests that may share a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Sharing {
    /// Commands, completions and data.
    All,
    /// Each 4 KiB of data has a frame of its own.
    NoData,
    /// Each command and completion, too.
    Nothing,
}

/// Work that a target hands to other threads than those that receive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum HandOver {
    /// Nothing, and no comparison.
    #[default]
    Default,
    /// Nothing.
    NoWq,
    /// Completions.
    Rec,
    /// Commands and completions.
    Base,
}

impl HandOver {
    /// Argument of this program's target; `None`: the product's target.
    pub(crate) fn mode(self) -> Option<&'static str> {
        match self {
            Self::Default | Self::NoWq => None,
            Self::Rec => Some("rec"),
            Self::Base => Some("base"),
        }
    }
}

/// A workload: random requests, host on core 0, target on core 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LabLoad {
    pub(crate) store: LoadStore,
    /// Reads of 100 requests.
    pub(crate) reads_percent: u8,
    pub(crate) bs: usize,
    /// Requests in flight, over all lanes.
    pub(crate) depth: usize,
    pub(crate) lanes: usize,
    /// An open loop at this share of the store's peak; a closed loop without.
    pub(crate) peak_percent: Option<u8>,
    pub(crate) class: Option<StreamClass>,
    pub(crate) second_load: Option<SecondLoad>,
    /// Threads with one request each at a time; the requests arise on the lanes' reactors without.
    pub(crate) threads: Option<usize>,
    /// The depth changes between 1 and `depth`, each for half of [`STEP_PERIOD_MS`].
    pub(crate) steps: bool,
    pub(crate) wire: Option<LoadLinks>,
}

/// How both ends wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LoadWaiting {
    /// As the product does without an option.
    Default,
    /// Asleep.
    Sleep,
    /// Polling for so many microseconds, then blocking.
    SpinUs(u64),
    /// Always polling.
    BusyPoll,
}

/// Who sends the requests of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum SendMode {
    /// They themselves, each over a lane of its own.
    Inline,
    /// A reactor that they hand over to.
    Queue,
}

/// How the product is set, at both ends; what is absent is left to its default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ProductSetup {
    pub(crate) policy: &'static str,
    pub(crate) caravan_requests: Option<usize>,
    pub(crate) caravan_bytes: Option<usize>,
    /// The doorbell's delay of none and i10.
    pub(crate) doorbell_delay_us: Option<usize>,
    /// tyche's level, fixed.
    pub(crate) batch_level: Option<usize>,
    /// How often tyche adapts.
    pub(crate) batch_interval_ms: Option<usize>,
    pub(crate) waiting: LoadWaiting,
    pub(crate) mode: SendMode,
    pub(crate) over: ProductTransport,
    pub(crate) sharing: Sharing,
    /// Work that the target hands to other threads.
    pub(crate) hand_over: HandOver,
    /// Threads of the target that receive.
    pub(crate) reactors: usize,
}

impl LoadStore {
    /// The target's namespace.
    pub(crate) fn namespace(self, mib: usize) -> String {
        match self {
            Self::Memory => format!("mem:{mib}MiB"),
            Self::Ssd => format!("ssd:{mib}MiB,service-us=100,parallel=64"),
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Memory => "mem",
            Self::Ssd => "ssd",
        }
    }
}

impl StreamClass {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Bulk => "bulk",
        }
    }
}

impl SecondLoad {
    /// The stream as `roadtrain bench --stream` takes it.
    pub(crate) fn option(&self) -> String {
        let Self { bs, depth, .. } = self;
        let mut text = format!("rw={},bs={bs},depth={depth}", direction(self.rw));
        if let Some(class) = self.class {
            text += &format!(",class={}", class.name());
        }
        text + if self.own_lane { ",lane=own" } else { ",lane=shared" }
    }
}

impl LabLoad {
    /// A closed loop over one lane, on memory.
    pub(crate) const fn new(reads_percent: u8, bs: usize, depth: usize) -> Self {
        Self {
            store: LoadStore::Memory,
            reads_percent,
            bs,
            depth,
            lanes: 1,
            peak_percent: None,
            class: None,
            second_load: None,
            threads: None,
            steps: false,
            wire: None,
        }
    }

    /// A closed loop of threads, on memory.
    pub(crate) const fn of_threads(reads_percent: u8, bs: usize, threads: usize) -> Self {
        Self { threads: Some(threads), ..Self::new(reads_percent, bs, threads) }
    }

    /// 4 KiB requests in a closed loop over one lane, on memory.
    pub(crate) const fn small(reads_percent: u8, depth: usize) -> Self {
        Self::new(reads_percent, 4 * KIB, depth)
    }

    pub(crate) const fn on(self, store: LoadStore) -> Self {
        Self { store, ..self }
    }

    pub(crate) const fn over(self, wire: LoadLinks) -> Self {
        Self { wire: Some(wire), ..self }
    }

    pub(crate) const fn with_second_load(self, stream: SecondLoad) -> Self {
        Self { second_load: Some(stream), ..self }
    }

    /// Arguments with which the floor moves the same bytes.
    pub(crate) fn floor(&self, rw: DataDirection, waiting: LoadWaiting) -> floor::FloorArgs {
        let (spin_us, busy_poll) = match waiting {
            LoadWaiting::Default | LoadWaiting::Sleep => (0, false),
            LoadWaiting::SpinUs(us) => (us, false),
            LoadWaiting::BusyPoll => (0, true),
        };
        floor::FloorArgs {
            rw,
            bs: self.bs,
            depth: self.depth,
            spin_us,
            busy_poll,
            ..Default::default()
        }
    }

    /// The direction, if there is but one.
    pub(crate) fn direction(&self) -> Option<DataDirection> {
        match self.reads_percent {
            100 => Some(DataDirection::Read),
            0 => Some(DataDirection::Write),
            _ => None,
        }
    }
}

impl LoadLinks {
    /// Links with jumbo frames, shaped to 1 Gbit/s each.
    pub(crate) const fn gigabit(links: usize) -> Self {
        Self { links, mtu: 9000, is_gigabit: true }
    }

    /// Links with jumbo frames, as fast as the machine.
    pub(crate) const fn unshaped(links: usize) -> Self {
        Self { is_gigabit: false, ..Self::gigabit(links) }
    }
}

impl ProductTransport {
    /// How it is called.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sockets => "tsockets",
            _ => self.transport(),
        }
    }

    /// The value of the program's option `-t`: with TSockets it takes them for Ethernet.
    pub(crate) fn transport(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Ether | Self::Sockets => "ether",
        }
    }
}

impl ProductSetup {
    /// A policy with its own defaults.
    pub(crate) const fn new(policy: &'static str) -> Self {
        Self {
            policy,
            caravan_requests: None,
            caravan_bytes: None,
            doorbell_delay_us: None,
            batch_level: None,
            batch_interval_ms: None,
            waiting: LoadWaiting::Sleep,
            mode: SendMode::Inline,
            over: ProductTransport::Tcp,
            sharing: Sharing::All,
            hand_over: HandOver::Default,
            reactors: 1,
        }
    }

    /// With the caravan's limits.
    pub(crate) const fn limited(self, requests: usize, bytes: usize) -> Self {
        Self { caravan_requests: Some(requests), caravan_bytes: Some(bytes), ..self }
    }
}

/// fio's word for random requests of one direction.
pub(crate) fn direction(rw: DataDirection) -> &'static str {
    match rw {
        DataDirection::Read => "randread",
        DataDirection::Write => "randwrite",
    }
}

/// A size for people: `512 B`, `4 KiB`, `1 MiB`.
pub(crate) fn size(bytes: usize) -> String {
    match bytes {
        b if b >= KIB * KIB && b % (KIB * KIB) == 0 => format!("{} MiB", b / KIB / KIB),
        b if b >= KIB && b % KIB == 0 => format!("{} KiB", b / KIB),
        b => format!("{b} B"),
    }
}

impl fmt::Display for LabLoad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.reads_percent {
            100 => "reads".to_owned(),
            0 => "writes".to_owned(),
            percent => format!("{percent} % reads"),
        };
        write!(f, "{}: {} {what}, ", self.store.name(), size(self.bs))?;
        match self.threads {
            Some(1) => f.write_str("1 thread")?,
            Some(threads) => write!(f, "{threads} threads")?,
            None if self.steps => write!(f, "depth 1 to {}", self.depth)?,
            None => write!(f, "depth {}", self.depth)?,
        }
        if self.lanes > 1 {
            write!(f, " over {} lanes", self.lanes)?;
        }
        if let Some(percent) = self.peak_percent {
            write!(f, ", {percent} % of the peak rate")?;
        }
        if let Some(class) = self.class {
            write!(f, ", {}", class.name())?;
        }
        if let Some(stream) = self.second_load {
            write!(f, " beside {stream}")?;
        }
        match self.wire {
            Some(wire) => write!(f, ", {wire}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for LoadLinks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let several = if self.links == 1 { "" } else { "s" };
        write!(f, "{} link{several}", self.links)?;
        if self.is_gigabit {
            f.write_str(" of 1 Gbit/s")?;
        }
        if self.mtu != 9000 { write!(f, ", MTU {}", self.mtu) } else { Ok(()) }
    }
}

impl fmt::Display for SecondLoad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.rw {
            DataDirection::Read => "reads",
            DataDirection::Write => "writes",
        };
        write!(f, "{} {what}, depth {}", size(self.bs), self.depth)?;
        if let Some(class) = self.class {
            write!(f, ", {}", class.name())?;
        }
        f.write_str(if self.own_lane { ", own lane" } else { ", shared lane" })
    }
}

impl fmt::Display for ProductSetup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.policy)?;
        match (self.caravan_requests, self.caravan_bytes) {
            (Some(requests), Some(bytes)) => write!(f, " {requests} / {}", size(bytes))?,
            (Some(requests), None) => write!(f, " {requests}")?,
            (None, Some(bytes)) => write!(f, " {}", size(bytes))?,
            (None, None) => {}
        }
        if let Some(us) = self.doorbell_delay_us {
            write!(f, ", {us} us")?;
        }
        if let Some(level) = self.batch_level {
            write!(f, ", level {level}")?;
        }
        if let Some(ms) = self.batch_interval_ms {
            write!(f, ", every {ms} ms")?;
        }
        match self.waiting {
            LoadWaiting::Default => f.write_str(", waiting by default")?,
            LoadWaiting::Sleep => {}
            LoadWaiting::SpinUs(us) => write!(f, ", spinning {us} us")?,
            LoadWaiting::BusyPoll => f.write_str(", polling")?,
        }
        if self.mode == SendMode::Queue {
            f.write_str(", queue mode")?;
        }
        if self.over != ProductTransport::Tcp {
            write!(f, ", {}", self.over.name())?;
        }
        f.write_str(match self.sharing {
            Sharing::All => "",
            Sharing::NoData => ", data apart",
            Sharing::Nothing => ", all apart",
        })?;
        f.write_str(match self.hand_over {
            HandOver::Default => "",
            HandOver::NoWq => ", nowq",
            HandOver::Rec => ", rec",
            HandOver::Base => ", base",
        })?;
        match self.reactors {
            1 => Ok(()),
            n => write!(f, ", {n} reactors"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_have_distinct_names() {
        let plain = LabLoad::small(70, 8).on(LoadStore::Ssd);
        assert_eq!(plain.to_string(), "ssd: 4 KiB 70 % reads, depth 8");
        let threads = LabLoad::of_threads(0, 512 * KIB, 64);
        assert_eq!(threads.to_string(), "mem: 512 KiB writes, 64 threads");
        let open = LabLoad { peak_percent: Some(30), lanes: 4, ..LabLoad::small(100, 128) };
        assert_eq!(
            open.to_string(),
            "mem: 4 KiB reads, depth 128 over 4 lanes, 30 % of the peak rate"
        );
        let bulk = SecondLoad {
            rw: DataDirection::Write,
            bs: 128 * KIB,
            depth: 8,
            class: Some(StreamClass::Bulk),
            own_lane: true,
        };
        assert_eq!(bulk.option(), "rw=randwrite,bs=131072,depth=8,class=bulk,lane=own");
        assert_eq!(
            LabLoad::small(100, 1).with_second_load(bulk).to_string(),
            "mem: 4 KiB reads, depth 1 beside 128 KiB writes, depth 8, bulk, own lane"
        );
    }

    #[test]
    fn links_have_distinct_names() {
        let load = LabLoad::small(100, 8);
        let shaped = load.over(LoadLinks::gigabit(2)).to_string();
        assert_eq!(shaped, "mem: 4 KiB reads, depth 8, 2 links of 1 Gbit/s");
        let small = load.over(LoadLinks { mtu: 1500, ..LoadLinks::unshaped(1) }).to_string();
        assert_eq!(small, "mem: 4 KiB reads, depth 8, 1 link, MTU 1500");
    }

    #[test]
    fn setups_have_distinct_names() {
        assert_eq!(ProductSetup::new("auto").to_string(), "auto");
        let lifted = ProductSetup {
            doorbell_delay_us: Some(0),
            waiting: LoadWaiting::BusyPoll,
            ..ProductSetup::new("i10").limited(128, 512 * KIB)
        };
        assert_eq!(lifted.to_string(), "i10 128 / 512 KiB, 0 us, polling");
        let queue = ProductSetup { mode: SendMode::Queue, ..ProductSetup::new("auto") };
        assert_eq!(queue.to_string(), "auto, queue mode");
        let frames = ProductSetup { over: ProductTransport::Ether, ..ProductSetup::new("auto") };
        let apart = ProductSetup { sharing: Sharing::NoData, hand_over: HandOver::Rec, ..frames };
        assert_eq!(frames.to_string(), "auto, ether");
        assert_eq!(apart.to_string(), "auto, ether, data apart, rec");
    }
}
