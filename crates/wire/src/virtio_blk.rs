//! The virtio block device: its configuration space and requests (Virtual I/O Device 1.2, section 5.2).

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The unit of capacities, offsets and lengths, whatever the size of a block.
pub const SECTOR_BYTES: u32 = 512;
/// Octets of a GET_ID answer; a shorter name ends with a NUL.
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
    /// `used_event` and `avail_event` say who is to be told when.
    pub const RING_EVENT_IDX: u64 = 1 << 29;
    /// The device is as version 1.0 says, or later.
    pub const VERSION_1: u64 = 1 << 32;
}

/// Operation of a request.
pub mod operation {
    /// Read.
    pub const IN: u32 = 0;
    /// Write.
    pub const OUT: u32 = 1;
    /// Make durable what was written.
    pub const FLUSH: u32 = 4;
    /// Tell the device's name.
    pub const GET_ID: u32 = 8;
    /// Forget.
    pub const DISCARD: u32 = 11;
    /// Set to zero.
    pub const WRITE_ZEROES: u32 = 13;
}

/// Status of a request, its last octet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RequestStatus {
    /// Done.
    Ok = 0,
    /// Failed.
    IoError = 1,
    /// The device does not know this.
    Unsupported = 2,
}

/// The first octets of each request.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RequestHeader {
    pub operation: U32,
    /// Was a priority.
    pub reserved: U32,
    /// First sector of a Read or Write.
    pub sector: U64,
}

/// Octets of a [`RequestHeader`].
pub const HEADER_BYTES: usize = size_of::<RequestHeader>();

/// What a Discard or Write Zeroes applies to.
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
    /// Of Write Zeroes: the sectors may be deallocated.
    pub const UNMAP: u32 = 1;
}

/// Octets of a [`RangeSegment`].
pub const RANGE_BYTES: usize = size_of::<RangeSegment>();

/// The configuration space, as far as it concerns block devices without zones.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Config {
    /// Sectors of the device.
    pub capacity: U64,
    /// Most octets of a segment.
    pub size_max: U32,
    /// Most segments of a request.
    pub seg_max: U32,
    /// Cylinders, heads and sectors of former times.
    pub geometry: [u8; 4],
    /// Octets of a logical block.
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
    /// Zero.
    pub unused0: u8,
    /// Number of queues.
    pub num_queues: U16,
    /// Most sectors of a discard.
    pub max_discard_sectors: U32,
    /// Most ranges of a discard.
    pub max_discard_seg: U32,
    /// Discards should begin and end at multiples of so many sectors.
    pub discard_sector_alignment: U32,
    /// Most sectors of a Write Zeroes.
    pub max_write_zeroes_sectors: U32,
    /// Most ranges of a Write Zeroes.
    pub max_write_zeroes_seg: U32,
    /// Write Zeroes may deallocate.
    pub write_zeroes_may_unmap: u8,
    /// Zero.
    pub unused1: [u8; 3],
}

impl Config {
    /// All zero.
    #[must_use]
    pub fn zeroed() -> Self {
        Config::new_zeroed()
    }
}

const _: () = {
    assert!(HEADER_BYTES == 16 && RANGE_BYTES == 16 && size_of::<Config>() == 60);
    assert!(core::mem::offset_of!(Config, blk_size) == 20);
    assert!(core::mem::offset_of!(Config, num_queues) == 34);
    assert!(core::mem::offset_of!(Config, max_discard_sectors) == 36);
    assert!(core::mem::offset_of!(Config, write_zeroes_may_unmap) == 56);
};
