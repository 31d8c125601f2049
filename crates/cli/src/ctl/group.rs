//! `roadtrain ctl --group G --pool P`: changes the configuration of a group of gateways.

use crate::args::{
    ConfigCommand, CtlCommand, CtlTarget, GatewayCommand, GlobalArgs, HostCommand, HostKeyArgs,
    NamespaceCommand, SubsystemCommand,
};
use crate::failure::{CommandFailure, CommandResult};
use crate::gateway::{self, GroupAccess, GroupAddition, GroupChange, GroupRemoval, HostKeyFile};

/// Makes a change, or shows the group.
pub(super) fn run(target: &CtlTarget, command: &CtlCommand, global: &GlobalArgs) -> CommandResult {
    let (Some(group), Some(pool)) = (&target.group, &target.pool) else {
        return Err(CommandFailure::usage("--group and --pool go together"));
    };
    if target.id.is_some() || target.socket.is_some() {
        return Err(CommandFailure::usage(
            "--id and --rpc name a target, --group all gateways of a group",
        ));
    }
    let (group, pool, ceph) = (group.clone(), pool.clone(), target.ceph.clone());
    let place = GroupAccess { group, pool, ceph };
    match change(command)? {
        Some(change) => gateway::change_group(&place, change, global),
        None => gateway::show(&place, global),
    }
}

/// Returns the change that a command makes; `None`: it shows the group.
///
/// # Errors
/// The command is not for a group.
pub(crate) fn change(command: &CtlCommand) -> CommandResult<Option<GroupChange>> {
    let named = |nqn: &Option<String>| {
        nqn.clone().ok_or_else(|| CommandFailure::usage("which subsystem? Name its NQN with -n"))
    };
    let addition = |addition| Ok(Some(GroupChange::Add(addition)));
    let removal = |removal| Ok(Some(GroupChange::Remove(removal)));
    match command.clone() {
        CtlCommand::Subsystem(SubsystemCommand::Add(new)) => addition(GroupAddition {
            nqn: Some(new.nqn),
            serial: new.serial,
            model: new.model,
            namespaces: new.namespaces,
            allow_hosts: new.allow_hosts,
            require_auth: new.require.require_auth,
            require_tls: new.require.require_tls,
            ..GroupAddition::default()
        }),
        CtlCommand::Subsystem(SubsystemCommand::Set { management, .. })
            if management.is_given() =>
        {
            let hint = "the namespaces of a group are images: hosts cannot manage them";
            Err(CommandFailure::usage(hint))
        }
        CtlCommand::Subsystem(SubsystemCommand::Set {
            subsystem, serial, model, require, ..
        }) => addition(GroupAddition {
            nqn: Some(named(&subsystem.nqn)?),
            serial,
            model,
            require_auth: require.require_auth,
            require_tls: require.require_tls,
            ..GroupAddition::default()
        }),
        CtlCommand::Subsystem(SubsystemCommand::Remove { nqn }) => {
            removal(GroupRemoval { nqn: Some(nqn), ..GroupRemoval::default() })
        }
        CtlCommand::Namespace(NamespaceCommand::Add { subsystem, nsid, namespace }) => {
            let mut namespace = namespace;
            namespace.nsid = nsid.or(namespace.nsid);
            let (nqn, namespaces) = (Some(named(&subsystem.nqn)?), vec![namespace]);
            addition(GroupAddition { nqn, namespaces, ..GroupAddition::default() })
        }
        CtlCommand::Namespace(NamespaceCommand::Remove { namespace }) => {
            let (nqn, nsid) = (Some(named(&namespace.subsystem.nqn)?), vec![namespace.nsid]);
            removal(GroupRemoval { nqn, nsid, ..GroupRemoval::default() })
        }
        CtlCommand::Host(command) => host(command, named).map(Some),
        CtlCommand::Gateway(GatewayCommand::Remove { name }) => {
            removal(GroupRemoval { gateways: vec![name], ..GroupRemoval::default() })
        }
        CtlCommand::Gateway(GatewayCommand::List)
        | CtlCommand::Config(ConfigCommand::Show)
        | CtlCommand::Subsystem(SubsystemCommand::List { .. })
        | CtlCommand::Namespace(NamespaceCommand::List { .. }) => Ok(None),
        _ => Err(unfit()),
    }
}

fn unfit() -> CommandFailure {
    CommandFailure::usage(
        "not for a group: it has subsystem, namespace add|remove|list, host allow|deny|keys|list, gateway and config show",
    )
}

fn host(
    command: HostCommand,
    named: impl Fn(&Option<String>) -> CommandResult<String>,
) -> CommandResult<GroupChange> {
    match command {
        HostCommand::Allow { subsystem, hostnqn: Some(host), keys, tls_key, .. } => {
            let keys = key_files(&host, keys, tls_key);
            let nqn = Some(named(&subsystem.nqn)?);
            Ok(GroupChange::Add(GroupAddition { nqn, allow_hosts: vec![host], ..keys }))
        }
        HostCommand::Keys { host, keys, tls_key, .. } => {
            Ok(GroupChange::Add(key_files(&host.hostnqn, keys, tls_key)))
        }
        HostCommand::Deny { subsystem, hostnqn: Some(host), .. } => {
            Ok(GroupChange::Remove(match subsystem.nqn {
                Some(nqn) => GroupRemoval {
                    nqn: Some(nqn),
                    allow_hosts: vec![host],
                    ..GroupRemoval::default()
                },
                None => GroupRemoval { hosts: vec![host], ..GroupRemoval::default() },
            }))
        }
        _ => Err(unfit()),
    }
}

fn key_files(host: &str, keys: HostKeyArgs, tls_key: Option<String>) -> GroupAddition {
    let of = |file: Option<String>| {
        let key = |file| HostKeyFile { host: host.to_owned(), file };
        file.map(key).into_iter().collect()
    };
    GroupAddition {
        dhchap_key: of(keys.dhchap_key),
        dhchap_ctrl_key: of(keys.dhchap_ctrl_key),
        tls_keys: of(tls_key),
        ..GroupAddition::default()
    }
}
