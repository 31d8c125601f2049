//! Output of `discover`, `identify` and `list`, in the shapes of their JSON.

use crate::args::{TransportName, word};
use crate::identity::show_uuid;
use crate::output::columns;
use crate::registry::{AttachmentEntry, AttachmentPhase, TargetEntry};
use crate::units::show_bytes;
use roadtrain_host_engine::{ControllerInfo, EtherOffer, NamespaceInfo};
use roadtrain_wire::discovery::{DiscoveryEntry, adrfam, sectype, subtype, treq, trtype};
use roadtrain_wire::fabrics::{DISCOVERY_NQN, parse_nqn};
use roadtrain_wire::identify::{oncs, parse_ascii, vwc};
use serde::Serialize;

/// A discovery log.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct DiscoveryListing {
    /// Generation counter.
    pub genctr: u64,
    /// Log entries.
    pub records: Vec<DiscoveryRecord>,
}

/// An entry of the discovery log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct DiscoveryRecord {
    /// Transport.
    pub transport: String,
    /// Address family.
    pub adrfam: String,
    /// Subsystem type.
    pub subtype: String,
    /// SQ flow control may be turned off.
    pub sq_flow_control_optional: bool,
    /// Use of TLS: required, allowed or off.
    pub tls: &'static str,
    /// Port identifier.
    pub portid: u16,
    /// TCP port.
    pub trsvcid: String,
    /// Subsystem.
    pub nqn: String,
    /// Address.
    pub traddr: String,
}

impl DiscoveryRecord {
    /// Converts an entry of 1,024 bytes.
    #[must_use]
    pub(crate) fn new(entry: &DiscoveryEntry) -> DiscoveryRecord {
        let named = |value: u8, names: &[(u8, &str)]| {
            let name = names.iter().find(|(code, _)| *code == value);
            name.map_or_else(|| value.to_string(), |(_, name)| (*name).to_owned())
        };
        let subtypes = [
            (subtype::REFERRAL, "referral"),
            (subtype::NVM, "nvme subsystem"),
            (subtype::CURRENT_DISCOVERY, "current discovery subsystem"),
        ];
        DiscoveryRecord {
            transport: named(entry.trtype, &[(trtype::TCP, "tcp")]),
            adrfam: named(entry.adrfam, &[(adrfam::IPV4, "ipv4"), (adrfam::IPV6, "ipv6")]),
            subtype: named(entry.subtype, &subtypes),
            sq_flow_control_optional: entry.treq & treq::DISABLE_SQ_FLOW_CONTROL != 0,
            tls: match (entry.tsas[0], entry.treq & treq::SECURE_MASK) {
                (sectype::TLS13, treq::SECURE_REQUIRED) => "required",
                (sectype::TLS13, _) => "allowed",
                _ => "off",
            },
            portid: entry.portid.get(),
            trsvcid: entry.trsvcid().to_owned(),
            nqn: entry.subnqn().unwrap_or_default().to_owned(),
            traddr: entry.traddr().to_owned(),
        }
    }

    /// Converts an offer at one of a target's ports: the interface takes the place of the TCP port.
    #[must_use]
    pub(crate) fn of_offer(offer: &EtherOffer) -> DiscoveryRecord {
        let subtype = if offer.nqn == DISCOVERY_NQN {
            "current discovery subsystem"
        } else {
            "nvme subsystem"
        };
        DiscoveryRecord {
            transport: word(&TransportName::Ether),
            adrfam: "ethernet".into(),
            subtype: subtype.into(),
            sq_flow_control_optional: true,
            tls: "off",
            portid: 0,
            trsvcid: offer.interface.clone(),
            nqn: offer.nqn.clone(),
            traddr: offer.address.to_string(),
        }
    }

    /// True for a subsystem with namespaces, over a supported transport.
    fn is_storage(&self) -> bool {
        self.subtype == "nvme subsystem" && ["tcp", "ether"].contains(&self.transport.as_str())
    }
}

impl DiscoveryListing {
    /// Returns the entries of subsystems with namespaces.
    pub(crate) fn storage(&self) -> impl Iterator<Item = &DiscoveryRecord> {
        self.records.iter().filter(|record| record.is_storage())
    }

