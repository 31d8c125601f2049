//! Secure channel concatenation: an authentication that generates a PSK for TLS. Recordings of it in both roles, both
//! ends against each other, and refusals.

use super::dhchap::{authenticate, key, parties, rigged};
use super::helpers::{carry_out, offer, seed};
use super::{HOST, SUBSYSTEM, unhex};
use crate::capture;
use roadtrain_proto::security::dhchap::{
    AuthController, AuthHost, AuthHostError, AuthOffer, AuthParties, AuthProgress, AuthState,
    Concatenation, DhGroup, DhResult,
};
use roadtrain_proto::security::{DhchapKey, Hash, Secret};
use roadtrain_wire::auth::{Explanation, message, secure_channel};
use roadtrain_wire::pdu::PduType;

const RECORDINGS: [&str; 2] = ["concat-256", "concat-384"];

/// A recorded authentication: its messages as they were sent, and the values that the kernel and another program
/// report.
struct RecordedAuthentication {
    listing: String,
    messages: Vec<Vec<u8>>,
}

impl RecordedAuthentication {
    fn new(name: &str) -> Self {
        let listing = capture::folder().join(format!("tls/{name}.txt"));
        // The second connection is TLS. A message follows the header of the PDU that carries it.
        let first = capture::pdus_of(&format!("tls/{name}"), 1).into_iter();
        let carries = |pdu: &capture::Recorded| {
            let kind = pdu.bytes[0];
            kind == PduType::CapsuleCmd as u8 || kind == PduType::C2hData as u8
        };
        let messages = first.filter(carries).filter_map(|pdu| {
            let data = &pdu.bytes[usize::from(pdu.bytes[3])..];
            (pdu.bytes[3] > 0 && data.len() != 1024).then(|| data.to_vec())
        });
        RecordedAuthentication {
            messages: messages.collect(),
            listing: std::fs::read_to_string(listing).expect("a readable listing"),
        }
    }

    fn message(&self, kind: [u8; 2]) -> &[u8] {
        self.messages.iter().find(|bytes| bytes.starts_with(&kind)).expect("it was recorded")
    }

    /// Returns the bytes after `name=` in the listing.
    fn bytes(&self, name: &str) -> Vec<u8> {
        let name = format!(" {name}=");
        let (_, rest) = self.listing.split_once(&name).expect("it is there");
        unhex(rest.trim_start_matches("ok ").split_whitespace().next().unwrap_or_default())
    }

    /// Only the host's key: the controller sends no response.
    fn parties(&self) -> AuthParties {
        let (_, line) = self.listing.split_once("--dhchap-secret=").expect("the command");
        let line = line.split_whitespace().next().expect("a key");
        parties(Some(DhchapKey::parse(line).unwrap().transform(HOST)), None)
    }

    fn powers(&self, public: &[u8]) -> DhResult {
        DhResult { public: public.to_vec(), session_key: Some(Secret::new(&self.bytes("ks"))) }
    }

    /// Public values of controller and host.
    fn publics(&self) -> [&[u8]; 2] {
        let (challenge, reply) = (self.message(message::CHALLENGE), self.message(message::REPLY));
        let hl = usize::from(challenge[6]);
        let length = usize::from(u16::from_le_bytes([challenge[10], challenge[11]]));
        [&challenge[16 + hl..][..length], &reply[16 + 2 * hl..][..length]]
    }

    fn identity(&self) -> &str {
        self.listing.lines().find(|line| line.starts_with("NVMe1G")).expect("the kernel's key")
    }
}

/// Our host replies to Linux's controller as Linux's host has, and generates the same PSK.
#[test]
fn hosts_make_the_psk_that_linux_makes() {
    for name in RECORDINGS {
        let recorded = RecordedAuthentication::new(name);
        let negotiate = recorded.message(message::NEGOTIATE);
        assert_eq!(negotiate[6], secure_channel::NEW_TLS_PSK);
        let all = AuthOffer { hashes: Hash::ALL.to_vec(), groups: DhGroup::ALL.to_vec() };
        let mut host = AuthHost::new(recorded.parties(), all, 0).concatenating();
        let own = host.negotiate();
        assert_eq!(own[..10], negotiate[..10]);
        assert_eq!(own[42..], negotiate[42..], "no group null");
        assert_eq!(own[12..15], [1, 2, 0], "SHA-512 has no cipher suite");

        let challenge = recorded.message(message::CHALLENGE);
        let challenged = host.challenge(challenge, &mut seed(1)).unwrap();
        challenged.work().unwrap().supply(recorded.powers(recorded.publics()[1]));
        let mut random = rigged(vec![recorded.bytes("c2"), vec![9; 4]]);
        let reply = host.reply(&challenged, &mut random).unwrap();
        assert_eq!(reply, recorded.message(message::REPLY));
        assert_eq!(host.take_psk(), None, "the controller has not accepted the host");
        assert_eq!(host.success1(recorded.message(message::SUCCESS1)), Ok(None));
        let psk = host.take_psk().expect("a PSK");
        assert!(psk.secret().is(&recorded.bytes("psk")));
        assert_eq!(psk.tls_psk(HOST, SUBSYSTEM).identity, recorded.identity());
        assert_eq!(host.take_psk(), None);
    }
}

