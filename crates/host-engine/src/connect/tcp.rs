//! TCP connection, with TLS or without.

use super::near::connect_near;
use super::secure::secure;
use super::waiting;
use crate::command_queue::CommandQueue;
use crate::config::{HostConfig, LocalEnd, OfferedPsk};
use crate::ether::Ports;
use crate::link::{LinkError, QpairLink, TcpLink};
use crate::stopping::poll;
use roadtrain_host_proto::overdue::IoTimer;
use roadtrain_host_proto::qpair::{HostQpair, HostQpairConfig};
use roadtrain_proto::policy::PolicyConfig;
use roadtrain_proto::time::TimeLimit;
use roadtrain_reactor::connection::TcpConnection;
use roadtrain_reactor::stream::ConnectionStream;
use roadtrain_reactor::tuning;
use roadtrain_system::clock;
use roadtrain_system::platform::{mptcp, numa, packets_core};
use socket2::{Domain, SockRef, Socket};
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::fd::AsRawFd;
use std::time::Duration;
use tracing::debug;

/// Minimum time for a second handshake, after the first one has used up the timeout.
const CONNECT_TIME_MIN: Duration = Duration::from_millis(100);

/// Address of a target, and the PSK of connections to it.
#[derive(Clone)]
pub(crate) struct TcpOrigin {
    pub(super) address: SocketAddr,
    pub(super) psk: Option<OfferedPsk>,
}

/// Connects, and initialises the NVMe/TCP connection. Its packets are processed on `core` if possible. A target that
/// does not know the identity of its PSK may know the same key by the other one: returns the identity that it knew.
pub(super) fn connect(
    origin: &TcpOrigin,
    config: &HostConfig,
    entries: u16,
    core: Option<usize>,
) -> Result<(CommandQueue, TcpOrigin), LinkError> {
    let mut limit = TimeLimit::new(config.timeout);
    // Until the target has accepted it: the target, too, checks where its packets arrive.
    let _here = core.and_then(numa::pin_scoped);
    let (first, other) = origin.identities();
    let local = &config.local;
    let (stream, origin) = match (open(&first, (core, local), &mut limit), other) {
        (Err(error), Some(other)) if error.may_know_another_identity() => {
            let (address, identity) = (other.address, other.psk.as_ref().map(|o| &o.psk.identity));
            debug!(%address, %error, identity, "TLS: another identity is offered");
            limit = TimeLimit::new(limit.left(clock::now()).max(CONNECT_TIME_MIN));
            (open(&other, (core, local), &mut limit)?, other)
        }
        (stream, _) => (stream?, first),
    };
    watch_peer(&stream, config.io_timeout)?;
    let is_plain = stream.is_plain();
    let qpair = HostQpairConfig {
        digests: config.digests,
        queue_entries: entries,
        in_capsule_bytes: 0,
        policy: PolicyConfig::none(),
    };
    let link = TcpLink::new(TcpConnection::new(stream), HostQpair::new(clock::now(), qpair));
    let mut queue = CommandQueue::new(QpairLink::Tcp(link), Ports::default(), config.timeout)?;
    match queue.await_ready(limit.left(clock::now())) {
        Ok(()) => Ok((queue, origin)),
        Err(LinkError::Closed) if is_plain => Err(LinkError::PlainClosed),
        Err(error) => Err(error),
    }
}

impl TcpOrigin {
    /// Returns the origin with the first identity of its PSK alone, and with the other one, if it has two.
    fn identities(&self) -> (TcpOrigin, Option<TcpOrigin>) {
        let address = self.address;
        let Some(OfferedPsk { psk, other, blocks_max }) = self.psk.clone() else {
            return (self.clone(), None);
        };
        let only = |psk| {
            let psk = Some(OfferedPsk { psk, other: None, blocks_max });
            TcpOrigin { address, psk }
        };
        (only(psk), other.map(only))
    }
}

