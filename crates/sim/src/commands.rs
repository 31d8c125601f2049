//! Driver of [`roadtrain_target_proto::service`] in the simulation.

use crate::ends::ConnId;
use crate::process::TargetProcess;
use core::time::Duration;
use roadtrain_proto::security::GeneratedPsk;
use roadtrain_proto::security::dhchap::DhTask;
use roadtrain_proto::time::Instant;
use roadtrain_target_proto::ConnectedQueue;
use roadtrain_target_proto::service::{Broadcast, Computing, LockedControl, Note, ServiceDriver};

/// Network, as the target sees the ends of its connections.
pub(crate) trait ConnectionLiveness {
    /// True if the host has ended the connection, though bytes that it sent before may be unread.
    fn is_lost(&self, now: Instant, connection: ConnId) -> bool;
}

/// Control plane for the commands of one connection.
pub(crate) struct CommandDriver<'a, L, N> {
    pub(crate) network: &'a N,
    pub(crate) process: &'a mut TargetProcess<L>,
}

impl<L, N> CommandDriver<'_, L, N> {
    pub(crate) fn reborrow(&mut self) -> CommandDriver<'_, L, N> {
        CommandDriver { network: self.network, process: self.process }
    }
}

impl<L, N: ConnectionLiveness> ServiceDriver for CommandDriver<'_, L, N> {
    type Connection = ConnId;

    fn control<R>(
        &mut self,
        call: impl FnOnce(LockedControl<'_, ConnId>) -> (R, Option<Broadcast>),
    ) -> R {
        let TargetProcess { now, control, presences, .. } = &mut *self.process;
        let is_lost = |connection: &ConnId| self.network.is_lost(*now, *connection);
        let any_lost = |connections: &[ConnId]| connections.iter().any(is_lost);
        let (result, message) =
            call(LockedControl { target: control, presences, any_lost: &any_lost });
        self.process.broadcast(message);
        self.process.publish();
        result
    }

    fn number(&mut self) -> Option<u64> {
        Some(self.process.numbers.bits())
    }

    fn random(&mut self) -> Option<impl FnMut(&mut [u8])> {
        Some(|place: &mut [u8]| place.fill_with(|| self.process.rng.bits() as u8))
    }

    fn compute(&mut self, work: DhTask) -> Option<Computing> {
        self.process.compute(work);
        Some(Computing::Later)
    }

    /// Hosts do not authenticate again here.
    fn authentication_time(&self) -> Duration {
        Duration::MAX
    }

    /// No host makes a PSK here.
    fn keep_psk(&mut self, _: Instant, _: &ConnectedQueue, _: &GeneratedPsk) {}

    fn note(&mut self, note: &Note<'_>) {
        self.process.busy += u64::from(matches!(note, Note::Busy(..)));
    }
}
