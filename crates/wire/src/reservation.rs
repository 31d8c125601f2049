//! Reservations (NVMe Base 2.1, sections 7.5 to 7.8, 8.1.24 and 5.1.12.1.32): access rights to a namespace that several
//! hosts share.

use crate::sqe::{Sqe, opcode};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of the data of Reservation Register and Reservation Acquire: two keys.
pub const TWO_KEYS_BYTES: usize = 16;
/// Bytes of the data of Reservation Release: one key.
pub const ONE_KEY_BYTES: usize = 8;
/// IEKEY in CDW10 of the commands that have keys.
const IEKEY: u32 = 1 << 3;
/// EDS in CDW11 of Reservation Report.
const EDS: u32 = 1 << 0;

/// RTYPE: access rights of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ReservationType {
    /// Only the holder writes.
    WriteExclusive = 1,
    /// Only the holder reads and writes.
    ExclusiveAccess = 2,
    /// Only registrants write.
    WriteExclusiveRegistrantsOnly = 3,
    /// Only registrants read and write.
    ExclusiveAccessRegistrantsOnly = 4,
    /// Only registrants write, and each of them holds the reservation.
    WriteExclusiveAllRegistrants = 5,
    /// Only registrants read and write, and each of them holds the reservation.
    ExclusiveAccessAllRegistrants = 6,
}

impl ReservationType {
    /// All types, in the order of their numbers.
    pub const ALL: [ReservationType; 6] = [
        ReservationType::WriteExclusive,
        ReservationType::ExclusiveAccess,
        ReservationType::WriteExclusiveRegistrantsOnly,
        ReservationType::ExclusiveAccessRegistrantsOnly,
        ReservationType::WriteExclusiveAllRegistrants,
        ReservationType::ExclusiveAccessAllRegistrants,
    ];

    /// Returns the type with that number; `None`: reserved, or no reservation.
    #[must_use]
    pub fn parse(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }

    /// Returns the number.
    #[must_use]
    pub fn emit(self) -> u8 {
        self as u8
    }

    /// True if every registrant holds the reservation.
    #[must_use]
    pub fn is_held_by_all(self) -> bool {
        matches!(self, Self::WriteExclusiveAllRegistrants | Self::ExclusiveAccessAllRegistrants)
    }
}

/// RREGA: action of Reservation Register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegisterAction {
    Register,
    Unregister,
    Replace,
}

/// CPTPL: change of Persist Through Power Loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangePersistence {
    Keep,
    /// Reservations and registrants are lost at a power loss.
    Clear,
    /// Reservations and registrants survive a power loss.
    Set,
}

/// Reservation Register (opcode 0Dh), without its keys. `None` stands for a reserved value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservationRegister {
    pub action: Option<RegisterAction>,
    /// IEKEY: the host's current key is ignored.
    pub ignores_key: bool,
    pub persistence: Option<ChangePersistence>,
}

impl ReservationRegister {
    /// Parses the fields of a Reservation Register `sqe`.
    #[must_use]
    pub fn parse(sqe: &Sqe) -> Self {
        let cdw10 = sqe.cdw10.get();
        let action = match cdw10 & 7 {
            0 => Some(RegisterAction::Register),
            1 => Some(RegisterAction::Unregister),
            2 => Some(RegisterAction::Replace),
            _ => None,
        };
        let persistence = match cdw10 >> 30 {
            0 => Some(ChangePersistence::Keep),
            2 => Some(ChangePersistence::Clear),
            3 => Some(ChangePersistence::Set),
            _ => None,
        };
        ReservationRegister { action, ignores_key: cdw10 & IEKEY != 0, persistence }
    }

    /// Returns the command, with its data ([`TwoKeys`]) in the capsule.
    #[must_use]
    pub fn emit(&self, nsid: u32) -> Sqe {
        let action = match self.action {
            Some(RegisterAction::Register) => 0,
            Some(RegisterAction::Unregister) => 1,
            Some(RegisterAction::Replace) => 2,
            None => 7,
        };
        let persistence = match self.persistence {
            Some(ChangePersistence::Keep) => 0,
            None => 1,
            Some(ChangePersistence::Clear) => 2,
            Some(ChangePersistence::Set) => 3,
        };
        let mut sqe = Sqe::new(opcode::RESERVATION_REGISTER, nsid);
        sqe.cdw10 = (action | iekey(self.ignores_key) | persistence << 30).into();
        sqe.set_in_capsule(TWO_KEYS_BYTES as u32);
        sqe
    }
}

/// RACQA: action of Reservation Acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcquireAction {
    Acquire,
    Preempt,
    PreemptAndAbort,
}

/// Reservation Acquire (opcode 11h), without its keys. `None` stands for a reserved value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservationAcquire {
    pub action: Option<AcquireAction>,
    /// IEKEY, which must be 0.
    pub ignores_key: bool,
    pub kind: Option<ReservationType>,
}

