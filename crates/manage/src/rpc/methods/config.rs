//! The RPC calls that restore what RPC has created.

use super::{Method, MethodParams, lvstore, params_of, query};
use crate::model::{
    Base, DeviceKind, HostKeys, KeySpec, LvStore, ManagedDevice, ManagedModel, RateLimitsSpec,
    SavedGroup, SavedSubsystem, VolumeDevice, show_uuid,
};
use crate::rpc::methods::{devices, place, qos, rbd};
use crate::rpc::{ManagerSession, Rpc, RpcError};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

pub(super) const METHODS: &[Method] =
    &[query("framework_get_config", "The calls that make again what RPC has made.", get)];

fn get(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct FrameworkGetConfigParams {
        name: String,
        #[allow(dead_code, reason = "no call needs a batch here")]
        with_batches: Option<bool>,
    }
    let FrameworkGetConfigParams { name, .. } = params_of(&params)?;
    let model = manager.model();
    let calls = match name.as_str() {
        "keyring" => {
            let keys = model.keys.iter().map(|key| &key.spec);
            let add = |key: &KeySpec| {
                call("keyring_file_add_key", json!({"name": key.name, "path": key.path}))
            };
            keys.map(add).collect()
        }
        "bdev" => {
            let clusters = model
                .rbd_clusters
                .iter()
                .map(|cluster| call("bdev_rbd_register_cluster", rbd::cluster_params(cluster)));
            clusters.chain(device_calls(&model)).chain(limits_calls(&model)).collect()
        }
        "nvmf" => nvmf_calls(&model),
        _ => return Err(RpcError::params(format!("no subsystem {name}"))),
    };
    Ok(Value::Array(calls))
}

fn call(method: &str, params: Value) -> Value {
    json!({"method": method, "params": params})
}

/// Returns the calls for devices in their order, each store of volumes before its first volume. A store in a folder
/// keeps its volumes; those of a store in memory are created anew, as its memory device is.
fn device_calls(model: &ManagedModel) -> Vec<Value> {
    let mut stores: Vec<&Arc<LvStore>> =
        model.lvstores.iter().filter(|one| !one.is_from_startup).collect();
    let mut calls = Vec::new();
    for device in &model.devices {
        calls.extend(device_call(device));
        let DeviceKind::Volume(volume) = &device.kind else { continue };
        let Some(lvstore) = model.lvstore_of(volume) else { continue };
        calls.extend(stores.extract_if(.., |one| Arc::ptr_eq(one, lvstore)).map(store_call));
        if matches!(lvstore.base, Base::Device(_)) {
            calls.extend(volume_call(lvstore, volume));
        }
    }
    calls.extend(stores.into_iter().map(store_call));
    calls
}

fn store_call(lvstore: &Arc<LvStore>) -> Value {
    let params = json!({"bdev_name": lvstore::base(lvstore), "lvs_name": lvstore.name});
    call("bdev_lvol_create_lvstore", params)
}

/// Returns the call for a volume in memory, without its content.
fn volume_call(lvstore: &LvStore, volume: &VolumeDevice) -> Option<Value> {
    let volume = lvstore.store.volume(volume.uuid)?;
    let params = json!({
        "lvs_name": lvstore.name, "lvol_name": volume.name, "size": volume.size,
        "thin_provision": volume.thin || volume.snapshot || volume.parent.is_some(),
    });
    Some(call("bdev_lvol_create", params))
}

/// Returns the name of a device after the calls: a volume in memory has another UUID then.
fn lasting_name<'a>(model: &'a ManagedModel, name: &'a str) -> &'a str {
    lost_volume(model, name).and_then(|device| device.aliases.first()).map_or(name, String::as_str)
}

/// Returns the volume in memory of that name.
fn lost_volume<'a>(model: &'a ManagedModel, name: &str) -> Option<&'a Arc<ManagedDevice>> {
    let device = model.device(name)?;
    let DeviceKind::Volume(volume) = &device.kind else { return None };
    let lvstore = model.lvstore_of(volume)?;
    matches!(lvstore.base, Base::Device(_)).then_some(device)
}

fn device_call(device: &ManagedDevice) -> Option<Value> {
    let geometry = device.store.geometry();
    let (name, uuid) = (&device.name, show_uuid(&device.uuid));
    let (block_size, num_blocks) = (geometry.lba_bytes(), geometry.blocks);
    let memory =
        || json!({"name": name, "num_blocks": num_blocks, "block_size": block_size, "uuid": uuid});
    Some(match &device.kind {
        DeviceKind::Malloc => call("bdev_malloc_create", memory()),
        DeviceKind::Null => call("bdev_null_create", memory()),
        DeviceKind::Aio(path) => call(
            "bdev_aio_create",
            json!({
                "name": name, "filename": path, "block_size": block_size,
                "readonly": geometry.read_only, "uuid": uuid,
            }),
        ),
        DeviceKind::Uring(path) => call(
            "bdev_uring_create",
            json!({
                "name": name, "filename": path, "block_size": block_size, "uuid": uuid,
            }),
        ),
        DeviceKind::Rbd(image) => {
            let params = rbd::params(image);
            let own = json!({
                "name": name, "block_size": block_size, "read_only": geometry.read_only, "uuid": uuid,
            });
            call("bdev_rbd_create", merged(params, own))
        }
        DeviceKind::Volume(_) => return None,
        DeviceKind::Remote(_) => return None, // no call creates one
    })
}

fn merged(mut params: Value, more: Value) -> Value {
    if let (Value::Object(params), Value::Object(more)) = (&mut params, more) {
        params.extend(more);
    }
    params
}

