//! Commands in flight with their data, and completed ones.

use crate::api::IoCompletion;
use crate::commands::{CommandEnd, EndedLinkCommand, LinkCommands};
use crate::ether::CommandDataSource;
use roadtrain_proto::time::Instant;
use roadtrain_reactor::connection::PayloadDestination;
use roadtrain_wire::cqe::Cqe;
use std::collections::VecDeque;

/// Completed command.
pub(super) struct PostedCompletion {
    pub(super) slot: u16,
    pub(super) cqe: Cqe,
    /// Data from the target.
    pub(super) input: Vec<u8>,
}

/// Data of a command, in either direction.
struct CommandData {
    out: Vec<u8>,
    input: Vec<u8>,
}

/// Commands of a queue.
#[derive(Default)]
pub(super) struct PendingCommands {
    /// Commands in flight, by slot.
    slots: Vec<Option<CommandData>>,
    completed: VecDeque<PostedCompletion>,
    /// Data of completed commands that the kernel may still read.
    sent: Vec<Vec<u8>>,
}

impl PendingCommands {
    /// Records a submitted command.
    pub(super) fn begin(&mut self, slot: u16, out: Vec<u8>, input: Vec<u8>) {
        let slot = usize::from(slot);
        let slots = self.slots.len().max(slot + 1);
        self.slots.resize_with(slots, || None);
        self.slots[slot] = Some(CommandData { out, input });
    }

    /// Takes the completion of the command in a slot.
    pub(super) fn take(&mut self, slot: u16) -> Option<PostedCompletion> {
        let at = self.completed.iter().position(|completed| completed.slot == slot)?;
        self.completed.remove(at)
    }

    /// Takes the oldest completion.
    pub(super) fn take_first(&mut self) -> Option<PostedCompletion> {
        self.completed.pop_front()
    }

    pub(super) fn has_completed(&self) -> bool {
        !self.completed.is_empty()
    }

    /// Frees the data of completed commands: none of it is being sent.
    pub(super) fn forget_sent(&mut self) {
        self.sent.clear();
    }

    fn get_mut(&mut self, slot: u16) -> Option<&mut CommandData> {
        self.slots.get_mut(usize::from(slot))?.as_mut()
    }
}

impl CommandDataSource for PendingCommands {
    fn data(&self, slot: u16, offset: u32, length: u32) -> Option<&[u8]> {
        let data = self.slots.get(usize::from(slot))?.as_ref()?;
        data.out.get(offset as usize..)?.get(..length as usize)
    }
}

impl LinkCommands for PendingCommands {
    fn place(&mut self, slot: u16, offset: u32, length: u32) -> Option<PayloadDestination> {
        let input = &mut self.get_mut(slot)?.input;
        let place = input.get_mut(offset as usize..)?.get_mut(..length as usize)?;
        Some(PayloadDestination { data: place.as_mut_ptr(), length: place.len() })
    }

    fn fill(&mut self, slot: u16, offset: u32, data: &[u8]) {
        if let Some(command) = self.get_mut(slot) {
            command.input[offset as usize..][..data.len()].copy_from_slice(data);
        }
    }

    /// Ends a command, which is neither counted nor recorded.
    fn end(
        &mut self,
        slot: u16,
        end: &CommandEnd,
        _: Instant,
        _: &mut VecDeque<IoCompletion>,
    ) -> Option<EndedLinkCommand> {
        let CommandData { out, input } = self.slots.get_mut(usize::from(slot))?.take()?;
        self.completed.push_back(PostedCompletion { slot, cqe: end.cqe, input });
        self.sent.push(out);
        None
    }
}
