//! Authentications (DH-HMAC-CHAP) between two honest ends, with an attacker between them. No end accepts an impostor,
//! and nothing that was proved was altered.

mod messages;

use crate::attacker::{AttackStep, Attacker, HonestEnd, InterceptedMessage, STEPS_MAX};
use crate::cursor::InputCursor;
use crate::reached::Reached;
use messages::{HostChallenge, HostReply, challenge_bytes, is_response, kind_of, reply_bytes};
use roadtrain_proto::security::dhchap::{
    AuthController, AuthHost, AuthHostError, AuthOffer, AuthParties, AuthProgress, AuthState,
    Concatenation, DhGroup, DhResult, DhTask,
};
use roadtrain_proto::security::{FrameSecret, GeneratedPsk, Hash, SealUse, Secret};
use roadtrain_wire::auth::{RECEIVE_BYTES, message};

/// Bytes of a Negotiate.
const NEGOTIATE_BYTES: usize = 72;
/// Context of a lane's authentication: the messages before it.
const CONTEXT: [u8; 32] = [8; 32];

/// Agreement of the two ends' keys.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AuthKeys {
    Agree,
    /// The host has the key that is being replaced.
    Former,
    HostHasAnother,
    ControllerHasAnother,
}

/// Purpose of the authentication.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Nothing,
    Frames,
    Psk,
}

/// Parameters of a session.
struct AuthPlan {
    hash: Hash,
    group: DhGroup,
    /// True if the controller must prove itself, too.
    both: bool,
    keys: AuthKeys,
    purpose: Purpose,
}

impl AuthPlan {
    fn read(cursor: &mut InputCursor<'_>) -> Self {
        let (shape, purpose) = (cursor.byte(), cursor.byte());
        AuthPlan {
            hash: Hash::ALL[usize::from(shape & 3) % Hash::ALL.len()],
            group: if shape & 4 != 0 { DhGroup::Ffdhe2048 } else { DhGroup::Null },
            both: shape & 8 != 0,
            keys: match shape >> 4 & 3 {
                0 => AuthKeys::Agree,
                1 => AuthKeys::Former,
                2 => AuthKeys::HostHasAnother,
                _ => AuthKeys::ControllerHasAnother,
            },
            purpose: match purpose % 3 {
                0 => Purpose::Nothing,
                1 => Purpose::Frames,
                _ => Purpose::Psk,
            },
        }
    }

    /// True if the authentication succeeds without interference.
    fn succeeds(&self) -> bool {
        let makes_psk = self.group != DhGroup::Null && self.hash != Hash::Sha512;
        let has_keys = match self.keys {
            AuthKeys::Agree | AuthKeys::Former => true,
            AuthKeys::HostHasAnother => false,
            AuthKeys::ControllerHasAnother => !self.both,
        };
        has_keys && (self.purpose != Purpose::Psk || makes_psk)
    }

    fn parties(&self, host_key: u8, controller_key: Option<u8>) -> AuthParties {
        let key = |fill| Secret::new(&[fill; 32]);
        let (hostnqn, subnqn) = ("nqn.x:host".to_owned(), "nqn.x:subsystem".to_owned());
        let controller_key = controller_key.map(key);
        AuthParties { hostnqn, subnqn, host_key: Some(key(host_key)), controller_key }
    }

    fn host(&self, t_id: u16) -> AuthHost {
        let key = if self.keys == AuthKeys::HostHasAnother { 3 } else { 1 };
        let parties = self.parties(key, self.both.then_some(2));
        let host = AuthHost::new(parties, AuthOffer::default(), t_id);
        match self.purpose {
            Purpose::Nothing => host,
            Purpose::Frames => host.with_frames(&CONTEXT),
            Purpose::Psk => host.concatenating(),
        }
    }

    fn controller(&self) -> AuthController {
        let own = if self.keys == AuthKeys::ControllerHasAnother { 4 } else { 2 };
        let (key, former) = match self.keys {
            AuthKeys::Former => (5, Some(Secret::new(&[1; 32]))),
            _ => (1, None),
        };
        let offer = AuthOffer { hashes: vec![self.hash], groups: vec![self.group] };
        let mut controller = AuthController::new(self.parties(key, Some(own)), offer);
        controller.accept_also(former);
        match self.purpose {
            Purpose::Nothing => controller,
            Purpose::Frames => controller.with_frames(SealUse::Required, CONTEXT),
            Purpose::Psk => {
                controller.set_concatenation(Concatenation::Required);
                controller
            }
        }
    }
}

