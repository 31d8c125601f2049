//! Cross-Controller Reset (NVMe Base 2.3, sections 5.4.3 and 5.2.12.3.1; TP8028): a host resets another of its
//! controllers, one that it cannot reach any more.

use crate::sqe::{Sqe, opcode};
use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bit of DW0 of the completion (Immediate Reset Successful): the controller is gone. Otherwise the log page reports
/// its end.
pub const IMMEDIATE: u32 = 1 << 0;

/// LSP of the log page: Remove Completed, which drops completed entries.
pub const REMOVE_COMPLETED: u8 = 1;

/// Maximum entries of the log page.
pub const ENTRIES_MAX: usize = 511;

/// Instance of a controller, as Identify Controller reports it; another one after each reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ControllerInstance {
    pub cntlid: u16,
    /// Controller Instance Uniquifier; 0: not reported.
    pub ciu: u8,
    /// Controller Instance Random Number.
    pub cirn: u64,
}

impl ControllerInstance {
    /// Parses the controller that a Cross-Controller Reset `sqe` names.
    #[must_use]
    pub fn parse(sqe: &Sqe) -> Self {
        let cdw10 = sqe.cdw10.get();
        ControllerInstance {
            cntlid: cdw10 as u16,
            ciu: (cdw10 >> 16) as u8,
            cirn: u64::from(sqe.cdw12.get()) | u64::from(sqe.cdw13.get()) << 32,
        }
    }

    /// Returns the command that resets the controller.
    #[must_use]
    pub fn emit(&self) -> Sqe {
        let mut sqe = Sqe::new(opcode::CROSS_CONTROLLER_RESET, 0);
        sqe.cdw10 = (u32::from(self.cntlid) | u32::from(self.ciu) << 16).into();
        sqe.cdw12 = (self.cirn as u32).into();
        sqe.cdw13 = ((self.cirn >> 32) as u32).into();
        sqe
    }
}

/// Head of the Cross-Controller Reset log (LID 1Eh); entries follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct CrossResetLog {
    /// Number of entries.
    pub entries: U16,
    pub reserved2: [u8; 6],
}

/// A reset requested on this controller that did not complete at once.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct CrossResetEntry {
    /// The controller that is reset, and its uniquifier.
    pub icid: U16,
    pub ciu: u8,
    pub reserved3: u8,
    /// Another controller (ACID); FFFFh: none.
    pub acid: U16,
    /// See [`reset_status`].
    pub status: u8,
    /// See [`reset_flags`].
    pub flags: u8,
}

/// CCRS: progress of a reset.
pub mod reset_status {
    pub const IN_PROGRESS: u8 = 0;
    pub const SUCCEEDED: u8 = 1;
    pub const FAILED: u8 = 2;
}

/// CCRF, as Linux's target sets it.
pub mod reset_flags {
    /// The named controller exists.
    pub const VALIDATED: u8 = 1 << 0;
    /// Its reset has begun.
    pub const INITIATED: u8 = 1 << 1;
}

/// [`CrossResetEntry::acid`] when there is no such controller.
pub const ACID_NONE: u16 = 0xffff;

const _: () = assert!(size_of::<CrossResetLog>() == 8);
const _: () = assert!(size_of::<CrossResetEntry>() == 8);
const _: () = assert!(core::mem::offset_of!(CrossResetEntry, status) == 6);
const _: () = assert!(size_of::<CrossResetLog>() + 8 * ENTRIES_MAX == 4096);

/// Bytes of the whole log page.
pub const LOG_BYTES: usize = 4096;

/// Returns the entries of a log page, as far as the page reaches.
#[must_use]
pub fn entries(page: &[u8]) -> &[CrossResetEntry] {
    let Ok((log, rest)) = CrossResetLog::ref_from_prefix(page) else { return &[] };
    let count = usize::from(log.entries.get()).min(rest.len() / size_of::<CrossResetEntry>());
    <[CrossResetEntry]>::ref_from_prefix_with_elems(rest, count).map_or(&[], |(entries, _)| entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Byte for byte as in the tables of the specification.
    #[test]
    fn cross_controller_reset_has_the_bytes_of_the_specification() {
        let named = ControllerInstance { cntlid: 0x1234, ciu: 0x56, cirn: 0x0807_0605_0403_0201 };
        let sqe = named.emit();
        let bytes = sqe.as_bytes();
        assert_eq!((bytes[0], bytes.len()), (0x38, 64));
        assert_eq!(bytes[40..44], [0x34, 0x12, 0x56, 0]);
        assert_eq!(bytes[48..56], [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(bytes[44..48], [0; 4]);
        assert_eq!(bytes[56..], [0; 8]);
        assert_eq!(ControllerInstance::parse(&sqe), named);
    }

    #[test]
    fn the_log_of_resets_has_the_bytes_of_the_specification() {
        let log = CrossResetLog { entries: 1.into(), reserved2: [0; 6] };
        let entry = CrossResetEntry {
            icid: 0x1234.into(),
            ciu: 0x56,
            reserved3: 0,
            acid: ACID_NONE.into(),
            status: reset_status::SUCCEEDED,
            flags: reset_flags::VALIDATED | reset_flags::INITIATED,
        };
        let mut page = [0; 16];
        page[..8].copy_from_slice(log.as_bytes());
        page[8..].copy_from_slice(entry.as_bytes());
        assert_eq!(page, [1, 0, 0, 0, 0, 0, 0, 0, 0x34, 0x12, 0x56, 0, 0xff, 0xff, 1, 3]);
        assert_eq!(entries(&page), [entry]);
    }

    #[test]
    fn a_log_that_is_cut_short_has_what_is_there() {
        let mut page = [0; 8 + 2 * 8 + 5];
        assert_eq!(entries(&page).len(), 0);
        page[0] = 1;
        assert_eq!(entries(&page).len(), 1);
        page[..2].fill(0xff);
        assert_eq!(entries(&page).len(), 2);
        for length in 0..8 {
            assert_eq!(entries(&page[..length]).len(), 0);
        }
    }
}
