//! NBD server: a front of the reactor that its lane runs on.
//!
//! Each turn it takes the lane's completions and receives from the clients whose sockets are ready. It hands their
//! requests to the lane and sends all replies of a connection in one gather. Receives and sends are direct and never
//! block; the reactor only waits for readiness. When buffers, the lane or a client's own reading cannot follow, its
//! socket is not read.

use super::address::NbdAddress;
use super::block_status::{BlockStatuses, extents};
use super::connection::{NbdConnection, NbdJobs, NewClient, WaitReason};
use super::connection_id::ConnectionId;
use super::endpoint::{HANDSHAKE_TIMEOUT, NbdEndpoint};
use super::export::{ExportInfo, NbdExport};
use super::listener::NbdClients;
use super::orphan_writes::{ORPHAN_RETRY, OrphanToken, OrphanWrites, Predecessors, hung_up};
use super::securing::Securing;
use super::session::NbdCloseReason;
use super::watched_mailbox::WatchedMailbox;
use crate::disk::NamespaceWatch;
use roadtrain_host_engine::{Front, FrontTurn, HostControllerView, Interest, LaneId};
use roadtrain_proto::time::Instant;
use slab::Slab;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tracing::{debug, info, warn};

/// Default limit of a server's buffers, in bytes.
pub const BUFFER_BYTES_MAX: usize = 128 << 20;
/// Least limit of a server's buffers, in bytes: less would not hold one request of the largest size.
pub const BUFFER_BYTES_MIN: usize = 36 << 20;
/// Most clients at a time; further ones are disconnected.
const CONNECTIONS_MAX: usize = 256;
/// Longest time for which a client may hold buffers that others wait for without progress.
const PATIENCE: Duration = Duration::from_secs(60);
/// Delay for which a server with more clients than others leaves a new one to them.
const ACCEPT_DELAY: Duration = Duration::from_millis(1);
/// Delay until accepting is retried after the system refused it.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Key of the watch of the listening socket; the keys of connections are below.
const LISTENER_KEY: u64 = u64::MAX;
/// Key of the watch of finished TLS handshakes.
const TLS_DONE_KEY: u64 = u64::MAX - 1;
/// Key of the watch of other servers' queries.
const QUERY_KEY: u64 = u64::MAX - 2;

/// Serves one namespace over one reactor's lane or lanes. Servers of several reactors may share an [`NbdEndpoint`].
pub struct NbdServer {
    endpoint: NbdEndpoint,
    /// Number of the server at the endpoint.
    number: u64,
    jobs: NbdJobs,
    connections: Slab<NbdConnection>,
    serial: u32,
    /// Connections with something to do in this turn.
    listed: Vec<usize>,
    /// Deadlines of the clients' handshakes, oldest first.
    in_handshake: VecDeque<(Instant, ConnectionId)>,
    handshake_timeout: Duration,
    /// Connections waiting for buffers, longest first.
    waiting_for_buffers: VecDeque<ConnectionId>,
    /// Buffers given back when the first of them was last tried.
    given_before: u64,
    patience: Duration,
    /// Deadline at which clients are disconnected that have made no progress since a connection waits for buffers.
    patient_until: Option<Instant>,
    /// Writes of clients that are gone.
    orphans: OrphanWrites,
    /// Queries of other servers about them.
    queries: WatchedMailbox<OrphanToken>,
    /// Connections waiting for such writes.
    waiting: Vec<ConnectionId>,
    /// Requests for block status.
    statuses: BlockStatuses,
    /// Clients in a TLS handshake.
    securing: Option<Securing>,
    listening: bool,
    stopping: bool,
    /// Time to accept although other servers should, or to try again.
    accept_at: Option<Instant>,
    /// Time to retry parked parts, and to check the connections that wait for others' writes.
    retry_at: Option<Instant>,
    /// Watch on the namespace. An idle server does not check it; a new client triggers a check.
    watch: NamespaceWatch,
}

