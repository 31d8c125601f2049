//! Ends of commands of the control plane, and what lanes look up for them.

use core::time::Duration;
use roadtrain_proto::op::ByteRange;
use roadtrain_wire::lba_status::{LbaStatusList, condition};
use roadtrain_wire::status::Status;

/// End of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Answer with this; data, if any, only with success.
    Complete { status: Status, result: u64 },
    /// An Asynchronous Event Request, an Abort or a Cross-Controller Reset was taken: a
    /// [`TargetEvent::Completion`](super::TargetEvent::Completion) will answer it, maybe at once.
    Pending,
    /// A Get LBA Status was taken: the lane has the namespace's store looked at, and answers it.
    LookUp(LookUp),
    /// Disconnect: answer with success, then close the connection; the controller knows the queue no
    /// more.
    Disconnected,
}

/// Blocks of a namespace of which the host wants to know whether they are allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookUp {
    /// The namespace.
    pub nsid: u32,
    /// Its block size as a power of two.
    pub lba_shift: u8,
    /// The first block.
    pub slba: u64,
    /// Number of blocks.
    pub blocks: u64,
    /// Octets of the list.
    pub bytes: u32,
    /// Longest wait for the store.
    pub patience: Duration,
}

impl LookUp {
    /// The range in octets.
    #[must_use]
    pub fn range(&self) -> ByteRange {
        ByteRange { offset: self.slba << self.lba_shift, len: self.blocks << self.lba_shift }
    }

    /// A list in `place` that calls all of the range allocated: what is always true enough, as nobody takes data for a
    /// hole by that.
    pub fn call_allocated(&self, place: &mut [u8]) {
        let mut list = LbaStatusList::new(place);
        let is_whole = list.add(self.slba, self.blocks);
        list.end(if is_whole { condition::COMPLETE } else { condition::NO_ROOM });
    }
}
