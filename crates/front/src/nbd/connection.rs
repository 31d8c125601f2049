//! One client's connection: its socket, received data and replies.

use super::connection_id::ConnectionId;
use super::export::NbdExport;
use super::orphan_writes::Predecessors;
use super::reply_queue::ReplyQueue;
use super::session::{NbdCloseReason, NbdEvent, NbdSession};
use super::translate::{disk_request, errno_of};
use crate::disk::{DiskFault, DiskOp, JobKey, PartKey, Started};
use roadtrain_reactor::clients::{ClientStream, Incoming};
use roadtrain_wire::nbd::{self, Command, PAYLOAD_BYTES_MAX};
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::Arc;
use tracing::{debug, info};

/// Bytes that one receive may bring besides the payload that goes straight to its buffer.
const INBOX_BYTES: usize = 128 << 10;
/// Most receives of a turn; a client that sends faster waits for the others.
const RECEIVES_MAX: u32 = 4;
/// Segments of one gather send: the replies of a deep queue, a header and data each.
const GATHER_MAX: usize = 256;
/// Unsent bytes of headers at which the client counts as not reading: no more is taken from it.
const HEADER_BYTES_MAX: usize = 64 << 10;
/// Most requests in flight.
const JOBS_MAX: u32 = 1024;
/// Most block status requests among them.
const STATUSES_MAX: u32 = 16;
/// Bytes of buffers held at a time. One request of the largest size always gets its buffers, widened by a block at both
/// ends.
const HELD_BYTES_MAX: usize = PAYLOAD_BYTES_MAX as usize;

/// Connection and request to which a job's reply belongs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NbdMark {
    pub(crate) id: ConnectionId,
    cookie: u64,
}

/// The jobs of a server's connections.
pub(crate) type NbdJobs = crate::disk::DiskJobs<NbdMark>;

/// Destination of the payload of an incomplete Write.
#[derive(Clone, Copy, Debug)]
struct PartialWrite {
    job: JobKey,
    part: PartKey,
    filled: usize,
}

/// Event for which a connection waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitReason {
    /// Data from the client.
    Input,
    /// Its own replies to be sent, or its own requests to end.
    Itself,
    /// Buffers, which any connection may give back.
    Buffers,
    /// Writes of clients that had hung up when it connected.
    Predecessors,
    /// TLS: the socket is not read until the TLS threads have finished the handshake.
    Tls,
    /// The end: the socket is not read any more.
    End,
}

/// A client that has connected.
#[derive(Debug)]
pub(crate) struct NewClient {
    pub(crate) stream: ClientStream,
    /// Peer address, over TCP.
    pub(crate) peer: Option<SocketAddr>,
}

/// A client.
#[derive(Debug)]
pub(crate) struct NbdConnection {
    /// Socket; `None` while the TLS threads have it.
    stream: Option<ClientStream>,
    peer: Option<SocketAddr>,
    id: ConnectionId,
    session: NbdSession,
    replies: ReplyQueue,
    inbox: Box<[u8]>,
    /// Range of `inbox` that is not used yet: from, to.
    unused: (usize, usize),
    payload: Option<PartialWrite>,
    /// Request that waits for buffers.
    stalled: Option<nbd::NbdRequest>,
    closing: Option<NbdCloseReason>,
    lost: bool,
    /// True if the client sends no more, though some of its data may be unread.
    hung_up: bool,
    /// Clients for whose writes the first request waits.
    predecessors: Option<Predecessors>,
    waits: WaitReason,
    /// Requests in flight.
    jobs: u32,
    /// Those of them that change the disk, ...
    writes: u32,
    /// ... those for block status, ...
    statuses: u32,
    /// ... and those that the server has not taken.
    new_statuses: Vec<nbd::NbdRequest>,
    /// Bytes of buffers in jobs and in the reply queue.
    held_bytes: usize,
    /// Bytes of payload and of replies that have moved.
    moved: u64,
    /// Value of `moved` when the server noted that it waits for the client.
    moved_before: Option<u64>,
    /// True if the socket may have data to read.
    pub(crate) readable: bool,
    /// True if the socket takes more data.
    pub(crate) writable: bool,
    pub(crate) watches_readable: bool,
    pub(crate) watches_writable: bool,
    /// True if it is in the server's list for this turn.
    pub(crate) listed: bool,
}

