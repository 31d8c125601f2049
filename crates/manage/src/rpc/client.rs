//! Client of a JSON-RPC server at a Unix socket, Roadtrain's or SPDK's.

use super::error::{Rpc, RpcError};
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Timeout of a reply: copies of volumes take long.
const PATIENCE: Duration = Duration::from_secs(90);
/// Longest reply in bytes, with room for what other versions add.
const REPLY_BYTES_MAX: usize = 64 << 20;

#[derive(Deserialize)]
struct ClientReply {
    #[serde(default)]
    result: Option<Value>,
    #[serde(default)]
    error: Option<ClientReplyError>,
}

#[derive(Deserialize)]
struct ClientReplyError {
    code: i32,
    message: String,
    #[serde(default)]
    data: Option<Box<Value>>,
}

/// Calls one method; a null `params` is left out.
///
/// # Errors
/// No process replies, or the reply is invalid.
pub fn call(socket: &Path, method: &str, params: &Value) -> io::Result<Rpc<Value>> {
    call_within(PATIENCE, socket, method, params)
}

/// Calls one method, whose reply may take `patience`.
///
/// # Errors
/// No process replies in time, or the reply is invalid.
pub fn call_within(
    patience: Duration,
    socket: &Path,
    method: &str,
    params: &Value,
) -> io::Result<Rpc<Value>> {
    let stream = UnixStream::connect(socket)?;
    send(&stream, patience, method, params)?;
    receive(&stream, patience)
}

/// Sends a request over a stream that may carry several, one after the other.
///
/// # Errors
/// The peer does not read it in time.
pub fn send(
    mut stream: &UnixStream,
    patience: Duration,
    method: &str,
    params: &Value,
) -> io::Result<()> {
    stream.set_write_timeout(Some(patience))?;
    let mut request = json!({"jsonrpc": "2.0", "method": method, "id": 1});
    if !params.is_null() {
        request["params"] = params.clone();
    }
    stream.write_all(format!("{request}\n").as_bytes())
}

/// Receives the reply to the request that was sent last.
///
/// # Errors
/// The reply does not arrive in time, or is invalid.
pub fn receive(mut stream: &UnixStream, patience: Duration) -> io::Result<Rpc<Value>> {
    let until = Instant::now() + patience;
    let mut bytes = Vec::new();
    let mut piece = [0; 16 << 10];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let count = match stream.read(&mut piece) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        bytes.extend_from_slice(&piece[..count]);
        if bytes.len() > REPLY_BYTES_MAX {
            return Err(io::Error::new(ErrorKind::InvalidData, "the reply is too long"));
        }
        // Parses only what may be complete: a long reply comes in many pieces.
        let may_end = bytes.trim_ascii_end().ends_with(b"}");
        if !may_end && count > 0 {
            continue;
        }
        match reply(&bytes) {
            Err(error) if error.is_eof() && count > 0 => {}
            Err(_) if count == 0 => return Err(ErrorKind::UnexpectedEof.into()),
            Err(error) => return Err(error.into()),
            Ok(reply) => return Ok(reply),
        }
    }
}

/// The reply in the bytes of a line.
///
/// # Errors
/// Invalid JSON, or JSON of another form.
pub fn reply(bytes: &[u8]) -> serde_json::Result<Rpc<Value>> {
    Ok(match serde_json::from_slice(bytes)? {
        ClientReply { error: Some(ClientReplyError { code, message, data }), .. } => {
            Err(RpcError { code, message, data })
        }
        ClientReply { result, error: None } => Ok(result.unwrap_or_default()),
    })
}
