//! Addresses of targets.

use super::ether::EtherAddress;
use super::name::TargetName;
use std::fmt;
use std::net::SocketAddr;

/// Address and transport of a target.
#[derive(Clone, Debug)]
pub enum Address {
    /// NVMe/TCP.
    Tcp(SocketAddr),
    /// NVMe/TCP, by a name that is resolved for each connection.
    Name(TargetName),
    /// NVMe over raw Ethernet.
    Ether(EtherAddress),
}

impl Address {
    /// Returns the interfaces of an Ethernet address.
    pub(super) fn as_ether(&self) -> Option<&EtherAddress> {
        match self {
            Address::Ether(address) => Some(address),
            Address::Tcp(_) | Address::Name(_) => None,
        }
    }

    /// Returns the number of ports that a path to this address has on each reactor.
    pub(super) fn ports(&self) -> usize {
        self.as_ether().map_or(0, EtherAddress::ports)
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Address::Tcp(address)
    }
}

impl From<TargetName> for Address {
    fn from(name: TargetName) -> Self {
        Address::Name(name)
    }
}

impl From<EtherAddress> for Address {
    fn from(address: EtherAddress) -> Self {
        Address::Ether(address)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => address.fmt(f),
            Address::Name(name) => name.fmt(f),
            Address::Ether(address) => address.fmt(f),
        }
    }
}
