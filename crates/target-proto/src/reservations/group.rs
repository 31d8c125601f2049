//! Groups of commands that a reservation treats alike.

/// Commands that a reservation treats alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// What looks at contents: Read, Compare, Verify.
    Read,
    /// What changes contents, or brings them to stable storage.
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
