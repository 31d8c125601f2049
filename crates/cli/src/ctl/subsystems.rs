//! Subsystems, namespaces, connections.

use super::limits::{self, report};
use super::target::ControlledTarget;
use crate::args::{
    ConnectionCommand, ManagementArgs, NamespaceCommand, NamespaceRef, NewSubsystemArgs,
    RequireArgs, SubsystemCommand,
};
use crate::config::{SubsystemSettings, assign_nsids};
use crate::control::{Call, ExportChange};
use crate::failure::{CommandFailure, CommandResult};
use crate::namespace::NamespaceSettings;
use serde_json::{Value, json};

impl ControlledTarget {
    pub(super) fn subsystem(&self, command: &SubsystemCommand) -> CommandResult {
        match command.clone() {
            SubsystemCommand::Add(new) => {
                check_require(new.require)?;
                self.apply(ExportChange::AddSubsystem { subsystem: new.spec() })
            }
            SubsystemCommand::Set { subsystem, management, .. } if management.is_given() => {
                self.set_management(subsystem.nqn.as_deref(), &management)
            }
            SubsystemCommand::Set { subsystem, serial, model, require, .. } => {
                check_require(require)?;
                self.apply(ExportChange::SetSubsystem { nqn: subsystem.nqn, serial, model })
            }
            SubsystemCommand::Remove { nqn } => self.apply(ExportChange::RemoveSubsystem { nqn }),
            SubsystemCommand::List { subsystem } => self.list_subsystems(subsystem.nqn.as_deref()),
        }
    }

    fn set_management(&self, nqn: Option<&str>, management: &ManagementArgs) -> CommandResult {
        let ManagementArgs { administrators, namespace_store, .. } = management;
        let nqn = self.nqn_or_only(nqn)?;
        let params = json!({
            "nqn": nqn, "administrators": administrators, "namespace_store": namespace_store,
        });
        let now = match namespace_store {
            Some(store) => format!("{} manage namespaces in {store}", administrators.join(", ")),
            None => "no host manages namespaces".to_owned(),
        };
        self.change("roadtrain_set_namespace_management", &params, &format!("{nqn}: {now}"))
    }

    fn list_subsystems(&self, nqn: Option<&str>) -> CommandResult {
        let rows = self.subsystems(nqn)?.into_iter().map(|one| {
            let count = |name: &str| one[name].as_array().map_or(0, Vec::len);
            json!({
                "nqn": one["nqn"], "owner": one["owner"], "serial": one["serial_number"],
                "model": one["model_number"], "namespace_count": count("namespaces"),
                "listener_count": count("listen_addresses"), "any_host": one["allow_any_host"],
                "host_count": count("hosts"),
            })
        });
        let names = [
            "nqn",
            "owner",
            "serial",
            "model",
            "namespace_count",
            "listener_count",
            "any_host",
            "host_count",
        ];
        self.table(&names, rows.collect())
    }

    /// Returns the subsystems except discovery, as JSON-RPC reports them.
    pub(super) fn subsystems(&self, nqn: Option<&str>) -> CommandResult<Vec<Value>> {
        let params = nqn.map_or(Value::Null, |nqn| json!({"nqn": nqn}));
        let all = self.call("nvmf_get_subsystems", &params)?;
        let all = all.as_array().into_iter().flatten();
        Ok(all.filter(|one| one["subtype"] == "NVMe").cloned().collect())
    }

    /// Returns the given NQN, or that of the only subsystem.
    pub(super) fn nqn_or_only(&self, nqn: Option<&str>) -> CommandResult<String> {
        if let Some(nqn) = nqn {
            return Ok(nqn.to_owned());
        }
        let all = self.subsystems(None)?;
        let nqns: Vec<&str> = all.iter().filter_map(|one| one["nqn"].as_str()).collect();
        match &nqns[..] {
            [only] => Ok((*only).to_owned()),
            [] => Err(CommandFailure::usage("there is no subsystem: add one first")),
            several => {
                let all = several.join(", ");
                Err(CommandFailure::usage(format!(
                    "which subsystem? There are {all}: name one with -n"
                )))
            }
        }
    }

    pub(super) fn namespace(&self, command: &NamespaceCommand) -> CommandResult {
        match command.clone() {
            NamespaceCommand::Add { subsystem, nsid, namespace } => {
                let namespace = numbered(namespace, nsid)?;
                self.apply(ExportChange::AddNamespace { nqn: subsystem.nqn, namespace })
            }
            NamespaceCommand::Replace { namespace, spec } => {
                let (nqn, nsid) = place(namespace);
                let namespace = numbered(spec, Some(nsid))?;
                self.apply(ExportChange::ReplaceNamespace { nqn, namespace })
            }
            NamespaceCommand::Remove { namespace } => {
                let (nqn, nsid) = place(namespace);
                self.apply(ExportChange::RemoveNamespace { nqn, nsid })
            }
            NamespaceCommand::Resize { namespace, size } => {
                let (nqn, nsid) = place(namespace);
                self.apply(ExportChange::ResizeNamespace { nqn, nsid, size })
            }
            NamespaceCommand::Limit { namespace, rates } => {
                limits::check(&rates)?;
                let (nqn, nsid) = place(namespace);
                self.apply(ExportChange::LimitNamespace { nqn, nsid, rates })
            }
            NamespaceCommand::Claim { namespace } => {
                let (nqn, nsid) = place(namespace);
                self.change_by(&Call::Claim { nqn, nsid })
            }
            NamespaceCommand::ShowTo { namespace, hosts } => self.show_to(&namespace, &hosts),
            NamespaceCommand::HideFrom { namespace, hosts } => self.hide_from(&namespace, &hosts),
            NamespaceCommand::AnaGroup { namespace, ana_group: group } => {
                let (nqn, nsid) = self.namespace_of(&namespace)?;
                let params = json!({"nqn": nqn, "nsid": nsid, "anagrpid": group});
                let done = format!("namespace {nsid} of {nqn}: ANA group {group}");
                self.change("nvmf_subsystem_set_ns_ana_group", &params, &done)
            }
            NamespaceCommand::List { subsystem } => self.list_namespaces(subsystem.nqn.as_deref()),
            NamespaceCommand::Snapshot(command) => self.snapshot(command),
        }
    }

