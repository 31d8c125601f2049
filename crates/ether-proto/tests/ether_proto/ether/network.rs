//! Two ends that exchange records over links.

use roadtrain_ether_proto::channel::{ACK_BODY_MAX, ChannelConfig, FrameArrival, WINDOW};
use roadtrain_ether_proto::links::LaneLinks;
use roadtrain_proto::time::Instant;
use roadtrain_wire::ether::{FrameHeader, FrameType};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::time::Duration;

/// Bytes of a frame that carries records.
pub(crate) const FRAME_BYTES: u16 = 4352;

/// Pseudo-random numbers.
#[derive(Clone)]
pub(crate) struct NetworkRandom(pub u64);

impl NetworkRandom {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    pub(crate) fn is(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// Behaviour of a link.
#[derive(Clone, Debug)]
pub(crate) struct Cable {
    pub(crate) loss_percent: u64,
    pub(crate) repeat_percent: u64,
    pub(crate) delay_us: u64,
    /// Additional random delay up to this, so that frames overtake each other.
    pub(crate) jitter_us: u64,
    /// Transmission time of a byte in nanoseconds; 0 for none.
    pub(crate) byte_ns: u64,
    /// Most bytes in the queue.
    pub(crate) queue_bytes: u64,
    /// Period without any delivery, in milliseconds.
    pub(crate) cut_ms: (u64, u64),
}

impl Cable {
    pub(crate) fn perfect() -> Self {
        Cable {
            loss_percent: 0,
            repeat_percent: 0,
            delay_us: 20,
            jitter_us: 0,
            byte_ns: 0,
            queue_bytes: u64::MAX,
            cut_ms: (0, 0),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RecordState {
    Waiting,
    InFlight,
    Acknowledged,
}

/// A frame in flight.
#[derive(Clone)]
pub(crate) struct NetworkFrame {
    pub(crate) header: FrameHeader,
    pub(crate) body: Vec<u8>,
    pub(crate) records: Vec<u32>,
    pub(crate) bytes: u32,
}

pub(crate) struct NetworkEnd {
    pub(crate) links: LaneLinks<u32>,
    /// States of this end's records.
    states: Vec<RecordState>,
    waiting: VecDeque<u32>,
    /// Number of accepted arrivals of each of the peer's records.
    arrived: Vec<u32>,
    records_per_frame: usize,
    in_flight_max: usize,
    in_flight: usize,
}

impl NetworkEnd {
    fn new(id: u64, records: usize, cables: &[Cable]) -> Self {
        let mut links = LaneLinks::new(id, 3 - id, 0);
        for link in 0..cables.len() as u8 {
            // Starts low enough that numbers wrap.
            let first = |id: u64| (id as u32).wrapping_mul(7).wrapping_sub(40);
            let config = ChannelConfig {
                link,
                first_tx: first(id),
                first_rx: first(3 - id),
                window: WINDOW as u16,
                frame_bytes: FRAME_BYTES,
            };
            assert!(links.add(Instant(0), &config, 9));
        }
        NetworkEnd {
            links,
            states: vec![RecordState::Waiting; records],
            waiting: (0..records as u32).collect(),
            arrived: Vec::new(),
            records_per_frame: 3,
            in_flight_max: usize::MAX,
            in_flight: 0,
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.states.iter().all(|&state| state == RecordState::Acknowledged)
    }

    /// Receives a frame.
    pub(crate) fn receive(&mut self, now: Instant, frame: &NetworkFrame) -> FrameArrival {
        let NetworkEnd { links, states, in_flight, .. } = self;
        let acked = &mut |record: u32| {
            let state = &mut states[record as usize];
            assert_eq!(*state, RecordState::InFlight, "record {record} is acknowledged");
            *state = RecordState::Acknowledged;
            *in_flight -= 1;
        };
        let arrival = links.receive(now, &frame.header, &frame.body, acked);
        if arrival == FrameArrival::New {
            for &record in &frame.records {
                self.arrived[record as usize] += 1;
            }
        }
        arrival
    }

    /// Returns the next frame to send.
    pub(crate) fn poll(&mut self, now: Instant) -> Option<NetworkFrame> {
        while let Some(record) = self.links.next_lost() {
            assert_eq!(
                self.states[record as usize],
                RecordState::InFlight,
                "record {record} is lost"
            );
            self.states[record as usize] = RecordState::Waiting;
            self.waiting.push_front(record);
            self.in_flight -= 1;
        }
        let has_work = !self.waiting.is_empty() && self.in_flight < self.in_flight_max;
        let bytes = FRAME_BYTES.into();
        if let Some(link) = has_work.then(|| self.links.choose(now, bytes)).flatten() {
            let count = self.records_per_frame.min(self.waiting.len());
            let records: Vec<u32> = self.waiting.drain(..count).collect();
            records.iter().for_each(|&record| self.states[record as usize] = RecordState::InFlight);
            self.in_flight += count;
            let header = self.links.send(now, link, bytes, &records);
            return Some(NetworkFrame { header, body: Vec::new(), records, bytes });
        }
        let (link, requests_ack) = self.links.ack_due(now)?;
        let mut body = vec![0; ACK_BODY_MAX];
        let length = self.links.ack_body(link, &mut body);
        body.truncate(length);
        let bytes = (64 + body.len()) as u32;
        let header = self.links.send_ack(now, link, bytes, requests_ack);
        Some(NetworkFrame { header, body, records: Vec::new(), bytes })
    }
}

type ArrivalEvent = Reverse<(u64, u64)>;

/// Both ends and the network between them.
pub(crate) struct NetworkWorld {
    pub(crate) now: Instant,
    pub(crate) ends: [NetworkEnd; 2],
    cables: Vec<Cable>,
    /// Time from which on each direction of each link is idle.
    free_at: Vec<[u64; 2]>,
    random: NetworkRandom,
    events: BinaryHeap<ArrivalEvent>,
    frames: BTreeMap<u64, (usize, NetworkFrame)>,
    count: u64,
    is_recorded: bool,
    delivered: Vec<(usize, NetworkFrame)>,
}

impl NetworkWorld {
    pub(crate) fn new(seed: u64, records: [usize; 2], cables: &[Cable]) -> Self {
        let mut ends =
            [NetworkEnd::new(1, records[0], cables), NetworkEnd::new(2, records[1], cables)];
        ends[0].arrived = vec![0; records[1]];
        ends[1].arrived = vec![0; records[0]];
        NetworkWorld {
            now: Instant(0),
            ends,
            cables: cables.to_vec(),
            free_at: vec![[0; 2]; cables.len()],
            random: NetworkRandom(seed),
            events: BinaryHeap::new(),
            frames: BTreeMap::new(),
            count: 0,
            is_recorded: false,
            delivered: Vec::new(),
        }
    }

    /// Sets the records in a frame, and the limit of records in flight at each end.
    pub(crate) fn set_depth(&mut self, records_per_frame: usize, in_flight_max: usize) {
        for end in &mut self.ends {
            (end.records_per_frame, end.in_flight_max) = (records_per_frame, in_flight_max);
        }
    }

    /// Sends a frame over its link.
    fn transmit(&mut self, from: usize, frame: &NetworkFrame) {
        let number = usize::from(frame.header.link);
        let cable = &self.cables[number];
        let now = self.now.0;
        let ms = now / 1_000_000;
        let bytes = u64::from(frame.bytes);
        let free_at = &mut self.free_at[number][from];
        let queued = free_at.saturating_sub(now) / cable.byte_ns.max(1);
        if (cable.cut_ms.0..cable.cut_ms.1).contains(&ms)
            || self.random.is(cable.loss_percent)
            || queued + bytes > cable.queue_bytes
        {
            return;
        }
        *free_at = (*free_at).max(now) + bytes * cable.byte_ns;
        let (start, delay_us, jitter_us) = (*free_at, cable.delay_us, cable.jitter_us);
        let copies = 1 + u64::from(self.random.is(cable.repeat_percent));
        for _ in 0..copies {
            let at = start + (delay_us + self.random.below(jitter_us + 1)) * 1000;
            self.count += 1;
            self.events.push(Reverse((at, self.count)));
            self.frames.insert(self.count, (1 - from, frame.clone()));
        }
    }

    /// Advances to the next event. Returns false if there is none.
    pub(crate) fn step(&mut self) -> bool {
        for from in 0..2 {
            while let Some(frame) = self.ends[from].poll(self.now) {
                assert!(frame.header.kind != FrameType::Ack as u8 || frame.records.is_empty());
                self.transmit(from, &frame);
            }
        }
        let next_event = self.events.peek().map(|&Reverse((at, _))| at);
        let deadlines = self.ends.iter().filter_map(|end| end.links.deadline()).map(|at| at.0);
        let Some(next) = deadlines.chain(next_event).min() else { return false };
        self.now = Instant(next.max(self.now.0));
        while let Some(&Reverse((at, id))) = self.events.peek()
            && at <= self.now.0
        {
            self.events.pop();
            let (to, frame) = self.frames.remove(&id).expect("a frame for each event");
            self.ends[to].receive(self.now, &frame);
            if self.is_recorded {
                self.delivered.push((to, frame));
            }
        }
        self.ends.iter_mut().for_each(|end| end.links.expire(self.now));
        self.check();
        true
    }

    fn check(&self) {
        if self.count.is_multiple_of(1024) {
            self.check_records();
        }
        for end in &self.ends {
            for link in end.links.numbers() {
                let stats = end.links.stats(link).expect("a link");
                assert!(stats.in_flight <= WINDOW && stats.window <= WINDOW);
            }
        }
    }

    /// Asserts that every acknowledged record has arrived.
    fn check_records(&self) {
        for (end, peer) in [(0, 1), (1, 0)] {
            let (end, peer) = (&self.ends[end], &self.ends[peer]);
            let has_arrived = |(state, &times): (&RecordState, &u32)| {
                assert!(
                    *state != RecordState::Acknowledged || times > 0,
                    "acknowledged, not arrived"
                );
            };
            end.states.iter().zip(&peer.arrived).for_each(has_arrived);
        }
    }

    /// Returns the frames that have arrived since the last call, and the receiving end of each.
    pub(crate) fn delivered(&mut self) -> Vec<(usize, NetworkFrame)> {
        self.is_recorded = true;
        std::mem::take(&mut self.delivered)
    }

    /// True if all records are acknowledged.
    pub(crate) fn is_done(&self) -> bool {
        self.ends.iter().all(NetworkEnd::is_done)
    }

    /// Runs until all records are acknowledged. Returns the duration.
    pub(crate) fn run(&mut self, longest: Duration) -> Duration {
        let mut steps = 0u64;
        let mut last = self.now;
        while !self.is_done() {
            assert!(self.step(), "nothing will ever happen");
            assert!(self.now.0 < longest.as_nanos() as u64, "takes too long");
            steps = if self.now == last { steps + 1 } else { 0 };
            assert!(steps < 1000, "time stands still at {:?}", self.now);
            last = self.now;
        }
        self.ends.iter().for_each(|end| assert_eq!(end.in_flight, 0));
        self.check_records();
        self.now.since(Instant(0))
    }
}