    /// Formats the log as a table.
    #[must_use]
    pub(crate) fn table(&self) -> String {
        let has_tls = self.records.iter().any(|record| record.tls != "off");
        let row = |r: &DiscoveryRecord| {
            let cells = [&r.transport, &r.traddr, &r.trsvcid, &r.subtype, &r.nqn].map(Clone::clone);
            let tls = has_tls.then(|| r.tls.to_owned());
            cells.into_iter().chain(tls).collect()
        };
        let rows: Vec<Vec<String>> = self.records.iter().map(row).collect();
        let names = ["transport", "address", "port", "type", "nqn", "tls"];
        columns(&names[..if has_tls { 6 } else { 5 }], &rows)
    }
}

/// A controller with its namespaces.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Identified {
    /// The controller.
    pub controller: IdentifiedController,
    /// Its namespaces.
    pub namespaces: Vec<IdentifiedNamespace>,
}

/// Fields of Identify Controller that are shown.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct IdentifiedController {
    /// Subsystem.
    pub nqn: String,
    /// Controller identifier.
    pub cntlid: u16,
    /// Model number.
    pub model: String,
    /// Serial number.
    pub serial: String,
    /// Firmware revision.
    pub firmware: String,
    /// NVMe version.
    pub nvme_version: String,
    /// Most bytes of one command of this host.
    pub transfer_bytes_max: u32,
    /// Bytes of data in a command capsule.
    pub in_capsule_bytes: u32,
    /// Entries of an I/O queue.
    pub queue_entries_max: u16,
    /// Has a volatile write cache.
    pub volatile_write_cache: bool,
    /// Optional I/O commands.
    pub commands: Vec<&'static str>,
}

/// A namespace.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct IdentifiedNamespace {
    /// Namespace ID.
    pub nsid: u32,
    /// Size in bytes.
    pub capacity_bytes: u64,
    /// Size in blocks.
    pub blocks: u64,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Refuses writes.
    pub read_only: bool,
    /// NGUID, as a UUID; none when all zeroes.
    pub nguid: Option<String>,
    /// UUID; none when all zeroes.
    pub uuid: Option<String>,
}

impl IdentifiedNamespace {
    /// Converts the controller's data.
    #[must_use]
    pub(crate) fn new(info: &NamespaceInfo) -> IdentifiedNamespace {
        IdentifiedNamespace {
            nsid: info.nsid,
            capacity_bytes: info.blocks.saturating_mul(info.block_bytes.into()),
            blocks: info.blocks,
            block_bytes: info.block_bytes,
            read_only: info.read_only,
            nguid: (info.nguid != [0; 16]).then(|| show_uuid(&info.nguid)),
            uuid: (info.uuid != [0; 16]).then(|| show_uuid(&info.uuid)),
        }
    }

    fn cells(&self) -> Vec<String> {
        vec![
            self.nsid.to_string(),
            show_bytes(self.capacity_bytes),
            self.block_bytes.to_string(),
            if self.read_only { "read-only" } else { "read-write" }.to_owned(),
            self.nguid.clone().unwrap_or_else(|| "-".to_owned()),
            self.uuid.clone().unwrap_or_else(|| "-".to_owned()),
        ]
    }
}

const NAMESPACE_HEAD: [&str; 6] = ["nsid", "size", "block", "access", "nguid", "uuid"];

