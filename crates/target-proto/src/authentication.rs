//! Authentication of hosts: which hosts have to authenticate, with which keys, and the commands that carry the
//! messages.

use super::carrier::Carrier;
use roadtrain_proto::security::dhchap::{
    AuthController, AuthOffer, AuthParties, AuthProgress, AuthState, Concatenation, DhGroup,
    DhTask, DhchapKeys, RandomSource,
};
use roadtrain_proto::security::{
    DhchapKey, FrameSecret, GeneratedPsk, Hash, SealUse, Secret, TlsHosts,
};
use roadtrain_wire::auth::{Explanation, RECEIVE_BYTES};
use roadtrain_wire::fabrics::{self, DISCOVERY_NQN, fctype};
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::status::Status;
use std::collections::{BTreeMap, BTreeSet};

/// Authentication required of hosts, and their keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostAuthentication {
    /// Hosts without a key are refused, by the discovery controller as well.
    pub required: bool,
    /// Hashes and groups offered in the negotiation.
    pub offer: AuthOffer,
    /// Subsystems at which hosts without a key are refused.
    pub required_at: BTreeSet<String>,
    /// Subsystems that accept only connections secured by TLS, and connections on which hosts generate the PSK for TLS.
    pub tls_at: BTreeSet<String>,
    /// Keys by host NQN. Such a host always has to authenticate; `controller` is the key with which the target
    /// authenticates to it.
    pub keys: BTreeMap<String, DhchapKeys>,
    /// Former keys, which these hosts may still use while keys are changed.
    pub former: BTreeMap<String, DhchapKey>,
    /// Keys of hosts for one subsystem, by its NQN; they take precedence over `keys`.
    pub keys_at: BTreeMap<String, BTreeMap<String, DhchapKeys>>,
}

impl HostAuthentication {
    /// Returns the keys of a host at a subsystem, and its former key if that is valid as well.
    fn keys_of(&self, hostnqn: &str, subnqn: &str) -> Option<(&DhchapKeys, Option<&DhchapKey>)> {
        let own = self.keys_at.get(subnqn).and_then(|hosts| hosts.get(hostnqn));
        let everywhere = || Some((self.keys.get(hostnqn)?, self.former.get(hostnqn)));
        own.map(|keys| (keys, None)).or_else(everywhere)
    }

    pub(super) fn has_key(&self, hostnqn: &str, subnqn: &str) -> bool {
        self.keys_of(hostnqn, subnqn).is_some()
    }

    /// Sets or removes a host's keys for one subsystem.
    pub fn set_keys(&mut self, subnqn: &str, hostnqn: &str, keys: Option<DhchapKeys>) {
        let hosts = self.keys_at.entry(subnqn.to_owned()).or_default();
        hosts.remove(hostnqn);
        hosts.extend(keys.map(|keys| (hostnqn.to_owned(), keys)));
        self.keys_at.retain(|_, hosts| !hosts.is_empty());
    }

    /// Returns the authentication required of the host on a queue; `None`: none. A host without a key is challenged
    /// like any other and fails, so that no host can probe which hosts exist.
    #[must_use]
    pub(super) fn requirement_for(
        &self,
        hostnqn: &str,
        subnqn: &str,
        is_discovery: bool,
        concatenation: Concatenation,
    ) -> Option<AuthenticationRequirement> {
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
        Some(AuthenticationRequirement {
            parties,
            former,
            offer: self.offer.clone(),
            concatenation,
        })
    }

    /// Returns whether a queue's host may, or must, generate a PSK and reconnect with TLS.
    pub(super) fn concatenation(&self, carrier: Carrier, qid: u16, subnqn: &str) -> Concatenation {
        match carrier {
            Carrier::Securable if qid == 0 && self.tls_at.contains(subnqn) => {
                Concatenation::Required
            }
            Carrier::Securable if qid == 0 => Concatenation::Offered,
            _ => Concatenation::Refused,
        }
    }

    /// True if a host has a key for authentication at any subsystem.
    pub(super) fn knows(&self, hostnqn: &str) -> bool {
        let mut at = self.keys_at.values();
        self.keys.contains_key(hostnqn) || at.any(|hosts| hosts.contains_key(hostnqn))
    }

    /// True if the queue serves only to generate a PSK, and hosts with keys exist that can.
    pub(super) fn makes_psk(&self, carrier: Carrier, qid: u16, subnqn: &str) -> bool {
        let has_keys = !self.keys.is_empty() || self.keys_at.contains_key(subnqn);
        has_keys && self.concatenation(carrier, qid, subnqn) == Concatenation::Required
    }

    /// True if a host has to prove its identity by TLS. It need not where it authenticates with a key, nor to read the
    /// discovery log.
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

