//! Authentication of hosts: who has to, with which keys, and the commands that carry its messages.

use super::carrier::Carrier;
use roadtrain_proto::security::dhchap::{
    Concatenation, Controller, Group, Keys, Offer, Parties, Progress, Random, State, Work,
};
use roadtrain_proto::security::{
    DhchapKey, FrameSecret, GeneratedPsk, Hash, SealUse, Secret, TlsHosts,
};
use roadtrain_wire::auth::{Explanation, RECEIVE_BYTES};
use roadtrain_wire::fabrics::{self, DISCOVERY_NQN, fctype};
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::status::Status;
use std::collections::{BTreeMap, BTreeSet};

/// Which hosts authenticate, and with what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Authentication {
    /// Hosts without a key are refused, too; by the discovery controller as well.
    pub required: bool,
    /// What may be negotiated.
    pub offer: Offer,
    /// Subsystems at which hosts without a key are refused.
    pub required_at: BTreeSet<String>,
    /// Subsystems that have no connections but those secured by TLS, and those on which hosts make the PSK for that.
    pub tls_at: BTreeSet<String>,
    /// Keys by host NQN. Such a host is always asked; `controller` is what the target proves itself with to it.
    pub keys: BTreeMap<String, Keys>,
    /// Keys that these hosts may have as well, while they are changed.
    pub former: BTreeMap<String, DhchapKey>,
    /// Keys of hosts for one subsystem, by its NQN; they go before those of `keys`.
    pub keys_at: BTreeMap<String, BTreeMap<String, Keys>>,
}

impl Authentication {
    /// The keys of a host at a subsystem, and another key that it may have.
    fn keys_of(&self, hostnqn: &str, subnqn: &str) -> Option<(&Keys, Option<&DhchapKey>)> {
        let own = self.keys_at.get(subnqn).and_then(|hosts| hosts.get(hostnqn));
        let everywhere = || Some((self.keys.get(hostnqn)?, self.former.get(hostnqn)));
        own.map(|keys| (keys, None)).or_else(everywhere)
    }

    pub(super) fn has_key(&self, hostnqn: &str, subnqn: &str) -> bool {
        self.keys_of(hostnqn, subnqn).is_some()
    }

    /// Gives a host other keys for one subsystem, or none.
    pub fn set_keys(&mut self, subnqn: &str, hostnqn: &str, keys: Option<Keys>) {
        let hosts = self.keys_at.entry(subnqn.to_owned()).or_default();
        hosts.remove(hostnqn);
        hosts.extend(keys.map(|keys| (hostnqn.to_owned(), keys)));
        self.keys_at.retain(|_, hosts| !hosts.is_empty());
    }

    /// What a queue of the host is asked for; `None`: nothing. A host that has no key here is asked as any other, and
    /// fails, so that nobody finds out which hosts there are.
    #[must_use]
    pub(super) fn asks(
        &self,
        hostnqn: &str,
        subnqn: &str,
        is_discovery: bool,
        concatenation: Concatenation,
    ) -> Option<Asked> {
        let keys = self.keys_of(hostnqn, subnqn);
        let is_required = self.required
            || self.required_at.contains(subnqn)
            || concatenation == Concatenation::Required;
        if !is_required && (keys.is_none() || is_discovery) {
            return None;
        }
        let former = keys.and_then(|(_, former)| former).map(|key| key.transform(hostnqn));
        let keys = keys.map(|(keys, _)| keys.clone()).unwrap_or_default();
        let parties = keys.parties(hostnqn, subnqn);
        Some(Asked { parties, former, offer: self.offer.clone(), concatenation })
    }

    /// Whether a queue's host may, or has to, make a PSK, to come again with TLS.
    pub(super) fn concatenation(&self, carrier: Carrier, qid: u16, subnqn: &str) -> Concatenation {
        match carrier {
            Carrier::Securable if qid == 0 && self.tls_at.contains(subnqn) => {
                Concatenation::Required
            }
            Carrier::Securable if qid == 0 => Concatenation::Offered,
            _ => Concatenation::Refused,
        }
    }

    /// True if a host has a key for authentication anywhere.
    pub(super) fn knows(&self, hostnqn: &str) -> bool {
        let mut at = self.keys_at.values();
        self.keys.contains_key(hostnqn) || at.any(|hosts| hosts.contains_key(hostnqn))
    }

    /// True if the queue is there for nothing but to make a PSK, and somebody could.
    pub(super) fn makes_psk(&self, carrier: Carrier, qid: u16, subnqn: &str) -> bool {
        let has_keys = !self.keys.is_empty() || self.keys_at.contains_key(subnqn);
        has_keys && self.concatenation(carrier, qid, subnqn) == Concatenation::Required
    }

    /// True if a host has to prove by TLS that it is the one it says. It need not where it proves that by another key,
    /// nor to look which listeners have TLS.
    pub(super) fn needs_tls(
        &self,
        tls_hosts: &TlsHosts,
        carrier: Carrier,
        (hostnqn, subnqn): (&str, &str),
    ) -> bool {
        let proves_itself = self.has_key(hostnqn, subnqn);
        carrier == Carrier::Securable
            && tls_hosts.has(hostnqn, subnqn)
            && !proves_itself
            && subnqn != DISCOVERY_NQN
    }

