//! Resets that associations carry out for one another: one ends, over its own path, a controller that another has lost
//! (Cross-Controller Reset). Requests of the lost controller may then move to other paths even though its address does
//! not reply.
//!
//! A reset is done when its controller has ended, and cancelled when its owner withdraws it. A reply from a target that
//! does not know the controller proves nothing, unless that target's process has the endpoint of the lost controller:
//! another process may have the controller. So a reset is retried only when the path leads to another controller than
//! before.

use super::{PathTask, PathTaskOutput};
use crate::bringup::{self, ControllerInfo, Fencing};
use crate::old_commands::OldCommands;
use crate::procedure::Procedure;
use core::time::Duration;
use roadtrain_proto::time::Instant;
use roadtrain_wire::cross_reset::ControllerInstance;
use std::sync::Arc;

/// Maximum time for one attempt, before other work of the path has its turn.
const ATTEMPT_MAX: Duration = Duration::from_millis(100);
/// Pause between two attempts.
const ATTEMPT_PAUSE: Duration = Duration::from_millis(100);

/// A controller that another association of this host has lost.
#[derive(Clone, Copy, Debug)]
struct SiblingReset {
    owner: usize,
    lost: ControllerInstance,
    /// Time of the next attempt; `None`: when the path is connected again.
    at: Option<Instant>,
}

/// Outcome of an attempt: owner, controller, and `None` if the controller has not ended yet.
pub(super) type SiblingResetAttempt = (usize, ControllerInstance, Option<Fencing>);

/// Lost controllers of other associations.
#[derive(Debug, Default)]
pub(super) struct SiblingResets(Vec<SiblingReset>);

impl SiblingResets {
    /// Adds a controller that association `owner` has lost.
    pub(super) fn add(&mut self, now: Instant, owner: usize, lost: ControllerInstance) {
        self.0.retain(|reset| (reset.owner, reset.lost) != (owner, lost));
        self.0.push(SiblingReset { owner, lost, at: Some(now) });
    }

    /// Removes the controllers of association `owner` that have ended: it is connected again.
    pub(super) fn withdraw(&mut self, owner: usize, old: &OldCommands) {
        self.0.retain(|reset| reset.owner != owner || old.has_instance(reset.lost));
    }

    /// Makes all resets due again: the path leads to a new controller, perhaps of another process.
    pub(super) fn renew(&mut self, now: Instant) {
        self.0.iter_mut().for_each(|reset| reset.at = Some(now));
    }

    /// Returns when the next reset is due on a live path.
    pub(super) fn due(&self) -> Option<Instant> {
        self.0.iter().filter_map(|reset| reset.at).min()
    }

    /// Starts the reset that is due.
    pub(super) fn begin<E: Send + 'static>(
        &self,
        now: Instant,
        info: &Arc<ControllerInfo>,
        old: &OldCommands,
    ) -> Option<PathTask<E>> {
        let is_due = |reset: &&SiblingReset| reset.at.is_some_and(|at| at <= now);
        let &SiblingReset { owner, lost, .. } = self.0.iter().find(is_due)?;
        let (info, old) = (info.clone(), old.clone());
        Some(Procedure::new(move |driver| async move {
            let fencing =
                bringup::try_to_end(&driver, ATTEMPT_MAX, &info.identify, lost, &old).await?;
            Ok(PathTaskOutput::SiblingReset((owner, lost, fencing)))
        }))
    }

    /// Records an attempt, and returns its outcome for the owner unless the reset was withdrawn.
    pub(super) fn tried(
        &mut self,
        now: Instant,
        (owner, lost, fencing): SiblingResetAttempt,
    ) -> Option<Fencing> {
        let is_it = |reset: &SiblingReset| (reset.owner, reset.lost) == (owner, lost);
        let at = self.0.iter().position(is_it)?;
        match fencing {
            None => self.0[at].at = Some(now + ATTEMPT_PAUSE),
            Some(fencing) if fencing.has_ended() => {
                self.0.remove(at);
            }
            Some(_) => self.0[at].at = None,
        }
        fencing
    }
}
