//! Batching under virtual time: load x policy -> doorbells an I/O by cause, requests a caravan, latency. Held work
//! always has a deadline.

#[path = "../../../proto/examples/toy_policy.rs"]
#[allow(dead_code, reason = "an example has a main function")]
mod toy_policy;

use crate::cases::cases;
use crate::common::{BLOCK, ConnectionPair, Delivery, PairSetup, show};
use proptest::prelude::*;
use roadtrain_proto::caravan::CaravanLimits;
use roadtrain_proto::policy::{
    Batcher, DoorbellTotals, Freight, PduInfo, PduKind, PinofSettings, PolicyConfig, PolicyKind,
    PolicyRole, TycheSettings, Urgency,
};
use roadtrain_proto::time::Instant;
use roadtrain_wire::pdu::Digests;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// One-way delay of the network.
const TRIP: Duration = Duration::from_micros(10);
const REQUESTS: u32 = 2000;
const BLOCKS: u32 = 8;

/// Arrival pattern of requests.
#[derive(Clone, Copy, Debug)]
enum PolicyLoad {
    /// Requests that are always outstanding.
    Closed { depth: u32 },
    /// Requests submitted at once; the next ones follow when all are complete.
    Burst { size: u32 },
    /// Interval between requests, in microseconds.
    Open { every_us: u64 },
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PolicyEvent {
    AtTarget(Vec<u8>),
    AtHost(Vec<u8>),
    Arrival,
    Timer,
}

/// A lane under load: the pair, the bytes in flight, and the counts.
struct PolicyLane {
    pair: ConnectionPair,
    load: PolicyLoad,
    events: BTreeMap<(u64, u64), PolicyEvent>,
    event_number: u64,
    /// Times of the scheduled timer events.
    timers: BTreeSet<u64>,
    submitted: u32,
    submitted_at: VecDeque<Instant>,
    outstanding: u32,
    latencies: Vec<Duration>,
    caravans: (u32, u32),
    responses: u32,
}

impl PolicyLane {
    fn new(load: PolicyLoad, policy: PolicyConfig) -> Self {
        let setup =
            PairSetup { entries: 256, sq_flow_control: false, policy, ..PairSetup::default() };
        PolicyLane {
            pair: ConnectionPair::connected(setup),
            load,
            events: BTreeMap::new(),
            event_number: 0,
            timers: BTreeSet::new(),
            submitted: 0,
            submitted_at: VecDeque::new(),
            outstanding: 0,
            latencies: Vec::new(),
            caravans: (0, 0),
            responses: 0,
        }
    }

    fn schedule(&mut self, at: Instant, event: PolicyEvent) {
        self.event_number += 1;
        self.events.insert((at.0, self.event_number), event);
    }

    fn submit(&mut self, count: u32) {
        for _ in 0..count.min(REQUESTS - self.submitted) {
            self.pair.host.read(self.pair.now, 0, BLOCKS);
            self.submitted_at.push_back(self.pair.now);
            self.submitted += 1;
            self.outstanding += 1;
        }
    }

    fn arrivals(&mut self) {
        match self.load {
            PolicyLoad::Closed { depth } => self.submit(depth - self.outstanding),
            PolicyLoad::Burst { size } if self.outstanding == 0 => self.submit(size),
            PolicyLoad::Burst { .. } | PolicyLoad::Open { .. } => {}
        }
    }

    fn handle(&mut self, event: PolicyEvent) {
        let now = self.pair.now;
        match event {
            PolicyEvent::Arrival => {
                self.submit(1);
                if let PolicyLoad::Open { every_us } = self.load
                    && self.submitted < REQUESTS
                {
                    self.schedule(now + Duration::from_micros(every_us), PolicyEvent::Arrival);
                }
            }
            PolicyEvent::Timer => {
                self.timers.remove(&now.0);
            }
            PolicyEvent::AtTarget(bytes) => {
                self.pair.target.receive(now, &bytes, Delivery::Whole).expect("valid");
            }
            PolicyEvent::AtHost(bytes) => {
                self.pair.host.receive(now, &bytes, Delivery::Whole).expect("valid");
                for _ in self.pair.host.take_completions() {
                    self.outstanding -= 1;
                    let at = self.submitted_at.pop_front().expect("submitted before");
                    self.latencies.push(now - at);
                }
                self.arrivals();
            }
        }
    }

