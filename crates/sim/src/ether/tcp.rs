//! A TCP connection with endless data that shares a link, complete enough to be a fair neighbour: CUBIC with Reno's
//! growth as the minimum (RFC 9438), selective acknowledgement, fast retransmit, timeouts.

use super::net::Net;
use super::packet::{NeighbourSegment, Packet};
use crate::ends::ConnEnd;
use core::time::Duration;
use roadtrain_proto::time::Instant;
use std::collections::{BTreeMap, BTreeSet};

const C: f64 = 0.4;
const BETA: f64 = 0.7;
const TIMEOUT_MIN: Duration = Duration::from_millis(200);

/// A connection that sends from one end to the other.
pub struct NeighbourConnection {
    link: u8,
    from: ConnEnd,
    segment_bytes: u64,
    window: f64,
    threshold: f64,
    plateau: f64,
    reno: f64,
    cut_at: Option<Instant>,
    next: u64,
    /// Number of the first segment sent after the last cut: earlier ones cause no second cut.
    recovery: u64,
    flying: BTreeMap<u64, Instant>,
    again: BTreeSet<u64>,
    smoothed: Duration,
    quickest: Duration,
    timeout_at: Option<Instant>,
    received: BTreeSet<u64>,
    before: u64,
    /// Bytes that have arrived in order.
    pub delivered: u64,
}

impl NeighbourConnection {
    /// Makes an idle connection.
    #[must_use]
    pub fn new(link: u8, from: ConnEnd, segment_bytes: u64) -> Self {
        NeighbourConnection {
            link,
            from,
            segment_bytes,
            window: 10.0,
            threshold: f64::INFINITY,
            plateau: 0.0,
            reno: 0.0,
            cut_at: None,
            next: 0,
            recovery: 0,
            flying: BTreeMap::new(),
            again: BTreeSet::new(),
            smoothed: Duration::from_millis(1),
            quickest: Duration::MAX,
            timeout_at: None,
            received: BTreeSet::new(),
            before: 0,
            delivered: 0,
        }
    }

    /// Receives a segment at an end.
    pub fn receive(&mut self, now: Instant, net: &mut Net, segment: &NeighbourSegment) {
        match *segment {
            NeighbourSegment::Data { number, bytes } => {
                if number >= self.before && self.received.insert(number) {
                    self.delivered += bytes;
                }
                while self.received.remove(&self.before) {
                    self.before += 1;
                }
                let ack = NeighbourSegment::Ack { number, before: self.before };
                net.send(now, self.link, self.from.peer(), Packet::Segment(ack));
            }
            NeighbourSegment::Ack { number, before } => {
                self.acknowledged(now, number, before);
                self.send(now, net);
            }
        }
    }

    fn acknowledged(&mut self, now: Instant, number: u64, before: u64) {
        if let Some(sent) = self.flying.get(&number) {
            let rtt = now.since(*sent);
            self.smoothed = (self.smoothed * 7 + rtt) / 8;
            self.quickest = self.quickest.min(rtt);
        }
        let rest = self.flying.split_off(&before);
        let mut count = self.flying.len();
        self.flying = rest;
        count += usize::from(self.flying.remove(&number).is_some());
        self.again.retain(|&lost| lost >= before && lost != number);
        for _ in 0..count {
            self.grow(now);
        }
        if count > 0 {
            self.timeout_at = Some(now + self.timeout());
        }
        // Three later segments have arrived: the segment is lost.
        let lost: Vec<u64> =
            self.flying.range(..number.saturating_sub(2)).map(|(&n, _)| n).collect();
        for number in lost {
            // A recent retransmission is still in flight.
            if now.since(self.flying[&number]) > self.smoothed {
                self.flying.remove(&number);
                self.again.insert(number);
                self.cut(now, number);
            }
        }
    }

    fn timeout(&self) -> Duration {
        (self.smoothed * 2).max(TIMEOUT_MIN)
    }

    fn grow(&mut self, now: Instant) {
        // HyStart: the queue has begun to fill.
        let is_queue =
            self.smoothed > self.quickest + (self.quickest / 8).max(Duration::from_micros(500));
        if self.window < self.threshold {
            self.window += 1.0;
            if is_queue && self.window > 16.0 {
                self.threshold = self.window;
            }
            return;
        }
        let cut_at = *self.cut_at.get_or_insert(now);
        let plateau_s = ((self.plateau - self.plateau * BETA).max(0.0) / C).cbrt();
        let seconds = (now.since(cut_at) + self.smoothed).as_secs_f64();
        let target = C * (seconds - plateau_s).powi(3) + self.plateau;
        let target = target.clamp(self.window, self.window * 1.5);
        self.reno += 3.0 * (1.0 - BETA) / (1.0 + BETA) / self.window;
        self.window = (self.window + (target - self.window) / self.window).max(self.reno);
    }

    fn cut(&mut self, now: Instant, number: u64) {
        if number < self.recovery {
            return;
        }
        let is_lower = self.window < self.plateau;
        self.plateau = if is_lower { self.window * (1.0 + BETA) / 2.0 } else { self.window };
        self.window = (self.window * BETA).max(2.0);
        (self.threshold, self.reno) = (self.window, self.window);
        (self.cut_at, self.recovery) = (Some(now), self.next);
    }

    /// Sends what the window permits.
    pub fn send(&mut self, now: Instant, net: &mut Net) {
        if self.timeout_at.is_some_and(|at| at <= now) {
            let flying = std::mem::take(&mut self.flying);
            self.again.extend(flying.into_keys());
            self.cut(now, self.recovery);
            self.window = 1.0;
            self.timeout_at = None;
        }
        while (self.flying.len() as f64) < self.window {
            let number = self.again.pop_first().unwrap_or_else(|| {
                self.next += 1;
                self.next - 1
            });
            self.flying.insert(number, now);
            let segment = NeighbourSegment::Data { number, bytes: self.segment_bytes };
            net.send(now, self.link, self.from, Packet::Segment(segment));
        }
        self.timeout_at.get_or_insert(now + self.timeout());
    }

    /// Returns the time of its next event.
    #[must_use]
    pub fn next_at(&self) -> Option<Instant> {
        self.timeout_at
    }
}
