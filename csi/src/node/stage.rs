//! Staging: a volume is attached, and its file system mounted once for all pods.

use super::attach::Publication;
use super::filesystem::{self, DesiredMount};
use super::{NodeService, failed, mounts, path, uuid};
use crate::capability;
use crate::plan::stage::{Attached, StageFacts, StageStep, next_stage_step, next_unstage_step};
use crate::proto::{
    NodeStageVolumeRequest, NodeStageVolumeResponse, NodeUnstageVolumeRequest,
    NodeUnstageVolumeResponse,
};
use std::path::Path;
use tonic::Status;

/// More steps than any plan has.
const STEPS_MAX: usize = 12;

async fn facts(service: &NodeService, uuid: &str, staging: &Path) -> Result<StageFacts, Status> {
    let attached = service.attachments.find(uuid).await.map_err(failed)?;
    let mounted = mounts::at(staging).map_err(|error| failed(error.to_string()))?;
    Ok(StageFacts { attached, mounted: mounted.map(|mount| mount.number) })
}

async fn unmount(staging: &Path, is_dead: bool) -> Result<(), Status> {
    mounts::unmount_top(staging, is_dead)
        .await
        .map_err(|error| failed(format!("cannot unmount {}: {error}", staging.display())))
}

pub(super) async fn node_stage_volume(
    service: &NodeService,
    request: NodeStageVolumeRequest,
) -> Result<NodeStageVolumeResponse, Status> {
    if request.volume_id.is_empty() {
        return Err(Status::invalid_argument("volume ID is missing"));
    }
    let staging = path(&request.staging_target_path, "staging target path")?;
    let checked = capability::check(request.volume_capability.as_ref())?;
    let uuid = uuid(&request.volume_id)?;
    let publication = Publication::of_context(&request.publish_context).ok_or_else(|| {
        Status::invalid_argument(
            "publish context has no nqn or addresses: publish the volume first",
        )
    })?;
    let _lock = service.locks.lock(&uuid)?;
    let is_block = checked.file_system.is_none();
    for _ in 0..STEPS_MAX {
        let facts = facts(service, &uuid, &staging).await?;
        match next_stage_step(&facts, is_block) {
            StageStep::Attach => {
                let attached =
                    service.attachments.attach(&uuid, &publication, &request.secrets).await;
                attached.map_err(Status::unavailable)?;
            }
            StageStep::Wait => service.attachments.wait(&uuid).await.map_err(failed)?,
            StageStep::Unmount { is_dead } => unmount(&staging, is_dead).await?,
            StageStep::Detach => detach(service, &uuid).await?,
            StageStep::Mount => mount(&facts, &staging, &request).await?,
            StageStep::Done => {
                if let (Attached::Ready(device), false) =
                    (&facts.attached, is_block || checked.is_read_only)
                {
                    // A copy may be larger than what it was copied from. It can be used with the old size, too.
                    if let Err(failure) = filesystem::grow(&device.path, &staging).await {
                        tracing::warn!(
                            volume = request.volume_id,
                            "its file system is not grown: {failure}"
                        );
                    }
                }
                return Ok(NodeStageVolumeResponse {});
            }
        }
    }
    Err(failed(format!("{uuid} is not staged after many steps")))
}

async fn mount(
    facts: &StageFacts,
    staging: &Path,
    request: &NodeStageVolumeRequest,
) -> Result<(), Status> {
    let checked = capability::check(request.volume_capability.as_ref())?;
    let (Attached::Ready(device), Some((kind, options))) = (&facts.attached, checked.file_system)
    else {
        return Err(failed("a block volume is not mounted".into()));
    };
    std::fs::create_dir_all(staging)
        .map_err(|error| failed(format!("{}: {error}", staging.display())))?;
    let make_options = request.volume_context.get("mkfsOptions").map_or("", String::as_str);
    let desired = DesiredMount { kind, make_options, options, is_read_only: checked.is_read_only };
    filesystem::mount(&device.path, staging, &desired).await.map_err(failed)
}

/// Detaches; what had been left undone by the process is reported, once.
async fn detach(service: &NodeService, uuid: &str) -> Result<(), Status> {
    service.attachments.detach(uuid).await.map_err(failed)
}

/// A device that is mounted somewhere is not taken away.
fn refuse_in_use(facts: &StageFacts) -> Result<(), Status> {
    let Attached::Ready(device) = &facts.attached else { return Ok(()) };
    let mounted = mounts::of_device(device).map_err(|error| failed(error.to_string()))?;
    match mounted.first() {
        None => Ok(()),
        Some(point) => {
            let what =
                format!("the volume is published at {}: unpublish it first", point.display());
            Err(Status::failed_precondition(what))
        }
    }
}

pub(super) async fn node_unstage_volume(
    service: &NodeService,
    request: NodeUnstageVolumeRequest,
) -> Result<NodeUnstageVolumeResponse, Status> {
    if request.volume_id.is_empty() {
        return Err(Status::invalid_argument("volume ID is missing"));
    }
    let staging = path(&request.staging_target_path, "staging target path")?;
    let Ok(uuid) = uuid(&request.volume_id) else { return Ok(NodeUnstageVolumeResponse {}) };
    let _lock = service.locks.lock(&uuid)?;
    for _ in 0..STEPS_MAX {
        let facts = facts(service, &uuid, &staging).await?;
        match next_unstage_step(&facts) {
            StageStep::Unmount { is_dead } => unmount(&staging, is_dead).await?,
            StageStep::Detach => {
                refuse_in_use(&facts)?;
                detach(service, &uuid).await?;
            }
            StageStep::Attach => {
                service.attachments.attach_again(&uuid).await.map_err(Status::unavailable)?;
            }
            StageStep::Wait => service.attachments.wait(&uuid).await.map_err(failed)?,
            StageStep::Mount => return Err(failed("unstaging mounts nothing".into())),
            StageStep::Done => {
                service.attachments.forget(&uuid).map_err(failed)?;
                return Ok(NodeUnstageVolumeResponse {});
            }
        }
    }
    Err(failed(format!("{uuid} is not unstaged after many steps")))
}
