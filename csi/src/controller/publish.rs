//! Publishing: a node may use a volume.

use super::volumes::{STEPS_MAX, find};
use super::{ControllerService, keys, needed, status_of};
use crate::capability;
use crate::names;
use crate::node::attach::Publication;
use crate::plan::publication::{
    DesiredPublication, PublishStep, UnpublishStep, next_publish_step, next_unpublish_step,
};
use crate::proto::{
    ControllerPublishVolumeRequest, ControllerPublishVolumeResponse,
    ControllerUnpublishVolumeRequest, ControllerUnpublishVolumeResponse,
};
use crate::rpc::RpcFailure;
use crate::target::Target;
use tonic::Status;

pub(super) async fn controller_publish_volume(
    service: &ControllerService,
    request: ControllerPublishVolumeRequest,
) -> Result<ControllerPublishVolumeResponse, Status> {
    let id = needed(&request.volume_id, "volume ID")?;
    let node = needed(&request.node_id, "node ID")?;
    let checked = capability::check(request.volume_capability.as_ref())?;
    if request.readonly {
        return Err(Status::invalid_argument("a node makes its mounts read-only, not the target"));
    }
    let _lock = service.locks.lock(&id)?;
    let (target, parsed, _) = find(service, &id).await?;
    if !names::is_node(&node) {
        let what = format!("no node {node}: the ID of a node of this driver is a host NQN");
        return Err(Status::not_found(what));
    }
    let keys = keys::provide(target, &parsed.uuid, &node, &request.secrets).await?;
    let desired = DesiredPublication {
        uuid: &parsed.uuid,
        host: &node,
        addresses: &target.settings.addresses,
        keys: &keys,
        is_shared: checked.is_shared,
    };
    publish(target, &desired).await?;
    let publication = Publication {
        nqn: names::subsystem(&parsed.uuid),
        addresses: target.settings.addresses.clone(),
        tls: target.settings.tls,
    };
    Ok(ControllerPublishVolumeResponse { publish_context: publication.context() })
}

/// Takes steps until the node can use the volume.
async fn publish(target: &Target, desired: &DesiredPublication<'_>) -> Result<(), Status> {
    let uuid = desired.uuid;
    for _ in 0..STEPS_MAX + desired.addresses.len() {
        let subsystem = target.subsystem(uuid).await.map_err(|failure| status_of(&failure))?;
        let step = next_publish_step(subsystem.as_ref(), desired).map_err(|other| {
            Status::failed_precondition(format!(
                "the node {other} uses the volume: unpublish it there first"
            ))
        })?;
        let result = match &step {
            PublishStep::Done => return Ok(()),
            PublishStep::CreateSubsystem => target.create_subsystem(uuid).await,
            PublishStep::AddNamespace => target.add_namespace(uuid).await,
            PublishStep::AddListener(address) => target.add_listener(uuid, address).await,
            PublishStep::AddHost => target.add_host(uuid, desired.host, desired.keys).await,
            PublishStep::ReplaceHost => target.remove_host(uuid, desired.host).await,
        };
        result.map_err(|failure| status_of(&failure))?;
    }
    Err(Status::internal(format!("{uuid} is not published after many steps")))
}

pub(super) async fn controller_unpublish_volume(
    service: &ControllerService,
    request: ControllerUnpublishVolumeRequest,
) -> Result<ControllerUnpublishVolumeResponse, Status> {
    let id = needed(&request.volume_id, "volume ID")?;
    let Some((target, parsed)) = service.target_of(&id) else {
        super::volumes::deleted_of_no_target(service, &id)?;
        return Ok(ControllerUnpublishVolumeResponse {});
    };
    let _lock = service.locks.lock(&id)?;
    let node = Some(request.node_id.as_str()).filter(|node| !node.is_empty());
    let failed = |failure: RpcFailure| status_of(&failure);
    for _ in 0..STEPS_MAX {
        let subsystem = target.subsystem(&parsed.uuid).await.map_err(failed)?;
        match (next_unpublish_step(subsystem.as_ref(), node), node) {
            (UnpublishStep::RemoveHost, Some(node)) => {
                target.remove_host(&parsed.uuid, node).await.map_err(failed)?;
            }
            (UnpublishStep::DeleteSubsystem, _) => {
                target.delete_subsystem(&parsed.uuid).await.map_err(failed)?;
            }
            _ => {
                keys::remove(target, &parsed.uuid, node).await?;
                return Ok(ControllerUnpublishVolumeResponse {});
            }
        }
    }
    Err(Status::internal(format!("{id} is not unpublished after many steps")))
}
