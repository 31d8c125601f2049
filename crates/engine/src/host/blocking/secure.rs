//! The handshake of TLS, by blocking calls.

use super::tcp::wait_writable;
use super::wait_readable;
use crate::host::link::LinkError;
use crate::stream::Stream;
use roadtrain_proto::security::TlsPsk;
use roadtrain_tls::Handshake;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// Octets of a handshake that are received at once.
const RECEIVED_BYTES: usize = 4096;

/// Secures a connection to a target that knows the PSK, for so many blocks of AES.
pub(super) fn secure(
    socket: OwnedFd,
    (psk, blocks_max): (TlsPsk, u64),
    deadline: Instant,
) -> Result<Stream, LinkError> {
    let mut socket = TcpStream::from(socket);
    let mut handshake = Handshake::connect(psk).map_err(LinkError::Tls)?;
    let mut octets = [0; RECEIVED_BYTES];
    loop {
        send(&mut socket, &std::mem::take(handshake.outgoing()), deadline)?;
        if handshake.is_done() {
            let keys = handshake.keys(blocks_max).map_err(LinkError::Tls)?;
            return Ok(Stream::secured(socket.into(), keys)?);
        }
        if !wait_readable(&[socket.as_raw_fd()], left(deadline)?)? {
            continue;
        }
        let wanted = handshake.wanted().min(RECEIVED_BYTES);
        let got = match socket.read(&mut octets[..wanted]) {
            Ok(got) => got,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => 0,
            Err(error) => return Err(error.into()),
        };
        if got == 0 {
            return Err(LinkError::TlsClosed);
        }
        handshake.receive(&octets[..got]).map_err(LinkError::Tls)?;
    }
}

fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    match left.is_zero() {
        true => Err(io::Error::new(ErrorKind::TimedOut, "no end of the TLS handshake in time")),
        false => Ok(left),
    }
}

fn send(socket: &mut TcpStream, octets: &[u8], deadline: Instant) -> io::Result<()> {
    if !octets.is_empty() {
        wait_writable(socket.as_raw_fd(), left(deadline)?)?;
        socket.write_all(octets)?; // no longer than the buffer of a new socket
    }
    Ok(())
}
