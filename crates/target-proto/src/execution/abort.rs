//! Abort of I/O commands: commands that wait for a buffer, for data, or for the store can be aborted.
//!
//! Requested data still arrives, as hosts do not expect otherwise: it is skipped, then the command completes. So a
//! command never executes once it was aborted in its data phase. The Abort itself completes after the command, and
//! after a second at the latest: then the command counts as not aborted.

use super::CommandExecution;
use super::environment::{Environment, LaneNamespace};
use super::slot::{Abort, SlotCommand, SlotData};
use core::ops::DerefMut;
use core::time::Duration;
use roadtrain_proto::time::Instant;
use roadtrain_wire::status::Status;

/// Longest wait of an Abort for its command: a host may do nothing else meanwhile.
const WAIT_MAX: Duration = Duration::from_secs(1);

impl<N: LaneNamespace, B: DerefMut<Target = [u8]>> CommandExecution<N, B> {
    /// Aborts the command `cid` if possible. [`CommandExecution::end_turn`] reports the result to the control plane, maybe in
    /// a later turn.
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
        let is_admin = matches!(self.slots[usize::from(slot)].command, SlotCommand::Admin(_));
        let has_waited = !awaits_data && !is_admin && self.leave_queues(slot);
        if awaits_data {
            self.end_wait(slot);
        }
        let s = &mut self.slots[usize::from(slot)];
        match (&s.command, has_waited) {
            (SlotCommand::Failing(_), _) => {} // its data passes already
            (SlotCommand::Admin(_), _) => self.resolve_aborts(slot, false),
            _ if awaits_data => {
                s.take_buffer().into_iter().for_each(|buffer| env.give(buffer));
                s.command = SlotCommand::Failing(Status::ABORT_REQUESTED);
                s.data = SlotData::Discarded;
            }
            (_, true) => {
                s.command = SlotCommand::None;
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

    /// Returns the next deadline: of a waiting Abort, of a rate-limited command, or of a store.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let aborts = self.aborts.iter().filter_map(|abort| abort.until);
        aborts.chain(self.waiting.first()).chain(self.status_query_deadline()).min()
    }

    /// Records for the Aborts of a command that it completes; `aborted`: because of them.
    #[inline]
    pub(super) fn resolve_aborts(&mut self, slot: u16, aborted: bool) {
        let waits = |abort: &&mut Abort| abort.slot == slot && abort.outcome.is_none();
        self.aborts.iter_mut().filter(waits).for_each(|abort| abort.outcome = Some(aborted));
    }

    /// Reports the results of Aborts to the control plane; their commands' completions were sent before.
    pub(super) fn answer_aborts(&mut self, env: &mut impl Environment<N, B>) {
        let now = env.now();
        let is_over = |abort: &Abort| abort.until.is_some_and(|until| until <= now);
        let is_resolved = |abort: &mut Abort| abort.outcome.is_some() || is_over(abort);
        for Abort { id, outcome, .. } in self.aborts.extract_if(.., is_resolved) {
            env.aborted(id, outcome == Some(true));
        }
    }
}
