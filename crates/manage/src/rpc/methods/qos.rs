//! Limits on what a device may do in a second, in SPDK's words.

use super::{Method, Params, bdev, change, device_params};
use crate::model::DeviceLimits;
use crate::rpc::{Manager, Rpc, RpcError};
use serde::Deserialize;
use serde_json::{Value, json};

pub(super) const METHODS: &[Method] = &[change(
    "bdev_set_qos_limit",
    "Limits what a device may do in a second; 0 takes a limit away.",
    set,
)];

fn set(manager: &Manager, params: Params<'_>) -> Rpc<Value> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Asked {
        name: String,
        rw_ios_per_sec: Option<u64>,
        rw_mbytes_per_sec: Option<u64>,
        r_mbytes_per_sec: Option<u64>,
        w_mbytes_per_sec: Option<u64>,
    }
    let asked: Asked = device_params(&params)?;
    let device = bdev::find(manager, &asked.name, |_| true)?;
    let given = [
        asked.rw_ios_per_sec,
        asked.rw_mbytes_per_sec,
        asked.r_mbytes_per_sec,
        asked.w_mbytes_per_sec,
    ];
    if given.iter().all(Option::is_none) {
        return Err(RpcError::invalid("no limit was given"));
    }
    let is_odd = |mbytes: &Option<u64>| mbytes.is_some_and(|mbytes| mbytes > u64::MAX >> 20);
    if given[1..].iter().any(is_odd) {
        return Err(RpcError::invalid("a bandwidth is in MiB per second"));
    }
    manager.change(RpcError::internal, |model| {
        let limits = model.limits.entry(device.name.clone()).or_default();
        // What is not named stays.
        let DeviceLimits { ios, mbytes, read_mbytes, write_mbytes } = limits;
        for (place, given) in [ios, mbytes, read_mbytes, write_mbytes].into_iter().zip(given) {
            *place = given.unwrap_or(*place);
        }
        model.limits.retain(|_, limits| *limits != DeviceLimits::default());
        Ok(json!(true))
    })
}

/// As `bdev_get_bdevs` shows them, and as the call takes them.
pub(super) fn show(limits: &DeviceLimits) -> Value {
    json!({
        "rw_ios_per_sec": limits.ios, "rw_mbytes_per_sec": limits.mbytes,
        "r_mbytes_per_sec": limits.read_mbytes, "w_mbytes_per_sec": limits.write_mbytes,
    })
}