/// Our controller replies to Linux's host as Linux's controller has, and generates the same PSK.
#[test]
fn controllers_make_the_psk_that_linux_makes() {
    for name in RECORDINGS {
        let recorded = RecordedAuthentication::new(name);
        let challenge = recorded.message(message::CHALLENGE);
        let hash = Hash::from_id(challenge[8]).unwrap();
        let group = DhGroup::ALL.into_iter().find(|group| group.id() == challenge[9]).unwrap();
        let mut controller = AuthController::new(recorded.parties(), offer(hash, group));
        controller.set_concatenation(Concatenation::Required);
        let (c1, s1) = (recorded.bytes("c1"), challenge[12..16].to_vec());
        let mut random = rigged(vec![c1, s1]);
        let supply = |progress, public: &[u8]| match progress {
            AuthProgress::Compute(work) => work.supply(recorded.powers(public)),
            AuthProgress::Done => panic!("without a power"),
        };
        let public = recorded.publics()[0];
        supply(controller.send(recorded.message(message::NEGOTIATE), &mut random), public);
        assert!(controller.resume());
        let sent = controller.receive();
        // The kernel's replies have the length that the host requests.
        assert_eq!(sent, challenge[..sent.len()]);
        supply(controller.send(recorded.message(message::REPLY), &mut seed(2)), public);
        assert!(controller.resume());
        assert_eq!(controller.take_psk(), None, "the host does not know yet that it is accepted");
        let sent = controller.receive();
        assert_eq!(sent, recorded.message(message::SUCCESS1)[..sent.len()]);
        assert!(matches!(controller.state(), AuthState::Authenticated));
        let psk = controller.take_psk().expect("a PSK");
        assert!(psk.secret().is(&recorded.bytes("psk")));
        assert_eq!(psk.tls_psk(HOST, SUBSYSTEM).identity, recorded.identity());
    }
}

fn ends(
    own: AuthParties,
    other: AuthParties,
    offers: [AuthOffer; 2],
) -> (AuthController, AuthHost) {
    let [controllers, hosts] = offers;
    let mut controller = AuthController::new(own, controllers);
    controller.set_concatenation(Concatenation::Offered);
    (controller, AuthHost::new(other, hosts, 7).concatenating())
}

/// With the host's key, and with both: then the controller authenticates, too.
#[test]
fn both_ends_make_the_same_psk() {
    for hash in [Hash::Sha256, Hash::Sha384] {
        for controller_key in [None, key(2)] {
            let all = || AuthOffer::default();
            let keys = parties(key(1), controller_key);
            let (mut controller, mut host) =
                ends(keys.clone(), keys, [offer(hash, DhGroup::Ffdhe2048), all()]);
            let mut before = None;
            for _ in 0..2 {
                assert_eq!(authenticate(&mut controller, &mut host), Ok(()));
                assert!(controller.concatenates());
                let (ours, theirs) = (controller.take_psk(), host.take_psk());
                assert!(ours.is_some());
                assert_eq!(ours, theirs);
                before = ours;
            }
            assert!(before.is_some());
        }
    }
}

#[test]
fn an_end_with_another_key_makes_no_psk() {
    let run = |own, other| {
        let (mut controller, mut host) =
            ends(own, other, [AuthOffer::default(), AuthOffer::default()]);
        let ended = authenticate(&mut controller, &mut host);
        assert_eq!((controller.take_psk(), host.take_psk()), (None, None));
        ended
    };
    let failed = Explanation::Failed;
    let refused = Err(AuthHostError::Refused(failed));
    assert_eq!(run(parties(key(1), None), parties(key(2), None)), refused);
    assert_eq!(run(parties(None, None), parties(key(2), None)), refused);
    // The host requires a response: from a controller without a key, and from one with another key.
    let both = Err(AuthHostError::RefusedBoth);
    assert_eq!(run(parties(key(1), None), parties(key(1), key(3))), both);
    let (own, other) = (parties(key(1), key(2)), parties(key(1), key(3)));
    let (mut controller, mut host) = ends(own, other, [AuthOffer::default(), AuthOffer::default()]);
    let ended = authenticate(&mut controller, &mut host);
    assert!(matches!(ended, Err(AuthHostError::Refuses(Explanation::Failed, _))), "{ended:?}");
    assert_eq!((controller.take_psk(), host.take_psk()), (None, None));
}

