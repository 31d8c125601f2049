//! The host: lanes of requests, each with a queue pair while the target knows it.

use super::net::{Net, Packet};
use super::plan::{Plan, Sending};
use super::target::Joined;
use crate::load::{Load, Request};
use crate::network::End;
use crate::rng::Rng;
use core::time::Duration;
use roadtrain_proto::ether::channel::ChannelConfig;
use roadtrain_proto::ether::frame_writer::MemoryWriter;
use roadtrain_proto::ether::host::{Config, Qpair, RxEvent};
use roadtrain_proto::ether::links::Links;
use roadtrain_proto::host::requests::{Ended, Outcome, Queue, Requests};
use roadtrain_proto::host::retry::RetryRules;
use roadtrain_proto::time::Instant;
use roadtrain_wire::ether::setup::Reason;
use roadtrain_wire::ether::{FrameHeader, FrameType, parse};

/// What Query takes, and a pause before a new lane is tried.
const RETRY_AFTER: Duration = Duration::from_millis(1);
/// Longest data of a request.
pub const DATA_BYTES_MAX: u32 = 1 << 17;

/// What the host proposes for a lane.
pub struct Proposal {
    /// Its token.
    pub token: u64,
    /// Its socket number.
    pub socket_number: u16,
    /// Its first SEQ of each link.
    pub firsts: Vec<u32>,
}

struct Lane {
    qpair: Option<Qpair>,
    socket_number: u16,
    requests: Requests<Request>,
    /// The next request comes then.
    next_at: Instant,
    retry_at: Instant,
    /// The target's token for the last lane.
    old: Option<u64>,
}

/// What a host has been through.
#[derive(Clone, Copy, Debug, Default)]
pub struct Past {
    /// Lanes that were made.
    pub lanes: u64,
    /// Requests submitted again in another lane.
    pub retries: u64,
    /// Octets that were no frame, or of no lane.
    pub foreign: u64,
}

/// The host.
pub struct Host {
    plan: Plan,
    rng: Rng,
    lanes: Vec<Lane>,
    /// Counts.
    pub past: Past,
}

impl Host {
    /// A host without lanes.
    #[must_use]
    pub fn new(plan: &Plan, rng: Rng) -> Self {
        let lane = || Lane {
            qpair: None,
            socket_number: 0,
            requests: Requests::new(plan.queue_entries, None),
            next_at: Instant(0),
            retry_at: Instant(0),
            old: None,
        };
        let lanes = (0..plan.lanes).map(|_| lane()).collect();
        Host { plan: plan.clone(), rng, lanes, past: Past::default() }
    }

    // ---- Lanes come and go ----

    /// A lane that is to be made now: its number, the target's token for the one before, and what the host
    /// says.
    pub fn wants_lane(&mut self, now: Instant) -> Option<(usize, Option<u64>, Proposal)> {
        let due = |lane: &Lane| lane.qpair.is_none() && lane.retry_at <= now;
        let number = self.lanes.iter().position(due)?;
        let lane = &mut self.lanes[number];
        lane.retry_at = now + RETRY_AFTER;
        let rng = &mut self.rng;
        let proposal = Proposal {
            token: rng.bits() & !0xffff | number as u64,
            socket_number: rng.between(1, 0xffff) as u16,
            firsts: self.plan.links.iter().map(|_| first_seq(rng)).collect(),
        };
        Some((number, lane.old, proposal))
    }

    /// The lane is made.
    pub fn attach(&mut self, now: Instant, number: usize, ours: &Proposal, theirs: &Joined) {
        let Plan { queue_entries, pages, piece_bytes, body_crc, host, .. } = self.plan;
        let mut links = Links::new(ours.token, theirs.token, ours.socket_number);
        for (link, plan) in (0..).zip(&self.plan.links) {
            let config = ChannelConfig {
                link,
                first_tx: ours.firsts[usize::from(link)],
                first_rx: theirs.firsts[usize::from(link)],
                window: theirs.window,
                frame_bytes: plan.frame_bytes,
            };
            assert!(links.add(now, &config, theirs.socket_number));
        }
        let config = Config {
            queue_entries,
            pages,
            piece_bytes,
            data_bytes_max: DATA_BYTES_MAX,
            policy: host.policy,
            packing: host.packing,
            body_crc,
        };
        let lane = &mut self.lanes[number];
        lane.qpair = Some(Qpair::new(config, links));
        (lane.socket_number, lane.old) = (ours.socket_number, Some(theirs.token));
        self.past.lanes += 1;
        self.past.retries += lane.requests.waiting() as u64;
        lane.requests.attach(RetryRules::default());
        lane.resume(now);
    }

