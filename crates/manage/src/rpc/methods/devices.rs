//! Devices of every kind: found, added, removed, resized and shown.

use super::{MethodParams, device_params};
use crate::model::{
    DeviceKind, MIB, ManagedDevice, ManagedModel, RateLimitsSpec, new_uuid, parse_uuid, show_uuid,
};
use crate::rpc::{ManagerSession, Rpc, RpcError};
use roadtrain_reactor::metrics::name_in_file;
use roadtrain_store::{BlockLimits, OpenError, StoreKind};
use roadtrain_target_engine::{ConfigError, ConfigOperation, Export, ExportBlocks};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::Arc;

/// Longest name in bytes.
const NAME_BYTES_MAX: usize = 255;

/// True if a device has that name, alias or UUID.
pub(super) fn is_called(view: &Value, name: &str) -> bool {
    let aliases = view["aliases"].as_array().into_iter().flatten();
    view["name"] == name || view["uuid"] == name || aliases.into_iter().any(|alias| alias == name)
}

/// Returns the shown form of the configuration file's devices.
pub(super) fn files_devices(manager: &ManagerSession<'_>) -> Vec<Value> {
    let ((seen, _), model) = (manager.server().view(), manager.model());
    let own = seen.subsystems.iter().filter(|subsystem| !model.serves(&subsystem.nqn));
    let all =
        own.flat_map(|subsystem| subsystem.namespaces.iter().map(|one| (&subsystem.nqn, one)));
    let lent: HashSet<(&str, u32)> =
        model.lent.values().map(|(nqn, nsid)| (nqn.as_str(), *nsid)).collect();
    let is_lent = |nqn: &str, nsid| lent.contains(&(nqn, nsid));
    let all = all.filter(|(nqn, one)| !is_lent(nqn, one.nsid));
    all.map(|(nqn, namespace)| {
        let uuid = namespace.id.map(|id| id.uuid).unwrap_or_default();
        let shape = (1 << namespace.lba_shift, namespace.blocks, namespace.read_only);
        let shape = (shape, namespace.limits);
        let name = name_in_file(nqn, namespace.nsid);
        view((&name, &[], "Namespace of the configuration file"), &uuid, shape, true, json!({}))
    })
    .collect()
}

/// Parses the given UUID, or makes a new one.
pub(super) fn uuid_of(given: Option<&str>) -> Rpc<[u8; 16]> {
    match given {
        Some(text) => parse_uuid(text).ok_or_else(|| RpcError::decode(format!("uuid {text:?}"))),
        None => new_uuid().map_err(RpcError::internal),
    }
}

/// Adds a device; a device without a name gets a free one.
pub(super) fn add(
    manager: &ManagerSession<'_>,
    name: Option<String>,
    uuid: [u8; 16],
    open: impl FnOnce(String) -> Rpc<ManagedDevice>,
) -> Rpc<Value> {
    let is_of_file = |name: &str| files_devices(manager).iter().any(|view| is_called(view, name));
    let text = show_uuid(&uuid);
    if is_of_file(&text) || name.as_deref().is_some_and(is_of_file) {
        return Err(RpcError::exists("the configuration file has such a device"));
    }
    manager.change(RpcError::internal, |model| {
        let name = name.or_else(|| free_name(model)).unwrap_or_default();
        let is_odd = |c: char| c.is_control();
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(is_odd) {
            return Err(RpcError::invalid(format!(
                "name {name:?}: use 1 to {NAME_BYTES_MAX} bytes"
            )));
        }
        if model.device(&name).is_some() {
            return Err(RpcError::exists(name));
        }
        if model.device(&text).is_some() {
            return Err(RpcError::exists(format!("uuid {text}")));
        }
        let device = open(name.clone())?;
        model.devices.push(Arc::new(device));
        Ok(json!(name))
    })
}

/// Returns a name for a device without one.
fn free_name(model: &ManagedModel) -> Option<String> {
    let devices = model.devices.iter();
    let used: HashSet<&str> =
        devices.flat_map(|one| [&one.name].into_iter().chain(&one.aliases)).map(|n| &**n).collect();
    (0_u32..).map(|n| format!("Malloc{n}")).find(|name| !used.contains(&**name))
}

/// Returns the reply to a store that cannot be opened.
pub(super) fn refused(error: &OpenError) -> RpcError {
    match error {
        OpenError::InUse { .. } => RpcError::busy(error),
        OpenError::Memory { .. } => RpcError::new(-12, "Cannot allocate memory", error),
        OpenError::Permission { .. } | OpenError::Uncreatable { .. } => {
            RpcError::new(-13, "Permission denied", error)
        }
        OpenError::NotFound { .. } | OpenError::SizeMissing { .. } => RpcError::no_file(error),
        _ => RpcError::invalid(error),
    }
}

