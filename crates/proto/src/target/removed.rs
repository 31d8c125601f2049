//! Namespaces that went while hosts used them, and what has come under their NSIDs since.
//!
//! A host that has not noticed yet goes on writing to the NSID. So what comes under it stays inactive for every
//! controller that knew the old namespace, until its host has been shown that the NSID is inactive and has had
//! time to act on it. Then it appears, with an event of its own: a namespace that goes, and another that comes.

use crate::time::Instant;
use core::ops::RangeBounds;
use core::time::Duration;
use std::collections::BTreeMap;

/// What a host takes at most from reading that an NSID is inactive until it sends nothing more there. Linux reads
/// the other namespaces first, about a millisecond each.
pub(super) const NOTICE_TIME: Duration = Duration::from_secs(5);

/// NSIDs whose namespace went while the controller had it.
#[derive(Debug, Default)]
pub(super) struct RemovedNamespaces {
    /// When the host was shown that it is inactive.
    pub(super) shown: BTreeMap<u32, Option<Instant>>,
}

impl RemovedNamespaces {
    /// Its namespace has gone.
    pub(super) fn add(&mut self, nsid: u32) {
        self.shown.insert(nsid, None);
    }

    /// Whether `nsid` is inactive, whatever is there now.
    pub(super) fn hides(&self, nsid: u32) -> bool {
        self.shown.contains_key(&nsid)
    }

    /// The host was shown which of `nsids` are inactive.
    pub(super) fn show(&mut self, nsids: impl RangeBounds<u32>, now: Instant) {
        for (_, shown) in self.shown.range_mut(nsids) {
            shown.get_or_insert(now);
        }
    }

    /// When the first of those that the host was shown has had its time.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadlines().min()
    }

    pub(super) fn deadlines(&self) -> impl Iterator<Item = Instant> {
        self.shown.values().filter_map(|shown| Some((*shown)? + NOTICE_TIME))
    }

    /// NSIDs, and whether each has had its time.
    pub(super) fn ripe(&self, now: Instant) -> impl Iterator<Item = (u32, bool)> {
        let ripe = move |shown: &Option<Instant>| shown.is_some_and(|at| at + NOTICE_TIME <= now);
        self.shown.iter().map(move |(nsid, shown)| (*nsid, ripe(shown)))
    }
}
