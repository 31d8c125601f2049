//! TSockets, what Tyche compares itself with: the frames of `-t ether` over TCP connections.
//!
//! `roadtrain-lab tsockets serve -t ether -a IP[:PORT],..` is the program with that in the place of interfaces; both
//! ends name the target's IPv4 addresses. It needs no privileges. It is there to be compared with: the difference is
//! what frames gain by leaving out TCP and IP.
//!
//! An end has its IPv4 address for an Ethernet address. Its socket number is the TCP port that it listens at; a
//! target's socket number 0 is the port in the name (4420). A frame takes the connection to its address and socket
//! number, which is made when it is needed and used both ways. In a connection frames follow each other without anything between:
//! BODY says where the next one begins.

mod pipe;

use crate::epoll::{Epoll, Readiness};
use clap::Args as Arguments;
use pipe::{Dropped, TSocketsPipe};
use roadtrain_ether_port::port::medium::{self, Medium, OpenedMedium, OutgoingFrames};
use roadtrain_ether_port::port::{ETHERNET_HEADER_BYTES, FlushResult};
use roadtrain_reactor::tuning;
use roadtrain_wire::ether::{FrameHeader, GROUP, MacAddress};
use roadtrain_wire::zerocopy::FromBytes;
use socket2::{Domain, Protocol, Socket, Type};
use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::BorrowedFd;
use std::process::ExitCode;

/// Largest frame, whatever the MTU is: TCP cuts as it likes.
const FRAME_BYTES: usize = 9000;
/// Numbers that there is room for; TCP has windows of its own.
const RING_FRAMES: usize = 1024;
/// Port of targets, unless the name contains one.
const TCP_PORT: u16 = 4420;
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;
/// Most connections of a port.
const PIPES_MAX: usize = 1024;
/// Connections that one call finds ready.
const EVENTS: usize = 64;
/// Pieces of one send.
const PIECES_MAX: usize = 1024;
/// Marks the listener among what is ready.
const LISTENER: usize = usize::MAX;

/// Who is at the other end: an address and a socket number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TSocketsPeer {
    ip: Ipv4Addr,
    socket_number: u16,
}

struct TSockets {
    wires: TSocketsConnections,
    /// The pieces of frames for one connection.
    iov: Vec<libc::iovec>,
    /// A connection has frames that were received but not shown.
    has_more: bool,
}

/// The connections, and how they are made.
struct TSocketsConnections {
    epoll: Epoll,
    listener: Socket,
    local: Ipv4Addr,
    /// Address that receives the frames to the discovery group.
    target: Ipv4Addr,
    tcp_port: u16,
    pipes: Vec<Option<TSocketsPipe>>,
}

// SAFETY: the pointers in `iov` are made and used within one `flush`.
unsafe impl Send for TSockets {}

/// Runs the product's program with TCP connections in the place of interfaces.
#[derive(Debug, Arguments)]
pub(crate) struct TSocketsArgs {
    /// Arguments of `roadtrain`: with -t ether, -a takes IPv4 addresses of the target, IP or IP:PORT, several with commas
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

pub(crate) fn main(args: TSocketsArgs) -> ExitCode {
    medium::provide(open);
    roadtrain_cli::main_with([OsString::from("roadtrain")].into_iter().chain(args.arguments))
}

/// Opens a port if the name is an address. A socket number that may not be listened at counts as taken.
fn open(name: &str, socket_number: u16) -> Option<io::Result<OpenedMedium>> {
    let target = place_named(name)?;
    Some(TSockets::open(target, socket_number).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => io::ErrorKind::AddrInUse.into(),
        _ => error,
    }))
}

fn place_named(name: &str) -> Option<SocketAddrV4> {
    let without_port = || name.parse().ok().map(|ip| SocketAddrV4::new(ip, TCP_PORT));
    name.parse().ok().or_else(without_port)
}

