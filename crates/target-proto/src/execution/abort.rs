//! Abort of I/O commands: whatever waits, for a buffer, for its data, for the store, can be aborted.
//!
//! Data that was asked for still comes, as hosts do not expect otherwise: it passes, then the command is answered. So
//! a command is never executed once its data phase was aborted. The Abort itself is answered when the command was, and
//! after a second at the latest, whatever its data or the store does: then the command was not aborted, as nothing else can
//! be said of it yet.

use super::Execution;
use super::environment::{Environment, Namespace};
use super::slot::{Abort, Command, Data};
use core::ops::DerefMut;
use core::time::Duration;
use roadtrain_proto::time::Instant;
use roadtrain_wire::status::Status;

/// Longest wait of an Abort for its command: a host may have nothing else to do meanwhile.
const WAIT_MAX: Duration = Duration::from_secs(1);

impl<N: Namespace, B: DerefMut<Target = [u8]>> Execution<N, B> {
    /// Aborts the command `cid` if it can be. [`Execution::end_turn`] tells the control plane, maybe a later one.
    pub fn abort(&mut self, env: &mut impl Environment<N, B>, cid: u16, id: u32) {
        let Some((slot, awaits_data)) = env.unanswered(cid) else {
            let (slot, outcome, until) = (0, Some(false), None);
            return self.aborts.push(Abort { slot, id, outcome, until });
        };
        let until = Some(env.now() + WAIT_MAX);
        self.aborts.push(Abort { slot, id, outcome: None, until });
        if self.abort_fused(env, slot) || self.abort_waiting(env, slot) {
            return;
        }
        let is_admin = matches!(self.slots[usize::from(slot)].command, Command::Admin(_));
        let has_waited = !awaits_data && !is_admin && self.leave_queues(slot);
        if awaits_data {
            self.end_wait(slot);
        }
        let s = &mut self.slots[usize::from(slot)];
        match (&s.command, has_waited) {
            (Command::Failing(_), _) => {} // its data passes already
            (Command::Admin(_), _) => self.resolve_aborts(slot, false),
            _ if awaits_data => {
                s.take_buffer().into_iter().for_each(|buffer| env.give(buffer));
                s.command = Command::Failing(Status::ABORT_REQUESTED);
                s.data = Data::Discarded;
            }
            (_, true) => {
                s.command = Command::None;
                env.respond(slot, Status::ABORT_REQUESTED, 0);
                self.resolve_aborts(slot, true);
            }
            (_, false) => {
                if !env.cancel(slot) {
                    self.resolve_aborts(slot, false);
                }
            }
        }
    }

    /// When the next Abort has waited long enough, a command begins, or a store has taken too long.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let aborts = self.aborts.iter().filter_map(|abort| abort.until);
        aborts.chain(self.waiting.first()).chain(self.look_up_deadline()).min()
    }

    /// A command is answered: `aborted`, or otherwise.
    #[inline]
    pub(super) fn resolve_aborts(&mut self, slot: u16, aborted: bool) {
        let waits = |abort: &&mut Abort| abort.slot == slot && abort.outcome.is_none();
        self.aborts.iter_mut().filter(waits).for_each(|abort| abort.outcome = Some(aborted));
    }

    /// Tells the control plane what has become of Aborts; the answers of their commands were sent before.
    pub(super) fn answer_aborts(&mut self, env: &mut impl Environment<N, B>) {
        let now = env.now();
        let is_over = |abort: &Abort| abort.until.is_some_and(|until| until <= now);
        let is_resolved = |abort: &mut Abort| abort.outcome.is_some() || is_over(abort);
        for Abort { id, outcome, .. } in self.aborts.extract_if(.., is_resolved) {
            env.aborted(id, outcome == Some(true));
        }
    }
}
