//! `roadtrain rpc`: one call of a method, as it is.

use crate::args::{GlobalArgs, RpcArgs, RpcSocketArgs};
use crate::failure::{Failure, Outcome};
use crate::registry::Targets;
use crate::{logs, output};
use roadtrain_manage::rpc::client;
use serde_json::Value;
use std::path::Path;

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
        Failure::connect(format!("{}: {error}: {}", path.display(), hint(&path)))
    })?;
    answered
        .map_err(|error| Failure::failed(format!("{method}: {} ({})", error.message, error.code)))
}

/// Says what to do when nobody answers at a socket.
fn hint(path: &Path) -> String {
    let running = Targets::of_user().entries().unwrap_or_default();
    let ids: Vec<&str> = running.iter().map(|entry| entry.id.as_str()).collect();
    match &ids[..] {
        [] => "is a target there, with rpc (--rpc) and this path?".to_owned(),
        ids => format!(
            "{} runs without that socket: name the one it has with --rpc PATH, or start it with `serve --rpc {}`",
            ids.join(", "),
            path.display()
        ),
    }
}
