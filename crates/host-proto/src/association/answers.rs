//! How long answers are waited for: silence ends a path after the keep-alive timeout, and is noticed before requests are to
//! fail.

use super::{Action, Ask, Asked, Association, Command, Instant, Sqe, State};
use core::time::Duration;
use roadtrain_wire::fabrics::fctype;
use roadtrain_wire::sqe::opcode;

/// Shortest wait for an answer.
const ANSWER_MIN: Duration = Duration::from_millis(500);

/// True for Connect, and for commands of an authentication.
fn opens_queue(sqe: &Sqe) -> bool {
    let kinds = [fctype::CONNECT, fctype::AUTHENTICATION_SEND, fctype::AUTHENTICATION_RECEIVE];
    sqe.opcode == opcode::FABRICS && kinds.contains(&sqe.fctype())
}

impl<E: Send + 'static> Association<E> {
    pub(super) fn keep_alive_after(&self, now: Instant) -> Option<Instant> {
        let timeout = self.config.wants.keep_alive;
        (!timeout.is_zero()).then(|| now + timeout / 2)
    }

    /// When the answer to the path's last [`Action::Ask`] comes too late; `None`: never.
    #[must_use]
    pub fn answer_by(&self) -> Option<Instant> {
        self.path.asked.as_ref()?.until
    }

    /// Longest wait for an answer. A Keep Alive leaves half a keep-alive timeout after the last sign of life, so another
    /// half is left for its answer. Other commands keep the next Keep Alive waiting. An attempt to connect ends when
    /// requests fail anyway.
    fn patience(&self, now: Instant, is_keep_alive: bool) -> Duration {
        let longest = self.config.wants.timeout;
        let keep_alive = self.config.wants.keep_alive;
        let is_live = self.path.state == State::Live;
        let limit = match (is_live, is_keep_alive) {
            _ if self.ending.is_some() => None,
            (true, _) if keep_alive.is_zero() => None,
            (true, true) => Some(keep_alive / 2),
            (true, false) => Some(keep_alive),
            (false, _) => self.fast_failing_at().map(|at| at.since(now)),
        };
        limit.map_or(longest, |limit| longest.min(limit.max(ANSWER_MIN)))
    }

    pub(super) fn ask(&mut self, now: Instant, ask: Ask, is_keep_alive: bool) {
        let before = self.path.opens_admin_queue;
        let (what, opens_admin_queue) = match &ask {
            Ask::Open { .. } => ("connection", false),
            Ask::Run { qid, command } => {
                let opens = *qid == 0 && opens_queue(&command.sqe);
                (command.what, opens)
            }
            Ask::Random { .. } | Ask::Compute(_) | Ask::Seal { .. } => ("authentication", before),
        };
        let is_ours = matches!(&ask, Ask::Random { .. } | Ask::Compute(_) | Ask::Seal { .. });
        let until = (!is_ours).then(|| now + self.patience(now, is_keep_alive));
        let path = &mut self.path;
        path.opens_admin_queue = opens_admin_queue;
        path.asked = Some(Asked { what, is_keep_alive, opens_admin_queue, until });
        self.actions.push_back(Action::Ask { ask });
    }

    pub(super) fn keep_alive(&mut self, now: Instant) {
        self.path.keep_alive_at = self.keep_alive_after(now);
        let command = Command::new("Keep Alive", Sqe::new(opcode::KEEP_ALIVE, 0));
        self.ask(now, Ask::Run { qid: 0, command }, true);
    }
}
