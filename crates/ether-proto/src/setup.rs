//! A host's inquiries about a lane that arrive outside of the lane, and the target's replies.

use roadtrain_proto::seal::proves;
use roadtrain_proto::security::PROOF_BYTES;
use roadtrain_wire::ether::setup::{LeaveBody, LeaveReason, QueryBody, endpoint_tag, with_nqn};
use roadtrain_wire::ether::{FrameHeader, FrameType, VERSION};
use roadtrain_wire::zerocopy::{FromBytes, IntoBytes};

/// Builds a query for a lane: header without LINK, REPLY and BODY, and body.
pub(super) fn query(peer_token: u64, token: u64, nqn: &str) -> (FrameHeader, Vec<u8>) {
    let query = QueryBody {
        token: peer_token.into(),
        host_token: token.into(),
        nqn_length: (nqn.len() as u16).into(),
        reserved: [0; 6],
    };
    let (kind, token) = (FrameType::Query as u8, query.token);
    let header = FrameHeader { kind, token, ..FrameHeader::default() };
    (header, [query.as_bytes(), nqn.as_bytes()].concat())
}

/// An inquiry of a host at a socket that belongs to no lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inquiry {
    /// Tokens of the lane: the target's and the host's.
    pub token: u64,
    pub host_token: u64,
    /// True for a Leave: the host ends the lane.
    pub is_leave: bool,
    /// Proof in the Leave.
    pub proof: Option<[u8; PROOF_BYTES]>,
}

/// The target's reaction to an inquiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InquiryVerdict {
    /// The target replies that it does not know the lane: [`Inquiry::deny`].
    Deny,
    /// The lane ends, whatever address the Leave came from. A repeated Leave is denied.
    End,
    /// The lane itself acknowledges to the host that it is known.
    Acknowledge,
    /// The inquiry is not from the lane's host.
    Ignore,
}

impl Inquiry {
    /// Reads an inquiry, and its subsystem; a Leave names none. Returns `None` if the frame is invalid.
    #[must_use]
    pub fn read<'a>(
        header: &FrameHeader,
        kind: FrameType,
        body: &'a [u8],
    ) -> Option<(Inquiry, Option<&'a str>)> {
        if kind == FrameType::Leave {
            let (leave, rest) = LeaveBody::ref_from_prefix(body).ok()?;
            let proof = rest.first_chunk().copied();
            let (token, host_token) = (header.token.get(), leave.token.get());
            return Some((Inquiry { token, host_token, is_leave: true, proof }, None));
        }
        let (query, nqn) = with_nqn(body, |query: &QueryBody| query.nqn_length.get())?;
        let (token, host_token) = (query.token.get(), query.host_token.get());
        Some((Inquiry { token, host_token, is_leave: false, proof: None }, Some(nqn)))
    }

    /// Returns the reaction to an inquiry. `known` is the live lane with the target's token, if any: its host's
    /// token, and the proof with which the host ends it, if it is sealed.
    #[must_use]
    pub fn verdict(&self, known: Option<(u64, Option<[u8; PROOF_BYTES]>)>) -> InquiryVerdict {
        match known {
            None => InquiryVerdict::Deny,
            Some((host_token, _)) if host_token != self.host_token => InquiryVerdict::Ignore,
            Some((_, Some(proof)))
                if self.is_leave && !self.proof.is_some_and(|shown| proves(&shown, &proof)) =>
            {
                InquiryVerdict::Ignore
            }
            Some(_) if self.is_leave => InquiryVerdict::End,
            Some(_) => InquiryVerdict::Acknowledge,
        }
    }

    /// Returns the reply of the target `endpoint` that it takes no frame of that lane: header without BODY, and body.
    #[must_use]
    pub fn deny(&self, request: &FrameHeader, endpoint: &[u8; 16]) -> (FrameHeader, LeaveBody) {
        let reason = (LeaveReason::UnknownToken as u16).into();
        let endpoint = endpoint_tag(endpoint);
        let leave = LeaveBody { token: self.token.into(), reason, endpoint };
        (answer(FrameType::Leave, request, self.host_token), leave)
    }
}

