//! What lanes tell the control plane: what has become of their commands, and of themselves.

use super::{Control, State};
use crate::order::Order;
use roadtrain_target_proto::Connected;
use roadtrain_target_proto::presence::Presence;

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
        let is_quiet = state.target.quiesce(connected.cntlid);
        if !is_quiet {
            state.presences.wait();
        }
        self.publish(state);
        is_quiet
    }

    /// A lane of a controller that shuts down has no command in a store any more.
    pub(crate) fn quiesced(&self, connected: &Connected) {
        let mut state = self.lock();
        state.target.quiesced(connected.cntlid, connected.qid);
        self.settle(&mut state);
    }

    /// The host has a lane that it was asked for, at [`Order::Ask`].
    pub(crate) fn answered(&self, presence: &Presence) {
        let mut state = self.lock();
        state.presences.answered(presence);
        self.settle(&mut state);
    }

    /// Lets Connects that wait try again: perhaps they waited for this.
    fn settle(&self, state: &mut State) {
        if state.presences.settled() {
            self.broadcast(|| Order::Settled);
        }
    }
}
