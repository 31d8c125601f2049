//! Ways of controllers to the namespaces of a running target, which may change, and end with the target.

use super::ana::AnaState;
use super::control::Target;
use super::controller::Controller;
use super::events::Notice;
use super::kind::ControllerKind;
use super::listen;
use super::target_event::TargetEvent;
use core::net::SocketAddr;
use std::collections::BTreeSet;

impl Target {
    /// The state of a controller that comes in at `local`.
    pub(super) fn ana_at(&self, local: SocketAddr) -> AnaState {
        if self.is_leaving() { AnaState::Inaccessible } else { self.config.ana.at(local) }
    }

    /// The same for a subsystem, which may say more about the listener.
    pub(super) fn ana_of(&self, nqn: &str, local: SocketAddr) -> AnaState {
        let subsystem = self.subsystems.get(nqn);
        let listeners = subsystem.and_then(|subsystem| subsystem.listeners.as_ref());
        let own = listen::way(listeners, &self.config.listeners, local).unwrap_or_default();
        self.ana_at(local).or_worse(own)
    }

    /// Tells the hosts of controllers whose way has another state now.
    pub(super) fn update_ana(&mut self) {
        let mut changed = BTreeSet::new();
        let states: Vec<_> =
            self.controllers.values().map(|c| self.ana_of(&c.subnqn, c.local)).collect();
        for (controller, state) in self.controllers.values_mut().zip(states) {
            if controller.kind == ControllerKind::Io && controller.ana.becomes(state) {
                controller.events.raise(Notice::AnaChange);
                controller.pump(&mut self.outbox);
                changed.insert(controller.subnqn.clone());
            }
        }
        self.outbox.extend(changed.into_iter().map(|nqn| TargetEvent::NamespacesChanged { nqn }));
    }

    /// The target is about to end: no namespace is in reach here from now on, and no discovery log has its entries;
    /// hosts are told.
    pub fn depart(&mut self) {
        if !std::mem::replace(&mut self.departing, true) {
            self.discovery_changed();
        }
        self.update_ana();
    }

    /// Another process is about to go on at the same addresses: no namespace is in reach here from now on, which hosts are
    /// told. Discovery logs stay as they are.
    pub fn hand_over(&mut self) {
        self.handing_over = true;
        self.update_ana();
    }

    /// True if it departs, or hands over: it does not begin to serve anything.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.departing || self.handing_over
    }

    /// True if every host that wanted to hear of it has read the ANA log since its way has changed last, and the
    /// discovery log since that has.
    #[must_use]
    pub fn is_departure_known(&self) -> bool {
        let notices = [Notice::AnaChange, Notice::DiscoveryLog];
        let knows = |c: &Controller| !notices.iter().any(|&notice| c.events.is_unread(notice));
        self.controllers.values().all(knows)
    }
}
