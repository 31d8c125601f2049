//! Counters of lanes and connection state, for other threads.

use super::api::{IoCompletion, IoOp};
use roadtrain_reactor::metrics::{
    BatchCells, Batching, CommandKind, CommandOutcome, IoCells, IoCounters, Latency, LatencyOf,
    ReactorCells, ReactorSample,
};
use roadtrain_system::platform::mptcp::{self, MptcpSubflow};
use roadtrain_wire::ana::AnaState;
use std::iter::Sum;
use std::ops::Add;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Counters of a reactor.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct ReactorCounters {
    pub(crate) cells: Arc<ReactorCells>,
    pub(crate) io: IoCells,
}

impl ReactorCounters {
    /// Counts a completed request.
    #[inline]
    pub(crate) fn ended(&self, completion: &IoCompletion) {
        let IoCompletion { op, status, buffer, latency_ns, .. } = completion;
        if !status.is_success() {
            return self.io.failed();
        }
        let done = match op {
            IoOp::Read => CommandKind::Read,
            IoOp::Write => CommandKind::Write,
            IoOp::Flush => CommandKind::Flush,
            IoOp::Discard => CommandKind::Discard,
            _ => CommandKind::Other,
        };
        let bytes = buffer.as_ref().map_or(0, |buffer| buffer.len() as u64);
        self.io.ended(CommandOutcome::new(done, bytes, *latency_ns));
    }

    /// Returns a sample; its lanes have counted `lanes`.
    pub(crate) fn sample(&self, reactor: usize, lanes: Batching) -> (ReactorSample, IoCounters) {
        let mut io = IoCounters::default();
        self.io.add_to(&mut io);
        let latency = |op: &str, latency: &Latency| {
            let (op, class) = (op.to_owned(), "normal".to_owned());
            LatencyOf { op, class, latency: latency.clone() }
        };
        let latencies =
            vec![latency("read", &io.read_latency), latency("write", &io.write_latency)];
        (ReactorSample { latencies, ..self.cells.sample(reactor, lanes) }, io)
    }
}

/// Counters of a lane. Its reactor writes them at the end of a turn; any thread reads them.
#[derive(Debug, Default)]
#[repr(align(64))] // no lane writes to another one's cache line
pub(crate) struct LaneCounters {
    batching: BatchCells,
    pub(crate) errors: AtomicU64,
    pub(crate) reconnects: AtomicU64,
    pub(crate) in_flight: AtomicU32,
    pub(crate) waiting: AtomicU32,
    abandoned: AtomicU64,
    express: ExpressCounters,
    paths: Mutex<Vec<PathReading>>,
    sockets: Arc<MptcpSockets>,
}

/// Sockets of a lane's connections over MPTCP: its own, and the express connection. They are open while they are here.
#[derive(Debug, Default)]
pub(crate) struct MptcpSockets(Mutex<Vec<RawFd>>);

/// Entry of a socket in [`MptcpSockets`]. It has to be dropped before the socket is closed.
pub(crate) struct MptcpSocketEntry {
    sockets: Arc<MptcpSockets>,
    fd: RawFd,
}

#[derive(Debug, Default)]
struct ExpressCounters {
    is_open: AtomicBool,
    opened: AtomicU64,
    requests: AtomicU64,
    data_bytes: AtomicU64,
    in_flight: AtomicU32,
}

/// Sample of a lane's express connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ExpressReading {
    /// True if it is open.
    pub is_open: bool,
    /// Number of times that it was opened.
    pub opened: u64,
    /// Requests that the target has completed over the current one.
    pub requests: u64,
    /// Bytes of their data.
    pub data_bytes: u64,
    /// Requests that it carries.
    pub in_flight: u32,
}

/// Sample of a lane's part of a link, over frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathReading {
    /// Local interface.
    pub interface: String,
    /// NUMA node of the interface, if known.
    pub node: Option<u32>,
    /// Address of the target on the link.
    pub peer: String,
    /// True if new frames avoid the link.
    pub is_suspect: bool,
    /// True if frames are sealed.
    pub is_sealed: bool,
    /// Smoothed round-trip time.
    pub smoothed_rtt: Duration,
    /// Frames sent.
    pub sent: u64,
    /// Frames declared lost, whose contents were sent again.
    pub lost: u64,
}

/// Sample of a lane, or the sum of several. The counters only grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct LaneReading {
    /// Requests that the target has completed, and their batching.
    pub batching: Batching,
    /// Requests that failed (of all lanes of a reactor, counted with its first).
    pub errors: u64,
    /// Connections that were lost and made again.
    pub reconnects: u64,
    /// Requests taken and not completed.
    pub in_flight: u32,
    /// Requests among them that wait for a slot or a connection.
    pub waiting: u32,
    /// Express connection, whose requests are counted above as well.
    pub express: ExpressReading,
}

impl Add for LaneReading {
    type Output = LaneReading;

    fn add(self, other: LaneReading) -> LaneReading {
        LaneReading {
            batching: self.batching + other.batching,
            errors: self.errors + other.errors,
            reconnects: self.reconnects + other.reconnects,
            in_flight: self.in_flight + other.in_flight,
            waiting: self.waiting + other.waiting,
            express: self.express + other.express,
        }
    }
}

