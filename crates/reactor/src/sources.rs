//! Sources of connections, the unit of budgets. Costly work is shared between sources: one with many connections gets
//! no more of it than one with a single connection.

use roadtrain_proto::source;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

/// Source of a connection: a [`source`] of the network, or a station on Ethernet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ConnectionSource {
    /// A source of the network.
    Address(IpAddr),
    /// A station on Ethernet.
    Station(String),
}

impl From<SocketAddr> for ConnectionSource {
    fn from(peer: SocketAddr) -> Self {
        ConnectionSource::Address(source::of(peer.ip()))
    }
}

impl From<&str> for ConnectionSource {
    /// Parses a peer as logs show it.
    fn from(peer: &str) -> Self {
        match peer.parse::<SocketAddr>() {
            Ok(address) => address.into(),
            Err(_) => ConnectionSource::Station(peer.to_owned()),
        }
    }
}

/// Waiting values by source: each source's turn takes one of its values.
#[derive(Debug)]
pub struct SourceTurns<T>(VecDeque<(ConnectionSource, VecDeque<T>)>);

impl<T> Default for SourceTurns<T> {
    fn default() -> Self {
        SourceTurns(VecDeque::new())
    }
}

impl<T> SourceTurns<T> {
    /// Adds a value behind the others of its source.
    pub fn put(&mut self, source: ConnectionSource, value: T) {
        match self.0.iter_mut().find(|(other, _)| *other == source) {
            Some((_, waiting)) => waiting.push_back(value),
            None => self.0.push_back((source, VecDeque::from([value]))),
        }
    }

    /// Returns the waiting values of a source.
    pub fn of(&mut self, source: &ConnectionSource) -> Option<&mut VecDeque<T>> {
        self.0.iter_mut().find(|(other, _)| other == source).map(|(_, waiting)| waiting)
    }

    /// True if nothing waits.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes the first value of the source whose turn it is; the source moves to the end.
    pub fn take_next(&mut self) -> Option<T> {
        let (source, mut waiting) = self.0.pop_front()?;
        let value = waiting.pop_front();
        if !waiting.is_empty() {
            self.0.push_back((source, waiting));
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_is_one_source() {
        let source = |peer: &str| ConnectionSource::from(peer);
        assert_eq!(source("127.0.0.1:5"), source("127.0.0.1:6"));
        assert_eq!(source("127.0.0.1:5"), source("[::ffff:127.0.0.1]:6"));
        assert_ne!(source("127.0.0.1:5"), source("127.0.0.2:5"));
        assert_eq!(source("[2001:db8::1]:5"), source("[2001:db8::ffff:2]:5"));
        assert_ne!(source("[2001:db8::1]:5"), source("[2001:db8:0:1::1]:5"));
        assert_ne!(source("02:00:00:00:00:01"), source("02:00:00:00:00:02"));
    }

    #[test]
    fn sources_take_turns() {
        let mut turns = SourceTurns::default();
        for value in 1..=4 {
            turns.put("10.0.0.1:1".into(), value);
        }
        turns.put("10.0.0.2:1".into(), 11);
        turns.put("10.0.0.1:1".into(), 5);
        turns.put("10.0.0.2:2".into(), 12);
        let order: Vec<u32> = std::iter::from_fn(|| turns.take_next()).collect();
        assert_eq!(order, [1, 11, 2, 12, 3, 4, 5]);
    }
}
