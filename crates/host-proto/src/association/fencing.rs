//! Lost controllers of a path. No old command may be executed after a newer one, so the path's next controller, or
//! another association, ends them ([`crate::old_commands`]).

use super::action::ResetReason;
use crate::bringup::{self, ControllerInfo, Fencing, Wants};
use crate::old_commands::{ControllerIdentity, ControllerSerial, OldCommands};
use crate::procedure::{ProcedureDriver, ProcedureFailure};
use core::time::Duration;
use roadtrain_proto::time::Instant;
use roadtrain_wire::cross_reset::ControllerInstance;
use roadtrain_wire::status::Status;

/// Maximum number of lost controllers that a path tracks.
const LOST_MAX: usize = 8;

/// A controller that a path has lost.
#[derive(Clone, Copy, Debug)]
struct LostController {
    serial: ControllerSerial,
    instance: Option<ControllerInstance>,
    /// True until the controller was reported to the other associations.
    is_unreported: bool,
    /// True if an earlier process of this host had it, over an unknown path.
    is_inherited: bool,
}

/// Lost controllers of a path that have not ended.
#[derive(Debug, Default)]
pub(super) struct LostControllers(Vec<LostController>);

impl LostControllers {
    /// Takes the controllers that an earlier process has lost. The first path that is created gets them.
    pub(super) fn inherited(old: &OldCommands) -> Self {
        let lost = |(serial, instance)| LostController {
            serial,
            instance,
            is_unreported: true,
            is_inherited: true,
        };
        LostControllers(old.take_inherited().into_iter().map(lost).collect())
    }

    pub(super) fn push(
        &mut self,
        now: Instant,
        old: &OldCommands,
        serial: ControllerSerial,
        instance: Option<ControllerInstance>,
    ) {
        if self.0.len() >= LOST_MAX {
            old.absent(now, self.0.remove(0).serial); // no path tracks it any more
        }
        let (is_unreported, is_inherited) = (true, false);
        self.0.push(LostController { serial, instance, is_unreported, is_inherited });
    }

    /// Marks all of them as lost: their connections are closed.
    pub(super) fn connections_gone(&self, now: Instant, old: &OldCommands) {
        self.0.iter().for_each(|lost| old.lost(now, lost.serial));
    }

    /// Records a failed attempt to connect. With other paths it says nothing about inherited controllers: one of those
    /// paths may lead to them.
    pub(super) fn missed(&self, now: Instant, old: &OldCommands, has_others: bool) {
        let of_path = self.0.iter().filter(|lost| !(lost.is_inherited && has_others));
        of_path.for_each(|lost| old.missed(now, lost.serial));
    }

    /// Returns the controllers that a target can end.
    pub(super) fn to_end(&self) -> Vec<(ControllerSerial, ControllerInstance)> {
        self.0.iter().filter_map(|lost| Some((lost.serial, lost.instance?))).collect()
    }

    /// Marks all of them as unreported to the other associations.
    pub(super) fn renew(&mut self) {
        self.0.iter_mut().for_each(|lost| lost.is_unreported = true);
    }

    /// Takes the controllers that were not reported to the other associations.
    pub(super) fn take_unreported(&mut self) -> Vec<ControllerInstance> {
        let unreported = |lost: &mut LostController| {
            std::mem::take(&mut lost.is_unreported).then_some(lost.instance).flatten()
        };
        self.0.iter_mut().filter_map(unreported).collect()
    }

    /// Records what the path's new controller has replied about some of them.
    pub(super) fn fenced(
        &mut self,
        now: Instant,
        old: &OldCommands,
        fenced: &[(ControllerSerial, u16, Fencing)],
    ) {
        for &(serial, _, fencing) in fenced {
            if fencing.has_ended() {
                old.end(serial);
            } else {
                old.absent(now, serial);
            }
        }
        // No target can be requested to end a controller without a name: time alone ends it.
        let nameless = self.0.iter().filter(|lost| lost.instance.is_none());
        nameless.for_each(|lost| old.absent(now, lost.serial));
        // Where nothing is proved, the request is repeated to the next controller: it may be another process.
        self.0.retain(|lost| old.has(lost.serial));
    }

    /// Marks all of them as absent: no further connection reaches them.
    pub(super) fn absent(&self, now: Instant, old: &OldCommands) {
        self.0.iter().for_each(|lost| old.absent(now, lost.serial));
    }

    /// Removes a controller by its instance.
    pub(super) fn take(&mut self, instance: ControllerInstance) -> Option<ControllerSerial> {
        let at = self.0.iter().position(|lost| lost.instance == Some(instance))?;
        Some(self.0.remove(at).serial)
    }
}

/// Returns the identity of a controller, by which its end is detected, for a keep-alive timeout.
pub(super) fn identity(keep_alive: Duration, info: &ControllerInfo) -> ControllerIdentity {
    ControllerIdentity {
        instance: bringup::instance(info),
        endpoint: info.identify.endpoint(),
        quiet: bringup::quiet_time(keep_alive, &info.identify),
    }
}

/// Has the target end lost controllers. Fails if the target reports that one may still execute commands.
pub(super) async fn end_lost<E>(
    driver: &ProcedureDriver<E>,
    wants: &Wants,
    info: &ControllerInfo,
    lost: Vec<(ControllerSerial, ControllerInstance)>,
    old: &OldCommands,
) -> Result<Vec<(ControllerSerial, u16, Fencing)>, ProcedureFailure<E>> {
    let mut fenced = Vec::new();
    for (serial, lost) in lost {
        let (identify, timeout) = (&info.identify, wants.timeout);
        let fencing = bringup::try_to_end(driver, timeout, identify, lost, old).await?;
        let text = || format!("controller {}, which was lost, has not ended yet", lost.cntlid);
        let fencing = fencing.ok_or_else(|| ProcedureFailure::Controller(text()))?;
        fenced.push((serial, lost.cntlid, fencing));
    }
    Ok(fenced)
}

/// True if a target that gave this reason may still execute commands of this host.
pub(super) fn is_claim<E>(why: &ResetReason<E>) -> bool {
    let busy = Status::CONNECT_CONTROLLER_BUSY;
    matches!(why, ResetReason::Path(ProcedureFailure::Refused { status, .. }) if status.is(busy))
}
