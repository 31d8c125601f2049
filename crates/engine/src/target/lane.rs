//! A lane at the target: a queue pair, what carries it, and the commands it executes.

mod abort;
mod admin;
#[cfg(feature = "ether")]
pub(super) mod ether;
mod io;
mod payload;
mod tcp;
mod transport;

use super::control::Control;
use super::ether::Port;
use super::namespace::NamespaceTable;
use super::slot::{Data, Slot, Work};
use super::tasks::Tasks;
use super::tickets::Ticket;
use crate::buffer::{Buffer, Pool};
use crate::connection::RxBuffer;
use crate::gather::Gather;
use crate::ring::Ring;
use crate::stats::LaneStats;
use crate::stream::Stream;
use crate::target::flushes::Unflushed;
use abort::Abort;
use payload::Payload;
use roadtrain_proto::error::QpairError;
use roadtrain_proto::policy::ReactorLoad;
use roadtrain_proto::target::qpair::Config;
use roadtrain_proto::target::session::{Request, Session, Settings};
use roadtrain_proto::time::Instant;
use roadtrain_wire::sqe::Sqe;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;
use tcp::Tcp;
use thiserror::Error;
use transport::Transport;

/// Why a lane ends.
#[derive(Debug, Error)]
pub(super) enum LaneError {
    #[error("connection lost: {0}")]
    Io(#[from] std::io::Error),
    #[error("closed by the host")]
    Closed,
    #[error(transparent)]
    Qpair(#[from] QpairError),
    #[error("{0}")]
    Ended(&'static str),
    #[error("{0} for {1:?}, while other connections wait for the buffer")]
    Overdue(&'static str, Duration),
}

/// What the lanes of a reactor share.
pub(super) struct Shared {
    pub(super) gather: Box<Gather>,
    pub(super) pool: Pool,
    /// What a lane whose socket is full may have unsent in buffers, and still be received from.
    pub(super) unsent_max: usize,
    /// Where the control plane writes a page before it goes to a buffer.
    pub(super) page: Vec<u8>,
    pub(super) ring: Ring,
    pub(super) tasks: Tasks,
    pub(super) now: Instant,
    /// Over all lanes, as far as can be told.
    pub(super) load: ReactorLoad,
    pub(super) control: Arc<Control>,
    /// At the interfaces that lanes without connections use; away while they are receiving.
    pub(super) ports: Vec<Port>,
}

/// One queue pair at the target.
pub(super) struct Lane {
    /// Index in the reactor, and which use of it: marks the lane's backend tasks.
    pub(super) id: (u32, u32),
    pub(super) peer: String,
    transport: Transport,
    /// Of a connection of its own.
    pub(super) ticket: Option<Ticket>,
    /// What may be done.
    pub(super) session: Session,
    pub(super) namespaces: NamespaceTable,
    /// Of an admin queue that shuts its controller down: the stores that are flushed by that.
    closing: Vec<Unflushed>,
    slots: Vec<Slot>,
    /// Commands that wait for a buffer, first come first served.
    starved: VecDeque<u16>,
    /// The admin command that was given a buffer of the lane's own last.
    own_buffer: Option<u16>,
    /// Aborts of its commands that were not answered.
    aborts: Vec<Abort>,
}

/// Addresses of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    pub(super) peer: SocketAddr,
    pub(super) local: SocketAddr,
}

impl Lane {
    /// A lane over a TCP connection.
    pub(super) fn over_tcp(
        id: (u32, u32),
        ends: Ends,
        stream: Stream,
        config: Config,
        (ticket, settings): (Ticket, Settings),
    ) -> Self {
        let tcp = Tcp::new(ends.local, stream, config);
        let session = Session::new(settings);
        let lane = Lane::new(id, ends.peer.to_string(), Transport::Tcp(tcp), session);
        Lane { ticket: Some(ticket), ..lane }
    }

    fn new(id: (u32, u32), peer: String, transport: Transport, session: Session) -> Self {
        Lane {
            id,
            peer,
            transport,
            ticket: None,
            session,
            namespaces: NamespaceTable::default(),
            closing: Vec::new(),
            slots: Vec::new(),
            starved: VecDeque::new(),
            own_buffer: None,
            aborts: Vec::new(),
        }
    }

    /// Its own descriptor, to be polled; `None` when it shares a port with other lanes.
    pub(super) fn fd(&self) -> Option<RawFd> {
        self.transport.fd()
    }

    /// The host has ended the connection, though what it sent before may not have been received.
    pub(super) fn is_hung_up(&self) -> bool {
        self.transport.is_hung_up()
    }

    /// Whether it has carried something latency-critical of late.
    pub(super) fn is_express(&mut self, now: Instant) -> bool {
        self.transport.batcher().is_express(now)
    }

    pub(super) fn is_blocked(&self) -> bool {
        self.transport.is_blocked()
    }

    pub(super) fn deadline(&mut self) -> Option<Instant> {
        self.transport.deadline().into_iter().chain(self.abort_deadline()).min()
    }

    pub(super) fn stats(&self) -> LaneStats {
        self.transport.stats()
    }

    fn slot(&mut self, number: u16) -> &mut Slot {
        let number = usize::from(number);
        if number >= self.slots.len() {
            self.slots.resize_with(number + 1, Slot::default);
        }
        &mut self.slots[number]
    }

    fn handle_command(
        &mut self,
        shared: &mut Shared,
        slot: u16,
        sqe: &Sqe,
        payload: Payload<'_>,
    ) -> Result<(), LaneError> {
        self.session.heard();
        self.slot(slot);
        let is_fabrics = sqe.opcode == roadtrain_wire::sqe::opcode::FABRICS;
        if self.session.executes_io() && !is_fabrics {
            self.handle_io(shared, slot, sqe, payload);
            return Ok(());
        }
        if self.session.request(sqe) == Request::Io
            && let Err(status) = self.session.admits(Request::Io)
        {
            self.fail(shared, slot, status, &payload);
            return Ok(());
        }
        let payload = self.transport.place(shared.now, payload);
        self.handle_admin(shared, slot, sqe, payload)
    }

    /// Goes on with what waits for buffers, as far as there are some. `true` when the lane received nothing until
    /// now because of that, and may again.
    pub(super) fn feed(
        &mut self,
        shared: &mut Shared,
        rx: &mut RxBuffer,
    ) -> Result<bool, LaneError> {
        let was_stalled = self.is_stalled();
        loop {
            self.resume(shared, rx)?;
            let Some(&slot) = self.starved.front() else { return Ok(was_stalled) };
            if self.is_stalled() && self.starved.len() == 1 {
                return Ok(false); // no buffer to resume with
            }
            let work = &self.slots[usize::from(slot)].work;
            let (length, out) = (work.staged_bytes(), work.data_out_bytes());
            let Some(buffer) = shared.pool.take(length as usize) else {
                return Ok(was_stalled && !self.is_stalled());
            };
            self.starved.pop_front();
            self.hold(shared.now, slot, buffer);
            if out > 0 {
                self.transport.request_data(shared.now, slot, out);
            } else if let Work::Admin(_) = self.slots[usize::from(slot)].work {
                self.run_admin(shared, slot)?;
            } else {
                self.execute(shared, slot);
            }
        }
    }

    /// Nothing is received until a buffer is there.
    pub(super) fn is_stalled(&self) -> bool {
        self.transport.is_stalled()
    }

    /// Nothing is received until more has been sent.
    pub(super) fn is_deaf(&self) -> bool {
        self.transport.is_deaf()
    }

    pub(super) fn is_starved(&self) -> bool {
        !self.starved.is_empty()
    }

    /// Gives a command its buffer.
    fn hold(&mut self, now: Instant, slot: u16, buffer: Buffer) {
        let since = self.transport.patience(now);
        let slot = &mut self.slots[usize::from(slot)];
        (slot.data, slot.held_since) = (Data::Pooled(buffer), since);
    }

    /// Gives a command its buffer, `bytes` of which are its answer.
    fn answer_with(&mut self, now: Instant, slot: u16, buffer: Buffer, bytes: u32, result: u64) {
        self.hold(now, slot, buffer);
        self.slots[usize::from(slot)].unsent_bytes = bytes;
        self.transport.add_unsent(bytes);
        self.transport.respond_with_data(now, slot, bytes, result);
    }

    /// An error when a command has had a buffer for `limit` because of the peer. While it is in the backend its
    /// buffer is there, too.
    pub(super) fn check_transfers(&self, now: Instant, limit: Duration) -> Result<(), LaneError> {
        let now = self.transport.patience(now);
        let is_overdue = |slot: &&Slot| {
            matches!(slot.data, Data::Pooled(_)) && now.since(slot.held_since) >= limit
        };
        let Some(slot) = self.slots.iter().find(is_overdue) else { return Ok(()) };
        let what = if slot.unsent_bytes > 0 {
            "the answer was not taken"
        } else {
            "the data did not come"
        };
        // What it does not take would otherwise stay with the kernel.
        self.transport.reset_on_close();
        Err(LaneError::Overdue(what, limit))
    }

    /// The namespaces have changed.
    pub(super) fn refresh(&mut self, control: &Control) {
        self.namespaces = control.table(self.session.queue());
    }

    /// Nothing is left of it, which the control plane hears.
    pub(super) fn leave(self, control: &Control) {
        if let Some(leaving) = self.session.leave() {
            control.left(&leaving);
        }
    }

    /// The turn is over: rings what the policy lets go, and sends it.
    pub(super) fn end_turn(&mut self, shared: &mut Shared) -> Result<(), LaneError> {
        self.session.tell_traffic();
        self.transport.batcher().add_to(shared.now, &mut shared.load);
        self.hear_load(shared);
        self.transport.expire(shared.now);
        self.flush(shared)?;
        if !self.aborts.is_empty() {
            self.answer_aborts(shared);
        }
        match self.transport.is_over(shared.now) {
            Some(why) => Err(LaneError::Ended(why)),
            None => Ok(()),
        }
    }

    /// What other lanes have in flight decides what this one's answers wait for.
    pub(super) fn hear_load(&mut self, shared: &mut Shared) {
        self.transport.batcher().hear(shared.now, &mut shared.load);
    }

    /// Sends what doorbells have released.
    pub(super) fn flush(&mut self, shared: &mut Shared) -> Result<(), LaneError> {
        self.transport.flush(&mut self.slots, shared)
    }

    /// The connection is over: every buffer that the kernel does not use goes back to the pool.
    pub(super) fn close(&mut self, shared: &mut Shared) {
        self.transport.hang_up(&mut self.slots, shared);
        for slot in &mut self.slots {
            slot.release(&mut shared.pool);
        }
        self.namespaces = NamespaceTable::default();
        self.starved.clear();
    }
}
