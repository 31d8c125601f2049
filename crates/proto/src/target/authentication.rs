//! Authentication of hosts: who has to, with which keys, and the commands that carry its messages.

use super::connect::{ConnectRefused, Connected};
use super::target_event::CloseReason;
use crate::security::SecuredAs;
use crate::security::dhchap::{Controller, Keys, Offer, Parties, Progress, Random, State, Work};
use crate::security::{DhchapKey, Secret};
use roadtrain_wire::auth::{Explanation, RECEIVE_BYTES};
use roadtrain_wire::fabrics::{self, ConnectData, fctype, parse_nqn};
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::status::Status;
use roadtrain_wire::zerocopy::FromBytes;
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
    /// Subsystems that have no connections but those secured by TLS.
    pub tls_at: BTreeSet<String>,
    /// Keys by host NQN. Such a host is always asked; `controller` is what the target proves itself with to it.
    pub keys: BTreeMap<String, Keys>,
    /// Keys that these hosts may have as well, while they are changed.
    pub former: BTreeMap<String, DhchapKey>,
}

impl Authentication {
    /// What a queue of the host is asked for; `None`: nothing. A host that has no key here is asked as any other, and
    /// fails, so that nobody finds out which hosts there are.
    #[must_use]
    pub(super) fn asks(&self, hostnqn: &str, subnqn: &str, is_discovery: bool) -> Option<Asked> {
        let keys = self.keys.get(hostnqn);
        let is_required = self.required || self.required_at.contains(subnqn);
        if !is_required && (keys.is_none() || is_discovery) {
            return None;
        }
        let former = self.former.get(hostnqn).map(|key| key.transform(hostnqn));
        let parties = keys.cloned().unwrap_or_default().parties(hostnqn, subnqn);
        Some(Asked { parties, former, offer: self.offer.clone() })
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
        let mut controller = Controller::new(asked.parties.clone(), asked.offer.clone());
        controller.accept_also(asked.former.clone());
        Authenticator { controller, waits: None }
    }

    /// A host that was authenticated may begin again, with keys that have changed meanwhile.
    pub fn renew(&mut self, asked: Asked) {
        if self.controller.renew(asked.parties, asked.offer) {
            self.controller.accept_also(asked.former);
        }
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

/// Keys of hosts that go.
impl super::Target {
    /// The hosts that have a key for TLS by now. Controllers of those that have none any more end, as do connections
    /// that were secured and are not any controller's yet.
    pub fn set_tls_hosts(&mut self, hosts: BTreeSet<String>) {
        let gone: Vec<String> = self.tls_hosts.difference(&hosts).cloned().collect();
        self.tls_hosts = hosts;
        self.end_hosts(|hostnqn| gone.iter().any(|host| host == hostnqn));
    }

    /// Ends the controllers of hosts that have a key now, and none in `next`.
    pub(super) fn end_keyless(&mut self, next: &Authentication) {
        let (had, have) = (&self.config.authentication.keys, &next.keys);
        let gone: Vec<String> =
            had.keys().filter(|host| !have.contains_key(*host)).cloned().collect();
        self.end_hosts(|hostnqn| gone.iter().any(|host| host == hostnqn));
    }

    fn end_hosts(&mut self, is_gone: impl Fn(&str) -> bool) {
        let ended = self.controllers.values().filter(|controller| is_gone(&controller.hostnqn));
        let ended: Vec<u16> = ended.map(|controller| controller.cntlid).collect();
        for cntlid in ended {
            self.drop_controller(cntlid, CloseReason::KeyRemoved);
        }
    }

    /// Whether a connection that was secured like this may be `subnqn`'s.
    ///
    /// # Errors
    /// What is wrong.
    pub fn admits_stream(
        &self,
        secured_as: Option<&SecuredAs>,
        data: &[u8],
    ) -> Result<(), ConnectRefused> {
        let refused =
            |field, value| Err(ConnectRefused::new(Status::CONNECT_INVALID_HOST, field, value));
        match secured_as {
            Some(by) if !self.tls_hosts.contains(&by.hostnqn) => {
                refused("HOSTNQN", format!("{}, whose TLS key was removed", by.hostnqn))
            }
            None => match ConnectData::ref_from_bytes(data).ok().and_then(|d| parse_nqn(&d.subnqn))
            {
                Some(nqn) if self.config.authentication.tls_at.contains(nqn) => {
                    refused("SUBNQN", format!("{nqn}, which needs TLS"))
                }
                _ => Ok(()),
            },
            Some(_) => Ok(()),
        }
    }
}
