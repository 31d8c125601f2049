//! Methods of a running target.

use super::changes::subsystem_of;
use super::served::RunningTarget;
use super::{snapshots, upgrade};
use crate::control::socket::PendingReply;
use crate::control::{
    Call, ChangesReply, ControlRefusal, ControlReply, HostVisibleChange, RefusalReason,
    TARGET_METHODS,
};
use crate::signals;
use roadtrain_manage::bursts::Bursts;
use roadtrain_manage::rpc::message::{KeptRequest, MethodParams};
use roadtrain_manage::rpc::{CallerAccess, MethodOutcome, MethodTable, RpcError, serve_stream};
use serde_json::{Value, json};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{io, thread};
use tracing::warn;

/// Longest time to claim a standby namespace.
const CLAIM: Duration = Duration::from_secs(20);

/// Methods of a target: those of the control socket, and SPDK's.
pub(super) struct TargetMethods {
    served: Arc<RunningTarget>,
    bursts: Bursts,
}

impl TargetMethods {
    pub(super) fn new(served: Arc<RunningTarget>) -> TargetMethods {
        TargetMethods { served, bursts: Bursts::default() }
    }

    pub(super) fn served(&self) -> &Arc<RunningTarget> {
        &self.served
    }

    /// Serves requests on stdin, which is a socket, and stops at its end, so that the target does not outlive its
    /// parent.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn answer_on_stdin(self: Arc<Self>) -> io::Result<()> {
        let stream = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        let answer = move || {
            let ended = serve_stream(stream, self);
            ended.unwrap_or_else(|error| warn!("stdin: {error}"));
            signals::stop_self();
        };
        thread::Builder::new().name("roadtrain-rpc".into()).spawn(answer)?;
        Ok(())
    }
}

impl MethodTable for TargetMethods {
    fn names(&self) -> Vec<&'static str> {
        let own = TARGET_METHODS.iter().map(|method| method.name);
        let manager = self.served.manager();
        own.chain(manager.iter().flat_map(|manager| manager.names())).collect()
    }

    fn run(
        &self,
        name: &str,
        params: MethodParams<'_>,
        access: CallerAccess,
    ) -> Option<MethodOutcome> {
        let Some(method) = TARGET_METHODS.iter().find(|method| method.name == name) else {
            return self.served.manager()?.run(name, params, access);
        };
        let began = Instant::now();
        let result = match method.keeps_stream {
            true => Err(RpcError::method("only at the control socket, in a request of its own")),
            false => self.served.run(name, params, access).map_err(RpcError::from),
        };
        if let Some(manager) = self.served.manager() {
            let code = result.as_ref().map_or_else(|error| error.code, |_| 0);
            manager.count(method.name, code, began.elapsed());
        }
        Some(MethodOutcome { name: method.name, changes: method.changes, result })
    }

    fn bursts(&self) -> &Bursts {
        &self.bursts
    }

    fn keeps_stream(&self, name: &str) -> bool {
        TARGET_METHODS.iter().any(|method| method.name == name && method.keeps_stream)
    }

    fn keep(&self, request: KeptRequest, stream: UnixStream) {
        let call = Call::read(&request.method, Value::Null);
        let reply = PendingReply::new(request, stream);
        match call {
            Ok(Call::TakeOver) => self.served.take_over(reply),
            Ok(Call::Upgrade) => upgrade::begin(&self.served, reply),
            _ => drop(reply),
        }
    }
}

impl RunningTarget {
    fn run(&self, name: &str, params: MethodParams<'_>, access: CallerAccess) -> ControlReply {
        let params =
            params.read().map_err(|error| ControlRefusal::new(RefusalReason::Request, error))?;
        match Call::read(name, params)? {
            Call::Status => Ok(json!(self.report())),
            Call::Snapshot => Ok(json!(self.snapshot())),
            Call::Recorded => Ok(json!(self.server().recorded())),
            Call::Config if access != CallerAccess::Owner => {
                let hint = "only at the control socket: keys may be in it";
                Err(ControlRefusal::new(RefusalReason::Invalid, format!("{name}: {hint}")))
            }
            Call::Config => Ok(json!(self.config_text()?)),
            Call::ConfigDiff => Ok(json!(self.config_diff()?)),
            Call::Reload => Ok(json!(self.reload()?)),
            Call::Apply { operations } => self.apply(operations, access),
            Call::Claim { nqn, nsid } => self.claim(nqn, nsid),
            Call::Snapshots(call) => {
                let server = self.server();
                let nqn = subsystem_of(&server.exports(), call.nqn)?;
                snapshots::answer(&server, (&nqn, call.nsid), &call.action)
            }
            Call::Bitmaps(_)
            | Call::Stop
            | Call::Upgrade
            | Call::TakeOver
            | Call::Proceed
            | Call::Serving => Err(ControlRefusal::new(
                RefusalReason::Request,
                format!("{name} is not for a target"),
            )),
        }
    }

    /// Claims a standby namespace.
    fn claim(&self, nqn: Option<String>, nsid: u32) -> ControlReply {
        let server = self.server();
        let nqn = subsystem_of(&server.exports(), nqn)?;
        let mut changes = Vec::new();
        if server.claim(&nqn, nsid, CLAIM)? {
            let what = format!("namespace {nsid} of {nqn} is served here");
            changes.push(HostVisibleChange {
                what,
                nqn: Some(nqn),
                nsid: Some(nsid),
                address: None,
            });
        }
        Ok(json!(ChangesReply { changes, hint: None }))
    }
}
