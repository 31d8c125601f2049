//! Block limits of a namespace: the store knows them, and Identify Namespace reports them to hosts.

/// Most logical blocks of a namespace: offsets in bytes stay below 2^63 with the largest block size.
pub const BLOCKS_MAX: u64 = u64::MAX >> 13;

/// Limits in bytes, each a number of whole blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockLimits {
    /// Largest write that is atomic wherever it begins, also over a power failure (NAWUN, NAWUPF). 0: no promise beyond
    /// single blocks.
    pub atomic_bytes: u32,
    /// Write granularity and alignment (NPWG, NPWA). A power of two.
    pub write_bytes: u32,
    /// Optimal length of reads and writes (NOWS). A multiple of `write_bytes`.
    pub optimal_bytes: u32,
    /// Boundary that reads and writes should not cross (NOIOB). 0: no such boundary.
    pub boundary_bytes: u32,
    /// Deallocation granularity and alignment (NPDG, NPDA). A power of two.
    pub discard_bytes: u32,
}

impl Default for BlockLimits {
    /// Limits of 4 KiB pages.
    fn default() -> Self {
        BlockLimits::pages_of(4096)
    }
}

impl BlockLimits {
    /// Limits with `bytes` as the granularity of writes and deallocations; nothing else is known.
    #[must_use]
    pub fn pages_of(bytes: u32) -> Self {
        BlockLimits {
            atomic_bytes: 0,
            write_bytes: bytes,
            optimal_bytes: bytes,
            boundary_bytes: 0,
            discard_bytes: bytes,
        }
    }

    /// Checks that the limits fit the fields of Identify Namespace for blocks of `1 << lba_shift` bytes.
    ///
    /// # Errors
    /// Names the wrong field, its value, and a hint.
    pub fn check(&self, lba_shift: u8) -> Result<(), (&'static str, String, &'static str)> {
        let block = 1u32 << lba_shift.min(31);
        let fits_field = |bytes: u32| bytes.is_multiple_of(block) && bytes / block <= 0xffff;
        let granule = |bytes: u32| bytes.is_power_of_two() && bytes > 0 && fits_field(bytes);
        let hint = "use a power of two from a block on, below 65536 blocks";
        let blocks = "use whole blocks, fewer than 65536";
        let optimal = self.optimal_bytes;
        let multiple = optimal > 0 && optimal.is_multiple_of(self.write_bytes.max(1));
        let checks = [
            (granule(self.write_bytes), "write granularity", self.write_bytes, hint),
            (granule(self.discard_bytes), "discard granularity", self.discard_bytes, hint),
            (fits_field(self.atomic_bytes), "atomic write", self.atomic_bytes, blocks),
            (fits_field(self.boundary_bytes), "boundary", self.boundary_bytes, blocks),
            (fits_field(optimal), "optimal length", optimal, blocks),
            (multiple, "optimal length", optimal, "use a multiple of the write granularity"),
        ];
        let unfit = checks.into_iter().find(|(fits, ..)| !fits);
        unfit.map_or(Ok(()), |(_, field, value, hint)| Err((field, value.to_string(), hint)))
    }
}