impl NbdConnection {
    pub(crate) fn new(
        client: NewClient,
        id: ConnectionId,
        export: Arc<NbdExport>,
        requires_tls: bool,
        predecessors: Predecessors,
    ) -> Self {
        let mut replies = ReplyQueue::default();
        let session = NbdSession::new(export, requires_tls, &mut replies);
        NbdConnection {
            stream: Some(client.stream),
            peer: client.peer,
            id,
            session,
            replies,
            inbox: vec![0; INBOX_BYTES].into_boxed_slice(),
            unused: (0, 0),
            payload: None,
            stalled: None,
            closing: None,
            lost: false,
            hung_up: false,
            predecessors: Some(predecessors),
            waits: WaitReason::Input,
            jobs: 0,
            writes: 0,
            statuses: 0,
            new_statuses: Vec::new(),
            held_bytes: 0,
            moved: 0,
            moved_before: None,
            readable: true,
            writable: true,
            watches_readable: false,
            watches_writable: false,
            listed: false,
        }
    }

    pub(crate) fn id(&self) -> ConnectionId {
        self.id
    }

    /// Returns the peer address, over TCP.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// Returns the socket's descriptor; `None` while the TLS threads have it.
    pub(crate) fn fd(&self) -> Option<RawFd> {
        self.stream.as_ref().map(ClientStream::fd)
    }

    /// Takes out the stream and the peer address for the TLS handshake, once the client got the reply to STARTTLS.
    pub(crate) fn take_for_tls(&mut self) -> Option<(ClientStream, SocketAddr)> {
        if self.waits != WaitReason::Tls || self.has_output() || self.closing.is_some() || self.lost
        {
            return None;
        }
        Some((self.stream.take()?, self.peer?))
    }

    /// Continues with `stream` after the TLS handshake, or ends if that failed.
    pub(crate) fn secured(&mut self, stream: Option<ClientStream>) {
        match stream {
            Some(stream) => {
                self.stream = Some(stream);
                self.session.secured();
                (self.readable, self.writable, self.waits) = (true, true, WaitReason::Input);
            }
            None => {
                self.closing.get_or_insert(NbdCloseReason::TlsFailed);
                self.lost = true;
            }
        }
    }

    /// Stops reading; requests in flight are still answered.
    pub(crate) fn close(&mut self, close: NbdCloseReason, jobs: &mut NbdJobs) {
        self.closing.get_or_insert(close);
        self.stalled = None;
        if let Some(payload) = self.payload.take()
            && let Some(job) = jobs.payload_lost(payload.job, payload.part)
        {
            self.end_job(job, jobs);
        }
    }

    /// Notes that the client has hung up while another one connected: requests that cannot start soon never do.
    pub(crate) fn note_hang_up(&mut self) {
        (self.hung_up, self.readable) = (true, true);
    }

    /// True if the client has left, but its requests may still change the disk.
    pub(crate) fn is_leaving(&self) -> bool {
        let is_read = self.hung_up && self.closing.is_none() && !self.lost;
        is_read || (self.closing.is_some() || self.lost) && self.writes > 0
    }

    /// True if its first request has to wait for other clients' writes.
    fn must_wait(&mut self) -> bool {
        self.predecessors.take_if(|predecessors| predecessors.have_ended());
        self.predecessors.is_some() && self.session.in_transmission()
    }

    /// True if it has not finished its handshake.
    pub(crate) fn is_in_handshake(&self) -> bool {
        !self.lost && self.closing.is_none() && !self.session.in_transmission()
    }

    /// True if it holds buffers until the client sends or receives data.
    fn awaits_client(&self) -> bool {
        let awaits = self.payload.is_some() || self.has_output() && !self.writable;
        awaits && self.held_bytes > 0 && !self.lost
    }

    /// Notes the client's progress, if the server waits for it.
    pub(crate) fn note_moved(&mut self) {
        self.moved_before = self.awaits_client().then_some(self.moved);
    }

    /// True if the client has made no progress since then.
    pub(crate) fn is_stuck(&self) -> bool {
        self.awaits_client() && self.moved_before == Some(self.moved)
    }

    /// Abandons the client: unsent replies are dropped.
    pub(crate) fn abandon(&mut self, close: NbdCloseReason) {
        self.closing.get_or_insert(close);
        self.lost = true;
    }

