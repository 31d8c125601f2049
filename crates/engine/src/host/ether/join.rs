//! Makes a lane: Join over every link.

use super::ask::{Pace, Question, ask};
use super::discovery::Path;
use super::lane::{EtherLane, Linked, Route};
use super::late::LateJoins;
use super::ports::{Heard, Ports};
use crate::host::link::LinkError;
use crate::{clock, random};
use roadtrain_proto::ether::Packing;
use roadtrain_proto::ether::host::{Config, Qpair};
use roadtrain_proto::ether::links::{LINKS_MAX, Links};
use roadtrain_proto::policy::PolicyConfig;
use roadtrain_wire::ether::setup::{Join, Joined, join_flags};
use roadtrain_wire::ether::{DATA_RECORD_BYTES, FRAME_HEADER_BYTES, FrameHeader, FrameType};
use roadtrain_wire::status::Status;
use roadtrain_wire::zerocopy::{FromBytes, IntoBytes};
use std::sync::Arc;
use std::time::Duration;

/// How often a link is asked for.
const PACE: Pace = Pace {
    first: Duration::from_millis(50),
    longest: Duration::from_secs(1),
    total: Duration::from_millis(1500),
};
/// Frames of at least so many octets carry two pages with their heads, and more.
const JUMBO_BYTES: u16 = 8400;
/// Octets of a piece, where frames are large enough.
const PIECE_BYTES: u16 = 4096;
/// Fewest and most entries of a queue.
const ENTRIES: std::ops::RangeInclusive<u16> = 2..=1024;

/// What is wanted of a lane.
#[derive(Clone, Debug)]
pub(crate) struct Joining {
    /// The target.
    pub(crate) endpoint: [u8; 16],
    /// The subsystem.
    pub(crate) nqn: Arc<str>,
    /// Number of the lane over all reactors: the low bits of its token.
    pub(crate) number: u16,
    /// Entries of its queue.
    pub(crate) entries: u16,
    /// Most octets of a request's data.
    pub(crate) data_bytes_max: u32,
    pub(crate) packing: Packing,
    /// Both sides check bodies.
    pub(crate) body_crc: bool,
    /// Ends the lane when nothing has come for so long.
    pub(crate) silence_max: Duration,
}

struct JoinQuestion<'a> {
    route: Route,
    /// The lane's token of the target, once it has one.
    peer_token: u64,
    join: Join,
    nqn: &'a str,
    answer: Option<(Joined, u16)>,
}

impl Question for JoinQuestion<'_> {
    fn put(&mut self, ports: &mut Ports) {
        let header = FrameHeader {
            kind: FrameType::Join as u8,
            token: self.peer_token.into(),
            link: self.join.link,
            ..FrameHeader::default()
        };
        let body = [self.join.as_bytes(), self.nqn.as_bytes()].concat();
        ports.put(self.route.port, self.route.peer, header, &body);
    }

    fn hear(&mut self, heard: &Heard<'_>) {
        let is_answer = heard.kind == FrameType::Joined
            && heard.header.token == self.join.token
            && heard.header.link == self.join.link
            && (Route { port: heard.port, peer: heard.source }) == self.route;
        if let Ok((joined, _)) = Joined::read_from_prefix(heard.body)
            && is_answer
        {
            self.answer.get_or_insert((joined, heard.header.reply.get()));
        }
    }

    fn is_answered(&self) -> bool {
        self.answer.is_some()
    }
}

/// What came of the Joins of a lane.
struct Made {
    /// The first answer.
    joined: Joined,
    linked: Vec<Linked>,
    /// Nobody has answered these.
    unanswered: Vec<(Route, Join)>,
}

/// Makes a lane over `paths`. Links whose target does not answer may join it later, and so may `absent` more.
///
/// # Errors
/// No link is answered, or the target refuses.
pub(crate) fn join(
    ports: &mut Ports,
    paths: &[Path],
    absent: usize,
    wanted: &Joining,
) -> Result<EtherLane, LinkError> {
    let links = (paths.len() + absent).min(LINKS_MAX) as u8;
    for first in 0..paths.len() {
        // The first that is answered makes the lane, the others join it.
        let (silent, others) = paths.split_at(first);
        let common = common(paths, links, wanted)?;
        if let Some(made) = join_over(ports, others, &common, wanted)? {
            let mut lane = lane(ports.door(), &common, others.len() as u8, made, wanted);
            let now = clock::now();
            silent.iter().for_each(|path| lane.offer(now, &wanted.endpoint, *path));
            return Ok(lane);
        }
    }
    Err(LinkError::Nobody)
}

