//! Volumes. A volume is a device, whose name is its UUID.

use super::lvstore::{self, ClearMethod, in_use, refused, used_at};
use super::{Method, MethodParams, change, device_params, query};
use crate::model::{DeviceKind, LvStore, ManagedDevice, ManagedModel};
use crate::rpc::{ManagerSession, Rpc, RpcError};
use crate::volumes::{Uuid, VolumeError, VolumeInfo};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::{Arc, Mutex, PoisonError};

pub(super) const METHODS: &[Method] = &[
    query("bdev_lvol_get_lvols", "Volumes, by store in the order in which they were made.", get),
    change("bdev_lvol_create", "Makes a volume, which is a device.", create),
    change("bdev_lvol_snapshot", "Makes a read-only volume of what a volume has by now.", snapshot),
    change("bdev_lvol_clone", "Makes a volume that begins as a snapshot.", clone),
    change(
        "bdev_lvol_inflate",
        "Gives a volume all its space, and detaches it from its snapshot.",
        inflate,
    ),
    change(
        "bdev_lvol_decouple_parent",
        "Detaches a volume from its snapshot; it stays thin.",
        decouple,
    ),
    change(
        "bdev_lvol_clone_bdev",
        "Makes a volume that begins as a device of a file, or as a volume of another store.",
        clone_device,
    ),
    change("bdev_lvol_set_read_only", "Makes a volume read-only, for ever.", set_read_only),
    change("bdev_lvol_resize", "Makes a volume larger; hosts are notified.", resize),
    change("bdev_lvol_rename", "Gives a volume another name.", rename),
    change(
        "bdev_lvol_delete",
        "Deletes a volume, its namespace first; one that a host uses only by force.",
        delete,
    ),
];

/// Lock that serialises resizes.
static RESIZES: Mutex<()> = Mutex::new(());

/// A volume that a request names.
struct FoundLvol {
    device: Arc<ManagedDevice>,
    lvstore: Arc<LvStore>,
    uuid: Uuid,
}

/// Finds a volume by its UUID, or by the names of its store and its own.
fn find(manager: &ManagerSession<'_>, name: &str) -> Rpc<FoundLvol> {
    let model = manager.model();
    let found = model.device(name).and_then(|device| match &device.kind {
        DeviceKind::Volume(volume) => {
            let (lvstore, uuid) = (model.lvstore_of(volume)?.clone(), volume.uuid);
            Some(FoundLvol { device: device.clone(), lvstore, uuid })
        }
        _ => None,
    });
    found.ok_or_else(|| RpcError::no_device(format!("no volume {name}")))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GetLvolsParams {
    lvs_uuid: Option<String>,
    lvs_name: Option<String>,
}

fn get(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    let GetLvolsParams { lvs_uuid, lvs_name } = device_params(&params)?;
    let stores = match (&lvs_uuid, &lvs_name) {
        (None, None) => manager.model().lvstores.clone(),
        (uuid, name) => vec![lvstore::find(manager, uuid.as_deref(), name.as_deref())?],
    };
    let views = stores.iter().flat_map(|lvstore| {
        let view = |info: VolumeInfo| {
            let volume = &info.volume;
            let mut row = json!({
                "alias": lvstore.alias(&volume.name), "uuid": volume.uuid, "name": volume.name,
                "is_thin_provisioned": volume.thin, "is_snapshot": volume.snapshot,
                "is_clone": volume.parent.is_some(), "is_esnap_clone": false, "is_degraded": false,
                "num_allocated_clusters": info.clusters,
                "lvs": {"name": lvstore.name, "uuid": lvstore.uuid},
            });
            if let Some(created) = volume.created_unix_seconds {
                row["created_unix_seconds"] = created.into();
            }
            row
        };
        lvstore.store.volumes().into_iter().map(view).collect::<Vec<_>>()
    });
    Ok(Value::Array(views.collect()))
}

/// Returns the volume details of those of `devices` that are volumes, by UUID.
pub(super) fn specifics<'a>(
    model: &ManagedModel,
    devices: impl Iterator<Item = &'a Arc<ManagedDevice>>,
) -> Map<String, Value> {
    let mut stores: Vec<&Arc<LvStore>> = Vec::new();
    for device in devices {
        if let DeviceKind::Volume(volume) = &device.kind
            && let Some(lvstore) = model.lvstore_of(volume)
            && !stores.iter().any(|known| Arc::ptr_eq(known, lvstore))
        {
            stores.push(lvstore);
        }
    }
    let all = stores.into_iter().flat_map(|lvstore| {
        let volumes = lvstore.store.volumes().into_iter();
        volumes.map(|info| (info.volume.uuid.to_string(), specific(lvstore, &info)))
    });
    all.collect()
}

