//! The new side of a takeover from a running target; `handover` describes the protocol.

use super::handover::open_soon;
use super::successor::OPEN_POLL;
use crate::args::ServeArgs;
use crate::config::ServeConfig;
use crate::control::{
    Call, ControlRefusal, KnownReservations, ProceedReply, TakeOverReply, socket,
};
use crate::failure::{CommandFailure, CommandResult};
use crate::registry::{ProcessIdentity, TargetEntry, Targets};
use roadtrain_store::StoreKind;
use roadtrain_target_engine::{
    ExportBlocks, Inherited, InheritedReservations, Server, ServerConfig,
};
use serde::de::DeserializeOwned;
use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};
use tracing::{error, info, warn};

/// Time limit of the old process after it has notified its hosts: for stores, and for the last flush.
const RELEASE_WAIT: Duration = Duration::from_secs(80);
/// Time limit for an old process that failed during the takeover to end and close its files.
const GONE_WAIT: Duration = Duration::from_secs(30);
/// Time limit for the old process to release its name.
const NAME_WAIT: Duration = Duration::from_secs(5);

/// The process that still serves.
pub(super) struct Predecessor {
    stream: UnixStream,
    entry: TargetEntry,
    inherited: Inherited,
    drain: Duration,
}

impl Predecessor {
    /// Finds the process, checks all that can be checked before it stops, and receives its sockets.
    ///
    /// # Errors
    /// No target is found, it refuses, or this process could not serve. The other one continues.
    pub(super) fn find(
        (args, own): (&ServeArgs, &ServeConfig),
        config: &ServerConfig,
    ) -> CommandResult<Predecessor> {
        if config.ether.is_some() {
            return Err(CommandFailure::usage(
                "--takeover: not with Ethernet: stop the other target first",
            ));
        }
        config.check().map_err(CommandFailure::usage)?;
        check_paths(config)?;
        let targets = Targets::of_user();
        let entry = choose(targets.entries()?, args, config)?;
        let stream = UnixStream::connect(targets.control_socket(&entry.id));
        let unresponsive = |error: io::Error| unresponsive(&entry, &error);
        let stream = stream.map_err(unresponsive)?;
        let (reply, descriptors) =
            socket::call_for_descriptors(&stream, &Call::TakeOver).map_err(unresponsive)?;
        let shared: TakeOverReply = parse(reply.map_err(|refusal| refused(&entry, refusal))?)?;
        check_state(shared.state.as_deref(), own)?;
        let sockets: Vec<TcpListener> = descriptors.into_iter().map(TcpListener::from).collect();
        if sockets.len() != shared.sockets {
            let (came, of) = (sockets.len(), shared.sockets);
            return Err(CommandFailure::failed(format!(
                "--takeover: {came} of {of} sockets were received: try again"
            )));
        }
        sockets.iter().try_for_each(Inherited::check_socket)?;
        let mut inherited = Inherited { sockets, reservations: Vec::new() };
        inherited.listen(&config.listen, config.mptcp).map_err(CommandFailure::failed)?;
        let drain = Duration::from_secs(shared.drain_seconds);
        Ok(Predecessor { stream, entry, inherited, drain })
    }

    /// Makes the process end its connections and close its files. Returns how long they may still be in use.
    ///
    /// # Errors
    /// The process does not release them, and serves again.
    pub(super) fn release(&mut self) -> CommandResult<Duration> {
        let (id, pid) = (&self.entry.id, self.entry.process.pid);
        info!("takes over from {id} (process {pid})");
        let within = self.drain + RELEASE_WAIT;
        let mut open_wait = Duration::ZERO;
        match socket::call_over(&self.stream, &Call::Proceed, within) {
            Ok(Ok(release)) => {
                let ProceedReply { reservations, lost } = parse(release)?;
                lost.iter().for_each(|lost| error!("the other process: {lost}"));
                self.inherited.reservations = reservations.into_iter().map(reserved).collect();
            }
            Ok(Err(refusal)) => {
                wait_for_end(self.entry.process, &refusal.message)?;
                open_wait = GONE_WAIT;
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                wait_for_end(self.entry.process, "it has closed the connection")?;
                open_wait = GONE_WAIT;
            }
            Err(error) => return Err(unresponsive(&self.entry, &error)),
        }
        Ok(open_wait)
    }

    /// Starts serving in its place.
    ///
    /// # Errors
    /// This process cannot serve. The other one serves again.
    pub(super) fn succeed(
        &self,
        config: &ServerConfig,
        open_wait: Duration,
    ) -> CommandResult<Server> {
        Ok(open_soon(config, &self.inherited, open_wait)?)
    }

