//! Changes that are asked for at the control socket, as operations on what is exported.

use crate::config::{SubsystemSpec, default_port, listener_of};
use crate::connect::resolve;
use crate::control::{Change, Refusal, Why};
use crate::failure::{Failure, Outcome};
use crate::namespace::NamespaceSpec;
use crate::rates::RateArgs;
use roadtrain_store::StoreKind;
use roadtrain_target_engine::{Blocks, ConfigError, Export, Listener, Operation, Place, Subsystem};
use roadtrain_target_proto::TargetConfig;
use roadtrain_target_proto::rate::Rates;
use std::net::SocketAddr;

/// Refuses to change what RPC has made: only RPC changes that, as it would not know.
pub(super) fn check_owner(
    exports: &TargetConfig<Export>,
    operation: &Operation<Export>,
) -> Result<(), Refusal> {
    let refuse = |what: &str| {
        let message = format!("{what} was made by RPC: use `roadtrain ctl` or `roadtrain rpc`");
        Err(Refusal::new(Why::Invalid, message))
    };
    match operation.place() {
        Place::Subsystem(nqn) | Place::Namespace(nqn, _) | Place::Host(nqn, _) => {
            let mut all = exports.subsystems.iter();
            match all.any(|one| one.nqn == nqn && one.listeners.is_some()) {
                true => refuse(&nqn),
                false => Ok(()),
            }
        }
        Place::Listener(address) => {
            let mut all = exports.listeners.iter();
            match all.any(|one| one.address == address && one.named_only) {
                true => refuse(&address.to_string()),
                false => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

/// The subsystem that is named, or the only one.
pub(super) fn subsystem_of(
    exports: &TargetConfig<Export>,
    nqn: Option<String>,
) -> Result<String, Refusal> {
    match (nqn, &exports.subsystems[..]) {
        (Some(nqn), _) => Ok(nqn),
        (None, [only]) => Ok(only.nqn.clone()),
        (None, all) => {
            let nqns: Vec<&str> = all.iter().map(|subsystem| subsystem.nqn.as_str()).collect();
            let message = format!("which subsystem? There are {}", nqns.join(", "));
            Err(Refusal { field: Some("nqn".into()), ..Refusal::new(Why::Invalid, message) })
        }
    }
}

/// Operation on what is exported that a change means.
pub(super) fn operation(
    exports: &TargetConfig<Export>,
    seen: &TargetConfig,
    change: Change,
) -> Result<Operation<Export>, Refusal> {
    let only = |nqn| subsystem_of(exports, nqn);
    let subsystem = |nqn: &str| exports.subsystems.iter().find(|subsystem| subsystem.nqn == nqn);
    let namespaces = |nqn: &str| subsystem(nqn).map_or(&[][..], |found| &found.namespaces);
    Ok(match change {
        Change::AddSubsystem { subsystem } => Operation::AddSubsystem(new_subsystem(&subsystem)?),
        Change::RemoveSubsystem { nqn } => Operation::RemoveSubsystem { nqn },
        Change::SetSubsystem { nqn, serial, model } => {
            let nqn = only(nqn)?;
            let unknown = || ConfigError::Unknown(Place::Subsystem(nqn.clone()));
            let old = subsystem(&nqn).ok_or_else(unknown)?;
            let serial = serial.or_else(|| old.serial.clone());
            let model = model.unwrap_or_else(|| old.model.clone());
            Operation::SetSubsystem { nqn, serial, model }
        }
        Change::AddNamespace { nqn, mut namespace } => {
            let nqn = only(nqn)?;
            let is_free = |nsid: &u32| namespaces(&nqn).iter().all(|other| other.nsid != *nsid);
            namespace.nsid = namespace.nsid.or_else(|| (1..).find(is_free));
            Operation::AddNamespace { nqn, namespace: checked(&namespace)? }
        }
        Change::ReplaceNamespace { nqn, namespace } => {
            if namespace.nsid.is_none() {
                let refusal = Refusal::new(Why::Invalid, "which namespace? Say its nsid");
                return Err(Refusal { field: Some("nsid".into()), ..refusal });
            }
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
            let unknown = || ConfigError::Unknown(Place::Namespace(nqn.clone(), nsid));
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

fn new_subsystem(new: &SubsystemSpec) -> Result<Subsystem, Refusal> {
    let unfit = |e| Refusal::new(Why::Invalid, format!("subsystem {}: {e}", new.nqn));
    if new.require_auth || new.require_tls {
        return Err(unfit("what it requires is said in the configuration file".to_owned()));
    }
    new.subsystem().map_err(unfit)
}

fn listener_to_come(
    exports: &TargetConfig<Export>,
    address: SocketAddr,
) -> Result<Listener, Refusal> {
    let addresses = exports.listeners.iter().map(|listener| listener.address).chain([address]);
    let listeners = exports.listeners_at(&addresses.collect::<Vec<_>>());
    listeners.last().copied().ok_or_else(|| Refusal::new(Why::Failed, "too many listeners"))
}

/// The listener at that address, as it was asked for, which may be with port 0.
fn listener_at(
    exports: &TargetConfig<Export>,
    seen: &TargetConfig,
    address: SocketAddr,
) -> Result<Listener, ConfigError> {
    let mut known = exports.listeners.iter().chain(&seen.listeners);
    let known = known.find(|listener| listener.address == address);
    let asked = |known: &Listener| exports.listeners.iter().find(|one| one.portid == known.portid);
    known.and_then(asked).copied().ok_or(ConfigError::Unknown(Place::Listener(address)))
}

fn checked(namespace: &NamespaceSpec) -> Result<Export, Refusal> {
    namespace.export().map_err(|e| Refusal::new(Why::Invalid, e))
}

fn checked_rates(rates: &RateArgs) -> Result<Rates, Refusal> {
    rates.rates().map_err(|e| Refusal::new(Why::Invalid, e))
}

fn tcp_address(address: &str, port: u16) -> Outcome<SocketAddr> {
    if address.starts_with("ether:") {
        return Err(Failure::usage("interfaces need a restart: give an address or a name"));
    }
    resolve(address, port)
}

/// The same, with the size that its file or device has.
fn as_large_as_it_is(mut export: Export) -> Export {
    if let Blocks::Spec(spec) = &mut export.blocks
        && let StoreKind::File { size, create, .. } = &mut spec.kind
    {
        (*size, *create) = (None, false);
    }
    export
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::CommandFactory;
    use roadtrain_target_proto::TlsUse;
    use serde_json::{Value, json};
    use std::collections::BTreeSet;

    const PAGE: &str = include_str!("../../../../docs/reference/control-socket.md");

    fn word(operation: &Operation<Export>) -> &'static str {
        match operation {
            Operation::AddSubsystem(_) => "add_subsystem",
            Operation::RemoveSubsystem { .. } => "remove_subsystem",
            Operation::SetSubsystem { .. } => "set_subsystem",
            // RPC only.
            Operation::SetListeners { .. } => "set_listeners",
            Operation::SetKeys { .. } => "set_keys",
            Operation::AddReferral(_) => "add_referral",
            Operation::RemoveReferral(_) => "remove_referral",
            Operation::AddNamespace { .. } => "add_namespace",
            Operation::RemoveNamespace { .. } => "remove_namespace",
            Operation::ReplaceNamespace { .. } => "replace_namespace",
            Operation::ResizeNamespace { .. } => "resize_namespace",
            Operation::AllowAnyHost { .. } => "allow_any_host",
            Operation::LimitNamespace { .. } => "limit_namespace",
            Operation::LimitHost { .. } => "limit_host",
            Operation::AllowHost { .. } => "allow_host",
            Operation::DisallowHost { .. } => "disallow_host",
            Operation::Listen(_) => "listen",
            Operation::Unlisten(_) => "unlisten",
            Operation::SetTls(_) => "set-tls",
            Operation::SetAna { .. } => "set_ana",
            // Keys come from files only: see the configuration.
            Operation::SetAuthentication(_) => "set_authentication",
        }
    }

    /// Each is itself at the socket, a command of the command line, and on the page.
    #[test]
    fn every_operation_has_one_word_everywhere() {
        let listener = Listener {
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
            let change: Change = serde_json::from_value(params).unwrap();
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
        let cli = Cli::command();
        let commands = cli.find_subcommand("target").unwrap().get_subcommands();
        let commands = commands.map(|command| command.get_name().replace('-', "_"));
        let others = ["reload", "upgrade", "claim_namespace", "disallow_any_host"]; // which is allow_any_host with false
        let told = cli.find_subcommand("ctl").unwrap().get_subcommands();
        // The others are methods of JSON-RPC.
        let told = told.filter(|command| command.get_name() == "ana");
        let told = told.map(|command| format!("set_{}", command.get_name()));
        let commands: BTreeSet<String> =
            commands.chain(told).filter(|name| !others.contains(&name.as_str())).collect();
        assert_eq!(commands, words, "roadtrain target");
    }
}
