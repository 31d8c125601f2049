//! Thread of a store: its connections, their time limits, and the completions of operations.

use crate::client::{NbdClient, NbdCompletion};
use crate::link::{NbdConnections, NbdLink};
use crate::queue::{NbdQueue, NbdRecipient, QueuedOperation};
use crate::stream::{NbdStream, NbdStreamError};
use crate::{NbdServerError, NbdStoreSettings, NbdTerms};
use roadtrain_store::{SizeWatcher, StoreCompletion};
use roadtrain_tls::Incoming;
use roadtrain_wire::nbd::{Command, NbdRequest};
use roadtrain_wire::status::Status;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};
use tracing::{debug, info, warn};

/// Bytes that wait for a socket before no further request is added.
const OUT_BYTES_MAX: usize = 1 << 20;
/// Bytes of a receive.
const RECEIVE_BYTES: usize = 256 << 10;
/// Receives of a connection in a turn.
const RECEIVES_MAX: usize = 16;
/// Longest pause between two attempts to reconnect.
const DELAY_MAX: Duration = Duration::from_secs(10);
/// Shortest time between two messages about failed requests.
const FAILURES_EVERY: Duration = Duration::from_secs(1);

/// State of a store that all threads see.
#[derive(Default)]
pub(crate) struct NbdShared {
    /// Size of the export in bytes, not rounded.
    pub(crate) bytes: AtomicU64,
    /// Time since which there is no connection.
    down_since: Mutex<Option<Instant>>,
    /// Callback for changes of the size.
    pub(crate) watcher: Mutex<Option<Weak<SizeWatcher>>>,
}

impl NbdShared {
    /// Returns the time without a connection.
    pub(crate) fn down_for(&self) -> Option<Duration> {
        let since = *self.down_since.lock().unwrap_or_else(PoisonError::into_inner);
        since.map(|since| since.elapsed())
    }

    fn set_down(&self, since: Option<Instant>) {
        *self.down_since.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }

    fn set_bytes(&self, bytes: u64) {
        if self.bytes.swap(bytes, Ordering::Relaxed) != bytes {
            let watcher = self.watcher.lock().unwrap_or_else(PoisonError::into_inner).clone();
            watcher.and_then(|watcher| watcher.upgrade()).inspect(|watcher| watcher());
        }
    }
}

/// Connection with the bytes that it has to send.
struct WorkerConnection {
    stream: NbdStream,
    out: Vec<u8>,
    sent: usize,
}

impl WorkerConnection {
    fn unsent(&self) -> usize {
        self.out.len() - self.sent
    }

    /// Sends what the socket takes. Returns true if it has taken something.
    fn send(&mut self) -> Result<bool, NbdStreamError> {
        let before = self.unsent();
        self.stream.drain()?;
        while self.unsent() > 0 {
            let sent = self.stream.send(&self.out[self.sent..])?;
            if sent == 0 {
                break;
            }
            self.sent += sent;
        }
        if self.unsent() == 0 {
            self.out.clear();
            self.sent = 0;
        }
        Ok(self.unsent() < before)
    }

    fn has_unsent(&self) -> bool {
        self.unsent() > 0 || self.stream.has_unsent()
    }
}

/// Time without connections.
struct Outage {
    since: Instant,
    next_attempt: Instant,
    delay: Duration,
    /// True once operations fail.
    is_failing: bool,
    /// Last reason, which is logged once.
    reason: String,
}

/// Thread of a store.
pub(crate) struct NbdWorker {
    name: String,
    link: NbdLink,
    settings: NbdStoreSettings,
    queue: Arc<NbdQueue>,
    shared: Arc<NbdShared>,
    client: NbdClient<NbdRecipient>,
    connections: Vec<WorkerConnection>,
    outage: Option<Outage>,
    /// Time of the last received byte, or of a request when none was in flight.
    active: Instant,
    place: Vec<u8>,
    failures_logged: Option<Instant>,
}

