//! Stores of volumes.

use super::{Method, MethodParams, change, device_params, query};
use crate::model::{Base, DeviceKind, LvStore, ManagedDevice, ManagedModel, RemovedDevice};
use crate::rpc::{ManagerSession, Rpc, RpcError};
use crate::volumes::{CLUSTER_BYTES, CopyProgress, VolumeError, VolumeStore};
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

pub(super) const METHODS: &[Method] = &[
    query("bdev_lvol_get_lvstores", "Stores of volumes, with what is free.", get),
    change(
        "bdev_lvol_create_lvstore",
        "Makes a store of volumes in a folder, or of a device of memory.",
        create,
    ),
    change(
        "bdev_lvol_delete_lvstore",
        "Removes a store with all its volumes; one that a host uses only by force.",
        delete,
    ),
    change("bdev_lvol_rename_lvstore", "Gives a store another name.", rename),
    change("bdev_lvol_grow_lvstore", "Gives a store all that its file system has free.", grow),
];

/// Name of a store: one of both.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LvstoreNameParams {
    uuid: Option<String>,
    lvs_name: Option<String>,
}

/// Finds a store by UUID or name; exactly one has to be given.
pub(super) fn find(
    manager: &ManagerSession<'_>,
    uuid: Option<&str>,
    name: Option<&str>,
) -> Rpc<Arc<LvStore>> {
    let model = manager.model();
    let found = match (uuid, name) {
        (Some(uuid), None) => model.lvstores.iter().find(|one| one.uuid.to_string() == uuid),
        (None, Some(name)) => model.lvstore(name),
        _ => return Err(RpcError::invalid("name a store by its UUID or by its name")),
    };
    let name = uuid.or(name).unwrap_or_default();
    found.cloned().ok_or_else(|| RpcError::no_device(format!("no store {name}")))
}

/// Returns SPDK's reply to a failure during the operation: its words for the errno, and our text.
pub(super) fn late(error: &VolumeError) -> RpcError {
    let words = std::io::Error::from_raw_os_error(error.errno()).to_string();
    let words = words.split(" (os error").next().unwrap_or_default();
    RpcError::new(-32602, words, error)
}

/// Returns the reply to a failed operation; missing objects and objects in use have codes of their own.
pub(super) fn refused(error: &VolumeError) -> RpcError {
    match error {
        VolumeError::NotFound(_) => RpcError::no_device(error),
        VolumeError::Busy(_) => RpcError::busy(error),
        _ => late(error),
    }
}

fn get(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    let LvstoreNameParams { uuid, lvs_name } = device_params(&params)?;
    let stores = match (&uuid, &lvs_name) {
        (None, None) => manager.model().lvstores.clone(),
        (uuid, name) => vec![find(manager, uuid.as_deref(), name.as_deref())?],
    };
    let views: Rpc<Vec<Value>> = stores.iter().map(|store| view(store)).collect();
    views.map(Value::Array)
}

/// Returns the location of a store's volumes as text.
pub(super) fn base(store: &LvStore) -> String {
    match &store.base {
        Base::Folder(path) => path.display().to_string(),
        Base::Device(name) => name.clone(),
    }
}

fn view(lvstore: &LvStore) -> Rpc<Value> {
    let info = lvstore.store.info().map_err(RpcError::io)?;
    let mut view = json!({
        "uuid": lvstore.uuid, "name": lvstore.name, "base_bdev": base(lvstore),
        "total_data_clusters": info.total_clusters, "free_clusters": info.free_clusters,
        "block_size": info.lba, "cluster_size": CLUSTER_BYTES,
        "max_growable_size": info.growable_clusters * CLUSTER_BYTES,
    });
    let copy = |(name, CopyProgress { copied, of }): (String, CopyProgress)| {
        json!({
            "lvol_name": name, "copied_bytes": copied, "total_bytes": of,
        })
    };
    let copies: Vec<Value> = lvstore.store.copies().into_iter().map(copy).collect();
    if !copies.is_empty() {
        view["copies"] = copies.into();
    }
    Ok(view)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CreateLvstoreParams {
    bdev_name: String,
    lvs_name: String,
    cluster_sz: Option<u64>,
    #[allow(dead_code, reason = "a new volume reads as zeroes whatever was there")]
    clear_method: Option<ClearMethod>,
    #[allow(dead_code, reason = "there is no metadata on the device")]
    num_md_pages_per_cluster_ratio: Option<u32>,
    #[allow(dead_code, reason = "there is no metadata on the device")]
    md_page_size: Option<u32>,
}

/// SPDK's ways to clear a new volume.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ClearMethod {
    /// No clearing.
    None,
    /// Discard.
    Unmap,
    /// Writing zeroes.
    WriteZeroes,
}

