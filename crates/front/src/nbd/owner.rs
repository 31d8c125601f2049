//! Identification of connections.

/// A connection: its slot, and its serial number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) slot: usize,
    pub(crate) serial: u32,
}
