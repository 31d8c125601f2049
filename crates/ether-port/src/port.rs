//! A reactor's socket at an interface: it sends and receives frames, of any number of lanes.
//!
//! | file | purpose |
//! |---|---|
//! | `packet` | AF_PACKET: a receive ring, and sends that gather payload where it lies |
//! | `xdp` | AF_XDP: memory shared with the kernel, and a program that hands it our frames |
//! | `medium` | other carriers of frames, provided by the program |
//! | `absent` | missing interfaces |
//! | `follow` | interfaces that come, go and change |
//! | `config`, `frame` | configuration of a port; the Ethernet framing |
//! | `interface` | properties of a port's interface |
//! | `reason` | advice for errors of opening |
//! | `sys`, `bpf` | the system calls |
//!
//! A frame is built by [`Port::begin`], any of [`Port::bytes`] and [`Port::payload`], then [`Port::end`];
//! [`Port::flush`] sends all frames that were built. A port drops frames that the kernel does not take at once, as a
//! network does: the lane sends them again if it needs them.
//!
//! # Socket families
//!
//! `roadtrain-lab floor-ether` compares AF_PACKET and AF_XDP. Over veth, where AF_XDP copies (4 KiB requests at depth
//! 128, one core a side, thousands of requests a second for reads, writes):
//!
//! | MTU, payloads in a frame | AF_PACKET | AF_XDP |
//! |---|---|---|
//! | 1500, a third | 127, 121 | 138, 175 |
//! | 9000, one | 309, 307 | 267, 362 |
//! | 9000, two | 418, 484 | 319, 409 |
//! | 65535, fifteen | 895, 849 | 569, 819 |
//!
//! A round trip at depth 1 takes as long with both blocking, and 6 against 7 us polling. AF_XDP in copy mode gains with
//! small frames at best, and its program touches all other traffic of the interface: so [`PortKind::Auto`] takes AF_XDP
//! only where the driver works without copies, else AF_PACKET.

mod absent;
mod bpf;
mod config;
mod follow;
mod frame;
mod interface;
pub mod medium;
mod packet;
mod reason;
mod sys;
mod xdp;

pub use absent::{is_missing, missing};
pub use config::{PortConfig, PortKind};
pub use frame::{ETHERNET_HEADER_BYTES, FlushResult};
pub use interface::PortInterface;

use absent::AbsentPort;
use frame::{FRAME_MAX, FrameShape, TAG_ETHERTYPE};
use medium::{MediumPort, OpenedMedium};
use packet::PacketPort;
use roadtrain_proto::seal::{Seal, SealCipher};
use roadtrain_wire::ether::{FRAME_HEADER_BYTES, FrameHeader, MacAddress};
use rustix::net::AddressFamily;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};
use tracing::debug;
use xdp::{CopyPermission, XdpPort};

/// Longest wait for an interface that another program uses, and the interval of attempts.
const BUSY_MAX: Duration = Duration::from_secs(2);
const BUSY_STEP: Duration = Duration::from_millis(10);
/// Valid VLANs.
const VLANS: std::ops::RangeInclusive<u16> = 1..=4094;

/// True if opening failed because another socket has the socket number; another number may work.
#[must_use]
#[inline]
pub fn is_socket_number_taken(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrInUse
}

roadtrain_proto::counters! {
    /// Counters of a port.
    pub struct PortCounts {
        /// Frames that the kernel has taken.
        sent,
        /// Bytes of these.
        sent_bytes,
        /// Frames that were dropped before they left.
        refused,
        /// Frames that arrived whole.
        received,
        /// Bytes of these.
        received_bytes,
        /// Unusable frames that arrived: too short, or larger than the MTU.
        malformed,
        /// Frames for which there was no memory.
        dropped,
        /// Frames that arrived in scattered pieces and were put together.
        joined,
        /// System calls of sends.
        send_calls,
    }
}

