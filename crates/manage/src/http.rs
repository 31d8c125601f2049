//! HTTP on a thread of its own: a listening socket and the responses to requests.
//!
//! Responses come from the one thread of a single-threaded runtime, so a handler must not block it: long work goes to
//! `tokio::task::spawn_blocking`.

mod guard;
mod slots;

pub use slots::HttpConnection;

use crate::bursts::{Bursts, Weight};
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::{Extension, Router};
use guard::guard;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::net::sockopt::set_tcp_user_timeout;
use slots::{CONNECTIONS_MAX, HttpConnectionSlots};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::runtime;
use tokio::sync::oneshot;
use tracing::warn;

/// Timeout for a request's head, and for an idle connection.
const HEAD_WITHIN: Duration = Duration::from_secs(30);
/// Timeout of a response that the peer does not read.
const READ_WITHIN: Duration = Duration::from_secs(30);
/// Longest head of a request.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Pause after a connection that could not be accepted.
const PAUSE: Duration = Duration::from_millis(50);

/// An HTTP server that runs until it is dropped.
pub struct HttpServer {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl HttpServer {
    /// Listens at `address` and serves `router`; `name` is the thread's.
    ///
    /// # Errors
    ///
    /// The address cannot be listened on, or no thread can be started.
    pub fn start(name: &str, address: SocketAddr, router: Router) -> io::Result<HttpServer> {
        let socket = TcpListener::bind(address)?;
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let thread = Builder::new().name(name.to_owned()).spawn(move || {
            let served = runtime.block_on(serve(socket, router, stopped));
            served.unwrap_or_else(|error| warn!("HTTP at {address}: {error}"));
            // Handlers that block are not waited for.
            runtime.shutdown_background();
        })?;
        Ok(HttpServer { address, stop: Some(stop), thread: Some(thread) })
    }

    /// Returns the listening address, with the port that the system chose for port 0.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Serves until `stopped` is dropped or receives a value; connections that are open then are closed.
async fn serve(
    socket: TcpListener,
    router: Router,
    mut stopped: oneshot::Receiver<()>,
) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(socket)?;
    let (slots, bursts, here) =
        (HttpConnectionSlots::default(), Bursts::default(), listener.local_addr()?);
    let report = move |weight, what: &str, peer: SocketAddr, detail: &str| {
        bursts.report(weight, &format!("HTTP at {here}: {what}"), &peer.to_string(), detail);
    };
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = &mut stopped => return Ok(()),
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                let what = "a failure of accept";
                report(Weight::Warning, what, here, &error.to_string());
                tokio::time::sleep(PAUSE).await; // out of descriptors, perhaps
                continue;
            }
        };
        if slots.is_full() {
            // Other connections may have sent their credentials by now.
            tokio::task::yield_now().await;
        }
        let Some((connection, slot, gone)) = slots.take_slot(peer) else {
            let detail = format!("{CONNECTIONS_MAX} are open");
            report(Weight::Warning, "too many connections", peer, &detail);
            continue;
        };
        if let Some(gone) = gone {
            let detail = format!("it has sent no valid credentials, and {peer} has connected");
            report(
                Weight::Warning,
                "an unauthenticated connection closed for another one",
                gone,
                &detail,
            );
        }
        let guard = from_fn(move |request: Request, next: Next| guard(here, request, next));
        let router = router.clone().layer(Extension(connection.clone())).layer(guard);
        let report = report.clone();
        let task = tokio::spawn(async move {
            if let Err(error) = answer(stream, router, READ_WITHIN).await
                && error.is_parse()
            {
                report(Weight::Info, "an invalid HTTP request", peer, &error.to_string());
            }
            drop(slot);
        });
        slots.set_task(&connection, task.abort_handle());
    }
}

/// Serves one connection until its end. Head and body of a response leave in one send. A peer that reads nothing for
/// `read_within` while data waits for it loses its connection, which frees the response's memory.
async fn answer(stream: TcpStream, router: Router, read_within: Duration) -> hyper::Result<()> {
    let _ = stream.set_nodelay(true);
    let milliseconds = read_within.as_millis().try_into().unwrap_or(u32::MAX);
    if let Err(error) = set_tcp_user_timeout(&stream, milliseconds) {
        warn!("HTTP: a peer that takes nothing would keep its answer: TCP_USER_TIMEOUT: {error}");
    }
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN).max_buf_size(HEAD_BYTES_MAX);
    let service = TowerToHyperService::new(router);
    builder.serve_connection(TokioIo::new(stream), service).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::get;
    use std::io::{Read, Write};
    use std::net::TcpStream;

    #[test]
    fn it_serves_until_it_is_dropped() {
        let router = Router::new().route("/healthz", get(|| async { "well\n" }));
        let server = HttpServer::start("http", ([127, 0, 0, 1], 0).into(), router).unwrap();
        let address = server.address();
        let get_health = || -> io::Result<String> {
            let mut stream = TcpStream::connect(address)?;
            stream.write_all(
                b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
            )?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        let answer = get_health().unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(answer.ends_with("well\n"), "{answer}");
        drop(server);
        assert!(get_health().is_err());
    }

    /// Without the timeout the response would keep its memory for ever.
    #[test]
    fn a_peer_that_reads_nothing_loses_its_connection() {
        const ANSWER_BYTES: usize = 64 << 20;
        let router = Router::new().route("/", get(|| async { vec![b'x'; ANSWER_BYTES] }));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        accepted.set_nonblocking(true).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let ended = runtime.block_on(async {
            let accepted = tokio::net::TcpStream::from_std(accepted).unwrap();
            let answered = answer(accepted, router, Duration::from_millis(300));
            tokio::time::timeout(Duration::from_secs(60), answered).await
        });
        ended.expect("it ends").expect_err("and was not answered");
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        assert!(bytes.len() < ANSWER_BYTES);
    }
}
