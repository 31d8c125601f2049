//! Volumes are created, deleted and grown.

use super::topology;
use super::{ControllerService, needed, parameters, refusal_status, status_of};
use crate::capability;
use crate::names::{self, ObjectId};
use crate::plan::publication::{UnpublishStep, next_unpublish_step};
use crate::plan::volume::{
    CreateStep, DesiredVolume, VolumeSource, next_create_step, whole_clusters,
};
use crate::proto::volume_content_source::Type as SourceType;
use crate::proto::{
    CapacityRange, ControllerExpandVolumeRequest, ControllerExpandVolumeResponse,
    CreateVolumeRequest, CreateVolumeResponse, DeleteVolumeRequest, DeleteVolumeResponse,
    ValidateVolumeCapabilitiesRequest, ValidateVolumeCapabilitiesResponse, Volume,
    VolumeContentSource, validate_volume_capabilities_response,
};
use crate::rpc::RpcFailure;
use crate::target::{Lvol, Target};
use tonic::Status;

/// Size of a volume for which none is requested.
const DEFAULT_BYTES: u64 = 1 << 30;
/// Most bytes of a name.
pub(super) const NAME_BYTES_MAX: usize = 128;
/// More steps than any plan has.
pub(super) const STEPS_MAX: usize = 12;

/// Returns the least size, in whole clusters, and the limit; 0 is none.
fn range(range: Option<&CapacityRange>, default: u64) -> Result<(u64, u64), Status> {
    let (required, limit) = range.map_or((0, 0), |range| (range.required_bytes, range.limit_bytes));
    let sizes = (u64::try_from(required), u64::try_from(limit));
    let (Ok(required), Ok(limit)) = sizes else {
        return Err(Status::invalid_argument("capacity range: sizes are not negative"));
    };
    if limit != 0 && required > limit {
        return Err(Status::invalid_argument("capacity range: required_bytes exceeds limit_bytes"));
    }
    let least = match (required, limit) {
        (0, 0) => default,
        (0, limit) => default.min(limit),
        (required, _) => required,
    };
    Ok((whole_clusters(least, limit).map_err(refusal_status)?, limit))
}

/// Source of a volume, as its ID is parsed.
fn parse_source(source: Option<&VolumeContentSource>) -> Result<Option<(bool, ObjectId)>, Status> {
    let Some(source) = source else { return Ok(None) };
    let (is_snapshot, id) = match &source.r#type {
        Some(SourceType::Snapshot(snapshot)) => (true, &snapshot.snapshot_id),
        Some(SourceType::Volume(volume)) => (false, &volume.volume_id),
        None => return Err(Status::invalid_argument("volume content source: is empty")),
    };
    let id = needed(id, "ID of the volume content source")?;
    let parsed = ObjectId::parse(&id);
    let parsed = parsed.ok_or_else(|| Status::not_found(format!("no volume or snapshot {id}")))?;
    Ok(Some((is_snapshot, parsed)))
}

pub(super) fn check_name(name: &str) -> Result<(), Status> {
    needed(name, "name")?;
    match name.len() > NAME_BYTES_MAX {
        true => Err(Status::invalid_argument(format!("name: has over {NAME_BYTES_MAX} bytes"))),
        false => Ok(()),
    }
}

pub(super) async fn create_volume(
    service: &ControllerService,
    request: CreateVolumeRequest,
) -> Result<CreateVolumeResponse, Status> {
    check_name(&request.name)?;
    capability::check_all(&request.volume_capabilities)?;
    let parameters = parameters::parse(&request.parameters)?;
    let source = parse_source(request.volume_content_source.as_ref())?;
    let _lock = service.locks.lock(format!("volume {}", request.name))?;
    let target =
        choose_target(service, &request, source.as_ref(), parameters.store.as_deref()).await?;
    let source_lvol = match &source {
        Some((_, id)) => target.lvol(&id.uuid).await.map_err(|failure| status_of(&failure))?,
        None => None,
    };
    let default = source_lvol.map_or(DEFAULT_BYTES, |lvol| lvol.bytes);
    let (bytes, bytes_max) = range(request.capacity_range.as_ref(), default)?;
    let desired = DesiredVolume {
        csi_name: &request.name,
        bytes,
        bytes_max,
        store: parameters.store.as_deref(),
        is_thin: parameters.is_thin,
        source: source.as_ref().map(|(is_snapshot, id)| match is_snapshot {
            true => VolumeSource::Snapshot(&id.uuid),
            false => VolumeSource::Volume(&id.uuid),
        }),
    };
    let lvol = create(target, &desired).await?;
    let volume = Volume {
        volume_context: parameters.context,
        content_source: request.volume_content_source,
        ..view(service, target, &lvol)
    };
    Ok(CreateVolumeResponse { volume: Some(volume) })
}

