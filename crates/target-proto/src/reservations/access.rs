//! Commands of a host that a namespace's reservation forbids.

use super::group::CommandGroup;
use super::state::{HostId, ReservationState};
use core::sync::atomic::{AtomicU8, Ordering};

/// Commands that a host may not execute on a namespace. All lanes of the host share it; it is written only on a change.
#[derive(Debug, Default)]
pub struct HostAccess(AtomicU8);

impl HostAccess {
    /// True if commands of that group are refused. One load, of a cache line that is not written until a change.
    #[inline]
    #[must_use]
    pub fn refuses(&self, group: CommandGroup) -> bool {
        let refused = self.0.load(Ordering::Acquire);
        refused != 0 && refused & group.bit() != 0
    }

    /// Updates the value for `host` from `state`. Returns true if more is refused now.
    pub(super) fn set(&self, state: &ReservationState, host: &HostId) -> bool {
        let refused = [CommandGroup::Read, CommandGroup::Write].into_iter();
        let refused =
            refused.filter(|group| state.refuses(host, *group)).map(CommandGroup::bit).sum();
        let before = self.0.swap(refused, Ordering::AcqRel);
        refused & !before != 0
    }
}
