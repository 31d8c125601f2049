//! `roadtrain ctl`: changes a running target, and tells it how things are around it.

mod objects;

use crate::args::{AnaPort, CtlArgs, CtlCommand, GlobalArgs};
use crate::config::{default_port, listener_of};
use crate::control::{Call, Change};
use crate::failure::Outcome;
use crate::registry::{TargetEntry, Targets};
use crate::{logs, target};
use roadtrain_engine::target::AnaListener;
use std::net::SocketAddr;

/// `roadtrain ctl`
pub(crate) fn run(args: &CtlArgs, global: &GlobalArgs) -> Outcome {
    logs::start("warn", global.verbose);
    let CtlCommand::Ana { listener, state } = &args.command else {
        return objects::run(args, global);
    };
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
    let change = Change::SetAna { listener: with_port(listener), state: *state };
    let call = Call::Apply { operations: vec![change] };
    target::tell(&targets, &chosen, &call, global)
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
