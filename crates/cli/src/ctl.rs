//! `roadtrain ctl`: changes a running target, and tells it how things are around it.

mod hosts;
mod limits;
mod managed;
mod objects;
mod volumes;

use crate::args::{
    AnaName, AnaPort, CtlArgs, CtlCommand, GlobalArgs, SnapshotCommand, SnapshotName,
};
use crate::config::{default_port, listener_of};
use crate::control::{Call, Change, SnapshotAction, SnapshotCall, SnapshotReply, SnapshotView};
use crate::failure::Outcome;
use crate::registry::{TargetEntry, Targets};
use crate::{logs, output, running, slow, target};
use roadtrain_target_engine::AnaListener;
use std::net::SocketAddr;
use std::path::Path;

/// `roadtrain ctl`
pub(crate) fn run(args: &CtlArgs, global: &GlobalArgs) -> Outcome {
    logs::start("warn", global.verbose);
    match &args.command {
        CtlCommand::Ana { listener, state } => ana(args, (listener, *state), global),
        CtlCommand::Snapshot { action, nqn } => snapshot(args, action, nqn.clone(), global),
        CtlCommand::Trace { output } => trace(args.id.as_slice(), output.as_deref()),
        _ => objects::run(args, global),
    }
}

/// `roadtrain ctl ana`
fn ana(args: &CtlArgs, (listener, state): (&AnaPort, AnaName), global: &GlobalArgs) -> Outcome {
    let targets = Targets::of_user();
    let mut entries = targets.entries()?;
    if args.id.is_none() && entries.len() > 1 {
        let wanted = listener_of(listener, default_port())?;
        let all = entries.clone();
        entries.retain(|entry| has(entry, wanted));
        if entries.is_empty() {
            entries = all; // which says that one has to be chosen
        }
    }
    let chosen = target::choose(entries, args.id.as_deref())?;
    let change = Change::SetAna { listener: with_port(listener), state };
    let call = Call::Apply { operations: vec![change] };
    target::tell(&targets, &chosen, &call, global)
}

/// `roadtrain ctl snapshot`
fn snapshot(
    args: &CtlArgs,
    command: &SnapshotCommand,
    nqn: Option<String>,
    global: &GlobalArgs,
) -> Outcome {
    let targets = Targets::of_user();
    let chosen = target::choose(targets.entries()?, args.id.as_deref())?;
    let of = |SnapshotName { nsid, name }: SnapshotName| (nsid, name);
    let (nsid, action) = match command.clone() {
        SnapshotCommand::List { nsid } => (nsid, SnapshotAction::List),
        SnapshotCommand::Create(one) => {
            let (nsid, name) = of(one);
            (nsid, SnapshotAction::Create { name })
        }
        SnapshotCommand::Remove(one) => {
            let (nsid, name) = of(one);
            (nsid, SnapshotAction::Remove { name })
        }
        SnapshotCommand::Protect(one) => {
            let (nsid, name) = of(one);
            (nsid, SnapshotAction::Protect { name })
        }
        SnapshotCommand::Unprotect(one) => {
            let (nsid, name) = of(one);
            (nsid, SnapshotAction::Unprotect { name })
        }
        SnapshotCommand::Clone { from, to } => {
            let (nsid, name) = of(from);
            (nsid, SnapshotAction::Clone { name, to })
        }
        SnapshotCommand::Rollback(one) => {
            let (nsid, name) = of(one);
            (nsid, SnapshotAction::Rollback { name })
        }
    };
    let is_list = action == SnapshotAction::List;
    let call = Call::Snapshots(SnapshotCall { nqn, nsid, action });
    let reply: SnapshotReply = target::ask(&targets, &chosen, &call)?;
    if global.json {
        return output::json(&reply);
    }
    if !is_list {
        return Ok(());
    }
    let row = |one: &SnapshotView| {
        let protected = if one.protected { " protected" } else { "" };
        format!("{} {} bytes{protected}", one.name, one.bytes)
    };
    let rows: Vec<String> = reply.snapshots.iter().map(row).collect();
    output::line(&if rows.is_empty() { "no snapshots".into() } else { rows.join("\n") })
}

/// Writes a trace of what the processes of these names have recorded; of all without names.
fn trace(names: &[String], output: Option<&Path>) -> Outcome {
    let (sources, failed) = slow::gather(running::processes(names, &[])?);
    if let Some(failed) = failed {
        return Err(failed);
    }
    slow::trace::write(&sources, output)
}

/// The same, whatever the target's own port is.
fn with_port(listener: &AnaPort) -> AnaPort {
    match listener {
        AnaPort::Tcp { address, port: None } => {
            AnaPort::Tcp { address: address.clone(), port: Some(default_port()) }
        }
        other => other.clone(),
    }
}

/// Whether hosts come in at a target there.
fn has(entry: &TargetEntry, wanted: AnaListener) -> bool {
    entry.listeners.iter().any(|listener| match wanted {
        AnaListener::Ether => listener.starts_with("ether:"),
        AnaListener::Tcp(wanted) => listener.parse().is_ok_and(|at: SocketAddr| {
            let is_ip = at.ip() == wanted.ip() || at.ip().is_unspecified();
            is_ip && at.port() == wanted.port()
        }),
    })
}