/// State of the host.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HostAuthStage {
    Challenge,
    Success1,
    /// Authenticated.
    Authenticated,
    /// Failed.
    Over,
}

/// Sealing secret of an end, and its transcript at that time.
struct SealingSecret {
    secret: FrameSecret,
    transcript: Vec<u8>,
}

struct AuthSession {
    plan: AuthPlan,
    attacker: Attacker,
    host: AuthHost,
    controller: AuthController,
    stage: HostAuthStage,
    t_id: u16,
    random: u64,
    /// Public value of the controller.
    public: Vec<u8>,
    /// Last challenge of the controller.
    challenge: Vec<u8>,
    /// Last Reply that the controller has accepted.
    accepted: Option<Vec<u8>>,
    /// Last Reply of the host.
    reply: Vec<u8>,
    /// Challenges that the host has received, with its replies.
    answers: Vec<(HostChallenge, HostReply)>,
    /// Replies that the controller has accepted, with its Success1.
    proofs: Vec<(HostReply, Vec<u8>)>,
    /// Transcripts of this transaction, by end.
    transcripts: [Vec<u8>; 2],
    sealings: [Option<SealingSecret>; 2],
    psks: [Option<GeneratedPsk>; 2],
    reached: Reached,
}

/// Runs the session of an input.
///
/// # Panics
/// If an end accepts an impostor, or an authentication without interference fails.
pub fn run(input: &[u8]) -> Reached {
    let mut cursor = InputCursor(input);
    let plan = AuthPlan::read(&mut cursor);
    let mut session = AuthSession::new(plan, cursor.pair());
    session.begin();
    for _ in 0..STEPS_MAX {
        if cursor.is_empty() {
            break;
        }
        session.step(&mut cursor);
    }
    session.finish();
    session.reached
}

fn fill(state: &mut u64, place: &mut [u8]) {
    for byte in place {
        *state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *byte = (*state >> 56) as u8;
    }
}

impl AuthSession {
    fn new(plan: AuthPlan, t_id: u16) -> Self {
        let (host, controller) = (plan.host(t_id), plan.controller());
        AuthSession {
            plan,
            attacker: Attacker::default(),
            host,
            controller,
            stage: HostAuthStage::Over,
            t_id,
            random: 1,
            public: Vec::new(),
            challenge: Vec::new(),
            accepted: None,
            reply: Vec::new(),
            answers: Vec::new(),
            proofs: Vec::new(),
            transcripts: [Vec::new(), Vec::new()],
            sealings: [None, None],
            psks: [None, None],
            reached: Reached::default(),
        }
    }

    /// Begins a transaction at the host.
    fn begin(&mut self) {
        self.host = self.plan.host(self.t_id);
        self.t_id = self.t_id.wrapping_add(1);
        let negotiate = self.host.negotiate();
        self.transcripts[0] = negotiate.clone();
        (self.sealings, self.psks) = ([None, None], [None, None]);
        self.stage = HostAuthStage::Challenge;
        self.attacker.send(HonestEnd::Target, negotiate);
    }

    fn step(&mut self, cursor: &mut InputCursor<'_>) {
        match self.attacker.step(cursor) {
            AttackStep::Deliver(message) => self.deliver(&message),
            AttackStep::Act { kind: 0 | 1, .. } if self.stage == HostAuthStage::Authenticated => {
                self.reached.note("host: begins again");
                self.begin();
            }
            AttackStep::Act { kind: 2, .. } => {
                self.attacker.touch();
                self.fetch();
            }
            AttackStep::Act { .. } | AttackStep::Nothing => {}
        }
    }

    fn deliver(&mut self, message: &InterceptedMessage) {
        match (message.to, self.stage) {
            (HonestEnd::Target, _) => self.at_controller(&message.bytes),
            (HonestEnd::Host, HostAuthStage::Challenge) => self.challenged(&message.bytes),
            (HonestEnd::Host, HostAuthStage::Success1) => self.answered(&message.bytes),
            (HonestEnd::Host, HostAuthStage::Authenticated | HostAuthStage::Over) => {}
        }
    }

    // ---- The host ----

