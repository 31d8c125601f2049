//! A lane's channels: the choice of a link for each frame, and both ends' tokens and socket numbers.

use super::channel::{ChannelConfig, ChannelStats, FrameArrival, LaneChannel};
use core::time::Duration;
use roadtrain_proto::time::Instant;
use roadtrain_wire::ether::{FrameHeader, FrameType, VERSION, flags};
use roadtrain_wire::zerocopy::little_endian::{U16, U64};

pub use roadtrain_proto::seal::LINKS_MAX;

/// A channel and the peer's socket number to it.
struct LaneLink<R> {
    channel: LaneChannel<R>,
    /// Socket number of the peer, and the SEQ of the frame that set it. Unnumbered frames do not change it
    /// afterwards.
    socket_number: u16,
    socket_number_seq: Option<u32>,
    /// Cost of a frame on this link in nanoseconds, in addition to its transit time.
    bias_ns: u64,
    /// SEQ of the first frame after the last probe of the peer.
    probe_seq: u32,
}

/// One lane's links, from one end. `R` is a record that frames carry; see [`LaneChannel`].
pub struct LaneLinks<R> {
    links: Vec<LaneLink<R>>,
    /// Index in `links` of each LINK.
    index: [Option<u8>; LINKS_MAX],
    token: u64,
    peer_token: u64,
    socket_number: u16,
}

impl<R: Copy> LaneLinks<R> {
    /// Creates a lane without links. `token` and `socket_number` are this end's own.
    #[must_use]
    pub fn new(token: u64, peer_token: u64, socket_number: u16) -> Self {
        LaneLinks { links: Vec::new(), index: [None; LINKS_MAX], token, peer_token, socket_number }
    }

    /// Adds a link whose peer listens at `peer_socket_number`. Returns false if LINK is in use or too high.
    pub fn add(&mut self, now: Instant, config: &ChannelConfig, peer_socket_number: u16) -> bool {
        let index = self.links.len() as u8;
        match self.index.get_mut(usize::from(config.link)) {
            Some(place @ None) => *place = Some(index),
            _ => return false,
        }
        let channel = LaneChannel::new(now, config);
        self.links.push(LaneLink {
            channel,
            socket_number: peer_socket_number,
            socket_number_seq: None,
            bias_ns: 0,
            probe_seq: config.first_tx,
        });
        true
    }

    /// Requests a sign of life from the peer, on each link.
    pub fn probe(&mut self) {
        for LaneLink { channel, probe_seq, .. } in &mut self.links {
            *probe_seq = channel.next();
            channel.request_ack();
        }
    }

    /// True if the peer has replied: it acknowledged a frame sent after [`LaneLinks::probe`].
    #[must_use]
    pub fn has_replied(&self) -> bool {
        self.links.iter().any(|link| link.channel.has_reached(link.probe_seq))
    }

    /// Sets the cost of a frame on a link in addition to its transit time. Other links are preferred until their load
    /// exceeds this one's by `bias`.
    pub fn set_bias(&mut self, link: u8, bias: Duration) {
        if let Some(link) = self.get_mut(link) {
            link.bias_ns = bias.as_nanos() as u64;
        }
    }

    fn get(&self, link: u8) -> Option<&LaneLink<R>> {
        let index = *self.index.get(usize::from(link))?;
        self.links.get(usize::from(index?))
    }

    fn get_mut(&mut self, link: u8) -> Option<&mut LaneLink<R>> {
        let index = *self.index.get(usize::from(link))?;
        self.links.get_mut(usize::from(index?))
    }

    fn channels(&self) -> impl Iterator<Item = &LaneChannel<R>> {
        self.links.iter().map(|link| &link.channel)
    }

    fn channels_mut(&mut self) -> impl Iterator<Item = &mut LaneChannel<R>> {
        self.links.iter_mut().map(|link| &mut link.channel)
    }

