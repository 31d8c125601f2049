//! Dirty bitmaps of a running attachment.

use crate::control::{
    BitmapAction, BitmapReport, BitmapsReply, ControlRefusal, ControlReply, RefusalReason,
    StartedBackup,
};
use roadtrain_front::attachment::AttachedBitmaps;
use roadtrain_front::bitmaps::{BitmapError, BitmapView};
use serde_json::json;
use tracing::info;

/// Runs an operation, and returns the bitmaps after it.
pub(super) fn answer(attached: Option<AttachedBitmaps>, action: &BitmapAction) -> ControlReply {
    let started_backup = match (&attached, action) {
        (_, BitmapAction::List) => None,
        (None, BitmapAction::Start { name } | BitmapAction::Finish { name, .. }) => {
            return Err(refusal(BitmapError::Unknown(name.clone())));
        }
        (Some(AttachedBitmaps { bitmaps, disk }), BitmapAction::Start { name }) => {
            let backup = bitmaps.start(name, disk.bytes()).map_err(refusal)?;
            let (backup, full) = (backup.number, backup.full);
            info!(bitmap = name, backup, full, "a backup has started");
            Some(StartedBackup { backup, full })
        }
        (Some(AttachedBitmaps { bitmaps, .. }), BitmapAction::Finish { name, backup }) => {
            bitmaps.finish(name, *backup).map_err(refusal)?;
            info!(bitmap = name, backup, "a backup has finished");
            None
        }
    };
    let views = attached.map_or_else(Vec::new, |attached| attached.bitmaps.views());
    let bitmaps = views.into_iter().map(BitmapReport::from).collect();
    Ok(json!(BitmapsReply { bitmaps, started_backup }))
}

fn refusal(error: BitmapError) -> ControlRefusal {
    match error {
        BitmapError::Unknown(_) => ControlRefusal::new(
            RefusalReason::Unknown,
            format!("{error}: `roadtrain attach --dirty-bitmap NAME=FILE` keeps one"),
        ),
        BitmapError::Refused(_) => ControlRefusal::new(RefusalReason::Failed, error),
    }
}

impl From<BitmapView> for BitmapReport {
    fn from(view: BitmapView) -> BitmapReport {
        let BitmapView { name, file, granularity_bytes, bytes, dirty_bytes, invalid, backup } =
            view;
        BitmapReport {
            name,
            file,
            granularity_bytes,
            capacity_bytes: bytes,
            dirty_bytes,
            valid: invalid.is_none(),
            reason: invalid,
            backup,
        }
    }
}
