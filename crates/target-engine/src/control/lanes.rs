//! What lanes tell the control plane: what has become of their commands, and of themselves.

use super::{Control, State};
use crate::order::Order;
use roadtrain_target_proto::Connected;
use roadtrain_target_proto::presence::Presence;
use roadtrain_target_proto::service::{self, Broadcast};

impl Control {
    /// What has become of a command that its host has aborted.
    pub(crate) fn aborted(&self, connected: &Connected, id: u32, aborted: bool) {
        let mut state = self.lock();
        state.target.aborted(connected.cntlid, id, aborted);
        self.publish(state);
    }

    /// The controller shuts down: whether none of its commands is in a store any more. If not, the command that asks
    /// is to be tried again at [`Order::Settled`].
    pub(crate) fn quiesce(&self, connected: &Connected) -> bool {
        let mut state = self.lock();
        let State { target, presences, .. } = &mut *state;
        let is_quiet = service::quiesce(target, presences, connected.cntlid);
        self.publish(state);
        is_quiet
    }

    /// A lane of a controller that shuts down has no command in a store any more.
    pub(crate) fn quiesced(&self, connected: &Connected) {
        let mut state = self.lock();
        let State { target, presences, .. } = &mut *state;
        let message = service::quiesced(target, presences, connected);
        self.send(message);
        self.publish(state);
    }

    /// The host has a lane that it was asked for, at [`Order::Ask`].
    pub(crate) fn answered(&self, presence: &Presence) {
        let mut state = self.lock();
        let message = service::answered(&mut state.presences, presence);
        self.send(message);
        self.publish(state);
    }

    /// Sends the message to all reactors.
    pub(super) fn send(&self, message: Option<Broadcast>) {
        match message {
            Some(Broadcast::CloseStale(host)) => {
                self.broadcast(|| Order::Sweep(host.as_str().into()));
            }
            Some(Broadcast::Probe(host)) => self.broadcast(|| Order::Ask(host.as_str().into())),
            Some(Broadcast::TryAgain) => self.broadcast(|| Order::Settled),
            None => {}
        }
    }
}
