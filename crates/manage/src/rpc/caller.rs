//! A call of a method: resolved, counted and logged.

use super::error::{Rpc, RpcError};
use super::message::{KeptRequest, MethodParams, Methods};
use crate::bursts::{Bursts, Weight};
use serde::Deserialize;
use serde_json::{Value, json};
use std::os::unix::net::UnixStream;
use tracing::{debug, info};

/// Rights of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallerAccess {
    /// The user of the process, at its control socket: any file may be opened.
    Owner,
    /// A client: files below `file_roots` only.
    Client,
}

/// Methods of a process.
pub trait MethodTable: Send + Sync {
    /// Names of all methods.
    fn names(&self) -> Vec<&'static str>;

    /// Runs a method, which may wait; `None`: unknown.
    fn run(
        &self,
        name: &str,
        params: MethodParams<'_>,
        access: CallerAccess,
    ) -> Option<MethodOutcome>;

    /// Limiter of log lines that callers may cause often.
    fn bursts(&self) -> &Bursts;

    /// True for a method that the owner may call and whose reply comes later.
    fn keeps_stream(&self, _name: &str) -> bool {
        false
    }

    /// Runs such a method, which replies over the stream.
    fn keep(&self, _request: KeptRequest, _stream: UnixStream) {}
}

/// Outcome of a method.
pub struct MethodOutcome {
    /// Name of the method.
    pub name: &'static str,
    /// True for a method that changes something.
    pub changes: bool,
    /// Its result.
    pub result: Rpc<Value>,
}

/// A caller of methods; `peer` names it in the log.
#[derive(Clone, Copy)]
pub struct Caller<'a> {
    /// Methods that it may call.
    pub table: &'a dyn MethodTable,
    /// Its rights.
    pub access: CallerAccess,
    /// Its name.
    pub peer: &'a str,
}

impl Caller<'_> {
    /// Logs an event that may come often.
    pub fn log(&self, weight: Weight, what: &str, detail: &str) {
        self.table.bursts().report(weight, &format!("RPC: {what}"), self.peer, detail);
    }
}

impl Methods for Caller<'_> {
    fn call(&self, name: &str, params: MethodParams<'_>) -> Rpc<Value> {
        if name == "rpc_get_methods" {
            return methods(self.table, &params);
        }
        let Some(MethodOutcome { name, changes, result }) =
            self.table.run(name, params, self.access)
        else {
            self.log(Weight::Info, "an unknown method", name);
            return Err(RpcError::method(""));
        };
        let peer = self.peer;
        match &result {
            Ok(_) if changes => info!("RPC: {name} from {peer}"),
            Ok(_) => debug!("RPC: {name} from {peer}"),
            Err(error) => {
                let what = format!("{name} refused ({})", error.code);
                self.log(Weight::Info, &what, &error.message);
            }
        }
        result
    }

    fn refused(&self, error: &RpcError, bytes: &[u8]) {
        const SHOWN: usize = 80;
        let begin = String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN)]);
        let what = format!("an invalid request ({})", error.code);
        self.log(Weight::Info, &what, &format!("{}: {begin}", error.message));
    }

    fn keeps_stream(&self, name: &str) -> bool {
        self.access == CallerAccess::Owner && self.table.keeps_stream(name)
    }
}

/// Names of all methods of a table.
fn methods(table: &dyn MethodTable, params: &MethodParams<'_>) -> Rpc<Value> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "every method can be called now, and none has another name")]
    struct GetMethodsParams {
        current: Option<bool>,
        include_aliases: Option<bool>,
    }
    params.read::<GetMethodsParams>().map_err(RpcError::params)?;
    let mut names = table.names();
    names.sort_unstable();
    Ok(json!(names))
}
