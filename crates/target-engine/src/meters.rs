//! Counters of the target: cells of reactors, lanes and namespaces, and sums of ended ones.
//!
//! Reactors write their cells without a lock. Locks are taken when a queue connects or ends, when namespaces change,
//! and by readers.

use roadtrain_proto::policy::Class;
use roadtrain_proto::security::Hash;
use roadtrain_proto::security::dhchap::DhGroup;
use roadtrain_reactor::metrics::{
    AuthSample, BatchCells, Batching, ConnectionCount, Counter, HostSample, IoCells, IoCounters,
    LaneSample, Latency, LatencyOf, NamespaceSample, ReactorCells, ReactorSample, ReasonCount,
    Statuses, TransportSample,
};
use roadtrain_reactor::recorded::ConnectionInfo;
use roadtrain_target_proto::ConnectedQueue;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most hosts with counters of their own. Further ones are counted without a name, because peers can invent names.
const HOSTS_MAX: usize = 4096;
/// Most hosts without a queue that keep their counters. Counters of earlier ones are added to those without a name.
const GONE_HOSTS_MAX: usize = 512;
/// Names of the classes, by their index in the cells of a namespace.
const CLASSES: [&str; 3] = ["latency", "normal", "bulk"];
const OPS: [&str; 2] = ["read", "write"];

/// Counters of a namespace on one reactor.
#[derive(Debug, Default)]
#[repr(align(64))] // no reactor writes to another one's cache line
pub(crate) struct NamespaceCells {
    /// I/O counters by class.
    io: [IoCells; 3],
    pub(crate) statuses: Statuses,
}

impl NamespaceCells {
    /// Returns the counters of one class.
    #[inline]
    pub(crate) fn class(&self, class: Class) -> &IoCells {
        &self.io[class as usize]
    }

    /// Returns the cells for counters that do not depend on a class.
    #[inline]
    pub(crate) fn io(&self) -> &IoCells {
        self.class(Class::Normal)
    }
}

/// Counters of a connected queue.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct LaneCells {
    nqn: Arc<str>,
    host_nqn: Arc<str>,
    peer: String,
    transport: &'static str,
    cntlid: u16,
    qid: u16,
    reactor: Counter,
    auth: Mutex<Option<AuthSample>>,
    pub(crate) io: IoCells,
    pub(crate) batching: BatchCells,
    /// Counts at the arrival on the current reactor.
    before: Mutex<Batching>,
}

impl LaneCells {
    /// Returns the information about its connection.
    pub(crate) fn connection_info(&self) -> ConnectionInfo {
        ConnectionInfo {
            nqn: self.nqn.to_string(),
            host_nqn: self.host_nqn.to_string(),
            local: String::new(),
            peer: self.peer.clone(),
            cntlid: self.cntlid,
            qid: self.qid,
            path: 0,
        }
    }

    /// Returns the counts on the current reactor.
    fn here(&self) -> Batching {
        Batching::from_array(self.batching.read()) - *lock(&self.before)
    }
}

/// Counters of a host of a subsystem.
#[derive(Default)]
struct HostCounters {
    connects: u64,
    losses: BTreeMap<&'static str, u64>,
    refusals: BTreeMap<&'static str, u64>,
    /// I/O of its ended queues.
    past: IoCounters,
    /// Number of its queues.
    queues: u64,
}

impl HostCounters {
    /// Adds the counts of a host that was removed.
    fn add(&mut self, gone: &HostCounters) {
        self.connects += gone.connects;
        for (own, others) in
            [(&mut self.losses, &gone.losses), (&mut self.refusals, &gone.refusals)]
        {
            others.iter().for_each(|(why, count)| *own.entry(why).or_default() += count);
        }
        self.past += &gone.past;
    }
}

/// NQNs of subsystem and host.
type HostCounterKey = (Arc<str>, Arc<str>);

#[derive(Default)]
struct LaneMeters {
    next: u64,
    live: BTreeMap<u64, Arc<LaneCells>>,
    /// Counts of lanes that have ended on a reactor or left it, by reactor.
    past: Vec<Batching>,
    hosts: BTreeMap<HostCounterKey, HostCounters>,
    /// Hosts without a queue; the one that left last is at the end.
    gone: VecDeque<HostCounterKey>,
    connections: BTreeMap<(&'static str, &'static str), u64>,
    protocol_errors: BTreeMap<String, u64>,
}

