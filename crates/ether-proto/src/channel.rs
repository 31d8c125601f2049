//! A lane's state on one link: frames get sequence numbers, arrive or are detected as lost, and leave no faster than
//! link and peer can take them.
//!
//! | part | state |
//! |---|---|
//! | [`LaneChannel`] | all of it together |
//! | `sender` | frames in flight, the records in them, losses |
//! | `receiver` | numbers that arrived, and the acknowledgement that is due |
//! | `rtt`, `rate` | transit time of a frame |
//! | `cause` | congestion or chance as the cause of losses |
//! | `cubic`, `pacer` | frames that may be in flight, and their departure times |
//! | `health` | suspicion that the link has failed |

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
use health::LinkHealth;
use pacer::Pacer;
use rate::Rate;
use receiver::Receiver;
use roadtrain_proto::time::Instant;
use roadtrain_wire::ether::{FrameHeader, FrameType, flags};
use roadtrain_wire::zerocopy::little_endian::{U16, U32, U64};
use rtt::Rtt;
use sender::{AckProgress, ChannelSender};

pub use numbers::{WINDOW, is_before};
pub use receiver::FrameArrival;
pub use stats::ChannelStats;

/// Most bytes of an Ack's body.
pub const ACK_BODY_MAX: usize = 8 * SACK_WORDS_MAX;
/// Most SACK words after the header's.
const SACK_WORDS_MAX: usize = 15;
/// Number of later frames whose arrival marks a frame as lost, ...
const THRESHOLD_MIN: u32 = 3;
/// ... and its limit where frames overtake each other.
const THRESHOLD_MAX: u32 = 64;
/// Parameters of a channel that the connect phase has agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelConfig {
    pub link: u8,
    /// First SEQ of this end.
    pub first_tx: u32,
    /// First SEQ of the peer.
    pub first_rx: u32,
    /// Initial credits: numbers that the peer has room for.
    pub window: u16,
    /// Largest frame in both directions: header and body, in bytes.
    pub frame_bytes: u16,
}

/// One lane's state on one link. `R` is a record that a frame carries; the channel returns it exactly once, as
/// acknowledged or as lost.
pub struct LaneChannel<R> {
    link: u8,
    frame_bytes: u16,
    receiver: Receiver,
    sender: ChannelSender<R>,
    /// Newest ACK, and the CREDITS that came with it.
    peer_ack: u32,
    credits: u16,
    rtt: Rtt,
    rate: Rate,
    cubic: Cubic,
    pacer: Pacer,
    health: LinkHealth,
    threshold: u32,
    /// Transit time of a frame on an idle link, in nanoseconds.
    latency_ns: u64,
    /// Earliest start of the retransmission timer: the last acknowledgement or timeout.
    timer_from: Instant,
    /// True if the next numbered frame carries ASK.
    must_request_ack: bool,
    /// SEQ of the last frame with ASK.
    last_ask_seq: u32,
    /// True if frames may be waiting for the pacer.
    is_held: bool,
    /// Time of the next request for credits.
    credits_at: Instant,
    /// Time of the last received frame.
    received_at: Instant,
    stats: ChannelStats,
}

impl<R: Copy> LaneChannel<R> {
    /// Creates a channel with no frame in flight.
    #[must_use]
    pub fn new(now: Instant, config: &ChannelConfig) -> Self {
        LaneChannel {
            link: config.link,
            frame_bytes: config.frame_bytes,
            receiver: Receiver::new(now, config.first_rx),
            sender: ChannelSender::new(config.first_tx),
            peer_ack: config.first_tx,
            credits: config.window.min(WINDOW as u16),
            rtt: Rtt::new(now),
            rate: Rate::new(now),
            cubic: Cubic::new(now, config.first_tx),
            pacer: Pacer::default(),
            health: LinkHealth::new(now),
            threshold: THRESHOLD_MIN,
            latency_ns: 0,
            timer_from: now,
            must_request_ack: false,
            last_ask_seq: config.first_tx,
            is_held: false,
            credits_at: now,
            received_at: now,
            stats: ChannelStats::default(),
        }
    }

    /// LINK of the channel.
    #[must_use]
    pub fn link(&self) -> u8 {
        self.link
    }

    /// Largest frame: header and body, in bytes.
    #[must_use]
    pub fn frame_bytes(&self) -> u16 {
        self.frame_bytes
    }

    // ---- Receiving ----

    /// Processes a received frame; `ack_body` is the body of an Ack, else empty. `acked` receives the records of the
    /// frames that it acknowledges.
    pub fn receive(
        &mut self,
        now: Instant,
        header: &FrameHeader,
        ack_body: &[u8],
        acked: &mut impl FnMut(R),
    ) -> FrameArrival {
        let arrival = self.take_number(now, header);
        if arrival == FrameArrival::Absurd {
            self.stats.absurd += 1;
            return arrival;
        }
        self.received_at = now;
        if header.flags.get() & flags::ASK != 0 {
            self.receiver.make_due(now);
        }
        self.take_acknowledgement(now, header, ack_body, acked);
        arrival
    }

