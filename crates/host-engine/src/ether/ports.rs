//! A thread's ports: one at each interface, all with the same socket number.

use super::address::EtherAddress;
use crate::address::Address;
use crate::link::LinkError;
use roadtrain_ether_port::carrier::CarrierWatch;
use roadtrain_ether_port::port::{
    ETHERNET_HEADER_BYTES, Port, PortConfig, PortKind, Sent, is_missing, is_socket_number_taken,
    missing,
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

/// How many socket numbers are tried: some may be somebody else's.
const OPEN_TRIES: u32 = 16;

/// For ports beside those of reactors: there may be others at the interface.
pub(crate) fn beside(config: &PortConfig, receive_bytes: usize) -> PortConfig {
    PortConfig { kind: PortKind::Packet, receive_bytes: Some(receive_bytes), ..config.clone() }
}

/// A frame that has arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heard<'a> {
    pub(crate) port: usize,
    /// From whom.
    pub(crate) source: MacAddress,
    pub(crate) header: &'a FrameHeader,
    pub(crate) kind: FrameType,
    pub(crate) body: &'a [u8],
}

/// A port, and what became of it.
struct Place {
    port: Port,
    /// When it was last looked at.
    has_carrier: bool,
    /// It is of no use any more, and that was said.
    is_broken: bool,
    /// Counts the descriptors that it has had.
    serial: u32,
}

/// The ports.
#[derive(Default)]
pub(crate) struct Ports {
    places: Vec<Place>,
    /// Tells when to look at carriers; without it, time-outs tell.
    watch: Option<CarrierWatch>,
    socket_number: u16,
    /// System calls of sends.
    calls: u64,
    /// Frames that were none of ours, by [`FrameError`].
    dropped: [u64; 5],
}

