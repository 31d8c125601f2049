//! `roadtrain ctl`: changes a running target by the JSON-RPC methods of its control socket.
//!
//! ```text
//! target      choice of the target, its methods, and display of their results
//! subsystems  subsystems, namespaces, connections
//! snapshots   snapshots and their differences
//! hosts       listeners and hosts
//! devices     devices
//! volumes     volumes and their stores
//! managed     keys, Ceph clusters, referrals
//! config      the whole configuration
//! bitmaps     dirty bitmaps of attachments
//! group       commands for a group of gateways
//! ```

mod bitmaps;
mod config;
mod devices;
#[cfg_attr(not(feature = "rbd"), path = "ctl/no_group.rs")]
mod group;
mod hosts;
mod limits;
mod managed;
mod snapshots;
mod subsystems;
mod target;
mod visibility;
mod volumes;

#[cfg(all(test, feature = "rbd"))]
pub(crate) use group::change as group_change;

use crate::args::{CtlArgs, CtlCommand, GlobalArgs};
use crate::control::Call;
use crate::failure::{CommandFailure, CommandResult};
use crate::{logs, output, running, slow};
use serde_json::Value;
use std::path::Path;
use target::ControlledTarget;

/// `roadtrain ctl`
pub(crate) fn run(args: &CtlArgs, global: &GlobalArgs) -> CommandResult {
    logs::start("warn", global.verbose);
    match &args.command {
        command if args.target.group.is_some() || args.target.pool.is_some() => {
            group::run(&args.target, command, global)
        }
        CtlCommand::Gateway(_) => {
            Err(CommandFailure::usage("a gateway is of a group: name it with --group and --pool"))
        }
        CtlCommand::Bitmap(command) => {
            ControlledTarget::choose_attachment(&args.target, global.json)?.bitmap(command)
        }
        CtlCommand::Trace { output } => trace(args.target.id.as_slice(), output.as_deref()),
        CtlCommand::Cluster(command) => {
            let target = ControlledTarget::choose(&args.target, &args.command, global.json)?;
            target.cluster(command, &args.target.ceph)
        }
        command => run_at(&ControlledTarget::choose(&args.target, command, global.json)?, command),
    }
}

fn run_at(target: &ControlledTarget, command: &CtlCommand) -> CommandResult {
    match command {
        CtlCommand::Subsystem(command) => target.subsystem(command),
        CtlCommand::Namespace(command) => target.namespace(command),
        CtlCommand::Snapshot(command) => target.snapshot(command.clone()),
        CtlCommand::Listener(command) => target.listener(command),
        CtlCommand::Host(command) => target.host(command),
        CtlCommand::Connection(command) => target.connection(command),
        CtlCommand::Volume(command) => target.volume(command),
        CtlCommand::Store(command) => target.store(command),
        CtlCommand::Device(command) => target.device(command),
        CtlCommand::Key(command) => target.key(command),
        CtlCommand::Referral(command) => target.referral(command),
        CtlCommand::Config(command) => target.config(command),
        CtlCommand::Upgrade => target.change_by(&Call::Upgrade),
        CtlCommand::Rpc { method, params } => rpc(target, method, params.as_deref()),
        CtlCommand::Bitmap(_)
        | CtlCommand::Cluster(_)
        | CtlCommand::Gateway(_)
        | CtlCommand::Trace { .. } => Ok(()), // done by the caller
    }
}

/// Calls one method, with its parameters as given.
fn rpc(target: &ControlledTarget, method: &str, params: Option<&str>) -> CommandResult {
    let params = params.map(serde_json::from_str::<Value>).transpose();
    let params = params.map_err(|error| CommandFailure::usage(format!("JSON: {error}")))?;
    output::json(&target.call(method, &params.unwrap_or_default())?)
}

/// Writes a trace of the recorded requests of the named processes; of all without names.
fn trace(names: &[String], output: Option<&Path>) -> CommandResult {
    let (sources, failed) = slow::gather(running::processes(names, &[])?);
    if let Some(failed) = failed {
        return Err(failed);
    }
    slow::trace::write(&sources, output)
}
