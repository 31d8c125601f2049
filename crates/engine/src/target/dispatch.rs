//! Which threads a command and its completion pass through.
//!
//! Storage servers used to hand each command to a thread of the block layer, and each completion to a work
//! queue. Tyche measured what leaving that out gains. To measure it here, too, this target can do it as well,
//! over every transport; what is executed, and where its data goes, is the same in all modes.

mod block;
mod work_queue;

use super::reactor::Order;
use super::tasks::{Ended, Job, Outcome, Owner, Tasks};
use crate::mailbox::Outbox;
use crate::ring::Ring;
use block::Block;
use roadtrain_proto::target::stability::Wake;
use roadtrain_proto::time::Instant;
use roadtrain_store::{Completion, Completions};
use roadtrain_wire::status::Status;
use std::io;
use std::sync::Arc;
use work_queue::WorkQueue;

/// Which threads a command and its completion pass through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dispatch {
    /// The reactor executes, and sends the completion from where it appears. The others are for comparison.
    #[default]
    NoWq,
    /// The reactor executes; a work queue's thread hands the completion back for sending.
    Rec,
    /// A block thread executes; the completion takes the work queue as well.
    Base,
}

enum Mode {
    NoWq,
    Rec(WorkQueue),
    Base(Block),
}

/// A reactor's commands in the backends and with other threads.
pub(super) struct Dispatcher {
    mode: Mode,
    tasks: Tasks,
    /// Commands that other threads have.
    away: usize,
}

impl Dispatcher {
    /// Called on the reactor's thread: others run on the same cores, as those of a kernel's work queues do.
    pub(super) fn new(dispatch: Dispatch, reactor: Outbox<Order>) -> io::Result<Self> {
        let (flushed, answered) = (reactor.clone(), reactor.clone());
        let waker = Arc::new(move |index, wake| flushed.send(Order::Flush(index, wake)));
        let completions =
            Completions::new(move |completion| answered.send(Order::Completed(completion)));
        let mode = match dispatch {
            Dispatch::NoWq => Mode::NoWq,
            Dispatch::Rec => Mode::Rec(WorkQueue::start(reactor)?),
            Dispatch::Base => Mode::Base(Block::start(WorkQueue::start(reactor)?)?),
        };
        Ok(Dispatcher { mode, tasks: Tasks::new(waker, completions), away: 0 })
    }

    /// Whether a command takes time that no backend needs.
    #[inline]
    pub(super) fn hands_over(&self) -> bool {
        !matches!(self.mode, Mode::NoWq)
    }

    /// Starts a command; `None`: it ends later.
    #[inline]
    pub(super) fn start(&mut self, ring: &mut Ring, owner: Owner, job: Job) -> Option<Outcome> {
        if let Mode::Base(block) = &self.mode {
            if !block.start_job(owner, job) {
                return Some(Outcome { result: Err(Status::INTERNAL_ERROR), buffer: None });
            }
            self.away += 1;
            return None;
        }
        let outcome = self.tasks.start(ring, owner, job)?;
        self.end(owner, outcome)
    }

    /// Asks to end a command that waits: `true` when it is here, and will end, aborted or otherwise.
    pub(super) fn cancel(&mut self, ring: &mut Ring, owner: Owner) -> bool {
        self.tasks.cancel(ring, owner) // other threads are not asked
    }

    /// A completion of the ring; the command's owner and outcome when it has ended.
    pub(super) fn resume(&mut self, ring: &mut Ring, index: u32, result: i32) -> Option<Ended> {
        let (owner, outcome) = self.tasks.resume(ring, index, result)?;
        self.end(owner, outcome).map(|outcome| (owner, outcome))
    }

    /// Brings what a flush elsewhere has done for a command of ours.
    pub(super) fn woken(&mut self, ring: &mut Ring, index: u32, wake: Wake) -> Option<Ended> {
        let (owner, outcome) = self.tasks.woken(ring, index, wake)?;
        self.end(owner, outcome).map(|outcome| (owner, outcome))
    }

    /// A store has answered from another thread.
    pub(super) fn completed(&mut self, ring: &mut Ring, completion: Completion) -> Option<Ended> {
        let (owner, outcome) = self.tasks.completed(ring, completion)?;
        self.end(owner, outcome).map(|outcome| (owner, outcome))
    }

    /// Does what is due by `now`: the first command that ends by that.
    pub(super) fn expire(&mut self, ring: &mut Ring, now: Instant) -> Option<Ended> {
        loop {
            let (owner, outcome) = self.tasks.expire(ring, now)?;
            if let Some(outcome) = self.end(owner, outcome) {
                return Some((owner, outcome));
            }
        }
    }

    /// A command has ended here; `None`: the work queue has it.
    #[inline]
    fn end(&mut self, owner: Owner, outcome: Outcome) -> Option<Outcome> {
        let Mode::Rec(queue) = &self.mode else { return Some(outcome) };
        match queue.send((owner, outcome)) {
            Ok(()) => self.away += 1,
            Err((_, outcome)) => return Some(outcome),
        }
        None
    }

    /// A command is back from other threads.
    pub(super) fn returned(&mut self) {
        self.away -= 1;
    }

    /// Nobody waits for an emulated SSD any more.
    pub(super) fn hurry(&self) {
        if let Mode::Base(block) = &self.mode {
            block.stop();
        }
    }

    /// When something is due next.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.tasks.next_due()
    }

    /// Commands under way.
    pub(super) fn count(&self) -> usize {
        self.tasks.count() + self.away
    }

    /// Of these, those that the ring will tell of.
    pub(super) fn in_ring(&self) -> usize {
        self.tasks.in_ring() + self.away
    }
}

#[cfg(test)]
mod tests;