    /// Lanes with a suspect link, and the target's token: it is asked whether it knows them.
    pub fn doubts(&self) -> Vec<(usize, u64)> {
        let lanes = self.lanes.iter().enumerate();
        let doubts = lanes.filter_map(|(number, lane)| {
            let links = lane.qpair.as_ref()?.links();
            links.has_suspect().then(|| (number, links.peer_token()))
        });
        doubts.collect()
    }

    /// The lane is over; its requests wait for the next.
    pub fn detach(&mut self, now: Instant, number: usize) {
        let lane = &mut self.lanes[number];
        lane.qpair = None;
        lane.retry_at = now + RETRY_AFTER;
        lane.requests.detach();
    }

    /// The host ends a lane: the requests are taken back at once, with their buffers.
    pub fn leave(&mut self, now: Instant, net: &mut Net) {
        let number = self.rng.below(self.lanes.len() as u64) as usize;
        let sending = self.plan.host;
        let lane = &mut self.lanes[number];
        lane.requests.detach();
        if let Some(qpair) = &mut lane.qpair {
            qpair.leave(Reason::Done);
            lane.send(now, sending, net);
            self.detach(now, number);
        }
    }

    /// Lanes move to other socket numbers.
    pub fn change_socket_numbers(&mut self) {
        for lane in &mut self.lanes {
            lane.socket_number = self.rng.between(1, 0xffff) as u16;
            if let Some(qpair) = &mut lane.qpair {
                qpair.links_mut().set_socket_number(lane.socket_number);
            }
        }
    }

    /// Every lane says that it has so much room.
    pub fn set_credits(&mut self, now: Instant, credits: u16) {
        let qpairs = self.lanes.iter_mut().filter_map(|lane| lane.qpair.as_mut());
        qpairs.for_each(|qpair| qpair.links_mut().set_credits(now, credits));
    }

    /// A link's carrier has come or gone.
    pub fn set_carrier(&mut self, now: Instant, link: u8, has_carrier: bool) {
        let qpairs = self.lanes.iter_mut().filter_map(|lane| lane.qpair.as_mut());
        qpairs.for_each(|qpair| qpair.links_mut().set_carrier(now, link, has_carrier));
    }

    // ---- Turns ----

    /// One turn: everything that has arrived or is due by now.
    ///
    /// # Errors
    /// What may not be.
    pub fn turn(&mut self, now: Instant, net: &mut Net, load: &mut Load) -> Result<(), String> {
        for (_, packet) in net.receive(now, End::Host) {
            let Packet::Frame(octets) = packet else { continue };
            self.receive(now, &octets, load)?;
        }
        for number in 0..self.lanes.len() {
            self.submit(now, number, load);
            let lane = &mut self.lanes[number];
            lane.send(now, self.plan.host, net);
            if lane.qpair.as_ref().is_some_and(|qpair| qpair.ended().is_some()) {
                self.detach(now, number);
            }
        }
        Ok(())
    }

    fn receive(&mut self, now: Instant, octets: &[u8], load: &mut Load) -> Result<(), String> {
        let frame = parse(octets).ok();
        let lane = frame.and_then(|(header, ..)| {
            let token = header.token.get();
            let is_its = |lane: &&mut Lane| {
                let qpair = lane.qpair.as_ref();
                lane.socket_number == header.socket_number.get()
                    && qpair.is_some_and(|q| q.links().token() == token)
            };
            self.lanes.iter_mut().find(is_its)
        });
        let (Some((header, kind, body)), Some(lane)) = (frame, lane) else {
            self.past.foreign += 1;
            return Ok(());
        };
        lane.receive(now, &header, kind, body, load)
    }

    /// New requests of a lane: one, or a burst, then a pause that makes up for it.
    fn submit(&mut self, now: Instant, number: usize, load: &mut Load) {
        let lane = &mut self.lanes[number];
        if now >= Instant(0) + self.plan.chaos || now < lane.next_at {
            return;
        }
        let most = if self.rng.chance(70) { 1 } else { self.plan.depth as u64 };
        for _ in 0..self.rng.between(1, most) {
            lane.next_at += self.rng.micros(0, 2 * self.plan.pause.as_micros() as u64);
            let qpair = lane.qpair.as_ref();
            let outstanding = lane.requests.outstanding(qpair) as usize;
            if outstanding < self.plan.depth && lane.requests.room(qpair) > 0 {
                lane.requests.take(now, load.request(0), lane.qpair.as_mut());
            }
        }
        lane.resume(now);
        lane.next_at = lane.next_at.max(now + Duration::from_nanos(1));
    }

    /// When something is due.
    #[must_use]
    pub fn next_at(&self, now: Instant) -> Option<Instant> {
        let has_load = now < Instant(0) + self.plan.chaos;
        let lanes = self.lanes.iter().flat_map(|lane| {
            let next = has_load.then_some(lane.next_at);
            let retry = lane.qpair.is_none().then_some(lane.retry_at);
            let qpair = lane.qpair.as_ref().and_then(Qpair::deadline);
            let rests = lane.requests.deadline(0).filter(|_| lane.qpair.is_some());
            [next, retry, qpair, rests].into_iter().flatten()
        });
        lanes.min()
    }

