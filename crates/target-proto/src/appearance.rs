//! Active namespaces of each controller, and when a namespace appears whose NSID another one had before.

use super::config::NamespaceConfig;
use super::control::TargetControl;
use super::controller::TargetController;
use super::events::EventNotice;
use super::kind::ControllerKind;
use super::namespace::SubsystemNamespaces;
use super::target_event::TargetEvent;
use roadtrain_proto::time::Instant;
use std::collections::BTreeSet;
use std::sync::Arc;

impl TargetControl {
    /// Returns the namespaces of a subsystem that are active for its controller `cntlid`.
    #[must_use]
    pub fn namespaces_for(&self, nqn: &str, cntlid: u16) -> Option<Arc<SubsystemNamespaces>> {
        let table = self.namespaces(nqn)?;
        let Some(controller) = self.controllers.get(&cntlid) else { return Some(table) };
        let (ana, removed) = (controller.ana.state, &controller.removed);
        if removed.is_empty() && ana == table.ana {
            return Some(table);
        }
        Some(Arc::new(table.without(|nsid| removed.hides(nsid)).over(ana)))
    }

    /// Records that the namespace `nsid` was `before` and is `after`. If the old one is gone, the NSID becomes inactive
    /// for the existing controllers.
    pub(super) fn note_change(
        &mut self,
        nqn: &str,
        nsid: u32,
        (before, after): (Option<&NamespaceConfig>, Option<&NamespaceConfig>),
        is_gone: bool,
    ) {
        let concerned =
            |c: &&mut TargetController| c.kind == ControllerKind::Io && *c.subnqn == *nqn;
        for controller in self.controllers.values_mut().filter(concerned) {
            if is_gone {
                controller.removed.add(nsid, before);
            }
            controller.removed.note_added(nsid, after);
        }
        // Other NSIDs keep the timers that they have.
        let controllers = self.controllers.values();
        let deadline = controllers.filter_map(|c| c.removed.deadline_of(nsid)).min();
        self.set_timer(deadline);
    }

    /// Makes namespaces appear whose NSID every controller of a host has seen inactive for long enough. All of a host's
    /// controllers count together: a host with several paths takes a namespace that appears on one path for another
    /// path to the one that is still there on another.
    pub(super) fn reveal_due_namespaces(&mut self, now: Instant) {
        let controllers = || self.controllers.values();
        let not_due: BTreeSet<_> = controllers()
            .flat_map(|c| c.removed.due(now).map(move |(nsid, due)| (c, nsid, due)))
            .filter(|(_, _, due)| !due)
            .map(|(c, nsid, _)| (c.subnqn.clone(), c.hostnqn.clone(), nsid))
            .collect();
        let mut changed = BTreeSet::new();
        for controller in self.controllers.values_mut() {
            let (subnqn, hostnqn) = (controller.subnqn.clone(), controller.hostnqn.clone());
            let waits = |nsid| not_due.contains(&(subnqn.clone(), hostnqn.clone(), nsid));
            let due = controller.removed.due(now).filter(|&(nsid, due)| due && !waits(nsid));
            for nsid in due.map(|(nsid, _)| nsid).collect::<Vec<_>>() {
                controller.removed.reveal(nsid);
                let subsystem = self.subsystems.get(&subnqn);
                if subsystem.is_some_and(|subsystem| subsystem.namespaces.contains_key(&nsid)) {
                    controller.changed.insert(nsid);
                    controller.events.raise(EventNotice::NamespaceAttribute);
                    controller.complete_event_requests(&mut self.outbox);
                    changed.insert(subnqn.clone());
                }
            }
        }
        self.outbox.extend(changed.into_iter().map(|nqn| TargetEvent::NamespacesChanged { nqn }));
    }

    /// Returns the next time at which [`TargetControl::reveal_due_namespaces`] has something to do. NSIDs that are due by
    /// `after` wait for another controller.
    pub(super) fn next_appearance(&self, after: Option<Instant>) -> Option<Instant> {
        let deadlines = self.controllers.values().flat_map(|c| c.removed.deadlines());
        deadlines.filter(|deadline| after.is_none_or(|after| *deadline > after)).min()
    }
}
