//! Parameters of a disk for the driver: sizes, limits, features.

use super::abi::{
    BasicParams, DiscardParams, SECTOR_BYTES, SECTOR_SHIFT, UblkParams, attr, param_type,
};
use crate::disk::DiskInfo;

/// Largest logical block that the driver takes, in bytes; disks with larger ones patch smaller requests.
const LOGICAL_BLOCK_BYTES_MAX: u32 = 4096;
/// Bytes of a page, the unit of a request's memory.
const PAGE_BYTES: u32 = 4096;
/// Most blocks of one Write Zeroes.
const ZEROES_BLOCKS_MAX: u64 = 1 << 16;

/// Returns the bytes of the largest read or write: the lane's limit, but at most `limit`.
pub(crate) fn io_bytes_max(disk: &DiskInfo, limit: u32) -> u32 {
    let most = disk.max_transfer_bytes.min(limit);
    let grain = disk.lba_bytes.max(PAGE_BYTES);
    (most - most % grain).max(PAGE_BYTES)
}

/// Returns the parameters of `disk`, whose tags have buffers of `io_bytes`.
pub(crate) fn params(disk: &DiskInfo, io_bytes: u32) -> UblkParams {
    let physical = disk.physical_block_bytes.max(disk.lba_bytes);
    let optimal = disk.optimal_io_bytes.max(physical);
    let basic = BasicParams {
        attrs: attributes(disk),
        logical_bs_shift: log2(disk.lba_bytes.min(LOGICAL_BLOCK_BYTES_MAX)),
        physical_bs_shift: log2(physical),
        io_opt_shift: log2(optimal),
        io_min_shift: log2(physical),
        max_sectors: io_bytes >> SECTOR_SHIFT,
        chunk_sectors: 0,
        dev_sectors: sectors(disk, disk.blocks),
        virt_boundary_mask: 0,
    };
    UblkParams {
        len: size_of::<UblkParams>() as u32,
        types: param_type::BASIC | param_type::DISCARD,
        basic,
        discard: discard(disk),
        pad: 0,
    }
}

/// Converts `blocks` blocks of the disk to sectors.
pub(crate) fn sectors(disk: &DiskInfo, blocks: u64) -> u64 {
    blocks.saturating_mul(u64::from(disk.lba_bytes / SECTOR_BYTES))
}

fn attributes(disk: &DiskInfo) -> u32 {
    let read_only = if disk.read_only { attr::READ_ONLY } else { 0 };
    // Set also without a volatile cache: the attributes of a running device are fixed, and a cache may appear later.
    attr::VOLATILE_CACHE | attr::FUA | read_only
}

fn discard(disk: &DiskInfo) -> DiscardParams {
    let granularity = disk.discard_granularity_bytes.max(disk.lba_bytes);
    let most = u32::MAX - u32::MAX % granularity;
    let zeroes = (ZEROES_BLOCKS_MAX * u64::from(disk.lba_bytes)).min(most.into());
    let if_served = |served: bool, bytes: u32| if served { bytes >> SECTOR_SHIFT } else { 0 };
    DiscardParams {
        discard_alignment: 0,
        discard_granularity: granularity,
        max_discard_sectors: if_served(disk.trim && !disk.read_only, most),
        max_write_zeroes_sectors: if_served(disk.write_zeroes && !disk.read_only, zeroes as u32),
        max_discard_segments: 1,
        reserved0: 0,
    }
}

fn log2(bytes: u32) -> u8 {
    bytes.max(SECTOR_BYTES).ilog2() as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::test_info;

    #[test]
    fn sizes_and_limits_are_those_of_the_namespace() {
        let disk_params = params(&test_info(), 128 << 10);
        assert_eq!((disk_params.len, disk_params.types), (64, 3));
        let basic = disk_params.basic;
        let shifts = [basic.logical_bs_shift, basic.physical_bs_shift, basic.io_min_shift];
        assert_eq!(shifts, [9, 12, 12]);
        assert_eq!((basic.max_sectors, basic.dev_sectors), (256, 2048));
        assert_eq!(basic.attrs, attr::VOLATILE_CACHE | attr::FUA);
        assert_eq!(disk_params.discard.discard_granularity, 4096);
        assert_eq!(disk_params.discard.max_discard_sectors, (1 << 23) - 8);
        assert_eq!(disk_params.discard.max_write_zeroes_sectors, 1 << 16);
        assert_eq!(disk_params.discard.max_discard_segments, 1);
    }

    #[test]
    fn unsupported_operations_are_not_offered() {
        let disk = DiskInfo { trim: false, write_zeroes: false, ..test_info() };
        let disk_params = params(&disk, 4096);
        let limits =
            (disk_params.discard.max_discard_sectors, disk_params.discard.max_write_zeroes_sectors);
        assert_eq!((limits, disk_params.basic.attrs), ((0, 0), attr::VOLATILE_CACHE | attr::FUA));
        let disk_params = params(&DiskInfo { read_only: true, ..test_info() }, 4096);
        assert_eq!(disk_params.basic.attrs, attr::VOLATILE_CACHE | attr::FUA | attr::READ_ONLY);
        assert_eq!(disk_params.discard.max_discard_sectors, 0);
    }

    #[test]
    fn large_blocks_are_patched() {
        let (lba_bytes, blocks) = (64 << 10, 16);
        let disk_params = params(&DiskInfo { lba_bytes, blocks, ..test_info() }, 128 << 10);
        assert_eq!(
            (disk_params.basic.logical_bs_shift, disk_params.basic.physical_bs_shift),
            (12, 16)
        );
        assert_eq!(disk_params.basic.dev_sectors, 16 * 128);
        assert_eq!(disk_params.discard.discard_granularity, 64 << 10);
        let most = u64::from(disk_params.discard.max_write_zeroes_sectors) * 512;
        assert!(most < 1 << 32 && most.is_multiple_of(64 << 10));
    }

    #[test]
    fn requests_fit_the_lane_and_the_limit() {
        let with = |max_transfer_bytes, lba_bytes| DiskInfo {
            max_transfer_bytes,
            lba_bytes,
            ..test_info()
        };
        assert_eq!(io_bytes_max(&with(128 << 10, 512), 512 << 10), 128 << 10);
        assert_eq!(io_bytes_max(&with(1 << 20, 512), 512 << 10), 512 << 10);
        assert_eq!(io_bytes_max(&with(10_000, 512), 512 << 10), 8192);
        assert_eq!(io_bytes_max(&with(512, 512), 512 << 10), 4096, "the lane gets it in parts");
        assert_eq!(io_bytes_max(&with(1 << 20, 64 << 10), 100_000), 64 << 10);
    }
}