impl NbdServer {
    /// Makes a server for clients of this machine with an address of its own; see [`NbdEndpoint::bind`].
    ///
    /// # Errors
    /// Returns the errors of [`NbdEndpoint::bind`].
    pub fn bind(address: &NbdAddress, info: ExportInfo, lane: LaneId) -> io::Result<Self> {
        NbdServer::new(NbdEndpoint::bind(address, NbdClients::Local, None, info)?, lane)
    }

    /// Uses `lanes` lanes of the reactor, from the given one on; each client has one of them.
    #[must_use]
    pub fn with_lanes(mut self, lanes: usize) -> Self {
        self.jobs.set_lanes(lanes);
        self
    }

    /// Limits the buffers in use to `bytes`, at least [`BUFFER_BYTES_MIN`].
    #[must_use]
    pub fn with_buffer_bytes_max(mut self, bytes: usize) -> Self {
        self.jobs.set_buffer_bytes_max(bytes.max(BUFFER_BYTES_MIN));
        self
    }

    /// Makes a server over `lane` of the reactor whose front it becomes. A client goes to the server of the endpoint
    /// that has the fewest.
    ///
    /// # Errors
    /// Fails if the system has no descriptor left.
    pub fn new(endpoint: NbdEndpoint, lane: LaneId) -> io::Result<Self> {
        let (outbox, queries) = WatchedMailbox::new()?;
        Ok(NbdServer {
            number: endpoint.register_server(outbox),
            jobs: NbdJobs::new(endpoint.export().disk().clone(), lane, BUFFER_BYTES_MAX),
            endpoint,
            connections: Slab::new(),
            serial: 0,
            listed: Vec::new(),
            in_handshake: VecDeque::new(),
            handshake_timeout: HANDSHAKE_TIMEOUT,
            waiting_for_buffers: VecDeque::new(),
            given_before: 0,
            patience: PATIENCE,
            patient_until: None,
            orphans: OrphanWrites::default(),
            queries,
            waiting: Vec::new(),
            statuses: BlockStatuses::default(),
            securing: None,
            listening: false,
            stopping: false,
            accept_at: None,
            retry_at: None,
            watch: NamespaceWatch::default(),
        })
    }

    /// Sets the longest handshake of a client.
    #[must_use]
    pub fn with_handshake_timeout(mut self, timeout: Duration) -> Self {
        self.handshake_timeout = timeout;
        self
    }

    /// Sets the longest time for which a client may hold buffers without progress while others wait for buffers.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Follows the namespace's changes of size, its removal and its return.
    #[must_use]
    pub fn following(mut self, view: HostControllerView) -> Self {
        self.watch = NamespaceWatch::new(view);
        self
    }

    /// Makes a server at the same endpoint over another reactor's lane.
    ///
    /// # Errors
    /// Fails if the system has no descriptor left.
    pub fn for_lane(&self, lane: LaneId) -> io::Result<Self> {
        NbdServer::new(self.endpoint.clone(), lane)
    }

    /// Returns the endpoint: listening socket and export.
    #[must_use]
    pub fn endpoint(&self) -> &NbdEndpoint {
        &self.endpoint
    }

    /// Returns the listening address, with the port that the system chose.
    #[must_use]
    pub fn address(&self) -> &NbdAddress {
        self.endpoint.address()
    }

    /// Returns the export, whose disk is updated when the namespace changes; usable on any thread.
    #[must_use]
    pub fn export(&self) -> Arc<NbdExport> {
        self.endpoint.export().clone()
    }

    fn list(&mut self, slot: usize) {
        if let Some(connection) = self.connections.get_mut(slot)
            && !std::mem::replace(&mut connection.listed, true)
        {
            self.listed.push(slot);
        }
    }

    fn take_ready(&mut self, turn: &mut dyn FrontTurn) {
        while let Some(key) = turn.next_ready() {
            if key == LISTENER_KEY {
                self.listening = false;
                self.accept_soon(turn.now());
                continue;
            }
            if key == TLS_DONE_KEY {
                self.take_secured();
                continue;
            }
            if key == QUERY_KEY {
                let queries: Vec<OrphanToken> = self.queries.take().collect();
                queries.into_iter().for_each(|token| self.wait_for_orphans(token));
                continue;
            }
            let (id, interest) = unpack(key);
            let Some(connection) = self.connections.get_mut(id.slot) else { continue };
            if connection.id() != id {
                continue;
            }
            match interest {
                Interest::Readable => {
                    (connection.readable, connection.watches_readable) = (true, false);
                }
                Interest::Writable => {
                    (connection.writable, connection.watches_writable) = (true, false);
                }
            }
            self.list(id.slot);
        }
    }

