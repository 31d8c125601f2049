//! What an association does so that no old command is executed behind a newer one: it has the controllers ended that its
//! paths have lost, and says which have ended ([`crate::old_commands`]).

use super::{Action, Association, Done, Reason};
use crate::bringup::{self, ControllerInfo, Fencing, Wants};
use crate::old_commands::{ControllerIdentity, ControllerSerial, OldCommands};
use crate::procedure::{Driver, Failure, Procedure};
use roadtrain_proto::time::Instant;
use roadtrain_wire::cross_reset::ControllerInstance;
use roadtrain_wire::status::Status;

/// Controllers that a path has lost and has ended one after the other, at most.
const LOST_MAX: usize = 8;

/// A controller that a path has lost.
#[derive(Clone, Copy, Debug)]
struct LostController {
    serial: ControllerSerial,
    instance: Option<ControllerInstance>,
    /// The other associations have not heard of it.
    is_untold: bool,
}

/// Controllers that a path has lost, and that have not ended.
#[derive(Debug, Default)]
pub(super) struct Lost(Vec<LostController>);

impl Lost {
    /// Those that an earlier process of this host has lost, for the first path that there is.
    pub(super) fn inherited(old: &OldCommands) -> Self {
        let lost = |(serial, instance)| LostController { serial, instance, is_untold: true };
        Lost(old.take_inherited().into_iter().map(lost).collect())
    }

    pub(super) fn push(
        &mut self,
        now: Instant,
        old: &OldCommands,
        serial: ControllerSerial,
        instance: Option<ControllerInstance>,
    ) {
        if self.0.len() >= LOST_MAX {
            old.absent(now, self.0.remove(0).serial); // nothing checks it any more
        }
        self.0.push(LostController { serial, instance, is_untold: true });
    }

    /// All of their connections are gone.
    pub(super) fn connections_gone(&self, now: Instant, old: &OldCommands) {
        self.0.iter().for_each(|lost| old.lost(now, lost.serial));
    }

    /// The path could not be connected.
    pub(super) fn missed(&self, now: Instant, old: &OldCommands) {
        self.0.iter().for_each(|lost| old.missed(now, lost.serial));
    }

    /// Those that a target can be told to end.
    pub(super) fn to_end(&self) -> Vec<(ControllerSerial, ControllerInstance)> {
        self.0.iter().filter_map(|lost| Some((lost.serial, lost.instance?))).collect()
    }

    /// The others are to hear of all of them once more.
    pub(super) fn renew(&mut self) {
        self.0.iter_mut().for_each(|lost| lost.is_untold = true);
    }

    /// Those of which the others have not heard.
    pub(super) fn take_untold(&mut self) -> Vec<ControllerInstance> {
        let untold = |lost: &mut LostController| {
            std::mem::take(&mut lost.is_untold).then_some(lost.instance).flatten()
        };
        self.0.iter_mut().filter_map(untold).collect()
    }

    /// Forgets one by its name.
    pub(super) fn take(&mut self, instance: ControllerInstance) -> Option<ControllerSerial> {
        let at = self.0.iter().position(|lost| lost.instance == Some(instance))?;
        Some(self.0.remove(at).serial)
    }
}

/// Has a target end controllers that were lost, as long as it says that one may still execute something.
pub(super) async fn end_lost<E>(
    driver: &Driver<E>,
    wants: &Wants,
    info: &ControllerInfo,
    lost: Vec<(ControllerSerial, ControllerInstance)>,
    old: &OldCommands,
) -> Result<Vec<(ControllerSerial, u16, Fencing)>, Failure<E>> {
    let mut fenced = Vec::new();
    for (serial, lost) in lost {
        let (identify, timeout) = (&info.identify, wants.timeout);
        let fencing = bringup::try_to_end(driver, timeout, identify, lost, old).await?;
        let text = || format!("controller {}, which was lost, has not ended yet", lost.cntlid);
        let fencing = fencing.ok_or_else(|| Failure::Controller(text()))?;
        fenced.push((serial, lost.cntlid, fencing));
    }
    Ok(fenced)
}

/// Whether a target that has given this reason has something of this host that it may still execute.
pub(super) fn is_claim<E>(why: &Reason<E>) -> bool {
    let busy = Status::CONNECT_CONTROLLER_BUSY;
    matches!(why, Reason::Path(Failure::Refused { status, .. }) if status.is(busy))
}

impl<E: Send + 'static> Association<E> {
    /// By what the end of the path's controller is known.
    pub(super) fn identity_of(&self, info: &ControllerInfo) -> ControllerIdentity {
        ControllerIdentity {
            instance: bringup::instance(info),
            endpoint: info.identify.endpoint(),
            quiet: bringup::quiet_time(self.config.wants.keep_alive, &info.identify),
        }
    }

    /// Has the controllers ended that an earlier process has lost, before there are lanes.
    pub(super) fn end_lost_first(
        &mut self,
        info: ControllerInfo,
        lost: Vec<(ControllerSerial, ControllerInstance)>,
    ) {
        let (wants, old) = (self.config.wants.clone(), self.config.old_commands.clone());
        let psk = self.path.psk.clone();
        self.path.task = Some(Procedure::new(|driver| async move {
            let fenced = end_lost(&driver, &wants, &info, lost, &old).await?;
            Ok(Done::Information(Box::new(info), psk, fenced))
        }));
    }

    /// What the path's new controller has said of those that were lost.
    pub(super) fn fenced_by_path(
        &mut self,
        now: Instant,
        fenced: Vec<(ControllerSerial, u16, Fencing)>,
    ) {
        let old = self.config.old_commands.clone();
        for (serial, cntlid, fencing) in fenced {
            if fencing.has_ended() {
                old.end(serial);
            } else {
                old.absent(now, serial);
            }
            self.actions.push_back(Action::Fenced { cntlid, fencing });
        }
        // Where nothing is proved, the next controller may be asked again: it may be another process.
        self.path.lost.0.retain(|lost| old.has(lost.serial));
        self.check_release();
    }

    /// The time may have passed after which controllers have ended.
    pub(super) fn check_old_commands(&mut self, now: Instant) {
        self.config.old_commands.expire(now);
        self.check_release();
    }

    /// Tells that controllers have ended, by whatever.
    pub(super) fn check_release(&mut self) {
        let ended_so_far = self.config.old_commands.ended_so_far();
        if std::mem::replace(&mut self.ended_so_far, ended_so_far) != ended_so_far {
            self.actions.push_back(Action::Release);
        }
    }

    /// The end: whether the path's controller was shut down, or may still have something.
    pub(super) fn controllers_end(&mut self, now: Instant, is_shut_down: bool) {
        let old = &self.config.old_commands;
        // Nobody connects there any more.
        if let Some((serial, _)) = self.path.controller.take() {
            if is_shut_down {
                old.end(serial);
            } else {
                old.lost(now, serial);
                old.absent(now, serial);
            }
        }
        self.path.lost.0.iter().for_each(|lost| old.absent(now, lost.serial));
    }
}
