//! The sending side: frames in flight, their records, and the detection of losses.

use super::numbers::{SeqSet, WINDOW, is_before};
use core::time::Duration;
use roadtrain_proto::time::Instant;
use std::collections::VecDeque;

/// Numbers below the newest that a lost frame may keep from being settled.
const LOST_SPAN_MAX: u32 = WINDOW / 2;
/// Distance up to which a measured round trip counts as a neighbour's.
const NEIGHBOUR_DISTANCE_MAX: u32 = 32;

/// A frame in flight.
#[derive(Clone, Copy, Default)]
struct FrameInFlight {
    sent: Instant,
    bytes: u32,
    /// Index of its first record, counted from the channel's first.
    first_record: u32,
    records: u32,
    /// Next number at the time when the frame was counted as lost.
    lost_at: u32,
    /// Measured round trip in nanoseconds; 0 if there is none.
    rtt_ns: u32,
    is_timed_out: bool,
}

/// The news in an acknowledgement.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AckProgress {
    pub(super) frames: u32,
    /// Bytes of these frames.
    pub(super) bytes: u64,
    /// Send time of the highest of them, if it is the highest ever acknowledged.
    pub(super) newest_sent: Option<Instant>,
    /// Number of frames that were counted as lost and have arrived.
    pub(super) revived: u32,
    /// Number of the last of those.
    pub(super) revived_one: Option<u32>,
    /// True if that one had timed out, and no later frame is acknowledged: the timeout was too short.
    pub(super) is_hasty: bool,
    /// Number of frames that overtook the last of those, if that was why it counted as lost.
    pub(super) distance: u32,
}

pub(super) struct ChannelSender<R> {
    /// First number that is not settled.
    base: u32,
    next: u32,
    /// Number after the highest acknowledged.
    highest: u32,
    /// First number that has not been compared with the highest.
    examined: u32,
    in_flight: SeqSet,
    /// Frames counted as lost before the peer learns of it: it may still acknowledge them.
    lost: SeqSet,
    bytes: u64,
    frames: Box<[FrameInFlight]>,
    /// Records of all frames from `base` on.
    records: VecDeque<R>,
    first_record: u32,
    /// Records of lost frames, to be sent again.
    lost_records: VecDeque<R>,
}

impl<R: Copy> ChannelSender<R> {
    pub(super) fn new(first: u32) -> Self {
        ChannelSender {
            base: first,
            next: first,
            highest: first,
            examined: first,
            in_flight: SeqSet::default(),
            lost: SeqSet::default(),
            bytes: 0,
            frames: vec![FrameInFlight::default(); WINDOW as usize].into(),
            records: VecDeque::new(),
            first_record: 0,
            lost_records: VecDeque::new(),
        }
    }

    pub(super) fn base(&self) -> u32 {
        self.base
    }

    pub(super) fn next(&self) -> u32 {
        self.next
    }

    pub(super) fn highest(&self) -> u32 {
        self.highest
    }

    pub(super) fn has_number(&self) -> bool {
        self.next.wrapping_sub(self.base) < WINDOW
    }

    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight.len()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Send time of the oldest frame in flight.
    pub(super) fn oldest_sent(&self) -> Option<Instant> {
        let oldest = self.in_flight.first(self.base, self.next)?;
        Some(self.frame(oldest).sent)
    }

    /// Records the round trip of the highest acknowledged number.
    pub(super) fn record_rtt(&mut self, rtt: Duration) {
        let frame = self.frame_mut(self.highest.wrapping_sub(1));
        frame.rtt_ns = rtt.as_nanos().min(u128::from(u32::MAX)) as u32;
    }

    /// Returns the longer one of the nearest round trips measured before and after `seq`.
    fn measured_near(&self, seq: u32) -> Option<Duration> {
        let measured = |number| Some(self.frame(number).rtt_ns).filter(|&ns| ns > 0);
        let neighbours = 1..=NEIGHBOUR_DISTANCE_MAX.min(self.highest.wrapping_sub(seq) - 1);
        let after = neighbours.map(|i| seq.wrapping_add(i)).find_map(measured);
        let before = (1..=NEIGHBOUR_DISTANCE_MAX).map(|i| seq.wrapping_sub(i)).find_map(measured);
        after.max(before).map(|ns| Duration::from_nanos(ns.into()))
    }