impl TSockets {
    /// Listens for `socket_number` where the target can reach us.
    fn open(target: SocketAddrV4, socket_number: u16) -> io::Result<OpenedMedium> {
        let local = local_towards(*target.ip())?;
        let listener = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
        listener.set_reuse_address(true)?;
        let tcp_port = target.port();
        listener.bind(&place(TSocketsPeer { ip: local, socket_number }, tcp_port).into())?;
        listener.listen(BACKLOG)?;
        listener.set_nonblocking(true)?;
        let epoll = Epoll::new()?;
        epoll.watch(&listener, LISTENER, false)?;
        let target = *target.ip();
        let wires =
            TSocketsConnections { epoll, listener, local, target, tcp_port, pipes: Vec::new() };
        let medium = Box::new(TSockets { wires, iov: Vec::new(), has_more: false });
        Ok(OpenedMedium { medium, mac: mac(local), mtu: FRAME_BYTES })
    }

    /// Shows what a connection has received.
    fn take(
        &mut self,
        index: usize,
        max: usize,
        local: MacAddress,
        show: &mut dyn FnMut(&[u8]),
    ) -> usize {
        let Some(place) = self.wires.pipes.get_mut(index) else { return 0 };
        let Some(pipe) = place else { return 0 };
        let taken = pipe.show(max, local, show);
        self.has_more |= pipe.has_frame();
        if pipe.is_over() {
            *place = None; // which makes epoll forget it
        }
        taken
    }
}

impl Medium for TSockets {
    /// Ready when a connection is.
    fn fd(&self) -> BorrowedFd<'_> {
        self.wires.epoll.fd()
    }

    fn ring_frames(&self) -> usize {
        RING_FRAMES
    }

    /// Sends what was built: frames for the same end with as few calls as can be.
    fn flush(&mut self, outgoing: &mut OutgoingFrames) -> io::Result<FlushResult> {
        let TSockets { wires, iov, .. } = self;
        let mut sent = FlushResult::default();
        let (mut end, mut frames) = (None, 0);
        let oversized = outgoing.take(|own, pieces| {
            let to = wires.end_of(own);
            if end != Some(to) || iov.len() + pieces.len() > PIECES_MAX {
                wires.send(end, iov, frames, &mut sent);
                (end, frames) = (Some(to), 0);
            }
            iov.extend_from_slice(pieces);
            if let Some(first) = iov.len().checked_sub(pieces.len()).and_then(|at| iov.get_mut(at))
            {
                // SAFETY: a frame's first piece has Ethernet's header, and ours, in front.
                first.iov_base = unsafe { first.iov_base.add(ETHERNET_HEADER_BYTES) };
                first.iov_len -= ETHERNET_HEADER_BYTES;
            }
            frames += 1;
        });
        wires.send(end, iov, frames, &mut sent);
        sent.refused += oversized;
        Ok(sent)
    }

    /// Shows up to `max` frames, each from an Ethernet's header on; how many there were.
    fn receive(&mut self, max: usize, show: &mut dyn FnMut(&[u8])) -> usize {
        let local = mac(self.wires.local);
        let mut taken = 0;
        if std::mem::take(&mut self.has_more) {
            for index in 0..self.wires.pipes.len() {
                taken += self.take(index, max - taken, local, show);
            }
        }
        let mut ready = Readiness::<EVENTS>::default();
        if taken == max {
            return taken; // the rest is ready still
        }
        for (index, writable) in self.wires.epoll.ready(&mut ready, 0) {
            if index == LISTENER {
                self.wires.accept();
                continue;
            }
            let wires = &mut self.wires;
            let Some(pipe) = wires.pipes.get_mut(index).and_then(Option::as_mut) else { continue };
            let done =
                pipe.receive().and_then(|()| if writable { pipe.writable() } else { Ok(()) });
            if done.and_then(|()| follow(&wires.epoll, pipe, index)).is_err() {
                pipe.close(); // what came before is shown
            }
            taken += self.take(index, max - taken, local, show);
        }
        taken
    }
}

/// Watches a connection for room to send if something waits for that, and only then.
fn follow(epoll: &Epoll, pipe: &mut TSocketsPipe, index: usize) -> io::Result<()> {
    let Some(writing) = pipe.change_of_watch() else { return Ok(()) };
    epoll.change(pipe.socket(), index, writing)
}

