//! Namespaces that went while hosts used them, and what has come under their NSIDs since.
//!
//! A host that has not noticed yet goes on writing to the NSID. So what comes under it stays inactive for every
//! controller that knew the old namespace, until its host has been shown that the NSID is inactive and has had
//! time to act on it. Then it appears, with an event of its own: a namespace that goes, and another that comes.

use super::control::{Target, TargetEvent, pump};
use super::controller::ControllerKind;
use super::events::Notice;
use super::namespace::NamespaceTable;
use crate::time::Instant;
use core::ops::RangeBounds;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a host takes at most from reading that an NSID is inactive until it sends nothing more there. Linux reads
/// the other namespaces first, about a millisecond each.
pub(super) const NOTICE_TIME: Duration = Duration::from_secs(5);

/// NSIDs whose namespace went while the controller had it.
#[derive(Debug, Default)]
pub(super) struct RemovedNamespaces {
    /// When the host was shown that it is inactive.
    shown: BTreeMap<u32, Option<Instant>>,
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

    fn deadlines(&self) -> impl Iterator<Item = Instant> {
        self.shown.values().filter_map(|shown| Some((*shown)? + NOTICE_TIME))
    }

    /// NSIDs, and whether each has had its time.
    fn ripe(&self, now: Instant) -> impl Iterator<Item = (u32, bool)> {
        let ripe = move |shown: &Option<Instant>| shown.is_some_and(|at| at + NOTICE_TIME <= now);
        self.shown.iter().map(move |(nsid, shown)| (*nsid, ripe(shown)))
    }
}

impl Target {
    /// The namespaces of a subsystem that are active for its controller `cntlid`.
    #[must_use]
    pub fn namespaces_for(&self, nqn: &str, cntlid: u16) -> Option<Arc<NamespaceTable>> {
        let table = self.namespaces(nqn)?;
        match self.controllers.get(&cntlid) {
            Some(controller) if !controller.removed.shown.is_empty() => {
                Some(Arc::new(table.without(|nsid| controller.removed.hides(nsid))))
            }
            _ => Some(table),
        }
    }

    /// The namespace `nsid` has gone, or another is there now: inactive for the controllers there are.
    pub(super) fn mark_removed(&mut self, nqn: &str, nsid: u32) {
        let concerned = |c: &&mut super::controller::Controller| {
            c.kind == ControllerKind::Io && *c.subnqn == *nqn
        };
        self.controllers.values_mut().filter(concerned).for_each(|c| c.removed.add(nsid));
    }

    /// Lets namespaces appear whose NSID every controller of a host has seen inactive for long enough. All of them
    /// together: a host with several paths takes what comes on one for another path to what is still on another.
    pub(super) fn let_appear(&mut self, now: Instant) {
        let controllers = || self.controllers.values();
        let unripe: BTreeSet<_> = controllers()
            .flat_map(|c| c.removed.ripe(now).map(move |(nsid, ripe)| (c, nsid, ripe)))
            .filter(|(_, _, ripe)| !ripe)
            .map(|(c, nsid, _)| (c.subnqn.clone(), c.hostnqn.clone(), nsid))
            .collect();
        let mut changed = BTreeSet::new();
        for controller in self.controllers.values_mut() {
            let (subnqn, hostnqn) = (controller.subnqn.clone(), controller.hostnqn.clone());
            let waits = |nsid| unripe.contains(&(subnqn.clone(), hostnqn.clone(), nsid));
            let ripe = controller.removed.ripe(now).filter(|&(nsid, ripe)| ripe && !waits(nsid));
            for nsid in ripe.map(|(nsid, _)| nsid).collect::<Vec<_>>() {
                controller.removed.shown.remove(&nsid);
                let subsystem = self.subsystems.get(&subnqn);
                if subsystem.is_some_and(|subsystem| subsystem.namespaces.contains_key(&nsid)) {
                    controller.changed.insert(nsid);
                    controller.events.raise(Notice::NamespaceAttribute);
                    pump(controller, &mut self.outbox);
                    changed.insert(subnqn.clone());
                }
            }
        }
        self.outbox.extend(changed.into_iter().map(|nqn| TargetEvent::NamespacesChanged { nqn }));
    }

    /// When [`Target::let_appear`] will find something to do; what has had its time by `after` waits for another
    /// controller.
    pub(super) fn appearance(&self, after: Option<Instant>) -> Option<Instant> {
        let deadlines = self.controllers.values().flat_map(|c| c.removed.deadlines());
        deadlines.filter(|deadline| after.is_none_or(|after| *deadline > after)).min()
    }
}
