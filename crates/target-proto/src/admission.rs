//! Admission of TCP connections: a limit for all of them, and one for each source ([`source`]). A connection without a
//! granted queue is unauthenticated: at a limit, the oldest of these is closed for a new connection.

use core::net::IpAddr;
use roadtrain_proto::source;
use std::collections::{BTreeMap, HashMap};
use std::fmt;

/// Limits on the number of open connections, granted a queue or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    pub all: u32,
    /// Connections from one source.
    pub per_address: u32,
}

/// Reasons to refuse a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionLimitReached {
    /// The target has this many connections, the limit.
    All(u32),
    /// The source address has this many connections, the limit.
    Address(u32),
}

impl fmt::Display for ConnectionLimitReached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectionLimitReached::All(limit) => {
                write!(f, "{limit} connections are open: --max-connections is the limit")
            }
            ConnectionLimitReached::Address(limit) => write!(
                f,
                "{limit} connections of its address, or its IPv6 network, are open: --max-connections-per-address is the limit"
            ),
        }
    }
}

/// An accepted connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    pub number: u64,
    /// Connection to close in exchange; it is no longer counted.
    pub instead_of: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct AdmissionEntry {
    address: IpAddr,
    is_unauthenticated: bool,
}

/// All open TCP connections.
#[derive(Debug)]
pub struct ConnectionAdmission {
    limits: ConnectionLimits,
    connections: HashMap<u64, AdmissionEntry>,
    by_address: HashMap<IpAddr, Share>,
    /// Unauthenticated connections by number, oldest first.
    unauthenticated: BTreeMap<u64, IpAddr>,
    last: u64,
}

/// Connections from one address.
#[derive(Debug, Default)]
struct Share {
    count: u32,
    unauthenticated: BTreeMap<u64, ()>,
}

impl ConnectionAdmission {
    /// Returns a registry without connections.
    #[must_use]
    pub fn new(limits: ConnectionLimits) -> Self {
        ConnectionAdmission {
            limits,
            connections: HashMap::new(),
            by_address: HashMap::new(),
            unauthenticated: BTreeMap::new(),
            last: 0,
        }
    }

    /// Returns the number of open connections.
    #[must_use]
    pub fn count(&self) -> usize {
        self.connections.len()
    }

    /// Accepts a connection from `address`.
    ///
    /// # Errors
    /// A limit is reached, and no unauthenticated connection can be closed for the new one.
    pub fn enter(&mut self, address: IpAddr) -> Result<Admitted, ConnectionLimitReached> {
        let address = source::of(address);
        let instead_of = self.make_room(address)?;
        self.last += 1;
        let number = self.last;
        self.connections.insert(number, AdmissionEntry { address, is_unauthenticated: true });
        self.unauthenticated.insert(number, address);
        let share = self.by_address.entry(address).or_default();
        share.count += 1;
        share.unauthenticated.insert(number, ());
        Ok(Admitted { number, instead_of })
    }

    fn make_room(&mut self, address: IpAddr) -> Result<Option<u64>, ConnectionLimitReached> {
        let ConnectionLimits { all, per_address } = self.limits;
        let share = self.by_address.get(&address).filter(|share| share.count >= per_address);
        let oldest = if let Some(share) = share {
            let oldest = share.unauthenticated.first_key_value().map(|(&number, ())| number);
            Some(oldest.ok_or(ConnectionLimitReached::Address(per_address))?)
        } else if self.connections.len() as u64 >= u64::from(all) {
            let oldest = self.unauthenticated.first_key_value().map(|(&number, _)| number);
            Some(oldest.ok_or(ConnectionLimitReached::All(all))?)
        } else {
            None
        };
        if let Some(number) = oldest {
            self.leave(number);
        }
        Ok(oldest)
    }

