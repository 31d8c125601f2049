//! The NBD protocol (Network Block Device, "doc/proto.md" of its reference project).
//!
//! All fields on the wire are big-endian. Formats come as values with `parse` (checked, never panics) and `emit` or
//! `as_bytes`. Codes are newtypes over the integer on the wire, so that an unknown code can be named, replied to and
//! logged.
//!
//! | part | file |
//! |---|---|
//! | magics, flags, codes | `code` |
//! | greeting, options, option replies | `handshake` |
//! | requests, simple replies, structured chunks | `transmission` |

mod code;
mod handshake;
mod transmission;

pub use code::*;
pub use handshake::*;
pub use transmission::*;

/// Reason why bytes are not the expected NBD format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NbdError {
    /// Fewer bytes than the format has; more may still arrive.
    Truncated,
    /// The magic number is wrong.
    Magic {
        /// Received magic number, zero-extended.
        found: u64,
    },
    /// An inner length contradicts the outer one.
    Length,
    /// A string is not UTF-8, holds a NUL or is longer than [`STRING_BYTES_MAX`].
    String,
}

impl core::fmt::Display for NbdError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            NbdError::Truncated => f.write_str("truncated"),
            NbdError::Magic { found } => write!(f, "wrong magic {found:#x}"),
            NbdError::Length => f.write_str("inner length contradicts the outer one"),
            NbdError::String => f.write_str("not a valid string"),
        }
    }
}

impl core::error::Error for NbdError {}
