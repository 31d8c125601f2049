//! Classes inside a lane: the order of requests at both ends, the source of a class, and protection from starvation.

use crate::common::{BLOCK, ConnectionPair, Delivery, PairSetup, show};
use proptest::prelude::*;
use roadtrain_host_proto::qpair::CommandTransfer;
use roadtrain_proto::policy::{
    Batcher, CaravanLoad, Class, Freight, PduInfo, PduKind, PolicyConfig, PolicyKind, PolicyRole,
    SendQueue, Urgency,
};
use roadtrain_proto::time::Instant;
use roadtrain_wire::pdu::Digests;
use roadtrain_wire::sqe::{Sqe, opcode};
use std::time::Duration;

/// CDW13 of a command that is neither latency-critical nor bulk.
const DSM_NORMAL: u32 = 2 << 4;

fn pair(policy: PolicyConfig, class: Class) -> ConnectionPair {
    ConnectionPair::connected(PairSetup {
        policy,
        class,
        sq_flow_control: false,
        ..PairSetup::default()
    })
}

/// Submits a read of one block with the given CDW13; the host treats it with `urgency`.
fn read(pair: &mut ConnectionPair, nsid: u32, cdw13: u32, urgency: Urgency) -> u16 {
    let mut sqe = Sqe::rw(opcode::READ, nsid, 0, 1);
    sqe.cdw13 = cdw13.into();
    let slot = pair.host.submit_as(
        pair.now,
        &sqe,
        CommandTransfer::In(BLOCK),
        vec![0; BLOCK as usize],
        urgency,
    );
    assert!(slot < 32);
    slot
}

fn read_of(pair: &mut ConnectionPair, class: Class) -> u16 {
    read(pair, 1, class.to_dsm(), class.urgency())
}

/// Returns the slots of the PDUs, in their order.
fn slots(from_host: bool, bytes: &[u8]) -> Vec<u16> {
    let slot = |line: &String| {
        let (_, rest) = line.split_once("cid 0x").expect("all of them name their command");
        let digits = rest.split(' ').next().expect("split yields one at least");
        u16::from_str_radix(digits, 16).expect("a number") % 32
    };
    show::pdus(from_host, bytes, Digests::default()).iter().map(slot).collect()
}

/// Returns the order in which reads leave the host, and that of their responses. The target receives the reads one by
/// one, so it has responded to all earlier ones when the last arrives.
fn order(policy: PolicyConfig, classes: &[Class]) -> (Vec<u16>, Vec<u16>) {
    let mut pair = pair(policy, Class::Normal);
    for &class in classes {
        read_of(&mut pair, class);
    }
    let commands = slots(true, &pair.host.send(pair.now));
    let mut pair = self::pair(policy, Class::Normal);
    for &class in classes {
        read_of(&mut pair, class);
        let bytes = pair.host.send(pair.now);
        pair.target.receive(pair.now, &bytes, Delivery::Whole).expect("valid");
    }
    (commands, slots(false, &pair.target.send(pair.now)))
}

#[test]
fn latency_critical_requests_pass_all_and_all_pass_bulk() {
    let mut classes = [Class::Bulk; 11];
    (classes[4], classes[9]) = (Class::Normal, Class::Normal);
    (classes[8], classes[10]) = (Class::Latency, Class::Latency);
    let passed = vec![8, 10, 4, 9, 0, 1, 2, 3, 5, 6, 7];
    assert_eq!(order(PolicyConfig::auto(), &classes), (passed.clone(), passed));
}

/// The published policies know no classes; a latency-critical request only waits for its turn.
#[test]
fn other_policies_keep_the_order() {
    let classes = [Class::Bulk, Class::Bulk, Class::Normal, Class::Latency];
    for kind in [PolicyKind::None, PolicyKind::I10, PolicyKind::Pinof, PolicyKind::Tyche] {
        let (commands, answers) = order(PolicyConfig::of(kind), &classes);
        assert_eq!(commands, [0, 1, 2, 3], "{kind:?}");
        assert!(answers.is_sorted(), "{kind:?}");
    }
}

/// The R2T of a latency-critical write passes the data of reads.
#[test]
fn an_r2t_is_of_its_write_s_class() {
    let mut pair = pair(PolicyConfig::auto(), Class::Normal);
    for class in [Class::Bulk, Class::Normal] {
        read_of(&mut pair, class);
    }
    let mut sqe = Sqe::rw(opcode::WRITE, 1, 0, 32);
    sqe.cdw13 = Class::Latency.to_dsm().into();
    let data = vec![1; 32 * BLOCK as usize];
    let out = CommandTransfer::Out(data.len() as u32);
    let write = pair.host.submit_as(pair.now, &sqe, out, data, Urgency::Critical);
    let bytes = pair.host.send(pair.now);
    pair.target.receive(pair.now, &bytes, Delivery::Whole).expect("valid");
    assert_eq!(slots(false, &pair.target.send(pair.now)), [write, 1, 0]);
}

