//! TCP connection of a lane.

use super::recording::record;
use super::{LaneShared, LinkError, LinkTransport};
use crate::commands::{CommandEnd, EndedLinkCommand, LinkCommands};
use crate::counters::{MptcpSocketEntry, MptcpSockets};
use roadtrain_host_proto::qpair::{CommandTransfer, HostQpair, HostRxEvent};
use roadtrain_proto::policy::{Batcher, PolicyConfig, Urgency};
use roadtrain_proto::recorder::RequestRecord;
use roadtrain_proto::time::Instant;
use roadtrain_reactor::connection::{
    Received, ReceivedData, RemainingInput, RxBuffer, TcpConnection,
};
use roadtrain_reactor::gather::GatherWriter;
use roadtrain_reactor::metrics::Batching;
use roadtrain_reactor::recorded::ConnectionInfo;
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::status::Status;
use socket2::{SockAddr, SockRef};
use std::net::SocketAddr;
use std::os::fd::{AsFd, RawFd};
use std::sync::Arc;

/// Queue pair over a TCP connection.
pub(crate) struct TcpLink {
    /// Entry of the socket in a list; dropped before the connection.
    entry: Option<MptcpSocketEntry>,
    connection: TcpConnection,
    qpair: HostQpair,
    line: Arc<ConnectionInfo>,
}

impl TcpLink {
    pub(crate) fn new(connection: TcpConnection, qpair: HostQpair) -> Self {
        TcpLink { entry: None, connection, qpair, line: Arc::default() }
    }
}

impl TcpLink {
    /// Creates the record of the completed request of `slot`.
    #[cold]
    fn record(
        &self,
        slot: u16,
        status: Status,
        now: Instant,
        latency_ns: u64,
    ) -> RequestRecord<Arc<ConnectionInfo>> {
        let (command, timestamps) = (self.qpair.command(slot), self.qpair.timestamps(slot));
        record(&self.line, command, status, timestamps, (now, latency_ns))
    }
}

impl LinkTransport for TcpLink {
    fn room(&self) -> u32 {
        self.qpair.room()
    }

    fn in_flight(&self) -> u32 {
        self.qpair.in_flight()
    }

    fn submit(
        &mut self,
        now: Instant,
        sqe: &Sqe,
        data: CommandTransfer,
        urgency: Urgency,
    ) -> Option<u16> {
        self.qpair.submit(now, sqe, data, urgency)
    }

    fn submit_fused(
        &mut self,
        now: Instant,
        sqes: (&Sqe, &Sqe),
        bytes: u32,
        urgency: Urgency,
    ) -> Option<u16> {
        self.qpair.submit_fused(now, sqes, bytes, urgency)
    }

    fn cid(&self, slot: u16) -> u16 {
        self.qpair.cid(slot)
    }

    fn batcher(&mut self) -> &mut Batcher {
        self.qpair.batcher()
    }

    fn fd(&self) -> Option<RawFd> {
        Some(self.connection.stream.fd())
    }

    fn is_blocked(&self) -> bool {
        self.connection.is_blocked()
    }

    #[inline]
    fn is_due(&self, _now: Instant) -> bool {
        self.qpair.has_tx() && !self.connection.is_blocked()
    }

    fn end_turn(&mut self, shared: &mut LaneShared) -> Result<(), LinkError> {
        let batcher = self.qpair.batcher();
        batcher.expire(shared.now);
        batcher.drained(shared.now);
        Ok(())
    }

