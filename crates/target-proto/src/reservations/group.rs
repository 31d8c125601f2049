//! Groups of commands with the same access rule in reservations.

/// Commands with the same access rule in reservations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandGroup {
    /// Commands that read contents: Read, Compare, Verify.
    Read,
    /// Commands that change contents, or force them to stable storage.
    Write,
}

impl CommandGroup {
    pub(super) fn bit(self) -> u8 {
        match self {
            CommandGroup::Read => 1,
            CommandGroup::Write => 2,
        }
    }
}
