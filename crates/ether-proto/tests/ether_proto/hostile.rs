//! Peers that break the protocol: the end replies with the right fatal error status, does not panic, and ignores all
//! that follows.

use crate::common::host_end::PairHostEnd;
use crate::common::raw::{self, BOTH, PLAIN, patch};
use crate::common::target_end::PairTargetEnd;
use crate::common::{BLOCK, ConnectionPair, Delivery, PairSetup, pattern, show};
use roadtrain_proto::error::QpairError;
use roadtrain_proto::time::Instant;
use roadtrain_wire::pdu::{Digests, flag};
use roadtrain_wire::status::Status;

const NOW: Instant = Instant(0);
const CID: u16 = 0x400;
/// Offsets in PDU headers.
const CCCID: usize = 8;
const TTAG: usize = 10;
const DATAO: usize = 12;
const DATAL: usize = 16;
const MAXH2CDATA: usize = 12;
const PFV: usize = 8;
const PDA: usize = 10;
const DGST: usize = 11;

type Cases = Vec<(&'static str, Vec<u8>)>;

/// Returns the fatal error as text, with the PDUs sent in reply.
fn verdict(result: Result<(), QpairError>, answer: &[String]) -> String {
    match result {
        Ok(()) => "no error".into(),
        Err(error) => format!("{error} {answer:?}"),
    }
}

fn judge_target(mut target: PairTargetEnd, bytes: &[u8], digests: Digests) -> String {
    let verdict = verdict(target.receive(NOW, bytes, Delivery::Pieces(1)), &{
        show::pdus(false, &target.send(NOW), digests)
    });
    if verdict != "no error" {
        target.take_events();
        target.receive(NOW, &raw::flush(99), Delivery::Whole).expect("ended: ignored");
        assert!(target.take_events().is_empty() && target.send(NOW).is_empty(), "not ended");
    }
    verdict
}

fn judge_host(mut host: PairHostEnd, bytes: &[u8]) -> String {
    let verdict = verdict(host.receive(NOW, bytes, Delivery::Pieces(1)), &{
        show::pdus(true, &host.send(NOW), PLAIN)
    });
    if verdict != "no error" {
        host.take_completions();
        host.receive(NOW, &raw::response(CID, Status::SUCCESS), Delivery::Whole).expect("ignored");
        assert!(host.take_completions().is_empty() && host.send(NOW).is_empty(), "not ended");
    }
    verdict
}

fn table(verdicts: impl Iterator<Item = (&'static str, String)>) -> String {
    verdicts.map(|(name, verdict)| format!("{name}: {verdict}\n")).collect()
}

fn ready_target(digests: Digests) -> PairTargetEnd {
    let mut target = PairTargetEnd::new(PairSetup::default().target());
    let icreq = patch(raw::icreq(), DGST, &[digests.to_byte()]);
    target.receive(NOW, &icreq, Delivery::Whole).expect("valid");
    target.send(NOW);
    target
}

#[test]
fn icreq() {
    let cases: Cases = vec![
        ("PFV 1", patch(raw::icreq(), PFV, &[1])),
        ("HPDA 32", patch(raw::icreq(), PDA, &[32])),
        ("reserved digest bit", patch(raw::icreq(), DGST, &[4])),
        ("HLEN 120", patch(raw::icreq(), raw::HLEN, &[120])),
        ("PLEN 127", patch(raw::icreq(), raw::PLEN, &[127])),
        ("PLEN 132", patch(raw::icreq(), raw::PLEN, &[132])),
        ("PLEN 2^32-1", patch(raw::icreq(), raw::PLEN, &[255; 4])),
        ("HDGST flag", patch(raw::icreq(), raw::FLAGS, &[flag::HDGST])),
    ];
    let fresh = || PairTargetEnd::new(PairSetup::default().target());
    let verdicts = cases.into_iter().map(|(n, bytes)| (n, judge_target(fresh(), &bytes, PLAIN)));
    insta::assert_snapshot!(table(verdicts));
}

#[test]
fn command_capsules() {
    let data = pattern(BLOCK, 1);
    let (plain, in_capsule) = (raw::flush(1), raw::write_in_capsule(1, &data, PLAIN));
    let full = (1..=33).flat_map(|cid| raw::write(cid, 16)).collect();
    let cases: Cases = vec![
        ("HLEN 71", patch(plain.clone(), raw::HLEN, &[71])),
        ("PLEN 71", patch(plain.clone(), raw::PLEN, &[71])),
        ("PLEN 0", patch(plain.clone(), raw::PLEN, &[0])),
        ("PDO within the header", patch(in_capsule.clone(), raw::PDO, &[68])),
        ("PDO not aligned", patch(in_capsule.clone(), raw::PDO, &[73])),
        (
            "PDO beyond PLEN",
            patch(patch(in_capsule.clone(), raw::PDO, &[252]), raw::PLEN, &[240, 0]),
        ),
        ("digest flags not agreed", patch(plain.clone(), raw::FLAGS, &[flag::HDGST])),
        ("LAST on a command", patch(plain.clone(), raw::FLAGS, &[flag::LAST])),
        ("data above IOCCSZ", raw::write_in_capsule(1, &pattern(17 * BLOCK, 1), PLAIN)),
        ("PLEN 2^32-1", patch(in_capsule, raw::PLEN, &[255; 4])),
        ("33 commands in 32 entries", full),
    ];
    let verdicts = cases
        .into_iter()
        .map(|(name, bytes)| (name, judge_target(ready_target(PLAIN), &bytes, PLAIN)));
    insta::assert_snapshot!(table(verdicts));
}

#[test]
fn digests_of_commands() {
    let data = pattern(BLOCK, 1);
    let command = raw::write_in_capsule(1, &data, BOTH);
    let cases: Cases = vec![
        ("header digest", patch(command.clone(), 72, &[0; 4])),
        ("header", patch(command.clone(), 50, &[0xff])),
        ("no header digest flag", patch(command.clone(), raw::FLAGS, &[flag::DDGST])),
        ("no data digest flag", patch(command.clone(), raw::FLAGS, &[flag::HDGST])),
        ("data digest", patch(command.clone(), command.len() - 4, &[0; 4])),
        ("data", patch(command, 100, &[0; 4])),
    ];
    let verdicts = cases
        .into_iter()
        .map(|(name, bytes)| (name, judge_target(ready_target(BOTH), &bytes, BOTH)));
    insta::assert_snapshot!(table(verdicts));
}

#[test]
fn h2c_data() {
    let target = || {
        let mut target = ready_target(PLAIN);
        target.receive(NOW, &raw::write(1, 16), Delivery::Whole).expect("valid");
        assert_eq!(show::pdus(false, &target.send(NOW), PLAIN).len(), 1, "the R2T of 8192 bytes");
        target
    };
    let data = pattern(16 * BLOCK, 1);
    let half = raw::h2c_data(1, 0, 0, &data[..4096], false);
    let second = raw::h2c_data(1, 0, 4096, &data[4096..], true);
    let both = [half.clone(), second].concat();
    let cases: Cases = vec![
        ("valid", both.clone()),
        ("more after the last", [both, raw::h2c_data(1, 0, 8192, &data[..512], true)].concat()),
        ("TTAG of no slot", patch(half.clone(), TTAG, &[1])),
        ("CCCID of another command", patch(half.clone(), CCCID, &[2])),
        ("DATAO skips", raw::h2c_data(1, 0, 512, &data[..512], false)),
        ("DATAO repeats", [half.clone(), half.clone()].concat()),
        ("DATAO + DATAL wraps", patch(half.clone(), DATAO, &[255; 4])),
        ("DATAL beyond PLEN", patch(half.clone(), DATAL, &[1, 16])),
        ("DATAL 0", raw::h2c_data(1, 0, 0, &[], false)),
        ("above MAXH2CDATA", raw::h2c_data(1, 0, 0, &data[..4100], false)),
        (
            "beyond the R2T",
            [half.clone(), raw::h2c_data(1, 0, 4096, &data[..4096], false)].concat(),
        ),
        ("LAST too early", raw::h2c_data(1, 0, 0, &data[..4096], true)),
        ("SUCCESS flag", patch(half.clone(), raw::FLAGS, &[flag::SUCCESS])),
        ("PLEN 2^32-1", patch(half, raw::PLEN, &[255; 4])),
    ];
    let verdicts =
        cases.into_iter().map(|(name, bytes)| (name, judge_target(target(), &bytes, PLAIN)));
    insta::assert_snapshot!(table(verdicts));
}

#[test]
fn icresp() {
    let cases: Cases = vec![
        ("PFV 1", patch(raw::icresp(4096), PFV, &[1])),
        ("CPDA 32", patch(raw::icresp(4096), PDA, &[32])),
        ("digest not requested", patch(raw::icresp(4096), DGST, &[1])),
        ("reserved digest bit", patch(raw::icresp(4096), DGST, &[8])),
        ("MAXH2CDATA 4092", patch(raw::icresp(4096), MAXH2CDATA, &[0xfc, 0x0f])),
        ("PLEN 24", patch(raw::icresp(4096), raw::PLEN, &[24])),
    ];
    let host = || {
        let mut host = PairHostEnd::new(NOW, PairSetup::default().host());
        host.send(NOW);
        host.connect(NOW, &PairSetup::default());
        host
    };
    let verdicts = cases.into_iter().map(|(name, bytes)| (name, judge_host(host(), &bytes)));
    insta::assert_snapshot!(table(verdicts));
}

#[test]
fn a_target_that_refuses_the_digests_is_left() {
    let mut host =
        PairHostEnd::new(NOW, PairSetup { digests: BOTH, ..PairSetup::default() }.host());
    host.send(NOW);
    insta::assert_snapshot!(judge_host(host, &raw::icresp(4096)), @r#"peer misbehaved: controller refuses the digests asked for (InvalidPduHeaderField, 0xb) ["H2cTermReq fes 1 fei 0xb (pdo 0 plen 24)"]"#);
}

fn ready_host() -> PairHostEnd {
    let mut host = PairHostEnd::new(NOW, PairSetup::default().host());
    host.send(NOW);
    host.receive(NOW, &raw::icresp(4096), Delivery::Whole).expect("valid");
    host
}

#[test]
fn answers_to_a_read() {
    let host = || {
        let mut host = ready_host();
        host.read(NOW, 0, 4);
        host.send(NOW);
        host
    };
    let data = pattern(4 * BLOCK, 1);
    let whole = raw::c2h_data(CID, 0, &data, flag::LAST | flag::SUCCESS);
    let half = raw::c2h_data(CID, 0, &data[..1024], 0);
    let cases: Cases = vec![
        ("valid", whole.clone()),
        ("completed twice", [whole.clone(), whole.clone()].concat()),
        ("stale generation", patch(whole.clone(), CCCID + 1, &[0])),
        ("slot beyond the queue", patch(whole.clone(), CCCID, &[255, 7])),
        ("DATAO skips", raw::c2h_data(CID, 512, &data[..512], 0)),
        ("DATAO repeats", [half.clone(), half.clone()].concat()),
        ("beyond the buffer", raw::c2h_data(CID, 0, &[0; 2052], flag::LAST)),
        ("beyond the buffer, second", [half.clone(), raw::c2h_data(CID, 1024, &data, 0)].concat()),
        ("DATAO + DATAL wraps", patch(half.clone(), DATAO, &[255; 4])),
        ("DATAL beyond PLEN", patch(half.clone(), DATAL, &[1])),
        ("DATAL 0", raw::c2h_data(CID, 0, &[], flag::LAST)),
        ("SUCCESS without LAST", raw::c2h_data(CID, 0, &data, flag::SUCCESS)),
        ("R2T", raw::r2t(CID, 1, 0, 512)),
        ("PLEN 2^32-1", patch(half, raw::PLEN, &[255; 4])),
    ];
    let verdicts = cases.into_iter().map(|(name, bytes)| (name, judge_host(host(), &bytes)));
    insta::assert_snapshot!(table(verdicts));
}

#[test]
fn answers_to_a_write() {
    let host = || {
        let mut host = ready_host();
        host.write(NOW, 0, pattern(32 * BLOCK, 1));
        host.send(NOW);
        host
    };
    let whole = raw::r2t(CID, 1, 0, 32 * BLOCK);
    let cases: Cases = vec![
        ("valid", whole.clone()),
        ("two R2Ts at once", [raw::r2t(CID, 1, 0, 512), raw::r2t(CID, 1, 512, 512)].concat()),
        ("R2TO skips", raw::r2t(CID, 1, 512, 512)),
        ("R2TL 0", raw::r2t(CID, 1, 0, 0)),
        ("beyond the data", raw::r2t(CID, 1, 0, 32 * BLOCK + 1)),
        ("R2TO + R2TL wraps", raw::r2t(CID, 1, 0, u32::MAX)),
        ("of no command", raw::r2t(CID + 1, 1, 0, 512)),
        ("data", raw::c2h_data(CID, 0, &[0; 512], flag::LAST)),
    ];
    let verdicts = cases.into_iter().map(|(name, bytes)| (name, judge_host(host(), &bytes)));
    insta::assert_snapshot!(table(verdicts));
}

/// A controller ends a write whose H2CData is still waiting: no data of it is sent, nor in the slot's next command.
#[test]
fn a_write_that_ends_early_sends_no_data() {
    let mut host = ready_host();
    host.write(NOW, 0, pattern(32 * BLOCK, 1));
    host.send(NOW);
    let early = [raw::r2t(CID, 1, 0, 32 * BLOCK), raw::response(CID, Status::WRITE_FAULT)].concat();
    host.receive(NOW, &early, Delivery::Whole).expect("valid");
    let done = host.take_completions();
    assert!(done.len() == 1 && done[0].cqe.status().is(Status::WRITE_FAULT));
    host.read(NOW, 0, 1);
    let sent = show::pdus(true, &host.send(NOW), PLAIN);
    assert!(sent.len() == 1 && sent[0].starts_with("CapsuleCmd"), "{sent:?}");
    assert!(!host.qpair.has_tx());
}

/// A controller that responds to a command before it was sent must not free its slot.
#[test]
fn a_command_is_not_completed_before_it_was_sent() {
    let mut host = ready_host();
    host.write(NOW, 0, pattern(BLOCK, 1));
    let error = host.receive(NOW, &raw::response(CID, Status::SUCCESS), Delivery::Whole);
    assert!(matches!(error, Err(QpairError::Peer(_))));
    assert!(host.take_completions().is_empty());
}

/// A stream may be cut anywhere: its first part is valid, and the rest continues from there.
#[test]
fn a_stream_may_pause_at_every_byte() {
    let setup = PairSetup { digests: BOTH, sq_flow_control: false, ..PairSetup::default() };
    let fresh = || {
        let mut pair = ConnectionPair::connected(setup);
        pair.host.write(NOW, 8, pattern(BLOCK, 3));
        pair.host.read(NOW, 0, 1);
        pair.host.flush(NOW);
        let from_host = pair.host.send(NOW);
        (pair, from_host)
    };
    let length = fresh().1.len();
    for cut in 0..=length {
        let (mut pair, from_host) = fresh();
        pair.target.receive(NOW, &from_host[..cut], Delivery::Whole).expect("valid so far");
        let first = pair.target.send(NOW);
        pair.target.receive(NOW, &from_host[cut..], Delivery::Whole).expect("valid");
        let back = [first, pair.target.send(NOW)].concat();
        let cut = cut.min(back.len());
        pair.host.receive(NOW, &back[..cut], Delivery::Whole).expect("valid so far");
        pair.host.receive(NOW, &back[cut..], Delivery::Whole).expect("valid");
        assert_eq!(pair.host.take_completions().len(), 3, "cut at {cut}");
    }
}

/// Returns the identifiers of the commands that `ahead` finds in `input`.
fn ahead(target: &PairTargetEnd, input: &[u8]) -> Vec<u16> {
    target.qpair.ahead(input).map(|sqe| sqe.cid.get()).collect()
}

#[test]
fn commands_are_seen_ahead_as_far_as_they_go() {
    let target = ready_target(PLAIN);
    let write = raw::write_in_capsule(2, &pattern(BLOCK, 1), PLAIN);
    let stream = [raw::flush(1), write, raw::flush(3)].concat();
    assert_eq!(ahead(&target, &stream), [1, 2, 3]);
    for cut in 0..stream.len() {
        let seen = ahead(&target, &stream[..cut]);
        assert!([1, 2, 3].starts_with(&seen), "cut at {cut}: {seen:?}");
    }
    let data = raw::h2c_data(1, 0, 0, &[7; 64], true);
    assert_eq!(ahead(&target, &[raw::flush(1), data, raw::flush(2)].concat()), [1]);
    // A length that leads nowhere, or beyond the input, ends the search.
    let none = patch(raw::flush(4), raw::PLEN, &[0; 4]);
    assert_eq!(ahead(&target, &[none, raw::flush(5)].concat()), [4, 5]);
    let all = patch(raw::flush(6), raw::PLEN, &[0xff; 4]);
    assert_eq!(ahead(&target, &[all, raw::flush(7)].concat()), [6]);
}

#[test]
fn nothing_is_seen_ahead_within_data_or_before_the_start() {
    let fresh = PairTargetEnd::new(PairSetup::default().target());
    assert_eq!(ahead(&fresh, &raw::flush(1)), []);
    let mut target = ready_target(PLAIN);
    target.receive(NOW, &raw::connect(1, 32)[..200], Delivery::Whole).expect("valid so far");
    assert_eq!(ahead(&target, &raw::flush(2)), []);
}
