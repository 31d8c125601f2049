//! HTTP on a thread of its own: a listening socket and the answers to requests.
//!
//! Answers come from the one thread of a single-threaded runtime, so a handler must not block it: what takes long goes
//! to `tokio::task::spawn_blocking`.

use axum::Router;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::thread::{Builder, JoinHandle};
use tokio::runtime;
use tokio::sync::oneshot;
use tracing::warn;

/// An HTTP server that runs until it is dropped.
pub struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens at `address` and answers with `router`; `name` is the thread's.
    ///
    /// # Errors
    ///
    /// The address cannot be listened on, or there is no thread to be had.
    pub fn start(name: &str, address: SocketAddr, router: Router) -> io::Result<Server> {
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
        Ok(Server { address, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it listens, with the port that the system has chosen if it was asked for 0.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Until `stopped` is dropped or told; connections that are open then are closed.
async fn serve(
    socket: TcpListener,
    router: Router,
    stopped: oneshot::Receiver<()>,
) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(socket)?;
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    tokio::select! {
        served = axum::serve(listener, service) => served,
        _ = stopped => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::get;
    use std::io::{Read, Write};
    use std::net::TcpStream;

    #[test]
    fn it_answers_until_it_is_dropped() {
        let router = Router::new().route("/healthz", get(|| async { "well\n" }));
        let server = Server::start("http", ([127, 0, 0, 1], 0).into(), router).unwrap();
        let address = server.address();
        let ask = || -> io::Result<String> {
            let mut stream = TcpStream::connect(address)?;
            stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        let answer = ask().unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(answer.ends_with("well\n"), "{answer}");
        drop(server);
        assert!(ask().is_err());
    }
}
