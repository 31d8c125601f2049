//! Log pages (NVMe Base 2.1, section 5.1.12), apart from the discovery log ([`crate::discovery`]).

use crate::sqe::{Sqe, opcode};
use zerocopy::little_endian::{U16, U32, U64, U128};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Log page identifiers.
pub mod lid {
    pub const SUPPORTED: u8 = 0x00;
    pub const ERROR: u8 = 0x01;
    pub const SMART: u8 = 0x02;
    pub const FIRMWARE_SLOT: u8 = 0x03;
    pub const CHANGED_NAMESPACES: u8 = 0x04;
    pub const COMMAND_EFFECTS: u8 = 0x05;
    /// Asymmetric Namespace Access: see [`crate::ana`].
    pub const ANA: u8 = 0x0c;
    pub const FEATURE_EFFECTS: u8 = 0x12;
    pub const MI_EFFECTS: u8 = 0x13;
    /// See [`crate::cross_reset`].
    pub const CROSS_CONTROLLER_RESET: u8 = 0x1e;
    pub const DISCOVERY: u8 = 0x70;
    /// See [`crate::reservation::NotificationLog`].
    pub const RESERVATION_NOTIFICATION: u8 = 0x80;
}

/// Fields of Get Log Page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetLogPage {
    pub lid: u8,
    pub lsp: u8,
    /// Retain Asynchronous Event: after reading, the controller does not report the event again.
    pub rae: bool,
    /// Bytes to read, 4..=2^34.
    pub bytes: u64,
    pub lsi: u16,
    pub offset: u64,
    /// True if the offset is an index (OT).
    pub indexed: bool,
    pub csi: u8,
}

impl GetLogPage {
    /// The first `bytes` of `lid`.
    #[must_use]
    pub fn new(lid: u8, bytes: u32) -> Self {
        GetLogPage {
            lid,
            lsp: 0,
            rae: false,
            bytes: bytes.into(),
            lsi: 0,
            offset: 0,
            indexed: false,
            csi: 0,
        }
    }

    /// Parses the fields of a Get Log Page `sqe`.
    #[must_use]
    pub fn parse(sqe: &Sqe) -> Self {
        let (dw10, dw11, dw14) = (sqe.cdw10.get(), sqe.cdw11.get(), sqe.cdw14.get());
        let numd = u64::from(dw10 >> 16) | u64::from(dw11 & 0xffff) << 16;
        GetLogPage {
            lid: dw10 as u8,
            lsp: (dw10 >> 8 & 0x7f) as u8,
            rae: dw10 >> 15 & 1 != 0,
            bytes: (numd + 1) * 4,
            lsi: (dw11 >> 16) as u16,
            offset: u64::from(sqe.cdw12.get()) | u64::from(sqe.cdw13.get()) << 32,
            indexed: dw14 >> 23 & 1 != 0,
            csi: (dw14 >> 24) as u8,
        }
    }

    /// Returns the command, with data moved by the transport. `bytes` must be a multiple of 4, not 0.
    #[must_use]
    pub fn emit(&self, nsid: u32) -> Sqe {
        let numd = (self.bytes / 4).saturating_sub(1);
        let mut sqe = Sqe::new(opcode::GET_LOG_PAGE, nsid);
        let lsp = u32::from(self.lsp & 0x7f) << 8;
        let numdl = (numd as u32 & 0xffff) << 16;
        sqe.cdw10 = (u32::from(self.lid) | lsp | u32::from(self.rae) << 15 | numdl).into();
        sqe.cdw11 = ((numd >> 16) as u32 & 0xffff | u32::from(self.lsi) << 16).into();
        sqe.cdw12 = (self.offset as u32).into();
        sqe.cdw13 = ((self.offset >> 32) as u32).into();
        sqe.cdw14 = (u32::from(self.indexed) << 23 | u32::from(self.csi) << 24).into();
        sqe.set_transport(self.bytes as u32);
        sqe
    }
}

/// Error Information log entry (LID 01h), newest first; an unused entry has error count 0.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ErrorEntry {
    /// Number of the error since the controller was created, from 1.
    pub error_count: U64,
    pub sqid: U16,
    pub cid: U16,
    /// Status field as in the completion (bit 0 is the phase tag).
    pub status: U16,
    /// Byte (bits 7:0) and bit (10:8) of the command at fault; FFFFh for none in particular.
    pub parameter: U16,
    /// First logical block at fault.
    pub lba: U64,
    pub nsid: U32,
    pub vs: u8,
    /// Transport type, as in the discovery log.
    pub trtype: u8,
    pub csi: u8,
    pub opcode: u8,
    pub command_specific: U64,
    pub transport_specific: U16,
    pub reserved42: [u8; 21],
    /// Log page version: 1 when `csi` and `opcode` are valid.
    pub version: u8,
}

