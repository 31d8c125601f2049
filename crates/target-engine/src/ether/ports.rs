//! Ports of a reactor: the lane of each frame, and replies without a lane.

use super::Drop;
use roadtrain_ether_port::port::{ETHERNET_HEADER_BYTES, Port};
use roadtrain_wire::ether::{
    self, FRAME_HEADER_BYTES, FrameError, FrameHeader, FrameType, MacAddress,
};

/// State of a port that lanes depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PortState {
    pub(crate) has_carrier: bool,
    /// Size in bytes of the largest frame that the interface accepts now.
    pub(crate) frame_bytes: usize,
}

impl PortState {
    pub(crate) fn from_port(port: &Port) -> Self {
        PortState { has_carrier: port.has_carrier(), frame_bytes: port.frame_bytes() }
    }
}

/// A reply frame that belongs to no lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReplyFrame {
    port: usize,
    destination: MacAddress,
    header: FrameHeader,
    body: Vec<u8>,
}

impl ReplyFrame {
    /// Creates a reply to be sent over the port with that index.
    pub(crate) fn new(
        port: usize,
        destination: MacAddress,
        header: FrameHeader,
        body: &[u8],
    ) -> Self {
        ReplyFrame { port, destination, header, body: body.to_vec() }
    }

    /// Queues the frame at its port in `ports`; the caller flushes it. REPLY is the socket number of that port.
    pub(crate) fn put(&self, ports: &mut [Port]) {
        let Some(port) = ports.get_mut(self.port) else { return };
        if FRAME_HEADER_BYTES + self.body.len() > port.frame_bytes() {
            return;
        }
        if !port.has_room() {
            flush(port);
        }
        port.begin();
        port.bytes(self.body.len()).copy_from_slice(&self.body);
        let header = FrameHeader { reply: port.socket_number().into(), ..self.header };
        port.end(self.destination, header);
    }
}

/// Sends queued frames. Frames that fail to leave count as lost in the network: the protocol retransmits them if
/// needed.
pub(crate) fn flush(port: &mut Port) {
    if let Err(error) = port.flush() {
        tracing::warn!(interface = %port.interface().name, "port: {error}");
    }
}

/// Parses a frame from the Ethernet header on. Returns source, header, type and body.
pub(crate) fn read(bytes: &[u8]) -> Result<(MacAddress, FrameHeader, FrameType, &[u8]), Drop> {
    let (outside, inside) = bytes.split_at_checked(ETHERNET_HEADER_BYTES).ok_or(Drop::Truncated)?;
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