fn specific(lvstore: &LvStore, info: &VolumeInfo) -> Value {
    let volume = &info.volume;
    let mut lvol = json!({
        "lvol_store_uuid": lvstore.uuid, "base_bdev": lvstore::base(lvstore),
        "thin_provision": volume.thin, "num_allocated_clusters": info.clusters,
        "snapshot": volume.snapshot, "clone": volume.parent.is_some(), "esnap_clone": false,
    });
    if let Some(parent) = &info.parent {
        lvol["base_snapshot"] = parent.as_str().into();
    }
    if !info.clones.is_empty() {
        lvol["clones"] = json!(info.clones);
    }
    json!({"lvol": lvol})
}

/// Returns a size in bytes, given in one of two units; older clients use the second.
fn bytes(mib: Option<u64>, bytes: Option<u64>) -> Rpc<u64> {
    match (mib, bytes) {
        (Some(mib), None) => {
            mib.checked_mul(1 << 20).ok_or_else(|| RpcError::invalid(format!("{mib} MiB")))
        }
        (None, Some(bytes)) => Ok(bytes),
        (None, None) => Err(RpcError::decode("size_in_mib is missing")),
        (Some(_), Some(_)) => Err(RpcError::invalid("give size_in_mib or size")),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CreateLvolParams {
    lvol_name: String,
    size_in_mib: Option<u64>,
    size: Option<u64>,
    uuid: Option<String>,
    lvs_name: Option<String>,
    thin_provision: Option<bool>,
    #[allow(dead_code, reason = "a new volume reads as zeroes in any case")]
    clear_method: Option<ClearMethod>,
}

fn create(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    let new: CreateLvolParams = device_params(&params)?;
    let bytes = bytes(new.size_in_mib, new.size)?;
    let lvstore = lvstore::find(manager, new.uuid.as_deref(), new.lvs_name.as_deref())?;
    let made = lvstore.store.create(&new.lvol_name, bytes, new.thin_provision.unwrap_or(false));
    let uuid = made.map_err(|error| match error {
        VolumeError::Taken(_) => RpcError::exists(error),
        VolumeError::Invalid(_) => RpcError::invalid(error),
        error => refused(&error),
    })?;
    show(manager, &lvstore, uuid)
}

/// Adds a new volume as a device, and deletes the volume if that fails.
fn show(manager: &ManagerSession<'_>, lvstore: &Arc<LvStore>, uuid: Uuid) -> Rpc<Value> {
    let gone = || RpcError::no_device(format!("no volume {uuid}"));
    let shown = lvstore.store.volume(uuid).ok_or_else(gone).and_then(|volume| {
        let device = lvstore.device(&volume).map_err(RpcError::internal)?;
        manager.change(RpcError::internal, |model| {
            // Both may have been renamed since.
            let Some(lvstore) = model.lvstore_with(&lvstore.store).cloned() else {
                return Err(RpcError::no_device(format!("no store {}", lvstore.name)));
            };
            let volume = lvstore.store.volume(uuid).ok_or_else(gone)?;
            let aliases = vec![lvstore.alias(&volume.name)];
            model.devices.push(Arc::new(ManagedDevice { aliases, ..device }));
            model.order_volumes(&lvstore);
            Ok(())
        })
    });
    shown.inspect_err(|_| drop(lvstore.store.delete(uuid)))?;
    Ok(json!(uuid))
}

fn snapshot(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct SnapshotLvolParams {
        lvol_name: String,
        snapshot_name: String,
    }
    let SnapshotLvolParams { lvol_name, snapshot_name } = device_params(&params)?;
    let FoundLvol { device, lvstore, uuid } = find(manager, &lvol_name)?;
    let quiet = || in_use(manager, &device).is_none();
    let made = lvstore.store.snapshot(uuid, &snapshot_name, &quiet);
    show(manager, &lvstore, made.map_err(|error| refused(&error))?)
}

fn clone(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct CloneLvolParams {
        snapshot_name: String,
        clone_name: String,
    }
    let CloneLvolParams { snapshot_name, clone_name } = device_params(&params)?;
    let FoundLvol { lvstore, uuid, .. } = find(manager, &snapshot_name)?;
    let made = lvstore.store.clone_snapshot(uuid, &clone_name);
    show(manager, &lvstore, made.map_err(|error| refused(&error))?)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LvolNameParams {
    name: String,
}

fn inflate(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    let LvolNameParams { name } = device_params(&params)?;
    let FoundLvol { lvstore, uuid, .. } = find(manager, &name)?;
    lvstore.store.inflate(uuid).map_err(|error| refused(&error))?;
    Ok(json!(true))
}

fn resize(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct ResizeLvolParams {
        name: String,
        size_in_mib: Option<u64>,
        size: Option<u64>,
    }
    let ResizeLvolParams { name, size_in_mib, size } = device_params(&params)?;
    let bytes = bytes(size_in_mib, size)?;
    let FoundLvol { device, lvstore, uuid } = find(manager, &name)?;
    // Serialised, so that the last resize is also the last one that hosts see.
    let _turn = RESIZES.lock().unwrap_or_else(PoisonError::into_inner);
    lvstore.store.resize(uuid, bytes).map_err(|error| refused(&error))?;
    // The file has its new size already; the resize takes the size of the file.
    super::devices::resize(manager, &device, None)
}

fn rename(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct RenameLvolParams {
        old_name: String,
        new_name: String,
    }
    let RenameLvolParams { old_name, new_name } = device_params(&params)?;
    let FoundLvol { lvstore, uuid, .. } = find(manager, &old_name)?;
    lvstore.store.rename(uuid, &new_name).map_err(|error| refused(&error))?;
    manager.change(RpcError::internal, |model| {
        // Takes the present names: another rename may have been faster.
        model.name_volumes(&lvstore.store);
        Ok(json!(true))
    })
}

fn decouple(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    let LvolNameParams { name } = device_params(&params)?;
    let FoundLvol { lvstore, uuid, .. } = find(manager, &name)?;
    lvstore.store.decouple(uuid).map_err(|error| refused(&error))?;
    Ok(json!(true))
}

/// Makes a volume read-only. Hosts lose write access before the store records it.
fn set_read_only(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    let LvolNameParams { name } = device_params(&params)?;
    let FoundLvol { device, lvstore, uuid } = find(manager, &name)?;
    let put = |new: &Arc<ManagedDevice>| {
        manager.change(RpcError::internal, |model| {
            let mut all = model.devices.iter_mut();
            let there = all.find(|one| one.name == device.name);
            *there.ok_or_else(|| RpcError::no_device(&name))? = new.clone();
            Ok(())
        })
    };
    if !device.store.geometry().read_only {
        put(&Arc::new(device.read_only()))?;
    }
    lvstore.store.set_read_only(uuid).or_else(|error| {
        put(&device)?;
        Err(refused(&error))
    })?;
    Ok(json!(true))
}

/// Creates a volume with the content of a device. Memory and images of Ceph clusters have no file to copy.
fn clone_device(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct CloneDeviceParams {
        bdev: String,
        lvs_name: String,
        clone_name: String,
    }
    let CloneDeviceParams { bdev, lvs_name, clone_name } = device_params(&params)?;
    let lvstore = lvstore::find(manager, None, Some(&lvs_name))?;
    let device = super::devices::find(manager, &bdev, |_| true)?;
    let from = match &device.kind {
        DeviceKind::Aio(path) | DeviceKind::Uring(path) => path.clone(),
        DeviceKind::Volume(volume) if !Arc::ptr_eq(&volume.store, &lvstore.store) => {
            volume.store.file(volume.uuid)
        }
        DeviceKind::Volume(_) => {
            return Err(RpcError::invalid(format!(
                "{bdev} is a volume of {lvs_name}: use bdev_lvol_snapshot and bdev_lvol_clone"
            )));
        }
        DeviceKind::Malloc | DeviceKind::Null | DeviceKind::Rbd(_) | DeviceKind::Remote(_) => {
            return Err(RpcError::invalid(format!(
                "{bdev} is a {}: a device of a file, or a volume, can be cloned",
                device.product()
            )));
        }
    };
    let geometry = device.store.geometry();
    let quiet = || geometry.read_only || in_use(manager, &device).is_none();
    let made = lvstore.store.import(&clone_name, (&from, geometry.bytes()), &quiet);
    show(manager, &lvstore, made.map_err(|error| refused(&error))?)
}

fn delete(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct DeleteLvolParams {
        name: String,
        force: Option<bool>,
    }
    let DeleteLvolParams { name, force } = device_params(&params)?;
    let FoundLvol { device, lvstore, uuid } = find(manager, &name)?;
    if let Some(nqn) = in_use(manager, &device).filter(|_| force != Some(true)) {
        return Err(used_at(&nqn, "a host uses it"));
    }
    // All refusals come before hosts lose the volume, and they lose it before its blocks are deleted.
    let deletion = lvstore.store.begin_delete(uuid).map_err(|error| refused(&error))?;
    let removed =
        manager.change(RpcError::internal, |model| Ok(model.remove_device(&device.name)))?;
    deletion.end().or_else(|error| {
        let again = |model: &mut ManagedModel| {
            model.put_back(removed);
            Ok(())
        };
        manager.change(RpcError::internal, again)?;
        Err(refused(&error))
    })?;
    Ok(json!(true))
}
