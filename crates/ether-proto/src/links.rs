//! A lane's channels: which link a frame takes, and what both ends call each other.

use super::channel::{Arrival, Channel, ChannelConfig, ChannelStats};
use core::time::Duration;
use roadtrain_proto::time::Instant;
use roadtrain_wire::ether::{FrameHeader, FrameType, VERSION, flags};
use roadtrain_wire::zerocopy::little_endian::{U16, U64};

pub use roadtrain_proto::seal::LINKS_MAX;

/// A channel and the peer's socket number to it.
struct Link<R> {
    channel: Channel<R>,
    /// The peer's socket number, and whether a numbered frame has said so: then unnumbered ones do not change it.
    socket_number: u16,
    socket_number_seq: Option<u32>,
    /// Nanoseconds that a frame costs there beside what its way takes.
    bias_ns: u64,
    /// The first number after the peer was asked for a sign of life.
    asked: u32,
}

/// One lane's links, from one end. `R` is a record that frames carry; see [`Channel`].
pub struct Links<R> {
    links: Vec<Link<R>>,
    /// Index in `links` of each LINK.
    index: [Option<u8>; LINKS_MAX],
    token: u64,
    peer_token: u64,
    socket_number: u16,
}

impl<R: Copy> Links<R> {
    /// No link yet. `token` and `socket_number` are this end's own.
    #[must_use]
    pub fn new(token: u64, peer_token: u64, socket_number: u16) -> Self {
        Links { links: Vec::new(), index: [None; LINKS_MAX], token, peer_token, socket_number }
    }

    /// Adds a link whose peer listens at `peer_socket_number`. False if there is one of that LINK, or LINK is too high.
    pub fn add(&mut self, now: Instant, config: &ChannelConfig, peer_socket_number: u16) -> bool {
        let index = self.links.len() as u8;
        match self.index.get_mut(usize::from(config.link)) {
            Some(place @ None) => *place = Some(index),
            _ => return false,
        }
        let channel = Channel::new(now, config);
        self.links.push(Link {
            channel,
            socket_number: peer_socket_number,
            socket_number_seq: None,
            bias_ns: 0,
            asked: config.first_tx,
        });
        true
    }

    /// The peer is asked for a sign of life, on each link.
    pub fn ask(&mut self) {
        for Link { channel, asked, .. } in &mut self.links {
            *asked = channel.next();
            channel.ask();
        }
    }

    /// Whether it has given one: something that was sent after [`Links::ask`] is acknowledged.
    #[must_use]
    pub fn has_answered(&self) -> bool {
        self.links.iter().any(|link| link.channel.has_reached(link.asked))
    }

    /// What a frame over that link costs beside the time that its way takes: other links are chosen before it until
    /// they are so much more loaded.
    pub fn set_bias(&mut self, link: u8, bias: Duration) {
        if let Some(link) = self.get_mut(link) {
            link.bias_ns = bias.as_nanos() as u64;
        }
    }

    fn get(&self, link: u8) -> Option<&Link<R>> {
        let index = *self.index.get(usize::from(link))?;
        self.links.get(usize::from(index?))
    }

    fn get_mut(&mut self, link: u8) -> Option<&mut Link<R>> {
        let index = *self.index.get(usize::from(link))?;
        self.links.get_mut(usize::from(index?))
    }

    fn channels(&self) -> impl Iterator<Item = &Channel<R>> {
        self.links.iter().map(|link| &link.channel)
    }

    fn channels_mut(&mut self) -> impl Iterator<Item = &mut Channel<R>> {
        self.links.iter_mut().map(|link| &mut link.channel)
    }

    /// LINK of each link, in the order in which they were added.
    pub fn numbers(&self) -> impl Iterator<Item = u8> {
        self.channels().map(Channel::link)
    }

    /// The channel of a link.
    #[must_use]
    pub fn channel(&self, link: u8) -> Option<&Channel<R>> {
        Some(&self.get(link)?.channel)
    }

