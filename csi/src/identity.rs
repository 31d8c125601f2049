//! The identity service.

use crate::proto::identity_server::Identity;
use crate::proto::plugin_capability::service::Type as ServiceType;
use crate::proto::plugin_capability::volume_expansion::Type as ExpansionType;
use crate::proto::plugin_capability::{Service, Type, VolumeExpansion};
use crate::proto::{
    GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoRequest,
    GetPluginInfoResponse, PluginCapability, ProbeRequest, ProbeResponse,
};
use crate::target::Target;
use tonic::{Request, Response, Status};

/// The identity service.
#[derive(Clone, Debug)]
pub(crate) struct IdentityService {
    /// Name of the driver.
    pub(crate) driver_name: String,
    /// Targets, if there is a controller service.
    pub(crate) targets: Vec<Target>,
}

#[tonic::async_trait]
impl Identity for IdentityService {
    async fn get_plugin_info(
        &self,
        _request: Request<GetPluginInfoRequest>,
    ) -> Result<Response<GetPluginInfoResponse>, Status> {
        Ok(Response::new(GetPluginInfoResponse {
            name: self.driver_name.clone(),
            vendor_version: env!("CARGO_PKG_VERSION").into(),
            manifest: Default::default(),
        }))
    }

    async fn get_plugin_capabilities(
        &self,
        _request: Request<GetPluginCapabilitiesRequest>,
    ) -> Result<Response<GetPluginCapabilitiesResponse>, Status> {
        let service = |kind: ServiceType| Type::Service(Service { r#type: kind.into() });
        let mut kinds = vec![
            service(ServiceType::VolumeAccessibilityConstraints),
            Type::VolumeExpansion(VolumeExpansion { r#type: ExpansionType::Online.into() }),
        ];
        if !self.targets.is_empty() {
            kinds.insert(0, service(ServiceType::ControllerService));
        }
        let capabilities =
            kinds.into_iter().map(|kind| PluginCapability { r#type: Some(kind) }).collect();
        Ok(Response::new(GetPluginCapabilitiesResponse { capabilities }))
    }

    async fn probe(
        &self,
        _request: Request<ProbeRequest>,
    ) -> Result<Response<ProbeResponse>, Status> {
        // A target that is away is no fault of the driver: it is not ready, and needs no restart.
        let mut is_ready = self.targets.is_empty();
        for target in &self.targets {
            is_ready |= target.probe().await.is_ok();
        }
        Ok(Response::new(ProbeResponse { ready: Some(is_ready) }))
    }
}
