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
            return Err(not_grown(&device.path, bytes, required));
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

/// Returns the status of a device that has not grown. Kernels before Linux 6.16 do not resize an ublk device in use.
fn not_grown(path: &str, bytes: u64, required: u64) -> Status {
    let what = format!("{path} has {bytes} bytes, not yet {required}");
    match path.starts_with("/dev/ublkb") {
        true => Status::unavailable(format!(
            "{what}; before Linux 6.16 it grows when it is staged again: delete the pods that use it on this node"
        )),
        false => Status::unavailable(what),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_refusal_names_the_remedy() {
        let text = |path| not_grown(path, 1, 2).message().to_owned();
        assert_eq!(text("/dev/loop0"), "/dev/loop0 has 1 bytes, not yet 2");
        assert!(text("/dev/ublkb0").ends_with("delete the pods that use it on this node"));
    }
}