    /// Takes clients whose TLS handshake has ended.
    fn take_secured(&mut self) {
        let Some(securing) = &mut self.securing else { return };
        for (id, stream) in securing.take() {
            if let Some(connection) = self.connections.get_mut(id.slot).filter(|c| c.id() == id) {
                connection.secured(stream);
                self.list(id.slot);
            }
        }
    }

    /// Starts the TLS handshake of a client that got the reply to STARTTLS.
    fn secure(&mut self, slot: usize) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let id = connection.id();
        let Some(client) = connection.take_for_tls() else { return };
        let begun = match &mut self.securing {
            Some(securing) => securing.begin(&self.endpoint, id, client),
            none => {
                Securing::new().and_then(|new| none.insert(new).begin(&self.endpoint, id, client))
            }
        };
        if let Err(error) = begun {
            warn!(%error, "an NBD client cannot be secured");
            connection.secured(None);
        }
    }

    fn take_completions(&mut self, turn: &mut dyn FrontTurn) {
        while let Some(completion) = turn.next_completion() {
            let Some(job) = self.jobs.complete(completion) else { continue };
            let id = self.jobs.job(job).mark.id;
            match self.connections.get_mut(id.slot).filter(|c| c.id() == id) {
                Some(connection) => {
                    connection.end_job(job, &mut self.jobs);
                    self.list(id.slot);
                }
                None => {
                    if self.jobs.job(job).request.op.writes() {
                        self.orphans.end_write(id);
                    }
                    self.jobs.remove(job, |buffer, _| Some(buffer));
                }
            }
        }
    }

    /// Answers requests for block status, and sends the next query.
    fn answer_statuses(&mut self, turn: &mut dyn FrontTurn) {
        for at in 0..self.listed.len() {
            let Some(connection) = self.connections.get_mut(self.listed[at]) else { continue };
            let id = connection.id();
            let requests = connection.take_statuses();
            if connection.has_allocation() {
                requests.into_iter().for_each(|request| self.statuses.push(id, request));
                continue;
            }
            requests.iter().for_each(|request| connection.end_status(request, &[]));
        }
        if self.statuses.is_empty() {
            return;
        }
        let export = self.endpoint.export().clone();
        let info = export.disk().info();
        while let Some((id, request, found)) = self.statuses.next(turn, info) {
            let connection = self.connections.get_mut(id.slot);
            if let Some(connection) = connection.filter(|c| c.id() == id) {
                let extents = extents(info.lba_bytes, &request, found.as_ref());
                connection.end_status(&request, &extents);
                self.list(id.slot);
            }
        }
    }

    /// Schedules an accept: now, or later if a server with fewer clients may take the client.
    fn accept_soon(&mut self, now: Instant) {
        let is_ahead = self.endpoint.is_ahead(self.connections.len());
        self.accept_at = Some(if is_ahead { now + ACCEPT_DELAY } else { now });
    }

    fn accept(&mut self, now: Instant) {
        if self.accept_at.is_none_or(|at| at > now) {
            return;
        }
        self.accept_at = None;
        match self.endpoint.accept() {
            Ok(Some(client)) => {
                self.watch.check(now, self.endpoint.export().disk());
                self.add(now, client);
            }
            Ok(None) => {}
            Err(error) => {
                warn!(%error, "cannot accept an NBD client");
                self.accept_at = Some(now + ACCEPT_RETRY);
            }
        }
    }

    fn add(&mut self, now: Instant, client: NewClient) {
        if self.connections.len() >= CONNECTIONS_MAX && !self.make_room() {
            return warn!("an NBD client is refused: {CONNECTIONS_MAX} are connected");
        }
        let predecessors = self.predecessors();
        self.serial = self.serial.wrapping_add(1) & SERIAL_MASK;
        let entry = self.connections.vacant_entry();
        let id = ConnectionId { slot: entry.key(), serial: self.serial };
        let (export, requires_tls) = (self.endpoint.export().clone(), self.endpoint.requires_tls());
        let peer = client.peer;
        entry.insert(NbdConnection::new(client, id, export, requires_tls, predecessors));
        self.endpoint.add_connections(1);
        self.in_handshake.push_back((now + self.handshake_timeout, id));
        debug!(client = id.serial, ?peer, address = %self.endpoint.address(), "NBD client connected");
        self.list(id.slot);
    }

    /// Returns the clients of all servers that have hung up by now.
    fn predecessors(&mut self) -> Predecessors {
        let predecessors = Predecessors::default();
        self.endpoint.query_others(self.number, &predecessors);
        self.wait_for_orphans(predecessors.token());
        predecessors
    }

    /// Keeps the token of a new client, of this server or another, until the clients here that have hung up have no
    /// write left.
    fn wait_for_orphans(&mut self, token: OrphanToken) {
        let open = self.connections.iter().filter_map(|(_, c)| Some((c.id(), c.fd()?)));
        for id in hung_up(open) {
            self.connections[id.slot].note_hang_up();
            self.list(id.slot);
        }
        let leaving = self.connections.iter().filter(|(_, c)| c.is_leaving());
        self.orphans.wait(token, leaving.map(|(_, c)| c.id()));
    }

    /// Lets connections start whose predecessors have no write left.
    fn start_waiting(&mut self) {
        for id in std::mem::take(&mut self.waiting) {
            let current = self.connections.get(id.slot).filter(|c| c.id() == id);
            let waits = current.filter(|connection| connection.waits() == WaitReason::Predecessors);
            match waits.map(|connection| connection.can_continue(&self.jobs)) {
                Some(true) => self.list(id.slot),
                Some(false) => self.waiting.push(id),
                None => {}
            }
        }
    }

    /// True if the client with the longest handshake was disconnected to make room for another.
    fn make_room(&mut self) -> bool {
        let Some((_, oldest)) = self.in_handshake.pop_front() else { return false };
        self.abandon(oldest, NbdCloseReason::Overdue);
        self.prune_handshakes();
        true
    }

    fn abandon(&mut self, id: ConnectionId, close: NbdCloseReason) {
        if let Some(connection) = self.connections.get_mut(id.slot) {
            connection.abandon(close);
            self.list(id.slot);
        }
    }

    /// Disconnects clients whose handshake takes too long.
    fn expire_handshakes(&mut self, now: Instant) {
        self.prune_handshakes();
        while let Some(&(deadline, id)) = self.in_handshake.front()
            && deadline <= now
        {
            self.in_handshake.pop_front();
            self.abandon(id, NbdCloseReason::Overdue);
            self.prune_handshakes();
        }
    }

    /// Disconnects clients that hold buffers without progress, while a connection waits for buffers.
    fn expire_stuck(&mut self, now: Instant) {
        if self.waiting_for_buffers.is_empty() {
            self.patient_until = None;
            return;
        }
        if self.patient_until.is_some_and(|until| until > now) {
            return;
        }
        let stuck = self.connections.iter().filter(|(_, connection)| connection.is_stuck());
        let stuck: Vec<ConnectionId> = stuck.map(|(_, connection)| connection.id()).collect();
        if self.patient_until.replace(now + self.patience).is_some() {
            stuck.into_iter().for_each(|id| self.abandon(id, NbdCloseReason::Stuck(self.patience)));
        }
        self.connections.iter_mut().for_each(|(_, connection)| connection.note_moved());
    }

    /// Removes clients from the front of the list until the first is in its handshake.
    fn prune_handshakes(&mut self) {
        while let Some(&(_, id)) = self.in_handshake.front() {
            let connection = self.connections.get(id.slot).filter(|c| c.id() == id);
            if connection.is_some_and(NbdConnection::is_in_handshake) {
                return;
            }
            self.in_handshake.pop_front();
        }
    }

    /// Gives buffers to the connection that waits longest, and to no other while that one waits.
    fn receive_waiting(&mut self) {
        while let Some(&id) = self.waiting_for_buffers.front() {
            let current = self.connections.get_mut(id.slot).filter(|c| c.id() == id);
            if let Some(connection) = current {
                connection.receive(&mut self.jobs, true);
                let waits = connection.waits();
                self.list(id.slot);
                if waits == WaitReason::Buffers {
                    self.given_before = self.jobs.given();
                    return;
                }
            }
            self.waiting_for_buffers.pop_front();
        }
    }

    fn receive(&mut self, slot: usize) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        connection.receive(&mut self.jobs, self.waiting_for_buffers.is_empty());
        if connection.waits() == WaitReason::Buffers
            && !self.waiting_for_buffers.contains(&connection.id())
        {
            if self.waiting_for_buffers.is_empty() {
                self.given_before = self.jobs.given();
            }
            self.waiting_for_buffers.push_back(connection.id());
        }
        if connection.waits() == WaitReason::Predecessors
            && !self.waiting.contains(&connection.id())
        {
            let client = connection.id().serial;
            info!(client, "an NBD client waits until the writes of clients that have hung up end");
            self.waiting.push(connection.id());
        }
    }

    fn receive_listed(&mut self) {
        self.receive_waiting();
        for at in 0..self.listed.len() {
            self.receive(self.listed[at]);
        }
    }

    fn send_listed(&mut self) {
        for &slot in &self.listed {
            if let Some(connection) = self.connections.get_mut(slot) {
                connection.send(&mut self.jobs);
            }
        }
    }

    /// Handles the listed connections' states; those that can continue stay listed.
    fn settle_listed(&mut self, turn: &mut dyn FrontTurn) {
        let mut kept = 0;
        for at in 0..self.listed.len() {
            let slot = self.listed[at];
            if self.settle(slot, turn) {
                self.listed[kept] = slot;
                kept += 1;
            }
        }
        self.listed.truncate(kept);
    }

    fn settle(&mut self, slot: usize, turn: &mut dyn FrontTurn) -> bool {
        self.secure(slot);
        let Some(connection) = self.connections.get_mut(slot) else { return false };
        // A server that stops waits for its requests, but not for clients that do not read.
        let abandoned = turn.stopping() && connection.is_idle() && !connection.writable;
        if connection.has_ended() || abandoned {
            self.end(slot, turn);
            return false;
        }
        connection.listed = connection.can_continue(&self.jobs);
        let (Some(fd), id) = (connection.fd(), connection.id()) else { return false };
        let reads = connection.waits() == WaitReason::Input && !connection.readable;
        if reads && !std::mem::replace(&mut connection.watches_readable, true) {
            turn.watch(fd, Interest::Readable, pack(id, Interest::Readable));
        }
        let writes = connection.has_output() && !connection.writable;
        if writes && !std::mem::replace(&mut connection.watches_writable, true) {
            turn.watch(fd, Interest::Writable, pack(id, Interest::Writable));
        }
        connection.listed
    }

    fn end(&mut self, slot: usize, turn: &mut dyn FrontTurn) {
        let connection = self.connections.remove(slot);
        let id = connection.id();
        self.statuses.forget(id);
        if connection.watches_readable {
            turn.unwatch(pack(id, Interest::Readable));
        }
        if connection.watches_writable {
            turn.unwatch(pack(id, Interest::Writable));
        }
        if connection.fd().is_none()
            && let Some(securing) = &mut self.securing
        {
            securing.abandon(&self.endpoint, id);
        }
        let (client, peer) = (id.serial, connection.peer());
        match connection.closing() {
            Some(
                close @ (NbdCloseReason::PeerMisbehaved(_)
                | NbdCloseReason::NotSecured
                | NbdCloseReason::Stuck(_)),
            ) => {
                warn!(client, ?peer, address = %self.endpoint.address(), "NBD client: {close}");
            }
            Some(close) => debug!(client, ?peer, "NBD client: {close}"),
            None => {}
        }
        self.orphans.add(id, connection.end(&mut self.jobs));
        self.endpoint.remove_connections(1);
    }

    /// Arms the listener and the timers.
    fn await_more(&mut self, turn: &mut dyn FrontTurn) {
        let connections = &self.connections;
        let current = |id: ConnectionId| connections.get(id.slot).filter(|c| c.id() == id);
        self.orphans.release_waiting(|id| current(id).is_some_and(NbdConnection::is_leaving));
        let orphans = (!self.waiting.is_empty()).then(|| turn.now() + ORPHAN_RETRY);
        self.retry_at = self.jobs.retry_at(turn.now()).into_iter().chain(orphans).min();
        if turn.stopping() {
            return self.stop(turn);
        }
        self.queries.watch(turn, QUERY_KEY);
        if let Some(securing) = &mut self.securing {
            securing.mailbox.watch(turn, TLS_DONE_KEY);
        }
        if !self.listening && self.accept_at.is_none() {
            self.listening = true;
            turn.watch(self.endpoint.fd(), Interest::Readable, LISTENER_KEY);
        }
    }

    /// Answers the requests in flight, closes all connections, and ends the reactor.
    fn stop(&mut self, turn: &mut dyn FrontTurn) {
        self.accept_at = None;
        if std::mem::take(&mut self.listening) {
            turn.unwatch(LISTENER_KEY);
        }
        if !std::mem::replace(&mut self.stopping, true) {
            let slots: Vec<usize> = self.connections.iter().map(|(slot, _)| slot).collect();
            for slot in slots {
                self.connections[slot].close(NbdCloseReason::Stopping, &mut self.jobs);
                self.list(slot);
            }
        }
        if self.connections.is_empty() && self.jobs.is_idle() {
            if let Some(securing) = &mut self.securing {
                securing.mailbox.unwatch(turn, TLS_DONE_KEY);
            }
            self.queries.unwatch(turn, QUERY_KEY);
            turn.stop();
        }
    }
}

