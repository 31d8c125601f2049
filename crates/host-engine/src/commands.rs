//! Commands of a link, as the link uses them.

use super::api::IoCompletion;
use super::ether::CommandDataSource;
use roadtrain_proto::time::Instant;
use roadtrain_reactor::connection::PayloadDestination;
use roadtrain_wire::cqe::Cqe;
use std::collections::VecDeque;

/// Completion of a slot's command.
#[derive(Clone, Copy, Debug)]
pub(super) struct CommandEnd {
    pub(super) cqe: Cqe,
    /// True if all data was transferred intact.
    pub(super) data_intact: bool,
    /// True if the kernel may still read sent data: its buffer cannot be returned yet.
    pub(super) blocked: bool,
}

/// Ended command.
#[derive(Clone, Copy, Debug)]
pub(super) struct EndedLinkCommand {
    /// Bytes of its data.
    pub(super) bytes: u64,
    /// Latency of its request in nanoseconds; 0 if it is retried.
    pub(super) latency_ns: u64,
}

/// Commands by slot: their data buffers, and their completion.
pub(crate) trait LinkCommands: CommandDataSource {
    /// Returns the buffer for data of the slot's command. It stays valid until the command has ended.
    fn place(&mut self, slot: u16, offset: u32, length: u32) -> Option<PayloadDestination>;
    /// Copies data into the buffer of the slot's command.
    fn fill(&mut self, slot: u16, offset: u32, data: &[u8]);
    /// Ends the slot's command. `None`: the slot was not used, or the command is not counted.
    fn end(
        &mut self,
        slot: u16,
        end: &CommandEnd,
        now: Instant,
        completions: &mut VecDeque<IoCompletion>,
    ) -> Option<EndedLinkCommand>;
}