/// A socket at an interface.
pub struct Port {
    interface: PortInterface,
    socket_number: u16,
    shape: FrameShape,
    backend: PortBackend,
    counts: PortCounts,
    /// Configuration to open it again.
    config: PortConfig,
}

enum PortBackend {
    Packet(PacketPort),
    /// With a socket to query the interface.
    Xdp(XdpPort, OwnedFd),
    Medium(MediumPort),
    Absent(AbsentPort),
}

impl PortBackend {
    /// Opens the interface itself.
    fn open(
        socket: OwnedFd,
        interface: &PortInterface,
        socket_number: u16,
        config: &PortConfig,
        shape: FrameShape,
    ) -> io::Result<PortBackend> {
        let xdp = |copies| XdpPort::open(interface, socket_number, config, shape, copies);
        // Frames to a group, as hosts send them to socket number 0, arrive by AF_PACKET only.
        match config.kind {
            PortKind::Xdp if socket_number != 0 => {
                return xdp(CopyPermission::Allowed).map(|port| PortBackend::Xdp(port, socket));
            }
            PortKind::Auto if socket_number != 0 => match xdp(CopyPermission::Refused) {
                Ok(port) => return Ok(PortBackend::Xdp(port, socket)),
                Err(error) => debug!("{}: no AF_XDP without copies: {error}", interface.name),
            },
            _ => {}
        }
        PacketPort::open(socket, interface, socket_number, config, shape).map(PortBackend::Packet)
    }
}

/// Retries an open while the kernel releases the interface of its last user, which takes a while after the close.
fn once_free<T>(open: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let begin = Instant::now();
    loop {
        match open() {
            Err(error) if is_busy(&error) && begin.elapsed() < BUSY_MAX => thread::sleep(BUSY_STEP),
            result => return result,
        }
    }
}

fn without_sockets() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "this program was built without Ethernet")
}

fn is_busy(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ResourceBusy | io::ErrorKind::AlreadyExists)
}

/// Calls a method of the frame builder: AF_XDP's, or the one that gathers pieces.
macro_rules! frames {
    ($port:expr, $frames:pat => $call:expr) => {
        match $port {
            PortBackend::Packet(PacketPort { outgoing: $frames, .. })
            | PortBackend::Medium(MediumPort { outgoing: $frames, .. })
            | PortBackend::Absent(AbsentPort { outgoing: $frames, .. }) => $call,
            PortBackend::Xdp($frames, _) => $call,
        }
    };
}

/// Calls a method that all kinds of ports have.
macro_rules! backend {
    ($port:expr, $backend:pat => $call:expr) => {
        match $port {
            PortBackend::Packet($backend) => $call,
            PortBackend::Xdp($backend, _) => $call,
            PortBackend::Medium($backend) => $call,
            PortBackend::Absent($backend) => $call,
        }
    };
}

impl Port {
    /// Opens a port for the frames with `socket_number`. Needs `CAP_NET_RAW`.
    ///
    /// # Errors
    /// Fails if there is no such Ethernet interface, without permission, or without memory.
    pub fn open(interface: &str, socket_number: u16, config: &PortConfig) -> io::Result<Port> {
        match medium::open(interface, socket_number) {
            Some(opened) => Ok(Port::over(opened?, interface, socket_number, config)),
            None if !cfg!(feature = "sockets") => Err(without_sockets()),
            None => once_free(|| Port::open_at_once(interface, socket_number, config))
                .map_err(|error| reason::explained(error, config.kind)),
        }
    }

    fn over(opened: OpenedMedium, name: &str, socket_number: u16, config: &PortConfig) -> Port {
        let OpenedMedium { medium, mac, mtu } = opened;
        let shape = FrameShape { source: mac, ethertype: config.ethertype, vlan: None, frame: mtu };
        let backend = PortBackend::Medium(MediumPort::new(medium, shape));
        let (name, counts, config) = (name.to_owned(), PortCounts::default(), config.clone());
        let interface = PortInterface { name, index: 0, mac, mtu, queues: 1, node: None };
        Port { interface, socket_number, shape, backend, counts, config }
    }

