//! Ports follow their interfaces, which may be missing at first, and be removed, made again, or changed.

use super::absent::AbsentPort;
use super::config::PortConfig;
use super::frame::FrameShape;
use super::packet::outgoing::OutgoingFrames;
use super::{Port, PortBackend, PortCounts, PortInterface, sys};
use roadtrain_wire::ether::MacAddress;
use rustix::net::AddressFamily;
use std::io;
use tracing::{debug, info, warn};

impl Port {
    /// Makes a port at an interface that is missing: [`Port::follow`] opens it once it exists.
    ///
    /// # Errors
    /// Fails without permission, or without memory.
    pub fn absent(interface: &str, socket_number: u16, config: &PortConfig) -> io::Result<Port> {
        let (interface, shape) = nowhere(interface, config);
        let absent = AbsentPort {
            outgoing: OutgoingFrames::new(shape),
            socket: sys::socket(AddressFamily::PACKET)?,
        };
        let (backend, config) = (PortBackend::Absent(absent), config.clone());
        Ok(Port { interface, socket_number, shape, backend, counts: PortCounts::default(), config })
    }

    /// Returns the EtherType of its frames, and the VLAN whose tag they carry.
    #[must_use]
    #[inline]
    pub fn protocol(&self) -> (u16, Option<u16>) {
        (self.config.ethertype, self.config.vlan)
    }

    /// True if its interface is missing, or unusable.
    #[must_use]
    #[inline]
    pub fn is_absent(&self) -> bool {
        matches!(self.backend, PortBackend::Absent(_))
    }

    /// Checks that the interface of its name is still the same: with its number, address and MTU. Otherwise replaces
    /// all of the port except its socket number, [its descriptor](Self::fd) too, and returns true. Frames waiting to be
    /// sent are lost, like in a network.
    pub fn follow(&mut self) -> bool {
        let is_same = match &self.backend {
            PortBackend::Packet(packet) => self.interface.is_same(packet.socket()),
            PortBackend::Xdp(_, socket) => self.interface.is_same(socket),
            PortBackend::Absent(absent) => {
                !PortInterface::is_there(&absent.socket, &self.interface.name)
            }
            PortBackend::Medium(_) => true,
        };
        !is_same && self.replace()
    }

    fn replace(&mut self) -> bool {
        let name = self.interface.name.clone();
        let mut has_changed = false;
        if !self.is_absent() {
            // Closed first: AF_XDP uses the interface exclusively.
            match Port::absent(&name, self.socket_number, &self.config) {
                Ok(absent) => *self = Port { counts: self.counts, ..absent },
                Err(error) => {
                    warn!("{name}: {error}");
                    return false;
                }
            }
            has_changed = true;
        }
        match Port::open_at_once(&name, self.socket_number, &self.config) {
            Ok(port) => *self = Port { counts: self.counts, ..port },
            Err(error) => {
                debug!("{name}: {error}");
                return has_changed;
            }
        }
        true
    }

    /// Logs the state that [`Port::follow`] has found.
    pub fn report(&self) {
        let PortInterface { name, mac, mtu, .. } = &self.interface;
        if self.is_absent() {
            warn!("{name}: no such interface any more; it is used again when it is back");
        } else {
            info!("{name}: {mac}, MTU {mtu}");
        }
    }
}

/// Returns a placeholder for a missing interface of that name.
fn nowhere(name: &str, config: &PortConfig) -> (PortInterface, FrameShape) {
    let mac = MacAddress::default();
    let interface =
        PortInterface { name: name.to_owned(), index: 0, mac, mtu: 0, queues: 0, node: None };
    let (ethertype, vlan) = (config.ethertype, config.vlan);
    (interface, FrameShape { source: mac, ethertype, vlan, frame: 0 })
}