    /// Ends a reactor's turn at both ends.
    fn end_turn(&mut self) {
        let now = self.pair.now;
        self.pair.host.qpair.batcher().expire(now);
        self.pair.host.qpair.batcher().drained(now);
        for bytes in self.pair.host.released() {
            self.caravans.0 += 1;
            self.schedule(now + TRIP, PolicyEvent::AtTarget(bytes));
        }
        self.pair.target.qpair.batcher().expire(now);
        self.pair.target.qpair.batcher().drained(now);
        for bytes in self.pair.target.released() {
            self.caravans.1 += 1;
            self.responses += show::pdus(false, &bytes, Digests::default()).len() as u32;
            self.schedule(now + TRIP, PolicyEvent::AtHost(bytes));
        }
        let (host, target) = (self.pair.host.qpair.batcher(), self.pair.target.qpair.batcher());
        assert_wake_up(target, now);
        assert_wake_up(host, now);
        for deadline in [host.deadline(), target.deadline()].into_iter().flatten() {
            if self.timers.insert(deadline.0) {
                self.schedule(deadline, PolicyEvent::Timer);
            }
        }
    }

    fn run(mut self) -> String {
        if let PolicyLoad::Open { .. } = self.load {
            self.schedule(self.pair.now, PolicyEvent::Arrival);
        }
        self.arrivals();
        self.end_turn();
        while let Some(((at, _), event)) = self.events.pop_first() {
            self.pair.now = Instant(at);
            self.handle(event);
            self.end_turn();
        }
        assert_eq!(self.latencies.len(), REQUESTS as usize, "requests were left behind");
        self.row()
    }

