//! `roadtrain target`: changes what a running target exports.

use crate::args::{
    AddSubsystemArgs, GlobalArgs, ListenArgs, NumberArgs, TargetArgs, TargetCommand,
};
use crate::config::{SubsystemSpec, number};
use crate::control::{Call, Change, Done, socket};
use crate::failure::{Failure, Outcome};
use crate::registry::{TargetEntry, Targets};
use crate::{logs, output};
use serde::de::DeserializeOwned;

/// `roadtrain target`
pub(crate) fn run(args: &TargetArgs, global: &GlobalArgs) -> Outcome {
    logs::start("warn", global.verbose);
    let targets = Targets::of_user();
    let target = choose(targets.entries()?, args.id.as_deref())?;
    let call = call(args)?;
    tell(&targets, &target, &call, global)
}

/// Has a target do something, and shows what came of it.
///
/// # Errors
/// It does not answer, or refuses.
pub(crate) fn tell(
    targets: &Targets,
    target: &TargetEntry,
    call: &Call,
    global: &GlobalArgs,
) -> Outcome {
    let done: Done = ask(targets, target, call)?;
    if global.json {
        return output::json(&done);
    }
    let changes = done.changes.into_iter().map(|change| change.what);
    let lines: Vec<String> = changes.chain(done.hint.map(|hint| format!("note: {hint}"))).collect();
    output::line(&if lines.is_empty() { "nothing has changed".into() } else { lines.join("\n") })
}

/// Asks a target.
///
/// # Errors
/// It does not answer, or refuses.
pub(crate) fn ask<T: DeserializeOwned>(
    targets: &Targets,
    target: &TargetEntry,
    call: &Call,
) -> Outcome<T> {
    let reply = socket::ask(&targets.control_socket(&target.id), call).map_err(|error| {
        let (id, pid) = (&target.id, target.process.pid);
        Failure::connect(format!("{id} (process {pid}) does not answer: {error}"))
    })?;
    serde_json::from_value(reply?)
        .map_err(|e| Failure::failed(format!("{}: an answer that makes no sense: {e}", target.id)))
}

/// The target of that name, or the only one.
///
/// # Errors
/// There is none, or there are several.
pub(crate) fn choose(mut targets: Vec<TargetEntry>, id: Option<&str>) -> Outcome<TargetEntry> {
    targets.retain(|target| id.is_none_or(|id| target.id == id));
    match (targets.len(), id) {
        (1, _) => Ok(targets.remove(0)),
        (0, Some(id)) => Err(Failure::connect(format!(
            "no target {id} runs here: `roadtrain status` shows those that do"
        ))),
        (0, None) => Err(Failure::connect("no target runs here: start one with `roadtrain serve`")),
        _ => {
            let ids: Vec<&str> = targets.iter().map(|target| target.id.as_str()).collect();
            Err(Failure::usage(format!(
                "several targets run here: choose one with --id {}",
                ids.join(" or ")
            )))
        }
    }
}

fn call(args: &TargetArgs) -> Outcome<Call> {
    let nqn = args.nqn.clone();
    let named =
        || nqn.clone().ok_or_else(|| Failure::usage("which subsystem? Say its NQN with -n"));
    let change = match args.command.clone() {
        TargetCommand::Reload => return Ok(Call::Reload),
        TargetCommand::Upgrade => return Ok(Call::Upgrade),
        TargetCommand::ClaimNamespace { nsid } => return Ok(Call::Claim { nqn, nsid }),
        TargetCommand::Listen(ListenArgs { traddr: address, trsvcid: port }) => {
            Change::Listen { address, port }
        }
        TargetCommand::Unlisten(ListenArgs { traddr: address, trsvcid: port }) => {
            Change::Unlisten { address, port }
        }
        TargetCommand::AddSubsystem(AddSubsystemArgs { numbers, allow_hosts, namespaces }) => {
            let NumberArgs { serial, model } = numbers;
            let allow_hosts = (!allow_hosts.is_empty()).then(|| allow_hosts.into_iter().collect());
            let (nqn, namespaces) = (named()?, number(namespaces));
            let subsystem = SubsystemSpec {
                nqn,
                serial,
                model,
                allow_hosts,
                require_auth: false,
                require_tls: false,
                host_rates: Default::default(),
                namespaces,
            };
            Change::AddSubsystem { subsystem }
        }
        TargetCommand::RemoveSubsystem => Change::RemoveSubsystem { nqn: named()? },
        TargetCommand::SetSubsystem(NumberArgs { serial, model }) => {
            Change::SetSubsystem { nqn, serial, model }
        }
        TargetCommand::AddNamespace { namespace } => Change::AddNamespace { nqn, namespace },
        TargetCommand::ReplaceNamespace { namespace } => {
            Change::ReplaceNamespace { nqn, namespace }
        }
        TargetCommand::RemoveNamespace { nsid } => Change::RemoveNamespace { nqn, nsid },
        TargetCommand::ResizeNamespace { nsid, size } => {
            Change::ResizeNamespace { nqn, nsid, size }
        }
        TargetCommand::LimitNamespace { nsid, rates } => {
            Change::LimitNamespace { nqn, nsid, rates }
        }
        TargetCommand::LimitHost { host, rates } => Change::LimitHost { nqn, host, rates },
        TargetCommand::AllowHost { host } => Change::AllowHost { nqn, host },
        TargetCommand::DisallowHost { host } => Change::DisallowHost { nqn, host },
        TargetCommand::AllowAnyHost => Change::AllowAnyHost { nqn, allow: true },
        TargetCommand::DisallowAnyHost => Change::AllowAnyHost { nqn, allow: false },
    };
    // A path means what it means here, not where the target was started.
    Ok(Call::Apply { operations: vec![change.with_absolute_paths()] })
}
