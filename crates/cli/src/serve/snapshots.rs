//! What a running target does with snapshots of its namespaces, when it is told to.

use crate::control::{Refusal, Reply, SnapshotAction, SnapshotReply, SnapshotView, Why};
use roadtrain_engine::store::{Snapshot, SnapshotError, Snapshots, Store};
use roadtrain_engine::target::Server;
use serde_json::json;
use std::sync::Arc;
use tracing::info;

/// Does it, and tells the snapshots that there are then.
pub(super) fn answer(server: &Server, (nqn, nsid): (&str, u32), action: &SnapshotAction) -> Reply {
    let refused = |why, message: String| Refusal {
        place: Some(format!("namespace {nsid} of {nqn}").into()),
        ..Refusal::new(why, message)
    };
    let none = || refused(Why::Unknown, format!("namespace {nsid} of {nqn} is not served here"));
    let store = server.store(nqn, nsid).ok_or_else(none)?;
    let snapshots = store
        .snapshots()
        .ok_or_else(|| refused(Why::Store, "what keeps its blocks has no snapshots".to_owned()))?;
    let is_free = || check_free(server, &store);
    act(snapshots, action, &is_free).map_err(|error| {
        let why = match &error {
            SnapshotError::Unknown(_) => Why::Unknown,
            SnapshotError::Exists(_) => Why::Exists,
            SnapshotError::Refused(_) | SnapshotError::Failed(_) => Why::Store,
        };
        refused(why, error.to_string())
    })?;
    if !matches!(action, SnapshotAction::List) {
        info!(?action, "done with a snapshot of namespace {nsid} of {nqn}");
    }
    let all = snapshots.list().map_err(|error| refused(Why::Store, error.to_string()))?;
    Ok(json!(SnapshotReply { snapshots: all.into_iter().map(SnapshotView::from).collect() }))
}

/// Whether no host is connected to a subsystem that has the blocks of `store`, whichever that is.
fn check_free(server: &Server, store: &Arc<dyn Store>) -> Result<(), SnapshotError> {
    let (config, controllers) = server.view();
    let shows = |nqn: &str| {
        let subsystem = config.subsystems.iter().find(|subsystem| subsystem.nqn == nqn);
        let namespaces = subsystem.into_iter().flat_map(|subsystem| &subsystem.namespaces);
        namespaces.into_iter().any(|namespace| {
            server.store(nqn, namespace.nsid).is_some_and(|other| Arc::ptr_eq(&other, store))
        })
    };
    match controllers.iter().find(|controller| shows(&controller.subnqn)) {
        None => Ok(()),
        Some(user) => Err(SnapshotError::Refused(format!(
            "{} is connected to {}: what it uses is not rolled back. Disconnect its hosts first",
            user.hostnqn, user.subnqn
        ))),
    }
}

fn act(
    snapshots: &dyn Snapshots,
    action: &SnapshotAction,
    is_free: &dyn Fn() -> Result<(), SnapshotError>,
) -> Result<(), SnapshotError> {
    match action {
        SnapshotAction::List => Ok(()),
        SnapshotAction::Create { name } => snapshots.create(name),
        SnapshotAction::Remove { name } => snapshots.remove(name),
        SnapshotAction::Protect { name } => snapshots.protect(name),
        SnapshotAction::Unprotect { name } => snapshots.unprotect(name),
        SnapshotAction::Clone { name, to } => snapshots.clone_to(name, to),
        SnapshotAction::Rollback { name } => snapshots.roll_back(name, is_free),
    }
}

impl From<Snapshot> for SnapshotView {
    fn from(snapshot: Snapshot) -> SnapshotView {
        let Snapshot { name, bytes, created, is_protected: protected } = snapshot;
        SnapshotView { name, bytes, created, protected }
    }
}