    /// Marks a connection as granted: its host has a queue, and is authenticated if it has to be. It is not closed for
    /// new connections.
    pub fn granted(&mut self, number: u64) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        connection.is_unauthenticated = false;
        self.unauthenticated.remove(&number);
        if let Some(share) = self.by_address.get_mut(&connection.address) {
            share.unauthenticated.remove(&number);
        }
    }

    /// Removes a closed connection.
    pub fn leave(&mut self, number: u64) {
        let Some(AdmissionEntry { address, .. }) = self.connections.remove(&number) else { return };
        self.unauthenticated.remove(&number);
        let Some(share) = self.by_address.get_mut(&address) else { return };
        share.count -= 1;
        share.unauthenticated.remove(&number);
        if share.count == 0 {
            self.by_address.remove(&address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;
    use proptest::prelude::*;

    fn host(n: u8) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, n).into()
    }

    fn admission(all: u32, per_address: u32) -> ConnectionAdmission {
        ConnectionAdmission::new(ConnectionLimits { all, per_address })
    }

    #[test]
    fn the_oldest_unauthenticated_connection_is_closed_at_a_limit() {
        let mut admission = admission(3, 3);
        let [a, b, c] = [1, 2, 3].map(|n| admission.enter(host(n)).unwrap().number);
        admission.granted(a);
        let d = admission.enter(host(4)).unwrap();
        assert_eq!(d.instead_of, Some(b), "the oldest has connected its queue");
        admission.leave(b); // its connection ends: it is not counted twice
        admission.granted(c);
        admission.granted(d.number);
        assert_eq!(admission.enter(host(5)), Err(ConnectionLimitReached::All(3)));
        admission.leave(a);
        assert_eq!(admission.enter(host(5)).unwrap().instead_of, None);
    }

    #[test]
    fn an_address_is_bounded_by_itself() {
        let mut admission = admission(100, 2);
        let first = admission.enter(host(1)).unwrap().number;
        let other = admission.enter(host(2)).unwrap().number;
        admission.enter(host(1)).unwrap();
        let third = admission.enter(host(1)).unwrap();
        assert_eq!(third.instead_of, Some(first), "one of its own, not {other}");
        let mapped = IpAddr::V6(Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped());
        assert!(admission.enter(mapped).unwrap().instead_of.is_some(), "the same address");
        for number in 0..=admission.last {
            admission.granted(number);
        }
        assert_eq!(admission.enter(host(1)), Err(ConnectionLimitReached::Address(2)));
        assert_eq!(admission.enter(host(2)).unwrap().instead_of, None);
        let text = ConnectionLimitReached::Address(2).to_string();
        assert!(text.contains("--max-connections-per-address"), "{text}");
    }

    #[test]
    fn a_network_has_one_limit() {
        // Each of its addresses would otherwise have a limit of its own.
        let mut admission = admission(100, 2);
        let [first, second] = [1, 2].map(|host| {
            let address = format!("2001:db8::{host}").parse().unwrap();
            admission.enter(address).unwrap().number
        });
        [first, second].into_iter().for_each(|number| admission.granted(number));
        let third = admission.enter("2001:db8::3".parse().unwrap());
        assert_eq!(third, Err(ConnectionLimitReached::Address(2)));
        assert!(admission.enter("2001:db8:1::1".parse().unwrap()).is_ok());
    }

    proptest! {
        /// In every sequence of steps no limit is exceeded, granted connections stay, and nothing is left at the end.
        #[test]
        fn limits_hold(steps in prop::collection::vec((0u8..4, 0u8..3, any::<prop::sample::Index>()), 1..200)) {
            let mut admission = admission(6, 4);
            let mut there: Vec<(u64, IpAddr, bool)> = Vec::new();
            for (what, address, which) in steps {
                match what {
                    0 | 1 => match admission.enter(host(address)) {
                        Ok(Admitted { number, instead_of }) => {
                            if let Some(gone) = instead_of {
                                let at = there.iter().position(|c| c.0 == gone).unwrap();
                                prop_assert!(!there.remove(at).2, "it has connected a queue");
                            }
                            there.push((number, host(address), false));
                        }
                        Err(ConnectionLimitReached::All(_)) => prop_assert!(there.iter().all(|c| c.2)),
                        Err(ConnectionLimitReached::Address(_)) => {
                            prop_assert!(there.iter().filter(|c| c.1 == host(address)).all(|c| c.2));
                        }
                    },
                    2 if !there.is_empty() => {
                        let connection = which.get(&there).0;
                        admission.granted(connection);
                        there.iter_mut().filter(|c| c.0 == connection).for_each(|c| c.2 = true);
                    }
                    3 if !there.is_empty() => {
                        let (number, ..) = there.remove(which.index(there.len()));
                        admission.leave(number);
                    }
                    _ => {}
                }
                prop_assert_eq!(admission.count(), there.len());
                prop_assert!(there.len() <= 6);
                for n in 0..3 {
                    prop_assert!(there.iter().filter(|c| c.1 == host(n)).count() <= 4);
                }
            }
            for (number, ..) in there {
                admission.leave(number);
            }
            prop_assert!(admission.by_address.is_empty() && admission.unauthenticated.is_empty());
        }
    }
}
