//! JSON-RPC over HTTP: POST with Basic authentication.

use super::caller::{Caller, CallerAccess, MethodTable};
use super::framing::{REQUEST_BYTES_MAX, RequestFramer};
use super::message::{self, Answered};
use crate::bursts::Weight;
use crate::http::HttpConnection;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Router};
use base64ct::{Base64, Encoding};
use sha2::{Digest, Sha256};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use subtle::{Choice, ConstantTimeEq};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

/// Timeout of a request's body.
const BODY_WITHIN: Duration = Duration::from_secs(30);
/// Time without wrong credentials after which a burst is over.
const BURST: Duration = Duration::from_secs(60);
/// Wrong credentials of a burst that are refused at once; later ones are delayed.
const FREE_TRIES: u32 = 10;
const PENALTY: Duration = Duration::from_secs(1);

/// Credentials of the callers, as digests of `user:password`.
#[derive(Debug)]
pub struct Credentials(Vec<[u8; 32]>);

impl Credentials {
    /// Reads a file with lines `user:password`, which other users may not read.
    ///
    /// # Errors
    /// The file cannot be read, others can read it, or it has no credentials.
    pub fn read(path: &Path) -> io::Result<Credentials> {
        let metadata = std::fs::metadata(path)?;
        if metadata.mode() & 0o077 != 0 {
            return Err(io::Error::other("others may read or write it: chmod 600"));
        }
        let text = std::fs::read_to_string(path)?;
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let digest = |line: &str| match line.split_once(':') {
            Some((user, password)) if !user.is_empty() && !password.is_empty() => {
                Ok(digest(line.as_bytes()))
            }
            _ => Err(io::Error::other("a line is user:password")),
        };
        let all = lines.map(digest).collect::<io::Result<Vec<_>>>()?;
        match all.is_empty() {
            true => Err(io::Error::other("it has no line user:password")),
            false => Ok(Credentials(all)),
        }
    }

    /// True if the header has one of the credentials. Takes as long for wrong ones.
    fn has(&self, headers: &HeaderMap) -> bool {
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let given = given.and_then(|value| value.split_once(' '));
        let given = given.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("basic"));
        let given = given.and_then(|(_, text)| Base64::decode_vec(text.trim()).ok());
        let given = digest(&given.unwrap_or_default());
        let is_it = self.0.iter().fold(Choice::from(0), |is_it, one| is_it | one.ct_eq(&given));
        is_it.into()
    }
}

