//! Access to the blocks of a file or device, and checks of sizes.

use crate::OpenError;
use roadtrain_proto::block_limits::BLOCKS_MAX;

/// Access to the blocks of a file or device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockAccess {
    /// Block size in bytes: 512 or 4096.
    pub(crate) lba_bytes: u32,
    /// True to refuse writes.
    pub(crate) read_only: bool,
    /// True for a block device.
    pub(crate) is_device: bool,
}

impl BlockAccess {
    /// Checks that `bytes` is at least one block, and whole blocks.
    pub(crate) fn whole_blocks(&self, name: &str, bytes: u64) -> Result<u64, OpenError> {
        whole_blocks(name, bytes, self.lba_bytes)
    }
}

/// Returns the block size as a power of two.
pub(crate) fn lba_shift(lba_bytes: u32) -> Result<u8, OpenError> {
    match lba_bytes {
        512 => Ok(9),
        4096 => Ok(12),
        lba_bytes => Err(OpenError::LbaSize { lba_bytes }),
    }
}

/// Checks that `bytes` is at least one block, and whole blocks.
pub(crate) fn whole_blocks(name: &str, bytes: u64, lba_bytes: u32) -> Result<u64, OpenError> {
    if bytes == 0 {
        return Err(OpenError::Empty { name: name.into() });
    }
    if !bytes.is_multiple_of(u64::from(lba_bytes)) {
        return Err(OpenError::NotAligned { name: name.into(), bytes, lba_bytes });
    }
    let bytes_max = BLOCKS_MAX.saturating_mul(lba_bytes.into());
    if bytes > bytes_max {
        return Err(OpenError::TooLarge { name: name.into(), bytes, bytes_max, lba_bytes });
    }
    Ok(bytes)
}
