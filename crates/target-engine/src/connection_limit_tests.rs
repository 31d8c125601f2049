//! Tests of the limits of connections.

use super::tests::{LONG, eventually};
use super::{ConnectionLimits, Server, ServerConfig};
use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::time::Duration;

fn serve(all: u32, per_address: u32, connect_timeout: Duration) -> Server {
    let mut config = ServerConfig::new(vec!["127.0.0.1:0".parse().unwrap()], vec![]);
    config.connections = ConnectionLimits { all, per_address };
    config.connect_timeout = connect_timeout;
    config.cores = vec![0, 0];
    Server::start(config).unwrap()
}

fn connect(server: &Server) -> TcpStream {
    let socket = TcpStream::connect(server.addresses()[0]).unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    socket
}

/// True if the target has closed the connection.
fn ends(mut socket: &TcpStream) -> bool {
    match socket.read(&mut [0; 64]) {
        Ok(0) => true,
        Err(error) if error.kind() == ErrorKind::ConnectionReset => true,
        other => panic!("neither an end nor a reset: {other:?}"), // a timeout is an error
    }
}

#[test]
fn the_oldest_silent_connection_ends_first() {
    for (all, per_address) in [(3, 100), (100, 3)] {
        let server = serve(all, per_address, LONG * 10);
        let mut silent = Vec::new();
        for n in 0..8 {
            silent.push(connect(&server));
            let there = silent.len().min(3);
            eventually("it is there", || server.usage().connections == there);
            if n >= 3 {
                assert!(ends(&silent[n - 3]), "the oldest");
            }
        }
    }
}

#[test]
fn silent_connections_end() {
    let server = serve(100, 100, Duration::from_millis(100));
    let silent = connect(&server);
    assert!(ends(&silent));
    eventually("nothing of it is left", || server.usage().connections == 0);
}