/// The class of a command takes precedence over its namespace's, and that over its connection's.
#[test]
fn the_nearest_word_counts() {
    let answers = |connection: Class, commands: &[(u32, u32)]| {
        let mut pair = pair(PolicyConfig::auto(), connection);
        for (nsid, class) in [(7, Class::Latency), (8, Class::Normal), (9, Class::Bulk)] {
            pair.target.classes.insert(nsid, class);
        }
        for &(nsid, cdw13) in commands {
            read(&mut pair, nsid, cdw13, Urgency::Normal);
        }
        let bytes = pair.host.send(pair.now);
        pair.target.receive(pair.now, &bytes, Delivery::Whole).expect("valid");
        slots(false, &pair.target.send(pair.now))
    };
    let (latency, bulk) = (Class::Latency.to_dsm(), Class::Bulk.to_dsm());
    assert_eq!(Class::Normal.to_dsm(), 0, "says nothing");
    // The connection has no class: namespaces have, and commands override them.
    assert_eq!(answers(Class::Normal, &[(9, 0), (1, 0), (7, 0)]), [2, 1, 0]);
    assert_eq!(answers(Class::Normal, &[(7, bulk), (1, 0), (9, latency)]), [2, 1, 0]);
    assert_eq!(answers(Class::Normal, &[(9, 0), (9, DSM_NORMAL)]), [1, 0]);
    // The connection is bulk: its namespaces override it, and commands.
    assert_eq!(answers(Class::Bulk, &[(1, 0), (8, 0), (7, 0)]), [2, 1, 0]);
    assert_eq!(
        answers(Class::Bulk, &[(1, 0), (9, 0), (1, DSM_NORMAL), (1, latency)]),
        [3, 2, 0, 1]
    );
    // CATTR has no value for a latency-critical connection: its commands specify the class.
    assert_eq!(answers(Class::Latency, &[(9, 0), (1, 0)]), [1, 0]);
}

#[test]
fn fabrics_commands_are_of_no_class() {
    let mut pair = pair(PolicyConfig::i10(), Class::Bulk);
    pair.target.classes.insert(0, Class::Bulk);
    let urgent = pair.target.qpair.doorbells().urgent;
    pair.host.connect(pair.now, &pair.setup);
    let bytes = pair.host.send(pair.now);
    pair.target.receive(pair.now, &bytes, Delivery::Whole).expect("valid");
    assert_eq!(pair.target.qpair.doorbells().urgent, urgent + 1);
}

/// H2CData PDUs of a write arrive in order: a short last one does not pass the others.
#[test]
fn the_data_of_a_write_stays_in_order() {
    for class in [Class::Latency, Class::Normal, Class::Bulk] {
        let setup = PairSetup {
            policy: PolicyConfig::auto(),
            maxh2cdata: 32 << 10,
            ..PairSetup::default()
        };
        let mut pair = ConnectionPair::connected(setup);
        let data = crate::common::pattern(72 * BLOCK, 1);
        let mut sqe = Sqe::rw(opcode::WRITE, 1, 0, 72);
        sqe.cdw13 = class.to_dsm().into();
        let out = CommandTransfer::Out(data.len() as u32);
        pair.host.submit_as(pair.now, &sqe, out, data.clone(), class.urgency());
        pair.settle().expect("in order");
        assert!(pair.host.take_completions()[0].cqe.status().is_success());
        assert_eq!(pair.target.disk[..data.len()], data);
    }
}

#[test]
fn all_data_of_a_write_goes_by_one_freight() {
    let kinds =
        [PolicyKind::None, PolicyKind::I10, PolicyKind::Pinof, PolicyKind::Tyche, PolicyKind::Auto];
    for policy in kinds.map(PolicyConfig::of) {
        for class in [Class::Latency, Class::Normal, Class::Bulk] {
            for request_bytes in [512, 4096, 16_384, 16_896, 1 << 20] {
                let mut batcher = Batcher::new(&policy, PolicyRole::Host);
                let mut freight = |data_bytes: u32| {
                    let (kind, urgency) = (PduKind::H2cData, class.urgency());
                    let data_bytes = data_bytes.min(request_bytes);
                    let parcel = PduInfo { kind, urgency, data_bytes, request_bytes };
                    batcher.enqueue(Instant(0), &parcel)
                };
                let first = freight(request_bytes);
                assert!([4, 4096, 16_384, 32_768].into_iter().all(|bytes| freight(bytes) == first));
                if policy.kind == PolicyKind::Auto && class == Class::Bulk {
                    assert_eq!(first, Freight::Data, "others pass it");
                }
            }
        }
    }
}

