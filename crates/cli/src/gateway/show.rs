//! Display of a group's state.

use super::{GatewayStatus, GroupAccess, GroupState};
use crate::args::GlobalArgs;
use crate::config::SubsystemSettings;
use crate::failure::{CommandFailure, CommandResult};
use crate::namespace::NamespaceSettings;
use crate::output;
use roadtrain_target_proto::gateways::preferred;
use serde::Serialize;
use std::collections::BTreeSet;

/// A group, for scripts. It contains no key.
#[derive(Serialize)]
struct GroupReport {
    group: String,
    pool: String,
    config_version: u64,
    gateways: Vec<GatewayReport>,
    subsystems: Vec<GroupSubsystemReport>,
    hosts: Vec<HostReport>,
}

#[derive(Serialize)]
struct GatewayReport {
    name: String,
    /// `there`, `away` (it has not left in order) or `left`.
    state: &'static str,
    slot: Option<u16>,
    listeners: Vec<String>,
    /// The version of the configuration that it serves.
    config_version: u64,
    /// Reason why it does not serve a newer version.
    refused: Option<String>,
    /// Images that hosts reach by this gateway.
    serves: usize,
}

#[derive(Serialize)]
struct GroupSubsystemReport {
    nqn: String,
    serial: Option<String>,
    model: Option<String>,
    /// `null`: any host.
    allow_hosts: Option<BTreeSet<String>>,
    require_auth: bool,
    require_tls: bool,
    namespaces: Vec<GroupNamespaceReport>,
}

#[derive(Serialize)]
struct GroupNamespaceReport {
    nsid: u32,
    /// Namespace in the configuration's form.
    spec: String,
    image: String,
    /// Gateways by which hosts reach it.
    served_by: Vec<String>,
    /// Gateway that should serve it.
    preferred: Option<String>,
}

#[derive(Serialize)]
struct HostReport {
    host_nqn: String,
    has_dhchap_key: bool,
    has_dhchap_ctrl_key: bool,
    has_tls_key: bool,
}

/// Shows a group.
pub(super) fn run(place: &GroupAccess, global: &GlobalArgs) -> CommandResult {
    let group = place.open()?;
    let Some(state) = group.read()? else {
        return Err(CommandFailure::failed(format!(
            "there is no gateway group {}: `roadtrain ctl --group` with `subsystem add` makes it",
            group.name()
        )));
    };
    let living: BTreeSet<String> = group.live_gateways()?.into_iter().collect();
    let report = report(place, &state, &living);
    if global.json {
        return output::json(&report);
    }
    output::line(&text(&report))
}

fn report(place: &GroupAccess, state: &GroupState, living: &BTreeSet<String>) -> GroupReport {
    let mut names: BTreeSet<&String> = state.gateways.keys().collect();
    names.extend(state.slots.values());
    let gateway = |name: &String| {
        let status = state.gateways.get(name).cloned().unwrap_or_default();
        let state_of = match living.contains(name) {
            true => "there",
            false if state.heartbeats.contains_key(name) => "away",
            false => "left",
        };
        let is_there = state_of == "there";
        GatewayReport {
            name: name.clone(),
            state: state_of,
            slot: state.slots.iter().find(|(_, owner)| *owner == name).map(|(slot, _)| *slot),
            listeners: status.listeners,
            config_version: status.version,
            refused: status.refused.map(|(_, why)| why),
            serves: if is_there { status.serves.values().map(Vec::len).sum() } else { 0 },
        }
    };
    let tls = &state.config.tls.keys;
    let mut hosts: BTreeSet<&String> = state.config.hosts.iter().map(|host| &host.nqn).collect();
    hosts.extend(tls.keys());
    let host = |nqn: &String| {
        let known = state.config.hosts.iter().find(|host| host.nqn == *nqn);
        HostReport {
            host_nqn: nqn.clone(),
            has_dhchap_key: known.is_some_and(|host| host.dhchap_key.is_some()),
            has_dhchap_ctrl_key: known.is_some_and(|host| host.dhchap_ctrl_key.is_some()),
            has_tls_key: tls.contains_key(nqn),
        }
    };
    GroupReport {
        group: place.group.clone(),
        pool: place.pool.clone(),
        config_version: state.version,
        gateways: names.into_iter().map(gateway).collect(),
        subsystems: state
            .config
            .subsystems
            .iter()
            .map(|one| subsystem(one, state, living))
            .collect(),
        hosts: hosts.into_iter().map(host).collect(),
    }
}

