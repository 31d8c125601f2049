//! Threads of the reactors, for guests: reactors of stores over the network.

use super::order::TargetReactorMessage;
use roadtrain_system::guest::{GuestConstructor, GuestSpawner};
use roadtrain_system::mailbox::MailboxSender;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// Threads of a target's reactors, which take guests. The target may begin later than its guests are given.
pub struct GuestThreads {
    count: usize,
    state: Mutex<GuestThreadsState>,
}

enum GuestThreadsState {
    /// The target has not begun: guests and their threads.
    Waiting(Vec<(usize, GuestConstructor)>),
    /// Mailboxes of the reactors.
    Running(Vec<MailboxSender<TargetReactorMessage>>),
}

impl GuestThreads {
    /// Creates the threads of a target with that number of reactors, which has not begun.
    #[must_use]
    pub fn new(count: usize) -> GuestThreads {
        GuestThreads { count, state: Mutex::new(GuestThreadsState::Waiting(Vec::new())) }
    }

    /// Sets the mailboxes of the reactors, and gives them the guests that wait.
    pub(super) fn begin(&self, reactors: Vec<MailboxSender<TargetReactorMessage>>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let GuestThreadsState::Waiting(guests) = &mut *state {
            for (thread, guest) in guests.drain(..) {
                give(&reactors, thread, guest);
            }
        }
        *state = GuestThreadsState::Running(reactors);
    }
}

impl GuestSpawner for GuestThreads {
    fn count(&self) -> usize {
        self.count
    }

    fn give(&self, thread: usize, guest: GuestConstructor) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *state {
            GuestThreadsState::Waiting(guests) => guests.push((thread, guest)),
            GuestThreadsState::Running(reactors) => give(reactors, thread, guest),
        }
    }
}

fn give(reactors: &[MailboxSender<TargetReactorMessage>], thread: usize, guest: GuestConstructor) {
    if let Some(reactor) = reactors.get(thread) {
        reactor.send(TargetReactorMessage::Guest(guest));
    }
}

impl fmt::Debug for GuestThreads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GuestThreads({})", self.count)
    }
}
