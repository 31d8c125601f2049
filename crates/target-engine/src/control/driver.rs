//! Driver of [`roadtrain_target_proto::service`]: lock, random bytes, worker and log.

use super::{ControlState, TargetControlPlane};
use roadtrain_proto::security::dhchap::{DhGroup, DhTask};
use roadtrain_proto::security::{GeneratedPsk, Hash, Secret};
use roadtrain_proto::time::Instant;
use roadtrain_reactor::stream::any_hung_up;
use roadtrain_system::random;
use roadtrain_target_proto::service::{Broadcast, Computing, LockedControl, Note, ServiceDriver};
use roadtrain_target_proto::{ConnectRefused, ConnectedQueue, host_name};
use roadtrain_wire::fabrics::ConnectData;
use std::fmt::Display;
use std::mem::offset_of;
use std::os::fd::RawFd;
use std::time::Duration;
use tracing::{info, warn};

/// Random bytes of an authentication: exponent, challenge and sequence number.
const RANDOM_BYTES: usize = 64 + 64 + 4;
/// Bytes of a name in the data of a Connect.
const NQN_FIELD_BYTES: usize = 256;

/// Control plane for the commands of one connection.
pub(crate) struct ConnectionControl<'a> {
    control: &'a TargetControlPlane,
    /// Address of the host, for logs.
    peer: &'a str,
    random: Option<Secret>,
}

impl TargetControlPlane {
    pub(crate) fn commands<'a>(&'a self, peer: &'a str) -> ConnectionControl<'a> {
        ConnectionControl { control: self, peer, random: None }
    }
}

impl ServiceDriver for ConnectionControl<'_> {
    type Connection = RawFd;

    fn control<R>(
        &mut self,
        call: impl FnOnce(LockedControl<'_, RawFd>) -> (R, Option<Broadcast>),
    ) -> R {
        let mut state = self.control.lock();
        let ControlState { target, presences, .. } = &mut *state;
        let (result, message) = call(LockedControl { target, presences, any_lost: &any_hung_up });
        self.control.send(message);
        self.control.publish(state);
        result
    }

    fn number(&mut self) -> Option<u64> {
        random::number().map_err(|error| self.fail(&error)).ok()
    }

    fn random(&mut self) -> Option<impl FnMut(&mut [u8])> {
        let secret = random::secret(RANDOM_BYTES).map_err(|error| self.fail(&error)).ok()?;
        let mut unused = self.random.insert(secret).reveal();
        Some(move |place: &mut [u8]| {
            let (taken, rest) = unused.split_at(place.len());
            place.copy_from_slice(taken);
            unused = rest;
        })
    }

    fn compute(&mut self, work: DhTask) -> Option<Computing> {
        let begun = self.control.compute(self.peer, work);
        begun.map_err(|error| self.fail(&error)).ok().map(|()| Computing::Later)
    }

    fn authentication_time(&self) -> Duration {
        self.control.authentication_time
    }

    fn keep_psk(&mut self, now: Instant, connected: &ConnectedQueue, psk: &GeneratedPsk) {
        let state = self.control.lock();
        if state.target.has_keys_of(connected) {
            let names = (&*connected.hostnqn, &*connected.subnqn);
            self.control.lock_psks().keep(now, names, psk);
            self.control.wake_watcher(&state);
        }
    }

    fn note(&mut self, note: &Note<'_>) {
        let peer = self.peer;
        match *note {
            Note::NotAdmitted(sqe, state, status) => {
                let opcode = format!("{:#04x}", sqe.opcode);
                info!(%peer, field = "opcode", value = opcode, %status, "refused while {state:?}");
            }
            Note::Refused(data, ConnectRefused { field, value, status, .. }) => {
                info!(%peer, field, value, %status, "Connect refused");
                self.count_refusal(data, field);
            }
            Note::Busy(data, host, status) => {
                let value = host_name(host);
                info!(%peer, field = "HOSTNQN", value, %status, "Connect refused: commands of the host's lost connections are in a store");
                self.count_refusal(data, "busy");
            }
            Note::Claimed(connected) => claimed(peer, connected),
            Note::RefusedAfterProof(claim, ConnectRefused { field, value, status, .. }) => {
                info!(%peer, field, value, %status, "refused after its authentication");
                self.control.meters.refused(&claim.subnqn, &claim.hostnqn, field);
            }
            Note::NotAuthenticated(connected, explanation, field) => {
                let (host, subsystem) = (host_name(&connected.hostnqn), &connected.subnqn);
                let (qid, why) = (connected.qid, explanation.text());
                warn!(%peer, host, %subsystem, qid, field, "not authenticated: {why}");
            }
            Note::Authenticated(connected, agreed) => {
                let (host, qid) = (host_name(&connected.hostnqn), connected.qid);
                info!(%peer, host, qid, by = name(agreed), "authenticated");
            }
            Note::Reauthenticated(connected, agreed) => {
                self.control.meters.authenticated(connected, agreed);
            }
            Note::GeneratedPsk(connected, agreed) => {
                let (host, subsystem) = (host_name(&connected.hostnqn), &connected.subnqn);
                info!(%peer, host, %subsystem, by = name(agreed), "authenticated, to come again with TLS");
            }
        }
    }
}

impl ConnectionControl<'_> {
    fn fail(&self, error: &dyn Display) {
        warn!(peer = %self.peer, "cannot connect or authenticate the host: {error}");
    }

    /// Counts a refusal for the host that the data of a Connect names.
    fn count_refusal(&self, data: &[u8], why: &'static str) {
        let name = |start: usize| {
            let field = data.get(start..start + NQN_FIELD_BYTES).unwrap_or_default();
            let name = field.split(|byte| *byte == 0).next().unwrap_or_default();
            String::from_utf8_lossy(name).into_owned()
        };
        let (nqn, host) =
            (name(offset_of!(ConnectData, subnqn)), name(offset_of!(ConnectData, hostnqn)));
        self.control.meters.refused(&nqn, &host, why);
    }
}

fn claimed(peer: &str, connected: &ConnectedQueue) {
    let ConnectedQueue { cntlid, qid, subnqn, .. } = connected;
    info!(%peer, cntlid, qid, host = host_name(&connected.hostnqn), subsystem = %subnqn, "queue connected");
    if let Some(ConnectRefused { field, value, status, .. }) = connected.refusal() {
        info!(%peer, field, value, %status, "will be refused after its authentication");
    }
}

/// Hash and group of an authentication.
fn name((hash, group): (Hash, DhGroup)) -> String {
    format!("{hash}, {group}")
}
