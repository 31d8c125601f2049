//! Refuses requests that a web page makes through a user's browser, whatever the browser adds to them.
//!
//! A browser sends forms to any site without confirmation, and names the page's site (Origin). A page whose name
//! resolves to this machine (DNS rebinding) sends that name (Host). Programs send neither: a request without Origin and
//! without a Content-Type is accepted.

use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::{IpAddr, SocketAddr};

/// Content types of forms, which browsers send without a preflight request.
const FORM_TYPES: [&str; 3] =
    ["application/x-www-form-urlencoded", "multipart/form-data", "text/plain"];

/// Serves the requests that are allowed at the address `here`.
pub(super) async fn guard(here: SocketAddr, request: Request, next: Next) -> Response {
    match check(here, request.headers()) {
        Ok(()) => next.run(request).await,
        Err((status, why)) => (status, format!("{why}\n")).into_response(),
    }
}

/// Checks that a request with these header fields is allowed.
fn check(here: SocketAddr, fields: &HeaderMap) -> Result<(), (StatusCode, &'static str)> {
    let text = |name: header::HeaderName| {
        fields.get(name).map(|value| value.to_str().unwrap_or("?").trim())
    };
    let host = text(header::HOST);
    if here.ip().is_loopback() && host.is_some_and(|host| !is_own_name(host)) {
        let why = "Host: only an address, localhost or the name of this machine is answered here";
        return Err((StatusCode::MISDIRECTED_REQUEST, why));
    }
    let site = text(header::ORIGIN).map(|origin| origin.split_once("://").map_or("", |(_, at)| at));
    if site.is_some_and(|site| Some(site) != host) {
        return Err((StatusCode::FORBIDDEN, "Origin: pages of other sites are not answered"));
    }
    let content_type = text(header::CONTENT_TYPE).and_then(|value| value.split(';').next());
    let is_form =
        |given: &str| FORM_TYPES.iter().any(|form| given.trim().eq_ignore_ascii_case(form));
    if content_type.is_some_and(is_form) {
        let why = "Content-Type: forms are not taken, but application/json is";
        return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, why));
    }
    Ok(())
}

/// True if a Host field names this machine by address, as localhost or by its own name, not by a foreign DNS name.
fn is_own_name(host: &str) -> bool {
    let name = match host.strip_prefix('[').and_then(|host| host.split_once(']')) {
        Some((address, _)) => address,
        None => host.split_once(':').map_or(host, |(name, _)| name),
    };
    let name = name.strip_suffix('.').unwrap_or(name);
    name.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || own_name().is_some_and(|own| name.eq_ignore_ascii_case(&own))
}

/// Returns the machine's name.
fn own_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn answer(here: &str, fields: &[(header::HeaderName, &str)]) -> u16 {
        let fields = fields
            .iter()
            .map(|(name, value)| (name.clone(), HeaderValue::from_str(value).expect("a value")));
        let checked = check(here.parse().unwrap(), &fields.collect());
        checked.map_or_else(|(status, _)| status.as_u16(), |()| 200)
    }

    #[test]
    fn pages_of_other_sites_are_not_answered() {
        use header::{CONTENT_TYPE, HOST, ORIGIN};
        let own = own_name().unwrap();
        let (loopback, anywhere) = ("127.0.0.1:9", "192.0.2.1:9");
        let is_at = |host: &str| answer(loopback, &[(HOST, host)]);
        for host in ["127.0.0.1:9", "127.0.0.1", "[::1]:9", "localhost:9", "LOCALHOST.", &*own] {
            assert_eq!(is_at(host), 200, "{host}");
        }
        for host in ["evil.example", "evil.example:9", "localhost.evil.example", "", "1.2.3.4.a"] {
            assert_eq!(is_at(host), 421, "{host}");
        }
        assert_eq!(answer(anywhere, &[(HOST, "storage.example:9")]), 200, "a name in the network");
        assert_eq!(answer(loopback, &[]), 200);
        let from = |origin| answer(loopback, &[(HOST, "localhost:9"), (ORIGIN, origin)]);
        assert_eq!((from("http://localhost:9"), from("https://localhost:9")), (200, 200));
        for origin in ["http://evil.example", "null", "", "http://localhost:10", "localhost:9"] {
            assert_eq!(from(origin), 403, "{origin}");
        }
        let with = |kind| answer(loopback, &[(CONTENT_TYPE, kind)]);
        assert_eq!((with("application/json"), with("application/byte-stream")), (200, 200));
        for form in ["text/plain", "Text/Plain; charset=utf-8", "multipart/form-data; boundary=x"] {
            assert_eq!(with(form), 415, "{form}");
        }
        assert_eq!(with("application/x-www-form-urlencoded"), 415);
    }
}
