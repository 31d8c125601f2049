//! Where a target listens for frames.

use crate::ServerError;
use crate::control::Control;
use roadtrain_ether_port::port::{
    Port, PortConfig, PortKind, is_missing, is_socket_number_taken, missing,
};
use roadtrain_ether_proto::Packing;
use roadtrain_proto::security::SealUse;
use roadtrain_system::random;
use roadtrain_target_proto::FrameListener;
use std::io;
use std::mem;
use std::thread;
use std::time::Duration;
use tracing::warn;

/// Tries to open ports, and the pause between two: socket numbers may be somebody else's, or still those of a target
/// that was killed.
const OPEN_TRIES: u32 = 40;
const OPEN_PAUSE: Duration = Duration::from_millis(50);

/// Interfaces to listen on.
#[derive(Clone, Debug)]
pub struct EtherConfig {
    /// Their names.
    pub interfaces: Vec<String>,
    /// How ports at them are made.
    pub port: PortConfig,
    /// What a frame carries.
    pub packing: Packing,
    /// Whether frames are sealed.
    pub seals: SealUse,
}

impl EtherConfig {
    /// Those interfaces, everything else by default.
    #[must_use]
    pub fn new(interfaces: Vec<String>) -> Self {
        let (port, packing) = (PortConfig::default(), Packing::default());
        EtherConfig { interfaces, port, packing, seals: SealUse::Allowed }
    }

    /// Names where lanes come in.
    #[must_use]
    pub fn interfaces(&self) -> &[String] {
        &self.interfaces
    }
}

/// What a reactor gets of a target's ports.
pub(crate) struct EtherParts {
    /// For lanes, one at each interface.
    pub(crate) lanes: Vec<Port>,
    /// Those of the reactor that listens, at the same interfaces: socket number 0.
    pub(crate) listening: Vec<Port>,
    /// Names the target, the same at all its interfaces.
    pub(crate) endpoint: [u8; 16],
    pub(crate) packing: Packing,
    pub(crate) seals: SealUse,
}

/// The ports of a target.
#[derive(Default)]
pub(crate) struct EtherPorts {
    /// Of each reactor, one at each interface.
    lanes: Vec<Vec<Port>>,
    /// At each interface, for who looks for a target.
    listening: Vec<Port>,
    /// Names the target.
    endpoint: [u8; 16],
    packing: Packing,
    seals: SealUse,
}

impl Control {
    /// Interfaces may have come or gone: the discovery log has the ports that are there.
    pub(crate) fn note_ports(&self, ports: &[Port]) {
        let mut state = self.lock();
        state.target.set_frame_listeners(frame_listeners(ports));
        self.publish(state);
    }
}

/// Ports whose interfaces are there.
fn frame_listeners(ports: &[Port]) -> Vec<FrameListener> {
    let there = ports.iter().filter(|port| !port.is_absent());
    there
        .map(|port| {
            let (ethertype, vlan) = port.protocol();
            FrameListener { address: port.mac().0, ethertype, vlan }
        })
        .collect()
}

impl EtherPorts {
    /// Opens them for so many reactors.
    pub(crate) fn open(
        config: Option<&EtherConfig>,
        reactors: usize,
    ) -> Result<EtherPorts, ServerError> {
        let mut none = EtherPorts::default();
        none.lanes.resize_with(reactors, Vec::new);
        let Some(config) = config else { return Ok(none) };
        let mut tries = 1..OPEN_TRIES;
        loop {
            match EtherPorts::open_once(config, reactors) {
                Err(ServerError::Interface { source, .. })
                    if is_socket_number_taken(&source) && tries.next().is_some() =>
                {
                    thread::sleep(OPEN_PAUSE);
                }
                result => return result,
            }
        }
    }

    /// Those that hosts find the target at.
    pub(crate) fn frame_listeners(&self) -> Vec<FrameListener> {
        frame_listeners(&self.listening)
    }

    /// Those of a reactor; the first also gets those for who looks for a target.
    pub(crate) fn take(&mut self, reactor: usize) -> EtherParts {
        EtherParts {
            lanes: mem::take(&mut self.lanes[reactor]),
            listening: mem::take(&mut self.listening),
            endpoint: self.endpoint,
            packing: self.packing,
            seals: self.seals,
        }
    }

    fn open_once(config: &EtherConfig, reactors: usize) -> Result<EtherPorts, ServerError> {
        let (packing, seals) = (config.packing, config.seals);
        let mut ports = EtherPorts { packing, seals, ..EtherPorts::default() };
        ports.lanes.resize_with(reactors, Vec::new);
        let system = |source| ServerError::System { what: "random numbers", source };
        ports.endpoint = random::octets().map_err(system)?;
        let first = random::number().map_err(system)?;
        let open = |interface: &str, socket_number, port: &PortConfig| match Port::open(
            interface,
            socket_number,
            port,
        ) {
            Err(error) if is_missing(&error) => {
                Port::absent(interface, socket_number, port).map_err(|_| error)
            }
            result => result,
        };
        for interface in &config.interfaces {
            let failed =
                |source: io::Error| ServerError::Interface { interface: interface.clone(), source };
            for (number, lanes) in (0..).zip(&mut ports.lanes) {
                let port =
                    PortConfig { kind: kind(config.port.kind, reactors), ..config.port.clone() };
                let socket_number = lane_socket_number(first, number);
                lanes.push(open(interface, socket_number, &port).map_err(failed)?);
            }
            let port = PortConfig { kind: PortKind::Packet, ..config.port.clone() };
            ports.listening.push(open(interface, 0, &port).map_err(failed)?);
        }
        ports.check_absent()?;
        Ok(ports)
    }

    /// Interfaces may be missing, but not all of them: they may come yet.
    fn check_absent(&self) -> Result<(), ServerError> {
        let (absent, there): (Vec<_>, Vec<_>) = self.listening.iter().partition(|p| p.is_absent());
        if let (Some(first), true) = (absent.first(), there.is_empty()) {
            let interface = first.interface().name.clone();
            return Err(ServerError::Interface { interface, source: missing() });
        }
        for port in absent {
            let name = &port.interface().name;
            warn!("{name}: no such interface yet; it is used as soon as it is there");
        }
        for port in there.iter().filter(|port| !port.has_carrier()) {
            let name = &port.interface().name;
            warn!("{name}: no carrier yet: is it up, and its cable plugged in?");
        }
        Ok(())
    }
}

/// Several reactors cannot share what only one can have.
fn kind(kind: PortKind, reactors: usize) -> PortKind {
    if reactors > 1 && kind == PortKind::Auto { PortKind::Packet } else { kind }
}

/// Socket numbers of the target's own: consecutive, from a random one on, and never 0.
fn lane_socket_number(first: u64, number: u64) -> u16 {
    const NUMBERS: u64 = u16::MAX as u64;
    ((first % NUMBERS + number) % NUMBERS + 1) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doors_differ_and_are_not_0() {
        for first in [0, 65533, 65534, 65535, u64::MAX] {
            let numbers: std::collections::BTreeSet<u16> =
                (0..100).map(|number| lane_socket_number(first, number)).collect();
            assert_eq!(numbers.len(), 100);
            assert!(!numbers.contains(&0));
        }
    }
}
