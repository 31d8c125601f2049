//! Connections by number, their two ends, and what arrives there.

/// A connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnId(pub u32);

/// An end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It has connected.
    Host,
    /// It has accepted.
    Target,
}

impl End {
    /// The other end.
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
    /// The connection is over: closed or reset.
    Closed,
}

/// The connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost;
