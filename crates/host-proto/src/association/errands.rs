//! What associations beside each other do for one another: a controller that one of them has lost is ended over the path
//! of another one (Cross-Controller Reset). Then what it had may go elsewhere, though its own address is silent.
//!
//! An errand is done when its controller has ended, and over when its owner withdraws it. A target that does not know
//! the controller proves nothing, unless it has the place of the process that had it: another process may have it. So the
//! errand is tried again only when the path leads to another controller than it did.

use super::{Done, Task};
use crate::bringup::{self, ControllerInfo, Fencing};
use crate::old_commands::OldCommands;
use crate::procedure::Procedure;
use core::time::Duration;
use roadtrain_proto::time::Instant;
use roadtrain_wire::cross_reset::ControllerInstance;
use std::sync::Arc;

/// Longest look at one errand: others of the path have their turn then.
const LOOK: Duration = Duration::from_millis(100);
/// Pause between two of them.
const PAUSE: Duration = Duration::from_millis(100);

/// A controller that another association of this host has lost.
#[derive(Clone, Copy, Debug)]
struct Errand {
    owner: usize,
    lost: ControllerInstance,
    /// When the target is asked; `None`: when the path is connected again.
    at: Option<Instant>,
}

/// What has come of an attempt: who wanted it, the controller, and `None` if it has not ended yet.
pub(super) type Attempt = (usize, ControllerInstance, Option<Fencing>);

/// Controllers that others have lost.
#[derive(Debug, Default)]
pub(super) struct Errands(Vec<Errand>);

impl Errands {
    /// Association `owner` has lost that controller.
    pub(super) fn add(&mut self, now: Instant, owner: usize, lost: ControllerInstance) {
        self.0.retain(|errand| (errand.owner, errand.lost) != (owner, lost));
        self.0.push(Errand { owner, lost, at: Some(now) });
    }

    /// Association `owner` has a connection again: it needs no help with controllers that have ended.
    pub(super) fn withdraw(&mut self, owner: usize, old: &OldCommands) {
        self.0.retain(|errand| errand.owner != owner || old.has_instance(errand.lost));
    }

    /// The path leads to a new controller, perhaps of another process.
    pub(super) fn renew(&mut self, now: Instant) {
        self.0.iter_mut().for_each(|errand| errand.at = Some(now));
    }

    /// When the next one is due on a live path.
    pub(super) fn due(&self) -> Option<Instant> {
        self.0.iter().filter_map(|errand| errand.at).min()
    }

    /// Begins the one that is due.
    pub(super) fn begin<E: Send + 'static>(
        &self,
        now: Instant,
        info: &Arc<ControllerInfo>,
        old: &OldCommands,
    ) -> Option<Task<E>> {
        let is_due = |errand: &&Errand| errand.at.is_some_and(|at| at <= now);
        let &Errand { owner, lost, .. } = self.0.iter().find(is_due)?;
        let (info, old) = (info.clone(), old.clone());
        Some(Procedure::new(move |driver| async move {
            let fencing = bringup::try_to_end(&driver, LOOK, &info.identify, lost, &old).await?;
            Ok(Done::Errand((owner, lost, fencing)))
        }))
    }

    /// Takes note of an attempt, and returns its outcome for the owner. The errand may have been withdrawn meanwhile.
    pub(super) fn tried(
        &mut self,
        now: Instant,
        (owner, lost, fencing): Attempt,
    ) -> Option<Fencing> {
        let is_it = |errand: &Errand| (errand.owner, errand.lost) == (owner, lost);
        let at = self.0.iter().position(is_it)?;
        match fencing {
            None => self.0[at].at = Some(now + PAUSE),
            Some(fencing) if fencing.has_ended() => {
                self.0.remove(at);
            }
            Some(_) => self.0[at].at = None,
        }
        fencing
    }
}
