//! A target while it runs: what can be asked and changed, at the control socket and by SIGHUP.

use super::{export, subsystem, subsystems};
use crate::config::ServeConfig;
use crate::control::counters::Counters;
use crate::control::{Call, Change, Changed, Done, Refusal, Reply, Why, socket};
use crate::failure::{Failure, Outcome};
use crate::registry::TargetPlace;
use crate::signals;
use crate::status::target::{TargetReport, Traffic};
use roadtrain_engine::backend::BackendKind;
use roadtrain_engine::target::{Blocks, Export, Operation, Place, Server, ServerError};
use roadtrain_proto::target::TargetConfig;
use serde_json::json;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use std::{io, thread};
use tracing::{info, warn};

/// A running target, shared by the main thread and the one that answers.
pub(super) struct Served {
    server: Arc<Server>,
    /// Its name here, if it has one.
    id: String,
    listeners: Vec<String>,
    /// As it was read last. What needs a restart stays what it was, so that each reload says so again.
    config: Mutex<ServeConfig>,
    file: Option<PathBuf>,
    begun: Instant,
}

impl Served {
    pub(super) fn new(
        server: Arc<Server>,
        place: Option<&TargetPlace>,
        listeners: Vec<String>,
        (config, file): (ServeConfig, Option<&Path>),
    ) -> Served {
        Served {
            server,
            id: place.map_or_else(String::new, |place| place.id.clone()),
            listeners,
            config: Mutex::new(config),
            file: file.map(Path::to_owned),
            begun: Instant::now(),
        }
    }

    /// Answers at `socket` from now on.
    ///
    /// # Errors
    /// The socket cannot be made.
    pub(super) fn answer_at(self: &Arc<Self>, socket: &Path) -> io::Result<()> {
        let served = self.clone();
        socket::serve(socket, move |call, _: &UnixStream| Some(served.answer(call)))
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
            Call::Counters => Ok(json!(Counters::from(self.server.stats()))),
            Call::Reload => Ok(json!(self.reload()?)),
            Call::Apply { operations } => self.apply(operations),
            Call::Stop => Err(Refusal::not_for("a target")),
        }
    }

    /// Reads the configuration file again.
    ///
    /// # Errors
    /// The file cannot be; nothing has changed then.
    pub(super) fn reload(&self) -> Outcome<Done> {
        let Some(file) = &self.file else {
            return Err(Failure::usage("there is no configuration file to read again"));
        };
        let mut config = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        let new = ServeConfig::read(file)?;
        let hint = config.needs_restart(&new).then(|| {
            format!(
                "{}: only subsystems are reloaded; the other changes need a restart",
                file.display()
            )
        });
        hint.iter().for_each(|hint| warn!("{hint}"));
        let changes =
            self.server.reload(&subsystems(&new.subsystems)?).map_err(ServerError::from)?;
        info!(changes = changes.len(), "reloaded {}", file.display());
        config.subsystems = new.subsystems;
        Ok(Done { changes: changes.iter().map(Changed::from).collect(), hint })
    }

    fn apply(&self, changes: Vec<Change>) -> Reply {
        let mut exports = self.server.exports();
        let mut operations = Vec::new();
        for change in changes {
            // Each is meant as the ones before it leave things.
            let operation = operation(&exports, change)?;
            exports = exports.with(std::slice::from_ref(&operation))?;
            operations.push(operation);
        }
        let changes = self.server.apply(&operations)?;
        info!(changes = changes.len(), "changed at the control socket");
        let hint = match &self.file {
            Some(file) => format!(
                "not written to {}: a reload or a restart goes back to what that says",
                file.display()
            ),
            None => "it lasts until the target ends: there is no configuration file".to_owned(),
        };
        Ok(json!(Done { changes: changes.iter().map(Changed::from).collect(), hint: Some(hint) }))
    }

    fn report(&self) -> TargetReport {
        let (stats, usage) = (self.server.stats(), self.server.usage());
        let traffic = Traffic {
            uptime_seconds: self.begun.elapsed().as_secs_f64(),
            connections: usage.connections,
            in_backends: usage.backend_commands,
            buffer_bytes: usage.buffer_bytes,
            requests: stats.requests,
            data_bytes: stats.data_bytes,
        };
        let (config, controllers) = self.server.view();
        let exports = self.server.exports();
        let facts = (self.id.clone(), self.listeners.clone(), self.file.clone());
        TargetReport::serving(facts, traffic, &exports, &config, &controllers)
    }
}

