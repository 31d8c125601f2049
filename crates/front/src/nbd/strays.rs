//! Writes of clients that are gone.
//!
//! A client may hang up, or be lost, while writes of it are in a lane, where they stay for as long as the target is
//! away. They must not reach the disk after those of the client that comes instead, which may come to another
//! reactor. So a newcomer has *predecessors*: all clients of the endpoint that had hung up when it came. It begins no
//! request before their writes have ended. Clients that are there wait for nobody.
//!
//! Over TCP nobody sees a hang-up behind octets for which the server has no room, nor one that the network loses:
//! such a client counts as there.
//!
//! The newcomer's server asks all others. Each keeps the newcomer's token until its own clients among the
//! predecessors have no write left, and the newcomer begins when nobody else has the token.

use super::owner::Owner;
use std::os::fd::RawFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How soon newcomers look again whether they may begin.
pub(super) const STRAY_RETRY: Duration = Duration::from_millis(1);

/// What servers hold for a newcomer while it has to wait.
#[derive(Debug)]
pub(super) struct Token {
    _held: Arc<()>,
    /// Is gone with the newcomer.
    asker: Weak<()>,
}

/// The clients that had hung up when this one came.
#[derive(Debug, Default)]
pub(crate) struct Predecessors {
    held: Arc<()>,
    asker: Arc<()>,
}

impl Predecessors {
    /// For a server that is asked.
    pub(super) fn token(&self) -> Token {
        Token { _held: self.held.clone(), asker: Arc::downgrade(&self.asker) }
    }

    /// Whether nothing of them can reach the disk any more.
    pub(crate) fn are_over(&self) -> bool {
        Arc::strong_count(&self.held) == 1
    }
}

/// A newcomer, here or elsewhere, and those here that it waits for.
struct Wait {
    token: Token,
    owners: Vec<Owner>,
}

/// What a server knows of its clients that are gone, and who waits for them.
#[derive(Default)]
pub(super) struct Strays {
    /// Who is gone, with so many writes under way.
    gone: Vec<(Owner, u32)>,
    waits: Vec<Wait>,
}

impl Strays {
    /// A client is gone with so many writes under way.
    pub(super) fn add(&mut self, owner: Owner, writes: u32) {
        if writes > 0 {
            self.gone.push((owner, writes));
        }
    }

    /// A write of a client that is gone has ended.
    pub(super) fn end_write(&mut self, owner: Owner) {
        if let Some(at) = self.gone.iter().position(|(gone, _)| *gone == owner) {
            self.gone[at].1 -= 1;
            if self.gone[at].1 == 0 {
                self.gone.swap_remove(at);
            }
        }
    }

    /// A newcomer waits for all that are gone, and for those in `leaving`.
    pub(super) fn wait(&mut self, token: Token, leaving: impl Iterator<Item = Owner>) {
        let owners: Vec<Owner> = self.gone.iter().map(|(gone, _)| *gone).chain(leaving).collect();
        if !owners.is_empty() {
            self.waits.push(Wait { token, owners });
        }
    }

    /// Lets newcomers begin for which nothing is left, and forgets those that have gone; `is_leaving` tells of a client whether it still may write.
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

/// Those whose other end sends nothing more, of sockets that are open.
#[allow(unsafe_code, reason = "poll of descriptors of which only the number is known")]
pub(super) fn hung_up(sockets: impl Iterator<Item = (Owner, RawFd)>) -> Vec<Owner> {
    let (owners, mut polls): (Vec<Owner>, Vec<libc::pollfd>) = sockets
        .map(|(owner, fd)| (owner, libc::pollfd { fd, events: libc::POLLRDHUP, revents: 0 }))
        .unzip();
    // SAFETY: as many valid structures as are told; it does not wait.
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
