//! Devices.

use super::devices::{
    DeviceNameParams, add, block_size_of, delete, file_namespace, files_devices, find, is_called,
    refused, resize, resize_of_file, show_limits, uuid_of, view,
};
use super::{Method, MethodParams, change, device_params, query};
use crate::model::{DeviceKind, ManagedDevice};
use crate::rpc::{ManagerSession, Rpc, RpcError};
use roadtrain_store::{StoreKind, StoreSpec, open};
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

pub(super) const METHODS: &[Method] = &[
    query("bdev_get_bdevs", "Devices, in the order in which they were made.", get),
    change("bdev_malloc_create", "Makes a device of memory, gone with the process.", malloc),
    change("bdev_malloc_delete", "Removes a device of memory, its namespace first.", malloc_delete),
    change("bdev_null_create", "Makes a device that keeps nothing.", null),
    change("bdev_null_delete", "Removes such a device, its namespace first.", null_delete),
    change("bdev_null_resize", "Gives such a device another size, in MiB.", null_resize),
    change("bdev_aio_create", "Makes a device of a file or block device.", aio),
    change("bdev_aio_delete", "Removes such a device, its namespace first.", aio_delete),
    change("bdev_aio_rescan", "Gives it the size that its file has by now.", aio_rescan),
    change("bdev_uring_create", "As bdev_aio_create.", uring),
    change("bdev_uring_delete", "As bdev_aio_delete.", uring_delete),
    change("bdev_uring_rescan", "As bdev_aio_rescan.", uring_rescan),
];

/// Longest wait for a device that may be created.
const WAIT_MAX: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

