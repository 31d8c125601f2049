//! Connections by number, their two ends, and arrivals there.

/// A connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnId(pub u32);

/// An end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnEnd {
    /// End that has connected.
    Host,
    /// End that has accepted.
    Target,
}

impl ConnEnd {
    /// Returns the other end.
    #[must_use]
    pub fn peer(self) -> ConnEnd {
        match self {
            ConnEnd::Host => ConnEnd::Target,
            ConnEnd::Target => ConnEnd::Host,
        }
    }
}

/// An arrival at an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectionArrival {
    /// A new connection (at the target).
    Accept,
    /// Bytes.
    Bytes(Vec<u8>),
    /// End of the connection: closed or reset.
    Closed,
}

/// Error: the connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLost;
