//! TLS handshake, by blocking calls.

use super::waiting;
use crate::link::LinkError;
use crate::stopping::{self, wait_readable};
use roadtrain_proto::security::TlsPsk;
use roadtrain_proto::time::TimeLimit;
use roadtrain_reactor::stream::ConnectionStream;
use roadtrain_system::clock;
use roadtrain_tls::Handshake;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;
use tracing::debug;

/// Maximum bytes of a handshake that are received at once.
const RECEIVED_BYTES: usize = 4096;

/// Secures a connection to a target that has the PSK, for at most this many AES blocks. The host's own computation does
/// not count against the limit.
pub(super) fn secure(
    socket: OwnedFd,
    (psk, blocks_max): (TlsPsk, u64),
    limit: &mut TimeLimit,
) -> Result<ConnectionStream, LinkError> {
    let mut socket = TcpStream::from(socket);
    let mut handshake = Handshake::connect(psk).map_err(LinkError::Tls)?;
    let mut bytes = [0; RECEIVED_BYTES];
    loop {
        send(&mut socket, &std::mem::take(handshake.outgoing()), limit)?;
        if handshake.is_done() {
            let keys = handshake.keys(blocks_max).map_err(LinkError::Tls)?;
            let stream = ConnectionStream::secured(socket.into(), keys)?;
            debug!(records = stream.records(), "secured by TLS");
            return Ok(stream);
        }
        if !wait(limit, |left| wait_readable(&[socket.as_raw_fd()], left))? {
            continue;
        }
        let wanted = handshake.wanted().min(RECEIVED_BYTES);
        let got = match socket.read(&mut bytes[..wanted]) {
            Ok(got) => got,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => 0,
            Err(error) => return Err(error.into()),
        };
        if got == 0 {
            return Err(LinkError::TlsClosed);
        }
        handshake.receive(&bytes[..got]).map_err(LinkError::Tls)?;
    }
}

/// Waits for the target within the limit, and within the waits of this thread.
fn wait<T>(limit: &mut TimeLimit, wait: impl FnOnce(Duration) -> io::Result<T>) -> io::Result<T> {
    match stopping::limit(limit.left(clock::now())).is_zero() {
        true => Err(io::Error::new(ErrorKind::TimedOut, "no end of the TLS handshake in time")),
        false => waiting(limit, wait),
    }
}

/// Waits until `fd` is writable.
fn wait_writable(fd: RawFd, timeout: Duration) -> io::Result<()> {
    let mut polls = [libc::pollfd { fd, events: libc::POLLOUT, revents: 0 }];
    match stopping::poll(&mut polls, timeout)? {
        true => Ok(()),
        false => Err(io::Error::new(ErrorKind::TimedOut, "the target does not take data")),
    }
}

fn send(socket: &mut TcpStream, bytes: &[u8], limit: &mut TimeLimit) -> io::Result<()> {
    if !bytes.is_empty() {
        wait(limit, |left| wait_writable(socket.as_raw_fd(), left))?;
        socket.write_all(bytes)?; // shorter than the buffer of a new socket
    }
    Ok(())
}
