//! Reservations (NVMe Base 2.1, sections 7.5 to 7.8, 8.1.24 and 5.1.12.1.32): who may read and write a namespace that
//! several hosts share.

use crate::sqe::{Sqe, opcode};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Octets of the data of Reservation Register and Reservation Acquire: two keys.
pub const TWO_KEYS_BYTES: usize = 16;
/// Octets of the data of Reservation Release: one key.
pub const ONE_KEY_BYTES: usize = 8;
/// IEKEY in CDW10 of the commands that have keys.
const IEKEY: u32 = 1 << 3;
/// EDS in CDW11 of Reservation Report.
const EDS: u32 = 1 << 0;

/// RTYPE: what a reservation lets whom do.
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
    /// All of them, in the order of their numbers.
    pub const ALL: [ReservationType; 6] = [
        ReservationType::WriteExclusive,
        ReservationType::ExclusiveAccess,
        ReservationType::WriteExclusiveRegistrantsOnly,
        ReservationType::ExclusiveAccessRegistrantsOnly,
        ReservationType::WriteExclusiveAllRegistrants,
        ReservationType::ExclusiveAccessAllRegistrants,
    ];

    /// From its number; `None`: reserved, or no reservation.
    #[must_use]
    pub fn parse(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }

    /// Its number.
    #[must_use]
    pub fn emit(self) -> u8 {
        self as u8
    }

    /// Every registrant holds the reservation.
    #[must_use]
    pub fn is_held_by_all(self) -> bool {
        matches!(self, Self::WriteExclusiveAllRegistrants | Self::ExclusiveAccessAllRegistrants)
    }
}

/// RREGA: what Reservation Register does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegisterAction {
    Register,
    Unregister,
    Replace,
}

/// CPTPL: what becomes of Persist Through Power Loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangePersistence {
    Keep,
    /// Reservations and registrants are gone after a power loss.
    Clear,
    /// They stay.
    Set,
}

/// Reservation Register (opcode 0Dh), without its keys. What is `None` is a reserved value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register {
    pub action: Option<RegisterAction>,
    /// IEKEY: whatever the host's key is.
    pub ignores_key: bool,
    pub persistence: Option<ChangePersistence>,
}

impl Register {
    /// The fields of a Reservation Register `sqe`.
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
        Register { action, ignores_key: cdw10 & IEKEY != 0, persistence }
    }

    /// The command, its data ([`TwoKeys`]) behind it in the capsule.
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

/// RACQA: what Reservation Acquire does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcquireAction {
    Acquire,
    Preempt,
    PreemptAndAbort,
}

/// Reservation Acquire (opcode 11h), without its keys. What is `None` is a reserved value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acquire {
    pub action: Option<AcquireAction>,
    /// IEKEY, which has to be 0.
    pub ignores_key: bool,
    pub kind: Option<ReservationType>,
}

impl Acquire {
    /// The fields of a Reservation Acquire `sqe`.
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
        Acquire { action, ignores_key: cdw10 & IEKEY != 0, kind }
    }

    /// The command, its data ([`TwoKeys`]) behind it in the capsule.
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

/// RRELA: what Reservation Release does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseAction {
    Release,
    Clear,
}

/// Reservation Release (opcode 15h), without its key. What is `None` is a reserved value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    pub action: Option<ReleaseAction>,
    /// IEKEY, which has to be 0.
    pub ignores_key: bool,
    pub kind: Option<ReservationType>,
}

impl Release {
    /// The fields of a Reservation Release `sqe`.
    #[must_use]
    pub fn parse(sqe: &Sqe) -> Self {
        let cdw10 = sqe.cdw10.get();
        let action = match cdw10 & 7 {
            0 => Some(ReleaseAction::Release),
            1 => Some(ReleaseAction::Clear),
            _ => None,
        };
        let kind = ReservationType::parse((cdw10 >> 8) as u8);
        Release { action, ignores_key: cdw10 & IEKEY != 0, kind }
    }

    /// The command, its data (the key) behind it in the capsule.
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
pub struct Report {
    /// Octets asked for, 4..=2^34.
    pub bytes: u64,
    /// EDS: host identifiers of 128 bits.
    pub extended: bool,
}

impl Report {
    /// The fields of a Reservation Report `sqe`.
    #[must_use]
    pub fn parse(sqe: &Sqe) -> Self {
        let bytes = (u64::from(sqe.cdw10.get()) + 1) * 4;
        Report { bytes, extended: sqe.cdw11.get() & EDS != 0 }
    }

    /// The command, its data moved by the transport. `bytes` must be a multiple of 4, not 0.
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
    /// CRKEY: the host's key by now.
    pub current: U64,
    /// NRKEY or PRKEY: its new key, or the key of those that are preempted.
    pub other: U64,
}

/// Head of what Reservation Report returns. Without EDS entries follow; with EDS they begin at octet 64.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ReportHead {
    /// GEN: changes of registrations.
    pub generation: U32,
    /// RTYPE; 0: no reservation.
    pub rtype: u8,
    /// REGSTRNT: entries that there are, also those that did not fit.
    pub registrants: U16,
    pub reserved7: [u8; 2],
    /// PTPLS: 1: it persists through power loss.
    pub ptpls: u8,
    pub reserved10: [u8; 14],
}

/// Where entries with host identifiers of 128 bits begin.
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

/// The head of a report with host identifiers of 128 bits, and its entries as far as they are there.
#[must_use]
pub fn parse_extended(report: &[u8]) -> Option<(&ReportHead, &[ReportEntryExtended])> {
    let (head, _) = ReportHead::ref_from_prefix(report).ok()?;
    let rest = report.get(EXTENDED_ENTRIES..).unwrap_or_default();
    Some((head, entries(head, rest)))
}

/// The head of a report with host identifiers of 64 bits, and its entries as far as they are there.
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

/// What a Reservation Notification is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Notification {
    /// The host's registration was taken away by another host.
    RegistrationPreempted = 1,
    /// A reservation that concerns the host is released, or of another type.
    ReservationReleased = 2,
    /// A reservation and all registrations were cleared by another host.
    ReservationPreempted = 3,
}

impl Notification {
    /// From RNLPT; `None`: an empty page, or reserved.
    #[must_use]
    pub fn parse(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::RegistrationPreempted),
            2 => Some(Self::ReservationReleased),
            3 => Some(Self::ReservationPreempted),
            _ => None,
        }
    }

    /// Its bit in Reservation Notification Mask (feature 82h).
    #[must_use]
    pub fn mask_bit(self) -> u32 {
        1 << self as u8
    }
}

/// Bits of Reservation Notification Mask that mean something.
pub const NOTIFICATION_MASK: u32 = 0b1110;

/// Bit of Reservation Persistence (feature 83h): PTPL.
pub const PTPL: u32 = 1 << 0;

/// Reservation Notification log (LID 80h): the oldest notification that the host has not read; all zero: none.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct NotificationLog {
    /// Which notification of the controller's life this is, from 1; one that is missing was lost.
    pub count: U64,
    /// RNLPT: see [`Notification`].
    pub kind: u8,
    /// Notifications behind this one, 255 at most.
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
