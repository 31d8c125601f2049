//! Answers at the control socket of a running target.

use super::changes::subsystem_of;
use super::served::Served;
use super::{snapshots, upgrade};
use crate::control::{Call, Changed, Done, Refusal, Reply, Why, socket};
use crate::signals;
use serde_json::json;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use std::{io, thread};
use tracing::warn;

/// Longest time that a namespace that stands by takes until it is served.
const CLAIM: Duration = Duration::from_secs(20);

impl Served {
    /// Answers at `socket` from now on.
    ///
    /// # Errors
    /// The socket cannot be made.
    pub(super) fn answer_at(self: &Arc<Self>, socket: &Path) -> io::Result<()> {
        let served = self.clone();
        socket::serve(socket, move |call, asker: &UnixStream| match call {
            Call::TakeOver => served.take_over(asker).err().map(Err),
            Call::Upgrade => upgrade::begin(&served, asker).err().map(Err),
            call => Some(served.answer(call)),
        })
    }

    /// Answers on stdin, which is a socket, and stops at its end: so the target does not outlive its parent.
    ///
    /// # Errors
    /// There is no thread for it.
    pub(super) fn answer_on_stdin(self: &Arc<Self>) -> io::Result<()> {
        let stream = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        let served = self.clone();
        let answer = move || {
            let ended =
                socket::serve_stream(&stream, |call, _: &UnixStream| Some(served.answer(call)));
            ended.unwrap_or_else(|error| warn!("stdin: {error}"));
            signals::stop_self();
        };
        thread::Builder::new().name("roadtrain-ask".into()).spawn(answer)?;
        Ok(())
    }

    fn answer(&self, call: Call) -> Reply {
        match call {
            Call::Status => Ok(json!(self.report())),
            Call::Snapshot => Ok(json!(self.snapshot())),
            Call::Recorded => Ok(json!(self.server().recorded())),
            Call::Reload => Ok(json!(self.reload()?)),
            Call::Apply { operations } => self.apply(operations),
            Call::Claim { nqn, nsid } => self.claim(nqn, nsid),
            Call::Snapshots(call) => {
                let server = self.server();
                let nqn = subsystem_of(&server.exports(), call.nqn)?;
                snapshots::answer(&server, (&nqn, call.nsid), &call.action)
            }
            Call::Stop => Err(Refusal::not_for("a target")),
            Call::Upgrade | Call::TakeOver | Call::Proceed | Call::Serving => {
                Err(Refusal::new(Why::Request, "nobody takes over here"))
            }
        }
    }

    /// Serves a namespace that stands by.
    fn claim(&self, nqn: Option<String>, nsid: u32) -> Reply {
        let server = self.server();
        let nqn = subsystem_of(&server.exports(), nqn)?;
        let mut changes = Vec::new();
        if server.claim(&nqn, nsid, CLAIM)? {
            let what = format!("namespace {nsid} of {nqn} is served here");
            changes.push(Changed { what, nqn: Some(nqn), nsid: Some(nsid), address: None });
        }
        Ok(json!(Done { changes, hint: None }))
    }
}