/// What all Joins of a lane have in common.
fn common(paths: &[Path], links: u8, wanted: &Joining) -> Result<Join, LinkError> {
    let token = random::number()? & !0xffff | u64::from(wanted.number);
    let frame_min = paths.iter().map(|path| path.frame_bytes).min().unwrap_or(0);
    Ok(Join {
        token: token.into(),
        piece: piece_bytes(frame_min).into(),
        links,
        slots: wanted.entries.into(),
        flags: if wanted.body_crc { join_flags::CRC } else { 0 }.into(),
        nqn_length: (wanted.nqn.len() as u16).into(),
        endpoint: wanted.endpoint,
        first: 0.into(),
        frame: 0.into(),
        link: 0,
    })
}

/// `None`: the first link is not answered.
fn join_over(
    ports: &mut Ports,
    paths: &[Path],
    common: &Join,
    wanted: &Joining,
) -> Result<Option<Made>, LinkError> {
    let mut made: Option<Made> = None;
    for (link, &Path { route, frame_bytes }) in (0..common.links).zip(paths) {
        let first = (random::number()? as u32).into();
        let join = Join { first, frame: frame_bytes.into(), link, ..*common };
        let peer_token = made.as_ref().map_or(0, |made| made.joined.token.get());
        let mut question = JoinQuestion { route, peer_token, join, nqn: &wanted.nqn, answer: None };
        ask(ports, PACE, &mut question)?;
        match (question.answer, &mut made) {
            (Some((joined, door)), made) => {
                check(&joined, wanted)?;
                let (linked, unanswered) = (Vec::new(), Vec::new());
                let made = made.get_or_insert(Made { joined, linked, unanswered });
                made.linked.push(Linked::new(route, &join, &joined, door));
            }
            (None, Some(made)) => made.unanswered.push((route, join)),
            (None, None) => return Ok(None),
        }
    }
    Ok(made)
}

fn check(joined: &Joined, wanted: &Joining) -> Result<(), LinkError> {
    let status = joined.status.get();
    if status != 0 {
        return Err(LinkError::Refused(Status::new((status >> 8) as u8, status as u8)));
    }
    let slots = joined.slots.get().min(wanted.entries);
    if !ENTRIES.contains(&slots) || joined.pages.get() == 0 || joined.token.get() == 0 {
        return Err(LinkError::Nonsense("Joined with a lane that cannot be"));
    }
    Ok(())
}

/// The lane; LINKs from `next` on are to come.
fn lane(door: u16, common: &Join, next: u8, made: Made, wanted: &Joining) -> EtherLane {
    let Made { joined, linked, unanswered } = made;
    let config = Config {
        queue_entries: joined.slots.get().min(wanted.entries),
        pages: joined.pages.get(),
        piece_bytes: common.piece.get(),
        data_bytes_max: wanted.data_bytes_max,
        policy: PolicyConfig::none(),
        packing: wanted.packing,
        body_crc: wanted.body_crc,
    };
    let now = clock::now();
    let mut links = Links::new(common.token.get(), joined.token.get(), door);
    for link in &linked {
        links.add(now, &link.config, link.door);
    }
    let routes = linked.iter().map(|link| (link.config.link, link.route)).collect();
    let mut late = LateJoins::new(*common, (next..common.links).rev().collect());
    for (route, join) in unanswered {
        late.unanswered(now, route, join);
    }
    EtherLane::new(now, Qpair::new(config, links), routes, late, wanted)
}

/// Octets of a piece with which frames of `frame_bytes` carry most.
fn piece_bytes(frame_bytes: u16) -> u16 {
    if frame_bytes >= JUMBO_BYTES {
        return PIECE_BYTES;
    }
    let heads = (FRAME_HEADER_BYTES + DATA_RECORD_BYTES) as u16;
    frame_bytes.saturating_sub(heads).min(PIECE_BYTES) & !7
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_fill_frames() {
        assert_eq!(piece_bytes(u16::MAX), 4096);
        assert_eq!(piece_bytes(9000), 4096);
        assert_eq!(piece_bytes(4256), 4096);
        assert_eq!(piece_bytes(1500), 1408);
        assert_eq!(piece_bytes(64), 0);
    }
}
