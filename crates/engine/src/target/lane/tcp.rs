//! A lane over a TCP connection of its own.

use super::payload::Payload;
use super::transport::Carry;
use super::{Lane, LaneError, Shared};
use crate::buffer::Pool;
use crate::connection::{Connection, Heard, Place, Received, Rest, RxBuffer};
use crate::digest;
use crate::gather::{Gather, Sent};
use crate::stats::LaneStats;
use crate::stream::Stream;
use crate::target::control::Port;
use crate::target::slot::{Slot, Work};
use crate::tuning::RX_BUFFER_BYTES;
use roadtrain_proto::caravan::Caravan;
use roadtrain_proto::policy::{Batcher, Class};
use roadtrain_proto::target::qpair::{Config, Qpair, RxEvent};
use roadtrain_proto::target::session::State;
use roadtrain_proto::time::Instant;
use roadtrain_wire::status::Status;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::task::Poll;

/// Octets received at once while the buffer pool is exhausted: what a stalled lane may have to keep.
const STALLED_RX_BYTES: usize = 64 << 10;

/// Commands handled, and octets received at once, before a latency-critical lane of this reactor gets its turn:
/// each takes about the time of a wake-up.
const YIELDING_COMMANDS: u32 = 32;
const YIELDING_RX_BYTES: usize = 192 << 10;

/// With fewer octets of whole blocks to come it is cheaper to copy them than to ask how many are there.
const WHOLE_BYTES_MIN: u32 = 32 << 10;

/// Queue pair and connection.
pub(super) struct Tcp {
    connection: Connection,
    qpair: Qpair,
    local: SocketAddr,
    /// In-capsule data has arrived for a command that waits for a buffer, since when: nothing is parsed meanwhile.
    stalled: Option<Instant>,
    /// How long it was so before.
    stalled_ns: u64,
    /// Octets in buffers that wait to be sent.
    unsent: usize,
    /// So many that nothing is received before the socket takes more.
    deaf: bool,
}

struct Filler<'a> {
    gather: &'a mut Gather,
    slots: &'a mut [Slot],
    responses: u64,
}

impl Caravan for Filler<'_> {
    fn has_room(&self) -> bool {
        self.gather.has_room()
    }

    fn header(&mut self, length: usize) -> &mut [u8] {
        self.responses += 1;
        self.gather.header(length)
    }

    fn payload(&mut self, slot: u16, offset: u32, length: u32, digest: bool) {
        let start = self.slots[usize::from(slot)].data.range(offset, length);
        let Some(start) = start else {
            debug_assert!(false, "a response without its data");
            return;
        };
        // SAFETY: the slot keeps its data until `Qpair::sent`; `range` checked the bounds.
        unsafe { self.gather.payload(start, length as usize) };
        if digest {
            // SAFETY: as above. Staged data: in-place data is never sent with a digest.
            let data = unsafe { std::slice::from_raw_parts(start, length as usize) };
            self.gather.header(4).copy_from_slice(&digest::crc32c(data).to_le_bytes());
        }
    }
}

impl Tcp {
    pub(super) fn new(local: SocketAddr, stream: Stream, config: Config) -> Self {
        Tcp {
            connection: Connection::new(stream),
            qpair: Qpair::new(config),
            local,
            stalled: None,
            stalled_ns: 0,
            unsent: 0,
            deaf: false,
        }
    }

    /// What of the blocks that come next can be received straight into a namespace: those that are there as a whole,
    /// if they are many enough to be worth the question.
    fn wanted_whole(&self) -> Option<(u16, u32, u32)> {
        if self.qpair.whole_left() < WHOLE_BYTES_MIN {
            return None;
        }
        self.qpair.wanted_whole(self.connection.available())
    }

    fn sent(&mut self, slots: &mut [Slot], pool: &mut Pool) {
        let (stats, unsent) = (&mut self.connection.stats, &mut self.unsent);
        self.qpair.sent(|number| {
            stats.requests += 1;
            let slot = &mut slots[usize::from(number)];
            *unsent -= slot.unsent_bytes as usize;
            slot.release(pool);
        });
    }
}

