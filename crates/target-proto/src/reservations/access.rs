//! What the reservation of a namespace forbids a host.

use super::group::Group;
use super::state::{HostId, State};
use core::sync::atomic::{AtomicU8, Ordering};

/// What a host may not do with a namespace by now. All lanes of the host share it; it is written when that changes.
#[derive(Debug, Default)]
pub struct Access(AtomicU8);

impl Access {
    /// Whether commands of that group are refused. One load, of a line that nobody writes while nothing changes.
    #[inline]
    #[must_use]
    pub fn refuses(&self, group: Group) -> bool {
        let refused = self.0.load(Ordering::Acquire);
        refused != 0 && refused & group.bit() != 0
    }

    /// Makes it what `state` says of `host`. Whether more is refused now.
    pub(super) fn set(&self, state: &State, host: &HostId) -> bool {
        let refused = [Group::Read, Group::Write].into_iter();
        let refused = refused.filter(|group| state.refuses(host, *group)).map(Group::bit).sum();
        let before = self.0.swap(refused, Ordering::AcqRel);
        refused & !before != 0
    }
}
