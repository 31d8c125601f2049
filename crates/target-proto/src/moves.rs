//! Moves of lanes from one reactor to another: when a lane may leave, and which events are forwarded to it.
//!
//! The control plane sends events to all reactors, and each takes them from its inbox in its own time. A move has a
//! fixed order among these events: the old reactor sends the lane, and a mark to itself, while the control plane is
//! locked.
//! one order with them: its old reactor sends the lane, and a mark to itself, while the control plane is locked.
//!
//! ```text
//! old reactor                          locked                 new reactor
//! receives nothing more
//! nothing in a store,
//! nothing unsent
//! sends the lane -----------------> in one order with ------> takes it, and catches up
//! sends itself a mark                all events
//! takes events from before the mark:
//! forwards those for the lane ------------------------------> applies them
//! reaches the mark -----------------------------------------> may send the lane on
//! ```
//!
//! So each event reaches the lane once, at either reactor. The event of a host's new connection is not forwarded: the
//! lane ends at the end of its bytes, and no Connect is completed before.

use crate::TargetEvent;
use crate::session::{ConnectionState, TargetConnection};

/// Relation of a lane to its reactor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LanePlacement {
    /// True if it is to move to another reactor: it receives nothing more here.
    pub is_leaving: bool,
    /// True if it has come from another reactor, which may still forward events to it.
    pub is_arriving: bool,
}

impl LanePlacement {
    /// True if the lane may move at some time: its queue is an I/O queue, and no event is still forwarded to it.
    #[must_use]
    pub fn is_movable(self, session: &TargetConnection) -> bool {
        let is_io = session.queue().is_some_and(|connected| connected.qid > 0);
        is_io && session.state() == ConnectionState::Live && !self.is_arriving
    }

    /// True if the lane may move now: none of its commands is in a store. Unsent bytes are the driver's to check.
    #[must_use]
    pub fn may_move_now(self, session: &TargetConnection) -> bool {
        session.state() == ConnectionState::Live && session.in_store() == 0 && !self.is_arriving
    }

    /// Records the lane's arrival at another reactor.
    pub fn arrive(&mut self) {
        *self = LanePlacement { is_leaving: false, is_arriving: true };
    }
}

/// A lane that has left a reactor whose inbox may hold events for it.
#[derive(Clone, Debug)]
struct Departed {
    ticket: u64,
    /// Controller and queue.
    queue: (u16, u16),
    to: usize,
}

/// Lanes that have left a reactor whose inbox may hold events for them. A ticket identifies a lane.
#[derive(Clone, Debug, Default)]
pub struct Departures(Vec<Departed>);

impl Departures {
    /// Records that a lane leaves for reactor `to`. Returns false if it has no queue, and stays.
    #[must_use]
    pub fn leave(&mut self, ticket: u64, session: &TargetConnection, to: usize) -> bool {
        let Some(connected) = session.queue() else { return false };
        self.0.push(Departed { ticket, queue: (connected.cntlid, connected.qid), to });
        true
    }

    /// Returns the reactors and tickets of lanes that an event concerns.
    pub fn followed_by(&self, event: &TargetEvent) -> impl Iterator<Item = (usize, u64)> {
        let queue = match event {
            TargetEvent::Close { cntlid, qid, .. }
            | TargetEvent::Abort { cntlid, qid, .. }
            | TargetEvent::Quiesce { cntlid, qid } => Some((*cntlid, *qid)),
            // These are for an admin queue, which stays.
            TargetEvent::Completion { .. } | TargetEvent::EventCompletion { .. } => None,
            // A lane fetches its namespaces, and is fenced, on arrival.
            TargetEvent::NamespacesChanged { .. } | TargetEvent::Fence { .. } => None,
            // These are for no lane, or for a command that keeps its lane from leaving.
            TargetEvent::Save { .. }
            | TargetEvent::Reserved { .. }
            | TargetEvent::NamespaceRequest { .. } => None,
        };
        let of_it = self.0.iter().filter(move |departed| Some(departed.queue) == queue);
        of_it.map(|departed| (departed.to, departed.ticket))
    }

    /// Ends the forwarding to a lane at its mark, behind which no event is left for it. Returns the lane's reactor.
    pub fn settle(&mut self, ticket: u64) -> Option<usize> {
        let index = self.0.iter().position(|departed| departed.ticket == ticket)?;
        Some(self.0.swap_remove(index).to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CloseReason;

    fn close(cntlid: u16, qid: u16) -> TargetEvent {
        TargetEvent::Close { cntlid, qid, reason: CloseReason::ControllerReset }
    }

    #[test]
    fn events_of_a_lane_follow_it_until_its_mark_comes() {
        let departed = |ticket, queue, to| Departed { ticket, queue, to };
        let mut departures = Departures(vec![departed(7, (1, 1), 2), departed(8, (1, 2), 3)]);
        let after = |departures: &Departures, event: &TargetEvent| {
            departures.followed_by(event).collect::<Vec<_>>()
        };
        assert_eq!(after(&departures, &close(1, 1)), [(2, 7)]);
        assert_eq!(after(&departures, &TargetEvent::Quiesce { cntlid: 1, qid: 2 }), [(3, 8)]);
        assert_eq!(after(&departures, &close(2, 1)), []);
        let changed = TargetEvent::NamespacesChanged { nqn: "nqn.x:s".into() };
        assert_eq!(after(&departures, &changed), [], "lanes fetch their namespaces when they come");
        assert_eq!((departures.settle(7), departures.settle(7)), (Some(2), None));
        assert_eq!(after(&departures, &close(1, 1)), []);
        assert_eq!(after(&departures, &close(1, 2)), [(3, 8)]);
    }

    #[test]
    fn a_lane_without_a_queue_stays() {
        let session = TargetConnection::new(crate::session::ListenerRequirements::default());
        assert!(!Departures::default().leave(7, &session, 1));
        let placement = LanePlacement::default();
        assert!(!placement.is_movable(&session) && !placement.may_move_now(&session));
    }
}
