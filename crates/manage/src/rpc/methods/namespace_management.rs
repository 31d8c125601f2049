//! Hosts that may manage the namespaces of a subsystem by NVMe commands.

use super::{Method, MethodParams, change, params_of};
use crate::rpc::{ManagerSession, Rpc, RpcError};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;

pub(super) const METHODS: &[Method] = &[change(
    "roadtrain_set_namespace_management",
    "Says which hosts may create, delete, attach and detach namespaces, and in which store of volumes.",
    set,
)];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SetNamespaceManagementParams {
    nqn: String,
    #[serde(default)]
    administrators: BTreeSet<String>,
    namespace_store: Option<String>,
}

fn set(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    let SetNamespaceManagementParams { nqn, administrators, namespace_store } = params_of(&params)?;
    if manager.file_subsystem(&nqn).is_some() {
        return Err(RpcError::not_permitted(format!(
            "{nqn} is of the configuration file, which does not keep namespaces of hosts: add a subsystem to the state \
             (ctl subsystem add)"
        )));
    }
    manager.change(RpcError::params, |model| {
        if let Some(name) = &namespace_store
            && model.lvstore(name).is_none()
        {
            return Err(RpcError::params(format!("no store of volumes {name}")));
        }
        let subsystem = model.subsystem_mut(&nqn);
        let subsystem = subsystem.ok_or_else(|| RpcError::params(format!("no subsystem {nqn}")))?;
        (subsystem.administrators, subsystem.namespace_store) = (administrators, namespace_store);
        subsystem.check_management().map_err(RpcError::params)?;
        Ok(json!(true))
    })
}
