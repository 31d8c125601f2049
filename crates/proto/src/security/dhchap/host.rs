//! The host's side of an authentication.

use super::{
    AuthOffer, AuthParties, ChallengeValue, DhGroup, DhTask, RandomSource, ResponseRole,
    Transaction, Transcript, take,
};
use crate::security::{FrameSecret, GeneratedPsk, Hash, Secret};
use core::fmt;
use roadtrain_wire::auth::{self, Explanation, MessageHead, message, secure_channel};
use roadtrain_wire::zerocopy::{FromBytes, IntoBytes};

/// Reason why a host stops an authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthHostError {
    /// The controller requires authentication, and the host has no key.
    NoKey,
    /// The controller requires a secure channel.
    SecureChannel,
    /// The controller has to authenticate, and does not request authentication.
    AuthNotRequired,
    /// Frames have to be sealed, and the controller does not request authentication.
    NotSealed,
    /// Over Ethernet the controller requests authentication on the admin queue, but not on an I/O queue.
    AuthOnAdminQueueOnly,
    /// A PSK is required, and the controller does not authenticate the host.
    NoChannel,
    /// The controller has refused the host.
    Refused(Explanation),
    /// The controller has refused a host that required its response as well: either key may be the reason.
    RefusedBoth,
    /// The host has refused the controller: the explanation, and the wrong field.
    Refuses(Explanation, &'static str),
}

impl fmt::Display for AuthHostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AuthHostError::NoKey => f.write_str(
                "the target refuses this host: it wants authentication, and --dhchap-secret is not given",
            ),
            AuthHostError::SecureChannel => f.write_str(
                "the target refuses this host: it wants authentication that makes a secure channel (--concat)",
            ),
            AuthHostError::AuthNotRequired => f.write_str(
                "this host refuses the target: --dhchap-ctrl-secret is given, and the target does not authenticate",
            ),
            AuthHostError::NoChannel => f.write_str(
                "this host refuses the target: --concat is given, and the target does not authenticate this host",
            ),
            AuthHostError::Refused(Explanation::Failed) => f.write_str(
                "the target refuses this host: authentication failed; do --dhchap-secret and the target's key \
                 for this host NQN agree?",
            ),
            AuthHostError::RefusedBoth => f.write_str(
                "the target refuses this host: authentication failed; do --dhchap-secret and the target's key \
                 for this host NQN agree, and does the target have the key of --dhchap-ctrl-secret? If it has none, \
                 leave that out",
            ),
            AuthHostError::NotSealed => f.write_str(
                "this host refuses the target: --seal required is given, and the target does not \
                 require authentication",
            ),
            AuthHostError::AuthOnAdminQueueOnly => f.write_str(
                "this host refuses the target: it requires authentication on the admin queue, but not on an I/O \
                 queue; an attacker may have changed the response",
            ),
            AuthHostError::Refused(Explanation::SecureChannel) => f.write_str(
                "the target refuses this host: one side wants a secure channel and the other does not \
                 (--concat, --seal)",
            ),
            AuthHostError::Refused(explanation) => {
                write!(f, "the target refuses this host: {}", explanation.text())
            }
            AuthHostError::Refuses(explanation, what) => {
                write!(f, "this host refuses the target: {} ({what})", explanation.text())
            }
        }
    }
}

/// A challenge of the controller.
#[derive(Debug)]
pub struct Challenged {
    transaction: Transaction,
    challenge: ChallengeValue,
    /// Computation for the reply, if there is a group.
    work: Option<DhTask>,
}

impl Challenged {
    /// Returns the computation that [`AuthHost::reply`] needs first.
    #[must_use]
    pub fn work(&self) -> Option<&DhTask> {
        self.work.as_ref()
    }
}

/// The host's side of an authentication. [`AuthHost::failure2`] reports every error to the controller but its own refusals.
#[derive(Debug)]
pub struct AuthHost {
    parties: AuthParties,
    offer: AuthOffer,
    t_id: u16,
    hash: Hash,
    /// Expected response of the controller.
    expected: Option<Secret>,
    /// SC_C: whether the lane's frames are sealed, or a PSK is generated.
    secures: u8,
    transcript: Transcript,
    frame_secret: Option<FrameSecret>,
    /// Generated PSK, valid once the controller accepts the host.
    made: Option<GeneratedPsk>,
    psk: Option<GeneratedPsk>,
}

type HostRefusal = AuthHostError;

const fn payload(what: &'static str) -> HostRefusal {
    AuthHostError::Refuses(Explanation::Payload, what)
}

