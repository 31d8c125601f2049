//! End of controllers after changes of keys, TLS or listeners: those that would not be admitted any more
//! ([`TargetControl::end_unadmitted`]), and those whose hosts have no key any more.

use super::authentication::{AuthenticationRequirement, HostAuthentication};
use super::carrier::{Carrier, QueueAdmission};
use super::connected::ConnectedQueue;
use super::control::TargetControl;
use super::controller::TargetController;
use super::kind::ControllerKind;
use super::listen::{self, TargetListener, TlsUse};
use super::target_event::CloseReason;
use core::net::SocketAddr;
use roadtrain_proto::security::TlsHosts;
use roadtrain_proto::security::dhchap::Concatenation;

/// Settings that decide on the admission of a queue, apart from its names.
struct AdmissionRules<'a> {
    authentication: &'a HostAuthentication,
    tls_hosts: &'a TlsHosts,
    listeners: &'a [TargetListener],
}

impl AdmissionRules<'_> {
    /// Returns the current carrier of a plain queue, whose listener may have another use of TLS now. `None` if the
    /// listener accepts only TLS.
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

    /// True if a queue of that controller would be admitted again.
    fn admits(&self, controller: &TargetController, qid: u16, admission: QueueAdmission) -> bool {
        let QueueAdmission { carrier, is_authenticated } = admission;
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
        let is_required = || {
            authentication.requirement_for(host, subsystem, is_discovery, concatenation).is_some()
        };
        is_authenticated || carrier == Carrier::Generated || !is_required()
    }
}

impl TargetControl {
    /// Returns the authentication currently required of a queue's host.
    #[must_use]
    pub fn requirement(&self, connected: &ConnectedQueue) -> Option<AuthenticationRequirement> {
        let is_discovery = connected.kind == ControllerKind::Discovery;
        let concatenation = Concatenation::Refused;
        let (hostnqn, subnqn) = (&connected.hostnqn, &connected.subnqn);
        self.config.authentication.requirement_for(hostnqn, subnqn, is_discovery, concatenation)
    }

    /// True if a host has the same keys as when it connected this queue.
    #[must_use]
    pub fn has_keys_of(&self, connected: &ConnectedQueue) -> bool {
        let keys = |requirement: Option<&AuthenticationRequirement>| {
            requirement.map(|requirement| (requirement.parties.clone(), requirement.former.clone()))
        };
        keys(self.requirement(connected).as_ref()) == keys(connected.requirement.as_deref())
    }

    /// Ends the controllers that these settings would not admit any more.
    pub(super) fn end_unadmitted(
        &mut self,
        authentication: &HostAuthentication,
        listeners: &[TargetListener],
    ) {
        let rules = AdmissionRules { authentication, tls_hosts: &self.tls_hosts, listeners };
        let is_admitted = |one: &TargetController| {
            let mut queues = one.admissions.iter();
            let is_there = |qid: u16| qid == 0 || one.queues.contains(&qid);
            queues.all(|(&qid, &admission)| !is_there(qid) || rules.admits(one, qid, admission))
        };
        let ended = self.controllers.values().filter(|one| !is_admitted(one));
        let ended: Vec<u16> = ended.map(|one| one.cntlid).collect();
        for cntlid in ended {
            self.drop_controller(cntlid, CloseReason::ProofRequired);
        }
    }

    /// Sets the hosts that have a key for TLS. Controllers of hosts that have none any more end. So do secured
    /// connections without a controller, and plain ones of hosts that have to use TLS now.
    pub fn set_tls_hosts(&mut self, hosts: TlsHosts) {
        let had = std::mem::replace(&mut self.tls_hosts, hosts);
        let have = self.tls_hosts.clone();
        self.end_hosts(|host, subnqn| had.has(host, subnqn) && !have.has(host, subnqn));
        let (authentication, listeners) =
            (self.config.authentication.clone(), self.config.listeners.clone());
        self.host_ids.retain(|host| authentication.knows(host) || have.knows(host));
        self.end_unadmitted(&authentication, &listeners);
    }

    /// Ends the controllers of hosts that have a key now, and none in `next`.
    pub(super) fn end_keyless(&mut self, next: &HostAuthentication) {
        let had = &self.config.authentication;
        let ended = self.controllers_of(|host, subnqn| {
            had.has_key(host, subnqn) && !next.has_key(host, subnqn)
        });
        self.end(ended);
        self.host_ids.retain(|host| next.knows(host) || self.tls_hosts.knows(host));
    }

    fn end_hosts(&mut self, is_gone: impl Fn(&str, &str) -> bool) {
        let ended = self.controllers_of(is_gone);
        self.end(ended);
    }

    /// Returns the controllers of hosts at subsystems for which `is_meant` is true.
    fn controllers_of(&self, is_meant: impl Fn(&str, &str) -> bool) -> Vec<u16> {
        let all = self.controllers.values();
        let meant = all.filter(|one| is_meant(&one.hostnqn, &one.subnqn));
        meant.map(|one| one.cntlid).collect()
    }

    fn end(&mut self, ended: Vec<u16>) {
        for cntlid in ended {
            self.drop_controller(cntlid, CloseReason::KeyRemoved);
        }
    }
}