#[derive(Default)]
struct Namespaces {
    known: BTreeMap<(Arc<str>, u32), Arc<[NamespaceCells]>>,
    /// Latencies of removed namespaces: by reactor, class and operation.
    past: Vec<[[Latency; 2]; 3]>,
}

/// All counters of a target.
pub(crate) struct Meters {
    reactors: Box<[Arc<ReactorCells>]>,
    lanes: Mutex<LaneMeters>,
    namespaces: Mutex<Namespaces>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Meters {
    /// Creates the counters of `reactors` reactors.
    pub(crate) fn new(reactors: usize) -> Meters {
        let lanes =
            LaneMeters { past: vec![Batching::default(); reactors], ..LaneMeters::default() };
        let past = (0..reactors).map(|_| Default::default()).collect();
        Meters {
            reactors: (0..reactors).map(|_| Arc::default()).collect(),
            lanes: Mutex::new(lanes),
            namespaces: Mutex::new(Namespaces { past, ..Namespaces::default() }),
        }
    }

    /// Returns the cells of a reactor.
    #[inline]
    pub(crate) fn reactor(&self, number: usize) -> &Arc<ReactorCells> {
        &self.reactors[number]
    }

    /// Returns the cells of a namespace, by reactor; creates them if needed.
    pub(crate) fn namespace(&self, nqn: &Arc<str>, nsid: u32) -> Arc<[NamespaceCells]> {
        let mut namespaces = lock(&self.namespaces);
        let new = || self.reactors.iter().map(|_| NamespaceCells::default()).collect();
        namespaces.known.entry((nqn.clone(), nsid)).or_insert_with(new).clone()
    }

    /// Returns the cells of a namespace, if it has any.
    pub(crate) fn known(&self, nqn: &Arc<str>, nsid: u32) -> Option<Arc<[NamespaceCells]>> {
        lock(&self.namespaces).known.get(&(nqn.clone(), nsid)).cloned()
    }

    /// Removes the cells of these namespaces, as [`Meters::retain`] does.
    pub(crate) fn remove<'a>(&self, gone: impl Iterator<Item = (&'a str, u32)>) {
        let Namespaces { known, past } = &mut *lock(&self.namespaces);
        for cells in gone.filter_map(|(nqn, nsid)| known.remove(&(nqn.into(), nsid))) {
            for (past, cells) in past.iter_mut().zip(&*cells) {
                add_latencies(past, cells);
            }
        }
    }

    /// Removes the cells of namespaces that are gone. Their latencies stay in the counts of the reactors.
    pub(crate) fn retain(&self, is_there: impl Fn(&str, u32) -> bool) {
        let Namespaces { known, past } = &mut *lock(&self.namespaces);
        for (_, cells) in known.extract_if(.., |(nqn, nsid), _| !is_there(nqn, *nsid)) {
            for (past, cells) in past.iter_mut().zip(&*cells) {
                add_latencies(past, cells);
            }
        }
    }

    /// Creates the cells of a connected queue. Returns its number and the cells.
    pub(crate) fn enter(
        &self,
        connected: &ConnectedQueue,
        (peer, transport): (&str, &'static str),
        reactor: usize,
    ) -> (u64, Arc<LaneCells>) {
        let cells = Arc::new(LaneCells {
            nqn: connected.subnqn.clone(),
            host_nqn: connected.hostnqn.clone(),
            peer: peer.to_owned(),
            transport,
            cntlid: connected.cntlid,
            qid: connected.qid,
            reactor: Counter::default(),
            auth: Mutex::default(),
            io: IoCells::default(),
            batching: BatchCells::default(),
            before: Mutex::default(),
        });
        cells.reactor.set(reactor as u64);
        let mut lanes = lock(&self.lanes);
        *lanes.connections.entry((transport, "connected")).or_default() += 1;
        let key = (connected.subnqn.clone(), connected.hostnqn.clone());
        lanes.gone.retain(|gone| *gone != key);
        let host = lanes.host(key);
        host.connects += u64::from(connected.qid == 0);
        host.queues += 1;
        let number = lanes.next;
        lanes.next += 1;
        lanes.live.insert(number, cells.clone());
        (number, cells)
    }

    /// Notes the authentication of a queue.
    pub(crate) fn authenticated(&self, connected: &ConnectedQueue, (hash, group): (Hash, DhGroup)) {
        let dhgroup = match group {
            DhGroup::Null => "null".to_owned(),
            group => group.to_string(),
        };
        let auth = AuthSample { hash: hash.to_string().to_lowercase().replace('-', ""), dhgroup };
        let queue = (connected.cntlid, connected.qid);
        let lanes = lock(&self.lanes);
        let own = lanes.live.values().filter(|lane| (lane.cntlid, lane.qid) == queue);
        own.for_each(|lane| *lock(&lane.auth) = Some(auth.clone()));
    }

    /// Notes that a queue has moved to another reactor.
    pub(crate) fn moved(&self, lane: &LaneCells, to: usize) {
        let mut lanes = lock(&self.lanes);
        let from = lane.reactor.get() as usize;
        lanes.past[from] += lane.here();
        *lock(&lane.before) = Batching::from_array(lane.batching.read());
        lane.reactor.set(to as u64);
    }

    /// Removes an ended queue. Its counts stay.
    pub(crate) fn leave(&self, number: u64, why: &'static str) {
        let mut lanes = lock(&self.lanes);
        let Some(cells) = lanes.live.remove(&number) else { return };
        let reactor = cells.reactor.get() as usize;
        lanes.past[reactor] += cells.here();
        let key = (cells.nqn.clone(), cells.host_nqn.clone());
        let host = lanes.host(key.clone());
        *host.losses.entry(why).or_default() += 1;
        let in_flight = host.past.in_flight;
        cells.io.add_to(&mut host.past);
        host.past.in_flight = in_flight;
        host.queues = host.queues.saturating_sub(1);
        if host.queues == 0 {
            lanes.forget_oldest(key);
        }
    }

    /// Counts a refused Connect. Its names are used only if a host has connected under them before: peers can invent
    /// names, and these would stay forever.
    pub(crate) fn refused(&self, nqn: &str, host_nqn: &str, why: &'static str) {
        let mut lanes = lock(&self.lanes);
        let key = (Arc::from(nqn), Arc::from(host_nqn));
        let host = match lanes.hosts.contains_key(&key) {
            true => lanes.host(key),
            false => lanes.host(unnamed()),
        };
        *host.refusals.entry(why).or_default() += 1;
    }

    /// Counts the outcome of a connection.
    pub(crate) fn connection(&self, transport: &'static str, outcome: &'static str) {
        *lock(&self.lanes).connections.entry((transport, outcome)).or_default() += 1;
    }

    /// Counts a protocol error of a peer.
    pub(crate) fn protocol_error(&self, fes: String) {
        *lock(&self.lanes).protocol_errors.entry(fes).or_default() += 1;
    }
}