impl TSocketsConnections {
    /// The destination of a frame, from its own bytes.
    fn end_of(&self, own: &[u8]) -> TSocketsPeer {
        let destination =
            own.first_chunk().map_or_else(MacAddress::default, |mac| MacAddress(*mac));
        let header = own.get(ETHERNET_HEADER_BYTES..);
        let header = header.and_then(|bytes| FrameHeader::ref_from_prefix(bytes).ok());
        let socket_number = header.map_or(0, |(header, _)| header.socket_number.get());
        let ip = if destination == GROUP { self.target } else { ip(destination) };
        TSocketsPeer { ip, socket_number }
    }

    /// Sends frames to one end, and forgets their pieces.
    fn send(
        &mut self,
        end: Option<TSocketsPeer>,
        iov: &mut Vec<libc::iovec>,
        frames: usize,
        sent: &mut FlushResult,
    ) {
        let Some(end) = end.filter(|_| frames > 0) else { return };
        let bytes: usize = iov.iter().map(|piece| piece.iov_len).sum();
        let outcome = self.pipe(end).and_then(|index| {
            let Some(pipe) = self.pipes.get_mut(index).and_then(Option::as_mut) else {
                return Err(Dropped);
            };
            sent.calls += 1;
            // SAFETY: pieces are the port's own bytes, or payload by `payload`'s contract.
            let outcome = unsafe { pipe.send(iov) };
            if follow(&self.epoll, pipe, index).is_err() {
                pipe.close();
            }
            outcome
        });
        iov.clear();
        match outcome {
            Ok(()) => (sent.frames, sent.bytes) = (sent.frames + frames, sent.bytes + bytes),
            Err(Dropped) => sent.refused += frames,
        }
    }

    /// The connection to an end: one that is there, or a new one.
    fn pipe(&mut self, end: TSocketsPeer) -> Result<usize, Dropped> {
        let leads =
            |pipe: &Option<TSocketsPipe>| pipe.as_ref().is_some_and(|pipe| pipe.leads_to(end));
        if let Some(index) = self.pipes.iter().position(leads) {
            return Ok(index);
        }
        let dial = || -> io::Result<TSocketsPipe> {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
            tuning::tune_socket(&socket)?;
            socket.set_nonblocking(true)?;
            match socket.connect(&place(end, self.tcp_port).into()) {
                Err(e) if e.raw_os_error() != Some(libc::EINPROGRESS) => Err(e),
                _ => Ok(TSocketsPipe::new(socket, end.ip, Some(end.socket_number))),
            }
        };
        dial().and_then(|pipe| self.add(pipe)).map_err(|_| Dropped)
    }

    fn accept(&mut self) {
        while let Ok((socket, from)) = self.listener.accept() {
            let Some(from) = from.as_socket_ipv4() else { continue };
            let prepared = tuning::tune_socket(&socket).and_then(|()| socket.set_nonblocking(true));
            let pipe = TSocketsPipe::new(socket, *from.ip(), None);
            if let Err(error) = prepared.and_then(|()| self.add(pipe)) {
                tracing::debug!("a connection from {from}: {error}");
            }
        }
    }

    fn add(&mut self, pipe: TSocketsPipe) -> io::Result<usize> {
        let free = self.pipes.iter().position(Option::is_none).unwrap_or(self.pipes.len());
        if free == PIPES_MAX {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        self.epoll.watch(pipe.socket(), free, !pipe.is_calm())?;
        if free == self.pipes.len() {
            self.pipes.push(None);
        }
        self.pipes[free] = Some(pipe);
        Ok(free)
    }
}

/// Where an end listens.
fn place(end: TSocketsPeer, tcp_port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(end.ip, if end.socket_number == 0 { tcp_port } else { end.socket_number })
}

fn mac(ip: Ipv4Addr) -> MacAddress {
    let [a, b, c, d] = ip.octets();
    MacAddress([a, b, c, d, 0, 0])
}

fn ip(mac: MacAddress) -> Ipv4Addr {
    let [a, b, c, d, ..] = mac.0;
    Ipv4Addr::new(a, b, c, d)
}

/// Our address towards the peer at `there`, which may be ourselves.
fn local_towards(there: Ipv4Addr) -> io::Result<Ipv4Addr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect((there, 9))?; // sends nothing
    match socket.local_addr()?.ip() {
        std::net::IpAddr::V4(ip) => Ok(ip),
        std::net::IpAddr::V6(_) => Err(io::ErrorKind::Unsupported.into()),
    }
}

#[cfg(test)]
mod tests;
