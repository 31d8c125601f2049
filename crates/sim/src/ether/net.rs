//! Links between a host and a target. Frames in flight are lost, repeated, damaged, reordered and delayed, wait in a
//! queue that is full at times, and a link may be cut.

use super::packet::Packet;
use crate::ends::ConnEnd;
use crate::rng::SimRng;
use core::time::Duration;
use roadtrain_ether_proto::frame_writer::MemoryFrame;
use roadtrain_proto::time::Instant;
use roadtrain_wire::ether::{FRAME_HEADER_BYTES, FrameHeader, FrameType, flags};
use roadtrain_wire::zerocopy::{FromBytes, IntoBytes};
use std::collections::{BTreeMap, VecDeque};

/// Recorded frames that are kept.
const TAPE_FRAMES: usize = 4000;

/// A recorded frame.
#[derive(Clone, Debug)]
pub struct RecordedFrame {
    /// Its link.
    pub link: u8,
    /// End that it was sent to.
    pub to: ConnEnd,
    /// Header and body.
    pub bytes: Vec<u8>,
}

/// Behaviour of one direction of a link.
#[derive(Clone, Copy, Debug)]
pub struct LinkBehaviour {
    /// Shortest delay and most additional delay, in microseconds.
    pub delay_us: (u64, u64),
    /// Rate in Mbit/s, if limited.
    pub rate_mbit: Option<u64>,
    /// Bytes that may wait for the link; frames above that are dropped.
    pub queue_bytes: u64,
    /// Lost frames of a million.
    pub lost_ppm: u64,
    /// Frames of a million that arrive twice.
    pub repeated_ppm: u64,
    /// Frames of a million that arrive damaged.
    pub damaged_ppm: u64,
    /// Frames of a million that others overtake.
    pub overtaken_ppm: u64,
    /// True if bodies are damaged as well, not only headers.
    pub damages_bodies: bool,
}

impl LinkBehaviour {
    /// Returns the behaviour of a link that only delays.
    #[must_use]
    pub fn good(delay_us: u64, rate_mbit: Option<u64>, queue_bytes: u64) -> Self {
        LinkBehaviour {
            delay_us: (delay_us, 0),
            rate_mbit,
            queue_bytes,
            lost_ppm: 0,
            repeated_ppm: 0,
            damaged_ppm: 0,
            overtaken_ppm: 0,
            damages_bodies: false,
        }
    }

    /// Stops all impairments except delay, and drops of a full queue.
    fn behave(&mut self) {
        let kept = LinkBehaviour::good(self.delay_us.0, self.rate_mbit, self.queue_bytes);
        *self = LinkBehaviour { delay_us: self.delay_us, ..kept };
    }
}

roadtrain_proto::counters! {
    /// Counters of frames.
    pub struct Fates {
        /// Sent frames.
        sent,
        /// Frames lost, or sent without carrier.
        lost,
        /// Frames dropped because the queue, or the receiver's ring, was full.
        dropped,
        /// Frames that arrived twice.
        repeated,
        /// Damaged frames.
        damaged,
    }
}

/// One direction of a link.
struct LinkDirection {
    behaviour: LinkBehaviour,
    /// Time until which the link sends.
    busy_until: Instant,
    /// Arrival time of the last frame in order.
    last_at: Instant,
    flight: BTreeMap<(Instant, u64), Packet>,
    serial: u64,
    drops_until: Instant,
}

struct SimLink {
    directions: [LinkDirection; 2],
    has_carrier: bool,
    /// True if frames sent without carrier wait in the interface.
    sticks: bool,
    stuck: Vec<(ConnEnd, Packet)>,
}

/// The links.
pub struct Net {
    links: Vec<SimLink>,
    rng: SimRng,
    ring_frames: usize,
    /// Frames recorded by an eavesdropper.
    tape: VecDeque<RecordedFrame>,
    /// Counters of frames.
    pub fates: Fates,
}

fn index(to: ConnEnd) -> usize {
    match to {
        ConnEnd::Host => 0,
        ConnEnd::Target => 1,
    }
}

