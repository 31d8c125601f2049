//! In-band authentication: the messages of DH-HMAC-CHAP (NVMe Base 2.1, section 8.3.4), carried by Authentication
//! Send and Receive.
//!
//! A message has a head of a fixed size, and values behind it with lengths from the head.

use crate::fabrics::AuthenticationFields;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Security protocol of NVMe's authentication (SECP).
pub const SECP_NVME: u8 = 0xe9;
/// Security protocol specific: SPSP0 and SPSP1 are 01h.
pub const SPSP_NVME: u16 = 0x0101;
/// Bytes of the buffer with which hosts receive a message.
pub const RECEIVE_BYTES: u32 = 4096;

/// Values of SC_C: the channel that the authentication secures.
pub mod secure_channel {
    /// No channel.
    pub const NONE: u8 = 0;
    /// Connections over TCP, by TLS with a PSK that the authentication generates.
    pub const NEW_TLS_PSK: u8 = 2;
    /// Connections over TCP, with a new PSK in place of the one that secures this connection.
    pub const REPLACE_TLS_PSK: u8 = 3;
    /// The frames of a lane over Ethernet (docs/reference/ethernet.md): a vendor-specific value.
    pub const FRAMES: u8 = 0xf0;
}

/// Types of messages (AUTH_TYPE and AUTH_ID).
pub mod message {
    /// Host: protocols, hashes and groups that it supports.
    pub const NEGOTIATE: [u8; 2] = [0x00, 0x00];
    /// Controller: its challenge.
    pub const CHALLENGE: [u8; 2] = [0x01, 0x01];
    /// Host: its response, and perhaps its challenge.
    pub const REPLY: [u8; 2] = [0x01, 0x02];
    /// Controller: the host is authenticated; perhaps the response to its challenge.
    pub const SUCCESS1: [u8; 2] = [0x01, 0x03];
    /// Host: the controller is authenticated.
    pub const SUCCESS2: [u8; 2] = [0x01, 0x04];
    /// Host: the authentication has failed.
    pub const FAILURE2: [u8; 2] = [0x00, 0xf0];
    /// Controller: the authentication has failed.
    pub const FAILURE1: [u8; 2] = [0x00, 0xf1];
}

/// Reason why an authentication has failed (reason code explanation).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Explanation {
    /// A response was wrong.
    Failed = 1,
    /// No protocol in common.
    Protocol = 2,
    /// One end requires a secure channel, and the other does not support it.
    SecureChannel = 3,
    /// No hash in common.
    Hash = 4,
    /// No group in common.
    Group = 5,
    /// An invalid message.
    Payload = 6,
    /// A message out of turn.
    Message = 7,
}

impl Explanation {
    /// Returns the explanation with that number.
    #[must_use]
    pub fn from_byte(byte: u8) -> Option<Self> {
        use Explanation::*;
        const ALL: [Explanation; 7] =
            [Failed, Protocol, SecureChannel, Hash, Group, Payload, Message];
        ALL.into_iter().find(|&explanation| explanation as u8 == byte)
    }

    /// Returns the explanation in words.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Explanation::Failed => "authentication failed",
            Explanation::Protocol => "no authentication protocol in common",
            Explanation::SecureChannel => "one side wants a secure channel and the other does not",
            Explanation::Hash => "no hash in common",
            Explanation::Group => "no Diffie-Hellman group in common",
            Explanation::Payload => "a message that makes no sense",
            Explanation::Message => "a message out of turn",
        }
    }
}

/// Head of every message.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct MessageHead {
    /// One of [`message`].
    pub kind: [u8; 2],
    pub reserved: [u8; 2],
    /// Transaction, chosen by the host.
    pub t_id: U16,
}

/// Negotiate, 72 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Negotiate {
    pub head: MessageHead,
    /// Requested secure channel: one of [`secure_channel`].
    pub sc_c: u8,
    /// Protocol descriptors, 1.
    pub napd: u8,
    /// Protocol: 1 is DH-HMAC-CHAP.
    pub auth_id: u8,
    pub reserved: u8,
    /// Hashes that follow.
    pub halen: u8,
    /// Groups that follow.
    pub dhlen: u8,
    pub hashes: [u8; 30],
    pub groups: [u8; 30],
}

/// Head of a Challenge; the challenge (HL bytes) and the public value follow.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ChallengeHead {
    pub head: MessageHead,
    /// Bytes of the hash.
    pub hl: u8,
    pub reserved: u8,
    pub hash: u8,
    pub group: u8,
    /// Bytes of the public value.
    pub dhvlen: U16,
    /// Sequence number.
    pub seqnum: U32,
}

/// Head of a Reply; the response and the challenge (HL bytes each) and the public value follow.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ReplyHead {
    pub head: MessageHead,
    /// Bytes of the hash.
    pub hl: u8,
    pub reserved: u8,
    /// 1: the challenge is valid.
    pub cvalid: u8,
    pub reserved2: u8,
    /// Bytes of the public value.
    pub dhvlen: U16,
    /// Sequence number.
    pub seqnum: U32,
}

/// Head of a Success1; the response (HL bytes) follows, zeroes if it is not valid.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Success1 {
    pub head: MessageHead,
    /// Bytes of the hash.
    pub hl: u8,
    pub reserved: u8,
    /// 1: the response is valid.
    pub rvalid: u8,
    pub reserved2: [u8; 7],
}

/// Success2.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Success2 {
    pub head: MessageHead,
    pub reserved: [u8; 10],
}

/// Failure1 and Failure2.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct AuthFailure {
    pub head: MessageHead,
    /// Reason code, 1.
    pub code: u8,
    /// An [`Explanation`].
    pub explanation: u8,
}

const _: () = {
    assert!(size_of::<MessageHead>() == 6);
    assert!(size_of::<Negotiate>() == 72);
    assert!(size_of::<ChallengeHead>() == 16);
    assert!(size_of::<ReplyHead>() == 16);
    assert!(size_of::<Success1>() == 16);
    assert!(size_of::<Success2>() == 16);
    assert!(size_of::<AuthFailure>() == 8);
};

impl MessageHead {
    /// A head of a message of that kind.
    #[must_use]
    pub fn new(kind: [u8; 2], t_id: u16) -> Self {
        MessageHead { kind, reserved: [0; 2], t_id: t_id.into() }
    }

    /// Returns the head of a message; `None` if the message is too short.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Option<Self> {
        MessageHead::read_from_prefix(bytes).ok().map(|(head, _)| head)
    }
}

impl AuthenticationFields {
    /// Fields of a command that sends or receives a message of NVMe's authentication.
    #[must_use]
    pub fn of_nvme(length: u32) -> Self {
        AuthenticationFields { spsp: SPSP_NVME, secp: SECP_NVME, length }
    }

    /// True if the command carries NVMe's authentication.
    #[must_use]
    pub fn is_nvme(&self) -> bool {
        (self.spsp, self.secp) == (SPSP_NVME, SECP_NVME)
    }
}
