//! Controllers that a path has lost. No old command is to be executed behind a newer one, so the path's next controller,
//! or another association, has them ended ([`crate::old_commands`]).

use super::action::Reason;
use crate::bringup::{self, ControllerInfo, Fencing, Wants};
use crate::old_commands::{ControllerIdentity, ControllerSerial, OldCommands};
use crate::procedure::{Driver, Failure};
use core::time::Duration;
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
    /// An earlier process of this host had it, over a path that is not known.
    is_inherited: bool,
}

/// Controllers that a path has lost, and that have not ended.
#[derive(Debug, Default)]
pub(super) struct Lost(Vec<LostController>);

impl Lost {
    /// Those that an earlier process of this host has lost, for the first path that there is.
    pub(super) fn inherited(old: &OldCommands) -> Self {
        let lost = |(serial, instance)| LostController {
            serial,
            instance,
            is_untold: true,
            is_inherited: true,
        };
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
        let (is_untold, is_inherited) = (true, false);
        self.0.push(LostController { serial, instance, is_untold, is_inherited });
    }

    /// All of their connections are gone.
    pub(super) fn connections_gone(&self, now: Instant, old: &OldCommands) {
        self.0.iter().for_each(|lost| old.lost(now, lost.serial));
    }

    /// The path could not be connected. Where there are others that says nothing of controllers that were inherited: one of
    /// those paths may lead to them.
    pub(super) fn missed(&self, now: Instant, old: &OldCommands, has_others: bool) {
        let of_path = self.0.iter().filter(|lost| !(lost.is_inherited && has_others));
        of_path.for_each(|lost| old.missed(now, lost.serial));
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

    /// Takes note of what the path's new controller has said of some of them.
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

    /// Nobody connects there any more.
    pub(super) fn absent(&self, now: Instant, old: &OldCommands) {
        self.0.iter().for_each(|lost| old.absent(now, lost.serial));
    }

    /// Forgets one by its name.
    pub(super) fn take(&mut self, instance: ControllerInstance) -> Option<ControllerSerial> {
        let at = self.0.iter().position(|lost| lost.instance == Some(instance))?;
        Some(self.0.remove(at).serial)
    }
}

/// Identity of a controller, by which its end is known, with that keep-alive timeout.
pub(super) fn identity(keep_alive: Duration, info: &ControllerInfo) -> ControllerIdentity {
    ControllerIdentity {
        instance: bringup::instance(info),
        endpoint: info.identify.endpoint(),
        quiet: bringup::quiet_time(keep_alive, &info.identify),
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
