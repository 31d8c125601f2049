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

use super::owner::Owner;
use std::os::fd::RawFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Interval at which new clients check whether they may start.
pub(super) const STRAY_RETRY: Duration = Duration::from_millis(1);

/// Token that servers hold while a new client has to wait.
#[derive(Debug)]
pub(super) struct Token {
    _held: Arc<()>,
    /// Dead once the new client is gone.
    asker: Weak<()>,
}

/// The clients that had hung up when this one connected.
#[derive(Debug, Default)]
pub(crate) struct Predecessors {
    held: Arc<()>,
    asker: Arc<()>,
}

impl Predecessors {
    /// Returns a token for another server.
    pub(super) fn token(&self) -> Token {
        Token { _held: self.held.clone(), asker: Arc::downgrade(&self.asker) }
    }

    /// True if none of their writes can reach the disk any more.
    pub(crate) fn are_over(&self) -> bool {
        Arc::strong_count(&self.held) == 1
    }
}

/// A new client, of this server or another, and the clients of this server for which it waits.
struct Wait {
    token: Token,
    owners: Vec<Owner>,
}

/// A server's clients that are gone, and the new clients that wait for them.
#[derive(Default)]
pub(super) struct Strays {
    /// Clients that are gone, with their number of writes in flight.
    gone: Vec<(Owner, u32)>,
    waits: Vec<Wait>,
}

impl Strays {
    /// Adds a client that is gone with `writes` writes in flight.
    pub(super) fn add(&mut self, owner: Owner, writes: u32) {
        if writes > 0 {
            self.gone.push((owner, writes));
        }
    }

    /// Records the end of a write of a client that is gone.
    pub(super) fn end_write(&mut self, owner: Owner) {
        if let Some(at) = self.gone.iter().position(|(gone, _)| *gone == owner) {
            self.gone[at].1 -= 1;
            if self.gone[at].1 == 0 {
                self.gone.swap_remove(at);
            }
        }
    }

    /// Makes a new client wait for all clients that are gone, and for those in `leaving`.
    pub(super) fn wait(&mut self, token: Token, leaving: impl Iterator<Item = Owner>) {
        let owners: Vec<Owner> = self.gone.iter().map(|(gone, _)| *gone).chain(leaving).collect();
        if !owners.is_empty() {
            self.waits.push(Wait { token, owners });
        }
    }

    /// Lets new clients start that have nothing to wait for, and drops those that have gone; `is_leaving` is true for a
    /// client that may still write.
    pub(super) fn settle(&mut self, is_leaving: impl Fn(Owner) -> bool) {
        let gone = &self.gone;
        let remains =
            |owner: &Owner| gone.iter().any(|(gone, _)| gone == owner) || is_leaving(*owner);
        self.waits.retain_mut(|wait| {
            wait.owners.retain(remains);
            !wait.owners.is_empty() && wait.token.asker.strong_count() > 0
        });
    }
}

/// Returns the sockets whose peer has hung up.
#[allow(unsafe_code, reason = "poll of descriptors of which only the number is known")]
pub(super) fn hung_up(sockets: impl Iterator<Item = (Owner, RawFd)>) -> Vec<Owner> {
    let (owners, mut polls): (Vec<Owner>, Vec<libc::pollfd>) = sockets
        .map(|(owner, fd)| (owner, libc::pollfd { fd, events: libc::POLLRDHUP, revents: 0 }))
        .unzip();
    // SAFETY: passes as many valid structures as it counts; the call does not block.
    let found = unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, 0) };
    if found <= 0 {
        return Vec::new();
    }
    let polled = owners.into_iter().zip(polls);
    polled.filter_map(|(owner, poll)| (poll.revents != 0).then_some(owner)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newcomers_that_go_leave_nothing_behind() {
        let mut strays = Strays::default();
        let gone = Owner { slot: 1, serial: 1 };
        strays.add(gone, 1);
        let stays = Predecessors::default();
        strays.wait(stays.token(), std::iter::empty());
        for _ in 0..9 {
            let goes = Predecessors::default();
            strays.wait(goes.token(), std::iter::empty());
            drop(goes);
        }
        strays.settle(|_| false);
        assert_eq!(strays.waits.len(), 1);
        assert!(!stays.are_over());
        strays.end_write(gone);
        strays.settle(|_| false);
        assert!(stays.are_over() && strays.waits.is_empty());
    }
}