/// SC_C values that are accepted, and reasons to refuse a Negotiate.
#[test]
fn wrong_uses_are_refused() {
    use Concatenation::{Offered, Refused, Required};
    type Damage = fn(&mut Vec<u8>);
    let channel = Some((Explanation::SecureChannel, "SC_C"));
    let with = |concatenation, own: AuthOffer, damage: Damage| {
        let keys = parties(key(1), None);
        let mut controller = AuthController::new(keys.clone(), own);
        controller.set_concatenation(concatenation);
        let mut negotiate =
            AuthHost::new(keys, AuthOffer::default(), 7).concatenating().negotiate();
        damage(&mut negotiate);
        let _ = controller.send(&negotiate, &mut seed(1));
        controller.take_failure()
    };
    let all = AuthOffer::default;
    let set: [Damage; 5] = [|m| m[6] = 0, |m| m[6] = 1, |m| m[6] = 2, |m| m[6] = 3, |m| m[6] = 255];
    let taken = |concatenation| set.map(|damage| with(concatenation, all(), damage) != channel);
    assert_eq!(taken(Refused), [true, false, false, false, false]);
    assert_eq!(taken(Offered), [true, false, true, false, false]);
    assert_eq!(taken(Required), [false, false, true, false, false]);
    // Null makes no session key, whichever end requires it, and SHA-512 no PSK.
    let only = |hash, group| offer(hash, group);
    let groups = Some((Explanation::Group, "groups"));
    let hashes = Some((Explanation::Hash, "hashes"));
    assert_eq!(with(Offered, only(Hash::Sha256, DhGroup::Null), |_| {}), groups);
    assert_eq!(with(Offered, all(), |m| m[42..72].fill(0)), groups);
    assert_eq!(with(Offered, only(Hash::Sha512, DhGroup::Ffdhe2048), |_| {}), hashes);
    assert_eq!(with(Offered, all(), |m| m[12..42].fill(3)), hashes);
    assert_eq!(with(Offered, all(), |m| (m[6], m[42]) = (0, 0)), None, "as without");
}

/// Reasons to refuse a Reply.
#[test]
fn hostile_replies_make_no_psk() {
    type Damage = fn(&mut Vec<u8>, &[u8]);
    let cases: &[(&str, Explanation, Damage)] = &[
        ("CVALID", Explanation::Payload, |reply, _| reply[8] = 0),
        ("CVALID", Explanation::Payload, |reply, _| reply[8] = 2),
        ("C2", Explanation::Failed, |reply, c1| reply[48..80].copy_from_slice(c1)),
        ("response: the host has another key", Explanation::Failed, |reply, _| reply[16] ^= 1),
        (
            "CVALID: the host requires a response, and the target has no key for it",
            Explanation::Failed,
            |reply, _| reply[12] = 1,
        ),
    ];
    for (what, explanation, damage) in cases {
        let keys = parties(key(1), None);
        let (mut controller, mut host) = ends(
            keys.clone(),
            keys,
            [offer(Hash::Sha256, DhGroup::Ffdhe2048), AuthOffer::default()],
        );
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
        assert_eq!(controller.take_psk(), None);
        let refused = host.success1(&controller.receive());
        assert_eq!(refused, Err(AuthHostError::Refused(*explanation)));
        assert_eq!(host.take_psk(), None);
    }
}

/// A response is valid for one kind of transaction: removing or adding SC_C in transit is detected.
#[test]
fn a_changed_negotiation_is_noticed() {
    for concatenates in [true, false] {
        let keys = parties(key(1), None);
        let mut controller =
            AuthController::new(keys.clone(), offer(Hash::Sha256, DhGroup::Ffdhe2048));
        controller.set_concatenation(Concatenation::Offered);
        let mut host = AuthHost::new(keys, AuthOffer::default(), 7);
        if concatenates {
            host = host.concatenating();
        }
        let mut negotiate = host.negotiate();
        negotiate[6] ^= secure_channel::NEW_TLS_PSK;
        let progress = controller.send(&negotiate, &mut seed(1));
        carry_out(progress, &mut controller);
        let challenged = host.challenge(&controller.receive(), &mut seed(2)).unwrap();
        challenged.work().unwrap().compute();
        let mut reply = host.reply(&challenged, &mut seed(3)).unwrap();
        // The attacker makes the rest of it fit, too.
        (reply[8], reply[12]) = (u8::from(!concatenates), 0);
        let progress = controller.send(&reply, &mut seed(4));
        carry_out(progress, &mut controller);
        assert_eq!(controller.take_failure().unwrap().0, Explanation::Failed);
        assert_eq!(controller.take_psk(), None);
    }
}
