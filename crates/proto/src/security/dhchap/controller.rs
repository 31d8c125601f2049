//! The controller's side of an authentication.

use super::{
    AuthOffer, AuthParties, ChallengeValue, Concatenation, DhGroup, DhTask, RandomSource,
    ResponseRole, Transaction, Transcript, take,
};
use crate::security::{FrameSecret, GeneratedPsk, Hash, SealUse, Secret};
use roadtrain_wire::auth::{self, Explanation, MessageHead, message, secure_channel};
use roadtrain_wire::zerocopy::{FromBytes, IntoBytes};

/// State of an authentication at the controller.
#[derive(Debug)]
pub enum AuthState {
    /// Negotiate is expected.
    Negotiate,
    /// The public value is being computed.
    Challenging,
    /// The host has to fetch the challenge.
    Challenge,
    /// Reply is expected.
    Reply,
    /// The shared secret is being computed.
    Verifying,
    /// The host has to fetch Success1.
    Success1,
    /// Success2 is expected.
    Success2,
    /// The host is authenticated. It may begin again.
    Authenticated,
    /// The host has to fetch Failure1.
    Failure1,
    /// The authentication has failed; no further message is expected.
    Failed,
}

/// Result of a message from the host.
#[derive(Debug)]
pub enum AuthProgress {
    /// The command is complete.
    Done,
    /// The command completes after this computation, with [`AuthController::resume`].
    Compute(DhTask),
}