impl ReservationAcquire {
    /// Parses the fields of a Reservation Acquire `sqe`.
    #[must_use]
    pub fn parse(sqe: &Sqe) -> Self {
        let cdw10 = sqe.cdw10.get();
        let action = match cdw10 & 7 {
            0 => Some(AcquireAction::Acquire),
            1 => Some(AcquireAction::Preempt),
            2 => Some(AcquireAction::PreemptAndAbort),
            _ => None,
        };
        let kind = ReservationType::parse((cdw10 >> 8) as u8);
        ReservationAcquire { action, ignores_key: cdw10 & IEKEY != 0, kind }
    }

    /// Returns the command, with its data ([`TwoKeys`]) in the capsule.
    #[must_use]
    pub fn emit(&self, nsid: u32) -> Sqe {
        let action = match self.action {
            Some(AcquireAction::Acquire) => 0,
            Some(AcquireAction::Preempt) => 1,
            Some(AcquireAction::PreemptAndAbort) => 2,
            None => 7,
        };
        let mut sqe = Sqe::new(opcode::RESERVATION_ACQUIRE, nsid);
        sqe.cdw10 = (action | iekey(self.ignores_key) | rtype(self.kind)).into();
        sqe.set_in_capsule(TWO_KEYS_BYTES as u32);
        sqe
    }
}

/// RRELA: action of Reservation Release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseAction {
    Release,
    Clear,
}

/// Reservation Release (opcode 15h), without its key. `None` stands for a reserved value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservationRelease {
    pub action: Option<ReleaseAction>,
    /// IEKEY, which must be 0.
    pub ignores_key: bool,
    pub kind: Option<ReservationType>,
}

impl ReservationRelease {
    /// Parses the fields of a Reservation Release `sqe`.
    #[must_use]
    pub fn parse(sqe: &Sqe) -> Self {
        let cdw10 = sqe.cdw10.get();
        let action = match cdw10 & 7 {
            0 => Some(ReleaseAction::Release),
            1 => Some(ReleaseAction::Clear),
            _ => None,
        };
        let kind = ReservationType::parse((cdw10 >> 8) as u8);
        ReservationRelease { action, ignores_key: cdw10 & IEKEY != 0, kind }
    }

    /// Returns the command, with its data (the key) in the capsule.
    #[must_use]
    pub fn emit(&self, nsid: u32) -> Sqe {
        let action = match self.action {
            Some(ReleaseAction::Release) => 0,
            Some(ReleaseAction::Clear) => 1,
            None => 7,
        };
        let mut sqe = Sqe::new(opcode::RESERVATION_RELEASE, nsid);
        sqe.cdw10 = (action | iekey(self.ignores_key) | rtype(self.kind)).into();
        sqe.set_in_capsule(ONE_KEY_BYTES as u32);
        sqe
    }
}

fn iekey(ignores_key: bool) -> u32 {
    if ignores_key { IEKEY } else { 0 }
}

fn rtype(kind: Option<ReservationType>) -> u32 {
    u32::from(kind.map_or(0, ReservationType::emit)) << 8
}

/// Reservation Report (opcode 0Eh).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservationReportFields {
    /// Bytes to read, 4..=2^34.
    pub bytes: u64,
    /// EDS: host identifiers of 128 bits.
    pub extended: bool,
}

impl ReservationReportFields {
    /// Parses the fields of a Reservation Report `sqe`.
    #[must_use]
    pub fn parse(sqe: &Sqe) -> Self {
        let bytes = (u64::from(sqe.cdw10.get()) + 1) * 4;
        ReservationReportFields { bytes, extended: sqe.cdw11.get() & EDS != 0 }
    }

    /// Returns the command, with data moved by the transport. `bytes` must be a multiple of 4, not 0.
    #[must_use]
    pub fn emit(&self, nsid: u32) -> Sqe {
        let mut sqe = Sqe::new(opcode::RESERVATION_REPORT, nsid);
        sqe.cdw10 = ((self.bytes / 4).saturating_sub(1) as u32).into();
        sqe.cdw11 = if self.extended { EDS } else { 0 }.into();
        sqe.set_transport(self.bytes as u32);
        sqe
    }
}

/// Data of Reservation Register (CRKEY, NRKEY) and Reservation Acquire (CRKEY, PRKEY).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct TwoKeys {
    /// CRKEY: the host's current key.
    pub current: U64,
    /// NRKEY or PRKEY: the host's new key, or the key of the registrants to preempt.
    pub other: U64,
}

