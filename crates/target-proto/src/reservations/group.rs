//! Groups of commands with the same access rule in reservations.

/// Commands with the same access rule in reservations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Commands that read contents: Read, Compare, Verify.
    Read,
    /// Commands that change contents, or force them to stable storage.
    Write,
}

impl Group {
    pub(super) fn bit(self) -> u8 {
        match self {
            Group::Read => 1,
            Group::Write => 2,
        }
    }
}