    fn receive<'a>(
        &mut self,
        commands: &mut impl LinkCommands,
        rx: &'a mut RxBuffer,
        limit: usize,
    ) -> Result<(ReceivedData, Option<RemainingInput<'a>>), LinkError> {
        let wanted = self.qpair.wanted();
        let place = wanted.and_then(|(slot, offset, length)| commands.place(slot, offset, length));
        // SAFETY: `place` lies in a buffer that its flight owns, and nothing else touches now.
        let received = unsafe { self.connection.receive(rx, place, limit) }?;
        match received {
            Received::Nothing => Ok((ReceivedData::default(), None)),
            Received::Closed => Err(LinkError::Closed),
            Received::Bytes { direct, buffered, more } => {
                self.connection.update_shared_core(self.qpair.batcher());
                if let Some(place) = place {
                    // SAFETY: just received there.
                    let data = unsafe { std::slice::from_raw_parts(place.data, direct) };
                    self.qpair.placed(data);
                }
                Ok((ReceivedData { any: true, more }, Some(RemainingInput::new(rx, buffered))))
            }
        }
    }

    fn parse<'a>(
        &mut self,
        commands: &mut impl LinkCommands,
        shared: &mut LaneShared,
        mut rest: RemainingInput<'a>,
        batch: usize,
    ) -> Result<Option<RemainingInput<'a>>, LinkError> {
        let (input, at) = rest.input();
        let mut completed = 0;
        // Parse no further than to the sampled request.
        let batch = batch.min(shared.recorder.until_sample(shared.now) as usize);
        let mut last = None;
        while completed < batch {
            let fill = |slot, offset, data: &[u8]| commands.fill(slot, offset, data);
            let Some(event) = self.qpair.poll_rx(shared.now, input, at, fill)? else {
                shared.recorder.ended(completed as u32);
                self.qpair.note_data(shared.now);
                self.connection.keep_remaining(rest);
                return Ok(None);
            };
            match event {
                HostRxEvent::Ready => {}
                HostRxEvent::Complete { slot, cqe, data_intact } => {
                    completed += 1;
                    let blocked = self.connection.is_blocked();
                    let end = CommandEnd { cqe, data_intact, blocked };
                    last = None;
                    let ended = commands.end(slot, &end, shared.now, &mut shared.completions);
                    let Some(EndedLinkCommand { bytes, latency_ns }) = ended else { continue };
                    self.connection.stats.requests += 1;
                    self.connection.stats.data_bytes += bytes;
                    if shared.recorder.is_slow(latency_ns) {
                        let record = self.record(slot, cqe.status(), shared.now, latency_ns);
                        shared.recorder.slow(shared.now, record);
                    }
                    last = Some((slot, cqe.status(), latency_ns));
                }
            }
        }
        if shared.recorder.ended(completed as u32) {
            match last {
                Some((slot, status, latency_ns)) if latency_ns > 0 => {
                    let record = self.record(slot, status, shared.now, latency_ns);
                    shared.recorder.sample(shared.now, record);
                }
                _ => shared.recorder.pass(shared.now),
            }
        }
        Ok(Some(rest))
    }

    fn flush(
        &mut self,
        commands: &impl LinkCommands,
        shared: &mut LaneShared,
    ) -> Result<(), LinkError> {
        while self.is_due(shared.now) {
            let place =
                |slot, offset, length| commands.data(slot, offset, length).map(<[u8]>::as_ptr);
            // SAFETY: the buffer stays with its flight, with a deferred completion, or with a request that is tried again
            // and does not leave the lane, until the caravan has left.
            let mut writer = unsafe { GatherWriter::new(&mut shared.gather, place) };
            self.qpair.set_now(shared.now);
            self.qpair.poll_tx(&mut writer);
            let requests = writer.headers;
            self.connection.stats.caravan_requests += requests;
            if shared.gather.is_empty() {
                break;
            }
            shared.cells.caravan(requests);
            self.connection.send(&mut shared.gather)?;
        }
        Ok(())
    }

    fn resume(&mut self) -> Result<(), LinkError> {
        self.connection.resume()?;
        Ok(())
    }

    fn is_ready(&self) -> bool {
        self.qpair.is_ready()
    }

    fn begin(&mut self, in_capsule_bytes: u32, policy: PolicyConfig) {
        self.qpair.set_in_capsule_bytes(in_capsule_bytes);
        self.qpair.set_policy(policy);
    }

    /// Closes the socket without a reset when it is dropped.
    fn close(&mut self) {
        self.connection.stream.linger_on_close();
    }

    /// Closes the idle connection normally. A busy one is reset, as at any other end of this process.
    fn shut_down(&mut self, _shared: &mut LaneShared) {
        if self.qpair.in_flight() == 0 && !self.is_blocked() {
            self.close();
        }
    }

    fn set_line(&mut self, line: ConnectionInfo) {
        let address = |address: std::io::Result<SockAddr>| {
            let address = address.ok()?.as_socket()?;
            Some(SocketAddr::new(address.ip().to_canonical(), address.port()).to_string())
        };
        let socket = SockRef::from(&self.connection.stream);
        let local = address(socket.local_addr()).unwrap_or_default();
        let peer = address(socket.peer_addr()).unwrap_or_default();
        self.line = Arc::new(ConnectionInfo { local, peer, ..line });
    }

    fn list_socket(&mut self, sockets: &Arc<MptcpSockets>) {
        self.entry = sockets.add(self.connection.stream.as_fd());
    }

    fn count_on(&mut self, earlier: Batching) {
        self.connection.stats += earlier;
    }

    fn batching(&self) -> Batching {
        self.connection.stats.with_doorbells(self.qpair.doorbells())
    }
}
