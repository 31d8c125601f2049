//! Socket number 0: answers hosts that discover targets, and passes requests for lanes on. It keeps no state about
//! hosts.

use super::{Bucket, Drop, Drops, JoinRequest, LaneSetupRequest, QueryRequest, ReplyFrame};
use crate::control::TargetControlPlane;
use roadtrain_ether_proto::setup::{Inquiry, answer};
use roadtrain_proto::time::Instant;
use roadtrain_wire::ether::setup::{JoinBody, JoinedBody, OfferBody, with_nqn};
use roadtrain_wire::ether::{
    DATA_RECORD_BYTES, FRAME_HEADER_BYTES, FrameHeader, FrameType, MacAddress,
};
use roadtrain_wire::fabrics::{DISCOVERY_NQN, NQN_BYTES_MAX};
use roadtrain_wire::status::Status;
use roadtrain_wire::zerocopy::{FromZeros, IntoBytes};

/// Most links of a lane.
const LINKS_MAX: u8 = 16;
/// Valid sizes of a piece, in bytes.
const PIECES_BYTES: std::ops::RangeInclusive<u16> = 1024..=32768;

/// A frame received at socket number 0.
pub(crate) struct ReceivedFrame<'a> {
    pub(crate) port: usize,
    /// Size in bytes of the largest frame at the port.
    pub(crate) frame_bytes: usize,
    pub(crate) source: MacAddress,
    pub(crate) header: FrameHeader,
    pub(crate) kind: FrameType,
    pub(crate) body: &'a [u8],
}

/// Rate limits and identity of socket number 0.
pub(crate) struct EtherListener {
    endpoint: [u8; 16],
    offers: Bucket,
    probes: Bucket,
    joins: Bucket,
    queries: Bucket,
}

/// Returns the reply to a Join that is refused, at a port for frames of `frame_bytes`.
pub(crate) fn refusal(request: &JoinRequest, status: Status, frame_bytes: usize) -> ReplyFrame {
    let (status, frame) = (status.code().into(), (frame_bytes as u16).into());
    let joined = JoinedBody { status, frame, ..JoinedBody::new_zeroed() };
    let header = answer(FrameType::Joined, &request.header, request.join.token.get());
    let header = FrameHeader { link: request.join.link, ..header };
    ReplyFrame::new(request.port, request.source, header, joined.as_bytes())
}

impl EtherListener {
    pub(crate) fn new(endpoint: [u8; 16]) -> Self {
        EtherListener {
            endpoint,
            offers: Bucket::new(1024, 2000),
            probes: Bucket::new(256, 2000),
            joins: Bucket::new(1024, 2000),
            queries: Bucket::new(1024, 5000),
        }
    }

    /// Handles a frame for socket number 0. Immediate replies go to `replies`.
    pub(crate) fn receive(
        &mut self,
        now: Instant,
        received: &ReceivedFrame<'_>,
        control: &TargetControlPlane,
        replies: &mut Vec<ReplyFrame>,
        drops: &mut Drops,
    ) -> Option<LaneSetupRequest> {
        let request = match received.kind {
            FrameType::Discover => {
                self.reply_to_discover(now, received, control, replies).map(|()| None)
            }
            FrameType::Probe => self.reply_to_probe(now, received, replies).map(|()| None),
            FrameType::Join => self.handle_join(now, received, control, replies),
            FrameType::Query | FrameType::Leave => {
                self.handle_query(now, received, control).map(Some)
            }
            _ => Err(Drop::Type),
        };
        request.unwrap_or_else(|drop| {
            drops.count(drop);
            None
        })
    }

