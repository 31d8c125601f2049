//! The old side of a takeover: this target releases its resources to another process, and takes them back if that
//! fails.
//!
//! ```text
//! new process (takeover)                      this process
//!   take_over   ------------------------------>
//!               <------------------------------  its sockets
//!   proceed     ------------------------------>  no new connections; hosts are notified; commands end;
//!                                                flush; files and devices are closed
//!               <------------------------------  released, with the reservations
//!   opens files and devices; serves
//!   serving     ------------------------------>  its name is free; ends
//! ```
//!
//! Before `proceed` nothing changes here. After it this process waits for `serving`. If that does not come, it makes
//! sure that the other process has ended, and serves again.

use super::AfterTakeover;
use super::served::RunningTarget;
use super::successor::{OPEN_POLL, Successor};
use super::{ServeResources, management, upgrade};
use crate::control::socket::PendingReply;
use crate::control::{
    Call, ControlRefusal, KnownReservations, ProceedReply, RefusalReason, TakeOverReply,
    descriptors,
};
use crate::failure::{CommandFailure, CommandResult};
use crate::notify::{self, NotifyState};
use crate::registry::ProcessIdentity;
use crate::signals::{self, BlockedSignals, Signal};
use roadtrain_manage::rpc::ReleasedStores;
use roadtrain_store::StoreKind;
use roadtrain_target_engine::{
    ConfigError, Export, ExportBlocks, HandOverError, Inherited, InheritedReservations, Server,
    ServerConfig, ServerError,
};
use roadtrain_target_proto::TargetConfig;
use serde_json::json;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use tracing::{error, info, warn};

/// Time limit for the new process to check its configuration.
const PROCEED_WAIT: Duration = Duration::from_secs(10);
/// Time limit for the new process to open files and devices.
const SERVING_WAIT: Duration = Duration::from_secs(30);
/// Time for which files and devices may stay in use after a failed process has ended.
const OPEN_WAIT: Duration = Duration::from_secs(10);
/// Time limit for requests that use a store of volumes.
const VOLUMES_WAIT: Duration = Duration::from_secs(30);

/// Outcome of a takeover.
pub(super) enum HandoverOutcome {
    /// The other process serves; writes from before may be lost.
    Over(Option<String>),
    /// This process serves, as before.
    Back,
}

impl RunningTarget {
    /// Registers the process of `reply` as successor, and wakes the main thread for the takeover.
    pub(super) fn take_over(&self, reply: PendingReply) {
        let process = match self.check_successor(&reply) {
            Ok(process) => process,
            Err(refusal) => {
                let _ = reply.send(Err(refusal)); // the other process may be gone
                return;
            }
        };
        match self.set_successor(Successor { reply, process }) {
            Ok(()) => signals::take_over_self(),
            Err(second) => {
                let refusal = ControlRefusal::new(
                    RefusalReason::Exists,
                    "another process is taking over already",
                );
                let _ = second.reply.send(Err(refusal));
            }
        }
    }

    /// Returns the successor's process, if it may take over.
    fn check_successor(&self, reply: &PendingReply) -> Result<ProcessIdentity, ControlRefusal> {
        let failed = |error: std::io::Error| ControlRefusal::new(RefusalReason::Failed, error);
        let peer = descriptors::peer(&reply.stream).map_err(failed)?;
        if peer.uid != rustix::process::geteuid() {
            return Err(ControlRefusal::new(
                RefusalReason::Request,
                "only a process of the same user takes over",
            ));
        }
        if self.listens_on_ethernet() {
            return Err(ControlRefusal::new(
                RefusalReason::Invalid,
                "it listens on Ethernet, whose lanes cannot be taken over: stop it, and start the new one",
            ));
        }
        check_kept(&self.server().exports())?;
        let managed = self.manager().map_or(Ok(()), |manager| manager.check_kept());
        managed.map_err(|lost| ControlRefusal::new(RefusalReason::Invalid, lost))?;
        Ok(ProcessIdentity::of(peer.pid.as_raw_nonzero().get().cast_unsigned()))
    }
}

