//! Changes by the control socket, converted to operations on the exports.

use super::state;
use crate::config::{SubsystemSettings, default_port, listener_of};
use crate::connect::resolve;
use crate::control::{ControlRefusal, ExportChange, RefusalReason};
use crate::failure::{CommandFailure, CommandResult};
use crate::namespace::NamespaceSettings;
use crate::rates::RateArgs;
use roadtrain_manage::model::ManagedModel;
use roadtrain_manage::rpc::ManagerSession;
use roadtrain_store::StoreKind;
use roadtrain_target_engine::{
    ConfigError, ConfigObject, ConfigOperation, Export, ExportBlocks, Server, Subsystem,
    TargetListener,
};
use roadtrain_target_proto::TargetConfig;
use roadtrain_target_proto::rate::RateSettings;
use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;

/// Returns the named subsystem, or the only one.
pub(super) fn subsystem_of(
    exports: &TargetConfig<Export>,
    nqn: Option<String>,
) -> Result<String, ControlRefusal> {
    only_of(exports.subsystems.iter().map(|one| &*one.nqn), nqn)
}

/// Returns `nqn`, or the only one of `all`.
fn only_of<'a>(
    all: impl Iterator<Item = &'a str>,
    nqn: Option<String>,
) -> Result<String, ControlRefusal> {
    let all: Vec<&str> = all.collect();
    let message = match (nqn, &all[..]) {
        (Some(nqn), _) => return Ok(nqn),
        (None, [only]) => return Ok((*only).to_owned()),
        (None, []) => "there is no subsystem: add one first".to_owned(),
        (None, all) => format!("which subsystem? There are {}: name one with -n", all.join(", ")),
    };
    Err(ControlRefusal {
        field: Some("nqn".into()),
        ..ControlRefusal::new(RefusalReason::Invalid, message)
    })
}

/// Changes that are made together, and the owners of their objects.
pub(super) struct Batch<'a> {
    exports: Arc<TargetConfig<Export>>,
    seen: Arc<TargetConfig>,
    session: ManagerSession<'a>,
    /// True if subsystems of the configuration file are changed.
    pub(super) touches_file: bool,
    /// True if subsystems of the state are changed.
    pub(super) touches_state: bool,
}

