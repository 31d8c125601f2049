//! A second parser for the messages of an authentication.

use roadtrain_wire::auth::{ChallengeHead, MessageHead, ReplyHead, Success1};
use roadtrain_wire::zerocopy::FromBytes;

/// Returns the kind of a message.
pub(super) fn kind_of(bytes: &[u8]) -> [u8; 2] {
    MessageHead::of(bytes).expect("a message has a head").kind
}

/// A challenge to the host; its response covers all fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HostChallenge {
    t_id: u16,
    hash: u8,
    group: u8,
    seqnum: u32,
    challenge: Vec<u8>,
    pub(super) public: Vec<u8>,
}

impl HostChallenge {
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        let (m, rest) = ChallengeHead::ref_from_prefix(bytes).ok()?;
        let (challenge, rest) = rest.split_at_checked(m.hl.into())?;
        Some(HostChallenge {
            t_id: m.head.t_id.get(),
            hash: m.hash,
            group: m.group,
            seqnum: m.seqnum.get(),
            challenge: challenge.to_vec(),
            public: rest.get(..m.dhvlen.get().into())?.to_vec(),
        })
    }
}

/// Returns the bytes of a challenge.
pub(super) fn challenge_bytes(bytes: &[u8]) -> usize {
    let (m, _) = ChallengeHead::ref_from_prefix(bytes).expect("it was read");
    size_of::<ChallengeHead>() + usize::from(m.hl) + usize::from(m.dhvlen.get())
}

/// Returns the bytes of a reply.
pub(super) fn reply_bytes(bytes: &[u8]) -> usize {
    let (m, _) = ReplyHead::ref_from_prefix(bytes).expect("it was read");
    size_of::<ReplyHead>() + 2 * usize::from(m.hl) + usize::from(m.dhvlen.get())
}

/// A reply of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HostReply {
    t_id: u16,
    response: Vec<u8>,
    pub(super) public: Vec<u8>,
    /// CVALID, S2 and C2: the challenge to the controller.
    controller_challenge: (u8, u32, Vec<u8>),
}

impl HostReply {
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        let (m, rest) = ReplyHead::ref_from_prefix(bytes).ok()?;
        let (response, rest) = rest.split_at_checked(m.hl.into())?;
        let (challenge, rest) = rest.split_at_checked(m.hl.into())?;
        Some(HostReply {
            t_id: m.head.t_id.get(),
            response: response.to_vec(),
            public: rest.get(..m.dhvlen.get().into())?.to_vec(),
            controller_challenge: (m.cvalid, m.seqnum.get(), challenge.to_vec()),
        })
    }

    /// True if both replies prove the same.
    pub(super) fn proves_as(&self, other: &Self) -> bool {
        (self.t_id, &self.response, &self.public) == (other.t_id, &other.response, &other.public)
    }

    /// True if both replies challenge the controller alike.
    pub(super) fn challenges_alike(&self, other: &Self) -> bool {
        (self.t_id, &self.public, &self.controller_challenge)
            == (other.t_id, &other.public, &other.controller_challenge)
    }
}

/// True if both Success1 have the same response.
pub(super) fn is_response(received: &[u8], sent: &[u8]) -> bool {
    let response = |bytes: &[u8]| {
        let (m, rest) = Success1::ref_from_prefix(bytes).ok()?;
        Some((m.head.t_id.get(), rest.get(..m.hl.into())?.to_vec()))
    };
    response(received).is_some_and(|received| response(sent) == Some(received))
}
