//! The controller service: volumes, snapshots, and which node may use them.

mod keys;
mod list;
mod parameters;
mod publish;
mod snapshots;
mod topology;
mod volumes;

use crate::calls::calls;
use crate::locks::VolumeLocks;
use crate::metrics::Metrics;
use crate::names::ObjectId;
use crate::plan::volume::PlanRefusal;
use crate::proto::controller_server::Controller;
use crate::proto::controller_service_capability::Type as CapabilityType;
use crate::proto::controller_service_capability::rpc::Type as RpcType;
use crate::proto::{self, ControllerServiceCapability, controller_service_capability};
use crate::rpc::RpcFailure;
use crate::target::Target;
use std::sync::Arc;
use tonic::{Request, Response, Status};

pub(crate) use topology::segment;

/// The controller service. It keeps nothing but locks: all else is at the targets.
#[derive(Clone, Debug)]
pub(crate) struct ControllerService {
    driver_name: String,
    targets: Vec<Target>,
    locks: VolumeLocks,
    metrics: Arc<Metrics>,
}

const CAPABILITIES: [RpcType; 14] = [
    RpcType::CreateDeleteVolume,
    RpcType::PublishUnpublishVolume,
    RpcType::ListVolumes,
    RpcType::ListVolumesPublishedNodes,
    RpcType::GetCapacity,
    RpcType::CreateDeleteSnapshot,
    RpcType::ListSnapshots,
    RpcType::CloneVolume,
    RpcType::ExpandVolume,
    RpcType::GetVolume,
    RpcType::GetVolumeHealth,
    RpcType::ListVolumeHealth,
    RpcType::GetSnapshot,
    RpcType::SingleNodeMultiWriter,
];

impl ControllerService {
    pub(crate) fn new(
        driver_name: String,
        targets: Vec<Target>,
        metrics: Arc<Metrics>,
    ) -> ControllerService {
        ControllerService { driver_name, targets, locks: VolumeLocks::default(), metrics }
    }

    /// Finds the target of a volume or snapshot.
    fn target_of(&self, id: &str) -> Option<(&Target, ObjectId)> {
        let id = ObjectId::parse(id)?;
        let target = self.targets.iter().find(|target| target.settings.name == id.target)?;
        Some((target, id))
    }
}

/// Returns the status for a call of a target that failed.
pub(crate) fn status_of(failure: &RpcFailure) -> Status {
    let message = failure.to_string();
    match failure {
        RpcFailure::Unreachable { .. } => Status::unavailable(message),
        _ if failure.says("no space left") => Status::resource_exhausted(message),
        // A name that is reserved by a call that has not ended.
        _ if failure.says("file exists") || failure.says("is being copied") => {
            Status::aborted(message)
        }
        _ if failure.is_busy() => Status::failed_precondition(message),
        _ if failure.is_absence() => Status::not_found(message),
        _ => Status::internal(message),
    }
}

/// Returns the status for what cannot be.
fn refusal_status(refusal: PlanRefusal) -> Status {
    match refusal {
        PlanRefusal::Exists(what) => Status::already_exists(what),
        PlanRefusal::NoSource(what) => Status::not_found(what),
        PlanRefusal::Size(what) => Status::out_of_range(what),
        PlanRefusal::Invalid(what) => Status::invalid_argument(what),
    }
}

/// Returns `value`, unless it is empty.
pub(crate) fn needed(value: &str, name: &str) -> Result<String, Status> {
    match value.is_empty() {
        true => Err(Status::invalid_argument(format!("{name} is missing"))),
        false => Ok(value.to_owned()),
    }
}

#[tonic::async_trait]
impl Controller for ControllerService {
    calls! {
        create_volume, "CreateVolume", CreateVolumeRequest, CreateVolumeResponse, volumes;
        delete_volume, "DeleteVolume", DeleteVolumeRequest, DeleteVolumeResponse, volumes;
        controller_expand_volume, "ControllerExpandVolume", ControllerExpandVolumeRequest,
            ControllerExpandVolumeResponse, volumes;
        validate_volume_capabilities, "ValidateVolumeCapabilities", ValidateVolumeCapabilitiesRequest,
            ValidateVolumeCapabilitiesResponse, volumes;
        controller_publish_volume, "ControllerPublishVolume", ControllerPublishVolumeRequest,
            ControllerPublishVolumeResponse, publish;
        controller_unpublish_volume, "ControllerUnpublishVolume", ControllerUnpublishVolumeRequest,
            ControllerUnpublishVolumeResponse, publish;
        list_volumes, "ListVolumes", ListVolumesRequest, ListVolumesResponse, list;
        controller_get_volume, "ControllerGetVolume", ControllerGetVolumeRequest,
            ControllerGetVolumeResponse, list;
        controller_get_volume_health, "ControllerGetVolumeHealth", ControllerGetVolumeHealthRequest,
            ControllerGetVolumeHealthResponse, list;
        controller_list_volume_health, "ControllerListVolumeHealth", ControllerListVolumeHealthRequest,
            ControllerListVolumeHealthResponse, list;
        get_capacity, "GetCapacity", GetCapacityRequest, GetCapacityResponse, list;
        create_snapshot, "CreateSnapshot", CreateSnapshotRequest, CreateSnapshotResponse, snapshots;
        delete_snapshot, "DeleteSnapshot", DeleteSnapshotRequest, DeleteSnapshotResponse, snapshots;
        get_snapshot, "GetSnapshot", GetSnapshotRequest, GetSnapshotResponse, snapshots;
        list_snapshots, "ListSnapshots", ListSnapshotsRequest, ListSnapshotsResponse, snapshots;
    }

    async fn controller_get_capabilities(
        &self,
        _request: Request<proto::ControllerGetCapabilitiesRequest>,
    ) -> Result<Response<proto::ControllerGetCapabilitiesResponse>, Status> {
        let capability = |kind: RpcType| {
            let rpc = controller_service_capability::Rpc { r#type: kind.into() };
            ControllerServiceCapability { r#type: Some(CapabilityType::Rpc(rpc)) }
        };
        let capabilities = CAPABILITIES.into_iter().map(capability).collect();
        Ok(Response::new(proto::ControllerGetCapabilitiesResponse { capabilities }))
    }
}