/// Returns the header, without BODY, of a reply to the frame with header `request`.
#[must_use]
pub fn answer(kind: FrameType, request: &FrameHeader, token: u64) -> FrameHeader {
    FrameHeader {
        version: VERSION,
        kind: kind as u8,
        token: token.into(),
        socket_number: request.reply,
        link: request.link,
        ..FrameHeader::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_is_named_by_both_tokens() {
        let (header, body) = query(0x20, 0x10, "nqn.x:y");
        let (request, nqn) = Inquiry::read(&header, FrameType::Query, &body).unwrap();
        assert_eq!(nqn, Some("nqn.x:y"));
        assert_eq!(
            request,
            Inquiry { token: 0x20, host_token: 0x10, is_leave: false, proof: None }
        );
        assert_eq!(Inquiry::read(&header, FrameType::Query, &body[..body.len() - 1]), None);
        let leave = LeaveBody { token: 0x10.into(), reason: 2.into(), endpoint: [0; 6] };
        let (leaves, _) = Inquiry::read(&header, FrameType::Leave, leave.as_bytes()).unwrap();
        assert_eq!(leaves, Inquiry { is_leave: true, ..request });
        assert_eq!(Inquiry::read(&header, FrameType::Leave, &leave.as_bytes()[..15]), None);
    }

    #[test]
    fn only_its_host_may_inquire_about_a_lane() {
        let query = Inquiry { token: 0x20, host_token: 0x10, is_leave: false, proof: None };
        let leave = Inquiry { is_leave: true, ..query };
        for (inquiry, known, verdict) in [
            (query, None, InquiryVerdict::Deny),
            (leave, None, InquiryVerdict::Deny),
            (query, Some(0x10), InquiryVerdict::Acknowledge),
            (leave, Some(0x10), InquiryVerdict::End),
            (query, Some(0x11), InquiryVerdict::Ignore),
            (leave, Some(0x11), InquiryVerdict::Ignore),
        ] {
            assert_eq!(
                inquiry.verdict(known.map(|token| (token, None))),
                verdict,
                "{inquiry:?} {known:?}"
            );
        }
    }

    #[test]
    fn only_a_proof_ends_a_sealed_lane() {
        let query = Inquiry { token: 0x20, host_token: 0x10, is_leave: false, proof: None };
        let leave = |proof| Inquiry { is_leave: true, proof, ..query };
        let known = Some((0x10, Some([7; PROOF_BYTES])));
        for (inquiry, verdict) in [
            (query, InquiryVerdict::Acknowledge),
            (leave(None), InquiryVerdict::Ignore),
            (leave(Some([6; PROOF_BYTES])), InquiryVerdict::Ignore),
            (leave(Some([7; PROOF_BYTES])), InquiryVerdict::End),
        ] {
            assert_eq!(inquiry.verdict(known), verdict, "{inquiry:?}");
        }
        let mut body = leave(None).deny(&FrameHeader::default(), &[0; 16]).1.as_bytes().to_vec();
        body.extend([7; PROOF_BYTES]);
        let (read, _) = Inquiry::read(&FrameHeader::default(), FrameType::Leave, &body).unwrap();
        assert_eq!(read.proof, Some([7; PROOF_BYTES]));
    }

    #[test]
    fn a_reply_goes_to_the_socket_of_the_request() {
        let request = FrameHeader { reply: 77.into(), link: 3, ..FrameHeader::default() };
        let inquiry = Inquiry { token: 0x20, host_token: 0x10, is_leave: true, proof: None };
        let (header, leave) = inquiry.deny(&request, &[5; 16]);
        assert_eq!((header.token.get(), header.socket_number.get(), header.link), (0x10, 77, 3));
        assert_eq!((leave.token.get(), leave.reason.get(), leave.endpoint), (0x20, 1, [5; 6]));
    }
}