fn get(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct GetBdevsParams {
        name: Option<String>,
        timeout: Option<u64>,
    }
    let GetBdevsParams { name, timeout } = device_params(&params)?;
    let Some(name) = name else { return Ok(Value::Array(views(manager, None))) };
    let until = Instant::now() + Duration::from_millis(timeout.unwrap_or(0)).min(WAIT_MAX);
    loop {
        let found = views(manager, Some(&name));
        if !found.is_empty() {
            return Ok(Value::Array(found));
        }
        if Instant::now() >= until {
            return Err(RpcError::no_device(name));
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Returns the shown form of devices: the configuration file's first.
fn views(manager: &ManagerSession<'_>, name: Option<&str>) -> Vec<Value> {
    let model = manager.model();
    let is_meant = |device: &&Arc<ManagedDevice>| {
        name.is_none_or(|name| device.name == name || device.is_called(name))
    };
    let claims = model.claims_by_device();
    let mut volumes = super::lvol::specifics(&model, model.devices.iter().filter(is_meant));
    let own = model.devices.iter().filter(is_meant).map(|device| {
        let specific = match &device.kind {
            DeviceKind::Aio(path) => {
                let geometry = device.store.geometry();
                json!({"aio": {
                    "filename": path, "block_size_override": true, "readonly": geometry.read_only,
                    "fallocate": true,
                }})
            }
            DeviceKind::Uring(path) => json!({"uring": {"filename": path}}),
            DeviceKind::Rbd(image) => json!({"rbd": super::rbd::show(image)}),
            DeviceKind::Remote(blocks) => json!({"remote": {"location": blocks.to_string()}}),
            DeviceKind::Volume(_) => volumes.remove(&device.name).unwrap_or_default(),
            DeviceKind::Malloc | DeviceKind::Null => json!({}),
        };
        let geometry = device.store.geometry();
        let shape = (geometry.lba_bytes(), geometry.blocks, geometry.read_only);
        let shape = (shape, device.store.limits());
        let is_claimed =
            claims.contains_key(&*device.name) || model.lvstore_on(&device.name).is_some();
        let names = (device.name.as_str(), &device.aliases[..], device.product());
        let mut view = view(names, &device.uuid, shape, is_claimed, specific);
        if let Some(limits) = model.limits.get(&device.name) {
            view["assigned_rate_limits"] = show_limits(limits);
        }
        view
    });
    files_devices(manager)
        .into_iter()
        .filter(|view| name.is_none_or(|name| is_called(view, name)))
        .chain(own)
        .collect()
}

/// Parameters of methods that create devices without a file. Metadata and protection information are not supported.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CreateMemoryBdevParams {
    num_blocks: u64,
    block_size: u32,
    name: Option<String>,
    uuid: Option<String>,
    physical_block_size: Option<u32>,
    optimal_io_boundary: Option<u32>,
    md_size: Option<u32>,
    md_interleave: Option<bool>,
    dif_type: Option<u32>,
    dif_is_head_of_md: Option<bool>,
    dif_pi_format: Option<u32>,
    preferred_write_alignment: Option<u32>,
    preferred_write_granularity: Option<u32>,
    numa_id: Option<i32>,
}

impl CreateMemoryBdevParams {
    fn check(&self) -> Rpc<()> {
        let has = [self.md_size, self.dif_type, self.dif_pi_format, self.optimal_io_boundary];
        let has_metadata = has.into_iter().flatten().any(|value| value != 0)
            || self.md_interleave == Some(true)
            || self.dif_is_head_of_md == Some(true);
        let hints = [
            self.physical_block_size,
            self.preferred_write_alignment,
            self.preferred_write_granularity,
        ];
        if has_metadata {
            return Err(RpcError::invalid(
                "there is no metadata, no protection and no boundary here",
            ));
        }
        let is_odd = |hint: u32| hint != 0 && hint != self.block_size;
        if hints.into_iter().flatten().any(is_odd) || self.numa_id.is_some_and(|node| node >= 0) {
            return Err(RpcError::invalid("leave sizes other than block_size, and numa_id, out"));
        }
        if !matches!(self.block_size, 512 | 4096) {
            return Err(RpcError::invalid(format!(
                "block_size {}: use 512 or 4096",
                self.block_size
            )));
        }
        let bytes = self.num_blocks.checked_mul(self.block_size.into());
        match bytes {
            None | Some(0) => Err(RpcError::invalid(format!("num_blocks {}", self.num_blocks))),
            Some(_) => Ok(()),
        }
    }
}

fn malloc(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    let new: CreateMemoryBdevParams = device_params(&params)?;
    create(manager, new, DeviceKind::Malloc)
}

fn null(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    let new: CreateMemoryBdevParams = device_params(&params)?;
    match new.name {
        Some(_) => create(manager, new, DeviceKind::Null),
        None => Err(RpcError::decode("name is missing")),
    }
}

fn create(
    manager: &ManagerSession<'_>,
    new: CreateMemoryBdevParams,
    kind: DeviceKind,
) -> Rpc<Value> {
    new.check()?;
    let (uuid, bytes) = (uuid_of(new.uuid.as_deref())?, new.num_blocks * u64::from(new.block_size));
    add(manager, new.name, uuid, |name| {
        let shape = (new.block_size, bytes, false);
        ManagedDevice::open((name, uuid), kind, shape).map_err(|error| refused(&error))
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CreateAioBdevParams {
    name: String,
    filename: PathBuf,
    block_size: Option<u32>,
    readonly: Option<bool>,
    #[allow(dead_code, reason = "files always pass discards of hosts on")]
    fallocate: Option<bool>,
    #[allow(dead_code, reason = "nothing waits here anyway")]
    nowait: Option<bool>,
    uuid: Option<String>,
    /// Size in bytes with which a missing file is created; not of SPDK.
    size: Option<u64>,
}

fn aio(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    let CreateAioBdevParams { name, filename, block_size, readonly, uuid, size, .. } =
        device_params(&params)?;
    let path = match size {
        Some(_) => manager.allowed_new(&filename)?,
        None => manager.allowed(&filename).map_err(|error| with_way_to_make(error, &filename))?,
    };
    let uuid = uuid_of(uuid.as_deref())?;
    let (lba_bytes, read_only) = (block_size_of(block_size)?, readonly.unwrap_or(false));
    add(manager, Some(name), uuid, |name| {
        if size.is_some() {
            let kind = StoreKind::File { path: path.clone(), size, create: true };
            let made = open(&StoreSpec { kind, lba_bytes, read_only });
            made.map(drop).map_err(|error| refused(&error))?;
        }
        ManagedDevice::open((name, uuid), DeviceKind::Aio(path), (lba_bytes, 0, read_only))
            .map_err(|error| refused(&error))
    })
}

/// Says how a missing file is made.
fn with_way_to_make(mut error: RpcError, path: &Path) -> RpcError {
    if error.code == RpcError::no_file("").code && !path.starts_with("/dev") {
        error.message += &format!(": truncate -s SIZE {}, or size", path.display());
    }
    error
}

fn uring(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct CreateUringBdevParams {
        name: String,
        filename: PathBuf,
        block_size: Option<u32>,
        uuid: Option<String>,
    }
    let CreateUringBdevParams { name, filename, block_size, uuid } = device_params(&params)?;
    let unable =
        |error: RpcError| RpcError::new(-32603, "Unable to create URING bdev.", error.message);
    let uuid = uuid_of(uuid.as_deref())?;
    let path = manager.allowed(&filename).map_err(unable)?;
    let lba = block_size_of(block_size).map_err(unable)?;
    let kind = DeviceKind::Uring(path);
    let open = |name| {
        ManagedDevice::open((name, uuid), kind, (lba, 0, false)).map_err(|error| refused(&error))
    };
    add(manager, Some(name), uuid, open)
        .map_err(|error| if error.code == -5 { error } else { unable(error) })
}

fn malloc_delete(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    delete(manager, params, |kind| *kind == DeviceKind::Malloc)
}

fn null_delete(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    delete(manager, params, |kind| *kind == DeviceKind::Null)
}

fn aio_delete(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    delete(manager, params, |kind| matches!(kind, DeviceKind::Aio(_)))
}

fn uring_delete(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    delete(manager, params, |kind| matches!(kind, DeviceKind::Uring(_)))
}

fn null_resize(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct ResizeNullBdevParams {
        name: String,
        new_size: u64,
    }
    let ResizeNullBdevParams { name, new_size } = device_params(&params)?;
    let bytes = new_size.checked_mul(1 << 20).filter(|bytes| *bytes > 0);
    let bytes = bytes.ok_or_else(|| RpcError::invalid(format!("new_size {new_size}")))?;
    if let Some(namespace) = file_namespace(manager, &name) {
        return resize_of_file(manager, namespace, Some(bytes));
    }
    let device = find(manager, &name, |kind| *kind == DeviceKind::Null)?;
    resize(manager, &device, Some(bytes))
}

fn aio_rescan(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    let DeviceNameParams { name } = device_params(&params)?;
    if let Some(namespace) = file_namespace(manager, &name) {
        return resize_of_file(manager, namespace, None);
    }
    let device = find(manager, &name, |kind| matches!(kind, DeviceKind::Aio(_)))?;
    resize(manager, &device, None)
}

fn uring_rescan(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    let DeviceNameParams { name } = device_params(&params)?;
    let device = find(manager, &name, |kind| matches!(kind, DeviceKind::Uring(_)))?;
    resize(manager, &device, None)
}