    /// Opens a port without waiting for an interface that another program uses.
    fn open_at_once(interface: &str, socket_number: u16, config: &PortConfig) -> io::Result<Port> {
        let invalid = |reason: &str| io::Error::new(io::ErrorKind::InvalidInput, reason);
        if config.vlan.is_some_and(|vlan| !VLANS.contains(&vlan)) {
            return Err(invalid("a VLAN is 1 to 4094"));
        }
        if usize::from(config.ethertype) < 0x600 || config.ethertype == TAG_ETHERTYPE {
            return Err(invalid("not an EtherType for frames: 0x600 or more, but not 0x8100"));
        }
        let socket = sys::socket(AddressFamily::PACKET)?;
        let interface = PortInterface::read(&socket, interface)?;
        let shape = FrameShape {
            source: interface.mac,
            ethertype: config.ethertype,
            vlan: config.vlan,
            frame: interface.mtu.min(FRAME_MAX),
        };
        let backend = PortBackend::open(socket, &interface, socket_number, config, shape)?;
        let (counts, config) = (PortCounts::default(), config.clone());
        Ok(Port { interface, socket_number, shape, backend, counts, config })
    }

    /// Returns the socket family; the configured one while the interface is missing.
    #[must_use]
    pub fn kind(&self) -> PortKind {
        match &self.backend {
            PortBackend::Packet(_) => PortKind::Packet,
            PortBackend::Xdp(..) => PortKind::Xdp,
            PortBackend::Medium(_) | PortBackend::Absent(_) => self.config.kind,
        }
    }

    /// True if the interface's driver works on the port's memory, without copies in the kernel.
    #[must_use]
    #[inline]
    pub fn is_zero_copy(&self) -> bool {
        matches!(&self.backend, PortBackend::Xdp(xdp, _) if xdp.is_zero_copy())
    }

    /// Returns the interface, in its state when the port was opened.
    #[must_use]
    #[inline]
    pub fn interface(&self) -> &PortInterface {
        &self.interface
    }

    /// Returns the interface's address: the source of the frames.
    #[must_use]
    #[inline]
    pub fn mac(&self) -> MacAddress {
        self.interface.mac
    }

    /// Returns the interface's MTU.
    #[must_use]
    #[inline]
    pub fn mtu(&self) -> usize {
        self.interface.mtu
    }

    /// Returns the size of the largest frame: our header and body, without Ethernet's header.
    #[must_use]
    #[inline]
    pub fn frame_bytes(&self) -> usize {
        self.shape.frame
    }

    /// Returns the number of frames that may arrive before the oldest is taken.
    #[must_use]
    #[inline]
    pub fn ring_frames(&self) -> usize {
        backend!(&self.backend, backend => backend.ring_frames())
    }

    /// Returns the socket number of the frames for this port.
    #[must_use]
    #[inline]
    pub fn socket_number(&self) -> u16 {
        self.socket_number
    }

    /// True if the interface is up and has a link. A system call.
    #[must_use]
    pub fn has_carrier(&self) -> bool {
        match &self.backend {
            PortBackend::Packet(packet) => self.interface.has_carrier(packet.socket()),
            PortBackend::Xdp(_, socket) => self.interface.has_carrier(socket),
            PortBackend::Medium(_) => true,
            PortBackend::Absent(_) => false,
        }
    }

