//! Lane over its own TCP connection.

use super::{Carry, LaneCommands};
use crate::lane::data::{LanePayload, fill, range};
use crate::lane::recording::DepartedCommand;
use crate::lane::{LaneError, LaneResources, TargetLane};
use roadtrain_proto::time::Instant;
use roadtrain_reactor::connection::{
    PayloadDestination, Received, ReceivedData, RemainingInput, RxBuffer, TcpConnection,
};
use roadtrain_reactor::gather::{GatherWriter, SendOutcome};
use roadtrain_reactor::metrics::Batching;
use roadtrain_reactor::stream::ConnectionStream;
use roadtrain_reactor::tuning::RX_BUFFER_BYTES;
use roadtrain_system::clock;
use roadtrain_system::memory::Streaming;
use roadtrain_target_proto::qpair::{TargetQpair, TargetQpairConfig, TargetRxEvent};
use roadtrain_target_proto::service::CommandOrigin;
use roadtrain_wire::pdu::CapsuleCmd;
use roadtrain_wire::sqe::opcode;
use std::net::SocketAddr;
use std::os::fd::RawFd;

/// Bytes received at once while the buffer pool is exhausted: the most that a stalled lane has to keep.
const STALLED_RX_BYTES: usize = 64 << 10;

/// Commands handled, and bytes received at once, before a latency-critical lane of this reactor gets its turn: each
/// takes about the time of a wake-up.
const YIELDING_COMMANDS: u32 = 32;
const YIELDING_RX_BYTES: usize = 192 << 10;

/// Number of commands whose data is prefetched before the first of them is handled.
///
/// The address of a block takes a walk through page tables, in a virtual machine through two: a tenth of a read's time
/// if the reactor waits for each walk. Prefetched walks overlap: 1.06 of the IOPS at depth 128 (six rounds in turns; 32
/// commands gained 1.02).
const AHEAD: usize = 128;

/// Size in bytes of a command without data.
const CAPSULE_BYTES: usize = size_of::<CapsuleCmd>();

/// With fewer bytes of whole blocks to come, a copy is cheaper than a query of the number of available bytes.
const WHOLE_BYTES_MIN: u32 = 32 << 10;

/// Queue pair and connection.
pub(in crate::lane) struct Tcp {
    connection: TcpConnection,
    pub(in crate::lane) qpair: TargetQpair,
    local: SocketAddr,
    /// True if so much waits to be sent that the lane receives nothing until the socket takes more.
    receive_paused: bool,
    /// Time at which the last caravan, or the one being sent, was filled.
    caravan: Instant,
}

impl Tcp {
    pub(in crate::lane) fn new(
        local: SocketAddr,
        stream: ConnectionStream,
        config: TargetQpairConfig,
    ) -> Self {
        let (connection, qpair) = (TcpConnection::new(stream), TargetQpair::new(config));
        Tcp { connection, qpair, local, receive_paused: false, caravan: Instant::default() }
    }

    pub(in crate::lane) fn stream(&self) -> &ConnectionStream {
        &self.connection.stream
    }

    /// Returns the part of the next blocks that the socket can receive directly into a namespace: blocks that are
    /// completely available, if they are large enough to justify the query.
    fn wanted_whole(&self) -> Option<(u16, u32, u32)> {
        // The tag of a TLS record is checked only after a part of it is in place.
        if self.qpair.whole_left() < WHOLE_BYTES_MIN || !self.stream().is_plain() {
            return None;
        }
        self.qpair.wanted_whole(self.connection.available())
    }

    fn sent(&mut self, (execution, meter): LaneCommands<'_>, shared: &mut LaneResources) {
        let now = clock::now(); // once for each caravan
        let departing = self.qpair.departing().len() as u32;
        if departing < shared.recorder.until_sample(now) {
            shared.recorder.ended(departing);
        } else {
            self.sample(now, (execution, meter), shared);
        }
        let LaneResources { pool, meters, number, recorder, .. } = shared;
        let slow_before = recorder.slow_before(now);
        let caravan = self.caravan;
        self.qpair.sent(|slot, cid, answered| {
            self.connection.stats.requests += 1;
            if meter.end((meters, *number), (now, slow_before), slot) {
                let departed = DepartedCommand { slot, cid, answered, caravan, sent: now };
                departed.record((execution, meter), recorder, false);
            }
            execution.release(slot, |buffer| pool.give(buffer));
        });
    }