    fn challenged(&mut self, bytes: &[u8]) {
        let AuthSession { host, random, .. } = self;
        let challenged = match host.challenge(bytes, &mut |place| fill(random, place)) {
            Ok(challenged) => challenged,
            Err(error) => return self.abandon(error),
        };
        let host_challenge = HostChallenge::of(bytes).expect("it was read");
        if let Some(work) = challenged.work() {
            let public = self.make_public(host_challenge.public.len());
            let session_key = Some(self.shared(&host_challenge.public, &public));
            work.supply(DhResult { public, session_key });
        }
        let random = &mut self.random;
        let reply = self.host.reply(&challenged, &mut |place| fill(random, place));
        let reply = reply.expect("it was computed, and there is a key");
        assert!(reply.len() <= RECEIVE_BYTES as usize);
        self.transcripts[0].extend_from_slice(&bytes[..challenge_bytes(bytes)]);
        self.transcripts[0].extend_from_slice(&reply);
        self.answers.push((host_challenge, HostReply::of(&reply).expect("a reply")));
        self.stage = HostAuthStage::Success1;
        self.reached.note("host: Reply");
        self.reply.clone_from(&reply);
        self.attacker.send(HonestEnd::Target, reply);
    }

    /// Handles Success1. A host without a key for the controller accepts any.
    fn answered(&mut self, bytes: &[u8]) {
        let success2 = match self.host.success1(bytes) {
            Ok(success2) => success2,
            Err(error) => return self.abandon(error),
        };
        assert_eq!(success2.is_some(), self.plan.both);
        if let Some(success2) = success2 {
            assert!(self.is_proved(bytes), "the host accepts an impostor as the controller");
            self.reached.note("host: the controller is proved");
            self.attacker.send(HonestEnd::Target, success2);
        }
        self.reached.note("host: believes");
        self.stage = HostAuthStage::Authenticated;
        self.psks[0] = self.host.take_psk();
        let secret = self.host.take_frame_secret();
        let transcript = self.transcripts[0].clone();
        self.sealings[0] = secret.map(|secret| SealingSecret { secret, transcript });
        self.compare_sealings();
    }

    /// True if the controller has replied to the host's challenge with `success1`.
    fn is_proved(&self, success1: &[u8]) -> bool {
        let Some(reply) = HostReply::of(&self.reply) else { return false };
        let has_key = self.plan.keys != AuthKeys::ControllerHasAnother;
        has_key
            && self.proofs.iter().any(|(received, sent)| {
                received.challenges_alike(&reply) && is_response(success1, sent)
            })
    }

    fn abandon(&mut self, error: AuthHostError) {
        self.stage = HostAuthStage::Over;
        self.reached.note(match error {
            AuthHostError::Refuses(_, what) => what,
            AuthHostError::Refused(_) => "host: refused",
            AuthHostError::RefusedBoth => "host: refused, or the controller has no key",
            _ => "host: no key",
        });
        if let Some(failure2) = self.host.failure2(error) {
            self.attacker.send(HonestEnd::Target, failure2);
        }
    }

    // ---- The controller ----

    fn at_controller(&mut self, bytes: &[u8]) {
        let AuthSession { controller, random, .. } = self;
        let progress = controller.send(bytes, &mut |place| fill(random, place));
        if let AuthProgress::Compute(work) = progress {
            assert!(!self.controller.resume(), "it was not computed");
            self.compute(&work, bytes);
            assert!(self.controller.resume());
        }
        match self.controller.state() {
            AuthState::Challenge => {
                self.accepted = None;
                self.transcripts[1] = bytes[..NEGOTIATE_BYTES].to_vec();
            }
            AuthState::Success1 => self.accept(bytes),
            _ => {}
        }
        self.check_controller();
        if matches!(
            self.controller.state(),
            AuthState::Challenge | AuthState::Success1 | AuthState::Failure1
        ) {
            self.fetch();
        }
    }

    fn compute(&mut self, work: &DhTask, received: &[u8]) {
        let (public, session_key) = match self.controller.state() {
            AuthState::Challenging => {
                self.public = self.make_public(self.controller.agreed().1.bytes());
                (self.public.clone(), None)
            }
            _ => {
                let theirs = HostReply::of(received).expect("it was read").public;
                (Vec::new(), Some(self.shared(&self.public, &theirs)))
            }
        };
        work.supply(DhResult { public, session_key });
    }

