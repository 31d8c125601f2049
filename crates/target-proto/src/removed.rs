//! Removed namespaces that hosts may still use, and new ones under their NSIDs.
//!
//! A host that has not noticed the removal continues to write to the NSID. So a new namespace under it stays inactive
//! for every controller that knew the old one. The host first has to read that the NSID is inactive, and needs time to
//! react. Then the new one appears, with an event of its own: one namespace is removed, and another is added. The same
//! blocks appear as soon as the host has read that they are gone: later writes of the host are meant for them.

use super::config::NamespaceConfig;
use super::identity::NamespaceId;
use core::ops::RangeBounds;
use core::time::Duration;
use roadtrain_proto::time::Instant;
use std::collections::BTreeMap;

/// Longest time from a host's read of an inactive NSID to its last command there. Linux reads the other namespaces
/// first, about a millisecond each.
pub(super) const NOTICE_TIME: Duration = Duration::from_secs(5);

/// Identity and block size of a namespace's blocks; `None`: they have no identity.
type BlockIdentity = Option<(NamespaceId, u8)>;

fn blocks(config: &NamespaceConfig) -> BlockIdentity {
    Some((config.id?, config.lba_shift))
}

/// A namespace that was removed while the controller had it.
#[derive(Debug)]
struct RemovedNamespace {
    blocks: BlockIdentity,
    /// Time at which the host has read that the NSID is inactive.
    shown: Option<Instant>,
    /// True if the same blocks are under the NSID again.
    is_back: bool,
}

impl RemovedNamespace {
    /// Returns when the NSID is no longer hidden; `None`: the host has to read first that it is inactive.
    fn deadline(&self) -> Option<Instant> {
        let time = if self.is_back { Duration::ZERO } else { NOTICE_TIME };
        Some(self.shown? + time)
    }
}

/// NSIDs whose namespace was removed while the controller had it.
#[derive(Debug, Default)]
pub(super) struct RemovedNamespaces {
    removed: BTreeMap<u32, RemovedNamespace>,
}

impl RemovedNamespaces {
    /// Records the removal of the namespace `old`.
    pub(super) fn add(&mut self, nsid: u32, old: Option<&NamespaceConfig>) {
        // The host does not know a namespace that was added while the NSID was hidden.
        let known = self.removed.remove(&nsid).map(|removed| removed.blocks);
        let blocks = known.unwrap_or_else(|| old.and_then(blocks));
        self.removed.insert(nsid, RemovedNamespace { blocks, shown: None, is_back: false });
    }

    /// Records that the namespace `new` exists now.
    pub(super) fn note_added(&mut self, nsid: u32, new: Option<&NamespaceConfig>) {
        if let Some(removed) = self.removed.get_mut(&nsid) {
            let new = new.and_then(blocks);
            removed.is_back = new.is_some() && new == removed.blocks;
        }
    }

    /// True if nothing is hidden.
    pub(super) fn is_empty(&self) -> bool {
        self.removed.is_empty()
    }

    /// Ends the hiding of `nsid`.
    pub(super) fn reveal(&mut self, nsid: u32) {
        self.removed.remove(&nsid);
    }

    /// True if `nsid` is inactive, even if a namespace has it now.
    pub(super) fn hides(&self, nsid: u32) -> bool {
        self.removed.contains_key(&nsid)
    }

    /// Records that the host has read which of `nsids` are inactive.
    pub(super) fn show(&mut self, nsids: impl RangeBounds<u32>, now: Instant) {
        for (_, removed) in self.removed.range_mut(nsids) {
            removed.shown.get_or_insert(now);
        }
    }

    /// Returns the deadline of `nsid`, if the host has read that it is inactive.
    pub(super) fn deadline_of(&self, nsid: u32) -> Option<Instant> {
        self.removed.get(&nsid).and_then(RemovedNamespace::deadline)
    }

    /// Returns the earliest deadline of an NSID that the host has read.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadlines().min()
    }

    pub(super) fn deadlines(&self) -> impl Iterator<Item = Instant> {
        self.removed.values().filter_map(RemovedNamespace::deadline)
    }

    /// Returns all NSIDs; true for those whose deadline has passed.
    pub(super) fn due(&self, now: Instant) -> impl Iterator<Item = (u32, bool)> {
        let due = move |removed: &RemovedNamespace| removed.deadline().is_some_and(|at| at <= now);
        self.removed.iter().map(move |(nsid, removed)| (*nsid, due(removed)))
    }
}
