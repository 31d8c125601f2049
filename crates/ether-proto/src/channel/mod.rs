//! A lane's part of one link: frames get numbers, arrive or are found lost, and leave no faster than link and
//! peer can take them.
//!
//! | part | what it knows |
//! |---|---|
//! | [`Channel`] | all of it together |
//! | `sender` | frames under way, the records in them, what is lost |
//! | `receiver` | what has arrived, and what the peer is to be told |
//! | `rtt`, `rate` | how long a frame takes |
//! | `cause` | whether frames are lost because they are too many |
//! | `cubic`, `pacer` | how many may be under way, and when they leave |
//! | `health` | whether the link is suspect |

mod cause;
mod cubic;
mod health;
mod numbers;
mod pacer;
mod rate;
mod receiver;
mod rtt;
mod sender;
mod stats;
mod timers;

use core::time::Duration;
use cubic::Cubic;
use health::Health;
use pacer::Pacer;
use rate::Rate;
use receiver::Receiver;
use roadtrain_proto::time::Instant;
use roadtrain_wire::ether::{FrameHeader, FrameType, flags};
use roadtrain_wire::zerocopy::little_endian::{U16, U32, U64};
use rtt::Rtt;
use sender::{Progress, Sender};

pub use numbers::{WINDOW, is_before};
pub use receiver::Arrival;
pub use stats::ChannelStats;

/// Most octets of an Ack's body.
pub const ACK_BODY_MAX: usize = 8 * SACK_WORDS_MAX;
/// Most SACK words behind the header's.
const SACK_WORDS_MAX: usize = 15;
/// A frame that so many later ones have overtaken is lost, ...
const THRESHOLD_MIN: u32 = 3;
/// ... or more where frames do overtake each other.
const THRESHOLD_MAX: u32 = 64;
/// What set-up has found out about a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelConfig {
    pub link: u8,
    /// First SEQ of ours.
    pub first_tx: u32,
    /// First SEQ of the peer's.
    pub first_rx: u32,
    /// Numbers that the peer has room for at first.
    pub window: u16,
    /// Largest frame both ways: header and body.
    pub frame_bytes: u16,
}

/// One lane's part of one link. `R` is a record that a frame carries; it is given back exactly once, as
/// acknowledged or as lost.
pub struct Channel<R> {
    link: u8,
    frame_bytes: u16,
    receiver: Receiver,
    sender: Sender<R>,
    /// The newest ACK, and CREDITS with it.
    peer_ack: u32,
    credits: u16,
    rtt: Rtt,
    rate: Rate,
    cubic: Cubic,
    pacer: Pacer,
    health: Health,
    threshold: u32,
    /// What a frame takes to arrive when nothing is before it.
    latency_ns: u64,
    /// Time-outs count from here at the earliest: something was acknowledged, or has timed out.
    timer_from: Instant,
    /// The next numbered frame has ASK.
    must_ask: bool,
    /// The last that had.
    asked: u32,
    /// Frames may wait for the pace.
    is_held: bool,
    /// When a sender without credits asks.
    credits_at: Instant,
    /// When a frame has arrived last.
    heard_at: Instant,
    stats: ChannelStats,
}

impl<R: Copy> Channel<R> {
    /// Nothing is under way.
    #[must_use]
    pub fn new(now: Instant, config: &ChannelConfig) -> Self {
        Channel {
            link: config.link,
            frame_bytes: config.frame_bytes,
            receiver: Receiver::new(now, config.first_rx),
            sender: Sender::new(config.first_tx),
            peer_ack: config.first_tx,
            credits: config.window.min(WINDOW as u16),
            rtt: Rtt::new(now),
            rate: Rate::new(now),
            cubic: Cubic::new(now, config.first_tx),
            pacer: Pacer::default(),
            health: Health::new(now),
            threshold: THRESHOLD_MIN,
            latency_ns: 0,
            timer_from: now,
            must_ask: false,
            asked: config.first_tx,
            is_held: false,
            credits_at: now,
            heard_at: now,
            stats: ChannelStats::default(),
        }
    }

