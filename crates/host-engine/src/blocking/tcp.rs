//! The same over a TCP connection.

use super::near::connect_near;
use super::secure::secure;
use super::{Completed, Wire, tcp, wait_readable, wait_writable, waiting};
use crate::config::{HostConfig, OfferedPsk};
use crate::link::{Link, LinkError, TcpLink};
use crate::stopping::poll;
use roadtrain_host_proto::overdue::IoTimer;
use roadtrain_host_proto::qpair::{Config, Data, Qpair, RxEvent};
use roadtrain_proto::policy::{PolicyConfig, Urgency};
use roadtrain_proto::time::TimeLimit;
use roadtrain_reactor::connection::Connection;
use roadtrain_reactor::gather::{Gather, GatherWriter, Sent};
use roadtrain_reactor::stream::{Incoming, Stream};
use roadtrain_reactor::tuning;
use roadtrain_system::clock;
use roadtrain_system::platform::{Route, numa, packets_core};
use roadtrain_wire::sqe::Sqe;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

const RX_BYTES: usize = 64 << 10;

/// A connection, and the queue pair that it carries.
pub(crate) struct TcpWire {
    stream: Stream,
    address: SocketAddr,
    /// The PSK that it is secured with, for connections beside it.
    psk: Option<OfferedPsk>,
    qpair: Qpair,
    gather: Gather,
    rx: Vec<u8>,
    filled: usize,
}

impl TcpWire {
    /// Connects the socket and initialises the NVMe/TCP connection; the target is waited for as long as `timeout`. Its
    /// packets are processed on `core` if that can be had.
    pub(super) fn connect(
        address: SocketAddr,
        config: Config,
        (timeout, core): (Duration, Option<usize>),
        psk: Option<OfferedPsk>,
    ) -> Result<Self, LinkError> {
        let mut limit = TimeLimit::new(timeout);
        // Until the target has accepted it: it, too, asks where its packets come in.
        let _here = core.and_then(numa::stay_on);
        let socket = connect_near(core, || {
            let socket = waiting(&mut limit, |left| connected(address, left))?;
            let packets_core = packets_core(&socket);
            Ok((socket, packets_core))
        })?;
        // However this process ends, nothing that the target has not got yet is to reach it afterwards: a successor
        // repeats it, and newer writes with it. Who ends in order says so.
        socket.set_linger(Some(Duration::ZERO))?;
        let is_plain = psk.is_none();
        let stream = match &psk {
            None => Stream::Plain(socket.into()),
            Some(OfferedPsk { psk, blocks_max, .. }) => {
                secure(socket.into(), (psk.clone(), *blocks_max), &mut limit)?
            }
        };
        let mut wire = TcpWire {
            stream,
            address,
            psk,
            qpair: Qpair::new(clock::now(), config),
            gather: Gather::default(),
            rx: vec![0; RX_BYTES],
            filled: 0,
        };
        wire.flush(None, &[], timeout)?;
        let deadline = Instant::now() + limit.left(clock::now());
        while !wire.qpair.is_ready() {
            match wire.receive(deadline, None, &mut [], &mut Vec::new()) {
                Ok(true) => {}
                Ok(false) => return Err(io::Error::from(io::ErrorKind::TimedOut).into()),
                Err(LinkError::Closed) if is_plain => return Err(LinkError::PlainClosed),
                Err(error) => return Err(error),
            }
        }
        Ok(wire)
    }

    /// Has the kernel end the connection when nobody is there any more.
    pub(super) fn watch_peer(&self, io_timeout: Option<Duration>) -> io::Result<()> {
        match io_timeout {
            Some(timeout) => {
                tuning::watch_peer(&self.stream, timeout, timeout + IoTimer::grace(timeout))
            }
            None => tuning::probe_silent_peer(&self.stream),
        }
    }
}

impl Wire for TcpWire {
    fn beside(
        &self,
        config: &HostConfig,
        entries: u16,
        number: u16,
    ) -> Result<Box<dyn Wire>, LinkError> {
        let near = (config.timeout, config.core_of(number.into()));
        Ok(Box::new(tcp(self.address, config, entries, near, self.psk.clone())?))
    }