/// [`ErrorEntry::parameter`] when no field in particular is wrong.
pub const PARAMETER_NONE: u16 = 0xffff;

/// SMART / Health Information log (LID 02h).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SmartLog {
    pub critical_warning: u8,
    /// Temperature in kelvins; 0: not measured.
    pub composite_temperature: U16,
    /// Percent.
    pub available_spare: u8,
    /// Percent.
    pub available_spare_threshold: u8,
    pub percentage_used: u8,
    pub endurance_group_summary: u8,
    pub reserved7: [u8; 25],
    /// Thousands of 512-byte units, rounded up; the same for written data.
    pub data_units_read: U128,
    pub data_units_written: U128,
    pub host_read_commands: U128,
    pub host_write_commands: U128,
    /// Minutes.
    pub controller_busy_time: U128,
    pub power_cycles: U128,
    pub power_on_hours: U128,
    pub unsafe_shutdowns: U128,
    pub media_errors: U128,
    pub error_log_entries: U128,
    pub warning_temperature_time: U32,
    pub critical_temperature_time: U32,
    pub temperature_sensors: [U16; 8],
    pub reserved216: [u8; 296],
}

/// Firmware Slot Information log (LID 03h).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct FirmwareSlotLog {
    /// Active slot (bits 2:0) and the slot for the next reset (6:4).
    pub afi: u8,
    pub reserved1: [u8; 7],
    /// Revision in each slot, ASCII.
    pub frs: [[u8; 8]; 7],
    pub reserved64: [u8; 448],
}

/// Bits of a command's entry in [`CommandEffectsLog`] and of a feature's in [`EffectsTable`].
pub mod effects {
    /// Command or feature supported.
    pub const SUPPORTED: u32 = 1 << 0;
    /// Logical block content may change.
    pub const CONTENT_CHANGE: u32 = 1 << 1;
    /// The inventory of namespaces may change.
    pub const INVENTORY_CHANGE: u32 = 1 << 3;
    pub const SCOPE_NAMESPACE: u32 = 1 << 20;
    pub const SCOPE_CONTROLLER: u32 = 1 << 21;
}

/// Commands Supported and Effects log (LID 05h), by opcode.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct CommandEffectsLog {
    /// Admin commands: see [`effects`].
    pub admin: [U32; 256],
    pub io: [U32; 256],
    pub reserved: [u8; 2048],
}

/// A dword for each of 256 identifiers: Supported Log Pages (LID 00h, bit 0: supported) and Feature Identifiers
/// Supported and Effects (LID 12h).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct EffectsTable {
    /// Entries by LID or FID.
    pub entries: [U32; 256],
}

const _: () = assert!(size_of::<ErrorEntry>() == 64);
const _: () = assert!(size_of::<SmartLog>() == 512);
const _: () = assert!(size_of::<FirmwareSlotLog>() == 512);
const _: () = assert!(size_of::<CommandEffectsLog>() == 4096);
const _: () = assert!(size_of::<EffectsTable>() == 1024);
const _: () = assert!(core::mem::offset_of!(SmartLog, data_units_read) == 32);
const _: () = assert!(core::mem::offset_of!(SmartLog, error_log_entries) == 176);
const _: () = assert!(core::mem::offset_of!(SmartLog, temperature_sensors) == 200);

impl EffectsTable {
    /// A table with `value` at each of `ids`.
    #[must_use]
    pub fn with(ids: impl IntoIterator<Item = u8>, value: u32) -> Self {
        let mut table = Self::new_zeroed();
        for id in ids {
            table.entries[usize::from(id)] = value.into();
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn get_log_page_round_trips() {
        let get = GetLogPage {
            lsp: 0x35,
            rae: true,
            lsi: 0x1234,
            offset: 0x1_0000_2000,
            csi: 2,
            indexed: true,
            ..GetLogPage::new(lid::ANA, 0x0010_0000)
        };
        assert_eq!(GetLogPage::parse(&get.emit(7)), get);
    }

    #[test]
    fn get_log_page_is_what_linux_sends() {
        let sqe = GetLogPage::new(lid::ANA, 8208).emit(0xffff_ffff);
        assert_eq!(sqe.cdw10.get(), 0x0803_000c);
        let rae = GetLogPage { rae: true, ..GetLogPage::new(lid::DISCOVERY, 1024) };
        assert_eq!(rae.emit(0).cdw10.get(), 0x00ff_8070);
    }

    #[test]
    fn the_largest_numd_does_not_overflow() {
        let mut sqe = Sqe::new(opcode::GET_LOG_PAGE, 0);
        sqe.cdw10 = 0xffff_0002.into();
        sqe.cdw11 = 0xffff.into();
        assert_eq!(GetLogPage::parse(&sqe).bytes, 1 << 34);
    }
}