    /// LINK.
    #[must_use]
    pub fn link(&self) -> u8 {
        self.link
    }

    /// Largest frame: header and body.
    #[must_use]
    pub fn frame_bytes(&self) -> u16 {
        self.frame_bytes
    }

    // ---- What arrives ----

    /// A frame has arrived; `ack_body` is the body of an Ack, else empty. `acked` gets the records of frames that
    /// it acknowledges.
    pub fn receive(
        &mut self,
        now: Instant,
        header: &FrameHeader,
        ack_body: &[u8],
        acked: &mut impl FnMut(R),
    ) -> Arrival {
        let arrival = self.take_number(now, header);
        if arrival == Arrival::Absurd {
            self.stats.absurd += 1;
            return arrival;
        }
        self.heard_at = now;
        if header.flags.get() & flags::ASK != 0 {
            self.receiver.asked(now);
        }
        self.take_acknowledgement(now, header, ack_body, acked);
        arrival
    }

    fn take_number(&mut self, now: Instant, header: &FrameHeader) -> Arrival {
        let (seq, base) = (header.seq.get(), header.base.get());
        let is_numbered = header.flags.get() & flags::SEQ != 0;
        if (is_numbered && is_before(seq, base)) || !self.receiver.settle(base) {
            return Arrival::Absurd;
        }
        if !is_numbered {
            return Arrival::Unnumbered;
        }
        let arrival = self.receiver.arrive(now, seq);
        match arrival {
            Arrival::New => self.stats.received += 1,
            Arrival::Duplicate => self.stats.duplicates += 1,
            _ => self.stats.beyond += 1,
        }
        arrival
    }

    fn take_acknowledgement(
        &mut self,
        now: Instant,
        header: &FrameHeader,
        ack_body: &[u8],
        acked: &mut impl FnMut(R),
    ) {
        let ack = header.ack.get();
        if is_before(self.sender.next(), ack) {
            self.stats.absurd += 1;
            return;
        }
        let is_newest = !is_before(ack, self.peer_ack);
        if is_newest {
            self.peer_ack = ack;
            self.credits = header.credits.get().min(WINDOW as u16);
        }
        let (words, _) = ack_body.as_chunks::<8>();
        let further = words.iter().take(SACK_WORDS_MAX).map(|&word| u64::from_le_bytes(word));
        let words = core::iter::once(header.sack.get()).chain(further);
        let progress = self.sender.acknowledge(ack, words, acked);
        if progress.frames + progress.revived > 0 {
            let delay_us = Some(header.delay_us.get()).filter(|&us| is_newest && us < u16::MAX);
            self.progressed(now, &progress, delay_us);
        }
    }

    fn progressed(&mut self, now: Instant, progress: &Progress, delay_us: Option<u16>) {
        self.timer_from = now;
        if let (Some(sent), Some(delay_us)) = (progress.newest_sent, delay_us) {
            let whole = now.since(sent);
            let rtt = whole.checked_sub(Duration::from_micros(delay_us.into())).unwrap_or(whole);
            self.rtt.sample(now, rtt);
            self.sender.measured(rtt);
            self.cubic.sampled(rtt);
        }
        if let Some(seq) = progress.revived_one {
            self.revived(progress, seq);
        }
        self.rate.acknowledged(progress.octets);
        let numbers = (self.sender.highest(), self.sender.next(), self.sender.in_flight());
        let times = (self.rtt.smoothed(), self.rtt.minimum());
        if let Some(shortest) = self.cubic.acknowledged(now, progress.frames, numbers, times) {
            self.rate.round(now, shortest, times.1);
        }
        self.find_lost(now);
        let window_bytes = u64::from(self.cubic.frames()) * u64::from(self.frame_bytes);
        self.pacer.set(now, window_bytes, times.0, self.cubic.cut_at());
        if self.health.answered(now) {
            self.restart(now);
        }
        self.update_latency();
    }