/// Most caravans that may leave without a due freight: eight pass it, then other freights may be as starved.
const PASSED_MAX: u32 = 10;
/// More PDUs than any policy puts into a caravan.
const ROOMY: u32 = 1000;
/// Time longer than any policy waits.
const LONG: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
struct Push {
    parcel: PduInfo,
    count: u32,
}

fn push() -> impl Strategy<Value = Push> {
    let kind = prop::sample::select(vec![PduKind::R2t, PduKind::Response, PduKind::ResponseData]);
    let class = prop::sample::select(vec![Class::Latency, Class::Normal, Class::Bulk]);
    // Often more than fits into a caravan.
    (kind, class, 1..300_000u32, 1..200u32).prop_map(|(kind, class, request_bytes, count)| {
        let data_bytes = if kind == PduKind::ResponseData { request_bytes } else { 0 };
        Push {
            parcel: PduInfo { kind, urgency: class.urgency(), data_bytes, request_bytes },
            count,
        }
    })
}

fn policy() -> impl Strategy<Value = PolicyConfig> {
    let kinds =
        [PolicyKind::None, PolicyKind::I10, PolicyKind::Pinof, PolicyKind::Tyche, PolicyKind::Auto];
    prop::sample::select(kinds.map(PolicyConfig::of).to_vec())
}

/// A host that sends a command before it has ICResp still receives ICResp first.
#[test]
fn nothing_passes_what_sets_a_connection_up() {
    let kinds = [PolicyKind::None, PolicyKind::I10, PolicyKind::Pinof, PolicyKind::Tyche];
    for kind in kinds.into_iter().chain([PolicyKind::Auto]) {
        let mut outbox = SendQueue::new(&PolicyConfig::of(kind), PolicyRole::Target);
        let now = Instant(0);
        outbox.push(now, "ICResp", &PduInfo::control());
        for (name, kind) in [("response", PduKind::Response), ("data", PduKind::ResponseData)] {
            for urgency in [Urgency::Bulk, Urgency::Normal, Urgency::Urgent, Urgency::Critical] {
                let (data_bytes, request_bytes) = (0, 512);
                outbox.push(now, name, &PduInfo { kind, urgency, data_bytes, request_bytes });
            }
        }
        outbox.batcher_mut().drained(now);
        outbox.batcher_mut().expire(now + LONG);
        let first = outbox.next(&mut CaravanLoad::default(), |_| 0, |_| false);
        assert_eq!(first, Some("ICResp"), "{kind:?}");
    }
}

proptest! {
    /// Every freight moves, however much the others hold and however little fits into a caravan.
    #[test]
    fn no_freight_starves(
        policy in policy(),
        room in prop_oneof![1..5u32, Just(ROOMY)],
        rounds in prop::collection::vec(prop::collection::vec(push(), 0..4), 1..60),
    ) {
        let mut now = Instant(0);
        let mut outbox = SendQueue::new(&policy, PolicyRole::Target);
        let mut twin = Batcher::new(&policy, PolicyRole::Target); // shows the freight of each PDU
        let (mut waiting, mut passed) = ([0u32; 3], [0u32; 3]);
        for pushes in rounds {
            for Push { parcel, count } in pushes {
                for _ in 0..count {
                    let freight = twin.enqueue(now, &parcel);
                    outbox.push(now, (freight, parcel.data_bytes), &parcel);
                    waiting[freight as usize] += 1;
                }
            }
            now += LONG;
            outbox.batcher_mut().expire(now);
            outbox.batcher_mut().drained(now);
            let (mut load, mut taken) = (CaravanLoad::default(), [0u32; 3]);
            while load.count() < room {
                let next = outbox.next(&mut load, |&(_, bytes)| bytes, |_| false);
                let Some((freight, _)) = next else { break };
                taken[freight as usize] += 1;
            }
            for freight in 0..3 {
                let is_passed = taken[freight] == 0 && waiting[freight] > 0;
                passed[freight] = if is_passed { passed[freight] + 1 } else { 0 };
                prop_assert!(passed[freight] <= PASSED_MAX, "{freight} starves");
                if policy.kind == PolicyKind::Auto && room == ROOMY {
                    prop_assert!(!is_passed, "a caravan takes something of each");
                }
                waiting[freight] -= taken[freight];
            }
        }
    }
}