fn create(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    let CreateLvstoreParams { bdev_name, lvs_name, cluster_sz, .. } = device_params(&params)?;
    if cluster_sz.is_some_and(|bytes| bytes != 0 && bytes != CLUSTER_BYTES) {
        return Err(RpcError::invalid(format!(
            "clusters have {CLUSTER_BYTES} bytes: leave cluster_sz out"
        )));
    }
    let taken = || RpcError::exists(format!("store {lvs_name}"));
    if manager.model().lvstore(&lvs_name).is_some() {
        return Err(taken());
    }
    let lvstore = match bdev_name.starts_with('/') {
        true => in_folder(manager, &bdev_name, &lvs_name)?,
        false => in_memory(manager, &bdev_name, &lvs_name)?,
    };
    let uuid = lvstore.uuid;
    manager.change(RpcError::internal, |model| {
        if model.lvstore(&lvs_name).is_some() {
            return Err(taken());
        }
        if let Base::Device(device) = &lvstore.base
            && (model.claim(device).is_some() || model.lvstore_on(device).is_some())
        {
            return Err(RpcError::invalid(format!("{device} is in use")));
        }
        model.add_lvstore(lvstore).map_err(RpcError::invalid)
    })?;
    Ok(json!(uuid))
}

/// Opens or creates a store in a folder, which is created if it does not exist.
fn in_folder(manager: &ManagerSession<'_>, path: &str, name: &str) -> Rpc<LvStore> {
    let missing = |error: RpcError| match error.code {
        -2 => RpcError::no_device(error.message),
        _ => error,
    };
    let path = manager.allowed_new(Path::new(path)).map_err(missing)?;
    if path.exists() && !path.is_dir() {
        return Err(RpcError::invalid(format!("{}: is not a folder", path.display())));
    }
    let store = VolumeStore::open(&path, name, None, 512).map_err(RpcError::invalid)?;
    Ok(LvStore::new(store, Base::Folder(path), false))
}

fn in_memory(manager: &ManagerSession<'_>, name: &str, lvs_name: &str) -> Rpc<LvStore> {
    let model = manager.model();
    let device = model.device(name).ok_or_else(|| RpcError::no_device(name))?;
    if device.kind != DeviceKind::Malloc {
        let advice = "name a device of memory, or the absolute path of a folder";
        return Err(RpcError::invalid(format!("{name}: {advice}")));
    }
    let geometry = device.store.geometry();
    let store = VolumeStore::memory(lvs_name, geometry.bytes(), geometry.lba_bytes());
    let store = store.map_err(RpcError::invalid)?;
    Ok(LvStore::new(store, Base::Device(device.name.clone()), false))
}

/// Checks that no host uses a volume of the store.
fn check_unused(manager: &ManagerSession<'_>, lvstore: &LvStore) -> Rpc<()> {
    let model = manager.model();
    let own = lvstore.store.list().into_iter();
    let mut used = own.filter_map(|volume| {
        Some((in_use(manager, model.device(&volume.uuid.to_string())?)?, volume.name))
    });
    match used.next() {
        Some((nqn, volume)) => {
            Err(used_at(&nqn, &format!("a host uses {}", lvstore.alias(&volume))))
        }
        None => Ok(()),
    }
}

/// Returns the subsystem at which a host is connected to the device, if one is.
pub(super) fn in_use(manager: &ManagerSession<'_>, device: &ManagedDevice) -> Option<String> {
    let model = manager.model();
    let (nqn, _) = model.claim(&device.name)?;
    let (_, controllers) = manager.server().view();
    let is_used = controllers.iter().any(|controller| *controller.subnqn == *nqn);
    is_used.then(|| nqn.to_owned())
}