impl Carry for Tcp {
    fn respond(&mut self, now: Instant, slot: u16, status: Status, result: u64) {
        self.qpair.respond(now, slot, status, result);
    }

    fn respond_with_data(&mut self, now: Instant, slot: u16, bytes: u32, result: u64) {
        self.qpair.respond_with_data(now, slot, bytes, result);
    }

    fn request_data(&mut self, now: Instant, slot: u16, bytes: u32) {
        self.qpair.request_data(now, slot, bytes);
    }

    fn set_class(&mut self, slot: u16, class: Class) {
        self.qpair.set_class(slot, class);
    }

    fn set_connected(&mut self, qid: u16, entries: u16, flow: bool, class: Class) {
        self.qpair.set_connected(qid, entries, flow, class);
    }

    fn set_in_backend(&mut self, commands: u32) {
        self.qpair.set_in_backend(commands);
    }

    fn slot_of(&mut self, cid: u16) -> Option<u16> {
        self.qpair.slot_of(cid)
    }

    fn unanswered(&mut self, cid: u16) -> Option<(u16, bool)> {
        self.qpair.unanswered(cid)
    }

    fn batcher(&mut self) -> &mut Batcher {
        self.qpair.batcher()
    }

    fn expire(&mut self, now: Instant) {
        self.qpair.batcher().expire(now);
    }

    fn deadline(&mut self) -> Option<Instant> {
        self.qpair.batcher().deadline()
    }

    fn stats(&self) -> LaneStats {
        self.connection.stats.with_doorbells(self.qpair.doorbells())
    }

    /// Sends while the socket takes it.
    fn flush(&mut self, slots: &mut [Slot], shared: &mut Shared) -> Result<(), LaneError> {
        while !self.connection.is_blocked() && self.qpair.has_tx() {
            let gather = &mut *shared.gather;
            let mut filler = Filler { gather, slots, responses: 0 };
            self.qpair.poll_tx(&mut filler);
            self.connection.stats.caravan_requests += filler.responses;
            if shared.gather.is_empty() {
                break;
            }
            if self.connection.send(&mut shared.gather)? == Sent::All {
                self.sent(slots, &mut shared.pool);
            }
        }
        Ok(())
    }

    fn hang_up(&mut self, _slots: &mut [Slot], _shared: &mut Shared) {
        self.connection.hang_up();
    }

    fn ends_at_once(&mut self, _now: Instant) -> bool {
        true
    }

    fn tcp(&mut self) -> Option<&mut Tcp> {
        Some(self)
    }

    fn port<'a>(&self, peer: &'a str, since: Instant) -> Port<'a> {
        Port { peer, local: self.local, socket: self.fd(), since }
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

    fn is_stalled(&self) -> bool {
        self.stalled.is_some()
    }

    fn is_deaf(&self) -> bool {
        self.deaf
    }

    /// It stands still while the lane is stalled: what the peer sends is not received then, so it is not to blame.
    fn patience(&self, now: Instant) -> Instant {
        Instant(self.stalled.unwrap_or(now).0.saturating_sub(self.stalled_ns))
    }

    fn deliver_whole(&mut self, slot: u16, block_bytes: u32) {
        self.qpair.deliver_whole(slot, block_bytes);
    }

    fn add_unsent(&mut self, bytes: u32) {
        self.unsent += bytes as usize;
    }

    fn stall(&mut self, now: Instant) {
        self.stalled = Some(now);
    }

    fn reset_on_close(&self) {
        self.connection.stream.reset_on_close();
    }
}

impl Lane {
    /// Receives once and handles all that came.
    pub(in crate::target) fn receive(
        &mut self,
        shared: &mut Shared,
        rx: &mut RxBuffer,
    ) -> Result<Heard, LaneError> {
        self.transport.set_yielding(false);
        let (heard, rest) = self.receive_up_to(shared.unsent_max, rx, RX_BUFFER_BYTES)?;
        if let Some(rest) = rest {
            self.handle_all(shared, rest)?;
        }
        Ok(heard)
    }

