//! A tag's request -> a disk request.

use super::abi::{IoDescriptor, SECTOR_BYTES, flag, op};
use crate::disk::{DiskFault, DiskOp, DiskRequest};

/// Converts `descriptor` to a disk request; its data is in a buffer of `io_bytes`.
///
/// # Errors
/// Fails for operations that disks lack, and for lengths that do not fit.
pub(crate) fn request(descriptor: &IoDescriptor, io_bytes: u32) -> Result<DiskRequest, DiskFault> {
    let has = |flag: u32| descriptor.op_flags & flag != 0;
    let op = match descriptor.op_flags & 0xff {
        op::READ => DiskOp::Read,
        op::WRITE => DiskOp::Write,
        op::FLUSH => {
            return Ok(DiskRequest { op: DiskOp::Flush, offset: 0, length: 0, fua: false });
        }
        op::DISCARD => DiskOp::Discard,
        op::WRITE_ZEROES => DiskOp::WriteZeroes { deallocate: !has(flag::NO_UNMAP) },
        _ => return Err(DiskFault::NotServed),
    };
    let sector_bytes = u64::from(SECTOR_BYTES);
    let offset = descriptor.start_sector.checked_mul(sector_bytes).ok_or(DiskFault::Invalid)?;
    let length = descriptor.nr_sectors.checked_mul(SECTOR_BYTES).ok_or(DiskFault::Invalid)?;
    if length == 0 || op.has_data() && length > io_bytes {
        return Err(DiskFault::Invalid);
    }
    Ok(DiskRequest { op, offset, length, fua: has(flag::FUA) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted(
        op_flags: u32,
        start_sector: u64,
        nr_sectors: u32,
    ) -> Result<DiskRequest, DiskFault> {
        request(&IoDescriptor { op_flags, nr_sectors, start_sector, addr: 0 }, 4096)
    }

    #[test]
    fn sectors_become_bytes() {
        let read = DiskRequest { op: DiskOp::Read, offset: 1024, length: 4096, fua: false };
        assert_eq!(converted(op::READ, 2, 8), Ok(read));
        let write = DiskRequest { op: DiskOp::Write, fua: true, ..read };
        assert_eq!(converted(op::WRITE | flag::FUA, 2, 8), Ok(write));
        let zeroes = |deallocate| DiskOp::WriteZeroes { deallocate };
        assert_eq!(converted(op::WRITE_ZEROES, 0, 1 << 16).unwrap().op, zeroes(true));
        assert_eq!(converted(op::WRITE_ZEROES | flag::NO_UNMAP, 0, 1).unwrap().op, zeroes(false));
        assert_eq!(converted(op::DISCARD, 0, 1 << 22).unwrap().length, 1 << 31);
        assert_eq!(converted(op::FLUSH, u64::MAX, u32::MAX).unwrap().op, DiskOp::Flush);
    }

    #[test]
    fn nonsense_is_refused() {
        assert_eq!(converted(op::READ, 0, 9), Err(DiskFault::Invalid), "larger than the buffer");
        assert_eq!(converted(op::READ, 0, 0), Err(DiskFault::Invalid));
        assert_eq!(converted(op::WRITE, 1 << 55, 1), Err(DiskFault::Invalid));
        assert_eq!(converted(op::DISCARD, 0, 1 << 23), Err(DiskFault::Invalid));
        assert_eq!(converted(4, 0, 1), Err(DiskFault::NotServed));
        assert_eq!(converted(15, 0, 1), Err(DiskFault::NotServed));
    }
}
