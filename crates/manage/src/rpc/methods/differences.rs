//! Differences between snapshots of a namespace.

use super::lvstore::refused;
use super::{Method, MethodParams, params_of, query};
use crate::model::{DeviceKind, ManagedModel, VolumeDevice};
use crate::rpc::{ManagerSession, Rpc, RpcError};
use crate::volumes::{Uuid, VolumeStore};
use roadtrain_store::{DifferencesQuery, DiskDifferences, SnapshotError};
use serde::Deserialize;
use serde_json::{Value, json};

pub(super) const METHODS: &[Method] = &[query(
    "roadtrain_diff_snapshots",
    "Ranges in which a snapshot of a namespace, or its present blocks, may differ from an older one.",
    differences,
)];

/// Default number of ranges of a reply.
const RANGES: u64 = 4096;
/// Most ranges of a reply.
const RANGES_MAX: u64 = 1 << 16;

fn differences(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct DiffSnapshotsParams {
        nqn: String,
        nsid: u32,
        from: String,
        to: Option<String>,
        #[serde(default)]
        offset: u64,
        ranges_max: Option<u64>,
    }
    let DiffSnapshotsParams { nqn, nsid, from, to, offset, ranges_max } = params_of(&params)?;
    let ranges_max = ranges_max.unwrap_or(RANGES);
    if !(1..=RANGES_MAX).contains(&ranges_max) {
        return Err(RpcError::params(format!("ranges_max is from 1 to {RANGES_MAX}")));
    }
    let query = DifferencesQuery { offset, ranges_max: ranges_max as usize };
    let found = match volume_at(&manager.model(), &nqn, nsid) {
        Some(volume) => of_volume(&volume, (&from, to.as_deref()), query)?,
        None => of_store(manager, (&nqn, nsid), (&from, to.as_deref()), query)?,
    };
    Ok(view((&from, to.as_deref()), &found))
}

/// Returns the volume that a namespace shows, if it shows one.
fn volume_at(model: &ManagedModel, nqn: &str, nsid: u32) -> Option<VolumeDevice> {
    let own = model.claims().find(|(place, _)| *place == (nqn, nsid)).map(|(_, device)| device);
    let is_there = |(other, at): &(String, u32)| other == nqn && *at == nsid;
    let lent = || model.lent.iter().find(|(_, place)| is_there(place)).map(|(name, _)| &**name);
    match &model.device(own.or_else(lent)?)?.kind {
        DeviceKind::Volume(volume) => Some(volume.clone()),
        _ => None,
    }
}

fn of_volume(
    volume: &VolumeDevice,
    (from, to): (&str, Option<&str>),
    query: DifferencesQuery,
) -> Rpc<DiskDifferences> {
    let store = &volume.store;
    let from = named(store, from)?;
    let to = to.map_or(Ok(volume.uuid), |name| named(store, name))?;
    store.differences(from, to, query).map_err(|error| refused(&error))
}

/// Returns the volume of that name or UUID.
fn named(store: &VolumeStore, name: &str) -> Rpc<Uuid> {
    let all = store.list();
    let found = all.iter().find(|volume| volume.name == name || volume.uuid.to_string() == name);
    let unknown = || {
        let (store, _) = store.identity();
        RpcError::no_device(format!("there is no snapshot {name} in store {store}"))
    };
    found.map(|volume| volume.uuid).ok_or_else(unknown)
}

fn of_store(
    manager: &ManagerSession<'_>,
    (nqn, nsid): (&str, u32),
    (from, to): (&str, Option<&str>),
    query: DifferencesQuery,
) -> Rpc<DiskDifferences> {
    let unknown = || RpcError::no_device("the namespace is not served here");
    let store = manager.server().store(nqn, nsid).ok_or_else(unknown)?;
    let without =
        || RpcError::invalid("it has no snapshots: a volume has, and an image of a Ceph cluster");
    let snapshots = store.snapshots().ok_or_else(without)?;
    snapshots.differences(from, to, query).map_err(|error| match error {
        SnapshotError::Unknown(_) => RpcError::no_device(error),
        SnapshotError::Exists(_) | SnapshotError::Refused(_) => RpcError::invalid(error),
        SnapshotError::Failed(_) => RpcError::io(error),
    })
}

fn view((from, to): (&str, Option<&str>), found: &DiskDifferences) -> Value {
    let ranges = found.ranges.iter().map(|range| {
        let kind = if range.is_zero { "zero" } else { "data" };
        json!({"offset": range.offset, "bytes": range.bytes, "kind": kind})
    });
    json!({
        "from": from, "to": to, "from_bytes": found.from_bytes, "to_bytes": found.to_bytes,
        "ranges": ranges.collect::<Vec<Value>>(), "next_offset": found.next_offset,
    })
}
