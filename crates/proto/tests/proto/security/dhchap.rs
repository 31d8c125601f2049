//! DH-HMAC-CHAP: transactions recorded with Linux, both ends against each other, and every message in every state.

use super::helpers::{carry_out, offer, seed};
use super::{HOST, SUBSYSTEM, counting, unhex};
use proptest::prelude::*;
use roadtrain_proto::security::dhchap::{
    AuthController, AuthHost, AuthHostError, AuthOffer, AuthParties, AuthProgress, AuthState,
    Challenged, Concatenation, DhGroup, DhResult, DhTask,
};
use roadtrain_proto::security::{DhchapKey, Hash, Secret};
use roadtrain_wire::auth::{Explanation, MessageHead, message};
use std::fmt::Write;

const KNOWN: &str = include_str!("dhchap-known.txt");
const T_ID: u16 = 0x1234;

/// A transaction of the file.
struct KnownTransaction<'a>(&'a str);

impl KnownTransaction<'_> {
    fn text(&self, name: &str) -> Option<&str> {
        self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        unhex(self.text(name).unwrap_or_default())
    }

    /// Returns the word after `name` in the line that begins with `line`.
    fn word(&self, line: &str, name: &str) -> &str {
        let line = self.0.lines().find(|text| text.starts_with(line)).unwrap();
        let mut words = line.split_whitespace();
        words.find(|word| *word == name).unwrap();
        words.next().unwrap()
    }

    fn key(&self, name: &str, nqn: &str) -> Option<Secret> {
        let line = self.text(name)?.split(' ').next().unwrap();
        Some(DhchapKey::parse(line).unwrap().transform(nqn))
    }

    fn parties(&self) -> AuthParties {
        parties(self.key("host secret", HOST), self.key("controller secret", SUBSYSTEM))
    }

    fn offer(&self) -> AuthOffer {
        let hash = self.word("hash", "hash").parse().unwrap();
        let group = self.word("hash", "group").parse().unwrap();
        offer(Hash::from_id(hash).unwrap(), DhGroup::from_id(group).unwrap())
    }

    fn s1(&self) -> [u8; 4] {
        let text = self.word("hash", "s1").trim_start_matches("0x");
        u32::from_str_radix(text, 16).unwrap().to_le_bytes()
    }

    fn powers(&self, public: &str) -> DhResult {
        let session_key = self.offer().hashes[0].digest(&[&self.bytes("g^xy")]);
        DhResult { public: self.bytes(public), session_key: Some(session_key) }
    }
}

fn known() -> impl Iterator<Item = KnownTransaction<'static>> {
    KNOWN.trim().split("\n\n").map(KnownTransaction)
}

pub(super) fn parties(host_key: Option<Secret>, controller_key: Option<Secret>) -> AuthParties {
    AuthParties { hostnqn: HOST.into(), subnqn: SUBSYSTEM.into(), host_key, controller_key }
}

/// Random bytes that are known: those given, then counting ones.
pub(super) fn rigged(given: Vec<Vec<u8>>) -> impl FnMut(&mut [u8]) {
    let mut given = given.into_iter();
    let mut next = 0x80;
    move |place| {
        let bytes = given.next().unwrap_or_else(|| counting(next, place.len()));
        next = next.wrapping_add(1);
        place.copy_from_slice(&bytes[..place.len()]);
    }
}

