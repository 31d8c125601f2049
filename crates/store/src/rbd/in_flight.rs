//! Operations in flight at an image that several targets reach. librbd never fails them: without a path to the cluster
//! they complete when there is one again. So they are completed here when the target has to report that it cannot
//! serve, and librbd's later completion is dropped.
//!
//! A write completed in that way may still be done, if no target takes the image over. A retry here is done after it,
//! since a client's operations on an object are done in order. A retry at another target finds that this client is
//! fenced.

use crate::{StoreCompletion, StoreCompletions, StoreToken};
use roadtrain_system::slab::Slab;
use roadtrain_wire::status::Status;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// All operations in flight.
#[derive(Debug, Default)]
pub(super) struct InFlightOperations(Mutex<InFlightState>);

#[derive(Debug, Default)]
struct InFlightState {
    /// True while new operations are refused.
    is_closed: bool,
    pending: Slab<(StoreToken, StoreCompletions)>,
}

/// Key of one operation in flight.
pub(super) type OperationTicket = (u32, u32);

impl InFlightOperations {
    /// Adds an operation that starts. Returns `None` if it must not start.
    pub(super) fn enter(
        &self,
        token: StoreToken,
        completions: &StoreCompletions,
    ) -> Option<OperationTicket> {
        let InFlightState { is_closed, pending } = &mut *self.lock();
        if *is_closed {
            return None;
        }
        let index = pending.insert((token, completions.clone()));
        Some((index, pending.generation(index)))
    }

    /// Removes an operation that has ended. True if its completion is still pending.
    pub(super) fn leave(&self, (index, generation): OperationTicket) -> bool {
        let InFlightState { pending, .. } = &mut *self.lock();
        pending.is_current(index, generation) && pending.take(index).is_some()
    }

    /// Refuses further operations, and completes all those in flight.
    pub(super) fn close(&self) {
        let InFlightState { is_closed, pending } = &mut *self.lock();
        *is_closed = true;
        let all: Vec<u32> = pending.iter().map(|(index, _)| index).collect();
        for (token, completions) in all.into_iter().filter_map(|index| pending.take(index)) {
            completions.send(StoreCompletion::new(token, Err(Status::ANA_INACCESSIBLE), None));
        }
    }

    /// Accepts operations again.
    pub(super) fn open(&self) {
        self.lock().is_closed = false;
    }

    fn lock(&self) -> MutexGuard<'_, InFlightState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn each_is_answered_once() {
        let answers = Arc::new(Mutex::new(Vec::new()));
        let received = answers.clone();
        let completions = StoreCompletions::new(move |completion| {
            received.lock().unwrap().push(completion);
            true
        });
        let in_flight = InFlightOperations::default();
        let ticket = |n| in_flight.enter(StoreToken::new(n, 0), &completions);
        let (one, two) = (ticket(1).unwrap(), ticket(2).unwrap());
        assert!(in_flight.leave(one));
        in_flight.close();
        assert!(!in_flight.leave(two) && ticket(3).is_none());
        in_flight.open();
        // Another one in the same slot.
        let three = ticket(3).unwrap();
        assert!(!in_flight.leave(two) && !in_flight.leave(one));
        assert!(in_flight.leave(three) && !in_flight.leave(three));
        let answers = answers.lock().unwrap();
        let [answer] = &answers[..] else { panic!("{answers:?}") };
        assert_eq!((answer.token.parts().0, answer.result), (2, Err(Status::ANA_INACCESSIBLE)));
    }
}
