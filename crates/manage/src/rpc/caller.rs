//! A call of a method: looked up, counted and logged.

use super::error::{Rpc, RpcError};
use super::manager::Manager;
use super::message::{Methods, Params};
use super::methods;
use crate::bursts::Weight;
use serde_json::Value;
use std::time::Instant;
use tracing::{debug, info};

/// A caller of methods; `peer` names it in the log.
#[derive(Clone, Copy)]
pub struct Caller<'a> {
    /// Its methods' manager.
    pub manager: &'a Manager,
    /// Its name.
    pub peer: &'a str,
}

impl Caller<'_> {
    /// Logs an event that may come often.
    pub fn tell(&self, weight: Weight, what: &str, detail: &str) {
        self.manager.bursts.tell(weight, &format!("RPC: {what}"), self.peer, detail);
    }
}

impl Methods for Caller<'_> {
    fn call(&self, name: &str, params: Params<'_>) -> Rpc<Value> {
        let Some(method) = methods::find(name) else {
            self.tell(Weight::Info, "an unknown method", name);
            return Err(RpcError::method(""));
        };
        let (peer, began) = (self.peer, Instant::now());
        let result = (method.run)(self.manager, params);
        let code = result.as_ref().map_or_else(|error| error.code, |_| 0);
        self.manager.calls.count(method.name, code, began.elapsed());
        match &result {
            Ok(_) if method.changes => info!("RPC: {name} from {peer}"),
            Ok(_) => debug!("RPC: {name} from {peer}"),
            Err(error) => {
                self.tell(Weight::Info, &format!("{name} refused ({code})"), &error.message);
            }
        }
        result
    }

    fn refused(&self, error: &RpcError, octets: &[u8]) {
        const SHOWN: usize = 80;
        let begin = String::from_utf8_lossy(&octets[..octets.len().min(SHOWN)]);
        let what = format!("what is no request ({})", error.code);
        self.tell(Weight::Info, &what, &format!("{}: {begin}", error.message));
    }
}
