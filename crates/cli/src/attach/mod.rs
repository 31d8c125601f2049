//! `roadtrain attach`: shows a remote namespace as a local block device until it is told to stop.

mod fronts;

use crate::args::{AttachArgs, GlobalArgs};
use crate::failure::Outcome;
use crate::signals::{Signal, Signals};
use crate::{connect, logs, output};
use roadtrain_engine::host::HostConfig;
use roadtrain_front::attachment::Attachment;
use tracing::info;

/// `roadtrain attach`
pub(crate) fn run(args: &AttachArgs, global: &GlobalArgs) -> Outcome {
    let spec = fronts::choose(args)?;
    logs::start("info", global.verbose);
    let config = connect::config(&args.portal, &args.nqn, &args.connect)?;
    let config = connect::with_lanes(config, &args.lanes, &args.policy, args.wait);
    let config = HostConfig { class: args.class.into(), ..config };
    let signals = Signals::block()?;
    let attachment = signals.guard(|| fronts::start(&spec, args, config))?;
    output::line(&ready(&*attachment, &args.nqn))?;
    while signals.wait() != Signal::Stop {}
    info!("stopping");
    attachment.stop();
    Ok(())
}

/// The line that says where everything is: `ready NAME... NQN nsid N,...`.
fn ready(attachment: &dyn Attachment, nqn: &str) -> String {
    let devices = attachment.devices();
    let names: Vec<&str> =
        devices.iter().flat_map(|device| &device.names).map(String::as_str).collect();
    let nsids: Vec<String> = devices.iter().map(|device| device.nsid.to_string()).collect();
    format!("ready {} {nqn} nsid {}", names.join(" "), nsids.join(","))
}