    /// LINK of each link, in the order in which they were added.
    pub fn numbers(&self) -> impl Iterator<Item = u8> {
        self.channels().map(LaneChannel::link)
    }

    /// Returns the channel of a link.
    #[must_use]
    pub fn channel(&self, link: u8) -> Option<&LaneChannel<R>> {
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

    /// Changes the socket number of this end, and requests an acknowledgement on each link, which carries it to the
    /// peer.
    pub fn set_socket_number(&mut self, socket_number: u16) {
        self.socket_number = socket_number;
        self.channels_mut().for_each(LaneChannel::request_ack);
    }

    /// Socket number of the peer on a link.
    #[must_use]
    pub fn peer_socket_number(&self, link: u8) -> Option<u16> {
        Some(self.get(link)?.socket_number)
    }

    /// Largest frame of a link: header and body, in bytes.
    #[must_use]
    pub fn frame_bytes(&self, link: u8) -> usize {
        self.get(link).map_or(0, |link| usize::from(link.channel.frame_bytes()))
    }

    // ---- Receiving ----

    /// Processes a received frame; `ack_body` is the body of an Ack, else empty. `acked` receives the records of the
    /// frames that it acknowledges. The body of a Cargo is valid only if the result is [`FrameArrival::New`].
    pub fn receive(
        &mut self,
        now: Instant,
        header: &FrameHeader,
        ack_body: &[u8],
        acked: &mut impl FnMut(R),
    ) -> FrameArrival {
        let are_all_suspect = self.are_all_suspect();
        let is_ours = header.token.get() == self.token;
        let Some(link) = self.get_mut(header.link).filter(|_| is_ours) else {
            return FrameArrival::Foreign;
        };
        let arrival = link.channel.receive(now, header, ack_body, acked);
        if arrival == FrameArrival::New {
            link.follow(header);
        }
        if are_all_suspect && link.channel.has_replied() {
            link.channel.trust(now);
        }
        arrival
    }

    /// Restarts reception on a link before its first authenticated frame is processed. Forged clear frames before it
    /// must not use up the peer's numbers or change its socket number.
    pub fn trust_peer(&mut self, now: Instant, header: &FrameHeader) {
        if let Some(link) = self.get_mut(header.link) {
            link.channel.trust_peer(now, header.base.get());
            (link.socket_number, link.socket_number_seq) = (header.reply.get(), None);
        }
    }

    // ---- Sending ----

    /// Returns the link on which a frame of `bytes` bytes arrives first (bias included), if any has room. While all
    /// links are suspect, returns one that needs a probe: this frame carries it.
    #[must_use]
    pub fn choose(&self, now: Instant, bytes: u32) -> Option<u8> {
        let mut best: Option<(u64, u8)> = None;
        for LaneLink { channel, bias_ns, .. } in &self.links {
            let load = channel.load(bytes).saturating_add(*bias_ns);
            if best.is_none_or(|(least, _)| load < least) && channel.has_room(now) {
                best = Some((load, channel.link()));
            }
        }
        if let Some((_, link)) = best {
            return Some(link);
        }
        let are_all_suspect = self.are_all_suspect();
        let requests_ack =
            |channel: &&LaneChannel<R>| are_all_suspect && channel.needs_ack_request();
        self.channels().find(requests_ack).map(LaneChannel::link)
    }

    /// True if [`LaneLinks::choose`] has a link for a frame. If not, the caller tries again at [`LaneLinks::deadline`] or
    /// when a frame arrives.
    #[must_use]
    pub fn has_room(&self, now: Instant) -> bool {
        let are_all_suspect = self.are_all_suspect();
        self.channels()
            .any(|channel| channel.has_room(now) || are_all_suspect && channel.needs_ack_request())
    }

    /// Returns the header of a Cargo frame of `bytes` bytes that leaves over `link` now with these records. The
    /// caller sets BODY, BCRC and HCRC.
    ///
    /// # Panics
    /// If the lane has no such link.
    pub fn send(&mut self, now: Instant, link: u8, bytes: u32, records: &[R]) -> FrameHeader {
        let mut header = self.header(link, FrameType::Cargo);
        self.channel_mut(link).send(now, bytes, records, &mut header);
        header
    }

    /// Returns a link on which an acknowledgement is due or wanted, and true if it must request one from the peer.
    #[must_use]
    pub fn ack_due(&self, now: Instant) -> Option<(u8, bool)> {
        let channel = self.channels().find(|c| c.ack_is_due(now) || c.needs_ack_request())?;
        Some((channel.link(), channel.needs_ack_request()))
    }

    /// Makes an acknowledgement due at once on a link, even if nothing has arrived.
    pub fn acknowledge(&mut self, now: Instant, link: u8) {
        if let Some(link) = self.get_mut(link) {
            link.channel.acknowledge(now);
        }
    }

    /// Writes the further SACK words of an Ack's body, before [`LaneLinks::send_ack`]. Returns their bytes.
    #[must_use]
    pub fn ack_body(&self, link: u8, body: &mut [u8]) -> usize {
        self.get(link).map_or(0, |link| link.channel.ack_body(body))
    }

    /// Returns the header of an Ack of `bytes` bytes that leaves over `link` now; it is numbered if it
    /// `requests_ack`. The caller sets BODY, BCRC and HCRC.
    ///
    /// # Panics
    /// If the lane has no such link.
    pub fn send_ack(
        &mut self,
        now: Instant,
        link: u8,
        bytes: u32,
        requests_ack: bool,
    ) -> FrameHeader {
        let mut header = self.header(link, FrameType::Ack);
        let channel = self.channel_mut(link);
        if requests_ack {
            channel.request_ack();
            channel.send(now, bytes, &[], &mut header);
        } else {
            channel.fill(now, &mut header);
        }
        header
    }

    /// Returns a header with the fields that all frames of the lane share.
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

    fn channel_mut(&mut self, link: u8) -> &mut LaneChannel<R> {
        &mut self.get_mut(link).expect("a link of the lane").channel
    }

    /// Takes a record of a lost frame, to be sent in another one.
    pub fn next_lost(&mut self) -> Option<R> {
        self.channels_mut().find_map(LaneChannel::next_lost)
    }

    /// True if a lost record waits to be sent again.
    #[must_use]
    pub fn has_lost(&self) -> bool {
        self.channels().any(LaneChannel::has_lost)
    }

    // ---- Timers and link state ----

    /// Time at which [`LaneLinks::expire`] has work, or an acknowledgement is due.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.channels().filter_map(LaneChannel::deadline).min()
    }