    /// Receives once, and handles the first commands of it: what is left has to be gone on with, by
    /// [`Lane::go_on`], when latency-critical lanes have had their turn.
    pub(in crate::target) fn receive_yielding<'a>(
        &mut self,
        shared: &mut Shared,
        rx: &'a mut RxBuffer,
    ) -> Result<(Heard, Option<Rest<'a>>), LaneError> {
        self.transport.set_yielding(true);
        let (heard, rest) = self.receive_up_to(shared.unsent_max, rx, YIELDING_RX_BYTES)?;
        let rest = rest.map(|rest| self.go_on(shared, rest)).transpose()?;
        Ok((heard, rest.flatten()))
    }

    /// Handles the next commands of a receive; what is left after that.
    pub(in crate::target) fn go_on<'a>(
        &mut self,
        shared: &mut Shared,
        rest: Rest<'a>,
    ) -> Result<Option<Rest<'a>>, LaneError> {
        self.parse(shared, rest, YIELDING_COMMANDS)
    }

    fn receive_up_to<'a>(
        &mut self,
        unsent_max: usize,
        rx: &'a mut RxBuffer,
        limit: usize,
    ) -> Result<(Heard, Option<Rest<'a>>), LaneError> {
        let Some(tcp) = self.transport.tcp() else { return Ok((Heard::default(), None)) };
        if self.session.state() == State::Securing {
            match tcp.connection.stream.handshake()? {
                Poll::Ready(()) => self.session.secured(),
                Poll::Pending => return Ok((Heard::default(), None)),
            }
        }
        tcp.deaf = tcp.unsent >= unsent_max && tcp.connection.is_blocked();
        if tcp.is_stalled() || tcp.deaf {
            return Ok((Heard::default(), None));
        }
        let whole = tcp.wanted_whole();
        let place = tcp.qpair.wanted().or(whole).and_then(|(slot, offset, length)| {
            let data = self.slots[usize::from(slot)].data.range(offset, length)?;
            Some(Place { data, length: length as usize })
        });
        let limit = if self.starved.is_empty() { limit } else { STALLED_RX_BYTES };
        // SAFETY: `place` is in the command's own buffer, or in a namespace whose blocks nobody is promised while a
        // write to them is under way; they come whole.
        let received = unsafe { tcp.connection.receive(rx, place, limit) }?;
        match received {
            Received::Nothing => Ok((Heard::default(), None)),
            Received::Closed => Err(LaneError::Closed),
            Received::Octets { direct, buffered, more } => {
                if let Some(place) = place {
                    // SAFETY: just received there.
                    let data = unsafe { std::slice::from_raw_parts(place.data, direct) };
                    tcp.qpair.placed(data);
                    if whole.is_some() && direct < place.length {
                        return Err(LaneError::Ended(
                            "octets that were there are not there any more",
                        ));
                    }
                }
                Ok((Heard { something: true, more }, Some(Rest::new(rx, buffered))))
            }
        }
    }

    /// Handles what was received, as far as it can be.
    fn handle_all(&mut self, shared: &mut Shared, rest: Rest<'_>) -> Result<(), LaneError> {
        let left = self.parse(shared, rest, u32::MAX)?;
        debug_assert!(left.is_none(), "so many commands fit no receive buffer");
        Ok(())
    }

    /// Handles what was received until the end (`None`) or for `commands_max`: what is left then.
    fn parse<'a>(
        &mut self,
        shared: &mut Shared,
        mut rest: Rest<'a>,
        commands_max: u32,
    ) -> Result<Option<Rest<'a>>, LaneError> {
        let mut commands = 0;
        let (input, at) = rest.input();
        loop {
            let Some(tcp) = self.transport.tcp() else { return Ok(None) };
            if tcp.is_stalled() {
                break;
            }
            if commands == commands_max {
                return Ok(Some(rest));
            }
            let Some(event) = tcp.qpair.poll_rx(shared.now, input, at)? else { break };
            match event {
                RxEvent::Initialized => self.session.initialized(),
                RxEvent::Command { slot, sqe, in_capsule_bytes } => {
                    commands += 1;
                    let payload = match in_capsule_bytes {
                        0 => Payload::Asked,
                        bytes => Payload::Follows(bytes),
                    };
                    self.handle_command(shared, slot, &sqe, payload)?;
                }
                RxEvent::Data { slot, offset, start, length } => {
                    let source = input[start..start + length as usize].as_ptr();
                    if let Some(place) = self.slots[usize::from(slot)].data.range(offset, length) {
                        // SAFETY: both ranges were checked; the receive buffer is not part of any data.
                        unsafe { std::ptr::copy_nonoverlapping(source, place, length as usize) };
                    }
                }
                RxEvent::SplitBlock { slot, offset } => self.stage_rest(shared, slot, offset),
                RxEvent::DataDone { slot, intact } => self.handle_data(shared, slot, intact)?,
            }
            let Some(tcp) = self.transport.tcp() else { return Ok(None) };
            if tcp.qpair.has_tx() {
                tcp.flush(&mut self.slots, shared)?;
            }
        }
        if let Some(tcp) = self.transport.tcp() {
            tcp.connection.keep_rest(rest);
        }
        Ok(None)
    }

    /// Ends a stall. The last one to starve is the one whose data is here already.
    pub(super) fn resume(
        &mut self,
        shared: &mut Shared,
        rx: &mut RxBuffer,
    ) -> Result<(), LaneError> {
        while let Some(tcp) = self.transport.tcp() {
            let (Some(since), Some(&slot)) = (tcp.stalled, self.starved.back()) else { break };
            let buffer = match &self.slots[usize::from(slot)].work {
                Work::Failed(_) => None, // aborted meanwhile: its data only passes
                work => {
                    let length = work.staged_bytes() as usize;
                    let pool = &mut shared.pool;
                    let buffer = if self.starved.len() == 1 { pool.take(length) } else { None };
                    let Some(buffer) = buffer.or_else(|| pool.take_reserved(length)) else { break };
                    Some(buffer)
                }
            };
            self.starved.pop_back();
            tcp.stalled = None;
            tcp.stalled_ns += shared.now.0.saturating_sub(since.0);
            let kept = tcp.connection.take_kept();
            if let Some(buffer) = buffer {
                self.hold(shared.now, slot, buffer);
            }
            let end = rx.fill(&kept);
            self.handle_all(shared, Rest::new(rx, end))?;
        }
        Ok(())
    }

    fn handle_data(
        &mut self,
        shared: &mut Shared,
        slot: u16,
        intact: bool,
    ) -> Result<(), LaneError> {
        let status = match &self.slots[usize::from(slot)].work {
            Work::Failed(status) => *status,
            _ if !intact => Status::TRANSIENT_TRANSPORT_ERROR,
            Work::Admin(_) => return self.run_admin(shared, slot),
            Work::InPlace(_) | Work::Split { .. } => {
                self.finish_in_place(shared, slot);
                return Ok(());
            }
            _ => {
                self.execute(shared, slot);
                return Ok(());
            }
        };
        self.resolve_aborts(slot, status.is(Status::ABORT_REQUESTED));
        self.transport.respond(shared.now, slot, status, 0);
        Ok(())
    }

    /// The socket is writable again.
    pub(in crate::target) fn writable(&mut self, shared: &mut Shared) -> Result<(), LaneError> {
        let Some(tcp) = self.transport.tcp() else { return Ok(()) };
        tcp.deaf = false; // until it is received from again
        if tcp.connection.resume()? == Sent::All {
            tcp.sent(&mut self.slots, &mut shared.pool);
        }
        tcp.flush(&mut self.slots, shared)
    }
}
