//! I/O limits of a block device's queue, as the kernel reports them.

use crate::BlockLimits;
use std::fs;
use std::path::Path;

const SECTOR_BYTES: u64 = 512;

/// Returns the limits of the device with this number.
pub(crate) fn of_device(number: u64, lba_shift: u8) -> BlockLimits {
    let (major, minor) = (libc::major(number), libc::minor(number));
    let directory = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}"));
    directory
        .map_or_else(|_| BlockLimits::default(), |directory| of_directory(&directory, lba_shift))
}

/// Reads the limits from the device's `directory` of /sys. Values that NVMe cannot express keep their defaults.
///
/// No atomicity is promised: the kernel keeps a write whole only if its length is a power of two and it is aligned to
/// that. NVMe can only promise it of every write up to a length.
fn of_directory(directory: &Path, lba_shift: u8) -> BlockLimits {
    let number = |path: &Path| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let start = number(&directory.join("start")).unwrap_or(0) * SECTOR_BYTES;
    let queue = match (directory.join("partition").exists(), directory.parent()) {
        (true, Some(disk)) => disk.join("queue"),
        _ => directory.join("queue"),
    };
    let bytes = |name: &str| number(&queue.join(name)).filter(|&bytes| bytes > 0);
    let mut limits = BlockLimits::default();
    // A value is used if NVMe can express the limits with it, and if a partition begins at a multiple of it.
    let mut take = |bytes: Option<u64>, set: fn(&mut BlockLimits, u32)| {
        let fitting = bytes.filter(|bytes| start.is_multiple_of(*bytes));
        let Some(bytes) = fitting.and_then(|bytes| u32::try_from(bytes).ok()) else { return };
        let mut taken = limits;
        set(&mut taken, bytes);
        if taken.check(lba_shift).is_ok() {
            limits = taken;
        }
    };
    take(bytes("minimum_io_size"), |l, bytes| {
        (l.write_bytes, l.optimal_bytes, l.discard_bytes) = (bytes, bytes, bytes);
    });
    take(bytes("optimal_io_size"), |l, bytes| l.optimal_bytes = bytes);
    take(bytes("discard_granularity"), |l, bytes| l.discard_bytes = bytes);
    let boundary = bytes("chunk_sectors").and_then(|sectors| sectors.checked_mul(SECTOR_BYTES));
    take(boundary, |l, bytes| l.boundary_bytes = bytes);
    limits
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a device's directory with these files.
    fn device(files: &[(&str, &str)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        directory
    }

    const RAID: [(&str, &str); 4] = [
        ("queue/minimum_io_size", "65536\n"),
        ("queue/optimal_io_size", "196608\n"),
        ("queue/chunk_sectors", "128\n"),
        ("queue/discard_granularity", "1048576\n"),
    ];

    #[test]
    fn a_queue_says_what_is_best() {
        let raid = BlockLimits {
            atomic_bytes: 0,
            write_bytes: 65536,
            optimal_bytes: 196_608,
            boundary_bytes: 65536,
            discard_bytes: 1 << 20,
        };
        assert_eq!(of_directory(device(&RAID).path(), 12), raid);
    }

    #[test]
    fn inexpressible_values_are_left_out() {
        let of = |files: &[(&str, &str)], lba_shift| of_directory(device(files).path(), lba_shift);
        assert_eq!(of(&[], 9), BlockLimits::default());
        let odd = [("queue/minimum_io_size", "0"), ("queue/optimal_io_size", "33553920")];
        assert_eq!(of(&odd, 9), BlockLimits::default(), "no multiple of 4096");
        let small = [("queue/minimum_io_size", "512"), ("queue/chunk_sectors", "1")];
        assert_eq!(of(&small, 12), BlockLimits::default(), "less than a block");
        assert_eq!(
            of(&small, 9),
            BlockLimits { boundary_bytes: 512, ..BlockLimits::pages_of(512) }
        );
        let large = [("queue/discard_granularity", "134217728"), ("queue/chunk_sectors", "x")];
        assert_eq!(of(&large, 9), BlockLimits::default(), "more than 65535 blocks");
    }

    #[test]
    fn a_partition_has_its_disks_where_it_is_aligned() {
        let part = |start| [("sda1/partition", "1"), ("sda1/start", start)];
        let disk = |start| device(&[&RAID[..], &part(start)[..]].concat());
        let of = |disk: tempfile::TempDir| of_directory(&disk.path().join("sda1"), 12);
        assert_eq!(of(disk("6144")).discard_bytes, 1 << 20);
        let aligned = of(disk("384"));
        assert_eq!((aligned.boundary_bytes, aligned.discard_bytes), (65536, 65536));
        assert_eq!(of(disk("2")), BlockLimits::default());
    }
}