impl NbdWorker {
    pub(crate) fn new(
        name: String,
        link: NbdLink,
        settings: NbdStoreSettings,
        (queue, shared): (Arc<NbdQueue>, Arc<NbdShared>),
    ) -> NbdWorker {
        NbdWorker {
            name,
            client: NbdClient::new(link.lba_bytes),
            link,
            settings,
            queue,
            shared,
            connections: Vec::new(),
            outage: None,
            active: Instant::now(),
            place: vec![0; RECEIVE_BYTES],
            failures_logged: None,
        }
    }

    /// Begins with new connections.
    pub(crate) fn connected(&mut self, NbdConnections { terms, streams }: NbdConnections) {
        let new = |stream| WorkerConnection { stream, out: Vec::new(), sent: 0 };
        self.connections = streams.into_iter().map(new).collect();
        self.client.connected(terms, self.connections.len());
        self.active = Instant::now();
        self.shared.set_down(None);
        if self.outage.take().is_some() {
            info!("{}: connected again: {} operations continue", self.name, self.client.pending());
        }
        self.shared.set_bytes(terms.bytes);
    }

    /// Runs until the queue is closed.
    pub(crate) fn run(mut self) {
        loop {
            self.queue.event().acknowledge();
            let Some(operations) = self.queue.take() else { break };
            for operation in operations {
                self.submit(operation);
            }
            match self.outage {
                None => {
                    if let Err(error) = self.exchange() {
                        self.disconnected(&error);
                    }
                }
                Some(_) => {
                    self.try_to_reconnect();
                    if self.outage.is_none() {
                        continue; // what waits is sent before the next wait
                    }
                }
            }
            self.deliver();
            self.wait();
        }
        self.client.disconnected();
        self.client.fail_all();
        self.deliver();
        let (command, flags) = (Command::DISC, 0);
        let end = NbdRequest { flags, command, cookie: 0, offset: 0, length: 0 };
        for connection in &mut self.connections {
            connection.stream.close(&end.emit());
        }
    }

    fn submit(&mut self, operation: QueuedOperation) {
        if self.outage.as_ref().is_some_and(|outage| outage.is_failing) {
            return operation.refuse(Status::ANA_INACCESSIBLE);
        }
        let QueuedOperation { op, buffer, recipient } = operation;
        self.client.submit(op, buffer, recipient);
    }

    /// Sends and receives as long as something moves.
    fn exchange(&mut self) -> Result<(), NbdStreamError> {
        loop {
            let was_idle = !self.client.expects_reply();
            let mut has_moved = self.add_requests();
            if was_idle && has_moved {
                self.active = Instant::now();
            }
            for index in 0..self.connections.len() {
                has_moved |= self.connections[index].send()?;
                has_moved |= self.receive(index)?;
            }
            self.deliver();
            if !has_moved {
                break;
            }
        }
        let limit = self.settings.io_timeout;
        if let Some(limit) = limit.filter(|_| self.client.expects_reply())
            && self.active.elapsed() >= limit
        {
            return Err(NbdStreamError::TimedOut(limit));
        }
        Ok(())
    }

    /// Adds requests to what is sent. Returns true if there are any.
    fn add_requests(&mut self) -> bool {
        let mut has_added = false;
        loop {
            let connections = &self.connections;
            let has_room = |index: usize| connections[index].unsent() < OUT_BYTES_MAX;
            let Some((connection, request, operation)) = self.client.next_request(has_room) else {
                return has_added;
            };
            has_added = true;
            let out = &mut self.connections[connection].out;
            out.extend(request.emit());
            if request.command == Command::WRITE {
                match self.client.payload(operation) {
                    Some(payload) => out.extend_from_slice(payload),
                    None => out.resize(out.len() + request.length as usize, 0),
                }
            }
        }
    }

    /// Receives from a connection. Returns true if something was received.
    fn receive(&mut self, index: usize) -> Result<bool, NbdStreamError> {
        for turn in 0..RECEIVES_MAX {
            match self.connections[index].stream.receive(&mut self.place)? {
                Incoming::Bytes(count) => {
                    self.client.receive(index, &self.place[..count])?;
                    self.active = Instant::now();
                }
                Incoming::Nothing => return Ok(turn > 0),
                Incoming::Closed => return Err(NbdStreamError::Closed),
            }
        }
        Ok(true)
    }

