//! Emulated SSDs, which SPDK does not have.

use super::devices::{add, delete, refused, uuid_of};
use super::{Method, MethodParams, change, device_params};
use crate::model::{DeviceKind, ManagedDevice, SsdPace};
use crate::rpc::{ManagerSession, Rpc, RpcError};
use serde::Deserialize;
use serde_json::{Value, json};

/// Method that makes an emulated SSD.
pub(super) const CREATE: &str = "roadtrain_ssd_create";

pub(super) const METHODS: &[Method] = &[
    change(CREATE, "Makes a device of memory that is as slow as an SSD.", create),
    change("roadtrain_ssd_delete", "Removes such a device, its namespace first.", remove),
];

fn create(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct CreateSsdParams {
        name: String,
        num_blocks: u64,
        block_size: u32,
        uuid: Option<String>,
        service_us: Option<u32>,
        parallel: Option<u16>,
    }
    let CreateSsdParams { name, num_blocks, block_size, uuid, service_us, parallel } =
        device_params(&params)?;
    let pace = SsdPace {
        service_us: service_us.unwrap_or(SsdPace::DEFAULT.service_us),
        parallel: parallel.unwrap_or(SsdPace::DEFAULT.parallel),
    };
    pace.check().map_err(RpcError::invalid)?;
    let bytes = num_blocks.checked_mul(block_size.into()).filter(|bytes| *bytes > 0);
    let bytes = bytes.ok_or_else(|| RpcError::invalid(format!("num_blocks {num_blocks}")))?;
    let uuid = uuid_of(uuid.as_deref())?;
    add(manager, Some(name), uuid, |name| {
        let shape = (block_size, bytes, false);
        ManagedDevice::open((name, uuid), DeviceKind::Ssd(pace), shape)
            .map_err(|error| refused(&error))
    })
}

fn remove(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    delete(manager, params, |kind| matches!(kind, DeviceKind::Ssd(_)))
}

/// Returns the parameters that make the device again, beside those of every memory device.
pub(super) fn params(pace: SsdPace) -> Value {
    json!({"service_us": pace.service_us, "parallel": pace.parallel})
}
