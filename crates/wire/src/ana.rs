//! Asymmetric Namespace Access (NVMe Base 2.1, sections 8.1.1 and 5.1.12.1.13). The state of a controller's path to a
//! group of namespaces, and the log page that reports it.
//!
//! ```text
//!   log page 0Ch:  AnaHeader | AnaGroup, its NSIDs | AnaGroup, its NSIDs | ...
//! ```

use crate::status::Status;
use core::fmt;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// LSP of the ANA log: Return Groups Only (no NSIDs).
pub const ANA_GROUPS_ONLY: u8 = 1;

/// Head of the ANA log (LID 0Ch).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct AnaHeader {
    /// Changes since the controller started.
    pub chgcnt: U64,
    pub groups: U16,
    pub reserved10: [u8; 6],
}

/// ANA group descriptor; `nnsids` NSIDs follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct AnaGroup {
    /// ANA group identifier, 1 or more.
    pub grpid: U32,
    pub nnsids: U32,
    pub chgcnt: U64,
    /// ANA state, bits 3:0: see [`AnaGroup::state`].
    pub state: u8,
    pub reserved17: [u8; 15],
}

const _: () = assert!(size_of::<AnaHeader>() == 16);
const _: () = assert!(size_of::<AnaGroup>() == 32);
const _: () = assert!(core::mem::offset_of!(AnaGroup, state) == 16);

/// ANA state: access of a controller to the namespaces of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(u8)]
pub enum AnaState {
    /// Optimal access.
    #[default]
    Optimized = 0x1,
    /// Access, but another controller may have better access.
    NonOptimized = 0x2,
    /// No access for now.
    Inaccessible = 0x3,
    /// No access ever again.
    PersistentLoss = 0x4,
    /// No access now: another state follows within ANATT seconds (ANA Change).
    Change = 0xf,
}

impl AnaState {
    /// All states.
    pub const ALL: [AnaState; 5] = [
        AnaState::Optimized,
        AnaState::NonOptimized,
        AnaState::Inaccessible,
        AnaState::PersistentLoss,
        AnaState::Change,
    ];

    /// Returns the state with that code; ignores the reserved bits 7:4.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|state| *state as u8 == code & 0xf)
    }

    /// Returns the status of commands for a namespace in this state; `None`: they are executed.
    #[must_use]
    pub const fn refusal(self) -> Option<Status> {
        match self {
            AnaState::Optimized | AnaState::NonOptimized => None,
            AnaState::Inaccessible => Some(Status::ANA_INACCESSIBLE),
            AnaState::PersistentLoss => Some(Status::ANA_PERSISTENT_LOSS),
            AnaState::Change => Some(Status::ANA_TRANSITION),
        }
    }

    /// True if commands for a namespace are executed.
    #[must_use]
    pub const fn is_usable(self) -> bool {
        self.refusal().is_none()
    }

    /// Returns the worse of both states: that of a path, and that of the namespace behind it. A transient state is
    /// better than a lasting one.
    #[must_use]
    pub fn or_worse(self, other: AnaState) -> AnaState {
        let badness = |state: AnaState| match state {
            AnaState::Optimized => 0,
            AnaState::NonOptimized => 1,
            AnaState::Change => 2,
            AnaState::Inaccessible => 3,
            AnaState::PersistentLoss => 4,
        };
        if badness(other) > badness(self) { other } else { self }
    }

    /// Returns the name in configurations and in Linux.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            AnaState::Optimized => "optimized",
            AnaState::NonOptimized => "non-optimized",
            AnaState::Inaccessible => "inaccessible",
            AnaState::PersistentLoss => "persistent-loss",
            AnaState::Change => "change",
        }
    }

    /// Returns the state of that [name](AnaState::name).
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }
}

impl fmt::Display for AnaState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl AnaHeader {
    /// A head of a page with that many groups.
    #[must_use]
    pub fn new(chgcnt: u64, groups: u16) -> Self {
        AnaHeader { chgcnt: chgcnt.into(), groups: groups.into(), reserved10: [0; 6] }
    }
}

impl AnaGroup {
    /// A group with that many namespaces behind it.
    #[must_use]
    pub fn new(grpid: u32, nnsids: u32, chgcnt: u64, state: AnaState) -> Self {
        AnaGroup {
            grpid: grpid.into(),
            nnsids: nnsids.into(),
            chgcnt: chgcnt.into(),
            state: state as u8,
            ..AnaGroup::new_zeroed()
        }
    }

    /// Returns the state; `None` when it is reserved.
    #[must_use]
    pub fn state(&self) -> Option<AnaState> {
        AnaState::from_code(self.state)
    }
}

/// Returns the maximum bytes of an ANA log with that many groups and namespaces: NANAGRPID and MNAN (or NN) of Identify
/// Controller.
#[must_use]
pub const fn ana_log_bytes(groups: u32, namespaces: u32) -> u64 {
    let (head, group) = (size_of::<AnaHeader>() as u64, size_of::<AnaGroup>() as u64);
    head + groups as u64 * group + 4 * namespaces as u64
}