    /// Handles expired timers: records may be lost, probes due, and links suspect afterwards.
    pub fn expire(&mut self, now: Instant) {
        self.channels_mut().for_each(|channel| channel.expire(now));
    }

    /// Records the carrier state of a link's interface.
    pub fn set_carrier(&mut self, now: Instant, link: u8, has_carrier: bool) {
        if let Some(link) = self.get_mut(link) {
            link.channel.set_carrier(now, has_carrier);
        }
    }

    /// Sets the peer's credits on each link: the numbers from ACK on that this end has room for.
    pub fn set_credits(&mut self, now: Instant, credits: u16) {
        self.channels_mut().for_each(|channel| channel.set_credits(now, credits));
    }

    /// True if a link is suspect.
    #[must_use]
    pub fn has_suspect(&self) -> bool {
        self.channels().any(LaneChannel::is_suspect)
    }

    /// True if all links are suspect.
    #[must_use]
    pub fn are_all_suspect(&self) -> bool {
        self.channels().all(LaneChannel::is_suspect)
    }

    /// Counters and state of a link's channel.
    #[must_use]
    pub fn stats(&self, link: u8) -> Option<ChannelStats> {
        Some(self.get(link)?.channel.stats())
    }
}

impl<R> LaneLink<R> {
    /// Takes the peer's socket number from the newest numbered frame.
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
