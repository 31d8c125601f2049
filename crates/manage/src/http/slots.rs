//! Limit on HTTP connections, and the choice of the one to close for a new one.
//!
//! An authenticated connection stays. When all slots are taken, a new connection replaces an unauthenticated one.
//! Refused ones go first, then those of the address with the most unauthenticated connections.

use roadtrain_proto::source;
use std::cmp::Reverse;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::task::AbortHandle;

/// Most connections at once.
pub(super) const ALL_MAX: usize = 64;

/// All slots. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Places(Arc<Mutex<Table>>);

#[derive(Default)]
struct Table {
    /// Connections in the order in which they were accepted.
    entries: Vec<Entry>,
    next: u64,
}

struct Entry {
    number: u64,
    peer: SocketAddr,
    standing: Standing,
    task: Option<AbortHandle>,
}

/// Authentication state of a connection. The lowest is closed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    /// It presented wrong credentials.
    Refused,
    /// It has presented nothing yet.
    New,
    /// It presented valid credentials.
    Proved,
}

/// A connection, as its handlers see it.
#[derive(Clone)]
pub struct Connection {
    /// Address of the peer.
    pub peer: SocketAddr,
    places: Places,
    number: u64,
}

/// Slot of a connection, released on drop.
pub(super) struct Place(Connection);

impl Connection {
    /// Marks the connection as authenticated: no new one replaces it.
    pub fn prove(&self) {
        self.set(Standing::Proved);
    }

    /// Marks the connection as refused: the next new one may replace it.
    pub fn refuse(&self) {
        self.set(Standing::Refused);
    }

    fn set(&self, standing: Standing) {
        let mut table = self.places.lock();
        let mut entries = table.entries.iter_mut();
        if let Some(entry) = entries.find(|entry| entry.number == self.number) {
            entry.standing = standing;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Connection { places, number, .. } = &self.0;
        places.lock().entries.retain(|entry| entry.number != *number);
    }
}

impl Places {
    /// Takes a slot for a connection of `peer`. Returns the address of the connection that was closed for it, if any.
    /// `None`: all connections are authenticated.
    pub(super) fn enter(
        &self,
        peer: SocketAddr,
    ) -> Option<(Connection, Place, Option<SocketAddr>)> {
        let (number, gone) = self.lock().enter(peer)?;
        gone.iter().filter_map(|entry| entry.task.as_ref()).for_each(AbortHandle::abort);
        let connection = Connection { peer, places: self.clone(), number };
        Some((connection.clone(), Place(connection), gone.map(|entry| entry.peer)))
    }

    /// True if the next connection replaces another one.
    pub(super) fn is_full(&self) -> bool {
        self.lock().is_full()
    }

    /// Registers the task to abort when the connection is closed for another one.
    pub(super) fn ends_with(&self, connection: &Connection, task: AbortHandle) {
        let mut table = self.lock();
        let mut entries = table.entries.iter_mut();
        if let Some(entry) = entries.find(|entry| entry.number == connection.number) {
            entry.task = Some(task);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn enter(&mut self, peer: SocketAddr) -> Option<(u64, Option<Entry>)> {
        let gone = match self.is_full() {
            true => Some(self.entries.remove(self.first_to_go()?)),
            false => None,
        };
        let (number, standing) = (self.next, Standing::New);
        self.next += 1;
        self.entries.push(Entry { number, peer, standing, task: None });
        Some((number, gone))
    }

    fn is_full(&self) -> bool {
        self.entries.len() >= ALL_MAX
    }

    fn first_to_go(&self) -> Option<usize> {
        let unproved = || {
            let all = self.entries.iter().enumerate();
            all.filter(|(_, entry)| entry.standing != Standing::Proved)
        };
        let of_source = |peer: SocketAddr| {
            unproved()
                .filter(|(_, other)| source::of(other.peer.ip()) == source::of(peer.ip()))
                .count()
        };
        let first = unproved()
            .min_by_key(|(at, entry)| (entry.standing, Reverse(of_source(entry.peer)), *at));
        first.map(|(at, _)| at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(host: u8, port: u16) -> SocketAddr {
        ([192, 0, 2, host], port).into()
    }

    #[test]
    fn who_has_proved_nothing_goes_for_others() {
        let places = Places::default();
        let mut held = Vec::new();
        // A flood from one address, and one connection of another.
        for port in 0..200 {
            held.push(places.enter(at(1, port)).unwrap());
        }
        let (quiet, place, gone) = places.enter(at(2, 1)).unwrap();
        assert_eq!(gone, Some(at(1, 136)), "the oldest that is there");
        for port in 200..400 {
            held.push(places.enter(at(1, port)).unwrap());
            assert_ne!(held.last().unwrap().2, Some(at(2, 1)), "the address with most pays");
        }
        quiet.prove();
        let is_there = |peer| places.lock().entries.iter().any(|entry| entry.peer == peer);
        assert!(is_there(at(2, 1)) && places.lock().entries.len() == ALL_MAX);
        drop(place);
        assert!(!is_there(at(2, 1)));
    }

    #[test]
    fn refused_ones_go_first_and_proved_ones_never() {
        let places = Places::default();
        let held: Vec<_> = (0..64).map(|port| places.enter(at(1, port)).unwrap()).collect();
        held[7].0.refuse();
        assert_eq!(places.enter(at(2, 1)).unwrap().2, Some(at(1, 7)));
        held.iter().for_each(|(connection, ..)| connection.prove());
        let last = places.enter(at(3, 1)).unwrap();
        last.0.prove();
        assert!(places.enter(at(3, 2)).is_none(), "all have proved who they are");
        drop(held);
        assert!(places.enter(at(3, 2)).unwrap().2.is_none());
    }
}