/// The host replies to Linux's controller with values that Linux has accepted.
#[test]
fn hosts_answer_as_linux_expects() {
    let mut checked = 0;
    for known in known() {
        let (hash, parties) = (known.offer().hashes[0], known.parties());
        let mut host = AuthHost::new(parties.clone(), AuthOffer::default(), T_ID);
        let c1 = known.bytes("c1");
        let public = known.bytes("controller public");
        let group = known.offer().groups[0];
        let challenge = challenge(hash, group, &c1, &known.s1(), &public);
        let challenged = host.challenge(&challenge, &mut seed(1)).unwrap();
        if let Some(work) = challenged.work() {
            work.supply(known.powers("host public"));
        }
        let c2 = known.bytes("s2 7 c2");
        let given = if c2.is_empty() { vec![] } else { vec![c2.clone(), vec![7, 0, 0, 0]] };
        let mut random = rigged(given);
        let reply = host.reply(&challenged, &mut random).unwrap();
        let length = hash.bytes();
        assert_eq!(reply[16..16 + length], known.bytes("host response"));
        assert_eq!(reply[16 + 2 * length..], known.bytes("host public"));
        if parties.controller_key.is_none() {
            assert_eq!(reply[8], 0);
            continue;
        }
        assert_eq!((reply[8], &reply[16 + length..16 + 2 * length]), (1, &c2[..]));
        let mut success = vec![1, 3, 0, 0, 0x34, 0x12, length as u8, 0, 1, 0, 0, 0, 0, 0, 0, 0];
        success.extend(known.bytes("controller response"));
        let success2 = host.success1(&success).unwrap().unwrap();
        assert_eq!(success2, [&[1, 4, 0, 0, 0x34, 0x12][..], &[0; 10]].concat());
        checked += 1;
    }
    assert!(checked >= 4);
}

/// The controller accepts the messages of Linux's host, and replies as Linux's controller has.
#[test]
fn controllers_answer_as_linux_does() {
    for known in known() {
        let (offer, parties) = (known.offer(), known.parties());
        let (hash, group) = (offer.hashes[0], offer.groups[0]);
        let mut controller = AuthController::new(parties.clone(), offer.clone());
        let negotiate = AuthHost::new(parties.clone(), AuthOffer::default(), T_ID).negotiate();
        let mut random = rigged(vec![known.bytes("c1"), known.s1().to_vec()]);
        let supply = |progress, public: &str| match progress {
            AuthProgress::Compute(work) => work.supply(known.powers(public)),
            AuthProgress::Done => assert_eq!(group, DhGroup::Null),
        };
        supply(controller.send(&negotiate, &mut random), "controller public");
        assert!(controller.resume());
        let public = known.bytes("controller public");
        let expected = challenge(hash, group, &known.bytes("c1"), &known.s1(), &public);
        assert_eq!(controller.receive(), expected);
        let challenges = parties.controller_key.is_some();
        let length = hash.bytes() as u8;
        let size = (known.bytes("host public").len() as u16).to_le_bytes();
        let mut reply = vec![1, 2, 0, 0, 0x34, 0x12, length, 0, challenges.into(), 0];
        reply.extend([size[0], size[1], if challenges { 7 } else { 0 }, 0, 0, 0]);
        reply.extend(known.bytes("host response"));
        let zeroes = vec![0; length.into()];
        reply.extend(if challenges { known.bytes("s2 7 c2") } else { zeroes.clone() });
        reply.extend(known.bytes("host public"));
        supply(controller.send(&reply, &mut seed(2)), "controller public");
        assert!(controller.resume());
        let success = controller.receive();
        assert_eq!(success[..9], [1, 3, 0, 0, 0x34, 0x12, length, 0, challenges.into()]);
        let response = if challenges { known.bytes("controller response") } else { zeroes };
        assert_eq!(success[16..], response);
        if challenges {
            assert!(matches!(controller.state(), AuthState::Success2));
            controller.send(&SUCCESS2, &mut seed(3));
        }
        assert!(matches!(controller.state(), AuthState::Authenticated));
        assert_eq!(controller.take_failure(), None);
    }
}