    fn take_number(&mut self, now: Instant, header: &FrameHeader) -> FrameArrival {
        let (seq, base) = (header.seq.get(), header.base.get());
        let is_numbered = header.flags.get() & flags::SEQ != 0;
        if (is_numbered && is_before(seq, base)) || !self.receiver.settle(base) {
            return FrameArrival::Absurd;
        }
        if !is_numbered {
            return FrameArrival::Unnumbered;
        }
        let arrival = self.receiver.arrive(now, seq);
        match arrival {
            FrameArrival::New => self.stats.received += 1,
            FrameArrival::Duplicate => self.stats.duplicates += 1,
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
            self.handle_progress(now, &progress, delay_us);
        }
    }

    fn handle_progress(&mut self, now: Instant, progress: &AckProgress, delay_us: Option<u16>) {
        self.timer_from = now;
        if let (Some(sent), Some(delay_us)) = (progress.newest_sent, delay_us) {
            let whole = now.since(sent);
            let rtt = whole.checked_sub(Duration::from_micros(delay_us.into())).unwrap_or(whole);
            self.rtt.sample(now, rtt);
            self.sender.record_rtt(rtt);
            self.cubic.record_rtt(rtt);
        }
        if let Some(seq) = progress.revived_one {
            self.handle_revived(progress, seq);
        }
        self.rate.add_acknowledged(progress.bytes);
        let numbers = (self.sender.highest(), self.sender.next(), self.sender.in_flight());
        let times = (self.rtt.smoothed(), self.rtt.minimum());
        if let Some(shortest) = self.cubic.acknowledged(now, progress.frames, numbers, times) {
            self.rate.end_round(now, shortest, times.1);
        }
        self.find_lost(now);
        let window_bytes = u64::from(self.cubic.frames()) * u64::from(self.frame_bytes);
        self.pacer.set(now, window_bytes, times.0, self.cubic.cut_at());
        if self.health.record_reply(now) {
            self.restart(now);
        }
        self.update_latency();
    }

    /// Handles the arrival of frames that were counted as lost.
    fn handle_revived(&mut self, progress: &AckProgress, seq: u32) {
        self.stats.revived += u64::from(progress.revived);
        self.cubic.undo_cut(seq);
        if progress.is_hasty {
            self.rtt.raise_floor();
        }
        if progress.distance > 0 {
            self.threshold = (self.threshold.max(progress.distance) + 1).min(THRESHOLD_MAX);
        }
    }

    fn find_lost(&mut self, now: Instant) {
        let overdue = self.overdue_age();
        let LaneChannel { sender, cubic, rtt, stats, threshold, .. } = self;
        let next = sender.next();
        let mut lost = |seq, neighbour_rtt| {
            stats.lost += 1;
            cubic.record_loss(now, (seq, next), neighbour_rtt);
        };
        sender.find_overtaken(now, *threshold, rtt.smoothed() / 4, &mut lost);
        sender.find_overdue(now, overdue, &mut lost);
        sender.settle_losses(|seq, is_timed_out| {
            if is_timed_out {
                cubic.record_loss(now, (seq, next), None);
            }
            cubic.confirm_loss(seq);
            if is_timed_out {
                rtt.lower_floor();
            } else {
                *threshold = (*threshold - 1).max(THRESHOLD_MIN);
            }
        });
    }

    /// Resets the congestion window of a link that was suspect.
    fn restart(&mut self, now: Instant) {
        self.cubic = Cubic::new(now, self.sender.next());
    }

    /// True if the frame with number `seq` has arrived, or is no longer expected.
    #[must_use]
    pub fn has_arrived(&self, seq: u32) -> bool {
        self.receiver.has_arrived(seq)
    }

    /// Restarts reception at `base`: the first authenticated frame of the peer has arrived. Forged ones before it may
    /// have taken numbers that the peer still uses.
    pub fn trust_peer(&mut self, now: Instant, base: u32) {
        self.receiver.restart(now, base);
    }

    /// Sets the credits of the peer: the numbers from ACK on that this end has room for.
    pub fn set_credits(&mut self, now: Instant, credits: u16) {
        self.receiver.set_credits(now, credits);
    }

    // ---- Sending ----

    fn has_credits(&self) -> bool {
        let base = self.sender.base();
        let from = if is_before(base, self.peer_ack) { self.peer_ack } else { base };
        self.sender.next().wrapping_sub(from) < u32::from(self.credits)
    }

    /// True if one more frame may leave now.
    #[must_use]
    pub fn has_room(&self, now: Instant) -> bool {
        !self.health.is_suspect()
            && self.sender.has_number()
            && self.has_credits()
            && self.sender.in_flight() < self.cubic.frames()
            && self.pacer.ready_at() <= now
    }

    fn is_starved(&self) -> bool {
        !self.has_credits() && self.sender.in_flight() == 0
    }