/// Takes steps until the volume exists.
async fn create(target: &Target, desired: &DesiredVolume<'_>) -> Result<Lvol, Status> {
    for _ in 0..STEPS_MAX {
        let lvols = target.lvols().await.map_err(|failure| status_of(&failure))?;
        let step = next_create_step(&lvols, desired).map_err(refusal_status)?;
        let result = match &step {
            CreateStep::Done(lvol) => return Ok(lvol.clone()),
            CreateStep::Create { name } => {
                let store = match desired.store {
                    Some(store) => store.to_owned(),
                    None => roomiest_store(target).await?,
                };
                target.create_lvol(&store, name, desired.bytes, desired.is_thin).await
            }
            CreateStep::SnapshotSource { source, name } => target.snapshot(source, name).await,
            CreateStep::Clone { snapshot, name } => target.clone_snapshot(snapshot, name).await,
            CreateStep::Resize { uuid } => target.resize(uuid, desired.bytes).await,
            CreateStep::Inflate { uuid } => target.inflate(uuid).await,
            CreateStep::DeleteCopySnapshot { uuid } => target.delete_lvol(uuid).await,
        };
        result.map_err(|failure| status_of(&failure))?;
    }
    Err(Status::internal(format!("the volume {} is not done after many steps", desired.csi_name)))
}

/// Returns the target that has the source or already the volume, else the first candidate that has the store.
async fn choose_target<'a>(
    service: &'a ControllerService,
    request: &CreateVolumeRequest,
    source: Option<&(bool, ObjectId)>,
    store: Option<&str>,
) -> Result<&'a Target, Status> {
    let candidates = topology::candidates(service, request.accessibility_requirements.as_ref())?;
    if let Some((_, id)) = source {
        let mut targets = service.targets.iter();
        let target = targets.find(|target| target.settings.name == id.target);
        let target = target.ok_or_else(|| Status::not_found(format!("no target {}", id.target)))?;
        return match candidates.iter().any(|one| one.settings.name == id.target) {
            true => Ok(target),
            false => Err(Status::resource_exhausted(format!(
                "the source is at the target {}, which the topology does not allow",
                id.target
            ))),
        };
    }
    let has_store = |target: &&Target| {
        store.is_none_or(|store| target.settings.stores.iter().any(|one| one == store))
    };
    let candidates: Vec<&Target> = candidates.into_iter().filter(has_store).collect();
    let Some(first) = candidates.first() else {
        let what = format!("no accessible target has the store {}", store.unwrap_or_default());
        return Err(Status::invalid_argument(what));
    };
    // An earlier call may have chosen another one.
    if candidates.len() > 1 {
        for target in &candidates {
            let lvols = target.lvols().await.map_err(|failure| status_of(&failure))?;
            if lvols.iter().any(|lvol| names::is_volume_of(&lvol.name, &request.name)) {
                return Ok(target);
            }
        }
    }
    Ok(first)
}

/// Returns the name of the store that has most free space.
async fn roomiest_store(target: &Target) -> Result<String, Status> {
    let stores = target.stores().await.map_err(|failure| status_of(&failure))?;
    let roomiest = stores.into_iter().max_by_key(|store| store.free_bytes());
    let names = target.settings.stores.join(", ");
    let none = || Status::unavailable(format!("the target has none of the stores {names}"));
    roomiest.map(|store| store.name).ok_or_else(none)
}

/// Returns a volume as CSI shows it.
pub(super) fn view(service: &ControllerService, target: &Target, lvol: &Lvol) -> Volume {
    let id = ObjectId { target: target.settings.name.clone(), uuid: lvol.uuid.clone() };
    Volume {
        capacity_bytes: i64::try_from(lvol.bytes).unwrap_or(i64::MAX),
        volume_id: id.to_string(),
        accessible_topology: vec![topology::topology(service, target)],
        ..Volume::default()
    }
}

pub(super) async fn delete_volume(
    service: &ControllerService,
    request: DeleteVolumeRequest,
) -> Result<DeleteVolumeResponse, Status> {
    let id = needed(&request.volume_id, "volume ID")?;
    let Some((target, parsed)) = service.target_of(&id) else {
        return deleted_of_no_target(service, &id).map(|()| DeleteVolumeResponse {});
    };
    let _lock = service.locks.lock(&id)?;
    let failed = |failure: RpcFailure| status_of(&failure);
    let lvol = target.lvol(&parsed.uuid).await.map_err(failed)?;
    if let Some(lvol) = lvol.as_ref().filter(|lvol| !names::is_volume(&lvol.name)) {
        let what = format!(
            "{id} is {}, which the driver has not made: delete it at the target",
            lvol.name
        );
        return Err(Status::failed_precondition(what));
    }
    let subsystem = target.subsystem(&parsed.uuid).await.map_err(failed)?;
    if let Some(host) = subsystem.iter().flat_map(|subsystem| &subsystem.hosts).next() {
        let what = format!("{id} is published to {}: unpublish it first", host.nqn);
        return Err(Status::failed_precondition(what));
    }
    if next_unpublish_step(subsystem.as_ref(), None) == UnpublishStep::DeleteSubsystem {
        target.delete_subsystem(&parsed.uuid).await.map_err(failed)?;
    }
    if let Some(lvol) = lvol {
        // A snapshot that was made to copy another volume into this one, by a call that was never repeated.
        let copy = names::copy(&lvol.name);
        let lvols = target.lvols().await.map_err(failed)?;
        if let Some(copy) = lvols.iter().find(|other| other.is_snapshot && other.name == copy) {
            target.delete_lvol(&copy.uuid).await.map_err(failed)?;
        }
        target.delete_lvol(&parsed.uuid).await.map_err(failed)?;
    }
    Ok(DeleteVolumeResponse {})
}