impl Net {
    /// Makes links with these behaviours, to the host and to the target. A receiver that does not poll has room for
    /// `ring_frames` of each link.
    #[must_use]
    pub fn new(links: &[[LinkBehaviour; 2]], ring_frames: usize, rng: SimRng) -> Self {
        let direction = |&behaviour: &LinkBehaviour| LinkDirection {
            behaviour,
            busy_until: Instant(0),
            last_at: Instant(0),
            flight: BTreeMap::new(),
            serial: 0,
            drops_until: Instant(0),
        };
        let link = |directions: &[LinkBehaviour; 2]| SimLink {
            directions: directions.each_ref().map(direction),
            has_carrier: true,
            sticks: false,
            stuck: Vec::new(),
        };
        let links = links.iter().map(link).collect();
        Net { links, rng, ring_frames, tape: VecDeque::new(), fates: Fates::default() }
    }

    /// Returns the number of links.
    #[must_use]
    pub fn links(&self) -> u8 {
        self.links.len() as u8
    }

    /// Sends over a link.
    pub fn send(&mut self, now: Instant, link: u8, from: ConnEnd, packet: Packet) {
        let Net { links, rng, tape, fates, .. } = self;
        if let Packet::Frame(bytes) = &packet
            && rng.chance(20)
        {
            tape.truncate(TAPE_FRAMES - 1);
            tape.push_front(RecordedFrame { link, to: from.peer(), bytes: bytes.clone() });
        }
        let link = &mut links[usize::from(link)];
        fates.sent += 1;
        if link.has_carrier {
            link.directions[index(from.peer())].send(now, packet, rng, fates);
        } else if link.sticks && link.stuck.len() < 64 {
            link.stuck.push((from, packet));
        } else {
            fates.lost += 1;
        }
    }

    /// Sends frames that an end has built.
    pub fn send_frames(
        &mut self,
        now: Instant,
        from: ConnEnd,
        frames: impl IntoIterator<Item = MemoryFrame>,
    ) {
        for frame in frames {
            let bytes = [frame.header.as_bytes(), &frame.body].concat();
            self.send(now, frame.link, from, Packet::Frame(bytes));
        }
    }

    /// Injects a frame that no end has sent.
    pub fn inject(&mut self, at: Instant, link: u8, to: ConnEnd, bytes: Vec<u8>) {
        let direction = &mut self.links[usize::from(link)].directions[index(to)];
        direction.push(at, Packet::Frame(bytes));
    }

    /// Returns a random recorded frame.
    #[must_use]
    pub fn any_seen(&mut self) -> Option<RecordedFrame> {
        let count = self.tape.len() as u64;
        let number = if count > 0 { self.rng.below(count) } else { return None };
        self.tape.get(number as usize).cloned()
    }

    /// Returns the recorded frames to an end.
    pub fn seen(&self, to: ConnEnd) -> impl Iterator<Item = &RecordedFrame> {
        self.tape.iter().filter(move |seen| seen.to == to)
    }

    /// Returns the packets that have arrived at an end, with their links.
    pub fn receive(&mut self, now: Instant, end: ConnEnd) -> Vec<(u8, Packet)> {
        let (mut arrived, ring_frames) = (Vec::new(), self.ring_frames);
        for (number, link) in (0..).zip(&mut self.links) {
            let direction = &mut link.directions[index(end)];
            let mut count = 0;
            while let Some(entry) =
                direction.flight.first_entry().filter(|entry| entry.key().0 <= now)
            {
                let packet = entry.remove();
                count += 1;
                if count <= ring_frames {
                    arrived.push((number, packet));
                } else {
                    self.fates.dropped += 1;
                }
            }
        }
        arrived
    }

    /// Returns the time of the next arrival at an end.
    #[must_use]
    pub fn next_at(&self, end: ConnEnd) -> Option<Instant> {
        let directions = self.links.iter().map(|link| &link.directions[index(end)]);
        directions.filter_map(|direction| direction.flight.keys().next().map(|(at, _)| *at)).min()
    }