    fn row(&mut self) -> String {
        let mean = self.latencies.iter().sum::<Duration>() / REQUESTS;
        let max = self.latencies.iter().max().expect("not empty").as_micros();
        let host = self.pair.host.qpair.batcher().doorbells();
        let target = self.pair.target.qpair.batcher().doorbells();
        let per = |count: u32| f64::from(REQUESTS) / f64::from(count);
        format!(
            "{} | {} | {:5.2} {:5.2} | {:6.1} {max:4}",
            show_doorbells(host),
            show_doorbells(target),
            per(self.caravans.0),
            per(self.caravans.1),
            mean.as_nanos() as f64 / 1000.0,
        )
    }
}

/// Formats the doorbells of a hundred I/Os: size, timer, urgent, drained.
fn show_doorbells(d: DoorbellTotals) -> String {
    let rate = |count: u64| count as f64 * 100.0 / f64::from(REQUESTS);
    let [size, timer, urgent, drained] = [d.size, d.timer, d.urgent, d.drained].map(rate);
    format!("{size:5.1} {timer:5.1} {urgent:5.1} {drained:5.1}")
}

/// Asserts that held work has been released or has a timer in the future.
fn assert_wake_up(batcher: &Batcher, now: Instant) {
    if batcher.backlog().requests > 0 {
        let deadline = batcher.deadline().expect("held work without a wake-up");
        assert!(deadline > now, "the timer was due");
    }
}

fn lifted() -> PolicyConfig {
    let limits = CaravanLimits { count_max: 128, bytes_max: 512 << 10 };
    PolicyConfig { limits, ..PolicyConfig::i10() }
}

fn flat() -> PolicyConfig {
    PolicyConfig { pinof: PinofSettings::flat(), ..PolicyConfig::of(PolicyKind::Pinof) }
}

fn level(level: u32) -> PolicyConfig {
    PolicyConfig { tyche: TycheSettings::fixed(level), ..PolicyConfig::of(PolicyKind::Tyche) }
}

#[test]
fn doorbells_by_load_and_policy() {
    let loads = [
        PolicyLoad::Closed { depth: 1 },
        PolicyLoad::Closed { depth: 8 },
        PolicyLoad::Closed { depth: 16 },
        PolicyLoad::Closed { depth: 32 },
        PolicyLoad::Closed { depth: 128 },
        PolicyLoad::Burst { size: 5 },
        PolicyLoad::Burst { size: 20 },
        PolicyLoad::Burst { size: 64 },
        PolicyLoad::Open { every_us: 1 },
        PolicyLoad::Open { every_us: 5 },
        PolicyLoad::Open { every_us: 100 },
    ];
    let policies = [
        ("none", PolicyConfig::none()),
        ("i10", PolicyConfig::i10()),
        ("i10 lifted", lifted()),
        ("pinof", PolicyConfig::of(PolicyKind::Pinof)),
        ("pinof flat", flat()),
        ("tyche 4", level(4)),
        ("auto", PolicyConfig::auto()),
    ];
    let mut table = String::from(
        "4 KiB reads, 10 us a trip. Doorbells of 100 I/Os (size, timer, urgent, drained) at host | target |\n\
         requests a caravan at host, target | latency mean, max (us)\n\n",
    );
    for load in loads {
        for (name, policy) in policies {
            let row = PolicyLane::new(load, policy).run();
            table += &format!("{:22} {name:10} | {row}\n", format!("{load:?}"));
        }
    }
    insta::with_settings!({omit_expression => true}, {
        insta::assert_snapshot!(table);
    });
}

#[test]
fn an_urgent_request_takes_everything_ahead_along() {
    let mut pair = ConnectionPair::connected(PairSetup {
        policy: PolicyConfig::i10(),
        ..PairSetup::default()
    });
    for _ in 0..3 {
        pair.host.read(pair.now, 0, 1);
    }
    assert!(pair.host.send(pair.now).is_empty());
    pair.host.flush(pair.now);
    let sent = show::pdus(true, &pair.host.send(pair.now), Digests::default());
    assert_eq!(sent.len(), 4);
    assert!(sent[3].starts_with("CapsuleCmd opcode 0x00"), "FIFO order");
}

/// The R2T leaves when the target's turn ends, and its data as soon as it arrives, whatever is held.
#[test]
fn h2c_data_never_waits_for_a_second_doorbell() {
    let mut pair = ConnectionPair::connected(PairSetup {
        policy: PolicyConfig::i10(),
        ..PairSetup::default()
    });
    pair.host.write(pair.now, 0, vec![1; 32 * BLOCK as usize]);
    pair.now += Duration::from_micros(50);
    pair.host.qpair.batcher().expire(pair.now);
    let command = pair.host.send(pair.now);
    pair.target.receive(pair.now, &command, Delivery::Whole).expect("valid");
    let r2t = pair.target.send(pair.now);
    pair.host.receive(pair.now, &r2t, Delivery::Whole).expect("valid");
    assert_eq!(pair.host.released().concat().len(), 32 * BLOCK as usize + 4 * 24);
}

#[test]
fn the_timer_runs_from_the_first_request() {
    let mut pair = ConnectionPair::connected(PairSetup {
        policy: PolicyConfig::i10(),
        ..PairSetup::default()
    });
    let start = pair.now;
    for us in [0, 20, 49] {
        pair.now = start + Duration::from_micros(us);
        pair.host.read(pair.now, 0, 1);
        assert!(pair.host.send(pair.now).is_empty());
        let deadline = pair.host.qpair.batcher().deadline();
        assert_eq!(deadline, Some(start + Duration::from_micros(50)));
    }
    pair.now = start + Duration::from_micros(50);
    pair.host.qpair.batcher().expire(pair.now);
    assert_eq!(pair.host.released().len(), 1);
    assert_eq!(pair.host.qpair.batcher().deadline(), None);
}

#[test]
fn caravans_depart_at_their_limits() {
    let pair = || {
        ConnectionPair::connected(PairSetup {
            policy: PolicyConfig::i10(),
            entries: 64,
            ..PairSetup::default()
        })
    };
    let mut by_count = pair();
    for _ in 0..16 {
        by_count.host.read(by_count.now, 0, 1);
    }
    assert_eq!(by_count.host.released().len(), 1, "16 requests");
    let mut by_bytes = pair();
    for _ in 0..7 {
        by_bytes.host.write(by_bytes.now, 0, vec![0; 8192]);
    }
    assert!(by_bytes.host.released().is_empty(), "56 KiB");
    by_bytes.host.write(by_bytes.now, 0, vec![0; 8192]);
    assert_eq!(by_bytes.host.released().len(), 1, "64 KiB");
}

#[derive(Clone, Debug)]
enum BatcherStep {
    Enqueue { kind: PduKind, bytes: u32, urgency: Urgency },
    Drained,
    Pass { us: u64 },
    Take,
    Completed,
}

fn step() -> impl Strategy<Value = BatcherStep> {
    prop_oneof![
        4 => (kind(), 0..100_000u32, urgency())
            .prop_map(|(kind, bytes, urgency)| BatcherStep::Enqueue { kind, bytes, urgency }),
        2 => Just(BatcherStep::Drained),
        2 => (0..100u64).prop_map(|us| BatcherStep::Pass { us }),
        3 => Just(BatcherStep::Take),
        1 => Just(BatcherStep::Completed),
    ]
}

fn kind() -> impl Strategy<Value = PduKind> {
    prop::sample::select(vec![
        PduKind::Control,
        PduKind::Command,
        PduKind::CommandData,
        PduKind::H2cData,
        PduKind::R2t,
        PduKind::Response,
        PduKind::ResponseData,
    ])
}

fn urgency() -> impl Strategy<Value = Urgency> {
    prop_oneof![
        8 => Just(Urgency::Normal),
        1 => Just(Urgency::Bulk),
        1 => Just(Urgency::Urgent),
        1 => Just(Urgency::Critical),
    ]
}

fn policy() -> impl Strategy<Value = PolicyConfig> {
    let kinds = [
        PolicyKind::None,
        PolicyKind::I10,
        PolicyKind::Pinof,
        PolicyKind::Tyche,
        PolicyKind::Auto,
        toy_policy::pairs().kind,
    ];
    (prop::sample::select(kinds.to_vec()), 1..40u32, 1..200_000u32, 0..200u64).prop_map(
        |(kind, count_max, bytes_max, us)| {
            let mut config = PolicyConfig::of(kind);
            config.limits = CaravanLimits { count_max, bytes_max };
            config.doorbell_delay = Duration::from_micros(us);
            config.pinof.cmd.degree = count_max;
            config.pinof.data.delay = Duration::from_micros(us);
            config.tyche.delay = Duration::from_micros(us);
            config.tyche.interval = Duration::from_micros(u64::from(count_max));
            config
        },
    )
}

/// Longest time that a policy holds a PDU.
fn delay_max(policy: &PolicyConfig, role: PolicyRole) -> Duration {
    match (policy.kind, role) {
        (PolicyKind::I10, PolicyRole::Host) => policy.doorbell_delay,
        (PolicyKind::Pinof, _) => policy.pinof.cmd.delay.max(policy.pinof.data.delay),
        (PolicyKind::Tyche, PolicyRole::Host) => policy.tyche.delay,
        _ => Duration::ZERO,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(5000)))]

    /// In every sequence of events, PDUs are conserved and each is released within the policy's delay. Held PDUs have
    /// a timer, an urgent PDU is never held, and a policy without delay holds nothing after its turn.
    #[test]
    fn held_work_has_a_wake_up(
        policy in policy(),
        at_host in any::<bool>(),
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let role = if at_host { PolicyRole::Host } else { PolicyRole::Target };
        let delay = delay_max(&policy, role);
        let mut batcher = Batcher::new(&policy, role);
        let mut now = Instant(0);
        let mut in_flight = 0;
        // Earliest time from which something is held in any freight.
        let mut held_since = None;
        let (mut enqueued, mut taken) = (0, 0);
        for step in steps {
            match step {
                BatcherStep::Enqueue { kind, bytes, urgency } => {
                    in_flight += 1;
                    batcher.set_in_flight(in_flight);
                    let parcel = PduInfo { kind, urgency, data_bytes: bytes, request_bytes: bytes };
                    let before = batcher.backlog().requests;
                    batcher.enqueue(now, &parcel);
                    enqueued += 1;
                    if policy.kind != PolicyKind::None && parcel.is_urgent() {
                        prop_assert!(batcher.backlog().requests <= before, "an urgent PDU is held");
                    }
                }
                BatcherStep::Drained => {
                    batcher.drained(now);
                    prop_assert!(!delay.is_zero() || batcher.backlog().requests == 0);
                }
                BatcherStep::Pass { us } => {
                    now += Duration::from_micros(us);
                    batcher.expire(now);
                }
                BatcherStep::Take => {
                    if let Some(freight) = batcher.due().next() {
                        batcher.taken(freight);
                        taken += 1;
                    }
                }
                BatcherStep::Completed => {
                    batcher.completed(now, 4096);
                }
            }
            let held = batcher.backlog().requests;
            prop_assert_eq!(enqueued - taken, held + batcher.released(), "PDUs are conserved");
            prop_assert_eq!(batcher.deadline().is_some(), held > 0);
            held_since = if held == 0 { None } else { held_since.or(Some(now)) };
            if let (Some(deadline), Some(since)) = (batcher.deadline(), held_since) {
                // Until its turn ends, a target may have a timer, too.
                prop_assert!(deadline <= now + delay_max(&policy, PolicyRole::Host) && since <= now);
            }
        }
    }
}

