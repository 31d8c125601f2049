//! Ethernet interfaces where a target accepts lanes.

use crate::ServerError;
use crate::control::TargetControlPlane;
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

/// Number of attempts to open ports, and the delay between two. A socket number may still belong to another process, or
/// to a target that was killed.
const OPEN_TRIES: u32 = 40;
const OPEN_PAUSE: Duration = Duration::from_millis(50);

/// Interfaces to listen on.
#[derive(Clone, Debug)]
pub struct EtherConfig {
    /// Names of the interfaces.
    pub interfaces: Vec<String>,
    /// Options of the ports at these interfaces.
    pub port: PortConfig,
    /// Packing of records into frames.
    pub packing: Packing,
    /// Use of sealed frames.
    pub seals: SealUse,
}

impl EtherConfig {
    /// Creates a configuration for these interfaces, with defaults for all other options.
    #[must_use]
    pub fn new(interfaces: Vec<String>) -> Self {
        let (port, packing) = (PortConfig::default(), Packing::default());
        EtherConfig { interfaces, port, packing, seals: SealUse::Allowed }
    }

    /// Returns the names of the interfaces.
    #[must_use]
    pub fn interfaces(&self) -> &[String] {
        &self.interfaces
    }
}

/// Ports and options of one reactor.
pub(crate) struct EtherParts {
    /// Ports for lanes, one at each interface.
    pub(crate) lanes: Vec<Port>,
    /// Ports with socket number 0 at the same interfaces; only for the reactor that listens.
    pub(crate) listening: Vec<Port>,
    /// Identifier of the target, the same at all its interfaces.
    pub(crate) endpoint: [u8; 16],
    pub(crate) packing: Packing,
    pub(crate) seals: SealUse,
}

/// The ports of a target.
#[derive(Default)]
pub(crate) struct EtherPorts {
    /// Ports of each reactor, one at each interface.
    lanes: Vec<Vec<Port>>,
    /// Ports with socket number 0 for discovery, one at each interface.
    listening: Vec<Port>,
    /// Identifier of the target.
    endpoint: [u8; 16],
    packing: Packing,
    seals: SealUse,
}

impl TargetControlPlane {
    /// Updates the discovery log with the ports whose interfaces exist now.
    pub(crate) fn update_frame_listeners(&self, ports: &[Port]) {
        let mut state = self.lock();
        state.target.set_frame_listeners(frame_listeners(ports));
        self.publish(state);
    }
}

/// Returns the frame listeners of ports whose interfaces exist.
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
    /// Opens the ports for this number of reactors.
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

    /// Returns the listeners at which hosts find the target.
    pub(crate) fn frame_listeners(&self) -> Vec<FrameListener> {
        frame_listeners(&self.listening)
    }

    /// Takes the ports of one reactor. The first call also takes the ports with socket number 0.
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
        ports.endpoint = random::bytes().map_err(system)?;
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

    /// Checks that at least one interface exists. Missing interfaces may appear later.
    fn check_absent(&self) -> Result<(), ServerError> {
        let (absent, there): (Vec<_>, Vec<_>) = self.listening.iter().partition(|p| p.is_absent());
        if let (Some(first), true) = (absent.first(), there.is_empty()) {
            let interface = first.interface().name.clone();
            return Err(ServerError::Interface { interface, source: missing() });
        }
        for port in absent {
            let name = &port.interface().name;
            warn!("{name}: no such interface yet; it is used as soon as it exists");
        }
        for port in there.iter().filter(|port| !port.has_carrier()) {
            let name = &port.interface().name;
            warn!("{name}: no carrier yet: is it up, and its cable plugged in?");
        }
        Ok(())
    }
}

/// Returns the kind of port: several reactors cannot share a kind that only one process can open.
fn kind(kind: PortKind, reactors: usize) -> PortKind {
    if reactors > 1 && kind == PortKind::Auto { PortKind::Packet } else { kind }
}

/// Returns a socket number of the target: consecutive from a random first one, and never 0.
fn lane_socket_number(first: u64, number: u64) -> u16 {
    const NUMBERS: u64 = u16::MAX as u64;
    ((first % NUMBERS + number) % NUMBERS + 1) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_numbers_differ_and_are_not_0() {
        for first in [0, 65533, 65534, 65535, u64::MAX] {
            let numbers: std::collections::BTreeSet<u16> =
                (0..100).map(|number| lane_socket_number(first, number)).collect();
            assert_eq!(numbers.len(), 100);
            assert!(!numbers.contains(&0));
        }
    }
}
