//! The driver's interface, as `<linux/ublk_cmd.h>` defines it: native byte order, sizes and offsets fixed.

use std::mem::offset_of;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of a block device's sector.
pub(crate) const SECTOR_BYTES: u32 = 512;
/// log2 of [`SECTOR_BYTES`].
pub(crate) const SECTOR_SHIFT: u32 = 9;
/// Most requests of a queue at a time.
pub(crate) const QUEUE_DEPTH_MAX: u16 = 4096;
pub(crate) const NO_QUEUE: u16 = u16::MAX;
/// Lets the driver choose the device number.
pub(crate) const ANY_DEVICE: u32 = u32::MAX;

/// Feature: another process can take the device over.
pub(crate) const F_USER_RECOVERY: u64 = 1 << 3;
/// Feature: requests in flight at the takeover are issued again.
pub(crate) const F_USER_RECOVERY_REISSUE: u64 = 1 << 4;
/// Feature: the driver knows encoded command numbers.
pub(crate) const F_CMD_IOCTL_ENCODE: u64 = 1 << 6;
/// Feature: the size of a device in use can change.
pub(crate) const F_UPDATE_SIZE: u64 = 1 << 10;

/// The device is in use.
pub(crate) const STATE_LIVE: u16 = 1;
/// The device's process is gone; requests wait.
pub(crate) const STATE_QUIESCED: u16 = 2;

/// Result of a command whose tag the driver has aborted.
pub(crate) const RESULT_ABORT: i32 = -libc::ENODEV;

/// A command to the control device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ControlOp {
    number: u8,
    direction: u32,
}

const READ: u32 = 2;
const READ_WRITE: u32 = 3;

impl ControlOp {
    pub(crate) const GET_DEV_INFO: Self = Self::new(0x02, READ);
    pub(crate) const ADD_DEV: Self = Self::new(0x04, READ_WRITE);
    pub(crate) const DEL_DEV: Self = Self::new(0x05, READ_WRITE);
    pub(crate) const START_DEV: Self = Self::new(0x06, READ_WRITE);
    pub(crate) const STOP_DEV: Self = Self::new(0x07, READ_WRITE);
    pub(crate) const SET_PARAMS: Self = Self::new(0x08, READ_WRITE);
    pub(crate) const GET_PARAMS: Self = Self::new(0x09, READ);
    pub(crate) const START_USER_RECOVERY: Self = Self::new(0x10, READ_WRITE);
    pub(crate) const END_USER_RECOVERY: Self = Self::new(0x11, READ_WRITE);
    pub(crate) const GET_FEATURES: Self = Self::new(0x13, READ);
    pub(crate) const UPDATE_SIZE: Self = Self::new(0x15, READ_WRITE);

    const fn new(number: u8, direction: u32) -> Self {
        ControlOp { number, direction }
    }

    /// Returns the command's number; the first drivers (before Linux 6.4) know only the plain one.
    pub(crate) const fn code(self, encoded: bool) -> u32 {
        if encoded { encode(self.number, self.direction, 32) } else { self.number as u32 }
    }
}

/// A command to a device's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueOp {
    /// Waits for the tag's first request.
    Fetch = 0x20,
    /// Ends the tag's request and waits for the next.
    CommitAndFetch = 0x21,
}

impl QueueOp {
    /// Returns the command's number, like [`ControlOp::code`].
    pub(crate) const fn code(self, encoded: bool) -> u32 {
        if encoded { encode(self as u8, READ_WRITE, 16) } else { self as u32 }
    }
}

/// Encodes a number like `_IOR` and `_IOWR`.
const fn encode(number: u8, direction: u32, bytes: u32) -> u32 {
    direction << 30 | bytes << 16 | (b'u' as u32) << 8 | number as u32
}

/// `struct ublksrv_ctrl_cmd`
#[derive(Clone, Copy, Debug, Default, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(crate) struct ControlCommand {
    pub(crate) dev_id: u32,
    pub(crate) queue_id: u16,
    /// Bytes at `addr`.
    pub(crate) len: u16,
    pub(crate) addr: u64,
    pub(crate) data: u64,
    pub(crate) dev_path_len: u16,
    pub(crate) pad: u16,
    pub(crate) reserved: u32,
}

/// `struct ublksrv_ctrl_dev_info`
#[derive(Clone, Copy, Debug, Default, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(crate) struct DeviceInfo {
    pub(crate) nr_hw_queues: u16,
    pub(crate) queue_depth: u16,
    pub(crate) state: u16,
    pub(crate) pad0: u16,
    pub(crate) max_io_buf_bytes: u32,
    pub(crate) dev_id: u32,
    pub(crate) ublksrv_pid: i32,
    pub(crate) pad1: u32,
    pub(crate) flags: u64,
    /// Flags that the driver keeps for the server.
    pub(crate) ublksrv_flags: u64,
    pub(crate) owner_uid: u32,
    pub(crate) owner_gid: u32,
    pub(crate) reserved1: u64,
    pub(crate) reserved2: u64,
}

/// `struct ublksrv_io_desc`: the request of a tag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct IoDescriptor {
    /// Bits 0 to 7: `op::*`; the others: `flag::*`.
    pub(crate) op_flags: u32,
    pub(crate) nr_sectors: u32,
    pub(crate) start_sector: u64,
    pub(crate) addr: u64,
}