impl Ports {
    /// Those of one of so many reactors, for all paths straight on Ethernet, one after the other; none where every lane
    /// has a connection of its own.
    ///
    /// # Errors
    /// As [`Ports::open`].
    pub(crate) fn of_reactor<'a>(
        addresses: impl Iterator<Item = &'a Address>,
        reactors: usize,
    ) -> Result<Ports, LinkError> {
        let all = addresses.filter_map(Address::as_ether).cloned().reduce(|mut all, next| {
            all.interfaces.extend(next.interfaces);
            all
        });
        let Some(address) = &all else { return Ok(Ports::default()) };
        let kind = match address.port.kind {
            PortKind::Auto if reactors > 1 => PortKind::Packet, // the only kind that shares an interface
            kind => kind,
        };
        Ports::open(address, &PortConfig { kind, ..address.port.clone() })
    }

    /// Opens one at each interface of the address; some of them may come later.
    ///
    /// # Errors
    /// No interface is there, or one is no Ethernet, or may not be used.
    pub(crate) fn open(address: &EtherAddress, config: &PortConfig) -> Result<Ports, LinkError> {
        let mut tries = 1..OPEN_TRIES;
        loop {
            let socket_number = random::number()? as u16 | 1; // not that of targets
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
            Ok(Place { has_carrier: port.has_carrier(), port, is_broken: false, serial: 0 })
        };
        let watch = CarrierWatch::open().ok();
        let places: Vec<Place> =
            address.interfaces.iter().map(open).collect::<Result<_, LinkError>>()?;
        if let Some(first) = places.first()
            && places.iter().all(|place| place.port.is_absent())
        {
            let interface = first.port.interface().name.clone();
            return Err(LinkError::Port { interface, source: missing() });
        }
        Ok(Ports { places, watch, socket_number, calls: 0, dropped: [0; 5] })
    }

    /// The socket number of all of them.
    pub(crate) fn socket_number(&self) -> u16 {
        self.socket_number
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether one more frame can be built at the port.
    pub(crate) fn has_room(&self, port: usize) -> bool {
        self.places[port].port.has_room()
    }

    /// Name of the port's interface.
    pub(crate) fn interface(&self, port: usize) -> &str {
        &self.places[port].port.interface().name
    }

    /// NUMA node of the port's interface, if it is known.
    pub(crate) fn node(&self, port: usize) -> Option<u32> {
        self.places.get(port)?.port.interface().node
    }

    /// The port of that number.
    pub(crate) fn port(&mut self, port: usize) -> &mut Port {
        &mut self.places[port].port
    }

    /// The address that frames of the port come from.
    pub(crate) fn mac(&self, port: usize) -> MacAddress {
        self.places.get(port).map(|place| place.port.mac()).unwrap_or_default()
    }

    /// Octets of the largest frame that the port takes now.
    pub(crate) fn frame_bytes(&self, port: usize) -> usize {
        self.places.get(port).map_or(0, |place| place.port.frame_bytes())
    }

    /// Has the log say which interfaces lead nowhere.
    pub(crate) fn report(&self) {
        for Place { port, has_carrier, .. } in &self.places {
            let name = &port.interface().name;
            if port.is_absent() {
                warn!("{name}: no such interface yet; it is used as soon as it is there");
            } else if !has_carrier {
                warn!("{name}: no carrier: is it up, and its cable plugged in?");
            }
        }
    }

    /// Whether an interface is not there.
    pub(crate) fn has_absent(&self) -> bool {
        self.places.iter().any(|place| place.port.is_absent())
    }

    /// Of the port's present descriptor.
    pub(crate) fn serial(&self, port: usize) -> u32 {
        self.places[port].serial
    }

    /// To be watched.
    pub(crate) fn fd(&self, port: usize) -> BorrowedFd<'_> {
        self.places[port].port.fd()
    }

    /// System calls of sends so far.
    pub(crate) fn calls(&self) -> u64 {
        self.calls
    }

    /// Whether the interface was up, and its cable too, when it was last looked at.
    pub(crate) fn has_carrier(&self, port: usize) -> bool {
        self.places.get(port).is_none_or(|place| place.has_carrier)
    }

    /// Readable when interfaces may have changed: [`Ports::check_carriers`].
    pub(crate) fn watch_fd(&self) -> Option<BorrowedFd<'_>> {
        self.watch.as_ref().map(CarrierWatch::fd)
    }

    /// Looks whether interfaces are there, and up; whether something has changed.
    pub(crate) fn check_carriers(&mut self) -> bool {
        self.watch.iter().for_each(CarrierWatch::clear);
        let mut has_changed = false;
        for place in &mut self.places {
            if place.port.follow() {
                place.port.report();
                place.serial = place.serial.wrapping_add(1);
                (place.is_broken, has_changed) = (false, true);
            }
            let has_carrier = place.port.has_carrier();
            if place.has_carrier != has_carrier {
                let name = &place.port.interface().name;
                info!("{name}: {} carrier", if has_carrier { "has a" } else { "no" });
                (place.has_carrier, has_changed) = (has_carrier, true);
            }
        }
        has_changed
    }

    /// Frames that may arrive at a port before the oldest is taken.
    pub(crate) fn ring_frames(&self) -> usize {
        self.places.iter().map(|place| place.port.ring_frames()).min().unwrap_or(0)
    }

    /// Builds a frame that belongs to no lane, or ends one. `header` says TYPE, TOKEN, SOCKET and LINK.
    pub(crate) fn put(
        &mut self,
        port: usize,
        destination: MacAddress,
        header: FrameHeader,
        body: &[u8],
    ) {
        if !self.places[port].port.has_room() {
            self.flush_one(port);
        }
        let socket_number = self.socket_number.into();
        let port = &mut self.places[port].port;
        port.begin();
        port.octets(body.len()).copy_from_slice(body);
        port.end(destination, FrameHeader { version: VERSION, reply: socket_number, ..header });
    }

    /// Sends what was built.
    pub(crate) fn flush(&mut self) {
        for port in 0..self.places.len() {
            self.flush_one(port);
        }
    }

    /// What the kernel does not take is lost, as frames may be.
    pub(crate) fn flush_one(&mut self, port: usize) {
        let place = &mut self.places[port];
        match place.port.flush() {
            Ok(Sent { calls, .. }) => self.calls += calls as u64,
            Err(error) => {
                if !std::mem::replace(&mut place.is_broken, true) {
                    warn!("{}: {error}", place.port.interface().name);
                }
            }
        }
    }

    /// Shows up to `max` frames that have arrived at a port; how many were taken.
    pub(crate) fn receive(
        &mut self,
        port: usize,
        max: usize,
        mut show: impl FnMut(&Heard<'_>),
    ) -> usize {
        let dropped = &mut self.dropped;
        self.places[port].port.receive(max, |octets| {
            let Ok((ethernet, _)) = EthernetHeader::ref_from_prefix(octets) else { return };
            match parse(&octets[ETHERNET_HEADER_BYTES..]) {
                Ok((header, kind, body)) => {
                    let source = ethernet.source;
                    show(&Heard { port, source, header: &header, kind, body });
                }
                Err(error) => count(dropped, error),
            }
        })
    }

    /// Waits for frames, for a change of carriers, or for `other` to become readable; whether that is so.
    ///
    /// # Errors
    /// The system call's.
    pub(crate) fn wait(&mut self, other: Option<RawFd>, timeout: Duration) -> io::Result<bool> {
        let watch = self.watch.as_ref().map(|watch| watch.fd().as_raw_fd());
        let fds = self.places.iter().map(|place| place.port.fd().as_raw_fd());
        let fds = fds.chain(watch).chain(other);
        let mut polls: Vec<libc::pollfd> =
            fds.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect();
        crate::stopping::poll(&mut polls, timeout)?;
        for (place, poll) in self.places.iter_mut().zip(&polls) {
            if poll.revents & libc::POLLERR != 0 {
                place.port.take_error();
            }
        }
        if watch.is_some() && polls[self.places.len()].revents != 0 {
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