/// Returns the key of hosts that are counted without a name.
fn unnamed() -> HostCounterKey {
    ("".into(), "".into())
}

impl LaneMeters {
    fn host(&mut self, key: HostCounterKey) -> &mut HostCounters {
        let is_known = self.hosts.len() < HOSTS_MAX || self.hosts.contains_key(&key);
        self.hosts.entry(if is_known { key } else { unnamed() }).or_default()
    }

    /// Keeps a host without queues for a while. Removes the oldest one if there are too many.
    fn forget_oldest(&mut self, gone: HostCounterKey) {
        if gone != unnamed() && self.hosts.contains_key(&gone) {
            self.gone.push_back(gone);
        }
        while self.gone.len() > GONE_HOSTS_MAX {
            let Some(oldest) = self.gone.pop_front() else { return };
            let Some(host) = self.hosts.remove(&oldest) else { continue };
            self.hosts.entry(unnamed()).or_default().add(&host);
        }
    }
}

/// Adds the latencies of a namespace on one reactor.
fn add_latencies(sum: &mut [[Latency; 2]; 3], cells: &NamespaceCells) {
    for (sum, io) in sum.iter_mut().zip(&cells.io) {
        for (op, sum) in sum.iter_mut().enumerate() {
            *sum += &io.latency(op).into();
        }
    }
}

