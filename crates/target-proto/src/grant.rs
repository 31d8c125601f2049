//! State is granted at proof, not at Connect.
//!
//! A Connect only *claims* a queue. Until its host has proved who it is, where it has to, the claim holds nothing that
//! another host could need: no controller, no queue identifier, no share of a host's limits, no keep-alive timer. A new
//! controller's identifier is reserved, and given to a newer claim when no other is left ([`Claims`]).
//! [`Target::grant`] checks everything again, as the target is by then, and makes the controller or the queue.
//!
//! What was granted is kept with how it was proved ([`Admission`]). After a change of keys, of TLS or of listeners a
//! controller ends that would not be let in any more in the same way ([`Target::end_unadmitted`]).

use super::aborts::Aborts;
use super::ana::AnaOfController;
use super::authentication::Authentication;
use super::config::{Listener, TlsUse};
use super::connect::{ConnectRefused, Connected, Names, no_controller_left};
use super::control::Target;
use super::controller::Controller;
use super::events::Events;
use super::feature_values::Features;
use super::identify;
use super::keep_alive::KeepAlive;
use super::kind::ControllerKind;
use super::listen;
use super::property::{Issuer, Properties};
use super::removed::RemovedNamespaces;
use super::reservations::Notices;
use super::resets::Resets;
use super::target_event::CloseReason;
use core::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use roadtrain_proto::security::dhchap::Concatenation;
use roadtrain_proto::security::{Channel, TlsHosts};
use roadtrain_proto::time::Instant;
use roadtrain_wire::fabrics::{CNTLID_DYNAMIC, DISCOVERY_NQN};
use roadtrain_wire::status::Status;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Protection of a queue's stream, as far as its admission depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) enum Carrier {
    #[default]
    Plain,
    /// Plain, at a listener that takes TLS as well.
    Securable,
    /// TLS with a configured PSK.
    Configured,
    /// TLS with a PSK that an authentication has made.
    Generated,
}

impl From<Channel<'_>> for Carrier {
    fn from(channel: Channel<'_>) -> Self {
        match channel {
            Channel::Plain => Carrier::Plain,
            Channel::Securable => Carrier::Securable,
            Channel::Secured(by) if by.by_generated => Carrier::Generated,
            Channel::Secured(_) => Carrier::Configured,
        }
    }
}

impl Carrier {
    fn is_secured(self) -> bool {
        matches!(self, Carrier::Configured | Carrier::Generated)
    }
}

/// A queue that its host has named in a Connect, and that nobody has been granted.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    /// Number of the claim among those to the same controller identifier.
    pub(super) number: u64,
    pub(super) carrier: Carrier,
    /// Our address as the host has reached it.
    pub(super) local: SocketAddr,
    /// A number that nobody can guess, for the controller.
    pub(super) random: u64,
    /// Keep-alive timeout of the controller, in milliseconds.
    pub(super) kato_ms: u32,
    /// Reason for which it is never granted, whatever is proved. The host does not learn it.
    pub(super) refusal: Option<ConnectRefused>,
}

impl Default for Claim {
    fn default() -> Self {
        let local = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));
        let (number, random, kato_ms) = (0, 0, 0);
        Claim { number, carrier: Carrier::default(), local, random, kato_ms, refusal: None }
    }
}

/// Identifiers of controllers that are claimed: the latest claim to each.
#[derive(Debug, Default)]
pub(super) struct Claims {
    by_cntlid: BTreeMap<u16, u64>,
    last: u64,
}

impl Claims {
    pub(super) fn enter(&mut self, cntlid: u16) -> u64 {
        self.last += 1;
        self.by_cntlid.insert(cntlid, self.last);
        self.last
    }

    pub(super) fn contains(&self, cntlid: u16) -> bool {
        self.by_cntlid.contains_key(&cntlid)
    }

    /// The identifier that was claimed first, of those that may be given away.
    pub(super) fn oldest(&self, may_be: impl Fn(&u16) -> bool) -> Option<u16> {
        let claims = self.by_cntlid.iter().filter(|(cntlid, _)| may_be(cntlid));
        claims.min_by_key(|(_, number)| **number).map(|(cntlid, _)| *cntlid)
    }

    /// Ends a claim. False if the identifier was given to a newer one.
    fn take(&mut self, cntlid: u16, number: u64) -> bool {
        let is_it = self.by_cntlid.get(&cntlid) == Some(&number);
        if is_it {
            self.by_cntlid.remove(&cntlid);
        }
        is_it
    }
}

