//! A lane over a TCP connection of its own.

use super::payload::Payload;
use super::transport::Transport;
use super::{Lane, LaneError, Shared, io};
use crate::buffer::Pool;
use crate::connection::{Connection, Heard, Place, Received};
use crate::digest;
use crate::gather::{Gather, Sent};
use crate::target::slot::{Slot, Work};
use crate::tuning::RX_BUFFER_BYTES;
use roadtrain_proto::caravan::Caravan;
use roadtrain_proto::target::qpair::{Config, Qpair, RxEvent};
use roadtrain_proto::time::Instant;
use roadtrain_wire::status::Status;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

/// Octets received at once while the buffer pool is exhausted: what a stalled lane may have to keep.
const STALLED_RX_BYTES: usize = 64 << 10;

/// Commands handled, and octets received at once, before a latency-critical lane of this reactor gets its turn:
/// each takes about the time of a wake-up.
const YIELDING_COMMANDS: u32 = 32;
const YIELDING_RX_BYTES: usize = 192 << 10;

/// Queue pair and connection.
pub(super) struct Tcp {
    pub(super) connection: Connection,
    pub(super) qpair: Qpair,
    pub(super) local: SocketAddr,
    /// In-capsule data has arrived for a command that waits for a buffer, since when: nothing is parsed meanwhile.
    stalled: Option<Instant>,
    /// How long it was so before.
    stalled_ns: u64,
    /// Beside a latency-critical lane it receives and sends little at once, and pauses between commands.
    pub(super) yielding: bool,
    /// Where it has paused in the receive buffer: from, to.
    paused: Option<(usize, usize)>,
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
    pub(super) fn new(local: SocketAddr, socket: OwnedFd, config: Config) -> Self {
        Tcp {
            connection: Connection::new(socket),
            qpair: Qpair::new(config),
            local,
            stalled: None,
            stalled_ns: 0,
            yielding: false,
            paused: None,
        }
    }

    pub(super) fn is_stalled(&self) -> bool {
        self.stalled.is_some()
    }

    /// Data has arrived that there is no buffer for.
    pub(super) fn stall(&mut self, now: Instant) {
        self.stalled = Some(now);
    }

    /// A clock that stands still while the lane is stalled: what the peer sends is not received then, so it is not
    /// to blame.
    pub(super) fn patience(&self, now: Instant) -> Instant {
        Instant(self.stalled.unwrap_or(now).0.saturating_sub(self.stalled_ns))
    }

    fn commands_max(&self) -> u32 {
        if self.yielding { YIELDING_COMMANDS } else { u32::MAX }
    }

    /// Sends what doorbells have released, while the socket takes it.
    pub(super) fn flush(
        &mut self,
        slots: &mut [Slot],
        shared: &mut Shared,
    ) -> Result<(), LaneError> {
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

    fn sent(&mut self, slots: &mut [Slot], pool: &mut Pool) {
        let stats = &mut self.connection.stats;
        self.qpair.sent(|number| {
            stats.requests += 1;
            slots[usize::from(number)].release(pool);
        });
    }
}

impl Lane {
    /// Receives once and handles what came.
    pub(in crate::target) fn receive(&mut self, shared: &mut Shared) -> Result<Heard, LaneError> {
        let Transport::Tcp(tcp) = &mut self.transport else { return Ok(Heard::default()) };
        if tcp.is_stalled() {
            return Ok(Heard::default());
        }
        let place = tcp.qpair.wanted().and_then(|(slot, offset, length)| {
            let data = self.slots[usize::from(slot)].data.range(offset, length)?;
            Some(Place { data, length: length as usize })
        });
        let limit = match (self.starved.is_empty(), tcp.yielding) {
            (false, _) => STALLED_RX_BYTES,
            (true, true) => YIELDING_RX_BYTES,
            (true, false) => RX_BUFFER_BYTES,
        };
        // SAFETY: `place` is the command's own data, or in a namespace whose blocks nobody is promised
        // while a write to them is under way.
        let received = unsafe { tcp.connection.receive(&mut shared.rx, place, limit) }?;
        match received {
            Received::Nothing => Ok(Heard::default()),
            Received::Closed => Err(LaneError::Closed),
            Received::Octets { direct, buffered, more } => {
                if let Some(place) = place {
                    // SAFETY: just received there.
                    let data = unsafe { std::slice::from_raw_parts(place.data, direct) };
                    tcp.qpair.placed(data);
                }
                let commands_max = tcp.commands_max();
                self.parse(shared, 0, buffered, commands_max)?;
                Ok(Heard { something: true, more })
            }
        }
    }

