//! Client of a target's JSON-RPC, at a Unix socket or over HTTP. Each call has a connection of its own.

use base64ct::{Base64, Encoding};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::{Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::{Value, json};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

/// Timeout of a reply: a target that cannot share blocks copies a volume before it replies.
const PATIENCE: Duration = Duration::from_secs(300);
/// Most bytes of a reply, more than a target sends.
const REPLY_BYTES_MAX: usize = 64 << 20;

/// Place where a target replies to JSON-RPC.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum RpcPlace {
    /// Path of a Unix socket.
    Unix(PathBuf),
    /// `HOST:PORT` of HTTP, and the credentials `USER:PASSWORD`.
    Http {
        /// Address, as it is connected to and named in the request.
        authority: String,
        /// Value of the Authorization header; `None` without credentials.
        authorization: Option<String>,
    },
}

impl RpcPlace {
    /// Parses PATH, `unix:///PATH` or `http://HOST:PORT`.
    ///
    /// # Errors
    /// Another scheme, or no port.
    pub(crate) fn parse(text: &str, credentials: Option<&str>) -> Result<RpcPlace, String> {
        if let Some(rest) = text.strip_prefix("http://") {
            let authority = rest.trim_end_matches('/').to_owned();
            let port = authority.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
            if !matches!(port, Some(Ok(_))) {
                return Err(format!("--rpc {text}: write http://HOST:PORT"));
            }
            let basic = |pair: &str| format!("Basic {}", Base64::encode_string(pair.as_bytes()));
            let authorization = credentials.map(|pair| basic(pair.trim()));
            return Ok(RpcPlace::Http { authority, authorization });
        }
        let path = text.strip_prefix("unix://").unwrap_or(text);
        match path.starts_with('/') {
            true => Ok(RpcPlace::Unix(path.into())),
            false => Err(format!("--rpc {text}: write an absolute PATH or http://HOST:PORT")),
        }
    }
}

impl fmt::Display for RpcPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RpcPlace::Unix(path) => write!(f, "{}", path.display()),
            RpcPlace::Http { authority, .. } => write!(f, "http://{authority}"),
        }
    }
}

impl fmt::Debug for RpcPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Failure of a call.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RpcFailure {
    /// The target cannot be reached, or its reply is invalid: the call may have been done.
    #[error("the target at {place} does not reply: {reason}")]
    Unreachable {
        /// Place of the target.
        place: String,
        /// Reason, for people.
        reason: String,
    },
    /// The target refuses the call.
    #[error("{method}: {message} ({code})")]
    Refused {
        /// Method that was called.
        method: String,
        /// Code of the error.
        code: i64,
        /// Message of the target.
        message: String,
    },
}

/// Codes of errors that have a meaning for the driver.
const NO_SUCH_DEVICE: i64 = -19;
const BUSY: i64 = -16;

impl RpcFailure {
    /// True if there is no object of that name.
    pub(crate) fn is_absence(&self) -> bool {
        matches!(self, RpcFailure::Refused { code: NO_SUCH_DEVICE, .. })
    }

    /// True if a host uses the object, or another call does.
    pub(crate) fn is_busy(&self) -> bool {
        matches!(self, RpcFailure::Refused { code: BUSY, .. })
    }

    /// True if `text` is in the message, ignoring case.
    pub(crate) fn says(&self, text: &str) -> bool {
        let RpcFailure::Refused { message, .. } = self else { return false };
        message.to_lowercase().contains(&text.to_lowercase())
    }
}

#[derive(Deserialize)]
struct TargetReply {
    #[serde(default)]
    result: Value,
    error: Option<TargetReplyError>,
}

#[derive(Deserialize)]
struct TargetReplyError {
    code: i64,
    message: String,
}

/// Calls one method; `params` is an object.
///
/// # Errors
/// The target does not reply, or refuses.
pub(crate) async fn call(
    place: &RpcPlace,
    method: &str,
    params: Value,
) -> Result<Value, RpcFailure> {
    let request =
        json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
    let exchanged = async {
        match place {
            RpcPlace::Unix(path) => over_unix(path, request).await,
            RpcPlace::Http { authority, authorization } => {
                over_http(authority, authorization.as_deref(), request).await
            }
        }
    };
    let unreachable = |reason: String| RpcFailure::Unreachable { place: place.to_string(), reason };
    let reply = match tokio::time::timeout(PATIENCE, exchanged).await {
        Ok(reply) => reply.map_err(|error| unreachable(format!("{error:#}")))?,
        Err(_) => return Err(unreachable(format!("no reply within {} s", PATIENCE.as_secs()))),
    };
    let reply: TargetReply =
        serde_json::from_slice(&reply).map_err(|error| unreachable(error.to_string()))?;
    match reply.error {
        None => Ok(reply.result),
        Some(TargetReplyError { code, message }) => {
            Err(RpcFailure::Refused { method: method.to_owned(), code, message })
        }
    }
}