const SUCCESS2: [u8; 16] = [1, 4, 0, 0, 0x34, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

fn challenge(hash: Hash, group: DhGroup, c1: &[u8], s1: &[u8], public: &[u8]) -> Vec<u8> {
    let size = (public.len() as u16).to_le_bytes();
    let head = [1, 1, 0, 0, 0x34, 0x12, hash.bytes() as u8, 0, hash.id(), group.id()];
    [&head[..], &size, s1, c1, public].concat()
}

pub(super) fn key(byte: u8) -> Option<Secret> {
    Some(Secret::new(&[byte; 32]))
}

/// Runs both ends to the end; returns the host's result.
pub(super) fn authenticate(
    controller: &mut AuthController,
    host: &mut AuthHost,
) -> Result<(), AuthHostError> {
    let ended = exchange(controller, host);
    if let Err(error) = ended
        && let Some(failure) = host.failure2(error)
    {
        controller.send(&failure, &mut seed(9));
        assert!(matches!(controller.state(), AuthState::Failed));
    }
    ended
}

fn exchange(controller: &mut AuthController, host: &mut AuthHost) -> Result<(), AuthHostError> {
    let progress = controller.send(&host.negotiate(), &mut seed(1));
    carry_out(progress, controller);
    let challenged = host.challenge(&controller.receive(), &mut seed(2))?;
    challenged.work().iter().for_each(|work| work.compute());
    let reply = host.reply(&challenged, &mut seed(3))?;
    let progress = controller.send(&reply, &mut seed(4));
    carry_out(progress, controller);
    if let Some(success2) = host.success1(&controller.receive())? {
        carry_out(controller.send(&success2, &mut seed(5)), controller);
    }
    Ok(())
}

#[test]
fn all_hashes_and_groups_authenticate_one_side_and_both() {
    for hash in Hash::ALL {
        // One large group is enough for a test; the others differ by their prime only.
        for group in [DhGroup::Null, DhGroup::Ffdhe2048, DhGroup::Ffdhe4096] {
            for controller_key in [None, key(2)] {
                let parties = parties(key(1), controller_key);
                let mut controller = AuthController::new(parties.clone(), offer(hash, group));
                let mut host = AuthHost::new(parties, AuthOffer::default(), 7);
                authenticate(&mut controller, &mut host).unwrap();
                assert!(matches!(controller.state(), AuthState::Authenticated));
                assert_eq!(controller.agreed(), (hash, group));
                assert_eq!(controller.take_failure(), None);
                // And once more, as a host may at any time.
                authenticate(&mut controller, &mut host).unwrap();
                assert!(matches!(controller.state(), AuthState::Authenticated));
            }
        }
    }
}

#[test]
fn an_end_with_another_key_is_refused_and_no_end_continues_without_its_requirements() {
    let offer = || offer(Hash::Sha256, DhGroup::Null);
    let run = |ours: AuthParties, theirs: AuthParties| {
        let mut controller = AuthController::new(ours, offer());
        let ended = authenticate(&mut controller, &mut AuthHost::new(theirs, offer(), 7));
        assert!(ended.is_ok() || matches!(controller.state(), AuthState::Failed));
        (ended, controller.take_failure().map(|(explanation, _)| explanation))
    };
    let failed = Explanation::Failed;
    let refused = (Err(AuthHostError::Refused(failed)), Some(failed));
    // The host's key is another one, or the controller has none.
    assert_eq!(run(parties(key(1), None), parties(key(2), None)), refused);
    assert_eq!(run(parties(None, None), parties(key(2), None)), refused);
    // The host requires a response that the controller has no key for: the error names that, too.
    let (ended, said) = run(parties(key(1), None), parties(key(1), key(3)));
    assert_eq!((&ended, said), (&Err(AuthHostError::RefusedBoth), Some(failed)));
    assert!(ended.unwrap_err().to_string().contains("the key of --dhchap-ctrl-secret?"));
    // The controller's key is another one.
    let (ended, failure) = run(parties(key(1), key(2)), parties(key(1), key(3)));
    assert!(matches!(ended, Err(AuthHostError::Refuses(Explanation::Failed, _))), "{ended:?}");
    assert_eq!(failure, Some(failed));
    // The host has none.
    let (ended, _) = run(parties(key(1), None), parties(None, None));
    assert_eq!(ended, Err(AuthHostError::NoKey));
    // Other names.
    let other = AuthParties { hostnqn: "nqn.x:other".into(), ..parties(key(1), None) };
    assert_eq!(run(parties(key(1), None), other), refused);
}

#[test]
fn a_controller_without_its_response_is_refused() {
    let both = parties(key(1), key(2));
    let mut controller = AuthController::new(both.clone(), offer(Hash::Sha256, DhGroup::Null));
    let mut host = AuthHost::new(both, AuthOffer::default(), 7);
    let progress = controller.send(&host.negotiate(), &mut seed(1));
    carry_out(progress, &mut controller);
    let challenged = host.challenge(&controller.receive(), &mut seed(2)).unwrap();
    let reply = host.reply(&challenged, &mut seed(3)).unwrap();
    controller.send(&reply, &mut seed(4));
    let mut success1 = controller.receive();
    success1[8] = 0; // RVALID
    for _ in 0..2 {
        let refused = host.success1(&success1);
        assert!(
            matches!(refused, Err(AuthHostError::Refuses(Explanation::Failed, _))),
            "{refused:?}"
        );
    }
}

/// Reasons to refuse a Reply; everything else of it is right.
#[test]
fn hostile_replies_are_refused_for_what_is_wrong_with_them() {
    type Damage = fn(&mut Vec<u8>, &[u8]);
    let cases: &[(&str, Explanation, Damage)] = &[
        ("T_ID", Explanation::Payload, |reply, _| reply[4] ^= 1),
        ("HL", Explanation::Payload, |reply, _| reply[6] = 48),
        ("CVALID", Explanation::Payload, |reply, _| reply[8] = 2),
        ("DH value", Explanation::Payload, |reply, _| reply[11] = 0),
        ("length", Explanation::Payload, |reply, _| reply.truncate(40)),
        ("length", Explanation::Payload, |reply, _| reply.truncate(15)),
        ("length", Explanation::Payload, |reply, _| reply.truncate(335)),
        ("S2", Explanation::Payload, |reply, _| reply[12..16].fill(0)),
        ("C2", Explanation::Failed, |reply, c1| reply[48..80].copy_from_slice(c1)),
        ("DH value", Explanation::Payload, |reply, _| reply[80..].fill(0)),
        ("DH value", Explanation::Payload, |reply, _| {
            reply[80..].fill(0);
            *reply.last_mut().unwrap() = 1;
        }),
        ("DH value", Explanation::Payload, |reply, _| reply[80..].fill(0xff)),
        ("response: the host has another key", Explanation::Failed, |reply, _| reply[16] ^= 1),
        ("message", Explanation::Message, |reply, _| reply[1] = 4),
        ("message", Explanation::Message, |reply, _| reply[0] = 0),
    ];
    for (what, explanation, damage) in cases {
        let both = parties(key(1), key(2));
        let mut controller =
            AuthController::new(both.clone(), offer(Hash::Sha256, DhGroup::Ffdhe2048));
        let mut host = AuthHost::new(both, AuthOffer::default(), 7);
        let progress = controller.send(&host.negotiate(), &mut seed(1));
        carry_out(progress, &mut controller);
        let challenge = controller.receive();
        let challenged = host.challenge(&challenge, &mut seed(2)).unwrap();
        challenged.work().unwrap().compute();
        let mut reply = host.reply(&challenged, &mut seed(3)).unwrap();
        damage(&mut reply, &challenge[16..48]);
        let progress = controller.send(&reply, &mut seed(4));
        carry_out(progress, &mut controller);
        assert_eq!(controller.take_failure(), Some((*explanation, *what)));
        let failure = controller.receive();
        assert_eq!(failure, [0, 0xf1, 0, 0, 7, 0, 1, *explanation as u8], "{what}");
        assert!(matches!(controller.state(), AuthState::Failed));
    }
}

/// Reasons to refuse a Negotiate.
#[test]
fn hostile_negotiations_are_refused_for_what_is_wrong_with_them() {
    type Damage = fn(&mut Vec<u8>);
    let cases: &[(&str, Explanation, Damage)] = &[
        ("length", Explanation::Payload, |m| m.truncate(71)),
        ("SC_C", Explanation::SecureChannel, |m| m[6] = 2),
        ("AuthID", Explanation::Protocol, |m| m[7] = 0),
        ("AuthID", Explanation::Protocol, |m| m[8] = 2),
        ("HALEN, DHLEN", Explanation::Payload, |m| m[10] = 31),
        ("HALEN, DHLEN", Explanation::Payload, |m| m[11] = 255),
        ("hashes", Explanation::Hash, |m| m[10] = 0),
        ("groups", Explanation::Group, |m| m[11] = 0),
        ("groups", Explanation::Group, |m| m[42..72].fill(9)),
    ];
    for (what, explanation, damage) in cases {
        let both = parties(key(1), None);
        let mut controller = AuthController::new(both.clone(), AuthOffer::default());
        let mut negotiate = AuthHost::new(both, AuthOffer::default(), 7).negotiate();
        damage(&mut negotiate);
        assert!(matches!(controller.send(&negotiate, &mut seed(1)), AuthProgress::Done));
        assert_eq!(controller.take_failure(), Some((*explanation, *what)));
    }
}

/// Reasons to refuse a Challenge.
#[test]
fn hostile_challenges_are_refused_for_what_is_wrong_with_them() {
    let (hash, group) = (Hash::Sha256, DhGroup::Ffdhe2048);
    let public = [&[0x80][..], &[0; 255]].concat();
    let good = challenge(hash, group, &[5; 32], &[1, 0, 0, 0], &public);
    let refused = |damage: fn(&mut Vec<u8>)| {
        let mut host = AuthHost::new(parties(key(1), None), offer(hash, group), T_ID);
        let mut bytes = good.clone();
        damage(&mut bytes);
        host.challenge(&bytes, &mut seed(2)).err()
    };
    assert_eq!(refused(|_| {}), None);
    use Explanation::{Group as BadGroup, Hash as BadHash, Message, Payload};
    let refuses = |explanation, what| Some(AuthHostError::Refuses(explanation, what));
    assert_eq!(refused(|m| m[4] = 0), refuses(Message, "T_ID"));
    assert_eq!(refused(|m| m[1] = 3), refuses(Message, "message"));
    assert_eq!(refused(|m| m[8] = 2), refuses(BadHash, "hash"));
    assert_eq!(refused(|m| m[9] = 0), refuses(BadGroup, "group"));
    assert_eq!(refused(|m| m[6] = 31), refuses(Payload, "HL"));
    assert_eq!(refused(|m| m[10] = 1), refuses(Payload, "length"));
    assert_eq!(refused(|m| m[11] = 0), refuses(Payload, "DH value"));
    assert_eq!(refused(|m| m[48..].fill(0)), refuses(Payload, "DH value"));
    assert_eq!(refused(|m| m[48..].fill(0xff)), refuses(Payload, "DH value"));
    assert_eq!(refused(|m| m.truncate(12)), refuses(Payload, "length"));
    assert_eq!(refused(Vec::clear), refuses(Payload, "length"));
    assert_eq!(refused(|m| m[..8].copy_from_slice(&[0, 0xf1, 0, 0, 0x34, 0x12, 1, 1])), {
        Some(AuthHostError::Refused(Explanation::Failed))
    });
}

/// Returns a controller in each of its states. Two of them wait for a computation.
fn in_state(
    number: usize,
    concatenates: bool,
) -> (AuthController, AuthHost, Option<Challenged>, Option<DhTask>) {
    let both = parties(key(1), key(2));
    let mut controller = AuthController::new(both.clone(), offer(Hash::Sha256, DhGroup::Ffdhe2048));
    let mut host = AuthHost::new(both, AuthOffer::default(), T_ID);
    if concatenates {
        controller.set_concatenation(Concatenation::Required);
        host = host.concatenating();
    }
    let mut challenged = None;
    if number == 0 {
        return (controller, host, None, None);
    }
    let AuthProgress::Compute(work) = controller.send(&host.negotiate(), &mut seed(1)) else {
        panic!()
    };
    if number == 1 {
        return (controller, host, None, Some(work));
    }
    work.compute();
    assert!(controller.resume());
    if number > 2 {
        let read = host.challenge(&controller.receive(), &mut seed(2)).unwrap();
        read.work().unwrap().compute();
        challenged = Some(read);
    }
    let reply = challenged.as_ref().map(|read| host.reply(read, &mut seed(3)).unwrap());
    let Some(reply) = reply.filter(|_| number > 3) else {
        return (controller, host, challenged, None);
    };
    let AuthProgress::Compute(work) = controller.send(&reply, &mut seed(4)) else { panic!() };
    if number == 4 {
        return (controller, host, challenged, Some(work));
    }
    work.compute();
    assert!(controller.resume());
    if number > 5 {
        controller.receive();
    }
    if number > 6 {
        controller.send(&SUCCESS2, &mut seed(5));
    }
    if number > 7 {
        controller.send(&SUCCESS2, &mut seed(5));
    }
    if number > 8 {
        controller.receive();
    }
    (controller, host, challenged, None)
}

#[test]
fn every_message_in_every_state() {
    insta::assert_snapshot!(table(false));
}

/// The same with a PSK, which exists once the host is authenticated and not before.
#[test]
fn every_message_in_every_state_of_a_concatenation() {
    insta::assert_snapshot!(table(true));
}

fn table(concatenates: bool) -> String {
    let mut table = String::new();
    for number in 0..10 {
        let (controller, ..) = in_state(number, concatenates);
        writeln!(table, "{:?}", controller.state()).unwrap();
        for kind in
            ["negotiate", "reply", "success2", "failure2", "challenge", "short", "(receive)"]
        {
            let (mut controller, mut host, challenged, _work) = in_state(number, concatenates);
            let bytes = match (kind, &challenged) {
                ("negotiate", _) => host.negotiate(),
                ("reply", Some(read)) => host.reply(read, &mut seed(6)).unwrap(),
                ("reply", None) => [&[1, 2, 0, 0, 0x34, 0x12][..], &[0; 100]].concat(),
                ("success2", _) => SUCCESS2.to_vec(),
                ("failure2", _) => vec![0, 0xf0, 0, 0, 0x34, 0x12, 1, 1],
                ("challenge", _) => vec![1, 1, 0, 0, 0x34, 0x12],
                _ => vec![1],
            };
            let done = if kind == "(receive)" {
                let message = controller.receive();
                let head = MessageHead::of(&message).unwrap();
                let name = [
                    (message::CHALLENGE, "Challenge"),
                    (message::SUCCESS1, "Success1"),
                    (message::FAILURE1, "Failure1"),
                ];
                name.iter().find(|(kind, _)| *kind == head.kind).unwrap().1
            } else {
                match controller.send(&bytes, &mut seed(7)) {
                    AuthProgress::Done => "done",
                    AuthProgress::Compute(_) => "compute",
                }
            };
            let failure = controller.take_failure();
            let psk = if controller.take_psk().is_some() { " PSK" } else { "" };
            writeln!(table, "  {kind:10} {done:10} -> {:?} {failure:?}{psk}", controller.state())
                .unwrap();
        }
    }
    table
}

/// A repeated challenge or reply is out of turn; a new transaction has new secrets.
#[test]
fn replayed_messages_do_not_count() {
    let both = parties(key(1), None);
    let mut controller = AuthController::new(both.clone(), offer(Hash::Sha256, DhGroup::Null));
    let mut host = AuthHost::new(both, AuthOffer::default(), 7);
    let mut random = seed(1);
    controller.send(&host.negotiate(), &mut random);
    let first = controller.receive();
    let challenged = host.challenge(&first, &mut seed(2)).unwrap();
    let reply = host.reply(&challenged, &mut seed(3)).unwrap();
    controller.send(&reply, &mut random);
    controller.receive();
    assert!(matches!(controller.state(), AuthState::Authenticated));
    controller.send(&host.negotiate(), &mut random);
    assert_ne!(controller.receive(), first);
    controller.send(&reply, &mut random);
    assert_eq!(controller.take_failure().unwrap().0, Explanation::Failed);
}

proptest! {
    /// Nothing but the right messages authenticates a host, and no message makes a state machine panic.
    #[test]
    fn arbitrary_messages_authenticate_no_host(
        messages in proptest::collection::vec(
            (proptest::sample::select(vec![[0u8, 0], [1, 2], [1, 4], [0, 0xf0]]),
             proptest::collection::vec(any::<u8>(), 0..120), any::<bool>()),
            1..8,
        )
    ) {
        let mut controller =
            AuthController::new(parties(key(1), key(2)), offer(Hash::Sha256, DhGroup::Null));
        let mut host = AuthHost::new(parties(key(3), key(2)), offer(Hash::Sha256, DhGroup::Null), 7);
        controller.send(&host.negotiate(), &mut seed(1));
        for (kind, rest, fetches) in messages {
            let bytes = [&kind[..], &rest].concat();
            let _ = controller.send(&bytes, &mut seed(1));
            controller.resume();
            if fetches {
                controller.receive();
            }
            prop_assert!(!matches!(controller.state(), AuthState::Authenticated | AuthState::Success1));
            let _ = host.challenge(&bytes, &mut seed(1));
            prop_assert!(host.success1(&bytes).is_err());
        }
    }
}
