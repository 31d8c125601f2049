//! The outcome of every PDU in every state of either end. The snapshots are the specification.

use crate::common::host_end::PairHostEnd;
use crate::common::raw::{self, PLAIN};
use crate::common::target_end::PairTargetEnd;
use crate::common::{BLOCK, Delivery, PairSetup, pattern, show};
use roadtrain_proto::error::QpairError;
use roadtrain_proto::time::Instant;
use roadtrain_wire::pdu::flag;
use roadtrain_wire::status::Status;

const NOW: Instant = Instant(0);
/// Command identifiers of a host's first and second slot on first use.
const CONNECT_CID: u16 = 0x400;
const CID: u16 = 0x800;
/// The target's slot, thus TTAG, of the only command.
const TTAG: u16 = 0;

type NamedPdus = Vec<(&'static str, Vec<u8>)>;
type States<End> = Vec<(&'static str, Box<dyn Fn() -> End>)>;

fn both_kinds() -> NamedPdus {
    vec![
        ("ICReq", raw::icreq()),
        ("ICResp", raw::icresp(4096)),
        ("H2CTermReq", raw::term(true, &[])),
        ("H2CTermReq with data", raw::term(true, &[1; 24])),
        ("C2HTermReq", raw::term(false, &[])),
        ("C2HTermReq with data", raw::term(false, &[1; 24])),
        ("type 08h", raw::unknown(8)),
        ("type 0Ah", raw::unknown(10)),
    ]
}

fn for_target() -> NamedPdus {
    let data = pattern(BLOCK, 1);
    let mut pdus = both_kinds();
    pdus.extend([
        ("CapsuleCmd flush", raw::flush(7)),
        ("CapsuleCmd write by R2T", raw::write(7, 16)),
        ("CapsuleCmd write in capsule", raw::write_in_capsule(7, &data, PLAIN)),
        ("CapsuleCmd Connect", raw::connect(7, 32)),
        ("H2CData of the R2T", raw::h2c_data(1, TTAG, 0, &pattern(16 * BLOCK, 1)[..4096], false)),
        ("H2CData of no R2T", raw::h2c_data(1, 31, 0, &data, true)),
        ("C2HData", raw::c2h_data(1, 0, &data, flag::LAST)),
        ("CapsuleResp", raw::response(1, Status::SUCCESS)),
        ("R2T", raw::r2t(1, 0, 0, BLOCK)),
    ]);
    pdus
}

fn for_host() -> NamedPdus {
    let data = pattern(BLOCK, 1);
    let mut pdus = both_kinds();
    pdus.extend([
        ("CapsuleCmd", raw::flush(7)),
        ("H2CData", raw::h2c_data(CID, 0, 0, &data, true)),
        ("CapsuleResp", raw::response(CID, Status::SUCCESS)),
        ("CapsuleResp with an error", raw::response(CID, Status::LBA_OUT_OF_RANGE.dnr())),
        ("CapsuleResp of another command", raw::response(CID + 1, Status::SUCCESS)),
        ("C2HData, part", raw::c2h_data(CID, 0, &data[..256], 0)),
        ("C2HData, all", raw::c2h_data(CID, 0, &data, flag::LAST)),
        ("C2HData, all, SUCCESS", raw::c2h_data(CID, 0, &data, flag::LAST | flag::SUCCESS)),
        ("C2HData, part, SUCCESS", raw::c2h_data(CID, 0, &data[..8], flag::LAST | flag::SUCCESS)),
        ("C2HData of another command", raw::c2h_data(CID + 1, 0, &data, flag::LAST)),
        ("R2T, all", raw::r2t(CID, 5, 0, 16 * BLOCK)),
        ("R2T, part", raw::r2t(CID, 5, 0, 1000)),
        ("R2T of another command", raw::r2t(CID + 1, 5, 0, BLOCK)),
    ]);
    pdus
}

/// Returns a line for each outcome, with the PDUs that lead to it.
fn fold(state: &str, outcomes: &[(&'static str, String)]) -> String {
    let mut lines: Vec<(&str, Vec<&str>)> = Vec::new();
    for (pdu, outcome) in outcomes {
        match lines.iter_mut().find(|(line, _)| line == outcome) {
            Some((_, pdus)) => pdus.push(pdu),
            None => lines.push((outcome, vec![pdu])),
        }
    }
    let lines =
        lines.iter().map(|(outcome, pdus)| format!("  {outcome}\n    on {}\n", pdus.join(" | ")));
    format!("{state}\n{}", lines.collect::<String>())
}

fn outcome(result: Result<(), QpairError>, events: Vec<String>, sent: Vec<String>) -> String {
    let mut parts = events;
    if let Err(error) = result {
        parts.push(format!("ERROR {error}"));
    }
    parts.extend(sent.into_iter().map(|line| format!("-> {line}")));
    if parts.is_empty() { "nothing".into() } else { parts.join("; ") }
}

fn target_in(bytes: &[Vec<u8>]) -> PairTargetEnd {
    let mut target = PairTargetEnd::new(PairSetup::default().target());
    for bytes in bytes {
        let _ = target.receive(NOW, bytes, Delivery::Whole);
        target.send(NOW);
    }
    target.take_events();
    target
}

fn target_states() -> States<PairTargetEnd> {
    let held = |bytes: Vec<u8>| {
        let mut target = target_in(&[raw::icreq()]);
        target.hold = true;
        target.receive(NOW, &bytes, Delivery::Whole).expect("valid");
        target.take_events();
        target
    };
    let data = pattern(BLOCK, 1);
    let (cut, h2c) =
        (raw::write_in_capsule(1, &data, PLAIN), raw::h2c_data(1, TTAG, 0, &[5; 4096], false));
    vec![
        ("before ICReq", Box::new(|| target_in(&[]))),
        ("ready", Box::new(|| target_in(&[raw::icreq()]))),
        ("connected", Box::new(|| target_in(&[raw::icreq(), raw::connect(9, 4)]))),
        ("executing", Box::new(move || held(raw::flush(1)))),
        ("R2T not sent", Box::new(move || held(raw::write(1, 16)))),
        ("R2T sent", Box::new(|| target_in(&[raw::icreq(), raw::write(1, 16)]))),
        (
            "within in-capsule data",
            Box::new(move || target_in(&[raw::icreq(), cut[..100].to_vec()])),
        ),
        (
            "within H2CData",
            Box::new(move || target_in(&[raw::icreq(), raw::write(1, 16), h2c[..100].to_vec()])),
        ),
        ("after an error", Box::new(|| target_in(&[raw::icreq(), raw::icreq()]))),
        ("after H2CTermReq", Box::new(|| target_in(&[raw::icreq(), raw::term(true, &[])]))),
    ]
}

#[test]
fn target() {
    let mut table = String::new();
    for (state, make) in target_states() {
        let outcomes = for_target().into_iter().map(|(name, bytes)| {
            let mut target = make();
            target.hold = true;
            let result = target.receive(NOW, &bytes, Delivery::Whole);
            let sent = show::pdus(false, &target.send(NOW), PLAIN);
            (name, outcome(result, target.take_events(), sent))
        });
        table += &fold(state, &outcomes.collect::<Vec<_>>());
    }
    insta::with_settings!({omit_expression => true}, {
        insta::assert_snapshot!(table);
    });
}

/// Returns a connected host after `submit` has queued one command and `after` was received.
fn host_in(submit: impl Fn(&mut PairHostEnd) -> u16, send: bool, after: &[u8]) -> PairHostEnd {
    let mut host = PairHostEnd::new(NOW, PairSetup::default().host());
    host.send(NOW);
    host.receive(NOW, &raw::icresp(4096), Delivery::Whole).expect("valid");
    host.connect(NOW, &PairSetup::default());
    host.send(NOW);
    host.receive(NOW, &raw::response(CONNECT_CID, Status::SUCCESS), Delivery::Whole)
        .expect("valid");
    submit(&mut host);
    if send {
        host.send(NOW);
    }
    let _ = host.receive(NOW, after, Delivery::Whole);
    host.take_completions();
    host
}

fn host_states() -> States<PairHostEnd> {
    let read = |host: &mut PairHostEnd| host.read(NOW, 0, 1);
    let write = |host: &mut PairHostEnd| host.write(NOW, 0, pattern(BLOCK, 1));
    let write_by_r2t = |host: &mut PairHostEnd| host.write(NOW, 0, pattern(32 * BLOCK, 1));
    let flush = |host: &mut PairHostEnd| host.flush(NOW);
    let nothing = |_: &mut PairHostEnd| 0;
    let c2h = raw::c2h_data(CID, 0, &[3; 512], flag::LAST);
    vec![
        (
            "before ICResp",
            Box::new(|| {
                let mut host = PairHostEnd::new(NOW, PairSetup::default().host());
                host.send(NOW);
                host.connect(NOW, &PairSetup::default());
                host
            }),
        ),
        ("ready", Box::new(move || host_in(nothing, true, &[]))),
        ("read queued", Box::new(move || host_in(read, false, &[]))),
        ("read sent", Box::new(move || host_in(read, true, &[]))),
        ("within C2HData", Box::new(move || host_in(read, true, &c2h[..100]))),
        ("write in capsule sent", Box::new(move || host_in(write, true, &[]))),
        ("write by R2T sent", Box::new(move || host_in(write_by_r2t, true, &[]))),
        (
            "R2T received",
            Box::new(move || host_in(write_by_r2t, true, &raw::r2t(CID, 5, 0, 16 * BLOCK))),
        ),
        ("flush sent", Box::new(move || host_in(flush, true, &[]))),
        (
            "after an error",
            Box::new(move || {
                let mut host = host_in(nothing, true, &raw::icresp(4096));
                host.send(NOW);
                host
            }),
        ),
        ("after C2HTermReq", Box::new(move || host_in(nothing, true, &raw::term(false, &[])))),
    ]
}

#[test]
fn host() {
    let mut table = String::new();
    for (state, make) in host_states() {
        let outcomes = for_host().into_iter().map(|(name, bytes)| {
            let mut host = make();
            let result = host.receive(NOW, &bytes, Delivery::Whole);
            let done = host.take_completions().into_iter().map(|done| {
                let intact = if done.data_intact { "" } else { ", data not intact" };
                format!("complete: {}{intact}", done.cqe.status())
            });
            let events = done.collect();
            let sent = show::pdus(true, &host.send(NOW), PLAIN);
            (name, outcome(result, events, sent))
        });
        table += &fold(state, &outcomes.collect::<Vec<_>>());
    }
    insta::with_settings!({omit_expression => true}, {
        insta::assert_snapshot!(table);
    });
}