impl<'a> Batch<'a> {
    pub(super) fn new(server: &Server, session: ManagerSession<'a>) -> Batch<'a> {
        let (exports, (seen, _)) = (server.exports(), server.view());
        Batch { exports, seen, session, touches_file: false, touches_state: false }
    }

    /// Adds a change, on top of the ones before it.
    ///
    /// # Errors
    /// The change cannot be made.
    pub(super) fn add(
        &mut self,
        change: ExportChange,
        (model, operations): (&mut ManagedModel, &mut Vec<ConfigOperation<Export>>),
    ) -> Result<(), ControlRefusal> {
        if let Some(nqn) = self.state_subsystem(&change, model)? {
            self.touches_state = true;
            return state::edit(model, (&nqn, change), &self.session);
        }
        self.touches_file = true;
        let operation = match change {
            ExportChange::AddNamespace { nqn, namespace } if namespace.device.is_some() => {
                self.show_device(model, (nqn, namespace))?
            }
            change => {
                check_paths(&change, &self.session)?;
                operation(&self.exports, &self.seen, change)?
            }
        };
        if let ConfigOperation::RemoveNamespace { nqn, nsid } = &operation {
            model.lent.retain(|_, (of, one)| (&*of, &*one) != (nqn, nsid));
        }
        Arc::make_mut(&mut self.exports).change(std::slice::from_ref(&operation))?;
        operations.push(operation);
        Ok(())
    }

    /// Returns the state's subsystem that a change is for; `None` if it is for the configuration file, or for the
    /// target.
    fn state_subsystem(
        &self,
        change: &ExportChange,
        model: &ManagedModel,
    ) -> Result<Option<String>, ControlRefusal> {
        let nqn = match change {
            ExportChange::Listen { .. }
            | ExportChange::Unlisten { .. }
            | ExportChange::SetAna { .. } => {
                return Ok(None);
            }
            ExportChange::AddSubsystem { subsystem } => {
                let is_there = self.exports.subsystems.iter().any(|one| one.nqn == subsystem.nqn);
                let exists = ConfigError::Exists(ConfigObject::Subsystem(subsystem.nqn.clone()));
                return match is_there {
                    true => Err(exists.into()),
                    false if model.shadowed.contains(&subsystem.nqn) => {
                        let hint = "the configuration file has it: a reload serves it again";
                        Err(ControlRefusal::new(
                            RefusalReason::Exists,
                            format!("subsystem {}: {hint}", subsystem.nqn),
                        ))
                    }
                    false => Ok(Some(subsystem.nqn.clone())),
                };
            }
            ExportChange::RemoveSubsystem { nqn } => Some(nqn.clone()),
            other => other.nqn().map(str::to_owned),
        };
        let of_file = self.exports.subsystems.iter().map(|one| &*one.nqn);
        let of_file = of_file.filter(|nqn| !model.serves(nqn));
        let all = of_file.chain(model.served().map(|one| &*one.nqn));
        let nqn = only_of(all, nqn)?;
        Ok(Some(nqn).filter(|nqn| model.serves(nqn)))
    }

    /// Adds a device of the state to a subsystem of the configuration file.
    fn show_device(
        &self,
        model: &mut ManagedModel,
        (nqn, new): (Option<String>, NamespaceSettings),
    ) -> Result<ConfigOperation<Export>, ControlRefusal> {
        let nqn = subsystem_of(&self.exports, nqn)?;
        let subsystem = self.exports.subsystems.iter().find(|one| one.nqn == nqn);
        let used = subsystem.map_or(&[][..], |one| &one.namespaces);
        let used: HashSet<u32> = used.iter().map(|one| one.nsid).collect();
        let is_free = |nsid: &u32| !used.contains(nsid);
        let nsid = new.nsid.or_else(|| (1..).find(is_free)).unwrap_or_default();
        let device = state::device_for(model, (&nqn, nsid), &new, (&self.session, None))?;
        let shown = state::saved_namespace((nsid, &device), new, (model, &self.session))?;
        let export = shown.export(model);
        let export = export
            .ok_or_else(|| ControlRefusal::new(RefusalReason::Unknown, "it has no blocks"))?;
        model.lent.insert(device, (nqn.clone(), nsid));
        Ok(ConfigOperation::AddNamespace { nqn, namespace: export })
    }
}

/// Checks that the caller may open the files of a change.
fn check_paths(change: &ExportChange, session: &ManagerSession<'_>) -> Result<(), ControlRefusal> {
    let (ExportChange::AddNamespace { namespace, .. }
    | ExportChange::ReplaceNamespace { namespace, .. }) = change
    else {
        return Ok(());
    };
    if session.is_owner() {
        return Ok(());
    }
    let kept = namespace.reservations.iter().chain(&namespace.uncorrectable);
    let kept = kept.filter(|path| path.as_os_str() != "none");
    let ceph = namespace.conf.iter().chain(&namespace.keyring).chain(&namespace.passphrase_file);
    for path in namespace.path.iter().chain(ceph).chain(kept) {
        session.allowed_new(path)?;
    }
    Ok(())
}

/// Converts a change to an operation on the exports.
pub(super) fn operation(
    exports: &TargetConfig<Export>,
    seen: &TargetConfig,
    change: ExportChange,
) -> Result<ConfigOperation<Export>, ControlRefusal> {
    use ConfigOperation as Operation;
    use ExportChange as Change;
    let only = |nqn| subsystem_of(exports, nqn);
    let subsystem = |nqn: &str| exports.subsystems.iter().find(|subsystem| subsystem.nqn == nqn);
    let namespaces = |nqn: &str| subsystem(nqn).map_or(&[][..], |found| &found.namespaces);
    Ok(match change {
        Change::AddSubsystem { subsystem } => Operation::AddSubsystem(new_subsystem(&subsystem)?),
        Change::RemoveSubsystem { nqn } => Operation::RemoveSubsystem { nqn },
        Change::SetSubsystem { nqn, serial, model } => {
            let nqn = only(nqn)?;
            let unknown = || ConfigError::Unknown(ConfigObject::Subsystem(nqn.clone()));
            let old = subsystem(&nqn).ok_or_else(unknown)?;
            let serial = serial.or_else(|| old.serial.clone());
            let model = model.unwrap_or_else(|| old.model.clone());
            Operation::SetSubsystem { nqn, serial, model }
        }
        Change::AddNamespace { nqn, mut namespace } => {
            let nqn = only(nqn)?;
            let used: HashSet<u32> = namespaces(&nqn).iter().map(|other| other.nsid).collect();
            let is_free = |nsid: &u32| !used.contains(nsid);
            namespace.nsid = namespace.nsid.or_else(|| (1..).find(is_free));
            Operation::AddNamespace { nqn, namespace: checked(&namespace)? }
        }
        Change::ReplaceNamespace { nqn, namespace } => {
            namespace.nsid.ok_or_else(without_nsid)?;
            Operation::ReplaceNamespace { nqn: only(nqn)?, namespace: checked(&namespace)? }
        }
        Change::RemoveNamespace { nqn, nsid } => {
            Operation::RemoveNamespace { nqn: only(nqn)?, nsid }
        }
        Change::ResizeNamespace { nqn, nsid, size: Some(bytes) } => {
            Operation::ResizeNamespace { nqn: only(nqn)?, nsid, bytes }
        }
        Change::ResizeNamespace { nqn, nsid, size: None } => {
            let nqn = only(nqn)?;
            let there = namespaces(&nqn).iter().find(|namespace| namespace.nsid == nsid).cloned();
            let unknown = || ConfigError::Unknown(ConfigObject::Namespace(nqn.clone(), nsid));
            let namespace = there.ok_or_else(unknown)?;
            Operation::ReplaceNamespace { nqn, namespace: as_large_as_it_is(namespace) }
        }
        Change::AllowHost { nqn, host } => Operation::AllowHost { nqn: only(nqn)?, host },
        Change::DisallowHost { nqn, host } => Operation::DisallowHost { nqn: only(nqn)?, host },
        Change::AllowAnyHost { nqn, allow } => Operation::AllowAnyHost { nqn: only(nqn)?, allow },
        Change::LimitNamespace { nqn, nsid, rates } => {
            let rates = checked_rates(&rates)?;
            Operation::LimitNamespace { nqn: only(nqn)?, nsid, rates }
        }
        Change::LimitHost { nqn, host, rates } => {
            let rates = checked_rates(&rates)?;
            Operation::LimitHost { nqn: only(nqn)?, host, rates }
        }
        Change::Listen { address, port } => {
            Operation::Listen(listener_to_come(exports, tcp_address(&address, port)?)?)
        }
        Change::Unlisten { address, port } => {
            Operation::Unlisten(listener_at(exports, seen, tcp_address(&address, port)?)?)
        }
        Change::SetAna { listener, state } => {
            let listener = listener_of(&listener, default_port())?;
            Operation::SetAna { listener, state: Some(state.into()) }
        }
    })
}

fn without_nsid() -> ControlRefusal {
    let refusal = ControlRefusal::new(RefusalReason::Invalid, "which namespace? Give its nsid");
    ControlRefusal { field: Some("nsid".into()), ..refusal }
}

fn new_subsystem(new: &SubsystemSettings) -> Result<Subsystem, ControlRefusal> {
    let unfit =
        |e| ControlRefusal::new(RefusalReason::Invalid, format!("subsystem {}: {e}", new.nqn));
    if new.require_auth || new.require_tls {
        return Err(unfit(
            "require_auth and require_tls are set in the configuration file".to_owned(),
        ));
    }
    new.subsystem().map_err(unfit)
}

fn listener_to_come(
    exports: &TargetConfig<Export>,
    address: SocketAddr,
) -> Result<TargetListener, ControlRefusal> {
    let addresses = exports.listeners.iter().map(|listener| listener.address).chain([address]);
    let listeners = exports.listeners_at(&addresses.collect::<Vec<_>>());
    listeners
        .last()
        .copied()
        .ok_or_else(|| ControlRefusal::new(RefusalReason::Failed, "too many listeners"))
}

/// Finds the listener at an address as it was requested, which may be with port 0.
fn listener_at(
    exports: &TargetConfig<Export>,
    seen: &TargetConfig,
    address: SocketAddr,
) -> Result<TargetListener, ConfigError> {
    let mut known = exports.listeners.iter().chain(&seen.listeners);
    let known = known.find(|listener| listener.address == address);
    let as_requested =
        |known: &TargetListener| exports.listeners.iter().find(|one| one.portid == known.portid);
    known
        .and_then(as_requested)
        .copied()
        .ok_or(ConfigError::Unknown(ConfigObject::Listener(address)))
}

fn checked(namespace: &NamespaceSettings) -> Result<Export, ControlRefusal> {
    namespace.export().map_err(|e| ControlRefusal::new(RefusalReason::Invalid, e))
}

fn checked_rates(rates: &RateArgs) -> Result<RateSettings, ControlRefusal> {
    rates.rates().map_err(|e| ControlRefusal::new(RefusalReason::Invalid, e))
}

fn tcp_address(address: &str, port: u16) -> CommandResult<SocketAddr> {
    if address.starts_with("ether:") {
        return Err(CommandFailure::usage("interfaces need a restart: give an address or a name"));
    }
    resolve(address, port)
}

/// Removes the size, so that the one of the file or device applies.
fn as_large_as_it_is(mut export: Export) -> Export {
    if let ExportBlocks::Spec(spec) = &mut export.blocks
        && let StoreKind::File { size, create, .. } = &mut spec.kind
    {
        (*size, *create) = (None, false);
    }
    export
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::CommandLine;
    use clap::CommandFactory;
    use roadtrain_target_proto::TlsUse;
    use serde_json::{Value, json};
    use std::collections::BTreeSet;

    const PAGE: &str = include_str!("../../../../docs/reference/control-socket.md");

    fn word(operation: &ConfigOperation<Export>) -> &'static str {
        match operation {
            ConfigOperation::AddSubsystem(_) => "add_subsystem",
            ConfigOperation::RemoveSubsystem { .. } => "remove_subsystem",
            ConfigOperation::SetSubsystem { .. } => "set_subsystem",
            // Only RPC makes this operation.
            ConfigOperation::SetListeners { .. } => "set_listeners",
            ConfigOperation::SetNamespaceManagement { .. } => "set_namespace_management",
            ConfigOperation::ViewNamespace { .. } => "view_namespace",
            ConfigOperation::SetGroupAna { .. } => "set_group_ana",
            ConfigOperation::SetKeys { .. } => "set_keys",
            ConfigOperation::AddReferral(_) => "add_referral",
            ConfigOperation::RemoveReferral(_) => "remove_referral",
            ConfigOperation::AddNamespace { .. } => "add_namespace",
            ConfigOperation::RemoveNamespace { .. } => "remove_namespace",
            ConfigOperation::ReplaceNamespace { .. } => "replace_namespace",
            ConfigOperation::ResizeNamespace { .. } => "resize_namespace",
            ConfigOperation::AllowAnyHost { .. } => "allow_any_host",
            ConfigOperation::LimitNamespace { .. } => "limit_namespace",
            ConfigOperation::LimitHost { .. } => "limit_host",
            ConfigOperation::AllowHost { .. } => "allow_host",
            ConfigOperation::DisallowHost { .. } => "disallow_host",
            ConfigOperation::Listen(_) => "listen",
            ConfigOperation::Unlisten(_) => "unlisten",
            ConfigOperation::SetTls(_) => "set-tls",
            ConfigOperation::SetAna { .. } => "set_ana",
            // Keys come from files only: see the configuration.
            ConfigOperation::SetAuthentication(_) => "set_authentication",
        }
    }

