//! Makes a lane: Join over every link.

use super::ask::{Pace, Question, ask};
use super::discovery::Path;
use super::lane::{EtherLane, Linked, Route};
use super::ports::{Heard, Ports};
use crate::host::link::LinkError;
use crate::{clock, random};
use roadtrain_proto::ether::Packing;
use roadtrain_proto::ether::channel::ChannelConfig;
use roadtrain_proto::ether::host::{Config, Qpair};
use roadtrain_proto::ether::links::Links;
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

/// Makes a lane over `paths`; links whose target does not answer are left out.
///
/// # Errors
/// No link is answered, or the target refuses.
pub(crate) fn join(
    ports: &mut Ports,
    paths: &[Path],
    wanted: &Joining,
) -> Result<EtherLane, LinkError> {
    let mut first = 0;
    while first < paths.len() {
        // The first that is answered makes the lane, the others join it.
        match join_over(ports, &paths[first..], wanted)? {
            Some(lane) => return Ok(lane),
            None => first += 1,
        }
    }
    Err(LinkError::Nobody)
}

/// `None`: the first link is not answered.
fn join_over(
    ports: &mut Ports,
    paths: &[Path],
    wanted: &Joining,
) -> Result<Option<EtherLane>, LinkError> {
    let token = random::number()? & !0xffff | u64::from(wanted.number);
    let frame_min = paths.iter().map(|path| path.frame_bytes).min().unwrap_or(0);
    let piece = piece_bytes(frame_min);
    let mut lane: Option<(Joined, Vec<Linked>)> = None;
    for (number, path) in (0u8..).zip(paths) {
        let own_first = random::number()? as u32;
        let join = Join {
            token: token.into(),
            first: own_first.into(),
            frame: path.frame_bytes.into(),
            piece: piece.into(),
            link: number,
            links: paths.len() as u8,
            slots: wanted.entries.into(),
            flags: if wanted.body_crc { join_flags::CRC } else { 0 }.into(),
            nqn_length: (wanted.nqn.len() as u16).into(),
        };
        let peer_token = lane.as_ref().map_or(0, |(joined, _)| joined.token.get());
        let route = path.route;
        let mut question = JoinQuestion { route, peer_token, join, nqn: &wanted.nqn, answer: None };
        ask(ports, PACE, &mut question)?;
        let Some((joined, door)) = question.answer else {
            if lane.is_none() {
                return Ok(None);
            }
            continue;
        };
        check(&joined, wanted)?;
        let frame_bytes = path.frame_bytes.min(joined.frame.get());
        let (first_rx, window) = (joined.first.get(), joined.window.get());
        let config =
            ChannelConfig { link: number, first_tx: own_first, first_rx, window, frame_bytes };
        let linked = Linked { route, config, door };
        lane.get_or_insert_with(|| (joined, Vec::new())).1.push(linked);
    }
    Ok(lane.map(|(joined, links)| made(ports.door(), token, &joined, links, piece, wanted)))
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

fn made(
    door: u16,
    token: u64,
    joined: &Joined,
    linked: Vec<Linked>,
    piece_bytes: u16,
    wanted: &Joining,
) -> EtherLane {
    let config = Config {
        queue_entries: joined.slots.get().min(wanted.entries),
        pages: joined.pages.get(),
        piece_bytes,
        data_bytes_max: wanted.data_bytes_max,
        policy: PolicyConfig::none(),
        packing: wanted.packing,
        body_crc: wanted.body_crc,
    };
    let now = clock::now();
    let mut links = Links::new(token, joined.token.get(), door);
    for link in &linked {
        links.add(now, &link.config, link.door);
    }
    let routes = linked.iter().map(|link| (link.config.link, link.route));
    let routes = routes.collect();
    EtherLane::new(now, Qpair::new(config, links), routes, wanted)
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