    /// True if it has ended: lost, or closed and answered.
    pub(crate) fn has_ended(&self) -> bool {
        self.lost || self.closing.is_some() && self.jobs == 0 && !self.has_output()
    }

    /// Returns the reason of its end.
    pub(crate) fn closing(&self) -> Option<NbdCloseReason> {
        self.closing
    }

    /// True if all requests are answered, though some replies may be unsent.
    pub(crate) fn is_idle(&self) -> bool {
        self.jobs == 0
    }

    pub(crate) fn waits(&self) -> WaitReason {
        self.waits
    }

    /// True if [`NbdConnection::receive`] would make progress without an event of the reactor.
    pub(crate) fn can_continue(&self, jobs: &NbdJobs) -> bool {
        match self.waits {
            WaitReason::Input => self.readable,
            WaitReason::Itself => {
                !self.is_full(jobs) && self.stalled.is_none_or(|request| self.may_hold(&request))
            }
            WaitReason::Predecessors => {
                self.predecessors.as_ref().is_none_or(Predecessors::have_ended)
            }
            WaitReason::Buffers | WaitReason::Tls | WaitReason::End => false,
        }
    }

    /// Records that the transport is lost: requests in flight are not answered.
    fn lose(&mut self, error: &io::Error) {
        debug!(client = self.id.serial, %error, "connection to an NBD client lost");
        self.log_requests();
        self.lost = true;
    }

    /// Logs the requests of a client that has left, in order or not: they may still be executed.
    fn log_requests(&self) {
        let (client, requests) = (self.id.serial, self.jobs);
        if requests > 0 && self.closing.is_none() && !self.lost {
            let peer = self.peer();
            info!(client, ?peer, requests, "an NBD client has left before its requests ended");
        }
    }

    /// Reads and starts requests as far as possible. `may_take_buffers`: no other connection waits for them.
    pub(crate) fn receive(&mut self, jobs: &mut NbdJobs, may_take_buffers: bool) {
        self.waits = self.receive_until(jobs, may_take_buffers);
        if self.hung_up && !matches!(self.waits, WaitReason::Input | WaitReason::End) {
            self.close(NbdCloseReason::Disconnect, jobs);
            self.waits = WaitReason::End;
        }
    }

    fn receive_until(&mut self, jobs: &mut NbdJobs, may_take_buffers: bool) -> WaitReason {
        let mut receives = 0;
        loop {
            let waits = self.use_input(jobs, may_take_buffers);
            if waits != WaitReason::Input || !self.readable || receives == RECEIVES_MAX {
                return waits;
            }
            receives += 1;
            match self.fill(jobs) {
                Ok(true) => {}
                // The client hung up. Its earlier requests are carried out and answered.
                Ok(false) => {
                    self.log_requests();
                    self.close(NbdCloseReason::Disconnect, jobs);
                }
                Err(error) => self.lose(&error),
            }
        }
    }

    /// Receives once, payload to its buffer and the rest to the inbox. Returns `false` at the end of the stream.
    fn fill(&mut self, jobs: &mut NbdJobs) -> io::Result<bool> {
        self.make_room();
        let (_, end) = self.unused;
        let payload: &mut [u8] = match self.payload {
            // The inbox is used up whenever payload is missing, so the order is kept.
            Some(payload) => &mut jobs.payload(payload.part)[payload.filled..],
            None => &mut [],
        };
        let wanted = payload.len();
        let rest = &mut self.inbox[end..];
        let capacity = wanted + rest.len();
        let mut slices = [IoSliceMut::new(payload), IoSliceMut::new(rest)];
        let skip_empty = usize::from(wanted == 0);
        let Some(stream) = &mut self.stream else { return Ok(true) };
        let count = match stream.receive(&mut slices[skip_empty..])? {
            Incoming::Bytes(count) => count,
            // TLS records without data count as no data.
            Incoming::Nothing => 0,
            Incoming::Closed => return Ok(false),
        };
        // A short receive has emptied the socket: another one would only return that.
        self.readable = stream.is_full(count, capacity);
        if let Some(payload) = &mut self.payload {
            payload.filled += count.min(wanted);
            self.moved += count.min(wanted) as u64;
        }
        self.unused.1 += count.saturating_sub(wanted);
        Ok(true)
    }