    /// Goes on after a latency-critical lane has had its turn; `false` when there was nothing left.
    pub(in crate::target) fn go_on(&mut self, shared: &mut Shared) -> Result<bool, LaneError> {
        let Transport::Tcp(tcp) = &mut self.transport else { return Ok(false) };
        let Some((at, end)) = tcp.paused.take() else { return Ok(false) };
        let commands_max = tcp.commands_max();
        self.parse(shared, at, end, commands_max)?;
        Ok(self.is_paused())
    }

    pub(in crate::target) fn is_paused(&self) -> bool {
        matches!(&self.transport, Transport::Tcp(tcp) if tcp.paused.is_some())
    }

    /// Handles what was received, from `at` on, until the end or after `commands_max`.
    fn parse(
        &mut self,
        shared: &mut Shared,
        mut at: usize,
        end: usize,
        commands_max: u32,
    ) -> Result<(), LaneError> {
        let mut commands = 0;
        loop {
            let Transport::Tcp(tcp) = &mut self.transport else { return Ok(()) };
            if tcp.is_stalled() {
                break;
            }
            if commands == commands_max {
                tcp.paused = Some((at, end));
                return Ok(());
            }
            let input = shared.rx.filled(end);
            let Some(event) = tcp.qpair.poll_rx(shared.now, input, &mut at)? else { break };
            match event {
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
                RxEvent::DataDone { slot, intact } => self.handle_data(shared, slot, intact)?,
            }
            let Transport::Tcp(tcp) = &mut self.transport else { return Ok(()) };
            if tcp.qpair.has_tx() {
                tcp.flush(&mut self.slots, shared)?;
            }
        }
        let Transport::Tcp(tcp) = &mut self.transport else { return Ok(()) };
        tcp.connection.keep(&shared.rx.filled(end)[at..]);
        Ok(())
    }

    /// Ends a stall. The last one to starve is the one whose in-capsule data is here already.
    pub(super) fn resume(&mut self, shared: &mut Shared) -> Result<(), LaneError> {
        while let Transport::Tcp(tcp) = &mut self.transport {
            let (Some(since), Some(&slot)) = (tcp.stalled, self.starved.back()) else { break };
            let Work::Io { command, .. } = &self.slots[usize::from(slot)].work else { break };
            let length = io::staged_bytes(command) as usize;
            let pool = &mut shared.pool;
            let buffer = if self.starved.len() == 1 { pool.take(length) } else { None };
            let Some(buffer) = buffer.or_else(|| pool.take_reserved(length)) else { break };
            self.starved.pop_back();
            tcp.stalled = None;
            tcp.stalled_ns += shared.now.0.saturating_sub(since.0);
            let kept = tcp.connection.take_kept();
            self.hold(shared.now, slot, buffer);
            let end = shared.rx.fill(&kept);
            self.parse(shared, 0, end, u32::MAX)?;
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
            Work::InPlace(_) => {
                self.finish_in_place(shared, slot);
                return Ok(());
            }
            _ => {
                self.execute(shared, slot);
                return Ok(());
            }
        };
        self.transport.respond(shared.now, slot, status, 0);
        Ok(())
    }

    /// The socket is writable again.
    pub(in crate::target) fn writable(&mut self, shared: &mut Shared) -> Result<(), LaneError> {
        let Transport::Tcp(tcp) = &mut self.transport else { return Ok(()) };
        if tcp.connection.resume()? == Sent::All {
            tcp.sent(&mut self.slots, &mut shared.pool);
        }
        tcp.flush(&mut self.slots, shared)
    }
}