fn digest(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// Recent wrong credentials.
#[derive(Debug, Default)]
struct Burst {
    last: Option<Instant>,
    count: u32,
}

impl Burst {
    /// Counts wrong credentials. Returns the delay of the response.
    fn add(&mut self, now: Instant) -> Duration {
        if self.last.is_none_or(|last| now - last > BURST) {
            self.count = 0;
        }
        (self.last, self.count) = (Some(now), self.count.saturating_add(1));
        if self.count > FREE_TRIES { PENALTY } else { Duration::ZERO }
    }
}

struct WebState {
    table: Arc<dyn MethodTable>,
    credentials: Credentials,
    burst: Mutex<Burst>,
}

impl WebState {
    fn caller<'a>(&'a self, peer: &'a str) -> Caller<'a> {
        Caller { table: &*self.table, access: CallerAccess::Client, peer }
    }
}

/// Returns a router that serves any path.
pub fn router(table: Arc<dyn MethodTable>, credentials: Credentials) -> Router {
    let state = WebState { table, credentials, burst: Mutex::default() };
    Router::new().fallback(answer).with_state(Arc::new(state))
}

async fn answer(
    State(state): State<Arc<WebState>>,
    Extension(connection): Extension<HttpConnection>,
    request: Request,
) -> Response {
    let peer = format!("{} over HTTP", connection.peer);
    let caller = state.caller(&peer);
    if !state.credentials.has(request.headers()) {
        connection.mark_refused();
        return refuse(&state, caller, request.headers()).await;
    }
    connection.mark_authenticated();
    if request.method() != Method::POST {
        let detail = format!("the method is {}, and POST is expected", request.method());
        caller.log(Weight::Info, "HTTP 405", &detail);
        return (StatusCode::METHOD_NOT_ALLOWED, [(header::ALLOW, "POST")]).into_response();
    }
    let length = request.headers().get(header::CONTENT_LENGTH).cloned();
    let body = match timeout(BODY_WITHIN, to_bytes(request.into_body(), REQUEST_BYTES_MAX)).await {
        Ok(Ok(body)) => body,
        Ok(Err(error)) => {
            let detail = format!("Content-Length {length:?}, at most {REQUEST_BYTES_MAX}: {error}");
            caller.log(Weight::Info, "HTTP 413", &detail);
            return StatusCode::PAYLOAD_TOO_LARGE.into_response();
        }
        Err(_) => {
            let detail = format!("Content-Length {length:?} did not come within {BODY_WITHIN:?}");
            caller.log(Weight::Info, "HTTP 408", &detail);
            return StatusCode::REQUEST_TIMEOUT.into_response();
        }
    };
    let (state, own) = (state.clone(), peer.clone());
    let called = spawn_blocking(move || call(&body, state.caller(&own)));
    let Ok(Answered { text, is_broken, .. }) = called.await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let status = if is_broken { StatusCode::BAD_REQUEST } else { StatusCode::OK };
    match text {
        Some(text) => {
            (status, [(header::CONTENT_TYPE, "application/json")], Body::from(text)).into_response()
        }
        None => StatusCode::NO_CONTENT.into_response(),
    }
}

/// Runs the request of a body: one request, or one array of them.
fn call(body: &Bytes, caller: Caller<'_>) -> Answered {
    let mut framer = RequestFramer::default();
    framer.feed(body);
    match framer.take() {
        Ok(Some(_)) => message::answer(body, &caller),
        Ok(None) => message::broken("the value does not end", body, &caller),
        Err(unframed) => message::broken(unframed, body, &caller),
    }
}

/// Refuses a request with missing or wrong credentials.
async fn refuse(state: &WebState, caller: Caller<'_>, headers: &HeaderMap) -> Response {
    let penalty = {
        let mut burst = state.burst.lock().unwrap_or_else(PoisonError::into_inner);
        burst.add(Instant::now())
    };
    // The header is never logged: it may hold the password of something else.
    let detail = match headers.contains_key(header::AUTHORIZATION) {
        true => "Authorization is not one of rpc_credentials",
        false => "there is no Authorization",
    };
    caller.log(Weight::Warning, "wrong credentials", detail);
    sleep(penalty).await;
    let realm = [(header::WWW_AUTHENTICATE, "Basic realm=\"roadtrain\"")];
    (StatusCode::UNAUTHORIZED, realm).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn credentials_are_those_of_a_file_that_no_other_user_reads() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("credentials");
        fs::write(&path, "# who\nada:love:lace\n\nbob:x\n").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        assert!(Credentials::read(&path).unwrap_err().to_string().contains("chmod 600"));
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let credentials = Credentials::read(&path).unwrap();
        let has = |scheme: &str, text: &str| {
            let value = format!("{scheme} {}", Base64::encode_string(text.as_bytes()));
            let headers = [(header::AUTHORIZATION, value.parse().unwrap())];
            credentials.has(&headers.into_iter().collect())
        };
        assert!(has("Basic", "ada:love:lace") && has("basic", "bob:x"));
        for (scheme, text) in
            [("Basic", "ada:love"), ("Bearer", "bob:x"), ("Basic", ""), ("Basic", "# who")]
        {
            assert!(!has(scheme, text), "{scheme} {text}");
        }
        assert!(!credentials.has(&HeaderMap::new()));
        for invalid in ["", "# who\n", "ada\n", "ada:\n", ":x\n"] {
            fs::write(&path, invalid).unwrap();
            assert!(Credentials::read(&path).is_err(), "{invalid:?}");
        }
    }

    #[test]
    fn a_burst_is_slowed() {
        let mut burst = Burst::default();
        let now = Instant::now();
        for _ in 0..FREE_TRIES {
            assert_eq!(burst.add(now), Duration::ZERO);
        }
        assert_eq!(burst.add(now), PENALTY);
        assert_eq!(burst.add(now + BURST * 2), Duration::ZERO);
    }
}
