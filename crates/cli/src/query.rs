//! Commands that only read: discover, identify, list.

use crate::args::{
    ConnectArgs, DiscoverArgs, GlobalArgs, IdentifyArgs, ListArgs, Portal, TransportName,
};
use crate::failure::{CommandFailure, CommandResult};
use crate::identity::{HostIdentity, show_uuid};
use crate::inventory::{
    DiscoveryListing, DiscoveryRecord, Identified, ListedHere, ListedNamespace, ServedHere,
    here_table, list_table, served_table,
};
use crate::running::{self, RunningEntries};
use crate::{connect, logs, mdns, output};
use roadtrain_host_engine::{AdminConnection, HostConfig, discover_ether};
use roadtrain_wire::fabrics::DISCOVERY_NQN;
use serde_json::json;
use std::time::Duration;
use tracing::warn;

/// `roadtrain discover`
pub(crate) fn discover(args: &DiscoverArgs, global: &GlobalArgs) -> CommandResult {
    logs::start("warn", global.verbose);
    let Some(portal) = args.portal() else {
        let found = mdns::search()?;
        return if global.json {
            output::json(&found)
        } else {
            output::line(&services_table(&found))
        };
    };
    let found = discovery(&portal, &args.connect)?;
    if global.json { output::json(&found) } else { output::line(&found.table()) }
}

/// `roadtrain hostnqn`
pub(crate) fn hostnqn(global: &GlobalArgs) -> CommandResult {
    let HostIdentity { nqn, id } =
        HostIdentity::choose(None, None).map_err(CommandFailure::usage)?;
    match global.json {
        true => output::json(&json!({"host_nqn": nqn, "host_id": show_uuid(&id)})),
        false => output::line(&nqn),
    }
}

/// Formats discovery services on the local network as a table.
fn services_table(found: &[mdns::DiscoveredService]) -> String {
    let row = |one: &mdns::DiscoveredService| {
        let addresses = &one.addresses;
        let said = |text: &Option<String>| text.clone().unwrap_or_default();
        let (port, nqn) = (one.trsvcid.clone(), said(&one.nqn));
        vec![one.name.clone(), said(&one.transport), addresses.join(","), port, nqn]
    };
    let rows: Vec<Vec<String>> = found.iter().map(row).collect();
    output::columns(&["name", "transport", "addresses", "port", "nqn"], &rows)
}

/// `roadtrain identify`
pub(crate) fn identify(args: &IdentifyArgs, global: &GlobalArgs) -> CommandResult {
    logs::start("warn", global.verbose);
    let config = connect::config(&args.portal, &args.nqn, &args.connect)?;
    let mut found = identified(config)?;
    if let Some(nsid) = args.nsid {
        found.namespaces.retain(|namespace| namespace.nsid == nsid);
        if found.namespaces.is_empty() {
            return Err(CommandFailure::failed(no_namespace(&args.nqn, nsid)));
        }
    }
    if global.json { output::json(&found) } else { output::line(&found.text()) }
}

/// Returns the message for a namespace that does not exist.
#[must_use]
pub(crate) fn no_namespace(nqn: &str, nsid: u32) -> String {
    format!("{nqn} has no namespace {nsid}: `roadtrain list` shows those there are")
}

/// `roadtrain list`
pub(crate) fn list(args: &ListArgs, global: &GlobalArgs) -> CommandResult {
    logs::start("warn", global.verbose);
    if args.traddr.is_empty() {
        return here(args.nqn.as_deref(), global);
    }
    let mut places = Vec::new();
    for requested in args.portals() {
        let requested = with_own_port(requested)?;
        match &args.nqn {
            Some(nqn) => places.push((requested, nqn.clone())),
            None => places.extend(storage_of(&discovery(&requested, &args.connect)?, &requested)),
        }
    }
    let mut rows = Vec::new();
    for (portal, nqn) in places {
        match rows_of(&portal, &nqn, &args.connect) {
            Ok(more) => rows.extend(more),
            // One subsystem that refuses this host does not hide the others.
            Err(failure) if args.nqn.is_none() => warn!("{nqn}: {}", failure.message),
            Err(failure) => return Err(failure),
        }
    }
    if global.json { output::json(&rows) } else { output::line(&list_table(&rows)) }
}

/// Moves a port in the address to the portal.
fn with_own_port(portal: Portal) -> CommandResult<Portal> {
    if portal.transport.has_frames() {
        return Ok(portal);
    }
    let (host, trsvcid) = connect::split_port(&portal.traddr, portal.trsvcid)?;
    Ok(Portal { traddr: host.to_owned(), trsvcid, ..portal })
}

/// Lists attachments and targets on this machine, as the registry has them.
fn here(nqn: Option<&str>, global: &GlobalArgs) -> CommandResult {
    let RunningEntries { attached, mut served } = running::all()?;
    let entries = attached.into_iter().map(|(entry, _)| entry);
    let entries = entries.filter(|entry| nqn.is_none_or(|nqn| entry.nqn == nqn));
    let rows: Vec<ListedHere> = entries.map(ListedHere::new).collect();
    // Only the processes know their subsystems: `status` shows them.
    served.retain(|_| nqn.is_none());
    let served: Vec<ServedHere> =
        served.into_iter().map(|(entry, _)| ServedHere::new(entry)).collect();
    if global.json {
        let rows = rows.iter().map(|row| json!(row));
        return output::json(&rows.chain(served.iter().map(|row| json!(row))).collect::<Vec<_>>());
    }
    let attached =
        if rows.is_empty() && !served.is_empty() { None } else { Some(here_table(&rows)) };
    let served = (!served.is_empty()).then(|| served_table(&served));
    let tables: Vec<String> = attached.into_iter().chain(served).collect();
    output::line(&tables.join("\n"))
}