/// Opens a connected socket, secured if there is a PSK.
fn open(
    origin: &TcpOrigin,
    (core, local): (Option<usize>, &LocalEnd),
    limit: &mut TimeLimit,
) -> Result<ConnectionStream, LinkError> {
    let socket = connect_near(core, || {
        let socket = waiting(limit, |left| connected((local, origin.address), left))?;
        let packets_core = packets_core(&socket);
        Ok((socket, packets_core))
    })?;
    // Data that the target has not received must not reach it after the end of this process, however it ends: a
    // successor repeats it, and newer writes with it. A normal close changes this setting.
    socket.set_linger(Some(Duration::ZERO))?;
    let stream = match &origin.psk {
        None => ConnectionStream::Plain(socket.into()),
        Some(OfferedPsk { psk, blocks_max, .. }) => {
            secure(socket.into(), (psk.clone(), *blocks_max), limit)?
        }
    };
    SockRef::from(&stream).set_nonblocking(true)?;
    Ok(stream)
}

/// Has the kernel end the connection to an unresponsive peer.
fn watch_peer(stream: &ConnectionStream, io_timeout: Option<Duration>) -> io::Result<()> {
    match io_timeout {
        Some(timeout) => tuning::watch_peer(stream, timeout, timeout + IoTimer::grace(timeout)),
        None => tuning::probe_silent_peer(stream),
    }
}

/// Returns a connected socket.
fn connected((local, address): (&LocalEnd, SocketAddr), timeout: Duration) -> io::Result<Socket> {
    let socket = mptcp::stream_socket(Domain::for_address(address), local.mptcp)?;
    tuning::tune_socket(&socket)?;
    bind(&socket, local, address)?;
    wait_connected(&socket, address, timeout)?;
    mptcp::report_fallback(&socket, address);
    Ok(socket)
}

/// Binds the connection to its local end.
fn bind(socket: &Socket, local: &LocalEnd, peer: SocketAddr) -> io::Result<()> {
    let failed =
        |what: String| move |e: io::Error| io::Error::new(e.kind(), format!("{what}: {e}"));
    if let Some(interface) = &local.interface {
        let bound = socket.bind_device(Some(interface.as_bytes()));
        bound.map_err(failed(format!("from interface {interface}")))?;
    }
    let Some(ip) = local.address else { return Ok(()) };
    let from = match (ip, peer) {
        (IpAddr::V4(ip), SocketAddr::V4(_)) => SocketAddr::new(ip.into(), 0),
        (IpAddr::V6(ip), SocketAddr::V6(peer)) => {
            let scope = if ip.is_unicast_link_local() { peer.scope_id() } else { 0 };
            SocketAddrV6::new(ip, 0, 0, scope).into()
        }
        _ => {
            let what = format!("from {ip}: it is of another family than {}", peer.ip());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
    };
    socket.bind(&from.into()).map_err(failed(format!("from {ip}")))
}

/// Connects the socket, and leaves it blocking.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr, TcpListener};

    #[test]
    fn a_connection_begins_where_it_is_to_begin() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let from = |ip: IpAddr, interface: Option<&str>, mptcp| {
            let interface = interface.map(str::to_owned);
            let local = LocalEnd { address: Some(ip), interface, mptcp };
            connected((&local, address), Duration::from_secs(10))
        };
        let local: IpAddr = Ipv4Addr::new(127, 0, 0, 2).into();
        for (interface, mptcp) in [(None, false), (Some("lo"), false), (Some("lo"), true)] {
            let socket = from(local, interface, mptcp).unwrap();
            let (_accepted, peer) = listener.accept().unwrap();
            assert_eq!(peer, socket.local_addr().unwrap().as_socket().unwrap());
            assert_eq!(peer.ip(), local);
        }
        for (ip, interface, why) in [
            (Ipv4Addr::new(192, 0, 2, 1).into(), None, "from 192.0.2.1: "),
            (local, Some("roadtrain-none"), "from interface roadtrain-none: "),
            (Ipv6Addr::LOCALHOST.into(), None, "from ::1: it is of another family than 127.0.0.1"),
        ] {
            let error = from(ip, interface, false).unwrap_err().to_string();
            assert!(error.starts_with(why), "{error}");
        }
    }
}
