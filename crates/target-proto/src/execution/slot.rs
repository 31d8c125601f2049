//! What a command in execution is, and what it holds.

use super::environment::{Namespace, Place};
use crate::LookUp;
use crate::io::{COPY_BUFFER_BYTES, IoCommand};
use crate::stability::Epoch;
use core::ops::Deref;
use roadtrain_proto::time::Instant;
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::status::Status;
use std::rc::Rc;

/// Where a command's data is.
pub enum Data<N: Namespace, B> {
    /// It has none.
    None,
    /// In the store's own memory: sent from there, and put there in whole blocks.
    InPlace(N::Place),
    /// In a buffer.
    Buffer(B),
    /// Not wanted: the command fails once it has passed.
    Discarded,
}

/// What a command is.
pub(super) enum Command<N: Namespace> {
    None,
    /// An I/O command that a store carries out. `began`: it writes what only a flush makes stable, since that epoch.
    Io {
        command: IoCommand,
        namespace: Rc<N>,
        sqe: Sqe,
        began: Option<Epoch>,
    },
    /// A read or write whose data moves in place; the namespace stays until it has.
    InPlace(Rc<N>),
    /// A write in place whose host splits blocks: from octet `from` on its data is in a buffer until all has come, so
    /// that no block is ever half written.
    Split {
        namespace: Rc<N>,
        place: N::Place,
        from: u32,
    },
    /// An admin or fabrics command.
    Admin(Box<Admin>),
    /// A command about reservations: octets from the host, and to it.
    Reservation {
        sqe: Sqe,
        out: u32,
        report: u32,
    },
    /// A Get LBA Status that a store answers.
    LbaStatus(Box<(Sqe, LookUp)>),
    /// Fails when its data has passed.
    Failing(Status),
}

impl<N: Namespace> Command<N> {
    /// Octets of buffer that it needs.
    pub(super) fn buffer_bytes(&self) -> u32 {
        match *self {
            Command::Admin(ref admin) => admin.out_bytes.max(admin.page_bytes),
            Command::Io {
                command: IoCommand::Read { length, .. } | IoCommand::Verify { length, .. },
                ..
            } => length,
            Command::Io { command: IoCommand::Copy { .. }, .. } => COPY_BUFFER_BYTES,
            Command::Split { place, .. } => place.length(),
            Command::Reservation { out, report, .. } => out.max(report),
            Command::Io { command, .. } => command.data_out_bytes(),
            _ => 0,
        }
    }

    /// Octets that the host is to be asked for.
    pub(super) fn data_out_bytes(&self) -> u32 {
        match *self {
            Command::Io { command, .. } => command.data_out_bytes(),
            Command::Admin(ref admin) => admin.out_bytes,
            Command::Reservation { out, .. } => out,
            _ => 0,
        }
    }
}

/// An admin or fabrics command, and the data that it moves.
pub struct Admin {
    /// The command.
    pub sqe: Sqe,
    /// Octets from the host.
    pub(super) out_bytes: u32,
    /// Octets to the host at most.
    pub(super) page_bytes: u32,
}

impl Admin {
    /// The data from the host: it is at the start of the command's buffer.
    #[must_use]
    pub fn data<'a>(&self, buffer: Option<&'a [u8]>) -> &'a [u8] {
        buffer.and_then(|buffer| buffer.get(..self.out_bytes as usize)).unwrap_or_default()
    }
}

/// An Abort that waits for the command's answer.
pub(super) struct Abort {
    pub(super) slot: u16,
    /// Names it for the control plane.
    pub(super) id: u32,
    /// Whether the command was aborted, once it was answered.
    pub(super) outcome: Option<bool>,
    /// Until when it waits for the command's data.
    pub(super) until: Option<Instant>,
}

pub(super) struct Slot<N: Namespace, B> {
    pub(super) command: Command<N>,
    pub(super) data: Data<N, B>,
    /// When its buffer was last given to it, by the connection's own clock.
    pub(super) held_since: Instant,
    /// Octets of its buffer that wait to be sent.
    pub(super) unsent_bytes: u32,
    /// Bytes of the pool in a buffer that waits, or is going to wait, for data of the host: counted in the lane's share.
    pub(super) awaited_bytes: usize,
    /// A store has the command, also when its connection is over.
    pub(super) in_store: bool,
    /// Its rate is limited, and its time is taken.
    pub(super) is_due: bool,
    /// When it was given a buffer, if it needed one.
    pub(super) buffered: Instant,
    /// When a store was told of it, if one was.
    pub(super) started: Instant,
}

impl<N: Namespace, B> Default for Slot<N, B> {
    fn default() -> Self {
        Slot {
            command: Command::None,
            data: Data::None,
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

impl<N: Namespace, B: Deref<Target = [u8]>> Slot<N, B> {
    /// Octets of its buffer.
    pub(super) fn buffered(&self) -> usize {
        match &self.data {
            Data::Buffer(buffer) => buffer.len(),
            _ => 0,
        }
    }

    /// Its buffer, which it does not hold any more.
    pub(super) fn take_buffer(&mut self) -> Option<B> {
        match core::mem::replace(&mut self.data, Data::None) {
            Data::Buffer(buffer) => Some(buffer),
            _ => None,
        }
    }

    /// The command is answered: what it holds goes back.
    #[inline]
    pub(super) fn release(&mut self, give: impl FnMut(B)) {
        (self.command, self.unsent_bytes) = (Command::None, 0);
        self.take_buffer().into_iter().for_each(give);
    }
}