impl AuthHost {
    /// The host's side of transaction `t_id`.
    #[must_use]
    pub fn new(parties: AuthParties, offer: AuthOffer, t_id: u16) -> Self {
        let (hash, secures) = (Hash::Sha256, secure_channel::NONE);
        AuthHost {
            parties,
            offer,
            t_id,
            hash,
            expected: None,
            secures,
            transcript: Transcript::default(),
            frame_secret: None,
            made: None,
            psk: None,
        }
    }

    /// Requires sealed frames on the lane; `context` is the Connect before ([`super::context_of`]).
    #[must_use]
    pub fn with_frames(self, context: &[u8]) -> Self {
        AuthHost { secures: secure_channel::FRAMES, transcript: Transcript::new(context), ..self }
    }

    /// Takes the secret of the frame keys, which exists once [`AuthHost::success1`] has succeeded.
    pub fn take_frame_secret(&mut self) -> Option<FrameSecret> {
        self.frame_secret.take()
    }

    /// Requests a PSK for TLS as well.
    #[must_use]
    pub fn concatenating(self) -> Self {
        AuthHost { offer: self.offer.for_psk(), secures: secure_channel::NEW_TLS_PSK, ..self }
    }

    /// Takes the generated PSK, once the controller has accepted the host and has sent the required response.
    pub fn take_psk(&mut self) -> Option<GeneratedPsk> {
        self.psk.take()
    }

    /// Returns Negotiate.
    #[must_use]
    pub fn negotiate(&mut self) -> Vec<u8> {
        let mut m = auth::Negotiate {
            head: MessageHead::new(message::NEGOTIATE, self.t_id),
            sc_c: self.secures,
            napd: 1,
            auth_id: 1,
            reserved: 0,
            halen: self.offer.hashes.len() as u8,
            dhlen: self.offer.groups.len() as u8,
            hashes: [0; 30],
            groups: [0; 30],
        };
        for (place, hash) in m.hashes.iter_mut().zip(&self.offer.hashes) {
            *place = hash.id();
        }
        for (place, group) in m.groups.iter_mut().zip(&self.offer.groups) {
            *place = group.id();
        }
        self.transcript.append(m.as_bytes());
        m.as_bytes().to_vec()
    }

    /// Checks that the message is a `kind` of this transaction.
    fn expect(&self, bytes: &[u8], kind: [u8; 2]) -> Result<(), AuthHostError> {
        let head = MessageHead::of(bytes).ok_or(payload("length"))?;
        if head.kind == message::FAILURE1 {
            let explanation = auth::AuthFailure::ref_from_prefix(bytes).ok();
            let explanation = explanation.map(|(m, _)| Explanation::from_byte(m.explanation));
            return Err(match explanation.flatten().unwrap_or(Explanation::Payload) {
                Explanation::Failed if self.expected.is_some() => AuthHostError::RefusedBoth,
                explanation => AuthHostError::Refused(explanation),
            });
        }
        if head.kind != kind || head.t_id.get() != self.t_id {
            let what = if head.kind == kind { "T_ID" } else { "message" };
            return Err(AuthHostError::Refuses(Explanation::Message, what));
        }
        Ok(())
    }

    /// Processes the controller's challenge.
    ///
    /// # Errors
    /// Names the wrong field.
    pub fn challenge(
        &mut self,
        bytes: &[u8],
        random: RandomSource<'_>,
    ) -> Result<Challenged, AuthHostError> {
        self.expect(bytes, message::CHALLENGE)?;
        let (m, mut rest) =
            auth::ChallengeHead::ref_from_prefix(bytes).map_err(|_| payload("length"))?;
        let hash = Hash::from_id(m.hash).filter(|hash| self.offer.hashes.contains(hash));
        let hash = hash.ok_or(AuthHostError::Refuses(Explanation::Hash, "hash"))?;
        let group = DhGroup::from_id(m.group).filter(|group| self.offer.groups.contains(group));
        let group = group.ok_or(AuthHostError::Refuses(Explanation::Group, "group"))?;
        if usize::from(m.hl) != hash.bytes() {
            return Err(payload("HL"));
        }
        let mut part = |count| take(&mut rest, count).ok_or(payload("length"));
        let (challenge, public) = (part(hash.bytes())?, part(m.dhvlen.get().into())?);
        if !group.takes(public) {
            return Err(payload("DH value"));
        }
        self.hash = hash;
        let length = bytes.len() - rest.len();
        self.transcript.append(&bytes[..length]); // the host has requested more
        let work = (group != DhGroup::Null).then(|| {
            let mut exponent = zeroize::Zeroizing::new(vec![0; group.exponent_bytes()]);
            random(&mut exponent);
            DhTask::new((hash, group), Secret::new(&exponent), Some(public.to_vec()), true)
        });
        Ok(Challenged {
            transaction: Transaction { t_id: self.t_id, hash, group, secures: self.secures },
            challenge: ChallengeValue { bytes: challenge.to_vec(), seqnum: m.seqnum.get() },
            work,
        })
    }

