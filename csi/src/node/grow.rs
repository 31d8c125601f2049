//! A volume that has grown at the target: the file system grows, too.

use super::attach::device_bytes;
use super::{NodeService, failed, filesystem, mounts, uuid};
use crate::controller::needed;
use crate::plan::stage::Attached;
use crate::proto::{NodeExpandVolumeRequest, NodeExpandVolumeResponse};
use crate::target::CLUSTER_BYTES;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tonic::Status;

/// Most time until the device has the new size.
const PATIENCE: Duration = Duration::from_secs(20);

pub(super) async fn node_expand_volume(
    service: &NodeService,
    request: NodeExpandVolumeRequest,
) -> Result<NodeExpandVolumeResponse, Status> {
    let id = needed(&request.volume_id, "volume ID")?;
    let volume_path = PathBuf::from(needed(&request.volume_path, "volume path")?);
    let uuid = uuid(&id)?;
    let _lock = service.locks.lock(&uuid)?;
    let attached = service.attachments.find(&uuid).await.map_err(failed)?;
    let Attached::Ready(device) = attached else {
        return Err(Status::not_found(format!("{uuid} is not attached to this node")));
    };
    let required = request.capacity_range.map_or(0, |range| range.required_bytes);
    let required = u64::try_from(required)
        .map_err(|_| Status::invalid_argument("capacity range: required_bytes is negative"))?;
    let begin = Instant::now();
    let mut bytes = device_bytes(&device).map_err(failed)?;
    while bytes < required {
        if begin.elapsed() > PATIENCE {
            let what = format!("{} has {bytes} bytes, not yet {required}", device.path);
            return Err(Status::unavailable(what));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        bytes = device_bytes(&device).map_err(failed)?;
    }
    let mount = mounts::at(&volume_path).map_err(|error| failed(error.to_string()))?;
    // A block volume has grown with its device.
    if let Some(mount) = mount.filter(|mount| mount.number == device.number) {
        filesystem::grow(&device.path, &mount.point).await.map_err(failed)?;
    } else if !volume_path.exists() {
        return Err(Status::not_found(format!("{} does not exist", volume_path.display())));
    }
    let whole = bytes - bytes % CLUSTER_BYTES;
    Ok(NodeExpandVolumeResponse { capacity_bytes: i64::try_from(whole).unwrap_or(i64::MAX) })
}
