//! What associations beside each other do for one another: a controller that one of them has lost is ended over the path
//! of another one (Cross-Controller Reset). Then what it had may go elsewhere, though its own address is silent.
//!
//! An errand is done when its controller has ended, and over when its owner withdraws it. A target that does not know
//! the controller proves nothing, unless it has the place of the process that had it: another process may have it. So the
//! errand is tried again only when the path leads to another controller than it did.

use super::{Action, Association, Done, State};
use crate::bringup::{self, Fencing};
use crate::procedure::Procedure;
use core::time::Duration;
use roadtrain_proto::time::Instant;
use roadtrain_wire::cross_reset::ControllerInstance;

/// Longest look at one errand: others of the path have their turn then.
const LOOK: Duration = Duration::from_millis(100);
/// Pause between two of them.
const PAUSE: Duration = Duration::from_millis(100);

/// A controller that another association of this host has lost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Errand {
    owner: usize,
    lost: ControllerInstance,
    /// When the target is asked; `None`: when the path is connected again.
    at: Option<Instant>,
}

/// What has come of an attempt: who wanted it, the controller, and `None` if it has not ended yet.
pub(super) type Attempt = (usize, ControllerInstance, Option<Fencing>);

impl<E: Send + 'static> Association<E> {
    /// Association `owner` has lost that controller: it is to be ended over this one's path, as soon as that lives.
    pub fn end_for(&mut self, now: Instant, owner: usize, lost: ControllerInstance) {
        self.errands.retain(|errand| (errand.owner, errand.lost) != (owner, lost));
        self.errands.push(Errand { owner, lost, at: Some(now) });
    }

    /// Association `owner` has a connection again: it needs no help with controllers that have ended.
    pub fn withdraw(&mut self, owner: usize) {
        let old = &self.config.old_commands;
        self.errands.retain(|errand| errand.owner != owner || old.has_instance(errand.lost));
    }

    /// The controller that the path has lost was ended, as another association has heard ([`Action::EndedFor`]):
    /// nothing that was sent to it is executed any more.
    pub fn fenced(&mut self, ended: ControllerInstance) {
        if let Some(serial) = self.path.lost.take(ended) {
            self.config.old_commands.end(serial);
            self.check_release();
        }
    }

    /// The connections of a path are gone: others may have the controller ended that it has lost.
    pub(super) fn ask_others(&mut self) {
        if self.config.beside.is_some() {
            let untold = self.path.lost.take_untold().into_iter();
            self.actions.extend(untold.map(|lost| Action::EndElsewhere { lost }));
        }
    }

    /// Another path has come: it may have the controller ended that this one has lost.
    pub fn remind(&mut self) {
        let of = &mut self.path;
        if !matches!(of.state, State::Resetting { .. }) {
            of.lost.renew();
            self.ask_others();
        }
    }

    /// The path leads to a new controller, perhaps of another process.
    pub(super) fn renew_errands(&mut self, now: Instant) {
        self.errands.iter_mut().for_each(|errand| errand.at = Some(now));
    }

    /// When the next errand is due on a live path.
    pub(super) fn errand_at(&self) -> Option<Instant> {
        self.errands.iter().filter_map(|errand| errand.at).min()
    }

    /// Begins the errand that is due.
    pub(super) fn begin_errand(&mut self, now: Instant) -> bool {
        let is_due = |errand: &&Errand| errand.at.is_some_and(|at| at <= now);
        let Some(&Errand { owner, lost, .. }) = self.errands.iter().find(is_due) else {
            return false;
        };
        let Some(info) = self.info.clone() else { return false };
        let old = self.config.old_commands.clone();
        self.path.task = Some(Procedure::new(move |driver| async move {
            let fencing = bringup::try_to_end(&driver, LOOK, &info.identify, lost, &old).await?;
            Ok(Done::Errand((owner, lost, fencing)))
        }));
        true
    }

    /// What has come of an errand, which may have been withdrawn meanwhile.
    pub(super) fn errand_done(&mut self, now: Instant, (owner, lost, fencing): Attempt) {
        let is_it = |errand: &Errand| (errand.owner, errand.lost) == (owner, lost);
        let Some(at) = self.errands.iter().position(is_it) else { return };
        match fencing {
            None => self.errands[at].at = Some(now + PAUSE),
            Some(fencing) if fencing.has_ended() => {
                self.errands.remove(at);
            }
            Some(_) => self.errands[at].at = None,
        }
        if let Some(fencing) = fencing {
            self.actions.push_back(Action::EndedFor { owner, lost, fencing });
        }
    }
}
