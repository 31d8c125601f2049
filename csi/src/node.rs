//! The node service: volumes are attached, mounted, and shown to pods.

pub(crate) mod attach;
pub(crate) mod command;
pub(crate) mod filesystem;
mod grow;
pub(crate) mod kernel;
pub(crate) mod mounts;
mod publish;
mod stage;
mod stats;

use crate::calls::calls;
use crate::locks::VolumeLocks;
use crate::metrics::Metrics;
use crate::names::ObjectId;
use crate::proto::node_server::Node;
use crate::proto::node_service_capability::Type as CapabilityType;
use crate::proto::node_service_capability::rpc::Type as RpcType;
use crate::proto::{self, NodeServiceCapability, Topology, node_service_capability};
use attach::Attachments;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tonic::{Request, Response, Status};

/// The node service.
#[derive(Clone, Debug)]
pub(crate) struct NodeService {
    /// Attachments of the node.
    pub(crate) attachments: Arc<Attachments>,
    /// Topology segments: targets that the node reaches.
    pub(crate) segments: Vec<(String, String)>,
    /// Most volumes; 0: no limit.
    pub(crate) max_volumes: i64,
    /// One call for each volume.
    pub(crate) locks: VolumeLocks,
    /// Counters.
    pub(crate) metrics: Arc<Metrics>,
}

const CAPABILITIES: [RpcType; 5] = [
    RpcType::StageUnstageVolume,
    RpcType::GetVolumeStats,
    RpcType::ExpandVolume,
    RpcType::GetVolumeHealth,
    RpcType::SingleNodeMultiWriter,
];

/// Returns an absolute path of a call.
fn path(text: &str, name: &str) -> Result<PathBuf, Status> {
    if text.is_empty() {
        return Err(Status::invalid_argument(format!("{name} is missing")));
    }
    let path = Path::new(text);
    match path.is_absolute() {
        true => Ok(path.to_owned()),
        false => Err(Status::invalid_argument(format!("{name} {text} is not absolute"))),
    }
}

/// Returns the UUID of a volume; `NOT_FOUND` if there is none of that ID.
fn uuid(id: &str) -> Result<String, Status> {
    if id.is_empty() {
        return Err(Status::invalid_argument("volume ID is missing"));
    }
    let parsed = ObjectId::parse(id).ok_or_else(|| Status::not_found(format!("no volume {id}")))?;
    Ok(parsed.uuid)
}

/// Returns the status for something that failed on this node.
fn failed(message: String) -> Status {
    Status::internal(message)
}

#[tonic::async_trait]
impl Node for NodeService {
    calls! {
        node_stage_volume, "NodeStageVolume", NodeStageVolumeRequest, NodeStageVolumeResponse, stage;
        node_unstage_volume, "NodeUnstageVolume", NodeUnstageVolumeRequest, NodeUnstageVolumeResponse, stage;
        node_publish_volume, "NodePublishVolume", NodePublishVolumeRequest, NodePublishVolumeResponse, publish;
        node_unpublish_volume, "NodeUnpublishVolume", NodeUnpublishVolumeRequest,
            NodeUnpublishVolumeResponse, publish;
        node_expand_volume, "NodeExpandVolume", NodeExpandVolumeRequest, NodeExpandVolumeResponse, grow;
        node_get_volume_stats, "NodeGetVolumeStats", NodeGetVolumeStatsRequest,
            NodeGetVolumeStatsResponse, stats;
        node_get_volume_health, "NodeGetVolumeHealth", NodeGetVolumeHealthRequest,
            NodeGetVolumeHealthResponse, stats;
    }

    async fn node_get_capabilities(
        &self,
        _request: Request<proto::NodeGetCapabilitiesRequest>,
    ) -> Result<Response<proto::NodeGetCapabilitiesResponse>, Status> {
        let capability = |kind: RpcType| {
            let rpc = node_service_capability::Rpc { r#type: kind.into() };
            NodeServiceCapability { r#type: Some(CapabilityType::Rpc(rpc)) }
        };
        let capabilities = CAPABILITIES.into_iter().map(capability).collect();
        Ok(Response::new(proto::NodeGetCapabilitiesResponse { capabilities }))
    }

    async fn node_get_info(
        &self,
        _request: Request<proto::NodeGetInfoRequest>,
    ) -> Result<Response<proto::NodeGetInfoResponse>, Status> {
        Ok(Response::new(proto::NodeGetInfoResponse {
            node_id: self.attachments.node.clone(),
            max_volumes_per_node: self.max_volumes,
            accessible_topology: Some(Topology {
                segments: self.segments.iter().cloned().collect(),
            }),
        }))
    }
}