    fn scope(&self) -> u32 {
        match self.address {
            SocketAddr::V6(address) => address.scope_id(),
            SocketAddr::V4(_) => 0,
        }
    }

    fn submit(&mut self, sqe: &Sqe, data: Data) -> Option<u16> {
        self.qpair.submit(clock::now(), sqe, data, Urgency::Urgent)
    }

    fn flush(
        &mut self,
        slot: Option<u16>,
        data: &[u8],
        timeout: Duration,
    ) -> Result<(), LinkError> {
        self.qpair.batcher().drained(clock::now());
        while self.qpair.has_tx() {
            let place = |number, offset, length| {
                debug_assert_eq!(Some(number), slot, "only the command waited for has data");
                Some(data[offset as usize..][..length as usize].as_ptr())
            };
            // SAFETY: `data` is borrowed for as long as the caravan is sent.
            self.qpair.poll_tx(&mut unsafe { GatherWriter::new(&mut self.gather, place) });
            let mut calls = 0;
            while self.gather.send(&mut self.stream, &mut calls)? == Sent::Blocked {
                wait_writable(self.stream.fd(), timeout)?;
            }
            self.gather.clear();
        }
        Ok(())
    }

    fn receive(
        &mut self,
        deadline: Instant,
        slot: Option<u16>,
        input: &mut [u8],
        completed: &mut Completed,
    ) -> Result<bool, LinkError> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || !wait_readable(&[self.stream.fd()], left)? {
            return Ok(false);
        }
        let room = &mut self.rx[self.filled..];
        let mut place = [libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() }];
        // SAFETY: the room is ours.
        match unsafe { self.stream.receive(&mut place) }? {
            Incoming::Octets(got) => self.filled += got,
            Incoming::Nothing => return Ok(true),
            Incoming::Closed => return Err(LinkError::Closed),
        }
        let mut at = 0;
        let received = &self.rx[..self.filled];
        while let Some(event) = self.qpair.poll_rx(clock::now(), received, &mut at)? {
            match event {
                RxEvent::Ready => {}
                RxEvent::Data { slot: number, offset, start, length } => {
                    let data = &received[start..start + length as usize];
                    if Some(number) == slot {
                        input[offset as usize..][..data.len()].copy_from_slice(data);
                    }
                }
                RxEvent::Complete { slot, cqe, .. } => completed.push((slot, cqe)),
            }
        }
        self.rx.copy_within(at..self.filled, 0);
        self.filled -= at;
        Ok(true)
    }

    fn has_input(&mut self, completed: &mut Completed) -> Result<bool, LinkError> {
        Ok(completed.is_empty() && wait_readable(&[self.stream.fd()], Duration::ZERO)?)
    }

    fn wait(
        &mut self,
        other: RawFd,
        timeout: Duration,
        _completed: &mut Completed,
    ) -> Result<(), LinkError> {
        wait_readable(&[self.stream.fd(), other], timeout)?;
        Ok(())
    }

    fn route(&self) -> Route {
        Route::of(&SockRef::from(&self.stream))
    }

    fn into_link(
        mut self: Box<Self>,
        in_capsule_bytes: u32,
        policy: PolicyConfig,
    ) -> Result<Link, LinkError> {
        self.qpair.set_in_capsule_bytes(in_capsule_bytes);
        self.qpair.set_policy(policy);
        SockRef::from(&self.stream).set_nonblocking(true)?;
        let mut connection = Connection::new(self.stream);
        connection.keep(&self.rx[..self.filled]);
        Ok(Link::Tcp(TcpLink::new(connection, self.qpair)))
    }

    /// Everything was answered: it is closed, not reset.
    fn close(self: Box<Self>) {
        self.stream.linger_on_close();
    }
}

/// A socket that is connected.
fn connected(address: SocketAddr, timeout: Duration) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    tuning::tune_socket(&socket)?;
    connect(&socket, address, timeout)?;
    Ok(socket)
}

/// Leaves the socket blocking.
fn connect(socket: &Socket, address: SocketAddr, timeout: Duration) -> io::Result<()> {
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
