//! Where a command's data is when the command has come.

use crate::buffer::Buffer;

/// Data from the host, if the command has any.
#[derive(Debug)]
pub(super) enum Payload<'a> {
    /// With the host, until it is asked for.
    Asked,
    /// Behind the command in its capsule: so many octets.
    Follows(u32),
    /// Here, where the host has placed it.
    Here(Buffer),
    /// All of it in the frame that brought the command; it belongs to the host's pages from octet `place` on.
    InFrame { octets: &'a [u8], place: u64 },
}

impl Payload<'_> {
    /// What of it outlives the frame that brought it.
    pub(super) fn without_frame(self) -> Payload<'static> {
        match self {
            Payload::Follows(bytes) => Payload::Follows(bytes),
            Payload::Here(buffer) => Payload::Here(buffer),
            Payload::Asked | Payload::InFrame { .. } => Payload::Asked,
        }
    }

    /// Octets that came, or come, along with the command.
    pub(super) fn bytes(&self) -> u32 {
        match self {
            Payload::Asked => 0,
            Payload::Follows(bytes) => *bytes,
            Payload::Here(buffer) => buffer.len() as u32,
            Payload::InFrame { octets, .. } => octets.len() as u32,
        }
    }
}
