//! A connection over TCP, with TLS or without.

use super::near::connect_near;
use super::secure::secure;
use super::waiting;
use crate::command_queue::CommandQueue;
use crate::config::{HostConfig, OfferedPsk};
use crate::ether::Ports;
use crate::link::{Link, LinkError, TcpLink};
use crate::stopping::poll;
use roadtrain_host_proto::overdue::IoTimer;
use roadtrain_host_proto::qpair::{Config, Qpair};
use roadtrain_proto::policy::PolicyConfig;
use roadtrain_proto::time::TimeLimit;
use roadtrain_reactor::connection::Connection;
use roadtrain_reactor::stream::Stream;
use roadtrain_reactor::tuning;
use roadtrain_system::clock;
use roadtrain_system::platform::{numa, packets_core};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::time::Duration;
use tracing::debug;

/// Longest wait for a second handshake, where the first one has taken all the time.
const CONNECT_TIME_MIN: Duration = Duration::from_millis(100);

/// A target's address, and the PSK that connections to it are secured with.
#[derive(Clone)]
pub(crate) struct Origin {
    pub(super) address: SocketAddr,
    pub(super) psk: Option<OfferedPsk>,
}

/// Connects, and initialises the NVMe/TCP connection. Its packets are processed on `core`, if that can be had. A target
/// that does not know the identity of its PSK may know the same key by the other one: the one that it knew is returned.
pub(super) fn connect(
    origin: &Origin,
    config: &HostConfig,
    entries: u16,
    core: Option<usize>,
) -> Result<(CommandQueue, Origin), LinkError> {
    let mut limit = TimeLimit::new(config.timeout);
    // Until the target has accepted it: it, too, looks where its packets come in.
    let _here = core.and_then(numa::stay_on);
    let (first, other) = origin.identities();
    let (stream, origin) = match (open(&first, core, &mut limit), other) {
        (Err(error), Some(other)) if error.may_know_another_identity() => {
            let (address, identity) = (other.address, other.psk.as_ref().map(|o| &o.psk.identity));
            debug!(%address, %error, identity, "TLS: another identity is offered");
            limit = TimeLimit::new(limit.left(clock::now()).max(CONNECT_TIME_MIN));
            (open(&other, core, &mut limit)?, other)
        }
        (stream, _) => (stream?, first),
    };
    watch_peer(&stream, config.io_timeout)?;
    let is_plain = stream.is_plain();
    let qpair = Config {
        digests: config.digests,
        queue_entries: entries,
        in_capsule_bytes: 0,
        policy: PolicyConfig::none(),
    };
    let link = TcpLink::new(Connection::new(stream), Qpair::new(clock::now(), qpair));
    let mut queue = CommandQueue::new(Link::Tcp(link), Ports::default(), config.timeout)?;
    match queue.await_ready(limit.left(clock::now())) {
        Ok(()) => Ok((queue, origin)),
        Err(LinkError::Closed) if is_plain => Err(LinkError::PlainClosed),
        Err(error) => Err(error),
    }
}

impl Origin {
    /// The same with the first identity of its PSK alone, and with the other one, if it has two.
    fn identities(&self) -> (Origin, Option<Origin>) {
        let address = self.address;
        let Some(OfferedPsk { psk, other, blocks_max }) = self.psk.clone() else {
            return (self.clone(), None);
        };
        let only = |psk| {
            let psk = Some(OfferedPsk { psk, other: None, blocks_max });
            Origin { address, psk }
        };
        (only(psk), other.map(only))
    }
}

/// A connected socket, secured if there is a PSK.
fn open(origin: &Origin, core: Option<usize>, limit: &mut TimeLimit) -> Result<Stream, LinkError> {
    let socket = connect_near(core, || {
        let socket = waiting(limit, |left| connected(origin.address, left))?;
        let packets_core = packets_core(&socket);
        Ok((socket, packets_core))
    })?;
    // However this process ends, nothing that the target has not got yet is to reach it afterwards: a successor
    // repeats it, and newer writes with it. Who ends in order says so.
    socket.set_linger(Some(Duration::ZERO))?;
    let stream = match &origin.psk {
        None => Stream::Plain(socket.into()),
        Some(OfferedPsk { psk, blocks_max, .. }) => {
            secure(socket.into(), (psk.clone(), *blocks_max), limit)?
        }
    };
    SockRef::from(&stream).set_nonblocking(true)?;
    Ok(stream)
}

/// Has the kernel end the connection when nobody is there any more.
fn watch_peer(stream: &Stream, io_timeout: Option<Duration>) -> io::Result<()> {
    match io_timeout {
        Some(timeout) => tuning::watch_peer(stream, timeout, timeout + IoTimer::grace(timeout)),
        None => tuning::probe_silent_peer(stream),
    }
}

/// A socket that is connected.
fn connected(address: SocketAddr, timeout: Duration) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    tuning::tune_socket(&socket)?;
    wait_connected(&socket, address, timeout)?;
    Ok(socket)
}

/// Leaves the socket blocking.
fn wait_connected(socket: &Socket, address: SocketAddr, timeout: Duration) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    match socket.connect(&address.into()) {
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {
            let fd = socket.as_raw_fd();
            let mut polls = [libc::pollfd { fd, events: libc::POLLOUT, revents: 0 }];
            if !poll(&mut polls, timeout)? {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "connection timed out"));
            }
            socket.take_error()?.map_or(Ok(()), Err)?;
        }
        done => done?,
    }
    socket.set_nonblocking(false)
}