/// Returns the subsystems of a discovery log, each once, preferably at the requested address.
fn storage_of(found: &DiscoveryListing, requested: &Portal) -> Vec<(Portal, String)> {
    let mut places: Vec<(Portal, String)> = Vec::new();
    if requested.transport.has_frames() {
        // All are reached by the same interfaces.
        let mut nqns: Vec<&String> = found.storage().map(|record| &record.nqn).collect();
        nqns.dedup();
        return nqns.into_iter().map(|nqn| (requested.clone(), nqn.clone())).collect();
    }
    // The requested address and port first, then the address, then others.
    let distance = |record: &DiscoveryRecord| {
        let is_port = record.trsvcid.parse() == Ok(requested.trsvcid);
        (record.traddr != requested.traddr, !is_port)
    };
    let mut records: Vec<&DiscoveryRecord> = found.storage().collect();
    records.sort_by_key(|record| distance(record));
    for record in records {
        let Ok(trsvcid) = record.trsvcid.parse() else { continue };
        if places.iter().all(|(_, nqn)| *nqn != record.nqn) {
            let portal = Portal { traddr: record.traddr.clone(), trsvcid, ..requested.clone() };
            places.push((portal, record.nqn.clone()));
        }
    }
    places
}

fn rows_of(portal: &Portal, nqn: &str, args: &ConnectArgs) -> CommandResult<Vec<ListedNamespace>> {
    let found = identified(connect::config(portal, nqn, args)?)?;
    let row = |namespace| ListedNamespace {
        traddr: portal.traddr.clone(),
        trsvcid: match portal.transport {
            TransportName::Tcp => portal.trsvcid.to_string(),
            TransportName::Ether => String::new(),
        },
        nqn: nqn.to_owned(),
        model: found.controller.model.clone(),
        serial: found.controller.serial.clone(),
        namespace,
    };
    Ok(found.namespaces.iter().cloned().map(row).collect())
}

fn discovery(portal: &Portal, args: &ConnectArgs) -> CommandResult<DiscoveryListing> {
    match portal.transport {
        TransportName::Tcp => read_log(portal, args),
        TransportName::Ether => {
            let found = discover_ether(&connect::ether_address(portal)?, "")?;
            Ok(DiscoveryListing {
                genctr: 0,
                records: found.iter().map(DiscoveryRecord::of_offer).collect(),
            })
        }
    }
}

fn read_log(portal: &Portal, args: &ConnectArgs) -> CommandResult<DiscoveryListing> {
    let config = connect::config(portal, DISCOVERY_NQN, args)?;
    // The connection is short: no keep-alive.
    let config = HostConfig { keep_alive: Duration::ZERO, ..config };
    let (genctr, entries) = roadtrain_host_engine::discover(&config)?;
    Ok(DiscoveryListing { genctr, records: entries.iter().map(DiscoveryRecord::new).collect() })
}

fn identified(config: HostConfig) -> CommandResult<Identified> {
    let config = HostConfig { keep_alive: Duration::ZERO, ..config };
    let mut admin = AdminConnection::connect_patiently(&config)?;
    let info = admin.information(1, 0);
    admin.shut_down(config.timeout);
    Ok(Identified::new(&info?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::EtherArgs;

    fn record(nqn: &str, traddr: &str, subtype: &str) -> DiscoveryRecord {
        DiscoveryRecord {
            tls: "off",
            transport: "tcp".into(),
            adrfam: "ipv4".into(),
            subtype: subtype.into(),
            sq_flow_control_optional: true,
            portid: 1,
            trsvcid: "4420".into(),
            nqn: nqn.into(),
            traddr: traddr.into(),
        }
    }

    #[test]
    fn each_subsystem_once_at_the_requested_address() {
        let records = vec![
            record(
                "nqn.2014-08.org.nvmexpress.discovery",
                "192.0.2.7",
                "current discovery subsystem",
            ),
            record("nqn.x:a", "192.0.2.9", "nvme subsystem"),
            record("nqn.x:a", "192.0.2.7", "nvme subsystem"),
            record("nqn.x:b", "192.0.2.9", "nvme subsystem"),
        ];
        let (transport, ether) = (TransportName::Tcp, EtherArgs::default());
        let requested = Portal { transport, traddr: "192.0.2.7".into(), trsvcid: 8009, ether };
        let places = storage_of(&DiscoveryListing { genctr: 1, records }, &requested);
        let places: Vec<(&str, &str)> =
            places.iter().map(|(p, n)| (n.as_str(), p.traddr.as_str())).collect();
        assert_eq!(places, [("nqn.x:a", "192.0.2.7"), ("nqn.x:b", "192.0.2.9")]);
    }
}