    /// Moves the unused data to the front of the inbox, which then has room for any message.
    fn make_room(&mut self) {
        let (start, end) = self.unused;
        if start > 0 {
            self.inbox.copy_within(start..end, 0);
            self.unused = (0, end - start);
        }
    }

    /// Processes the received data.
    fn use_input(&mut self, jobs: &mut NbdJobs, may_take_buffers: bool) -> WaitReason {
        loop {
            if self.closing.is_some() || self.lost {
                return WaitReason::End;
            }
            if self.stream.is_none() || self.waits == WaitReason::Tls {
                return WaitReason::Tls;
            }
            if self.payload.is_some() {
                if !self.use_payload(jobs) {
                    return WaitReason::Input;
                }
                continue;
            }
            if self.predecessors.is_some() && self.must_wait() {
                return WaitReason::Predecessors;
            }
            if self.is_full(jobs) {
                return WaitReason::Itself;
            }
            let request = match self.stalled.take() {
                Some(request) => request,
                None => match self.next_message(jobs) {
                    Some(NbdEvent::Request(request)) => request,
                    Some(NbdEvent::BlockStatus(request)) => {
                        self.begin_status(request);
                        continue;
                    }
                    Some(NbdEvent::StartTls) => return WaitReason::Tls,
                    Some(_) => continue,
                    None => return WaitReason::Input,
                },
            };
            if let Some(waits) = self.start(request, jobs, may_take_buffers) {
                return waits;
            }
        }
    }

    /// True if the client must wait for its own earlier requests.
    fn is_full(&self, jobs: &NbdJobs) -> bool {
        self.replies.header_bytes() >= HEADER_BYTES_MAX
            || self.jobs >= JOBS_MAX
            || self.statuses >= STATUSES_MAX
            || self.held_bytes >= HELD_BYTES_MAX
            || self.jobs > 0 && jobs.is_congested()
    }

    /// Returns the next message of the inbox; `None` if it holds no whole one.
    fn next_message(&mut self, jobs: &mut NbdJobs) -> Option<NbdEvent> {
        let (start, end) = self.unused;
        if start == end {
            return None;
        }
        let (used, event) = self.session.handle(&self.inbox[start..end], &mut self.replies);
        self.unused.0 += used;
        match event {
            NbdEvent::More => None,
            NbdEvent::Close(close) => {
                self.close(close, jobs);
                Some(event)
            }
            _ => Some(event),
        }
    }

    /// Starts a request; returns the event that it waits for if that is not possible now.
    fn start(
        &mut self,
        request: nbd::NbdRequest,
        jobs: &mut NbdJobs,
        may_take_buffers: bool,
    ) -> Option<WaitReason> {
        if !self.may_hold(&request) {
            self.stalled = Some(request);
            return Some(WaitReason::Itself);
        }
        // Requests without data may overtake: they hold no more than two patched blocks.
        let started = if may_take_buffers || !has_data(&request) {
            let mark = NbdMark { id: self.id, cookie: request.cookie };
            jobs.start(mark, self.id.serial as usize, disk_request(&request))
        } else {
            Started::NoBuffers
        };
        let job = match started {
            Started::NoBuffers => {
                self.stalled = Some(request);
                return Some(WaitReason::Buffers);
            }
            Started::Done => {
                self.session.reply_done(request.cookie, &mut self.replies);
                return None;
            }
            Started::Running(job) => job,
            Started::Payload(job, part) => {
                self.payload = Some(PartialWrite { job, part, filled: 0 });
                job
            }
        };
        self.jobs += 1;
        self.writes += u32::from(jobs.job(job).request.op.writes());
        self.held_bytes += jobs.job(job).held_bytes;
        None
    }

    /// True if the client may have buffers for this request in addition to those it has.
    fn may_hold(&self, request: &nbd::NbdRequest) -> bool {
        !has_data(request)
            || self.held_bytes == 0
            || self.held_bytes + request.length as usize <= HELD_BYTES_MAX
    }

