//! Reports of lanes to the control plane: results of their commands, and changes of the lanes themselves.

use super::{ControlState, TargetControlPlane};
use crate::order::TargetReactorMessage;
use roadtrain_target_proto::ConnectedQueue;
use roadtrain_target_proto::host_connections::HostConnection;
use roadtrain_target_proto::service::{self, Broadcast};

impl TargetControlPlane {
    /// Reports the result of an abort.
    pub(crate) fn aborted(&self, connected: &ConnectedQueue, id: u32, aborted: bool) {
        let mut state = self.lock();
        state.target.aborted(connected.cntlid, id, aborted);
        self.publish(state);
    }

    /// Begins the shutdown of a controller. Returns true if none of its commands is in a store. Otherwise the caller
    /// retries its command at [`TargetReactorMessage::Settled`].
    pub(crate) fn quiesce(&self, connected: &ConnectedQueue) -> bool {
        let mut state = self.lock();
        let ControlState { target, presences, .. } = &mut *state;
        let is_quiet = service::quiesce(target, presences, connected.cntlid);
        self.publish(state);
        is_quiet
    }

    /// Reports that a lane of a controller that shuts down has no more commands in a store.
    pub(crate) fn quiesced(&self, connected: &ConnectedQueue) {
        let mut state = self.lock();
        let ControlState { target, presences, .. } = &mut *state;
        let message = service::quiesced(target, presences, connected);
        self.send(message);
        self.publish(state);
    }

    /// Reports that the host still has a lane: the reply to [`TargetReactorMessage::Probe`].
    pub(crate) fn answered(&self, presence: &HostConnection) {
        let mut state = self.lock();
        let message = service::answered(&mut state.presences, presence);
        self.send(message);
        self.publish(state);
    }

    /// Sends a broadcast to all reactors.
    pub(super) fn send(&self, message: Option<Broadcast>) {
        match message {
            Some(Broadcast::CloseStale(host)) => {
                self.broadcast(|| TargetReactorMessage::CloseStale(host.as_str().into()));
            }
            Some(Broadcast::Probe(host)) => {
                self.broadcast(|| TargetReactorMessage::Probe(host.as_str().into()))
            }
            Some(Broadcast::TryAgain) => self.broadcast(|| TargetReactorMessage::Settled),
            None => {}
        }
    }
}
