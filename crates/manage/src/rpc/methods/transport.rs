//! Transports: TCP always exists.

use super::{Method, MethodParams, change, params_of, query};
use crate::rpc::{ManagerSession, Rpc, RpcError};
use roadtrain_target_proto::KEEP_ALIVE_GRANULARITY;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tracing::warn;

pub(super) const METHODS: &[Method] = &[
    change(
        "nvmf_create_transport",
        "Nothing, once: TCP is always there, with the limits of serve.",
        create,
    ),
    query("nvmf_get_transports", "The transports, with the limits of serve.", get),
];

/// Parameters that SPDK's clients send with the name of the transport. They have no effect: the limits are those of
/// `serve`.
const OPTIONS: &[&str] = &[
    "abort_timeout_sec",
    "acceptor_backlog",
    "acceptor_poll_rate",
    "ack_timeout",
    "buf_cache_size",
    "c2h_success",
    "control_msg_num",
    "data_wr_pool_size",
    "dif_insert_or_strip",
    "disable_adaptive_irq",
    "disable_command_passthru",
    "disable_mappable_bar0",
    "disable_shadow_doorbells",
    "in_capsule_data_size",
    "io_unit_size",
    "kas",
    "max_aq_depth",
    "max_io_qpairs_per_ctrlr",
    "max_io_size",
    "max_qpairs_per_ctrlr",
    "max_queue_depth",
    "max_srq_depth",
    "min_kato",
    "no_srq",
    "no_wr_batching",
    "num_cqe",
    "num_shared_buffers",
    "sock_priority",
    "zcopy",
];

/// Checks the name of the target, of which a process has one.
pub(super) fn check_target(name: Option<&str>) -> Rpc<()> {
    match name {
        None | Some("nvmf_tgt") => Ok(()),
        Some(_) => Err(RpcError::new(-32603, "Unable to find a target.", "")),
    }
}

fn create(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    let requested: Map<String, Value> = params_of(&params)?;
    let text = |name: &str| match requested.get(name) {
        Some(Value::String(text)) => Ok(Some(text.as_str())),
        None | Some(Value::Null) => Ok(None),
        Some(_) => Err(RpcError::params(format!("{name} is a string"))),
    };
    check_target(text("tgt_name")?)?;
    let kind = text("trtype")?.ok_or_else(|| RpcError::params("trtype is missing"))?;
    if !kind.eq_ignore_ascii_case("tcp") {
        return Err(RpcError::new(-32602, &format!("Invalid transport type '{kind}'"), ""));
    }
    for (name, value) in
        requested.iter().filter(|(name, _)| !matches!(name.as_str(), "trtype" | "tgt_name"))
    {
        let is_simple = value.is_u64() || value.is_boolean() || value.is_null();
        if !OPTIONS.contains(&name.as_str()) || !is_simple {
            return Err(RpcError::params(name));
        }
        if !value.is_null() && *value != false {
            warn!("nvmf_create_transport: {name} is left as serve has it");
        }
    }
    manager.change(RpcError::internal, |model| match std::mem::replace(&mut model.has_tcp, true) {
        true => Err(RpcError::new(-32603, "Transport type 'TCP' already exists", "")),
        false => Ok(json!(true)),
    })
}

fn get(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct GetTransportsParams {
        trtype: Option<String>,
        tgt_name: Option<String>,
    }
    let GetTransportsParams { trtype, tgt_name } = params_of(&params)?;
    check_target(tgt_name.as_deref())?;
    if trtype.is_some_and(|kind| !kind.eq_ignore_ascii_case("tcp")) {
        return Err(RpcError::no_device(""));
    }
    let limits = manager.server().exports().limits;
    Ok(json!([{
        "trtype": "TCP", "max_queue_depth": limits.queue_entries_max,
        "max_io_qpairs_per_ctrlr": limits.io_queues_max,
        "in_capsule_data_size": limits.in_capsule_bytes_max,
        "max_io_size": limits.transfer_bytes_max(), "io_unit_size": limits.transfer_bytes_max(),
        "max_aq_depth": limits.queue_entries_max, "dif_insert_or_strip": false, "zcopy": true,
        "c2h_success": true, "sock_priority": 0, "iobuf_small_cache_size": 0,
        "iobuf_large_cache_size": 0, "abort_timeout_sec": 0, "ack_timeout": 0,
        "data_wr_pool_size": 0, "disable_command_passthru": true, "kas": KEEP_ALIVE_GRANULARITY,
        "min_kato": u32::from(KEEP_ALIVE_GRANULARITY) * 100,
    }]))
}