    /// Moves payload from the inbox to its buffers. Returns `false` if more must be received.
    fn use_payload(&mut self, jobs: &mut NbdJobs) -> bool {
        while let Some(payload) = &mut self.payload {
            let (start, end) = self.unused;
            let window = jobs.payload(payload.part);
            let count = (window.len() - payload.filled).min(end - start);
            window[payload.filled..][..count].copy_from_slice(&self.inbox[start..start + count]);
            payload.filled += count;
            self.moved += count as u64;
            self.unused.0 += count;
            if payload.filled < window.len() {
                return false;
            }
            let job = payload.job;
            let next = jobs.payload_filled(payload.part);
            self.payload = next.map(|part| PartialWrite { job, part, filled: 0 });
        }
        true
    }

    /// Answers a finished job and removes it.
    pub(crate) fn end_job(&mut self, key: JobKey, jobs: &mut NbdJobs) {
        let job = jobs.job(key);
        let (cookie, request) = (job.mark.cookie, job.request);
        let (status, held_bytes) = (job.status, job.held_bytes);
        self.jobs -= 1;
        self.writes -= u32::from(request.op.writes());
        if !status.is_success() {
            let errno = errno_of(DiskFault::of(status, request.op));
            self.session.reply_error(cookie, errno, &status.to_string(), &mut self.replies);
        } else if request.op == DiskOp::Read {
            let (session, replies) = (&self.session, &mut self.replies);
            session.reply_data(cookie, request.offset, request.length, replies);
            // Its buffers stay with the connection until they are sent.
            return jobs.remove(key, |buffer, range| {
                replies.push_data(buffer, range);
                None
            });
        } else {
            self.session.reply_done(cookie, &mut self.replies);
        }
        self.held_bytes -= held_bytes;
        jobs.remove(key, |buffer, _| Some(buffer));
    }

    fn begin_status(&mut self, request: nbd::NbdRequest) {
        (self.jobs, self.statuses) = (self.jobs + 1, self.statuses + 1);
        self.new_statuses.push(request);
    }

    /// Takes the new requests for block status.
    pub(crate) fn take_statuses(&mut self) -> Vec<nbd::NbdRequest> {
        std::mem::take(&mut self.new_statuses)
    }

    /// True if block status needs the target's allocated blocks.
    pub(crate) fn has_allocation(&self) -> bool {
        self.session.has_allocation()
    }

    /// Answers a request for block status.
    pub(crate) fn end_status(&mut self, request: &nbd::NbdRequest, allocated: &[nbd::NbdExtent]) {
        (self.jobs, self.statuses) = (self.jobs - 1, self.statuses - 1);
        self.session.reply_block_status(request, allocated, &mut self.replies);
    }

    /// Sends pending replies, as far as the socket takes them.
    pub(crate) fn send(&mut self, jobs: &mut NbdJobs) {
        while self.writable && self.has_output() && !self.lost {
            let Some(stream) = &mut self.stream else { return };
            let mut slices = [IoSlice::new(&[]); GATHER_MAX];
            let sent = match self.replies.gather(&mut slices) {
                0 => stream.drain().map(|drained| drained.then_some(0)),
                filled => stream.send(&slices[..filled]),
            };
            match sent {
                Ok(Some(count)) => {
                    self.moved += count as u64;
                    let held_bytes = &mut self.held_bytes;
                    self.replies.advance(count, |buffer| {
                        *held_bytes -= buffer.capacity();
                        jobs.give(buffer);
                    });
                }
                Ok(None) => self.writable = false,
                Err(error) => self.lose(&error),
            }
        }
    }

    /// True if replies wait to be sent.
    pub(crate) fn has_output(&self) -> bool {
        !self.replies.is_empty() || self.stream.as_ref().is_some_and(ClientStream::has_unsent)
    }

    /// Ends the connection now. Its requests in the lane end without it; returns the number of writes among them.
    pub(crate) fn end(mut self, jobs: &mut NbdJobs) -> u32 {
        self.close(NbdCloseReason::Disconnect, jobs);
        if self.jobs > 0 {
            let id = self.id;
            self.writes -= jobs.drop_waiting(|mark| mark.id == id);
        }
        self.replies.clear(|buffer| jobs.give(buffer));
        if let Some(stream) = self.stream.filter(|stream| !stream.is_plain() && !self.lost) {
            stream.end();
        }
        self.writes
    }
}

fn has_data(request: &nbd::NbdRequest) -> bool {
    matches!(request.command, Command::READ | Command::WRITE)
}
