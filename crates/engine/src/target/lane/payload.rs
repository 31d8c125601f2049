//! Where a command's data is when the command has come.

use crate::buffer::Buffer;

/// Data from the host, if the command has any.
#[derive(Debug)]
pub(super) enum Payload {
    /// With the host, until it is asked for.
    Asked,
    /// Behind the command in its capsule: so many octets.
    Follows(u32),
    /// Here, where the host has placed it.
    Here(Buffer),
}

impl Payload {
    /// Octets that came, or come, along with the command.
    pub(super) fn bytes(&self) -> u32 {
        match self {
            Payload::Asked => 0,
            Payload::Follows(bytes) => *bytes,
            Payload::Here(buffer) => buffer.len() as u32,
        }
    }
}