    /// Each operation has one name: at the socket, as a command, and on the page.
    #[test]
    fn every_operation_has_one_name_everywhere() {
        let listener = TargetListener {
            portid: 1,
            address: ([127, 0, 0, 1], 4420).into(),
            tls: TlsUse::Off,
            named_only: false,
        };
        let exports = TargetConfig {
            subsystems: vec![Subsystem::new("nqn.x:y")],
            listeners: vec![listener],
            ..TargetConfig::default()
        };
        let namespace = json!({"kind": "mem", "size": 4096, "nsid": 1});
        let operation = |params: Value| {
            let change: ExportChange = serde_json::from_value(params).unwrap();
            operation(&exports, &TargetConfig::default(), change).unwrap()
        };
        let mut words = BTreeSet::new();
        for (name, more) in [
            ("add_subsystem", json!({"subsystem": {"nqn": "nqn.x:z"}})),
            ("remove_subsystem", json!({"nqn": "nqn.x:y"})),
            ("set_subsystem", json!({"serial": "S"})),
            ("add_namespace", json!({"namespace": namespace})),
            ("remove_namespace", json!({"nsid": 1})),
            ("replace_namespace", json!({"namespace": namespace})),
            ("resize_namespace", json!({"nsid": 1, "size": 8192})),
            ("allow_any_host", json!({"allow": true})),
            ("allow_host", json!({"host": "nqn.x:h"})),
            ("disallow_host", json!({"host": "nqn.x:h"})),
            ("limit_namespace", json!({"nsid": 1, "rates": {"iops": 1000}})),
            ("limit_host", json!({"host": "nqn.x:h", "rates": {"bandwidth": "100MiB"}})),
            ("listen", json!({"address": "::1"})),
            ("unlisten", json!({"address": "127.0.0.1"})),
            ("set_ana", json!({"listener": "127.0.0.1:4420", "state": "change"})),
        ] {
            let mut params = more;
            params["operation"] = name.into();
            assert_eq!(word(&operation(params)), name);
            words.insert(name.to_owned());
        }
        let (_, table) = PAGE.split_once("| `operation` | members |").unwrap();
        let rows = table.lines().skip(1).take_while(|line| line.starts_with('|'));
        let names = rows.flat_map(|row| row.split('|').nth(1).unwrap_or_default().split('`'));
        let named: BTreeSet<String> =
            names.filter(|name| name.starts_with(char::is_alphabetic)).map(str::to_owned).collect();
        assert_eq!(named, words, "docs/reference/control-socket.md");
        let mut cli = CommandLine::command();
        cli.build();
        let ctl = cli.find_subcommand("ctl").unwrap();
        for word in &words {
            let (noun, verb) = match word.as_str() {
                "set_ana" => ("listener", "set"),
                "listen" => ("listener", "add"),
                "unlisten" => ("listener", "remove"),
                "allow_any_host" => ("host", "allow"),
                "disallow_host" => ("host", "deny"),
                word => word.split_once('_').map(|(verb, noun)| (noun, verb)).unwrap(),
            };
            let found = ctl.find_subcommand(noun).and_then(|noun| noun.find_subcommand(verb));
            assert!(found.is_some(), "roadtrain ctl {noun} {verb}");
        }
    }
}