/// PINoF: a freight of commands departs at its degree, an R2T counts three and a response two, and neither waits for
/// the freight of data.
#[test]
fn pinof_s_freights_depart_by_themselves() {
    let departs_after = |kind, data_bytes| {
        let mut batcher = Batcher::new(&PolicyConfig::of(PolicyKind::Pinof), PolicyRole::Target);
        let urgency = Urgency::Normal;
        let parcel = PduInfo { kind, urgency, data_bytes, request_bytes: data_bytes };
        (1..100).find(|_| {
            batcher.enqueue(Instant(0), &parcel);
            batcher.released() > 0
        })
    };
    assert_eq!(departs_after(PduKind::Command, 0), Some(7), "8 capsules of 72 bytes exceed 512");
    assert_eq!(departs_after(PduKind::R2t, 0), Some(3));
    assert_eq!(departs_after(PduKind::Response, 0), Some(4));
    assert_eq!(departs_after(PduKind::ResponseData, 4096), Some(15), "16 of 4,120 exceed 64 KiB");
    assert_eq!(departs_after(PduKind::ResponseData, 512), Some(16));
    assert_eq!(departs_after(PduKind::ResponseData, 1 << 20), Some(1));

    let mut batcher = Batcher::new(&PolicyConfig::of(PolicyKind::Pinof), PolicyRole::Host);
    let data = PduInfo {
        kind: PduKind::CommandData,
        urgency: Urgency::Normal,
        data_bytes: 4096,
        request_bytes: 4096,
    };
    let command = PduInfo { kind: PduKind::Command, data_bytes: 0, ..data };
    batcher.enqueue(Instant(0), &data);
    batcher.enqueue(Instant(10_000), &command);
    assert_eq!(batcher.deadline(), Some(Instant(35_000)));
    batcher.expire(Instant(35_000));
    assert!(batcher.due().eq([Freight::Cmd]) && batcher.released() == 1);
    batcher.expire(Instant(50_000));
    assert!(batcher.due().eq([Freight::Cmd, Freight::Data]) && batcher.released() == 2);
}

