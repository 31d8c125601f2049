//! `roadtrain attach`: shows a remote namespace as a local block device until it is stopped.
//!
//! | file | purpose |
//! |---|---|
//! | `fronts` | the one place where a front-end is chosen |
//! | `running` | the running attachment: requests, changes, its end |
//! | `snapshot` | all of its counters |
//! | `background` | `--background`: a process of its own |

mod background;
mod bitmaps;
mod fronts;
mod running;
mod snapshot;

use crate::args::{AttachArgs, GlobalArgs};
use crate::failure::{CommandFailure, CommandResult};
use crate::registry::{AttachmentClaim, DeviceEntry, Registration, Registry, WritesSender};
use crate::signals::BlockedSignals;
use crate::{connect, logs, notify, output, terminal};
use roadtrain_front::spec::FrontSpec;
use roadtrain_front::system_resource::SystemResource;
use roadtrain_host_engine::HostConfig;
use roadtrain_manage::rpc::UnixServer;
use running::{AttachmentFacts, RunningAttachment};
use serde::Serialize;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use std::time::Duration;
use tracing::info;

/// Grace period of pending work after a signal, before it is abandoned.
const GRACE: Duration = Duration::from_millis(500);

/// `roadtrain attach`
pub(crate) fn run(args: &AttachArgs, global: &GlobalArgs) -> CommandResult {
    if args.daemon {
        background::start_session()?;
    }
    args.policy.check_options(None).map_err(CommandFailure::usage)?;
    let spec = fronts::choose(args)?;
    let config = connect::config_of_paths(&args.portals, &args.nqn, &args.connect)?;
    let config = connect::with_lanes(config, &args.lanes, &args.policy, args.wait);
    let policy = config.policy.for_device();
    let slow_over = args.slow_over.into();
    let config = HostConfig { class: args.class.into(), policy, slow_over, ..config };
    if args.background && !args.daemon {
        return background::start();
    }
    let signals = BlockedSignals::block()?;
    let signals = if args.daemon { signals } else { signals.of_terminal() };
    let mut registration = claim(args, &spec, &config)?;
    let sender = WritesSender { nqn: args.nqn.clone(), host_nqn: config.host_nqn.clone() };
    let (inherited, left) = Registry::of_user().open_writes(&sender);
    let config = HostConfig { inherited, ..config };
    let log = start_log(args, global, &mut registration)?;
    let spec = recover(spec, &mut registration);
    let address = config.address.to_string();
    let begin = || fronts::start(&spec, args, config);
    let attachment = signals.guard_with(GRACE, || abandon(&registration), begin)?;
    let facts = AttachmentFacts {
        id: registration.id().to_owned(),
        spec: spec.to_string(),
        address,
        nqn: args.nqn.clone(),
        policy: args.policy.policy.as_str(),
        class: args.class.to_string(),
    };
    let pulse = attachment.controller().pulse();
    let running = Arc::new(RunningAttachment::new(facts, attachment));
    let control = announce(&running, args, global, &mut registration, log);
    let end = control.as_ref().map_err(Clone::clone).and_then(|_| {
        let _watchdog = notify::watch(pulse)?;
        running.until_stopped(&signals, &mut registration)
    });
    notify::send(notify::NotifyState::Stopping);
    info!("stopping");
    let stopped = signals.guard_with(GRACE, || abandon(&registration), || running.stop());
    let open = running.view().open_writes();
    let noted = Registry::of_user().leave_open_writes(registration.id(), &sender, &open, &left);
    end.and(stopped).and(noted)
}

/// Reports that the attachment is ready. Serves the control socket until the result is dropped.
fn announce(
    running: &Arc<RunningAttachment>,
    args: &AttachArgs,
    global: &GlobalArgs,
    registration: &mut Registration,
    log: Option<File>,
) -> CommandResult<UnixServer> {
    let control = running.serve_control(&registration.control_socket())?;
    running.update_entry(registration)?;
    if let Some(address) = args.metrics {
        running.serve_metrics(address)?;
    }
    output::ready(&ready(&running.devices(), args, registration, global.json)?)?;
    if args.daemon {
        background::detach_streams(log)?;
    }
    notify::send(notify::NotifyState::Ready);
    Ok(control)
}

fn claim(args: &AttachArgs, spec: &FrontSpec, config: &HostConfig) -> CommandResult<Registration> {
    let (id, nqn) = (args.id.as_deref(), args.nqn.clone());
    Registry::of_user().claim(&AttachmentClaim {
        id,
        spec,
        address: config.address.to_string(),
        nqn,
    })
}

/// Starts logging: to the named file, in the background to the attachment's own, else to stderr.
fn start_log(
    args: &AttachArgs,
    global: &GlobalArgs,
    registration: &mut Registration,
) -> CommandResult<Option<File>> {
    let path = match &args.log {
        Some(path) => std::path::absolute(path)?,
        None if args.daemon => registration.log_file(),
        None => {
            logs::start("info", global.verbose);
            return Ok(None);
        }
    };
    let open = OpenOptions::new().append(true).create(true).mode(0o600).open(&path);
    let file = open.map_err(|error| {
        let problem = output::file_problem(&path, &error);
        CommandFailure::failed(format!("--log {}: {problem}", path.display()))
    })?;
    logs::start_file("info", global.verbose, file.try_clone()?);
    registration.set_log(path)?;
    Ok(Some(file))
}

/// Chooses the device that an earlier process has left open for recovery.
fn recover(spec: FrontSpec, registration: &mut Registration) -> FrontSpec {
    for note in registration.notes.drain(..) {
        info!("{note}");
    }
    match (&spec, registration.recovered.first()) {
        (FrontSpec::Ublk(None), Some(SystemResource::Ublk(id))) => {
            info!("taking over /dev/ublkb{id}");
            FrontSpec::Ublk(Some(*id))
        }
        _ => spec,
    }
}

/// Abandons work that does not end after a signal, and removes the leftovers.
fn abandon(registration: &Registration) {
    terminal::say("roadtrain: interrupted");
    registration.clean_up();
}

/// Formats the line that reports readiness: `ready NAME... NQN nsid N,... id ID`.
fn ready(
    devices: &[DeviceEntry],
    args: &AttachArgs,
    registration: &Registration,
    json: bool,
) -> CommandResult<String> {
    #[derive(Serialize)]
    struct Ready<'a> {
        ready: bool,
        id: &'a str,
        pid: u32,
        nqn: &'a str,
        devices: &'a [DeviceEntry],
    }
    let (id, nqn) = (registration.id(), args.nqn.as_str());
    if json {
        let ready = Ready { ready: true, id, pid: std::process::id(), nqn, devices };
        return Ok(serde_json::to_string(&ready).map_err(std::io::Error::from)?);
    }
    let names: Vec<&str> =
        devices.iter().flat_map(|device| &device.names).map(String::as_str).collect();
    let nsids: Vec<String> = devices.iter().map(|device| device.nsid.to_string()).collect();
    Ok(format!("ready {} {nqn} nsid {} id {id}", names.join(" "), nsids.join(",")))
}