/// Head of the data of Reservation Report. Without EDS entries follow; with EDS they begin at byte 64.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ReportHead {
    /// GEN: number of changes of registrations.
    pub generation: U32,
    /// RTYPE; 0: no reservation.
    pub rtype: u8,
    /// REGSTRNT: number of entries, those that did not fit included.
    pub registrants: U16,
    pub reserved7: [u8; 2],
    /// PTPLS: 1: the reservation persists through power loss.
    pub ptpls: u8,
    pub reserved10: [u8; 14],
}

/// Offset of entries with host identifiers of 128 bits.
pub const EXTENDED_ENTRIES: usize = 64;

/// Bit of RCSTS: the host holds the reservation.
pub const RCSTS_HOLDER: u8 = 1 << 0;

/// CNTLID of a registrant that has no controller.
pub const CNTLID_NONE: u16 = 0xffff;

/// Registrant data structure: a controller of a registrant, with a host identifier of 64 bits.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ReportEntry {
    /// CNTLID, or [`CNTLID_NONE`].
    pub cntlid: U16,
    /// See [`RCSTS_HOLDER`].
    pub rcsts: u8,
    pub reserved3: [u8; 5],
    pub hostid: U64,
    pub key: U64,
}

/// Registrant Extended data structure: a controller of a registrant, with a host identifier of 128 bits.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ReportEntryExtended {
    /// CNTLID, or [`CNTLID_NONE`].
    pub cntlid: U16,
    /// See [`RCSTS_HOLDER`].
    pub rcsts: u8,
    pub reserved3: [u8; 5],
    pub key: U64,
    pub hostid: [u8; 16],
    pub reserved32: [u8; 32],
}

/// Returns the head of a report with host identifiers of 128 bits, and its entries as far as the report reaches.
#[must_use]
pub fn parse_extended(report: &[u8]) -> Option<(&ReportHead, &[ReportEntryExtended])> {
    let (head, _) = ReportHead::ref_from_prefix(report).ok()?;
    let rest = report.get(EXTENDED_ENTRIES..).unwrap_or_default();
    Some((head, entries(head, rest)))
}

/// Returns the head of a report with host identifiers of 64 bits, and its entries as far as the report reaches.
#[must_use]
pub fn parse_short(report: &[u8]) -> Option<(&ReportHead, &[ReportEntry])> {
    let (head, rest) = ReportHead::ref_from_prefix(report).ok()?;
    Some((head, entries(head, rest)))
}

fn entries<'a, E: FromBytes + Immutable + KnownLayout + Unaligned>(
    head: &ReportHead,
    rest: &'a [u8],
) -> &'a [E] {
    let count = usize::from(head.registrants.get()).min(rest.len() / size_of::<E>());
    <[E]>::ref_from_prefix_with_elems(rest, count).map_or(&[], |(entries, _)| entries)
}

/// Type of a Reservation Notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Notification {
    /// Another host has removed the host's registration.
    RegistrationPreempted = 1,
    /// A reservation that concerns the host is released, or has another type.
    ReservationReleased = 2,
    /// Another host has cleared a reservation and all registrations.
    ReservationPreempted = 3,
}

impl Notification {
    /// Returns the type with that RNLPT; `None`: an empty page, or reserved.
    #[must_use]
    pub fn parse(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::RegistrationPreempted),
            2 => Some(Self::ReservationReleased),
            3 => Some(Self::ReservationPreempted),
            _ => None,
        }
    }

    /// Returns the bit in Reservation Notification Mask (feature 82h).
    #[must_use]
    pub fn mask_bit(self) -> u32 {
        1 << self as u8
    }
}

/// Valid bits of Reservation Notification Mask.
pub const NOTIFICATION_MASK: u32 = 0b1110;

/// Bit of Reservation Persistence (feature 83h): PTPL.
pub const PTPL: u32 = 1 << 0;

/// Reservation Notification log (LID 80h): the oldest notification that the host has not read; all zero: none.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct NotificationLog {
    /// Number of the notification since the controller was created, from 1; a gap means that notifications were lost.
    pub count: U64,
    /// RNLPT: see [`Notification`].
    pub kind: u8,
    /// Number of further notifications, 255 at most.
    pub available: u8,
    pub reserved10: [u8; 2],
    pub nsid: U32,
    pub reserved16: [u8; 48],
}

const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<TwoKeys>() == TWO_KEYS_BYTES);
    assert!(size_of::<ReportHead>() == 24);
    assert!(offset_of!(ReportHead, registrants) == 5);
    assert!(offset_of!(ReportHead, ptpls) == 9);
    assert!(size_of::<ReportEntry>() == 24);
    assert!(size_of::<ReportEntryExtended>() == 64);
    assert!(offset_of!(ReportEntryExtended, hostid) == 16);
    assert!(size_of::<NotificationLog>() == 64);
    assert!(offset_of!(NotificationLog, nsid) == 12);
};

#[cfg(test)]
mod tests;
