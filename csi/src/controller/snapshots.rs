//! Snapshots are created, deleted and listed.

use super::list::page;
use super::volumes::{check_name, deleted_of_no_target};
use super::{ControllerService, needed, refusal_status, status_of};
use crate::names::{self, ObjectId};
use crate::plan::volume::{SnapshotStep, next_snapshot_step};
use crate::proto::{
    CreateSnapshotRequest, CreateSnapshotResponse, DeleteSnapshotRequest, DeleteSnapshotResponse,
    GetSnapshotRequest, GetSnapshotResponse, ListSnapshotsRequest, ListSnapshotsResponse, Snapshot,
    list_snapshots_response,
};
use crate::target::{Lvol, Target};
use tonic::Status;

/// Returns a snapshot as CSI shows it; `None` if it is none of the driver.
fn view(target: &Target, lvol: &Lvol) -> Option<Snapshot> {
    let id = |uuid: String| ObjectId { target: target.settings.name.clone(), uuid }.to_string();
    let source = names::snapshot_source(&lvol.name)?;
    let seconds = lvol.created_unix_seconds;
    Some(Snapshot {
        size_bytes: i64::try_from(lvol.bytes).unwrap_or(i64::MAX),
        snapshot_id: id(lvol.uuid.clone()),
        source_volume_id: id(source),
        creation_time: Some(prost_types::Timestamp { seconds, nanos: 0 }),
        // A target replies when a snapshot is whole.
        ready_to_use: true,
        ..Snapshot::default()
    })
}

pub(super) async fn create_snapshot(
    service: &ControllerService,
    request: CreateSnapshotRequest,
) -> Result<CreateSnapshotResponse, Status> {
    check_name(&request.name)?;
    let source = needed(&request.source_volume_id, "source volume ID")?;
    if let Some(key) = request.parameters.keys().find(|key| !key.starts_with("csi.storage.k8s.io/"))
    {
        return Err(Status::invalid_argument(format!(
            "parameter {key} is not known: there is none"
        )));
    }
    let none = || Status::not_found(format!("no volume {source}"));
    let (target, parsed) = service.target_of(&source).ok_or_else(none)?;
    let _lock = service.locks.lock(format!("snapshot {}", request.name))?;
    let _source_lock = service.locks.lock(&source)?;
    for _ in 0..2 {
        let lvols = target.lvols().await.map_err(|failure| status_of(&failure))?;
        let step =
            next_snapshot_step(&lvols, &request.name, &parsed.uuid).map_err(refusal_status)?;
        match step {
            SnapshotStep::Done(lvol) => {
                return Ok(CreateSnapshotResponse { snapshot: view(target, &lvol) });
            }
            SnapshotStep::Create { name } => {
                target
                    .snapshot(&parsed.uuid, &name)
                    .await
                    .map_err(|failure| status_of(&failure))?;
            }
        }
    }
    Err(Status::internal(format!("the snapshot {} is made and not shown", request.name)))
}

pub(super) async fn delete_snapshot(
    service: &ControllerService,
    request: DeleteSnapshotRequest,
) -> Result<DeleteSnapshotResponse, Status> {
    let id = needed(&request.snapshot_id, "snapshot ID")?;
    let Some((target, parsed)) = service.target_of(&id) else {
        return deleted_of_no_target(service, &id).map(|()| DeleteSnapshotResponse {});
    };
    let _lock = service.locks.lock(&id)?;
    let found = target.lvol(&parsed.uuid).await.map_err(|failure| status_of(&failure))?;
    let Some(lvol) = found else { return Ok(DeleteSnapshotResponse {}) };
    if names::snapshot_source(&lvol.name).is_none() {
        let what = format!("{id} is {}, no snapshot that the driver has made", lvol.name);
        return Err(Status::failed_precondition(what));
    }
    target.delete_lvol(&parsed.uuid).await.map_err(|failure| status_of(&failure))?;
    Ok(DeleteSnapshotResponse {})
}

pub(super) async fn get_snapshot(
    service: &ControllerService,
    request: GetSnapshotRequest,
) -> Result<GetSnapshotResponse, Status> {
    let id = needed(&request.snapshot_id, "snapshot ID")?;
    let none = || Status::not_found(format!("no snapshot {id}"));
    let (target, parsed) = service.target_of(&id).ok_or_else(none)?;
    let lvol = target.lvol(&parsed.uuid).await.map_err(|failure| status_of(&failure))?;
    let snapshot = lvol.and_then(|lvol| view(target, &lvol)).ok_or_else(none)?;
    Ok(GetSnapshotResponse { snapshot: Some(snapshot) })
}

pub(super) async fn list_snapshots(
    service: &ControllerService,
    request: ListSnapshotsRequest,
) -> Result<ListSnapshotsResponse, Status> {
    let mut snapshots = Vec::new();
    for target in &service.targets {
        let lvols = target.lvols().await.map_err(|failure| status_of(&failure))?;
        snapshots.extend(
            lvols.iter().filter(|lvol| lvol.is_snapshot).filter_map(|lvol| view(target, lvol)),
        );
    }
    let is_wanted = |snapshot: &Snapshot| {
        let matches = |wanted: &str, id: &str| wanted.is_empty() || wanted == id;
        matches(&request.snapshot_id, &snapshot.snapshot_id)
            && matches(&request.source_volume_id, &snapshot.source_volume_id)
    };
    snapshots.retain(is_wanted);
    snapshots.sort_by(|a, b| a.snapshot_id.cmp(&b.snapshot_id));
    let ids: Vec<String> = snapshots.iter().map(|snapshot| snapshot.snapshot_id.clone()).collect();
    let (range, next_token) = page(&ids, &request.starting_token, request.max_entries)?;
    let entry = |snapshot| list_snapshots_response::Entry { snapshot: Some(snapshot) };
    let entries = snapshots.drain(range).map(entry).collect();
    Ok(ListSnapshotsResponse { entries, next_token })
}