/// Returns the refusal to delete an object that a host uses.
pub(super) fn used_at(nqn: &str, what: &str) -> RpcError {
    RpcError::busy(format!("{what} at {nqn}: disconnect it, or use force (ctl: --force)"))
}

fn rename(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct RenameLvstoreParams {
        old_name: String,
        new_name: String,
    }
    let RenameLvstoreParams { old_name, new_name } = device_params(&params)?;
    let missing = || RpcError::new(-2, &format!("Lvol store {old_name} not found"), "");
    let lvstore = manager.model().lvstore(&old_name).cloned().ok_or_else(missing)?;
    check_owner(&lvstore)?;
    if old_name == new_name {
        return Ok(json!(true));
    }
    let taken = || late(&VolumeError::Taken(new_name.clone()));
    if manager.model().lvstore(&new_name).is_some() {
        return Err(taken());
    }
    lvstore.store.rename_store(&new_name).map_err(|error| late(&error))?;
    let renamed = manager.change(RpcError::internal, |model| {
        if model.lvstore(&new_name).is_some() {
            return Err(taken());
        }
        model.rename_lvstore(&lvstore.store, &new_name);
        Ok(json!(true))
    });
    renamed.inspect_err(|_| drop(lvstore.store.rename_store(&old_name)))
}

fn grow(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    let LvstoreNameParams { uuid, lvs_name } = device_params(&params)?;
    let lvstore = find(manager, uuid.as_deref(), lvs_name.as_deref())?;
    lvstore.store.grow().map_err(|error| late(&error))?;
    Ok(json!(true))
}

/// Refuses to change a store that was named when the target was started.
fn check_owner(lvstore: &LvStore) -> Rpc<()> {
    let name = &lvstore.name;
    match lvstore.is_from_startup {
        false => Ok(()),
        true => Err(RpcError::not_permitted(format!(
            "{name} is of the start (--lvstore, [[lvstore]]): change the command line or the configuration file"
        ))),
    }
}

fn delete(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct DeleteLvstoreParams {
        uuid: Option<String>,
        lvs_name: Option<String>,
        force: Option<bool>,
    }
    let DeleteLvstoreParams { uuid, lvs_name, force } = device_params(&params)?;
    let lvstore = find(manager, uuid.as_deref(), lvs_name.as_deref())?;
    let name = &lvstore.name;
    check_owner(&lvstore)?;
    let model = manager.model();
    let mut subsystems = model.subsystems.iter();
    if let Some(one) = subsystems.find(|one| one.namespace_store.as_ref() == Some(name)) {
        let (nqn, advice) = (&one.nqn, "end that first (ctl subsystem set --no-administrators)");
        return Err(RpcError::busy(format!("hosts create namespaces of {nqn} in it: {advice}")));
    }
    if force != Some(true) {
        check_unused(manager, &lvstore)?;
    }
    // All refusals come before hosts lose anything.
    let destruction = lvstore.store.begin_destroy().map_err(|error| refused(&error))?;
    // The store leaves the model before its volumes, so that no new ones are created. A second delete finds no store.
    let removed: Vec<RemovedDevice> = manager.change(RpcError::internal, |model| {
        if model.lvstore_with(&lvstore.store).is_none() {
            return Err(RpcError::no_device(format!("no store {name}")));
        }
        model.lvstores.retain(|one| !Arc::ptr_eq(&one.store, &lvstore.store));
        let volumes = destruction.volumes();
        Ok(volumes.map(|volume| model.remove_device(&volume.to_string())).collect())
    })?;
    destruction.end().or_else(|error| {
        let again = |model: &mut ManagedModel| {
            model.lvstores.push(lvstore.clone());
            removed.into_iter().for_each(|removed| model.put_back(removed));
            Ok(())
        };
        manager.change(RpcError::internal, again)?;
        Err(refused(&error))
    })?;
    Ok(json!(true))
}
