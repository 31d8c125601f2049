//! Staging: a volume is attached, and its file system mounted once for all pods.

use super::attach::Publication;
use super::filesystem::{self, DesiredMount};
use super::{NodeService, failed, mounts, path, uuid};
use crate::capability::{self, CheckedCapability};
use crate::plan::stage::{
    Attached, BlockDevice, StageFacts, StageStep, next_stage_step, next_unstage_step,
};
use crate::proto::{
    NodeStageVolumeRequest, NodeStageVolumeResponse, NodeUnstageVolumeRequest,
    NodeUnstageVolumeResponse,
};
use std::collections::HashMap;
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

/// Volume that is to be staged.
pub(super) struct DesiredStaging<'a> {
    /// UUID of the volume.
    pub(super) uuid: &'a str,
    /// Staging path.
    pub(super) path: &'a Path,
    /// Capability, checked.
    pub(super) capability: CheckedCapability<'a>,
    /// Context of the volume.
    pub(super) context: &'a HashMap<String, String>,
    /// Where it can be reached, and the Secret; `None`: as it was attached the last time.
    pub(super) publication: Option<(&'a Publication, &'a HashMap<String, String>)>,
}

/// Takes steps until the volume is staged; returns its device.
pub(super) async fn stage(
    service: &NodeService,
    desired: &DesiredStaging<'_>,
) -> Result<BlockDevice, Status> {
    let (uuid, staging) = (desired.uuid, desired.path);
    let is_block = desired.capability.file_system.is_none();
    for _ in 0..STEPS_MAX {
        let facts = facts(service, uuid, staging).await?;
        match (next_stage_step(&facts, is_block), &facts.attached) {
            (StageStep::Attach, _) => {
                let attached = match desired.publication {
                    Some((publication, secrets)) => {
                        service.attachments.attach(uuid, publication, secrets).await
                    }
                    None => service.attachments.attach_again(uuid).await,
                };
                attached.map_err(Status::unavailable)?;
            }
            (StageStep::Wait, _) => service.attachments.wait(uuid).await.map_err(failed)?,
            (StageStep::Unmount { is_dead }, _) => unmount(staging, is_dead).await?,
            (StageStep::Detach, _) => detach(service, uuid).await?,
            (StageStep::Mount, Attached::Ready(device)) => mount(device, desired).await?,
            (StageStep::Done, Attached::Ready(device)) => return Ok(device.clone()),
            (StageStep::Mount | StageStep::Done, _) => break,
        }
    }
    Err(failed(format!("{uuid} is not staged after many steps")))
}

pub(super) async fn node_stage_volume(
    service: &NodeService,
    request: NodeStageVolumeRequest,
) -> Result<NodeStageVolumeResponse, Status> {
    if request.volume_id.is_empty() {
        return Err(Status::invalid_argument("volume ID is missing"));
    }
    let staging = path(&request.staging_target_path, "staging target path")?;
    let capability = capability::check(request.volume_capability.as_ref())?;
    let uuid = uuid(&request.volume_id)?;
    let publication = Publication::of_context(&request.publish_context).ok_or_else(|| {
        Status::invalid_argument(
            "publish context has no nqn or addresses: publish the volume first",
        )
    })?;
    let _lock = service.locks.lock(&uuid)?;
    let desired = DesiredStaging {
        uuid: &uuid,
        path: &staging,
        capability,
        context: &request.volume_context,
        publication: Some((&publication, &request.secrets)),
    };
    let device = stage(service, &desired).await?;
    if capability.file_system.is_some() && !capability.is_read_only {
        // A copy may be larger than what it was copied from. It can be used with the old size, too.
        if let Err(failure) = filesystem::grow(&device.path, &staging).await {
            tracing::warn!(uuid, "its file system is not grown: {failure}");
        }
    }
    Ok(NodeStageVolumeResponse {})
}

async fn mount(device: &BlockDevice, desired: &DesiredStaging<'_>) -> Result<(), Status> {
    let Some((kind, options)) = desired.capability.file_system else {
        return Err(failed("a block volume is not mounted".into()));
    };
    let staging = desired.path;
    std::fs::create_dir_all(staging)
        .map_err(|error| failed(format!("{}: {error}", staging.display())))?;
    let make_options = desired.context.get("mkfsOptions").map_or("", String::as_str);
    let is_read_only = desired.capability.is_read_only;
    let mount = DesiredMount { kind, make_options, options, is_read_only };
    filesystem::mount(&device.path, staging, &mount).await.map_err(failed)
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
