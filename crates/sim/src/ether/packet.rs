//! Packets that links carry: frames of ours, and segments of a TCP connection.

/// Preamble, Ethernet's header and check sequence, and the gap between frames.
const ETHERNET_OCTETS: u64 = 8 + 14 + 4 + 12;
/// IP and TCP headers with timestamps.
const HEADER_OCTETS: u64 = 52;

/// A packet that a link carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    /// A frame of ours: header and body.
    Frame(Vec<u8>),
    /// A segment of a TCP connection that uses the link as well.
    Segment(Segment),
}

impl Packet {
    /// Octets of time that it takes on the link.
    #[must_use]
    pub fn octets(&self) -> u64 {
        let payload = match self {
            Packet::Frame(octets) => octets.len().max(46) as u64,
            Packet::Segment(segment) => segment.octets(),
        };
        payload + ETHERNET_OCTETS
    }
}

/// A segment, numbered as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// Data.
    Data {
        /// Its number.
        number: u64,
        /// Octets of data.
        octets: u64,
    },
    /// Acknowledgement of the segment `number`, and of all before `before`.
    Ack {
        /// The segment that it answers.
        number: u64,
        /// All before this one have arrived.
        before: u64,
    },
}

impl Segment {
    /// Octets on the link.
    #[must_use]
    pub fn octets(&self) -> u64 {
        match self {
            Segment::Data { octets, .. } => octets + HEADER_OCTETS,
            Segment::Ack { .. } => HEADER_OCTETS,
        }
    }
}
