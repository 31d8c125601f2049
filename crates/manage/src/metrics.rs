//! Counters over HTTP: for Prometheus, a page for browsers, and a health check. Read only.
//!
//! | path | |
//! |---|---|
//! | `/` | a page with live charts |
//! | `/metrics` | OpenMetrics if the client accepts it, else Prometheus' text format; `?namespace=` and `?limit=` select |
//! | `/snapshot.json` | the snapshot that both are made of; the same parameters |
//! | `/healthz` | 200, or 503 with the problems |

mod encode;
mod families;
mod managed;
mod out;
mod process;
mod selection;
mod textfile;

pub use encode::{Format, text};
pub use managed::{Calls, ManagementSample, StoreSample};
pub use textfile::textfile;

use crate::http::HttpServer;
use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::header::{ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use roadtrain_reactor::metrics::MetricsSnapshot;
use selection::{NAMESPACES_MAX, NamespaceSelection};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::task::spawn_blocking;

const PAGE: &str = include_str!("metrics/page.html");
/// Content-Security-Policy of the page, which contains everything it needs and may load nothing else.
const PAGE_MAY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; img-src data:";

/// Source of the data.
pub trait MetricsSource: Send + Sync + 'static {
    /// Returns all counters. It must not wait for reactors.
    fn snapshot(&self) -> MetricsSnapshot;

    /// Returns the counters of its management, if it is managed.
    fn managed(&self) -> Option<ManagementSample> {
        None
    }

    /// Returns the problems; none if the source is healthy. It may wait a second for reactors that do not respond.
    fn problems(&self) -> Vec<String>;
}

/// Serves at `address` until the server is dropped.
///
/// # Errors
/// The address cannot be listened on.
pub fn serve(address: SocketAddr, source: impl MetricsSource) -> io::Result<HttpServer> {
    HttpServer::start("roadtrain-http", address, router(source))
}

/// Returns the routes.
fn router(source: impl MetricsSource) -> Router {
    let source: SharedMetricsSource = Arc::new(source);
    Router::new()
        .route("/", get(page))
        .route("/metrics", get(metrics))
        .route("/snapshot.json", get(snapshot))
        .route("/healthz", get(health))
        .with_state(source)
}

type SharedMetricsSource = Arc<dyn MetricsSource>;

async fn page() -> Response {
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        (CONTENT_SECURITY_POLICY, HeaderValue::from_static(PAGE_MAY)),
    ];
    (headers, PAGE).into_response()
}

async fn metrics(
    State(source): State<SharedMetricsSource>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    let selection = match NamespaceSelection::parse(query.as_deref(), Some(NAMESPACES_MAX)) {
        Ok(selection) => selection,
        Err(why) => return (StatusCode::BAD_REQUEST, why + "\n").into_response(),
    };
    let accepts = headers.get_all(ACCEPT).iter().filter_map(|accept| accept.to_str().ok());
    let format = Format::of(accepts);
    answer(format.content_type(), move || {
        let mut snapshot = source.snapshot();
        selection.apply(&mut snapshot);
        text(&snapshot, source.managed().as_ref(), format)
    })
    .await
}

async fn snapshot(
    State(source): State<SharedMetricsSource>,
    RawQuery(query): RawQuery,
) -> Response {
    let selection = match NamespaceSelection::parse(query.as_deref(), None) {
        Ok(selection) => selection,
        Err(why) => return (StatusCode::BAD_REQUEST, why + "\n").into_response(),
    };
    answer("application/json", move || {
        let mut snapshot = source.snapshot();
        selection.apply(&mut snapshot);
        serde_json::to_string(&snapshot).unwrap_or_default()
    })
    .await
}

async fn health(State(source): State<SharedMetricsSource>) -> Response {
    let Ok(problems) = spawn_blocking(move || source.problems()).await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    match problems.is_empty() {
        true => "ok\n".into_response(),
        false => (StatusCode::SERVICE_UNAVAILABLE, problems.join("\n") + "\n").into_response(),
    }
}

/// Returns a response whose body is made on a blocking thread.
async fn answer(
    content_type: &'static str,
    make: impl FnOnce() -> String + Send + 'static,
) -> Response {
    let Ok(body) = spawn_blocking(make).await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static(content_type)),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    (headers, body).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpStream;

    struct Sick(bool);

    impl MetricsSource for Sick {
        fn snapshot(&self) -> MetricsSnapshot {
            MetricsSnapshot { id: "disk".into(), ..MetricsSnapshot::default() }
        }

        fn problems(&self) -> Vec<String> {
            if self.0 { vec!["reactor 0 has ended".into()] } else { Vec::new() }
        }
    }

    fn get_path(address: SocketAddr, path: &str, more: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{more}\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn each_path_has_its_answer() {
        let server = serve(([127, 0, 0, 1], 0).into(), Sick(false)).unwrap();
        let get_path = |path, more| get_path(server.address(), path, more);
        let plain = get_path("/metrics", "");
        assert!(plain.contains("text/plain; version=0.0.4"), "{plain}");
        assert!(!plain.contains("# EOF"), "{plain}");
        let open = get_path("/metrics", "Accept: application/openmetrics-text; version=1.0.0\r\n");
        assert!(open.contains("application/openmetrics-text"), "{open}");
        assert!(open.ends_with("# EOF\n") || open.contains("# EOF"), "{open}");
        assert!(get_path("/snapshot.json", "").contains("\"id\":\"disk\""));
        assert!(get_path("/snapshot.json?namespace=7", "").contains("\"id\":\"disk\""));
        for path in ["/metrics?nsid=7", "/snapshot.json?limit=x"] {
            let answer = get_path(path, "");
            assert!(
                answer.starts_with("HTTP/1.1 400") && answer.contains("limit=NUMBER"),
                "{answer}"
            );
        }
        assert!(get_path("/", "").contains("<!doctype html>"));
        assert!(get_path("/healthz", "").ends_with("ok\n"));
        assert!(get_path("/other", "").starts_with("HTTP/1.1 404"));
        let sick = serve(([127, 0, 0, 1], 0).into(), Sick(true)).unwrap();
        let answer = super::tests::get_path(sick.address(), "/healthz", "");
        assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
        assert!(answer.ends_with("reactor 0 has ended\n"), "{answer}");
    }

    #[test]
    fn the_page_loads_nothing_from_elsewhere() {
        for word in ["http://", "https://", "src=", "@import", "url("] {
            let found = PAGE.match_indices(word).filter(|(at, _)| {
                !PAGE[*at..].starts_with("http://www.w3.org/2000/svg")
                    && !PAGE[*at..].starts_with("url(#")
            });
            assert_eq!(found.count(), 0, "{word}");
        }
        assert!(PAGE.len() < 40_000, "{} bytes", PAGE.len());
    }
}
