//! Chooses a front-end: checks its options, and starts it.

use crate::addresses::check_socket_path;
use crate::args::{AttachArgs, BitmapArg, FrontArgs};
use crate::failure::{CommandFailure, CommandResult};
use crate::keys::file;
use crate::units::show_bytes;
use roadtrain_front::attachment::{AttachError, Attachment};
use roadtrain_front::bitmaps::{BitmapSpec, GRANULARITY_BYTES};
use roadtrain_front::fuse::{FuseAttachment, FuseConfig};
use roadtrain_front::nbd::{
    BUFFER_BYTES_MIN, NbdAddress, NbdAttachment, NbdClients, NbdConfig, NbdTls,
};
use roadtrain_front::spec::{FrontKind, FrontSpec};
use roadtrain_front::ublk::{UblkAttachment, UblkConfig};
use roadtrain_front::vhost_user::{VhostUserAttachment, VhostUserConfig};
use roadtrain_host_engine::HostConfig;
use roadtrain_system::memory;
use std::io::{self, ErrorKind};
use std::path::Path;

/// Default NSID of front-ends that show one namespace.
const NSID_DEFAULT: u32 = 1;

/// Parses `--as`, and checks that the options are those of that front-end.
///
/// # Errors
/// A text that names no front-end, or an option of another one.
pub(super) fn choose(args: &AttachArgs) -> CommandResult<FrontSpec> {
    let spec: FrontSpec =
        args.front.parse().map_err(|e| CommandFailure::usage(format!("--as {e}")))?;
    refuse_foreign(&args.options, spec.kind())?;
    if let FrontSpec::Nbd(NbdAddress::Unix(_)) = spec
        && tls_option(&args.options).is_some()
    {
        let why = "a Unix socket has none: the permissions of its directory decide which users may connect";
        return Err(CommandFailure::usage(format!("TLS of nbd: {why}; use nbd:tcp:HOST:PORT")));
    }
    let spec = spec.absolute()?;
    if let FrontSpec::Nbd(NbdAddress::Unix(path)) | FrontSpec::VhostUser(path) = &spec {
        check_socket_path(path, 0).map_err(|e| CommandFailure::usage(format!("--as: {e}")))?;
    }
    Ok(spec)
}

/// Refuses options that this front-end does not have.
fn refuse_foreign(options: &FrontArgs, kind: FrontKind) -> CommandResult {
    let all: [(&str, bool, &[FrontKind]); 8] = [
        ("--loop", options.loop_device, &[FrontKind::Fuse]),
        ("--fuse-uring", options.fuse_uring.is_some(), &[FrontKind::Fuse]),
        ("--buffers", options.buffers.is_some(), &[FrontKind::Nbd]),
        ("--nbd-insecure", options.nbd_insecure, &[FrontKind::Nbd]),
        ("--nbd-tls-psk", options.nbd_tls_psk.is_some(), &[FrontKind::Nbd]),
        ("--nbd-tls-certificates", options.nbd_tls_certificates.is_some(), &[FrontKind::Nbd]),
        ("--dirty-bitmap", !options.dirty_bitmap.is_empty(), &[FrontKind::Nbd]),
        ("--recover", options.recover, &[FrontKind::Ublk]),
    ];
    for (option, given, kinds) in all {
        if given && !kinds.contains(&kind) {
            let kinds: Vec<String> = kinds.iter().map(ToString::to_string).collect();
            let kinds = kinds.join(" and ");
            return Err(CommandFailure::usage(format!("{option}: {kind} has none, only {kinds}")));
        }
    }
    Ok(())
}

/// Connects, and starts the front-end of `spec`.
///
/// # Errors
/// The connection or the front-end fails; no resource is left then.
pub(super) fn start(
    spec: &FrontSpec,
    args: &AttachArgs,
    host: HostConfig,
) -> CommandResult<Box<dyn Attachment>> {
    let options = &args.options;
    Ok(match spec {
        FrontSpec::Nbd(address) => {
            let buffer_bytes_max =
                options.buffers.map(|bytes| nbd_buffers(bytes, &host)).transpose()?;
            let nsid = args.nsid.unwrap_or(NSID_DEFAULT);
            let clients = if options.nbd_insecure { NbdClients::Anyone } else { NbdClients::Local };
            let config = NbdConfig::new(nsid, address.clone());
            let tls = nbd_tls(options)?;
            let bitmaps = bitmaps(options)?;
            let config = NbdConfig { clients, tls, buffer_bytes_max, bitmaps, ..config };
            Box::new(NbdAttachment::start(host, &config)?)
        }
        FrontSpec::Fuse(mountpoint) => {
            let config = FuseConfig {
                mountpoint: mountpoint.clone(),
                nsid: args.nsid,
                loop_devices: options.loop_device,
                uring: options.fuse_uring.unwrap_or_default(),
            };
            Box::new(FuseAttachment::start(host, &config)?)
        }
        FrontSpec::VhostUser(path) => {
            let config = VhostUserConfig { nsid: args.nsid, path: path.clone() };
            Box::new(VhostUserAttachment::start(host, &config)?)
        }
        FrontSpec::Ublk(id) => {
            let nsid = args.nsid.unwrap_or(NSID_DEFAULT);
            let config = UblkConfig { recover: options.recover, ..UblkConfig::new(nsid, *id) };
            Box::new(UblkAttachment::start(host, &config)?)
        }
    })
}