/// How a queue was let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Admission {
    carrier: Carrier,
    /// Its host was authenticated on it.
    is_authenticated: bool,
}

impl Admission {
    /// The host has proved who it is, by this or by TLS.
    fn is_proof(self) -> bool {
        self.is_authenticated || self.carrier.is_secured()
    }
}

impl Controller {
    /// Its host has proved who it is when the admin queue was granted.
    pub(super) fn has_proved(&self) -> bool {
        self.admissions.get(&0).is_some_and(|admission| admission.is_proof())
    }
}

/// Identifiers of hosts (HOSTID), each bound at a subsystem to the NQN that has proved itself there with it first:
/// reservations of its namespaces go by them. A host that may use one subsystem takes no identifier at others.
#[derive(Debug, Default)]
pub(super) struct HostIds(BTreeMap<(Arc<str>, [u8; 16]), Arc<str>>);

/// Most that are bound to one NQN at a subsystem: some hosts make one for each Connect.
const HOSTIDS_MAX: usize = 64;

impl HostIds {
    /// Binds an identifier to the NQN that has proved itself, if it is nobody's.
    ///
    /// # Errors
    /// The NQN that has it.
    fn enter(&mut self, queue: &Connected, is_proved: bool) -> Result<(), Arc<str>> {
        let Connected { subnqn, hostnqn, hostid, .. } = queue;
        let key = (subnqn.clone(), *hostid);
        match self.0.get(&key) {
            Some(owner) if owner != hostnqn => return Err(owner.clone()),
            Some(_) => return Ok(()),
            None => {}
        }
        let is_own =
            |((at, _), owner): &(&(Arc<str>, _), &Arc<str>)| at == subnqn && *owner == hostnqn;
        let own = || self.0.iter().filter(is_own).count();
        if is_proved && *hostid != [0; 16] && own() < HOSTIDS_MAX {
            self.0.insert(key, hostnqn.clone());
        }
        Ok(())
    }

    /// Forgets those of hosts that have no key any more.
    pub(super) fn retain(&mut self, has_key: impl Fn(&str) -> bool) {
        self.0.retain(|_, owner| has_key(owner));
    }

    /// Forgets those of a subsystem that is gone.
    pub(super) fn forget(&mut self, subnqn: &str) {
        self.0.retain(|(at, _), _| **at != *subnqn);
    }
}

/// Everything that decides about the admission of a queue, apart from its names.
struct Rules<'a> {
    authentication: &'a Authentication,
    tls_hosts: &'a TlsHosts,
    listeners: &'a [Listener],
}

impl Rules<'_> {
    /// The carrier of a plain queue by now: its listener may have another use of TLS. `None` where that takes nothing
    /// but TLS.
    fn carrier(&self, carrier: Carrier, local: SocketAddr) -> Option<Carrier> {
        if carrier.is_secured() {
            return Some(carrier);
        }
        let here = self.listeners.iter().filter(|one| listen::is_reached(one.address, local));
        let mut uses = here.map(|listener| listener.tls).peekable();
        if uses.peek().is_none() {
            return Some(carrier); // a listener that is gone leaves its connections
        }
        let uses: Vec<TlsUse> = uses.collect();
        if uses.contains(&TlsUse::Off) {
            Some(Carrier::Plain)
        } else {
            uses.contains(&TlsUse::Allowed).then_some(Carrier::Securable)
        }
    }

    /// Whether a queue of those names would be let in again as it was.
    fn admits(&self, controller: &Controller, qid: u16, admission: Admission) -> bool {
        let Admission { carrier, is_authenticated } = admission;
        let (host, subsystem) = (&*controller.hostnqn, &*controller.subnqn);
        let Some(carrier) = self.carrier(carrier, controller.local) else { return false };
        let is_discovery = controller.kind == ControllerKind::Discovery;
        let authentication = self.authentication;
        let needs_tls = authentication.tls_at.contains(subsystem)
            || authentication.needs_tls(self.tls_hosts, carrier, (host, subsystem));
        if needs_tls && !carrier.is_secured() {
            return false;
        }
        let concatenation = authentication.concatenation(carrier, qid, subsystem);
        let asks = || authentication.asks(host, subsystem, is_discovery, concatenation).is_some();
        is_authenticated || carrier == Carrier::Generated || !asks()
    }
}

