//! Namespaces as a host sees them.

/// A namespace as the host sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceInfo {
    pub nsid: u32,
    /// Logical blocks.
    pub blocks: u64,
    /// Octets of a logical block.
    pub block_bytes: u32,
    /// Writes are refused.
    pub read_only: bool,
    /// Blocks that are not allocated read as zeroes.
    pub deallocated_reads_zero: bool,
    /// NGUID (zeroes: none).
    pub nguid: [u8; 16],
    /// UUID (zeroes: none).
    pub uuid: [u8; 16],
    /// EUI-64 (zeroes: none).
    pub eui64: [u8; 8],
    /// Preferred write granularity in blocks (1: none told), from the peer, so any number.
    pub preferred_write_blocks: u32,
    /// Preferred deallocate granularity in blocks, likewise.
    pub preferred_discard_blocks: u32,
    /// Optimal write size in blocks, likewise.
    pub optimal_write_blocks: u32,
    /// Changes when acknowledged writes that were not flushed may be lost; `None`: the target does not report it.
    pub write_verifier: Option<u64>,
}

impl NamespaceInfo {
    /// Whether both are the same blocks under the same addresses, as far as the target tells: a namespace may grow
    /// and shrink, but what identifies it stays.
    #[must_use]
    pub fn is_same(&self, other: &NamespaceInfo) -> bool {
        let ids = |n: &NamespaceInfo| (n.nguid, n.uuid, n.eui64, n.block_bytes);
        ids(self) == ids(other)
    }
}