    /// Handles the controller's acceptance of the host, which must have replied to this challenge with this response.
    fn accept(&mut self, bytes: &[u8]) {
        let (host_challenge, received) = (HostChallenge::of(&self.challenge), HostReply::of(bytes));
        let (Some(host_challenge), Some(received)) = (host_challenge, received) else {
            panic!("no challenge, or no reply")
        };
        assert!(self.plan.keys != AuthKeys::HostHasAnother, "the host has another key");
        let is_sent = |(to, sent): &(HostChallenge, HostReply)| {
            *to == host_challenge && sent.proves_as(&received)
        };
        assert!(self.answers.iter().any(is_sent), "the controller accepts an impostor as the host");
        self.reached.note("controller: the host is proved");
        self.accepted = Some(bytes.to_vec());
        self.transcripts[1].extend_from_slice(&bytes[..reply_bytes(bytes)]);
        let secret = self.controller.take_frame_secret();
        assert_eq!(secret.is_some(), self.plan.purpose == Purpose::Frames);
        let transcript = self.transcripts[1].clone();
        self.sealings[1] = secret.map(|secret| SealingSecret { secret, transcript });
        self.compare_sealings();
    }

    /// Asserts that no transaction advances without a proof.
    fn check_controller(&mut self) {
        match self.controller.state() {
            AuthState::Success1 | AuthState::Success2 => assert!(self.accepted.is_some()),
            AuthState::Authenticated => {
                assert!(self.accepted.is_some());
                self.reached.note("controller: authenticated");
                self.psks[1] = self.controller.take_psk().or(self.psks[1].take());
            }
            _ => assert!(self.controller.take_psk().is_none()),
        }
        if let Some((_, what)) = self.controller.take_failure() {
            self.reached.note(what);
        }
    }

    /// Fetches the controller's message, for the host or the attacker.
    fn fetch(&mut self) {
        let bytes = self.controller.receive();
        assert!(bytes.len() <= RECEIVE_BYTES as usize);
        match kind_of(&bytes) {
            message::CHALLENGE => {
                self.reached.note("controller: Challenge");
                self.transcripts[1].extend_from_slice(&bytes);
                self.challenge.clone_from(&bytes);
            }
            message::SUCCESS1 => {
                let received = self.accepted.as_deref().and_then(HostReply::of);
                self.proofs.push((received.expect("the host is believed"), bytes.clone()));
            }
            kind => assert_eq!(kind, message::FAILURE1),
        }
        self.check_controller();
        self.attacker.send(HonestEnd::Host, bytes);
    }

    // ---- Both ----

    /// Returns a pseudo-random public value. Real exponentiation takes too long here, and the attacker does not
    /// compute either.
    fn make_public(&mut self, bytes: usize) -> Vec<u8> {
        let mut public = vec![0; bytes];
        fill(&mut self.random, &mut public);
        public.iter_mut().take(1).for_each(|first| *first = 0x7f);
        public
    }

    fn shared(&self, controller: &[u8], host: &[u8]) -> Secret {
        self.plan.hash.digest(&[controller, host])
    }

    /// Asserts that both ends have the same sealing secret only if their transcripts are equal, to the last byte.
    fn compare_sealings(&mut self) {
        let [Some(host), Some(controller)] = &self.sealings else { return };
        let is_same = host.transcript == controller.transcript;
        assert_eq!(host.secret == controller.secret, is_same);
        self.reached.note(if is_same { "frames: the same keys" } else { "frames: other keys" });
    }

    /// Delivers the messages in flight. Without interference, both ends must have succeeded.
    fn finish(&mut self) {
        while let Some(message) = self.attacker.pass() {
            self.deliver(&message);
        }
        if self.attacker.is_touched() {
            return;
        }
        let is_authenticated = matches!(self.controller.state(), AuthState::Authenticated);
        let succeeds = self.plan.succeeds();
        assert_eq!(
            (self.stage == HostAuthStage::Authenticated, is_authenticated),
            (succeeds, succeeds)
        );
        let [host, controller] = &self.psks;
        assert_eq!(host, controller);
        assert_eq!(host.is_some(), succeeds && self.plan.purpose == Purpose::Psk);
        if host.is_some() {
            self.reached.note("a PSK");
        }
    }
}

/// Runs the fixed inputs.
///
/// # Panics
/// If an input does not reach the states that it was made for.
pub fn assert_reached() {
    crate::reached::assert_reached(&crate::inputs::auth(), run);
}

#[cfg(test)]
mod tests {
    #[test]
    fn authentications_get_as_far_as_they_are_made_for() {
        super::assert_reached();
    }
}