    /// Records the commands in the caravan that are due as samples.
    #[cold]
    fn sample(
        &self,
        now: Instant,
        (execution, meter): LaneCommands<'_>,
        shared: &mut LaneResources,
    ) {
        let recorder = &mut shared.recorder;
        for &slot in self.qpair.departing() {
            if !recorder.ended(1) {
                continue;
            }
            let (cid, answered) = (self.qpair.cid(slot), self.qpair.answered(slot));
            let departed =
                DepartedCommand { slot, cid, answered, caravan: self.caravan, sent: now };
            departed.record((execution, meter), recorder, true);
        }
    }
}

impl Carry for Tcp {
    fn request_data(&mut self, now: Instant, slot: u16, bytes: u32) {
        self.qpair.request_data(now, slot, bytes);
    }

    fn unanswered(&mut self, cid: u16) -> Option<(u16, bool)> {
        self.qpair.unanswered(cid)
    }

    fn awaits_data(&mut self, slot: u16) -> bool {
        self.qpair.awaits_data(slot)
    }

    fn ring_due(&mut self, now: Instant) {
        self.qpair.batcher().expire(now);
    }

    fn deadline(&mut self) -> Option<Instant> {
        self.qpair.batcher().deadline()
    }

    fn batching(&self) -> Batching {
        self.connection.stats.with_doorbells(self.qpair.doorbells())
    }

    /// Sends while the socket accepts data.
    fn flush(
        &mut self,
        (execution, meter): LaneCommands<'_>,
        shared: &mut LaneResources,
    ) -> Result<(), LaneError> {
        while !self.connection.is_blocked() && self.qpair.has_tx() {
            let place = |slot, offset, length| {
                let start = range(execution.data_mut(slot), offset, length);
                debug_assert!(start.is_some(), "a response without its data");
                start.map(<*mut u8>::cast_const)
            };
            // SAFETY: the slot keeps its data until `TargetQpair::sent`; `range` checked the bounds. In-place data is never
            // sent with a digest.
            let mut writer = unsafe { GatherWriter::new(&mut shared.gather, place) };
            self.qpair.poll_tx(&mut writer);
            self.caravan = shared.now;
            let requests = writer.headers;
            self.connection.stats.caravan_requests += requests;
            if shared.gather.is_empty() {
                break;
            }
            shared.meters.reactor(shared.number).caravan(requests);
            if self.connection.send(&mut shared.gather)? == SendOutcome::All {
                self.sent((execution, meter), shared);
            }
        }
        Ok(())
    }

    fn hang_up(&mut self, _commands: LaneCommands<'_>, _shared: &mut LaneResources) {
        self.connection.close();
    }

    fn ends_at_once(&mut self, _now: Instant) -> bool {
        true
    }

    fn tcp(&mut self) -> Option<&mut Tcp> {
        Some(self)
    }

    fn port(&self, since: Instant) -> CommandOrigin<RawFd> {
        CommandOrigin { local: self.local, connection: self.fd(), since }
    }

    fn fd(&self) -> Option<RawFd> {
        Some(self.connection.stream.fd())
    }

    fn has_data_digest(&self) -> bool {
        self.qpair.digests().data
    }

    fn is_hung_up(&self) -> bool {
        self.connection.stream.is_hung_up()
    }

    fn is_blocked(&self) -> bool {
        self.connection.is_blocked()
    }

    fn is_receive_paused(&self) -> bool {
        self.receive_paused
    }

    fn deliver_whole(&mut self, slot: u16, block_bytes: u32) {
        self.qpair.deliver_whole(slot, block_bytes);
    }

