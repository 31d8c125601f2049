//! Health of volumes, as CSI shows it.

use crate::proto::volume_health::VolumeHealthEntry;
use crate::proto::{VolumeHealth, VolumeHealthErrorType};

/// Problem of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VolumeProblem {
    /// Effect.
    pub(crate) effect: VolumeHealthErrorType,
    /// Reason, for programs.
    pub(crate) reason: &'static str,
    /// Reason, for people.
    pub(crate) message: String,
}

impl VolumeProblem {
    /// A volume that cannot be used.
    pub(crate) fn inaccessible(reason: &'static str, message: impl Into<String>) -> VolumeProblem {
        let effect = VolumeHealthErrorType::Inaccessible;
        VolumeProblem { effect, reason, message: message.into() }
    }

    /// A volume that can be used in part.
    pub(crate) fn degraded(reason: &'static str, message: impl Into<String>) -> VolumeProblem {
        let effect = VolumeHealthErrorType::Degraded;
        VolumeProblem { effect, reason, message: message.into() }
    }
}

/// Returns the health of a volume; without a problem it is fine.
pub(crate) fn health(volume_id: String, problem: Option<VolumeProblem>) -> VolumeHealth {
    let entry = |problem: VolumeProblem| VolumeHealthEntry {
        status: problem.effect.into(),
        reason: problem.reason.into(),
        message: problem.message,
    };
    VolumeHealth { volume_id, health_statuses: problem.into_iter().map(entry).collect() }
}