/// Returns the calls for limits in the order of the devices: sorting by name would change when volumes get other UUIDs.
fn limits_calls(model: &ManagedModel) -> impl Iterator<Item = Value> {
    model.devices.iter().filter_map(|device| {
        let limits = model.limits.get(&device.name)?;
        Some(limits_call(lasting_name(model, &device.name), limits))
    })
}

fn limits_call(name: &str, limits: &RateLimitsSpec) -> Value {
    if !limits.is_of_spdk() {
        return call(qos::OF_DEVICE, json!({"name": name, "limits": limits}));
    }
    let mut params = devices::show_limits(limits);
    params["name"] = name.into();
    call("bdev_set_qos_limit", params)
}

fn nvmf_calls(model: &ManagedModel) -> Vec<Value> {
    let transport = model.has_tcp.then(|| call("nvmf_create_transport", json!({"trtype": "TCP"})));
    let mut calls: Vec<Value> = transport.into_iter().collect();
    let referrals = model.referrals.iter().map(|one| {
        let address = place::show(one.into());
        call("nvmf_discovery_add_referral", json!({"address": address}))
    });
    calls.extend(referrals);
    model.subsystems.iter().for_each(|subsystem| subsystem_calls((model, subsystem), &mut calls));
    calls
}

fn subsystem_calls((model, subsystem): (&ManagedModel, &SavedSubsystem), calls: &mut Vec<Value>) {
    let nqn = &subsystem.nqn;
    let mut params = json!({
        "nqn": nqn, "allow_any_host": subsystem.allow_any_host,
        "max_namespaces": subsystem.max_namespaces, "ana_reporting": subsystem.ana_reporting,
    });
    for (name, value) in [("serial_number", &subsystem.serial), ("model_number", &subsystem.model)]
    {
        if let Some(value) = value {
            params[name] = value.as_str().into();
        }
    }
    let cntlids = [("min_cntlid", subsystem.min_cntlid), ("max_cntlid", subsystem.max_cntlid)];
    let cntlids = cntlids.into_iter().filter_map(|(name, id)| Some((name, id?.into())));
    let limits = [("dmrsl", subsystem.dmrsl), ("wzsl", subsystem.wzsl.into())];
    let limits = limits.into_iter().filter(|(_, limit)| *limit != 0);
    cntlids.chain(limits).for_each(|(name, value): (_, u32)| params[name] = value.into());
    calls.push(call("nvmf_create_subsystem", params));
    calls.extend(subsystem.hosts.iter().map(|host| {
        let keys = subsystem.host_keys.get(host).cloned().unwrap_or_default();
        call("nvmf_subsystem_add_host", host_params((nqn, host), keys))
    }));
    calls.extend(subsystem.host_limits.iter().map(|(host, limits)| {
        call(qos::OF_HOST, json!({"nqn": nqn, "host": host, "limits": limits}))
    }));
    calls.extend(management_call(subsystem));
    calls.extend(subsystem.namespaces.iter().map(|one| {
        let device = lasting_name(model, &one.device);
        let mut namespace = json!({"nsid": one.nsid, "bdev_name": device});
        // Hosts see the same UUID as before.
        let uuid = lost_volume(model, &one.device).map(|device| show_uuid(&device.uuid));
        for (name, value) in [("uuid", &one.uuid.clone().or(uuid)), ("nguid", &one.nguid)] {
            if let Some(value) = value {
                namespace[name] = value.as_str().into();
            }
        }
        if let Some(path) = &one.reservations {
            namespace["ptpl_file"] = json!(path);
        }
        namespace["anagrpid"] = one.ana_group.into();
        if one.hosts.is_some() {
            namespace["no_auto_visible"] = true.into();
        }
        call("nvmf_subsystem_add_ns", json!({"nqn": nqn, "namespace": namespace}))
    }));
    for one in &subsystem.namespaces {
        calls.extend(one.hosts.iter().flatten().map(|host| {
            call("nvmf_ns_add_host", json!({"nqn": nqn, "nsid": one.nsid, "host": host}))
        }));
    }
    calls.extend(subsystem.listeners.iter().map(|one| {
        let mut params = json!({"nqn": nqn, "listen_address": place::show_listener(one)});
        if subsystem.ana_reporting {
            params["ana_state"] = json!(one.ana);
        }
        if one.secure {
            params["secure_channel"] = true.into();
        }
        call("nvmf_subsystem_add_listener", params)
    }));
    for one in &subsystem.listeners {
        let address = place::show_listener(one);
        calls.extend(one.groups.iter().map(|SavedGroup { group, ana }| {
            let params = json!({
                "nqn": nqn, "listen_address": address, "ana_state": ana, "anagrpid": group,
            });
            call("nvmf_subsystem_listener_set_ana_state", params)
        }));
    }
}

/// Returns the call that names the administrators of a subsystem, if it has any.
fn management_call(subsystem: &SavedSubsystem) -> Option<Value> {
    let store = subsystem.namespace_store.as_ref()?;
    let (nqn, administrators) = (&subsystem.nqn, &subsystem.administrators);
    let params = json!({"nqn": nqn, "administrators": administrators, "namespace_store": store});
    Some(call("roadtrain_set_namespace_management", params))
}

fn host_params((nqn, host): (&str, &str), keys: HostKeys) -> Value {
    let mut params = json!({"nqn": nqn, "host": host});
    let HostKeys { dhchap_key, dhchap_ctrlr_key, psk } = keys;
    for (name, key) in
        [("psk", psk), ("dhchap_key", dhchap_key), ("dhchap_ctrlr_key", dhchap_ctrlr_key)]
    {
        if let Some(key) = key {
            params[name] = key.into();
        }
    }
    params
}
