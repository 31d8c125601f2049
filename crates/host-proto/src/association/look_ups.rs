//! Who wants to know which blocks are allocated is answered over the path, when nothing else is to be done there. Each is
//! answered once: also when the path is lost, or all comes to an end.

use super::{Action, Association, Done};
use crate::allocation::{self, Allocation, AllocationQuery};
use crate::procedure::Procedure;
use std::collections::VecDeque;

/// Whose query it is: a lane's, and the number that it has there.
pub type AskedBy = (usize, u64);

/// Queries that are not answered.
#[derive(Debug, Default)]
pub(super) struct LookUps {
    waiting: VecDeque<(AskedBy, AllocationQuery)>,
    /// The target was asked.
    asked: Option<(AskedBy, u32)>,
}

impl LookUps {
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }
}

impl<E: Send + 'static> Association<E> {
    /// Asks which blocks are allocated: [`Action::LookedUp`] answers it, at once where nobody can be asked.
    pub fn look_up(&mut self, by: AskedBy, query: AllocationQuery) {
        self.look_ups.waiting.push_back((by, query));
        let is_offered = self.info.as_deref().is_some_and(allocation::is_offered);
        if !is_offered || !self.is_live() || self.ending.is_some() {
            self.refuse_look_ups();
        }
    }

    /// Begins the next one.
    pub(super) fn begin_look_up(&mut self) -> bool {
        let Some((by, query)) = self.look_ups.waiting.pop_front() else { return false };
        if !self.is_same_namespace(query.nsid) {
            self.actions.push_back(Action::LookedUp { by, found: None });
            return true;
        }
        self.look_ups.asked = Some((by, query.nsid));
        self.path.task = Some(Procedure::new(move |driver| async move {
            Ok(Done::LookedUp(allocation::ask(&driver, query).await?))
        }));
        true
    }

    /// The target has answered. What is said of another namespace that has come meanwhile does not count.
    pub(super) fn looked_up(&mut self, found: Option<Allocation>) {
        let Some((by, nsid)) = self.look_ups.asked.take() else { return };
        let found = found.filter(|_| self.is_same_namespace(nsid));
        self.actions.push_back(Action::LookedUp { by, found });
    }

    /// Nothing more is asked.
    pub(super) fn refuse_look_ups(&mut self) {
        for (by, _) in self.look_ups.waiting.drain(..) {
            self.actions.push_back(Action::LookedUp { by, found: None });
        }
    }

    /// Nothing is answered any more.
    pub(super) fn abandon_look_ups(&mut self) {
        self.looked_up(None);
        self.refuse_look_ups();
    }

    fn is_same_namespace(&self, nsid: u32) -> bool {
        !self.pins.barred().has(nsid)
    }
}