impl Connected {
    /// The reason for which its host is not let in, whatever it proves: for the log.
    #[must_use]
    pub fn refusal(&self) -> Option<&ConnectRefused> {
        self.claim.refusal.as_ref()
    }

    fn names(&self) -> Names<'_> {
        let cntlid = if self.qid == 0 { CNTLID_DYNAMIC } else { self.cntlid };
        Names { subnqn: &self.subnqn, hostnqn: &self.hostnqn, hostid: self.hostid, cntlid }
    }
}

impl Target {
    /// The host of a queue has proved who it is, or need not: the queue exists from now on, and with queue 0 its
    /// controller.
    ///
    /// # Errors
    /// The reason for which it does not; the connection is to end.
    pub fn grant(&mut self, now: Instant, queue: &Connected) -> Result<(), ConnectRefused> {
        let Connected { cntlid, qid, claim, .. } = queue;
        let is_claimed = *qid != 0 || self.claims.take(*cntlid, claim.number);
        if let Some(refusal) = &claim.refusal {
            return Err(refusal.clone());
        }
        let refused = |field, value: &str| {
            Err(ConnectRefused::new(Status::COMMAND_SEQUENCE_ERROR, field, value))
        };
        if !is_claimed {
            return refused("CNTLID", "which was given to others: its host has taken too long");
        }
        let names = queue.names();
        self.check_carrier(claim.carrier, *qid, &names)?;
        self.check_place(*qid, &names, claim.local)?;
        if self.asks(queue, claim.carrier) != queue.asked {
            return refused("HOSTNQN", "which has other keys by now");
        }
        let admission =
            Admission { carrier: claim.carrier, is_authenticated: queue.asked.is_some() };
        match qid {
            0 => self.grant_controller(now, queue, admission),
            _ => self.grant_queue(now, queue, admission),
        }
    }

    /// A claim ends that was not granted: its connection is over.
    pub fn withdraw(&mut self, queue: &Connected) {
        if queue.qid == 0 {
            self.claims.take(queue.cntlid, queue.claim.number);
        }
    }

    fn grant_queue(
        &mut self,
        now: Instant,
        queue: &Connected,
        admission: Admission,
    ) -> Result<(), ConnectRefused> {
        self.drop_missed(now, queue.cntlid);
        let controller = self.controllers.get_mut(&queue.cntlid);
        let controller = controller.filter(|one| Arc::ptr_eq(&one.shared, &queue.shared));
        let Some(controller) = controller.filter(|one| one.quiescing.is_none()) else {
            let status = Status::COMMAND_SEQUENCE_ERROR;
            let value = format!("{} of a controller that has ended", queue.cntlid);
            return Err(ConnectRefused::new(status, "CNTLID", value));
        };
        controller.queues.insert(queue.qid);
        controller.has_other_hostids |= queue.other_hostid.is_some();
        controller.admissions.insert(queue.qid, admission);
        controller.keep_alive.restart(now);
        Ok(())
    }

    fn grant_controller(
        &mut self,
        now: Instant,
        queue: &Connected,
        admission: Admission,
    ) -> Result<(), ConnectRefused> {
        let (count, claim) = (self.controllers.len(), &queue.claim);
        if count >= usize::from(self.config.limits.cntlids()) {
            return Err(no_controller_left(count));
        }
        let &Connected { cntlid, kind, hostid, .. } = queue;
        let bound = match kind {
            ControllerKind::Io => self.host_ids.enter(queue, admission.is_proof()),
            ControllerKind::Discovery => Ok(()),
        };
        bound.map_err(|owner| {
            let value = format!("{:#034x}, which is that of {owner}", u128::from_be_bytes(hostid));
            ConnectRefused::new(Status::CONNECT_INVALID_HOST, "HOSTID", value)
        })?;
        let issuer = *self.issuer.get_or_insert_with(|| Issuer::new(claim.random));
        let controller = Controller {
            cntlid,
            kind,
            subnqn: queue.subnqn.clone(),
            hostnqn: queue.hostnqn.clone(),
            hostid,
            has_other_hostids: false,
            local: claim.local,
            shared: queue.shared.clone(),
            properties: Properties::new(cntlid, claim.random, issuer),
            keep_alive: KeepAlive::of(kind, now, claim.kato_ms),
            features: Features::default(),
            events: Events::new(identify::optional_events(kind)),
            changed: BTreeSet::new(),
            removed: RemovedNamespaces::default(),
            genctr_seen: 0,
            queues: BTreeSet::new(),
            admissions: BTreeMap::from([(0, admission)]),
            draining: 0,
            quiescing: None,
            aborts: Aborts::default(),
            resets: Resets::default(),
            notices: Notices::default(),
            persisting: BTreeMap::new(),
            ana: AnaOfController::new(self.ana_of(&queue.subnqn, claim.local)),
        };
        if let Some(subsystem) = self.subsystems.get_mut(&queue.subnqn) {
            subsystem.attach(cntlid, controller.shared.clone());
        }
        self.set_timer(controller.keep_alive.deadline());
        self.controllers.insert(cntlid, controller);
        Ok(())
    }