    pub(super) fn has_lost_record(&self) -> bool {
        !self.lost_records.is_empty()
    }

    pub(super) fn next_lost_record(&mut self) -> Option<R> {
        self.lost_records.pop_front()
    }

    fn frame(&self, seq: u32) -> &FrameInFlight {
        &self.frames[(seq % WINDOW) as usize]
    }

    fn frame_mut(&mut self, seq: u32) -> &mut FrameInFlight {
        &mut self.frames[(seq % WINDOW) as usize]
    }

    /// Records the departure of a frame of `bytes` bytes. Returns its number.
    pub(super) fn send(&mut self, now: Instant, bytes: u32, records: &[R]) -> u32 {
        debug_assert!(self.has_number());
        let seq = self.next;
        let first_record = self.first_record.wrapping_add(self.records.len() as u32);
        self.records.extend(records);
        let records = records.len() as u32;
        *self.frame_mut(seq) =
            FrameInFlight { sent: now, bytes, first_record, records, ..FrameInFlight::default() };
        self.in_flight.insert(seq);
        self.bytes += u64::from(bytes);
        self.next = seq.wrapping_add(1);
        self.settle_oldest_losses();
        seq
    }

    /// Processes ACK and the SACK words of a peer's header. Numbers that were never sent, or are settled, change
    /// nothing.
    pub(super) fn acknowledge(
        &mut self,
        ack: u32,
        words: impl Iterator<Item = u64>,
        acked: &mut impl FnMut(R),
    ) -> AckProgress {
        let mut progress = AckProgress::default();
        let mut at = self.base;
        while is_before(at, ack) {
            let bits = match ack.wrapping_sub(at) {
                few @ 0..64 => (1 << few) - 1,
                _ => u64::MAX,
            };
            self.acknowledge_word(at, bits, &mut progress, acked);
            at = at.wrapping_add(64);
        }
        let mut at = ack.wrapping_add(1);
        for bits in words {
            self.acknowledge_word(at, bits, &mut progress, acked);
            at = at.wrapping_add(64);
        }
        if let Some(seq) = progress.revived_one {
            let frame = self.frame(seq);
            progress.is_hasty = frame.is_timed_out && !is_before(frame.lost_at, self.highest);
        }
        progress
    }

    /// Records that the numbers `start + i` have arrived, for each bit `i`.
    fn acknowledge_word(
        &mut self,
        start: u32,
        bits: u64,
        progress: &mut AckProgress,
        acked: &mut impl FnMut(R),
    ) {
        let bits = self.mask_unsettled(start, bits);
        let mut fresh = bits & self.in_flight.word(start);
        let mut late = bits & self.lost.word(start);
        while fresh != 0 {
            let seq = start.wrapping_add(fresh.trailing_zeros());
            fresh &= fresh - 1;
            self.acknowledge_frame(seq, progress, acked);
        }
        while late != 0 {
            let seq = start.wrapping_add(late.trailing_zeros());
            late &= late - 1;
            self.revive(seq, progress);
        }
    }

    /// Masks the bits whose numbers are settled or not yet sent.
    fn mask_unsettled(&self, start: u32, bits: u64) -> u64 {
        let settled = self.base.wrapping_sub(start).cast_signed();
        let sent = self.next.wrapping_sub(start).cast_signed();
        if settled >= 64 || sent <= 0 {
            return 0;
        }
        let from = if settled > 0 { u64::MAX << settled } else { u64::MAX };
        let to = if sent < 64 { (1 << sent) - 1 } else { u64::MAX };
        bits & from & to
    }

    fn acknowledge_frame(
        &mut self,
        seq: u32,
        progress: &mut AckProgress,
        acked: &mut impl FnMut(R),
    ) {
        self.in_flight.remove(seq);
        let frame = *self.frame(seq);
        self.bytes -= u64::from(frame.bytes);
        progress.frames += 1;
        progress.bytes += u64::from(frame.bytes);
        let start = frame.first_record.wrapping_sub(self.first_record) as usize;
        self.records.range(start..start + frame.records as usize).copied().for_each(acked);
        if !is_before(seq, self.highest) {
            self.highest = seq.wrapping_add(1);
            progress.newest_sent = Some(frame.sent);
        }
    }