    /// Returns Reply, once the computation is done.
    ///
    /// # Errors
    /// The computation is not done, or this host has no key.
    pub fn reply(
        &mut self,
        challenged: &Challenged,
        random: RandomSource<'_>,
    ) -> Result<Vec<u8>, AuthHostError> {
        let Challenged { transaction, challenge, work } = challenged;
        let powers = work.as_ref().and_then(DhTask::result);
        let key = powers.and_then(|powers| powers.session_key.as_ref());
        if work.is_some() && key.is_none() {
            return Err(payload("DH value"));
        }
        let response = |role, challenge: &ChallengeValue| {
            transaction.response(role, &self.parties, key, challenge)
        };
        let own = response(ResponseRole::Host, challenge).ok_or(AuthHostError::NoKey)?;
        let mut counter = ChallengeValue::new(transaction.hash, random);
        self.expected = response(ResponseRole::Controller, &counter);
        match (&self.expected, transaction.concatenates()) {
            (Some(_), _) => {}
            // The challenge is for the PSK only: the controller sends no response.
            (None, true) => counter.seqnum = 0,
            (None, false) => {
                counter = ChallengeValue { bytes: vec![0; transaction.hash.bytes()], seqnum: 0 };
            }
        }
        self.made = transaction.psk(key, &challenge.bytes, &counter.bytes);
        let is_valid = self.expected.is_some() || transaction.concatenates();
        let public = powers.map_or(&[][..], |powers| &powers.public);
        let head = auth::ReplyHead {
            head: MessageHead::new(message::REPLY, self.t_id),
            hl: transaction.hash.bytes() as u8,
            reserved: 0,
            cvalid: is_valid.into(),
            reserved2: 0,
            dhvlen: (public.len() as u16).into(),
            seqnum: counter.seqnum.into(),
        };
        let message = [head.as_bytes(), own.reveal(), &counter.bytes, public].concat();
        self.transcript.append(&message);
        if let (Some(host_key), Some(messages)) = (&self.parties.host_key, &self.transcript.0) {
            let secret = FrameSecret::new(transaction.hash, host_key, key, messages);
            self.frame_secret = Some(secret);
        }
        Ok(message)
    }

    /// Processes Success1: the controller accepts the host, and sends its response if the host has required one. Then
    /// returns Success2.
    ///
    /// # Errors
    /// The controller refuses the host, or its required response is missing or wrong.
    pub fn success1(&mut self, bytes: &[u8]) -> Result<Option<Vec<u8>>, AuthHostError> {
        self.expect(bytes, message::SUCCESS1)?;
        let (m, mut rest) =
            auth::Success1::ref_from_prefix(bytes).map_err(|_| payload("length"))?;
        if usize::from(m.hl) != self.hash.bytes() {
            return Err(payload("HL"));
        }
        let response = take(&mut rest, self.hash.bytes()).ok_or(payload("length"))?;
        // The expected response stays: a second try without a response is no better than the first.
        let Some(expected) = &self.expected else {
            self.psk = self.made.take();
            return Ok(None);
        };
        let failed = |what| Err(AuthHostError::Refuses(Explanation::Failed, what));
        if m.rvalid != 1 {
            return failed("it has sent no response");
        }
        if !expected.is(response) {
            return failed("do --dhchap-ctrl-secret and the target's own key agree?");
        }
        self.psk = self.made.take();
        let head = MessageHead::new(message::SUCCESS2, self.t_id);
        Ok(Some(auth::Success2 { head, reserved: [0; 10] }.as_bytes().to_vec()))
    }

    /// Returns Failure2 with the host's reason; `None` if the controller itself has refused.
    #[must_use]
    pub fn failure2(&self, error: AuthHostError) -> Option<Vec<u8>> {
        let explanation = match error {
            AuthHostError::Refuses(explanation, _) => explanation,
            AuthHostError::NoKey
            | AuthHostError::AuthNotRequired
            | AuthHostError::NotSealed
            | AuthHostError::AuthOnAdminQueueOnly => Explanation::Failed,
            AuthHostError::SecureChannel | AuthHostError::NoChannel => Explanation::SecureChannel,
            AuthHostError::Refused(_) | AuthHostError::RefusedBoth => return None,
        } as u8;
        let head = MessageHead::new(message::FAILURE2, self.t_id);
        Some(auth::AuthFailure { head, code: 1, explanation }.as_bytes().to_vec())
    }
}