/// Checks that another process can open all exports.
fn check_kept(exports: &TargetConfig<Export>) -> Result<(), ControlRefusal> {
    for subsystem in &exports.subsystems {
        for export in &subsystem.namespaces {
            let ExportBlocks::Spec(spec) = &export.blocks else { continue };
            let has_name = export.uuid.is_some() || export.nguid.is_some();
            let why = match spec.kind {
                StoreKind::File { .. } | StoreKind::Block { .. } | StoreKind::Remote(_) => continue,
                #[cfg(feature = "rbd")]
                StoreKind::Rbd(_) => continue,
                StoreKind::Null { .. } if has_name => continue,
                StoreKind::Null { .. } => "would be another disk: give it a uuid",
                StoreKind::Memory { .. } | StoreKind::Ssd { .. } => {
                    "is in this process's memory, and would be lost: remove it first"
                }
            };
            let (nsid, nqn) = (export.nsid, &subsystem.nqn);
            let message = format!("namespace {nsid} of {nqn} {why}");
            let place = Some(format!("namespace {nsid} of {nqn}").into());
            return Err(ControlRefusal {
                place,
                ..ControlRefusal::new(RefusalReason::Invalid, message)
            });
        }
    }
    Ok(())
}

/// Hands everything over to `successor`.
///
/// # Errors
/// No process serves any more; this one has to end.
pub(super) fn run(
    served: &Arc<RunningTarget>,
    successor: &mut Successor,
    (resources, signals): (&mut ServeResources, &BlockedSignals),
) -> CommandResult<HandoverOutcome> {
    let pid = successor.process.pid;
    let Some(sockets) = share_sockets(served, successor) else {
        info!(pid, "the process that wanted to take over has not proceeded");
        return Ok(HandoverOutcome::Back);
    };
    info!(pid, "another process takes over");
    let server = served.server();
    let mut config = served.engine_config().as_changed(&server.exports(), server.addresses());
    resources.management.unload(&mut config); // it has volumes open
    let released = resources.management.release();
    let (reservations, ended) =
        server.hand_over(|pause| signals.wait_for(pause) != Some(Signal::Stop));
    drop(server);
    let ended = released.map_or(Ok(()), |released| wait_until_released(&released)).and(ended);
    let lost = match ended {
        Ok(()) => None,
        Err(HandOverError::Unsaved(error)) => Some(error.to_string()),
        Err(error @ HandOverError::Held(_)) => {
            let refusal = ControlRefusal::new(RefusalReason::Store, &error);
            let _ = successor.reply.send(Err(refusal));
            return Err(CommandFailure::failed(error));
        }
    };
    lost.iter().for_each(|lost| error!("{lost}"));
    let inherited = Inherited { sockets, reservations };
    let released = ProceedReply {
        reservations: known_reservations(&inherited.reservations),
        lost: lost.clone(),
    };
    let sent = successor.reply.send(Ok(json!(released)));
    match sent.and_then(|()| successor.reply.next_call(SERVING_WAIT)) {
        Ok(Some(Call::Serving)) => {
            notify::send(NotifyState::MainPid(pid));
            drop(resources.registration.take());
            let _ = successor.reply.send(Ok(json!({})));
            upgrade::done(served, pid);
            info!(pid, "the other process serves");
            Ok(HandoverOutcome::Over(lost))
        }
        Ok(_) => resume(served, (successor, resources), (config, inherited), "it has ended"),
        Err(error) => {
            resume(served, (successor, resources), (config, inherited), &error.to_string())
        }
    }
}

/// Shares the sockets; returns them when the other process requests to proceed.
fn share_sockets(served: &RunningTarget, successor: &mut Successor) -> Option<Vec<TcpListener>> {
    let server = served.server();
    let sockets = server.share_sockets();
    let descriptors: Vec<_> = sockets.iter().map(AsFd::as_fd).collect();
    let drain_seconds = served.engine_config().drain_timeout.as_secs() + 1;
    let shared =
        TakeOverReply { sockets: sockets.len(), drain_seconds, state: served.state_file() };
    let sent = successor.reply.send_with(Ok(json!(shared)), &descriptors);
    match sent.and_then(|()| successor.reply.next_call(PROCEED_WAIT)) {
        Ok(Some(Call::Proceed)) => Some(sockets),
        Ok(_) => None,
        Err(error) => {
            warn!(pid = successor.process.pid, "not taken over: {error}");
            None
        }
    }
}

