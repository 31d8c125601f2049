//! Timed scripts: the commands of a host by microsecond, and every PDU that leaves either end.

use crate::common::{BLOCK, ConnectionPair, Delivery, PairSetup, show};
use roadtrain_proto::policy::PolicyConfig;
use roadtrain_proto::time::Instant;
use std::time::Duration;

/// One-way delay of the network.
const TRIP_US: u64 = 10;

#[derive(Clone, Copy)]
enum ScriptAction {
    Read { blocks: u32 },
    Write { blocks: u32 },
    Flush,
}
use ScriptAction::{Flush, Read, Write};

/// Runs `script` for `end_us`, one turn a microsecond. Returns one line for each caravan and PDU.
fn run(setup: PairSetup, script: &[(u64, ScriptAction)], end_us: u64) -> String {
    let mut pair = ConnectionPair::connected(setup);
    let (mut to_target, mut to_host) = (Vec::new(), Vec::new());
    let mut log = String::new();
    for us in 0..=end_us {
        let now = Instant(0) + Duration::from_micros(us);
        for (_, action) in script.iter().filter(|(at, _)| *at == us) {
            match *action {
                Read { blocks } => pair.host.read(now, 0, blocks),
                Write { blocks } => pair.host.write(now, 0, vec![7; (blocks * BLOCK) as usize]),
                Flush => pair.host.flush(now),
            };
        }
        deliver(&mut to_host, us, |o| pair.host.receive(now, o, Delivery::Whole).expect("valid"));
        deliver(&mut to_target, us, |o| {
            pair.target.receive(now, o, Delivery::Whole).expect("valid")
        });
        for done in pair.host.take_completions() {
            log += &format!("{us:4} complete cid {:#x}\n", done.cqe.cid.get());
        }
        pair.host.qpair.batcher().expire(now);
        pair.host.qpair.batcher().drained(now);
        for bytes in pair.host.released() {
            log += &caravan(us, true, &bytes, setup);
            to_target.push((us + TRIP_US, bytes));
        }
        pair.target.qpair.batcher().drained(now);
        for bytes in pair.target.released() {
            log += &caravan(us, false, &bytes, setup);
            to_host.push((us + TRIP_US, bytes));
        }
    }
    assert_eq!(pair.host.qpair.in_flight(), 0, "the script ends before its commands:\n{log}");
    log
}

fn deliver(queue: &mut Vec<(u64, Vec<u8>)>, us: u64, mut receive: impl FnMut(&[u8])) {
    queue.iter().filter(|(at, _)| *at == us).for_each(|(_, bytes)| receive(bytes));
    queue.retain(|(at, _)| *at > us);
}

fn caravan(us: u64, from_host: bool, bytes: &[u8], setup: PairSetup) -> String {
    let end = if from_host { "host" } else { "target" };
    let pdus = show::pdus(from_host, bytes, setup.digests);
    format!("{us:4} {end} sends {} bytes\n       {}\n", bytes.len(), pdus.join("\n       "))
}

#[test]
fn a_lone_read_waits_for_the_timer_of_i10() {
    let setup =
        PairSetup { policy: PolicyConfig::i10(), sq_flow_control: false, ..PairSetup::default() };
    insta::assert_snapshot!(run(setup, &[(5, Read { blocks: 1 })], 100));
}

#[test]
fn a_lone_read_leaves_at_once_without_policy() {
    insta::assert_snapshot!(run(PairSetup::default(), &[(5, Read { blocks: 1 })], 100));
}

#[test]
fn a_flush_takes_the_reads_ahead_along() {
    let setup = PairSetup { policy: PolicyConfig::i10(), ..PairSetup::default() };
    let script =
        [(0, Read { blocks: 1 }), (3, Read { blocks: 2 }), (7, Flush), (9, Read { blocks: 1 })];
    insta::assert_snapshot!(run(setup, &script, 120));
}

#[test]
fn a_write_by_r2t_waits_for_one_doorbell_only() {
    let setup = PairSetup { policy: PolicyConfig::i10(), ..PairSetup::default() };
    let script = [(0, Write { blocks: 24 }), (60, Read { blocks: 1 })];
    insta::assert_snapshot!(run(setup, &script, 200));
}

#[test]
fn a_caravan_holds_64_kib() {
    let setup = PairSetup { policy: PolicyConfig::i10(), ..PairSetup::default() };
    let script = [(0, Write { blocks: 16 }); 9];
    insta::assert_snapshot!(run(setup, &script, 120));
}
