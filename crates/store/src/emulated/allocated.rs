//! Allocation of logical blocks, as that of their physical blocks.

use super::EmulatedBlocks;
use crate::{ByteRange, StoreCompletion, StoreContinuation, StoreIo, StoreToken};
use roadtrain_wire::lba_status::{LbaStatusList, condition, parse_list};
use std::sync::Arc;

/// A query of logical blocks that the store below executes for physical blocks.
pub(super) struct PhysicalQuery {
    blocks: Arc<EmulatedBlocks>,
    /// First logical block of the query.
    first: u64,
    /// Logical block behind the query.
    end: u64,
    /// Logical blocks of a physical block as a power of two.
    shift: u8,
}

impl PhysicalQuery {
    pub(super) fn new(
        blocks: &Arc<EmulatedBlocks>,
        range: ByteRange,
        lba_shift: u8,
    ) -> PhysicalQuery {
        let (first, end) = (range.offset >> lba_shift, (range.offset + range.len) >> lba_shift);
        let shift = blocks.physical_shift - lba_shift;
        PhysicalQuery { blocks: blocks.clone(), first, end, shift }
    }

    /// Changes a list of physical blocks into one of logical blocks, no longer than the query.
    fn translate(&self, bytes: &mut [u8]) {
        let Some((head, descriptors)) = parse_list(bytes) else { return };
        let mut reason = head.condition;
        let physical: Vec<(u64, u64)> =
            descriptors.iter().map(|d| (d.dslba.get(), u64::from(d.nlb.get()) + 1)).collect();
        let mut list = LbaStatusList::new(bytes);
        for (first, blocks) in physical {
            let from = (first << self.shift).max(self.first);
            let to = ((first + blocks) << self.shift).min(self.end);
            // More descriptors than before: a physical range may be too long for one.
            if from < to && !list.add(from, to - from) {
                reason = condition::NO_ROOM;
                break;
            }
        }
        list.end(reason);
    }
}

impl StoreContinuation for PhysicalQuery {
    fn answered(&self, mut completion: StoreCompletion, io: &mut StoreIo<'_>) {
        if let (Ok(()), Some(buffer)) = (completion.result, &mut completion.buffer) {
            self.translate(buffer);
        }
        io.complete(completion);
    }

    fn cancel(&self, token: StoreToken) {
        self.blocks.below.cancel(token);
    }
}