    /// Whether the answer to a Connect is to hide why it is refused: its host has to prove who it is, and has not.
    pub(super) fn hides(&self, carrier: Carrier, qid: u16, subnqn: &str) -> bool {
        let authentication = &self.config.authentication;
        let proves = authentication.required
            || authentication.required_at.contains(subnqn)
            || authentication.makes_psk(carrier, qid, subnqn);
        proves && !carrier.is_secured()
    }

    /// Whether a queue over such a stream may be its host's and its subsystem's. A subsystem that needs TLS is not
    /// there for others; a key that has secured the stream must still be there.
    pub(super) fn check_carrier(
        &self,
        carrier: Carrier,
        qid: u16,
        names: &Names<'_>,
    ) -> Result<(), ConnectRefused> {
        let (authentication, nqn, host) =
            (&self.config.authentication, names.subnqn, names.hostnqn);
        let refused = |value: String| {
            Err(ConnectRefused::new(Status::CONNECT_INVALID_HOST, "HOSTNQN", value))
        };
        if carrier.is_secured() {
            // Its names are those of the key: see `connect::check_names`.
            let has_key = match carrier {
                Carrier::Generated => authentication.has_key(host, nqn),
                _ => self.tls_hosts.has(host, nqn),
            };
            let was_removed = || refused(format!("{host}, whose key was removed"));
            return if has_key { Ok(()) } else { was_removed() };
        }
        if authentication.tls_at.contains(nqn) {
            // Without TLS only to make the PSK that is for it.
            if authentication.makes_psk(carrier, qid, nqn) {
                return Ok(());
            }
            let refused = names.bad_subnqn();
            let value = format!("{}, which needs TLS", refused.value);
            return Err(ConnectRefused { value, ..refused });
        }
        if authentication.needs_tls(&self.tls_hosts, carrier, (host, nqn)) {
            return refused(format!("{host}, which has a TLS key, without TLS"));
        }
        Ok(())
    }

    /// Ends the controllers that would not be let in any more as they were, by these rules.
    pub(super) fn end_unadmitted(
        &mut self,
        authentication: &Authentication,
        listeners: &[Listener],
    ) {
        let rules = Rules { authentication, tls_hosts: &self.tls_hosts, listeners };
        let is_admitted = |one: &Controller| {
            let mut queues = one.admissions.iter();
            let is_there = |qid: u16| qid == 0 || one.queues.contains(&qid);
            queues.all(|(&qid, &way)| !is_there(qid) || rules.admits(one, qid, way))
        };
        let ended = self.controllers.values().filter(|one| !is_admitted(one));
        let ended: Vec<u16> = ended.map(|one| one.cntlid).collect();
        for cntlid in ended {
            self.drop_controller(cntlid, CloseReason::ProofRequired);
        }
    }
}

impl Authentication {
    /// Whether a host has a key for authentication anywhere.
    pub(super) fn knows(&self, hostnqn: &str) -> bool {
        let mut at = self.keys_at.values();
        self.keys.contains_key(hostnqn) || at.any(|hosts| hosts.contains_key(hostnqn))
    }

    /// Whether the queue is there for nothing but to make a PSK, and somebody could.
    fn makes_psk(&self, carrier: Carrier, qid: u16, subnqn: &str) -> bool {
        let has_keys = !self.keys.is_empty() || self.keys_at.contains_key(subnqn);
        has_keys && self.concatenation(carrier, qid, subnqn) == Concatenation::Required
    }

    /// Whether a host has to prove by TLS that it is the one it says. It need not where it proves that by another key,
    /// nor to look which listeners have TLS.
    fn needs_tls(
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
}