    fn revive(&mut self, seq: u32, progress: &mut AckProgress) {
        self.lost.remove(seq);
        progress.revived += 1;
        progress.revived_one = Some(seq);
        if !is_before(seq, self.highest) {
            self.highest = seq.wrapping_add(1);
        } else if !self.frame(seq).is_timed_out {
            progress.distance = progress.distance.max(self.highest.wrapping_sub(seq) - 1);
        }
    }

    /// Counts frames as lost that at least `threshold` later ones have overtaken, if they were sent `age` ago. Passes
    /// each number and the round trip of its neighbours to `lost`.
    pub(super) fn find_overtaken(
        &mut self,
        now: Instant,
        threshold: u32,
        age: Duration,
        mut lost: impl FnMut(u32, Option<Duration>),
    ) {
        if is_before(self.examined, self.base) {
            self.examined = self.base;
        }
        let end = self.highest.wrapping_sub(threshold);
        while let Some(seq) = self.in_flight.first(self.examined, end) {
            self.examined = seq;
            if now.since(self.frame(seq).sent) < age {
                return;
            }
            self.count_lost(seq, false);
            lost(seq, self.measured_near(seq));
        }
        if is_before(self.examined, end) {
            self.examined = end;
        }
    }

    /// Send time of the oldest frame in flight that a later one has overtaken.
    pub(super) fn oldest_overtaken_sent(&self) -> Option<Instant> {
        let oldest = self.in_flight.first(self.base, self.highest)?;
        Some(self.frame(oldest).sent)
    }

    /// Counts frames as lost that any later one has overtaken, if they were sent `age` ago. Passes each number and
    /// the round trip of its neighbours to `lost`.
    pub(super) fn find_overdue(
        &mut self,
        now: Instant,
        age: Duration,
        mut lost: impl FnMut(u32, Option<Duration>),
    ) {
        while let Some(seq) = self.in_flight.first(self.base, self.highest)
            && now.since(self.frame(seq).sent) >= age
        {
            self.count_lost(seq, false);
            lost(seq, self.measured_near(seq));
        }
    }

    /// Counts the oldest frame as lost, after its timeout.
    pub(super) fn time_out(&mut self) -> Option<u32> {
        let oldest = self.in_flight.first(self.base, self.next)?;
        self.count_lost(oldest, true);
        Some(oldest)
    }

    fn count_lost(&mut self, seq: u32, is_timed_out: bool) {
        self.in_flight.remove(seq);
        self.lost.insert(seq);
        let next = self.next;
        let frame = self.frame_mut(seq);
        (frame.lost_at, frame.is_timed_out) = (next, is_timed_out);
        let frame = *frame;
        self.bytes -= u64::from(frame.bytes);
        let start = frame.first_record.wrapping_sub(self.first_record) as usize;
        self.lost_records.extend(self.records.range(start..start + frame.records as usize));
        self.settle_oldest_losses();
    }

    /// Settles confirmed losses: a frame that was sent after the loss was detected has arrived. Passes each to
    /// `confirmed`.
    pub(super) fn settle_losses(&mut self, mut confirmed: impl FnMut(u32, bool)) {
        let mut at = self.base;
        while let Some(seq) = self.lost.first(at, self.next) {
            let frame = self.frame(seq);
            if is_before(frame.lost_at, self.highest) {
                confirmed(seq, frame.is_timed_out);
                self.lost.remove(seq);
            }
            at = seq.wrapping_add(1);
        }
        self.advance();
    }

    /// Settles the oldest losses, so that they do not block the window.
    fn settle_oldest_losses(&mut self) {
        while self.next.wrapping_sub(self.base) > LOST_SPAN_MAX && self.lost.remove(self.base) {
            self.advance();
        }
    }

    fn advance(&mut self) {
        if self.base == self.next {
            return;
        }
        let in_flight = self.in_flight.first(self.base, self.next).unwrap_or(self.next);
        self.base = self.lost.first(self.base, in_flight).unwrap_or(in_flight);
        let settled = if self.base == self.next {
            self.records.len()
        } else {
            self.frame(self.base).first_record.wrapping_sub(self.first_record) as usize
        };
        self.records.drain(..settled);
        self.first_record = self.first_record.wrapping_add(settled as u32);
    }
}