    /// True if a host authenticated under `self` would authenticate under `next`, too.
    #[must_use]
    pub fn has_same_keys(&self, next: &Self, hostnqn: &str) -> bool {
        fn own<'a>(
            one: &'a HostAuthentication,
            hostnqn: &str,
        ) -> Vec<(&'a String, &'a DhchapKeys)> {
            let at = one.keys_at.iter();
            at.filter_map(|(subnqn, hosts)| Some((subnqn, hosts.get(hostnqn)?))).collect()
        }
        let of = |one: &Self| (one.keys.get(hostnqn).cloned(), one.former.get(hostnqn).cloned());
        of(self) == of(next) && own(self, hostnqn) == own(next, hostnqn)
    }
}

/// Authentication required of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthenticationRequirement {
    /// NQNs of both ends, and the keys.
    pub parties: AuthParties,
    /// Former key of the host, which is accepted as well.
    pub former: Option<Secret>,
    /// Hashes and groups offered in the negotiation.
    pub offer: AuthOffer,
    /// Use of secure channel concatenation: the host generates a PSK for TLS.
    pub concatenation: Concatenation,
}

impl AuthenticationRequirement {
    /// Returns the same requirement without keys, for a host that is refused in any case: its authentication fails.
    pub(super) fn without_keys(self) -> Self {
        let parties = AuthParties { host_key: None, controller_key: None, ..self.parties };
        AuthenticationRequirement { parties, former: None, ..self }
    }
}

/// Result of an authentication command.
#[derive(Debug)]
pub enum Reaction {
    /// The command completes with this status.
    Answer(Status),
    /// The command completes once this is computed: execute it again then.
    Compute(DhTask),
    /// The command still waits for the computation.
    Wait,
}

/// Result of a queue's authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthenticationResult {
    /// The host is authenticated.
    Authenticated,
    /// The authentication failed; the host has received the reason.
    Failed,
}

/// The authentication of a queue's host.
#[derive(Debug)]
pub struct Authenticator {
    controller: AuthController,
    /// Identifier of the command that waits for the Diffie-Hellman worker.
    waits: Option<u16>,
}

impl Authenticator {
    /// Creates the controller's side. `seals`: use of frame sealing on the queue; `context` binds the secret to the
    /// handshake so far.
    pub(super) fn new(
        requirement: &AuthenticationRequirement,
        seals: SealUse,
        context: [u8; 32],
    ) -> Self {
        let controller =
            AuthController::new(requirement.parties.clone(), requirement.offer.clone());
        let mut controller = controller.with_frames(seals, context);
        controller.accept_also(requirement.former.clone());
        controller.set_concatenation(requirement.concatenation);
        Authenticator { controller, waits: None }
    }

    /// Replaces the keys, which may have changed, before an authenticated host authenticates again.
    pub fn renew(&mut self, requirement: AuthenticationRequirement) {
        if self.controller.renew(requirement.parties, requirement.offer) {
            self.controller.accept_also(requirement.former);
            self.controller.set_concatenation(requirement.concatenation);
        }
    }

    /// True if frame sealing was negotiated for the queue.
    #[must_use]
    pub fn seals(&self) -> bool {
        self.controller.seals()
    }

    /// Takes the secret that seals the queue's frames from now on. It is returned once.
    pub fn take_frame_secret(&mut self) -> Option<FrameSecret> {
        self.controller.take_frame_secret()
    }

    /// Takes the generated PSK. It is returned once, after the host has authenticated.
    pub fn take_psk(&mut self) -> Option<GeneratedPsk> {
        self.controller.take_psk()
    }

    /// True if the host generates a PSK and reconnects with TLS.
    #[must_use]
    pub fn concatenates(&self) -> bool {
        self.controller.concatenates()
    }

    /// Returns the negotiated hash and group.
    #[must_use]
    pub fn agreed(&self) -> (Hash, DhGroup) {
        self.controller.agreed()
    }

    /// Takes the reason of a failure, with the wrong item of the host. It is returned once.
    pub fn take_failure(&mut self) -> Option<(Explanation, &'static str)> {
        self.controller.take_failure()
    }

    /// Returns the result, once there is one.
    #[must_use]
    pub fn verdict(&self) -> Option<AuthenticationResult> {
        match self.controller.state() {
            AuthState::Authenticated => Some(AuthenticationResult::Authenticated),
            AuthState::Failed => Some(AuthenticationResult::Failed),
            _ => None,
        }
    }

    /// True if a computation for the host is pending, which the host waits for.
    #[must_use]
    pub fn is_computing(&self) -> bool {
        matches!(self.controller.state(), AuthState::Challenging | AuthState::Verifying)
    }

    /// True if the host was refused, also if it has not yet received the reason.
    #[must_use]
    pub fn has_refused(&self) -> bool {
        matches!(self.controller.state(), AuthState::Failure1 | AuthState::Failed)
    }

    /// Executes an Authentication Send or Receive command. A message for the host goes to `page`.
    pub fn command(
        &mut self,
        sqe: &Sqe,
        data: &[u8],
        page: &mut Vec<u8>,
        random: RandomSource<'_>,
    ) -> Reaction {
        let fields = fabrics::AuthenticationFields::parse(sqe);
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
                AuthProgress::Done => Reaction::Answer(Status::SUCCESS),
                AuthProgress::Compute(work) => {
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