    fn reply_to_discover(
        &mut self,
        now: Instant,
        received: &ReceivedFrame<'_>,
        control: &TargetControlPlane,
        replies: &mut Vec<ReplyFrame>,
    ) -> Result<(), Drop> {
        let wanted = std::str::from_utf8(received.body).map_err(|_| Drop::Setup)?;
        if wanted.len() > NQN_BYTES_MAX {
            return Err(Drop::Setup);
        }
        for nqn in control.nqns().into_iter().chain([DISCOVERY_NQN.to_owned()]) {
            if !wanted.is_empty() && *nqn != *wanted {
                continue;
            }
            if !self.offers.take(now) {
                return Err(Drop::Rate);
            }
            let offer = OfferBody {
                endpoint: self.endpoint,
                frame: (received.frame_bytes as u16).into(),
                nqn_length: (nqn.len() as u16).into(),
                reserved: 0.into(),
            };
            let header = answer(FrameType::Offer, &received.header, 0);
            let body = [offer.as_bytes(), nqn.as_bytes()].concat();
            replies.push(ReplyFrame::new(received.port, received.source, header, &body));
        }
        Ok(())
    }

    fn reply_to_probe(
        &mut self,
        now: Instant,
        received: &ReceivedFrame<'_>,
        replies: &mut Vec<ReplyFrame>,
    ) -> Result<(), Drop> {
        if !self.probes.take(now) {
            return Err(Drop::Rate);
        }
        let header = answer(FrameType::Probed, &received.header, 0);
        let bytes = (FRAME_HEADER_BYTES + received.body.len()) as u16;
        replies.push(ReplyFrame::new(received.port, received.source, header, &bytes.to_le_bytes()));
        Ok(())
    }

    fn handle_join(
        &mut self,
        now: Instant,
        received: &ReceivedFrame<'_>,
        control: &TargetControlPlane,
        replies: &mut Vec<ReplyFrame>,
    ) -> Result<Option<LaneSetupRequest>, Drop> {
        let &ReceivedFrame { port, source, header, body, .. } = received;
        let (join, nqn) =
            with_nqn(body, |join: &JoinBody| join.nqn_length.get()).ok_or(Drop::Setup)?;
        if join.token.get() == 0 || header.reply.get() == 0 {
            return Err(Drop::Setup);
        }
        if !self.joins.take(now) {
            return Err(Drop::Rate);
        }
        if join.endpoint != self.endpoint || !control.serves(nqn) {
            return Err(Drop::Setup); // perhaps for another target at the same port
        }
        let request = JoinRequest { port, source, header, join: *join, nqn: nqn.into() };
        if is_valid_join(join, received.frame_bytes) {
            return Ok(Some(LaneSetupRequest::Join(Box::new(request))));
        }
        replies.push(refusal(&request, Status::INVALID_FIELD, received.frame_bytes));
        Err(Drop::Setup)
    }

    /// Handles a Query or Leave for a lane that may be gone, or whose socket number the host does not know.
    fn handle_query(
        &mut self,
        now: Instant,
        received: &ReceivedFrame<'_>,
        control: &TargetControlPlane,
    ) -> Result<LaneSetupRequest, Drop> {
        let &ReceivedFrame { port, source, header, kind, body, .. } = received;
        let (inquiry, nqn) = Inquiry::read(&header, kind, body).ok_or(Drop::Setup)?;
        if !self.queries.take(now) {
            return Err(Drop::Rate);
        }
        match nqn {
            Some(nqn) if !control.serves(nqn) => Err(Drop::Setup), // for another target
            _ => Ok(LaneSetupRequest::Query(QueryRequest { port, source, header, inquiry })),
        }
    }
}

/// True if the lane parameters of a Join are valid at a port for frames of `frame_bytes`.
fn is_valid_join(join: &JoinBody, frame_bytes: usize) -> bool {
    let piece = join.piece.get();
    let frame = usize::from(join.frame.get()).min(frame_bytes);
    (1..=LINKS_MAX).contains(&join.links)
        && join.link < join.links
        && join.slots.get() > 0
        && PIECES_BYTES.contains(&piece)
        && piece.is_multiple_of(8)
        && FRAME_HEADER_BYTES + DATA_RECORD_BYTES + usize::from(piece) <= frame
}