    /// Notifies the process that this one serves, so that it ends. Returns its name, which is free then.
    pub(super) fn finish(self) -> String {
        match socket::call_over(&self.stream, &Call::Serving, NAME_WAIT) {
            Ok(Ok(_)) => {}
            Ok(Err(refusal)) => warn!("the other process: {}", refusal.message),
            Err(error) => warn!("{}", unresponsive(&self.entry, &error).message),
        }
        self.entry.id
    }
}

/// Chooses the target by its name, its listeners or its configuration file.
fn choose(
    mut targets: Vec<TargetEntry>,
    args: &ServeArgs,
    config: &ServerConfig,
) -> CommandResult<TargetEntry> {
    let listens = |target: &TargetEntry| {
        config.listen.iter().any(|address| target.listeners.contains(&address.to_string()))
    };
    let file = args.config.as_deref().map(std::path::absolute).transpose()?;
    let has_file = |target: &TargetEntry| file.is_some() && target.config == file;
    targets.retain(|target| match &args.id {
        Some(id) => target.id == *id,
        None => listens(target) || has_file(target),
    });
    let what = || match &args.id {
        Some(id) => format!("called {id}"),
        None => "with one of these listeners".to_owned(),
    };
    match targets.len() {
        1 => Ok(targets.remove(0)),
        0 => Err(CommandFailure::connect(format!(
            "--takeover: no target {} runs here: start without --takeover; `roadtrain status` shows those that run",
            what()
        ))),
        _ => Err(CommandFailure::usage(
            "--takeover: several targets are meant: choose one with --id",
        )),
    }
}

/// Checks that this process uses the other one's state file, so that the objects of RPC exist again.
fn check_state(other: Option<&Path>, own: &ServeConfig) -> CommandResult {
    let mine = own.state.as_deref().map(std::path::absolute).transpose()?;
    match other {
        Some(other) if mine.as_deref() != Some(other) => Err(CommandFailure::usage(format!(
            "--takeover: what JSON-RPC requests have made is in {}: take over with that as {}, or start without --takeover",
            other.display(),
            own.spelling.name("state")
        ))),
        _ => Ok(()),
    }
}

/// Checks that files and devices exist, as far as possible while another process has them open.
fn check_paths(config: &ServerConfig) -> CommandResult {
    let check = |path: &Path, may_be_missing: bool| match std::fs::metadata(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound || !may_be_missing => {
            Err(CommandFailure::failed(format!("{}: {error}", path.display())))
        }
        _ => Ok(()),
    };
    let exports = config.subsystems.iter().flat_map(|subsystem| &subsystem.namespaces);
    exports.into_iter().try_for_each(|export| match &export.blocks {
        ExportBlocks::Spec(spec) => match &spec.kind {
            StoreKind::File { path, size, create } => check(path, size.is_some() && *create),
            StoreKind::Block { path } => check(path, false),
            _ => Ok(()),
        },
        ExportBlocks::Store(_) => Ok(()),
    })
}

/// Waits for the end of a process that does not release its files: they are closed then.
fn wait_for_end(process: ProcessIdentity, why: &str) -> CommandResult {
    let (pid, until) = (process.pid, Instant::now() + GONE_WAIT);
    warn!("process {pid}: {why}");
    while process.is_alive() {
        if Instant::now() >= until {
            let advice = "it still has its files and devices: see what it waits for, or end it";
            return Err(CommandFailure::failed(format!(
                "--takeover: process {pid}: {why}: {advice}"
            )));
        }
        thread::sleep(OPEN_POLL);
    }
    warn!("process {pid} has ended; this one opens its files and devices");
    Ok(())
}

fn unresponsive(entry: &TargetEntry, error: &io::Error) -> CommandFailure {
    let (id, pid) = (&entry.id, entry.process.pid);
    CommandFailure::connect(format!("--takeover: {id} (process {pid}) does not answer: {error}"))
}

fn refused(entry: &TargetEntry, refusal: ControlRefusal) -> CommandFailure {
    let message = format!("--takeover: {} refuses: {}", entry.id, refusal.message);
    CommandFailure { message, ..CommandFailure::from(refusal) }
}

fn parse<T: DeserializeOwned>(answer: serde_json::Value) -> CommandResult<T> {
    let nonsense = |error| CommandFailure::failed(format!("--takeover: an invalid reply: {error}"));
    serde_json::from_value(answer).map_err(nonsense)
}

fn reserved(known: KnownReservations) -> InheritedReservations {
    InheritedReservations { nqn: known.nqn, nsid: known.nsid, image: known.image.into_bytes() }
}
