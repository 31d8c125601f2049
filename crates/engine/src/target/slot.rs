//! What a command in execution holds at the target.

use super::namespace::LocalNamespace;
use crate::buffer::{Buffer, Pool};
use roadtrain_proto::target::io::IoCommand;
use roadtrain_proto::target::stability::Epoch;
use roadtrain_proto::time::Instant;
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::status::Status;
use std::rc::Rc;

/// Where the command's data is.
#[derive(Default)]
pub(super) enum Data {
    /// It has none.
    #[default]
    None,
    /// In a memory namespace: sent from there, and put there in whole blocks.
    InPlace { start: *mut u8, length: usize },
    /// In a buffer of the pool.
    Pooled(Buffer),
    /// Not wanted: the command fails once it has passed.
    Discarded,
}

impl Data {
    /// The octets from `offset`, for reading; `None` when they are not there.
    pub(super) fn range(&mut self, offset: u32, length: u32) -> Option<*mut u8> {
        let (offset, end) = (offset as usize, offset as usize + length as usize);
        match self {
            // SAFETY: `end` is within the range that was checked against the namespace.
            Data::InPlace { start, length } if end <= *length => Some(unsafe { start.add(offset) }),
            Data::Pooled(buffer) => buffer.get_mut(offset..end).map(<[u8]>::as_mut_ptr),
            _ => None,
        }
    }
}

/// What the command is.
#[derive(Default)]
pub(super) enum Work {
    #[default]
    None,
    /// An I/O command on its namespace. `began`: it writes what only a flush makes stable, since that epoch.
    Io { command: IoCommand, namespace: Rc<LocalNamespace>, sqe: Sqe, began: Option<Epoch> },
    /// A read or write whose data is moved in place; the namespace stays until it has been.
    InPlace(Rc<LocalNamespace>),
    /// A write of `length` octets to memory at `start`. Its host splits blocks: from octet `from` on its data is in a
    /// buffer until all has come, so that no block is ever half written.
    Split { namespace: Rc<LocalNamespace>, start: *mut u8, from: u32, length: u32 },
    /// An admin or fabrics command.
    Admin(Box<Admin>),
    /// Fails when its data has passed.
    Failed(Status),
}

/// An admin or fabrics command, and the data that it moves.
pub(super) struct Admin {
    pub(super) sqe: Sqe,
    /// Octets from the host.
    pub(super) out_bytes: u32,
    /// Octets to the host at most.
    pub(super) page_bytes: u32,
}

impl Work {
    /// Octets of pool buffer that it needs.
    pub(super) fn staged_bytes(&self) -> u32 {
        match *self {
            Work::Admin(ref admin) => admin.out_bytes.max(admin.page_bytes),
            Work::Io { command: IoCommand::Read { length, .. }, .. } => length,
            Work::Io { command, .. } => command.data_out_bytes(),
            Work::Split { length, .. } => length,
            _ => 0,
        }
    }

    /// Octets that the host sends.
    pub(super) fn data_out_bytes(&self) -> u32 {
        match *self {
            Work::Io { command, .. } => command.data_out_bytes(),
            Work::Admin(ref admin) => admin.out_bytes,
            _ => 0,
        }
    }
}

#[derive(Default)]
pub(super) struct Slot {
    pub(super) work: Work,
    pub(super) data: Data,
    /// When its buffer was last given to it, by the lane's own clock.
    pub(super) held_since: Instant,
    /// Octets of its buffer that wait to be sent.
    pub(super) unsent_bytes: u32,
}

impl Slot {
    /// The command is answered: what it holds goes back.
    pub(super) fn release(&mut self, pool: &mut Pool) {
        (self.work, self.unsent_bytes) = (Work::None, 0);
        if let Data::Pooled(buffer) = std::mem::take(&mut self.data) {
            pool.give(buffer);
        }
    }
}