fn counts(of: impl IntoIterator<Item = (impl ToString, u64)>) -> Vec<ReasonCount> {
    let count = |(what, count): (_, u64)| ReasonCount { reason: ToString::to_string(&what), count };
    of.into_iter().map(count).collect()
}

/// Samples of the counters.
impl Meters {
    /// Returns the number of completed requests.
    pub(crate) fn requests(&self) -> u64 {
        self.batching().iter().map(|reactor| reactor.requests).sum()
    }

    /// Returns the counters of each reactor's lanes, including ended ones.
    fn batching(&self) -> Vec<Batching> {
        let lanes = lock(&self.lanes);
        let mut batching = lanes.past.clone();
        for lane in lanes.live.values() {
            batching[lane.reactor.get() as usize] += lane.here();
        }
        batching
    }

    /// Returns samples of the reactors, by number.
    pub(crate) fn reactor_samples(&self) -> Vec<ReactorSample> {
        let (latencies, batching) = (self.latencies(), self.batching());
        let samples = self.reactors.iter().enumerate().zip(batching).zip(latencies);
        samples
            .map(|(((number, cells), batching), latencies)| ReactorSample {
                latencies: named(latencies),
                ..cells.sample(number, batching)
            })
            .collect()
    }

    fn latencies(&self) -> Vec<[[Latency; 2]; 3]> {
        let namespaces = lock(&self.namespaces);
        let mut sums = namespaces.past.clone();
        for cells in namespaces.known.values() {
            for (sum, cells) in sums.iter_mut().zip(&**cells) {
                add_latencies(sum, cells);
            }
        }
        sums
    }

    /// Fills in the counts of a namespace.
    pub(crate) fn fill(&self, sample: &mut NamespaceSample) {
        let Some(cells) = self.known(&sample.nqn.as_str().into(), sample.nsid) else { return };
        for cells in &*cells {
            cells.io.iter().for_each(|io| io.add_to(&mut sample.io));
            cells.statuses.add_to(&mut sample.statuses);
        }
        sample.io.in_flight = sample.io.in_flight.max(0);
    }

    /// Returns one sample for each I/O queue.
    pub(crate) fn lane_samples(&self) -> Vec<LaneSample> {
        let mut lanes = self.queue_samples();
        lanes.retain(|lane| lane.qid > 0);
        lanes
    }

    /// Returns one sample for each queue, including admin queues.
    pub(crate) fn queue_samples(&self) -> Vec<LaneSample> {
        let live: Vec<_> = lock(&self.lanes).live.values().cloned().collect();
        let sample = |cells: &Arc<LaneCells>| {
            let mut io = IoCounters::default();
            cells.io.add_to(&mut io);
            LaneSample {
                nqn: cells.nqn.to_string(),
                host_nqn: cells.host_nqn.to_string(),
                peer: cells.peer.clone(),
                transport: cells.transport.to_owned(),
                cntlid: cells.cntlid,
                qid: cells.qid,
                reactor: cells.reactor.get() as usize,
                auth: lock(&cells.auth).clone(),
                io,
                batching: Batching::from_array(cells.batching.read()),
                reconnects: 0,
            }
        };
        live.iter().map(sample).collect()
    }

    /// Returns samples of the hosts. Adds the samples in `lanes`.
    pub(crate) fn host_samples(&self, lanes: &[LaneSample]) -> Vec<HostSample> {
        let sample = |((nqn, host_nqn), host): (&HostCounterKey, &HostCounters)| HostSample {
            nqn: nqn.to_string(),
            host_nqn: host_nqn.to_string(),
            connects: host.connects,
            losses: counts(host.losses.iter().map(|(why, count)| (why, *count))),
            refused_connects: counts(host.refusals.iter().map(|(why, count)| (why, *count))),
            io: host.past.clone(),
            ..HostSample::default()
        };
        let mut hosts: Vec<_> = lock(&self.lanes).hosts.iter().map(sample).collect();
        for lane in lanes {
            let is_its =
                |host: &&mut HostSample| (&host.nqn, &host.host_nqn) == (&lane.nqn, &lane.host_nqn);
            let Some(host) = hosts.iter_mut().find(is_its) else { continue };
            host.io_queues += 1;
            host.address.get_or_insert_with(|| lane.peer.clone());
            host.io += &lane.io;
        }
        hosts
    }

