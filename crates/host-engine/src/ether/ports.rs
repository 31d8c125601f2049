//! Ports of a thread: one at each interface, all with the same socket number.

use super::address::EtherAddress;
use crate::address::TargetAddress;
use crate::link::LinkError;
use roadtrain_ether_port::carrier::CarrierWatch;
use roadtrain_ether_port::port::{
    ETHERNET_HEADER_BYTES, FlushResult, Port, PortConfig, PortKind, is_missing,
    is_socket_number_taken, missing,
};
use roadtrain_system::random;
use roadtrain_wire::ether::{
    EthernetHeader, FrameError, FrameHeader, FrameType, MacAddress, VERSION, parse,
};
use roadtrain_wire::zerocopy::FromBytes;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;
use tracing::{info, warn};

/// Maximum socket numbers to try: others may use some of them.
const OPEN_TRIES: u32 = 16;

/// Returns the configuration of ports that share an interface with those of reactors.
pub(crate) fn shared_port_config(config: &PortConfig, receive_bytes: usize) -> PortConfig {
    PortConfig { kind: PortKind::Packet, receive_bytes: Some(receive_bytes), ..config.clone() }
}

/// Received frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostFrame<'a> {
    pub(crate) port: usize,
    /// Address of the sender.
    pub(crate) source: MacAddress,
    pub(crate) header: &'a FrameHeader,
    pub(crate) kind: FrameType,
    pub(crate) body: &'a [u8],
}

/// Port, and its state.
struct PortSlot {
    port: Port,
    /// True if it had a carrier at the last check.
    has_carrier: bool,
    /// True if it failed, and the failure was logged.
    is_broken: bool,
    /// Number of descriptors that it has had.
    serial: u32,
}

/// Ports of a thread.
#[derive(Default)]
pub(crate) struct Ports {
    slots: Vec<PortSlot>,
    /// Watch for changes of carriers; without it, checks run at timeouts.
    watch: Option<CarrierWatch>,
    socket_number: u16,
    /// Number of system calls for sending.
    calls: u64,
    /// Dropped frames, by [`FrameError`].
    dropped: [u64; 5],
}

