//! Setup of a lane: Join over every link.

use super::lane::{HostEtherLane, LaneParts};
use super::late::{LateJoins, put_join};
use super::ports::{HostFrame, Ports};
use super::query::{EtherQuery, run_query};
use super::route::{FRAME_MIN, HEADS_BYTES, LinkPath, Linked, PIECE_MIN};
use crate::link::LinkError;
use roadtrain_ether_proto::Packing;
use roadtrain_ether_proto::fence::LaneRoute;
use roadtrain_ether_proto::host_queue::{EtherHostConfig, EtherHostQpair};
use roadtrain_ether_proto::links::{LINKS_MAX, LaneLinks};
use roadtrain_ether_proto::liveness::Liveness;
use roadtrain_ether_proto::query_timer::QueryIntervals;
use roadtrain_proto::policy::PolicyConfig;
use roadtrain_system::clock;
use roadtrain_system::random;
use roadtrain_wire::ether::setup::{JoinBody, JoinedBody, addresses, join_flags};
use roadtrain_wire::ether::{FrameType, MacAddress};
use roadtrain_wire::status::Status;
use roadtrain_wire::zerocopy::FromBytes;
use std::sync::Arc;
use std::time::Duration;

/// Pace of the Joins of a link.
const PACE: QueryIntervals = QueryIntervals {
    first: Duration::from_millis(50),
    longest: Duration::from_secs(1),
    total: Duration::from_millis(1500),
};
/// Minimum size of frames that carry two pages with their headers, in bytes.
const JUMBO_BYTES: u16 = 8400;
/// Bytes of a piece, if frames are large enough.
const PIECE_BYTES: u16 = 4096;
/// Minimum and maximum entries of a queue.
const ENTRIES: std::ops::RangeInclusive<u16> = 2..=1024;

/// Parameters of a new lane.
#[derive(Clone, Debug)]
pub(crate) struct Joining {
    /// Endpoint of the target.
    pub(crate) endpoint: [u8; 16],
    pub(crate) nqn: Arc<str>,
    /// Number of the lane over all reactors: the low bits of its token.
    pub(crate) number: u16,
    /// Entries of its queue.
    pub(crate) entries: u16,
    /// Maximum bytes of a request's data.
    pub(crate) data_bytes_max: u32,
    pub(crate) packing: Packing,
    /// True if both sides check the CRC of bodies.
    pub(crate) body_crc: bool,
    /// Silence of the target after which the lane ends.
    pub(crate) silence_max: Duration,
}

struct JoinQuery<'a> {
    route: LaneRoute,
    /// The target's token of the lane, once there is one.
    peer_token: u64,
    join: JoinBody,
    nqn: &'a str,
    answer: Option<JoinReply>,
}

/// Reply of a target to a Join.
struct JoinReply {
    joined: JoinedBody,
    socket_number: u16,
    /// Addresses of the target.
    addresses: Vec<MacAddress>,
}

impl EtherQuery for JoinQuery<'_> {
    fn put(&mut self, ports: &mut Ports) {
        put_join(ports, self.route, &self.join, self.peer_token, self.nqn);
    }

    fn receive(&mut self, received: &HostFrame<'_>) {
        let is_answer = received.kind == FrameType::Joined
            && received.header.token == self.join.token
            && received.header.link == self.join.link
            && (LaneRoute { port: received.port, peer: received.source }) == self.route;
        if let Ok((joined, rest)) = JoinedBody::read_from_prefix(received.body)
            && is_answer
        {
            let (socket_number, addresses) =
                (received.header.reply.get(), addresses(rest).collect());
            self.answer.get_or_insert(JoinReply { joined, socket_number, addresses });
        }
    }

    fn is_answered(&self) -> bool {
        self.answer.is_some()
    }
}

/// Result of the Joins of a lane.
struct Made {
    /// First reply.
    joined: JoinedBody,
    /// Addresses of the target.
    addresses: Vec<MacAddress>,
    linked: Vec<Linked>,
    /// Joins of the links.
    joins: Vec<JoinBody>,
    /// Joins without a reply.
    unanswered: Vec<(LaneRoute, JoinBody)>,
}

impl Made {
    fn new(joined: JoinedBody, addresses: Vec<MacAddress>) -> Self {
        let (linked, joins, unanswered) = (Vec::new(), Vec::new(), Vec::new());
        Made { joined, addresses, linked, joins, unanswered }
    }
}

