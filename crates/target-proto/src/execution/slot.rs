//! Commands in execution and the resources that they hold.

use super::environment::{InPlaceData, LaneNamespace};
use crate::LbaStatusQuery;
use crate::io::{COPY_BUFFER_BYTES, TargetIoCommand};
use crate::stability::Epoch;
use core::ops::Deref;
use roadtrain_proto::time::Instant;
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::status::Status;
use std::rc::Rc;

/// Location of a command's data.
pub enum SlotData<N: LaneNamespace, B> {
    /// No data.
    None,
    /// In the store's own memory: sent from there, and received there in whole blocks.
    InPlace(N::Place),
    /// In a buffer.
    Buffer(B),
    /// Discarded: the command fails once its data has passed.
    Discarded,
}

/// A command in execution.
pub(super) enum SlotCommand<N: LaneNamespace> {
    None,
    /// An I/O command for a store. `began`: epoch since which it writes data that only a flush makes stable.
    Io {
        command: TargetIoCommand,
        namespace: Rc<N>,
        sqe: Sqe,
        began: Option<Epoch>,
    },
    /// A read or write whose data moves in place; it keeps the namespace until then.
    InPlace(Rc<N>),
    /// A write in place whose host splits blocks. The data from byte `from` on is in a buffer until all has arrived, so
    /// that no block is ever half written.
    Split {
        namespace: Rc<N>,
        place: N::Place,
        from: u32,
    },
    /// An admin or fabrics command.
    Admin(Box<AdminCommand>),
    /// A reservation command: bytes from the host, and to it.
    Reservation {
        sqe: Sqe,
        out: u32,
        report: u32,
    },
    /// A Get LBA Status, which a store executes.
    LbaStatus(Box<(Sqe, LbaStatusQuery)>),
    /// A command that fails once its data has passed.
    Failing(Status),
}

impl<N: LaneNamespace> SlotCommand<N> {
    /// Returns the size of the buffer that it needs, in bytes.
    pub(super) fn buffer_bytes(&self) -> u32 {
        match *self {
            SlotCommand::Admin(ref admin) => admin.out_bytes.max(admin.page_bytes),
            SlotCommand::Io {
                command:
                    TargetIoCommand::Read { length, .. } | TargetIoCommand::Verify { length, .. },
                ..
            } => length,
            SlotCommand::Io { command: TargetIoCommand::Copy { .. }, .. } => COPY_BUFFER_BYTES,
            SlotCommand::Split { place, .. } => place.length(),
            SlotCommand::Reservation { out, report, .. } => out.max(report),
            SlotCommand::Io { command, .. } => command.data_out_bytes(),
            _ => 0,
        }
    }

    /// Returns the bytes to request from the host.
    pub(super) fn data_out_bytes(&self) -> u32 {
        match *self {
            SlotCommand::Io { command, .. } => command.data_out_bytes(),
            SlotCommand::Admin(ref admin) => admin.out_bytes,
            SlotCommand::Reservation { out, .. } => out,
            _ => 0,
        }
    }
}

/// An admin or fabrics command, and the sizes of its data.
pub struct AdminCommand {
    /// The command.
    pub sqe: Sqe,
    /// Bytes from the host.
    pub(super) out_bytes: u32,
    /// Bytes to the host at most.
    pub(super) page_bytes: u32,
}

impl AdminCommand {
    /// Returns the data from the host, at the start of the command's buffer.
    #[must_use]
    pub fn data<'a>(&self, buffer: Option<&'a [u8]>) -> &'a [u8] {
        buffer.and_then(|buffer| buffer.get(..self.out_bytes as usize)).unwrap_or_default()
    }
}

/// An Abort that waits for the completion of its command.
pub(super) struct Abort {
    pub(super) slot: u16,
    /// Number of the Abort, for the control plane.
    pub(super) id: u32,
    /// True if the command was aborted; `None` until it completes.
    pub(super) outcome: Option<bool>,
    /// Deadline for the completion of the command.
    pub(super) until: Option<Instant>,
}

pub(super) struct CommandSlot<N: LaneNamespace, B> {
    pub(super) command: SlotCommand<N>,
    pub(super) data: SlotData<N, B>,
    /// Time at which it last got its buffer, by the clock that stops while receiving is stalled.
    pub(super) held_since: Instant,
    /// Bytes of its buffer that wait to be sent.
    pub(super) unsent_bytes: u32,
    /// Bytes of the pool in a buffer that waits, or is going to wait, for the host's data: counted in the lane's share.
    pub(super) awaited_bytes: usize,
    /// True while a store executes the command, also after its connection has ended.
    pub(super) in_store: bool,
    /// True if its rate limit is charged.
    pub(super) is_due: bool,
    /// Time at which it got a buffer, if it needed one.
    pub(super) buffered: Instant,
    /// Time at which it was passed to a store, if it was.
    pub(super) started: Instant,
}

impl<N: LaneNamespace, B> Default for CommandSlot<N, B> {
    fn default() -> Self {
        CommandSlot {
            command: SlotCommand::None,
            data: SlotData::None,
            held_since: Instant::default(),
            unsent_bytes: 0,
            awaited_bytes: 0,
            in_store: false,
            is_due: false,
            buffered: Instant::default(),
            started: Instant::default(),
        }
    }
}

impl<N: LaneNamespace, B: Deref<Target = [u8]>> CommandSlot<N, B> {
    /// Returns the size of its buffer in bytes.
    pub(super) fn buffered(&self) -> usize {
        match &self.data {
            SlotData::Buffer(buffer) => buffer.len(),
            _ => 0,
        }
    }

    /// Takes its buffer.
    pub(super) fn take_buffer(&mut self) -> Option<B> {
        match core::mem::replace(&mut self.data, SlotData::None) {
            SlotData::Buffer(buffer) => Some(buffer),
            _ => None,
        }
    }

    /// Releases the resources of a completed command.
    #[inline]
    pub(super) fn release(&mut self, give: impl FnMut(B)) {
        (self.command, self.unsent_bytes) = (SlotCommand::None, 0);
        self.take_buffer().into_iter().for_each(give);
    }
}