    /// Whether a host that was authenticated with what `self` says would be with `next`, too.
    #[must_use]
    pub fn has_same_keys(&self, next: &Self, hostnqn: &str) -> bool {
        fn own<'a>(one: &'a Authentication, hostnqn: &str) -> Vec<(&'a String, &'a Keys)> {
            let at = one.keys_at.iter();
            at.filter_map(|(subnqn, hosts)| Some((subnqn, hosts.get(hostnqn)?))).collect()
        }
        let of = |one: &Self| (one.keys.get(hostnqn).cloned(), one.former.get(hostnqn).cloned());
        of(self) == of(next) && own(self, hostnqn) == own(next, hostnqn)
    }
}

/// What a host has to prove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Who it is, and the keys.
    pub parties: Parties,
    /// Another key that it may have.
    pub former: Option<Secret>,
    /// What may be negotiated.
    pub offer: Offer,
    /// Whether it makes a PSK for TLS.
    pub concatenation: Concatenation,
}

impl Asked {
    /// The same for a host that is not let in, whatever it proves: it cannot prove it.
    pub(super) fn in_vain(self) -> Self {
        let parties = Parties { host_key: None, controller_key: None, ..self.parties };
        Asked { parties, former: None, ..self }
    }
}

/// What a command of an authentication comes to.
#[derive(Debug)]
pub enum Reaction {
    /// It is answered so.
    Answer(Status),
    /// It is answered when this was computed: it is to be tried again then.
    Compute(Work),
    /// It still waits for that.
    Wait,
}

/// How a queue's authentication has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The host is who it says.
    Authenticated,
    /// It is not, and has heard why.
    Failed,
}

/// The authentication of a queue's host.
#[derive(Debug)]
pub struct Authenticator {
    controller: Controller,
    /// Identifier of the command that waits for powers.
    waits: Option<u16>,
}

impl Authenticator {
    /// `seals`: whether the queue's frames may, or must, be sealed; `context` is what was said so far.
    pub(super) fn new(asked: &Asked, seals: SealUse, context: [u8; 32]) -> Self {
        let controller = Controller::new(asked.parties.clone(), asked.offer.clone());
        let mut controller = controller.with_frames(seals, context);
        controller.accept_also(asked.former.clone());
        controller.set_concatenation(asked.concatenation);
        Authenticator { controller, waits: None }
    }

    /// A host that was authenticated may begin again, with keys that have changed meanwhile.
    pub fn renew(&mut self, asked: Asked) {
        if self.controller.renew(asked.parties, asked.offer) {
            self.controller.accept_also(asked.former);
            self.controller.set_concatenation(asked.concatenation);
        }
    }

    /// Whether the queue's frames are to be sealed, as was agreed upon.
    #[must_use]
    pub fn seals(&self) -> bool {
        self.controller.seals()
    }

    /// What the queue's frames may be sealed with from now on: once.
    pub fn take_frame_secret(&mut self) -> Option<FrameSecret> {
        self.controller.take_frame_secret()
    }

    /// The PSK that was made: once, when the host is authenticated.
    pub fn take_psk(&mut self) -> Option<GeneratedPsk> {
        self.controller.take_psk()
    }

    /// Whether the host makes a PSK, and comes again with TLS.
    #[must_use]
    pub fn concatenates(&self) -> bool {
        self.controller.concatenates()
    }

    /// Hash and group that were agreed upon.
    #[must_use]
    pub fn agreed(&self) -> (Hash, Group) {
        self.controller.agreed()
    }

    /// Why it has failed, and what of the host's was wrong: once.
    pub fn take_failure(&mut self) -> Option<(Explanation, &'static str)> {
        self.controller.take_failure()
    }

    /// How it has ended, if it has.
    #[must_use]
    pub fn verdict(&self) -> Option<Verdict> {
        match self.controller.state() {
            State::Authenticated => Some(Verdict::Authenticated),
            State::Failed => Some(Verdict::Failed),
            _ => None,
        }
    }

    /// Whether something is being computed for the host, which waits for it.
    #[must_use]
    pub fn is_computing(&self) -> bool {
        matches!(self.controller.state(), State::Challenging | State::Verifying)
    }

    /// The host was refused, and may not have heard yet.
    #[must_use]
    pub fn has_refused(&self) -> bool {
        matches!(self.controller.state(), State::Failure1 | State::Failed)
    }

    /// Authentication Send or Receive. A message for the host goes to `page`.
    pub fn command(
        &mut self,
        sqe: &Sqe,
        data: &[u8],
        page: &mut Vec<u8>,
        random: Random<'_>,
    ) -> Reaction {
        let fields = fabrics::Authentication::parse(sqe);
        let invalid = Reaction::Answer(Status::INVALID_FIELD.dnr());
        if !fields.is_nvme() {
            return invalid;
        }
        let is_send = sqe.fctype() == fctype::AUTHENTICATION_SEND;
        if is_send && self.waits == Some(sqe.cid.get()) {
            return match self.controller.resume() {
                true => self.answered(),
                false => Reaction::Wait,
            };
        }
        if is_send && fields.length as usize == data.len() {
            return match self.controller.send(data, random) {
                Progress::Done => Reaction::Answer(Status::SUCCESS),
                Progress::Compute(work) => {
                    self.waits = Some(sqe.cid.get());
                    Reaction::Compute(work)
                }
            };
        }
        let length = fields.length;
        if is_send || length > RECEIVE_BYTES || length != sqe.sgl.length.get() {
            return invalid;
        }
        *page = self.controller.receive();
        if page.len() > length as usize {
            page.clear();
            return invalid;
        }
        page.resize(length as usize, 0);
        Reaction::Answer(Status::SUCCESS)
    }

    fn answered(&mut self) -> Reaction {
        self.waits = None;
        Reaction::Answer(Status::SUCCESS)
    }
}