/// Makes a lane over `paths`. Links whose target does not reply may join it later, and so may others.
///
/// # Errors
/// No link gets a reply, or the target refuses.
pub(crate) fn join(
    ports: &mut Ports,
    paths: &[LinkPath],
    wanted: &Joining,
) -> Result<HostEtherLane, LinkError> {
    let paths = roomy(paths);
    for first in 0..paths.len() {
        // The first link with a reply makes the lane, the others join it.
        let (silent, others) = paths.split_at(first);
        let common = common(&paths, wanted)?;
        if let Some(made) = join_over(ports, others, &common, wanted)? {
            let mut lane = lane(ports, &common, made, wanted);
            let now = clock::now();
            let addresses = lane.addresses().to_vec();
            let known = silent.iter().filter(|path| addresses.contains(&path.route.peer));
            known.for_each(|path| lane.offer(now, &wanted.endpoint, *path, &addresses));
            return Ok(lane);
        }
    }
    Err(LinkError::NoTarget)
}

/// Returns paths with room for a piece: the smallest path determines the size of pieces, down to the minimum. If there
/// is none the target refuses.
fn roomy(paths: &[LinkPath]) -> Vec<LinkPath> {
    let (roomy, others): (Vec<LinkPath>, Vec<LinkPath>) =
        paths.iter().partition(|path| path.frame_bytes >= FRAME_MIN);
    if roomy.is_empty() { others } else { roomy }
}

/// Creates the common part of all Joins of a lane.
fn common(paths: &[LinkPath], wanted: &Joining) -> Result<JoinBody, LinkError> {
    let token = random::number()? & !0xffff | u64::from(wanted.number);
    let frame_min = paths.iter().map(|path| path.frame_bytes).min().unwrap_or(0);
    Ok(JoinBody {
        token: token.into(),
        piece: piece_bytes(frame_min).into(),
        links: LINKS_MAX as u8,
        slots: wanted.entries.into(),
        flags: if wanted.body_crc { join_flags::CRC } else { 0 }.into(),
        nqn_length: (wanted.nqn.len() as u16).into(),
        endpoint: wanted.endpoint,
        first: 0.into(),
        frame: 0.into(),
        link: 0,
    })
}

/// Joins over `paths`. `None`: the first link gets no reply.
fn join_over(
    ports: &mut Ports,
    paths: &[LinkPath],
    common: &JoinBody,
    wanted: &Joining,
) -> Result<Option<Made>, LinkError> {
    let mut made: Option<Made> = None;
    let mut numbers = 0..common.links;
    for &LinkPath { route, frame_bytes } in paths {
        // The target of the first link reports which addresses may have others: an Offer alone proves nothing.
        if made.as_ref().is_some_and(|made| !made.addresses.contains(&route.peer)) {
            continue;
        }
        let Some(link) = numbers.next() else { break };
        let first = (random::number()? as u32).into();
        let join = JoinBody { first, frame: frame_bytes.into(), link, ..*common };
        let peer_token = made.as_ref().map_or(0, |made| made.joined.token.get());
        let mut question = JoinQuery { route, peer_token, join, nqn: &wanted.nqn, answer: None };
        run_query(ports, PACE, &mut question)?;
        match (question.answer, &mut made) {
            (Some(JoinReply { joined, socket_number, addresses }), made) => {
                check(&joined, &join, wanted)?;
                let made = made.get_or_insert_with(|| Made::new(joined, addresses));
                if joined.token == made.joined.token {
                    made.linked.push(Linked::new(route, &join, &joined, socket_number));
                    made.joins.push(join);
                }
            }
            (None, Some(made)) => made.unanswered.push((route, join)),
            (None, None) => return Ok(None),
        }
    }
    Ok(made)
}

fn check(joined: &JoinedBody, join: &JoinBody, wanted: &Joining) -> Result<(), LinkError> {
    let status = joined.status.get();
    if status != 0 {
        return Err(LinkError::Refused(Status::new((status >> 8) as u8, status as u8)));
    }
    let slots = joined.slots.get().min(wanted.entries);
    if !ENTRIES.contains(&slots) || joined.pages.get() == 0 || joined.token.get() == 0 {
        return Err(LinkError::Nonsense("Joined with a lane that cannot be"));
    }
    // A valid target refuses such pieces; an invalid one may not.
    if join.piece.get() < PIECE_MIN {
        return Err(LinkError::Nonsense("Joined with pieces that are too small"));
    }
    Ok(())
}

