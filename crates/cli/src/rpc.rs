//! `roadtrain rpc`: one call of a method, as it is.

use crate::args::{GlobalArgs, RpcArgs, RpcSocketArgs};
use crate::failure::{Failure, Outcome};
use crate::{logs, output};
use roadtrain_manage::rpc::client;
use serde_json::Value;

/// `roadtrain rpc`
pub(crate) fn run(args: &RpcArgs, global: &GlobalArgs) -> Outcome {
    logs::start("warn", global.verbose);
    let params = args.params.as_deref().map(serde_json::from_str::<Value>).transpose();
    let params = params.map_err(|error| Failure::usage(format!("JSON: {error}")))?;
    let result = call(&args.socket, &args.method, &params.unwrap_or_default())?;
    output::json(&result)
}

/// Has a target do something.
///
/// # Errors
/// Nobody answers, or it refuses.
pub(crate) fn call(socket: &RpcSocketArgs, method: &str, params: &Value) -> Outcome<Value> {
    let path = socket.path();
    let answered = client::call(&path, method, params).map_err(|error| {
        let hint = "is a target there, with rpc (--rpc) and this path?";
        Failure::connect(format!("{}: {error}: {hint}", path.display()))
    })?;
    answered
        .map_err(|error| Failure::failed(format!("{method}: {} ({})", error.message, error.code)))
}