    /// What was given up has arrived after all.
    fn revived(&mut self, progress: &Progress, seq: u32) {
        self.stats.revived += u64::from(progress.revived);
        self.cubic.revived(seq);
        if progress.is_hasty {
            self.rtt.too_short();
        }
        if progress.distance > 0 {
            self.threshold = (self.threshold.max(progress.distance) + 1).min(THRESHOLD_MAX);
        }
    }

    fn find_lost(&mut self, now: Instant) {
        let overdue = self.overdue_age();
        let Channel { sender, cubic, rtt, stats, threshold, .. } = self;
        let next = sender.next();
        let mut lost = |seq, beside| {
            stats.lost += 1;
            cubic.lost(now, (seq, next), beside);
        };
        sender.overtaken(now, *threshold, rtt.smoothed() / 4, &mut lost);
        sender.overdue(now, overdue, &mut lost);
        sender.settle(|seq, is_timed_out| {
            if is_timed_out {
                cubic.lost(now, (seq, next), None);
            }
            cubic.confirmed(seq);
            if is_timed_out {
                rtt.right();
            } else {
                *threshold = (*threshold - 1).max(THRESHOLD_MIN);
            }
        });
    }

    /// A link that was suspect is as a new one.
    fn restart(&mut self, now: Instant) {
        self.cubic = Cubic::new(now, self.sender.next());
    }

    /// Whether a frame of that number has arrived, or is no longer waited for.
    #[must_use]
    pub fn has_arrived(&self, seq: u32) -> bool {
        self.receiver.has_arrived(seq)
    }

    /// The first frame that surely is the peer's has come: other ones may have had numbers that it uses yet.
    pub fn trust_peer(&mut self, now: Instant, base: u32) {
        self.receiver.restart(now, base);
    }

    /// Numbers from ACK on that there is room for here.
    pub fn set_credits(&mut self, now: Instant, credits: u16) {
        self.receiver.set_credits(now, credits);
    }

    // ---- What leaves ----

    fn has_credits(&self) -> bool {
        let base = self.sender.base();
        let from = if is_before(base, self.peer_ack) { self.peer_ack } else { base };
        self.sender.next().wrapping_sub(from) < u32::from(self.credits)
    }

    /// Whether one more frame may leave now.
    #[must_use]
    pub fn room(&self, now: Instant) -> bool {
        !self.health.is_suspect()
            && self.sender.has_number()
            && self.has_credits()
            && self.sender.in_flight() < self.cubic.frames()
            && self.pacer.ready_at() <= now
    }

    fn is_starved(&self) -> bool {
        !self.has_credits() && self.sender.in_flight() == 0
    }

    /// A frame of so many octets, with that header, leaves with these records. Sets everything in the header that
    /// is the channel's.
    pub fn send(&mut self, now: Instant, octets: u32, records: &[R], header: &mut FrameHeader) {
        let seq = self.sender.send(now, octets, records);
        self.cubic.sent(self.sender.in_flight());
        self.must_ask |= self.fills_window(seq);
        self.pacer.sent(now, octets);
        self.is_held = self.pacer.ready_at() > now;
        self.stats.sent += 1;
        self.stats.sent_octets += u64::from(octets);
        header.seq = U32::new(seq);
        let mut bits = header.flags.get() | flags::SEQ;
        if self.must_ask {
            bits |= flags::ASK;
            self.must_ask = false;
            self.asked = seq;
            self.stats.asks += 1;
        }
        header.flags = U16::new(bits);
        self.fill(now, header);
    }

    /// Whether nothing more may leave until this is acknowledged: then that had better be soon. A few times in a
    /// window are enough.
    fn fills_window(&self, seq: u32) -> bool {
        let window = self.cubic.frames();
        self.sender.in_flight() >= window && seq.wrapping_sub(self.asked) > window / 4
    }

