//! Namespaces as a host sees them.

/// A namespace as the host sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceInfo {
    pub nsid: u32,
    /// Logical blocks.
    pub blocks: u64,
    /// Bytes of a logical block.
    pub block_bytes: u32,
    /// True if the namespace is write-protected.
    pub read_only: bool,
    /// True if deallocated blocks read as zeroes.
    pub deallocated_reads_zero: bool,
    /// NGUID (zeroes: none).
    pub nguid: [u8; 16],
    /// UUID (zeroes: none).
    pub uuid: [u8; 16],
    /// EUI-64 (zeroes: none).
    pub eui64: [u8; 8],
    /// Preferred write granularity in blocks (1: not reported), from the peer, so any number.
    pub preferred_write_blocks: u32,
    /// Preferred deallocate granularity in blocks (1: not reported).
    pub preferred_discard_blocks: u32,
    /// Optimal write size in blocks (1: not reported).
    pub optimal_write_blocks: u32,
    /// Verifier that changes when acknowledged unflushed writes may be lost; `None`: not reported.
    pub write_verifier: Option<u64>,
    /// ANA group (0: not reported).
    pub ana_group: u32,
}

impl NamespaceInfo {
    /// True if both identify the same namespace. Its size may change, but its identifiers and block size do not.
    #[must_use]
    pub fn is_same(&self, other: &NamespaceInfo) -> bool {
        let ids = |n: &NamespaceInfo| (n.nguid, n.uuid, n.eui64, n.block_bytes);
        ids(self) == ids(other)
    }
}