    /// Returns the outcomes of connections and protocol errors.
    pub(crate) fn transport_sample(&self) -> TransportSample {
        let lanes = lock(&self.lanes);
        let connection = |(&(transport, outcome), &count): (&(&str, &str), &u64)| ConnectionCount {
            transport: transport.to_owned(),
            outcome: outcome.to_owned(),
            count,
        };
        let data_digests = self.reactors.iter().map(|cells| cells.digest_errors.get()).sum();
        let header = lanes.protocol_errors.get("HeaderDigestError").copied().unwrap_or_default();
        TransportSample {
            connection_counts: lanes.connections.iter().map(connection).collect(),
            protocol_errors: counts(lanes.protocol_errors.iter().map(|(fes, n)| (fes, *n))),
            digest_errors: counts([("header", header), ("data", data_digests)]),
            ..TransportSample::default()
        }
    }
}

fn named(latencies: [[Latency; 2]; 3]) -> Vec<LatencyOf> {
    let names = CLASSES.into_iter().flat_map(|class| OPS.map(|op| (class, op)));
    let named = |((class, op), latency): ((&str, &str), Latency)| LatencyOf {
        op: op.to_owned(),
        class: class.to_owned(),
        latency,
    };
    names.zip(latencies.into_iter().flatten()).map(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(meters: &Meters, name: &str) -> u64 {
        let key: HostCounterKey = ("nqn.test:s".into(), name.into());
        let mut lanes = lock(&meters.lanes);
        lanes.gone.retain(|gone| *gone != key);
        let host = lanes.host(key.clone());
        (host.connects, host.queues) = (host.connects + 1, host.queues + 1);
        let cells = LaneCells {
            nqn: key.0,
            host_nqn: key.1,
            peer: String::new(),
            transport: "tcp",
            cntlid: 1,
            qid: 0,
            reactor: Counter::default(),
            auth: Mutex::default(),
            io: IoCells::default(),
            batching: BatchCells::default(),
            before: Mutex::default(),
        };
        lanes.next += 1;
        let number = lanes.next;
        lanes.live.insert(number, Arc::new(cells));
        number
    }

    /// Invented names do not stay, and do not take the place of real hosts.
    #[test]
    fn names_are_those_of_hosts_that_were_let_in() {
        let meters = Meters::new(1);
        let stays = lane(&meters, "stays");
        for n in 0..5000 {
            meters.refused("nqn.test:s", &format!("refused {n}"), "HOSTNQN");
        }
        meters.refused("nqn.test:s", "stays", "QID");
        for n in 0..5000 {
            meters.leave(lane(&meters, &format!("gone {n}")), "closed");
        }
        let hosts = meters.host_samples(&[]);
        assert_eq!(hosts.len(), 2 + GONE_HOSTS_MAX);
        let of = |name: &str| hosts.iter().find(|host| host.host_nqn == name).unwrap();
        let refusals =
            |name: &str| of(name).refused_connects.iter().map(|why| why.count).sum::<u64>();
        assert_eq!((refusals(""), refusals("stays")), (5000, 1));
        assert_eq!(of("").connects, (5000 - GONE_HOSTS_MAX) as u64);
        assert_eq!((of("gone 4999").connects, of("stays").connects), (1, 1));
        // A host that comes back keeps its counters.
        let again = lane(&meters, "gone 4999");
        meters.leave(again, "closed");
        meters.leave(stays, "closed");
        let hosts = meters.host_samples(&[]);
        let again = hosts.iter().find(|host| host.host_nqn == "gone 4999").unwrap();
        assert_eq!((again.connects, hosts.len()), (2, 1 + GONE_HOSTS_MAX));
    }
}