/// Checks a block size; 0 and `None` are the default.
pub(super) fn block_size_of(given: Option<u32>) -> Rpc<u32> {
    match given.unwrap_or(0) {
        0 => Ok(512),
        size @ (512 | 4096) => Ok(size),
        size => Err(RpcError::invalid(format!("block_size {size}: use 512 or 4096"))),
    }
}

/// Checks that a device that stands by is for writing.
pub(super) fn check_standby(standby: Option<bool>, read_only: bool) -> Rpc<()> {
    match standby == Some(true) && read_only {
        true => Err(RpcError::invalid("standby is for writers: several may read")),
        false => Ok(()),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DeviceNameParams {
    pub(super) name: String,
}

/// Returns the name of a device by name, alias or UUID, of the configuration file or created by RPC.
pub(super) fn find_any(manager: &ManagerSession<'_>, name: &str) -> Rpc<String> {
    let views = files_devices(manager).into_iter().filter(|view| is_called(view, name));
    let of_file = views.filter_map(|view| view["name"].as_str().map(str::to_owned)).next();
    let own = || Some(manager.model().device(name)?.name.clone());
    of_file.or_else(own).ok_or_else(|| RpcError::no_device(name))
}

/// Returns the device of that name, if it is of that kind.
pub(super) fn find(
    manager: &ManagerSession<'_>,
    name: &str,
    is_it: fn(&DeviceKind) -> bool,
) -> Rpc<Arc<ManagedDevice>> {
    if let Some((nqn, nsid)) = file_namespace(manager, name) {
        return Err(RpcError::not_permitted(format!(
            "{name} is namespace {nsid} of {nqn}, which the configuration file has: nvmf_subsystem_remove_ns removes \
             it until the next reload"
        )));
    }
    let model = manager.model();
    let found = model.device(name).filter(|device| is_it(&device.kind));
    found.cloned().ok_or_else(|| RpcError::no_device(name))
}

/// Removes the device of that name, if it is of that kind.
pub(super) fn delete(
    manager: &ManagerSession<'_>,
    params: MethodParams<'_>,
    is_it: fn(&DeviceKind) -> bool,
) -> Rpc<Value> {
    let DeviceNameParams { name } = device_params(&params)?;
    find(manager, &name, is_it)?;
    manager.change(RpcError::internal, |model| {
        let device = model.device(&name).filter(|device| is_it(&device.kind));
        let name = device.ok_or_else(|| RpcError::no_device(&name))?.name.clone();
        if let Some(lvstore) = model.lvstore_on(&name) {
            return Err(RpcError::busy(format!(
                "it has the store {}: delete that first",
                lvstore.name
            )));
        }
        drop(model.remove_device(&name));
        Ok(json!(true))
    })
}

/// Returns the namespace of the configuration file that is the device of that name: NQN and NSID.
pub(super) fn file_namespace(manager: &ManagerSession<'_>, name: &str) -> Option<(String, u32)> {
    let views = files_devices(manager).into_iter().find(|view| is_called(view, name))?;
    let (nqn, nsid) = views["name"].as_str()?.rsplit_once('/')?;
    Some((nqn.to_owned(), nsid.parse().ok()?))
}

/// Resizes a namespace of the configuration file, to `bytes` or to the size of its file, until the next reload.
pub(super) fn resize_of_file(
    manager: &ManagerSession<'_>,
    (nqn, nsid): (String, u32),
    bytes: Option<u64>,
) -> Rpc<Value> {
    let operation = match bytes {
        Some(bytes) => ConfigOperation::ResizeNamespace { nqn, nsid, bytes },
        None => {
            let subsystem = manager.file_subsystem(&nqn);
            let own = subsystem.into_iter().flat_map(|one| one.namespaces);
            let namespace = own.into_iter().find(|one| one.nsid == nsid);
            let namespace = namespace.ok_or_else(|| RpcError::no_device(&nqn))?;
            ConfigOperation::ReplaceNamespace { nqn, namespace: as_large_as_it_is(namespace) }
        }
    };
    of_file(manager, RpcError::invalid, vec![operation])
}

/// Returns the export without a size, so that opening takes that of the file or device.
fn as_large_as_it_is(mut export: Export) -> Export {
    if let ExportBlocks::Spec(spec) = &mut export.blocks
        && let StoreKind::File { size, create, .. } = &mut spec.kind
    {
        (*size, *create) = (None, false);
    }
    export
}

/// Applies operations to the configuration file's objects, until the next reload.
pub(super) fn of_file(
    manager: &ManagerSession<'_>,
    refused: impl Fn(ConfigError) -> RpcError,
    operations: Vec<ConfigOperation<Export>>,
) -> Rpc<Value> {
    let done = manager.change_with(refused, |_, all| {
        all.extend(operations);
        Ok(json!(true))
    });
    done.map(|(result, _)| result)
}

/// Resizes a device, to `bytes` or to the size of its file, and notifies hosts.
pub(in crate::rpc) fn resize(
    manager: &ManagerSession<'_>,
    device: &ManagedDevice,
    bytes: Option<u64>,
) -> Rpc<Value> {
    if device.standby.is_some() {
        return resize_standby(manager, device, bytes);
    }
    let store = &device.store;
    let mut resize = store.plan(bytes).map_err(|error| refused(&error))?;
    store.stage(&mut resize).map_err(|error| refused(&error))?;
    manager.resize(device, &resize)?;
    Ok(json!(true))
}

/// Resizes the namespace of a device that stands by: the target has opened its blocks, if it is their owner.
fn resize_standby(
    manager: &ManagerSession<'_>,
    device: &ManagedDevice,
    bytes: Option<u64>,
) -> Rpc<Value> {
    let model = manager.model();
    let unshown =
        || RpcError::invalid(format!("{} stands by: show it as a namespace first", device.name));
    let (nqn, nsid) = model.claim(&device.name).ok_or_else(unshown)?;
    let saved = model.subsystem(nqn).into_iter().flat_map(|one| &one.namespaces);
    let mut exports = saved.filter(|one| one.nsid == nsid).filter_map(|one| one.export(&model));
    let namespace = exports.next().ok_or_else(unshown)?;
    if let Some(bytes) = bytes {
        let resize = ConfigOperation::ResizeNamespace { nqn: nqn.to_owned(), nsid, bytes };
        of_file(manager, RpcError::invalid, vec![resize])?;
    }
    // The state has no size of the blocks: it is that of the file.
    let replace = ConfigOperation::ReplaceNamespace { nqn: nqn.to_owned(), namespace };
    of_file(manager, RpcError::invalid, vec![replace])?;
    let (seen, _) = manager.server().view();
    let subsystem = seen.subsystems.iter().find(|one| one.nqn == nqn);
    let mut namespaces = subsystem.into_iter().flat_map(|one| &one.namespaces);
    let shown = namespaces.find(|one| one.nsid == nsid).map(|one| one.blocks << one.lba_shift);
    let resize = device.store.plan(shown).map_err(|error| refused(&error))?;
    device.store.switch(&resize);
    Ok(json!(true))
}

/// Returns the shown form of a device.
pub(super) fn view(
    (name, aliases, product): (&str, &[String], &str),
    uuid: &[u8; 16],
    ((block_size, blocks, read_only), limits): ((u32, u64, bool), BlockLimits),
    is_claimed: bool,
    specific: Value,
) -> Value {
    let uuid = show_uuid(uuid);
    let own = (name != uuid).then(|| uuid.clone());
    let aliases: Vec<&String> = aliases.iter().chain(&own).collect();
    let (writes, in_blocks) = (!read_only, |bytes: u32| bytes / block_size);
    let mut view = json!({
        "name": name, "aliases": aliases, "product_name": product, "block_size": block_size,
        "num_blocks": blocks, "uuid": uuid, "numa_id": -1,
        "preferred_write_alignment": in_blocks(limits.write_bytes),
        "preferred_write_granularity": in_blocks(limits.write_bytes),
        "optimal_write_size": in_blocks(limits.optimal_bytes),
        "preferred_unmap_alignment": in_blocks(limits.discard_bytes),
        "preferred_unmap_granularity": in_blocks(limits.discard_bytes),
        "assigned_rate_limits": show_limits(&RateLimitsSpec::default()),
        "claimed": is_claimed, "zoned": false, "driver_specific": specific,
        "supported_io_types": {
            "read": true, "write": writes, "unmap": writes, "flush": true, "reset": true,
            "nvme_admin": false, "nvme_io": false, "nvme_io_md": false, "write_zeroes": writes,
            "zcopy": false, "get_zone_info": false, "zone_management": false, "zone_append": false,
            "compare": true, "compare_and_write": writes, "abort": true, "seek_hole": false,
            "seek_data": false, "copy": false, "nvme_iov_md": false,
        },
    });
    if is_claimed {
        view["claim_type"] = "exclusive_write".into();
    }
    view
}

/// Returns the limits as `bdev_get_bdevs` shows them, in SPDK's units. Fractions are rounded up.
pub(super) fn show_limits(limits: &RateLimitsSpec) -> Value {
    json!({
        "rw_ios_per_sec": limits.iops, "rw_mbytes_per_sec": limits.bandwidth.div_ceil(MIB),
        "r_mbytes_per_sec": limits.read_bandwidth.div_ceil(MIB),
        "w_mbytes_per_sec": limits.write_bandwidth.div_ceil(MIB),
    })
}