    fn reset_on_close(&self) {
        self.connection.stream.reset_on_close();
    }
}

impl TargetLane {
    /// Receives once and handles everything that arrived.
    pub(crate) fn receive(
        &mut self,
        shared: &mut LaneResources,
        rx: &mut RxBuffer,
    ) -> Result<ReceivedData, LaneError> {
        self.transport.set_yielding(false);
        let (activity, rest) = self.receive_up_to(shared.unsent_max, rx, RX_BUFFER_BYTES)?;
        if let Some(rest) = rest {
            self.handle_all(shared, rest)?;
        }
        Ok(activity)
    }

    /// Receives once and handles the first commands. [`TargetLane::resume_parsing`] handles the rest after
    /// latency-critical lanes have had their turn.
    pub(crate) fn receive_yielding<'a>(
        &mut self,
        shared: &mut LaneResources,
        rx: &'a mut RxBuffer,
    ) -> Result<(ReceivedData, Option<RemainingInput<'a>>), LaneError> {
        self.transport.set_yielding(true);
        let (activity, rest) = self.receive_up_to(shared.unsent_max, rx, YIELDING_RX_BYTES)?;
        let rest = rest.map(|rest| self.resume_parsing(shared, rest)).transpose()?;
        Ok((activity, rest.flatten()))
    }

    /// Handles the next commands of a receive. Returns the rest.
    pub(crate) fn resume_parsing<'a>(
        &mut self,
        shared: &mut LaneResources,
        rest: RemainingInput<'a>,
    ) -> Result<Option<RemainingInput<'a>>, LaneError> {
        self.parse(shared, rest, YIELDING_COMMANDS)
    }

    fn receive_up_to<'a>(
        &mut self,
        unsent_max: usize,
        rx: &'a mut RxBuffer,
        limit: usize,
    ) -> Result<(ReceivedData, Option<RemainingInput<'a>>), LaneError> {
        let Some(tcp) = self.transport.tcp() else { return Ok((ReceivedData::default(), None)) };
        tcp.receive_paused = self.execution.unsent() >= unsent_max && tcp.connection.is_blocked();
        if self.execution.is_stalled() || tcp.receive_paused {
            return Ok((ReceivedData::default(), None));
        }
        let whole = tcp.wanted_whole();
        let place = tcp.qpair.wanted().or(whole).and_then(|(slot, offset, length)| {
            let data = range(self.execution.data_mut(slot), offset, length)?;
            Some(PayloadDestination { data, length: length as usize })
        });
        let limit = if self.execution.lacks_buffers() { STALLED_RX_BYTES } else { limit };
        // SAFETY: `place` is in the command's own buffer, or in a namespace. The content of its blocks is undefined
        // while a write to them is in flight, and the blocks arrive completely.
        let received = unsafe { tcp.connection.receive(rx, place, limit) }?;
        match received {
            Received::Nothing => Ok((ReceivedData::default(), None)),
            Received::Closed => Err(LaneError::Closed),
            Received::Bytes { direct, buffered, more } => {
                tcp.connection.update_shared_core(tcp.qpair.batcher());
                if let Some(place) = place {
                    // SAFETY: these bytes were just received.
                    let data = unsafe { std::slice::from_raw_parts(place.data, direct) };
                    tcp.qpair.placed(data);
                    if whole.is_some() && direct < place.length {
                        return Err(LaneError::Ended(
                            "the socket delivered fewer bytes than it had announced",
                        ));
                    }
                }
                Ok((ReceivedData { any: true, more }, Some(RemainingInput::new(rx, buffered))))
            }
        }
    }

    /// Handles the received data as far as possible.
    fn handle_all(
        &mut self,
        shared: &mut LaneResources,
        rest: RemainingInput<'_>,
    ) -> Result<(), LaneError> {
        let left = self.parse(shared, rest, u32::MAX)?;
        debug_assert!(left.is_none(), "so many commands fit no receive buffer");
        Ok(())
    }

    /// Handles the received data up to its end (returns `None`) or up to `commands_max` commands (returns the rest).
    fn parse<'a>(
        &mut self,
        shared: &mut LaneResources,
        mut rest: RemainingInput<'a>,
        commands_max: u32,
    ) -> Result<Option<RemainingInput<'a>>, LaneError> {
        let mut commands = 0;
        let mut prefetched = 0;
        let mut streaming = Streaming::default();
        let (input, at) = rest.input();
        loop {
            if commands >= prefetched {
                prefetched += AHEAD as u32;
                self.prefetch_reads(&input[*at..], AHEAD.min(commands_max as usize));
            }
            let Some(tcp) = self.transport.tcp() else { return Ok(None) };
            if self.execution.is_stalled() {
                break;
            }
            if commands == commands_max {
                return Ok(Some(rest));
            }
            let place = |slot, offset, data: &[u8]| {
                fill(self.execution.data_mut(slot), offset, data, &mut streaming);
            };
            let Some(event) = tcp.qpair.poll_rx(shared.now, input, at, place)? else { break };
            match event {
                TargetRxEvent::Initialized => self.session.initialized(),
                TargetRxEvent::Command { slot, sqe, in_capsule_bytes } => {
                    commands += 1;
                    let payload = match in_capsule_bytes {
                        0 => LanePayload::OnRequest,
                        bytes => LanePayload::Follows(bytes),
                    };
                    self.handle_command(shared, slot, sqe, payload)?;
                }
                TargetRxEvent::SplitBlock { slot, offset } => {
                    let (execution, mut env) = self.parts(shared);
                    execution.split_block(&mut env, slot, offset);
                }
                TargetRxEvent::DataDone { slot, intact } => {
                    if !intact {
                        shared.meters.reactor(shared.number).digest_errors.add(1);
                    }
                    let (execution, mut env) = self.parts(shared);
                    let admin = execution.data_done(&mut env, slot, intact);
                    self.run_admin(shared, admin)?;
                }
            }
            let Some(tcp) = self.transport.tcp() else { return Ok(None) };
            if tcp.qpair.has_tx() {
                streaming.fence();
                tcp.flush((&mut self.execution, &mut self.meter), shared)?;
            }
        }
        if let Some(tcp) = self.transport.tcp() {
            tcp.connection.keep_remaining(rest);
        }
        Ok(None)
    }

    /// Prefetches the blocks of reads among the next commands.
    fn prefetch_reads(&mut self, input: &[u8], commands: usize) {
        if input.len() < 2 * CAPSULE_BYTES {
            return; // the first is handled next
        }
        let TargetLane { transport, namespaces, .. } = self;
        let Some(tcp) = transport.tcp() else { return };
        let mut ahead = tcp.qpair.ahead(input).take(commands).peekable();
        // Writes are mostly followed by writes, and are far apart.
        if ahead.peek().is_none_or(|first| first.opcode != opcode::READ) {
            return;
        }
        for read in ahead.filter(|sqe| sqe.opcode == opcode::READ) {
            if let Some(namespace) = namespaces.peek(read.nsid.get()) {
                namespace.prefetch_ahead(read);
            }
        }
    }

    /// Continues after a stall with the data that was received before.
    pub(in crate::lane) fn receive_kept(
        &mut self,
        shared: &mut LaneResources,
        rx: &mut RxBuffer,
    ) -> Result<(), LaneError> {
        let Some(tcp) = self.transport.tcp() else { return Ok(()) };
        let end = rx.fill(&tcp.connection.take_kept());
        self.handle_all(shared, RemainingInput::new(rx, end))
    }

    /// Continues sending: the socket is writable again.
    pub(crate) fn writable(&mut self, shared: &mut LaneResources) -> Result<(), LaneError> {
        let Some(tcp) = self.transport.tcp() else { return Ok(()) };
        tcp.receive_paused = false; // until the next receive
        if tcp.connection.resume()? == SendOutcome::All {
            tcp.sent((&mut self.execution, &mut self.meter), shared);
        }
        tcp.flush((&mut self.execution, &mut self.meter), shared)
    }
}