impl Ports {
    /// Opens the ports of one of `reactors` reactors, for all paths over raw Ethernet in order; none if every lane has
    /// a connection of its own.
    ///
    /// # Errors
    /// As [`Ports::open`].
    pub(crate) fn of_reactor<'a>(
        addresses: impl Iterator<Item = &'a TargetAddress>,
        reactors: usize,
    ) -> Result<Ports, LinkError> {
        let all = addresses.filter_map(TargetAddress::as_ether).cloned().reduce(|mut all, next| {
            all.interfaces.extend(next.interfaces);
            all
        });
        let Some(address) = &all else { return Ok(Ports::default()) };
        let kind = match address.port.kind {
            PortKind::Auto if reactors > 1 => PortKind::Packet, // the only kind that can share an interface
            kind => kind,
        };
        Ports::open(address, &PortConfig { kind, ..address.port.clone() })
    }

    /// Opens one at each interface of the address; some of them may appear later.
    ///
    /// # Errors
    /// No interface exists, or one is no Ethernet interface, or may not be used.
    pub(crate) fn open(address: &EtherAddress, config: &PortConfig) -> Result<Ports, LinkError> {
        let mut tries = 1..OPEN_TRIES;
        loop {
            let socket_number = random::number()? as u16 | 1; // never 0, the socket number of targets
            match Ports::open_once(address, config, socket_number) {
                Err(LinkError::Port { source, .. })
                    if is_socket_number_taken(&source) && tries.next().is_some() => {}
                result => return result,
            }
        }
    }

    fn open_once(
        address: &EtherAddress,
        config: &PortConfig,
        socket_number: u16,
    ) -> Result<Ports, LinkError> {
        let open = |interface: &String| {
            let failed = |source| LinkError::Port { interface: interface.clone(), source };
            let port = match Port::open(interface, socket_number, config) {
                Err(error) if is_missing(&error) => {
                    Port::absent(interface, socket_number, config).map_err(|_| error)
                }
                result => result,
            };
            let port = port.map_err(failed)?;
            Ok(PortSlot { has_carrier: port.has_carrier(), port, is_broken: false, serial: 0 })
        };
        let watch = CarrierWatch::open().ok();
        let slots: Vec<PortSlot> =
            address.interfaces.iter().map(open).collect::<Result<_, LinkError>>()?;
        if let Some(first) = slots.first()
            && slots.iter().all(|slot| slot.port.is_absent())
        {
            let interface = first.port.interface().name.clone();
            return Err(LinkError::Port { interface, source: missing() });
        }
        Ok(Ports { slots, watch, socket_number, calls: 0, dropped: [0; 5] })
    }

    /// Returns the common socket number.
    pub(crate) fn socket_number(&self) -> u16 {
        self.socket_number
    }

    /// Returns the number of ports.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// True if one more frame can be built at the port.
    pub(crate) fn has_room(&self, port: usize) -> bool {
        self.slots[port].port.has_room()
    }

    /// Returns the name of the port's interface.
    pub(crate) fn interface(&self, port: usize) -> &str {
        &self.slots[port].port.interface().name
    }

    /// Returns the NUMA node of the port's interface, if it is known.
    pub(crate) fn node(&self, port: usize) -> Option<u32> {
        self.slots.get(port)?.port.interface().node
    }

    /// Returns a port.
    pub(crate) fn port(&mut self, port: usize) -> &mut Port {
        &mut self.slots[port].port
    }

    /// Returns the source address of the port's frames.
    pub(crate) fn mac(&self, port: usize) -> MacAddress {
        self.slots.get(port).map(|slot| slot.port.mac()).unwrap_or_default()
    }

    /// Returns the size of the largest frame that the port takes now, in bytes.
    pub(crate) fn frame_bytes(&self, port: usize) -> usize {
        self.slots.get(port).map_or(0, |slot| slot.port.frame_bytes())
    }

    /// Logs the interfaces that are missing or have no carrier.
    pub(crate) fn report(&self) {
        for PortSlot { port, has_carrier, .. } in &self.slots {
            let name = &port.interface().name;
            if port.is_absent() {
                warn!("{name}: no such interface yet; it is used as soon as it exists");
            } else if !has_carrier {
                warn!("{name}: no carrier: is it up, and its cable plugged in?");
            }
        }
    }

    /// True if an interface is missing.
    pub(crate) fn has_absent(&self) -> bool {
        self.slots.iter().any(|slot| slot.port.is_absent())
    }

    /// Returns the serial number of the port's current descriptor.
    pub(crate) fn serial(&self, port: usize) -> u32 {
        self.slots[port].serial
    }

    /// Returns the descriptor, to be watched.
    pub(crate) fn fd(&self, port: usize) -> BorrowedFd<'_> {
        self.slots[port].port.fd()
    }

    /// Returns the number of system calls for sending so far.
    pub(crate) fn calls(&self) -> u64 {
        self.calls
    }

    /// True if the interface was up with a carrier at the last check.
    pub(crate) fn has_carrier(&self, port: usize) -> bool {
        self.slots.get(port).is_none_or(|slot| slot.has_carrier)
    }

    /// Returns a descriptor that is readable after interfaces have changed: call [`Ports::check_carriers`].
    pub(crate) fn watch_fd(&self) -> Option<BorrowedFd<'_>> {
        self.watch.as_ref().map(CarrierWatch::fd)
    }

    /// Checks which interfaces exist and are up. True if something has changed.
    pub(crate) fn check_carriers(&mut self) -> bool {
        self.watch.iter().for_each(CarrierWatch::clear);
        let mut has_changed = false;
        for slot in &mut self.slots {
            if slot.port.follow() {
                slot.port.report();
                slot.serial = slot.serial.wrapping_add(1);
                (slot.is_broken, has_changed) = (false, true);
            }
            let has_carrier = slot.port.has_carrier();
            if slot.has_carrier != has_carrier {
                let name = &slot.port.interface().name;
                info!("{name}: {} carrier", if has_carrier { "has a" } else { "no" });
                (slot.has_carrier, has_changed) = (has_carrier, true);
            }
        }
        has_changed
    }

    /// Returns how many frames may arrive at a port before the oldest is taken.
    pub(crate) fn ring_frames(&self) -> usize {
        self.slots.iter().map(|slot| slot.port.ring_frames()).min().unwrap_or(0)
    }

    /// Builds a frame that belongs to no lane, or ends one. `header` has TYPE, TOKEN, SOCKET and LINK.
    pub(crate) fn put(
        &mut self,
        port: usize,
        destination: MacAddress,
        header: FrameHeader,
        body: &[u8],
    ) {
        if !self.slots[port].port.has_room() {
            self.flush_one(port);
        }
        let socket_number = self.socket_number.into();
        let port = &mut self.slots[port].port;
        port.begin();
        port.bytes(body.len()).copy_from_slice(body);
        port.end(destination, FrameHeader { version: VERSION, reply: socket_number, ..header });
    }

    /// Sends the built frames.
    pub(crate) fn flush(&mut self) {
        for port in 0..self.slots.len() {
            self.flush_one(port);
        }
    }

    /// Sends the built frames of one port. Frames that the kernel does not take are lost, as frames may be.
    pub(crate) fn flush_one(&mut self, port: usize) {
        let slot = &mut self.slots[port];
        match slot.port.flush() {
            Ok(FlushResult { calls, .. }) => self.calls += calls as u64,
            Err(error) => {
                if !std::mem::replace(&mut slot.is_broken, true) {
                    warn!("{}: {error}", slot.port.interface().name);
                }
            }
        }
    }

    /// Passes up to `max` received frames of a port to `show`. Returns the number of frames taken.
    pub(crate) fn receive(
        &mut self,
        port: usize,
        max: usize,
        mut show: impl FnMut(&HostFrame<'_>),
    ) -> usize {
        let dropped = &mut self.dropped;
        self.slots[port].port.receive(max, |bytes| {
            let Ok((ethernet, _)) = EthernetHeader::ref_from_prefix(bytes) else { return };
            match parse(&bytes[ETHERNET_HEADER_BYTES..]) {
                Ok((header, kind, body)) => {
                    let source = ethernet.source;
                    show(&HostFrame { port, source, header: &header, kind, body });
                }
                Err(error) => count(dropped, error),
            }
        })
    }

    /// Waits for frames, for a change of carriers, or for `other`. True if `other` is readable.
    ///
    /// # Errors
    /// The system call fails.
    pub(crate) fn wait(&mut self, other: Option<RawFd>, timeout: Duration) -> io::Result<bool> {
        let watch = self.watch.as_ref().map(|watch| watch.fd().as_raw_fd());
        let fds = self.slots.iter().map(|slot| slot.port.fd().as_raw_fd());
        let fds = fds.chain(watch).chain(other);
        let mut polls: Vec<libc::pollfd> =
            fds.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect();
        crate::stopping::poll(&mut polls, timeout)?;
        for (slot, poll) in self.slots.iter_mut().zip(&polls) {
            if poll.revents & libc::POLLERR != 0 {
                slot.port.take_error();
            }
        }
        if watch.is_some() && polls[self.slots.len()].revents != 0 {
            self.check_carriers();
        }
        Ok(other.is_some() && polls.last().is_some_and(|poll| poll.revents != 0))
    }
}

fn count(dropped: &mut [u64; 5], error: FrameError) {
    if let Some(count) = dropped.get_mut(error as usize) {
        *count += 1;
    }
}
