//! The target of a command, its methods, and the display of their results.

use crate::addresses::check_socket_path;
use crate::args::{AnaPort, CtlCommand, CtlTarget, ListenerCommand};
use crate::config::{default_port, listener_of};
use crate::control::{Call, ChangesReply, ExportChange};
use crate::failure::{CommandFailure, CommandResult};
use crate::output;
use crate::registry::TargetEntry;
use crate::running;
use crate::units::show_bytes;
use roadtrain_manage::rpc::{RpcError, client};
use roadtrain_target_engine::AnaListener;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// Time limit of a reply: copies of volumes take long.
const REPLY_WAIT: Duration = Duration::from_secs(90);

/// A target, and the format of results.
pub(super) struct ControlledTarget {
    /// Name for messages.
    name: String,
    socket: PathBuf,
    /// User of its process, if the registry has it.
    owner: Option<u32>,
    pub(super) json: bool,
}

impl ControlledTarget {
    /// Chooses the target by the options.
    ///
    /// # Errors
    /// No target runs here, or several do.
    pub(super) fn choose(
        args: &CtlTarget,
        command: &CtlCommand,
        json: bool,
    ) -> CommandResult<ControlledTarget> {
        if let Some(socket) = &args.socket {
            check_socket_path(socket, 0).map_err(CommandFailure::usage)?;
            let (name, socket) = (socket.display().to_string(), socket.clone());
            return Ok(ControlledTarget { name, socket, owner: None, json });
        }
        let mut all = running::all()?.served;
        all.retain(|(entry, _)| entry.process.is_alive());
        all.retain(|(entry, _)| args.id.as_ref().is_none_or(|id| entry.id == *id));
        if all.len() > 1
            && let Some(wanted) = wanted_listener(command)?
            && all.iter().any(|(entry, _)| listens(entry, wanted))
        {
            all.retain(|(entry, _)| listens(entry, wanted));
        }
        match (all.len(), &args.id) {
            (1, _) => {
                let (entry, socket) = all.remove(0);
                let (name, owner) = (entry.id, Some(entry.process.owner));
                Ok(ControlledTarget { name, socket, owner, json })
            }
            (0, Some(id)) => Err(CommandFailure::connect(format!(
                "no target {id} runs here: `roadtrain status` shows those that do"
            ))),
            (0, None) => Err(CommandFailure::connect(
                "no target runs here: start one with `roadtrain serve`, or name its socket with --rpc PATH",
            )),
            _ => {
                let ids: Vec<&str> = all.iter().map(|(entry, _)| entry.id.as_str()).collect();
                let ids = ids.join(" or ");
                Err(CommandFailure::usage(format!(
                    "several targets run here: choose one with --id {ids}"
                )))
            }
        }
    }

    /// Chooses the attachment by the options.
    ///
    /// # Errors
    /// No attachment runs here, or several do.
    pub(super) fn choose_attachment(
        args: &CtlTarget,
        json: bool,
    ) -> CommandResult<ControlledTarget> {
        let mut all = running::find(args.id.as_slice())?.attached;
        all.retain(|(entry, _)| entry.process.is_alive());
        if all.len() == 1 && args.socket.is_none() {
            let (entry, socket) = all.remove(0);
            let (name, owner) = (entry.id, Some(entry.process.owner));
            return Ok(ControlledTarget { name, socket, owner, json });
        }
        Err(match (&args.socket, all.len()) {
            (Some(_), _) => CommandFailure::usage("name the attachment with --id, not with --rpc"),
            (None, 0) => CommandFailure::connect(
                "no such attachment runs here: `roadtrain list` shows those that do",
            ),
            _ => {
                let ids: Vec<&str> = all.iter().map(|(entry, _)| entry.id.as_str()).collect();
                let ids = ids.join(" or ");
                CommandFailure::usage(format!(
                    "several attachments run here: choose one with --id {ids}"
                ))
            }
        })
    }

    fn connect(&self) -> io::Result<UnixStream> {
        let stream = UnixStream::connect(&self.socket)?;
        let found = rustix::net::sockopt::socket_peercred(&stream)?.uid.as_raw();
        match self.owner {
            Some(owner) if owner != found => {
                let text = format!("user {found} listens there, not user {owner}");
                Err(io::Error::new(ErrorKind::PermissionDenied, text))
            }
            _ => Ok(stream),
        }
    }

    /// Calls a method; null `params` are omitted.
    ///
    /// # Errors
    /// The target does not reply, or refuses.
    pub(super) fn call(&self, method: &str, params: &Value) -> CommandResult<Value> {
        self.reply(method, params)?.map_err(|error| refused(method, error))
    }

    /// Calls a method that changes `object`, which a refusal names.
    ///
    /// # Errors
    /// The target does not reply, or refuses.
    pub(super) fn call_for(
        &self,
        object: &str,
        method: &str,
        params: &Value,
    ) -> CommandResult<Value> {
        let refused =
            |error: RpcError| CommandFailure::failed(format!("{object}: {}", error.message));
        self.reply(method, params)?.map_err(refused)
    }

    fn reply(&self, method: &str, params: &Value) -> CommandResult<Result<Value, RpcError>> {
        let called = || {
            let stream = self.connect()?;
            client::send(&stream, REPLY_WAIT, method, params)?;
            client::receive(&stream, REPLY_WAIT)
        };
        called().map_err(|error| self.unreachable(&error))
    }

