//! Publishing: a staged volume appears at the path of a pod.

use super::attach::device_number;
use super::stage::{DesiredStaging, stage};
use super::{NodeService, failed, mounts, path, uuid};
use crate::capability;
use crate::plan::stage::{BlockDevice, PublishPathStep, PublishedMount, next_publish_path_step};
use crate::proto::{
    NodePublishVolumeRequest, NodePublishVolumeResponse, NodeUnpublishVolumeRequest,
    NodeUnpublishVolumeResponse,
};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use tonic::Status;

/// More mounts than are ever over each other at one path.
const MOUNTS_MAX: usize = 16;

/// Volume that is to appear at a path.
struct Staged {
    /// Source of the bind mount: the staging path, or the device.
    source: PathBuf,
    /// Its device.
    device: BlockDevice,
    /// True for a device.
    is_block: bool,
}

fn io_failed(path: &Path, error: &std::io::Error) -> Status {
    failed(format!("{}: {error}", path.display()))
}

/// Finds what is published. A volume that was staged, and whose attachment has died since then, is staged again: Kubernetes
/// publishes to a new pod without staging.
async fn staged(
    service: &NodeService,
    uuid: &str,
    staging: &Path,
    request: &NodePublishVolumeRequest,
) -> Result<Staged, Status> {
    let capability = capability::check(request.volume_capability.as_ref())?;
    if !service.attachments.was_attached(uuid) {
        return Err(Status::failed_precondition(format!("{uuid} is not staged: stage it first")));
    }
    let context = &request.volume_context;
    let desired = DesiredStaging { uuid, path: staging, capability, context, publication: None };
    let device = stage(service, &desired).await?;
    let is_block = capability.file_system.is_none();
    let source = if is_block { device.path.clone().into() } else { staging.to_owned() };
    Ok(Staged { source, device, is_block })
}

/// Finds the mount at the path of a pod.
fn published(target: &Path, is_block: bool) -> Result<Option<PublishedMount>, Status> {
    let mount = mounts::at(target).map_err(|error| io_failed(target, &error))?;
    Ok(mount.map(|mount| {
        // The mount of a device is one of the file system that has its node; what counts is the device itself.
        let number = if is_block { device_number(target).unwrap_or((0, 0)) } else { mount.number };
        PublishedMount { number, is_read_only: mount.is_read_only }
    }))
}

pub(super) async fn node_publish_volume(
    service: &NodeService,
    request: NodePublishVolumeRequest,
) -> Result<NodePublishVolumeResponse, Status> {
    if request.volume_id.is_empty() {
        return Err(Status::invalid_argument("volume ID is missing"));
    }
    let target = path(&request.target_path, "target path")?;
    let checked = capability::check(request.volume_capability.as_ref())?;
    let staging = path(&request.staging_target_path, "staging target path")?;
    let uuid = uuid(&request.volume_id)?;
    let _lock = service.locks.lock(&uuid)?;
    let staged = staged(service, &uuid, &staging, &request).await?;
    if checked.is_for_one_pod {
        refuse_second(&staged, &staging, &target)?;
    }
    let is_read_only = request.readonly || checked.is_read_only;
    for _ in 0..MOUNTS_MAX {
        let published = published(&target, staged.is_block)?;
        match next_publish_path_step(published, staged.device.number, is_read_only) {
            PublishPathStep::Done => return Ok(NodePublishVolumeResponse {}),
            PublishPathStep::UnmountStale => {
                mounts::unmount_top(&target, true)
                    .await
                    .map_err(|error| io_failed(&target, &error))?;
            }
            PublishPathStep::Bind => {
                make_place(&target, staged.is_block).map_err(|error| io_failed(&target, &error))?;
                mounts::bind(&staged.source, &target)
                    .map_err(|error| io_failed(&target, &error))?;
            }
            PublishPathStep::RemountReadOnly => {
                mounts::remount_read_only(&target).map_err(|error| io_failed(&target, &error))?;
            }
            PublishPathStep::Incompatible => {
                let what = format!("{} is published read-only", target.display());
                return Err(Status::already_exists(what));
            }
        }
    }
    Err(failed(format!("{} is not published after many steps", target.display())))
}

/// A volume for one pod (ReadWriteOncePod) is published once.
fn refuse_second(staged: &Staged, staging: &Path, target: &Path) -> Result<(), Status> {
    let mounted = mounts::of_device(&staged.device).map_err(|error| failed(error.to_string()))?;
    let own = [mounts::resolved(staging), mounts::resolved(target)];
    match mounted.iter().find(|point| !own.contains(point)) {
        None => Ok(()),
        Some(point) => {
            let what = format!("the volume is for one pod, and published at {}", point.display());
            Err(Status::failed_precondition(what))
        }
    }
}

/// Makes the folder or file that is mounted over.
fn make_place(target: &Path, is_block: bool) -> std::io::Result<()> {
    if let Some(parent) = target.parent() {
        fs::create_dir_all(parent)?;
    }
    let made = match is_block {
        true => fs::OpenOptions::new().write(true).create_new(true).open(target).map(drop),
        false => fs::create_dir(target),
    };
    match made {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

pub(super) async fn node_unpublish_volume(
    service: &NodeService,
    request: NodeUnpublishVolumeRequest,
) -> Result<NodeUnpublishVolumeResponse, Status> {
    if request.volume_id.is_empty() {
        return Err(Status::invalid_argument("volume ID is missing"));
    }
    let target = path(&request.target_path, "target path")?;
    let _lock = service.locks.lock(uuid(&request.volume_id).unwrap_or(request.volume_id))?;
    for _ in 0..MOUNTS_MAX {
        let mount = mounts::at(&target).map_err(|error| io_failed(&target, &error))?;
        if mount.is_none() {
            remove_place(&target).map_err(|error| io_failed(&target, &error))?;
            return Ok(NodeUnpublishVolumeResponse {});
        }
        // The staging path keeps the file system mounted: nothing is lost by not waiting for readers.
        mounts::unmount_top(&target, true).await.map_err(|error| io_failed(&target, &error))?;
    }
    Err(failed(format!("{} has over {MOUNTS_MAX} mounts", target.display())))
}

/// Removes the folder or file; a folder that is not empty stays, with an error.
fn remove_place(target: &Path) -> std::io::Result<()> {
    let removed = match fs::symlink_metadata(target) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir(target),
        Ok(_) => fs::remove_file(target),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_made_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        for is_block in [false, true] {
            let place = folder.path().join("pods/1/target");
            for _ in 0..2 {
                make_place(&place, is_block).unwrap();
            }
            assert_eq!(place.is_file(), is_block);
            for _ in 0..2 {
                remove_place(&place).unwrap();
            }
            assert!(!place.exists());
        }
        let place = folder.path().join("used");
        fs::create_dir(&place).unwrap();
        fs::write(place.join("file"), "a pod's").unwrap();
        assert!(remove_place(&place).is_err() && place.join("file").exists());
    }
}