impl Identified {
    /// Converts the controller's data.
    #[must_use]
    pub(crate) fn new(info: &ControllerInfo) -> Identified {
        let page = &info.identify;
        let version = page.ver.get();
        let has = |flag: u16| page.oncs.get() & flag != 0;
        let optional = [
            (oncs::COMPARE, "compare"),
            (oncs::WRITE_UNCORRECTABLE, "write uncorrectable"),
            (oncs::DATASET_MANAGEMENT, "dataset management"),
            (oncs::WRITE_ZEROES, "write zeroes"),
            (oncs::VERIFY, "verify"),
            (oncs::COPY, "copy"),
            (oncs::RESERVATIONS, "reservations"),
        ];
        let controller = IdentifiedController {
            nqn: parse_nqn(&page.subnqn).unwrap_or_default().to_owned(),
            cntlid: info.cntlid,
            model: parse_ascii(&page.mn).to_owned(),
            serial: parse_ascii(&page.sn).to_owned(),
            firmware: parse_ascii(&page.fr).to_owned(),
            nvme_version: format!("{}.{}.{}", version >> 16, version >> 8 & 0xff, version & 0xff),
            transfer_bytes_max: info.transfer_bytes_max,
            in_capsule_bytes: info.in_capsule_bytes,
            queue_entries_max: info.queue_entries_max,
            volatile_write_cache: page.vwc & vwc::PRESENT != 0,
            commands: optional
                .iter()
                .filter(|(flag, _)| has(*flag))
                .map(|(_, name)| *name)
                .collect(),
        };
        let namespaces = info.namespaces.iter().map(IdentifiedNamespace::new).collect();
        Identified { controller, namespaces }
    }

    /// Formats the controller as text.
    #[must_use]
    pub(crate) fn text(&self) -> String {
        let c = &self.controller;
        let commands =
            if c.commands.is_empty() { "none".to_owned() } else { c.commands.join(", ") };
        let pairs = [
            ("subsystem", c.nqn.clone()),
            ("controller", c.cntlid.to_string()),
            ("model", c.model.clone()),
            ("serial", c.serial.clone()),
            ("firmware", c.firmware.clone()),
            ("NVMe version", c.nvme_version.clone()),
            ("largest transfer", show_bytes(c.transfer_bytes_max.into())),
            ("in-capsule data", show_bytes(c.in_capsule_bytes.into())),
            ("queue entries", c.queue_entries_max.to_string()),
            ("write cache", if c.volatile_write_cache { "volatile" } else { "none" }.to_owned()),
            ("optional commands", commands),
        ];
        let mut text = String::new();
        for (name, value) in pairs {
            text.push_str(&format!("{name:<18} {value}\n"));
        }
        let rows: Vec<Vec<String>> =
            self.namespaces.iter().map(IdentifiedNamespace::cells).collect();
        text.push('\n');
        text.push_str(&columns(&NAMESPACE_HEAD, &rows));
        text
    }
}

/// A row of `list`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ListedNamespace {
    /// Address.
    pub traddr: String,
    /// TCP port.
    pub trsvcid: String,
    /// Subsystem.
    pub nqn: String,
    /// Its model number.
    pub model: String,
    /// Its serial number.
    pub serial: String,
    /// The namespace.
    #[serde(flatten)]
    pub namespace: IdentifiedNamespace,
}

/// Formats the rows of `list` as a table.
#[must_use]
pub(crate) fn list_table(rows: &[ListedNamespace]) -> String {
    let cells = |row: &ListedNamespace| {
        let address = match (row.trsvcid.as_str(), row.traddr.contains(':')) {
            ("", _) => row.traddr.clone(),
            (port, true) => format!("[{}]:{port}", row.traddr), // IPv6
            (port, false) => format!("{}:{port}", row.traddr),
        };
        let mut cells = vec![address, row.nqn.clone()];
        cells.extend(row.namespace.cells());
        cells
    };
    let rows: Vec<Vec<String>> = rows.iter().map(cells).collect();
    columns(&[&["address", "nqn"][..], &NAMESPACE_HEAD].concat(), &rows)
}

/// A row of `list` for an attachment on this machine.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ListedHere {
    /// `attachment`: targets are in the same list.
    pub kind: &'static str,
    /// `starting`, `ready`, or `gone`: its process has ended without removing its entry.
    pub state: &'static str,
    /// Its registry entry.
    #[serde(flatten)]
    pub entry: AttachmentEntry,
}

impl ListedHere {
    /// Checks whether the entry's process runs.
    #[must_use]
    pub(crate) fn new(entry: AttachmentEntry) -> ListedHere {
        let state = match entry.phase {
            _ if !entry.process.is_alive() => "gone",
            AttachmentPhase::Starting => "starting",
            AttachmentPhase::Ready => "ready",
        };
        ListedHere { kind: "attachment", state, entry }
    }
}

