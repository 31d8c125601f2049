//! Sources of snapshots: control sockets on this machine, metrics addresses of others.

use crate::connect::split_port;
use crate::control::Call;
use crate::failure::{CommandFailure, CommandResult};
use crate::running::{self, ControlledProcess};
use roadtrain_reactor::metrics::MetricsSnapshot;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// Time limit of an HTTP reply, and its largest size.
const TIMEOUT: Duration = Duration::from_secs(3);
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// Source of snapshots, which is queried repeatedly.
pub(super) enum SnapshotSource {
    /// A process on this machine.
    Here(ControlledProcess),
    /// The metrics address of another process.
    There(String),
}

impl SnapshotSource {
    /// Returns the processes here with these names, and the sources at these addresses.
    ///
    /// # Errors
    /// A name that is unknown here, or an invalid address.
    pub(super) fn all(
        names: &[String],
        addresses: &[String],
    ) -> CommandResult<Vec<SnapshotSource>> {
        for address in addresses {
            if split_port(address, 0)?.1 == 0 {
                return Err(CommandFailure::usage(format!(
                    "-a {address}: which port? Write ADDR:PORT"
                )));
            }
        }
        let here = if names.is_empty() && !addresses.is_empty() {
            Vec::new()
        } else {
            running::processes(names, &[])?
        };
        let there = addresses.iter().cloned().map(SnapshotSource::There);
        Ok(here.into_iter().map(SnapshotSource::Here).chain(there).collect())
    }

    /// Returns the name.
    pub(super) fn name(&self) -> &str {
        match self {
            SnapshotSource::Here(process) => &process.id,
            SnapshotSource::There(address) => address,
        }
    }

    /// Returns the present counters, or the reason why they are not available.
    pub(super) fn snapshot(&self) -> Result<MetricsSnapshot, String> {
        match self {
            SnapshotSource::Here(process) => {
                running::query((&process.socket, process.owner), &Call::Snapshot)
            }
            SnapshotSource::There(address) => {
                let text = get(address, "/snapshot.json").map_err(|error| match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut => "it does not answer".to_owned(),
                    _ => error.to_string(),
                })?;
                let snapshot = serde_json::from_slice(&text);
                snapshot.map_err(|e| format!("an invalid reply: {e}"))
            }
        }
    }
}

/// Reads a path of a metrics address.
fn get(address: &str, path: &str) -> io::Result<Vec<u8>> {
    let until = Instant::now() + TIMEOUT;
    let mut last = io::Error::from(ErrorKind::NotFound);
    for place in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&place, TIMEOUT) {
            Ok(stream) => return get_over(&stream, address, path, until),
            Err(error) => last = error,
        }
    }
    let hint = "does a target or an attachment with --metrics listen there?";
    Err(io::Error::new(last.kind(), format!("{last}: {hint}")))
}

fn get_over(
    mut stream: &TcpStream,
    address: &str,
    path: &str,
    until: Instant,
) -> io::Result<Vec<u8>> {
    stream.set_write_timeout(Some(TIMEOUT))?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    let mut piece = [0; 64 << 10];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut piece)? {
            0 => return body(answer),
            count => answer.extend_from_slice(&piece[..count]),
        }
        if answer.len() as u64 > ANSWER_BYTES_MAX {
            return Err(io::Error::new(ErrorKind::InvalidData, "the answer is too long"));
        }
    }
}

/// Returns the body of a complete and successful HTTP reply.
fn body(answer: Vec<u8>) -> io::Result<Vec<u8>> {
    let no_http = || {
        io::Error::new(
            ErrorKind::InvalidData,
            "it is no metrics address: -a takes that of --metrics, not the one that hosts connect to",
        )
    };
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").ok_or_else(no_http)?;
    let head = std::str::from_utf8(&answer[..end]).map_err(|_| no_http())?;
    let mut lines = head.lines();
    let status = lines.next().filter(|line| line.starts_with("HTTP/1.")).ok_or_else(no_http)?;
    if status.split_whitespace().nth(1) != Some("200") {
        return Err(io::Error::other(format!("it answers {status}")));
    }
    let length = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    let body = answer[end + 4..].to_vec();
    match length {
        Some(length) if length != body.len() => Err(ErrorKind::UnexpectedEof.into()),
        _ => Ok(body),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread;

    /// Queries a server that sends this reply.
    fn snapshot_from(answer: &'static [u8]) -> Result<MetricsSnapshot, String> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let serving = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let count = stream.read(&mut request).unwrap();
            assert!(request[..count].starts_with(b"GET /snapshot.json HTTP/1.1\r\n"));
            stream.write_all(answer).unwrap();
        });
        let snapshot = SnapshotSource::There(address).snapshot();
        serving.join().unwrap();
        snapshot
    }

    #[test]
    fn other_machines_are_queried_over_http() {
        assert!(
            snapshot_from(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
                .unwrap_err()
                .contains("404")
        );
        assert!(
            snapshot_from(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}").is_err(),
            "cut off"
        );
        assert!(snapshot_from(b"SSH-2.0-x\r\n").unwrap_err().contains("metrics"));
        assert!(
            snapshot_from(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n[1]")
                .unwrap_err()
                .contains("invalid reply")
        );
    }

    #[test]
    fn a_refused_connection_has_a_hint() {
        let unused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let error = SnapshotSource::There(unused).snapshot().unwrap_err();
        assert!(error.contains("with --metrics"), "{error}");
    }

    #[test]
    fn addresses_have_a_port() {
        let wrong = SnapshotSource::all(&[], &["192.0.2.1".into()]).err().unwrap();
        assert!(wrong.message.contains("which port"));
    }
}
