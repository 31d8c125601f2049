//! Addresses of targets.

use super::ether::EtherAddress;
use super::name::TargetName;
use std::fmt;
use std::net::SocketAddr;

/// Address and transport of a target.
#[derive(Clone, Debug)]
pub enum TargetAddress {
    /// NVMe/TCP.
    Tcp(SocketAddr),
    /// NVMe/TCP, by a name that is resolved for each connection.
    Name(TargetName),
    /// NVMe over raw Ethernet.
    Ether(EtherAddress),
}

impl TargetAddress {
    /// Returns the interfaces of an Ethernet address.
    pub(super) fn as_ether(&self) -> Option<&EtherAddress> {
        match self {
            TargetAddress::Ether(address) => Some(address),
            TargetAddress::Tcp(_) | TargetAddress::Name(_) => None,
        }
    }

    /// Returns the number of ports that a path to this address has on each reactor.
    pub(super) fn ports(&self) -> usize {
        self.as_ether().map_or(0, EtherAddress::ports)
    }
}

impl From<SocketAddr> for TargetAddress {
    fn from(address: SocketAddr) -> Self {
        TargetAddress::Tcp(address)
    }
}

impl From<TargetName> for TargetAddress {
    fn from(name: TargetName) -> Self {
        TargetAddress::Name(name)
    }
}

impl From<EtherAddress> for TargetAddress {
    fn from(address: EtherAddress) -> Self {
        TargetAddress::Ether(address)
    }
}

impl fmt::Display for TargetAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TargetAddress::Tcp(address) => address.fmt(f),
            TargetAddress::Name(name) => name.fmt(f),
            TargetAddress::Ether(address) => address.fmt(f),
        }
    }
}
