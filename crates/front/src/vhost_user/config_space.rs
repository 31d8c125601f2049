//! Features and configuration space of the guest's disk.

use super::request::{DATA_BYTES_MAX, RANGE_SECTORS_MAX};
use crate::disk::LiveDisk;
use roadtrain_wire::virtio_blk::{ID_BYTES, SECTOR_BYTES, VirtioBlkConfig, feature};

/// Segments of a request; with header and status as many descriptors as monitors' usual queues have.
const SEGMENTS_MAX: u32 = 126;
/// Largest logical block that guests take, in bytes: a page.
const BLOCK_BYTES_MAX: u32 = 4096;

/// Returns the feature bits of the device.
pub(crate) fn features(disk: &LiveDisk) -> u64 {
    use feature::*;
    let info = disk.info();
    let flag = |condition: bool, flag: u64| if condition { flag } else { 0 };
    SIZE_MAX
        | SEG_MAX
        | BLK_SIZE
        | TOPOLOGY
        | MQ
        | RING_INDIRECT_DESC
        | RING_EVENT_IDX
        | VERSION_1
        | FLUSH // set also without a volatile cache: the guest would not notice one that comes later
        | flag(info.read_only, RO)
        | flag(info.trim && !info.read_only, DISCARD)
        | flag(info.write_zeroes && !info.read_only, WRITE_ZEROES)
}

/// Returns the configuration space of a device with `queues` queues.
pub(crate) fn config(disk: &LiveDisk, queues: u16) -> VirtioBlkConfig {
    let info = disk.info();
    let block_bytes = info.lba_bytes.min(BLOCK_BYTES_MAX);
    let physical_bytes = info.physical_block_bytes.max(info.lba_bytes);
    let in_blocks = |bytes: u32| bytes / block_bytes;
    let most = RANGE_SECTORS_MAX.into();
    VirtioBlkConfig {
        capacity: (disk.bytes() / u64::from(SECTOR_BYTES)).into(),
        size_max: (DATA_BYTES_MAX / SEGMENTS_MAX / BLOCK_BYTES_MAX * BLOCK_BYTES_MAX).into(),
        seg_max: SEGMENTS_MAX.into(),
        blk_size: block_bytes.into(),
        physical_block_exp: in_blocks(physical_bytes).ilog2() as u8,
        min_io_size: (in_blocks(physical_bytes).min(u16::MAX.into()) as u16).into(),
        opt_io_size: in_blocks(info.optimal_io_bytes.max(physical_bytes)).into(),
        writeback: 1,
        num_queues: queues.into(),
        max_discard_sectors: most,
        max_discard_seg: 1.into(),
        discard_sector_alignment: (info.discard_granularity_bytes.max(info.lba_bytes)
            / SECTOR_BYTES)
            .into(),
        max_write_zeroes_sectors: most,
        max_write_zeroes_seg: 1.into(),
        write_zeroes_may_unmap: 1,
        ..VirtioBlkConfig::zeroed()
    }
}

/// Returns the disk's name for GET_ID, which has room for half an NGUID: its unique end, else the serial number.
pub(crate) fn name(disk: &LiveDisk) -> [u8; ID_BYTES] {
    let info = disk.info();
    let text = match info.nguid {
        [0, ..] if info.nguid == [0; 16] => format!("{}-{}", info.serial, info.nsid),
        nguid => nguid.iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    let text = text.into_bytes();
    let end = &text[text.len().saturating_sub(ID_BYTES)..];
    let mut name = [0; ID_BYTES];
    name[..end.len()].copy_from_slice(end);
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{DiskInfo, test_info};

    #[test]
    fn sizes_and_limits_are_the_disks() {
        let disk = LiveDisk::new(test_info()).unwrap();
        let space = config(&disk, 4);
        assert_eq!((space.capacity.get(), space.blk_size.get()), (2048, 512));
        assert_eq!((space.physical_block_exp, space.min_io_size.get()), (3, 8));
        assert_eq!((space.num_queues.get(), space.writeback), (4, 1));
        assert_eq!(space.discard_sector_alignment, 8);
        assert!(space.size_max.get() * space.seg_max.get() <= DATA_BYTES_MAX);
        disk.resize(4096);
        assert_eq!(config(&disk, 4).capacity, 4096);
    }

    #[test]
    fn blocks_larger_than_a_page_are_physical_ones() {
        let lba_bytes = 16 << 10;
        let disk =
            LiveDisk::new(DiskInfo { lba_bytes, physical_block_bytes: lba_bytes, ..test_info() });
        let space = config(&disk.unwrap(), 1);
        assert_eq!((space.blk_size.get(), space.physical_block_exp), (4096, 2));
        assert_eq!((space.capacity.get(), space.discard_sector_alignment.get()), (2048 * 32, 32));
    }

    #[test]
    fn unsupported_operations_are_not_in_the_features() {
        let offered = |info: DiskInfo| features(&LiveDisk::new(info).unwrap());
        let all = offered(test_info());
        assert_eq!(all & (feature::RO | feature::FLUSH), feature::FLUSH);
        for (info, lacks) in [
            (DiskInfo { trim: false, ..test_info() }, feature::DISCARD),
            (DiskInfo { write_zeroes: false, ..test_info() }, feature::WRITE_ZEROES),
        ] {
            assert_eq!(offered(info), all & !lacks);
        }
        let written = feature::DISCARD | feature::WRITE_ZEROES;
        let read_only = offered(DiskInfo { read_only: true, ..test_info() });
        assert_eq!(read_only, all & !written | feature::RO);
    }

    #[test]
    fn the_name_is_unique() {
        let named = |nguid, serial: &str| {
            let serial = serial.to_owned();
            let disk = LiveDisk::new(DiskInfo { nguid, serial, ..test_info() }).unwrap();
            String::from_utf8(name(&disk).to_vec()).unwrap()
        };
        let mut nguid = [0; 16];
        assert_eq!(named(nguid, "ABC"), "ABC-1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
        assert_eq!(named(nguid, "0123456789abcdefghij"), "23456789abcdefghij-1");
        nguid[6] = 0xab;
        nguid[15] = 0xcd;
        assert_eq!(named(nguid, ""), "ab0000000000000000cd");
    }
}
