//! State is granted after authentication, not at Connect.
//!
//! A Connect only *claims* a queue. Until its host is authenticated, where that is required, the claim holds nothing
//! that another host could need: no controller, no queue identifier, no share of a host's limits, no keep-alive timer.
//! A new controller's identifier is reserved, and given to a newer claim when no other is left
//! ([`Claims`](super::claims::Claims)). [`TargetControl::grant`] repeats all checks, against the current state of the target,
//! and creates the controller or the queue.
//!
//! The security with which a queue was granted is stored ([`QueueAdmission`]). After a change of keys, of TLS or of
//! listeners, a controller ends that would not be admitted any more ([`TargetControl::end_unadmitted`]).

use super::aborts::Aborts;
use super::carrier::{Carrier, QueueAdmission};
use super::changed_namespaces::ChangedNamespaces;
use super::connected::{ConnectNames, ConnectRefused, ConnectedQueue, no_controller_left};
use super::control::TargetControl;
use super::controller::TargetController;
use super::events::Events;
use super::feature_values::FeatureValues;
use super::keep_alive::KeepAlive;
use super::kind::{ControllerKind, optional_events};
use super::path_states::AnaOfController;
use super::property::{Issuer, Properties};
use super::removed::RemovedNamespaces;
use super::reservations::ReservationNotices;
use super::resets::CrossResets;
use super::subsystem::AttachedController;
use roadtrain_proto::time::Instant;
use roadtrain_wire::status::Status;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

impl TargetControl {
    /// Grants a queue whose host is authenticated, or need not be: the queue exists from now on, and with queue 0 its
    /// controller.
    ///
    /// # Errors
    /// The reason of the refusal; the connection has to be closed.
    pub fn grant(&mut self, now: Instant, queue: &ConnectedQueue) -> Result<(), ConnectRefused> {
        let ConnectedQueue { cntlid, qid, claim, .. } = queue;
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
        self.check_grantable(*qid, &names, claim.local)?;
        if self.requirement_of(queue, claim.carrier).as_ref() != queue.requirement.as_deref() {
            return refused("HOSTNQN", "which has other keys by now");
        }
        let admission = QueueAdmission {
            carrier: claim.carrier,
            is_authenticated: queue.requirement.is_some(),
        };
        match qid {
            0 => self.grant_controller(now, queue, admission),
            _ => self.grant_queue(now, queue, admission),
        }
    }

    /// Ends a claim that was not granted, because its connection is gone.
    pub fn withdraw(&mut self, queue: &ConnectedQueue) {
        if queue.qid == 0 {
            self.claims.take(queue.cntlid, queue.claim.number);
        }
    }

    fn grant_queue(
        &mut self,
        now: Instant,
        queue: &ConnectedQueue,
        admission: QueueAdmission,
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
        queue: &ConnectedQueue,
        admission: QueueAdmission,
    ) -> Result<(), ConnectRefused> {
        let (count, claim) = (self.controllers.len(), &queue.claim);
        if count >= usize::from(self.config.limits.cntlids()) {
            return Err(no_controller_left(count));
        }
        let &ConnectedQueue { cntlid, kind, hostid, .. } = queue;
        let bound = match kind {
            ControllerKind::Io => self.host_ids.enter(queue, admission.is_proof()),
            ControllerKind::Discovery => Ok(()),
        };
        bound.map_err(|owner| {
            let value = format!("{:#034x}, which is that of {owner}", u128::from_be_bytes(hostid));
            ConnectRefused::new(Status::CONNECT_INVALID_HOST, "HOSTID", value)
        })?;
        let issuer = *self.issuer.get_or_insert_with(|| Issuer::new(claim.random));
        let controller = TargetController {
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
            features: FeatureValues::default(),
            events: Events::new(optional_events(kind)),
            changed: ChangedNamespaces::default(),
            removed: RemovedNamespaces::default(),
            genctr_seen: 0,
            queues: BTreeSet::new(),
            admissions: BTreeMap::from([(0, admission)]),
            draining: 0,
            quiescing: None,
            aborts: Aborts::default(),
            resets: CrossResets::default(),
            notices: ReservationNotices::default(),
            persisting: BTreeMap::new(),
            namespace_request: None,
            ana: AnaOfController::new(self.path_states(&queue.subnqn, claim.local)),
        };
        if let Some(subsystem) = self.subsystems.get_mut(&queue.subnqn) {
            let shared = controller.shared.clone();
            let hostnqn = controller.hostnqn.clone();
            subsystem.attach(cntlid, AttachedController { shared, hostnqn });
        }
        self.set_timer(controller.keep_alive.deadline());
        self.controllers.insert(cntlid, controller);
        Ok(())
    }

    /// True if the completion of a Connect has to hide the reason of a refusal, because its host has to authenticate
    /// first.
    pub(super) fn hides(&self, carrier: Carrier, qid: u16, subnqn: &str) -> bool {
        let authentication = &self.config.authentication;
        let proves = authentication.required
            || authentication.required_at.contains(subnqn)
            || authentication.makes_psk(carrier, qid, subnqn);
        proves && !carrier.is_secured()
    }

    /// Checks that a connection's security suffices for the host and the subsystem. A subsystem that requires TLS is
    /// not visible without; the key that secured the connection must still exist.
    pub(super) fn check_carrier(
        &self,
        carrier: Carrier,
        qid: u16,
        names: &ConnectNames<'_>,
    ) -> Result<(), ConnectRefused> {
        let (authentication, nqn, host) =
            (&self.config.authentication, names.subnqn, names.hostnqn);
        let refused = |value: String| {
            Err(ConnectRefused::new(Status::CONNECT_INVALID_HOST, "HOSTNQN", value))
        };
        if carrier.is_secured() {
            // The names of a secured connection are those of its key: see `connect::check_names`.
            let has_key = match carrier {
                Carrier::Generated => authentication.has_key(host, nqn),
                _ => self.tls_hosts.has(host, nqn),
            };
            let was_removed = || refused(format!("{host}, whose key was removed"));
            return if has_key { Ok(()) } else { was_removed() };
        }
        if authentication.tls_at.contains(nqn) {
            // Without TLS only the generation of its PSK is allowed.
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
}
