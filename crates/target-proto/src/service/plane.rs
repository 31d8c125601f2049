//! The locked control plane, and reports of lanes to it.

use super::Broadcast;
use crate::host_connections::{HostConnection, HostConnections};
use crate::{ConnectedQueue, TargetControl};

/// The locked control plane. `C` identifies a connection that can end on its own.
pub struct LockedControl<'a, C> {
    /// Subsystems and controllers.
    pub target: &'a mut TargetControl,
    /// Connections of every host.
    pub presences: &'a mut HostConnections<C>,
    /// True if the host has closed one of these connections, though earlier bytes may be unread.
    pub any_lost: &'a dyn Fn(&[C]) -> bool,
}

/// Begins a controller shutdown. Returns false while its commands are in a store: the command that shuts it down has to
/// be postponed.
pub fn quiesce<C: Copy>(
    target: &mut TargetControl,
    presences: &mut HostConnections<C>,
    cntlid: u16,
) -> bool {
    let is_quiet = target.quiesce(cntlid);
    if !is_quiet {
        presences.wait();
    }
    is_quiet
}

/// Records that no command of a lane whose controller shuts down is in a store any more.
pub fn quiesced<C: Copy>(
    target: &mut TargetControl,
    presences: &mut HostConnections<C>,
    connected: &ConnectedQueue,
) -> Option<Broadcast> {
    target.quiesced(connected.cntlid, connected.qid);
    try_again(presences)
}

/// Records that a host has confirmed a probed lane ([`Broadcast::Probe`]).
pub fn answered<C: Copy>(
    presences: &mut HostConnections<C>,
    presence: &HostConnection,
) -> Option<Broadcast> {
    presences.answered(presence);
    try_again(presences)
}

/// Returns the message by which postponed commands are executed again, if any waits.
pub(super) fn try_again<C: Copy>(presences: &mut HostConnections<C>) -> Option<Broadcast> {
    presences.settled().then_some(Broadcast::TryAgain)
}