    /// Sends a frame of `bytes` bytes with these records. Sets every field of `header` that belongs to the channel.
    pub fn send(&mut self, now: Instant, bytes: u32, records: &[R], header: &mut FrameHeader) {
        let seq = self.sender.send(now, bytes, records);
        self.cubic.record_sent(self.sender.in_flight());
        self.must_request_ack |= self.fills_window(seq);
        self.pacer.sent(now, bytes);
        self.is_held = self.pacer.ready_at() > now;
        self.stats.sent += 1;
        self.stats.sent_bytes += u64::from(bytes);
        header.seq = U32::new(seq);
        let mut bits = header.flags.get() | flags::SEQ;
        if self.must_request_ack {
            bits |= flags::ASK;
            self.must_request_ack = false;
            self.last_ask_seq = seq;
            self.stats.ack_requests += 1;
        }
        header.flags = U16::new(bits);
        self.fill(now, header);
    }

    /// True if this frame fills the window, so that its acknowledgement is urgent. A few requests for one in each
    /// window are enough.
    fn fills_window(&self, seq: u32) -> bool {
        let window = self.cubic.frames();
        self.sender.in_flight() >= window && seq.wrapping_sub(self.last_ask_seq) > window / 4
    }

    /// Sets LINK, BASE, ACK, DELAY, CREDITS and SACK, and marks the acknowledgement as sent.
    pub fn fill(&mut self, now: Instant, header: &mut FrameHeader) {
        let has_words = header.kind == FrameType::Ack as u8;
        header.link = self.link;
        header.base = U32::new(self.sender.base());
        header.ack = U32::new(self.receiver.ack());
        header.delay_us = U16::new(self.receiver.delay_us(now, has_words));
        header.credits = U16::new(self.receiver.credits());
        header.sack = U64::new(self.receiver.sack(0));
        self.receiver.mark_sent(has_words);
    }

    /// Writes the further SACK words of an Ack's body. Returns their bytes, at most [`ACK_BODY_MAX`].
    pub fn ack_body(&self, body: &mut [u8]) -> usize {
        let words = (self.receiver.further_words() as usize).min(SACK_WORDS_MAX);
        let (chunks, _) = body.as_chunks_mut::<8>();
        let written = chunks.iter_mut().take(words).zip(1..);
        written.map(|(chunk, i)| *chunk = self.receiver.sack(i).to_le_bytes()).count() * 8
    }

    /// True if an acknowledgement is due now.
    #[must_use]
    pub fn ack_is_due(&self, now: Instant) -> bool {
        self.receiver.due_at().is_some_and(|at| at <= now)
    }

    /// True if an acknowledgement must be requested now: with the next frame, or with an Ack if there is none.
    #[must_use]
    pub fn needs_ack_request(&self) -> bool {
        self.must_request_ack && self.health.has_carrier() && self.sender.has_number()
    }

    /// Makes an acknowledgement due at once, even if nothing has arrived.
    pub fn acknowledge(&mut self, now: Instant) {
        self.receiver.make_due(now);
    }

    /// Requests an acknowledgement with the next frame.
    pub fn request_ack(&mut self) {
        self.must_request_ack = true;
    }

    /// SEQ of the next frame.
    pub(super) fn next(&self) -> u32 {
        self.sender.next()
    }

    /// True if the peer has acknowledged `seq` or a later number.
    pub(super) fn has_reached(&self, seq: u32) -> bool {
        is_before(seq, self.sender.highest())
    }

    /// Takes a record of a lost frame, to be sent in another one.
    pub fn next_lost(&mut self) -> Option<R> {
        self.sender.next_lost_record()
    }

    /// True if a lost record waits to be sent again.
    #[must_use]
    pub fn has_lost(&self) -> bool {
        self.sender.has_lost_record()
    }

    // ---- Link state ----

    /// True if new frames must avoid the link.
    #[must_use]
    pub fn is_suspect(&self) -> bool {
        self.health.is_suspect()
    }

    /// True if a suspect link has replied.
    pub(super) fn has_replied(&self) -> bool {
        self.health.has_replied()
    }

    /// Uses the link again without further replies.
    pub(super) fn trust(&mut self, now: Instant) {
        if self.is_suspect() {
            self.health.restore();
            self.restart(now);
        }
    }

    /// Records the carrier state of the interface.
    pub fn set_carrier(&mut self, now: Instant, has_carrier: bool) {
        let was_suspect = self.is_suspect();
        if self.health.set_carrier(now, has_carrier) && !was_suspect {
            self.begin_suspicion();
        }
    }

    /// Returns the estimated nanoseconds until a frame of `bytes` bytes arrives.
    #[must_use]
    pub fn load(&self, bytes: u32) -> u64 {
        self.latency_ns + self.rate.time_ns(self.sender.bytes() + u64::from(bytes))
    }

    /// Updates the latency that `load` uses: after each acknowledgement and each timeout.
    pub(super) fn update_latency(&mut self) {
        let silence = match self.health.timeouts() {
            0 => Duration::ZERO,
            repetitions => self.rtt.timeout(repetitions),
        };
        self.latency_ns = (self.rtt.minimum() / 2 + silence).as_nanos() as u64;
    }

    /// Returns the counters and the present state.
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
