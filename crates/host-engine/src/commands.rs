//! The commands of a link, as far as a link needs to know them.

use super::api::Completion;
use super::ether::Source;
use roadtrain_proto::time::Instant;
use roadtrain_reactor::connection::Place;
use roadtrain_wire::cqe::Cqe;
use std::collections::VecDeque;

/// The end of a slot's command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ending {
    pub(super) cqe: Cqe,
    /// All data has moved, unchanged.
    pub(super) data_intact: bool,
    /// The kernel may still read what was sent: a buffer cannot go back yet.
    pub(super) blocked: bool,
}

/// A command that has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct HasEnded {
    /// Bytes of its data.
    pub(super) bytes: u64,
    /// Duration of its request; 0 when it is tried again.
    pub(super) latency_ns: u64,
}

/// Commands by slot: where their data is, and what becomes of them.
pub(crate) trait Commands: Source {
    /// Where data of the slot's command belongs. It stays there until the command has ended.
    fn place(&mut self, slot: u16, offset: u32, length: u32) -> Option<Place>;
    /// Copies data of the slot's command to where it belongs.
    fn fill(&mut self, slot: u16, offset: u32, data: &[u8]);
    /// The slot's command has ended. `None`: the slot was not used, or nobody counts the command.
    fn end(
        &mut self,
        slot: u16,
        end: &Ending,
        now: Instant,
        completions: &mut VecDeque<Completion>,
    ) -> Option<HasEnded>;
}
