//! Packets on links: Roadtrain's frames, and segments of a TCP connection.

/// Bytes of preamble, Ethernet header, check sequence and the gap between frames.
const ETHERNET_BYTES: u64 = 8 + 14 + 4 + 12;
/// Bytes of IP and TCP headers with timestamps.
const HEADER_BYTES: u64 = 52;

/// A packet on a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    /// A Roadtrain frame: header and body.
    Frame(Vec<u8>),
    /// A segment of a TCP connection that uses the link as well.
    Segment(NeighbourSegment),
}

impl Packet {
    /// Returns the bytes of link time that it takes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let payload = match self {
            Packet::Frame(bytes) => bytes.len().max(46) as u64,
            Packet::Segment(segment) => segment.bytes(),
        };
        payload + ETHERNET_BYTES
    }
}

/// A TCP segment, numbered as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NeighbourSegment {
    /// Data.
    Data {
        /// Number of the segment.
        number: u64,
        /// Bytes of data.
        bytes: u64,
    },
    /// Acknowledgement of the segment `number`, and of all before `before`.
    Ack {
        /// Segment that it acknowledges.
        number: u64,
        /// Number before which all segments have arrived.
        before: u64,
    },
}

impl NeighbourSegment {
    /// Returns its bytes on the link, without Ethernet's.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match self {
            NeighbourSegment::Data { bytes, .. } => bytes + HEADER_BYTES,
            NeighbourSegment::Ack { .. } => HEADER_BYTES,
        }
    }
}