    fn list_namespaces(&self, nqn: Option<&str>) -> CommandResult {
        let devices = self.call("bdev_get_bdevs", &Value::Null)?;
        let device = |name: &Value| devices.as_array()?.iter().find(|one| one["name"] == *name);
        let mut rows = Vec::new();
        for one in self.subsystems(nqn)? {
            for namespace in one["namespaces"].as_array().into_iter().flatten() {
                let own = device(&namespace["bdev_name"]).cloned().unwrap_or_default();
                let count = |name: &str| own[name].as_u64();
                let bytes = count("block_size").zip(count("num_blocks")).map(|(size, n)| size * n);
                rows.push(json!({
                    "nqn": one["nqn"], "nsid": namespace["nsid"], "owner": one["owner"],
                    "device": namespace["bdev_name"], "product": own["product_name"],
                    "capacity_bytes": bytes, "block_bytes": own["block_size"],
                    "uuid": namespace["uuid"], "nguid": nguid(&namespace["nguid"]),
                    "limits": report(&namespace["limits"]), "seen_by": namespace["hosts"],
                    "ana_group": namespace["anagrpid"],
                }));
            }
        }
        let mut names = vec!["nqn", "nsid", "owner", "device", "capacity_bytes", "uuid", "limits"];
        if rows.iter().any(|row| !row["seen_by"].is_null()) {
            names.push("seen_by");
        }
        self.table(&names, self.with_limits(rows))
    }

    pub(super) fn connection(&self, command: &ConnectionCommand) -> CommandResult {
        let ConnectionCommand::List { subsystem } = command;
        let mut rows = Vec::new();
        for one in self.subsystems(subsystem.nqn.as_deref())? {
            let controllers =
                self.call("nvmf_subsystem_get_controllers", &json!({"nqn": one["nqn"]}))?;
            for controller in controllers.as_array().into_iter().flatten() {
                rows.push(json!({
                    "nqn": one["nqn"], "host_nqn": controller["hostnqn"],
                    "host_id": controller["hostid"], "cntlid": controller["cntlid"],
                    "io_queues": controller["num_io_qpairs"],
                }));
            }
        }
        self.table(&["nqn", "host_nqn", "cntlid", "io_queues"], rows)
    }
}

/// Formats an NGUID as a UUID, as in all other output; methods return digits alone.
fn nguid(digits: &Value) -> Value {
    let digits = digits.as_str().unwrap_or_default().to_lowercase();
    let part = |from: usize, to: usize| digits.get(from..to);
    let parts = [(0, 8), (8, 12), (12, 16), (16, 20), (20, 32)].map(|(from, to)| part(from, to));
    let parts: Option<Vec<&str>> = parts.into_iter().collect();
    parts.map(|parts| parts.join("-")).into()
}

pub(super) fn place(namespace: NamespaceRef) -> (Option<String>, u32) {
    (namespace.subsystem.nqn, namespace.nsid)
}

/// Sets the NSID of the namespace; the option and the word have to agree.
fn numbered(spec: NamespaceSettings, nsid: Option<u32>) -> CommandResult<NamespaceSettings> {
    match (spec.nsid, nsid) {
        (Some(own), Some(given)) if own != given => {
            Err(CommandFailure::usage(format!("--nsid {given} and nsid={own}: give one of them")))
        }
        (own, given) => Ok(NamespaceSettings { nsid: given.or(own), ..spec }),
    }
}

fn check_require(require: RequireArgs) -> CommandResult {
    match require.require_auth || require.require_tls {
        true => Err(CommandFailure::usage(
            "--require-auth and --require-tls are for a group of gateways; a target has them from its configuration file",
        )),
        false => Ok(()),
    }
}

impl NewSubsystemArgs {
    /// Converts the arguments to the configuration's table.
    pub(super) fn spec(self) -> SubsystemSettings {
        let NewSubsystemArgs { nqn, serial, model, allow_hosts, namespaces, require } = self;
        SubsystemSettings {
            serial,
            model,
            allow_hosts: (!allow_hosts.is_empty()).then(|| allow_hosts.into_iter().collect()),
            require_auth: require.require_auth,
            require_tls: require.require_tls,
            namespaces: assign_nsids(namespaces),
            ..SubsystemSettings::new(nqn)
        }
    }
}
