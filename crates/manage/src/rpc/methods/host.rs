//! Hosts that may use a subsystem, and their keys.

use super::subsystem::edit;
use super::{Method, MethodParams, change, params_of};
use crate::model::HostKeys;
use crate::rpc::{ManagerSession, Rpc, RpcError};
use roadtrain_target_engine::{ConfigOperation, Subsystem};
use roadtrain_wire::fabrics::is_nqn;
use serde::Deserialize;
use serde_json::{Value, json};

pub(super) const METHODS: &[Method] = &[
    change("nvmf_subsystem_add_host", "Lets a host use a subsystem.", add),
    change("nvmf_subsystem_remove_host", "Takes that back; its connections end.", remove),
    change("nvmf_subsystem_set_keys", "Gives a host other keys for authentication, or none.", set),
    change(
        "nvmf_subsystem_allow_any_host",
        "Lets any host use a subsystem, or only those that are named.",
        allow_any_host,
    ),
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AddHostParams {
    nqn: String,
    host: String,
    tgt_name: Option<String>,
    psk: Option<String>,
    dhchap_key: Option<String>,
    dhchap_ctrlr_key: Option<String>,
}

/// Checks the keys of a host. `odd` makes the reply to keys that do not go together.
fn check(manager: &ManagerSession<'_>, keys: &HostKeys, odd: fn(&str) -> RpcError) -> Rpc<()> {
    manager.model().check_host_keys(keys).map_err(RpcError::params)?;
    match (&keys.dhchap_key, &keys.dhchap_ctrlr_key) {
        (None, Some(_)) => Err(odd("dhchap_ctrlr_key needs a dhchap_key")),
        _ => Ok(()),
    }
}

fn add(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    let AddHostParams { nqn, host, tgt_name, psk, dhchap_key, dhchap_ctrlr_key } =
        params_of(&params)?;
    if !is_nqn(&host) {
        return Err(RpcError::internal(format!("host {host:?} is no NQN")));
    }
    let keys = HostKeys { dhchap_key, dhchap_ctrlr_key, psk };
    check(manager, &keys, |what| RpcError::internal(what))?;
    let of_file = |subsystem: &Subsystem| match (&subsystem.allowed_hosts, keys.is_empty()) {
        (_, false) => Err(keys_of_file(&nqn)),
        (Some(hosts), _) if hosts.contains(&host) => {
            Err(RpcError::internal(format!("{host} is allowed already")))
        }
        (Some(_), _) => {
            Ok(vec![ConfigOperation::AllowHost { nqn: nqn.clone(), host: host.clone() }])
        }
        (None, _) => Ok(Vec::new()), // any host is allowed
    };
    edit(manager, (&nqn, tgt_name.as_deref()), (RpcError::internal, of_file), |subsystem| {
        // While any host may connect, the named ones are kept for later.
        if !subsystem.hosts.insert(host.clone()) {
            let hint = "nvmf_subsystem_set_keys (`ctl host keys`) gives it other keys";
            return Err(RpcError::internal(format!("{host} is allowed already: {hint}")));
        }
        if !keys.is_empty() {
            subsystem.host_keys.insert(host.clone(), keys.clone());
        }
        Ok(json!(true))
    })
}

/// Refuses keys for a host of a subsystem that the configuration file has.
fn keys_of_file(nqn: &str) -> RpcError {
    RpcError::not_permitted(format!(
        "{nqn} is of the configuration file, which has the keys of its hosts: change them there, and reload"
    ))
}

fn remove(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct RemoveHostParams {
        nqn: String,
        host: String,
        tgt_name: Option<String>,
        #[allow(dead_code, reason = "its connections end at once")]
        timeout_ms: Option<u64>,
    }
    let RemoveHostParams { nqn, host, tgt_name, .. } = params_of(&params)?;
    let of_file = |subsystem: &Subsystem| match &subsystem.allowed_hosts {
        Some(hosts) if hosts.contains(&host) => {
            Ok(vec![ConfigOperation::DisallowHost { nqn: nqn.clone(), host: host.clone() }])
        }
        _ => Err(RpcError::params(format!("{host} is not among the hosts"))),
    };
    edit(manager, (&nqn, tgt_name.as_deref()), (RpcError::params, of_file), |subsystem| {
        subsystem.host_keys.remove(&host);
        match subsystem.hosts.remove(&host) {
            true => Ok(json!(true)),
            false => Err(RpcError::params(format!("{host} is not among the hosts"))),
        }
    })
}

fn set(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct SetHostKeysParams {
        nqn: String,
        host: String,
        tgt_name: Option<String>,
        dhchap_key: Option<String>,
        dhchap_ctrlr_key: Option<String>,
    }
    let SetHostKeysParams { nqn, host, tgt_name, dhchap_key, dhchap_ctrlr_key } =
        params_of(&params)?;
    let keys = HostKeys { dhchap_key, dhchap_ctrlr_key, psk: None };
    check(manager, &keys, |what| RpcError::params(what))?;
    let of_file = |_: &Subsystem| Err(keys_of_file(&nqn));
    edit(manager, (&nqn, tgt_name.as_deref()), (RpcError::params, of_file), |subsystem| {
        if !subsystem.hosts.contains(&host) {
            return Err(RpcError::params(format!("{host} is not among the hosts")));
        }
        let psk = subsystem.host_keys.remove(&host).and_then(|keys| keys.psk);
        let keys = HostKeys { psk, ..keys };
        if !keys.is_empty() {
            subsystem.host_keys.insert(host, keys);
        }
        Ok(json!(true))
    })
}

fn allow_any_host(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct AllowAnyHostParams {
        nqn: String,
        allow_any_host: bool,
        tgt_name: Option<String>,
    }
    let AllowAnyHostParams { nqn, allow_any_host, tgt_name } = params_of(&params)?;
    let of_file = |subsystem: &Subsystem| {
        let is_so = subsystem.allowed_hosts.is_none() == allow_any_host;
        let change = ConfigOperation::AllowAnyHost { nqn: nqn.clone(), allow: allow_any_host };
        Ok(if is_so { Vec::new() } else { vec![change] })
    };
    edit(manager, (&nqn, tgt_name.as_deref()), (RpcError::params, of_file), |subsystem| {
        subsystem.allow_any_host = allow_any_host;
        Ok(json!(true))
    })
}
