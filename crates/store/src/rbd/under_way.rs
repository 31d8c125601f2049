//! Operations in flight at an image that several targets reach. librbd never fails them: without a path to the cluster
//! they complete when there is one again. So they are completed here when the target has to report that it cannot
//! serve, and librbd's later completion is dropped.
//!
//! A write completed in that way may still be done, if no target takes the image over. A retry here is done after it,
//! since a client's operations on an object are done in order. A retry at another target finds that this client is
//! fenced.

use crate::{Completion, Completions, Token};
use roadtrain_system::slab::Slab;
use roadtrain_wire::status::Status;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// All operations in flight.
#[derive(Debug, Default)]
pub(super) struct UnderWay(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// True while new operations are refused.
    is_closed: bool,
    asked: Slab<(Token, Completions)>,
}

/// Key of one operation in flight.
pub(super) type Ticket = (u32, u32);

impl UnderWay {
    /// Adds an operation that starts. Returns `None` if it must not start.
    pub(super) fn enter(&self, token: Token, completions: &Completions) -> Option<Ticket> {
        let State { is_closed, asked } = &mut *self.lock();
        if *is_closed {
            return None;
        }
        let index = asked.insert((token, completions.clone()));
        Some((index, asked.generation(index)))
    }

    /// Removes an operation that has ended. True if its completion is still pending.
    pub(super) fn leave(&self, (index, generation): Ticket) -> bool {
        let State { asked, .. } = &mut *self.lock();
        asked.is_current(index, generation) && asked.take(index).is_some()
    }

    /// Refuses further operations, and completes all those in flight.
    pub(super) fn close(&self) {
        let State { is_closed, asked } = &mut *self.lock();
        *is_closed = true;
        let all: Vec<u32> = asked.iter().map(|(index, _)| index).collect();
        for (token, completions) in all.into_iter().filter_map(|index| asked.take(index)) {
            completions.send(Completion::new(token, Err(Status::ANA_INACCESSIBLE), None));
        }
    }

    /// Accepts operations again.
    pub(super) fn open(&self) {
        self.lock().is_closed = false;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
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
        let told = answers.clone();
        let completions = Completions::new(move |completion| {
            told.lock().unwrap().push(completion);
            true
        });
        let under_way = UnderWay::default();
        let ticket = |n| under_way.enter(Token::new(n, 0), &completions);
        let (one, two) = (ticket(1).unwrap(), ticket(2).unwrap());
        assert!(under_way.leave(one));
        under_way.close();
        assert!(!under_way.leave(two) && ticket(3).is_none());
        under_way.open();
        // Another one in the same slot.
        let three = ticket(3).unwrap();
        assert!(!under_way.leave(two) && !under_way.leave(one));
        assert!(under_way.leave(three) && !under_way.leave(three));
        let answers = answers.lock().unwrap();
        let [answer] = &answers[..] else { panic!("{answers:?}") };
        assert_eq!((answer.token.parts().0, answer.result), (2, Err(Status::ANA_INACCESSIBLE)));
    }
}
