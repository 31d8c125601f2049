//! ANA states of controllers' paths at a running target, which may change, and end with the target.

use super::ana::AnaState;
use super::control::TargetControl;
use super::controller::TargetController;
use super::events::EventNotice;
use super::kind::ControllerKind;
use super::listen;
use super::path_states::PathStates;
use super::target_event::TargetEvent;
use core::net::SocketAddr;
use std::collections::BTreeSet;

impl TargetControl {
    /// Returns the ANA state of a controller with the local address `local`.
    pub(super) fn ana_at(&self, local: SocketAddr) -> AnaState {
        if self.is_leaving() { AnaState::Inaccessible } else { self.config.ana.at(local) }
    }

    /// Returns the states of a path to a subsystem, which may have states of its own for the listener and for groups.
    pub(super) fn path_states(&self, nqn: &str, local: SocketAddr) -> PathStates {
        let state = self.ana_at(local);
        let Some(subsystem) = self.subsystems.get(nqn) else {
            return PathStates { state, ..PathStates::default() };
        };
        let listeners = subsystem.listeners.as_ref();
        let own = listen::path_state(listeners, &self.config.listeners, local).unwrap_or_default();
        let groups = subsystem.ana_groups.iter();
        let groups = groups.filter_map(|(group, states)| Some((*group, states.find(local)?)));
        let groups = groups.map(|(group, own)| (group, state.or_worse(own))).collect();
        PathStates { state: state.or_worse(own), groups }
    }

    /// Notifies the hosts of controllers whose path has another state now.
    pub(super) fn update_ana(&mut self) {
        let mut changed = BTreeSet::new();
        let states: Vec<_> =
            self.controllers.values().map(|c| self.path_states(&c.subnqn, c.local)).collect();
        for (controller, state) in self.controllers.values_mut().zip(states) {
            if controller.kind == ControllerKind::Io && controller.ana.set_path(state) {
                controller.events.raise(EventNotice::AnaChange);
                controller.complete_event_requests(&mut self.outbox);
                changed.insert(controller.subnqn.clone());
            }
        }
        self.outbox.extend(changed.into_iter().map(|nqn| TargetEvent::NamespacesChanged { nqn }));
    }

    /// Prepares the end of the target: no namespace is accessible from now on, and discovery logs lose its entries.
    /// Hosts are notified.
    pub fn depart(&mut self) {
        if !std::mem::replace(&mut self.departing, true) {
            self.discovery_changed();
        }
        self.update_ana();
    }

    /// Prepares a handover to another process at the same addresses: no namespace is accessible from now on. Hosts are
    /// notified; discovery logs stay as they are.
    pub fn hand_over(&mut self) {
        self.handing_over = true;
        self.update_ana();
    }

    /// True after [`TargetControl::depart`] or [`TargetControl::hand_over`]: the target begins to serve nothing.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.departing || self.handing_over
    }

    /// True if every host with that event enabled has read the ANA log and the discovery log since their last change.
    #[must_use]
    pub fn is_departure_known(&self) -> bool {
        let notices = [EventNotice::AnaChange, EventNotice::DiscoveryLog];
        let knows =
            |c: &TargetController| !notices.iter().any(|&notice| c.events.is_unread(notice));
        self.controllers.values().all(knows)
    }
}
