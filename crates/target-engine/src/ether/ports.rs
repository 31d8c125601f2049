//! A reactor's ports: which lane a frame is for, and what is answered without a lane.

use super::Drop;
use roadtrain_ether_port::port::{ETHERNET_HEADER_BYTES, Port};
use roadtrain_wire::ether::{
    self, FRAME_HEADER_BYTES, FrameError, FrameHeader, FrameType, MacAddress,
};

/// What lanes must know about a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PortState {
    pub(crate) has_carrier: bool,
    /// Octets of the largest frame that its interface takes now.
    pub(crate) frame_bytes: usize,
}

impl PortState {
    pub(crate) fn of(port: &Port) -> Self {
        PortState { has_carrier: port.has_carrier(), frame_bytes: port.frame_bytes() }
    }
}

/// A frame that belongs to no lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    port: usize,
    destination: MacAddress,
    header: FrameHeader,
    body: Vec<u8>,
}

impl Reply {
    /// Over the port of that number.
    pub(crate) fn new(
        port: usize,
        destination: MacAddress,
        header: FrameHeader,
        body: &[u8],
    ) -> Self {
        Reply { port, destination, header, body: body.to_vec() }
    }

    /// Puts it into its port among `ports`, to be flushed; REPLY is that port's socket number.
    pub(crate) fn put(&self, ports: &mut [Port]) {
        let Some(port) = ports.get_mut(self.port) else { return };
        if FRAME_HEADER_BYTES + self.body.len() > port.frame_bytes() {
            return;
        }
        if !port.has_room() {
            flush(port);
        }
        port.begin();
        port.octets(self.body.len()).copy_from_slice(&self.body);
        let header = FrameHeader { reply: port.socket_number().into(), ..self.header };
        port.end(self.destination, header);
    }
}

/// Sends what was built. What does not leave is lost, as in the network: it is sent again if it matters.
pub(crate) fn flush(port: &mut Port) {
    if let Err(error) = port.flush() {
        tracing::warn!(interface = %port.interface().name, "port: {error}");
    }
}

/// A frame's source, header, type and body, from Ethernet's header on.
pub(crate) fn read(octets: &[u8]) -> Result<(MacAddress, FrameHeader, FrameType, &[u8]), Drop> {
    let (outside, inside) =
        octets.split_at_checked(ETHERNET_HEADER_BYTES).ok_or(Drop::Truncated)?;
    let mut source = MacAddress::default();
    source.0.copy_from_slice(&outside[6..12]);
    let (header, kind, body) = ether::parse(inside).map_err(|error| match error {
        FrameError::Truncated => Drop::Truncated,
        FrameError::Version => Drop::Version,
        FrameError::Type => Drop::Type,
        FrameError::HeaderCrc => Drop::HeaderCrc,
        FrameError::BodyCrc => Drop::BodyCrc,
    })?;
    Ok((source, header, kind, body))
}
