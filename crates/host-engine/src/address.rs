//! Where a target is.

use super::ether::EtherAddress;
use super::name::TargetName;
use std::fmt;
use std::net::SocketAddr;

/// Where a target is, and over which transport.
#[derive(Clone, Debug)]
pub enum Address {
    /// NVMe/TCP.
    Tcp(SocketAddr),
    /// NVMe/TCP, wherever the name leads.
    Name(TargetName),
    /// Straight on Ethernet.
    Ether(EtherAddress),
}

impl Address {
    /// The interfaces, of one straight on Ethernet.
    pub(super) fn as_ether(&self) -> Option<&EtherAddress> {
        match self {
            Address::Ether(address) => Some(address),
            Address::Tcp(_) | Address::Name(_) => None,
        }
    }

    /// Ports that a path there has for itself on each reactor.
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