impl Front for NbdServer {
    fn turn(&mut self, turn: &mut dyn FrontTurn) {
        self.take_ready(turn);
        self.take_completions(turn);
        self.start_waiting();
        self.watch.check_if_due(turn.now(), self.endpoint.export().disk());
        // The lane gets what it can take before the sockets are read. Replies sent now free the buffers that new
        // requests need.
        self.jobs.submit(turn);
        self.send_listed();
        self.accept(turn.now());
        self.receive_listed();
        self.answer_statuses(turn);
        self.jobs.submit(turn);
        self.send_listed();
        self.expire_handshakes(turn.now());
        self.expire_stuck(turn.now());
        self.settle_listed(turn);
        self.await_more(turn);
    }

    fn deadline(&self) -> Option<Instant> {
        // Buffers may also be given back after the waiting connections were tried, when a connection ends.
        let fed = !self.waiting_for_buffers.is_empty() && self.jobs.given() > self.given_before;
        let at_once = (fed || !self.listed.is_empty()).then_some(Instant(0));
        let handshake = self.in_handshake.front().map(|&(deadline, _)| deadline);
        let statuses = self.statuses.deadline();
        let timers =
            [at_once, handshake, statuses, self.accept_at, self.retry_at, self.patient_until];
        timers.into_iter().flatten().min()
    }
}

impl Drop for NbdServer {
    fn drop(&mut self) {
        self.endpoint.remove_connections(self.connections.len() as u32);
        self.endpoint.unregister_server(self.number);
    }
}

/// Mask of serial numbers: they leave the key's top bit clear, which is set only in the keys of other watches.
const SERIAL_MASK: u32 = u32::MAX >> 1;

fn pack(id: ConnectionId, interest: Interest) -> u64 {
    let writable = u64::from(interest == Interest::Writable);
    u64::from(id.serial) << 32 | (id.slot as u64) << 1 | writable
}

fn unpack(key: u64) -> (ConnectionId, Interest) {
    let interest = if key & 1 == 1 { Interest::Writable } else { Interest::Readable };
    let slot = (key as u32 >> 1) as usize;
    (ConnectionId { slot, serial: (key >> 32) as u32 }, interest)
}

#[cfg(test)]
mod by_turns;
#[cfg(test)]
pub(crate) mod harness;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tools;
