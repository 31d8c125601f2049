//! The virtio block device: its configuration space and requests (Virtual I/O Device 1.2, section 5.2).

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Unit of capacities, offsets and lengths in bytes, whatever the size of a block.
pub const SECTOR_BYTES: u32 = 512;
/// Bytes of a GET_ID reply; a shorter name ends with a NUL.
pub const ID_BYTES: usize = 20;

/// Feature bits of the device.
pub mod feature {
    /// `size_max` is valid.
    pub const SIZE_MAX: u64 = 1 << 1;
    /// `seg_max` is valid.
    pub const SEG_MAX: u64 = 1 << 2;
    /// Writes are refused.
    pub const RO: u64 = 1 << 5;
    /// `blk_size` is valid.
    pub const BLK_SIZE: u64 = 1 << 6;
    /// Flush is served; writes are durable only after one.
    pub const FLUSH: u64 = 1 << 9;
    /// `topology` is valid.
    pub const TOPOLOGY: u64 = 1 << 10;
    /// `num_queues` is valid.
    pub const MQ: u64 = 1 << 12;
    /// Discard is served.
    pub const DISCARD: u64 = 1 << 13;
    /// Write Zeroes is served.
    pub const WRITE_ZEROES: u64 = 1 << 14;
    /// Descriptors may refer to a table of descriptors.
    pub const RING_INDIRECT_DESC: u64 = 1 << 28;
    /// `used_event` and `avail_event` limit notifications.
    pub const RING_EVENT_IDX: u64 = 1 << 29;
    /// The device conforms to version 1.0 or later.
    pub const VERSION_1: u64 = 1 << 32;
}

/// Operation of a request.
pub mod operation {
    /// Read.
    pub const IN: u32 = 0;
    /// Write.
    pub const OUT: u32 = 1;
    /// Make written data durable.
    pub const FLUSH: u32 = 4;
    /// Return the device's name.
    pub const GET_ID: u32 = 8;
    /// Deallocate.
    pub const DISCARD: u32 = 11;
    /// Set to zero.
    pub const WRITE_ZEROES: u32 = 13;
}

/// Status of a request, its last byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RequestStatus {
    /// Success.
    Ok = 0,
    /// Error.
    IoError = 1,
    /// Unsupported operation.
    Unsupported = 2,
}

/// Header of each request.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RequestHeader {
    pub operation: U32,
    /// Formerly a priority.
    pub reserved: U32,
    /// First sector of a Read or Write.
    pub sector: U64,
}

/// Bytes of a [`RequestHeader`].
pub const HEADER_BYTES: usize = size_of::<RequestHeader>();

/// Range of a Discard or Write Zeroes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RangeSegment {
    /// First sector.
    pub sector: U64,
    /// Number of sectors.
    pub sectors: U32,
    /// [`RangeSegment::UNMAP`].
    pub flags: U32,
}

impl RangeSegment {
    /// Flag of Write Zeroes: the sectors may be deallocated.
    pub const UNMAP: u32 = 1;
}

/// Bytes of a [`RangeSegment`].
pub const RANGE_BYTES: usize = size_of::<RangeSegment>();

/// Configuration space of block devices without zones.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct VirtioBlkConfig {
    /// Sectors of the device.
    pub capacity: U64,
    /// Maximum bytes of a segment.
    pub size_max: U32,
    /// Maximum segments of a request.
    pub seg_max: U32,
    /// Cylinders, heads and sectors (legacy).
    pub geometry: [u8; 4],
    /// Bytes of a logical block.
    pub blk_size: U32,
    /// Logical blocks of a physical one, as a power of two.
    pub physical_block_exp: u8,
    /// First logical block that begins a physical one.
    pub alignment_offset: u8,
    /// Logical blocks of the smallest I/O without penalty.
    pub min_io_size: U16,
    /// Logical blocks of the best I/O.
    pub opt_io_size: U32,
    /// Writes are durable only after a flush.
    pub writeback: u8,
    /// Reserved, zero.
    pub unused0: u8,
    /// Number of queues.
    pub num_queues: U16,
    /// Maximum sectors of a discard.
    pub max_discard_sectors: U32,
    /// Maximum ranges of a discard.
    pub max_discard_seg: U32,
    /// Discards should begin and end at multiples of so many sectors.
    pub discard_sector_alignment: U32,
    /// Maximum sectors of a Write Zeroes.
    pub max_write_zeroes_sectors: U32,
    /// Maximum ranges of a Write Zeroes.
    pub max_write_zeroes_seg: U32,
    /// Write Zeroes may deallocate.
    pub write_zeroes_may_unmap: u8,
    /// Reserved, zero.
    pub unused1: [u8; 3],
}

impl VirtioBlkConfig {
    /// A configuration space of zeroes.
    #[must_use]
    pub fn zeroed() -> Self {
        VirtioBlkConfig::new_zeroed()
    }
}

const _: () = {
    assert!(HEADER_BYTES == 16 && RANGE_BYTES == 16 && size_of::<VirtioBlkConfig>() == 60);
    assert!(core::mem::offset_of!(VirtioBlkConfig, blk_size) == 20);
    assert!(core::mem::offset_of!(VirtioBlkConfig, num_queues) == 34);
    assert!(core::mem::offset_of!(VirtioBlkConfig, max_discard_sectors) == 36);
    assert!(core::mem::offset_of!(VirtioBlkConfig, write_zeroes_may_unmap) == 56);
};