/// What a change means for what is exported.
fn operation(exports: &TargetConfig<Export>, change: Change) -> Result<Operation<Export>, Refusal> {
    let only = |nqn: Option<String>| match (nqn, &exports.subsystems[..]) {
        (Some(nqn), _) => Ok(nqn),
        (None, [only]) => Ok(only.nqn.clone()),
        (None, all) => {
            let nqns: Vec<&str> = all.iter().map(|subsystem| subsystem.nqn.as_str()).collect();
            let message = format!("which subsystem? There are {}", nqns.join(", "));
            Err(Refusal { field: Some("nqn".into()), ..Refusal::new(Why::Invalid, message) })
        }
    };
    let namespaces = |nqn: &str| {
        let subsystem = exports.subsystems.iter().find(|subsystem| subsystem.nqn == nqn);
        subsystem.map_or(&[][..], |subsystem| &subsystem.namespaces)
    };
    Ok(match change {
        Change::AddSubsystem { subsystem: new } => {
            new.check()
                .map_err(|e| Refusal::new(Why::Invalid, format!("subsystem {}: {e}", new.nqn)))?;
            Operation::AddSubsystem(subsystem(&new)?)
        }
        Change::RemoveSubsystem { nqn } => Operation::RemoveSubsystem { nqn },
        Change::AddNamespace { nqn, mut namespace } => {
            let nqn = only(nqn)?;
            let is_free = |nsid: &u32| namespaces(&nqn).iter().all(|other| other.nsid != *nsid);
            namespace.nsid = namespace.nsid.or_else(|| (1..).find(is_free));
            Operation::AddNamespace { nqn, namespace: checked(&namespace)? }
        }
        Change::ReplaceNamespace { nqn, namespace } => {
            if namespace.nsid.is_none() {
                let refusal = Refusal::new(Why::Invalid, "which namespace? Say its nsid");
                return Err(Refusal { field: Some("nsid".into()), ..refusal });
            }
            Operation::ReplaceNamespace { nqn: only(nqn)?, namespace: checked(&namespace)? }
        }
        Change::RemoveNamespace { nqn, nsid } => {
            Operation::RemoveNamespace { nqn: only(nqn)?, nsid }
        }
        Change::ResizeNamespace { nqn, nsid, size: Some(bytes) } => {
            Operation::ResizeNamespace { nqn: only(nqn)?, nsid, bytes }
        }
        Change::ResizeNamespace { nqn, nsid, size: None } => {
            let nqn = only(nqn)?;
            let there = namespaces(&nqn).iter().find(|namespace| namespace.nsid == nsid).cloned();
            let unknown = || format!("there is no {}", Place::Namespace(nqn.clone(), nsid));
            let namespace = there.ok_or_else(|| Refusal::new(Why::Unknown, unknown()))?;
            Operation::ReplaceNamespace { nqn, namespace: as_large_as_it_is(namespace) }
        }
        Change::AllowHost { nqn, host } => Operation::AllowHost { nqn: only(nqn)?, host },
        Change::DisallowHost { nqn, host } => Operation::DisallowHost { nqn: only(nqn)?, host },
        Change::AllowAnyHost { nqn, allow } => Operation::AllowAnyHost { nqn: only(nqn)?, allow },
    })
}

fn checked(namespace: &crate::namespace::NamespaceSpec) -> Result<Export, Refusal> {
    namespace.check().map_err(|e| Refusal::new(Why::Invalid, e))?;
    Ok(export(namespace)?)
}

/// The same, with the size that its file or device has.
fn as_large_as_it_is(mut export: Export) -> Export {
    if let Blocks::Spec(spec) = &mut export.blocks
        && let BackendKind::File { size, create, .. } = &mut spec.kind
    {
        (*size, *create) = (None, false);
    }
    export
}
