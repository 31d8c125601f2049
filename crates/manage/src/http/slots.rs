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
pub(super) const CONNECTIONS_MAX: usize = 64;

/// All slots. Clones share them.
#[derive(Clone, Default)]
pub(super) struct HttpConnectionSlots(Arc<Mutex<HttpSlotTable>>);

#[derive(Default)]
struct HttpSlotTable {
    /// Connections in the order in which they were accepted.
    entries: Vec<HttpSlotEntry>,
    next: u64,
}

struct HttpSlotEntry {
    number: u64,
    peer: SocketAddr,
    credentials: HttpCredentialState,
    task: Option<AbortHandle>,
}

/// Authentication state of a connection. The lowest is closed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum HttpCredentialState {
    /// It presented wrong credentials.
    Refused,
    /// It has presented nothing yet.
    New,
    /// It presented valid credentials.
    Authenticated,
}

/// A connection, as its handlers see it.
#[derive(Clone)]
pub struct HttpConnection {
    /// Address of the peer.
    pub peer: SocketAddr,
    slots: HttpConnectionSlots,
    number: u64,
}

/// Slot of a connection, released on drop.
pub(super) struct HttpConnectionSlot(HttpConnection);

impl HttpConnection {
    /// Marks the connection as authenticated: no new one replaces it.
    pub fn mark_authenticated(&self) {
        self.set(HttpCredentialState::Authenticated);
    }

    /// Marks the connection as refused: the next new one may replace it.
    pub fn mark_refused(&self) {
        self.set(HttpCredentialState::Refused);
    }

    fn set(&self, credentials: HttpCredentialState) {
        let mut table = self.slots.lock();
        let mut entries = table.entries.iter_mut();
        if let Some(entry) = entries.find(|entry| entry.number == self.number) {
            entry.credentials = credentials;
        }
    }
}

impl Drop for HttpConnectionSlot {
    fn drop(&mut self) {
        let HttpConnection { slots, number, .. } = &self.0;
        slots.lock().entries.retain(|entry| entry.number != *number);
    }
}

impl HttpConnectionSlots {
    /// Takes a slot for a connection of `peer`. Returns the address of the connection that was closed for it, if any.
    /// `None`: all connections are authenticated.
    pub(super) fn take_slot(
        &self,
        peer: SocketAddr,
    ) -> Option<(HttpConnection, HttpConnectionSlot, Option<SocketAddr>)> {
        let (number, replaced) = self.lock().take_slot(peer)?;
        replaced.iter().filter_map(|entry| entry.task.as_ref()).for_each(AbortHandle::abort);
        let connection = HttpConnection { peer, slots: self.clone(), number };
        Some((connection.clone(), HttpConnectionSlot(connection), replaced.map(|entry| entry.peer)))
    }

    /// True if the next connection replaces another one.
    pub(super) fn is_full(&self) -> bool {
        self.lock().is_full()
    }

    /// Registers the task to abort when the connection is closed for another one.
    pub(super) fn set_task(&self, connection: &HttpConnection, task: AbortHandle) {
        let mut table = self.lock();
        let mut entries = table.entries.iter_mut();
        if let Some(entry) = entries.find(|entry| entry.number == connection.number) {
            entry.task = Some(task);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HttpSlotTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HttpSlotTable {
    fn take_slot(&mut self, peer: SocketAddr) -> Option<(u64, Option<HttpSlotEntry>)> {
        let replaced = match self.is_full() {
            true => Some(self.entries.remove(self.first_to_replace()?)),
            false => None,
        };
        let (number, credentials) = (self.next, HttpCredentialState::New);
        self.next += 1;
        self.entries.push(HttpSlotEntry { number, peer, credentials, task: None });
        Some((number, replaced))
    }

    fn is_full(&self) -> bool {
        self.entries.len() >= CONNECTIONS_MAX
    }

    fn first_to_replace(&self) -> Option<usize> {
        let unauthenticated = || {
            let all = self.entries.iter().enumerate();
            all.filter(|(_, entry)| entry.credentials != HttpCredentialState::Authenticated)
        };
        let of_source = |peer: SocketAddr| {
            unauthenticated()
                .filter(|(_, other)| source::of(other.peer.ip()) == source::of(peer.ip()))
                .count()
        };
        let first = unauthenticated()
            .min_by_key(|(at, entry)| (entry.credentials, Reverse(of_source(entry.peer)), *at));
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
    fn unauthenticated_connections_are_replaced() {
        let slots = HttpConnectionSlots::default();
        let mut held = Vec::new();
        // A flood from one address, and one connection of another.
        for port in 0..200 {
            held.push(slots.take_slot(at(1, port)).unwrap());
        }
        let (quiet, place, replaced) = slots.take_slot(at(2, 1)).unwrap();
        assert_eq!(replaced, Some(at(1, 136)), "the oldest that is there");
        for port in 200..400 {
            held.push(slots.take_slot(at(1, port)).unwrap());
            assert_ne!(held.last().unwrap().2, Some(at(2, 1)), "the address with most pays");
        }
        quiet.mark_authenticated();
        let is_there = |peer| slots.lock().entries.iter().any(|entry| entry.peer == peer);
        assert!(is_there(at(2, 1)) && slots.lock().entries.len() == CONNECTIONS_MAX);
        drop(place);
        assert!(!is_there(at(2, 1)));
    }

    #[test]
    fn refused_ones_are_replaced_first_and_authenticated_ones_never() {
        let slots = HttpConnectionSlots::default();
        let held: Vec<_> = (0..64).map(|port| slots.take_slot(at(1, port)).unwrap()).collect();
        held[7].0.mark_refused();
        assert_eq!(slots.take_slot(at(2, 1)).unwrap().2, Some(at(1, 7)));
        held.iter().for_each(|(connection, ..)| connection.mark_authenticated());
        let last = slots.take_slot(at(3, 1)).unwrap();
        last.0.mark_authenticated();
        assert!(slots.take_slot(at(3, 2)).is_none(), "all have proved who they are");
        drop(held);
        assert!(slots.take_slot(at(3, 2)).unwrap().2.is_none());
    }
}
