//! Use and health of a volume on this node.

use super::attach::device_bytes;
use super::{NodeService, failed, mounts, uuid};
use crate::controller::needed;
use crate::health::{VolumeProblem, health};
use crate::plan::stage::{Attached, BlockDevice};
use crate::proto::volume_usage::Unit;
use crate::proto::{
    NodeGetVolumeHealthRequest, NodeGetVolumeHealthResponse, NodeGetVolumeStatsRequest,
    NodeGetVolumeStatsResponse, VolumeUsage,
};
use rustix::fs::statvfs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tonic::Status;

/// Most time for a file system to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// A volume at a path of this node.
struct VolumeAtPath {
    attached: Attached,
    /// True if the path is a mount of its file system, and the device is there.
    is_mounted: bool,
    /// True if the path is its device.
    is_device: bool,
}

async fn find(service: &NodeService, id: &str, volume_path: &Path) -> Result<VolumeAtPath, Status> {
    let uuid = uuid(id)?;
    let attached = service.attachments.find(&uuid).await.map_err(failed)?;
    if attached == Attached::No {
        return Err(Status::not_found(format!("{id} is not attached to this node")));
    }
    let mount = mounts::at(volume_path).map_err(|error| failed(error.to_string()))?;
    if mount.is_none() && std::fs::symlink_metadata(volume_path).is_err() {
        return Err(Status::not_found(format!("{} does not exist", volume_path.display())));
    }
    let (is_mounted, is_device) = match &attached {
        Attached::Ready(device) => (
            mount.is_some_and(|mount| mount.number == device.number),
            super::attach::device_number(volume_path) == Some(device.number),
        ),
        _ => (false, false),
    };
    Ok(VolumeAtPath { attached, is_mounted, is_device })
}

pub(super) async fn node_get_volume_stats(
    service: &NodeService,
    request: NodeGetVolumeStatsRequest,
) -> Result<NodeGetVolumeStatsResponse, Status> {
    let id = needed(&request.volume_id, "volume ID")?;
    let volume_path = PathBuf::from(needed(&request.volume_path, "volume path")?);
    let found = find(service, &id, &volume_path).await?;
    let usage = match &found.attached {
        Attached::Ready(_) if found.is_mounted => {
            file_system_usage(volume_path).await.map_err(Status::unavailable)?
        }
        Attached::Ready(device) if found.is_device => device_usage(device)?,
        _ => {
            let what = format!("{} shows {id} no more", volume_path.display());
            return Err(Status::unavailable(format!("{what}: its attachment has ended")));
        }
    };
    Ok(NodeGetVolumeStatsResponse { usage })
}

pub(super) async fn node_get_volume_health(
    service: &NodeService,
    request: NodeGetVolumeHealthRequest,
) -> Result<NodeGetVolumeHealthResponse, Status> {
    let id = needed(&request.volume_id, "volume ID")?;
    let paths = [&request.volume_publish_path, &request.staging_target_path];
    let attached = service.attachments.find(&uuid(&id)?).await.map_err(failed)?;
    if attached == Attached::No {
        return Err(Status::not_found(format!("{id} is not attached to this node")));
    }
    let mut problem = service.attachments.problem(&uuid(&id)?, &attached).await;
    for text in paths.into_iter().filter(|path| !path.is_empty()) {
        let found = find(service, &id, Path::new(text)).await?;
        if problem.is_none() && found.is_mounted {
            let used = file_system_usage(text.into()).await.err();
            problem = used.map(|message| VolumeProblem::inaccessible("FileSystemFails", message));
        } else if problem.is_none() && !found.is_device && *text == request.volume_publish_path {
            let message = "the path is of an earlier attachment: restart the pod";
            problem = Some(VolumeProblem::inaccessible("StaleMount", message));
        }
    }
    Ok(NodeGetVolumeHealthResponse { volume_health: Some(health(id, problem)) })
}

fn shown(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn device_usage(device: &BlockDevice) -> Result<Vec<VolumeUsage>, Status> {
    let total = shown(device_bytes(device).map_err(failed)?);
    Ok(vec![VolumeUsage { total, unit: Unit::Bytes.into(), ..VolumeUsage::default() }])
}

/// Use of a mounted file system, which may not answer while the target is away.
async fn file_system_usage(path: PathBuf) -> Result<Vec<VolumeUsage>, String> {
    let name = path.display().to_string();
    let call = tokio::task::spawn_blocking(move || statvfs(&path));
    let stats = match tokio::time::timeout(PATIENCE, call).await {
        Ok(Ok(Ok(stats))) => stats,
        Ok(Ok(Err(error))) => return Err(format!("{name}: {error}")),
        Ok(Err(error)) => return Err(error.to_string()),
        Err(_) => return Err(format!("{name} does not answer within {} s", PATIENCE.as_secs())),
    };
    let unit = |unit: Unit, total: u64, free: u64, available: u64| VolumeUsage {
        total: shown(total),
        used: shown(total.saturating_sub(free)),
        available: shown(available),
        unit: unit.into(),
    };
    let bytes = |blocks: u64| blocks.saturating_mul(stats.f_frsize);
    Ok(vec![
        unit(Unit::Bytes, bytes(stats.f_blocks), bytes(stats.f_bfree), bytes(stats.f_bavail)),
        unit(Unit::Inodes, stats.f_files, stats.f_ffree, stats.f_favail),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn file_systems_have_use() {
        let usage = file_system_usage("/".into()).await.unwrap();
        assert!(
            usage.iter().any(|one| one.unit == i32::from(Unit::Bytes) && one.total >= one.used)
        );
        assert!(file_system_usage("/nonexistent".into()).await.is_err());
    }
}
