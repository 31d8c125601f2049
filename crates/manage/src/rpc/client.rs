//! A caller at a Unix socket, of ours or of SPDK.

use super::error::RpcError;
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long an answer may take: copies of volumes do.
const PATIENCE: Duration = Duration::from_secs(90);

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    result: Option<Value>,
    #[serde(default)]
    error: Option<Failure>,
}

#[derive(Deserialize)]
struct Failure {
    code: i32,
    message: String,
}

/// Calls one method; `params` null is none.
///
/// # Errors
/// Nobody answers, or what comes is no answer.
pub fn call(socket: &Path, method: &str, params: &Value) -> io::Result<Result<Value, RpcError>> {
    call_within(PATIENCE, socket, method, params)
}

/// The same, where nothing may take longer than that.
///
/// # Errors
/// As above.
pub fn call_within(
    patience: Duration,
    socket: &Path,
    method: &str,
    params: &Value,
) -> io::Result<Result<Value, RpcError>> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    let mut request = json!({"jsonrpc": "2.0", "method": method, "id": 1});
    if !params.is_null() {
        request["params"] = params.clone();
    }
    stream.write_all(request.to_string().as_bytes())?;
    let mut octets = Vec::new();
    let mut piece = [0; 16 << 10];
    loop {
        let count = stream.read(&mut piece)?;
        octets.extend_from_slice(&piece[..count]);
        match serde_json::from_slice::<Answer>(&octets) {
            Ok(Answer { error: Some(Failure { code, message }), .. }) => {
                return Ok(Err(RpcError { code, message }));
            }
            Ok(Answer { result, error: None }) => return Ok(Ok(result.unwrap_or_default())),
            Err(error) if error.is_eof() && count > 0 => {}
            Err(_) if count == 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) => return Err(error.into()),
        }
    }
}
