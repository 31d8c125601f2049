//! Connections by number, their two ends, and arrivals there.

/// A connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnId(pub u32);

/// An end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// End that has connected.
    Host,
    /// End that has accepted.
    Target,
}

impl End {
    /// Returns the other end.
    #[must_use]
    pub fn peer(self) -> End {
        match self {
            End::Host => End::Target,
            End::Target => End::Host,
        }
    }
}

/// An arrival at an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// A new connection (at the target).
    Accept,
    /// Octets.
    Octets(Vec<u8>),
    /// End of the connection: closed or reset.
    Closed,
}

/// Error: the connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost;