impl Sum for LaneReading {
    fn sum<I: Iterator<Item = LaneReading>>(readings: I) -> LaneReading {
        readings.fold(LaneReading::default(), Add::add)
    }
}

impl Add for ExpressReading {
    type Output = ExpressReading;

    fn add(self, other: ExpressReading) -> ExpressReading {
        ExpressReading {
            is_open: self.is_open || other.is_open,
            opened: self.opened + other.opened,
            requests: self.requests + other.requests,
            data_bytes: self.data_bytes + other.data_bytes,
            in_flight: self.in_flight + other.in_flight,
        }
    }
}

impl MptcpSockets {
    /// Adds the socket if it is of MPTCP.
    pub(crate) fn add(self: &Arc<Self>, socket: BorrowedFd<'_>) -> Option<MptcpSocketEntry> {
        let fd = socket.as_raw_fd();
        mptcp::is_mptcp(&socket).then(|| {
            self.lock().push(fd);
            MptcpSocketEntry { sockets: Arc::clone(self), fd }
        })
    }

    fn subflows(&self) -> Vec<MptcpSubflow> {
        let sockets = self.lock();
        // SAFETY: a socket leaves the list, for which this thread has the lock, before it is closed.
        let open = sockets.iter().map(|&fd| unsafe { BorrowedFd::borrow_raw(fd) });
        open.flat_map(|socket| mptcp::subflows(&socket)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<RawFd>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for MptcpSocketEntry {
    fn drop(&mut self) {
        self.sockets.lock().retain(|fd| *fd != self.fd);
    }
}

impl LaneCounters {
    /// Returns the list for sockets of the lane's connections.
    pub(crate) fn sockets(&self) -> &Arc<MptcpSockets> {
        &self.sockets
    }

    /// Returns the subflows of the lane's connections.
    pub(crate) fn subflows(&self) -> Vec<MptcpSubflow> {
        self.sockets.subflows()
    }

    #[inline]
    pub(crate) fn write_batching(&self, batching: Batching) {
        self.batching.write(batching.to_array());
    }

    pub(crate) fn write_express(&self, reading: &ExpressReading) {
        self.express.is_open.store(reading.is_open, Relaxed);
        self.express.opened.store(reading.opened, Relaxed);
        self.express.requests.store(reading.requests, Relaxed);
        self.express.data_bytes.store(reading.data_bytes, Relaxed);
        self.express.in_flight.store(reading.in_flight, Relaxed);
    }

    fn read_express(&self) -> ExpressReading {
        ExpressReading {
            is_open: self.express.is_open.load(Relaxed),
            opened: self.express.opened.load(Relaxed),
            requests: self.express.requests.load(Relaxed),
            data_bytes: self.express.data_bytes.load(Relaxed),
            in_flight: self.express.in_flight.load(Relaxed),
        }
    }

    /// Publishes links from time to time. A concurrent reader postpones it to the next time.
    pub(crate) fn write_paths(&self, paths: impl Iterator<Item = PathReading>) {
        if let Ok(mut written) = self.paths.try_lock() {
            written.clear();
            written.extend(paths);
        }
    }

    pub(crate) fn paths(&self) -> Vec<PathReading> {
        self.paths.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts requests that fail because their completions are not awaited any more.
    pub(crate) fn abandon(&self, requests: u32) {
        self.abandoned.fetch_add(requests.into(), Relaxed);
    }

    pub(crate) fn abandoned(&self) -> u64 {
        self.abandoned.load(Relaxed)
    }

    pub(crate) fn batching(&self) -> Batching {
        Batching::from_array(self.batching.read())
    }

    pub(crate) fn read(&self) -> LaneReading {
        let express = self.read_express();
        LaneReading {
            batching: self.batching(),
            errors: self.errors.load(Relaxed),
            reconnects: self.reconnects.load(Relaxed),
            in_flight: self.in_flight.load(Relaxed) + express.in_flight,
            waiting: self.waiting.load(Relaxed),
            express,
        }
    }
}

/// State of a path to the namespaces.
#[derive(Clone, Debug)]
pub struct PathReport {
    /// Address of the path.
    pub address: String,
    /// Connection state of the path.
    pub link: TargetLinkReport,
    /// Best ANA state of its namespaces; `None` if it was not read, or is not reported.
    pub ana: Option<AnaState>,
    /// Requests that it has completed.
    pub requests: u64,
    /// Bytes of their data.
    pub data_bytes: u64,
    /// Lost connections of its lanes.
    pub losses: u64,
    /// Requests that it carries.
    pub in_flight: u32,
    /// Requests among them that wait for a slot or a connection.
    pub waiting: u32,
}

/// State of the connections to the target. All connections of a controller are lost and made together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// All lanes are connected.
    Connected,
    /// Connections are lost, attempts continue, and requests wait.
    Reconnecting,
    /// Reconnecting for longer than the controller-loss timeout: requests fail.
    Failing,
}

/// State of the connection to the target.
#[derive(Clone, Debug)]
pub struct TargetLinkReport {
    /// Current state.
    pub state: LinkState,
    /// Start of the state.
    pub since: Instant,
    /// Last error, while it is not connected.
    pub error: Option<String>,
}

impl TargetLinkReport {
    pub(crate) fn new(state: LinkState, error: Option<String>) -> Self {
        TargetLinkReport { state, since: Instant::now(), error }
    }
}
