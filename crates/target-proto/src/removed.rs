//! Namespaces that went while hosts used them, and what has come under their NSIDs since.
//!
//! A host that has not noticed yet goes on writing to the NSID. So what comes under it stays inactive for every
//! controller that knew the old namespace, until its host has been shown that the NSID is inactive and has had
//! time to act on it. Then it appears, with an event of its own: a namespace that goes, and another that comes. The same
//! blocks appear as soon as the host has been shown that they went: what it still sends there is meant for them.

use super::config::NamespaceConfig;
use super::identity::NamespaceId;
use core::ops::RangeBounds;
use core::time::Duration;
use roadtrain_proto::time::Instant;
use std::collections::BTreeMap;

/// What a host takes at most from reading that an NSID is inactive until it sends nothing more there. Linux reads
/// the other namespaces first, about a millisecond each.
pub(super) const NOTICE_TIME: Duration = Duration::from_secs(5);

/// Identity and block size of a namespace's blocks; `None`: they have no identity.
type Blocks = Option<(NamespaceId, u8)>;

fn blocks(config: &NamespaceConfig) -> Blocks {
    Some((config.id?, config.lba_shift))
}

/// A namespace that went while the controller had it.
#[derive(Debug)]
struct Removed {
    blocks: Blocks,
    /// When the host was shown that the NSID is inactive.
    shown: Option<Instant>,
    /// The same blocks are under the NSID again.
    is_back: bool,
}

impl Removed {
    /// When it is no longer hidden; `None`: the host has to be shown first that it went.
    fn deadline(&self) -> Option<Instant> {
        let time = if self.is_back { Duration::ZERO } else { NOTICE_TIME };
        Some(self.shown? + time)
    }
}

/// NSIDs whose namespace went while the controller had it.
#[derive(Debug, Default)]
pub(super) struct RemovedNamespaces {
    removed: BTreeMap<u32, Removed>,
}

impl RemovedNamespaces {
    /// The namespace `old` has gone.
    pub(super) fn add(&mut self, nsid: u32, old: Option<&NamespaceConfig>) {
        // What came while it was hidden is not what the host knows.
        let known = self.removed.remove(&nsid).map(|removed| removed.blocks);
        let blocks = known.unwrap_or_else(|| old.and_then(blocks));
        self.removed.insert(nsid, Removed { blocks, shown: None, is_back: false });
    }

    /// The namespace `new` is there now.
    pub(super) fn come(&mut self, nsid: u32, new: Option<&NamespaceConfig>) {
        if let Some(removed) = self.removed.get_mut(&nsid) {
            let new = new.and_then(blocks);
            removed.is_back = new.is_some() && new == removed.blocks;
        }
    }

    /// Whether nothing is hidden.
    pub(super) fn is_empty(&self) -> bool {
        self.removed.is_empty()
    }

    /// `nsid` is hidden no more.
    pub(super) fn reveal(&mut self, nsid: u32) {
        self.removed.remove(&nsid);
    }

    /// Whether `nsid` is inactive, whatever is there now.
    pub(super) fn hides(&self, nsid: u32) -> bool {
        self.removed.contains_key(&nsid)
    }

    /// The host was shown which of `nsids` are inactive.
    pub(super) fn show(&mut self, nsids: impl RangeBounds<u32>, now: Instant) {
        for (_, removed) in self.removed.range_mut(nsids) {
            removed.shown.get_or_insert(now);
        }
    }

    /// When the first of those that the host was shown has had its time.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadlines().min()
    }

    pub(super) fn deadlines(&self) -> impl Iterator<Item = Instant> {
        self.removed.values().filter_map(Removed::deadline)
    }

    /// NSIDs, and whether each has had its time.
    pub(super) fn ripe(&self, now: Instant) -> impl Iterator<Item = (u32, bool)> {
        let ripe = move |removed: &Removed| removed.deadline().is_some_and(|at| at <= now);
        self.removed.iter().map(move |(nsid, removed)| (*nsid, ripe(removed)))
    }
}
