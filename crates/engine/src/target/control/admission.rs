//! Queues that hosts are granted, and Connects that are refused.

use super::{Answer, Control, Port, State};
use roadtrain_proto::time::Instant;
use roadtrain_target_proto::ConnectRefused;
use roadtrain_target_proto::session::Session;
use roadtrain_wire::fabrics::ConnectData;
use std::mem::offset_of;
use tracing::info;

/// Bytes of a name in the data of a Connect.
const NQN_FIELD_BYTES: usize = 256;

impl Control {
    /// The host of a connection is granted the queue that it has claimed, if it has proved who it is or need not:
    /// whether that is so now. An error: it is refused, and the connection is to end.
    pub(in crate::target) fn grant(
        &self,
        now: Instant,
        session: &mut Session,
        port: Port<'_>,
    ) -> Result<bool, ()> {
        let mut state = self.lock();
        let State { target, presences, .. } = &mut *state;
        let granted = session.take_granted(now, target, presences, port.socket);
        self.publish(state);
        granted.map_err(|error| {
            let (field, value, status) = (error.field, &error.value, error.status);
            info!(peer = port.peer, field, value, %status, "refused, though it has proved who it is");
            let claim = session.claim();
            let names = claim.map_or(("", ""), |claim| (&*claim.subnqn, &*claim.hostnqn));
            self.meters.refused(names.0, names.1, error.field);
        })
    }

    /// The answer to a Connect that is refused.
    pub(super) fn refused(&self, port: Port<'_>, data: &[u8], error: &ConnectRefused) -> Answer {
        let (field, value, status) = (error.field, &error.value, error.status);
        info!(peer = port.peer, field, value, %status, "Connect refused");
        self.count_refusal(data, field);
        Answer { completion: Some((status, error.result.into())), ..Answer::default() }
    }

    /// Of a host that says its name in the data of its Connect.
    pub(super) fn count_refusal(&self, data: &[u8], why: &'static str) {
        let name = |start: usize| {
            let field = data.get(start..start + NQN_FIELD_BYTES).unwrap_or_default();
            let name = field.split(|octet| *octet == 0).next().unwrap_or_default();
            String::from_utf8_lossy(name).into_owned()
        };
        let (nqn, host) =
            (name(offset_of!(ConnectData, subnqn)), name(offset_of!(ConnectData, hostnqn)));
        self.meters.refused(&nqn, &host, why);
    }
}
