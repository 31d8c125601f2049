//! A port over a packet socket (AF_PACKET): works at every interface, for any number of reactors.

mod filter;
pub(super) mod outgoing;
mod ring;

use super::config::PortConfig;
use super::frame::{FlushResult, FrameShape};
use super::{PortInterface, sys};
use libc::{SOL_PACKET, SOL_SOCKET};
use outgoing::OutgoingFrames;
use ring::PacketRing;
use roadtrain_wire::ether::GROUP;
use socket2::SockRef;
use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Bytes (as the kernel counts, twice the frames' own) that may wait at an interface.
const SEND_BUFFER_BYTES: c_int = 8 << 20;

pub(super) struct PacketPort {
    ring: PacketRing,
    pub(super) outgoing: OutgoingFrames,
    socket: OwnedFd,
}

impl PacketPort {
    /// Opens a port; `socket` is of the packet family and not bound.
    pub(super) fn open(
        socket: OwnedFd,
        interface: &PortInterface,
        socket_number: u16,
        config: &PortConfig,
        shape: FrameShape,
    ) -> io::Result<PacketPort> {
        let filter = filter::program(config.ethertype, socket_number, config.vlan);
        SockRef::from(&socket).attach_filter(&filter)?;
        let on: c_int = 1;
        sys::set_option(&socket, SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &on)?;
        let forced = sys::set_option(&socket, SOL_SOCKET, libc::SO_SNDBUFFORCE, &SEND_BUFFER_BYTES);
        forced.or_else(|_| {
            sys::set_option(&socket, SOL_SOCKET, libc::SO_SNDBUF, &SEND_BUFFER_BYTES)
        })?;
        let ring = PacketRing::new(&socket, shape.frame_bytes(), config.receive_bytes)?;
        if socket_number == 0 {
            join_group(&socket, interface)?;
        }
        // Frames arrive only from now on. Only a socket for all protocols sees tags.
        let protocol = match config.vlan {
            Some(_) => libc::ETH_P_ALL as u16,
            None => config.ethertype,
        };
        sys::bind(&socket, &address(interface, protocol))?;
        Ok(PacketPort { ring, outgoing: OutgoingFrames::new(shape), socket })
    }

    pub(super) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Returns the number of frames that may arrive before the oldest is taken.
    pub(super) fn ring_frames(&self) -> usize {
        self.ring.slots()
    }

    pub(super) fn flush(&mut self) -> io::Result<FlushResult> {
        self.outgoing.send(&self.socket)
    }

    /// Passes up to `max` frames to `show`, empty ones for those larger than a slot; returns their number.
    #[inline]
    pub(super) fn receive(&mut self, max: usize, show: &mut impl FnMut(&[u8])) -> usize {
        let mut taken = 0;
        while taken < max && self.ring.take(&mut *show) {
            taken += 1;
        }
        taken
    }

    /// Returns the number of frames that found the ring full since the last call.
    pub(super) fn dropped(&mut self) -> u64 {
        let stats = sys::get_option::<libc::tpacket_stats>(
            &self.socket,
            SOL_PACKET,
            libc::PACKET_STATISTICS,
        );
        stats.map_or(0, |stats| u64::from(stats.tp_drops))
    }

    /// Takes the error that makes the socket ready without frames: the interface went down.
    pub(super) fn take_error(&self) -> Option<io::Error> {
        sys::take_error(&self.socket)
    }
}

fn address(interface: &PortInterface, protocol: u16) -> libc::sockaddr_ll {
    libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: protocol.to_be(),
        sll_ifindex: interface.index,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    }
}

/// Makes the interface receive frames to the group address of hosts' discovery.
fn join_group(socket: &OwnedFd, interface: &PortInterface) -> io::Result<()> {
    let mut membership = libc::packet_mreq {
        mr_ifindex: interface.index,
        mr_type: libc::PACKET_MR_MULTICAST as u16,
        mr_alen: GROUP.0.len() as u16,
        mr_address: [0; 8],
    };
    membership.mr_address[..GROUP.0.len()].copy_from_slice(&GROUP.0);
    sys::set_option(socket, SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &membership)
}