/// `struct ublksrv_io_cmd`
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(crate) struct UblkIoCommand {
    pub(crate) q_id: u16,
    pub(crate) tag: u16,
    /// Bytes moved, or a negative errno.
    pub(crate) result: i32,
    /// Address of the tag's buffer.
    pub(crate) addr: u64,
}

/// Operations of an [`IoDescriptor`].
pub(crate) mod op {
    pub(crate) const READ: u32 = 0;
    pub(crate) const WRITE: u32 = 1;
    pub(crate) const FLUSH: u32 = 2;
    pub(crate) const DISCARD: u32 = 3;
    pub(crate) const WRITE_ZEROES: u32 = 5;
}

/// Flags of an [`IoDescriptor`].
pub(crate) mod flag {
    pub(crate) const FUA: u32 = 1 << 13;
    /// Zeroed blocks stay allocated.
    pub(crate) const NO_UNMAP: u32 = 1 << 15;
}

/// Attributes of [`BasicParams`].
pub(crate) mod attr {
    pub(crate) const READ_ONLY: u32 = 1 << 0;
    pub(crate) const VOLATILE_CACHE: u32 = 1 << 2;
    pub(crate) const FUA: u32 = 1 << 3;
}

/// Parts of [`UblkParams`].
pub(crate) mod param_type {
    pub(crate) const BASIC: u32 = 1 << 0;
    pub(crate) const DISCARD: u32 = 1 << 1;
}

/// `struct ublk_param_basic`
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout,
)]
#[repr(C)]
pub(crate) struct BasicParams {
    pub(crate) attrs: u32,
    pub(crate) logical_bs_shift: u8,
    pub(crate) physical_bs_shift: u8,
    pub(crate) io_opt_shift: u8,
    pub(crate) io_min_shift: u8,
    pub(crate) max_sectors: u32,
    pub(crate) chunk_sectors: u32,
    pub(crate) dev_sectors: u64,
    pub(crate) virt_boundary_mask: u64,
}

/// `struct ublk_param_discard`
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout,
)]
#[repr(C)]
pub(crate) struct DiscardParams {
    pub(crate) discard_alignment: u32,
    pub(crate) discard_granularity: u32,
    pub(crate) max_discard_sectors: u32,
    pub(crate) max_write_zeroes_sectors: u32,
    pub(crate) max_discard_segments: u16,
    pub(crate) reserved0: u16,
}

/// `struct ublk_params`, without the parts that the first drivers lack.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout,
)]
#[repr(C)]
pub(crate) struct UblkParams {
    pub(crate) len: u32,
    /// `param_type::*`
    pub(crate) types: u32,
    pub(crate) basic: BasicParams,
    pub(crate) discard: DiscardParams,
    pub(crate) pad: u32,
}

const _: () = {
    assert!(size_of::<ControlCommand>() == 32);
    assert!(offset_of!(ControlCommand, addr) == 8);
    assert!(offset_of!(ControlCommand, data) == 16);
    assert!(size_of::<DeviceInfo>() == 64);
    assert!(offset_of!(DeviceInfo, max_io_buf_bytes) == 8);
    assert!(offset_of!(DeviceInfo, ublksrv_pid) == 16);
    assert!(offset_of!(DeviceInfo, flags) == 24);
    assert!(offset_of!(DeviceInfo, ublksrv_flags) == 32);
    assert!(offset_of!(DeviceInfo, owner_uid) == 40);
    assert!(size_of::<IoDescriptor>() == 24);
    assert!(offset_of!(IoDescriptor, start_sector) == 8);
    assert!(offset_of!(IoDescriptor, addr) == 16);
    assert!(size_of::<UblkIoCommand>() == 16);
    assert!(offset_of!(UblkIoCommand, result) == 4);
    assert!(offset_of!(UblkIoCommand, addr) == 8);
    assert!(size_of::<BasicParams>() == 32);
    assert!(offset_of!(BasicParams, max_sectors) == 8);
    assert!(offset_of!(BasicParams, dev_sectors) == 16);
    assert!(size_of::<DiscardParams>() == 20);
    assert!(size_of::<UblkParams>() == 64);
    assert!(offset_of!(UblkParams, basic) == 8);
    assert!(offset_of!(UblkParams, discard) == 40);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_header() {
        let codes = [
            (ControlOp::GET_DEV_INFO, 0x8020_7502, 0x02),
            (ControlOp::ADD_DEV, 0xc020_7504, 0x04),
            (ControlOp::DEL_DEV, 0xc020_7505, 0x05),
            (ControlOp::START_DEV, 0xc020_7506, 0x06),
            (ControlOp::STOP_DEV, 0xc020_7507, 0x07),
            (ControlOp::SET_PARAMS, 0xc020_7508, 0x08),
            (ControlOp::GET_PARAMS, 0x8020_7509, 0x09),
            (ControlOp::START_USER_RECOVERY, 0xc020_7510, 0x10),
            (ControlOp::END_USER_RECOVERY, 0xc020_7511, 0x11),
            (ControlOp::GET_FEATURES, 0x8020_7513, 0x13),
            (ControlOp::UPDATE_SIZE, 0xc020_7515, 0x15),
        ];
        for (op, encoded, plain) in codes {
            assert_eq!((op.code(true), op.code(false)), (encoded, plain), "{op:?}");
        }
        assert_eq!(QueueOp::Fetch.code(true), 0xc010_7520);
        assert_eq!(QueueOp::CommitAndFetch.code(true), 0xc010_7521);
        assert_eq!(QueueOp::CommitAndFetch.code(false), 0x21);
    }
}