    /// Sets LINK, BASE, ACK, DELAY, CREDITS and SACK. What is said so is no longer owed.
    pub fn fill(&mut self, now: Instant, header: &mut FrameHeader) {
        let has_words = header.kind == FrameType::Ack as u8;
        header.link = self.link;
        header.base = U32::new(self.sender.base());
        header.ack = U32::new(self.receiver.ack());
        header.delay_us = U16::new(self.receiver.delay_us(now, has_words));
        header.credits = U16::new(self.receiver.credits());
        header.sack = U64::new(self.receiver.sack(0));
        self.receiver.told(has_words);
    }

    /// The further SACK words of an Ack's body; its octets, at most [`ACK_BODY_MAX`].
    pub fn ack_body(&self, body: &mut [u8]) -> usize {
        let words = (self.receiver.further_words() as usize).min(SACK_WORDS_MAX);
        let (chunks, _) = body.as_chunks_mut::<8>();
        let written = chunks.iter_mut().take(words).zip(1..);
        written.map(|(chunk, i)| *chunk = self.receiver.sack(i).to_le_bytes()).count() * 8
    }

    /// Whether the peer is to be told now what has arrived.
    #[must_use]
    pub fn ack_is_due(&self, now: Instant) -> bool {
        self.receiver.due_at().is_some_and(|at| at <= now)
    }

    /// Whether the peer is to be asked now: with the next frame, or with an Ack if there is none.
    #[must_use]
    pub fn wants_ask(&self) -> bool {
        self.must_ask && self.health.has_carrier() && self.sender.has_number()
    }

    /// An answer is owed at once, whatever has arrived.
    pub fn acknowledge(&mut self, now: Instant) {
        self.receiver.asked(now);
    }

    /// The peer is to be asked.
    pub fn ask(&mut self) {
        self.must_ask = true;
    }

    /// Number of the next frame.
    pub(super) fn next(&self) -> u32 {
        self.sender.next()
    }

    /// Whether that number or a later one is acknowledged.
    pub(super) fn has_reached(&self, seq: u32) -> bool {
        is_before(seq, self.sender.highest())
    }

    /// A record of a lost frame, to be sent in another.
    pub fn next_lost(&mut self) -> Option<R> {
        self.sender.next_again()
    }

    /// Whether there is one.
    #[must_use]
    pub fn has_lost(&self) -> bool {
        self.sender.has_again()
    }

    // ---- The link ----

    /// Whether new frames are to avoid the link.
    #[must_use]
    pub fn is_suspect(&self) -> bool {
        self.health.is_suspect()
    }

    /// Whether a suspect link has answered.
    pub(super) fn has_answered(&self) -> bool {
        self.health.has_answered()
    }

    /// The link is good again, without further answers.
    pub(super) fn trust(&mut self, now: Instant) {
        if self.is_suspect() {
            self.health.trust();
            self.restart(now);
        }
    }

    /// The interface has a carrier, or not.
    pub fn set_carrier(&mut self, now: Instant, has_carrier: bool) {
        let was_suspect = self.is_suspect();
        if self.health.set_carrier(now, has_carrier) && !was_suspect {
            self.begin_suspicion();
        }
    }

    /// Nanoseconds that a frame of so many octets would take to arrive, as far as is known.
    #[must_use]
    pub fn load(&self, octets: u32) -> u64 {
        self.latency_ns + self.rate.time_ns(self.sender.octets() + u64::from(octets))
    }

    /// What `load` says changes only when the link says something, or says nothing for too long.
    pub(super) fn update_latency(&mut self) {
        let silence = match self.health.timeouts() {
            0 => Duration::ZERO,
            repetitions => self.rtt.timeout(repetitions),
        };
        self.latency_ns = (self.rtt.minimum() / 2 + silence).as_nanos() as u64;
    }

    /// What has happened so far.
    #[must_use]
    pub fn stats(&self) -> ChannelStats {
        ChannelStats {
            in_flight: self.sender.in_flight(),
            window: self.cubic.frames(),
            threshold: self.threshold,
            smoothed_rtt: self.rtt.smoothed(),
            minimum_rtt: self.rtt.minimum(),
            is_suspect: self.is_suspect(),
            ..self.stats
        }
    }
}
