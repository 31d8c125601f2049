//! Authentication of hosts: who has to, with which keys, and the commands that carry its messages.

use super::connect::Connected;
use crate::security::dhchap::{Controller, Keys, Offer, Parties, Progress, Random, State, Work};
use roadtrain_wire::auth::{Explanation, RECEIVE_BYTES};
use roadtrain_wire::fabrics::{self, fctype};
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::status::Status;
use std::collections::BTreeMap;

/// Which hosts authenticate, and with what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Authentication {
    /// Hosts without a key are refused, too; by the discovery controller as well.
    pub required: bool,
    /// What may be negotiated.
    pub offer: Offer,
    /// Keys by host NQN. Such a host is always asked; `controller` is what the target proves itself with to it.
    pub keys: BTreeMap<String, Keys>,
}

impl Authentication {
    /// What a queue of the host is asked for; `None`: nothing. A host that has no key here is asked as any other, and
    /// fails, so that nobody finds out which hosts there are.
    #[must_use]
    pub(super) fn asks(&self, hostnqn: &str, subnqn: &str, is_discovery: bool) -> Option<Asked> {
        let keys = self.keys.get(hostnqn);
        if !self.required && (keys.is_none() || is_discovery) {
            return None;
        }
        let parties = keys.cloned().unwrap_or_default().parties(hostnqn, subnqn);
        Some(Asked { parties, offer: self.offer.clone() })
    }
}

/// What a host has to prove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Who it is, and the keys.
    pub parties: Parties,
    /// What may be negotiated.
    pub offer: Offer,
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
    pub(super) fn new(asked: &Asked) -> Self {
        let controller = Controller::new(asked.parties.clone(), asked.offer.clone());
        Authenticator { controller, waits: None }
    }

    /// A host that was authenticated may begin again, with keys that have changed meanwhile.
    pub fn renew(&mut self, asked: Asked) {
        self.controller.renew(asked.parties, asked.offer);
    }

    /// Hash and group that were agreed upon, in words.
    #[must_use]
    pub fn agreed(&self) -> String {
        let (hash, group) = self.controller.agreed();
        format!("{hash}, {group}")
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

impl super::Target {
    /// What the host of a queue is asked for by now.
    #[must_use]
    pub fn asked(&self, connected: &Connected) -> Option<Asked> {
        let is_discovery = connected.kind == super::ControllerKind::Discovery;
        self.config.authentication.asks(&connected.hostnqn, &connected.subnqn, is_discovery)
    }
}
