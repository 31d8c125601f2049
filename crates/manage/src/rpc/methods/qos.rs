//! Rate limits of devices and hosts: SPDK's method, and methods of our own for all limits.

use super::devices::{file_namespace, find, of_file};
use super::subsystem::edit;
use super::{Method, MethodParams, change, device_params, params_of};
use crate::model::{MIB, RateLimitsSpec};
use crate::rpc::{ManagerSession, Rpc, RpcError};
use roadtrain_target_engine::{ConfigOperation, Subsystem};
use roadtrain_wire::fabrics::is_nqn;
use serde::Deserialize;
use serde_json::{Value, json};

/// Method that sets all limits of a device.
pub(super) const OF_DEVICE: &str = "roadtrain_set_device_limits";
/// Method that sets all limits of a host.
pub(super) const OF_HOST: &str = "roadtrain_set_host_limits";

pub(super) const METHODS: &[Method] = &[
    change(
        "bdev_set_qos_limit",
        "Limits what a device may do in a second; 0 takes a limit away.",
        set,
    ),
    change(OF_DEVICE, "Says all that a device may do in a second.", set_of_device),
    change(
        OF_HOST,
        "Says all that a host may do in a second with all namespaces of a subsystem.",
        set_of_host,
    ),
];

fn set(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct SetQosLimitParams {
        name: String,
        rw_ios_per_sec: Option<u64>,
        rw_mbytes_per_sec: Option<u64>,
        r_mbytes_per_sec: Option<u64>,
        w_mbytes_per_sec: Option<u64>,
    }
    let requested: SetQosLimitParams = device_params(&params)?;
    let mbytes =
        [requested.rw_mbytes_per_sec, requested.r_mbytes_per_sec, requested.w_mbytes_per_sec];
    if requested.rw_ios_per_sec.is_none() && mbytes.iter().all(Option::is_none) {
        return Err(RpcError::invalid("no limit was given"));
    }
    let bytes = |mbytes: u64| {
        let bytes = mbytes.checked_mul(MIB);
        bytes.ok_or_else(|| RpcError::invalid("a bandwidth is in MiB per second"))
    };
    let [both, read, write] = mbytes.map(|mbytes| mbytes.map(bytes).transpose());
    let given = [requested.rw_ios_per_sec, both?, read?, write?];
    change_device(manager, &requested.name, |limits| {
        // A limit that is not named stays.
        let RateLimitsSpec { iops, bandwidth, read_bandwidth, write_bandwidth, .. } = limits;
        let places = [iops, bandwidth, read_bandwidth, write_bandwidth];
        for (place, given) in places.into_iter().zip(given) {
            *place = given.unwrap_or(*place);
        }
    })
}

/// Changes the limits of a device. An entry without limits is removed.
fn change_device(
    manager: &ManagerSession<'_>,
    name: &str,
    edit: impl FnOnce(&mut RateLimitsSpec),
) -> Rpc<Value> {
    if let Some((nqn, nsid)) = file_namespace(manager, name) {
        let subsystem = manager.file_subsystem(&nqn);
        let own = subsystem.iter().flat_map(|one| &one.namespaces).find(|one| one.nsid == nsid);
        let mut limits = own.map(|one| RateLimitsSpec::from(&one.rates)).unwrap_or_default();
        edit(&mut limits);
        limits.check().map_err(RpcError::invalid)?;
        let rates = limits.rates();
        let limited = ConfigOperation::LimitNamespace { nqn, nsid, rates };
        return of_file(manager, RpcError::internal, vec![limited]);
    }
    let name = &*find(manager, name, |_| true)?.name;
    manager.change(RpcError::internal, |model| {
        if model.device(name).is_none() {
            return Err(RpcError::no_device(name));
        }
        let limits = model.limits.entry(name.to_owned()).or_default();
        edit(limits);
        limits.check().map_err(RpcError::invalid)?;
        model.limits.retain(|_, limits| limits.is_limited());
        Ok(json!(true))
    })
}

fn set_of_device(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct SetDeviceLimitsParams {
        name: String,
        limits: RateLimitsSpec,
    }
    let SetDeviceLimitsParams { name, limits } = params_of(&params)?;
    change_device(manager, &name, |place| *place = limits)
}

fn set_of_host(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct SetHostLimitsParams {
        nqn: String,
        host: String,
        limits: RateLimitsSpec,
        tgt_name: Option<String>,
    }
    let SetHostLimitsParams { nqn, host, limits, tgt_name } = params_of(&params)?;
    if !is_nqn(&host) {
        return Err(RpcError::params(format!("host {host:?} is no NQN")));
    }
    limits.check().map_err(RpcError::invalid)?;
    let rates = limits.rates();
    let limited = ConfigOperation::LimitHost { nqn: nqn.clone(), host: host.clone(), rates };
    let of_file = |_: &Subsystem| Ok(vec![limited]);
    edit(manager, (&nqn, tgt_name.as_deref()), (RpcError::params, of_file), |subsystem| {
        subsystem.host_limits.insert(host, limits);
        subsystem.host_limits.retain(|_, limits| limits.is_limited());
        Ok(json!(true))
    })
}