fn known_reservations(reservations: &[InheritedReservations]) -> Vec<KnownReservations> {
    let known = |reserved: &InheritedReservations| KnownReservations {
        nqn: reserved.nqn.clone(),
        nsid: reserved.nsid,
        image: String::from_utf8_lossy(&reserved.image).into_owned(),
    };
    reservations.iter().map(known).collect()
}

/// Waits until no request uses a store of volumes any more: only one process may have it open.
fn wait_until_released(released: &ReleasedStores) -> Result<(), HandOverError> {
    let until = Instant::now() + VOLUMES_WAIT;
    while !released.is_gone() {
        if Instant::now() >= until {
            return Err(HandOverError::Held(
                "a JSON-RPC request about a volume does not end".into(),
            ));
        }
        thread::sleep(OPEN_POLL);
    }
    Ok(())
}

/// Serves the former exports again.
fn resume(
    served: &Arc<RunningTarget>,
    (successor, resources): (&Successor, &mut ServeResources),
    (mut config, inherited): (ServerConfig, Inherited),
    why: &str,
) -> CommandResult<HandoverOutcome> {
    let pid = successor.process.pid;
    warn!(pid, "the new process does not serve: {why}");
    successor.end()?;
    let failed = |error: &dyn std::fmt::Display| {
        CommandFailure::failed(format!("this process cannot serve again: {error}"))
    };
    let model = management::load(&resources.config, &mut config);
    let model = model.map_err(|failure| failed(&failure.message))?;
    let server = open_soon(&config, &inherited, OPEN_WAIT).map_err(|error| failed(&error))?;
    served.replace(server);
    let (own, files) = (&resources.config, resources.files.clone());
    let over = AfterTakeover(true);
    let web = over.or_without(management::web(own))?;
    resources.management = management::start(own, web, over, (&resources.methods, model, files))?;
    warn!("this process serves again");
    Ok(HandoverOutcome::Back)
}

/// Starts a target; retries while files and devices are still in use.
pub(super) fn open_soon(
    config: &ServerConfig,
    inherited: &Inherited,
    within: Duration,
) -> Result<Server, ServerError> {
    let until = Instant::now() + within;
    loop {
        match Server::succeed(config.clone(), inherited) {
            Err(ServerError::Config(ConfigError::Store { .. })) if Instant::now() < until => {
                thread::sleep(OPEN_POLL);
            }
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::NamespaceSettings;
    use roadtrain_target_engine::Subsystem;

    #[test]
    fn what_would_be_lost_is_refused_by_its_name() {
        let check = |spec: &str| {
            let spec: NamespaceSettings = spec.parse().unwrap();
            let namespaces = vec![spec.export().unwrap()];
            let subsystem = Subsystem { namespaces, ..Subsystem::new("nqn.x:y") };
            check_kept(&TargetConfig { subsystems: vec![subsystem], ..TargetConfig::default() })
        };
        let uuid = "uuid=6b1a5e1c-4c52-4a0e-9d0e-3a4f5b6c7d8e";
        for kept in ["file:a,nsid=1", "block:/dev/x,nsid=1", &format!("null:1GiB,nsid=1,{uuid}")] {
            check(kept).unwrap();
        }
        for lost in [
            "mem:1MiB,nsid=3",
            "ssd:1MiB,nsid=3",
            "null:1GiB,nsid=3",
            &format!("mem:1MiB,nsid=3,{uuid}"),
        ] {
            let message = check(lost).unwrap_err().message;
            assert!(message.starts_with("namespace 3 of nqn.x:y "), "{message}");
        }
    }
}