    /// This end's token.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.token
    }

    /// The other end's token.
    #[must_use]
    pub fn peer_token(&self) -> u64 {
        self.peer_token
    }

    /// Where this end is reached from now on: the peer is asked on each link, and so told.
    pub fn set_socket_number(&mut self, socket_number: u16) {
        self.socket_number = socket_number;
        self.channels_mut().for_each(Channel::ask);
    }

    /// Where the peer of that link is reached.
    #[must_use]
    pub fn peer_socket_number(&self, link: u8) -> Option<u16> {
        Some(self.get(link)?.socket_number)
    }

    /// Largest frame of a link, header and body.
    #[must_use]
    pub fn frame_bytes(&self, link: u8) -> usize {
        self.get(link).map_or(0, |link| usize::from(link.channel.frame_bytes()))
    }

    // ---- What arrives ----

    /// A frame has arrived; `ack_body` is the body of an Ack, else empty. `acked` gets the records of frames that
    /// it acknowledges. The body of a Cargo counts if the frame is [`Arrival::New`].
    pub fn receive(
        &mut self,
        now: Instant,
        header: &FrameHeader,
        ack_body: &[u8],
        acked: &mut impl FnMut(R),
    ) -> Arrival {
        let are_all_suspect = self.are_all_suspect();
        let is_ours = header.token.get() == self.token;
        let Some(link) = self.get_mut(header.link).filter(|_| is_ours) else {
            return Arrival::Foreign;
        };
        let arrival = link.channel.receive(now, header, ack_body, acked);
        if arrival == Arrival::New {
            link.follow(header);
        }
        if are_all_suspect && link.channel.has_answered() {
            link.channel.trust(now);
        }
        arrival
    }

    /// The first frame of a link that surely is the peer's is about to be received. What others have sent before, in
    /// the clear, must not take its numbers, nor say where it is reached.
    pub fn trust_peer(&mut self, now: Instant, header: &FrameHeader) {
        if let Some(link) = self.get_mut(header.link) {
            link.channel.trust_peer(now, header.base.get());
            (link.socket_number, link.socket_number_seq) = (header.reply.get(), None);
        }
    }

    // ---- What leaves ----

    /// The link on which a frame of so many octets arrives first (its bias added), if any has room. While all are
    /// suspect, one that is to be asked: with this frame.
    #[must_use]
    pub fn choose(&self, now: Instant, octets: u32) -> Option<u8> {
        let mut best: Option<(u64, u8)> = None;
        for Link { channel, bias_ns, .. } in &self.links {
            let load = channel.load(octets).saturating_add(*bias_ns);
            if best.is_none_or(|(least, _)| load < least) && channel.room(now) {
                best = Some((load, channel.link()));
            }
        }
        if let Some((_, link)) = best {
            return Some(link);
        }
        let are_all_suspect = self.are_all_suspect();
        let asks = |channel: &&Channel<R>| are_all_suspect && channel.wants_ask();
        self.channels().find(asks).map(Channel::link)
    }

    /// Whether [`Links::choose`] has a link for a frame. If not, [`Links::deadline`] or a frame that arrives says
    /// when to try again.
    #[must_use]
    pub fn has_room(&self, now: Instant) -> bool {
        let are_all_suspect = self.are_all_suspect();
        self.channels().any(|channel| channel.room(now) || are_all_suspect && channel.wants_ask())
    }

    /// The header of a frame that leaves over `link` now, `octets` long, with these records: Cargo, numbered. BODY,
    /// BCRC and HCRC are left to the caller.
    ///
    /// # Panics
    /// If the lane has no such link.
    pub fn send(&mut self, now: Instant, link: u8, octets: u32, records: &[R]) -> FrameHeader {
        let mut header = self.header(link, FrameType::Cargo);
        self.channel_mut(link).send(now, octets, records, &mut header);
        header
    }

    /// A link whose peer is to be told now what has arrived, and whether it is to be asked.
    #[must_use]
    pub fn ack_due(&self, now: Instant) -> Option<(u8, bool)> {
        let channel = self.channels().find(|c| c.ack_is_due(now) || c.wants_ask())?;
        Some((channel.link(), channel.wants_ask()))
    }

    /// An answer is owed on that link at once, whatever has arrived.
    pub fn acknowledge(&mut self, now: Instant, link: u8) {
        if let Some(link) = self.get_mut(link) {
            link.channel.acknowledge(now);
        }
    }

    /// The further SACK words of an Ack's body, before [`Links::send_ack`]; its octets.
    #[must_use]
    pub fn ack_body(&self, link: u8, body: &mut [u8]) -> usize {
        self.get(link).map_or(0, |link| link.channel.ack_body(body))
    }

    /// The header of an Ack that leaves over `link` now, `octets` long: numbered if it asks. BODY, BCRC and HCRC are
    /// left to the caller.
    ///
    /// # Panics
    /// If the lane has no such link.
    pub fn send_ack(&mut self, now: Instant, link: u8, octets: u32, asks: bool) -> FrameHeader {
        let mut header = self.header(link, FrameType::Ack);
        let channel = self.channel_mut(link);
        if asks {
            channel.ask();
            channel.send(now, octets, &[], &mut header);
        } else {
            channel.fill(now, &mut header);
        }
        header
    }

    /// A header with what all frames of the lane have.
    ///
    /// # Panics
    /// If the lane has no such link.
    #[must_use]
    pub fn header(&self, link: u8, kind: FrameType) -> FrameHeader {
        let peer = self.get(link).expect("a link of the lane");
        FrameHeader {
            version: VERSION,
            kind: kind as u8,
            token: U64::new(self.peer_token),
            socket_number: U16::new(peer.socket_number),
            reply: U16::new(self.socket_number),
            link,
            ..FrameHeader::default()
        }
    }

    fn channel_mut(&mut self, link: u8) -> &mut Channel<R> {
        &mut self.get_mut(link).expect("a link of the lane").channel
    }

    /// A record of a lost frame, to be sent in another.
    pub fn next_lost(&mut self) -> Option<R> {
        self.channels_mut().find_map(Channel::next_lost)
    }

    /// Whether there is one.
    #[must_use]
    pub fn has_lost(&self) -> bool {
        self.channels().any(Channel::has_lost)
    }

    // ---- Time and links ----

    /// When [`Links::expire`] has something to do, or an acknowledgement is due.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.channels().filter_map(Channel::deadline).min()
    }

    /// Time-outs: may make records lost, questions due, and links suspect.
    pub fn expire(&mut self, now: Instant) {
        self.channels_mut().for_each(|channel| channel.expire(now));
    }

    /// The interface of a link has a carrier, or not.
    pub fn set_carrier(&mut self, now: Instant, link: u8, has_carrier: bool) {
        if let Some(link) = self.get_mut(link) {
            link.channel.set_carrier(now, has_carrier);
        }
    }

    /// Numbers from ACK on that there is room for here, on each link.
    pub fn set_credits(&mut self, now: Instant, credits: u16) {
        self.channels_mut().for_each(|channel| channel.set_credits(now, credits));
    }

    /// Whether a link is suspect.
    #[must_use]
    pub fn has_suspect(&self) -> bool {
        self.channels().any(Channel::is_suspect)
    }

    /// Whether all links are.
    #[must_use]
    pub fn are_all_suspect(&self) -> bool {
        self.channels().all(Channel::is_suspect)
    }

    /// What has happened on a link so far.
    #[must_use]
    pub fn stats(&self, link: u8) -> Option<ChannelStats> {
        Some(self.get(link)?.channel.stats())
    }
}

impl<R> Link<R> {
    /// Where the newest numbered frame says that the peer is reached.
    fn follow(&mut self, header: &FrameHeader) {
        let seq = header.seq.get();
        let is_newest =
            self.socket_number_seq.is_none_or(|newest| super::channel::is_before(newest, seq));
        if is_newest && header.flags.get() & flags::SEQ != 0 {
            self.socket_number_seq = Some(seq);
            self.socket_number = header.reply.get();
        }
    }
}
