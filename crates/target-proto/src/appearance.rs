//! Active namespaces of each controller, and when a namespace appears whose NSID another one had before.

use super::config::NamespaceConfig;
use super::connected::ConnectedQueue;
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
        let controller = self.controllers.get(&cntlid)?;
        Some(self.subsystems.get(nqn)?.table_of(controller))
    }

    /// Returns the namespaces that are active for a queue. One whose controller is gone, and that is about to be closed,
    /// keeps those that its host sees: commands that have begun are not refused.
    #[must_use]
    pub fn namespaces_of(&self, queue: &ConnectedQueue) -> Option<Arc<SubsystemNamespaces>> {
        let subsystem = self.subsystems.get(&queue.subnqn)?;
        // Another host may have the identifier by now.
        let own = |controller: &&TargetController| controller.hostnqn == queue.hostnqn;
        Some(match self.controllers.get(&queue.cntlid).filter(own) {
            Some(controller) => subsystem.table_of(controller),
            None => subsystem.table_of_host(&queue.hostnqn),
        })
    }

    /// Records that the namespace `nsid` was `before` and is `after`, and notifies the hosts that see one of them. For a
    /// controller whose host saw the old one, the NSID becomes inactive if that one is gone or hidden.
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
            let host = controller.hostnqn.clone();
            let seen = |config: &&NamespaceConfig| config.view.shows_to(&host);
            let (before, after) = (before.filter(seen), after.filter(seen));
            if before.is_some() && (is_gone || after.is_none()) {
                controller.removed.add(nsid, before);
            }
            controller.removed.note_added(nsid, after);
            controller.notify(nsid, before, after);
            controller.complete_event_requests(&mut self.outbox);
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
                if subsystem.is_some_and(|subsystem| subsystem.seen(controller, nsid).is_some()) {
                    controller.changed.insert(nsid);
                    controller.ana.changes += 1;
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

impl TargetController {
    /// Notes the events of a namespace that its host saw as `before` and sees as `after`. An ANA state has an event of
    /// its own.
    fn notify(
        &mut self,
        nsid: u32,
        before: Option<&NamespaceConfig>,
        after: Option<&NamespaceConfig>,
    ) {
        let (is_another, is_ana_change) = match (before, after) {
            (None, None) => return,
            (Some(before), Some(after)) => changes(before, after),
            _ => (true, false),
        };
        self.ana.changes += 1;
        if is_ana_change {
            self.events.raise(EventNotice::AnaChange);
        }
        if is_another {
            self.changed.insert(nsid);
            self.events.raise(EventNotice::NamespaceAttribute);
        }
    }
}

/// Returns whether a namespace's attributes have changed, and its ANA state or group.
fn changes(before: &NamespaceConfig, after: &NamespaceConfig) -> (bool, bool) {
    let (ana, ownership_term, view) = (before.ana, before.ownership_term, before.view.clone());
    let is_another = *before != NamespaceConfig { ana, ownership_term, view, ..after.clone() };
    let ana = |config: &NamespaceConfig| (config.ana, config.view.ana_group);
    let is_ana_change = ana(before) != ana(after);
    // An operator has requested the change, even if hosts see no difference. Hosts that saw the namespace before and
    // after a change of its hosts see none.
    let is_for_others = before.view.hosts != after.view.hosts;
    (is_another || !(is_ana_change || is_for_others), is_ana_change)
}
