//! Hosts that see a namespace, and its ANA group.

use super::subsystem::edit;
use super::{Method, MethodParams, change, params_of};
use crate::rpc::{ManagerSession, Rpc, RpcError};
use roadtrain_target_engine::{ConfigOperation, Subsystem};
use roadtrain_target_proto::NamespaceView;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;

pub(super) const METHODS: &[Method] = &[
    change("nvmf_ns_add_host", "Shows a namespace to one more host.", add_host),
    change("nvmf_ns_remove_host", "Hides a namespace from a host.", remove_host),
    change(SET_HOSTS, "Says which hosts see a namespace.", set_hosts),
    change(
        "nvmf_subsystem_set_ns_ana_group",
        "Moves a namespace to another ANA group.",
        set_ana_group,
    ),
];

/// Method that sets all hosts at once.
const SET_HOSTS: &str = "roadtrain_set_namespace_hosts";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NamespaceHostParams {
    nqn: String,
    nsid: u32,
    host: String,
    tgt_name: Option<String>,
}

/// Changes the view of a namespace.
fn edit_view(
    manager: &ManagerSession<'_>,
    (nqn, tgt_name): (&str, Option<&str>),
    nsid: u32,
    change: impl Fn(&mut NamespaceView) -> Rpc<()>,
) -> Rpc<Value> {
    let unknown = || RpcError::params(format!("no nsid {nsid}"));
    let of_file = |subsystem: &Subsystem| {
        let known = subsystem.namespaces.iter().find(|one| one.nsid == nsid);
        let mut view = known.ok_or_else(unknown)?.view.clone();
        change(&mut view)?;
        Ok(vec![ConfigOperation::ViewNamespace { nqn: subsystem.nqn.clone(), nsid, view }])
    };
    edit(manager, (nqn, tgt_name), (RpcError::params, of_file), |subsystem| {
        let known = subsystem.namespaces.iter_mut().find(|one| one.nsid == nsid);
        let known = known.ok_or_else(unknown)?;
        let mut view = known.view();
        change(&mut view)?;
        known.set_view(view);
        Ok(json!(true))
    })
}

/// Returns the hosts that see a namespace.
fn named(view: &mut NamespaceView) -> Rpc<&mut BTreeSet<String>> {
    let hint = "all hosts of the subsystem see it: set its hosts, or add it with no_auto_visible";
    view.hosts.as_mut().ok_or_else(|| RpcError::params(hint))
}

fn add_host(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    let NamespaceHostParams { nqn, nsid, host, tgt_name } = params_of(&params)?;
    edit_view(manager, (&nqn, tgt_name.as_deref()), nsid, |view| {
        named(view)?.insert(host.clone());
        Ok(())
    })
}

fn remove_host(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    let NamespaceHostParams { nqn, nsid, host, tgt_name } = params_of(&params)?;
    edit_view(manager, (&nqn, tgt_name.as_deref()), nsid, |view| {
        named(view)?.remove(&host);
        Ok(())
    })
}

fn set_hosts(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct SetNamespaceHostsParams {
        nqn: String,
        nsid: u32,
        hosts: Option<BTreeSet<String>>,
    }
    let SetNamespaceHostsParams { nqn, nsid, hosts } = params_of(&params)?;
    edit_view(manager, (&nqn, None), nsid, |view| {
        view.hosts.clone_from(&hosts);
        Ok(())
    })
}

fn set_ana_group(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct SetAnaGroupParams {
        nqn: String,
        nsid: u32,
        anagrpid: u32,
        tgt_name: Option<String>,
    }
    let SetAnaGroupParams { nqn, nsid, anagrpid, tgt_name } = params_of(&params)?;
    edit_view(manager, (&nqn, tgt_name.as_deref()), nsid, |view| {
        view.ana_group = anagrpid;
        Ok(())
    })
}
