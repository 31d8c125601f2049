//! Outcomes of commands of the control plane, and status queries for lanes.

use core::time::Duration;
use roadtrain_proto::op::ByteRange;
use roadtrain_wire::lba_status::{LbaStatusList, condition};
use roadtrain_wire::status::Status;

/// Outcome of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminOutcome {
    /// Complete the command so; data, if any, only with success.
    Complete { status: Status, result: u64 },
    /// The command is an Asynchronous Event Request, an Abort, a Cross-Controller Reset or a change of namespaces: a
    /// [`TargetEvent::Completion`](super::TargetEvent::Completion) will complete it, maybe at once.
    Pending,
    /// The command is a valid Get LBA Status: the lane queries the namespace's store, and completes the command.
    QueryLbaStatus(LbaStatusQuery),
    /// The command is Disconnect: complete it with success, then close the connection. The controller has dropped the
    /// queue.
    Disconnected,
}

/// Query for the allocated blocks of a namespace, from Get LBA Status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LbaStatusQuery {
    /// Namespace.
    pub nsid: u32,
    /// Block size as a power of two.
    pub lba_shift: u8,
    /// First block.
    pub slba: u64,
    /// Number of blocks.
    pub blocks: u64,
    /// Size of the list in bytes.
    pub bytes: u32,
    /// Longest wait for the store.
    pub timeout: Duration,
}

impl LbaStatusQuery {
    /// Returns the range in bytes.
    #[must_use]
    pub fn range(&self) -> ByteRange {
        ByteRange { offset: self.slba << self.lba_shift, len: self.blocks << self.lba_shift }
    }

    /// Writes a list to `place` that reports the whole range as allocated. That is always safe, because no data is
    /// taken for a hole.
    pub fn report_allocated(&self, place: &mut [u8]) {
        let mut list = LbaStatusList::new(place);
        let is_whole = list.add(self.slba, self.blocks);
        list.end(if is_whole { condition::COMPLETE } else { condition::NO_ROOM });
    }
}