    /// Returns a descriptor that is ready (POLLIN) while a frame waits. After POLLERR, [`take_error`](Self::take_error)
    /// makes it unready.
    #[must_use]
    #[inline]
    pub fn fd(&self) -> BorrowedFd<'_> {
        backend!(&self.backend, backend => backend.fd())
    }

    /// Takes the error that POLLERR reported: the interface went down. The port works again when it is back.
    #[inline]
    pub fn take_error(&mut self) -> Option<io::Error> {
        backend!(&self.backend, backend => backend.take_error())
    }

    /// Returns the number of system calls of sends so far.
    #[must_use]
    #[inline]
    pub fn send_calls(&self) -> u64 {
        self.counts.send_calls
    }

    /// Returns all counters since it was opened; the kernel is queried for some of them.
    pub fn counts(&mut self) -> PortCounts {
        if let PortBackend::Xdp(xdp, _) = &self.backend {
            self.counts.joined = xdp.joined();
        }
        self.counts.dropped += backend!(&mut self.backend, backend => backend.dropped());
        self.counts
    }

    /// True if one more frame of any content can be built before a [`flush`](Self::flush).
    #[must_use]
    #[inline]
    pub fn has_room(&self) -> bool {
        frames!(&self.backend, frames => frames.has_room())
    }

    /// True if no frame waits for a flush.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        frames!(&self.backend, frames => frames.is_empty())
    }

    /// Starts a frame, for which there [is room](Self::has_room).
    #[inline]
    pub fn begin(&mut self) {
        frames!(&mut self.backend, frames => frames.begin());
    }

    /// Appends bytes to the frame's body for the caller to fill; their initial content is undefined.
    #[inline]
    pub fn bytes(&mut self, length: usize) -> &mut [u8] {
        frames!(&mut self.backend, frames => frames.bytes(length))
    }

    /// Appends payload to the frame's body without copying it.
    ///
    /// # Safety
    /// The `length` bytes at `at` stay readable until the next [`flush`](Self::flush) returns.
    #[inline]
    pub unsafe fn payload(&mut self, at: *const u8, length: usize) {
        // SAFETY: the caller's promise is the same.
        frames!(&mut self.backend, frames => unsafe { frames.payload(at, length) });
    }

    /// Ends the frame. Sets BODY, BCRC if `header` has its flag, and HCRC.
    #[inline]
    pub fn end(&mut self, destination: MacAddress, header: FrameHeader) {
        frames!(&mut self.backend, frames => frames.end(destination, header));
    }

    /// Ends the frame like [`Port::end`], and seals the body. A frame that may not be sealed any more is not sent.
    #[inline]
    pub fn end_sealed<C: SealCipher>(
        &mut self,
        destination: MacAddress,
        header: FrameHeader,
        seal: &mut Seal<C>,
    ) {
        frames!(&mut self.backend, frames => frames.end_sealed(destination, header, seal));
    }

    /// Sends the frames that were built.
    ///
    /// # Errors
    /// Fails if the port is not usable any more. An interface that is down or full is no error: see [`FlushResult::refused`].
    pub fn flush(&mut self) -> io::Result<FlushResult> {
        if self.is_empty() {
            return Ok(FlushResult::default());
        }
        let sent = backend!(&mut self.backend, backend => backend.flush())?;
        self.counts.sent += sent.frames as u64;
        self.counts.sent_bytes += sent.bytes as u64;
        self.counts.refused += sent.refused as u64;
        self.counts.send_calls += sent.calls as u64;
        Ok(sent)
    }

    /// Passes up to `max` received frames to `show`, each from Ethernet's header (14 bytes, without tag) on. Each is at
    /// least as long as our header needs. Returns their number. No system call.
    pub fn receive(&mut self, max: usize, mut show: impl FnMut(&[u8])) -> usize {
        let counts = &mut self.counts;
        let mut judge = |bytes: &[u8]| {
            if bytes.len() < ETHERNET_HEADER_BYTES + FRAME_HEADER_BYTES {
                counts.malformed += 1;
                return;
            }
            counts.received += 1;
            counts.received_bytes += bytes.len() as u64;
            show(bytes);
        };
        backend!(&mut self.backend, backend => backend.receive(max, &mut judge))
    }
}

#[cfg(test)]
mod tests;