    /// Commands that occupy slots, and requests that wait.
    #[must_use]
    pub fn held(&self) -> (u32, usize) {
        let qpairs = self.lanes.iter().filter_map(|lane| lane.qpair.as_ref());
        let slots = qpairs.map(Qpair::in_flight).sum();
        (slots, self.lanes.iter().map(Lane::waiting).sum())
    }

    /// For the report of a failure.
    #[must_use]
    pub fn state(&self) -> String {
        let (slots, pending) = self.held();
        let attached = self.lanes.iter().filter(|lane| lane.qpair.is_some()).count();
        let lanes = self.lanes.iter().filter_map(|lane| lane.qpair.as_ref());
        let lanes: Vec<String> = lanes.map(|qpair| describe(qpair.links())).collect();
        format!("host: {slots} slots, {pending} pending, {attached} lanes: {}", lanes.join("; "))
    }
}

/// A lane's links, for the report of a failure.
pub(super) fn describe<R: Copy>(links: &Links<R>) -> String {
    let link = |link| {
        let suspect = links.channel(link).is_some_and(|channel| channel.is_suspect());
        format!("link {link} suspect {suspect} {:?}", links.stats(link))
    };
    let described: Vec<String> = links.numbers().map(link).collect();
    format!("{:x} {}, due {:?}", links.token(), described.join(", "), links.deadline())
}

/// A first SEQ: near the end of the numbers every other time.
pub fn first_seq(rng: &mut Rng) -> u32 {
    if rng.chance(50) { 0u32.wrapping_sub(rng.between(0, 2000) as u32) } else { rng.bits() as u32 }
}

impl Queue<Request> for Qpair {
    fn room(&self) -> u32 {
        Qpair::room(self)
    }

    fn in_flight(&self) -> u32 {
        Qpair::in_flight(self)
    }

    fn submit(&mut self, now: Instant, request: &mut Request) -> Option<u16> {
        Qpair::submit(self, now, &request.sqe, request.data, request.urgency)
    }
}

impl Lane {
    /// Requests without a slot.
    fn waiting(&self) -> usize {
        let slots = self.qpair.as_ref().map_or(0, Qpair::in_flight);
        (self.requests.outstanding(self.qpair.as_ref()) - slots) as usize
    }

    fn resume(&mut self, now: Instant) {
        if let Some(qpair) = &mut self.qpair {
            self.requests.resume(now, qpair);
        }
    }

    fn receive(
        &mut self,
        now: Instant,
        header: &FrameHeader,
        kind: FrameType,
        body: &[u8],
        load: &mut Load,
    ) -> Result<(), String> {
        let Lane { qpair: Some(qpair), requests, .. } = self else { return Ok(()) };
        let mut completed = Vec::new();
        qpair.receive(now, header, kind, body, &mut |event| match event {
            RxEvent::Data { slot, offset, start, length } => {
                let request = requests.get_mut(slot).expect("data for a request");
                request.buffer[offset as usize..][..length as usize]
                    .copy_from_slice(&body[start..][..length as usize]);
            }
            RxEvent::Complete { slot, cqe, data_intact } => {
                completed.push((slot, cqe, data_intact));
            }
        });
        for (slot, cqe, data_intact) in completed {
            let (token, status) = (self.requests.get(slot).map(|r| r.token), cqe.status());
            let token = token.ok_or("a slot without request has completed")?;
            if status.is_success() && !data_intact {
                return Err(format!("request {token}: success without data"));
            }
            match self.requests.end(now, slot, status, data_intact) {
                Some(Outcome::Ended(Ended { request, status, .. })) => {
                    let told = load.complete(token, status, &request.buffer);
                    told.map_err(|what| format!("request {token}: {what}"))?;
                }
                Some(Outcome::Rests { .. }) => load.tally.repeated += 1,
                None => return Err(format!("request {token}: gone")),
            }
        }
        self.resume(now);
        Ok(())
    }

    /// Sends what may be sent.
    fn send(&mut self, now: Instant, sending: Sending, net: &mut Net) {
        let Lane { qpair: Some(qpair), requests, .. } = self else { return };
        qpair.expire(now);
        qpair.batcher().drained(now);
        loop {
            let mut writer = MemoryWriter::new(sending.frames_per_send, |slot, out, offset| {
                let request = requests.get(slot).expect("data of a request");
                let data = &request.buffer[offset as usize..];
                out.copy_from_slice(&data[..out.len()]);
            });
            if !qpair.poll_tx(now, &mut writer) {
                break;
            }
            net.send_frames(now, End::Host, writer.frames);
        }
        assert!(!qpair.has_tx(now), "what may leave is left behind");
    }
}