/// Creates the lane; unused LINKs are free for later links.
fn lane(ports: &Ports, common: &JoinBody, made: Made, wanted: &Joining) -> HostEtherLane {
    let Made { joined, addresses, linked, joins, unanswered } = made;
    let config = EtherHostConfig {
        queue_entries: joined.slots.get().min(wanted.entries),
        pages: joined.pages.get(),
        piece_bytes: common.piece.get(),
        data_bytes_max: wanted.data_bytes_max,
        policy: PolicyConfig::none(),
        packing: wanted.packing,
        body_crc: wanted.body_crc,
    };
    let now = clock::now();
    let mut links = LaneLinks::new(common.token.get(), joined.token.get(), ports.socket_number());
    for link in &linked {
        links.add(now, &link.config, link.socket_number);
    }
    let routes = linked.iter().map(|link| (link.config.link, link.route)).collect();
    let is_in_use = |link: &u8| {
        joins.iter().chain(unanswered.iter().map(|(_, join)| join)).any(|join| join.link == *link)
    };
    let free = (0..common.links).rev().filter(|link| !is_in_use(link)).collect();
    let mut late = LateJoins::new(*common, joins, free);
    for (route, join) in unanswered {
        late.unanswered(now, route, join);
    }
    let parts = LaneParts {
        qpair: EtherHostQpair::new(config, links),
        routes,
        late,
        addresses,
        endpoint: wanted.endpoint,
        nqn: wanted.nqn.clone(),
        liveness: Liveness::new(now, wanted.silence_max),
    };
    HostEtherLane::new(now, parts, ports)
}

/// Returns the size of a piece with which frames of `frame_bytes` carry most data.
fn piece_bytes(frame_bytes: u16) -> u16 {
    if frame_bytes >= JUMBO_BYTES {
        return PIECE_BYTES;
    }
    frame_bytes.saturating_sub(HEADS_BYTES).min(PIECE_BYTES) & !7
}

#[cfg(test)]
mod tests {
    use super::*;
    use roadtrain_wire::zerocopy::FromZeros;

    #[test]
    fn a_tiny_frame_spoils_no_lane() {
        let path = |frame_bytes| {
            let route = LaneRoute { port: 0, peer: MacAddress([frame_bytes as u8; 6]) };
            LinkPath { route, frame_bytes }
        };
        let [tiny, small, large] = [path(1127), path(1128), path(9000)];
        assert_eq!(roomy(&[tiny, large, small]), [large, small]);
        assert_eq!(roomy(&[tiny]), [tiny], "the target says why not");
        assert_eq!(piece_bytes(small.frame_bytes), 1024);
    }

    #[test]
    fn a_lane_of_pieces_that_are_too_small_is_none() {
        let wanted = Joining {
            endpoint: [1; 16],
            nqn: "nqn.x:y".into(),
            number: 0,
            entries: 32,
            data_bytes_max: 1 << 20,
            packing: Packing::default(),
            body_crc: false,
            silence_max: Duration::from_secs(5),
        };
        let of_frames = |frame_bytes| {
            let route = LaneRoute { port: 0, peer: MacAddress([1; 6]) };
            common(&[LinkPath { route, frame_bytes }], &wanted).unwrap()
        };
        let (slots, pages, token) = (32.into(), 256.into(), 1.into());
        let joined = JoinedBody { slots, pages, token, ..JoinedBody::new_zeroed() };
        assert!(check(&joined, &of_frames(FRAME_MIN), &wanted).is_ok());
        for frame_bytes in [0, 64, HEADS_BYTES + 8, FRAME_MIN - 1] {
            let checked = check(&joined, &of_frames(frame_bytes), &wanted);
            assert!(matches!(checked, Err(LinkError::Nonsense(_))), "{frame_bytes}: {checked:?}");
        }
        let refused = JoinedBody { status: 0x0102.into(), ..joined };
        let checked = check(&refused, &of_frames(64), &wanted);
        assert!(matches!(checked, Err(LinkError::Refused(_))), "the target says why not");
    }

    #[test]
    fn pieces_fill_frames() {
        assert_eq!(piece_bytes(u16::MAX), 4096);
        assert_eq!(piece_bytes(9000), 4096);
        assert_eq!(piece_bytes(4256), 4096);
        assert_eq!(piece_bytes(1500), 1392);
        assert_eq!(piece_bytes(64), 0);
    }
}