    /// Calls a method whose result has type `T`.
    ///
    /// # Errors
    /// The target does not reply, or refuses.
    pub(super) fn call_as<T: DeserializeOwned>(&self, call: &Call) -> CommandResult<T> {
        let (method, params) = call.request();
        let result = self.call(&method, &params)?;
        let invalid = |e| CommandFailure::failed(format!("{}: an invalid reply: {e}", self.name));
        serde_json::from_value(result).map_err(invalid)
    }

    fn unreachable(&self, error: &io::Error) -> CommandFailure {
        let hint = match error.kind() {
            ErrorKind::NotFound => without_socket(),
            ErrorKind::ConnectionRefused => "no process listens there any more".to_owned(),
            ErrorKind::PermissionDenied => {
                "only the user of the target and root may connect".to_owned()
            }
            _ => "it does not answer in time".to_owned(),
        };
        CommandFailure::connect(format!("{}: {error}: {hint}", self.name))
    }

    /// Makes a change, and shows the result.
    pub(super) fn apply(&self, change: ExportChange) -> CommandResult {
        // Paths are relative to this process's directory, not to the target's.
        self.change_by(&Call::Apply { operations: vec![change.with_absolute_paths()] })
    }

    /// Calls a method that changes something, and shows the result.
    pub(super) fn change_by(&self, call: &Call) -> CommandResult {
        self.show_done(self.call_as(call)?)
    }

    pub(super) fn show_done(&self, done: ChangesReply) -> CommandResult {
        if self.json {
            return output::json(&done);
        }
        let changes = done.changes.into_iter().map(|change| change.what);
        let hint = done.hint.map(|hint| format!("note: {hint}"));
        let lines: Vec<String> = changes.chain(hint).collect();
        output::line(&if lines.is_empty() {
            "nothing has changed".into()
        } else {
            lines.join("\n")
        })
    }

    /// Makes a change by one method, and shows its result to programs, `done` to people: the object, a colon and the
    /// change.
    pub(super) fn change(&self, method: &str, params: &Value, done: &str) -> CommandResult {
        let object = done.rsplit_once(": ").map_or(done, |(object, _)| object);
        let result = self.call_for(object, method, params)?;
        if self.json { output::json(&result) } else { output::line(done) }
    }

    /// Shows the members `names` of each row.
    pub(super) fn table(&self, names: &[&str], rows: Vec<Value>) -> CommandResult {
        if self.json {
            return output::json(&rows);
        }
        let cell = |value: &Value| match value {
            Value::String(text) => text.clone(),
            Value::Bool(is_so) => (if *is_so { "yes" } else { "no" }).to_owned(),
            Value::Null => "-".to_owned(),
            other => other.to_string(),
        };
        let size = |name: &str, value: &Value| match (name, value.as_u64()) {
            (name, Some(bytes)) if name.ends_with("bytes") && name != "block_bytes" => {
                show_bytes(bytes)
            }
            _ => cell(value),
        };
        let row = |row: &Value| names.iter().map(|name| size(name, &row[name])).collect();
        let rows: Vec<Vec<String>> = rows.iter().map(row).collect();
        let head: Vec<String> =
            names.iter().map(|name| name.trim_end_matches("_bytes").replace('_', " ")).collect();
        let head: Vec<&str> = head.iter().map(String::as_str).collect();
        output::line(&output::columns(&head, &rows))
    }
}

/// Returns a hint for a missing socket.
fn without_socket() -> String {
    let running = running::all().unwrap_or_default().served;
    let running = running.iter().filter(|(entry, _)| entry.process.is_alive());
    let ids: Vec<&str> = running.map(|(entry, _)| entry.id.as_str()).collect();
    match &ids[..] {
        [] => "does the target have --rpc with this path?".to_owned(),
        ids => format!(
            "{} runs without that socket: leave --rpc out, or name the socket that it has",
            ids.join(", ")
        ),
    }
}

fn refused(method: &str, error: RpcError) -> CommandFailure {
    match error.data {
        Some(_) => CommandFailure::from(error),
        None => CommandFailure::failed(format!("{method}: {} ({})", error.message, error.code)),
    }
}

/// Returns the listener that a command names, by which its target can be found.
fn wanted_listener(command: &CtlCommand) -> CommandResult<Option<AnaListener>> {
    match command {
        CtlCommand::Listener(ListenerCommand::Set { address, .. }) => {
            let (address, port) = (address.traddr.parse::<AnaPort>(), address.trsvcid);
            let address = address.map_err(CommandFailure::usage)?;
            listener_of(&address, port.unwrap_or(default_port())).map(Some)
        }
        _ => Ok(None),
    }
}

/// True if hosts reach the target at `wanted`.
fn listens(entry: &TargetEntry, wanted: AnaListener) -> bool {
    entry.listeners.iter().any(|listener| match wanted {
        AnaListener::Ether => listener.starts_with("ether:"),
        AnaListener::Tcp(wanted) => listener.parse().is_ok_and(|at: SocketAddr| {
            let is_ip = at.ip() == wanted.ip() || at.ip().is_unspecified();
            is_ip && at.port() == wanted.port()
        }),
    })
}
