//! What both ends of a lane do with a frame.

use roadtrain_wire::ether::FrameType;
use roadtrain_wire::ether::setup::{Leave, Reason};
use roadtrain_wire::zerocopy::FromBytes;

/// The SACK words of a frame.
pub(super) fn ack_body(kind: FrameType, body: &[u8]) -> &[u8] {
    if kind == FrameType::Ack { body } else { &[] }
}

/// Why the peer ends the lane. Only it knows its own token.
pub(super) fn leave_reason(body: &[u8], peer_token: u64) -> Option<Reason> {
    let (leave, _) = Leave::ref_from_prefix(body).ok()?;
    Reason::from_value(leave.reason.get()).filter(|_| leave.token.get() == peer_token)
}