/// Returns the bytes of the ANA log that begins with `page`; `None` if `page` does not reach to its last group.
#[must_use]
pub fn ana_log_end(page: &[u8]) -> Option<u64> {
    let (header, _) = AnaHeader::ref_from_prefix(page).ok()?;
    let group_at = |at: u64| {
        let rest = page.get(usize::try_from(at).ok()?..)?;
        AnaGroup::ref_from_prefix(rest).ok().map(|(group, _)| group)
    };
    (0..header.groups.get()).try_fold(size_of::<AnaHeader>() as u64, |at, _| {
        Some(at + size_of::<AnaGroup>() as u64 + 4 * u64::from(group_at(at)?.nnsids.get()))
    })
}

/// Returns the groups of an ANA log and the NSIDs of each; stops at the first that is cut short.
pub fn ana_groups(page: &[u8]) -> impl Iterator<Item = (&AnaGroup, &[U32])> {
    let (groups, mut rest) = match AnaHeader::ref_from_prefix(page) {
        Ok((header, rest)) => (header.groups.get(), rest),
        Err(_) => (0, &[][..]),
    };
    (0..groups).map_while(move |_| {
        let (group, tail) = AnaGroup::ref_from_prefix(rest).ok()?;
        let count = usize::try_from(group.nnsids.get()).ok()?;
        let (nsids, tail) = <[U32]>::ref_from_prefix_with_elems(tail, count).ok()?;
        rest = tail;
        Some((group, nsids))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ana_log_has_the_bytes_of_the_specification() {
        let header = AnaHeader::new(0x0807_0605_0403_0201, 2);
        assert_eq!(header.as_bytes(), [1, 2, 3, 4, 5, 6, 7, 8, 2, 0, 0, 0, 0, 0, 0, 0]);
        let group = AnaGroup::new(0x1234_5678, 0x0a0b_0c0d, 9, AnaState::Change);
        let bytes = group.as_bytes();
        assert_eq!(bytes[..8], [0x78, 0x56, 0x34, 0x12, 0x0d, 0x0c, 0x0b, 0x0a]);
        assert_eq!(bytes[8..16], [9, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!((bytes[16], &bytes[17..]), (0x0f, &[0; 15][..]));
        assert_eq!(ana_log_bytes(2, 3), 16 + 2 * 32 + 3 * 4);
        assert_eq!(ana_log_bytes(u32::MAX, u32::MAX), 16 + 36 * u64::from(u32::MAX));
    }

    #[test]
    fn states_have_the_codes_and_statuses_of_the_specification() {
        let refusals = [None, None, Some(0x302), Some(0x301), Some(0x303)];
        for (state, (code, refusal)) in
            AnaState::ALL.into_iter().zip([1, 2, 3, 4, 0xf].into_iter().zip(refusals))
        {
            assert_eq!(state as u8, code);
            assert_eq!(AnaState::from_code(code), Some(state));
            assert_eq!(AnaState::from_code(0xf0 | code), Some(state), "bits 7:4 are reserved");
            assert_eq!(state.refusal().map(Status::code), refusal);
            assert_eq!(state.is_usable(), refusal.is_none());
            assert!(state.refusal().is_none_or(|s| s.is_path_related() && !s.is_dnr()));
            assert_eq!(AnaState::from_name(state.name()), Some(state));
        }
        for reserved in [0, 5, 0xe] {
            assert_eq!(AnaState::from_code(reserved), None);
        }
    }

    #[test]
    fn ana_groups_are_walked_within_bounds() {
        let mut page = [0; 16 + 32 + 8];
        page[8] = 1;
        page[16] = 1;
        page[20] = 2;
        page[32] = AnaState::NonOptimized as u8;
        page[48] = 5;
        page[52] = 9;
        let (group, nsids) = ana_groups(&page).next().unwrap();
        assert_eq!((group.grpid.get(), group.state()), (1, Some(AnaState::NonOptimized)));
        assert!(nsids.iter().map(|n| n.get()).eq([5, 9]));
        assert_eq!(ana_log_end(&page), Some(56));
        assert_eq!(
            ana_log_end(&page[..48]),
            Some(56),
            "the NSIDs of the last group may be missing"
        );
        assert_eq!((ana_log_end(&page[..47]), ana_log_end(&page[..15])), (None, None));
        page[8] = 2;
        assert_eq!(ana_log_end(&page), None, "the second group is not there");
        page[8] = 0;
        assert_eq!(ana_log_end(&page), Some(16));
        page[8] = 1;
        page[20] = 3;
        assert_eq!(ana_groups(&page).count(), 0);
        page[20..24].fill(0xff);
        assert_eq!(ana_groups(&page).count(), 0);
        assert_eq!(ana_groups(&page[..10]).count(), 0);
    }
}
