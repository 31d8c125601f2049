//! Identification of connections.

/// A connection: its slot, and its serial number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionId {
    pub(crate) slot: usize,
    pub(crate) serial: u32,
}
