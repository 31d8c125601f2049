//! Names of connections.

/// A connection: its slot, and its number for life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) slot: usize,
    pub(crate) serial: u32,
}