    /// Cuts a link: packets in flight are lost. With `sticks`, packets sent meanwhile wait in the interfaces.
    pub fn cut(&mut self, link: u8, sticks: bool) {
        let link = &mut self.links[usize::from(link)];
        (link.has_carrier, link.sticks) = (false, sticks);
        link.directions.iter_mut().for_each(|direction| direction.flight.clear());
    }

    /// Restores a link.
    pub fn mend(&mut self, now: Instant, number: u8) {
        let link = &mut self.links[usize::from(number)];
        link.has_carrier = true;
        for (from, packet) in std::mem::take(&mut link.stuck) {
            self.send(now, number, from, packet);
        }
    }

    /// True if the link has carrier.
    #[must_use]
    pub fn has_carrier(&self, link: u8) -> bool {
        self.links[usize::from(link)].has_carrier
    }

    /// Drops everything sent towards `to`, until the given time.
    pub fn drop_towards(&mut self, link: u8, to: ConnEnd, until: Instant) {
        self.links[usize::from(link)].directions[index(to)].drops_until = until;
    }

    /// Restores all links and stops all impairments.
    pub fn behave(&mut self, now: Instant) {
        for number in 0..self.links() {
            self.mend(now, number);
        }
        self.links
            .iter_mut()
            .flat_map(|link| &mut link.directions)
            .for_each(|w| w.behaviour.behave());
    }
}

impl LinkDirection {
    fn send(&mut self, now: Instant, mut packet: Packet, rng: &mut SimRng, fates: &mut Fates) {
        let LinkBehaviour { rate_mbit, queue_bytes, .. } = self.behaviour;
        let mut left_at = now;
        if let Some(rate_mbit) = rate_mbit {
            let waiting = self.busy_until.since(now).as_nanos() as u64 * rate_mbit / 8000;
            if waiting + packet.bytes() > queue_bytes {
                fates.dropped += 1;
                return;
            }
            let time = Duration::from_nanos(packet.bytes() * 8000 / rate_mbit);
            self.busy_until = self.busy_until.max(now) + time;
            left_at = self.busy_until;
        }
        let chance = |rng: &mut SimRng, ppm| rng.below(1_000_000) < ppm;
        if chance(rng, self.behaviour.lost_ppm) || now < self.drops_until {
            fates.lost += 1;
            return;
        }
        if chance(rng, self.behaviour.repeated_ppm) {
            fates.repeated += 1;
            let later = rng.micros(0, 2000);
            self.push(left_at + self.delay(rng) + later, packet.clone());
        }
        if chance(rng, self.behaviour.damaged_ppm) {
            fates.damaged += 1;
            damage(&mut packet, self.behaviour.damages_bodies, rng);
        }
        let mut at = left_at + self.delay(rng);
        if chance(rng, self.behaviour.overtaken_ppm) {
            at += rng.micros(0, 1000);
        } else {
            at = at.max(self.last_at);
            self.last_at = at;
        }
        self.push(at, packet);
    }

    fn delay(&self, rng: &mut SimRng) -> Duration {
        let (shortest, more) = self.behaviour.delay_us;
        rng.micros(shortest, shortest + more)
    }

    fn push(&mut self, at: Instant, packet: Packet) {
        self.serial += 1;
        self.flight.insert((at, self.serial), packet);
    }
}

/// Flips some bits, or truncates the frame.
fn damage(packet: &mut Packet, bodies: bool, rng: &mut SimRng) {
    let Packet::Frame(bytes) = packet else { return };
    if rng.chance(10) {
        bytes.truncate(rng.below(bytes.len() as u64) as usize);
        return;
    }
    let set = FrameHeader::ref_from_prefix(bytes).map_or(0, |(header, _)| header.flags.get());
    // Frames for queries about lanes have no checksum but Ethernet's own.
    let is_cargo = bytes.get(1) == Some(&(FrameType::Cargo as u8));
    let bodies = bodies && (is_cargo || set & flags::CRC != 0);
    let end = if bodies { bytes.len() } else { FRAME_HEADER_BYTES.min(bytes.len()) };
    for _ in 0..rng.between(1, 3) {
        let byte = rng.below(end as u64) as usize;
        bytes[byte] ^= 1 << rng.below(8);
    }
}
