//! Socket number 0: answers hosts that discover targets, and passes requests for lanes on. It keeps no state about
//! hosts.

use super::{Bucket, Drop, Drops, JoinRequest, QueryRequest, Reply, Request};
use crate::control::Control;
use roadtrain_ether_proto::setup::{Inquiry, answer};
use roadtrain_proto::time::Instant;
use roadtrain_wire::ether::setup::{Join, Joined, Offer, with_nqn};
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
pub(crate) struct Heard<'a> {
    pub(crate) port: usize,
    /// Size in bytes of the largest frame at the port.
    pub(crate) frame_bytes: usize,
    pub(crate) source: MacAddress,
    pub(crate) header: FrameHeader,
    pub(crate) kind: FrameType,
    pub(crate) body: &'a [u8],
}

/// Rate limits and identity of socket number 0.
pub(crate) struct Listener {
    endpoint: [u8; 16],
    offers: Bucket,
    probes: Bucket,
    joins: Bucket,
    queries: Bucket,
}

/// Returns the reply to a Join that is refused, at a port for frames of `frame_bytes`.
pub(crate) fn refusal(request: &JoinRequest, status: Status, frame_bytes: usize) -> Reply {
    let (status, frame) = (status.code().into(), (frame_bytes as u16).into());
    let joined = Joined { status, frame, ..Joined::new_zeroed() };
    let header = answer(FrameType::Joined, &request.header, request.join.token.get());
    let header = FrameHeader { link: request.join.link, ..header };
    Reply::new(request.port, request.source, header, joined.as_bytes())
}

impl Listener {
    pub(crate) fn new(endpoint: [u8; 16]) -> Self {
        Listener {
            endpoint,
            offers: Bucket::new(1024, 2000),
            probes: Bucket::new(256, 2000),
            joins: Bucket::new(1024, 2000),
            queries: Bucket::new(1024, 5000),
        }
    }

    /// Handles a frame for socket number 0. Immediate replies go to `replies`.
    pub(crate) fn hear(
        &mut self,
        now: Instant,
        heard: &Heard<'_>,
        control: &Control,
        replies: &mut Vec<Reply>,
        drops: &mut Drops,
    ) -> Option<Request> {
        let request = match heard.kind {
            FrameType::Discover => self.offer(now, heard, control, replies).map(|()| None),
            FrameType::Probe => self.probed(now, heard, replies).map(|()| None),
            FrameType::Join => self.join(now, heard, control, replies),
            FrameType::Query | FrameType::Leave => self.query(now, heard, control).map(Some),
            _ => Err(Drop::Type),
        };
        request.unwrap_or_else(|drop| {
            drops.count(drop);
            None
        })
    }

    fn offer(
        &mut self,
        now: Instant,
        heard: &Heard<'_>,
        control: &Control,
        replies: &mut Vec<Reply>,
    ) -> Result<(), Drop> {
        let wanted = std::str::from_utf8(heard.body).map_err(|_| Drop::Setup)?;
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
            let offer = Offer {
                endpoint: self.endpoint,
                frame: (heard.frame_bytes as u16).into(),
                nqn_length: (nqn.len() as u16).into(),
                reserved: 0.into(),
            };
            let header = answer(FrameType::Offer, &heard.header, 0);
            let body = [offer.as_bytes(), nqn.as_bytes()].concat();
            replies.push(Reply::new(heard.port, heard.source, header, &body));
        }
        Ok(())
    }

    fn probed(
        &mut self,
        now: Instant,
        heard: &Heard<'_>,
        replies: &mut Vec<Reply>,
    ) -> Result<(), Drop> {
        if !self.probes.take(now) {
            return Err(Drop::Rate);
        }
        let header = answer(FrameType::Probed, &heard.header, 0);
        let octets = (FRAME_HEADER_BYTES + heard.body.len()) as u16;
        replies.push(Reply::new(heard.port, heard.source, header, &octets.to_le_bytes()));
        Ok(())
    }

    fn join(
        &mut self,
        now: Instant,
        heard: &Heard<'_>,
        control: &Control,
        replies: &mut Vec<Reply>,
    ) -> Result<Option<Request>, Drop> {
        let &Heard { port, source, header, body, .. } = heard;
        let (join, nqn) = with_nqn(body, |join: &Join| join.nqn_length.get()).ok_or(Drop::Setup)?;
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
        if is_sound(join, heard.frame_bytes) {
            return Ok(Some(Request::Join(Box::new(request))));
        }
        replies.push(refusal(&request, Status::INVALID_FIELD, heard.frame_bytes));
        Err(Drop::Setup)
    }

    /// Handles a Query or Leave for a lane that may be gone, or whose socket number the host does not know.
    fn query(
        &mut self,
        now: Instant,
        heard: &Heard<'_>,
        control: &Control,
    ) -> Result<Request, Drop> {
        let &Heard { port, source, header, kind, body, .. } = heard;
        let (inquiry, nqn) = Inquiry::read(&header, kind, body).ok_or(Drop::Setup)?;
        if !self.queries.take(now) {
            return Err(Drop::Rate);
        }
        match nqn {
            Some(nqn) if !control.serves(nqn) => Err(Drop::Setup), // for another target
            _ => Ok(Request::Query(QueryRequest { port, source, header, inquiry })),
        }
    }
}

/// True if the lane parameters of a Join are valid at a port for frames of `frame_bytes`.
fn is_sound(join: &Join, frame_bytes: usize) -> bool {
    let piece = join.piece.get();
    let frame = usize::from(join.frame.get()).min(frame_bytes);
    (1..=LINKS_MAX).contains(&join.links)
        && join.link < join.links
        && join.slots.get() > 0
        && PIECES_BYTES.contains(&piece)
        && piece.is_multiple_of(8)
        && FRAME_HEADER_BYTES + DATA_RECORD_BYTES + usize::from(piece) <= frame
}