/// The controller's side of an authentication.
#[derive(Debug)]
pub struct AuthController {
    parties: AuthParties,
    /// Another key that the host may have.
    former: Option<Secret>,
    offer: AuthOffer,
    concatenation: Concatenation,
    state: AuthState,
    transaction: Transaction,
    /// C1 and S1.
    challenge: ChallengeValue,
    exponent: Option<Secret>,
    work: Option<DhTask>,
    reply: ReplyValues,
    /// The response for Success1.
    response: Option<Secret>,
    /// The generated PSK, valid once the transaction is complete.
    psk: Option<GeneratedPsk>,
    failure: Option<(Explanation, &'static str)>,
    /// Explanation for Failure1.
    reported: Explanation,
    /// Use of sealed frames on the lane, and the context of the authentication.
    seals: (SealUse, [u8; 32]),
    transcript: Transcript,
    frame_secret: Option<FrameSecret>,
}

/// Contents of Reply, while it is verified.
#[derive(Debug, Default)]
struct ReplyValues {
    response: Vec<u8>,
    /// C2 and S2, if they are valid. The host challenges the controller, unless S2 is 0: then C2 is for a PSK only.
    challenge: Option<ChallengeValue>,
}

/// Reason why a message was not accepted.
type ControllerRefusal = (Explanation, &'static str);

impl AuthController {
    /// A controller that expects Negotiate.
    #[must_use]
    pub fn new(parties: AuthParties, offer: AuthOffer) -> Self {
        AuthController {
            parties,
            former: None,
            offer,
            concatenation: Concatenation::Refused,
            state: AuthState::Negotiate,
            transaction: Transaction {
                t_id: 0,
                hash: Hash::Sha256,
                group: DhGroup::Null,
                secures: secure_channel::NONE,
            },
            challenge: ChallengeValue::default(),
            exponent: None,
            work: None,
            reply: ReplyValues::default(),
            response: None,
            psk: None,
            failure: None,
            reported: Explanation::Failed,
            seals: (SealUse::Off, [0; 32]),
            transcript: Transcript::default(),
            frame_secret: None,
        }
    }

    /// Sets whether the frames of its lane may, or must, be sealed; `context` is the Connect before
    /// ([`super::context_of`]).
    #[must_use]
    pub fn with_frames(self, seals: SealUse, context: [u8; 32]) -> Self {
        AuthController { seals: (seals, context), ..self }
    }

    /// True if both ends have agreed to seal the frames of the lane.
    #[must_use]
    pub fn seals(&self) -> bool {
        self.transaction.secures == secure_channel::FRAMES
    }

    /// Takes the secret of the frame keys, which exists once the host's response was right.
    pub fn take_frame_secret(&mut self) -> Option<FrameSecret> {
        self.frame_secret.take()
    }

    /// Accepts another key of the host as well, while its key is changed.
    pub fn accept_also(&mut self, former: Option<Secret>) {
        self.former = former;
    }

    /// Sets whether the next Negotiate may request a PSK.
    pub fn set_concatenation(&mut self, concatenation: Concatenation) {
        self.concatenation = concatenation;
    }

    /// Takes the generated PSK, once the host is authenticated.
    pub fn take_psk(&mut self) -> Option<GeneratedPsk> {
        self.psk.take_if(|_| matches!(self.state, AuthState::Authenticated))
    }

    /// True if this authentication generates a PSK: then nothing more is expected on its connection.
    #[must_use]
    pub fn concatenates(&self) -> bool {
        self.transaction.concatenates()
    }

    /// Returns the state of the authentication.
    #[must_use]
    pub fn state(&self) -> &AuthState {
        &self.state
    }

    /// Returns the negotiated hash and group.
    #[must_use]
    pub fn agreed(&self) -> (Hash, DhGroup) {
        (self.transaction.hash, self.transaction.group)
    }

    /// Takes the reason of the failure, and the wrong field.
    pub fn take_failure(&mut self) -> Option<(Explanation, &'static str)> {
        self.failure.take()
    }

    /// Sets keys and offer for the next Negotiate. False if none may come now.
    pub fn renew(&mut self, parties: AuthParties, offer: AuthOffer) -> bool {
        let may_begin = matches!(self.state, AuthState::Negotiate | AuthState::Authenticated);
        if may_begin {
            (self.parties, self.offer) = (parties, offer);
        }
        may_begin
    }

    /// Processes a message from the host.
    pub fn send(&mut self, bytes: &[u8], random: RandomSource<'_>) -> AuthProgress {
        let kind = MessageHead::of(bytes).map(|head| head.kind);
        let handled = match (&self.state, kind) {
            // The host has to fetch the reason; all other messages are ignored.
            (AuthState::Failure1 | AuthState::Failed, _) => Ok(None),
            (_, Some(message::FAILURE2)) => return self.failure2(bytes),
            (AuthState::Negotiate | AuthState::Authenticated, Some(message::NEGOTIATE)) => {
                self.negotiate(bytes, random)
            }
            (AuthState::Reply, Some(message::REPLY)) => self.reply(bytes),
            (AuthState::Success2, Some(message::SUCCESS2)) => self.success2(bytes).map(|()| None),
            (_, Some(_)) => Err((Explanation::Message, "message")),
            (_, None) => Err((Explanation::Payload, "length")),
        };
        match handled {
            Ok(None) => AuthProgress::Done,
            Ok(Some(work)) => {
                self.work = Some(work.clone());
                AuthProgress::Compute(work)
            }
            Err(refusal) => self.refuse(refusal),
        }
    }

    /// Continues after a computation. False if it is still pending.
    pub fn resume(&mut self) -> bool {
        let Some(work) = &self.work else { return true };
        if work.result().is_none() {
            return false;
        }
        match self.state {
            AuthState::Challenging => self.state = AuthState::Challenge,
            AuthState::Verifying => {
                let key = self.work.take().and_then(|work| work.result()?.session_key.clone());
                self.verify(key.as_ref());
            }
            _ => {}
        }
        true
    }

    /// Returns the next message for the host. Fetching one out of turn is a failure, too.
    pub fn receive(&mut self) -> Vec<u8> {
        match self.state {
            AuthState::Challenge => self.challenge(),
            AuthState::Success1 => self.success1(),
            AuthState::Failure1 | AuthState::Failed => self.failure1(),
            _ => {
                self.refuse((Explanation::Message, "message"));
                self.failure1()
            }
        }
    }

    fn refuse(&mut self, (explanation, what): ControllerRefusal) -> AuthProgress {
        self.state = AuthState::Failure1;
        (self.failure, self.work, self.exponent) = (Some((explanation, what)), None, None);
        self.psk = None;
        self.reported = explanation;
        AuthProgress::Done
    }

    fn negotiate(
        &mut self,
        bytes: &[u8],
        random: RandomSource<'_>,
    ) -> Result<Option<DhTask>, ControllerRefusal> {
        let bad = (Explanation::Payload, "length");
        let (m, _) = auth::Negotiate::ref_from_prefix(bytes).map_err(|_| bad)?;
        self.transaction.t_id = m.head.t_id.get();
        let secures = match m.sc_c {
            secure_channel::NONE => {
                let seals = self.seals.0 == SealUse::Required;
                !seals && self.concatenation != Concatenation::Required
            }
            secure_channel::NEW_TLS_PSK => self.concatenation != Concatenation::Refused,
            secure_channel::FRAMES => self.seals.0 != SealUse::Off,
            _ => false,
        };
        if !secures {
            return Err((Explanation::SecureChannel, "SC_C"));
        }
        self.transaction.secures = m.sc_c;
        self.transcript = match self.seals() {
            true => Transcript::new(&self.seals.1),
            false => Transcript::default(),
        };
        self.transcript.append(m.as_bytes());
        if m.napd != 1 || m.auth_id != 1 {
            return Err((Explanation::Protocol, "AuthID"));
        }
        let lists = (m.hashes.get(..m.halen.into()), m.groups.get(..m.dhlen.into()));
        let (Some(hashes), Some(groups)) = lists else {
            return Err((Explanation::Payload, "HALEN, DHLEN"));
        };
        let for_psk = self.transaction.concatenates().then(|| self.offer.for_psk());
        let offer = for_psk.as_ref().unwrap_or(&self.offer);
        let hash = offer.hashes.iter().find(|hash| hashes.contains(&hash.id()));
        let group = offer.groups.iter().find(|group| groups.contains(&group.id()));
        self.transaction.hash = *hash.ok_or((Explanation::Hash, "hashes"))?;
        self.transaction.group = *group.ok_or((Explanation::Group, "groups"))?;
        self.challenge = ChallengeValue::new(self.transaction.hash, random);
        (self.response, self.reply, self.work) = (None, ReplyValues::default(), None);
        self.psk = None;
        let Transaction { hash, group, .. } = self.transaction;
        if group == DhGroup::Null {
            self.state = AuthState::Challenge;
            return Ok(None);
        }
        let mut exponent = zeroize::Zeroizing::new(vec![0; group.exponent_bytes()]);
        random(&mut exponent);
        let exponent = Secret::new(&exponent);
        self.exponent = Some(exponent.clone());
        self.state = AuthState::Challenging;
        Ok(Some(DhTask::new((hash, group), exponent, None, true)))
    }

    fn challenge(&mut self) -> Vec<u8> {
        let Transaction { t_id, hash, group, .. } = self.transaction;
        let public = self.work.take().and_then(|work| Some(work.result()?.public.clone()));
        let public = public.unwrap_or_default();
        let head = auth::ChallengeHead {
            head: MessageHead::new(message::CHALLENGE, t_id),
            hl: hash.bytes() as u8,
            reserved: 0,
            hash: hash.id(),
            group: group.id(),
            dhvlen: (public.len() as u16).into(),
            seqnum: self.challenge.seqnum.into(),
        };
        self.state = AuthState::Reply;
        let message = [head.as_bytes(), &self.challenge.bytes, &public].concat();
        self.transcript.append(&message);
        message
    }

    fn reply(&mut self, bytes: &[u8]) -> Result<Option<DhTask>, ControllerRefusal> {
        let short = (Explanation::Payload, "length");
        let (m, mut rest) = auth::ReplyHead::ref_from_prefix(bytes).map_err(|_| short)?;
        let Transaction { t_id, hash, group, .. } = self.transaction;
        let concatenates = self.transaction.concatenates();
        if m.head.t_id.get() != t_id {
            return Err((Explanation::Payload, "T_ID"));
        }
        if usize::from(m.hl) != hash.bytes() {
            return Err((Explanation::Payload, "HL"));
        }
        if m.cvalid > 1 || (concatenates && m.cvalid == 0) {
            return Err((Explanation::Payload, "CVALID"));
        }
        let mut part = |count| take(&mut rest, count).ok_or(short);
        let (response, challenge) = (part(hash.bytes())?, part(hash.bytes())?);
        let public = part(m.dhvlen.get().into())?;
        if !group.takes(public) {
            return Err((Explanation::Payload, "DH value"));
        }
        let challenge = ChallengeValue { bytes: challenge.to_vec(), seqnum: m.seqnum.get() };
        if m.cvalid == 1 && challenge.seqnum == 0 && !concatenates {
            return Err((Explanation::Payload, "S2"));
        }
        // A host that reflects our own challenge wants this end to compute its response.
        if m.cvalid == 1 && challenge.bytes == self.challenge.bytes {
            return Err((Explanation::Failed, "C2"));
        }
        let length = bytes.len() - rest.len();
        self.transcript.append(&bytes[..length]);
        let response = response.to_vec();
        self.reply = ReplyValues { response, challenge: (m.cvalid == 1).then_some(challenge) };
        match self.exponent.take() {
            Some(exponent) => {
                self.state = AuthState::Verifying;
                Ok(Some(DhTask::new((hash, group), exponent, Some(public.to_vec()), false)))
            }
            None => {
                self.verify(None);
                Ok(None)
            }
        }
    }

    fn verify(&mut self, key: Option<&Secret>) {
        if self.transaction.group != DhGroup::Null && key.is_none() {
            self.refuse((Explanation::Payload, "DH value"));
            return;
        }
        let parties = &self.parties;
        let is_of = |parties: &AuthParties| {
            let expected =
                self.transaction.response(ResponseRole::Host, parties, key, &self.challenge);
            expected.is_some_and(|expected| expected.is(&self.reply.response))
        };
        let has = |host_key: &&Secret| {
            is_of(&AuthParties { host_key: Some((*host_key).clone()), ..parties.clone() })
        };
        let mut keys = parties.host_key.iter().chain(&self.former);
        let Some(host_key) = keys.find(has) else {
            let what = match parties.host_key {
                Some(_) => "response: the host has another key",
                None => "host: there is no key for it",
            };
            self.refuse((Explanation::Failed, what));
            return;
        };
        let (messages, hash) = (&self.transcript.0, self.transaction.hash);
        let frame_secret =
            messages.as_ref().map(|messages| FrameSecret::new(hash, host_key, key, messages));
        let c2 = self.reply.challenge.take();
        let psk = |c2: &ChallengeValue| self.transaction.psk(key, &self.challenge.bytes, &c2.bytes);
        self.psk = c2.as_ref().and_then(psk);
        let requested = c2.filter(|challenge| challenge.seqnum != 0);
        let answer = |challenge: &ChallengeValue| {
            self.transaction.response(ResponseRole::Controller, parties, key, challenge)
        };
        self.response = requested.as_ref().and_then(answer);
        if requested.is_some() && self.response.is_none() {
            let what = "CVALID: the host requires a response, and the target has no key for it";
            self.refuse((Explanation::Failed, what));
            return;
        }
        (self.frame_secret, self.transcript) = (frame_secret, Transcript::default());
        self.state = AuthState::Success1;
    }

    fn success1(&mut self) -> Vec<u8> {
        let Transaction { t_id, hash, .. } = self.transaction;
        let response = self.response.take();
        let head = auth::Success1 {
            head: MessageHead::new(message::SUCCESS1, t_id),
            hl: hash.bytes() as u8,
            reserved: 0,
            rvalid: response.is_some().into(),
            reserved2: [0; 7],
        };
        let is_last = response.is_none();
        self.state = if is_last { AuthState::Authenticated } else { AuthState::Success2 };
        let zeroes = vec![0; hash.bytes()];
        [head.as_bytes(), response.as_ref().map_or(&zeroes[..], Secret::reveal)].concat()
    }

    fn success2(&mut self, bytes: &[u8]) -> Result<(), ControllerRefusal> {
        let short = (Explanation::Payload, "length");
        let (m, _) = auth::Success2::ref_from_prefix(bytes).map_err(|_| short)?;
        if m.head.t_id.get() != self.transaction.t_id {
            return Err((Explanation::Payload, "T_ID"));
        }
        self.state = AuthState::Authenticated;
        Ok(())
    }

    /// Processes Failure2: the host abandons the authentication.
    fn failure2(&mut self, bytes: &[u8]) -> AuthProgress {
        let failure = auth::AuthFailure::ref_from_prefix(bytes).ok();
        let explanation = failure.and_then(|(m, _)| Explanation::from_byte(m.explanation));
        let explanation = explanation.unwrap_or(Explanation::Payload);
        self.refuse((explanation, "Failure2: the host gives up"));
        self.state = AuthState::Failed;
        AuthProgress::Done
    }

    fn failure1(&mut self) -> Vec<u8> {
        self.state = AuthState::Failed;
        let head = MessageHead::new(message::FAILURE1, self.transaction.t_id);
        let explanation = self.reported as u8;
        auth::AuthFailure { head, code: 1, explanation }.as_bytes().to_vec()
    }
}
