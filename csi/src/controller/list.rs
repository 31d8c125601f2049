//! Volumes are listed, with their health; free space.

use super::volumes::{find, view};
use super::{ControllerService, needed, parameters, status_of, topology};
use crate::capability;
use crate::health::{VolumeProblem, health};
use crate::names;
use crate::proto::{
    ControllerGetVolumeHealthRequest, ControllerGetVolumeHealthResponse,
    ControllerGetVolumeRequest, ControllerGetVolumeResponse, ControllerListVolumeHealthRequest,
    ControllerListVolumeHealthResponse, GetCapacityRequest, GetCapacityResponse,
    ListVolumesRequest, ListVolumesResponse, controller_get_volume_response, list_volumes_response,
};
use crate::rpc::RpcFailure;
use crate::target::{CLUSTER_BYTES, Lvol, TargetStore, VolumeSubsystem};
use std::collections::HashMap;
use tonic::Status;

/// Returns a page of `ids`, which are sorted, and the token of the next page. A token is the ID at which a page begins,
/// so volumes may come and go between two calls.
///
/// # Errors
/// ABORTED: the token is none.
pub(super) fn page(
    ids: &[String],
    token: &str,
    entries_max: i32,
) -> Result<(std::ops::Range<usize>, String), Status> {
    let entries_max = usize::try_from(entries_max)
        .map_err(|_| Status::invalid_argument("max_entries is negative"))?;
    if !token.is_empty() && names::ObjectId::parse(token).is_none() {
        return Err(Status::aborted(format!(
            "starting token {token} is none: list from the start"
        )));
    }
    let begin = ids.partition_point(|id| id.as_str() < token);
    let end = match entries_max {
        0 => ids.len(),
        count => ids.len().min(begin.saturating_add(count)),
    };
    Ok((begin..end, ids.get(end).cloned().unwrap_or_default()))
}

/// Finds what is wrong with a volume at the target.
fn problem(lvol: &Lvol, stores: &[TargetStore]) -> Option<VolumeProblem> {
    if lvol.bytes == 0 {
        let message = "the target cannot use its file: see the log of the target";
        return Some(VolumeProblem::inaccessible("FileUnusable", message));
    }
    let is_full = |store: &&TargetStore| store.name == lvol.store && store.free_bytes() == 0;
    let store = stores.iter().find(is_full).filter(|_| lvol.is_thin)?;
    let message =
        format!("the store {} is full: writes to new blocks of the volume fail", store.name);
    Some(VolumeProblem::degraded("StoreFull", message))
}

/// Nodes that may use a volume.
fn nodes(subsystem: Option<&VolumeSubsystem>) -> Vec<String> {
    let hosts = subsystem.map(|subsystem| subsystem.hosts.as_slice()).unwrap_or_default();
    hosts.iter().map(|host| host.nqn.clone()).collect()
}

pub(super) async fn list_volumes(
    service: &ControllerService,
    request: ListVolumesRequest,
) -> Result<ListVolumesResponse, Status> {
    let failed = |failure: RpcFailure| status_of(&failure);
    let mut entries: Vec<(String, list_volumes_response::Entry)> = Vec::new();
    for target in &service.targets {
        let lvols = target.lvols().await.map_err(failed)?;
        let subsystems: HashMap<String, VolumeSubsystem> =
            target.subsystems().await.map_err(failed)?;
        for lvol in lvols.iter().filter(|lvol| names::is_volume(&lvol.name)) {
            let volume = view(service, target, lvol);
            let status = list_volumes_response::VolumeStatus {
                published_node_ids: nodes(subsystems.get(&lvol.uuid)),
            };
            let id = volume.volume_id.clone();
            let entry = list_volumes_response::Entry { volume: Some(volume), status: Some(status) };
            entries.push((id, entry));
        }
    }
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    let ids: Vec<String> = entries.iter().map(|(id, _)| id.clone()).collect();
    let (range, next_token) = page(&ids, &request.starting_token, request.max_entries)?;
    let entries = entries.drain(range).map(|(_, entry)| entry).collect();
    Ok(ListVolumesResponse { entries, next_token })
}

pub(super) async fn controller_get_volume(
    service: &ControllerService,
    request: ControllerGetVolumeRequest,
) -> Result<ControllerGetVolumeResponse, Status> {
    let id = needed(&request.volume_id, "volume ID")?;
    let (target, parsed, lvol) = find(service, &id).await?;
    let subsystem = target.subsystem(&parsed.uuid).await.map_err(|failure| status_of(&failure))?;
    let status = controller_get_volume_response::VolumeStatus {
        published_node_ids: nodes(subsystem.as_ref()),
    };
    let volume = Some(view(service, target, &lvol));
    Ok(ControllerGetVolumeResponse { volume, status: Some(status) })
}