    fn deliver(&mut self) {
        while let Some(completion) = self.client.take_completion() {
            let NbdCompletion { of, result, buffer, is_unforced } = completion;
            let NbdRecipient { token, completions } = of;
            completions.send(StoreCompletion { token, result, buffer, is_unforced });
        }
        while let Some(failure) = self.client.take_failure() {
            let is_quiet = self.failures_logged.is_some_and(|at| at.elapsed() < FAILURES_EVERY);
            if is_quiet {
                continue;
            }
            self.failures_logged = Some(Instant::now());
            warn!("{}: {:?} fails: {} {}", self.name, failure.op, failure.errno, failure.text);
        }
    }

    fn disconnected(&mut self, error: &NbdStreamError) {
        self.connections.clear();
        let may_have_lost = self.client.disconnected();
        let now = Instant::now();
        self.shared.set_down(Some(now));
        warn!("{}: the connection is lost: {error}: operations wait for another one", self.name);
        if may_have_lost {
            warn!("{}: writes that were not flushed may be lost: the next flush fails", self.name);
        }
        let delay = self.settings.reconnect_delay;
        // Some servers restart at once.
        self.outage = Some(Outage {
            since: now,
            next_attempt: now + delay,
            delay,
            is_failing: false,
            reason: error.to_string(),
        });
    }

    fn try_to_reconnect(&mut self) {
        let Some(outage) = &mut self.outage else { return };
        if let Some(limit) = self.settings.fast_io_fail
            && !outage.is_failing
            && outage.since.elapsed() >= limit
        {
            outage.is_failing = true;
            warn!("{}: no connection for {limit:?}: operations fail", self.name);
            self.client.fail_all();
        }
        if Instant::now() < outage.next_attempt {
            return;
        }
        let connected = self.link.connect().and_then(|connections| {
            check_blocks(&connections.terms, self.link.lba_bytes)?;
            Ok(connections)
        });
        match connected {
            Ok(connections) => self.connected(connections),
            Err(error) => {
                let reason = error.to_string();
                if reason == outage.reason {
                    debug!("{}: cannot connect: {reason}", self.name);
                } else {
                    warn!("{}: cannot connect: {reason}: it is tried again", self.name);
                }
                outage.reason = reason;
                outage.next_attempt = Instant::now() + outage.delay;
                outage.delay = (outage.delay * 2).min(DELAY_MAX);
            }
        }
    }

    /// Returns the time of the next work in any case.
    fn deadline(&self) -> Option<Instant> {
        match &self.outage {
            Some(outage) => {
                let failing = self.settings.fast_io_fail.map(|limit| outage.since + limit);
                let failing = failing.filter(|_| !outage.is_failing);
                Some(failing.map_or(outage.next_attempt, |at| at.min(outage.next_attempt)))
            }
            None => {
                let limit = self.settings.io_timeout.filter(|_| self.client.expects_reply());
                limit.map(|limit| self.active + limit)
            }
        }
    }

    /// Waits for the queue, the sockets, or the next deadline.
    fn wait(&self) {
        let mut fds = vec![PollFd::from_borrowed_fd(self.queue.event().as_fd(), PollFlags::IN)];
        for connection in &self.connections {
            let out = if connection.has_unsent() { PollFlags::OUT } else { PollFlags::empty() };
            fds.push(PollFd::from_borrowed_fd(connection.stream.fd(), PollFlags::IN | out));
        }
        let left = self.deadline().map(|at| at.saturating_duration_since(Instant::now()));
        let left = left.map(|left| Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: left.subsec_nanos().into(),
        });
        if let Err(error) = poll(&mut fds, left.as_ref())
            && error != rustix::io::Errno::INTR
        {
            warn!("{}: poll: {error}", self.name);
            std::thread::sleep(self.settings.reconnect_delay);
        }
    }
}

/// Checks that blocks have the size that hosts know.
fn check_blocks(terms: &NbdTerms, lba_bytes: u32) -> Result<(), NbdServerError> {
    let now = terms.lba_bytes(lba_bytes)?;
    if now == lba_bytes {
        return Ok(());
    }
    let text = format!("its blocks have {now} bytes now, and hosts know blocks of {lba_bytes}");
    Err(NbdServerError::Unusable(text))
}
