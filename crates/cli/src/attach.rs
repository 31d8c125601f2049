//! `roadtrain attach`: shows a remote namespace as a local block device until it is told to stop.

use crate::args::{AttachArgs, GlobalArgs};
use crate::failure::{Failure, Outcome};
use crate::signals::{Signal, Signals};
use crate::units::show_bytes;
use crate::{connect, logs, output};
use roadtrain_engine::host::HostConfig;
use roadtrain_front::nbd::{AttachConfig, AttachError, Attachment, BUFFER_BYTES_MIN, NbdAddress};
use std::io::ErrorKind;
use tracing::info;

/// `roadtrain attach`
pub(crate) fn run(args: &AttachArgs, global: &GlobalArgs) -> Outcome {
    let address: NbdAddress =
        args.front.parse().map_err(|e| Failure::usage(format!("--as {e}")))?;
    logs::start("info", global.verbose);
    let config = connect::config(&args.portal, &args.nqn, &args.connect)?;
    let config = connect::with_lanes(config, &args.lanes, &args.policy, args.wait);
    let config = HostConfig { class: args.class.into(), ..config };
    let buffer_bytes_max = args.buffers.map(|bytes| buffers(bytes, &config)).transpose()?;
    let attach = AttachConfig { buffer_bytes_max, ..AttachConfig::new(args.nsid, address) };
    let signals = Signals::block()?;
    let attachment = signals.guard(|| Attachment::start(config, &attach))?;
    let uri = attachment.address().uri();
    output::line(&format!("ready {uri} {} nsid {}", args.nqn, args.nsid))?;
    while signals.wait() != Signal::Stop {}
    info!("stopping");
    attachment.stop();
    Ok(())
}

/// `bytes` over all reactors, if that is enough.
fn buffers(bytes: u64, config: &HostConfig) -> Outcome<usize> {
    let reactors = config.cores.len().clamp(1, config.lanes as usize);
    let least = BUFFER_BYTES_MIN * reactors;
    usize::try_from(bytes).ok().filter(|bytes| *bytes >= least).ok_or_else(|| {
        let (asked, least) = (show_bytes(bytes), show_bytes(least as u64));
        Failure::usage(format!(
            "--buffers: {asked} is too little for {reactors} reactors: write {least} or more"
        ))
    })
}

impl From<AttachError> for Failure {
    fn from(error: AttachError) -> Failure {
        match error {
            AttachError::Host(error) => error.into(),
            AttachError::NoNamespace { .. } => {
                Failure::failed(format!("{error}: choose one with --nsid"))
            }
            AttachError::Listen(ref cause) => {
                let advice = match cause.kind() {
                    ErrorKind::AddrInUse => ": another server has this address, choose another",
                    ErrorKind::NotFound => ": the directory must exist",
                    ErrorKind::PermissionDenied => ": choose a path that this user may write to",
                    _ => "",
                };
                Failure::failed(format!("--as: {error}{advice}"))
            }
        }
    }
}