/// Sends a request over a Unix socket. The reply is a line.
async fn over_unix(path: &std::path::Path, request: String) -> anyhow::Result<Vec<u8>> {
    let mut stream = UnixStream::connect(path).await?;
    stream.write_all(request.as_bytes()).await?;
    stream.write_all(b"\n").await?;
    let mut reply = Vec::new();
    let mut piece = vec![0; 64 << 10];
    while !reply.ends_with(b"\n") {
        let count = stream.read(&mut piece).await?;
        anyhow::ensure!(count > 0, "the connection has ended before the reply");
        reply.extend_from_slice(&piece[..count]);
        anyhow::ensure!(reply.len() <= REPLY_BYTES_MAX, "the reply is longer than 64 MiB");
    }
    Ok(reply)
}

/// Sends a request by HTTP POST.
async fn over_http(
    authority: &str,
    authorization: Option<&str>,
    request: String,
) -> anyhow::Result<Vec<u8>> {
    let stream = TcpStream::connect(authority).await?;
    stream.set_nodelay(true)?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let mut post = Request::post("/")
        .header(header::HOST, authority)
        .header(header::CONTENT_TYPE, "application/json");
    if let Some(value) = authorization {
        post = post.header(header::AUTHORIZATION, value);
    }
    let reply = sender.send_request(post.body(Full::new(Bytes::from(request)))?).await?;
    let status = reply.status();
    anyhow::ensure!(status != StatusCode::UNAUTHORIZED, "it refuses the credentials");
    anyhow::ensure!(status == StatusCode::OK, "HTTP status {status}");
    let body = Limited::new(reply.into_body(), REPLY_BYTES_MAX).collect().await;
    let body = body.map_err(|error| anyhow::anyhow!("{error}"))?.to_bytes().to_vec();
    connection.abort();
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncBufReadExt;
    use tokio::net::{TcpListener, UnixListener};

    #[test]
    fn places_are_parsed() {
        let unix = RpcPlace::Unix("/run/a.sock".into());
        assert_eq!(RpcPlace::parse("/run/a.sock", None), Ok(unix.clone()));
        assert_eq!(RpcPlace::parse("unix:///run/a.sock", None), Ok(unix));
        let http = RpcPlace::parse("http://192.0.2.1:8000/", Some("user:word\n")).unwrap();
        let authorization = Some("Basic dXNlcjp3b3Jk".to_owned());
        assert_eq!(http, RpcPlace::Http { authority: "192.0.2.1:8000".into(), authorization });
        assert!(!format!("{http:?}").contains("dXNl"), "credentials are not shown");
        for wrong in ["run/a.sock", "http://192.0.2.1", "ftp://a:1", ""] {
            assert!(RpcPlace::parse(wrong, None).is_err(), "{wrong}");
        }
    }

    /// Calls a server at a Unix socket that replies with `reply`; returns what it received.
    async fn exchange(reply: &'static str) -> (Result<Value, RpcFailure>, Value) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rpc.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let server = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = tokio::io::BufReader::new(stream);
            let mut line = String::new();
            stream.read_line(&mut line).await.unwrap();
            stream.write_all(reply.as_bytes()).await.unwrap();
            serde_json::from_str(&line).unwrap()
        });
        let result = call(&RpcPlace::Unix(path), "m", json!({"a": 1})).await;
        (result, server.await.unwrap())
    }

    #[tokio::test]
    async fn calls_over_unix_sockets() {
        let (result, request) = exchange("{\"id\": 1, \"result\": [7]}\n").await;
        assert_eq!(result.unwrap(), json!([7]));
        assert_eq!((&request["method"], &request["params"]), (&json!("m"), &json!({"a": 1})));
        let refused = "{\"id\":1,\"error\":{\"code\":-19,\"message\":\"No such device: x\"}}\n";
        let failure = exchange(refused).await.0.unwrap_err();
        assert!(failure.is_absence() && !failure.is_busy() && failure.says("no such DEVICE"));
        for broken in ["", "{\"id\":1", "no JSON\n"] {
            let failure = exchange(broken).await.0.unwrap_err();
            assert!(matches!(failure, RpcFailure::Unreachable { .. }), "{broken}: {failure}");
        }
    }

    #[tokio::test]
    async fn calls_over_http() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = tokio::spawn(async move {
            let mut heads = Vec::new();
            for reply in ["200 OK\r\nContent-Length: 12\r\n\r\n{\"result\":8}", "401 No\r\n\r\n"] {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut head = Vec::new();
                while !head.ends_with(b"}") {
                    stream.read_buf(&mut head).await.unwrap();
                }
                stream.write_all(format!("HTTP/1.1 {reply}").as_bytes()).await.unwrap();
                heads.push(String::from_utf8(head).unwrap());
            }
            heads
        });
        let place = RpcPlace::parse(&url, Some("user:word")).unwrap();
        assert_eq!(call(&place, "m", json!({})).await.unwrap(), json!(8));
        let refused = call(&place, "m", json!({})).await.unwrap_err();
        assert!(refused.to_string().contains("credentials"), "{refused}");
        let heads = server.await.unwrap();
        assert!(heads[0].contains("authorization: Basic dXNlcjp3b3Jk\r\n"), "{}", heads[0]);
    }
}