/// Returns the dirty bitmaps to keep.
fn bitmaps(options: &FrontArgs) -> CommandResult<Vec<BitmapSpec>> {
    let granularity_bytes = options.dirty_bitmap_granularity.unwrap_or(GRANULARITY_BYTES);
    let spec = |BitmapArg { name, file }: &BitmapArg| {
        let file = file.as_ref().map(std::path::absolute).transpose()?;
        Ok(BitmapSpec { name: name.clone(), file, granularity_bytes })
    };
    options.dirty_bitmap.iter().map(spec).collect()
}

/// Returns the option that requests TLS, and its file or directory.
fn tls_option(options: &FrontArgs) -> Option<(&'static str, &Path)> {
    let keys = options.nbd_tls_psk.as_deref().map(|path| ("--nbd-tls-psk", path));
    let directory = options.nbd_tls_certificates.as_deref();
    keys.or_else(|| directory.map(|path| ("--nbd-tls-certificates", path)))
}

/// Returns the TLS configuration for clients of NBD.
fn nbd_tls(options: &FrontArgs) -> CommandResult<Option<NbdTls>> {
    let Some((option, path)) = tls_option(options) else { return Ok(None) };
    // Runs before any byte of a key is in memory.
    memory::keep_secret().map_err(|error| CommandFailure::failed(format!("{option}: {error}")))?;
    let path = std::path::absolute(path)?;
    let verifies_clients = options.nbd_tls_verify_peer;
    let key = match options.nbd_tls_psk {
        Some(_) => path.clone(),
        None => path.join("server-key.pem"),
    };
    file::warn_if_readable(&key);
    Ok(Some(match options.nbd_tls_psk {
        Some(_) => NbdTls::Keys(path),
        None => NbdTls::Certificates { directory: path, verifies_clients },
    }))
}

/// Checks that `bytes` are enough for all reactors.
fn nbd_buffers(bytes: u64, config: &HostConfig) -> CommandResult<usize> {
    let reactors = config.cores.len().clamp(1, config.lanes as usize);
    let least = BUFFER_BYTES_MIN * reactors;
    usize::try_from(bytes).ok().filter(|bytes| *bytes >= least).ok_or_else(|| {
        let (requested, least) = (show_bytes(bytes), show_bytes(least as u64));
        let each = show_bytes(BUFFER_BYTES_MIN as u64);
        CommandFailure::usage(format!(
            "--buffers: {requested} is too little: write {least} or more, {each} for each reactor"
        ))
    })
}

impl From<AttachError> for CommandFailure {
    fn from(error: AttachError) -> CommandFailure {
        match error {
            AttachError::Host(error) => error.into(),
            AttachError::NoNamespace { .. } => {
                CommandFailure::failed(format!("{error}: choose one with --nsid"))
            }
            AttachError::Show { ref source, .. } => {
                CommandFailure::failed(format!("--as: {error}{}", advice(source)))
            }
        }
    }
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::NotFound => ": the directory must exist",
        ErrorKind::PermissionDenied => ": this user may not do that",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{CommandLine, RoadtrainCommand};
    use clap::Parser;

    fn choice(options: &str) -> CommandResult<FrontSpec> {
        let line = format!("roadtrain attach -a h -n nqn.x:y {options}");
        let cli = CommandLine::try_parse_from(line.split_whitespace()).unwrap();
        let RoadtrainCommand::Attach(args) = cli.command else { panic!() };
        choose(&args)
    }

    #[test]
    fn options_of_other_front_ends_are_refused() {
        for (options, good) in [
            ("--as nbd:unix:/a --buffers 40MiB", true),
            ("--as nbd:unix:/a --loop", false),
            ("--as fuse:/m --loop", true),
            ("--as fuse:/m --buffers 40MiB", false),
            ("--as fuse:/m --fuse-uring on", true),
            ("--as ublk --fuse-uring off", false),
            ("--as ublk --loop", false),
            ("--as nbd:tcp:h:1 --nbd-insecure", true),
            ("--as ublk --nbd-insecure", false),
            ("--as nbd:tcp:h:1 --nbd-tls-psk f", true),
            ("--as nbd:tcp:h:1 --nbd-tls-certificates d --nbd-tls-verify-peer", true),
            ("--as nbd:unix:/a --nbd-tls-psk f", false),
            ("--as fuse:/m --nbd-tls-certificates d", false),
            ("--as ublk:0 --recover", true),
            ("--as nbd:unix:/a --recover", false),
            ("--as nbd:unix:/a --dirty-bitmap b=/f --dirty-bitmap c", true),
            ("--as fuse:/m --dirty-bitmap b", false),
            ("--as vhost-user:/v --loop", false),
            ("--as nbd:tcp:10809:10809", false),
        ] {
            let chosen = choice(options);
            assert_eq!(chosen.is_ok(), good, "{options}: {chosen:?}");
        }
        let error = choice("--as ublk --loop").unwrap_err().message;
        assert_eq!(error, "--loop: ublk has none, only fuse");
        let long = format!("--as nbd:unix:/{}", "p".repeat(110));
        let error = choice(&long).unwrap_err().message;
        assert!(error.contains("has 111 bytes, and 107 at most"), "{error}");
    }
}