/// An ID that no target of the driver has made is deleted. One of a target that is not given now may exist.
pub(super) fn deleted_of_no_target(service: &ControllerService, id: &str) -> Result<(), Status> {
    let Some(id) = ObjectId::parse(id) else { return Ok(()) };
    let known: Vec<&str> = service.targets.iter().map(|one| one.settings.name.as_str()).collect();
    let what = format!("the driver has no target {}; it has {}", id.target, known.join(", "));
    Err(Status::failed_precondition(what))
}

/// Finds a volume of the driver, or one made by hand, but no snapshot.
pub(super) async fn find<'a>(
    service: &'a ControllerService,
    id: &str,
) -> Result<(&'a Target, ObjectId, Lvol), Status> {
    let none = || Status::not_found(format!("no volume {id}"));
    let (target, parsed) = service.target_of(id).ok_or_else(none)?;
    let lvol = target.lvol(&parsed.uuid).await.map_err(|failure| status_of(&failure))?;
    let lvol = lvol.filter(|lvol| !lvol.is_snapshot).ok_or_else(none)?;
    Ok((target, parsed, lvol))
}

pub(super) async fn controller_expand_volume(
    service: &ControllerService,
    request: ControllerExpandVolumeRequest,
) -> Result<ControllerExpandVolumeResponse, Status> {
    let id = needed(&request.volume_id, "volume ID")?;
    if request.capacity_range.is_none() {
        return Err(Status::invalid_argument("capacity range is missing"));
    }
    let (bytes, bytes_max) = range(request.capacity_range.as_ref(), 0)?;
    let _lock = service.locks.lock(&id)?;
    let (target, parsed, lvol) = find(service, &id).await?;
    if bytes_max != 0 && lvol.bytes > bytes_max {
        let what = format!("{id} has {} bytes already: a volume does not shrink", lvol.bytes);
        return Err(Status::out_of_range(what));
    }
    if lvol.bytes < bytes {
        target.resize(&parsed.uuid, bytes).await.map_err(|failure| match failure {
            failure if failure.says("no space left") => Status::out_of_range(failure.to_string()),
            failure => status_of(&failure),
        })?;
    }
    let capacity_bytes = i64::try_from(bytes.max(lvol.bytes)).unwrap_or(i64::MAX);
    let is_block = match request.volume_capability.as_ref() {
        Some(capability) => capability::check(Some(capability))?.file_system.is_none(),
        None => false,
    };
    Ok(ControllerExpandVolumeResponse { capacity_bytes, node_expansion_required: !is_block })
}

pub(super) async fn validate_volume_capabilities(
    service: &ControllerService,
    request: ValidateVolumeCapabilitiesRequest,
) -> Result<ValidateVolumeCapabilitiesResponse, Status> {
    let id = needed(&request.volume_id, "volume ID")?;
    if request.volume_capabilities.is_empty() {
        return Err(Status::invalid_argument("volume capabilities are missing"));
    }
    find(service, &id).await?;
    let checked = capability::check_all(&request.volume_capabilities)
        .and_then(|()| parameters::parse(&request.parameters).map(drop));
    let confirmed = validate_volume_capabilities_response::Confirmed {
        volume_context: request.volume_context,
        volume_capabilities: request.volume_capabilities,
        parameters: request.parameters,
        ..Default::default()
    };
    Ok(match checked {
        Ok(()) => ValidateVolumeCapabilitiesResponse {
            confirmed: Some(confirmed),
            message: String::new(),
        },
        Err(status) => ValidateVolumeCapabilitiesResponse {
            confirmed: None,
            message: status.message().to_owned(),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_checked() {
        let check = |required_bytes, limit_bytes| {
            range(Some(&CapacityRange { required_bytes, limit_bytes }), DEFAULT_BYTES)
                .map_err(|status| status.code())
        };
        let mib = 1 << 20;
        assert_eq!(range(None, DEFAULT_BYTES).unwrap(), (DEFAULT_BYTES, 0));
        assert_eq!(check(0, 0), Ok((DEFAULT_BYTES, 0)));
        assert_eq!(check(5 << 20, 0), Ok((8 * mib, 0)));
        assert_eq!(check(0, 8 << 20), Ok((8 * mib, 8 * mib)));
        assert_eq!(check(5 << 20, 6 << 20), Err(tonic::Code::OutOfRange));
        assert_eq!(check(2, 1), Err(tonic::Code::InvalidArgument));
        assert_eq!(check(-1, 0), Err(tonic::Code::InvalidArgument));
    }
}
