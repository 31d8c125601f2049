//! Writes of clients that are gone.
//!
//! A client may hang up, or be lost, while its writes are in a lane, where they stay while the target is unreachable.
//! They must not reach the disk after those of the next client, which may connect to another reactor. So a new client
//! has *predecessors*: all clients of the endpoint that had hung up when it connected. It starts no request before
//! their writes have ended. Connected clients do not wait.
//!
//! Over TCP a hang-up is not visible behind data for which the server has no room, nor if the network loses it: such a
//! client counts as connected.
//!
//! The new client's server passes a token to all others. Each keeps it until its own clients among the predecessors
//! have no write left. The new client starts once no other server has the token.

use super::connection_id::ConnectionId;
use std::os::fd::RawFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Interval at which new clients check whether they may start.
pub(super) const ORPHAN_RETRY: Duration = Duration::from_millis(1);

/// Token that servers hold while a new client has to wait.
#[derive(Debug)]
pub(super) struct OrphanToken {
    _held: Arc<()>,
    /// Dead once the new client is gone.
    querier: Weak<()>,
}

/// The clients that had hung up when this one connected.
#[derive(Debug, Default)]
pub(crate) struct Predecessors {
    held: Arc<()>,
    querier: Arc<()>,
}

impl Predecessors {
    /// Returns a token for another server.
    pub(super) fn token(&self) -> OrphanToken {
        OrphanToken { _held: self.held.clone(), querier: Arc::downgrade(&self.querier) }
    }

    /// True if none of their writes can reach the disk any more.
    pub(crate) fn have_ended(&self) -> bool {
        Arc::strong_count(&self.held) == 1
    }
}

/// A new client, of this server or another, and the clients of this server for which it waits.
struct OrphanWait {
    token: OrphanToken,
    ids: Vec<ConnectionId>,
}

/// A server's clients that are gone, and the new clients that wait for them.
#[derive(Default)]
pub(super) struct OrphanWrites {
    /// Clients that are gone, with their number of writes in flight.
    gone: Vec<(ConnectionId, u32)>,
    waits: Vec<OrphanWait>,
}

impl OrphanWrites {
    /// Adds a client that is gone with `writes` writes in flight.
    pub(super) fn add(&mut self, id: ConnectionId, writes: u32) {
        if writes > 0 {
            self.gone.push((id, writes));
        }
    }

    /// Records the end of a write of a client that is gone.
    pub(super) fn end_write(&mut self, id: ConnectionId) {
        if let Some(at) = self.gone.iter().position(|(gone, _)| *gone == id) {
            self.gone[at].1 -= 1;
            if self.gone[at].1 == 0 {
                self.gone.swap_remove(at);
            }
        }
    }

    /// Makes a new client wait for all clients that are gone, and for those in `leaving`.
    pub(super) fn wait(&mut self, token: OrphanToken, leaving: impl Iterator<Item = ConnectionId>) {
        let ids: Vec<ConnectionId> =
            self.gone.iter().map(|(gone, _)| *gone).chain(leaving).collect();
        if !ids.is_empty() {
            self.waits.push(OrphanWait { token, ids });
        }
    }

    /// Lets new clients start that have nothing to wait for, and drops those that have gone; `is_leaving` is true for a
    /// client that may still write.
    pub(super) fn release_waiting(&mut self, is_leaving: impl Fn(ConnectionId) -> bool) {
        let gone = &self.gone;
        let is_pending =
            |id: &ConnectionId| gone.iter().any(|(gone, _)| gone == id) || is_leaving(*id);
        self.waits.retain_mut(|wait| {
            wait.ids.retain(is_pending);
            !wait.ids.is_empty() && wait.token.querier.strong_count() > 0
        });
    }
}

/// Returns the sockets whose peer has hung up.
#[allow(unsafe_code, reason = "poll of descriptors of which only the number is known")]
pub(super) fn hung_up(sockets: impl Iterator<Item = (ConnectionId, RawFd)>) -> Vec<ConnectionId> {
    let (ids, mut polls): (Vec<ConnectionId>, Vec<libc::pollfd>) = sockets
        .map(|(id, fd)| (id, libc::pollfd { fd, events: libc::POLLRDHUP, revents: 0 }))
        .unzip();
    // SAFETY: passes as many valid structures as it counts; the call does not block.
    let found = unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, 0) };
    if found <= 0 {
        return Vec::new();
    }
    let polled = ids.into_iter().zip(polls);
    polled.filter_map(|(id, poll)| (poll.revents != 0).then_some(id)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newcomers_that_go_leave_nothing_behind() {
        let mut orphans = OrphanWrites::default();
        let gone = ConnectionId { slot: 1, serial: 1 };
        orphans.add(gone, 1);
        let stays = Predecessors::default();
        orphans.wait(stays.token(), std::iter::empty());
        for _ in 0..9 {
            let goes = Predecessors::default();
            orphans.wait(goes.token(), std::iter::empty());
            drop(goes);
        }
        orphans.release_waiting(|_| false);
        assert_eq!(orphans.waits.len(), 1);
        assert!(!stays.have_ended());
        orphans.end_write(gone);
        orphans.release_waiting(|_| false);
        assert!(stays.have_ended() && orphans.waits.is_empty());
    }
}