/// A row of `list` for a target on this machine.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ServedHere {
    /// `target`: attachments are in the same list.
    pub kind: &'static str,
    /// `serving`, or `gone`: its process has ended without removing its entry.
    pub state: &'static str,
    /// Its registry entry.
    #[serde(flatten)]
    pub entry: TargetEntry,
}

impl ServedHere {
    /// Checks whether the entry's process runs.
    #[must_use]
    pub(crate) fn new(entry: TargetEntry) -> ServedHere {
        let state = if entry.process.is_alive() { "serving" } else { "gone" };
        ServedHere { kind: "target", state, entry }
    }
}

/// Formats targets as a table.
#[must_use]
pub(crate) fn served_table(rows: &[ServedHere]) -> String {
    let cells = |ServedHere { state, entry, .. }: &ServedHere| {
        let config = entry.config.as_ref().map_or("-".into(), |path| path.display().to_string());
        let pid = entry.process.pid.to_string();
        vec![entry.id.clone(), (*state).to_owned(), pid, entry.listeners.join(" "), config]
    };
    let rows: Vec<Vec<String>> = rows.iter().map(cells).collect();
    columns(&["target", "state", "pid", "listens", "file"], &rows)
}

/// Formats attachments as a table, one row for each namespace.
#[must_use]
pub(crate) fn here_table(rows: &[ListedHere]) -> String {
    let mut cells = Vec::new();
    for ListedHere { state, entry, .. } in rows {
        let row = |nsid: String, name: String| {
            let (id, pid) = (entry.id.clone(), entry.process.pid.to_string());
            let (address, nqn) = (entry.address.clone(), entry.nqn.clone());
            vec![id, (*state).to_owned(), pid, address, nqn, nsid, name]
        };
        let devices = entry.devices.iter();
        cells.extend(devices.map(|d| row(d.nsid.to_string(), d.names.join(" "))));
        if entry.devices.is_empty() {
            cells.push(row("-".into(), entry.spec.clone()));
        }
    }
    columns(&["id", "state", "pid", "address", "nqn", "nsid", "device"], &cells)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn namespace() -> IdentifiedNamespace {
        let nguid = [0x11; 16];
        IdentifiedNamespace::new(&NamespaceInfo {
            nsid: 7,
            blocks: 2048,
            block_bytes: 512,
            read_only: true,
            nguid,
            ..NamespaceInfo::default()
        })
    }

    #[test]
    fn records_name_what_they_know() {
        let mut entry = DiscoveryEntry::new(subtype::NVM, "nqn.x:y");
        entry.trtype = trtype::TCP;
        entry.set_address(adrfam::IPV4, "192.0.2.7", "4420");
        let record = DiscoveryRecord::new(&entry);
        assert!(record.is_storage());
        assert_eq!((record.transport.as_str(), record.adrfam.as_str()), ("tcp", "ipv4"));
        assert_eq!((record.traddr.as_str(), record.trsvcid.as_str()), ("192.0.2.7", "4420"));
        entry.trtype = 1;
        assert_eq!(DiscoveryRecord::new(&entry).transport, "1");
        let table = DiscoveryListing { genctr: 1, records: vec![record] }.table();
        assert!(table.lines().nth(1).unwrap().ends_with("nvme subsystem  nqn.x:y"), "{table}");
    }

    #[test]
    fn list_is_flat() {
        let row = ListedNamespace {
            traddr: "192.0.2.7".into(),
            trsvcid: "4420".into(),
            nqn: "nqn.x:y".into(),
            model: "m".into(),
            serial: "s".into(),
            namespace: namespace(),
        };
        let json = serde_json::to_value(&row).unwrap();
        assert_eq!(
            (json["nsid"].as_u64(), json["capacity_bytes"].as_u64()),
            (Some(7), Some(1 << 20))
        );
        assert_eq!(json["nguid"], "11111111-1111-1111-1111-111111111111");
        assert!(json["uuid"].is_null(), "none reported");
        assert!(list_table(&[row]).contains("1 MiB  512    read-only"));
    }
}
