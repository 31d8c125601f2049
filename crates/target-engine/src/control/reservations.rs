//! Reservations: commands of lanes, and the tasks that the control plane requests for them.

use super::{ControlState, TargetControlPlane};
use crate::open_store::OpenStore;
use crate::order::TargetReactorMessage;
use crate::reservation_file::KeptReservations;
use crate::reserving::Saver;
use crate::stores::OpenNamespaces;
use crate::tasks::TaskOwner;
use roadtrain_target_proto::{TargetControl, TargetEvent, TurnOf};
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::status::Status;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use tracing::warn;

/// Restores the reservations that were stored when the namespaces were opened. Open namespaces keep their newer state.
pub(super) fn restore(target: &mut TargetControl, stores: &OpenNamespaces) {
    for (nqn, nsid, KeptReservations { state, .. }) in stores.kept() {
        target.restore_reservations(nqn, nsid, state.clone());
    }
}

impl TargetControlPlane {
    /// Passes a reservation command of a lane on. [`TargetReactorMessage::Reserved`] brings its result.
    pub(crate) fn reserve(
        &self,
        cntlid: Option<u16>,
        sqe: &Sqe,
        data: &[u8],
        (reactor, owner): (usize, TaskOwner),
    ) {
        let mut state = self.lock();
        let token = state.pending.enter((reactor, owner));
        // No controller has ID 0: the command completes with the status for a missing controller.
        state.target.reserve(cntlid.unwrap_or(0), sqe, data, token);
        self.publish(state);
    }

    /// Reports that a reactor executes no more commands that the fence forbids.
    pub(crate) fn fenced(&self, turn: &TurnOf) {
        let mut state = self.lock();
        if state.pending.fenced(turn) {
            state.target.fenced(turn);
        }
        self.publish(state);
    }

    /// Reports whether the state was saved.
    fn saved(&self, turn: &TurnOf, is_saved: bool) {
        let mut state = self.lock();
        state.target.saved(turn, is_saved);
        self.publish(state);
    }

    /// Returns the next event for all reactors. Handles the other events.
    pub(super) fn next_event(&self, state: &mut ControlState) -> Option<TargetEvent> {
        loop {
            let ControlState { target, stores, presences, pending, .. } = &mut *state;
            let reactors = self.reactors.get().map_or(&[][..], Vec::as_slice);
            match presences.next_event(target)? {
                TargetEvent::Reserved { token, status, report } => {
                    if let Some((reactor, owner)) = pending.take(token)
                        && let Some(reactor) = reactors.get(reactor)
                    {
                        reactor.send(TargetReactorMessage::Reserved(owner, status, report));
                    }
                }
                TargetEvent::Fence { turn, aborts } => {
                    pending.begin(turn.clone(), reactors.len());
                    self.broadcast(|| TargetReactorMessage::Fence(turn.clone(), aborts));
                }
                TargetEvent::Save { turn, image } => {
                    let open = stores.get(&turn.nqn, turn.nsid);
                    let place = open.and_then(|open| {
                        Some((open.store.clone(), open.kept.as_ref()?.path.clone()))
                    });
                    let is_begun = place.is_some_and(|place| self.save(&turn, place, image));
                    if !is_begun {
                        target.saved(&turn, false);
                    }
                }
                TargetEvent::NamespaceRequest { id, nqn, request } => {
                    if !self.queue_request((id, nqn, request)) {
                        target.namespace_request_done(id, Err(Status::INTERNAL_ERROR.dnr()));
                    }
                }
                event => return Some(event),
            }
        }
    }

    /// Queues a file for the saver thread, and starts the thread for the first file. Returns true if the file is
    /// queued.
    fn save(&self, turn: &TurnOf, place: (Arc<OpenStore>, PathBuf), image: Arc<[u8]>) -> bool {
        let mut saver = self.saver.lock().unwrap_or_else(PoisonError::into_inner);
        if saver.is_none() {
            let weak = self.weak.clone();
            let done = move |turn: &TurnOf, is_saved| {
                weak.upgrade().into_iter().for_each(|control| control.saved(turn, is_saved));
            };
            match Saver::start(done) {
                Ok(started) => *saver = Some(started),
                Err(error) => {
                    warn!("a change of reservations is refused, as no thread can save it: {error}");
                    return false;
                }
            }
        }
        saver.as_ref().is_some_and(|saver| saver.save(turn.clone(), place, image))
    }
}