pub(super) async fn controller_get_volume_health(
    service: &ControllerService,
    request: ControllerGetVolumeHealthRequest,
) -> Result<ControllerGetVolumeHealthResponse, Status> {
    let id = needed(&request.volume_id, "volume ID")?;
    let (target, _, lvol) = find(service, &id).await?;
    let stores = target.stores().await.map_err(|failure| status_of(&failure))?;
    let volume_health = Some(health(id, problem(&lvol, &stores)));
    Ok(ControllerGetVolumeHealthResponse { volume_health })
}

pub(super) async fn controller_list_volume_health(
    service: &ControllerService,
    request: ControllerListVolumeHealthRequest,
) -> Result<ControllerListVolumeHealthResponse, Status> {
    let failed = |failure: RpcFailure| status_of(&failure);
    let mut entries = Vec::new();
    for target in &service.targets {
        let lvols = target.lvols().await.map_err(failed)?;
        let stores = target.stores().await.map_err(failed)?;
        for lvol in lvols.iter().filter(|lvol| names::is_volume(&lvol.name)) {
            if let Some(problem) = problem(lvol, &stores) {
                entries.push(health(view(service, target, lvol).volume_id, Some(problem)));
            }
        }
    }
    entries.sort_by(|a, b| a.volume_id.cmp(&b.volume_id));
    let ids: Vec<String> = entries.iter().map(|entry| entry.volume_id.clone()).collect();
    let (range, next_token) = page(&ids, &request.starting_token, request.max_entries)?;
    Ok(ControllerListVolumeHealthResponse { entries: entries.drain(range).collect(), next_token })
}

pub(super) async fn get_capacity(
    service: &ControllerService,
    request: GetCapacityRequest,
) -> Result<GetCapacityResponse, Status> {
    let parameters = parameters::parse(&request.parameters)?;
    if !request.volume_capabilities.is_empty()
        && capability::check_all(&request.volume_capabilities).is_err()
    {
        return Ok(GetCapacityResponse::default());
    }
    let (mut available, mut largest) = (0, 0);
    for target in &service.targets {
        let place = request.accessible_topology.as_ref();
        if !place.is_none_or(|place| topology::reaches(service, place, target)) {
            continue;
        }
        for store in target.stores().await.map_err(|failure| status_of(&failure))? {
            if parameters.store.as_ref().is_none_or(|name| *name == store.name) {
                available += store.free_bytes();
                largest = largest.max(store.free_bytes());
            }
        }
    }
    let shown = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    Ok(GetCapacityResponse {
        available_capacity: shown(available),
        maximum_volume_size: (!parameters.is_thin).then(|| shown(largest)),
        minimum_volume_size: Some(shown(CLUSTER_BYTES)),
    })
}

impl crate::metrics::Refresh for ControllerService {
    async fn refresh(&self) {
        for target in &self.targets {
            for store in target.stores().await.unwrap_or_default() {
                let (capacity, free) = (store.capacity_bytes(), store.free_bytes());
                self.metrics.store(&target.settings.name, &store.name, capacity, free);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(count: usize) -> Vec<String> {
        (0..count).map(|n| format!("a/{n:08x}-0000-4000-8000-000000000000")).collect()
    }

    #[test]
    fn pages_follow_each_other() {
        let all = ids(5);
        let (mut token, mut seen) = (String::new(), Vec::new());
        loop {
            let (range, next) = page(&all, &token, 2).unwrap();
            seen.extend(all[range].to_vec());
            token = next;
            if token.is_empty() {
                break;
            }
        }
        assert_eq!(seen, all);
        // The volume of the token is deleted: the page begins with the one after it.
        let (_, token) = page(&all, "", 2).unwrap();
        let without: Vec<String> = all.iter().filter(|id| **id != token).cloned().collect();
        let (range, next) = page(&without, &token, 9).unwrap();
        assert_eq!((&without[range], next.as_str()), (&all[3..], ""));
        assert_eq!(page(&all, "nonsense", 0).unwrap_err().code(), tonic::Code::Aborted);
        assert_eq!(page(&all, "", -1).unwrap_err().code(), tonic::Code::InvalidArgument);
        assert_eq!(page(&[], "", 0).unwrap(), (0..0, String::new()));
    }

    #[test]
    fn health_of_volumes() {
        let store = |free: u64| {
            let store = serde_json::json!({"name": "vols", "free_clusters": free,
                "total_data_clusters": 9, "cluster_size": CLUSTER_BYTES});
            [serde_json::from_value::<TargetStore>(store).unwrap()]
        };
        let thin = Lvol { store: "vols".into(), bytes: 1, is_thin: true, ..Lvol::default() };
        let reason = |lvol: &Lvol, free| problem(lvol, &store(free)).map(|problem| problem.reason);
        assert_eq!(reason(&thin, 1), None);
        assert_eq!(reason(&thin, 0), Some("StoreFull"));
        assert_eq!(reason(&Lvol { is_thin: false, ..thin.clone() }, 0), None);
        assert_eq!(reason(&Lvol { bytes: 0, ..thin }, 1), Some("FileUnusable"));
    }
}