fn subsystem(
    spec: &SubsystemSettings,
    state: &GroupState,
    living: &BTreeSet<String>,
) -> GroupSubsystemReport {
    let namespace = |namespace: &NamespaceSettings| {
        let (nsid, image) =
            (namespace.nsid.unwrap_or(0), namespace.image.clone().unwrap_or_default());
        let serves = |status: &GatewayStatus| {
            status.serves.get(&spec.nqn).is_some_and(|nsids| nsids.contains(&nsid))
        };
        let served =
            state.gateways.iter().filter(|(name, status)| living.contains(*name) && serves(status));
        GroupNamespaceReport {
            nsid,
            spec: NamespaceSettings { nsid: None, ..namespace.clone() }.to_string(),
            served_by: served.map(|(name, _)| name.clone()).collect(),
            preferred: preferred(&image, living.iter().map(String::as_str)).map(str::to_owned),
            image,
        }
    };
    GroupSubsystemReport {
        nqn: spec.nqn.clone(),
        serial: spec.serial.clone(),
        model: spec.model.clone(),
        allow_hosts: spec.allow_hosts.clone(),
        require_auth: spec.require_auth,
        require_tls: spec.require_tls,
        namespaces: spec.namespaces.iter().map(namespace).collect(),
    }
}

/// Formats the report: a table of each kind.
fn text(report: &GroupReport) -> String {
    let GroupReport { group, pool, config_version: version, .. } = report;
    let mut parts = vec![format!("group {group} in pool {pool}, version {version}")];
    let rows: Vec<Vec<String>> = report
        .gateways
        .iter()
        .map(|one| {
            let slot = one.slot.map_or_else(|| "-".into(), |slot| slot.to_string());
            let (serves, version) = (one.serves.to_string(), one.config_version.to_string());
            vec![one.name.clone(), one.state.into(), slot, serves, version, one.listeners.join(" ")]
        })
        .collect();
    parts.push(output::columns(
        &["gateway", "state", "slot", "serves", "version", "listeners"],
        &rows,
    ));
    let refused = report.gateways.iter().filter_map(|one| Some((&one.name, one.refused.as_ref()?)));
    parts.extend(refused.map(|(name, why)| format!("{name} keeps its former version: {why}")));
    let mut rows = Vec::new();
    for subsystem in &report.subsystems {
        let hosts = match &subsystem.allow_hosts {
            None => "any host".to_owned(),
            Some(hosts) => hosts.iter().cloned().collect::<Vec<_>>().join(" "),
        };
        rows.push(vec![subsystem.nqn.clone(), String::new(), hosts, String::new(), String::new()]);
        for one in &subsystem.namespaces {
            let dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
            let preferred = one.preferred.clone().unwrap_or_default();
            let served = dash(one.served_by.join(" "));
            rows.push(vec![
                String::new(),
                one.nsid.to_string(),
                one.spec.clone(),
                served,
                dash(preferred),
            ]);
        }
    }
    parts.push(output::columns(
        &["subsystem", "nsid", "hosts, images", "served by", "preferred"],
        &rows,
    ));
    if !report.hosts.is_empty() {
        let yes = |is_there: bool| if is_there { "yes" } else { "-" }.to_owned();
        let row = |host: &HostReport| {
            vec![
                host.host_nqn.clone(),
                yes(host.has_dhchap_key),
                yes(host.has_dhchap_ctrl_key),
                yes(host.has_tls_key),
            ]
        };
        let rows: Vec<Vec<String>> = report.hosts.iter().map(row).collect();
        parts.push(output::columns(&["host", "dhchap key", "controller key", "tls key"], &rows));
    }
    parts.join("\n")
}
