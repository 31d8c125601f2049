//! Commands of a connection in execution, and a namespace as they see it.

use crate::disk::SimDisk;
use crate::pool::SimBuffer;
use roadtrain_proto::op::ByteRange;
use roadtrain_proto::policy::Class;
use roadtrain_proto::time::Instant;
use roadtrain_target_proto::execution;
use roadtrain_target_proto::io::{BlockGeometry, TargetIoCommand};
use roadtrain_target_proto::rate::RateLimit;
use roadtrain_target_proto::reservations::{CommandGroup, HostAccess};
use roadtrain_target_proto::stability::{Epoch, Stability, WriteMark};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// Commands of a connection in execution.
pub type SimExecution = execution::CommandExecution<SimNamespace, SimBuffer>;

/// A namespace, as a connection sees it.
pub struct SimNamespace {
    /// Namespace identifier: 1 is the disk; each byte of others identifies their store.
    pub nsid: u32,
    /// Size.
    pub geometry: BlockGeometry,
    /// Access rights of the host, by reservations.
    pub access: Option<Arc<HostAccess>>,
    /// Limit of its work per second.
    pub limit: Option<Rc<RateLimit>>,
    /// Mark of unflushed writes of the connection.
    pub mark: Option<Arc<WriteMark>>,
    /// Epochs of flushes.
    pub stability: Rc<RefCell<Stability<u64>>>,
    /// Storage that lends its memory.
    pub memory: Option<SimDisk>,
}

/// Destination in the memory that the storage lends.
#[derive(Clone, Copy)]
pub struct MemoryDestination {
    /// Offset from the namespace's start in bytes.
    pub offset: u64,
    /// Length of the command in bytes.
    pub length: u32,
}

impl execution::InPlaceData for MemoryDestination {
    fn length(&self) -> u32 {
        self.length
    }
}

impl execution::LaneNamespace for SimNamespace {
    type Place = MemoryDestination;

    fn geometry(&self) -> &BlockGeometry {
        &self.geometry
    }

    fn class(&self) -> Option<Class> {
        None
    }

    fn in_place(&self, command: &TargetIoCommand) -> Option<MemoryDestination> {
        self.memory.as_ref()?;
        match *command {
            TargetIoCommand::Read { offset, length, .. }
            | TargetIoCommand::Write { offset, length, .. } => {
                Some(MemoryDestination { offset, length })
            }
            _ => None,
        }
    }

    fn refuses(&self, group: CommandGroup) -> bool {
        self.access.as_ref().is_some_and(|access| access.refuses(group))
    }

    fn is_limited(&self) -> bool {
        self.limit.is_some()
    }

    fn begins(&self, now: Instant, command: &TargetIoCommand) -> Instant {
        self.limit.as_ref().map_or(now, |limit| limit.take(now, command))
    }

    fn give_back(&self, command: &TargetIoCommand) {
        self.limit.iter().for_each(|limit| limit.give_back(command));
    }

    fn is_limited_as(&self, other: &Self) -> bool {
        let which = |namespace: &Self| namespace.limit.as_ref().map(Rc::as_ptr);
        which(self) == which(other)
    }

    /// Storage that lends its memory has no marked blocks.
    fn is_marked(&self, _command: &TargetIoCommand) -> bool {
        false
    }

    fn holds(&self, place: MemoryDestination, range: &ByteRange) -> bool {
        range.overlaps(&ByteRange { offset: place.offset, len: place.length.into() })
    }

    fn is_announced(&self) -> bool {
        false
    }

    fn put(&self, place: MemoryDestination, from: u32, bytes: &[u8]) {
        let memory = self.memory.as_ref().expect("it has lent the place");
        memory.put(place.offset + u64::from(from), bytes);
    }

    fn epoch(&self) -> Option<Epoch> {
        self.mark.is_some().then(|| self.stability.borrow().epoch())
    }

    fn wrote(&self, began: Epoch) {
        self.mark.iter().for_each(|mark| mark.wrote(began));
    }
}