/// Drives Tyche's climb on a simulated machine: `throughput(level)` bytes complete in each interval.
fn climb(throughput: impl Fn(u32) -> u64, outstanding: u32, intervals: u64) -> Vec<u32> {
    let mut config = PolicyConfig::of(PolicyKind::Tyche);
    config.tyche.interval = Duration::from_millis(1);
    let mut batcher = Batcher::new(&config, PolicyRole::Host);
    let parcel = PduInfo {
        kind: PduKind::Command,
        urgency: Urgency::Normal,
        data_bytes: 0,
        request_bytes: 4096,
    };
    let mut levels = Vec::new();
    batcher.set_in_flight(outstanding);
    for interval in 0..intervals {
        let now = Instant(interval * 1_000_000 + 1);
        batcher.enqueue(now, &parcel);
        let level = batcher.limits(Freight::Data).count_max;
        let mut left = throughput(level);
        while left > 0 {
            let data_bytes = left.min(1 << 30) as u32;
            batcher.completed(now, data_bytes);
            left -= u64::from(data_bytes);
        }
        levels.push(level);
    }
    levels
}

#[test]
fn tyche_climbs_while_it_gains() {
    let rising = climb(|level| 1_000_000 * u64::from(level), 64, 12);
    assert_eq!(rising.last(), Some(&63), "{rising:?}");
    assert!(rising.is_sorted(), "{rising:?}");
    let idle = climb(|level| 1_000_000 * u64::from(level), 3, 20);
    assert!(idle.iter().all(|&level| level <= 4), "no more than are outstanding: {idle:?}");
}

#[test]
fn tyche_goes_back_when_it_loses_and_probes_when_it_stands() {
    let peaked = |level: u32| 10_000_000 - 100_000 * u64::from(level.abs_diff(20)).pow(2).min(90);
    let levels = climb(peaked, 64, 200);
    let late = &levels[100..];
    assert!(late.iter().all(|&level| level < 64), "{late:?}");
    let flat = climb(|_| 1_000_000, 64, 40);
    let last = flat[flat.len() - 1];
    assert!(flat.contains(&(last + 1)) || flat.contains(&(last.max(2) - 1)), "it probes: {flat:?}");
}

#[test]
fn a_policy_of_another_crate_rings() {
    let doorbells = toy_policy::doorbells_of_five_reads();
    assert_eq!(doorbells, DoorbellTotals { size: 2, drained: 1, ..DoorbellTotals::default() });
}
